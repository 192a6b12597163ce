//! Merges of meganodes that were emptied: which are merged, in which order, and what waits meanwhile.

use std::collections::BTreeMap;

use cell_cluster::Sim;
use cell_node::WorkerOptions;
use cell_pair::{Pair, PairOptions};
use cell_protocol::{Condition, Delete, Put, Request};
use cell_recovery::{SourceState, SplitName, SplitRecord, WriteCompletion, WriteOutcome};
use cell_terms::{Csn, Durability, OperationNumber, PairId, SessionId, SlotIndex};
use cell_wal::sim::SimDisk;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, Serving, World};

const MS: u64 = 1_000_000;
/// Less than a meganode is empty before it is merged.
const SHORT_NS: u64 = 300 * MS;

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key {:05}", number * 7919 % 10_007).into_bytes()
}

/// Loads until so many splits are finished; the next number.
fn load_until_split(world: &mut World, splits: u64) -> u64 {
    let mut number = 1;
    while world.worker().split_counts().finished < splits {
        number = world.load(number, std::iter::once(key(number)));
        assert!(number < 10_000, "a meganode of 128 tree nodes is split");
    }
    number
}

/// Deletes all that was loaded; the next number.
fn delete_all(world: &mut World, loaded: u64) -> u64 {
    let mut number = loaded;
    for of in 1..loaded {
        let (name, key) = (world.name(number, number), key(of));
        let id = world.send(&Request::Delete(Delete { name, condition: Condition::Always, key: &key }));
        assert_eq!(world.answer(id), Replied::Deleted);
        number += 1;
    }
    number
}

fn merged(world: &World) -> u64 {
    world.worker().split_counts().merged
}

fn meganodes(world: &World) -> usize {
    world.worker().pairs().map(|pair| pair.leaf_slots().len()).sum()
}

/// The entries of the router, of the pair that keeps it.
fn router_entries(world: &World) -> u64 {
    let root = world.worker().pairs().next().unwrap();
    root.meganode_figures(root.router().unwrap()).entries
}

/// Three meganodes in three pairs, of which the upper two are emptied, until their merge begins: its source,
/// its target and its key.
pub(crate) fn until_upper_two_merge(world: &mut World) -> (PairId, PairId, Vec<u8>) {
    let loaded = load_until_split(world, 2);
    let lowest = world.worker().pairs().next().unwrap().fences().unwrap();
    let [(_, lowest)] = &lowest[..] else { panic!("the first pair has one meganode: {lowest:?}") };
    let end = lowest.high.clone().unwrap();
    for (number, of) in (loaded..).zip((1..loaded).filter(|of| *key(*of) >= *end)) {
        assert_eq!(world.delete(world.name(number, number), &key(of)), Replied::Deleted);
    }
    for _ in 0..1_000 {
        let merge = world.worker().pairs().find_map(|pair| {
            let (name, split) = pair.split_table().sources().find(|(_, split)| split.merges)?;
            Some((name.pair, split.target, split.key.to_vec()))
        });
        if let Some(merge) = merge {
            assert!(merge.0 != merge.1, "its sides are in two pairs");
            return merge;
        }
        world.pass(20 * MS);
        world.turn();
    }
    panic!("no merge begins");
}

/// Two splits, and everything deleted, until a merge begins: how many were loaded, and the next number.
pub(crate) fn until_merging(world: &mut World) -> (u64, u64) {
    let loaded = load_until_split(world, 2);
    let number = delete_all(world, loaded);
    for _ in 0..1_000 {
        if world.worker().split_counts().merging > 0 {
            return (loaded, number);
        }
        world.pass(20 * MS);
        world.turn();
    }
    panic!("no merge begins");
}

/// What must hold at each moment of a merge; `linked`: by which record each was linked.
fn look(world: &World, linked: &mut BTreeMap<SplitName, Csn>) {
    let pairs: Vec<&Pair> = world.worker().pairs().collect();
    let of = |id| *pairs.iter().find(|pair| pair.id() == id).unwrap();
    let merges = |pair: &&Pair| pair.split_table().sources().any(|(_, split)| split.merges);
    for source in pairs.iter().filter(|pair| merges(pair)) {
        for (name, split) in source.split_table().sources().filter(|(_, split)| split.merges) {
            let target = of(split.target);
            let is_gone = matches!(split.state, SourceState::Applied | SourceState::Finished);
            let is_durable = split.state == SourceState::Finished || split.csn <= source.sealed();
            let is_open = !target.split_table().is_closed(split.target_slot);
            let knows = target.split_table().target(name).is_some();
            assert!(!knows || !is_open || is_gone && is_durable, "{name}: written before the other is gone");
            let may_be_used = source.free_slots().any(|slot| slot == split.slot);
            let is_over = split.state.is_over();
            assert!(!is_gone || is_over || !may_be_used, "{name}: the router may lead there still");
            let ends = target.fences().unwrap().into_iter().find(|(slot, _)| *slot == split.target_slot);
            let is_extended = ends.is_some_and(|(_, fences)| fences.high.as_ref() != Some(&split.key));
            if split.state == SourceState::Linked {
                linked.insert(name, split.csn);
            }
            let is_sealed = linked.get(&name).is_some_and(|csn| *csn <= source.sealed());
            let is_reported = is_extended || is_gone;
            assert!(!is_reported || is_sealed, "{name}: a bit undoes what the other side relies on");
            let routed =
                pairs[0].router().map(|router| pairs[0].meganode(router).search(&split.key).unwrap());
            let is_unrouted = routed.is_none_or(|found| found.csn_removed <= pairs[0].sealed());
            let ends = split.state == SourceState::Finished;
            assert!(!ends || is_unrouted, "{name}: a bit brings the router's entry back");
        }
    }
}

/// Two splits, everything deleted, two merges; what was seen on the way is sound.
pub(crate) fn merges_go_by_what_is_durable() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let loaded = load_until_split(&mut world, 2);
    let mut number = delete_all(&mut world, loaded);
    assert_eq!((meganodes(&world), router_entries(&world)), (3, 3));
    let mut linked = BTreeMap::new();
    while merged(&world) < 2 {
        world.pass(20 * MS);
        world.turn();
        look(&world, &mut linked);
    }
    for _ in 0..50 {
        world.turn();
        look(&world, &mut linked);
    }
    assert_eq!((meganodes(&world), router_entries(&world)), (1, 1), "the router leads to what is there");
    assert_eq!(world.violation(), None);
    for of in 1..loaded {
        assert_eq!(world.get(&key(of)), Replied::NotFound);
    }
    number = world.load(number, (1..200).map(key));
    world.restart();
    for of in 1..200 {
        assert_eq!(world.get(&key(of)), Replied::Value(key(of)));
    }
    assert!(number > 200);
}

#[test]
fn emptied_meganodes_are_merged_and_the_router_forgets_them() {
    merges_go_by_what_is_durable();
}

/// A write to each side, so many turns after a merge has started, and nothing is lost, nor in the way.
pub(crate) fn writes_amid_a_merge(turns: u32) {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let (_, mut number) = until_merging(&mut world);
    (0..turns).for_each(|_| world.turn());
    let floor = number;
    let keys = [&b"a"[..], b"key 02", b"key 05", b"key 09", b"z"];
    let mut send = |world: &mut World, key: &[u8]| {
        let name = world.name(number, floor);
        number += 1;
        world.send(&Request::Put(Put { name, condition: Condition::Always, key, value: key }))
    };
    let sent: Vec<u32> = keys.iter().map(|key| send(&mut world, key)).collect();
    for id in sent {
        assert!(matches!(world.answer(id), Replied::Written(_)));
    }
    for ends in ["before", "after"] {
        for key in keys {
            assert_eq!(world.get(key), Replied::Value(key.to_vec()), "{ends} the restart");
        }
        world.until("the merge's end", |world| world.worker().split_counts().merging == 0);
        assert_eq!((world.violation(), world.entries().iter().sum::<u64>()), (None, keys.len() as u64));
        world.restart();
    }
}

/// After how many turns.
pub(crate) const AMID_TURNS: std::ops::Range<u32> = 0..60;

#[test]
fn writes_that_come_amid_a_merge_are_carried_out_where_their_keys_are_then() {
    AMID_TURNS.for_each(writes_amid_a_merge);
}

/// A retried write is answered what it was answered, though its key has come to another pair meanwhile.
#[test]
fn result_of_a_write_goes_along_with_a_merge() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let loaded = load_until_split(&mut world, 2);
    let mut number = delete_all(&mut world, loaded);
    let (name, key) = (world.name(number, number), b"key 09999");
    let put = Put { name, condition: Condition::Always, key, value: b"once" };
    let first = world.send(&Request::Put(put));
    let first = world.answer(first);
    assert!(matches!(first, Replied::Written(_)));
    let floor = number;
    number += 1;
    let delete = Delete { name: world.name(number, floor), condition: Condition::Always, key };
    let deleted = world.send(&Request::Delete(delete));
    assert_eq!(world.answer(deleted), Replied::Deleted);
    while merged(&world) < 2 {
        world.pass(20 * MS);
        world.turn();
    }
    let again = world.send(&Request::Put(put));
    assert_eq!(world.answer(again), first, "it is not carried out again");
    assert_eq!(world.get(key), Replied::NotFound);
}

#[test]
fn meganode_that_never_had_entries_is_for_those_to_come() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let slot = SlotIndex(0);
    let is_emptied = |world: &World| world.worker().pairs().next().unwrap().emptied_by(slot).is_some();
    assert!(!is_emptied(&world));
    let number = world.load(1, std::iter::once(key(1)));
    assert!(!is_emptied(&world));
    let (name, key) = (world.name(number, number), key(1));
    let id = world.send(&Request::Delete(Delete { name, condition: Condition::Always, key: &key }));
    assert_eq!((world.answer(id), is_emptied(&world)), (Replied::Deleted, true));
}

#[test]
fn meganode_that_is_empty_for_a_moment_stays() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let loaded = load_until_split(&mut world, 2);
    let mut number = delete_all(&mut world, loaded);
    for round in 0..20 {
        world.pass(SHORT_NS);
        world.turn();
        // Each of the meganodes has an entry again, and loses it.
        for of in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16] {
            number = world.load(number, std::iter::once(key(of)));
            let (name, key) = (world.name(number, number), key(of));
            let id = world.send(&Request::Delete(Delete { name, condition: Condition::Always, key: &key }));
            assert_eq!(world.answer(id), Replied::Deleted);
            number += 1;
        }
        assert_eq!(merged(&world), 0, "round {round}");
    }
}

#[test]
fn nothing_is_merged_without_compactions() {
    let options = WorkerOptions { pair: PairOptions { compaction_permille: 0, ..OPTIONS.pair }, ..OPTIONS };
    let mut world = World::new(2, GEOMETRY, options);
    let loaded = load_until_split(&mut world, 2);
    delete_all(&mut world, loaded);
    for _ in 0..200 {
        world.pass(20 * MS);
        world.turn();
    }
    assert_eq!(merged(&world), 0, "their tree nodes are as many as they were");
}

/// A merge of which one side's log stands still.
struct HeldMerge {
    world: World,
    source: PairId,
    target: PairId,
    key: Vec<u8>,
}

impl HeldMerge {
    /// From so many turns after the merge's begin on; none: it is over by then.
    fn begin(turns: u32, holds_source: bool) -> Option<HeldMerge> {
        let mut world = World::new(3, GEOMETRY, OPTIONS);
        let (source, target, key) = until_upper_two_merge(&mut world);
        (0..turns).for_each(|_| world.turn());
        if merged(&world) > 0 {
            return None;
        }
        let held = if holds_source { source } else { target };
        world.hold(Some(usize::try_from(held.0 - 1).unwrap()));
        (0..10).for_each(|_| world.turn());
        Some(HeldMerge { world, source, target, key })
    }

    fn pair(&self, id: PairId) -> &Pair {
        self.world.worker().pairs().find(|pair| pair.id() == id).unwrap()
    }

    /// Whether the source is gone, and whether durably.
    fn retired(&self) -> Option<bool> {
        let source = self.pair(self.source);
        let (_, split) = source.split_table().sources().find(|(_, split)| split.merges)?;
        (split.state == SourceState::Applied).then(|| split.csn <= source.durable())
    }

    fn is_target_durable(&self) -> bool {
        let target = self.pair(self.target);
        target.durable() == target.appended()
    }
}

/// The target ends where the range ends, and that is durable; that the source is gone is not. Whether a merge
/// dies so after so many turns; none: it is over by then.
pub(crate) fn range_of_a_merge_is_the_sources_until_it_is_gone(turns: u32) -> Option<bool> {
    let mut merge = HeldMerge::begin(turns, true)?;
    let met = merge.retired() == Some(false) && merge.is_target_durable();
    merge.world.restart();
    merge.world.until("the merge's end", |world| world.worker().split_counts().merging == 0);
    let keys = [merge.key.clone(), [&merge.key[..], b"0"].concat(), b"z".to_vec()];
    for (number, key) in (100_000..).zip(&keys) {
        let replied = merge.world.put(merge.world.name(number, number), key, key);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
    }
    merge.world.restart();
    for key in &keys {
        assert_eq!(merge.world.get(key), Replied::Value(key.clone()));
    }
    assert_eq!(merge.world.violation(), None);
    Some(met)
}

/// That the source is gone is durable; that the target ends where the range ends is not. Whether a merge dies
/// so, as above.
pub(crate) fn range_of_who_is_gone_is_there_at_once(turns: u32) -> Option<bool> {
    let mut merge = HeldMerge::begin(turns, false)?;
    let met = merge.retired() == Some(true) && !merge.is_target_durable();
    assert_eq!(merge.world.restart_and_get(&merge.key), Replied::NotFound, "after {turns} turns");
    Some(met)
}

#[test]
fn merge_that_dies_between_the_records_of_its_sides_leaves_the_range_to_one_of_them() {
    let stories: [fn(u32) -> Option<bool>; 2] =
        [range_of_a_merge_is_the_sources_until_it_is_gone, range_of_who_is_gone_is_there_at_once];
    for story in stories {
        let met = AMID_TURNS.map_while(story).filter(|met| *met).count();
        assert!(met > 0, "no merge died so");
    }
}

/// What a merge takes for empty has no entries when it goes: they would go with it.
#[test]
#[should_panic(expected = "is retired with entries")]
fn meganode_with_entries_is_not_retired() {
    let pair = PairOptions { durability: Durability::None, ..OPTIONS.pair };
    let options = WorkerOptions { pair, ..OPTIONS };
    let mut serving = Serving::start(&SimDisk::new(5), &Sim::new(3), options.clone());
    let (mut pair, slot) = (serving.create(GEOMETRY, &options), SlotIndex(0));
    let (target, target_slot) = (pair.id(), SlotIndex(1));
    let csn = pair.try_step(SplitRecord::Merge { slot, key: b"k", target, target_slot }, 1).unwrap();
    let name = SplitName { pair: pair.id(), epoch: pair.epoch(), csn };
    pair.try_step(SplitRecord::Linked { name }, 0).unwrap();
    let number = OperationNumber(1);
    let written = |version, replaced| {
        let outcome = WriteOutcome::Written { version, replaced };
        WriteCompletion { session: SessionId(1), number, floor: number, outcome }
    };
    pair.put(slot, b"key", b"value", written).unwrap();
    pair.retire(name, slot);
}
