//! A host that is cut off from everyone, for drills: a filter under all of its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The switch of a host's filter; clones switch the same one. Off at first.
///
/// While it is on, an endpoint that has it neither takes what peers sent nor sends what its user gave it, old
/// connections and new ones alike: nobody is told anything, as behind a network that drops all. What had left
/// before arrives. When it is switched off, everything goes on where it stood, unless the peer has given up.
///
/// What a peer has mapped (`shm`) it can go on reading: no filter of the owner stands between. That is why
/// the rule of trust (see "Zombies" in ARCHITECTURE.md) asks for the lease after every read.
#[derive(Clone, Debug, Default)]
pub struct Partition(Arc<AtomicBool>);

impl Partition {
    /// Switches it. Endpoints notice within their user's next turn.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    /// Whether it is on.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
