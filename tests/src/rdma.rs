//! An RDMA device that the machine has, and a server small enough for it: in `tests/rdma-vm`, or on hardware.

/// Flags of a server that offers RDMA. The device takes all memory of its regions; an emulated machine
/// takes its time.
pub const OFFERED: [&str; 4] = ["--extent-region-bytes", "48MiB", "--fabric-verbs", "on"];

/// As [`OFFERED`], with few slots for the same reason.
pub const SMALL: [&str; 8] = [
    "--slot-bytes",
    "4MiB",
    "--node-region-bytes",
    "16MiB",
    "--extent-region-bytes",
    "48MiB",
    "--fabric-verbs",
    "on",
];

/// Whether there is a device; says so if there is none.
#[must_use]
pub fn is_there() -> bool {
    let there = std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
    if !there {
        println!("SKIPPED: no RDMA device");
    }
    there
}
