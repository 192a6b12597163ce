//! The registered regions of the worker's pairs, and what is known of each pair's watermark.

use cell_fabric::{MappedRegion, RegionKey, RemoteRead};
use cell_memory::header_word;
use cell_protocol::{PairRegions, RegionsReply};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, PairId, Pointer, RegionId, Root, Watermark};
use cell_tree::{Geometry, NodeIndex, Slot};

use super::mapping::{MappedPair, PairRegion};
use super::meganode_cache::MeganodeCache;
use super::place::PairAt;
use crate::link_id::{LinkId, LinkSet};
use crate::mutant as own;

/// Words of a region's header that hold the root and the watermarks: two cache lines.
const HEADER_READ_BYTES: u32 = 128;

/// A pair's registrations.
#[derive(Clone, Debug)]
pub(crate) struct PairRow {
    pub(crate) row: PairRegions,
    /// By which connection its owner is reached.
    pub(crate) link: LinkId,
    pub(crate) geometry: Geometry,
    /// For how long an operation may take that reads it: its owner's word, and nodes differ.
    pub(crate) operation_ns_max: u64,
    /// Everything at or below may be returned; as last seen, under the row's epoch.
    pub(crate) visible: Csn,
    /// A read of the header is on its way.
    pub(crate) header_asked: bool,
    /// Its regions, as far as this process has them mapped.
    pub(crate) mapped: Option<MappedPair>,
    /// A region of it that is not mapped was read since the fabric was asked last.
    unmapped_read: bool,
}

/// What a worker has reported: its registrations, and the number of their list.
#[derive(Debug)]
pub(crate) struct Reported {
    pub(crate) list: u64,
    /// By pair.
    rows: Vec<PairRow>,
}

/// The registrations of all nodes that are known. A pair has its place for as long as its registrations are
/// known: whatever comes, goes or moves, the others' places stay, and what is known of them. A place is
/// another pair's only once nothing names it any more.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// By place. A free one keeps what was there last, and nobody is led to it.
    places: Vec<PairRow>,
    free: Vec<PairAt>,
    /// The places in use, by node region: pointers name those.
    by_region: Vec<(RegionId, PairAt)>,
    /// The same by pair: every reply names one.
    by_pair: Vec<(PairId, PairAt)>,
    /// The places whose pairs have a region that was read and is not mapped: the fabric may have it by now.
    unmapped_reads: Vec<PairAt>,
    root: Option<Root>,
    /// Where meganodes are in what is mapped.
    pub(super) meganodes: MeganodeCache,
}

/// What a pointer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeLocation {
    pub(crate) pair: PairAt,
    pub(crate) slot: Slot,
    pub(crate) node: NodeIndex,
}

impl Reported {
    /// What a worker reported. `None`: it permits no reads, or this fabric cannot do them safely.
    pub(crate) fn new(link: LinkId, reply: &RegionsReply<'_>, reads_ordered: bool) -> Option<Reported> {
        let operation_ns_max = u64::from(reply.one_sided_max_us) * 1_000;
        let rows = reply.pairs.iter().map(|row| PairRow::new(link, row, operation_ns_max, reads_ordered));
        let mut rows: Vec<PairRow> = rows.collect::<Option<_>>()?;
        rows.sort_by_key(|known| known.row.pair);
        let usable = reply.reads_permitted && !rows.is_empty();
        usable.then_some(Reported { list: reply.list, rows })
    }

    fn row(&self, pair: PairId) -> Option<&PairRow> {
        let at = self.rows.binary_search_by_key(&pair, |known| known.row.pair).ok()?;
        Some(&self.rows[at])
    }
}

impl Regions {
    /// The places of registrations that are of the past by what a worker has reported: those of its own that
    /// it has no more, and those of others that it has by a later claim.
    pub(crate) fn outdated(&self, link: LinkId, reported: &Reported) -> Vec<PairAt> {
        let is_outdated = |at: &PairAt| {
            let known = self.pair(*at);
            match reported.row(known.row.pair) {
                None => known.link == link,
                Some(new) if known.link == link => new.row != known.row,
                // Of two claims to a pair the higher epoch counts.
                Some(new) => known.row.epoch <= new.row.epoch || own::planted(own::Mutant::OlderClaimTaken),
            }
        };
        self.places_in_use().filter(is_outdated).collect()
    }

    /// Takes in what a worker has that is not known. What is outdated by it was removed before.
    pub(crate) fn add(&mut self, reported: Reported) {
        let first = self.first();
        for row in reported.rows {
            match self.index_of(row.row.pair) {
                Some(at) if self.pair(at).link == row.link => {
                    self.pair_mut(at).operation_ns_max = row.operation_ns_max;
                }
                Some(_) => {} // a later claim is known
                None => self.insert(row),
            }
        }
        if self.first() != first {
            self.root = None;
        }
    }

    fn insert(&mut self, row: PairRow) {
        let (region, pair) = (row.row.node_region, row.row.pair);
        let at = match self.free.pop() {
            Some(at) => at,
            None => match PairAt::try_from(self.places.len()) {
                Ok(at) if at < PairAt::MAX => at,
                _ => return, // it is the servers' to read
            },
        };
        match self.places.get_mut(usize::from(at)) {
            Some(place) => *place = row,
            None => self.places.push(row),
        }
        let by_region = self.by_region.partition_point(|(other, _)| *other < region);
        self.by_region.insert(by_region, (region, at));
        let by_pair = self.by_pair.partition_point(|(other, _)| *other < pair);
        self.by_pair.insert(by_pair, (pair, at));
    }

    /// A pair's registrations are of the past, and nothing that was started names its place any more.
    pub(crate) fn remove(&mut self, at: PairAt) {
        if self.first() == Some(at) {
            self.root = None;
        }
        self.by_region.retain(|(_, place)| *place != at);
        self.by_pair.retain(|(_, place)| *place != at);
        self.unmapped_reads.retain(|place| *place != at);
        self.meganodes.forget_pair(at);
        let place = self.pair_mut(at);
        (place.mapped, place.row.node_key) = (None, 0); // no registration has this key
        self.free.push(at);
    }

    /// The places in use, by pair.
    pub(crate) fn places_in_use(&self) -> impl Iterator<Item = PairAt> + '_ {
        self.by_pair.iter().map(|(_, at)| *at)
    }

    /// The places of a worker's pairs.
    pub(crate) fn places_of(&self, link: LinkId) -> Vec<PairAt> {
        self.places_in_use().filter(|at| self.pair(*at).link == link).collect()
    }

    fn index_of(&self, pair: PairId) -> Option<PairAt> {
        let at = self.by_pair.binary_search_by_key(&pair, |(pair, _)| *pair).ok()?;
        Some(self.by_pair[at].1)
    }

    /// Where the pair is whose header may keep the root: the lowest one that is known.
    #[inline]
    pub(crate) fn first(&self) -> Option<PairAt> {
        self.by_region.first().map(|(_, at)| *at)
    }

    fn first_pair(&self) -> Option<&PairRow> {
        self.first().map(|at| self.pair(at))
    }

    /// Whether the header that may keep the root is on its way.
    pub(crate) fn first_header_is_asked(&self) -> bool {
        self.first_pair().is_some_and(|pair| pair.header_asked)
    }

    /// Longest key of the tree.
    pub(crate) fn key_max(&self) -> usize {
        self.first_pair().map_or(0, |pair| pair.geometry.key_max())
    }

    /// Whether a pointer's region is known.
    pub(crate) fn knows(&self, pointer: Pointer) -> bool {
        self.place_of(pointer.region()).is_some()
    }

    fn place_of(&self, region: RegionId) -> Option<PairAt> {
        let at = self.by_region.binary_search_by_key(&region, |(region, _)| *region).ok()?;
        Some(self.by_region[at].1)
    }

    /// Where the tree begins, once the header that keeps it was read.
    pub(crate) fn root(&self) -> Option<Root> {
        self.root
    }

    /// Whether the memory where each search begins is mapped: tree nodes, of a pair that may have no entries.
    pub(crate) fn is_root_mapped(&self) -> bool {
        self.first_pair().is_some_and(|first| first.mapped.is_some())
    }

    /// Whether a pair's region is not mapped.
    pub(super) fn lacks(&self, at: PairAt, region: PairRegion) -> bool {
        let is_lacking = |mapped: &MappedPair| region == PairRegion::Extents && mapped.extent.is_none();
        self.pair(at).mapped.as_ref().is_none_or(is_lacking)
    }

    #[inline]
    pub(crate) fn pair(&self, at: PairAt) -> &PairRow {
        &self.places[usize::from(at)]
    }

    #[inline]
    pub(crate) fn pair_mut(&mut self, at: PairAt) -> &mut PairRow {
        &mut self.places[usize::from(at)]
    }

    /// A region of a pair was read that is not mapped.
    pub(crate) fn on_unmapped_read(&mut self, at: PairAt) {
        if !std::mem::replace(&mut self.pair_mut(at).unmapped_read, true) {
            self.unmapped_reads.push(at);
        }
    }

    /// Maps what was read and is not mapped yet, as far as `mapped` has it. By which connections that was
    /// anything.
    pub(crate) fn map(
        &mut self,
        mapped: &mut dyn FnMut(LinkId, RegionKey) -> Option<MappedRegion>,
    ) -> LinkSet {
        let Regions { places, unmapped_reads, .. } = self;
        let mut found = LinkSet::default();
        for at in unmapped_reads.drain(..) {
            let pair = &mut places[usize::from(at)];
            pair.unmapped_read = false;
            let link = pair.link;
            if pair.map(&mut |key| mapped(link, key)) {
                found.insert(link);
            }
        }
        found
    }

    /// What a pointer names, as far as regions and sizes go.
    pub(crate) fn locate(&self, pointer: Pointer) -> Option<NodeLocation> {
        let pair = self.place_of(pointer.region())?;
        let known = self.pair(pair);
        let (slot, node) = known.geometry.locate(pointer)?;
        let end = known.geometry.node_offset(slot.index, node) + known.geometry.node_bytes();
        let inside = u64::try_from(end).is_ok_and(|end| end <= known.row.node_region_bytes);
        inside.then_some(NodeLocation { pair, slot, node })
    }

    /// The read of a tree node.
    pub(crate) fn node_read(&self, location: &NodeLocation) -> RemoteRead {
        let pair = self.pair(location.pair);
        RemoteRead {
            key: RegionKey(pair.row.node_key),
            offset: pair.geometry.node_offset(location.slot.index, location.node) as u64,
            length: pair.row.tree_node_bytes,
        }
    }

    /// The read of a pair's header.
    pub(crate) fn header_read(&self, at: PairAt) -> RemoteRead {
        RemoteRead { key: RegionKey(self.pair(at).row.node_key), offset: 0, length: HEADER_READ_BYTES }
    }

    /// A header was read under the row's key, so under its epoch.
    pub(crate) fn on_region_header(&mut self, at: PairAt, words: &[u64]) {
        let first = self.first() == Some(at);
        let pair = self.pair_mut(at);
        pair.header_asked = false;
        pair.visible = pair.visible.max(Csn(words[header_word::VISIBLE]));
        let root = Root::from_word(words[header_word::FIRST]);
        // Only the lowest pair of all keeps it; the lowest of those that are known may be another one.
        if first && !root.pointer.is_null() {
            self.root = Some(root);
        }
    }

    /// A reply says how far a pair's writes may be seen. A watermark vouches only for bytes read under the
    /// same epoch: past a cut the next owner uses the same CSNs again. The pair's place, if it is of a later
    /// epoch: its registrations are of the past.
    pub(crate) fn on_watermark(
        &mut self,
        link: LinkId,
        pair: PairId,
        watermark: Watermark,
    ) -> Option<PairAt> {
        let at = self.index_of(pair)?;
        let known = self.pair_mut(at);
        if known.link != link && known.row.epoch > watermark.epoch {
            return None; // an earlier owner's words
        }
        if known.row.epoch != watermark.epoch && !planted(Mutant::WatermarkEpochIgnored) {
            return Some(at);
        }
        known.visible = known.visible.max(watermark.csn);
        None
    }

    /// Whether a pair's writes up to this one may be seen.
    #[inline]
    pub(crate) fn covers(&self, at: PairAt, csn: Csn) -> bool {
        csn <= self.pair(at).visible || planted(Mutant::WatermarkUnchecked)
    }
}

impl PairRow {
    fn new(link: LinkId, row: PairRegions, operation_ns_max: u64, reads_ordered: bool) -> Option<PairRow> {
        if !reads_ordered && !row.node_crc {
            return None; // a version at each end proves nothing where cache lines come in any order
        }
        let size = |bytes: u64| usize::try_from(bytes).ok();
        let (node, slot) = (size(row.tree_node_bytes.into())?, size(row.slot_bytes)?);
        let geometry = Geometry::new(node, slot, size(row.header_bytes.into())?).ok()?;
        let geometry = geometry.with_node_crc(!reads_ordered);
        Some(PairRow {
            row,
            link,
            geometry,
            operation_ns_max,
            visible: Csn::ZERO,
            header_asked: false,
            mapped: None,
            unmapped_read: false,
        })
    }

    /// Maps of the pair's regions what is not mapped yet, as far as `mapped` knows it and it is what the
    /// registrations say. Whether that was anything.
    fn map(&mut self, mapped: &mut dyn FnMut(RegionKey) -> Option<MappedRegion>) -> bool {
        let PairRow { row, mapped: known, .. } = self;
        let mut found = false;
        if known.is_none() {
            let node = mapped(RegionKey(row.node_key)).filter(|node| {
                let spec = node.region().spec();
                (spec.id, spec.epoch, spec.bytes) == (row.node_region, row.epoch, row.node_region_bytes)
            });
            *known = node.map(|node| MappedPair { node, extent: None });
            found = known.is_some();
        }
        if let Some(pair) = known
            && pair.extent.is_none()
        {
            pair.extent = mapped(RegionKey(row.extent_key)).filter(|extent| {
                let spec = extent.region().spec();
                (spec.id, spec.epoch) == (row.extent_region, row.epoch)
            });
            found |= pair.extent.is_some();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use cell_protocol::RegionRows;
    use cell_terms::Epoch;

    use super::*;

    /// A pair, as a node reports it.
    fn row(pair: u32, epoch: u32, key: u64) -> PairRegions {
        let pair = PairId(pair);
        PairRegions {
            pair,
            epoch: Epoch(epoch),
            node_region: pair.node_region(),
            extent_region: pair.extent_region(),
            node_key: key,
            extent_key: key + 1,
            node_region_bytes: 4096 + (64 << 10),
            extent_region_bytes: 1 << 20,
            slot_bytes: 64 << 10,
            tree_node_bytes: 512,
            header_bytes: 4096,
            node_crc: false,
        }
    }

    fn reported(link: LinkId, rows: &[PairRegions]) -> Reported {
        let pairs = RegionRows::List(rows);
        let reply = RegionsReply { reads_permitted: true, one_sided_max_us: 200_000, list: 1, pairs };
        Reported::new(link, &reply, true).expect("it permits reads")
    }

    fn take(known: &mut Regions, link: LinkId, rows: &[PairRegions]) -> Vec<PairAt> {
        let reported = reported(link, rows);
        let outdated = known.outdated(link, &reported);
        outdated.iter().for_each(|at| known.remove(*at));
        known.add(reported);
        outdated
    }

    /// What an earlier owner says comes late.
    fn later_owner_counts() {
        let (later, earlier) = (LinkId(1), LinkId(2));
        let mut known = Regions::default();
        take(&mut known, later, &[row(1, 6, 1)]);
        for (epoch, expected) in [(5, (later, Epoch(6))), (7, (earlier, Epoch(7)))] {
            take(&mut known, earlier, &[row(1, epoch, 3)]);
            let pair = known.first_pair().unwrap();
            assert_eq!((pair.link, pair.row.epoch), expected);
        }
    }

    /// Pairs come before others, go, move, and come back.
    #[test]
    fn places_stay_whatever_other_pairs_do() {
        let (one, two) = (LinkId(1), LinkId(2));
        let mut known = Regions::default();
        take(&mut known, one, &[row(5, 1, 50), row(7, 1, 70)]);
        let place = |known: &Regions, pair: u32| known.index_of(PairId(pair)).unwrap();
        let (five, seven) = (place(&known, 5), place(&known, 7));
        known.pair_mut(seven).visible = Csn(9);
        assert_eq!(take(&mut known, two, &[row(1, 1, 10)]), [], "it comes before both");
        assert_eq!(known.first(), Some(place(&known, 1)));
        assert_eq!(take(&mut known, one, &[row(7, 1, 70)]), [five], "it goes alone");
        assert_eq!(take(&mut known, two, &[row(1, 1, 10), row(5, 2, 51)]), [], "it comes elsewhere");
        assert_eq!(take(&mut known, one, &[row(5, 3, 52), row(7, 1, 70)]), [place(&known, 5)], "and back");
        assert_eq!((place(&known, 7), known.pair(seven).visible), (seven, Csn(9)));
        assert_eq!(known.pair(place(&known, 5)).row.node_key, 52);
        for pair in [1, 5, 7] {
            let located = known.locate(Pointer::new(PairId(pair).node_region(), 4096)).unwrap();
            assert_eq!(
                (located.pair, known.pair(located.pair).row.pair),
                (place(&known, pair), PairId(pair))
            );
        }
        assert_eq!((known.places_of(one).len(), known.places_of(two).len()), (2, 1));
    }

    #[test]
    fn add_of_two_claims_to_a_pair_the_higher_epoch_counts() {
        later_owner_counts();
    }

    /// By whoever has the pair: what it says again counts, and what an earlier owner says does not.
    #[test]
    fn add_takes_in_for_how_long_an_operation_may_read_a_pair() {
        let (owner, earlier) = (LinkId(1), LinkId(2));
        let mut known = Regions::default();
        take(&mut known, owner, &[row(1, 6, 1)]);
        let mut says = |link, epoch, permitted_ns| {
            let mut said = reported(link, &[row(1, epoch, 1)]);
            said.rows[0].operation_ns_max = permitted_ns;
            known.add(said);
            known.first_pair().unwrap().operation_ns_max
        };
        assert_eq!(says(owner, 6, 50_000_000), 50_000_000);
        assert_eq!(says(earlier, 5, 300_000_000), 50_000_000);
    }

    /// The lowest pair of all keeps it.
    #[test]
    fn add_of_a_pair_before_all_others_forgets_the_root_and_of_the_same_ones_does_not() {
        let rows = [row(5, 1, 50), row(7, 1, 70)];
        let mut known = Regions::default();
        take(&mut known, LinkId(1), &rows);
        let root = Root::leaf(Pointer::new(PairId(5).node_region(), 4096));
        let mut words = [0; HEADER_READ_BYTES as usize / 8];
        words[header_word::FIRST] = root.to_word();
        let first = known.first().unwrap();
        known.on_region_header(first, &words);
        take(&mut known, LinkId(1), &rows);
        assert_eq!(known.root(), Some(root));
        take(&mut known, LinkId(2), &[row(1, 1, 10)]);
        assert_eq!(known.root(), None);
    }

    #[test]
    fn on_watermark_of_another_epoch_registrations_are_of_the_past_unless_an_earlier_owner_says_it() {
        let (owner, other, pair) = (LinkId(1), LinkId(2), PairId(1));
        let mut known = Regions::default();
        take(&mut known, owner, &[row(1, 6, 1)]);
        let at = known.first().unwrap();
        let mut says = |link, epoch, csn| {
            let outdated = known.on_watermark(link, pair, Watermark { epoch: Epoch(epoch), csn: Csn(csn) });
            (outdated, known.pair(at).visible)
        };
        assert_eq!(says(owner, 6, 5), (None, Csn(5)));
        assert_eq!(says(other, 5, 9), (None, Csn(5)), "an earlier owner's words");
        assert_eq!(says(other, 6, 7), (None, Csn(7)), "by another connection to the owner");
        assert_eq!(says(owner, 6, 6), (None, Csn(7)), "late");
        assert_eq!(says(other, 7, 9), (Some(at), Csn(7)));
        assert_eq!(says(owner, 7, 9), (Some(at), Csn(7)));
        assert_eq!(says(owner, 5, 9), (Some(at), Csn(7)));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_older_claim_taken_is_caught() {
        use crate::mutant::{Mutant, plant};
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::OlderClaimTaken));
            let passed = std::panic::catch_unwind(later_owner_counts).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-client's regions", Mutant::OlderClaimTaken.name());
        });
    }
}
