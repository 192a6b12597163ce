//! One life of a node's process: the production cores (lease keeper, takeover, worker, checkpoint copy) and,
//! in place of
//! the production shells' threads, one function that steps them. It follows `cell_node`'s shell and control
//! thread
//! call by call; clock, disk, network and coordinator are the world's.

use std::collections::VecDeque;
use std::sync::Arc;

use cell_cluster::{
    ClaimGround, ClusterError, Coordinator, LeaseCommand, LeaseKeeper, NewPair, PairRow, Place, Renewal,
    Sessions, SimLink, Table, Tenure,
};
use cell_fabric::{Endpoint, OneSided, SimEndpoint};
use cell_node::{ControlEvent, FailureKind, SplitCounts, Store, Worker, WorkerIdentity, pair_regions};
use cell_protocol::PairRegions;
use cell_recovery::image::ImageSource;
use cell_recovery::{
    ClaimRequest, Environment, Progress, PublishRequest, Rebuild, Recovered, RecoveryError, RecoveryOptions,
    RegionSource, Takeover, Turn, find_logs,
};
use cell_terms::{Durability, Incarnation, NodeId, RegionKind};
use cell_wal::sim::{SimDevice, SimDisk};
use cell_wal::{Errno, LogId, LogName, WalError};

use crate::control::Control;
use crate::plan::{MS, Plan, US};
use crate::process::{Fuse, FusedLink, FusedStorage};
use crate::random::Random;
use crate::serving::Serving;

/// How long a process that finds another owner's lease waits at most before it asks again.
const PATIENCE_NS: u64 = 50 * MS;

/// What a node's step tells the world.
pub enum News {
    /// The pairs were taken over. The world looks at them and says whether all is well before they are
    /// served.
    Recovered(Vec<Recovered>),
    /// A checkpoint is recorded in the table.
    Checkpointed,
    /// A checkpoint failed.
    CheckpointFailed,
    /// A check of the whole pair found this.
    Violations(String),
    /// The coordinator has recorded a session's end.
    SessionEnded,
    /// The process ends by itself.
    Exit(Exit),
    /// A rule was broken.
    Broken(String),
}

/// Why a process ended by itself.
#[derive(Debug)]
pub enum Exit {
    /// As the operator wished.
    Stopped,
    /// The worker gave its pair up.
    Failed(FailureKind),
    /// The lease ended before the pair was served.
    LeaseEnded,
    /// The recovery refused.
    Refused(RecoveryError),
}

/// What a node is made of.
pub struct Ground<'a> {
    /// The seed's plan.
    pub plan: &'a Plan,
    /// The host.
    pub host: u32,
    /// The process's view of the disk.
    pub disk: SimDisk,
    /// Its way to the coordinator.
    pub link: SimLink,
    /// Its listening endpoint.
    pub endpoint: SimEndpoint,
    /// Its randomness.
    pub random: Random,
    /// The present.
    pub now_ns: u64,
}

/// See the module's text.
pub struct Node {
    /// The host.
    pub host: u32,
    /// The process's view of the disk.
    pub disk: SimDisk,
    /// What kills it at some touch of the world.
    pub fuse: Fuse,
    /// Its way to the coordinator, for faults.
    pub link: SimLink,
    /// Until then it is stopped, as by SIGSTOP.
    frozen_until_ns: u64,
    given_up: bool,
    pub(crate) plan: Plan,
    pub(crate) coordinator: Arc<FusedLink>,
    pub(crate) environment: Environment,
    pub(crate) endpoint: SimEndpoint,
    /// Of each pair's log, by the pairs' numbers.
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) worker: Option<Worker>,
    pub(crate) lease_until_ns: u64,
    pub(crate) random: Random,
    pub(crate) serving: Serving,
    pub(crate) control: Control,
    progress: Arc<Progress>,
    keeper: LeaseKeeper,
    renewal: Option<(u64, Renewal)>,
    takeover: Option<(Takeover, SimDevice)>,
    /// A pair that is added while others are served.
    adding: Option<(Takeover, SimDevice, u64)>,
    /// Pairs that are still to be taken over, once the table has told which there are.
    pending: Option<VecDeque<PairRow>>,
    recovered: Vec<Recovered>,
    takeover_due_ns: u64,
    /// When the pair is to be claimed, for the first time or again.
    begin_due_ns: u64,
    due_ns: u64,
}

impl Node {
    /// A process that begins.
    #[must_use]
    pub fn start(ground: Ground<'_>) -> Node {
        let Ground { plan, host, disk, link, endpoint, random, now_ns } = ground;
        let fuse = Fuse::new();
        let coordinator = Arc::new(FusedLink { link: link.clone(), fuse: fuse.clone() });
        let environment = Environment {
            storage: Arc::new(FusedStorage { storage: disk.clone(), fuse: fuse.clone() }),
            table: Table::new(coordinator.clone()),
            sessions: Sessions::new(coordinator.clone()),
            options: RecoveryOptions {
                threads: 1,
                read_bytes: 64 << 10,
                regions: RegionSource::Private,
                node_crc: true, // one-sided reads come in no order
            },
        };
        Node {
            host,
            devices: Vec::new(),
            disk,
            fuse,
            link,
            frozen_until_ns: 0,
            given_up: false,
            plan: plan.clone(),
            coordinator,
            environment,
            endpoint,
            worker: None,
            lease_until_ns: 0,
            random,
            serving: Serving::default(),
            control: Control::default(),
            progress: Arc::new(Progress::new(now_ns)),
            keeper: LeaseKeeper::new(plan.lease),
            renewal: None,
            takeover: None,
            adding: None,
            pending: None,
            recovered: Vec::new(),
            takeover_due_ns: u64::MAX,
            begin_due_ns: now_ns,
            due_ns: now_ns,
        }
    }

    /// Whether it is stopped now.
    #[must_use]
    pub fn is_frozen(&self, now_ns: u64) -> bool {
        now_ns < self.frozen_until_ns
    }

    /// Stops it, or lets it go on, at this time. One that is stopped past its lease is given up by its
    /// operator.
    pub fn freeze(&mut self, until_ns: u64, past_lease: bool) {
        self.frozen_until_ns = until_ns;
        self.given_up = past_lease;
    }

    /// Whether its operator has another node started in its place.
    #[must_use]
    pub fn is_given_up(&self, now_ns: u64) -> bool {
        self.given_up && self.is_frozen(now_ns)
    }

    /// Whether the network has something for it.
    pub fn has_input(&mut self) -> bool {
        !self.endpoint.prepare_sleep()
    }

    /// Splits of meganodes in its life.
    #[must_use]
    pub fn splits(&self) -> SplitCounts {
        self.worker.as_ref().map(Worker::split_counts).unwrap_or_default()
    }

    /// How many writes it answered from the completion table.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.worker.as_ref().map_or(0, |worker| worker.snapshot().operations.repeated)
    }

    /// Its first node region's log, once the pairs are served.
    #[must_use]
    pub fn log_name(&self) -> Option<LogName> {
        let tenure = self.control.pairs.first()?.tenure;
        Some(LogId { pair: tenure.pair, epoch: tenure.epoch }.log(RegionKind::Node))
    }

    /// Whether it serves the pairs.
    #[must_use]
    pub fn serves(&self) -> bool {
        !self.control.pairs.is_empty()
    }

    /// Whether it is taking pairs over.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.takeover.is_some() || !self.recovered.is_empty()
    }

    /// When it is to be stepped next, if nothing reaches it before.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.due_ns.max(self.frozen_until_ns)
    }

    /// Something has reached it: a message, a completion.
    pub fn wake(&mut self, now_ns: u64) {
        self.due_ns = self.due_ns.min(now_ns.max(self.serving.rests_until_ns));
    }

    /// The process's own clock, which drifts.
    #[must_use]
    pub fn clock_ns(&self, now_ns: u64) -> u64 {
        let ppm = self.plan.drift_ppm[usize::from(self.host != crate::plan::HOSTS[0])];
        let drift = i128::from(now_ns) * i128::from(ppm) / 1_000_000;
        u64::try_from(i128::from(now_ns) + drift).unwrap_or(0)
    }

    /// The world's time at which the process's clock will stand so, or a little later.
    pub(crate) fn world_ns(&self, clock_ns: u64) -> u64 {
        let ppm = self.plan.drift_ppm[usize::from(self.host != crate::plan::HOSTS[0])];
        let world = i128::from(clock_ns) * 1_000_000 / i128::from(1_000_000 + ppm);
        u64::try_from(world + 1).unwrap_or(u64::MAX)
    }

    /// The incarnation, once there is a lease.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.keeper.lease()
    }

    /// Does what is due.
    pub fn step(&mut self, now_ns: u64, news: &mut Vec<News>) {
        if now_ns < self.due_ns() || self.fuse.is_burnt() {
            return;
        }
        let mut due_ns = self.step_lease(now_ns);
        if now_ns >= self.begin_due_ns
            && let Some(incarnation) = self.keeper.lease()
        {
            self.begin_due_ns = u64::MAX;
            if let Err(error) = self.begin(incarnation, now_ns) {
                return news.push(News::Exit(Exit::Refused(error)));
            }
        }
        due_ns = due_ns.min(self.step_takeover(now_ns, news));
        due_ns = due_ns.min(self.step_adding(now_ns, news));
        due_ns = due_ns.min(self.step_worker(now_ns, news));
        due_ns = due_ns.min(self.step_control(now_ns, news));
        self.due_ns = due_ns.max(now_ns + 1);
    }

    /// The lease's shell: asks, and hears the answer some time later.
    fn step_lease(&mut self, now_ns: u64) -> u64 {
        let clock_ns = self.clock_ns(now_ns);
        if let Some((_, renewal)) = self.renewal.take_if(|(due_ns, _)| *due_ns <= now_ns) {
            self.keeper.answered(renewal, clock_ns);
            self.lease_until_ns = self.keeper.surely_holds_until_ns();
        }
        if let Some((due_ns, _)) = self.renewal {
            return due_ns;
        }
        let renewal = match self.keeper.step(clock_ns) {
            LeaseCommand::Wait { until_ns } => return self.world_ns(until_ns),
            LeaseCommand::Stop => return u64::MAX,
            LeaseCommand::Grant => {
                let granted = self.coordinator.grant(self.plan.lease.ttl_ms);
                granted.map_or(Renewal::Failed, |grant| Renewal::Granted(grant.lease))
            }
            LeaseCommand::Renew(lease) => match self.coordinator.keep_alive(lease) {
                Ok(()) => Renewal::Alive,
                Err(ClusterError::LeaseEnded { .. }) => Renewal::Ended,
                Err(_) => Renewal::Failed,
            },
        };
        let due_ns = now_ns + self.random.time_ns(100 * US);
        self.renewal = Some((due_ns, renewal));
        due_ns
    }

    /// From a lease to a takeover: `BringUp::recover`.
    fn begin(&mut self, incarnation: Incarnation, now_ns: u64) -> Result<(), RecoveryError> {
        let node = NodeId(self.host);
        let clock_ns = self.clock_ns(now_ns);
        self.worker.get_or_insert_with(|| {
            let identity = WorkerIdentity { node, incarnation };
            Worker::new(identity, self.plan.worker, self.progress.clone(), clock_ns)
        });
        let publish = self.publish();
        let environment = &self.environment;
        if self.pending.is_none() {
            environment.table.check_logs_found(&find_logs(&*environment.storage)?)?;
            let (rows, _) = environment.table.pairs()?;
            self.pending = Some(rows.into());
        }
        let takeover = match self.pending.as_ref().and_then(VecDeque::front) {
            Some(row) => {
                // Nobody else runs on this host; of another host's owner only the lease tells.
                let ground = if row.node == node { ClaimGround::HostLock } else { ClaimGround::LeaseEnded };
                let claim = ClaimRequest { pair: row.pair, incarnation, node, ground };
                Takeover::new(environment, claim, publish, &self.progress)
            }
            None => {
                let new = NewPair { incarnation, node, geometry: self.plan.geometry };
                let rebuild =
                    Rebuild::new(environment, environment.table.create_pair(&new)?, &self.progress)?;
                Takeover::claimed(environment, rebuild, publish, &self.progress)
            }
        };
        self.takeover = Some((takeover, self.disk.device()));
        self.takeover_due_ns = now_ns;
        Ok(())
    }

    fn publish(&mut self) -> PublishRequest {
        PublishRequest {
            durability: Durability::Sync,
            place: Place { address: format!("sim:{}", self.host), worker: 0, node_key: 0, extent_key: 0 },
            log: self.plan.log,
            salt: self.random.next(),
        }
    }

    /// One more pair: `BringUp::grow`.
    pub(crate) fn add_pair(&mut self, now_ns: u64) {
        let room = self.control.pairs.len() < self.plan.pairs_max;
        let Some(incarnation) = self.keeper.lease().filter(|_| room && self.adding.is_none()) else {
            return self.tell(ControlEvent::PairRefused);
        };
        let new = NewPair { incarnation, node: NodeId(self.host), geometry: self.plan.geometry };
        let publish = self.publish();
        let environment = &self.environment;
        let created = environment.table.create_pair(&new).map_err(RecoveryError::from);
        match created.and_then(|claim| Rebuild::new(environment, claim, &self.progress)) {
            Ok(rebuild) => {
                let takeover = Takeover::claimed(environment, rebuild, publish, &self.progress);
                self.adding = Some((takeover, self.disk.device(), now_ns));
            }
            Err(_) => self.tell(ControlEvent::PairRefused),
        }
    }

    fn step_adding(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        let Some((takeover, device, due_ns)) = &mut self.adding else { return u64::MAX };
        if now_ns < *due_ns {
            return *due_ns;
        }
        match takeover.step(device) {
            Ok(Turn::More) => *due_ns = now_ns + self.random.time_ns(20 * US),
            Ok(Turn::Wait(for_ns)) => *due_ns = now_ns + for_ns,
            Ok(Turn::Done) => {
                let Some((takeover, device, _)) = self.adding.take() else { return u64::MAX };
                let Some(incarnation) = self.keeper.lease() else { return u64::MAX };
                let recovered = takeover.finish();
                let tenure = Tenure { pair: recovered.pair, epoch: recovered.epoch, incarnation };
                let store = Store::new(recovered, &self.plan.worker);
                self.control.begin(tenure, Arc::new(store.source()), store.slot_ends());
                self.devices.push(device);
                let row = self.register(&store.source());
                if let Some(worker) = &mut self.worker {
                    worker.add_pair(store);
                    row.into_iter().for_each(|row| worker.registered(row));
                }
                return now_ns + 1;
            }
            Err(error) => {
                self.adding = None;
                if !is_excused(&error) {
                    news.push(News::Broken(format!("a new pair was refused: {error}")));
                }
                self.tell(ControlEvent::PairRefused);
                return now_ns + 1;
            }
        }
        self.adding.as_ref().map_or(u64::MAX, |(_, _, due_ns)| *due_ns)
    }

    fn step_takeover(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        if now_ns < self.takeover_due_ns {
            return self.takeover_due_ns;
        }
        let Some((takeover, device)) = &mut self.takeover else { return u64::MAX };
        let waits_ns = match takeover.step(device) {
            Ok(Turn::More) => self.random.time_ns(20 * US),
            Ok(Turn::Wait(for_ns)) => for_ns,
            Ok(Turn::Done) => {
                if let Some((takeover, device)) = self.takeover.take() {
                    self.recovered.push(takeover.finish());
                    self.devices.push(device);
                }
                self.takeover_due_ns = u64::MAX;
                let pending = self.pending.get_or_insert_default();
                pending.pop_front();
                if pending.is_empty() {
                    news.push(News::Recovered(std::mem::take(&mut self.recovered)));
                } else {
                    self.begin_due_ns = now_ns + 1;
                }
                return now_ns + 1;
            }
            Err(RecoveryError::Cluster(ClusterError::OwnerLives { remaining_ns, .. })) => {
                self.takeover = None;
                self.takeover_due_ns = u64::MAX;
                self.begin_due_ns = now_ns + remaining_ns.clamp(MS, PATIENCE_NS);
                return self.begin_due_ns;
            }
            Err(error) => {
                self.takeover = None;
                news.push(News::Exit(match error {
                    RecoveryError::Cluster(ClusterError::LeaseEnded { .. }) => Exit::LeaseEnded,
                    error => Exit::Refused(error),
                }));
                return u64::MAX;
            }
        };
        self.takeover_due_ns = now_ns + waits_ns;
        self.takeover_due_ns
    }

    /// The pairs are handed to the worker: `BringUp::hand_over`.
    ///
    /// # Errors
    /// The coordinator does not tell the open sessions.
    pub fn install(&mut self, recovered: Vec<Recovered>) -> Result<(), ClusterError> {
        let Some(incarnation) = self.keeper.lease() else { return Ok(()) };
        let (open, _) = self.environment.sessions.open_sessions()?;
        let (mut stores, mut rows) = (Vec::new(), Vec::new());
        for recovered in recovered {
            let tenure = Tenure { pair: recovered.pair, epoch: recovered.epoch, incarnation };
            let store = Store::new(recovered, &self.plan.worker);
            self.control.begin(tenure, Arc::new(store.source()), store.slot_ends());
            rows.extend(self.register(&store.source()));
            stores.push(store);
        }
        if let Some(worker) = &mut self.worker {
            worker.install(stores, open.iter().map(|row| row.session));
            rows.into_iter().for_each(|row| worker.registered(row));
        }
        self.serving.serve();
        Ok(())
    }

    /// Lets clients read a pair's regions: the shell's `register`.
    fn register(&mut self, source: &ImageSource) -> Option<PairRegions> {
        let node_key = self.endpoint.register(&source.node).ok()?;
        let extent_key = self.endpoint.register(&source.extent).ok()?;
        let node_crc = source.geometry.node_crc();
        Some(pair_regions(&source.node, &source.extent, node_crc, node_key, extent_key))
    }

    /// What a process does last when it ends by itself: its pair is free for others.
    pub fn release(&mut self) {
        for pair in &self.control.pairs {
            // The table keeps the pair in this node's name if that fails, until the lease ends.
            let _ = self.environment.table.release(pair.tenure);
        }
    }
}

/// Whether an injected fault explains that a takeover was refused. A pair whose data is damaged or gone is
/// never
/// explained so: no fault of the run damages what was acknowledged.
#[must_use]
pub fn is_excused(error: &RecoveryError) -> bool {
    match error {
        RecoveryError::Cluster(error) => !matches!(
            error,
            ClusterError::TableOlder { .. }
                | ClusterError::LogWithoutRow { .. }
                | ClusterError::CutRecorded { .. }
                | ClusterError::CutMissing { .. }
                | ClusterError::PairUnknown { .. }
        ),
        RecoveryError::Log(WalError::Storage(error)) => {
            error.errno == Errno::EIO || error.errno == Errno::ENOSPC
        }
        RecoveryError::Log(error) => {
            matches!(error, WalError::Poisoned { .. } | WalError::RingUnavailable { .. })
        }
        RecoveryError::GivenUp => true,
        _ => false,
    }
}
