//! The reads on their way: whose they are, and which are still to be posted.
//!
//! A slot in the table is free again only when its read has come back, so an answer to an operation that is
//! gone never meets another one. A lost connection takes all its reads along: its number is part of each tag.

use std::collections::VecDeque;

use cell_fabric::{ReadTag, RemoteRead};

use super::place::PairAt;

/// Whose a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOwner {
    /// A pair's header.
    Header {
        pair: PairAt,
        /// Under which registration: the place may be another pair's by now, or the same one's anew.
        key: u64,
    },
    Lookup {
        slot: u16,
        /// Which of the operations that have had the slot.
        serial: u32,
        /// Which of its parts.
        lookup: u16,
        /// Which piece of an extent; a tree node has one.
        piece: u16,
    },
    /// The operation that asked for it is gone.
    None,
}

fn slot_of(tag: ReadTag) -> u32 {
    u32::try_from(tag.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

#[derive(Debug, Default)]
pub(crate) struct Reads {
    owners: Vec<ReadOwner>,
    /// When each was posted.
    posted_ns: Vec<u64>,
    free: Vec<u32>,
    queue: VecDeque<(RemoteRead, ReadTag)>,
    connection: u32,
    /// The fabric took no more and has not said that it does again.
    pub(crate) blocked: bool,
}

impl Reads {
    /// Takes a read in; it leaves when the shell asks for it.
    pub(crate) fn push(&mut self, read: RemoteRead, owner: ReadOwner) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.owners.push(ReadOwner::None);
                self.posted_ns.push(0);
                u32::try_from(self.owners.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.owners[slot as usize] = owner;
        self.queue.push_back((read, ReadTag(u64::from(self.connection) << 32 | u64::from(slot))));
    }

    /// The next read to be posted.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<(RemoteRead, ReadTag)> {
        if self.blocked {
            return None;
        }
        let (read, tag) = self.queue.pop_front()?;
        self.posted_ns[slot_of(tag) as usize] = now_ns;
        Some((read, tag))
    }

    /// The read that was popped last was not taken.
    pub(crate) fn not_taken(&mut self, read: RemoteRead, tag: ReadTag) {
        self.queue.push_front((read, tag));
        self.blocked = true;
    }

    /// When a read was posted that has not come back yet.
    pub(crate) fn posted_ns(&self, tag: ReadTag) -> Option<u64> {
        self.posted_ns.get(slot_of(tag) as usize).copied()
    }

    /// A read has come back; whose it is, if anybody waits for it.
    pub(crate) fn take(&mut self, tag: ReadTag) -> ReadOwner {
        let slot = slot_of(tag);
        let ours = tag.0 >> 32 == u64::from(self.connection);
        let Some(owner) = self.owners.get_mut(slot as usize).filter(|_| ours) else { return ReadOwner::None };
        self.free.push(slot);
        std::mem::replace(owner, ReadOwner::None)
    }

    /// The connection is gone, and with it all its reads.
    pub(crate) fn lost(&mut self) {
        let connection = self.connection.wrapping_add(1);
        *self = Reads { connection, ..Reads::default() };
    }

    /// Whether there is a read to be posted, and the fabric takes it.
    pub(crate) fn can_pop(&self) -> bool {
        !self.blocked && !self.queue.is_empty()
    }

    /// Reads on their way or to be posted.
    pub(crate) fn outstanding(&self) -> usize {
        self.owners.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_fabric::RegionKey;

    const READ: RemoteRead = RemoteRead { key: RegionKey(1), offset: 0, length: 8 };

    fn header(pair: PairAt) -> ReadOwner {
        ReadOwner::Header { pair, key: 1 }
    }

    #[test]
    fn take_of_a_lost_connections_read_finds_nobody() {
        let mut reads = Reads::default();
        reads.push(READ, header(1));
        let (_, tag) = reads.pop(0).unwrap();
        reads.lost();
        reads.push(READ, header(2));
        assert_eq!(reads.take(tag), ReadOwner::None);
        let (_, tag) = reads.pop(0).unwrap();
        assert_eq!((reads.take(tag), reads.outstanding()), (header(2), 0));
    }

    #[test]
    fn not_taken_read_comes_again_first_once_there_is_room() {
        let mut reads = Reads::default();
        (0..2).for_each(|pair| reads.push(READ, header(pair)));
        let (read, tag) = reads.pop(0).unwrap();
        reads.not_taken(read, tag);
        assert_eq!(reads.pop(0), None);
        reads.blocked = false;
        assert_eq!(reads.pop(0), Some((read, tag)));
    }
}
