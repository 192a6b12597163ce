//! Writes that find memory full while another node has room: they wait until balance has let a pair leave.

use cell_cluster::PairGeometry;
use cell_memory::Reservation;
use cell_node::{Command, NodeState, SpreadView, WorkerOptions};
use cell_placement::{BalancePause, MoveCause, MoveUnderWay};
use cell_protocol::StatusCode;
use cell_terms::PairId;
use cell_test_kit::NODE;

use crate::worker_core::spread::{OTHER, tell, view};
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
static VALUE: [u8; 50_000] = [b'v'; 50_000];

/// A worker of one pair that has 16 MiB left, and what takes the rest of its memory.
fn world() -> (World, Reservation) {
    let options = WorkerOptions { value_bytes_max: VALUE.len(), ..OPTIONS };
    let world = World::within(Some(64 * MIB), 1, LARGE, options).telling(SECOND);
    let others = world.leave_memory(16 * MIB);
    (world, others)
}

/// Puts a value, and turns for a second until it is answered.
fn put(world: &mut World, number: u64) -> (u32, Option<Replied>) {
    let id = world.send_put(world.name(number, number), format!("key {number:05}").as_bytes(), &VALUE);
    let mut replied = None;
    for _ in 0..1_000 {
        world.turn();
        replied = world.answered(id);
        if replied.is_some() {
            break;
        }
    }
    (id, replied)
}

/// Puts values until one is not written within a second: its number, and what was answered.
fn fill(world: &mut World) -> (u64, u32, Option<Replied>) {
    for number in 1..2_000 {
        let (id, replied) = put(world, number);
        if !matches!(replied, Some(Replied::Written(_))) {
            assert!(world.available() < PAIR_BYTES_MIN, "memory is what is full");
            return (number, id, replied);
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

fn refused() -> Option<Replied> {
    Some(Replied::Refused(StatusCode::ReadOnly))
}

/// Whether the worker has told last that writes wait.
fn told(world: &mut World) -> Option<bool> {
    let mut told = world.take_commands(0).into_iter().filter_map(|command| match command {
        Command::Figures(figures) => Some(figures.writes_wait),
        _ => None,
    });
    told.next_back()
}

/// A load of ascending keys was refused when one of three nodes was full and the others nearly empty.
#[test]
fn write_waits_for_memory_while_another_node_has_room_for_a_pair() {
    let (mut world, others) = world();
    tell(&mut world, view(0));
    let (_, waiting, replied) = fill(&mut world);
    assert_eq!(replied, None);
    pass(&mut world, 2);
    assert_eq!(told(&mut world), Some(true));
    assert_eq!((world.answered(waiting), world.worker().snapshot().state), (None, NodeState::Serving));
    drop(others); // a pair has left
    assert!(matches!(world.answer(waiting), Replied::Written(_)));
    pass(&mut world, 2);
    assert_eq!(told(&mut world), Some(false));
}

#[test]
fn write_is_refused_at_once_where_no_pair_can_leave() {
    let mut no_memory = view(0);
    no_memory.figures.members[1].memory_left_bytes = MIB;
    let mut as_full = view(0);
    as_full.figures.members[1].writes_wait = true;
    let mut no_place = view(0);
    no_place.figures.members[1].pairs_max = 1;
    let mut paused = view(0);
    paused.figures.pause = Some(BalancePause::Off);
    let views = [
        ("the other node has no memory", Some(no_memory)),
        ("it is as full", Some(as_full)),
        ("it may hold no more pairs", Some(no_place)),
        ("balance is off", Some(paused)),
        ("there is no other node", None),
    ];
    for (why, view) in views {
        let (mut world, _others) = world();
        view.into_iter().for_each(|view| tell(&mut world, view));
        let (_, _, replied) = fill(&mut world);
        assert_eq!(replied, refused(), "{why}");
    }
}

/// The pair may not be able to leave, and nobody knows for how long.
#[test]
fn write_does_not_wait_for_ever_for_a_pair_to_leave() {
    let (mut world, _others) = world();
    tell(&mut world, view(0));
    let (number, waiting, replied) = fill(&mut world);
    assert_eq!(replied, None);
    pass(&mut world, 20);
    assert_eq!(world.answered(waiting), None);
    pass(&mut world, 15);
    assert_eq!(world.answered(waiting), refused());
    let (_, replied) = put(&mut world, number + 1);
    assert_eq!(replied, refused(), "the next one does not wait as long again");
}

/// While a pair is copied its target has less left already, and this node has no more yet.
#[test]
fn write_waits_while_a_pair_leaves_and_is_refused_once_none_can_any_more() {
    let (mut world, _others) = world();
    tell(&mut world, view(0));
    let (_, waiting, replied) = fill(&mut world);
    assert_eq!(replied, None);
    let mut full = view(0);
    full.figures.members[1].memory_left_bytes = 0;
    let (pair, cause) = (PairId(1), MoveCause::Balance);
    let moving = MoveUnderWay { pair, from: NODE, to: OTHER, cause, handed: false };
    let mut leaves: SpreadView = full.clone();
    leaves.figures.moving = Some(moving);
    tell(&mut world, leaves);
    pass(&mut world, 10);
    assert_eq!(world.answered(waiting), None);
    tell(&mut world, full);
    pass(&mut world, 5);
    assert_eq!(world.answered(waiting), refused());
}
