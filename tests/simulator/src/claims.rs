//! From a lease to served pairs, without threads: what `cell_node`'s driver of the control side decides
//! (`cell_node::ControlDriver`, production code) is done here, in place of its threads; takeovers
//! (`cell_node::TakeoverRun`) go on a step at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cell_cluster::{ClusterTerms, Coordinator, Joining, MemberRow, NewPair, ServingAddress, Table};
use cell_node::{
    ControlDriver, ControlEffect, CopyEnd, CopyJob, CopyRun, MembershipOptions, PairInput, RefusedKind,
    TakeoverJob, TakeoverRun, WorkerIdentity, WorkerInput, join_cluster,
};
use cell_pair::Pair;
use cell_recovery::{Environment, Progress, PublishRequest, Recovered, RecoveryError, RegionSource, Turn};
use cell_terms::{Incarnation, NodeId, PairId};
use cell_wal::frame::FRAME_VERSION;
use cell_wal::sim::SimDevice;

use crate::news::{Exit, News, is_excused};
use crate::node::Node;
use crate::plan::{MS, US};
use crate::process::EmptyRoot;
use crate::threads::{Moving, Taking};

impl Node {
    /// Follows the cluster and takes takeovers further; when the next step is due.
    pub(crate) fn step_claims(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        let Some(incarnation) = self.incarnation() else { return u64::MAX };
        let clock_ns = self.clock_ns(now_ns);
        if self.claims.driver.is_none()
            && let Err(error) = self.join(incarnation, clock_ns)
        {
            news.push(News::Exit(Exit::Refused(error)));
            return u64::MAX;
        }
        if self.claims.driver.as_ref().is_some_and(|driver| clock_ns >= driver.due_ns())
            && let Err(error) = self.look(clock_ns, now_ns, news)
        {
            news.push(News::Exit(Exit::Refused(error)));
            return u64::MAX;
        }
        while self.claims.taking.len() < self.plan.side_by_side
            && let Some(smallest) = self.claims.jobs.take_smallest()
        {
            self.begin(smallest, now_ns);
            news.push(News::Claiming);
        }
        for at in (0..self.claims.taking.len()).rev() {
            if self.claims.taking[at].due_ns <= now_ns {
                let taking = self.claims.taking.swap_remove(at);
                let taking = self.step_taking(taking, now_ns, news);
                self.claims.taking.extend(taking);
            }
        }
        if self.claims.growing.as_ref().is_some_and(|taking| taking.due_ns <= now_ns) {
            let taking = self.claims.growing.take();
            self.claims.growing = taking.and_then(|taking| self.step_taking(taking, now_ns, news));
        }
        for at in (0..self.claims.copies.len()).rev() {
            if self.claims.copies[at].due_ns <= now_ns {
                let moving = self.claims.copies.swap_remove(at);
                let moving = self.step_move(moving, now_ns, news);
                self.claims.copies.extend(moving);
            }
        }
        let takings = self.claims.taking.iter().chain(&self.claims.growing).map(|taking| taking.due_ns);
        let takings = takings.chain(self.claims.copies.iter().map(|moving| moving.due_ns));
        let look_ns = self.claims.driver.as_ref().map_or(u64::MAX, ControlDriver::due_ns);
        takings.fold(self.world_ns(look_ns), u64::min)
    }

    /// What it joins with. All nodes are on one host; each has a folder of its own.
    fn joining(&self) -> Joining {
        let host = self.environment.table.host();
        let lease = self.plan.lease;
        let terms = ClusterTerms::new(FRAME_VERSION, host, self.plan.worker.pair.durability, lease);
        Joining { terms, host, home: self.address() }
    }

    /// Becomes a member of the cluster.
    fn join(&mut self, incarnation: Incarnation, clock_ns: u64) -> Result<(), RecoveryError> {
        let node = self.node_id();
        self.begin_worker(WorkerIdentity { node, incarnation }, clock_ns);
        let row = MemberRow {
            incarnation,
            node,
            fabric: self.address(),
            http: String::new(),
            pid: self.host,
            memory_limit_bytes: self.memory_limit_bytes(),
        };
        let coordinator: Arc<dyn Coordinator> = self.coordinator.clone();
        let (environment, plan) = (&self.environment, &self.plan);
        let wanted = || Ok::<_, RecoveryError>((plan.layout.clone(), plan.geometry));
        join_cluster(environment, &row, wanted, |_| Ok(self.joining()))?;
        let options = MembershipOptions { incarnation, node, joined_ns: clock_ns, grace_ns: plan.grace_ns };
        let progress = self.progress.clone();
        let driver = ControlDriver::new(environment, &coordinator, options, plan.poll_ns, progress);
        self.claims.driver = Some(match plan.balance.clone() {
            Some(balance) => driver.balancing(balance),
            None => driver,
        });
        Ok(())
    }

    fn look(&mut self, clock_ns: u64, now_ns: u64, news: &mut Vec<News>) -> Result<(), RecoveryError> {
        let Some(driver) = &mut self.claims.driver else { return Ok(()) };
        let effects = driver.look(clock_ns)?;
        if driver.unplaced() > 0 {
            news.push(News::Unplaced(driver.unplaced() as u64));
        }
        effects.into_iter().for_each(|effect| self.follow(effect, now_ns, news));
        Ok(())
    }

    /// Does what the driver says.
    pub(crate) fn follow(&mut self, effect: ControlEffect<SimDevice>, now_ns: u64, news: &mut Vec<News>) {
        match effect {
            ControlEffect::Notify(event) => {
                self.note_thaw(&event, news);
                self.notify(event);
            }
            ControlEffect::Copy(job) => self.begin_move(job, now_ns),
            ControlEffect::Install { pairs, installation } => {
                let pairs = pairs.into_iter().map(|pair| self.serve(pair)).collect();
                self.hand_in(WorkerInput::Install { pairs, installation });
                self.wake(now_ns);
            }
            ControlEffect::AddPair(pair) => {
                let pair = self.serve(*pair);
                self.hand_in(WorkerInput::AddPair(Box::new(pair)));
            }
            ControlEffect::TakeOver(jobs) => self.claims.jobs.push(jobs),
            ControlEffect::Create => self.create(now_ns),
            // How many pairs a host has memory for is the plan's; there is no memory budget, and no operator.
            ControlEffect::HoldGrowth(_) | ControlEffect::Tune(_) => {}
            ControlEffect::Check { connection, header, targets } => {
                self.check((connection, header), &targets, now_ns, news);
            }
            ControlEffect::WriteImage(job) => self.begin_copy(job, now_ns, news),
        }
    }

    fn begin(&mut self, job: TakeoverJob, now_ns: u64) {
        let publish = self.publish();
        let run = TakeoverRun::begin(&self.environment_now(), job, publish);
        let device = self.disk.device_alone();
        self.claims.taking.push(Taking { run, device, due_ns: now_ns });
    }

    /// What a recovery, or a copy, works with that begins now.
    fn environment_now(&self) -> Environment {
        let mut environment = self.environment.clone();
        if self.is_full() {
            environment.options.regions = RegionSource::Full;
        }
        if self.is_unmounted {
            environment.storage = Arc::new(EmptyRoot);
        }
        environment
    }

    /// Begins to copy a pair that is to move here.
    fn begin_move(&mut self, job: CopyJob, now_ns: u64) {
        let (publish, clock_ns) = (self.publish(), self.clock_ns(now_ns));
        match CopyRun::begin(&self.environment_now(), job.clone(), publish, clock_ns) {
            Ok(run) => {
                let device = self.disk.device_alone();
                self.claims.copies.push(Moving { job, run, device, due_ns: now_ns });
            }
            Err(error) => self.move_ended(&job, CopyEnd::of(&error, job.row.epoch)),
        }
    }

    fn move_ended(&mut self, job: &CopyJob, end: CopyEnd) {
        if let Some(driver) = &mut self.claims.driver {
            driver.copied(job, end);
        }
    }

    fn step_move(&mut self, mut moving: Moving, now_ns: u64, news: &mut Vec<News>) -> Option<Moving> {
        let clock_ns = self.clock_ns(now_ns);
        match moving.run.step(&mut moving.device, clock_ns, self.plan.copy_bytes_per_second) {
            Ok(Turn::More) => moving.due_ns = now_ns + self.random.time_ns(20 * US),
            Ok(Turn::Wait(for_ns)) => moving.due_ns = now_ns + for_ns.min(10 * MS),
            Ok(Turn::Done) => {
                let Moving { job, run, device, .. } = moving;
                let mut recovered = Box::new(run.finish());
                recovered.remove_leftovers(&self.environment);
                news.push(News::Recovered { recovered, device, wanted: false, moved: true, kept: false });
                self.move_ended(&job, CopyEnd::Served);
                return None;
            }
            Err(error) => {
                // Beside its owner's work files go, and its process may die; what is read is never damaged.
                let is_passing = matches!(error, RecoveryError::Log(_) | RecoveryError::Copy(_));
                if !is_passing && !is_excused(&error) {
                    news.push(News::Broken(format!("a copy of {} is damaged: {error}", moving.job.row.pair)));
                }
                self.move_ended(&moving.job, CopyEnd::of(&error, moving.job.row.epoch));
                return None;
            }
        }
        Some(moving)
    }

    fn publish(&mut self) -> PublishRequest {
        PublishRequest {
            durability: self.plan.worker.pair.durability,
            place: ServingAddress { address: self.address(), worker: 0, node_key: 0, extent_key: 0 },
            log: self.plan.log,
            salt: self.random.next(),
        }
    }

    /// What a member row says; zero: no limit.
    fn memory_limit_bytes(&self) -> u64 {
        let geometry = self.plan.geometry;
        let pairs = if self.plan.memory_reported { self.plan.pairs_fit as u64 } else { 0 };
        pairs * (geometry.node_region_bytes + geometry.extent_region_bytes)
    }

    /// Whether there is no memory for another pair.
    fn is_full(&self) -> bool {
        let has = self.claims.driver.as_ref().map_or(0, |driver| driver.ownerships().count());
        let takings = self.claims.taking.iter().chain(&self.claims.growing).count();
        let under_way = takings + self.claims.copies.len();
        let fit = self.plan.pairs_fit;
        fit > 0 && has + under_way >= fit
    }

    /// Whether a new pair would leave no room for those that are nobody's just now: at the end all are
    /// served. The table itself is asked, and what others are about to add is counted: two nodes that see it
    /// late would add one each.
    fn would_crowd(&self) -> bool {
        let fit = self.plan.pairs_fit * self.plan.nodes;
        let table = Table::new(Arc::new(self.link.sim().link()));
        let coming = self.pairs_coming.load(Ordering::Relaxed);
        fit > 0 && table.pairs().is_ok_and(|(rows, _)| rows.len() + coming >= fit)
    }

    /// One more pair.
    fn create(&mut self, now_ns: u64) {
        let room = self.control.pairs.len() < self.plan.pairs_max && !self.is_full() && !self.would_crowd();
        let Some(incarnation) = self.incarnation().filter(|_| room && self.claims.growing.is_none()) else {
            return self.not_created();
        };
        let new = NewPair { incarnation, node: self.node_id(), geometry: self.plan.geometry };
        let (publish, progress) = (self.publish(), Arc::new(Progress::new(now_ns)));
        // Other nodes go on within its calls. One that fails may get its row late: it is not taken back.
        self.pairs_coming.fetch_add(1, Ordering::Relaxed);
        match TakeoverRun::create(&self.environment, &new, publish, &progress) {
            Ok(_) if self.breaks_creation.swap(false, Ordering::Relaxed) => self.not_created(),
            Ok(run) => {
                let device = self.disk.device_alone();
                self.claims.growing = Some(Taking { run, device, due_ns: now_ns });
            }
            Err(_) => self.not_created(),
        }
    }

    fn not_created(&mut self) {
        let effect = self.claims.driver.as_mut().map(ControlDriver::not_created);
        if let Some(ControlEffect::Notify(event)) = effect {
            self.notify(event);
        }
    }

    fn step_taking(&mut self, mut taking: Taking, now_ns: u64, news: &mut Vec<News>) -> Option<Taking> {
        let clock_ns = self.clock_ns(now_ns);
        match taking.run.step(&mut taking.device, || clock_ns) {
            Ok(Turn::More) => taking.due_ns = now_ns + self.random.time_ns(20 * US),
            Ok(Turn::Wait(for_ns)) => taking.due_ns = now_ns + for_ns.min(10 * MS),
            Ok(Turn::Done) => {
                self.recovered(taking, news);
                return None;
            }
            Err(error) => {
                self.not_taken(taking.run.pair(), taking.run.dead(), error, now_ns, news);
                return None;
            }
        }
        Some(taking)
    }

    /// A pair is published: the world looks at it before it is served.
    fn recovered(&mut self, taking: Taking, news: &mut Vec<News>) {
        let Taking { run, device, .. } = taking;
        let (pair, dead, kept) = (run.pair(), run.dead(), run.is_kept());
        let (mut recovered, times) = run.finish();
        recovered.remove_leftovers(&self.environment);
        if dead.is_none() {
            self.pairs_coming.fetch_sub(1, Ordering::Relaxed); // it has its row
        }
        if let (Some(dead), Some(driver)) = (dead, &mut self.claims.driver) {
            driver.times(pair, dead, times);
        }
        let (recovered, wanted) = (Box::new(recovered), dead.is_none());
        news.push(News::Recovered { recovered, device, wanted, moved: false, kept });
    }

    /// A takeover failed.
    fn not_taken(
        &mut self,
        pair: PairId,
        dead: Option<Incarnation>,
        error: RecoveryError,
        now_ns: u64,
        news: &mut Vec<News>,
    ) {
        let Some(dead) = dead else {
            if !is_excused(&error) {
                news.push(News::Broken(format!("a new pair was refused: {error}")));
            }
            return self.not_created();
        };
        let (kind, clock_ns) = (RefusedKind::of(&error, pair), self.clock_ns(now_ns));
        let Some(driver) = &mut self.claims.driver else { return };
        news.push(match driver.refused(pair, dead, kind, clock_ns) {
            true => News::Refused { pair, error, stays: kind == RefusedKind::Damaged },
            false => News::Exit(Exit::Refused(error)),
        });
    }

    /// A pair was taken over, or created, and looked at.
    pub(crate) fn hand_over(
        &mut self,
        recovered: Recovered,
        device: SimDevice,
        wanted: bool,
        now_ns: u64,
        news: &mut Vec<News>,
    ) {
        let store = Pair::new(recovered, &self.plan.worker.pair);
        let Some(driver) = &mut self.claims.driver else { return };
        if wanted {
            let effects = driver.created(store, device);
            effects.into_iter().for_each(|effect| self.follow(effect, now_ns, news));
        } else {
            let effect = driver.taken(store, device);
            effect.into_iter().for_each(|effect| self.follow(effect, now_ns, news));
        }
        self.wake(now_ns);
    }

    /// A pair on its way to the worker, noted for what is checked from outside.
    fn serve(&mut self, (store, mut device): (Pair, SimDevice)) -> PairInput<SimDevice> {
        device.share(); // as the node's shell does it, not before
        let incarnation = self.incarnation().unwrap_or_default();
        self.control.begin(incarnation, Arc::new(store.source()), store.slot_ends());
        PairInput { pair: store, device }
    }

    /// Which node it is.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        NodeId(self.host - 1)
    }

    /// Where it is reached.
    fn address(&self) -> String {
        format!("sim:{}", self.host)
    }
}
