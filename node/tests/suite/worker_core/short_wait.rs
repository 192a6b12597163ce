//! Room that lacks for a while: memory is kept for pairs that are being recovered, or splits were cut short
//! by a recovery. Writes wait for it, and nobody calls the pair full.

use cell_cluster::PairGeometry;
use cell_node::NodeState;
use cell_protocol::{Condition, Put, Request, StatusCode};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const MS: u64 = 1_000_000;
/// Half of a meganode's values take several times what is granted at a time, so that a pair must grow.
const GROWING: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 4 * (256 << 10),
    extent_region_bytes: 64 << 20,
    slot_bytes: 256 << 10,
    ..GEOMETRY
};
const VALUE: [u8; 4_000] = [b'v'; 4_000];
/// After a split that failed, the next one waits so long; after several in a row, a hundred times that.
const RETRY_NS: u64 = 100 * MS;

/// Puts come, one a turn, until one more split has started; the next number. Its `Start` is not durable yet.
fn begin_split(world: &mut World, first: u64, value: &[u8]) -> u64 {
    let (before, mut number) = (world.worker().split_counts().begun, first);
    while world.worker().split_counts().begun == before {
        let (name, key) = (world.name(number, number), format!("key {} {number:05}", number * 7 % 10));
        world.send(&Request::Put(Put { name, condition: Condition::Always, key: key.as_bytes(), value }));
        world.turn();
        number += 1;
        assert!(number < first + 20_000, "a full meganode is split");
    }
    number
}

/// Turns until so many splits have come to nothing.
fn until_aborted(world: &mut World, aborted: u64) {
    world.until("an abort", |world| world.worker().split_counts().aborted == aborted);
}

/// After a takeover each pair may have such a split: writes to full meganodes were refused for ten seconds.
pub(crate) fn split_that_was_left_unfinished_holds_up_no_other() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    world.hold(Some(1)); // the target cannot adopt durably
    let number = begin_split(&mut world, 1, b"v");
    (0..20).for_each(|_| world.turn());
    world.restart();
    until_aborted(&mut world, 1);
    let from_ns = world.now_ns();
    begin_split(&mut world, number, b"v");
    let after_ns = world.now_ns() - from_ns;
    assert!(after_ns < RETRY_NS, "the next split began {} ms later", after_ns / MS);
}

#[test]
fn split_that_an_earlier_owner_left_unfinished_holds_up_no_other() {
    split_that_was_left_unfinished_holds_up_no_other();
}

/// The copies of these splits find no memory, which they had when they began.
pub(crate) fn splits_that_failed_while_growth_was_held_hold_up_none_afterwards() {
    let mut world = World::new(2, GROWING, OPTIONS);
    let mut number = 1;
    for aborted in 1..=4 {
        number = begin_split(&mut world, number, &VALUE);
        world.hold_growth(true);
        until_aborted(&mut world, aborted);
        world.turn(); // it is noticed
        world.hold_growth(false);
    }
    let from_ns = world.now_ns();
    begin_split(&mut world, number, &VALUE);
    let after_ns = world.now_ns() - from_ns;
    assert!(after_ns < 2 * RETRY_NS, "the next split began {} ms later", after_ns / MS);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
}

#[test]
fn splits_that_failed_while_memory_was_kept_for_others_hold_up_none_afterwards() {
    splits_that_failed_while_growth_was_held_hold_up_none_afterwards();
}

/// Puts until one waits for memory.
fn put_until_one_waits(world: &mut World) -> u32 {
    let waiting = (1..).find_map(|number| {
        let (name, key) = (world.name(number, number), format!("key {number}"));
        let put = Put { name, condition: Condition::Always, key: key.as_bytes(), value: &VALUE };
        let id = world.send(&Request::Put(put));
        (0..1_000).for_each(|_| world.turn());
        match world.answered(id) {
            Some(Replied::Written(_)) => None,
            Some(other) => panic!("{number}: {other:?}"),
            None => Some(id),
        }
    });
    waiting.expect("the granted memory is used up")
}

/// Writes were refused as if the pair were full while a node that had come back recovered its other pairs.
pub(crate) fn write_waits_while_growth_is_held() {
    let mut world = World::new(1, GROWING, OPTIONS);
    world.hold_growth(true);
    let waiting = put_until_one_waits(&mut world);
    assert_eq!(world.worker().snapshot().state, NodeState::Serving);
    world.hold_growth(false);
    assert!(matches!(world.answer(waiting), Replied::Written(_)));
}

#[test]
fn write_waits_for_memory_that_is_kept_for_others() {
    write_waits_while_growth_is_held();
}

/// Memory is kept also for a pair that nobody has memory enough for: writes waited for an operator.
#[test]
fn write_does_not_wait_for_ever_for_memory_that_is_kept_for_others() {
    let mut world = World::new(1, GROWING, OPTIONS);
    world.hold_growth(true);
    let waiting = put_until_one_waits(&mut world);
    for _ in 0..100 {
        world.pass(1_000 * MS);
        world.turn();
    }
    assert_eq!(world.answered(waiting), Some(Replied::Refused(StatusCode::ReadOnly)));
}
