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
