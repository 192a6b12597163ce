//! Tree nodes above the leaves, kept by how lately they were used. What is kept is advice: a stale one costs
//! a step aside or a search from the root, never a wrong answer, because leaves are always read afresh and
//! say which keys are theirs.

use std::hash::{BuildHasherDefault, Hasher};

use cell_terms::{Pointer, RegionId};
use lru::LruCache;

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

/// The cache. All nodes in it have one size.
#[derive(Debug)]
pub(crate) struct NodeCache {
    nodes: LruCache<u64, Box<[u64]>, BuildHasherDefault<PointerHasher>>,
    bytes_max: usize,
}

impl NodeCache {
    /// An empty cache of at most so many bytes of nodes; zero keeps nothing.
    pub(crate) fn new(bytes_max: usize) -> NodeCache {
        NodeCache { nodes: LruCache::unbounded_with_hasher(BuildHasherDefault::default()), bytes_max }
    }

    /// Keeps so many bytes at most from now on; what was used longest ago goes first.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        while let Some((_, words)) = self.nodes.peek_lru()
            && self.nodes.len() * words.len() * 8 > bytes_max
        {
            self.nodes.pop_lru();
        }
    }

    /// Forgets the nodes of a region.
    pub(crate) fn forget_region(&mut self, region: RegionId) {
        let kept = self.nodes.iter().map(|(pointer, _)| *pointer);
        let gone: Vec<u64> = kept.filter(|pointer| Pointer(*pointer).region() == region).collect();
        gone.iter().for_each(|pointer| drop(self.nodes.pop(pointer)));
    }

    /// The node at a pointer, which counts as used now.
    #[inline]
    pub(crate) fn get(&mut self, pointer: Pointer) -> Option<&[u64]> {
        self.nodes.get(&pointer.0).map(|words| &**words)
    }

    /// Keeps a node, in place of what was kept of it, or of the node that was used longest ago.
    pub(crate) fn insert(&mut self, pointer: Pointer, words: &[u64]) {
        if self.nodes.peek_lru().is_some_and(|(_, kept)| kept.len() != words.len()) {
            return;
        }
        let is_full = (self.nodes.len() + 1) * words.len() * 8 > self.bytes_max;
        let freed = match self.nodes.pop(&pointer.0) {
            None if is_full => self.nodes.pop_lru().map(|(_, freed)| freed),
            known => known,
        };
        match freed {
            Some(mut freed) => {
                freed.copy_from_slice(words);
                self.nodes.put(pointer.0, freed);
            }
            None if is_full => {}
            None => drop(self.nodes.put(pointer.0, words.into())),
        }
    }

    /// Forgets a node; false if it was not kept.
    pub(crate) fn remove(&mut self, pointer: Pointer) -> bool {
        self.nodes.pop(&pointer.0).is_some()
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
        assert_eq!((cache.nodes.len(), cache.get(pointer(2))), (3, None));
        assert!(cache.remove(pointer(1)) && !cache.remove(pointer(1)));
        cache.insert(pointer(5), &[5; 8]);
        assert_eq!(cache.get(pointer(3)), Some(&[3; 8][..]));
        let elsewhere = Pointer(3 << 10 | 2 << 40);
        cache.insert(elsewhere, &[7; 8]);
        cache.forget_region(pointer(3).region());
        assert_eq!(cache.get(pointer(3)), None);
        assert_eq!(cache.get(elsewhere), Some(&[7; 8][..]));
    }

    /// Uniform searches of a tree whose lowest inner level is four times as large as the cache.
    #[test]
    fn get_levels_that_every_search_passes_stay_and_the_rest_of_the_room_serves_the_lowest() {
        const FANOUT: u64 = 16;
        const LOWEST: u64 = FANOUT * FANOUT * FANOUT;
        let mut cache = NodeCache::new(usize::try_from(LOWEST / 4 * 64).unwrap());
        let (mut hits, mut random) = ([0_u32; 4], 1_u64);
        for search in 0..40_000 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let leaf_parent = (random >> 33) % LOWEST;
            for (level, width) in [LOWEST, FANOUT * FANOUT, FANOUT, 1].into_iter().enumerate() {
                let at = pointer((u64::try_from(level).unwrap() << 20) | (leaf_parent * width / LOWEST));
                match cache.get(at).is_some() {
                    true if search >= 20_000 => hits[level] += 1,
                    true => {}
                    false => cache.insert(at, &[1; 8]),
                }
            }
        }
        assert_eq!(hits[2..], [20_000; 2], "the upper levels never leave");
        assert!(hits[1] > 19_000, "{hits:?}");
        // Without any level threshold the lowest level gets what room is left: a fifth of its nodes.
        assert!((3_000..5_500).contains(&hits[0]), "{hits:?}");
    }

    #[test]
    fn set_bytes_max_to_less_drops_those_used_longest_ago_and_to_more_keeps_more() {
        let mut cache = NodeCache::new(4 * 64);
        for number in 1..=4 {
            cache.insert(pointer(number), &[number; 8]);
        }
        cache.get(pointer(1));
        cache.set_bytes_max(2 * 64 + 63);
        assert_eq!((cache.nodes.len(), cache.get(pointer(3))), (2, None));
        assert_eq!(cache.get(pointer(1)), Some(&[1; 8][..]));
        cache.set_bytes_max(0);
        cache.insert(pointer(5), &[5; 8]);
        assert_eq!(cache.nodes.len(), 0);
        cache.set_bytes_max(64);
        cache.insert(pointer(5), &[5; 8]);
        assert_eq!(cache.nodes.len(), 1);
    }

    #[test]
    fn insert_of_no_room_or_of_another_size_keeps_nothing() {
        let mut cache = NodeCache::new(0);
        cache.insert(pointer(1), &[1; 8]);
        assert_eq!(cache.nodes.len(), 0);
        let mut cache = NodeCache::new(1024);
        cache.insert(pointer(1), &[1; 8]);
        cache.insert(pointer(2), &[1; 16]);
        assert_eq!(cache.nodes.len(), 1);
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
                prop_assert_eq!(cache.nodes.len(), model.len());
            }
        }
    }
}
