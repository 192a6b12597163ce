//! The insert hint of a tree node: whether inserts have been going one way, so that a split can leave the
//! side that they come from full.
//!
//! Bits 0..10: place of the last insert. Bit 10: the way, 1 for descending. Bits 11..16: how many inserts in
//! a row went that way, at most 31. Random inserts hardly ever make a run: each step has a chance of one in
//! the count.

const PLACE_MASK: usize = (1 << 10) - 1;
const DESCENDING: usize = 1 << 10;
const RUN_SHIFT: usize = 11;
const RUN_MAX: usize = 31;

const _: () = assert!(crate::layout::count_max(4096) <= PLACE_MASK);
const _: () = assert!(RUN_MAX << RUN_SHIFT | DESCENDING | PLACE_MASK == 0xFFFF);

/// Which way inserts have been going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trend {
    Ascending,
    Descending,
    None,
}

fn step(hint: usize, at: usize) -> Trend {
    let last = hint & PLACE_MASK;
    if at == last + 1 {
        Trend::Ascending
    } else if at == last {
        Trend::Descending
    } else {
        Trend::None
    }
}

/// The hint after an insert at `at`.
pub(crate) fn after_insert(hint: usize, at: usize) -> usize {
    let run = hint >> RUN_SHIFT;
    let went = if hint & DESCENDING == 0 { Trend::Ascending } else { Trend::Descending };
    let goes = step(hint, at);
    let run = if goes == Trend::None {
        0
    } else if goes == went {
        (run + 1).min(RUN_MAX)
    } else {
        1
    };
    let way = if goes == Trend::Descending { DESCENDING } else { 0 };
    run << RUN_SHIFT | way | at & PLACE_MASK
}

/// Which way inserts go, an insert at `at` into a full node of `count` entries included: a run of a quarter
/// of the node.
pub(crate) fn trend(hint: usize, at: usize, count: usize) -> Trend {
    let run = after_insert(hint, at) >> RUN_SHIFT;
    if run >= 3 && run >= (count / 4).min(RUN_MAX) { step(hint, at) } else { Trend::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trend_of_ascending_inserts_is_seen() {
        let hint = (0..10).fold(0, after_insert);
        assert_eq!(trend(hint, 10, 10), Trend::Ascending);
        assert_eq!(trend(hint, 9, 10), Trend::None);
        assert_eq!(trend(hint, 3, 10), Trend::None);
    }

    #[test]
    fn trend_of_descending_inserts_is_seen() {
        let hint = (0..40).fold(0, |hint, _| after_insert(hint, 5));
        assert_eq!(trend(hint, 5, 45), Trend::Descending);
        assert_eq!(trend(hint, 6, 45), Trend::None);
    }
}
