//! What a node brings its pairs up with: the layout of an empty table, the member's row, and what takeovers
//! and new pairs are made of.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cell_cluster::{
    ClusterTerms, Coordinator, HostId, Joining, Layout, LeaseTerms, MemberRow, NewPair, PairGeometry,
    PairRow, ServingAddress, Sessions, ShareTimes, Table, boottime_ns,
};
use cell_fabric::{RegionTaker, TakenRegion};
use cell_memory::{Budget, MemoryError, MemoryKind, Region, RegionSettings, RegionSpec, Reservation};
use cell_pair::Pair;
use cell_recovery::{
    Environment, Progress, PublishRequest, Recovered, RecoveryError, RecoveryOptions, RegionSource, Turn,
};
use cell_terms::setting::{Settings, Source};
use cell_terms::{Epoch, Incarnation, PairId, RegionKind};
use cell_wal::frame::FRAME_VERSION;
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{LogDevice, LogOptions, LogRoot, SlowDevice, Storage, WalError};

use crate::error::NodeError;
use crate::first_segments::first_segments_bytes;
use crate::limits::PAIR_BYTES_MIN;
use crate::memory_plan::{LOG_BUFFERS, MemoryPlan, log_buffer_bytes};
use crate::messages::{LogRing, PairResources, RecoveredPair, ServedPair, ToWorker};
use crate::moves::{CopyJob, CopyRun};
use crate::options::NodeOptions;
use crate::populate::{self, PopulateSignal};
use crate::settings::WorkerOptions;
use crate::takeovers::TakeoverRun;

/// The longest sleep between two looks at whether the node goes on.
const PAUSE_NS: u64 = 10_000_000;

/// How peers read the node's regions themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedReads {
    /// In the order of addresses: tree nodes need no checksum of their own.
    pub(crate) ordered: bool,
    /// By a device, which must be given a region whole.
    pub(crate) whole: bool,
}

/// What the control thread starts with.
pub(crate) struct BringUp {
    pub(crate) options: NodeOptions,
    /// The folder whose lock it holds, as `home_name` names it.
    pub(crate) home: String,
    pub(crate) log_root: LogRoot,
    pub(crate) worker_options: WorkerOptions,
    pub(crate) reads: ServedReads,
    pub(crate) taker: RegionTaker,
    pub(crate) plan: MemoryPlan,
    pub(crate) budget: Budget,
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) incarnation: Incarnation,
    /// Where others connect.
    pub(crate) advertised: String,
    pub(crate) to_worker: ToWorker,
    pub(crate) progress: Arc<Progress>,
    /// Of the next takeover.
    pub(crate) threads: AtomicUsize,
    /// What copies of pairs that move here read, each.
    pub(crate) move_bytes_per_second: AtomicU64,
    /// [`populate::start`], or what a test has in its place.
    pub(crate) start_populate: fn() -> std::io::Result<PopulateSignal>,
}

/// The terms of the node's lease.
pub(crate) fn lease_terms(settings: &Settings) -> LeaseTerms {
    LeaseTerms::new(settings.integer("lease_ms"), settings.real("lease_drift_margin"))
}

/// Threads that replay a pair.
pub(crate) fn recovery_threads(settings: &Settings) -> usize {
    match usize::try_from(settings.integer("recovery_threads")).unwrap_or(1) {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    }
}

impl BringUp {
    pub(crate) fn environment(&self) -> Environment {
        let settings = &self.options.settings;
        let host = self.log_root.id.and_then(HostId::of_this_process);
        Environment {
            storage: Arc::new(self.log_root.storage.clone()),
            table: Table::new(self.coordinator.clone()).on_host(host),
            sessions: Sessions::new(self.coordinator.clone()),
            budget: self.budget.clone(),
            options: RecoveryOptions {
                threads: self.threads.load(Ordering::Relaxed),
                read_bytes: self.plan.read_bytes,
                regions: RegionSource::Shared(RegionSettings::new(settings).options),
                node_crc: !self.reads.ordered,
            },
        }
    }

    /// How the key space is to be spread if this is the first start of all, and the pairs' sizes.
    pub(crate) fn layout_wanted(&self) -> Result<(Layout, PairGeometry), NodeError> {
        let settings = &self.options.settings;
        let geometry = geometry_wanted(&RegionSettings::new(settings))?;
        let slots = (geometry.node_region_bytes / geometry.slot_bytes.max(1)).max(1);
        let layout = layout_wanted(settings, slots);
        if u64::from(layout.slots_max()) > slots {
            return Err(NodeError::Layout { slots, wanted: layout.slots_max() });
        }
        Ok((layout, geometry))
    }

    pub(crate) fn member_row(&self) -> MemberRow {
        MemberRow {
            incarnation: self.incarnation,
            node: self.options.node,
            fabric: self.advertised.clone(),
            http: self.options.http_address.clone(),
            pid: std::process::id(),
            memory_limit_bytes: self.options.settings.integer("memory_limit_bytes"),
        }
    }

    /// What the node joins a cluster with whose pairs have these sizes.
    pub(crate) fn joining(&self, host: Option<HostId>, geometry: PairGeometry) -> Result<Joining, NodeError> {
        let settings = &self.options.settings;
        check_geometry(geometry, settings)?;
        let durability = self.worker_options.pair.durability;
        Ok(Joining {
            terms: ClusterTerms::new(FRAME_VERSION, host, durability, lease_terms(settings)),
            host,
            home: self.home.clone(),
        })
    }

    /// A pair's ring, and what its buffers count for. Where there is no memory for them there is none for the
    /// pair's regions either, of which each takes more: that is what declines a takeover as it should be.
    pub(crate) fn device(&self) -> Result<(Box<LogRing>, Reservation), NodeError> {
        let settings = &self.options.settings;
        let bytes = log_buffer_bytes(settings);
        let reserved = self.budget.reserve(MemoryKind::Logs, bytes);
        let buffers = reserved
            .or_else(|_| self.budget.reserve(MemoryKind::Logs, 0))
            .map_err(|full| RecoveryError::Memory { bytes, source: MemoryError::LimitReached(full) })?;
        let log = LogOptions::from_settings(settings);
        let options =
            RingOptions { buffers: LOG_BUFFERS, buffer_bytes: log.batch_bytes, ..RingOptions::default() };
        let ring = Ring::open(&self.log_root.storage, options)?;
        let delay = self.options.disk_delay.clone();
        Ok((Box::new(SlowDevice::new(ring, delay, boottime_ns)), buffers))
    }

    /// The thread that populates a pair's memory. It waits for the pair, and like the pair's ring it is there
    /// before the pair is this node's.
    pub(crate) fn populate(&self) -> Result<PopulateSignal, NodeError> {
        (self.start_populate)().map_err(NodeError::Thread)
    }

    pub(crate) fn publish(&self) -> PublishRequest {
        PublishRequest {
            durability: self.worker_options.pair.durability,
            place: ServingAddress { address: self.advertised.clone(), worker: 0, node_key: 0, extent_key: 0 },
            log: LogOptions::from_settings(&self.options.settings),
            salt: RandomState::new().build_hasher().finish(),
        }
    }

    fn create(&self, environment: &Environment, geometry: PairGeometry) -> Result<RecoveredPair, NodeError> {
        // A pair that is in the table must be served, and for that it needs logs, and a thread.
        self.log_root.storage.check_root().map_err(WalError::from)?;
        let (mut device, buffers) = self.device()?;
        let populate = self.populate()?;
        let new = NewPair { incarnation: self.incarnation, node: self.options.node, geometry };
        let progress = Arc::new(Progress::new(boottime_ns()));
        let run = TakeoverRun::create(environment, &new, self.publish(), &progress)?;
        let (recovered, _) = step_to_the_end(run, device.as_mut(), || true)?;
        let taken = self.take_whole(&recovered);
        Ok(RecoveredPair { recovered, device, buffers, populate, taken })
    }

    /// Where a device reads the node's regions it takes them here, on the thread that has recovered them.
    pub(crate) fn take_whole(&self, recovered: &Recovered) -> Vec<TakenRegion> {
        if !self.reads.whole {
            return Vec::new();
        }
        let memory = &recovered.memory;
        populate::take_whole([memory.extent.region(), memory.node.region()], &self.taker)
    }

    /// Copies a pair that is to move here, and brings it up once it was handed over. A device takes its
    /// memory meanwhile, and tells nobody the keys.
    pub(crate) fn copy(&self, environment: &Environment, job: CopyJob) -> Result<RecoveredPair, NodeError> {
        self.check_geometry(&job.row)?;
        self.check_disk()?;
        let (mut device, buffers) = self.device()?;
        let populate = self.populate()?;
        let orders = Arc::clone(&job.orders);
        let mut run = CopyRun::begin(environment, job, self.publish(), boottime_ns())?;
        let (mut is_taken, mut taken) = (!self.reads.whole, Vec::new());
        loop {
            let rate = self.move_bytes_per_second.load(Ordering::Relaxed);
            match run.step(device.as_mut(), boottime_ns(), rate)? {
                Turn::More => {}
                Turn::Wait(for_ns) => orders.wait(Duration::from_nanos(for_ns.min(PAUSE_NS))),
                Turn::Done => break,
            }
            if let Some([node, extent]) = run.regions().filter(|_| !is_taken) {
                taken = populate::take_whole([&extent, &node], &self.taker);
                is_taken = true;
            }
        }
        let recovered = run.finish();
        if !is_taken {
            taken = self.take_whole(&recovered);
        }
        Ok(RecoveredPair { recovered, device, buffers, populate, taken })
    }

    /// Whether there is room for the first segments of a pair's new logs. Without, the pair would have to go
    /// back after the handing, to a source that may find no room for new logs of its own on the same disk.
    fn check_disk(&self) -> Result<(), NodeError> {
        let needed = first_segments_bytes(&self.options.settings);
        match self.log_root.storage.free_bytes().map_err(WalError::from)? {
            Some(free) if free < needed => Err(NodeError::DiskFull { free, needed }),
            _ => Ok(()),
        }
    }

    /// One more pair, if the memory limit permits it and no pair that the node had waits for memory.
    pub(crate) fn grow(&self, environment: &Environment) -> Result<RecoveredPair, NodeError> {
        let regions = RegionSettings::new(&self.options.settings);
        if self.budget.is_growth_held() {
            return Err(NodeError::GrowthHeld);
        }
        // All pairs have the same sizes: a pointer is computed without asking whose it is.
        let geometry = environment.table.geometry()?.map_or_else(|| geometry_wanted(&regions), Ok)?;
        let needed = PAIR_BYTES_MIN + log_buffer_bytes(&self.options.settings);
        cell_memory::give_up_for(&self.budget, needed);
        let figures = self.budget.figures();
        if figures.available < needed {
            let wanted = figures.limit - figures.available + PAIR_BYTES_MIN;
            return Err(NodeError::MemoryLimit { wanted, limit: figures.limit });
        }
        // A pair that is in the table must be served: so the memory is tried before.
        for spec in specs_of(geometry) {
            Region::create_within(&spec, regions.options, &self.budget)?;
        }
        self.create(environment, geometry)
    }

    /// What the worker's thread keeps of a pair that is served from here on.
    pub(crate) fn serve(&self, mine: RecoveredPair) -> ServedPair {
        let RecoveredPair { recovered, device, buffers, mut populate, taken } = mine;
        let pair = Pair::new(recovered, &self.worker_options.pair);
        populate.begin(&pair);
        let resources = PairResources { device, populate, _buffers: buffers, _taken: taken };
        ServedPair { pair, resources }
    }

    /// Sizes are fixed when a pair is created. A setting that somebody gave must not be ignored silently.
    pub(crate) fn check_geometry(&self, row: &PairRow) -> Result<(), NodeError> {
        check_geometry(row.geometry, &self.options.settings)
    }
}

/// How the settings want the key space spread: over no more slots than a region has, one of which is left for
/// the first split.
fn layout_wanted(settings: &Settings, slots: u64) -> Layout {
    let nodes = u32::try_from(settings.integer("cluster_nodes")).unwrap_or(1);
    let keys: Vec<String> = settings
        .text("initial_split_keys")
        .split(',')
        .map(str::trim)
        .filter(|key| !key.is_empty())
        .map(str::to_owned)
        .collect();
    if !keys.is_empty() {
        return Layout::new(nodes, keys);
    }
    if nodes == 1 {
        return Layout::single();
    }
    let most = u32::try_from(slots.saturating_sub(2)).unwrap_or(u32::MAX).max(1);
    Layout::even(nodes, u32::try_from(settings.integer("initial_ranges")).unwrap_or(1).min(most))
}

/// Regions of these sizes, of no pair in particular.
fn specs_of(geometry: PairGeometry) -> [RegionSpec; 2] {
    let (pair, epoch) = (PairId(1), Epoch(1));
    let spec = |kind, bytes, slot_bytes, node_bytes| RegionSpec {
        id: pair.region(kind),
        pair,
        kind,
        bytes,
        slot_bytes,
        node_bytes,
        epoch,
    };
    let PairGeometry { node_region_bytes, extent_region_bytes, slot_bytes, node_bytes } = geometry;
    [
        spec(RegionKind::Node, node_region_bytes, slot_bytes, node_bytes),
        spec(RegionKind::Extent, extent_region_bytes, 0, 0),
    ]
}

/// The sizes that the settings ask for, as the table has them: whole regions, headers included.
fn geometry_wanted(regions: &RegionSettings) -> Result<PairGeometry, MemoryError> {
    let (pair, epoch) = (PairId(1), Epoch(1)); // sizes do not depend on them
    let (node, extent) = (regions.node_spec(pair, epoch)?, regions.extent_spec(pair, epoch)?);
    Ok(PairGeometry {
        node_region_bytes: node.bytes,
        extent_region_bytes: extent.bytes,
        slot_bytes: node.slot_bytes,
        node_bytes: node.node_bytes,
    })
}

/// Sizes are fixed when a pair is created. A setting that somebody gave must not be ignored silently.
fn check_geometry(found: PairGeometry, settings: &Settings) -> Result<(), NodeError> {
    let given = |setting: &str| settings.get(setting).is_some_and(|(_, source)| source > Source::Default);
    let regions = RegionSettings::new(settings);
    // Before a region's size is worked out: a slot that is not the pairs' may not fit into it.
    if given("slot_bytes") && regions.slot_bytes != found.slot_bytes {
        let (wanted, found) = (regions.slot_bytes, found.slot_bytes);
        return Err(NodeError::Geometry { setting: "slot_bytes", wanted, found });
    }
    let mut node_region_bytes = regions.node_region_bytes;
    if node_region_bytes < found.slot_bytes {
        if given("node_region_bytes") {
            let (wanted, found) = (node_region_bytes, found.node_region_bytes);
            return Err(NodeError::Geometry { setting: "node_region_bytes", wanted, found });
        }
        node_region_bytes = found.node_region_bytes;
    }
    let slot_bytes = found.slot_bytes;
    let wanted = geometry_wanted(&RegionSettings { node_region_bytes, slot_bytes, ..regions })?;
    let sizes = [
        ("node_region_bytes", wanted.node_region_bytes, found.node_region_bytes),
        ("extent_region_bytes", wanted.extent_region_bytes, found.extent_region_bytes),
        ("tree_node_bytes", u64::from(wanted.node_bytes), u64::from(found.node_bytes)),
    ];
    for (setting, wanted, found) in sizes {
        if given(setting) && wanted != found {
            return Err(NodeError::Geometry { setting, wanted, found });
        }
    }
    Ok(())
}

/// Steps a takeover to its end, unless the node ends before.
pub(crate) fn step_to_the_end(
    mut run: TakeoverRun,
    device: &mut dyn LogDevice,
    goes_on: impl Fn() -> bool,
) -> Result<(Recovered, ShareTimes), RecoveryError> {
    while goes_on() {
        match run.step(device, boottime_ns)? {
            Turn::More => {}
            Turn::Wait(for_ns) => pause(for_ns.min(PAUSE_NS)),
            Turn::Done => return Ok(run.finish()),
        }
    }
    Err(RecoveryError::GivenUp)
}

/// A recovery waits for the disk, the coordinator, or an earlier lease: its thread has nothing else to do.
#[allow(
    clippy::disallowed_methods,
    reason = "a shell; what is waited for is asked about again by the caller"
)]
fn pause(for_ns: u64) {
    std::thread::sleep(Duration::from_nanos(for_ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new(&[cell_memory::SETTINGS]);
        pairs.iter().for_each(|(name, value)| settings.set(name, value, Source::Flag).unwrap());
        settings
    }

    /// A slot that did not fit into the region that nobody had given was "slot size cannot be 8388608".
    #[test]
    fn check_geometry_names_the_setting_that_was_given_also_where_a_slot_does_not_fit() {
        let small = [("node_region_bytes", "4MiB"), ("slot_bytes", "512KiB"), ("tree_node_bytes", "1KiB")];
        let found = geometry_wanted(&RegionSettings::new(&given(&small))).unwrap();
        assert!(check_geometry(found, &given(&small)).is_ok());
        assert!(check_geometry(found, &given(&[])).is_ok(), "what nobody gave follows the cluster");
        type Flags = &'static [(&'static str, &'static str)];
        let cases: [(Flags, &str, u64); 3] = [
            (&[("node_region_bytes", "4MiB"), ("slot_bytes", "8MiB")], "slot_bytes", 8 << 20),
            (&[("node_region_bytes", "256KiB"), ("slot_bytes", "512KiB")], "node_region_bytes", 256 << 10),
            (&[("tree_node_bytes", "2KiB")], "tree_node_bytes", 2048),
        ];
        for (flags, setting, wanted) in cases {
            let refused = check_geometry(found, &given(flags));
            let Err(NodeError::Geometry { setting: named, wanted: named_wanted, .. }) = refused else {
                panic!("{flags:?}: {refused:?}");
            };
            assert_eq!((named, named_wanted), (setting, wanted));
        }
        let large = [("node_region_bytes", "1GiB"), ("slot_bytes", "512MiB")];
        let found = geometry_wanted(&RegionSettings::new(&given(&large))).unwrap();
        let mut fitted = given(&[]);
        fitted.set("node_region_bytes", "64MiB", Source::Default).unwrap();
        assert!(check_geometry(found, &fitted).is_ok(), "a size that the memory plan chose was not given");
    }
}
