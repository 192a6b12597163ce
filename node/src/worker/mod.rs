//! The worker core: owns a pair, takes messages, completions and ticks, yields replies and commands. No
//! clock, thread,
//! socket or file in here: the shell (`crate::shell`) and the simulator step the same code.

mod checkpointing;
mod control;
mod read;
mod regions;
mod session;
mod status;
mod stream;
mod write;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_protocol::{
    DecodeError, Hello, HelloReply, Limits, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Refusal, Reply,
    ReplyHeader, Request, RequestHeader,
};
use cell_recovery::Progress;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Incarnation, NodeId};
use cell_wal::{LogDevice, LogEvent, WalError};

use crate::counters::Counters;
use crate::outbox::{Outbox, ReplyList};
use crate::settings::WorkerOptions;
use crate::snapshot::FailureKind;
use crate::store::Store;

pub use checkpointing::CheckpointCommand;
pub use control::{Command, ControlEvent};
pub use regions::pair_regions;

use checkpointing::Checkpointing;
use read::ReadQueue;
use regions::RegionBook;
use session::SessionBook;
use stream::Streams;

/// Operations that a connection may have in flight.
pub(crate) const IN_FLIGHT_MAX: u32 = 1_024;
/// Streams that a connection may have open.
const STREAMS_MAX: u32 = 64;
/// Credit that a stream towards the server begins with.
const STREAM_CREDIT_BYTES: u32 = 512 << 10;
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
    /// The hello was good.
    greeted: bool,
    /// Requests that have not been answered.
    in_flight: u32,
    /// Credit that each stream towards this client begins with.
    stream_credit_bytes: u32,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    Done,
    /// Nothing was done: it must be handled again later, before those after it.
    Waits,
}

/// What a worker is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
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
    phase: Phase,
    store: Option<Store>,
    outbox: Outbox,
    reads: ReadQueue,
    regions: RegionBook,
    connections: HashMap<ConnectionId, Connection>,
    sessions: SessionBook,
    streams: Streams,
    backlog: VecDeque<(ConnectionId, Vec<u8>)>,
    commands: Vec<Command>,
    checkpointing: Checkpointing,
    counters: Counters,
    progress: Arc<Progress>,
    checking: bool,
    started_ns: u64,
    now_ns: u64,
    lease_until_ns: u64,
    submitted_ns: u64,
    scratch: Vec<u8>,
}

impl Worker {
    /// A worker without its pair: it greets, tells its status and asks everyone else for patience until
    /// [`Worker::install`].
    #[must_use]
    pub fn new(
        identity: WorkerIdentity,
        options: WorkerOptions,
        progress: Arc<Progress>,
        now_ns: u64,
    ) -> Worker {
        Worker {
            identity,
            options,
            phase: Phase::Recovering,
            store: None,
            outbox: Outbox::new(Csn::ZERO),
            reads: ReadQueue::default(),
            regions: RegionBook::default(),
            connections: HashMap::new(),
            sessions: SessionBook::default(),
            streams: Streams::default(),
            backlog: VecDeque::new(),
            commands: Vec::new(),
            checkpointing: Checkpointing::new(now_ns),
            counters: Counters::new(),
            progress,
            checking: false,
            started_ns: now_ns,
            now_ns,
            lease_until_ns: 0,
            submitted_ns: now_ns,
            scratch: Vec::new(),
        }
    }

    /// The recovered pair: from here on it is served.
    pub fn install(&mut self, store: Store, sessions: impl IntoIterator<Item = cell_terms::SessionId>) {
        self.options.tree_node_bytes = store.tree_node_bytes();
        self.outbox = Outbox::new(store.appended());
        for session in sessions {
            self.sessions.open(session, self.now_ns);
        }
        self.checkpointing.begin_serving(store.checkpointed(), self.now_ns);
        self.store = Some(store);
        if self.phase == Phase::Recovering {
            self.phase = Phase::Serving;
        }
    }

    /// A client connected.
    pub fn accepted(&mut self, connection: ConnectionId) {
        self.connections.insert(connection, Connection::default());
    }

    /// A client is gone; its streams end, what it asked for is carried out.
    pub fn closed(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        self.streams.close_connection(connection);
    }

    /// The time, and how long the lease surely holds.
    pub fn tick(&mut self, now_ns: u64, lease_until_ns: u64) {
        self.now_ns = now_ns;
        self.lease_until_ns = lease_until_ns;
        if matches!(self.phase, Phase::Serving | Phase::Stopping) && lease_over(now_ns, lease_until_ns) {
            self.fail(FailureKind::LeaseLost);
            return;
        }
        if let Some(store) = &mut self.store {
            store.reuse(now_ns);
        }
        self.sessions_tick();
        self.checkpoint_tick();
    }

    /// The time, between ticks.
    pub fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// The node cannot go on: nothing is sent any more.
    pub fn give_up(&mut self, kind: FailureKind) {
        self.fail(kind);
    }

    /// How far the allocators have come, in bytes of the node and the extent region.
    #[must_use]
    pub fn high_water(&self) -> Option<(u64, u64)> {
        self.store.as_ref().map(Store::high_water)
    }

    /// A message of a client. Replies and commands are collected; see [`Worker::release`].
    pub fn message(&mut self, connection: ConnectionId, message: &[u8]) {
        if !self.backlog.is_empty() || self.handle(connection, message) == Handled::Waits {
            self.backlog.push_back((connection, message.to_vec()));
        }
    }

    /// Whether the shell should go on polling the fabric: false while a write waits for log space, so that
    /// the queues
    /// of the network fill and not ours.
    #[must_use]
    pub fn takes_input(&self) -> bool {
        self.backlog.is_empty()
    }

    /// The end of one poll: carries out the reads that were gathered.
    pub fn end_of_poll(&mut self) {
        self.carry_out_reads();
    }

    /// Submits the batch that filled, if none is in flight.
    pub fn commit(&mut self, device: &mut dyn LogDevice) {
        self.carry_out_reads();
        let Some(store) = &mut self.store else { return };
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        match store.submit(device) {
            Ok(Some(last)) => {
                self.submitted_ns = self.now_ns;
                self.outbox.submitted(last);
            }
            Ok(None) => {}
            Err(error) => self.log_failed(&error),
        }
    }

    /// What the log's device reported.
    pub fn log_event(&mut self, event: LogEvent, device: &mut dyn LogDevice) {
        let Some(store) = &mut self.store else { return };
        match store.log_event(event, device) {
            Ok(Some(synced)) => {
                self.counters.batch(self.now_ns.saturating_sub(self.submitted_ns), synced.bytes);
                self.raise();
            }
            Ok(None) => {}
            Err(error) => self.log_failed(&error),
        }
        self.drain_backlog();
    }

    /// Lets the log seal its last batch, try again what failed for a shortage, and drop what a checkpoint
    /// covers.
    pub fn log_tick(&mut self, device: &mut dyn LogDevice) {
        let Some(store) = &mut self.store else { return };
        if let Some(base) = self.checkpointing.take_release() {
            store.release_log(base, device);
        }
        if let Err(error) = store.log_tick(self.now_ns, device) {
            self.log_failed(&error);
        }
    }

    /// Replies that may leave now; none when the lease may not hold any more. The shell reads the clock right
    /// before,
    /// hands the replies to the fabric and calls [`Worker::replies_sent`].
    ///
    /// Watermark and lease are stamped here and not when the reply was made: the time read now is later than
    /// any of
    /// the questions, so what a client counts from before it asked ends before the lease does.
    pub fn release(&mut self, now_ns: u64, lease_until_ns: u64) -> &ReplyList {
        if self.outbox.ready().is_empty() {
            return self.outbox.ready();
        }
        self.now_ns = self.now_ns.max(now_ns);
        self.lease_until_ns = lease_until_ns;
        if let Some(store) = &self.store {
            if lease_over(now_ns, lease_until_ns) {
                self.fail(FailureKind::LeaseLost);
                return self.outbox.ready();
            }
            let remaining_us = lease_until_ns.saturating_sub(now_ns) / 1_000;
            let stamp = ReplyHeader {
                watermark: cell_terms::Watermark { epoch: store.epoch(), csn: store.visible() },
                lease_remaining_us: u32::try_from(remaining_us).unwrap_or(u32::MAX),
                ..ReplyHeader::default()
            };
            self.outbox.ready_mut().for_each_mut(|reply| stamp.stamp(reply));
        }
        self.outbox.ready()
    }

    /// The replies were handed over.
    pub fn replies_sent(&mut self) {
        for (connection, _) in self.outbox.ready().iter() {
            if let Some(state) = self.connections.get_mut(&connection) {
                state.in_flight = state.in_flight.saturating_sub(1);
            }
        }
        self.outbox.sent();
    }

    /// What the shell is to do.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Why the worker gave its pair up, if it did. Nothing may be sent any more; the process exits.
    #[must_use]
    pub fn failure(&self) -> Option<FailureKind> {
        match self.phase {
            Phase::Failed(kind) => Some(kind),
            _ => None,
        }
    }

    /// Whether nothing waits for the log.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.store.as_ref().is_none_or(Store::is_idle) && self.outbox.held() == 0
    }

    fn log_failed(&mut self, error: &WalError) {
        tracing::error!(%error, "the log failed: this node gives its pair up");
        self.fail(FailureKind::LogFailed);
    }

    fn fail(&mut self, kind: FailureKind) {
        if !matches!(self.phase, Phase::Failed(_)) {
            self.phase = Phase::Failed(kind);
            self.outbox = Outbox::new(Csn::ZERO);
            self.commands.push(Command::Failed(kind));
        }
    }

    fn raise(&mut self) {
        let Some(store) = &self.store else { return };
        self.outbox.raise(store.visible());
        self.unblock_streams();
        self.checkpoint_durable();
    }

    fn drain_backlog(&mut self) {
        while let Some((connection, message)) = self.backlog.pop_front() {
            if self.handle(connection, &message) == Handled::Waits {
                return self.backlog.push_front((connection, message));
            }
        }
    }

    fn handle(&mut self, connection: ConnectionId, message: &[u8]) -> Handled {
        if matches!(self.phase, Phase::Failed(_)) {
            return Handled::Done;
        }
        let Some(state) = self.connections.get(&connection) else { return Handled::Done };
        let (header, request) = match Request::decode(message) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.count_in(connection);
                self.malformed(connection, message, &error);
                return Handled::Done;
            }
        };
        if !state.greeted {
            self.count_in(connection);
            self.greet(connection, header, &request);
        } else if self.must_wait(connection, header, &request) {
            return Handled::Waits;
        } else if matches!(request, Request::Chunk(_) | Request::Credit { .. } | Request::Cancel) {
            self.stream_step(connection, header, &request); // no replies of their own: not counted in flight
        } else if self.count_in(connection) > IN_FLIGHT_MAX {
            self.refuse(connection, header, Refusal::Busy);
        } else {
            self.dispatch(connection, header, &request);
        }
        Handled::Done
    }

    fn count_in(&mut self, connection: ConnectionId) -> u32 {
        let Some(state) = self.connections.get_mut(&connection) else { return 0 };
        state.in_flight += 1;
        state.in_flight
    }

    /// Whether a write has to wait for log space, or for a check of the tree: it is kept, and all input after
    /// it waits
    /// too, until the log's next event.
    fn must_wait(&mut self, connection: ConnectionId, header: RequestHeader, request: &Request<'_>) -> bool {
        let value_len = match request {
            Request::Put(put) => put.value.len(),
            Request::PutBegin(begin) if begin.value_len == 0 => 0,
            Request::Delete(_) => 0,
            Request::Chunk(chunk) => match self.streams.completed_by((connection, header.id), chunk) {
                Some(value_len) => value_len,
                None => return false,
            },
            _ => return false,
        };
        self.store.as_mut().is_some_and(|store| store.write_must_wait(value_len))
    }

    fn dispatch(&mut self, connection: ConnectionId, header: RequestHeader, request: &Request<'_>) {
        // Only reads of one key wait to be carried out together; everything else comes after those before it.
        if !matches!(request, Request::Search { .. } | Request::Get { .. }) {
            self.carry_out_reads();
        }
        match request {
            Request::Hello(_) => self.greet(connection, header, request),
            Request::Search { key } => self.queue_read(connection, header, key, false),
            Request::Get { key } => self.queue_read(connection, header, key, true),
            Request::MultiGet(keys) => self.multi_get(connection, header, keys),
            Request::Scan(scan) => self.scan(connection, header, scan),
            Request::Put(put) => self.put(connection, header, put),
            Request::Delete(delete) => self.delete(connection, header, delete),
            Request::PutBegin(begin) => self.put_begin(connection, header, begin),
            Request::OpenSession => self.open_session(connection, header),
            Request::CloseSession { session } => self.close_session(connection, header, *session),
            Request::KeepAlive { session } => self.keep_alive(connection, header, *session),
            Request::Status => self.status(connection, header),
            Request::Check => self.check(connection, header),
            Request::Regions => self.regions(connection, header),
            Request::Chunk(_) | Request::Credit { .. } | Request::Cancel => {}
        }
    }

    fn greet(&mut self, connection: ConnectionId, header: RequestHeader, request: &Request<'_>) {
        let Request::Hello(Hello { version, stream_credit_bytes, .. }) = request else {
            let what = cell_protocol::Malformed::Order;
            return self.refuse(connection, header, Refusal::Malformed { what });
        };
        if let Some(state) = self.connections.get_mut(&connection) {
            state.greeted = true;
            state.stream_credit_bytes = *stream_credit_bytes;
        }
        let reply = Reply::Hello(HelloReply {
            version: *version,
            node: self.identity.node,
            incarnation: self.identity.incarnation,
            limits: self.limits(),
            name: SERVER_NAME,
        });
        self.reply(connection, header, Csn::ZERO, &reply);
    }

    fn limits(&self) -> Limits {
        let clamp = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Limits {
            key_bytes_max: clamp(self.options.key_bytes_max()),
            value_bytes_max: clamp(self.options.value_bytes_max),
            in_flight_max: IN_FLIGHT_MAX,
            streams_max: STREAMS_MAX,
            scan_entries_max: clamp(self.options.scan_page_entries_max),
            stream_credit_bytes: STREAM_CREDIT_BYTES,
            idle_ms: IDLE_MS,
        }
    }

    fn malformed(&mut self, connection: ConnectionId, message: &[u8], error: &DecodeError) {
        let header = RequestHeader::peek(message).unwrap_or_default();
        let refusal = match error {
            DecodeError::Version { .. } => {
                Refusal::VersionUnsupported { min: PROTOCOL_VERSION_MIN, max: PROTOCOL_VERSION }
            }
            other => Refusal::Malformed { what: other.what() },
        };
        self.refuse(connection, header, refusal);
    }

    fn refuse(&mut self, connection: ConnectionId, header: RequestHeader, refusal: Refusal) {
        self.counters.operations.refused += 1;
        self.reply(connection, header, Csn::ZERO, &Reply::Refused(refusal));
    }

    /// Queues a reply that may leave when the watermark covers `depends_on`.
    fn reply(&mut self, connection: ConnectionId, header: RequestHeader, depends_on: Csn, reply: &Reply<'_>) {
        let reply_header = self.reply_header(header);
        let list = self.outbox.list(depends_on);
        list.push(connection, |bytes| {
            reply
                .encode(&reply_header, bytes)
                .expect("a worker's replies fit the wire: sizes are checked before");
        });
    }

    /// Watermark and lease are stamped when the reply leaves.
    fn reply_header(&self, header: RequestHeader) -> ReplyHeader {
        let pair = self.store.as_ref().map_or_else(Default::default, Store::pair);
        ReplyHeader { id: header.id, pair, ..ReplyHeader::default() }
    }
}
