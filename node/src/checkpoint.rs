//! Where a pair's checkpoint is, and when the last one was; see `crate::worker`'s `checkpointing.rs` for the
//! order of its steps.

use cell_pair::CheckpointFailure;
use cell_terms::Csn;

/// A checkpoint that failed is tried again after so long, and none before.
const RETRY_NS: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointStep {
    Idle,
    Writing { base: Csn },
    AwaitingDurable { base: Csn, csn_max: Csn },
    Recording { base: Csn },
}

/// Where the current checkpoint is, and when the last one was.
#[derive(Debug)]
pub(crate) struct Checkpointing {
    pub(crate) step: CheckpointStep,
    pub(crate) last_base: Csn,
    pub(crate) last_ns: u64,
    pub(crate) retry_at_ns: u64,
    pub(crate) wanted_at_stop: bool,
    pub(crate) log_bytes_at_last: u64,
    /// Images that were started.
    pub(crate) attempts: u32,
    pub(crate) release: Option<Csn>,
    /// Those that came to nothing.
    pub(crate) failures: u64,
    /// Of the last one that ended: how many have failed since the last good one, and why this one did; none
    /// if it is recorded.
    pub(crate) failure: Option<(u64, CheckpointFailure)>,
    /// Earlier owners since the last checkpoint, whose logs are kept.
    pub(crate) recoveries: u32,
}

impl Checkpointing {
    pub(crate) fn new(now_ns: u64) -> Checkpointing {
        Checkpointing {
            step: CheckpointStep::Idle,
            last_base: Csn::ZERO,
            last_ns: now_ns,
            retry_at_ns: 0,
            wanted_at_stop: false,
            log_bytes_at_last: 0,
            attempts: 0,
            release: None,
            failures: 0,
            failure: None,
            recoveries: 0,
        }
    }

    pub(crate) fn begin_serving(&mut self, checkpointed: Csn, recoveries: u32, now_ns: u64) {
        self.last_base = checkpointed;
        self.recoveries = recoveries;
        self.last_ns = now_ns;
    }

    pub(crate) fn stop(&mut self, checkpoint: bool) {
        self.wanted_at_stop = checkpoint;
        self.retry_at_ns = 0;
    }

    /// The base below which log is to be released, once.
    pub(crate) fn take_release(&mut self) -> Option<Csn> {
        self.release.take()
    }

    pub(crate) fn last_base(&self) -> Csn {
        self.last_base
    }

    pub(crate) fn is_running(&self) -> bool {
        self.step != CheckpointStep::Idle
    }

    /// There is no checkpoint.
    pub(crate) fn failed(&mut self, why: CheckpointFailure, now_ns: u64) {
        self.failures += 1;
        self.failure = Some((1 + self.failure.map_or(0, |(in_a_row, _)| in_a_row), why));
        self.step = CheckpointStep::Idle;
        self.retry_at_ns = now_ns + RETRY_NS;
        // The log has everything; a stop does not wait for a better disk.
        self.wanted_at_stop = false;
    }
}
