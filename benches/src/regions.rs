//! `regions`: reads of a region by what backs it, the allocator of extents, extents, copies of tree nodes.
//! One thread, no rival: trust ratios.

use std::hint::black_box;

use cell_memory::extent::{self, ExtentEncoder, ExtentHeader, ExtentReader};
use cell_memory::{ExtentAllocator, HEADER_BYTES, HugePages, Region, RegionSpec, RegionWriter};
use cell_random::Random;
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, Words};

use crate::chase::{self, LINE_WORDS};
use crate::contest::median;
use crate::figure::{Figure, Report};
use crate::options::{BenchError, Options};
use crate::times::timed;

/// Regions consist of whole units.
const UNIT_BYTES: u64 = 2 << 20;
/// Of a region for each entry.
const ENTRY_BYTES: u64 = 400;
/// The first line behind the header.
const FIRST_LINE: usize = 64;
const _: () = assert!(FIRST_LINE as u64 * 64 == HEADER_BYTES);
/// Words of a tree node.
const NODE_WORDS: usize = 128;
/// Reads ahead of which a line is asked for.
const AHEAD: usize = 8;
/// Long extents.
const LONG: usize = 10_000;
/// A place for any of the extents, in bytes and in the unit of offsets.
const PLACE_BYTES: u64 = 8_192;
const PLACE: u32 = 512;
const PLACES_MAX: usize = 65_535;
const VALUE_BYTES: [usize; 5] = [32, 132, 256, 1_024, 4_096];

/// Runs the bench.
///
/// # Errors
/// Too little memory.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let count = usize::try_from(options.entries / 5).unwrap_or(usize::MAX);
    backings(options, count, report)?;
    allocator(2 * count, report)?;
    extents(count, report)?;
    tree_nodes(count, report)
}

fn region(bytes: u64, pages: HugePages) -> Result<(Region, RegionWriter), BenchError> {
    Ok(Region::create(&RegionSpec::extent(PairId(1), Epoch(1), bytes)?, pages)?)
}

/// Adds a row of what one of `count` operations takes.
fn row<T>(
    report: &mut Report<'_>,
    bench: &str,
    count: usize,
    work: impl FnOnce() -> T,
) -> Result<T, BenchError> {
    let (ns, result) = timed(count, work);
    report.add(Figure::alone(format!("regions/{bench}"), "ns", ns))?;
    Ok(result)
}

/// Rounds take turns between the backings, so that a busy machine is busy for all of them.
fn backings(options: &Options, reads: usize, report: &mut Report<'_>) -> Result<(), BenchError> {
    let bytes = (options.entries * ENTRY_BYTES).next_multiple_of(UNIT_BYTES);
    let units = usize::try_from(bytes / UNIT_BYTES).unwrap_or(1);
    let mut regions = Vec::new();
    for pages in [HugePages::Small, HugePages::Transparent, HugePages::Auto] {
        let (region, mut writer) = region(bytes, pages)?;
        let backing = format!("{pages:?} ({})", region.backing());
        row(report, &format!("2 MiB populated, {backing}"), units, || region.populate_to(bytes))??;
        let of = format!("of {} MiB populated", region.populated_bytes() >> 20);
        report.note(&format!("{backing}: {} MiB {of} on huge pages", region.huge_bytes() >> 20));
        chase::prepare(&mut writer, FIRST_LINE, options.seed);
        regions.push((backing, region, [const { Vec::new() }; 4]));
    }
    let mut random = Random::new(options.seed);
    for _ in 0..options.rounds {
        for (_, region, taken) in &mut regions {
            let latency = chase::measure(&*region, FIRST_LINE, reads, random.next());
            let [ahead, copied] = starts(region, reads, &mut random);
            let all = [latency.dependent_ns, latency.independent_ns, ahead, copied];
            taken.iter_mut().zip(all).for_each(|(taken, ns)| taken.push(ns));
        }
    }
    let names = ["dependent read", "independent read", "read asked for ahead", "copy of a tree node"];
    for (backing, _, taken) in &regions {
        for (name, taken) in names.iter().zip(taken) {
            report.add(Figure::alone(format!("regions/{name}, {backing}"), "ns", median(taken)))?;
        }
    }
    Ok(())
}

/// Reads of words that are asked for ahead, and copies of tree nodes, at random places.
fn starts(region: &Region, reads: usize, random: &mut Random) -> [f64; 2] {
    let first = FIRST_LINE * LINE_WORDS;
    let nodes = (region.len() - first) / NODE_WORDS;
    let starts: Vec<usize> = (0..reads).map(|_| first + random.index(nodes) * NODE_WORDS).collect();
    let (ahead, _) = timed(reads, || {
        let mut sum = 0u64;
        for (at, &start) in starts.iter().enumerate() {
            region.prefetch(starts[(at + AHEAD).min(reads - 1)]);
            sum = sum.wrapping_add(region.load(start));
        }
        sum
    });
    let (copied, _) = timed(reads, || {
        let mut node = [0; NODE_WORDS];
        starts.iter().fold(0, |sum, &start| {
            region.read_words(start, black_box(&mut node));
            sum ^ node[17]
        })
    });
    [ahead, copied]
}

fn below(random: &mut Random, bound: u64) -> u32 {
    u32::try_from(random.below(bound)).unwrap_or(0)
}

fn allocator(count: usize, report: &mut Report<'_>) -> Result<(), BenchError> {
    const FITS: &str = "the region has room for it";
    let bytes = (1 << 30).max(count as u64 * 512);
    let mut random = Random::new(5);
    let sizes: Vec<u32> = (0..count).map(|_| 24 + below(&mut random, 249)).collect();
    let order: Vec<usize> = (0..count).map(|_| random.index(count)).collect();
    let mut allocator = ExtentAllocator::new(bytes);
    let mut live: Vec<(ExtentOffset, u32)> = row(report, "allocate, filling", count, || {
        sizes.iter().map(|&bytes| (allocator.allocate(bytes).expect(FITS), bytes)).collect()
    })?;
    waste("filled", &allocator, report)?;
    row(report, "allocate and free, random updates", count, || {
        for (&at, &bytes) in order.iter().zip(&sizes) {
            let new = (allocator.allocate(bytes).expect(FITS), bytes);
            let (offset, before) = std::mem::replace(&mut live[at], new);
            allocator.free(offset, before);
        }
    })?;
    waste("updated", &allocator, report)?;
    let mut restore = ExtentAllocator::restore(bytes);
    row(report, "reserve, any order", count, || {
        live.iter().try_for_each(|&(offset, bytes)| restore.reserve(offset, bytes))
    })?
    .expect("what was allocated can be reserved");
    assert_eq!(restore.finish().stats().live_bytes, allocator.stats().live_bytes);
    row(report, "allocate and free of one size, alone", count, || {
        for _ in 0..count {
            let offset = allocator.allocate(100).expect(FITS);
            allocator.free(offset, 100);
        }
    })?;
    let mut long: Vec<_> = (0..LONG).map(|_| (ExtentOffset(0), 9_000 + below(&mut random, 50_000))).collect();
    row(report, "allocate of 9 to 59 KB", LONG, || {
        long.iter_mut().for_each(|(offset, bytes)| *offset = allocator.allocate(*bytes).expect(FITS));
    })?;
    row(report, "free and allocate of 9 to 59 KB, random updates", 10 * LONG, || {
        for i in 0..10 * LONG {
            let (at, bytes) = (random.index(LONG), long[i % LONG].1);
            allocator.free(long[at].0, long[at].1);
            long[at] = (allocator.allocate(bytes).expect(FITS), bytes);
        }
    })?;
    waste("with long ones", &allocator, report)
}

fn waste(when: &str, allocator: &ExtentAllocator, report: &mut Report<'_>) -> Result<(), BenchError> {
    let percent = allocator.stats().waste() * 100.0;
    Ok(report.add(Figure::alone(format!("regions/waste of extents, {when}"), "%", percent))?)
}

fn extents(count: usize, report: &mut Report<'_>) -> Result<(), BenchError> {
    let places = count.min(PLACES_MAX);
    let (region, mut writer) = region((places as u64 + 1) * PLACE_BYTES, HugePages::Auto)?;
    let place = |at: usize| ExtentOffset((1 + u32::try_from(at % places).unwrap_or(0)) * PLACE);
    let (mut encoder, mut reader) = (ExtentEncoder::new(), ExtentReader::new());
    let header = ExtentHeader { epoch: Epoch(1), csn: Csn(1), ..ExtentHeader::default() };
    for value_bytes in VALUE_BYTES {
        let bench = |what: &str| format!("extent of {value_bytes} bytes: {what}");
        let value = vec![7; value_bytes];
        let mut encode = || encoder.encode(&header, black_box(&value)).expect("a short value").checksum;
        row(report, &bench("encode with checksum"), count, || (0..count).fold(0, |sum, _| sum ^ encode()))?;
        let encoded = encoder.encode(&header, &value).expect("a short value");
        row(report, &bench("checksum where it lies"), count, || {
            (0..count).fold(0, |sum, _| sum ^ extent::checksum(black_box(encoded.bytes)))
        })?;
        row(report, &bench("store"), count, || {
            (0..count).for_each(|at| extent::store(&mut writer, place(at), encoded.bytes));
        })?;
        let mut read = |at| {
            let extent = reader.read(&region, place(at), encoded.shape, encoded.checksum);
            black_box(extent.expect("it is whole").value);
        };
        row(report, &bench("read and check, one place"), count, || (0..count).for_each(|_| read(7)))?;
        let mut random = Random::new(9);
        let order: Vec<usize> = (0..count).map(|_| random.index(places)).collect();
        row(report, &bench("read and check, random places"), count, || {
            order.iter().for_each(|&at| read(at));
        })?;
    }
    Ok(())
}

fn tree_nodes(count: usize, report: &mut Report<'_>) -> Result<(), BenchError> {
    let spec = RegionSpec::extent(PairId(1), Epoch(1), 4 << 20)?;
    let (region, mut writer) = Region::create_private(&spec)?;
    let place = |at: usize| FIRST_LINE * LINE_WORDS + at % 16 * NODE_WORDS;
    let mut node = [0; NODE_WORDS];
    row(report, "tree node read", count, || {
        (0..count).for_each(|at| region.read_words(place(at), black_box(&mut node)));
    })?;
    row(report, "tree node written", count, || {
        (0..count).for_each(|at| writer.write_words(place(at), black_box(&node)));
    })
}
