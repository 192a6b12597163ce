//! The back-off of log-ins that etcd has refused, or has not answered: a core without clock or I/O.
//!
//! Without a token each call of a process logs in, and some are made again and again: takeovers each 20 ms. A
//! log-in takes a tenth of a second of a processor of etcd's, which makes passwords hard to guess. So each
//! member is asked once, because another one may know the password; from then on what was said is believed
//! for a while, twice as long each time. Another password in the file is tried at once.
//!
//! An etcd that has not answered may have too much to do, with the log-ins of others, or with the one that
//! was given up. So the next one waits, twice as long each time, and by chance not as long as others do.

use crate::etcd_error::EtcdError;

const FIRST_NS: u64 = 100_000_000;
/// A fifth of the shortest lease on etcd, the time from one of its renewals to the next: once the password
/// counts again, this costs a lease no more than one renewal.
const LONGEST_NS: u64 = 400_000_000;

/// An etcd that did not answer for so long costs leases anyhow.
const UNANSWERED_LONGEST_NS: u64 = 1_600_000_000;

/// What etcd has said of the password that was tried last.
#[derive(Debug, Default)]
pub(super) struct LogInBackoff {
    members: u32,
    refused: Option<Refused>,
    unanswered: Option<Unanswered>,
}

/// Log-ins without an answer.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    /// In a row.
    times: u32,
    until_ns: u64,
}

/// Why nobody logs in now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeldOff {
    /// etcd has said this of the password.
    Refused(EtcdError),
    /// etcd has not answered.
    Unanswered,
}

#[derive(Debug)]
struct Refused {
    password: String,
    error: EtcdError,
    /// In a row.
    times: u32,
    until_ns: u64,
}

impl LogInBackoff {
    /// Over so many members.
    pub(super) fn over(members: usize) -> LogInBackoff {
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        LogInBackoff { members, refused: None, unanswered: None }
    }

    /// Takes the turn to log in by this password. Others wait for what comes of it, as for a refusal.
    ///
    /// # Errors
    /// What etcd has said of it, while that is believed; or that etcd has not answered.
    pub(super) fn take_turn(&mut self, password: &str, now_ns: u64) -> Result<(), HeldOff> {
        if self.unanswered.is_some_and(|unanswered| now_ns < unanswered.until_ns) {
            return Err(HeldOff::Unanswered);
        }
        let members = self.members;
        let Some(refused) = self.refused.as_mut().filter(|refused| refused.password == password) else {
            return Ok(());
        };
        if now_ns < refused.until_ns {
            return Err(HeldOff::Refused(refused.error.clone()));
        }
        refused.until_ns = now_ns.saturating_add(backoff_ns(refused.times, members));
        Ok(())
    }

    /// etcd has refused this password, or who has it.
    pub(super) fn refused(&mut self, password: &str, error: EtcdError, now_ns: u64) {
        let before = self.refused.take().filter(|refused| refused.password == password);
        let times = before.map_or(0, |refused| refused.times).saturating_add(1);
        let until_ns = now_ns.saturating_add(backoff_ns(times, self.members));
        self.refused = Some(Refused { password: password.to_owned(), error, times, until_ns });
        self.unanswered = None;
    }

    /// etcd has not answered, or could not. `random` is any number.
    pub(super) fn unanswered(&mut self, now_ns: u64, random: u64) {
        let times = self.unanswered.map_or(0, |unanswered| unanswered.times);
        let half_ns = (FIRST_NS << times.min(16)).min(UNANSWERED_LONGEST_NS) / 2;
        let until_ns = now_ns.saturating_add(half_ns + random % (half_ns + 1));
        self.unanswered = Some(Unanswered { times: times.saturating_add(1), until_ns });
    }

    /// It has taken the password.
    pub(super) fn accepted(&mut self) {
        (self.refused, self.unanswered) = (None, None);
    }
}

/// After so many refusals in a row.
fn backoff_ns(times: u32, members: u32) -> u64 {
    match times.checked_sub(members) {
        None => 0,
        Some(doublings) => (FIRST_NS << doublings.min(16)).min(LONGEST_NS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// When etcd is asked that refuses, by who asks each 10 ms for so long, in milliseconds.
    fn asked_ms(backoff: &mut LogInBackoff, until_ms: u64) -> Vec<u64> {
        let mut asked = Vec::new();
        for now_ms in (0..until_ms).step_by(10) {
            if backoff.take_turn("wrong", now_ms * MS).is_ok() {
                asked.push(now_ms);
                backoff.refused("wrong", EtcdError::Credentials, now_ms * MS);
            }
        }
        asked
    }

    #[test]
    fn take_turn_asks_each_member_once_and_then_ever_later_up_to_each_400_ms() {
        let asked = asked_ms(&mut LogInBackoff::over(3), 2_400);
        assert_eq!(asked, [0, 10, 20, 120, 320, 720, 1_120, 1_520, 1_920, 2_320]);
        assert_eq!(asked_ms(&mut LogInBackoff::over(1), 1_000), [0, 100, 300, 700]);
    }

    #[test]
    fn take_turn_by_another_password_or_after_one_that_was_taken_does_not_back_off() {
        let mut backoff = LogInBackoff::over(1);
        asked_ms(&mut backoff, 1_000);
        assert_eq!(backoff.take_turn("wrong", 1_000 * MS), Err(HeldOff::Refused(EtcdError::Credentials)));
        assert_eq!(backoff.take_turn("right", 1_000 * MS), Ok(()));
        backoff.accepted();
        assert_eq!(backoff.take_turn("wrong", 1_000 * MS), Ok(()));
    }

    /// Several threads ask when the wait is over.
    #[test]
    fn take_turn_while_another_one_has_it_returns_what_was_said_before() {
        let mut backoff = LogInBackoff::over(1);
        backoff.refused("wrong", EtcdError::Credentials, 0);
        assert_eq!(backoff.take_turn("wrong", 100 * MS), Ok(()));
        assert_eq!(backoff.take_turn("wrong", 101 * MS), Err(HeldOff::Refused(EtcdError::Credentials)));
    }

    #[test]
    fn take_turn_after_no_answer_waits_between_half_and_the_whole_of_ever_longer_times() {
        let by_chance = [(0, [50, 100, 200, 400, 800, 800]), (50 * MS, [100, 150, 250, 450, 850, 850])];
        for (random, waits) in by_chance {
            let mut backoff = LogInBackoff::over(3);
            for wait_ms in waits {
                backoff.unanswered(0, random);
                assert_eq!(backoff.take_turn("right", wait_ms * MS - 1), Err(HeldOff::Unanswered));
                assert_eq!(backoff.take_turn("right", wait_ms * MS), Ok(()));
            }
            backoff.accepted();
            assert_eq!(backoff.take_turn("right", 0), Ok(()));
        }
    }
}
