//! Scans backward that have looked for the leaf before this one ahead of time.

use std::collections::BTreeMap;

use crate::harness::{Tree, entry, geometry};
use cell_tree::{LeafEntry, LeafSnapshot};

type Model = BTreeMap<Vec<u8>, LeafEntry>;

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn put(tree: &mut Tree, model: &mut Model, number: u64) {
    tree.put(&key(number), entry(number)).unwrap();
    model.insert(key(number), entry(number));
}

fn remove(tree: &mut Tree, model: &mut Model, number: u64) {
    tree.remove(&key(number)).unwrap();
    model.remove(&key(number));
}

/// What becomes of the leaf before, once it was looked for.
const CHANGES: [fn(&mut Tree, &mut Model, u64); 4] = [
    |_, _, _| {},
    // An entry more.
    |tree, model, below| put(tree, model, below - 5),
    // It is split, more than once.
    |tree, model, below| (1..90).for_each(|step| put(tree, model, below - step)),
    // It has no entries any more.
    |tree, model, below| (1..400).for_each(|step| remove(tree, model, below - step)),
];

#[test]
fn leaf_that_changes_after_it_was_looked_for_joins_all_the_same() {
    for node_bytes in [512, 1024] {
        for (at, change) in CHANGES.iter().enumerate() {
            let (mut tree, mut model) = (Tree::new(geometry(node_bytes, 4096)), Model::new());
            (0..2_000).for_each(|number| put(&mut tree, &mut model, number * 10));
            let (mut leaf, mut next) = (LeafSnapshot::new(), LeafSnapshot::new());
            reading!(tree, meganode => {
                meganode.leaf(&key(10_000), &mut leaf).unwrap();
                meganode.prefetch_before(&mut leaf);
            });
            let low = leaf.low().to_vec();
            let below = String::from_utf8(leaf.key(0).to_vec()).unwrap().parse().unwrap();
            change(&mut tree, &mut model, below);
            reading!(tree, meganode => {
                assert!(meganode.leaf_behind(&leaf, &mut next).unwrap());
                assert!(meganode.leaf_before(&mut leaf).unwrap());
            });
            for read in [&leaf, &next] {
                assert_eq!(read.high(), Some(&low[..]), "{at}");
                let range = model.range(read.low().to_vec()..low.clone());
                let expected: Vec<_> = range.map(|(key, entry)| (&key[..], *entry)).collect();
                assert_eq!(read.iter().collect::<Vec<_>>(), expected, "{at}");
            }
        }
    }
}

/// Every entry once, in descending order, from leaf to leaf; at the first leaf there is none before.
#[test]
fn leaves_that_are_looked_for_ahead_are_those_that_are_not() {
    let (mut tree, mut model) = (Tree::new(geometry(512, 4096)), Model::new());
    (0..1_000).for_each(|number| put(&mut tree, &mut model, number * 7 % 1_000));
    reading!(tree, meganode => {
        let (mut leaf, mut next, mut found) = (LeafSnapshot::new(), LeafSnapshot::new(), Vec::new());
        meganode.leaf_last(&mut leaf).unwrap();
        loop {
            found.extend(leaf.iter().rev().map(|(key, entry)| (key.to_vec(), entry)));
            meganode.prefetch_before(&mut leaf);
            if !meganode.leaf_behind(&leaf, &mut next).unwrap() {
                break;
            }
            std::mem::swap(&mut leaf, &mut next);
        }
        found.reverse();
        assert_eq!(found, model.into_iter().collect::<Vec<_>>());
        assert!(!meganode.leaf_before(&mut leaf).unwrap());
    });
}
