//! What a tree node is to readers and to its owner.

use crate::layout::{FLAG_HIDDEN, FLAG_VALID};

/// Whether a tree node is in use, and whether readers may see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TreeNodeState {
    /// Not in use.
    #[default]
    Free,
    /// Built, and no reader's business yet: part of a meganode whose split is not settled.
    Hidden,
    /// Readers may use it.
    Valid,
}

impl TreeNodeState {
    /// What the kind byte says. Both flags together are a damaged node, which nobody may use.
    #[inline(always)]
    pub(crate) const fn of(kind: u8) -> TreeNodeState {
        match kind & (FLAG_VALID | FLAG_HIDDEN) {
            FLAG_VALID => TreeNodeState::Valid,
            FLAG_HIDDEN => TreeNodeState::Hidden,
            _ => TreeNodeState::Free,
        }
    }

    /// A kind byte with this state.
    #[inline(always)]
    pub(crate) const fn mark(self, kind: u8) -> u8 {
        let flag = match self {
            TreeNodeState::Free => 0,
            TreeNodeState::Hidden => FLAG_HIDDEN,
            TreeNodeState::Valid => FLAG_VALID,
        };
        kind & !(FLAG_VALID | FLAG_HIDDEN) | flag
    }

    /// Whether the tree node is in use.
    #[must_use]
    pub const fn is_built(self) -> bool {
        !matches!(self, TreeNodeState::Free)
    }
}
