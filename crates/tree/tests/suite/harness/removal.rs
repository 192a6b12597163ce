//! What a miss depends on, and that replaying twice is replaying once.

use std::collections::HashMap;

use cell_random::Random;
use cell_terms::Csn;
use cell_tree::{Change, Replayed, replay};

use crate::harness::{CompactionPass, Memory, SLOT, SPARSE, Tree, entry, geometry};

/// Random puts and removals; what readers depend on is noted by key.
fn random_tree(steps: usize) -> (Tree, HashMap<Vec<u8>, Csn>) {
    let mut tree = Tree::new(geometry(512, 1024));
    let mut random = Random::new(17);
    let mut removed = HashMap::new();
    let mut compaction = CompactionPass::default();
    for step in 0..steps {
        if step % 8 == 0 && !tree.compaction_step(&mut compaction, &SPARSE, |_| {}) {
            compaction = CompactionPass::default();
        }
        let key = format!("{:03}-{}", random.index(900), "long".repeat(random.index(6))).into_bytes();
        if random.index(3) == 0 || step % 500 > 300 {
            if tree.remove(&key).unwrap().is_some() {
                removed.insert(key, tree.csn);
            }
        } else {
            tree.put(&key, entry(random.next())).unwrap();
            removed.remove(&key);
        }
    }
    (tree, removed)
}

/// Whether every key that was removed is missed with a CSN of removal that is not lower, splits or not.
pub(crate) fn misses_depend_on_the_last_removal() -> bool {
    let (tree, removed) = random_tree(4_000);
    reading!(tree, meganode => removed.iter().all(|(key, csn)| {
        let found = meganode.search(key).unwrap();
        found.entry.is_none() && found.csn_removed >= *csn && found.csn_changed >= found.csn_removed
    }))
}

/// Whether a second replay of the whole log finds nothing to do.
pub(crate) fn replaying_twice_is_once() -> bool {
    let (tree, _) = random_tree(1_000);
    let memory = Memory::new(tree.geometry);
    let again = |(csn, bytes): &(Csn, Vec<u8>)| {
        replay(&mut &memory, tree.geometry, SLOT, &Change::decode(bytes).unwrap(), *csn)
    };
    tree.log.iter().all(|record| again(record) == Ok(Replayed::Applied))
        && tree.log.iter().all(|record| again(record) == Ok(Replayed::Skipped))
}
