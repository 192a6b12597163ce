//! A copy of a pair that its owner serves: made from image and logs off the log root that all share, without
//! a word to the owner, for the target of a planned move (`docs/design/moves.md`).
//!
//! A copy is a restore whose claim is still to come. It owns nothing and writes nothing. It loads the image,
//! reads the logs of ended epochs up to their cuts, and then follows the log that the owner writes, in
//! rounds, each from where the last one ended. Once it has caught up it is verified. When the pair is handed
//! over it goes on as the restore of what was claimed: up to the recorded cut, which alone decides what
//! counts. It counts for one thing: that the pair's row goes from the epoch that it follows to the next one
//! by the handing to it.
//!
//! What it has read need not have been durable at its owner when it was read. A handing comes from an owner
//! that lives, and whose log is durable to its last byte: the cut lies at or above all that was read. In any
//! other case the copy is thrown away. It is so, too, if it has more than the cut permits.
//!
//! The check after the handing walks all tree nodes. It looks within those alone that have changed since the
//! first check, and reads the extents of their entries.

use std::sync::Arc;

use cell_cluster::{Claim, Ownership, PairRow, PairState};
use cell_memory::Region;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, Incarnation, NodeId};

use crate::environment::Environment;
use crate::error::{CopyFault, RecoveryError};
use crate::progress::Progress;
use crate::restore::{Copied, Restore, Step};

/// A round that reads no more than this is the last one that is needed before the handing.
const LAG_BYTES_MAX: u64 = 1 << 20;
/// One that was ready is so no more once a round has read more than this. It is above the other bound, so
/// that a log that grows by about that much does not make it ready and not by turns.
const BEHIND_BYTES: u64 = 8 * LAG_BYTES_MAX;

/// What a step of a copy leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyTurn {
    /// Step again.
    More,
    /// All that was there is read: step again a moment later.
    CaughtUp {
        /// The copy is verified and lags little: the pair may be handed over.
        ready: bool,
    },
}

/// See the module's text. Dropping it leaves nothing behind.
pub struct PairCopy {
    restore: Restore,
    /// The owner's.
    epoch: Epoch,
    verified: bool,
}

impl PairCopy {
    /// Begins a copy of a pair whose row this is, for who is to be its next owner.
    ///
    /// # Errors
    /// As [`Restore::new`].
    pub fn begin(
        environment: &Environment,
        row: &PairRow,
        incarnation: Incarnation,
        node: NodeId,
        progress: &Arc<Progress>,
    ) -> Result<PairCopy, RecoveryError> {
        let layout = environment.table.layout()?;
        let epoch = Epoch(row.epoch.0 + 1);
        let presumed = PairRow {
            epoch,
            owner: Some(incarnation),
            node,
            state: PairState::Recovering,
            place: None,
            ..row.clone()
        };
        let ownership = Ownership { pair: row.pair, epoch, incarnation };
        let claim = Claim { ownership, row: presumed };
        let mut restore = Restore::with_layout(environment, claim, layout, progress)?;
        restore.copied = Some(Copied::default());
        Ok(PairCopy { restore, epoch: row.epoch, verified: false })
    }

    /// Reads, or checks, the next bounded piece.
    ///
    /// # Errors
    /// The copy is of no use any more: begin anew. Files that it wanted may have gone, because the owner has
    /// taken a checkpoint.
    pub fn step(&mut self) -> Result<CopyTurn, RecoveryError> {
        if self.restore.is_caught_up() && !self.verified && self.lag_bytes() <= LAG_BYTES_MAX {
            self.verified = !self.restore.verify_next()?;
            if self.verified {
                return Ok(CopyTurn::More);
            }
        }
        Ok(match self.restore.step()? {
            Step::Later => CopyTurn::CaughtUp { ready: self.verified && self.lag_bytes() <= LAG_BYTES_MAX },
            Step::More | Step::Done => CopyTurn::More,
        })
    }

    /// Whether so much has come to the log that a copy which was ready is so no more.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.lag_bytes() > BEHIND_BYTES && !planted(Mutant::BehindUnseen)
    }

    /// What came to the log in the last round.
    fn lag_bytes(&self) -> u64 {
        self.restore.copied.as_ref().map_or(0, |copied| copied.round_bytes)
    }

    /// Everything up to here is in the copy.
    #[must_use]
    pub fn reached(&self) -> Csn {
        self.restore.copied.as_ref().map_or(Csn::ZERO, |copied| copied.reached)
    }

    /// The memory of node and extent region, once there is some.
    #[must_use]
    pub fn regions(&self) -> Option<[Region; 2]> {
        self.restore.regions()
    }

    /// The pair was handed over, and this is its row: what is left to be restored.
    ///
    /// # Errors
    /// [`CopyFault`]: the copy does not count.
    pub fn handed(mut self, row: &PairRow) -> Result<Restore, RecoveryError> {
        let Ownership { epoch, incarnation, .. } = self.restore.ownership();
        let is_handing = row.epoch == epoch
            && row.owner == Some(incarnation)
            && row.state == PairState::Recovering
            && !row.is_published();
        let cut = row.history.iter().find(|old| old.epoch == self.epoch).and_then(|old| old.cut);
        let foreign = CopyFault::Foreign { epoch: row.epoch };
        let cut = cut.filter(|_| is_handing || planted(Mutant::ForeignEpochTaken)).ok_or(foreign)?;
        let copied = self.reached();
        if cut < copied && !planted(Mutant::CutBelowCopy) {
            return Err(CopyFault::PastCut { cut, copied }.into());
        }
        self.restore.hand(row.clone(), cut);
        Ok(self.restore)
    }
}
