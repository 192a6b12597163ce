//! Tree nodes above the leaves, kept by how lately they were used. What is kept is advice: a stale one costs
//! a step aside or a search from the root, never a wrong answer, because leaves are always read afresh and
//! say which keys are theirs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use cell_terms::Pointer;

const NONE: u32 = u32::MAX;

/// Pointers differ in a few bits in the middle; one multiplication spreads them (Fibonacci hashing, Knuth
/// 6.4).
#[derive(Debug, Default)]
struct PointerHasher(u64);

impl Hasher for PointerHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// One kept node's slot in the order of use.
#[derive(Clone, Copy, Debug)]
struct Link {
    pointer: u64,
    newer: u32,
    older: u32,
}

/// The cache. All nodes in it have one size.
#[derive(Debug)]
pub(crate) struct NodeCache {
    places: HashMap<u64, u32, BuildHasherDefault<PointerHasher>>,
    links: Vec<Link>,
    words: Vec<u64>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    node_words: usize,
    bytes_max: usize,
}

impl NodeCache {
    /// An empty cache of at most so many bytes of nodes; zero keeps nothing.
    pub(crate) fn new(bytes_max: usize) -> NodeCache {
        NodeCache {
            places: HashMap::default(),
            links: Vec::new(),
            words: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            node_words: 0,
            bytes_max,
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = NodeCache::new(self.bytes_max);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.places.len()
    }

    /// The node at a pointer, which counts as used now.
    #[inline]
    pub(crate) fn get(&mut self, pointer: Pointer) -> Option<&[u64]> {
        let slot = *self.places.get(&pointer.0)?;
        if slot != self.newest {
            self.unlink(slot);
            self.link_newest(slot);
        }
        let from = slot as usize * self.node_words;
        Some(&self.words[from..from + self.node_words])
    }

    /// Keeps a node, in place of what was kept of it.
    pub(crate) fn insert(&mut self, pointer: Pointer, words: &[u64]) {
        if self.places.is_empty() {
            self.node_words = words.len();
            (self.newest, self.oldest) = (NONE, NONE);
            self.links.clear();
            self.words.clear();
            self.free.clear();
        }
        if words.len() != self.node_words || words.len() * 8 > self.bytes_max {
            return;
        }
        let slot = match self.places.get(&pointer.0) {
            Some(&slot) => {
                self.unlink(slot);
                slot
            }
            None => self.take_slot(pointer),
        };
        self.link_newest(slot);
        let from = slot as usize * self.node_words;
        self.words[from..from + self.node_words].copy_from_slice(words);
    }

    /// Forgets a node; false if it was not kept.
    pub(crate) fn remove(&mut self, pointer: Pointer) -> bool {
        let Some(slot) = self.places.remove(&pointer.0) else { return false };
        self.unlink(slot);
        self.free.push(slot);
        true
    }

    fn take_slot(&mut self, pointer: Pointer) -> u32 {
        let full = (self.links.len() + 1) * self.node_words * 8 > self.bytes_max;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if full => {
                let slot = self.oldest;
                self.unlink(slot);
                self.places.remove(&self.links[slot as usize].pointer);
                slot
            }
            None => {
                let slot = u32::try_from(self.links.len()).unwrap_or(NONE - 1);
                self.links.push(Link { pointer: 0, newer: NONE, older: NONE });
                self.words.resize(self.words.len() + self.node_words, 0);
                slot
            }
        };
        self.links[slot as usize].pointer = pointer.0;
        self.places.insert(pointer.0, slot);
        slot
    }

    fn unlink(&mut self, slot: u32) {
        let Link { newer, older, .. } = self.links[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let older = self.newest;
        let link = &mut self.links[slot as usize];
        (link.newer, link.older) = (NONE, older);
        match older {
            NONE => self.oldest = slot,
            older => self.links[older as usize].newer = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pointer(number: u64) -> Pointer {
        Pointer(number << 10 | 1 << 40)
    }

    #[test]
    fn insert_past_the_limit_drops_the_one_used_longest_ago() {
        let mut cache = NodeCache::new(3 * 64);
        for number in 1..=3 {
            cache.insert(pointer(number), &[number; 8]);
        }
        assert_eq!(cache.get(pointer(1)), Some(&[1; 8][..]));
        cache.insert(pointer(4), &[4; 8]);
        assert_eq!((cache.len(), cache.get(pointer(2))), (3, None));
        assert!(cache.remove(pointer(1)) && !cache.remove(pointer(1)));
        cache.insert(pointer(5), &[5; 8]);
        assert_eq!(cache.get(pointer(3)), Some(&[3; 8][..]));
        cache.clear();
        assert_eq!(cache.get(pointer(3)), None);
    }

    #[test]
    fn insert_of_no_room_or_of_another_size_keeps_nothing() {
        let mut cache = NodeCache::new(0);
        cache.insert(pointer(1), &[1; 8]);
        assert_eq!(cache.len(), 0);
        let mut cache = NodeCache::new(1024);
        cache.insert(pointer(1), &[1; 8]);
        cache.insert(pointer(2), &[1; 16]);
        assert_eq!(cache.len(), 1);
    }

    proptest! {
        #[test]
        fn cache_of_any_use_is_the_model(steps in proptest::collection::vec((0u8..3, 0u64..12), 0..300)) {
            let mut cache = NodeCache::new(5 * 64);
            let mut model: Vec<u64> = Vec::new(); // newest last
            for (step, number) in steps {
                let at = model.iter().position(|kept| *kept == number);
                let found = at.map(|at| model.remove(at));
                match step {
                    0 => {
                        cache.insert(pointer(number), &[number; 8]);
                        model.push(number);
                        if model.len() > 5 {
                            model.remove(0);
                        }
                    }
                    1 => {
                        prop_assert_eq!(cache.get(pointer(number)).map(|words| words[0]), found);
                        model.extend(found);
                    }
                    _ => prop_assert_eq!(cache.remove(pointer(number)), found.is_some()),
                }
                prop_assert_eq!(cache.len(), model.len());
            }
        }
    }
}
