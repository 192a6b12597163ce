//! What keeps one pair from being moved, in words.

use std::fmt;

use cell_terms::text::counted;
use cell_terms::{NodeId, PairId};

use crate::figures::{MemberState, MoveCause, PairHold};
use crate::words::{seconds, size};

/// Why a pair does not move, or cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairObstacle {
    /// Somebody is to take pairs over, and nothing moves meanwhile.
    TakeoversOpen {
        /// How many.
        pairs: u32,
    },
    /// Another pair is being moved.
    OtherMove {
        /// Which.
        pair: PairId,
    },
    /// Something has hold of it.
    Held(PairHold),
    /// Its owner serves nobody.
    Owner {
        /// The owner.
        node: NodeId,
        /// What it does.
        state: MemberState,
    },
    /// Its owner has not reported what it takes, or not lately.
    Unreported {
        /// The owner.
        node: NodeId,
    },
    /// It was moved, and it rests.
    Rests {
        /// In whose name it was moved.
        cause: MoveCause,
        /// For so long.
        left_ms: u64,
    },
    /// What it takes has not been measured for a whole window.
    Young {
        /// What is left of it.
        left_ms: u64,
    },
    /// No other node can take it.
    NoTarget(NoTarget),
    /// Moves of it come to nothing, one after the other.
    Fails {
        /// How many have.
        moves: u32,
        /// Where the last one was to go.
        to: NodeId,
        /// Why that came to nothing.
        why: MoveFailure,
    },
}

/// Why no node takes a pair: each other node counts once, under the first that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoTarget {
    /// Other nodes.
    pub others: u32,
    /// Those that drain themselves.
    pub draining: u32,
    /// Those that do not serve.
    pub not_serving: u32,
    /// Those that have reported no figures lately.
    pub unreported: u32,
    /// Those whose disk has no room for the pair's logs.
    pub no_disk: u32,
    /// Those that keep their memory for pairs that they had, and that wait to be recovered.
    pub keeping: u32,
    /// Those that hold as many pairs as they may.
    pub full: u32,
    /// Those that lack memory for it.
    pub no_memory: u32,
    /// Those that could not take it a moment ago, and why the last of them could not.
    pub failed: u32,
    /// See there.
    pub failure: Option<(NodeId, MoveFailure)>,
    /// Memory that the pair takes.
    pub needs_bytes: u64,
    /// Memory that it is to have besides, to grow.
    pub grows_bytes: u64,
    /// The most that one of those that lack memory has left.
    pub most_left_bytes: u64,
}

/// Why a move came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveFailure {
    /// The target had no memory for the copy.
    NoMemory,
    /// The disk had no room for the logs that the target would write.
    NoDiskRoom,
    /// The target cannot read the log root, or not well enough.
    Unreadable,
    /// The target declined for another reason.
    Declined,
    /// The coordinator's rows do not let it begin.
    NotStarted,
    /// The same, because one of them does not read.
    RowUnreadable,
    /// The copy did not catch up with the source.
    Behind,
    /// A split of the pair could not be brought to its end in time.
    SplitOpen,
    /// One of the two ends is gone.
    EndGone,
    /// Nobody heard of it for a minute.
    Silence,
    /// It was cancelled.
    Cancelled,
}

/// A pair that keeps a drain from going on, for longer than is bearable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainStall {
    /// The node that drains.
    pub node: NodeId,
    /// The pair.
    pub pair: PairId,
    /// For how long it has been so.
    pub for_ms: u64,
    /// Why it cannot move.
    pub why: PairObstacle,
}

impl fmt::Display for PairObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairObstacle::TakeoversOpen { pairs } => {
                let pairs = counted(u64::from(*pairs), "pair is", "pairs are");
                write!(f, "{pairs} to be taken over, and nothing moves meanwhile")
            }
            PairObstacle::OtherMove { pair } => write!(f, "{pair} is being moved, and one moves at a time"),
            PairObstacle::Held(hold) => write!(f, "{hold}"),
            PairObstacle::Owner { node, state } => write!(f, "its owner, {node}, {state}"),
            PairObstacle::Unreported { node } => {
                write!(f, "its owner, {node}, has not reported what it takes")
            }
            PairObstacle::Rests { cause, left_ms } => {
                let by = match cause {
                    MoveCause::Operator => "an operator moved it, and it",
                    _ => "it was moved for balance and",
                };
                write!(f, "{by} rests for another {}", seconds(*left_ms))
            }
            PairObstacle::Young { left_ms } => {
                write!(f, "what it takes is known in {}, after a whole window", seconds(*left_ms))
            }
            PairObstacle::NoTarget(why) => write!(f, "{why}"),
            PairObstacle::Fails { moves, to, why } => {
                let moves = counted(u64::from(*moves), "move of it has", "moves of it have");
                write!(f, "{moves} come to nothing, the last one to {to}: {why}")
            }
        }
    }
}

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.others == 0 {
            return f.write_str("there is no other node");
        }
        let of = |count: u32, one: &str, many: &str| {
            (count > 0).then(|| format!("{count} {}", if count == 1 { one } else { many }))
        };
        let memory = of(self.no_memory, "lacks", "lack").map(|lack| {
            let (needs, left) = (size(self.needs_bytes), size(self.most_left_bytes));
            let grows = match self.grows_bytes {
                0 => String::new(),
                bytes => format!(" and {} to grow", size(bytes)),
            };
            format!("{lack} the memory (it takes {needs}{grows}, at most {left} is left)")
        });
        let failed = of(self.failed, "could not take it", "could not take it").map(|failed| {
            let last = self.failure.map(|(node, why)| format!(" ({node}: {why})"));
            failed + &last.unwrap_or_default()
        });
        let parts = [
            of(self.draining, "drains itself", "drain themselves"),
            of(self.not_serving, "does not serve", "do not serve"),
            of(self.unreported, "has reported nothing lately", "have reported nothing lately"),
            of(
                self.no_disk,
                "has no room on its disk for the logs",
                "have no room on their disks for the logs",
            ),
            of(
                self.keeping,
                "keeps its memory for pairs that it had and that wait to be recovered",
                "keep their memory for pairs that they had and that wait to be recovered",
            ),
            of(self.full, "holds as many pairs as it may", "hold as many pairs as they may"),
            memory,
            failed,
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let others = counted(u64::from(self.others), "other node", "other nodes");
        write!(f, "none of {others} can take it: {}", parts.join(", "))
    }
}

impl fmt::Display for MoveFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveFailure::NoMemory => "it had no memory for the copy",
            MoveFailure::NoDiskRoom => "the disk has no room for its logs",
            MoveFailure::Unreadable => "it cannot read the log root",
            MoveFailure::Declined => "it declined",
            MoveFailure::NotStarted => "the move could not be started",
            MoveFailure::RowUnreadable => {
                "the move could not be started, as a row of the coordinator does not read (`cell status`)"
            }
            MoveFailure::Behind => "the copy did not catch up with the source",
            MoveFailure::SplitOpen => "a split of the pair did not end in time",
            MoveFailure::EndGone => "source or target went away",
            MoveFailure::Silence => "nothing was heard of the move for too long",
            MoveFailure::Cancelled => "the move was cancelled",
        })
    }
}

impl fmt::Display for DrainStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DrainStall { node, pair, for_ms, why } = self;
        write!(f, "{node} cannot be emptied: for {} {pair} could not move: {why}", seconds(*for_ms))
    }
}
