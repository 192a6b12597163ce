//! The kinds of faults, and what the supervisor is asked for each.

use std::time::Duration;

use crate::wire::DrillRequest;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// `kill -9`.
    Kill,
    /// SIGSTOP, then SIGCONT.
    Stop,
    /// An ordered stop, and a new start.
    Restart,
    /// Cut off, then let back.
    Partition,
}

impl FaultKind {
    /// All that the supervisor can do.
    pub const ALL: [FaultKind; 4] =
        [FaultKind::Kill, FaultKind::Stop, FaultKind::Restart, FaultKind::Partition];

    /// The kind of this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<FaultKind> {
        FaultKind::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// What it is, in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill -9, and no process in its place for a while.",
            FaultKind::Stop => {
                "SIGSTOP, then SIGCONT: the process stands still and must not be believed after."
            }
            FaultKind::Restart => "An ordered stop and a new start.",
            FaultKind::Partition => "Cut off from clients, peers and the coordinator, then let back.",
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Stop => "stop",
            FaultKind::Restart => "restart",
            FaultKind::Partition => "partition",
        }
    }

    pub(crate) fn injection(self, node: u16, lasts: Duration) -> DrillRequest {
        match self {
            FaultKind::Kill => {
                DrillRequest::Kill { node, down_ms: u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX) }
            }
            FaultKind::Stop => DrillRequest::Stop { node },
            FaultKind::Restart => DrillRequest::Restart { node },
            FaultKind::Partition => DrillRequest::Partition { node, on: true },
        }
    }

    /// What takes it back; a killed or restarted node comes back by itself.
    pub(crate) fn healing(self, node: u16) -> Option<DrillRequest> {
        match self {
            FaultKind::Stop => Some(DrillRequest::Cont { node }),
            FaultKind::Partition => Some(DrillRequest::Partition { node, on: false }),
            FaultKind::Kill | FaultKind::Restart => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_word_knows_each_kind_by_its_own_word() {
        for kind in FaultKind::ALL {
            assert_eq!(FaultKind::from_word(kind.word()), Some(kind));
        }
        assert_eq!(FaultKind::from_word("explode"), None);
    }
}
