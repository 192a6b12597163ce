//! The rules of readers, one by one: nothing is told that is not durable, by a watermark of the same epoch;
//! nothing that took too long to read; nothing past the lease. Each has a mutant that these tests must catch.

use cell_client::{Operation, Output};
use cell_memory::extent::byte_offset;
use cell_protocol::{Bound, Found, RequestKind, Scan};
use cell_terms::{Csn, Epoch};

use crate::onesided::answers::{filled, key, value};
use crate::onesided::yard::{MS, OPERATION_MS_MAX, Yard};

fn value_of(output: Output) -> Option<Vec<u8>> {
    match output {
        Output::Value(item) => item.map(|item| item.value),
        other => panic!("{other:?}"),
    }
}

/// What is not durable yet is waited for: a hit, a miss, a search's hit, a scan.
pub(crate) fn not_durable_is_waited_for() {
    let mut yard = filled(Yard::new(), 20);
    yard.owner.put_unseen(&key(3), b"newer");
    yard.submit(&Operation::Get { key: &key(3) });
    assert!(yard.wait(MS).is_none(), "the newer value is not durable");
    yard.owner.raise();
    let completion = yard.wait(20 * MS).expect("it is durable now");
    assert_eq!(value_of(completion.outcome.unwrap()), Some(b"newer".to_vec()));

    yard.owner.delete_unseen(&key(4));
    for operation in [
        Operation::Get { key: &key(4) },
        Operation::Search { key: &key(4) },
        Operation::Scan(Scan { start: Bound::Included(&key(4)), limit_entries: 1, ..Scan::default() }),
        Operation::MultiGet { keys: &[&key(5), &key(4)] },
    ] {
        yard.submit(&operation);
        assert!(yard.wait(MS).is_none(), "{operation:?}: the removal is not durable");
    }
    yard.owner.raise();
    for _ in 0..4 {
        yard.wait(20 * MS).expect("it is durable now").outcome.unwrap();
    }

    yard.owner.put_unseen(b"new", b"one");
    yard.submit(&Operation::Search { key: b"new" });
    assert!(yard.wait(MS).is_none(), "the leaf's change is not durable, nor is the extent");
    yard.owner.raise();
    let completion = yard.wait(20 * MS).expect("it is durable now");
    assert_eq!(completion.outcome.unwrap(), Output::Exists(true));
    assert!(yard.asked.is_empty() && yard.counters().watermark > 0);
}

#[test]
fn what_is_not_durable_is_waited_for() {
    not_durable_is_waited_for();
}

#[test]
fn cold_neighbours_of_a_hot_entry_do_not_wait() {
    let mut yard = filled(Yard::new(), 20);
    yard.owner.put_unseen(&key(3), b"newer");
    assert_eq!(yard.get(&key(4)), Some(value(4)), "the same leaf");
    assert_eq!(yard.call(&Operation::Search { key: &key(4) }), Output::Exists(true), "by its extent");
    assert_eq!(yard.get(b"key-00004a"), None, "nothing was removed");
    assert!(yard.asked.is_empty());
}

#[test]
fn what_does_not_become_durable_soon_is_left_to_the_server() {
    let mut yard = filled(Yard::new(), 20);
    yard.owner.put_unseen(&key(3), b"newer");
    yard.submit(&Operation::Get { key: &key(3) });
    yard.wait(50 * MS);
    assert_eq!(yard.asked, [RequestKind::Get]);
}

/// Past a cut the next owner uses the same CSNs again: its watermark says nothing of what was read under the
/// epoch before.
pub(crate) fn watermark_of_another_epoch_vouches_for_nothing() {
    let mut yard = filled(Yard::new(), 20);
    yard.owner.put_unseen(&key(3), b"never durable");
    let csn = yard.owner.pairs[0].pair.appended();
    yard.submit(&Operation::Get { key: &key(3) });
    yard.run_to_extent();
    // The owner is gone; a reply of the next one comes, whose watermark has passed this CSN.
    yard.reply_epoch = Epoch(6);
    yard.owner.pairs[0].visible_told = Some(Csn(csn.0 + 100));
    yard.submit(&Operation::Status);
    yard.step();
    yard.owner.pairs[0].visible_told = None;
    yard.core.completion().expect("the status was answered");
    for _ in 0..200 {
        yard.run();
        while let Some(completion) = yard.core.completion() {
            let outcome = completion.outcome.ok().map(value_of);
            assert_ne!(outcome, Some(Some(b"never durable".to_vec())), "it never was");
        }
        yard.pass(MS / 10);
    }
    assert!(yard.asked.contains(&RequestKind::Get), "the next owner is asked");
}

#[test]
fn watermark_of_another_epoch_is_not_taken() {
    watermark_of_another_epoch_vouches_for_nothing();
}

/// A client that was stopped between leaf and extent could find another entry's extent in the place: headers
/// alone have no checksum, the clock tells.
pub(crate) fn operation_that_took_too_long_is_thrown_away() {
    let mut yard = filled(Yard::new(), 20);
    let scan = Scan { start: Bound::Included(&key(7)), keys_only: true, limit_entries: 1, ..Scan::default() };
    let expected = yard.owner.entries[&key(7)].0;
    yard.submit(&Operation::Scan(scan));
    yard.run_to_extent();
    // The client is stopped. The entry moves, its place rests, and is used again.
    let place = yard.owner.entry(&key(7)).unwrap().offset;
    let moved = yard.owner.put(&key(7), &value(7));
    yard.pass((OPERATION_MS_MAX + 60) * MS);
    yard.owner.reuse_for(place, b"another", &value(8));
    yard.run();
    let Output::Page(page) = yard.core.completion().unwrap().outcome.unwrap() else { panic!() };
    let version = page.iter().next().unwrap().version;
    assert!(version == expected || version == moved, "{version} is another entry's");
    assert_eq!(yard.counters().clock, 1);
    assert!(yard.asked.is_empty(), "it was tried again");
}

#[test]
fn operation_that_took_longer_than_permitted_is_thrown_away() {
    operation_that_took_too_long_is_thrown_away();
}

/// Headers alone have no checksum: an owner that gave a place away too early had another entry's version told
/// for a key.
pub(crate) fn header_of_another_entry_is_not_believed() {
    let scan = Scan { start: Bound::Included(&key(7)), keys_only: true, limit_entries: 2, ..Scan::default() };
    let long = vec![7; 70_000];
    for (operation, reused, value, other) in [
        (Operation::Scan(scan), key(7), value(7), value(8)),
        (
            Operation::MultiGet { keys: &[&key(3), b"long", &key(5)] },
            b"long".to_vec(),
            long.clone(),
            vec![8; 70_000],
        ),
    ] {
        let mut yard = filled(Yard::new(), 20);
        yard.owner.put(b"long", &long);
        let place = yard.owner.entry(&reused).unwrap().offset;
        let reads = |yard: &Yard, read: &cell_fabric::RemoteRead| {
            read.key.0 == yard.owner.pairs[0].extent_key() && read.offset == byte_offset(place)
        };
        yard.submit(&operation);
        yard.run_to(reads);
        // The entry moves, and its place is used again at once, by one of the same form.
        let moved = yard.owner.move_and_reuse(&reused, &value, b"another", &other);
        yard.run();
        let version = match yard.core.completion().unwrap().outcome.unwrap() {
            Output::Page(page) => page.iter().next().unwrap().version,
            Output::Values(values) => match values.iter().nth(1) {
                Some(Found::Large { version, .. }) => version,
                found => panic!("{found:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(version, moved, "{operation:?}");
        assert_eq!(yard.counters().crc, 1);
        assert!(yard.asked.is_empty(), "it was looked for again");
    }
}

#[test]
fn header_of_a_place_that_was_used_again_is_not_believed() {
    header_of_another_entry_is_not_believed();
}

#[test]
fn page_of_keys_reads_each_leaf_once_more() {
    let mut yard = filled(Yard::new(), 200);
    let scan = Scan { keys_only: true, ..Scan::default() };
    yard.call(&Operation::Scan(scan));
    let leaves = |yard: &Yard| yard.counters().reads;
    let before = leaves(&yard);
    let Output::Page(page) = yard.call(&Operation::Scan(scan)) else { panic!() };
    let (entries, reads) = (page.iter().count() as u64, leaves(&yard) - before);
    assert_eq!(entries, 200);
    assert!(reads - entries < entries / 2, "a header an entry, and each leaf twice: {reads}");
}

#[test]
fn operation_that_always_takes_too_long_is_left_to_the_server() {
    let mut yard = filled(Yard::new(), 20);
    yard.lease_us = u32::MAX;
    yard.submit(&Operation::Get { key: &key(7) });
    for _ in 0..100 {
        yard.step();
        yard.pass((OPERATION_MS_MAX + 1) * MS);
        yard.complete_one();
        if !yard.asked.is_empty() {
            break;
        }
    }
    assert_eq!(yard.asked, [RequestKind::Get]);
}

/// The owner is stopped: its memory goes on being readable, and its successor changes what is the truth.
pub(crate) fn nothing_is_told_past_the_lease() {
    let mut yard = filled(Yard::new(), 20);
    assert_eq!(yard.get(&key(3)), Some(value(3)));
    yard.answers = false;
    yard.pass(9_990 * MS);
    assert_eq!(yard.get(&key(3)), Some(value(3)), "the lease still holds");
    yard.pass(10 * MS);
    yard.submit(&Operation::Get { key: &key(3) });
    let completion = yard.wait(30 * MS);
    assert!(completion.is_none(), "{completion:?} is a successor's to say");
    assert!(yard.counters().trust > 0);
}

#[test]
fn nothing_is_told_past_the_owners_lease() {
    nothing_is_told_past_the_lease();
}

#[test]
fn lease_that_is_renewed_lets_what_was_read_be_told() {
    let mut yard = filled(Yard::new(), 20);
    assert_eq!(yard.get(&key(3)), Some(value(3)));
    yard.pass(20_000 * MS);
    let asked = |yard: &Yard| yard.kinds.iter().filter(|kind| **kind == RequestKind::KeepAlive).count();
    let before = asked(&yard);
    assert_eq!(yard.get(&key(4)), Some(value(4)));
    assert!(asked(&yard) > before, "a tiny request");
    assert!(yard.asked.is_empty());
}

#[test]
fn lease_is_counted_from_before_the_question() {
    let mut yard = filled(Yard::new(), 20);
    yard.pass(20_000 * MS);
    yard.lease_us = 5_000;
    yard.answers = false;
    yard.submit(&Operation::Get { key: &key(3) });
    yard.run();
    let asked_ns = yard.now_ns;
    let question = yard.last_request();
    // The answer travels for longer than the lease that it tells of.
    yard.pass(6 * MS);
    yard.tell_alive(question);
    yard.core.validate(asked_ns + 6 * MS);
    assert!(yard.core.completion().is_none(), "it is over since a millisecond");
}

#[test]
fn answer_to_the_question_is_looked_at_by_a_time_after_it() {
    let mut yard = filled(Yard::new(), 20);
    yard.pass(20_000 * MS);
    yard.lease_us = 5_000;
    yard.answers = false;
    yard.submit(&Operation::Get { key: &key(3) });
    yard.run();
    let question = yard.last_request();
    // Taken in by a time from before a long poll.
    yard.tell_alive(question);
    assert!(yard.core.completion().is_none(), "nobody has looked at the clock since");
    yard.core.validate(yard.now_ns + 6 * MS);
    assert!(yard.core.completion().is_none(), "the lease is over by now");
}

#[test]
fn lease_of_a_worker_that_promises_nothing_is_left_to_the_server() {
    let mut yard = filled(Yard::new(), 20);
    yard.pass(20_000 * MS);
    yard.lease_us = 0;
    yard.submit(&Operation::Get { key: &key(3) });
    yard.wait(50 * MS);
    assert_eq!(yard.asked, [RequestKind::Get]);
}
