//! Faults of a cluster's parts, done by hand, and what each client is told meanwhile: a node that stands
//! still past its lease, one that is back within it, a coordinator that is away, pairs that nobody has room
//! for, logs that are gone.

mod board;
mod coordinator;
mod host;
mod promise;
mod stale;
mod unavailable;

/// Small regions, and faults by the socket for drills.
const FLAGS: [&str; 5] = [
    "--allow-drills",
    "--node-region-bytes=64MiB",
    "--slot-bytes=4MiB",
    "--extent-region-bytes=128MiB",
    "--tracing-filter=info",
];

/// How many rounds of a fault this variant of the run demands.
fn rounds() -> u32 {
    match std::env::var("CELL_TEST_VARIANT").as_deref() {
        Ok("full") => 3,
        _ => 1,
    }
}
