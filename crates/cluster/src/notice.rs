//! Notices of splits whose two sides, or whose parent, are at different nodes: after a takeover of both pairs
//! by different survivors, and for parents from the start. The owners speak by way of the coordinator: a
//! notice says how far its writer's side is, durably, and is written only while the writer's lease lives, so
//! that nobody who has lost a pair speaks for it.
//!
//! | key | written by | says | removed |
//! |---|---|---|---|
//! | `split/<name>/target` | the target's owner | how far the target is | by it, at the split's end |
//! | `split/<name>/source` | the source's owner | the answer to the target's question | by the target's owner |
//! | `split/<name>/parent` | the source's owner | the router's entry that is to be inserted | by the router's owner, once it is durable |

use std::sync::Arc;

use cell_terms::{Incarnation, PairId, Pointer};
use serde::{Deserialize, Serialize};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, text};
use crate::error::ClusterError;
use crate::number;
use crate::request::{KeyCondition, Revision, Transaction, TransactionOutcome};

/// Under which the notices lie.
pub(crate) const KEY_NOTICES: &str = "split/";

/// What a notice says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeRow {
    /// The target is so far.
    Target {
        /// The source pair, whose owner is asked.
        #[serde(with = "number")]
        source: PairId,
        /// The target pair, whose owner asks.
        #[serde(with = "number")]
        target: PairId,
        /// How far.
        state: TargetNotice,
    },
    /// The source's answer.
    Source {
        /// The pair that asked.
        #[serde(with = "number")]
        target: PairId,
        /// What becomes of the split.
        answer: SourceNotice,
    },
    /// An entry for the router.
    Parent {
        /// The low key of the meganode, in hexadecimal.
        low: String,
        /// Where its root tree node is.
        to: u64,
    },
}

/// How far a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetNotice {
    /// It is hidden, whole or not.
    Hidden,
    /// It is readable.
    Readable,
    /// It takes writes, durably.
    Opened,
}

/// What a source answers, durably decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceNotice {
    /// The split is aborted, or over and forgotten.
    No,
    /// Linked.
    Linked,
    /// Cut.
    Open,
}

/// Which notice of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeKind {
    /// The target's.
    Target,
    /// The source's.
    Source,
    /// The parent's.
    Parent,
}

/// A notice's key: the split's name, and which one.
#[must_use]
pub fn notice_key(name: &str, kind: NoticeKind) -> String {
    let kind = match kind {
        NoticeKind::Target => "target",
        NoticeKind::Source => "source",
        NoticeKind::Parent => "parent",
    };
    format!("{KEY_NOTICES}{name}/{kind}")
}

/// The split's name and the kind that a key has.
#[must_use]
pub fn parse_notice_key(key: &str) -> Option<(&str, NoticeKind)> {
    let (name, kind) = key.strip_prefix(KEY_NOTICES)?.rsplit_once('/')?;
    let kind = match kind {
        "target" => NoticeKind::Target,
        "source" => NoticeKind::Source,
        "parent" => NoticeKind::Parent,
        _ => return None,
    };
    Some((name, kind))
}

impl NoticeRow {
    /// A router's entry.
    #[must_use]
    pub fn parent(low: &[u8], to: Pointer) -> NoticeRow {
        let low = low.iter().map(|byte| format!("{byte:02x}")).collect();
        NoticeRow::Parent { low, to: to.0 }
    }

    /// The low key of a router's entry, and where it leads; none if this is not one.
    #[must_use]
    pub fn parent_entry(&self) -> Option<(Vec<u8>, Pointer)> {
        let NoticeRow::Parent { low, to } = self else { return None };
        let digit = |at: usize| low.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..low.len()).step_by(2).map(digit).collect();
        Some((bytes?, Pointer(*to)))
    }
}

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
        notice: Option<&NoticeRow>,
        writer: Incarnation,
    ) -> Result<Revision, ClusterError> {
        let mut write = Transaction::new().when(KeyCondition::LeaseAlive { lease: writer });
        write = match notice {
            Some(notice) => write.put(key, text(notice)),
            None => write.delete(key),
        };
        let mut attempts = Attempts::default();
        while attempts.left() {
            match self.coordinator.transact(write.clone()) {
                Ok(TransactionOutcome::Applied { revision }) => return Ok(revision),
                Ok(TransactionOutcome::Refused { .. }) => {
                    return Err(ClusterError::LeaseEnded { lease: writer });
                }
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unheard(), // twice is once
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "a note of a split" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_terms::RegionId;

    #[test]
    fn notice_keys_and_router_entries_round_trip() {
        for kind in [NoticeKind::Target, NoticeKind::Source, NoticeKind::Parent] {
            assert_eq!(parse_notice_key(&notice_key("1.2.3", kind)), Some(("1.2.3", kind)));
        }
        assert_eq!(parse_notice_key("split/1.2.3/other"), None);
        let to = Pointer::new(RegionId(4), 4096);
        for low in [&b""[..], b"key", &[0, 0xff]] {
            assert_eq!(NoticeRow::parent(low, to).parent_entry(), Some((low.to_vec(), to)));
        }
        assert_eq!(NoticeRow::Parent { low: "0".into(), to: 0 }.parent_entry(), None);
        assert_eq!(NoticeRow::Parent { low: "zz".into(), to: 0 }.parent_entry(), None);
    }
}
