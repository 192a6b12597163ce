//! One connection over shared memory: its socket, its rings, and what is unfinished on it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::address::PeerAddress;
use crate::close::CloseReason;
use crate::endpoint::ConnectionId;
use crate::slots::Identified;

use super::frame::{Assembler, Backlog};
use super::layout;
use super::mapping::{SharedWords, seal_for_writers, sealed_file};
use super::reads::Reads;
use super::ring::{Consumer, Producer};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Our hello is out, the acceptor's answer is awaited.
    AnswerAwaited,
    /// Accepted; the connector's hello is awaited.
    HelloAwaited,
    /// Messages flow.
    Open,
}

/// The memory of an open connection, and its bells.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) words: SharedWords,
    pub(super) outgoing: Producer,
    pub(super) incoming: Consumer,
    /// Rung by the peer; stands in the endpoint's epoll.
    pub(super) bell_here: OwnedFd,
    /// Whether it has to be read to fall silent (a connector's).
    pub(super) drains: bool,
    /// Rings at the peer.
    pub(super) bell_there: OwnedFd,
    /// The last flush published something: the peer may wait for it.
    pub(super) published: bool,
    /// Something was read since the last flush: the peer may wait for the room.
    pub(super) consumed: bool,
    pub(super) ring_words: usize,
}

/// What an acceptor hands over, in the order of the packet.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) file: OwnedFd,
    pub(super) reading_end: OwnedFd,
}

/// A socket and everything that belongs to it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) socket: OwnedFd,
    pub(super) peer: PeerAddress,
    pub(super) phase: Phase,
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
    pub(super) fn new(id: ConnectionId, socket: OwnedFd, peer: PeerAddress, phase: Phase) -> Connection {
        Connection {
            id,
            socket,
            peer,
            phase,
            accepted: phase == Phase::HelloAwaited,
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
    /// Makes an acceptor's end, and what the connector is handed.
    ///
    /// # Errors
    /// Out of memory or of descriptors.
    pub(super) fn make(ring_words: usize) -> io::Result<(Link, Offer)> {
        let words_in_all = layout::file_words(ring_words);
        let file = sealed_file("cell-ring", words_in_all * 8)?;
        let words = SharedWords::map_writable(&file, words_in_all)?;
        layout::found(&words, ring_words);
        seal_for_writers(&file)?;
        let bell_here = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (reading_end, bell_there) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let link = Link::of(words, ring_words, bell_here, bell_there, false);
        Ok((link, Offer { file, reading_end }))
    }

    /// A connector's end of what an acceptor handed over.
    ///
    /// # Errors
    /// Not such a file, or it cannot be mapped.
    pub(super) fn open(file: &OwnedFd, bell_there: OwnedFd, bell_here: OwnedFd) -> io::Result<Link> {
        let invalid = io::ErrorKind::InvalidData;
        let bytes = usize::try_from(rustix::fs::fstat(file)?.st_size).map_err(|_| invalid)?;
        if bytes > layout::file_words(*layout::RING_WORDS.end()) * 8 {
            return Err(invalid.into());
        }
        let words = SharedWords::map_writable(file, bytes / 8)?;
        let ring_words = layout::judge(&words, bytes / 8).ok_or(invalid)?;
        Ok(Link::of(words, ring_words, bell_here, bell_there, true))
    }

    fn of(
        words: SharedWords,
        ring_words: usize,
        bell_here: OwnedFd,
        bell_there: OwnedFd,
        connector: bool,
    ) -> Link {
        let (outgoing, incoming) = if connector { (0, 1) } else { (1, 0) };
        Link {
            words,
            outgoing: Producer::new(layout::place(outgoing, ring_words)),
            incoming: Consumer::new(layout::place(incoming, ring_words)),
            bell_here,
            drains: connector,
            bell_there,
            published: false,
            consumed: false,
            ring_words,
        }
    }

    /// Wakes the peer. A bell that takes no more rings loud enough.
    pub(super) fn ring(&self) {
        let _ = rustix::io::write(&self.bell_there, &1_u64.to_le_bytes());
    }

    /// Silences the own bell.
    pub(super) fn silence(&self) {
        if self.drains {
            let _ = rustix::io::read(&self.bell_here, &mut [0; 512]);
        }
    }
}

impl Offer {
    /// The descriptors of the acceptor's answer.
    pub(super) fn descriptors<'a>(&'a self, link: &'a Link) -> [BorrowedFd<'a>; 3] {
        [self.file.as_fd(), link.bell_here.as_fd(), self.reading_end.as_fd()]
    }
}
