//! Settings of logs and images.

use std::time::Duration;

use cell_terms::setting::{Applies, Bounds, Setting, Settings};

use crate::check::index;
use crate::frame::{EMPTY_FRAME_BYTES, FRAME_HEADER_BYTES};

/// Declarations of this crate's settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "log_segment_bytes",
        meaning: "Length of a log's segments once much was written. The first ones have 4 MiB at most, and \
                  later ones are twice as long, by and by up to this. Each region's log keeps two or three; \
                  half of this length bounds the largest value. Longer ones rotate less often and take \
                  longer to prepare.",
        default: "64 MiB",
        bounds: Bounds::Bytes { min: 1 << 20, max: 1 << 30, power_of_two: true },
        applies: Applies::Restart(
            "Segments are prepared ahead up to this length, and the longest value that is accepted follows \
             from it.",
        ),
    },
    Setting {
        name: "log_batch_bytes",
        meaning: "Most bytes that one commit batch gathers in one log while the batch before it is being \
                  written; larger operations go alone. Each log holds two buffers of this size.",
        default: "256 KiB",
        bounds: Bounds::Bytes { min: 16 << 10, max: 4 << 20, power_of_two: true },
        applies: Applies::Restart(
            "A log's buffers are taken, and registered with the kernel, when its pair is brought up.",
        ),
    },
    Setting {
        name: "log_flush",
        meaning: "How log writes reach stable storage: per_write syncs each by itself; per_device sends plain \
                  writes of all pairs and then one flush of the disk for them, and is refused where that may \
                  not cover them (it is known of ext4 and XFS over one block device). auto takes per_device \
                  where it surely does and a trial at the start shows it faster.",
        default: "auto",
        bounds: Bounds::Choice(&["auto", "per_write", "per_device"]),
        applies: Applies::Restart("Disk and file system are looked at, and tried, when a node starts."),
    },
    Setting {
        name: "log_seal_idle",
        meaning: "After so long without a write the last batch is sealed by an empty frame in both logs, \
                  so that damage to it is distinguished from a torn write.",
        default: "20 ms",
        bounds: Bounds::Milliseconds { min: 1, max: 60_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "log_prepare_retry",
        meaning: "How long to wait before preparing a log segment is tried again after the disk was full.",
        default: "1 s",
        bounds: Bounds::Milliseconds { min: 10, max: 10_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "image_zstd_level",
        meaning: "Compression level of checkpoint images. Higher is smaller and slower to write.",
        default: "1",
        bounds: Bounds::Integer { min: 1, max: 19 },
        applies: Applies::Live,
    },
];

/// Of a log's first segment, and of its first spare: some milliseconds of zeroes, and many batches until the
/// next one is needed.
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// `log_segment_bytes`.
    pub segment_bytes: u64,
    /// Bytes of a log's first segment, for which a takeover waits; no more than [`LogOptions::segment_bytes`]
    /// are taken. Later segments are longer by and by, up to that.
    pub first_segment_bytes: u64,
    /// `log_batch_bytes`.
    pub batch_bytes: usize,
    /// `log_seal_idle`.
    pub seal_idle: Duration,
    /// `log_prepare_retry`.
    pub prepare_retry: Duration,
}

/// What of [`LogOptions`] can change while a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTimes {
    /// `log_seal_idle`.
    pub seal_idle: Duration,
    /// `log_prepare_retry`.
    pub prepare_retry: Duration,
}

impl LogTimes {
    /// From the settings in force.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> LogTimes {
        let LogOptions { seal_idle, prepare_retry, .. } = LogOptions::from_settings(settings);
        LogTimes { seal_idle, prepare_retry }
    }
}

impl LogOptions {
    /// From the settings in force.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> LogOptions {
        let segment_bytes = settings.integer("log_segment_bytes");
        LogOptions {
            segment_bytes,
            first_segment_bytes: FIRST_SEGMENT_BYTES,
            batch_bytes: index(settings.integer("log_batch_bytes").min(segment_bytes / 2)),
            seal_idle: Duration::from_millis(settings.integer("log_seal_idle")),
            prepare_retry: Duration::from_millis(settings.integer("log_prepare_retry")),
        }
    }

    /// Most bytes of records (as [`crate::record::record_space`] counts them) that one operation may take in
    /// one log.
    #[must_use]
    pub fn operation_bytes_max(&self) -> usize {
        index(self.segment_bytes / 2) - FRAME_HEADER_BYTES
    }

    pub(crate) fn check(&self) {
        assert!(
            // The setting begins at 1 MiB; simulations rotate more often.
            self.segment_bytes >= 64 << 10 && self.segment_bytes <= 1 << 30,
            "bounds of log_segment_bytes"
        );
        for bytes in [self.segment_bytes, self.first_segment_bytes] {
            assert!(bytes.is_multiple_of(EMPTY_FRAME_BYTES as u64), "segments are whole blocks");
        }
        assert!(self.first_segment_bytes >= 64 << 10, "a first segment holds its opening frames and more");
        assert!(self.batch_bytes >= EMPTY_FRAME_BYTES, "a batch buffer holds an empty frame");
        assert!(self.batch_bytes as u64 <= self.segment_bytes / 2, "a batch fits half a segment");
    }
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions::from_settings(&Settings::new(&[SETTINGS]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_options_hold_a_16_mib_value() {
        let options = LogOptions::default();
        options.check();
        assert!(options.operation_bytes_max() > (16 << 20) + 4096);
    }
}
