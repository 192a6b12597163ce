//! Why a node does not start or does not go on.

use cell_cluster::{ClusterError, TermsDifference};
use cell_fabric::FabricError;
use cell_memory::MemoryError;
use cell_terms::NodeId;
use cell_wal::WalError;

/// Why a node does not start or does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The coordinator, the table, a lock or a lease.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The log root is not the cluster's, and there is nothing in it: the cluster's may be mounted there yet.
    #[error("this node does not fit the cluster: {difference}; nothing is stored here")]
    LogRootBare {
        /// The ids.
        difference: TermsDifference,
    },
    /// The log root has the cluster's id, and a node that lives writes to another one.
    #[error(
        "node {} does not see in its log root what this node has just made, {file}: this log root is another \
         folder, a copy or a snapshot of the cluster's, and lacks what was acknowledged since; mount the \
         cluster's log root there",
        by.0
    )]
    LogRootUnseen {
        /// The node that lives.
        by: NodeId,
        /// What was made.
        file: String,
    },
    /// Nobody has answered yet: what a node that joins waits for.
    #[error("no living node has said yet whether it sees this node's log root")]
    LogRootUnanswered,
    /// The address cannot be listened on.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The regions cannot be made: too little memory, or settings that contradict one another.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The logs' disk or ring.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// Recovery refused the pair; it says what is missing and where.
    #[error("the pair is not served")]
    Recovery(#[from] cell_recovery::RecoveryError),
    /// The system has no thread to give.
    #[error("no thread can be started")]
    Thread(#[source] std::io::Error),
    /// The node cannot begin with the memory that it may take.
    #[error("`memory_limit_bytes` is {limit}, and what is asked for needs {smallest} at least")]
    MemoryLimitSmall {
        /// The setting, or what the machine or the control group has.
        limit: u64,
        /// The least limit that works with the other settings.
        smallest: u64,
    },
    /// One more pair would take more memory than the node may.
    #[error("one more pair takes {wanted} bytes in all, and `memory_limit_bytes` is {limit}")]
    MemoryLimit {
        /// Bytes of all that the node holds, with the pair.
        wanted: u64,
        /// The limit in force.
        limit: u64,
    },
    /// A pair that moved here would be served by nobody until somebody makes room.
    #[error("the disk has no room for the logs that the pair would have here: {free} bytes of {needed}")]
    DiskFull {
        /// Bytes that are free.
        free: u64,
        /// What the first segments take.
        needed: u64,
    },
    /// Pairs that the node had are still to be recovered; memory is theirs first.
    #[error("pairs that this node had are still to be recovered; memory is theirs first")]
    GrowthHeld,
    /// The regions have fewer slots than the pairs are to begin with.
    #[error(
        "a pair begins with {wanted} meganodes, and its region has {slots} slots; give larger node_region_bytes \
         or fewer initial_ranges"
    )]
    Layout {
        /// Slots of a region.
        slots: u64,
        /// Slots that are needed.
        wanted: u32,
    },
    /// A setting that was fixed when the pair was created has another value now.
    #[error(
        "`{setting}` is {wanted}, but the pair was created with {found}; remove the setting or start a new folder"
    )]
    Geometry {
        /// The setting.
        setting: &'static str,
        /// What is asked for.
        wanted: u64,
        /// What the pair has.
        found: u64,
    },
}
