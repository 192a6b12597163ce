//! How full memory is when the first write is refused for good: over lengths of values, limits, orders of
//! keys, overwrites and pairs. What is not filled is said, and by what.

use std::fmt;

use cell_cluster::PairGeometry;
use cell_memory::HEADER_BYTES;
use cell_node::WorkerOptions;
use cell_pair::{Pair, PairOptions};
use cell_protocol::{Condition, Delete, Request};
use cell_random::Random;
use cell_terms::Durability;

use crate::worker_core::world::{OPTIONS, Replied, TURNS, World};

const MIB: u64 = 1 << 20;
/// What there must be for a pair to be added (`node/src/limits.rs`).
const PAIR_BYTES_MIN: u64 = 8 * MIB;
/// What must be live at least when a write is refused, in percent of what the limit leaves for regions.
const LIVE_PERCENT: u64 = 75;
/// Bytes of values that are under way at a time, about, and puts.
const WINDOW_BYTES: usize = 1 << 20;
const WINDOW: usize = 64;
/// Longer than a meganode is empty before it is merged.
const EMPTY_NS: u64 = 1_100_000_000;
/// How long what was freed rests, where that does not matter.
const RESTS_MS: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
    Spread,
}

/// From and to which length values are, both included.
type Lengths = (usize, usize);

#[derive(Clone, Debug)]
struct Case {
    /// What is left for regions.
    limit: u64,
    lengths: Lengths,
    order: Order,
    /// When half is full, all are written again, with these lengths.
    again: Option<Lengths>,
    pairs: u32,
    /// How long what was freed rests.
    rests_ms: u64,
    seed: u64,
}

/// As a node fits them to what its limit leaves for regions (`node/src/memory_plan.rs:fit`).
fn geometry(limit: u64) -> PairGeometry {
    let pair = limit / 8;
    let node_region = (pair / 5).max(8 * (256 << 10));
    let slot_bytes = 1 << (node_region / 8).ilog2();
    PairGeometry {
        node_region_bytes: HEADER_BYTES + node_region / slot_bytes * slot_bytes,
        extent_region_bytes: (pair / 5 * 4).max(32 * MIB) / MIB * MIB,
        slot_bytes,
        node_bytes: 1024,
    }
}

fn options(&Case { limit, rests_ms, .. }: &Case) -> WorkerOptions {
    let pair = PairOptions {
        reuse_grace_ns: rests_ms * 1_000_000,
        durability: Durability::None,
        grant_chunk_bytes: 1 << (limit / 64).max(2 * MIB).ilog2(),
        split_fill_percent: 85,
        ..OPTIONS.pair
    };
    let (value_bytes_max, stream_bytes_max) = (16 << 20, 256 << 20);
    WorkerOptions { pair, tree_node_bytes: 1024, value_bytes_max, stream_bytes_max, ..OPTIONS }
}

/// What the limit is used for, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    limit: u64,
    live: u64,
    available: u64,
    nodes_unused: u64,
    extents_free: u64,
    slots_free: u64,
    rounded: u64,
    rest: u64,
}

impl Use {
    fn of(world: &World, limit: u64) -> Use {
        let mut used = Use { limit, available: world.available(), ..Use::default() };
        for figures in world.worker().pairs().map(Pair::figures) {
            let nodes = figures.tree_nodes * figures.tree_node_bytes;
            used.live += figures.extents_live_bytes + nodes;
            used.extents_free += figures.extents_free_bytes;
            used.slots_free += figures.extents_slots_free_bytes;
            let occupied = figures.extents_allocated_bytes - figures.extents_slots_free_bytes;
            used.rounded += occupied - figures.extents_live_bytes;
            let extents = figures.extents_allocated_bytes + figures.extents_free_bytes;
            used.nodes_unused += figures.granted_bytes.saturating_sub(extents + nodes);
        }
        let known = used.live + used.available + used.extents_free + used.slots_free + used.rounded;
        used.rest = limit.saturating_sub(known + used.nodes_unused);
        used
    }

    fn live_percent(&self) -> u64 {
        self.live * 100 / self.limit
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |bytes: u64| bytes as f64 * 100.0 / self.limit as f64;
        write!(f, "{:.1} % live; not granted {:.1}", percent(self.live), percent(self.available))?;
        write!(f, ", tree nodes unused {:.1}", percent(self.nodes_unused))?;
        write!(f, ", free ranges {:.1}", percent(self.extents_free))?;
        write!(f, ", free slots of slabs {:.1}", percent(self.slots_free))?;
        write!(f, ", rounded up {:.1}, else {:.1}", percent(self.rounded), percent(self.rest))
    }
}

struct Filling {
    case: Case,
    world: World,
    random: Random,
    number: u64,
    /// What all keys begin with.
    prefix: &'static str,
    value: Vec<u8>,
}

impl Filling {
    fn new(case: Case) -> Filling {
        let (sizes, options) = (geometry(case.limit), options(&case));
        let world = World::within(Some(case.limit), case.pairs, sizes, options);
        let longest = case.lengths.1.max(case.again.map_or(0, |(_, to)| to));
        let value = (0..longest).map(|at| (at * 31 % 251).to_le_bytes()[0]).collect();
        Filling { random: Random::new(case.seed), world, number: 0, prefix: "key", value, case }
    }

    fn key(&self, at: u64) -> Vec<u8> {
        let at = match self.case.order {
            Order::Ascending => at,
            Order::Descending => 0xFFFF_FFFF - at,
            Order::Spread => at.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF,
        };
        format!("{} {at:010}", self.prefix).into_bytes()
    }

    /// Writes these, some at a time; how many were written before one was refused for good.
    fn write(&mut self, keys: std::ops::Range<u64>, (from, to): Lengths) -> u64 {
        let mut next = keys.start;
        while next < keys.end {
            let mut window = Vec::new();
            let mut bytes = 0;
            while next < keys.end && window.len() < WINDOW && (window.is_empty() || bytes < WINDOW_BYTES) {
                let length = from + self.random.index(to - from + 1);
                bytes += length;
                window.push((next, length));
                next += 1;
            }
            for _ in 0..3 {
                let refused = self.put(&window);
                if refused.is_empty() {
                    window.clear();
                    break;
                }
                // What was freed rests; then it is tried again.
                self.rest();
                window = refused;
            }
            if let Some((first, _)) = window.first() {
                return first - keys.start;
            }
        }
        keys.end - keys.start
    }

    fn turn(&mut self) {
        self.world.turn();
        self.world.grow(PAIR_BYTES_MIN);
    }

    /// Until what was freed can be used again, and longer.
    fn rest(&mut self) {
        (0..self.case.rests_ms + 25).for_each(|_| self.turn());
    }

    /// Writes these at once; those that were refused.
    fn put(&mut self, window: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let floor = self.number + 1;
        let mut waiting = Vec::new();
        for &(at, length) in window {
            self.number += 1;
            let (name, key) = (self.world.name(self.number, floor), self.key(at));
            let id = self.world.send_put(name, &key, &self.value[..length]);
            waiting.push((id, (at, length)));
        }
        let mut refused = Vec::new();
        for _ in 0..TURNS {
            self.turn();
            waiting.retain(|(id, put)| match self.world.answered(*id) {
                None => true,
                Some(Replied::Written(_)) => false,
                Some(Replied::Refused(_)) => {
                    refused.push(*put);
                    false
                }
                Some(other) => panic!("{put:?}: {other:?}"),
            });
            if waiting.is_empty() {
                return refused;
            }
        }
        panic!("{waiting:?} are not answered: {}", Use::of(&self.world, self.case.limit));
    }

    /// Deletes these, and lets what was freed rest.
    fn delete(&mut self, keys: std::ops::Range<u64>) {
        let end = keys.end;
        for first in keys.step_by(WINDOW) {
            let floor = self.number + 1;
            let mut waiting = Vec::new();
            for at in first..end.min(first + WINDOW as u64) {
                self.number += 1;
                let (name, key) = (self.world.name(self.number, floor), self.key(at));
                let delete = Delete { name, condition: Condition::Always, key: &key };
                waiting.push((self.world.send(&Request::Delete(delete)), at));
            }
            for (id, at) in waiting {
                assert!(matches!(self.world.answer(id), Replied::Deleted | Replied::NotFound), "{at}");
            }
        }
        let mut merged = None;
        // As long as meganodes are merged.
        loop {
            let counts = self.world.worker().split_counts();
            if merged == Some(counts.merged) && counts.merging == 0 {
                break;
            }
            merged = Some(counts.merged);
            self.world.pass(EMPTY_NS);
            self.rest();
            self.world.pass(EMPTY_NS);
            self.rest();
        }
    }

    /// Fills memory until a write is refused. What it is used for then.
    fn fill(&mut self) -> Use {
        let (limit, lengths) = (self.case.limit, self.case.lengths);
        let mut entries = 0;
        if let Some(again) = self.case.again {
            let at_once = (MIB / lengths.1 as u64).max(1);
            while Use::of(&self.world, limit).live * 2 < limit {
                let written = self.write(entries..entries + at_once, lengths);
                entries += written;
                assert_eq!(written, at_once, "refused: {}", Use::of(&self.world, limit));
            }
            let written = self.write(0..entries, again);
            assert_eq!(written, entries, "refused: {}", Use::of(&self.world, limit));
        }
        entries += self.write(entries..u64::MAX, lengths);
        // What is copied, or was freed, does not count as live.
        self.world.until("the end of splits", |world| world.worker().split_counts().under_way == 0);
        self.rest();
        let used = Use::of(&self.world, limit);
        assert_eq!(self.world.violation(), None);
        let (counted, live) = self.world.extent_bytes();
        assert_eq!(counted, live, "bytes of extents");
        // Those of the last window are there, too.
        let there: u64 = self.world.entries().iter().sum();
        assert!((entries..entries + WINDOW as u64).contains(&there), "{there} of {entries} entries");
        used
    }
}

/// How full it becomes, in percent.
fn live_percent(case: Case) -> u64 {
    let mut filling = Filling::new(case.clone());
    let used = filling.fill();
    let counts = filling.world.worker().split_counts();
    let pairs = filling.world.entries().len();
    println!("{case:?}: {used}; {pairs} pairs, {counts:?}");
    used.live_percent()
}

fn check(case: Case) {
    let percent = live_percent(case.clone());
    assert!(percent >= LIVE_PERCENT, "{case:?}: {percent}");
}

/// How many values there is room for when all keys of before are deleted, again and again, and the next ones
/// begin with something else.
fn rolls(case: Case) -> Vec<u64> {
    let (lengths, mut filling) = (case.lengths, Filling::new(case));
    let rounds = ["a", "b", "c", "d", "e"].map(|prefix| {
        filling.prefix = prefix;
        let written = filling.write(0..u64::MAX, lengths);
        filling.delete(0..written + WINDOW as u64);
        let meganodes = filling.world.worker().pairs().map(|pair| pair.leaf_slots().len()).sum::<usize>();
        println!("{prefix}: {written}, {meganodes} meganodes: {:?}", filling.world.worker().split_counts());
        assert_eq!(filling.world.violation(), None);
        written
    });
    assert_eq!(filling.world.entries().iter().sum::<u64>(), 0);
    rounds.into()
}

/// Keys of a queue, or of a time, move on. (An operator's store ended read-only at a tenth of its memory.)
fn expect_room_for_keys_that_move_on(case: Case) {
    let rounds = rolls(case);
    let least = rounds[0] / 4 * 3;
    assert!(rounds.iter().all(|written| *written >= least), "{rounds:?}");
}

#[test]
fn keys_that_move_on_find_the_room_of_those_that_were_deleted_with_long_values() {
    expect_room_for_keys_that_move_on(CASE);
}

#[test]
fn keys_that_move_on_find_the_room_of_those_that_were_deleted_with_short_values() {
    expect_room_for_keys_that_move_on(Case { lengths: (1_000, 1_000), limit: 128 * MIB, ..CASE });
}

const CASE: Case = Case {
    limit: 256 * MIB,
    lengths: (1_000_000, 1_000_000),
    order: Order::Ascending,
    again: None,
    pairs: 1,
    rests_ms: RESTS_MS,
    seed: 1,
};

/// With 1 GiB, 112 values of a megabyte were taken, with 2 GiB 41 values of four.
#[test]
fn values_of_megabytes_fill_the_memory() {
    check(CASE);
    check(Case { lengths: (4_000_000, 4_000_000), limit: 512 * MIB, ..CASE });
}

/// A pair that was short was split again and again until what the first split had freed could be used. With
/// 1 GiB, 463 values of a megabyte were taken, and two of ten pairs were half empty when no slot was free.
#[test]
fn what_rests_after_a_split_counts_as_room() {
    check(Case { rests_ms: 250, ..CASE });
}

/// With 4 GiB, 1.6 million entries of a kilobyte, written again and again, were the end: a slab with one live
/// entry counted whole.
#[test]
fn overwritten_values_of_a_kilobyte_fill_the_memory() {
    let lengths = (1_000, 1_000);
    check(Case { limit: 128 * MIB, lengths, again: Some(lengths), order: Order::Spread, ..CASE });
}

/// Any of the cases, by seed; each becomes so full at least.
fn cases(least: u64, lengths: &[Lengths], limits: &[u64], seeds: std::ops::Range<u64>) {
    let mut emptier = Vec::new();
    for seed in seeds {
        let mut random = Random::new(seed ^ 0x6669_6c6c);
        let lengths = *lengths.get(random.index(lengths.len())).unwrap();
        let half = (lengths.0 / 2 + 1, lengths.1 / 2 + 1);
        let again = [None, Some(lengths), Some(half)][random.index(3)];
        let order = random.pick(&[Order::Ascending, Order::Descending, Order::Spread]);
        let (limit, pairs) = (random.pick(limits) * MIB, 1 + u32::from(random.percent(30)));
        let case = Case { limit, lengths, order, again, pairs, rests_ms: RESTS_MS, seed };
        let percent = live_percent(case.clone());
        emptier.extend((percent < least).then_some((percent, case)));
    }
    assert!(emptier.is_empty(), "below {least} %: {emptier:#?}");
}

/// Slots are what is out here, and what was overwritten by shorter values stays free beside them: of 300
/// bytes that became 151 (seed 5) 62 % are live and 23 % are free ranges; the others reach 73 to 82 %.
#[test]
fn memory_of_short_values_is_refused_only_when_three_fifths_are_live() {
    cases(60, &[(300, 300), (200, 700)], &[192, 256], 0..6);
}

#[test]
fn memory_of_values_in_slabs_is_refused_only_when_three_quarters_are_live() {
    cases(LIVE_PERCENT, &[(1_000, 1_000), (500, 2_000), (4_000, 8_000)], &[96, 128, 192], 100..110);
}

#[test]
fn memory_of_values_in_blocks_is_refused_only_when_three_quarters_are_live() {
    cases(LIVE_PERCENT, &[(9_000, 9_000), (5_000, 40_000), (10_000, 200_000)], &[96, 128, 256], 200..206);
}

#[test]
fn memory_of_large_values_is_refused_only_when_three_quarters_are_live() {
    let lengths = [(500_000, 500_000), (100_000, 1_500_000), (2_000_000, 2_000_000)];
    cases(LIVE_PERCENT, &lengths, &[256, 512], 300..306);
}
