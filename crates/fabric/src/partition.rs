//! A host that is cut off from everyone, for drills: a filter under all of its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a host's filter drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocked {
    /// Nothing: it is not cut off.
    #[default]
    Nothing,
    /// What others send. What the host sends arrives.
    Inbound,
    /// What the host sends. It takes what others send.
    Outbound,
    /// Both.
    Both,
}

impl Blocked {
    /// All, with nothing first.
    pub const ALL: [Blocked; 4] = [Blocked::Nothing, Blocked::Inbound, Blocked::Outbound, Blocked::Both];

    const fn bits(self) -> u8 {
        match self {
            Blocked::Nothing => 0,
            Blocked::Inbound => INBOUND,
            Blocked::Outbound => OUTBOUND,
            Blocked::Both => INBOUND | OUTBOUND,
        }
    }
}

const INBOUND: u8 = 1;
const OUTBOUND: u8 = 2;

/// The switch of a host's filter; clones switch the same one. Off at first.
///
/// While both directions are blocked, an endpoint that has it neither takes what peers sent nor sends what
/// its user gave it, old connections and new ones alike: nobody is notified of anything, as behind a network
/// that drops all. What had left before arrives. When it is switched off, everything goes on where it stood,
/// unless the peer has given up.
///
/// Blocked in one direction, an endpoint goes on with the other: it sends and takes nothing, or takes and
/// sends nothing. No connection is opened either way, because both ends must speak for that.
///
/// What a peer has mapped (`shm`) it can go on reading: no filter of the owner stands between. That is why
/// the rule of trust (see "Zombies" in ARCHITECTURE.md) asks for the lease after every read.
#[derive(Clone, Debug, Default)]
pub struct Partition(Arc<AtomicU8>);

impl Partition {
    /// Switches it. Endpoints notice within their user's next turn.
    pub fn set(&self, blocked: Blocked) {
        self.0.store(blocked.bits(), Ordering::Relaxed);
    }

    /// Whether it is on, in whatever direction.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether what others send is dropped.
    #[inline]
    #[must_use]
    pub fn blocks_inbound(&self) -> bool {
        self.0.load(Ordering::Relaxed) & INBOUND != 0
    }

    /// Whether what the host sends is dropped.
    #[inline]
    #[must_use]
    pub fn blocks_outbound(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OUTBOUND != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_blocks_what_it_names_at_every_clone() {
        let partition = Partition::default();
        let clone = partition.clone();
        let seen = Blocked::ALL.map(|blocked| {
            partition.set(blocked);
            (clone.is_on(), clone.blocks_inbound(), clone.blocks_outbound())
        });
        let expected = [(false, false, false), (true, true, false), (true, false, true), (true, true, true)];
        assert_eq!(seen, expected);
    }
}
