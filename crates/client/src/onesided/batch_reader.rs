//! Gets and searches that were submitted one by one and are looked for in mapped memory side by side, so that
//! their waits for memory overlap. Nearly all of them are answered at the next look: until then a ticket and
//! the key's bytes are all that is kept of one.
//!
//! The rules are those of every other one-sided read. What was looked for is returned by a time that is read
//! after it, so by the next look. What does not go so (a writer in the way, a watermark behind, a lease that
//! may have ended) is handed back, to be submitted as any other operation.

use cell_selector::SearchKind;
use cell_tree::LANES;

use super::Reader;
use super::batch_queue::{BatchedRead, FoundRead};
use super::direct::FoundInPlace;
use super::place::PairAt;
use super::verdict::Validation;
use crate::{Operation, Output, Ticket};

impl Reader {
    /// The key of an operation that may wait to be looked for beside others: memory is mapped where its
    /// search begins, and a tree can hold it.
    #[inline]
    pub(crate) fn batched_key<'k>(&self, operation: &Operation<'k>) -> Option<&'k [u8]> {
        let (Operation::Get { key } | Operation::Search { key }) = *operation else { return None };
        let fits = !key.is_empty() && key.len() <= self.context.regions.key_max();
        (fits && self.can_answer_at_once()).then_some(key)
    }

    /// Takes one in: see [`Reader::batched_key`]. `times_ns`: when it was submitted, and its deadline.
    #[inline]
    pub(crate) fn batch(
        &mut self,
        operation: &Operation<'_>,
        key: &[u8],
        ticket: Ticket,
        times_ns: (u64, u64),
    ) {
        self.batch.push(operation, key, ticket, times_ns);
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn is_batching(&self) -> bool {
        !self.batch.reads.is_empty()
    }

    /// What was found in a pair whose registrations are of the past is not returned: it is submitted.
    pub(super) fn forget_batched_of(&mut self, pair: PairAt) {
        for found in &mut self.batch.found {
            *found = found.take().filter(|found| found.pair != pair);
        }
    }

    /// Looks for the first of them. `now_ns` was read before.
    pub(crate) fn look_for_batched(&mut self, now_ns: u64) {
        if self.batch.reads.is_empty() || !self.batch.found.is_empty() {
            return;
        }
        self.batch.started_ns = now_ns;
        let count = self.batch.reads.len().min(LANES);
        let mut answers = [None; LANES];
        if self.can_answer_at_once() {
            let mut keys: [&[u8]; LANES] = [&[]; LANES];
            for (key, read) in keys.iter_mut().zip(&self.batch.reads) {
                *key = self.batch.key(read);
            }
            self.context.regions.find_many_in_place(&keys[..count], &mut answers[..count]);
        }
        for (at, answer) in answers[..count].iter().enumerate() {
            let is_search = self.batch.reads[at].is_search;
            let found = answer.as_ref().and_then(|answer| self.take_batched(answer, is_search, now_ns));
            self.batch.found.push_back(found);
        }
    }

    fn take_batched(&mut self, answer: &FoundInPlace, is_search: bool, now_ns: u64) -> Option<FoundRead> {
        let (exists, item, csn) = if is_search {
            let (exists, csn) = self.take_existence(answer);
            (exists, None, csn)
        } else {
            let (item, csn) = self.take_found(answer)?;
            (item.is_some(), item, csn)
        };
        let (pair, ns_max) = (answer.place.at, answer.ns_max);
        if let Some(selectors) = &mut self.selectors {
            selectors.begin_in_place(self.context.regions.pair(pair).link, SearchKind::Point, now_ns);
        }
        Some(FoundRead { exists, item, pair, csn, ns_max })
    }

    /// The next one that was looked for, with its answer if that may be returned by this time, which was
    /// *read after* the look. If not, it is to be submitted: its key is put into `key`.
    pub(crate) fn next_batched(
        &mut self,
        now_ns: u64,
        key: &mut Vec<u8>,
    ) -> Option<(BatchedRead, Option<Output>)> {
        let found = self.batch.found.pop_front()?;
        let read = self.batch.reads.pop_front()?;
        let output = found.and_then(|found| self.believed(found, &read, now_ns));
        if output.is_none() {
            key.clear();
            key.extend_from_slice(self.batch.key(&read));
        }
        self.batch.drop_keys();
        Some((read, output))
    }

    fn believed(&mut self, found: FoundRead, read: &BatchedRead, now_ns: u64) -> Option<Output> {
        let FoundRead { exists, item, pair, csn, ns_max } = found;
        let taken_ns = now_ns.saturating_sub(self.batch.started_ns);
        let verdict = self.verdict(taken_ns, ns_max, &[(pair, csn)], now_ns);
        if verdict != Validation::Answer || now_ns >= read.deadline_ns {
            return None;
        }
        self.count_immediate();
        self.context.count(pair, |counts| &mut counts.one_sided);
        Some(read.output(exists, item))
    }

    /// Takes one of them back, by its ticket or the first one.
    pub(crate) fn unbatch(&mut self, ticket: Option<Ticket>) -> Option<BatchedRead> {
        let is_wanted = |read: &BatchedRead| ticket.is_none_or(|ticket| read.ticket == ticket);
        let at = self.batch.reads.iter().position(is_wanted)?;
        let _ = self.batch.found.remove(at); // none if it was not looked for
        let read = self.batch.reads.remove(at);
        self.batch.drop_keys();
        read
    }
}
