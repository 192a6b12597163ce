//! One-sided operations of one connection: checked when they are posted, handed to the device in chains, and
//! ended in the order in which they were handed over.

use std::collections::VecDeque;

use crate::close::CloseReason;
use crate::error::SendError;
use crate::remote_access::{
    READ_BYTES_MAX, READS_MAX, ReadFailure, ReadTag, RegionKey, RemoteAccess, RemoteRead, RemoteSwap,
};
use crate::tls::Socket;

use super::control::{self, RegionAnswer};
use super::error::VerbsError;
use super::memory::{Buffer, RemoteRegion, Span};
use super::queue_pair::QueuePair;
use super::work::{RemotePlace, Work};

/// Bytes that operations under way bring or take, in a ring.
const LANDING_BYTES: usize = 8 * READ_BYTES_MAX as usize;
/// What is brought begins on lines of its own.
const LINE_BYTES: usize = 64;

/// Where outcomes go.
pub(super) type Outcomes<'s> = dyn FnMut(ReadTag, Result<&[u64], ReadFailure>) + 's;

/// An operation, kept.
#[derive(Clone, Debug)]
enum Operation {
    Read,
    Write(Box<[u64]>),
    Swap { expected: u64, new: u64 },
}

#[derive(Clone, Debug)]
struct Posted {
    operation: Operation,
    range: RemoteRead,
    tag: ReadTag,
}

/// One that the device has.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    tag: ReadTag,
    span: Span,
    /// The ring's bytes up to its end are free again when it ends.
    ring_end: u64,
    brings: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Operations {
    /// The acceptor's hello says that its host serves them. None while it has not spoken.
    pub(super) served: Option<bool>,
    /// There is no memory for what operations bring: this end posts none.
    lacks_landing: bool,
    /// Refused when they were posted, to be reported by the next poll.
    refused: Vec<(ReadTag, ReadFailure)>,
    /// Not handed to the device, or of a region that is not known yet.
    waiting: VecDeque<Posted>,
    /// Of regions that the acceptor was asked for or is to be.
    parked: Vec<Posted>,
    under_way: VecDeque<UnderWay>,
    asked: Option<RegionKey>,
    regions: Vec<(RegionKey, RemoteRegion)>,
    /// Bytes of the ring that were taken, and given back, since it was made.
    taken: u64,
    given_back: u64,
    full: bool,
}

impl Operations {
    /// Takes an operation, or says with the next poll why not.
    ///
    /// # Errors
    /// [`SendError::Full`].
    pub(super) fn post(
        &mut self,
        access: &RemoteAccess<'_>,
        tag: ReadTag,
        accepted: bool,
    ) -> Result<(), SendError> {
        if self.in_flight() >= READS_MAX {
            self.full = true;
            return Err(SendError::Full);
        }
        let range = access.range();
        let operation = match access {
            RemoteAccess::Read(_) => Operation::Read,
            RemoteAccess::Write(write) => Operation::Write(write.words.into()),
            RemoteAccess::CompareAndSwap(RemoteSwap { expected, new, .. }) => {
                Operation::Swap { expected: *expected, new: *new }
            }
        };
        let known = self.region(range.key);
        let refusal = if accepted || self.lacks_landing || self.served == Some(false) {
            Some(ReadFailure::Unsupported)
        } else if !range.fits(known.map_or(u64::MAX, |region| region.bytes)) {
            Some(ReadFailure::RangeInvalid)
        } else {
            known.and_then(|region| not_permitted(&operation, &region))
        };
        match refusal {
            Some(failure) => self.refused.push((tag, failure)),
            None => self.waiting.push_back(Posted { operation, range, tag }),
        }
        Ok(())
    }

    fn region(&self, key: RegionKey) -> Option<RemoteRegion> {
        let at = self.regions.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(self.regions[at].1)
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.parked.len() + self.under_way.len() + self.refused.len()
    }

    /// Whether there is something to be reported by the next poll.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether something waits for a flush.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a post that was answered with `Full` would be taken now; said once.
    pub(super) fn has_room_again(&mut self) -> bool {
        let again = self.full && self.in_flight() <= READS_MAX / 2;
        self.full &= !again;
        again
    }

    /// Reports what was refused.
    pub(super) fn report_refused(&mut self, outcomes: &mut Outcomes<'_>) {
        let unserved = self.served == Some(false);
        for (tag, failure) in self.refused.drain(..) {
            outcomes(tag, Err(failure));
        }
        if unserved {
            for posted in self.waiting.drain(..).chain(self.parked.drain(..)) {
                outcomes(posted.tag, Err(ReadFailure::Unsupported));
            }
        }
    }

    /// Sees that there is memory to land in for what waits. Where none can be had, all operations end as
    /// unsupported, and the connection goes on with messages alone.
    pub(super) fn prepare_landing(
        &mut self,
        landing: &mut Option<Buffer>,
        make: impl FnOnce(usize) -> Result<Buffer, VerbsError>,
    ) {
        if landing.is_some() || self.waiting.is_empty() {
            return;
        }
        match make(LANDING_BYTES) {
            Ok(made) => *landing = Some(made),
            Err(error) => {
                tracing::warn!(%error, "no memory for one-sided reads over RDMA: messages are used instead");
                self.lacks_landing = true;
                let tags = self.waiting.drain(..).chain(self.parked.drain(..)).map(|posted| posted.tag);
                self.refused.extend(tags.map(|tag| (tag, ReadFailure::Unsupported)));
            }
        }
    }

    /// The next operation as work for the device, if there is one whose region is known, and room for it.
    /// Without memory to land in all wait.
    pub(super) fn next_work(&mut self, landing: &mut Option<Buffer>) -> Option<Work> {
        while let Some(posted) = self.waiting.pop_front() {
            let Some(region) = self.region(posted.range.key) else {
                self.parked.push(posted);
                continue;
            };
            let Some(landing) = landing else {
                self.waiting.push_front(posted);
                return None;
            };
            let Some((span, ring_end)) = self.take(posted.range.length) else {
                self.waiting.push_front(posted);
                return None;
            };
            let place = RemotePlace { address: region.place + posted.range.offset, key: region.key };
            let work = match &posted.operation {
                Operation::Read => Work::Read { into: span, from: place },
                Operation::Write(words) => {
                    for (at, word) in (span.offset..).step_by(8).zip(words) {
                        landing.write(at, &word.to_le_bytes());
                    }
                    Work::Write { from: span, to: place }
                }
                Operation::Swap { expected, new } => {
                    Work::Swap { into: span, at: place, expected: *expected, new: *new }
                }
            };
            let brings = !matches!(posted.operation, Operation::Write(_));
            self.under_way.push_back(UnderWay { tag: posted.tag, span, ring_end, brings });
            return Some(work);
        }
        None
    }

    /// Room in the ring for so many bytes in one piece.
    fn take(&mut self, length: u32) -> Option<(Span, u64)> {
        let size = LANDING_BYTES as u64;
        let length = usize::try_from(length).ok()?;
        let bytes = length.next_multiple_of(LINE_BYTES) as u64;
        let at = self.taken % size;
        let skipped = if at + bytes > size { size - at } else { 0 };
        let end = self.taken + skipped + bytes;
        if end - self.given_back > size {
            return None;
        }
        self.taken = end;
        let offset = usize::try_from((end - bytes) % size).ok()?;
        Some((Span { offset, length }, end))
    }

    /// The first one under way is done.
    pub(super) fn done(&mut self, pair: &QueuePair, outcomes: &mut Outcomes<'_>) {
        let Some(first) = self.under_way.pop_front() else { return };
        let words = match &pair.landing {
            Some(landing) if first.brings => landing.words(first.span),
            _ => &[],
        };
        outcomes(first.tag, Ok(words));
        self.given_back = first.ring_end;
    }

    /// The first one under way was refused by the peer's device.
    pub(super) fn refused_by_device(&mut self, outcomes: &mut Outcomes<'_>) {
        if let Some(first) = self.under_way.pop_front() {
            outcomes(first.tag, Err(ReadFailure::KeyUnknown));
        }
    }

    /// Asks the acceptor for a region that is not known, if one is wanted and it was not asked before.
    ///
    /// # Errors
    /// The socket takes no question.
    pub(super) fn ask(&mut self, socket: &mut Socket) -> Result<(), CloseReason> {
        let (None, Some(posted)) = (self.asked, self.parked.first()) else { return Ok(()) };
        let key = posted.range.key;
        control::send(socket, &control::encode_question(key))?;
        self.asked = Some(key);
        Ok(())
    }

    /// The acceptor has answered. False if that is no answer to what it was asked.
    pub(super) fn answered(&mut self, answer: RegionAnswer, outcomes: &mut Outcomes<'_>) -> bool {
        if self.asked != Some(answer.key) {
            return false;
        }
        self.asked = None;
        if let Some(region) = answer.region
            && let Err(at) = self.regions.binary_search_by_key(&answer.key, |(key, _)| *key)
        {
            self.regions.insert(at, (answer.key, region));
        }
        let (theirs, others): (Vec<_>, _) =
            self.parked.drain(..).partition(|posted| posted.range.key == answer.key);
        self.parked = others;
        for posted in theirs.into_iter().rev() {
            let failure = match answer.region {
                None => Some(ReadFailure::KeyUnknown),
                Some(region) if !posted.range.fits(region.bytes) => Some(ReadFailure::RangeInvalid),
                Some(region) => not_permitted(&posted.operation, &region),
            };
            match failure {
                Some(failure) => outcomes(posted.tag, Err(failure)),
                None => self.waiting.push_front(posted),
            }
        }
        true
    }

    /// The connection ends: all fail.
    pub(super) fn fail_all(&mut self, outcomes: &mut Outcomes<'_>) {
        let under_way = self.under_way.drain(..).map(|operation| operation.tag);
        let refused = self.refused.drain(..).map(|(tag, _)| tag);
        let posted = self.waiting.drain(..).chain(self.parked.drain(..)).map(|posted| posted.tag);
        for tag in under_way.chain(refused).chain(posted) {
            outcomes(tag, Err(ReadFailure::ConnectionClosed));
        }
    }
}

fn not_permitted(operation: &Operation, region: &RemoteRegion) -> Option<ReadFailure> {
    (!region.writable && !matches!(operation, Operation::Read)).then_some(ReadFailure::NotPermitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RegionKey = RegionKey(7);

    fn read(key: RegionKey) -> RemoteAccess<'static> {
        RemoteAccess::Read(RemoteRead { key, offset: 0, length: 64 })
    }

    /// The connection was given up, opened anew and given up again, for ever, and the read that was in hand
    /// was never reported.
    #[test]
    fn prepare_landing_without_memory_ends_every_operation_as_unsupported() {
        let region = RemoteRegion { key: 5, place: 0, bytes: 4096, writable: false };
        let mut operations = Operations { regions: vec![(KEY, region)], ..Operations::default() };
        for (tag, key) in [(1, RegionKey(9)), (2, KEY), (3, KEY)] {
            operations.post(&read(key), ReadTag(tag), false).unwrap();
        }
        assert!(operations.next_work(&mut None).is_none(), "there is nothing to land in");
        assert_eq!(operations.in_flight(), 3);
        let mut landing = None;
        operations.prepare_landing(&mut landing, |_| Err(VerbsError::NoDevice));
        assert!(landing.is_none() && operations.has_refused() && !operations.has_waiting());
        operations.post(&read(KEY), ReadTag(4), false).unwrap();
        let mut reported = Vec::new();
        operations.report_refused(&mut |tag, outcome| reported.push((tag.0, outcome.unwrap_err())));
        reported.sort_unstable_by_key(|(tag, _)| *tag);
        assert_eq!(reported, [1, 2, 3, 4].map(|tag| (tag, ReadFailure::Unsupported)));
        assert_eq!(operations.in_flight(), 0);
    }
}
