//! The worker's thread: it steps the worker's loop ([`crate::driver`]) and, when there is nothing to do,
//! sleeps in one epoll. The clock, the sockets and the files of the data path are here.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cell_cluster::{ClusterCounts, boottime_ns};
use cell_fabric::{Endpoint, FabricError, HostEndpoint, LookPause, Poller, TakenRegion};
use cell_memory::{Budget, Reservation, ready_bytes, ready_bytes_given};
use cell_terms::{CounterValue, PairId};
use cell_wal::{Flusher, LogCounts};
use rustix::time::{ClockId, clock_gettime};

use crate::driver::{Ended, Next, PairInput, TICK_NS, WorkerClock, WorkerDriver, WorkerInput};
use crate::messages::{Inbound, LogRing, PairResources, ServedPair, Work};
use crate::populate::PopulateSignal;
use crate::snapshot::{FailureKind, NodeSnapshot};
use crate::worker::Worker;

/// How long the thread sleeps when nothing happens.
const TICK: Duration = Duration::from_nanos(TICK_NS);
const SNAPSHOT_NS: u64 = 1_000_000_000;

/// The snapshot that `web` reads; the worker never waits for its lock.
pub(crate) type SharedSnapshot = Arc<Mutex<Arc<NodeSnapshot>>>;

/// The machine's clock, and the lease as its thread keeps it.
struct BootLeaseClock {
    lease_until_ns: Arc<AtomicU64>,
}

impl WorkerClock for BootLeaseClock {
    fn now_ns(&mut self) -> u64 {
        boottime_ns()
    }

    fn lease_until_ns(&mut self) -> u64 {
        self.lease_until_ns.load(Ordering::Acquire)
    }
}

/// What wakes the thread, and what lives as long as a pair is served.
struct Watched {
    poller: Poller,
    /// What the pairs' rings share.
    flusher: Option<Arc<Flusher>>,
    pairs: Vec<WatchedPair>,
}

/// What lives as long as a pair is served.
struct WatchedPair {
    pair: PairId,
    populate: PopulateSignal,
    /// What its log's buffers count for.
    _buffers: Reservation,
    /// What a device has taken of its memory, which means nothing once the pair is registered.
    _taken: Vec<TakenRegion>,
}

pub(crate) struct Shell {
    driver: WorkerDriver<HostEndpoint, LogRing>,
    clock: BootLeaseClock,
    watched: Watched,
    inbound: Receiver<Inbound>,
    commands: Sender<Work>,
    lease_counts: Arc<ClusterCounts>,
    snapshot: SharedSnapshot,
    budget: Budget,
    snapshot_due_ns: u64,
    pause: LookPause,
}

impl Shell {
    pub(crate) fn new(
        worker: Worker,
        endpoint: HostEndpoint,
        mut poller: Poller,
        inbound: Receiver<Inbound>,
        commands: Sender<Work>,
        lease_until_ns: Arc<AtomicU64>,
        snapshot: SharedSnapshot,
    ) -> Result<Shell, FabricError> {
        poller.add_endpoint(&endpoint)?;
        Ok(Shell {
            driver: WorkerDriver::new(worker, endpoint).sleeping_at_once(),
            clock: BootLeaseClock { lease_until_ns },
            watched: Watched { poller, flusher: None, pairs: Vec::new() },
            inbound,
            commands,
            lease_counts: Arc::default(),
            snapshot,
            budget: Budget::unlimited(),
            snapshot_due_ns: 0,
            pause: LookPause::default(),
        })
    }

    /// Reports what this budget says, and keeps so many bytes of replies at most that clients do not take.
    pub(crate) fn within(self, budget: Budget, replies_max: usize) -> Shell {
        Shell { budget, driver: self.driver.within(replies_max), ..self }
    }

    /// Looks for work so long before it sleeps, where it has more than one core.
    pub(crate) fn spinning(self, spin_ns: u64) -> Shell {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Shell { driver: self.driver.on_cores(cores).spinning(spin_ns), ..self }
    }

    /// Reports what the lease's thread counts beside what the worker does.
    pub(crate) fn counting(self, lease_counts: Arc<ClusterCounts>) -> Shell {
        Shell { lease_counts, ..self }
    }

    /// Lets the pairs' rings share a flush, whose end wakes this thread.
    pub(crate) fn flushing(mut self, flusher: Arc<Flusher>) -> Result<Shell, FabricError> {
        self.watched.poller.add_edge(flusher.wake_fd())?;
        self.watched.flusher = Some(flusher);
        Ok(self)
    }

    /// Runs until the operator stops the node or the worker gives its pairs up.
    pub(crate) fn run(mut self) -> Ended {
        loop {
            match self.turn() {
                Next::Again => {}
                Next::Spin => self.pause.pause(),
                Next::Wait => {
                    let wait = self.watched.poller.wait(Some(TICK));
                    self.driver.endpoint_mut().woken(wait.parts);
                }
                Next::Rest => std::thread::park_timeout(TICK),
                Next::End(ended) => {
                    self.publish();
                    return ended;
                }
            }
        }
    }

    fn turn(&mut self) -> Next {
        let Shell { driver, clock, watched, inbound, snapshot_due_ns, .. } = self;
        let inputs = inbound.try_iter().map(|message| {
            if let Inbound::Install { .. } = message {
                *snapshot_due_ns = 0;
            }
            watched.input(message)
        });
        let turn = driver.step(clock, inputs);
        watched.pairs.retain(|watched| !turn.left.contains(&watched.pair));
        for command in turn.commands {
            if self.commands.send(Work::Command(command)).is_err() {
                tracing::debug!("the control thread has ended");
            }
        }
        if let Some(now_ns) = turn.ticked_ns {
            self.ticked(now_ns);
        }
        turn.next
    }

    /// What is done each time that the worker was given the time in full.
    fn ticked(&mut self, now_ns: u64) {
        for pair in self.driver.worker().pairs() {
            let watched = self.watched.pairs.iter_mut().find(|watched| watched.pair == pair.id());
            watched.into_iter().for_each(|watched| watched.populate.raise(pair));
        }
        if now_ns >= self.snapshot_due_ns {
            self.snapshot_due_ns = now_ns + SNAPSHOT_NS;
            self.publish();
        }
    }

    fn publish(&self) {
        if let Ok(mut shared) = self.snapshot.try_lock() {
            let (figures, now_ns) = (self.driver.worker().snapshot(), boottime_ns());
            let mut memory = self.budget.figures();
            // Growth looks at the budget before it asks.
            memory.refused += figures.splits.pairs_short;
            *shared = Arc::new(NodeSnapshot {
                memory,
                memory_ready_bytes: ready_bytes(),
                memory_ready_bytes_given: ready_bytes_given(),
                counters: self.counters(now_ns),
                renewals: self.lease_counts.renewals(now_ns),
                log_flush: self.watched.flusher.as_ref().map_or(figures.log_flush, |shared| shared.choice()),
                cpu_ns: [ClockId::ProcessCPUTime, ClockId::ThreadCPUTime].map(processor_ns),
                ..figures
            });
        }
    }

    /// Of all logs, of the fabric and of the lease.
    fn counters(&self, now_ns: u64) -> Vec<CounterValue> {
        let mut logs = LogCounts::default();
        self.driver.worker().pairs().for_each(|pair| logs.add(&pair.log_counts()));
        let fabric = self.driver.endpoint().counters().values();
        let flushes = self.watched.flusher.iter().flat_map(|flusher| flusher.values());
        let lease = self.lease_counts.values(now_ns);
        logs.values().chain(flushes).chain(fabric).chain(lease).collect()
    }
}

/// Processor time by one of the clocks for it, in nanoseconds. That of a thread is the caller's.
fn processor_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let parts = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    parts[0] * 1_000_000_000 + parts[1]
}

impl Watched {
    /// What a message from another thread means to the worker. The shell keeps its share of a pair.
    fn input(&mut self, message: Inbound) -> WorkerInput<LogRing> {
        match message {
            Inbound::Control(event) => WorkerInput::Control(event),
            Inbound::GiveUp(kind) => WorkerInput::GiveUp(kind),
            Inbound::Install { pairs, installation } => {
                let pairs: Option<Vec<_>> = pairs.into_iter().map(|served| self.watch(served)).collect();
                pairs.map_or(WorkerInput::GiveUp(FailureKind::LogFailed), |pairs| WorkerInput::Install {
                    pairs,
                    installation,
                })
            }
            Inbound::AddPair(served) => {
                let pair = self.watch(*served);
                pair.map_or(WorkerInput::GiveUp(FailureKind::LogFailed), |pair| {
                    WorkerInput::AddPair(Box::new(pair))
                })
            }
        }
    }

    /// Wakes this thread when a pair's log has news. None: that cannot be.
    fn watch(&mut self, served: ServedPair) -> Option<PairInput<LogRing>> {
        let ServedPair { pair, mut resources } = served;
        // Not before: who recovers a pair polls its ring alone, and others' flushes must not wait for that.
        self.flusher.iter().for_each(|flusher| resources.device.device_mut().share(flusher));
        let wake = resources.device.device().wake_fd();
        if let Err(error) = self.poller.add_edge(wake) {
            tracing::error!(%error, "a log's wake descriptor cannot be watched");
            return None;
        }
        let PairResources { device, populate, _buffers, _taken } = resources;
        self.pairs.push(WatchedPair { pair: pair.id(), populate, _buffers, _taken });
        Some(PairInput { pair, device: *device })
    }
}
