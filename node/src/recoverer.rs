//! The threads that take pairs over, while the control thread goes on serving the worker. What becomes of
//! each pair is reported as it happens. Which pair is next, and what a step is, `takeovers` says.
//!
//! A takeover is reading, replaying and waiting by turns: for the disk, for the coordinator. A few of them go
//! on side by side, so that one computes while another waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use cell_recovery::Environment;

use crate::bring_up::{BringUp, step_to_the_end};
use crate::error::NodeError;
use crate::messages::{RecoveredPair, TakeoverReport, Work};
use crate::takeovers::{TakeoverJob, TakeoverQueue, TakeoverRun};

/// What is to be done, for all threads.
#[derive(Default)]
struct Queue {
    jobs: Mutex<TakeoverQueue>,
    arrived: Condvar,
    stop: AtomicBool,
}

impl Queue {
    fn push(&self, jobs: Vec<TakeoverJob>) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(jobs);
        self.arrived.notify_all();
    }

    /// The smallest job, as soon as there is one; none once it is time to stop.
    fn next(&self) -> Option<TakeoverJob> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(job) = jobs.take_smallest() {
                return Some(job);
            }
            jobs = self.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn stop(&self) {
        // Under the lock: nobody is between its look at `stop` and its wait.
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.store(true, Ordering::Release);
        drop(jobs);
        self.arrived.notify_all();
    }
}

/// The running threads.
pub(crate) struct Recoverer {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Recoverer {
    pub(crate) fn start(
        bring_up: Arc<BringUp>,
        environment: Environment,
        reports: Sender<Work>,
    ) -> Result<Recoverer, NodeError> {
        // Side by side as many as the memory plan permits; no more than there are cores.
        let side_by_side_max = bring_up.plan.takeovers_max;
        let mut recoverer = Recoverer { queue: Arc::default(), threads: Vec::new() };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for _ in 0..cores.min(side_by_side_max) {
            let (bring_up, environment) = (bring_up.clone(), environment.clone());
            let runner =
                Runner { bring_up, environment, reports: reports.clone(), queue: recoverer.queue.clone() };
            let thread = std::thread::Builder::new().name("cell-recovery".into());
            recoverer.threads.push(thread.spawn(move || runner.run()).map_err(NodeError::Thread)?);
        }
        Ok(recoverer)
    }

    /// Takes jobs on, all that are known: the smallest of them comes first.
    pub(crate) fn push(&self, jobs: Vec<TakeoverJob>) {
        self.queue.push(jobs);
    }
}

impl Drop for Recoverer {
    /// Breaks off what they are at: nothing is appended once this returns.
    fn drop(&mut self) {
        self.queue.stop();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

struct Runner {
    bring_up: Arc<BringUp>,
    environment: Environment,
    reports: Sender<Work>,
    queue: Arc<Queue>,
}

impl Runner {
    fn run(&self) {
        while let Some(job) = self.queue.next() {
            let (pair, dead) = (job.claim.pair, job.dead);
            let report = match self.take_over(job) {
                Ok(mine) => TakeoverReport::Taken { mine: Box::new(mine) },
                Err(error) => TakeoverReport::Refused { pair, dead, error },
            };
            self.report(report);
        }
    }

    fn report(&self, report: TakeoverReport) {
        let _ = self.reports.send(Work::Takeover(report)); // the control thread ends last
    }

    fn take_over(&self, job: TakeoverJob) -> Result<RecoveredPair, NodeError> {
        let (pair, dead) = (job.claim.pair, job.dead);
        self.bring_up.check_geometry(&self.environment.table.pair(pair)?)?;
        let (mut device, buffers) = self.bring_up.device()?;
        let mut environment = self.environment.clone();
        environment.options.threads = self.bring_up.threads.load(Ordering::Relaxed);
        let run = TakeoverRun::begin(&environment, job, self.bring_up.publish());
        let (recovered, times) = step_to_the_end(run, device.as_mut(), || !self.queue.is_stopped())?;
        self.report(TakeoverReport::Times { pair, dead, times });
        self.bring_up.take_whole(&recovered);
        Ok(RecoveredPair { recovered, device, buffers })
    }
}
