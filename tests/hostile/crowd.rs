//! Crowds at the fabric's port: who says nothing keeps nobody out, and who comes with many others gets in.

use std::time::Instant;

use cell_client::{ClientError, ClientOptions, Search, Transport};
use cell_tests::server::Server;
use cell_tests::{crowd, program};

use crate::hostile::Siege;

/// More than the server takes connections, and hand-shakes.
const SILENT: usize = 1_300;
const TURNED_AWAY: &str = "a peer was turned away";

fn over_tcp(deadline_ms: u64) -> ClientOptions {
    let (search, transport) = (Search::Server, Transport::Tcp);
    ClientOptions { search, transport, deadline_ms, ..ClientOptions::default() }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "lines of a log are counted by the second")]
fn silent_crowd_locks_no_new_client_out_and_fills_no_log() {
    let started = Instant::now();
    let mut siege = Siege::begin();
    let address = siege.server.address();
    let silent = crowd::silent(address, SILENT);
    // Each of these arrives behind all of them.
    for number in 0..20 {
        let key = format!("behind-{number}");
        let said = siege.server.cell(&["put", "--transport", "tcp", "--timeout", "60s", &key, "value"]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    siege.assert_unharmed();
    let lines = siege.server.log().lines().filter(|line| line.contains(TURNED_AWAY)).count();
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!((1..=seconds + 2).contains(&lines), "{lines} lines in {seconds} s");
    drop(silent);
}

#[test]
fn thousand_clients_at_once_all_get_in() {
    let server = Server::start_steady(&[]);
    let clients = crowd::clients(server.address(), &over_tcp(120_000), (50, 20));
    let mut clients: Vec<_> = clients.into_iter().map(|client| client.expect("it gets in")).collect();
    assert_eq!(clients.len(), 1_000);
    let last = clients.last_mut().expect("there are some");
    last.put(b"key", b"value").expect("it is served");
    for client in clients.iter_mut().step_by(100) {
        assert_eq!(client.get(b"key").expect("it is served").expect("it is there").value, b"value");
    }
    drop(clients);
}

#[test]
fn clients_beyond_the_limit_are_refused_within_their_deadline_with_the_right_hint() {
    let server = Server::start_steady(&["--fabric-connections-max", "100"]);
    let clients = crowd::clients(server.address(), &over_tcp(2_000), (20, 7));
    let is_for_room = |error: &ClientError| matches!(error, ClientError::TooManyConnections { .. });
    let refused = clients.iter().filter_map(|client| client.as_ref().err());
    assert!(refused.clone().all(is_for_room), "{:?}", refused.collect::<Vec<_>>());
    assert_eq!(clients.iter().filter(|client| client.is_ok()).count(), 100);
    let said = server.cell(&["get", "--transport", "tcp", "--timeout", "500ms", "key"]);
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.err.contains("fabric_connections_max"), "{said:?}");
    // Over shared memory others are counted. Who knows the socket needs no greeting over tcp.
    let socket = format!("shm:{}", server.folder().join("node-0/fabric.socket").display());
    let said = program::run(&["put", "--server", &socket, "--timeout", "60s", "key", "value"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let closing: Vec<_> = clients.into_iter().take(70).collect();
    drop(closing);
    let later = crowd::clients(server.address(), &over_tcp(120_000), (1, 1));
    assert!(later.iter().all(Result::is_ok));
}
