//! A meganode that was checked before.

use std::sync::atomic::Ordering;

use cell_terms::Csn;
use cell_tree::{Meganode, NodeIndex, TreeNodeState};

use super::{Memory, SLOT, Tree, entry, geometry};

/// Of the word with a tree node's garbage, a bit of that.
const GARBAGE: (usize, u64) = (6, 1 << 32);

fn key(number: u64) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

fn leaf_of(tree: &Tree, number: u64) -> NodeIndex {
    crate::reading!(tree, meganode => meganode.search(&key(number)).unwrap().node)
}

fn word_of(tree: &Tree, node: NodeIndex) -> usize {
    tree.geometry.slot_word(SLOT.index) + node.0 as usize * tree.geometry.node_words()
}

/// Whether a copy of the tree keeps the rules as far as they are checked again.
fn is_sound(tree: &Tree, checked: Option<Csn>, damage: impl FnOnce(&Memory)) -> bool {
    let copy = tree.memory.copy();
    damage(&copy);
    let memory = &copy;
    let meganode = Meganode::new(&memory, tree.geometry, SLOT);
    meganode.validate_again(TreeNodeState::Valid, checked).is_ok_and(|stats| stats.entries == 300)
}

/// Whether a damage within a leaf is found if the leaf has changed since, and where it stands between leaves
/// in any case.
pub(crate) fn changed_nodes_are_checked_again() -> bool {
    [false, true].into_iter().all(|crc| {
        let mut tree = Tree::new(geometry(512, 60).with_node_crc(crc));
        for number in 0..300 {
            tree.put(&key(number), entry(number)).unwrap();
        }
        let checked = Some(tree.csn);
        tree.put(&key(20), entry(1_020)).unwrap();
        let (changed, unchanged, other) = (leaf_of(&tree, 20), leaf_of(&tree, 150), leaf_of(&tree, 280));
        let garbage = |node| {
            let word = word_of(&tree, node) + GARBAGE.0;
            move |memory: &Memory| {
                memory.0[word].fetch_xor(GARBAGE.1, Ordering::Relaxed);
            }
        };
        let exchange = |memory: &Memory| {
            for at in 0..tree.geometry.node_words() {
                let [one, two] = [unchanged, other].map(|node| &memory.0[word_of(&tree, node) + at]);
                let word = one.load(Ordering::Relaxed);
                one.store(two.swap(word, Ordering::Relaxed), Ordering::Relaxed);
            }
        };
        is_sound(&tree, checked, |_| {})
            && is_sound(&tree, checked, garbage(unchanged))
            && !is_sound(&tree, None, garbage(unchanged))
            && !is_sound(&tree, checked, garbage(changed))
            && !is_sound(&tree, checked, exchange)
    })
}
