//! Whether the log root is the one of the cluster: by the id that lies in it, and the one that the cluster's
//! nodes have agreed on. A node would be refused when it joins.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::Members;
use cell_terms::setting::Settings;
use cell_wal::LogRoot;

use super::finding::Finding;
use crate::process_settings::EMBEDDED;
use crate::provider::Provider;

const NAME: &str = "log root's id";
const NEXT: &str = "mount the cluster's log root there, or name its folder (log_root); or see whether \
                    coordinator_address and etcd_prefix are this cluster's";

/// None: the coordinator is the node's own, knows no log root yet, or does not answer, which is reported
/// elsewhere.
pub(super) fn look(settings: &Settings, root: &Path) -> Option<Finding> {
    let place = settings.text("coordinator_address");
    if place == EMBEDDED || !root.is_dir() {
        return None;
    }
    let deadline = Duration::from_millis(settings.integer("coordinator_deadline_ms"));
    let provider = Provider::open(place, settings, deadline).ok()?;
    let terms = Members::new(Arc::new(provider)).terms().ok()??;
    Some(judge(root, LogRoot::id_of(root), &terms.log_root?))
}

fn judge(root: &Path, found: io::Result<Option<u128>>, cluster: &str) -> Finding {
    let root = root.display();
    let seen = match found.map(|id| id.map(|id| format!("{id:032x}"))) {
        Ok(Some(id)) if id == cluster => {
            return Finding::well(NAME, format!("{root} is the log root of this cluster, {id}"));
        }
        Ok(Some(id)) => format!("{root} is not the log root of this cluster: it is {id}, not {cluster}"),
        Ok(None) => format!("{root} has a file log-root-id without an id; the cluster's is {cluster}"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("{root} is not the log root of this cluster: nothing is stored there; that is {cluster}")
        }
        Err(error) => format!("log-root-id in {root} cannot be read: {error}"),
    };
    Finding::bad(NAME, seen, NEXT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn log_root_is_well_by_the_clusters_id_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let cluster = format!("{:032x}", 7);
        let judged = || judge(root, LogRoot::id_of(root), &cluster);
        let empty = judged();
        assert!(empty.health == Health::Bad && empty.seen.contains("nothing is stored"), "{empty:?}");
        std::fs::write(root.join("log-root-id"), format!("{:032x}\n", 8)).unwrap();
        let other = judged();
        assert!(other.health == Health::Bad && other.seen.contains("is not the log root"), "{other:?}");
        std::fs::write(root.join("log-root-id"), "").unwrap();
        assert_eq!(judged().health, Health::Bad);
        std::fs::write(root.join("log-root-id"), format!("{cluster}\n")).unwrap();
        assert_eq!(judged().health, Health::Well);
    }
}
