//! Pages of a scan over meganodes and pairs, in both directions and between any bounds: every entry that is
//! in the range, once, in order, and nothing else.

use std::collections::BTreeSet;

use cell_protocol::{Bound, EntryValue, Page, Reply, Request, Scan};

use crate::worker_core::world::{GEOMETRY, OPTIONS, World};

/// More pages than any scan of these tests has.
const PAGES_MAX: usize = 10_000;

/// A page's keys, and where the scan goes on: from this key on, or behind it. None: nothing follows.
type Found = (Vec<Vec<u8>>, Option<(Vec<u8>, bool)>);

/// Two pairs, one of them with several meganodes, and all keys; each entry's value is its key.
fn filled() -> (World, BTreeSet<Vec<u8>>) {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let (mut number, mut keys) = (1, BTreeSet::new());
    while world.worker().split_counts().finished < 3 {
        let key = format!("key {:05}", number * 7919 % 10_007).into_bytes();
        keys.insert(key.clone());
        number = world.load(number, std::iter::once(key));
        assert!(number < 10_000, "meganodes of 128 tree nodes are split");
    }
    world.until("the end of splits", |world| world.worker().split_counts().under_way == 0);
    let meganodes: Vec<usize> = world.worker().pairs().map(|pair| pair.leaf_slots().len()).collect();
    assert!(meganodes.len() == 2 && meganodes.iter().all(|count| *count > 0), "{meganodes:?}");
    assert!(meganodes.iter().any(|count| *count > 1), "{meganodes:?}");
    // A page ends with its pair, and the next one begins with the very key at which the next pair does.
    for low in lows(&world) {
        if keys.insert(low.clone()) {
            number = world.load(number, std::iter::once(low));
        }
    }
    (world, keys)
}

/// The keys at which meganodes begin, but for the first one.
fn lows(world: &World) -> Vec<Vec<u8>> {
    let fences = world.worker().pairs().flat_map(|pair| pair.fences().unwrap());
    fences.map(|(_, fences)| fences.low.to_vec()).filter(|low| !low.is_empty()).collect()
}

fn found(page: &Page<'_>, keys_only: bool) -> Found {
    let keys = page.iter().map(|entry| {
        match entry.value {
            EntryValue::Inline(value) => assert!(value == entry.key && !keys_only, "another one's value"),
            EntryValue::Omitted { value_len } => {
                assert!(value_len as usize == entry.key.len() && keys_only, "another length");
            }
            EntryValue::Large { .. } => panic!("no value is long"),
        }
        entry.key.to_vec()
    });
    let resume = match page.resume {
        Bound::Unbounded => None,
        Bound::Included(key) => Some((key.to_vec(), true)),
        Bound::Excluded(key) => Some((key.to_vec(), false)),
    };
    (keys.collect(), resume)
}

/// All keys of a scan, page by page, each of so many entries at most.
fn scanned(world: &mut World, scan: Scan<'_>) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut resume: Option<(Vec<u8>, bool)> = None;
    for _ in 0..PAGES_MAX {
        let mut rest = scan;
        if let Some((key, included)) = &resume {
            let from = if *included { Bound::Included(&key[..]) } else { Bound::Excluded(&key[..]) };
            *(if scan.reverse { &mut rest.end } else { &mut rest.start }) = from;
        }
        world.send(&Request::Scan(rest));
        let (more, next) = world.until_reply(|reply| match reply {
            Reply::Page(page) => Some(found(page, scan.keys_only)),
            _ => None,
        });
        let most = if scan.limit_entries == 0 { 100 } else { scan.limit_entries as usize };
        assert!(more.len() <= most, "{} entries of {most}", more.len());
        keys.extend(more);
        if next.is_none() {
            return keys;
        }
        resume = next;
    }
    panic!("{scan:?} has no end");
}

fn is_in(key: &[u8], start: Bound<'_>, end: Bound<'_>) -> bool {
    let above = match start {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
    };
    let below = match end {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
    };
    above && below
}

#[test]
fn scans_in_both_directions_have_every_entry_of_their_range_once_and_in_order() {
    let (mut world, keys) = filled();
    let in_order: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let (low, high) = (in_order[3], in_order[in_order.len() - 4]);
    let middle = in_order[in_order.len() / 2];
    let bounds = [
        (Bound::Unbounded, Bound::Unbounded),
        (Bound::Included(low), Bound::Excluded(high)),
        (Bound::Excluded(low), Bound::Included(high)),
        // No entry has these, and the last one is longer than any key.
        (Bound::Included(b"key 0"), Bound::Excluded(b"key 09")),
        (Bound::Excluded(b"key 02"), Bound::Included(&[b'k'; 100])),
        (Bound::Unbounded, Bound::Included(middle)),
        (Bound::Unbounded, Bound::Excluded(middle)),
        (Bound::Included(middle), Bound::Unbounded),
        (Bound::Excluded(middle), Bound::Unbounded),
        (Bound::Included(middle), Bound::Included(middle)),
        (Bound::Excluded(middle), Bound::Excluded(middle)),
        (Bound::Included(high), Bound::Excluded(low)),
    ];
    for (start, end) in bounds {
        for reverse in [false, true] {
            let mut expected: Vec<&[u8]> =
                in_order.iter().copied().filter(|key| is_in(key, start, end)).collect();
            if reverse {
                expected.reverse();
            }
            let scan = Scan { start, end, reverse, ..Scan::default() };
            assert_eq!(scanned(&mut world, scan), expected, "{scan:?}");
        }
    }
    for reverse in [false, true] {
        let scan = Scan { reverse, keys_only: true, limit_entries: 7, ..Scan::default() };
        assert_eq!(scanned(&mut world, scan).len(), keys.len(), "{scan:?}");
    }
}
