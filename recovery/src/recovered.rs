//! What a takeover leaves in a new owner's hands.

use cell_cluster::{Claim, ClusterError, Revision, Sessions};
use cell_memory::{ExtentAllocator, PairWriter};
use cell_terms::{Csn, Epoch, PairId, Pointer, Root, SessionId};
use cell_tree::{Geometry, Slot, SlotAllocator, TreeStats};
use cell_wal::{PairLog, Predecessor};

use crate::completion::CompletionTable;
use crate::environment::Environment;
use crate::error::RecoveryError;
use crate::leftovers::Leftovers;
use crate::split::{SlotUse, SplitTable, TargetState};

/// The sessions that were open at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSessions {
    /// Their ids, ascending.
    pub sessions: Vec<SessionId>,
    /// The table's revision then: ask for those that ended since.
    pub revision: Revision,
}

impl OpenSessions {
    /// Those that are open now.
    pub(crate) fn list(sessions: &Sessions) -> Result<OpenSessions, ClusterError> {
        let (rows, revision) = sessions.open_sessions()?;
        let mut sessions: Vec<_> = rows.into_iter().map(|row| row.session).collect();
        sessions.sort_unstable();
        Ok(OpenSessions { sessions, revision })
    }

    /// Read after a claim: a session that is not open then has ended, and nobody repeats its writes.
    pub(crate) fn forget_ended(&self, completions: &mut CompletionTable) {
        let is_open = |session: &SessionId| self.sessions.binary_search(session).is_ok();
        let ended: Vec<_> = completions.sessions().filter(|session| !is_open(session)).collect();
        ended.into_iter().for_each(|session| completions.forget(session));
    }
}

/// A recovered pair: verified, its cut recorded, its new logs open, published. Whoever holds it is its owner.
pub struct Recovered {
    /// The pair.
    pub pair: PairId,
    /// The new owner's epoch.
    pub epoch: Epoch,
    /// Sizes of its tree.
    pub geometry: Geometry,
    /// How many slots its node region has.
    pub slots: u32,
    /// Its meganodes by ascending slot, hidden ones and routers among them. What was not whole yet is gone:
    /// its slot is still taken, see [`Recovered::splits`].
    pub meganodes: Vec<RecoveredMeganode>,
    /// Its splits in both roles, to be settled ([`crate::settle`]).
    pub splits: SplitTable,
    /// The root of the tree, of the pair that keeps it.
    pub root: Root,
    /// Both regions, with everything up to the cut; their watermarks stand at the cut.
    pub memory: PairWriter,
    /// Free space of the extent region.
    pub extents: ExtentAllocator,
    /// The new epoch's logs, open; `None` with `durability = none`.
    pub log: Option<PairLog>,
    /// The last CSN that counts.
    pub csn_cut: Csn,
    /// The base of the checkpoint in force; zero if there is none.
    pub csn_checkpoint: Csn,
    /// Owners since that checkpoint, this one not counted, whose logs are kept.
    pub recoveries: u32,
    /// Results and floors of the sessions that have not ended.
    pub completions: CompletionTable,
    /// The sessions that were open after the claim: of all others nothing is known here any more.
    pub sessions: OpenSessions,
    /// Entries of the meganodes that are neither hidden nor routers.
    pub entries: u64,
    /// Stored bytes of the image that was loaded.
    pub image_bytes: u64,
    /// Log bytes that were replayed: what the next recovery would read again.
    pub log_bytes: u64,
    /// What earlier owners have left, until it is removed ([`Recovered::remove_leftovers`]).
    pub leftovers: Option<Leftovers>,
}

impl Recovered {
    /// Removes what earlier owners have left on the disk. Better once the pair is served: it takes the disk's
    /// time, and nobody waits for it.
    pub fn remove_leftovers(&mut self, environment: &Environment) {
        self.leftovers.take().into_iter().for_each(|leftovers| leftovers.remove(environment));
    }
}

/// A pair that is restored and verified, before its new logs are open and before it is published.
pub struct Restored {
    /// In whose name.
    pub claim: Claim,
    /// Everything but the log.
    pub recovered: Recovered,
    /// What the new logs follow.
    pub predecessor: Predecessor,
}

/// A meganode of a recovered pair.
#[derive(Clone, Debug)]
pub struct RecoveredMeganode {
    /// Where it is.
    pub slot: Slot,
    /// Whether its entries lead to extents or to meganodes.
    pub used: SlotUse,
    /// Whether it was adopted and its split is not settled: whole, and no reader's business.
    pub hidden: bool,
    /// Its free tree nodes.
    pub allocator: SlotAllocator,
    /// What it holds.
    pub stats: TreeStats,
    /// Bytes of its entries' extents.
    pub extent_bytes: u64,
    /// Its keys are at or above this.
    pub low: Vec<u8>,
    /// And below this; `None` for plus infinity.
    pub high: Option<Vec<u8>>,
    /// Where the keys from `high` on are.
    pub right: Pointer,
}

/// Entries that readers are led to.
pub(crate) fn entries_of(meganodes: &[RecoveredMeganode]) -> u64 {
    let counted = meganodes.iter().filter(|found| found.used == SlotUse::Leaf && !found.hidden);
    counted.map(|found| found.stats.entries).sum()
}

/// What was adopted and is not settled yet has not changed since: it is what its record says.
pub(crate) fn check_adoptions(
    splits: &SplitTable,
    meganodes: &[RecoveredMeganode],
) -> Result<(), RecoveryError> {
    for (_, split) in splits.targets().filter(|(_, split)| split.state == TargetState::Adopted) {
        let found = meganodes.iter().find(|meganode| meganode.slot.index == split.slot);
        let (nodes, entries) = found.map_or((0, 0), |found| (found.stats.nodes(), found.stats.entries));
        let (slot, nodes_expected, entries_expected) = (split.slot, split.nodes.into(), split.entries);
        if (nodes, entries) != (nodes_expected, entries_expected) {
            return Err(RecoveryError::Adoption { slot, nodes_expected, entries_expected, nodes, entries });
        }
    }
    Ok(())
}
