//! Asking threads to end, however the work that they accompany ends.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets its flag when it is dropped, by a panic too: a scope waits for its threads, and a test that fails
/// while they go on would otherwise never end.
pub struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
