//! How a run ends, for whoever wanted it.

use crate::coverage::Coverage;
use crate::model::Broken;
use crate::shrink::FailureRecord;

/// How a run ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Equal for two runs only if the same happened in both.
    pub digest: u64,
    /// What happened.
    pub coverage: Coverage,
    /// The world's time that passed.
    pub elapsed_ns: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Calls of the coordinator until everything was read at the end.
    pub calls: u64,
    /// Whether a move came to the point at which a crash was wished for.
    pub move_struck: bool,
    /// Whether the creation of a pair that was to be broken off was.
    pub creation_broken: bool,
}

/// How a run ended badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The rule that was broken.
    pub broken: Broken,
    /// When.
    pub now_ns: u64,
    /// What had happened.
    pub coverage: Coverage,
    /// The same in one line, for [`crate::shrink`].
    pub record: FailureRecord,
}
