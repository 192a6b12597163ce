//! Memory of which a region is mapped once it was read, as over shared memory: what is searched in place is
//! mapped soon, whatever pairs have and wherever they go. All entries are the second pair's; the first one
//! has the router alone, so that nothing reads its extents.

use std::collections::BTreeSet;

use cell_client::{OneSidedCounters, Operation};
use cell_protocol::{Bound, Scan};

use crate::onesided::answers::{filled, key, model, routed_owner, scan_all, value};
use crate::onesided::in_place::{get_at_once, search_at_once};
use crate::onesided::nodes::TwoNodeHarness;
use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{MS, ReadHarness, options};

/// Where the second pair's keys begin and end.
const NUMBERS: std::ops::Range<u32> = 100..300;

fn owner() -> Owner {
    let mut owner = routed_owner();
    owner.map_when_read();
    for number in NUMBERS {
        owner.put(&key(number), &value(number));
    }
    owner
}

/// A client that has read an entry.
fn harness() -> ReadHarness {
    let mut harness = ReadHarness::with(options(), owner(), true);
    assert_eq!(harness.get(&key(150)), Some(value(150)), "by reads, which is when regions are mapped");
    harness
}

/// All that was started in between was found in place.
#[track_caller]
fn assert_in_place(before: &OneSidedCounters, after: &OneSidedCounters) {
    let (started, in_place) = (after.started - before.started, after.in_place - before.in_place);
    assert_eq!((in_place, after.reads - before.reads), (started, 0), "of {started}: {after:?}");
    assert!(started > 0);
}

#[test]
fn gets_and_searches_are_in_place_where_the_roots_pair_has_no_entries() {
    let mut harness = harness();
    let before = harness.counters();
    for number in NUMBERS {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
        assert_eq!(search_at_once(&mut harness, &key(number)), Some(true));
        let (_, items) = get_at_once(&mut harness, &[&key(number)]).expect("it is answered at once");
        assert_eq!(items[0].as_ref().map(|item| &item.value), Some(&value(number)));
    }
    assert_eq!(harness.get(&key(5)), None, "of the pair without entries");
    assert_in_place(&before, &harness.counters());
    assert!(harness.mappings_asked <= 3, "once for each region: {}", harness.mappings_asked);
}

#[test]
fn multi_gets_are_in_place_where_the_roots_pair_has_no_entries() {
    let mut harness = harness();
    let keys: Vec<Vec<u8>> = (90..300).step_by(3).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let before = harness.counters();
    harness.call(&Operation::MultiGet { keys: &keys });
    assert!(get_at_once(&mut harness, &keys).is_some());
    // As the asynchronous client has them: all are submitted before the first is answered.
    let tickets: Vec<_> = keys.iter().map(|key| harness.submit(&Operation::Get { key })).collect();
    harness.run();
    for ticket in tickets {
        assert!(harness.core.completion_of(ticket).unwrap().outcome.is_ok());
    }
    assert_in_place(&before, &harness.counters());
}

#[test]
fn scans_are_in_place_where_the_roots_pair_has_no_entries() {
    let mut harness = harness();
    let before = harness.counters();
    for reverse in [false, true] {
        for keys_only in [false, true] {
            let scan = Scan { reverse, keys_only, ..Scan::default() };
            assert_eq!(scan_all(&mut harness, scan), model(&harness, &scan), "{scan:?}");
        }
    }
    assert_in_place(&before, &harness.counters());
}

/// Nothing but scans was asked for, which walk over the first pair's leaf.
#[test]
fn scan_maps_what_it_reads() {
    let mut harness = ReadHarness::with(options(), owner(), true);
    assert_eq!(scan_all(&mut harness, Scan::default()), model(&harness, &Scan::default()));
    let before = harness.counters();
    assert_eq!(scan_all(&mut harness, Scan::default()), model(&harness, &Scan::default()));
    assert_in_place(&before, &harness.counters());
}

/// Its tree nodes are mapped, and its extents are not, until one of them was read: however many operations
/// had nothing to ask for before.
#[test]
fn first_entry_of_a_pair_is_read_once_and_then_found_in_place() {
    let mut harness = harness();
    let from = key(150);
    let scan = Scan { start: Bound::Included(&from), limit_entries: 1, ..Scan::default() };
    for _ in 0..500 {
        harness.call(&Operation::Scan(scan));
    }
    harness.owner.put(&key(5), &value(5));
    let before = harness.counters().reads;
    assert_eq!(harness.get(&key(5)), Some(value(5)));
    assert!(harness.counters().reads > before, "its extent is not mapped yet");
    let before = harness.counters();
    assert_eq!(harness.get(&key(5)), Some(value(5)));
    assert_in_place(&before, &harness.counters());
}

#[test]
fn fabric_that_maps_nothing_is_asked_ever_more_seldom() {
    let mut harness = filled(ReadHarness::with(options(), Owner::new(false), true), 20);
    for number in 0..5_000 {
        assert_eq!(harness.get(&key(number % 20)), Some(value(number % 20)));
    }
    let counters = harness.counters();
    assert!(counters.in_place == 0 && counters.reads > 5_000, "{counters:?}");
    assert!((1..=20).contains(&harness.mappings_asked), "{} times", harness.mappings_asked);
}

/// Each time that the fabric had something mapped, it was asked for the regions of all pairs: a client of a
/// thousand pairs asked a thousand times for each of them.
#[test]
fn fabric_is_asked_for_regions_of_pairs_that_were_read_and_of_no_other() {
    let mut harness = ReadHarness::with(options(), owner(), true);
    let regions_of = |harness: &ReadHarness, pair: usize| {
        let owned = &harness.owner.pairs[pair];
        BTreeSet::from([owned.node_key(), owned.extent_key()])
    };
    assert_eq!(harness.keys_asked, regions_of(&harness, 0), "of which the header was read");
    harness.keys_asked.clear();
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    assert_eq!(harness.keys_asked, regions_of(&harness, 1), "which has the entry");
}

/// What is found in a leaf without entries rests on the registration of its tree nodes.
pub(crate) fn pair_without_entries_answers_by_its_own_registration() {
    let mut harness = harness();
    let absent = key(5);
    let (_, items) = get_at_once(&mut harness, &[&absent]).expect("while it lasts");
    assert_eq!(items[0], None);
    harness.owner.unregister();
    assert_eq!(get_at_once(&mut harness, &[&absent]), None);
}

#[test]
fn leaf_without_entries_whose_registration_has_ended_answers_nothing() {
    pair_without_entries_answers_by_its_own_registration();
}

fn counters(harness: &TwoNodeHarness) -> OneSidedCounters {
    *harness.core.one_sided_counters().unwrap()
}

/// Where pairs are now is noticed by and by, and from then on all is in place.
#[track_caller]
fn assert_settles_in_place(harness: &mut TwoNodeHarness) {
    for _ in 0..50 {
        harness.now_ns += 200 * MS;
        harness.try_get(&key(150), 50); // by whatever path
    }
    assert!(harness.core.can_answer_at_once(), "the root's pair is mapped");
    let before = counters(harness);
    for number in NUMBERS {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
    }
    assert_in_place(&before, &counters(harness));
}

#[test]
fn reads_are_in_place_again_after_each_pair_has_moved() {
    let mut harness = TwoNodeHarness::reading(options(), owner(), [0, 0], [false; 2], [200; 2]);
    assert_settles_in_place(&mut harness);
    harness.move_pair(1);
    assert_settles_in_place(&mut harness);
    harness.move_pair(0);
    assert_settles_in_place(&mut harness);
}

#[test]
fn reads_are_in_place_again_after_the_roots_pair_was_taken_over() {
    let mut harness = TwoNodeHarness::reading(options(), owner(), [0, 1], [false; 2], [200; 2]);
    assert_settles_in_place(&mut harness);
    harness.kill(0);
    harness.owners = [1, 1];
    harness.register_anew(0);
    assert_settles_in_place(&mut harness);
}
