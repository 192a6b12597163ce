//! Notices of splits whose two sides, or whose parent, are at different nodes: after a takeover of both pairs
//! by different survivors, and for parents from the start. The owners speak by way of the coordinator
//! (`cell_cluster::Notices`): a notice says how far its writer's side is, durably.
//!
//! | key | written by | says | removed |
//! |---|---|---|---|
//! | `split/<name>/target` | the target's owner | how far the target is | by it, at the split's end |
//! | `split/<name>/source` | the source's owner | the answer to the target's question | by the target's owner |
//! | `split/<name>/parent` | the source's owner | the router's entry that is to be inserted, or goes | by the router's owner, once it is durable |

use cell_cluster::{ClusterError, NOTICE_PREFIX};
use cell_terms::{PairId, Pointer};
use serde::{Deserialize, Serialize};

/// What a notice says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeRow {
    /// The target is so far.
    Target {
        /// The source pair, whose owner is asked.
        #[serde(with = "pair_number")]
        source: PairId,
        /// The target pair, whose owner asks.
        #[serde(with = "pair_number")]
        target: PairId,
        /// How far.
        state: TargetNotice,
    },
    /// The source's answer.
    Source {
        /// The pair that asked.
        #[serde(with = "pair_number")]
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
        /// The root tree node of a meganode that is gone by a merge: then the entry that leads there goes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gone: Option<u64>,
    },
}

/// What a notice says of the router's entry at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotedEntry {
    pub(super) low: Vec<u8>,
    pub(super) to: Pointer,
    pub(super) gone: Option<Pointer>,
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
    /// Truncated.
    Open,
}

/// Which notice of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NoticeKind {
    /// The target's.
    Target,
    /// The source's.
    Source,
    /// The parent's.
    Parent,
}

/// A notice's key: the split's name, and which one.
#[must_use]
pub(super) fn notice_key(name: &str, kind: NoticeKind) -> String {
    let kind = match kind {
        NoticeKind::Target => "target",
        NoticeKind::Source => "source",
        NoticeKind::Parent => "parent",
    };
    format!("{NOTICE_PREFIX}{name}/{kind}")
}

/// The split's name and the kind that a key has.
#[must_use]
pub(super) fn parse_notice_key(key: &str) -> Option<(&str, NoticeKind)> {
    let (name, kind) = key.strip_prefix(NOTICE_PREFIX)?.rsplit_once('/')?;
    let kind = match kind {
        "target" => NoticeKind::Target,
        "source" => NoticeKind::Source,
        "parent" => NoticeKind::Parent,
        _ => return None,
    };
    Some((name, kind))
}

impl NoticeRow {
    /// The text that the coordinator keeps.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a notice is a plain structure with text keys")
    }

    /// What a text says that [`NoticeRow::encode`] made.
    ///
    /// # Errors
    /// [`ClusterError::Unreadable`].
    pub fn decode(text: &str) -> Result<NoticeRow, ClusterError> {
        let unreadable = |source| ClusterError::Unreadable { what: "a notice of a split", source };
        serde_json::from_str(text).map_err(unreadable)
    }

    /// A router's entry.
    #[must_use]
    pub(super) fn parent(low: &[u8], to: Pointer, gone: Option<Pointer>) -> NoticeRow {
        let low = low.iter().map(|byte| format!("{byte:02x}")).collect();
        NoticeRow::Parent { low, to: to.0, gone: gone.map(|gone| gone.0) }
    }

    /// What it says of a router's entry; none if it says nothing of one.
    #[must_use]
    pub(super) fn parent_entry(&self) -> Option<NotedEntry> {
        let NoticeRow::Parent { low, to, gone } = self else { return None };
        let digit = |at: usize| low.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..low.len()).step_by(2).map(digit).collect();
        Some(NotedEntry { low: bytes?, to: Pointer(*to), gone: gone.map(Pointer) })
    }
}

/// A pair as a plain number.
mod pair_number {
    use cell_terms::PairId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(pair: &PairId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(pair.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PairId, D::Error> {
        u32::deserialize(from).map(PairId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_terms::RegionId;

    #[test]
    fn notice_texts_are_pinned() {
        let (source, target) = (PairId(1), PairId(2));
        let texts = [
            (
                NoticeRow::Target { source, target, state: TargetNotice::Readable },
                r#"{"target":{"source":1,"target":2,"state":"readable"}}"#,
            ),
            (
                NoticeRow::Source { target, answer: SourceNotice::No },
                r#"{"source":{"target":2,"answer":"no"}}"#,
            ),
            (NoticeRow::Parent { low: "6b".into(), to: 7, gone: None }, r#"{"parent":{"low":"6b","to":7}}"#),
            (
                NoticeRow::Parent { low: "6b".into(), to: 7, gone: Some(9) },
                r#"{"parent":{"low":"6b","to":7,"gone":9}}"#,
            ),
        ];
        for (notice, text) in texts {
            assert_eq!(notice.encode(), text);
            assert_eq!(NoticeRow::decode(text).unwrap(), notice);
        }
        assert!(NoticeRow::decode(r#"{"other":{}}"#).is_err());
    }

    #[test]
    fn notice_keys_and_router_entries_round_trip() {
        for kind in [NoticeKind::Target, NoticeKind::Source, NoticeKind::Parent] {
            assert_eq!(parse_notice_key(&notice_key("1.2.3", kind)), Some(("1.2.3", kind)));
        }
        assert_eq!(parse_notice_key("split/1.2.3/other"), None);
        let to = Pointer::new(RegionId(4), 4096);
        for low in [&b""[..], b"key", &[0, 0xff]] {
            for gone in [None, Some(to)] {
                let entry = NotedEntry { low: low.to_vec(), to, gone };
                assert_eq!(NoticeRow::parent(low, to, gone).parent_entry(), Some(entry));
            }
        }
        for low in ["0", "zz"] {
            assert_eq!(NoticeRow::Parent { low: low.into(), to: 0, gone: None }.parent_entry(), None);
        }
    }
}
