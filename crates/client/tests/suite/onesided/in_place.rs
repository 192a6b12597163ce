//! Memory that the client has mapped and looks at in place, while its process may be stopped after each
//! reading of its clock: what it answers is validated by a time after the last load, always.

use cell_client::{AttemptError, ClientOptions, Item, LinkId, Operation, Output};
use cell_fabric::{CloseReason, ReadFailure};
use cell_protocol::{Bound, Found, Scan};
use proptest::prelude::*;

use crate::onesided::answers::{filled, key, model, routed_owner, scan_all, value};
use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{MS, OPERATION_MS_MAX, ReadHarness, options};

/// A harness whose regions are mapped, and known as such to the client.
pub(crate) fn mapped(options: ClientOptions, owner: Owner) -> ReadHarness {
    let mut harness = filled(ReadHarness::with(options, owner, true), 20);
    harness.owner.map();
    assert_eq!(harness.get(&key(1)), Some(value(1)), "by reads, which is when regions are mapped");
    assert_eq!(harness.get(&key(150)), None, "the second pair's, if that has any keys");
    let before = harness.counters();
    assert_eq!(harness.get(&key(1)), Some(value(1)));
    let after = harness.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0), "in place");
    harness
}

/// The owner writes the time into an entry all the time, so that a value shows when it was loaded.
fn write_time(owner: &mut Owner, now_ns: u64) {
    owner.put(b"time", &now_ns.to_le_bytes());
}

#[test]
fn gets_and_searches_are_answered_in_place() {
    let mut harness = mapped(options(), Owner::new(false));
    let before = harness.counters();
    for number in 0..20 {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
        assert_eq!(harness.call(&Operation::Search { key: &key(number) }), Output::Exists(true));
    }
    assert_eq!(harness.get(b"key-00003a"), None);
    harness.owner.delete(&key(3));
    assert_eq!(harness.get(&key(3)), None);
    let after = harness.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (42, 0));
    assert!(harness.asked.is_empty());
}

#[test]
fn tree_of_a_router_and_two_pairs_is_searched_in_place() {
    let mut harness = mapped(options(), routed_owner());
    harness.owner.put(&key(150), b"in the second pair");
    harness.owner.put(&key(250), b"in its third slot");
    let before = harness.counters();
    assert_eq!(harness.get(&key(150)), Some(b"in the second pair".to_vec()));
    assert_eq!(harness.get(&key(250)), Some(b"in its third slot".to_vec()));
    assert_eq!(harness.counters().in_place - before.in_place, 2);
}

/// The root leads all keys to the first of three meganodes: the first search goes right, and knows the way
/// from then on. Where the tree grows to the right, what was known is still a way.
#[test]
fn place_of_a_meganode_is_known_once_it_was_found() {
    let mut harness = mapped(options(), routed_owner());
    let first = harness.owner.root_of(0, 0);
    harness.owner.set_root(cell_terms::Root::leaf(first));
    for number in [5, 150, 250, 251] {
        harness.owner.put(&key(number), &value(number));
    }
    let right_links = |harness: &mut ReadHarness, number| {
        let before = harness.counters();
        assert_eq!(harness.get(&key(number)), Some(value(number)));
        let after = harness.counters();
        assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0));
        after.right_link - before.right_link
    };
    assert_eq!(right_links(&mut harness, 250), 2, "by two right links");
    assert_eq!(right_links(&mut harness, 250), 0, "its meganode is known");
    assert_eq!(right_links(&mut harness, 251), 0, "to all keys of the meganode");
    assert_eq!(right_links(&mut harness, 150), 1);
    assert_eq!((right_links(&mut harness, 150), right_links(&mut harness, 5)), (0, 0));
    assert!(harness.asked.is_empty());
    // Pairs have other positions in the list now.
    harness.core.closed(LinkId::BOOTSTRAP, harness.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    harness.pass(1_000 * MS);
    assert_eq!(harness.get(&key(250)), Some(value(250)));
    assert_eq!((harness.get(&key(250)), harness.get(&key(5))), (Some(value(250)), Some(value(5))));
}

/// Many keys, more than are searched side by side, of several meganodes and pairs; some are not there.
#[test]
fn multi_get_is_answered_in_place_key_by_key_as_gets_are() {
    let mut harness = mapped(options(), routed_owner());
    for number in (0..300).step_by(7) {
        harness.owner.put(&key(number), &value(number));
    }
    harness.owner.delete(&key(14));
    let wanted: Vec<Vec<u8>> = (0..300).rev().step_by(2).map(key).collect();
    let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
    let before = harness.counters();
    let Output::Values(found) = harness.call(&Operation::MultiGet { keys: &wanted }) else { panic!() };
    let after = harness.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0));
    let values: Vec<_> = found.iter().map(found_value).collect();
    let alone: Vec<_> = wanted.iter().map(|key| harness.get(key)).collect();
    assert_eq!(values, alone);
    assert!(
        values.iter().flatten().count() > 20 && values.iter().filter(|value| value.is_none()).count() > 20
    );
}

/// What is submitted before the answers are looked at begins together: a value that changes until then is
/// seen, and each has the answer that it has alone.
#[test]
fn operations_submitted_one_by_one_begin_together_and_are_answered_as_alone() {
    let mut harness = mapped(options(), routed_owner());
    for number in 0..300 {
        harness.owner.put(&key(number), &value(number));
    }
    harness.owner.delete(&key(40));
    let long = vec![b'k'; 1_000];
    let (keys, few) = ((0..45).map(|step| key(step * 7)).collect::<Vec<_>>(), [key(5), key(299)]);
    let few: Vec<&[u8]> = few.iter().map(Vec::as_slice).collect();
    let scan = Scan { limit_entries: 3, ..Scan::default() };
    let mut operations: Vec<Operation<'_>> = Vec::new();
    for (step, key) in keys.iter().enumerate() {
        operations.push(match step % 9 {
            4 => Operation::Search { key },
            7 if step < 20 => Operation::MultiGet { keys: &few },
            8 if step < 20 => Operation::Scan(scan),
            _ => Operation::Get { key },
        });
    }
    operations.push(Operation::Get { key: &long });
    operations.push(Operation::Get { key: few[0] });
    let tickets: Vec<_> = operations.iter().map(|operation| harness.submit(operation)).collect();
    harness.owner.put(&key(7), b"changed before it was started");
    let before = harness.counters();
    harness.run();
    let outcome = |harness: &mut ReadHarness, ticket| harness.core.completion_of(ticket).unwrap().outcome;
    let together: Vec<_> = tickets.into_iter().map(|ticket| outcome(&mut harness, ticket)).collect();
    assert_eq!(harness.counters().reads, before.reads);
    assert_eq!(harness.asked, [cell_protocol::RequestKind::Get], "the key that no tree can hold");
    for (together, operation) in together.into_iter().zip(&operations) {
        let ticket = harness.submit(operation);
        harness.run();
        let alone = outcome(&mut harness, ticket);
        assert_eq!(format!("{together:?}"), format!("{alone:?}"), "{operation:?}");
    }
    assert_eq!(harness.get(&key(7)), Some(b"changed before it was started".to_vec()));
}

/// Gets that are answered before the call returns: what was found, by a time after it; none if they are to be
/// submitted.
pub(crate) fn get_at_once(harness: &mut ReadHarness, keys: &[&[u8]]) -> Option<(u64, Vec<Option<Item>>)> {
    let (began_ns, mut items) = (harness.clock(), Vec::new());
    let found = match keys {
        [key] => harness.core.look_for(began_ns, key).map(|item| items.push(item)),
        _ => harness.core.look_for_many(began_ns, keys, &mut items),
    };
    let by_ns = harness.clock();
    (found.is_ok() && harness.core.is_valid_at(by_ns)).then_some((by_ns, items))
}

#[test]
fn gets_are_answered_at_once_as_those_that_are_submitted() {
    let mut harness = mapped(options(), routed_owner());
    for number in (0..300).step_by(3) {
        harness.owner.put(&key(number), &value(number));
    }
    harness.owner.put(&key(7), &vec![b'v'; 100_000]);
    let keys: Vec<Vec<u8>> = (0..299).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let before = harness.counters();
    let (_, together) = get_at_once(&mut harness, &keys).unwrap();
    let after = harness.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0));
    for (key, item) in keys.iter().zip(together) {
        let (_, alone) = get_at_once(&mut harness, &[key]).unwrap();
        assert_eq!(alone, std::slice::from_ref(&item));
        assert_eq!(harness.call(&Operation::Get { key }), Output::Value(item));
    }
    for impossible in [&b""[..], &[b'k'; 1_000]] {
        assert_eq!(get_at_once(&mut harness, &[impossible]), None, "the server knows what to say");
        assert_eq!(get_at_once(&mut harness, &[&key(1), impossible]), None);
    }
}

/// As [`get_at_once`]: whether there is an entry.
pub(crate) fn search_at_once(harness: &mut ReadHarness, key: &[u8]) -> Option<bool> {
    let began_ns = harness.clock();
    let exists = harness.core.look_for_existence(began_ns, key).ok()?;
    let by_ns = harness.clock();
    harness.core.is_valid_at(by_ns).then_some(exists)
}

#[test]
fn searches_are_answered_at_once_as_those_that_are_submitted() {
    let mut harness = mapped(options(), routed_owner());
    for number in (0..300).step_by(3) {
        harness.owner.put(&key(number), &value(number));
    }
    let before = harness.counters();
    let found: Vec<Option<bool>> =
        (0..299).map(|number| search_at_once(&mut harness, &key(number))).collect();
    let after = harness.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (299, 0));
    assert!(found.contains(&Some(true)) && found.contains(&Some(false)), "{found:?}");
    for (number, exists) in (0..).zip(found) {
        let key = &key(number);
        assert_eq!(exists.map(Output::Exists), Some(harness.call(&Operation::Search { key })));
    }
    for impossible in [&b""[..], &[b'k'; 1_000]] {
        assert_eq!(search_at_once(&mut harness, impossible), None, "the server knows what to say");
    }
}

/// A leaf that is younger than what is durable does not show whether its entry is.
pub(crate) fn entry_that_is_not_durable_is_not_found_at_once() {
    let mut harness = mapped(options(), Owner::new(false));
    assert_eq!(search_at_once(&mut harness, &key(1)), Some(true));
    harness.owner.put_unseen(&key(9_999), b"newer");
    assert_eq!(search_at_once(&mut harness, &key(9_999)), None);
    harness.owner.raise();
    assert_eq!(search_at_once(&mut harness, &key(9_999)), Some(true));
    harness.now_ns += 60_000 * MS;
    assert_eq!(search_at_once(&mut harness, &key(1)), None, "nobody has said for long that the lease holds");
}

#[test]
fn search_at_once_depends_on_what_is_durable() {
    entry_that_is_not_durable_is_not_found_at_once();
}

/// Clock, watermark and trust hold for what is answered at once.
pub(crate) fn what_is_not_believed_is_not_answered_at_once() {
    let mut harness = mapped(options(), Owner::new(false));
    let key = key(1);
    assert!(get_at_once(&mut harness, &[&key]).is_some());
    // Too long between the clock before the loads and the one after them.
    harness.stop_ns = OPERATION_MS_MAX * MS;
    let before = harness.counters();
    assert_eq!(get_at_once(&mut harness, &[&key]), None, "memory may have been used again meanwhile");
    assert_eq!(harness.counters(), before, "it is counted when it is submitted");
    // Written, and not durable yet.
    harness.owner.put_unseen(&key, b"newer");
    assert_eq!(get_at_once(&mut harness, &[&key]), None);
    harness.owner.raise();
    assert!(get_at_once(&mut harness, &[&key]).is_some());
    // Nobody has said for long that the lease holds.
    harness.now_ns += 60_000 * MS;
    assert_eq!(get_at_once(&mut harness, &[&key]), None);
}

#[test]
fn gets_at_once_keep_to_clock_watermark_and_trust() {
    what_is_not_believed_is_not_answered_at_once();
}

/// Page by page, over leaves, meganodes and pairs, in both directions.
#[test]
fn scans_are_answered_in_place_as_the_model_has_them() {
    let mut harness = filled(mapped(options(), routed_owner()), 300);
    for number in (0..300).step_by(11) {
        harness.owner.delete(&key(number));
    }
    let (from, to) = (key(37), key(270));
    let ranges = [
        Scan::default(),
        Scan { start: Bound::Included(&from), end: Bound::Excluded(&to), ..Scan::default() },
        Scan { start: Bound::Excluded(&from), limit_entries: 17, ..Scan::default() },
        Scan { start: Bound::Included(&to), end: Bound::Included(&from), ..Scan::default() },
    ];
    for scan in ranges {
        for reverse in [false, true] {
            let scan = Scan { reverse, ..scan };
            let before = harness.counters();
            let entries = scan_all(&mut harness, scan);
            let after = harness.counters();
            assert_eq!(entries, model(&harness, &scan), "{scan:?}");
            assert_eq!(after.reads - before.reads, 0, "{scan:?}");
            assert!(after.in_place > before.in_place, "{scan:?}");
            let keys = Scan { keys_only: true, ..scan };
            assert_eq!(scan_all(&mut harness, keys), model(&harness, &keys), "{keys:?}");
            assert_eq!(harness.counters().reads, after.reads, "{keys:?}");
        }
    }
    assert!(harness.asked.is_empty(), "the server was asked {:?}", harness.asked);
}

/// A page whose leaves are in a pair that is mapped and in one that is not: the values of the first are taken
/// before the first read of the second is posted, and each entry has its own.
#[test]
fn scan_over_mapped_memory_and_other_has_every_entry_once() {
    let mut harness = filled(ReadHarness::with(options(), routed_owner(), true), 300);
    harness.owner.map_pair(0);
    assert_eq!(harness.get(&key(1)), Some(value(1)), "by reads, which is when regions are mapped");
    let (from, to) = (key(20), key(180));
    for reverse in [false, true] {
        let scan =
            Scan { start: Bound::Included(&from), end: Bound::Excluded(&to), reverse, ..Scan::default() };
        let before = harness.counters();
        assert_eq!(scan_all(&mut harness, scan), model(&harness, &scan), "{scan:?}");
        let after = harness.counters();
        let reads = after.reads - before.reads;
        assert!((80..150).contains(&reads), "{reads}: of the second pair's nodes and values alone");
        assert_eq!(after.in_place, before.in_place);
    }
    assert!(harness.asked.is_empty(), "the server was asked {:?}", harness.asked);
}

/// An answer to many keys has no room for it, in place no more than by reads.
#[test]
fn multi_get_in_place_leaves_long_values_to_gets_of_their_own() {
    let mut harness = mapped(options(), Owner::new(false));
    for (len, is_long) in [(60_000, false), (60_001, true)] {
        harness.owner.put(b"long", &vec![7; len]);
        let before = harness.counters().in_place;
        let Output::Values(values) = harness.call(&Operation::MultiGet { keys: &[&key(1), b"long"] }) else {
            panic!()
        };
        let found: Vec<Found<'_>> = values.iter().collect();
        assert_eq!(matches!(found[1], Found::Large { .. }), is_long, "{len} bytes");
        assert_eq!(harness.counters().in_place - before, u64::from(!is_long), "{len} bytes");
    }
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
}

/// Their leaf is younger than what is durable: their extents say that they are not.
#[test]
fn cold_neighbours_of_a_hot_entry_do_not_wait_in_mapped_memory() {
    let mut harness = mapped(options(), Owner::new(false));
    harness.owner.put_unseen(&key(3), b"newer");
    assert_eq!(harness.call(&Operation::Search { key: &key(4) }), Output::Exists(true), "the same leaf");
    assert_eq!(harness.get(&key(4)), Some(value(4)));
    assert_eq!(harness.get(b"key-00004a"), None, "nothing was removed");
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
}

/// Registrations that have ended are no memory to look at.
#[test]
fn scan_of_regions_whose_registration_ended_is_the_servers() {
    let mut harness = mapped(options(), Owner::new(false));
    harness.owner.unregister();
    let before = harness.counters();
    harness.submit(&Operation::Scan(Scan::default()));
    harness.step();
    harness.complete_one();
    harness.owner.pairs.iter_mut().for_each(|owned| owned.registered = true);
    harness.run();
    assert_eq!(harness.counters().in_place, before.in_place);
    assert_eq!(harness.asked, [cell_protocol::RequestKind::Scan]);
}

/// An operation waited for its turn, which came with the answer of another one, and was started, searched in
/// place and returned by one and the same time, which had been read before: a client that was stopped there
/// past the lease returned what a successor had changed since.
fn answer_is_validated_by_a_time_after_its_loads(operation: &Operation<'_>) {
    let mut harness = mapped(options(), Owner::new(false));
    harness.meanwhile = Some(write_time);
    harness.submit(&Operation::Search { key: &key(1) });
    harness.submit(operation);
    harness.stop_ns = MS;
    let mut returned = 0;
    for _ in 0..4 {
        harness.validate();
        returned += check_returned(&mut harness);
    }
    assert_eq!(returned, 1, "the entry was returned");
}

#[test]
pub(crate) fn batched_read_is_validated_by_a_time_after_its_loads() {
    answer_is_validated_by_a_time_after_its_loads(&Operation::Get { key: b"time" });
}

#[test]
pub(crate) fn held_operation_is_validated_by_a_time_after_its_loads() {
    answer_is_validated_by_a_time_after_its_loads(&Operation::MultiGet { keys: &[b"time"] });
}

/// A posted read fails, and its operation is the server's.
fn fail_one(harness: &mut ReadHarness) {
    if !harness.posted.is_empty() {
        let (_, tag) = harness.posted.remove(0);
        harness.core.read_done(LinkId::BOOTSTRAP, tag, Err(ReadFailure::RangeInvalid));
    }
}

fn found_value(found: cell_protocol::Found<'_>) -> Option<Vec<u8>> {
    match found {
        cell_protocol::Found::Value { value, .. } => Some(value.to_vec()),
        cell_protocol::Found::Absent => None,
        other => panic!("{other:?}"),
    }
}

/// Checks what has been returned of the entry that has the time; how much that was.
fn check_returned(harness: &mut ReadHarness) -> usize {
    let mut count = 0;
    while let Some((by_ns, completion)) = harness.take() {
        let values = match completion.outcome {
            Ok(Output::Value(Some(item))) => vec![item.value],
            Ok(Output::Values(found)) => found.iter().filter_map(found_value).collect(),
            _ => continue,
        };
        for value in values {
            let loaded_ns = u64::from_le_bytes(value.try_into().unwrap());
            assert!(loaded_ns <= by_ns, "loaded at {loaded_ns}, and returned by the time of {by_ns}");
            count += 1;
        }
    }
    count
}

/// Checks what is returned at once of the entry that has the time.
fn check_at_once(harness: &mut ReadHarness) {
    let Some((by_ns, items)) = get_at_once(harness, &[b"time"]) else { return };
    if let [Some(item)] = &items[..] {
        let loaded_ns = u64::from_le_bytes(item.value.as_slice().try_into().unwrap());
        assert!(loaded_ns <= by_ns, "loaded at {loaded_ns}, and returned at once by the time of {by_ns}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes together, and wherever the process is stopped.
    #[test]
    fn answers_are_returned_by_a_time_after_their_loads(
        steps in proptest::collection::vec((0u8..8, any::<bool>()), 1..120), in_flight_max in 1usize..4
    ) {
        let mut harness = mapped(ClientOptions { in_flight_max, ..options() }, Owner::new(false));
        harness.meanwhile = Some(write_time);
        let page = Scan { limit_entries: 2, keys_only: true, ..Scan::default() };
        for (step, stopped) in steps {
            harness.stop_ns = if stopped { MS } else { 0 };
            match step {
                0 => drop(harness.submit(&Operation::Get { key: b"time" })),
                1 => drop(harness.submit(&Operation::MultiGet { keys: &[b"time"] })),
                2 => drop(harness.submit(&Operation::Scan(page))),
                3 => drop(harness.complete_one()),
                4 => fail_one(&mut harness),
                5 => drop(harness.step()),
                6 => check_at_once(&mut harness),
                _ => harness.validate(),
            }
            check_returned(&mut harness);
        }
        harness.run();
        check_returned(&mut harness);
    }
}
