//! `restore`: how fast a pair is restored from its logs and from an image, on a real disk, warm: in all, by
//! core and by stage. `restart` has the same as its client sees it.

use std::sync::Arc;
use std::time::Instant;

use cell_cluster::{Claim, Coordinator, NewPair, Ownership, Sim};
use cell_memory::{HugePages, RegionOptions};
use cell_pair::{Pair, PairOptions, WriteError};
use cell_recovery::image::write_image;
use cell_recovery::{
    Environment, Progress, PublishRequest, RecoveryOptions, RecoveryStage, RegionSource, Restore, Step,
    WriteCompletion, WriteOutcome, complete,
};
use cell_terms::{Csn, Durability, OperationNumber, SessionId};
use cell_test_kit::{NODE, environment, pump, record_image, serving_address, settle};
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{LogOptions, RealStorage};

use crate::data::Dataset;
use crate::disk;
use crate::figure::{Figure, Report};
use crate::options::{BenchError, Options};
use crate::ours::{OursError, SLOT, Sizes};
use crate::processor::own_time_ns;
use crate::put::Scratch;

/// The owner's lease. The coordinator's clock stands still here.
const LEASE_MS: u64 = 3_600_000;
const BATCH_BYTES: usize = 1 << 20;
/// Entries made at a time, and written between two looks at the disk.
const MADE: u64 = 10_000;
const WRITTEN: u64 = 64;

/// Runs the bench.
///
/// # Errors
/// A disk that failed, or too little memory.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    let storage = RealStorage::open(&folder.0)?;
    let link = Sim::new(1).link();
    let incarnation = link.grant(LEASE_MS).expect("the simulated coordinator has leases").lease;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let recovery = RecoveryOptions {
        threads: cores,
        regions: RegionSource::Shared(RegionOptions::from(HugePages::Auto)),
        ..RecoveryOptions::default()
    };
    let mut environment = environment(Arc::new(storage.clone()), Arc::new(link), recovery);
    let session = environment.sessions.open(incarnation).expect("the lease lives");
    let geometry = Sizes::for_entries(options.entries).geometry();
    let new = NewPair { incarnation, node: NODE, geometry };
    let claim = environment.table.create_pair(&new).expect("the pair is new");
    let ownership = claim.ownership;
    let mut ring = Ring::open(&storage, RingOptions { buffer_bytes: BATCH_BYTES, ..RingOptions::default() })?;
    let mut pair = first_owner(&environment, claim, &mut ring)?;
    let data = Dataset { entries: options.entries, seed: options.seed };
    fill(&mut pair, &mut ring, &data, session)?;
    for what in ["log", "image"] {
        if what == "image" {
            let (base, ends) = (pair.image_base(), pair.slot_ends());
            let csn = base.csn;
            let image =
                write_image(&pair.source(), Arc::new(storage.clone()), 1, base, &|slot| ends.end(slot))
                    .expect("a quiet pair can be copied");
            record_image(&environment.table, &storage, ownership, csn, (image.csn_max, image.path));
            pair.release_log(csn, &mut ring);
        }
        for threads in [1, cores] {
            environment.options.threads = threads;
            let restores: Result<Vec<_>, _> =
                (0..options.repeats()).map(|_| restore(&environment, ownership, pair.durable())).collect();
            add(&format!("restore/from the {what}, {threads} threads"), restores?, report)?;
        }
    }
    Ok(ring.close()?)
}

/// The pair in the hands of its first owner.
fn first_owner(environment: &Environment, claim: Claim, ring: &mut Ring) -> Result<Pair, OursError> {
    let publish = PublishRequest {
        durability: Durability::Sync,
        place: serving_address(),
        log: LogOptions { batch_bytes: BATCH_BYTES, ..LogOptions::default() },
        salt: 1,
    };
    let progress = Arc::new(Progress::new(0));
    let restore = Restore::new(environment, claim, &progress)?;
    let mut pause = |ns| {
        disk::pause(std::time::Duration::from_nanos(ns));
        true
    };
    let recovered = complete(environment, restore, &publish, ring, &progress, &mut pause)?;
    let options = PairOptions {
        durability: Durability::Sync,
        reuse_grace_ns: 0,
        grant_chunk_bytes: 64 << 20,
        split_fill_percent: 100,
        compaction_permille: 0,
    };
    Ok(Pair::new(recovered, &options))
}

/// Writes all entries and waits until they are durable.
fn fill(pair: &mut Pair, ring: &mut Ring, data: &Dataset, session: SessionId) -> Result<(), OursError> {
    for first in (0..data.entries).step_by(usize::try_from(MADE).unwrap_or(1)) {
        let batch = data.batch(first, (first + MADE).min(data.entries));
        for (at, number) in (0..batch.keys.len()).zip(first..) {
            let (key, value) = (batch.keys.get(at), batch.values.get(at));
            let number = OperationNumber(number + 1);
            loop {
                pair.make_room(SLOT, value.len());
                let written = pair.put(SLOT, key, value, |version, replaced| {
                    let outcome = WriteOutcome::Written { version, replaced };
                    WriteCompletion { session, number, floor: number, outcome }
                });
                match written {
                    Ok(_) => break,
                    Err(WriteError::NoRoom(_)) => pump(pair, ring),
                    Err(error) => return Err(error.into()),
                }
            }
            if number.0.is_multiple_of(WRITTEN) {
                pump(pair, ring);
            }
        }
    }
    settle(pair, ring, || false);
    Ok(())
}

/// What a restore took.
struct Restored {
    seconds: f64,
    /// Of all threads.
    processor_seconds: f64,
    bytes: f64,
    entries: f64,
    /// Processor time of each.
    stages: Vec<(RecoveryStage, f64)>,
}

/// Restores as the next owner would, up to a known cut. Nothing is recorded.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn restore(environment: &Environment, ownership: Ownership, cut: Csn) -> Result<Restored, BenchError> {
    let mut row = environment.table.pair(ownership.pair).expect("the pair has a row");
    row.epoch.0 += 1;
    row.history.iter_mut().for_each(|old| old.cut = Some(cut));
    let claim = Claim { ownership: Ownership { epoch: row.epoch, ..ownership }, row };
    let progress = Arc::new(Progress::new(0));
    let mut restore = Restore::new(environment, claim, &progress).map_err(OursError::from)?;
    let (started, started_ns) = (Instant::now(), own_time_ns());
    let since = |ns: u64| (own_time_ns() - ns) as f64 / 1e9;
    let (mut stage, mut stage_ns, mut stages) = (RecoveryStage::Claiming, started_ns, Vec::new());
    loop {
        let step = restore.step().map_err(OursError::from)?;
        let now = progress.view(0).stage;
        if now != stage || step == Step::Done {
            stages.push((stage, since(stage_ns)));
            (stage, stage_ns) = (now, own_time_ns());
        }
        if step == Step::Done {
            break;
        }
    }
    let view = progress.view(0);
    Ok(Restored {
        seconds: started.elapsed().as_secs_f64(),
        processor_seconds: since(started_ns),
        bytes: view.bytes_done as f64,
        entries: view.entries as f64,
        stages,
    })
}

/// Adds the rows of the restore in the middle, by processor time.
fn add(bench: &str, mut restores: Vec<Restored>, report: &mut Report<'_>) -> Result<(), BenchError> {
    restores.sort_by(|one, other| one.processor_seconds.total_cmp(&other.processor_seconds));
    let Restored { seconds, processor_seconds, bytes, entries, stages } =
        restores.swap_remove(restores.len() / 2);
    report.add(Figure::alone(bench, "bytes/s", bytes / seconds))?;
    report.add(Figure::alone(format!("{bench}, a core"), "bytes/s", bytes / processor_seconds))?;
    report.add(Figure::alone(format!("{bench}, an entry"), "ns", processor_seconds / entries * 1e9))?;
    for (stage, seconds) in stages {
        report.add(Figure::alone(format!("{bench}, {}", stage.name()), "s", seconds))?;
    }
    Ok(())
}
