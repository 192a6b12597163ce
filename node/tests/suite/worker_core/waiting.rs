//! Writes that wait have a bound, past which further ones are answered `Busy`; nothing else waits for them.

use cell_fabric::ConnectionId;
use cell_memory::extent::checksum;
use cell_node::{Command, ControlEvent, WorkerOptions};
use cell_protocol::{Chunk, Condition, Put, PutBegin, Request, StatusCode, WriteName};
use cell_terms::{OperationNumber, SessionId};

use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const BUSY: Replied = Replied::Refused(StatusCode::Busy);
const KEY: &[u8] = b"key";
/// More writes of this length than may wait anywhere.
const WRITES: u64 = 4_000;
/// The number of a write whose value comes in chunks: above theirs.
const STREAMED: u64 = 10 * WRITES;
const VALUE: [u8; 4_000] = [7; 4_000];

fn put(world: &mut World, name: WriteName, key: &[u8]) -> u32 {
    world.send(&put_of(name, key))
}

fn put_of(name: WriteName, key: &[u8]) -> Request<'_> {
    Request::Put(Put { name, condition: Condition::Always, key, value: &VALUE })
}

fn name_of(session: SessionId, number: u64, floor: u64) -> WriteName {
    WriteName { session, number: OperationNumber(number), floor: OperationNumber(floor) }
}

/// Puts of one session, from a number on, until one is refused: those that wait, and the number that was
/// refused.
fn put_until_busy(world: &mut World, session: SessionId, first: u64, key: &[u8]) -> (Vec<u32>, u64) {
    let mut waiting = Vec::new();
    for number in first..first + WRITES {
        let id = put(world, name_of(session, number, first), key);
        world.turn();
        match world.answered(id) {
            None => waiting.push(id),
            Some(replied) => {
                assert_eq!(replied, BUSY);
                return (waiting, number);
            }
        }
    }
    panic!("{WRITES} writes wait, and none is refused");
}

/// Whatever is no write is answered within the same turn: of who has writes that wait, and of who comes.
fn expect_all_else_served(world: &mut World) {
    let session = Some(world.session);
    let stranger = world.come(ConnectionId::from_number(8));
    let get = world.send(&Request::Get { key: KEY });
    let others = [
        world.send(&Request::KeepAlive { session: None }),
        world.send(&Request::KeepAlive { session }),
        world.send(&Request::Status),
        stranger,
    ];
    world.turn();
    assert_eq!(world.answered(get), Some(Replied::Value(b"value".to_vec())));
    for id in others {
        assert_eq!(world.answered(id), Some(Replied::Other), "{id}");
    }
}

/// A world with an entry that is durable.
fn world_with(pairs: u32, options: WorkerOptions) -> World {
    let mut world = World::new(pairs, GEOMETRY, options);
    let replied = world.put(world.name(1, 1), KEY, b"value");
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    world
}

#[test]
fn write_beyond_the_bound_of_a_log_is_busy_and_nothing_else_waits() {
    let mut world = world_with(1, OPTIONS);
    let session = world.session;
    world.hold(Some(0));
    let (waiting, refused) = put_until_busy(&mut world, session, 2, b"another");
    expect_all_else_served(&mut world);
    assert!(waiting.iter().all(|id| world.answered(*id).is_none()), "their log stands still");
    world.hold(None);
    for id in waiting {
        let replied = world.answer(id);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    // It was not done: under its name it is done now, once.
    let again = |world: &mut World| {
        let id = put(world, name_of(session, refused, refused), KEY);
        world.answer(id)
    };
    let written = again(&mut world);
    assert!(matches!(written, Replied::Written(_)), "{written:?}");
    assert_eq!(again(&mut world), written);
    assert_eq!(world.get(KEY), Replied::Value(VALUE.to_vec()));
}

#[test]
fn write_beyond_the_bound_of_a_split_is_busy_and_nothing_else_waits() {
    let options = WorkerOptions { parked_bytes_max: 20 * VALUE.len(), ..OPTIONS };
    let mut world = World::new(2, GEOMETRY, options);
    let number = load_until_split(&mut world);
    world.hold(Some(1));
    let replied = world.put(world.name(number, number), KEY, b"value");
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    let session = world.session;
    let (waiting, refused) = put_until_busy(&mut world, session, number + 1, b"zzz");
    assert!((10..=20).contains(&waiting.len()), "{}", waiting.len());
    expect_all_else_served(&mut world);
    world.hold(None);
    for id in waiting {
        let replied = world.answer(id);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    let id = put(&mut world, name_of(session, refused, refused), b"zzz");
    let replied = world.answer(id);
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
}

/// Begins a value that one more chunk makes whole.
fn begin(world: &mut World, name: WriteName, key: &[u8]) -> u32 {
    let (value_len, value_crc) = (u32::try_from(VALUE.len()).unwrap(), checksum(&VALUE));
    let begin = PutBegin { name, condition: Condition::Always, key, value_len, value_crc };
    world.send(&Request::PutBegin(begin))
}

#[test]
fn write_beyond_the_bound_of_questions_is_busy_with_all_of_its_stream() {
    let mut world = world_with(1, OPTIONS);
    let session = SessionId(world.session.0 + 1);
    let stream = begin(&mut world, name_of(session, STREAMED, 2), b"streamed");
    let (waiting, refused) = put_until_busy(&mut world, session, 2, b"another");
    let alive = world.send(&Request::KeepAlive { session: Some(session) });
    let whole = Request::Chunk(Chunk { offset: 0, bytes: &VALUE });
    world.send_of(stream, &whole);
    expect_all_else_served(&mut world);
    assert_eq!((world.answered(alive), world.answered(stream)), (Some(BUSY), Some(BUSY)));
    world.send_of(stream, &whole); // it was under way
    let asks = |command: &Command| matches!(command, Command::AskSession { session: of } if *of == session);
    assert_eq!(world.take_commands(0).iter().filter(|command| asks(command)).count(), 1);
    world.notify(0, ControlEvent::SessionAsked { session, open: Some(true) });
    // All at once, they are more than may wait for the log, or be under way on one connection.
    let mut written = 0;
    for id in waiting {
        match world.answer(id) {
            Replied::Written(_) => written += 1,
            replied => assert_eq!(replied, BUSY),
        }
    }
    assert!(written > 0);
    assert_eq!((world.answered(stream), world.get(b"streamed")), (None, Replied::NotFound));
    for (number, key) in [(STREAMED, b"streamed"), (refused, b"refused!")] {
        let id = put(&mut world, name_of(session, number, 2), key);
        let replied = world.answer(id);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    // What was dropped takes no room any more.
    let (waiting, _) = put_until_busy(&mut world, SessionId(session.0 + 1), 1, b"another");
    assert!(waiting.len() as u64 >= refused - 2, "{} of {refused}", waiting.len());
}

#[test]
fn value_that_began_may_wait_beyond_the_bound_and_no_other_begins() {
    let mut world = world_with(1, OPTIONS);
    let session = world.session;
    let stream = begin(&mut world, name_of(session, STREAMED, 2), b"streamed");
    world.hold(Some(0));
    let (waiting, _) = put_until_busy(&mut world, session, 2, b"another");
    let late = begin(&mut world, name_of(session, STREAMED + 1, 2), b"late");
    world.send_of(stream, &Request::Chunk(Chunk { offset: 0, bytes: &VALUE }));
    world.turn();
    assert_eq!((world.answered(late), world.answered(stream)), (Some(BUSY), None));
    world.hold(None);
    for id in waiting.into_iter().chain([stream]) {
        let replied = world.answer(id);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    assert_eq!(world.get(b"streamed"), Replied::Value(VALUE.to_vec()));
}

/// The last chunk of one stream, again and again: each copy waits, as far as there is room.
#[test]
fn last_chunk_that_is_repeated_without_end_ends_its_stream() {
    let mut world = world_with(1, OPTIONS);
    let session = world.session;
    let stream = begin(&mut world, name_of(session, STREAMED, 2), b"streamed");
    world.hold(Some(0));
    put_until_busy(&mut world, session, 2, b"another");
    let mut copies = 0;
    while world.answered(stream).is_none_or(|replied| replied != BUSY) {
        assert!(copies < WRITES, "all of them wait");
        world.send_of(stream, &Request::Chunk(Chunk { offset: 0, bytes: &VALUE }));
        world.turn();
        copies += 1;
    }
    world.hold(None);
    world.until("an idle worker", |world| world.worker().is_idle());
    assert_eq!(world.get(b"streamed"), Replied::NotFound, "the stream is gone, and what waited of it");
}

/// A client that comes, and the put that it sends.
fn put_of_stranger(world: &mut World, stranger: ConnectionId, name: WriteName, key: &[u8]) -> u32 {
    world.come(stranger);
    let put = world.send_from(stranger, &put_of(name, key));
    world.turn();
    put
}

/// Beside eight loads and a slow disk one put was answered `Busy` for as long as the loads went on.
#[test]
fn connection_with_nothing_waiting_finds_a_place_where_another_has_all_it_may() {
    let mut world = world_with(1, OPTIONS);
    let session = world.session;
    world.hold(Some(0));
    let (waiting, refused) = put_until_busy(&mut world, session, 2, b"another");
    let stranger = ConnectionId::from_number(8);
    let one = put_of_stranger(&mut world, stranger, name_of(session, refused + 1, 2), b"stranger");
    // It has one now, as others have many.
    let further = world.send_from(stranger, &put_of(name_of(session, refused + 2, 2), b"further"));
    let again = put(&mut world, name_of(session, refused, 2), b"another");
    world.turn();
    assert_eq!([one, further, again].map(|id| world.answered(id)), [None, Some(BUSY), Some(BUSY)]);
    // Who has waited keeps the place, however full it is: each event looks whether there is room.
    (0..10).for_each(|_| world.notify(0, ControlEvent::OptionsChanged(Box::new(OPTIONS))));
    world.turn();
    world.hold(None);
    assert!(matches!(world.answer(one), Replied::Written(_)));
    // It has not waited for all that was there before it.
    let (all, mut behind) = (waiting.len(), 0);
    for id in waiting {
        let replied = world.answered(id);
        behind += usize::from(replied.is_none());
        let replied = replied.unwrap_or_else(|| world.answer(id));
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    assert!(behind > 0, "all of {all}");
    // Nothing of its own waits any more, so it finds a place again.
    world.hold(Some(0));
    put_until_busy(&mut world, session, refused + 3, b"another");
    let later = world.send_from(stranger, &put_of(name_of(session, STREAMED, 2), b"stranger"));
    world.turn();
    assert_eq!(world.answered(later), None);
    world.hold(None);
    assert!(matches!(world.answer(later), Replied::Written(_)));
}

#[test]
fn places_for_connections_with_nothing_waiting_for_a_split_are_bounded() {
    let options = WorkerOptions { parked_bytes_max: 40 * VALUE.len(), ..OPTIONS };
    let mut world = World::new(2, GEOMETRY, options);
    let number = load_until_split(&mut world);
    world.hold(Some(1));
    let replied = world.put(world.name(number, number), KEY, b"value");
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    let session = world.session;
    let (mut waiting, refused) = put_until_busy(&mut world, session, number + 1, b"zzz");
    let mut strangers = 0;
    loop {
        assert!(strangers < 40, "there is no end of places");
        let name = name_of(session, refused + 1 + strangers, number + 1);
        let id = put_of_stranger(&mut world, ConnectionId::from_number(8 + strangers), name, b"zzz");
        match world.answered(id) {
            None => waiting.push(id),
            Some(replied) => {
                assert_eq!(replied, BUSY);
                break;
            }
        }
        strangers += 1;
    }
    assert!(strangers >= 2, "{strangers}");
    world.hold(None);
    for id in waiting {
        let replied = world.answer(id);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
}

/// The bound holds for what waits, whichever of its sessions the coordinator has answered for.
#[test]
fn what_waits_for_one_session_is_counted_on_when_another_is_known() {
    let mut world = world_with(1, OPTIONS);
    let (one, other) = (SessionId(world.session.0 + 1), SessionId(world.session.0 + 2));
    let first = put(&mut world, name_of(one, 1, 1), b"first");
    let (waiting, refused) = put_until_busy(&mut world, other, 1, b"another");
    world.notify(0, ControlEvent::SessionAsked { session: one, open: Some(true) });
    assert!(matches!(world.answer(first), Replied::Written(_)));
    let (more, _) = put_until_busy(&mut world, other, refused, b"another");
    assert!(more.len() <= 1, "{} more than {}", more.len(), waiting.len());
    assert!(waiting.into_iter().chain(more).all(|id| world.answered(id).is_none()));
}

/// Written into the half that is being copied, it would be in no copy. A longer one begins to come meanwhile.
#[test]
fn empty_value_that_begins_as_a_stream_waits_for_the_split_of_its_key() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let number = load_until_split(&mut world);
    world.hold(Some(1));
    let (session, condition) = (world.session, Condition::Always);
    let name = name_of(session, number, number);
    let begins = PutBegin { name, condition, key: b"zzz", value_len: 0, value_crc: checksum(&[]) };
    let empty = world.send(&Request::PutBegin(begins));
    let long = begin(&mut world, name_of(session, number + 1, number), b"zzzz");
    world.send_of(long, &Request::Chunk(Chunk { offset: 0, bytes: &VALUE }));
    for _ in 0..50 {
        world.turn();
        assert_eq!([empty, long].map(|id| world.answered(id)), [None, None], "its target stands still");
    }
    world.hold(None);
    for id in [empty, long] {
        let replied = world.answer(id);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    assert_eq!(world.get(b"zzz"), Replied::Value(Vec::new()));
    assert_eq!(world.get(b"zzzz"), Replied::Value(VALUE.to_vec()));
}
