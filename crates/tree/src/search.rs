//! Searching a meganode in place.

use std::cmp::Ordering;

use cell_terms::{Csn, Pointer, Words};

use crate::geometry::{Geometry, NodeIndex, Slot};
use crate::layout::{LEVEL_MASK, kind_of};
use crate::mutant::{self, Mutant};
use crate::probe::Probe;
use crate::role::MeganodeRole;
use crate::seek::{Hop, Lookup};
use crate::view::{Header, LeafEntry, View};

/// How often a reader tries again before it gives up, unless set otherwise.
pub const RETRY_COUNT_MAX: u32 = 16;

/// Right links that one search follows at most: a chain of siblings without a parent is at most as long as
/// one batch of splits, so a longer one is a loop in damaged memory.
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
pub struct SearchResult {
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
    /// The key is below this meganode, or the slot holds no readable meganode: the caller's pointer was
    /// stale, start from the root again.
    #[error("the slot holds no meganode that covers the key")]
    NotHere,
    /// A writer was in the way as often as a reader may try: ask the owner.
    #[error("a writer was in the way {0} times")]
    Retries(u32),
    /// Keys have at least one byte and at most `key_max(node_bytes)`.
    #[error("a key of {0} bytes is empty or too long")]
    KeyLength(usize),
}

/// A meganode as its readers see it: a slot of a node region, searched in place while its one writer may
/// change it.
///
/// Any number of readers may search at once, on any thread. Every answer is of one moment of the tree node
/// that it comes from (versions, valid flag and fences are checked); a search ends after a bounded number of
/// retries.
#[derive(Debug)]
pub struct Meganode<'a, W: Words + ?Sized> {
    pub(crate) words: &'a W,
    pub(crate) geometry: Geometry,
    pub(crate) slot: Slot,
    pub(crate) role: MeganodeRole,
    /// Index of the slot's first word, and how many nodes it has.
    slot_word: usize,
    pub(crate) nodes: usize,
    retry_count_max: u32,
}

impl<W: Words + ?Sized> Clone for Meganode<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Words + ?Sized> Copy for Meganode<'_, W> {}

/// Where a search is, and how much patience it has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub(crate) node: NodeIndex,
    /// The kind that the node must have (see [`kind_of`]): valid, of the meganode's role, and one level below
    /// its parent.
    pub(crate) kind: u8,
    retries: u32,
    right_moves: u32,
}

impl Cursor {
    #[inline(always)]
    pub(crate) fn is_at_leaf(&self) -> bool {
        MeganodeRole::Data.mark(self.kind) == kind_of(MeganodeRole::Data, 0)
    }
}

/// What a leaf answers to a descent.
pub(crate) enum LeafAnswer<T> {
    Here(T),
    Right(Pointer),
    Restart,
}

impl<'a, W: Words + ?Sized> Meganode<'a, W> {
    /// A reader of the meganode of entries in a slot.
    ///
    /// # Panics
    /// If the words do not hold the slot.
    #[must_use]
    pub fn new(words: &'a W, geometry: Geometry, slot: Slot) -> Meganode<'a, W> {
        let slot_word = geometry.slot_word(slot.index);
        let end = slot_word + geometry.nodes() * geometry.node_words();
        assert!(end <= words.len(), "the words end before the slot does");
        Meganode {
            words,
            geometry,
            slot,
            role: MeganodeRole::Data,
            slot_word,
            nodes: geometry.nodes(),
            retry_count_max: RETRY_COUNT_MAX,
        }
    }

    /// The same reader with another bound on retries.
    #[must_use]
    pub fn with_retries(self, retry_count_max: u32) -> Meganode<'a, W> {
        Meganode { retry_count_max, ..self }
    }

    /// The same reader of a meganode of this role: one of another is not the one that is meant.
    #[must_use]
    pub fn with_role(self, role: MeganodeRole) -> Meganode<'a, W> {
        Meganode { role, ..self }
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
    pub fn search(&self, key: &[u8]) -> Result<SearchResult, ReadError> {
        self.search_asking(key, |_| {})
    }

    /// As [`Meganode::search`]. What the leaf says of the key is handed to `ask` before it is known whether
    /// that is of one moment: it may be wrong in any way, and serves to ask for cache lines ahead of use.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn search_asking(&self, key: &[u8], ask: impl Fn(&LeafEntry)) -> Result<SearchResult, ReadError> {
        sized!(self.geometry, B => self.search_sized::<B>(key, ask))
    }

    fn search_sized<const B: usize>(
        &self,
        key: &[u8],
        ask: impl Fn(&LeafEntry),
    ) -> Result<SearchResult, ReadError> {
        self.check_key(key)?;
        let probe = Probe::new(key);
        let ignore = |_, _| {};
        self.descend::<B, _>(&probe, ignore, |node, view, header| {
            let entry = match view.lookup(header, &probe) {
                Lookup::Hit(entry) => {
                    ask(&entry);
                    Some(entry)
                }
                Lookup::Miss => None,
                Lookup::Right(right) => return LeafAnswer::Right(right),
                Lookup::Restart => return LeafAnswer::Restart,
            };
            LeafAnswer::Here(SearchResult {
                entry,
                node,
                csn_changed: view.csn_changed(),
                csn_removed: view.csn_removed(),
            })
        })
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), ReadError> {
        if key.is_empty() || key.len() > self.geometry.key_max() {
            return Err(ReadError::KeyLength(key.len()));
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn view<const B: usize>(&self, node: NodeIndex) -> View<'a, W, B> {
        View::new(self.words, self.slot_word + node.get() * (B / 8))
    }

    /// Index of a node's first word.
    #[inline(always)]
    pub(crate) fn node_word(&self, node: NodeIndex) -> usize {
        self.slot_word + node.get() * self.geometry.node_words()
    }

    /// Goes down to the leaf whose range has the key and lets `read` answer from it; `passed` is called for
    /// every inner node on the way and its level.
    #[inline(always)]
    pub(crate) fn descend<const B: usize, T>(
        &self,
        probe: &Probe<'_>,
        passed: impl FnMut(NodeIndex, u8),
        read: impl Fn(NodeIndex, &View<'a, W, B>, &Header) -> LeafAnswer<T>,
    ) -> Result<T, ReadError> {
        self.descend_from(self.root::<B>()?, probe, passed, read)
    }

    /// As [`Meganode::descend`], from where a descent already is.
    #[inline(always)]
    pub(crate) fn descend_from<const B: usize, T>(
        &self,
        mut cursor: Cursor,
        probe: &Probe<'_>,
        mut passed: impl FnMut(NodeIndex, u8),
        read: impl Fn(NodeIndex, &View<'a, W, B>, &Header) -> LeafAnswer<T>,
    ) -> Result<T, ReadError> {
        loop {
            let node = cursor.node;
            let view = self.view::<B>(node);
            let Some(version) = view.begin() else {
                self.retry(&mut cursor)?;
                continue;
            };
            let header = view.header();
            let level = header.level();
            if header.kind != cursor.kind {
                self.not_expected(&mut cursor, &view, version)?;
            } else if header.is_inner() {
                let hop = view.hop(&header, probe);
                if !view.is_still(version) {
                    self.retry(&mut cursor)?;
                    continue;
                }
                match hop {
                    Hop::Child(child) => {
                        passed(node, level);
                        self.enter(&mut cursor, child, level - 1)?;
                        self.prefetch_at::<B>(&cursor);
                    }
                    Hop::Right(right) => self.move_right(&mut cursor, right, level)?,
                    Hop::Restart => self.restart_for::<B>(&mut cursor, probe)?,
                }
            } else {
                let answer = read(node, &view, &header);
                if !view.is_still(version) {
                    self.retry(&mut cursor)?;
                    continue;
                }
                match answer {
                    LeafAnswer::Here(answer) => return Ok(answer),
                    LeafAnswer::Right(right) => self.move_right(&mut cursor, right, level)?,
                    LeafAnswer::Restart => self.restart_for::<B>(&mut cursor, probe)?,
                }
            }
        }
    }

    /// Goes down through inner nodes until a leaf is next, and asks for its cache lines. Stops early wherever
    /// a descent would have to try again: that is for who goes on from here.
    pub(crate) fn descend_to_leaf<const B: usize>(
        &self,
        probe: &Probe<'_>,
        mut passed: impl FnMut(NodeIndex, u8),
    ) -> Result<Cursor, ReadError> {
        let mut cursor = self.root::<B>()?;
        while !cursor.is_at_leaf() {
            let view = self.view::<B>(cursor.node);
            let hop = view.stable(|view| {
                let header = view.header();
                (header.kind == cursor.kind).then(|| (view.hop(&header, probe), header.level()))
            });
            let Some(Some((Hop::Child(child), level))) = hop else { break };
            passed(cursor.node, level);
            self.enter(&mut cursor, child, level.wrapping_sub(1))?;
            self.prefetch_at::<B>(&cursor);
        }
        Ok(cursor)
    }

    /// A search's beginning.
    #[inline(always)]
    pub(crate) fn root<const B: usize>(&self) -> Result<Cursor, ReadError> {
        let kind = self.view::<B>(NodeIndex::ROOT).header().kind;
        let role = if mutant::planted(Mutant::RoleIgnored) { MeganodeRole::of(kind) } else { self.role };
        if kind != kind_of(role, kind & LEVEL_MASK) {
            return Err(ReadError::NotHere);
        }
        Ok(Cursor { node: NodeIndex::ROOT, kind, retries: 0, right_moves: 0 })
    }

    /// The node is not what was expected: the root again, or the same node if that was seen in the middle of
    /// a change.
    #[cold]
    pub(crate) fn not_expected<const B: usize>(
        &self,
        cursor: &mut Cursor,
        view: &View<'_, W, B>,
        version: u64,
    ) -> Result<(), ReadError> {
        if view.is_still(version) { self.restart::<B>(cursor) } else { self.retry(cursor) }
    }

    /// Goes down to a child.
    #[inline(always)]
    pub(crate) fn enter(&self, cursor: &mut Cursor, child: NodeIndex, level: u8) -> Result<(), ReadError> {
        if child.get() >= self.nodes {
            // Damaged: no node is of this kind.
            cursor.kind = u8::MAX;
            return Ok(());
        }
        cursor.node = child;
        cursor.kind = kind_of(self.role, level);
        Ok(())
    }

    /// Asks for the cache lines of the node that a search has come to: all of a leaf, whose cells can be
    /// anywhere, and of an inner node what routing touches.
    #[inline(always)]
    pub(crate) fn prefetch_at<const B: usize>(&self, cursor: &Cursor) {
        let view = self.view::<B>(cursor.node);
        // Two calls, each of a number of lines that is known when it is compiled.
        if cursor.is_at_leaf() {
            view.prefetch(0, B);
        } else {
            view.prefetch(0, B * 5 / 8);
        }
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
        cursor.kind = kind_of(self.role, level);
        Ok(())
    }

    /// The key is below the node: from the root again, unless it is below the root too.
    #[cold]
    pub(crate) fn restart_for<const B: usize>(
        &self,
        cursor: &mut Cursor,
        probe: &Probe<'_>,
    ) -> Result<(), ReadError> {
        let root = self.view::<B>(NodeIndex::ROOT);
        if root.stable(|root| root.compare_low(&root.header(), probe)) == Some(Ordering::Greater) {
            return Err(ReadError::NotHere);
        }
        self.restart::<B>(cursor)
    }

    /// The node was not the one that was meant: from the root again.
    #[cold]
    pub(crate) fn restart<const B: usize>(&self, cursor: &mut Cursor) -> Result<(), ReadError> {
        self.retry(cursor)?;
        let root = self.root::<B>()?;
        (cursor.node, cursor.kind) = (root.node, root.kind);
        Ok(())
    }

    /// The node changed under the reader: the same node again.
    #[cold]
    pub(crate) fn retry(&self, cursor: &mut Cursor) -> Result<(), ReadError> {
        self.retry_again(&mut cursor.retries)
    }

    pub(crate) fn retry_again(&self, retries: &mut u32) -> Result<(), ReadError> {
        *retries += 1;
        if *retries > self.retry_count_max {
            return Err(ReadError::Retries(*retries - 1));
        }
        std::hint::spin_loop();
        Ok(())
    }
}
