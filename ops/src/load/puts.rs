//! The loader's puts on a real client.

use std::collections::HashMap;

use cell_client::{ClientError, Operation, Output, Ticket};
use cell_protocol::Condition;

use super::loader::Sink;
use crate::store::Store;

/// Operations in flight, by the caller's own numbers.
pub(crate) struct PendingPuts<'a> {
    store: &'a mut Store,
    numbers: HashMap<Ticket, u64>,
    submitted: u32,
}

/// Completions are looked for after so many submissions, not after each: looking costs a system call.
const SUBMISSIONS_A_LOOK: u32 = 32;

impl<'a> PendingPuts<'a> {
    /// On a connected store.
    pub(crate) fn new(store: &'a mut Store) -> PendingPuts<'a> {
        PendingPuts { store, numbers: HashMap::new(), submitted: 0 }
    }

    fn start(&mut self, number: u64, operation: &Operation<'_>) -> anyhow::Result<()> {
        let ticket = self.store.submit(operation)?;
        self.numbers.insert(ticket, number);
        self.submitted += 1;
        Ok(())
    }

    fn each(&mut self, wait: bool, mut end: impl FnMut(u64, Result<Output, ClientError>)) {
        if !wait && self.submitted < SUBMISSIONS_A_LOOK {
            return;
        }
        self.submitted = 0;
        let mut wait = wait;
        while let Some(completion) = self.store.poll(wait) {
            wait = false;
            let number = self.numbers.remove(&completion.ticket);
            end(number.expect("every completion has one submission"), completion.outcome);
        }
    }
}

impl Sink for PendingPuts<'_> {
    fn submit(&mut self, line: u64, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.start(line, &Operation::Put { key, value, condition: Condition::Always })
    }

    fn step(&mut self, outcomes: &mut Vec<(u64, anyhow::Result<()>)>) -> anyhow::Result<()> {
        self.submitted = SUBMISSIONS_A_LOOK;
        self.poll(false, outcomes)
    }

    fn poll(&mut self, wait: bool, outcomes: &mut Vec<(u64, anyhow::Result<()>)>) -> anyhow::Result<()> {
        let mut errors = Vec::new();
        self.each(wait, |line, outcome| match outcome {
            Ok(_) => outcomes.push((line, Ok(()))),
            Err(error) => errors.push((line, error)),
        });
        outcomes.extend(errors.into_iter().map(|(line, error)| (line, Err(self.store.failure(&error)))));
        Ok(())
    }
}
