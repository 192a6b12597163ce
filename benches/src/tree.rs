//! `tree`: the tree by itself, in a pair without logs: writes through the pair, what its levels look like,
//! searches one at a time and in batches, scans both ways, a bulk build. `local` has the same data beside
//! rivals; here are nodes of any size.

use cell_memory::{HugePages, Region};
use cell_terms::{Csn, Words};
use cell_tree::{
    BulkFrame, LeafSnapshot, Meganode, NodeIndex, ReadError, SlotAllocator, TreeStats, apply, bulk_build,
};

use crate::contest::median;
use crate::data::{Batch, Choice, Dataset, Packed};
use crate::figure::{Figure, Report};
use crate::options::{BenchError, TreeOptions};
use crate::ours::{BATCH, Ours, OursError, Sizes};
use crate::times::timed;

/// Entries of one window of writes, before which memory is populated.
const WRITES: usize = 10_000;
/// Searches and leaves of a window.
const SEARCHES: usize = 200 * BATCH;
const LEAVES: usize = 1_000;
const PROBES_MAX: usize = 2_000_000;

/// Runs the bench.
///
/// # Errors
/// Too little memory, or a tree that cannot be read.
pub fn run(options: &TreeOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    let (node_bytes, options) = (options.node_bytes, &options.options);
    let data = Dataset { entries: options.entries, seed: options.seed };
    let sizes = Sizes { node_bytes, ..Sizes::for_entries(data.entries) };
    let mut ours = Ours::new(sizes, HugePages::Auto)?;
    report.note(&format!("pages: {}", ours.node_region().backing()));
    let all = data.batch(0, data.entries);
    write("insert", &mut ours, &all, report)?;
    write("replace", &mut ours, &all, report)?;
    let (geometry, slot) = ours.place();
    let meganode = Meganode::new(ours.node_region(), geometry, slot);
    levels(&meganode, report)?;
    let probes = data.probes(Choice::Uniform, all.keys.len().min(PROBES_MAX), 7);
    search(&meganode, &probes, usize::from(options.rounds), report)?;
    scan(&meganode, all.keys.len(), report)?;
    bulk(&meganode, all.keys.len(), report)
}

/// Nanoseconds of one of so many steps, by windows: other work on the machine disturbs windows, not the
/// median of many.
fn windows(
    count: usize,
    window: usize,
    mut steps: impl FnMut(usize, usize) -> Result<(), OursError>,
) -> Result<Vec<f64>, OursError> {
    let starts = (0..count).step_by(window).map(|first| (first, (first + window).min(count)));
    let window = |(first, end)| {
        let (ns, done) = timed(end - first, || steps(first, end));
        done.map(|()| ns)
    };
    starts.map(window).collect()
}

/// Adds the median of some windows.
fn row(bench: &str, windows: &[f64], report: &mut Report<'_>) -> Result<(), BenchError> {
    Ok(report.add(Figure::alone(format!("tree/{bench}"), "ns", median(windows)))?)
}

fn write(what: &str, ours: &mut Ours, data: &Batch, report: &mut Report<'_>) -> Result<(), BenchError> {
    let mut taken = Vec::new();
    for first in (0..data.keys.len()).step_by(WRITES) {
        ours.populate()?;
        let count = WRITES.min(data.keys.len() - first);
        taken.extend(windows(count, WRITES, |_, end| {
            (first..first + end).try_for_each(|at| ours.put(data.keys.get(at), data.values.get(at)))
        })?);
        ours.reuse();
    }
    row(what, &taken, report)
}

fn stats<W: Words + ?Sized>(meganode: &Meganode<'_, W>) -> TreeStats {
    meganode.validate(true).expect("what is written by the rules keeps them")
}

/// What each level looks like, leaves first.
fn levels(meganode: &Meganode<'_, Region>, report: &mut Report<'_>) -> Result<(), BenchError> {
    let node_bytes = meganode.geometry().node_bytes();
    let stats = stats(meganode);
    for (level, stats) in stats.levels.iter().enumerate() {
        let nodes = stats.nodes as f64;
        let used = stats.used_bytes as f64;
        for (what, unit, figure) in [
            ("nodes", "nodes", nodes),
            ("entries a node", "entries", stats.entries as f64 / nodes),
            ("fill", "part", used / (nodes * node_bytes as f64)),
            ("garbage", "part", stats.garbage_bytes as f64 / used),
        ] {
            report.add(Figure::alone(format!("tree/level {level}, {what}"), unit, figure))?;
        }
    }
    let an_entry = stats.node_bytes_per_entry(node_bytes);
    Ok(report.add(Figure::alone("tree/node bytes an entry", "bytes", an_entry))?)
}

fn search(
    meganode: &Meganode<'_, Region>,
    probes: &Packed,
    rounds: usize,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let count = probes.len() / BATCH * BATCH;
    let (mut single, mut batched) = (Vec::new(), Vec::new());
    let (mut proof, mut proof_batched) = (0, 0);
    let crc = |found: Result<cell_tree::SearchResult, ReadError>| {
        Ok::<u64, ReadError>(found?.entry.map_or(0, |entry| entry.crc))
    };
    for _ in 0..rounds {
        single.extend(windows(count, SEARCHES, |first, end| {
            for at in first..end {
                proof ^= crc(meganode.search(probes.get(at)))?;
            }
            Ok(())
        })?);
        batched.extend(windows(count, SEARCHES, |first, end| {
            let mut found = [Err(ReadError::NotHere); BATCH];
            for first in (first..end).step_by(BATCH) {
                let keys: [&[u8]; BATCH] = std::array::from_fn(|lane| probes.get(first + lane));
                meganode.search_batch(&keys, &mut found);
                for found in found {
                    proof_batched ^= crc(found)?;
                }
            }
            Ok(())
        })?);
    }
    if proof != proof_batched {
        return Err(BenchError::Disagreement { ours: proof_batched, theirs: proof });
    }
    row("search, one at a time", &single, report)?;
    row(&format!("search, {BATCH} in hand"), &batched, report)
}

/// All leaves in both directions.
fn scan(meganode: &Meganode<'_, Region>, entries: usize, report: &mut Report<'_>) -> Result<(), BenchError> {
    let leaves = stats(meganode).levels[0].nodes;
    let leaves = usize::try_from(leaves).unwrap_or(usize::MAX);
    let (mut leaf, mut seen) = (LeafSnapshot::new(), [0, 0]);
    meganode.leaf_first(&mut leaf).map_err(OursError::from)?;
    let forward = windows(leaves, LEAVES, |first, end| {
        for _ in first..end {
            meganode.prefetch_after(&leaf);
            seen[0] += leaf.iter().filter(|(key, _)| !key.is_empty()).count();
            meganode.leaf_after(&mut leaf)?;
        }
        Ok(())
    })?;
    meganode.leaf_last(&mut leaf).map_err(OursError::from)?;
    let backward = windows(leaves, LEAVES, |first, end| {
        for _ in first..end {
            seen[1] += leaf.len();
            meganode.leaf_before(&mut leaf)?;
        }
        Ok(())
    })?;
    assert_eq!(seen, [entries; 2], "a scan sees every entry");
    row("scan forward, a leaf", &forward, report)?;
    row("scan backward, a leaf", &backward, report)
}

/// Into plain memory: no pair takes a whole tree at once.
fn bulk(from: &Meganode<'_, Region>, count: usize, report: &mut Report<'_>) -> Result<(), BenchError> {
    let (geometry, slot) = (from.geometry(), from.slot());
    let end = geometry.node_offset(slot.index, NodeIndex::ROOT) + geometry.slot_bytes();
    let mut words = vec![0u64; end / 8];
    let mut allocator = SlotAllocator::new(geometry.nodes());
    let mut leaf = LeafSnapshot::new();
    from.leaf_first(&mut leaf).map_err(OursError::from)?;
    let mut at = 0;
    let entries = std::iter::from_fn(|| {
        while at == leaf.len() {
            at = 0;
            if !from.leaf_after(&mut leaf).expect("the scans have read it") {
                return None;
            }
        }
        at += 1;
        Some((leaf.key(at - 1).to_vec(), leaf.entry(at - 1)))
    });
    let (ns, built) = timed(count, || {
        bulk_build(geometry, slot, &BulkFrame::WHOLE, &mut allocator, entries, |change| {
            apply(words.as_mut_slice(), geometry, slot, &change, Csn(2));
        })
    });
    report.note(&format!("{:?}", built.expect("what was one meganode fits one")));
    let stats = stats(&Meganode::new(words.as_slice(), geometry, slot));
    row("bulk build, an entry", &[ns], report)?;
    let an_entry = stats.node_bytes_per_entry(geometry.node_bytes());
    report.add(Figure::alone("tree/bulk, node bytes an entry", "bytes", an_entry))?;
    report.add(Figure::alone("tree/bulk, height", "levels", f64::from(stats.height)))?;
    Ok(())
}
