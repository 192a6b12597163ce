//! Damage of a log: what is wrong, where, and how it is known that no crash tore it.

use std::fmt;

use cell_terms::Csn;

use crate::frame::FrameFault;
use crate::segment::LogPlace;

/// Damage at or below what was acknowledged. `cell inspect log` shows the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The first CSN that cannot be read.
    pub csn: Csn,
    /// Where its frame is, or should be.
    pub place: LogPlace,
    /// What is wrong there.
    pub damage: Damage,
    /// How it is known that this is no tear.
    pub proof: Proof,
}

/// What is wrong with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// No sound frame.
    #[error("{0}")]
    Frame(FrameFault),
    /// A sound frame whose records do not parse or are not the batch's.
    #[error("its records do not make up the batch that the frame names")]
    Records,
    /// A sound frame, but of another batch than the one that must be here.
    #[error("a frame of another batch stands here")]
    Order,
    /// A batch that begins below the recorded cut and ends above it.
    #[error("the recorded cut lies within a batch")]
    CutInBatch,
}

/// How it is known that damage is no tear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Proof {
    /// A frame carries a durable watermark at or above the missing CSN.
    #[error("a frame says that everything up to {0} was durable")]
    Watermark(Csn),
    /// A sound later header of the same log.
    #[error("a later frame stands in {0}")]
    LaterFrame(LogPlace),
    /// The recorded cut.
    #[error("the recorded cut is {0}")]
    Cut(Csn),
    /// The caller requires it.
    #[error("the checkpoint needs everything up to {0}")]
    Required(Csn),
    /// A published log has a first frame, and its files their full length.
    #[error("this was durable before the epoch was published")]
    Published,
    /// Sound checks over contradicting content.
    #[error("its checks are sound")]
    Sound,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corruption { csn, place, damage, proof } = self;
        write!(f, "the log is damaged: {place}: {damage}; {csn} is lost, and {proof}")
    }
}

impl std::error::Error for Corruption {}
