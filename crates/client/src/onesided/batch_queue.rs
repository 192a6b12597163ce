//! The queue of reads that are looked for in mapped memory side by side: see `batch_reader`.

use std::collections::VecDeque;

use cell_terms::Csn;

use super::place::PairAt;
use crate::{Item, Operation, Output, Ticket};

/// A get or a search that waits to be looked for, or for the return of what was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchedRead {
    pub(crate) ticket: Ticket,
    pub(crate) submitted_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(super) is_search: bool,
    /// Where its key begins, and how long it is.
    key_at: u64,
    key_len: usize,
}

impl BatchedRead {
    /// The operation, on its key.
    pub(crate) fn operation<'k>(&self, key: &'k [u8]) -> Operation<'k> {
        if self.is_search { Operation::Search { key } } else { Operation::Get { key } }
    }

    /// Its output, of what was found.
    pub(super) fn output(&self, exists: bool, item: Option<Item>) -> Output {
        if self.is_search { Output::Exists(exists) } else { Output::Value(item) }
    }
}

/// What was found, and what that rests on.
#[derive(Debug)]
pub(super) struct FoundRead {
    pub(super) exists: bool,
    /// What a get has found.
    pub(super) item: Option<Item>,
    pub(super) pair: PairAt,
    pub(super) csn: Csn,
    pub(super) ns_max: u64,
}

/// See the module's text. What was found belongs to the first of the reads, in their order.
#[derive(Debug, Default)]
pub(super) struct BatchQueue {
    pub(super) reads: VecDeque<BatchedRead>,
    pub(super) found: VecDeque<Option<FoundRead>>,
    /// The reads' keys, one behind the other; so many bytes before them were dropped.
    keys: Vec<u8>,
    keys_dropped: u64,
    /// Before the loads of what was found.
    pub(super) started_ns: u64,
}

impl BatchQueue {
    pub(super) fn key(&self, read: &BatchedRead) -> &[u8] {
        let begin = usize::try_from(read.key_at - self.keys_dropped).unwrap_or(usize::MAX);
        &self.keys[begin..begin + read.key_len]
    }

    pub(super) fn push(
        &mut self,
        operation: &Operation<'_>,
        key: &[u8],
        ticket: Ticket,
        times_ns: (u64, u64),
    ) {
        let (submitted_ns, deadline_ns) = times_ns;
        self.reads.push_back(BatchedRead {
            ticket,
            submitted_ns,
            deadline_ns,
            is_search: matches!(operation, Operation::Search { .. }),
            key_at: self.keys_dropped + self.keys.len() as u64,
            key_len: key.len(),
        });
        self.keys.extend_from_slice(key);
    }

    /// Drops the keys before those of the reads that are left, once they are more than half of all and all
    /// that was found is returned.
    pub(super) fn drop_keys(&mut self) {
        if !self.found.is_empty() {
            return;
        }
        let end = self.keys_dropped + self.keys.len() as u64;
        let wanted_from = self.reads.front().map_or(end, |read| read.key_at);
        let unused = usize::try_from(wanted_from - self.keys_dropped).unwrap_or(0);
        if unused * 2 > self.keys.len() {
            self.keys.drain(..unused);
            self.keys_dropped = wanted_from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody who always has some in hand: their keys take no more than twice the room of those.
    #[test]
    fn keys_of_reads_that_are_gone_are_dropped() {
        let mut batch = BatchQueue::default();
        for number in 0..1_000_u64 {
            let key = number.to_be_bytes();
            batch.push(&Operation::Get { key: &key }, &key, Ticket(number), (0, 1));
            if batch.reads.len() > 10 {
                let read = batch.reads.pop_front().unwrap();
                assert_eq!(batch.key(&read), read.ticket.0.to_be_bytes());
                batch.drop_keys();
            }
            assert!(batch.keys.len() <= 2 * 8 * 11, "{} bytes", batch.keys.len());
        }
        batch.reads.clear();
        batch.drop_keys();
        assert!(batch.keys.is_empty());
    }
}
