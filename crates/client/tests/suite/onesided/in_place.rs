//! Memory that the client has mapped and looks at in place, while its process may be stopped after each
//! reading of its clock: what it answers is validated by a time after the last load, always.

use cell_client::{AttemptError, ClientOptions, Item, LinkId, Operation, Output};
use cell_fabric::{CloseReason, ReadFailure};
use cell_protocol::{Bound, Scan};
use proptest::prelude::*;

use crate::onesided::answers::{filled, key, model, routed_owner, scan_all, value};
use crate::onesided::owner::Owner;
use crate::onesided::yard::{MS, OPERATION_MS_MAX, Yard, options};

/// A yard whose regions are mapped, and known as such to the client.
pub(crate) fn mapped(options: ClientOptions, mut owner: Owner) -> Yard {
    owner.map();
    let mut yard = filled(Yard::with(options, owner, true), 20);
    assert_eq!(yard.get(&key(1)), Some(value(1)), "by reads, which is when regions are mapped");
    let before = yard.counters();
    assert_eq!(yard.get(&key(1)), Some(value(1)));
    let after = yard.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0), "in place");
    yard
}

/// The owner writes the time into an entry all the time, so that a value tells when it was loaded.
fn write_time(owner: &mut Owner, now_ns: u64) {
    owner.put(b"time", &now_ns.to_le_bytes());
}

#[test]
fn gets_and_searches_are_answered_in_place() {
    let mut yard = mapped(options(), Owner::new(false));
    let before = yard.counters();
    for number in 0..20 {
        assert_eq!(yard.get(&key(number)), Some(value(number)));
        assert_eq!(yard.call(&Operation::Search { key: &key(number) }), Output::Exists(true));
    }
    assert_eq!(yard.get(b"key-00003a"), None);
    yard.owner.delete(&key(3));
    assert_eq!(yard.get(&key(3)), None);
    let after = yard.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (42, 0));
    assert!(yard.asked.is_empty());
}

#[test]
fn tree_of_a_router_and_two_pairs_is_searched_in_place() {
    let mut yard = mapped(options(), routed_owner());
    yard.owner.put(&key(150), b"in the second pair");
    yard.owner.put(&key(250), b"in its third slot");
    let before = yard.counters();
    assert_eq!(yard.get(&key(150)), Some(b"in the second pair".to_vec()));
    assert_eq!(yard.get(&key(250)), Some(b"in its third slot".to_vec()));
    assert_eq!(yard.counters().in_place - before.in_place, 2);
}

/// The root leads all keys to the first of three meganodes: the first search goes right, and knows the way
/// from then on. Where the tree grows to the right, what was known is still a way.
#[test]
fn place_of_a_meganode_is_known_once_it_was_found() {
    let mut yard = mapped(options(), routed_owner());
    let first = yard.owner.root_of(0, 0);
    yard.owner.set_root(cell_terms::Root::leaf(first));
    for number in [5, 150, 250, 251] {
        yard.owner.put(&key(number), &value(number));
    }
    let right_links = |yard: &mut Yard, number| {
        let before = yard.counters();
        assert_eq!(yard.get(&key(number)), Some(value(number)));
        let after = yard.counters();
        assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0));
        after.right_link - before.right_link
    };
    assert_eq!(right_links(&mut yard, 250), 2, "by two right links");
    assert_eq!(right_links(&mut yard, 250), 0, "its meganode is known");
    assert_eq!(right_links(&mut yard, 251), 0, "to all keys of the meganode");
    assert_eq!(right_links(&mut yard, 150), 1);
    assert_eq!((right_links(&mut yard, 150), right_links(&mut yard, 5)), (0, 0));
    assert!(yard.asked.is_empty());
    // Pairs have other positions in the list now.
    yard.core.closed(LinkId::BOOTSTRAP, yard.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    yard.pass(1_000 * MS);
    assert_eq!(yard.get(&key(250)), Some(value(250)));
    assert_eq!((yard.get(&key(250)), yard.get(&key(5))), (Some(value(250)), Some(value(5))));
}

/// Many keys, more than are searched side by side, of several meganodes and pairs; some are not there.
#[test]
fn multi_get_is_answered_in_place_key_by_key_as_gets_are() {
    let mut yard = mapped(options(), routed_owner());
    for number in (0..300).step_by(7) {
        yard.owner.put(&key(number), &value(number));
    }
    yard.owner.delete(&key(14));
    let wanted: Vec<Vec<u8>> = (0..300).rev().step_by(2).map(key).collect();
    let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
    let before = yard.counters();
    let Output::Values(found) = yard.call(&Operation::MultiGet { keys: &wanted }) else { panic!() };
    let after = yard.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0));
    let values: Vec<_> = found.iter().map(found_value).collect();
    let alone: Vec<_> = wanted.iter().map(|key| yard.get(key)).collect();
    assert_eq!(values, alone);
    assert!(
        values.iter().flatten().count() > 20 && values.iter().filter(|value| value.is_none()).count() > 20
    );
}

/// What is submitted before the answers are looked at begins together: a value that changes until then is
/// seen, and each has the answer that it has alone.
#[test]
fn operations_submitted_one_by_one_begin_together_and_are_answered_as_alone() {
    let mut yard = mapped(options(), routed_owner());
    for number in 0..300 {
        yard.owner.put(&key(number), &value(number));
    }
    yard.owner.delete(&key(40));
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
    let tickets: Vec<_> = operations.iter().map(|operation| yard.submit(operation)).collect();
    yard.owner.put(&key(7), b"changed before it was begun");
    let before = yard.counters();
    yard.run();
    let outcome = |yard: &mut Yard, ticket| yard.core.completion_of(ticket).unwrap().outcome;
    let together: Vec<_> = tickets.into_iter().map(|ticket| outcome(&mut yard, ticket)).collect();
    assert_eq!(yard.counters().reads, before.reads);
    assert_eq!(yard.asked, [cell_protocol::RequestKind::Get], "the key that no tree can hold");
    for (together, operation) in together.into_iter().zip(&operations) {
        let ticket = yard.submit(operation);
        yard.run();
        let alone = outcome(&mut yard, ticket);
        assert_eq!(format!("{together:?}"), format!("{alone:?}"), "{operation:?}");
    }
    assert_eq!(yard.get(&key(7)), Some(b"changed before it was begun".to_vec()));
}

/// Gets that are answered before the call returns: what was found, by a time after it; none if they are to be
/// submitted.
fn get_at_once(yard: &mut Yard, keys: &[&[u8]]) -> Option<(u64, Vec<Option<Item>>)> {
    let (began_ns, mut items) = (yard.clock(), Vec::new());
    let found = match keys {
        [key] => yard.core.look_for(began_ns, key).map(|item| items.push(item)),
        _ => yard.core.look_for_many(began_ns, keys, &mut items),
    };
    let by_ns = yard.clock();
    (found.is_ok() && yard.core.is_believed(by_ns)).then_some((by_ns, items))
}

#[test]
fn gets_are_answered_at_once_as_those_that_are_submitted() {
    let mut yard = mapped(options(), routed_owner());
    for number in (0..300).step_by(3) {
        yard.owner.put(&key(number), &value(number));
    }
    yard.owner.put(&key(7), &vec![b'v'; 100_000]);
    let keys: Vec<Vec<u8>> = (0..299).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let before = yard.counters();
    let (_, together) = get_at_once(&mut yard, &keys).unwrap();
    let after = yard.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0));
    for (key, item) in keys.iter().zip(together) {
        let (_, alone) = get_at_once(&mut yard, &[key]).unwrap();
        assert_eq!(alone, std::slice::from_ref(&item));
        assert_eq!(yard.call(&Operation::Get { key }), Output::Value(item));
    }
    for impossible in [&b""[..], &[b'k'; 1_000]] {
        assert_eq!(get_at_once(&mut yard, &[impossible]), None, "the server knows what to say");
        assert_eq!(get_at_once(&mut yard, &[&key(1), impossible]), None);
    }
}

/// As [`get_at_once`]: whether there is an entry.
fn search_at_once(yard: &mut Yard, key: &[u8]) -> Option<bool> {
    let began_ns = yard.clock();
    let exists = yard.core.look_for_existence(began_ns, key).ok()?;
    let by_ns = yard.clock();
    yard.core.is_believed(by_ns).then_some(exists)
}

#[test]
fn searches_are_answered_at_once_as_those_that_are_submitted() {
    let mut yard = mapped(options(), routed_owner());
    for number in (0..300).step_by(3) {
        yard.owner.put(&key(number), &value(number));
    }
    let before = yard.counters();
    let found: Vec<Option<bool>> = (0..299).map(|number| search_at_once(&mut yard, &key(number))).collect();
    let after = yard.counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (299, 0));
    assert!(found.contains(&Some(true)) && found.contains(&Some(false)), "{found:?}");
    for (number, exists) in (0..).zip(found) {
        let key = &key(number);
        assert_eq!(exists.map(Output::Exists), Some(yard.call(&Operation::Search { key })));
    }
    for impossible in [&b""[..], &[b'k'; 1_000]] {
        assert_eq!(search_at_once(&mut yard, impossible), None, "the server knows what to say");
    }
}

/// A leaf that is younger than what is durable does not tell whether its entry is.
pub(crate) fn entry_that_is_not_durable_is_not_found_at_once() {
    let mut yard = mapped(options(), Owner::new(false));
    assert_eq!(search_at_once(&mut yard, &key(1)), Some(true));
    yard.owner.put_unseen(&key(9_999), b"newer");
    assert_eq!(search_at_once(&mut yard, &key(9_999)), None);
    yard.owner.raise();
    assert_eq!(search_at_once(&mut yard, &key(9_999)), Some(true));
    yard.now_ns += 60_000 * MS;
    assert_eq!(search_at_once(&mut yard, &key(1)), None, "nobody has said for long that the lease holds");
}

#[test]
fn search_at_once_depends_on_what_is_durable() {
    entry_that_is_not_durable_is_not_found_at_once();
}

/// Clock, watermark and trust hold for what is answered at once.
pub(crate) fn what_is_not_believed_is_not_answered_at_once() {
    let mut yard = mapped(options(), Owner::new(false));
    let key = key(1);
    assert!(get_at_once(&mut yard, &[&key]).is_some());
    // Too long between the clock before the loads and the one after them.
    yard.stop_ns = OPERATION_MS_MAX * MS;
    let before = yard.counters();
    assert_eq!(get_at_once(&mut yard, &[&key]), None, "memory may have been used again meanwhile");
    assert_eq!(yard.counters(), before, "it is counted when it is submitted");
    // Written, and not durable yet.
    yard.owner.put_unseen(&key, b"newer");
    assert_eq!(get_at_once(&mut yard, &[&key]), None);
    yard.owner.raise();
    assert!(get_at_once(&mut yard, &[&key]).is_some());
    // Nobody has said for long that the lease holds.
    yard.now_ns += 60_000 * MS;
    assert_eq!(get_at_once(&mut yard, &[&key]), None);
}

#[test]
fn gets_at_once_keep_to_clock_watermark_and_trust() {
    what_is_not_believed_is_not_answered_at_once();
}

/// Page by page, over leaves, meganodes and pairs, in both directions.
#[test]
fn scans_are_answered_in_place_as_the_model_has_them() {
    let mut yard = filled(mapped(options(), routed_owner()), 300);
    for number in (0..300).step_by(11) {
        yard.owner.delete(&key(number));
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
            let before = yard.counters();
            let entries = scan_all(&mut yard, scan);
            let after = yard.counters();
            assert_eq!(entries, model(&yard, &scan), "{scan:?}");
            assert_eq!(after.reads - before.reads, 0, "{scan:?}");
            assert!(after.in_place > before.in_place, "{scan:?}");
            let keys = Scan { keys_only: true, ..scan };
            assert_eq!(scan_all(&mut yard, keys), model(&yard, &keys), "{keys:?}");
        }
    }
    assert!(yard.asked.is_empty(), "the server was asked {:?}", yard.asked);
}

/// Registrations that have ended are no memory to look at.
#[test]
fn scan_of_regions_whose_registration_ended_is_the_servers() {
    let mut yard = mapped(options(), Owner::new(false));
    yard.owner.unregister();
    let before = yard.counters();
    yard.submit(&Operation::Scan(Scan::default()));
    yard.step();
    yard.complete_one();
    yard.owner.pairs.iter_mut().for_each(|owned| owned.registered = true);
    yard.run();
    assert_eq!(yard.counters().in_place, before.in_place);
    assert_eq!(yard.asked, [cell_protocol::RequestKind::Scan]);
}

/// An operation waited for its turn, which came with the answer of another one, and was begun, searched in
/// place and told by one and the same time, which had been read before: a client that was stopped there past
/// the lease told what a successor had changed since.
fn answer_is_validated_by_a_time_after_its_loads(operation: &Operation<'_>) {
    let mut yard = mapped(options(), Owner::new(false));
    yard.meanwhile = Some(write_time);
    yard.submit(&Operation::Search { key: &key(1) });
    yard.submit(operation);
    yard.stop_ns = MS;
    let mut told = 0;
    for _ in 0..4 {
        yard.validate();
        told += check_told(&mut yard);
    }
    assert_eq!(told, 1, "the entry was told");
}

#[test]
pub(crate) fn batched_read_is_validated_by_a_time_after_its_loads() {
    answer_is_validated_by_a_time_after_its_loads(&Operation::Get { key: b"time" });
}

#[test]
pub(crate) fn held_operation_is_validated_by_a_time_after_its_loads() {
    answer_is_validated_by_a_time_after_its_loads(&Operation::MultiGet { keys: &[b"time"] });
}

/// A posted read comes to nothing, and its operation is the server's.
fn fail_one(yard: &mut Yard) {
    if !yard.posted.is_empty() {
        let (_, tag) = yard.posted.remove(0);
        yard.core.read_done(LinkId::BOOTSTRAP, tag, Err(ReadFailure::RangeInvalid));
    }
}

fn found_value(found: cell_protocol::Found<'_>) -> Option<Vec<u8>> {
    match found {
        cell_protocol::Found::Value { value, .. } => Some(value.to_vec()),
        cell_protocol::Found::Absent => None,
        other => panic!("{other:?}"),
    }
}

/// Checks what has been told of the entry that has the time; how much that was.
fn check_told(yard: &mut Yard) -> usize {
    let mut count = 0;
    while let Some((by_ns, completion)) = yard.take() {
        let values = match completion.outcome {
            Ok(Output::Value(Some(item))) => vec![item.value],
            Ok(Output::Values(found)) => found.iter().filter_map(found_value).collect(),
            _ => continue,
        };
        for value in values {
            let loaded_ns = u64::from_le_bytes(value.try_into().unwrap());
            assert!(loaded_ns <= by_ns, "loaded at {loaded_ns}, and told by the time of {by_ns}");
            count += 1;
        }
    }
    count
}

/// Checks what is told at once of the entry that has the time.
fn check_at_once(yard: &mut Yard) {
    let Some((by_ns, items)) = get_at_once(yard, &[b"time"]) else { return };
    if let [Some(item)] = &items[..] {
        let loaded_ns = u64::from_le_bytes(item.value.as_slice().try_into().unwrap());
        assert!(loaded_ns <= by_ns, "loaded at {loaded_ns}, and told at once by the time of {by_ns}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes together, and wherever the process is stopped.
    #[test]
    fn answers_are_told_by_a_time_after_their_loads(
        steps in proptest::collection::vec((0u8..8, any::<bool>()), 1..120), in_flight_max in 1usize..4
    ) {
        let mut yard = mapped(ClientOptions { in_flight_max, ..options() }, Owner::new(false));
        yard.meanwhile = Some(write_time);
        let page = Scan { limit_entries: 2, keys_only: true, ..Scan::default() };
        for (step, stopped) in steps {
            yard.stop_ns = if stopped { MS } else { 0 };
            match step {
                0 => drop(yard.submit(&Operation::Get { key: b"time" })),
                1 => drop(yard.submit(&Operation::MultiGet { keys: &[b"time"] })),
                2 => drop(yard.submit(&Operation::Scan(page))),
                3 => drop(yard.complete_one()),
                4 => fail_one(&mut yard),
                5 => drop(yard.step()),
                6 => check_at_once(&mut yard),
                _ => yard.validate(),
            }
            check_told(&mut yard);
        }
        yard.run();
        check_told(&mut yard);
    }
}
