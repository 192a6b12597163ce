//! A multi-get whose keys are at several nodes: split by owner, each part an operation of its own, and joined
//! again in the order of the keys.

use cell_protocol::{Keys, KeysWriter, Request, RequestHeader};

use crate::client_core::ClientCore;
use crate::error::AttemptError;
use crate::link_id::LinkId;
use crate::output::FoundValues;
use crate::pending::{OperationSlot, PendingState};
use crate::{ClientError, Output};

/// What the parts of an operation have found.
#[derive(Debug, Default)]
pub(crate) struct Join {
    /// For each key, its part and its number there.
    places: Vec<(u16, u16)>,
    found: Vec<Option<FoundValues>>,
    left: usize,
}

/// The keys of an encoded multi-get.
pub(crate) fn keys_of(message: &[u8]) -> Option<Keys<'_>> {
    match Request::decode(message) {
        Ok((_, Request::MultiGet(keys))) => Some(keys),
        _ => None,
    }
}

impl ClientCore {
    /// Makes parts of an operation: `targets` says for each key by which connection it goes. False if there
    /// is no slot for them.
    pub(crate) fn split(&mut self, whole: OperationSlot, targets: &[LinkId]) -> bool {
        let mut links: Vec<LinkId> = targets.to_vec();
        links.sort_unstable();
        links.dedup();
        let Some(keys) = keys_of(&self.pending.get(whole).message) else { return false };
        let mut join = Join { found: vec![None; links.len()], left: links.len(), ..Join::default() };
        let mut messages = Vec::new();
        for link in &links {
            let mut message = Vec::new();
            let Ok(mut writer) = KeysWriter::begin(RequestHeader::default(), &mut message) else {
                return false;
            };
            let mut count = 0;
            for (key, _) in keys.iter().zip(targets).filter(|(_, target)| *target == link) {
                if writer.push(key).is_err() {
                    return false;
                }
                count += 1;
            }
            writer.finish();
            messages.push((message, count));
        }
        let mut counts = vec![0u16; links.len()];
        for target in targets {
            let part = links.binary_search(target).unwrap_or(0);
            join.places.push((u16::try_from(part).unwrap_or(u16::MAX), counts[part]));
            counts[part] += 1;
        }
        let mut parts = Vec::new();
        for (part, (message, count)) in messages.into_iter().enumerate() {
            let part = u16::try_from(part).unwrap_or(u16::MAX);
            match self.pending.begin_part(whole, part, message, count) {
                Some(slot) => parts.push(slot),
                None => {
                    parts.into_iter().for_each(|slot| self.pending.end(slot));
                    return false;
                }
            }
        }
        for (slot, link) in parts.into_iter().zip(links) {
            self.pending.get_mut(slot).link = link;
            self.links[link.index()].ready.push_back(slot);
        }
        let pending = self.pending.get_mut(whole);
        pending.state = PendingState::Joins;
        pending.join = Some(Box::new(join));
        true
    }

    /// A part has ended; the last one ends the whole, and so does one that failed.
    pub(crate) fn part_ended(
        &mut self,
        whole: OperationSlot,
        part: u16,
        now_ns: u64,
        outcome: Result<Output, ClientError>,
    ) {
        let found = match outcome {
            Ok(Output::Values(found)) => found,
            Ok(_) => return self.finish(whole, now_ns, Err(unfitting())),
            Err(error) => return self.finish(whole, now_ns, Err(error)),
        };
        let pending = self.pending.get_mut(whole);
        let Some(join) = &mut pending.join else { return };
        join.found[usize::from(part)] = Some(found);
        join.left -= 1;
        if join.left == 0 {
            let joined = joined(join).ok_or_else(unfitting);
            self.finish(whole, now_ns, joined.map(Output::Values));
        }
    }

    /// Nobody waits for the parts of an operation any more.
    pub(crate) fn end_parts(&mut self, whole: OperationSlot) {
        let mut parts = Vec::new();
        self.pending.collect(&mut parts, |pending| pending.part_of.is_some_and(|(of, _)| of == whole));
        for slot in parts {
            self.withdraw(slot, true);
            self.pending.end(slot);
        }
    }
}

/// A part that was answered with what it did not ask for: the core matches replies to requests, so this is
/// for completeness only.
fn unfitting() -> ClientError {
    ClientError::Deadline { waited_ms: 0, last: Some(AttemptError::Unfitting) }
}

/// All values in the order of the keys.
fn joined(join: &Join) -> Option<FoundValues> {
    let mut values = FoundValues::with_capacity(join.places.len(), 0);
    for (part, at) in &join.places {
        let part = join.found.get(usize::from(*part))?.as_ref()?;
        values.push(part.get(usize::from(*at))?);
    }
    Some(values)
}
