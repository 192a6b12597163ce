//! Names of the doctor's files in the log root, and those that a process has left which was killed.

use std::fs;
use std::path::Path;
use std::time::Duration;

const PREFIX: &str = "cell-doctor-";
/// No doctor takes as long: what is older is nobody's, whichever host wrote it.
const AGE: Duration = Duration::from_secs(3_600);

/// Whether a file of this name is the doctor's. Nodes pass it by.
pub(crate) fn is_of_doctor(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// A file's name of this process: `cell-doctor-HOST-PID-WHICH`.
pub(super) fn name(which: &str) -> String {
    format!("{PREFIX}{}-{}-{which}", host(), std::process::id())
}

/// What processes have in common that know each other by number: a boot, and a space of such numbers.
fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{}.{digits}", boot.get(..8).unwrap_or("none"))
}

/// Removes what other processes have left in this folder. `own` is a file that this one has just written
/// there: its date is of the same clock as theirs.
pub(super) fn remove(folder: &Path, own: &Path) {
    let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let (now, host) = (modified(own), host());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str().filter(|name| is_of_doctor(name)) else { continue };
        let age = now.zip(modified(&path)).and_then(|(now, then)| now.duration_since(then).ok());
        if age.is_some_and(|age| age > AGE) || is_of_the_dead(name, &host) {
            let _ = fs::remove_file(path); // it may have been removed just now
        }
    }
}

/// Whether a process of this host wrote it that has ended.
fn is_of_the_dead(name: &str, host: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(host)?.strip_prefix('-'));
    let process = rest.and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use super::*;

    #[test]
    fn remove_takes_files_of_the_dead_and_old_ones_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let dead = name("shared").replace(&format!("-{}-", std::process::id()), &format!("-{}-", ended.id()));
        let (own, other) = (name("old"), "cell-doctor-elsewhere-1-old");
        let (aged, earlier) = ("cell-doctor-elsewhere-2-old", "cell-doctor-7-direct");
        for name in [&*own, &*dead, other, aged, earlier, "log-root-id"] {
            File::create(path(name)).unwrap();
        }
        let now = fs::metadata(path(&own)).unwrap().modified().unwrap();
        for name in [aged, earlier, "log-root-id"] {
            File::options().write(true).open(path(name)).unwrap().set_modified(now - 2 * AGE).unwrap();
        }
        remove(folder.path(), &path(&own));
        let left = [&*own, &*dead, other, aged, earlier, "log-root-id"].map(|name| path(name).exists());
        assert_eq!(left, [true, false, true, false, false, true]);
    }
}
