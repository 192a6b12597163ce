//! What a client reports to the owner of the meganodes that it reads one-sidedly: the owner sees nothing of
//! it.

use cell_client::{ClientOptions, Operation};
use cell_protocol::{Bound, Scan};

use crate::onesided::answers::{filled, key, routed_owner, scan_all};
use crate::onesided::in_place::mapped;
use crate::onesided::read_harness::{MS, ReadHarness, ReadReport, options};

fn reporting() -> ClientOptions {
    ClientOptions { report_ms: 1_000, ..options() }
}

/// What is reported a second later of the reads since the last report.
fn report(harness: &mut ReadHarness) -> ReadReport {
    harness.reports.clear();
    harness.pass(1_000 * MS);
    harness.run();
    assert_eq!(harness.reports.len(), 1, "one report: {:?}", harness.kinds);
    harness.reports.remove(0)
}

/// By reads and in place: gets, searches, multi-gets and scans.
fn read_all_kinds(harness: &mut ReadHarness) {
    report(harness);
    for _ in 0..3 {
        harness.get(&key(10));
    }
    assert_eq!(report(harness), (vec![(1, 0, 3)], 0));
    let keys = [key(20), key(150), key(250), key(251)];
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    harness.call(&Operation::MultiGet { keys: &keys });
    harness.call(&Operation::Search { key: &key(151) });
    harness.get(b"key-00150-none");
    assert_eq!(report(harness), (vec![(1, 0, 1), (2, 0, 3), (2, 2, 2)], 0));
    let scan = Scan {
        start: Bound::Included(b"key-00100"),
        end: Bound::Unbounded,
        reverse: false,
        keys_only: false,
        limit_entries: 1_000,
        limit_bytes: 60_000,
    };
    assert_eq!(scan_all(harness, scan).len(), 200);
    let (rows, elsewhere) = report(harness);
    let pages = rows.iter().map(|(_, _, reads)| reads).sum::<u64>();
    let places: Vec<_> = rows.iter().map(|(pair, slot, _)| (*pair, *slot)).collect();
    assert_eq!((places, elsewhere), (vec![(2, 0), (2, 2)], 0));
    assert!(pages < 10, "a page counts once in a meganode, and not for each leaf: {rows:?}");
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
}

#[test]
fn reads_are_reported_by_meganode() {
    let mut harness = filled(ReadHarness::with(reporting(), routed_owner(), true), 300);
    harness.get(&key(1));
    read_all_kinds(&mut harness);
}

#[test]
fn reads_in_place_are_reported_by_meganode() {
    let mut harness = filled(mapped(reporting(), routed_owner()), 300);
    for number in [1, 150, 250] {
        harness.get(&key(number));
    }
    let before = harness.counters();
    read_all_kinds(&mut harness);
    assert!(harness.counters().in_place >= before.in_place + 6, "in place: {:?}", harness.counters());
}

#[test]
fn many_reads_are_reported_by_some_of_them() {
    let mut harness = mapped(reporting(), routed_owner());
    report(&mut harness);
    for _ in 0..5_000 {
        harness.get(&key(1));
    }
    let (rows, elsewhere) = report(&mut harness);
    let [(1, 0, reads)] = rows[..] else { panic!("one meganode: {rows:?}") };
    assert_eq!(elsewhere, 0);
    assert!((4_800..=5_000).contains(&reads), "{reads}: the last ones wait for the next report");
}

#[test]
fn client_that_is_not_to_report_sends_nothing() {
    let mut harness = mapped(options(), routed_owner());
    harness.get(&key(1));
    harness.pass(60_000 * MS);
    harness.run();
    assert!(harness.reports.is_empty());
}
