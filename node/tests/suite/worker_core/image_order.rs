//! What a checkpoint holds and what goes because of it: nothing that a crash takes back counts, and nothing
//! is given up that the image lacks. And what replay makes of a place that was used twice.

use cell_cluster::PairGeometry;
use cell_node::{CheckpointCommand, CheckpointFailure, Command, WorkerOptions};
use cell_protocol::{Condition, Put, Request};
use cell_terms::PairId;

use crate::worker_core::world::{GEOMETRY, Image, OPTIONS, Replied, World};

const PAIR: PairId = PairId(1);
/// Puts of a page each that fill several segments of the log.
const PUTS: u64 = 700;

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// A pair with some entries, and the next number.
fn world() -> (World, u64) {
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    let mut world = World::new(1, slot, WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS });
    let number = world.load(1, (1..20).map(key));
    (world, number)
}

/// An image of all that is there; the one that the first write began is of no use.
fn begin_image(world: &mut World) -> Image {
    world.image_failed(PAIR, CheckpointFailure::Busy);
    world.next_image(PAIR)
}

fn copy(world: &mut World, image: &mut Image) {
    while world.step_image(image, 100) {}
}

/// The image has an entry whose record is not on stable storage.
pub(crate) fn image_is_recorded_once_all_of_it_is_durable() {
    let (mut world, number) = world();
    let mut image = begin_image(&mut world);
    world.hold(Some(0));
    let (name, condition) = (world.name(number, number), Condition::Always);
    let put = world.send(&Request::Put(Put { name, condition, key: b"late", value: b"late" }));
    copy(&mut world, &mut image);
    let written = world.image_written(image);
    (0..10).for_each(|_| world.turn());
    let records = |world: &mut World| {
        let is_record =
            |command: &Command| matches!(command, Command::Checkpoint(_, CheckpointCommand::Record { .. }));
        world.take_commands(0).iter().filter(|command| is_record(command)).count()
    };
    assert!(world.worker().pairs().next().unwrap().durable() < written.csn_max);
    assert_eq!(records(&mut world), 0, "it is not durable");
    world.hold(None);
    assert!(matches!(world.answer(put), Replied::Written(_)));
    world.turn();
    assert_eq!(records(&mut world), 1);
}

/// What is written while an image is copied is above its base.
pub(crate) fn log_above_the_base_of_an_image_stays() {
    let (mut world, number) = world();
    let mut image = begin_image(&mut world);
    for number in number..number + PUTS {
        let replied = world.put(world.name(number, number), &key(number % 10), &[7; 4_000]);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    copy(&mut world, &mut image);
    world.end_image(image);
    (0..10).for_each(|_| world.turn());
    world.restart();
    assert_eq!(world.get(&key(15)), Replied::Value(key(15)));
    assert_eq!(world.get(&key(5)), Replied::Value(vec![7; 4_000]));
}

pub(crate) fn image_has_the_results_of_writes() {
    let (mut world, number) = world();
    let name = world.name(number, number);
    let first = world.put(name, b"key", b"value");
    let mut image = begin_image(&mut world);
    copy(&mut world, &mut image);
    world.end_image(image);
    world.restart();
    assert_eq!(world.put(name, b"key", b"value"), first, "it was carried out before");
}

/// An entry is written where another one was, after that has rested.
pub(crate) fn place_that_was_used_twice_has_what_came_last() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    assert!(matches!(world.put(world.name(1, 1), b"first", &[1; 1_000]), Replied::Written(_)));
    assert_eq!(world.delete(world.name(2, 2), b"first"), Replied::Deleted);
    let rests = |world: &World| world.worker().snapshot().pairs[0].grace_bytes;
    world.until("a place that has rested", |world| rests(world) == 0);
    assert!(matches!(world.put(world.name(3, 3), b"second", &[2; 1_000]), Replied::Written(_)));
    world.restart();
    assert_eq!(world.get(b"second"), Replied::Value(vec![2; 1_000]));
}

#[test]
fn checkpoint_holds_what_it_must_and_counts_what_is_durable() {
    image_is_recorded_once_all_of_it_is_durable();
    log_above_the_base_of_an_image_stays();
    image_has_the_results_of_writes();
}

#[test]
fn extent_is_replayed_over_one_that_was_there_before() {
    place_that_was_used_twice_has_what_came_last();
}
