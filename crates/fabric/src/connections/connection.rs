//! One connection as every provider keeps it.

use std::fmt::Debug;

use crate::address::PeerAddress;
use crate::close::CloseReason;
use crate::endpoint::ConnectionId;
use crate::hello::Hello;
use crate::mapped::MappedRegion;
use crate::remote_access::RegionKey;
use crate::tls::Socket;

use super::mark::{mark_of, wanted_number};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// The socket is being connected; our hello follows.
    Connecting,
    /// Our hello is out, the acceptor's answer is awaited.
    AnswerAwaited,
    /// Accepted; the connector's hello is awaited.
    HelloAwaited,
    Open,
}

/// A connection before it has its place in the table.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) socket: Socket,
    pub(crate) peer: PeerAddress,
    pub(crate) phase: ConnectionPhase,
    /// Why it has failed already.
    pub(crate) failed: Option<CloseReason>,
}

impl Started {
    /// One that was accepted.
    pub(super) fn accepted(socket: Socket, peer: PeerAddress) -> Started {
        Started { socket, peer, phase: ConnectionPhase::HelloAwaited, failed: None }
    }
}

/// What a provider keeps of one connection: its output, and whatever else is its own.
pub(crate) trait Link: Debug + Default {
    /// Bytes of output that a flush could not hand on. Back-pressure is judged by them.
    fn pending(&self) -> usize;

    /// Bytes that the network has not taken, whether or not a flush has seen them.
    fn output_pending(&self) -> usize {
        self.pending()
    }

    /// Bytes that a message of this length adds to the output.
    fn framed_bytes(length: usize) -> usize;

    /// Whether the output is broken, so that nothing can be sent any more.
    fn is_broken(&self) -> bool {
        false
    }

    /// Appends a message in parts of `length` bytes together, which the caller has checked against the limit.
    fn push(&mut self, length: u32, parts: &[&[u8]]);

    /// See [`crate::OneSided::mapped`].
    fn mapped(&self, _key: RegionKey) -> Option<MappedRegion> {
        None
    }

    /// Gives memory back that a burst left. Called with each look for time-outs.
    fn relax(&mut self);
}

/// A socket, what is unfinished on it, and what the kernel said of it last.
#[derive(Debug)]
pub(crate) struct Connection<L> {
    pub(crate) id: ConnectionId,
    pub(crate) socket: Socket,
    pub(crate) peer: PeerAddress,
    pub(crate) phase: ConnectionPhase,
    /// The peer opened it.
    pub(crate) accepted: bool,
    /// Its user knows who the peer is; a peer that this end has opened is known.
    pub(crate) admitted: bool,
    /// The longest message that both ends take.
    pub(crate) message_bytes_max: usize,
    /// When something last came, or the connection began.
    pub(crate) received_ns: u64,
    /// An edge came that no read has used up.
    pub(crate) readable: bool,
    /// The kernel says that the peer's end is closed or broken.
    pub(crate) hung_up: bool,
    /// It stands in the table's queue of connections to be served.
    pub(crate) queued: bool,
    /// It stands in the table's list of what the next flush looks at.
    pub(crate) dirty: bool,
    /// The network took no more of the output.
    pub(crate) blocked: bool,
    /// The kernel reports when it takes more.
    pub(super) watches_room: bool,
    /// A send was answered with `Full`; the caller waits for `Writable`.
    pub(crate) full: bool,
    /// Of a lane, or over RDMA, by which who connects is known: said in the hello, or heard there.
    pub(crate) token: Box<[u8]>,
    /// The next poll ends it.
    pub(crate) ending: Option<CloseReason>,
    pub(crate) link: L,
}

impl<L: Link> Connection<L> {
    /// A connector's hello.
    pub(crate) fn hello(&self) -> Hello {
        let token = self.token.clone();
        Hello { token, ..Hello::of_connector(wanted_number(mark_of(self.id)), self.message_bytes_max) }
    }

    /// Whether the peer is read no further until it has taken what waits for it. A connector always reads:
    /// were both ends to wait for the other, nobody would ever go on.
    pub(crate) fn is_paused(&self, high_water: usize) -> bool {
        self.accepted && self.is_open() && self.link.pending() > high_water
    }

    /// Whether the peer opened it and has not said its hello.
    pub(crate) fn is_hello_awaited(&self) -> bool {
        self.phase == ConnectionPhase::HelloAwaited
    }

    /// Whether messages flow, and its user has not said that it knows the peer.
    pub(crate) fn is_stranger(&self) -> bool {
        self.is_open() && !self.admitted
    }

    /// Whether messages flow.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == ConnectionPhase::Open
    }
}
