//! One walk down the tree, node by node: through the router, if there is one, and down a meganode to a leaf.
//!
//! Each node is looked at on its own, in the cache or in a copy that a read brought: versions, valid flag,
//! level and fences are checked, then the walk goes down, right, or begins again at the root. A right link
//! that leads to another slot leads to that meganode's root tree node, where the walk goes on as if it had
//! come from a router.

use cell_terms::{Pointer, Root};
use cell_tree::{Aim, LeafSnapshot, MeganodeRole, NodeRef, NodeStep, SearchResult, Way};

use super::regions::{NodeLocation, Regions};
use crate::mutant::{Mutant, planted};

/// Levels of router and meganode together are far fewer.
const PARENTS_MAX: usize = 24;

/// Right links that one walk follows: a chain of nodes without parents is short; a longer one is a loop.
const RIGHT_LINKS_MAX: u32 = 64;

/// Where a walk is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    at: Option<NodeLocation>,
    /// The level that the node must have; none at a meganode's root.
    level: Option<u8>,
    /// Whether this is the router.
    router: bool,
    /// The router's leaf had no entry for the aim: it is in the leaves before this fence.
    before: Option<Vec<u8>>,
    /// The nodes that led here.
    parents: Vec<Pointer>,
    right_links: u32,
}

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeOutcome {
    /// The walk has come to another node.
    Descend,
    /// The leaf's answer about a key.
    Leaf(SearchResult),
    /// The leaf is in the snapshot.
    Snapshot,
    /// The walk took a right link: the parent is stale.
    RightLink { parent: Option<Pointer> },
    /// A writer was at work: read it again.
    Torn,
    /// The node is not valid, or not what was meant: begin again.
    Invalid,
    /// The node does not cover the aim: begin again.
    Fence,
    /// The node leads to a region that is not known.
    RegionUnknown,
}

/// What a walk looks for.
pub(crate) enum WalkTarget<'a> {
    /// The entry of a key.
    Entry(&'a [u8]),
    /// The whole leaf at an aim.
    Snapshot(Aim<'a>, &'a mut LeafSnapshot),
}

impl WalkTarget<'_> {
    fn aim(&self) -> Aim<'_> {
        match self {
            WalkTarget::Entry(key) => Aim::At(key),
            WalkTarget::Snapshot(aim, _) => *aim,
        }
    }
}

impl Walk {
    /// Begins at the root; false if the root is not there.
    pub(crate) fn begin(&mut self, root: Root, regions: &Regions) -> bool {
        self.right_links = 0;
        self.enter(root.pointer, root.router, regions)
    }

    /// Begins at a node that a right link names: a leaf of the same slot, or another meganode's root.
    pub(crate) fn begin_right_of(
        &mut self,
        from: &NodeLocation,
        pointer: Pointer,
        regions: &Regions,
    ) -> bool {
        let Some(location) = regions.locate(pointer) else { return false };
        let level = (location.slot == from.slot).then_some(0);
        *self = Walk { at: Some(location), level, ..Walk::default() };
        true
    }

    fn enter(&mut self, pointer: Pointer, router: bool, regions: &Regions) -> bool {
        self.at = regions.locate(pointer);
        self.level = None;
        self.router = router;
        self.before = None;
        self.parents.clear();
        self.at.is_some()
    }

    /// The node that is looked at next.
    pub(crate) fn location(&self) -> Option<&NodeLocation> {
        self.at.as_ref()
    }

    pub(crate) fn pointer(&self, regions: &Regions) -> Option<Pointer> {
        let location = self.at.as_ref()?;
        Some(regions.pair(location.pair).geometry.pointer(location.slot, location.node))
    }

    /// Whether the node may be looked at in the cache: all but the leaves with entries.
    pub(crate) fn is_above_leaves(&self) -> bool {
        self.router || self.level != Some(0)
    }

    /// Whether it has not come to a meganode of entries yet.
    pub(crate) fn is_in_router(&self) -> bool {
        self.router
    }

    /// The nodes that led here.
    pub(crate) fn parents(&self) -> &[Pointer] {
        &self.parents
    }

    /// Visits a copy of the node where the walk is.
    pub(crate) fn visit(
        &mut self,
        words: &[u64],
        cached: bool,
        target: WalkTarget<'_>,
        regions: &Regions,
    ) -> NodeOutcome {
        let Some(location) = self.at else { return NodeOutcome::Invalid };
        let geometry = regions.pair(location.pair).geometry;
        // What is in the cache was checked when it came.
        let geometry = if cached { geometry.with_node_crc(false) } else { geometry };
        let Ok(node) = NodeRef::new(geometry, location.node, words) else { return NodeOutcome::Torn };
        let role = if self.router { MeganodeRole::Router } else { MeganodeRole::Data };
        let is_of_role = node.is_of(role) || planted(Mutant::WalkRoleUnasked);
        let meant = is_of_role && self.level.is_none_or(|level| level == node.level());
        if !node.is_valid() || !meant {
            return NodeOutcome::Invalid;
        }
        if cached && node.level() == 0 && !self.router {
            return NodeOutcome::Invalid;
        }
        if self.router {
            return self.visit_router(&node, &location, target.aim(), regions);
        }
        match target {
            WalkTarget::Entry(key) => match node.step(key) {
                NodeStep::Child(child) => self.descend(&location, child, node.level(), regions),
                NodeStep::Right(pointer) => self.follow_right_link(&location, pointer, node.level(), regions),
                NodeStep::Leaf(found) => NodeOutcome::Leaf(found),
                NodeStep::NotHere => NodeOutcome::Fence,
            },
            WalkTarget::Snapshot(aim, leaf) => match node.way(aim) {
                Way::Child(child) => self.descend(&location, child, node.level(), regions),
                Way::Right(pointer) => self.follow_right_link(&location, pointer, node.level(), regions),
                Way::Leaf if node.snapshot(leaf) => NodeOutcome::Snapshot,
                Way::Leaf | Way::NotHere => NodeOutcome::Fence,
            },
        }
    }

    fn visit_router(
        &mut self,
        node: &NodeRef<'_>,
        location: &NodeLocation,
        aim: Aim<'_>,
        regions: &Regions,
    ) -> NodeOutcome {
        let aim = self.before.as_deref().map_or(aim, Aim::Below);
        match (node.way(aim), node.predecessor(aim)) {
            (Way::Child(child), _) => self.descend(location, child, node.level(), regions),
            (Way::Right(pointer), _) => self.follow_right_link(location, pointer, node.level(), regions),
            (Way::Leaf, Some(entry)) => {
                let router_leaf = regions.pair(location.pair).geometry.pointer(location.slot, location.node);
                let pointer = entry.meganode();
                if !self.enter(pointer, false, regions) {
                    return unlocated(pointer, regions);
                }
                self.parents.push(router_leaf);
                NodeOutcome::Descend
            }
            (Way::Leaf, None) => {
                let low = node.low();
                let Some(root) = self.parents.first().copied().filter(|_| !low.is_empty()) else {
                    return NodeOutcome::Fence;
                };
                let entered = self.enter(root, true, regions);
                self.before = Some(low);
                if entered { NodeOutcome::Descend } else { NodeOutcome::Invalid }
            }
            (Way::NotHere, _) => NodeOutcome::Fence,
        }
    }

    fn descend(
        &mut self,
        location: &NodeLocation,
        child: cell_tree::NodeIndex,
        level: u8,
        regions: &Regions,
    ) -> NodeOutcome {
        let Some(below) = level.checked_sub(1) else { return NodeOutcome::Invalid };
        if self.parents.len() >= PARENTS_MAX {
            return NodeOutcome::Invalid;
        }
        self.parents.push(regions.pair(location.pair).geometry.pointer(location.slot, location.node));
        self.at = Some(NodeLocation { node: child, ..*location });
        self.level = Some(below);
        NodeOutcome::Descend
    }

    fn follow_right_link(
        &mut self,
        location: &NodeLocation,
        pointer: Pointer,
        level: u8,
        regions: &Regions,
    ) -> NodeOutcome {
        let Some(right) = regions.locate(pointer) else { return unlocated(pointer, regions) };
        self.right_links += 1;
        if self.right_links > RIGHT_LINKS_MAX {
            return NodeOutcome::Fence;
        }
        self.level = (right.slot == location.slot).then_some(level);
        self.at = Some(right);
        NodeOutcome::RightLink { parent: self.parents.last().copied() }
    }
}

/// A pointer that names no location.
fn unlocated(pointer: Pointer, regions: &Regions) -> NodeOutcome {
    if regions.knows(pointer) { NodeOutcome::Invalid } else { NodeOutcome::RegionUnknown }
}

#[cfg(test)]
mod tests {
    use cell_protocol::{PairRegions, RegionRows, RegionsReply};
    use cell_terms::{Epoch, PairId};
    use cell_tree::NodeIndex;

    use super::*;
    use crate::link_id::LinkId;
    use crate::onesided::regions::Reported;

    const SLOT_BYTES: u64 = 64 << 10;
    const NODE_BYTES: u32 = 512;

    /// One pair of two slots.
    fn regions() -> Regions {
        let pair = PairId(1);
        let row = PairRegions {
            pair,
            epoch: Epoch(1),
            node_region: pair.node_region(),
            extent_region: pair.extent_region(),
            node_region_bytes: 4096 + 2 * SLOT_BYTES,
            slot_bytes: SLOT_BYTES,
            tree_node_bytes: NODE_BYTES,
            header_bytes: 4096,
            ..PairRegions::default()
        };
        let pairs = RegionRows::List(std::slice::from_ref(&row));
        let reply = RegionsReply { reads_permitted: true, one_sided_max_us: 200_000, list: 1, pairs };
        let mut regions = Regions::default();
        regions.add(Reported::new(LinkId(1), &reply, true).unwrap());
        regions
    }

    fn node(slot: u64, index: u64) -> Pointer {
        Pointer::new(PairId(1).node_region(), 4096 + slot * SLOT_BYTES + index * u64::from(NODE_BYTES))
    }

    /// Of memory that is damaged, or was used again: the client would read for ever.
    #[test]
    fn right_links_that_lead_in_a_circle_have_an_end() {
        let (regions, mut walk) = (regions(), Walk::default());
        assert!(walk.begin(Root { pointer: node(0, 1), router: false }, &regions));
        for followed in 0..=RIGHT_LINKS_MAX {
            let at = *walk.location().unwrap();
            let outcome = walk.follow_right_link(&at, node(0, u64::from(followed % 2)), 0, &regions);
            let is_last = followed == RIGHT_LINKS_MAX;
            let expected = if is_last { NodeOutcome::Fence } else { NodeOutcome::RightLink { parent: None } };
            assert_eq!(outcome, expected, "{followed}");
        }
    }

    /// The cache forgets them when they have led astray. Those that stayed would lead there again and again.
    #[test]
    fn nodes_that_led_to_a_leaf_are_known_until_the_walk_begins_anew() {
        let (regions, mut walk) = (regions(), Walk::default());
        let root = Root { pointer: node(0, 0), router: false };
        assert!(walk.begin(root, &regions));
        for (level, child) in [(2, 3), (1, 4)] {
            let at = *walk.location().unwrap();
            assert_eq!(walk.descend(&at, NodeIndex(child), level, &regions), NodeOutcome::Descend);
        }
        assert_eq!(walk.parents(), [node(0, 0), node(0, 3)]);
        assert_eq!((walk.pointer(&regions), walk.is_above_leaves()), (Some(node(0, 4)), false));
        assert!(walk.begin(root, &regions) && walk.parents().is_empty() && walk.is_above_leaves());
    }

    /// A leaf must be read anew, and a meganode's root may be no leaf.
    #[test]
    fn walk_to_the_right_begins_at_a_leaf_of_the_same_slot_or_at_another_meganodes_root() {
        let (regions, mut walk) = (regions(), Walk::default());
        let from = regions.locate(node(0, 5)).unwrap();
        assert!(walk.begin_right_of(&from, node(0, 6), &regions) && !walk.is_above_leaves());
        assert!(walk.begin_right_of(&from, node(1, 0), &regions) && walk.is_above_leaves());
        assert_eq!(walk.pointer(&regions), Some(node(1, 0)));
        let unknown = Pointer::new(PairId(9).node_region(), 4096);
        assert!(!walk.begin_right_of(&from, unknown, &regions));
    }
}
