//! Whom a node waits for that was given other terms than its cluster has. The others may be processes that
//! have ended, and could not end their leases: those end by themselves. A lease that is renewed shows that
//! its process lives.

use std::collections::BTreeMap;
use std::fmt::Write;

use cell_cluster::OtherMember;
use cell_terms::Incarnation;

/// So often a lease is seen to be renewed before its process is taken for a living one. A coordinator that
/// has stood still gives every lease its whole length anew, once.
const RENEWALS: u32 = 2;

/// Clocks go unequally: an end that moved by a smaller part of the lease was not moved by a renewal.
const RENEWAL_PART: u64 = 16;

/// What was seen of the others' leases.
#[derive(Default)]
pub(crate) struct OthersWait {
    known: BTreeMap<Incarnation, SeenLease>,
}

struct SeenLease {
    /// It ends then at the latest, if it is not renewed.
    ends_ns: u64,
    /// The longest that it was seen to last.
    longest_ns: u64,
    renewals: u32,
}

impl OthersWait {
    /// Whether the leases of these others are waited for: there are some, and none of them is known to be
    /// renewed. Their lengths were answered at a time from `before_ns` until `after_ns`.
    pub(crate) fn goes_on(&mut self, others: &[OtherMember], before_ns: u64, after_ns: u64) -> bool {
        !others.is_empty() && !others.iter().any(|other| self.lives(other, before_ns, after_ns))
    }

    fn lives(&mut self, other: &OtherMember, before_ns: u64, after_ns: u64) -> bool {
        let [earliest_ns, ends_ns] =
            [before_ns, after_ns].map(|asked_ns| asked_ns.saturating_add(other.remaining_ns));
        let first = SeenLease { ends_ns, longest_ns: other.remaining_ns, renewals: 0 };
        let seen = self.known.entry(other.incarnation).or_insert(first);
        seen.longest_ns = seen.longest_ns.max(other.remaining_ns);
        // Nothing remains: the end is only not written down yet.
        let is_over = other.remaining_ns == 0;
        if !is_over && earliest_ns > seen.ends_ns.saturating_add(seen.longest_ns / RENEWAL_PART) {
            seen.ends_ns = ends_ns;
            seen.renewals += 1;
        }
        seen.renewals >= RENEWALS
    }
}

/// Who is waited for, and how long at most.
pub(crate) fn words(others: &[OtherMember]) -> String {
    let mut words = String::new();
    for other in others {
        let separator = if words.is_empty() { ": " } else { ", " };
        let ms = other.remaining_ns.div_ceil(1_000_000);
        let _ = write!(words, "{separator}{other} ({ms} ms more at most)"); // into memory
    }
    words
}

#[cfg(test)]
mod tests {
    use cell_terms::NodeId;

    use super::*;

    const LEASE_MS: u64 = 500;
    const MS: u64 = 1_000_000;

    fn other(number: u64, remaining_ms: u64) -> OtherMember {
        let node = u32::try_from(number).ok().map(NodeId);
        OtherMember { incarnation: Incarnation(number), node, remaining_ns: remaining_ms * MS }
    }

    #[test]
    fn leases_that_nobody_renews_are_waited_for_to_their_ends_however_long_answers_take() {
        let mut wait = OthersWait::default();
        for asked_ms in (0..LEASE_MS).step_by(50) {
            let others = [1, 2].map(|number| other(number, LEASE_MS - asked_ms));
            let took_ms = asked_ms % 150;
            assert!(wait.goes_on(&others, asked_ms * MS, (asked_ms + took_ms) * MS), "{asked_ms}");
        }
        // Its end is not written down yet.
        for late_ms in [0, 100, 200, 10_000].map(|late_ms| LEASE_MS + late_ms) {
            assert!(wait.goes_on(&[other(1, 0)], late_ms * MS, late_ms * MS));
        }
        assert!(!wait.goes_on(&[], LEASE_MS * MS, LEASE_MS * MS), "what can never change waits for nobody");
    }

    #[test]
    fn lease_that_is_renewed_is_of_a_process_that_lives() {
        let mut wait = OthersWait::default();
        let mut looks = 0;
        let refused_ms = (0..10 * LEASE_MS).step_by(60).find(|asked_ms| {
            looks += 1;
            // Node 1 has ended; node 2 renews each 100 ms.
            let others = [other(1, LEASE_MS.saturating_sub(*asked_ms)), other(2, LEASE_MS - asked_ms % 100)];
            !wait.goes_on(&others, asked_ms * MS, (asked_ms + 1) * MS)
        });
        assert!(refused_ms.is_some_and(|ms| (1..=LEASE_MS).contains(&ms)), "{refused_ms:?} after {looks}");
    }

    /// A coordinator gives leases their whole length anew when it has stood still, as after a restart.
    #[test]
    fn leases_that_a_coordinator_gave_anew_once_are_waited_for() {
        let mut wait = OthersWait::default();
        for (asked_ms, remaining_ms) in [(0, 500), (200, 300), (400, 500), (600, 300), (899, 1)] {
            assert!(wait.goes_on(&[other(1, remaining_ms)], asked_ms * MS, asked_ms * MS), "{asked_ms}");
        }
    }

    /// Of another machine: its clock loses a millisecond in ten seconds.
    #[test]
    fn clocks_that_go_unequally_are_no_renewals() {
        let mut wait = OthersWait::default();
        for second in 0..60 {
            let remaining_ms = 60_000 - second * 1_000 + second / 10;
            assert!(wait.goes_on(&[other(1, remaining_ms)], second * 1_000 * MS, second * 1_000 * MS));
        }
    }

    #[test]
    fn words_name_each_with_how_long_it_may_take() {
        let unreadable = OtherMember { node: None, ..other(2, 3) };
        assert_eq!(
            words(&[other(1, 400), unreadable]),
            ": node 1 (400 ms more at most), a member whose row does not read (3 ms more at most)"
        );
    }
}
