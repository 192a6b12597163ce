//! What was freed rests until the record that freed it is durable, however long that takes: a crash would
//! bring back what it was.

use cell_cluster::PairGeometry;
use cell_node::{ControlEvent, WorkerOptions};
use cell_pair::{Pair, PairOptions};
use cell_protocol::{Condition, Put, Request};
use cell_recovery::{SourceState, TargetState};
use cell_terms::SlotIndex;

use crate::worker_core::adoptions::begin_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

/// Much longer than the grace period, at a millisecond each.
const GRACE_TURNS: u32 = 30;
/// For so long a source waits for its target.
const DEADLINE_NS: u64 = 30_000_000_000;

fn pair_of(world: &World, at: usize) -> &Pair {
    world.worker().pairs().nth(at).unwrap()
}

fn grace_bytes(world: &World, at: usize) -> u64 {
    pair_of(world, at).figures().grace_bytes
}

/// Nothing changes of what rests, though the grace period passes again and again.
fn rests<T: PartialEq + std::fmt::Debug>(world: &mut World, what: &str, look: impl Fn(&World) -> T) {
    let before = look(world);
    (0..GRACE_TURNS).for_each(|_| world.turn());
    assert_eq!(look(world), before, "{what}: used again before that is durable");
}

pub(crate) fn extent_of_a_replaced_entry_rests() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    assert!(matches!(world.put(world.name(1, 1), b"key", &[1; 1_000]), Replied::Written(_)));
    world.hold(Some(0));
    let (name, condition) = (world.name(2, 1), Condition::Always);
    let put = world.send(&Request::Put(Put { name, condition, key: b"key", value: b"another" }));
    world.turn();
    assert!(grace_bytes(&world, 0) >= 1_000, "the extent rests");
    rests(&mut world, "an extent", |world| grace_bytes(world, 0));
    world.hold(None);
    assert!(matches!(world.answer(put), Replied::Written(_)));
    world.until("an extent that has rested", |world| grace_bytes(world, 0) == 0);
}

/// A source is truncated, and its log stands still from that record on: what is rests.
fn truncated(what: &str, look: impl Fn(&World, SlotIndex) -> u64) {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    begin_split(&mut world, 1, b"v");
    let source = |world: &World| {
        let (_, split) = pair_of(world, 0).split_table().sources().next().unwrap();
        (split.state, split.slot)
    };
    world.until("a linked split", |world| source(world).0 == SourceState::Linked);
    world.hold(Some(0));
    (0..5).for_each(|_| world.turn());
    let (state, slot) = source(&world);
    assert_eq!(state, SourceState::Applied);
    assert!(look(&world, slot) > 0, "{what} rest");
    rests(&mut world, what, |world| look(world, slot));
    world.hold(None);
    world.until("the end of the rest", |world| look(world, slot) == 0);
}

pub(crate) fn tree_nodes_of_a_truncated_half_rest() {
    truncated("tree nodes", |world, slot| u64::from(pair_of(world, 0).has_resting(slot)));
}

pub(crate) fn extents_of_a_truncated_half_rest() {
    truncated("extents", |world, _| grace_bytes(world, 0));
}

/// A small adoption comes to nothing, while its pair's log stands still.
fn discarded(what: &str, look: impl Fn(&World, SlotIndex) -> u64) {
    let pair = PairOptions { split_fill_percent: 10, ..OPTIONS.pair };
    let mut world = World::new(2, GEOMETRY, WorkerOptions { pair, ..OPTIONS });
    begin_split(&mut world, 1, b"v");
    world.hold(Some(1));
    (0..10).for_each(|_| world.turn());
    world.pass(DEADLINE_NS);
    let target = |world: &World| {
        let split = pair_of(world, 1).split_table().targets().next();
        split.map(|(_, split)| (split.state, split.slot))
    };
    world.until("the end", |world| target(world).is_some_and(|(state, _)| state == TargetState::Discarded));
    let (_, slot) = target(&world).unwrap();
    assert!(look(&world, slot) > 0, "{what} rest");
    rests(&mut world, what, |world| look(world, slot));
    world.hold(None);
    world.until("the end of the rest", |world| look(world, slot) == 0);
}

pub(crate) fn slot_of_a_discarded_adoption_rests() {
    discarded("a slot", |world, slot| u64::from(pair_of(world, 1).free_slots().all(|free| free != slot)));
}

pub(crate) fn extents_of_a_discarded_adoption_rest() {
    discarded("extents", |world, _| grace_bytes(world, 1));
}

/// A full slot of which much was deleted, durably: a compaction makes room for a put, and the log stands
/// still for all of it.
pub(crate) fn tree_nodes_that_a_compaction_has_emptied_rest() {
    let key = |number: u64| format!("key {number:05}").into_bytes();
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    let pair = PairOptions { compaction_permille: 0, ..OPTIONS.pair };
    let mut world = World::new(1, slot, WorkerOptions { pair, ..OPTIONS });
    let is_written = |world: &mut World, number: u64| {
        matches!(world.put(world.name(number, number), &key(number), b"v"), Replied::Written(_))
    };
    let full = (1..).find(|number| !is_written(&mut world, *number)).unwrap();
    let mut number = full;
    for deleted in (1..full).filter(|number| number % 5 != 0) {
        number += 1;
        assert_eq!(world.delete(world.name(number, number), &key(deleted)), Replied::Deleted);
    }
    world.until("the end of the extents' rest", |world| grace_bytes(world, 0) == 0);
    let freed = |world: &World| pair_of(world, 0).figures().compactions.nodes_freed;
    world.notify(0, ControlEvent::OptionsChanged(Box::new(OPTIONS)));
    world.hold(Some(0));
    let slot = pair_of(&world, 0).leaf_slots()[0];
    for more in number + 1..number + 100 {
        let (name, condition) = (world.name(more, number + 1), Condition::Always);
        world.send(&Request::Put(Put { name, condition, key: &key(more), value: b"v" }));
        world.turn();
    }
    assert!(freed(&world) > 0, "a put finds no tree node");
    rests(&mut world, "tree nodes", |world| (pair_of(world, 0).has_resting(slot), freed(world)));
    assert!(pair_of(&world, 0).has_resting(slot), "they rest");
    world.hold(None);
    world.until("the end of the rest", |world| !pair_of(world, 0).has_resting(slot));
}

#[test]
fn what_is_freed_rests_until_the_record_that_freed_it_is_durable() {
    extent_of_a_replaced_entry_rests();
    tree_nodes_of_a_truncated_half_rest();
    extents_of_a_truncated_half_rest();
    slot_of_a_discarded_adoption_rests();
    extents_of_a_discarded_adoption_rest();
    tree_nodes_that_a_compaction_has_emptied_rest();
}
