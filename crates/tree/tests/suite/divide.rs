//! Meganodes that are split: every key is found in one half or the other, at every moment that a reader may
//! see.
#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]

use std::collections::BTreeMap;

use crate::harness::{Memory, SLOT, Tree, entry, geometry};
use cell_random::Random;
use cell_terms::{Csn, Pointer, SlotIndex};
use cell_tree::{
    BulkBuilder, BulkFrame, Change, LeafEntry, LeafSnapshot, Meganode, NODE_BYTES, NodeIndex, PlanError,
    ReadError, Replayed, Slot, SlotAllocator, SplitPlan, TreeNodeState, apply, replay, show,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Where the upper half goes: the slot that the harness leaves free.
const TARGET: Slot = Slot { region: SLOT.region, index: SlotIndex(0) };

type Model = BTreeMap<Vec<u8>, LeafEntry>;

fn grow(tree: &mut Tree, model: &mut Model, random: &mut Random, below: Option<&[u8]>, count: u64) {
    for number in 0..count {
        let width = 1 + random.index(12);
        let key = format!("{:0width$}", random.index(100_000)).into_bytes();
        if below.is_some_and(|below| *key >= *below) {
            continue;
        }
        if random.index(5) == 0 {
            tree.remove(&key).unwrap();
            model.remove(&key);
        } else if tree.put(&key, entry(number)).is_ok() {
            model.insert(key, entry(number));
        }
    }
}

/// Builds the upper half, hidden, one entry at a time as the source's leaves have them.
fn adopt(tree: &Tree, key: &[u8], csn: &mut Csn) -> SlotAllocator {
    let memory = &*tree.memory;
    let (source, mut leaf) = (Meganode::new(&memory, tree.geometry, SLOT), LeafSnapshot::new());
    let frame = BulkFrame { low: key, state: TreeNodeState::Hidden, ..BulkFrame::WHOLE };
    let mut builder = BulkBuilder::new(tree.geometry, TARGET, &frame);
    let mut allocator = SlotAllocator::new(tree.geometry.nodes());
    let mut emit = |change: Change<'_>| {
        *csn = csn.next();
        replay(&mut &*tree.memory, tree.geometry, TARGET, &change, *csn).unwrap();
    };
    source.leaf(key, &mut leaf).unwrap();
    loop {
        for (key, entry) in leaf.iter() {
            builder.push(&mut allocator, key, entry, &mut emit).unwrap();
            assert_eq!(builder.last_key(), key);
        }
        if !source.leaf_after(&mut leaf).unwrap() {
            break;
        }
    }
    let built = builder.finish(&mut allocator, &mut emit).unwrap();
    assert_eq!((built.nodes, built.entries), (allocator.nodes_used(), builder.entries()));
    allocator
}

/// The changes of the record that truncates the source.
fn changes<'a>(plan: &'a SplitPlan, key: &'a [u8], right: Pointer) -> impl Iterator<Item = Change<'a>> {
    let boundary = plan.boundary.iter().map(move |node| Change::Truncate { node: *node, high: key, right });
    boundary.chain(plan.freed.bits().iter().map(|node| Change::Mark { node, state: TreeNodeState::Free }))
}

/// What a reader finds who goes on where a meganode sends it.
fn find(tree: &Tree, key: &[u8]) -> Option<LeafEntry> {
    let memory = &*tree.memory;
    match Meganode::new(&memory, tree.geometry, SLOT).search(key) {
        Ok(found) => found.entry,
        Err(ReadError::Beyond(pointer)) => {
            assert_eq!(tree.geometry.locate(pointer), Some((TARGET, NodeIndex::ROOT)));
            Meganode::new(&memory, tree.geometry, TARGET).search(key).unwrap().entry
        }
        Err(error) => panic!("{error}"),
    }
}

fn check(tree: &Tree, model: &Model) {
    for (key, entry) in model {
        assert_eq!(find(tree, key), Some(*entry), "{key:?}");
    }
}

fn split_once(node_bytes: usize, seed: u64, percent: usize) {
    let mut random = Random::new(seed * 77 + 1);
    let mut tree = Tree::new(geometry(node_bytes, 2048));
    let mut model = Model::new();
    grow(&mut tree, &mut model, &mut random, None, 3_000);
    let pick = |tree: &Tree| reading!(tree, meganode => meganode.split_key(percent).unwrap().unwrap());
    let key = pick(&tree);
    let mut csn = Csn(1_000_000);
    let mut allocator = adopt(&tree, &key, &mut csn);
    let memory = tree.memory.clone();
    let sizes = tree.geometry;
    let target = || -> Vec<NodeIndex> {
        let memory = &*memory;
        Meganode::new(&memory, sizes, TARGET).built_nodes().collect()
    };
    {
        let memory = &*memory;
        let hidden = Meganode::new(&memory, tree.geometry, TARGET);
        assert_eq!(hidden.search(&key), Err(ReadError::NotHere), "nobody sees it");
        let stats = hidden.validate_as(TreeNodeState::Hidden, true).unwrap();
        let above = model.range(key.clone()..).count();
        assert_eq!((stats.entries, hidden.allocator().nodes_used()), (above as u64, allocator.nodes_used()));
        assert!(hidden.validate(false).is_err());
    }
    // The lower half goes on while the upper one is adopted.
    grow(&mut tree, &mut model, &mut random, Some(&key), 500);
    let plan = reading!(tree, meganode => meganode.plan_meganode_split(&key).unwrap());
    assert_eq!(plan.boundary.len(), usize::from(tree.allocator.height()));
    let snapshot = tree.memory.copy();
    let at = tree.csn;

    // Readable: the root last.
    for node in target().into_iter().rev() {
        assert!(show(&mut &*tree.memory, tree.geometry, TARGET, node, TreeNodeState::Valid));
    }
    check(&tree, &model);
    let right = tree.geometry.pointer(TARGET, NodeIndex::ROOT);
    let csn = at.next();
    for change in changes(&plan, &key, right) {
        apply(&mut &*tree.memory, tree.geometry, SLOT, &change, csn);
        if plan.boundary.contains(&change.node()) {
            check(&tree, &model);
        }
    }
    tree.csn = csn;
    check(&tree, &model);
    let freed: Vec<_> = plan.freed.bits().iter().collect();
    assert!(plan.leaves.iter().all(|leaf| freed.contains(leaf)) && freed.len() == plan.freed.bits().len());
    freed.iter().for_each(|node| tree.allocator.free(*node));
    let stats = reading!(tree, meganode => meganode.validate(true).unwrap());
    assert_eq!(stats.entries, model.range(..key.clone()).count() as u64);
    assert_eq!(stats.height, tree.allocator.height(), "the height stays");
    assert_eq!(stats.nodes(), tree.allocator.nodes_used() as u64);
    reading!(tree, meganode => {
        let mut last = LeafSnapshot::new();
        meganode.leaf_last(&mut last).unwrap();
        assert_eq!(meganode.leaf_after(&mut last), Err(ReadError::Beyond(right)));
        assert_eq!(meganode.search(&key), Err(ReadError::Beyond(right)));
    });

    // Replay of the one record over what was before it, twice, makes the same tree.
    for round in 0..2 {
        for change in changes(&plan, &key, right) {
            let replayed = replay(&mut &snapshot, tree.geometry, SLOT, &change, csn).unwrap();
            assert_eq!(replayed, if round == 0 { Replayed::Applied } else { Replayed::Skipped });
        }
    }
    let (ours, theirs) = (&*tree.memory, &snapshot);
    let copies = [Meganode::new(&ours, tree.geometry, SLOT), Meganode::new(&theirs, tree.geometry, SLOT)]
        .map(|meganode| meganode.validate(true).unwrap());
    assert_eq!(copies[0], copies[1]);

    // Both halves go on: the lower one uses the freed nodes.
    grow(&mut tree, &mut model, &mut random, Some(&key), 500);
    let mut plan = cell_tree::Plan::new();
    for number in 0..300_u64 {
        let key = [&*key, format!("{number:04}").as_bytes()].concat();
        let memory = &*tree.memory;
        let half = Meganode::new(&memory, tree.geometry, TARGET);
        cell_tree::plan_put(&half, &mut allocator, &key, entry(number), &mut plan).unwrap();
        for change in plan.changes() {
            tree.csn = tree.csn.next();
            apply(&mut &*tree.memory, tree.geometry, TARGET, &change, tree.csn);
        }
        plan.commit(&mut allocator);
        model.insert(key, entry(number));
    }
    check(&tree, &model);
    let memory = &*tree.memory;
    Meganode::new(&memory, tree.geometry, TARGET).validate(true).unwrap();
    reading!(tree, meganode => meganode.validate(true).unwrap());
}

#[test]
fn split_at_any_fence_keeps_every_key() {
    for node_bytes in NODE_BYTES {
        for (seed, percent) in [(1, 50), (2, 0), (3, 100), (4, 30), (5, 90), (6, 50)] {
            split_once(node_bytes, seed, percent);
        }
    }
}

#[test]
fn split_key_leaves_about_so_many_leaves_on_the_left() {
    let mut tree = Tree::new(geometry(512, 4096));
    reading!(tree, meganode => assert_eq!(meganode.split_key(50), Ok(None), "a single leaf"));
    for number in 0..20_000_u64 {
        tree.put(format!("{:08}", number.wrapping_mul(0x9E37_79B1) % 100_000_000).as_bytes(), entry(number))
            .unwrap();
    }
    for percent in [10, 50, 85] {
        let (key, plan) = reading!(tree, meganode => {
            let key = meganode.split_key(percent).unwrap().unwrap();
            let plan = meganode.plan_meganode_split(&key).unwrap();
            (key, plan)
        });
        let leaves = reading!(tree, meganode => meganode.validate(false).unwrap()).levels[0].nodes;
        let left = (leaves - plan.leaves.len() as u64) * 100 / leaves;
        assert!(left.abs_diff(percent as u64) <= 1, "{left} % at {key:?}");
    }
}

/// A meganode of one leaf could not be split, whatever it weighed: values of 4 MB filled one pair, and the
/// node was full.
#[test]
fn division_of_a_single_leaf_is_within_it_and_can_be_made_a_fence() {
    for wanted in 1..9 {
        let mut tree = Tree::new(geometry(512, 64));
        reading!(tree, meganode => assert_eq!(meganode.division(wanted, |_| 2), Ok(None), "no entry"));
        tree.put(b"key 0", entry(0)).unwrap();
        reading!(tree, meganode => assert_eq!(meganode.division(wanted, |_| 2), Ok(None), "one entry"));
        (1..5).for_each(|number| {
            tree.put(format!("key {number}").as_bytes(), entry(number)).unwrap();
        });
        let division = reading!(tree, meganode => meganode.division(wanted, |_| 2).unwrap().unwrap());
        assert!(!division.fenced && division.weight.abs_diff(wanted) <= 1, "{wanted}: {division:?}");
        assert_eq!(division.key, format!("key {}", 5 - division.weight / 2).into_bytes());
        tree.fence(&division.key).unwrap();
        reading!(tree, meganode => {
            assert_eq!(meganode.validate(true).unwrap().levels[0].nodes, 2);
            let plan = meganode.plan_meganode_split(&division.key).unwrap();
            assert_eq!((plan.boundary.len(), plan.leaves.len()), (2, 1));
        });
        let before = tree.log.len();
        tree.fence(&division.key).unwrap();
        assert_eq!(tree.log.len(), before, "it is one already");
        assert_eq!(tree.fence(b"key 9"), Err(PlanError::NoBoundary), "nothing is behind it");
    }
}

#[test]
fn split_at_what_is_no_fence_is_refused() {
    let mut tree = Tree::new(geometry(512, 64));
    let plan = |tree: &Tree, key: &[u8]| reading!(tree, meganode => meganode.plan_meganode_split(key));
    assert_eq!(plan(&tree, b"m"), Err(PlanError::NoBoundary));
    for number in 0..200_u64 {
        tree.put(format!("{number:08}").as_bytes(), entry(number)).unwrap();
    }
    let fence = reading!(tree, meganode => meganode.split_key(50).unwrap().unwrap());
    assert!(plan(&tree, &fence).is_ok());
    let inside = [&*fence, b"x"].concat();
    assert_eq!(plan(&tree, &inside), Err(PlanError::NoBoundary));
    assert_eq!(plan(&tree, b""), Err(PlanError::Read(ReadError::KeyLength(0))));
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xFF)], 1..9)
}

proptest! {
    /// Beside a plain sum over the keys.
    #[test]
    fn division_weighs_what_is_wanted_and_its_fence_loses_no_key(
        keys in vec(key(), 2..700), share in 1..100u64, heavy in 1..200u64, size in 0..2usize,
    ) {
        let mut tree = Tree::new(geometry([512, 1024][size], 1024));
        let mut model = Model::new();
        for (number, key) in (0..).zip(keys) {
            tree.put(&key, entry(number)).unwrap();
            model.insert(key, entry(number));
        }
        let weigh = |entry: &LeafEntry| if entry.crc.is_multiple_of(7) { heavy } else { 1 + entry.crc % 3 };
        let total: u64 = model.values().map(weigh).sum();
        let heaviest = model.values().map(weigh).max().unwrap_or(0);
        let wanted = (total * share / 100).clamp(heaviest, (total / 2).max(heaviest));
        let Some(division) = reading!(tree, meganode => meganode.division(wanted, weigh).unwrap()) else {
            prop_assert!(model.len() < 2);
            return Ok(());
        };
        let above: u64 = model.range(division.key.clone()..).map(|(_, entry)| weigh(entry)).sum();
        prop_assert_eq!(division.weight, above);
        let error = above.abs_diff(wanted);
        prop_assert!(total < 2 * heaviest || error <= heaviest.div_ceil(2).max(wanted / 8));
        let fences = reading!(tree, meganode => meganode.plan_meganode_split(&division.key).is_ok());
        prop_assert_eq!(fences, division.fenced);
        tree.fence(&division.key).unwrap();
        reading!(tree, meganode => {
            prop_assert!(meganode.plan_meganode_split(&division.key).is_ok());
            prop_assert_eq!(meganode.validate(true).unwrap().entries, model.len() as u64);
        });
        for (key, entry) in &model {
            let found = reading!(tree, meganode => meganode.search(key).unwrap().entry);
            prop_assert_eq!(found, Some(*entry));
        }
    }

    #[test]
    fn floor_is_the_last_entry_not_above_the_key(
        keys in vec(key(), 1..400), gone in vec(key(), 0..200), wanted in vec(key(), 1..60)
    ) {
        let mut tree = Tree::new(geometry(512, 400));
        let mut model = Model::new();
        for (number, key) in keys.iter().enumerate() {
            tree.put(key, entry(number as u64)).unwrap();
            model.insert(key.clone(), entry(number as u64));
        }
        for key in &gone {
            tree.remove(key).unwrap();
            model.remove(key);
        }
        for key in wanted.iter().chain(&keys) {
            let expected = model.range(..=key.clone()).next_back().map(|(_, entry)| *entry);
            prop_assert_eq!(reading!(tree, meganode => meganode.predecessor(key)), Ok(expected));
        }
    }

    #[test]
    fn builder_in_steps_makes_what_one_go_makes(
        mut keys in vec(vec(any::<u8>(), 1..60), 0..600), fill in 40..=100_usize, from in 0..3_usize
    ) {
        keys.sort();
        keys.dedup();
        let geometry = geometry(NODE_BYTES[from], 2048);
        let frame = BulkFrame { fill_percent: fill, state: TreeNodeState::Hidden, ..BulkFrame::WHOLE };
        let (one, other) = (Memory::new(geometry), Memory::new(geometry));
        let fill_into = |memory: &Memory, change: &Change<'_>| {
            replay(&mut &*memory, geometry, TARGET, change, Csn(9)).unwrap();
        };
        let entries = keys.iter().zip(0..).map(|(key, number)| (key, entry(number)));
        let mut allocator = SlotAllocator::new(geometry.nodes());
        let built = cell_tree::bulk_build(
            geometry, TARGET, &frame, &mut allocator, entries, |change| fill_into(&one, &change)
        ).unwrap();
        let mut builder = BulkBuilder::new(geometry, TARGET, &frame);
        let mut stepped = SlotAllocator::new(geometry.nodes());
        for (key, number) in keys.iter().zip(0..) {
            let mut fills = 0;
            builder.push(&mut stepped, key, entry(number), &mut |change| {
                fills += 1;
                fill_into(&other, &change);
            }).unwrap();
            prop_assert!(fills <= 4, "one a level");
        }
        let finished = builder.finish(&mut stepped, &mut |change| fill_into(&other, &change));
        prop_assert_eq!(finished.unwrap(), built);
        let both = [&one, &other].map(|memory| {
            Meganode::new(&memory, geometry, TARGET).validate_as(TreeNodeState::Hidden, true).unwrap()
        });
        prop_assert_eq!(&both[0], &both[1]);
        prop_assert_eq!(both[0].entries, keys.len() as u64);
        prop_assert_eq!(allocator.nodes_free(), stepped.nodes_free());
    }

    /// Who gives a build up frees what hangs on its nodes, and what they do not have; also when the slot is
    /// full in the middle of it.
    #[test]
    fn entries_that_are_open_are_those_that_no_node_has(
        mut keys in vec(vec(b'a'..=b'f', 1..20), 1..700), nodes in 64..128_usize, fill in 40..=100_usize
    ) {
        keys.sort();
        keys.dedup();
        let geometry = geometry(NODE_BYTES[0], nodes);
        let frame = BulkFrame { fill_percent: fill, state: TreeNodeState::Hidden, ..BulkFrame::WHOLE };
        let memory = Memory::new(geometry);
        let mut emit = |change: Change<'_>| {
            replay(&mut &memory, geometry, TARGET, &change, Csn(9)).unwrap();
        };
        let in_nodes = || {
            let (words, mut entries) = (&memory, Vec::new());
            let meganode = Meganode::new(&words, geometry, TARGET);
            meganode.built_nodes().for_each(|node| meganode.leaf_entries(node, &mut entries));
            entries.len()
        };
        let mut builder = BulkBuilder::new(geometry, TARGET, &frame);
        let mut allocator = SlotAllocator::new(geometry.nodes());
        // Few are left, so that many a build finds the slot full.
        while allocator.nodes_free() > nodes / 4 && allocator.allocate(0).is_some() {}
        let mut pushed = 0;
        for key in &keys {
            let done = builder.push(&mut allocator, key, entry(1), &mut emit).is_ok();
            pushed += usize::from(done);
            prop_assert_eq!(in_nodes() + builder.entries_open(), pushed);
            if !done {
                return Ok(());
            }
        }
        let _ = builder.finish(&mut allocator, &mut emit);
        prop_assert_eq!(in_nodes() + builder.entries_open(), pushed);
    }
}
