//! The simulator: production cores of nodes, clients, recovery and coordinator, stepped by one loop under a
//! seeded clock, disk, network and coordinator. A seed and a commit reproduce everything that happens.
//!
//! | part | what it is |
//! |---|---|
//! | `world` | the loop, and everything in it: nodes, clients, network, disk, coordinator, clock |
//! | `plan` | what a seed decides at its start: sizes, rates, favoured faults |
//! | `node`, `claims`, `serving`, `control`, `threads`, `process`, `client` | the production cores and, in place of their shells, functions |
//! | `endpoint` | a look at each reply that leaves a node |
//! | `disk` | when what was sent to the disk completes |
//! | `calls`, `interleave` | other nodes within a node's calls of the coordinator |
//! | `operator`, `starts`, `faults`, `mishap`, `death` | who starts processes; what goes wrong and when; how it is done; how processes end |
//! | `traffic` | what clients do |
//! | `model`, `check`, `owners` | what is known of each key; the rules; who owned what |
//! | `news`, `reactions` | what nodes report to the world, and what it does about it |
//! | `moving`, `drains` | moves that operators want; nodes that drain, join and leave for good |
//! | `move_crash`, `move_points` | one move of a pair, and one crash at a point of it |
//! | `finale`, `phase`, `verdict` | how a run ends, and how far it is |
//! | `coverage`, `seeds`, `sweep`, `shrink` | what happened; which seeds; many of them on all cores; the shortest way to a failure |

#![allow(clippy::cast_possible_truncation, reason = "sizes of a simulated world are small")]
#![allow(clippy::should_implement_trait, reason = "a generator's next is not an iterator's")]
#![allow(clippy::type_complexity, clippy::large_enum_variant, reason = "a tool: said once, used once")]

pub mod action;
mod calls;
pub mod check;
mod claims;
pub mod client;
pub mod control;
pub mod coverage;
mod death;
mod disk;
mod drains;
pub mod endpoint;
pub mod faults;
mod finale;
mod interleave;
mod mishap;
pub mod model;
mod move_crash;
pub mod move_points;
mod moving;
pub mod news;
pub mod node;
mod nodes_wanted;
mod operator;
pub mod owners;
mod phase;
pub mod plan;
pub mod process;
mod reactions;
mod router_check;
pub mod seeds;
pub mod serving;
pub mod shrink;
mod starts;
pub mod sweep;
mod threads;
pub mod traffic;
mod verdict;
pub mod wording;
pub mod world;

pub use coverage::{Coverage, Event};
pub use model::Broken;
pub use verdict::{Failed, Passed};
pub use world::{Planted, RunOptions};

/// A run is millions of small allocations on one thread: in the program, and in the tests that run it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Operations of a run, unless set otherwise.
pub const OPERATIONS: u64 = 5_000;

/// Runs one seed.
///
/// # Errors
/// The rule that was broken, and when.
pub fn run(seed: u64, options: RunOptions) -> Result<Passed, Box<Failed>> {
    #[cfg(debug_assertions)]
    cell_terms::mutant::plant(options.mutant);
    let operations = if options.operations == 0 { OPERATIONS } else { options.operations };
    let plan = plan::Plan::new(seed, operations, faults::FAULTS.len());
    let plan = if options.move_crash.is_some() { plan.with_leisure() } else { plan };
    world::World::new(plan, options).run()
}
