//! The pair's side of merges: an empty meganode goes, and its left neighbour, which is empty too, takes over
//! its range. When each step may happen is `node/src/split`'s to know (`docs/design/splits.md`, "Merges").

use cell_recovery::{NodeRecord, SourceState, SplitName, SplitRecord};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Pointer, SlotIndex};
use cell_tree::{
    BulkBuilder, BulkFrame, Change, LeafEntry, LeafSnapshot, MeganodeRole, NodeIndex, SlotAllocator,
    TreeNodeState,
};

use crate::adoption::{Adoption, AdoptionRange};
use crate::error::{PairError, WriteError};
use crate::log::LogNeed;
use crate::memory::MemoryObserver;
use crate::pair::Pair;

impl<O: MemoryObserver> Pair<O> {
    /// By which record a meganode that had entries has none any more and is one tree node by now. One that
    /// never had any was made for entries that are still to come.
    #[must_use]
    pub fn emptied_by(&self, slot: SlotIndex) -> Option<Csn> {
        let owned = self.meganodes.get(slot)?;
        let is_bare = owned.entries == 0 && owned.nodes_used() == 1 && owned.allocator.height() == 1;
        if !is_bare || self.meganodes.role(slot) != MeganodeRole::Data {
            return None;
        }
        let mut leaf = LeafSnapshot::new();
        self.meganode(slot).leaf_first(&mut leaf).ok()?;
        (leaf.is_empty() && leaf.csn_removed() > Csn::ZERO).then(|| leaf.csn_changed())
    }

    /// As [`Pair::emptied_by`], of a meganode that takes part in nothing that a merge would come across, in
    /// whichever role.
    #[must_use]
    pub fn mergeable_by(&self, slot: SlotIndex) -> Option<Csn> {
        let is_free = |_: &Csn| self.is_settled(slot) && self.splits.target_of(slot).is_none();
        self.emptied_by(slot).filter(is_free)
    }

    /// As the left neighbour: logs that it is to take over a range, with the results that go along. True when
    /// all of that is in the log; false: the log has no room now.
    pub fn begin_absorbing(&mut self, adoption: &mut Adoption) -> bool {
        let AdoptionRange { name, slot, low, high, right, .. } = adoption.range().clone();
        assert!(self.emptied_by(slot).is_some() || planted(Mutant::AbsorbedUnseen), "{slot} has entries");
        while let Some(kept) = adoption.take_kept() {
            let keys = low.len() + high.as_ref().map_or(0, |high| high.len());
            if self.step_room(keys + kept.len()).is_err() {
                adoption.put_back_kept(kept);
                return false;
            }
            let record =
                SplitRecord::Absorb { name, slot, low: &low, high: high.as_deref(), right, kept: &kept };
            self.append_step(&NodeRecord::Split(record));
            adoption.ended().for_each(|session| self.completions.forget(session));
        }
        self.try_step(SplitRecord::Adopted { name, slot, nodes: 1, entries: 0 }, 0).is_some()
    }

    /// Makes an empty meganode end at another key. Readers of the keys that come to it find nothing there, as
    /// they did before. False: the log has no room now.
    ///
    /// # Errors
    /// Its root does not read.
    pub fn extend(
        &mut self,
        slot: SlotIndex,
        high: Option<&[u8]>,
        right: Pointer,
    ) -> Result<bool, PairError> {
        let mut leaf = LeafSnapshot::new();
        self.meganode(slot).leaf_first(&mut leaf)?;
        if leaf.high() == high && leaf.right() == right {
            return Ok(true);
        }
        assert!(
            leaf.is_empty() && leaf.node() == NodeIndex::ROOT,
            "{slot} takes over a range with entries in it"
        );
        if self.log_room(&LogNeed::extension(self.memory.geometry())).is_err() {
            return Ok(false);
        }
        let frame = BulkFrame {
            low: leaf.low(),
            high,
            right,
            csn_removed: self.appended().next(),
            state: TreeNodeState::Valid,
            fill_percent: 100,
            role: MeganodeRole::Data,
        };
        let geometry = *self.memory.geometry();
        let mut scratch = SlotAllocator::new(geometry.nodes());
        let mut builder = BulkBuilder::new(geometry, self.memory.slot(slot), &frame);
        let Pair { log, memory, .. } = self;
        let mut last = Csn::ZERO;
        let built = builder.finish(&mut scratch, &mut |change: Change<'_>| {
            last = log.append_node(&NodeRecord::Tree { slot, completion: None, change });
            memory.change_node(slot, &change, last);
        });
        assert!(built.is_ok_and(|built| built.nodes == 1), "an empty meganode is one tree node");
        self.written(last);
        Ok(true)
    }

    /// The meganode of a merge is gone: its left neighbour has its range. False: the log has no room now.
    pub fn retire(&mut self, name: SplitName, slot: SlotIndex) -> bool {
        let split = self.splits.source(name);
        let linked =
            split.is_some_and(|split| split.state == SourceState::Linked && split.csn <= self.durable());
        assert!(linked, "{name} is retired before it is linked durably");
        let is_empty = self.meganodes.get(slot).is_none_or(|owned| owned.entries == 0);
        assert!(is_empty, "{name} is retired with entries");
        let Some(csn) = self.try_step(SplitRecord::Retired { name, slot }, 0) else { return false };
        self.free_slot(slot, csn);
        true
    }

    /// Takes the router's entry at a key out, if it leads to a meganode that is gone: the entry before leads
    /// to who has its range. The CSN that must be sealed before the slot of that one is used again.
    ///
    /// # Errors
    /// The log has no room now, or the router is damaged.
    pub fn unroute(&mut self, router: SlotIndex, low: &[u8], gone: Pointer) -> Result<Csn, WriteError> {
        let found = self.meganode(router).search(low).map_err(PairError::Tree)?;
        if found.entry != Some(LeafEntry::to_meganode(gone)) || planted(Mutant::MergedRouteKept) {
            return Ok(found.csn_changed.max(found.csn_removed));
        }
        self.log_room(&LogNeed::delete(low.len())).map_err(WriteError::NoRoom)?;
        let meganode = self.memory.meganode(router, MeganodeRole::Router);
        cell_tree::plan_remove(&meganode, low, &mut self.plan).map_err(PairError::Plan)?;
        let last = self.change_tree(router, None);
        self.meganodes.removed(router);
        Ok(last)
    }
}
