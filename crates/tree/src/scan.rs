//! Scanning: leaves as consistent snapshots, forward and backward.
//!
//! Each leaf is copied between two looks at its version, and again if that changed. Forward, the next leaf
//! is the one at the right link, and it counts only if its low fence is this one's high fence; otherwise the
//! scan descends again to that key. Backward there are no links, so the scan descends to the leaf that covers
//! the keys just below this one's low fence; it may do so ahead of time, and descends again if that leaf does
//! not cover them any more. Either way the leaves of one scan join without gap or overlap, each as of its own
//! moment; of a leaf that was compacted meanwhile and covers what was seen, the rest is seen.

use std::cmp::Ordering;

use cell_terms::{Pointer, Words};

use crate::geometry::NodeIndex;
use crate::layout::{LEVELS_MAX, kind_of};
use crate::probe::Probe;
use crate::search::{Meganode, ReadError, sized};
use crate::snapshot::{LeafSnapshot, LeafVersion};
use crate::view::{Header, View};

/// Where a descent goes.
#[derive(Clone, Copy)]
pub(crate) enum Target<'k> {
    First,
    At(Probe<'k>),
    Below(Probe<'k>),
    Last,
}

impl<'a, W: Words + ?Sized> Meganode<'a, W> {
    /// The leaf whose range has the key.
    ///
    /// # Errors
    /// As [`Meganode::search`].
    pub fn leaf(&self, key: &[u8], leaf: &mut LeafSnapshot) -> Result<(), ReadError> {
        self.check_key(key)?;
        self.snapshot(Target::At(Probe::new(key)), leaf)
    }

    /// The first leaf.
    ///
    /// # Errors
    /// As [`Meganode::search`].
    pub fn leaf_first(&self, leaf: &mut LeafSnapshot) -> Result<(), ReadError> {
        self.snapshot(Target::First, leaf)
    }

    /// The last leaf of this meganode.
    ///
    /// # Errors
    /// As [`Meganode::search`].
    pub fn leaf_last(&self, leaf: &mut LeafSnapshot) -> Result<(), ReadError> {
        self.snapshot(Target::Last, leaf)
    }

    /// The leaf whose range has the keys just below `bound`: where a backward scan from `bound` (exclusive)
    /// begins.
    ///
    /// # Errors
    /// As [`Meganode::search`]; [`ReadError::NotHere`] too if the meganode begins at the bound.
    pub fn leaf_below(&self, bound: &[u8], leaf: &mut LeafSnapshot) -> Result<(), ReadError> {
        self.check_key(bound)?;
        self.snapshot(Target::Below(Probe::new(bound)), leaf)
    }

    /// Goes on to the leaf after this one: false at the end of the tree.
    ///
    /// # Errors
    /// As [`Meganode::search`]; [`ReadError::Beyond`] where the next leaf is another meganode's.
    pub fn leaf_after(&self, leaf: &mut LeafSnapshot) -> Result<bool, ReadError> {
        if leaf.now.is_last {
            return Ok(false);
        }
        let bound = std::mem::take(&mut leaf.now.high);
        let outcome = match self.geometry.node_of(self.slot, leaf.now.right) {
            None if !leaf.now.right.is_null() => Err(ReadError::Beyond(leaf.now.right)),
            None => self.snapshot(Target::At(Probe::new(&bound)), leaf),
            Some(node) => sized!(self.geometry, B => self.follow::<B>(node, &Probe::new(&bound), leaf)),
        };
        if outcome.is_ok() {
            leaf.begin_at(&bound);
        }
        // The bound's owner is the last leaf: the one before if this one was read, else still this one.
        let owner = if outcome.is_ok() { &mut leaf.next } else { &mut leaf.now };
        owner.high = bound;
        outcome.map(|()| true)
    }

    /// Fills `next` with the leaf after `leaf`: false at the end of the tree. For who reads one leaf ahead,
    /// to ask for its extents before they are wanted.
    ///
    /// # Errors
    /// As [`Meganode::leaf_after`].
    pub fn leaf_ahead(&self, leaf: &LeafSnapshot, next: &mut LeafSnapshot) -> Result<bool, ReadError> {
        let Some(high) = leaf.high() else { return Ok(false) };
        let (bound, right) = (Probe::new(high), leaf.right());
        match self.geometry.node_of(self.slot, right) {
            None if !right.is_null() => Err(ReadError::Beyond(right)),
            None => self.snapshot(Target::At(bound), next),
            Some(node) => sized!(self.geometry, B => self.follow::<B>(node, &bound, next)),
        }?;
        next.begin_at(high);
        Ok(true)
    }

    /// Goes on to the leaf before this one: false at the beginning of the tree.
    ///
    /// # Errors
    /// As [`Meganode::search`]; [`ReadError::NotHere`] where the leaf before is another meganode's.
    pub fn leaf_before(&self, leaf: &mut LeafSnapshot) -> Result<bool, ReadError> {
        if leaf.now.low.is_empty() {
            return Ok(false);
        }
        let bound = std::mem::take(&mut leaf.now.low);
        let outcome = self.read_before(leaf.now.before, &Probe::new(&bound), leaf);
        if outcome.is_ok() {
            leaf.end_at(&bound);
        }
        let owner = if outcome.is_ok() { &mut leaf.next } else { &mut leaf.now };
        owner.low = bound;
        outcome.map(|()| true)
    }

    /// As [`Meganode::leaf_ahead`], of the leaf before: false at the beginning of the tree.
    ///
    /// # Errors
    /// As [`Meganode::leaf_before`].
    pub fn leaf_behind(&self, leaf: &LeafSnapshot, next: &mut LeafSnapshot) -> Result<bool, ReadError> {
        let low = leaf.low();
        if low.is_empty() {
            return Ok(false);
        }
        self.read_before(leaf.now.before, &Probe::new(low), next)?;
        next.end_at(low);
        Ok(true)
    }

    /// Whether a leaf of this meganode is what it was when a snapshot was taken of it, now that all that was
    /// loaded before this call is loaded: what it leads to was its own all the while, because nothing is used
    /// again before the leaf that led to it has changed.
    #[must_use]
    pub fn is_unchanged(&self, leaf: LeafVersion) -> bool {
        let is_there = leaf.node.get() < self.nodes;
        is_there && sized!(self.geometry, B => self.view::<B>(leaf.node).is_still(leaf.version))
    }

    /// Asks for the cache lines of a leaf's right neighbour, for a scan that will want it soon.
    pub fn prefetch_after(&self, leaf: &LeafSnapshot) {
        if let Some(node) = self.geometry.node_of(self.slot, leaf.now.right) {
            sized!(self.geometry, B => self.view::<B>(node).prefetch(0, B));
        }
    }

    /// Looks for the leaf before this one and asks for its cache lines, for a scan backward that will want it
    /// soon. Where it was is kept with the leaf.
    pub fn prefetch_before(&self, leaf: &mut LeafSnapshot) {
        leaf.now.before = if leaf.now.low.is_empty() {
            None
        } else {
            let target = Target::Below(Probe::new(&leaf.now.low));
            sized!(self.geometry, B => self.find_leaf::<B>(&target))
        };
    }

    /// The leaf to which inner nodes lead now, all of whose cache lines are asked for. `None` where a descent
    /// would have to try again.
    fn find_leaf<const B: usize>(&self, target: &Target<'_>) -> Option<NodeIndex> {
        let mut cursor = self.root::<B>().ok()?;
        for _ in 0..LEVELS_MAX {
            if cursor.is_at_leaf() {
                return Some(cursor.node);
            }
            let way = self.view::<B>(cursor.node).stable(|view| {
                let header = view.header();
                (heading(view, &header, cursor.kind, target), header.level())
            });
            let Some((Heading::Down(child), level)) = way else { return None };
            self.enter(&mut cursor, child, level.wrapping_sub(1)).ok()?;
            self.prefetch_at::<B>(&cursor);
        }
        None
    }

    /// The leaf whose range has the keys just below a bound, which may have been found ahead of time.
    fn read_before(
        &self,
        found: Option<NodeIndex>,
        bound: &Probe<'_>,
        leaf: &mut LeafSnapshot,
    ) -> Result<(), ReadError> {
        let target = Target::Below(*bound);
        match found {
            Some(node) => sized!(self.geometry, B => self.read_found::<B>(node, target, leaf)),
            None => self.snapshot(target, leaf),
        }
    }

    fn read_found<const B: usize>(
        &self,
        node: NodeIndex,
        target: Target<'_>,
        leaf: &mut LeafSnapshot,
    ) -> Result<(), ReadError> {
        let covers = |view: &View<'a, W, B>, header: &Header| {
            matches!(heading(view, header, kind_of(self.role, 0), &target), Heading::Here)
        };
        if self.read_leaf::<B>(node, leaf, covers) {
            return Ok(());
        }
        self.snapshot_sized::<B>(target, leaf)
    }

    fn snapshot(&self, target: Target<'_>, leaf: &mut LeafSnapshot) -> Result<(), ReadError> {
        sized!(self.geometry, B => self.snapshot_sized::<B>(target, leaf))
    }

    fn snapshot_sized<const B: usize>(
        &self,
        target: Target<'_>,
        leaf: &mut LeafSnapshot,
    ) -> Result<(), ReadError> {
        let mut cursor = match &target {
            Target::At(key) => self.descend_to_leaf::<B>(key, |_, _| {})?,
            Target::First | Target::Below(_) | Target::Last => self.root::<B>()?,
        };
        loop {
            let view = self.view::<B>(cursor.node);
            let Some((header, way)) = view.stable(|view| {
                let header = view.header();
                (header, heading(view, &header, cursor.kind, &target))
            }) else {
                self.retry(&mut cursor)?;
                continue;
            };
            match way {
                Heading::Down(child) => {
                    self.enter(&mut cursor, child, header.level().wrapping_sub(1))?;
                    self.prefetch_at::<B>(&cursor);
                }
                Heading::Right(right) => self.move_right(&mut cursor, right, header.level())?,
                Heading::Restart => self.restart::<B>(&mut cursor)?,
                Heading::Below if cursor.node == NodeIndex::ROOT => return Err(ReadError::NotHere),
                Heading::Below => self.restart::<B>(&mut cursor)?,
                Heading::Here => {
                    let same = |view: &View<'a, W, B>, header: &Header| {
                        matches!(heading(view, header, cursor.kind, &target), Heading::Here)
                    };
                    if !self.read_leaf::<B>(cursor.node, leaf, same) {
                        self.retry(&mut cursor)?;
                    } else if matches!(target, Target::Last) && self.is_ours(leaf.now.right) {
                        // A split whose parent does not know yet.
                        self.move_right(&mut cursor, leaf.now.right, 0)?;
                    } else {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn is_ours(&self, pointer: Pointer) -> bool {
        self.geometry.node_of(self.slot, pointer).is_some()
    }

    /// The leaf at a right link, if it begins where the last one ended; else the leaf that does.
    fn follow<const B: usize>(
        &self,
        node: NodeIndex,
        bound: &Probe<'_>,
        leaf: &mut LeafSnapshot,
    ) -> Result<(), ReadError> {
        let joins = |view: &View<'a, W, B>, header: &Header| {
            header.kind == kind_of(self.role, 0) && view.compare_low(header, bound) == Ordering::Equal
        };
        if self.read_leaf::<B>(node, leaf, joins) {
            return Ok(());
        }
        self.snapshot_sized::<B>(Target::At(*bound), leaf)
    }

    /// Fills the snapshot from a leaf that is accepted and does not change meanwhile; else the snapshot
    /// stays.
    fn read_leaf<const B: usize>(
        &self,
        node: NodeIndex,
        leaf: &mut LeafSnapshot,
        accept: impl Fn(&View<'a, W, B>, &Header) -> bool,
    ) -> bool {
        let view = self.view::<B>(node);
        let read = view.stable(|view| {
            let header = view.header();
            let accepted = accept(view, &header);
            if accepted {
                leaf.next.fill(view, &header, node);
            }
            accepted
        });
        if read == Some(true) {
            std::mem::swap(&mut leaf.now, &mut leaf.next);
        }
        read == Some(true)
    }
}

pub(crate) enum Heading {
    Here,
    Down(NodeIndex),
    Right(Pointer),
    /// The target is below the node.
    Below,
    /// The node is not the one that was meant.
    Restart,
}

/// Which way a target lies from a node, which must be of a kind.
pub(crate) fn heading<W: Words + ?Sized, const B: usize>(
    view: &View<'_, W, B>,
    header: &Header,
    kind: u8,
    target: &Target<'_>,
) -> Heading {
    if header.kind != kind {
        return Heading::Restart;
    }
    let (below, beyond) = match target {
        Target::First | Target::Last => (false, false),
        Target::At(key) => {
            let beyond = view.compare_high(header, key) != Ordering::Greater;
            (view.compare_low(header, key) == Ordering::Greater, beyond)
        }
        Target::Below(bound) => {
            let beyond = view.compare_high(header, bound) == Ordering::Less;
            (view.compare_low(header, bound) != Ordering::Less, beyond)
        }
    };
    if below {
        return Heading::Below;
    }
    if beyond {
        return Heading::Right(view.right());
    }
    if !header.is_inner() {
        return Heading::Here;
    }
    Heading::Down(view.child(header, route(view, header, target)))
}

fn route<W: Words + ?Sized, const B: usize>(
    view: &View<'_, W, B>,
    header: &Header,
    target: &Target<'_>,
) -> usize {
    let last = header.count.saturating_sub(1);
    match target {
        Target::First => 0,
        Target::Last => last,
        Target::At(key) => view.route(header, key, key.window(header.prefix)),
        // A bound that does not share the prefix is the high fence, or above all keys of the node.
        Target::Below(bound) if !view.begins_with_prefix(header.prefix, bound) => last,
        Target::Below(bound) => view.route_below(header, bound, bound.window(header.prefix)),
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Csn, ExtentOffset, RegionId, SlotIndex};

    use super::*;
    use crate::{Change, Geometry, LeafEntry, Slot, apply, empty_root};

    const SLOT: Slot = Slot { region: RegionId(2), index: SlotIndex(0) };

    fn put(words: &mut [u64], geometry: Geometry, key: &[u8], number: u32) {
        let entry = LeafEntry { offset: ExtentOffset(number), value_len: 1, crc: 7 };
        let put = Change::Put { node: NodeIndex::ROOT, key, entry };
        apply(words, geometry, SLOT, &put, Csn(number.into()));
    }

    #[test]
    fn leaf_is_unchanged_until_it_changes_in_whatever_entry() {
        let geometry = Geometry::new(512, 4096, 0).unwrap();
        let (mut words, mut leaf) = (vec![0; 512], LeafSnapshot::new());
        words[..64].copy_from_slice(&empty_root(geometry));
        for (number, key) in (1..).zip([b"apple", b"apple", b"berry"]) {
            put(&mut words, geometry, key, number);
            let meganode = Meganode::new(&words[..], geometry, SLOT);
            assert!(number == 1 || !meganode.is_unchanged(leaf.version()), "{key:?}");
            meganode.leaf(key, &mut leaf).unwrap();
            assert!(meganode.is_unchanged(leaf.version()), "{key:?}");
        }
        words[0] |= 1;
        let meganode = Meganode::new(&words[..], geometry, SLOT);
        assert!(!meganode.is_unchanged(leaf.version()), "a writer is at work");
    }
}
