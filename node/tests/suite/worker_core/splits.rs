//! The driver of splits and compactions: what waits and what does not, where halves go, and what is refused.

use cell_cluster::PairGeometry;
use cell_node::WorkerOptions;
use cell_pair::{CheckpointFailure, PairOptions};
use cell_protocol::{Condition, Put, Request, StatusCode};
use cell_terms::PairId;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

fn key(number: u64) -> Vec<u8> {
    format!("key {:05}", number * 7919 % 10_007).into_bytes()
}

/// Loads until a split begins; the next number.
pub(crate) fn load_until_split(world: &mut World) -> u64 {
    let mut number = 1;
    while world.worker().split_counts().begun == 0 {
        number = world.load(number, std::iter::once(key(number)));
        assert!(number < 10_000, "a meganode of 128 tree nodes is split");
    }
    number
}

#[test]
fn split_goes_to_the_pair_with_most_room_and_is_finished() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let number = load_until_split(&mut world);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    let counts = world.worker().split_counts();
    assert_eq!((counts.begun, counts.aborted, counts.under_way), (1, 0, 0));
    let entries = world.entries();
    assert_eq!(entries.iter().sum::<u64>(), number - 1);
    assert!(entries[1] * 3 > number && entries[0] * 3 > number, "halves: {entries:?}");
    for number in 1..number {
        assert_eq!(world.get(&key(number)), Replied::Value(key(number)));
    }
}

#[test]
fn reads_and_writes_of_the_lower_half_do_not_wait_for_a_split() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let mut number = load_until_split(&mut world);
    let (mut low_while_waiting, mut read_while_waiting) = (0, 0);
    let high = world.name(number, number);
    let put = Put { name: high, condition: Condition::Always, key: b"zzz", value: b"late" };
    let waiting = world.send(&Request::Put(put));
    while world.worker().split_counts().finished == 0 {
        number += 1;
        let low = world.name(number, high.floor.0);
        let put = Put { name: low, condition: Condition::Always, key: b"aaa", value: b"at once" };
        let low = world.send(&Request::Put(put));
        let read = world.send(&Request::Get { key: b"key 09999" });
        world.turn();
        world.turn();
        let waits = world.answered(waiting).is_none();
        low_while_waiting += u32::from(waits && world.answered(low).is_some());
        read_while_waiting += u32::from(waits && world.answered(read).is_some());
        if !waits {
            break;
        }
    }
    assert!(low_while_waiting > 0 && read_while_waiting > 0, "{low_while_waiting}, {read_while_waiting}");
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    assert_eq!(world.get(b"zzz"), Replied::Value(b"late".to_vec()));
}

/// What is written there once the upper half is being copied is in no copy: its first key is in it, too.
#[test]
fn write_of_the_very_key_at_which_a_meganode_is_split_waits_for_the_split() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let first = load_until_split(&mut world);
    world.hold(Some(1));
    let (_, split) = world.worker().pairs().next().unwrap().split_table().sources().next().unwrap();
    let at = split.key.to_vec();
    let put = |world: &mut World, number: u64, key: &[u8]| {
        let name = world.name(number, first);
        world.send(&Request::Put(Put { name, condition: Condition::Always, key, value: b"late" }))
    };
    let (waits, below) = (put(&mut world, first, &at), put(&mut world, first + 1, b"aaa"));
    for _ in 0..50 {
        world.turn();
        assert_eq!(world.answered(waits), None, "its target's log stands still");
    }
    assert!(matches!(world.answered(below), Some(Replied::Written(_))), "the lower half is served");
    world.hold(None);
    assert!(matches!(world.answer(waits), Replied::Written(_)));
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    assert_eq!(world.get(&at), Replied::Value(b"late".to_vec()));
    assert_eq!(world.violation(), None);
}

#[test]
fn full_pair_asks_for_another_and_goes_on_when_it_comes() {
    let small = PairGeometry { node_region_bytes: 4096 + 2 * (64 << 10), ..GEOMETRY };
    let mut world = World::new(1, small, OPTIONS);
    // Two slots, one of which the router wants: the upper half has nowhere to go.
    let mut number = 1;
    while !world.wants_pair() {
        number = world.load(number, std::iter::once(key(number)));
        assert!(number < 10_000, "it asks for a pair");
    }
    assert_eq!(world.worker().split_counts().begun, 0);
    world.add_pair();
    world.load(number, (number..number + 200).map(key));
    world.until("a split", |world| world.worker().split_counts().finished == 1);
    assert!(world.entries()[1] > 0);
}

/// One slot, so that nothing can be split.
fn alone(compaction_permille: usize) -> World {
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    World::new(
        1,
        slot,
        WorkerOptions { pair: PairOptions { compaction_permille, ..OPTIONS.pair }, ..OPTIONS },
    )
}

/// Writes until the slot is full, the first write under the number `first`: how many entries it takes.
fn fill(world: &mut World, first: u64) -> u64 {
    for number in 1.. {
        let name = world.name(first + number, first + number);
        match world.put(name, &key(number), b"v") {
            Replied::Written(_) => {}
            replied => {
                assert_eq!(replied, Replied::Refused(StatusCode::ReadOnly));
                return number - 1;
            }
        }
    }
    0
}

#[test]
fn put_into_a_full_slot_of_sparse_nodes_waits_for_a_compaction() {
    let mut world = alone(400);
    let full = fill(&mut world, 0);
    for number in (1..=full).filter(|number| number % 5 != 0) {
        assert_eq!(
            world.delete(world.name(2 * full + number, 2 * full + number), &key(number)),
            Replied::Deleted
        );
    }
    // More than the slot has free tree nodes for: only compactions make room for them.
    let started = 4 * full;
    let again: Vec<u64> = (4_000..4_000 + full / 5 * 3).collect();
    for (at, number) in (started..).zip(&again) {
        let replied = world.put(world.name(at, at), &key(*number), b"w");
        assert!(matches!(replied, Replied::Written(_)), "{number}: {replied:?}");
    }
    let pair = world.worker().snapshot().pairs[0];
    assert!(pair.compactions > 0 && pair.compaction_nodes_freed > 20, "{pair:?}");
    world.restart();
    for number in (1..=full).filter(|number| number % 5 == 0) {
        assert_eq!(world.get(&key(number)), Replied::Value(b"v".to_vec()));
    }
    for number in again {
        assert_eq!(world.get(&key(number)), Replied::Value(b"w".to_vec()));
    }
}

#[test]
fn compaction_ratio_of_zero_compacts_nothing() {
    let mut world = alone(0);
    let full = fill(&mut world, 0);
    let nodes = world.worker().snapshot().pairs[0].tree_nodes;
    for number in 1..=full {
        assert_eq!(
            world.delete(world.name(2 * full + number, 2 * full + number), &key(number)),
            Replied::Deleted
        );
    }
    for _ in 0..200 {
        world.turn();
    }
    let pair = world.worker().snapshot().pairs[0];
    assert_eq!((pair.tree_nodes, pair.compactions, pair.entries), (nodes, 0, 0));
}

#[test]
fn compaction_after_all_is_deleted_leaves_one_tree_node() {
    let mut world = alone(400);
    let full = fill(&mut world, 0);
    for number in 1..=full {
        assert_eq!(
            world.delete(world.name(2 * full + number, 2 * full + number), &key(number)),
            Replied::Deleted
        );
    }
    world.until("one tree node", |world| world.worker().snapshot().pairs[0].tree_nodes <= 2);
    world.restart();
    assert!(world.worker().snapshot().pairs[0].tree_nodes <= 2);
    assert_eq!(world.get(&key(1)), Replied::NotFound);
    assert_eq!(fill(&mut world, 4 * full), full, "there is as much room as in the beginning");
}

/// Tree nodes that a split had freed rested until the whole pair was copied, so a slot that was cut stayed
/// full, and writes stood still for as long as a checkpoint took.
#[test]
fn writes_and_splits_go_on_while_a_pair_is_copied() {
    // A checkpoint of each pair begins with its first write, and nobody writes its image.
    let mut world = World::new(2, GEOMETRY, WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS });
    // The slots of both pairs hold some 6,300 entries when each was split once.
    let number = world.load(1, (1..=5_000).map(key));
    let counts = world.worker().split_counts();
    assert!(counts.finished > 4, "{counts:?}");
    assert!(world.worker().snapshot().pairs.iter().all(|pair| pair.checkpoint_running));
    assert_eq!(world.entries().iter().sum::<u64>(), number - 1);
}

/// The second image of the same base was written over the first one, which was recorded, though the answer
/// was lost. It had another highest CSN, so after a crash the row did not fit the file, and the pair was
/// refused.
#[test]
pub(crate) fn image_whose_record_was_not_answered_is_not_written_over() {
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    let mut world = World::new(1, slot, WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS });
    let number = world.load(1, (1..20).map(key));
    world.image_failed(PairId(1), CheckpointFailure::Busy);
    let mut image = world.next_image(PairId(1));
    while world.step_image(&mut image, 100) {}
    world.end_image_unanswered(image);
    let mut image = world.next_image(PairId(1));
    // Of the same base; what is written now is in it, and is durable.
    world.load(number, (20..40).map(key));
    while world.step_image(&mut image, 100) {}
    world.finish_image(image);
    world.restart();
    for number in 1..40 {
        assert_eq!(world.get(&key(number)), Replied::Value(key(number)));
    }
}

/// What is packed into places that the copier has passed, it copies all the same.
#[test]
pub(crate) fn compaction_goes_on_while_an_image_is_copied() {
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    let mut world = World::new(1, slot, WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS });
    let full = fill(&mut world, 0);
    // The image that the first write began is of no use: one of the full slot is wanted.
    world.image_failed(PairId(1), CheckpointFailure::Busy);
    let mut image = world.next_image(PairId(1));
    assert!(world.step_image(&mut image, 60), "half of the slot is copied");
    let deleted = (1..=full).filter(|number| number % 5 != 0);
    for number in deleted {
        let name = world.name(2 * full + number, 2 * full + number);
        assert_eq!(world.delete(name, &key(number)), Replied::Deleted);
    }
    world.until("a compaction", |world| world.worker().snapshot().pairs[0].compaction_nodes_freed > 20);
    while world.step_image(&mut image, 1) {}
    world.end_image(image);
    world.restart();
    for number in 1..=full {
        let expected = if number % 5 == 0 { Replied::Value(b"v".to_vec()) } else { Replied::NotFound };
        assert_eq!(world.get(&key(number)), expected);
    }
}
