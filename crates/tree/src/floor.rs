//! The last entry that is not above a key: how a router's leaves lead to meganodes.
//!
//! A leaf's separator may be shorter than its first key, so a key can come to a leaf whose entries are all above it;
//! then the entry is the last one of the leaves before, and the search descends once more, to the keys just below
//! that leaf's low fence.

use std::cmp::Ordering;

use cell_terms::{ExtentOffset, Pointer, Words};

use crate::fence::Side;
use crate::geometry::NodeIndex;
use crate::layout::kind_of;
use crate::node::NodeRef;
use crate::probe::Probe;
use crate::scan::LeafSnapshot;
use crate::search::{Answer, Meganode, ReadError, sized};
use crate::view::{Header, LeafEntry, View};

impl LeafEntry {
    /// A router's entry: it leads to the root tree node of a meganode, and to no extent.
    #[must_use]
    pub const fn to_meganode(root: Pointer) -> LeafEntry {
        LeafEntry { offset: ExtentOffset(0), value_len: 0, crc: root.0 }
    }

    /// Where a router's entry leads.
    #[must_use]
    pub const fn meganode(&self) -> Pointer {
        Pointer(self.crc)
    }
}

/// What a copied node says in a search for the last entry that is not above a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorStep {
    /// Go on at this node of the same slot, one level down.
    Child(NodeIndex),
    /// Go on at this node; the parent that led here is stale.
    Right(Pointer),
    /// The entry.
    Entry(LeafEntry),
    /// It is before this leaf, if there is one: descend from the root by [`NodeRef::step_below`] this leaf's low
    /// fence.
    Before,
    /// There is none: this is the first leaf.
    None,
    /// The node is invalid or was reused: start again, the way here was stale.
    NotHere,
}

/// What a leaf says.
enum InLeaf {
    Entry(LeafEntry),
    /// All its entries are above.
    Before(Vec<u8>),
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// The last entry that is not above a key, `None` if all are. As of one moment of its leaf; of several moments
    /// where it is not in the key's own leaf.
    ///
    /// # Errors
    /// As [`Meganode::search`].
    pub fn floor(&self, key: &[u8]) -> Result<Option<LeafEntry>, ReadError> {
        self.check_key(key)?;
        let probe = Probe::new(key);
        let found = sized!(self.geometry, B => self.descend::<B, _>(&probe, |_, _| {}, |_, view, header| {
            match view.side(header, &probe) {
                Side::Here(window) => Answer::Here(floor_in_leaf(view, header, &probe, window)),
                Side::Right => Answer::Right(view.right()),
                Side::Below => Answer::Restart,
            }
        }))?;
        match found {
            InLeaf::Entry(entry) => Ok(Some(entry)),
            InLeaf::Before(low) => self.last_below(&low),
        }
    }

    /// The last entry below a fence.
    #[cold]
    fn last_below(&self, low: &[u8]) -> Result<Option<LeafEntry>, ReadError> {
        if low.is_empty() {
            return Ok(None);
        }
        let mut leaf = LeafSnapshot::new();
        match self.leaf_below(low, &mut leaf) {
            Err(ReadError::NotHere) => return Ok(None), // the meganode begins here
            read => read?,
        }
        while leaf.is_empty() {
            match self.leaf_before(&mut leaf) {
                Ok(true) => {}
                Ok(false) | Err(ReadError::NotHere) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(leaf.entry(leaf.len() - 1)))
    }
}

impl NodeRef<'_> {
    /// Where a search for the last entry not above `key` goes from here.
    #[must_use]
    pub fn step_floor(&self, key: &[u8]) -> FloorStep {
        let probe = Probe::new(key);
        sized!(self.geometry, B => {
            let view = View::<[u64], B>::new(self.words, 0);
            let header = view.header();
            if header.kind != kind_of(header.level()) {
                return FloorStep::NotHere;
            }
            match view.side(&header, &probe) {
                Side::Right => right(view.right()),
                Side::Below => FloorStep::NotHere,
                Side::Here(window) if header.is_inner() => {
                    self.child_step(view.child(&header, view.route(&header, &probe, window)))
                }
                Side::Here(window) => match floor_in_leaf(&view, &header, &probe, window) {
                    InLeaf::Entry(entry) => FloorStep::Entry(entry),
                    InLeaf::Before(low) if low.is_empty() => FloorStep::None,
                    InLeaf::Before(_) => FloorStep::Before,
                },
            }
        })
    }

    /// Where a search for the last entry below `bound`, a low fence, goes from here.
    #[must_use]
    pub fn step_below(&self, bound: &[u8]) -> FloorStep {
        let probe = Probe::new(bound);
        sized!(self.geometry, B => {
            let view = View::<[u64], B>::new(self.words, 0);
            let header = view.header();
            if header.kind != kind_of(header.level())
                || view.compare_low(&header, &probe) != Ordering::Less
            {
                return FloorStep::NotHere;
            }
            if view.compare_high(&header, &probe) == Ordering::Less {
                return right(view.right());
            }
            let last = header.count.saturating_sub(1);
            if header.is_inner() {
                // A bound that does not share the prefix is the high fence, or above all keys of the node.
                let at = if view.begins_with_prefix(header.prefix, &probe) {
                    view.route_below(&header, &probe, probe.window(header.prefix))
                } else {
                    last
                };
                return self.child_step(view.child(&header, at));
            }
            if header.count > 0 {
                FloorStep::Entry(view.leaf_entry(&view.cell(&header, last)))
            } else if header.low_len == 0 {
                FloorStep::None
            } else {
                FloorStep::Before
            }
        })
    }

    fn child_step(&self, child: NodeIndex) -> FloorStep {
        if child.get() < self.geometry.nodes() { FloorStep::Child(child) } else { FloorStep::NotHere }
    }
}

fn right(pointer: Pointer) -> FloorStep {
    if pointer.is_null() { FloorStep::NotHere } else { FloorStep::Right(pointer) }
}

fn floor_in_leaf<W: Words + ?Sized, const B: usize>(
    view: &View<'_, W, B>,
    header: &Header,
    probe: &Probe<'_>,
    window: u64,
) -> InLeaf {
    let entry = match view.find(header, probe, window) {
        (_, Some(cell)) => Some(view.leaf_entry(&cell)),
        (at, None) => at.checked_sub(1).map(|at| view.leaf_entry(&view.cell(header, at))),
    };
    entry.map_or_else(
        || {
            let mut low = vec![0; header.low_len.min(B)];
            view.low(header, &mut low);
            InLeaf::Before(low)
        },
        InLeaf::Entry,
    )
}
