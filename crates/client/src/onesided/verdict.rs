//! What is to be done with what was read, and what that rests on.

use cell_selector::SearchKind;
use cell_terms::Csn;

use super::place::PairAt;

/// What is to be done with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validation {
    /// It is answered.
    Answer,
    /// It took too long.
    Overrun,
    /// Something that it depends on is not known to be durable.
    NotCovered,
    /// The lease may not hold any more.
    NotTrusted,
}

/// What the read depends on that is being answered before its call returns.
#[derive(Debug)]
pub(super) struct ImmediateRead {
    pub(super) kind: SearchKind,
    pub(super) started_ns: u64,
    pub(super) ns_max: u64,
    pub(super) needs: Vec<(PairAt, Csn)>,
}

impl Default for ImmediateRead {
    fn default() -> ImmediateRead {
        ImmediateRead { kind: SearchKind::Point, started_ns: 0, ns_max: 0, needs: Vec::new() }
    }
}

/// Adds that an answer depends on a pair's writes up to a CSN.
pub(super) fn depend_on(needs: &mut Vec<(PairAt, Csn)>, pair: PairAt, csn: Csn) {
    match needs.iter_mut().find(|(needed, _)| *needed == pair) {
        Some((_, needed)) => *needed = csn.max(*needed),
        None => needs.push((pair, csn)),
    }
}
