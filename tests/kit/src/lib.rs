//! A process with pairs in a box: its view of a simulated disk, its lease of a simulated coordinator, and
//! what its recoveries need. It creates and claims pairs, restores and publishes them, records their
//! checkpoints, and crashes.
//!
//! Whoever serves the pairs (a worker, a second writer, nobody) is the business of the test. A crate's own
//! unit tests cannot use this, because what they compile is not the crate that this one is linked to; tests
//! in `tests/` can.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;

use cell_cluster::{
    CheckpointRow, Claim, ClaimReason, Coordinator, HostId, NewPair, Ownership, PairGeometry, ServingAddress,
    Sessions, Sim, SimLink, Table,
};
use cell_memory::Budget;
use cell_pair::{MemoryObserver, Pair};
use cell_recovery::{
    ClaimRequest, Environment, Progress, PublishRequest, Recovered, RecoveryError, RecoveryOptions,
    RegionSource, Restore, Step, complete, remove_unneeded,
};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId};
use cell_wal::sim::{SimDevice, SimDisk};
use cell_wal::{LogDevice, LogOptions, Storage};

/// The number of each process's node.
pub const NODE: NodeId = NodeId(0);
/// One thread, short reads, memory of this process alone.
pub const OPTIONS: RecoveryOptions =
    RecoveryOptions { threads: 1, read_bytes: 64 << 10, regions: RegionSource::Private, node_crc: false };

const LEASE_MS: u64 = 500;
/// Time passes in such pieces, so that the lease is renewed in time.
const PAUSE_MAX_NS: u64 = 100_000_000;

/// One life of a process. All of them are on one host.
pub struct Process {
    /// What it sees of the disk.
    pub disk: SimDisk,
    /// Its connection to the coordinator.
    pub link: SimLink,
    /// Its lease, of half a second.
    pub lease: Incarnation,
    /// What its recoveries need.
    pub environment: Environment,
}

/// What recoveries need, over any storage and coordinator.
#[must_use]
pub fn environment(
    storage: Arc<dyn Storage>,
    coordinator: Arc<dyn Coordinator>,
    options: RecoveryOptions,
) -> Environment {
    Environment {
        storage,
        table: Table::new(Arc::clone(&coordinator)).on_host(Some(HostId::new(1, 1))),
        sessions: Sessions::new(coordinator),
        budget: Budget::unlimited(),
        options,
    }
}

/// Where nobody serves: no client comes.
#[must_use]
pub fn serving_address() -> ServingAddress {
    ServingAddress { address: "sim".to_owned(), worker: 0, node_key: 0, extent_key: 0 }
}

impl Process {
    /// A process starts, with [`OPTIONS`].
    #[must_use]
    pub fn start(disk: &SimDisk, sim: &Sim) -> Process {
        Process::with(disk, sim, OPTIONS)
    }

    /// A process starts, with other options.
    #[must_use]
    pub fn with(disk: &SimDisk, sim: &Sim, options: RecoveryOptions) -> Process {
        let (disk, link) = (disk.process(), sim.link());
        let lease = link.grant(LEASE_MS).unwrap().lease;
        let environment = environment(Arc::new(disk.clone()), Arc::new(link.clone()), options);
        Process { disk, link, lease, environment }
    }

    /// It dies. What it had written and not synced may or may not be there.
    pub fn crash(&self) {
        self.disk.kill();
    }

    /// Creates a pair in the region table.
    #[must_use]
    pub fn create(&self, geometry: PairGeometry) -> Claim {
        let new = NewPair { incarnation: self.lease, node: NODE, geometry };
        self.environment.table.create_pair(&new).unwrap()
    }

    /// Begins to restore what was claimed.
    ///
    /// # Errors
    /// As [`Restore::new`].
    pub fn restore(&self, claim: Claim) -> Result<Restore, RecoveryError> {
        Restore::new(&self.environment, claim, &Arc::new(Progress::new(0)))
    }

    /// Claims a pair and begins to restore it.
    ///
    /// # Errors
    /// As [`Restore::claim`].
    pub fn claim(&self, pair: PairId, reason: ClaimReason) -> Result<Restore, RecoveryError> {
        let request = ClaimRequest { pair, incarnation: self.lease, node: NODE, reason };
        Restore::claim(&self.environment, &request, &Arc::new(Progress::new(0)))
    }

    /// Waits: time passes, the disk does an operation, the lease is renewed over a link without faults. False
    /// once the lease has ended.
    pub fn pause(&self, for_ns: u64) -> bool {
        self.link.sim().advance(for_ns.min(PAUSE_MAX_NS));
        self.disk.step();
        self.link.sim().link().keep_alive(self.lease).is_ok()
    }

    /// How it publishes: small segments and batches.
    #[must_use]
    pub fn publish_request(&self, durability: Durability) -> PublishRequest {
        PublishRequest {
            durability,
            place: serving_address(),
            log: LogOptions { segment_bytes: 1 << 20, batch_bytes: 64 << 10, ..LogOptions::default() },
            salt: self.lease.0.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Restores to the end and publishes; what was restored, and the device of its log.
    ///
    /// # Errors
    /// As [`complete`].
    pub fn publish(
        &self,
        restore: Restore,
        durability: Durability,
    ) -> Result<(Recovered, SimDevice), RecoveryError> {
        self.publish_as(restore, &self.publish_request(durability))
    }

    /// As [`Process::publish`], as the request says.
    ///
    /// # Errors
    /// As [`complete`].
    pub fn publish_as(
        &self,
        restore: Restore,
        request: &PublishRequest,
    ) -> Result<(Recovered, SimDevice), RecoveryError> {
        let (mut device, progress) = (self.disk.device_alone(), Arc::new(Progress::new(0)));
        let pause = &mut |ns| self.pause(ns);
        let recovered = complete(&self.environment, restore, request, &mut device, &progress, pause)?;
        device.share(); // with the worker's others, as the node's shell does it, not before
        Ok((recovered, device))
    }

    /// In whose name it changes a pair's row.
    #[must_use]
    pub fn ownership(&self, pair: PairId, epoch: Epoch) -> Ownership {
        Ownership { pair, epoch, incarnation: self.lease }
    }
}

/// Restores to the end and publishes nothing.
///
/// # Errors
/// As [`Restore::step`].
pub fn finish(mut restore: Restore) -> Result<Recovered, RecoveryError> {
    while restore.step()? == Step::More {}
    Ok(restore.finish().recovered)
}

/// Sends what is gathered and takes what the disk reports.
pub fn pump<O: MemoryObserver>(pair: &mut Pair<O>, device: &mut dyn LogDevice) {
    let mut events = Vec::new();
    device.poll(&mut events);
    for event in events {
        pair.log_event(event, device).unwrap();
    }
    pair.submit(device).unwrap();
    device.submit().unwrap();
}

/// Lets log and disk work until all that was appended is durable. `work` lets the disk do an operation and
/// says whether there was one.
pub fn settle<O: MemoryObserver>(
    pair: &mut Pair<O>,
    device: &mut dyn LogDevice,
    mut work: impl FnMut() -> bool,
) {
    loop {
        pump(pair, device);
        if !work() && pair.is_idle() {
            return;
        }
    }
}

/// Records an image in the region table and removes what no recovery needs any more; the log's segments are
/// its owner's to release.
pub fn record_image(
    table: &Table,
    storage: &dyn Storage,
    ownership: Ownership,
    base: Csn,
    (csn_max, file): (Csn, String),
) {
    let row = CheckpointRow { epoch: ownership.epoch, csn: base, csn_max, file };
    let row = table.record_checkpoint(ownership, &row).unwrap();
    remove_unneeded(storage, &row).unwrap();
}
