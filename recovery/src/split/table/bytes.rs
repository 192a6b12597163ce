//! The bytes of a table, as a checkpoint holds them.
//!
//! Pair `u32`; slots: count `u32`, each slot `u32`, use `u8`, CSN `u64`; splits as source: count `u32`, each
//! name, state `u8`, CSN `u64`, slot `u32`, target pair `u32`, target slot `u32`, key; splits as target:
//! count `u32`, each name, state `u8`, CSN `u64`, slot `u32`, right link `u64`, tree nodes `u32`, entries
//! `u64`, low key, high key or none. Names and keys as in the records of splits. The highest bit of a state
//! says that it is a merge's.

use std::collections::BTreeMap;

use cell_terms::{Csn, PairId, SlotIndex};

use super::{SourceSplit, SourceState, SplitTable, TargetSplit, TargetState};
use crate::fields::{Fields, RecordError};
use crate::split::fields::{encode_key, encode_key_option};
use crate::split::slot_use::SlotUse;

/// Beside a state's number: it is a merge's.
const MERGES: u8 = 0x80;

impl SplitTable {
    /// Appends the table's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let count = |len: usize| u32::try_from(len).expect("a region has less than 2^32 slots").to_le_bytes();
        out.extend_from_slice(&self.pair.0.to_le_bytes());
        out.extend_from_slice(&count(self.slots.len()));
        for (slot, (used, csn)) in &self.slots {
            out.extend_from_slice(&slot.0.to_le_bytes());
            out.push(used.to_byte());
            out.extend_from_slice(&csn.0.to_le_bytes());
        }
        out.extend_from_slice(&count(self.sources.len()));
        for (name, split) in &self.sources {
            name.encode(out);
            out.push(index_of(&SourceState::ALL, &split.state) | if split.merges { MERGES } else { 0 });
            out.extend_from_slice(&split.csn.0.to_le_bytes());
            out.extend_from_slice(&split.slot.0.to_le_bytes());
            out.extend_from_slice(&split.target.0.to_le_bytes());
            out.extend_from_slice(&split.target_slot.0.to_le_bytes());
            encode_key(&split.key, out);
        }
        out.extend_from_slice(&count(self.targets.len()));
        for (name, split) in &self.targets {
            name.encode(out);
            out.push(index_of(&TargetState::ALL, &split.state) | if split.merges { MERGES } else { 0 });
            out.extend_from_slice(&split.csn.0.to_le_bytes());
            out.extend_from_slice(&split.slot.0.to_le_bytes());
            out.extend_from_slice(&split.right.0.to_le_bytes());
            out.extend_from_slice(&split.nodes.to_le_bytes());
            out.extend_from_slice(&split.entries.to_le_bytes());
            encode_key(&split.low, out);
            encode_key_option(split.high.as_deref(), out);
        }
    }

    /// Reads a table's bytes.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<SplitTable, RecordError> {
        let mut fields = Fields { bytes, at: 0 };
        let pair = PairId(fields.u32()?);
        let mut table =
            SplitTable { pair, slots: BTreeMap::new(), sources: BTreeMap::new(), targets: BTreeMap::new() };
        for _ in 0..fields.u32()? {
            let slot = SlotIndex(fields.u32()?);
            let offset = fields.at;
            let byte = fields.u8()?;
            let used = SlotUse::from_byte(byte).ok_or(RecordError::Unknown { offset, value: byte })?;
            table.slots.insert(slot, (used, Csn(fields.u64()?)));
        }
        for _ in 0..fields.u32()? {
            let name = fields.name()?;
            let (state, merges) = state(&SourceState::ALL, &mut fields)?;
            let split = SourceSplit {
                state,
                merges,
                csn: Csn(fields.u64()?),
                slot: SlotIndex(fields.u32()?),
                target: PairId(fields.u32()?),
                target_slot: SlotIndex(fields.u32()?),
                key: fields.key()?.into(),
            };
            table.sources.insert(name, split);
        }
        for _ in 0..fields.u32()? {
            let name = fields.name()?;
            let (state, merges) = state(&TargetState::ALL, &mut fields)?;
            let split = TargetSplit {
                state,
                merges,
                csn: Csn(fields.u64()?),
                slot: SlotIndex(fields.u32()?),
                right: fields.pointer()?,
                nodes: fields.u32()?,
                entries: fields.u64()?,
                low: fields.key()?.into(),
                high: fields.key_option()?.map(Into::into),
            };
            table.targets.insert(name, split);
        }
        fields.end().map(|()| table)
    }
}

fn index_of<T: PartialEq>(all: &[T], state: &T) -> u8 {
    let at = all.iter().position(|known| known == state);
    at.and_then(|at| u8::try_from(at).ok()).expect("every state is listed")
}

/// A state, and whether it is a merge's.
fn state<T: Copy>(all: &[T], fields: &mut Fields<'_>) -> Result<(T, bool), RecordError> {
    let offset = fields.at;
    let value = fields.u8()?;
    let state = all.get(usize::from(value & !MERGES)).copied();
    Ok((state.ok_or(RecordError::Unknown { offset, value })?, value & MERGES != 0))
}
