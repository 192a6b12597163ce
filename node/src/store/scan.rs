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
    /// key is in the range.
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

impl ScanRange<'_> {
    /// The leaf's entries that are in the range.
    fn inside(&self, leaf: &LeafSnapshot) -> std::ops::Range<usize> {
        let before = |key: &[u8]| leaf.find(key).0;
        let upto = |key: &[u8]| {
            let (at, present) = leaf.find(key);
            at + usize::from(present)
        };
        let from = match self.start {
            Bound::Included(key) => before(key),
            Bound::Excluded(key) => upto(key),
            Bound::Unbounded => 0,
        };
        let to = match self.end {
            Bound::Included(key) => upto(key),
            Bound::Excluded(key) => before(key),
            Bound::Unbounded => leaf.len(),
        };
        from..to.max(from)
    }

    /// Whether keys above the leaf's can be in the range, if there are any.
    fn goes_on_after(&self, leaf: &LeafSnapshot) -> bool {
        leaf.high().is_some_and(|high| !self.is_past_end(high))
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
        let (mut leaf, mut next, mut key) = (LeafSnapshot::new(), LeafSnapshot::new(), Vec::new());
        let mut depends_on = Csn::ZERO;
        first_leaf(&meganode, &range, &mut leaf)?;
        let mut inside = range.inside(&leaf);
        if range.direction == ScanDirection::Forward && expected > inside.len() {
            meganode.prefetch_after(&leaf);
        }
        let mut wanted = self.ask(&range, &leaf, inside.clone(), expected);
        loop {
            depends_on = depends_on.max(leaf.csn_removed());
            let last = match range.direction {
                ScanDirection::Forward => inside.end < leaf.len(),
                ScanDirection::Backward => inside.start > 0,
            };
            // The next leaf is read, and its extents are asked for, before those of this one are copied.
            let mut ahead = None;
            if !last && wanted > 0 && range.direction == ScanDirection::Forward {
                let read = range.goes_on_after(&leaf).then(|| meganode.leaf_ahead(&leaf, &mut next));
                ahead = Some(read.unwrap_or(Ok(false)));
                if let Some(Ok(true)) = ahead {
                    wanted = self.ask(&range, &next, range.inside(&next), wanted);
                    if wanted > 0 {
                        meganode.prefetch_after(&next);
                    }
                }
            }
            let mut forward = inside.clone();
            let mut backward = inside.rev();
            while let Some(i) = match range.direction {
                ScanDirection::Forward => forward.next(),
                ScanDirection::Backward => backward.next(),
            } {
                key.clear();
                leaf.append_key(i, &mut key);
                match each(&key, &leaf.entry(i))? {
                    Some(csn) => depends_on = depends_on.max(csn),
                    None => return Ok(ScanEnd { depends_on, is_stopped: true }),
                }
            }
            let more = match ahead {
                Some(read) => read?,
                None => !last && next_leaf(&meganode, &range, &mut leaf)?,
            };
            if !more {
                return Ok(all(depends_on));
            }
            if ahead.is_some() {
                std::mem::swap(&mut leaf, &mut next);
            }
            inside = range.inside(&leaf);
            if ahead.is_none() {
                wanted = self.ask(&range, &leaf, inside.clone(), wanted.max(1));
            }
        }
    }

    /// Asks for the extents of a leaf's entries as far as they are wanted; returns how many more are.
    fn ask(
        &self,
        range: &ScanRange<'_>,
        leaf: &LeafSnapshot,
        inside: std::ops::Range<usize>,
        wanted: usize,
    ) -> usize {
        let taken = inside.len().min(wanted);
        let skipped = match range.direction {
            ScanDirection::Forward => 0,
            ScanDirection::Backward => inside.len() - taken,
        };
        let place = |entry: LeafEntry| Some((entry.offset, shape_of(&entry)?));
        let entries = inside.skip(skipped).take(taken).map(|i| leaf.entry(i));
        extent::prefetch_all(&self.extent, entries.filter_map(place));
        wanted - taken
    }
}

fn first_leaf(
    meganode: &Meganode<'_, Region>,
    range: &ScanRange<'_>,
    leaf: &mut LeafSnapshot,
) -> Result<(), StoreError> {
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
    Ok(())
}

fn next_leaf(
    meganode: &Meganode<'_, Region>,
    range: &ScanRange<'_>,
    leaf: &mut LeafSnapshot,
) -> Result<bool, StoreError> {
    Ok(match range.direction {
        ScanDirection::Forward => range.goes_on_after(leaf) && meganode.leaf_after(leaf)?,
        ScanDirection::Backward => {
            let low_is_inside = !leaf.low().is_empty() && range.begins_below(leaf.low());
            low_is_inside && meganode.leaf_before(leaf)?
        }
    })
}
