//! The embedded coordinator under kill -9, and two processes on one folder. The child is this test binary
//! again; a variable says what it is to be.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cell_cluster::{ClusterError, Coordinator, Embedded, Transaction};

const CHILD_FOLDER: &str = "CELL_CLUSTER_TEST_FOLDER";
const KEYS: u64 = 50;

/// Not a test by itself: what the child processes run.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(CHILD_FOLDER) else { return };
    let coordinator = Embedded::open(Path::new(&folder)).unwrap();
    let lease = coordinator.grant(3_600_000).unwrap().lease;
    eprintln!("open {}", lease.0);
    let from = coordinator.read("last").unwrap().map_or(0, |entry| entry.value.parse::<u64>().unwrap());
    for number in from + 1.. {
        let write = Transaction::new()
            .put("last", number.to_string())
            .put(format!("key/{:02}", number % KEYS), number.to_string())
            .put(format!("large/{:02}", number % 7), format!("{number:0>2000}"));
        coordinator.transact(write).unwrap();
        eprintln!("done {number}");
    }
}

fn start(folder: &Path) -> (Child, impl Iterator<Item = (String, u64)>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::child", "--nocapture"])
        .env(CHILD_FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let words = lines.filter_map(|line| {
        let (word, number) = line.split_once(' ')?;
        Some((word.to_owned(), number.parse().ok()?))
    });
    (child, words)
}

#[test]
fn transact_killed_process_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    let mut leases = Vec::new();
    for kill in 0..20 {
        let (mut child, mut words) = start(folder.path());
        leases.push(words.next().expect("the child opens the table").1);
        for (word, number) in words.by_ref().take(20 + kill * 7) {
            assert_eq!(word, "done");
            acknowledged = number;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged = words.last().map_or(acknowledged, |(_, number)| number);

        let coordinator = Embedded::open(folder.path()).unwrap();
        let last: u64 = coordinator.read("last").unwrap().unwrap().value.parse().unwrap();
        assert!(last == acknowledged || last == acknowledged + 1, "{last} after {acknowledged}");
        for number in last.saturating_sub(KEYS - 1).max(1)..=last {
            let key = format!("key/{:02}", number % KEYS);
            let entry = coordinator.read(&key).unwrap().unwrap();
            assert_eq!(entry.value, number.to_string(), "a transaction is whole");
        }
        let large = coordinator.read(&format!("large/{:02}", last % 7)).unwrap().unwrap();
        assert_eq!(large.value, format!("{last:0>2000}"));
    }
    assert!(acknowledged > 400);
    assert!(leases.is_sorted_by(|a, b| a < b), "ids of leases are not reused: {leases:?}");
}

#[test]
fn open_folder_of_a_living_process_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut words) = start(folder.path());
    words.next().expect("the child opens the table");
    let refused = Embedded::open(folder.path()).err().unwrap();
    assert!(
        matches!(&refused, ClusterError::Held { folder: held, pid: Some(pid) }
            if *pid == child.id() && held == folder.path()),
        "{refused}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    Embedded::open(folder.path()).unwrap();
}
