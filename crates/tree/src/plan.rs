//! Planning a write: what will change, before anything does.
//!
//! The log comes before memory, so a write is planned (which tree nodes change, and how), the changes are
//! recorded, and then applied; replay applies the same records by the same code. A plan reads the tree as its
//! one writer and is good until the next change.

use cell_terms::{Pointer, Words};

use crate::change::{Change, Image};
use crate::compose::Value;
use crate::fence::Side;
use crate::geometry::{NodeIndex, Slot};
use crate::layout::{LEVELS_MAX, entry_bytes};
use crate::page::Page;
use crate::placed::{EntryPlace, PlacedChange};
use crate::probe::Probe;
use crate::search::{Cursor, LeafAnswer, Meganode, ReadError, SearchResult, sized};
use crate::slot::SlotAllocator;
use crate::split::{Boundary, Half, Overflow};
use crate::view::{Header, LeafEntry};

/// Why a write cannot be planned. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The write splits a tree node and the slot may be short of free ones: the meganode must be split or
    /// compacted.
    #[error("{nodes_free} free tree nodes, and a split may need {nodes_needed}")]
    Full {
        /// Free tree nodes.
        nodes_free: usize,
        /// What a put may need in the worst case.
        nodes_needed: usize,
    },
    /// A meganode cannot be split at a key that is not a fence between two of its leaves.
    #[error("the key is no fence between two leaves")]
    NoBoundary,
    /// The key is not for this meganode, or cannot be a key.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A tree node's content breaks the rules of its layout. Memory is damaged: the pair must be recovered.
    #[error("{0} is damaged")]
    Damaged(NodeIndex),
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: usize,
    to: usize,
}

#[derive(Clone, Copy, Debug)]
enum Planned {
    Put { node: NodeIndex, entry: LeafEntry, place: Option<EntryPlace> },
    Remove { node: NodeIndex },
    Link { node: NodeIndex, separator: Span, child: NodeIndex },
    Truncate { node: NodeIndex, high: Span, right: Pointer },
    Fill { node: NodeIndex, image: Span, middle: Span },
}

/// The changes of one write, in the order in which they must be applied: fills of new nodes first, then the
/// truncation that makes them reachable, then the entry, then links upward. After each of them every key can
/// be found.
///
/// A plan is made again and again in the same memory; in the common case it allocates nothing. New nodes are
/// taken from the allocator while planning: [`Plan::commit`] after applying, or [`Plan::abandon`] if it is
/// not applied.
#[derive(Debug, Default)]
pub struct Plan {
    changes: Vec<Planned>,
    key: Vec<u8>,
    separators: Vec<u8>,
    images: Vec<u64>,
    taken: Vec<NodeIndex>,
    grows: bool,
    found: Option<SearchResult>,
    overflow: Overflow,
    approach: Option<Approach>,
}

/// How far a descent came before its leaf was there.
#[derive(Clone, Copy, Debug)]
struct Approach {
    slot: Slot,
    cursor: Cursor,
    path: Path,
}

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new() -> Plan {
        Plan::default()
    }

    /// What the key had, as the search for its leaf found it.
    #[must_use]
    pub fn found(&self) -> Option<&SearchResult> {
        self.found.as_ref()
    }

    /// The entry that the write replaces or removes.
    #[must_use]
    pub fn old(&self) -> Option<LeafEntry> {
        self.found.and_then(|found| found.entry)
    }

    /// How many changes there are. One, but for splits; none if there is nothing to remove.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether nothing will change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes, in the order in which they must be applied.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> + '_ {
        self.changes.iter().map(move |planned| self.change(planned))
    }

    /// As [`Plan::changes`], with the places that were found: for [`crate::apply_placed`].
    pub fn placed(&self) -> impl ExactSizeIterator<Item = PlacedChange<'_>> + '_ {
        self.changes.iter().map(move |planned| {
            let place = match planned {
                Planned::Put { place, .. } => *place,
                _ => None,
            };
            PlacedChange::new(self.change(planned), place)
        })
    }

    #[inline]
    fn change(&self, planned: &Planned) -> Change<'_> {
        match *planned {
            Planned::Put { node, entry, .. } => Change::Put { node, key: &self.key, entry },
            Planned::Remove { node } => Change::Remove { node, key: &self.key },
            Planned::Link { node, separator, child } => {
                Change::Link { node, separator: &self.separators[separator.from..separator.to], child }
            }
            Planned::Truncate { node, high, right } => {
                Change::Truncate { node, high: &self.separators[high.from..high.to], right }
            }
            Planned::Fill { node, image, middle } => {
                let words = &self.images[image.from..image.to];
                Change::Fill { node, image: Image::around(words, middle.from..middle.to) }
            }
        }
    }

    /// Bytes of all changes, encoded.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.changes().map(|change| change.encoded_len()).sum()
    }

    /// The plan was applied: its new nodes are in use.
    pub fn commit(&mut self, allocator: &mut SlotAllocator) {
        self.taken.clear();
        if std::mem::take(&mut self.grows) {
            allocator.grow();
        }
    }

    /// The plan is given up: its new nodes are free again.
    pub fn abandon(&mut self, allocator: &mut SlotAllocator) {
        while let Some(node) = self.taken.pop() {
            allocator.unallocate(node);
        }
        self.grows = false;
        self.changes.clear();
    }

    /// Forgets the last plan.
    ///
    /// # Panics
    /// If it took nodes and was neither committed nor abandoned: they would be lost.
    fn begin(&mut self, key: &[u8]) {
        assert!(self.taken.is_empty() && !self.grows, "the last plan was neither committed nor abandoned");
        self.changes.clear();
        self.separators.clear();
        self.images.clear();
        self.key.clear();
        self.key.extend_from_slice(key);
        self.found = None;
        self.approach = None;
    }

    fn take(&mut self, allocator: &mut SlotAllocator, level: u8) -> Result<NodeIndex, PlanError> {
        let node = allocator.allocate(level).ok_or_else(|| full(allocator))?;
        self.taken.push(node);
        Ok(node)
    }

    fn fill<const B: usize>(&mut self, node: NodeIndex, image: &Page<B>) {
        let from = self.images.len();
        self.images.extend(image.words());
        let middle = Image::new(&self.images[from..]).middle();
        let (image, middle) =
            (Span { from, to: self.images.len() }, Span { from: middle.start, to: middle.end });
        self.changes.push(Planned::Fill { node, image, middle });
    }

    fn separator(&mut self, separator: &[u8]) -> Span {
        let from = self.separators.len();
        self.separators.extend_from_slice(separator);
        Span { from, to: self.separators.len() }
    }
}

fn full(allocator: &SlotAllocator) -> PlanError {
    PlanError::Full { nodes_free: allocator.nodes_free(), nodes_needed: allocator.room_for_put() }
}

/// The inner nodes that a descent passed, by level.
type Path = [NodeIndex; LEVELS_MAX];

struct SearchedLeaf {
    found: SearchResult,
    header: Header,
    place: EntryPlace,
}

/// Goes down to the leaf of a key that is going to be put, and asks for its cache lines: who has something
/// else to do first, like encoding the entry, does it meanwhile. [`plan_put`] of the same key goes on from
/// there.
///
/// # Errors
/// As [`Meganode::search`].
#[inline]
pub fn plan_ahead<W: Words + ?Sized>(
    meganode: &Meganode<'_, W>,
    key: &[u8],
    plan: &mut Plan,
) -> Result<(), ReadError> {
    plan.begin(key);
    meganode.check_key(key)?;
    let mut path = [NodeIndex::ROOT; LEVELS_MAX];
    let cursor = sized!(meganode.geometry, B => {
        meganode.descend_to_leaf::<B>(&Probe::new(key), |node, level| {
            path[usize::from(level) % LEVELS_MAX] = node;
        })?
    });
    plan.approach = Some(Approach { slot: meganode.slot, cursor, path });
    Ok(())
}

/// Plans to add a key's entry or to replace it.
///
/// # Errors
/// See [`PlanError`]; the plan is empty then and nothing is taken.
#[inline]
pub fn plan_put<W: Words + ?Sized>(
    meganode: &Meganode<'_, W>,
    allocator: &mut SlotAllocator,
    key: &[u8],
    entry: LeafEntry,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let planned =
        sized!(meganode.geometry, B => plan_put_sized::<W, B>(meganode, allocator, key, entry, plan));
    if planned.is_err() {
        plan.abandon(allocator);
    }
    planned
}

/// Plans to remove a key. If it is not there, the plan is empty and [`Plan::found`] says what that depends
/// on.
///
/// # Errors
/// See [`PlanError`]; never [`PlanError::Full`].
#[inline]
pub fn plan_remove<W: Words + ?Sized>(
    meganode: &Meganode<'_, W>,
    key: &[u8],
    plan: &mut Plan,
) -> Result<(), PlanError> {
    plan.begin(key);
    let found = meganode.search(key)?;
    plan.found = Some(found);
    if found.entry.is_some() {
        plan.changes.push(Planned::Remove { node: found.node });
    }
    Ok(())
}

/// Plans to split a leaf at a key, so that the key is a fence between two leaves. The plan is empty if it is
/// one already.
///
/// # Errors
/// See [`PlanError`]: [`PlanError::NoBoundary`] if there are not entries on both sides of the key in its
/// leaf. The plan is empty then and nothing is taken.
pub fn plan_fence<W: Words + ?Sized>(
    meganode: &Meganode<'_, W>,
    allocator: &mut SlotAllocator,
    key: &[u8],
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let planned = sized!(meganode.geometry, B => plan_fence_sized::<W, B>(meganode, allocator, key, plan));
    if planned.is_err() {
        plan.abandon(allocator);
    }
    planned
}

fn plan_fence_sized<W: Words + ?Sized, const B: usize>(
    meganode: &Meganode<'_, W>,
    allocator: &mut SlotAllocator,
    key: &[u8],
    plan: &mut Plan,
) -> Result<(), PlanError> {
    plan.begin(key);
    meganode.check_key(key)?;
    let probe = Probe::new(key);
    let mut path = [NodeIndex::ROOT; LEVELS_MAX];
    let (leaf, begins) = meganode.descend::<B, _>(
        &probe,
        |node, level| path[usize::from(level) % LEVELS_MAX] = node,
        |node, view, header| match view.side(header, &probe) {
            Side::Here(_) => LeafAnswer::Here((node, view.compare_low(header, &probe).is_eq())),
            Side::Right => LeafAnswer::Right(view.right()),
            Side::Below => LeafAnswer::Restart,
        },
    )?;
    if begins {
        return Ok(());
    }
    if !allocator.has_room_for_put() {
        return Err(full(allocator));
    }
    let planner = Planner::<W, B> { meganode, path };
    let copy = planner.copy(leaf);
    plan.overflow.take_all(&copy, &copy.view().header());
    let boundary = plan.overflow.boundary_at::<B>(key).ok_or(PlanError::NoBoundary)?;
    let split = planner.split_at(allocator, plan, (leaf, &copy), &boundary)?;
    planner.link_upward(allocator, plan, split.unlinked)
}

fn plan_put_sized<W: Words + ?Sized, const B: usize>(
    meganode: &Meganode<'_, W>,
    allocator: &mut SlotAllocator,
    key: &[u8],
    entry: LeafEntry,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let approach = plan.approach.take().filter(|approach| plan.key == key && approach.slot == meganode.slot);
    let probe = Probe::new(key);
    let (cursor, mut path) = match approach {
        // Started with this key, which was checked.
        Some(Approach { cursor, path, .. }) => (cursor, path),
        None => {
            plan.begin(key);
            meganode.check_key(key)?;
            (meganode.root::<B>()?, [NodeIndex::ROOT; LEVELS_MAX])
        }
    };
    let searched = meganode.descend_from::<B, _>(
        cursor,
        &probe,
        |node, level| path[usize::from(level) % LEVELS_MAX] = node,
        |node, view, header| {
            let window = match view.side(header, &probe) {
                Side::Here(window) => window,
                Side::Right => return LeafAnswer::Right(view.right()),
                Side::Below => return LeafAnswer::Restart,
            };
            let (at, cell) = view.find(header, &probe, window);
            let entry = cell.map(|cell| view.leaf_entry(&cell));
            let (csn_changed, csn_removed) = (view.csn_changed(), view.csn_removed());
            LeafAnswer::Here(SearchedLeaf {
                found: SearchResult { entry, node, csn_changed, csn_removed },
                header: *header,
                place: EntryPlace::found(view, at, cell.is_some()),
            })
        },
    )?;
    let SearchedLeaf { found, header, place } = &searched;
    plan.found = Some(*found);
    if found.entry.is_some() || fits::<B>(header, key.len()) {
        plan.changes.push(Planned::Put { node: found.node, entry, place: Some(*place) });
        return Ok(());
    }
    let planner = Planner::<W, B> { meganode, path };
    planner.split_leaf(allocator, plan, &searched, &probe, entry)
}

fn fits<const B: usize>(header: &Header, key_len: usize) -> bool {
    let need = entry_bytes(B, header.is_inner(), key_len - header.prefix);
    need <= header.free() + header.garbage
}

struct Planner<'m, 'a, W: Words + ?Sized, const B: usize> {
    meganode: &'m Meganode<'a, W>,
    path: Path,
}

/// A node that was split.
struct Split {
    halves: [NodeIndex; 2],
    /// Where the new item goes.
    half: Half,
    /// What the parent must learn; nothing if it is the root itself.
    unlinked: Option<Unlinked>,
}

/// A new child that its parent does not know yet.
struct Unlinked {
    separator: Span,
    child: NodeIndex,
}

impl<W: Words + ?Sized, const B: usize> Planner<'_, '_, W, B> {
    /// A node that is taken apart is copied first: its writer knows that nobody changes it.
    fn copy(&self, node: NodeIndex) -> Page<B> {
        Page::load(self.meganode.words, self.meganode.node_word(node))
    }

    #[inline(never)]
    fn split_leaf(
        &self,
        allocator: &mut SlotAllocator,
        plan: &mut Plan,
        searched: &SearchedLeaf,
        probe: &Probe<'_>,
        entry: LeafEntry,
    ) -> Result<(), PlanError> {
        if !allocator.has_room_for_put() {
            return Err(full(allocator));
        }
        let SearchedLeaf { found: SearchResult { node: leaf, .. }, header, place } = *searched;
        let copy = self.copy(leaf);
        let suffix = &probe.bytes[header.prefix..];
        plan.overflow.take(&copy, &header, place.at(), suffix, Value::Leaf(entry));
        let split = self.split(allocator, plan, (leaf, &copy))?;
        let node = split.halves[usize::from(split.half != Half::Left)];
        plan.changes.push(Planned::Put { node, entry, place: None });
        self.link_upward(allocator, plan, split.unlinked)
    }

    /// Plans the split of the node that was taken apart, of which this is a copy.
    fn split(
        &self,
        allocator: &mut SlotAllocator,
        plan: &mut Plan,
        (node, copy): (NodeIndex, &Page<B>),
    ) -> Result<Split, PlanError> {
        let boundary = plan.overflow.choose::<B>().ok_or(PlanError::Damaged(node))?;
        self.split_at(allocator, plan, (node, copy), &boundary)
    }

    fn split_at(
        &self,
        allocator: &mut SlotAllocator,
        plan: &mut Plan,
        (node, copy): (NodeIndex, &Page<B>),
        boundary: &Boundary,
    ) -> Result<Split, PlanError> {
        let damaged = PlanError::Damaged(node);
        let half = plan.overflow.half_of_new(boundary);
        let level = plan.overflow.level();
        let right_image = plan.overflow.right_image(boundary, copy).ok_or(damaged)?;
        if node == NodeIndex::ROOT {
            let halves = [plan.take(allocator, level)?, plan.take(allocator, level)?];
            let right = self.meganode.geometry.pointer(self.meganode.slot, halves[1]);
            let left_image = plan.overflow.left_image::<B>(boundary, right).ok_or(damaged)?;
            let root_image = plan.overflow.root_image::<B>(boundary, halves).ok_or(damaged)?;
            plan.fill(halves[0], &left_image);
            plan.fill(halves[1], &right_image);
            plan.fill(node, &root_image);
            plan.grows = true;
            return Ok(Split { halves, half, unlinked: None });
        }
        let child = plan.take(allocator, level)?;
        // Its lines come while the rest is planned and recorded. Most are written here for the first time.
        self.meganode.view::<B>(child).prefetch(0, B);
        let right = self.meganode.geometry.pointer(self.meganode.slot, child);
        let separator = plan.separator(boundary.separator());
        plan.fill(child, &right_image);
        plan.changes.push(Planned::Truncate { node, high: separator, right });
        Ok(Split { halves: [node, child], half, unlinked: Some(Unlinked { separator, child }) })
    }

    /// Links new children into their parents, splitting those that are full.
    fn link_upward(
        &self,
        allocator: &mut SlotAllocator,
        plan: &mut Plan,
        mut unlinked: Option<Unlinked>,
    ) -> Result<(), PlanError> {
        let mut level = 1;
        while let Some(Unlinked { separator, child }) = unlinked.take() {
            let key = plan.separators[separator.from..separator.to].to_vec();
            let probe = Probe::new(&key);
            let (parent, header, window) = self.parent(self.path[level % LEVELS_MAX], &probe)?;
            let view = self.meganode.view::<B>(parent);
            let (at, present) = view.find(&header, &probe, window);
            if present.is_some() {
                return Ok(());
            }
            if fits::<B>(&header, key.len()) {
                plan.changes.push(Planned::Link { node: parent, separator, child });
                return Ok(());
            }
            let copy = self.copy(parent);
            plan.overflow.take(&copy, &header, at, &key[header.prefix..], Value::Child(child));
            let split = self.split(allocator, plan, (parent, &copy))?;
            if split.half != Half::InRightImage {
                let node = split.halves[usize::from(split.half == Half::Right)];
                plan.changes.push(Planned::Link { node, separator, child });
            }
            unlinked = split.unlinked;
            level += 1;
        }
        Ok(())
    }

    /// The inner node whose range has the separator: the one on the path, or a sibling to its right.
    fn parent(&self, mut node: NodeIndex, probe: &Probe<'_>) -> Result<(NodeIndex, Header, u64), PlanError> {
        let mut cursor = self.meganode.root::<B>()?;
        loop {
            let view = self.meganode.view::<B>(node);
            let header = view.header();
            match view.side(&header, probe) {
                Side::Here(window) if header.is_inner() => return Ok((node, header, window)),
                Side::Right => {
                    self.meganode.move_right(&mut cursor, view.right(), header.level())?;
                    node = cursor.node;
                }
                Side::Here(_) | Side::Below => return Err(PlanError::Damaged(node)),
            }
        }
    }
}
