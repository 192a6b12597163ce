//! How fast a pair is restored, from its logs and from an image, on a real disk, warm.
//!
//! `cargo run --profile quick -p cell-recovery --example rate -- <entries> <value bytes> <threads> [folder]`
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "figures for people")]

#[path = "../tests/suite/owner/mod.rs"]
mod owner;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_cluster::{Claim, Coordinator, NewPair, PairGeometry, ServingAddress, Sessions, Sim, Table, Tenure};
use cell_memory::RegionOptions;
use cell_recovery::{
    Environment, Progress, PublishRequest, RecoveryOptions, RecoveryStage, RegionSource, Restore, Step,
    complete,
};
use cell_terms::{Csn, Durability};
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{LogOptions, RealStorage};

use owner::{NODE, Owner, Random};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let (entries, value_bytes, threads) = (number(0, 1_000_000), number(1, 100), number(2, 2) as usize);
    let parent = arguments.get(3).map_or_else(std::env::temp_dir, |folder| Path::new(folder).to_owned());
    let folder = tempfile::tempdir_in(parent).unwrap();
    let storage = RealStorage::open(folder.path()).unwrap();
    let sim = Sim::new(1);
    let link = sim.link();
    let lease = link.grant(3_600_000).unwrap().lease;
    let coordinator: Arc<dyn Coordinator> = Arc::new(link);
    let mut environment = Environment {
        storage: Arc::new(storage.clone()),
        table: Table::new(Arc::clone(&coordinator)),
        sessions: Sessions::new(coordinator),
        budget: cell_memory::Budget::unlimited(),
        options: RecoveryOptions {
            threads,
            regions: RegionSource::Shared(RegionOptions::default()),
            ..RecoveryOptions::default()
        },
    };
    let session = environment.sessions.open(lease).unwrap();
    let slot_bytes = (entries * 128).next_power_of_two().max(8 << 20);
    let geometry = PairGeometry {
        node_region_bytes: (4096 + slot_bytes).next_multiple_of(2 << 20),
        extent_region_bytes: (entries * (value_bytes + 64) * 2).next_multiple_of(2 << 20),
        slot_bytes,
        node_bytes: 1024,
    };
    let claim = environment.table.create_pair(&NewPair { incarnation: lease, node: NODE, geometry }).unwrap();
    let options = RingOptions { buffer_bytes: 1 << 20, ..RingOptions::default() };
    let mut device = Box::new(Ring::open(&storage, options).unwrap());
    let publish = PublishRequest {
        durability: Durability::Sync,
        place: ServingAddress { address: String::new(), worker: 0, node_key: 0, extent_key: 0 },
        log: LogOptions { batch_bytes: 1 << 20, ..LogOptions::default() },
        salt: 1,
    };
    let progress = Arc::new(Progress::new(0));
    let restore = Restore::new(&environment, claim, &progress).unwrap();
    let mut pause = |ns: u64| {
        std::thread::sleep(Duration::from_nanos(ns));
        true
    };
    let tenure = restore.tenure();
    let recovered = complete(&environment, restore, &publish, &mut *device, &progress, &mut pause).unwrap();
    let mut owner = Owner::new(&environment, recovered, tenure, device, Box::new(|| false), session);
    let mut random = Random::new(7);
    let value = vec![b'v'; value_bytes as usize];
    let started = Instant::now();
    for at in 0..entries {
        let key = format!("user{:016}", random.next() % (entries * 4));
        let mut value = value.clone();
        value.iter_mut().step_by(3).for_each(|byte| *byte = random.next() as u8);
        while !owner.put(key.as_bytes(), &value) {
            owner.pump();
        }
        if at % 64 == 0 {
            owner.pump();
        }
    }
    owner.settle();
    println!("{entries} entries of {value_bytes} bytes written in {:.2?}", started.elapsed());
    for (what, from_image) in [("logs", false), ("image", true)] {
        if from_image {
            let started = Instant::now();
            owner.begin_checkpoint();
            owner.end_checkpoint();
            println!("image written in {:.2?}", started.elapsed());
        }
        let repeats = std::env::var("REPEATS").map_or(1, |text| text.parse().unwrap());
        for threads in std::iter::repeat_n([1, threads], repeats).flatten() {
            environment.options.threads = threads;
            measure(&environment, what, owner.durable());
        }
    }
}

/// Restores as the next owner would, up to a known cut, and says how long each stage took. Nothing is
/// recorded.
fn measure(environment: &Environment, what: &str, cut: Csn) {
    let mut row = environment.table.pair(owner::PAIR).unwrap();
    row.epoch.0 += 1;
    row.history.iter_mut().for_each(|old| old.cut = Some(cut));
    let tenure = Tenure { pair: row.pair, epoch: row.epoch, incarnation: row.owner.unwrap() };
    let claim = Claim { tenure, row };
    let progress = Arc::new(Progress::new(0));
    let mut restore = Restore::new(environment, claim, &progress).unwrap();
    let (started, started_cpu) = (Instant::now(), cpu_seconds());
    let (mut stage, mut since) = (RecoveryStage::Claiming, started_cpu);
    let mut line = String::new();
    loop {
        let step = restore.step().unwrap();
        let now = progress.view(0).stage;
        if now != stage || step == Step::Done {
            line += &format!(" {} {:.3}", stage.name(), cpu_seconds() - since);
            (stage, since) = (now, cpu_seconds());
        }
        if step == Step::Done {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let view = progress.view(0);
    println!(
        "{what}, {} threads: {} MB in {seconds:.2} s, {:.2} s of processor: {:.0} MB/s a core, {:.0} ns an \
         entry;{line}",
        environment.options.threads,
        view.bytes_done / 1_000_000,
        cpu_seconds() - started_cpu,
        view.bytes_done as f64 / 1e6 / (cpu_seconds() - started_cpu),
        (cpu_seconds() - started_cpu) / view.entries as f64 * 1e9,
    );
}

/// What all threads of this process have used.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
