//! Ranges of the tree, leaf by leaf, each leaf as of one moment; extents and the next leaf are asked for
//! ahead.

use std::ops::Bound;

use cell_memory::{Region, extent};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, SlotIndex};
use cell_tree::{KeyRange, LeafEntry, LeafSnapshot, Meganode, ReadError, ScanDirection};

use crate::error::PairError;
use crate::memory::MemoryObserver;
use crate::pair::Pair;
use crate::read::shape_of;
use crate::scan_buffers::{RangedLeaf, ScanBuffers};

/// How a scan of a meganode ended.
#[derive(Clone, Debug)]
pub struct ScanEnd {
    /// What all that was seen depends on: the entries, and the removals in the leaves that were looked at.
    pub depends_on: Csn,
    /// Whether it was asked to end; else the range has nothing more in this meganode, or it goes on.
    pub is_stopped: bool,
    /// It has looked at as many leaves as it may: where it goes on, at this key, or below it when backward.
    pub goes_on: Option<Vec<u8>>,
}

impl ScanEnd {
    fn new(depends_on: Csn) -> ScanEnd {
        ScanEnd { depends_on, is_stopped: false, goes_on: None }
    }
}

/// An entry that a scan came to; the key is still in the leaf.
#[derive(Clone, Copy, Debug)]
pub struct LeafItem<'l> {
    leaf: &'l LeafSnapshot,
    at: usize,
    entry: LeafEntry,
}

impl<'l> LeafItem<'l> {
    #[inline]
    fn new(of: &'l RangedLeaf, at: usize) -> LeafItem<'l> {
        LeafItem { leaf: &of.leaf, at, entry: of.entry(at) }
    }

    /// What the leaf says of the key's value.
    #[must_use]
    #[inline]
    pub fn entry(&self) -> LeafEntry {
        self.entry
    }

    /// Length of the key in bytes.
    #[must_use]
    #[inline]
    pub fn key_len(&self) -> usize {
        self.leaf.key_len(self.at)
    }

    /// Appends the key to `out`.
    #[inline]
    pub fn append_key(&self, out: &mut Vec<u8>) {
        self.leaf.append_key(self.at, out);
    }
}

/// The leaves of a range in a meganode, in its order. The next leaf is read and its extents are asked for
/// before those of the present one are copied; the leaf behind that is asked for before them.
struct LeafWalk<'p, 'r, O> {
    pair: &'p Pair<O>,
    meganode: Meganode<'p, Region>,
    /// What is left of the range behind the leaf.
    range: KeyRange<'r>,
    now: &'r mut RangedLeaf,
    next: &'r mut RangedLeaf,
    /// Entries that are wanted and whose extents were not asked for yet, about.
    wanted: usize,
}

impl<'p, 'r, O: MemoryObserver> LeafWalk<'p, 'r, O> {
    fn begin(
        pair: &'p Pair<O>,
        slot: SlotIndex,
        range: &'r KeyRange<'r>,
        expected: usize,
        buffers: &'r mut ScanBuffers,
    ) -> Result<Self, PairError> {
        let meganode = pair.meganode(slot);
        let ScanBuffers { now, next } = buffers;
        first_leaf(&meganode, range, &mut now.leaf)?;
        now.find_inside(range);
        if expected > now.inside.len() {
            ask_for_next(&meganode, range, &mut now.leaf);
        }
        let wanted = pair.ask(range.direction, &now.entries, expected);
        Ok(LeafWalk { pair, meganode, range: range.behind_first_leaf(), now, next, wanted })
    }

    /// Whether the range ends within the leaf.
    fn is_last(&self) -> bool {
        match self.range.direction {
            ScanDirection::Forward => self.now.inside.end < self.now.leaf.len(),
            ScanDirection::Backward => self.now.inside.start > 0,
        }
    }

    /// The fence behind which the range goes on after the leaf, if it does.
    fn fence(&self) -> Option<&[u8]> {
        if self.is_last() { None } else { self.range.next_fence(&self.now.leaf) }
    }

    /// Reads the next leaf if that is worth it: whether there is one. `None`: it was not read.
    fn read_ahead(&mut self) -> Option<Result<bool, ReadError>> {
        if self.is_last() || self.wanted == 0 {
            return None;
        }
        let (now, next) = (&*self.now, &mut *self.next);
        if self.range.next_fence(&now.leaf).is_none() {
            return Some(Ok(false));
        }
        let read = match self.range.direction {
            ScanDirection::Forward => self.meganode.leaf_ahead(&now.leaf, &mut next.leaf),
            ScanDirection::Backward => self.meganode.leaf_behind(&now.leaf, &mut next.leaf),
        };
        if let Ok(true) = read {
            next.find_inside(&self.range);
            if self.wanted > next.inside.len() {
                ask_for_next(&self.meganode, &self.range, &mut next.leaf);
            }
            self.wanted = self.pair.ask(self.range.direction, &next.entries, self.wanted);
        }
        Some(read)
    }

    /// Goes to the next leaf, which may have been read ahead. False: there is none.
    fn go_on(&mut self, ahead: Option<Result<bool, ReadError>>) -> Result<bool, PairError> {
        if let Some(read) = ahead {
            let more = read?;
            std::mem::swap(&mut self.now, &mut self.next);
            return Ok(more);
        }
        if self.is_last() || !next_leaf(&self.meganode, &self.range, &mut self.now.leaf)? {
            return Ok(false);
        }
        self.now.find_inside(&self.range);
        self.wanted = self.pair.ask(self.range.direction, &self.now.entries, self.wanted.max(1));
        Ok(true)
    }
}

impl<O: MemoryObserver> Pair<O> {
    /// Hands the entries of one meganode in the range, which must not go beyond it, to `each`, which answers
    /// with the CSN that the entry depends on, or `None` to end the scan.
    ///
    /// `expected` is how many entries are wanted, about: so many extents are asked for ahead. Each leaf that
    /// was looked at is taken from `leaves`, which is how many may be, one at least: there may be any number
    /// without entries, of which `each` hears nothing.
    ///
    /// # Errors
    /// The tree is damaged, or what `each` answers.
    pub fn scan<E: From<PairError>>(
        &self,
        slot: SlotIndex,
        range: &KeyRange<'_>,
        expected: usize,
        leaves: &mut usize,
        each: impl FnMut(LeafItem<'_>) -> Result<Option<Csn>, E>,
    ) -> Result<ScanEnd, E> {
        // A scan within `each` takes new ones.
        let mut buffers = self.scan_buffers.take().unwrap_or_default();
        let end = self.scan_in(slot, range, (expected, leaves), &mut buffers, each);
        self.scan_buffers.set(Some(buffers));
        end
    }

    fn scan_in<E: From<PairError>>(
        &self,
        slot: SlotIndex,
        range: &KeyRange<'_>,
        (expected, leaves): (usize, &mut usize),
        buffers: &mut ScanBuffers,
        mut each: impl FnMut(LeafItem<'_>) -> Result<Option<Csn>, E>,
    ) -> Result<ScanEnd, E> {
        let mut depends_on = Csn::ZERO;
        let Some(range) = range.searchable(self.memory.geometry().key_max()) else {
            return Ok(ScanEnd::new(depends_on));
        };
        let mut walk = LeafWalk::begin(self, slot, &range, expected, buffers)?;
        self.meganodes.count_reads(slot, 1);
        loop {
            if !planted(Mutant::ScanRemovalNotHeld) {
                depends_on = depends_on.max(walk.now.leaf.csn_removed());
            }
            *leaves = leaves.saturating_sub(1);
            let ahead = if *leaves > 0 { walk.read_ahead() } else { None };
            let mut inside = walk.now.inside.clone();
            while let Some(at) = match range.direction {
                ScanDirection::Forward => inside.next(),
                ScanDirection::Backward => inside.next_back(),
            } {
                match each(LeafItem::new(walk.now, at))? {
                    Some(_) if planted(Mutant::ScanHitNotHeld) => {}
                    Some(csn) => depends_on = depends_on.max(csn),
                    None => return Ok(ScanEnd { is_stopped: true, ..ScanEnd::new(depends_on) }),
                }
            }
            if *leaves == 0 {
                let goes_on = walk.fence().map(<[u8]>::to_vec);
                return Ok(ScanEnd { goes_on, ..ScanEnd::new(depends_on) });
            }
            if !walk.go_on(ahead)? {
                return Ok(ScanEnd::new(depends_on));
            }
        }
    }

    /// Asks for the extents of a leaf's entries in a range as far as they are wanted; returns how many more
    /// are.
    fn ask(&self, direction: ScanDirection, entries: &[LeafEntry], wanted: usize) -> usize {
        let taken = entries.len().min(wanted);
        let entries = match direction {
            ScanDirection::Forward => &entries[..taken],
            ScanDirection::Backward => &entries[entries.len() - taken..],
        };
        let place = |entry: &LeafEntry| Some((entry.offset, shape_of(entry)?));
        extent::prefetch_all(self.memory.extent(), entries.iter().filter_map(place));
        wanted - taken
    }
}

/// Asks for the leaf behind this one, in the direction of the scan.
fn ask_for_next(meganode: &Meganode<'_, Region>, range: &KeyRange<'_>, leaf: &mut LeafSnapshot) {
    match range.direction {
        ScanDirection::Forward => meganode.prefetch_after(leaf),
        ScanDirection::Backward => meganode.prefetch_before(leaf),
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
