//! Where things are among the regions that are known.

use cell_tree::Slot;

/// A pair's place: its own for as long as its registrations are known.
pub(crate) type PairAt = u16;

/// A meganode's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeganodePlace {
    pub(crate) at: PairAt,
    pub(crate) slot: Slot,
}
