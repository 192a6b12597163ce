//! Searching a meganode in place.

use cell_terms::{Csn, Pointer, Words};

use crate::geometry::{Geometry, NodeIndex, Slot};
use crate::layout::LEVELS_MAX;
use crate::view::{Header, LeafEntry, Probe, Side, View};

/// How often a reader tries again before it gives up, unless told otherwise.
pub const RETRY_COUNT_MAX: u32 = 16;

/// Right links that one search follows at most: a chain of siblings without a parent is at most as long as one batch
/// of splits, so a longer one is a loop in damaged memory.
const RIGHT_MOVES_MAX: u32 = 1024;

/// Runs `$body` with `$B` as the node size of `$geometry`, one monomorphised copy a size.
macro_rules! sized {
    ($geometry:expr, $B:ident => $body:expr) => {
        match $geometry.node_bytes() {
            512 => {
                const $B: usize = 512;
                $body
            }
            1024 => {
                const $B: usize = 1024;
                $body
            }
            2048 => {
                const $B: usize = 2048;
                $body
            }
            _ => {
                const $B: usize = 4096;
                $body
            }
        }
    };
}
pub(crate) use sized;

/// What a search learnt, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key's entry, if it is there.
    pub entry: Option<LeafEntry>,
    /// The leaf whose range has the key.
    pub node: NodeIndex,
    /// The leaf's CSN of last change: where the extent is not read, a hit is durable if this is.
    pub csn_changed: Csn,
    /// The leaf's CSN of last removal: a miss is durable if this is.
    pub csn_removed: Csn,
}

/// Why a meganode gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The key is beyond this meganode: go on at the pointer, another meganode's tree node of the same level.
    #[error("the key is beyond this meganode, see {0}")]
    Beyond(Pointer),
    /// The key is below this meganode, or the slot holds no readable meganode: the caller's pointer was stale, start
    /// from the root again.
    #[error("the slot holds no meganode that covers the key")]
    NotHere,
    /// A writer was in the way as often as a reader may try: ask the owner.
    #[error("a writer was in the way {0} times")]
    Retries(u32),
    /// Keys have at least one byte and at most `key_max(node_bytes)`.
    #[error("a key of {0} bytes is empty or too long")]
    KeyLength(usize),
}

/// A meganode as its readers see it: a slot of a node region, searched in place while its one writer may change it.
///
/// Any number of readers may search at once, on any thread. Every answer is of one moment of the tree node that it
/// comes from (versions, valid flag and fences are checked); a search ends after a bounded number of retries.
#[derive(Debug)]
pub struct Meganode<'a, W: Words + ?Sized> {
    pub(crate) words: &'a W,
    pub(crate) geometry: Geometry,
    pub(crate) slot: Slot,
    slot_word: usize,
    retry_count_max: u32,
}

impl<W: Words + ?Sized> Clone for Meganode<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Words + ?Sized> Copy for Meganode<'_, W> {}

/// One node's answer to a search for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<T> {
    /// The leaf's answer.
    Leaf(T),
    /// The child that covers the key, one level down.
    Child(NodeIndex),
    /// The key is at or above the node's high fence.
    Right(Pointer),
    /// The node is not the one that was meant: invalid, reused, of another level.
    Restart,
}

/// Where a search is, and how much patience it has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub(crate) node: NodeIndex,
    /// The level that the node must have; none at the root.
    pub(crate) level: Option<u8>,
    pub(crate) retries: u32,
    pub(crate) right_moves: u32,
}

impl Cursor {
    pub(crate) const ROOT: Cursor = Cursor { node: NodeIndex::ROOT, level: None, retries: 0, right_moves: 0 };
}

impl<'a, W: Words + ?Sized> Meganode<'a, W> {
    /// A reader of the meganode in a slot.
    ///
    /// # Panics
    /// If the words do not hold the slot.
    #[must_use]
    pub fn new(words: &'a W, geometry: Geometry, slot: Slot) -> Meganode<'a, W> {
        let slot_word = geometry.slot_word(slot.index);
        let end = slot_word + geometry.nodes() * geometry.node_words();
        assert!(end <= words.len(), "the words end before the slot does");
        Meganode { words, geometry, slot, slot_word, retry_count_max: RETRY_COUNT_MAX }
    }

    /// The same reader with another bound on retries.
    #[must_use]
    pub fn with_retries(self, retry_count_max: u32) -> Meganode<'a, W> {
        Meganode { retry_count_max, ..self }
    }

    /// The slot.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The sizes.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Searches a key.
    ///
    /// # Errors
    /// See [`ReadError`]. That the key is not there is no error.
    #[inline]
    pub fn search(&self, key: &[u8]) -> Result<Found, ReadError> {
        sized!(self.geometry, B => self.search_sized::<B>(key))
    }

    fn search_sized<const B: usize>(&self, key: &[u8]) -> Result<Found, ReadError> {
        self.check_key(key)?;
        let probe = Probe::new(key);
        self.descend::<B, _>(
            &probe,
            Cursor::ROOT,
            |_, _| {},
            |node, view, header, window| Found {
                entry: view.find(header, &probe, window).1.map(|cell| view.leaf_entry(&cell)),
                node,
                csn_changed: view.csn_changed(),
                csn_removed: view.csn_removed(),
            },
        )
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), ReadError> {
        if key.is_empty() || key.len() > self.geometry.key_max() {
            return Err(ReadError::KeyLength(key.len()));
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn view<const B: usize>(&self, node: NodeIndex) -> View<'a, W, B> {
        View::new(self.words, self.node_word(node))
    }

    /// Index of a node's first word.
    #[inline(always)]
    pub(crate) fn node_word(&self, node: NodeIndex) -> usize {
        self.slot_word + node.get() * self.geometry.node_words()
    }

    /// Goes down to the leaf whose range has the key and lets `read` answer from it; `passed` hears of every inner
    /// node on the way and its level.
    #[inline(always)]
    pub(crate) fn descend<const B: usize, T>(
        &self,
        probe: &Probe<'_>,
        mut cursor: Cursor,
        mut passed: impl FnMut(NodeIndex, u8),
        read: impl Fn(NodeIndex, &View<'a, W, B>, &Header, u64) -> T,
    ) -> Result<T, ReadError> {
        loop {
            let node = cursor.node;
            let view = self.view::<B>(node);
            let step = view.stable(|view| {
                let header = view.header();
                step(view, &header, probe, cursor.level, |view, header, window| {
                    read(node, view, header, window)
                })
                .map_level(header.level)
            });
            match step {
                Some((Step::Leaf(answer), _)) => return Ok(answer),
                Some((Step::Child(child), level)) => {
                    passed(node, level);
                    self.enter::<B>(&mut cursor, child, level.wrapping_sub(1))?;
                }
                Some((Step::Right(right), level)) => self.move_right(&mut cursor, right, level)?,
                Some((Step::Restart, _)) => self.restart(&mut cursor)?,
                None => self.retry(&mut cursor)?,
            }
        }
    }

    /// Goes down to a child and asks for its cache lines: all of a leaf, whose cells can be anywhere, and of an inner
    /// node what routing touches.
    #[inline(always)]
    pub(crate) fn enter<const B: usize>(
        &self,
        cursor: &mut Cursor,
        child: NodeIndex,
        level: u8,
    ) -> Result<(), ReadError> {
        if child.get() >= self.geometry.nodes() {
            return self.restart(cursor);
        }
        cursor.node = child;
        cursor.level = Some(level);
        self.view::<B>(child).prefetch(0, if level == 0 { B } else { B * 5 / 8 });
        Ok(())
    }

    #[cold]
    pub(crate) fn move_right(&self, cursor: &mut Cursor, right: Pointer, level: u8) -> Result<(), ReadError> {
        let Some(node) = self.geometry.node_of(self.slot, right) else {
            return Err(if right.is_null() { ReadError::NotHere } else { ReadError::Beyond(right) });
        };
        cursor.right_moves += 1;
        if cursor.right_moves > RIGHT_MOVES_MAX {
            return Err(ReadError::Retries(cursor.retries));
        }
        cursor.node = node;
        cursor.level = Some(level);
        Ok(())
    }

    /// The node was not the one that was meant: from the root again. At the root itself, the slot is not ours.
    #[cold]
    pub(crate) fn restart(&self, cursor: &mut Cursor) -> Result<(), ReadError> {
        if cursor.node == NodeIndex::ROOT {
            return Err(ReadError::NotHere);
        }
        self.retry(cursor)?;
        cursor.node = NodeIndex::ROOT;
        cursor.level = None;
        Ok(())
    }

    /// The node changed under the reader: the same node again.
    #[cold]
    pub(crate) fn retry(&self, cursor: &mut Cursor) -> Result<(), ReadError> {
        cursor.retries += 1;
        if cursor.retries > self.retry_count_max {
            return Err(ReadError::Retries(cursor.retries - 1));
        }
        std::hint::spin_loop();
        Ok(())
    }
}

/// What a node answers to a search. `level` is what the level must be.
#[inline(always)]
pub(crate) fn step<'a, W: Words + ?Sized, const B: usize, T>(
    view: &View<'a, W, B>,
    header: &Header,
    probe: &Probe<'_>,
    level: Option<u8>,
    read: impl FnOnce(&View<'a, W, B>, &Header, u64) -> T,
) -> Step<T> {
    let expected = level.is_none_or(|level| level == header.level) && usize::from(header.level) < LEVELS_MAX;
    if !header.is_valid() || !expected || header.is_inner() != (header.level > 0) {
        return Step::Restart;
    }
    match view.side(header, probe) {
        Side::Here(window) if header.is_inner() => {
            Step::Child(view.child(header, view.route(header, probe, window)))
        }
        Side::Here(window) => Step::Leaf(read(view, header, window)),
        Side::Right => Step::Right(view.right()),
        Side::Below => Step::Restart,
    }
}

impl<T> Step<T> {
    #[inline(always)]
    pub(crate) fn map_level(self, level: u8) -> (Step<T>, u8) {
        (self, level)
    }
}
