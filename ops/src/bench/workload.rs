//! The core workloads of YCSB, a to f.
//!
//! | | mix | records picked |
//! |---|---|---|
//! | a | 50 % read, 50 % update | zipfian |
//! | b | 95 % read, 5 % update | zipfian |
//! | c | 100 % read | zipfian |
//! | d | 95 % read, 5 % insert | latest |
//! | e | 95 % scan of 1 to 100 records, 5 % insert | zipfian |
//! | f | 50 % read, 50 % read-modify-write | zipfian |

use clap::ValueEnum;
use rand::{Rng, RngExt};

use super::distribution::{Pick, fnv64};

/// Longest scan of workload e, in records.
pub(crate) const SCAN_RECORDS_MAX: u64 = 100;

/// A core workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Update heavy.
    A,
    /// Read mostly.
    B,
    /// Read only.
    C,
    /// Read latest.
    D,
    /// Short ranges.
    E,
    /// Read-modify-write.
    F,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Get.
    Read,
    /// Put to a record that exists.
    Update,
    /// Put of a new record.
    Insert,
    /// Scan from a record on.
    Scan,
    /// Get, then a put on condition of the version.
    ReadModifyWrite,
}

impl Kind {
    /// Its name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read_modify_write",
        }
    }
}

impl Workload {
    /// Per cent of each kind.
    pub(crate) const fn mix(self) -> &'static [(Kind, u64)] {
        match self {
            Workload::A => &[(Kind::Read, 50), (Kind::Update, 50)],
            Workload::B => &[(Kind::Read, 95), (Kind::Update, 5)],
            Workload::C => &[(Kind::Read, 100)],
            Workload::D => &[(Kind::Read, 95), (Kind::Insert, 5)],
            Workload::E => &[(Kind::Scan, 95), (Kind::Insert, 5)],
            Workload::F => &[(Kind::Read, 50), (Kind::ReadModifyWrite, 50)],
        }
    }

    /// Whether it adds records.
    pub(crate) fn inserts(self) -> bool {
        self.mix().iter().any(|(kind, _)| *kind == Kind::Insert)
    }

    /// The kind of the next operation.
    pub(crate) fn next(self, random: &mut impl Rng) -> Kind {
        let mut draw = random.random_range(0..100_u64);
        for (kind, per_cent) in self.mix() {
            match draw.checked_sub(*per_cent) {
                None => return *kind,
                Some(rest) => draw = rest,
            }
        }
        unreachable!("a mix adds up to 100")
    }

    /// How it picks records, as YCSB has it.
    pub(crate) const fn pick(self) -> Pick {
        match self {
            Workload::D => Pick::Latest,
            _ => Pick::Zipfian,
        }
    }

    /// Its letter.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Workload::A => "a",
            Workload::B => "b",
            Workload::C => "c",
            Workload::D => "d",
            Workload::E => "e",
            Workload::F => "f",
        }
    }
}

/// A record's key: `user` and the hash of its number, in 20 digits, so that keys of neighbours lie apart.
pub(crate) fn key(record: u64) -> [u8; 24] {
    /// A half of the digits: the divisions of the two do not wait for each other.
    const HALF: u64 = 10_000_000_000;
    let mut key = *b"user00000000000000000000";
    let (front, back) = key[4..].split_at_mut(10);
    let (mut high, mut low) = (fnv64(record) / HALF, fnv64(record) % HALF);
    for (front, back) in front.iter_mut().rev().zip(back.iter_mut().rev()) {
        (*front, high) = (digit(high), high / 10);
        (*back, low) = (digit(low), low / 10);
    }
    key
}

/// The last digit of a number.
fn digit(number: u64) -> u8 {
    b'0' + u8::try_from(number % 10).expect("a digit")
}

/// Fills a value with printable bytes.
pub(crate) fn fill_value(random: &mut impl Rng, value: &mut [u8]) {
    for chunk in value.chunks_mut(8) {
        let bytes = random.next_u64().to_le_bytes();
        for (to, from) in chunk.iter_mut().zip(bytes) {
            *to = b' ' + from % 95;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn next_mixes_add_up_and_are_kept() {
        for workload in Workload::value_variants() {
            assert_eq!(workload.mix().iter().map(|(_, per_cent)| per_cent).sum::<u64>(), 100);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
            for (kind, per_cent) in workload.mix() {
                let drawn = (0..10_000).filter(|_| workload.next(&mut random) == *kind).count() as u64;
                assert!(drawn.abs_diff(per_cent * 100) < 200, "{workload:?} {kind:?}: {drawn}");
            }
        }
    }

    #[test]
    fn records_are_added_by_d_and_e_alone() {
        let adding = Workload::value_variants().iter().filter(|workload| workload.inserts());
        assert_eq!(adding.map(|workload| workload.name()).collect::<String>(), "de");
    }

    #[test]
    fn key_is_the_hash_in_digits() {
        for record in (0..1000).chain([12345, u64::MAX]) {
            assert_eq!(key(record), format!("user{:020}", fnv64(record)).as_bytes(), "{record}");
        }
    }
}
