//! What a node's own folder says of its log root: that it was proven to be the cluster's. A node that starts
//! over the same one again waits for less long until somebody has looked: after the end of all nodes nobody
//! is there who could.

use std::fs;
use std::path::{Path, PathBuf};

/// The file in the node's own folder.
const FILE: &str = "log-root-proven";

/// See the module's text.
pub(crate) struct ProvenRoot {
    file: PathBuf,
    /// The log root's name, by which a copy is another one; none: nothing is known of it.
    name: Option<String>,
}

impl ProvenRoot {
    pub(crate) fn new(home: &Path, name: Option<String>) -> ProvenRoot {
        ProvenRoot { file: home.join(FILE), name }
    }

    /// Whether this log root was proven before.
    pub(crate) fn is_known(&self) -> bool {
        let noted = fs::read_to_string(&self.file).ok();
        noted.is_some() && noted == self.name
    }

    /// Notes that it is proven. Where that cannot be written, or is torn, it is proven again.
    pub(crate) fn note(&self) {
        let Some(name) = self.name.as_ref().filter(|_| !self.is_known()) else { return };
        if let Err(error) = fs::write(&self.file, name) {
            tracing::debug!(%error, "that the log root is proven is not noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_wal::LogRoot;

    use super::*;

    #[test]
    fn log_root_is_known_once_it_is_noted_and_a_copy_of_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [home, log, copy] = ["home", "log", "copy"].map(|name| folder.path().join(name));
        [&home, &copy].iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let known = |root: &Path| ProvenRoot::new(&home, LogRoot::open(root).unwrap().name());
        let first = known(&log);
        assert!(!first.is_known());
        first.note();
        assert!(first.is_known() && known(&log).is_known());
        fs::copy(log.join("log-root-id"), copy.join("log-root-id")).unwrap();
        assert_eq!(LogRoot::open(&copy).unwrap().id, LogRoot::open(&log).unwrap().id);
        assert!(!known(&copy).is_known(), "its id is the same, and it is another file");
        assert!(!ProvenRoot::new(folder.path(), None).is_known(), "of nothing nothing is known");
        known(&copy).note();
        assert!(known(&copy).is_known() && !known(&log).is_known());
    }
}
