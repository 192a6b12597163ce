//! Changes of tree nodes: what the log records and replay repeats.
//!
//! # Encoding, version 1
//!
//! Little-endian, no padding. A record's length is known from outside, and bytes that are left over are an
//! error.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 4 | tree node |
//!
//! | kind | then |
//! |---|---|
//! | 1 put | extent offset u32, value length u32, CRC-64 u64, key |
//! | 2 remove | key |
//! | 3 link | child u32, separator |
//! | 4 truncate | right link u64, high fence |
//! | 5 fill | words of the node u16, words before the free middle u16, words behind it u16, those words |
//! | 6 mark | 0 free, 1 valid, 2 hidden |
//!
//! Keys, separators and fences go to the record's end. The free middle of an image is zero and not stored.

use std::ops::Range;

use cell_terms::{ExtentOffset, Pointer};

use crate::geometry::NodeIndex;
use crate::layout::{KIND, WORD_BYTES, low_u16, low_usize};
use crate::layout::{NODE_BYTES, key_max};
use crate::state::TreeNodeState;
use crate::view::LeafEntry;

/// One change of one tree node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Adds a leaf entry or replaces the key's.
    Put {
        /// The leaf.
        node: NodeIndex,
        /// The whole key.
        key: &'a [u8],
        /// What it leads to.
        entry: LeafEntry,
    },
    /// Takes a key out of a leaf; stamps the CSN of removal.
    Remove {
        /// The leaf.
        node: NodeIndex,
        /// The whole key.
        key: &'a [u8],
    },
    /// Adds a child to an inner node.
    Link {
        /// The parent.
        node: NodeIndex,
        /// Keys from here on lead to the child.
        separator: &'a [u8],
        /// The child.
        child: NodeIndex,
    },
    /// Lowers the high fence; entries at or above it go (they are in the right sibling).
    Truncate {
        /// The left half of a split.
        node: NodeIndex,
        /// The new high fence.
        high: &'a [u8],
        /// The right half: a tree node of the level, or the root of another meganode.
        right: Pointer,
    },
    /// Fills a tree node with an image.
    Fill {
        /// The tree node.
        node: NodeIndex,
        /// All of its content but the versions and the CSN of change, which applying stamps.
        image: Image<'a>,
    },
    /// Makes a tree node readable, hidden or free.
    Mark {
        /// The tree node.
        node: NodeIndex,
        /// What it is from now on.
        state: TreeNodeState,
    },
}

/// A tree node's content in a plan or a record.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    words: usize,
    front: Source<'a>,
    back: Source<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Words(&'a [u64]),
    Bytes(&'a [[u8; WORD_BYTES]]),
}

/// Why bytes are no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeDecodeError {
    /// The record ends too early.
    #[error("a tree change ends too early")]
    Short,
    /// No kind of change has this number.
    #[error("no tree change is of kind {0}")]
    Kind(u8),
    /// A key, separator or fence of a length that no tree node takes.
    #[error("a tree change names a key of {0} bytes")]
    KeyLength(usize),
    /// An image of a size that no tree node has, or whose parts do not make it up.
    #[error("a tree change has an image of {words} words in {bytes} bytes")]
    Image {
        /// Words of the tree node.
        words: usize,
        /// Bytes in the record.
        bytes: usize,
    },
    /// A state that there is not, or bytes behind the end.
    #[error("a tree change has bytes where none belong")]
    Excess,
}

const PUT: u8 = 1;
const REMOVE: u8 = 2;
const LINK: u8 = 3;
const TRUNCATE: u8 = 4;
const FILL: u8 = 5;
const MARK: u8 = 6;

impl<'a> Source<'a> {
    fn len(&self) -> usize {
        match self {
            Source::Words(words) => words.len(),
            Source::Bytes(chunks) => chunks.len(),
        }
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        match self {
            Source::Words(words) => words[index],
            Source::Bytes(chunks) => u64::from_le_bytes(chunks[index]),
        }
    }
}

impl<'a> Image<'a> {
    /// An image of a whole tree node.
    ///
    /// # Panics
    /// If no tree node has so many words.
    #[must_use]
    pub fn new(words: &'a [u64]) -> Image<'a> {
        assert!(is_node_words(words.len()), "no tree node has so many words");
        let heap_low = low_usize(words[KIND / WORD_BYTES] >> 48);
        let back = (heap_low / WORD_BYTES).min(words.len());
        let front = words[..back].iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        Image::around(words, front..back)
    }

    /// As [`Image::new`], whose free middle is known.
    #[inline]
    pub(crate) fn around(words: &'a [u64], middle: Range<usize>) -> Image<'a> {
        let (front, back) = (Source::Words(&words[..middle.start]), Source::Words(&words[middle.end..]));
        Image { words: words.len(), front, back }
    }

    /// The words that are zero and not stored.
    pub(crate) fn middle(&self) -> Range<usize> {
        self.front.len()..self.words - self.back.len()
    }

    /// Whether the tree node is in use then, and whether readers may see it.
    #[must_use]
    pub fn state(&self) -> TreeNodeState {
        TreeNodeState::of(self.word(KIND / WORD_BYTES).to_le_bytes()[KIND % WORD_BYTES])
    }

    /// Words of the tree node.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words
    }

    /// Whether the image has no words: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// Calls `each` with index and word of all words but the free middle, which is zero.
    #[inline]
    pub(crate) fn for_each(&self, mut each: impl FnMut(usize, u64)) {
        for (source, first) in [(self.front, 0), (self.back, self.words - self.back.len())] {
            match source {
                Source::Words(words) => words.iter().enumerate().for_each(|(i, word)| each(first + i, *word)),
                Source::Bytes(chunks) => {
                    chunks
                        .iter()
                        .enumerate()
                        .for_each(|(i, chunk)| each(first + i, u64::from_le_bytes(*chunk)));
                }
            }
        }
    }

    /// One word.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[must_use]
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        assert!(index < self.words, "the image has no such word");
        let back = self.words - self.back.len();
        if index < self.front.len() {
            self.front.word(index)
        } else if index >= back {
            self.back.word(index - back)
        } else {
            0
        }
    }
}

impl PartialEq for Image<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words && (0..self.words).all(|i| self.word(i) == other.word(i))
    }
}

impl Eq for Image<'_> {}

fn is_node_words(words: usize) -> bool {
    NODE_BYTES.contains(&(words * WORD_BYTES))
}

impl<'a> Change<'a> {
    /// The tree node that changes.
    #[must_use]
    pub fn node(&self) -> NodeIndex {
        match *self {
            Change::Put { node, .. }
            | Change::Remove { node, .. }
            | Change::Link { node, .. }
            | Change::Truncate { node, .. }
            | Change::Fill { node, .. }
            | Change::Mark { node, .. } => node,
        }
    }

    /// Bytes of the encoding.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        5 + match self {
            Change::Put { key, .. } => 16 + key.len(),
            Change::Remove { key, .. } => key.len(),
            Change::Link { separator, .. } => 4 + separator.len(),
            Change::Truncate { high, .. } => 8 + high.len(),
            Change::Fill { image, .. } => 6 + WORD_BYTES * (image.front.len() + image.back.len()),
            Change::Mark { .. } => 1,
        }
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let begin = |out: &mut Vec<u8>, kind: u8, node: NodeIndex| {
            out.push(kind);
            out.extend_from_slice(&node.0.to_le_bytes());
        };
        match self {
            Change::Put { node, key, entry } => {
                begin(out, PUT, *node);
                out.extend_from_slice(&entry.offset.0.to_le_bytes());
                out.extend_from_slice(&entry.value_len.to_le_bytes());
                out.extend_from_slice(&entry.crc.to_le_bytes());
                out.extend_from_slice(key);
            }
            Change::Remove { node, key } => {
                begin(out, REMOVE, *node);
                out.extend_from_slice(key);
            }
            Change::Link { node, separator, child } => {
                begin(out, LINK, *node);
                out.extend_from_slice(&child.0.to_le_bytes());
                out.extend_from_slice(separator);
            }
            Change::Truncate { node, high, right } => {
                begin(out, TRUNCATE, *node);
                out.extend_from_slice(&right.0.to_le_bytes());
                out.extend_from_slice(high);
            }
            Change::Fill { node, image } => {
                begin(out, FILL, *node);
                for len in [image.words, image.front.len(), image.back.len()] {
                    out.extend_from_slice(&low_u16(len).to_le_bytes());
                }
                for source in [image.front, image.back] {
                    for i in 0..source.len() {
                        out.extend_from_slice(&source.word(i).to_le_bytes());
                    }
                }
            }
            Change::Mark { node, state } => {
                begin(out, MARK, *node);
                out.push(match state {
                    TreeNodeState::Free => 0,
                    TreeNodeState::Valid => 1,
                    TreeNodeState::Hidden => 2,
                });
            }
        }
    }

    /// Reads an encoding. It checks lengths only: whether the change makes sense, applying it checks.
    ///
    /// # Errors
    /// See [`ChangeDecodeError`]; any bytes make a change or an error.
    pub fn decode(bytes: &'a [u8]) -> Result<Change<'a>, ChangeDecodeError> {
        let mut reader = Reader(bytes);
        let kind = reader.take::<1>()?[0];
        let node = NodeIndex(u32::from_le_bytes(reader.take()?));
        match kind {
            PUT => {
                let offset = ExtentOffset(u32::from_le_bytes(reader.take()?));
                let value_len = u32::from_le_bytes(reader.take()?);
                let crc = u64::from_le_bytes(reader.take()?);
                Ok(Change::Put { node, key: reader.key()?, entry: LeafEntry { offset, value_len, crc } })
            }
            REMOVE => Ok(Change::Remove { node, key: reader.key()? }),
            LINK => {
                let child = NodeIndex(u32::from_le_bytes(reader.take()?));
                Ok(Change::Link { node, child, separator: reader.key()? })
            }
            TRUNCATE => {
                let right = Pointer(u64::from_le_bytes(reader.take()?));
                Ok(Change::Truncate { node, right, high: reader.key()? })
            }
            FILL => Ok(Change::Fill { node, image: reader.image()? }),
            MARK => match (reader.take::<1>()?[0], reader.0) {
                (0, []) => Ok(Change::Mark { node, state: TreeNodeState::Free }),
                (1, []) => Ok(Change::Mark { node, state: TreeNodeState::Valid }),
                (2, []) => Ok(Change::Mark { node, state: TreeNodeState::Hidden }),
                _ => Err(ChangeDecodeError::Excess),
            },
            _ => Err(ChangeDecodeError::Kind(kind)),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ChangeDecodeError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(ChangeDecodeError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn key(self) -> Result<&'a [u8], ChangeDecodeError> {
        if self.0.is_empty() || self.0.len() > key_max(NODE_BYTES[3]) {
            return Err(ChangeDecodeError::KeyLength(self.0.len()));
        }
        Ok(self.0)
    }

    fn image(mut self) -> Result<Image<'a>, ChangeDecodeError> {
        let [words, front, back] = [self.take::<2>()?, self.take::<2>()?, self.take::<2>()?]
            .map(|len| usize::from(u16::from_le_bytes(len)));
        let error = ChangeDecodeError::Image { words, bytes: self.0.len() };
        let (chunks, []) = self.0.as_chunks::<WORD_BYTES>() else { return Err(error) };
        if !is_node_words(words) || front + back > words || chunks.len() != front + back {
            return Err(error);
        }
        let (front, back) = chunks.split_at(front);
        Ok(Image { words, front: Source::Bytes(front), back: Source::Bytes(back) })
    }
}
