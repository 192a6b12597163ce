//! What the web needs of a node and of its cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cell_cluster::Coordinator;
use cell_fabric::NodeTls;
use cell_node::{AccessRules, NodeSnapshot, ProcessWarnings, TreeLook};
use cell_settings::{Registry, SettingsStore};

/// Whoever publishes snapshots of a node.
pub trait StatusSource: Send + Sync + 'static {
    /// The newest snapshot. Called for every request: it must not wait and not take a lock of the data path.
    fn snapshot(&self) -> Arc<NodeSnapshot>;
}

impl<F: Fn() -> Arc<NodeSnapshot> + Send + Sync + 'static> StatusSource for F {
    fn snapshot(&self) -> Arc<NodeSnapshot> {
        self()
    }
}

/// Who holds what the cluster agreed on, and where that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoordinatorPlace {
    /// `embedded`, `socket`, `tls`, `etcd`; empty: nobody said.
    pub provider: &'static str,
    /// A path, an address, or each member of etcd; none of an embedded one.
    pub addresses: Vec<String>,
}

/// What is wrong with the names of the certificate that is shown now; none: nothing, or it is not known.
pub(crate) type NamesCheck = Arc<dyn Fn(&NodeTls) -> Option<String> + Send + Sync>;

/// All that the web is given. Snapshots alone are enough for health, metrics and status; a route that needs
/// more says so where it is missing.
#[derive(Clone)]
pub struct Sources {
    pub(crate) snapshots: Arc<dyn StatusSource>,
    pub(crate) coordinator: Option<Arc<dyn Coordinator>>,
    pub(crate) coordinator_place: CoordinatorPlace,
    pub(crate) settings: Option<Arc<SettingsStore>>,
    pub(crate) registry: Option<Registry>,
    pub(crate) data_folder: Option<PathBuf>,
    pub(crate) agent: Option<String>,
    pub(crate) log_root: Option<PathBuf>,
    pub(crate) fabric: Option<SocketAddr>,
    pub(crate) tree: Option<TreeLook>,
    pub(crate) access: Option<Arc<AccessRules>>,
    pub(crate) tls: Option<NodeTls>,
    pub(crate) names_check: Option<NamesCheck>,
    pub(crate) process_warnings: Arc<ProcessWarnings>,
}

impl Sources {
    /// A node's snapshots and nothing else.
    #[must_use]
    pub fn new(snapshots: Arc<dyn StatusSource>) -> Sources {
        let (coordinator, settings, registry, data_folder, fabric) = (None, None, None, None, None);
        let (log_root, tree, access, tls, process_warnings) = (None, None, None, None, Arc::default());
        let names_check = None;
        Sources {
            snapshots,
            coordinator,
            coordinator_place: CoordinatorPlace::default(),
            settings,
            registry,
            data_folder,
            agent: None,
            log_root,
            fabric,
            tree,
            access,
            tls,
            names_check,
            process_warnings,
        }
    }

    /// The cluster's coordinator. It is called on threads that may block, never on the web's own.
    #[must_use]
    pub fn coordinator(self, coordinator: Arc<dyn Coordinator>) -> Sources {
        Sources { coordinator: Some(coordinator), ..self }
    }

    /// What that is and where, for people.
    #[must_use]
    pub fn coordinator_place(self, place: CoordinatorPlace) -> Sources {
        Sources { coordinator_place: place, ..self }
    }

    /// The values in force, and what declares them.
    #[must_use]
    pub fn settings(self, store: Arc<SettingsStore>, registry: Registry) -> Sources {
        Sources { settings: Some(store), registry: Some(registry), ..self }
    }

    /// Who may do what, as the node's fabric has it too; without it the settings' file is read.
    #[must_use]
    pub fn access(self, access: Arc<AccessRules>) -> Sources {
        Sources { access: Some(access), ..self }
    }

    /// The node's TLS, as its fabric has it too; without it the settings' files are read.
    #[must_use]
    pub fn tls(self, tls: Option<NodeTls>) -> Sources {
        Sources { tls, ..self }
    }

    /// What says whether the certificate is for what is advertised of this node. It is asked at the start,
    /// and for each certificate that takes another one's place.
    #[must_use]
    pub fn names_check(self, check: impl Fn(&NodeTls) -> Option<String> + Send + Sync + 'static) -> Sources {
        Sources { names_check: Some(Arc::new(check)), ..self }
    }

    /// Where the node has what is wrong with the process's files; the web says how those of TLS and tokens
    /// stand.
    #[must_use]
    pub fn process_warnings(self, process_warnings: Arc<ProcessWarnings>) -> Sources {
        Sources { process_warnings, ..self }
    }

    /// The node's data folder: a supervisor that allows drills has its socket there.
    #[must_use]
    pub fn data_folder(self, folder: &Path) -> Sources {
        Sources { data_folder: Some(folder.to_owned()), ..self }
    }

    /// Where others reach the agent that takes drills of this node; none: it has no such agent.
    #[must_use]
    pub fn agent(self, agent: Option<String>) -> Sources {
        Sources { agent, ..self }
    }

    /// The folder of the cluster's logs, of which the room is shown.
    #[must_use]
    pub fn log_root(self, folder: &Path) -> Sources {
        Sources { log_root: Some(folder.to_owned()), ..self }
    }

    /// Where clients reach the node's fabric.
    #[must_use]
    pub fn fabric(self, address: SocketAddr) -> Sources {
        Sources { fabric: Some(address), ..self }
    }

    /// The way to look at single meganodes. It is used on threads that may block.
    #[must_use]
    pub fn tree(self, look: TreeLook) -> Sources {
        Sources { tree: Some(look), ..self }
    }
}
