//! What an answer says: of which pair it is and how far that has come, which condition held, what of many
//! keys was found, and that a message cannot be carried out.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_node::{Worker, WorkerIdentity, WorkerOptions};
use cell_protocol::{
    Condition, Delete, Found, Hello, PROTOCOL_VERSION, Put, Reply, ReplyHeader, Request, RequestHeader,
    RequestId, StatusCode,
};
use cell_recovery::Progress;
use cell_terms::{Incarnation, NodeId, PairId, Version, Watermark};

use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const KEY: &[u8] = b"key";
/// In the first pair, and in the second one.
const LOW: &[u8] = b"aaa";
const HIGH: &[u8] = b"zzz";

/// A client that reads memory itself believes what is at or below the watermark of the pair that is named.
#[test]
fn answer_names_the_pair_that_has_its_key_and_carries_the_watermark_of_that_one() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    load_until_split(&mut world);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    (0..20).for_each(|_| world.turn());
    let asked = [
        (world.send(&Request::Get { key: LOW }), 0),
        (world.send(&Request::Get { key: HIGH }), 1),
        (world.send(&Request::Get { key: LOW }), 0),
        (world.send(&Request::Get { key: HIGH }), 1),
        (world.send_multi_get(&[LOW, HIGH]), 0),
        (world.send_multi_get(&[HIGH, LOW]), 1),
        (world.send(&Request::Status), 0),
    ];
    let replies = world.replies();
    let headers: BTreeMap<u64, ReplyHeader> = replies
        .iter()
        .map(|reply| Reply::decode(reply).unwrap().0)
        .map(|header| (header.id.0, header))
        .collect();
    let pairs = world.worker().pairs();
    let marks: Vec<_> =
        pairs.map(|pair| (pair.id(), Watermark { epoch: pair.epoch(), csn: pair.visible() })).collect();
    assert_ne!(marks[0].1, marks[1].1, "they tell the pairs apart");
    for (id, pair) in asked {
        let header = headers[&u64::from(id)];
        assert_eq!((header.pair, header.watermark), marks[pair], "{id}");
    }
}

#[test]
fn message_that_cannot_be_read_is_answered_under_its_number() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let connection = ConnectionId::from_number(9);
    world.come(connection);
    world.turn();
    let (mut message, id) = (Vec::new(), RequestId(77));
    Request::Get { key: KEY }.encode(RequestHeader { id, pair: PairId(0) }, &mut message).unwrap();
    message.pop();
    world.worker_mut().message(connection, &message);
    let replies = world.replies();
    assert_eq!(replies.len(), 1);
    match Reply::decode(&replies[0]).unwrap() {
        (header, Reply::Refused(refusal)) => {
            assert_eq!((header.id, refusal.status()), (id, StatusCode::Malformed));
        }
        other => panic!("{other:?}"),
    }
}

fn written(world: &mut World, number: u64, value: &[u8]) -> Version {
    match world.put(world.name(number, number), KEY, value) {
        Replied::Written(version) => version,
        other => panic!("{other:?}"),
    }
}

#[test]
fn condition_on_a_version_holds_for_that_version_alone() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let first = written(&mut world, 1, b"one");
    let second = written(&mut world, 2, b"two");
    let put = |world: &mut World, number: u64, version: Version| {
        let (name, condition) = (world.name(number, number), Condition::IfVersion(version));
        let id = world.send(&Request::Put(Put { name, condition, key: KEY, value: b"three" }));
        world.answer(id)
    };
    let delete = |world: &mut World, number: u64, version: Version| {
        let (name, condition) = (world.name(number, number), Condition::IfVersion(version));
        let id = world.send(&Request::Delete(Delete { name, condition, key: KEY }));
        world.answer(id)
    };
    let failed = Replied::Refused(StatusCode::ConditionFailed);
    assert_eq!((put(&mut world, 3, first), delete(&mut world, 4, first)), (failed.clone(), failed.clone()));
    assert_eq!(world.get(KEY), Replied::Value(b"two".to_vec()));
    let Replied::Written(third) = put(&mut world, 5, second) else { panic!("it is that version") };
    assert_eq!(delete(&mut world, 6, second), failed);
    assert_eq!(world.get(KEY), Replied::Value(b"three".to_vec()));
    assert_eq!(delete(&mut world, 7, third), Replied::Deleted);
    assert_eq!(put(&mut world, 8, third), failed, "there is none");
}

#[test]
fn key_that_is_too_long_is_refused_and_the_longest_is_not() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let longest = vec![b'k'; OPTIONS.key_bytes_max()];
    let longer = vec![b'k'; longest.len() + 1];
    assert!(matches!(world.put(world.name(1, 1), &longest, b"one"), Replied::Written(_)));
    let refused = Replied::Refused(StatusCode::KeyInvalid);
    assert_eq!(world.put(world.name(2, 2), &longer, b"two"), refused);
    assert_eq!(world.delete(world.name(3, 3), &longer), refused);
    assert_eq!(world.get(&longer), refused);
    let id = world.send_multi_get(&[&longest[..], &longer[..]]);
    assert_eq!(world.answer(id), refused);
    assert_eq!(world.get(&longest), Replied::Value(b"one".to_vec()));
}

#[test]
fn of_many_keys_those_are_returned_without_their_values_that_do_not_fit() {
    let options = WorkerOptions { value_bytes_max: 1 << 20, ..OPTIONS };
    let mut world = World::new(1, GEOMETRY, options);
    for (number, key, length) in [(1, LOW, 100_000), (2, HIGH, 1_000)] {
        let id = world.send_put(world.name(number, number), key, &vec![7_u8; length]);
        assert!(matches!(world.answer(id), Replied::Written(_)));
    }
    world.send_multi_get(&[LOW, KEY, HIGH]);
    let found: Vec<String> = world.until_reply(|reply| match reply {
        Reply::Values(values) => Some(values.iter().map(described).collect()),
        _ => None,
    });
    assert_eq!(found, ["100000 bytes, not sent", "absent", "1000 bytes"]);
}

fn described(found: Found<'_>) -> String {
    match found {
        Found::Absent => "absent".to_owned(),
        Found::Value { value, .. } => format!("{} bytes", value.len()),
        Found::Large { value_len, .. } => format!("{value_len} bytes, not sent"),
    }
}

fn refusal(reply: &[u8]) -> Option<StatusCode> {
    match Reply::decode(reply).unwrap().1 {
        Reply::Refused(refusal) => Some(refusal.status()),
        _ => None,
    }
}

/// Who is answered that a node recovers comes again, and would for as long as the node has no pair.
#[test]
fn worker_without_a_pair_recovers_until_it_serves_and_says_then_that_keys_are_elsewhere() {
    let identity = WorkerIdentity { node: NodeId(1), incarnation: Incarnation(1) };
    let mut worker = Worker::new(identity, OPTIONS, Arc::new(Progress::new(0)), 0);
    let connection = ConnectionId::from_number(7);
    worker.accepted(connection);
    let ask = |worker: &mut Worker, request: &Request<'_>| {
        let mut message = Vec::new();
        request.encode(RequestHeader::default(), &mut message).unwrap();
        worker.message(connection, &message);
        worker.end_of_poll();
        let replies = worker.release(1, u64::MAX);
        let refused: Vec<_> = replies.iter().map(|(_, reply)| refusal(reply)).collect();
        worker.replies_sent();
        refused
    };
    let hello = Hello { version: PROTOCOL_VERSION, name: "test", token: &[], stream_credit_bytes: 1 };
    assert_eq!(ask(&mut worker, &Request::Hello(hello)), [None]);
    let get = Request::Get { key: KEY };
    assert_eq!(ask(&mut worker, &get), [Some(StatusCode::Recovering)]);
    worker.install(Vec::new(), []);
    assert_eq!(ask(&mut worker, &get), [Some(StatusCode::NotOwner)]);
}
