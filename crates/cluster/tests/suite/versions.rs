//! Coordinators of other builds, at whose unix socket a node of this one asks.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRefusal, FirstLease, LeaseTerms, Remote, Transaction,
};
use cell_terms::Incarnation;

/// How long anything may take that the machine only has to get done.
const PATIENCE: Duration = Duration::from_secs(120);

/// A coordinator of version 1: it does not see that questions have a version, and carries them out.
fn serve_in_version_1(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer_in_version_1(&stream));
        }
    });
}

fn answer_in_version_1(mut stream: &UnixStream) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let question: serde_json::Value = serde_json::from_str(&line).unwrap();
        let response = match question["request"].as_object().unwrap().keys().next().unwrap().as_str() {
            "grant" => r#"{"granted":{"lease":7,"ttl_ms":1000}}"#,
            "keep_alive" => r#""alive""#,
            "remaining" => r#"{"remaining":5}"#,
            "read" => r#"{"value":null}"#,
            "transact" => r#"{"transacted":{"applied":{"revision":3}}}"#,
            _ => r#"{"refused":"unreadable"}"#,
        };
        let answer = format!("{{\"number\":{},\"response\":{response}}}\n", question["number"]);
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn is_of_an_earlier_version(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Refused(CoordinatorRefusal::Version { known: 0, .. }))
}

/// It had a lease, and went on asking how long that lasts: the answer could not be read, and was taken for
/// none, without end.
#[test]
fn newer_node_gets_no_lease_but_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordinator.socket");
    serve_in_version_1(&path);
    let remote = Arc::new(Remote::new(&path, PATIENCE));
    let terms = LeaseTerms::new(1_000, 0.05);
    let refused = FirstLease::ask(remote, terms).unwrap().granted().err().expect("it is asked no more");
    assert!(is_of_an_earlier_version(&refused), "{refused}");
    let why = refused.source().unwrap().to_string();
    assert!(why.contains("speaks an earlier version of its protocol and was asked in version "), "{why}");
    assert!(why.contains("Upgrade it first"), "{why}");
}

/// What was carried out is not called refused, which says that nothing was.
#[test]
fn transaction_answered_in_another_version_may_be_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordinator.socket");
    serve_in_version_1(&path);
    let remote = Remote::new(&path, PATIENCE);
    for answer in [
        remote.read("a").map(|_| ()),
        remote.grant(1_000).map(|_| ()),
        remote.keep_alive(Incarnation(7)),
        remote.remaining_ns(Incarnation(7)).map(|_| ()),
    ] {
        let refused = answer.unwrap_err();
        assert!(is_of_an_earlier_version(&refused), "{refused}");
    }
    let unknown = remote.transact(Transaction::new().put("a", "1")).unwrap_err();
    let ClusterError::OutcomeUnknown(why) = &unknown else { panic!("{unknown}") };
    assert!(why.to_string().contains("speaks an earlier version of its protocol"), "{why}");
}
