//! Memory that the client has mapped and looks at in place, while its process may be stopped after each
//! reading of its clock: what it answers is validated by a time after the last load, always.

use cell_client::{ClientOptions, LinkId, Operation, Output};
use cell_fabric::ReadFailure;
use cell_protocol::Scan;
use proptest::prelude::*;

use crate::answers::{filled, key, routed_owner, value};
use crate::owner::Owner;
use crate::yard::{MS, Yard, options};

/// A yard whose regions are mapped, and known as such to the client.
fn mapped(options: ClientOptions, mut owner: Owner) -> Yard {
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
    let values = found.iter().map(|found| match found {
        cell_protocol::Found::Value { value, .. } => Some(value.to_vec()),
        cell_protocol::Found::Absent => None,
        other => panic!("{other:?}"),
    });
    let values: Vec<_> = values.collect();
    let alone: Vec<_> = wanted.iter().map(|key| yard.get(key)).collect();
    assert_eq!(values, alone);
    assert!(
        values.iter().flatten().count() > 20 && values.iter().filter(|value| value.is_none()).count() > 20
    );
}

/// An operation waited for its turn, which came with the end of another one, and was begun, searched in place
/// and told by one and the same time, which had been read before: a client that was stopped there past the
/// lease told what a successor had changed since.
pub(crate) fn answer_is_validated_by_a_time_after_its_loads() {
    let mut yard = mapped(ClientOptions { in_flight_max: 1, ..options() }, Owner::new(false));
    yard.meanwhile = Some(write_time);
    yard.submit(&Operation::Scan(Scan::default()));
    yard.submit(&Operation::Get { key: b"time" });
    yard.step();
    fail_one(&mut yard);
    yard.stop_ns = MS;
    let mut told = 0;
    for _ in 0..4 {
        yard.validate();
        told += check_told(&mut yard);
    }
    yard.run();
    told += check_told(&mut yard);
    assert_eq!(told, 1, "the scan is the server's, the get was told");
}

#[test]
fn held_operation_is_validated_by_a_time_after_its_loads() {
    answer_is_validated_by_a_time_after_its_loads();
}

/// A posted read comes to nothing, and its operation is the server's.
fn fail_one(yard: &mut Yard) {
    if !yard.posted.is_empty() {
        let (_, tag) = yard.posted.remove(0);
        yard.core.read_done(LinkId::BOOTSTRAP, tag, Err(ReadFailure::RangeInvalid));
    }
}

/// Checks what has been told of the entry that has the time; how much that was.
fn check_told(yard: &mut Yard) -> usize {
    let mut count = 0;
    while let Some((by_ns, completion)) = yard.take() {
        if let Ok(Output::Value(Some(item))) = completion.outcome {
            let loaded_ns = u64::from_le_bytes(item.value.try_into().unwrap());
            assert!(loaded_ns <= by_ns, "loaded at {loaded_ns}, and told by the time of {by_ns}");
            count += 1;
        }
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes together, and wherever the process is stopped.
    #[test]
    fn answers_are_told_by_a_time_after_their_loads(
        steps in proptest::collection::vec((0u8..7, any::<bool>()), 1..120), in_flight_max in 1usize..4
    ) {
        let mut yard = mapped(ClientOptions { in_flight_max, ..options() }, Owner::new(false));
        yard.meanwhile = Some(write_time);
        for (step, stopped) in steps {
            yard.stop_ns = if stopped { MS } else { 0 };
            match step {
                0 | 1 => drop(yard.submit(&Operation::Get { key: b"time" })),
                2 => drop(yard.submit(&Operation::Scan(Scan { limit_entries: 2, ..Scan::default() }))),
                3 => drop(yard.complete_one()),
                4 => fail_one(&mut yard),
                5 => drop(yard.step()),
                _ => yard.validate(),
            }
            check_told(&mut yard);
        }
        yard.run();
        check_told(&mut yard);
    }
}
