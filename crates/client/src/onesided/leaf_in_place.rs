//! The leaf where a scan of mapped memory begins, or goes on behind a meganode's end, as the owner's own walk
//! copies it: between two looks at its version, without copies of the nodes on the way.
//!
//! Only the way there is decided here. Whether the memory was registered all the while is asked once of a
//! whole page, when all of it was loaded: see `page_in_place`.

use cell_tree::{Aim, LeafSnapshot, MeganodeRole, key_max};

use super::direct::{FoundInPlace, MappedMeganode};
use super::regions::Regions;

/// The lowest of all keys.
const LOWEST: &[u8] = &[0];
/// The highest of all keys, and behind it more than any tree takes.
static HIGHEST: [u8; key_max(4096)] = [u8::MAX; key_max(4096)];

/// Where a leaf was found.
pub(super) type LeafInPlace = FoundInPlace<()>;

impl Regions {
    /// Fills `leaf` with the leaf of an aim, out of memory that is mapped. `None`: reads will show.
    pub(super) fn leaf_in_place(&mut self, aim: Aim<'_>, leaf: &mut LeafSnapshot) -> Option<LeafInPlace> {
        match aim {
            Aim::First => self.leaf_at(LOWEST, leaf),
            Aim::At(key) => self.leaf_at(key, leaf),
            Aim::Below(bound) => self.leaf_below(bound, leaf),
            Aim::Last => self.leaf_at(HIGHEST.get(..self.key_max())?, leaf),
        }
    }

    /// The leaf whose range has a key.
    fn leaf_at(&mut self, key: &[u8], leaf: &mut LeafSnapshot) -> Option<LeafInPlace> {
        self.look_where_key_is(key, |from| Some(from.meganode.leaf(key, leaf)))
    }

    /// The leaf whose range has the keys just below a bound. The meganode that is known to have the bound may
    /// begin there: that is not stale, and the router names the one before it.
    fn leaf_below(&mut self, bound: &[u8], leaf: &mut LeafSnapshot) -> Option<LeafInPlace> {
        let known = self.meganodes.find(bound);
        let known_meganode = known.and_then(|place| self.meganode_at(place, u64::MAX));
        let mut look = |from: &MappedMeganode<'_>| Some(from.meganode.leaf_below(bound, leaf));
        let found = match known_meganode {
            Some(from) => self.look_from(from, &mut look)?,
            None => None,
        };
        let found = match found {
            Some(found) => found,
            None => self.look_from(self.meganode_below(bound)?, &mut look)??,
        };
        self.learn_unless_known(known, found.place);
        Some(found)
    }

    /// The meganode to which the root leads for the keys just below a bound.
    fn meganode_below(&self, bound: &[u8]) -> Option<MappedMeganode<'_>> {
        let (top, is_router) = self.top_meganode()?;
        if !is_router {
            return Some(top);
        }
        let (router, mut leaf) = (top.meganode.with_role(MeganodeRole::Router), LeafSnapshot::new());
        router.leaf_below(bound, &mut leaf).ok()?;
        let mut below = leaf.position(bound);
        while below == 0 {
            if !router.leaf_before(&mut leaf).ok()? {
                return None;
            }
            below = leaf.len();
        }
        if !top.mapped.node.lasts() {
            return None;
        }
        self.mapped_meganode(leaf.entry(below - 1).meganode(), top.ns_max)
    }
}
