//! The `tcp` provider: non-blocking sockets, polled, in the clear or under TLS (`crate::tls`).
//!
//! A message is its length, a little-endian `u32`, and its bytes; before the first one the ends exchange
//! hellos.
//!
//! One-sided reads are served by a thread of the fabric's own, standing for the network card, so that a busy
//! or a stopped worker's memory is read all the same. They travel on *lanes*, connections to that thread
//! which an endpoint opens by itself, one for each connection that it reads on.

mod endpoint;
mod handshake;
mod hello_bytes;
mod input;
mod lanes;
mod link;
mod listener;
mod output;
mod read_wire;
mod service;
mod transport;

pub use endpoint::{TcpEndpoint, TcpOptions};
// Connections over `verbs` begin as these do.
#[cfg(feature = "verbs")]
pub(crate) use {
    handshake::{connect, is_through, refuse, send_hello},
    hello_bytes::HelloBytes,
    input::{Input, PREFIX_BYTES},
    listener::TcpListener,
    output::Output,
};
