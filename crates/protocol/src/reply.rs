//! Replies: kinds, and the small bodies.
//!
//! | kind | status | body, after the header |
//! |---|---|---|
//! | hello | Ok | [`crate::hello`] |
//! | session | Ok | session u64, idle milliseconds u32, reserved 4 |
//! | session-closed, alive, exists, deleted | Ok | none |
//! | written | Ok | version 16 |
//! | value | Ok | version 16, value length u32, reserved 4, value |
//! | value-begin, chunk, credit | Ok | [`crate::stream`] |
//! | values | Ok | [`crate::keys`] |
//! | page | Ok | [`crate::scan`] |
//! | status, checked | Ok | [`crate::report`] |
//! | regions | Ok | [`crate::regions`] |
//! | tree | Ok | [`crate::tree`] |
//! | table | Ok | [`crate::table`] |
//! | not-found | NotFound | none |
//! | reported | Ok | [`crate::client_report`] |
//! | elsewhere | NotOwner | [`crate::route`] |
//! | refused | any other | [`crate::refusal`] |

use cell_terms::{SessionId, Version};

use crate::cursor::{Reader, VERSION_BYTES, Writer};
use crate::header::REPLY_HEADER_BYTES;
use crate::kind::ReplyKind;
use crate::stream::{decode_credit, encode_credit};
use crate::{
    CheckReport, Chunk, ClientReportReply, DecodeError, EncodeError, HelloReply, MESSAGE_BYTES_MAX, Page,
    Refusal, RegionsReply, ReplyHeader, Route, StatusCode, StatusReport, TableReport, TreeReport, ValueBegin,
    Values,
};

const VALUE_FIXED_BYTES: usize = VERSION_BYTES + 8;

/// The longest value that fits one reply; a longer one comes as a stream.
pub const VALUE_INLINE_BYTES_MAX: usize = MESSAGE_BYTES_MAX - REPLY_HEADER_BYTES - VALUE_FIXED_BYTES;

/// A reply, borrowing from its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Answers a hello.
    Hello(HelloReply<'a>),
    /// A session was opened.
    Session {
        /// The session.
        session: SessionId,
        /// The server ends the session when it was used neither by a write nor by a keep-alive for so
        /// long; zero: never for that reason.
        idle_ms: u32,
    },
    /// A session has ended.
    SessionClosed,
    /// Answers a keep-alive: the header is what was asked for.
    Alive,
    /// There is an entry, and it is durable.
    Exists,
    /// An entry, durable.
    Value {
        /// Its version.
        version: Version,
        /// Its value.
        value: &'a [u8],
    },
    /// The write is durable.
    Written {
        /// The entry's version.
        version: Version,
    },
    /// The removal is durable.
    Deleted,
    /// Many entries; made with [`crate::ValuesWriter`].
    Values(Values<'a>),
    /// A page of a range; made with [`crate::PageWriter`].
    Page(Page<'a>),
    /// The node's status.
    Status(StatusReport<'a>),
    /// The result of a check.
    Checked(CheckReport<'a>),
    /// A value comes in chunks.
    ValueBegin(ValueBegin),
    /// A piece of the value that the header's request asked for.
    Chunk(Chunk<'a>),
    /// Leave to send more of the value that the header's request writes.
    Credit {
        /// Bytes, not zero.
        bytes: u32,
    },
    /// There is no entry, and that is durable.
    NotFound,
    /// Not done; what to do is described at [`StatusCode`].
    Refused(Refusal),
    /// The registrations of the worker's regions.
    Regions(RegionsReply<'a>),
    /// The shape of the tree.
    Tree(TreeReport<'a>),
    /// Which pair is where.
    Table(TableReport<'a>),
    /// [`Refusal::NotOwner`] with a hint: not done, and who has the key as far as the worker knows.
    Elsewhere(Route<'a>),
    /// Answers a client's report: the settings that the cluster has for it.
    Reported(ClientReportReply<'a>),
}

impl<'a> Reply<'a> {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ReplyKind {
        match self {
            Reply::Hello(_) => ReplyKind::Hello,
            Reply::Session { .. } => ReplyKind::Session,
            Reply::SessionClosed => ReplyKind::SessionClosed,
            Reply::Alive => ReplyKind::Alive,
            Reply::Exists => ReplyKind::Exists,
            Reply::Value { .. } => ReplyKind::Value,
            Reply::Written { .. } => ReplyKind::Written,
            Reply::Deleted => ReplyKind::Deleted,
            Reply::Values(_) => ReplyKind::Values,
            Reply::Page(_) => ReplyKind::Page,
            Reply::Status(_) => ReplyKind::Status,
            Reply::Checked(_) => ReplyKind::Checked,
            Reply::ValueBegin(_) => ReplyKind::ValueBegin,
            Reply::Chunk(_) => ReplyKind::Chunk,
            Reply::Credit { .. } => ReplyKind::Credit,
            Reply::NotFound => ReplyKind::NotFound,
            Reply::Refused(_) => ReplyKind::Refused,
            Reply::Elsewhere(_) => ReplyKind::Elsewhere,
            Reply::Regions(_) => ReplyKind::Regions,
            Reply::Tree(_) => ReplyKind::Tree,
            Reply::Table(_) => ReplyKind::Table,
            Reply::Reported(_) => ReplyKind::Reported,
        }
    }

    /// The status that goes with it.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Reply::NotFound => StatusCode::NotFound,
            Reply::Refused(refusal) => refusal.status(),
            Reply::Elsewhere(_) => StatusCode::NotOwner,
            _ => StatusCode::Ok,
        }
    }

    /// Appends the reply as one message to `out`.
    ///
    /// # Errors
    /// The wire cannot carry it; `out` is left as it was.
    pub fn encode(&self, header: &ReplyHeader, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut writer = Writer::new(out);
        header.encode(self.kind().code(), self.status(), &mut writer)?;
        match self {
            Reply::Hello(hello) => hello.encode(&mut writer)?,
            Reply::Session { session, idle_ms } => {
                writer.u64(session.0)?;
                writer.u32(*idle_ms)?;
                writer.reserved(4)?;
            }
            Reply::SessionClosed | Reply::Alive | Reply::Exists | Reply::Deleted | Reply::NotFound => {}
            Reply::Value { version, value } => {
                writer.version(*version)?;
                writer.length(value.len())?;
                writer.reserved(4)?;
                writer.bytes(value)?;
            }
            Reply::Written { version } => writer.version(*version)?,
            Reply::Values(values) => values.encode(&mut writer)?,
            Reply::Page(page) => page.encode(&mut writer)?,
            Reply::Status(report) => report.encode(&mut writer)?,
            Reply::Checked(report) => report.encode(&mut writer)?,
            Reply::ValueBegin(begin) => begin.encode(&mut writer)?,
            Reply::Chunk(chunk) => chunk.encode(&mut writer)?,
            Reply::Credit { bytes } => encode_credit(&mut writer, *bytes)?,
            Reply::Refused(refusal) => refusal.encode(&mut writer)?,
            Reply::Regions(regions) => regions.encode(&mut writer)?,
            Reply::Tree(tree) => tree.encode(&mut writer)?,
            Reply::Table(table) => table.encode(&mut writer)?,
            Reply::Elsewhere(route) => route.encode(&mut writer)?,
            Reply::Reported(reported) => reported.encode(&mut writer)?,
        }
        writer.complete();
        Ok(())
    }

    /// Reads a whole message.
    ///
    /// # Errors
    /// The bytes are not a reply of this version: the connection is of no more use.
    pub fn decode(message: &'a [u8]) -> Result<(ReplyHeader, Reply<'a>), DecodeError> {
        let mut reader = Reader::message(message)?;
        let (kind, status, header) = ReplyHeader::decode(&mut reader)?;
        let kind = ReplyKind::from_code(kind).ok_or(DecodeError::Kind { kind })?;
        let reply = Reply::decode_body(kind, status, &mut reader)?;
        reader.finish()?;
        Ok((header, reply))
    }

    fn decode_body(
        kind: ReplyKind,
        status: StatusCode,
        reader: &mut Reader<'a>,
    ) -> Result<Reply<'a>, DecodeError> {
        if let Some(refusal) = Refusal::decode(status, reader)? {
            return match (kind, refusal) {
                (ReplyKind::Refused, refusal) => Ok(Reply::Refused(refusal)),
                (ReplyKind::Elsewhere, Refusal::NotOwner) => Ok(Reply::Elsewhere(Route::decode(reader)?)),
                _ => Err(reader.bad_tag(status.code())),
            };
        }
        if (kind == ReplyKind::NotFound) != (status == StatusCode::NotFound) {
            return Err(reader.bad_tag(status.code()));
        }
        Ok(match kind {
            ReplyKind::Hello => Reply::Hello(HelloReply::decode(reader)?),
            ReplyKind::Session => {
                let reply = Reply::Session { session: SessionId(reader.u64()?), idle_ms: reader.u32()? };
                reader.reserved(4)?;
                reply
            }
            ReplyKind::SessionClosed => Reply::SessionClosed,
            ReplyKind::Alive => Reply::Alive,
            ReplyKind::Exists => Reply::Exists,
            ReplyKind::Value => decode_value(reader)?,
            ReplyKind::Written => Reply::Written { version: reader.version()? },
            ReplyKind::Deleted => Reply::Deleted,
            ReplyKind::Values => Reply::Values(Values::decode(reader)?),
            ReplyKind::Page => Reply::Page(Page::decode(reader)?),
            ReplyKind::Status => Reply::Status(StatusReport::decode(reader)?),
            ReplyKind::Checked => Reply::Checked(CheckReport::decode(reader)?),
            ReplyKind::ValueBegin => Reply::ValueBegin(ValueBegin::decode(reader)?),
            ReplyKind::Chunk => Reply::Chunk(Chunk::decode(reader)?),
            ReplyKind::Credit => Reply::Credit { bytes: decode_credit(reader)? },
            ReplyKind::NotFound => Reply::NotFound,
            ReplyKind::Regions => Reply::Regions(RegionsReply::decode(reader)?),
            ReplyKind::Tree => Reply::Tree(TreeReport::decode(reader)?),
            ReplyKind::Table => Reply::Table(TableReport::decode(reader)?),
            ReplyKind::Reported => Reply::Reported(ClientReportReply::decode(reader)?),
            ReplyKind::Refused | ReplyKind::Elsewhere => return Err(reader.bad_tag(status.code())),
        })
    }
}

fn decode_value<'a>(reader: &mut Reader<'a>) -> Result<Reply<'a>, DecodeError> {
    let version = reader.version()?;
    let len = reader.length()?;
    reader.reserved(4)?;
    Ok(Reply::Value { version, value: reader.take(len)? })
}
