//! An owner of two pairs that clients search: written through `cell_pair`, as a worker writes, over simulated
//! logs. What was appended may be seen once [`Owner::raise`] has made it durable.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cell_cluster::{ClaimReason, Layout, PairGeometry, Sim};
use cell_fabric::{HostEndpoint, MappedRegion, OneSided, ReadFailure, RegionKey, RemoteRead};
use cell_memory::{HEADER_BYTES, HugePages, Region, RegionOptions};
use cell_pair::{Pair, PairOptions};
use cell_protocol::PairRegions;
use cell_recovery::image::ImageSource;
use cell_recovery::{PublishRequest, RecoveryOptions, RegionSource, Restore, WriteCompletion, WriteOutcome};
use cell_terms::{
    Csn, Durability, Epoch, ExtentOffset, OperationNumber, PairId, Pointer, Root, SessionId, SlotIndex,
    Version,
};
use cell_test_kit::{OPTIONS, Process, settle};
use cell_tree::LeafEntry;
use cell_wal::LogOptions;
use cell_wal::sim::{SimDevice, SimDisk};

const NODE_BYTES: u32 = 512;
const SLOT_BYTES: u64 = 128 << 10;
const SLOTS: u64 = 3;
const EXTENT_BYTES: u64 = 8 << 20;
const SIZES: PairGeometry = PairGeometry {
    node_region_bytes: HEADER_BYTES + SLOTS * SLOT_BYTES,
    extent_region_bytes: EXTENT_BYTES,
    slot_bytes: SLOT_BYTES,
    node_bytes: NODE_BYTES,
};

/// The first epoch of a pair.
pub(crate) const EPOCH: Epoch = Epoch(1);

/// One pair, its log, and what is reported to clients of it.
pub(crate) struct Owned {
    pub(crate) pair: Pair,
    device: SimDevice,
    source: ImageSource,
    /// What names node region and extent region to clients.
    keys: [u64; 2],
    /// Under which they are registered.
    pub(crate) epoch: Epoch,
    /// Whether reads of its regions are served.
    pub(crate) registered: bool,
    /// What its replies say is visible, where that is not the truth.
    pub(crate) visible_reported: Option<Csn>,
    /// Its regions as clients map them, where they may.
    mapped: Option<[MappedRegion; 2]>,
    /// Whether the registrations have ended, as those see it who have mapped them.
    ended: [Arc<AtomicBool>; 2],
}

/// All of it, and what it should hold.
pub(crate) struct Owner {
    pub(crate) pairs: Vec<Owned>,
    pub(crate) entries: BTreeMap<Vec<u8>, (Version, Vec<u8>)>,
    /// By which keys clients have read, if they can map a region only once they have read it.
    keys_read: Option<RefCell<BTreeSet<u64>>>,
    /// Pair and slot of each meganode, by low fence.
    meganodes: BTreeMap<Vec<u8>, (usize, u32)>,
    disk: SimDisk,
    number: u64,
}

impl Owned {
    fn begin(process: &Process, restore: Restore) -> Owned {
        let log = LogOptions { segment_bytes: 16 << 20, batch_bytes: 1 << 20, ..LogOptions::default() };
        let publish = PublishRequest { log, ..process.publish_request(Durability::Sync) };
        let (recovered, device) = process.publish_as(restore, &publish).unwrap();
        assert_eq!(recovered.epoch, EPOCH);
        let options = PairOptions {
            durability: Durability::Sync,
            reuse_grace_ns: 1,
            grant_chunk_bytes: 1 << 20,
            split_fill_percent: 100,
            compaction_permille: 0,
        };
        let pair = Pair::new(recovered, &options);
        let source = pair.source();
        let ended = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let first = u64::from(pair.id().0) * 100;
        let keys = [first, first + 1];
        Owned {
            pair,
            device,
            source,
            keys,
            epoch: EPOCH,
            registered: true,
            visible_reported: None,
            mapped: None,
            ended,
        }
    }

    pub(crate) fn node_key(&self) -> u64 {
        self.keys[0]
    }

    pub(crate) fn extent_key(&self) -> u64 {
        self.keys[1]
    }

    /// What replies say is visible.
    pub(crate) fn visible(&self) -> Csn {
        self.visible_reported.unwrap_or(self.pair.visible())
    }

    /// Its regions are registered again, by other keys.
    pub(crate) fn register_anew(&mut self) {
        self.keys = self.keys.map(|key| key + 2);
        if self.mapped.is_some() {
            self.ended.iter().for_each(|ended| ended.store(true, Ordering::Release));
            self.ended = [(); 2].map(|()| Arc::default());
            self.map();
        }
    }

    fn map(&mut self) {
        let map = |region: &Region, ended| MappedRegion::local(region.clone(), Arc::clone(ended));
        let [node, extent] = &self.ended;
        self.mapped = Some([map(&self.source.node, node), map(&self.source.extent, extent)]);
    }

    /// Another life of a node has it, as it was.
    pub(crate) fn begin_anew(&mut self) {
        self.register_anew();
        self.epoch.0 += 1;
    }

    /// Everything that was written may be seen.
    fn raise(&mut self, disk: &SimDisk) {
        settle(&mut self.pair, &mut self.device, || disk.step());
    }

    /// The region with this key, and the one that clients map.
    fn region(&self, key: RegionKey) -> Option<(&Region, Option<&MappedRegion>)> {
        let mapped = |at: usize| self.mapped.as_ref().map(|mapped| &mapped[at]);
        match key.0 {
            key if key == self.node_key() => Some((&self.source.node, mapped(0))),
            key if key == self.extent_key() => Some((&self.source.extent, mapped(1))),
            _ => None,
        }
    }

    pub(crate) fn row(&self) -> PairRegions {
        let (node, extent) = (self.source.node.spec(), self.source.extent.spec());
        PairRegions {
            pair: self.pair.id(),
            epoch: self.epoch,
            node_region: node.id,
            extent_region: extent.id,
            node_key: self.node_key(),
            extent_key: self.extent_key(),
            node_region_bytes: node.bytes,
            extent_region_bytes: extent.bytes,
            slot_bytes: SLOT_BYTES,
            tree_node_bytes: NODE_BYTES,
            header_bytes: u32::try_from(HEADER_BYTES).unwrap(),
            node_crc: self.source.geometry.node_crc(),
        }
    }
}

impl Owner {
    /// One meganode in the first pair's first slot, which is the root; the second pair is empty.
    pub(crate) fn new(node_crc: bool) -> Owner {
        Owner::begin(node_crc, &Layout::single(), RegionSource::Private)
    }

    /// The same in memory that other processes can map.
    pub(crate) fn shareable() -> Owner {
        let options = RegionOptions { pages: HugePages::Small, memory_check: false };
        Owner::begin(false, &Layout::single(), RegionSource::Shared(options))
    }

    /// A tree of these ranges, under a router if there is more than one.
    pub(crate) fn laid_out(layout: &Layout) -> Owner {
        Owner::begin(false, layout, RegionSource::Private)
    }

    fn begin(node_crc: bool, layout: &Layout, regions: RegionSource) -> Owner {
        let options = RecoveryOptions { regions, node_crc, ..OPTIONS };
        let process = Process::with(&SimDisk::new(1), &Sim::new(1), options);
        process.environment.table.lay_out(layout, SIZES, process.lease).unwrap();
        let pairs = [PairId(1), PairId(2)].map(|pair| {
            let restore = if pair.0 <= layout.pairs() {
                process.claim(pair, ClaimReason::LeaseEnded)
            } else {
                process.restore(process.create(SIZES))
            };
            Owned::begin(&process, restore.unwrap())
        });
        let place = |pair: PairId| pair.0 as usize - 1;
        let ranges = layout.ranges().iter();
        Owner {
            pairs: pairs.into(),
            entries: BTreeMap::new(),
            keys_read: None,
            meganodes: ranges
                .map(|range| (range.low.clone().into_bytes(), (place(range.pair), range.slot.0)))
                .collect(),
            disk: process.disk,
            number: 0,
        }
    }

    /// Everything that was written may be seen.
    pub(crate) fn raise(&mut self) {
        self.pairs.iter_mut().for_each(|owned| owned.raise(&self.disk));
    }

    pub(crate) fn set_root(&mut self, root: Root) {
        self.pairs[0].pair.set_root(root).unwrap();
        self.raise();
    }

    pub(crate) fn root_of(&self, pair: usize, slot: u32) -> Pointer {
        self.pairs[pair].pair.pointer(SlotIndex(slot))
    }

    /// Begins a router in a free slot that leads all keys to one meganode; where it is.
    pub(crate) fn add_router(&mut self, pair: usize, slot: u32, to: Pointer) -> Pointer {
        let owned = &mut self.pairs[pair].pair;
        assert!(owned.begin_router(SlotIndex(slot)));
        owned.route(SlotIndex(slot), &[], to).unwrap();
        self.raise();
        self.root_of(pair, slot)
    }

    fn meganode_of(&self, key: &[u8]) -> (usize, SlotIndex) {
        let (pair, slot) = *self.meganodes.range(..=key.to_vec()).next_back().unwrap().1;
        (pair, SlotIndex(slot))
    }

    fn completion(&mut self, outcome: WriteOutcome) -> WriteCompletion {
        self.number += 1;
        let number = OperationNumber(self.number);
        WriteCompletion { session: SessionId(1), number, floor: number, outcome }
    }

    /// Writes an entry, visible once [`Owner::raise`] says so.
    pub(crate) fn put_unseen(&mut self, key: &[u8], value: &[u8]) -> Version {
        let (pair, slot) = self.meganode_of(key);
        let named = self.completion(WriteOutcome::NotFound);
        let owned = &mut self.pairs[pair].pair;
        owned.make_room(slot, value.len());
        let written = owned.put(slot, key, value, |version, replaced| WriteCompletion {
            outcome: WriteOutcome::Written { version, replaced },
            ..named
        });
        let (WriteOutcome::Written { version, .. }, _) = written.unwrap() else { panic!("it was a put") };
        self.entries.insert(key.to_vec(), (version, value.to_vec()));
        version
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Version {
        let version = self.put_unseen(key, value);
        self.raise();
        version
    }

    /// Moves an entry, and uses its place for another entry without the grace period.
    pub(crate) fn move_and_reuse(
        &mut self,
        key: &[u8],
        value: &[u8],
        other: &[u8],
        other_value: &[u8],
    ) -> Version {
        let place = self.entry(key).unwrap().offset;
        let moved = self.put(key, value);
        self.reuse_for(place, other, other_value);
        moved
    }

    /// Writes an entry into a place that was freed, without the grace period.
    pub(crate) fn reuse_for(&mut self, place: ExtentOffset, key: &[u8], value: &[u8]) {
        let (pair, _) = self.meganode_of(key);
        self.pairs[pair].pair.reuse(0);
        assert!(self.pairs[pair].pair.reuse(1), "something was freed");
        self.put(key, value);
        assert_eq!(self.entry(key).unwrap().offset, place, "the place is used again");
    }

    /// Removes an entry, visible once [`Owner::raise`] says so.
    pub(crate) fn delete_unseen(&mut self, key: &[u8]) {
        let (pair, slot) = self.meganode_of(key);
        let completion = self.completion(WriteOutcome::Deleted);
        self.pairs[pair].pair.delete(slot, key, &completion).unwrap();
        self.entries.remove(key);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.delete_unseen(key);
        self.raise();
    }

    /// What the leaf says of a key.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<LeafEntry> {
        let (pair, slot) = self.meganode_of(key);
        self.pairs[pair].pair.meganode(slot).search(key).unwrap().entry
    }

    /// Lets clients map every pair's regions.
    pub(crate) fn map(&mut self) {
        (0..self.pairs.len()).for_each(|pair| self.map_pair(pair));
    }

    /// Lets clients map one pair's regions.
    pub(crate) fn map_pair(&mut self, pair: usize) {
        self.pairs[pair].map();
    }

    /// Lets clients map every pair's regions, each once they have read it: as over shared memory.
    pub(crate) fn map_when_read(&mut self) {
        self.map();
        self.keys_read = Some(RefCell::default());
    }

    /// Registers every pair's regions at a real endpoint.
    pub(crate) fn register(&mut self, endpoint: &mut HostEndpoint) {
        for owned in &mut self.pairs {
            let regions = [&owned.source.node, &owned.source.extent];
            owned.keys = regions.map(|region| endpoint.register(region).unwrap().0);
        }
    }

    /// Ends the registration of every pair's regions.
    pub(crate) fn unregister(&mut self) {
        for owned in &mut self.pairs {
            owned.registered = false;
            owned.ended.iter().for_each(|ended| ended.store(true, Ordering::Release));
        }
    }

    /// Ends the registration of every extent region, for those who have mapped it.
    pub(crate) fn end_mapped_extents(&mut self) {
        (0..self.pairs.len()).for_each(|pair| self.end_mapped_extents_of(pair));
    }

    /// As [`Owner::end_mapped_extents`], of one pair.
    pub(crate) fn end_mapped_extents_of(&mut self, pair: usize) {
        self.pairs[pair].ended[1].store(true, Ordering::Release);
    }

    /// A region as a client maps it.
    pub(crate) fn mapped(&self, key: RegionKey) -> Option<MappedRegion> {
        let may_map = self.keys_read.as_ref().is_none_or(|keys| keys.borrow().contains(&key.0));
        let found = self.pairs.iter().find_map(|owned| owned.region(key)?.1.cloned());
        found.filter(|_| may_map)
    }

    /// What a one-sided read returns now.
    pub(crate) fn read(&self, read: &RemoteRead) -> Result<Vec<u64>, ReadFailure> {
        let registered = self.pairs.iter().filter(|owned| owned.registered);
        let found = registered.filter_map(|owned| owned.region(read.key)).next();
        let (region, _) = found.ok_or(ReadFailure::KeyUnknown)?;
        let end = read.offset.checked_add(u64::from(read.length)).filter(|end| *end <= region.spec().bytes);
        end.ok_or(ReadFailure::RangeInvalid)?;
        let mut words = vec![0; usize::try_from(read.length / 8).unwrap()];
        region.read_words(usize::try_from(read.offset / 8).unwrap(), &mut words);
        if let Some(keys) = &self.keys_read {
            keys.borrow_mut().insert(read.key.0);
        }
        Ok(words)
    }
}
