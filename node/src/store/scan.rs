//! Ranges of the tree, leaf by leaf, each leaf as of one moment; extents and the next leaf are asked for
//! ahead.

use std::ops::Bound;

use cell_memory::{Region, extent};
use cell_terms::{Csn, SlotIndex};
use cell_tree::{LeafEntry, LeafSnapshot, Meganode};

use super::{Store, StoreError, shape_of};

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanDirection {
    Forward,
    Backward,
}

/// A range of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanRange<'a> {
    pub(crate) start: Bound<&'a [u8]>,
    pub(crate) end: Bound<&'a [u8]>,
    pub(crate) direction: ScanDirection,
}

/// How a scan of a meganode ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanEnd {
    /// What all that was seen depends on: the entries, and the removals in the leaves that were looked at.
    pub(crate) depends_on: Csn,
    /// Whether it was told to end; else the range has nothing more in this meganode.
    pub(crate) is_stopped: bool,
}

impl<'a> ScanRange<'a> {
    /// The same keys by bounds that a tree can search: no key is empty or longer than `key_max`. `None` if no
    /// key is in
    /// the range.
    fn searchable(&self, key_max: usize) -> Option<ScanRange<'a>> {
        // Between a key of the longest length and its extensions there is no key.
        let start = match self.start {
            Bound::Included(key) | Bound::Excluded(key) if key.len() > key_max => {
                Bound::Excluded(&key[..key_max])
            }
            Bound::Included([]) | Bound::Excluded([]) => Bound::Unbounded,
            start => start,
        };
        let end = match self.end {
            Bound::Included(key) | Bound::Excluded(key) if key.len() > key_max => {
                Bound::Included(&key[..key_max])
            }
            Bound::Included([]) | Bound::Excluded([]) => return None,
            end => end,
        };
        Some(ScanRange { start, end, ..*self })
    }

    pub(crate) fn is_before_start(&self, key: &[u8]) -> bool {
        match self.start {
            Bound::Included(start) => key < start,
            Bound::Excluded(start) => key <= start,
            Bound::Unbounded => false,
        }
    }

    /// Whether keys below `bound` are in the range.
    pub(crate) fn begins_below(&self, bound: &[u8]) -> bool {
        match self.start {
            Bound::Included(start) | Bound::Excluded(start) => start < bound,
            Bound::Unbounded => true,
        }
    }

    pub(crate) fn is_past_end(&self, key: &[u8]) -> bool {
        match self.end {
            Bound::Included(end) => key > end,
            Bound::Excluded(end) => key >= end,
            Bound::Unbounded => false,
        }
    }
}

impl Store {
    /// Hands the entries of one meganode in the range, which must not go beyond it, to `each`, which answers
    /// with the CSN that the entry depends on, or `None` to end the scan.
    ///
    /// `expected` is how many entries are wanted, about: so many extents are asked for ahead.
    pub(crate) fn scan(
        &self,
        slot: SlotIndex,
        range: &ScanRange<'_>,
        expected: usize,
        mut each: impl FnMut(&[u8], &LeafEntry) -> Result<Option<Csn>, StoreError>,
    ) -> Result<ScanEnd, StoreError> {
        let all = |depends_on| ScanEnd { depends_on, is_stopped: false };
        let Some(range) = range.searchable(self.geometry.key_max()) else { return Ok(all(Csn::ZERO)) };
        let meganode = self.meganode(slot);
        let mut leaf = LeafSnapshot::new();
        let mut depends_on = Csn::ZERO;
        let mut wanted = expected;
        let mut more = first_leaf(&meganode, &range, &mut leaf)?;
        while more {
            depends_on = depends_on.max(leaf.csn_removed());
            let inside = inside(&range, &leaf);
            self.prefetch(&meganode, &range, &leaf, inside.clone(), wanted);
            wanted = wanted.saturating_sub(inside.len()).max(1);
            let last = match range.direction {
                ScanDirection::Forward => inside.end < leaf.len(),
                ScanDirection::Backward => inside.start > 0,
            };
            let mut forward = inside.clone();
            let mut backward = inside.rev();
            while let Some(i) = match range.direction {
                ScanDirection::Forward => forward.next(),
                ScanDirection::Backward => backward.next(),
            } {
                match each(leaf.key(i), &leaf.entry(i))? {
                    Some(csn) => depends_on = depends_on.max(csn),
                    None => return Ok(ScanEnd { depends_on, is_stopped: true }),
                }
            }
            more = !last && next_leaf(&meganode, &range, &mut leaf)?;
        }
        Ok(all(depends_on))
    }

    fn prefetch(
        &self,
        meganode: &Meganode<'_, Region>,
        range: &ScanRange<'_>,
        leaf: &LeafSnapshot,
        inside: std::ops::Range<usize>,
        wanted: usize,
    ) {
        let (skipped, taken) = match range.direction {
            ScanDirection::Forward => (0, inside.len().min(wanted)),
            ScanDirection::Backward => (inside.len().saturating_sub(wanted), inside.len().min(wanted)),
        };
        if range.direction == ScanDirection::Forward && wanted > inside.len() {
            meganode.prefetch_after(leaf);
        }
        for i in inside.skip(skipped).take(taken) {
            let entry = leaf.entry(i);
            if let Some(shape) = shape_of(&entry) {
                extent::prefetch(&self.extent, entry.offset, shape);
            }
        }
    }
}

fn first_leaf(
    meganode: &Meganode<'_, Region>,
    range: &ScanRange<'_>,
    leaf: &mut LeafSnapshot,
) -> Result<bool, StoreError> {
    match range.direction {
        ScanDirection::Forward => match range.start {
            Bound::Included(key) | Bound::Excluded(key) => meganode.leaf(key, leaf)?,
            Bound::Unbounded => meganode.leaf_first(leaf)?,
        },
        ScanDirection::Backward => match range.end {
            Bound::Included(key) => meganode.leaf(key, leaf)?,
            Bound::Excluded(key) => meganode.leaf_below(key, leaf)?,
            Bound::Unbounded => meganode.leaf_last(leaf)?,
        },
    }
    Ok(true)
}

fn next_leaf(
    meganode: &Meganode<'_, Region>,
    range: &ScanRange<'_>,
    leaf: &mut LeafSnapshot,
) -> Result<bool, StoreError> {
    Ok(match range.direction {
        ScanDirection::Forward => {
            leaf.high().is_some_and(|high| !range.is_past_end(high)) && meganode.leaf_after(leaf)?
        }
        ScanDirection::Backward => {
            let low_is_inside = !leaf.low().is_empty() && range.begins_below(leaf.low());
            low_is_inside && meganode.leaf_before(leaf)?
        }
    })
}

/// The leaf's entries that are in the range.
fn inside(range: &ScanRange<'_>, leaf: &LeafSnapshot) -> std::ops::Range<usize> {
    let from = match range.start {
        Bound::Included(key) | Bound::Excluded(key) => {
            let at = leaf.position(key);
            at + usize::from(at < leaf.len() && range.is_before_start(leaf.key(at)))
        }
        Bound::Unbounded => 0,
    };
    let to = match range.end {
        Bound::Included(key) | Bound::Excluded(key) => {
            let at = leaf.position(key);
            at + usize::from(at < leaf.len() && !range.is_past_end(leaf.key(at)))
        }
        Bound::Unbounded => leaf.len(),
    };
    from..to.max(from)
}
