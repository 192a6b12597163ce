//! How often callers may fail to show a token, and how often they may change something.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use cell_node::{FailedLogins, LoginPlace, RateLimit};

use crate::access::Caller;
use crate::clock::running;
use crate::problem::Problem;

/// A caller may make the changes of so many seconds at once.
const BURST_SECONDS: f64 = 2.0;

/// The limits of one node.
pub(crate) struct RequestLimits {
    failures: Mutex<FailedLogins>,
    /// Since the start.
    failures_all: AtomicU64,
    changes: Mutex<RateLimit<String>>,
}

impl RequestLimits {
    /// So many changes a second and caller.
    pub(crate) fn new(changes_per_second: f64) -> RequestLimits {
        RequestLimits {
            failures: Mutex::default(),
            failures_all: AtomicU64::new(0),
            changes: Mutex::new(RateLimit::new(changes_per_second, changes_per_second * BURST_SECONDS)),
        }
    }

    /// So many changes a second and caller from now on.
    pub(crate) fn set_changes_per_second(&self, changes_per_second: f64) {
        lock(&self.changes).set_rate(changes_per_second, changes_per_second * BURST_SECONDS);
    }

    /// Whether an address may show a token. Loopback addresses always may: all callers of this machine share
    /// them, and one with a wrong token must not lock the others out.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn check_login(&self, address: IpAddr) -> Result<(), Problem> {
        lock(&self.failures).check(LoginPlace::of_address(address), running()).map_err(too_many_failures)
    }

    /// Tokens that were not known.
    pub(crate) fn failed_logins(&self) -> u64 {
        self.failures_all.load(Ordering::Relaxed)
    }

    /// Counts a token that is not known.
    ///
    /// # Errors
    /// 429: there were too many before.
    pub(crate) fn count_failed_login(&self, address: IpAddr) -> Result<(), Problem> {
        self.failures_all.fetch_add(1, Ordering::Relaxed);
        lock(&self.failures).count(LoginPlace::of_address(address), running()).map_err(too_many_failures)
    }

    /// Counts a request that changes something. Nodes may send each other as many as they like.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn count_change(&self, caller: &Caller) -> Result<(), Problem> {
        if *caller == Caller::peer() {
            return Ok(());
        }
        lock(&self.changes).take(&caller.name, running()).map_err(|wait| {
            let detail = "This caller changes something too often.";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", detail)
                .next("wait as long as Retry-After says; `http_changes_per_second` is the limit")
                .retry_after(wait)
        })
    }
}

fn too_many_failures(wait: Duration) -> Problem {
    let detail = "This address sent too many tokens that are not known.";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_failures", detail)
        .next("wait as long as Retry-After says, and send a token that the node knows")
        .retry_after(wait)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_login_after_too_many_failures_refuses_the_network_but_never_this_machine() {
        let limits = RequestLimits::new(1.0);
        let [one, same, other, local] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:127.0.0.1"]
            .map(|it| it.parse().unwrap());
        for address in [one, local] {
            for _ in 0..10 {
                limits.count_failed_login(address).unwrap();
            }
            assert_eq!(limits.count_failed_login(address).unwrap_err().code, "too_many_failures");
        }
        assert_eq!(limits.failed_logins(), 22);
        let refused = limits.check_login(same).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (429, Some(6)));
        assert_eq!((limits.check_login(other), limits.check_login(local)), (Ok(()), Ok(())));
    }

    #[test]
    fn count_change_past_the_burst_is_refused_but_for_peers() {
        let limits = RequestLimits::new(0.5);
        let count = |caller: Caller| limits.count_change(&caller).map_err(|problem| problem.code);
        assert_eq!(count(Caller::local()), Ok(()));
        assert_eq!(count(Caller::local()), Err("too_many_requests"));
        assert_eq!(count(Caller::anonymous()), Ok(()), "each has a limit of their own");
        assert!([(); 9].iter().all(|()| count(Caller::peer()).is_ok()));
    }

    #[test]
    fn count_change_goes_by_the_limit_that_is_in_force() {
        let limits = RequestLimits::new(0.5);
        limits.set_changes_per_second(2.0);
        let counts = [(); 5].map(|()| limits.count_change(&Caller::local()).is_ok());
        assert_eq!(counts, [true, true, true, true, false]);
    }
}
