//! Building a meganode from sorted entries, densely, bottom up.
//!
//! A [`BulkBuilder`] is pushed one entry after another and holds nothing of its caller's meanwhile, so that a
//! worker can adopt a meganode in small steps between its requests; [`bulk_build`] does it in one go.

use cell_terms::{Csn, Pointer};

use crate::change::{Change, Image};
use crate::compose::{Composer, Frame, Value};
use crate::geometry::{Geometry, NodeIndex, Slot};
use crate::layout::{LEVELS_MAX, common_prefix, entry_bytes};
use crate::role::MeganodeRole;
use crate::search::sized;
use crate::slot::SlotAllocator;
use crate::state::TreeNodeState;
use crate::view::LeafEntry;

/// What a built meganode covers, and how it is built.
#[derive(Clone, Copy, Debug)]
pub struct BulkFrame<'a> {
    /// Keys are at or above this; empty for the first meganode.
    pub low: &'a [u8],
    /// Keys are below this; `None` for plus infinity.
    pub high: Option<&'a [u8]>,
    /// Where the keys from `high` on are; null if there is no `high`.
    pub right: Pointer,
    /// CSN of removal of all nodes: for what is built in another pair, that pair's own.
    pub csn_removed: Csn,
    /// Whether the nodes can be read at once. What is adopted stays hidden until its split is settled.
    pub state: TreeNodeState,
    /// How full nodes become, in percent; the rest is left for inserts. At most 100.
    pub fill_percent: usize,
    /// What its entries lead to.
    pub role: MeganodeRole,
}

impl BulkFrame<'_> {
    /// Entries, over everything, readable at once, nine tenths full.
    pub const WHOLE: BulkFrame<'static> = BulkFrame {
        low: &[],
        high: None,
        right: Pointer::NULL,
        csn_removed: Csn::ZERO,
        state: TreeNodeState::Valid,
        fill_percent: 90,
        role: MeganodeRole::Data,
    };
}

/// What was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkSummary {
    /// Entries.
    pub entries: u64,
    /// Tree nodes, the root included.
    pub nodes: usize,
    /// Levels, leaves included.
    pub height: u8,
}

/// Why a build stopped. The nodes that it took are free again; what was emitted must not become readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// A key is not above the one before it, or is outside of the range.
    #[error("the key of entry {0} is out of order or out of range")]
    Order(u64),
    /// A key that no tree node takes.
    #[error("the key of entry {entry} has {len} bytes")]
    KeyLength {
        /// Which entry.
        entry: u64,
        /// Its key's length.
        len: usize,
    },
    /// The slot has too few tree nodes.
    #[error("the slot has no tree node left after {0} entries")]
    Full(u64),
}

/// Builds a meganode from entries in key order. `emit` gets one fill after another: children before their
/// parents, the root last, so nothing is reachable before all of it is there. All nodes but the root come
/// from the allocator.
///
/// # Errors
/// See [`BulkError`].
pub fn bulk_build<K: AsRef<[u8]>>(
    geometry: Geometry,
    slot: Slot,
    frame: &BulkFrame<'_>,
    allocator: &mut SlotAllocator,
    entries: impl IntoIterator<Item = (K, LeafEntry)>,
    mut emit: impl FnMut(Change<'_>),
) -> Result<BulkSummary, BulkError> {
    let mut builder = BulkBuilder::new(geometry, slot, frame);
    for (key, entry) in entries {
        if let Err(error) = builder.push(allocator, key.as_ref(), entry, &mut emit) {
            builder.abandon(allocator);
            return Err(error);
        }
    }
    let built = builder.finish(allocator, &mut emit);
    if built.is_err() {
        builder.abandon(allocator);
    }
    built
}

/// Where fills go.
type Emit<'e> = dyn FnMut(Change<'_>) + 'e;

/// Items of one level that are not in a node yet. The last one waits apart: where its node ends depends on
/// the item after it.
#[derive(Debug, Default)]
struct Level {
    keys: Vec<u8>,
    items: Vec<(usize, Value)>,
    low: Vec<u8>,
    /// The place of the node being filled; the first of a level gets one only when there is a second.
    node: Option<NodeIndex>,
}

impl Level {
    fn key(&self, i: usize) -> &[u8] {
        let from = if i == 0 { 0 } else { self.items[i - 1].0 };
        &self.keys[from..self.items[i].0]
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.items.clear();
    }

    fn push(&mut self, key: &[u8], value: Value) {
        self.keys.extend_from_slice(key);
        self.items.push((self.keys.len(), value));
    }
}

/// A meganode that is being built: entries are pushed in key order, each call emits the nodes that became
/// full, and [`BulkBuilder::finish`] the rest, the root last. The allocator is the slot's own, the same one
/// in every call.
///
/// One push emits at most one fill a level, and mostly none. After an error, or to give it up, call
/// [`BulkBuilder::abandon`].
#[derive(Debug)]
pub struct BulkBuilder {
    geometry: Geometry,
    slot: Slot,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    right: Pointer,
    csn_removed: Csn,
    state: TreeNodeState,
    role: MeganodeRole,
    fill_percent: usize,
    levels: Vec<Level>,
    taken: Vec<NodeIndex>,
    last: Vec<u8>,
    entries: u64,
}

impl BulkBuilder {
    /// Begins a meganode in a slot.
    #[must_use]
    pub fn new(geometry: Geometry, slot: Slot, frame: &BulkFrame<'_>) -> BulkBuilder {
        let mut builder = BulkBuilder {
            geometry,
            slot,
            low: frame.low.to_vec(),
            high: frame.high.map(<[u8]>::to_vec),
            right: frame.right,
            csn_removed: frame.csn_removed,
            state: frame.state,
            role: frame.role,
            fill_percent: frame.fill_percent.min(100),
            levels: Vec::new(),
            taken: Vec::new(),
            last: Vec::new(),
            entries: 0,
        };
        builder.begin_level();
        builder
    }

    /// Adds the next entry. What became full goes to `emit`.
    ///
    /// # Errors
    /// See [`BulkError`]: the build cannot go on then.
    pub fn push(
        &mut self,
        allocator: &mut SlotAllocator,
        key: &[u8],
        entry: LeafEntry,
        emit: &mut Emit<'_>,
    ) -> Result<(), BulkError> {
        if key.is_empty() || key.len() > self.geometry.key_max() {
            return Err(BulkError::KeyLength { entry: self.entries, len: key.len() });
        }
        let in_range = *key >= *self.low && self.high.as_ref().is_none_or(|high| *key < **high);
        if !in_range || self.entries > 0 && *key <= *self.last {
            return Err(BulkError::Order(self.entries));
        }
        sized!(self.geometry, B => self.add::<B>(0, key, Value::Leaf(entry), allocator, emit))?;
        self.last.clear();
        self.last.extend_from_slice(key);
        self.entries += 1;
        Ok(())
    }

    /// Closes what is open, level by level; the level that is one node is the root, which is emitted last.
    /// Nothing may be pushed afterwards.
    ///
    /// # Errors
    /// [`BulkError::Full`].
    pub fn finish(
        &mut self,
        allocator: &mut SlotAllocator,
        emit: &mut Emit<'_>,
    ) -> Result<BulkSummary, BulkError> {
        sized!(self.geometry, B => self.finish_sized::<B>(allocator, emit))
    }

    /// Gives the taken nodes back, as if they had never been handed out. What was emitted must not become
    /// readable.
    pub fn abandon(&mut self, allocator: &mut SlotAllocator) {
        while let Some(node) = self.taken.pop() {
            allocator.unallocate(node);
        }
    }

    /// Entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Entries so far that are in no node that was emitted: the last ones. Also after an error.
    #[must_use]
    pub fn entries_open(&self) -> usize {
        self.levels[0].items.len()
    }

    /// The key of the last entry, where a build that is given the rest goes on; empty before the first.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.last
    }

    /// Tree nodes so far, the root included.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.taken.len() + 1
    }

    /// Levels so far, leaves included.
    #[must_use]
    pub fn height(&self) -> usize {
        self.levels.len()
    }

    fn begin_level(&mut self) {
        self.levels.push(Level { low: self.low.clone(), ..Level::default() });
    }

    /// Adds an item to a level. The node is closed in front of the item before it, if that cannot be in it.
    fn add<const B: usize>(
        &mut self,
        level: usize,
        key: &[u8],
        value: Value,
        allocator: &mut SlotAllocator,
        emit: &mut Emit<'_>,
    ) -> Result<(), BulkError> {
        self.settle_last::<B>(level, Some(key), allocator, emit)?;
        self.levels[level].push(key, value);
        Ok(())
    }

    /// Decides whether the last item stays in its node, now that what comes after it is known (`None`:
    /// nothing).
    fn settle_last<const B: usize>(
        &mut self,
        level: usize,
        next: Option<&[u8]>,
        allocator: &mut SlotAllocator,
        emit: &mut Emit<'_>,
    ) -> Result<(), BulkError> {
        let count = self.levels[level].items.len();
        if count < 2 {
            return Ok(());
        }
        let last = self.levels[level].key(count - 1);
        let high = next.map_or(self.high.as_deref(), |next| Some(separator(level, last, next)));
        if self.fits::<B>(level, high) {
            return Ok(());
        }
        self.close_before_last::<B>(level, allocator, emit)
    }

    /// Whether all items of a level fit one node that ends at `high`.
    fn fits<const B: usize>(&self, level: usize, high: Option<&[u8]>) -> bool {
        let items = &self.levels[level];
        let frame = self.node_frame(level, &items.low, high, Pointer::NULL);
        let (prefix, inner) = (frame.prefix(), level > 0);
        let bytes = (0..items.items.len()).map(|i| {
            let len = if inner && i == 0 { 0 } else { items.key(i).len() - prefix };
            entry_bytes(B, inner, len)
        });
        let room = frame.room::<B>();
        let wanted = room * self.fill_percent / 100;
        // Three entries always fit; fewer children would make the tree needlessly high.
        bytes.sum::<usize>() <= if items.items.len() <= 3 { room } else { wanted }
    }

    fn node_frame<'f>(
        &self,
        level: usize,
        low: &'f [u8],
        high: Option<&'f [u8]>,
        right: Pointer,
    ) -> Frame<'f> {
        Frame {
            role: self.role,
            level: u8::try_from(level).unwrap_or(u8::MAX),
            state: self.state,
            low,
            high,
            right,
            csn_changed: Csn::ZERO,
            csn_removed: self.csn_removed,
        }
    }

    /// Emits a node of all items but the last, which begins the next node.
    fn close_before_last<const B: usize>(
        &mut self,
        level: usize,
        allocator: &mut SlotAllocator,
        emit: &mut Emit<'_>,
    ) -> Result<(), BulkError> {
        let node = match self.levels[level].node {
            Some(node) => node,
            None => self.take(level, allocator)?,
        };
        let next = self.take(level, allocator)?;
        let items = &self.levels[level];
        let count = items.items.len() - 1;
        let (key, value) = (items.key(count).to_vec(), items.items[count].1);
        let high = separator(level, items.key(count - 1), &key).to_vec();
        let right = self.geometry.pointer(self.slot, next);
        self.emit_node::<B>(level, node, count, Some(&high), right, emit);
        let low = std::mem::replace(&mut self.levels[level].low, high);
        let items = &mut self.levels[level];
        items.node = Some(next);
        items.clear();
        items.push(&key, value);
        self.add_to_parent::<B>(level, &low, node, allocator, emit)
    }

    fn add_to_parent<const B: usize>(
        &mut self,
        level: usize,
        low: &[u8],
        node: NodeIndex,
        allocator: &mut SlotAllocator,
        emit: &mut Emit<'_>,
    ) -> Result<(), BulkError> {
        if self.levels.len() == level + 1 {
            assert!(level + 1 < LEVELS_MAX, "a slot's nodes make no tree so high");
            self.begin_level();
        }
        self.add::<B>(level + 1, low, Value::Child(node), allocator, emit)
    }

    fn emit_node<const B: usize>(
        &self,
        level: usize,
        node: NodeIndex,
        count: usize,
        high: Option<&[u8]>,
        right: Pointer,
        emit: &mut Emit<'_>,
    ) {
        let items = &self.levels[level];
        let frame = self.node_frame(level, &items.low, high, right);
        let Some(mut composer) = Composer::<B>::begin(&frame, count) else {
            unreachable!("what fits was counted");
        };
        let prefix = composer.prefix();
        for i in 0..count {
            let suffix = if level > 0 && i == 0 { &[][..] } else { &items.key(i)[prefix..] };
            let pushed = composer.push(suffix, items.items[i].1);
            assert!(pushed.is_some(), "what fits was counted");
        }
        let words: Vec<u64> = composer.finish().words().collect();
        emit(Change::Fill { node, image: Image::new(&words) });
    }

    fn finish_sized<const B: usize>(
        &mut self,
        allocator: &mut SlotAllocator,
        emit: &mut Emit<'_>,
    ) -> Result<BulkSummary, BulkError> {
        let mut level = 0;
        loop {
            self.settle_last::<B>(level, None, allocator, emit)?;
            let node = self.levels[level].node;
            let count = self.levels[level].items.len();
            let place = node.unwrap_or(NodeIndex::ROOT);
            self.emit_node::<B>(level, place, count, self.high.as_deref(), self.right, emit);
            self.levels[level].clear();
            let Some(node) = node else { break };
            let low = std::mem::take(&mut self.levels[level].low);
            self.add_to_parent::<B>(level, &low, node, allocator, emit)?;
            level += 1;
        }
        let height = u8::try_from(level + 1).unwrap_or(u8::MAX);
        allocator.set_height(height);
        Ok(BulkSummary { entries: self.entries, nodes: self.nodes(), height })
    }

    fn take(&mut self, level: usize, allocator: &mut SlotAllocator) -> Result<NodeIndex, BulkError> {
        let node = allocator.allocate(u8::from(level > 0)).ok_or(BulkError::Full(self.entries))?;
        self.taken.push(node);
        Ok(node)
    }
}

/// The fence between two neighbours.
fn separator<'k>(level: usize, before: &[u8], after: &'k [u8]) -> &'k [u8] {
    if level == 0 { &after[..common_prefix(before, after) + 1] } else { after }
}
