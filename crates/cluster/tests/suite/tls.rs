//! The coordinator over a network: who is let in, and who holds nobody up.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRefusal, CoordinatorTlsServer, Embedded, FirstLease, LeaseTerms,
    Remote, Sim, TlsAddress, TlsCredentials, Transaction, boottime_ns,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::etcd::members::{until, until_some};
use crate::ports::Ports;
use crate::test_tls::{Ends, TOKEN};

/// How long anything may take that the machine only has to get done.
const PATIENCE: Duration = Duration::from_secs(120);

fn serve(ends: &Ends, coordinator: Arc<dyn Coordinator>, port: u16) -> CoordinatorTlsServer {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    CoordinatorTlsServer::start(coordinator, address, ends.server(), Ends::check()).unwrap()
}

fn remote(server: SocketAddr, credentials: TlsCredentials) -> Remote {
    let address = TlsAddress::parse(&format!("tls://{server}")).unwrap().unwrap();
    Remote::over_tls(address, credentials, PATIENCE)
}

#[test]
fn peer_that_is_not_trusted_is_asked_nothing_and_one_without_the_token_is_answered_nothing() {
    let (ends, others) = (Ends::new(), Ends::new());
    let server = serve(&ends, Arc::new(Sim::new(1).link()), 0);
    let refused = remote(server.address(), others.credentials(TOKEN)).grant(1_000).unwrap_err();
    assert!(matches!(refused, ClusterError::NotReached(_)), "{refused}");
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains(&server.address().to_string()) && why.contains("certificate"), "{why}");
    for token in ["", "of the nodeS", "of the nodes "] {
        let refused = remote(server.address(), ends.credentials(token)).grant(1_000).unwrap_err();
        let is_refused = matches!(refused, ClusterError::Refused(CoordinatorRefusal::Token));
        assert!(is_refused && refused.is_transient(), "`{token}`: {refused}");
        let asks = Arc::new(remote(server.address(), ends.credentials(token)));
        let refused = FirstLease::ask(asks, LeaseTerms::new(1_000, 0.05)).unwrap().granted().err().unwrap();
        assert!(
            matches!(refused, ClusterError::Refused(CoordinatorRefusal::Token)),
            "no node starts: {refused}"
        );
    }
    assert_eq!(server.connections(), 0);
    remote(server.address(), ends.credentials(TOKEN)).grant(1_000).unwrap();
}

/// What is not TLS, and what is TLS and not the hello.
#[test]
fn peer_that_does_not_say_who_it_is_gets_no_answer() {
    let ends = Ends::new();
    let server = serve(&ends, Arc::new(Sim::new(1).link()), 0);
    let question = b"{\"number\":1,\"request\":{\"read\":{\"key\":\"a\"}}}\n";
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(question).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.contains(&b'{'), "{answer:?}");
    let long = [&[b'a'; 8 << 10][..], b"\n"].concat();
    for garbage in [&question[..], b"{\"version\":9,\"token\":\"of the nodes\"}\n", b"\xff\n", &long[..]] {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(ends.client(), name).unwrap();
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        stream.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let said = String::from_utf8_lossy(&answer);
        let other_version = "{\"refused\":{\"version\":{\"asked\":9,\"known\":3}}}\n";
        assert!(["", "{\"refused\":\"unreadable\"}\n", other_version].contains(&&*said), "{said}");
    }
    assert_eq!(server.connections(), 0);
}

/// More of them than there is room for, all the time, beside a node whose every renewal needs a new
/// connection.
#[test]
fn silent_peers_in_any_number_hold_up_no_renewal() {
    let ends = Ends::new();
    let sim = Sim::new(1);
    let server = serve(&ends, Arc::new(sim.link()), 0);
    let address = server.address();
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(server.strangers() <= 256);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let flood = std::thread::spawn(move || {
        let mut silent = silent;
        while !stopped.load(Ordering::SeqCst) {
            silent.rotate_left(1);
            if let (Some(last), Ok(stream)) = (silent.last_mut(), TcpStream::connect(address)) {
                *last = stream;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
    let lease = until_some("a lease is granted", || {
        remote(address, ends.credentials(TOKEN)).grant(60_000).ok().map(|grant| grant.lease)
    });
    for _ in 0..50 {
        until("a renewal gets through", || {
            remote(address, ends.credentials(TOKEN)).keep_alive(lease).is_ok()
        });
    }
    stop.store(true, Ordering::SeqCst);
    flood.join().unwrap();
}

/// A token that is taken back, and one that takes its place.
#[test]
fn token_that_is_taken_back_counts_no_more_and_the_next_one_does_without_a_new_client() {
    let ends = Ends::new();
    let known = Arc::new(Mutex::new(vec!["old".to_owned()]));
    let of_server = known.clone();
    let check = Arc::new(move |token: &str| of_server.lock().unwrap().iter().any(|known| known == token));
    let address = "127.0.0.1:0".parse().unwrap();
    let sim = Sim::new(1);
    let server = CoordinatorTlsServer::start(Arc::new(sim.link()), address, ends.server(), check).unwrap();
    let shown = Arc::new(Mutex::new("old".to_owned()));
    let (client, of_client) = (ends.client(), shown.clone());
    let credentials = move || -> std::io::Result<(Arc<ClientConfig>, String)> {
        Ok((client.clone(), of_client.lock().unwrap().clone()))
    };
    let remote = remote(server.address(), Arc::new(credentials));
    remote.transact(Transaction::new().put("a", "1")).unwrap();
    known.lock().unwrap().push("new".to_owned());
    *shown.lock().unwrap() = "new".to_owned();
    remote.transact(Transaction::new().put("b", "2")).unwrap();
    known.lock().unwrap().retain(|token| token != "old");
    assert_eq!(remote.read("b").unwrap().unwrap().value, "2", "over a new connection");
    known.lock().unwrap().clear();
    let refused = remote.read("b").unwrap_err();
    assert!(matches!(refused, ClusterError::Refused(CoordinatorRefusal::Token)), "{refused}");
}

/// Its process is killed and started again, with what is on its disk.
#[test]
fn lease_is_renewed_on_after_the_coordinator_was_away() {
    let (ends, folder) = (Ends::new(), tempfile::tempdir().unwrap());
    let open = || -> Arc<dyn Coordinator> { Arc::new(Embedded::open(folder.path()).unwrap()) };
    // While nobody listens at it, nobody else may take the port.
    let ports = Ports::take();
    let server = serve(&ends, open(), ports.first);
    let remote = remote(server.address(), ends.credentials(TOKEN));
    remote.set_deadline(Duration::from_secs(10));
    let terms = LeaseTerms::new(30_000, 0.05);
    let lease = FirstLease::ask(Arc::new(remote), terms).unwrap().granted().unwrap();
    let renewed = || lease.counts().values(boottime_ns())[0].value;
    drop(server);
    until("the old one has let go", || Embedded::open(folder.path()).is_ok());
    let _server = serve(&ends, open(), ports.first);
    let before = renewed();
    until("the lease is renewed again", || renewed() > before);
    assert!(lease.holds());
}
