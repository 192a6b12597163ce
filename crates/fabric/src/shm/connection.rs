//! One connection over shared memory: its socket, its rings, and what is unfinished on it.

use std::io;
use std::os::fd::OwnedFd;

use crate::address::PeerAddress;
use crate::close::CloseReason;
use crate::endpoint::ConnectionId;
use crate::slots::Identified;

use super::frame::{Assembler, Backlog};
use super::layout;
use super::mapping::{self, SharedWords, seal_for_writers, sealed_file};
use super::reads::Reads;
use super::ring::{Consumer, Producer};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// Our hello is out, the acceptor's answer is awaited.
    AnswerAwaited,
    /// Accepted; the connector's hello is awaited.
    HelloAwaited,
    Open,
}

/// The memory of an open connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) words: SharedWords,
    pub(super) outgoing: Producer,
    pub(super) incoming: Consumer,
    /// The last flush published something: the peer may wait for it.
    pub(super) published: bool,
    /// Something was read since the last flush: the peer may wait for the room.
    pub(super) consumed: bool,
    pub(super) ring_words: usize,
}

/// A socket and everything that belongs to it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) socket: OwnedFd,
    pub(super) peer: PeerAddress,
    pub(super) phase: ConnectionPhase,
    /// The peer opened it.
    pub(super) accepted: bool,
    /// Once it is open.
    pub(super) link: Option<Link>,
    pub(super) backlog: Backlog,
    pub(super) assembler: Assembler,
    pub(super) reads: Reads,
    /// The longest message that both ends take.
    pub(super) message_bytes_max: usize,
    /// When something last came, or the connection began.
    pub(super) heard_ns: u64,
    /// The socket may have packets.
    pub(super) readable: bool,
    /// The peer's end of the socket is closed.
    pub(super) hung_up: bool,
    /// It stands in the endpoint's queue of sockets to be read.
    pub(super) queued: bool,
    /// It stands in the endpoint's list of what the next flush looks at.
    pub(super) dirty: bool,
    /// The ring took no more of the backlog.
    pub(super) blocked: bool,
    /// A send was answered with `Full`; the caller waits for `Writable`.
    pub(super) full: bool,
    /// It is to be ended by the next poll.
    pub(super) ending: Option<CloseReason>,
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
    ) -> Connection {
        Connection {
            id,
            socket,
            peer,
            phase,
            accepted: phase == ConnectionPhase::HelloAwaited,
            link: None,
            backlog: Backlog::default(),
            assembler: Assembler::default(),
            reads: Reads::default(),
            message_bytes_max: 0,
            heard_ns: 0,
            readable: false,
            hung_up: false,
            queued: false,
            dirty: false,
            blocked: false,
            full: false,
            ending: None,
        }
    }

    /// Whether the peer is read no further until it has taken what waits for it. A connector always reads:
    /// rings are small, and were both ends to wait for the other, nobody would ever go on.
    pub(super) fn is_paused(&self, high_water: usize) -> bool {
        self.accepted && self.backlog.pending() > high_water
    }

    /// Bytes that the peer cannot see yet.
    pub(super) fn output_pending(&self) -> usize {
        let unpublished = self.link.as_ref().map_or(0, |link| link.outgoing.unpublished());
        self.backlog.pending() + unpublished * 8
    }
}

impl Link {
    /// Makes an acceptor's end, and the file that the connector is handed.
    ///
    /// # Errors
    /// Out of memory or of descriptors.
    pub(super) fn make(ring_words: usize) -> io::Result<(Link, OwnedFd)> {
        let words_in_all = layout::file_words(ring_words);
        let file = sealed_file("cell-ring", words_in_all * 8)?;
        let words = SharedWords::map_writable(&file, words_in_all)?;
        layout::found(&words, ring_words);
        seal_for_writers(&file)?;
        Ok((Link::of(words, ring_words, false), file))
    }

    /// A connector's end of what an acceptor handed over.
    ///
    /// # Errors
    /// The reason to close the connection with: not such a file, another version of it, or it cannot be
    /// mapped.
    pub(super) fn open(file: &OwnedFd) -> Result<Link, CloseReason> {
        let broken = |_| CloseReason::SharedMemoryBroken;
        let bytes = mapping::judge_file(file).map_err(broken)?;
        if bytes > layout::file_words(*layout::RING_WORDS.end()) * 8 {
            return Err(CloseReason::SharedMemoryBroken);
        }
        let words = SharedWords::map_writable(file, bytes / 8).map_err(broken)?;
        let ring_words = layout::judge(&words, bytes / 8)?;
        Ok(Link::of(words, ring_words, true))
    }

    fn of(words: SharedWords, ring_words: usize, connector: bool) -> Link {
        let (outgoing, incoming) = if connector { (0, 1) } else { (1, 0) };
        Link {
            words,
            outgoing: Producer::new(layout::place(outgoing, ring_words)),
            incoming: Consumer::new(layout::place(incoming, ring_words)),
            published: false,
            consumed: false,
            ring_words,
        }
    }
}
