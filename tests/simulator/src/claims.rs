//! From a lease to served pairs, without threads: the shell of `cell_node`'s side towards its cluster
//! (`cell_node::ClusterAgent`, production code), and its recovery threads, a step at a time
//! (`cell_recovery::Takeover`).

use std::sync::Arc;

use cell_cluster::{Coordinator, MemberRow, Members, NewPair, ServingAddress, ShareTimes, Table, Tenure};
use cell_node::{
    ClusterAgent, ControlEvent, MembershipOptions, PairInput, RefusedKind, Store, TakeoverWanted,
    WorkerIdentity, WorkerInput, mark_times,
};
use cell_recovery::{
    ClaimRequest, Progress, PublishRequest, Recovered, RecoveryError, RegionSource, Restore, Takeover, Turn,
    find_logs,
};
use cell_terms::{Incarnation, NodeId, PairId};
use cell_wal::sim::SimDevice;

use crate::node::{Exit, News, Node, is_excused};
use crate::plan::{MS, US};

/// A pair that is being taken over, or created.
struct Taking {
    pair: PairId,
    /// In whose incident its share is noted; none: the worker has asked for one more.
    dead: Option<Incarnation>,
    takeover: Takeover,
    device: SimDevice,
    progress: Arc<Progress>,
    due_ns: u64,
    times: ShareTimes,
}

/// What a process has claimed and does not serve yet, and what it knows of the cluster.
#[derive(Default)]
pub(crate) struct Claims {
    /// Once it is a member.
    pub(crate) agent: Option<ClusterAgent>,
    /// Takeovers to come.
    jobs: Vec<TakeoverWanted>,
    /// Those under way, side by side.
    taking: Vec<Taking>,
    growing: Option<Taking>,
    gathered: Vec<(Recovered, SimDevice)>,
}

impl Claims {
    /// What `cell_node`'s recovery threads take next.
    fn smallest_job(&mut self) -> Option<TakeoverWanted> {
        let jobs = self.jobs.iter().enumerate();
        let smallest = jobs.min_by_key(|(_, job)| (job.replay_bytes, job.pair))?;
        Some(self.jobs.swap_remove(smallest.0))
    }

    /// Whether pairs are being taken over.
    pub(crate) fn is_recovering(&self) -> bool {
        !self.taking.is_empty() || !self.gathered.is_empty()
    }
}

impl Node {
    /// Follows the cluster and takes takeovers further; when the next step is due.
    pub(crate) fn step_claims(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        let Some(incarnation) = self.incarnation() else { return u64::MAX };
        let clock_ns = self.clock_ns(now_ns);
        if self.claims.agent.is_none()
            && let Err(error) = self.join(incarnation, clock_ns)
        {
            news.push(News::Exit(Exit::Refused(error)));
            return u64::MAX;
        }
        if self.claims.agent.as_ref().is_some_and(|agent| clock_ns >= agent.due_ns())
            && let Err(error) = self.look(clock_ns, now_ns, news)
        {
            news.push(News::Exit(Exit::Refused(error)));
            return u64::MAX;
        }
        while self.claims.taking.len() < self.plan.side_by_side
            && let Some(smallest) = self.claims.smallest_job()
        {
            self.begin(smallest, incarnation, now_ns);
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
        let takings = self.claims.taking.iter().chain(&self.claims.growing).map(|taking| taking.due_ns);
        let look_ns = self.claims.agent.as_ref().map_or(u64::MAX, ClusterAgent::due_ns);
        takings.fold(self.world_ns(look_ns), u64::min)
    }

    /// `BringUp::run`, up to its loop.
    fn join(&mut self, incarnation: Incarnation, clock_ns: u64) -> Result<(), RecoveryError> {
        let node = self.node_id();
        self.begin_worker(WorkerIdentity { node, incarnation }, clock_ns);
        let table = &self.environment.table;
        table.check_logs_found(&find_logs(&*self.environment.storage)?)?;
        if table.pairs()?.0.is_empty() {
            table.lay_out(&self.plan.layout, self.plan.geometry, incarnation)?;
        }
        let row = MemberRow {
            incarnation,
            node,
            fabric: self.address(),
            http: String::new(),
            pid: self.host,
            memory_limit_bytes: self.memory_limit_bytes(),
        };
        Members::new(self.coordinator.clone()).enter(&row)?;
        let options =
            MembershipOptions { incarnation, node, joined_ns: clock_ns, grace_ns: self.plan.grace_ns };
        let coordinator: Arc<dyn Coordinator> = self.coordinator.clone();
        let storage = self.environment.storage.clone();
        self.claims.agent = Some(ClusterAgent::new(&coordinator, storage, options, self.plan.poll_ns));
        Ok(())
    }

    /// `Control::look`.
    fn look(&mut self, clock_ns: u64, now_ns: u64, news: &mut Vec<News>) -> Result<(), RecoveryError> {
        let Some(agent) = &mut self.claims.agent else { return Ok(()) };
        let looked = agent.look(clock_ns)?;
        looked.events.into_iter().for_each(|event| self.tell(event));
        if looked.unplaced > 0 {
            news.push(News::Unplaced(looked.unplaced as u64));
        }
        self.claims.jobs.extend(looked.take_over);
        self.install(false, now_ns);
        Ok(())
    }

    fn begin(&mut self, wanted: TakeoverWanted, incarnation: Incarnation, now_ns: u64) {
        let TakeoverWanted { pair, ground, dead, .. } = wanted;
        let claim = ClaimRequest { pair, incarnation, node: self.node_id(), ground };
        let progress = Arc::new(Progress::new(now_ns));
        let publish = self.publish();
        let mut environment = self.environment.clone();
        if self.is_full() {
            environment.options.regions = RegionSource::Full;
        }
        let takeover = Takeover::new(&environment, claim, publish, &progress);
        let taking = self.taking(pair, Some(dead), takeover, progress, now_ns);
        self.claims.taking.push(taking);
    }

    fn taking(
        &self,
        pair: PairId,
        dead: Option<Incarnation>,
        takeover: Takeover,
        progress: Arc<Progress>,
        due_ns: u64,
    ) -> Taking {
        let (device, times) = (self.disk.device(), ShareTimes::default());
        Taking { pair, dead, takeover, device, progress, due_ns, times }
    }

    fn publish(&mut self) -> PublishRequest {
        PublishRequest {
            durability: self.plan.worker.durability,
            place: ServingAddress { address: self.address(), worker: 0, node_key: 0, extent_key: 0 },
            log: self.plan.log,
            salt: self.random.next(),
        }
    }

    /// What a member row says; zero: no limit.
    fn memory_limit_bytes(&self) -> u64 {
        let geometry = self.plan.geometry;
        let pairs = if self.plan.memory_told { self.plan.pairs_fit as u64 } else { 0 };
        pairs * (geometry.node_region_bytes + geometry.extent_region_bytes)
    }

    /// Whether there is no memory for another pair.
    fn is_full(&self) -> bool {
        let served = self.control.pairs.len() + self.claims.gathered.len();
        let under_way = self.claims.taking.iter().chain(&self.claims.growing).count();
        let fit = self.plan.pairs_fit;
        fit > 0 && served + under_way >= fit
    }

    /// Whether a new pair would leave no room for those that are nobody's just now: at the end all are
    /// served. The table itself is asked: two nodes that see it late would add one each.
    fn would_crowd(&self) -> bool {
        let fit = self.plan.pairs_fit * self.plan.nodes;
        let table = Table::new(Arc::new(self.link.sim().link()));
        fit > 0 && table.pairs().is_ok_and(|(rows, _)| rows.len() >= fit)
    }

    /// One more pair: `Control::grow`.
    pub(crate) fn add_pair(&mut self, now_ns: u64) {
        let room = self.control.pairs.len() < self.plan.pairs_max && !self.is_full() && !self.would_crowd();
        let Some(incarnation) = self.incarnation().filter(|_| room && self.claims.growing.is_none()) else {
            return self.tell(ControlEvent::PairRefused);
        };
        let new = NewPair { incarnation, node: self.node_id(), geometry: self.plan.geometry };
        let (publish, progress) = (self.publish(), Arc::new(Progress::new(now_ns)));
        let environment = &self.environment;
        let created = environment.table.create_pair(&new).map_err(RecoveryError::from);
        match created.and_then(|claim| Ok((claim.tenure.pair, Restore::new(environment, claim, &progress)?)))
        {
            Ok((pair, restore)) => {
                let takeover = Takeover::claimed(environment, restore, publish, &progress);
                self.claims.growing = Some(self.taking(pair, None, takeover, progress, now_ns));
            }
            Err(_) => self.tell(ControlEvent::PairRefused),
        }
    }

    fn step_taking(&mut self, mut taking: Taking, now_ns: u64, news: &mut Vec<News>) -> Option<Taking> {
        match taking.takeover.step(&mut taking.device) {
            Ok(Turn::More) => taking.due_ns = now_ns + self.random.time_ns(20 * US),
            Ok(Turn::Wait(for_ns)) => taking.due_ns = now_ns + for_ns.min(10 * MS),
            Ok(Turn::Done) => {
                self.note_times(&mut taking, true, now_ns);
                let Taking { takeover, device, dead, .. } = taking;
                let (recovered, wanted) = (Box::new(takeover.finish()), dead.is_none());
                news.push(News::Recovered { recovered, device, wanted });
                return None;
            }
            Err(error) => {
                self.not_taken(taking.pair, taking.dead, error, now_ns, news);
                return None;
            }
        }
        self.note_times(&mut taking, false, now_ns);
        Some(taking)
    }

    /// `Runner::step_to_the_end`, which tells them all at once.
    fn note_times(&self, taking: &mut Taking, done: bool, now_ns: u64) {
        let (Some(dead), Some(agent)) = (taking.dead, &self.claims.agent) else { return };
        let before = taking.times;
        let clock_ns = self.clock_ns(now_ns);
        mark_times(&mut taking.times, &taking.takeover, done, clock_ns);
        if taking.times != before {
            taking.times.replayed_bytes = taking.progress.view(clock_ns).bytes_done;
            agent.times(taking.pair, dead, taking.times);
        }
    }

    /// A takeover came to nothing: `Control::on_takeover`, of `TakeoverReport::Refused`.
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
            return self.tell(ControlEvent::PairRefused);
        };
        let (kind, clock_ns) = (RefusedKind::of(&error, pair), self.clock_ns(now_ns));
        let Some(agent) = &mut self.claims.agent else { return };
        news.push(match agent.refused(pair, dead, kind, clock_ns) {
            true => News::Refused { pair, error, stays: kind == RefusedKind::Damaged },
            false => News::Exit(Exit::Refused(error)),
        });
    }

    /// A pair was taken over and looked at: it is served, alone or with the others that the process starts
    /// with.
    pub(crate) fn hand_over(&mut self, recovered: Recovered, device: SimDevice, wanted: bool, now_ns: u64) {
        let pair = recovered.pair;
        let installed = self.claims.agent.as_ref().is_some_and(ClusterAgent::is_installed);
        if wanted || installed {
            self.add(recovered, device);
            if wanted {
                return self.tell(ControlEvent::PairAdded);
            }
        } else {
            self.claims.gathered.push((recovered, device));
            self.install(true, now_ns);
        }
        if let Some(agent) = &mut self.claims.agent {
            agent.taken(pair);
        }
        self.wake(now_ns);
    }

    fn add(&mut self, recovered: Recovered, device: SimDevice) {
        let pair = self.serve(recovered, device);
        self.hand_in(WorkerInput::AddPair(Box::new(pair)));
    }

    /// `Control::install`.
    fn install(&mut self, pair_came: bool, now_ns: u64) {
        let Some(agent) = &mut self.claims.agent else { return };
        let Some(installation) = agent.install(pair_came) else { return };
        let gathered = std::mem::take(&mut self.claims.gathered);
        let pairs = gathered.into_iter().map(|(recovered, device)| self.serve(recovered, device)).collect();
        self.hand_in(WorkerInput::Install { pairs, installation });
        self.wake(now_ns);
    }

    fn serve(&mut self, recovered: Recovered, device: SimDevice) -> PairInput<SimDevice> {
        let incarnation = self.incarnation().unwrap_or_default();
        let tenure = Tenure { pair: recovered.pair, epoch: recovered.epoch, incarnation };
        let store = Store::new(recovered, &self.plan.worker);
        self.control.begin(tenure, Arc::new(store.source()), store.slot_ends());
        PairInput { store, device }
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
