//! The hand-shake: the first request and the first reply on a connection.
//!
//! Hello, after the request header; the first 10 bytes stand where they are in every version:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, [`MAGIC`] |
//! | 8 | 2 | protocol version |
//! | 10 | 2 | length of the client's name, at most [`NAME_BYTES_MAX`] |
//! | 12 | 2 | length of the token, at most [`TOKEN_BYTES_MAX`]; zero where no token is asked for |
//! | 14 | 2 | reserved, zero |
//! | 16 | 4 | credit in bytes that each stream towards the client begins with |
//! | 20 | 4 | reserved, zero |
//! | 24 | | name (UTF-8), token |
//!
//! Hello reply, after the reply header; the first 10 bytes likewise:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 2 | protocol version, the client's |
//! | 10 | 2 | length of the server's name |
//! | 12 | 4 | node id |
//! | 16 | 8 | incarnation |
//! | 24 | 4 | longest key, bytes |
//! | 28 | 4 | longest value, bytes |
//! | 32 | 4 | most operations in flight on this connection |
//! | 36 | 4 | most streams open on this connection |
//! | 40 | 4 | most entries of a scan page |
//! | 44 | 4 | credit in bytes that each stream towards the server begins with |
//! | 48 | 4 | milliseconds after which the server closes an idle connection |
//! | 52 | 4 | reserved, zero |
//! | 56 | | server's name (UTF-8), with its version |

use cell_terms::{Incarnation, NodeId};

use crate::cursor::{Reader, Writer};
use crate::{
    DecodeError, EncodeError, NAME_BYTES_MAX, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, TOKEN_BYTES_MAX,
};

/// What both hellos begin with.
pub const MAGIC: [u8; 8] = *b"CELLWIRE";

/// The client's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The version that the client speaks.
    pub version: u16,
    /// What the client calls itself, for the server's log and console.
    pub name: &'a str,
    /// Proves the client's role; empty where none is asked for.
    pub token: &'a [u8],
    /// Credit in bytes that each stream towards the client begins with.
    pub stream_credit_bytes: u32,
}

/// What a server permits on a connection. The client keeps to it; what goes beyond is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key.
    pub key_bytes_max: u32,
    /// Longest value.
    pub value_bytes_max: u32,
    /// Most operations in flight.
    pub in_flight_max: u32,
    /// Most streams open.
    pub streams_max: u32,
    /// Most entries of a scan page.
    pub scan_entries_max: u32,
    /// Credit in bytes that each stream towards the server begins with.
    pub stream_credit_bytes: u32,
    /// The server closes a connection that was silent for so long.
    pub idle_ms: u32,
}

/// The server's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloReply<'a> {
    /// The version spoken from here on: the client's.
    pub version: u16,
    /// The node.
    pub node: NodeId,
    /// The node's life: changes with every start.
    pub incarnation: Incarnation,
    /// What the server permits.
    pub limits: Limits,
    /// What the server calls itself, with its version.
    pub name: &'a str,
}

impl<'a> Hello<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.bytes(&MAGIC)?;
        writer.u16(self.version)?;
        writer.text_length(self.name.as_bytes(), NAME_BYTES_MAX)?;
        writer.text_length(self.token, TOKEN_BYTES_MAX)?;
        writer.reserved(2)?;
        writer.u32(self.stream_credit_bytes)?;
        writer.reserved(4)?;
        writer.bytes(self.name.as_bytes())?;
        writer.bytes(self.token)
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Hello<'a>, DecodeError> {
        let version = magic_and_version(reader)?;
        let name_len = reader.u16()?;
        let token_len = reader.u16()?;
        reader.reserved(2)?;
        let stream_credit_bytes = reader.u32()?;
        reader.reserved(4)?;
        let name = reader.text(name_len, NAME_BYTES_MAX)?;
        let token = reader.take(usize::from(token_len))?;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(DecodeError::Text { at: reader.at() });
        }
        Ok(Hello { version, name, token, stream_credit_bytes })
    }
}

impl<'a> HelloReply<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.bytes(&MAGIC)?;
        writer.u16(self.version)?;
        writer.text_length(self.name.as_bytes(), NAME_BYTES_MAX)?;
        writer.u32(self.node.0)?;
        writer.u64(self.incarnation.0)?;
        self.limits.encode(writer)?;
        writer.reserved(4)?;
        writer.bytes(self.name.as_bytes())
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<HelloReply<'a>, DecodeError> {
        let version = magic_and_version(reader)?;
        let name_len = reader.u16()?;
        let node = NodeId(reader.u32()?);
        let incarnation = Incarnation(reader.u64()?);
        let limits = Limits::decode(reader)?;
        reader.reserved(4)?;
        let name = reader.text(name_len, NAME_BYTES_MAX)?;
        Ok(HelloReply { version, node, incarnation, limits, name })
    }
}

impl Limits {
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u32(self.key_bytes_max)?;
        writer.u32(self.value_bytes_max)?;
        writer.u32(self.in_flight_max)?;
        writer.u32(self.streams_max)?;
        writer.u32(self.scan_entries_max)?;
        writer.u32(self.stream_credit_bytes)?;
        writer.u32(self.idle_ms)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Limits, DecodeError> {
        Ok(Limits {
            key_bytes_max: reader.u32()?,
            value_bytes_max: reader.u32()?,
            in_flight_max: reader.u32()?,
            streams_max: reader.u32()?,
            scan_entries_max: reader.u32()?,
            stream_credit_bytes: reader.u32()?,
            idle_ms: reader.u32()?,
        })
    }
}

fn magic_and_version(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(DecodeError::Magic);
    }
    let version = reader.u16()?;
    if !(PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION).contains(&version) {
        return Err(DecodeError::Version { version });
    }
    Ok(version)
}
