//! Which leases nobody renews: a core without clock or I/O.
//!
//! etcd's own leases end early, so a lease is a row, and whoever has seen it unchanged for its whole length
//! ends it. That is safe because of whose clock counts from when:
//!
//! 1. the holder reads its clock at 100 ms, and asks for a renewal of 5 s; it relies on the lease until 5.1 s
//!    at most, less a margin;
//! 2. etcd carries it out at 400 ms. An observer asks at 300 ms, and is answered at 500 ms: it sees the
//!    renewal, and counts from 500 ms. Counted from when it asked, it would end the lease at 5.3 s;
//!    had the holder asked at 350 ms, that would be before the holder's own end;
//! 3. the row is over when a question that was asked at 5.5 s or later finds it as it was;
//! 4. the transaction that ends it is conditional on that. A renewal that comes first wins, and one that
//!    comes later finds no row: a lease that has ended never comes back.
//!
//! After a time of more than a fifth of the lease in which an observer had no answer, two renewals' time is
//! left at least: while it could not ask, the holder could not renew either, and etcd's outage is nobody's
//! end. An observer that had no answer for a whole lease begins anew, as nodes are silent by then, and come
//! back one by one. Otherwise such a gap counts: a node that dies beside an election of etcd, or on a disk
//! that keeps etcd waiting, is to keep its pairs for no longer than its lease. By (1) to (4) that is safe.
//! A time in which the observer's own process stood still is such a gap, too: others may have stood still
//! with it, on one machine.
//!
//! Gaps that come again and again put an end off twice its length at most, in which no gap counts for more
//! than a fifth: that takes eleven answers, and by then a holder that lives could have renewed it. Otherwise
//! an etcd that stalls all the time would keep a dead node's pairs for ever.
//!
//! Where etcd answers reads and lets nobody write, for want of space, each refusal of a renewal of the
//! observer's own, or of an end, has it begin anew: when there is room again, nodes have most of a lease to
//! renew theirs.

use std::collections::BTreeMap;

use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};

use crate::providers::etcd::lease_row::SeenLease;

/// A gap of more than this part of a lease's length was long for it: its holder renews as often.
const GAP_PARTS: u64 = 5;
/// So many of those parts are left to a holder after a gap.
const LEFT_AFTER_GAP: u64 = 2;
/// A lease that was seen unchanged for so many lengths is over, whatever gaps there were; of a gap one of
/// those parts counts.
const LENGTHS_COUNTED_MAX: u64 = 2;
/// Leases are looked at so often in the time of the shortest one.
const LOOKS_PER_LEASE: u64 = 10;
/// After a look without an answer the next one comes so many times sooner: one alone, which takes a deadline,
/// is to be no gap.
const SOONER_AFTER_FAILURE: u64 = 5;
/// How often they are looked at, whatever their lengths.
const LOOK_EVERY_NS: std::ops::RangeInclusive<u64> = 10_000_000..=1_000_000_000;

/// What an observer has seen of one lease.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    lease: SeenLease,
    /// When it was first answered that the row is as it is.
    first_ns: u64,
    /// From when on it counts: from then, or later because of gaps.
    since_ns: u64,
    /// When it was last answered so.
    last_ns: u64,
    /// The time from the first to the last one, of a gap a part alone.
    counted_ns: u64,
}

impl Sighting {
    fn first(lease: SeenLease, answered_ns: u64) -> Sighting {
        let [first_ns, since_ns, last_ns] = [answered_ns; 3];
        Sighting { lease, first_ns, since_ns, last_ns, counted_ns: 0 }
    }

    /// It was found so again.
    fn again(self, answered_ns: u64) -> Sighting {
        let step_ns = answered_ns.saturating_sub(self.last_ns).min(self.lease.ttl_ns() / GAP_PARTS);
        Sighting {
            since_ns: self.counts_from_ns(answered_ns),
            last_ns: answered_ns,
            counted_ns: self.counted_ns.saturating_add(step_ns),
            ..self
        }
    }

    /// Whether it is over, as was found by a question that was asked then. It never is before its whole
    /// length since the first answer.
    fn is_over(&self, asked_ns: u64) -> bool {
        let ttl_ns = self.lease.ttl_ns();
        let has_lasted = |from_ns: u64| asked_ns >= from_ns.saturating_add(ttl_ns);
        let is_counted =
            self.counted_ns >= ttl_ns.saturating_mul(LENGTHS_COUNTED_MAX) && !planted(Mutant::GapsKeepLeases);
        has_lasted(self.since_ns) || (is_counted && has_lasted(self.first_ns))
    }

    /// From when on the lease counts that was found so again: later than before if a gap without an answer
    /// would leave too little.
    fn counts_from_ns(&self, answered_ns: u64) -> u64 {
        let (ttl_ns, gap_ns) = (self.lease.ttl_ns(), answered_ns.saturating_sub(self.last_ns));
        let part_ns = ttl_ns / GAP_PARTS;
        if gap_ns <= part_ns || planted(Mutant::OutageEndsLeases) {
            return self.since_ns;
        }
        if gap_ns >= ttl_ns && !planted(Mutant::LongOutageCountedOver) {
            return answered_ns;
        }
        let left = if planted(Mutant::HolderRushedAfterGap) { 0 } else { LEFT_AFTER_GAP };
        answered_ns.saturating_sub(ttl_ns - left * part_ns).max(self.since_ns)
    }
}

/// The leases that one observer sees.
#[derive(Debug, Default)]
pub(super) struct LeaseWatch {
    seen: BTreeMap<Incarnation, Sighting>,
}

impl LeaseWatch {
    /// Takes in all leases as they were found by a question asked at `asked_ns` and answered at
    /// `answered_ns`. Which of them are over: to be ended if they are still as they were found.
    pub(super) fn observe(
        &mut self,
        asked_ns: u64,
        answered_ns: u64,
        leases: &[SeenLease],
    ) -> Vec<SeenLease> {
        let before = std::mem::take(&mut self.seen);
        let mut over = Vec::new();
        for lease in leases {
            let known = before.get(&lease.lease).filter(|known| known.lease.revision == lease.revision);
            let first = || Sighting::first(*lease, answered_ns);
            let seen = known.map_or_else(first, |known| known.again(answered_ns));
            if seen.is_over(asked_ns) {
                over.push(*lease);
            }
            self.seen.insert(lease.lease, seen);
        }
        over
    }

    /// What is written is refused, though reads are answered: nobody can renew, and all leases count anew.
    pub(super) fn begin_anew(&mut self) {
        self.seen.clear();
    }

    /// For how long a lease will last that was found so at this time, if nobody renews it.
    pub(super) fn remaining_ns(&self, found: &SeenLease, now_ns: u64) -> u64 {
        let seen = self.seen.get(&found.lease).filter(|seen| seen.lease.revision == found.revision);
        let since_ns = seen.map_or(now_ns, |seen| seen.since_ns);
        since_ns.saturating_add(found.ttl_ns()).saturating_sub(now_ns)
    }

    /// How long to wait until the leases are looked at again, after a look that was answered or one that was
    /// not.
    pub(super) fn look_after_ns(&self, was_answered: bool) -> u64 {
        let shortest = self.seen.values().map(|seen| seen.lease.ttl_ns()).min();
        let wanted = shortest.unwrap_or(u64::MAX) / LOOKS_PER_LEASE;
        let wait_ns = wanted.clamp(*LOOK_EVERY_NS.start(), *LOOK_EVERY_NS.end());
        if was_answered { wait_ns } else { wait_ns / SOONER_AFTER_FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    const MS: u64 = 1_000_000;
    const ID: Incarnation = Incarnation(7);

    fn lease(revision: u64) -> SeenLease {
        SeenLease::new(ID, 5_000).at(revision)
    }

    /// When a lease is found to be over that is looked at from 1 s on each 500 ms, each look taking 100 ms,
    /// as `revision` says of that time; none: not within two minutes.
    fn over_at_ms(revision: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut watch = LeaseWatch::default();
        (1_000..120_000).step_by(500).find(|at| {
            // None: the look had no answer.
            let Some(revision) = revision(*at) else { return false };
            !watch.observe(at * MS, (at + 100) * MS, &[lease(revision)]).is_empty()
        })
    }

    #[test]
    fn observe_counts_the_whole_length_from_an_answer_to_a_question() {
        assert_eq!(over_at_ms(|_| Some(1)), Some(6_500), "seen at 1.1 s; the question at 6 s is too early");
    }

    #[test]
    fn observe_of_a_lease_that_is_renewed_counts_anew() {
        assert_eq!(over_at_ms(|at| Some(at / 4_000)), None);
        assert_eq!(over_at_ms(|at| Some(u64::from(at >= 4_000))), Some(9_500));
    }

    /// etcd was away for 3 s, and all who hold leases could not renew them.
    fn outage_of_etcd() -> Option<u64> {
        over_at_ms(|at| (!(3_000..6_000).contains(&at)).then_some(1))
    }

    #[test]
    fn observe_counts_a_gap_and_leaves_two_renewals_after_it() {
        assert_eq!(outage_of_etcd(), Some(8_500), "answered again at 6.1 s");
        assert_eq!(over_after_gap(2_000..4_000), Some(6_500), "an election early in the lease costs nothing");
        assert_eq!(over_at_ms(|at| (at != 3_000).then_some(1)), Some(6_500), "one second is no gap of 5 s");
    }

    /// When a lease is over that nobody renews, where looks have no answer in this time.
    fn over_after_gap(gap: Range<u64>) -> Option<u64> {
        over_at_ms(move |at| (!gap.contains(&at)).then_some(1))
    }

    #[test]
    fn observe_leaves_two_renewals_late_in_a_lease_and_counts_anew_after_a_gap_of_a_whole_one() {
        assert_eq!(over_after_gap(5_500..7_500), Some(10_000), "1 s was left; answered again at 7.6 s");
        assert_eq!(over_after_gap(3_000..7_000), Some(9_500), "less than a lease");
        assert_eq!(over_after_gap(3_000..8_000), Some(13_500), "more than a lease");
    }

    /// When a lease is over that nobody renews, where a look in so many milliseconds has an answer.
    fn over_where_answers_come_each(ms: u64) -> Option<u64> {
        over_at_ms(move |at| (at % ms < 500).then_some(1))
    }

    /// Each gap left two renewals' time, or began anew: a dead node kept its lease for ever.
    #[test]
    fn observe_through_gaps_without_end_ends_after_eleven_answers() {
        assert_eq!(over_where_answers_come_each(2_000), Some(22_000), "the first one was at 2 s");
        assert_eq!(over_where_answers_come_each(6_000), Some(66_000), "each gap is longer than the lease");
        let renewed = over_at_ms(|at| (at % 2_000 < 500).then_some(at / 8_000));
        assert_eq!(renewed, None, "each fourth answer has another renewal");
    }

    /// It takes the 300 ms of a call's deadline.
    #[test]
    fn look_that_fails_once_is_no_gap() {
        let (mut watch, mut now_ns, mut has_failed) = (LeaseWatch::default(), 0, false);
        while watch.observe(now_ns, now_ns, &[lease(1)]).is_empty() {
            now_ns += watch.look_after_ns(true);
            if now_ns >= 2_000 * MS && !has_failed {
                has_failed = true;
                now_ns += 300 * MS + watch.look_after_ns(false);
            }
        }
        assert!(has_failed);
        assert_eq!(now_ns, 5_400 * MS, "the first look after the whole length");
    }

    #[test]
    fn observe_forgets_leases_that_are_gone() {
        let mut watch = LeaseWatch::default();
        assert!(watch.observe(MS, MS, &[lease(1)]).is_empty());
        assert!(watch.observe(2 * MS, 2 * MS, &[]).is_empty());
        assert!(watch.seen.is_empty());
        assert_eq!(watch.look_after_ns(true), 1_000 * MS);
    }

    #[test]
    fn remaining_is_from_when_it_was_seen_so() {
        let mut watch = LeaseWatch::default();
        watch.observe(900 * MS, 1_000 * MS, &[lease(1)]);
        assert_eq!(watch.remaining_ns(&lease(1), 3_000 * MS), 3_000 * MS);
        assert_eq!(watch.remaining_ns(&lease(2), 3_000 * MS), 5_000 * MS, "it was renewed since");
        assert_eq!(watch.remaining_ns(&lease(1), 9_000 * MS), 0);
        assert_eq!(watch.look_after_ns(true), 500 * MS);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_outage_ends_leases_is_caught() {
        use cell_terms::mutant::{in_own_process, plant};
        in_own_process(|| {
            plant(Some(Mutant::OutageEndsLeases));
            let caught = outage_of_etcd() != Some(8_500);
            plant(None);
            assert!(caught);
            println!("mutant {} caught by cell-cluster's watch of leases", Mutant::OutageEndsLeases.name());
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_gaps_keep_leases_is_caught() {
        use cell_terms::mutant::{in_own_process, plant};
        in_own_process(|| {
            plant(Some(Mutant::GapsKeepLeases));
            let kept = over_where_answers_come_each(2_000);
            plant(None);
            assert_eq!(kept, None);
            println!("mutant {} caught by cell-cluster's watch of leases", Mutant::GapsKeepLeases.name());
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutants_of_what_is_left_after_a_gap_are_caught() {
        use cell_terms::mutant::{in_own_process, plant};
        in_own_process(|| {
            let gaps =
                [(Mutant::HolderRushedAfterGap, 5_500..7_500), (Mutant::LongOutageCountedOver, 3_000..8_000)];
            for (mutant, gap) in gaps {
                let sound = over_after_gap(gap.clone());
                plant(Some(mutant));
                let with_defect = over_after_gap(gap);
                plant(None);
                let is_early = with_defect.is_some_and(|at_ms| Some(at_ms) < sound);
                assert!(is_early, "{}: {with_defect:?}, not {sound:?}", mutant.name());
                println!("mutant {} caught by cell-cluster's watch of leases", mutant.name());
            }
        });
    }
}
