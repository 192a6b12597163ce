//! Waiting for what real processes, disks and sockets do: for a condition, with an end that a busy machine
//! does not reach.

use std::time::{Duration, Instant};

/// How long anything may take that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

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
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        pause();
    }
}

/// Lets others work between two looks.
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
pub fn pause() {
    std::thread::sleep(PAUSE);
}
