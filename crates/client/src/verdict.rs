//! What a refusal means for an operation, as a table. Two things are asked besides the refusal: is the
//! operation a write, and is its fate *open*, that is, was a copy sent whose answer never came? Only a
//! recorded result (a failed condition is one) closes an open fate; any other refusal speaks for its own copy
//! alone.
//!
//! | refusal | read | write, fate not open | write, fate open |
//! |---|---|---|---|
//! | condition failed | unfitting | decided | decided |
//! | busy, recovering, shutdown | again | again | again |
//! | not owner | elsewhere | elsewhere | elsewhere |
//! | internal | again | again, fate open | again |
//! | session unknown | unfitting | again, under a new name | unknown |
//! | number below floor | unfitting | unknown | unknown |
//! | all others | refused | refused | unknown |

use cell_protocol::StatusCode;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The recorded result: the condition failed.
    Decided,
    /// Try at another node.
    Elsewhere,
    /// Try again later.
    Again,
    /// Try again later; the fate is open from now on.
    AgainOpen,
    /// Try again in a new session, with a new number.
    Rename,
    /// Surely not done: tell the caller.
    Refused,
    /// Nobody can tell any more: tell the caller so.
    Unknown,
    /// The server answers what was not asked.
    Unfitting,
}

/// Looks the case up. Ok and NotFound are no refusals.
pub(crate) fn verdict(status: StatusCode, write: bool, fate_open: bool) -> Verdict {
    use StatusCode as S;
    use Verdict as V;
    let (read, closed, open) = match status {
        S::Ok | S::NotFound => (V::Unfitting, V::Unfitting, V::Unfitting),
        S::ConditionFailed => (V::Unfitting, V::Decided, V::Decided),
        S::Busy | S::Recovering | S::Shutdown => (V::Again, V::Again, V::Again),
        S::NotOwner => (V::Elsewhere, V::Elsewhere, V::Elsewhere),
        S::Internal => (V::Again, V::AgainOpen, V::Again),
        S::SessionUnknown => (V::Unfitting, V::Rename, V::Unknown),
        S::NumberBelowFloor => (V::Unfitting, V::Unknown, V::Unknown),
        S::ReadOnly
        | S::KeyInvalid
        | S::ValueTooLarge
        | S::Malformed
        | S::TooLong
        | S::VersionUnsupported
        | S::Unauthorized => (V::Refused, V::Refused, V::Unknown),
    };
    match (write, fate_open) {
        (false, _) => read,
        (true, false) => closed,
        (true, true) => open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_open_fate_is_never_called_refused_or_renamed() {
        for &status in StatusCode::ALL {
            let verdict = verdict(status, true, true);
            assert!(!matches!(verdict, Verdict::Refused | Verdict::Rename), "{status:?}: {verdict:?}");
        }
    }

    #[test]
    fn verdict_read_is_never_unknown() {
        for &status in StatusCode::ALL {
            let verdict = verdict(status, false, false);
            let of_writes = [Verdict::Unknown, Verdict::AgainOpen, Verdict::Rename, Verdict::Decided];
            assert!(!of_writes.contains(&verdict), "{status:?}: {verdict:?}");
        }
    }

    #[test]
    fn verdict_not_done_statuses_close_a_single_copy() {
        let again = [StatusCode::Busy, StatusCode::Recovering, StatusCode::Shutdown];
        assert!(again.iter().all(|&status| verdict(status, true, false) == Verdict::Again));
        assert_eq!(verdict(StatusCode::Internal, true, false), Verdict::AgainOpen);
        assert_eq!(verdict(StatusCode::SessionUnknown, true, false), Verdict::Rename);
    }
}
