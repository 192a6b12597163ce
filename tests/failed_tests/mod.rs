//! What `tests/run` shows of tests that failed, by logs as nextest, libtest and Node write them: of each
//! `NAME.log` what `NAME.txt` has, which is nothing of what passed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const LOGS: [&str; 5] = ["nextest", "libtest", "libtest_one_thread", "libtest_uncaptured", "node"];

fn in_tests(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// What is shown of a log.
fn shown(log: &Path) -> String {
    let script = in_tests("failed-tests.awk");
    let said = Command::new("awk").arg("-f").arg(script).arg(log).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

#[test]
fn tests_that_failed_are_named_with_the_end_of_their_output_and_others_are_not() {
    for name in LOGS {
        let expected = fs::read_to_string(in_tests(&format!("failed_tests/{name}.txt"))).unwrap();
        assert_eq!(shown(&in_tests(&format!("failed_tests/{name}.log"))), expected, "{name}");
    }
}

#[test]
fn tests_beyond_twenty_are_counted_and_a_log_without_tests_names_none() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    let status =
        |number: u32| format!("        FAIL [   0.015s] ({number:>2}/23) cell-example test_{number}\n");
    fs::write(&log, (1..=23).map(status).collect::<String>()).unwrap();
    let said = shown(&log);
    assert!(said.ends_with("test: cell-example test_20\ntest: 3 more\n"), "{said}");
    assert_eq!(said.lines().count(), 21, "{said}");
    fs::write(&log, "error: could not compile `cell-example` (lib)\n").unwrap();
    assert_eq!(shown(&log), "");
}
