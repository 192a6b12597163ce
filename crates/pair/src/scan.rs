//! Ranges of the tree, leaf by leaf, each leaf as of one moment; extents and the next leaf are asked for
//! ahead.

use std::ops::Bound;

use cell_memory::{Region, extent};
use cell_terms::{Csn, SlotIndex};
use cell_tree::{LeafEntry, LeafSnapshot, Meganode, ReadError};

use crate::error::PairError;
use crate::pair::Pair;
use crate::read::shape_of;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanDirection {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// A range of keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// Where it begins, of the lowest keys.
    pub start: Bound<&'a [u8]>,
    /// Where it ends, of the highest keys.
    pub end: Bound<&'a [u8]>,
    /// In which order its keys are wanted.
    pub direction: ScanDirection,
}

/// How a scan of a meganode ended.
#[derive(Clone, Copy, Debug)]
pub struct ScanEnd {
    /// What all that was seen depends on: the entries, and the removals in the leaves that were looked at.
    pub depends_on: Csn,
    /// Whether it was told to end; else the range has nothing more in this meganode.
    pub is_stopped: bool,
}

impl<'a> KeyRange<'a> {
    /// The same keys by bounds that a tree can search: no key is empty or longer than `key_max`. `None` if no
    /// key is in the range.
    fn searchable(&self, key_max: usize) -> Option<KeyRange<'a>> {
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
        Some(KeyRange { start, end, ..*self })
    }

    /// Whether keys below `bound` are in the range.
    pub fn begins_below(&self, bound: &[u8]) -> bool {
        match self.start {
            Bound::Included(start) | Bound::Excluded(start) => start < bound,
            Bound::Unbounded => true,
        }
    }

    /// Whether a key lies above the range.
    pub fn is_past_end(&self, key: &[u8]) -> bool {
        match self.end {
            Bound::Included(end) => key > end,
            Bound::Excluded(end) => key >= end,
            Bound::Unbounded => false,
        }
    }
}

impl KeyRange<'_> {
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

/// The leaves of a range in a meganode, in its order. Forward, the next leaf is read and its extents are
/// asked for before those of the present one are copied.
struct LeafWalk<'p, 'r> {
    pair: &'p Pair,
    meganode: Meganode<'p, Region>,
    range: KeyRange<'r>,
    leaf: LeafSnapshot,
    next: LeafSnapshot,
    /// Entries that are wanted and whose extents were not asked for yet, about.
    wanted: usize,
}

impl<'p, 'r> LeafWalk<'p, 'r> {
    fn begin(
        pair: &'p Pair,
        slot: SlotIndex,
        range: KeyRange<'r>,
        expected: usize,
    ) -> Result<Self, PairError> {
        let meganode = pair.meganode(slot);
        let (mut leaf, next) = (LeafSnapshot::new(), LeafSnapshot::new());
        first_leaf(&meganode, &range, &mut leaf)?;
        let inside = range.inside(&leaf);
        if range.direction == ScanDirection::Forward && expected > inside.len() {
            meganode.prefetch_after(&leaf);
        }
        let wanted = pair.ask(&range, &leaf, inside, expected);
        Ok(LeafWalk { pair, meganode, range, leaf, next, wanted })
    }

    /// Whether the range ends within the leaf.
    fn is_last(&self) -> bool {
        let inside = self.range.inside(&self.leaf);
        match self.range.direction {
            ScanDirection::Forward => inside.end < self.leaf.len(),
            ScanDirection::Backward => inside.start > 0,
        }
    }

    /// Reads the next leaf if that is worth it: whether there is one. `None`: it was not read.
    fn read_ahead(&mut self) -> Option<Result<bool, ReadError>> {
        if self.is_last() || self.wanted == 0 || self.range.direction == ScanDirection::Backward {
            return None;
        }
        if !self.range.goes_on_after(&self.leaf) {
            return Some(Ok(false));
        }
        let read = self.meganode.leaf_ahead(&self.leaf, &mut self.next);
        if let Ok(true) = read {
            let inside = self.range.inside(&self.next);
            self.wanted = self.pair.ask(&self.range, &self.next, inside, self.wanted);
            if self.wanted > 0 {
                self.meganode.prefetch_after(&self.next);
            }
        }
        Some(read)
    }

    /// Goes to the next leaf, which may have been read ahead. False: there is none.
    fn go_on(&mut self, ahead: Option<Result<bool, ReadError>>) -> Result<bool, PairError> {
        if let Some(read) = ahead {
            let more = read?;
            std::mem::swap(&mut self.leaf, &mut self.next);
            return Ok(more);
        }
        if self.is_last() || !next_leaf(&self.meganode, &self.range, &mut self.leaf)? {
            return Ok(false);
        }
        let inside = self.range.inside(&self.leaf);
        self.wanted = self.pair.ask(&self.range, &self.leaf, inside, self.wanted.max(1));
        Ok(true)
    }
}

impl Pair {
    /// Hands the entries of one meganode in the range, which must not go beyond it, to `each`, which answers
    /// with the CSN that the entry depends on, or `None` to end the scan.
    ///
    /// `expected` is how many entries are wanted, about: so many extents are asked for ahead.
    ///
    /// # Errors
    /// The tree is damaged, or what `each` answers.
    pub fn scan<E: From<PairError>>(
        &self,
        slot: SlotIndex,
        range: &KeyRange<'_>,
        expected: usize,
        mut each: impl FnMut(&[u8], &LeafEntry) -> Result<Option<Csn>, E>,
    ) -> Result<ScanEnd, E> {
        let mut depends_on = Csn::ZERO;
        let Some(range) = range.searchable(self.memory.geometry().key_max()) else {
            return Ok(ScanEnd { depends_on, is_stopped: false });
        };
        let mut walk = LeafWalk::begin(self, slot, range, expected)?;
        let mut key = Vec::new();
        loop {
            depends_on = depends_on.max(walk.leaf.csn_removed());
            let ahead = walk.read_ahead();
            let mut inside = range.inside(&walk.leaf);
            while let Some(at) = match range.direction {
                ScanDirection::Forward => inside.next(),
                ScanDirection::Backward => inside.next_back(),
            } {
                key.clear();
                walk.leaf.append_key(at, &mut key);
                match each(&key, &walk.leaf.entry(at))? {
                    Some(csn) => depends_on = depends_on.max(csn),
                    None => return Ok(ScanEnd { depends_on, is_stopped: true }),
                }
            }
            if !walk.go_on(ahead)? {
                return Ok(ScanEnd { depends_on, is_stopped: false });
            }
        }
    }

    /// Asks for the extents of a leaf's entries as far as they are wanted; returns how many more are.
    fn ask(
        &self,
        range: &KeyRange<'_>,
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
        extent::prefetch_all(self.memory.extent(), entries.filter_map(place));
        wanted - taken
    }
}

fn first_leaf(
    meganode: &Meganode<'_, Region>,
    range: &KeyRange<'_>,
    leaf: &mut LeafSnapshot,
) -> Result<(), PairError> {
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
    range: &KeyRange<'_>,
    leaf: &mut LeafSnapshot,
) -> Result<bool, PairError> {
    Ok(match range.direction {
        ScanDirection::Forward => range.goes_on_after(leaf) && meganode.leaf_after(leaf)?,
        ScanDirection::Backward => {
            let low_is_inside = !leaf.low().is_empty() && range.begins_below(leaf.low());
            low_is_inside && meganode.leaf_before(leaf)?
        }
    })
}
