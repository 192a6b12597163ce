//! The rules of readers, one by one: nothing is returned that is not durable, by a watermark of the same
//! epoch; nothing that took too long to read; nothing past the lease. Each has a mutant that these tests must
//! catch.

use cell_client::{LinkId, Operation, Output};
use cell_memory::extent::byte_offset;
use cell_protocol::{Bound, Found, RequestKind, Scan};
use cell_terms::{Csn, Epoch};

use crate::onesided::answers::{filled, key, value};
use crate::onesided::read_harness::{MS, OPERATION_MS_MAX, ReadHarness};

fn value_of(output: Output) -> Option<Vec<u8>> {
    match output {
        Output::Value(item) => item.map(|item| item.value),
        other => panic!("{other:?}"),
    }
}

/// What is not durable yet is waited for: a hit, a miss, a search's hit, a scan.
pub(crate) fn not_durable_is_waited_for() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.owner.put_unseen(&key(3), b"newer");
    harness.submit(&Operation::Get { key: &key(3) });
    assert!(harness.wait(MS).is_none(), "the newer value is not durable");
    harness.owner.raise();
    let completion = harness.wait(20 * MS).expect("it is durable now");
    assert_eq!(value_of(completion.outcome.unwrap()), Some(b"newer".to_vec()));

    harness.owner.delete_unseen(&key(4));
    for operation in [
        Operation::Get { key: &key(4) },
        Operation::Search { key: &key(4) },
        Operation::Scan(Scan { start: Bound::Included(&key(4)), limit_entries: 1, ..Scan::default() }),
        Operation::MultiGet { keys: &[&key(5), &key(4)] },
    ] {
        harness.submit(&operation);
        assert!(harness.wait(MS).is_none(), "{operation:?}: the removal is not durable");
    }
    harness.owner.raise();
    for _ in 0..4 {
        harness.wait(20 * MS).expect("it is durable now").outcome.unwrap();
    }

    harness.owner.put_unseen(b"new", b"one");
    harness.submit(&Operation::Search { key: b"new" });
    assert!(harness.wait(MS).is_none(), "the leaf's change is not durable, nor is the extent");
    harness.owner.raise();
    let completion = harness.wait(20 * MS).expect("it is durable now");
    assert_eq!(completion.outcome.unwrap(), Output::Exists(true));
    assert!(harness.asked.is_empty() && harness.counters().watermark > 0);
}

#[test]
fn what_is_not_durable_is_waited_for() {
    not_durable_is_waited_for();
}

#[test]
fn cold_neighbours_of_a_hot_entry_do_not_wait() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.owner.put_unseen(&key(3), b"newer");
    assert_eq!(harness.get(&key(4)), Some(value(4)), "the same leaf");
    assert_eq!(harness.call(&Operation::Search { key: &key(4) }), Output::Exists(true), "by its extent");
    assert_eq!(harness.get(b"key-00004a"), None, "nothing was removed");
    assert!(harness.asked.is_empty());
}

#[test]
fn what_does_not_become_durable_soon_is_left_to_the_server() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.owner.put_unseen(&key(3), b"newer");
    harness.submit(&Operation::Get { key: &key(3) });
    harness.wait(50 * MS);
    assert_eq!(harness.asked, [RequestKind::Get]);
}

/// Past a cut the next owner uses the same CSNs again: its watermark says nothing of what was read under the
/// epoch before.
pub(crate) fn watermark_of_another_epoch_vouches_for_nothing() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.owner.put_unseen(&key(3), b"never durable");
    let csn = harness.owner.pairs[0].pair.appended();
    harness.submit(&Operation::Get { key: &key(3) });
    harness.run_to_extent();
    // The owner is gone; a reply of the next one comes, whose watermark has passed this CSN.
    harness.reply_epoch = Epoch(6);
    harness.owner.pairs[0].visible_reported = Some(Csn(csn.0 + 100));
    harness.submit(&Operation::Status);
    harness.step();
    harness.owner.pairs[0].visible_reported = None;
    harness.core.completion().expect("the status was answered");
    for _ in 0..200 {
        harness.run();
        while let Some(completion) = harness.core.completion() {
            let outcome = completion.outcome.ok().map(value_of);
            assert_ne!(outcome, Some(Some(b"never durable".to_vec())), "it never was");
        }
        harness.pass(MS / 10);
    }
    assert!(harness.asked.contains(&RequestKind::Get), "the next owner is asked");
}

#[test]
fn watermark_of_another_epoch_is_not_taken() {
    watermark_of_another_epoch_vouches_for_nothing();
}

/// A client that was stopped between leaf and extent could find another entry's extent in the place: headers
/// alone have no checksum, the clock decides.
pub(crate) fn operation_that_took_too_long_is_thrown_away() {
    let mut harness = filled(ReadHarness::new(), 20);
    let scan = Scan { start: Bound::Included(&key(7)), keys_only: true, limit_entries: 1, ..Scan::default() };
    let expected = harness.owner.entries[&key(7)].0;
    harness.submit(&Operation::Scan(scan));
    harness.run_to_extent();
    // The client is stopped. The entry moves, its place rests, and is used again.
    let place = harness.owner.entry(&key(7)).unwrap().offset;
    let moved = harness.owner.put(&key(7), &value(7));
    harness.pass((OPERATION_MS_MAX + 60) * MS);
    harness.owner.reuse_for(place, b"another", &value(8));
    harness.run();
    let Output::Page(page) = harness.core.completion().unwrap().outcome.unwrap() else { panic!() };
    let version = page.iter().next().unwrap().version;
    assert!(version == expected || version == moved, "{version} is another entry's");
    assert_eq!(harness.counters().clock, 1);
    assert!(harness.asked.is_empty(), "it was tried again");
}

#[test]
fn operation_that_took_longer_than_permitted_is_thrown_away() {
    operation_that_took_too_long_is_thrown_away();
}

/// Headers alone have no checksum: an owner that gave a place away too early had another entry's version
/// returned for a key.
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
        let mut harness = filled(ReadHarness::new(), 20);
        harness.owner.put(b"long", &long);
        let place = harness.owner.entry(&reused).unwrap().offset;
        let reads = |harness: &ReadHarness, read: &cell_fabric::RemoteRead| {
            read.key.0 == harness.owner.pairs[0].extent_key() && read.offset == byte_offset(place)
        };
        harness.submit(&operation);
        harness.run_to(reads);
        // The entry moves, and its place is used again at once, by one of the same form.
        let moved = harness.owner.move_and_reuse(&reused, &value, b"another", &other);
        harness.run();
        let version = match harness.core.completion().unwrap().outcome.unwrap() {
            Output::Page(page) => page.iter().next().unwrap().version,
            Output::Values(values) => match values.iter().nth(1) {
                Some(Found::Large { version, .. }) => version,
                found => panic!("{found:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(version, moved, "{operation:?}");
        assert_eq!(harness.counters().crc, 1);
        assert!(harness.asked.is_empty(), "it was looked for again");
    }
}

#[test]
fn header_of_a_place_that_was_used_again_is_not_believed() {
    header_of_another_entry_is_not_believed();
}

#[test]
fn page_of_keys_reads_each_leaf_once_more() {
    let mut harness = filled(ReadHarness::new(), 200);
    let scan = Scan { keys_only: true, ..Scan::default() };
    harness.call(&Operation::Scan(scan));
    let leaves = |harness: &ReadHarness| harness.counters().reads;
    let before = leaves(&harness);
    let Output::Page(page) = harness.call(&Operation::Scan(scan)) else { panic!() };
    let (entries, reads) = (page.iter().count() as u64, leaves(&harness) - before);
    assert_eq!(entries, 200);
    assert!(reads - entries < entries / 2, "a header an entry, and each leaf twice: {reads}");
}

#[test]
fn operation_that_always_takes_too_long_is_left_to_the_server() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.lease_us = u32::MAX;
    harness.submit(&Operation::Get { key: &key(7) });
    for _ in 0..100 {
        harness.step();
        harness.pass((OPERATION_MS_MAX + 1) * MS);
        harness.complete_one();
        if !harness.asked.is_empty() {
            break;
        }
    }
    assert_eq!(harness.asked, [RequestKind::Get]);
}

/// The owner is stopped: its memory goes on being readable, and its successor changes what is the truth.
pub(crate) fn nothing_is_returned_past_the_lease() {
    let mut harness = filled(ReadHarness::new(), 20);
    assert_eq!(harness.get(&key(3)), Some(value(3)));
    harness.answers = false;
    harness.pass(9_990 * MS);
    assert_eq!(harness.get(&key(3)), Some(value(3)), "the lease still holds");
    harness.pass(10 * MS);
    harness.submit(&Operation::Get { key: &key(3) });
    let completion = harness.wait(30 * MS);
    assert!(completion.is_none(), "{completion:?} is a successor's to say");
    assert!(harness.counters().trust > 0);
}

#[test]
fn nothing_is_returned_past_the_owners_lease() {
    nothing_is_returned_past_the_lease();
}

#[test]
fn lease_that_is_renewed_lets_what_was_read_be_returned() {
    let mut harness = filled(ReadHarness::new(), 20);
    assert_eq!(harness.get(&key(3)), Some(value(3)));
    harness.pass(20_000 * MS);
    let asked =
        |harness: &ReadHarness| harness.kinds.iter().filter(|kind| **kind == RequestKind::KeepAlive).count();
    let before = asked(&harness);
    assert_eq!(harness.get(&key(4)), Some(value(4)));
    assert!(asked(&harness) > before, "a tiny request");
    assert!(harness.asked.is_empty());
}

#[test]
fn lease_is_counted_from_before_the_question() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.pass(20_000 * MS);
    harness.lease_us = 5_000;
    harness.answers = false;
    harness.submit(&Operation::Get { key: &key(3) });
    harness.run();
    let asked_ns = harness.now_ns;
    let question = harness.last_request();
    // The answer travels for longer than the lease that it reports.
    harness.pass(6 * MS);
    harness.reply_alive(question);
    harness.core.validate(asked_ns + 6 * MS);
    assert!(harness.core.completion().is_none(), "it is over since a millisecond");
}

#[test]
fn answer_to_the_question_is_looked_at_by_a_time_after_it() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.pass(20_000 * MS);
    harness.lease_us = 5_000;
    harness.answers = false;
    harness.submit(&Operation::Get { key: &key(3) });
    harness.run();
    let question = harness.last_request();
    // Taken in by a time from before a long poll.
    harness.reply_alive(question);
    assert!(harness.core.completion().is_none(), "nobody has looked at the clock since");
    harness.core.validate(harness.now_ns + 6 * MS);
    assert!(harness.core.completion().is_none(), "the lease is over by now");
}

#[test]
fn lease_of_a_worker_that_promises_nothing_is_left_to_the_server() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.pass(20_000 * MS);
    harness.lease_us = 0;
    harness.submit(&Operation::Get { key: &key(3) });
    harness.wait(50 * MS);
    assert_eq!(harness.asked, [RequestKind::Get]);
}

/// Looked at in time, it is: it waits for the owner's word alone, which says that the lease held all along.
#[test]
fn what_was_read_in_time_may_wait_for_the_lease_longer_than_a_read_may_take() {
    let mut harness = filled(ReadHarness::new(), 20);
    assert_eq!(harness.get(&key(3)), Some(value(3)));
    harness.pass(20_000 * MS);
    harness.answers = false;
    harness.submit(&Operation::Get { key: &key(3) });
    harness.run();
    let (question, before) = (harness.last_request(), harness.counters());
    harness.pass((OPERATION_MS_MAX + 1) * MS);
    harness.reply_alive(question);
    harness.validate();
    let completion = harness.core.completion().expect("the lease has held");
    assert_eq!(value_of(completion.outcome.unwrap()), Some(value(3)));
    let after = harness.counters();
    assert_eq!((after.reads, after.clock), (before.reads, before.clock), "it was not read again");
}

/// A header was read in a place that had been used again. Another key's extent was not its leaf's either, and
/// what was looked for again is that key alone.
#[test]
fn header_is_confirmed_though_another_key_was_looked_for_again() {
    let (mut harness, long) = (filled(ReadHarness::new(), 20), vec![7; 70_000]);
    harness.owner.put(b"long", &long);
    let extents = harness.owner.pairs[0].extent_key();
    let place = |harness: &ReadHarness, key: &[u8]| byte_offset(harness.owner.entry(key).unwrap().offset);
    let (of_long, of_other) = (place(&harness, b"long"), place(&harness, &key(3)));
    harness.submit(&Operation::MultiGet { keys: &[b"long", &key(3)] });
    harness.run_to(|_, read| read.key.0 == extents && read.offset == of_long);
    let moved = harness.owner.move_and_reuse(b"long", &long, b"another", &vec![8; 70_000]);
    harness.complete_one();
    harness.run_to(|_, read| read.key.0 == extents && read.offset == of_other);
    let (read, tag) = harness.posted.remove(0);
    let mut words = harness.owner.read(&read).unwrap();
    words.fill(0);
    harness.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&words));
    harness.run();
    let Output::Values(values) = harness.core.completion().unwrap().outcome.unwrap() else { panic!() };
    let found: Vec<Found<'_>> = values.iter().collect();
    assert!(matches!(found[0], Found::Large { version, .. } if version == moved), "{:?}", found[0]);
    assert!(matches!(found[1], Found::Value { value: found, .. } if found == value(3)));
    assert_eq!(harness.counters().crc, 2);
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
}

/// A thread sleeps until the time that it is given, unless the time is all that an answer lacks.
#[test]
fn what_waits_for_the_time_alone_is_due_at_once_and_what_is_not_durable_later() {
    let mut harness = filled(ReadHarness::new(), 20);
    assert_eq!(harness.get(&key(3)), Some(value(3)));
    harness.submit(&Operation::Get { key: &key(3) });
    harness.run_to_extent();
    assert!(!harness.core.is_validating(), "a read is on its way");
    harness.complete_one();
    assert!(harness.core.is_validating(), "all of it is read");
    harness.validate();
    harness.core.completion().expect("looked at by a time after its reads").outcome.unwrap();
    harness.owner.put_unseen(&key(4), b"newer");
    harness.submit(&Operation::Get { key: &key(4) });
    harness.run();
    let due_ns = harness.core.due_ns().expect("it is looked at again");
    assert!(due_ns > harness.now_ns, "not at once: {due_ns} at {}", harness.now_ns);
    assert!(due_ns < harness.now_ns + MS, "soon: {due_ns} at {}", harness.now_ns);
}
