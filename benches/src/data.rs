//! The paper's data (section 4.1): keys of 8-64 random printable characters, values of 8-256, in random
//! order.
//!
//! Every item can be made again from the seed and its ordinal, so a bench of any size keeps no second copy of
//! it. What is measured reads from [`Packed`] batches made before the clock starts.

use cell_random::Random;

use crate::random::{of_item, popular, scaled};

/// Shortest and longest key.
pub const KEY_LENGTHS: (u64, u64) = (8, 64);
/// Shortest and longest value.
pub const VALUE_LENGTHS: (u64, u64) = (8, 256);

const PRINTABLE_FIRST: u8 = b'!';
const PRINTABLE_COUNT: u64 = 94;

const KEY_FAMILY: u64 = 0x6B65_7973;
const VALUE_FAMILY: u64 = 0x7661_6C73;
const MISSING_FAMILY: u64 = 0x6D69_7373;

/// A seeded set of entries: ordinal -> key and value.
#[derive(Clone, Copy, Debug)]
pub struct Dataset {
    /// How many entries.
    pub entries: u64,
    /// What they are made from.
    pub seed: u64,
}

fn printable(random: &mut Random, lengths: (u64, u64), out: &mut Vec<u8>) {
    let length = lengths.0 + scaled(random, lengths.1 - lengths.0 + 1);
    for _ in 0..length {
        let offset = u8::try_from(scaled(random, PRINTABLE_COUNT)).unwrap_or(0);
        out.push(PRINTABLE_FIRST + offset);
    }
}

impl Dataset {
    /// Appends the key of `ordinal`.
    pub fn push_key(&self, ordinal: u64, out: &mut Vec<u8>) {
        printable(&mut of_item(self.seed ^ KEY_FAMILY, ordinal), KEY_LENGTHS, out);
    }

    /// Appends the value of `ordinal`.
    pub fn push_value(&self, ordinal: u64, out: &mut Vec<u8>) {
        printable(&mut of_item(self.seed ^ VALUE_FAMILY, ordinal), VALUE_LENGTHS, out);
    }

    /// Appends a key that no entry has (but for a chance of 94^-8 a pair).
    pub fn push_missing_key(&self, ordinal: u64, out: &mut Vec<u8>) {
        printable(&mut of_item(self.seed ^ MISSING_FAMILY, ordinal), KEY_LENGTHS, out);
    }

    /// Key and value bytes of all entries together, without any structure: what "raw" means in the figures.
    pub fn raw_bytes(&self) -> u64 {
        let length = |family: u64, lengths: (u64, u64), ordinal: u64| {
            let mut random = of_item(self.seed ^ family, ordinal);
            lengths.0 + scaled(&mut random, lengths.1 - lengths.0 + 1)
        };
        (0..self.entries)
            .map(|ordinal| {
                length(KEY_FAMILY, KEY_LENGTHS, ordinal) + length(VALUE_FAMILY, VALUE_LENGTHS, ordinal)
            })
            .sum()
    }

    /// The entries `[first, last)`, keys and values, in insertion order.
    pub fn batch(&self, first: u64, last: u64) -> Batch {
        let mut batch = Batch::default();
        for ordinal in first..last {
            batch.keys.push_with(|bytes| self.push_key(ordinal, bytes));
            batch.values.push_with(|bytes| self.push_value(ordinal, bytes));
        }
        batch
    }

    /// `count` keys to look for.
    pub fn probes(&self, choice: Choice, count: usize, seed: u64) -> Packed {
        let mut random = Random::new(seed);
        let mut packed = Packed::default();
        for _ in 0..count {
            let ordinal = match choice {
                Choice::Zipf => popular(&mut random, self.entries),
                Choice::Uniform | Choice::Missing => random.below(self.entries),
            };
            packed.push_with(|bytes| match choice {
                Choice::Missing => self.push_missing_key(ordinal, bytes),
                Choice::Uniform | Choice::Zipf => self.push_key(ordinal, bytes),
            });
        }
        packed
    }
}

/// Keys and values of one length each, as records of a service often are; else as a [`Dataset`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvenDataset {
    /// How many entries.
    pub(crate) entries: u64,
    /// What they are made from.
    pub(crate) seed: u64,
}

impl EvenDataset {
    /// Length of a key.
    pub(crate) const KEY_BYTES: u64 = 24;
    /// Length of a value.
    pub(crate) const VALUE_BYTES: u64 = 100;

    fn push_key(&self, ordinal: u64, out: &mut Vec<u8>) {
        printable(&mut of_item(self.seed ^ KEY_FAMILY, ordinal), (Self::KEY_BYTES, Self::KEY_BYTES), out);
    }

    fn push_value(&self, ordinal: u64, out: &mut Vec<u8>) {
        let lengths = (Self::VALUE_BYTES, Self::VALUE_BYTES);
        printable(&mut of_item(self.seed ^ VALUE_FAMILY, ordinal), lengths, out);
    }

    /// The entries `[first, last)`, in insertion order.
    pub(crate) fn batch(&self, first: u64, last: u64) -> Batch {
        let mut batch = Batch::default();
        for ordinal in first..last {
            batch.keys.push_with(|bytes| self.push_key(ordinal, bytes));
            batch.values.push_with(|bytes| self.push_value(ordinal, bytes));
        }
        batch
    }

    /// `count` keys that are there.
    pub(crate) fn probes(&self, count: usize, seed: u64) -> Packed {
        let mut random = Random::new(seed);
        let mut packed = Packed::default();
        for _ in 0..count {
            let ordinal = random.below(self.entries);
            packed.push_with(|bytes| self.push_key(ordinal, bytes));
        }
        packed
    }

    /// Other values for `count` keys that are there.
    pub(crate) fn updates(&self, count: usize, seed: u64) -> Batch {
        let mut random = Random::new(seed);
        let mut batch = Batch::default();
        for _ in 0..count {
            let (key, value) = (random.below(self.entries), random.below(self.entries));
            batch.keys.push_with(|bytes| self.push_key(key, bytes));
            batch.values.push_with(|bytes| self.push_value(value, bytes));
        }
        batch
    }
}

/// How probes choose among the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Every entry alike.
    Uniform,
    /// Skewed as YCSB does it, theta 0.99.
    Zipf,
    /// Keys that are not there.
    Missing,
}

impl Choice {
    /// How rows name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf 0.99",
            Self::Missing => "missing keys",
        }
    }
}

/// Byte strings in one allocation, in order of use: reading them costs the contenders no miss of their own.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Packed {
    /// Appends what `fill` appends.
    pub fn push_with(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        fill(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// The string at `index`.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// How many strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all strings.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Some entries of a dataset.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Their keys.
    pub keys: Packed,
    /// Their values, at the same indices.
    pub values: Packed,
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Dataset = Dataset { entries: 5_000, seed: 42 };

    #[test]
    fn entries_any_ordinal_are_the_papers() {
        let batch = DATA.batch(0, DATA.entries);
        for index in 0..batch.keys.len() {
            let (key, value) = (batch.keys.get(index), batch.values.get(index));
            assert!((8..=64).contains(&key.len()) && (8..=256).contains(&value.len()));
            assert!(key.iter().chain(value).all(|byte| byte.is_ascii_graphic()));
        }
        assert_eq!(DATA.raw_bytes(), (batch.keys.bytes() + batch.values.bytes()) as u64);
    }

    #[test]
    fn even_entries_have_one_length_and_probes_and_updates_are_of_them() {
        let data = EvenDataset { entries: 2_000, seed: 3 };
        let batch = data.batch(0, data.entries);
        let [keys, values] = [&batch.keys, &batch.values]
            .map(|packed| (0..packed.len()).map(|index| packed.get(index)).collect::<Vec<_>>());
        assert!(keys.iter().all(|key| key.len() == 24) && values.iter().all(|value| value.len() == 100));
        let present: std::collections::HashSet<&[u8]> = keys.into_iter().collect();
        assert_eq!(present.len(), 2_000);
        let (probes, updates) = (data.probes(500, 7), data.updates(500, 7));
        assert!((0..500).all(|index| present.contains(probes.get(index))));
        assert!((0..500).all(|index| present.contains(updates.keys.get(index))));
        assert_eq!(updates.values.bytes(), 500 * 100);
    }

    #[test]
    fn entries_same_seed_repeat_other_seed_differ() {
        let again = DATA.batch(10, 20);
        assert_eq!(DATA.batch(0, 20).keys.get(15), again.keys.get(5));
        assert_ne!(Dataset { seed: 43, ..DATA }.batch(10, 20).keys.get(5), again.keys.get(5));
    }

    #[test]
    fn probes_by_choice_are_present_or_missing() {
        let batch = DATA.batch(0, DATA.entries);
        let present: std::collections::HashSet<&[u8]> =
            (0..batch.keys.len()).map(|index| batch.keys.get(index)).collect();
        assert_eq!(present.len(), 5_000);
        for (choice, wanted) in [(Choice::Uniform, true), (Choice::Zipf, true), (Choice::Missing, false)] {
            let probes = DATA.probes(choice, 1_000, 9);
            assert!((0..probes.len()).all(|index| present.contains(probes.get(index)) == wanted));
        }
    }
}
