//! Sessions that end while their workers do not learn of it: what was written in them is not carried out
//! anew, and what was kept of them goes.

use std::collections::BTreeSet;

use cell_node::{Command, ControlEvent};
use cell_protocol::{Condition, Put, Reply, Request, StatusCode, WriteName};
use cell_terms::{OperationNumber, SessionId};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const KEY: &[u8] = b"key 9 of the upper half";

/// The answer to a put, with a control thread that says of every session that it has ended.
fn put_of_ended(world: &mut World, number: u64, value: &[u8]) -> Replied {
    let put = Put { name: world.name(number, number), condition: Condition::Always, key: KEY, value };
    let id = world.send(&Request::Put(put));
    answer_of_ended(world, id)
}

/// The answer to a request, with such a control thread.
fn answer_of_ended(world: &mut World, id: u32) -> Replied {
    for _ in 0..1_000 {
        world.turn();
        for command in world.take_commands(0) {
            if let Command::AskSession { session } = command {
                world.notify(0, ControlEvent::SessionAsked { session, open: Some(false) });
            }
        }
        if let Some(replied) = world.answered(id) {
            return replied;
        }
    }
    panic!("request {id} is not answered");
}

/// A tree over two pairs, each in a process of its own; and the next number.
fn scattered() -> (World, u64) {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let mut number = 1;
    while world.worker().split_counts().finished == 0 {
        let key = format!("key {} {number:05}", number * 7 % 10).into_bytes();
        number = world.load(number, std::iter::once(key));
    }
    world.scatter(&[&[1], &[2]]);
    (world, number)
}

/// A session ends while one of its pairs is elsewhere; the pair comes to a worker that does not know of it.
pub(crate) fn late_copy_of_an_ended_session_finds_its_pair_elsewhere() {
    let (mut world, number) = scattered();
    let put = |world: &mut World, number, value: &[u8]| {
        let put = Put { name: world.name(number, number), condition: Condition::Always, key: KEY, value };
        let id = world.send_to(1, &Request::Put(put));
        let replied = world.answer_of(1, id);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    };
    put(&mut world, number, b"one");
    put(&mut world, number + 1, b"two");
    world.end_session();
    world.take_from_second(2);
    assert_eq!(put_of_ended(&mut world, number, b"one"), Replied::Refused(StatusCode::SessionUnknown));
    assert_eq!(world.get(KEY), Replied::Value(b"two".to_vec()));
}

#[test]
fn late_copy_of_an_ended_session_is_not_carried_out_after_a_takeover() {
    late_copy_of_an_ended_session_finds_its_pair_elsewhere();
}

/// The recovery of the pair found the session open. It ends before the worker has the pair.
#[test]
fn session_that_ends_before_its_pair_has_arrived_leaves_nothing() {
    let (mut world, number) = scattered();
    let replied = world.put_of(1, number, KEY);
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    let pair = world.recover_from_second(2);
    world.end_session();
    let session = world.session;
    world.notify(0, ControlEvent::SessionEnded { session, answer: None, recorded: true });
    world.add(pair);
    let results = |world: &World| world.worker().snapshot().pairs[1].completions;
    assert!(results(&world) > 0, "the pair has them from its log");
    world.turn();
    for command in world.take_commands(0) {
        if let Command::ListSessions { before } = command {
            world.notify(0, ControlEvent::SessionsListed { before, open: Some(BTreeSet::new()) });
        }
    }
    assert_eq!(results(&world), 0);
}

/// What a worker has missed it asks for, also when the coordinator does not answer at first.
#[test]
fn session_that_ended_in_a_gap_of_the_watch_leaves_nothing() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let replied = world.put(world.name(1, 1), KEY, b"one");
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    world.end_session();
    world.notify(0, ControlEvent::SessionsMissed);
    let mut answers = vec![Some(BTreeSet::new()), None];
    while !answers.is_empty() {
        world.turn();
        for command in world.take_commands(0) {
            let Command::ListSessions { before } = command else { continue };
            assert_eq!(before, [world.session]);
            let open = answers.pop().unwrap();
            world.notify(0, ControlEvent::SessionsListed { before, open });
        }
    }
    assert_eq!(world.worker().snapshot().pairs[0].completions, 0);
    assert_eq!(put_of_ended(&mut world, 1, b"one"), Replied::Refused(StatusCode::SessionUnknown));
}

/// Results are copied for an adoption, and their session ends before the target has logged them all.
#[test]
pub(crate) fn session_that_ends_while_its_results_go_along_leaves_nothing() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let mut number = 1;
    while world.worker().split_counts().begun == 0 {
        // Most of them are of one key: results for many records, and few tree nodes.
        for _ in 0..10 {
            let put =
                Put { name: world.name(number, 1), condition: Condition::Always, key: KEY, value: b"v" };
            world.send(&Request::Put(put));
            number += 1;
        }
        let key = format!("key {} {number:05}", number * 7 % 10).into_bytes();
        let name = world.name(number, 1);
        world.send(&Request::Put(Put { name, condition: Condition::Always, key: &key, value: b"v" }));
        world.turn();
        number += 1;
        assert!(number < 100_000);
    }
    world.hold(Some(1));
    for _ in 0..5 {
        world.turn();
    }
    let session = world.session;
    world.notify(0, ControlEvent::SessionEnded { session, answer: None, recorded: true });
    world.hold(None);
    world.until("the end of the split", |world| world.worker().split_counts().finished == 1);
    let completions: Vec<_> = world.worker().snapshot().pairs.iter().map(|pair| pair.completions).collect();
    assert_eq!(completions, [0, 0]);
}

/// It would keep its row in the coordinator until it has been idle for long: and so would that of each
/// command that gives up while it waits for one.
#[test]
fn session_whose_client_went_before_it_was_opened_is_ended_at_once() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    world.send(&Request::OpenSession);
    world.turn();
    let asked = world.take_commands(0).into_iter().find_map(|command| match command {
        Command::OpenSession { connection, header } => Some((connection, header)),
        _ => None,
    });
    let ((connection, header), session) = (asked.unwrap(), world.session);
    world.worker_mut().closed(connection);
    world.notify(0, ControlEvent::SessionOpened { connection, header, session: Ok(session) });
    world.turn();
    let commands = world.take_commands(0);
    let ends = |command: &Command| match command {
        Command::EndSession { session: ended, answer: None } => *ended == session,
        _ => false,
    };
    assert!(commands.iter().any(ends), "{commands:?}");
}

/// What the client of a session that is closed is refused with, once the coordinator has recorded the end, or
/// has not.
fn closed(world: &mut World, recorded: bool) -> Option<StatusCode> {
    let session = world.session;
    world.send(&Request::CloseSession { session });
    world.turn();
    let asked = world.take_commands(0).into_iter().find_map(|command| match command {
        Command::EndSession { session: of, answer } if of == session => answer,
        _ => None,
    });
    assert!(asked.is_some(), "the coordinator is to record it, and somebody waits for that");
    world.notify(0, ControlEvent::SessionEnded { session, answer: asked, recorded });
    world.until_reply(|reply| match reply {
        Reply::SessionClosed => Some(None),
        Reply::Refused(refusal) => Some(Some(refusal.status())),
        _ => None,
    })
}

#[test]
fn session_is_closed_once_the_coordinator_has_recorded_its_end() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let first = world.put(world.name(1, 1), KEY, b"one");
    assert!(matches!(first, Replied::Written(_)), "{first:?}");
    assert_eq!(closed(&mut world, false), Some(StatusCode::Busy), "its client asks again");
    assert_eq!(world.put(world.name(1, 1), KEY, b"one"), first, "what it wrote is known");
    assert_eq!(closed(&mut world, true), None);
    assert_eq!(world.worker().snapshot().pairs[0].completions, 0);
    let unknown = Replied::Refused(StatusCode::SessionUnknown);
    assert_eq!(put_of_ended(&mut world, 2, b"two"), unknown);
    let session = Some(world.session);
    let alive = world.send(&Request::KeepAlive { session });
    assert_eq!(answer_of_ended(&mut world, alive), unknown, "its client would go on with it");
    assert_eq!(world.get(KEY), Replied::Value(b"one".to_vec()));
}

/// Otherwise the write would wait for ever; and where nothing waits, nobody would be asked for ever.
#[test]
fn coordinator_that_does_not_answer_is_asked_again_as_long_as_a_write_waits_for_it() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let session = SessionId(world.session.0 + 1);
    let questions = |world: &mut World| {
        world.turn();
        let commands = world.take_commands(0);
        let asks = |command: &Command| match command {
            Command::AskSession { session: of } => *of == session,
            _ => false,
        };
        commands.iter().filter(|command| asks(command)).count()
    };
    let name = WriteName { session, number: OperationNumber(1), floor: OperationNumber(1) };
    let put = world.send(&Request::Put(Put { name, condition: Condition::Always, key: KEY, value: b"one" }));
    for _ in 0..3 {
        assert_eq!((questions(&mut world), world.answered(put)), (1, None));
        world.notify(0, ControlEvent::SessionAsked { session, open: None });
    }
    assert_eq!(questions(&mut world), 1);
    world.notify(0, ControlEvent::SessionAsked { session, open: Some(true) });
    assert!(matches!(world.answer(put), Replied::Written(_)));
    world.take_commands(0);
    world.notify(0, ControlEvent::SessionAsked { session, open: None });
    assert_eq!(questions(&mut world), 0, "nothing waits for the answer");
}
