//! A write's first copy that comes when its retry was carried out long since: it is answered or turned away,
//! and never carried out, wherever its key is by then.

use cell_protocol::StatusCode;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const KEY: &[u8] = b"key 9 of the upper half";

/// What was written when the world is as the test wants it.
struct Written {
    world: World,
    first: Replied,
    /// The next number.
    number: u64,
}

/// A retry of write 1 is carried out, then another write of the key.
fn retried(pairs: u32) -> Written {
    let mut world = World::new(pairs, GEOMETRY, OPTIONS);
    let first = world.put(world.name(1, 1), KEY, b"one");
    assert!(matches!(first, Replied::Written(_)), "{first:?}");
    let second = world.put(world.name(2, 1), KEY, b"two");
    assert_ne!(first, second);
    Written { world, first, number: 3 }
}

/// Copies of write 1 come: one that is remembered is answered as the first time, and once the floor has
/// passed it, it is turned away.
fn delayed_copies_do_nothing(written: Written) {
    let Written { mut world, first, number } = written;
    let delayed = world.name(1, 1);
    assert_eq!(world.put(delayed, KEY, b"one"), first, "the same answer again");
    assert_eq!(world.get(KEY), Replied::Value(b"two".to_vec()));
    let deleted = world.delete(world.name(number, number), KEY);
    assert_eq!(deleted, Replied::Deleted);
    let below = Replied::Refused(StatusCode::NumberBelowFloor);
    assert_eq!(world.put(delayed, KEY, b"one"), below);
    assert_eq!(world.get(KEY), Replied::NotFound, "a deleted entry does not come back");
    // And not after one more life, which knows floors from the log alone.
    world.restart();
    assert_eq!(world.put(delayed, KEY, b"one"), below);
    assert_eq!(world.delete(world.name(number, number), KEY), Replied::Deleted, "a repeat, answered");
    assert_eq!(world.get(KEY), Replied::NotFound);
}

/// Entries come until the key's meganode was split and the key is in the second pair. The floor stays, so
/// that results are what goes along.
fn split_away(written: &mut Written) {
    let world = &mut written.world;
    let mut count = 0;
    while world.worker().split_counts().finished == 0 {
        let key = format!("key {} {count}", count * 7 % 10).into_bytes();
        let replied = world.put(world.name(written.number, 1), &key, &[b'v'; 40]);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
        (written.number, count) = (written.number + 1, count + 1);
        assert!(count < 10_000, "a meganode of 128 tree nodes is split");
    }
    assert!(world.entries()[1] > 0, "the upper half is in the second pair: {:?}", world.entries());
}

pub(crate) fn first_copy_does_nothing() {
    delayed_copies_do_nothing(retried(1));
}

#[test]
fn first_copy_after_its_retry_is_not_carried_out() {
    first_copy_does_nothing();
}

#[test]
fn first_copy_after_a_restart_is_not_carried_out() {
    let mut written = retried(1);
    written.world.restart();
    delayed_copies_do_nothing(written);
}

#[test]
fn first_copy_after_a_split_moved_its_key_is_not_carried_out() {
    let mut written = retried(2);
    split_away(&mut written);
    delayed_copies_do_nothing(written);
}

#[test]
fn first_copy_after_a_split_and_a_restart_is_not_carried_out() {
    let mut written = retried(2);
    split_away(&mut written);
    written.world.restart();
    delayed_copies_do_nothing(written);
}

#[test]
fn first_copy_that_waited_for_a_split_while_its_retry_did_is_carried_out_once() {
    let mut written = retried(2);
    let world = &mut written.world;
    // Up to the moment in which a split of the key's meganode begins.
    let mut count = 0;
    while world.worker().split_counts().begun == 0 {
        let key = format!("key {} {count}", count * 7 % 10).into_bytes();
        world.put(world.name(written.number, 1), &key, &[b'v'; 40]);
        (written.number, count) = (written.number + 1, count + 1);
    }
    // Both copies of a write of the upper half wait for it, and the split ends.
    let name = world.name(written.number, 1);
    let put =
        cell_protocol::Put { name, condition: cell_protocol::Condition::Always, key: KEY, value: b"three" };
    let copies = [(); 2].map(|()| world.send(&cell_protocol::Request::Put(put)));
    let replied = copies.map(|id| world.answer(id));
    assert_eq!(replied[0], replied[1], "one write, one version");
    assert!(matches!(replied[0], Replied::Written(_)), "{replied:?}");
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    assert_eq!(world.get(KEY), Replied::Value(b"three".to_vec()));
    written.number += 1;
    assert_eq!(written.world.put(written.world.name(1, 1), KEY, b"one"), written.first);
    assert_eq!(written.world.get(KEY), Replied::Value(b"three".to_vec()));
}
