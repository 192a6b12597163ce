//! What a pair begins with, before its first record: it follows from the layout alone, so a recovery without
//! a checkpoint makes the same every time. Nothing of it is logged; its CSN is zero.

use cell_cluster::Layout;
use cell_terms::{PairId, Pointer, Root, SlotIndex};
use cell_tree::{
    BulkError, BulkFrame, Change, Geometry, LeafEntry, NodeIndex, Slot, SlotAllocator, bulk_build,
};

use crate::split::{SlotUse, SplitTable};

/// Whose node region has the lowest id: its header points to the root meganode (the paper's offset 0).
const ROOT_PAIR: PairId = PairId(1);

/// A meganode that a pair begins with.
struct First {
    slot: SlotIndex,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    right: Pointer,
    /// What a router begins with.
    entries: Vec<(Vec<u8>, LeafEntry)>,
    used: SlotUse,
}

/// See the module's text.
pub(crate) struct FirstContent {
    pair: PairId,
    geometry: Geometry,
    meganodes: Vec<First>,
    /// Where the tree begins, of the pair that keeps it.
    pub(crate) root: Root,
}

impl FirstContent {
    /// What a pair begins with. All pairs of a layout have the same geometry.
    pub(crate) fn new(layout: &Layout, pair: PairId, geometry: Geometry) -> FirstContent {
        let root_of = |pair: PairId, index| {
            geometry.pointer(Slot { region: pair.node_region(), index }, NodeIndex::ROOT)
        };
        let ranges = layout.ranges();
        let nexts = ranges.iter().skip(1).map(Some).chain([None]);
        let own = ranges.iter().zip(nexts).filter(|(range, _)| range.pair == pair);
        let mut meganodes: Vec<First> = own
            .map(|(range, next)| First {
                slot: range.slot,
                low: range.low.clone().into_bytes(),
                high: next.map(|next| next.low.clone().into_bytes()),
                right: next.map_or(Pointer::NULL, |next| root_of(next.pair, next.slot)),
                entries: Vec::new(),
                used: SlotUse::Leaf,
            })
            .collect();
        let mut root = Root::NONE;
        if pair == ROOT_PAIR {
            root = ranges.first().map_or(Root::NONE, |range| Root::leaf(root_of(range.pair, range.slot)));
            if let Some(slot) = layout.router() {
                root = Root::router(root_of(pair, slot));
                // No key is empty: the first range's entry has the lowest key that there can be.
                let key = |low: &str| if low.is_empty() { vec![0] } else { low.as_bytes().to_vec() };
                let entry = |pair, slot| LeafEntry::to_meganode(root_of(pair, slot));
                let entries = ranges.iter().map(|range| (key(&range.low), entry(range.pair, range.slot)));
                let (low, high, right) = (Vec::new(), None, Pointer::NULL);
                let (entries, used) = (entries.collect(), SlotUse::Router);
                meganodes.push(First { slot, low, high, right, entries, used });
            }
        }
        FirstContent { pair, geometry, meganodes, root }
    }

    /// What its table says before the first record.
    pub(crate) fn split_table(&self) -> SplitTable {
        SplitTable::started(self.pair, self.meganodes.iter().map(|first| (first.slot, first.used)))
    }

    /// Gives every tree node to `emit`, with its slot.
    pub(crate) fn build(&self, mut emit: impl FnMut(SlotIndex, Change<'_>)) -> Result<(), BulkError> {
        for first in &self.meganodes {
            let frame = BulkFrame {
                low: &first.low,
                high: first.high.as_deref(),
                right: first.right,
                role: first.used.role(),
                ..BulkFrame::WHOLE
            };
            let slot = Slot { region: self.pair.node_region(), index: first.slot };
            let mut allocator = SlotAllocator::new(self.geometry.nodes());
            let entries = first.entries.iter().map(|(key, entry)| (key, *entry));
            bulk_build(self.geometry, slot, &frame, &mut allocator, entries, |change| {
                emit(first.slot, change);
            })?;
        }
        Ok(())
    }
}
