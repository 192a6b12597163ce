//! The meganodes of a pair: one a slot in use, each with its free tree nodes and its count of entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cell_memory::Region;
use cell_terms::{RegionId, SlotIndex};
use cell_tree::{Geometry, LeafSnapshot, Meganode, NodeIndex, Slot, SlotAllocator};

use super::StoreError;

/// How far the tree nodes of each slot go, as its owner tells and others may ask at any time: a checkpoint's
/// copier and checks. Zero: the slot holds nothing.
#[derive(Debug)]
pub struct SlotEnds(Box<[AtomicU32]>);

impl SlotEnds {
    fn new(slots: u32) -> SlotEnds {
        SlotEnds((0..slots).map(|_| AtomicU32::new(0)).collect())
    }

    /// One above the slot's highest tree node that was ever in use.
    #[must_use]
    pub fn end(&self, slot: SlotIndex) -> NodeIndex {
        NodeIndex(self.of(slot).map_or(0, |end| end.load(Ordering::Acquire)))
    }

    /// The slots that hold something.
    pub fn used(&self) -> impl Iterator<Item = SlotIndex> + '_ {
        (0u32..)
            .zip(&self.0)
            .filter(|(_, end)| end.load(Ordering::Acquire) > 0)
            .map(|(slot, _)| SlotIndex(slot))
    }

    fn of(&self, slot: SlotIndex) -> Option<&AtomicU32> {
        usize::try_from(slot.0).ok().and_then(|slot| self.0.get(slot))
    }

    fn set(&self, slot: SlotIndex, end: NodeIndex) {
        if let Some(of) = self.of(slot) {
            of.store(end.0, Ordering::Release);
        }
    }
}

/// A meganode in its owner's hands.
#[derive(Debug)]
pub(crate) struct OwnedMeganode {
    pub(crate) allocator: SlotAllocator,
    pub(crate) entries: u64,
}

/// The range of a meganode: its root's fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fences {
    pub(crate) low: Box<[u8]>,
    pub(crate) high: Option<Box<[u8]>>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Meganodes {
    geometry: Geometry,
    region: RegionId,
    slots: Vec<Option<OwnedMeganode>>,
    ends: Arc<SlotEnds>,
    monotone: bool,
}

impl Meganodes {
    pub(super) fn new(geometry: Geometry, region: RegionId, slots: u32) -> Meganodes {
        let ends = Arc::new(SlotEnds::new(slots));
        Meganodes { geometry, region, slots: (0..slots).map(|_| None).collect(), ends, monotone: false }
    }

    /// A slot holds a meganode from here on.
    pub(super) fn add(&mut self, slot: SlotIndex, mut allocator: SlotAllocator, entries: u64) {
        allocator.set_monotone(self.monotone);
        self.ends.set(slot, allocator.high_water());
        if let Some(owned) = usize::try_from(slot.0).ok().and_then(|slot| self.slots.get_mut(slot)) {
            *owned = Some(OwnedMeganode { allocator, entries });
        }
    }

    pub(super) fn ends(&self) -> Arc<SlotEnds> {
        self.ends.clone()
    }

    #[inline]
    pub(super) fn get(&self, slot: SlotIndex) -> Option<&OwnedMeganode> {
        usize::try_from(slot.0).ok().and_then(|slot| self.slots.get(slot)).and_then(Option::as_ref)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: SlotIndex) -> Option<&mut OwnedMeganode> {
        usize::try_from(slot.0).ok().and_then(|slot| self.slots.get_mut(slot)).and_then(Option::as_mut)
    }

    fn used(&self) -> impl Iterator<Item = (SlotIndex, &OwnedMeganode)> {
        let slots = (0u32..).zip(&self.slots);
        slots.filter_map(|(slot, owned)| owned.as_ref().map(|owned| (SlotIndex(slot), owned)))
    }

    /// Levels of a meganode's tree.
    pub(super) fn height(&self, slot: SlotIndex) -> u8 {
        self.get(slot).map_or(1, |owned| owned.allocator.height())
    }

    /// Tells copiers how far the slot's nodes go, before new ones become reachable.
    pub(super) fn announce(&self, slot: SlotIndex) {
        if let Some(owned) = self.get(slot) {
            self.ends.set(slot, owned.allocator.high_water());
        }
    }

    /// Entries were added, or with a negative number removed.
    pub(super) fn count(&mut self, slot: SlotIndex, added: i64) {
        if let Some(owned) = self.get_mut(slot) {
            owned.entries = owned.entries.saturating_add_signed(added);
        }
    }

    pub(super) fn entries(&self) -> u64 {
        self.used().map(|(_, owned)| owned.entries).sum()
    }

    pub(super) fn nodes_used(&self) -> u64 {
        self.used().map(|(_, owned)| owned.allocator.nodes_used() as u64).sum()
    }

    pub(super) fn set_monotone(&mut self, monotone: bool) {
        self.monotone = monotone;
        for owned in self.slots.iter_mut().flatten() {
            owned.allocator.set_monotone(monotone);
        }
    }

    /// Where each slot in use begins, and how far it has come; bytes from the region's start.
    pub(super) fn high_water(&self) -> impl Iterator<Item = (u64, u64)> {
        self.used().map(|(slot, owned)| {
            let begin = self.geometry.node_offset(slot, NodeIndex::ROOT) as u64;
            (begin, self.geometry.node_offset(slot, owned.allocator.high_water()) as u64)
        })
    }

    /// The meganodes' ranges, as their outermost leaves say.
    pub(super) fn fences(&self, node: &Region) -> Result<Vec<(SlotIndex, Fences)>, StoreError> {
        let mut leaf = LeafSnapshot::new();
        self.used()
            .map(|(slot, _)| {
                let there = Slot { region: self.region, index: slot };
                let meganode = Meganode::new(node, self.geometry, there);
                meganode.leaf_first(&mut leaf)?;
                let low = leaf.low().into();
                meganode.leaf_last(&mut leaf)?;
                Ok((slot, Fences { low, high: leaf.high().map(Into::into) }))
            })
            .collect()
    }
}
