//! Drills: a fault on purpose, traffic with a ledger kept outside the cluster, and the proof that nothing
//! acknowledged was lost.

pub(crate) mod wire;
