//! The versions of what two ends exchange. An end refuses every other version by its number.

/// The version of the fabric's format: hello, framing and one-sided reads.
pub(crate) const FORMAT_VERSION: u16 = 1;

/// The version of the memory that two ends share, and of the packets on its socket.
pub(crate) const MEMORY_VERSION: u64 = 2;
