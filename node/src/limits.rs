//! Limits of a node that no setting changes.

use cell_protocol::regions;

/// The longest value is no longer than this part of an extent region, and of what a memory limit leaves for
/// pairs: one that is replaced needs room for the new one beside it, and beside what rests.
pub(crate) const VALUE_PART: u64 = 4;
/// Operations that a connection may have in flight.
pub(crate) const IN_FLIGHT_MAX: u32 = 1_024;
/// Streams that a connection may have open.
pub(crate) const STREAMS_MAX: u32 = 64;
/// Credit that a stream towards the server begins with, in bytes.
pub(crate) const STREAM_CREDIT_BYTES: u32 = 512 << 10;
/// What a pair takes before it holds anything to speak of: first parts of its regions.
pub(crate) const PAIR_BYTES_MIN: u64 = 8 << 20;
/// Pairs that a node gets by moves, splits and drains at most: one reply to a client lists so many. By
/// takeovers it may have more.
#[allow(clippy::cast_possible_truncation, reason = "they are some hundred")]
pub const PAIRS_MAX: u32 = regions::REGION_PAIRS_MAX as u32;
