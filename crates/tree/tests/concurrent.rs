//! Optimistic readers on their own threads beside the one writer.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cell_tree::{LeafSnapshot, Meganode, NodeStep, ReadError};
use common::{Memory, Random, SLOT, Tree, entry, geometry};

const KEYS: usize = 3_000;

/// Keys of one family are written all the time; those of the other never change, so a reader must always find them.
fn key(i: usize) -> Vec<u8> {
    let mut key = format!("{:04}", i * 7919 % KEYS).into_bytes();
    key.extend(std::iter::repeat_n(b'x', i % 40));
    key
}

fn steady(i: usize) -> bool {
    i.is_multiple_of(4)
}

fn search_steadily(memory: &Memory, geometry: cell_tree::Geometry, done: &AtomicBool, counted: &AtomicU64) {
    let meganode = Meganode::new(&memory, geometry, SLOT);
    let mut random = Random(99);
    let mut words = vec![0; geometry.node_words()];
    while !done.load(Ordering::Relaxed) {
        let i = random.below(KEYS);
        let batch: Vec<_> = (0..16).map(|lane| key((i + lane) % KEYS)).collect();
        let mut found = [Err(ReadError::NotHere); 16];
        meganode.search_batch(&batch, &mut found);
        for (lane, found) in found.iter().enumerate() {
            check(*found, (i + lane) % KEYS);
        }
        check(meganode.search(&key(i)), i);
        walk_copies(&meganode, i, &mut words);
        counted.fetch_add(1, Ordering::Relaxed);
    }
}

fn check(found: Result<cell_tree::Found, ReadError>, i: usize) {
    match found {
        Ok(found) => {
            if let Some(found) = found.entry {
                assert_eq!(
                    found.crc,
                    entry(u64::from(found.offset.0) | u64::from(found.value_len - 7) << 32).crc
                );
            }
            assert!(found.entry.is_some() || !steady(i), "key {i} is missing");
        }
        Err(error) => assert!(matches!(error, ReadError::Retries(_)), "{error}"),
    }
}

/// As a client does it over a fabric: node by node.
fn walk_copies(meganode: &Meganode<'_, &Memory>, i: usize, words: &mut [u64]) {
    let key = key(i);
    let mut node = cell_tree::NodeIndex::ROOT;
    for _ in 0..30 {
        let Ok(copy) = meganode.copy_node(node, words) else { return };
        assert_eq!(copy.check(), Ok(()));
        match copy.step(&key) {
            NodeStep::Child(child) => node = child,
            NodeStep::Right(right) => node = meganode.geometry().locate(right).unwrap().1,
            NodeStep::Leaf(found) => return check(Ok(found), i),
            NodeStep::NotHere => node = cell_tree::NodeIndex::ROOT,
        }
    }
}

fn scan_steadily(memory: &Memory, geometry: cell_tree::Geometry, done: &AtomicBool, counted: &AtomicU64) {
    let meganode = Meganode::new(&memory, geometry, SLOT).with_retries(1_000_000);
    let steady_keys = (0..KEYS).filter(|i| steady(*i)).count();
    let mut leaf = LeafSnapshot::new();
    let is_steady = |key: &[u8]| key.ends_with(b"!");
    while !done.load(Ordering::Relaxed) {
        let mut seen = Vec::new();
        meganode.leaf_first(&mut leaf).unwrap();
        loop {
            seen.extend(leaf.iter().map(|(key, _)| key.to_vec()));
            if !meganode.leaf_after(&mut leaf).unwrap() {
                break;
            }
        }
        assert!(seen.is_sorted_by(|a, b| a < b));
        assert_eq!(seen.iter().filter(|key| is_steady(key)).count(), steady_keys);
        seen.clear();
        meganode.leaf_last(&mut leaf).unwrap();
        loop {
            seen.extend(leaf.iter().rev().map(|(key, _)| key.to_vec()));
            if !meganode.leaf_before(&mut leaf).unwrap() {
                break;
            }
        }
        assert!(seen.is_sorted_by(|a, b| a > b));
        assert_eq!(seen.iter().filter(|key| is_steady(key)).count(), steady_keys);
        counted.fetch_add(1, Ordering::Relaxed);
    }
}

fn run(node_bytes: usize, rounds: usize, node_crc: bool) {
    let geometry = geometry(node_bytes, 4096).with_node_crc(node_crc);
    let mut tree = Tree::new(geometry);
    for i in (0..KEYS).filter(|i| steady(*i)) {
        tree.put(&key(i), entry(i as u64)).unwrap();
        tree.put(&[&key(i)[..], b"!"].concat(), entry(i as u64)).unwrap();
    }
    tree.log.clear();
    let memory = tree.memory.clone();
    let (done, counted) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|scope| {
        scope.spawn(|| search_steadily(&memory, geometry, &done, &counted[0]));
        scope.spawn(|| scan_steadily(&memory, geometry, &done, &counted[1]));
        let mut random = Random(1);
        let mut round = 0;
        while round < rounds || counted.iter().any(|count| count.load(Ordering::Relaxed) < 3) {
            let i = random.below(KEYS);
            if steady(i) || random.below(3) > 0 {
                tree.put(&key(i), entry(random.next() & 0xFFFF_FFFF_FFFF)).unwrap();
            } else {
                tree.remove(&key(i)).unwrap();
            }
            tree.log.clear();
            round += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    reading!(tree, meganode => meganode.validate(true).unwrap());
}

#[test]
fn readers_beside_a_writer_always_find_what_stays_512() {
    run(512, 30_000, false);
}

#[test]
fn readers_beside_a_writer_always_find_what_stays_1024_with_crc() {
    run(1024, 30_000, true);
}
