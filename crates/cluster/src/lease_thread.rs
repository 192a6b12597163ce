//! The thread that keeps this process's lease, and the word in which workers read how long it holds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cell_terms::Incarnation;
use cell_terms::text::with_causes;

use crate::clock::boottime_ns;
use crate::clock_watch::ClockReading;
use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::lease::{LeaseCommand, LeaseKeeper, LeaseTerms, Renewal};
use crate::lease_news::{self, LeaseNews, Notifier};
use crate::renewers::LEASE_THREAD;
use crate::settings::ClusterCounts;
use crate::urgent;

/// A lease that a thread renews. Dropping it stops the renewals; the lease then ends by itself, unless its
/// holder ends it ([`Coordinator::end_lease`]).
pub struct LeaseThread {
    incarnation: Incarnation,
    surely_until_ns: Arc<AtomicU64>,
    counts: Arc<ClusterCounts>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Says what that thread has to say, and ends after it.
    notifier: Option<JoinHandle<()>>,
}

/// It neither writes nor, where the coordinator is [`crate::Remote`], allocates while it renews: files, the
/// allocator and the address space are what a busy process waits for.
struct Shell {
    coordinator: Arc<dyn Coordinator>,
    keeper: LeaseKeeper,
    terms: LeaseTerms,
    notifier: Notifier,
    surely_until_ns: Arc<AtomicU64>,
    counts: Arc<ClusterCounts>,
    stopping: Arc<AtomicBool>,
    /// When the lease ran out, while it has.
    run_out_ns: Option<u64>,
}

impl Renewal {
    /// What the answer to a renewal means.
    #[must_use]
    pub fn of_renewal(answer: &Result<Option<ClockReading>, ClusterError>) -> Renewal {
        match answer {
            Ok(reading) => Renewal::Alive(*reading),
            Err(ClusterError::LeaseEnded { .. }) => Renewal::Ended,
            Err(_) => Renewal::Failed,
        }
    }

    /// What the answer to a look means: how long the coordinator thinks that the lease lasts, if it does.
    #[must_use]
    pub fn of_look(answer: &Result<Option<u64>, ClusterError>) -> Renewal {
        match answer {
            Ok(Some(_)) => Renewal::There,
            Ok(None) => Renewal::Ended,
            Err(_) => Renewal::Failed,
        }
    }
}

/// A first lease on its way: it is asked for until it is granted or refused. Dropping this gives it up; one
/// that is granted all the same ends by itself.
pub struct FirstLease {
    granted: Receiver<Result<Incarnation, ClusterError>>,
    tries: Arc<Mutex<LeaseTries>>,
    /// What becomes of it, until it is granted.
    lease: Option<LeaseThread>,
}

/// What became of asking for a first lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTries {
    /// How often the coordinator was asked in vain.
    pub failed: u64,
    /// Why the last time, in words.
    pub why: Option<Arc<str>>,
}

impl FirstLease {
    /// Asks for a lease, on a thread that keeps it once it is granted.
    ///
    /// # Errors
    /// [`ClusterError::Thread`].
    pub fn ask(coordinator: Arc<dyn Coordinator>, terms: LeaseTerms) -> Result<FirstLease, ClusterError> {
        FirstLease::ask_and_say(coordinator, terms, lease_news::log)
    }

    fn ask_and_say(
        coordinator: Arc<dyn Coordinator>,
        terms: LeaseTerms,
        say: impl Fn(Incarnation, &LeaseNews) + Send + 'static,
    ) -> Result<FirstLease, ClusterError> {
        let surely_until_ns = Arc::new(AtomicU64::new(0));
        let counts = Arc::new(ClusterCounts::of(terms));
        let stopping = Arc::new(AtomicBool::new(false));
        let tries = Arc::<Mutex<LeaseTries>>::default();
        let (notifier, notifier_thread) = Notifier::start(say)?;
        let mut shell = Shell {
            coordinator,
            keeper: LeaseKeeper::new(terms),
            terms,
            notifier,
            surely_until_ns: surely_until_ns.clone(),
            counts: counts.clone(),
            stopping: stopping.clone(),
            run_out_ns: None,
        };
        let (answer, granted) = mpsc::sync_channel(1);
        let noted = tries.clone();
        let thread = std::thread::Builder::new()
            .name(LEASE_THREAD.to_owned())
            .spawn(move || {
                urgent::run_first();
                let Some(first) = shell.first_grant(&noted) else { return };
                let succeeded = first.is_ok();
                if answer.send(first).is_ok() && succeeded {
                    shell.run();
                }
            })
            .map_err(ClusterError::Thread)?;
        let incarnation = Incarnation(0); // until there is one
        let (thread, notifier) = (Some(thread), Some(notifier_thread));
        let lease = LeaseThread { incarnation, surely_until_ns, counts, stopping, thread, notifier };
        Ok(FirstLease { granted, tries, lease: Some(lease) })
    }

    /// The lease, if it is granted or refused within this time.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn wait(&mut self, most: Duration) -> Result<Option<LeaseThread>, ClusterError> {
        let incarnation = match self.granted.recv_timeout(most) {
            Ok(answer) => answer?,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(ClusterError::Answer),
        };
        let lease = self.lease.take();
        Ok(lease.map(|mut lease| {
            lease.incarnation = incarnation;
            lease
        }))
    }

    /// The lease, after as long as it takes.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn granted(mut self) -> Result<LeaseThread, ClusterError> {
        loop {
            if let Some(lease) = self.wait(Duration::from_secs(1))? {
                return Ok(lease);
            }
        }
    }

    /// What became of asking so far.
    #[must_use]
    pub fn tries(&self) -> LeaseTries {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FirstLease {
    fn drop(&mut self) {
        // Its call may hang: nobody waits for that.
        if let Some(mut lease) = self.lease.take() {
            lease.notifier = None;
            lease.stopping.store(true, Ordering::SeqCst);
            if let Some(thread) = lease.thread.take() {
                thread.thread().unpark();
            }
        }
    }
}

impl LeaseThread {
    /// The lease, which names this life of the process.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Until when the lease surely holds, in nanoseconds of [`boottime_ns`]. A time that has passed: it has
    /// run out, and may be renewed once more; zero: it has ended. Workers load it (acquire) and read the
    /// clock *after* what they are about to acknowledge.
    #[must_use]
    pub fn surely_until_ns(&self) -> Arc<AtomicU64> {
        self.surely_until_ns.clone()
    }

    /// Whether the lease surely holds at this moment.
    #[must_use]
    pub fn holds(&self) -> bool {
        boottime_ns() < self.surely_until_ns.load(Ordering::Acquire)
    }

    /// Whether the coordinator has ended it, as far as is known.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.surely_until_ns.load(Ordering::Acquire) == 0
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> &Arc<ClusterCounts> {
        &self.counts
    }
}

impl Drop for LeaseThread {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        if let Some(notifier) = self.notifier.take() {
            let _ = notifier.join();
        }
    }
}

impl Shell {
    /// None: nobody wants it any more.
    fn first_grant(&mut self, tries: &Mutex<LeaseTries>) -> Option<Result<Incarnation, ClusterError>> {
        while !self.stopping.load(Ordering::SeqCst) {
            match self.keeper.step(boottime_ns()) {
                LeaseCommand::Wait { until_ns } => self.wait(until_ns),
                LeaseCommand::Stop | LeaseCommand::Renew(_) | LeaseCommand::Look(_) => {
                    return Some(Err(ClusterError::Answer));
                }
                LeaseCommand::Grant => match self.coordinator.grant(self.terms.ttl_ms) {
                    Ok(grant) => {
                        self.answered(Renewal::Granted(grant.lease));
                        return Some(Ok(grant.lease));
                    }
                    Err(error) if error.refuses_first_lease() => return Some(Err(error)),
                    Err(error) => {
                        let mut tries = tries.lock().unwrap_or_else(PoisonError::into_inner);
                        tries.failed += 1;
                        let why = with_causes(&error);
                        if tries.why.as_deref() != Some(&*why) {
                            let why: Arc<str> = why.into();
                            self.notifier.notify(Incarnation(0), LeaseNews::NotGranted(why.clone()));
                            tries.why = Some(why);
                        }
                        drop(tries);
                        self.answered(Renewal::Failed);
                    }
                },
            }
        }
        None
    }

    fn run(&mut self) {
        while !self.stopping.load(Ordering::SeqCst) {
            let asked_ns = boottime_ns();
            match self.keeper.step(asked_ns) {
                LeaseCommand::Wait { until_ns } => self.wait(until_ns),
                LeaseCommand::Stop => return,
                LeaseCommand::Grant => unreachable!("a keeper with a lease asks for no other"),
                LeaseCommand::Renew(lease) => self.renew(lease, asked_ns),
                LeaseCommand::Look(lease) => self.look(lease, asked_ns),
            }
        }
    }

    fn renew(&mut self, lease: Incarnation, asked_ns: u64) {
        let answer = self.coordinator.keep_alive_timed(lease);
        let now_ns = boottime_ns();
        self.note_run_out(lease, now_ns);
        let (was_due_ns, until_ns) = (self.keeper.renewal_due_ns(), self.keeper.surely_holds_until_ns());
        self.answered(Renewal::of_renewal(&answer));
        match answer {
            Ok(_) => {
                let took_ns = now_ns.saturating_sub(was_due_ns.unwrap_or(asked_ns));
                if self.counts.renewed(now_ns, took_ns, until_ns.saturating_sub(now_ns)) {
                    let [took_ms, most_ms] = [took_ns, self.terms.renewal_most_ns()].map(|ns| ns / 1_000_000);
                    self.notifier.notify(lease, LeaseNews::Slow { took_ms, most_ms });
                }
                self.note_holding(lease, now_ns);
            }
            Err(ClusterError::LeaseEnded { .. }) => self.notifier.notify(lease, LeaseNews::Ended),
            Err(error) => {
                self.counts.renewal_failed();
                self.notifier.notify(lease, LeaseNews::NotRenewed(error));
            }
        }
        if let Some(lost_ns) = self.keeper.clock_lost_ns() {
            self.notifier.notify(lease, LeaseNews::ClockStood { lost_ms: lost_ns / 1_000_000 });
        }
    }

    /// The lease has run out: whether it is there.
    fn look(&mut self, lease: Incarnation, asked_ns: u64) {
        self.note_run_out(lease, asked_ns);
        let answer = self.coordinator.remaining_ns(lease);
        self.answered(Renewal::of_look(&answer));
        if let Ok(None) = answer {
            self.notifier.notify(lease, LeaseNews::Ended);
        }
    }

    fn note_run_out(&mut self, lease: Incarnation, now_ns: u64) {
        if self.run_out_ns.is_none() && self.keeper.has_run_out(now_ns) {
            self.run_out_ns = Some(self.keeper.surely_holds_until_ns());
            self.counts.ran_out();
            self.notifier.notify(lease, LeaseNews::RanOut);
        }
    }

    fn note_holding(&mut self, lease: Incarnation, now_ns: u64) {
        let until_ns = self.keeper.surely_holds_until_ns();
        if let Some(since_ns) = self.run_out_ns.take_if(|_| now_ns < until_ns) {
            let silent_ms = now_ns.saturating_sub(since_ns) / 1_000_000;
            self.notifier.notify(lease, LeaseNews::HoldsAgain { silent_ms });
        }
    }

    fn answered(&mut self, renewal: Renewal) {
        self.keeper.answered(renewal, boottime_ns());
        self.surely_until_ns.store(self.keeper.surely_holds_until_ns(), Ordering::Release);
        self.counts.renewal_due(self.keeper.renewal_due_ns());
    }

    fn wait(&self, until_ns: u64) {
        std::thread::park_timeout(Duration::from_nanos(until_ns.saturating_sub(boottime_ns())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::sim::Sim;

    const MS: u64 = 1_000_000;

    fn holds_no_more_after(happens: impl FnOnce(&Sim)) {
        let sim = Sim::new(1);
        let terms = LeaseTerms::new(4_000, 0.05);
        let lease = FirstLease::ask(Arc::new(sim.link()), terms).unwrap().granted().unwrap();
        let word = lease.surely_until_ns();
        // The first renewal is what the next one's time is compared with.
        let granted_ns = word.load(Ordering::Acquire);
        let wait = |done: &dyn Fn(u64) -> bool| {
            while !done(word.load(Ordering::Acquire)) {
                std::thread::yield_now();
            }
        };
        wait(&|until_ns| until_ns > granted_ns);
        happens(&sim);
        wait(&|until_ns| until_ns == 0);
        assert!(!lease.holds());
    }

    #[test]
    fn renew_answer_that_the_lease_has_ended_ends_it_at_once() {
        holds_no_more_after(|sim| sim.advance(4_001 * MS));
    }

    /// The coordinator's clock goes on while the own one stands still; the lease is renewed all the same.
    #[test]
    fn renew_answer_of_a_clock_that_went_further_ends_it_at_once() {
        holds_no_more_after(|sim| sim.advance(3_999 * MS));
    }

    /// A node that started before its coordinator ended after ten seconds, and its console with it.
    #[test]
    fn ask_goes_on_while_nobody_answers_and_says_how_often_and_why() {
        let sim = Sim::new(1);
        let link = Arc::new(sim.link());
        link.set_cut(true);
        let mut asked = FirstLease::ask(link.clone(), LeaseTerms::new(20_000, 0.05)).unwrap();
        while asked.tries().failed < 1 {
            assert!(asked.wait(Duration::from_millis(1)).unwrap().is_none());
        }
        assert!(asked.tries().why.is_some());
        link.set_cut(false);
        assert!(asked.granted().unwrap().holds());
    }

    #[test]
    fn ask_that_is_given_up_ends_its_thread() {
        let sim = Sim::new(1);
        let link = Arc::new(sim.link());
        link.set_cut(true);
        drop(FirstLease::ask(link.clone(), LeaseTerms::new(1_000, 0.05)).unwrap());
        while Arc::strong_count(&link) > 1 {
            std::thread::yield_now();
        }
    }

    /// What it says goes to a file, which may take seconds on a busy disk: one renewal that failed, and the
    /// words about it, cost the lease.
    #[test]
    fn renew_goes_on_while_nothing_that_it_says_is_written() {
        let sim = Sim::new(1);
        let link = Arc::new(sim.link());
        let (go_on, held) = mpsc::channel::<()>();
        let say = move |_, _: &LeaseNews| held.recv().unwrap_or_default();
        let asked = FirstLease::ask_and_say(link.clone(), LeaseTerms::new(2_000, 0.05), say).unwrap();
        let lease = asked.granted().unwrap();
        link.set_cut(true);
        // One has failed or, on a machine that stood still meanwhile, the lease has run out: both are
        // counted.
        let counted = || lease.counts().values(boottime_ns())[1..3].iter().any(|count| count.value >= 1.0);
        while !counted() {
            std::thread::yield_now();
        }
        let word = lease.surely_until_ns();
        let before_ns = word.load(Ordering::Acquire);
        link.set_cut(false);
        while word.load(Ordering::Acquire) <= before_ns {
            std::thread::yield_now();
        }
        drop(go_on);
    }
}
