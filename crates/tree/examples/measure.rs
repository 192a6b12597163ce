//! Measures the tree by itself: `cargo run --profile quick -p cell-tree --example measure -- [entries] [node
//! bytes]`.
//!
//! Keys of 8 to 64 random printable characters over huge pages: inserts (plan and apply, no log), searches
//! one at a time and in batches, scans both ways, a bulk build. Not a test: figures with rivals beside them
//! are in `benches`.
#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "an example")]

use std::time::Instant;

use cell_memory::{HEADER_BYTES, HugePages, Region, RegionSpec, RegionWriter};
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, SlotIndex};
use cell_tree::{
    BulkFrame, Change, Geometry, Image, LeafEntry, LeafSnapshot, Meganode, NodeIndex, Plan, ReadError, Slot,
    SlotAllocator, apply, bulk_build, empty_root, plan_put,
};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Keys {
    fn random(count: usize) -> Keys {
        let mut random = Random(42);
        let mut keys = Keys::default();
        for _ in 0..count {
            for _ in 0..8 + random.below(57) {
                keys.bytes.push(b'!' + random.below(94) as u8);
            }
            keys.ends.push(keys.bytes.len() as u32);
        }
        keys
    }

    fn get(&self, i: usize) -> &[u8] {
        let from = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.bytes[from..self.ends[i] as usize]
    }

    fn drawn(&self, count: usize) -> Keys {
        let mut random = Random(7);
        let mut keys = Keys::default();
        for _ in 0..count {
            keys.bytes.extend_from_slice(self.get(random.below(self.ends.len())));
            keys.ends.push(keys.bytes.len() as u32);
        }
        keys
    }
}

struct Store {
    region: Region,
    writer: RegionWriter,
    geometry: Geometry,
    slot: Slot,
    allocator: SlotAllocator,
}

fn store(slot_bytes: usize, node_bytes: usize) -> Store {
    let spec = RegionSpec::node(PairId(1), Epoch(1), slot_bytes as u64, slot_bytes as u64, node_bytes as u32)
        .unwrap();
    let (region, mut writer) = Region::create(&spec, HugePages::Auto).unwrap();
    region.populate(0..spec.bytes).unwrap();
    let geometry = Geometry::new(node_bytes, slot_bytes, HEADER_BYTES as usize).unwrap();
    let slot = Slot { region: PairId(1).node_region(), index: SlotIndex(0) };
    let root = empty_root(geometry);
    apply(
        &mut writer,
        geometry,
        slot,
        &Change::Fill { node: NodeIndex::ROOT, image: Image::new(&root) },
        Csn(1),
    );
    Store { region, writer, geometry, slot, allocator: SlotAllocator::new(geometry.nodes()) }
}

/// Times `step` on windows of items, and tells the median and the best: other work on the machine disturbs
/// windows, not the median of many.
fn timed(what: &str, count: usize, window: usize, mut step: impl FnMut(usize)) {
    let mut windows = Vec::new();
    let mut i = 0;
    while i < count {
        let end = (i + window).min(count);
        let start = Instant::now();
        (i..end).for_each(&mut step);
        windows.push(start.elapsed().as_nanos() as f64 / (end - i) as f64);
        i = end;
    }
    report(what, windows);
}

fn report(what: &str, mut windows: Vec<f64>) {
    windows.sort_by(f64::total_cmp);
    let (median, best) = (windows[windows.len() / 2], windows[windows.len() / 20]);
    println!("{what:28} {median:8.1} ns  {:7.3} M/s   (5 %: {best:.1} ns)", 1e3 / median);
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().unwrap());
    let entries = arguments.next().unwrap_or(5_000_000);
    let node_bytes = arguments.next().unwrap_or(1024);
    let rounds = arguments.next().unwrap_or(3);
    let slot_bytes = (entries * 160).next_power_of_two().max(1 << 20);
    let keys = Keys::random(entries);
    let mut store = store(slot_bytes, node_bytes);
    println!("pages: {}", store.region.backing());

    let mut plan = Plan::new();
    timed("insert, random", entries, 10_000, |i| {
        let meganode = Meganode::new(&store.region, store.geometry, store.slot);
        let entry = LeafEntry { offset: ExtentOffset(i as u32), value_len: 100, crc: i as u64 };
        plan_put(&meganode, &mut store.allocator, keys.get(i), entry, &mut plan).unwrap();
        for change in plan.changes() {
            apply(&mut store.writer, store.geometry, store.slot, &change, Csn(i as u64 + 2));
        }
        plan.commit(&mut store.allocator);
    });
    timed("replace, random", entries, 10_000, |i| {
        let meganode = Meganode::new(&store.region, store.geometry, store.slot);
        let entry = LeafEntry { offset: ExtentOffset(i as u32), value_len: 100, crc: i as u64 };
        plan_put(&meganode, &mut store.allocator, keys.get(i), entry, &mut plan).unwrap();
        for change in plan.changes() {
            apply(&mut store.writer, store.geometry, store.slot, &change, Csn(i as u64 + 2));
        }
        plan.commit(&mut store.allocator);
    });

    let meganode = Meganode::new(&store.region, store.geometry, store.slot);
    let stats = meganode.validate(true).unwrap();
    for (level, stats) in stats.levels.iter().enumerate() {
        println!(
            "level {level}: {} nodes, {:.1} entries, fill {:.2}, garbage {:.3}",
            stats.nodes,
            stats.entries as f64 / stats.nodes as f64,
            stats.used_bytes as f64 / (stats.nodes as usize * node_bytes) as f64,
            stats.garbage_bytes as f64 / stats.used_bytes as f64,
        );
    }
    println!("{:.1} node bytes an entry", stats.node_bytes_per_entry(node_bytes));

    let probes = keys.drawn(entries.min(2_000_000));
    let count = probes.ends.len();
    for _ in 0..rounds {
        search(&meganode, &probes, count);
    }
    scan(&meganode, entries);
    bulk(&meganode, entries, slot_bytes, node_bytes);
}

fn search(meganode: &Meganode<'_, Region>, probes: &Keys, count: usize) {
    let mut sum = 0u64;
    timed("search, one at a time", count, 2_000, |i| {
        sum += meganode.search(probes.get(i)).unwrap().entry.unwrap().crc;
    });
    let mut found = [Err(ReadError::NotHere); 16];
    let mut batched = 0u64;
    let mut windows = Vec::new();
    for window in 0..count / 3_200 {
        let start = Instant::now();
        for i in 0..200 {
            let first = window * 3_200 + i * 16;
            let batch: [&[u8]; 16] = std::array::from_fn(|lane| probes.get(first + lane));
            meganode.search_batch(&batch, &mut found);
            batched += found.iter().map(|found| found.unwrap().entry.unwrap().crc).sum::<u64>();
        }
        windows.push(start.elapsed().as_nanos() as f64 / 3_200.0);
    }
    report("search, 16 in hand", windows);
    let rest = (count / 3_200 * 3_200)..count;
    batched += rest.map(|i| meganode.search(probes.get(i)).unwrap().entry.unwrap().crc).sum::<u64>();
    assert_eq!(sum, batched);
}

fn scan(meganode: &Meganode<'_, Region>, entries: usize) {
    let mut leaf = LeafSnapshot::new();
    let leaves = meganode.validate(false).unwrap().levels[0].nodes as usize;
    let mut seen = 0;
    meganode.leaf_first(&mut leaf).unwrap();
    timed("scan forward, a leaf", leaves, 1_000, |_| {
        meganode.prefetch_after(&leaf);
        seen += leaf.iter().filter(|(key, _)| !key.is_empty()).count();
        meganode.leaf_after(&mut leaf).unwrap();
    });
    assert_eq!(seen, entries);
    let mut seen = 0;
    meganode.leaf_last(&mut leaf).unwrap();
    timed("scan backward, a leaf", leaves, 1_000, |_| {
        seen += leaf.len();
        meganode.leaf_before(&mut leaf).unwrap();
    });
    assert_eq!(seen, entries);
}

fn bulk(from: &Meganode<'_, Region>, entries: usize, slot_bytes: usize, node_bytes: usize) {
    let mut to = store(slot_bytes, node_bytes);
    let mut leaf = LeafSnapshot::new();
    from.leaf_first(&mut leaf).unwrap();
    let mut at = 0;
    let pairs = std::iter::from_fn(|| {
        while at == leaf.len() {
            at = 0;
            if !from.leaf_after(&mut leaf).unwrap() {
                return None;
            }
        }
        at += 1;
        Some((leaf.key(at - 1).to_vec(), leaf.entry(at - 1)))
    });
    let start = Instant::now();
    let (geometry, slot) = (to.geometry, to.slot);
    let writer = &mut to.writer;
    let built = bulk_build(geometry, slot, &BulkFrame::WHOLE, &mut to.allocator, pairs, |change| {
        apply(writer, geometry, slot, &change, Csn(2));
    });
    report("bulk build, an entry", vec![start.elapsed().as_nanos() as f64 / entries as f64]);
    println!("{:?}", built.unwrap());
    let stats = Meganode::new(&to.region, geometry, slot).validate(true).unwrap();
    println!(
        "bulk: {:.1} node bytes an entry, height {}",
        stats.node_bytes_per_entry(node_bytes),
        stats.height
    );
}
