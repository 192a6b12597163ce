//! A live meganode as people look at it: the shape of each tree node, and the way to a key. It is read as by
//! any reader, beside the writer: each answer is of one moment of its tree node, together they are not.

use cell_terms::Words;

use crate::compose::SUFFIX_BUFFER;
use crate::geometry::NodeIndex;
use crate::layout::heap_end;
use crate::node::NodeRef;
use crate::probe::Probe;
use crate::search::{LeafAnswer, Meganode, ReadError, sized};
use crate::seek::Lookup;
use crate::state::TreeNodeState;
use crate::view::View;

/// What a tree node holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeShape {
    /// Whether it is in use. Of one that is free the rest is zero.
    pub state: TreeNodeState,
    /// Its level: 0 for leaves.
    pub level: u8,
    /// Entries.
    pub entries: usize,
    /// Bytes in use, header and fences included, garbage and free space not.
    pub used_bytes: usize,
}

/// A tree node on the way to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// The tree node.
    pub node: NodeIndex,
    /// Its level: 0 for the leaf.
    pub level: u8,
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// The shape of a tree node.
    ///
    /// # Errors
    /// [`ReadError::Retries`] if a writer was in the way as often as this reader tries.
    ///
    /// # Panics
    /// If the slot has no such node.
    pub fn node_shape(&self, node: NodeIndex) -> Result<NodeShape, ReadError> {
        assert!(node.get() < self.geometry.nodes(), "the slot has no {node}");
        let mut retries = 0;
        loop {
            let header = sized!(self.geometry, B => self.view::<B>(node).stable(View::header));
            let Some(header) = header else {
                self.retry_again(&mut retries)?;
                continue;
            };
            if !header.state().is_built() {
                return Ok(NodeShape::default());
            }
            let bytes = self.geometry.node_bytes();
            let heap = heap_end(bytes).saturating_sub(header.heap_low).saturating_sub(header.garbage);
            let used_bytes = header.arrays_end() + heap + (bytes - heap_end(bytes));
            let (state, level) = (header.state(), header.level());
            return Ok(NodeShape { state, level, entries: header.count, used_bytes });
        }
    }

    /// The tree nodes by which a search for a key goes, from the root to the leaf.
    ///
    /// # Errors
    /// See [`ReadError`]. That the key is not there is no error.
    pub fn path_to(&self, key: &[u8]) -> Result<Vec<PathStep>, ReadError> {
        self.check_key(key)?;
        let probe = Probe::new(key);
        let mut path: Vec<PathStep> = Vec::new();
        let passed = |node, level| {
            path.retain(|step| step.level > level); // what came before a new beginning led nowhere
            path.push(PathStep { node, level });
        };
        let leaf = sized!(self.geometry, B => self.descend::<B, _>(&probe, passed, |node, view, header| {
            match view.lookup(header, &probe) {
                Lookup::Hit(_) | Lookup::Miss => LeafAnswer::Here(node),
                Lookup::Right(right) => LeafAnswer::Right(right),
                Lookup::Restart => LeafAnswer::Restart,
            }
        }))?;
        path.push(PathStep { node: leaf, level: 0 });
        Ok(path)
    }
}

impl NodeRef<'_> {
    /// The first keys of a node in use, at most so many: of a leaf its entries', of an inner node the lowest
    /// that each child may have.
    #[must_use]
    pub fn keys(&self, most: usize) -> Vec<Vec<u8>> {
        if !self.state().is_built() {
            return Vec::new();
        }
        let low = self.low();
        sized!(self.geometry, B => {
            let view = View::<[u64], B>::new(self.words, 0);
            let header = view.header();
            let key = |i| {
                if i == 0 && header.is_inner() {
                    return low.clone();
                }
                let mut suffix = [0; SUFFIX_BUFFER];
                let len = view.suffix(&header, i, &mut suffix);
                [&low[..header.prefix.min(low.len())], &suffix[..len]].concat()
            };
            (0..header.count.min(most)).map(key).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Csn, RegionId, SlotIndex};

    use super::*;
    use crate::{BulkFrame, Geometry, LeafEntry, Slot, SlotAllocator, apply, bulk_build};

    const GEOMETRY: Geometry = match Geometry::new(512, 1 << 20, 0) {
        Ok(geometry) => geometry,
        Err(_) => panic!("good sizes"),
    };

    fn key(at: u32) -> Vec<u8> {
        format!("some/prefix/{at:06}").into_bytes()
    }

    /// The words of a meganode with so many keys.
    fn filled(count: u32) -> Vec<u64> {
        let slot = Slot { region: RegionId(2), index: SlotIndex(0) };
        let mut words = vec![0; GEOMETRY.nodes() * GEOMETRY.node_words()];
        let mut allocator = SlotAllocator::new(GEOMETRY.nodes());
        let keys: Vec<_> = (0..count).map(key).collect();
        let entries = keys.iter().map(|key| (&**key, LeafEntry { value_len: 1, ..LeafEntry::default() }));
        let mut emit = |change: crate::Change<'_>| apply(&mut words[..], GEOMETRY, slot, &change, Csn(1));
        bulk_build(GEOMETRY, slot, &BulkFrame::WHOLE, &mut allocator, entries, &mut emit).unwrap();
        words
    }

    #[test]
    fn survey_agrees_with_the_check_of_the_whole_meganode() {
        let words = filled(2_000);
        let meganode = Meganode::new(&words[..], GEOMETRY, Slot { region: RegionId(2), index: SlotIndex(0) });
        let stats = meganode.validate(true).unwrap();
        let mut levels = vec![crate::LevelStats::default(); stats.levels.len()];
        for node in (0..u32::try_from(GEOMETRY.nodes()).unwrap()).map(NodeIndex) {
            let shape = meganode.node_shape(node).unwrap();
            if shape.state.is_built() {
                let level = &mut levels[usize::from(shape.level)];
                level.nodes += 1;
                level.entries += shape.entries as u64;
                level.used_bytes += shape.used_bytes as u64;
            }
        }
        let counts = |levels: &[crate::LevelStats]| {
            levels.iter().map(|of| (of.nodes, of.entries, of.used_bytes)).collect::<Vec<_>>()
        };
        assert_eq!(counts(&levels), counts(&stats.levels));
        assert!(stats.height >= 3);
    }

    #[test]
    fn path_leads_level_by_level_to_the_leaf_that_has_the_key() {
        let words = filled(2_000);
        let meganode = Meganode::new(&words[..], GEOMETRY, Slot { region: RegionId(2), index: SlotIndex(0) });
        for at in [0, 777, 1_999] {
            let path = meganode.path_to(&key(at)).unwrap();
            let levels: Vec<_> = path.iter().map(|step| step.level).collect();
            assert_eq!(levels, (0..meganode.validate(false).unwrap().height).rev().collect::<Vec<_>>());
            assert_eq!(path[0].node, NodeIndex::ROOT);
            let mut copy = vec![0; GEOMETRY.node_words()];
            let below = path.windows(2).map(|pair| (pair[0].node, pair[1].node));
            for (parent, child) in below {
                let parent = meganode.copy_node(parent, &mut copy).unwrap();
                let keys = parent.keys(usize::MAX);
                let place = keys.partition_point(|low| **low <= *key(at)) - 1;
                assert_eq!(parent.child(place), Some(child));
            }
            let leaf = meganode.copy_node(path[path.len() - 1].node, &mut copy).unwrap();
            assert!(leaf.keys(usize::MAX).contains(&key(at)));
            assert_eq!(leaf.keys(1).len(), 1);
        }
        assert!(meganode.path_to(b"").is_err());
    }
}
