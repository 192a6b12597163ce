//! The thread that takes pairs over, one after another, each with all threads of `recovery_threads`, while
//! the control thread goes on serving the worker. What becomes of each is told as it happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use cell_cluster::{ShareTimes, boottime_ns};
use cell_recovery::{ClaimRequest, Environment, Progress, Recovered, RecoveryError, Takeover, Turn};
use cell_terms::{Incarnation, PairId};
use cell_wal::ring::Ring;

use crate::bring_up::{BringUp, Mine};
use crate::control::Work;
use crate::start::NodeError;

/// The longest sleep between two looks at whether the node goes on.
const PAUSE_NS: u64 = 10_000_000;

/// A pair to be taken over.
pub(crate) struct Job {
    pub(crate) claim: ClaimRequest,
    /// In whose incident its share is noted.
    pub(crate) dead: Incarnation,
    pub(crate) progress: Arc<Progress>,
}

/// What the thread tells.
pub(crate) enum Told {
    /// A takeover came further.
    Times { pair: PairId, dead: Incarnation, times: ShareTimes },
    /// The pair is this node's, published.
    Taken { pair: PairId, mine: Box<Mine> },
    /// It is not.
    Refused { pair: PairId, dead: Incarnation, error: NodeError },
}

/// The running thread.
pub(crate) struct Recoverer {
    jobs: Option<Sender<Job>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Recoverer {
    pub(crate) fn start(
        bring_up: Arc<BringUp>,
        environment: Environment,
        told: Sender<Work>,
    ) -> Result<Recoverer, NodeError> {
        let (jobs, receiver) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let runner = Runner { bring_up, environment, told, stop: stop.clone() };
        let thread = std::thread::Builder::new().name("cell-recovery".into());
        let thread = thread.spawn(move || runner.run(&receiver)).map_err(NodeError::Thread)?;
        Ok(Recoverer { jobs: Some(jobs), stop, thread: Some(thread) })
    }

    pub(crate) fn push(&self, job: Job) {
        // A thread that has ended does so with the node.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }
}

impl Drop for Recoverer {
    /// Breaks off what it is at: nothing is appended once this returns.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Runner {
    bring_up: Arc<BringUp>,
    environment: Environment,
    told: Sender<Work>,
    stop: Arc<AtomicBool>,
}

impl Runner {
    fn run(&self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let (pair, dead) = (job.claim.pair, job.dead);
            let told = match self.take_over(&job) {
                Ok(mine) => Told::Taken { pair, mine: Box::new(mine) },
                Err(error) => Told::Refused { pair, dead, error },
            };
            self.tell(told);
        }
    }

    fn tell(&self, told: Told) {
        let _ = self.told.send(Work::Told(told)); // the control thread ends last
    }

    fn take_over(&self, job: &Job) -> Result<Mine, NodeError> {
        self.bring_up.check_geometry(&self.environment.table.pair(job.claim.pair)?)?;
        let mut device = self.bring_up.device()?;
        let recovered = self.step_to_the_end(job, &mut device)?;
        Ok(Mine { recovered, device })
    }

    fn step_to_the_end(&self, job: &Job, device: &mut Ring) -> Result<Recovered, RecoveryError> {
        let publish = self.bring_up.publish();
        let mut takeover = Takeover::new(&self.environment, job.claim, publish, &job.progress);
        let mut times = ShareTimes::default();
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(RecoveryError::GivenUp);
            }
            let turn = takeover.step(device)?;
            self.note(job, &takeover, turn, &mut times);
            match turn {
                Turn::More => {}
                Turn::Wait(for_ns) => pause(for_ns.min(PAUSE_NS)),
                Turn::Done => return Ok(takeover.finish()),
            }
        }
    }

    /// Notes when what happened, and tells all of it at the end: each telling is a write of the
    /// coordinator's, which renews leases meanwhile.
    fn note(&self, job: &Job, takeover: &Takeover, turn: Turn, times: &mut ShareTimes) {
        let now_ms = boottime_ns() / 1_000_000;
        let mark = |at: &mut u64, is: bool| {
            if is && *at == 0 {
                *at = now_ms;
            }
        };
        mark(&mut times.claimed_ms, takeover.tenure().is_some() || takeover.is_rebuilt());
        mark(&mut times.cut_ms, takeover.is_cut());
        mark(&mut times.replayed_ms, takeover.is_rebuilt());
        mark(&mut times.serving_ms, turn == Turn::Done);
        if turn == Turn::Done {
            times.replayed_bytes = job.progress.view(boottime_ns()).bytes_done;
            self.tell(Told::Times { pair: job.claim.pair, dead: job.dead, times: *times });
        }
    }
}

/// A recovery waits for the disk, the coordinator, or an earlier lease: its thread has nothing else to do.
#[allow(
    clippy::disallowed_methods,
    reason = "a shell; what is waited for is asked about again by the caller"
)]
pub(crate) fn pause(for_ns: u64) {
    std::thread::sleep(Duration::from_nanos(for_ns));
}
