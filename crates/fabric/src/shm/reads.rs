//! The reader's side of one-sided reads over shared memory: regions are mapped when first read, and reads
//! are loads.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cell_memory::Region;
use cell_terms::{WORDS_PER_LINE, Words};
use rustix::io::Errno;

use crate::error::SendError;
use crate::mapped::{MappedRegion, Word};
use crate::registry::LedgerView;
use crate::remote_access::{READS_MAX, ReadFailure, ReadTag, RegionKey, RemoteAccess, RemoteRead};

use super::control::{self, RegionAnswer};

/// Reads of one connection that a poll carries out.
const READS_PER_POLL: usize = 256;

/// A tree node of the usual size; of longer reads the processor sees by itself where they go.
const PREFETCHED_WORDS_MAX: usize = 128;

/// Where outcomes go.
pub(super) type Outcomes<'s> = dyn FnMut(ReadTag, Result<&[u64], ReadFailure>) + 's;

/// The reads of one connection and the regions that it has mapped.
#[derive(Debug, Default)]
pub(super) struct Reads {
    posted: VecDeque<(RemoteRead, ReadTag)>,
    /// How many of them a flush has let go, from the front.
    flushed: usize,
    /// What no region permits, to be reported by the next poll.
    refused: Vec<(ReadTag, ReadFailure)>,
    /// Reads of regions that are not mapped yet.
    parked: Vec<(RemoteRead, ReadTag)>,
    /// The region that the owner was asked for: one at a time.
    asked: Option<RegionKey>,
    mapped: Vec<(RegionKey, Mapped)>,
    /// The owner's; none where it serves no one-sided reads.
    pub(super) ledger: Option<Arc<LedgerView>>,
    full: bool,
}

#[derive(Debug)]
struct Mapped {
    region: Region,
    slot: u32,
}

impl Reads {
    #[inline]
    pub(super) fn post(&mut self, access: &RemoteAccess<'_>, tag: ReadTag) -> Result<(), SendError> {
        if self.in_flight() >= READS_MAX {
            self.full = true;
            return Err(SendError::Full);
        }
        match access {
            RemoteAccess::Read(read) => {
                self.prefetch(read);
                self.posted.push_back((*read, tag));
            }
            refused => self.refused.extend(refused.refusal().map(|failure| (tag, failure))),
        }
        Ok(())
    }

    /// Asks for what will be loaded soon: the cache misses of reads that are posted together overlap.
    fn prefetch(&self, read: &RemoteRead) {
        let Ok(at) = self.mapped.binary_search_by_key(&read.key, |(key, _)| *key) else { return };
        let region = &self.mapped[at].1.region;
        let Ok(first) = usize::try_from(read.offset / 8) else { return };
        let words = usize::try_from(read.length / 8).unwrap_or(0).min(PREFETCHED_WORDS_MAX);
        for word in (first..first + words).step_by(WORDS_PER_LINE) {
            region.prefetch(word);
        }
    }

    /// The region behind a key, if it is mapped.
    pub(super) fn mapped(&self, key: RegionKey) -> Option<MappedRegion> {
        let at = self.mapped.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        let Mapped { region, slot } = &self.mapped[at].1;
        Some(MappedRegion::new(region.clone(), Word::Ledger(self.ledger.clone()?, *slot, key)))
    }

    /// Lets everything posted go.
    pub(super) fn flush(&mut self) {
        self.flushed = self.posted.len();
    }

    fn in_flight(&self) -> usize {
        self.posted.len() + self.parked.len() + self.refused.len()
    }

    /// Whether there is nothing that the next poll could do.
    pub(super) fn is_quiet(&self) -> bool {
        self.flushed == 0 && self.refused.is_empty() && (self.parked.is_empty() || self.asked.is_some())
    }

    /// Whether the owner owes an answer.
    pub(super) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether a post that was answered with `Full` would be taken now; said once.
    pub(super) fn has_room_again(&mut self) -> bool {
        let again = self.full && self.in_flight() <= READS_MAX / 2;
        self.full &= !again;
        again
    }

    /// Carries out what was flushed, as far as its regions are mapped, and asks for the next one that is not.
    pub(super) fn perform(&mut self, socket: &OwnedFd, words: &mut Vec<u64>, outcomes: &mut Outcomes<'_>) {
        for (tag, failure) in self.refused.drain(..) {
            outcomes(tag, Err(failure));
        }
        for _ in 0..self.flushed.min(READS_PER_POLL) {
            let Some((read, tag)) = self.posted.pop_front() else { break };
            self.flushed -= 1;
            let Some(ledger) = &self.ledger else {
                outcomes(tag, Err(ReadFailure::Unsupported));
                continue;
            };
            let Ok(at) = self.mapped.binary_search_by_key(&read.key, |(key, _)| *key) else {
                if read.fits(u64::MAX) {
                    self.parked.push((read, tag));
                } else {
                    outcomes(tag, Err(ReadFailure::RangeInvalid));
                }
                continue;
            };
            let Mapped { region, slot } = &self.mapped[at].1;
            let loaded = read.load(region, words);
            if ledger.lasts(*slot, read.key) {
                outcomes(tag, loaded.map(|()| words.as_slice()));
            } else {
                self.mapped.remove(at);
                outcomes(tag, Err(ReadFailure::KeyUnknown));
            }
        }
        self.ask(socket);
    }

    fn ask(&mut self, socket: &OwnedFd) {
        let (None, Some((read, _))) = (self.asked, self.parked.first()) else { return };
        match control::send(socket, &control::encode_request(read.key), &[]) {
            // A socket that is broken is noticed by its end.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => self.asked = Some(read.key),
            Err(_) => {}
        }
    }

    /// The owner has answered. False if that is no answer to what it was asked.
    pub(super) fn answered(
        &mut self,
        answer: RegionAnswer,
        file: Option<OwnedFd>,
        socket: &OwnedFd,
        outcomes: &mut Outcomes<'_>,
    ) -> bool {
        if self.asked != Some(answer.key) || answer.slot.is_some() != file.is_some() {
            return false;
        }
        self.asked = None;
        let mapped = match (answer.slot, file, &self.ledger) {
            (Some(slot), Some(file), Some(ledger)) if ledger.lasts(slot, answer.key) => {
                Region::open(File::from(file))
                    .inspect_err(
                        |error| tracing::warn!(key = %answer.key, %error, "a region cannot be mapped"),
                    )
                    .ok()
                    .map(|region| Mapped { region, slot })
            }
            _ => None,
        };
        let found = mapped.is_some();
        if let Some(mapped) = mapped
            && let Err(at) = self.mapped.binary_search_by_key(&answer.key, |(key, _)| *key)
        {
            self.mapped.insert(at, (answer.key, mapped));
        }
        let (theirs, others): (Vec<_>, _) =
            self.parked.drain(..).partition(|(read, _)| read.key == answer.key);
        self.parked = others;
        for (read, tag) in theirs.into_iter().rev() {
            if found {
                self.posted.push_front((read, tag));
                self.flushed += 1;
            } else {
                outcomes(tag, Err(ReadFailure::KeyUnknown));
            }
        }
        self.ask(socket);
        true
    }

    /// The connection ends: its reads fail.
    pub(super) fn fail_all(&mut self, outcomes: &mut Outcomes<'_>) {
        let refused = self.refused.drain(..).map(|(tag, _)| tag);
        let reads = self.parked.drain(..).chain(self.posted.drain(..)).map(|(_, tag)| tag);
        for tag in refused.chain(reads) {
            outcomes(tag, Err(ReadFailure::ConnectionClosed));
        }
        self.flushed = 0;
    }

    /// Unmaps the regions that are not registered any more, so that their memory is not held.
    pub(super) fn unmap_ended(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        self.mapped.retain(|(key, mapped)| ledger.lasts(mapped.slot, *key));
    }
}
