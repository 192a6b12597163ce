//! The next step, and its reason in one sentence.

use std::fmt;

use cell_terms::text::counted;
use cell_terms::{NodeId, PairId};

use crate::figures::{BalancePause, MemberState, MoveUnderWay};
use crate::words::{seconds, size};

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Begin this move.
    Move(PlannedMove),
    /// Cancel the move that is under way.
    Cancel {
        /// Its pair.
        pair: PairId,
        /// Why.
        why: CancelReason,
    },
    /// Nothing.
    Rest(RestReason),
}

/// A move that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The pair.
    pub pair: PairId,
    /// Its owner.
    pub from: NodeId,
    /// Who is to have it.
    pub to: NodeId,
    /// Its bytes.
    pub bytes: u64,
    /// Why.
    pub why: MoveReason,
}

/// By what nodes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes of entries and tree nodes.
    Bytes,
    /// Time of the worker, with one-sided reads.
    Load,
}

/// Why a pair is to move. Parts of the mean are in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// Its node drains.
    Drain {
        /// Pairs that the node still has, this one included.
        left: u32,
    },
    /// It was made for its target.
    Fresh,
    /// Puts find no memory at its node.
    Full {
        /// What its target has left now, without what pairs of nodes that drain are to find there.
        left_bytes: u64,
    },
    /// Its node is above the mean.
    Above {
        /// By what.
        measure: Measure,
        /// What the node has now.
        percent: u32,
        /// What the worse of both ends has afterwards.
        after_percent: u32,
    },
    /// Its target is below the mean, and its node above it, though not by much.
    Below {
        /// What the target has now, by the measure of which it has more.
        percent: u32,
        /// What its node has now, likewise.
        from_percent: u32,
    },
}

/// Why a move is to be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// A node drains, and that goes first.
    DrainBegan {
        /// Which.
        node: NodeId,
    },
    /// The move's target drains.
    TargetDrains {
        /// Which.
        node: NodeId,
    },
    /// Only drains move pairs now.
    Paused(BalancePause),
    /// Puts find no memory at a node, and that goes first.
    WritesWait {
        /// Which.
        node: NodeId,
    },
}

/// Why nothing is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestReason {
    /// A pair is being moved.
    Moving(MoveUnderWay),
    /// Somebody is to take pairs over.
    TakeoversOpen {
        /// How many.
        pairs: u32,
    },
    /// A node drains, and none of the pairs that it still has can move now.
    DrainWaits {
        /// Which node.
        node: NodeId,
        /// Pairs that it has.
        pairs: u32,
    },
    /// Only drains move pairs now.
    Paused(BalancePause),
    /// Puts find no memory at a node, and no pair can leave it.
    Full {
        /// Which.
        node: NodeId,
        /// Why none can.
        why: NoRelief,
    },
    /// There are no two nodes that share the load.
    OneNode,
    /// Who balances has done so for less than a window.
    NewBalancer {
        /// What is left of it.
        left_ms: u64,
    },
    /// A drain was over less than a window ago.
    AfterDrain {
        /// What is left of it.
        left_ms: u64,
    },
    /// Too little is known of a member.
    HalfKnown {
        /// Which.
        node: NodeId,
        /// What is not known.
        why: HalfKnown,
    },
    /// There is too little to be worth balancing.
    TooLittle,
    /// No node is off the mean by more than the tolerance.
    Balanced {
        /// The node that has most.
        node: NodeId,
        /// By this.
        measure: Measure,
        /// So much of the mean.
        percent: u32,
    },
    /// A node has too little, none has too much, and the one that has too little takes no pair.
    TakesNone {
        /// The node that has least.
        node: NodeId,
        /// So much of the mean, by the measure of which it has more.
        percent: u32,
    },
    /// One pair alone has so much that it would lift any node over the tolerance.
    HotPair {
        /// Which.
        pair: PairId,
        /// Where it is, and stays.
        node: NodeId,
        /// Of what it has so much.
        measure: Measure,
        /// So much of the mean.
        percent: u32,
    },
    /// A node has too much, or one too little, and no move would help.
    NothingHelps {
        /// The node that has most.
        node: NodeId,
        /// By this.
        measure: Measure,
        /// So much of the mean.
        percent: u32,
        /// Why it gives none of its pairs.
        why: GaveNothing,
    },
}

/// What is not known of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfKnown {
    /// It does not serve.
    State(MemberState),
    /// It has reported no figures.
    Unreported,
    /// What it reported is older than a window.
    Old {
        /// So old.
        reported_ms_ago: u64,
    },
    /// It has served for less than a window.
    Began {
        /// What is left of it.
        left_ms: u64,
    },
    /// It has not reported what a pair takes.
    Pair {
        /// Which.
        pair: PairId,
    },
    /// It took a pair over less than a window ago.
    TakenOver {
        /// Which.
        pair: PairId,
        /// What is left of it.
        left_ms: u64,
    },
}

/// Why a node gave no pair: each of its pairs counts once, under the first that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GaveNothing {
    /// It took a pair itself, and gives none for so long.
    pub node_rests_ms: Option<u64>,
    /// Each other node holds as many pairs as it may, or gave one a short time ago, or drains, or has no
    /// memory for puts, or no room on its disk.
    pub nobody_takes: bool,
    /// Pairs that something has hold of.
    pub held: u32,
    /// Pairs that rest.
    pub resting: u32,
    /// Pairs that were not measured for a window.
    pub young: u32,
    /// Pairs that no target has room for.
    pub no_room: u32,
    /// Pairs that would lift every target that has room over the tolerance.
    pub lift: u32,
    /// Pairs whose move would help too little.
    pub no_gain: u32,
}

/// Why no pair leaves a node at which puts find no memory: each of its pairs counts once, under the first
/// that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoRelief {
    /// What the node has left, as it reported last.
    pub left_bytes: u64,
    /// What is left since the last move was not reported yet, by the node or by another one.
    pub unreported: bool,
    /// Pairs that something has hold of, or of which it is not known what they take.
    pub held: u32,
    /// Pairs that an operator has moved, and that rest.
    pub kept: u32,
    /// Pairs that give no more than is left there.
    pub small: u32,
    /// Pairs that no other node has room for, or little more than this one.
    pub no_room: u32,
    /// The most memory that another node has left which takes pairs.
    pub most_left_bytes: u64,
}

impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextStep::Move(planned) => write!(f, "{planned}"),
            NextStep::Cancel { pair, why } => write!(f, "the move of {pair} is cancelled: {why}"),
            NextStep::Rest(why) => write!(f, "nothing is to be done: {why}"),
        }
    }
}

impl fmt::Display for PlannedMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlannedMove { pair, from, to, bytes, why } = self;
        write!(f, "{pair} ({}) moves from {from} to {to}: ", size(*bytes))?;
        match why {
            MoveReason::Drain { left: 1 } => write!(f, "{from} drains, and this is its last pair"),
            MoveReason::Drain { left } => write!(f, "{from} drains and has {left} pairs left"),
            MoveReason::Fresh => write!(f, "it was made for {to} by a split of {from}"),
            MoveReason::Full { left_bytes } => {
                write!(f, "writes wait for memory at {from}, and {to} has {} left", size(*left_bytes))
            }
            MoveReason::Above { measure, percent, after_percent } => {
                write!(
                    f,
                    "{from} has {percent} % of the mean {measure}, and afterwards neither has more than "
                )?;
                write!(f, "{after_percent} %")
            }
            MoveReason::Below { percent, from_percent } => {
                write!(f, "{to} has only {percent} % of the mean, and {from} has {from_percent} %")
            }
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Measure::Bytes => "bytes",
            Measure::Load => "load",
        })
    }
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CancelReason::DrainBegan { node } => write!(f, "{node} drains, and that goes first"),
            CancelReason::TargetDrains { node } => write!(f, "its target, {node}, drains"),
            CancelReason::Paused(pause) => write!(f, "{pause}"),
            CancelReason::WritesWait { node } => {
                write!(f, "writes wait for memory at {node}, and that goes first")
            }
        }
    }
}

impl fmt::Display for RestReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestReason::Moving(MoveUnderWay { pair, from, to, cause, .. }) => {
                write!(f, "{pair} is being moved from {from} to {to} for {cause}")
            }
            RestReason::TakeoversOpen { pairs } => {
                write!(f, "{} to be taken over", counted(u64::from(*pairs), "pair is", "pairs are"))
            }
            RestReason::DrainWaits { node, pairs } => {
                let pairs = counted(u64::from(*pairs), "pair", "pairs");
                write!(f, "{node} drains, and of the {pairs} that it has none can move now")
            }
            RestReason::Paused(pause) => write!(f, "{pause}"),
            RestReason::Full { node, why } => {
                let left = size(why.left_bytes);
                write!(
                    f,
                    "puts find no memory at {node}, which has {left} left, and no pair leaves it: {why}"
                )
            }
            RestReason::OneNode => f.write_str("there are no two nodes that share the load"),
            RestReason::NewBalancer { left_ms } => {
                write!(f, "who balances is new and watches for another {}", seconds(*left_ms))
            }
            RestReason::AfterDrain { left_ms } => {
                write!(f, "a drain is just over, and figures count in {}", seconds(*left_ms))
            }
            RestReason::HalfKnown { node, why } => write!(f, "too little is known: {node} {why}"),
            RestReason::TooLittle => f.write_str("there is too little to be worth balancing"),
            RestReason::Balanced { node, measure, percent } => {
                write!(f, "the cluster is balanced: {node} has most, {percent} % of the mean {measure}")
            }
            RestReason::TakesNone { node, percent } => {
                write!(
                    f,
                    "{node} has only {percent} % of the mean, and takes no pair now: it holds as many as "
                )?;
                f.write_str("it may, gave one a short time ago, lacks memory for writes, or has a full disk")
            }
            RestReason::HotPair { pair, node, measure, percent } => {
                write!(
                    f,
                    "{pair} alone has {percent} % of the mean {measure} and would be too much for any "
                )?;
                write!(f, "node: it stays on {node}")
            }
            RestReason::NothingHelps { node, measure, percent, why } => {
                write!(f, "{node} has {percent} % of the mean {measure}, and no move would help: {why}")
            }
        }
    }
}

impl fmt::Display for HalfKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HalfKnown::State(state) => write!(f, "{state}"),
            HalfKnown::Unreported => f.write_str("has reported no figures"),
            HalfKnown::Old { reported_ms_ago } => {
                write!(f, "reported its figures {} ago", seconds(*reported_ms_ago))
            }
            HalfKnown::Began { left_ms } => {
                write!(f, "began to serve a moment ago, and its figures count in {}", seconds(*left_ms))
            }
            HalfKnown::Pair { pair } => write!(f, "has not reported what {pair} takes"),
            HalfKnown::TakenOver { pair, left_ms } => {
                write!(f, "took {pair} over a moment ago, and its figures count in {}", seconds(*left_ms))
            }
        }
    }
}

impl fmt::Display for GaveNothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(left_ms) = self.node_rests_ms {
            return write!(f, "it took a pair a moment ago and gives none for {}", seconds(left_ms));
        }
        if self.nobody_takes {
            f.write_str(
                "each other node holds as many pairs as it may, drains, has given one a short time ago, ",
            )?;
            return f.write_str("lacks memory for writes itself, or has a full disk");
        }
        let counts = [
            (self.held, "cannot move now"),
            (self.resting, "rest after a move"),
            (self.young, "were not measured for a whole window"),
            (self.no_room, "fit into no other node's memory and number of pairs"),
            (self.lift, "would be too much for any other node"),
            (self.no_gain, "would help too little"),
        ];
        of_its_pairs(f, &counts)
    }
}

/// How many pairs of a node each cause keeps.
fn of_its_pairs(f: &mut fmt::Formatter<'_>, counts: &[(u32, &str)]) -> fmt::Result {
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = counted.map(|(count, words)| format!("{count} {words}")).collect();
    if parts.is_empty() {
        return f.write_str("it has no pairs");
    }
    write!(f, "of its pairs {}", parts.join(", "))
}

impl fmt::Display for NoRelief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unreported {
            return f.write_str("what the nodes have left since the last move is not reported yet");
        }
        let counts = [
            (self.held, "cannot move now"),
            (self.kept, "stay for a while where an operator has put them"),
            (self.small, "would give no more than is left"),
            (self.no_room, "find too little memory elsewhere"),
        ];
        of_its_pairs(f, &counts)?;
        match self.no_room {
            0 => Ok(()),
            _ => write!(f, " (at most {} is left at a node that takes pairs)", size(self.most_left_bytes)),
        }
    }
}
