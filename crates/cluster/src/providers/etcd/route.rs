//! Which of etcd's members is asked, for how long, and what it means that none has answered: a core without
//! clock or I/O.
//!
//! A member that is stopped takes requests in and answers none; one that has lost its leader says so, or
//! hangs. What may have been carried out must not be asked again unless asking twice is as asking once:
//!
//! 1. a node asks one member for a transaction; the member hands it to the leader, and dies;
//! 2. the node asks the next one for the same. The first one was carried out, so its condition holds no more,
//!    and the answer says that somebody else was faster;
//! 3. the node believes it, and gives up what it owns.
//!
//! So the outcome of such a transaction is unknown, and whoever asked looks first.

use std::io;
use std::time::Duration;

use cell_terms::mutant::{Mutant, planted};

use crate::error::ClusterError;

/// What asking again does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    /// It only reads.
    Reads,
    /// It writes, and doing it twice is as doing it once: its own answer says what is there now.
    Harmless,
    /// It writes once.
    Never,
}

/// How long one try may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TryTimes {
    /// Until there is a connection.
    pub(super) connect: Duration,
    /// Until there is an answer.
    pub(super) whole: Duration,
}

/// The tries of one request.
#[derive(Debug)]
pub(super) struct Route {
    members: usize,
    first: usize,
    tried: usize,
    repeats: Repeats,
    /// A try was sent of which nobody knows whether it was carried out.
    may_be_done: bool,
    /// Members that are none of etcd's.
    strangers: usize,
}

impl Route {
    /// Over so many members, beginning with this one.
    pub(super) fn new(members: usize, first: usize, repeats: Repeats) -> Route {
        Route { members, first, tried: 0, repeats, may_be_done: false, strangers: 0 }
    }

    /// Whom to ask.
    pub(super) fn member(&self) -> usize {
        (self.first + self.tried) % self.members
    }

    /// How long the next try may take of what is left: a member that hangs leaves time for another one.
    pub(super) fn times(&self, left: Duration) -> TryTimes {
        let untried = self.members.saturating_sub(self.tried).max(1);
        let share = if untried == 1 { left } else { left / 2 };
        let whole = if self.repeats == Repeats::Never { left } else { share };
        TryTimes { connect: share, whole }
    }

    /// The try did not come to an answer: because of `why`, and before or after it was `sent`.
    ///
    /// # Errors
    /// No other member is to be asked.
    pub(super) fn failed(&mut self, sent: bool, why: io::Error) -> Result<(), ClusterError> {
        self.may_be_done |= sent && self.repeats != Repeats::Reads;
        self.tried += 1;
        let stops = sent && self.repeats == Repeats::Never && !planted(Mutant::UnknownAskedAgain);
        // The first one a second time: its connection may have been one that had gone meanwhile.
        let tries_max = if self.members == 1 { 2 } else { self.members };
        if stops || self.tried >= tries_max { Err(self.given_up(why)) } else { Ok(()) }
    }

    /// Who was asked is none of etcd's. Whether that is so of all of them.
    pub(super) fn met_stranger(&mut self) -> bool {
        self.strangers += 1;
        self.strangers >= self.members
    }

    /// What it means that there is no time for another try.
    pub(super) fn given_up(&self, why: io::Error) -> ClusterError {
        if self.may_be_done { ClusterError::OutcomeUnknown(why) } else { ClusterError::NotReached(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why() -> io::Error {
        io::ErrorKind::TimedOut.into()
    }

    #[test]
    fn failed_before_it_was_sent_asks_all_members_and_nothing_was_done() {
        for repeats in [Repeats::Reads, Repeats::Harmless, Repeats::Never] {
            let mut route = Route::new(3, 2, repeats);
            assert_eq!(route.member(), 2);
            route.failed(false, why()).unwrap();
            assert_eq!(route.member(), 0);
            route.failed(false, why()).unwrap();
            assert_eq!(route.member(), 1);
            assert!(matches!(route.failed(false, why()), Err(ClusterError::NotReached(_))));
        }
    }

    #[test]
    fn failed_after_it_was_sent_asks_others_what_may_be_asked_twice() {
        let mut read = Route::new(2, 0, Repeats::Reads);
        read.failed(true, why()).unwrap();
        assert!(matches!(read.failed(true, why()), Err(ClusterError::NotReached(_))), "it only reads");
        let mut renewal = Route::new(2, 0, Repeats::Harmless);
        renewal.failed(true, why()).unwrap();
        assert!(matches!(renewal.failed(false, why()), Err(ClusterError::OutcomeUnknown(_))));
    }

    #[test]
    fn times_of_a_member_that_hangs_leave_some_for_the_others() {
        let left = Duration::from_millis(300);
        let mut route = Route::new(3, 0, Repeats::Reads);
        assert_eq!(route.times(left).whole, left / 2);
        route.failed(false, why()).unwrap();
        route.failed(false, why()).unwrap();
        assert_eq!(route.times(left).whole, left, "it is the last one");
        let once = Route::new(3, 0, Repeats::Never).times(left);
        assert_eq!(once, TryTimes { connect: left / 2, whole: left });
    }

    /// What is unknown of a write that was sent.
    fn write_that_was_sent_is_not_sent_again() -> bool {
        let mut write = Route::new(3, 0, Repeats::Never);
        matches!(write.failed(true, why()), Err(ClusterError::OutcomeUnknown(_)))
    }

    #[test]
    fn failed_after_a_write_was_sent_is_unknown_at_once() {
        assert!(write_that_was_sent_is_not_sent_again());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_unknown_asked_again_is_caught() {
        use cell_terms::mutant::{in_own_process, plant};
        in_own_process(|| {
            plant(Some(Mutant::UnknownAskedAgain));
            let caught = !write_that_was_sent_is_not_sent_again();
            plant(None);
            assert!(caught);
            println!("mutant {} caught by cell-cluster's way to etcd", Mutant::UnknownAskedAgain.name());
        });
    }
}
