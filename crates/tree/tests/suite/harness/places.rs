//! A change between a plan and its application.

use std::collections::BTreeMap;

use cell_tree::{LeafEntry, Meganode, Plan, apply_placed, plan_put};

use super::{SLOT, Tree, entry, geometry};

/// Keys of one leaf.
const KEYS: [&[u8]; 4] = [b"bat", b"cat", b"dog", b"eel"];

/// What happens to another key of the leaf before a plan is applied.
#[derive(Clone, Copy)]
enum Meanwhile {
    Put(&'static [u8]),
    Remove(&'static [u8]),
}

/// Whether each key has what it was given when a put is planned, another change is made, and then the put is.
fn each_has_its_own(key: &'static [u8], meanwhile: Meanwhile) -> bool {
    let mut tree = Tree::new(geometry(512, 8));
    let mut model: BTreeMap<&[u8], LeafEntry> = KEYS.into_iter().zip((1..).map(entry)).collect();
    for (key, entry) in &model {
        tree.put(key, *entry).unwrap();
    }
    let (shared, mut plan) = (tree.memory.clone(), Plan::new());
    let words = &*shared;
    let meganode = Meganode::new(&words, tree.geometry, SLOT);
    plan_put(&meganode, &mut tree.allocator, key, entry(99), &mut plan).unwrap();
    match meanwhile {
        Meanwhile::Put(other) => {
            tree.put(other, entry(98)).unwrap();
            model.insert(other, entry(98));
        }
        Meanwhile::Remove(other) => {
            tree.remove(other).unwrap();
            model.remove(other);
        }
    }
    for placed in plan.placed() {
        tree.csn = tree.csn.next();
        apply_placed(&mut &*tree.memory, tree.geometry, SLOT, &placed, tree.csn);
    }
    plan.commit(&mut tree.allocator);
    model.insert(key, entry(99));
    reading!(tree, meganode => {
        let is_sound = meganode.validate(true).is_ok_and(|stats| stats.entries == model.len() as u64);
        is_sound && model.iter().all(|(key, entry)| meganode.search(key).unwrap().entry == Some(*entry))
    })
}

/// Entries in front of a planned one come and go, whether it is new or replaces another.
pub(crate) fn entries_go_where_they_belong() -> bool {
    let changes = [Meanwhile::Put(b"ant"), Meanwhile::Remove(b"bat"), Meanwhile::Put(b"dot")];
    let planned: [&[u8]; 2] = [b"cow", b"dog"];
    planned.into_iter().all(|key| changes.into_iter().all(|meanwhile| each_has_its_own(key, meanwhile)))
}
