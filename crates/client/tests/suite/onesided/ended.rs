//! What is looked at in place counts by the registration that lasted meanwhile and by the clock, whatever
//! kind of read it is: once a registration has ended its memory may be anybody's, and what was freed is used
//! again.

use cell_client::{Operation, Output};
use cell_protocol::{EntryValue, Found, Scan};

use crate::onesided::answers::key;
use crate::onesided::in_place::{get_at_once, mapped, search_at_once};
use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{MS, OPERATION_MS_MAX, ReadHarness, options};

fn harness() -> ReadHarness {
    mapped(options(), Owner::new(false))
}

/// Keys that have no entry: no extent is looked at.
pub(crate) fn leaf_whose_registration_has_ended_answers_nothing() {
    let mut harness = harness();
    let absent: [&[u8]; 2] = [b"key-00003a", b"key-00004a"];
    assert!(get_at_once(&mut harness, &absent).is_some(), "while it lasts");
    harness.owner.unregister();
    assert_eq!(get_at_once(&mut harness, &absent), None, "side by side");
    assert_eq!(get_at_once(&mut harness, &absent[..1]), None, "alone");
}

pub(crate) fn extent_whose_registration_has_ended_answers_nothing() {
    let mut harness = harness();
    assert!(get_at_once(&mut harness, &[&key(1)]).is_some(), "while it lasts");
    harness.owner.end_mapped_extents();
    assert_eq!(get_at_once(&mut harness, &[&key(1)]), None);
}

pub(crate) fn watermark_whose_registration_has_ended_covers_nothing() {
    let mut harness = harness();
    harness.owner.put_unseen(b"new", b"value");
    assert_eq!(search_at_once(&mut harness, b"new"), None, "it is not durable");
    harness.owner.end_mapped_extents();
    harness.owner.raise();
    assert_eq!(search_at_once(&mut harness, b"new"), None, "nobody who counts says that it is");
}

/// Of a page, that is asked once, when all of it was copied.
pub(crate) fn page_whose_registration_has_ended_answers_nothing() {
    let mut harness = harness();
    let before = harness.counters().in_place;
    harness.call(&Operation::Scan(Scan::default()));
    assert_eq!(harness.counters().in_place - before, 1, "while it lasts");
    harness.owner.end_mapped_extents();
    harness.submit(&Operation::Scan(Scan::default()));
    harness.run();
    assert_eq!(harness.counters().in_place - before, 1);
}

#[test]
fn what_was_found_in_memory_whose_registration_has_ended_is_not_answered() {
    leaf_whose_registration_has_ended_answers_nothing();
    extent_whose_registration_has_ended_answers_nothing();
    page_whose_registration_has_ended_answers_nothing();
    watermark_whose_registration_has_ended_covers_nothing();
}

/// The client is stopped between its look and the next, for as long as an operation may take.
fn looked_for_again(operation: &Operation<'_>) -> Output {
    let mut harness = harness();
    harness.submit(operation);
    harness.validate();
    harness.owner.put(&key(1), b"newer");
    harness.pass(OPERATION_MS_MAX * MS);
    let before = harness.counters();
    harness.run();
    assert_eq!(harness.counters().reads, before.reads, "in place");
    harness.core.completion().expect("it is complete").outcome.unwrap()
}

pub(crate) fn multi_get_in_place_that_took_too_long_is_thrown_away() {
    let Output::Values(values) = looked_for_again(&Operation::MultiGet { keys: &[&key(1)] }) else {
        panic!()
    };
    let found: Vec<_> = values.iter().collect();
    assert!(matches!(found[..], [Found::Value { value: b"newer", .. }]), "{found:?}");
}

pub(crate) fn scan_in_place_that_took_too_long_is_thrown_away() {
    let Output::Page(page) = looked_for_again(&Operation::Scan(Scan::default())) else { panic!() };
    let entry = page.iter().find(|entry| entry.key == key(1)).unwrap();
    assert!(matches!(entry.value, EntryValue::Inline(b"newer")), "{entry:?}");
}

#[test]
fn what_took_longer_than_permitted_in_place_is_thrown_away() {
    multi_get_in_place_that_took_too_long_is_thrown_away();
    scan_in_place_that_took_too_long_is_thrown_away();
}
