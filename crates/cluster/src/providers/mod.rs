//! Who holds what the cluster agreed on: each is a [`crate::Coordinator`], and knows nothing of the rows
//! above it, which know none of them.
//!
//! | module | role |
//! |---|---|
//! | `store`, `usage`, `ticks` | the core of those that Cell hosts itself; how much there may be; gaps of its process |
//! | `embedded`, `store_folder`, `room`, `sled_table`, `pieces` | on sled, in one process of a machine |
//! | `server`, `remote`, `json_lines`, `serving` | that one for other processes of the machine, over a unix socket |
//! | `tls_server`, `tls_way`, `strangers` | for those of other machines, over TLS, by a token |
//! | `timed_socket` | reads and writes that end in time |
//! | `etcd` | on etcd, over its JSON gateway |
//! | `ids` | what of ids is drawn at random |
//! | `sim` | in memory, with failures that are ordered |

use std::time::Duration;

pub(crate) mod embedded;
pub(crate) mod etcd;
mod ids;
pub(crate) mod json_lines;
pub(crate) mod pieces;
pub(crate) mod remote;
pub(crate) mod room;
pub(crate) mod server;
pub(crate) mod serving;
pub(crate) mod sim;
pub(crate) mod sled_table;
pub(crate) mod store;
pub(crate) mod store_folder;
pub(crate) mod strangers;
pub(crate) mod ticks;
pub(crate) mod timed_socket;
pub(crate) mod tls_server;
pub(crate) mod tls_way;
pub(crate) mod usage;

pub use embedded::Embedded;
pub use etcd::{Etcd, EtcdOptions, parse_etcd_endpoints};
pub use remote::Remote;
pub use room::COORDINATOR_BYTES_MIN;
pub use server::CoordinatorServer;
pub use sim::{Away, Fault, Sim, SimLink};
pub use store::{CoordinatorStore, Delta, STORE_FORMAT_VERSION, StoreImage, StoreMeta};
pub use strangers::{Place as StrangerPlace, Strangers};
pub use tls_server::{CoordinatorTlsServer, TokenCheck};
pub use tls_way::{TlsAddress, TlsCredentials};

/// For how long an address is believed to be a name's.
pub(crate) const NAME_BELIEVED_FOR: Duration = Duration::from_secs(5);
