//! What can be wrong with bytes, or with what someone wants to turn into bytes.

use crate::wire_enum::wire_enum;
use crate::{KEY_BYTES_MAX, MESSAGE_BYTES_MAX};

wire_enum! {
    /// What is wrong with a message, as one byte for [`crate::Refusal::Malformed`].
    pub enum Malformed: u8 {
        /// The message ends before its body does.
        Truncated = 1,
        /// Bytes follow the body.
        Trailing = 2,
        /// The message is longer than any may be.
        TooLong = 3,
        /// No message has this kind.
        Kind = 4,
        /// A reserved byte is not zero.
        Reserved = 5,
        /// A tag, flag or code has no meaning.
        Tag = 6,
        /// A key is longer than the wire permits.
        Key = 7,
        /// A count is out of range or does not match what follows.
        Count = 8,
        /// Text is not UTF-8 or too long.
        Text = 9,
        /// The hello does not begin with the magic: something else speaks here.
        Magic = 10,
        /// Session, number or floor cannot be: zero, or a floor above its number.
        WriteName = 11,
        /// A protocol version that this side does not speak.
        Version = 12,
        /// A message that makes no sense now, though its bytes are right: a second hello, a chunk that does
        /// not follow the last one, more bytes than there was credit for. No decoder says this; servers do.
        Order = 13,
    }
}

/// Why bytes are not a message. The peer is broken, hostile or speaks another version: a server answers
/// [`crate::Refusal::Malformed`] and may close the connection, a client closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message ends before its body does.
    #[error("the message ends at byte {len}, a field needs {needed} bytes")]
    Truncated {
        /// Where the field ends.
        needed: usize,
        /// Bytes in the message.
        len: usize,
    },
    /// Bytes follow the body.
    #[error("{count} bytes follow the body of the message")]
    Trailing {
        /// How many.
        count: usize,
    },
    /// The message is longer than any may be.
    #[error("a message of {len} bytes, the longest is {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// No message has this kind.
    #[error("no message has kind {kind}")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// A reserved byte is not zero.
    #[error("a reserved byte before byte {at} is not zero")]
    Reserved {
        /// Where the reserved field ends.
        at: usize,
    },
    /// A tag, flag or code has no meaning.
    #[error("value {value} before byte {at} has no meaning")]
    Tag {
        /// What it is.
        value: u64,
        /// Where the field ends.
        at: usize,
    },
    /// A key is longer than the wire permits.
    #[error("a key of {len} bytes, the longest on the wire is {KEY_BYTES_MAX}")]
    Key {
        /// Its length.
        len: usize,
    },
    /// A count is out of range or does not match what follows.
    #[error("a count or length of {count} where at most {max} are permitted")]
    Count {
        /// The count.
        count: u64,
        /// The largest permitted.
        max: u64,
    },
    /// Text is not UTF-8 or too long.
    #[error("text before byte {at} is not UTF-8 or too long")]
    Text {
        /// Where the text ends.
        at: usize,
    },
    /// The hello does not begin with the magic: something else speaks here.
    #[error("the hello does not begin with Cell's magic: another service or a broken peer")]
    Magic,
    /// Session, number or floor cannot be.
    #[error(
        "a write of session {session}, number {number}, floor {floor}: none is zero, the floor not above"
    )]
    WriteName {
        /// Session.
        session: u64,
        /// Number.
        number: u64,
        /// Floor.
        floor: u64,
    },
    /// A protocol version that this crate does not speak. A server answers with the versions that it speaks.
    #[error("the peer speaks protocol version {version}")]
    Version {
        /// The peer's version.
        version: u16,
    },
}

impl DecodeError {
    /// The error as the byte that a refusal carries.
    #[must_use]
    pub fn what(&self) -> Malformed {
        match self {
            DecodeError::Truncated { .. } => Malformed::Truncated,
            DecodeError::Trailing { .. } => Malformed::Trailing,
            DecodeError::TooLong { .. } => Malformed::TooLong,
            DecodeError::Kind { .. } => Malformed::Kind,
            DecodeError::Reserved { .. } => Malformed::Reserved,
            DecodeError::Tag { .. } => Malformed::Tag,
            DecodeError::Key { .. } => Malformed::Key,
            DecodeError::Count { .. } => Malformed::Count,
            DecodeError::Text { .. } => Malformed::Text,
            DecodeError::Magic => Malformed::Magic,
            DecodeError::WriteName { .. } => Malformed::WriteName,
            DecodeError::Version { .. } => Malformed::Version,
        }
    }
}

/// Why something cannot be said on the wire. The output is left as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message would be longer than the fabric delivers; a long value goes as a stream.
    #[error("the message would have {len} bytes, the longest is {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// A key is longer than the wire permits.
    #[error("a key of {len} bytes, the longest on the wire is {KEY_BYTES_MAX}")]
    Key {
        /// Its length.
        len: usize,
    },
    /// A name, token or text is longer than its limit.
    #[error("a text of {len} bytes, the longest permitted is {max}")]
    Text {
        /// Its length.
        len: usize,
        /// The longest permitted.
        max: usize,
    },
    /// More items than one message may list.
    #[error("{count} items, one message lists at most {max}")]
    Count {
        /// How many.
        count: usize,
        /// The most permitted.
        max: usize,
    },
}
