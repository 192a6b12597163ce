//! What `tests/run` shows of tests that failed, by logs as nextest, libtest and Node write them: of each
//! `NAME.log` what `NAME.txt` has, which is nothing of what passed; and of tests that were not run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const LOGS: [&str; 5] = ["nextest", "libtest", "libtest_one_thread", "libtest_uncaptured", "node"];

fn in_tests(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// What a script says of files.
fn said(script: &str, files: &[&Path]) -> String {
    let said = Command::new("awk").arg("-f").arg(in_tests(script)).args(files).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// What is shown of a log.
fn shown(log: &Path) -> String {
    said("failed-tests.awk", &[log])
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

/// Nextest has ended with tests that it had not started. A run said their number, in the end of its log, and
/// not even that where another test had failed.
#[test]
fn tests_that_were_not_run_are_counted_and_named_by_the_list_of_all() {
    let folder = TempDir::new().unwrap();
    let [log, list] = ["log", "list"].map(|name| folder.path().join(name));
    let passed = "        PASS [   0.015s] ( 1/30) cell-example::suite begun\n        \
                 SLOW [>180.000s] (───) cell-example::suite begun_and_slow\n        \
                 PASS [ 190.000s] ( 2/30) cell-example::suite begun_and_slow\n";
    let end = "     Summary [ 190.000s] 2/30 tests run: 2 passed, 0 skipped\n\
               warning: 28/30 tests were not run\nerror: test run failed\n";
    fs::write(&log, [passed, end].concat()).unwrap();
    assert_eq!(shown(&log), "test: 28/30 tests were not run\n");
    let name = |number: u32| format!("cell-example::suite not_begun_{number}\n");
    let listed = |names: String| {
        let all = ["cell-example::suite begun\n", &names, "cell-example::suite begun_and_slow\n"].concat();
        fs::write(&list, all).unwrap();
        said("not-run.awk", &[&log, &list])
    };
    assert_eq!(listed(name(1) + &name(2)), name(1) + &name(2));
    let many = listed((1..=28).map(name).collect());
    assert_eq!(many, (1..=20).map(name).collect::<String>() + "8 more\n");
}
