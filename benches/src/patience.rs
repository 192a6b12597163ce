//! Waiting for what nodes do beside a bench: for a condition, with an end that a busy machine does not reach,
//! which is an error.

use std::time::Duration;

use crate::disk;
use crate::options::BenchError;
use crate::paced::now;

/// How long anything may take that a bench waits for.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
const LOOKS: Duration = Duration::from_millis(20);

/// Waits until there is something; `what` says what.
pub(crate) fn until_some<T>(what: &str, found: impl FnMut() -> Option<T>) -> Result<T, BenchError> {
    until_some_every(LOOKS, what, found)
}

/// As [`until_some`], with so long between two looks.
pub(crate) fn until_some_every<T>(
    looks: Duration,
    what: &str,
    mut found: impl FnMut() -> Option<T>,
) -> Result<T, BenchError> {
    let began = now();
    loop {
        if let Some(found) = found() {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            return Err(BenchError::Io(std::io::Error::other(format!("not within {PATIENCE:?}: {what}"))));
        }
        disk::pause(looks);
    }
}
