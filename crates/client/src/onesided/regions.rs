//! The registered regions of the worker's pairs, and what is known of each pair's watermark.

use cell_fabric::{MappedRegion, RegionKey, RemoteRead};
use cell_memory::header_word;
use cell_protocol::{PairRegions, RegionsReply};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, PairId, Pointer, Root, Watermark};
use cell_tree::{Geometry, NodeIndex, Slot};

use super::mapping::MappedPair;
use super::meganode_cache::MeganodeCache;
use super::place::PairAt;
use crate::link_id::LinkId;
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
    /// Its regions, where this process has them mapped.
    pub(crate) mapped: Option<MappedPair>,
}

/// The list, over all nodes that are known.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// By node region.
    pairs: Vec<PairRow>,
    /// The positions in the list, by pair: every reply names one.
    positions: Vec<(PairId, PairAt)>,
    root: Option<Root>,
    /// Where meganodes are in what is mapped.
    pub(super) meganodes: MeganodeCache,
}

/// Of which pair a reply's watermark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatermarkSource {
    /// Of one that is known as this worker's.
    Own,
    /// Of none that this worker is known to have.
    Other,
    /// Of an epoch whose registrations are not known.
    Newer,
}

/// What a pointer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeLocation {
    pub(crate) pair: PairAt,
    pub(crate) slot: Slot,
    pub(crate) node: NodeIndex,
}

impl Regions {
    /// Takes what a worker reported. `None`: it permits no reads, or this fabric cannot do them safely.
    pub(crate) fn new(link: LinkId, reply: &RegionsReply<'_>, reads_ordered: bool) -> Option<Regions> {
        let operation_ns_max = u64::from(reply.one_sided_max_us) * 1_000;
        let pairs = reply.pairs.iter().map(|row| PairRow::new(link, row, operation_ns_max, reads_ordered));
        let mut pairs: Vec<PairRow> = pairs.collect::<Option<_>>()?;
        pairs.sort_by_key(|pair| pair.row.node_region);
        let usable = reply.reads_permitted && !pairs.is_empty() && pairs.len() < usize::from(PairAt::MAX);
        usable.then_some(Regions { pairs, ..Regions::default() })
    }

    /// Takes in pairs of a worker that were added behind all that are known, so that positions in the list
    /// stay what they are; false if anything else has changed.
    pub(crate) fn grow(&mut self, link: LinkId, newer: &Regions) -> bool {
        let old = self.pairs.iter().filter(|pair| pair.link == link);
        let known = old.clone().count();
        let same = newer.pairs.iter().zip(old).all(|(new, old)| new.row == old.row);
        let last = self.pairs.last().map(|pair| pair.row.node_region);
        let behind = newer.pairs.get(known).is_none_or(|pair| Some(pair.row.node_region) > last);
        let grown = newer.pairs.len() >= known && same && behind;
        if grown {
            self.pairs.extend_from_slice(&newer.pairs[known..]);
            self.index();
        }
        grown
    }

    /// Takes in what a worker has, in place of what was known of it; of two claims to a pair the higher epoch
    /// counts. Positions in the list change.
    pub(crate) fn replace(&mut self, link: LinkId, newer: Regions) {
        let had_root = self.pairs.first().map(|pair| (pair.row.node_region, pair.row.epoch));
        self.drop_link(link);
        for pair in newer.pairs {
            let of_pair = |known: &PairRow| known.row.pair == pair.row.pair;
            let is_older = |known: &PairRow| of_pair(known) && known.row.epoch > pair.row.epoch;
            if self.pairs.iter().any(is_older) && !own::planted(own::Mutant::OlderClaimTaken) {
                continue;
            }
            self.pairs.retain(|known| !of_pair(known));
            self.pairs.push(pair);
        }
        self.pairs.sort_by_key(|pair| pair.row.node_region);
        self.index();
        if self.pairs.first().map(|pair| (pair.row.node_region, pair.row.epoch)) != had_root {
            self.root = None;
        }
    }

    /// A worker's pairs cannot be read any more. False if it had none; else positions in the list change.
    pub(crate) fn drop_link(&mut self, link: LinkId) -> bool {
        let before = self.pairs.len();
        if self.pairs.first().is_some_and(|pair| pair.link == link) {
            self.root = None;
        }
        self.pairs.retain(|pair| pair.link != link);
        self.index();
        self.pairs.len() < before
    }

    fn index(&mut self) {
        let places = (0..PairAt::MAX).zip(&self.pairs).map(|(at, pair)| (pair.row.pair, at));
        self.positions = places.collect();
        self.positions.sort_unstable();
        self.meganodes.clear(); // it names pairs by their position
    }

    fn index_of(&self, pair: PairId) -> Option<PairAt> {
        let at = self.positions.binary_search_by_key(&pair, |(pair, _)| *pair).ok()?;
        Some(self.positions[at].1)
    }

    /// Whether the header that may keep the root is on its way.
    pub(crate) fn first_header_is_asked(&self) -> bool {
        self.pairs.first().is_some_and(|pair| pair.header_asked)
    }

    /// Whether no pair is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Longest key of the tree.
    pub(crate) fn key_max(&self) -> usize {
        self.pairs.first().map_or(0, |pair| pair.geometry.key_max())
    }

    /// Whether a pointer's region is known.
    pub(crate) fn knows(&self, pointer: Pointer) -> bool {
        self.pairs.binary_search_by_key(&pointer.region(), |pair| pair.row.node_region).is_ok()
    }

    /// Where the tree begins, once the header that keeps it was read.
    pub(crate) fn root(&self) -> Option<Root> {
        self.root
    }

    /// Whether the memory where each search begins is mapped.
    pub(crate) fn is_root_mapped(&self) -> bool {
        self.pairs.first().is_some_and(|first| first.mapped.is_some())
    }

    pub(crate) fn pair(&self, at: PairAt) -> &PairRow {
        &self.pairs[usize::from(at)]
    }

    pub(crate) fn pairs_mut(&mut self) -> impl Iterator<Item = &mut PairRow> {
        self.pairs.iter_mut()
    }

    pub(crate) fn pair_mut(&mut self, at: PairAt) -> &mut PairRow {
        &mut self.pairs[usize::from(at)]
    }

    /// What a pointer names, as far as regions and sizes go.
    pub(crate) fn locate(&self, pointer: Pointer) -> Option<NodeLocation> {
        let region = pointer.region();
        let at = self.pairs.binary_search_by_key(&region, |pair| pair.row.node_region).ok()?;
        let known = &self.pairs[at];
        let (slot, node) = known.geometry.locate(pointer)?;
        let end = known.geometry.node_offset(slot.index, node) + known.geometry.node_bytes();
        let inside = u64::try_from(end).is_ok_and(|end| end <= known.row.node_region_bytes);
        inside.then_some(NodeLocation { pair: PairAt::try_from(at).ok()?, slot, node })
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
        let first = at == 0;
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
    /// same epoch: past a cut the next owner uses the same CSNs again.
    pub(crate) fn on_watermark(
        &mut self,
        link: LinkId,
        pair: PairId,
        watermark: Watermark,
    ) -> WatermarkSource {
        let Some(at) = self.index_of(pair) else { return WatermarkSource::Other };
        let known = self.pair_mut(at);
        if known.link != link && known.row.epoch > watermark.epoch {
            return WatermarkSource::Other; // an earlier owner's words
        }
        if known.row.epoch != watermark.epoch && !planted(Mutant::WatermarkEpochIgnored) {
            return WatermarkSource::Newer;
        }
        known.visible = known.visible.max(watermark.csn);
        if known.link == link { WatermarkSource::Own } else { WatermarkSource::Other }
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
        let visible = Csn::ZERO;
        Some(PairRow { row, link, geometry, operation_ns_max, visible, header_asked: false, mapped: None })
    }

    /// Maps the pair, as far as `mapped` knows its regions. False if it does not, or they are not what the
    /// registrations say.
    pub(crate) fn map(&mut self, mapped: &mut dyn FnMut(RegionKey) -> Option<MappedRegion>) -> bool {
        let row = &self.row;
        let regions = (mapped(RegionKey(row.node_key)), mapped(RegionKey(row.extent_key)));
        let (Some(node), Some(extent)) = regions else { return false };
        let [of_nodes, of_extents] = [&node, &extent].map(|mapped| mapped.region().spec());
        let fit = (of_nodes.id, of_nodes.epoch, of_nodes.bytes)
            == (row.node_region, row.epoch, row.node_region_bytes)
            && (of_extents.id, of_extents.epoch) == (row.extent_region, row.epoch);
        if fit {
            self.mapped = Some(MappedPair { node, extent });
        }
        fit
    }
}

#[cfg(test)]
mod tests {
    use cell_protocol::RegionRows;
    use cell_terms::Epoch;

    use super::*;

    /// The only pair, as a node reports it.
    fn reported(link: LinkId, epoch: u32) -> Regions {
        let row = PairRegions {
            pair: PairId(1),
            epoch: Epoch(epoch),
            node_region: PairId(1).node_region(),
            extent_region: PairId(1).extent_region(),
            node_key: 1,
            extent_key: 2,
            node_region_bytes: 4096 + (64 << 10),
            extent_region_bytes: 1 << 20,
            slot_bytes: 64 << 10,
            tree_node_bytes: 512,
            header_bytes: 4096,
            node_crc: false,
        };
        let rows = [row];
        let pairs = RegionRows::List(&rows);
        let reply = RegionsReply { reads_permitted: true, one_sided_max_us: 200_000, pairs };
        Regions::new(link, &reply, true).expect("it permits reads")
    }

    /// What an earlier owner says comes late.
    fn later_owner_counts() {
        let (later, earlier) = (LinkId(1), LinkId(2));
        let mut known = reported(later, 6);
        for (epoch, expected) in [(5, (later, Epoch(6))), (7, (earlier, Epoch(7)))] {
            known.replace(earlier, reported(earlier, epoch));
            assert_eq!((known.pair(0).link, known.pair(0).row.epoch), expected);
        }
    }

    #[test]
    fn replace_of_two_claims_to_a_pair_the_higher_epoch_counts() {
        later_owner_counts();
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
