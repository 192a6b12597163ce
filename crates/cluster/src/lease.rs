//! How a node knows until when it surely holds its lease: a core without clock or I/O.
//!
//! The coordinator counts a lease from when the renewal *arrived*, the node from before it *asked*. So the
//! node's end comes first by the time that the request travelled, whatever that was:
//!
//! 1. the node reads its clock: 100 ms, and asks for a renewal of 500 ms;
//! 2. the request hangs in a queue; the coordinator renews at 390 ms: its end is 890 ms;
//! 3. the answer is read at 400 ms. Counted from here the node would rely on the lease until 900 ms, and
//!    answer a client at 895 ms while a survivor already serves the pair. Counted from 100 ms it stops at 600
//!    ms.
//!
//! A margin covers the drift of the two clocks against each other over one lease. A clock that stood still
//! ends the lease (`clock_watch`).
//!
//! A lease that has *run out* is one that the node relies on no more, and of which it does not know what the
//! coordinator thinks. The node is silent then, and keeps what it has in memory:
//!
//! 1. the keeper asks by looks alone. A look reads whether the lease is there and renews nothing: a renewal
//!    may be carried out though its answer never comes, and would keep others from what this node does not
//!    serve;
//! 2. a look is answered that the lease is there: one renewal is asked for. If that has no answer either,
//!    the keeper looks again;
//! 3. the renewal's own answer says that it was carried out: the lease holds again, from before *that* was
//!    asked. At no moment since the first grant had it ended, because a lease that has ended never comes
//!    back; so nobody has claimed what the node owns, and it goes on from memory;
//! 4. or a look is answered that the lease has ended: it is over, for good.

use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};

use crate::clock_watch::{ClockReading, ClockWatch};

/// Renewals in the time of one lease: several may fail before the lease is lost.
const RENEWALS_PER_LEASE: u64 = 5;
/// After a failed renewal the next one comes sooner.
const RETRIES_PER_LEASE: u64 = 20;

/// How long a lease lasts and how much of it is relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// What the coordinator grants.
    pub ttl_ms: u64,
    /// What is not relied on.
    pub margin_ns: u64,
}

/// What the shell does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseCommand {
    /// Ask for a lease.
    Grant,
    /// Ask for this lease's renewal.
    Renew(Incarnation),
    /// The lease has run out: ask whether it is there, by a read.
    Look(Incarnation),
    /// Nothing before this time.
    Wait {
        /// When to step again.
        until_ns: u64,
    },
    /// The lease has ended, for good. Nothing more is sent under this incarnation.
    Stop,
}

/// How asking went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// A lease was granted.
    Granted(Incarnation),
    /// The lease was renewed, with what the coordinator's clock said, if it did.
    Alive(Option<ClockReading>),
    /// The lease is there; it was not renewed.
    There,
    /// The lease has ended.
    Ended,
    /// No answer: it may or may not have been renewed.
    Failed,
}

/// The core: step it, do what it says, report to it how that went.
#[derive(Clone, Debug)]
pub struct LeaseKeeper {
    terms: LeaseTerms,
    lease: Option<Incarnation>,
    asked_ns: Option<u64>,
    due_ns: u64,
    /// When the first renewal after the last confirmed one was due, or will be.
    renewal_due_ns: u64,
    surely_until_ns: u64,
    /// A look has found the lease there since it ran out: one renewal may be asked for.
    is_there: bool,
    ended: bool,
    watch: ClockWatch,
    clock_lost_ns: Option<u64>,
}

impl LeaseTerms {
    /// Terms from the settings: the margin is a part of the lease.
    #[must_use]
    pub fn new(lease_ms: u64, drift_margin: f64) -> LeaseTerms {
        // In parts of a million, so that the terms are whole numbers from here on.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded to 0..=1e6 here")]
        let parts = (drift_margin.clamp(0.0, 1.0) * 1e6).ceil() as u64;
        LeaseTerms { ttl_ms: lease_ms, margin_ns: lease_ms * parts }
    }

    fn ttl_ns(self) -> u64 {
        self.ttl_ms * 1_000_000
    }

    /// For how long a lease is relied on.
    fn relied_on_ns(self) -> u64 {
        self.ttl_ns().saturating_sub(self.margin_ns)
    }

    /// What a renewal may take from when it is due: then the lease has run out.
    #[must_use]
    pub fn renewal_most_ns(self) -> u64 {
        self.relied_on_ns().saturating_sub(self.ttl_ns() / RENEWALS_PER_LEASE)
    }
}

impl LeaseKeeper {
    /// A keeper without a lease yet.
    #[must_use]
    pub fn new(terms: LeaseTerms) -> LeaseKeeper {
        let watch = ClockWatch::new(terms.margin_ns / terms.ttl_ms.max(1));
        LeaseKeeper {
            terms,
            lease: None,
            asked_ns: None,
            due_ns: 0,
            renewal_due_ns: 0,
            surely_until_ns: 0,
            is_there: false,
            ended: false,
            watch,
            clock_lost_ns: None,
        }
    }

    /// What to do at `now_ns`. The clock is read *before* this call, and what it asks for is asked after it.
    pub fn step(&mut self, now_ns: u64) -> LeaseCommand {
        if self.ended {
            return LeaseCommand::Stop;
        }
        if now_ns < self.due_ns {
            return LeaseCommand::Wait { until_ns: self.due_ns };
        }
        self.asked_ns = Some(now_ns);
        let Some(lease) = self.lease else { return LeaseCommand::Grant };
        if !self.has_run_out(now_ns) || self.is_there || planted(Mutant::SilentRenews) {
            return LeaseCommand::Renew(lease);
        }
        if planted(Mutant::ServedUnread) {
            self.confirm(now_ns);
        }
        LeaseCommand::Look(lease)
    }

    /// Whether there is a lease that is not relied on any more and may still be there.
    #[must_use]
    pub fn has_run_out(&self, now_ns: u64) -> bool {
        self.lease.is_some() && !self.ended && now_ns >= self.surely_until_ns
    }

    /// How the asking of the last step went.
    ///
    /// # Panics
    /// If nothing was asked: a defect of the shell.
    pub fn answered(&mut self, renewal: Renewal, now_ns: u64) {
        let asked_ns = self.asked_ns.take().expect("an answer follows a question");
        self.is_there = renewal == Renewal::There;
        match renewal {
            Renewal::Granted(lease) => {
                self.lease = Some(lease);
                self.confirm(asked_ns);
            }
            Renewal::Alive(reading) => {
                self.clock_lost_ns =
                    reading.and_then(|reading| self.watch.observe(asked_ns, now_ns, reading));
                match self.clock_lost_ns {
                    None => self.confirm(asked_ns),
                    // It was renewed, but what was relied on meanwhile was counted on a clock that stood
                    // still.
                    Some(_) => self.end(),
                }
            }
            Renewal::There if planted(Mutant::RenewedByLook) => self.confirm(asked_ns),
            Renewal::There => self.due_ns = now_ns,
            Renewal::Ended => self.end(),
            // It may have been carried out. What is relied on counts from renewals that say so themselves.
            Renewal::Failed if planted(Mutant::UnansweredRenewalBelieved) => self.confirm(asked_ns),
            Renewal::Failed => self.due_ns = now_ns + self.terms.ttl_ns() / RETRIES_PER_LEASE,
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.surely_until_ns = 0;
    }

    fn confirm(&mut self, asked_ns: u64) {
        self.surely_until_ns = self.surely_until_ns.max(asked_ns + self.terms.relied_on_ns());
        self.due_ns = asked_ns + self.terms.ttl_ns() / RENEWALS_PER_LEASE;
        self.renewal_due_ns = self.due_ns;
    }

    /// Since when a renewal is due that is not confirmed, or from when on one will be; none: there is no
    /// lease. Tries that had no answer do not change it.
    #[must_use]
    pub fn renewal_due_ns(&self) -> Option<u64> {
        (self.lease.is_some() && !self.ended).then_some(self.renewal_due_ns)
    }

    /// How much time the own clock has lost, if that is why the lease is over.
    #[must_use]
    pub fn clock_lost_ns(&self) -> Option<u64> {
        self.clock_lost_ns
    }

    /// The lease, once granted.
    #[must_use]
    pub fn lease(&self) -> Option<Incarnation> {
        self.lease
    }

    /// Until when the lease surely holds, on the clock that the steps were given. Zero: it does not.
    #[must_use]
    pub fn surely_holds_until_ns(&self) -> u64 {
        self.surely_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Coordinator;
    use crate::providers::sim::{Fault, Sim, SimLink};
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const LEASE: Incarnation = Incarnation(1);
    /// Beyond these a call goes through.
    const FAULTS: [Fault; 3] = [Fault::Lost, Fault::AnswerLost, Fault::Late];

    fn keeper() -> LeaseKeeper {
        let mut keeper = LeaseKeeper::new(LeaseTerms::new(500, 0.05));
        assert_eq!(keeper.step(100 * MS), LeaseCommand::Grant);
        keeper.answered(Renewal::Granted(LEASE), 150 * MS);
        keeper
    }

    #[test]
    fn answered_counts_from_before_the_question_minus_margin() {
        let mut keeper = keeper();
        assert_eq!(keeper.surely_holds_until_ns(), 575 * MS);
        assert_eq!(keeper.step(150 * MS), LeaseCommand::Wait { until_ns: 200 * MS });
        assert_eq!(keeper.step(200 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Alive(None), 490 * MS);
        assert_eq!(keeper.surely_holds_until_ns(), 675 * MS);
        assert_eq!(keeper.step(490 * MS), LeaseCommand::Renew(LEASE), "the answer was late: ask at once");
    }

    #[test]
    fn answered_failure_does_not_lengthen_and_is_retried_sooner() {
        let mut keeper = keeper();
        assert_eq!(keeper.step(200 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Failed, 210 * MS);
        assert_eq!(keeper.surely_holds_until_ns(), 575 * MS);
        assert_eq!(keeper.step(210 * MS), LeaseCommand::Wait { until_ns: 235 * MS });
    }

    #[test]
    fn renewal_due_is_from_the_last_confirmed_one_on_whatever_failed_since() {
        let mut keeper = LeaseKeeper::new(LeaseTerms::new(500, 0.05));
        assert_eq!(keeper.renewal_due_ns(), None);
        assert_eq!(keeper.step(100 * MS), LeaseCommand::Grant);
        keeper.answered(Renewal::Granted(LEASE), 150 * MS);
        for (asked_ms, renewal) in [(200, Renewal::Failed), (575, Renewal::Failed), (600, Renewal::There)] {
            assert_eq!(keeper.renewal_due_ns(), Some(200 * MS));
            let _ = keeper.step(asked_ms * MS);
            keeper.answered(renewal, asked_ms * MS);
        }
        assert_eq!(keeper.step(601 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Alive(None), 602 * MS);
        assert_eq!(keeper.renewal_due_ns(), Some(701 * MS));
        assert_eq!(keeper.step(701 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Ended, 702 * MS);
        assert_eq!(keeper.renewal_due_ns(), None);
    }

    #[test]
    fn renewal_most_is_from_when_it_is_due_until_the_lease_has_run_out() {
        assert_eq!(LeaseTerms::new(500, 0.05).renewal_most_ns(), 375 * MS);
        assert_eq!(LeaseTerms::new(500, 0.5).renewal_most_ns(), 150 * MS);
    }

    #[test]
    fn answered_failure_past_what_is_relied_on_asks_by_looks_alone() {
        let mut keeper = keeper();
        assert_eq!(keeper.step(574 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Failed, 874 * MS);
        assert!(keeper.has_run_out(874 * MS));
        for asked_ms in [899, 10_000, 100_000] {
            assert_eq!(keeper.step(asked_ms * MS), LeaseCommand::Look(LEASE));
            keeper.answered(Renewal::Failed, asked_ms * MS);
        }
        assert_eq!(keeper.surely_holds_until_ns(), 575 * MS, "a read renews nothing");
    }

    #[test]
    fn answered_look_that_finds_the_lease_there_permits_one_renewal_and_only_that_renews() {
        let mut keeper = keeper();
        for _ in 0..2 {
            assert_eq!(keeper.step(2_000 * MS), LeaseCommand::Look(LEASE));
            keeper.answered(Renewal::There, 2_001 * MS);
            assert_eq!(keeper.surely_holds_until_ns(), 575 * MS);
            assert_eq!(keeper.step(2_001 * MS), LeaseCommand::Renew(LEASE));
            keeper.answered(Renewal::Failed, 2_001 * MS);
            keeper.due_ns = 0;
        }
        assert_eq!(keeper.step(3_000 * MS), LeaseCommand::Look(LEASE));
        keeper.answered(Renewal::There, 3_100 * MS);
        assert_eq!(keeper.step(3_200 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Alive(None), 3_300 * MS);
        assert_eq!(keeper.surely_holds_until_ns(), 3_675 * MS, "from before the renewal was asked for");
        assert!(!keeper.has_run_out(3_674 * MS));
    }

    #[test]
    fn answered_renewal_that_came_too_late_to_be_of_use_is_followed_by_a_look() {
        let mut keeper = keeper();
        assert_eq!(keeper.step(574 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Alive(None), 5_000 * MS);
        assert_eq!(keeper.step(5_000 * MS), LeaseCommand::Look(LEASE), "it has run out again meanwhile");
        keeper.answered(Renewal::Ended, 5_001 * MS);
        assert_eq!((keeper.step(9_000 * MS), keeper.surely_holds_until_ns()), (LeaseCommand::Stop, 0));
    }

    #[test]
    fn answered_ended_is_final() {
        let mut keeper = keeper();
        assert_eq!(keeper.step(200 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Ended, 210 * MS);
        assert_eq!(keeper.surely_holds_until_ns(), 0);
        assert_eq!(keeper.step(900 * MS), LeaseCommand::Stop);
    }

    /// A virtual machine that was stopped for less than a lease: the coordinator renewed it, but meanwhile
    /// the node relied on it by a clock that stood still.
    #[test]
    fn answered_by_a_clock_that_went_further_is_final() {
        let mut keeper = keeper();
        let at = |now_ms: u64| Renewal::Alive(Some(ClockReading { clock: 1, now_ns: now_ms * MS }));
        for (asked_ms, there_ms) in [(200, 7_201), (300, 7_301)] {
            assert_eq!(keeper.step(asked_ms * MS), LeaseCommand::Renew(LEASE));
            keeper.answered(at(there_ms), (asked_ms + 2) * MS);
        }
        assert_eq!((keeper.surely_holds_until_ns(), keeper.clock_lost_ns()), (775 * MS, None));
        assert_eq!(keeper.step(400 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(at(7_701), 402 * MS);
        assert_eq!((keeper.surely_holds_until_ns(), keeper.clock_lost_ns()), (0, Some(278 * MS)));
        assert_eq!(keeper.step(403 * MS), LeaseCommand::Stop);
    }

    /// Asks as a shell does.
    fn ask(link: &SimLink, command: LeaseCommand) -> Renewal {
        match command {
            LeaseCommand::Grant => {
                link.grant(100).map_or(Renewal::Failed, |grant| Renewal::Granted(grant.lease))
            }
            LeaseCommand::Look(lease) => Renewal::of_look(&link.remaining_ns(lease)),
            LeaseCommand::Renew(lease) => Renewal::of_renewal(&link.keep_alive_timed(lease)),
            LeaseCommand::Wait { .. } | LeaseCommand::Stop => panic!("nothing is asked"),
        }
    }

    /// A step of the story below: how long a question travels, its answer, and what comes after; the fault
    /// of the call, if any; and whether the coordinator stands still for a while, and for how long.
    type Step = (u64, u64, u64, usize, u64);

    /// Whether at each moment in which the node relies on its lease the coordinator has not ended it, with
    /// the coordinator's clock up to the margin faster.
    fn never_outlasts(steps: &[Step]) -> Result<(), String> {
        let sim = Sim::new(1);
        let (link, honest) = (sim.link(), sim.link());
        let mut keeper = LeaseKeeper::new(LeaseTerms::new(100, 0.05));
        let mut now = 1_000 * MS;
        let check = |keeper: &LeaseKeeper, now: u64| {
            sim.set_now(now + now / 21); // 4.8 % faster
            let Some(lease) = keeper.lease().filter(|_| sim.answers()) else { return Ok(()) };
            let holds = now < keeper.surely_holds_until_ns();
            if holds && honest.remaining_ns(lease).unwrap().is_none() {
                return Err(format!("relied on until {} at {now}", keeper.surely_holds_until_ns()));
            }
            Ok(())
        };
        for &(there, back, pause, fault, still) in steps {
            if still > 0 {
                sim.stand_still();
            }
            let command = keeper.step(now);
            if !matches!(command, LeaseCommand::Wait { .. } | LeaseCommand::Stop) {
                now += there * MS;
                check(&keeper, now)?;
                link.plan(FAULTS.get(fault).copied());
                let renewal = ask(&link, command);
                now += back * MS;
                keeper.answered(renewal, now);
            }
            check(&keeper, now)?;
            now += (pause + still) * MS;
            check(&keeper, now)?;
            sim.go_on();
            check(&keeper, now)?;
        }
        Ok(())
    }

    proptest! {
        /// Whatever is lost and delayed, however long the coordinator stands still, and however often the
        /// lease runs out.
        #[test]
        fn surely_holds_never_outlasts_the_coordinator(
            steps in proptest::collection::vec(
                (0_u64..40, 0_u64..40, 0_u64..30, 0_usize..6, prop_oneof![8 => Just(0_u64), 1 => 1_u64..400]),
                1..200,
            )
        ) {
            prop_assert_eq!(never_outlasts(&steps), Ok(()));
        }
    }

    /// A node that is cut off both ways until the coordinator has ended its lease, and looks then.
    fn cut_off_until_the_end() -> Vec<Step> {
        let cut = std::iter::repeat_n((0, 0, 10, 0, 0), 30);
        std::iter::once((0, 0, 1, 9, 0)).chain(cut).chain([(0, 0, 1, 9, 0); 4]).collect()
    }

    /// A node of which no renewal arrives any more.
    fn unanswered() -> Vec<Step> {
        std::iter::once((0, 0, 20, 9, 0)).chain(std::iter::repeat_n((0, 0, 5, 0, 0), 60)).collect()
    }

    /// A node that does not hear of its last renewal, finds the lease there when it has run out, and is cut
    /// off then.
    fn cut_off_but_for_a_look() -> Vec<Step> {
        let seen = [(0, 0, 80, 9, 0), (0, 0, 20, 1, 0), (0, 0, 1, 9, 0)];
        seen.into_iter().chain(std::iter::repeat_n((0, 0, 5, 0, 0), 30)).collect()
    }

    /// How long a lease lasts whose node gets no answers any more.
    fn deaf_node_lasts_ms() -> u64 {
        let sim = Sim::new(1);
        let link = sim.link();
        let mut keeper = LeaseKeeper::new(LeaseTerms::new(100, 0.05));
        keeper.step(0);
        keeper.answered(ask(&link, LeaseCommand::Grant), 0);
        let lease = keeper.lease().unwrap();
        for now in 0..1_000 {
            sim.set_now(now * MS);
            let command = keeper.step(now * MS);
            if !matches!(command, LeaseCommand::Wait { .. } | LeaseCommand::Stop) {
                link.plan([Fault::AnswerLost]);
                let renewal = ask(&link, command);
                keeper.answered(renewal, now * MS);
            }
            if sim.link().remaining_ns(lease).unwrap().is_none() {
                return now;
            }
        }
        u64::MAX
    }

    #[test]
    fn lease_of_a_node_that_gets_no_answers_ends_a_lease_after_it_ran_out() {
        assert!(deaf_node_lasts_ms() <= 95 + 100);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutants_of_a_lease_that_ran_out_are_caught() {
        use cell_terms::mutant::plant;
        type Story = fn() -> bool;
        let twins: &[(Mutant, Story)] = &[
            (Mutant::ServedUnread, || never_outlasts(&cut_off_until_the_end()).is_ok()),
            (Mutant::RenewedByLook, || never_outlasts(&cut_off_but_for_a_look()).is_ok()),
            (Mutant::UnansweredRenewalBelieved, || never_outlasts(&unanswered()).is_ok()),
            (Mutant::SilentRenews, || deaf_node_lasts_ms() <= 95 + 100),
        ];
        cell_terms::mutant::in_own_process(|| {
            for (mutant, is_clean) in twins {
                plant(None);
                assert!(is_clean(), "{}: the story itself", mutant.name());
                plant(Some(*mutant));
                let caught = !is_clean();
                plant(None);
                assert!(caught, "{} was not caught", mutant.name());
                println!("mutant {} caught by cell-cluster's lease keeper", mutant.name());
            }
        });
    }
}
