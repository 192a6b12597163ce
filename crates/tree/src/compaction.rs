//! Compacting a meganode after deletes: run by run, in place, while it is read and written.
//!
//! Nothing merges tree nodes when entries are removed, so deletes leave nodes that hold little. A *run* is a
//! few neighbours under one parent. One step takes a sparse run apart, packs its entries densely into the
//! places of the run's first nodes, and frees the others. A step is one write like any other: planned, logged
//! as fills and marks in one batch, applied. So a crash is before or after it, recovery has nothing to
//! settle, and writes go on between steps. Nothing new is taken, so a slot without a free node can be
//! compacted.
//!
//! # The order of a step's changes
//!
//! First the parent, then the run's nodes from left to right, then the frees. Each new node ends at or right
//! of where the old one in its place ended (`Packed::least`), so every key is found at each moment:
//!
//! 1. the parent leads a key to a node that begins at or left of it: old nodes that end before the key lead
//!    on by their right links;
//! 2. a new node's right link leads to the next place, whose node, old or new, begins at or left of where the
//!    new one ends;
//! 3. who comes by an older copy of the parent to a node that has moved right sees its low fence and begins
//!    again, and so does who comes to a freed one.
//!
//! With the run before its parent, a key between a new node's end and the next place's old beginning would be
//! led there by the old parent, and restarts would find the same parent until the step is done.

use cell_terms::{Csn, Pointer, Words};

use crate::change::{Change, Image};
use crate::compose::{Composer, Frame, Value, value_of};
use crate::fence::Side;
use crate::geometry::NodeIndex;
use crate::layout::{common_prefix, entry_bytes, heap_end};
use crate::mutant::{self, Mutant};
use crate::page::Page;
use crate::plan::PlanError;
use crate::probe::Probe;
use crate::role::MeganodeRole;
use crate::search::{Meganode, sized};
use crate::slot::SlotAllocator;
use crate::state::TreeNodeState;
use crate::view::{Header, View};

/// What a step of a compaction looks for, and how much it does at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionLimits {
    /// A run is compacted if entries are less than so many thousandths of its nodes' bytes.
    pub sparse_permille: usize,
    /// How full the new nodes become, in percent; the rest is left for inserts.
    pub fill_percent: usize,
    /// Nodes of one run that are filled anew, about.
    pub fills: usize,
    /// Nodes of one run.
    pub run: usize,
}

impl CompactionLimits {
    /// Tree nodes that one step fills at most, the parent included.
    #[must_use]
    pub const fn fills_max(&self) -> usize {
        self.fills + 2
    }
}

/// Where a compaction goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionNext {
    /// At the run that begins with the node that has this key.
    From(Vec<u8>),
    /// On the next level, from its beginning.
    LevelDone,
    /// Nowhere: the level is the root's.
    TreeDone,
}

/// The changes of one step, in the order in which they must be applied. Made again and again in the same
/// memory.
#[derive(Debug, Default)]
pub struct CompactionPlan {
    fills: Vec<(NodeIndex, usize)>,
    images: Vec<u64>,
    freed: Vec<NodeIndex>,
    lowers: bool,
}

impl CompactionPlan {
    /// An empty plan.
    #[must_use]
    pub fn new() -> CompactionPlan {
        CompactionPlan::default()
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fills.is_empty()
    }

    /// The changes.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> + '_ {
        let begins = std::iter::once(0).chain(self.fills.iter().map(|(_, end)| *end));
        let fills = self.fills.iter().zip(begins).map(|((node, end), begin)| Change::Fill {
            node: *node,
            image: Image::new(&self.images[begin..*end]),
        });
        fills.chain(self.freed.iter().map(|node| Change::Mark { node: *node, state: TreeNodeState::Free }))
    }

    /// The tree nodes that become free. They rest like all that is freed, and then go to
    /// [`SlotAllocator::free`].
    #[must_use]
    pub fn freed(&self) -> &[NodeIndex] {
        &self.freed
    }

    /// The changes were applied: the tree may be lower.
    pub fn commit(&mut self, allocator: &mut SlotAllocator) {
        if std::mem::take(&mut self.lowers) {
            allocator.shrink();
        }
    }

    fn clear(&mut self) {
        self.fills.clear();
        self.images.clear();
        self.freed.clear();
        self.lowers = false;
    }

    fn fill<const B: usize>(&mut self, node: NodeIndex, image: &Page<B>) {
        self.images.extend(image.words());
        self.fills.push((node, self.images.len()));
    }
}

/// A run, taken apart.
#[derive(Debug, Default)]
struct Run {
    role: MeganodeRole,
    level: u8,
    nodes: Vec<NodeIndex>,
    /// Each node's low fence, and which item is its first.
    lows: Vec<(Vec<u8>, usize)>,
    keys: Vec<u8>,
    /// Where each item's key ends, and what it leads to.
    items: Vec<(usize, Value)>,
    high: Option<Vec<u8>>,
    right: Pointer,
    csn_removed: Csn,
}

/// One new node of a run.
struct Packed {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    items: std::ops::Range<usize>,
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// Plans the next step of a compaction: looks at the run on `level` that begins with the node that has
    /// `from`, and packs it if it is sparse. For the meganode's writer; the plan is good until the next
    /// change. With an empty plan the run stays as it is.
    ///
    /// # Errors
    /// [`PlanError::Damaged`].
    pub fn plan_compaction(
        &self,
        level: u8,
        from: &[u8],
        limits: &CompactionLimits,
        plan: &mut CompactionPlan,
    ) -> Result<CompactionNext, PlanError> {
        plan.clear();
        sized!(self.geometry, B => self.plan_compaction_sized::<B>(level, from, limits, plan))
    }

    fn plan_compaction_sized<const B: usize>(
        &self,
        level: u8,
        from: &[u8],
        limits: &CompactionLimits,
        plan: &mut CompactionPlan,
    ) -> Result<CompactionNext, PlanError> {
        let root = self.view::<B>(NodeIndex::ROOT).header();
        if root.is_inner() && root.count == 1 {
            self.plan_lower_root::<B>(&root, plan)?;
            return Ok(CompactionNext::From(from.to_vec()));
        }
        if root.level() <= level {
            return Ok(CompactionNext::TreeDone);
        }
        let Some((parent, first)) = self.parent_of_run::<B>(level, &Probe::new(from))? else {
            return Ok(CompactionNext::LevelDone);
        };
        let (view, header) = (self.view::<B>(parent), self.inner::<B>(parent, level + 1)?);
        let (end, sparse) = self.run_from::<B>(&view, &header, first, limits)?;
        let packed = if sparse { self.plan_run::<B>(parent, first..end, limits, plan)? } else { None };
        let next = match packed {
            Some(last) if end < header.count => Some(last),
            None if end < header.count => Some(crate::divide::low_of_child(&view, &header, end)),
            _ => high_of(&view, &header),
        };
        Ok(next.map_or(CompactionNext::LevelDone, CompactionNext::From))
    }

    /// The inner node above the run's first, and which of its children that is; none behind the meganode's
    /// end.
    fn parent_of_run<const B: usize>(
        &self,
        level: u8,
        from: &Probe<'_>,
    ) -> Result<Option<(NodeIndex, usize)>, PlanError> {
        let mut node = NodeIndex::ROOT;
        let mut at = self.view::<B>(node).header().level();
        loop {
            let (view, header) = (self.view::<B>(node), self.inner::<B>(node, at)?);
            let child = match view.side(&header, from) {
                Side::Here(window) => view.route(&header, from, window),
                Side::Below => 0,
                Side::Right if node == NodeIndex::ROOT => return Ok(None),
                Side::Right => return Err(PlanError::Damaged(node)),
            };
            at -= 1;
            if at == level {
                return Ok(Some((node, child)));
            }
            node = view.child(&header, child);
        }
    }

    /// Where the run ends that begins with a child, and whether it is sparse.
    fn run_from<const B: usize>(
        &self,
        view: &View<'_, W, B>,
        header: &Header,
        first: usize,
        limits: &CompactionLimits,
    ) -> Result<(usize, bool), PlanError> {
        let most = limits.fills * B * limits.fill_percent / 100;
        let (mut end, mut bytes) = (first, 0);
        while end < header.count && end - first < limits.run {
            let node = view.child(header, end);
            let child = self.built::<B>(node, header.level() - 1)?;
            let heap = heap_end(B).saturating_sub(child.heap_low + child.garbage);
            let used = child.arrays_end().saturating_sub(child.heads()) + heap;
            if end > first && bytes + used > most {
                break;
            }
            bytes += used;
            end += 1;
        }
        let nodes = end - first;
        Ok((end, nodes > 1 && bytes * 1_000 < limits.sparse_permille * nodes * B))
    }

    /// A node that must be in use and of this level.
    fn built<const B: usize>(&self, node: NodeIndex, level: u8) -> Result<Header, PlanError> {
        if node.get() >= self.nodes || node == NodeIndex::ROOT {
            return Err(PlanError::Damaged(node));
        }
        let header = self.view::<B>(node).header();
        let sound = header.state().is_built() && (header.role(), header.level()) == (self.role, level);
        if sound { Ok(header) } else { Err(PlanError::Damaged(node)) }
    }

    /// Plans a run's step. The low fence of its last new node; none if it would free nothing.
    fn plan_run<const B: usize>(
        &self,
        parent: NodeIndex,
        children: std::ops::Range<usize>,
        limits: &CompactionLimits,
        plan: &mut CompactionPlan,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        let (view, header) = (self.view::<B>(parent), self.inner::<B>(parent, self.level::<B>(parent))?);
        let mut run = Run { role: header.role(), level: header.level() - 1, ..Run::default() };
        for child in children.clone() {
            self.take_apart::<B>(view.child(&header, child), &mut run)?;
        }
        let packed = run.pack::<B>(limits.fill_percent);
        let Some(packed) = packed.filter(|new| new.len() < run.nodes.len() && new.len() <= limits.fills + 1)
        else {
            return Ok(None);
        };
        let Some(image) = parent_image::<W, B>(&view, &header, children, &run, &packed) else {
            return Ok(None); // longer separators than before, and no room for them
        };
        plan.fill(parent, &image);
        for (at, new) in packed.iter().enumerate() {
            let right = match run.nodes.get(at + 1) {
                Some(next) if at + 1 < packed.len() => self.geometry.pointer(self.slot, *next),
                _ => run.right,
            };
            let Some(image) = run.image::<B>(new, right) else {
                plan.clear();
                return Ok(None);
            };
            plan.fill(run.nodes[at], &image);
        }
        plan.freed.extend_from_slice(&run.nodes[packed.len()..]);
        Ok(packed.last().map(|last| last.low.clone()))
    }

    fn level<const B: usize>(&self, node: NodeIndex) -> u8 {
        self.view::<B>(node).header().level()
    }

    fn take_apart<const B: usize>(&self, node: NodeIndex, run: &mut Run) -> Result<(), PlanError> {
        let header = self.built::<B>(node, run.level)?;
        let view = self.view::<B>(node);
        let mut low = vec![0; header.low_len.min(B)];
        view.low(&header, &mut low);
        let prefix = low.get(..header.prefix).ok_or(PlanError::Damaged(node))?;
        let first = run.items.len();
        for i in 0..header.count {
            if header.is_inner() && i == 0 {
                run.keys.extend_from_slice(&low); // stands for everything from the fence
            } else {
                run.keys.extend_from_slice(prefix);
                view.append_suffix(&header, i, &view.cell(&header, i), &mut run.keys);
            }
            run.items.push((run.keys.len(), value_of(&view, &header, i)));
        }
        (run.high, run.right) = (high_of(&view, &header), view.right());
        if !mutant::planted(Mutant::RemovalForgotten) {
            run.csn_removed = run.csn_removed.max(view.csn_removed());
        }
        run.nodes.push(node);
        run.lows.push((low, first));
        Ok(())
    }

    /// Plans that a root with one child takes that child's content.
    fn plan_lower_root<const B: usize>(
        &self,
        root: &Header,
        plan: &mut CompactionPlan,
    ) -> Result<(), PlanError> {
        let child = self.view::<B>(NodeIndex::ROOT).child(root, 0);
        let mut run = Run { role: root.role(), level: root.level() - 1, ..Run::default() };
        self.take_apart::<B>(child, &mut run)?;
        let whole = Packed { low: run.lows[0].0.clone(), high: run.high.clone(), items: 0..run.items.len() };
        let image = run.image::<B>(&whole, run.right).ok_or(PlanError::Damaged(child))?;
        plan.fill(NodeIndex::ROOT, &image);
        plan.freed.push(child);
        plan.lowers = true;
        Ok(())
    }
}

impl Run {
    fn key(&self, item: usize) -> &[u8] {
        let from = if item == 0 { 0 } else { self.items[item - 1].0 };
        &self.keys[from..self.items[item].0]
    }

    fn is_inner(&self) -> bool {
        self.level > 0
    }

    /// Deals the items out, each node as full as wanted. None if that cannot be.
    fn pack<const B: usize>(&self, fill_percent: usize) -> Option<Vec<Packed>> {
        let mut packed = Vec::new();
        let (mut low, mut begin) = (self.lows.first()?.0.clone(), 0);
        loop {
            let place = packed.len();
            // It ends no earlier than the old node in its place: see the module's text.
            let least = self.lows.get(place + 1).map_or(self.items.len(), |(_, first)| *first).max(begin);
            let mut end = least;
            while end < self.items.len() && self.fits::<B>(place, &low, begin..end + 1, fill_percent) {
                end += 1;
            }
            if end == self.items.len() {
                packed.push(Packed { low, high: self.high.clone(), items: begin..end });
                return Some(packed);
            }
            if end == begin || place + 1 >= self.nodes.len() {
                return None;
            }
            let high = self.fence(place, end)?;
            packed.push(Packed {
                low: std::mem::replace(&mut low, high.clone()),
                high: Some(high),
                items: begin..end,
            });
            begin = end;
        }
    }

    /// The fence in front of an item that begins the node behind `place`: the shortest, but not left of where
    /// the old node there began.
    fn fence(&self, place: usize, item: usize) -> Option<Vec<u8>> {
        let after = self.key(item);
        let shortest = if self.is_inner() || item == 0 {
            after
        } else {
            after.get(..common_prefix(self.key(item - 1), after) + 1)?
        };
        let old = self.lows.get(place + 1).map_or(&[][..], |(low, _)| low);
        Some(shortest.max(old).to_vec())
    }

    /// Whether items fit the node of a place.
    fn fits<const B: usize>(
        &self,
        place: usize,
        low: &[u8],
        items: std::ops::Range<usize>,
        fill_percent: usize,
    ) -> bool {
        let high =
            if items.end == self.items.len() { self.high.clone() } else { self.fence(place, items.end) };
        let frame = self.frame(low, high.as_deref(), Pointer::NULL);
        let (prefix, inner, first) = (frame.prefix(), self.is_inner(), items.start);
        let count = items.len();
        let bytes: usize = items
            .map(|i| {
                let len = if inner && i == first { 0 } else { self.key(i).len().saturating_sub(prefix) };
                entry_bytes(B, inner, len)
            })
            .sum();
        let room = frame.room::<B>();
        // Three entries always fit.
        bytes <= if count <= 3 { room } else { room * fill_percent / 100 }
    }

    fn frame<'f>(&self, low: &'f [u8], high: Option<&'f [u8]>, right: Pointer) -> Frame<'f> {
        Frame { right, ..Frame::anew((self.role, self.level), low, high, self.csn_removed) }
    }

    fn image<const B: usize>(&self, new: &Packed, right: Pointer) -> Option<Page<B>> {
        let frame = self.frame(&new.low, new.high.as_deref(), right);
        let mut composer = Composer::<B>::begin(&frame, new.items.len())?;
        for item in new.items.clone() {
            let suffix = match composer.wants_first_child() {
                true => &[][..],
                false => self.key(item).get(composer.prefix()..)?,
            };
            composer.push(suffix, self.items[item].1)?;
        }
        Some(composer.finish())
    }
}

/// The parent with the run's new nodes in place of its old ones.
fn parent_image<W: Words + ?Sized, const B: usize>(
    view: &View<'_, W, B>,
    header: &Header,
    children: std::ops::Range<usize>,
    run: &Run,
    packed: &[Packed],
) -> Option<Page<B>> {
    let mut low = vec![0; header.low_len.min(B)];
    view.low(header, &mut low);
    let high = high_of(view, header);
    let frame = Frame {
        role: header.role(),
        level: header.level(),
        state: TreeNodeState::Valid,
        low: &low,
        high: high.as_deref(),
        right: view.right(),
        csn_changed: Csn::ZERO,
        csn_removed: view.csn_removed(),
    };
    let count = header.count - children.len() + packed.len();
    let mut composer = Composer::<B>::begin(&frame, count)?;
    composer.push_from(view, header, 0..children.start)?;
    for (new, node) in packed.iter().zip(&run.nodes) {
        let suffix = match composer.wants_first_child() {
            true => &[][..],
            false => new.low.get(composer.prefix()..)?,
        };
        composer.push(suffix, Value::Child(*node))?;
    }
    composer.push_from(view, header, children.end..header.count)?;
    Some(composer.finish())
}

fn high_of<W: Words + ?Sized, const B: usize>(view: &View<'_, W, B>, header: &Header) -> Option<Vec<u8>> {
    let mut high = vec![0; B];
    let len = view.high(header, &mut high)?;
    high.truncate(len);
    Some(high)
}
