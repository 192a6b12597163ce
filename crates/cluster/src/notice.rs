//! Notices: what owners of pairs send each other by way of the coordinator. A notice is written only while
//! its writer's lease lives, so that nobody who has lost a pair speaks for it. What a notice says, and what
//! its key means below the prefix, is known to those alone who exchange notices.

use std::sync::Arc;

use cell_terms::Incarnation;

use crate::attempts::Attempts;
use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::request::{KeyCondition, Revision, Transaction, TransactionOutcome};

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

    /// Writes a notice, or with none removes it, in the name of a living writer. The revision from which on
    /// everybody sees it.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of the writer.
    pub fn set(
        &self,
        key: &str,
        notice: Option<&str>,
        writer: Incarnation,
    ) -> Result<Revision, ClusterError> {
        let mut write = Transaction::new().when(KeyCondition::LeaseAlive { lease: writer });
        write = match notice {
            Some(notice) => write.put(key, notice),
            None => write.delete(key),
        };
        let mut attempts = Attempts::default();
        while attempts.left() {
            match self.coordinator.transact(write.clone()) {
                Ok(TransactionOutcome::Applied { revision }) => return Ok(revision),
                Ok(TransactionOutcome::Refused { .. }) => {
                    return Err(ClusterError::LeaseEnded { lease: writer });
                }
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unanswered(), // twice is once
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "a notice" })
    }
}
