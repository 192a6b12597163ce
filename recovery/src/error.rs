//! What keeps a pair from being recovered.

use cell_cluster::{ClusterError, Missing};
use cell_memory::{MemoryError, ReserveError};
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, RegionId, RegionKind, SlotIndex};
use cell_tree::{GeometryError, NodeIndex, ReplayError, StructureViolation};
use cell_wal::{Errno, Predecessor, WalError};

use crate::fields::RecordError;
use crate::split::SplitTableError;

/// A recovery that stopped. Nothing of it is served; [`RecoveryError::missing`] says what is reported of the
/// pair.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// The coordinator, or what the table says.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The logs or the image, as the disk has them.
    #[error(transparent)]
    Log(#[from] WalError),
    /// The regions could not be made.
    #[error("no memory of {bytes} bytes for the pair")]
    Memory {
        /// Both regions together.
        bytes: u64,
        /// Why.
        #[source]
        source: MemoryError,
    },
    /// The slots are too small for what the layout says that the pair begins with.
    #[error("the pair's first content does not fit its slots")]
    First(#[from] cell_tree::BulkError),
    /// The table's sizes are not those of a tree.
    #[error("the table's geometry is wrong")]
    Geometry(#[from] GeometryError),
    /// A record whose frame is sound cannot be read: another format, or a defect of the writer.
    #[error("the record of {csn} in the {kind} log cannot be read")]
    Record {
        /// Which log.
        kind: RegionKind,
        /// Which record.
        csn: Csn,
        /// Why.
        #[source]
        source: RecordError,
    },
    /// A tree change that the tree does not take.
    #[error("the tree change of {csn} cannot be replayed")]
    Replay {
        /// Which record.
        csn: Csn,
        /// Why.
        #[source]
        source: ReplayError,
    },
    /// A record names a slot that the region does not have.
    #[error("the record of {csn} names {slot}, which the region does not have")]
    Slot {
        /// Which record.
        csn: Csn,
        /// The slot.
        slot: SlotIndex,
    },
    /// A record of a split does not follow from those before it.
    #[error("the split record of {csn} does not follow from those before it")]
    Split {
        /// Which record.
        csn: Csn,
        /// Why not.
        #[source]
        source: SplitTableError,
    },
    /// An adopted meganode is not what its record says.
    #[error(
        "{slot} was adopted with {nodes_expected} tree nodes and {entries_expected} entries and has {nodes} and {entries}"
    )]
    Adoption {
        /// The slot.
        slot: SlotIndex,
        /// As logged.
        nodes_expected: u64,
        /// As logged.
        entries_expected: u64,
        /// As restored.
        nodes: u64,
        /// As restored.
        entries: u64,
    },
    /// Changes were logged for a tree node that neither the image has nor a later record fills or frees.
    #[error("{node} of {slot} was changed but is neither in the checkpoint nor filled or freed later")]
    NodeMissing {
        /// The slot.
        slot: SlotIndex,
        /// The tree node.
        node: NodeIndex,
    },
    /// An extent record, or one of an image, that is no extent or lies outside of the region.
    #[error("what is stored for {offset} is no extent of the region")]
    Extent {
        /// The place.
        offset: ExtentOffset,
        /// Its length.
        bytes: usize,
    },
    /// The image is sound but not what the table names, or its blocks do not hold what they say.
    #[error("checkpoint `{path}` is not the one that the table names: {why}")]
    Content {
        /// The file, below the log root.
        path: Box<str>,
        /// What is wrong.
        why: ContentFault,
    },
    /// The logs of an epoch follow other ones than the table says.
    #[error("the logs of {pair}, {epoch} follow {found:?} and not {expected:?}")]
    Predecessor {
        /// The pair.
        pair: PairId,
        /// Whose logs.
        epoch: Epoch,
        /// What their frames say.
        found: Predecessor,
        /// What the table says.
        expected: Predecessor,
    },
    /// What was restored breaks a rule of the tree.
    #[error("the restored tree breaks a rule")]
    Tree {
        /// The node region.
        region: RegionId,
        /// The rule.
        #[source]
        source: StructureViolation,
    },
    /// A leaf's extent is not the one that the leaf means.
    #[error("the extent at {offset} is not the one that its leaf, {node}, means")]
    ExtentMismatch {
        /// The extent region.
        region: RegionId,
        /// The extent.
        offset: ExtentOffset,
        /// The leaf.
        node: NodeIndex,
    },
    /// An entry of a router leads to no meganode.
    #[error("{node} of the router in {slot} leads to no meganode")]
    Router {
        /// The router's slot.
        slot: SlotIndex,
        /// The leaf.
        node: NodeIndex,
    },
    /// Two leaves claim the same space, or space where no extent can be.
    #[error("the restored extents contradict one another")]
    Reserve {
        /// The extent region.
        region: RegionId,
        /// How.
        #[source]
        source: ReserveError,
    },
    /// A copy for a planned move is of no use.
    #[error(transparent)]
    Copy(#[from] CopyFault),
    /// Whoever asked for it wants it no more.
    #[error("given up")]
    GivenUp,
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// A thread of the recovery panicked: a defect, which the panic's message describes.
    #[error("a thread of the recovery panicked")]
    Panicked,
}

/// Why a copy of a pair does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyFault {
    /// The pair's row does not go from the epoch that the copy follows to the next one by the handing to it.
    #[error("the pair is at {epoch}, which is not the handing that its copy waits for")]
    Foreign {
        /// The pair's epoch.
        epoch: Epoch,
    },
    /// It has what the recorded cut takes back.
    #[error("the copy has {copied}, past the recorded cut {cut}")]
    PastCut {
        /// The cut.
        cut: Csn,
        /// The copy's last CSN.
        copied: Csn,
    },
    /// The log does not show what its owner had made durable.
    #[error("the log ends at {copied} here, before the recorded cut {cut}")]
    Behind {
        /// The cut.
        cut: Csn,
        /// The copy's last CSN.
        copied: Csn,
    },
}

/// What is wrong with the content of a sound image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContentFault {
    /// Its header names another pair, epoch or base, or its highest CSN is another one.
    #[error("its header names another checkpoint")]
    Header,
    /// Its geometry is not the pair's, or of another version.
    #[error("its geometry is not the pair's")]
    Geometry,
    /// A block's items do not parse.
    #[error("block {0} does not parse")]
    Block(u32),
    /// A section that this version does not know.
    #[error("block {0} is of an unknown section")]
    Section(u32),
    /// Something in it is newer than its highest CSN.
    #[error("it holds {0}, above its highest CSN")]
    Newer(Csn),
    /// Its completion table does not parse.
    #[error("its completion table does not parse")]
    Completions,
    /// What it says of splits does not parse, or is of another pair.
    #[error("what it says of splits does not parse")]
    Splits,
}

impl RecoveryError {
    /// What the region table says of a pair whose recovery ended so; none if the pair's data is not to blame.
    #[must_use]
    pub fn missing(&self, pair: PairId) -> Option<Missing> {
        match self {
            RecoveryError::Log(error) => missing_log(error),
            RecoveryError::Memory { bytes, .. } => Some(Missing::Memory { bytes: *bytes }),
            RecoveryError::Content { path, .. } => Some(Missing::Checkpoint { file: path.to_string() }),
            RecoveryError::Record { kind, csn, .. } => {
                Some(Missing::Record { region: pair.region(*kind), csn: *csn })
            }
            RecoveryError::Replay { csn, .. }
            | RecoveryError::Slot { csn, .. }
            | RecoveryError::Split { csn, .. } => {
                Some(Missing::Record { region: pair.node_region(), csn: *csn })
            }
            RecoveryError::NodeMissing { .. }
            | RecoveryError::Tree { .. }
            | RecoveryError::Adoption { .. }
            | RecoveryError::Router { .. } => Some(Missing::Verification { region: pair.node_region() }),
            RecoveryError::Extent { .. }
            | RecoveryError::ExtentMismatch { .. }
            | RecoveryError::Reserve { .. } => Some(Missing::Verification { region: pair.extent_region() }),
            RecoveryError::Predecessor { epoch, .. } => {
                Some(Missing::Log { region: pair.node_region(), epoch: *epoch })
            }
            RecoveryError::Cluster(_)
            | RecoveryError::Geometry(_)
            | RecoveryError::First(_)
            | RecoveryError::Copy(_)
            | RecoveryError::GivenUp
            | RecoveryError::Thread(_)
            | RecoveryError::Panicked => None,
        }
    }

    /// Whether another survivor may do better, or this one later: it lacks memory, or the disk does not
    /// answer it. Nobody believes a sync after one that failed: see `PairReader::rewrite_and_sync`.
    #[must_use]
    pub fn is_of_this_survivor(&self) -> bool {
        match self {
            RecoveryError::Memory { .. } => true,
            RecoveryError::Log(WalError::Storage(error)) => error.errno != Errno::ENOENT,
            _ => false,
        }
    }

    /// Whether trying the same step again may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, RecoveryError::Cluster(error) if error.is_transient())
    }
}

fn missing_log(error: &WalError) -> Option<Missing> {
    match error {
        WalError::FolderMissing { region, epoch } => Some(Missing::Log { region: *region, epoch: *epoch }),
        WalError::SegmentMissing { segment } => {
            Some(Missing::Log { region: segment.log.region, epoch: segment.log.epoch })
        }
        WalError::Corrupt(corruption) => {
            let place = corruption.place;
            Some(Missing::Corruption { file: place.segment.path(), offset: place.offset })
        }
        WalError::LogVersion { segment, offset, .. } => {
            Some(Missing::Corruption { file: segment.path(), offset: *offset })
        }
        WalError::Image { path, .. } => Some(Missing::Checkpoint { file: path.to_string() }),
        WalError::Mismatch { pair, epoch } => {
            Some(Missing::Log { region: pair.node_region(), epoch: *epoch })
        }
        WalError::Storage(error) if error.errno == Errno::ENOENT => {
            Some(Missing::Checkpoint { file: error.path.to_string() })
        }
        WalError::Storage(error) => {
            Some(Missing::Unreadable { file: error.path.to_string(), errno: error.errno.0 })
        }
        _ => None,
    }
}
