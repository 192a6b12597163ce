//! What is answered without the server: every kind of read, as the model has it.

use std::ops::Bound as Limit;

use cell_client::{Operation, Output};
use cell_protocol::{Bound, EntryValue, Found, Scan};
use cell_terms::Version;
use proptest::prelude::*;

use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{ReadHarness, options};

pub(crate) fn key(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

pub(crate) fn value(number: u32) -> Vec<u8> {
    format!("the value of {number}").into_bytes()
}

pub(crate) fn filled(mut harness: ReadHarness, count: u32) -> ReadHarness {
    for number in 0..count {
        harness.owner.put(&key(number), &value(number));
    }
    harness
}

/// A harness whose tree is a router over three meganodes, the last two of the second pair.
pub(crate) fn routed() -> ReadHarness {
    filled(ReadHarness::with(options(), routed_owner(), true), 300)
}

/// Its memory, empty.
pub(crate) fn routed_owner() -> Owner {
    // In the second pair's first slot and in its third.
    let layout = r#"{"ranges":[
        {"low":"","pair":1,"slot":0},
        {"low":"key-00100","pair":2,"slot":0},
        {"low":"key-00200","pair":2,"slot":2}]}"#;
    Owner::laid_out(&serde_json::from_str(layout).unwrap())
}

/// Pages of a range, until it is through.
pub(crate) fn scan_all(harness: &mut ReadHarness, mut scan: Scan<'_>) -> Vec<(Vec<u8>, Version, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut resumed: Vec<u8>;
    loop {
        let Output::Page(page) = harness.call(&Operation::Scan(scan)) else { panic!("no page") };
        for entry in page.iter() {
            let value = match entry.value {
                EntryValue::Inline(value) => value.to_vec(),
                EntryValue::Omitted { value_len } => vec![0; value_len as usize],
                EntryValue::Large { .. } => panic!("small values"),
            };
            entries.push((entry.key.to_vec(), entry.version, value));
        }
        if page.is_done() {
            return entries;
        }
        resumed = page.resume().key().unwrap().to_vec();
        let bound = match page.resume() {
            Bound::Included(_) => Bound::Included(resumed.as_slice()),
            _ => panic!("pages resume at a key"),
        };
        scan = if scan.reverse {
            Scan { end: leak(bound), ..scan }
        } else {
            Scan { start: leak(bound), ..scan }
        };
    }
}

fn leak(bound: Bound<'_>) -> Bound<'static> {
    Bound::Included(Box::leak(bound.key().unwrap().to_vec().into_boxed_slice()))
}

pub(crate) fn model(harness: &ReadHarness, scan: &Scan<'_>) -> Vec<(Vec<u8>, Version, Vec<u8>)> {
    let limit = |bound: Bound<'_>| match bound {
        Bound::Unbounded => Limit::Unbounded,
        Bound::Included(key) => Limit::Included(key.to_vec()),
        Bound::Excluded(key) => Limit::Excluded(key.to_vec()),
    };
    let empty = scan.start.key().zip(scan.end.key()).is_some_and(|(start, end)| start >= end);
    let range = (!empty).then(|| harness.owner.entries.range((limit(scan.start), limit(scan.end))));
    let mut entries: Vec<_> = range
        .into_iter()
        .flatten()
        .map(|(key, (version, value))| {
            let value = if scan.keys_only { vec![0; value.len()] } else { value.clone() };
            (key.clone(), *version, value)
        })
        .collect();
    if scan.reverse {
        entries.reverse();
    }
    entries
}

/// A page of a scan, amid the entries.
pub(crate) fn page() -> Operation<'static> {
    Operation::Scan(Scan {
        start: Bound::Included(b"key-00050"),
        end: Bound::Unbounded,
        reverse: false,
        keys_only: false,
        limit_entries: 20,
        limit_bytes: 0,
    })
}

/// What a scan asks for ahead is given up when the scan is dropped, wherever its reads are.
#[test]
fn cancelled_read_has_no_completion_and_its_late_reads_harm_nothing() {
    for completed in 0..6 {
        let mut harness = routed();
        harness.get(&key(1));
        let ticket = harness.submit(&page());
        harness.step();
        for _ in 0..completed {
            harness.complete_one();
            harness.step();
        }
        let now_ns = harness.clock();
        harness.core.give_up(now_ns, ticket);
        assert_eq!(harness.core.outstanding(), 0);
        harness.run();
        assert!(harness.core.completion().is_none(), "cancelled after {completed} reads");
        assert_eq!(harness.get(&key(250)), Some(value(250)));
    }
}

#[test]
fn reads_of_every_kind_are_answered_without_the_server() {
    let mut harness = filled(ReadHarness::new(), 500);
    for number in [0, 1, 77, 250, 499] {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
        assert_eq!(harness.call(&Operation::Search { key: &key(number) }), Output::Exists(true));
    }
    assert_eq!(harness.get(b"key-000005"), None);
    assert_eq!(harness.get(b"zzz"), None);
    assert_eq!(harness.call(&Operation::Search { key: b"a" }), Output::Exists(false));
    harness.owner.delete(&key(77));
    assert_eq!(harness.get(&key(77)), None);
    let keys: Vec<Vec<u8>> = (0..200).map(|number| key(number * 3)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let Output::Values(found) = harness.call(&Operation::MultiGet { keys: &keys }) else { panic!() };
    for (key, found) in keys.iter().zip(found.iter()) {
        match (harness.owner.entries.get(*key), found) {
            (Some((version, value)), Found::Value { version: found, value: bytes }) => {
                assert_eq!((*version, value.as_slice()), (found, bytes));
            }
            (None, Found::Absent) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
    let counters = harness.counters();
    assert_eq!((counters.fell_back, counters.started, counters.done), (0, 15, 15));
    assert!(counters.cached > 0, "inner nodes were kept");
}

#[test]
fn search_reads_no_extent_when_the_leaf_is_covered() {
    let mut harness = filled(ReadHarness::new(), 3);
    harness.get(&key(1)).expect("and now the watermark is known");
    let before = harness.counters().reads;
    assert_eq!(harness.call(&Operation::Search { key: &key(1) }), Output::Exists(true));
    assert_eq!(harness.counters().reads - before, 1, "the leaf alone");
}

#[test]
fn get_without_a_cache_reads_every_level() {
    let options = cell_client::ClientOptions { cache_inner: false, ..options() };
    let mut harness = filled(ReadHarness::with(options, Owner::new(false), true), 500);
    harness.get(&key(1));
    let before = harness.counters();
    assert_eq!(harness.get(&key(1)), Some(value(1)));
    let after = harness.counters();
    assert_eq!(after.cached, 0);
    assert_eq!(after.reads - before.reads, 3, "root, leaf, extent");
}

#[test]
fn get_of_a_long_value_comes_in_pieces() {
    let mut harness = ReadHarness::new();
    let long: Vec<u8> = (0..=255u8).cycle().take(700_001).collect();
    harness.owner.put(b"long", &long);
    harness.owner.put(b"longer", &long[..40_000]);
    assert_eq!(harness.get(b"long").as_ref(), Some(&long));
    let Output::Values(found) = harness.call(&Operation::MultiGet { keys: &[b"long", b"longer"] }) else {
        panic!()
    };
    let found: Vec<Found<'_>> = found.iter().collect();
    assert!(matches!(found[0], Found::Large { value_len: 700_001, .. }), "its version, without its value");
    assert!(matches!(found[1], Found::Value { value, .. } if value.len() == 40_000));
    assert!(harness.asked.is_empty());
}

#[test]
fn scans_both_ways_give_what_the_model_has() {
    let mut harness = filled(ReadHarness::new(), 400);
    let (low, high) = (key(50), key(333));
    for reverse in [false, true] {
        for keys_only in [false, true] {
            for limit_entries in [0, 7, 1] {
                for (start, end) in [
                    (Bound::Unbounded, Bound::Unbounded),
                    (Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice())),
                    (Bound::Excluded(low.as_slice()), Bound::Included(high.as_slice())),
                    (Bound::Included(high.as_slice()), Bound::Excluded(low.as_slice())),
                ] {
                    let scan = Scan { start, end, reverse, keys_only, limit_entries, limit_bytes: 0 };
                    let found = scan_all(&mut harness, scan);
                    assert_eq!(found, model(&harness, &scan), "{scan:?}");
                }
            }
        }
    }
    assert!(harness.asked.is_empty());
}

#[test]
fn tree_of_a_router_and_two_pairs_is_read_like_one() {
    let mut harness = routed();
    for number in 0..300 {
        assert_eq!(harness.get(&key(number)), Some(value(number)), "{number}");
    }
    assert_eq!(harness.get(b"a"), None);
    for reverse in [false, true] {
        let scan = Scan { reverse, ..Scan::default() };
        assert_eq!(scan_all(&mut harness, scan), model(&harness, &scan));
        let bound = key(150);
        let scan = Scan { end: Bound::Excluded(&bound), reverse, limit_entries: 33, ..Scan::default() };
        assert_eq!(scan_all(&mut harness, scan), model(&harness, &scan));
    }
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
}

#[test]
fn nodes_with_a_crc_are_read_where_reads_are_in_no_order() {
    let mut harness = filled(ReadHarness::with(options(), Owner::new(true), false), 100);
    assert_eq!(harness.get(&key(42)), Some(value(42)));
    assert!(harness.asked.is_empty());
    let mut harness = filled(ReadHarness::with(options(), Owner::new(false), false), 100);
    harness.submit(&Operation::Get { key: &key(42) });
    harness.run();
    assert_eq!(harness.asked.len(), 1, "without a CRC a node cannot be distinguished from a torn one");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn reads_between_any_writes_are_the_models(
        steps in proptest::collection::vec((0u8..8, 0u32..200), 1..200), cache_inner in any::<bool>()
    ) {
        let options = cell_client::ClientOptions { cache_inner, ..options() };
        let mut harness = ReadHarness::with(options, Owner::new(false), true);
        for (step, number) in steps {
            let key = key(number);
            match step {
                0..=3 => drop(harness.owner.put(&key, &value(number * 7 + u32::from(step)))),
                4 if harness.owner.entries.contains_key(&key) => harness.owner.delete(&key),
                5 => {
                    let scan = Scan { start: Bound::Included(&key), limit_entries: 20, ..Scan::default() };
                    let expected = model(&harness, &Scan { limit_entries: 0, ..scan });
                    let Output::Page(page) = harness.call(&Operation::Scan(scan)) else { panic!() };
                    let found: Vec<_> = page.iter().map(|entry| entry.key.to_vec()).collect();
                    let expected: Vec<_> = expected.into_iter().take(20).map(|(key, ..)| key).collect();
                    prop_assert_eq!(found, expected);
                }
                _ => {
                    let expected = harness.owner.entries.get(&key).map(|(_, value)| value.clone());
                    prop_assert_eq!(harness.get(&key), expected);
                }
            }
        }
        prop_assert!(harness.asked.is_empty());
    }
}
