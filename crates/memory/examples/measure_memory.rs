//! Measures this crate: `cargo run -p cell-memory --profile quick --example measure_memory [region MiB]`.
//!
//! Random dependent reads and populating by backing, the allocator, extents, copies of a tree node. Single
//! runs on one thread: trust ratios.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program")]
#![allow(clippy::disallowed_methods, clippy::cast_precision_loss, reason = "it reads the clock to measure")]

use std::hint::black_box;
use std::time::Instant;

use cell_memory::extent::{self, ExtentEncoder, ExtentHeader, ExtentReader};
use cell_memory::{ExtentAllocator, HugePages, Region, RegionSpec, RegionWriter};
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, Words, WordsMut};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64).try_into().unwrap()
    }

    fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64).try_into().unwrap()
    }
}

fn timed<T>(name: &str, count: usize, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = black_box(work());
    println!("  {name:<58} {:>9.1} ns", begin.elapsed().as_nanos() as f64 / count as f64);
    result
}

fn main() {
    let mebibytes: u64 = std::env::args().nth(1).map_or(2048, |text| text.parse().unwrap());
    reads_by_backing(mebibytes << 20);
    allocator();
    extents();
    tree_node_copies();
}

/// Rounds take turns between the backings, so that a busy machine is busy for all of them.
fn reads_by_backing(bytes: u64) {
    const READS: usize = 1_000_000;
    let mut backings = [HugePages::Small, HugePages::Transparent, HugePages::Auto].map(|pages| {
        let spec = RegionSpec::extent(PairId(1), Epoch(1), bytes).unwrap();
        let (region, mut writer) = Region::create(&spec, pages).unwrap();
        println!("{pages:?} got {}, {} MiB", region.backing(), bytes >> 20);
        let units = usize::try_from(bytes >> 21).unwrap();
        timed("populate 2 MiB", units, || region.populate_to(bytes).unwrap());
        println!("  {} of {} MiB on huge pages", region.huge_bytes() >> 20, region.populated_bytes() >> 20);
        let lines = region.len() / 8 - 64;
        chain(&mut writer, lines);
        (region, 512)
    });
    let mut random = Random(3);
    for round in 1..=5 {
        for (region, at) in &mut backings {
            println!("round {round}, {}", region.backing());
            *at = timed("random dependent read of a word", READS, || {
                (0..READS).fold(*at, |at, _| usize::try_from(region.load(at)).unwrap())
            });
            let nodes = region.len() / 128 - 4;
            let starts: Vec<usize> = (0..READS).map(|_| 512 + random.index(nodes) * 128).collect();
            timed("random read of a word, prefetched 8 ahead", READS, || {
                let mut sum = 0u64;
                for (i, &start) in starts.iter().enumerate() {
                    region.prefetch(starts[(i + 8).min(READS - 1)]);
                    sum = sum.wrapping_add(region.load(start));
                }
                sum
            });
            timed("copy of a random tree node of 1 KiB", READS / 4, || {
                let mut node = [0; 128];
                starts.iter().take(READS / 4).fold(0, |sum, &start| {
                    region.read_words(start, black_box(&mut node));
                    sum ^ node[17]
                })
            });
        }
    }
}

/// One random cycle through every cache line behind the header.
fn chain(writer: &mut RegionWriter, lines: usize) {
    let mut order: Vec<u32> = (0..u32::try_from(lines).unwrap()).collect();
    let mut random = Random(11);
    for i in (1..lines).rev() {
        order.swap(i, random.index(i));
    }
    for pair in order.windows(2) {
        writer.store(512 + pair[0] as usize * 8, 512 + u64::from(pair[1]) * 8);
    }
    writer.store(512 + order[lines - 1] as usize * 8, 512 + u64::from(order[0]) * 8);
}

fn allocator() {
    const ENTRIES: usize = 2_000_000;
    println!("allocator, values of 8 to 256 bytes, {ENTRIES} extents");
    let mut random = Random(5);
    let sizes: Vec<u32> = (0..ENTRIES).map(|_| 24 + u32::try_from(random.below(249)).unwrap()).collect();
    let order: Vec<usize> = (0..ENTRIES).map(|_| random.index(ENTRIES)).collect();
    let mut allocator = ExtentAllocator::new(1 << 30);
    let mut live: Vec<(ExtentOffset, u32)> = timed("allocate, filling", ENTRIES, || {
        sizes.iter().map(|&bytes| (allocator.allocate(bytes).unwrap(), bytes)).collect()
    });
    println!("  waste {:.2} %", allocator.stats().waste() * 100.0);
    timed("allocate and free, random updates", ENTRIES, || {
        for (&at, &bytes) in order.iter().zip(&sizes) {
            let (offset, before) =
                std::mem::replace(&mut live[at], (allocator.allocate(bytes).unwrap(), bytes));
            allocator.free(offset, before);
        }
    });
    println!("  waste {:.2} %", allocator.stats().waste() * 100.0);
    let mut restore = ExtentAllocator::restore(1 << 30);
    timed("reserve, any order", ENTRIES, || {
        live.iter().for_each(|&(offset, bytes)| restore.reserve(offset, bytes).unwrap());
    });
    assert_eq!(restore.finish().stats().live_bytes, allocator.stats().live_bytes);
    timed("allocate and free of one size, alone", ENTRIES, || {
        for _ in 0..ENTRIES {
            let offset = allocator.allocate(100).unwrap();
            allocator.free(offset, 100);
        }
    });
    const LONG: usize = 10_000;
    let mut long: Vec<(ExtentOffset, u32)> =
        (0..LONG).map(|_| (ExtentOffset(0), 9_000 + u32::try_from(random.below(50_000)).unwrap())).collect();
    timed("allocate of 9 to 59 KB", LONG, || {
        long.iter_mut().for_each(|(offset, bytes)| *offset = allocator.allocate(*bytes).unwrap());
    });
    timed("free and allocate of 9 to 59 KB, random updates", 10 * LONG, || {
        for i in 0..10 * LONG {
            let (at, bytes) = (random.index(LONG), long[i % LONG].1);
            allocator.free(long[at].0, long[at].1);
            long[at] = (allocator.allocate(bytes).unwrap(), bytes);
        }
    });
    println!("  waste {:.2} %", allocator.stats().waste() * 100.0);
}

fn extents() {
    const COUNT: usize = 1_000_000;
    let (region, mut writer) =
        Region::create(&RegionSpec::extent(PairId(1), Epoch(1), 512 << 20).unwrap(), HugePages::Auto)
            .unwrap();
    let (mut encoder, mut reader) = (ExtentEncoder::new(), ExtentReader::new());
    let header = ExtentHeader { epoch: Epoch(1), csn: Csn(1), ..ExtentHeader::default() };
    for value_bytes in [32, 132, 256, 1024, 4096] {
        println!("extents with values of {value_bytes} bytes");
        let value = vec![7; value_bytes];
        timed("encode with checksum", COUNT, || {
            (0..COUNT).fold(0, |sum, _| sum ^ encoder.encode(&header, black_box(&value)).unwrap().checksum)
        });
        let encoded = encoder.encode(&header, &value).unwrap();
        timed("checksum of the same bytes where they lie", COUNT, || {
            (0..COUNT).fold(0, |sum, _| sum ^ extent::checksum(black_box(encoded.bytes)))
        });
        let places = u32::try_from((512usize << 20) / 8192).unwrap() - 1;
        let place = |i: u32| ExtentOffset((1 + i % places) * 512);
        timed("store", COUNT, || {
            (0..1_000_000).for_each(|i| extent::store(&mut writer, place(i), encoded.bytes));
        });
        timed("read and check, one place", COUNT, || {
            for _ in 0..COUNT {
                black_box(reader.read(&region, place(7), encoded.shape, encoded.checksum).unwrap().value);
            }
        });
        let mut random = Random(9);
        let order: Vec<u32> =
            (0..COUNT).map(|_| u32::try_from(random.below(places.into())).unwrap()).collect();
        timed("read and check, random places", COUNT, || {
            for &at in &order {
                black_box(reader.read(&region, place(at), encoded.shape, encoded.checksum).unwrap().value);
            }
        });
    }
}

fn tree_node_copies() {
    println!("tree nodes of 1 KiB");
    let (region, mut writer) =
        Region::create_private(&RegionSpec::extent(PairId(1), Epoch(1), 4 << 20).unwrap()).unwrap();
    let mut node = [0; 128];
    timed("read_words", 1_000_000, || {
        for i in 0..1_000_000 {
            region.read_words(512 + (i % 16) * 128, black_box(&mut node));
        }
    });
    timed("write_words", 1_000_000, || {
        for i in 0..1_000_000 {
            writer.write_words(512 + (i % 16) * 128, black_box(&node));
        }
    });
}
