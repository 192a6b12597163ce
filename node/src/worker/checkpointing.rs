//! When a checkpoint is taken, and the order of its steps:
//!
//! 1. note the durable watermark B, and copy the completion table and the table of splits; the copier reads
//!    the pair as any reader does;
//! 2. the image is written and synced: its highest CSN is M, at or above B;
//! 3. wait until the durable watermark has passed M, or the image would hold what a crash takes back;
//! 4. record it in the region table, conditional on the epoch;
//! 5. release log segments wholly at or below B.
//!
//! Completions travel in the image, copied at step 1 together with B, in place of being logged again above B:
//! what the copy lacks is above B and replayed, what it has is only what the log had. It costs no log bytes.

//!
//! When. Usually by the log's bytes and by age; and after some recoveries without one, also if nothing was
//! written: each owner's logs, and its place in the pair's row, stay until a later owner has taken one, so
//! that a restart now and then would fill disk and row. **Early when the disk runs short**, whatever the
//! settings say, because a log without room makes the pair read-only, and because the image needs room
//! itself:
//!
//! - While what the disk has left is less than the image may take and a segment for each log, as soon as
//!   there is enough log to be given back.
//! - When a segment could not be prepared, as soon as a filled one can be given back; and when a write finds
//!   no room, because then what a checkpoint covers of the current segment can be given back too. Such writes
//!   wait for the checkpoint. If that fails, they are refused until the next one is tried.

use cell_pair::CheckpointFailure;
use cell_recovery::CompletionTable;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, PairId};

use super::{Worker, WorkerPhase};
use crate::checkpoint::CheckpointStep;
use crate::command::{CheckpointCommand, Command};
use crate::outbox::PairAt;
use crate::pairs::OwnedPair;
use crate::settings::WorkerOptions;

/// A checkpoint of a pair on a short disk gives back at least this part of what its image may take.
const IMAGE_PART: u64 = 4;
/// After so many recoveries without a checkpoint one is taken, however little was written.
const RECOVERIES_MAX: u32 = 8;
/// Pairs of a node that are always restarted together write their images at so many different starts.
const RECOVERIES_SPREAD: u32 = 8;

impl Worker {
    /// Whether the worker has done all that a stop asked for.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let done = |at: PairAt| {
            let checkpointing = &self.pairs.get(at).checkpointing;
            !checkpointing.wanted_at_stop && !checkpointing.is_running()
        };
        self.phase == WorkerPhase::Stopping && self.is_idle() && self.pairs.all().all(done)
    }

    pub(super) fn checkpoint_tick(&mut self, at: PairAt) {
        let idle = self.is_idle();
        // An adoption logs entries before the leaf that leads to them. Were the base between the two, the
        // image would lack such an entry and the log below the base would go.
        let adopts = self.splits.is_building(at) && !planted(Mutant::ImageAmidAdoption);
        let stopping = self.phase == WorkerPhase::Stopping;
        self.announce_reclaim(at);
        let disk_free = self.health.disk_free;
        let owned = self.pairs.get_mut(at);
        owned.note_disk(disk_free);
        if owned.leaving.is_some() && !stopping && !owned.checkpointing.is_running() {
            return; // whoever has it next takes one
        }
        if adopts && stopping {
            owned.checkpointing.wanted_at_stop = false; // splits do not go on; the log has everything
        }
        // What the last one covers is to be given back first: that may be room enough.
        let releases = owned.checkpointing.release.is_some() && !owned.keeps_log();
        let wait = adopts || owned.checkpointing.is_running() || releases;
        if wait || self.now_ns < owned.checkpointing.retry_at_ns {
            return;
        }
        let has_news = owned.pair.durable() > owned.checkpointing.last_base;
        let has_dead = self.phase == WorkerPhase::Serving && owned.has_many_recoveries();
        if !owned.pair.has_log() || !has_news && !has_dead {
            owned.checkpointing.wanted_at_stop = false; // nothing to be kept that is not kept
            return;
        }
        let due = match self.phase {
            WorkerPhase::Serving => {
                let is_due = owned.checkpoint_is_due(&self.options, self.now_ns);
                // One that failed is owed, whatever was the reason for it.
                let failed = owned.checkpointing.failure.is_some();
                is_due || has_dead || failed || owned.checkpoint_makes_room(disk_free)
            }
            WorkerPhase::Stopping => owned.checkpointing.wanted_at_stop && idle,
            WorkerPhase::Recovering | WorkerPhase::Failed(_) => false,
        };
        if due {
            self.commands.push(owned.start_checkpoint());
        }
    }

    /// Informs a pair whether a checkpoint will make room for its log, if that should lack room before the
    /// next tick: writes wait for it then. When none will, those that have waited are refused.
    fn announce_reclaim(&mut self, at: PairAt) {
        let (now_ns, serving) = (self.now_ns, self.phase == WorkerPhase::Serving);
        let owned = self.pairs.get_mut(at);
        let checkpointing = &owned.checkpointing;
        // Also while the last one covers all that is durable: one write, appended after that, can take what
        // it made room for in one log, and leave the other one full. The next checkpoint begins once that
        // write is durable.
        let may_begin = now_ns >= checkpointing.retry_at_ns;
        // What the last one covers is given back after this tick.
        let releases = checkpointing.release.is_some() && !owned.keeps_log();
        let runs = checkpointing.is_running() || releases;
        let expected = serving && (runs || may_begin) && owned.pair.can_be_reclaimed();
        if owned.pair.set_reclaim_expected(expected) && !expected {
            self.drain_backlog(at);
        }
    }

    pub(super) fn image_written(&mut self, pair: PairId, written: Result<Csn, CheckpointFailure>) {
        let Some(at) = self.pairs.at(pair) else { return };
        let owned = self.pairs.get_mut(at);
        let CheckpointStep::Writing { base } = owned.checkpointing.step else { return };
        match written {
            Ok(csn_max) => {
                owned.checkpointing.step = CheckpointStep::AwaitingDurable { base, csn_max };
                self.checkpoint_durable(at);
            }
            Err(why) => owned.checkpointing.failed(why, self.now_ns),
        }
    }

    /// Goes on when the durable watermark has passed what the image holds.
    pub(super) fn checkpoint_durable(&mut self, at: PairAt) {
        let owned = self.pairs.get_mut(at);
        let CheckpointStep::AwaitingDurable { base, csn_max } = owned.checkpointing.step else { return };
        if owned.pair.durable() >= csn_max || planted(Mutant::CheckpointEarly) {
            owned.checkpointing.step = CheckpointStep::Recording { base };
            let record = CheckpointCommand::Record { base, csn_max };
            self.commands.push(Command::Checkpoint(owned.pair.id(), record));
        }
    }

    pub(super) fn checkpoint_recorded(&mut self, pair: PairId, recorded: bool) {
        let Some(at) = self.pairs.at(pair) else { return };
        let now_ns = self.now_ns;
        let owned = self.pairs.get_mut(at);
        let checkpointing = &mut owned.checkpointing;
        let CheckpointStep::Recording { base } = checkpointing.step else { return };
        if !recorded {
            return checkpointing.failed(CheckpointFailure::NotRecorded, now_ns);
        }
        checkpointing.step = CheckpointStep::Idle;
        checkpointing.failure = None;
        checkpointing.last_base = base;
        checkpointing.last_ns = now_ns;
        checkpointing.wanted_at_stop = false;
        checkpointing.release = Some(base);
        checkpointing.recoveries = 0;
        owned.batches.checkpoints += 1;
    }
}

impl OwnedPair {
    fn has_many_recoveries(&self) -> bool {
        self.checkpointing.recoveries >= RECOVERIES_MAX + self.pair.id().0 % RECOVERIES_SPREAD
    }

    fn checkpoint_is_due(&self, options: &WorkerOptions, now_ns: u64) -> bool {
        let aged = now_ns.saturating_sub(self.checkpointing.last_ns) >= options.checkpoint_age_ns;
        let log_bytes = self.log_bytes_since_checkpoint();
        #[allow(clippy::cast_precision_loss, reason = "a ratio of sizes")]
        let ratio_reached = log_bytes as f64 >= options.checkpoint_log_ratio * self.pair.live_bytes() as f64;
        aged || (ratio_reached && log_bytes >= options.checkpoint_log_bytes_min)
    }

    /// Whether the disk is short of room, and a checkpoint would give enough back.
    fn checkpoint_makes_room(&self, disk_free: Option<u64>) -> bool {
        let (closed_bytes, segment_bytes) = self.pair.log_bytes_closed();
        let image_bytes = self.pair.live_bytes();
        let short = disk_free.is_some_and(|free| free < image_bytes + 2 * segment_bytes);
        let worth_it = closed_bytes > image_bytes / IMAGE_PART;
        short && worth_it || self.pair.is_log_short() && closed_bytes > 0 || self.pair.needs_reclaim()
    }

    pub(super) fn log_bytes_since_checkpoint(&self) -> u64 {
        let written = self.pair.log_bytes_recovered() + self.batches.log_bytes;
        written.saturating_sub(self.checkpointing.log_bytes_at_last)
    }

    fn start_checkpoint(&mut self) -> Command {
        let mut base = self.pair.image_base();
        if planted(Mutant::CompletionsDropped) {
            base.completions = CompletionTable::default();
        }
        base.attempt = self.checkpointing.attempts;
        self.checkpointing.attempts += u32::from(!planted(Mutant::ImageNameReused));
        self.checkpointing.step = CheckpointStep::Writing { base: base.csn };
        self.checkpointing.log_bytes_at_last += self.log_bytes_since_checkpoint();
        Command::Checkpoint(self.pair.id(), CheckpointCommand::WriteImage { base: Box::new(base) })
    }
}
