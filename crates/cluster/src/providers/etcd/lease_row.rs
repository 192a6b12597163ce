//! A lease as it stands in etcd: its length and how often it was renewed, for those who look at it there.
//! What decides is the revision that wrote it last.

use cell_terms::Incarnation;
use serde::{Deserialize, Serialize};

use crate::coordinator::{parse, text};
use crate::error::ClusterError;
use crate::providers::etcd::gateway::StoredKey;
use crate::request::Revision;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LeaseRow {
    ttl_ms: u64,
    /// Renewals since it was granted.
    count: u64,
}

/// A lease as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenLease {
    pub(super) lease: Incarnation,
    /// The revision that granted it, or renewed it last.
    pub(super) revision: Revision,
    pub(super) ttl_ms: u64,
    /// Renewals since it was granted.
    pub(super) count: u64,
}

impl SeenLease {
    /// One that is to be granted.
    pub(super) fn new(lease: Incarnation, ttl_ms: u64) -> SeenLease {
        SeenLease { lease, revision: 0, ttl_ms, count: 0 }
    }

    pub(super) fn read(lease: Incarnation, stored: &StoredKey) -> Result<SeenLease, ClusterError> {
        let row: LeaseRow = parse("a lease", &stored.value)?;
        Ok(SeenLease { lease, revision: stored.mod_revision, ttl_ms: row.ttl_ms, count: row.count })
    }

    /// The same, renewed once more.
    pub(super) fn next(self) -> SeenLease {
        SeenLease { count: self.count.wrapping_add(1), ..self }
    }

    pub(super) fn at(self, revision: Revision) -> SeenLease {
        SeenLease { revision, ..self }
    }

    pub(super) fn ttl_ns(&self) -> u64 {
        self.ttl_ms.saturating_mul(1_000_000)
    }

    /// What stands in its row.
    pub(super) fn value(&self) -> String {
        text(&LeaseRow { ttl_ms: self.ttl_ms, count: self.count })
    }
}
