//! The core's side of reads that are looked for in mapped memory side by side: see `onesided::batch_reader`.

use cell_tree::Aim;

use crate::client_core::ClientCore;
use crate::operation::WhoSearches;
use crate::{ClientError, Operation, Ticket};

impl ClientCore {
    /// Takes a read in that may wait for others, if it is one: its ticket. Else who is to search, as far as
    /// that is decided. `times_ns`: now, and its deadline.
    ///
    /// One of which that was decided before was looked for already, and not found so.
    #[inline]
    pub(crate) fn submit_batched(
        &mut self,
        operation: &Operation<'_>,
        who: WhoSearches,
        times_ns: (u64, u64),
    ) -> (Option<Ticket>, WhoSearches) {
        let key = self.reader.as_ref().and_then(|reader| reader.batched_key(operation));
        let Some(key) = key.filter(|_| who == WhoSearches::Undecided) else { return (None, who) };
        let who = self.chooses_at_once(times_ns.0, operation, Some(Aim::At(key)));
        let Some(reader) = self.reader.as_mut().filter(|_| who == WhoSearches::Client) else {
            return (None, who);
        };
        let ticket = self.pending.begin_batched();
        reader.batch(operation, key, ticket, times_ns);
        (Some(ticket), who)
    }

    /// Returns what was found of them by this time, which was *read after* it, and looks for those that are
    /// next.
    pub(crate) fn answer_batched(&mut self, now_ns: u64) {
        let mut key = std::mem::take(&mut self.scratch_key);
        while let Some((read, output)) =
            self.reader.as_mut().and_then(|reader| reader.next_batched(now_ns, &mut key))
        {
            if let Some(output) = output {
                self.pending.finish_batched(&read, now_ns, Ok(output));
                continue;
            }
            let operation = read.operation(&key);
            match self.pending.give_slot(&read, &operation) {
                Ok(slot) if self.begin_one_sided(slot, &operation, WhoSearches::Client, now_ns) => {}
                Ok(slot) => self.enlist(slot, now_ns),
                Err(error) => self.pending.finish_batched(&read, now_ns, Err(error)),
            }
        }
        self.scratch_key = key;
        self.take_ended(now_ns);
        if let Some(reader) = &mut self.reader {
            reader.look_for_batched(now_ns);
        }
    }

    /// Ends one of them by its ticket, or all, with an error.
    pub(crate) fn end_batched(
        &mut self,
        ticket: Option<Ticket>,
        now_ns: u64,
        error: impl Fn() -> ClientError,
    ) {
        while let Some(read) = self.reader.as_mut().and_then(|reader| reader.unbatch(ticket)) {
            self.pending.finish_batched(&read, now_ns, Err(error()));
        }
    }
}
