//! The living incarnations: who is there and where. A member's row hangs on its lease and goes with it.

use std::sync::Arc;

use cell_terms::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, parse, text};
use crate::error::ClusterError;
use crate::number;
use crate::request::{CoordinatorRefusal, KeyCondition, Transaction, TransactionOutcome};

/// Under which the members' rows lie.
pub(crate) const KEY_MEMBERS: &str = "member/";

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// Its lease.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
    /// Its node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Its fabric address.
    pub fabric: String,
    /// Its HTTP address; empty if it has none.
    pub http: String,
    /// Its process.
    pub pid: u32,
    /// Memory that its pairs may take, in bytes; zero: what the machine has.
    pub memory_limit_bytes: u64,
}

/// The members. Clones share the coordinator.
#[derive(Clone)]
pub struct Members {
    coordinator: Arc<dyn Coordinator>,
}

impl Members {
    /// The members that `coordinator` knows.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Members {
        Members { coordinator }
    }

    /// Enters a member, or its new row.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`].
    pub fn enter(&self, row: &MemberRow) -> Result<(), ClusterError> {
        let lease = row.incarnation;
        let enter = Transaction::new().when(KeyCondition::LeaseAlive { lease }).put_leased(
            member_key(lease),
            text(row),
            lease,
        );
        let mut attempts = Attempts::default();
        while attempts.left() {
            match self.coordinator.transact(enter.clone()) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(()),
                Ok(TransactionOutcome::Refused { .. })
                | Err(ClusterError::Refused(CoordinatorRefusal::LeaseEnded { .. })) => {
                    return Err(ClusterError::LeaseEnded { lease });
                }
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unanswered(), // twice is once
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "the members" })
    }

    /// Every member whose lease lives.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn list(&self) -> Result<Vec<MemberRow>, ClusterError> {
        let listing = self.coordinator.list(KEY_MEMBERS)?;
        listing.entries.iter().map(|entry| parse("a member", &entry.value)).collect()
    }
}

fn member_key(incarnation: Incarnation) -> String {
    format!("{KEY_MEMBERS}{:016x}", incarnation.0)
}
