//! A coordinator over TLS as a process of its own, and two nodes that reach it by a name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use cell_tests::lease::LONG_LEASE;
use cell_tests::ports::Ports;
use cell_tests::process::signal;
use cell_tests::wait;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{FLAGS, command};

/// What nodes show.
pub(crate) const TOKEN: &str = "of-the-nodes";
/// A line of it, of role admin, and of another one.
pub(crate) const ADMIN: &str =
    "admin nodes 6ed605b550696ea916267210bcca123db1c086d198e8ab8314a0b5dcc1be283b\n";
const OTHER: &str = "admin other 0000000000000000000000000000000000000000000000000000000000000000\n";
/// A role that may not ask.
const OPERATOR: &str = "operator nodes 6ed605b550696ea916267210bcca123db1c086d198e8ab8314a0b5dcc1be283b\n";

/// The files of a cluster, the coordinator's port, and those of its nodes.
struct Site {
    folder: TempDir,
    ports: Ports,
}

impl Site {
    fn new() -> Site {
        let site = Site { folder: tempfile::tempdir().unwrap(), ports: Ports::take() };
        site.sign("one", false);
        fs::copy(site.path("host/ca.crt"), site.path("trust.crt")).unwrap();
        fs::write(site.path("token"), format!("{TOKEN}\n")).unwrap();
        fs::write(site.path("tokens"), [ADMIN, OTHER].concat()).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Gives the coordinator a certificate that the CA of that name has signed.
    fn sign(&self, ca: &str, again: bool) {
        let (ca, host) = (self.text(ca), self.text("host"));
        let make =
            ["certificates", "make", "--host", "localhost,127.0.0.1", "--out", &host, "--ca", &ca, "--renew"];
        let words = if again { &make[..] } else { &make[..make.len() - 1] };
        let made = command(words).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }

    fn port(&self) -> u16 {
        self.ports.first + 200
    }

    fn coordinator_flags(&self) -> Vec<String> {
        vec![
            "coordinator".to_owned(),
            format!("--data-dir={}", self.text("coordinator")),
            format!("--listen=127.0.0.1:{}", self.port()),
            format!("--tls-certificate-file={}", self.text("host/node.crt")),
            format!("--tls-key-file={}", self.text("host/node.key")),
            format!("--tokens-file={}", self.text("tokens")),
        ]
    }

    fn start_coordinator(&self) -> Child {
        let flags = self.coordinator_flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        command(&flags).stdout(Stdio::null()).spawn().unwrap()
    }

    /// How the coordinator is reached, with these files.
    fn way(&self, trust: &str, token: &str) -> [String; 3] {
        [
            format!("--coordinator-address=tls://localhost:{}", self.port()),
            format!("--tls-trust-file={}", self.text(trust)),
            format!("--coordinator-token-file={}", self.text(token)),
        ]
    }

    /// A node, and its address.
    fn node(&self, id: u16, token: &str) -> (Child, String) {
        let (fabric, http) = (self.ports.first + id, self.ports.first + 80 + id);
        let server = format!("127.0.0.1:{fabric}");
        let own = [
            format!("--node-id={id}"),
            format!("--listen-address={server}"),
            format!("--http-address=127.0.0.1:{http}"),
            format!("--data-dir={}", self.text("data")),
        ];
        let mut command = command(&["node"]);
        command.args(FLAGS).args(LONG_LEASE).args(own).args(self.way("trust.crt", token));
        (command.stdout(Stdio::null()).spawn().unwrap(), server)
    }

    /// What `cell doctor` says of the coordinator.
    fn examined(&self, trust: &str, token: &str) -> Value {
        let data = format!("--data-dir={}", self.text("examined"));
        let mut command = command(&["doctor", "--json", &data]);
        let said = command.args(LONG_LEASE).args(self.way(trust, token)).output().unwrap();
        let document: Value = serde_json::from_slice(&said.stdout).unwrap();
        let checks = document["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == "coordinator").unwrap().clone()
    }

    fn is_answered(&self, trust: &str, token: &str) -> bool {
        let seen = self.examined(trust, token);
        seen["health"] != "bad" && seen["seen"].as_str().unwrap().contains("50 reads")
    }
}

/// Puts another file in the place of one.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

fn lives(child: &mut Child) {
    assert!(child.try_wait().unwrap().is_none(), "it has ended");
}

fn put(server: &str, value: &str) -> bool {
    command(&["put", "key", value, "--timeout", "30s", "--server", server]).output().unwrap().status.success()
}

fn has(server: &str, value: &str) -> bool {
    let found = command(&["get", "key", "--timeout", "30s", "--server", server]).output().unwrap();
    found.status.success() && String::from_utf8_lossy(&found.stdout).contains(value)
}

fn stop(mut child: Child) {
    signal(Pid::from_child(&child), Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The table is read as a node reads it: by flags, and by a node's own configuration.
fn table_is_shown(site: &Site) {
    let place = format!("tls://localhost:{}", site.port());
    let [_, trust, token] = site.way("trust.crt", "token");
    let lines = [
        format!("coordinator_address = \"{place}\"\n"),
        format!("tls_trust_file = \"{}\"\n", site.text("trust.crt")),
        format!("coordinator_token_file = \"{}\"\n", site.text("token")),
    ];
    let config = site.text("node.toml");
    fs::write(&config, lines.concat()).unwrap();
    for way in [&["--coordinator", &place, &trust, &token][..], &["--config", &config]] {
        let said = command(&["inspect", "table", "--json"]).args(way).output().unwrap();
        assert!(said.status.success(), "{way:?}: {said:?}");
        let table: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert!(!table["pairs"].as_array().unwrap().is_empty(), "{way:?}: {table}");
    }
    fs::write(site.path("guess"), "a guess\n").unwrap();
    let [_, _, guess] = site.way("trust.crt", "guess");
    let asked = command(&["inspect", "table", "--coordinator", &place, &trust, &guess]).output().unwrap();
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
}

#[test]
fn nodes_over_tls_serve_through_a_new_ca_and_a_coordinator_that_was_killed() {
    let site = Site::new();
    let mut coordinator = site.start_coordinator();
    wait::until("the coordinator answers over TLS", || site.is_answered("trust.crt", "token"));
    let (mut first, one) = site.node(0, "token");
    wait::until("the first node serves", || {
        lives(&mut first);
        put(&one, "before")
    });
    let (mut second, other) = site.node(1, "token");
    wait::until("the second node has joined", || {
        lives(&mut second);
        has(&other, "before")
    });

    let said = command(&["status", "--json", "--server", &one]).output().unwrap();
    let status: Value = serde_json::from_slice(&said.stdout).unwrap();
    let place = format!("tls://localhost:{}", site.port());
    assert!(
        status["nodes"].as_array().unwrap().iter().all(|node| node["coordinator"] == place.as_str()),
        "{status}"
    );
    let said = command(&["status", "--server", &one]).output().unwrap();
    let line = format!("coordinator: {place}\n");
    assert!(String::from_utf8_lossy(&said.stdout).contains(&line), "{said:?}");

    table_is_shown(&site);

    // A CA is rolled: nodes trust both, then the coordinator shows a certificate of the new one.
    let old = fs::read_to_string(site.path("trust.crt")).unwrap();
    fs::copy(site.path("trust.crt"), site.path("old.crt")).unwrap();
    let (spare, two) = (site.text("spare"), site.text("two"));
    let make = ["certificates", "make", "--host", "localhost", "--out", &spare, "--ca", &two];
    let made = command(&make).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let new = fs::read_to_string(site.path("spare/ca.crt")).unwrap();
    let both = [old, new].concat();
    replace(&site.path("trust.crt"), &both);
    replace(&site.path("host/ca.crt"), &both);
    site.sign("two", true);
    wait::until("the new certificate is shown", || site.is_answered("spare/ca.crt", "token"));
    assert!(!site.is_answered("old.crt", "token"), "the old one is shown no more");

    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    let mut coordinator = site.start_coordinator();
    wait::until("both nodes serve with it", || {
        lives(&mut first);
        lives(&mut second);
        put(&one, "after") && has(&other, "after")
    });
    lives(&mut coordinator);
    stop(first);
    stop(second);

    let home = site.text("home");
    let from = format!("tls://localhost:{}", site.port());
    let [_, trust, token] = site.way("trust.crt", "token");
    let copy = ["coordinator", "copy", "--json", "--from", &from, "--to", &home, &trust, &token];
    let copied = command(&copy).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    stop(coordinator);
}

#[test]
fn nodes_with_another_token_are_refused_and_a_token_that_is_taken_back_counts_no_more() {
    let site = Site::new();
    fs::write(site.path("guess"), "a guess\n").unwrap();
    let coordinator = site.start_coordinator();
    wait::until("the coordinator answers over TLS", || site.is_answered("trust.crt", "token"));
    let (mut refused, _) = site.node(0, "guess");
    assert_eq!(refused.wait().unwrap().code(), Some(2));
    let (from, home) = (format!("tls://localhost:{}", site.port()), site.text("home"));
    let [_, trust, guess] = site.way("trust.crt", "guess");
    let copy = ["coordinator", "copy", "--from", &from, "--to", &home, &trust, &guess];
    assert_eq!(command(&copy).output().unwrap().status.code(), Some(1), "as for other commands");
    let seen = site.examined("trust.crt", "guess");
    assert!(seen["health"] == "bad" && seen["seen"].as_str().unwrap().contains("role admin"), "{seen}");
    replace(&site.path("tokens"), &[OPERATOR, OTHER].concat());
    signal(Pid::from_child(&coordinator), Signal::HUP);
    wait::until("the role is taken back", || !site.is_answered("trust.crt", "token"));
    replace(&site.path("tokens"), ADMIN);
    signal(Pid::from_child(&coordinator), Signal::HUP);
    wait::until("and given again", || site.is_answered("trust.crt", "token"));
    stop(coordinator);
}

#[test]
fn coordinator_does_not_listen_without_tls_or_without_a_token_of_role_admin() {
    let site = Site::new();
    let flags = site.coordinator_flags();
    let refused = |flags: &[String], words: &str| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let refused = command(&flags).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(words), "{said}");
    };
    refused(&flags[..3], "over TLS, by token");
    refused(&flags[..5], "over TLS, by token");
    let without_tls = [&flags[..3], &flags[5..]].concat();
    refused(&without_tls, "over TLS, by token");
    replace(&site.path("tokens"), OPERATOR);
    refused(&flags, "no token of role admin");
}

/// At boot a name may lead nowhere yet, and an address may not be up: systemd, which starts nobody again who
/// has ended with 2, is to try again.
#[test]
fn coordinator_that_cannot_listen_yet_is_to_be_started_again() {
    let site = Site::new();
    let mut flags = site.coordinator_flags();
    let taken = std::net::TcpListener::bind(("127.0.0.1", site.port())).unwrap();
    for listen in [None, Some("--listen=nowhere.invalid:7200")] {
        if let Some(listen) = listen {
            flags[2] = listen.to_owned();
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let refused = command(&flags).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
    }
    drop(taken);
}
