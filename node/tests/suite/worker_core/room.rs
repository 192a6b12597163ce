//! A disk on which the log runs short of room: checkpoints come early, and what they cannot help with is
//! refused.

use std::ops::Range;

use cell_cluster::PairGeometry;
use cell_node::{ControlEvent, NodeState, ReadOnlyReason, WorkerOptions};
use cell_protocol::{Condition, Put, Request, StatusCode};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const MS: u64 = 1_000_000;

/// A pair that takes no checkpoint of itself, on a disk with room for so many bytes more.
fn on_a_disk_with(room: u64) -> World {
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    let mut world = World::new(1, slot, WorkerOptions { checkpoint_age_ns: u64::MAX, ..OPTIONS });
    (0..10).for_each(|_| world.turn()); // the spares are prepared
    world.leave_room(Some(room));
    world
}

/// Writes one of ten keys; its image is written and recorded if the worker wants one.
fn put(world: &mut World, number: u64) -> Replied {
    let (name, key) = (world.name(number, number), format!("key {}", number % 10));
    let value: Vec<u8> =
        (0..4_000).map(|at: u64| (at.wrapping_mul(number * 7 + 1) >> 3).to_le_bytes()[0]).collect();
    let put = Put { name, condition: Condition::Always, key: key.as_bytes(), value: &value };
    let id = world.send(&Request::Put(put));
    world.answer_with_checkpoints(id)
}

/// Nothing had freed the log before `checkpoint_log_bytes_min` was reached, and that never was.
#[test]
fn small_disk_is_freed_by_checkpoints_before_writes_are_refused() {
    let mut world = on_a_disk_with(300 << 10);
    for number in 1..=4_000 {
        let replied = put(&mut world, number);
        assert!(matches!(replied, Replied::Written(_)), "{number}: {replied:?}");
    }
    let checkpoints = world.worker().snapshot().pairs[0].checkpoints;
    // 16 MB of extents and half as much of tree nodes; the two logs fill their segments at different times.
    assert!(
        (8..=48).contains(&checkpoints),
        "{checkpoints} checkpoints for 24 MB of log in segments of 1 MiB"
    );
    world.restart();
    assert!(matches!(world.get(b"key 7"), Replied::Value(_)));
}

#[test]
fn disk_without_room_for_an_image_refuses_writes_and_serves_again_with_room() {
    let mut world = on_a_disk_with(0);
    let replied = (1..).map(|number| (number, put(&mut world, number)));
    let (number, replied) =
        replied.into_iter().find(|(_, replied)| !matches!(replied, Replied::Written(_))).unwrap();
    assert_eq!(replied, Replied::Refused(StatusCode::ReadOnly));
    assert!(matches!(world.get(b"key 7"), Replied::Value(_)), "reads go on");
    let deleted = world.delete(world.name(number + 1, number + 1), b"key 7");
    assert_eq!(deleted, Replied::Deleted);
    let state = |world: &World| world.worker().snapshot().state;
    assert_eq!(
        state(&world),
        NodeState::ReadOnly(ReadOnlyReason::DiskFull),
        "what a delete finds room for is no room"
    );
    world.leave_room(None);
    // It is tried again by itself.
    let again = (number + 2..number + 100_000).map(|number| put(&mut world, number));
    assert!(again.into_iter().any(|replied| matches!(replied, Replied::Written(_))));
    assert_eq!(state(&world), NodeState::Serving);
}

/// Puts a key so often at once, which takes much of the extents' log and little of the other one.
fn put_at_once(world: &mut World, numbers: Range<u64>) -> Vec<Replied> {
    let floor = numbers.start;
    let value = vec![7; 4_000];
    let send = |number| {
        let name = world.name(number, floor);
        let put = Put { name, condition: Condition::Always, key: b"key", value: &value };
        world.send(&Request::Put(put))
    };
    let ids: Vec<_> = numbers.map(send).collect();
    ids.into_iter().map(|id| world.answer_with_checkpoints(id)).collect()
}

/// It was serving from each time on that the log asked the disk for room again until the disk had refused: on
/// a busy machine in half of the looks.
#[test]
fn disk_that_stays_full_leaves_its_pair_read_only_until_there_is_room_for_such_a_write() {
    let mut world = on_a_disk_with(0);
    // As many as one batch takes.
    let bursts = (1..).step_by(15).map(|number| (number + 15, put_at_once(&mut world, number..number + 15)));
    let refused = |(_, replied): &(u64, Vec<Replied>)| {
        replied.iter().any(|replied| !matches!(replied, Replied::Written(_)))
    };
    let (next, replied) = bursts.into_iter().find(refused).unwrap();
    let refusal = Replied::Refused(StatusCode::ReadOnly);
    assert!(replied.iter().all(|replied| matches!(replied, Replied::Written(_)) || *replied == refusal));
    let state = |world: &World| world.worker().snapshot().state;
    let failures = |world: &World| world.worker().pairs().next().unwrap().log_counts().prepare_failures;
    let spares = |world: &World| world.worker().snapshot().pairs[0].log_segments.unwrap()[0].spare;
    assert_eq!(spares(&world), 1, "of the two logs that of the extents alone is short");
    let (before, mut asked) = (failures(&world), false);
    for _ in 0..500 {
        world.pass(10 * MS);
        world.turn();
        assert_eq!(state(&world), NodeState::ReadOnly(ReadOnlyReason::DiskFull));
        asked |= failures(&world) >= before + 3;
    }
    assert!(asked, "the disk was asked again");
    world.leave_room(None);
    let serves = |world: &mut World| {
        world.pass(10 * MS);
        world.turn();
        state(world) == NodeState::Serving
    };
    assert!((0..1_000).any(|_| serves(&mut world)), "without a write");
    let written = put_at_once(&mut world, next..next + 1);
    assert!(matches!(written[..], [Replied::Written(_)]), "{written:?}");
}

/// Each owner leaves logs, and a place in the pair's row, until a later one has taken a checkpoint; one that
/// nobody writes to never took any.
#[test]
fn restarts_without_a_write_end_in_a_checkpoint() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let mut taken = Vec::new();
    for restart in 1..=20 {
        world.restart();
        for _ in 0..10 {
            world.turn();
            world.write_images();
        }
        if world.worker().snapshot().pairs[0].checkpoints > 0 {
            taken.push(restart);
        }
    }
    assert_eq!(taken, [9, 18]);
}

/// So that the log is given back, and the image written, while there is room for it.
#[test]
fn checkpoint_begins_once_the_disk_has_less_than_its_image_and_two_segments() {
    let mut world = on_a_disk_with(64 << 20);
    let closed_bytes = |world: &World| world.worker().pairs().next().unwrap().log_bytes_closed().0;
    let mut number = 1;
    while closed_bytes(&world) == 0 {
        let replied = put(&mut world, number);
        assert!(matches!(replied, Replied::Written(_)), "{number}: {replied:?}");
        number += 1;
        assert!(number < 4_000, "a segment of 1 MiB is filled");
    }
    (0..200).for_each(|_| world.turn());
    let needed = {
        let pair = world.worker().pairs().next().unwrap();
        pair.live_bytes() + 2 * pair.log_bytes_closed().1
    };
    let runs = |world: &mut World, free: u64| {
        world.notify(0, ControlEvent::DiskFree(free));
        (0..5).for_each(|_| world.turn());
        world.worker().snapshot().pairs[0].checkpoint_running
    };
    assert!(!runs(&mut world, u64::MAX) && !runs(&mut world, needed), "there is room enough");
    assert!(runs(&mut world, needed - 1));
}
