//! Measures the tree by itself, in a pair without logs: `cargo run --profile quick -p cell-benches --example
//! tree -- [entries] [node bytes] [rounds]`.
//!
//! The data of `local`: inserts and replacements through the pair, then what the tree's levels look like,
//! searches one at a time and in batches, scans both ways, a bulk build. Not a test: figures with rivals
//! beside them are in `local`.
#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "an example")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::time::Instant;

use cell_benches::data::{Batch, Choice, Dataset, Packed};
use cell_benches::ours::{Ours, Sizes};
use cell_memory::{HugePages, Region};
use cell_terms::Csn;
use cell_tree::{BulkFrame, LeafSnapshot, Meganode, ReadError, SlotAllocator, apply, bulk_build};

/// Entries of one batch of writes, before which memory is populated.
const BATCH_ENTRIES: usize = 10_000;

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

fn insert(what: &str, ours: &mut Ours, data: &Batch) {
    let mut windows = Vec::new();
    for first in (0..data.keys.len()).step_by(BATCH_ENTRIES) {
        ours.populate().unwrap();
        let end = (first + BATCH_ENTRIES).min(data.keys.len());
        let start = Instant::now();
        (first..end).for_each(|i| ours.put(data.keys.get(i), data.values.get(i)).unwrap());
        windows.push(start.elapsed().as_nanos() as f64 / (end - first) as f64);
        ours.reuse();
    }
    report(what, windows);
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().unwrap());
    let entries = arguments.next().unwrap_or(5_000_000);
    let node_bytes = arguments.next().unwrap_or(1024);
    let rounds = arguments.next().unwrap_or(3);
    let data = Dataset { entries: entries as u64, seed: 42 };
    let sizes = Sizes { node_bytes, ..Sizes::for_entries(data.entries) };
    let mut ours = Ours::new(sizes, HugePages::Auto).unwrap();
    println!("pages: {}", ours.node_region().backing());
    let all = data.batch(0, data.entries);
    insert("insert, random", &mut ours, &all);
    insert("replace, random", &mut ours, &all);

    let (geometry, slot) = ours.place();
    let meganode = Meganode::new(ours.node_region(), geometry, slot);
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

    let probes = data.probes(Choice::Uniform, entries.min(2_000_000), 7);
    for _ in 0..rounds {
        search(&meganode, &probes, probes.len());
    }
    scan(&meganode, entries);
    bulk(&meganode, entries);
}

fn search(meganode: &Meganode<'_, Region>, probes: &Packed, count: usize) {
    let mut sum = 0u64;
    timed("search, one at a time", count, 2_000, |i| {
        sum ^= meganode.search(probes.get(i)).unwrap().entry.unwrap().crc;
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
            batched = found.iter().fold(batched, |sum, found| sum ^ found.unwrap().entry.unwrap().crc);
        }
        windows.push(start.elapsed().as_nanos() as f64 / 3_200.0);
    }
    report("search, 16 in hand", windows);
    let rest = (count / 3_200 * 3_200)..count;
    batched = rest.fold(batched, |sum, i| sum ^ meganode.search(probes.get(i)).unwrap().entry.unwrap().crc);
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

/// Into plain memory: no pair takes a whole tree at once.
fn bulk(from: &Meganode<'_, Region>, entries: usize) {
    let (geometry, slot) = (from.geometry(), from.slot());
    let end = geometry.node_offset(slot.index, cell_tree::NodeIndex::ROOT) + geometry.slot_bytes();
    let mut words = vec![0u64; end / 8];
    let mut allocator = SlotAllocator::new(geometry.nodes());
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
    let built = bulk_build(geometry, slot, &BulkFrame::WHOLE, &mut allocator, pairs, |change| {
        apply(words.as_mut_slice(), geometry, slot, &change, Csn(2));
    });
    report("bulk build, an entry", vec![start.elapsed().as_nanos() as f64 / entries as f64]);
    println!("{:?}", built.unwrap());
    let stats = Meganode::new(words.as_slice(), geometry, slot).validate(true).unwrap();
    println!(
        "bulk: {:.1} node bytes an entry, height {}",
        stats.node_bytes_per_entry(geometry.node_bytes()),
        stats.height
    );
}
