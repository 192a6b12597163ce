//! Checking one tree node of a live meganode: by itself, and against its parent, its children and its right
//! neighbour. A check of a whole meganode is made of such looks, with operations of its owner between them.

use cell_terms::{Pointer, Words};

use crate::geometry::NodeIndex;
use crate::page::Page;
use crate::search::{Meganode, sized};
use crate::state::TreeNodeState;
use crate::validate::{Announced, StructureViolation, Walk, announce, high_of, low_of};

/// What a tree node holds that keeps every rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedNode {
    /// Its level: 0 for leaves.
    pub level: u8,
    /// Its entries, or its children.
    pub entries: u64,
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// Checks one tree node: its image, that its parent leads to it and joins its fences, that its children
    /// do likewise, and that its right link leads to the neighbour that begins where it ends. `None`: no
    /// reader may come here, because the node is not in use or its meganode is hidden.
    ///
    /// For the owner, between two of its operations: what is compared must not change meanwhile.
    ///
    /// # Errors
    /// The first [`StructureViolation`]; it may be that of the parent.
    ///
    /// # Panics
    /// If the slot has no such node.
    pub fn validate_node(&self, node: NodeIndex) -> Result<Option<CheckedNode>, StructureViolation> {
        assert!(node.get() < self.geometry.nodes(), "the slot has no {node}");
        sized!(self.geometry, B => {
            let state = |node| self.view::<B>(node).header().state();
            let is_valid = |node| state(node) == TreeNodeState::Valid;
            if !is_valid(NodeIndex::ROOT) || !is_valid(node) {
                return Ok(None);
            }
            Walk::<W, B>::new(self, TreeNodeState::Valid, None).node(node).map(Some)
        })
    }
}

/// The range of a tree node, and its level.
#[derive(PartialEq, Eq)]
struct Bounds {
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl<W: Words + ?Sized, const B: usize> Walk<'_, '_, W, B> {
    /// The other nodes are only looked at, because each is checked in its turn. If what is seen of them does
    /// not fit, they are checked, too: a parent that is damaged is reported as that.
    fn node(&self, node: NodeIndex) -> Result<CheckedNode, StructureViolation> {
        let page = self.copy(node)?;
        let own = Bounds { level: page.view().header().level(), low: low_of(&page), high: high_of(&page) };
        let mut below = Vec::new();
        announce(&page, &own.low, &mut below);
        let right = page.view().right();
        let compare = |look: Look<Self, B>| {
            if node != NodeIndex::ROOT {
                self.parent(node, &own, look)?;
            }
            self.right(node, &own, right, look)?;
            self.children(&own, &below, look)
        };
        compare(Self::peek).or_else(|_| compare(Self::copy))?;
        Ok(CheckedNode { level: own.level, entries: page.view().header().count as u64 })
    }

    /// The way from the root to a node's low fence comes to the node itself, and its parent's fences are its.
    fn parent(&self, node: NodeIndex, own: &Bounds, look: Look<Self, B>) -> Result<(), StructureViolation> {
        let mut at = NodeIndex::ROOT;
        loop {
            let page = look(self, at)?;
            let (level, low) = (page.view().header().level(), low_of(&page));
            if level <= own.level {
                return Err(StructureViolation::Orphan(node));
            }
            let mut below = Vec::new();
            announce(&page, &low, &mut below);
            let after = below.partition_point(|child| child.low <= own.low);
            let Some(child) = after.checked_sub(1).map(|child| &below[child]) else {
                return Err(StructureViolation::Orphan(node));
            };
            let is_there = child.node.get() < self.meganode.geometry.nodes();
            if level > own.level + 1 && is_there {
                let found = self.meganode.view::<B>(child.node).header().level();
                if found + 1 != level {
                    let (node, expected) = (child.node, level - 1);
                    return Err(StructureViolation::Level { node, level: found, expected });
                }
                at = child.node;
                continue;
            }
            if child.node != node {
                return Err(StructureViolation::Orphan(node));
            }
            let high = below.get(after).map(|next| next.low.clone()).or_else(|| high_of(&page));
            return joins(node, own, &Bounds { level: own.level, low: child.low.clone(), high });
        }
    }

    /// Each child is there, one level below, and its fences are the separators beside it.
    fn children(
        &self,
        own: &Bounds,
        below: &[Announced],
        look: Look<Self, B>,
    ) -> Result<(), StructureViolation> {
        for (i, child) in below.iter().enumerate() {
            let page = look(self, child.node)?;
            if page.view().header().state() != TreeNodeState::Valid {
                return Err(StructureViolation::Invalid(child.node));
            }
            let found =
                Bounds { level: page.view().header().level(), low: low_of(&page), high: high_of(&page) };
            let high = below.get(i + 1).map(|next| next.low.clone()).or_else(|| own.high.clone());
            let expected = Bounds { level: own.level.saturating_sub(1), low: child.low.clone(), high };
            joins(child.node, &found, &expected)?;
        }
        Ok(())
    }

    /// A right link leads to the neighbour on the same level, which begins where the node ends; at the end of
    /// the meganode it is the root's.
    fn right(
        &self,
        node: NodeIndex,
        own: &Bounds,
        right: Pointer,
        look: Look<Self, B>,
    ) -> Result<(), StructureViolation> {
        let root = look(self, NodeIndex::ROOT)?;
        if own.high == high_of(&root) {
            let is_root_s = right == root.view().right();
            return if is_root_s { Ok(()) } else { Err(StructureViolation::RightLink(node)) };
        }
        let neighbour = self.meganode.geometry.locate(right).filter(|(slot, _)| *slot == self.meganode.slot);
        let Some((_, neighbour)) = neighbour.filter(|(_, neighbour)| *neighbour != node) else {
            return Err(StructureViolation::RightLink(node));
        };
        let page = look(self, neighbour)?;
        let header = page.view().header();
        let is_beside = header.state() == TreeNodeState::Valid && header.level() == own.level;
        let joined = is_beside && Some(low_of(&page)) == own.high;
        if joined { Ok(()) } else { Err(StructureViolation::RightLink(node)) }
    }
}

/// How another node is read: [`Walk::peek`] or [`Walk::copy`].
type Look<K, const B: usize> = fn(&K, NodeIndex) -> Result<Page<B>, StructureViolation>;

/// Compares a node with what its parent says of it.
fn joins(node: NodeIndex, found: &Bounds, expected: &Bounds) -> Result<(), StructureViolation> {
    if found.level != expected.level {
        let (level, expected) = (found.level, expected.level);
        return Err(StructureViolation::Level { node, level, expected });
    }
    if found.low != expected.low {
        return Err(StructureViolation::LowFence(node));
    }
    if found.high != expected.high { Err(StructureViolation::HighFence(node)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Csn, RegionId, SlotIndex};

    use super::*;
    use crate::layout::{COUNT, RIGHT, WORD_BYTES};
    use crate::{BulkFrame, Geometry, LeafEntry, Slot, SlotAllocator, apply, bulk_build};

    const GEOMETRY: Geometry = match Geometry::new(512, 1 << 20, 0) {
        Ok(geometry) => geometry,
        Err(_) => panic!("good sizes"),
    };
    const SLOT: Slot = Slot { region: RegionId(2), index: SlotIndex(0) };

    /// The words of a meganode of three levels.
    fn filled() -> Vec<u64> {
        let mut words = vec![0; GEOMETRY.nodes() * GEOMETRY.node_words()];
        let mut allocator = SlotAllocator::new(GEOMETRY.nodes());
        let keys: Vec<_> = (0..2_000).map(|at| format!("some/prefix/{at:06}").into_bytes()).collect();
        let entries = keys.iter().map(|key| (&**key, LeafEntry { value_len: 1, ..LeafEntry::default() }));
        let mut emit = |change: crate::Change<'_>| apply(&mut words[..], GEOMETRY, SLOT, &change, Csn(1));
        bulk_build(GEOMETRY, SLOT, &BulkFrame::WHOLE, &mut allocator, entries, &mut emit)
            .expect("there is room");
        words
    }

    fn all() -> impl Iterator<Item = NodeIndex> {
        (0..u32::try_from(GEOMETRY.nodes()).expect("few")).map(NodeIndex)
    }

    fn meganode(words: &[u64]) -> Meganode<'_, [u64]> {
        Meganode::new(words, GEOMETRY, SLOT)
    }

    /// What is reported of a meganode, node by node.
    fn violations(words: &[u64]) -> Vec<StructureViolation> {
        all().filter_map(|node| meganode(words).validate_node(node).err()).collect()
    }

    fn word(node: NodeIndex, word: usize) -> usize {
        node.get() * GEOMETRY.node_words() + word
    }

    /// Two leaves that are neighbours and have another one behind them.
    fn neighbours(words: &[u64]) -> (NodeIndex, NodeIndex) {
        let mut copy = vec![0; GEOMETRY.node_words()];
        let leaf = all().skip(1).find_map(|node| {
            let found = meganode(words).copy_node(node, &mut copy).expect("nobody writes");
            let right = GEOMETRY.locate(found.right()).map(|(_, right)| right);
            right.filter(|_| found.is_valid() && found.level() == 0).map(|right| (node, right))
        });
        leaf.expect("there are leaves")
    }

    #[test]
    fn validate_node_of_all_agrees_with_the_check_of_the_whole_meganode() {
        let words = filled();
        let stats = meganode(&words).validate(true).unwrap();
        let checked = all().filter_map(|node| meganode(&words).validate_node(node).unwrap());
        let (mut nodes, mut entries) = (0, 0);
        for checked in checked {
            nodes += 1;
            entries += if checked.level == 0 { checked.entries } else { 0 };
        }
        assert_eq!((nodes, entries), (stats.nodes(), stats.entries));
        assert!(stats.height >= 3);
    }

    #[test]
    fn validate_node_reports_a_right_link_that_leads_elsewhere() {
        let mut words = filled();
        let (leaf, right) = neighbours(&words);
        words[word(leaf, RIGHT / WORD_BYTES)] = words[word(right, RIGHT / WORD_BYTES)];
        assert_eq!(violations(&words), [StructureViolation::RightLink(leaf)]);
    }

    #[test]
    fn validate_node_reports_a_leaf_that_was_exchanged_with_its_neighbour() {
        let mut words = filled();
        let (leaf, right) = neighbours(&words);
        for at in 0..GEOMETRY.node_words() {
            words.swap(word(leaf, at), word(right, at));
        }
        let violated = violations(&words);
        for node in [leaf, right] {
            assert!(violated.contains(&StructureViolation::Orphan(node)), "{violated:?}");
        }
        assert!(
            violated.contains(&StructureViolation::LowFence(leaf)),
            "the parent shows it, too: {violated:?}"
        );
    }

    #[test]
    fn validate_node_reports_a_child_that_is_free_and_a_node_that_no_parent_leads_to() {
        let mut words = filled();
        let (leaf, _) = neighbours(&words);
        let spare = all().find(|node| words[word(*node, 0)] == 0).unwrap();
        for at in 0..GEOMETRY.node_words() {
            words[word(spare, at)] = words[word(leaf, at)];
        }
        assert_eq!(violations(&words), [StructureViolation::Orphan(spare)]);
        for at in 0..GEOMETRY.node_words() {
            words[word(leaf, at)] = 0;
        }
        let violated = violations(&words);
        assert!(violated.contains(&StructureViolation::Invalid(leaf)), "{violated:?}");
    }

    #[test]
    fn validate_node_reports_bytes_that_are_no_node() {
        let mut words = filled();
        let (leaf, _) = neighbours(&words);
        words[word(leaf, COUNT / WORD_BYTES)] ^= 1 << (8 * (COUNT % WORD_BYTES));
        let violated = violations(&words);
        assert!(
            matches!(violated[..], [StructureViolation::Node { node, .. }, ..] if node == leaf),
            "{violated:?}"
        );
    }
}
