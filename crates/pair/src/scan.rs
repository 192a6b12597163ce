//! Ranges of the tree, leaf by leaf, each leaf as of one moment; extents and the next leaf are asked for
//! ahead.

use std::ops::Bound;

use cell_memory::{Region, extent};
use cell_terms::{Csn, SlotIndex};
use cell_tree::{KeyRange, LeafEntry, LeafSnapshot, Meganode, ReadError, ScanDirection};

use crate::error::PairError;
use crate::memory::MemoryObserver;
use crate::pair::Pair;
use crate::read::shape_of;

/// How a scan of a meganode ended.
#[derive(Clone, Copy, Debug)]
pub struct ScanEnd {
    /// What all that was seen depends on: the entries, and the removals in the leaves that were looked at.
    pub depends_on: Csn,
    /// Whether it was told to end; else the range has nothing more in this meganode.
    pub is_stopped: bool,
}

/// The leaves of a range in a meganode, in its order. Forward, the next leaf is read and its extents are
/// asked for before those of the present one are copied.
struct LeafWalk<'p, 'r, O> {
    pair: &'p Pair<O>,
    meganode: Meganode<'p, Region>,
    range: KeyRange<'r>,
    leaf: LeafSnapshot,
    next: LeafSnapshot,
    /// Entries that are wanted and whose extents were not asked for yet, about.
    wanted: usize,
}

impl<'p, 'r, O: MemoryObserver> LeafWalk<'p, 'r, O> {
    fn begin(
        pair: &'p Pair<O>,
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
        if self.range.next_fence(&self.leaf).is_none() {
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

impl<O: MemoryObserver> Pair<O> {
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
    if range.next_fence(leaf).is_none() {
        return Ok(false);
    }
    Ok(match range.direction {
        ScanDirection::Forward => meganode.leaf_after(leaf)?,
        ScanDirection::Backward => meganode.leaf_before(leaf)?,
    })
}
