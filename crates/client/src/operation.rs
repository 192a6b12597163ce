//! What a client can be asked to do.

use cell_protocol::header::RequestHeader;
use cell_protocol::write::put_value_bytes_max;
use cell_protocol::{
    Condition, Delete, EncodeError, KeysWriter, Put, PutBegin, Request, RequestKind, Scan, WriteName,
};
use cell_terms::{OperationNumber, SessionId};

/// Names a submitted operation in its completion. Never reused within a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// An operation to submit; what it borrows is copied into a message at once.
///
/// Operations that are outstanding together are concurrent: the server may do them in any order. One that
/// must follow another is submitted after the other's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Whether there is an entry.
    Search {
        /// The key.
        key: &'a [u8],
    },
    /// An entry, of any length.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Write an entry, of any length that the server permits.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// When to do it.
        condition: Condition,
    },
    /// Remove an entry.
    Delete {
        /// The key.
        key: &'a [u8],
        /// When to do it: always or if-version.
        condition: Condition,
    },
    /// Many entries, each as of its own moment.
    MultiGet {
        /// The keys, at most [`cell_protocol::MULTI_GET_KEYS_MAX`], and together in one message.
        keys: &'a [&'a [u8]],
    },
    /// One page of a range.
    Scan(
        /// Range and limits.
        Scan<'a>,
    ),
    /// The node's status.
    Status,
    /// The shape of the tree.
    Tree {
        /// Number of the first meganode that is wanted.
        from: u32,
    },
    /// The region table, as the node at the bootstrap link knows it.
    Table {
        /// Number of the first row that is wanted.
        from: u32,
    },
    /// Check every invariant of the worker's pairs; takes its time.
    Check,
}

/// An operation made ready for sending; id and name are stamped in with each attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// How many keys an answer must cover.
    pub(crate) keys: usize,
    /// The kind that is sent.
    pub(crate) kind: RequestKind,
    /// Where the key stands in the message, of an operation on one key.
    pub(crate) key: (u32, u32),
}

const UNNAMED: WriteName =
    WriteName { session: SessionId(0), number: OperationNumber(0), floor: OperationNumber(0) };

impl Operation<'_> {
    /// Whether it reads entries of the tree, which a client can do itself with one-sided reads.
    pub(crate) fn is_tree_read(&self) -> bool {
        matches!(
            self,
            Operation::Get { .. }
                | Operation::Search { .. }
                | Operation::MultiGet { .. }
                | Operation::Scan(_)
        )
    }

    /// Encodes into `message`; a value that does not fit goes to `value` and is streamed.
    pub(crate) fn prepare(
        &self,
        message: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Prepared, EncodeError> {
        message.clear();
        value.clear();
        // Key and value come last in their messages: how long they are.
        let (request, key_len, behind) = match *self {
            Operation::Search { key } => (Request::Search { key }, key.len(), 0),
            Operation::Get { key } => (Request::Get { key }, key.len(), 0),
            Operation::Put { key, value, condition } if value.len() <= put_value_bytes_max(key.len()) => {
                (Request::Put(Put { name: UNNAMED, condition, key, value }), key.len(), value.len())
            }
            Operation::Put { key, value: whole, condition } => {
                value.extend_from_slice(whole);
                (Request::PutBegin(put_begin(key, whole, condition)?), key.len(), 0)
            }
            Operation::Delete { key, condition } => {
                (Request::Delete(Delete { name: UNNAMED, condition, key }), key.len(), 0)
            }
            Operation::MultiGet { keys } => return prepare_keys(keys, message),
            Operation::Scan(scan) => (Request::Scan(scan), 0, 0),
            Operation::Status => (Request::Status, 0, 0),
            Operation::Tree { from } => (Request::Tree { from }, 0, 0),
            Operation::Table { from } => (Request::Table { from }, 0, 0),
            Operation::Check => (Request::Check, 0, 0),
        };
        request.encode(RequestHeader::default(), message)?;
        let end = u32::try_from(message.len() - behind).unwrap_or(u32::MAX);
        let key = (end.saturating_sub(u32::try_from(key_len).unwrap_or(u32::MAX)), end);
        Ok(Prepared { keys: 0, kind: request.kind(), key })
    }
}

fn put_begin<'a>(key: &'a [u8], value: &[u8], condition: Condition) -> Result<PutBegin<'a>, EncodeError> {
    let len = value.len();
    let value_len = u32::try_from(len).map_err(|_| EncodeError::TooLong { len })?;
    Ok(PutBegin { name: UNNAMED, condition, key, value_len, value_crc: crate::crc::crc(value) })
}

fn prepare_keys(keys: &[&[u8]], message: &mut Vec<u8>) -> Result<Prepared, EncodeError> {
    let mut writer = KeysWriter::begin(RequestHeader::default(), message)?;
    keys.iter().try_for_each(|key| writer.push(key))?;
    writer.finish();
    Ok(Prepared { keys: keys.len(), kind: RequestKind::MultiGet, key: (0, 0) })
}
