//! Pages of mapped memory: leaf by leaf planned, as the owner's own scan walks them, then filled, each value
//! copied once to where it stays in the page that the caller gets.
//!
//! Each leaf is of one moment, and the next one begins where it ended. An extent is its leaf's by the
//! checksum that the leaf has for it. A header that was read alone, of a page of keys or of a value that does
//! not fit the page, has none:
//!
//! 1. the leaf says: this key's entry is at this place;
//! 2. the header at the place is read;
//! 3. the leaf has not changed since 1. A place is given away only after its leaf was changed, so the header
//!    was the entry's.
//!
//! Whether the registrations lasted is asked once, of each pair whose leaves were looked at, after the last
//! load of all. Whatever is not so ends the attempt, and the page is left to reads, which try again and give
//! up. What was found is validated like what reads brought: clock, watermark, trust.

use cell_fabric::MappedRegion;
use cell_memory::Region;
use cell_memory::extent::{ExtentHeader, ExtentReader, ExtentShape, read_header};
use cell_protocol::Scan;
use cell_terms::Csn;
use cell_tree::{LeafSnapshot, LeafVersion, ReadError};

use super::direct::{MappedMeganode, ask_for_extent};
use super::leaf_in_place::LeafInPlace;
use super::mapping::MappedPair;
use super::page::{PageEntry, PagePlan, PageProgress};
use super::place::{MeganodePlace, PairAt};
use super::regions::Regions;
use super::verdict::depend_on;
use crate::mutant::{Mutant, planted};
use crate::output::{KeptEntryValue, ScanPage};

/// What the last value's copy may need beyond its end.
const SPARE_BYTES: usize = 16;

/// A page that was read in place.
#[derive(Debug)]
pub(super) struct PageInPlace {
    pub(super) page: ScanPage,
    /// How long the operation may take, by the owners of all that was looked at.
    pub(super) ns_max: u64,
}

/// A leaf whose entries are in the page.
#[derive(Clone, Copy, Debug)]
struct ScannedLeaf {
    place: MeganodePlace,
    seen: LeafVersion,
    /// The first of the page's entries that is not of this leaf or of one before it.
    end: usize,
}

/// Reads pages, one after the other, in memory that is used again and again.
#[derive(Debug, Default)]
pub(super) struct PageReader {
    plan: PagePlan,
    keys_only: bool,
    leaf: LeafSnapshot,
    leaves: Vec<ScannedLeaf>,
    /// Where the last page's scan came to a meganode, in this order.
    pub(super) meganodes: Vec<LeafInPlace>,
}

impl PageReader {
    /// A page of a range, and what it depends on, which replaces what `needs` had. `None`: it is not that
    /// simple, and reads are to find out.
    pub(super) fn read(
        &mut self,
        scan: &Scan<'_>,
        entries_max: u32,
        (regions, extents): (&mut Regions, &mut ExtentReader),
        needs: &mut Vec<(PairAt, Csn)>,
    ) -> Option<PageInPlace> {
        needs.clear();
        let ns_max = self.plan(scan, entries_max, regions, needs)?;
        let page = self.fill(regions, extents, needs)?;
        Some(PageInPlace { page, ns_max: if planted(Mutant::ScanUntimed) { u64::MAX } else { ns_max } })
    }

    /// Plans the page, leaf by leaf; extents and the next leaf are asked for ahead. How long the operation
    /// may take.
    fn plan(
        &mut self,
        scan: &Scan<'_>,
        entries_max: u32,
        regions: &mut Regions,
        needs: &mut Vec<(PairAt, Csn)>,
    ) -> Option<u64> {
        let PageReader { plan, keys_only, leaf, leaves, meganodes } = self;
        plan.begin(scan, entries_max);
        *keys_only = scan.keys_only;
        leaves.clear();
        meganodes.clear();
        let mut here = regions.leaf_in_place(plan.aim(scan), leaf)?;
        meganodes.push(here);
        let mut ns_max = here.ns_max;
        loop {
            let pair = here.place.at;
            depend_on(needs, pair, leaf.csn_removed());
            let MappedMeganode { meganode, mapped, .. } = regions.meganode_at(here.place, u64::MAX)?;
            let extents = mapped.extent.as_ref().map(MappedRegion::region);
            let part = plan.part(scan, leaf);
            if part.goes_on {
                if scan.reverse { meganode.prefetch_before(leaf) } else { meganode.prefetch_after(leaf) }
            }
            let before = plan.entries.len();
            let ask = |planned: &PageEntry| extents.into_iter().for_each(|of| ask_for_extent(of, planned));
            let progress = plan.take(scan, leaf, &part, ask);
            if plan.entries.len() > before {
                let (place, seen) = (here.place, leaf.version());
                leaves.push(ScannedLeaf { place, seen, end: plan.entries.len() });
            }
            if progress == PageProgress::Complete {
                return Some(ns_max);
            }
            let read = if scan.reverse { meganode.leaf_before(leaf) } else { meganode.leaf_after(leaf) };
            match read {
                Ok(true) => {}
                // It is another meganode's by now, or always was.
                Ok(false) | Err(ReadError::Beyond(_) | ReadError::NotHere) => {
                    here = regions.leaf_in_place(plan.aim(scan), leaf)?;
                    meganodes.push(here);
                    ns_max = ns_max.min(here.ns_max);
                }
                Err(_) => return None,
            }
        }
    }

    /// Fills the page: its keys, then value by value. What is not a leaf's extent ends the attempt.
    fn fill(
        &self,
        regions: &Regions,
        extents: &mut ExtentReader,
        needs: &mut Vec<(PairAt, Csn)>,
    ) -> Option<ScanPage> {
        let PageReader { plan, leaves, .. } = self;
        let mut bytes = Vec::with_capacity(plan.bytes() + SPARE_BYTES);
        bytes.extend_from_slice(&plan.keys);
        let mut page = ScanPage::over(bytes, plan.entries.len());
        let mut first = 0;
        for leaf in leaves {
            let pair = regions.pair(leaf.place.at);
            let (region, id) = (pair.mapped.as_ref()?.extent.as_ref()?.region(), pair.row.pair);
            let (mut csn, mut has_headers) = (Csn::ZERO, false);
            for planned in &plan.entries[first..leaf.end] {
                let (header, value) = self.take(planned, region, extents, &mut page)?;
                csn = csn.max(header.csn);
                has_headers |= !planned.inline;
                page.push_kept(planned.key_range(), header.version(id), value);
            }
            if has_headers && !is_settled(leaf, regions) {
                return None;
            }
            depend_on(needs, leaf.place.at, csn);
            first = leaf.end;
        }
        let lasts =
            |(pair, _): &(PairAt, Csn)| regions.pair(*pair).mapped.as_ref().is_some_and(MappedPair::lasts);
        if !needs.iter().all(lasts) && !planted(Mutant::EndedExtentRead) {
            return None;
        }
        Some(page.ending(plan.resume()))
    }

    /// Copies an entry's value to the page, or reads its header alone if it does not go there.
    #[inline]
    fn take(
        &self,
        planned: &PageEntry,
        region: &Region,
        extents: &mut ExtentReader,
        page: &mut ScanPage,
    ) -> Option<(ExtentHeader, KeptEntryValue)> {
        let entry = planned.entry;
        let shape = ExtentShape::from_bits(entry.value_len)?;
        if planned.inline {
            let begin = page.bytes_mut().len();
            let header = extents.append(region, entry.offset, shape, entry.crc, page.bytes_mut()).ok()?;
            return Some((header, KeptEntryValue::Inline(begin..page.bytes_mut().len())));
        }
        let header = read_header(region, entry.offset, shape).ok()?;
        let value_len = shape.value_bytes();
        let value = if self.keys_only {
            KeptEntryValue::Omitted { value_len }
        } else {
            KeptEntryValue::Large { value_len }
        };
        Some((header, value))
    }
}

/// Whether the headers to which a leaf has led were those of its entries, all of them being read.
fn is_settled(leaf: &ScannedLeaf, regions: &Regions) -> bool {
    let found = regions.meganode_at(leaf.place, u64::MAX);
    found.is_some_and(|found| found.meganode.is_unchanged(leaf.seen)) || planted(Mutant::HeaderUnsettled)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cell_fabric::{MappedRegion, RegionKey};
    use cell_memory::extent::{self, ExtentEncoder, ExtentHeader};
    use cell_memory::{HEADER_BYTES, Region, RegionSpec, RegionWriter};
    use cell_protocol::{Bound, EntryValue, PairRegions, RegionRows, RegionsReply};
    use cell_terms::{Epoch, ExtentOffset, PairId, Root, SlotIndex};
    use cell_tree::{
        BulkFrame, Change, Geometry, LeafEntry, Meganode, NodeIndex, Slot, SlotAllocator, apply, bulk_build,
        empty_root,
    };

    use super::*;
    use crate::link_id::LinkId;
    use crate::onesided::regions::Reported;

    const PAIR: PairId = PairId(1);
    const EPOCH: Epoch = Epoch(1);
    const NODE_BYTES: u32 = 512;
    const SLOT_BYTES: u64 = 64 << 10;
    /// The first place of an extent behind a region's header, and the distance of two.
    const FIRST_PLACE: u32 = 256;
    const PLACES: u32 = 16;

    /// The memory of a pair with one leaf, as a test writes it, and what a client knows of it.
    struct Memory {
        nodes: RegionWriter,
        extents: RegionWriter,
        geometry: Geometry,
        slot: Slot,
        csn: u64,
        regions: Regions,
        reader: PageReader,
        needs: Vec<(PairAt, Csn)>,
    }

    impl Memory {
        fn new() -> Memory {
            let spec = RegionSpec::node(PAIR, EPOCH, SLOT_BYTES, SLOT_BYTES, NODE_BYTES).unwrap();
            let (node, mut nodes) = Region::create_private(&spec).unwrap();
            let spec = RegionSpec::extent(PAIR, EPOCH, 1 << 20).unwrap();
            let (extent, extents) = Region::create_private(&spec).unwrap();
            let sizes = [SLOT_BYTES, HEADER_BYTES].map(|bytes| usize::try_from(bytes).unwrap());
            let geometry = Geometry::new(512, sizes[0], sizes[1]).unwrap();
            let slot = Slot { region: node.spec().id, index: SlotIndex(0) };
            nodes.write_words(geometry.node_offset(slot.index, NodeIndex::ROOT) / 8, &empty_root(geometry));
            nodes.set_first_word(Root::leaf(geometry.pointer(slot, NodeIndex::ROOT)).to_word());
            let rows = [PairRegions {
                pair: PAIR,
                epoch: EPOCH,
                node_region: node.spec().id,
                extent_region: extent.spec().id,
                node_key: 1,
                extent_key: 2,
                node_region_bytes: node.spec().bytes,
                extent_region_bytes: extent.spec().bytes,
                slot_bytes: SLOT_BYTES,
                tree_node_bytes: NODE_BYTES,
                header_bytes: 4096,
                node_crc: false,
            }];
            let pairs = RegionRows::List(&rows);
            let reply = RegionsReply { reads_permitted: true, one_sided_max_us: 200_000, list: 1, pairs };
            let mut regions = Regions::default();
            regions.add(Reported::new(LinkId::BOOTSTRAP, &reply, true).unwrap());
            let [node, extent] = [node, extent].map(|region| MappedRegion::local(region, Arc::default()));
            let mapped = |key: RegionKey| if key.0 == 1 { node.clone() } else { extent.clone() };
            regions.on_unmapped_read(regions.first().unwrap());
            assert!(!regions.map(&mut |_, key| Some(mapped(key))).is_empty());
            let (reader, needs) = (PageReader::default(), Vec::new());
            Memory { nodes, extents, geometry, slot, csn: 0, regions, reader, needs }
        }

        /// Writes an extent into the place of this number; what its leaf is to say of it.
        fn store(&mut self, place: u32, value: &[u8]) -> LeafEntry {
            self.csn += 1;
            let header = ExtentHeader { epoch: EPOCH, csn: Csn(self.csn), ..ExtentHeader::default() };
            let mut encoder = ExtentEncoder::new();
            let encoded = encoder.encode(&header, value).unwrap();
            let offset = ExtentOffset(FIRST_PLACE + place * PLACES);
            extent::store(&mut self.extents, offset, encoded.bytes);
            LeafEntry { offset, value_len: encoded.shape.bits(), crc: encoded.checksum }
        }

        /// Writes an entry whose extent is in the place of this number.
        fn put(&mut self, key: &[u8], place: u32, value: &[u8]) {
            let entry = self.store(place, value);
            let mut leaf = LeafSnapshot::new();
            Meganode::new(&self.nodes, self.geometry, self.slot).leaf(key, &mut leaf).unwrap();
            let put = Change::Put { node: leaf.node(), key, entry };
            apply(&mut self.nodes, self.geometry, self.slot, &put, Csn(self.csn));
        }

        fn filled() -> Memory {
            let mut memory = Memory::new();
            for (place, key) in (0..).zip([b"a", b"b", b"c", b"d"]) {
                memory.put(key, place, format!("value {place}").as_bytes());
            }
            memory
        }

        /// As many entries as several leaves have, the extent of each in the place of its number.
        fn of_several_leaves(count: u32) -> Memory {
            let mut memory = Memory::new();
            let stored = |place: u32| (format!("key-{place:03}").into_bytes(), memory.store(place, b"value"));
            let entries: Vec<_> = (0..count).map(stored).collect();
            let Memory { nodes, geometry, slot, csn, .. } = &mut memory;
            let (geometry, slot, csn) = (*geometry, *slot, Csn(*csn));
            let mut allocator = SlotAllocator::new(geometry.nodes());
            let emit = |change: Change<'_>| apply(&mut *nodes, geometry, slot, &change, csn);
            bulk_build(geometry, slot, &BulkFrame::WHOLE, &mut allocator, entries, emit).unwrap();
            memory
        }

        fn plan(&mut self, scan: &Scan<'_>) -> Option<u64> {
            self.needs.clear();
            self.reader.plan(scan, 1_000, &mut self.regions, &mut self.needs)
        }

        fn fill(&mut self) -> Option<ScanPage> {
            self.reader.fill(&self.regions, &mut ExtentReader::new(), &mut self.needs)
        }
    }

    /// Keys and values of a page.
    fn entries(page: &ScanPage) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let value = |value| match value {
            EntryValue::Inline(value) => text(value),
            EntryValue::Large { value_len } | EntryValue::Omitted { value_len } => value_len.to_string(),
        };
        page.iter().map(|entry| (text(entry.key), value(entry.value))).collect()
    }

    #[test]
    fn page_has_its_entries_and_depends_on_the_last_of_them() {
        let mut memory = Memory::filled();
        for (reverse, expected) in [(false, ["b", "c"]), (true, ["d", "c"])] {
            let scan = Scan { start: Bound::Excluded(b"a"), reverse, limit_entries: 2, ..Scan::default() };
            assert_eq!(memory.plan(&scan), Some(200_000_000));
            let page = memory.fill().unwrap();
            let keys: Vec<String> = entries(&page).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, expected);
            let (resume, csn) = if reverse { (b"b", Csn(4)) } else { (b"d", Csn(3)) };
            assert_eq!((page.resume(), &memory.needs[..]), (Bound::Included(&resume[..]), &[(0, csn)][..]));
        }
    }

    /// The place of an extent is used again between the look at its leaf and its copy.
    #[test]
    fn extent_that_is_not_its_leafs_any_more_ends_the_attempt() {
        let mut memory = Memory::filled();
        memory.plan(&Scan::default()).unwrap();
        memory.store(2, b"value of another");
        assert!(memory.fill().is_none());
        memory.put(b"c", 2, b"value of its own");
        memory.plan(&Scan::default()).unwrap();
        let page = memory.fill().unwrap();
        assert_eq!(entries(&page)[2], ("c".to_owned(), "value of its own".to_owned()));
    }

    /// The version that each key of a page has.
    fn csns(page: &ScanPage) -> Vec<Csn> {
        page.iter().map(|entry| entry.version.csn).collect()
    }

    /// An entry moves between the look at its leaf and that at its header, and its place is used again at
    /// once, by an extent of the same form.
    fn header_of_another_entry_is_not_believed() {
        for scan in [Scan { keys_only: true, ..Scan::default() }, Scan::default()] {
            let mut memory = Memory::filled();
            let long = vec![7; 70_000];
            let (key, value) = if scan.keys_only { (b"c", &b"value 2"[..]) } else { (b"e", &long[..]) };
            memory.put(key, 100, value);
            memory.plan(&scan).unwrap();
            memory.put(key, 600, value);
            let moved = Csn(memory.csn);
            memory.store(100, value);
            assert!(memory.fill().is_none_or(|page| !csns(&page).contains(&Csn(memory.csn))));
            memory.plan(&scan).unwrap();
            assert!(csns(&memory.fill().unwrap()).contains(&moved));
        }
    }

    #[test]
    fn header_is_its_entrys_while_the_leaf_does_not_change() {
        header_of_another_entry_is_not_believed();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_header_unsettled_is_caught() {
        use crate::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::HeaderUnsettled));
            let passed = std::panic::catch_unwind(header_of_another_entry_is_not_believed).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-client's pages in place", Mutant::HeaderUnsettled.name());
        });
    }

    /// Whichever of a page's leaves has changed since it was planned.
    #[test]
    fn headers_are_settled_by_the_leaf_that_led_to_them() {
        let scan = Scan { keys_only: true, ..Scan::default() };
        for moved in [0, 30, 59] {
            let mut memory = Memory::of_several_leaves(60);
            memory.plan(&scan).unwrap();
            assert!(memory.reader.leaves.len() > 2, "{} leaves", memory.reader.leaves.len());
            assert_eq!(csns(&memory.fill().unwrap()), (1..=60).map(Csn).collect::<Vec<_>>());
            memory.plan(&scan).unwrap();
            memory.put(format!("key-{moved:03}").as_bytes(), 600, b"value");
            memory.store(moved, b"other");
            assert!(memory.fill().is_none(), "{moved}");
        }
    }

    #[test]
    fn page_of_keys_has_versions_and_lengths_and_reads_headers_alone() {
        let mut memory = Memory::filled();
        memory.put(b"e", 100, &[7; 70_000]);
        memory.plan(&Scan { keys_only: true, ..Scan::default() }).unwrap();
        let page = memory.fill().unwrap();
        let lengths: Vec<String> = entries(&page).into_iter().map(|(_, len)| len).collect();
        assert_eq!(lengths, ["7", "7", "7", "7", "70000"]);
        assert_eq!(csns(&page), [1, 2, 3, 4, 5].map(Csn));
        memory.plan(&Scan::default()).unwrap();
        let page = memory.fill().unwrap();
        let last = page.iter().last().unwrap();
        assert_eq!((last.key, last.value), (&b"e"[..], EntryValue::Large { value_len: 70_000 }));
    }

    /// What a leaf said is returned, or nothing: one that changes behind the scan takes nothing along.
    #[test]
    fn leaf_that_changes_after_it_was_planned_is_returned_as_it_was() {
        let mut memory = Memory::filled();
        memory.plan(&Scan::default()).unwrap();
        memory.put(b"aa", 7, b"new");
        memory.put(b"c", 8, b"moved");
        let page = memory.fill().unwrap();
        let as_it_was = ["0", "1", "2", "3"].map(|number| format!("value {number}"));
        assert_eq!(entries(&page).into_iter().map(|(_, value)| value).collect::<Vec<_>>(), as_it_was);
    }
}
