//! What a refusal means for an operation, as a table. Two things are asked besides the refusal: is the
//! operation a write, and is its fate *open*, that is, was a copy sent whose answer never came? Only a
//! recorded result (a failed condition is one) closes an open fate; any other refusal speaks for its own copy
//! alone.
//!
//! | refusal | read | write, fate not open | write, fate open |
//! |---|---|---|---|
//! | condition failed | unfitting | decided | decided |
//! | busy, recovering, shutdown, coordinator away | again | again | again |
//! | not owner | elsewhere | elsewhere | elsewhere |
//! | internal | again | again, fate open | again |
//! | session unknown | unfitting | again, under a new name | unknown |
//! | number below floor | unfitting | unknown | unknown |
//! | all others | refused | refused | unknown |

use cell_protocol::StatusCode;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalAction {
    /// The recorded result: the condition failed.
    Decided,
    /// Try at another node.
    Redirect,
    /// Try again later.
    Retry,
    /// Try again later; the fate is open from now on.
    RetryFateOpen,
    /// Try again in a new session, with a new number.
    Rename,
    /// Surely not done: return that to the caller.
    Refused,
    /// Whether it was done cannot be known any more: return that to the caller.
    Unknown,
    /// The server answers what was not asked.
    Unfitting,
}

/// Looks the case up. Ok and NotFound are no refusals.
pub(crate) fn action_on(status: StatusCode, write: bool, fate_open: bool) -> RefusalAction {
    use RefusalAction as V;
    use StatusCode as S;
    let (read, closed, open) = match status {
        S::Ok | S::NotFound => (V::Unfitting, V::Unfitting, V::Unfitting),
        S::ConditionFailed => (V::Unfitting, V::Decided, V::Decided),
        S::Busy | S::Recovering | S::Shutdown | S::CoordinatorAway => (V::Retry, V::Retry, V::Retry),
        S::NotOwner => (V::Redirect, V::Redirect, V::Redirect),
        S::Internal => (V::Retry, V::RetryFateOpen, V::Retry),
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
    fn action_on_open_fate_is_never_called_refused_or_renamed() {
        for &status in StatusCode::ALL {
            let action = action_on(status, true, true);
            assert!(
                !matches!(action, RefusalAction::Refused | RefusalAction::Rename),
                "{status:?}: {action:?}"
            );
        }
    }

    #[test]
    fn action_on_read_is_never_unknown() {
        for &status in StatusCode::ALL {
            let action = action_on(status, false, false);
            let of_writes = [
                RefusalAction::Unknown,
                RefusalAction::RetryFateOpen,
                RefusalAction::Rename,
                RefusalAction::Decided,
            ];
            assert!(!of_writes.contains(&action), "{status:?}: {action:?}");
        }
    }

    #[test]
    fn action_on_not_done_statuses_close_a_single_copy() {
        use StatusCode as S;
        let again = [S::Busy, S::Recovering, S::Shutdown, S::CoordinatorAway];
        assert!(again.iter().all(|&status| action_on(status, true, false) == RefusalAction::Retry));
        assert_eq!(action_on(StatusCode::Internal, true, false), RefusalAction::RetryFateOpen);
        assert_eq!(action_on(StatusCode::SessionUnknown, true, false), RefusalAction::Rename);
    }
}
