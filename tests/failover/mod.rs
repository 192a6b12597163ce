//! Faults of a cluster's parts, done by hand, and what each client is answered meanwhile: a node that stands
//! still past its lease, one that is back within it, a coordinator that is away, pairs that nobody has room
//! for, logs that are gone.

pub(crate) mod board;
pub(crate) mod coordinator;
mod host;
mod many_pairs;
mod promise;
pub(crate) mod stale;
mod unavailable;

use cell_tests::repeats::Repeats;

/// Small regions, and faults by the socket for drills.
const FLAGS: [&str; 5] = [
    "--allow-drills",
    "--node-region-bytes=64MiB",
    "--slot-bytes=4MiB",
    "--extent-region-bytes=128MiB",
    "--tracing-filter=info",
];

/// How many rounds of a fault this run demands.
fn rounds() -> u32 {
    Repeats { plain: 1, quick: 1, full: 3, long: 25 }.of_this_run()
}
