//! An RDMA device that the machine has, and a server small enough for it: in `tests/rdma-vm`, or on hardware.

/// Flags of a server that offers RDMA. The device takes all memory of its regions; an emulated machine takes
/// its time for that, and for a queue pair, which a client makes before its hello.
pub const OFFERED: [&str; 6] =
    ["--extent-region-bytes", "48MiB", "--fabric-verbs", "on", "--fabric-handshake-timeout", "60s"];

/// As [`OFFERED`], with few slots for the same reason.
pub const SMALL: [&str; 10] = [
    "--slot-bytes",
    "4MiB",
    "--node-region-bytes",
    "16MiB",
    "--extent-region-bytes",
    "48MiB",
    "--fabric-verbs",
    "on",
    "--fabric-handshake-timeout",
    "60s",
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
