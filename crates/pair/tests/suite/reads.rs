//! What answers depend on: nobody is told of what a crash can take back.

use cell_pair::{Located, value_len};
use cell_terms::{Csn, Version};

use crate::owner::{Owner, PAIR, SLOT};

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
