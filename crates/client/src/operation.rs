//! What a client can be asked to do.

use cell_protocol::header::RequestHeader;
use cell_protocol::write::put_value_bytes_max;
use cell_protocol::{
    Bound, Condition, Delete, EncodeError, KeysWriter, Put, PutBegin, Request, RequestKind, Scan, WriteName,
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

/// Names the slot of an operation that a client holds.
pub(crate) type OperationSlot = u16;

/// Where a key stands in an encoded request: begin and end.
pub(crate) type KeySpan = (u32, u32);

/// Which keys decide to which node an operation goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RoutingKey {
    /// None: it is about a node.
    #[default]
    Node,
    /// The lowest of all.
    First,
    /// This one.
    At(KeySpan),
    /// Those just below this one.
    Below(KeySpan),
    /// The highest of all.
    Last,
    /// Those of a multi-get, each its own node.
    Many,
}

/// An operation made ready for sending; id and name are stamped in with each attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// The kind that is sent.
    pub(crate) kind: RequestKind,
    pub(crate) routing_key: RoutingKey,
}

const UNNAMED: WriteName =
    WriteName { session: SessionId(0), number: OperationNumber(0), floor: OperationNumber(0) };

/// Who is to do a read that is submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhoSearches {
    /// That is not decided.
    #[default]
    Undecided,
    /// The client.
    Client,
    /// The server.
    Server,
}

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

    /// Encodes into `message`; a value that does not fit goes to `value` and is streamed. `keys` gets the
    /// places of a multi-get's keys in the message.
    pub(crate) fn prepare(
        &self,
        message: &mut Vec<u8>,
        value: &mut Vec<u8>,
        keys: &mut Vec<KeySpan>,
    ) -> Result<Prepared, EncodeError> {
        message.clear();
        value.clear();
        keys.clear();
        // Key and value come last in their messages: how long they are.
        let (request, key_len, behind) = match *self {
            Operation::Search { key } => (Request::Search { key }, Some(key.len()), 0),
            Operation::Get { key } => (Request::Get { key }, Some(key.len()), 0),
            Operation::Put { key, value, condition } if value.len() <= put_value_bytes_max(key.len()) => {
                let put = Put { name: UNNAMED, condition, key, value };
                (Request::Put(put), Some(key.len()), value.len())
            }
            Operation::Put { key, value: whole, condition } => {
                value.extend_from_slice(whole);
                (Request::PutBegin(put_begin(key, whole, condition)?), Some(key.len()), 0)
            }
            Operation::Delete { key, condition } => {
                (Request::Delete(Delete { name: UNNAMED, condition, key }), Some(key.len()), 0)
            }
            Operation::MultiGet { keys: wanted } => {
                encode_keys(wanted.iter().copied(), message, keys)?;
                return Ok(Prepared { kind: RequestKind::MultiGet, routing_key: RoutingKey::Many });
            }
            Operation::Scan(scan) => (Request::Scan(scan), None, 0),
            Operation::Status => (Request::Status, None, 0),
            Operation::Tree { from } => (Request::Tree { from }, None, 0),
            Operation::Table { from } => (Request::Table { from }, None, 0),
            Operation::Check => (Request::Check, None, 0),
        };
        request.encode(RequestHeader::default(), message)?;
        let end = message.len() - behind;
        let routing_key = match (key_len, self) {
            (Some(len), _) => RoutingKey::At(span(end - len, end)),
            (None, Operation::Scan(scan)) => first_key(scan, end),
            (None, _) => RoutingKey::Node,
        };
        Ok(Prepared { kind: request.kind(), routing_key })
    }
}

fn span(begin: usize, end: usize) -> KeySpan {
    (u32::try_from(begin).unwrap_or(u32::MAX), u32::try_from(end).unwrap_or(u32::MAX))
}

/// Where a scan begins; its start key and then its end key stand at the end of its message.
fn first_key(scan: &Scan<'_>, end: usize) -> RoutingKey {
    let end_at = end - scan.end.key().map_or(0, <[u8]>::len);
    let start_at = end_at - scan.start.key().map_or(0, <[u8]>::len);
    match (scan.reverse, scan.start, scan.end) {
        (false, Bound::Unbounded, _) => RoutingKey::First,
        (false, ..) => RoutingKey::At(span(start_at, end_at)),
        (true, _, Bound::Unbounded) => RoutingKey::Last,
        (true, _, Bound::Included(_)) => RoutingKey::At(span(end_at, end)),
        (true, _, Bound::Excluded(_)) => RoutingKey::Below(span(end_at, end)),
    }
}

fn put_begin<'a>(key: &'a [u8], value: &[u8], condition: Condition) -> Result<PutBegin<'a>, EncodeError> {
    let len = value.len();
    let value_len = u32::try_from(len).map_err(|_| EncodeError::TooLong { len })?;
    Ok(PutBegin { name: UNNAMED, condition, key, value_len, value_crc: crate::crc::crc(value) })
}

/// Encodes a multi-get of these keys; `spans` gets their places in the message.
pub(crate) fn encode_keys<'k>(
    keys: impl Iterator<Item = &'k [u8]>,
    message: &mut Vec<u8>,
    spans: &mut Vec<KeySpan>,
) -> Result<(), EncodeError> {
    let mut writer = KeysWriter::begin(RequestHeader::default(), message)?;
    for key in keys {
        writer.push(key)?;
        let end = writer.message_bytes();
        spans.push(span(end - key.len(), end));
    }
    writer.finish();
    Ok(())
}
