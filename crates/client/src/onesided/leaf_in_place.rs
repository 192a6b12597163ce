//! The leaf where a scan of mapped memory begins, or goes on behind a meganode's end, as the owner's own walk
//! copies it: between two looks at its version, without copies of the nodes on the way.
//!
//! Only the way there is decided here. Whether the memory was registered all the while is asked once of a
//! whole page, when all of it was loaded: see `page_in_place`.

use cell_memory::Region;
use cell_tree::{Aim, LeafSnapshot, Meganode, MeganodeRole, ReadError, key_max};

use super::direct::{MappedMeganode, RESTARTS_MAX, RIGHT_LINKS_MAX};
use super::place::MeganodePlace;
use super::regions::Regions;

/// The lowest of all keys.
const LOWEST: &[u8] = &[0];
/// The highest of all keys, and behind it more than any tree takes.
static HIGHEST: [u8; key_max(4096)] = [u8::MAX; key_max(4096)];

/// Where a leaf was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafInPlace {
    pub(super) place: MeganodePlace,
    /// How long the operation may take, by the owners of all that was looked at.
    pub(super) ns_max: u64,
    /// Right links that were followed between meganodes.
    pub(super) right_links: u32,
    /// What was known of the meganode's place was stale.
    pub(super) was_stale: bool,
}

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
        let mut was_stale = false;
        for _ in 0..RESTARTS_MAX {
            let known = self.meganodes.find(key);
            let known_meganode = known.and_then(|place| self.meganode_at(place, u64::MAX));
            let from = match known_meganode {
                Some(from) => Some(from),
                None => self.data_meganode(key)?,
            };
            let Some(from) = from else { continue };
            match self.leaf_from(from, leaf, |meganode, leaf| meganode.leaf(key, leaf))? {
                Some(found) => {
                    self.learn_unless_known(known, found.place);
                    return Some(LeafInPlace { was_stale, ..found });
                }
                None if known.is_some() => {
                    self.meganodes.forget(key);
                    was_stale = true;
                }
                None => {}
            }
        }
        None
    }

    /// The leaf whose range has the keys just below a bound. The meganode that is known to have the bound may
    /// begin there: that is not stale, and the router names the one before it.
    fn leaf_below(&mut self, bound: &[u8], leaf: &mut LeafSnapshot) -> Option<LeafInPlace> {
        let known = self.meganodes.find(bound);
        let known_meganode = known.and_then(|place| self.meganode_at(place, u64::MAX));
        let look =
            |meganode: &Meganode<'_, Region>, leaf: &mut LeafSnapshot| meganode.leaf_below(bound, leaf);
        let found = match known_meganode {
            Some(from) => self.leaf_from(from, leaf, look)?,
            None => None,
        };
        let found = match found {
            Some(found) => found,
            None => self.leaf_from(self.meganode_below(bound)?, leaf, look)??,
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

    /// Looks in a meganode and in those that its right links lead to. `Some(None)`: the way was stale, or the
    /// meganode begins at the bound.
    fn leaf_from<'a>(
        &'a self,
        mut from: MappedMeganode<'a>,
        leaf: &mut LeafSnapshot,
        look: impl Fn(&Meganode<'_, Region>, &mut LeafSnapshot) -> Result<(), ReadError>,
    ) -> Option<Option<LeafInPlace>> {
        for right_links in 0..RIGHT_LINKS_MAX {
            let MappedMeganode { place, meganode, ns_max, .. } = from;
            match look(&meganode, leaf) {
                Ok(()) => return Some(Some(LeafInPlace { place, ns_max, right_links, was_stale: false })),
                Err(ReadError::Beyond(right)) => from = self.mapped_meganode(right, ns_max)?,
                Err(ReadError::NotHere) => return Some(None),
                Err(_) => return None,
            }
        }
        None
    }
}
