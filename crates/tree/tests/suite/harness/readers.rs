//! Optimistic readers on their own threads beside the one writer. Used by `concurrent` and by its twin,
//! `mutants`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cell_random::Random;
use cell_tree::{Geometry, LeafSnapshot, Meganode, NodeIndex, NodeStep, ReadError};

use crate::harness::{ALWAYS, CompactionPass, Memory, SLOT, Tree, entry, geometry};

const KEYS: usize = 3_000;

/// Every fourth key is there all the time, so a reader must always find it; the others come and go.
fn key(i: usize) -> Vec<u8> {
    let mut key = format!("{:04}", i * 7919 % KEYS).into_bytes();
    key.extend(std::iter::repeat_n(b'x', i % 40));
    key
}

fn stays(i: usize) -> bool {
    i.is_multiple_of(4)
}

/// One of the keys that do not stay.
fn leaving(i: usize, round: usize) -> usize {
    let i = (i + round) % KEYS;
    if stays(i) { i + 1 } else { i }
}

/// What readers and the writer share.
struct Field<'m> {
    memory: &'m Memory,
    geometry: Geometry,
    done: AtomicBool,
    wrong: AtomicBool,
    rounds: [AtomicU64; 2],
}

/// Notifies the writer when its thread dies of a panic, which a planted defect may cause.
struct Watch<'f, 'm>(&'f Field<'m>);

impl Drop for Watch<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.wrong.store(true, Ordering::Relaxed);
        }
    }
}

impl Field<'_> {
    fn goes_on(&self) -> bool {
        !self.done.load(Ordering::Relaxed) && !self.wrong.load(Ordering::Relaxed)
    }

    fn expect(&self, holds: bool) {
        if !holds {
            self.wrong.store(true, Ordering::Relaxed);
        }
    }

    fn check(&self, found: Result<cell_tree::SearchResult, ReadError>, i: usize) {
        match found.map(|found| found.entry) {
            // What was written together is read together.
            Ok(Some(found)) => {
                let number = u64::from(found.offset.0) | u64::from(found.value_len.wrapping_sub(7)) << 32;
                self.expect(found.crc == entry(number).crc);
            }
            Ok(None) => self.expect(!stays(i)),
            Err(error) => self.expect(matches!(error, ReadError::Retries(_))),
        }
    }

    fn search(&self) {
        let _watch = Watch(self);
        let meganode = Meganode::new(&self.memory, self.geometry, SLOT);
        let mut random = Random::new(99);
        let mut words = vec![0; self.geometry.node_words()];
        while self.goes_on() {
            let i = random.index(KEYS);
            let batch: Vec<_> = (0..16).map(|lane| key((i + lane) % KEYS)).collect();
            let mut found = [Err(ReadError::NotHere); 16];
            meganode.search_batch(&batch, &mut found);
            for (lane, found) in found.iter().enumerate() {
                self.check(*found, (i + lane) % KEYS);
            }
            self.check(meganode.search(&key(i)), i);
            self.walk_copies(&meganode, i, &mut words);
            self.rounds[0].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// As a client does it over a fabric: node by node.
    fn walk_copies(&self, meganode: &Meganode<'_, &Memory>, i: usize, words: &mut [u64]) {
        let key = key(i);
        let mut node = NodeIndex::ROOT;
        for _ in 0..30 {
            let Ok(copy) = meganode.copy_node(node, words) else { return };
            self.expect(copy.check() == Ok(()));
            match copy.step(&key) {
                NodeStep::Child(child) => node = child,
                NodeStep::Right(right) => node = meganode.geometry().locate(right).unwrap().1,
                NodeStep::Leaf(found) => return self.check(Ok(found), i),
                NodeStep::NotHere => node = NodeIndex::ROOT,
            }
        }
    }

    fn scan(&self) {
        let _watch = Watch(self);
        let meganode = Meganode::new(&self.memory, self.geometry, SLOT).with_retries(u32::MAX);
        let staying = (0..KEYS).filter(|i| stays(*i)).count();
        let count = |keys: &[Vec<u8>]| keys.iter().filter(|key| key.ends_with(b"!")).count();
        let mut leaf = LeafSnapshot::new();
        while self.goes_on() {
            let mut seen = Vec::new();
            meganode.leaf_first(&mut leaf).unwrap();
            loop {
                seen.extend(leaf.iter().map(|(key, _)| key.to_vec()));
                if !meganode.leaf_after(&mut leaf).unwrap() {
                    break;
                }
            }
            self.expect(seen.is_sorted_by(|a, b| a < b) && count(&seen) == staying);
            seen.clear();
            meganode.leaf_last(&mut leaf).unwrap();
            loop {
                seen.extend(leaf.iter().rev().map(|(key, _)| key.to_vec()));
                if seen.len().is_multiple_of(2) {
                    meganode.prefetch_before(&mut leaf);
                }
                if !meganode.leaf_before(&mut leaf).unwrap() {
                    break;
                }
            }
            self.expect(seen.is_sorted_by(|a, b| a > b) && count(&seen) == staying);
            self.rounds[1].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes for so many rounds, and until each reader was round three times; whether all that was read was
/// right.
pub(crate) fn run(node_bytes: usize, rounds: usize, node_crc: bool) -> bool {
    let geometry = geometry(node_bytes, 4096).with_node_crc(node_crc);
    let mut tree = Tree::new(geometry);
    for i in (0..KEYS).filter(|i| stays(*i)) {
        tree.put(&key(i), entry(i as u64)).unwrap();
        tree.put(&[&key(i)[..], b"!"].concat(), entry(i as u64)).unwrap();
    }
    tree.log.clear();
    let memory = tree.memory.clone();
    let (done, wrong) = (AtomicBool::new(false), AtomicBool::new(false));
    let field =
        Field { memory: &memory, geometry, done, wrong, rounds: [AtomicU64::new(0), AtomicU64::new(0)] };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(|| field.search()), scope.spawn(|| field.scan())];
        let mut random = Random::new(1);
        let mut round = 0;
        let (mut compaction, mut freed) = (CompactionPass::default(), 0);
        let seen_thrice = || field.rounds.iter().all(|count| count.load(Ordering::Relaxed) >= 3);
        while field.goes_on() && (round < rounds || !seen_thrice()) {
            let i = random.index(KEYS);
            if stays(i) || random.index(3) > 0 {
                tree.put(&key(i), entry(random.next() & 0xFFFF_FFFF_FFFF)).unwrap();
            } else {
                tree.remove(&key(i)).unwrap();
            }
            // Now and then most of a stretch goes, and its leaves are packed while they are read.
            if round % 5_000 < 500 {
                tree.remove(&key(leaving(i, round / 5_000))).unwrap();
                let more = tree.compaction_step(&mut compaction, &ALWAYS, |_| {});
                freed += compaction.plan.freed().len();
                if !more {
                    compaction = CompactionPass::default();
                }
            }
            tree.log.clear();
            round += 1;
        }
        field.expect(freed > 0);
        field.done.store(true, Ordering::Relaxed);
        for reader in readers {
            field.expect(reader.join().is_ok());
        }
    });
    field.expect(reading!(tree, meganode => meganode.validate(true)).is_ok());
    !field.wrong.load(Ordering::Relaxed)
}
