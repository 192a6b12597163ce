//! The worker core: owns pairs, takes messages, completions and ticks, yields replies and commands. No clock,
//! thread, socket or file in here: one loop (`crate::driver`) steps it, in the node and in the simulator.

mod checkpointing;
mod client_report_table;
mod client_reports;
mod control;
mod figures_reporter;
mod greeting;
mod greetings;
mod handled;
mod leaving;
mod left_pairs;
mod read;
mod read_queue;
mod regions;
mod registrations;
mod reporting;
mod requests;
mod route;
mod session;
mod session_table;
mod silence;
mod status;
mod stream;
mod stream_table;
mod waiting;
mod write;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use cell_fabric::{ConnectionId, PeerAddress};
use cell_pair::{Pair, PairError};
use cell_protocol::ReplyHeader;
use cell_recovery::Progress;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{IdMap, Incarnation, NodeId, SessionId};
use cell_wal::{LogDevice, LogEvent, WalError};

use crate::access::{AccessRules, Credential, Grants};
use crate::backlog::WaitingMessage;
use crate::command::Command;
use crate::counters::WorkerCounts;
use crate::health::Health;
use crate::latency::{Arrival, Latencies};
use crate::outbox::{NO_REPLIES, PairAt, ReplyList};
use crate::pairs::{OwnedPair, Pairs, ranges_of};
use crate::process_warnings::ProcessWarnings;
use crate::settings::WorkerOptions;
use crate::snapshot::{ClusterSnapshot, FailureKind, OperationCounts};
use crate::split::{NoticeWish, Splits};
use crate::table_view::TableView;
use crate::tree_check::TreeChecker;
use crate::tree_shape::TreeSampler;

pub(crate) use leaving::trust_passed_ns;
pub(crate) use left_pairs::LeftPair;
pub use registrations::pair_regions;

use client_report_table::ClientReports;
use figures_reporter::FiguresReporter;
use greetings::Greetings;
use handled::Handled;
use left_pairs::LeftPairs;
use read_queue::ReadQueue;
use registrations::RegionRegistrations;
use session_table::SessionTable;
use stream_table::Streams;

const SERVER_NAME: &str = concat!("cell ", env!("CARGO_PKG_VERSION"));
const IDLE_MS: u32 = 60_000;

/// Who a worker is.
#[derive(Clone, Copy, Debug)]
pub struct WorkerIdentity {
    /// The node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
}

#[derive(Debug, Default)]
struct Connection {
    /// Who is at its other end, as far as that is known.
    peer: Option<PeerAddress>,
    /// The token that was shown when the connection was made: it counts where the hello says none.
    shown: Box<[u8]>,
    /// The hello was good, by this.
    greeted: Option<Credential>,
    /// What it may ask for from then on.
    grants: Grants,
    /// Requests that have not been answered.
    in_flight: u32,
    /// Its messages that wait, by queue.
    waiting: [u32; waiting::QUEUES],
    /// Credit that each stream towards this client begins with.
    stream_credit_bytes: u32,
}

/// What a worker is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerPhase {
    Recovering,
    Serving,
    Stopping,
    Failed(FailureKind),
}

/// Whether the lease may not hold any more.
fn lease_over(now_ns: u64, lease_until_ns: u64) -> bool {
    now_ns >= lease_until_ns && !planted(Mutant::LeaseIgnored)
}

/// See the module's text.
#[derive(Debug)]
pub struct Worker {
    identity: WorkerIdentity,
    options: WorkerOptions,
    phase: WorkerPhase,
    pairs: Pairs,
    splits: Splits,
    leaving: LeftPairs,
    /// Writes that wait for splits, in their order.
    parked: VecDeque<WaitingMessage>,
    parked_bytes: usize,
    /// Longest value that a pair's extent region permits.
    value_bytes_fitting: usize,
    /// Memory that results of writes take, over all pairs, as of the last tick.
    result_bytes: usize,
    has_work: bool,
    reads: ReadQueue,
    regions: RegionRegistrations,
    client_reports: ClientReports,
    tree_sampler: TreeSampler,
    tree_checker: TreeChecker,
    figures: FiguresReporter,
    table: Arc<TableView>,
    cluster: Arc<ClusterSnapshot>,
    connections: IdMap<ConnectionId, Connection>,
    sessions: SessionTable,
    streams: Streams,
    commands: Vec<Command>,
    operations: OperationCounts,
    counts: WorkerCounts,
    latencies: Latencies,
    /// Of the request that is carried out.
    arrival: Arrival,
    progress: Arc<Progress>,
    checking: bool,
    started_ns: u64,
    now_ns: u64,
    lease_until_ns: u64,
    /// How that stands which it depends on.
    health: Health,
    /// What ended the processes before this one, if they ended the same way.
    restarted_because: Option<Arc<str>>,
    /// Where its node's coordinator is, for people.
    coordinator: Arc<str>,
    /// Who may ask for what.
    access: Arc<AccessRules>,
    /// What is wrong with the process's own settings and files.
    process_warnings: Arc<ProcessWarnings>,
    greetings: Greetings,
    /// There was a lease.
    leased: bool,
    /// It has run out, and may hold again: see `silence`.
    silent: bool,
    /// What the coordinator did not answer meanwhile.
    unanswered: Vec<Command>,
    /// Messages of the backlog are being handled: they do not wait behind themselves.
    draining: bool,
    scratch: Vec<u8>,
}

impl Worker {
    /// A worker without its pairs: it greets, reports its status and asks everyone else for patience until
    /// [`Worker::install`].
    #[must_use]
    pub fn new(
        identity: WorkerIdentity,
        options: WorkerOptions,
        progress: Arc<Progress>,
        now_ns: u64,
    ) -> Worker {
        let splits = Splits::new(options.merge_rest_ns);
        Worker {
            identity,
            options,
            phase: WorkerPhase::Recovering,
            pairs: Pairs::default(),
            splits,
            leaving: LeftPairs::default(),
            parked: VecDeque::new(),
            parked_bytes: 0,
            value_bytes_fitting: usize::MAX,
            result_bytes: 0,
            has_work: false,
            reads: ReadQueue::default(),
            regions: RegionRegistrations::default(),
            client_reports: ClientReports::default(),
            tree_sampler: TreeSampler::default(),
            tree_checker: TreeChecker::default(),
            figures: FiguresReporter::default(),
            table: Arc::default(),
            cluster: Arc::default(),
            connections: IdMap::default(),
            sessions: SessionTable::default(),
            streams: Streams::default(),
            commands: Vec::new(),
            operations: OperationCounts::default(),
            counts: WorkerCounts::default(),
            latencies: Latencies::default(),
            arrival: Arrival::default(),
            progress,
            checking: false,
            started_ns: now_ns,
            now_ns,
            lease_until_ns: 0,
            health: Health::default(),
            restarted_because: None,
            coordinator: Arc::from(""),
            access: Arc::default(),
            process_warnings: Arc::default(),
            greetings: Greetings::default(),
            leased: false,
            silent: false,
            unanswered: Vec::new(),
            draining: false,
            scratch: Vec::new(),
        }
    }

    /// One whose process follows others that ended the same way, as its supervisor says.
    #[must_use]
    pub fn restarted(self, because: Option<&str>) -> Worker {
        Worker { restarted_because: because.map(Arc::from), ..self }
    }

    /// One whose process was there before it had a lease.
    #[must_use]
    pub fn started(self, started_ns: u64) -> Worker {
        Worker { started_ns, ..self }
    }

    /// One that asks for what tokens permit.
    #[must_use]
    pub fn with_access(self, access: Arc<AccessRules>) -> Worker {
        Worker { access, ..self }
    }

    /// One that warns of what is wrong with its process, too.
    #[must_use]
    pub fn with_process_warnings(self, process_warnings: Arc<ProcessWarnings>) -> Worker {
        Worker { process_warnings, ..self }
    }

    /// The recovered pairs: from here on they are served. They are numbered from 0, in this order; see
    /// [`Worker::commit`]. `sessions` are those that are open, read after all of the pairs were recovered.
    pub fn install(&mut self, pairs: Vec<Pair>, sessions: impl IntoIterator<Item = SessionId>) {
        for pair in pairs {
            self.options.tree_node_bytes = pair.tree_node_bytes();
            if let Err(error) = self.add(pair) {
                tracing::error!(%error, "a recovered pair cannot be read");
                return self.fail(FailureKind::RecoveryRefused);
            }
        }
        let open: BTreeSet<SessionId> = sessions.into_iter().collect();
        // The list is younger than what the pairs know: who is not in it has ended since they were recovered.
        let ended: Vec<_> = self.sessions_with_results().filter(|session| !open.contains(session)).collect();
        ended.into_iter().for_each(|session| self.forget_session(session));
        for session in open {
            self.sessions.open(session, self.now_ns);
        }
        self.splits.install(&mut self.pairs);
        if self.phase == WorkerPhase::Recovering {
            self.phase = WorkerPhase::Serving;
        }
    }

    /// Whether every key is in some pair of this worker.
    #[must_use]
    pub fn has_every_key(&self) -> bool {
        self.pairs.directory.is_whole()
    }

    /// A pair that was created or taken over while others are served; its number: the lowest that is free.
    pub fn add_pair(&mut self, pair: Pair) -> usize {
        self.options.tree_node_bytes = pair.tree_node_bytes();
        let number = self.pairs.next_at().index();
        match self.add(pair) {
            Ok(at) => {
                self.splits.install_pair(&mut self.pairs, at);
                self.ask_for_sessions_of(at);
            }
            Err(error) => {
                tracing::error!(%error, "a pair cannot be read");
                self.fail(FailureKind::RecoveryRefused);
            }
        }
        number
    }

    fn add(&mut self, mut pair: Pair) -> Result<PairAt, PairError> {
        // It may have been made with options that have changed since.
        pair.apply_live(&self.options.pair);
        if let Some(times) = self.options.log_times {
            pair.set_log_times(times);
        }
        self.fit_values(&pair);
        self.sessions.confirm(&pair.take_sessions_open());
        let ranges = ranges_of(&pair, self.pairs.next_at())?;
        Ok(self.pairs.add(pair, self.now_ns, ranges))
    }

    /// A client connected.
    pub fn accepted(&mut self, connection: ConnectionId) {
        self.connections.insert(connection, Connection::default());
    }

    /// A client is gone; its streams end, what it asked for is carried out.
    pub fn closed(&mut self, connection: ConnectionId) {
        if self.connections.remove(&connection).is_some_and(|gone| gone.greeted.is_some()) {
            self.greetings.parted(connection);
        }
        self.client_reports.forget(connection);
        self.streams.close_connection(connection);
    }

    /// The time, and how long the lease surely holds.
    pub fn tick(&mut self, now_ns: u64, lease_until_ns: u64) {
        self.now_ns = now_ns;
        self.lease_until_ns = lease_until_ns;
        self.judge_connections();
        self.latencies.tick(now_ns);
        self.health.tick(now_ns);
        // Before its first lease a process has nothing to lose.
        self.leased |= lease_until_ns > 0 || self.phase != WorkerPhase::Recovering;
        if self.leased && self.failure().is_none() && !self.take_lease() {
            return;
        }
        for owned in self.pairs.iter_mut() {
            owned.pair.reuse(now_ns);
            owned.pair.grow_ahead();
        }
        self.result_bytes = self.pairs.iter().map(|owned| owned.pair.result_bytes()).sum();
        self.pairs.trim_replies();
        if self.phase == WorkerPhase::Serving {
            self.splits.tick(&mut self.pairs, now_ns);
        }
        self.client_reports.tick(now_ns);
        self.tree_sampler.tick(&self.pairs, now_ns);
        self.report_figures();
        self.sessions_tick();
        self.pairs.all().for_each(|at| self.checkpoint_tick(at));
    }

    /// A turn took so long that did something, or was followed by the next one at once: how long requests
    /// wait is seen by that.
    pub(crate) fn turned(&mut self, took_ns: u64) {
        self.latencies.turned(took_ns);
    }

    /// The time, between ticks.
    pub fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// The node cannot go on: nothing is sent any more.
    pub fn give_up(&mut self, kind: FailureKind) {
        self.fail(kind);
    }

    /// The pairs, in the order of their numbers.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().map(|owned| &owned.pair)
    }

    /// A message of a client. Replies and commands are collected; see [`Worker::release`].
    pub fn message(&mut self, connection: ConnectionId, message: &[u8]) {
        let arrived_ns = self.now_ns;
        if let Handled::Waits(wait) = self.handle(connection, message, arrived_ns) {
            self.wait(wait, WaitingMessage { connection, arrived_ns, message: message.to_vec() });
        }
    }

    /// The end of one poll: carries out the reads that were gathered, takes splits and a check of the tree
    /// further.
    pub fn end_of_poll(&mut self) {
        self.carry_out_reads();
        if self.phase != WorkerPhase::Serving || self.is_silent() {
            return;
        }
        let splits = self.splits.step(&mut self.pairs, self.now_ns);
        self.has_work = splits.has_work;
        if let Some(error) = splits.broken {
            panic!("a split met memory that breaks an invariant: {error}");
        }
        self.commands.extend(splits.notices.into_iter().map(|wish| {
            let NoticeWish { key, notice, pair, epoch } = wish;
            Command::Note { key, notice, pair, epoch }
        }));
        let add_pair = Command::AddPair { meant_for: splits.meant_for };
        self.commands.extend(splits.add_pair.then_some(add_pair));
        if splits.changed {
            self.drain_parked();
        }
        self.tree_checker.step(&self.pairs, self.now_ns);
        self.has_work |= self.tree_checker.has_work();
        self.step_leaving();
    }

    /// Whether there is work that waits for nothing: the thread must not sleep.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.has_work && !self.is_silent()
    }

    /// Submits the batch of a pair that filled, if none is in flight. Pairs are named by their number, and
    /// each has a device of its own.
    pub fn commit(&mut self, pair: usize, device: &mut dyn LogDevice) {
        self.carry_out_reads();
        let Some(at) = self.numbered(pair).filter(|_| !self.is_silent()) else { return };
        let owned = self.pairs.get_mut(at);
        match owned.pair.submit(device) {
            Ok(Some(last)) => {
                owned.submitted_ns = self.now_ns;
                owned.held.submitted(last);
                // The next batch is empty: who waited for one comes before an adoption that would fill it.
                self.drain_backlog(at);
            }
            Ok(None) => {}
            Err(error) => self.log_failed(&error),
        }
    }

    /// What a pair's device reported.
    pub fn log_event(&mut self, pair: usize, event: LogEvent, device: &mut dyn LogDevice) {
        let Some(at) = self.numbered(pair) else { return };
        let owned = self.pairs.get_mut(at);
        match owned.pair.log_event(event, device) {
            Ok(Some(synced)) => {
                let sync_ns = self.now_ns.saturating_sub(owned.submitted_ns);
                owned.batches.batch(self.now_ns, sync_ns, synced.bytes);
                self.counts.synced(sync_ns);
                self.raise(at);
            }
            Ok(None) => {}
            Err(error) => self.log_failed(&error),
        }
        self.drain_backlog(at);
    }

    /// Lets a pair's log seal its last batch, try again what failed for a shortage, and drop what a
    /// checkpoint covers.
    pub fn log_tick(&mut self, pair: usize, device: &mut dyn LogDevice) {
        let Some(at) = self.numbered(pair).filter(|_| !self.is_silent()) else { return };
        let owned = self.pairs.get_mut(at);
        owned.watch_log(self.now_ns);
        let keeps_log = owned.keeps_log();
        let released = if keeps_log { None } else { owned.checkpointing.take_release() };
        if let Some(base) = released {
            owned.pair.release_log(base, device);
        }
        if let Err(error) = owned.pair.log_tick(self.now_ns, device) {
            self.log_failed(&error);
        } else if released.is_some() {
            self.drain_backlog(at); // there may be room for what has waited for the checkpoint
        }
    }

    /// A pair by its number; none once the worker has failed.
    fn numbered(&self, pair: usize) -> Option<PairAt> {
        let failed = matches!(self.phase, WorkerPhase::Failed(_));
        let at = u16::try_from(pair).ok().map(PairAt).filter(|_| !failed)?;
        self.pairs.known(at).map(|_| at)
    }

    /// Replies that may leave now; none while the lease may not hold, or if the worker has failed. The driver
    /// reads the clock right before, hands the replies to the fabric and then calls
    /// [`Worker::replies_sent`].
    ///
    /// Watermark and trust are stamped here and not when the reply was made: the time read now is later than
    /// any of the questions, so what a client counts from before it asked ends before the lease does.
    pub fn release(&mut self, now_ns: u64, lease_until_ns: u64) -> &ReplyList {
        if self.pairs.ready.is_empty() {
            return &self.pairs.ready;
        }
        if self.failure().is_some() && !planted(Mutant::FailedWorkerSends) {
            // Made since: the failure dropped all others. The control thread may have an answer in this turn.
            self.pairs.drop_replies();
            return &self.pairs.ready;
        }
        self.now_ns = self.now_ns.max(now_ns);
        self.lease_until_ns = lease_until_ns;
        if (self.leased || !self.pairs.is_empty()) && self.must_not_send() {
            return &NO_REPLIES;
        }
        if self.failure().is_none() && !self.pairs.is_empty() {
            let trust_us = self.trust_us();
            self.note_trust(trust_us);
            self.stamp(trust_us);
        }
        &self.pairs.ready
    }

    /// For how long clients may believe what they read themselves, from now on, in microseconds.
    fn trust_us(&self) -> u32 {
        let lease_ns = self.lease_until_ns.saturating_sub(self.now_ns);
        let most_ns = if planted(Mutant::TrustByLease) { u64::MAX } else { self.options.trust_max_ns };
        u32::try_from(lease_ns.min(most_ns) / 1_000).unwrap_or(u32::MAX)
    }

    fn stamp(&mut self, trust_us: u32) {
        let mut ready = std::mem::take(&mut self.pairs.ready);
        let stamp_of = |at: PairAt| {
            let watermark = self.pairs.known(at).map(|OwnedPair { pair, .. }| cell_terms::Watermark {
                epoch: pair.epoch(),
                csn: pair.visible(),
            });
            ReplyHeader {
                watermark: watermark.unwrap_or_default(),
                trust_us,
                list: self.regions.list,
                ..ReplyHeader::default()
            }
        };
        let (mut of, mut stamp) = (PairAt::NONE, stamp_of(PairAt::NONE));
        let (latencies, now_ns) = (&mut self.latencies, self.now_ns);
        ready.for_each_mut(|at, arrival, reply| {
            latencies.answered(arrival, now_ns);
            if at != of {
                (of, stamp) = (at, stamp_of(at));
            }
            stamp.stamp(reply);
        });
        self.pairs.ready = ready;
    }

    /// The replies were handed over. A pair of which nothing else was to leave leaves.
    pub fn replies_sent(&mut self) {
        self.reads.vain_bytes = 0;
        if self.silent && !planted(Mutant::SilentSends) {
            return; // they stay
        }
        for (connection, _) in self.pairs.ready.iter() {
            if let Some(state) = self.connections.get_mut(&connection) {
                state.in_flight = state.in_flight.saturating_sub(1);
            }
        }
        self.pairs.ready.clear();
        self.step_frozen();
    }

    /// What the control thread is to do.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Why the worker gave its pair up, if it did. Nothing may be sent any more; the process exits.
    #[must_use]
    pub fn failure(&self) -> Option<FailureKind> {
        match self.phase {
            WorkerPhase::Failed(kind) => Some(kind),
            _ => None,
        }
    }

    /// Whether nothing waits for the log.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let logs_idle = self.pairs.iter().all(|owned| owned.pair.is_idle());
        logs_idle && self.pairs.held() == 0 && !self.pairs.has_backlog() && self.parked.is_empty()
    }

    fn log_failed(&mut self, error: &WalError) {
        tracing::error!(%error, "the log failed: this node gives its pair up");
        self.fail(FailureKind::LogFailed);
    }

    fn fail(&mut self, kind: FailureKind) {
        if !matches!(self.phase, WorkerPhase::Failed(_)) {
            self.phase = WorkerPhase::Failed(kind);
            self.pairs.drop_replies();
            self.commands.push(Command::Failed(kind));
        }
    }

    fn raise(&mut self, at: PairAt) {
        self.pairs.raise(at);
        self.unblock_streams();
        self.checkpoint_durable(at);
    }
}
