//! The messaging half of a fabric: an endpoint holds connections, sends and receives whole messages on them.
//!
//! An endpoint belongs to one thread (a worker's, a client session's, a recovery's). Nothing here blocks and
//! nothing here reads a clock: the shell calls [`Endpoint::poll`], [`Endpoint::flush`] and
//! [`Endpoint::tick`], and sleeps on [`Endpoint::wake_descriptor`] (see [`crate::Poller`]) only after
//! [`Endpoint::prepare_sleep`] said it may:
//!
//! ```text
//! loop {
//!     endpoint.poll(events -> core); endpoint.send(what the core yields); endpoint.flush();
//!     endpoint.tick(now);
//!     if idle && endpoint.prepare_sleep() {
//!         let wait = poller.wait(until the core's next deadline);
//!         endpoint.woken(wait.parts);
//!     }
//! }
//! ```
//!
//! Promised on every provider: messages of one connection arrive whole, once, in the order they were sent;
//! nothing is said about the order across connections. A connection that breaks ends with exactly one
//! [`Event::Closed`], after the messages that arrived on it; what had been sent and not answered may or may
//! not have arrived.
//!
//! An acceptor reads no further from a peer that does not take what waits for it (past half of
//! [`FabricLimits::connection_output_bytes_max`](crate::FabricLimits)); a connector always reads, so that the
//! two of them never wait for each other.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::address::{Address, PeerAddress};
use crate::close::CloseReason;
use crate::counter::FabricCounters;
use crate::error::{FabricError, SendError};
use crate::greeting::Greeting;
use crate::limits::FabricLimits;
use crate::ready_parts::ReadyParts;
use crate::remote_access::{ReadFailure, ReadTag};

/// A connection of one endpoint. Unique within the endpoint and never reused, so a late event or a late reply
/// can never hit a later connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// The id of this number: of one that [`ConnectionId::number`] gave, or made up by a test of what stands
    /// above.
    #[must_use]
    pub const fn from_number(number: u64) -> ConnectionId {
        ConnectionId(number)
    }

    /// The id as a number, for tables and tokens.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection-{:x}", self.0)
    }
}

/// What an endpoint reports. What is borrowed stands in the endpoint's receive buffer and is gone after the
/// call.
#[derive(Debug)]
pub enum Event<'a> {
    /// A peer connected to this endpoint and its hello was good.
    Accepted {
        /// The new connection.
        connection: ConnectionId,
        /// Who is there.
        peer: PeerAddress,
        /// The token that its hello showed; empty where it showed none. Over RDMA, where messages are not
        /// encrypted, tokens are shown so, and elsewhere by a message.
        token: &'a [u8],
    },
    /// A connection that [`Endpoint::connect`] began is open.
    Connected {
        /// The connection.
        connection: ConnectionId,
        /// What the acceptor says of itself.
        greeting: &'a Greeting,
    },
    /// A whole message. It may be empty.
    Message {
        /// Where it came from.
        connection: ConnectionId,
        /// Its bytes, as they were sent: whatever a stranger may have made up.
        message: &'a [u8],
    },
    /// A send had answered [`SendError::Full`] and there is room again.
    Writable {
        /// The connection.
        connection: ConnectionId,
    },
    /// The connection is gone, for this reason. Not reported for a connection that [`Endpoint::close`] ended.
    Closed {
        /// The connection; the id is not used again.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// Somebody who knocked was turned away before there was a connection, or left by itself
    /// ([`CloseReason::PeerClosed`]). Only for the log and the counters.
    Refused {
        /// Who knocked.
        peer: PeerAddress,
        /// Why it was turned away.
        reason: CloseReason,
    },
    /// A one-sided operation ended; see [`crate::OneSided`]. Each that was posted ends with one of these,
    /// before the connection's [`Event::Closed`].
    ReadDone {
        /// The connection that it was posted on.
        connection: ConnectionId,
        /// The tag that it was posted with.
        tag: ReadTag,
        /// The words that were read, in address order, or why there are none; see [`crate::RemoteAccess`] for
        /// what a write and a compare-and-swap give.
        outcome: Result<&'a [u64], ReadFailure>,
    },
}

/// A thread's access to the fabric. See the module's text for what holds on every provider.
pub trait Endpoint {
    /// Begins a connection. [`Event::Connected`] or [`Event::Closed`] follows; sends are accepted at once and
    /// leave when it is open.
    ///
    /// # Errors
    /// An address that this provider cannot reach, the limit of connections, or no socket to be had.
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError>;

    /// The end at that address was found by this name of its host: from the next connection on its
    /// certificate has to be for the name, and not for the address. An address in the place of a name takes
    /// that back; what is neither changes nothing.
    fn name_address(&mut self, _address: SocketAddr, _host: &str) {}

    /// Copies a message, given in parts that are sent as one, into the connection's output. It leaves with
    /// the next [`Endpoint::flush`].
    ///
    /// # Errors
    /// [`SendError::Full`]: nothing was taken; keep the message and wait for [`Event::Writable`], or close a
    /// peer that does not read. [`SendError::Closed`]: the connection is gone, its event was or will be
    /// reported. [`SendError::TooLong`]: the caller should have split it.
    fn send_parts(&mut self, connection: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError>;

    /// [`Endpoint::send_parts`] of one part.
    ///
    /// # Errors
    /// As for [`Endpoint::send_parts`].
    fn send(&mut self, connection: ConnectionId, message: &[u8]) -> Result<(), SendError> {
        self.send_parts(connection, &[message])
    }

    /// Hands the output of all connections to the network: one write a connection that has any. Failures are
    /// reported by the next poll.
    fn flush(&mut self);

    /// Reports what has happened, a bounded batch of it, and returns how many events there were. Zero does
    /// not mean that one may sleep: ask [`Endpoint::prepare_sleep`].
    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize;

    /// Sets the time, from any fixed start, never backwards. Time-outs are judged by it; each 100 ms is
    /// often enough. After a second without, the first call judges none: what came meanwhile is polled first.
    fn tick(&mut self, now_ns: u64);

    /// Other limits from now on, also for the connections that there are; the longest message stays what was
    /// agreed on. If there are more connections than these limits permit, none is ended for it.
    fn set_limits(&mut self, limits: FabricLimits);

    /// Ends a connection. What is in its output is written if the network takes it at once. No event follows;
    /// an unknown connection is ignored.
    fn close(&mut self, connection: ConnectionId);

    /// From here on the caller admits peers that connect once it knows who they are. Where all connections
    /// that are permitted are in use, those not admitted within a second make room for new ones, the
    /// oldest first. There are 16 more than the limit then: the caller decides whom they are for, and closes
    /// the others.
    fn await_admission(&mut self) {}

    /// The caller knows who the peer of a connection is; an unknown connection is ignored.
    fn admit(&mut self, _connection: ConnectionId) {}

    /// Bytes in the connection's output that the network has not taken yet; zero for one that is gone.
    fn output_pending(&self, connection: ConnectionId) -> usize;

    /// Connections now, those being opened included.
    fn connections(&self) -> usize;

    /// Whether the thread may sleep on the wake descriptor: false while something can be polled at once.
    /// Peers may have to be notified, so call it right before each sleep, after [`Endpoint::flush`].
    fn prepare_sleep(&mut self) -> bool;

    /// Readable when [`Endpoint::poll`] has something to report. `None` for a provider that is stepped
    /// (`sim`).
    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The same in parts, which [`crate::Poller::add_endpoint`] watches: who sleeps on them learns which of
    /// them has something.
    fn wake_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.wake_descriptor().into_iter().collect()
    }

    /// The sleep that [`Endpoint::prepare_sleep`] permitted has ended, and these parts had something by then.
    /// The next poll need not ask the kernel about the others; without this call it asks about all.
    /// For who sleeps on [`Endpoint::wake_descriptors`] alone: a part that the sleep does not watch would
    /// never be asked.
    fn woken(&mut self, _parts: ReadyParts) {}

    /// What was counted so far.
    fn counters(&self) -> FabricCounters;
}
