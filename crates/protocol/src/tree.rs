//! The shape of a node's tree: its meganodes, in key order, and the splits under way.
//!
//! Request: number of the first meganode that is wanted `u32`, reserved 4.
//!
//! Tree reply, after the reply header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | meganodes in all |
//! | 4 | 2 | meganodes in this reply, at most [`TREE_ROWS_MAX`] |
//! | 6 | 2 | reserved, zero |
//! | 8 | 8 | the root's word |
//! | 16 | 8 | splits started since the start |
//! | 24 | 8 | of them, finished |
//! | 32 | 8 | of them, failed |
//! | 40 | 8 | of them, under way |
//! | 48 | | for each meganode, 64 bytes: |
//! | +0 | 4 | pair id |
//! | +4 | 4 | slot |
//! | +8 | 1 | use: 1 entries, 2 router, 3 entries that are being adopted |
//! | +9 | 1 | levels |
//! | +10 | 2 | length of the low key |
//! | +12 | 4 | tree nodes in use |
//! | +16 | 4 | tree nodes of the slot |
//! | +20 | 4 | reserved, zero |
//! | +24 | 8 | entries |
//! | +32 | 32 | the low key's first bytes, then zeros |

use cell_terms::{PairId, SlotIndex};

use crate::cursor::{Reader, Writer};
use crate::header::REPLY_HEADER_BYTES;
use crate::{DecodeError, EncodeError, MESSAGE_BYTES_MAX};

const FIXED_BYTES: usize = 48;
const ROW_BYTES: usize = 64;

/// Bytes of a low key that a row has.
pub const LOW_BYTES: usize = 32;

/// Most meganodes that one reply lists.
pub const TREE_ROWS_MAX: usize = (MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES - FIXED_BYTES) / ROW_BYTES;

const _: () = assert!(TREE_ROWS_MAX >= 1_000 && TREE_ROWS_MAX <= u16::MAX as usize);

/// What a meganode holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeganodeUse {
    /// Entries.
    #[default]
    Leaf,
    /// Where the meganodes are.
    Router,
    /// Entries that are being adopted, or wait for their split to be settled.
    Adopted,
}

/// A meganode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeganodeRow {
    /// Its pair.
    pub pair: PairId,
    /// Its slot.
    pub slot: SlotIndex,
    /// What it holds.
    pub used: MeganodeUse,
    /// Levels of tree nodes.
    pub height: u8,
    /// Tree nodes in use.
    pub nodes: u32,
    /// Tree nodes of its slot.
    pub nodes_all: u32,
    /// Entries.
    pub entries: u64,
    /// Length of its low key.
    pub low_len: u16,
    /// The low key's first bytes, then zeros.
    pub low: [u8; LOW_BYTES],
}

/// The shape of a node's tree, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeReport<'a> {
    /// Meganodes in all.
    pub meganodes: u32,
    /// The root's word; see `cell_terms::Root`.
    pub root: u64,
    /// Splits since the start: started, finished, failed, under way.
    pub splits: [u64; 4],
    /// The meganodes from the one that was asked for on.
    pub rows: TreeRows<'a>,
}

/// The rows of a tree report, checked: those that arrived, or those to be sent.
#[derive(Clone, Copy, Debug)]
pub enum TreeRows<'a> {
    /// Still as they arrived.
    Wire(
        /// A whole number of checked rows.
        WireMeganodes<'a>,
    ),
    /// To be sent.
    List(&'a [MeganodeRow]),
}

/// Encoded rows that were checked on arrival.
#[derive(Clone, Copy, Debug)]
pub struct WireMeganodes<'a>(&'a [u8]);

impl<'a> TreeRows<'a> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            TreeRows::Wire(WireMeganodes(bytes)) => bytes.len() / ROW_BYTES,
            TreeRows::List(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = MeganodeRow> + use<'a> {
        let (wire, list): (&'a [u8], &'a [MeganodeRow]) = match *self {
            TreeRows::Wire(WireMeganodes(bytes)) => (bytes, &[]),
            TreeRows::List(list) => (&[], list),
        };
        let decoded =
            wire.chunks_exact(ROW_BYTES).map_while(|row| MeganodeRow::decode(&mut Reader::new(row)).ok());
        decoded.chain(list.iter().copied())
    }
}

impl PartialEq for TreeRows<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for TreeRows<'_> {}

impl MeganodeRow {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u32(self.pair.0)?;
        writer.u32(self.slot.0)?;
        writer.u8(match self.used {
            MeganodeUse::Leaf => 1,
            MeganodeUse::Router => 2,
            MeganodeUse::Adopted => 3,
        })?;
        writer.u8(self.height)?;
        writer.u16(self.low_len)?;
        writer.u32(self.nodes)?;
        writer.u32(self.nodes_all)?;
        writer.reserved(4)?;
        writer.u64(self.entries)?;
        writer.bytes(&self.low)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<MeganodeRow, DecodeError> {
        let (pair, slot) = (PairId(reader.u32()?), SlotIndex(reader.u32()?));
        let (used, height) = (reader.u8()?, reader.u8()?);
        let used = match used {
            1 => MeganodeUse::Leaf,
            2 => MeganodeUse::Router,
            3 => MeganodeUse::Adopted,
            _ => return Err(reader.bad_tag(used)),
        };
        let low_len = reader.u16()?;
        let (nodes, nodes_all) = (reader.u32()?, reader.u32()?);
        reader.reserved(4)?;
        let entries = reader.u64()?;
        let low = reader.array()?;
        Ok(MeganodeRow { pair, slot, used, height, nodes, nodes_all, entries, low_len, low })
    }
}

impl<'a> TreeReport<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let count = self.rows.len();
        let count = u16::try_from(count).map_err(|_| EncodeError::Count { count, max: TREE_ROWS_MAX })?;
        writer.u32(self.meganodes)?;
        writer.u16(count)?;
        writer.reserved(2)?;
        writer.u64(self.root)?;
        self.splits.iter().try_for_each(|count| writer.u64(*count))?;
        self.rows.iter().try_for_each(|row| row.encode(writer))
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<TreeReport<'a>, DecodeError> {
        let (meganodes, count) = (reader.u32()?, reader.u16()?);
        reader.reserved(2)?;
        let root = reader.u64()?;
        let splits = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
        let bytes = reader.take(usize::from(count) * ROW_BYTES)?;
        for row in bytes.chunks_exact(ROW_BYTES) {
            MeganodeRow::decode(&mut Reader::new(row))?;
        }
        Ok(TreeReport { meganodes, root, splits, rows: TreeRows::Wire(WireMeganodes(bytes)) })
    }
}
