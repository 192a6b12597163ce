//! Puts that find memory full while balance could let a pair leave: they are to come again, and nothing waits
//! behind them.

use cell_cluster::PairGeometry;
use cell_memory::Reservation;
use cell_node::{Command, ControlEvent, SpreadView, WorkerOptions};
use cell_protocol::{StatusCode, WriteName};
use cell_terms::{PairId, SessionId};

use crate::worker_core::leave::frozen_at;
use crate::worker_core::spread::{show, view};
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MIB: u64 = 1 << 20;
/// What there must be for a pair to be added (`node/src/limits.rs`).
const PAIR_BYTES_MIN: u64 = 8 * MIB;
/// The pair's regions can take more than there is.
const LARGE: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 4 * (256 << 10),
    extent_region_bytes: 64 << 20,
    slot_bytes: 256 << 10,
    ..GEOMETRY
};
const BUSY: Replied = Replied::Refused(StatusCode::Busy);
const FULL: Replied = Replied::Refused(StatusCode::ReadOnly);
static VALUE: [u8; 50_000] = [b'v'; 50_000];

/// A worker of one pair that has 16 MiB left, and what takes the rest of its memory.
fn world() -> (World, Reservation) {
    let options = WorkerOptions { value_bytes_max: VALUE.len(), ..OPTIONS };
    let world = World::within(Some(64 * MIB), 1, LARGE, options).reporting(SECOND);
    let others = world.leave_memory(16 * MIB);
    (world, others)
}

/// A pair could leave, or none could. Splits stay.
fn relief(bytes: Option<u64>) -> SpreadView {
    SpreadView { relief_bytes: bytes, ..view(1 << 30) }
}

/// Puts a value, and turns until that is answered.
fn put(world: &mut World, number: u64) -> Replied {
    let id = world.send_put(world.name(number, number), format!("key {number:05}").as_bytes(), &VALUE);
    world.answer(id)
}

/// The same, of a client that comes later.
fn put_of(world: &mut World, session: SessionId, number: u64) -> Replied {
    let name = WriteName { session, ..world.name(number, number) };
    let id = world.send_put(name, format!("key {number:05}").as_bytes(), &VALUE);
    for _ in 0..1_000 {
        world.turn();
        for command in world.take_commands(0) {
            if let Command::AskSession { session } = command {
                world.notify(0, ControlEvent::SessionAsked { session, open: Some(true) });
            }
        }
        if let Some(replied) = world.answered(id) {
            return replied;
        }
    }
    panic!("the put is not answered");
}

/// Puts values until one is not written: its number, and what was answered.
fn fill(world: &mut World) -> (u64, Replied) {
    for number in 2..2_000 {
        let replied = put(world, number);
        if !matches!(replied, Replied::Written(_)) {
            assert!(world.available() < PAIR_BYTES_MIN, "memory is what is full");
            return (number, replied);
        }
    }
    panic!("so much does not fit");
}

/// Seconds go by.
fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        world.pass(SECOND);
        world.turn();
    }
}

/// Whether the worker has reported last that writes wait.
fn reported(world: &mut World) -> Option<bool> {
    let mut reported = world.take_commands(0).into_iter().filter_map(|command| match command {
        Command::Figures(figures) => Some(figures.writes_wait),
        _ => None,
    });
    reported.next_back()
}

/// A load of ascending keys was refused when one of three nodes was full and the others nearly empty.
#[test]
fn put_without_memory_is_to_come_again_while_a_pair_could_leave() {
    let (mut world, others) = world();
    show(&mut world, relief(Some(64 * MIB)));
    let (number, replied) = fill(&mut world);
    assert_eq!(replied, BUSY);
    world.turn();
    assert_eq!(reported(&mut world), Some(true), "at once");
    pass(&mut world, 2);
    assert_eq!(reported(&mut world), Some(true));
    drop(others); // a pair has left
    let replied = put(&mut world, number + 1);
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    pass(&mut world, 4);
    assert_eq!(reported(&mut world), Some(false));
}

/// Deletes are what makes room where no pair can leave: they waited behind a put that waited for that.
#[test]
fn delete_and_put_that_fits_do_not_wait_beside_one_that_does_not_fit() {
    let (mut world, _others) = world();
    show(&mut world, relief(Some(64 * MIB)));
    assert!(matches!(world.put(world.name(1, 1), b"small 1", b"fits"), Replied::Written(_)));
    let (number, replied) = fill(&mut world);
    assert_eq!(replied, BUSY);
    let small = world.send_put(world.name(number + 1, number + 1), b"small 2", b"fits");
    let large = world.send_put(world.name(number + 2, number + 1), b"large", &VALUE);
    let next = world.send_put(world.name(number + 3, number + 1), b"small 1", b"fits, too");
    assert!(matches!(world.answer(next), Replied::Written(_)));
    assert!(matches!(world.answer(small), Replied::Written(_)));
    assert_eq!(world.answer(large), BUSY);
    assert_eq!(world.delete(world.name(number + 4, number + 4), b"key 00002"), Replied::Deleted);
}

/// And whoever balances knows of it: it said that something else was in the way.
#[test]
fn put_is_refused_at_once_where_no_pair_could_leave() {
    for view in [Some(relief(None)), None] {
        let (mut world, _others) = world();
        view.into_iter().for_each(|view| show(&mut world, view));
        assert_eq!(fill(&mut world).1, FULL);
        world.turn();
        assert_eq!(reported(&mut world), Some(true), "at once");
        pass(&mut world, 4);
        assert_eq!(reported(&mut world), Some(false), "nobody comes any more");
    }
}

/// A load that was started after another one had been refused was refused at once, for half a minute.
#[test]
fn puts_of_a_client_come_again_though_those_of_another_have_waited_in_vain() {
    let (mut world, _others) = world();
    show(&mut world, relief(Some(64 * MIB)));
    let (number, replied) = fill(&mut world);
    assert_eq!(replied, BUSY);
    for later in 1..6 {
        pass(&mut world, 1);
        put(&mut world, number + later);
    }
    assert_eq!(put(&mut world, number + 6), FULL);
    let other = SessionId(world.session.0 + 1);
    assert_eq!(put_of(&mut world, other, 1), BUSY);
    assert_eq!(put(&mut world, number + 7), FULL);
    for later in 2..7 {
        pass(&mut world, 1);
        let replied = put_of(&mut world, other, later);
        assert_eq!(replied, if later < 5 { BUSY } else { FULL }, "after {} s", later - 1);
    }
}

/// A pair that was frozen and is served on has given no memory: puts hoped anew each time.
#[test]
fn puts_are_refused_after_four_seconds_though_a_pair_was_frozen_meanwhile() {
    let (mut world, _others) = world();
    show(&mut world, relief(Some(64 * MIB)));
    let (number, replied) = fill(&mut world);
    assert_eq!(replied, BUSY);
    for later in 1..8 {
        pass(&mut world, 1);
        let replied = put(&mut world, number + later);
        match later {
            ..=3 => assert_eq!(replied, BUSY, "after {later} s"),
            _ => assert_eq!(replied, FULL, "after {later} s"),
        }
    }
    world.notify(0, ControlEvent::Freeze { pair: PairId(1), ticket: 1 });
    frozen_at(&mut world, PairId(1), 1);
    world.notify(0, ControlEvent::Thaw { pair: PairId(1), ticket: 1 });
    assert_eq!(put(&mut world, number + 8), FULL);
}
