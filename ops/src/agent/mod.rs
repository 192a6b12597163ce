//! `cell agent`: the supervisor of a host's nodes that drills of a cluster over several hosts reach, over TCP
//! and TLS, by a token of the role admin.
//!
//! What it does to its nodes, `dev` does. A drill says to it what it says to `cell dev`, after a hello with
//! its token. It is no HTTP, because a drill's turn and its faults are those of a connection: when that
//! ends, whatever ended it, they do.

mod cluster_turn;
mod conversation;
pub(crate) mod door;
pub(crate) mod guards;
pub(crate) mod host;
mod session;
