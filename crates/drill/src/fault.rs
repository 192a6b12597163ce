//! The kinds of faults, and what the supervisor is asked for each.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::wire::{DrillRequest, NodeView, PartitionWay};

/// How much slower a slow disk may be, in milliseconds. One that is slower than this is hardly written to by
/// a drill's clients, and shows nothing.
pub const DELAY_MS: RangeInclusive<u64> = 1..=2_000;
/// How much slower it is if nothing is said.
pub const DELAY_MS_DEFAULT: u64 = 100;

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
    /// It receives nothing, but can send.
    PartitionIn,
    /// It receives, but cannot send.
    PartitionOut,
    /// Its logs take longer.
    SlowDisk,
    /// Each node in turn is emptied, stopped, started, and given pairs again.
    Rolling,
}

impl FaultKind {
    /// All that the supervisor can do to one node. [`FaultKind::Rolling`] is done to all.
    pub const ALL: [FaultKind; 7] = [
        FaultKind::Kill,
        FaultKind::Stop,
        FaultKind::Restart,
        FaultKind::Partition,
        FaultKind::PartitionIn,
        FaultKind::PartitionOut,
        FaultKind::SlowDisk,
    ];

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
            FaultKind::PartitionIn => {
                "Cut off one way: nothing that others send reaches it, and what it sends arrives."
            }
            FaultKind::PartitionOut => {
                "Cut off one way: it takes what others send, and nothing that it sends arrives."
            }
            FaultKind::SlowDisk => {
                "Each write and sync of its logs takes longer: writes wait, reads do not, nobody takes over."
            }
            FaultKind::Rolling => {
                "Each node in turn is emptied, stopped, started, and given pairs again: a rolling restart."
            }
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Stop => "stop",
            FaultKind::Restart => "restart",
            FaultKind::Partition => "partition",
            FaultKind::PartitionIn => "partition-in",
            FaultKind::PartitionOut => "partition-out",
            FaultKind::SlowDisk => "slow-disk",
            FaultKind::Rolling => "rolling",
        }
    }

    /// Whether a process ends by it, and another one comes.
    pub(crate) fn ends_process(self) -> bool {
        matches!(self, FaultKind::Kill | FaultKind::Restart)
    }

    /// Whether a node is seen to be under it still. One that ends a process does not last.
    pub(crate) fn lasts_at(self, node: &NodeView) -> bool {
        match self {
            FaultKind::Kill | FaultKind::Restart | FaultKind::Rolling => true,
            FaultKind::Stop => node.state == "stopped",
            FaultKind::Partition | FaultKind::PartitionIn | FaultKind::PartitionOut => node.partitioned,
            FaultKind::SlowDisk => node.disk_delay_ms > 0,
        }
    }

    pub(crate) fn injection(self, node: u16, lasts: Duration, delay: Duration) -> DrillRequest {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let partition = |way| DrillRequest::Partition { node, on: true, way };
        match self {
            FaultKind::Kill => DrillRequest::Kill { node, down_ms: ms(lasts) },
            FaultKind::Stop => DrillRequest::Stop { node },
            FaultKind::Restart => DrillRequest::Restart { node },
            FaultKind::Partition => partition(PartitionWay::Both),
            FaultKind::PartitionIn => partition(PartitionWay::In),
            FaultKind::PartitionOut => partition(PartitionWay::Out),
            FaultKind::SlowDisk => DrillRequest::SlowDisk { node, delay_ms: ms(delay) },
            FaultKind::Rolling => DrillRequest::Drain { node, on: true },
        }
    }

    /// What takes it back; a killed or restarted node comes back by itself.
    pub(crate) fn healing(self, node: u16) -> Option<DrillRequest> {
        self.injection(node, Duration::ZERO, Duration::from_millis(DELAY_MS_DEFAULT)).undone_by()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::tests::view;

    #[test]
    fn from_word_knows_each_kind_by_its_own_word() {
        for kind in FaultKind::ALL {
            assert_eq!(FaultKind::from_word(kind.word()), Some(kind));
        }
        assert_eq!(FaultKind::from_word("explode"), None);
    }

    #[test]
    fn healing_takes_back_what_the_injection_of_its_kind_did() {
        let (lasts, delay) = (Duration::from_secs(3), Duration::from_millis(70));
        for kind in FaultKind::ALL {
            let injection = kind.injection(4, lasts, delay);
            assert_eq!((injection.word(), injection.node()), (kind.word(), Some(4)));
            let healing = kind.healing(4);
            assert_eq!(healing.is_none(), kind.ends_process());
            let word = healing.map(DrillRequest::word);
            assert!(word.is_none_or(|word| ["heal", "cont"].contains(&word)), "{word:?}");
        }
        let slow = FaultKind::SlowDisk.injection(4, lasts, delay);
        assert_eq!(slow, DrillRequest::SlowDisk { node: 4, delay_ms: 70 });
    }

    /// A driver that stood still for longer than the agent waits got the answer that a fault had lasted its
    /// whole time.
    #[test]
    fn lasts_at_is_false_of_a_node_that_is_as_before() {
        let before = view(4);
        let under = |kind| match kind {
            FaultKind::Stop => NodeView { state: "stopped".to_owned(), ..view(4) },
            FaultKind::SlowDisk => NodeView { disk_delay_ms: 1, ..view(4) },
            _ => NodeView { partitioned: true, ..view(4) },
        };
        for kind in FaultKind::ALL {
            assert!(kind.lasts_at(&under(kind)), "{kind:?}");
            assert_eq!(kind.lasts_at(&before), kind.ends_process(), "{kind:?}");
        }
    }
}
