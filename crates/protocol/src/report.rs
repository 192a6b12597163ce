//! What a node says about itself: its status, and the result of a check of its pairs.
//!
//! Status report, after the reply header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | node id |
//! | 4 | 2 | workers |
//! | 6 | 2 | count of pairs |
//! | 8 | 8 | incarnation |
//! | 16 | 8 | uptime, milliseconds |
//! | 24 | 4 | client connections |
//! | 28 | 2 | length of the warnings, at most [`WARNING_BYTES_MAX`] |
//! | 30 | 2 | length of the coordinator's place, at most [`PLACE_BYTES_MAX`] |
//! | 32 | | for each pair, 96 bytes: |
//! | +0 | 4 | pair id |
//! | +4 | 4 | epoch |
//! | +8 | 1 | state: 1 serving, 2 read-only, 3 recovering, 4 unavailable |
//! | +9 | 1 | reason, when read-only; else zero |
//! | +10 | 2 | recovered, thousandths, when recovering; else zero |
//! | +12 | 4 | worker |
//! | +16 | 8 | durable watermark, CSN |
//! | +24 | 8 | visible watermark, CSN |
//! | +32 | 8 | CSN of the last checkpoint |
//! | +40 | 8 | entries |
//! | +48 | 8 | node region: bytes used |
//! | +56 | 8 | node region: bytes in all |
//! | +64 | 8 | extent region: bytes used |
//! | +72 | 8 | extent region: bytes in all |
//! | +80 | 8 | log: bytes kept, of both regions |
//! | +88 | 8 | sessions known |
//! | behind the pairs | | what is wrong although it serves, a line each (UTF-8) |
//! | behind that | | where its coordinator is, for people (UTF-8) |
//!
//! Check report, after the reply header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | meganodes |
//! | 8 | 8 | tree nodes |
//! | 16 | 8 | entries |
//! | 24 | 8 | bytes of extents that were checked against their CRC |
//! | 32 | 8 | violations |
//! | 40 | 8 | time taken, microseconds |
//! | 48 | 2 | length of the text, at most [`VIOLATION_BYTES_MAX`] |
//! | 50 | 6 | reserved, zero |
//! | 56 | | the first violation in words (UTF-8); empty when there is none |

use cell_terms::{Csn, Epoch, Incarnation, NodeId, PairId};

use crate::cursor::{Reader, Writer};
use crate::header::REPLY_HEADER_BYTES;
use crate::{DecodeError, EncodeError, MESSAGE_BYTES_MAX, ReadOnlyReason};

const STATUS_FIXED_BYTES: usize = 32;
const PAIR_BYTES: usize = 96;

/// Most pairs that one report lists.
pub const PAIRS_MAX: usize =
    (MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES - STATUS_FIXED_BYTES - WARNING_BYTES_MAX - PLACE_BYTES_MAX)
        / PAIR_BYTES;

/// Longest text of a node's warnings.
pub const WARNING_BYTES_MAX: usize = 2048;

/// Longest text of where a coordinator is.
pub const PLACE_BYTES_MAX: usize = 512;

/// Longest text of a violation.
pub const VIOLATION_BYTES_MAX: usize = 1024;

const _: () = assert!(PAIRS_MAX >= 512 && PAIRS_MAX <= u16::MAX as usize);

/// What a pair is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairActivity {
    /// Reads and writes.
    Serving,
    /// Reads; writes are refused.
    ReadOnly(ReadOnlyReason),
    /// Not yet: its log is being replayed.
    Recovering {
        /// How far, in thousandths.
        permille: u16,
    },
    /// Not served, and an operator must look why.
    Unavailable,
}

/// A pair's line in a status report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairStatus {
    /// The pair.
    pub pair: PairId,
    /// Its epoch.
    pub epoch: Epoch,
    /// What it is doing.
    pub state: PairActivity,
    /// The worker that owns it.
    pub worker: u32,
    /// Durable watermark.
    pub durable: Csn,
    /// Visible watermark.
    pub visible: Csn,
    /// CSN of the last checkpoint.
    pub checkpoint: Csn,
    /// Entries.
    pub entries: u64,
    /// Node region: bytes used.
    pub node_bytes_used: u64,
    /// Node region: bytes in all.
    pub node_bytes: u64,
    /// Extent region: bytes used.
    pub extent_bytes_used: u64,
    /// Extent region: bytes in all.
    pub extent_bytes: u64,
    /// Log bytes kept, of both regions.
    pub log_bytes: u64,
    /// Sessions that the pair knows.
    pub sessions: u64,
}

/// A node's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusReport<'a> {
    /// The node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// How long it has lived.
    pub uptime_ms: u64,
    /// Workers.
    pub workers: u16,
    /// Client connections.
    pub connections: u32,
    /// The pairs that it owns.
    pub pairs: PairStatuses<'a>,
    /// What is wrong although it serves, a line each; empty if nothing is.
    pub warnings: &'a str,
    /// Where its coordinator is, for people; empty: it was not reported.
    pub coordinator: &'a str,
}

/// The pairs of a status report, checked: those that arrived, or those to be sent.
#[derive(Clone, Copy, Debug)]
pub enum PairStatuses<'a> {
    /// Still as they arrived.
    Wire(
        /// A whole number of checked records.
        WirePairs<'a>,
    ),
    /// To be sent.
    List(&'a [PairStatus]),
}

/// Encoded pair statuses that were checked on arrival.
#[derive(Clone, Copy, Debug)]
pub struct WirePairs<'a>(&'a [u8]);

impl<'a> PairStatuses<'a> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            PairStatuses::Wire(WirePairs(bytes)) => bytes.len() / PAIR_BYTES,
            PairStatuses::List(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pairs.
    pub fn iter(&self) -> impl Iterator<Item = PairStatus> + use<'a> {
        let (wire, list): (&'a [u8], &'a [PairStatus]) = match *self {
            PairStatuses::Wire(WirePairs(bytes)) => (bytes, &[]),
            PairStatuses::List(list) => (&[], list),
        };
        let decoded =
            wire.chunks_exact(PAIR_BYTES).map_while(|b| PairStatus::decode(&mut Reader::new(b)).ok());
        decoded.chain(list.iter().copied())
    }
}

impl PartialEq for PairStatuses<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for PairStatuses<'_> {}

impl PairStatus {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let (state, reason, permille) = match self.state {
            PairActivity::Serving => (1, 0, 0),
            PairActivity::ReadOnly(reason) => (2, reason.code(), 0),
            PairActivity::Recovering { permille } => (3, 0, permille),
            PairActivity::Unavailable => (4, 0, 0),
        };
        writer.u32(self.pair.0)?;
        writer.u32(self.epoch.0)?;
        writer.u8(state)?;
        writer.u8(reason)?;
        writer.u16(permille)?;
        writer.u32(self.worker)?;
        for csn in [self.durable, self.visible, self.checkpoint] {
            writer.u64(csn.0)?;
        }
        writer.u64(self.entries)?;
        writer.u64(self.node_bytes_used)?;
        writer.u64(self.node_bytes)?;
        writer.u64(self.extent_bytes_used)?;
        writer.u64(self.extent_bytes)?;
        writer.u64(self.log_bytes)?;
        writer.u64(self.sessions)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<PairStatus, DecodeError> {
        let (pair, epoch) = (PairId(reader.u32()?), Epoch(reader.u32()?));
        let (state, reason, permille) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let state = match (state, ReadOnlyReason::from_code(reason), reason, permille) {
            (1, _, 0, 0) => PairActivity::Serving,
            (2, Some(reason), _, 0) => PairActivity::ReadOnly(reason),
            (3, _, 0, permille) => PairActivity::Recovering { permille },
            (4, _, 0, 0) => PairActivity::Unavailable,
            _ => return Err(reader.bad_tag(state)),
        };
        Ok(PairStatus {
            pair,
            epoch,
            state,
            worker: reader.u32()?,
            durable: Csn(reader.u64()?),
            visible: Csn(reader.u64()?),
            checkpoint: Csn(reader.u64()?),
            entries: reader.u64()?,
            node_bytes_used: reader.u64()?,
            node_bytes: reader.u64()?,
            extent_bytes_used: reader.u64()?,
            extent_bytes: reader.u64()?,
            log_bytes: reader.u64()?,
            sessions: reader.u64()?,
        })
    }
}

impl<'a> StatusReport<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let count = self.pairs.len();
        let count = u16::try_from(count).map_err(|_| EncodeError::Count { count, max: PAIRS_MAX })?;
        writer.u32(self.node.0)?;
        writer.u16(self.workers)?;
        writer.u16(count)?;
        writer.u64(self.incarnation.0)?;
        writer.u64(self.uptime_ms)?;
        writer.u32(self.connections)?;
        writer.text_length(self.warnings.as_bytes(), WARNING_BYTES_MAX)?;
        writer.text_length(self.coordinator.as_bytes(), PLACE_BYTES_MAX)?;
        self.pairs.iter().try_for_each(|pair| pair.encode(writer))?;
        writer.bytes(self.warnings.as_bytes())?;
        writer.bytes(self.coordinator.as_bytes())
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<StatusReport<'a>, DecodeError> {
        let node = NodeId(reader.u32()?);
        let (workers, count) = (reader.u16()?, reader.u16()?);
        let (incarnation, uptime_ms) = (Incarnation(reader.u64()?), reader.u64()?);
        let connections = reader.u32()?;
        let (warnings, coordinator) = (reader.u16()?, reader.u16()?);
        let bytes = reader.take(usize::from(count) * PAIR_BYTES)?;
        for pair in bytes.chunks_exact(PAIR_BYTES) {
            PairStatus::decode(&mut Reader::new(pair))?;
        }
        let pairs = PairStatuses::Wire(WirePairs(bytes));
        let warnings = reader.text(warnings, WARNING_BYTES_MAX)?;
        let coordinator = reader.text(coordinator, PLACE_BYTES_MAX)?;
        Ok(StatusReport { node, incarnation, uptime_ms, workers, connections, pairs, warnings, coordinator })
    }
}

/// The result of a check of every pair that the worker owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport<'a> {
    /// Meganodes seen.
    pub meganodes: u64,
    /// Tree nodes seen.
    pub tree_nodes: u64,
    /// Entries seen.
    pub entries: u64,
    /// Bytes of extents that were checked against their CRC.
    pub extent_bytes: u64,
    /// How many violations of an invariant were found.
    pub violations: u64,
    /// How long it took.
    pub duration_us: u64,
    /// The first violation, in words; empty when there is none.
    pub first_violation: &'a str,
}

impl<'a> CheckReport<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let counts = [self.meganodes, self.tree_nodes, self.entries, self.extent_bytes, self.violations];
        counts.iter().try_for_each(|&count| writer.u64(count))?;
        writer.u64(self.duration_us)?;
        writer.text_length(self.first_violation.as_bytes(), VIOLATION_BYTES_MAX)?;
        writer.reserved(6)?;
        writer.bytes(self.first_violation.as_bytes())
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<CheckReport<'a>, DecodeError> {
        let (meganodes, tree_nodes, entries) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (extent_bytes, violations, duration_us) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let len = reader.u16()?;
        reader.reserved(6)?;
        let first_violation = reader.text(len, VIOLATION_BYTES_MAX)?;
        Ok(CheckReport {
            meganodes,
            tree_nodes,
            entries,
            extent_bytes,
            violations,
            duration_us,
            first_violation,
        })
    }
}
