//! Pages of a scan over meganodes and pairs, in both directions and between any bounds: every entry that is
//! in the range, once, in order, and nothing else; and what a page looks at that finds nothing.

use std::collections::BTreeSet;

use cell_cluster::PairGeometry;
use cell_node::WorkerOptions;
use cell_pair::PairOptions;
use cell_protocol::{Bound, EntryValue, PAGE_LEAVES_MAX, Page, Reply, Request, Scan};
use cell_tree::LeafSnapshot;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

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

/// The pages of a scan, each of so many entries at most.
fn pages(world: &mut World, scan: Scan<'_>) -> Vec<Found> {
    let mut pages: Vec<Found> = Vec::new();
    let mut resume: Option<(Vec<u8>, bool)> = None;
    for _ in 0..PAGES_MAX {
        let mut rest = scan;
        if let Some((key, included)) = &resume {
            let from = if *included { Bound::Included(&key[..]) } else { Bound::Excluded(&key[..]) };
            *(if scan.reverse { &mut rest.end } else { &mut rest.start }) = from;
        }
        world.send(&Request::Scan(rest));
        let page = world.until_reply(|reply| match reply {
            Reply::Page(page) => Some(found(page, scan.keys_only)),
            _ => None,
        });
        let most = if scan.limit_entries == 0 { 100 } else { scan.limit_entries as usize };
        assert!(page.0.len() <= most, "{} entries of {most}", page.0.len());
        resume.clone_from(&page.1);
        pages.push(page);
        if resume.is_none() {
            return pages;
        }
    }
    panic!("{scan:?} has no end");
}

/// All keys of a scan.
fn scanned(world: &mut World, scan: Scan<'_>) -> Vec<Vec<u8>> {
    pages(world, scan).into_iter().flat_map(|(keys, _)| keys).collect()
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

/// The leaves of the only pair, in order: the fence at which each begins, and whether its meganode does.
fn leaves(world: &World) -> Vec<(Vec<u8>, bool)> {
    let pair = world.worker().pairs().next().unwrap();
    let mut meganodes = pair.fences().unwrap();
    meganodes.sort_by(|(_, one), (_, other)| one.low.cmp(&other.low));
    let mut found = Vec::new();
    for (slot, _) in meganodes {
        let (meganode, mut leaf) = (pair.meganode(slot), LeafSnapshot::new());
        meganode.leaf_first(&mut leaf).unwrap();
        found.push((leaf.low().to_vec(), true));
        while let Ok(true) = meganode.leaf_after(&mut leaf) {
            found.push((leaf.low().to_vec(), false));
        }
    }
    found
}

/// One pair of small meganodes with more leaves than a page looks at: the last meganode begins far behind as
/// many. All entries are removed but the first and the last, and nothing is compacted or merged.
fn emptied() -> (World, [Vec<u8>; 2]) {
    let geometry = PairGeometry { node_region_bytes: 4096 + 16 * (64 << 10), ..GEOMETRY };
    let pair = PairOptions { compaction_permille: 0, ..OPTIONS.pair };
    let mut world = World::new(1, geometry, WorkerOptions { pair, merge_rest_ns: u64::MAX, ..OPTIONS });
    let (mut number, mut keys) = (1, BTreeSet::new());
    while leaves(&world).iter().rposition(|(_, begins)| *begins).unwrap() < PAGE_LEAVES_MAX + 100 {
        // Few of these are in a leaf.
        let more = (number..number + 50).map(|number| format!("{:05}{:x<60}", number * 7919 % 10_007, ""));
        let more: Vec<Vec<u8>> = more.map(String::into_bytes).collect();
        keys.extend(more.iter().cloned());
        number = world.load(number, more.into_iter());
        world.until("the end of splits", |world| world.worker().split_counts().under_way == 0);
        assert!(number < 10_000, "meganodes of 128 tree nodes are split");
    }
    let ends = [keys.pop_first().unwrap(), keys.pop_last().unwrap()];
    for key in &keys {
        assert_eq!(world.delete(world.name(number, number), key), Replied::Deleted);
        number += 1;
    }
    (world, ends)
}

#[test]
fn page_looks_at_no_more_leaves_than_it_may_and_goes_on_behind_them() {
    let (mut world, ends) = emptied();
    let all = leaves(&world);
    let low = |at: usize| all[at].0.clone();
    for (reverse, keys_only) in [(false, false), (true, false), (false, true), (true, true)] {
        let scan = Scan { reverse, keys_only, ..Scan::default() };
        let found = pages(&mut world, scan);
        assert_eq!(found.len(), all.len().div_ceil(PAGE_LEAVES_MAX), "{} leaves", all.len());
        let place = if reverse { all.len() - PAGE_LEAVES_MAX } else { PAGE_LEAVES_MAX };
        assert_eq!(found[0].1, Some((low(place), !reverse)), "{scan:?}");
        let mut keys: Vec<Vec<u8>> = found.into_iter().flat_map(|(keys, _)| keys).collect();
        if reverse {
            keys.reverse();
        }
        assert_eq!(keys, ends, "{scan:?}");
    }
}

/// A page that has looked at all that it may goes on with the next meganode on another page.
#[test]
fn page_whose_last_leaf_is_its_meganodes_ends_there() {
    let (mut world, _) = emptied();
    let all = leaves(&world);
    let begins = |at: &usize| all[*at].1;
    let border = (PAGE_LEAVES_MAX + 1..all.len()).find(begins).expect("the last meganode begins there");
    let start = Bound::Included(&all[border - PAGE_LEAVES_MAX].0[..]);
    let found = pages(&mut world, Scan { start, ..Scan::default() });
    assert_eq!(found[0], (Vec::new(), Some((all[border].0.clone(), true))));
    let border = (1..all.len() - PAGE_LEAVES_MAX).find(begins).expect("the first meganode ends there");
    let end = Bound::Excluded(&all[border + PAGE_LEAVES_MAX].0[..]);
    let found = pages(&mut world, Scan { end, reverse: true, ..Scan::default() });
    assert_eq!(found[0], (Vec::new(), Some((all[border].0.clone(), false))));
}

/// The driver takes no more requests in a turn by what the turn has cost, not by what was found alone.
#[test]
fn turn_counts_the_leaves_at_which_scans_have_looked_in_vain() {
    let (mut world, _) = emptied();
    world.turn();
    assert_eq!(world.worker().turn_bytes(), 0);
    for scans in 1..=3 {
        world.send(&Request::Scan(Scan::default()));
        let bytes = world.worker().turn_bytes();
        assert!(bytes >= scans * PAGE_LEAVES_MAX * 500, "{bytes} bytes after {scans} scans");
    }
    world.turn();
    assert_eq!(world.worker().turn_bytes(), 0, "the next turn begins anew");
}
