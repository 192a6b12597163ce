//! The tree beside a `BTreeMap`, for all node sizes and nasty keys.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]

use std::collections::BTreeMap;

use crate::harness::{Tree, entry, geometry};
use cell_random::Random;
use cell_tree::{LeafEntry, LeafSnapshot, NODE_BYTES, ReadError, key_max};
use proptest::collection::vec;
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, LeafEntry>;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>),
    Remove(Vec<u8>),
    Ascending(Vec<u8>, u16),
    Descending(Vec<u8>, u16),
}

/// Keys that differ late, end in zeros, are each other's beginnings, or are as long as can be.
fn nasty_key(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => vec(0u8..2, 1..=6usize),
        3 => vec(prop_oneof![Just(0u8), Just(1), Just(0x7F), Just(0xFF), Just(b'a')], 1..=24usize),
        2 => (vec(Just(b'p'), 0..=30usize), vec(any::<u8>(), 1..=8usize)).prop_map(|(a, b)| [a, b].concat()),
        2 => (1..=max, vec(any::<u8>(), 0..=2usize)).prop_map(move |(len, tail)| {
            let mut key = vec![b'x'; len];
            let from = len.saturating_sub(tail.len());
            key[from..].copy_from_slice(&tail[tail.len() - (len - from)..]);
            key
        }),
        1 => (0u16..300).prop_map(move |n| {
            let mut key = vec![0; max - 2];
            key.extend(n.to_be_bytes());
            key
        }),
        2 => vec(any::<u8>(), 1..=max),
    ]
}

fn step(max: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => nasty_key(max).prop_map(Step::Put),
        4 => nasty_key(max).prop_map(Step::Remove),
        1 => (vec(any::<u8>(), 0..=6usize), 1..60u16).prop_map(|(p, n)| Step::Ascending(p, n)),
        1 => (vec(any::<u8>(), 0..=6usize), 1..60u16).prop_map(|(p, n)| Step::Descending(p, n)),
    ]
}

struct Pair {
    tree: Tree,
    model: Model,
    number: u64,
}

impl Pair {
    fn new(node_bytes: usize) -> Pair {
        Pair { tree: Tree::new(geometry(node_bytes, 4096)), model: Model::new(), number: 0 }
    }

    fn put(&mut self, key: &[u8]) {
        self.number += 1;
        let entry = entry(self.number);
        assert_eq!(self.tree.put(key, entry).unwrap(), self.model.insert(key.to_vec(), entry), "put {key:?}");
    }

    fn remove(&mut self, key: &[u8]) {
        assert_eq!(self.tree.remove(key).unwrap(), self.model.remove(key), "remove {key:?}");
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Put(key) => self.put(key),
            Step::Remove(key) => self.remove(key),
            Step::Ascending(prefix, n) => {
                (0..*n).for_each(|i| self.put(&[prefix, &i.to_be_bytes()[..]].concat()))
            }
            Step::Descending(prefix, n) => {
                (0..*n).rev().for_each(|i| self.put(&[prefix, &i.to_be_bytes()[..]].concat()));
            }
        }
    }

    fn check(&self) {
        let stats = reading!(self.tree, meganode => meganode.validate(true).unwrap());
        assert_eq!(stats.entries, self.model.len() as u64);
        assert_eq!(stats.key_bytes, self.model.keys().map(|key| key.len() as u64).sum::<u64>());
        assert_eq!(stats.height, self.tree.allocator.height());
        assert_eq!(stats.nodes(), self.tree.allocator.nodes_used() as u64);
        self.check_searches();
        self.check_scans();
    }

    fn check_searches(&self) {
        reading!(self.tree, meganode => {
            let keys: Vec<&Vec<u8>> = self.model.keys().collect();
            let mut found = vec![Err(ReadError::NotHere); keys.len()];
            meganode.search_batch(&keys, &mut found);
            for (key, batched) in keys.iter().zip(&found) {
                let single = meganode.search(key).unwrap();
                assert_eq!(single.entry, self.model.get(*key).copied(), "search {key:?}");
                assert_eq!(*batched, Ok(single), "batch {key:?}");
            }
            for key in keys {
                let longer = [&key[..], &[0]].concat();
                for near in [&longer[..], &key[..key.len() - 1]] {
                    if !near.is_empty() && near.len() <= self.tree.geometry.key_max() {
                        assert_eq!(meganode.search(near).unwrap().entry, self.model.get(near).copied());
                    }
                }
            }
        });
    }

    fn check_scans(&self) {
        reading!(self.tree, meganode => {
            let mut leaf = LeafSnapshot::new();
            meganode.leaf_first(&mut leaf).unwrap();
            let mut forward = Vec::new();
            loop {
                check_entries(&leaf);
                forward.extend(leaf.iter().map(|(key, entry)| (key.to_vec(), entry)));
                if !meganode.leaf_after(&mut leaf).unwrap() { break }
            }
            let model: Vec<_> = self.model.iter().map(|(key, entry)| (key.clone(), *entry)).collect();
            assert_eq!(forward, model);
            meganode.leaf_last(&mut leaf).unwrap();
            let mut backward = Vec::new();
            loop {
                backward.extend(leaf.iter().rev().map(|(key, entry)| (key.to_vec(), entry)));
                if !meganode.leaf_before(&mut leaf).unwrap() { break }
            }
            backward.reverse();
            assert_eq!(backward, model);
            for (key, _) in self.model.iter().step_by(7) {
                meganode.leaf(key, &mut leaf).unwrap();
                assert_eq!(leaf.key(leaf.position(key)), key);
                meganode.leaf_below(key, &mut leaf).unwrap();
                assert!(leaf.low() < &key[..] && leaf.high().is_none_or(|high| high >= &key[..]));
            }
        });
    }
}

/// The entries of a leaf one after the other are those that it has each alone; of one that is refused nothing
/// stays.
fn check_entries(leaf: &LeafSnapshot) {
    for count in [leaf.len() / 2, leaf.len()] {
        let (mut keys, mut taken) = (b"before".to_vec(), Vec::new());
        let refused = leaf.append_entries((0..leaf.len()).rev(), &mut keys, |entry, key| {
            let is_wanted = taken.len() < count;
            if is_wanted {
                taken.push((key, entry));
            }
            is_wanted
        });
        let expected: Vec<_> = leaf.iter().rev().take(count).collect();
        let taken: Vec<_> = taken.iter().map(|(key, entry)| (&keys[key.clone()], *entry)).collect();
        assert_eq!(taken, expected);
        assert_eq!(refused, leaf.len().checked_sub(count + 1));
        assert_eq!(keys.len(), expected.iter().map(|(key, _)| key.len()).sum::<usize>() + b"before".len());
    }
}

fn run(node_bytes: usize, steps: &[Step]) {
    let mut pair = Pair::new(node_bytes);
    for (i, step) in steps.iter().enumerate() {
        pair.run(step);
        if i % 64 == 0 {
            pair.check();
        }
    }
    pair.check();
    let keys: Vec<_> = pair.model.keys().cloned().collect();
    for key in keys.iter().step_by(2) {
        pair.remove(key);
    }
    pair.check();
    for key in &keys {
        pair.put(key);
        pair.remove(key);
        pair.remove(key);
    }
    pair.check();
    assert!(pair.model.is_empty());
    keys.iter().rev().for_each(|key| pair.put(key));
    pair.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_steps_512_equal_the_model(steps in vec(step(key_max(512)), 1..400)) {
        run(512, &steps);
    }

    #[test]
    fn random_steps_1024_equal_the_model(steps in vec(step(key_max(1024)), 1..400)) {
        run(1024, &steps);
    }

    #[test]
    fn random_steps_2048_equal_the_model(steps in vec(step(key_max(2048)), 1..300)) {
        run(2048, &steps);
    }

    #[test]
    fn random_steps_4096_equal_the_model(steps in vec(step(key_max(4096)), 1..300)) {
        run(4096, &steps);
    }
}

/// The longest keys, which share all but the last bytes or nothing at all, make the fewest entries a node.
#[test]
fn split_of_longest_keys_always_fits() {
    let mut random = Random::new(7);
    for node_bytes in NODE_BYTES {
        for shared in [0, 1, 50, key_max(node_bytes) - 3] {
            let mut pair = Pair::new(node_bytes);
            for _ in 0..600 {
                let mut key = vec![b'k'; key_max(node_bytes)];
                for byte in &mut key[shared..shared + 3] {
                    *byte = random.next().to_le_bytes()[0];
                }
                if random.index(4) == 0 {
                    key.truncate(1 + random.index(key.len()));
                }
                pair.put(&key);
            }
            pair.check();
        }
    }
}

#[test]
fn inserts_in_order_leave_nodes_nearly_full() {
    for node_bytes in NODE_BYTES {
        for descending in [false, true] {
            let mut pair = Pair::new(node_bytes);
            for i in 0..20_000u32 {
                let i = if descending { 20_000 - i } else { i };
                pair.put(format!("user:{i:08}").as_bytes());
            }
            pair.check();
            let stats = reading!(pair.tree, meganode => meganode.validate(true).unwrap());
            let leaves = &stats.levels[0];
            let fill = leaves.used_bytes as f64 / (leaves.nodes * node_bytes as u64) as f64;
            assert!(fill > 0.85, "{node_bytes} bytes, descending {descending}: {fill}");
        }
    }
}

#[test]
fn streams_in_order_side_by_side_leave_nodes_nearly_full() {
    let mut pair = Pair::new(1024);
    for i in 0..2_000u32 {
        for stream in 0..10 {
            pair.put(format!("{stream}:{i:08}").as_bytes());
        }
    }
    pair.check();
    let stats = reading!(pair.tree, meganode => meganode.validate(true).unwrap());
    let fill = stats.levels[0].used_bytes as f64 / (stats.levels[0].nodes * 1024) as f64;
    assert!(fill > 0.8, "{fill}");
}

#[test]
fn keys_of_wrong_length_are_refused() {
    let mut pair = Pair::new(512);
    let long = vec![1; key_max(512) + 1];
    assert!(pair.tree.put(&[], entry(1)).is_err());
    assert!(pair.tree.put(&long, entry(1)).is_err());
    reading!(pair.tree, meganode => {
        assert_eq!(meganode.search(&[]), Err(ReadError::KeyLength(0)));
        assert_eq!(meganode.search(&long), Err(ReadError::KeyLength(long.len())));
    });
}

#[test]
fn full_slot_refuses_splits_and_goes_on_serving() {
    let mut tree = Tree::new(geometry(512, 64));
    let mut keys = Vec::new();
    let full = (0u32..).find_map(|i| {
        let key = i.wrapping_mul(0x9E37_79B9).to_be_bytes();
        match tree.put(&key, entry(u64::from(i))) {
            Ok(_) => {
                keys.push(key);
                None
            }
            Err(error) => Some(error),
        }
    });
    assert!(matches!(full, Some(cell_tree::PlanError::Full { .. })));
    assert!(!tree.allocator.has_room_for_put() && tree.allocator.nodes_free() > 0);
    reading!(tree, meganode => {
        assert_eq!(meganode.validate(true).unwrap().entries, keys.len() as u64);
        assert_eq!(meganode.allocator().nodes_free(), tree.allocator.nodes_free());
    });
    for key in &keys {
        assert!(tree.remove(key).unwrap().is_some());
    }
    assert_eq!(reading!(tree, meganode => meganode.validate(true).unwrap()).entries, 0);
}
