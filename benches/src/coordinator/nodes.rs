//! The nodes of this bench: three that an agent supervises, which is the same under each coordinator.

use std::path::Path;

use crate::data::Dataset;
use crate::etcd::Etcd;
use crate::options::{BenchError, Options};
use crate::served::{BALANCE_OFF, Served, leases, ready_bytes, several_pairs};

/// How many there are.
pub(super) const NODES: u16 = 3;
/// So many ranges a node, of keys that are printable and random: nothing moves, and each time a node that
/// dies has as much, in pairs of about the same size. What is compared are the coordinators.
const RANGES_A_NODE: u64 = 4;
const SPLIT_KEYS: &str = "(,0,8,@,H,P,W,_,g,o,w";

/// Starts them on this etcd, or else under the embedded coordinator, and fills them. Each has several pairs,
/// and memory ready for those that it takes over.
pub(super) fn start(
    folder: &Path,
    data: &Dataset,
    etcd: Option<&Etcd>,
    options: &Options,
) -> Result<Served, BenchError> {
    let sizes = several_pairs(data.entries, NODES, RANGES_A_NODE);
    let (ready, endpoints) = (ready_bytes(data.entries, NODES).to_string(), etcd.map(Etcd::endpoints));
    let mut flags: Vec<_> = sizes.iter().map(|(name, size)| (*name, size.as_str())).collect();
    flags.push(("--ready-memory-bytes", ready.as_str()));
    flags.extend([BALANCE_OFF, ("--initial-split-keys", SPLIT_KEYS)]);
    if let Some(endpoints) = &endpoints {
        flags.extend([("--coordinator-address", "etcd"), ("--etcd-endpoints", endpoints.as_str())]);
    }
    let mut served = Served::start_by_agent(folder, data.entries, &flags, leases(options), NODES)?;
    served.fill(data)?;
    Ok(served)
}
