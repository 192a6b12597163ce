//! Figures of Cell beside those of rivals and limits, measured in the same run.
//!
//! The package stays out of the default build: its rivals are no part of the product. See `RESULTS.md` for
//! dated results and the commands that made them.
#![allow(clippy::cast_precision_loss, reason = "rates and ratios are doubles; counts stay far below 2^53")]

mod asynchronous;
pub mod balance;
pub mod binary;
pub mod chase;
pub mod checkpoint;
pub mod console;
pub mod contest;
pub mod coordinator;
pub mod data;
pub mod disk;
mod drills;
pub mod etcd;
pub mod fabric;
pub mod figure;
pub mod flush;
pub mod footprint;
pub mod gluster;
mod in_place;
mod latencies;
pub mod lines;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(not(feature = "lmdb"))]
#[path = "no_lmdb.rs"]
mod lmdb;
pub mod local;
pub mod log;
pub mod moves;
pub mod onesided;
pub mod options;
pub mod ours;
mod paced;
pub mod pages;
pub mod paper;
mod patience;
pub mod processes;
pub mod processor;
pub mod put;
pub mod random;
pub mod reader_process;
mod readers;
mod reads;
pub mod redis;
mod redis_benchmark;
pub mod regions;
pub mod restart;
pub mod restore;
pub mod rival;
pub mod rolling;
mod rollup;
pub mod selector;
pub mod served;
mod server_side;
mod shapes;
mod shared_file;
mod shown;
pub mod split;
pub mod stall;
pub mod takeover;
mod times;
pub mod tls;
mod together;
pub mod tree;
