//! The `tcp` provider: plain non-blocking sockets, polled.
//!
//! A message is its length, a little-endian `u32`, and its bytes; before the first one the ends exchange hellos. One
//! address serves all workers of a node: the hello names the worker.

mod connection;
mod desk;
mod door;
mod endpoint;
mod handshake;
mod input;
mod messenger;
mod output;
mod slots;

pub use endpoint::{TcpEndpoint, TcpOptions};
