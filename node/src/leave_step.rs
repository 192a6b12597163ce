//! How far a pair is that leaves its worker: see `crate::worker`'s `leaving.rs`.

use cell_protocol::PairRegions;

/// How far a pair is that leaves.
#[derive(Clone, Debug)]
pub(crate) enum LeaveStep {
    /// What takes several turns comes to its end.
    Settling {
        /// Since when.
        since_ns: u64,
        /// How far its image was when it was seen to go on last, and when that was.
        copied: (u64, u64),
    },
    /// It is in no list any more; trust in the lists from before ends.
    Unlisted {
        /// When it has.
        until_ns: u64,
        /// What was listed.
        regions: Option<PairRegions>,
    },
    /// Nothing of it begins.
    Frozen {
        /// What was listed.
        regions: Option<PairRegions>,
        /// Whether it was reported to the control thread that nothing is in flight.
        reported: bool,
        /// Since when.
        since_ns: u64,
    },
}

impl LeaveStep {
    /// Whether only what it serves goes on, and no steps of splits.
    pub(crate) fn is_unlisted(&self) -> bool {
        !matches!(self, LeaveStep::Settling { .. })
    }
}
