//! A node whose coordinator is etcd: as `cell doctor` sees it, served, and with its table brought home.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cell_tests::lease::LONG_LEASE;
use cell_tests::ports::Ports;
use cell_tests::process::signal;
use cell_tests::{reaper, wait};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::harness::{FLAGS, command};

/// An etcd of one member, at this port and the next one; none: it is not installed.
fn etcd(data: &Path, port: u16) -> Option<Child> {
    if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: a node on etcd: etcd is missing (apt install etcd-server)");
        return None;
    }
    let [clients, peers] = [port, port + 1].map(|port| format!("http://127.0.0.1:{port}"));
    let mut command = Command::new("etcd");
    command.args(["--name", "m0", "--initial-cluster", &format!("m0={peers}")]).arg("--data-dir").arg(data);
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    reaper::mark(&mut command);
    Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// What `cell doctor` says of the coordinator.
fn examined(data: &str, endpoints: &str) -> Value {
    let asked = ["doctor", "--json", "--coordinator-address=etcd", data, endpoints];
    let said = command(&asked).args(LONG_LEASE).output().unwrap();
    let document: Value = serde_json::from_slice(&said.stdout).unwrap();
    let checks = document["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == "coordinator").unwrap().clone()
}

/// Raises etcd's alarm NOSPACE, or takes it back.
fn alarm(port: u16, action: &str) {
    let body = format!(r#"{{"action":"{action}","memberID":"0","alarm":"NOSPACE"}}"#);
    let mut gateway = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let question = format!(
        "POST /v3/maintenance/alarm HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    gateway.write_all(question.as_bytes()).unwrap();
    let mut said = String::new();
    gateway.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

/// A member that takes no write, one that is named twice, and one that is silent beside one that is not.
fn members_are_distinguished(member: u16, data: &str, endpoints: &str) {
    alarm(member, "ACTIVATE");
    wait::until("the doctor is refused for want of space", || {
        let seen = examined(data, endpoints);
        seen["health"] == "bad" && seen["seen"].as_str().unwrap().contains("NOSPACE")
    });
    alarm(member, "DEACTIVATE");
    wait::until("the doctor's write is taken again", || examined(data, endpoints)["health"] != "bad");
    let twice = format!("{endpoints},http://localhost:{member}");
    wait::until("the doctor knows a member that is named twice", || {
        let seen = examined(data, &twice);
        seen["health"] == "doubtful" && seen["seen"].as_str().unwrap().contains("are one member")
    });

    let silent = format!("{endpoints},http://127.0.0.1:{}", member + 2);
    wait::until("the doctor tells the member that is silent from the other", || {
        let seen = examined(data, &silent);
        seen["health"] == "doubtful" && seen["seen"].as_str().unwrap().contains("does not answer")
    });
}

/// A node with these flags, and its address.
fn start(port: u16, flags: &[&str]) -> (Child, String) {
    let server = format!("127.0.0.1:{port}");
    let listen = [format!("--listen-address={server}"), format!("--http-address=127.0.0.1:{}", port + 80)];
    let mut command = command(&["node"]);
    command.args(FLAGS).args(LONG_LEASE).args(listen).args(flags);
    (command.stdout(Stdio::null()).spawn().unwrap(), server)
}

fn stop(mut node: Child) {
    signal(Pid::from_child(&node), Signal::TERM);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

#[test]
fn node_on_etcd_serves_and_goes_on_with_its_table_at_home() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::take();
    let member = ports.first + 200;
    let Some(mut etcd) = etcd(&folder.path().join("etcd"), member) else { return };
    let home = folder.path().join("data");
    let home = home.to_str().unwrap();
    let data = format!("--data-dir={home}");
    let endpoints = format!("--etcd-endpoints=http://127.0.0.1:{member}");
    wait::until("the doctor is answered by etcd", || {
        let seen = examined(&data, &endpoints);
        seen["health"] != "bad" && seen["seen"].as_str().unwrap().contains("50 reads")
    });
    members_are_distinguished(member, &data, &endpoints);

    let other = member + 4;
    let mut elsewhere = self::etcd(&folder.path().join("other"), other).unwrap();
    let mixed = format!("{endpoints},http://127.0.0.1:{other}");
    wait::until("the doctor tells members of two clusters apart", || {
        let seen = examined(&data, &mixed);
        seen["health"] == "bad" && seen["seen"].as_str().unwrap().contains("of the cluster")
    });
    let (refused, _) = start(ports.first, &[&data, "--coordinator-address=etcd", &mixed]);
    assert_eq!(refused.wait_with_output().unwrap().status.code(), Some(2));
    let copy = ["coordinator", "copy", "--from=etcd", "--to", home, &mixed];
    let refused = command(&copy).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("different clusters of etcd"), "{said}");
    let table = ["inspect", "table", "--json", "--coordinator=etcd"];
    let refused = command(&table).arg(&mixed).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();

    let (mut node, server) = start(ports.first, &[&data, "--coordinator-address=etcd", &endpoints]);
    let put = ["put", "key", "brought along", "--timeout", "60s", "--server", &server];
    wait::until("the node on etcd serves", || {
        assert!(node.try_wait().unwrap().is_none(), "it has ended");
        command(&put).output().unwrap().status.success()
    });
    let shown = command(&table).arg(&endpoints).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(!shown["pairs"].as_array().unwrap().is_empty(), "{shown}");
    stop(node);
    // Too early: what it leaves is not in the copy's way.
    let (refused, _) = start(ports.first, &[&data]);
    assert_eq!(refused.wait_with_output().unwrap().status.code(), Some(2));
    let copy = ["coordinator", "copy", "--json", "--from=etcd", "--to", home, &endpoints];
    let copied = command(&copy).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    etcd.kill().unwrap();
    etcd.wait().unwrap();

    let (mut node, server) = start(ports.first, &[&data]);
    let get = ["get", "key", "--timeout", "60s", "--server", &server];
    wait::until("the node serves without etcd", || {
        assert!(node.try_wait().unwrap().is_none(), "it has ended");
        let found = command(&get).output().unwrap();
        found.status.success() && String::from_utf8_lossy(&found.stdout).contains("brought along")
    });
    stop(node);
}
