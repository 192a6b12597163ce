//! What a client needs to read a node's memory itself: the registrations of the regions that its worker owns.
//!
//! Regions reply, after the reply header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | longest permitted one-sided operation, microseconds; less than the time for which freed memory rests |
//! | 4 | 2 | count of pairs, at most [`REGION_PAIRS_MAX`] |
//! | 6 | 1 | flags: bit 0 one-sided reads are permitted |
//! | 7 | 1 | reserved, zero |
//! | 8 | 8 | number of the list |
//! | 16 | | for each pair, [`ROW_BYTES`] bytes: |
//! | +0 | 4 | pair id |
//! | +4 | 4 | epoch |
//! | +8 | 4 | node region id |
//! | +12 | 4 | extent region id |
//! | +16 | 8 | key of the node region's registration |
//! | +24 | 8 | key of the extent region's registration |
//! | +32 | 8 | node region: bytes |
//! | +40 | 8 | extent region: bytes |
//! | +48 | 8 | slot: bytes |
//! | +56 | 4 | tree node: bytes |
//! | +60 | 4 | region header: bytes |
//! | +64 | 4 | flags: bit 0 tree nodes carry their CRC-64 |
//! | +68 | 4 | reserved, zero |
//!
//! Whoever has a key and reaches the fabric can read the region. A row holds for as long as the registrations
//! do: the epoch of a registered region never changes.

use cell_terms::{Epoch, PairId, RegionId};

use crate::cursor::{Reader, Writer};
use crate::header::REPLY_HEADER_BYTES;
use crate::{DecodeError, EncodeError, MESSAGE_BYTES_MAX};

const FIXED_BYTES: usize = 16;
const PERMITTED: u8 = 1;
const NODE_CRC: u32 = 1;

/// Bytes of a pair's row.
pub const ROW_BYTES: usize = 72;

/// Most pairs that one reply lists.
pub const REGION_PAIRS_MAX: usize = (MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES - FIXED_BYTES) / ROW_BYTES;

const _: () = assert!(REGION_PAIRS_MAX >= 900 && REGION_PAIRS_MAX <= u16::MAX as usize);

/// A pair's registrations and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairRegions {
    /// The pair.
    pub pair: PairId,
    /// Its epoch, the same for as long as the registrations hold.
    pub epoch: Epoch,
    /// The node region.
    pub node_region: RegionId,
    /// The extent region.
    pub extent_region: RegionId,
    /// Key of the node region's registration.
    pub node_key: u64,
    /// Key of the extent region's registration.
    pub extent_key: u64,
    /// Size of the node region, header included.
    pub node_region_bytes: u64,
    /// Size of the extent region, header included.
    pub extent_region_bytes: u64,
    /// Size of a slot.
    pub slot_bytes: u64,
    /// Size of a tree node.
    pub tree_node_bytes: u32,
    /// Size of a region's header.
    pub header_bytes: u32,
    /// Whether tree nodes carry their CRC-64.
    pub node_crc: bool,
}

/// The registrations of a worker's regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionsReply<'a> {
    /// Whether clients may read them.
    pub reads_permitted: bool,
    /// The longest permitted one-sided operation. What a longer one read may have been reused meanwhile and
    /// is thrown away.
    pub one_sided_max_us: u32,
    /// The list's number in the life of its worker. It rises when a registration leaves, never when one
    /// comes. A reply's trust is about the list that its header names, as of when it left: this one may have
    /// been made before.
    pub list: u64,
    /// The pairs.
    pub pairs: RegionRows<'a>,
}

/// The rows of a regions reply, checked: those that arrived, or those to be sent.
#[derive(Clone, Copy, Debug)]
pub enum RegionRows<'a> {
    /// Still as they arrived.
    Wire(
        /// A whole number of checked rows.
        WireRows<'a>,
    ),
    /// To be sent.
    List(&'a [PairRegions]),
}

/// Encoded rows that were checked on arrival.
#[derive(Clone, Copy, Debug)]
pub struct WireRows<'a>(&'a [u8]);

impl<'a> RegionRows<'a> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            RegionRows::Wire(WireRows(bytes)) => bytes.len() / ROW_BYTES,
            RegionRows::List(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = PairRegions> + use<'a> {
        let (wire, list): (&'a [u8], &'a [PairRegions]) = match *self {
            RegionRows::Wire(WireRows(bytes)) => (bytes, &[]),
            RegionRows::List(list) => (&[], list),
        };
        let decoded =
            wire.chunks_exact(ROW_BYTES).map_while(|row| PairRegions::decode(&mut Reader::new(row)).ok());
        decoded.chain(list.iter().copied())
    }
}

impl PartialEq for RegionRows<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for RegionRows<'_> {}

impl PairRegions {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        for id in [self.pair.0, self.epoch.0, self.node_region.0, self.extent_region.0] {
            writer.u32(id)?;
        }
        writer.u64(self.node_key)?;
        writer.u64(self.extent_key)?;
        writer.u64(self.node_region_bytes)?;
        writer.u64(self.extent_region_bytes)?;
        writer.u64(self.slot_bytes)?;
        writer.u32(self.tree_node_bytes)?;
        writer.u32(self.header_bytes)?;
        writer.u32(if self.node_crc { NODE_CRC } else { 0 })?;
        writer.reserved(4)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<PairRegions, DecodeError> {
        let (pair, epoch) = (PairId(reader.u32()?), Epoch(reader.u32()?));
        let (node_region, extent_region) = (RegionId(reader.u32()?), RegionId(reader.u32()?));
        let (node_key, extent_key) = (reader.u64()?, reader.u64()?);
        let (node_region_bytes, extent_region_bytes) = (reader.u64()?, reader.u64()?);
        let slot_bytes = reader.u64()?;
        let (tree_node_bytes, header_bytes, flags) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if flags & !NODE_CRC != 0 {
            return Err(reader.bad_tag(flags));
        }
        reader.reserved(4)?;
        Ok(PairRegions {
            pair,
            epoch,
            node_region,
            extent_region,
            node_key,
            extent_key,
            node_region_bytes,
            extent_region_bytes,
            slot_bytes,
            tree_node_bytes,
            header_bytes,
            node_crc: flags == NODE_CRC,
        })
    }
}

impl<'a> RegionsReply<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let count = self.pairs.len();
        let short = u16::try_from(count).ok().filter(|_| count <= REGION_PAIRS_MAX);
        writer.u32(self.one_sided_max_us)?;
        writer.u16(short.ok_or(EncodeError::Count { count, max: REGION_PAIRS_MAX })?)?;
        writer.u8(if self.reads_permitted { PERMITTED } else { 0 })?;
        writer.reserved(1)?;
        writer.u64(self.list)?;
        self.pairs.iter().try_for_each(|row| row.encode(writer))
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<RegionsReply<'a>, DecodeError> {
        let (one_sided_max_us, count, flags) = (reader.u32()?, reader.u16()?, reader.u8()?);
        if flags & !PERMITTED != 0 {
            return Err(reader.bad_tag(flags));
        }
        reader.reserved(1)?;
        let list = reader.u64()?;
        let bytes = reader.take(usize::from(count) * ROW_BYTES)?;
        for row in bytes.chunks_exact(ROW_BYTES) {
            PairRegions::decode(&mut Reader::new(row))?;
        }
        let pairs = RegionRows::Wire(WireRows(bytes));
        Ok(RegionsReply { reads_permitted: flags == PERMITTED, one_sided_max_us, list, pairs })
    }
}
