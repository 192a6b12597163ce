//! The shared memory of one connection: a file with two rings, one a direction.
//!
//! | word | holds |
//! |---|---|
//! | 0 | magic `CELLRING` |
//! | 1 | format version |
//! | 2 | words of each ring's data, a power of two |
//! | 64 + 64 r | of ring r, 0 from the connector, 1 to it: four words, a pair of cache lines each |
//! | + 0 | tail: words produced so far, wrapping; stored by the producer |
//! | + 16 | head: words consumed so far, wrapping; stored by the consumer |
//! | + 32 | sleeping: 1 if the consumer wants its bell rung for data; set by the consumer, cleared by the ringer |
//! | + 48 | starving: 1 if the producer wants its bell rung for room; set by the producer, cleared by the ringer |
//! | 512 | data of ring 0, then of ring 1 |
//!
//! The acceptor makes the file, writes the first three words, and never reads them again.

use std::ops::RangeInclusive;

use crate::close::CloseReason;
use crate::version::MEMORY_VERSION;

use super::ring::{RingLayout, RingWords};

const MAGIC: u64 = u64::from_le_bytes(*b"CELLRING");
const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 1;
const RING_WORDS_AT: usize = 2;
const RINGS_AT: usize = 64;
/// Two cache lines, because processors fetch them in pairs.
const LINES: usize = 16;
const RING_SPAN: usize = 4 * LINES;
const DATA_AT: usize = 512;

const _: () = assert!(RINGS_AT + 2 * RING_SPAN <= DATA_AT);

/// What a ring may hold, in words.
pub(crate) const RING_WORDS: RangeInclusive<usize> = 512..=(1 << 20) / 8;

/// The words of a file with two rings of that size.
pub(crate) const fn file_words(ring_words: usize) -> usize {
    DATA_AT + 2 * ring_words
}

/// Where ring 0 or 1 lies.
pub(crate) const fn place(ring: usize, ring_words: usize) -> RingLayout {
    let lines = RINGS_AT + ring * RING_SPAN;
    RingLayout {
        tail: lines,
        head: lines + LINES,
        sleeping: lines + 2 * LINES,
        starving: lines + 3 * LINES,
        data: DATA_AT + ring * ring_words,
        capacity: ring_words,
    }
}

/// Writes the first words of a new file.
pub(crate) fn found(words: &impl RingWords, ring_words: usize) {
    words.store(VERSION_AT, MEMORY_VERSION);
    words.store(RING_WORDS_AT, ring_words as u64);
    words.store_release(MAGIC_AT, MAGIC);
}

/// The size of each ring in a file of `words` words, at least a header's.
///
/// # Errors
/// The reason to close the connection with: not such a file, or another version of it.
pub(crate) fn judge(header: &impl RingWords, words: usize) -> Result<usize, CloseReason> {
    let broken = CloseReason::SharedMemoryBroken;
    if words < DATA_AT || header.load_acquire(MAGIC_AT) != MAGIC {
        return Err(broken);
    }
    match header.load(VERSION_AT) {
        MEMORY_VERSION => {}
        theirs => return Err(CloseReason::SharedMemoryVersion { theirs }),
    }
    let ring_words = usize::try_from(header.load(RING_WORDS_AT)).map_err(|_| broken)?;
    let sound = RING_WORDS.contains(&ring_words) && ring_words.is_power_of_two();
    if sound && file_words(ring_words) == words { Ok(ring_words) } else { Err(broken) }
}
