//! Splitting a meganode in two: where, and what changes in the half that stays.
//!
//! The right half is built anew in another slot. What stays is truncated at one key: on each level one
//! *boundary* node, the root among them, gets the key as its high fence and a right link to the new
//! meganode's root, whatever its level is, and all nodes right of it become free. The key is a fence between
//! two leaves, and such a fence never goes away, so a plan can be made for it at any later time. Where no
//! fence divides what is to be divided (a leaf of values of megabytes may be all that there is), the leaf is
//! split first ([`crate::plan_fence`]).

use cell_terms::Words;

use crate::fence::Side;
use crate::geometry::NodeIndex;
use crate::layout::common_prefix;
use crate::plan::PlanError;
use crate::probe::Probe;
use crate::search::{Meganode, sized};
use crate::view::{Header, LeafEntry, View};

/// Leaves that are weighed for one division at most.
const WEIGHED_MAX: usize = 256;
/// A fence is good enough if what it leaves on the right differs by less than this part from what is wanted.
const FENCE_PART: u64 = 8;

/// Tree nodes of a slot, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet {
    bytes: Vec<u8>,
}

/// Tree nodes of a slot, as bits that somebody else holds: the lowest bit of the first byte stands for the
/// tree node `first`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBits<'a> {
    /// A multiple of eight.
    pub first: u32,
    /// Eight tree nodes a byte, lowest bit first.
    pub bytes: &'a [u8],
}

impl NodeSet {
    /// Adds a tree node.
    pub fn insert(&mut self, node: NodeIndex) {
        let at = node.get() / 8;
        if at >= self.bytes.len() {
            self.bytes.resize(at + 1, 0);
        }
        self.bytes[at] |= 1 << (node.0 % 8);
    }

    /// The bits from the first set one's byte to the last one's.
    #[must_use]
    pub fn bits(&self) -> NodeBits<'_> {
        let begin = self.bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
        let end = self.bytes.iter().rposition(|byte| *byte != 0).map_or(begin, |last| last + 1);
        NodeBits { first: u32::try_from(begin * 8).unwrap_or(u32::MAX), bytes: &self.bytes[begin..end] }
    }
}

impl<'a> NodeBits<'a> {
    /// The tree nodes, ascending. Those past what a number can say are left out.
    pub fn iter(self) -> impl Iterator<Item = NodeIndex> + Clone + 'a {
        let at = move |byte: usize| u32::try_from(byte).ok()?.checked_mul(8)?.checked_add(self.first);
        self.bytes
            .iter()
            .enumerate()
            .filter(|(_, bits)| **bits != 0)
            .flat_map(move |(byte, bits)| {
                (0..8)
                    .filter(move |bit| bits & 1 << bit != 0)
                    .filter_map(move |bit| at(byte)?.checked_add(bit))
            })
            .map(NodeIndex)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }
}

/// What truncating a meganode at a key changes in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitPlan {
    /// The boundary nodes, the root first, one a level: each takes a [`crate::Change::Truncate`] at the key.
    pub boundary: Vec<NodeIndex>,
    /// The right half's tree nodes: each takes a [`crate::Change::Mark`] as free, after the truncations.
    pub freed: NodeSet,
    /// The leaves among them in key order: their entries' extents become free with them.
    pub leaves: Vec<NodeIndex>,
}

/// A key at which a meganode can be divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The keys from here on are the right part.
    pub key: Vec<u8>,
    /// Whether it is a fence between two leaves. If not, [`crate::plan_fence`] makes it one.
    pub fenced: bool,
    /// What the right part weighs; about, where there are many leaves.
    pub weight: u64,
}

/// The lowest inner nodes in key order, each with the number of its first leaf, and how many leaves there
/// are. A root that is a leaf is the only one.
struct Leaves {
    parents: Vec<(usize, NodeIndex)>,
    count: usize,
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// A key to split at: the fence between two leaves that leaves about so many percent of the leaves on the
    /// left; `None` if there is only one leaf. For the meganode's writer.
    ///
    /// # Errors
    /// [`PlanError::Damaged`].
    pub fn split_key(&self, left_percent: usize) -> Result<Option<Vec<u8>>, PlanError> {
        sized!(self.geometry, B => self.split_key_sized::<B>(left_percent))
    }

    fn split_key_sized<const B: usize>(&self, left_percent: usize) -> Result<Option<Vec<u8>>, PlanError> {
        let leaves = self.leaves::<B>()?;
        if leaves.count < 2 {
            return Ok(None);
        }
        let leaf = (leaves.count * left_percent.min(100) / 100).clamp(1, leaves.count - 1);
        Ok(Some(self.low_of_leaf::<B>(&leaves, leaf)))
    }

    fn leaves<const B: usize>(&self) -> Result<Leaves, PlanError> {
        let root = self.view::<B>(NodeIndex::ROOT).header();
        if !root.is_inner() {
            return Ok(Leaves { parents: Vec::new(), count: 1 });
        }
        let mut nodes = vec![NodeIndex::ROOT];
        for level in (2..=root.level()).rev() {
            let mut below = Vec::new();
            for node in nodes {
                let header = self.inner::<B>(node, level)?;
                below.extend((0..header.count).map(|i| self.view::<B>(node).child(&header, i)));
            }
            nodes = below;
        }
        let mut count = 0;
        let mut parents = Vec::with_capacity(nodes.len());
        for node in nodes {
            let header = self.inner::<B>(node, 1)?;
            parents.push((count, node));
            count += header.count;
        }
        Ok(Leaves { parents, count })
    }

    /// Parent of a leaf, and the leaf's place in it.
    fn parent_of_leaf(leaves: &Leaves, leaf: usize) -> Option<(NodeIndex, usize)> {
        let at = leaves.parents.partition_point(|(begin, _)| *begin <= leaf).checked_sub(1)?;
        let (begin, node) = leaves.parents[at];
        Some((node, leaf - begin))
    }

    fn low_of_leaf<const B: usize>(&self, leaves: &Leaves, leaf: usize) -> Vec<u8> {
        let Some((parent, at)) = Self::parent_of_leaf(leaves, leaf) else { return Vec::new() };
        let view = self.view::<B>(parent);
        low_of_child(&view, &view.header(), at)
    }

    /// A leaf that must be one.
    fn leaf_of<const B: usize>(
        &self,
        leaves: &Leaves,
        leaf: usize,
    ) -> Result<(View<'_, W, B>, Header), PlanError> {
        let node = match Self::parent_of_leaf(leaves, leaf) {
            Some((parent, at)) => {
                let view = self.view::<B>(parent);
                view.child(&view.header(), at)
            }
            None => NodeIndex::ROOT,
        };
        if node.get() >= self.nodes {
            return Err(PlanError::Damaged(node));
        }
        let view = self.view::<B>(node);
        let header = view.header();
        if header.is_inner() || !header.state().is_built() {
            return Err(PlanError::Damaged(node));
        }
        Ok((view, header))
    }

    /// A key to split at, so that what is at or above it weighs about `wanted`: a fence between two leaves if
    /// one comes near that, else a key within a leaf. `None` if there is one entry at the most. Of many
    /// leaves a sample is weighed. For the meganode's writer.
    ///
    /// # Errors
    /// [`PlanError::Damaged`].
    pub fn division(
        &self,
        wanted: u64,
        mut weigh: impl FnMut(&LeafEntry) -> u64,
    ) -> Result<Option<Division>, PlanError> {
        sized!(self.geometry, B => self.division_sized::<B>(wanted, &mut weigh))
    }

    fn division_sized<const B: usize>(
        &self,
        wanted: u64,
        weigh: &mut dyn FnMut(&LeafEntry) -> u64,
    ) -> Result<Option<Division>, PlanError> {
        let leaves = self.leaves::<B>()?;
        let stride = leaves.count.div_ceil(WEIGHED_MAX).max(1);
        let (mut right, mut beyond, mut cut) = (0_u64, 0, 0);
        let mut fence: Option<(u64, usize)> = None;
        for leaf in (0..leaves.count).step_by(stride).rev() {
            let (view, header) = self.leaf_of::<B>(&leaves, leaf)?;
            let weight: u64 =
                (0..header.count).map(|i| weigh(&view.leaf_entry(&view.cell(&header, i)))).sum();
            let alike = u64::try_from(stride.min(leaves.count - leaf)).unwrap_or(1);
            (beyond, cut) = (right, leaf);
            right = right.saturating_add(weight.saturating_mul(alike));
            let nearer = fence.is_none_or(|(other, _)| right.abs_diff(wanted) < other.abs_diff(wanted));
            if leaf > 0 && nearer {
                fence = Some((right, leaf));
            }
            if right >= wanted {
                break;
            }
        }
        let good = fence.is_some_and(|(weight, _)| weight.abs_diff(wanted) <= wanted / FENCE_PART);
        if !good && stride == 1 {
            let within = self.division_within::<B>(&leaves, cut, (wanted, beyond), weigh)?;
            let nearer = |division: &Division| {
                fence.is_none_or(|(weight, _)| division.weight.abs_diff(wanted) < weight.abs_diff(wanted))
            };
            if let Some(division) = within.filter(nearer) {
                return Ok(Some(division));
            }
        }
        Ok(fence.map(|(weight, leaf)| Division {
            key: self.low_of_leaf::<B>(&leaves, leaf),
            fenced: true,
            weight,
        }))
    }

    /// The key within a leaf that comes nearest, `beyond` being the weight right of the leaf.
    fn division_within<const B: usize>(
        &self,
        leaves: &Leaves,
        leaf: usize,
        (wanted, beyond): (u64, u64),
        weigh: &mut dyn FnMut(&LeafEntry) -> u64,
    ) -> Result<Option<Division>, PlanError> {
        let (view, header) = self.leaf_of::<B>(leaves, leaf)?;
        let mut weight = beyond;
        let mut best: Option<(u64, usize)> = None;
        for i in (1..header.count).rev() {
            weight = weight.saturating_add(weigh(&view.leaf_entry(&view.cell(&header, i))));
            if best.is_none_or(|(other, _)| weight.abs_diff(wanted) < other.abs_diff(wanted)) {
                best = Some((weight, i));
            }
        }
        let Some((weight, at)) = best else { return Ok(None) };
        let suffix = |i: usize| {
            let mut suffix = Vec::new();
            view.append_suffix(&header, i, &view.cell(&header, i), &mut suffix);
            suffix
        };
        let (before, mut behind) = (suffix(at - 1), suffix(at));
        behind.truncate(common_prefix(&before, &behind) + 1);
        let mut key = vec![0; header.low_len.min(B)];
        view.low(&header, &mut key);
        key.truncate(header.prefix);
        key.append(&mut behind);
        Ok(Some(Division { key, fenced: false, weight }))
    }

    /// An inner node that must be of this level.
    pub(crate) fn inner<const B: usize>(&self, node: NodeIndex, level: u8) -> Result<Header, PlanError> {
        if node.get() >= self.nodes {
            return Err(PlanError::Damaged(node));
        }
        let header = self.view::<B>(node).header();
        let sound =
            header.state().is_built() && header.level() == level && header.is_inner() && header.count > 0;
        if sound { Ok(header) } else { Err(PlanError::Damaged(node)) }
    }

    /// Plans to truncate the meganode at a key: for its writer, good until the next change.
    ///
    /// # Errors
    /// [`PlanError::NoBoundary`] if the key is not a fence between two leaves, [`PlanError::Damaged`], and
    /// [`crate::ReadError::KeyLength`].
    pub fn plan_meganode_split(&self, key: &[u8]) -> Result<SplitPlan, PlanError> {
        self.check_key(key)?;
        sized!(self.geometry, B => self.plan_split_sized::<B>(&Probe::new(key)))
    }

    fn plan_split_sized<const B: usize>(&self, key: &Probe<'_>) -> Result<SplitPlan, PlanError> {
        let mut plan = SplitPlan::default();
        let mut node = NodeIndex::ROOT;
        let mut level = self.view::<B>(node).header().level();
        while level > 0 {
            let header = self.inner::<B>(node, level)?;
            let view = self.view::<B>(node);
            let at = match view.side(&header, key) {
                Side::Here(window) => view.route_below(&header, key, window),
                Side::Right if view.compare_high(&header, key).is_eq() => header.count - 1,
                Side::Right | Side::Below => return Err(off_boundary(node)),
            };
            if view.compare_low(&header, key).is_ge() {
                return Err(off_boundary(node));
            }
            plan.boundary.push(node);
            for i in at + 1..header.count {
                self.free_subtree::<B>(view.child(&header, i), level - 1, &mut plan)?;
            }
            node = view.child(&header, at);
            level -= 1;
        }
        if node.get() >= self.nodes || node == NodeIndex::ROOT {
            return Err(off_boundary(node));
        }
        let view = self.view::<B>(node);
        let header = view.header();
        if header.is_inner() || !header.state().is_built() {
            return Err(PlanError::Damaged(node));
        }
        if !view.compare_high(&header, key).is_eq() {
            return Err(PlanError::NoBoundary);
        }
        plan.boundary.push(node);
        Ok(plan)
    }

    fn free_subtree<const B: usize>(
        &self,
        node: NodeIndex,
        level: u8,
        plan: &mut SplitPlan,
    ) -> Result<(), PlanError> {
        if node.get() >= self.nodes || node == NodeIndex::ROOT {
            return Err(PlanError::Damaged(node));
        }
        plan.freed.insert(node);
        if level == 0 {
            plan.leaves.push(node);
            return Ok(());
        }
        let header = self.inner::<B>(node, level)?;
        let view = self.view::<B>(node);
        (0..header.count).try_for_each(|i| self.free_subtree::<B>(view.child(&header, i), level - 1, plan))
    }
}

/// The root is where a caller's key is wrong; below it, a parent has led to the wrong node.
fn off_boundary(node: NodeIndex) -> PlanError {
    if node == NodeIndex::ROOT { PlanError::NoBoundary } else { PlanError::Damaged(node) }
}

/// The low fence of a child: the separator in front of it.
pub(crate) fn low_of_child<W: Words + ?Sized, const B: usize>(
    view: &View<'_, W, B>,
    header: &Header,
    i: usize,
) -> Vec<u8> {
    let mut low = vec![0; header.low_len.min(B)];
    view.low(header, &mut low);
    if i > 0 {
        low.truncate(header.prefix);
        view.append_suffix(header, i, &view.cell(header, i), &mut low);
    }
    low
}
