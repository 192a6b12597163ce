//! What nodes report to the world, and which of it an injected fault explains.

use cell_cluster::{ClusterError, Ownership};
use cell_node::FailureKind;
use cell_recovery::{Recovered, RecoveryError};
use cell_terms::PairId;
use cell_wal::sim::SimDevice;
use cell_wal::{Errno, WalError};

/// What a node's step reports to the world.
pub enum News {
    /// A pair was taken over, or created. The world looks at it and says whether all is well before it is
    /// served.
    Recovered {
        /// The pair.
        recovered: Box<Recovered>,
        /// Its log's device.
        device: SimDevice,
        /// It was created because the worker asked for one more.
        wanted: bool,
        /// It was handed over by a node that goes on.
        moved: bool,
        /// It has come back with the memory that it had here.
        kept: bool,
    },
    /// A takeover begins.
    Claiming,
    /// A takeover failed; the process goes on.
    Refused {
        /// The pair.
        pair: PairId,
        /// Why.
        error: RecoveryError,
        /// It is reported: an operator has to inspect it.
        stays: bool,
    },
    /// Pairs that nobody alive has memory for.
    Unplaced(u64),
    /// A pair has left a node that goes on: nobody trusts what its registrations show.
    Left(Ownership),
    /// A pair is frozen for a move: nobody trusts what its registrations show.
    Frozen(Ownership),
    /// It is served on.
    Thawed(Ownership),
    /// A pair was to leave, and did not.
    Stays,
    /// A worker's lease had run out, and holds again.
    ServedOn,
    /// A checkpoint is recorded in the table.
    Checkpointed,
    /// A checkpoint failed.
    CheckpointFailed,
    /// A check of the whole pair found this.
    Violations(String),
    /// The coordinator has recorded a session's end.
    SessionEnded,
    /// The process ends by itself.
    Exit(Exit),
    /// A rule was broken.
    Broken(String),
}

/// Why a process ended by itself.
#[derive(Debug)]
pub enum Exit {
    /// As the operator wished.
    Stopped,
    /// The worker gave its pair up.
    Failed(FailureKind),
    /// The lease ended before the pair was served.
    LeaseEnded,
    /// The recovery refused.
    Refused(RecoveryError),
}

/// Whether an injected fault explains that a takeover was refused. A pair whose data is damaged or gone is
/// never explained so: no fault of the run damages what was acknowledged.
#[must_use]
pub fn is_excused(error: &RecoveryError) -> bool {
    match error {
        RecoveryError::Cluster(error) => !matches!(
            error,
            ClusterError::TableOlder { .. }
                | ClusterError::LogWithoutRow { .. }
                | ClusterError::CutRecorded { .. }
                | ClusterError::CutMissing { .. }
                | ClusterError::PairUnknown { .. }
        ),
        RecoveryError::Log(WalError::Storage(error)) => {
            error.errno == Errno::EIO || error.errno == Errno::ENOSPC
        }
        RecoveryError::Log(error) => {
            matches!(error, WalError::Poisoned { .. } | WalError::RingUnavailable { .. })
        }
        RecoveryError::GivenUp | RecoveryError::Memory { .. } => true,
        _ => false,
    }
}
