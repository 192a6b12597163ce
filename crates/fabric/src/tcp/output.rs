//! What a connection has to send and the kernel has not taken.

use rustix::io::Errno;

use crate::tls::Socket;

use super::input::PREFIX_BYTES;

/// An empty buffer larger than this is given back.
const BYTES_KEPT: usize = 16 * 1024;

/// Framed messages, the first of them perhaps partly taken.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    taken: usize,
}

/// What one write achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrote {
    /// Bytes that the kernel took.
    pub(super) count: usize,
    /// Calls of the kernel.
    pub(super) calls: u64,
    /// Whether something is left, because the socket is full.
    pub(super) blocked: bool,
}

impl Output {
    /// Bytes not taken.
    pub(crate) fn pending(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Bytes that a message of this length would take.
    pub(super) fn framed_bytes(length: usize) -> usize {
        PREFIX_BYTES + length
    }

    /// Appends a message in parts of `length` bytes together, which the caller has checked against the limit.
    pub(crate) fn push(&mut self, length: u32, parts: &[&[u8]]) {
        if self.taken > 0 && self.taken >= self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(&length.to_le_bytes());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Writes until all is taken or the socket is full; an edge will show when it is not. Ordinarily one
    /// write.
    pub(super) fn write(&mut self, socket: &mut Socket) -> Result<Wrote, Errno> {
        let (before, mut calls) = (self.taken, 0);
        while self.pending() > 0 {
            calls += 1;
            match socket.write(self.waiting()) {
                Ok(count) => self.take(count),
                Err(Errno::AGAIN) => return Ok(Wrote { count: self.taken - before, calls, blocked: true }),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        let count = self.taken - before;
        self.clear();
        Ok(Wrote { count, calls, blocked: false })
    }

    /// The bytes not taken.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// So many of them are taken.
    pub(crate) fn take(&mut self, count: usize) {
        self.taken += count;
    }

    /// Forgets everything: the peer takes no more.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }

    /// Gives memory back that a burst left.
    pub(crate) fn relax(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}
