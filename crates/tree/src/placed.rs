//! A planned change, with the place in its leaf that the plan's search found.
//!
//! Who applies it need not search the leaf again, as long as the leaf is as the plan saw it: it has the
//! version still. Each change raises that, so a place that was found before another change is not believed.

use cell_terms::Words;

use crate::change::Change;
use crate::mutant::{self, Mutant};
use crate::view::View;

/// A change as it was planned: see [`crate::Plan::placed`].
#[derive(Clone, Copy, Debug)]
pub struct PlacedChange<'a> {
    change: Change<'a>,
    place: Option<EntryPlace>,
}

/// Where an entry is in its leaf, or goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    /// The version of the leaf that was searched.
    version: u64,
    /// Twice the place, and one more if the leaf has the key. In one word: a `bool` would be moved with the
    /// padding beside it, in parts that overlap, and a load of what was just stored in parts waits for them.
    entry: usize,
}

impl<'a> PlacedChange<'a> {
    pub(crate) fn new(change: Change<'a>, place: Option<EntryPlace>) -> PlacedChange<'a> {
        PlacedChange { change, place }
    }

    /// The change.
    #[must_use]
    #[inline]
    pub fn change(&self) -> &Change<'a> {
        &self.change
    }

    pub(crate) fn place(&self) -> Option<EntryPlace> {
        self.place
    }
}

/// One that was searched for nowhere.
impl<'a> From<Change<'a>> for PlacedChange<'a> {
    fn from(change: Change<'a>) -> PlacedChange<'a> {
        PlacedChange { change, place: None }
    }
}

impl EntryPlace {
    /// What the search of a leaf has found.
    #[inline]
    pub(crate) fn found<W: Words + ?Sized, const B: usize>(
        view: &View<'_, W, B>,
        at: usize,
        is_there: bool,
    ) -> EntryPlace {
        EntryPlace { version: view.word(0), entry: 2 * at + usize::from(is_there) }
    }

    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.entry / 2
    }

    /// The leaf has the key.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.entry % 2 == 1
    }

    /// Whether the leaf is as it was searched.
    #[inline]
    pub(crate) fn holds<W: Words + ?Sized, const B: usize>(&self, view: &View<'_, W, B>) -> bool {
        view.word(0) == self.version || mutant::planted(Mutant::StalePlaceTaken)
    }
}
