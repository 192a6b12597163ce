//! From a stream of bytes to messages: a `u32` length, little-endian, before each.
//!
//! The endpoint lends one large scratch buffer to whichever connection is read; messages that are whole in it
//! are lent from there without a copy. Only the beginning of a message whose rest has not come is kept, in a
//! buffer of exactly that message's size, and the next read fills it first: a message that trickles in is
//! copied once.

use std::io::IoSliceMut;

use rustix::io::Errno;

use crate::close::CloseReason;

/// Bytes of the length before a message.
pub(crate) const PREFIX_BYTES: usize = 4;

/// A kept buffer larger than this is given back when it is not in use.
const BODY_BYTES_KEPT: usize = 4 * 1024;

/// The unfinished part of one connection's input.
#[derive(Debug, Default)]
pub(crate) struct Input {
    prefix: [u8; PREFIX_BYTES],
    prefix_held: usize,
    /// The unfinished message, as long as it will be. Meaningful only while `unfinished`.
    body: Vec<u8>,
    body_held: usize,
    unfinished: bool,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes; `all`: as many as were asked for, so there may be more.
    Bytes { count: usize, all: bool },
    /// The peer will send no more.
    End,
    /// The read failed, or there is nothing yet.
    Failed(Errno),
}

impl Input {
    /// Reads once into what is unfinished and the scratch buffer, and hands on every message that is whole.
    ///
    /// # Errors
    /// A length beyond `max`: messages before it were handed on, nothing was allocated for it.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        max: usize,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, Errno>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Received, CloseReason> {
        let head = if self.unfinished { 0 } else { self.prefix_held };
        scratch[..head].copy_from_slice(&self.prefix[..head]);
        let wanted = if self.unfinished { self.body.len() - self.body_held } else { 0 };
        let asked = wanted + scratch.len() - head;
        let count = if wanted > 0 {
            read(&mut [IoSliceMut::new(&mut self.body[self.body_held..]), IoSliceMut::new(scratch)])
        } else {
            read(&mut [IoSliceMut::new(&mut scratch[head..])])
        };
        let count = match count {
            Ok(0) => return Ok(Received::End),
            Ok(count) => count,
            Err(errno) => return Ok(Received::Failed(errno)),
        };
        let to_body = count.min(wanted);
        if self.unfinished {
            self.body_held += to_body;
            if self.body_held == self.body.len() {
                self.unfinished = false;
                sink(&self.body);
            }
        }
        if !self.unfinished {
            self.split(&scratch[..head + count - to_body], max, sink)?;
        }
        Ok(Received::Bytes { count, all: count == asked })
    }

    /// Bytes of an unfinished message, its prefix included; zero between two messages.
    pub(crate) fn unfinished_bytes(&self) -> usize {
        if self.unfinished { PREFIX_BYTES + self.body_held } else { self.prefix_held }
    }

    /// Gives memory back that the last long message left.
    pub(crate) fn relax(&mut self) {
        if !self.unfinished && self.body.capacity() > BODY_BYTES_KEPT {
            self.body = Vec::new();
        }
    }

    fn split(
        &mut self,
        mut bytes: &[u8],
        max: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), CloseReason> {
        self.prefix_held = 0;
        while let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() {
            let length = u32::from_le_bytes(*prefix);
            let too_long = CloseReason::TooLong { length, max };
            let length = usize::try_from(length).ok().filter(|length| *length <= max).ok_or(too_long)?;
            let Some((message, rest)) = rest.split_at_checked(length) else {
                self.keep(rest, length);
                return Ok(());
            };
            sink(message);
            bytes = rest;
        }
        self.prefix[..bytes.len()].copy_from_slice(bytes);
        self.prefix_held = bytes.len();
        Ok(())
    }

    fn keep(&mut self, started: &[u8], length: usize) {
        self.body.clear();
        self.body.resize(length, 0);
        self.body[..started.len()].copy_from_slice(started);
        self.body_held = started.len();
        self.unfinished = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(message);
        }
        bytes
    }

    fn fill(slices: &mut [IoSliceMut<'_>], mut bytes: &[u8]) -> usize {
        let offered = bytes.len();
        for slice in slices {
            let (now, later) = bytes.split_at(bytes.len().min(slice.len()));
            slice[..now.len()].copy_from_slice(now);
            bytes = later;
        }
        offered - bytes.len()
    }

    proptest! {
        #[test]
        fn receive_any_chunks_gives_the_messages_sent(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..40),
            chunks in proptest::collection::vec(1_usize..400, 1..200),
            scratch_bytes in 8_usize..512,
        ) {
            let bytes = framed(&messages);
            let (mut input, mut at, mut got) = (Input::default(), 0, Vec::new());
            let mut scratch = vec![0; scratch_bytes];
            for chunk in chunks.iter().cycle() {
                if at == bytes.len() {
                    break;
                }
                let offered = &bytes[at..(at + chunk).min(bytes.len())];
                let mut sink = |message: &[u8]| got.push(message.to_vec());
                let read = |slices: &mut [IoSliceMut<'_>]| Ok(fill(slices, offered));
                let received = input.receive(&mut scratch, 300, read, &mut sink).unwrap();
                let Received::Bytes { count, .. } = received else { panic!("{received:?}") };
                at += count;
                input.relax();
            }
            prop_assert_eq!(got, messages);
            prop_assert_eq!(input.unfinished_bytes(), 0);
        }
    }

    #[test]
    fn receive_hostile_length_is_refused_without_memory() {
        let mut input = Input::default();
        let mut got = 0;
        let read = |slices: &mut [IoSliceMut<'_>]| Ok(fill(slices, &[0, 0, 0, 0, 255, 255, 255, 255]));
        let result = input.receive(&mut [0; 64], 100, read, &mut |_| got += 1);
        assert_eq!(result, Err(CloseReason::TooLong { length: u32::MAX, max: 100 }));
        assert_eq!((got, input.body.capacity()), (1, 0));
    }

    #[test]
    fn receive_end_in_a_message_says_how_far_it_came() {
        let mut input = Input::default();
        let read = |slices: &mut [IoSliceMut<'_>]| Ok(fill(slices, &[9, 0, 0, 0, 1, 2]));
        input.receive(&mut [0; 64], 100, read, &mut |_| panic!("not whole")).unwrap();
        assert_eq!(input.receive(&mut [0; 64], 100, |_| Ok(0), &mut |_| ()), Ok(Received::End));
        assert_eq!(input.unfinished_bytes(), 6);
    }
}
