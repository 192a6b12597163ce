//! Whom a node waits for that was given other terms than its cluster has. The others may be processes that
//! have ended, and could not end their leases: those end by themselves. A lease that is renewed shows that
//! its process lives. How long it still lasts shows nothing: a coordinator that stood still, or an etcd that
//! did not answer for a while, has a lease of a dead process last longer each time.

use std::collections::BTreeMap;
use std::fmt::Write;

use cell_cluster::OtherMember;
use cell_terms::Incarnation;

/// So often a lease is seen to be renewed before its process is taken for a living one. The last renewal of a
/// dead one may be carried out late, and the one before it, which was asked over a connection that broke.
const RENEWALS: u64 = 3;

/// What was seen of the others' leases.
#[derive(Default)]
pub(crate) struct OthersWait {
    known: BTreeMap<Incarnation, SeenRenewals>,
}

struct SeenRenewals {
    /// What the coordinator said last.
    said: u64,
    /// How many have come since it was first asked.
    come: u64,
}

impl OthersWait {
    /// Whether the leases of these others are waited for: there are some, and none of them is known to be
    /// renewed.
    pub(crate) fn goes_on(&mut self, others: &[OtherMember]) -> bool {
        !others.is_empty() && !others.iter().any(|other| self.lives(other))
    }

    fn lives(&mut self, other: &OtherMember) -> bool {
        let said = other.lease.renewals;
        let seen = self.known.entry(other.incarnation).or_insert(SeenRenewals { said, come: 0 });
        // A coordinator that was started again counts from nothing.
        seen.come += said.saturating_sub(seen.said);
        seen.said = said;
        seen.come >= RENEWALS
    }
}

/// Who is waited for, and how long at most.
pub(crate) fn words(others: &[OtherMember]) -> String {
    let mut words = String::new();
    for other in others {
        let separator = if words.is_empty() { ": " } else { ", " };
        let ms = other.lease.remaining_ns.div_ceil(1_000_000);
        let _ = write!(words, "{separator}{other} ({ms} ms more at most)"); // into memory
    }
    words
}

#[cfg(test)]
mod tests {
    use cell_cluster::LivingLease;
    use cell_terms::NodeId;

    use super::*;

    fn other(number: u64, remaining_ms: u64, renewals: u64) -> OtherMember {
        let node = u32::try_from(number).ok().map(NodeId);
        let lease = LivingLease { remaining_ns: remaining_ms * 1_000_000, renewals };
        OtherMember { incarnation: Incarnation(number), node, lease }
    }

    #[test]
    fn leases_that_nobody_renews_are_waited_for_to_their_ends() {
        let mut wait = OthersWait::default();
        for remaining_ms in (0..=500).rev().step_by(50) {
            assert!(wait.goes_on(&[1, 2].map(|number| other(number, remaining_ms, 7 * number))));
        }
        // Its end is not written down yet.
        assert!((0..10).all(|_| wait.goes_on(&[other(1, 0, 7)])));
        assert!(!wait.goes_on(&[]), "what can never change waits for nobody");
    }

    #[test]
    fn lease_that_is_renewed_is_of_a_process_that_lives() {
        let mut wait = OthersWait::default();
        // Node 1 has ended; node 2 renews.
        let refused = (0_u64..10).find(|look| !wait.goes_on(&[other(1, 400, 3), other(2, 500, 3 + *look)]));
        assert_eq!(refused, Some(3));
    }

    /// A process that has ended was taken for a living one, and its lease ended a moment later: two gaps of
    /// etcd, or of the coordinator's own process, had each let it last longer, and so had each refusal of an
    /// etcd without room.
    #[test]
    fn leases_that_last_longer_without_a_renewal_are_waited_for_however_often() {
        let mut wait = OthersWait::default();
        for remaining_ms in [5_000, 3_000, 5_000, 2_000, 5_000, 1_000, 5_000, 5_000, 1] {
            assert!(wait.goes_on(&[other(1, remaining_ms, 3)]), "{remaining_ms}");
        }
    }

    /// Their answers were lost with their process.
    #[test]
    fn renewals_that_come_late_are_of_no_process_that_lives() {
        let mut wait = OthersWait::default();
        assert!([3, 4, 5, 5, 5].iter().all(|renewals| wait.goes_on(&[other(1, 500, *renewals)])));
    }

    #[test]
    fn coordinator_that_was_started_again_counts_anew() {
        let mut wait = OthersWait::default();
        assert!([900, 0, 0, 0].iter().all(|renewals| wait.goes_on(&[other(1, 500, *renewals)])), "dead");
        assert!([900, 0, 1, 2].iter().all(|renewals| wait.goes_on(&[other(2, 500, *renewals)])));
        assert!(!wait.goes_on(&[other(2, 500, 3)]), "it lives");
    }

    #[test]
    fn words_name_each_with_how_long_it_may_take() {
        let unreadable = OtherMember { node: None, ..other(2, 3, 0) };
        assert_eq!(
            words(&[other(1, 400, 0), unreadable]),
            ": node 1 (400 ms more at most), a member whose row does not read (3 ms more at most)"
        );
    }
}
