//! The `shm` provider: messages through rings in memory that two processes of one host share, one-sided
//! reads as loads from a read-only mapping of the owner's region.
//!
//! A unix socket is where peers meet: each looks at the other's user, then the acceptor hands over a file of
//! memory with two rings (`layout`). From then on the socket wakes who sleeps (`control`), carries
//! descriptors of regions that are asked for, and its end says that the peer has gone, however it died. A
//! message costs a copy in, a copy out and no system call while the other end is awake (`ring`).
//!
//! **What the other end may do.** All that is shared can be changed by the peer at any moment, so words are
//! copied out and then judged, counts are checked against what was mapped here, and what cannot be ends the
//! connection. Memory goes from the acceptor to the connector and nothing else goes anywhere: neither writes
//! to, reads from or waits on a descriptor that the other has made, the acceptor takes no descriptor at all,
//! and the connector takes files of memory that keep their size (`mapping::judge_file`), of an acceptor whose
//! user it trusts. Regions and the ledger are sealed against new writers, handed out opened for reading, and
//! of a mode by which no other user opens them anew. What is left: whoever maps a region can touch its every
//! page, and make those take memory that were never populated.

mod control;
mod endpoint;
mod frame;
mod handshake;
mod layout;
mod link;
mod listener;
mod mapping;
mod reads;
mod ring;
mod transport;

pub use endpoint::{ShmEndpoint, ShmOptions, users_of};
pub use listener::{peer_process, peer_user};
pub(crate) use mapping::{SharedWords, seal_for_readers, sealed_file};
