//! What becomes of a message, and what a write waits for.

use crate::outbox::PairAt;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handled {
    Done,
    /// Nothing was done: it must be handled again later, before other writes of the pair.
    Waits(Wait),
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A pair's log, or the end of a check.
    Log(PairAt),
    /// A step of a split.
    Split,
}
