//! The command by itself: what its help says, what it refuses before it begins, what it leaves behind.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use cell_tests::process::{children, signal};
use cell_tests::{program, wait};
use rustix::process::{Pid, Signal};

use super::benches;

/// The benches in a folder that is in nobody's workspace, with this for `CELL_BIN`, if anything.
pub(super) fn benches_in(folder: &Path, named: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cell-benches"));
    command.env_remove(program::VARIABLE).current_dir(folder);
    command.envs(named.map(|path| (program::VARIABLE, path)));
    command
}

/// Wrapped lines joined.
fn help(bench: &str) -> String {
    let output = benches().args([bench, "--help"]).output().expect("the benches can be started");
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_says_the_fewest_entries_and_where_data_is_written() {
    for bench in ["put", "paper", "gluster"] {
        let help = help(bench);
        assert!(help.contains("1000 or more, 1000000000 at most"), "{bench}: {help}");
        assert!(help.contains("[default: the current folder]"), "{bench}: {help}");
        assert!(help.contains("CELL_BIN"), "{bench}: {help}");
    }
    let of_all = benches().arg("--help").output().expect("the benches can be started");
    assert!(String::from_utf8_lossy(&of_all.stdout).contains("CELL_BIN"));
}

/// Bytes of too many entries were counted modulo 2^64, and a reader without keys panicked.
#[test]
fn number_beyond_what_the_help_says_is_refused_at_once() {
    let reader = ["reader", "--engine", "cell", "--at", "127.0.0.1:1", "--number", "0", "--keys", "0"];
    for arguments in [
        &["put", "--entries", "999"][..],
        &["put", "--entries", "1000000001"],
        &["local", "--entries", "18446744073709551615"],
        &["paper", "--measured", "--entries", "1000000001"],
        &reader,
    ] {
        let output = benches().args(arguments).output().expect("the benches can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
        assert!(said.contains("invalid value"), "{arguments:?}: {said}");
    }
}

/// It panicked, or built one in the folder in which it had been built itself.
#[test]
fn program_that_is_not_there_is_refused_at_once_and_none_is_built_elsewhere() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let gone = folder.path().join("no such cell").display().to_string();
    let benches_themselves = env!("CARGO_BIN_EXE_cell-benches");
    for (named, words) in [
        (Some(gone.as_str()), vec![gone.as_str(), "No such file"]),
        (Some("gone/cell"), vec!["/gone/cell", "No such file"]),
        (Some(benches_themselves), vec![benches_themselves, "another program"]),
        (None, vec!["is not set", env!("CARGO_MANIFEST_DIR").trim_end_matches("/benches")]),
    ] {
        for bench in [&["put"][..], &["onesided", "--only", "readers"], &["paper", "--measured"]] {
            let output = benches_in(folder.path(), named).args(bench).output().expect("they can be started");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{bench:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{bench:?}: {said}");
            for word in words.iter().chain(&["CELL_BIN", "cargo build --release"]) {
                assert!(said.contains(word), "{bench:?}: {word} in {said}");
            }
        }
    }
    let left = std::fs::read_dir(folder.path()).expect("it is there").count();
    assert_eq!(left, 0, "nothing was started");
}

/// Tables of minutes are not printed for a plot that has no place.
#[test]
fn path_that_is_no_folder_is_refused_at_once_with_its_flag() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    let path = file.path().display().to_string();
    for arguments in [
        &["paper", "--table", "1", "--short", "--svg"][..],
        &["paper", "--measured", "--dir"],
        &["put", "--dir"],
        &["gluster", "--log-root"],
    ] {
        let flag = arguments[arguments.len() - 1];
        for path in [path.clone(), format!("{path}/inner")] {
            let output = benches().args(arguments).arg(&path).output().expect("the benches can be started");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
            for part in [flag, path.as_str(), "is no folder; name a folder"] {
                assert!(said.contains(part), "{arguments:?}: {part} in {said}");
            }
        }
    }
}

/// It ended by a panic: `2>&1 | head -1` was enough.
#[test]
fn bench_whose_notes_nobody_reads_goes_on_and_ends_as_ever() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let gone = folder.path().join("no such cell").display().to_string();
    for (arguments, code) in [(&["local", "--entries", "1000", "--rounds", "1"][..], 0), (&["put"][..], 2)] {
        let (reader, closed) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let mut command = benches_in(folder.path(), Some(gone.as_str()));
        let output = command.args(arguments).stderr(closed).output().expect("the benches can be started");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", output.status);
        let rows = String::from_utf8_lossy(&output.stdout);
        assert_eq!(rows.contains("local/insert"), code == 0, "{arguments:?}: {rows}");
    }
}

/// It was made without a word, on whatever disk the path then was, and left behind.
#[test]
fn folder_for_data_that_is_not_there_is_refused_and_not_made() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let gone = folder.path().join("disk/inner").display().to_string();
    for arguments in [&["paper", "--measured", "--dir"][..], &["put", "--dir"], &["gluster", "--log-root"]] {
        let output = benches().args(arguments).arg(&gone).output().expect("the benches can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
        for part in [arguments[arguments.len() - 1], gone.as_str(), "is not there; name a folder"] {
            assert!(said.contains(part), "{arguments:?}: {part} in {said}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
}

/// Gigabytes on the disk that is measured would be nobody's: a `Drop` does not run.
#[test]
fn bench_that_a_signal_ends_leaves_no_data_behind() {
    for (arguments, end) in [
        (&["paper", "--measured"][..], Signal::INT),
        // Many enough for minutes: what is drawn for five millions takes as long before anything is written.
        (&["put", "--entries", "200000"][..], Signal::TERM),
        (&["log"][..], Signal::KILL),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut command = benches();
        command.args(arguments).current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut bench = command.spawn().expect("the benches can be started");
        let data = folder.path().join(format!("cell-benches-{}", bench.id()));
        wait::until("data is written", || {
            std::fs::read_dir(&data).is_ok_and(|mut entries| entries.next().is_some())
        });
        signal(Pid::from_child(&bench), end);
        let status = bench.wait().expect("it is a child");
        assert_eq!(status.signal(), Some(end.as_raw()), "{arguments:?} was not at its end: {status}");
        wait::until(&format!("what {arguments:?} has written is gone"), || !data.exists());
    }
}

/// It went on, and printed what the start of another node took as figures of the first one.
#[test]
fn bench_whose_node_is_killed_ends_and_says_so() {
    let mut command = benches();
    command.args(["onesided", "--only", "readers", "--entries", "20000", "--rounds", "2", "--json"]);
    command.current_dir(std::env::temp_dir()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench = command.spawn().expect("the benches can be started");
    let stderr = BufReader::new(bench.stderr.take().expect("it is a pipe"));
    let mut notes = stderr.lines().map(|line| line.expect("notes are UTF-8"));
    assert!(notes.any(|note| note.contains("readers: of one node")), "it measures a node");
    let node = wait::until_some("the supervisor, a child of the bench, has a node", || {
        children(Pid::from_child(&bench)).into_iter().find_map(|child| children(child).into_iter().next())
    });
    signal(node, Signal::KILL);
    let said: Vec<String> = notes.collect();
    let status = bench.wait().expect("it is a child");
    assert_eq!(status.code(), Some(1), "{said:?}");
    assert!(said.iter().any(|line| line.contains("the node ended while it was measured")), "{said:?}");
}
