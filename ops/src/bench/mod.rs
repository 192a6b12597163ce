//! `cell bench`: workloads, generators and what was measured.

pub(crate) mod distribution;
pub(crate) mod report;
pub(crate) mod thread;
pub(crate) mod workload;
