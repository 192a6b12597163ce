//! The command line without a server: usage, exit codes, settings, completions, manual pages.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Output};

fn cell(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cell"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CELL_")) {
        command.env_remove(name);
    }
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn settings_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/SETTINGS.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let expected = text(&cell(&["settings", "--markdown"]).stdout);
    assert!(
        found == expected,
        "docs/SETTINGS.md is not current: `cell settings --markdown > docs/SETTINGS.md`"
    );
}

#[test]
fn settings_as_json_carry_a_version_and_every_default() {
    let output = cell(&["settings", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["version"], 1);
    let names: Vec<_> = document["settings"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert!(names.iter().any(|name| *name == "log_segment_bytes"), "{names:?}");
}

#[test]
fn usage_errors_exit_with_2() {
    for arguments in [
        &["nonsense"][..],
        &["get"],
        &["get", "key", "--hex", "--base64"],
        &["get", "--hex", "xyz"],
        &["put", "key", "value", "--if-absent", "--if-present"],
        &["put", "key", "value", "--if-version", "1.2"],
        &["cas", "key", "value"],
        &["scan", "--prefix", "a", "--from", "b"],
        &["load", "-", "--progress", "file"],
        &["node", "--node-id", "99"],
        &["node", "--log-segment-bytes", "3MiB"],
        &["node", "--listen-address", "nowhere"],
        &["dev", "--port", "80"],
        &["inspect", "log", "/nonexistent/folder"],
    ] {
        let output = cell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_setting_out_of_bounds_says_what_it_takes() {
    let output = cell(&["node", "--log-segment-bytes", "3MiB"]);
    let error = text(&output.stderr);
    assert!(error.contains("`log_segment_bytes` cannot be `3MiB`: it takes bytes from 1 MiB"), "{error}");
}

#[test]
fn a_wrong_name_in_the_configuration_names_the_nearest() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "log_segmnt_bytes = \"8 MiB\"\n").unwrap();
    let output = cell(&["node", "--config", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("did you mean `log_segment_bytes`?"), "{error}");
}

#[test]
fn an_address_that_is_not_loopback_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().display());
    for flag in ["--listen-address=0.0.0.0:0", "--http-address=0.0.0.0:0"] {
        let output = cell(&["node", &data, "--listen-address=127.0.0.1:0", flag]);
        assert_eq!(output.status.code(), Some(2), "{flag}");
        assert!(text(&output.stderr).contains("loopback"), "{flag}: {}", text(&output.stderr));
    }
}

#[test]
fn nobody_there_exits_with_4_and_says_what_next() {
    let output = cell(&["get", "key", "--server", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(4));
    let error = text(&output.stderr);
    assert!(
        error.starts_with("error: ") && error.contains("\nnext: is a node running at 127.0.0.1:1?"),
        "{error}"
    );
    let output = cell(&["get", "key", "--server", "127.0.0.1:1", "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let document: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&document["version"], &document["error"]["code"]), (&1.into(), &"unreachable".into()));
    let output = cell(&["status", "--server", "127.0.0.1:1", "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["nodes"][0]["error"]["code"], "unreachable");
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&cell(&["completion", shell]).stdout);
        assert!(script.contains("verify") && script.contains("log-segment-bytes"), "{shell}");
    }
    assert!(text(&cell(&["man"]).stdout).contains(".TH cell 1"));
    let folder = tempfile::tempdir().unwrap();
    assert!(cell(&["man", "--dir", folder.path().to_str().unwrap()]).status.success());
    for page in ["cell.1", "cell-load.1", "cell-inspect-log.1", "cell-bench-ycsb.1"] {
        assert!(folder.path().join(page).exists(), "{page}");
    }
}

#[test]
fn colour_only_when_asked_for() {
    let plain = cell(&["get", "key", "--server", "127.0.0.1:1"]);
    assert!(!plain.stderr.contains(&0x1b));
    let colored = cell(&["get", "key", "--server", "127.0.0.1:1", "--color", "always"]);
    assert!(colored.stderr.contains(&0x1b));
}
