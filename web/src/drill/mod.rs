//! Drills that this node runs: a fault on purpose to another node, on a thread of its own, with the core that
//! `cell drill` has, too. Runs are kept in memory; that one runs in the cluster at a time is a row of the
//! coordinator.

mod registry;
mod run;
mod wanted;

pub(crate) use registry::{BEGIN_WITHIN, Drills, NotStarted, RunPlace};
#[cfg(test)]
pub(crate) use run::tests::row as test_row;
pub(crate) use run::{RunRow, RunSeen, RunState};
pub(crate) use wanted::{DrillWanted, PREVIEW, name_of, parameters};
