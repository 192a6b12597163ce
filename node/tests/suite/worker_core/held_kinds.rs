//! Every kind of answer waits for the batch that covers what it says; and what a write that changed nothing
//! was answered is what its repeats are answered.

use cell_memory::extent::checksum;
use cell_node::WorkerOptions;
use cell_protocol::{Chunk, Condition, Delete, Put, PutBegin, Request, Scan, StatusCode, WriteName};

use crate::worker_core::held::{KEY, answered_with_its_batch, world};
use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const NEW: &[u8] = b"new";
const LONG: &[u8] = b"long";
/// More than one message holds.
const LONG_BYTES: usize = 100_000;
const PIECE_BYTES: usize = 32 << 10;

fn send_put(world: &mut World, number: u64, key: &[u8], value: &[u8]) -> u32 {
    let name = world.name(number, 1);
    world.send(&Request::Put(Put { name, condition: Condition::Always, key, value }))
}

fn send_delete(world: &mut World, number: u64, key: &[u8]) -> u32 {
    let name = world.name(number, 1);
    world.send(&Request::Delete(Delete { name, condition: Condition::Always, key }))
}

/// A change, and a question about it that is asked before the change is durable: both are answered with its
/// batch. What the question is answered.
fn held(change: fn(&mut World) -> u32, ask: impl FnOnce(&mut World) -> u32) -> Replied {
    let mut world = world();
    let change = change(&mut world);
    let ask = ask(&mut world);
    let replied = answered_with_its_batch(&mut world, &[ask, change]);
    replied.into_iter().next().unwrap()
}

fn puts(world: &mut World) -> u32 {
    send_put(world, 2, NEW, b"value")
}

fn deletes(world: &mut World) -> u32 {
    send_delete(world, 2, KEY)
}

pub(crate) fn search_that_hits_is_held() {
    assert_eq!(held(puts, |world| world.send(&Request::Search { key: NEW })), Replied::Other);
}

pub(crate) fn search_that_misses_is_held() {
    assert_eq!(held(deletes, |world| world.send(&Request::Search { key: KEY })), Replied::NotFound);
}

pub(crate) fn multi_get_that_hits_is_held() {
    assert_eq!(held(puts, |world| world.send_multi_get(&[NEW])), Replied::Other);
}

pub(crate) fn multi_get_that_misses_is_held() {
    assert_eq!(held(deletes, |world| world.send_multi_get(&[KEY])), Replied::Other);
}

pub(crate) fn page_with_a_new_entry_is_held() {
    assert_eq!(held(puts, |world| world.send(&Request::Scan(Scan::default()))), Replied::Other);
}

pub(crate) fn page_without_a_removed_entry_is_held() {
    assert_eq!(held(deletes, |world| world.send(&Request::Scan(Scan::default()))), Replied::Other);
}

/// The same message comes twice.
pub(crate) fn repeat_is_held_like_the_first_copy() {
    let mut world = world();
    let copies = [puts(&mut world), puts(&mut world)];
    let replied = answered_with_its_batch(&mut world, &copies);
    assert!(matches!(replied[0], Replied::Written(_)) && replied[0] == replied[1], "{replied:?}");
}

/// A world that takes long values.
fn wide_world() -> World {
    let long = WorkerOptions { value_bytes_max: 1 << 20, ..OPTIONS };
    let mut world = World::new(1, GEOMETRY, long);
    assert!(matches!(world.put(world.name(1, 1), KEY, b"one"), Replied::Written(_)));
    world
}

/// Begins to write a long value in chunks, with a checksum that is off by this.
fn send_long(world: &mut World, off: u64) -> u32 {
    let value: Vec<u8> = (0..LONG_BYTES).map(|at| at.to_le_bytes()[0]).collect();
    let (value_len, value_crc) = (u32::try_from(value.len()).unwrap(), checksum(&value) ^ off);
    let name = world.name(2, 1);
    let begin = PutBegin { name, condition: Condition::Always, key: LONG, value_len, value_crc };
    let id = world.send(&Request::PutBegin(begin));
    for (at, bytes) in value.chunks(PIECE_BYTES).enumerate() {
        let offset = u32::try_from(at * PIECE_BYTES).unwrap();
        world.send_of(id, &Request::Chunk(Chunk { offset, bytes }));
    }
    id
}

pub(crate) fn value_in_chunks_is_held() {
    let mut world = wide_world();
    let put = send_long(&mut world, 0);
    let get = world.send(&Request::Get { key: LONG });
    let replied = answered_with_its_batch(&mut world, &[get, put]);
    assert!(matches!(replied[..], [Replied::Other, Replied::Written(_)]), "{replied:?}");
}

pub(crate) fn multi_get_without_a_long_value_is_held() {
    let mut world = wide_world();
    let put = send_long(&mut world, 0);
    let get = world.send_multi_get(&[LONG]);
    let replied = answered_with_its_batch(&mut world, &[get, put]);
    assert!(matches!(replied[..], [Replied::Other, Replied::Written(_)]), "{replied:?}");
}

pub(crate) fn value_that_came_damaged_is_not_written() {
    let mut world = wide_world();
    let put = send_long(&mut world, 1);
    assert_eq!(world.answer(put), Replied::Refused(StatusCode::Malformed));
    assert_eq!(world.get(LONG), Replied::NotFound);
}

/// Keys of two pairs, of which one or the other has changed and its log stands still.
pub(crate) fn answer_from_two_pairs_is_held_for_both() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let mut number = load_until_split(&mut world);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    let (low, high): (&[u8], &[u8]) = (b"aaa", b"zzz");
    for key in [low, high] {
        assert!(matches!(world.put(world.name(number, number), key, b"old"), Replied::Written(_)));
        number += 1;
    }
    for (pair, key) in [(0, low), (1, high)] {
        world.hold(Some(pair));
        let put = send_put(&mut world, number, key, b"new");
        let get = world.send_multi_get(&[low, high]);
        for _ in 0..5 {
            world.turn();
            assert_eq!((world.answered(get), world.answered(put)), (None, None), "pair {pair} stands still");
        }
        world.hold(None);
        assert_eq!(world.answer(get), Replied::Other);
        assert!(matches!(world.answer(put), Replied::Written(_)));
        number += 1;
    }
}

#[test]
fn answers_of_every_kind_wait_for_the_batch_that_covers_them() {
    search_that_hits_is_held();
    search_that_misses_is_held();
    multi_get_that_hits_is_held();
    multi_get_that_misses_is_held();
    multi_get_without_a_long_value_is_held();
    page_with_a_new_entry_is_held();
    page_without_a_removed_entry_is_held();
    value_in_chunks_is_held();
    repeat_is_held_like_the_first_copy();
    answer_from_two_pairs_is_held_for_both();
}

#[test]
fn value_whose_checksum_does_not_fit_is_refused() {
    value_that_came_damaged_is_not_written();
}

/// Sends a write whose condition fails while there is an entry, and asks until it is answered.
fn put_if_absent(world: &mut World, name: WriteName) -> Replied {
    let put = Put { name, condition: Condition::IfAbsent, key: KEY, value: b"absent" };
    let id = world.send(&Request::Put(put));
    world.answer(id)
}

fn put_if_present(world: &mut World, name: WriteName) -> Replied {
    let put = Put { name, condition: Condition::IfPresent, key: NEW, value: b"present" };
    let id = world.send(&Request::Put(put));
    world.answer(id)
}

/// The condition would hold by now.
pub(crate) fn failed_condition_is_failed_when_it_is_repeated() {
    let failed = Replied::Refused(StatusCode::ConditionFailed);
    let mut world = world();
    let (absent, present) = (world.name(2, 1), world.name(3, 1));
    assert_eq!(put_if_absent(&mut world, absent), failed);
    assert_eq!(put_if_present(&mut world, present), failed);
    assert_eq!(world.delete(world.name(4, 1), KEY), Replied::Deleted);
    assert!(matches!(world.put(world.name(5, 1), NEW, b"new"), Replied::Written(_)));
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        assert_eq!(put_if_absent(&mut world, absent), failed, "restarted: {restarts}");
        assert_eq!(put_if_present(&mut world, present), failed, "restarted: {restarts}");
        assert_eq!(world.get(KEY), Replied::NotFound);
        assert_eq!(world.get(NEW), Replied::Value(b"new".to_vec()));
    }
}

/// There would be something to delete by now.
pub(crate) fn delete_of_nothing_deletes_nothing_when_it_is_repeated() {
    let mut world = world();
    let delete = world.name(2, 1);
    assert_eq!(world.delete(delete, NEW), Replied::NotFound);
    assert!(matches!(world.put(world.name(3, 1), NEW, b"new"), Replied::Written(_)));
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        assert_eq!(world.delete(delete, NEW), Replied::NotFound, "restarted: {restarts}");
        assert_eq!(world.get(NEW), Replied::Value(b"new".to_vec()));
    }
}

#[test]
fn write_that_changed_nothing_changes_nothing_when_it_is_repeated() {
    failed_condition_is_failed_when_it_is_repeated();
    delete_of_nothing_deletes_nothing_when_it_is_repeated();
}

/// The log stands still and has no room for a put; what comes behind it would fit.
pub(crate) fn write_behind_one_that_waits_for_the_log_waits_too() {
    const ENTRIES: u64 = 40;
    let key = |entry: u64| format!("key {entry:02}").into_bytes();
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    world.hold(Some(0));
    let send = |world: &mut World, entry: u64| {
        let put = send_put(world, 2 * entry + 1, &key(entry), &[7; 4_000]);
        (put, send_delete(world, 2 * entry + 2, &key(entry)))
    };
    let sent: Vec<_> = (0..ENTRIES).map(|entry| send(&mut world, entry)).collect();
    world.turn();
    world.hold(None);
    for (entry, (put, delete)) in (0..).zip(sent) {
        let replied = world.answer(put);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
        assert_eq!(world.answer(delete), Replied::Deleted, "entry {entry}");
    }
    assert_eq!(world.entries(), [0]);
}

#[test]
fn writes_that_wait_for_the_log_keep_their_order() {
    write_behind_one_that_waits_for_the_log_waits_too();
}
