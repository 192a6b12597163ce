//! What a pair's new logs take on the disk.

use cell_terms::setting::Settings;
use cell_wal::LogOptions;

/// What the first segments of a pair's logs take: a node whose disk has less takes no pair that moves. Of
/// settings that have those of logs among them.
#[must_use]
pub fn first_segments_bytes(settings: &Settings) -> u64 {
    let log = LogOptions::from_settings(settings);
    2 * log.segment_bytes.min(log.first_segment_bytes)
}
