//! Crowds at the fabric's port: who says nothing keeps nobody out, and who comes with many others gets in.

use std::time::Instant;

use cell_client::{Client, ClientError, ClientOptions, Search, Transport};
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

/// A reader and an admin, by the SHA-256 of "token of the reader" and "token of the admin".
const TOKENS: &str = "\
    reader one e851021739bdc2ea5ed81d5295577a80364cdf77bea03c40fe84f159710c52ac
    admin two 43901d1973d563a4cb5f384a9068d7ced4454d9b119bddf8315deb3fbea670b0
";

fn with_token(token: &str, deadline_ms: u64) -> ClientOptions {
    ClientOptions { token: token.as_bytes().to_vec(), ..over_tcp(deadline_ms) }
}

/// All of the crowd may come in, and there is no place for whoever could see to it.
#[test]
#[allow(clippy::disallowed_methods, reason = "lines of a log are counted by the second")]
fn crowd_of_good_clients_keeps_no_operator_out_over_tcp() {
    let started = Instant::now();
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), TOKENS).unwrap();
    let flags = [
        "--fabric-connections-max",
        "64",
        "--fabric-shm",
        "off",
        "--fabric-idle-timeout",
        "0",
        "--tokens-file",
        tokens.path().to_str().unwrap(),
    ];
    let server = Server::start_steady(&flags);
    // Few each: who is refused takes its whole deadline, and a thread's clients come one after the other.
    let crowd = crowd::clients(server.address(), &with_token("token of the reader", 5_000), (50, 2));
    let inside = crowd.iter().filter(|client| client.is_ok()).count();
    assert!((60..=64).contains(&inside), "{inside}: the node's own clients may be the others");
    let is_for_room = |error: &ClientError| matches!(error, ClientError::TooManyConnections { .. });
    let refused: Vec<_> = crowd.iter().filter_map(|client| client.as_ref().err()).collect();
    assert!(refused.len() == 100 - inside && refused.iter().all(|error| is_for_room(error)), "{refused:?}");
    // While more of them come.
    let address = server.address();
    let operator = std::thread::scope(|scope| {
        let more = with_token("token of the reader", 5_000);
        let more = scope.spawn(move || crowd::clients(address, &more, (60, 1)));
        let mut operator = with_token("token of the admin", 60_000);
        operator.connect_timeout_ms = 60_000;
        let operator = Client::connect(&address.to_string(), operator);
        let more = more.join().unwrap();
        let errors: Vec<_> = more.iter().filter_map(|client| client.as_ref().err()).collect();
        assert!(errors.iter().all(|error| is_for_room(error)), "{errors:?}");
        assert!(errors.len() > 50, "{}: the node's own clients may have made room", errors.len());
        operator
    });
    let mut operator = operator.expect("there is a place for it");
    operator.put(b"key", b"value").expect("it is served");
    let (_, metrics) = server.http("/metrics").expect("the node answers");
    let count = metrics.lines().find_map(|line| {
        line.strip_prefix("cell_operations_refused_total{reason=\"too_many_connections\"} ")
    });
    assert!(count.is_some_and(|count| count.parse::<f64>().unwrap() > 0.0), "{count:?}");
    let lines = server.log().lines().filter(|line| line.contains("a client is turned away")).count();
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!((1..=seconds + 2).contains(&lines), "{lines} lines in {seconds} s");
    drop(crowd);
}
