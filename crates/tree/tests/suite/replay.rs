//! The log of a tree, replayed from any moment, makes the same tree.
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::harness;
use crate::harness::{Memory, SLOT, Tree, entry, geometry};
use cell_random::Random;
use cell_terms::{Csn, Words};
use cell_tree::{
    Change, Geometry, Image, Meganode, NODE_BYTES, NodeIndex, Replayed, SlotAllocator, TreeNodeState, replay,
};

fn random_step(tree: &mut Tree, random: &mut Random) {
    let mut key = vec![b'k'; 1 + random.index(tree.geometry.key_max())];
    let from = key.len().saturating_sub(3);
    key[from..].iter_mut().for_each(|byte| *byte = random.next().to_le_bytes()[0] % 8);
    if random.index(3) == 0 {
        tree.remove(&key).unwrap();
    } else {
        tree.put(&key, entry(random.next())).unwrap();
    }
}

/// All words of the slot, but for the versions, which count changes made in this memory.
fn content(memory: &Memory, geometry: Geometry) -> Vec<u64> {
    let words = geometry.node_words();
    let base = geometry.slot_word(SLOT.index);
    (0..geometry.nodes() * words)
        .filter(|i| i % words != 0 && i % words != words - 1)
        .map(|i| (&memory).load(base + i))
        .collect()
}

fn replay_all(memory: &Memory, geometry: Geometry, log: &[(Csn, Vec<u8>)]) -> [usize; 3] {
    let mut outcomes = [0; 3];
    for (csn, bytes) in log {
        let change = Change::decode(bytes).unwrap();
        match replay(&mut &*memory, geometry, SLOT, &change, *csn).unwrap() {
            Replayed::Applied => outcomes[0] += 1,
            Replayed::Skipped => outcomes[1] += 1,
            Replayed::Missing => outcomes[2] += 1,
        }
    }
    outcomes
}

#[test]
fn replay_from_any_snapshot_makes_the_same_bytes() {
    for node_bytes in NODE_BYTES {
        let geometry = geometry(node_bytes, 1024);
        let mut tree = Tree::new(geometry);
        let mut random = Random::new(node_bytes as u64);
        let mut snapshots = vec![Memory::new(geometry)];
        for i in 0..1_500 {
            random_step(&mut tree, &mut random);
            if i % 250 == 0 {
                snapshots.push(tree.memory.copy());
            }
        }
        let expected = content(&tree.memory, geometry);
        for snapshot in &snapshots {
            let [applied, skipped, missing] = replay_all(snapshot, geometry, &tree.log);
            assert_eq!((applied + skipped, missing), (tree.log.len(), 0));
            assert!(content(snapshot, geometry) == expected, "the bytes differ");
            assert_eq!(replay_all(snapshot, geometry, &tree.log)[0], 0, "twice is once");
            let stats = Meganode::new(&snapshot, geometry, SLOT).validate(true).unwrap();
            assert!(stats.entries > 0);
        }
    }
}

/// What a checkpointer copies: every node as of its own moment, while changes go on.
#[test]
fn replay_over_nodes_of_different_moments_makes_the_same_bytes() {
    let geometry = geometry(512, 512);
    let mut tree = Tree::new(geometry);
    let mut random = Random::new(3);
    (0..400).for_each(|_| random_step(&mut tree, &mut random));
    let from = tree.log.len();
    let image = Memory::new(geometry);
    let mut node = 0;
    while node < tree.allocator.high_water().0 {
        let mut words = vec![0; geometry.node_words()];
        {
            let memory = &*tree.memory;
            Meganode::new(&memory, geometry, SLOT).copy_node(NodeIndex(node), &mut words).unwrap();
        }
        let base = geometry.node_offset(SLOT.index, NodeIndex(node)) / 8;
        for (i, word) in words.iter().enumerate() {
            cell_terms::WordsMut::store(&mut &image, base + i, *word);
        }
        node += 1;
        (0..3).for_each(|_| random_step(&mut tree, &mut random));
    }
    let [applied, skipped, missing] = replay_all(&image, geometry, &tree.log[from..]);
    assert!(applied > 0 && skipped > 0 && missing == 0, "{applied} {skipped} {missing}");
    assert!(content(&image, geometry) == content(&tree.memory, geometry), "the bytes differ");
    Meganode::new(&&image, geometry, SLOT).validate(true).unwrap();
}

#[test]
fn misses_depend_on_the_last_removal_across_splits() {
    assert!(harness::removal::misses_depend_on_the_last_removal());
}

#[test]
fn replay_twice_is_replay_once() {
    assert!(harness::removal::replaying_twice_is_once());
}

#[test]
fn replay_of_a_change_to_a_missing_node_says_so() {
    let geometry = geometry(512, 64);
    let memory = Memory::new(geometry);
    let mut encoded = Vec::new();
    Change::Put { node: NodeIndex(5), key: b"key", entry: entry(1) }.encode(&mut encoded);
    let change = Change::decode(&encoded).unwrap();
    assert_eq!(replay(&mut &memory, geometry, SLOT, &change, Csn(1)), Ok(Replayed::Missing));
}

#[test]
fn mark_hides_a_node_until_it_is_marked_again() {
    let geometry = geometry(512, 64);
    let mut tree = Tree::new(geometry);
    tree.put(b"key", entry(1)).unwrap();
    let root = NodeIndex::ROOT;
    cell_tree::apply(
        &mut &*tree.memory,
        geometry,
        SLOT,
        &Change::Mark { node: root, state: TreeNodeState::Free },
        Csn(9),
    );
    reading!(tree, meganode => assert_eq!(meganode.search(b"key"), Err(cell_tree::ReadError::NotHere)));
    let mark = Change::Mark { node: root, state: TreeNodeState::Valid };
    assert_eq!(replay(&mut &*tree.memory, geometry, SLOT, &mark, Csn(10)), Ok(Replayed::Applied));
    reading!(tree, meganode => assert_eq!(meganode.search(b"key").unwrap().entry, Some(entry(1))));
    let mark = Change::Mark { node: NodeIndex(7), state: TreeNodeState::Valid };
    assert!(replay(&mut &*tree.memory, geometry, SLOT, &mark, Csn(11)).is_err(), "nothing was ever there");
}

#[test]
fn abandoned_plan_gives_its_nodes_back() {
    let geometry = geometry(512, 64);
    let mut tree = Tree::new(geometry);
    let mut free = tree.allocator.nodes_free();
    for i in 0..200u32 {
        let key = i.wrapping_mul(0x9E37_79B9).to_be_bytes();
        let memory = &*tree.memory;
        let meganode = Meganode::new(&memory, geometry, SLOT);
        cell_tree::plan_put(&meganode, &mut tree.allocator, &key, entry(1), &mut tree.plan).unwrap();
        tree.plan.abandon(&mut tree.allocator);
        assert_eq!(tree.allocator.nodes_free(), free);
        tree.put(&key, entry(1)).unwrap();
        free = tree.allocator.nodes_free();
    }
}

#[test]
fn bulk_build_makes_the_tree_that_inserts_would() {
    for node_bytes in NODE_BYTES {
        let geometry = geometry(node_bytes, 4096);
        for count in [0u32, 1, 2, 3, 30, 400, 5_000] {
            let memory = Memory::new(geometry);
            let mut allocator = SlotAllocator::new(geometry.nodes());
            let entries = (0..count).map(|i| (format!("key {:07}", i * 3), entry(u64::from(i))));
            let mut csn = Csn(5);
            let built = cell_tree::bulk_build(
                geometry,
                SLOT,
                &cell_tree::BulkFrame::WHOLE,
                &mut allocator,
                entries,
                |change| {
                    csn = csn.next();
                    let Change::Fill { image, .. } = &change else { panic!("a build fills") };
                    assert_eq!(image.len(), geometry.node_words());
                    replay(&mut &memory, geometry, SLOT, &change, csn).unwrap();
                },
            )
            .unwrap();
            let binding = &memory;
            let meganode = Meganode::new(&binding, geometry, SLOT);
            let stats = meganode.validate(true).unwrap();
            assert_eq!((stats.entries, stats.height), (u64::from(count), built.height));
            assert_eq!((stats.nodes(), allocator.height()), (built.nodes as u64, built.height));
            assert_eq!(allocator.nodes_used(), built.nodes);
            for i in 0..count {
                let found = meganode.search(format!("key {:07}", i * 3).as_bytes()).unwrap();
                assert_eq!(found.entry, Some(entry(u64::from(i))));
                assert_eq!(meganode.search(format!("key {:07}", i * 3 + 1).as_bytes()).unwrap().entry, None);
            }
        }
    }
}

#[test]
fn bulk_build_out_of_order_or_room_gives_its_nodes_back() {
    let geometry = geometry(512, 16);
    let mut allocator = SlotAllocator::new(16);
    let whole = &cell_tree::BulkFrame::WHOLE;
    let wrong = ["a", "c", "b"].map(|key| (key, entry(1)));
    let error = cell_tree::bulk_build(geometry, SLOT, whole, &mut allocator, wrong, |_| {});
    assert_eq!(error, Err(cell_tree::BulkError::Order(2)));
    let many = (0..1_000).map(|i| (format!("{i:08}"), entry(1)));
    let error = cell_tree::bulk_build(geometry, SLOT, whole, &mut allocator, many, |_| {});
    assert!(matches!(error, Err(cell_tree::BulkError::Full(_))));
    assert_eq!(allocator.nodes_free(), 15);
    let image = cell_tree::empty_root(geometry);
    assert_eq!(Image::new(&image).len(), 64);
}
