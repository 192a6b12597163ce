//! How far a recovery is, for the console: written by the recovery, read by anyone.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a recovery is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RecoveryStage {
    /// Claiming the pair.
    Claiming,
    /// Loading the checkpoint.
    Loading,
    /// Replaying logs.
    Replaying,
    /// Recording cuts, reading sessions.
    Recording,
    /// Checking what was restored.
    Verifying,
    /// Opening the new epoch's logs.
    Opening,
    /// The disk has no room for them; they are tried again and again.
    NoRoom,
    /// Waiting until the trust that earlier owners granted has run out.
    Waiting,
    /// Published.
    Serving,
    /// Stopped; see the node's log and the pair's row.
    Failed,
}

const STAGES: [RecoveryStage; 10] = [
    RecoveryStage::Claiming,
    RecoveryStage::Loading,
    RecoveryStage::Replaying,
    RecoveryStage::Recording,
    RecoveryStage::Verifying,
    RecoveryStage::Opening,
    RecoveryStage::NoRoom,
    RecoveryStage::Waiting,
    RecoveryStage::Serving,
    RecoveryStage::Failed,
];

impl RecoveryStage {
    /// The stage in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RecoveryStage::Claiming => "claiming",
            RecoveryStage::Loading => "loading",
            RecoveryStage::Replaying => "replaying",
            RecoveryStage::Recording => "recording",
            RecoveryStage::Verifying => "verifying",
            RecoveryStage::Opening => "opening",
            RecoveryStage::NoRoom => "waiting for room on the disk",
            RecoveryStage::Waiting => "waiting",
            RecoveryStage::Serving => "serving",
            RecoveryStage::Failed => "failed",
        }
    }
}

/// One pair's recovery.
#[derive(Debug)]
pub struct Progress {
    started_ns: u64,
    stage: AtomicU8,
    bytes_done: AtomicU64,
    bytes_total: AtomicU64,
    records: AtomicU64,
    entries: AtomicU64,
}

/// Where a recovery is at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgressView {
    /// What it is doing.
    pub stage: RecoveryStage,
    /// Bytes of image and logs that were read.
    pub bytes_done: u64,
    /// Bytes of image and logs that are to be read; falls when a log ends before its file does. Of a log that
    /// is followed the files that are still written to count as far as they were read.
    pub bytes_total: u64,
    /// Records that were replayed.
    pub records: u64,
    /// Entries that were verified.
    pub entries: u64,
    /// Bytes a second since the start.
    pub bytes_per_second: f64,
    /// How long reading will take at that rate, in nanoseconds; none while that is not known.
    pub remaining_ns: Option<u64>,
}

impl Progress {
    /// A recovery that starts at `now_ns`, on the clock of [`Progress::view`].
    #[must_use]
    pub fn new(now_ns: u64) -> Progress {
        Progress {
            started_ns: now_ns,
            stage: AtomicU8::new(RecoveryStage::Claiming as u8),
            bytes_done: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            records: AtomicU64::new(0),
            entries: AtomicU64::new(0),
        }
    }

    /// How far it is.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time for people, saturating"
    )]
    pub fn view(&self, now_ns: u64) -> ProgressView {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let bytes_done = read(&self.bytes_done);
        let bytes_total = read(&self.bytes_total).max(bytes_done);
        let seconds = now_ns.saturating_sub(self.started_ns) as f64 / 1e9;
        let rate = if seconds > 0.0 { bytes_done as f64 / seconds } else { 0.0 };
        let left = (bytes_total - bytes_done) as f64;
        ProgressView {
            stage: STAGES[usize::from(self.stage.load(Ordering::Relaxed)).min(STAGES.len() - 1)],
            bytes_done,
            bytes_total,
            records: read(&self.records),
            entries: read(&self.entries),
            bytes_per_second: rate,
            remaining_ns: (rate > 0.0).then(|| (left / rate * 1e9) as u64),
        }
    }

    pub(crate) fn set_stage(&self, stage: RecoveryStage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Bytes that will have to be read.
    pub(crate) fn expect(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were expected and are not there.
    pub(crate) fn expect_less(&self, bytes: u64) {
        self.bytes_total.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn replayed(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn verified(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_rate_and_remaining_time_follow_from_bytes_and_clock() {
        let progress = Progress::new(1_000_000_000);
        assert_eq!(progress.view(1_000_000_000).remaining_ns, None);
        progress.expect(300);
        progress.read(100);
        progress.set_stage(RecoveryStage::Replaying);
        let view = progress.view(3_000_000_000);
        assert_eq!((view.stage, view.bytes_done, view.bytes_total), (RecoveryStage::Replaying, 100, 300));
        assert_eq!((view.bytes_per_second, view.remaining_ns), (50.0, Some(4_000_000_000)));
        progress.expect_less(200);
        assert_eq!(progress.view(3_000_000_000).remaining_ns, Some(0));
    }

    #[test]
    fn stages_are_where_their_number_says() {
        assert!(STAGES.iter().enumerate().all(|(at, stage)| *stage as usize == at));
    }
}
