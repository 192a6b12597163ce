//! The parts together, over one pair without a log: what waits, what is at a pair, and what is left to do.

use cell_cluster::{PairGeometry, Sim};
use cell_pair::{Pair, PairOptions};
use cell_recovery::{SplitName, WriteCompletion, WriteOutcome};
use cell_terms::{Durability, OperationNumber, Pointer, SlotIndex};
use cell_test_kit::Process;
use cell_wal::sim::SimDisk;

use super::cause::Cause;
use super::*;
use crate::pairs::ranges_of;

const MS: u64 = 1_000_000;
pub(super) const LEFT: SlotIndex = SlotIndex(0);
pub(super) const RIGHT: SlotIndex = SlotIndex(1);
/// Nothing is merged by itself.
const REST_NS: u64 = u64::MAX / 2;
/// Four slots of 128 small tree nodes.
pub(super) const SIZES: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 4 * (64 << 10),
    extent_region_bytes: 4 << 20,
    slot_bytes: 64 << 10,
    node_bytes: 512,
};
const OPTIONS: PairOptions = PairOptions {
    durability: Durability::None,
    reuse_grace_ns: 5 * MS,
    grant_chunk_bytes: 2 << 20,
    split_fill_percent: 90,
    compaction_permille: 400,
};

pub(super) fn completion(number: u64, outcome: WriteOutcome) -> WriteCompletion {
    let number = OperationNumber(number);
    WriteCompletion { session: SessionId(1), number, floor: number, outcome }
}

/// One pair of a worker, with one meganode.
pub(super) struct Story {
    pub(super) pairs: Pairs,
    pub(super) splits: Splits,
    pub(super) at: PairAt,
    pub(super) now_ns: u64,
    pub(super) process: Process,
}

impl Story {
    pub(super) fn begin(sizes: PairGeometry) -> Story {
        let process = Process::start(&SimDisk::new(5), &Sim::new(3));
        let (pairs, splits) = (Pairs::default(), Splits::new(REST_NS));
        let mut story = Story { pairs, splits, at: PairAt::NONE, now_ns: 0, process };
        story.at = story.add_pair(sizes);
        story
    }

    /// One more pair, which has no meganode unless it is the first one.
    pub(super) fn add_pair(&mut self, sizes: PairGeometry) -> PairAt {
        let restore = self.process.restore(self.process.create(sizes)).unwrap();
        let (recovered, _) = self.process.publish(restore, OPTIONS.durability).unwrap();
        let pair = Pair::new(recovered, &OPTIONS);
        let ranges = ranges_of(&pair, self.pairs.next_at()).unwrap();
        self.pairs.add(pair, 0, ranges)
    }

    /// What was freed has rested.
    pub(super) fn rest(&mut self) {
        for _ in 0..2 {
            self.now_ns += OPTIONS.reuse_grace_ns;
            while self.pairs.pair_mut(self.at).reuse(self.now_ns) {}
        }
    }

    /// A split of the left meganode begins, and nothing more comes of it yet.
    pub(super) fn begin_split(&mut self, into: MeganodeAt) -> SplitName {
        (0..100_u64).for_each(|number| self.put(number + 1, &number.to_be_bytes()));
        let left = MeganodeAt { pair: self.at, slot: LEFT };
        let low = self.pairs.pair(self.at).split_key(LEFT, 50).unwrap();
        self.splits.sources.begin(&mut self.pairs, left, &low, into, 0).unwrap();
        self.pairs.pair(self.at).split_table().sources().next().unwrap().0
    }

    /// A pair most of whose extents were deleted: what is left is in slabs that are nearly empty.
    pub(super) fn sparse() -> Story {
        let slot_bytes = 1 << 20;
        let node_region_bytes = 4096 + 4 * slot_bytes;
        let mut story = Story::begin(PairGeometry { node_region_bytes, slot_bytes, ..SIZES });
        let entries = 1_600_u64;
        (1..=entries).for_each(|number| story.put_into(LEFT, number, &number.to_be_bytes(), &[7; 1_000]));
        let most = (1..=entries).filter(|number| !number.is_multiple_of(16));
        most.for_each(|number| story.delete(entries + number, &number.to_be_bytes()));
        story.rest();
        story
    }

    pub(super) fn until(&mut self, what: &str, holds: impl Fn(&Story) -> bool) {
        for _ in 0..10_000 {
            if holds(self) {
                return;
            }
            self.now_ns += MS;
            self.pairs.pair_mut(self.at).reuse(self.now_ns);
            self.splits.tick(&mut self.pairs, self.now_ns);
            self.splits.step(&mut self.pairs, self.now_ns);
        }
        panic!("it never came to {what}");
    }

    /// Writes an entry into the left meganode.
    pub(super) fn put(&mut self, number: u64, key: &[u8]) {
        self.put_into(LEFT, number, key, b"v");
    }

    pub(super) fn put_into(&mut self, slot: SlotIndex, number: u64, key: &[u8], value: &[u8]) {
        let written = |version, replaced| completion(number, WriteOutcome::Written { version, replaced });
        let pair = self.pairs.pair_mut(self.at);
        assert_eq!(pair.make_room(slot, value.len()), (true, true), "nodes and an extent");
        pair.put(slot, key, value, written).unwrap();
    }

    /// Removes an entry of the left meganode.
    pub(super) fn delete(&mut self, number: u64, key: &[u8]) {
        let deleted = completion(number, WriteOutcome::Deleted);
        self.pairs.pair_mut(self.at).delete(LEFT, key, &deleted).unwrap();
    }

    /// The upper half of the left meganode goes to the right one.
    pub(super) fn divide(&mut self) {
        let at = self.at;
        let [left, right] = [LEFT, RIGHT].map(|slot| MeganodeAt { pair: at, slot });
        let low = self.pairs.pair(at).split_key(LEFT, 50).unwrap();
        self.splits.sources.begin(&mut self.pairs, left, &low, right, 0).unwrap();
        let is_over = |story: &Story| story.splits.sources.is_empty() && story.splits.targets.is_empty();
        self.until("the split's end", is_over);
    }

    fn nodes_used(&self, slot: SlotIndex) -> usize {
        self.pairs.pair(self.at).nodes_used(slot)
    }

    fn slots_free(&self) -> usize {
        self.pairs.pair(self.at).free_slots().count()
    }
}

/// Tree nodes are made readable a part at a time. Meganodes of other tests have one part.
#[test]
fn half_of_several_parts_that_are_made_readable_one_by_one_is_opened() {
    let slot_bytes = 4 << 20;
    let (node_region_bytes, extent_region_bytes) = (4096 + 4 * slot_bytes, 16 << 20);
    let mut story =
        Story::begin(PairGeometry { node_region_bytes, extent_region_bytes, slot_bytes, ..SIZES });
    let mut entries = 0;
    while story.nodes_used(LEFT) < 6_000 {
        entries += 1;
        let key = format!("{:06}{:060}", entries * 7_919 % 100_003, 0);
        story.put(entries, key.as_bytes());
    }
    story.divide();
    let nodes = story.nodes_used(RIGHT);
    assert!(nodes > 1_025, "a second part: {nodes}");
}

/// A process died between the router's first entry and the root.
#[test]
fn router_to_which_no_root_leads_gives_its_slot_back() {
    let mut story = Story::begin(SIZES);
    let before = story.slots_free();
    assert!(story.pairs.pair_mut(story.at).begin_router(RIGHT));
    assert_eq!(story.slots_free(), before - 1);
    story.splits.install(&mut story.pairs);
    story.until("a free slot", |story| story.slots_free() == before);
}

/// The pair does not leave amid that.
#[test]
fn entry_that_is_on_its_way_is_at_the_routers_pair() {
    let mut story = Story::begin(SIZES);
    assert!(!story.splits.are_at(&story.pairs, story.at));
    let low = b"low".as_slice().into();
    story.splits.parents.push(SplitName::default(), low, Pointer::NULL, None);
    assert!(story.splits.are_at(&story.pairs, story.at));
}

/// What is named must be there, and what others wait for stays.
#[test]
fn pair_that_leaves_is_waited_for_no_more_and_others_are() {
    let [stays, leaves] = [0, 1].map(|pair| MeganodeAt { pair: PairAt(pair), slot: LEFT });
    let mut splits = Splits {
        full: [stays, leaves].into(),
        awaited: [(stays, Csn::ZERO), (leaves, Csn::ZERO)].into(),
        held_since: [(stays, 0), (leaves, 0)].into(),
        ..Splits::default()
    };
    splits.forget_pair(leaves.pair);
    assert!(splits.full.iter().eq([&stays]));
    assert!(splits.awaited.keys().eq([&stays]));
    assert!(splits.held_since.keys().eq([&stays]));
}

/// Too early it would leave without that, and later it would never leave.
#[test]
fn pair_for_another_node_is_awaited_until_it_has_all_that_it_was_made_for() {
    let mut splits = Splits::default();
    for (pair, cause) in [(7, Cause::Nodes), (8, Cause::Oversized)] {
        splits.spread.asked(MeganodeAt::default(), cause, 2);
        splits.on_pair_added(Some((PairId(pair), Some(NodeId(1)))), 0);
    }
    let awaited = |splits: &Splits| [7, 8, 9].map(|pair| splits.is_awaited(PairId(pair)));
    assert_eq!(awaited(&splits), [true, true, false]);
    splits.spread.split_started(PairId(7));
    splits.spread.split_started(PairId(8));
    assert_eq!(awaited(&splits), [false, true, false], "it gets one part after the other");
    splits.spread.gathered();
    assert_eq!(awaited(&splits), [false; 3]);
}

#[test]
fn pair_that_has_left_gives_memory_for_which_puts_waited() {
    let mut splits = Splits::default();
    splits.relief.lacks(0);
    assert!(splits.lacks_memory(0));
    splits.pair_left();
    assert!(!splits.lacks_memory(0));
}

/// A checkpoint that began then would lack what no leaf leads to yet.
#[test]
fn pair_that_takes_entries_over_is_building_until_it_has_them() {
    let mut story = Story::begin(SIZES);
    let (at, mut effects) = (story.at, Effects::default());
    story.begin_split(MeganodeAt { pair: at, slot: RIGHT });
    story.splits.sources.step(&mut story.pairs, 0, &mut effects);
    assert!(!story.splits.is_building(at), "it was not asked yet");
    let asked = effects.messages.pop_front().unwrap();
    story.splits.deliver(&mut story.pairs, asked);
    assert!(story.splits.is_building(at) && !story.splits.is_building(PairAt(at.0 + 1)));
    story.until("the split's end", |story| story.splits.sources.is_empty());
    assert!(!story.splits.is_building(at));
}

/// Put off for good, its writes would wait for ever; and nobody is woken for nothing.
#[test]
fn full_meganode_asks_again_with_each_tick_but_not_amid_a_check() {
    let Story { mut pairs, mut splits, at, .. } = Story::begin(SIZES);
    let there = MeganodeAt { pair: at, slot: LEFT };
    splits.tick(&mut pairs, MS);
    assert!(!splits.effects.outcome.changed, "there is none");
    splits.full.insert(there);
    pairs.pair_mut(at).begin_check();
    splits.tick(&mut pairs, 2 * MS);
    assert!(splits.full.contains(&there) && !splits.effects.outcome.changed);
    pairs.pair_mut(at).end_check();
    splits.tick(&mut pairs, 3 * MS);
    assert!(splits.full.is_empty() && splits.effects.outcome.changed);
}
