//! From a lease to served pairs, without threads: what `cell_node`'s control thread does to follow the
//! cluster, and its recovery thread, a step at a time. What is decided is decided by the production core
//! (`cell_node::Membership`); what a takeover does, by `cell_recovery::Takeover`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cell_cluster::{
    ClaimGround, ClusterError, Incidents, MemberRow, Members, NewIncident, NewPair, NoteRow, PairRow, Place,
    ShareRow, ShareTimes, Tenure, Watch,
};
use cell_fabric::OneSided;
use cell_node::{
    ControlEvent, Membership, MembershipCommand, MembershipOptions, NotesView, Orphan, RefusedKind, Store,
    TableView, Worker, WorkerIdentity, memory_bytes, pair_regions, share_out,
};
use cell_protocol::PairRegions;
use cell_recovery::image::ImageSource;
use cell_recovery::{
    ClaimRequest, Progress, PublishRequest, Rebuild, Recovered, RecoveryError, RegionSource, Takeover, Turn,
    find_logs, replay_bytes,
};
use cell_terms::{Durability, Incarnation, NodeId, PairId};
use cell_wal::sim::SimDevice;

use crate::node::{Exit, News, Node, is_excused};
use crate::plan::{MS, US};

/// A pair that is to be taken over.
struct Job {
    pair: PairId,
    ground: ClaimGround,
    dead: Incarnation,
}

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
pub(crate) struct Claims {
    watch: Watch,
    incidents: Incidents,
    membership: Option<Membership>,
    /// Takeovers to come, one after another.
    jobs: VecDeque<Job>,
    taking: Option<Taking>,
    growing: Option<Taking>,
    /// The worker serves; before, pairs are gathered.
    installed: bool,
    gathered: Vec<(Recovered, SimDevice)>,
    look_due_ns: u64,
    /// The notes of splits that the worker knows.
    notes: BTreeMap<String, NoteRow>,
    /// The worker waits to see what it has written.
    note_written: bool,
}

impl Claims {
    /// Of a process that begins.
    pub(crate) fn new(watch: Watch, incidents: Incidents, now_ns: u64) -> Claims {
        Claims {
            watch,
            incidents,
            membership: None,
            jobs: VecDeque::new(),
            taking: None,
            growing: None,
            installed: false,
            gathered: Vec::new(),
            look_due_ns: now_ns,
            notes: BTreeMap::new(),
            note_written: false,
        }
    }

    /// The worker has written a note, or could not: what there is now is to be seen.
    pub(crate) fn note_written(&mut self, now_ns: u64) {
        self.note_written = true;
        self.look_due_ns = now_ns + 1;
    }

    /// Whether pairs are being taken over.
    pub(crate) fn is_recovering(&self) -> bool {
        self.taking.is_some() || !self.gathered.is_empty()
    }
}

impl Node {
    /// Follows the cluster and takes takeovers further; when the next step is due.
    pub(crate) fn step_claims(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        let Some(incarnation) = self.incarnation() else { return u64::MAX };
        if now_ns >= self.claims.look_due_ns {
            self.claims.look_due_ns = now_ns + self.plan.poll_ns;
            let joined =
                if self.claims.membership.is_none() { self.join(incarnation, now_ns) } else { Ok(()) };
            if let Err(error) = joined.and_then(|()| self.look(now_ns, news)) {
                news.push(News::Exit(Exit::Refused(error)));
                return u64::MAX;
            }
        }
        if self.claims.taking.is_none()
            && let Some(job) = self.claims.jobs.pop_front()
        {
            self.begin(job, incarnation, now_ns);
            news.push(News::Claiming);
        }
        if self.claims.taking.as_ref().is_some_and(|taking| taking.due_ns <= now_ns) {
            let taking = self.claims.taking.take();
            self.claims.taking = taking.and_then(|taking| self.step_taking(taking, now_ns, news));
        }
        if self.claims.growing.as_ref().is_some_and(|taking| taking.due_ns <= now_ns) {
            let taking = self.claims.growing.take();
            self.claims.growing = taking.and_then(|taking| self.step_taking(taking, now_ns, news));
        }
        let takings = self.claims.taking.iter().chain(&self.claims.growing).map(|taking| taking.due_ns);
        takings.fold(self.claims.look_due_ns, u64::min)
    }

    /// `BringUp::run`, up to its loop.
    fn join(&mut self, incarnation: Incarnation, now_ns: u64) -> Result<(), RecoveryError> {
        let (node, clock_ns) = (self.node_id(), self.clock_ns(now_ns));
        self.worker.get_or_insert_with(|| {
            let identity = WorkerIdentity { node, incarnation };
            Worker::new(identity, self.plan.worker, self.progress.clone(), clock_ns)
        });
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
        self.claims.membership = Some(Membership::new(MembershipOptions {
            incarnation,
            node,
            joined_ns: clock_ns,
            grace_ns: self.plan.grace_ns,
        }));
        Ok(())
    }

    /// `Control::look`.
    fn look(&mut self, now_ns: u64, news: &mut Vec<News>) -> Result<(), RecoveryError> {
        let look = match self.claims.watch.look() {
            Ok(look) => look,
            Err(error) if error.is_transient() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for session in look.ended {
            self.tell(ControlEvent::SessionEnded { session, answer: None, recorded: true });
        }
        if look.changed {
            let (pairs, members) = self.rows();
            let revision = self.claims.watch.view().revision;
            self.tell(ControlEvent::Table(Arc::new(TableView::new(revision, &pairs, &members))));
        }
        self.tell_notes();
        let clock_ns = self.clock_ns(now_ns);
        let Some(membership) = &mut self.claims.membership else { return Ok(()) };
        let commands = membership.look(self.claims.watch.view(), clock_ns);
        if !commands.is_empty() {
            self.claims.look_due_ns = now_ns + 1; // what they change is to be seen at once
        }
        for command in commands {
            if self.follow(command, clock_ns, news).is_err() {
                self.claims.look_due_ns = now_ns + self.plan.poll_ns;
            }
        }
        self.install(false, now_ns, news);
        Ok(())
    }

    fn rows(&self) -> (Vec<PairRow>, Vec<MemberRow>) {
        let view = self.claims.watch.view();
        (view.pairs.values().cloned().collect(), view.members.values().cloned().collect())
    }

    /// `Control::tell_notes`.
    fn tell_notes(&mut self) {
        let view = self.claims.watch.view();
        if self.claims.notes == view.notes && !self.claims.note_written {
            return;
        }
        let told = NotesView { revision: view.revision, notes: view.notes.clone() };
        self.claims.notes.clone_from(&view.notes);
        self.claims.note_written = false;
        self.tell(ControlEvent::Notes(Arc::new(told)));
    }

    /// `Control::follow`.
    fn follow(
        &mut self,
        command: MembershipCommand,
        clock_ns: u64,
        news: &mut Vec<News>,
    ) -> Result<(), ClusterError> {
        let incarnation = self.incarnation().unwrap_or_default();
        let now_ms = clock_ns / MS;
        match command {
            MembershipCommand::TakeOver { pair, ground, dead } => {
                self.claims.jobs.push_back(Job { pair, ground, dead });
                Ok(())
            }
            MembershipCommand::Claim { dead, node, lease_seen_ns, detected_ns, host_lock } => {
                let (lease_seen_ms, detected_ms) = (lease_seen_ns / MS, detected_ns / MS);
                let new = NewIncident { dead, node, lease_seen_ms, detected_ms, host_lock };
                if self.claims.incidents.claim(&new, incarnation, now_ms)? {
                    self.claims.incidents.forget_old(incarnation)?;
                    if host_lock {
                        let own = self.claims.watch.view().pairs.values();
                        let own = own.filter(|row| row.owner == Some(dead) && row.node == self.node_id());
                        let plan: Vec<_> = own.map(|row| self.share_of(row, incarnation)).collect();
                        self.write_plan(dead, &plan)?;
                    }
                } else {
                    self.claims.look_due_ns += self.plan.poll_ns;
                }
                Ok(())
            }
            MembershipCommand::Plan { dead, pairs } => {
                let (rows, members) = self.rows();
                let orphans = pairs.into_iter().filter_map(|(pair, declined)| {
                    let row = self.claims.watch.view().pairs.get(&pair)?;
                    let (replay_bytes, memory_bytes) = (self.replay_bytes(row), memory_bytes(row));
                    Some(Orphan { pair, replay_bytes, memory_bytes, declined })
                });
                let plan = share_out(orphans.collect(), &rows, &members);
                let unplaced = plan.iter().filter(|share| share.survivor.is_none()).count();
                if unplaced > 0 {
                    news.push(News::Unplaced(unplaced as u64));
                }
                self.write_plan(dead, &plan)
            }
            MembershipCommand::Close { dead } => {
                let closed = self.claims.incidents.change(dead, incarnation, |row| {
                    if row.claimed_by == incarnation && !row.is_over() {
                        row.over_ms = now_ms;
                    }
                });
                closed.map(drop)
            }
        }
    }

    fn share_of(&self, row: &PairRow, survivor: Incarnation) -> ShareRow {
        let bytes = self.replay_bytes(row);
        ShareRow { pair: row.pair, survivor: Some(survivor), bytes, ..ShareRow::default() }
    }

    fn replay_bytes(&self, row: &PairRow) -> u64 {
        replay_bytes(&*self.environment.storage, row).unwrap_or(0)
    }

    fn write_plan(&self, dead: Incarnation, plan: &[ShareRow]) -> Result<(), ClusterError> {
        let incarnation = self.incarnation().unwrap_or_default();
        let written = self.claims.incidents.change(dead, incarnation, |row| {
            if row.claimed_by == incarnation {
                for share in plan {
                    row.plan.retain(|old| old.pair != share.pair);
                    row.plan.push(share.clone());
                }
            }
        });
        written.map(drop)
    }

    fn begin(&mut self, job: Job, incarnation: Incarnation, now_ns: u64) {
        let Job { pair, ground, dead } = job;
        let claim = ClaimRequest { pair, incarnation, node: self.node_id(), ground };
        let progress = Arc::new(Progress::new(now_ns));
        let publish = self.publish();
        let mut environment = self.environment.clone();
        if self.is_full() {
            environment.options.regions = RegionSource::Full;
        }
        let takeover = Takeover::new(&environment, claim, publish, &progress);
        self.claims.taking = Some(self.taking(pair, Some(dead), takeover, progress, now_ns));
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
            durability: Durability::Sync,
            place: Place { address: self.address(), worker: 0, node_key: 0, extent_key: 0 },
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
    /// served.
    fn would_crowd(&self) -> bool {
        let fit = self.plan.pairs_fit * self.plan.nodes;
        fit > 0 && self.claims.watch.view().pairs.len() >= fit
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
        match created.and_then(|claim| Ok((claim.tenure.pair, Rebuild::new(environment, claim, &progress)?)))
        {
            Ok((pair, rebuild)) => {
                let takeover = Takeover::claimed(environment, rebuild, publish, &progress);
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

    /// `Runner::note` and `Control::note`.
    fn note_times(&self, taking: &mut Taking, done: bool, now_ns: u64) {
        let Some(dead) = taking.dead else { return };
        let before = taking.times;
        let clock_ns = self.clock_ns(now_ns);
        let mark = |at: &mut u64, is: bool| {
            if is && *at == 0 {
                *at = clock_ns / MS;
            }
        };
        let (times, takeover) = (&mut taking.times, &taking.takeover);
        mark(&mut times.claimed_ms, takeover.tenure().is_some() || takeover.is_rebuilt());
        mark(&mut times.cut_ms, takeover.is_cut());
        mark(&mut times.replayed_ms, takeover.is_rebuilt());
        mark(&mut times.serving_ms, done);
        if *times == before {
            return;
        }
        times.replayed_bytes = taking.progress.view(clock_ns).bytes_done;
        let times = *times;
        self.note_share(taking.pair, dead, |share| share.times = times);
    }

    fn note_share(&self, pair: PairId, dead: Incarnation, edit: impl Fn(&mut ShareRow)) {
        let incarnation = self.incarnation().unwrap_or_default();
        // For people: the takeover does not depend on it.
        let _ = self.claims.incidents.change(dead, incarnation, |row| {
            let mine = |share: &&mut ShareRow| share.pair == pair && share.survivor == Some(incarnation);
            row.plan.iter_mut().find(mine).into_iter().for_each(&edit);
        });
    }

    /// A takeover came to nothing: `Control::hear`, of `Told::Refused`.
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
        let kind = RefusedKind::of(&error, pair);
        if self.is_alone() && kind != RefusedKind::Others {
            return news.push(News::Exit(Exit::Refused(error)));
        }
        let (clock_ns, incarnation) = (self.clock_ns(now_ns), self.incarnation().unwrap_or_default());
        if let Some(membership) = &mut self.claims.membership {
            membership.refused(pair, kind, clock_ns);
        }
        self.note_share(pair, dead, |share| {
            share.times = ShareTimes { refused_ms: clock_ns / MS, ..share.times };
            if kind == RefusedKind::Declined && !share.declined.contains(&incarnation) {
                share.declined.push(incarnation);
            }
        });
        self.claims.look_due_ns = now_ns + 1;
        news.push(News::Refused { pair, error, stays: kind == RefusedKind::Damaged });
    }

    /// Whether all pairs are this node's.
    fn is_alone(&self) -> bool {
        self.claims.watch.view().pairs.values().all(|row| row.node == self.node_id())
    }

    /// A pair was taken over and looked at: it is served, alone or with the others that the process starts
    /// with.
    pub(crate) fn hand_over(
        &mut self,
        recovered: Recovered,
        device: SimDevice,
        wanted: bool,
        now_ns: u64,
        news: &mut Vec<News>,
    ) {
        let pair = recovered.pair;
        if wanted || self.claims.installed {
            self.add(recovered, device);
            if wanted {
                return self.tell(ControlEvent::PairAdded);
            }
        } else {
            self.claims.gathered.push((recovered, device));
        }
        if let Some(membership) = &mut self.claims.membership {
            membership.taken(pair);
        }
        self.claims.look_due_ns = now_ns + 1;
        // Of several nodes each pair is served as soon as it can be.
        self.install(!self.is_alone(), now_ns, news);
    }

    fn add(&mut self, recovered: Recovered, device: SimDevice) {
        let (store, row) = self.serve(recovered, device);
        if let Some(worker) = &mut self.worker {
            worker.add_pair(store);
            row.into_iter().for_each(|row| worker.registered(row));
        }
    }

    /// `Control::install`: lets the worker serve, once the node's own pairs are there, or at once.
    fn install(&mut self, now: bool, now_ns: u64, news: &mut Vec<News>) {
        let busy = self.claims.membership.as_ref().is_none_or(|membership| membership.busy() > 0);
        if self.claims.installed || (busy && !now) {
            return;
        }
        let Ok((open, _)) = self.environment.sessions.open_sessions() else { return };
        self.claims.installed = true;
        let (mut stores, mut rows) = (Vec::new(), Vec::new());
        for (recovered, device) in std::mem::take(&mut self.claims.gathered) {
            let (store, row) = self.serve(recovered, device);
            stores.push(store);
            rows.extend(row);
        }
        let alone = self.is_alone();
        if let Some(worker) = &mut self.worker {
            worker.install(stores, open.iter().map(|row| row.session));
            if alone && !worker.has_every_key() {
                news.push(News::Broken("the meganodes do not cover all keys".to_owned()));
            }
            rows.into_iter().for_each(|row| worker.registered(row));
        }
        self.serving.serve();
        self.wake(now_ns);
    }

    fn serve(&mut self, recovered: Recovered, device: SimDevice) -> (Store, Option<PairRegions>) {
        let incarnation = self.incarnation().unwrap_or_default();
        let tenure = Tenure { pair: recovered.pair, epoch: recovered.epoch, incarnation };
        let store = Store::new(recovered, &self.plan.worker);
        let source = Arc::new(store.source());
        let row = self.register(&source);
        self.control.begin(tenure, source, store.slot_ends(), device);
        (store, row)
    }

    /// Lets clients read a pair's regions: the shell's `register`.
    fn register(&mut self, source: &ImageSource) -> Option<PairRegions> {
        let node_key = self.endpoint.register(&source.node).ok()?;
        let extent_key = self.endpoint.register(&source.extent).ok()?;
        let node_crc = source.geometry.node_crc();
        Some(pair_regions(&source.node, &source.extent, node_crc, node_key, extent_key))
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
