//! Who may ask a worker for what, where there are tokens.

use std::sync::Arc;

use cell_fabric::{ConnectionId, PeerAddress};
use cell_node::{AccessRules, ProcessWarnings, WarningSubject, Worker, WorkerIdentity};
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
    let identity = WorkerIdentity { node: NodeId(1), incarnation: Incarnation(1) };
    Worker::new(identity, OPTIONS, Arc::new(Progress::new(0)), 0).with_access(access)
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
    worker.accepted_from(connection, peer);
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
        worker.accepted_from(connection, peer);
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
    worker.accepted_from(connection, tcp);
    let hello =
        |token| Request::Hello(Hello { version: PROTOCOL_VERSION, name: "", token, stream_credit_bytes: 0 });
    assert_eq!(ask(&mut worker, connection, &hello(b"wrong")), Some(StatusCode::Unauthorized));
    assert!(worker.take_admitted().is_empty());
    assert_eq!(ask(&mut worker, connection, &hello(b"read")), None);
    assert_eq!(worker.take_admitted(), [connection]);
    assert!(worker.take_admitted().is_empty());
}
