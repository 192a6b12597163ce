//! The store's side of compactions after deletes: which meganodes have become sparse, and one step of a
//! compaction. When one may happen is `crate::split`'s to know; why a step is right, `cell_tree`'s
//! `compaction.rs` says.

use cell_recovery::{NodeRecord, SlotUse, TREE_RECORD_HEADER_BYTES_MAX};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, SlotIndex};
use cell_tree::{Change, CompactionLimits, CompactionNext, CompactionPlan};
use cell_wal::record_space;

use crate::error::{NoRoom, PairError};
use crate::grace::Freed;
use crate::log::{CHANGE_BYTES_MAX, LogNeed};
use crate::memory::MemoryObserver;
use crate::pair::Pair;

/// How full compacted tree nodes become, in percent.
const FILL_PERCENT: usize = 85;
/// Tree nodes of a run, and how many of them are filled anew: of a usual log, and of one whose frames are
/// smaller than that.
const RUNS: [(usize, usize); 2] = [(32, 4), (8, 1)];

/// Where a compaction of a meganode is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionWalk {
    level: u8,
    from: Vec<u8>,
}

/// What a step of a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionStep {
    /// It looked at a run and freed so many tree nodes.
    Went(usize),
    /// The log has no room now, or somebody reads the whole meganode: step again later.
    Waits,
    /// Every level was gone through.
    Done,
}

impl<O: MemoryObserver> Pair<O> {
    /// Takes the next step of a compaction: one run of tree nodes, in one batch.
    pub fn compact(
        &mut self,
        slot: SlotIndex,
        walk: &mut CompactionWalk,
    ) -> Result<CompactionStep, PairError> {
        if self.checking {
            return Ok(CompactionStep::Waits);
        }
        let limits = match self.compaction_limits() {
            Ok(limits) => limits,
            Err(NoRoom::LogBusy) => return Ok(CompactionStep::Waits),
            Err(_) => return Ok(CompactionStep::Done), // a full disk: another time
        };
        let mut plan = std::mem::take(&mut self.compaction_plan);
        let next = self.meganode(slot).plan_compaction(walk.level, &walk.from, &limits, &mut plan);
        if next.is_ok() && !plan.is_empty() {
            self.carry_out_compaction(slot, &mut plan);
        }
        let freed = plan.freed().len();
        self.compaction_plan = plan;
        match next.map_err(PairError::Plan)? {
            CompactionNext::From(from) => walk.from = from,
            CompactionNext::LevelDone => *walk = CompactionWalk { level: walk.level + 1, from: Vec::new() },
            CompactionNext::TreeDone => return Ok(CompactionStep::Done),
        }
        Ok(CompactionStep::Went(freed))
    }

    /// The largest runs that the log surely takes now.
    fn compaction_limits(&mut self) -> Result<CompactionLimits, NoRoom> {
        let mut refused = NoRoom::Region;
        for (run, fills) in RUNS {
            let limits = CompactionLimits {
                sparse_permille: self.compaction_permille,
                fill_percent: FILL_PERCENT,
                fills,
                run,
            };
            let marks = record_space(TREE_RECORD_HEADER_BYTES_MAX + CHANGE_BYTES_MAX) * run;
            let mut need = LogNeed::fills(limits.fills_max(), self.memory.geometry());
            need.node_bytes += marks;
            match self.log_room_apart(&need) {
                Ok(()) => return Ok(limits),
                Err(error) if refused != NoRoom::LogBusy => refused = error,
                Err(_) => {} // a shorter run may fit what is left of the batch; else it waits
            }
        }
        Err(refused)
    }

    fn carry_out_compaction(&mut self, slot: SlotIndex, plan: &mut CompactionPlan) {
        let first = self.appended().next();
        for change in plan.changes() {
            self.log.append_node(&NodeRecord::Tree { slot, completion: None, change });
        }
        let mut last = first;
        for (index, change) in plan.changes().enumerate() {
            last = Csn(first.0 + index as u64);
            if matches!(change, Change::Mark { .. }) && planted(Mutant::CompactedRunKept) {
                continue;
            }
            self.memory.change_node(slot, &change, last);
        }
        if let Some(owned) = self.meganodes.get_mut(slot) {
            plan.commit(&mut owned.allocator);
        }
        self.meganodes.rest(slot, plan.freed().len());
        let freed_by = if planted(Mutant::CompactedNodesUnrested) { Csn::ZERO } else { last };
        for node in plan.freed() {
            self.grace.push(freed_by, Freed::Node(slot, *node));
        }
        self.compactions.nodes_freed += plan.freed().len() as u64;
        self.written(last);
    }

    /// A compaction has gone through a meganode and freed something.
    pub fn count_compacted(&mut self) {
        self.compactions.done += 1;
    }

    /// The next meganode of which so much was deleted that it should be looked at.
    pub fn take_sparse(&mut self) -> Option<SlotIndex> {
        if self.compaction_permille == 0 {
            return None;
        }
        // A slot whose adoption was thrown away meanwhile holds nothing, though it rests for a while.
        std::iter::from_fn(|| self.meganodes.take_sparse())
            .find(|slot| self.splits.slot_use(*slot) != SlotUse::Free)
    }

    /// The meganode is to be looked at another time.
    pub fn put_back_sparse(&mut self, slot: SlotIndex) {
        self.meganodes.note_sparse(slot);
    }

    /// Whether something was deleted from a meganode since it was looked at last.
    pub fn may_be_sparse(&self, slot: SlotIndex) -> bool {
        self.compaction_permille > 0 && self.meganodes.get(slot).is_some_and(|owned| owned.removed > 0)
    }

    /// Tree nodes of a meganode that are in use.
    pub fn nodes_used(&self, slot: SlotIndex) -> usize {
        self.meganodes.get(slot).map_or(0, |owned| owned.nodes_used())
    }
}
