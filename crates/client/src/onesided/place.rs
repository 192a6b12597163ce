//! Where things are in the list of regions.

use cell_tree::Slot;

/// A pair's position in the list.
pub(crate) type PairAt = u16;

/// A meganode's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeganodePlace {
    pub(crate) at: PairAt,
    pub(crate) slot: Slot,
}
