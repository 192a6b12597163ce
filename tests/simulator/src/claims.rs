//! From a lease to served pairs, without threads: what `cell_node`'s bring-up and its recovery threads do, a
//! step at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use cell_cluster::{ClaimGround, ClusterError, NewPair, PairRow, Place, Tenure};
use cell_fabric::OneSided;
use cell_node::{ControlEvent, Store, Worker, WorkerIdentity, pair_regions};
use cell_protocol::PairRegions;
use cell_recovery::image::ImageSource;
use cell_recovery::{
    ClaimRequest, PublishRequest, Rebuild, Recovered, RecoveryError, Takeover, Turn, find_logs,
};
use cell_terms::{Durability, Incarnation, NodeId};
use cell_wal::sim::SimDevice;

use crate::node::{Exit, News, Node, is_excused};
use crate::plan::{MS, US};

/// How long a process that finds another owner's lease waits at most before it asks again.
const PATIENCE_NS: u64 = 50 * MS;

/// A pair that is being taken over, or created.
struct Taking {
    takeover: Takeover,
    device: SimDevice,
    due_ns: u64,
    /// The worker has asked for one more.
    wanted: bool,
}

/// What a process has claimed and does not serve yet.
#[derive(Default)]
pub(crate) struct Claims {
    takings: Vec<Taking>,
    /// Pairs that are still to be taken over, once the table has told which there are.
    pending: Option<VecDeque<PairRow>>,
    /// Recovered, and to be served together with the others.
    ready: Vec<(Recovered, SimDevice)>,
    /// When the next is to be claimed, for the first time or again.
    begin_due_ns: u64,
}

impl Claims {
    /// Of a process that begins.
    pub(crate) fn new(now_ns: u64) -> Claims {
        Claims { begin_due_ns: now_ns, ..Claims::default() }
    }

    /// Whether pairs are being taken over.
    pub(crate) fn is_recovering(&self) -> bool {
        self.takings.iter().any(|taking| !taking.wanted) || !self.ready.is_empty()
    }
}

impl Node {
    /// Claims what is to be claimed and takes it further; when the next step is due.
    pub(crate) fn step_claims(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        if now_ns >= self.claims.begin_due_ns
            && let Some(incarnation) = self.incarnation()
        {
            self.claims.begin_due_ns = u64::MAX;
            if let Err(error) = self.begin(incarnation, now_ns) {
                news.push(News::Exit(Exit::Refused(error)));
                return u64::MAX;
            }
        }
        let mut at = 0;
        while at < self.claims.takings.len() {
            let before = self.claims.takings.len();
            if self.claims.takings[at].due_ns <= now_ns {
                self.step_taking(at, now_ns, news);
            }
            at += usize::from(self.claims.takings.len() == before);
        }
        let takings = self.claims.takings.iter().map(|taking| taking.due_ns);
        let begin_due_ns = self.incarnation().map_or(u64::MAX, |_| self.claims.begin_due_ns);
        takings.fold(begin_due_ns, u64::min)
    }

    /// From a lease to a takeover: `BringUp::recover`.
    fn begin(&mut self, incarnation: Incarnation, now_ns: u64) -> Result<(), RecoveryError> {
        let node = self.node_id();
        let clock_ns = self.clock_ns(now_ns);
        self.worker.get_or_insert_with(|| {
            let identity = WorkerIdentity { node, incarnation };
            Worker::new(identity, self.plan.worker, self.progress.clone(), clock_ns)
        });
        let publish = self.publish();
        let environment = &self.environment;
        if self.claims.pending.is_none() {
            environment.table.check_logs_found(&find_logs(&*environment.storage)?)?;
            let (rows, _) = environment.table.pairs()?;
            self.claims.pending = Some(rows.into());
        }
        let takeover = match self.claims.pending.as_ref().and_then(VecDeque::front) {
            Some(row) => {
                // Nobody else runs on this host; of another host's owner only the lease tells.
                let ground = if row.node == node { ClaimGround::HostLock } else { ClaimGround::LeaseEnded };
                let claim = ClaimRequest { pair: row.pair, incarnation, node, ground };
                Takeover::new(environment, claim, publish, &self.progress)
            }
            None => {
                let new = NewPair { incarnation, node, geometry: self.plan.geometry };
                let claim = environment.table.create_pair(&new)?;
                let rebuild = Rebuild::new(environment, claim, &self.progress)?;
                Takeover::claimed(environment, rebuild, publish, &self.progress)
            }
        };
        self.take(takeover, false, now_ns);
        Ok(())
    }

    fn take(&mut self, takeover: Takeover, wanted: bool, now_ns: u64) {
        let device = self.disk.device();
        self.claims.takings.push(Taking { takeover, device, due_ns: now_ns, wanted });
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
        let busy = self.claims.takings.iter().any(|taking| taking.wanted);
        let Some(incarnation) = self.incarnation().filter(|_| room && !busy) else {
            return self.tell(ControlEvent::PairRefused);
        };
        let new = NewPair { incarnation, node: self.node_id(), geometry: self.plan.geometry };
        let publish = self.publish();
        let environment = &self.environment;
        let created = environment.table.create_pair(&new).map_err(RecoveryError::from);
        match created.and_then(|claim| Rebuild::new(environment, claim, &self.progress)) {
            Ok(rebuild) => {
                let takeover = Takeover::claimed(environment, rebuild, publish, &self.progress);
                self.take(takeover, true, now_ns);
            }
            Err(_) => self.tell(ControlEvent::PairRefused),
        }
    }

    fn step_taking(&mut self, at: usize, now_ns: u64, news: &mut Vec<News>) {
        let taking = &mut self.claims.takings[at];
        match taking.takeover.step(&mut taking.device) {
            Ok(Turn::More) => taking.due_ns = now_ns + self.random.time_ns(20 * US),
            Ok(Turn::Wait(for_ns)) => taking.due_ns = now_ns + for_ns,
            Ok(Turn::Done) => {
                let Taking { takeover, device, wanted, .. } = self.claims.takings.remove(at);
                news.push(News::Recovered { recovered: Box::new(takeover.finish()), device, wanted });
            }
            Err(error) => {
                let Taking { wanted, .. } = self.claims.takings.remove(at);
                self.taking_failed(wanted, error, now_ns, news);
            }
        }
    }

    fn taking_failed(&mut self, wanted: bool, error: RecoveryError, now_ns: u64, news: &mut Vec<News>) {
        match error {
            error if wanted => {
                if !is_excused(&error) {
                    news.push(News::Broken(format!("a new pair was refused: {error}")));
                }
                self.tell(ControlEvent::PairRefused);
            }
            RecoveryError::Cluster(ClusterError::OwnerLives { remaining_ns, .. }) => {
                self.claims.begin_due_ns = now_ns + remaining_ns.clamp(MS, PATIENCE_NS);
            }
            RecoveryError::Cluster(ClusterError::LeaseEnded { .. }) => {
                news.push(News::Exit(Exit::LeaseEnded));
            }
            error => news.push(News::Exit(Exit::Refused(error))),
        }
    }

    /// A pair was taken over and looked at: it is served, with the others that the process starts with.
    ///
    /// # Errors
    /// The coordinator does not tell the open sessions.
    pub fn hand_over(
        &mut self,
        recovered: Recovered,
        device: SimDevice,
        wanted: bool,
        now_ns: u64,
    ) -> Result<(), ClusterError> {
        if wanted {
            let (store, row) = self.serve(recovered, device);
            if let Some(worker) = &mut self.worker {
                worker.add_pair(store);
                row.into_iter().for_each(|row| worker.registered(row));
            }
            return Ok(());
        }
        self.claims.ready.push((recovered, device));
        let pending = self.claims.pending.get_or_insert_default();
        pending.pop_front();
        if !pending.is_empty() {
            self.claims.begin_due_ns = now_ns + 1;
            return Ok(());
        }
        self.install()
    }

    /// The first pairs are handed to the worker: `BringUp::hand_over`.
    fn install(&mut self) -> Result<(), ClusterError> {
        let (open, _) = self.environment.sessions.open_sessions()?;
        let (mut stores, mut rows) = (Vec::new(), Vec::new());
        for (recovered, device) in std::mem::take(&mut self.claims.ready) {
            let (store, row) = self.serve(recovered, device);
            stores.push(store);
            rows.extend(row);
        }
        if let Some(worker) = &mut self.worker {
            worker.install(stores, open.iter().map(|row| row.session));
            rows.into_iter().for_each(|row| worker.registered(row));
        }
        self.serving.serve();
        Ok(())
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
}
