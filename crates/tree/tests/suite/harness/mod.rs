//! A tree in plain memory, its log in a vector.
#![allow(dead_code, unused_macros, reason = "each test binary uses a part")]

/// Runs `$body` with `$meganode` as a reader of the tree.
#[macro_export]
macro_rules! reading {
    ($tree:expr, $meganode:ident => $body:expr) => {{
        let memory = &*$tree.memory;
        let $meganode = cell_tree::Meganode::new(&memory, $tree.geometry, $crate::harness::SLOT);
        $body
    }};
}

pub(crate) mod again;
pub(crate) mod places;
pub(crate) mod readers;
pub(crate) mod removal;
pub(crate) mod role;

use std::sync::atomic::{AtomicU64, Ordering};

use cell_terms::{Csn, ExtentOffset, RegionId, SlotIndex, Words, WordsMut};
use cell_tree::{
    Change, CompactionLimits, CompactionNext, CompactionPlan, Geometry, Image, LeafEntry, Meganode,
    NodeIndex, PlacedChange, Plan, PlanError, Slot, SlotAllocator, apply_placed, empty_root, plan_fence,
    plan_put, plan_remove,
};

pub(crate) const SLOT: Slot = Slot { region: RegionId(2), index: SlotIndex(1) };

pub(crate) fn geometry(node_bytes: usize, nodes: usize) -> Geometry {
    Geometry::new(node_bytes, node_bytes * nodes, 4096).unwrap()
}

/// Words that any thread may read while one writes.
pub(crate) struct Memory(pub(crate) Vec<AtomicU64>);

impl Memory {
    pub(crate) fn new(geometry: Geometry) -> Memory {
        let words = geometry.slot_word(SLOT.index) + geometry.nodes() * geometry.node_words();
        Memory((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn copy(&self) -> Memory {
        Memory(self.0.iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect())
    }
}

impl Words for &Memory {
    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn prefetch(&self, _index: usize) {}
}

impl WordsMut for &Memory {
    fn store(&mut self, index: usize, word: u64) {
        self.0[index].store(word, Ordering::Relaxed);
    }
}

pub(crate) struct Tree {
    pub(crate) memory: std::sync::Arc<Memory>,
    pub(crate) geometry: Geometry,
    pub(crate) allocator: SlotAllocator,
    pub(crate) plan: Plan,
    pub(crate) csn: Csn,
    /// Each change as recorded.
    pub(crate) log: Vec<(Csn, Vec<u8>)>,
}

pub(crate) fn entry(number: u64) -> LeafEntry {
    LeafEntry {
        offset: ExtentOffset(u32::try_from(number & 0xFFFF_FFFF).unwrap()),
        value_len: u32::try_from(number >> 32 & 0xFFFF).unwrap() + 7,
        crc: number.wrapping_mul(0x9E37_79B9_7F4A_7C15),
    }
}

impl Tree {
    pub(crate) fn new(geometry: Geometry) -> Tree {
        let mut tree = Tree {
            memory: std::sync::Arc::new(Memory::new(geometry)),
            geometry,
            allocator: SlotAllocator::new(geometry.nodes()),
            plan: Plan::new(),
            csn: Csn::ZERO,
            log: Vec::new(),
        };
        let root = empty_root(geometry);
        tree.record(&Change::Fill { node: NodeIndex::ROOT, image: Image::new(&root) });
        tree
    }

    fn record(&mut self, change: &Change<'_>) {
        self.record_placed(&PlacedChange::from(*change));
    }

    fn record_placed(&mut self, placed: &PlacedChange<'_>) {
        let change = placed.change();
        self.csn = self.csn.next();
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        assert_eq!(bytes.len(), change.encoded_len());
        assert_eq!(Change::decode(&bytes).as_ref(), Ok(change));
        self.log.push((self.csn, bytes));
        apply_placed(&mut &*self.memory, self.geometry, SLOT, placed, self.csn);
    }

    fn apply_plan(&mut self) {
        let plan = std::mem::take(&mut self.plan);
        for placed in plan.placed() {
            self.record_placed(&placed);
        }
        self.plan = plan;
        self.plan.commit(&mut self.allocator);
    }

    pub(crate) fn put(&mut self, key: &[u8], entry: LeafEntry) -> Result<Option<LeafEntry>, PlanError> {
        let memory = &*self.memory;
        let meganode = Meganode::new(&memory, self.geometry, SLOT);
        plan_put(&meganode, &mut self.allocator, key, entry, &mut self.plan)?;
        let old = self.plan.old();
        self.apply_plan();
        Ok(old)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<Option<LeafEntry>, PlanError> {
        let memory = &*self.memory;
        plan_remove(&Meganode::new(&memory, self.geometry, SLOT), key, &mut self.plan)?;
        let old = self.plan.old();
        self.apply_plan();
        Ok(old)
    }

    /// Makes a key a fence between two leaves.
    pub(crate) fn fence(&mut self, key: &[u8]) -> Result<(), PlanError> {
        let memory = &*self.memory;
        let meganode = Meganode::new(&memory, self.geometry, SLOT);
        plan_fence(&meganode, &mut self.allocator, key, &mut self.plan)?;
        self.apply_plan();
        Ok(())
    }
}

/// Where a compaction of a tree is.
#[derive(Debug, Default)]
pub(crate) struct CompactionPass {
    pub(crate) level: u8,
    pub(crate) from: Vec<u8>,
    pub(crate) plan: CompactionPlan,
}

/// Runs that hold less than four tenths are packed.
pub(crate) const SPARSE: CompactionLimits =
    CompactionLimits { sparse_permille: 400, fill_percent: 85, fills: 4, run: 32 };

/// All runs are packed that become fewer nodes.
pub(crate) const ALWAYS: CompactionLimits = CompactionLimits { sparse_permille: 1_000, ..SPARSE };

impl Tree {
    /// One step of a compaction, `each` being called after each change; false when the last level is done.
    /// Freed nodes can be used again at once: whoever still comes to one looks at its fences.
    pub(crate) fn compaction_step(
        &mut self,
        pass: &mut CompactionPass,
        limits: &CompactionLimits,
        mut each: impl FnMut(&Tree),
    ) -> bool {
        let next = reading!(self, meganode => {
            meganode.plan_compaction(pass.level, &pass.from, limits, &mut pass.plan).unwrap()
        });
        for change in pass.plan.changes() {
            self.record(&change);
            each(self);
        }
        pass.plan.commit(&mut self.allocator);
        pass.plan.freed().iter().for_each(|node| self.allocator.free(*node));
        match next {
            CompactionNext::From(from) => pass.from = from,
            CompactionNext::LevelDone => (pass.level, pass.from) = (pass.level + 1, Vec::new()),
            CompactionNext::TreeDone => return false,
        }
        true
    }
}
