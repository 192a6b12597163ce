//! What answers depend on: nobody learns of what a crash can take back.

use std::ops::Bound;

use cell_pair::{Located, PairError, value_len};
use cell_terms::{Csn, Version};
use cell_tree::{KeyRange, LeafSnapshot, ScanDirection};

use crate::owner::{Owner, PAIR, SLOT, key};

fn located(owner: &Owner, key: &[u8]) -> Located {
    owner.pair.located(SLOT, &owner.search(SLOT, key))
}

fn depends_on(owner: &Owner, key: &[u8]) -> Csn {
    owner.pair.search_depends_on(&located(owner, key)).unwrap()
}

/// All of these keys are in one leaf.
#[test]
fn answer_depends_on_its_own_entry_while_its_leaf_is_not_durable_and_a_miss_on_the_last_removal() {
    let mut owner = Owner::new();
    let written = [b"a", b"b", b"c"].map(|key| owner.put(key, b"old").unwrap());
    owner.settle();
    let durable = owner.pair.visible();
    assert_eq!(depends_on(&owner, b"a"), durable, "its leaf's last change");
    let head = |owner: &Owner, key: &[u8]| owner.pair.head(&located(owner, key).entry.unwrap()).unwrap();
    // The record of the extent comes before the tree node's.
    let csn = Csn(written[0].0 - 1);
    let version = Version { pair: PAIR, epoch: owner.pair.epoch(), csn };
    assert_eq!((head(&owner, b"a").csn, head(&owner, b"a").version), (csn, version));
    assert_eq!(owner.pair.version_of(SLOT, b"a").unwrap(), Some(version));
    assert_eq!(owner.pair.version_of(SLOT, b"x").unwrap(), None);

    let replaced = owner.put(b"b", b"newer").unwrap();
    assert!(replaced > durable && owner.pair.visible() == durable);
    assert_eq!(depends_on(&owner, b"a"), csn, "what is durable is answered at once");
    assert_eq!(depends_on(&owner, b"b"), durable.next(), "and what is not waits");
    assert!(depends_on(&owner, b"x") <= durable, "nothing was removed");
    assert_eq!(owner.value(SLOT, b"b"), b"newer");

    let removed = owner.delete(b"c").unwrap();
    assert_eq!([depends_on(&owner, b"c"), depends_on(&owner, b"x")], [removed; 2]);
    owner.settle();
    assert_eq!([depends_on(&owner, b"a"), depends_on(&owner, b"b")], [removed; 2]);
}

#[test]
fn keys_that_are_searched_together_are_found_as_each_alone() {
    let mut owner = Owner::new();
    for (key, value) in [(b"a", &b"1"[..]), (b"b", &b"22"[..]), (b"c", &b"333"[..])] {
        owner.put(key, value).unwrap();
    }
    owner.delete(b"b").unwrap();
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut together = [Located::default(); 3];
    owner.pair.locate_batch(SLOT, &keys, &mut together).unwrap();
    for (key, found) in keys.iter().zip(&together) {
        let alone = located(&owner, key);
        let parts = |located: &Located| (located.entry, located.csn_changed, located.csn_removed);
        assert_eq!(parts(found), parts(&alone));
        assert!(found.csn_removed > Csn::ZERO);
    }
    let lens = together.map(|located| located.entry.map(|entry| value_len(&entry)));
    assert_eq!(lens, [Some(1), None, Some(3)]);
}

/// How many leaves the meganode has.
fn leaves(owner: &Owner) -> usize {
    let (meganode, mut leaf, mut count) = (owner.pair.meganode(SLOT), LeafSnapshot::new(), 1);
    meganode.leaf_first(&mut leaf).unwrap();
    while meganode.leaf_after(&mut leaf).unwrap() {
        count += 1;
    }
    count
}

/// All keys, by scans each of which looks at so many leaves at most; and how many scans that were.
fn scanned(
    owner: &Owner,
    direction: ScanDirection,
    expected: usize,
    leaves_max: usize,
) -> (Vec<Vec<u8>>, usize) {
    let (mut keys, mut scans) = (Vec::new(), 0);
    let mut resume: Option<Vec<u8>> = None;
    loop {
        let mut range = KeyRange { start: Bound::Unbounded, end: Bound::Unbounded, direction };
        match (&resume, direction) {
            (Some(fence), ScanDirection::Forward) => range.start = Bound::Included(fence),
            (Some(fence), ScanDirection::Backward) => range.end = Bound::Excluded(fence),
            (None, _) => {}
        }
        let mut left = leaves_max;
        let end = owner.pair.scan(SLOT, &range, expected, &mut left, |found| {
            let mut key = Vec::new();
            found.append_key(&mut key);
            keys.push(key);
            Ok::<_, PairError>(Some(Csn::ZERO))
        });
        let end = end.unwrap();
        scans += 1;
        assert!(!end.is_stopped && scans < 1_000);
        let Some(fence) = end.goes_on else { return (keys, scans) };
        assert_eq!(left, 0, "it may have looked at more");
        resume = Some(fence);
    }
}

#[test]
fn scan_looks_at_no_more_leaves_than_it_may_and_goes_on_behind_them() {
    let mut owner = Owner::new();
    owner.put_entries(300);
    for number in 1..299 {
        owner.delete(&key(number)).unwrap();
        if number % 16 == 0 {
            owner.settle();
        }
    }
    let all = leaves(&owner);
    assert!(all > 8, "{all} leaves");
    let ends = vec![key(0), key(299)];
    let ends_backward = vec![key(299), key(0)];
    for (expected, leaves_max) in [1, 10]
        .into_iter()
        .flat_map(|expected| [1, 2, 3, all - 1, all, all + 1].map(|leaves_max| (expected, leaves_max)))
    {
        let scans = all.div_ceil(leaves_max);
        let [forward, backward] = [ScanDirection::Forward, ScanDirection::Backward]
            .map(|direction| scanned(&owner, direction, expected, leaves_max));
        assert_eq!(forward, (ends.clone(), scans), "{leaves_max} of {all}");
        assert_eq!(backward, (ends_backward.clone(), scans), "{leaves_max} of {all}");
    }
}
