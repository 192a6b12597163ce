//! `cell dev`: a supervisor that hosts the coordinator, and its nodes as child processes.
//!
//! The supervisor owns no pairs, so that a node's death costs what it would cost anywhere. It talks to a
//! child over the child's stdin and stdout ([`link`]): when stdin ends, the supervisor is gone, and the child
//! goes too. The kernel ends a child that stands still then.

pub(crate) mod announce;
pub(crate) mod backoff;
pub(crate) mod child;
mod drain;
pub(crate) mod drill_listener;
mod drill_moves;
mod drill_pause;
pub(crate) mod drill_turn;
pub(crate) mod event;
pub(crate) mod filtered;
pub(crate) mod link;
pub(crate) mod local_listener;
pub(crate) mod machine;
mod memory_kills;
pub(crate) mod memory_shares;
pub(crate) mod memory_wish;
pub(crate) mod messages;
pub(crate) mod owners;
pub(crate) mod plan;
pub(crate) mod scale;
pub(crate) mod scale_plan;
pub(crate) mod scale_wire;
mod slot;
pub(crate) mod supervisor;
pub(crate) mod wishes;
