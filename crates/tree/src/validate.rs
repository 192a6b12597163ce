//! Checking a whole meganode: every structural invariant.

use cell_terms::{Csn, Pointer, Words};

use crate::check::NodeImageError;
use crate::geometry::NodeIndex;
use crate::layout::{LEVELS_MAX, heap_end};
use crate::mutant::{self, Mutant};
use crate::page::Page;
use crate::search::{Meganode, sized};
use crate::slot::SlotAllocator;
use crate::state::TreeNodeState;
use crate::view::View;

/// What a meganode holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Levels, leaves included.
    pub height: u8,
    /// By level, leaves first.
    pub levels: Vec<LevelStats>,
    /// Keys.
    pub entries: u64,
    /// Bytes of all keys, whole.
    pub key_bytes: u64,
}

impl TreeStats {
    /// Tree nodes of all levels.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.levels.iter().map(|level| level.nodes).sum()
    }

    /// Bytes of tree nodes for each byte of keys: what the index costs.
    #[must_use]
    pub fn node_bytes_per_entry(&self, node_bytes: usize) -> f64 {
        self.nodes() as f64 * node_bytes as f64 / self.entries.max(1) as f64
    }
}

/// What one level holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Tree nodes.
    pub nodes: u64,
    /// Their entries.
    pub entries: u64,
    /// Bytes in use, headers and fences included, garbage and free space not.
    pub used_bytes: u64,
    /// Bytes of the heaps that no entry uses.
    pub garbage_bytes: u64,
    /// Nodes by fill: the first counts those below 10 %, the last those from 90 %.
    pub fill: [u64; 10],
}

/// The invariant that a meganode breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StructureViolation {
    /// No consistent copy was got: a writer is at work.
    #[error("{0} changes all the time")]
    Torn(NodeIndex),
    /// A node that is reached is not readable, or of a hidden meganode not hidden.
    #[error("{0} is reached but not in the state of its meganode")]
    Invalid(NodeIndex),
    /// A node of a router where one of entries should be, or the other way round.
    #[error("{0} is not of its meganode's role")]
    Role(NodeIndex),
    /// A node breaks a rule of the layout.
    #[error("{node}: {error}")]
    Node {
        /// The node.
        node: NodeIndex,
        /// Which rule.
        error: NodeImageError,
    },
    /// A child is not one level below its parent, or the root is too high.
    #[error("{node} has level {level} and should have {expected}")]
    Level {
        /// The node.
        node: NodeIndex,
        /// Its level.
        level: u8,
        /// Its parent's less one.
        expected: u8,
    },
    /// A node's low fence is not what its parent or left neighbour says.
    #[error("the low fence of {0} is not its parent's separator and its neighbour's high fence")]
    LowFence(NodeIndex),
    /// The last node of a level does not end where the root does.
    #[error("{0} is the last of its level and does not end where the root does")]
    HighFence(NodeIndex),
    /// A node's right link does not lead to its neighbour, or the last one's stays in the meganode.
    #[error("the right link of {0} is wrong")]
    RightLink(NodeIndex),
    /// A node is reached twice.
    #[error("{0} is reached twice")]
    ReachedTwice(NodeIndex),
    /// A node in use that is not reachable: an orphan that readers could take for the truth.
    #[error("{0} is in use but cannot be reached")]
    Orphan(NodeIndex),
    /// The CRC-64 of a node is wrong, where nodes carry one.
    #[error("the CRC-64 of {0} is wrong")]
    Crc(NodeIndex),
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// Checks every invariant of the meganode and says what it holds.
    ///
    /// Nodes are read as any reader reads them, but what is checked across nodes needs a meganode that does
    /// not change meanwhile: call it at the owner, or where nobody writes. With `full`, also that no other
    /// node of the slot is in use, which reads the whole slot.
    ///
    /// # Errors
    /// The first [`StructureViolation`].
    pub fn validate(&self, full: bool) -> Result<TreeStats, StructureViolation> {
        self.validate_as(TreeNodeState::Valid, full)
    }

    /// [`Meganode::validate`] for a meganode whose tree nodes are all in this state: hidden ones are checked
    /// by the same rules before anybody sees them.
    ///
    /// # Errors
    /// The first [`StructureViolation`].
    pub fn validate_as(&self, state: TreeNodeState, full: bool) -> Result<TreeStats, StructureViolation> {
        sized!(self.geometry, B => Walk::<W, B>::new(self, state, None).run(full))
    }

    /// [`Meganode::validate_as`], without `full`, of a meganode that was checked before: what stands within a
    /// tree node that has not changed since is not checked again, for which there must be nothing else that
    /// writes to it. Levels, fences and links are compared as always, because neighbours change apart.
    ///
    /// # Errors
    /// The first [`StructureViolation`].
    pub fn validate_again(
        &self,
        state: TreeNodeState,
        checked: Option<Csn>,
    ) -> Result<TreeStats, StructureViolation> {
        sized!(self.geometry, B => Walk::<W, B>::new(self, state, checked).run(false))
    }

    /// Checks the tree nodes on the way to a key, each by itself and against the one above it: for the owner,
    /// after a step. False if the key is not here, or if no reader may look here.
    ///
    /// # Errors
    /// The first [`StructureViolation`].
    pub fn validate_path(&self, key: &[u8]) -> Result<bool, StructureViolation> {
        sized!(self.geometry, B => Walk::<W, B>::new(self, TreeNodeState::Valid, None).path(key))
    }

    /// The nodes of the slot that are in use, hidden or valid, in ascending order.
    pub fn built_nodes(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        let nodes = u32::try_from(self.geometry.nodes()).unwrap_or(u32::MAX);
        (0..nodes)
            .map(NodeIndex)
            .filter(|node| sized!(self.geometry, B => self.view::<B>(*node).header().state().is_built()))
    }

    /// The allocator of this slot as its nodes' states show: for the owner, after recovery.
    ///
    /// # Panics
    /// If the root is not in use.
    #[must_use]
    pub fn allocator(&self) -> SlotAllocator {
        let height = sized!(self.geometry, B => self.view::<B>(NodeIndex::ROOT).header().level() + 1);
        SlotAllocator::restore(self.geometry.nodes(), height, self.built_nodes())
    }
}

/// A node as the level above announces it.
pub(crate) struct Announced {
    pub(crate) node: NodeIndex,
    pub(crate) low: Vec<u8>,
}

/// A check under way; [`crate::validate_node`] checks single nodes with it.
pub(crate) struct Walk<'m, 'a, W: Words + ?Sized, const B: usize> {
    pub(crate) meganode: &'m Meganode<'a, W>,
    state: TreeNodeState,
    /// What has not changed since was checked within before.
    checked: Option<Csn>,
    /// A bit a tree node that was reached.
    reached: Vec<u64>,
    stats: TreeStats,
}

/// Tree nodes of a level that are asked of memory ahead of the one that is checked.
const NODES_AHEAD: usize = 4;

impl<'m, 'a, W: Words + ?Sized, const B: usize> Walk<'m, 'a, W, B> {
    pub(crate) fn new(meganode: &'m Meganode<'a, W>, state: TreeNodeState, checked: Option<Csn>) -> Self {
        Walk { meganode, state, checked, reached: Vec::new(), stats: TreeStats::default() }
    }

    fn run(mut self, full: bool) -> Result<TreeStats, StructureViolation> {
        let root = self.copy(NodeIndex::ROOT)?;
        let (high, right) = (high_of(&root), root.view().right());
        let level = root.view().header().level();
        self.stats.height = level + 1;
        self.stats.levels = vec![LevelStats::default(); usize::from(level) + 1];
        let mut announced = vec![Announced { node: NodeIndex::ROOT, low: low_of(&root) }];
        for level in (0..=level).rev() {
            announced = self.level(level, &announced, high.as_deref(), right)?;
        }
        if full {
            let built = self.meganode.built_nodes();
            if let Some(orphan) = built.into_iter().find(|node| !self.is_reached(*node)) {
                return Err(StructureViolation::Orphan(orphan));
            }
        }
        Ok(self.stats)
    }

    fn path(&self, key: &[u8]) -> Result<bool, StructureViolation> {
        let root = self.meganode.view::<B>(NodeIndex::ROOT);
        if root.header().state() != self.state {
            return Ok(false);
        }
        let mut page = self.copy(NodeIndex::ROOT)?;
        if key < low_of(&page).as_slice() || high_of(&page).is_some_and(|high| key >= high.as_slice()) {
            return Ok(false);
        }
        loop {
            let (level, low) = (page.view().header().level(), low_of(&page));
            let mut below = Vec::new();
            announce(&page, &low, &mut below);
            let after = below.partition_point(|child| child.low.as_slice() <= key);
            let Some(Announced { node, low }) = after.checked_sub(1).and_then(|at| below.get(at)) else {
                return Ok(true);
            };
            let (node, child) = (*node, self.copy(*node)?);
            let found = child.view().header().level();
            if level == 0 || found != level - 1 {
                return Err(StructureViolation::Level {
                    node,
                    level: found,
                    expected: level.saturating_sub(1),
                });
            }
            if low_of(&child) != *low {
                return Err(StructureViolation::LowFence(node));
            }
            let high = below.get(after).map(|next| next.low.clone()).or_else(|| high_of(&page));
            if high_of(&child) != high {
                return Err(StructureViolation::HighFence(node));
            }
            page = child;
        }
    }

    /// A copy of a tree node that keeps all rules of the layout.
    pub(crate) fn copy(&self, node: NodeIndex) -> Result<Page<B>, StructureViolation> {
        let page = self.peek(node)?;
        self.check(node, &page)?;
        Ok(page)
    }

    /// A copy of a tree node as of one moment: its bytes may be anything.
    pub(crate) fn peek(&self, node: NodeIndex) -> Result<Page<B>, StructureViolation> {
        let mut page = Page::<B>::zeroed();
        for _ in 0..crate::search::RETRY_COUNT_MAX {
            page.copy_from(self.meganode.words, self.meganode.node_word(node));
            if page.is_consistent() {
                return Ok(page);
            }
        }
        Err(StructureViolation::Torn(node))
    }

    fn check(&self, node: NodeIndex, page: &Page<B>) -> Result<(), StructureViolation> {
        if page.view().header().state() != self.state {
            return Err(StructureViolation::Invalid(node));
        }
        if page.view().header().role() != self.meganode.role {
            return Err(StructureViolation::Role(node));
        }
        let unchanged = self.checked.is_some_and(|checked| page.view().csn_changed() <= checked);
        if unchanged || self.checked.is_some() && mutant::planted(Mutant::ChangedNodeUnchecked) {
            return Ok(());
        }
        if self.meganode.geometry.node_crc() && page.crc() != page.word(crate::layout::CRC / 8) {
            return Err(StructureViolation::Crc(node));
        }
        let checked = crate::check::check_page(self.meganode.geometry, page);
        checked.map_err(|error| StructureViolation::Node { node, error })
    }

    fn is_reached(&self, node: NodeIndex) -> bool {
        self.reached.get(node.get() / 64).is_some_and(|bits| bits >> (node.get() % 64) & 1 == 1)
    }

    fn reach(&mut self, node: NodeIndex) -> Result<(), StructureViolation> {
        if self.is_reached(node) {
            return Err(StructureViolation::ReachedTwice(node));
        }
        let word = node.get() / 64;
        self.reached.resize(self.reached.len().max(word + 1), 0);
        self.reached[word] |= 1 << (node.get() % 64);
        Ok(())
    }

    /// Checks one level from left to right and returns what it announces of the next.
    fn level(
        &mut self,
        level: u8,
        announced: &[Announced],
        root_high: Option<&[u8]>,
        root_right: Pointer,
    ) -> Result<Vec<Announced>, StructureViolation> {
        let mut below = Vec::new();
        let (mut lows, mut ends) = ([0; B], [0; B]);
        let first = announced.first().map_or(&[][..], |first| &first.low);
        ends[..first.len()].copy_from_slice(first);
        let mut end = Some(first.len());
        for (i, Announced { node, low }) in announced.iter().enumerate() {
            let node = *node;
            if let Some(ahead) = announced.get(i + NODES_AHEAD) {
                self.meganode.view::<B>(ahead.node).prefetch(0, B);
            }
            self.reach(node)?;
            let page = self.copy(node)?;
            let found = page.view().header().level();
            if found != level || usize::from(level) >= LEVELS_MAX {
                return Err(StructureViolation::Level { node, level: found, expected: level });
            }
            let own = low_in(&page, &mut lows);
            if own != low.as_slice() || end.map(|len| &ends[..len]) != Some(own) {
                return Err(StructureViolation::LowFence(node));
            }
            end = page.view().high(&page.view().header(), &mut ends);
            let next = announced.get(i + 1).map(|next| next.node);
            let right =
                next.map_or(root_right, |next| self.meganode.geometry.pointer(self.meganode.slot, next));
            if page.view().right() != right {
                return Err(StructureViolation::RightLink(node));
            }
            if next.is_none() && end.map(|len| &ends[..len]) != root_high {
                return Err(StructureViolation::HighFence(node));
            }
            self.count(level, &page);
            announce(&page, own, &mut below);
        }
        Ok(below)
    }

    fn count(&mut self, level: u8, page: &Page<B>) {
        let (view, header) = (page.view(), page.view().header());
        let stats = &mut self.stats.levels[usize::from(level)];
        let used = header.arrays_end() + (heap_end(B) - header.heap_low - header.garbage) + (B - heap_end(B));
        stats.nodes += 1;
        stats.entries += header.count as u64;
        stats.used_bytes += used as u64;
        stats.garbage_bytes += header.garbage as u64;
        stats.fill[(used * 10 / B).min(9)] += 1;
        if level == 0 {
            self.stats.entries += header.count as u64;
            let suffixes: usize = (0..header.count).map(|i| view.cell(&header, i).suffix_len).sum();
            self.stats.key_bytes += (suffixes + header.count * header.prefix) as u64;
        }
    }
}

/// Adds what an inner node says of its children.
pub(crate) fn announce<const B: usize>(page: &Page<B>, low: &[u8], below: &mut Vec<Announced>) {
    let (view, header) = (page.view(), page.view().header());
    if !header.is_inner() {
        return;
    }
    let mut suffix = [0; crate::compose::SUFFIX_BUFFER];
    for i in 0..header.count {
        let len = view.suffix(&header, i, &mut suffix);
        let separator = [&low[..header.prefix.min(low.len())], &suffix[..len]].concat();
        let low = if i == 0 { low.to_vec() } else { separator };
        below.push(Announced { node: view.child(&header, i), low });
    }
}

pub(crate) fn low_of<const B: usize>(page: &Page<B>) -> Vec<u8> {
    low_in(page, &mut [0; B]).to_vec()
}

fn low_in<'b, const B: usize>(page: &Page<B>, buffer: &'b mut [u8; B]) -> &'b [u8] {
    let len = View::<Page<B>, B>::new(page, 0).low(&page.view().header(), buffer);
    &buffer[..len]
}

pub(crate) fn high_of<const B: usize>(page: &Page<B>) -> Option<Vec<u8>> {
    let mut high = vec![0; B];
    let len = page.view().high(&page.view().header(), &mut high)?;
    high.truncate(len);
    Some(high)
}
