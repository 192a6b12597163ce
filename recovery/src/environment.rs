//! What recoveries work with, and how.

use std::sync::Arc;

use cell_cluster::{Sessions, Table};
use cell_memory::{Budget, RegionOptions};
use cell_terms::mutant::{Mutant, planted};
use cell_wal::{ReadOptions, Storage, WalError};

/// Where regions come from.
#[derive(Clone, Copy, Debug)]
pub enum RegionSource {
    /// Sealed files, to be shared with other processes and registered.
    Shared(RegionOptions),
    /// Memory of this process alone: simulations and tools.
    Private,
    /// None: a simulated host that is full.
    Full,
}

/// How pairs are recovered.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryOptions {
    /// Threads for one pair. One: everything on the caller's thread, in an order that only depends on the
    /// input.
    pub threads: usize,
    /// Bytes of one read.
    pub read_bytes: usize,
    /// Where regions come from.
    pub regions: RegionSource,
    /// Whether tree nodes carry their own CRC-64: for fabrics whose reads are not in address order.
    pub node_crc: bool,
}

impl Default for RecoveryOptions {
    fn default() -> RecoveryOptions {
        RecoveryOptions {
            threads: 2,
            read_bytes: ReadOptions::default().chunk_bytes,
            regions: RegionSource::Shared(RegionOptions::default()),
            node_crc: false,
        }
    }
}

/// What recoveries work with.
#[derive(Clone)]
pub struct Environment {
    /// The log root.
    pub storage: Arc<dyn Storage>,
    /// The region table.
    pub table: Table,
    /// The sessions.
    pub sessions: Sessions,
    /// What the process may hold: a pair that does not fit is not taken.
    pub budget: Budget,
    /// How.
    pub options: RecoveryOptions,
}

impl Environment {
    /// Looks whether the log root is there: [`Storage::check_root`].
    pub(crate) fn check_root(&self) -> Result<(), WalError> {
        if planted(Mutant::TakeoverRootUnasked) {
            return Ok(());
        }
        Ok(self.storage.check_root()?)
    }
}
