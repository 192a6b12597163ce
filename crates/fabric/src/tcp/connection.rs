//! One TCP connection's state.

use rustix::fd::OwnedFd;

use crate::address::PeerAddress;
use crate::close::CloseReason;
use crate::endpoint::ConnectionId;
use crate::slots::Identified;

use super::input::Input;
use super::output::Output;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// `connect` is under way; our hello follows it.
    Connecting,
    /// Our hello is out, the acceptor's answer is awaited.
    AnswerAwaited,
    /// Accepted; the connector's hello is awaited.
    HelloAwaited,
    Open,
}

/// A socket, what is unfinished on it, and what the kernel said of it last.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) socket: OwnedFd,
    pub(super) peer: PeerAddress,
    pub(super) phase: ConnectionPhase,
    /// The peer opened it.
    pub(super) accepted: bool,
    /// The worker that the connector wants.
    pub(super) worker: u16,
    /// The hello as far as it came; given back when the connection is open.
    pub(super) hello: Vec<u8>,
    pub(super) input: Input,
    pub(super) output: Output,
    /// The longest message that both ends take.
    pub(super) message_bytes_max: usize,
    /// The acceptor's hello says that its host serves one-sided reads.
    pub(super) one_sided: bool,
    /// When something last came, or the connection began.
    pub(super) heard_ns: u64,
    /// An edge came that no read has used up.
    pub(super) readable: bool,
    /// The peer's end is closed or broken: read until that is seen.
    pub(super) hung_up: bool,
    /// It stands in the endpoint's queue of connections to be served.
    pub(super) queued: bool,
    /// It stands in the endpoint's list of connections with output.
    pub(super) dirty: bool,
    /// The socket took no more; an edge will tell.
    pub(super) blocked: bool,
    /// A write failed: what the peer sent before is still read, nothing is sent any more.
    pub(super) deaf: Option<CloseReason>,
    /// A send was answered with `Full`; the caller waits for `Writable`.
    pub(super) full: bool,
}

impl Identified for Connection {
    fn id(&self) -> ConnectionId {
        self.id
    }
}

impl Connection {
    pub(super) fn new(
        id: ConnectionId,
        socket: OwnedFd,
        peer: PeerAddress,
        phase: ConnectionPhase,
        worker: u16,
    ) -> Connection {
        Connection {
            id,
            socket,
            peer,
            phase,
            accepted: phase == ConnectionPhase::HelloAwaited,
            worker,
            hello: Vec::new(),
            input: Input::default(),
            output: Output::default(),
            message_bytes_max: 0,
            one_sided: false,
            heard_ns: 0,
            readable: false,
            hung_up: false,
            queued: false,
            dirty: false,
            blocked: false,
            deaf: None,
            full: false,
        }
    }

    /// Whether the peer is read no further until it has taken what waits for it. A connector always reads:
    /// were both ends to wait for the other, nobody would ever go on.
    pub(super) fn is_paused(&self, high_water: usize) -> bool {
        self.accepted && self.is_open() && self.output.pending() > high_water
    }

    /// Whether messages flow.
    pub(super) fn is_open(&self) -> bool {
        self.phase == ConnectionPhase::Open
    }
}
