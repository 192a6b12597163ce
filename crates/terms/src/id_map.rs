//! Maps by ids that nobody outside chooses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by ids that this system gives out itself, so that nobody can choose some that fall together: of
/// sessions, of connections. Whoever names one that was not given out may look for it here, but has nothing
/// put here by it. Each request asks some; the standard hasher, which holds its own against chosen
/// keys, takes some twenty times as many instructions.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// One multiplication spreads an id (Fibonacci hashing, Knuth 6.4).
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
