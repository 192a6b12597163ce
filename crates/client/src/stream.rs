//! Values that do not fit one message, both ways. See [`cell_protocol::stream`].

use std::collections::VecDeque;

use cell_protocol::stream::CHUNK_BYTES_MAX;
use cell_protocol::{Chunk, ValueBegin};

use crate::Item;
use crate::crc::crc;
use crate::error::AttemptError;
use crate::operation::OperationSlot;

/// Memory taken at once for a value that is announced; more is taken as it comes.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// How far a put's value has gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Upload {
    sent: usize,
    credit: u64,
    /// Whether the stream waits in the list of those that can send.
    pub(crate) listed: bool,
}

impl Upload {
    pub(crate) fn new(credit: u32) -> Upload {
        Upload { sent: 0, credit: credit.into(), listed: false }
    }

    pub(crate) fn grant(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into());
    }

    pub(crate) fn can_send(&self, value: &[u8]) -> bool {
        self.credit > 0 && self.sent < value.len()
    }

    /// The next piece, as far as credit and message go.
    pub(crate) fn next_chunk<'a>(&mut self, value: &'a [u8]) -> Option<Chunk<'a>> {
        let credit = usize::try_from(self.credit).unwrap_or(usize::MAX);
        let len = (value.len() - self.sent).min(credit).min(CHUNK_BYTES_MAX);
        let offset = u32::try_from(self.sent).ok()?;
        let bytes = value.get(self.sent..self.sent + len).filter(|bytes| !bytes.is_empty())?;
        self.sent += len;
        self.credit -= len as u64;
        Some(Chunk { offset, bytes })
    }
}

/// The streamed puts of one connection: how many are open, which of them can send, and which wait for one of
/// them to end.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    open: usize,
    /// Those with credit and something to send, in turn.
    sendable: VecDeque<OperationSlot>,
    waiting: VecDeque<OperationSlot>,
    is_chunk_next: bool,
}

impl Uploads {
    /// Whether a chunk goes before the next operation: each second time, so that neither keeps the other
    /// waiting.
    pub(crate) fn alternate(&mut self) -> bool {
        self.is_chunk_next = !self.is_chunk_next;
        self.is_chunk_next
    }

    /// Whether one more may begin while the server permits so many. Else it waits.
    pub(crate) fn admit(&mut self, slot: OperationSlot, open_max: usize) -> bool {
        let admitted = self.open < open_max;
        if admitted {
            self.open += 1;
        } else {
            self.waiting.push_back(slot);
        }
        admitted
    }

    /// An open one can send.
    pub(crate) fn push_sendable(&mut self, slot: OperationSlot) {
        self.sendable.push_back(slot);
    }

    /// The next one that can send.
    pub(crate) fn pop_sendable(&mut self) -> Option<OperationSlot> {
        self.sendable.pop_front()
    }

    pub(crate) fn has_sendable(&self) -> bool {
        !self.sendable.is_empty()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one that waits may begin while the server permits so many.
    pub(crate) fn may_begin(&self, open_max: usize) -> bool {
        self.has_waiting() && self.open < open_max
    }

    /// That one, which does not wait any more.
    pub(crate) fn pop_waiting(&mut self, open_max: usize) -> Option<OperationSlot> {
        if self.may_begin(open_max) { self.waiting.pop_front() } else { None }
    }

    /// An open one has ended.
    pub(crate) fn end(&mut self, slot: OperationSlot) {
        self.open -= 1;
        self.sendable.retain(|&listed| listed != slot);
    }

    /// One does not wait any more.
    pub(crate) fn stop_waiting(&mut self, slot: OperationSlot) {
        self.waiting.retain(|&listed| listed != slot);
    }
}

/// A value on its way here.
#[derive(Debug)]
pub(crate) struct Download {
    begin: ValueBegin,
    bytes: Vec<u8>,
    /// Bytes that the server may have sent, counted from the value's start.
    granted: u64,
    window: u32,
}

/// What a chunk leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More is to come; so many bytes of credit should be returned, if any.
    More { credit: Option<u32> },
    /// The value is here and whole.
    Whole(Item),
}

impl Download {
    /// Begins a value, unless it is longer than the server said any would be.
    pub(crate) fn new(
        begin: ValueBegin,
        window: u32,
        value_bytes_max: u32,
    ) -> Result<Download, AttemptError> {
        let len = usize::try_from(begin.value_len).unwrap_or(usize::MAX);
        if begin.value_len > value_bytes_max {
            return Err(AttemptError::Unfitting);
        }
        let bytes = Vec::with_capacity(len.min(RESERVED_BYTES_MAX));
        Ok(Download { begin, bytes, granted: window.into(), window })
    }

    /// Takes a piece in; it must be the next one, within length and credit.
    pub(crate) fn take(&mut self, chunk: &Chunk<'_>) -> Result<Progress, AttemptError> {
        let end = self.bytes.len() as u64 + chunk.bytes.len() as u64;
        let follows = u64::from(chunk.offset) == self.bytes.len() as u64;
        if !follows || end > u64::from(self.begin.value_len) || end > self.granted {
            return Err(AttemptError::Unfitting);
        }
        self.bytes.extend_from_slice(chunk.bytes);
        self.progress()
    }

    /// How far it is; an empty value is whole from the start.
    pub(crate) fn progress(&mut self) -> Result<Progress, AttemptError> {
        let (received, whole) = (self.bytes.len() as u64, u64::from(self.begin.value_len));
        if received < whole {
            return Ok(Progress::More { credit: self.credit_to_return(received, whole) });
        }
        if crc(&self.bytes) != self.begin.value_crc {
            return Err(AttemptError::Damaged { value_len: self.begin.value_len });
        }
        Ok(Progress::Whole(Item { version: self.begin.version, value: std::mem::take(&mut self.bytes) }))
    }

    /// Credit is returned when half of the window is used up, and not beyond the value's end.
    fn credit_to_return(&mut self, received: u64, whole: u64) -> Option<u32> {
        let ahead = self.granted - received;
        if self.granted >= whole || ahead > u64::from(self.window / 2) {
            return None;
        }
        let credit = u32::try_from(u64::from(self.window) - ahead).ok().filter(|&credit| credit > 0)?;
        self.granted += u64::from(credit);
        Some(credit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_terms::Version;
    use proptest::prelude::*;

    fn begin(value: &[u8]) -> ValueBegin {
        ValueBegin {
            version: Version::default(),
            value_len: u32::try_from(value.len()).unwrap(),
            value_crc: crc(value),
        }
    }

    #[test]
    fn uploads_past_the_limit_wait_until_one_ends() {
        let mut uploads = Uploads::default();
        assert!(uploads.admit(1, 2) && uploads.admit(2, 2));
        assert!(!uploads.admit(3, 2) && !uploads.admit(4, 2) && !uploads.admit(5, 2));
        uploads.push_sendable(2);
        uploads.push_sendable(1);
        uploads.stop_waiting(3);
        assert_eq!(uploads.pop_waiting(2), None);
        uploads.end(2);
        assert_eq!(uploads.pop_waiting(2), Some(4));
        assert_eq!(uploads.pop_sendable(), Some(1), "what has ended sends nothing");
        assert!(uploads.admit(4, 2) && uploads.has_waiting() && !uploads.has_sendable());
    }

    #[test]
    fn take_chunk_that_does_not_follow_is_refused() {
        let value = [7; 100];
        let mut download = Download::new(begin(&value), 50, 1000).unwrap();
        let chunk = |offset: u32, len: usize| Chunk { offset, bytes: &value[..len] };
        assert_eq!(download.take(&chunk(1, 5)), Err(AttemptError::Unfitting));
        assert_eq!(download.take(&chunk(0, 51)), Err(AttemptError::Unfitting), "beyond the credit");
        assert_eq!(download.take(&chunk(0, 50)), Ok(Progress::More { credit: Some(50) }));
        assert_eq!(download.take(&chunk(0, 10)), Err(AttemptError::Unfitting), "a duplicate");
        assert!(matches!(download.take(&chunk(50, 50)), Ok(Progress::Whole(_))));
    }

    #[test]
    fn take_damaged_value_is_refused() {
        let mut download = Download::new(begin(b"value"), 50, 1000).unwrap();
        let damaged = download.take(&Chunk { offset: 0, bytes: b"valuE" });
        assert_eq!(damaged, Err(AttemptError::Damaged { value_len: 5 }));
    }

    #[test]
    fn new_value_longer_than_permitted_is_refused_before_memory_is_taken() {
        let announced = ValueBegin { value_len: u32::MAX, ..begin(b"") };
        assert_eq!(Download::new(announced, 1, 1 << 24).unwrap_err(), AttemptError::Unfitting);
    }

    proptest! {
        #[test]
        fn stream_any_length_and_window_arrives_whole(len in 0usize..300_000, window in 1u32..100_000) {
            let value: Vec<u8> = (0..=250).cycle().take(len).collect();
            let mut upload = Upload::new(window);
            let mut download = Download::new(begin(&value), window, u32::MAX).unwrap();
            let mut progress = download.progress().unwrap();
            while let Progress::More { .. } = progress {
                let chunk = upload.next_chunk(&value).expect("credit never dries up before the end");
                progress = download.take(&chunk).unwrap();
                if let Progress::More { credit: Some(credit) } = progress {
                    upload.grant(credit);
                }
            }
            prop_assert!(!upload.can_send(&value));
            prop_assert_eq!(progress, Progress::Whole(Item { version: Version::default(), value }));
        }
    }
}
