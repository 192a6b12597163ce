//! Logging in to etcd: one log-in of a process at a time, which goes on when the call that wanted it is over.
//!
//! etcd hashes passwords slowly, on purpose. When all nodes lose their tokens at once, a log-in takes several
//! times as long as a call may. Were each given up with its call, and started anew by the next one, etcd
//! would hash for nobody, for ever:
//!
//! 1. a password is changed, or a right, or etcd is started again: no token counts any more;
//! 2. all threads of all nodes log in, and a log-in takes a second;
//! 3. their calls end after 300 ms, and so do their log-ins, whose hashes etcd goes on with; they begin anew.
//!
//! So a log-in has a deadline of its own, at one member, and all calls of the process wait for the same one,
//! each within its own deadline.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::error::ClusterError;
use crate::etcd_error::EtcdError;
use crate::providers::etcd::ask::{Asker, Tried, User};
use crate::providers::etcd::gateway::{PATH_AUTHENTICATE, TokenAnswer, Verdict};
use crate::providers::etcd::log_in_backoff::HeldOff;
use crate::providers::etcd::log_ins::{Failure, LogInState, Token};
use crate::providers::etcd::post::{PostFailure, Question};
use crate::providers::etcd::route::{Repeats, TryTimes};
use crate::providers::ids::random_below;
use crate::urgent;

/// A log-in is given up after so long, or after a call's time where that is longer.
const LONGEST: Duration = Duration::from_secs(3);
/// A member to which there is no connection by then is passed by.
const CONNECT_LONGEST: Duration = Duration::from_millis(300);

impl Asker {
    /// The user's token; none: there is no user, or etcd wants none.
    pub(super) fn token(&self, until_ns: u64) -> Result<Option<Arc<str>>, ClusterError> {
        let Some(user) = &self.user else { return Ok(None) };
        let mut state = self.log_ins.state();
        if matches!(state.token, Token::Unknown) {
            self.begin_log_in(user, &mut state)?;
            let (count, left) = (state.count, self.left(until_ns).unwrap_or_default());
            let waits = |state: &mut LogInState| state.count == count;
            let waited = self.log_ins.ended.wait_timeout_while(state, left, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match &state.token {
            Token::Known(token) => Ok(Some(Arc::clone(token))),
            Token::NotWanted => Ok(None),
            Token::Unknown => Err(state.why_none()),
        }
    }

    /// Begins a log-in where none is under way.
    fn begin_log_in(&self, (name, file): &User, state: &mut LogInState) -> Result<(), ClusterError> {
        if state.is_under_way {
            return Ok(());
        }
        let password = std::fs::read_to_string(file).map_err(|error| {
            let why = format!("{}: {error}", file.display()).into();
            EtcdError::Password { why }
        })?;
        let password = password.trim_end_matches(['\n', '\r']).to_owned();
        match state.backoff.take_turn(&password, self.clock.now_ns()) {
            Ok(()) => {}
            Err(HeldOff::Refused(error)) => return Err(error.into()),
            Err(HeldOff::Unanswered) => return Err(state.why_none()),
        }
        let Some(asker) = self.own.upgrade() else { return Err(state.why_none()) };
        let body = json!({"name": name, "password": password}).to_string();
        let thread = std::thread::Builder::new().name("etcd-log-in".to_owned());
        let spawned = thread.spawn(move || {
            // The next renewal waits for it.
            urgent::run_first();
            asker.log_in(&password, &body);
        });
        spawned.map_err(ClusterError::NotReached)?;
        state.is_under_way = true;
        state.failure = None;
        Ok(())
    }

    /// One log-in, in a thread of its own.
    fn log_in(&self, password: &str, body: &str) {
        let longest_ns = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = self.deadline_from_now().max(self.clock.now_ns().saturating_add(longest_ns));
        let (answered, has_worked) = self.ask_for_token(body, until_ns);
        let now_ns = self.clock.now_ns();
        let mut state = self.log_ins.state();
        state.is_under_way = false;
        state.count += 1;
        match answered {
            Ok(token) => {
                state.backoff.accepted();
                state.token = token.map_or(Token::NotWanted, Token::Known);
            }
            Err(error) => {
                match &error {
                    ClusterError::Etcd(error) if error.refuses_log_in() => {
                        state.backoff.refused(password, error.clone(), now_ns);
                    }
                    _ if has_worked => {
                        state.backoff.unanswered(now_ns, random_below(u64::MAX).unwrap_or_default());
                    }
                    _ => {} // it was not reached, and has nothing to back off from
                }
                state.failure = Some(Failure::of(error));
            }
        }
        drop(state);
        self.log_ins.ended.notify_all();
    }

    /// The token that a log-in gives, none where etcd wants none; and whether etcd had work with it. Members
    /// that are not reached or say why not are passed by; one that says nothing may work on it still.
    fn ask_for_token(&self, body: &str, until_ns: u64) -> (Result<Option<Arc<str>>, ClusterError>, bool) {
        let mut has_worked = false;
        let answered = self.try_members(Repeats::Never, until_ns, |member, times| {
            let times = TryTimes { connect: times.connect.min(CONNECT_LONGEST), whole: times.whole };
            let question = Question { member, path: PATH_AUTHENTICATE, body, token: None, times };
            let complaint = match self.gateway.post(question) {
                Ok(answer) => return Ok(self.read_token(member, &answer)),
                Err(PostFailure::Unanswered { sent, source }) => {
                    let is_given_up = sent && source.kind() == io::ErrorKind::TimedOut;
                    has_worked |= is_given_up;
                    return Ok(Tried::Failed(is_given_up, source));
                }
                Err(PostFailure::OtherCluster) => return Ok(Tried::Stranger(self.of_another(member))),
                Err(PostFailure::Complained(complaint)) => complaint,
            };
            if complaint.wants_no_token() {
                return Ok(Tried::Answered(None));
            }
            match self.verdict(member, &complaint) {
                Verdict::Stranger(error) => Ok(Tried::Stranger(error)),
                Verdict::Token => Err(self.refused(member, EtcdError::Credentials)),
                Verdict::Never(error) => Err(self.refused(member, error)),
                Verdict::Unknown | Verdict::NoSpace | Verdict::TooLong(_) => {
                    has_worked = true;
                    let words = format!("{}: {}", self.gateway.endpoint(member), complaint.message);
                    Ok(Tried::Failed(false, io::Error::other(words)))
                }
            }
        });
        (answered, has_worked)
    }

    /// The token in the answer to a log-in.
    fn read_token(&self, member: usize, answer: &[u8]) -> Tried<Option<Arc<str>>> {
        match serde_json::from_slice::<TokenAnswer>(answer) {
            Ok(answer) if self.is_of_another(answer.header) => Tried::Stranger(self.of_another(member)),
            Ok(answer) if !answer.token.is_empty() => Tried::Answered(Some(answer.token.into())),
            _ => {
                let words = format!("{}: it gives no token", self.gateway.endpoint(member));
                Tried::Failed(false, io::Error::new(io::ErrorKind::InvalidData, words))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;
    use crate::clock::ManualClock;
    use crate::providers::etcd::fake::{FakeEtcd, FakeFault};

    /// More than a test takes.
    const LONG: Duration = Duration::from_secs(60);

    /// An etcd that wants a token, its clock, and who asks it as a user, with the file of the password.
    fn setup(deadline: Duration) -> (FakeEtcd, Arc<ManualClock>, Arc<Asker>, NamedTempFile) {
        let (etcd, clock) = (FakeEtcd::new(3), Arc::new(ManualClock::new(1)));
        etcd.want_token("first");
        let password = NamedTempFile::new().unwrap();
        let user = Some(("cell".to_owned(), password.path().to_owned()));
        let asker = Asker::new(Box::new(etcd.clone()), "cell", user, clock.clone(), deadline);
        (etcd, clock, asker, password)
    }

    fn token(asker: &Asker) -> Result<Option<Arc<str>>, ClusterError> {
        asker.token(asker.deadline_from_now())
    }

    /// Nodes whose log-ins took longer than a call logged in for ever, each thread for itself.
    #[test]
    fn log_in_that_takes_longer_than_a_call_is_one_for_all_callers_and_gives_the_next_one_a_token() {
        let (etcd, _, asker, _password) = setup(Duration::from_millis(20));
        etcd.take_for_log_ins(Duration::from_secs(1));
        etcd.hold_log_ins(true);
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let ended = token(&asker);
                        assert!(matches!(ended, Err(ClusterError::NotReached(_))), "{ended:?}");
                    });
                }
            });
        }
        etcd.hold_log_ins(false);
        asker.set_deadline(LONG);
        assert_eq!(token(&asker).unwrap().as_deref(), Some("first"));
        assert_eq!(token(&asker).unwrap().as_deref(), Some("first"), "it is kept");
        assert_eq!(etcd.take_log_ins(), 1);
    }

    #[test]
    fn log_in_that_is_not_answered_backs_off_ever_longer_and_counts_when_etcd_is_faster() {
        let (etcd, clock, asker, _password) = setup(LONG);
        etcd.take_for_log_ins(2 * LONG);
        for _ in 0..500 {
            let unanswered = token(&asker);
            assert!(matches!(unanswered, Err(ClusterError::NotReached(_))), "{unanswered:?}");
            clock.advance(20_000_000);
        }
        let log_ins = etcd.take_log_ins();
        assert!((8..25).contains(&log_ins), "{log_ins} in ten seconds");
        etcd.take_for_log_ins(Duration::from_secs(1));
        let counts = (0..=80).any(|_| {
            clock.advance(20_000_000);
            token(&asker).is_ok()
        });
        assert!(counts && etcd.take_log_ins() == 1);
    }

    #[test]
    fn log_in_goes_by_members_that_are_not_reached_and_not_by_one_that_may_work_on_it() {
        let (etcd, clock, asker, _password) = setup(LONG);
        etcd.plan([Some(FakeFault::Lost)]);
        assert!(matches!(token(&asker), Err(ClusterError::NotReached(_))));
        assert_eq!(etcd.take_asked(), [0]);
        clock.advance(100_000_000);
        etcd.plan([Some(FakeFault::NotReached)]);
        assert_eq!(token(&asker).unwrap().as_deref(), Some("first"));
        assert_eq!(etcd.take_asked(), [1, 2], "it begins with another one");
    }
}
