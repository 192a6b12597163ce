//! Who may ask a worker for what, where there are tokens.

use std::sync::Arc;

use cell_fabric::{ConnectionId, FabricLimits, PeerAddress, ReadPermission};
use cell_node::{AccessRules, ProcessWarnings, WarningSubject, Worker, WorkerIdentity, WorkerOptions};
use cell_protocol::{Hello, PROTOCOL_VERSION, Reply, Request, RequestHeader, StatusCode};
use cell_recovery::Progress;
use cell_terms::{Incarnation, NodeId};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::worker_core::world::OPTIONS;

const MS: u64 = 1_000_000;

fn hash(token: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(token))
}

/// Of a file with a reader and a viewer.
fn access() -> AccessRules {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = format!("reader one {}\nviewer two {}\n", hash("read"), hash("view"));
    std::fs::write(file.path(), lines).unwrap();
    AccessRules::open(file.path().to_str().unwrap()).unwrap()
}

fn worker(access: AccessRules) -> Worker {
    worker_of(Arc::new(access))
}

fn worker_of(access: Arc<AccessRules>) -> Worker {
    worker_with(OPTIONS, access)
}

fn worker_with(options: WorkerOptions, access: Arc<AccessRules>) -> Worker {
    let identity = WorkerIdentity { node: NodeId(1), incarnation: Incarnation(1) };
    Worker::new(identity, options, Arc::new(Progress::new(0)), 0).with_access(access)
}

/// The refusal of a request, if it is refused.
fn ask(worker: &mut Worker, connection: ConnectionId, request: &Request<'_>) -> Option<StatusCode> {
    let mut message = Vec::new();
    request.encode(RequestHeader::default(), &mut message).unwrap();
    worker.message(connection, &message);
    let reply = worker.release(MS, u64::MAX).iter().map(|(_, reply)| reply.to_vec()).next();
    worker.replies_sent();
    match Reply::decode(&reply.expect("it is answered")).unwrap() {
        (_, Reply::Refused(refusal)) => Some(refusal.status()),
        _ => None,
    }
}

/// What the hello of a peer with this token is refused with, and then a get and a question for the status.
fn refusals(worker: &mut Worker, peer: PeerAddress, token: &[u8]) -> [Option<StatusCode>; 3] {
    let connection = ConnectionId::from_number(7);
    worker.accepted_showing(connection, peer, &[]);
    let hello = Hello { version: PROTOCOL_VERSION, name: "", token, stream_credit_bytes: 0 };
    let refused = [Request::Hello(hello), Request::Get { key: b"key" }, Request::Status]
        .map(|request| ask(worker, connection, &request));
    worker.closed(connection);
    refused
}

#[test]
pub(crate) fn token_is_asked_for_and_its_role_decides() {
    let (unauthorized, recovering) = (Some(StatusCode::Unauthorized), Some(StatusCode::Recovering));
    let tcp = PeerAddress::Tcp("127.0.0.1:1".parse().unwrap());
    let mut asking = worker(access());
    for token in [&b""[..], b"wrong"] {
        // Who was not greeted has to say hello first.
        let malformed = Some(StatusCode::Malformed);
        assert_eq!(refusals(&mut asking, tcp, token), [unauthorized, malformed, malformed]);
    }
    assert_eq!(refusals(&mut asking, tcp, b"read"), [None, recovering, unauthorized]);
    assert_eq!(refusals(&mut asking, tcp, b"view"), [None, unauthorized, None]);
    // The kernel says who is there.
    let root = PeerAddress::Shm { user: 0 };
    assert_eq!(refusals(&mut asking, root, b""), [None, recovering, None]);
    assert_eq!(refusals(&mut worker(AccessRules::default()), tcp, b""), [None, recovering, None]);
}

/// Over RDMA nothing encrypts the hello, so that the token has come before, with the connection.
#[test]
fn token_that_was_shown_with_the_connection_counts_where_the_hello_says_none() {
    let tcp = PeerAddress::Tcp("127.0.0.1:1".parse().unwrap());
    let mut worker = worker(access());
    for (number, shown, said, refused) in [
        (1, &b"read"[..], &b""[..], None),
        (2, b"wrong", b"read", None),
        (3, b"wrong", b"", Some(StatusCode::Unauthorized)),
        (4, b"read", b"wrong", Some(StatusCode::Unauthorized)),
        (5, b"", b"", Some(StatusCode::Unauthorized)),
    ] {
        let connection = ConnectionId::from_number(number);
        worker.accepted_showing(connection, tcp, shown);
        assert_eq!(ask(&mut worker, connection, &hello(said)), refused, "{number}");
    }
    let viewer = ConnectionId::from_number(6);
    worker.accepted_showing(viewer, tcp, b"view");
    assert_eq!(ask(&mut worker, viewer, &hello(b"")), None);
    let get = Request::Get { key: b"key" };
    assert_eq!(ask(&mut worker, viewer, &get), Some(StatusCode::Unauthorized), "its role is the token's");
}

/// Who was in stayed in, for as long as they liked.
#[test]
pub(crate) fn connection_ends_with_its_token_and_keeps_no_role_that_it_loses() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |lines: String| std::fs::write(file.path(), lines).unwrap();
    write(format!("reader one {}\nreader,viewer two {}\n", hash("one"), hash("two")));
    let access = Arc::new(AccessRules::open(file.path().to_str().unwrap()).unwrap());
    let mut worker = worker_of(access.clone());
    let [one, two, own] = [1, 2, 3].map(ConnectionId::from_number);
    let tcp = PeerAddress::Tcp("127.0.0.1:1".parse().unwrap());
    for (connection, peer, token) in
        [(one, tcp, &b"one"[..]), (two, tcp, b"two"), (own, PeerAddress::Shm { user: 0 }, b"")]
    {
        worker.accepted_showing(connection, peer, &[]);
        let hello = Hello { version: PROTOCOL_VERSION, name: "", token, stream_credit_bytes: 0 };
        assert_eq!(ask(&mut worker, connection, &Request::Hello(hello)), None);
    }
    assert_eq!(ask(&mut worker, two, &Request::Status), None);
    write(format!("reader other {}\nreader two {}\n", hash("other"), hash("two")));
    worker.tick(MS, u64::MAX);
    assert!(worker.take_dismissed().is_empty(), "the file was not read again");
    access.read_again().unwrap();
    worker.tick(2 * MS, u64::MAX);
    assert_eq!(worker.take_dismissed(), [one]);
    assert_eq!(ask(&mut worker, two, &Request::Status), Some(StatusCode::Unauthorized), "it is no viewer");
    assert_ne!(ask(&mut worker, two, &Request::Get { key: b"key" }), Some(StatusCode::Unauthorized));
    assert_eq!(ask(&mut worker, own, &Request::Status), None);
    worker.tick(3 * MS, u64::MAX);
    assert!(worker.take_dismissed().is_empty());
}

/// A token that was to be taken back held on, and only the log said so.
#[test]
fn file_of_tokens_that_is_wrong_is_warned_of_until_a_good_one_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let good = format!("reader one {}\n", hash("one"));
    std::fs::write(&file, &good).unwrap();
    let access = Arc::new(AccessRules::open(file.to_str().unwrap()).unwrap());
    let worker = worker_of(access.clone());
    assert!(worker.snapshot().warnings.is_empty());
    for (wrong, why) in [
        (Some("reader one x\n"), "tokens, line 1: the SHA-256 of a token has 64 hexadecimal digits"),
        (Some(""), "has no token; a line is `ROLES NAME SHA256`"),
        (None, "No such file or directory (os error 2)"),
    ] {
        std::fs::remove_file(&file).unwrap();
        if let Some(text) = wrong {
            std::fs::write(&file, text).unwrap();
        }
        access.read_again().unwrap_err();
        let warnings = worker.snapshot().warnings;
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with("the file of tokens is wrong"), "{warning}");
        assert!(warning.ends_with(why), "{warning}");
        std::fs::write(&file, &good).unwrap();
    }
    assert_eq!(worker.snapshot().warnings.len(), 1, "nobody has read the good one");
    access.read_again().unwrap();
    assert!(worker.snapshot().warnings.is_empty());
}

/// A configuration that was wrong at a SIGHUP, and files that everybody may read, were lines of a log.
#[test]
fn what_is_wrong_with_the_process_is_warned_of_until_it_is_not() {
    let process = Arc::new(ProcessWarnings::default());
    let worker = worker(AccessRules::default()).with_process_warnings(process.clone());
    assert!(worker.snapshot().warnings.is_empty());
    process.set(WarningSubject::Files, vec!["a".to_owned(), "b".to_owned()]);
    process.set(WarningSubject::Configuration, vec!["c".to_owned()]);
    assert_eq!(worker.snapshot().warnings, ["c", "a", "b"]);
    process.set(WarningSubject::Files, vec!["b".to_owned()]);
    process.set(WarningSubject::Configuration, Vec::new());
    assert_eq!(worker.snapshot().warnings, ["b"]);
    process.set(WarningSubject::Files, Vec::new());
    assert!(worker.snapshot().warnings.is_empty());
}

/// Whom the worker does not know makes room for others where there is none.
#[test]
fn peer_is_admitted_once_its_hello_was_good() {
    let tcp = PeerAddress::Tcp("127.0.0.1:1".parse().unwrap());
    let mut worker = worker(access());
    let connection = ConnectionId::from_number(7);
    worker.accepted_showing(connection, tcp, &[]);
    assert_eq!(ask(&mut worker, connection, &hello(b"wrong")), Some(StatusCode::Unauthorized));
    assert!(worker.take_admitted().is_empty());
    assert_eq!(ask(&mut worker, connection, &hello(b"read")), None);
    assert_eq!(worker.take_admitted(), [connection]);
    assert!(worker.take_admitted().is_empty());
}

fn hello(token: &[u8]) -> Request<'_> {
    Request::Hello(Hello { version: PROTOCOL_VERSION, name: "", token, stream_credit_bytes: 0 })
}

/// What a peer that comes now is refused with.
fn come(worker: &mut Worker, number: u64, peer: PeerAddress, token: &[u8]) -> Option<StatusCode> {
    let connection = ConnectionId::from_number(number);
    worker.accepted_showing(connection, peer, &[]);
    ask(worker, connection, &hello(token))
}

fn refused_for_lack_of_room(worker: &Worker) -> u64 {
    let snapshot = worker.snapshot();
    let mut counts = snapshot.worker_counts.refusals();
    counts.find(|(reason, _)| *reason == "too_many_connections").expect("the reason is known").1
}

/// Clients with good tokens took all places, and nobody who could act on them came in over tcp.
pub(crate) fn crowd_keeps_no_operator_out() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let roles = ["reader", "writer", "viewer", "operator", "admin"];
    let line = |role: &&str| format!("{role} the-{role} {}\n", hash(role));
    std::fs::write(file.path(), roles.iter().map(line).collect::<String>()).unwrap();
    let access = Arc::new(AccessRules::open(file.path().to_str().unwrap()).unwrap());
    let fabric = Some(FabricLimits { connections_max: 2, ..FabricLimits::default() });
    let mut worker = worker_with(WorkerOptions { fabric, ..OPTIONS }, access);
    let tcp = PeerAddress::Tcp("127.0.0.1:1".parse().unwrap());
    let busy = Some(StatusCode::Busy);
    assert_eq!([1, 2].map(|number| come(&mut worker, number, tcp, b"writer")), [None; 2]);
    // A second hello of one that is in takes no other place.
    assert_eq!(ask(&mut worker, ConnectionId::from_number(1), &hello(b"reader")), None);
    assert!(worker.snapshot().warnings.is_empty());
    let turned_away: Vec<u64> = (3..6).collect();
    for (number, role) in turned_away.iter().zip(["reader", "writer", "viewer"]) {
        assert_eq!(come(&mut worker, *number, tcp, role.as_bytes()), busy, "{role}");
    }
    let ids: Vec<_> = turned_away.into_iter().map(ConnectionId::from_number).collect();
    assert_eq!(worker.take_dismissed(), ids, "they leave their places");
    assert_eq!(refused_for_lack_of_room(&worker), 3);
    assert!(worker.snapshot().warnings[0].contains("fabric_connections_max"));
    assert_eq!(come(&mut worker, 6, tcp, b"operator"), None);
    assert_eq!(come(&mut worker, 7, tcp, b"admin"), None);
    assert!(worker.take_dismissed().is_empty());
    // Whoever has a place counts, and over each transport by themselves.
    let shm = |number: u64| number | 1 << 62;
    let (own, other) = (PeerAddress::Shm { user: 0 }, PeerAddress::Shm { user: 4_000_000 });
    assert_eq!([8, 9].map(|number| come(&mut worker, shm(number), other, b"reader")), [None; 2]);
    assert_eq!(come(&mut worker, shm(10), other, b"reader"), busy);
    assert_eq!(come(&mut worker, shm(11), own, b""), None, "the kernel names root");
    for gone in [6, 7, 1] {
        worker.closed(ConnectionId::from_number(gone));
    }
    assert_eq!(come(&mut worker, 12, tcp, b"reader"), None);
    assert_eq!(come(&mut worker, 13, tcp, b"reader"), busy);
}

#[test]
fn crowd_that_is_known_keeps_no_operator_out() {
    crowd_keeps_no_operator_out();
}

/// Where nobody needs a token everybody may do everything, and nothing says who could act.
#[test]
fn limit_of_connections_holds_for_all_where_nobody_needs_a_token() {
    let fabric = Some(FabricLimits { connections_max: 1, ..FabricLimits::default() });
    let mut worker = worker_with(WorkerOptions { fabric, ..OPTIONS }, Arc::default());
    let tcp = PeerAddress::Tcp("127.0.0.1:1".parse().unwrap());
    let refused = [1, 2].map(|number| come(&mut worker, number, tcp, b""));
    assert_eq!(refused, [None, Some(StatusCode::Busy)]);
    let root = PeerAddress::Shm { user: 0 };
    assert_eq!([3, 4].map(|number| come(&mut worker, number | 1 << 62, root, b"")), [None; 2]);
}

/// A connection was good for as many tokens as one liked, and nobody heard of it.
#[test]
fn token_is_guessed_once_a_connection_and_a_guesser_is_not_listened_to_for_long() {
    let access = Arc::new(access());
    let mut worker = worker_of(access.clone());
    worker.tick(5_000 * MS, u64::MAX);
    let unauthorized = Some(StatusCode::Unauthorized);
    let tcp = PeerAddress::Tcp("127.0.0.1:1".parse().unwrap());
    assert_eq!(come(&mut worker, 1, tcp, b"guess"), unauthorized);
    assert_eq!(worker.take_dismissed(), [ConnectionId::from_number(1)], "the connection ends");
    assert_eq!(access.failed_logins(), 1);
    let far = |last: u8| PeerAddress::Tcp(([192, 0, 2, last], 9).into());
    let user = |user| PeerAddress::Shm { user };
    let busy = Some(StatusCode::Busy);
    let mut unknown = 1;
    for (place, expected) in [
        (far(1), vec![unauthorized, busy]),
        (user(4_000_000), vec![unauthorized, busy]),
        (tcp, vec![unauthorized]),
    ] {
        let mut said: Vec<_> = (2..30).map(|number| come(&mut worker, number, place, b"guess")).collect();
        unknown += said.iter().filter(|said| **said == unauthorized).count() as u64;
        said.dedup();
        assert_eq!(said, expected, "{place}");
    }
    assert_eq!(access.failed_logins(), unknown, "those that were looked at");
    // The right one is not looked at where they came from, but for this machine, which all its users share.
    for (place, refused) in
        [(far(1), busy), (user(4_000_000), busy), (far(2), None), (user(4_000_001), None), (tcp, None)]
    {
        assert_eq!(come(&mut worker, 40, place, b"read"), refused, "{place}");
    }
    worker.tick(12_000 * MS, u64::MAX);
    assert_eq!(come(&mut worker, 41, far(1), b"read"), None, "after a while it is");
}

/// The same of those who would read memory themselves.
#[test]
fn token_of_a_reader_is_not_looked_at_after_too_many_wrong_ones() {
    let access = access();
    let far = |last: u8| PeerAddress::Tcp(([192, 0, 2, last], 9).into());
    let admits = |place, token: &[u8], second: u64| access.admits(place, token, second * 1_000 * MS);
    assert!(admits(far(1), b"read", 5) && !admits(far(1), b"view", 5), "a viewer reads no entries");
    assert_eq!(access.failed_logins(), 0, "it is known");
    assert!((0..20).all(|_| !admits(far(1), b"guess", 5)));
    let unknown = access.failed_logins();
    assert!((1..20).contains(&unknown), "{unknown}: the others were not looked at");
    assert!(!admits(far(1), b"read", 5) && admits(far(2), b"read", 5));
    assert!(admits(far(1), b"read", 12), "after a while it is");
}
