//! An owner's memory in plain words: pairs with node and extent regions, written as a worker writes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cell_fabric::{MappedRegion, ReadFailure, RegionKey, RemoteRead};
use cell_memory::extent::{ExtentEncoder, ExtentHeader, byte_offset};
use cell_memory::{HEADER_BYTES, Region, RegionSpec, RegionWriter, header_word};
use cell_protocol::PairRegions;
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, Pointer, RegionKind, Root, SlotIndex, Version, WordsMut};
use cell_tree::{
    BulkFrame, Change, Geometry, LeafEntry, Meganode, NodeIndex, Plan, Slot, SlotAllocator, apply,
    bulk_build, node_crc, plan_put, plan_remove,
};

const NODE_BYTES: usize = 512;
const SLOT_BYTES: usize = 128 << 10;
const SLOTS: usize = 3;
const EXTENT_BYTES: usize = 2 << 20;

pub(crate) const EPOCH: Epoch = Epoch(5);

/// A region as a client maps it, as of the last [`Owner::publish`].
struct Mirror {
    writer: RegionWriter,
    mapped: MappedRegion,
    published: Vec<u64>,
}

impl Mirror {
    /// Brings it up to date: words that have changed, all but the header.
    fn publish(&mut self, words: &[u64]) {
        const AT_A_TIME: usize = 512;
        let chunks = words.chunks(AT_A_TIME).zip(self.published.chunks_mut(AT_A_TIME)).enumerate().skip(1);
        for (chunk, (new, old)) in chunks.filter(|(_, (new, old))| **new != **old) {
            self.writer.write_words(chunk * AT_A_TIME, new);
            old.copy_from_slice(new);
        }
    }
}

const _: () = assert!(HEADER_BYTES == 512 * 8, "the first chunk is the header");

/// One pair's memory.
pub(crate) struct Memory {
    pub(crate) pair: PairId,
    pub(crate) node: Vec<u64>,
    pub(crate) extent: Vec<u64>,
    slots: Vec<SlotAllocator>,
    next_extent: u32,
    pub(crate) csn: u64,
    pub(crate) registered: bool,
    /// Its regions as clients map them, where they may.
    mapped: Option<[Mirror; 2]>,
}

/// All of it, and what it should hold.
pub(crate) struct Owner {
    pub(crate) pairs: Vec<Memory>,
    pub(crate) geometry: Geometry,
    pub(crate) entries: BTreeMap<Vec<u8>, (Version, Vec<u8>)>,
    /// Pair and slot of each meganode, by low fence.
    pub(crate) meganodes: BTreeMap<Vec<u8>, (usize, u32)>,
    plan: Plan,
}

impl Memory {
    fn new(number: u32) -> Memory {
        let pair = PairId(number);
        let words = |bytes: usize| vec![0; bytes / 8];
        let mut memory = Memory {
            pair,
            node: words(HEADER_BYTES as usize + SLOTS * SLOT_BYTES),
            extent: words(EXTENT_BYTES),
            slots: (0..SLOTS).map(|_| SlotAllocator::new(SLOT_BYTES / NODE_BYTES)).collect(),
            next_extent: 256,
            csn: 0,
            registered: true,
            mapped: None,
        };
        memory.node[header_word::EPOCH] = u64::from(EPOCH.0);
        memory
    }

    pub(crate) fn slot(&self, index: u32) -> Slot {
        Slot { region: self.pair.node_region(), index: SlotIndex(index) }
    }

    pub(crate) fn node_key(&self) -> u64 {
        u64::from(self.pair.0) * 100
    }

    pub(crate) fn extent_key(&self) -> u64 {
        u64::from(self.pair.0) * 100 + 1
    }

    /// Lets clients map its regions.
    fn map(&mut self) {
        let region = |kind, id, words: &[u64]| {
            let (slot_bytes, node_bytes) = match kind {
                RegionKind::Node => (SLOT_BYTES as u64, NODE_BYTES as u32),
                RegionKind::Extent => (0, 0),
            };
            let bytes = words.len() as u64 * 8;
            let spec = RegionSpec { id, pair: self.pair, kind, bytes, slot_bytes, node_bytes, epoch: EPOCH };
            let (region, writer) = Region::create_private(&spec).unwrap();
            let mapped = MappedRegion::local(region, Arc::new(AtomicBool::new(false)));
            Mirror { writer, mapped, published: vec![0; words.len()] }
        };
        let node = region(RegionKind::Node, self.pair.node_region(), &self.node);
        self.mapped = Some([node, region(RegionKind::Extent, self.pair.extent_region(), &self.extent)]);
    }

    /// Brings what clients have mapped up to date.
    fn publish(&mut self) {
        let Memory { node, extent, mapped: Some([nodes, extents]), .. } = self else { return };
        nodes.publish(node);
        extents.publish(extent);
        for index in [header_word::FIRST, header_word::DURABLE, header_word::VISIBLE] {
            nodes.writer.store(index, node[index]);
        }
    }

    /// Everything that was written may be seen.
    pub(crate) fn raise(&mut self) {
        self.node[header_word::DURABLE] = self.csn;
        self.node[header_word::VISIBLE] = self.csn;
    }

    pub(crate) fn visible(&self) -> Csn {
        Csn(self.node[header_word::VISIBLE])
    }

    /// Writes an extent at a place, or at a new one.
    pub(crate) fn store(&mut self, value: &[u8], at: Option<ExtentOffset>) -> (LeafEntry, Version) {
        self.csn += 1;
        let header = ExtentHeader { epoch: EPOCH, csn: Csn(self.csn), ..ExtentHeader::default() };
        let mut encoder = ExtentEncoder::new();
        let encoded = encoder.encode(&header, value).unwrap();
        let offset = at.unwrap_or(ExtentOffset(self.next_extent));
        if at.is_none() {
            self.next_extent += u32::try_from(encoded.bytes.len().div_ceil(16)).unwrap();
        }
        let first = usize::try_from(byte_offset(offset) / 8).unwrap();
        for (at, chunk) in encoded.bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.extent[first + at] = u64::from_le_bytes(word);
        }
        let entry = LeafEntry { offset, value_len: encoded.shape.bits(), crc: encoded.checksum };
        (entry, header.version(self.pair))
    }

    pub(crate) fn row(&self, geometry: Geometry) -> PairRegions {
        PairRegions {
            pair: self.pair,
            epoch: EPOCH,
            node_region: self.pair.node_region(),
            extent_region: self.pair.extent_region(),
            node_key: self.node_key(),
            extent_key: self.extent_key(),
            node_region_bytes: self.node.len() as u64 * 8,
            extent_region_bytes: self.extent.len() as u64 * 8,
            slot_bytes: SLOT_BYTES as u64,
            tree_node_bytes: u32::try_from(NODE_BYTES).unwrap(),
            header_bytes: u32::try_from(HEADER_BYTES).unwrap(),
            node_crc: geometry.node_crc(),
        }
    }
}

impl Owner {
    /// One pair with an empty meganode in its first slot, which is the root.
    pub(crate) fn new(node_crc: bool) -> Owner {
        let geometry = Geometry::new(NODE_BYTES, SLOT_BYTES, HEADER_BYTES as usize).unwrap();
        let geometry = geometry.with_node_crc(node_crc);
        let mut owner = Owner {
            pairs: vec![Memory::new(1), Memory::new(2)],
            geometry,
            entries: BTreeMap::new(),
            meganodes: BTreeMap::from([(Vec::new(), (0, 0))]),
            plan: Plan::new(),
        };
        let none: [(&[u8], LeafEntry); 0] = [];
        owner.build(0, 0, &BulkFrame::WHOLE, &none);
        owner.set_root(Root::leaf(owner.root_of(0, 0)));
        owner.raise();
        owner
    }

    pub(crate) fn raise(&mut self) {
        self.pairs.iter_mut().for_each(Memory::raise);
    }

    pub(crate) fn set_root(&mut self, root: Root) {
        self.pairs[0].node[header_word::FIRST] = root.to_word();
    }

    pub(crate) fn root_of(&self, pair: usize, slot: u32) -> Pointer {
        self.geometry.pointer(self.pairs[pair].slot(slot), NodeIndex::ROOT)
    }

    /// Builds a meganode.
    pub(crate) fn build(
        &mut self,
        pair: usize,
        slot: u32,
        frame: &BulkFrame<'_>,
        entries: &[(&[u8], LeafEntry)],
    ) {
        let geometry = self.geometry;
        let Memory { node, slots, csn, pair: id, .. } = &mut self.pairs[pair];
        let place = Slot { region: id.node_region(), index: SlotIndex(slot) };
        let entries = entries.iter().copied();
        bulk_build(geometry, place, frame, &mut slots[slot as usize], entries, |change| {
            *csn += 1;
            write(node, geometry, place, &change, Csn(*csn));
        })
        .unwrap();
    }

    fn meganode_of(&self, key: &[u8]) -> (usize, u32) {
        *self.meganodes.range(..=key.to_vec()).next_back().unwrap().1
    }

    /// Writes an entry, visible once [`Owner::raise`] says so.
    pub(crate) fn put_unseen(&mut self, key: &[u8], value: &[u8]) -> Version {
        let (pair, slot) = self.meganode_of(key);
        let (entry, version) = self.pairs[pair].store(value, None);
        self.point(key, entry, (pair, slot));
        self.entries.insert(key.to_vec(), (version, value.to_vec()));
        version
    }

    pub(crate) fn point(&mut self, key: &[u8], entry: LeafEntry, (pair, slot): (usize, u32)) {
        let (geometry, place) = (self.geometry, self.pairs[pair].slot(slot));
        let Memory { node, slots, csn, .. } = &mut self.pairs[pair];
        let slots = &mut slots[slot as usize];
        let meganode = Meganode::new(node.as_slice(), geometry, place);
        plan_put(&meganode, slots, key, entry, &mut self.plan).unwrap();
        for change in self.plan.changes() {
            *csn += 1;
            write(node, geometry, place, &change, Csn(*csn));
        }
        self.plan.commit(slots);
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Version {
        let version = self.put_unseen(key, value);
        self.raise();
        version
    }

    pub(crate) fn delete_unseen(&mut self, key: &[u8]) {
        let (pair, slot) = self.meganode_of(key);
        let (geometry, place) = (self.geometry, self.pairs[pair].slot(slot));
        let Memory { node, slots, csn, .. } = &mut self.pairs[pair];
        plan_remove(&Meganode::new(node.as_slice(), geometry, place), key, &mut self.plan).unwrap();
        for change in self.plan.changes() {
            *csn += 1;
            write(node, geometry, place, &change, Csn(*csn));
        }
        self.plan.commit(&mut slots[slot as usize]);
        self.entries.remove(key);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.delete_unseen(key);
        self.raise();
    }

    /// What the leaf says of a key.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<LeafEntry> {
        let (pair, slot) = self.meganode_of(key);
        let memory = &self.pairs[pair];
        let meganode = Meganode::new(memory.node.as_slice(), self.geometry, memory.slot(slot));
        meganode.search(key).unwrap().entry
    }

    /// Lets clients map every pair's regions.
    pub(crate) fn map(&mut self) {
        self.pairs.iter_mut().for_each(Memory::map);
        self.publish();
    }

    /// Brings what clients have mapped up to date.
    pub(crate) fn publish(&mut self) {
        self.pairs.iter_mut().for_each(Memory::publish);
    }

    /// A region as a client maps it.
    pub(crate) fn mapped(&self, key: RegionKey) -> Option<MappedRegion> {
        let memory = self.pairs.iter().find(|memory| key.0 / 100 == u64::from(memory.pair.0))?;
        let [node, extent] = memory.mapped.as_ref()?;
        let of = if key.0 == memory.node_key() { node } else { extent };
        Some(of.mapped.clone())
    }

    /// What a one-sided read returns now.
    pub(crate) fn read(&self, read: &RemoteRead) -> Result<Vec<u64>, ReadFailure> {
        let find = |memory: &&Memory| memory.registered && read.key.0 / 100 == u64::from(memory.pair.0);
        let memory = self.pairs.iter().find(find).ok_or(ReadFailure::KeyUnknown)?;
        let words = if read.key.0 == memory.node_key() { &memory.node } else { &memory.extent };
        let first = usize::try_from(read.offset / 8).unwrap();
        let count = usize::try_from(read.length / 8).unwrap();
        words.get(first..first + count).map(<[u64]>::to_vec).ok_or(ReadFailure::RangeInvalid)
    }
}

/// Applies a change; where nodes carry their CRC, so does this one.
fn write(node: &mut [u64], geometry: Geometry, slot: Slot, change: &Change<'_>, csn: Csn) {
    apply(node, geometry, slot, change, csn);
    let first = geometry.node_offset(slot.index, change.node()) / 8;
    if geometry.node_crc() {
        let words = &node[first..first + geometry.node_words()];
        assert_eq!(node_crc(geometry, words), words[4], "the writer keeps the CRC");
    }
    node.store(first, node[first]);
}
