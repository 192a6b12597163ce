//! Requests: kinds, and the small bodies.
//!
//! | kind | body, after the header |
//! |---|---|
//! | hello | [`crate::hello`] |
//! | open-session | none |
//! | close-session, keep-alive | session u64 (keep-alive of 0: only asks for the reply's header) |
//! | search, get | key length u16, reserved 6, key |
//! | put, delete, put-begin | [`crate::write`] |
//! | multi-get | [`crate::keys`] |
//! | scan | [`crate::scan`] |
//! | status, check, regions | none |
//! | tree | [`crate::tree`] |
//! | table | [`crate::table`] |
//! | report | [`crate::client_report`] |
//! | chunk, credit | [`crate::stream`]; no reply of their own |
//! | cancel | none; no reply of its own |

use cell_terms::SessionId;

use crate::cursor::{Reader, Writer};
use crate::kind::RequestKind;
use crate::stream::{decode_credit, encode_credit};
use crate::{
    Chunk, ClientReport, DecodeError, Delete, EncodeError, Hello, Keys, Put, PutBegin, RequestHeader, Scan,
};

/// A request, borrowing from its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "decoding allocates nothing, and who decodes passes it on by reference"
)]
pub enum Request<'a> {
    /// Hand-shake. Reply: [`crate::Reply::Hello`].
    Hello(Hello<'a>),
    /// Opens a session. Reply: [`crate::Reply::Session`].
    OpenSession,
    /// Ends a session: its results may be dropped. Reply: [`crate::Reply::SessionClosed`], repeats included.
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// Sign of life. Reply: [`crate::Reply::Alive`], or a refusal if the session is unknown.
    KeepAlive {
        /// The session, if there is one to be kept.
        session: Option<SessionId>,
    },
    /// Whether there is an entry. Reply: [`crate::Reply::Exists`] or [`crate::Reply::NotFound`].
    Search {
        /// The key.
        key: &'a [u8],
    },
    /// An entry. Reply: [`crate::Reply::Value`], [`crate::Reply::ValueBegin`] and chunks, or
    /// [`crate::Reply::NotFound`].
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Writes an entry. Reply: [`crate::Reply::Written`].
    Put(Put<'a>),
    /// Removes an entry. Reply: [`crate::Reply::Deleted`] or [`crate::Reply::NotFound`].
    Delete(Delete<'a>),
    /// Many entries; made with [`crate::KeysWriter`]. Reply: [`crate::Reply::Values`].
    MultiGet(Keys<'a>),
    /// A page of a range. Reply: [`crate::Reply::Page`].
    Scan(Scan<'a>),
    /// The node's status. Reply: [`crate::Reply::Status`].
    Status,
    /// Checks every invariant of the worker's pairs; takes its time. Reply, when done:
    /// [`crate::Reply::Checked`].
    Check,
    /// Writes an entry whose value comes in chunks. Reply, after the last chunk: [`crate::Reply::Written`].
    PutBegin(PutBegin<'a>),
    /// A piece of the value of the put that the header names. No reply.
    Chunk(Chunk<'a>),
    /// Leave to send more of the value of the get that the header names. No reply.
    Credit {
        /// Bytes, not zero.
        bytes: u32,
    },
    /// Gives up the stream that the header names. No reply.
    Cancel,
    /// The registrations of the worker's regions, for one-sided reads. Reply: [`crate::Reply::Regions`].
    Regions,
    /// The shape of the tree. Reply: [`crate::Reply::Tree`].
    Tree {
        /// Number of the first meganode that is wanted.
        from: u32,
    },
    /// The region table as the node knows it. Reply: [`crate::Reply::Table`].
    Table {
        /// Number of the first row that is wanted.
        from: u32,
    },
    /// What the client reports of its searches. Reply: [`crate::Reply::Reported`].
    Report(ClientReport<'a>),
}

impl<'a> Request<'a> {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        match self {
            Request::Hello(_) => RequestKind::Hello,
            Request::OpenSession => RequestKind::OpenSession,
            Request::CloseSession { .. } => RequestKind::CloseSession,
            Request::KeepAlive { .. } => RequestKind::KeepAlive,
            Request::Search { .. } => RequestKind::Search,
            Request::Get { .. } => RequestKind::Get,
            Request::Put(_) => RequestKind::Put,
            Request::Delete(_) => RequestKind::Delete,
            Request::MultiGet(_) => RequestKind::MultiGet,
            Request::Scan(_) => RequestKind::Scan,
            Request::Status => RequestKind::Status,
            Request::Check => RequestKind::Check,
            Request::PutBegin(_) => RequestKind::PutBegin,
            Request::Chunk(_) => RequestKind::Chunk,
            Request::Credit { .. } => RequestKind::Credit,
            Request::Cancel => RequestKind::Cancel,
            Request::Regions => RequestKind::Regions,
            Request::Tree { .. } => RequestKind::Tree,
            Request::Table { .. } => RequestKind::Table,
            Request::Report(_) => RequestKind::Report,
        }
    }

    /// Appends the request as one message to `out`.
    ///
    /// # Errors
    /// The wire cannot carry it; `out` is left as it was.
    pub fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut writer = Writer::new(out);
        header.encode(self.kind().code(), &mut writer)?;
        match self {
            Request::Hello(hello) => hello.encode(&mut writer)?,
            Request::OpenSession | Request::Status | Request::Check | Request::Cancel | Request::Regions => {}
            Request::CloseSession { session } => writer.u64(session.0)?,
            Request::KeepAlive { session } => writer.u64(session.map_or(0, |session| session.0))?,
            Request::Search { key } | Request::Get { key } => {
                writer.key_length(key)?;
                writer.reserved(6)?;
                writer.bytes(key)?;
            }
            Request::Put(put) => put.encode(&mut writer)?,
            Request::Delete(delete) => delete.encode(&mut writer)?,
            Request::MultiGet(keys) => keys.encode(&mut writer)?,
            Request::Scan(scan) => scan.encode(&mut writer)?,
            Request::PutBegin(begin) => begin.encode(&mut writer)?,
            Request::Chunk(chunk) => chunk.encode(&mut writer)?,
            Request::Credit { bytes } => encode_credit(&mut writer, *bytes)?,
            Request::Tree { from } | Request::Table { from } => {
                writer.u32(*from)?;
                writer.reserved(4)?;
            }
            Request::Report(report) => report.encode(&mut writer)?,
        }
        writer.complete();
        Ok(())
    }

    /// Reads a whole message.
    ///
    /// # Errors
    /// The bytes are not a request of this version; [`RequestHeader::peek`] may still say whom to refuse.
    pub fn decode(message: &'a [u8]) -> Result<(RequestHeader, Request<'a>), DecodeError> {
        let mut reader = Reader::message(message)?;
        let (kind, header) = RequestHeader::decode(&mut reader)?;
        let kind = RequestKind::from_code(kind).ok_or(DecodeError::Kind { kind })?;
        let request = Request::decode_body(kind, &mut reader)?;
        reader.finish()?;
        Ok((header, request))
    }

    fn decode_body(kind: RequestKind, reader: &mut Reader<'a>) -> Result<Request<'a>, DecodeError> {
        Ok(match kind {
            RequestKind::Hello => Request::Hello(Hello::decode(reader)?),
            RequestKind::OpenSession => Request::OpenSession,
            RequestKind::CloseSession => Request::CloseSession { session: SessionId(reader.u64()?) },
            RequestKind::KeepAlive => {
                let session = reader.u64()?;
                Request::KeepAlive { session: (session != 0).then_some(SessionId(session)) }
            }
            RequestKind::Search => Request::Search { key: decode_key(reader)? },
            RequestKind::Get => Request::Get { key: decode_key(reader)? },
            RequestKind::Put => Request::Put(Put::decode(reader)?),
            RequestKind::Delete => Request::Delete(Delete::decode(reader)?),
            RequestKind::MultiGet => Request::MultiGet(Keys::decode(reader)?),
            RequestKind::Scan => Request::Scan(Scan::decode(reader)?),
            RequestKind::Status => Request::Status,
            RequestKind::Check => Request::Check,
            RequestKind::PutBegin => Request::PutBegin(PutBegin::decode(reader)?),
            RequestKind::Chunk => Request::Chunk(Chunk::decode(reader)?),
            RequestKind::Credit => Request::Credit { bytes: decode_credit(reader)? },
            RequestKind::Cancel => Request::Cancel,
            RequestKind::Regions => Request::Regions,
            RequestKind::Tree => {
                let from = reader.u32()?;
                reader.reserved(4)?;
                Request::Tree { from }
            }
            RequestKind::Table => {
                let from = reader.u32()?;
                reader.reserved(4)?;
                Request::Table { from }
            }
            RequestKind::Report => Request::Report(ClientReport::decode(reader)?),
        })
    }
}

fn decode_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.u16()?;
    reader.reserved(6)?;
    reader.key(len)
}
