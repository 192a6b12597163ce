//! The points of a planned move (`docs/design/moves.md`) at which somebody may be struck, and what is watched
//! of the move meanwhile.

use cell_terms::PairId;

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovePoint {
    /// It is asked for.
    Wanted,
    /// The source keeps its log.
    Copying,
    /// The target follows the log closely.
    Ready,
    /// The registrations have left the list; trust in it ends.
    Unlisted,
    /// No operation of the pair begins; nothing was sent yet.
    Frozen,
    /// The handing was sent, and nobody knows what became of it.
    Unanswered,
    /// The pair is the target's, which does not serve it yet.
    Handed,
    /// The target serves it.
    Published,
    /// The move is over.
    Moved,
}

impl MovePoint {
    /// All of them, in their order.
    pub const ALL: [MovePoint; 9] = [
        MovePoint::Wanted,
        MovePoint::Copying,
        MovePoint::Ready,
        MovePoint::Unlisted,
        MovePoint::Frozen,
        MovePoint::Unanswered,
        MovePoint::Handed,
        MovePoint::Published,
        MovePoint::Moved,
    ];
}

/// Who is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Struck {
    /// Who gives the pair.
    Source,
    /// Who gets it.
    Target,
    /// Both at once.
    Both,
    /// The coordinator stands still for a while.
    Coordinator,
    /// The coordinator's process ends and another one begins at once, or its host loses power for a while.
    CoordinatorEnds,
}

impl Struck {
    /// All of them.
    pub const ALL: [Struck; 5] =
        [Struck::Source, Struck::Target, Struck::Both, Struck::Coordinator, Struck::CoordinatorEnds];
}

/// A crash at a point of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveCrash {
    /// Once the move is there.
    pub point: MovePoint,
    /// Whom it strikes.
    pub struck: Struck,
    /// Zero: it dies at once. Else it dies at this one of its next touches; a coordinator stands still for
    /// long, or loses power.
    pub touch: u64,
    /// That touch takes effect.
    pub after: bool,
}

/// The move that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) pair: PairId,
    pub(crate) number: u64,
    pub(crate) source: u32,
    pub(crate) target: u32,
    pub(crate) since_ns: u64,
    pub(crate) frozen: bool,
    pub(crate) struck_ns: Option<u64>,
    /// Calls of the coordinator when the rows were looked at last.
    pub(crate) calls: u64,
}

/// What of it is to come.
#[derive(Debug)]
pub(crate) struct MoveWatch {
    pub(crate) is_pending: bool,
    pub(crate) watched: Option<Watched>,
}

impl MoveWatch {
    pub(crate) fn new(crash: Option<MoveCrash>) -> MoveWatch {
        MoveWatch { is_pending: crash.is_some(), watched: None }
    }

    /// Whether the move, and what follows the crash, is not over: clients go on asking.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Whether the point was met.
    pub(crate) fn has_struck(&self) -> bool {
        self.watched.is_some_and(|watched| watched.struck_ns.is_some())
    }

    /// A pair is frozen for a move.
    pub(crate) fn froze(&mut self, pair: PairId) {
        let watched = self.watched.as_mut().filter(|watched| watched.pair == pair);
        watched.into_iter().for_each(|watched| watched.frozen = true);
    }
}
