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
//! A renewal may be carried out though its answer never comes. A keeper that relies on nothing any more, and
//! has no answer, asks for no further one: it would only keep others from what this process does not serve.

use cell_terms::Incarnation;

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
    surely_until_ns: u64,
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
            surely_until_ns: 0,
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
        self.lease.map_or(LeaseCommand::Grant, LeaseCommand::Renew)
    }

    /// How the asking of the last step went.
    ///
    /// # Panics
    /// If nothing was asked: a defect of the shell.
    pub fn answered(&mut self, renewal: Renewal, now_ns: u64) {
        let asked_ns = self.asked_ns.take().expect("an answer follows a question");
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
            Renewal::Ended => self.end(),
            Renewal::Failed if self.lease.is_some() && now_ns >= self.surely_until_ns => self.end(),
            Renewal::Failed => self.due_ns = now_ns + self.terms.ttl_ns() / RETRIES_PER_LEASE,
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.surely_until_ns = 0;
    }

    fn confirm(&mut self, asked_ns: u64) {
        let relied_on = self.terms.ttl_ns().saturating_sub(self.terms.margin_ns);
        self.surely_until_ns = self.surely_until_ns.max(asked_ns + relied_on);
        self.due_ns = asked_ns + self.terms.ttl_ns() / RENEWALS_PER_LEASE;
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
    use crate::sim::{Fault, Sim};
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

    /// The way back from the coordinator was cut: each renewal was carried out, and for as long as the
    /// process took to end nobody else could take its pairs over.
    #[test]
    fn answered_failure_past_what_is_relied_on_asks_for_no_further_renewal() {
        let mut keeper = keeper();
        assert_eq!(keeper.step(574 * MS), LeaseCommand::Renew(LEASE));
        keeper.answered(Renewal::Failed, 574 * MS);
        assert_eq!(keeper.step(600 * MS), LeaseCommand::Renew(LEASE), "an answer may still come");
        keeper.answered(Renewal::Failed, 880 * MS);
        assert_eq!((keeper.step(10_000 * MS), keeper.surely_holds_until_ns()), (LeaseCommand::Stop, 0));
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

    proptest! {
        /// Whatever is lost and delayed, and with the coordinator's clock up to the margin faster: at every
        /// moment in which the node relies on its lease, the coordinator has not ended it.
        #[test]
        fn surely_holds_never_outlasts_the_coordinator(
            steps in proptest::collection::vec((0_u64..40, 0_u64..40, 0_u64..30, 0_usize..6), 1..200)
        ) {
            let sim = Sim::new(1);
            let link = sim.link();
            let mut keeper = LeaseKeeper::new(LeaseTerms::new(100, 0.05));
            let mut now = 1_000 * MS;
            let check = |keeper: &LeaseKeeper, now: u64| {
                sim.set_now(now + now / 21); // 4.8 % faster
                if let Some(lease) = keeper.lease() && now < keeper.surely_holds_until_ns() {
                    prop_assert!(sim.link().remaining_ns(lease).unwrap().is_some());
                }
                Ok(())
            };
            for (there, back, pause, fault) in steps {
                let command = keeper.step(now);
                if matches!(command, LeaseCommand::Grant | LeaseCommand::Renew(_)) {
                    now += there * MS;
                    check(&keeper, now)?;
                    link.plan(FAULTS.get(fault).copied());
                    let result = match command {
                        LeaseCommand::Grant => link.grant(100).map(|grant| Renewal::Granted(grant.lease)),
                        _ => link.keep_alive_timed(keeper.lease().unwrap()).map(Renewal::Alive),
                    };
                    let renewal = match result {
                        Ok(renewal) => renewal,
                        Err(crate::ClusterError::LeaseEnded { .. }) => Renewal::Ended,
                        Err(_) => Renewal::Failed,
                    };
                    now += back * MS;
                    keeper.answered(renewal, now);
                }
                check(&keeper, now)?;
                now += pause * MS;
                check(&keeper, now)?;
            }
        }
    }
}
