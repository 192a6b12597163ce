//! Meganodes that are compacted after deletes: every key is found at every moment that a reader may see, and
//! what was empty can be used again.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test's helper may give up")]

use std::collections::BTreeMap;

use crate::harness::{ALWAYS, CompactionPass, Memory, SLOT, SPARSE, Tree, entry, geometry};
use cell_random::Random;
use cell_tree::{
    Change, CompactionLimits, CompactionNext, CompactionPlan, LeafEntry, LeafSnapshot, Meganode, NODE_BYTES,
    NodeIndex, Replayed, TreeNodeState, TreeStats, replay,
};
use proptest::collection::vec;
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, LeafEntry>;

fn stats(tree: &Tree) -> TreeStats {
    reading!(tree, meganode => meganode.validate(true).unwrap())
}

/// Every entry of the model, and nothing beside it.
fn check(tree: &Tree, model: &Model, asked: &[Vec<u8>]) {
    reading!(tree, meganode => for key in asked {
        assert_eq!(meganode.search(key).map(|found| found.entry), Ok(model.get(key).copied()), "{key:?}");
    });
}

fn check_scans(tree: &Tree, model: &Model) {
    reading!(tree, meganode => {
        let (mut leaf, mut forward, mut backward) = (LeafSnapshot::new(), Vec::new(), Vec::new());
        meganode.leaf_first(&mut leaf).unwrap();
        loop {
            forward.extend(leaf.iter().map(|(key, entry)| (key.to_vec(), entry)));
            if !meganode.leaf_after(&mut leaf).unwrap() {
                break;
            }
        }
        meganode.leaf_last(&mut leaf).unwrap();
        loop {
            backward.extend(leaf.iter().rev().map(|(key, entry)| (key.to_vec(), entry)));
            if !meganode.leaf_before(&mut leaf).unwrap() {
                break;
            }
        }
        let expected: Vec<_> = model.iter().map(|(key, entry)| (key.clone(), *entry)).collect();
        assert_eq!(forward, expected);
        backward.reverse();
        assert_eq!(backward, expected);
    });
}

/// Compacts until a pass frees nothing; the steps that changed something. `each` is called for every change.
fn compact(tree: &mut Tree, limits: &CompactionLimits, mut each: impl FnMut(&Tree)) -> usize {
    let (mut steps, mut rounds) = (0, 0);
    loop {
        let (mut pass, mut freed) = (CompactionPass::default(), 0);
        while tree.compaction_step(&mut pass, limits, &mut each) {
            freed += pass.plan.freed().len();
            steps += usize::from(!pass.plan.is_empty());
            rounds += 1;
            assert!(rounds < 100_000, "a compaction ends");
        }
        if freed == 0 {
            return steps;
        }
    }
}

fn grown(node_bytes: usize, entries: u64) -> (Tree, Model) {
    let (mut tree, mut model) = (Tree::new(geometry(node_bytes, 4096)), Model::new());
    for number in 0..entries {
        let key = format!("user{:07}", number * 7919 % 1_000_003).into_bytes();
        tree.put(&key, entry(number)).unwrap();
        model.insert(key, entry(number));
    }
    (tree, model)
}

/// Removes all entries but every so many.
fn thin_out(tree: &mut Tree, model: &Model, keep_every: usize) {
    for key in model.keys().enumerate().filter(|(at, _)| at % keep_every != 0).map(|(_, key)| key) {
        tree.remove(key).unwrap();
    }
}

#[test]
fn compaction_after_most_is_deleted_frees_most_of_the_nodes() {
    for node_bytes in NODE_BYTES {
        let (mut tree, mut model) = grown(node_bytes, 20_000);
        let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
        for (at, key) in keys.iter().enumerate() {
            if at % 10 != 3 {
                tree.remove(key).unwrap();
                model.remove(key);
            }
        }
        let before = stats(&tree);
        assert!(compact(&mut tree, &SPARSE, |_| {}) > 1);
        let after = stats(&tree);
        assert_eq!((after.entries, tree.allocator.height()), (model.len() as u64, after.height));
        assert_eq!(after.nodes(), tree.allocator.nodes_used() as u64);
        let (was, is) = (before.nodes(), after.nodes());
        assert!(is * 6 < was, "{node_bytes}: {was} tree nodes became {is}");
        check(&tree, &model, &keys);
        check_scans(&tree, &model);
    }
}

#[test]
fn compaction_of_an_emptied_tree_ends_with_one_leaf() {
    let (mut tree, mut model) = grown(512, 5_000);
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    for key in &keys {
        tree.remove(key).unwrap();
    }
    model.clear();
    let asked: Vec<Vec<u8>> = keys.iter().step_by(97).cloned().collect();
    compact(&mut tree, &SPARSE, |tree| check(tree, &model, &asked));
    let left = stats(&tree);
    assert_eq!((left.height, left.nodes(), tree.allocator.height()), (1, 1, 1));
    // All nodes but the root are free, and they are used again.
    assert_eq!(tree.allocator.nodes_used(), 1);
    for (number, key) in keys.iter().enumerate() {
        tree.put(key, entry(number as u64)).unwrap();
        model.insert(key.clone(), entry(number as u64));
    }
    check(&tree, &model, &keys);
    stats(&tree);
}

#[test]
fn compaction_of_a_full_slot_needs_no_free_node() {
    let mut tree = Tree::new(geometry(512, 64));
    let mut keys = Vec::new();
    for number in 0.. {
        let key = format!("{:08}", number * 7919 % 100_003).into_bytes();
        if tree.put(&key, entry(number)).is_err() {
            break;
        }
        keys.push(key);
    }
    assert!(!tree.allocator.has_room_for_put());
    keys.sort();
    let mut model: Model = keys.iter().map(|key| (key.clone(), LeafEntry::default())).collect();
    for (at, key) in keys.iter().enumerate() {
        if at % 4 == 0 {
            tree.put(key, entry(at as u64)).unwrap();
            model.insert(key.clone(), entry(at as u64));
        } else {
            tree.remove(key).unwrap();
            model.remove(key);
        }
    }
    compact(&mut tree, &SPARSE, |tree| check(tree, &model, &keys));
    assert!(tree.allocator.has_room_for_put());
    tree.put(b"again", entry(1)).unwrap();
    stats(&tree);
}

#[test]
fn compaction_of_a_dense_tree_changes_next_to_nothing() {
    let (mut tree, _) = grown(1024, 10_000);
    let before = stats(&tree);
    compact(&mut tree, &SPARSE, |_| {});
    let leaves = [&before, &stats(&tree)].map(|stats| stats.levels[0].nodes);
    assert!(leaves[1] + 2 >= leaves[0], "{leaves:?}");
    let nothing = CompactionLimits { sparse_permille: 0, ..SPARSE };
    let keys: Vec<_> = (0..10_000u64).map(|n| format!("user{:07}", n * 7919 % 1_000_003)).collect();
    for key in &keys {
        tree.remove(key.as_bytes()).unwrap();
    }
    assert_eq!(compact(&mut tree, &nothing, |_| {}), 0, "zero means never");
}

#[test]
fn step_of_a_compaction_fills_no_more_nodes_than_it_promises() {
    let (mut tree, model) = grown(512, 20_000);
    thin_out(&mut tree, &model, 3);
    let (mut pass, mut most) = (CompactionPass::default(), 0);
    while tree.compaction_step(&mut pass, &ALWAYS, |_| {}) {
        let fills = pass.plan.changes().filter(|change| matches!(change, Change::Fill { .. })).count();
        assert!(pass.plan.freed().len() < ALWAYS.run);
        most = most.max(fills);
    }
    assert!(most > 2 && most <= ALWAYS.fills_max(), "{most} fills");
}

/// What a reader with an old copy of the parent comes to is free, or not where its key is; never a leaf that
/// still answers.
#[test]
fn compacted_run_leaves_no_old_leaf_that_answers() {
    let (mut tree, mut model) = grown(512, 3_000);
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    for key in keys.iter().enumerate().filter(|(at, _)| at % 8 != 0).map(|(_, key)| key) {
        tree.remove(key).unwrap();
        model.remove(key);
    }
    let leaf_of = |tree: &Tree, key: &[u8]| {
        reading!(tree, meganode => {
            let mut leaf = LeafSnapshot::new();
            meganode.leaf(key, &mut leaf).unwrap();
            leaf.node()
        })
    };
    let before: Vec<NodeIndex> = keys.iter().map(|key| leaf_of(&tree, key)).collect();
    compact(&mut tree, &SPARSE, |_| {});
    let mut words = vec![0; tree.geometry.node_words()];
    let mut stale = 0;
    reading!(tree, meganode => for (key, node) in keys.iter().zip(before) {
        let copy = meganode.copy_node(node, &mut words).unwrap();
        if node == leaf_of(&tree, key) {
            assert_eq!(copy.state(), TreeNodeState::Valid);
            continue;
        }
        stale += 1;
        assert!(!matches!(copy.step(key), cell_tree::NodeStep::Leaf(_)), "{key:?} is answered by {node}");
    });
    assert!(stale > keys.len() / 2);
}

#[test]
fn compaction_from_any_key_and_level_is_bounded() {
    let (mut tree, model) = grown(512, 4_000);
    thin_out(&mut tree, &model, 9);
    let mut plan = CompactionPlan::new();
    reading!(tree, meganode => {
        for from in [&b""[..], b"a", b"user05", b"user0999999", b"zz", &[0xFF; 70]] {
            assert!(meganode.plan_compaction(0, from, &SPARSE, &mut plan).is_ok());
        }
        let top = stats(&tree).height;
        assert_eq!(meganode.plan_compaction(top - 1, b"", &SPARSE, &mut plan), Ok(CompactionNext::TreeDone));
        assert_eq!(meganode.plan_compaction(u8::MAX, b"", &SPARSE, &mut plan), Ok(CompactionNext::TreeDone));
        assert!(plan.is_empty());
    });
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xFF)], 1..9),
        (1..=76_usize, any::<u16>()).prop_map(|(len, tail)| {
            let mut key = vec![b'x'; len];
            let tail = tail.to_be_bytes();
            let from = len.saturating_sub(2);
            key[from..].copy_from_slice(&tail[2 - (len - from)..]);
            key
        }),
        (0..2_000_u16).prop_map(|n| [&[b'p'; 60][..], &n.to_be_bytes()].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn compaction_keeps_every_key_found_after_each_change(
        keys in vec(key(), 1..700), keep in 1..12_usize, seed in 1..u64::MAX,
        permille in prop_oneof![Just(400_usize), Just(750), Just(1_000)],
        fills in 1..6_usize, run in 2..40_usize
    ) {
        let (mut tree, mut model) = (Tree::new(geometry(512, 1024)), Model::new());
        for (number, key) in keys.iter().enumerate() {
            tree.put(key, entry(number as u64)).unwrap();
            model.insert(key.clone(), entry(number as u64));
        }
        let mut random = Random::new(seed);
        for key in &keys {
            if random.index(keep) != 0 && model.remove(key).is_some() {
                tree.remove(key).unwrap();
            }
        }
        let (before, at) = (tree.memory.copy(), tree.log.len());
        let was = stats(&tree).nodes();
        let limits = CompactionLimits { sparse_permille: permille, fill_percent: 85, fills, run };
        let asked: Vec<Vec<u8>> = keys.iter().step_by(1 + keys.len() / 60).cloned().collect();
        compact(&mut tree, &limits, |tree| check(tree, &model, &asked));
        check(&tree, &model, &keys);
        check_scans(&tree, &model);
        let after = stats(&tree);
        prop_assert!(after.nodes() <= was);
        prop_assert_eq!(after.height, tree.allocator.height());
        prop_assert_eq!(after.nodes(), tree.allocator.nodes_used() as u64);
        prop_assert_eq!(after.entries, model.len() as u64);

        // Replay over what was before, twice, makes the same tree.
        for expected in [Replayed::Applied, Replayed::Skipped] {
            for (csn, bytes) in &tree.log[at..] {
                let change = Change::decode(bytes).unwrap();
                prop_assert_eq!(replay(&mut &before, tree.geometry, SLOT, &change, *csn), Ok(expected));
            }
        }
        let replayed = &before;
        let copy = Meganode::new(&replayed, tree.geometry, SLOT).validate(true).unwrap();
        prop_assert_eq!(copy, after);

        // It goes on like any tree.
        for (number, key) in keys.iter().enumerate() {
            tree.put(key, entry(number as u64)).unwrap();
            model.insert(key.clone(), entry(number as u64));
        }
        check(&tree, &model, &keys);
        stats(&tree);
    }

    #[test]
    fn compaction_of_damaged_memory_is_an_error_or_harmless(
        at in 0..4_096_usize, word in any::<u64>(), level in 0..4_u8
    ) {
        let (mut tree, model) = grown(512, 600);
        thin_out(&mut tree, &model, 5);
        let first = tree.geometry.slot_word(SLOT.index);
        let damaged: Memory = tree.memory.copy();
        damaged.0[first + at].store(word, std::sync::atomic::Ordering::Relaxed);
        let mut plan = CompactionPlan::new();
        let view = &damaged;
        let mut from = Vec::new();
        for _ in 0..64 {
            let meganode = Meganode::new(&view, tree.geometry, SLOT);
            match meganode.plan_compaction(level, &from, &ALWAYS, &mut plan) {
                Ok(CompactionNext::From(next)) => from = next,
                Ok(CompactionNext::LevelDone | CompactionNext::TreeDone) | Err(_) => break,
            }
        }
        prop_assert!(plan.changes().count() <= ALWAYS.fills_max() + ALWAYS.run);
    }
}
