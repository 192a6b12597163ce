//! The last entry that is not above a key: how a router's leaves lead to meganodes.
//!
//! A leaf's separator may be shorter than its first key, so a key can come to a leaf whose entries are all
//! above it; then the entry is the last one of the leaves before, and the search descends once more, to the
//! keys just below that leaf's low fence. Walks by copied nodes do the same by [`crate::NodeRef::way`] and
//! [`crate::NodeRef::predecessor`].

use cell_terms::{ExtentOffset, Pointer, Words};

use crate::fence::Side;
use crate::probe::Probe;
use crate::search::{LeafAnswer, Meganode, ReadError, sized};
use crate::snapshot::LeafSnapshot;
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

/// What a leaf says.
enum InLeaf {
    Entry(LeafEntry),
    /// All its entries are above.
    Before(Vec<u8>),
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// The last entry that is not above a key, `None` if all are. As of one moment of its leaf; of several
    /// moments where it is not in the key's own leaf.
    ///
    /// # Errors
    /// As [`Meganode::search`].
    pub fn predecessor(&self, key: &[u8]) -> Result<Option<LeafEntry>, ReadError> {
        self.check_key(key)?;
        let probe = Probe::new(key);
        let found = sized!(self.geometry, B => self.descend::<B, _>(&probe, |_, _| {}, |_, view, header| {
            match view.side(header, &probe) {
                Side::Here(window) => LeafAnswer::Here(predecessor_in_leaf(view, header, &probe, window)),
                Side::Right => LeafAnswer::Right(view.right()),
                Side::Below => LeafAnswer::Restart,
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

fn predecessor_in_leaf<W: Words + ?Sized, const B: usize>(
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
