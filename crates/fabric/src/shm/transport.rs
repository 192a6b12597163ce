//! Messages through rings: these are looked at with each poll, the kernel only now and then.
//!
//! A poll loads one word a connection. The kernel is asked when the endpoint may have slept, while a hello
//! or a descriptor is awaited, and otherwise each [`KERNEL_EVERY`] polls, so that who spins makes no system
//! calls.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::address::Address;
use crate::close::CloseReason;
use crate::connections::{
    Connection, ConnectionTable, EVENTS_PER_POLL, Greeted, MARK_SHM, Messenger, Sink, Started, Transport,
    WithheldQuestions, Written,
};
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::FabricError;
use crate::hello::Hello;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::partition::Partition;
use crate::registry::{LedgerView, Registry};
use crate::tls::Socket;

use super::control::{self, Packet, Received, RegionAnswer};
use super::frame::WORD_BYTES;
use super::handshake;
use super::link::{Rings, ShmLink};
use super::listener::ShmListener;
use super::ring::Broken;

/// Polls between two questions to the kernel while nothing is awaited from it.
const KERNEL_EVERY: u32 = 32;
/// Packets of one connection that one poll reads.
const PACKETS_PER_POLL: usize = 16;
/// Words of one connection that one poll takes: the longest message. A ring may hold more, and nobody waits
/// until all of a neighbour's is carried out.
const WORDS_PER_POLL: usize = MESSAGE_BYTES_MAX / WORD_BYTES;

pub(super) type ShmMessenger = Messenger<ShmTransport>;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ShmTransport {
    /// A connector's: users, besides root and the own one, whose acceptors it shares memory with.
    trusted: Vec<u32>,
    /// An acceptor's; none where no one-sided reads are served.
    registry: Option<Arc<Registry>>,
    /// An acceptor's: words of each ring that it makes.
    ring_words: usize,
    /// Open connections, in no order.
    open: Vec<ConnectionId>,
    /// Where the next poll begins among them.
    turn: usize,
    /// Polls since the kernel was asked.
    kernel_age: u32,
    /// An acceptor's: about regions.
    withheld: WithheldQuestions<Packet>,
    /// A descriptor of a region was awaited at the last look.
    asking: bool,
    /// As large as what one poll takes of a connection.
    scratch: Vec<[u8; WORD_BYTES]>,
    words: Vec<u64>,
}

type Table = ConnectionTable<ShmLink>;

impl Transport for ShmTransport {
    type Link = ShmLink;
    type Listener = ShmListener;

    const MARK: u64 = MARK_SHM;
    const EDGES: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

    fn connect(&self, address: &Address, hello: &Hello) -> Result<Started, FabricError> {
        handshake::connect(address, hello, &self.trusted)
    }

    fn receive_hello(
        &mut self,
        connection: &mut Connection<ShmLink>,
    ) -> Result<Option<Greeted>, CloseReason> {
        handshake::read_hello(connection)
    }

    fn welcome(
        &mut self,
        connection: &mut Connection<ShmLink>,
        _hello: &Hello,
        answer: &Hello,
    ) -> Result<(), CloseReason> {
        let (rings, file) =
            Rings::make(self.ring_words).map_err(|error| CloseReason::Network(error.kind()))?;
        let ledger = self.registry.as_ref().and_then(|registry| registry.ledger());
        let bytes = answer.encode().map_err(|_| CloseReason::HelloInvalid)?;
        let descriptors: Vec<_> = std::iter::once(file.as_fd()).chain(ledger).collect();
        control::send(connection.socket.descriptor(), &bytes, &descriptors).map_err(CloseReason::network)?;
        self.opened(connection, rings);
        Ok(())
    }

    fn welcomed(
        &mut self,
        connection: &mut Connection<ShmLink>,
        hello: &Hello,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), CloseReason> {
        let mut descriptors = descriptors.into_iter();
        // An acceptor of another version hands over more: its version is reported before what else is wrong.
        let rings = Rings::open(&descriptors.next().ok_or(CloseReason::HelloInvalid)?)?;
        let ledger = descriptors.next();
        if ledger.is_some() != hello.one_sided || descriptors.next().is_some() {
            return Err(CloseReason::HelloInvalid);
        }
        let ledger = ledger.map(|file| LedgerView::open(&file)).transpose();
        let ledger = ledger.map_err(|_| CloseReason::SharedMemoryBroken)?;
        connection.link.reads.ledger = ledger.map(Arc::new);
        self.opened(connection, rings);
        Ok(())
    }

    fn refuse(socket: &mut Socket, answer: &Hello) {
        handshake::refuse(socket, answer);
    }

    /// Reads a connection's packets, some of them.
    fn receive(
        &mut self,
        id: ConnectionId,
        table: &mut Table,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        for _ in 0..PACKETS_PER_POLL {
            if !self.receive_packet(id, table, sink)? {
                return Ok(());
            }
        }
        table.queue(id);
        Ok(())
    }

    /// After a sleep: the bell that ended it is all that most connections have.
    fn read_ahead(
        &mut self,
        id: ConnectionId,
        table: &mut Table,
        sink: &mut Sink<'_>,
    ) -> Result<bool, CloseReason> {
        self.receive_packet(id, table, sink)
    }

    fn write(connection: &mut Connection<ShmLink>) -> Result<Written, CloseReason> {
        let ShmLink { rings, backlog, reads, .. } = &mut connection.link;
        // What was posted before the hellos were through goes with the flush that follows them.
        let Some(rings) = rings else { return Ok(Written::default()) };
        reads.flush();
        if backlog.pending() > 0 {
            let waiting = backlog.waiting();
            let room = rings.outgoing.room(&rings.words, waiting.len()).map_err(broken)?;
            let count = room.min(waiting.len());
            rings.outgoing.write(&rings.words, &waiting[..count]);
            backlog.take(count);
        }
        connection.blocked = backlog.pending() > 0;
        let published = rings.outgoing.publish(&rings.words);
        rings.published = published > 0;
        let wakes = rings.published || rings.consumed;
        Ok(Written { bytes: published * WORD_BYTES, wakes, ..Written::default() })
    }

    /// One fence for all, between what was published and the look at who sleeps.
    fn wake(table: &mut Table, written: &[ConnectionId]) {
        fence(Ordering::SeqCst);
        for id in written {
            let Some((connection, counters)) = table.get_counted(*id) else { continue };
            let Some(rings) = &mut connection.link.rings else { continue };
            // Only who waits for what there is now: a peer that sleeps until its answer comes is not woken
            // because its question was read.
            let published = std::mem::take(&mut rings.published);
            let consumed = std::mem::take(&mut rings.consumed);
            let for_data = published && rings.outgoing.must_ring(&rings.words);
            let for_room = consumed && rings.incoming.must_ring(&rings.words);
            if for_data || for_room {
                counters.wakes += 1;
                counters.kernel_calls += 1;
                control::ring(connection.socket.descriptor());
            }
        }
    }

    fn asks_kernel(&mut self, connections: usize) -> bool {
        self.kernel_age += 1;
        self.asking || connections > self.open.len() || self.kernel_age >= KERNEL_EVERY
    }

    fn kernel_asked(&mut self) {
        self.kernel_age = 0;
    }

    /// Looks at every open connection once: its reads, its ring, its room.
    fn look(
        &mut self,
        table: &mut Table,
        reported: &Cell<usize>,
        sink: &mut Sink<'_>,
    ) -> Vec<(ConnectionId, CloseReason)> {
        let count = self.open.len();
        let mut ended = self.answer_withheld(table);
        self.asking = false;
        for _ in 0..count {
            if reported.get() >= EVENTS_PER_POLL {
                break;
            }
            self.turn = if self.turn + 1 < count { self.turn + 1 } else { 0 };
            let id = self.open[self.turn];
            if let Err(reason) = self.attend(id, table, sink) {
                ended.push((id, reason));
            }
        }
        ended
    }

    /// Asks every peer to ring; see the module text of `ring`.
    fn prepare_sleep(&mut self, table: &mut Table) -> bool {
        let high_water = table.limits.output_high_water();
        for id in &self.open {
            let Some(connection) = table.get_mut(*id) else { continue };
            if !connection.link.reads.is_quiet() {
                return false;
            }
            let paused = connection.is_paused(high_water);
            let Some(rings) = &mut connection.link.rings else { continue };
            if !paused {
                rings.incoming.arm(&rings.words);
            }
            if connection.blocked {
                rings.outgoing.ask_for_room(&rings.words);
            }
        }
        fence(Ordering::SeqCst);
        let has_news = |connection: &mut Connection<ShmLink>| {
            let paused = connection.is_paused(high_water);
            let Some(rings) = &mut connection.link.rings else { return false };
            (!paused && rings.incoming.available(&rings.words) != Ok(0))
                || (connection.blocked && rings.outgoing.room(&rings.words, 1) != Ok(0))
        };
        if self.open.iter().any(|id| table.get_mut(*id).is_some_and(has_news)) {
            return false;
        }
        // The next poll follows a sleep, and asks what ended it.
        self.kernel_age = KERNEL_EVERY;
        true
    }

    fn ending(connection: &mut Connection<ShmLink>, counters: &mut FabricCounters, sink: &mut Sink<'_>) {
        let id = connection.id;
        connection.link.reads.fail_all(&mut |tag, outcome| {
            counters.reads_failed += 1;
            sink(Event::ReadDone { connection: id, tag, outcome });
        });
    }

    fn removed(&mut self, connection: &Connection<ShmLink>) {
        if connection.link.rings.is_some() {
            self.open.retain(|open| *open != connection.id);
            self.withheld.forget(connection.id);
        }
    }
}

impl ShmTransport {
    pub(super) fn of_connector(trusted: &[u32]) -> ShmTransport {
        ShmTransport { trusted: trusted.to_vec(), ..ShmTransport::default() }
    }

    /// Connections that are welcomed from now on have rings of so many words.
    pub(super) fn set_ring_words(&mut self, ring_words: usize) {
        self.ring_words = ring_words;
    }

    pub(super) fn of_acceptor(
        registry: Option<Arc<Registry>>,
        ring_words: usize,
        partition: Partition,
    ) -> ShmTransport {
        let withheld = WithheldQuestions::behind(partition);
        ShmTransport { registry, ring_words, withheld, ..ShmTransport::default() }
    }

    /// Reads a packet. False: there is none.
    fn receive_packet(
        &mut self,
        id: ConnectionId,
        table: &mut Table,
        sink: &mut Sink<'_>,
    ) -> Result<bool, CloseReason> {
        let Some((connection, counters)) = table.get_counted(id) else { return Ok(false) };
        counters.kernel_calls += 1;
        match control::receive(connection.socket.descriptor(), !connection.accepted) {
            // It has done its work: the poll that reads it looks at the ring as well.
            Ok(Received::Bell) => {}
            Ok(Received::Packet(packet)) if connection.accepted && self.withheld.is_due() => {
                if !self.withheld.keep(id, packet) {
                    return Err(CloseReason::SharedMemoryBroken);
                }
            }
            Ok(Received::Packet(packet)) if connection.accepted => self.hand_region(id, &packet, table)?,
            Ok(Received::Packet(packet)) => take_region(id, packet, table, sink)?,
            Ok(Received::End) => {
                (connection.readable, connection.link.ended) = (false, true);
                return Ok(false);
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                return Ok(false);
            }
            // Said once, before what the peer had sent.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(errno) => return Err(CloseReason::network(errno)),
        }
        Ok(true)
    }

    /// Messages can flow: the connection is looked at from now on.
    fn opened(&mut self, connection: &mut Connection<ShmLink>, rings: Rings) {
        let at_once = rings.ring_words.min(WORDS_PER_POLL);
        self.scratch.resize(self.scratch.len().max(at_once), [0; WORD_BYTES]);
        connection.link.rings = Some(rings);
        self.open.push(connection.id);
    }

    #[inline]
    fn attend(
        &mut self,
        id: ConnectionId,
        table: &mut Table,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason> {
        let (limits, now_ns) = (table.limits, table.now_ns());
        let Some((connection, counters)) = table.get_counted(id) else { return Ok(()) };
        // A peer that has gone takes no replies, and writes nothing more: what it wrote is there.
        let paused = connection.is_paused(limits.output_high_water()) && !connection.link.ended;
        let ShmLink { rings, assembler, reads, ended, .. } = &mut connection.link;
        let Some(rings) = rings else { return Ok(()) };
        let available = if paused { 0 } else { rings.incoming.available(&rings.words).map_err(broken)? };
        let at_once = available.min(WORDS_PER_POLL);
        if available > 0 {
            rings.incoming.disarm(&rings.words);
            let taken = &mut self.scratch[..at_once];
            rings.incoming.read(&rings.words, taken);
            rings.incoming.release(&rings.words);
            rings.consumed = true;
            connection.received_ns = now_ns;
            counters.bytes_received += (at_once * WORD_BYTES) as u64;
            assembler.take(taken, limits.message_bytes_max, &mut |message| {
                counters.messages_received += 1;
                sink(Event::Message { connection: id, message });
            })?;
        }
        if *ended && at_once == available {
            let received = assembler.unfinished_bytes();
            let whole = received == 0;
            return Err(if whole { CloseReason::PeerClosed } else { CloseReason::Truncated { received } });
        }
        let has_room = connection.blocked && rings.outgoing.room(&rings.words, 1).map_err(broken)? > 0;
        if !reads.is_quiet() {
            self.perform_reads(connection, counters, sink);
        } else {
            self.asking |= reads.is_asking();
        }
        if available > 0 || has_room {
            table.mark_dirty(id);
        }
        Ok(())
    }

    fn perform_reads(
        &mut self,
        connection: &mut Connection<ShmLink>,
        counters: &mut FabricCounters,
        sink: &mut Sink<'_>,
    ) {
        let (id, reads) = (connection.id, &mut connection.link.reads);
        reads.perform(connection.socket.descriptor(), &mut self.words, &mut |tag, outcome| {
            *if outcome.is_ok() { &mut counters.reads_done } else { &mut counters.reads_failed } += 1;
            sink(Event::ReadDone { connection: id, tag, outcome });
        });
        self.asking |= reads.is_asking();
        if reads.has_room_again() {
            sink(Event::Writable { connection: id });
        }
    }

    /// Answers what was kept, once that can be; the connections that end.
    fn answer_withheld(&mut self, table: &mut Table) -> Vec<(ConnectionId, CloseReason)> {
        let withheld = self.withheld.take();
        let answer = |(id, packet): (ConnectionId, Packet)| {
            self.hand_region(id, &packet, table).err().map(|reason| (id, reason))
        };
        withheld.into_iter().filter_map(answer).collect()
    }

    /// An acceptor's: the peer asks for a region.
    fn hand_region(
        &mut self,
        id: ConnectionId,
        packet: &Packet,
        table: &mut Table,
    ) -> Result<(), CloseReason> {
        let key = control::decode_request(&packet.bytes).ok_or(CloseReason::SharedMemoryBroken)?;
        let now_ns = table.now_ns();
        let Some(connection) = table.get_mut(id) else { return Ok(()) };
        let socket = connection.socket.descriptor();
        let handed = self.registry.as_ref().and_then(|registry| {
            registry.with_share(key, |share| {
                let answer = control::encode_answer(&RegionAnswer { key, slot: Some(share.slot) });
                control::send(socket, &answer, &[share.file.as_fd()])
            })
        });
        let unknown =
            || control::send(socket, &control::encode_answer(&RegionAnswer { key, slot: None }), &[]);
        match handed.unwrap_or_else(unknown) {
            Ok(()) => {
                connection.received_ns = now_ns;
                Ok(())
            }
            // The peer's end is reported by the socket itself, after what is in the ring.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            // It asks and does not read.
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => Err(CloseReason::Stalled),
            Err(errno) => Err(CloseReason::network(errno)),
        }
    }
}

/// A connector's: a region that was asked for, or not.
fn take_region(
    id: ConnectionId,
    packet: Packet,
    table: &mut Table,
    sink: &mut Sink<'_>,
) -> Result<(), CloseReason> {
    let answer = control::decode_answer(&packet.bytes).ok_or(CloseReason::SharedMemoryBroken)?;
    let Some((connection, counters)) = table.get_counted(id) else { return Ok(()) };
    let file = packet.descriptors.into_iter().next();
    let fits =
        connection.link.reads.answered(answer, file, connection.socket.descriptor(), &mut |tag, outcome| {
            counters.reads_failed += 1;
            sink(Event::ReadDone { connection: id, tag, outcome });
        });
    if fits { Ok(()) } else { Err(CloseReason::SharedMemoryBroken) }
}

fn broken(_: Broken) -> CloseReason {
    CloseReason::SharedMemoryBroken
}
