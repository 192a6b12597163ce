//! What writes wait for at a node whose memory is full while others have room: balance lets a pair leave
//! (`docs/design/balance.md`, "A full node").

use std::collections::{BTreeMap, BTreeSet};

use crate::directory::MeganodeAt;

/// A put waits so long. The pair may not be able to leave, and then nobody knows for how long.
const WAIT_NS: u64 = 30_000_000_000;
/// After one that has waited in vain none waits at that meganode for so long.
const REST_NS: u64 = 30_000_000_000;
/// While a pair leaves, its target has less left already, and this node has no more yet: what is known of the
/// others is a second old, too. So a put waits for so long after there was hope.
const HOPE_NS: u64 = 3_000_000_000;

/// The meganodes at which puts wait for that, or have waited in vain.
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// Since when.
    since: BTreeMap<MeganodeAt, u64>,
    hopes_until_ns: u64,
}

impl Relief {
    /// Whether a put that finds no room in a meganode waits; `may_come`: whether a pair could leave, or does.
    pub(super) fn awaits(&mut self, there: MeganodeAt, may_come: bool, now_ns: u64) -> bool {
        if may_come {
            self.hopes_until_ns = now_ns.saturating_add(HOPE_NS);
        }
        if now_ns >= self.hopes_until_ns {
            self.since.remove(&there);
            return false;
        }
        let since_ns = *self.since.entry(there).or_insert(now_ns);
        now_ns.saturating_sub(since_ns) < WAIT_NS
    }

    /// Who has found room waits anew the next time; who has waited in vain does not at once.
    pub(super) fn forget(&mut self, full: &BTreeSet<MeganodeAt>, now_ns: u64) {
        self.since.retain(|there, since_ns| {
            let waited_ns = now_ns.saturating_sub(*since_ns);
            if waited_ns < WAIT_NS { full.contains(there) } else { waited_ns < WAIT_NS + REST_NS }
        });
    }

    /// A pair leaves. There is memory soon: who has waited for it waits anew.
    pub(super) fn pair_leaves(&mut self) {
        self.since.clear();
    }

    /// Whether there are any: also such as have waited in vain, because a pair that leaves helps them still.
    pub(super) fn is_awaited(&self) -> bool {
        !self.since.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn put_waits_while_a_pair_may_leave_and_not_for_ever() {
        let there = MeganodeAt::default();
        let full = BTreeSet::from([there]);
        let mut relief = Relief::default();
        assert!(!relief.awaits(there, false, SECOND) && !relief.is_awaited(), "no pair can leave");
        for second in 1..=30 {
            assert!(relief.awaits(there, true, second * SECOND), "after {second} s");
            relief.forget(&full, second * SECOND);
            assert!(relief.is_awaited());
        }
        for second in 31..61 {
            assert!(!relief.awaits(there, true, second * SECOND), "after {second} s");
            relief.forget(&BTreeSet::new(), second * SECOND);
            assert!(relief.is_awaited(), "a pair that leaves would help still");
        }
        relief.forget(&full, 61 * SECOND);
        assert!(!relief.is_awaited() && relief.awaits(there, true, 61 * SECOND), "it waits anew");
        assert!(!relief.awaits(there, true, 91 * SECOND));
        relief.pair_leaves();
        assert!(relief.awaits(there, true, 91 * SECOND), "it helped");
    }

    #[test]
    fn put_waits_on_for_a_moment_when_no_pair_may_leave_any_more() {
        let there = MeganodeAt::default();
        let mut relief = Relief::default();
        assert!(relief.awaits(there, true, SECOND));
        assert!(relief.awaits(there, false, SECOND + HOPE_NS - 1));
        assert!(!relief.awaits(there, false, SECOND + HOPE_NS) && !relief.is_awaited());
        // One that has found room has waited for nothing.
        assert!(relief.awaits(there, true, 10 * SECOND));
        relief.forget(&BTreeSet::new(), 10 * SECOND);
        assert!(!relief.is_awaited());
    }
}
