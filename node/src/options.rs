//! What a node is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use cell_fabric::{NodeTls, Partition};
use cell_terms::NodeId;
use cell_terms::setting::Settings;
use cell_wal::DiskDelay;

use crate::access::AccessRules;
use crate::process_warnings::ProcessWarnings;

/// What a node is started with.
pub struct NodeOptions {
    /// Which node it is.
    pub node: NodeId,
    /// The log root, which all nodes of the cluster share: logs and images.
    pub folder: PathBuf,
    /// Its own folder, on this host: the lock and the socket for shared memory.
    pub home: PathBuf,
    /// Where it listens for clients.
    pub listen: SocketAddr,
    /// Whether that may be an address that is not loopback.
    pub beyond_loopback: bool,
    /// Where clients are to connect, by name or address; none: where it listens.
    pub advertised: Option<String>,
    /// Where others find its HTTP; empty: nowhere.
    pub http_address: String,
    /// With which TLS it serves clients; none: in the clear.
    pub tls: Option<NodeTls>,
    /// Who may do what.
    pub access: Arc<AccessRules>,
    /// What is wrong with the process's own settings and files.
    pub process_warnings: Arc<ProcessWarnings>,
    /// Cuts the node off from its peers when a drill says so.
    pub partition: Partition,
    /// Makes its logs slow when a drill says so.
    pub disk_delay: DiskDelay,
    /// What its supervisor says of nodes before it that ended the same way, in words without a subject.
    pub restarted_because: Option<String>,
    /// Everything else.
    pub settings: Settings,
}
