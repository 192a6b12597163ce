//! `local`: tree and extents in this process, on one core, beside in-memory rivals.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use cell_memory::{HEADER_BYTES, HugePages, Region, RegionSpec};
use cell_terms::{Epoch, PairId};
use cell_tree::Meganode;

use crate::chase::{self, Latency};
use crate::contest::{self, Contender, Outcome};
use crate::data::{Choice, Dataset, Packed};
use crate::figure::{Figure, Goal, Report};
use crate::lines::{self, Traced};
use crate::lmdb;
use crate::options::{BenchError, Options};
use crate::ours::{BATCH, Ours, OursError, Sizes};
use crate::pages;
use crate::put::Scratch;
use crate::readers::NO_LMDB;
use crate::rival::{Masstree, Rival, Standard};
use crate::shared_file::{Keys, ReadTransaction, SharedFile};

/// Entries of one scan.
const SCAN_ENTRIES: usize = 50;
/// Rounds that warm caches and branch predictors.
const WARM_UP: usize = 1;
/// How rows name LMDB, by how its reads come to a transaction; what ours must be beside it.
const LMDB: [(ReadTransaction, &str, Goal); 2] = [
    (ReadTransaction::Started, "LMDB, a transaction each", Goal::AtLeast(1.5)),
    (ReadTransaction::Renewed, "LMDB, one transaction renewed", Goal::None),
];
/// From where on its outcomes are, if it takes part in gets or scans.
const LMDB_OF_GETS: usize = 4;
const LMDB_OF_SCANS: usize = 3;

/// When contenders get the memory that they fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// As they need it, in their own time. Where a machine is virtual and a page was free for some seconds,
    /// its host may have to find it anew: 6 to 11 ms for 2 MiB were measured, against 0.3 ms for what was
    /// given back just before. Who takes which is chance.
    AsNeeded,
    /// All of it before: ours is populated, and that of rivals is what their allocator kept of a fill before.
    InPlace,
    /// As [`Memory::InPlace`], where the allocator kept less: ours alone has its memory, which is no
    /// comparison.
    OursInPlace,
}

impl Memory {
    /// That of a second fill, once the first is freed: of the process's private bytes before the first fill,
    /// at its end, and now.
    fn of_second([before, filled, freed]: [u64; 3]) -> Self {
        let (came, kept) = (filled.saturating_sub(before), freed.saturating_sub(before));
        // mimalloc gives back what is freed, but some time later.
        let is_kept = !cfg!(feature = "mimalloc") && came > 0 && kept >= came / 10 * 9;
        if is_kept { Self::InPlace } else { Self::OursInPlace }
    }

    /// How rows of inserts are named, and what ours must be beside masstree.
    fn row(self) -> (&'static str, Goal) {
        match self {
            Self::AsNeeded => ("local/insert", Goal::AtLeast(1.3)),
            Self::InPlace => ("local/insert, memory in place", Goal::AtLeast(1.3)),
            Self::OursInPlace => ("local/insert, memory of ours in place", Goal::None),
        }
    }
}

/// Everyone, filled with the same data.
struct Field {
    ours: Ours,
    masstree: Masstree,
    standard: Standard,
    /// If it is in this build.
    lmdb: Option<Box<dyn SharedFile>>,
}

/// Runs the bench.
///
/// # Errors
/// Too little memory, contenders that disagree, or an output that cannot be written.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let data = Dataset { entries: options.entries, seed: options.seed };
    let folder = Scratch::new(options.dir.as_deref())?;
    let before = private_bytes();
    let first = fill(&data, Memory::AsNeeded, report)?;
    let filled = private_bytes();
    drop(first);
    let field = fill(&data, Memory::of_second([before, filled, private_bytes()]), report)?;
    // Behind the inserts that are measured: its file takes memory, and is still being written afterwards.
    let field = Field { lmdb: fill_lmdb(&data, &folder, report)?, ..field };
    let rounds = usize::from(options.rounds);
    let latency = latency(options.entries)?;
    report.add(Figure::alone("local/miss, dependent", "ns", latency.dependent_ns))?;
    report.add(Figure::alone("local/miss, independent", "ns", latency.independent_ns))?;
    for choice in [Choice::Uniform, Choice::Zipf, Choice::Missing] {
        let round = usize::try_from(options.entries / 25).unwrap_or(usize::MAX).clamp(1_000, 100_000);
        let probes = Windows::new(&data, choice, round, rounds);
        let single = searches(&field, &probes, choice, report)?;
        gets(&field, &probes, choice, report)?;
        if choice != Choice::Missing {
            count_lines(&field.ours, &probes, choice, single, latency, report)?;
        }
    }
    let round = usize::try_from(options.entries / 500).unwrap_or(usize::MAX).clamp(100, 10_000);
    scans(&field, &Windows::new(&data, Choice::Uniform, round, rounds), report)
}

/// Private memory of this process, that of its heap among it.
fn private_bytes() -> u64 {
    let [_, all] = pages::private_bytes();
    all
}

/// Fills everyone from empty, in turns of one batch.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn fill(data: &Dataset, memory: Memory, report: &mut Report<'_>) -> Result<Field, BenchError> {
    let ours = Ours::new(Sizes::for_entries(data.entries), HugePages::Auto)?;
    if memory != Memory::AsNeeded {
        ours.populate_whole()?;
    }
    let (backing, ours) = (ours.node_region().backing(), RefCell::new(ours));
    report.note(&format!("{} entries, {} raw bytes, pages: {backing}", data.entries, data.raw_bytes()));
    let (masstree, standard) = (RefCell::new(Masstree::new()), RefCell::new(Standard::new()));
    let batch_entries = (data.entries / 250).max(1_000);
    let batch = RefCell::new(data.batch(0, 0));
    let failed: RefCell<Option<OursError>> = RefCell::new(None);
    let populating = Cell::new(Duration::ZERO);
    let mut contenders = [
        Contender::new("ours", |_| {
            let mut ours = ours.borrow_mut();
            let batch = batch.borrow();
            // The node has a thread that populates; here its time counts as ours.
            let started = Instant::now();
            let populated = ours.populate();
            populating.set(populating.get() + started.elapsed());
            let done = populated.and_then(|()| ours.insert(&batch));
            if let Err(error) = done {
                failed.replace(Some(error));
            }
            (batch.keys.len() as u64, 0)
        }),
        Contender::new(Masstree::NAME, |_| {
            masstree.borrow_mut().insert(&batch.borrow());
            (batch.borrow().keys.len() as u64, 0)
        }),
        Contender::new(Standard::NAME, |_| {
            standard.borrow_mut().insert(&batch.borrow());
            (batch.borrow().keys.len() as u64, 0)
        }),
    ];
    let rounds = usize::try_from(data.entries.div_ceil(batch_entries)).unwrap_or(usize::MAX);
    let outcomes = contest::run_prepared(&mut contenders, 0, rounds, |round| {
        let first = round as u64 * batch_entries;
        batch.replace(data.batch(first, (first + batch_entries).min(data.entries)));
    });
    drop(contenders);
    if let Some(error) = failed.into_inner() {
        return Err(error.into());
    }
    let ours = ours.into_inner();
    let (mine, theirs) = (outcomes[0].rate_overall, outcomes[1].rate_overall);
    let (name, goal) = memory.row();
    report.add(Figure::beside(name, "op/s", mine, Masstree::NAME, theirs, goal))?;
    let theirs = outcomes[2].rate_overall;
    report.add(Figure::beside(name, "op/s", mine, Standard::NAME, theirs, Goal::None))?;
    report.note(&format!("height {}, {:?}", ours.height(), ours.footprint()));
    report.note(&format!("of our inserts' time, {:.0?} gave memory its pages", populating.get()));
    let [huge, all] = pages::private_bytes().map(|bytes| bytes >> 20);
    report.note(&format!("rivals and this bench: {huge} of {all} MiB on huge pages"));
    Ok(Field { ours, masstree: masstree.into_inner(), standard: standard.into_inner(), lmdb: None })
}

/// LMDB with the same data, if it is in this build. What its inserts cost depends on the disk, and on how
/// many are in a transaction: they are no figure here.
fn fill_lmdb(
    data: &Dataset,
    folder: &Scratch,
    report: &Report<'_>,
) -> Result<Option<Box<dyn SharedFile>>, BenchError> {
    let file = lmdb::open(&folder.0, data.entries)?;
    match &file {
        Some(file) => {
            for first in (0..data.entries).step_by(20_000) {
                file.insert(&data.batch(first, (first + 20_000).min(data.entries)))?;
            }
        }
        None => report.note(NO_LMDB),
    }
    Ok(file)
}

/// What a miss costs in memory of the kind that regions have.
fn latency(entries: u64) -> Result<Latency, OursError> {
    let bytes = if entries < 1_000_000 { 64 << 20 } else { 1 << 30 };
    let (region, mut writer) =
        Region::create(&RegionSpec::extent(PairId(2), Epoch(1), bytes)?, HugePages::Auto)?;
    region.populate(0..bytes)?;
    let first = usize::try_from(HEADER_BYTES / 64).unwrap_or(usize::MAX);
    chase::prepare(&mut writer, first, 1);
    let steps = if entries < 1_000_000 { 100_000 } else { 2_000_000 };
    let measured: Vec<Latency> = (0..3).map(|seed| chase::measure(&region, first, steps, seed)).collect();
    let middle = |of: fn(&Latency) -> f64| contest::median(&measured.iter().map(of).collect::<Vec<_>>());
    Ok(Latency {
        dependent_ns: middle(|each| each.dependent_ns),
        independent_ns: middle(|each| each.independent_ns),
    })
}

/// Probes in windows of one round each: everyone gets the same window in the same round.
struct Windows {
    keys: Packed,
    size: usize,
    count: usize,
}

impl Windows {
    fn new(data: &Dataset, choice: Choice, size: usize, rounds: usize) -> Self {
        // A round's window must not lie in a cache because another contest just used it.
        let count = rounds + WARM_UP;
        Self { keys: data.probes(choice, size * count, data.seed ^ 0x7072_6F62), size, count }
    }

    fn rounds(&self) -> usize {
        self.count - WARM_UP
    }

    fn span(&self, round: usize) -> (usize, usize) {
        let first = round % self.count * self.size;
        (first, first + self.size)
    }

    fn keys(&self, round: usize) -> impl Iterator<Item = &[u8]> {
        let (first, last) = self.span(round);
        (first..last).map(|index| self.keys.get(index))
    }
}

/// Runs a contest over windows; ours goes first and must agree with all others.
fn contest_of(
    windows: &Windows,
    ours: impl Fn(usize, usize) -> Result<u64, OursError>,
    others: Vec<Contender<'_>>,
) -> Result<Vec<Outcome>, BenchError> {
    let failed: RefCell<Option<OursError>> = RefCell::new(None);
    let mut contenders = vec![Contender::new("ours", |round| {
        let (first, last) = windows.span(round);
        let proof = ours(first, last).unwrap_or_else(|error| {
            failed.replace(Some(error));
            0
        });
        (windows.size as u64, proof)
    })];
    contenders.extend(others);
    let outcomes = contest::run(&mut contenders, WARM_UP, windows.rounds());
    drop(contenders);
    if let Some(error) = failed.into_inner() {
        return Err(error.into());
    }
    let ours = outcomes[0].proof;
    match outcomes.iter().find(|outcome| outcome.proof != ours) {
        Some(other) => Err(BenchError::Disagreement { ours, theirs: other.proof }),
        None => Ok(outcomes),
    }
}

/// Single and batched searches; returns the rate of single ones.
fn searches(
    field: &Field,
    windows: &Windows,
    choice: Choice,
    report: &mut Report<'_>,
) -> Result<f64, BenchError> {
    let size = windows.size as u64;
    let (reader, batched) = (field.ours.reader(), field.ours.reader());
    let outcomes = contest_of(
        windows,
        |first, last| reader.search(&windows.keys, first, last),
        vec![
            Contender::new("ours, batched", |round| {
                let (first, last) = windows.span(round);
                (size, batched.search_batched(&windows.keys, first, last).unwrap_or(0))
            }),
            Contender::new(Masstree::NAME, |round| (size, field.masstree.search(&mut windows.keys(round)))),
            Contender::new(Standard::NAME, |round| (size, field.standard.search(&mut windows.keys(round)))),
        ],
    )?;
    let [single, batch, masstree, standard] = [0, 1, 2, 3].map(|index: usize| outcomes[index].rate());
    let name = choice.name();
    let row = |bench: &str, ours, rival, theirs, goal| {
        Figure::beside(format!("local/{bench} {name}"), "op/s", ours, rival, theirs, goal)
    };
    report.add(row("search", single, Masstree::NAME, masstree, Goal::AtLeast(1.4)))?;
    report.add(row("search", single, Standard::NAME, standard, Goal::None))?;
    let in_hand = format!("search, {BATCH} in hand,");
    report.add(row(&in_hand, batch, Masstree::NAME, masstree, Goal::AtLeast(3.0)))?;
    report.add(row(&in_hand, batch, "our single search", single, Goal::None))?;
    Ok(single)
}

/// Gets: the value copied out; ours checked by its CRC-64.
fn gets(field: &Field, windows: &Windows, choice: Choice, report: &mut Report<'_>) -> Result<(), BenchError> {
    let size = windows.size as u64;
    let reader = RefCell::new((field.ours.reader(), Vec::new()));
    let batched = RefCell::new((field.ours.reader(), Vec::new()));
    let (masstree_out, standard_out) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let mut others = vec![
        Contender::new("ours, batched", |round| {
            let (reader, out) = &mut *batched.borrow_mut();
            let (first, last) = windows.span(round);
            (size, reader.get_batched(&windows.keys, first, last, out).unwrap_or(0))
        }),
        Contender::new(Masstree::NAME, |round| {
            (size, field.masstree.get(&mut windows.keys(round), &mut masstree_out.borrow_mut()))
        }),
        Contender::new(Standard::NAME, |round| {
            (size, field.standard.get(&mut windows.keys(round), &mut standard_out.borrow_mut()))
        }),
    ];
    others.extend(lmdb_contenders(field, windows, |file, how, keys, out| file.get(how, keys, out)));
    let outcomes = contest_of(
        windows,
        |first, last| {
            let (reader, out) = &mut *reader.borrow_mut();
            reader.get(&windows.keys, first, last, out)
        },
        others,
    )?;
    let [single, batch, masstree, standard] = [0, 1, 2, 3].map(|index: usize| outcomes[index].rate());
    let name = choice.name();
    let row = |bench: &str, ours, rival, theirs, goal| {
        Figure::beside(format!("local/{bench} {name}"), "op/s", ours, rival, theirs, goal)
    };
    report.add(row("get", single, Masstree::NAME, masstree, Goal::AtLeast(1.2)))?;
    report.add(row("get", single, Standard::NAME, standard, Goal::None))?;
    report.add(row(&format!("get, {BATCH} in hand,"), batch, Masstree::NAME, masstree, Goal::None))?;
    add_lmdb_rows(&format!("local/get {name}"), single, &outcomes[LMDB_OF_GETS..], report)
}

/// Scans of fifty entries, keys and values copied out.
fn scans(field: &Field, windows: &Windows, report: &mut Report<'_>) -> Result<(), BenchError> {
    let size = windows.size as u64;
    let reader = RefCell::new((field.ours.reader(), Vec::new()));
    let (masstree_out, standard_out) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let mut others = vec![
        Contender::new(Masstree::NAME, |round| {
            let out = &mut masstree_out.borrow_mut();
            (size, field.masstree.scan(&mut windows.keys(round), SCAN_ENTRIES, out))
        }),
        Contender::new(Standard::NAME, |round| {
            let out = &mut standard_out.borrow_mut();
            (size, field.standard.scan(&mut windows.keys(round), SCAN_ENTRIES, out))
        }),
    ];
    others.extend(lmdb_contenders(field, windows, |file, how, keys, out| {
        file.scan(how, keys, SCAN_ENTRIES, out)
    }));
    let outcomes = contest_of(
        windows,
        |first, last| {
            let (reader, out) = &mut *reader.borrow_mut();
            reader.scan(&windows.keys, first, last, SCAN_ENTRIES, out)
        },
        others,
    )?;
    let [ours, masstree, standard] = [0, 1, 2].map(|index: usize| outcomes[index].rate());
    let bench = format!("local/scan {SCAN_ENTRIES} with values");
    report.add(Figure::beside(&bench, "op/s", ours, Standard::NAME, standard, Goal::AtLeast(2.0)))?;
    report.add(Figure::beside(&bench, "op/s", ours, Masstree::NAME, masstree, Goal::None))?;
    add_lmdb_rows(&bench, ours, &outcomes[LMDB_OF_SCANS..], report)
}

/// Reads what has these keys; returns how many bytes.
type FileRead = fn(&dyn SharedFile, ReadTransaction, Keys<'_, '_>, &mut Vec<u8>) -> Result<u64, BenchError>;

/// LMDB, once for each way to a transaction, if it is in this build.
fn lmdb_contenders<'a>(
    field: &'a Field,
    windows: &'a Windows,
    read: FileRead,
) -> impl Iterator<Item = Contender<'a>> {
    field.lmdb.iter().flat_map(move |file| {
        LMDB.map(|(how, name, _)| {
            let mut out = Vec::new();
            Contender::new(name, move |round| {
                let bytes = read(&**file, how, &mut windows.keys(round), &mut out);
                (windows.size as u64, bytes.unwrap_or(0))
            })
        })
    })
}

/// Ours beside each of them.
fn add_lmdb_rows(
    bench: &str,
    ours: f64,
    outcomes: &[Outcome],
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    for ((_, rival, goal), lmdb) in LMDB.into_iter().zip(outcomes) {
        report.add(Figure::beside(bench, "op/s", ours, rival, lmdb.rate(), goal))?;
    }
    Ok(())
}

/// Counts lines of searches through a model of the last-level cache, and says what rate their misses allow:
/// tree nodes that miss wait for each other, further lines of a node come side by side.
fn count_lines(
    ours: &Ours,
    windows: &Windows,
    choice: Choice,
    rate: f64,
    latency: Latency,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let (geometry, slot) = ours.place();
    let traced = Traced::new(ours.node_region(), lines::cache_bytes(), geometry.node_bytes());
    let tree = Meganode::new(&traced, geometry, slot);
    let total = windows.keys.len();
    let warm = total / 2;
    let (mut lines, mut misses, mut chain) = (0, 0, 0);
    for index in 0..total {
        tree.search(windows.keys.get(index)).map_err(OursError::from)?;
        let touched = traced.take();
        if index >= warm {
            lines += touched.lines;
            misses += touched.misses;
            chain += touched.blocks_missed;
        }
    }
    let per_search = |count: usize| count as f64 / (total - warm) as f64;
    let name = choice.name();
    let limit_ns = per_search(chain) * latency.dependent_ns
        + (per_search(misses) - per_search(chain)) * latency.independent_ns;
    report.add(Figure::alone(format!("local/lines a search {name}"), "lines", per_search(lines)))?;
    report.add(Figure::alone(format!("local/of them missed {name}"), "lines", per_search(misses)))?;
    report.add(Figure::alone(format!("local/nodes missed {name}"), "nodes", per_search(chain)))?;
    let rival = format!("limit of the misses, {:.0} ns", limit_ns);
    let bench = format!("local/search {name}");
    report.add(Figure::beside(bench, "op/s", rate, rival, 1e9 / limit_ns, Goal::None))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What went back to the system is given anew while rivals are measured, and ours has its memory already.
    #[test]
    fn memory_of_second_fill_is_in_place_where_the_first_ones_was_kept() {
        let kept = if cfg!(feature = "mimalloc") { Memory::OursInPlace } else { Memory::InPlace };
        assert_eq!(Memory::of_second([100, 1_100, 1_100]), kept);
        assert_eq!(Memory::of_second([100, 1_100, 1_000]), kept);
        for [filled, freed] in [[1_100, 999], [1_100, 100], [1_100, 0], [100, 100]] {
            assert_eq!(Memory::of_second([100, filled, freed]), Memory::OursInPlace, "{filled}, {freed}");
        }
        // The kernel does not say.
        assert_eq!(Memory::of_second([0; 3]), Memory::OursInPlace);
        for (memory, goal) in [
            (Memory::AsNeeded, Goal::AtLeast(1.3)),
            (Memory::InPlace, Goal::AtLeast(1.3)),
            (Memory::OursInPlace, Goal::None),
        ] {
            assert_eq!(memory.row().1, goal, "{memory:?}");
        }
    }
}
