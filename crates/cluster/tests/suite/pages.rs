//! What the coordinator returns in pages: put together they are the whole, whatever the sizes of the rows;
//! and what it does not return any more.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{Coordinator, Sim, Transaction, Watch};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Transactions of several keys each, some with rows of which a few fill a page.
    #[test]
    fn pages_of_keys_and_of_changes_of_any_size_are_the_whole(
        transactions in vec(vec((0..1_500_u32, 0..6_u32), 1..8), 1..400)
    ) {
        let link = Sim::new(3).link();
        let (mut expected, mut seen) = (BTreeMap::new(), BTreeMap::new());
        let mut from = link.list("row/").unwrap().revision;
        for rows in &transactions {
            let rows: BTreeMap<u32, u32> = rows.iter().copied().collect();
            let mut write = Transaction::new();
            for (key, size) in rows {
                let (key, value) = (format!("row/{key:05}"), "v".repeat(8 << (3 * size)));
                if size == 5 {
                    write = write.delete(key.clone());
                    expected.remove(&key);
                } else {
                    write = write.put(key.clone(), value.clone());
                    expected.insert(key, value);
                }
            }
            link.transact(write).unwrap();
        }
        let whole = link.list("row/").unwrap();
        prop_assert!(!whole.more);
        let listed: BTreeMap<_, _> = whole.entries.iter().cloned().map(|row| (row.key, row.value)).collect();
        prop_assert_eq!((listed.len(), &listed), (whole.entries.len(), &expected));
        loop {
            let (complete, changes) = link.changes_since(from).unwrap();
            for change in changes {
                match change.value {
                    Some(row) => drop(seen.insert(change.key, row.value)),
                    None => drop(seen.remove(&change.key)),
                }
            }
            if complete == from {
                break;
            }
            from = complete;
        }
        prop_assert_eq!(seen, expected);
    }
}

/// Of what is no longer kept a watch returns the rows that there are now; of sessions that ended meanwhile it
/// can only say that there may be some.
#[test]
fn watch_with_a_gap_says_that_sessions_may_have_ended_in_it() {
    let sim = Sim::new(3);
    let link = sim.link();
    let mut watch = Watch::new(Arc::new(sim.link()));
    let look = watch.look().unwrap();
    assert!(look.changed && !look.missed, "nothing was known before");
    for number in 0..10_000 {
        link.transact(Transaction::new().put("other", number.to_string())).unwrap();
    }
    assert!(watch.look().unwrap().missed);
    link.transact(Transaction::new().put("other", "")).unwrap();
    assert!(!watch.look().unwrap().missed);
}
