//! One life of a node's process: the production cores (lease keeper, control side, takeover, the worker's
//! loop, checkpoint copy) and, in place of the production shells' threads, one function that steps them. It
//! follows `cell_node`'s shells call by call; clock, disk, network and coordinator are the world's.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

use cell_cluster::{
    Coordinator, HostId, LeaseCommand, LeaseKeeper, Ownership, Renewal, Sessions, SimLink, Table,
};
use cell_fabric::SimEndpoint;
use cell_node::{ControlDriver, SplitCounts, Worker};
use cell_pair::Pair;
use cell_random::Random;
use cell_recovery::{Environment, Progress, RecoveryOptions, RegionSource};
use cell_terms::{Incarnation, RegionKind};
use cell_wal::sim::SimDisk;
use cell_wal::{LogId, LogName};

use crate::calls;
use crate::news::News;
use crate::plan::{Plan, US, scaled};
use crate::process::{Fuse, FusedLink, FusedStorage};
use crate::threads::{Claims, Control, Serving};

/// What a node is made of.
pub struct NodeSetup<'a> {
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
    /// Pairs that nodes are about to create, all of them together.
    pub pairs_coming: Arc<AtomicUsize>,
    /// The next creation of a pair, by whichever node, is to be broken off once its row is there.
    pub breaks_creation: Arc<AtomicBool>,
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
    /// Nothing that it asks of its disk comes back: threads that wait for it do nothing more.
    pub(crate) disk_hangs: bool,
    /// Who takes pairs over here finds nothing of them: the log root is not mounted.
    pub(crate) is_unmounted: bool,
    pub(crate) plan: Plan,
    pub(crate) coordinator: Arc<FusedLink>,
    pub(crate) environment: Environment,
    pub(crate) lease_until_ns: u64,
    pub(crate) random: Random,
    pub(crate) serving: Serving,
    pub(crate) control: Control,
    pub(crate) progress: Arc<Progress>,
    pub(crate) claims: Claims,
    pub(crate) pairs_coming: Arc<AtomicUsize>,
    pub(crate) breaks_creation: Arc<AtomicBool>,
    keeper: LeaseKeeper,
    renewal: Option<(u64, Renewal)>,
    due_ns: u64,
}

impl Node {
    /// A process that begins.
    #[must_use]
    pub fn start(setup: NodeSetup<'_>) -> Node {
        let NodeSetup { plan, host, disk, link, endpoint, random, pairs_coming, breaks_creation, now_ns } =
            setup;
        let fuse = Fuse::new();
        let coordinator =
            Arc::new(FusedLink { link: link.clone(), fuse: fuse.clone(), late: Mutex::default() });
        let environment = Environment {
            storage: Arc::new(FusedStorage { storage: disk.clone(), fuse: fuse.clone() }),
            table: Table::new(coordinator.clone()).on_host(Some(HostId::new(1, 1))),
            sessions: Sessions::new(coordinator.clone()),
            budget: cell_memory::Budget::unlimited(),
            options: RecoveryOptions {
                threads: 1,
                read_bytes: 64 << 10,
                regions: RegionSource::Private,
                node_crc: true, // one-sided reads come in no order
            },
        };
        Node {
            host,
            disk,
            fuse,
            link,
            frozen_until_ns: 0,
            given_up: false,
            disk_hangs: false,
            is_unmounted: false,
            plan: plan.clone(),
            coordinator: coordinator.clone(),
            environment,
            lease_until_ns: 0,
            random,
            serving: Serving::new(endpoint),
            control: Control::default(),
            progress: Arc::new(Progress::new(now_ns)),
            claims: Claims::default(),
            pairs_coming,
            breaks_creation,
            keeper: LeaseKeeper::new(plan.lease),
            renewal: None,
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

    /// Nothing that it asks of its disk comes back any more.
    pub fn hang_disk(&mut self) {
        self.disk_hangs = true;
    }

    /// Lets the worker's thread stop within one of its next steps, after its look at the clock.
    pub fn stall_worker(&mut self, lasts_ns: u64) {
        self.serving.stall_ns = Some(lasts_ns);
    }

    /// Wakes it if the network has something for it. Who is due anyway is not asked about.
    pub fn wake_by_input(&mut self, now_ns: u64) {
        if self.due_ns > now_ns.max(self.serving.rests_until_ns) && self.serving.has_input() {
            self.wake(now_ns);
        }
    }

    /// The pairs that it serves.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.serving.worker().into_iter().flat_map(Worker::pairs)
    }

    /// Splits of meganodes in its life.
    #[must_use]
    pub fn splits(&self) -> SplitCounts {
        self.serving.worker().map(Worker::split_counts).unwrap_or_default()
    }

    /// Tree nodes that compactions freed in its life.
    #[must_use]
    pub fn compaction_nodes_freed(&self) -> u64 {
        let freed =
            |worker: &Worker| worker.snapshot().pairs.iter().map(|pair| pair.compaction_nodes_freed).sum();
        self.serving.worker().map_or(0, freed)
    }

    /// Whether its worker waits for what becomes of its lease.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.serving.worker().is_some_and(Worker::is_silent)
    }

    /// Packings of extents in its life.
    #[must_use]
    pub fn packings(&self) -> u64 {
        let packings = |worker: &Worker| worker.snapshot().pairs.iter().map(|pair| pair.packings).sum();
        self.serving.worker().map_or(0, packings)
    }

    /// How many writes it answered from the completion table.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.serving.worker().map_or(0, |worker| worker.snapshot().operations.repeated)
    }

    /// Its node regions' logs.
    pub fn logs(&self) -> impl Iterator<Item = LogName> {
        self.ownerships()
            .map(|ownership| LogId { pair: ownership.pair, epoch: ownership.epoch }.log(RegionKind::Node))
    }

    /// The pairs that it serves.
    pub fn ownerships(&self) -> impl Iterator<Item = Ownership> {
        self.control.pairs.iter().map(|pair| pair.ownership)
    }

    /// Whether it serves pairs.
    #[must_use]
    pub fn serves(&self) -> bool {
        !self.control.pairs.is_empty()
    }

    /// Whether it is taking pairs over.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.claims.is_recovering()
    }

    /// Whether it is an end of a planned move.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.claims.driver.as_ref().is_some_and(ControlDriver::is_moving)
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
        let ppm = self.plan.drift_ppm[self.host as usize - 1];
        let drift = scaled(now_ns, ppm, 1_000_000);
        u64::try_from(i128::from(now_ns) + drift).unwrap_or(0)
    }

    /// Whether its lease holds by its own clock.
    pub(crate) fn may_answer(&self, now_ns: u64) -> bool {
        self.clock_ns(now_ns) < self.lease_until_ns
    }

    /// The world's time at which the process's clock will stand so, or a little later.
    pub(crate) fn world_ns(&self, clock_ns: u64) -> u64 {
        let ppm = self.plan.drift_ppm[self.host as usize - 1];
        let world = scaled(clock_ns, 1_000_000, 1_000_000 + ppm);
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
        if !self.disk_hangs {
            due_ns = due_ns.min(self.step_claims(now_ns, news));
        }
        // Calls of the coordinator take time; the worker is another thread, which looks at its own clock.
        let now_ns = calls::present_ns(now_ns);
        due_ns = due_ns.min(self.step_worker(now_ns, news));
        let now_ns = calls::present_ns(now_ns);
        if !self.disk_hangs {
            due_ns = due_ns.min(self.step_control(now_ns, news));
        }
        self.due_ns = due_ns.min(self.serving.inputs_due_ns()).max(now_ns + 1);
    }

    /// The lease's shell: asks, and gets the answer some time later.
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
            LeaseCommand::Renew(lease) => Renewal::of_renewal(&self.coordinator.keep_alive_timed(lease)),
            LeaseCommand::Look(lease) => Renewal::of_look(&self.coordinator.remaining_ns(lease)),
        };
        let due_ns = now_ns + self.random.time_ns(100 * US);
        self.renewal = Some((due_ns, renewal));
        due_ns
    }

    /// What a process does last when it ends by itself: its pair is free for others.
    pub fn release(&mut self) {
        // The table keeps a pair in this node's name if that fails, until the lease ends.
        if let Some(driver) = &mut self.claims.driver {
            driver.release();
        }
    }
}
