//! The worker's shell: one thread that polls its fabric and its ring, steps the worker core, and when there
//! is nothing to do sleeps in one epoll. All clocks, sockets and files of the data path are here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cell_cluster::{ClusterCounts, boottime_ns};
use cell_fabric::{Endpoint, Event, HostEndpoint, OneSided, Poller, SendError};
use cell_memory::{Budget, Reservation, ready_bytes, ready_bytes_given};
use cell_recovery::image::ImageSource;
use cell_terms::CounterValue;
use cell_wal::ring::Ring;
use cell_wal::{LogCounts, LogDevice};

use crate::agent::Installation;
use crate::congestion::{Congestion, STEP_REPLY_BYTES};
use crate::control::Work;
use crate::populate::PopulateSignal;
use crate::snapshot::{FailureKind, NodeSnapshot};
use crate::store::Store;
use crate::worker::{ControlEvent, Worker, pair_regions};

/// How often time is told when nothing happens.
const TICK: Duration = Duration::from_millis(10);
const TICK_NS: u64 = 10_000_000;
const SNAPSHOT_NS: u64 = 1_000_000_000;

/// What reaches the worker's thread from others.
pub(crate) enum Inbound {
    /// The recovered pairs, each with its log's device.
    Install { pairs: Vec<ServedPair>, installation: Installation },
    /// A pair that was added.
    AddPair(Box<ServedPair>),
    /// For the core.
    Control(ControlEvent),
    /// Recovery refused: give up.
    GiveUp(FailureKind),
}

/// A pair on its way to the worker, with what the shell keeps for it.
pub(crate) struct ServedPair {
    pub(crate) store: Store,
    pub(crate) log: PairLog,
}

/// What the shell keeps for a pair.
pub(crate) struct PairLog {
    pub(crate) device: Box<Ring>,
    pub(crate) populate: PopulateSignal,
    /// What the device's buffers count for.
    pub(crate) _buffers: Reservation,
}

/// The snapshot that `web` reads; the worker never waits for its lock.
pub(crate) type SharedSnapshot = Arc<Mutex<Arc<NodeSnapshot>>>;

/// How a worker's thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As the operator wished.
    Stopped,
    /// It gave its pair up; the process must exit.
    Failed(FailureKind),
}

pub(crate) struct Shell {
    worker: Worker,
    endpoint: HostEndpoint,
    /// By the pairs' numbers.
    pair_logs: Vec<PairLog>,
    poller: Poller,
    /// The logs alone.
    log_poller: Poller,
    inbound: Receiver<Inbound>,
    commands: Sender<Work>,
    lease_until_ns: Arc<AtomicU64>,
    lease_counts: Arc<ClusterCounts>,
    snapshot: SharedSnapshot,
    budget: Budget,
    snapshot_due_ns: u64,
    tick_due_ns: u64,
    /// As of the present turn.
    now_ns: u64,
    /// How long a thread without work looks for some before it sleeps.
    spin_ns: u64,
    spin_until_ns: u64,
    congestion: Congestion,
    log_events: Vec<cell_wal::LogEvent>,
}

impl Shell {
    pub(crate) fn new(
        worker: Worker,
        endpoint: HostEndpoint,
        [poller, log_poller]: [Poller; 2],
        inbound: Receiver<Inbound>,
        commands: Sender<Work>,
        lease_until_ns: Arc<AtomicU64>,
        snapshot: SharedSnapshot,
    ) -> Shell {
        Shell {
            worker,
            endpoint,
            pair_logs: Vec::new(),
            poller,
            log_poller,
            inbound,
            commands,
            lease_until_ns,
            lease_counts: Arc::default(),
            snapshot,
            budget: Budget::unlimited(),
            snapshot_due_ns: 0,
            tick_due_ns: 0,
            now_ns: 0,
            spin_ns: 0,
            spin_until_ns: 0,
            congestion: Congestion::new(usize::MAX),
            log_events: Vec::new(),
        }
    }

    /// Tells what this budget says, and keeps so many bytes of replies at most that clients do not take.
    pub(crate) fn within(self, budget: Budget, replies_max: usize) -> Shell {
        Shell { budget, congestion: Congestion::new(replies_max), ..self }
    }

    /// Looks for work so long before it sleeps.
    pub(crate) fn spinning(self, spin_ns: u64) -> Shell {
        Shell { spin_ns, ..self }
    }

    /// Tells what the lease's thread counts beside what the worker does.
    pub(crate) fn counting(self, lease_counts: Arc<ClusterCounts>) -> Shell {
        Shell { lease_counts, ..self }
    }

    /// Runs until the operator stops the node or the worker gives its pair up.
    pub(crate) fn run(mut self) -> Ended {
        loop {
            let busy = self.step();
            if let Some(kind) = self.worker.failure() {
                self.publish();
                return Ended::Failed(kind);
            }
            if self.worker.is_stopped() {
                self.publish();
                return Ended::Stopped;
            }
            if busy {
                self.spin_until_ns = self.now_ns.saturating_add(self.spin_ns);
                continue;
            }
            if self.now_ns < self.spin_until_ns {
                std::thread::yield_now();
                continue;
            }
            if !self.worker.takes_input() {
                // Requests wait for a log: what the fabric has must not keep this thread awake meanwhile.
                self.log_poller.wait(Some(TICK));
            } else if self.endpoint.prepare_sleep() {
                self.poller.wait(Some(TICK));
            }
        }
    }

    /// One turn; whether there was anything to do.
    fn step(&mut self) -> bool {
        self.tell_time();
        let mut busy = self.take_inbound();
        busy |= self.poll_log();
        self.congestion.retry(|connection, reply| self.endpoint.send(connection, reply));
        if self.worker.takes_input() {
            busy |= self.take_requests();
        }
        self.worker.end_of_poll();
        self.commit();
        busy |= self.send_replies();
        self.endpoint.flush();
        busy |= self.worker.has_work();
        for command in self.worker.take_commands() {
            busy = true;
            if self.commands.send(Work::Command(command)).is_err() {
                tracing::debug!("the control thread has ended");
            }
        }
        busy
    }

    fn tell_time(&mut self) {
        let now_ns = boottime_ns();
        self.now_ns = now_ns;
        if now_ns < self.tick_due_ns {
            return self.worker.advance(now_ns);
        }
        self.tick_due_ns = now_ns + TICK_NS;
        self.worker.tick(now_ns, self.lease_until_ns.load(Ordering::Acquire));
        self.endpoint.tick(now_ns);
        for (pair, log) in self.pair_logs.iter_mut().enumerate() {
            self.worker.log_tick(pair, log.device.as_mut());
        }
        for (log, store) in self.pair_logs.iter_mut().zip(self.worker.stores()) {
            log.populate.raise(store);
        }
        if now_ns >= self.snapshot_due_ns {
            self.snapshot_due_ns = now_ns + SNAPSHOT_NS;
            self.publish();
        }
    }

    fn publish(&self) {
        if let Ok(mut shared) = self.snapshot.try_lock() {
            *shared = Arc::new(NodeSnapshot {
                memory: self.budget.figures(),
                memory_ready_bytes: ready_bytes(),
                memory_ready_bytes_given: ready_bytes_given(),
                counters: self.counters(),
                ..self.worker.snapshot()
            });
        }
    }

    /// Of all logs, of the fabric and of the lease.
    fn counters(&self) -> Vec<CounterValue> {
        let mut logs = LogCounts::default();
        self.worker.stores().for_each(|store| logs.add(&store.log_counts()));
        let fabric = self.endpoint.counters().values();
        logs.values().chain(fabric).chain(self.lease_counts.values()).collect()
    }

    fn take_inbound(&mut self) -> bool {
        let mut busy = false;
        loop {
            match self.inbound.try_recv() {
                Ok(Inbound::Control(event)) => self.worker.control(event),
                Ok(Inbound::GiveUp(kind)) => self.worker.give_up(kind),
                Ok(Inbound::Install { pairs, installation }) => self.install(pairs, installation),
                Ok(Inbound::AddPair(served)) => self.add_pair(*served),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return busy,
            }
            busy = true;
        }
    }

    /// Lets clients read a pair's regions, if the endpoint serves such reads.
    fn register(&mut self, source: &ImageSource) {
        let keys = self.endpoint.register(&source.node).and_then(|node_key| {
            let extent_key = self.endpoint.register(&source.extent)?;
            Ok((node_key, extent_key))
        });
        let node_crc = source.geometry.node_crc();
        match keys {
            Ok((node, extent)) => {
                let regions = pair_regions(&source.node, &source.extent, node_crc, node, extent);
                self.worker.registered(regions);
            }
            Err(error) => tracing::info!(%error, pair = %source.pair, "no one-sided reads"),
        }
    }

    fn install(&mut self, pairs: Vec<ServedPair>, installation: Installation) {
        let Installation { sessions, whole } = installation;
        let mut stores = Vec::new();
        for ServedPair { store, log } in pairs {
            if !self.watch(&log) {
                return;
            }
            stores.push(store);
            self.pair_logs.push(log);
        }
        let sources: Vec<_> = stores.iter().map(Store::source).collect();
        self.worker.install(stores, sessions);
        if whole && !self.worker.has_every_key() {
            tracing::error!("the meganodes of this node's pairs do not cover all keys");
            return self.worker.give_up(FailureKind::RecoveryRefused);
        }
        sources.iter().for_each(|source| self.register(source));
        self.snapshot_due_ns = 0;
        self.tick_due_ns = 0;
    }

    fn add_pair(&mut self, served: ServedPair) {
        let ServedPair { store, log } = served;
        if self.watch(&log) {
            let source = store.source();
            self.pair_logs.push(log);
            self.worker.add_pair(store);
            self.register(&source);
        }
    }

    /// Wakes this thread when a log has news. False: the worker has given up.
    fn watch(&mut self, log: &PairLog) -> bool {
        let wake = log.device.wake_fd();
        let watched = self.poller.add_edge(wake).and_then(|()| self.log_poller.add_edge(wake));
        if let Err(error) = &watched {
            tracing::error!(%error, "a log's wake descriptor cannot be watched");
            self.worker.give_up(FailureKind::LogFailed);
        }
        watched.is_ok()
    }

    fn poll_log(&mut self) -> bool {
        let mut busy = false;
        for (pair, log) in self.pair_logs.iter_mut().enumerate() {
            log.device.poll(&mut self.log_events);
            busy |= !self.log_events.is_empty();
            for event in self.log_events.drain(..) {
                self.worker.log_event(pair, event, log.device.as_mut());
            }
        }
        busy
    }

    /// Requests that waited for their turn, then, when none of them is left, new ones.
    fn take_requests(&mut self) -> bool {
        let worker = &mut self.worker;
        let resumed = self.congestion.can_resume();
        if resumed {
            self.congestion.resume(|connection, request| {
                worker.message(connection, request);
                worker.reply_bytes() < STEP_REPLY_BYTES
            });
        }
        let left = self.congestion.can_resume();
        resumed | (!left && self.poll_fabric())
    }

    fn poll_fabric(&mut self) -> bool {
        let worker = &mut self.worker;
        let congestion = &mut self.congestion;
        let count = self.endpoint.poll(&mut |event| match event {
            Event::Accepted { connection, .. } => worker.accepted(connection),
            Event::Message { connection, message } => {
                if worker.reply_bytes() >= STEP_REPLY_BYTES || congestion.holds(connection) {
                    congestion.defer(connection, message);
                } else {
                    worker.message(connection, message);
                }
            }
            Event::Closed { connection, reason } => {
                tracing::debug!(%connection, %reason, "connection closed");
                congestion.forget(connection);
                worker.closed(connection);
            }
            Event::Refused { peer, reason } => tracing::warn!(?peer, %reason, "a peer was turned away"),
            _ => {}
        });
        count > 0
    }

    fn commit(&mut self) {
        for (pair, log) in self.pair_logs.iter_mut().enumerate() {
            self.worker.commit(pair, log.device.as_mut());
            if let Err(error) = log.device.submit() {
                tracing::error!(%error, "a log's device failed");
                self.worker.give_up(FailureKind::LogFailed);
            }
        }
    }

    /// Hands over the replies that may leave. The clock is read after everything that they say was decided,
    /// and the lease after the clock, so nothing is sent that the lease does not cover.
    fn send_replies(&mut self) -> bool {
        let now_ns = boottime_ns();
        let lease_until_ns = self.lease_until_ns.load(Ordering::Acquire);
        let mut busy = false;
        let mut closed = Vec::new();
        for (connection, reply) in self.worker.release(now_ns, lease_until_ns).iter() {
            busy = true;
            // What waits goes first.
            let waits = self.congestion.holds_replies(connection);
            let sent = if waits { Err(SendError::Full) } else { self.endpoint.send(connection, reply) };
            let deaf = match sent {
                Ok(()) | Err(SendError::Closed) => None,
                Err(SendError::Full) => self.congestion.push(connection, reply),
                Err(error) => {
                    tracing::error!(%error, "a reply could not be sent");
                    None
                }
            };
            if let Some(connection) = deaf {
                tracing::warn!(%connection, "a client does not read its replies: closing");
                self.endpoint.close(connection);
                closed.push(connection);
            }
        }
        self.worker.replies_sent();
        // No event tells of a connection that this end has closed: what its streams hold is given back here.
        closed.into_iter().for_each(|connection| self.worker.closed(connection));
        busy
    }
}
