//! Where a node listens, and what is advertised of it.

use std::process::Stdio;

use cell_tests::lease::LONG_LEASE;
use cell_tests::ports::Ports;
use cell_tests::process::signal;
use cell_tests::wait;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::harness::{FLAGS, command};

/// The name of HTTP is advertised, and not the address that it has.
#[test]
fn node_serves_http_at_a_name_and_one_that_leads_nowhere_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::take();
    let port = ports.first;
    let listen = format!("--listen-address=127.0.0.1:{port}");
    let data = |name: &str| format!("--data-dir={}", folder.path().join(name).display());
    let nowhere = format!("--http-address=nowhere.invalid:{}", port + 80);
    let refused = command(&["node", &data("nowhere"), &listen, &nowhere]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("`http_address` cannot be `nowhere.invalid:") && said.contains("DNS"), "{said}");

    // A supervisor hands its nodes the address that the name has, and the name to advertise.
    for (name, supervised) in [("alone", None), ("supervised", Some("--processes=1"))] {
        let http = format!("localhost:{}", port + 80);
        let mut node = command(&["node", &data(name), &listen, &format!("--http-address={http}")])
            .args(supervised)
            .args(FLAGS)
            .args(LONG_LEASE)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let shown = wait::until_some("the node says where its HTTP is", || {
            assert!(node.try_wait().unwrap().is_none(), "it has ended");
            let said = command(&["node", "ls", "--json", "--http", &http]).output().unwrap();
            let listed = serde_json::from_slice::<Value>(&said.stdout).ok()?;
            listed["nodes"][0]["http"].as_str().filter(|http| !http.is_empty()).map(str::to_owned)
        });
        assert_eq!(shown, http, "{name}");
        signal(Pid::from_child(&node), Signal::TERM);
        assert_eq!(node.wait().unwrap().code(), Some(0));
    }
}

/// What a node is started with that is reached from elsewhere: every address of its host, and its name.
#[test]
fn node_on_every_address_is_reached_by_its_name_and_says_that_its_network_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::take();
    let port = ports.first;
    let listen =
        [format!("--listen-address=0.0.0.0:{port}"), format!("--http-address=127.0.0.1:{}", port + 80)];
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let refused = |more: &[&str], words: &str| {
        let said = command(&["node", &data]).args(&listen).args(more).output().unwrap();
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        assert!(String::from_utf8_lossy(&said.stderr).contains(words), "{said:?}");
    };
    refused(&[], "is not a loopback address");
    refused(&["--insecure-network=true"], "every address of this host");
    let advertised = format!("--advertise-address=localhost:{port}");
    let mut node = command(&["node", &data, &advertised, "--insecure-network=true"])
        .args(FLAGS)
        .args(LONG_LEASE)
        .args(&listen)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let server = format!("127.0.0.1:{port}");
    let put = ["put", "key", "value", "--timeout", "60s", "--server", &server];
    wait::until("the node serves", || {
        assert!(node.try_wait().unwrap().is_none(), "it has ended");
        command(&put).output().unwrap().status.success()
    });
    let status = command(&["status", "--server", &server]).output().unwrap();
    let said = [status.stdout, status.stderr].concat();
    assert!(
        String::from_utf8_lossy(&said).contains("insecure_network"),
        "{}",
        String::from_utf8_lossy(&said)
    );
    // Of several servers each node that the table has is asked where it says that it is: by its name.
    for servers in [format!("localhost:{port}"), format!("{server},{server}")] {
        let shown = command(&["tree", "show", "--transport", "tcp", "--server", &servers]).output().unwrap();
        assert!(shown.status.success(), "{servers}: {shown:?}");
    }
    signal(Pid::from_child(&node), Signal::TERM);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

/// IPv6 addresses stand in brackets wherever one is given or advertised.
#[test]
fn node_on_an_ipv6_address_is_read_and_written_there_and_reports_it() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        println!("SKIPPED: a node on an IPv6 address: this machine has none");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::take();
    let [server, http] = [ports.first, ports.first + 80].map(|port| format!("[::1]:{port}"));
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let mut node = command(&["node", &data, "--listen-address", &server, "--http-address", &http])
        .args(FLAGS)
        .args(LONG_LEASE)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let there = ["--transport", "tcp", "--server", &server];
    let ask = |arguments: &[&str]| command(&[arguments, &there[..]].concat()).output().unwrap();
    wait::until("the node serves", || {
        assert!(node.try_wait().unwrap().is_none(), "it has ended");
        ask(&["put", "key", "value", "--timeout", "60s"]).status.success()
    });
    for search in ["server", "client"] {
        let said = ask(&["get", "key", "--search", search]);
        assert_eq!(String::from_utf8_lossy(&said.stdout), "value\n", "{search}: {said:?}");
    }
    let shown = wait::until_some("the node says where it is", || {
        let said = command(&["node", "ls", "--json", "--http", &http]).output().unwrap();
        let listed = serde_json::from_slice::<Value>(&said.stdout).ok()?;
        let of = |name: &str| listed["nodes"][0][name].as_str().map(str::to_owned);
        of("http").filter(|http| !http.is_empty()).zip(of("address"))
    });
    assert_eq!(shown, (http, server));
    signal(Pid::from_child(&node), Signal::TERM);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}
