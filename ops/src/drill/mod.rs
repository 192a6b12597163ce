//! Drills: a fault on purpose, traffic with a ledger kept outside the cluster, and the proof that nothing
//! acknowledged was lost.

mod journal;
mod keys;
pub(crate) mod line;
mod report;
pub(crate) mod run;
pub(crate) mod traffic;
mod verify;
mod watch;
pub(crate) mod wire;
