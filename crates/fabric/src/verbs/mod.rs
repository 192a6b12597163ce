//! The `verbs` provider: RDMA by reliable queue pairs, over InfiniBand or RoCE.
//!
//! A connection begins as one of TCP, at the address that `tcp` listens on: each hello carries its end of a
//! queue pair (`queue_pair_end`), and the acceptor's endpoint over `verbs` takes the socket from its queue.
//! From then on messages go through the queue pair, in slots of registered memory with credits (`channel`),
//! and one-sided operations are the device's (`operations`). The socket stays open: over it a connector asks
//! what a region key stands for (`control`), and its end is the connection's end.
//!
//! What goes over the socket goes under TLS where that is spoken there; what the device carries is encrypted
//! by nobody. So the connector shows its token in the hello, and in no message.
//!
//! | file | what |
//! |---|---|
//! | `device`, `gid` | which device, port and GID; protection domain, limits |
//! | `memory` | regions and buffers that the device may access |
//! | `completion` | the completion queue and its channel |
//! | `queue_pair`, `work` | one queue pair: its states; chains of work, rung for once |
//! | `channel` | messages through one queue pair |
//! | `operations`, `control` | reads, writes and compare-and-swaps; what a key stands for |
//! | `link`, `transport`, `endpoint` | what `connections` asks of a provider |
//!
//! **Order.** Nothing says in which order a device loads the lines of one read, so that equal versions at
//! both ends of a tree node prove nothing: tree nodes carry a checksum where `verbs` is offered, and the
//! copy's checksum decides. An operator who knows the machine may say otherwise.
//!
//! **Old keys.** A device's keys have 32 bits and come again. What a region is registered at for peers is
//! therefore no address but a random number, made from the region's key: whoever reads under the key of an
//! ended registration reads a place that is not there, the device refuses, and the connection ends.

mod channel;
mod completion;
mod control;
mod device;
mod endpoint;
mod error;
mod gid;
mod link;
mod memory;
mod operations;
mod port;
mod queue_pair;
mod transport;
mod work;

pub(crate) use device::Device;
pub(crate) use endpoint::VerbsEndpoint;
pub use error::VerbsError;
pub(crate) use memory::{RegisteredRegion, RemoteRegion};
