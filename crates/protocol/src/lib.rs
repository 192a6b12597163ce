//! The wire between a client and a worker: requests, replies, their sizes and errors. No I/O, no clock, no
//! state.
//!
//! The fabric below delivers whole messages of at most [`MESSAGE_BYTES_MAX`] bytes, in order, on a
//! connection. One message is one request or one reply: a fixed header, then the body of its kind. Everything
//! is little-endian; lengths come before what they measure; reserved bytes are zero and a decoder refuses
//! others. Each layout has one home, the table in its module:
//!
//! | module | layouts |
//! |---|---|
//! | [`header`] | request header (16 bytes), reply header (32 bytes) |
//! | [`hello`] | the version hand-shake and the server's limits |
//! | [`mod@write`] | put, delete, begin of a streamed put, and what makes them exactly-once |
//! | [`keys`] | multi-get and its values |
//! | [`scan`] | scan and its pages |
//! | [`stream`] | values that do not fit one message: begin, chunk, credit |
//! | [`refusal`] | status codes, and what the caller should do |
//! | [`regions`] | registrations of a worker's regions, for one-sided reads |
//! | [`tree`] | the shape of a node's tree |
//! | [`table`] | which pair is where |
//! | [`route`] | where keys are that the asked worker does not have |
//! | [`client_report`] | what clients report of their searches, and the settings that they are given |
//! | [`reported_reads`] | how often clients read which meganode one-sidedly |
//! | [`report`] | status of a node, result of a check |
//! | [`request`], [`reply`] | kinds and the small bodies |
//!
//! **Decoding** borrows from the message, allocates nothing and is total: any bytes give a message or a
//! [`DecodeError`]. What a decoder accepted is consistent (counts match, lists can be walked, text is UTF-8),
//! but it is still a stranger's claim: limits that depend on the server's settings are the server's to check.
//!
//! **Encoding** appends to the caller's `Vec<u8>`; with [`MESSAGE_BYTES_MAX`] bytes of capacity nothing is
//! allocated. An encoder refuses what the wire cannot carry ([`EncodeError`]) and leaves the vector as it
//! was.
//!
//! **Versions.** The first message on a connection is a hello with [`PROTOCOL_VERSION`]; the place of magic
//! and version in it never changes. A server that does not speak a version says which ones it speaks
//! ([`Refusal::VersionUnsupported`]). After the hello, both sides use that version's layouts.

pub mod client_report;
mod cursor;
mod error;
pub mod header;
pub mod hello;
pub mod keys;
mod kind;
pub mod refusal;
pub mod regions;
pub mod reply;
pub mod report;
pub mod reported_reads;
pub mod request;
pub mod route;
pub mod scan;
mod size;
pub mod stream;
pub mod table;
pub mod tree;
mod wire_enum;
pub mod write;

pub use client_report::{
    ClientCounts, ClientEstimates, ClientReport, ClientReportReply, ReportPolicy, ReportTransport,
    SettingValues,
};
pub use error::{DecodeError, EncodeError, Malformed};
pub use header::{ReplyHeader, RequestHeader, RequestId};
pub use hello::{Hello, HelloReply, Limits};
pub use keys::{Found, Keys, KeysWriter, Values, ValuesWriter};
pub use kind::{ReplyKind, RequestKind};
pub use refusal::{ReadOnlyReason, Refusal, StatusCode};
pub use regions::{PairRegions, RegionRows, RegionsReply};
pub use reply::Reply;
pub use report::{CheckReport, PairActivity, PairStatus, PairStatuses, StatusReport};
pub use reported_reads::{REPORTED_MEGANODES_MAX, ReportedRead, ReportedReads};
pub use request::Request;
pub use route::Route;
pub use scan::{Bound, Entry, EntryValue, PAGE_LEAVES_MAX, Page, PageRoom, PageWriter, Scan};
pub use size::{
    KEY_BYTES_MAX, MESSAGE_BYTES_MAX, MULTI_GET_KEYS_MAX, NAME_BYTES_MAX, PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN, TOKEN_BYTES_MAX, VALUE_BYTES_WIRE_MAX,
};
pub use stream::{Chunk, ValueBegin};
pub use table::{OwnedState, TableReport, TableRow, TableRows};
pub use tree::{MeganodeRow, MeganodeUse, TreeReport, TreeRows};
pub use write::{Condition, Delete, Put, PutBegin, WriteName};
