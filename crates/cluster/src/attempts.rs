//! How often a conditional change is made again.

/// Tries whose outcome is not known. Past them the coordinator is in trouble.
const UNANSWERED_MAX: u32 = 16;
/// Lost races. Each is the success of another, so that all of a cluster's nodes that begin to change one row
/// at the same moment come through with as many losses as there are nodes; this many says that somebody
/// changes it without end.
const OUTRUN_MAX: u32 = 1000;

/// The tries of one conditional change.
///
/// Two ends that must not share a count: of a try without an answer nobody knows whether it helped
/// anyone, while one that was outrun did help somebody. A node that is only slower than others gives up
/// long after one that talks to nobody.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    unanswered: u32,
    outrun: u32,
}

impl Attempts {
    /// Whether it is to be tried once more.
    pub(crate) fn left(&self) -> bool {
        self.unanswered < UNANSWERED_MAX && self.outrun < OUTRUN_MAX
    }

    /// Whether somebody else was first at least once.
    pub(crate) fn were_outrun(&self) -> bool {
        self.outrun > 0
    }

    /// The outcome of a try is not known.
    pub(crate) fn unanswered(&mut self) {
        self.unanswered += 1;
    }

    /// Somebody else had changed the row first.
    pub(crate) fn outrun(&mut self) {
        self.outrun += 1;
    }
}
