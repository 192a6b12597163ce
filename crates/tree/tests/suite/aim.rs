//! Walks by copied nodes come to the leaves that a model says, from anywhere, and floors are the model's.
#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::harness::{Tree, entry, geometry};
use cell_tree::{Aim, NodeIndex, NodeRef, Way};
use proptest::collection::vec;
use proptest::prelude::*;

/// Walks down by copies and hands the leaf to `read`.
fn walk<T>(tree: &Tree, aim: Aim<'_>, read: impl FnOnce(&NodeRef<'_>) -> T) -> T {
    let (mut at, mut words) = (NodeIndex::ROOT, vec![0; tree.geometry.node_words()]);
    loop {
        let way = reading!(tree, meganode => {
            meganode.copy_node(at, &mut words).unwrap();
            NodeRef::new(tree.geometry, at, &words).unwrap().way(aim)
        });
        match way {
            Way::Child(child) => at = child,
            Way::Right(pointer) => at = tree.geometry.locate(pointer).unwrap().1,
            Way::Leaf => return read(&NodeRef::new(tree.geometry, at, &words).unwrap()),
            Way::NotHere => panic!("{aim:?} is not here"),
        }
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xFF)], 1..9)
}

proptest! {
    #[test]
    fn walk_of_any_aim_finds_its_leaf_and_its_floor(
        keys in vec(key(), 1..300), wanted in vec(key(), 1..40)
    ) {
        let mut tree = Tree::new(geometry(512, 400));
        let mut model = BTreeMap::new();
        for (number, key) in keys.iter().enumerate() {
            tree.put(key, entry(number as u64)).unwrap();
            model.insert(key.clone(), entry(number as u64));
        }
        let first = walk(&tree, Aim::First, |leaf| (leaf.low(), leaf.predecessor(Aim::First)));
        prop_assert_eq!(first.0, Vec::<u8>::new());
        let last = walk(&tree, Aim::Last, |leaf| (leaf.high(), leaf.predecessor(Aim::Last)));
        prop_assert_eq!(last.0, None);
        prop_assert_eq!(last.1, model.values().next_back().copied());
        for key in &wanted {
            let (low, high, predecessor) =
                walk(&tree, Aim::At(key), |leaf| (leaf.low(), leaf.high(), leaf.predecessor(Aim::At(key))));
            prop_assert!(low <= *key && high.is_none_or(|high| *key < high));
            let within = (Bound::Included(low), Bound::Included(key.clone()));
            prop_assert_eq!(predecessor, model.range(within).next_back().map(|(_, entry)| *entry));

            let (low, high, predecessor) =
                walk(&tree, Aim::Below(key), |leaf| {
                    (leaf.low(), leaf.high(), leaf.predecessor(Aim::Below(key)))
                });
            prop_assert!(low < *key && high.is_none_or(|high| *key <= high));
            let within = (Bound::Included(low), Bound::Excluded(key.clone()));
            prop_assert_eq!(predecessor, model.range(within).next_back().map(|(_, entry)| *entry));
        }
    }
}
