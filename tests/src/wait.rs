//! Waiting for what real processes, disks and sockets do: for a condition, with an end that a busy machine
//! does not reach.

use std::time::{Duration, Instant};

/// How long anything may take that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks, at least.
const PAUSE: Duration = Duration::from_millis(5);
/// The same at most.
const REST_MAX: Duration = Duration::from_millis(250);
/// Looks take one part of the time in so many.
const LOOKS_PART: u32 = 4;

/// Waits until something holds.
///
/// # Panics
/// If it never does; `what` says what would have to hold.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_some(what, || holds().then_some(()));
}

/// Waits until there is something.
///
/// # Panics
/// If there never is; `what` says what.
#[track_caller]
pub fn until_some<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, found)
}

/// The same, for what takes longer than anything by itself.
///
/// # Panics
/// If there never is; `what` says what.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "real processes have real time")]
pub fn within<T>(patience: Duration, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        let started = Instant::now();
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        rest_after(started.elapsed());
    }
}

/// Lets others work after a look that took so long: one that starts a program, or has a supervisor ask its
/// coordinator, takes the processors that whoever is waited for needs.
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
pub fn rest_after(looked_for: Duration) {
    std::thread::sleep(rest(looked_for));
}

fn rest(looked_for: Duration) -> Duration {
    looked_for.saturating_mul(LOOKS_PART - 1).clamp(PAUSE, REST_MAX)
}

/// Lets others work between two looks.
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
pub fn pause() {
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waited for a cluster to be healthy asked it for that without a rest, on a core of its own.
    #[test]
    fn looks_take_a_quarter_of_the_time_where_that_is_neither_too_often_nor_too_seldom() {
        let rests = [0, 1_000, 2_000, 20_000, 900_000].map(|us| rest(Duration::from_micros(us)).as_millis());
        assert_eq!(rests, [5, 5, 6, 60, 250]);
    }
}
