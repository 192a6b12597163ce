//! Damaged nodes and hostile records: errors or wrong answers that validation would reject, never a panic or
//! a hang.
#![allow(clippy::unwrap_used, reason = "a test")]

use crate::harness::{Memory, SLOT, Tree, entry, geometry};
use cell_random::Random;
use cell_terms::{Csn, Words, WordsMut};
use cell_tree::{
    Change, LeafSnapshot, Meganode, NODE_BYTES, NodeIndex, NodeRef, ReadError, ReplayError, key_max, replay,
};
use proptest::prelude::*;

fn grown(node_bytes: usize, keys: u32) -> Tree {
    let mut tree = Tree::new(geometry(node_bytes, 256));
    for i in 0..keys {
        tree.put(format!("user {:05}", i * 7 % keys).as_bytes(), entry(u64::from(i))).unwrap();
    }
    tree
}

/// Everything that a reader can do. What it returns does not matter.
fn read_everything(memory: &Memory, geometry: cell_tree::Geometry) {
    let meganode = Meganode::new(&memory, geometry, SLOT).with_retries(3);
    let keys = ["user 00003", "user 00100", "a", "z", "user", "user 00100 and more"];
    let mut found = [Err(ReadError::NotHere); 6];
    meganode.search_batch(&keys, &mut found);
    let mut leaf = LeafSnapshot::new();
    for key in keys {
        let _ = meganode.search(key.as_bytes());
        if meganode.leaf(key.as_bytes(), &mut leaf).is_ok() {
            for _ in 0..20 {
                let _ = leaf.iter().map(|(key, _)| key.len()).sum::<usize>();
                meganode.prefetch_after(&leaf);
                if !matches!(meganode.leaf_after(&mut leaf), Ok(true)) {
                    break;
                }
            }
        }
        if meganode.leaf_below(key.as_bytes(), &mut leaf).is_ok() {
            (0..20).take_while(|_| matches!(meganode.leaf_before(&mut leaf), Ok(true))).count();
        }
    }
    let _ = meganode.leaf_first(&mut leaf);
    let _ = meganode.leaf_last(&mut leaf);
    let _ = meganode.validate(true);
    let mut words = vec![0; geometry.node_words()];
    for node in 0..4 {
        if let Ok(copy) = meganode.copy_node(NodeIndex(node), &mut words) {
            let _ = (copy.step(b"user 00100"), copy.check(), copy.low(), copy.high(), copy.child(3));
            let _ = (copy.count(), copy.free_bytes(), copy.snapshot(&mut leaf));
            copy.leaf_entries(|_| ());
            assert_eq!(meganode.right_link(NodeIndex(node)).ok(), Some(copy.right()));
        }
        let _ = NodeRef::new(geometry, NodeIndex(node), &words).map(|copy| copy.step(b"x"));
    }
}

#[test]
fn damaged_nodes_never_make_a_reader_panic_or_hang() {
    let mut random = Random::new(11);
    for node_bytes in NODE_BYTES {
        let tree = grown(node_bytes, 300);
        let base = tree.geometry.slot_word(SLOT.index);
        let used = tree.allocator.high_water().0 as usize;
        for _ in 0..600 {
            let memory = tree.memory.copy();
            for _ in 0..1 + random.index(4) {
                // Mostly headers: they lead furthest astray.
                let node = random.index(used.min(6));
                let word = match random.index(4) {
                    0 => random.index(tree.geometry.node_words()),
                    1 => 3,
                    _ => 5 + random.index(8),
                };
                let at = base + node * tree.geometry.node_words() + word;
                let old = (&memory).load(at);
                let new = match random.index(3) {
                    0 => random.next(),
                    1 => old ^ 1 << random.index(64),
                    _ => old ^ 0xFFFF << (16 * random.index(4)),
                };
                (&memory).store(at, new);
            }
            read_everything(&memory, tree.geometry);
        }
    }
}

#[test]
fn random_words_never_make_a_reader_panic_or_hang() {
    let mut random = Random::new(5);
    for node_bytes in NODE_BYTES {
        let geometry = geometry(node_bytes, 16);
        for round in 0..300 {
            let memory = Memory::new(geometry);
            for i in 0..(&memory).len() {
                (&memory).store(i, random.next());
            }
            let base = geometry.slot_word(SLOT.index);
            for node in 0..geometry.nodes() {
                let first = base + node * geometry.node_words();
                (&memory).store(first, 2);
                (&memory).store(first + geometry.node_words() - 1, 2);
                let shape = (&memory).load(first + 5);
                (&memory).store(first + 5, shape & !0xFFFF | (if round % 2 == 0 { 0x0100 } else { 0x0301 }));
                if round % 3 == 0 {
                    // No fences, so that everything is in range.
                    let (shape, fences) = ((&memory).load(first + 5), (&memory).load(first + 6));
                    (&memory).store(first + 5, shape & !0xFFFF_0000_0000);
                    (&memory).store(first + 6, fences & !0xFFFF_FFFF | 0xFFFF_0000);
                }
            }
            read_everything(&memory, geometry);
        }
    }
}

/// A flipped bit in a record made the root a child of itself, which no reader follows but no check permits.
#[test]
fn record_that_makes_the_root_a_child_is_refused() {
    let tree = grown(512, 200);
    let link = Change::Link { node: NodeIndex::ROOT, separator: b"user 00003x", child: NodeIndex::ROOT };
    let refused = replay(&mut &*tree.memory, tree.geometry, SLOT, &link, tree.csn.next());
    assert_eq!(refused, Err(ReplayError::RootAsChild(NodeIndex::ROOT)));
}

#[test]
fn damaged_records_are_refused_or_keep_every_rule() {
    let mut random = Random::new(23);
    for node_bytes in NODE_BYTES {
        let tree = grown(node_bytes, 200);
        for _ in 0..2_000 {
            let (_, bytes) = &tree.log[random.index(tree.log.len())];
            let mut bytes = bytes.clone();
            for _ in 0..1 + random.index(3) {
                let at = random.index(bytes.len());
                bytes[at] ^= 1 << random.index(8);
            }
            if random.index(4) == 0 {
                bytes.truncate(random.index(bytes.len()));
            }
            let Ok(change) = Change::decode(&bytes) else { continue };
            let memory = tree.memory.copy();
            let csn = tree.csn.next();
            if replay(&mut &memory, tree.geometry, SLOT, &change, csn).is_err() {
                continue;
            }
            // The node is well-formed, whatever the tree as a whole has become.
            let mut words = vec![0; tree.geometry.node_words()];
            let binding = &memory;
            let meganode = Meganode::new(&binding, tree.geometry, SLOT);
            let copy = meganode.copy_node(change.node(), &mut words).unwrap();
            assert!(!copy.is_valid() || copy.check().is_ok(), "{change:?}: {:?}", copy.check());
            read_everything(&memory, tree.geometry);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_decode_to_a_change_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(change) = Change::decode(&bytes) {
            let mut again = Vec::new();
            change.encode(&mut again);
            prop_assert_eq!(Change::decode(&again), Ok(change));
        }
    }

    #[test]
    fn random_changes_never_panic_in_replay(
        kind in 1u8..=6,
        node in prop_oneof![0u32..4, any::<u32>()],
        rest in proptest::collection::vec(any::<u8>(), 0..1100),
    ) {
        let mut bytes = vec![kind];
        bytes.extend(node.to_le_bytes());
        bytes.extend(rest);
        let tree = grown(512, 40);
        if let Ok(change) = Change::decode(&bytes) {
            let _ = replay(&mut &*tree.memory, tree.geometry, SLOT, &change, Csn(1 << 40));
            read_everything(&tree.memory, tree.geometry);
        }
    }
}

#[test]
fn longest_keys_are_those_of_the_layout() {
    assert_eq!(NODE_BYTES.map(key_max), [76, 178, 383, 793]);
}
