//! The region table as a node knows it: which pair is where, in what state, under which epoch.
//!
//! Request: number of the first row that is wanted `u32`, reserved 4.
//!
//! Table reply, after the reply header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | revision: grows with each change; rows of two revisions are not of one table |
//! | 8 | 4 | rows in all |
//! | 12 | 2 | rows in this reply |
//! | 14 | 2 | reserved, zero |
//! | 16 | | for each row: |
//! | +0 | 4 | pair id; 0: a living node that owns no pair |
//! | +4 | 4 | node id |
//! | +8 | 8 | owner's incarnation; 0: none |
//! | +16 | 4 | epoch |
//! | +20 | 1 | state: 1 serving, 2 read-only, 3 recovering, 4 unavailable, 5 new, 6 released |
//! | +21 | 1 | reserved, zero |
//! | +22 | 2 | length of the fabric address, at most [`ADDRESS_BYTES_MAX`] |
//! | +24 | 2 | length of the HTTP address, likewise |
//! | +26 | 6 | reserved, zero |
//! | +32 | | fabric address, HTTP address (UTF-8); empty: not known |
//!
//! It is advice, as a hint is: who owns a pair is decided in the coordinator.

use cell_terms::{Epoch, Incarnation, NodeId, PairId};

use crate::cursor::{Reader, Writer};
use crate::header::REPLY_HEADER_BYTES;
use crate::wire_enum::wire_enum;
use crate::{DecodeError, EncodeError, MESSAGE_BYTES_MAX};

const FIXED_BYTES: usize = 16;
const ROW_FIXED_BYTES: usize = 32;

/// Longest address in a row.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// So many rows fit one reply, whatever their addresses.
pub const TABLE_ROWS_MAX: usize =
    (MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES - FIXED_BYTES) / (ROW_FIXED_BYTES + 2 * ADDRESS_BYTES_MAX);

const _: () = assert!(TABLE_ROWS_MAX >= 100 && TABLE_ROWS_MAX <= u16::MAX as usize);

wire_enum! {
    /// What can be done with a pair.
    pub enum OwnedState: u8 {
        /// Its owner answers.
        Serving = 1,
        /// Its owner is restoring it.
        Recovering = 3,
        /// Not served until an operator or more memory comes.
        Unavailable = 4,
        /// Never served yet.
        New = 5,
        /// Its owner has gone away cleanly; nobody has taken it yet.
        Released = 6,
        /// Its owner has died; nobody has taken it yet, or has room for it. The address is the dead one's.
        Orphaned = 7,
    }
}

/// A pair and its owner, or a node without a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRow<'a> {
    /// The pair; 0 for a living node that owns none.
    pub pair: PairId,
    /// The owner's node, or the last owner's.
    pub node: NodeId,
    /// The owner; 0 if there is none.
    pub owner: Incarnation,
    /// The pair's epoch.
    pub epoch: Epoch,
    /// What can be done with it.
    pub state: OwnedState,
    /// The owner's fabric address, as text; empty if it is not known.
    pub address: &'a str,
    /// The owner's HTTP address, as text; empty if it is not known.
    pub http: &'a str,
}

/// The table, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableReport<'a> {
    /// Grows with each change; 0 as long as the node knows nothing.
    pub revision: u64,
    /// Rows in all.
    pub rows_all: u32,
    /// The rows from the one that was asked for on.
    pub rows: TableRows<'a>,
}

/// The rows of a report, checked: those that arrived, or those to be sent.
#[derive(Clone, Copy, Debug)]
pub enum TableRows<'a> {
    /// Still as they arrived.
    Wire(
        /// Checked rows.
        WireTable<'a>,
    ),
    /// To be sent.
    List(&'a [TableRow<'a>]),
}

/// Encoded rows that were checked on arrival.
#[derive(Clone, Copy, Debug)]
pub struct WireTable<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> TableRows<'a> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            TableRows::Wire(wire) => wire.count,
            TableRows::List(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = TableRow<'a>> + use<'a> {
        let (wire, list): (&'a [u8], &'a [TableRow<'a>]) = match *self {
            TableRows::Wire(WireTable { bytes, .. }) => (bytes, &[]),
            TableRows::List(list) => (&[], list),
        };
        let mut reader = Reader::new(wire);
        let decoded = std::iter::from_fn(move || {
            if reader.rest().is_empty() { None } else { TableRow::decode(&mut reader).ok() }
        });
        decoded.chain(list.iter().copied())
    }
}

impl PartialEq for TableRows<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for TableRows<'_> {}

impl<'a> TableRow<'a> {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u32(self.pair.0)?;
        writer.u32(self.node.0)?;
        writer.u64(self.owner.0)?;
        writer.u32(self.epoch.0)?;
        writer.u8(self.state.code())?;
        writer.reserved(1)?;
        writer.text_length(self.address.as_bytes(), ADDRESS_BYTES_MAX)?;
        writer.text_length(self.http.as_bytes(), ADDRESS_BYTES_MAX)?;
        writer.reserved(6)?;
        writer.bytes(self.address.as_bytes())?;
        writer.bytes(self.http.as_bytes())
    }

    fn decode(reader: &mut Reader<'a>) -> Result<TableRow<'a>, DecodeError> {
        let (pair, node) = (PairId(reader.u32()?), NodeId(reader.u32()?));
        let (owner, epoch) = (Incarnation(reader.u64()?), Epoch(reader.u32()?));
        let code = reader.u8()?;
        let state = OwnedState::from_code(code).ok_or_else(|| reader.bad_tag(code))?;
        reader.reserved(1)?;
        let (address_len, http_len) = (reader.u16()?, reader.u16()?);
        reader.reserved(6)?;
        let address = reader.text(address_len, ADDRESS_BYTES_MAX)?;
        let http = reader.text(http_len, ADDRESS_BYTES_MAX)?;
        Ok(TableRow { pair, node, owner, epoch, state, address, http })
    }
}

impl<'a> TableReport<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let count = self.rows.len();
        let count = u16::try_from(count).map_err(|_| EncodeError::Count { count, max: TABLE_ROWS_MAX })?;
        writer.u64(self.revision)?;
        writer.u32(self.rows_all)?;
        writer.u16(count)?;
        writer.reserved(2)?;
        self.rows.iter().try_for_each(|row| row.encode(writer))
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<TableReport<'a>, DecodeError> {
        let (revision, rows_all, count) = (reader.u64()?, reader.u32()?, reader.u16()?);
        reader.reserved(2)?;
        let rest = reader.rest();
        let begin = reader.at();
        for _ in 0..count {
            TableRow::decode(reader)?;
        }
        let bytes = &rest[..reader.at() - begin];
        let rows = TableRows::Wire(WireTable { bytes, count: usize::from(count) });
        Ok(TableReport { revision, rows_all, rows })
    }
}
