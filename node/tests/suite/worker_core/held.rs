//! Nothing is answered before it is durable: answers wait for the batch that covers them.

use cell_protocol::{Condition, Delete, Put, Request};
use cell_wal::sim::SimDisk;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

pub(crate) const KEY: &[u8] = b"key";

/// A world with one entry, which is durable.
pub(crate) fn world() -> World {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    assert!(matches!(world.put(world.name(1, 1), KEY, b"one"), Replied::Written(_)));
    world
}

/// A turn hands the batch to the disk, which has it by the next: nothing may be answered in between.
pub(crate) fn answered_with_its_batch(world: &mut World, asked: &[u32]) -> Vec<Replied> {
    world.turn();
    for id in asked {
        assert_eq!(world.answered(*id), None, "answered before it was durable");
    }
    asked.iter().map(|id| world.answer(*id)).collect()
}

pub(crate) fn put_is_answered_when_it_is_durable() {
    let mut world = world();
    let name = world.name(2, 2);
    let put = world.send(&Request::Put(Put { name, condition: Condition::Always, key: KEY, value: b"two" }));
    let replied = answered_with_its_batch(&mut world, &[put]);
    assert!(matches!(replied[..], [Replied::Written(_)]), "{replied:?}");
}

pub(crate) fn hit_is_answered_when_the_entry_is_durable() {
    let mut world = world();
    let name = world.name(2, 2);
    let put = world.send(&Request::Put(Put { name, condition: Condition::Always, key: KEY, value: b"two" }));
    let get = world.send(&Request::Get { key: KEY });
    let replied = answered_with_its_batch(&mut world, &[get, put]);
    assert_eq!(replied[0], Replied::Value(b"two".to_vec()));
}

pub(crate) fn miss_is_answered_when_the_removal_is_durable() {
    let mut world = world();
    let name = world.name(2, 2);
    let delete = world.send(&Request::Delete(Delete { name, condition: Condition::Always, key: KEY }));
    let get = world.send(&Request::Get { key: KEY });
    let replied = answered_with_its_batch(&mut world, &[get, delete]);
    assert_eq!(replied, [Replied::NotFound, Replied::Deleted]);
}

#[test]
fn answers_wait_for_the_batch_that_covers_them() {
    put_is_answered_when_it_is_durable();
    hit_is_answered_when_the_entry_is_durable();
    miss_is_answered_when_the_removal_is_durable();
}

/// The number of a pair that has left is nobody's until another one comes.
#[test]
fn device_under_a_number_without_a_pair_moves_no_other_pairs_log() {
    let (mut world, mut gone) = (world(), SimDisk::new(9).device());
    let name = world.name(2, 2);
    let put = world.send(&Request::Put(Put { name, condition: Condition::Always, key: KEY, value: b"two" }));
    world.worker_mut().commit(1, &mut gone);
    world.worker_mut().log_tick(1, &mut gone);
    assert!(matches!(world.answer(put), Replied::Written(_)));
    assert_eq!(world.get(KEY), Replied::Value(b"two".to_vec()));
}

/// A turn ends once there are many: by too low a figure it would make replies without a bound.
#[test]
fn bytes_of_replies_count_from_when_they_may_leave_until_they_have_left() {
    let mut world = world();
    assert_eq!(world.worker().turn_bytes(), 0);
    world.send(&Request::Get { key: KEY });
    world.step_of(0);
    assert!(world.worker().turn_bytes() > 8, "{}", world.worker().turn_bytes());
    assert_eq!(world.replies().len(), 1);
    assert_eq!(world.worker().turn_bytes(), 0);
}
