//! Numbers that order things: commit sequence numbers, epochs, versions and watermarks.

use std::fmt;

use crate::PairId;

/// Commit sequence number: one sequence a pair, one number a log record, dense, from 1. Zero is "before any".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Csn(pub u64);

impl Csn {
    /// Before the first record of a pair.
    pub const ZERO: Csn = Csn(0);

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Csn {
        Csn(self.0 + 1)
    }
}

impl fmt::Display for Csn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "csn {}", self.0)
    }
}

/// Counts the owners of a pair; it only grows. The first owner's epoch is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

/// An entry's version: where and when it was written. It is kept when the entry moves to another pair;
/// conditional writes compare versions. Past a cut the next owner uses the same CSNs again, so the epoch is
/// part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The pair that the write went to.
    pub pair: PairId,
    /// The pair's epoch at the write.
    pub epoch: Epoch,
    /// The CSN of the write's extent record.
    pub csn: Csn,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.pair.0, self.epoch.0, self.csn.0)
    }
}

/// How far a pair's writes may be seen. It vouches only for bytes read under the same epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// The epoch of the owner that raised it.
    pub epoch: Epoch,
    /// Everything at or below is covered.
    pub csn: Csn,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After its batch is on stable storage in both logs. Nothing acknowledged is lost.
    #[default]
    Sync,
    /// After memory is changed; the log follows. A crash loses what was acknowledged after the durable
    /// watermark.
    Async,
    /// No log is written. A crash loses everything written by this incarnation.
    None,
}
