//! Settings, keys, values and servers that cannot be.

use std::io::Write;

use cell_tests::program;
use cell_tests::server::Server;
use tempfile::{NamedTempFile, TempDir};

use crate::refusals::assert_refused;

/// Exit codes, as CONSOLE.md has them.
const USAGE: i32 = 2;
const NOT_FOUND: i32 = 3;
const UNREACHABLE: i32 = 4;

#[test]
fn setting_out_of_bounds_says_what_is_taken() {
    let folder = TempDir::new().unwrap();
    let dev = |flags: &[&str]| {
        let mut arguments = vec!["dev", "--dir", folder.path().to_str().unwrap()];
        arguments.extend(flags);
        program::run(&arguments)
    };
    assert_refused(&dev(&["--slot-bytes", "3MiB"]), USAGE, &["slot_bytes", "3MiB", "a power of two"]);
    assert_refused(&dev(&["--tree-node-bytes", "100"]), USAGE, &["tree_node_bytes", "512"]);
    assert_refused(&dev(&["--durability", "maybe"]), USAGE, &["durability", "sync", "async", "none"]);
    assert_refused(&dev(&["--log-segment-bytes", "lots"]), USAGE, &["log_segment_bytes", "lots"]);
    assert_refused(&dev(&["--checkpoint-log-ratio=-1"]), USAGE, &["checkpoint_log_ratio", "-1"]);
    assert_refused(&dev(&["--no-such-setting", "1"]), USAGE, &["no-such-setting"]);
    assert_refused(&dev(&["--port", "80"]), USAGE, &["80", "1024"]);
}

#[test]
fn configuration_file_that_is_wrong_is_named() {
    let node = |text: &str| {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        (program::run(&["node", "--config", &path]), path)
    };
    let (said, path) = node("slot_byte = \"64 MiB\"\n");
    assert_refused(&said, USAGE, &[&path, "slot_byte", "did you mean `slot_bytes`"]);
    let (said, path) = node("slot_bytes = [\n");
    assert_refused(&said, USAGE, &[&path]);
    let said = program::run(&["node", "--config", "/nonexistent/cell.toml"]);
    assert!(said.code != Some(0) && said.err.contains("/nonexistent/cell.toml"), "{said:?}");
}

#[test]
fn address_off_loopback_is_refused_without_tls_and_token() {
    for flag in ["--listen-address", "--http-address"] {
        let said = program::run(&["node", flag, "0.0.0.0:17000"]);
        assert_refused(&said, USAGE, &["0.0.0.0:17000", "loopback"]);
    }
}

#[test]
fn keys_and_values_that_cannot_be_are_refused_with_the_bounds() {
    let server = Server::start_steady(&[]);
    assert_refused(&server.cell(&["put", "", "x"]), USAGE, &["empty"]);
    assert_refused(&server.cell(&["get", ""]), USAGE, &["empty"]);
    let long = "k".repeat(300);
    assert_refused(&server.cell(&["put", &long, "x"]), USAGE, &["1 to 178 bytes", "300"]);
    assert_refused(&server.cell(&["get", &long]), USAGE, &["178", "300"]);
    let mut large = NamedTempFile::new().unwrap();
    large.write_all(&vec![7; (16 << 20) + 1]).unwrap();
    let path = large.path().to_str().unwrap();
    assert_refused(&server.cell(&["put", "large", "--file", path]), USAGE, &["16777217", "at most"]);
    assert_refused(&server.cell(&["get", "large"]), NOT_FOUND, &["large"]);
    assert_refused(&server.cell(&["cas", "absent", "--version-is", "1.1.1", "x"]), NOT_FOUND, &[]);
    // The longest and the shortest key do.
    let longest = "k".repeat(178);
    for key in [longest.as_str(), "k"] {
        assert_eq!(server.cell(&["put", key, ""]).code, Some(0));
        assert_eq!(server.cell(&["get", key]).code, Some(0));
    }
}

#[test]
fn server_that_is_not_there_is_unreachable() {
    let ports = cell_tests::ports::Ports::take();
    let nobody = format!("127.0.0.1:{}", ports.first);
    for command in [&["get", "k"][..], &["put", "k", "v"], &["scan"], &["count"], &["status"], &["verify"]] {
        let mut arguments = vec![command[0], "--server", &nobody];
        arguments.extend(&command[1..]);
        assert_refused(&program::run(&arguments), UNREACHABLE, &[&nobody, "cell dev"]);
    }
    let said = program::run(&["get", "--server", "no.such.host.invalid:7000", "k"]);
    assert_refused(&said, UNREACHABLE, &["no.such.host.invalid"]);
}

#[test]
fn http_port_in_place_of_the_fabrics_is_recognised() {
    let server = Server::start_steady(&[]);
    let http = format!("127.0.0.1:{}", server.address().port() + 80);
    let said = program::run(&["get", "--server", &http, "k"]);
    assert_refused(&said, UNREACHABLE, &["fabric", "7000"]);
}

#[test]
fn errors_in_json_mode_are_json() {
    let ports = cell_tests::ports::Ports::take();
    let nobody = format!("127.0.0.1:{}", ports.first);
    let said = program::run(&["get", "--json", "--server", &nobody, "k"]);
    assert_eq!(said.code, Some(UNREACHABLE));
    let line = said.err.lines().last().unwrap_or_default();
    let parsed: serde_json::Value = serde_json::from_str(line).expect("an error is a JSON object");
    assert!(parsed.to_string().contains("unreachable"), "{line}");
}
