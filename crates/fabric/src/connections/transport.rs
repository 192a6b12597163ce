//! What a provider brings: how its sockets are made, how a hello travels on them, and how messages do
//! afterwards.

use std::cell::Cell;
use std::fmt::Debug;
use std::net::SocketAddr;

use rustix::event::epoll::EventFlags;
use rustix::fd::{BorrowedFd, OwnedFd};

use crate::address::Address;
use crate::close::CloseReason;
use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::FabricError;
use crate::hello::Hello;
use crate::tls::Socket;

use super::connection::{Connection, Link, Started};
use super::listener::Listener;
use super::table::ConnectionTable;

/// Where events go.
pub(crate) type Sink<'s> = dyn FnMut(Event<'_>) + 's;

/// The other end's hello, and the descriptors that came with it.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) hello: Hello,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// What a flush of one connection achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes that the network took.
    pub(crate) bytes: usize,
    /// Calls of the kernel that it took.
    pub(crate) calls: u64,
    /// The peer may have to be woken, after the output of all connections is out.
    pub(crate) wakes: bool,
}

/// A provider's own part of an endpoint. All are called by the endpoint's thread, and none blocks.
pub(crate) trait Transport: Debug {
    type Link: Link;
    type Listener: Listener;

    /// The mark in the ids of its connections.
    const MARK: u64;
    /// Edges of a connection's socket that the kernel is to report.
    const EDGES: EventFlags;
    /// Those that it is to report, too, while the socket is being connected or takes no more.
    const ROOM_EDGES: EventFlags = EventFlags::empty();
    /// Whether messages come by the sockets. Else these show little but what ends a sleep.
    const MESSAGES_BY_SOCKET: bool = false;

    /// Begins a connection and sends the hello, or leaves that to [`Transport::receive_hello`].
    ///
    /// # Errors
    /// An address of another kind, or no socket. What goes wrong later is [`Started::failed`].
    fn connect(&self, address: &Address, hello: &Hello) -> Result<Started, FabricError>;

    /// See [`crate::Endpoint::name_address`].
    fn name_address(&mut self, _address: SocketAddr, _host: &str) {}

    /// Goes on with a connection that is not open; `None` while the other end's hello is not whole. Nothing
    /// behind the hello is read.
    fn receive_hello(
        &mut self,
        connection: &mut Connection<Self::Link>,
    ) -> Result<Option<Greeted>, CloseReason>;

    /// An acceptor's: answers a good hello, and makes the connection ready for messages.
    fn welcome(
        &mut self,
        connection: &mut Connection<Self::Link>,
        hello: &Hello,
        answer: &Hello,
    ) -> Result<(), CloseReason>;

    /// A connector's: makes the connection ready for messages as the acceptor's hello says.
    fn welcomed(
        &mut self,
        connection: &mut Connection<Self::Link>,
        hello: &Hello,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), CloseReason>;

    /// Sends a peer the reason why it is turned away, as well as that can be done without waiting.
    fn refuse(socket: &mut Socket, answer: &Hello);

    /// Takes what an edge of an open connection's socket says is there.
    fn receive(
        &mut self,
        id: ConnectionId,
        table: &mut ConnectionTable<Self::Link>,
        sink: &mut Sink<'_>,
    ) -> Result<(), CloseReason>;

    /// Reads once an open connection of which no edge has come. Whether anything had come on it; an edge that
    /// shows it stays with the kernel, and shows nothing once there is nothing left. A transport for which
    /// that is no gain does not read.
    fn read_ahead(
        &mut self,
        _id: ConnectionId,
        _table: &mut ConnectionTable<Self::Link>,
        _sink: &mut Sink<'_>,
    ) -> Result<bool, CloseReason> {
        Ok(false)
    }

    /// Hands a connection's output to the network, as far as it takes it; nothing of one that is not open.
    fn write(connection: &mut Connection<Self::Link>) -> Result<Written, CloseReason>;

    /// Wakes the peers of connections whose write said so.
    fn wake(_table: &mut ConnectionTable<Self::Link>, _written: &[ConnectionId]) {}

    /// Readable when the transport has something that no socket shows; [`Transport::rung`] follows.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// That descriptor was readable.
    fn rung(&mut self) {}

    /// Whether this poll asks the kernel.
    fn asks_kernel(&mut self, _connections: usize) -> bool {
        true
    }

    /// The kernel was asked.
    fn kernel_asked(&mut self) {}

    /// Looks at what comes past the kernel; no further than so many events `reported` in one poll. Returns
    /// the connections that end.
    fn look(
        &mut self,
        _table: &mut ConnectionTable<Self::Link>,
        _reported: &Cell<usize>,
        _sink: &mut Sink<'_>,
    ) -> Vec<(ConnectionId, CloseReason)> {
        Vec::new()
    }

    /// Whether the thread may sleep, as far as the kernel does not know: peers are asked to wake it.
    fn prepare_sleep(&mut self, _table: &mut ConnectionTable<Self::Link>) -> bool {
        true
    }

    /// A connection is about to end: reports what must come before its end.
    fn ending(
        _connection: &mut Connection<Self::Link>,
        _counters: &mut FabricCounters,
        _sink: &mut Sink<'_>,
    ) {
    }

    /// A connection was taken out of the table.
    fn removed(&mut self, _connection: &Connection<Self::Link>) {}

    /// A connection that its user closed, after it was taken out: what it sent last may be under way.
    fn part(&mut self, _connection: Connection<Self::Link>, _now_ns: u64) {}
}
