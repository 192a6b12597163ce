//! When a checkpoint is taken, and the order of its steps:
//!
//! 1. note the durable watermark B and copy the completion table; the copier reads the pair as any reader
//!    does;
//! 2. the image is written and synced: its highest CSN is M, at or above B;
//! 3. wait until the durable watermark has passed M, or the image would hold what a crash takes back;
//! 4. record it in the region table, conditional on the epoch;
//! 5. release log segments wholly at or below B.
//!
//! Completions travel in the image, copied at step 1 together with B, in place of being logged again above B:
//! what
//! the copy lacks is above B and replayed, what it has is only what the log had. It costs no log bytes.

use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};

use super::{Command, Phase, Worker};

/// A step that the shell carries out.
#[derive(Debug)]
pub enum CheckpointCommand {
    /// Copy the pair into an image.
    WriteImage {
        /// The durable watermark at the start.
        base: Csn,
        /// The completion table's bytes.
        completions: Vec<u8>,
    },
    /// Record the image in the region table.
    Record {
        /// What `WriteImage` was given.
        base: Csn,
        /// The highest CSN in the image.
        csn_max: Csn,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Writing { base: Csn },
    AwaitingDurable { base: Csn, csn_max: Csn },
    Recording { base: Csn },
}

/// Where the current checkpoint is, and when the last one was.
#[derive(Debug)]
pub(super) struct Checkpointing {
    step: Step,
    last_base: Csn,
    last_ns: u64,
    retry_at_ns: u64,
    wanted_at_stop: bool,
    log_bytes_at_last: u64,
    release: Option<Csn>,
}

/// After a checkpoint that failed, the next one waits so long.
const RETRY_NS: u64 = 10_000_000_000;

impl Checkpointing {
    pub(super) fn new(now_ns: u64) -> Checkpointing {
        Checkpointing {
            step: Step::Idle,
            last_base: Csn::ZERO,
            last_ns: now_ns,
            retry_at_ns: 0,
            wanted_at_stop: false,
            log_bytes_at_last: 0,
            release: None,
        }
    }

    pub(super) fn begin_serving(&mut self, checkpointed: Csn, now_ns: u64) {
        self.last_base = checkpointed;
        self.last_ns = now_ns;
    }

    pub(super) fn stop(&mut self, checkpoint: bool) {
        self.wanted_at_stop = checkpoint;
        self.retry_at_ns = 0;
    }

    /// The base below which log is to be released, once.
    pub(super) fn take_release(&mut self) -> Option<Csn> {
        self.release.take()
    }

    pub(super) fn last_base(&self) -> Csn {
        self.last_base
    }

    pub(super) fn is_running(&self) -> bool {
        self.step != Step::Idle
    }
}

impl Worker {
    /// Whether the worker has done all that a stop asked for.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.phase == Phase::Stopping
            && self.is_idle()
            && !self.checkpointing.wanted_at_stop
            && !self.checkpointing.is_running()
    }

    pub(super) fn checkpoint_tick(&mut self) {
        if self.checkpointing.is_running() || self.now_ns < self.checkpointing.retry_at_ns {
            return;
        }
        let Some(store) = &self.store else { return };
        if !store.has_log() || store.durable() <= self.checkpointing.last_base {
            self.checkpointing.wanted_at_stop = false; // nothing to be kept that is not kept
            return;
        }
        let due = match self.phase {
            Phase::Serving => self.checkpoint_is_due(),
            Phase::Stopping => self.checkpointing.wanted_at_stop && self.is_idle(),
            Phase::Recovering | Phase::Failed(_) => false,
        };
        if due {
            self.start_checkpoint();
        }
    }

    fn checkpoint_is_due(&self) -> bool {
        let Some(store) = &self.store else { return false };
        let aged = self.now_ns.saturating_sub(self.checkpointing.last_ns) >= self.options.checkpoint_age_ns;
        let log_bytes = self.log_bytes_since_checkpoint();
        #[allow(clippy::cast_precision_loss, reason = "a ratio of sizes")]
        let ratio_reached = log_bytes as f64 >= self.options.checkpoint_log_ratio * store.live_bytes() as f64;
        aged || (ratio_reached && log_bytes >= self.options.checkpoint_log_bytes_min)
    }

    pub(super) fn log_bytes_since_checkpoint(&self) -> u64 {
        let recovered = self.store.as_ref().map_or(0, |store| store.log_bytes_recovered());
        (recovered + self.counters.log_bytes).saturating_sub(self.checkpointing.log_bytes_at_last)
    }

    fn start_checkpoint(&mut self) {
        let Some(store) = &mut self.store else { return };
        let base = store.durable();
        let mut completions = Vec::new();
        if !planted(Mutant::CompletionsDropped) {
            store.completions().encode(&mut completions);
        }
        store.begin_checkpoint();
        self.checkpointing.step = Step::Writing { base };
        self.checkpointing.log_bytes_at_last += self.log_bytes_since_checkpoint();
        self.commands.push(Command::Checkpoint(CheckpointCommand::WriteImage { base, completions }));
    }

    pub(super) fn image_written(&mut self, csn_max: Option<Csn>) {
        let Step::Writing { base } = self.checkpointing.step else { return };
        if let Some(store) = &mut self.store {
            store.end_checkpoint();
        }
        match csn_max {
            Some(csn_max) => {
                self.checkpointing.step = Step::AwaitingDurable { base, csn_max };
                self.checkpoint_durable();
            }
            None => self.checkpoint_failed(),
        }
    }

    /// Goes on when the durable watermark has passed what the image holds.
    pub(super) fn checkpoint_durable(&mut self) {
        let Step::AwaitingDurable { base, csn_max } = self.checkpointing.step else { return };
        let Some(store) = &self.store else { return };
        if store.durable() >= csn_max || planted(Mutant::CheckpointEarly) {
            self.checkpointing.step = Step::Recording { base };
            self.commands.push(Command::Checkpoint(CheckpointCommand::Record { base, csn_max }));
        }
    }

    pub(super) fn checkpoint_recorded(&mut self, recorded: bool) {
        let Step::Recording { base } = self.checkpointing.step else { return };
        if !recorded {
            return self.checkpoint_failed();
        }
        self.checkpointing.step = Step::Idle;
        self.checkpointing.last_base = base;
        self.checkpointing.last_ns = self.now_ns;
        self.checkpointing.wanted_at_stop = false;
        self.checkpointing.release = Some(base);
        self.counters.checkpoints += 1;
    }

    fn checkpoint_failed(&mut self) {
        self.checkpointing.step = Step::Idle;
        self.checkpointing.retry_at_ns = self.now_ns + RETRY_NS;
        // The log has everything; a stop does not wait for a better disk.
        self.checkpointing.wanted_at_stop = false;
    }
}
