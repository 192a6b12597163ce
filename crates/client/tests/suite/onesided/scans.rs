//! Pages of mapped memory beside the same pages by reads: alike in both directions, with values and without,
//! whatever limits them, whatever was deleted, and wherever meganodes and pairs end.

use cell_client::{Operation, Output, ScanPage};
use cell_protocol::{Bound, EntryValue, PAGE_LEAVES_MAX, Scan};
use cell_terms::{Root, SlotIndex};
use cell_tree::LeafSnapshot;
use proptest::prelude::*;

use crate::onesided::answers::{filled, key, routed_owner, value};
use crate::onesided::in_place::mapped;
use crate::onesided::nodes::TwoNodeHarness;
use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{MS, OPERATION_MS_MAX, ReadHarness, options};

/// Two clients of two owners with the same entries; the first one has mapped its owner's regions.
fn both() -> [ReadHarness; 2] {
    let by_reads = filled(ReadHarness::with(options(), routed_owner(), true), 20);
    [mapped(options(), routed_owner()), by_reads]
}

fn page(harness: &mut ReadHarness, scan: Scan<'_>) -> ScanPage {
    let Output::Page(page) = harness.call(&Operation::Scan(scan)) else { panic!("no page") };
    page
}

/// Reads a range page by page both ways; how many pages and entries that were.
fn compare(harnesses: &mut [ReadHarness; 2], scan: Scan<'_>) -> (usize, usize) {
    let (mut pages, mut entries) = (0, 0);
    let mut resumed: Option<(Vec<u8>, bool)> = None;
    loop {
        let bound = resumed
            .as_ref()
            .map(|(key, is_in)| if *is_in { Bound::Included(&key[..]) } else { Bound::Excluded(&key[..]) });
        let scan = match bound {
            Some(bound) if scan.reverse => Scan { end: bound, ..scan },
            Some(bound) => Scan { start: bound, ..scan },
            None => scan,
        };
        let [in_place, by_reads] = harnesses.each_mut().map(|harness| page(harness, scan));
        assert_eq!(in_place, by_reads, "{scan:?}");
        (pages, entries) = (pages + 1, entries + in_place.len());
        if in_place.is_done() {
            return (pages, entries);
        }
        let is_in = matches!(in_place.resume(), Bound::Included(_));
        resumed = in_place.resume().key().map(|key| (key.to_vec(), is_in));
    }
}

/// The leaves of the meganodes of [`routed_owner`].
fn leaves(owner: &Owner) -> usize {
    let (mut leaf, mut count) = (LeafSnapshot::new(), 0);
    for (pair, slot) in [(0, 0), (1, 0), (1, 2)] {
        let meganode = owner.pairs[pair].pair.meganode(SlotIndex(slot));
        meganode.leaf_first(&mut leaf).unwrap();
        count += 1;
        while let Ok(true) = meganode.leaf_after(&mut leaf) {
            count += 1;
        }
    }
    count
}

/// So many leaves, of whose entries all are removed but the first and the last.
fn empty_leaves(owner: &mut Owner, count: usize) {
    for part in 0.. {
        if leaves(owner) >= count {
            break;
        }
        // Few of these are in a leaf.
        let tail = format!("{part:02}{}", "x".repeat(60)).into_bytes();
        for number in (0..100).flat_map(|number| [number, number + 100, number + 200]) {
            owner.put(&[key(number), tail.clone()].concat(), b"value");
        }
    }
    let all: Vec<Vec<u8>> = owner.entries.keys().cloned().collect();
    for key in &all[1..all.len() - 1] {
        owner.delete(key);
    }
}

/// More leaves without entries than a page looks at, in several meganodes of two pairs.
#[test]
fn page_looks_at_no_more_leaves_than_it_may_in_place_and_by_reads() {
    let mut harnesses = both();
    for harness in &mut harnesses {
        empty_leaves(&mut harness.owner, PAGE_LEAVES_MAX + 20);
    }
    let pages = leaves(&harnesses[0].owner).div_ceil(PAGE_LEAVES_MAX);
    let before = harnesses.each_ref().map(|harness| harness.counters().reads);
    for (reverse, keys_only) in [(false, false), (true, false), (false, true), (true, true)] {
        let scan = Scan { reverse, keys_only, ..Scan::default() };
        assert_eq!(compare(&mut harnesses, scan), (pages, 2), "{scan:?}");
        let at_once = page_at_once(&mut harnesses[0], &scan);
        assert!(at_once.is_some_and(|page| page.len() == 1 && !page.is_done()), "{scan:?}");
    }
    let after = harnesses.each_ref().map(|harness| harness.counters().reads);
    assert!(after[0] == before[0] && after[1] > before[1], "{before:?}, {after:?}");
    assert!(harnesses.iter().all(|harness| harness.asked.is_empty()), "a page is not the server's");
}

#[test]
fn pages_end_where_they_would_by_reads() {
    let mut harnesses = both();
    for harness in &mut harnesses {
        for number in 20..300 {
            harness.owner.put(&key(number), &value(number));
        }
        // Leaves without entries, at the end of a meganode too.
        for number in (30..70).chain(180..230) {
            harness.owner.delete(&key(number));
        }
    }
    let before = harnesses[0].counters();
    let (low, high) = (key(25), key(260));
    for reverse in [false, true] {
        let all = Scan { reverse, ..Scan::default() };
        let part = Scan { start: Bound::Excluded(&low), end: Bound::Included(&high), ..all };
        for keys_only in [false, true] {
            assert_eq!(compare(&mut harnesses, Scan { keys_only, ..all }), (1, 210));
            assert_eq!(compare(&mut harnesses, Scan { keys_only, ..part }), (1, 145));
        }
        for limit_entries in [1, 7, 50, 145] {
            let pages = 145_u32.div_ceil(limit_entries) as usize;
            assert_eq!(compare(&mut harnesses, Scan { limit_entries, ..part }), (pages, 145));
        }
        for limit_bytes in [1, 100, 1_000] {
            let (pages, entries) = compare(&mut harnesses, Scan { limit_bytes, ..part });
            assert!(entries == 145 && pages > 3, "{pages} pages of {limit_bytes} bytes");
        }
    }
    let after = harnesses[0].counters();
    assert_eq!(after.reads, before.reads, "all in place");
    assert!(harnesses.iter().all(|harness| harness.asked.is_empty()));
}

/// A value that does not fit a page is named in it, and those behind it are in it.
#[test]
fn page_names_a_value_that_does_not_fit_it() {
    let mut harnesses = both();
    for harness in &mut harnesses {
        harness.owner.put(&key(5), &vec![b'v'; 70_000]);
        harness.owner.put(&key(6), &vec![b'w'; 30_000]);
    }
    let before = harnesses[0].counters();
    for reverse in [false, true] {
        assert_eq!(compare(&mut harnesses, Scan { reverse, ..Scan::default() }), (1, 20));
    }
    let after = harnesses[0].counters();
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (2, 0));
}

/// A page that is answered before the call returns; none if it is to be submitted.
fn page_at_once(harness: &mut ReadHarness, scan: &Scan<'_>) -> Option<ScanPage> {
    let began_ns = harness.clock();
    let page = harness.core.look_for_page(began_ns, scan).ok()?;
    let by_ns = harness.clock();
    harness.core.is_valid_at(by_ns).then_some(page)
}

#[test]
fn pages_are_answered_at_once_as_those_that_are_submitted() {
    let mut harness = filled(mapped(options(), routed_owner()), 300);
    let (low, high) = (key(80), key(220));
    let range = Scan { start: Bound::Excluded(&low), end: Bound::Excluded(&high), ..Scan::default() };
    for reverse in [false, true] {
        for (limit_entries, keys_only) in [(0, false), (1, false), (50, false), (0, true), (7, true)] {
            let scan = Scan { reverse, limit_entries, keys_only, ..range };
            let before = harness.counters();
            let at_once = page_at_once(&mut harness, &scan);
            let after = harness.counters();
            assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (1, 0), "{scan:?}");
            assert_eq!((after.started - before.started, after.done - before.done), (1, 1), "{scan:?}");
            assert_eq!(at_once, Some(page(&mut harness, scan)), "{scan:?}");
        }
    }
    for impossible in [&b""[..], &[b'k'; 1_000]] {
        let scan = Scan { end: Bound::Included(impossible), ..range };
        assert_eq!(page_at_once(&mut harness, &scan), None, "the server knows what to say");
    }
}

/// Clock, watermark and trust hold for a page that is answered at once.
pub(crate) fn page_that_is_not_believed_is_not_answered_at_once() {
    let (mut harness, scan) = (mapped(options(), Owner::new(false)), Scan::default());
    assert!(page_at_once(&mut harness, &scan).is_some());
    // Too long between the clock before the loads and the one after them.
    harness.stop_ns = OPERATION_MS_MAX * MS;
    let before = harness.counters();
    assert_eq!(page_at_once(&mut harness, &scan), None, "memory may have been used again meanwhile");
    assert_eq!(harness.counters(), before, "it is counted when it is submitted");
    // Written or removed, and not durable yet.
    harness.owner.put_unseen(&key(1), b"newer");
    assert_eq!(page_at_once(&mut harness, &scan), None);
    harness.owner.raise();
    assert!(page_at_once(&mut harness, &scan).is_some());
    harness.owner.delete_unseen(&key(2));
    assert_eq!(page_at_once(&mut harness, &scan), None);
    harness.owner.raise();
    assert!(page_at_once(&mut harness, &scan).is_some());
    // Nobody has said for long that the lease holds.
    harness.now_ns += 60_000 * MS;
    assert_eq!(page_at_once(&mut harness, &scan), None);
}

#[test]
fn page_at_once_keeps_to_clock_watermark_and_trust() {
    page_that_is_not_believed_is_not_answered_at_once();
}

/// Whichever of its pairs is the one.
#[test]
fn page_depends_on_what_is_durable_in_each_of_its_pairs() {
    let mut harness = filled(mapped(options(), routed_owner()), 300);
    for reverse in [false, true] {
        let scan = Scan { reverse, ..Scan::default() };
        for number in [5, 150, 250] {
            harness.owner.put_unseen(&key(number), b"newer");
            assert_eq!(page_at_once(&mut harness, &scan), None, "{number} was written");
            harness.owner.raise();
            assert!(page_at_once(&mut harness, &scan).is_some(), "{number} may be seen");
            harness.owner.delete_unseen(&key(number));
            assert_eq!(page_at_once(&mut harness, &scan), None, "{number} was removed");
            harness.owner.raise();
            assert!(page_at_once(&mut harness, &scan).is_some(), "that {number} is gone may be seen");
        }
    }
}

/// The pair that the scan comes to last is the one whose registrations have ended.
#[test]
fn page_counts_by_the_registrations_of_each_of_its_pairs() {
    for (last, reverse) in [(1, false), (0, true)] {
        let mut harness = filled(mapped(options(), routed_owner()), 300);
        let scan = Scan { reverse, ..Scan::default() };
        assert!(page_at_once(&mut harness, &scan).is_some(), "while all of them last");
        harness.owner.end_mapped_extents_of(last);
        assert_eq!(page_at_once(&mut harness, &scan), None);
    }
}

/// The client is stopped right after it has read a page of the memory of two nodes: for longer than one of
/// them permits, whichever the scan began with.
#[test]
fn page_of_two_nodes_takes_no_longer_than_each_of_them_permits() {
    for (permitted_ms, reverse) in [([50, 200], true), ([200, 50], false)] {
        let mut harness = TwoNodeHarness::mapped(permitted_ms);
        for number in [3, 250] {
            assert_eq!(harness.get(&key(number)), Some(value(number)), "its node's memory is mapped");
        }
        let in_place = |harness: &TwoNodeHarness| harness.core.one_sided_counters().unwrap().in_place;
        let before = in_place(&harness);
        let scan = Scan { reverse, ..Scan::default() };
        harness.core.submit(harness.now_ns, &Operation::Scan(scan)).unwrap();
        harness.core.validate(harness.now_ns);
        assert_eq!(in_place(&harness) - before, 1, "it is read, and not looked at yet");
        harness.owner.put(&key(150), b"newer");
        harness.now_ns += 100 * MS;
        let Output::Page(page) = harness.wait(100).unwrap().outcome.unwrap() else { panic!("no page") };
        let entry = page.iter().find(|entry| entry.key == key(150)).unwrap();
        assert!(matches!(entry.value, EntryValue::Inline(b"newer")), "{permitted_ms:?}: {entry:?}");
        assert!(harness.is_spared(), "{:?}", harness.asked);
    }
}

/// The first node's part is taken in place, the second's by reads, which come in for longer than the first
/// permits and less than the second does.
#[test]
fn page_of_mapped_memory_and_other_takes_no_longer_than_the_mapped_part_permits() {
    let mut owner = routed_owner();
    owner.map_pair(0);
    for number in 0..300 {
        owner.put(&key(number), &value(number));
    }
    let mut harness = TwoNodeHarness::reading(options(), owner, [0, 1], [false; 2], [50, 200]);
    for number in [3, 250] {
        assert_eq!(harness.get(&key(number)), Some(value(number)), "by reads: what may be is mapped then");
    }
    let (from, to) = (key(20), key(180));
    let scan = Scan { start: Bound::Included(&from), end: Bound::Excluded(&to), ..Scan::default() };
    harness.reads_held = true;
    harness.core.submit(harness.now_ns, &Operation::Scan(scan)).unwrap();
    harness.run();
    assert!(!harness.posted.is_empty());
    assert!(harness.posted.iter().all(|(_, read, _)| read.key.0 / 100 == 2), "of the second pair alone");
    harness.owner.put(&key(30), b"newer");
    harness.now_ns += 100 * MS;
    harness.reads_held = false;
    let Output::Page(page) = harness.wait(100).unwrap().outcome.unwrap() else { panic!("no page") };
    let entry = page.iter().find(|entry| entry.key == key(30)).unwrap();
    assert!(matches!(entry.value, EntryValue::Inline(b"newer")), "{entry:?}");
    assert!(harness.is_spared(), "{:?}", harness.asked);
}

/// The root leads all keys to the first of three meganodes.
#[test]
fn page_goes_right_where_the_way_knows_one_meganode_alone() {
    for reverse in [false, true] {
        let mut harness = filled(mapped(options(), routed_owner()), 300);
        let first = harness.owner.root_of(0, 0);
        harness.owner.set_root(Root::leaf(first));
        let before = harness.counters();
        let page = page_at_once(&mut harness, &Scan { reverse, ..Scan::default() }).unwrap();
        let after = harness.counters();
        assert_eq!((page.len(), page.is_done()), (300, true));
        assert_eq!((after.right_link - before.right_link, after.reads - before.reads), (3, 0));
    }
}

/// Each meganode was noted twice, and each right link counted twice.
#[test]
fn page_that_is_not_believed_is_counted_when_it_is_submitted() {
    let mut harness = filled(mapped(options(), routed_owner()), 300);
    let first = harness.owner.root_of(0, 0);
    harness.owner.set_root(Root::leaf(first));
    let before = harness.counters();
    harness.stop_ns = OPERATION_MS_MAX * MS;
    assert_eq!(page_at_once(&mut harness, &Scan::default()), None);
    assert_eq!(harness.counters(), before);
}

/// A stale pointer leads to a slot that is a router's by now, whose leaf is over all keys.
pub(crate) fn router_is_not_scanned_in_place() {
    let mut harness = filled(mapped(options(), routed_owner()), 300);
    let first = harness.owner.root_of(0, 0);
    let stale = harness.owner.add_router(1, 1, first);
    let root = harness.owner.add_router(0, 2, stale);
    harness.owner.set_root(Root::router(root));
    let bound = key(150);
    let forward = Scan { start: Bound::Included(&bound), ..Scan::default() };
    let backward = Scan { end: Bound::Excluded(&bound), reverse: true, ..Scan::default() };
    for scan in [forward, backward] {
        assert_eq!(page_at_once(&mut harness, &scan), None, "{scan:?}: there are entries");
    }
}

#[test]
fn router_at_a_stale_pointer_is_not_scanned_in_place() {
    router_is_not_scanned_in_place();
}

fn bound(number: Option<u32>, keys: &[Vec<u8>]) -> Bound<'_> {
    number.map_or(Bound::Unbounded, |number| Bound::Included(&keys[number as usize]))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn pages_between_any_writes_are_those_by_reads(
        steps in proptest::collection::vec((0u8..6, 0u32..300, 0usize..400), 1..120),
        ends in proptest::collection::vec((prop::option::of(0u32..300), prop::option::of(0u32..300)), 1..6),
        limit_entries in 0u32..40, limit_bytes in 0u32..4_000, reverse: bool, keys_only: bool,
    ) {
        let mut harnesses = both();
        let keys: Vec<Vec<u8>> = (0..300).map(key).collect();
        for (step, number, len) in steps {
            let key = &keys[number as usize];
            for harness in &mut harnesses {
                match step {
                    0 if harness.owner.entries.contains_key(key) => harness.owner.delete(key),
                    _ => drop(harness.owner.put(key, &vec![step; len])),
                }
            }
        }
        for (start, end) in ends {
            let (start, end) = (bound(start, &keys), bound(end, &keys));
            compare(&mut harnesses, Scan { start, end, reverse, keys_only, limit_entries, limit_bytes });
        }
    }
}
