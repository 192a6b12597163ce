//! What a split's target takes over, and what is left of it when nothing comes of the split: results of
//! writes, extents, the slot.

use cell_cluster::PairGeometry;
use cell_node::WorkerOptions;
use cell_pair::PairOptions;
use cell_protocol::{Condition, Put, Request, WriteName};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

/// What fits in the middle of the first keys' lower half.
const LOST: &[u8] = b"key 4 lost";
/// For so long a source waits for its target.
const DEADLINE_NS: u64 = 30_000_000_000;

fn send_put(world: &mut World, name: WriteName, key: &[u8], value: &[u8]) -> u32 {
    world.send(&Request::Put(Put { name, condition: Condition::Always, key, value }))
}

/// Puts come, one a turn, until one more split has started; the next number. Its `Start` is not durable yet.
pub(crate) fn begin_split(world: &mut World, first: u64, value: &[u8]) -> u64 {
    let (before, mut number) = (world.worker().split_counts().begun, first);
    while world.worker().split_counts().begun == before {
        let key = format!("key {} {number:05}", number * 7 % 10).into_bytes();
        let name = world.name(number, 1);
        send_put(world, name, &key, value);
        world.turn();
        number += 1;
        assert!(number < first + 10_000, "a meganode of 128 tree nodes is split");
    }
    number
}

/// A put is carried out, and appended behind a split's `Start`; the split's target has a log of its own and
/// makes what goes along durable there. Then the source's log loses the put. A retry that comes when another
/// split has moved its key to that target must not be answered that it was carried out.
pub(crate) fn result_that_its_own_log_has_lost_is_not_believed_elsewhere() {
    // Room for the tree and the router: every other half goes to the second pair.
    let two = PairGeometry { node_region_bytes: 4096 + 2 * (64 << 10), ..GEOMETRY };
    let mut world = World::new(2, two, OPTIONS);
    let mut number = begin_split(&mut world, 1, b"v");
    let lost = world.name(number, 1);
    let id = send_put(&mut world, lost, LOST, b"lost");
    world.hold(Some(0));
    for _ in 0..20 {
        world.turn();
    }
    assert_eq!(world.answered(id), None, "it is not durable");
    world.restart();
    assert_eq!(world.get(LOST), Replied::NotFound);
    // The second split takes the upper half of what is left, that key's range with it.
    while world.worker().split_counts().finished < 2 {
        number += 1;
        let key = format!("key {} {number:05}", if number.is_multiple_of(2) { 0 } else { number * 7 % 10 });
        let replied = world.put(world.name(number, 1), key.as_bytes(), b"v");
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
        assert!(number < 20_000);
    }
    let replied = world.put(lost, LOST, b"lost");
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    assert_eq!(world.get(LOST), Replied::Value(b"lost".to_vec()));
}

#[test]
fn undurable_result_is_not_believed_after_a_split_that_came_to_nothing() {
    result_that_its_own_log_has_lost_is_not_believed_elsewhere();
}

/// Results that came with an adoption go with it, in memory and for the recoveries behind it.
pub(crate) fn aborted_adoption_leaves_no_results() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let completions = |world: &World| world.worker().snapshot().pairs[1].completions;
    let number = begin_split(&mut world, 1, &[b'v'; 4_000]);
    world.until("results that go along", |world| completions(world) > 100);
    world.pass(DEADLINE_NS);
    world.until("an abort", |world| world.worker().split_counts().aborted == 1);
    world.until("no results", |world| completions(world) == 0);
    begin_split(&mut world, number, &[b'v'; 4_000]);
    world.until("results again", |world| completions(world) > 100);
    world.restart();
    world.until("none again", |world| completions(world) == 0);
    world.restart();
    assert_eq!(completions(&world), 0);
}

#[test]
fn adoption_that_comes_to_nothing_leaves_no_results() {
    aborted_adoption_leaves_no_results();
}

/// The leaf under construction had extents that hung on nothing.
#[test]
fn adoption_that_comes_to_nothing_leaves_no_extents() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let extents = |world: &World| world.worker().snapshot().pairs[1].extent_live_bytes;
    begin_split(&mut world, 1, &[b'v'; 4_000]);
    world.until("a part of the copy", |world| extents(world) > 300_000);
    world.pass(DEADLINE_NS);
    world.until("an abort", |world| world.worker().split_counts().aborted == 1);
    world.until("no extents", |world| extents(world) == 0);
}

/// The first router is started while an adoption into the same pair has logged nothing yet.
///
/// 1. The first split's target opens, and takes the writes that have waited: it is to be split itself.
/// 2. The log is held from then on, so that `Opened` becomes durable with the second split's `Start`.
/// 3. In one step the second split's target is asked, and the first split's entry wants a router.
///
/// When the first target opens is not seen from outside: each turn is tried. A router that took the slot of
/// the adoption makes the worker panic.
#[test]
pub(crate) fn first_router_and_an_adoption_take_different_slots() {
    /// Enough for a split of the upper half, few enough for one batch.
    const WAITING: u64 = 100;
    let eight = PairGeometry { node_region_bytes: 4096 + 8 * (64 << 10), ..GEOMETRY };
    let options = WorkerOptions { pair: PairOptions { split_fill_percent: 10, ..OPTIONS.pair }, ..OPTIONS };
    let upper = |number: u64| format!("key 9 {number:05}").into_bytes();
    for held_from in 0..32 {
        let mut world = World::new(1, eight, options.clone());
        let first = begin_split(&mut world, 1, b"v");
        let mut number = first;
        let mut put = |world: &mut World| {
            let name = world.name(number, 1);
            send_put(world, name, &upper(number), b"v");
            number += 1;
            number
        };
        (0..WAITING).for_each(|_| _ = put(&mut world));
        for turn in 0..held_from + 10 {
            let is_held = turn >= held_from && world.worker().split_counts().begun < 2;
            world.hold(is_held.then_some(0));
            world.turn();
        }
        world.hold(None);
        while world.worker().split_counts().finished < 2 {
            assert!(put(&mut world) < 10_000, "both splits come to their end");
            world.turn();
        }
        for number in first..first + WAITING {
            assert_eq!(world.get(&upper(number)), Replied::Value(b"v".to_vec()));
        }
    }
}
