//! The prover's lookups on a real client: many keys a request, several requests in flight.

use std::collections::HashMap;

use cell_client::{ClientError, Operation, Output, Ticket};
use cell_protocol::Found;

use super::proof::{Lookup, LookupAnswer};
use crate::store::Store;

/// Keys of one request.
const KEYS_A_REQUEST: usize = 64;
/// Bytes of keys of one request, well below what a message carries.
const KEY_BYTES_A_REQUEST: usize = 32 << 10;

/// A key that was asked for, by the caller's own token.
struct Asked {
    token: u64,
    key: Box<[u8]>,
}

/// Lookups in flight.
pub(crate) struct Lookups<'a> {
    store: &'a mut Store,
    /// Not sent yet.
    gathered: Vec<Asked>,
    gathered_bytes: usize,
    in_flight: HashMap<Ticket, Vec<Asked>>,
}

impl<'a> Lookups<'a> {
    /// On a connected store.
    pub(crate) fn new(store: &'a mut Store) -> Lookups<'a> {
        Lookups { store, gathered: Vec::new(), gathered_bytes: 0, in_flight: HashMap::new() }
    }

    fn send(&mut self) -> anyhow::Result<()> {
        let asked = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        if !asked.is_empty() {
            let keys: Vec<&[u8]> = asked.iter().map(|asked| &*asked.key).collect();
            let ticket = self.store.submit(&Operation::MultiGet { keys: &keys })?;
            self.in_flight.insert(ticket, asked);
        }
        Ok(())
    }

    fn end(
        &mut self,
        asked: Vec<Asked>,
        outcome: Result<Output, ClientError>,
        answers: &mut Vec<LookupAnswer>,
    ) -> anyhow::Result<()> {
        match outcome.map_err(|error| self.store.failure(&error))? {
            Output::Values(values) => {
                for (asked, found) in asked.into_iter().zip(values.iter()) {
                    match found {
                        Found::Absent => answers.push((asked.token, Ok(None))),
                        Found::Value { value, .. } => answers.push((asked.token, Ok(Some(value.to_vec())))),
                        Found::Large { .. } => {
                            let ticket = self.store.submit(&Operation::Get { key: &asked.key })?;
                            self.in_flight.insert(ticket, vec![asked]);
                        }
                    }
                }
                Ok(())
            }
            Output::Value(item) => {
                let token = asked.first().expect("a get asks for one key").token;
                answers.push((token, Ok(item.map(|item| item.value))));
                Ok(())
            }
            other => anyhow::bail!("a lookup answered {other:?}"),
        }
    }
}

impl Lookup for Lookups<'_> {
    fn submit(&mut self, token: u64, key: &[u8]) -> anyhow::Result<()> {
        self.gathered.push(Asked { token, key: key.into() });
        self.gathered_bytes += key.len();
        if self.gathered.len() >= KEYS_A_REQUEST || self.gathered_bytes >= KEY_BYTES_A_REQUEST {
            self.send()?;
        }
        Ok(())
    }

    fn poll(&mut self, wait: bool, answers: &mut Vec<LookupAnswer>) -> anyhow::Result<()> {
        // What is gathered goes out when it is enough for a request, or is waited for and nothing else is on
        // its way.
        if wait && self.in_flight.is_empty() {
            self.send()?;
        }
        if !wait && !self.gathered.is_empty() {
            return Ok(()); // looking costs a system call: once a request is enough
        }
        let before = answers.len();
        while !self.in_flight.is_empty() {
            let Some(completion) = self.store.poll(wait && answers.len() == before) else { break };
            let asked = self.in_flight.remove(&completion.ticket);
            let asked = asked.expect("every completion has one submission");
            self.end(asked, completion.outcome, answers)?;
        }
        Ok(())
    }
}
