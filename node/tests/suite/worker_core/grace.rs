//! What was freed rests for the whole grace period. A worker's thread can be stopped at any instruction, so
//! the last time that it was given may be long past when it frees something.

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const MS: u64 = 1_000_000;

fn resting_bytes(world: &World) -> u64 {
    world.worker().snapshot().pairs.iter().map(|pair| pair.grace_bytes).sum()
}

/// A reader finds a pointer, the entry behind it is freed, and the reader may go on reading for the grace
/// period:
///
/// 1. the worker is given the time T, and is stopped until T + 10 ms;
/// 2. a reader finds an entry's place;
/// 3. the worker deletes the entry, and the record becomes durable;
/// 4. the worker is given the time T + 10 ms. Counted from T, the grace period of 5 ms would be over, and
///    the place would be written while the reader of step 2 reads it.
pub(crate) fn freed_rests_from_a_time_after_the_free() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    assert!(matches!(world.put(world.name(1, 1), b"key", &[1; 1_000]), Replied::Written(_)));
    assert_eq!(world.delete(world.name(2, 2), b"key"), Replied::Deleted);
    let freed = resting_bytes(&world);
    assert!(freed >= 1_000, "the extent rests: {freed} bytes");
    world.pass(10 * MS);
    let turn_ns = world.now_ns();
    world.turn();
    while resting_bytes(&world) > 0 {
        let rested_ns = world.now_ns() - turn_ns;
        assert!(rested_ns <= OPTIONS.pair.reuse_grace_ns + 10 * MS, "it is used again some time");
        world.turn();
    }
    let rested_ns = world.now_ns() - turn_ns;
    assert!(rested_ns >= OPTIONS.pair.reuse_grace_ns, "it rested for {rested_ns} ns only");
}

#[test]
fn what_is_freed_after_a_stop_rests_for_the_whole_grace_period() {
    freed_rests_from_a_time_after_the_free();
}
