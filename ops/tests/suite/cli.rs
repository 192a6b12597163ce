//! The command line without a server: usage, exit codes, settings, completions, manual pages.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::Output;

use crate::harness::command;

fn cell(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
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
fn settings_as_json_have_kind_unit_and_bounds() {
    let document: serde_json::Value = serde_json::from_slice(&cell(&["settings", "--json"]).stdout).unwrap();
    let rows = document["settings"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    let segment = row("log_segment_bytes");
    assert_eq!((&segment["kind"], &segment["unit"]), (&"bytes".into(), &"bytes".into()));
    assert_eq!((&segment["min"], &segment["max"]), (&(1 << 20).into(), &(1 << 30).into()));
    assert_eq!((&segment["power_of_two"], &segment["default_value"]), (&true.into(), &(64 << 20).into()));
    let idle = row("log_seal_idle");
    assert_eq!((&idle["kind"], &idle["unit"]), (&"time".into(), &"ms".into()));
    assert_eq!((&idle["min"], &idle["default_value"]), (&1.into(), &20.into()));
    assert_eq!(row("lease_drift_margin")["unit"], serde_json::Value::Null);
    assert!(row("lease_drift_margin")["max"].is_f64());
    assert!(row("durability")["choices"].as_array().unwrap().contains(&"sync".into()));
    assert!(rows.iter().all(|row| row["kind"].is_string()), "{document}");
}

/// With these a slip of the hand shut everybody out: connections that were idle after a millisecond, calls of
/// the coordinator that never had the time, one connection for all.
#[test]
fn settings_cannot_be_tuned_to_an_outage() {
    let document: serde_json::Value = serde_json::from_slice(&cell(&["settings", "--json"]).stdout).unwrap();
    let rows = document["settings"].as_array().unwrap();
    for (name, min, max) in [
        ("fabric_connections_max", 64, 65_536),
        ("fabric_handshakes_max", 16, 65_536),
        ("fabric_handshake_timeout", 500, 60_000),
        ("fabric_idle_timeout", 10_000, 86_400_000),
        ("coordinator_deadline_ms", 100, 10_000),
        ("lease_ms", 100, 60_000),
        ("log_prepare_retry", 10, 10_000),
        ("membership_poll_ms", 5, 500),
    ] {
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        assert_eq!((&row["min"], &row["max"]), (&min.into(), &max.into()), "{name}");
    }
    // A folder that cannot be made ends the node that takes the setting.
    let idle = |text: &str| {
        let flag = format!("--fabric-idle-timeout={text}");
        String::from_utf8(cell(&["node", &flag, "--data-dir=/dev/null/none"]).stderr).unwrap()
    };
    assert!(idle("1ms").contains("0, or a time from 10 s to 24 h"), "{}", idle("1ms"));
    assert!(idle("0").contains("/dev/null/none"), "it may be kept for ever: {}", idle("0"));
}

/// What is called live would be believed to be: these are what a running node takes over, and its log.
#[test]
fn settings_that_apply_live_are_those_that_a_node_takes_over() {
    let document: serde_json::Value = serde_json::from_slice(&cell(&["settings", "--json"]).stdout).unwrap();
    let live = document["settings"].as_array().unwrap().iter().filter(|row| row["applies"] == "live");
    let found: Vec<&str> = live.map(|row| row["name"].as_str().unwrap()).collect();
    let expected = [
        "tracing_filter",
        "value_bytes_max",
        "stream_bytes_max",
        "scan_page_entries_max",
        "checkpoint_log_ratio",
        "checkpoint_log_bytes_min",
        "checkpoint_age_ms",
        "checkpoint_niceness",
        "membership_poll_ms",
        "unclaimed_grace_ms",
        "move_bytes_per_second",
        "balance",
        "balance_tolerance",
        "balance_window_ms",
        "balance_pair_rest_ms",
        "balance_node_rest_ms",
        "balance_retry_ms",
        "balance_stall_ms",
        "balance_bytes_floor",
        "balance_load_floor_us",
        "split_fill_percent",
        "compaction_ratio",
        "session_idle_ms",
        "worker_spin_us",
        "recovery_threads",
        "log_seal_idle",
        "log_prepare_retry",
        "image_zstd_level",
        "populate_chunk_bytes",
        "coordinator_deadline_ms",
        "fabric_connections_max",
        "fabric_handshakes_max",
        "fabric_connection_output_bytes_max",
        "fabric_handshake_timeout",
        "fabric_idle_timeout",
        "fabric_shm_ring_bytes",
        "http_changes_per_second",
        "client_deadline",
        "client_in_flight_max",
        "client_queue_max",
        "client_retries_max",
        "client_retry_shortest",
        "client_retry_longest",
        "client_connect_timeout",
        "client_silence",
        "client_search",
        "client_report_interval",
        "client_cache_inner",
        "client_cache_bytes",
        "client_stream_credit_bytes",
        "client_spin_us",
        "client_selector_policy",
        "client_selector_fixed_share",
        "client_selector_exploration",
        "client_selector_idle",
        "client_selector_reads",
        "client_selector_samples",
        "client_selector_outlier",
        "client_selector_interval",
        "client_selector_wait_weight",
        "client_selector_read_cpu_ns",
    ];
    assert_eq!(found, expected);
}

/// A reason is a sentence of its own, not that a setting is what it is.
#[test]
fn settings_that_do_not_apply_live_say_why() {
    let document: serde_json::Value = serde_json::from_slice(&cell(&["settings", "--json"]).stdout).unwrap();
    for row in document["settings"].as_array().unwrap() {
        let (name, why) = (&row["name"], row["why_not_live"].as_str());
        assert_eq!(why.is_none(), row["applies"] == "live", "{name}");
        let Some(why) = why else { continue };
        assert!(why.len() > 30 && why.ends_with('.'), "{name}: {why}");
    }
}

/// Settings that contradict one another are refused before anything is made.
#[test]
fn settings_that_contradict_one_another_are_refused_with_both_values() {
    let flags = ["node", "--node-region-bytes=40MiB", "--slot-bytes=64MiB", "--data-dir=/nowhere"];
    let output = cell(&flags);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("`slot_bytes` is 64 MiB and `node_region_bytes` is 40 MiB"), "{error}");
    assert!(error.contains("give a larger node_region_bytes or a smaller slot_bytes"), "{error}");
}

/// It held memory back for deletes, splits and recoveries, none of which ever took from it.
#[test]
fn settings_there_is_no_headroom_that_nobody_uses() {
    let output = cell(&["node", "--extent-headroom-bytes=1MiB", "--listen-address=nowhere"]);
    assert!(text(&output.stderr).contains("unexpected argument '--extent-headroom-bytes'"), "{output:?}");
}

#[test]
fn usage_errors_under_json_are_one_json_object() {
    for arguments in [
        &["nonsense", "--json"][..],
        &["--json", "get"],
        &["get", "key", "--hex", "--base64", "--json"],
        &["settings", "--json", "--markdown"],
        &["dev", "--json", "--port", "80"],
        &["node", "--json", "--node-id", "1024"],
    ] {
        let output = cell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let document: serde_json::Value = serde_json::from_slice(&output.stderr)
            .unwrap_or_else(|_| panic!("{arguments:?}: not JSON: {}", text(&output.stderr)));
        assert_eq!(document["version"], 1);
        let error = &document["error"];
        assert_eq!((&error["code"], &error["exit"]), (&"usage".into(), &2.into()), "{arguments:?}");
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains("error:") && !message.contains('\n'), "{message}");
        assert!(error["next"].is_string(), "{document}");
    }
    let plain = cell(&["get", "--", "--json", "--hex", "--base64"]);
    assert!(plain.stderr.starts_with(b"error: "), "what follows `--` is no option: {plain:?}");
}

#[test]
fn get_into_a_file_takes_one_key_and_no_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("value");
    for more in [&["other"][..], &["--json"]] {
        let output = cell(&[&["get", "key", "--output", file.to_str().unwrap()], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}: {output:?}");
        assert!(text(&output.stderr).contains("--output"), "{output:?}");
    }
    assert!(!file.exists());
}

#[test]
fn del_of_a_range_unconfirmed_is_refused_before_anybody_is_asked() {
    for range in [&["--prefix", "a"][..], &["--from", "a", "--to", "b"], &["--after", "a"], &["--all"]] {
        let output = cell(&[&["del", "--server", "127.0.0.1:1"], range].concat());
        assert_eq!(output.status.code(), Some(2), "{range:?}: {output:?}");
        assert!(text(&output.stderr).contains("--yes"), "{output:?}");
    }
    for wrong in [&["del"][..], &["del", "key", "--prefix", "k"], &["del", "a", "b", "--if-version", "1.1.1"]]
    {
        assert_eq!(cell(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// `cell del --prefix "$UNSET" --yes` was every entry.
#[test]
fn del_of_an_empty_bound_is_refused_before_anybody_is_asked() {
    for range in [
        &["--prefix", ""][..],
        &["--from", ""],
        &["--after", ""],
        &["--to", ""],
        &["--from", "a", "--to", ""],
        &["--hex", "--prefix", ""],
    ] {
        let output = cell(&[&["del", "--yes", "--server", "127.0.0.1:1"], range].concat());
        assert_eq!(output.status.code(), Some(2), "{range:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("is empty") && said.contains("--all"), "{said}");
    }
    for wrong in [
        &["--all", "key"][..],
        &["--all", "--prefix", "k"],
        &["--all", "--to", "k"],
        &["--yes"],
        &["--yes", ""],
    ] {
        let output = cell(&[&["del", "--server", "127.0.0.1:1"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {output:?}");
    }
}

#[test]
fn load_of_what_is_no_source_is_refused_before_anybody_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content, says) in [
        (
            "heading",
            &b"#cell-dump 2 tsv escaped\na\tb\n"[..],
            "line 1 is a dump's heading that this build does not know",
        ),
        (
            "json-heading",
            b"{\"cell_dump\":\"begin\",\"version\":2}\n",
            "line 1 is a dump's heading that this build does not know",
        ),
        ("csv", b"word,count\na,1\n", "line 1 has no tab"),
        ("mark", b"\xef\xbb\xbfword\t1\n", "line 1 begins with a byte order mark"),
        ("utf16", b"\xff\xfea\0\t\0b\0\n\0", "UTF-16"),
        ("array", b"[{\"key\":\"a\",\"value\":\"b\"}]\n", "looks like a JSON array"),
        ("xz", b"\xfd7zXZ\0\0\x04\t\n", "packed with xz"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap();
        for command in [&["load", path][..], &["load", path, "--progress", "/nonexistent/progress"]] {
            let output = cell(&[command, &["--server", "127.0.0.1:1"]].concat());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}: {said}");
            assert!(
                said.contains(path) && said.contains(says) && said.contains("\nnext: "),
                "{name}: {said}"
            );
        }
    }
}

#[test]
fn the_systemd_unit_asks_for_the_watchdog_that_nodes_feed() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/cell-node.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let seconds = unit.lines().find_map(|line| line.strip_prefix("WatchdogSec=")).map(str::parse::<u64>);
    assert!(matches!(seconds, Some(Ok(10..=60))), "{seconds:?}");
    assert!(unit.contains("Type=notify\n"), "the watchdog is fed by notifications");
}

/// A node that died of its start again and again was given up after five starts, or started each half second.
#[test]
fn the_systemd_unit_waits_longer_from_restart_to_restart_and_never_gives_up() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/cell-node.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let sections: Vec<&str> = unit.split("\n[").collect();
    let has = |section: &str, line: &str| {
        sections.iter().any(|text| text.starts_with(section) && text.lines().any(|of| of == line))
    };
    assert!(has("Unit]", "StartLimitIntervalSec=0"), "where systemd looks for it");
    for line in ["Restart=on-failure", "RestartSec=500ms", "RestartSteps=8", "RestartMaxDelaySec=30s"] {
        assert!(has("Service]", line), "{line}");
    }
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
        &["node", "--node-id", "1024"],
        &["node", "--log-segment-bytes", "3MiB"],
        &["node", "--listen-address", "nowhere"],
        &["node", "--tracing-filter", "garbage"],
        &["dev", "--port", "80"],
        &["inspect", "log", "/nonexistent/folder"],
        &["inspect", "table", "/nonexistent/folder"],
        &["inspect", "table", "--coordinator", "etcd"],
        &["inspect", "table", "--coordinator", "tls://nowhere.invalid:7200"],
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

/// What a command says is the same with every variable that it reads there and empty, as without them.
#[test]
fn variables_that_are_empty_are_not_set() {
    let document: serde_json::Value = serde_json::from_slice(&cell(&["settings", "--json"]).stdout).unwrap();
    let rows = document["settings"].as_array().unwrap().iter();
    let settings = rows.map(|row| format!("CELL_{}", row["name"].as_str().unwrap().to_uppercase()));
    let others = ["CELL_SERVER", "CELL_CONFIG", "CELL_HTTP", "CELL_CA", "CELL_TOKEN", "NO_COLOR"];
    let names: Vec<_> = settings.chain(others.map(str::to_owned)).collect();
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().display());
    for arguments in [
        &["node", &data, "--listen-address=0.0.0.0:0", "--tracing-filter=off"][..],
        &["get", "key", "--server", "127.0.0.1:1"],
        &["put", "key"],
        &["node", "ls", "--http", "127.0.0.1:1"],
        &["get", "--help"],
    ] {
        let without = command(arguments).env_remove("NO_COLOR").output().unwrap();
        let with = command(arguments).envs(names.iter().map(|name| (name, ""))).output().unwrap();
        let said = |output: &Output| text(&output.stdout) + &text(&output.stderr);
        let words = |output: &Output| {
            let words = said(output).split_whitespace().collect::<Vec<_>>().join(" ");
            let variables = [" [env: CELL_SERVER=]", " [env: CELL_CA=]", " [env: CELL_TOKEN]"];
            variables.iter().fold(words, |words, variable| words.replace(variable, ""))
        };
        assert_eq!(
            (with.status.code(), words(&with)),
            (without.status.code(), words(&without)),
            "{arguments:?}"
        );
    }
    // Without a server's name each asks its own; what answers there, if anything does, is not asked for.
    let defaults = command(&["get", "key", "--timeout=1ms"]).env("CELL_SERVER", "").output().unwrap();
    assert!(!text(&defaults.stderr).contains("cannot find an address"), "{}", text(&defaults.stderr));
}

/// Exit code 4 came of them, and the question whether a node ran there.
#[test]
fn server_that_no_node_can_have_is_a_wrong_argument() {
    for (server, words) in [
        ("https://127.0.0.1:7000", "without a scheme"),
        ("127.0.0.1:0", "port 0"),
        ("[fe80::1%eth0]:7000", "interface's number"),
    ] {
        for command in [&["get", "key"][..], &["node", "ls"]] {
            let output = cell(&[command, &["--server", server]].concat());
            let said = text(&output.stderr);
            assert!(output.status.code() == Some(2) && said.contains("HOST:PORT"), "{said}");
            assert!(said.contains(words), "{said}");
        }
    }
}

#[test]
fn a_list_of_no_nodes_is_refused() {
    for http in ["", " , "] {
        let output = cell(&["node", "ls", "--http", http]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--http, or CELL_HTTP, names no node"));
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

/// A service that says this to whoever comes, and nothing more.
fn service(says: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut connection in listener.incoming().map_while(Result::ok) {
            let _ = connection.write_all(says);
            open.push(connection);
        }
    });
    address
}

#[test]
fn another_service_at_the_port_is_named() {
    for (says, named) in [
        (&b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..], "speaks HTTP"),
        (b"-DENIED Redis is running in protected mode\r\n", "speaks the Redis protocol"),
        (b"\x15\x03\x03\0\x02\x02\x32", "speaks TLS"),
        (b"", "nothing says hello there"),
        (b"", "lease may have run out, as its /readyz says"),
    ] {
        let server = service(says).to_string();
        let output = cell(&["get", "key", "--server", &server, "--timeout", "1s"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains(named) && said.contains(&server) && said.contains("7000 by default"), "{said}");
    }
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

/// A build without the feature has no fabric for it; one with it says what the machine lacks.
#[cfg(not(feature = "verbs"))]
#[test]
fn transport_verbs_in_a_build_without_it_names_the_cargo_feature() {
    let output = cell(&["get", "--server", "127.0.0.1:1", "--transport", "verbs", "key"]);
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("cargo build --release --features verbs"), "{words}");
}
