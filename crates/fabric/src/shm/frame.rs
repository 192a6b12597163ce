//! Messages as words: a header word with the length in its lower half and zero in its upper, then the bytes,
//! filled up with zeros to whole words.

use crate::close::CloseReason;

use super::ring::{Producer, RingWords};

pub(super) const WORD_BYTES: usize = 8;

/// A kept buffer larger than this is given back when it is not in use.
const BODY_BYTES_KEPT: usize = 4 * 1024;

/// Words of a message's frame.
pub(super) const fn frame_words(length: usize) -> usize {
    1 + length.div_ceil(WORD_BYTES)
}

/// A frame's first word.
pub(super) fn header(length: u32) -> [u8; WORD_BYTES] {
    u64::from(length).to_le_bytes()
}

/// Writes a whole frame; the caller has seen to the room.
pub(super) fn write_frame(producer: &mut Producer, words: &impl RingWords, length: u32, parts: &[&[u8]]) {
    producer.write(words, &[header(length)]);
    let (mut carry, mut carried) = ([0; WORD_BYTES], 0);
    for part in parts {
        let mut part = *part;
        if carried > 0 {
            let taken = part.len().min(WORD_BYTES - carried);
            carry[carried..carried + taken].copy_from_slice(&part[..taken]);
            carried += taken;
            part = &part[taken..];
            if carried < WORD_BYTES {
                continue;
            }
            producer.write(words, &[carry]);
        }
        let (whole, rest) = part.as_chunks::<WORD_BYTES>();
        if !whole.is_empty() {
            producer.write(words, whole);
        }
        carry[..rest.len()].copy_from_slice(rest);
        carried = rest.len();
    }
    if carried > 0 {
        carry[carried..].fill(0);
        producer.write(words, &[carry]);
    }
}

/// Frames that the ring had no room for, the first of them perhaps partly written.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    words: Vec<[u8; WORD_BYTES]>,
    taken: usize,
}

impl Backlog {
    /// Bytes that wait.
    pub(super) fn pending(&self) -> usize {
        (self.words.len() - self.taken) * WORD_BYTES
    }

    /// Appends a message in parts of `length` bytes together, which the caller has checked against the limit.
    pub(super) fn push(&mut self, length: u32, parts: &[&[u8]]) {
        if self.taken > 0 && self.taken >= self.words.len() / 2 {
            self.words.drain(..self.taken);
            self.taken = 0;
        }
        self.words.push(header(length));
        let begin = self.words.len();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.words.resize(begin + bytes.div_ceil(WORD_BYTES), [0; WORD_BYTES]);
        let mut room = self.words[begin..].as_flattened_mut();
        for part in parts {
            let (now, later) = room.split_at_mut(part.len());
            now.copy_from_slice(part);
            room = later;
        }
    }

    /// The words that wait.
    pub(super) fn waiting(&self) -> &[[u8; WORD_BYTES]] {
        &self.words[self.taken..]
    }

    /// The first `count` of them were taken.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.words.len() {
            self.clear();
        }
    }

    /// Forgets everything: the peer takes no more.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.taken = 0;
    }

    /// Gives memory back that a burst left.
    pub(super) fn relax(&mut self) {
        if self.words.is_empty() {
            self.words = Vec::new();
        }
    }
}

/// Puts messages together from words as they come. Whole ones are lent from where the words are.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// The unfinished message with its padding, as long as it will be. Meaningful only while `unfinished`.
    body: Vec<u8>,
    held: usize,
    length: usize,
    unfinished: bool,
}

impl Assembler {
    /// Takes words in and hands on every message that is whole.
    ///
    /// # Errors
    /// A length beyond `max`, or a header that is none: messages before it were handed on.
    pub(super) fn take(
        &mut self,
        data: &[[u8; WORD_BYTES]],
        max: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), CloseReason> {
        let mut bytes = data.as_flattened();
        if self.unfinished {
            let (now, later) = bytes.split_at(bytes.len().min(self.body.len() - self.held));
            self.body[self.held..self.held + now.len()].copy_from_slice(now);
            self.held += now.len();
            if self.held < self.body.len() {
                return Ok(());
            }
            self.unfinished = false;
            sink(&self.body[..self.length]);
            bytes = later;
        }
        while let Some((head, rest)) = bytes.split_first_chunk::<WORD_BYTES>() {
            let head = u64::from_le_bytes(*head);
            let length = u32::try_from(head).map_err(|_| CloseReason::SharedMemoryBroken)?;
            let too_long = CloseReason::TooLong { length, max };
            let length = usize::try_from(length).ok().filter(|length| *length <= max).ok_or(too_long)?;
            let padded = length.next_multiple_of(WORD_BYTES);
            let Some((message, rest)) = rest.split_at_checked(padded) else {
                self.keep(rest, length, padded);
                return Ok(());
            };
            sink(&message[..length]);
            bytes = rest;
        }
        Ok(())
    }

    /// Bytes of an unfinished message, its header included; zero between two messages.
    pub(super) fn unfinished_bytes(&self) -> usize {
        if self.unfinished { WORD_BYTES + self.held } else { 0 }
    }

    /// Gives memory back that the last long message left.
    pub(super) fn relax(&mut self) {
        if !self.unfinished && self.body.capacity() > BODY_BYTES_KEPT {
            self.body = Vec::new();
        }
    }

    fn keep(&mut self, started: &[u8], length: usize, padded: usize) {
        self.body.clear();
        self.body.resize(padded, 0);
        self.body[..started.len()].copy_from_slice(started);
        (self.held, self.length, self.unfinished) = (started.len(), length, true);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(messages: &[Vec<u8>]) -> Backlog {
        let mut backlog = Backlog::default();
        for message in messages {
            let (first, second) = message.split_at(message.len() / 3);
            backlog.push(u32::try_from(message.len()).unwrap(), &[first, second]);
        }
        backlog
    }

    proptest! {
        #[test]
        fn take_any_pieces_gives_the_messages_sent(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 0..30),
            pieces in proptest::collection::vec(1_usize..40, 1..100),
        ) {
            let mut backlog = framed(&messages);
            let (mut assembler, mut got) = (Assembler::default(), Vec::new());
            for piece in pieces.iter().cycle() {
                if backlog.pending() == 0 {
                    break;
                }
                let waiting = backlog.waiting();
                let count = waiting.len().min(*piece);
                let mut sink = |message: &[u8]| got.push(message.to_vec());
                assembler.take(&waiting[..count], 100, &mut sink).unwrap();
                backlog.take(count);
                assembler.relax();
            }
            prop_assert_eq!(got, messages);
            prop_assert_eq!(assembler.unfinished_bytes(), 0);
        }

        #[test]
        fn take_any_words_never_panics(words in proptest::collection::vec(any::<[u8; 8]>(), 0..50)) {
            let _ = Assembler::default().take(&words, 100, &mut |_| ());
        }
    }

    #[test]
    fn take_hostile_header_is_refused_without_memory() {
        let mut assembler = Assembler::default();
        let (mut got, max) = (0, 100);
        let words = [header(0), header(101)];
        let refused = assembler.take(&words, max, &mut |_| got += 1);
        assert_eq!(refused, Err(CloseReason::TooLong { length: 101, max }));
        assert_eq!(assembler.take(&[[1; 8]], max, &mut |_| ()), Err(CloseReason::SharedMemoryBroken));
        assert_eq!((got, assembler.body.capacity()), (1, 0));
    }
}
