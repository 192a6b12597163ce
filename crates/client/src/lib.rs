//! The client: sessions, exactly-once retries, pipelining, streams of large values, over any fabric.
//!
//! | part | what it is |
//! |---|---|
//! | [`Client`] | blocking calls and a pipelined interface, over TCP or shared memory, for one thread |
//! | `aio` (feature `aio`) | the same for asynchronous programs, on tokio |
//! | [`Driver`] | carries a core's commands out on any [`cell_fabric::Endpoint`]; the simulator uses it too |
//! | [`ClientCore`] | the state machine: no clock, no socket, no thread |
//!
//! A client talks to the nodes of a cluster, over one connection each ([`LinkId`]); one address is enough,
//! the rest is learnt from the region table. It reads by messages, or searches the nodes' memory itself
//! with one-sided reads (the `onesided` folder says what such an answer rests on). Which of them is decided
//! for each operation by what both cost at present ([`Search::Auto`]), or once and for all ([`Search`]).
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use cell_client::{Bound, Client, ClientError, Operation, Scan, ScanRange, Version};
//!
//! # fn example() -> Result<(), ClientError> {
//! let mut client = Client::connect("127.0.0.1:7000", Default::default())?;
//! let version: Version = client.put(b"apple", b"green")?;
//! client.cas(b"apple", version, b"red")?;
//! for entry in client.scan(ScanRange::prefix(b"a")) {
//!     println!("{:?}", entry?.key);
//! }
//! // Visited where they were copied to: only a value too large for a page has memory of its own.
//! let mut bytes = 0;
//! client.scan_with(ScanRange::prefix(b"a"), |key, value| {
//!     bytes += key.len() + value.len();
//!     if bytes < 1_000_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
//! })?;
//! // Pipelined: many operations are submitted, then their completions are taken.
//! let page = Scan {
//!     start: Bound::Included(b"a"),
//!     end: Bound::Unbounded,
//!     reverse: false,
//!     keys_only: true,
//!     limit_entries: 10,
//!     limit_bytes: 0,
//! };
//! client.submit(&Operation::Scan(page))?;
//! client.submit(&Operation::Get { key: b"apple" })?;
//! while let Some(completion) = client.poll(std::time::Duration::from_secs(5)) {
//!     println!("{:?}", completion.outcome?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What a caller can rely on: each operation ends, at the latest at its deadline. A write is done at most
//! once, however often it had to be sent. An error says whether the write was surely not done or nobody can
//! know ([`ClientError::fate`]). Operations outstanding together are concurrent, whatever their order of
//! submission.

#[cfg(feature = "aio")]
pub mod aio;
mod backoff;
mod batched_reads;
mod blocking;
mod client_core;
mod connection;
mod control;
mod crc;
mod dispatch;
mod driver;
mod error;
mod immediate_reads;
mod incoming;
mod join;
mod link;
mod link_id;
mod links;
mod live_options;
mod multi_get;
#[doc(hidden)]
pub mod mutant;
mod names;
mod onesided;
mod operation;
mod options;
mod outgoing;
mod output;
mod peers;
mod pending;
mod reading;
mod refusal_action;
mod report_state;
mod reporting;
mod resolve;
mod routes;
mod routing;
mod scan_with;
mod scanner;
mod session;
mod stream;
mod transport;
mod waits;

pub use blocking::Client;
pub use cell_protocol::{Bound, Condition, Entry, EntryValue, Found, MeganodeUse, ReportTransport, Scan};
pub use cell_selector::SETTINGS as SELECTOR_SETTINGS;
pub use cell_selector::{Decisions, Estimates, Policy, SelectorError, SelectorSettings};
pub use cell_terms::Version;
pub use client_core::{ClientCommand, ClientCore};
pub use connection::ServerInfo;
pub use driver::Driver;
pub use error::{AttemptError, ClientError, Fate};
pub use link_id::LinkId;
pub use onesided::{COUNTERS, OneSidedCounters, SelectorReport};
pub use operation::{Operation, Ticket, WhoSearches};
pub use options::{ClientOptions, SETTINGS, Search};
pub use output::{
    CheckResult, Completion, FoundValues, Item, NodeStatus, Output, RegionTable, ScanPage, TreeShape,
};
pub use scanner::{ScanEntry, ScanRange, Scanner};
pub use transport::Transport;
