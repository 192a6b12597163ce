//! A pair that its owner has handed over by a planned move, and whose memory it has kept: should the pair
//! come back before anybody else has served it, it goes the way of one that was recovered, without being
//! read from its logs (`docs/design/moves.md`).

use cell_recovery::{OpenSessions, Recovered, RecoveredMeganode, TargetState};
use cell_terms::{Epoch, SlotIndex};
use cell_tree::{NodeIndex, TreeNodeState, TreeStats};

use crate::error::PairError;
use crate::meganodes::OwnedMeganode;
use crate::memory::MemoryObserver;
use crate::pair::Pair;

impl<O: MemoryObserver> Pair<O> {
    /// Whether its memory is what its logs say up to its last CSN, and nobody is at it: no check, and no
    /// adoption. Its log may still be at work without a record: a seal that is written, a segment that is
    /// prepared. Both are of its own epoch, past the cut, where nobody reads them.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        let built = |state| matches!(state, TargetState::Adopting | TargetState::Adopted);
        let adopts = self.splits.targets().any(|(_, split)| built(split.state));
        let is_durable = self.appended() == self.durable() && self.visible() == self.durable();
        self.has_log() && is_durable && !self.checking && !adopts && self.reserved.is_empty()
    }

    /// What a recovery up to its last CSN would have made, in a later epoch; its new logs, and which sessions
    /// are open, are still to come. Nobody reads by its earlier registrations any more: what rests is free.
    ///
    /// # Errors
    /// A root tree node does not read.
    pub fn into_recovered(mut self, epoch: Epoch) -> Result<Recovered, PairError> {
        while self.reuse(u64::MAX) {}
        let (csn_cut, entries, slots, root) =
            (self.appended(), self.entries(), self.slot_count(), self.root());
        let (csn_checkpoint, recoveries) = (self.checkpointed(), self.recoveries());
        let log_bytes = self.log_bytes_recovered() + self.log_bytes_closed().0;
        let mut meganodes = Vec::new();
        for (slot, owned) in self.meganodes.take_all() {
            meganodes.push(self.recovered_meganode(slot, owned)?);
        }
        Ok(Recovered {
            pair: self.id,
            epoch,
            geometry: *self.memory.geometry(),
            slots,
            meganodes,
            splits: self.splits,
            root,
            memory: self.memory.into_writer().in_epoch(epoch),
            extents: self.extents,
            log: None,
            csn_cut,
            csn_checkpoint,
            recoveries,
            completions: self.completions,
            sessions: OpenSessions::default(),
            entries,
            image_bytes: 0,
            log_bytes,
            leftovers: None,
        })
    }

    fn recovered_meganode(
        &self,
        slot: SlotIndex,
        owned: OwnedMeganode,
    ) -> Result<RecoveredMeganode, PairError> {
        let used = self.splits.slot_use(slot);
        let mut words = vec![0; self.memory.geometry().node_words()];
        let meganode = self.memory.meganode(slot, used.role());
        let root = meganode.copy_node(NodeIndex::ROOT, &mut words)?;
        let stats =
            TreeStats { height: owned.allocator.height(), entries: owned.entries, ..TreeStats::default() };
        Ok(RecoveredMeganode {
            slot: self.memory.slot(slot),
            used,
            hidden: root.state() == TreeNodeState::Hidden,
            allocator: owned.allocator,
            stats,
            extent_bytes: owned.extent_bytes,
            low: root.low(),
            high: root.high(),
            right: root.right(),
        })
    }
}
