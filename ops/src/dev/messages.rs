//! What the cluster's processes report, in files of its folder, each of a bounded length.
//!
//! A node writes into its file itself: over a pipe, a supervisor that stands still would stop it. So the file
//! is bounded from outside, by a copy that is kept and a cut; what is written between the two is lost.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Context;

/// A longer file is cut, and one copy of it is kept.
const BYTES_MAX: u64 = 16 << 20;
/// How often lengths are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// An error's line is looked for in so much of the end.
const END_BYTES: u64 = 64 << 10;

/// A process's file, open for appending; its folder is made if it is missing.
pub(crate) fn open(path: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot write {}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(cannot)?;
    OpenOptions::new().create(true).append(true).open(path).with_context(cannot)
}

/// Files that are kept bounded, by one thread for all of them: two would cut a file twice, and its copy with
/// it. Clones are of the same files; the thread ends with the last of them.
#[derive(Clone, Debug)]
pub(crate) struct BoundedFiles(Arc<Mutex<BTreeSet<PathBuf>>>);

impl BoundedFiles {
    /// Keeps these files bounded from now on.
    pub(crate) fn start(paths: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<BoundedFiles> {
        let files = BoundedFiles(Arc::new(Mutex::new(paths.into_iter().collect())));
        let kept = Arc::downgrade(&files.0);
        let run = move || keep_bounded(&kept);
        thread::Builder::new().name("messages".into()).spawn(run).context("cannot start a thread")?;
        Ok(files)
    }

    /// And this one, which may be among them.
    pub(crate) fn add(&self, path: PathBuf) {
        self.paths().insert(path);
    }

    fn paths(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bound(&self, bytes_max: u64) {
        let paths = self.paths().clone(); // a copy takes its time
        for path in &paths {
            if let Err(error) = bound(path, bytes_max)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::debug!(%error, path = %path.display(), "messages cannot be cut");
            }
        }
    }
}

/// Keeps the files bounded for as long as somebody has them.
fn keep_bounded(files: &Weak<Mutex<BTreeSet<PathBuf>>>) {
    while let Some(files) = files.upgrade() {
        BoundedFiles(files).bound(BYTES_MAX);
        thread::sleep(LOOK_EVERY);
    }
}

/// The copy that is kept of what was cut.
fn kept(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

fn bound(path: &Path, bytes_max: u64) -> io::Result<()> {
    if fs::metadata(path)?.len() > bytes_max {
        // A disk that is full takes no copy: it is the file itself that must not grow.
        let copied = fs::copy(path, kept(path));
        OpenOptions::new().write(true).open(path)?.set_len(0)?;
        copied?;
    }
    Ok(())
}

/// The last error that a process reported since its file had so many bytes.
pub(crate) fn last_error(path: &Path, since: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    // Shorter than it was: it was cut.
    let since = if length < since { 0 } else { since };
    file.seek(SeekFrom::Start(since.max(length.saturating_sub(END_BYTES)))).ok()?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().collect();
    let error = |at: usize| {
        let line = lines[at].strip_prefix("error: ").map(str::to_owned);
        line.or_else(|| panic_of(lines[at], lines.get(at + 1)?))
    };
    (0..lines.len()).rev().find_map(error)
}

/// `thread 'worker' (7) panicked at src/lib.rs:1:2:`, and what it says in the line after that.
fn panic_of(line: &str, next: &str) -> Option<String> {
    let (_, place) = line.strip_prefix("thread '")?.split_once("panicked at ")?;
    Some(format!("panicked at {} {next}", place.trim_end()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn bound_cuts_a_long_file_and_its_writer_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("messages/node-0.log");
        let mut writer = open(&path).unwrap();
        writer.write_all(&[b'a'; 100]).unwrap();
        bound(&path, 100).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 100, "as long as it may be");
        writer.write_all(b"b").unwrap();
        bound(&path, 100).unwrap();
        writer.write_all(b"c").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"c", "appended, not behind a hole");
        assert_eq!(fs::read(kept(&path)).unwrap().len(), 101);
    }

    /// A node that was added, left and was added again had a thread for each time.
    #[test]
    fn file_that_is_added_again_is_cut_once_and_the_thread_ends_with_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["node-0.log", "node-1.log"].map(|name| folder.path().join(name));
        let files = BoundedFiles(Arc::new(Mutex::new(BTreeSet::from([first.clone()]))));
        for _ in 0..3 {
            files.clone().add(second.clone());
        }
        assert_eq!(files.paths().len(), 2);
        fs::write(&second, [b'a'; 101]).unwrap();
        files.bound(100); // the first one is not there yet
        fs::write(&first, [b'b'; 102]).unwrap();
        files.bound(100);
        assert_eq!([&first, &second].map(|path| fs::read(path).unwrap().len()), [0, 0]);
        assert_eq!([&first, &second].map(|path| fs::read(kept(path)).unwrap().len()), [102, 101]);
        let kept_by = Arc::downgrade(&files.0);
        drop(files);
        keep_bounded(&kept_by); // it returns
    }

    #[test]
    fn last_error_is_of_this_life_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node-0.log");
        assert_eq!(last_error(&path, 0), None);
        fs::write(&path, "error: old\n").unwrap();
        let since = fs::metadata(&path).unwrap().len();
        assert_eq!(last_error(&path, since), None);
        fs::write(&path, "error: old\n INFO x\nerror: new\nnext: do\n").unwrap();
        assert_eq!(last_error(&path, since).as_deref(), Some("new"));
        let panic = "error: x\nthread 'cell-worker' (77) panicked at wal/src/a.rs:5:9:\nit is\nnote: run\n";
        fs::write(&path, panic).unwrap();
        assert_eq!(last_error(&path, 0).as_deref(), Some("panicked at wal/src/a.rs:5:9: it is"));
        fs::write(&path, "error: cut\n").unwrap();
        assert_eq!(last_error(&path, 1 << 20).as_deref(), Some("cut"));
    }
}
