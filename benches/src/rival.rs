//! In-memory rivals behind one trait, each used as its own documentation advises, allocations included.

use std::collections::BTreeMap;
use std::ops::Bound;

use masstree::{MassTree15, RangeBound};

use crate::data::Batch;

/// An ordered map of byte strings in this process.
pub trait Rival {
    /// How rows name it.
    const NAME: &'static str;

    /// An empty one.
    fn new() -> Self;

    /// Inserts all of a batch.
    fn insert(&mut self, batch: &Batch);

    /// Whether the key is there; the value's bytes are not read.
    fn search(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> u64;

    /// Copies each value out, as a server does that must reply with it; returns how many bytes.
    fn get(&self, keys: &mut dyn Iterator<Item = &[u8]>, out: &mut Vec<u8>) -> u64;

    /// From each key on copies up to `limit` entries, keys and values; returns how many bytes.
    fn scan(&self, keys: &mut dyn Iterator<Item = &[u8]>, limit: usize, out: &mut Vec<u8>) -> u64;
}

/// The `masstree` crate with boxed values, the kind that it has for values that are not `Copy`.
pub struct Masstree {
    tree: MassTree15<Box<[u8]>>,
}

impl Rival for Masstree {
    const NAME: &'static str = "masstree 0.9.5";

    fn new() -> Self {
        Self { tree: MassTree15::new() }
    }

    fn insert(&mut self, batch: &Batch) {
        let guard = self.tree.guard();
        for index in 0..batch.keys.len() {
            let value = Box::from(batch.values.get(index));
            self.tree.insert_with_guard(batch.keys.get(index), value, &guard);
        }
    }

    fn search(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> u64 {
        let guard = self.tree.guard();
        keys.map(|key| u64::from(self.tree.get_ref(key, &guard).is_some())).sum()
    }

    fn get(&self, keys: &mut dyn Iterator<Item = &[u8]>, out: &mut Vec<u8>) -> u64 {
        let guard = self.tree.guard();
        let mut bytes = 0;
        for key in keys {
            if let Some(value) = self.tree.get_ref(key, &guard) {
                out.clear();
                out.extend_from_slice(&value);
                bytes += out.len() as u64;
            }
        }
        bytes
    }

    fn scan(&self, keys: &mut dyn Iterator<Item = &[u8]>, limit: usize, out: &mut Vec<u8>) -> u64 {
        let guard = self.tree.guard();
        let mut bytes = 0;
        for key in keys {
            out.clear();
            let mut count = 0;
            #[allow(clippy::borrowed_box, reason = "the crate hands out what it stores")]
            let visit = |key: &[u8], value: &Box<[u8]>| {
                out.extend_from_slice(key);
                out.extend_from_slice(value);
                count += 1;
                count < limit
            };
            self.tree.scan_intra_leaf_batch_ref(
                RangeBound::Included(key),
                RangeBound::Unbounded,
                visit,
                &guard,
            );
            bytes += out.len() as u64;
        }
        bytes
    }
}

/// The standard library's B-tree.
pub struct Standard {
    map: BTreeMap<Box<[u8]>, Box<[u8]>>,
}

impl Rival for Standard {
    const NAME: &'static str = "std BTreeMap";

    fn new() -> Self {
        Self { map: BTreeMap::new() }
    }

    fn insert(&mut self, batch: &Batch) {
        for index in 0..batch.keys.len() {
            self.map.insert(Box::from(batch.keys.get(index)), Box::from(batch.values.get(index)));
        }
    }

    fn search(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> u64 {
        keys.map(|key| u64::from(self.map.contains_key(key))).sum()
    }

    fn get(&self, keys: &mut dyn Iterator<Item = &[u8]>, out: &mut Vec<u8>) -> u64 {
        let mut bytes = 0;
        for key in keys {
            if let Some(value) = self.map.get(key) {
                out.clear();
                out.extend_from_slice(value);
                bytes += out.len() as u64;
            }
        }
        bytes
    }

    fn scan(&self, keys: &mut dyn Iterator<Item = &[u8]>, limit: usize, out: &mut Vec<u8>) -> u64 {
        let mut bytes = 0;
        for key in keys {
            out.clear();
            let range = (Bound::Included(key), Bound::Unbounded);
            for (key, value) in self.map.range::<[u8], _>(range).take(limit) {
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            }
            bytes += out.len() as u64;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Choice, Dataset};

    #[test]
    fn rivals_same_data_agree() {
        let data = Dataset { entries: 3_000, seed: 5 };
        let batch = data.batch(0, data.entries);
        let (mut masstree, mut standard) = (Masstree::new(), Standard::new());
        masstree.insert(&batch);
        standard.insert(&batch);
        let mut out = Vec::new();
        for choice in [Choice::Uniform, Choice::Zipf, Choice::Missing] {
            let probes = data.probes(choice, 500, 1);
            let keys = || (0..probes.len()).map(|index| probes.get(index));
            assert_eq!(masstree.search(&mut keys()), standard.search(&mut keys()));
            let bytes = standard.get(&mut keys(), &mut out);
            assert_eq!(masstree.get(&mut keys(), &mut out), bytes);
            assert_eq!(bytes > 0, choice != Choice::Missing);
            let scanned = standard.scan(&mut keys(), 50, &mut out);
            assert_eq!(masstree.scan(&mut keys(), 50, &mut out), scanned);
        }
    }
}
