//! Bringing a node up: lock, fabric, lease, recovery of its own pair, then serving; and taking it down. From
//! the fabric on there are figures to look at, whether or not the coordinator answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cell_cluster::{
    ClusterError, Coordinator, EtcdError, FirstLease, FolderLock, LeaseThread, LeaseTries, boottime_ns,
};
use cell_fabric::{
    Greeting, HostEndpoint, HostOptions, OneSided, Poller, ReadPermission, ShmOptions, SocketName,
    VerbsOptions,
};
use cell_memory::{Budget, MemoryError, RegionSettings};
use cell_recovery::Progress;
use cell_settings::SettingsStore;
use cell_terms::Incarnation;
use cell_terms::setting::Settings;
use cell_wal::{Flusher, LogRoot};

use crate::bring_up::{BringUp, ServedReads, lease_terms, recovery_threads};
use crate::command::ControlEvent;
use crate::control;
use crate::driver::Ended;
use crate::error::NodeError;
use crate::figures::FIGURES_EVERY_NS;
use crate::home::{check_lock, home_name};
use crate::lease_end;
use crate::log_flush;
use crate::memory_plan::{MemoryPlan, STREAMS, parked_bytes_max, result_bytes_max};
use crate::memory_watch::MemoryWatch;
use crate::messages::{Inbound, ToWorker, Work};
use crate::options::NodeOptions;
use crate::populate;
use crate::ready::ReadyMemory;
use crate::settings::WorkerOptions;
use crate::shell::{SharedSnapshot, Shell};
use crate::snapshot::{CoordinatorWait, FailureKind, NodeSnapshot, NodeState};
use crate::tree_look::TreeLook;
use crate::warning;
use crate::worker::{Worker, WorkerIdentity};

/// How often a node that waits for its first lease is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running node.
pub struct NodeHandle {
    incarnation: Incarnation,
    snapshot: SharedSnapshot,
    to_worker: ToWorker,
    to_control: Sender<Work>,
    /// Bytes that are set aside for values on their way.
    streams_max: u64,
    worker: Option<JoinHandle<Ended>>,
    control: Option<ControlThread>,
    _ready: ReadyMemory,
    _memory: MemoryWatch,
}

/// The control thread, which ends last.
struct ControlThread {
    thread: JoinHandle<Result<(), NodeError>>,
    /// Its sender goes with the thread; nothing is sent.
    lives: Receiver<Infallible>,
    /// How long it waits, once all else has ended, before it ends the lease.
    lease_end_wait: Duration,
}

/// A node that has its folder and listens, and has no lease yet. Its clients wait; its figures can be looked
/// at.
pub struct StartingNode {
    options: NodeOptions,
    /// Where it is, for people.
    coordinator: Arc<str>,
    plan: MemoryPlan,
    budget: Budget,
    lock: FolderLock,
    log_root: LogRoot,
    flusher: Arc<Flusher>,
    endpoint: HostEndpoint,
    address: SocketAddr,
    poller: Poller,
    started_ns: u64,
    snapshot: SharedSnapshot,
    to_worker: ToWorker,
    inbound: Receiver<Inbound>,
    to_control: Sender<Work>,
    work: Receiver<Work>,
}

impl StartingNode {
    /// Takes the folder and listens. Nothing is asked of the coordinator, whose place `coordinator` names for
    /// people.
    ///
    /// # Errors
    /// See [`NodeError`]: another process on the folder, no address.
    pub fn prepare(mut options: NodeOptions, coordinator: &str) -> Result<StartingNode, NodeError> {
        let plan = MemoryPlan::new(&mut options.settings, cell_memory::total_bytes())?;
        let budget = plan.budget();
        let lock = FolderLock::acquire(&options.home)?;
        check_lock(&options.home, &lock)?;
        let log_root = LogRoot::open(&options.folder)?;
        let flusher = log_flush::start(&options, &log_root)?;
        let endpoint = HostEndpoint::listen(options.listen, &fabric_options(&options))?;
        let address = endpoint.address().unwrap_or(options.listen);
        let started_ns = boottime_ns();
        let (inbound, inbound_receiver) = channel();
        let (to_control, work) = channel();
        let poller = Poller::new()?;
        let to_worker = ToWorker { inbound, waker: poller.waker() };
        let nobody = WorkerIdentity { node: options.node, incarnation: Incarnation(0) };
        let progress = Arc::new(Progress::new(started_ns));
        let worker_options = worker_options(&options.settings, &plan);
        let coordinator: Arc<str> = coordinator.into();
        let figures = begin_worker(nobody, &options, &worker_options, &progress, &coordinator).snapshot();
        let wait = CoordinatorWait { coordinator: coordinator.clone(), ..CoordinatorWait::default() };
        let figures = NodeSnapshot { state: NodeState::Starting(wait), memory: budget.figures(), ..figures };
        Ok(StartingNode {
            options,
            coordinator,
            plan,
            budget,
            lock,
            log_root,
            flusher,
            endpoint,
            address,
            poller,
            started_ns,
            snapshot: Arc::new(Mutex::new(Arc::new(figures))),
            to_worker,
            inbound: inbound_receiver,
            to_control,
            work,
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A source of snapshots, those of the node that has joined among them.
    #[must_use]
    pub fn watch(&self) -> SnapshotWatch {
        SnapshotWatch { snapshot: self.snapshot.clone() }
    }

    /// What the node may hold in memory, whose limit may be set anew while it lives.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.budget.clone()
    }

    /// A way to look at single meganodes and to have all checked, once there are any.
    #[must_use]
    pub fn tree_look(&self) -> TreeLook {
        TreeLook::new(self.to_control.clone(), self.to_worker.clone())
    }

    /// Asks for a lease for as long as it takes, then joins and serves. It returns when the node has its
    /// lease; recovery goes on in the background, and clients are answered so. `goes_on` is asked some times
    /// a second whether the lease is waited for any longer; none: it is not.
    ///
    /// # Errors
    /// See [`NodeError`]: a lease is refused.
    pub fn join(
        self,
        coordinator: Arc<dyn Coordinator>,
        mut goes_on: impl FnMut(&NodeSnapshot) -> bool,
    ) -> Result<Option<NodeHandle>, NodeError> {
        let mut asked = FirstLease::ask(coordinator.clone(), lease_terms(&self.options.settings))?;
        loop {
            if let Some(lease) = asked.wait(LOOK_EVERY)? {
                return self.serve(coordinator, lease).map(Some);
            }
            self.publish(asked.tries());
            if !goes_on(&self.watch().snapshot()) {
                return Ok(None);
            }
        }
    }

    /// Shows how the waiting goes.
    fn publish(&self, LeaseTries { failed: tries, why }: LeaseTries) {
        let mut shared = self.snapshot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let NodeState::Starting(before) = &shared.state else { return };
        let state =
            NodeState::Starting(CoordinatorWait { coordinator: before.coordinator.clone(), tries, why });
        let lived_ns = boottime_ns().saturating_sub(self.started_ns);
        let NodeOptions { restarted_because, access, process_warnings, .. } = &self.options;
        let mut warnings = warning::of_restarts(restarted_because.as_deref(), lived_ns);
        warnings.extend(warning::of_files(access, process_warnings));
        *shared = Arc::new(NodeSnapshot {
            state,
            warnings,
            uptime_ms: lived_ns / 1_000_000,
            memory: self.budget.figures(),
            ..NodeSnapshot::clone(&shared)
        });
    }

    fn serve(self, coordinator: Arc<dyn Coordinator>, lease: LeaseThread) -> Result<NodeHandle, NodeError> {
        let StartingNode { options, plan, budget, endpoint, address, snapshot, .. } = self;
        let (to_worker, to_control, settings) = (self.to_worker, self.to_control, &options.settings);
        let taker = endpoint.region_taker();
        let reads = ServedReads { ordered: endpoint.reads_ordered(), whole: endpoint.takes_whole_regions() };
        let incarnation = lease.incarnation();
        let identity = WorkerIdentity { node: options.node, incarnation };
        let worker_options = worker_options(settings, &plan);
        let ready = keep_ready(settings, budget.clone())?;
        let progress = Arc::new(Progress::new(boottime_ns()));
        let worker = begin_worker(identity, &options, &worker_options, &progress, &self.coordinator)
            .started(self.started_ns);
        let memory = watch_memory(budget.clone(), snapshot.clone())?;
        let shell = Shell::new(
            worker,
            endpoint,
            self.poller,
            self.inbound,
            to_control.clone(),
            lease.surely_until_ns(),
            snapshot.clone(),
        )?
        .within(budget.clone(), plan.replies_max)
        .counting(lease.counts().clone())
        .spinning(worker_options.spin_ns)
        .flushing(self.flusher)?;
        let worker = spawn_worker(shell, to_control.clone())?;
        let bring_up = Arc::new(BringUp {
            threads: AtomicUsize::new(recovery_threads(settings)),
            start_populate: populate::start,
            move_bytes_per_second: AtomicU64::new(settings.integer("move_bytes_per_second")),
            advertised: options.advertised.clone().unwrap_or_else(|| address.to_string()),
            home: home_name(&options.home, &self.lock, incarnation),
            options,
            log_root: self.log_root,
            worker_options,
            reads,
            taker,
            plan,
            budget,
            coordinator,
            incarnation,
            to_worker: to_worker.clone(),
            progress,
        });
        let (lock, work) = (self.lock, (to_control.clone(), self.work));
        let control = spawn_control(bring_up, lock, lease, work)?;
        tracing::info!(%address, %incarnation, "listening");
        Ok(NodeHandle {
            incarnation,
            snapshot,
            to_worker,
            to_control,
            streams_max: plan.streams,
            worker: Some(worker),
            control: Some(control),
            _ready: ready,
            _memory: memory,
        })
    }
}

fn begin_worker(
    identity: WorkerIdentity,
    options: &NodeOptions,
    worker_options: &WorkerOptions,
    progress: &Arc<Progress>,
    coordinator: &Arc<str>,
) -> Worker {
    Worker::new(identity, worker_options.clone(), progress.clone(), boottime_ns())
        .reporting(FIGURES_EVERY_NS)
        .with_access(options.access.clone())
        .with_process_warnings(options.process_warnings.clone())
        .restarted(options.restarted_because.as_deref())
        .coordinated_at(coordinator.clone())
}

/// The worker's options, with the memory that writes which wait for splits, and results, may take.
fn worker_options(settings: &Settings, plan: &MemoryPlan) -> WorkerOptions {
    let [parked_bytes_max, result_bytes_max] = [parked_bytes_max(plan.limit), result_bytes_max(plan.limit)]
        .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    WorkerOptions { parked_bytes_max, result_bytes_max, ..WorkerOptions::from_settings(settings) }
}

/// Keeps memory ready for takeovers.
fn keep_ready(settings: &Settings, budget: Budget) -> Result<ReadyMemory, NodeError> {
    let bytes = RegionSettings::new(settings).ready_memory_bytes;
    ReadyMemory::start(bytes, budget).map_err(NodeError::Thread)
}

/// Watches the machine's memory, from when the node serves on.
fn watch_memory(budget: Budget, snapshot: SharedSnapshot) -> Result<MemoryWatch, NodeError> {
    let watched = SnapshotWatch { snapshot };
    let is_serving =
        move || !matches!(watched.snapshot().state, NodeState::Starting(_) | NodeState::Recovering(_));
    MemoryWatch::start(budget, is_serving).map_err(NodeError::Thread)
}

/// Starts the worker's thread; the control thread is notified of its end.
fn spawn_worker(shell: Shell, to_control: Sender<Work>) -> Result<JoinHandle<Ended>, NodeError> {
    spawn("cell-worker", move || {
        let ended = shell.run();
        let _ = to_control.send(Work::WorkerEnded); // unless it has ended before
        ended
    })
}

/// Where clients of this host and of others find the node. Its own folder's lock is held, so a socket that is
/// there is a dead node's.
fn fabric_options(options: &NodeOptions) -> HostOptions {
    let settings = &options.settings;
    let shm = ShmOptions {
        greeting: Greeting { http_address: options.http_address.clone(), ..Greeting::of_this_host() },
        one_sided: settings.text("one_sided_reads") == "on",
        partition: options.partition.clone(),
        readers: options.access.wants_tokens().then(|| options.access.clone() as Arc<dyn ReadPermission>),
        ..ShmOptions::from_settings(settings)
    };
    let socket = (settings.text("fabric_shm") == "on").then(|| socket_name(&options.home)).flatten();
    let verbs = VerbsOptions::from_settings(settings);
    let (beyond_loopback, tls) = (options.beyond_loopback, options.tls.clone());
    HostOptions { shm, socket, beyond_loopback, verbs, tls }
}

/// The socket for shared memory lies in the node's own folder; where the path is too long for one, there is
/// none.
fn socket_name(folder: &Path) -> Option<SocketName> {
    let path = std::fs::canonicalize(folder).ok()?.join("fabric.socket");
    let name = SocketName::of_path(&path);
    if name.is_none() {
        tracing::warn!(path = %path.display(), "no unix socket can have this path: no shared memory for clients");
    }
    name
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NodeError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(NodeError::Thread)
}

fn spawn_control(
    bring_up: Arc<BringUp>,
    lock: FolderLock,
    lease: LeaseThread,
    work: (Sender<Work>, Receiver<Work>),
) -> Result<ControlThread, NodeError> {
    let lease_end_wait = Duration::from_nanos(lease_end::trust_ns(&bring_up.options.settings));
    let (alive, lives) = channel();
    let thread = spawn("cell-control", move || {
        let _alive = alive;
        run_control(&bring_up, lock, lease, work)
    })?;
    Ok(ControlThread { thread, lives, lease_end_wait })
}

/// Recovers, serves the worker's commands until it ends, then gives the pair up in the table. Lock and lease
/// are held to the very end, which comes before its time where the worker has surely ended.
fn run_control(
    bring_up: &Arc<BringUp>,
    lock: FolderLock,
    lease: LeaseThread,
    (sender, work): (Sender<Work>, Receiver<Work>),
) -> Result<(), NodeError> {
    let result = control::run(bring_up, &sender, &work);
    if let Err(error) = &result {
        tracing::error!(error = error as &dyn std::error::Error, "the node cannot serve");
        bring_up.to_worker.send(Inbound::GiveUp(failure_kind(error)));
    }
    let passed_ns = boottime_ns().saturating_add(lease_end::trust_ns(&bring_up.options.settings));
    let (incarnation, has_ended) = (lease.incarnation(), lease.has_ended());
    drop(lease); // nobody renews it any more
    if result.is_ok() && !has_ended {
        lease_end::end(&*bring_up.coordinator, incarnation, passed_ns, lease_end::wait_until);
    }
    drop(lock);
    result
}

/// What is shown of a node that cannot serve.
fn failure_kind(error: &NodeError) -> FailureKind {
    match error {
        NodeError::Cluster(ClusterError::LeaseEnded { .. }) => FailureKind::LeaseLost,
        NodeError::Cluster(
            ClusterError::Terms(_) | ClusterError::NodeElsewhere { .. } | ClusterError::Node(_),
        )
        | NodeError::LogRootBare { .. }
        | NodeError::LogRootUnseen { .. }
        | NodeError::Geometry { .. }
        | NodeError::Layout { .. }
        | NodeError::Memory(MemoryError::Geometry { .. }) => FailureKind::JoinRefused,
        NodeError::Cluster(ClusterError::Etcd(EtcdError::HistoryLost)) => FailureKind::HistoryLost,
        _ => FailureKind::RecoveryRefused,
    }
}

impl NodeHandle {
    /// This life of the node.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The newest snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<NodeSnapshot> {
        self.snapshot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// What the node is doing.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.snapshot().state.clone()
    }

    /// Asks the node to stop: no further requests are taken, what waits for the log is answered, then, if
    /// wished, a last checkpoint is taken. [`NodeHandle::wait`] returns when that is done.
    pub fn stop(&self, checkpoint: bool) {
        let _ = self.to_control.send(Work::Stopping); // unless it has ended
        self.to_worker.send(Inbound::Control(ControlEvent::Stop { checkpoint }));
    }

    /// Takes over what changes in the store and applies live, and puts into the store what the cluster is
    /// tuned to.
    pub fn follow(&self, store: &Arc<SettingsStore>) {
        let to_control = self.to_control.clone();
        let why = "so much memory is set aside for it when the node starts";
        store.bound(STREAMS, self.streams_max, why);
        let _ = to_control.send(Work::Store(store.clone())); // unless it has ended
        store.subscribe(move |_, settings| {
            let _ = to_control.send(Work::Settings(Box::new(settings.clone()))); // unless it has ended
        });
    }

    /// Whether the node has ended by itself or by [`NodeHandle::stop`].
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// How long a node that has ended waits for the end of its lease, if it ends that itself.
    #[must_use]
    pub fn lease_end_wait(&self) -> Duration {
        self.control.as_ref().map_or(Duration::ZERO, |control| control.lease_end_wait)
    }

    /// Waits until the node is gone, its lease with it if it ends that itself, for so long at most; whether
    /// it is.
    #[must_use]
    pub fn is_gone_within(&self, at_most: Duration) -> bool {
        let Some(control) = &self.control else { return self.has_ended() };
        control.lives.recv_timeout(at_most) != Err(RecvTimeoutError::Timeout) && self.has_ended()
    }

    /// Waits for the node's end.
    ///
    /// # Errors
    /// Why the control thread ended, if it could not serve.
    ///
    /// # Panics
    /// If a thread of the node panicked (release builds abort before that).
    pub fn wait(mut self) -> Result<Ended, NodeError> {
        let ended =
            self.worker.take().map_or(Ended::Stopped, |worker| worker.join().expect("the worker panicked"));
        let control = self.control.take();
        let control = control.map_or(Ok(()), |control| control.thread.join().expect("control panicked"));
        control.map(|()| ended)
    }
}

/// Reads a node's snapshots.
#[derive(Clone)]
pub struct SnapshotWatch {
    snapshot: SharedSnapshot,
}

impl SnapshotWatch {
    /// The newest snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<NodeSnapshot> {
        self.snapshot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::NodeRefusal;
    use cell_terms::NodeId;

    use super::*;

    /// A node that was given another durability than its cluster "failed: recovery refused its pair".
    #[test]
    fn failure_of_a_node_that_may_not_join_is_not_recoverys() {
        let kind = |error: ClusterError| failure_kind(&error.into());
        let removed = NodeRefusal::Removed { node: NodeId(1), who: "ada".into() };
        assert_eq!(kind(ClusterError::Node(removed)), FailureKind::JoinRefused);
        let lease = Incarnation(1);
        assert_eq!(kind(ClusterError::LeaseEnded { lease }), FailureKind::LeaseLost);
        let geometry = NodeError::Geometry { setting: "slot_bytes", wanted: 2, found: 1 };
        assert_eq!(failure_kind(&geometry), FailureKind::JoinRefused);
        assert_eq!(kind(EtcdError::HistoryLost.into()), FailureKind::HistoryLost);
        assert_eq!(kind(ClusterError::NotInitialised), FailureKind::RecoveryRefused);
    }
}
