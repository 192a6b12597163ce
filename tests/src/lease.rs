//! Leases of nodes under test. A machine that has much to do takes the default of half a second from a node
//! now and then, and the node ends.

use std::time::Duration;

/// A lease that a node keeps on a busy machine. Whoever follows a node that was killed waits so long.
pub const LEASE: Duration = Duration::from_secs(3);
/// Flags of clusters whose nodes hold such leases.
pub const LONG_LEASE: [&str; 2] = ["--lease-ms=3s", "--coordinator-deadline-ms=1s"];
