//! The write path of a pair, the only one that there is. Each write is one call and goes in this order
//! (`docs/design/log.md`):
//!
//! 0. see to it that log and regions have room; a refusal here leaves nothing behind;
//! 1. append the records;
//! 2. change memory, stamping the records' CSNs.
//!
//! What follows is the caller's, once a batch: submit it, wait for both logs, raise the watermark,
//! acknowledge ([`Pair::submit`], [`Pair::log_event`], [`Pair::visible`]).

use cell_memory::extent::{self, ExtentHeader, ExtentShape};
use cell_recovery::{NodeRecord, WriteCompletion, WriteOutcome};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, ExtentOffset, SlotIndex, Version};
use cell_tree::{LeafEntry, MeganodeRole, PlanError};

use crate::error::{NoRoom, PairError, WriteError};
use crate::grace::Freed;
use crate::log::LogNeed;
use crate::memory::MemoryObserver;
use crate::pair::Pair;
use crate::read::shape_of;

impl<O: MemoryObserver> Pair<O> {
    /// Writes an entry. `completion` is given the version and whether an entry was replaced.
    ///
    /// # Errors
    /// No room, or the pair is damaged; nothing was changed.
    ///
    /// # Panics
    /// If the slot is an adoption's that does not take writes yet.
    pub fn put(
        &mut self,
        slot: SlotIndex,
        key: &[u8],
        value: &[u8],
        completion: impl FnOnce(Version, bool) -> WriteCompletion,
    ) -> Result<(WriteOutcome, Csn), WriteError> {
        // The leaf comes while the entry is encoded.
        let meganode = self.memory.meganode(slot, MeganodeRole::Data);
        cell_tree::plan_ahead(&meganode, key, &mut self.plan).map_err(PairError::Tree)?;
        assert!(!self.splits.is_closed(slot), "{slot} is written before it is open");
        let height = self.meganodes.height(slot);
        let need = LogNeed::put(key.len(), value.len(), self.memory.geometry(), height);
        self.log_room(&need).map_err(WriteError::NoRoom)?;
        let header =
            ExtentHeader { epoch: self.epoch, csn: self.appended().next(), ..ExtentHeader::default() };
        let version = header.version(self.id);
        let shape = header.shape(value.len()).map_err(|_| WriteError::NoRoom(NoRoom::Region))?;
        let Some(offset) = self.extents.allocate(shape.extent_bytes()) else {
            self.refused_for(NoRoom::Region, &need, shape.extent_bytes());
            return Err(WriteError::NoRoom(NoRoom::Region));
        };
        extent::prefetch(self.memory.extent(), offset, shape);
        let encoded = self.encoder.encode(&header, value).map_err(|_| WriteError::NoRoom(NoRoom::Region))?;
        let entry = LeafEntry { offset, value_len: encoded.shape.bits(), crc: encoded.checksum };
        let planned = match self.meganodes.get_mut(slot) {
            Some(owned) => {
                let meganode = self.memory.meganode(slot, MeganodeRole::Data);
                cell_tree::plan_put(&meganode, &mut owned.allocator, key, entry, &mut self.plan)
                    .map_err(not_planned)
            }
            None => Err(PairError::NoMeganode(slot).into()),
        };
        if let Err(error) = planned {
            self.extents.free(offset, shape.extent_bytes());
            return Err(error);
        }
        let replaced = self.plan.old();
        let completion = completion(version, replaced.is_some());
        self.log.append_extent(offset, encoded.bytes);
        self.memory.store_extent(offset, encoded.bytes);
        let last = self.change_tree(slot, Some(&completion));
        let gone = replaced.as_ref().map_or(0, extent_bytes_of);
        self.meganodes.weigh(slot, shape.extent_bytes().into(), gone);
        match replaced {
            Some(old) => self.release(&old, last),
            None => self.meganodes.count(slot, 1),
        }
        self.found_room(need.extent_bytes);
        Ok((completion.outcome, last))
    }

    /// Removes an entry that is there.
    ///
    /// # Errors
    /// No room in the log, or the pair is damaged; nothing was changed.
    ///
    /// # Panics
    /// If the slot is an adoption's that does not take writes yet.
    pub fn delete(
        &mut self,
        slot: SlotIndex,
        key: &[u8],
        completion: &WriteCompletion,
    ) -> Result<(WriteOutcome, Csn), WriteError> {
        assert!(!self.splits.is_closed(slot), "{slot} is written before it is open");
        self.log_room(&LogNeed::delete(key.len())).map_err(WriteError::NoRoom)?;
        let meganode = self.memory.meganode(slot, MeganodeRole::Data);
        cell_tree::plan_remove(&meganode, key, &mut self.plan).map_err(PairError::Plan)?;
        let Some(old) = self.plan.old() else { return Err(PairError::EntryChanged.into()) };
        let last = self.change_tree(slot, Some(completion));
        self.release(&old, last);
        self.meganodes.removed(slot);
        self.meganodes.weigh(slot, 0, extent_bytes_of(&old));
        Ok((completion.outcome, last))
    }

    /// Records a write that changes nothing: its result must not change with a repeat.
    ///
    /// # Errors
    /// No room in the log.
    pub fn log_outcome(&mut self, completion: &WriteCompletion) -> Result<Csn, WriteError> {
        self.log_room(&LogNeed::outcome()).map_err(WriteError::NoRoom)?;
        let csn = self.log.append_node(&NodeRecord::Outcome(*completion));
        self.completions.record(completion, csn);
        self.written(csn);
        Ok(csn)
    }

    /// Records every change of the plan, then changes memory. The completion goes with the last record.
    pub(crate) fn change_tree(&mut self, slot: SlotIndex, completion: Option<&WriteCompletion>) -> Csn {
        // In its place: a plan is some hundred bytes, which each write would move out and back.
        let Pair { plan, log, meganodes, memory, .. } = self;
        let first = log.appended().next();
        let last_index = plan.len() - 1;
        if log.is_kept() {
            for (index, change) in plan.changes().enumerate() {
                let completion = completion.filter(|_| index == last_index).copied();
                log.append_node(&NodeRecord::Tree { slot, completion, change });
            }
        } else {
            log.count(plan.len() as u64);
        }
        // Before any of the changes: who comes to a new node must know that the slot goes so far.
        meganodes.announce(slot);
        let mut csn = first;
        for (index, placed) in plan.placed().enumerate() {
            csn = Csn(first.0 + index as u64);
            memory.change_placed(slot, &placed, csn);
        }
        if let Some(owned) = meganodes.get_mut(slot) {
            plan.commit(&mut owned.allocator);
            owned.writes += u64::from(completion.is_some());
        }
        if plan.len() > 1 {
            self.note_nearly_full(slot);
        }
        if let Some(completion) = completion {
            self.completions.record(completion, csn);
        }
        self.written(csn);
        csn
    }

    /// Writes an extent that no leaf leads to yet: its record, then its bytes. `None`: the region is full.
    pub(crate) fn write_extent(
        &mut self,
        header: &ExtentHeader,
        value: &[u8],
    ) -> Option<(LeafEntry, ExtentShape)> {
        let shape = header.shape(value.len()).ok()?;
        let encoded = self.encoder.encode(header, value).ok()?;
        let offset: ExtentOffset = self.extents.allocate(shape.extent_bytes())?;
        self.log.append_extent(offset, encoded.bytes);
        self.memory.store_extent(offset, encoded.bytes);
        Some((LeafEntry { offset, value_len: encoded.shape.bits(), crc: encoded.checksum }, shape))
    }

    /// An extent that nothing points to any more goes to the grace queue.
    pub(crate) fn release(&mut self, old: &LeafEntry, csn: Csn) {
        if let Some(shape) = shape_of(old) {
            let csn = if planted(Mutant::ReplacedExtentUnrested) { Csn::ZERO } else { csn };
            self.grace.push(csn, Freed::Extent(old.offset, shape.extent_bytes()));
        }
    }
}

/// Length of an entry's extent.
pub(crate) fn extent_bytes_of(entry: &LeafEntry) -> u64 {
    shape_of(entry).map_or(0, |shape| u64::from(shape.extent_bytes()))
}

fn not_planned(error: PlanError) -> WriteError {
    match error {
        PlanError::Full { .. } => WriteError::NoRoom(NoRoom::Slot),
        error => WriteError::Pair(PairError::Plan(error)),
    }
}
