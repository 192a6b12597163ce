//! What whole-system tests share: a real server as a child, histories of operations, and the check that they
//! are linearizable.

pub mod cluster;
pub mod control_group;
pub mod crowd;
pub mod dice;
pub mod ending;
pub mod faulty_disk;
pub mod hosts;
pub mod known;
pub mod lease;
pub mod ports;
pub mod process;
pub mod program;
pub mod rdma;
pub mod reaper;
pub mod repeats;
pub mod server;
pub mod small_disk;
pub mod stranger;
pub mod traffic;
pub mod wait;

pub use cell_linearizability as linearizability;
pub use cell_linearizability::{checker, ledger};
