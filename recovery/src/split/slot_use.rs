//! What a slot of a node region holds.

use cell_tree::MeganodeRole;

/// What a slot of a node region holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotUse {
    /// Nothing.
    #[default]
    Free,
    /// A meganode of entries; perhaps one that is being adopted.
    Leaf,
    /// A meganode whose entries lead to meganodes.
    Router,
}

impl SlotUse {
    pub(crate) const fn to_byte(self) -> u8 {
        match self {
            SlotUse::Free => 0,
            SlotUse::Leaf => 1,
            SlotUse::Router => 2,
        }
    }

    /// The role of the meganode that a slot of this use holds.
    #[must_use]
    pub const fn role(self) -> MeganodeRole {
        match self {
            SlotUse::Free | SlotUse::Leaf => MeganodeRole::Data,
            SlotUse::Router => MeganodeRole::Router,
        }
    }

    pub(crate) const fn from_byte(byte: u8) -> Option<SlotUse> {
        match byte {
            0 => Some(SlotUse::Free),
            1 => Some(SlotUse::Leaf),
            2 => Some(SlotUse::Router),
            _ => None,
        }
    }
}
