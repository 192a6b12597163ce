//! The tables and figures of Cell's paper (ATC 2016, section 4), by a model of servers, their cards and
//! clients that steps the selector of `crates/selector` itself, in simulated time: no clock, no machine, no
//! chance but by a seed. What comes out stands beside the paper's own figures; or, of one server whose
//! clients are on its machine, beside what `benches/src/paper.rs` has measured there.
//!
//! | module | what |
//! |---|---|
//! | `data` | the paper's figures; which of them the model may know |
//! | `card`, `tree`, `cluster`, `calibration` | cards, reads of a search, the whole, and how long things take |
//! | `host` | a machine that clients share with their server |
//! | `run`, `event`, `observed` | what happens, and in which order; what was done |
//! | `table1`, `table2`, `figure4` to `figure9`, `past`, `measured` | what is printed |
//! | `sheet`, `plot` | rows and plots |
//! | `options`, `folder`, `part` | the command line; which tables and figures there are |
#![allow(clippy::cast_precision_loss, reason = "counts and times stay far below 2^53")]

pub mod calibration;
pub mod card;
mod cluster;
pub mod data;
mod event;
mod figure4;
mod figure5;
mod figure7;
mod figure8;
mod figure9;
mod folder;
mod host;
pub mod measured;
mod observed;
mod options;
mod part;
mod past;
pub mod plot;
#[cfg(test)]
mod rules;
mod run;
pub mod sheet;
mod study;
mod table1;
mod table2;
mod tree;

pub use folder::{existing_folder, folder};
pub use options::{PaperError, PaperOptions, run, run_of};
pub use part::Part;
pub use study::{Outcome, Study};
