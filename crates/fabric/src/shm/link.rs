//! What the provider keeps of one connection: its rings, and what is unfinished around them.

use std::io;
use std::os::fd::OwnedFd;

use crate::close::CloseReason;
use crate::connections::Link;
use crate::mapped::MappedRegion;
use crate::remote_access::RegionKey;

use super::frame::{Assembler, Backlog, WORD_BYTES, frame_words, write_frame};
use super::layout;
use super::mapping::{self, SharedWords, seal_for_writers, sealed_file};
use super::reads::Reads;
use super::ring::{Consumer, Producer};

/// The memory of an open connection.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) words: SharedWords,
    pub(super) outgoing: Producer,
    pub(super) incoming: Consumer,
    /// The last flush published something: the peer may wait for it.
    pub(super) published: bool,
    /// Something was read since the last flush: the peer may wait for the room.
    pub(super) consumed: bool,
    pub(super) ring_words: usize,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ShmLink {
    /// Once the connection is open.
    pub(super) rings: Option<Rings>,
    pub(super) backlog: Backlog,
    pub(super) assembler: Assembler,
    pub(super) reads: Reads,
    /// The peer's end of the socket is closed, and all that it had sent there was taken.
    pub(super) ended: bool,
}

impl Link for ShmLink {
    #[inline]
    fn pending(&self) -> usize {
        self.backlog.pending()
    }

    fn output_pending(&self) -> usize {
        let unpublished = self.rings.as_ref().map_or(0, |rings| rings.outgoing.unpublished());
        self.backlog.pending() + unpublished * WORD_BYTES
    }

    #[inline]
    fn framed_bytes(length: usize) -> usize {
        frame_words(length) * WORD_BYTES
    }

    #[inline]
    fn push(&mut self, length: u32, parts: &[&[u8]]) {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let rings = self.rings.as_mut().filter(|_| self.backlog.pending() == 0);
        match rings.and_then(|rings| rings.has_room(frame_words(bytes)).then_some(rings)) {
            Some(rings) => write_frame(&mut rings.outgoing, &rings.words, length, parts),
            None => self.backlog.push(length, parts),
        }
    }

    fn mapped(&self, key: RegionKey) -> Option<MappedRegion> {
        self.reads.mapped(key)
    }

    fn relax(&mut self) {
        self.assembler.relax();
        self.backlog.relax();
        self.reads.unmap_ended();
    }
}

impl Rings {
    /// Makes an acceptor's end, and the file that the connector is handed.
    ///
    /// # Errors
    /// Out of memory or of descriptors.
    pub(super) fn make(ring_words: usize) -> io::Result<(Rings, OwnedFd)> {
        let words_in_all = layout::file_words(ring_words);
        let file = sealed_file("cell-ring", words_in_all * 8)?;
        let words = SharedWords::map_writable(&file, words_in_all)?;
        layout::found(&words, ring_words);
        seal_for_writers(&file)?;
        Ok((Rings::of(words, ring_words, false), file))
    }

    /// A connector's end of what an acceptor handed over.
    ///
    /// # Errors
    /// The reason to close the connection with: not such a file, another version of it, or it cannot be
    /// mapped.
    pub(super) fn open(file: &OwnedFd) -> Result<Rings, CloseReason> {
        let broken = |_| CloseReason::SharedMemoryBroken;
        let bytes = mapping::judge_file(file).map_err(broken)?;
        if bytes > layout::file_words(*layout::RING_WORDS.end()) * 8 {
            return Err(CloseReason::SharedMemoryBroken);
        }
        let words = SharedWords::map_writable(file, bytes / 8).map_err(broken)?;
        let ring_words = layout::judge(&words, bytes / 8)?;
        Ok(Rings::of(words, ring_words, true))
    }

    fn of(words: SharedWords, ring_words: usize, connector: bool) -> Rings {
        let (outgoing, incoming) = if connector { (0, 1) } else { (1, 0) };
        Rings {
            words,
            outgoing: Producer::new(layout::place(outgoing, ring_words)),
            incoming: Consumer::new(layout::place(incoming, ring_words)),
            published: false,
            consumed: false,
            ring_words,
        }
    }

    /// Whether the ring takes so many words now. A count that cannot be is reported by the next flush or
    /// poll.
    #[inline]
    fn has_room(&mut self, wanted: usize) -> bool {
        self.outgoing.room(&self.words, wanted).is_ok_and(|room| room >= wanted)
    }
}
