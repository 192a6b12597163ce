//! How often a conditional change is made again, and what is said of one that did not come through.

use std::io;

use cell_terms::text::with_causes;

use crate::error::ClusterError;

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
    /// Why the last of those without an answer had none.
    unknown: Option<(io::ErrorKind, String)>,
}

impl Attempts {
    /// Makes a change in as many tries as it takes. Once one of them had no answer, whatever comes later does
    /// not show that nothing was changed: [`ClusterError::OutcomeUnknown`] it is then.
    pub(crate) fn of<T>(
        change: impl FnOnce(&mut Attempts) -> Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        let mut attempts = Attempts::default();
        let changed = change(&mut attempts);
        changed.map_err(|error| attempts.end(error))
    }

    fn end(self, error: ClusterError) -> ClusterError {
        match self.unknown {
            Some((kind, why)) if !matches!(error, ClusterError::OutcomeUnknown(_)) => {
                let words = format!("{why}; when it was tried again: {}", with_causes(&error));
                ClusterError::OutcomeUnknown(io::Error::new(kind, words))
            }
            _ => error,
        }
    }

    /// Whether it is to be tried once more.
    pub(crate) fn left(&self) -> bool {
        self.unanswered < UNANSWERED_MAX && self.outrun < OUTRUN_MAX
    }

    /// Whether somebody else was first at least once.
    pub(crate) fn were_outrun(&self) -> bool {
        self.outrun > 0
    }

    /// The outcome of a try is not known, for this reason.
    pub(crate) fn unanswered(&mut self, error: &io::Error) {
        self.unanswered += 1;
        self.unknown = Some((error.kind(), error.to_string()));
    }

    /// Somebody else had changed the row first.
    pub(crate) fn outrun(&mut self) {
        self.outrun += 1;
    }

    /// What is to be said when none are left. Others need not have changed anything where nobody answered.
    pub(crate) fn given_up(&self, what: &'static str) -> ClusterError {
        match &self.unknown {
            Some((kind, why)) => ClusterError::OutcomeUnknown(io::Error::new(*kind, why.clone())),
            None => ClusterError::Contended { what },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed_out() -> io::Error {
        io::ErrorKind::TimedOut.into()
    }

    #[test]
    fn change_that_nobody_answered_is_of_unknown_outcome_whatever_comes_after() {
        let refused = || ClusterError::NotReached(io::ErrorKind::ConnectionRefused.into());
        let error = Attempts::of::<()>(|_| Err(refused())).unwrap_err();
        assert!(matches!(error, ClusterError::NotReached(_)), "{error}");
        let error = Attempts::of::<()>(|attempts| {
            attempts.unanswered(&timed_out());
            Err(refused())
        });
        let Err(ClusterError::OutcomeUnknown(why)) = error else { panic!("{error:?}") };
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        let words = why.to_string();
        assert!(words.contains("timed out; ") && words.contains("cannot be reached: "), "{words}");
    }

    #[test]
    fn tries_that_nobody_answered_are_given_up_as_such_and_lost_races_as_such() {
        let mut attempts = Attempts::default();
        while attempts.left() {
            attempts.outrun();
        }
        assert!(matches!(attempts.given_up("a row"), ClusterError::Contended { what: "a row" }));
        let mut attempts = Attempts::default();
        while attempts.left() {
            attempts.unanswered(&timed_out());
        }
        let error = attempts.given_up("a row");
        assert!(matches!(error, ClusterError::OutcomeUnknown(_)) && error.is_transient(), "{error}");
    }
}
