//! Where a node keeps what: the data folder is its host's own, the log root is read by every host of the
//! cluster.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cell_terms::mutant::{Mutant, planted};
use cell_terms::setting::Settings;
use cell_wal::LogRoot;

use crate::doctor::is_of_doctor;
use crate::exit::{Exit, Failure};

const DATA_DIR: &str = "data_dir";
const LOG_ROOT: &str = "log_root";

/// The folders of a node, or of all nodes of one supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folders {
    data: PathBuf,
    log_root: PathBuf,
}

impl Folders {
    /// The folders that the settings name. A log root of its own must be there: one that is made where
    /// nothing is mounted would be an empty one, on this host's own disk.
    pub(crate) fn of_settings(settings: &Settings) -> Result<Folders, Failure> {
        let data = PathBuf::from(settings.text(DATA_DIR));
        let given = settings.text(LOG_ROOT);
        if given.is_empty() {
            return Ok(Folders::within(&data));
        }
        let log_root = std::path::absolute(given).map_err(|error| refused(Exit::Usage, given, &error))?;
        match fs::metadata(&log_root) {
            Ok(found) if found.is_dir() => Folders { data, log_root }.without_logs_left_behind(),
            Ok(_) => Err(refused(Exit::Usage, given, &"it is no folder")),
            // What is mounted late is there at the next start.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let next = "mount the file system that it is on; at the very first start make the folder";
                Err(refused(Exit::Error, given, &"it is not there").next(next))
            }
            // One that was mounted and has lost its file system is there again once somebody has mounted it.
            Err(error) => {
                let next = "look at the file system that it is on: if it does not come back by itself, unmount \
                            it and mount it again";
                Err(refused(Exit::Error, given, &error).next(next))
            }
        }
    }

    /// All in one folder, which is made.
    pub(crate) fn within(data: &Path) -> Folders {
        Folders { data: data.to_owned(), log_root: data.join("log") }
    }

    /// Refuses a log root in which no node has started while the data folder has the logs of a store. Their
    /// own coordinator would refuse the log root by its id; under a new one the node would come up empty.
    fn without_logs_left_behind(self) -> Result<Folders, Failure> {
        let own = Folders::within(&self.data).log_root;
        let started = (LogRoot::has_started(&own), LogRoot::has_started(&self.log_root));
        if !matches!(started, (Ok(true), Ok(false))) || planted(Mutant::EmptyLogRootTaken) {
            return Ok(self);
        }
        let (given, own) = (self.log_root.display(), own.display());
        let what =
            format!("`{LOG_ROOT}` is `{given}`, where nothing is stored, but {own} has a store's logs");
        Err(Failure::usage(what).next(
            "mount what log_root is on; or move those logs into it while no node runs; or, to begin another \
             store, move them away",
        ))
    }

    /// The data folder.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The log root.
    pub(crate) fn log_root(&self) -> &Path {
        &self.log_root
    }

    /// Where an embedded coordinator has its table.
    pub(crate) fn coordinator(&self) -> PathBuf {
        self.data.join("coordinator")
    }

    /// The folder of one node: its lock, and its socket for shared memory.
    pub(crate) fn home(&self, node: u32) -> PathBuf {
        self.data.join(format!("node-{node}"))
    }

    /// Whether nothing is stored yet, as far as this host sees.
    pub(crate) fn are_new(&self) -> bool {
        let logs = fs::read_dir(&self.log_root).into_iter().flatten().flatten();
        let mut logs = logs.filter(|entry| !entry.file_name().to_str().is_some_and(is_of_doctor));
        logs.next().is_none() && !self.coordinator().exists()
    }

    /// Whether both are, or are going to be, on one file system.
    pub(crate) fn are_on_one_disk(&self) -> bool {
        device(&self.data) == device(&self.log_root)
    }
}

/// The file system of a folder, or of where it is going to be.
fn device(folder: &Path) -> Option<u64> {
    let folder = std::path::absolute(folder).ok()?;
    folder.ancestors().find_map(|path| fs::metadata(path).ok()).map(|found| found.dev())
}

fn refused(exit: Exit, given: &str, why: &dyn fmt::Display) -> Failure {
    let what = format!("`{LOG_ROOT}` cannot be `{given}`: {why}");
    Failure::new(exit, what).next("give the folder of the cluster's logs, or leave log_root out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    fn folders(data: &Path, log_root: &str) -> Result<Folders, Failure> {
        Folders::of_settings(&settings(&[(DATA_DIR, data.to_str().unwrap()), (LOG_ROOT, log_root)]))
    }

    #[test]
    fn log_root_is_in_the_data_folder_unless_another_one_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let own = folders(&data, "").unwrap();
        assert_eq!((own.log_root(), own.home(3)), (&*data.join("log"), data.join("node-3")));
        assert!(own.are_new() && own.are_on_one_disk());
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        let apart = folders(&data, shared.to_str().unwrap()).unwrap();
        assert_eq!((apart.log_root(), apart.coordinator()), (&*shared, data.join("coordinator")));
        assert!(apart.are_new());
        fs::write(shared.join("cell-doctor-7-shared"), "").unwrap();
        assert!(apart.are_new(), "what a doctor has left is nothing stored");
        fs::write(shared.join("log-root-id"), "").unwrap();
        assert!(!apart.are_new(), "another host has started");
    }

    #[test]
    fn log_root_that_is_not_there_is_refused_and_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, file) = (folder.path().join("missing"), folder.path().join("file"));
        fs::write(&file, "").unwrap();
        for (log_root, words, exit) in
            [(&missing, "it is not there", Exit::Error), (&file, "it is no folder", Exit::Usage)]
        {
            let error = folders(folder.path(), log_root.to_str().unwrap()).unwrap_err();
            assert_eq!(error.exit, exit, "{}", error.what);
            assert!(error.what.contains("`log_root`") && error.what.contains(words), "{}", error.what);
        }
        assert!(!missing.exists());
    }

    /// The words were to leave `log_root` out: the node would have looked for the logs on its own disk.
    #[test]
    fn log_root_that_cannot_be_looked_at_is_to_be_mounted_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = folders(folder.path(), file.join("below").to_str().unwrap()).unwrap_err();
        assert_eq!(error.exit, Exit::Error, "{}", error.what);
        assert!(error.next.is_some_and(|next| next.contains("mount it again")), "{}", error.what);
    }

    /// A node's store was left where it was, and the node came up without an entry.
    #[test]
    fn log_root_without_a_store_is_refused_while_the_data_folder_has_the_logs_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let (data, shared) = (folder.path().join("data"), folder.path().join("shared"));
        let own = data.join("log");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir(&shared).unwrap();
        let given = || folders(&data, shared.to_str().unwrap());
        assert!(given().is_ok(), "nothing is stored anywhere");
        fs::write(own.join("log-root-id"), "").unwrap();
        let refused = given().unwrap_err();
        assert!(
            refused.exit == Exit::Usage && refused.what.contains("has a store's logs"),
            "{}",
            refused.what
        );
        assert!(folders(&data, "").is_ok() && folders(&data, own.to_str().unwrap()).is_ok());
        fs::write(shared.join("log-root-id"), "").unwrap();
        assert!(given().is_ok(), "what it has counts; the others are a copy, or of another store");
    }

    #[test]
    fn log_root_is_taken_from_the_working_directory_on_as_data_folders_are() {
        let folder = tempfile::tempdir().unwrap();
        let here = folders(folder.path(), ".").unwrap();
        assert_eq!(here.log_root(), std::path::absolute(".").unwrap());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_empty_log_root_taken_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::EmptyLogRootTaken));
            let passed = std::panic::catch_unwind(
                log_root_without_a_store_is_refused_while_the_data_folder_has_the_logs_of_one,
            )
            .is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-ops' folders", Mutant::EmptyLogRootTaken.name());
        });
    }
}
