//! Connections over queue pairs, as an endpoint's loop sees them.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;

use crate::address::Address;
use crate::close::{CloseReason, QueuePairFailure};
use crate::connections::{
    Connection, ConnectionPhase, ConnectionTable, EVENTS_PER_POLL, Greeted, MARK_VERBS, Messenger, Sink,
    Started, Transport, WithheldQuestions, Written,
};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::FabricError;
use crate::hello::Hello;
use crate::key_permission::KeyPermission;
use crate::partition::Partition;
use crate::queue_pair_end::QueuePairEnd;
use crate::registry::Registry;
use crate::tcp::{self, TcpListener};
use crate::tls::{Socket, TlsConnector};

use super::channel::{self, Channel};
use super::completion::{COMPLETIONS_PER_POLL, Completion, CompletionQueue};
use super::control::{self, RegionAnswer, SocketRead};
use super::error::VerbsError;
use super::gid::Gid;
use super::link::VerbsLink;
use super::queue_pair::QueuePair;
use super::work::RequestId;

/// Polls between two questions to the kernel while nothing is awaited from it.
const KERNEL_EVERY: u32 = 32;
/// Questions of one connection that one poll answers.
const PACKETS_PER_POLL: usize = 16;
/// How long a closed connection's last pieces are waited for, and how many connections may wait so.
const PARTING_NS: u64 = 1_000_000_000;
const PARTING_MAX: usize = 256;

pub(super) type VerbsMessenger = Messenger<VerbsTransport>;
type Table = ConnectionTable<VerbsLink>;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct VerbsTransport {
    /// Connections that their user closed and whose last pieces are under way; until when they may be.
    parting: Vec<(Connection<VerbsLink>, u64)>,
    completions: Arc<CompletionQueue>,
    /// An acceptor's; none where no one-sided reads are served.
    registry: Option<Arc<Registry>>,
    /// An acceptor's: who learns of what is registered there.
    keys: KeyPermission,
    /// Connections by their queue pairs' numbers.
    pairs: HashMap<u32, ConnectionId>,
    /// The number of the next queue pair.
    serial: u32,
    /// Connections to be looked at, in the order in which they were touched.
    touched: VecDeque<ConnectionId>,
    ended: Vec<(ConnectionId, CloseReason)>,
    /// Polls since the kernel was asked.
    kernel_age: u32,
    /// An acceptor's: about keys.
    withheld: WithheldQuestions<[u8; control::ANSWER_BYTES]>,
    /// The channel signals the next completion.
    armed: bool,
    /// What the queue gave, kept for its room.
    taken: Vec<Completion>,
    scratch: Box<[u8]>,
    /// Connections begin over it.
    pub(super) tls: TlsConnector,
    /// A connector's: shown in its hellos; empty: there is none.
    pub(super) token: Box<[u8]>,
}

impl Transport for VerbsTransport {
    type Link = VerbsLink;
    type Listener = TcpListener;

    const MARK: u64 = MARK_VERBS;
    const EDGES: EventFlags =
        EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

    fn connect(&self, address: &Address, _hello: &Hello) -> Result<Started, FabricError> {
        tcp::connect(address, &self.tls)
    }

    fn name_address(&mut self, address: SocketAddr, host: &str) {
        self.tls.name(address, host);
    }

    fn receive_hello(
        &mut self,
        connection: &mut Connection<VerbsLink>,
    ) -> Result<Option<Greeted>, CloseReason> {
        if connection.phase == ConnectionPhase::Connecting {
            if tcp::is_through(connection.socket.descriptor())? {
                let end = self.make_channel(connection, false)?;
                let token = self.token.clone();
                let hello = Hello { queue_pair: Some(Box::new(end)), token, ..connection.hello() };
                tcp::send_hello(&mut connection.socket, &hello)?;
                connection.blocked |= connection.socket.has_unsent();
                connection.phase = ConnectionPhase::AnswerAwaited;
            }
            return Ok(None);
        }
        let Connection { socket, link, readable, blocked, .. } = connection;
        let hello = link.hello.read(socket, readable);
        *blocked |= socket.has_unsent();
        let hello = hello?;
        Ok(hello.map(|hello| Greeted { hello, descriptors: Vec::new() }))
    }

    fn welcome(
        &mut self,
        connection: &mut Connection<VerbsLink>,
        hello: &Hello,
        answer: &Hello,
    ) -> Result<(), CloseReason> {
        let peer = hello.queue_pair.as_ref().ok_or(CloseReason::HelloInvalid)?;
        // Who may not read may know a region's key from others: the device answers none of their reads.
        let allows_reads = self.keys.permits(true, &hello.token);
        let end = self.make_channel(connection, allows_reads)?;
        connection.link.allows_reads = allows_reads;
        self.open(connection, peer)?;
        let answer = Hello { queue_pair: Some(Box::new(end)), ..answer.clone() };
        tcp::send_hello(&mut connection.socket, &answer)
    }

    fn welcomed(
        &mut self,
        connection: &mut Connection<VerbsLink>,
        hello: &Hello,
        _descriptors: Vec<OwnedFd>,
    ) -> Result<(), CloseReason> {
        let peer = hello.queue_pair.as_ref().ok_or(CloseReason::HelloInvalid)?;
        connection.link.operations.served = Some(hello.one_sided);
        self.open(connection, peer)
    }

    fn refuse(socket: &mut Socket, answer: &Hello) {
        tcp::refuse(socket, answer);
    }

    /// Reads what the socket has: questions, an answer, or the peer's end.
    fn receive(
        &mut self,
        id: ConnectionId,
        table: &mut Table,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        self.touch(id, table);
        for _ in 0..PACKETS_PER_POLL {
            let Some(connection) = table.get_mut(id) else { return Ok(()) };
            let Connection { socket, link, accepted, .. } = connection;
            let bytes = if *accepted { control::QUESTION_BYTES } else { control::ANSWER_BYTES };
            let packet = match link.control.read(socket, bytes)? {
                SocketRead::Packet(packet) => packet,
                SocketRead::Nothing => {
                    connection.readable = false;
                    return Ok(());
                }
                SocketRead::Interrupted => {
                    connection.readable = true;
                    return Ok(());
                }
                SocketRead::End => {
                    (connection.readable, connection.link.ended) = (false, true);
                    return Ok(());
                }
            };
            let accepted = *accepted;
            if accepted && self.withheld.is_due() {
                if !self.withheld.keep(id, packet) {
                    return Err(CloseReason::HelloInvalid);
                }
            } else if accepted {
                self.answer(id, &packet, table)?;
            } else {
                take_answer(id, &packet, table, sink)?;
            }
        }
        Ok(())
    }

    fn write(connection: &mut Connection<VerbsLink>) -> Result<Written, CloseReason> {
        if connection.phase != ConnectionPhase::Connecting {
            connection.socket.flush();
        }
        if !connection.is_open() {
            connection.blocked |= connection.socket.has_unsent();
            return Ok(Written::default());
        }
        let VerbsLink { channel, output, operations, .. } = &mut connection.link;
        let Some(channel) = channel else { return Ok(Written::default()) };
        let bytes = channel.flush(output, operations).map_err(broken)?;
        operations.ask(&mut connection.socket)?;
        connection.blocked = output.pending() > 0;
        Ok(Written { bytes, ..Written::default() })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.completions.descriptor())
    }

    fn rung(&mut self) {
        self.completions.drain();
        self.armed = false;
    }

    fn asks_kernel(&mut self, connections: usize) -> bool {
        self.kernel_age += 1;
        connections > self.pairs.len() || self.kernel_age >= KERNEL_EVERY
    }

    fn kernel_asked(&mut self) {
        self.kernel_age = 0;
    }

    /// Takes what the device has done, then looks at each connection that something was of.
    fn look(
        &mut self,
        table: &mut Table,
        reported: &Cell<usize>,
        sink: &mut Sink<'_>,
    ) -> Vec<(ConnectionId, CloseReason)> {
        self.judge_readers(table);
        self.answer_withheld(table);
        while reported.get() < EVENTS_PER_POLL && self.take_completions(table, sink) == COMPLETIONS_PER_POLL {
        }
        // Whoever is touched again waits behind those who were not looked at yet.
        for _ in 0..self.touched.len() {
            if reported.get() >= EVENTS_PER_POLL {
                break;
            }
            let Some(id) = self.touched.pop_front() else { break };
            if let Err(reason) = self.attend(id, table, sink) {
                self.ended.push((id, reason));
            }
        }
        let now_ns = table.now_ns();
        self.parting.retain(|(_, until_ns)| now_ns < *until_ns);
        std::mem::take(&mut self.ended)
    }

    /// Lets the channel signal what comes, then looks once more.
    fn prepare_sleep(&mut self, _table: &mut Table) -> bool {
        if !self.touched.is_empty() {
            return false;
        }
        if !self.armed {
            self.armed = self.completions.arm();
        }
        // The next poll follows a sleep, and asks what ended it.
        self.kernel_age = KERNEL_EVERY;
        if self.taken.is_empty() {
            self.completions.poll(&mut self.taken);
        }
        self.taken.is_empty()
    }

    fn ending(connection: &mut Connection<VerbsLink>, counters: &mut FabricCounters, sink: &mut Sink<'_>) {
        let id = connection.id;
        connection.link.operations.fail_all(&mut |tag, outcome| {
            counters.reads_failed += 1;
            sink(Event::ReadDone { connection: id, tag, outcome });
        });
    }

    fn removed(&mut self, connection: &Connection<VerbsLink>) {
        if let Some(channel) = &connection.link.channel {
            self.pairs.remove(&channel.pair.serial);
        }
        self.withheld.forget(connection.id);
    }

    fn part(&mut self, mut connection: Connection<VerbsLink>, now_ns: u64) {
        let goes_on = connection.is_open() && connection.link.channel.as_mut().is_some_and(Channel::settle);
        if goes_on && self.parting.len() < PARTING_MAX {
            self.parting.push((connection, now_ns.saturating_add(PARTING_NS)));
        }
    }
}

impl VerbsTransport {
    pub(super) fn new(
        completions: Arc<CompletionQueue>,
        registry: Option<Arc<Registry>>,
        keys: KeyPermission,
        partition: Partition,
    ) -> VerbsTransport {
        VerbsTransport {
            parting: Vec::new(),
            completions,
            registry,
            keys,
            pairs: HashMap::new(),
            serial: 0,
            touched: VecDeque::new(),
            ended: Vec::new(),
            kernel_age: 0,
            withheld: WithheldQuestions::behind(partition),
            armed: false,
            taken: Vec::with_capacity(COMPLETIONS_PER_POLL),
            scratch: vec![0; channel::SCRATCH_BYTES].into_boxed_slice(),
            tls: TlsConnector::default(),
            token: Box::default(),
        }
    }

    /// The GID for a connection: that of the address which its socket has here.
    fn gid_of(&self, socket: &Socket) -> Result<Gid, CloseReason> {
        let near = rustix::net::getsockname(socket.descriptor()).and_then(SocketAddr::try_from);
        let address = near.map_err(CloseReason::network)?.ip().to_canonical();
        self.completions.device().gids.of_address(address).ok_or(CloseReason::NoGid { address })
    }

    /// Gives a connection its queue pair, by which the peer's operations are done or not; what is sent to the
    /// peer about it.
    fn make_channel(
        &mut self,
        connection: &mut Connection<VerbsLink>,
        peers_access: bool,
    ) -> Result<QueuePairEnd, CloseReason> {
        let gid = self.gid_of(&connection.socket)?;
        self.serial = (self.serial + 1) & (u32::MAX >> 1);
        let requests_max = self.completions.device().limits.requests;
        let sizes = Channel::sizes(!connection.accepted, requests_max);
        let made = QueuePair::new(&self.completions, self.serial, sizes, gid, peers_access)
            .and_then(|pair| Channel::new(pair, sizes));
        let channel = made.map_err(|error| no_queue_pair(&error))?;
        let end = channel.end();
        connection.link.channel = Some(channel);
        Ok(end)
    }

    /// Messages can flow: what the queue pair brings is looked at from now on.
    fn open(
        &mut self,
        connection: &mut Connection<VerbsLink>,
        peer: &QueuePairEnd,
    ) -> Result<(), CloseReason> {
        let connector = !connection.accepted;
        let Some(channel) = &mut connection.link.channel else { return Ok(()) };
        channel.connect(peer, connector).map_err(|error| no_queue_pair(&error))?;
        self.pairs.insert(channel.pair.serial, connection.id);
        connection.link.touched = true;
        self.touched.push_back(connection.id);
        Ok(())
    }

    /// Has a connection looked at with the next look.
    pub(super) fn touch(&mut self, id: ConnectionId, table: &mut Table) {
        let Some(connection) = table.get_mut(id) else { return };
        if connection.link.channel.is_some() && !std::mem::replace(&mut connection.link.touched, true) {
            self.touched.push_back(id);
        }
    }

    /// Takes some of what the device has done, or what was taken before a sleep that did not come.
    fn take_completions(&mut self, table: &mut Table, sink: &mut Sink<'_>) -> usize {
        let mut taken = std::mem::take(&mut self.taken);
        if taken.is_empty() {
            self.completions.poll(&mut taken);
        }
        let count = taken.len();
        for completion in taken.drain(..) {
            self.complete(&completion, table, sink);
        }
        self.taken = taken;
        count
    }

    fn complete(&mut self, completion: &Completion, table: &mut Table, sink: &mut Sink<'_>) {
        let serial = completion.request.serial;
        let Some(id) = self.pairs.get(&serial).copied() else {
            self.parting.retain_mut(|(connection, _)| !has_parted(connection, completion));
            return;
        };
        self.touch(id, table);
        let now_ns = table.now_ns();
        let Some((connection, counters)) = table.get_counted(id) else { return };
        if completion.request.incoming && completion.failed.is_none() {
            connection.received_ns = now_ns;
        }
        let VerbsLink { channel: Some(channel), operations, .. } = &mut connection.link else { return };
        let RequestId { incoming, index, .. } = completion.request;
        let operation_done = |pair: &QueuePair| {
            operations.done(pair, &mut |tag, outcome| {
                counters.reads_done += 1;
                sink(Event::ReadDone { connection: id, tag, outcome });
            });
        };
        match completion.failed {
            None if incoming => {
                if let Err(error) = channel.arrive(index, completion.length, completion.number) {
                    channel.break_off(broken(error));
                }
            }
            None => channel.ended(index, operation_done),
            Some(status) => {
                let failure = failure_of(status);
                // Work ends in order: what was posted before the first that failed is done, the rest is not.
                if !incoming && channel.is_first_failure() {
                    channel.ended(index.wrapping_sub(1), operation_done);
                    if failure == Some(QueuePairFailure::AccessRefused) && channel.is_operation(index) {
                        operations.refused_by_device(&mut |tag, outcome| {
                            counters.reads_failed += 1;
                            sink(Event::ReadDone { connection: id, tag, outcome });
                        });
                    }
                }
                channel.fail(failure);
            }
        }
    }

    /// Does for one connection what has come for it.
    fn attend(
        &mut self,
        id: ConnectionId,
        table: &mut Table,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        let limits = table.limits;
        let Some((connection, counters)) = table.get_counted(id) else { return Ok(()) };
        // A peer that has gone takes no replies, and sends nothing more: what it sent is there.
        let paused = connection.is_paused(limits.output_high_water()) && !connection.link.ended;
        let VerbsLink { channel, input, output, operations, ended, touched, .. } = &mut connection.link;
        *touched = false;
        let Some(channel) = channel else { return Ok(()) };
        // Looked at again when output has gone.
        connection.readable |= paused && channel.has_arrived();
        while !paused && let Some(piece) = channel.next_arrived() {
            counters.bytes_received += piece.len() as u64;
            channel::take_piece(input, piece, &mut self.scratch, limits.message_bytes_max, &mut |message| {
                counters.messages_received += 1;
                sink(Event::Message { connection: id, message });
            })?;
        }
        if let Some(reason) = channel.failure() {
            return Err(reason);
        }
        if *ended {
            let received = input.unfinished_bytes();
            let whole = received == 0;
            return Err(if whole { CloseReason::PeerClosed } else { CloseReason::Truncated { received } });
        }
        channel.give_out().map_err(broken)?;
        channel.prepare_landing(operations);
        operations.report_refused(&mut |tag, outcome| {
            counters.reads_failed += 1;
            sink(Event::ReadDone { connection: id, tag, outcome });
        });
        if operations.has_room_again() {
            sink(Event::Writable { connection: id });
        }
        let goes_on = output.pending() > 0 && channel.can_send();
        if goes_on || channel.owes() || operations.has_waiting() {
            connection.blocked &= !goes_on;
            table.mark_dirty(id);
        }
        Ok(())
    }

    /// Ends the connections whose queue pairs let reads through of who may read no more. What they know
    /// does not matter: a key and a place that somebody else knows are enough for the device.
    fn judge_readers(&mut self, table: &Table) {
        if !self.keys.has_changed() {
            return;
        }
        for id in table.open_with(|token| !self.keys.permits(true, token)) {
            if table.get(id).is_some_and(|connection| connection.link.allows_reads) {
                self.ended.push((id, CloseReason::ReadsNoMore));
            }
        }
    }

    /// Answers what was kept, once that can be.
    fn answer_withheld(&mut self, table: &mut Table) {
        for (id, packet) in self.withheld.take() {
            if let Err(reason) = self.answer(id, &packet, table) {
                self.ended.push((id, reason));
            }
        }
    }

    /// An acceptor's: the peer asks what a key stands for. Whoever may not read learns nothing, not even
    /// whether there is such a key.
    fn answer(
        &mut self,
        id: ConnectionId,
        packet: &[u8; control::ANSWER_BYTES],
        table: &mut Table,
    ) -> Result<(), CloseReason> {
        let key = control::decode_question(packet);
        let (now_ns, is_admitted) = (table.now_ns(), table.is_admitted(id));
        let Some(connection) = table.get_mut(id) else { return Ok(()) };
        connection.received_ns = now_ns;
        let registry = self.registry.as_ref().filter(|_| self.keys.permits(is_admitted, &connection.token));
        let region = registry.and_then(|registry| registry.remote_region(key));
        control::send(&mut connection.socket, &control::encode_answer(&RegionAnswer { key, region }))
    }
}

/// A connector's: what a key stands for.
fn take_answer(
    id: ConnectionId,
    packet: &[u8; control::ANSWER_BYTES],
    table: &mut Table,
    sink: &mut Sink<'_>,
) -> Result<(), CloseReason> {
    let answer = control::decode_answer(packet).ok_or(CloseReason::HelloInvalid)?;
    let Some((connection, counters)) = table.get_counted(id) else { return Ok(()) };
    let operations = &mut connection.link.operations;
    let fits = operations.answered(answer, &mut |tag, outcome| {
        counters.reads_failed += 1;
        sink(Event::ReadDone { connection: id, tag, outcome });
    });
    // What waited for the answer goes, and the next question.
    table.mark_dirty(id);
    if fits { Ok(()) } else { Err(CloseReason::HelloInvalid) }
}

/// Whether nothing of a closed connection is under way any more.
fn has_parted(connection: &mut Connection<VerbsLink>, completion: &Completion) -> bool {
    let Some(channel) = &mut connection.link.channel else { return true };
    let RequestId { serial, incoming, index } = completion.request;
    if channel.pair.serial != serial {
        return false;
    }
    if completion.failed.is_none() && !incoming {
        channel.ended(index, |_| {});
    }
    completion.failed.is_some() || channel.is_settled()
}

/// What a completion's status says of its queue pair; nothing of one that ended with others.
fn failure_of(status: u32) -> Option<QueuePairFailure> {
    use ibverbs_sys::ibv_wc_status as status_of;
    match status {
        status_of::IBV_WC_WR_FLUSH_ERR => None,
        status_of::IBV_WC_REM_ACCESS_ERR => Some(QueuePairFailure::AccessRefused),
        status_of::IBV_WC_RETRY_EXC_ERR => Some(QueuePairFailure::PeerSilent),
        status_of::IBV_WC_RNR_RETRY_EXC_ERR => Some(QueuePairFailure::PeerFull),
        status => Some(QueuePairFailure::Status(status)),
    }
}

fn no_queue_pair(error: &VerbsError) -> CloseReason {
    let source = std::error::Error::source(error);
    tracing::warn!(%error, ?source, "no queue pair for a connection");
    CloseReason::NoQueuePair(error.kind())
}

fn broken(error: VerbsError) -> CloseReason {
    tracing::debug!(%error, source = ?std::error::Error::source(&error), "a queue pair is broken");
    CloseReason::NoQueuePair(error.kind())
}
