//! What is known of the cluster at one time: who is there, who holds which pairs, and what they take.
//!
//! Who holds what is the region table's word. What a pair takes is its owner's, and so is for how long it has
//! held the pair: times are lengths, because no two machines' clocks can be compared.

use std::fmt;

use cell_terms::{NodeId, PairId};

/// The cluster, as the balancer sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The members. No node twice.
    pub members: Vec<MemberFigures>,
    /// Pairs that somebody is to take over. Not those that all members declined or that an operator must
    /// inspect: they hold up nothing.
    pub takeovers_open: u32,
    /// The move whose row is there.
    pub moving: Option<MoveUnderWay>,
    /// What keeps everything but drains from moving pairs.
    pub pause: Option<BalancePause>,
}

impl Figures {
    /// Whether nothing differs but times that go on by themselves: how old figures are, how long somebody
    /// serves.
    #[must_use]
    pub fn differs_in_times_alone(&self, other: &Figures) -> bool {
        let Figures { members, takeovers_open, moving, pause } = self;
        (*takeovers_open, *moving, *pause) == (other.takeovers_open, other.moving, other.pause)
            && members.len() == other.members.len()
            && members.iter().zip(&other.members).all(|(a, b)| a.differs_in_times_alone(b))
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFigures {
    /// The node.
    pub node: NodeId,
    /// What it is doing.
    pub state: MemberState,
    /// An operator wants it empty.
    pub draining: bool,
    /// How long ago it reported the figures below. None: it has reported none.
    pub reported_ms_ago: Option<u64>,
    /// For how long it has served.
    pub serving_ms: u64,
    /// Memory that pairs may still take there.
    pub memory_left_bytes: u64,
    /// Puts find no memory there: they wait, or are refused. A pair that leaves gives it back.
    pub writes_wait: bool,
    /// The disk under its logs has no room for those of one more pair.
    pub disk_full: bool,
    /// It keeps what memory it has left for pairs that it had, and that wait to be recovered.
    pub keeps_memory: bool,
    /// How many pairs it may hold.
    pub pairs_max: u32,
    /// The pairs that it owns.
    pub pairs: Vec<HeldPair>,
}

impl MemberFigures {
    fn differs_in_times_alone(&self, other: &MemberFigures) -> bool {
        let timeless = |held: &HeldPair| HeldPair { held_ms: 0, ..*held };
        let rest = |member: &MemberFigures| {
            let MemberFigures { node, state, draining, writes_wait, disk_full, keeps_memory, .. } = *member;
            let reported = (member.reported_ms_ago.is_some(), member.memory_left_bytes, member.pairs_max);
            (node, state, [draining, writes_wait, disk_full, keeps_memory], reported)
        };
        rest(self) == rest(other) && self.pairs.iter().map(timeless).eq(other.pairs.iter().map(timeless))
    }
}

/// What a member is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It takes over what was its own.
    Recovering,
    /// It serves.
    Serving,
    /// It serves, but takes no writes, and so no pairs.
    ReadOnly,
    /// Its lease has run out.
    Silent,
    /// It is about to leave.
    Stopping,
}

/// One pair in its owner's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPair {
    /// The pair.
    pub pair: PairId,
    /// What it takes. None: its owner has not reported.
    pub load: Option<PairLoad>,
    /// For how long its owner has served it.
    pub held_ms: u64,
    /// How its owner came to it.
    pub arrival: Arrival,
    /// What keeps it from being moved.
    pub hold: Option<PairHold>,
}

/// What a pair takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairLoad {
    /// Bytes of its entries and tree nodes.
    pub bytes: u64,
    /// Memory that its regions take, wherever it is.
    pub memory_bytes: u64,
    /// Nanoseconds a second that it takes of its owner's worker, with what clients report of one-sided reads
    /// weighed in; over the window, or since its owner has held it.
    pub load_ns: u64,
}

/// How an owner came to a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It took it over, from another or from its own earlier life.
    TakenOver,
    /// It was made there, for a split. What it takes was measured at its owner all its life.
    Created {
        /// The node that it was made for.
        meant_for: Option<NodeId>,
    },
    /// By a move.
    Moved(MoveCause),
}

/// Why a pair is moved: in whose name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveCause {
    /// An operator asked for it.
    Operator,
    /// Its node drains.
    Drain,
    /// For balance.
    Balance,
    /// It was made for another node.
    Fresh,
}

/// A move whose row is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveUnderWay {
    /// The pair.
    pub pair: PairId,
    /// Its owner before.
    pub from: NodeId,
    /// Its owner afterwards.
    pub to: NodeId,
    /// In whose name.
    pub cause: MoveCause,
    /// The handing was recorded: it cannot be cancelled any more.
    pub handed: bool,
}

/// What keeps everything but drains from moving pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancePause {
    /// The setting `balance` is off.
    Off,
    /// A drill is under way.
    Drill,
    /// The nodes are restarted one after the other.
    RollingRestart,
}

/// What keeps a pair where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairHold {
    /// It has no log that a copy could be made from.
    NoLog,
    /// It takes part in a split that is not open yet.
    Split,
    /// A takeover of it is not over.
    Takeover,
    /// It is being checked.
    Check,
    /// It was found damaged.
    Damaged,
}

impl PairHold {
    /// Whether it goes away by itself.
    #[must_use]
    pub const fn passes(self) -> bool {
        match self {
            PairHold::Split | PairHold::Takeover | PairHold::Check => true,
            PairHold::NoLog | PairHold::Damaged => false,
        }
    }

    /// What helps where neither time nor more room does.
    #[must_use]
    pub const fn next(self) -> Option<&'static str> {
        match self {
            PairHold::NoLog => Some(
                "more nodes or memory do not help: no pair leaves its node with `durability = none`; load \
                 what `cell dump FILE` writes into a cluster with `durability` sync or async",
            ),
            PairHold::Damaged => Some("more nodes or memory do not help: `cell status` says what was found"),
            PairHold::Split | PairHold::Takeover | PairHold::Check => None,
        }
    }
}

impl MemberFigures {
    /// Whether its pairs can leave.
    pub(crate) fn can_give(&self) -> bool {
        matches!(self.state, MemberState::Serving | MemberState::ReadOnly)
    }

    /// Whether it counts among those that share the load.
    pub(crate) fn shares_load(&self) -> bool {
        self.state == MemberState::Serving && !self.draining
    }

    /// Whether its figures are there and no older than that.
    pub(crate) fn reported_within(&self, window_ms: u64) -> bool {
        self.reported_ms_ago.is_some_and(|ago| ago <= window_ms)
    }

    /// Whether it drains and has pairs left.
    pub(crate) fn is_being_emptied(&self) -> bool {
        self.draining && !self.pairs.is_empty()
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemberState::Recovering => "recovers",
            MemberState::Serving => "serves",
            MemberState::ReadOnly => "takes no writes",
            MemberState::Silent => "is silent, because its lease has run out",
            MemberState::Stopping => "is about to stop",
        })
    }
}

impl fmt::Display for MoveCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveCause::Operator => "an operator",
            MoveCause::Drain => "a drain",
            MoveCause::Balance => "balance",
            MoveCause::Fresh => "a split",
        })
    }
}

impl fmt::Display for BalancePause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BalancePause::Off => "balance is off",
            BalancePause::Drill => "a drill is under way",
            BalancePause::RollingRestart => "a rolling restart is under way",
        })
    }
}

impl fmt::Display for PairHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairHold::NoLog => "it has no log, and a copy is made from the log",
            PairHold::Split => "it takes part in a split that is not open yet",
            PairHold::Takeover => "its takeover is not over",
            PairHold::Check => "it is being checked",
            PairHold::Damaged => "it was found damaged, and an operator must inspect it",
        })
    }
}
