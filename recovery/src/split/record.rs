//! Records of splits in a node region's log.
//!
//! | kind | whose log | bytes after the kind byte |
//! |---|---|---|
//! | 3 start | source | slot `u32`, target pair `u32`, target slot `u32`, key |
//! | 4 adopt | target | name, slot `u32`, right link `u64`, low key, high key or none, completions to the end |
//! | 5 adopted | target | name, slot `u32`, tree nodes `u32`, entries `u64` |
//! | 6 linked | source | name |
//! | 7 applied | source | name, slot `u32`, right link `u64`, nodes `u8`, node `u32` each, high key, first `u32`, bits |
//! | 8 opened | target | name |
//! | 9 finished | source | name |
//! | 10 aborted | source | name |
//! | 11 discarded | target | name, slot `u32` |
//! | 14 merge | source | as start: key is the meganode's low key, the target slot its left neighbour's |
//! | 15 absorb | target | as adopt |
//! | 17 retired | source | name, slot `u32` |
//!
//! A merge goes the way of a split, with merge, absorb and retired in place of start, adopt and applied.
//! A name is pair `u32`, epoch `u32`, CSN `u64`: those of the start record, which therefore does not carry
//! its own. A key is its length `u16` and its bytes; the length 65,535 says that there is none. Completions
//! are bytes of [`crate::CompletionTable::parts`]: the adoption repeats its first record for each part. The
//! bits of an applied record go to its end, see [`cell_tree::NodeBits`].

use cell_terms::{PairId, Pointer, SlotIndex};
use cell_tree::{NodeBits, NodeIndex};

use super::fields::{encode_key, encode_key_option};
use super::name::SplitName;
use crate::fields::{Fields, RecordError};

pub(crate) const KIND_START: u8 = 3;
const KIND_ADOPT: u8 = 4;
const KIND_ADOPTED: u8 = 5;
const KIND_LINKED: u8 = 6;
const KIND_APPLIED: u8 = 7;
const KIND_OPENED: u8 = 8;
const KIND_FINISHED: u8 = 9;
const KIND_ABORTED: u8 = 10;
pub(crate) const KIND_DISCARDED: u8 = 11;
pub(crate) const KIND_MERGE: u8 = 14;
pub(crate) const KIND_ABSORB: u8 = 15;
pub(crate) const KIND_RETIRED: u8 = 17;

/// Boundary nodes of one split: one a level.
pub const BOUNDARY_NODES_MAX: usize = 16;

/// The boundary nodes of a split, the root first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundaryNodes {
    nodes: [NodeIndex; BOUNDARY_NODES_MAX],
    len: usize,
}

impl BoundaryNodes {
    /// Keeps the nodes; `None` if they are more than a tree has levels, or none.
    #[must_use]
    pub fn new(nodes: &[NodeIndex]) -> Option<BoundaryNodes> {
        let mut boundary = BoundaryNodes { nodes: [NodeIndex::ROOT; BOUNDARY_NODES_MAX], len: nodes.len() };
        boundary.nodes.get_mut(..nodes.len())?.copy_from_slice(nodes);
        (!nodes.is_empty()).then_some(boundary)
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[NodeIndex] {
        &self.nodes[..self.len]
    }
}

/// A step of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitRecord<'a> {
    /// A split begins. Writes at or above the key wait from here on.
    Start {
        /// The meganode.
        slot: SlotIndex,
        /// The key: a fence between two leaves.
        key: &'a [u8],
        /// Who takes the upper half.
        target: PairId,
        /// Where.
        target_slot: SlotIndex,
    },
    /// An adoption begins: the slot is taken. Repeated while there are more completions.
    Adopt {
        /// Of which split.
        name: SplitName,
        /// The slot.
        slot: SlotIndex,
        /// Keys are at or above this: the split's key.
        low: &'a [u8],
        /// And below this.
        high: Option<&'a [u8]>,
        /// Where the keys from `high` on are.
        right: Pointer,
        /// Results and floors of the source's table, or a part of them.
        kept: &'a [u8],
    },
    /// Everything of the adoption is in the log.
    Adopted {
        /// Of which split.
        name: SplitName,
        /// The slot.
        slot: SlotIndex,
        /// Tree nodes that it has.
        nodes: u32,
        /// Entries that it has.
        entries: u64,
    },
    /// The commit point.
    Linked {
        /// Which split.
        name: SplitName,
    },
    /// The source's half is truncated: the tree nodes change with this record and carry its CSN.
    Applied {
        /// Which split.
        name: SplitName,
        /// The slot.
        slot: SlotIndex,
        /// The new meganode's root.
        right: Pointer,
        /// Boundary nodes: their high fence is the key now, their right link `right`.
        boundary: BoundaryNodes,
        /// The key.
        high: &'a [u8],
        /// Tree nodes of the upper half: free.
        freed: NodeBits<'a>,
    },
    /// The new meganode takes writes.
    Opened {
        /// Of which split.
        name: SplitName,
    },
    /// The new meganode takes writes and its parent knows it, both durably: the source forgets the split.
    Finished {
        /// Which split.
        name: SplitName,
    },
    /// Nothing came of it. Durable before anybody is notified of it.
    Aborted {
        /// Which split.
        name: SplitName,
    },
    /// What was adopted is thrown away. Durable before the slot is used again.
    Discarded {
        /// Of which split.
        name: SplitName,
        /// The slot.
        slot: SlotIndex,
    },
    /// A merge begins: all of the meganode's range goes to its left neighbour. Writes to it wait from here
    /// on.
    Merge {
        /// The meganode, which is empty.
        slot: SlotIndex,
        /// Its low key.
        key: &'a [u8],
        /// The left neighbour's pair.
        target: PairId,
        /// Its slot.
        target_slot: SlotIndex,
    },
    /// The left neighbour is to take over the range of a merge, and takes no writes until it has. Repeated
    /// while there are more completions.
    Absorb {
        /// Of which merge.
        name: SplitName,
        /// The left neighbour, which is empty.
        slot: SlotIndex,
        /// Where the range begins: the left neighbour's high key.
        low: &'a [u8],
        /// Where it ends.
        high: Option<&'a [u8]>,
        /// Where the keys from `high` on are.
        right: Pointer,
        /// Results and floors of the source's table, or a part of them.
        kept: &'a [u8],
    },
    /// The meganode of a merge is gone: its tree nodes are free. Its slot is once the merge is finished.
    Retired {
        /// Of which merge.
        name: SplitName,
        /// The slot.
        slot: SlotIndex,
    },
}

impl<'a> SplitRecord<'a> {
    /// Appends the record's bytes, kind included.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            SplitRecord::Start { slot, key, target, target_slot }
            | SplitRecord::Merge { slot, key, target, target_slot } => {
                let merges = matches!(self, SplitRecord::Merge { .. });
                out.push(if merges { KIND_MERGE } else { KIND_START });
                out.extend_from_slice(&slot.0.to_le_bytes());
                out.extend_from_slice(&target.0.to_le_bytes());
                out.extend_from_slice(&target_slot.0.to_le_bytes());
                encode_key(key, out);
            }
            SplitRecord::Adopt { name, slot, low, high, right, kept }
            | SplitRecord::Absorb { name, slot, low, high, right, kept } => {
                let merges = matches!(self, SplitRecord::Absorb { .. });
                begin(out, if merges { KIND_ABSORB } else { KIND_ADOPT }, &name);
                out.extend_from_slice(&slot.0.to_le_bytes());
                out.extend_from_slice(&right.0.to_le_bytes());
                encode_key(low, out);
                encode_key_option(high, out);
                out.extend_from_slice(kept);
            }
            SplitRecord::Adopted { name, slot, nodes, entries } => {
                begin(out, KIND_ADOPTED, &name);
                out.extend_from_slice(&slot.0.to_le_bytes());
                out.extend_from_slice(&nodes.to_le_bytes());
                out.extend_from_slice(&entries.to_le_bytes());
            }
            SplitRecord::Linked { name } => begin(out, KIND_LINKED, &name),
            SplitRecord::Applied { name, slot, right, boundary, high, freed } => {
                begin(out, KIND_APPLIED, &name);
                out.extend_from_slice(&slot.0.to_le_bytes());
                out.extend_from_slice(&right.0.to_le_bytes());
                out.push(boundary.len.to_le_bytes()[0]);
                boundary.nodes().iter().for_each(|node| out.extend_from_slice(&node.0.to_le_bytes()));
                encode_key(high, out);
                out.extend_from_slice(&freed.first.to_le_bytes());
                out.extend_from_slice(freed.bytes);
            }
            SplitRecord::Opened { name } => begin(out, KIND_OPENED, &name),
            SplitRecord::Finished { name } => begin(out, KIND_FINISHED, &name),
            SplitRecord::Aborted { name } => begin(out, KIND_ABORTED, &name),
            SplitRecord::Discarded { name, slot } => {
                begin(out, KIND_DISCARDED, &name);
                out.extend_from_slice(&slot.0.to_le_bytes());
            }
            SplitRecord::Retired { name, slot } => {
                begin(out, KIND_RETIRED, &name);
                out.extend_from_slice(&slot.0.to_le_bytes());
            }
        }
    }

    /// Reads what follows the kind byte.
    pub(crate) fn decode(kind: u8, mut fields: Fields<'a>) -> Result<SplitRecord<'a>, RecordError> {
        if matches!(kind, KIND_START | KIND_MERGE) {
            let [slot, target, target_slot] = [fields.u32()?, fields.u32()?, fields.u32()?];
            let (slot, target, target_slot) = (SlotIndex(slot), PairId(target), SlotIndex(target_slot));
            let key = fields.key()?;
            let record = match kind {
                KIND_MERGE => SplitRecord::Merge { slot, key, target, target_slot },
                _ => SplitRecord::Start { slot, key, target, target_slot },
            };
            return fields.end().map(|()| record);
        }
        let name = fields.name()?;
        let record = match kind {
            KIND_ADOPT | KIND_ABSORB => {
                let (slot, right) = (SlotIndex(fields.u32()?), fields.pointer()?);
                let (low, high, kept) = (fields.key()?, fields.key_option()?, fields.rest());
                return Ok(match kind {
                    KIND_ABSORB => SplitRecord::Absorb { name, slot, low, high, right, kept },
                    _ => SplitRecord::Adopt { name, slot, low, high, right, kept },
                });
            }
            KIND_ADOPTED => {
                let (slot, nodes) = (SlotIndex(fields.u32()?), fields.u32()?);
                SplitRecord::Adopted { name, slot, nodes, entries: fields.u64()? }
            }
            KIND_LINKED => SplitRecord::Linked { name },
            KIND_APPLIED => return SplitRecord::decode_applied(name, fields),
            KIND_OPENED => SplitRecord::Opened { name },
            KIND_FINISHED => SplitRecord::Finished { name },
            KIND_ABORTED => SplitRecord::Aborted { name },
            KIND_DISCARDED => SplitRecord::Discarded { name, slot: SlotIndex(fields.u32()?) },
            KIND_RETIRED => SplitRecord::Retired { name, slot: SlotIndex(fields.u32()?) },
            value => return Err(RecordError::Unknown { offset: 0, value }),
        };
        fields.end().map(|()| record)
    }

    fn decode_applied(name: SplitName, mut fields: Fields<'a>) -> Result<SplitRecord<'a>, RecordError> {
        let (slot, right) = (SlotIndex(fields.u32()?), fields.pointer()?);
        let offset = fields.at;
        let count = fields.u8()?;
        let mut nodes = [NodeIndex::ROOT; BOUNDARY_NODES_MAX];
        let wrong = RecordError::Unknown { offset, value: count };
        for node in nodes.get_mut(..count.into()).ok_or(wrong)? {
            *node = NodeIndex(fields.u32()?);
        }
        let boundary = BoundaryNodes::new(&nodes[..count.into()]).ok_or(wrong)?;
        let high = fields.key()?;
        let first = fields.u32()?;
        Ok(SplitRecord::Applied {
            name,
            slot,
            right,
            boundary,
            high,
            freed: NodeBits { first, bytes: fields.rest() },
        })
    }
}

fn begin(out: &mut Vec<u8>, kind: u8, name: &SplitName) {
    out.push(kind);
    name.encode(out);
}

#[cfg(test)]
mod tests {
    use cell_terms::{Csn, Epoch, RegionId, Root};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::record::NodeRecord;
    use crate::split::SlotUse;

    const NAME: SplitName = SplitName { pair: PairId(1), epoch: Epoch(2), csn: Csn(0x0102_0304_0506_0708) };
    const SLOT: SlotIndex = SlotIndex(9);

    /// One record of each kind, and its bytes.
    fn records() -> Vec<(NodeRecord<'static>, Vec<u8>)> {
        let name = [1, 0, 0, 0, 2, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        let slot = [9, 0, 0, 0];
        let right = Pointer::new(RegionId(4), 0x1000);
        let right_bytes = [0, 0x10, 0, 0, 0, 4, 0, 0];
        let boundary = BoundaryNodes::new(&[NodeIndex(0), NodeIndex(7)]).unwrap();
        let freed = NodeBits { first: 16, bytes: &[0x81, 0, 1] };
        let (target, target_slot) = (PairId(3), SlotIndex(5));
        let kept = &[0xAA, 0xBB][..];
        let split = |record, parts: &[&[u8]]| (NodeRecord::Split(record), parts.concat());
        let start = SplitRecord::Start { slot: SLOT, key: b"mid", target, target_slot };
        let merge = SplitRecord::Merge { slot: SLOT, key: b"mid", target, target_slot };
        let absorb = SplitRecord::Absorb { name: NAME, slot: SLOT, low: b"mid", high: None, right, kept };
        let adopt = |high| SplitRecord::Adopt { name: NAME, slot: SLOT, low: b"mid", high, right, kept };
        let applied = SplitRecord::Applied { name: NAME, slot: SLOT, right, boundary, high: b"mid", freed };
        let adopted = SplitRecord::Adopted { name: NAME, slot: SLOT, nodes: 300, entries: 4000 };
        vec![
            split(start, &[&[3], &slot, &[3, 0, 0, 0, 5, 0, 0, 0], &[3, 0], b"mid"]),
            split(
                adopt(Some(b"z")),
                &[&[4], &name, &slot, &right_bytes, &[3, 0], b"mid", &[1, 0], b"z", kept],
            ),
            split(adopt(None), &[&[4], &name, &slot, &right_bytes, &[3, 0], b"mid", &[0xFF, 0xFF], kept]),
            split(adopted, &[&[5], &name, &slot, &[44, 1, 0, 0], &[0xA0, 15, 0, 0, 0, 0, 0, 0]]),
            split(SplitRecord::Linked { name: NAME }, &[&[6], &name]),
            split(
                applied,
                &[
                    &[7],
                    &name,
                    &slot,
                    &right_bytes,
                    &[2, 0, 0, 0, 0, 7, 0, 0, 0],
                    &[3, 0],
                    b"mid",
                    &[16, 0, 0, 0, 0x81, 0, 1],
                ],
            ),
            split(SplitRecord::Opened { name: NAME }, &[&[8], &name]),
            split(SplitRecord::Finished { name: NAME }, &[&[9], &name]),
            split(SplitRecord::Aborted { name: NAME }, &[&[10], &name]),
            split(SplitRecord::Discarded { name: NAME, slot: SLOT }, &[&[11], &name, &slot]),
            split(merge, &[&[14], &slot, &[3, 0, 0, 0, 5, 0, 0, 0], &[3, 0], b"mid"]),
            split(absorb, &[&[15], &name, &slot, &right_bytes, &[3, 0], b"mid", &[0xFF, 0xFF], kept]),
            split(SplitRecord::Retired { name: NAME, slot: SLOT }, &[&[17], &name, &slot]),
            (NodeRecord::RootSet(Root::router(right)), vec![12, 1, 0x10, 0, 0, 0, 4, 0, 0]),
            (NodeRecord::SlotUse { slot: SLOT, used: SlotUse::Free }, vec![13, 9, 0, 0, 0, 0]),
            (NodeRecord::SlotUse { slot: SLOT, used: SlotUse::Leaf }, vec![13, 9, 0, 0, 0, 1]),
            (NodeRecord::SlotUse { slot: SLOT, used: SlotUse::Router }, vec![13, 9, 0, 0, 0, 2]),
        ]
    }

    #[test]
    fn records_of_splits_have_the_golden_bytes() {
        for (record, golden) in records() {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(bytes, golden, "{record:?}");
            assert_eq!(NodeRecord::decode(&golden), Ok(record));
        }
    }

    #[test]
    fn record_cut_short_or_too_long_is_refused() {
        for (record, bytes) in records() {
            // The last field of these goes to the record's end, whatever its length.
            let open_end = match record {
                NodeRecord::Split(SplitRecord::Adopt { kept, .. } | SplitRecord::Absorb { kept, .. }) => {
                    kept.len()
                }
                NodeRecord::Split(SplitRecord::Applied { freed, .. }) => freed.bytes.len(),
                _ => 0,
            };
            for length in 0..bytes.len() - open_end {
                assert!(NodeRecord::decode(&bytes[..length]).is_err(), "{record:?} of {length} bytes");
            }
            if open_end == 0 {
                assert!(NodeRecord::decode(&[&*bytes, &[0]].concat()).is_err(), "{record:?} and a byte");
            }
        }
    }

    #[test]
    fn record_without_boundary_nodes_or_with_too_many_is_refused() {
        let (_, bytes) = records().swap_remove(5);
        let count = 1 + 16 + 4 + 8;
        assert_eq!(bytes[count], 2);
        for wrong in [0, 17, 255] {
            let mut bytes = bytes.clone();
            bytes[count] = wrong;
            let refused = RecordError::Unknown { offset: count, value: wrong };
            assert_eq!(NodeRecord::decode(&bytes), Err(refused));
        }
        assert_eq!((BoundaryNodes::new(&[]), BoundaryNodes::new(&[NodeIndex(0); 17])), (None, None));
        assert_eq!(
            NodeRecord::decode(&[13, 9, 0, 0, 0, 3]),
            Err(RecordError::Unknown { offset: 5, value: 3 })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_a_record_of_these_bytes_or_to_an_error(
            kind in 3..=13_u8, rest in vec(any::<u8>(), 0..80)
        ) {
            let bytes = [&[kind][..], &rest].concat();
            if let Ok(record) = NodeRecord::decode(&bytes) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn damaged_records_never_panic(which in 0..14_usize, at in 0..60_usize, value in any::<u8>()) {
            let (_, mut bytes) = records().swap_remove(which);
            let at = at % bytes.len();
            bytes[at] = value;
            if let Ok(NodeRecord::Split(SplitRecord::Applied { freed, .. })) = NodeRecord::decode(&bytes) {
                prop_assert!(freed.iter().count() <= freed.len());
            }
        }
    }
}
