//! Walking down a tree by copied nodes: what is looked for, and where a node says that it lies.
//!
//! [`NodeRef::step`] answers for one key; scans and routers look for more than keys, and a router is asked
//! for the last of its entries that is not above a key.

use std::cmp::Ordering;

use cell_terms::Pointer;

use crate::geometry::NodeIndex;
use crate::layout::kind_of;
use crate::node::NodeRef;
use crate::probe::Probe;
use crate::scan::{Heading, Target, heading};
use crate::search::sized;
use crate::view::{LeafEntry, View};

/// What a walk down the tree looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim<'k> {
    /// The first leaf.
    First,
    /// The leaf whose range has the key.
    At(&'k [u8]),
    /// The leaf whose range has the keys just below the bound.
    Below(&'k [u8]),
    /// The last leaf.
    Last,
}

/// Where a copied node says that an aim lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Under this node of the same slot, one level down.
    Child(NodeIndex),
    /// At this node of the same level, or beyond; the parent that led here is stale.
    Right(Pointer),
    /// In this leaf.
    Leaf,
    /// The node is invalid or was reused: the way here was stale.
    NotHere,
}

impl Aim<'_> {
    fn target(&self) -> Target<'_> {
        match self {
            Aim::First => Target::First,
            Aim::At(key) => Target::At(Probe::new(key)),
            Aim::Below(bound) => Target::Below(Probe::new(bound)),
            Aim::Last => Target::Last,
        }
    }
}

impl NodeRef<'_> {
    /// Where an aim lies, as seen from this node.
    #[must_use]
    pub fn way(&self, aim: Aim<'_>) -> Way {
        let geometry = self.geometry();
        sized!(geometry, B => {
            let view = View::<[u64], B>::new(self.words(), 0);
            let header = view.header();
            let right = |right: Pointer| if right.is_null() { Way::NotHere } else { Way::Right(right) };
            match heading(&view, &header, kind_of(header.role(), header.level()), &aim.target()) {
                Heading::Down(child) if child.get() < geometry.nodes() => Way::Child(child),
                Heading::Right(pointer) => right(pointer),
                // A split whose parent does not know yet.
                Heading::Here if aim == Aim::Last && !view.right().is_null() => right(view.right()),
                Heading::Here => Way::Leaf,
                Heading::Down(_) | Heading::Below | Heading::Restart => Way::NotHere,
            }
        })
    }

    /// The entry of a leaf that an aim comes to from below: the last that is not above the key or below the
    /// bound, the first, the last. `None` if the leaf has no such entry, or is none.
    #[must_use]
    pub fn predecessor(&self, aim: Aim<'_>) -> Option<LeafEntry> {
        if !self.is_valid() || self.level() != 0 {
            return None;
        }
        sized!(self.geometry(), B => {
            let view = View::<[u64], B>::new(self.words(), 0);
            let header = view.header();
            let above = match aim.target() {
                Target::First => header.count.min(1),
                Target::Last => header.count,
                Target::At(key) | Target::Below(key) if !view.begins_with_prefix(header.prefix, &key) => {
                    let all = view.compare_low(&header, &key) == Ordering::Less;
                    if all { header.count } else { 0 }
                }
                Target::At(key) => {
                    let (at, same) = view.find(&header, &key, key.window(header.prefix));
                    at + usize::from(same.is_some())
                }
                Target::Below(bound) => view.find(&header, &bound, bound.window(header.prefix)).0,
            };
            let at = above.checked_sub(1).filter(|&at| at < header.count)?;
            Some(view.leaf_entry(&view.cell(&header, at)))
        })
    }
}
