//! A copied tree node: what a client that read it over a fabric searches, and what tools show.

use cell_terms::{Csn, Pointer, Words};

use crate::check::{NodeImageError, check_page};
use crate::geometry::{Geometry, NodeIndex};
use crate::layout::{CRC, WORD_BYTES, kind_of};
use crate::mutant::{self, Mutant};
use crate::page::Page;
use crate::probe::Probe;
use crate::role::MeganodeRole;
use crate::search::{Meganode, ReadError, SearchResult, sized};
use crate::seek::{Hop, Lookup};
use crate::snapshot::LeafSnapshot;
use crate::state::TreeNodeState;
use crate::view::{Header, LeafEntry, View};

/// Why a copy cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Not the size of a tree node.
    #[error("{0} words are no tree node")]
    Size(usize),
    /// A writer was at work while the node was copied: read it again.
    #[error("the tree node changed while it was copied")]
    Torn,
}

/// What a copied node says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// Go on at this node of the same slot, one level down.
    Child(NodeIndex),
    /// Go on at this node of the same level; the parent that led here is stale.
    Right(Pointer),
    /// The leaf's answer.
    Leaf(SearchResult),
    /// The node is invalid or was reused: start again, the way here was stale.
    NotHere,
}

/// A consistent copy of a tree node. Its content may still be anything: it comes from another machine.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a> {
    pub(crate) geometry: Geometry,
    node: NodeIndex,
    pub(crate) words: &'a [u64],
}

impl<'a> NodeRef<'a> {
    /// Takes words that were read in address order, and checks the versions. Where reads are not ordered, the
    /// CRC-64 that [`Geometry::with_node_crc`] asks writers for decides: it is checked if the geometry has
    /// it.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn new(geometry: Geometry, node: NodeIndex, words: &'a [u64]) -> Result<NodeRef<'a>, CopyError> {
        if words.len() != geometry.node_words() {
            return Err(CopyError::Size(words.len()));
        }
        let copy = NodeRef { geometry, node, words };
        let torn = words[0] & 1 != 0 || words[0] != words[words.len() - 1];
        if torn || geometry.node_crc() && node_crc(geometry, words) != words[CRC / WORD_BYTES] {
            return Err(CopyError::Torn);
        }
        Ok(copy)
    }

    fn header(&self) -> Header {
        sized!(self.geometry, B => View::<[u64], B>::new(self.words, 0).header())
    }

    /// What the node says about a key. A router's has no entries: [`NodeStep::NotHere`].
    #[must_use]
    pub fn step(&self, key: &[u8]) -> NodeStep {
        let probe = Probe::new(key);
        sized!(self.geometry, B => {
            let view = View::<[u64], B>::new(self.words, 0);
            let header = view.header();
            if header.kind != kind_of(header.role(), header.level()) || !is_of(&header, MeganodeRole::Data) {
                return NodeStep::NotHere;
            }
            let right = |right: Pointer| {
                if right.is_null() { NodeStep::NotHere } else { NodeStep::Right(right) }
            };
            if header.is_inner() {
                return match view.hop(&header, &probe) {
                    Hop::Child(child) if child.get() < self.geometry.nodes() => NodeStep::Child(child),
                    Hop::Right(pointer) => right(pointer),
                    Hop::Child(_) | Hop::Restart => NodeStep::NotHere,
                };
            }
            let entry = match view.lookup(&header, &probe) {
                Lookup::Hit(entry) => Some(entry),
                Lookup::Miss => None,
                Lookup::Right(pointer) => return right(pointer),
                Lookup::Restart => return NodeStep::NotHere,
            };
            let (csn_changed, csn_removed) = (view.csn_changed(), view.csn_removed());
            NodeStep::Leaf(SearchResult { entry, node: self.node, csn_changed, csn_removed })
        })
    }

    /// Fills a snapshot from a leaf; false if the node is none.
    #[must_use]
    pub fn snapshot(&self, leaf: &mut LeafSnapshot) -> bool {
        self.is_valid() && self.snapshot_built(leaf)
    }

    /// Fills a snapshot from a leaf that may be hidden: for its owner and for copies of all there is. False
    /// if the node is none.
    #[must_use]
    pub fn snapshot_built(&self, leaf: &mut LeafSnapshot) -> bool {
        if !self.state().is_built() || self.level() != 0 {
            return false;
        }
        sized!(self.geometry, B => leaf.fill(&View::<[u64], B>::new(self.words, 0), self.node));
        true
    }

    /// Hands a leaf's entries to `each`, in key order; none if the node is no leaf in use.
    pub fn leaf_entries(&self, mut each: impl FnMut(LeafEntry)) {
        let header = self.header();
        if self.state().is_built() && !header.is_inner() {
            sized!(self.geometry, B => {
                let view = View::<[u64], B>::new(self.words, 0);
                (0..header.count).for_each(|i| each(view.leaf_entry(&view.cell(&header, i))));
            });
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The words, versions included; they are little-endian where they are stored.
    #[must_use]
    pub fn words(&self) -> &'a [u64] {
        self.words
    }

    /// Checks every rule that one node can keep or break.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), NodeImageError> {
        sized!(self.geometry, B => check_page(self.geometry, &Page::<B>::load(self.words, 0)))
    }

    /// The node's place in its slot, as the caller gave it.
    #[must_use]
    pub fn node(&self) -> NodeIndex {
        self.node
    }

    /// Whether readers may use the node.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state() == TreeNodeState::Valid
    }

    /// Whether the node is in use, and whether readers may see it.
    #[must_use]
    pub fn state(&self) -> TreeNodeState {
        self.header().state()
    }

    /// Whether its meganode is of a role: a reader who came by a pointer asks, because that may be stale.
    #[must_use]
    pub fn is_of(&self, role: MeganodeRole) -> bool {
        is_of(&self.header(), role)
    }

    /// The level: 0 for leaves.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.header().level()
    }

    /// How many entries there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.header().count
    }

    /// Bytes that neither entries nor header use, garbage included.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.header().free() + self.header().garbage
    }

    /// The child of entry `i` of an inner node.
    #[must_use]
    pub fn child(&self, i: usize) -> Option<NodeIndex> {
        let header = self.header();
        (header.is_inner() && i < header.count)
            .then(|| sized!(self.geometry, B => View::<[u64], B>::new(self.words, 0).child(&header, i)))
    }

    /// The low fence.
    #[must_use]
    pub fn low(&self) -> Vec<u8> {
        let header = self.header();
        let mut low = vec![0; header.low_len.min(self.geometry.key_max())];
        sized!(self.geometry, B => View::<[u64], B>::new(self.words, 0).low(&header, &mut low));
        low
    }

    /// The high fence; `None` for plus infinity.
    #[must_use]
    pub fn high(&self) -> Option<Vec<u8>> {
        let header = self.header();
        let mut high = vec![0; self.geometry.key_max()];
        let len = sized!(self.geometry, B => View::<[u64], B>::new(self.words, 0).high(&header, &mut high))?;
        high.truncate(len);
        Some(high)
    }

    /// The right link.
    #[must_use]
    pub fn right(&self) -> Pointer {
        Pointer(self.words[crate::layout::RIGHT / WORD_BYTES])
    }

    /// CSN of the last change.
    #[must_use]
    pub fn csn_changed(&self) -> Csn {
        Csn(self.words[crate::layout::CSN_CHANGED / WORD_BYTES])
    }

    /// CSN of the last removal.
    #[must_use]
    pub fn csn_removed(&self) -> Csn {
        Csn(self.words[crate::layout::CSN_REMOVED / WORD_BYTES])
    }
}

fn is_of(header: &Header, role: MeganodeRole) -> bool {
    header.role() == role || mutant::planted(Mutant::RoleIgnored)
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// Copies a live node to `out`, in address order, until the copy is of one moment: what a checkpointer
    /// writes and a check reads. Invalid nodes too.
    ///
    /// # Errors
    /// [`ReadError::Retries`] if a writer was in the way as often as this reader tries.
    ///
    /// # Panics
    /// If the slot has no such node or `out` is not the size of one.
    pub fn copy_node<'o>(&self, node: NodeIndex, out: &'o mut [u64]) -> Result<NodeRef<'o>, ReadError> {
        assert!(node.get() < self.geometry.nodes(), "the slot has no {node}");
        assert!(out.len() == self.geometry.node_words(), "room for one tree node");
        let mut retries = 0;
        loop {
            copy_in_order(self.words, self.node_word(node), out);
            if out[0] & 1 == 0 && out[0] == out[out.len() - 1] {
                return Ok(NodeRef { geometry: self.geometry, node, words: out });
            }
            self.retry_again(&mut retries)?;
        }
    }

    /// The right link of a live node, read as [`Meganode::copy_node`] would read it, without the rest.
    ///
    /// # Errors
    /// [`ReadError::Retries`] if a writer was in the way as often as this reader tries.
    ///
    /// # Panics
    /// If the slot has no such node.
    pub fn right_link(&self, node: NodeIndex) -> Result<Pointer, ReadError> {
        assert!(node.get() < self.geometry.nodes(), "the slot has no {node}");
        let base = self.node_word(node);
        let mut retries = 0;
        loop {
            let first = self.words.load(base);
            self.words.fence_acquire();
            let right = self.words.load(base + crate::layout::RIGHT / WORD_BYTES);
            self.words.fence_acquire();
            let last = self.words.load(base + self.geometry.node_words() - 1);
            if first & 1 == 0 && first == last {
                return Ok(Pointer(right));
            }
            self.retry_again(&mut retries)?;
        }
    }

    /// Appends the entries of a leaf, in key order; none for a node that is free, no leaf or always changing.
    pub fn leaf_entries(&self, node: NodeIndex, out: &mut Vec<LeafEntry>) {
        let mut words = vec![0; self.geometry.node_words()];
        if let Ok(copy) = self.copy_node(node, &mut words) {
            copy.leaf_entries(|entry| out.push(entry));
        }
    }
}

/// Copies words from `base` on, the first before and the last behind all others.
fn copy_in_order<W: Words + ?Sized>(words: &W, base: usize, out: &mut [u64]) {
    let last = out.len() - 1;
    out[0] = words.load(base);
    words.fence_acquire();
    for (i, word) in out.iter_mut().enumerate().take(last).skip(1) {
        *word = words.load(base + i);
    }
    words.fence_acquire();
    out[last] = words.load(base + last);
}

/// The CRC-64 that a node's words should carry, its own word taken as zero.
///
/// # Panics
/// If there are fewer words than a node has.
#[must_use]
pub fn node_crc(geometry: Geometry, words: &[u64]) -> u64 {
    sized!(geometry, B => Page::<B>::load(words, 0).crc())
}
