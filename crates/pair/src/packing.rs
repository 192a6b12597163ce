//! Packing extents: sparse slabs are emptied, so that extents of any length can use what was free in them.
//! When that may happen is `crate::split`'s to know.
//!
//! A split takes extents out of slabs in which those that stay lie, too, and overwriting with another length
//! takes them out one by one. What becomes free there is of use for extents of the same class alone. So:
//!
//! 1. the allocator names the sparsest slabs, in which nothing is allocated from here on;
//! 2. all leaves are gone through, a part at a time. An extent in such a slab is written to another one, byte
//!    for byte, so that it is the same version and has the same checksum, and its leaf gets the new place.
//!    To readers, images and replays that is a put like any other;
//! 3. the old places rest as all does that is freed. Slabs that are empty then are free ranges.
//!
//! A meganode that takes part in a split that is not settled is passed over, because the split has taken note
//! of where extents are:
//!
//! 1. the target copies an entry and notes that its extent at A becomes free when the source is truncated;
//! 2. the source's extent is moved from A to B, and A is free;
//! 3. the source is truncated, and A is freed once more.

use cell_memory::extent::{self, ExtentShape, byte_offset};
use cell_recovery::SlotUse;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, SlotIndex};
use cell_tree::{LeafEntry, LeafSnapshot, MeganodeRole, ReadError};

use crate::error::{ExtentFault, NoRoom, PairError, form_fault};
use crate::log::LogNeed;
use crate::memory::MemoryObserver;
use crate::pair::Pair;
use crate::read::shape_of;

/// Leaves that are gone through in one step, and bytes that are moved, about.
const LEAVES_AT_ONCE: usize = 16;
const BYTES_AT_ONCE: usize = 64 << 10;
/// A packing is worth while if it can make at least this part of the region free.
const WORTH_PART: u64 = 16;

/// Where a packing is.
#[derive(Debug)]
pub struct PackingWalk {
    /// Slots that are still to be gone through, the next one last.
    slots: Vec<SlotIndex>,
    /// Where the next leaf of that begins; `None`: its first.
    from: Option<Vec<u8>>,
    /// All leaves were gone through: what was freed up to here is waited for.
    rests_until: Option<Csn>,
    free_before: u64,
    leaf: LeafSnapshot,
    bytes: Vec<u8>,
}

/// What a step of a packing left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackingStep {
    /// Step again.
    Went,
    /// The log has no room now, somebody reads the whole pair, or what was freed rests: step again later.
    Waits,
    /// It is over.
    Done,
}

/// What became of a leaf, or of an extent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    Yes,
    Waits,
    /// There is no place for it.
    Full,
}

impl<O: MemoryObserver> Pair<O> {
    /// Whether a packing would make a part of the extent region free that is worth while.
    pub fn packing_helps(&self) -> bool {
        let worth = self.extent_bytes() / WORTH_PART;
        let packable = self.extents.packable_bytes();
        packable > 0
            && packable >= worth
            && self
                .packing
                .fruitless_at
                .is_none_or(|live| self.extents.stats().live_bytes.abs_diff(live) >= worth / 2)
    }

    /// Whether that can begin now.
    pub fn may_pack(&self) -> bool {
        let settled = |slot: &SlotIndex| self.is_settled(*slot) || planted(Mutant::SplitSourcePacked);
        !self.checking
            && !self.packing.under_way
            && self.packing_helps()
            && self.leaf_slots().iter().all(settled)
    }

    /// Whether a packing should begin, before anybody waits for it: little is free but in slabs, and extents
    /// of other classes than theirs have come since this was asked last.
    pub fn wants_packing(&mut self) -> bool {
        let taken = self.extents.ranges_taken();
        if self.packing.ranges_seen == taken {
            return false;
        }
        let short = self.extent_bytes_free() < self.extent_bytes() / WORTH_PART && self.packing_helps();
        let begins = short && self.may_pack();
        if begins || !short {
            self.packing.ranges_seen = taken; // else it is asked again: something is in the way
        }
        begins
    }

    /// Begins to pack, if that can be now.
    pub fn begin_packing(&mut self) -> Option<PackingWalk> {
        if !self.may_pack() || !self.extents.begin_packing() {
            return None;
        }
        self.packing.under_way = true;
        Some(PackingWalk {
            slots: self.leaf_slots(),
            from: None,
            rests_until: None,
            free_before: self.extents.stats().free_bytes,
            leaf: LeafSnapshot::new(),
            bytes: Vec::new(),
        })
    }

    /// Takes a packing a step further.
    ///
    /// # Errors
    /// The pair is damaged.
    pub fn pack(&mut self, walk: &mut PackingWalk) -> Result<PackingStep, PairError> {
        if self.checking {
            return Ok(PackingStep::Waits);
        }
        let mut left = BYTES_AT_ONCE;
        for _ in 0..LEAVES_AT_ONCE {
            let Some(slot) = walk.slots.last().copied() else { return Ok(self.end_packing(walk)) };
            match self.pack_leaf(slot, walk, &mut left)? {
                Moved::Yes if left == 0 => break,
                Moved::Yes => {}
                Moved::Waits => return Ok(PackingStep::Waits),
                Moved::Full => walk.slots.clear(),
            }
        }
        Ok(PackingStep::Went)
    }

    /// A packing that is under way goes no further.
    pub fn abandon_packing(&mut self) {
        if std::mem::take(&mut self.packing.under_way) {
            self.extents.end_packing();
        }
    }

    /// All leaves were gone through.
    fn end_packing(&mut self, walk: &mut PackingWalk) -> PackingStep {
        let until = *walk.rests_until.get_or_insert(self.appended());
        if self.has_resting_extents(until) {
            return PackingStep::Waits;
        }
        self.extents.end_packing();
        let stats = self.extents.stats();
        let gained = stats.free_bytes.saturating_sub(walk.free_before);
        let fruitless = gained < self.extent_bytes() / WORTH_PART / 2;
        self.packing.fruitless_at = fruitless.then_some(stats.live_bytes);
        self.packing.under_way = false;
        self.packing.counts.done += 1;
        let moved = self.packing.counts.moved_bytes;
        tracing::debug!(pair = self.id.0, gained, moved, "extents were packed");
        PackingStep::Done
    }

    /// Moves what is to be moved of the next leaf of a slot.
    fn pack_leaf(
        &mut self,
        slot: SlotIndex,
        walk: &mut PackingWalk,
        left: &mut usize,
    ) -> Result<Moved, PairError> {
        let settled = self.is_settled(slot) || planted(Mutant::SplitSourcePacked);
        let served = settled && self.splits.slot_use(slot) == SlotUse::Leaf;
        if !served || self.meganodes.get(slot).is_none() {
            return Ok(next_slot(walk));
        }
        let meganode = self.memory.meganode(slot, MeganodeRole::Data);
        let found = match &walk.from {
            None => meganode.leaf_first(&mut walk.leaf),
            Some(from) => meganode.leaf(from, &mut walk.leaf),
        };
        match found {
            Ok(()) => {}
            // It ended there, or was cut there meanwhile.
            Err(ReadError::Beyond(_) | ReadError::NotHere) => return Ok(next_slot(walk)),
            Err(error) => return Err(PairError::Tree(error)),
        }
        for at in 0..walk.leaf.len() {
            let entry = walk.leaf.entry(at);
            let shape = shape_of(&entry).ok_or_else(|| form_fault(&entry))?;
            if !self.extents.is_to_be_moved(entry.offset, shape.extent_bytes()) {
                continue;
            }
            if *left == 0 {
                return Ok(Moved::Yes); // the leaf is come to again
            }
            let moved = self.move_extent(slot, walk.leaf.key(at), (&entry, shape), &mut walk.bytes)?;
            if moved != Moved::Yes {
                return Ok(moved);
            }
            *left = left.saturating_sub(shape.extent_bytes() as usize + 64);
        }
        match walk.leaf.high() {
            Some(high) => walk.from = Some(high.to_vec()),
            None => return Ok(next_slot(walk)),
        }
        Ok(Moved::Yes)
    }

    /// Writes an entry's extent to another place: the same bytes.
    fn move_extent(
        &mut self,
        slot: SlotIndex,
        key: &[u8],
        (entry, shape): (&LeafEntry, ExtentShape),
        bytes: &mut Vec<u8>,
    ) -> Result<Moved, PairError> {
        let height = self.meganodes.height(slot);
        let value_bytes = shape.value_bytes() as usize;
        match self.log_room_apart(&LogNeed::put(key.len(), value_bytes, self.memory.geometry(), height)) {
            Ok(()) => {}
            Err(NoRoom::LogBusy) => return Ok(Moved::Waits),
            Err(_) => return Ok(Moved::Full),
        }
        bytes.resize(shape.extent_bytes() as usize, 0);
        self.memory.extent().read_bytes(byte_offset(entry.offset), bytes);
        let (expected, found) = (entry.crc, extent::checksum(bytes));
        if found != expected {
            let why = ExtentFault::Checksum { expected, found };
            return Err(PairError::Extent { offset: entry.offset, why });
        }
        let Some(offset) = self.extents.allocate(shape.extent_bytes()) else { return Ok(Moved::Full) };
        if let Err(error) = self.plan_move(slot, key, entry, LeafEntry { offset, ..*entry }) {
            self.extents.free(offset, shape.extent_bytes());
            return Err(error);
        }
        self.log.append_extent(offset, bytes);
        self.memory.store_extent(offset, bytes);
        let last = self.change_tree(slot, None);
        self.release(entry, last);
        self.packing.counts.moved_bytes += u64::from(shape.extent_bytes());
        Ok(Moved::Yes)
    }

    /// Plans to lead a key to another place.
    fn plan_move(
        &mut self,
        slot: SlotIndex,
        key: &[u8],
        from: &LeafEntry,
        to: LeafEntry,
    ) -> Result<(), PairError> {
        let meganode = self.memory.meganode(slot, MeganodeRole::Data);
        let Some(owned) = self.meganodes.get_mut(slot) else { return Err(PairError::NoMeganode(slot)) };
        cell_tree::plan_put(&meganode, &mut owned.allocator, key, to, &mut self.plan)
            .map_err(PairError::Plan)?;
        if self.plan.old() == Some(*from) {
            return Ok(());
        }
        self.plan.abandon(&mut owned.allocator);
        Err(PairError::EntryChanged)
    }
}

fn next_slot(walk: &mut PackingWalk) -> Moved {
    walk.slots.pop();
    walk.from = None;
    Moved::Yes
}
