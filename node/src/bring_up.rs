//! From a lease to served pairs, on the control thread: take this node's pairs over, or create the first,
//! hand them to the worker, serve the worker's commands, and at the end give the pairs up in the table.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use cell_cluster::{ClaimGround, Coordinator, Geometry, NewPair, PairRow, Place, Sessions, Table, Tenure};
use cell_memory::{MemoryError, Region, RegionSettings};
use cell_recovery::{
    ClaimRequest, Environment, Progress, PublishRequest, Rebuild, Recovered, RecoveryOptions, RegionSource,
    complete, find_logs, take_over,
};
use cell_terms::setting::{Settings, Source};
use cell_terms::{Epoch, Incarnation, PairId};
use cell_wal::ring::{Ring, RingOptions};
use cell_wal::{LogOptions, RealStorage};

use crate::control::{Control, PairControl, ToWorker};
use crate::populate;
use crate::settings::WorkerOptions;
use crate::shell::{Inbound, PairLine, ServedPair};
use crate::start::{NodeError, NodeOptions};
use crate::store::Store;
use crate::worker::Command;

/// What the control thread starts with.
pub(crate) struct BringUp {
    pub(crate) options: NodeOptions,
    pub(crate) worker_options: WorkerOptions,
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) incarnation: Incarnation,
    pub(crate) address: SocketAddr,
    pub(crate) to_worker: ToWorker,
    pub(crate) progress: Arc<Progress>,
}

impl BringUp {
    /// Runs until the worker is gone.
    pub(crate) fn run(&self, commands: &Receiver<Command>) -> Result<(), NodeError> {
        let storage = RealStorage::open(&self.options.folder).map_err(cell_wal::WalError::from)?;
        let environment = self.environment(&storage);
        let recovered = self.recover(&environment, &storage)?;
        let mut control = self.hand_over(&environment, &storage, recovered)?;
        control.run(commands);
        // The worker has stopped appending and answering: nothing of it is in flight any more.
        for pair in &control.pairs {
            if let Err(error) = environment.table.release(pair.tenure) {
                tracing::warn!(%error, "a pair stays in this node's name until its lease ends");
            }
        }
        Ok(())
    }

    fn environment(&self, storage: &RealStorage) -> Environment {
        let settings = &self.options.settings;
        let threads = usize::try_from(settings.integer("recovery_threads")).unwrap_or(1);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Environment {
            storage: Arc::new(storage.clone()),
            table: Table::new(self.coordinator.clone()),
            sessions: Sessions::new(self.coordinator.clone()),
            options: RecoveryOptions {
                threads: if threads == 0 { cores } else { threads },
                regions: RegionSource::Shared(RegionSettings::new(settings).options),
                ..RecoveryOptions::default()
            },
        }
    }

    fn ring_options(&self) -> RingOptions {
        let log = LogOptions::from_settings(&self.options.settings);
        RingOptions { buffer_bytes: log.batch_bytes, ..RingOptions::default() }
    }

    /// Takes this node's own pairs over, as anyone would; the first start of all creates one.
    fn recover(&self, environment: &Environment, storage: &RealStorage) -> Result<Vec<Mine>, NodeError> {
        environment.table.check_logs_found(&find_logs(&*environment.storage)?)?;
        let (rows, _) = environment.table.pairs()?;
        let own: Vec<_> = rows.iter().filter(|row| row.node == self.options.node).collect();
        if own.is_empty() {
            return Ok(vec![self.create(environment, storage, &self.progress)?]);
        }
        own.into_iter()
            .map(|row| {
                check_geometry(row, &self.options.settings)?;
                let mut device = self.device(storage)?;
                let (claim, publish) = (self.claim(row.pair), self.publish());
                let (progress, log) = (&self.progress, device.as_mut());
                let recovered = take_over(environment, &claim, &publish, log, progress, &mut pause)?;
                Ok(Mine { recovered, device })
            })
            .collect()
    }

    fn device(&self, storage: &RealStorage) -> Result<Box<Ring>, NodeError> {
        Ok(Box::new(Ring::open(storage, self.ring_options())?))
    }

    fn publish(&self) -> PublishRequest {
        PublishRequest {
            durability: self.worker_options.durability,
            place: Place { address: self.address.to_string(), worker: 0, node_key: 0, extent_key: 0 },
            log: LogOptions::from_settings(&self.options.settings),
            salt: RandomState::new().build_hasher().finish(),
        }
    }

    /// This process holds the lock that its predecessor held for life, so the predecessor appends nothing any
    /// more.
    fn claim(&self, pair: PairId) -> ClaimRequest {
        let ground = ClaimGround::HostLock;
        ClaimRequest { pair, incarnation: self.incarnation, node: self.options.node, ground }
    }

    fn create(
        &self,
        environment: &Environment,
        storage: &RealStorage,
        progress: &Arc<Progress>,
    ) -> Result<Mine, NodeError> {
        let geometry = geometry_wanted(&RegionSettings::new(&self.options.settings))?;
        let new = NewPair { incarnation: self.incarnation, node: self.options.node, geometry };
        let rebuild = Rebuild::new(environment, environment.table.create_pair(&new)?, progress)?;
        let mut device = self.device(storage)?;
        let (publish, log) = (self.publish(), device.as_mut());
        let recovered = complete(environment, rebuild, &publish, log, progress, &mut pause)?;
        Ok(Mine { recovered, device })
    }

    /// Hands the pairs and their logs to the worker, which serves them from then on.
    fn hand_over<'b>(
        &'b self,
        environment: &'b Environment,
        storage: &'b RealStorage,
        mine: Vec<Mine>,
    ) -> Result<Control<'b>, NodeError> {
        let settings = &self.options.settings;
        let (open, _) = environment.sessions.open_sessions()?;
        let (mut pairs, mut served) = (Vec::new(), Vec::new());
        for mine in mine {
            let (pair, line) = self.serve(mine)?;
            pairs.push(pair);
            served.push(line);
        }
        let sessions = open.iter().map(|row| row.session).collect();
        self.to_worker.send(Inbound::Install { pairs: served, sessions });
        Ok(Control {
            to_worker: self.to_worker.clone(),
            table: environment.table.clone(),
            sessions: environment.sessions.clone(),
            incarnation: self.incarnation,
            storage: environment.storage.clone(),
            image_level: i32::try_from(settings.integer("image_zstd_level")).unwrap_or(1),
            pairs,
            grow: Box::new(move || self.grow(environment, storage)),
        })
    }

    /// One more pair, if the memory limit permits it.
    fn grow(
        &self,
        environment: &Environment,
        storage: &RealStorage,
    ) -> Result<(PairControl, ServedPair), NodeError> {
        let settings = &self.options.settings;
        let regions = RegionSettings::new(settings);
        let (rows, _) = environment.table.pairs()?;
        let own = rows.iter().filter(|row| row.node == self.options.node);
        let taken: u64 =
            own.map(|row| row.geometry.node_region_bytes + row.geometry.extent_region_bytes).sum();
        let (node, extent) =
            (regions.node_spec(PairId(1), Epoch(1))?, regions.extent_spec(PairId(1), Epoch(1))?);
        let (wanted, limit) = (taken + node.bytes + extent.bytes, settings.integer("memory_limit_bytes"));
        if limit > 0 && wanted > limit {
            return Err(NodeError::MemoryLimit { wanted, limit });
        }
        // A pair that is in the table must be served: so the memory is tried before.
        let tried = [node, extent].map(|spec| Region::create(&spec, regions.options));
        tried.into_iter().try_for_each(|tried| tried.map(drop))?;
        let progress = Arc::new(Progress::new(cell_cluster::boottime_ns()));
        self.serve(self.create(environment, storage, &progress)?)
    }

    fn serve(&self, mine: Mine) -> Result<(PairControl, ServedPair), NodeError> {
        let Mine { recovered, device } = mine;
        let tenure = Tenure { pair: recovered.pair, epoch: recovered.epoch, incarnation: self.incarnation };
        let store = Store::new(recovered, &self.worker_options);
        let chunk_bytes = RegionSettings::new(&self.options.settings).populate_chunk_bytes;
        let populate = populate::start(&store, chunk_bytes).map_err(NodeError::Thread)?;
        let control = PairControl::new(tenure, &store);
        Ok((control, ServedPair { store, line: PairLine { device, populate } }))
    }
}

/// A pair that was recovered, with its log's device.
struct Mine {
    recovered: Recovered,
    device: Box<Ring>,
}

/// Recovery waits for the disk, the coordinator, or an earlier lease: there is nothing else that this thread
/// could do.
#[allow(
    clippy::disallowed_methods,
    reason = "a shell; what is waited for is asked about again by the caller"
)]
fn pause(duration_ns: u64) -> bool {
    std::thread::sleep(Duration::from_nanos(duration_ns));
    true
}

/// The sizes that the settings ask for, as the table has them: whole regions, headers included.
fn geometry_wanted(regions: &RegionSettings) -> Result<Geometry, MemoryError> {
    let (pair, epoch) = (PairId(1), Epoch(1)); // sizes do not depend on them
    let (node, extent) = (regions.node_spec(pair, epoch)?, regions.extent_spec(pair, epoch)?);
    Ok(Geometry {
        node_region_bytes: node.bytes,
        extent_region_bytes: extent.bytes,
        slot_bytes: node.slot_bytes,
        node_bytes: node.node_bytes,
    })
}

/// Sizes are fixed when a pair is created. A setting that somebody gave must not be ignored silently.
fn check_geometry(row: &PairRow, settings: &Settings) -> Result<(), NodeError> {
    let (found, wanted) = (row.geometry, geometry_wanted(&RegionSettings::new(settings))?);
    let sizes = [
        ("node_region_bytes", wanted.node_region_bytes, found.node_region_bytes),
        ("extent_region_bytes", wanted.extent_region_bytes, found.extent_region_bytes),
        ("slot_bytes", wanted.slot_bytes, found.slot_bytes),
        ("tree_node_bytes", u64::from(wanted.node_bytes), u64::from(found.node_bytes)),
    ];
    for (setting, wanted, found) in sizes {
        let given = settings.get(setting).is_some_and(|(_, source)| source > Source::Default);
        if given && wanted != found {
            return Err(NodeError::Geometry { setting, wanted, found });
        }
    }
    Ok(())
}
