//! How a drill goes, for whoever runs it.

use crate::fault::FaultKind;
use crate::lane::LanePoint;
use crate::rolling::RollingStage;
use crate::timeline::Moment;

/// What a drill reports while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The node owns no pair: its loss will show nothing.
    OwnsNothing {
        /// Which node.
        node: u16,
    },
    /// The fault begins.
    Injecting {
        /// What kind.
        fault: FaultKind,
        /// To which node.
        node: u16,
    },
    /// How far a rolling restart is.
    Rolling {
        /// With which node.
        node: u16,
        /// How far that is.
        stage: RollingStage,
    },
    /// What has happened by now, in order; each is reported anew when one more has, or when it is known
    /// better.
    Moments(Vec<Moment>),
    /// How the clients fared in one more step.
    Lane(LanePoint),
    /// The fault is over, or was taken back; what it did is mended.
    Healing,
    /// The load has ended; every acknowledged key is read back.
    ReadingBack,
    /// The fault could not be taken back, and why.
    NotHealed(String),
    /// The drill has ended, and its entries stay in the store.
    EntriesLeft {
        /// The drill's number, as in their keys.
        run: u64,
        /// Why they could not be removed; none if they are to stay.
        why: Option<String>,
    },
}
