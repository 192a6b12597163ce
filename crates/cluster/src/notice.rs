//! Notices: what owners of pairs send each other by way of the coordinator. Each is written in the name of
//! one pair, and only while the pair's row says that it is its writer's, in the writer's epoch, and the
//! writer's lease lives. What a notice says, and what its key means below the prefix, is known to those alone
//! who exchange notices.
//!
//! The lease alone would not do, because an owner can lose a pair and keep its lease:
//!
//! 1. the owner of a split's source decides to write "linked", and is stopped;
//! 2. the pair is given up, another node recovers it and aborts the split: its log says no;
//! 3. the first one goes on and writes: the target would be opened by the word of an owner that was.

use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};

use crate::attempts::Attempts;
use crate::claim::Ownership;
use crate::coordinator::{Coordinator, parse};
use crate::error::ClusterError;
use crate::request::{KeyCondition, Revision, Transaction, TransactionOutcome};
use crate::row::PairRow;

/// What the key of each notice begins with.
pub const NOTICE_PREFIX: &str = "split/";

/// The notices. Clones share the coordinator.
#[derive(Clone)]
pub struct Notices {
    coordinator: Arc<dyn Coordinator>,
}

impl Notices {
    /// The notices that `coordinator` holds.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Notices {
        Notices { coordinator }
    }

    /// Writes a notice, or with none removes it, in the name of a pair's owner. The revision from which on
    /// everybody sees it.
    ///
    /// # Errors
    /// [`ClusterError::Superseded`]: the pair is another's by now, or nobody's;
    /// [`ClusterError::LeaseEnded`] of the writer.
    pub fn set(&self, key: &str, notice: Option<&str>, writer: Ownership) -> Result<Revision, ClusterError> {
        let lease = writer.incarnation;
        let mut attempts = Attempts::default();
        while attempts.left() {
            let mut write = Transaction::new().when(KeyCondition::LeaseAlive { lease });
            if !planted(Mutant::NoticeWithoutRow) {
                write = write.when(self.is_owner(writer)?);
            }
            write = match notice {
                Some(notice) => write.put(key, notice),
                None => write.delete(key),
            };
            match self.coordinator.transact(write) {
                Ok(TransactionOutcome::Applied { revision }) => return Ok(revision),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error), // twice is once
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("a notice"))
    }

    /// That the pair's row is as it is now, where it names this owner.
    fn is_owner(&self, writer: Ownership) -> Result<KeyCondition, ClusterError> {
        let Ownership { pair, epoch, incarnation } = writer;
        let key = PairRow::key(pair);
        let entry = self.coordinator.read(&key)?.ok_or(ClusterError::PairUnknown { pair })?;
        let row: PairRow = parse("a row of the region table", &entry.value)?;
        if row.epoch != epoch || row.owner != Some(incarnation) {
            return Err(ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner });
        }
        Ok(KeyCondition::Revision { key, revision: entry.revision })
    }
}
