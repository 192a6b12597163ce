//! The `shm` provider: messages through rings in memory that two processes of one host share, one-sided
//! reads as loads from a read-only mapping of the owner's region.
//!
//! A unix socket is where peers meet: the acceptor looks at the connector's user, then hands it a file of
//! memory with two rings (`layout`), and two bells. From then on the socket carries descriptors of regions
//! that are asked for, and its end says that the peer has gone, however it died. A message costs a copy in,
//! a copy out and no system call while the other end is awake (`ring`).
//!
//! **What the other end may do.** All that is shared can be changed by the peer at any moment, so words are
//! copied out and then judged, counts are checked against what was mapped here, files are taken only with
//! the seal that keeps their size, and what cannot be ends the connection. The acceptor is woken by an
//! eventfd, which it never reads or writes; the connector by a pipe, of which it gets the reading end
//! alone: descriptors that both hold share their flags, and a peer that made its eventfd blocking could
//! make a write of the acceptor's wait for ever. Regions are sealed against new writers and handed out
//! opened for reading.

mod connection;
mod control;
mod door;
mod endpoint;
mod frame;
mod handshake;
mod layout;
mod mapping;
mod messenger;
mod overdue;
mod reads;
mod ring;

pub use door::peer_user;
pub use endpoint::{ShmEndpoint, ShmOptions};
pub(crate) use mapping::{SharedWords, seal_for_readers, sealed_file};
