//! Log records: what a frame's payloads mean. `wal` carries them without knowing.
//!
//! Node region's log:
//!
//! | kind | bytes after the kind byte |
//! |---|---|
//! | 1 tree | flags `u8` (bit 0: a completion follows), slot `u32`, \[completion\], change (see `cell_tree::Change`) |
//! | 2 outcome | completion |
//! | 3..=11 | steps of splits of meganodes, see `split/record.rs` |
//! | 12 root | the root's word `u64`, see `cell_terms::Root`; in the log of the pair whose header keeps it |
//! | 13 slot | slot `u32`, use `u8`: 0 free, 1 a meganode of entries, 2 a router |
//!
//! Extent region's log:
//!
//! | kind | bytes after the kind byte |
//! |---|---|
//! | 16 extent | zero `u8` x 3, offset `u32` (16-byte units), the extent as it lies in memory |
//!
//! Completion (RIFL, SOSP 2015; `docs/design/log.md`): session `u64`, number `u64`, floor `u64`, outcome
//! kind `u8`, then by kind: 1 written: replaced `u8`, version; 2 deleted; 3 not found; 4 condition failed:
//! present `u8`, version. A version is pair `u32`, epoch `u32`, CSN `u64`. Little-endian throughout.

use cell_terms::{ExtentOffset, OperationNumber, Root, SessionId, SlotIndex, Version};
use cell_tree::Change;

use crate::fields::{Fields, RecordError};
use crate::split::{KIND_ABSORB, KIND_DISCARDED, KIND_MERGE, KIND_RETIRED, KIND_START, SlotUse, SplitRecord};

const KIND_TREE: u8 = 1;
const KIND_OUTCOME: u8 = 2;
const KIND_ROOT: u8 = 12;
const KIND_SLOT: u8 = 13;
const KIND_EXTENT: u8 = 16;

const OUTCOME_WRITTEN: u8 = 1;
const OUTCOME_DELETED: u8 = 2;
const OUTCOME_NOT_FOUND: u8 = 3;
const OUTCOME_CONDITION_FAILED: u8 = 4;

const FLAG_COMPLETION: u8 = 1;

/// Bytes of an extent record before the extent.
pub const EXTENT_RECORD_HEADER_BYTES: usize = 8;
/// Most bytes that a tree record has before its change.
pub const TREE_RECORD_HEADER_BYTES_MAX: usize = 6 + COMPLETION_BYTES_MAX;
/// Most bytes of a completion.
pub const COMPLETION_BYTES_MAX: usize = 24 + 1 + 1 + VERSION_BYTES;
const VERSION_BYTES: usize = 16;

/// How a write ended; kept until its client has seen it, so that a repeat gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The entry has this version now.
    Written {
        /// The new entry's version.
        version: Version,
        /// Whether there was an entry before.
        replaced: bool,
    },
    /// The entry is gone.
    Deleted,
    /// There was nothing to delete.
    NotFound,
    /// The condition did not hold; nothing was changed.
    ConditionFailed {
        /// The entry's version, if there is an entry.
        current: Option<Version>,
    },
}

/// A write's identity and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCompletion {
    /// The client session.
    pub session: SessionId,
    /// The client's number of the write.
    pub number: OperationNumber,
    /// The client's lowest unacknowledged number when it sent this.
    pub floor: OperationNumber,
    /// The result.
    pub outcome: WriteOutcome,
}

/// A record of a node region's log.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeRecord<'a> {
    /// A tree node changed.
    Tree {
        /// The meganode.
        slot: SlotIndex,
        /// The write that this completes, on the last record of an operation.
        completion: Option<WriteCompletion>,
        /// The change.
        change: Change<'a>,
    },
    /// A write that changed nothing completed.
    Outcome(WriteCompletion),
    /// A step of a split of a meganode.
    Split(SplitRecord<'a>),
    /// The tree begins elsewhere.
    RootSet(Root),
    /// A slot is taken for something that no split explains, or free again.
    SlotUse {
        /// The slot.
        slot: SlotIndex,
        /// What it holds from now on.
        used: SlotUse,
    },
}

/// A record of an extent region's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRecord<'a> {
    /// Where the extent lies.
    pub offset: ExtentOffset,
    /// Its bytes, header included.
    pub extent: &'a [u8],
}

impl NodeRecord<'_> {
    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            NodeRecord::Tree { slot, completion, change } => {
                encode_tree_header(out, *slot, completion.as_ref());
                change.encode(out);
            }
            NodeRecord::Outcome(completion) => {
                out.push(KIND_OUTCOME);
                completion.encode(out);
            }
            NodeRecord::Split(record) => record.encode(out),
            NodeRecord::RootSet(root) => {
                out.push(KIND_ROOT);
                out.extend_from_slice(&root.to_word().to_le_bytes());
            }
            NodeRecord::SlotUse { slot, used } => {
                out.push(KIND_SLOT);
                out.extend_from_slice(&slot.0.to_le_bytes());
                out.push(used.to_byte());
            }
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// See [`RecordError`]; bytes that passed their frame's checksum and fail here are corruption.
    pub fn decode(bytes: &[u8]) -> Result<NodeRecord<'_>, RecordError> {
        let mut fields = Fields { bytes, at: 0 };
        match fields.u8()? {
            KIND_TREE => {
                let flags = fields.u8()?;
                if flags & !FLAG_COMPLETION != 0 {
                    return Err(RecordError::Unknown { offset: 1, value: flags });
                }
                let slot = SlotIndex(fields.u32()?);
                let completion = if flags & FLAG_COMPLETION != 0 {
                    Some(WriteCompletion::decode(&mut fields)?)
                } else {
                    None
                };
                let change = Change::decode(fields.rest()).map_err(RecordError::Change)?;
                Ok(NodeRecord::Tree { slot, completion, change })
            }
            KIND_OUTCOME => Ok(NodeRecord::Outcome(WriteCompletion::decode(&mut fields)?)),
            KIND_ROOT => {
                let record = NodeRecord::RootSet(Root::from_word(fields.u64()?));
                fields.end().map(|()| record)
            }
            KIND_SLOT => {
                let slot = SlotIndex(fields.u32()?);
                let offset = fields.at;
                let value = fields.u8()?;
                let used = SlotUse::from_byte(value).ok_or(RecordError::Unknown { offset, value })?;
                fields.end().map(|()| NodeRecord::SlotUse { slot, used })
            }
            kind @ (KIND_START..=KIND_DISCARDED | KIND_MERGE | KIND_ABSORB | KIND_RETIRED) => {
                Ok(NodeRecord::Split(SplitRecord::decode(kind, fields)?))
            }
            value => Err(RecordError::Unknown { offset: 0, value }),
        }
    }
}

fn encode_tree_header(out: &mut Vec<u8>, slot: SlotIndex, completion: Option<&WriteCompletion>) {
    out.push(KIND_TREE);
    out.push(if completion.is_some() { FLAG_COMPLETION } else { 0 });
    out.extend_from_slice(&slot.0.to_le_bytes());
    if let Some(completion) = completion {
        completion.encode(out);
    }
}

impl ExtentRecord<'_> {
    /// The header of an extent record; the extent's bytes follow it.
    #[must_use]
    pub fn header(offset: ExtentOffset) -> [u8; EXTENT_RECORD_HEADER_BYTES] {
        let [a, b, c, d] = offset.0.to_le_bytes();
        [KIND_EXTENT, 0, 0, 0, a, b, c, d]
    }

    /// Reads a record.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<ExtentRecord<'_>, RecordError> {
        let mut fields = Fields { bytes, at: 0 };
        match fields.u32()?.to_le_bytes() {
            [KIND_EXTENT, 0, 0, 0] => {}
            [kind, ..] => return Err(RecordError::Unknown { offset: 0, value: kind }),
        }
        Ok(ExtentRecord { offset: ExtentOffset(fields.u32()?), extent: fields.rest() })
    }
}

impl WriteCompletion {
    /// Appends the completion's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.0.to_le_bytes());
        out.extend_from_slice(&self.number.0.to_le_bytes());
        out.extend_from_slice(&self.floor.0.to_le_bytes());
        self.outcome.encode(out);
    }

    fn decode(fields: &mut Fields<'_>) -> Result<WriteCompletion, RecordError> {
        Ok(WriteCompletion {
            session: SessionId(fields.u64()?),
            number: OperationNumber(fields.u64()?),
            floor: OperationNumber(fields.u64()?),
            outcome: WriteOutcome::decode(fields)?,
        })
    }
}

impl WriteOutcome {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            WriteOutcome::Written { version, replaced } => {
                out.extend_from_slice(&[OUTCOME_WRITTEN, u8::from(*replaced)]);
                encode_version(version, out);
            }
            WriteOutcome::Deleted => out.push(OUTCOME_DELETED),
            WriteOutcome::NotFound => out.push(OUTCOME_NOT_FOUND),
            WriteOutcome::ConditionFailed { current } => {
                out.extend_from_slice(&[OUTCOME_CONDITION_FAILED, u8::from(current.is_some())]);
                encode_version(&current.unwrap_or_default(), out);
            }
        }
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<WriteOutcome, RecordError> {
        match fields.u8()? {
            OUTCOME_WRITTEN => {
                let replaced = fields.flag()?;
                Ok(WriteOutcome::Written { version: fields.version()?, replaced })
            }
            OUTCOME_DELETED => Ok(WriteOutcome::Deleted),
            OUTCOME_NOT_FOUND => Ok(WriteOutcome::NotFound),
            OUTCOME_CONDITION_FAILED => {
                let present = fields.flag()?;
                let version = fields.version()?;
                Ok(WriteOutcome::ConditionFailed { current: present.then_some(version) })
            }
            value => Err(RecordError::Unknown { offset: fields.at - 1, value }),
        }
    }
}

fn encode_version(version: &Version, out: &mut Vec<u8>) {
    out.extend_from_slice(&version.pair.0.to_le_bytes());
    out.extend_from_slice(&version.epoch.0.to_le_bytes());
    out.extend_from_slice(&version.csn.0.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use cell_terms::{Csn, Epoch, PairId};

    use super::*;

    fn completion(outcome: WriteOutcome) -> WriteCompletion {
        WriteCompletion {
            session: SessionId(7 << 32 | 1),
            number: OperationNumber(9),
            floor: OperationNumber(3),
            outcome,
        }
    }

    const VERSION: Version = Version { pair: PairId(1), epoch: Epoch(2), csn: Csn(0x0102_0304_0506_0708) };

    #[test]
    fn outcome_record_round_trips_every_outcome() {
        let outcomes = [
            WriteOutcome::Written { version: VERSION, replaced: true },
            WriteOutcome::Deleted,
            WriteOutcome::NotFound,
            WriteOutcome::ConditionFailed { current: None },
            WriteOutcome::ConditionFailed { current: Some(VERSION) },
        ];
        for outcome in outcomes {
            let record = NodeRecord::Outcome(completion(outcome));
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert!(bytes.len() <= 1 + COMPLETION_BYTES_MAX);
            assert_eq!(NodeRecord::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(NodeRecord::decode(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn outcome_record_bytes_are_pinned() {
        let mut bytes = Vec::new();
        NodeRecord::Outcome(completion(WriteOutcome::Written { version: VERSION, replaced: false }))
            .encode(&mut bytes);
        let golden = [
            2, 1, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 2,
            0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1,
        ];
        assert_eq!(bytes, golden);
    }

    #[test]
    fn extent_record_round_trips_and_refuses_other_kinds() {
        let mut bytes = ExtentRecord::header(ExtentOffset(0x1_0203)).to_vec();
        assert_eq!(bytes, [16, 0, 0, 0, 3, 2, 1, 0]);
        bytes.extend_from_slice(b"value");
        let record = ExtentRecord { offset: ExtentOffset(0x1_0203), extent: b"value" };
        assert_eq!(ExtentRecord::decode(&bytes), Ok(record));
        bytes[0] = 3;
        assert_eq!(ExtentRecord::decode(&bytes), Err(RecordError::Unknown { offset: 0, value: 3 }));
    }
}
