//! Applying changes: live, and again in replay.

use cell_terms::{Csn, Pointer, WordsMut};

use crate::change::{Change, Image};
use crate::check::{NodeImageError, check_page};
use crate::edit::EditError;
use crate::geometry::{Geometry, NodeIndex, Slot};
use crate::layout::{CSN_CHANGED, WORD_BYTES};
use crate::mutant::{self, Mutant};
use crate::page::{Dirty, Page, write_back};
use crate::patch::{self, Patched};
use crate::placed::PlacedChange;
use crate::role::MeganodeRole;
use crate::search::sized;
use crate::state::TreeNodeState;

/// Tree nodes that are asked for ahead of their marking.
const MARKS_AHEAD: usize = 12;

/// What replay did with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// The node changed.
    Applied,
    /// The node has this change already: its CSN of last change is not below the record's.
    Skipped,
    /// The node is not in use: the image that replay began with lacks it. It must be freed or filled by a
    /// later record, else the image or the log is damaged; that is the caller's to judge.
    Missing,
}

/// Why a change cannot be replayed: log or image is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The slot has no such tree node.
    #[error("the slot has no {0}")]
    NodeIndex(NodeIndex),
    /// A node that would have the root as a child.
    #[error("{0} would have the root as a child")]
    RootAsChild(NodeIndex),
    /// A right link that leads to no tree node.
    #[error("a right link leads to {0}, where no tree node is")]
    RightLink(Pointer),
    /// A key longer than the tree node size permits.
    #[error("a key of {0} bytes")]
    KeyLength(usize),
    /// The node does not take the change.
    #[error("{node}: {error}")]
    Edit {
        /// The node.
        node: NodeIndex,
        /// Why not.
        error: EditError,
    },
    /// The image breaks the rules of the layout.
    #[error("{node}: {error}")]
    Image {
        /// The node.
        node: NodeIndex,
        /// Which rule.
        error: NodeImageError,
    },
}

/// Makes the root of an empty meganode: a leaf over the given range. Also the way to prepare a slot for tests
/// and tools; a live one is made by a logged [`Change::Fill`].
#[must_use]
pub fn empty_root(geometry: Geometry) -> Vec<u64> {
    empty_root_of(geometry, MeganodeRole::Data)
}

/// As [`empty_root`], of a router.
#[must_use]
pub fn empty_router(geometry: Geometry) -> Vec<u64> {
    empty_root_of(geometry, MeganodeRole::Router)
}

fn empty_root_of(geometry: Geometry, role: MeganodeRole) -> Vec<u64> {
    sized!(geometry, B => {
        let frame = crate::compose::Frame {
            role,
            level: 0,
            state: TreeNodeState::Valid,
            low: &[],
            high: None,
            right: Pointer::NULL,
            csn_changed: Csn::ZERO,
            csn_removed: Csn::ZERO,
        };
        crate::compose::Composer::<B>::begin(&frame, 0).map(|composer| composer.finish().words().collect())
    })
    .unwrap_or_default()
}

/// Applies a planned change to live memory and stamps the node with the record's CSN. Readers see all of it
/// or none.
///
/// # Panics
/// If the node does not take the change: it was not planned against this memory.
#[inline]
pub fn apply<W: WordsMut + ?Sized>(
    words: &mut W,
    geometry: Geometry,
    slot: Slot,
    change: &Change<'_>,
    csn: Csn,
) {
    apply_placed(words, geometry, slot, &PlacedChange::from(*change), csn);
}

/// As [`apply`]. The leaf of a planned entry is not searched again if it is as the plan has seen it.
///
/// # Panics
/// As there.
#[inline]
pub fn apply_placed<W: WordsMut + ?Sized>(
    words: &mut W,
    geometry: Geometry,
    slot: Slot,
    placed: &PlacedChange<'_>,
    csn: Csn,
) {
    let done = sized!(geometry, B => change_node::<W, B>(words, geometry, slot, placed, csn, false));
    if let Err(error) = done {
        panic!("a planned change of {} cannot be applied: {error}", placed.change().node());
    }
}

/// Applies a change from a log, unless the node has it already.
///
/// # Errors
/// See [`ReplayError`]: the change is from a log and may be anything.
pub fn replay<W: WordsMut + ?Sized>(
    words: &mut W,
    geometry: Geometry,
    slot: Slot,
    change: &Change<'_>,
    csn: Csn,
) -> Result<Replayed, ReplayError> {
    check_change(geometry, change)?;
    sized!(geometry, B => {
        let base = node_word::<B>(geometry, slot, change.node());
        let built = crate::view::View::<W, B>::new(words, base).header().state().is_built();
        let fills = matches!(change, Change::Fill { .. } | Change::Mark { .. });
        if words.load(base + CSN_CHANGED / WORD_BYTES) >= csn.0 && !mutant::planted(Mutant::ReplayRepeats) {
            return Ok(Replayed::Skipped);
        }
        if !built && !fills {
            return Ok(Replayed::Missing);
        }
        change_node::<W, B>(words, geometry, slot, &PlacedChange::from(*change), csn, true)?;
        Ok(Replayed::Applied)
    })
}

/// Makes a tree node readable or hidden without a record: what readers may see of a meganode follows the
/// state of its split, which is logged, and not its tree nodes' records. The CSN of last change stays.
/// Nothing happens to a node that is free or in that state already; whether the node changed.
///
/// # Panics
/// If the slot has no such node.
pub fn show<W: WordsMut + ?Sized>(
    words: &mut W,
    geometry: Geometry,
    slot: Slot,
    node: NodeIndex,
    state: TreeNodeState,
) -> bool {
    assert!(node.get() < geometry.nodes(), "the slot has no {node}");
    sized!(geometry, B => {
        let base = node_word::<B>(geometry, slot, node);
        let now = crate::view::View::<W, B>::new(words, base).header().state();
        if !now.is_built() || now == state {
            return false;
        }
        if geometry.node_crc() {
            let mut page = Page::<B>::load(words, base);
            let dirty = page.mark(state);
            write_back(words, base, &mut page, &dirty, true);
        } else {
            patch::mark::<W, B>(words, base, state, None);
        }
        true
    })
}

/// Asks for the cache lines that marking a node will touch, its first and its last.
pub fn prefetch_mark<W: WordsMut + ?Sized>(words: &W, geometry: Geometry, slot: Slot, node: NodeIndex) {
    if node.get() < geometry.nodes() {
        let base = geometry.node_offset(slot.index, node) / WORD_BYTES;
        words.prefetch(base);
        words.prefetch(base + geometry.node_words() - 1);
    }
}

/// Frees many tree nodes with one record: [`Change::Mark`] for each, memory being asked for ahead.
///
/// # Panics
/// If the slot has no such node.
pub fn free_nodes<W: WordsMut + ?Sized>(
    words: &mut W,
    geometry: Geometry,
    slot: Slot,
    nodes: impl Iterator<Item = NodeIndex> + Clone,
    csn: Csn,
) {
    let mut ahead = nodes.clone();
    let mut ask = |words: &W, count| {
        ahead.by_ref().take(count).for_each(|node| prefetch_mark(words, geometry, slot, node));
    };
    ask(words, MARKS_AHEAD);
    for node in nodes {
        ask(words, 1);
        apply(words, geometry, slot, &Change::Mark { node, state: TreeNodeState::Free }, csn);
    }
}

/// Asks for the cache lines that applying a change will touch.
pub fn prefetch<W: WordsMut + ?Sized>(words: &W, geometry: Geometry, slot: Slot, node: NodeIndex) {
    if node.get() < geometry.nodes() {
        let base = geometry.node_offset(slot.index, node) / WORD_BYTES;
        words.prefetch_lines(base, geometry.node_bytes() / 64);
    }
}

fn check_change(geometry: Geometry, change: &Change<'_>) -> Result<(), ReplayError> {
    let in_slot = |node: NodeIndex| {
        if node.get() < geometry.nodes() { Ok(()) } else { Err(ReplayError::NodeIndex(node)) }
    };
    let of_key = |key: &[u8]| {
        if key.is_empty() || key.len() > geometry.key_max() {
            Err(ReplayError::KeyLength(key.len()))
        } else {
            Ok(())
        }
    };
    in_slot(change.node())?;
    match *change {
        Change::Put { key, .. } | Change::Remove { key, .. } => of_key(key),
        Change::Link { node, child: NodeIndex::ROOT, .. } => Err(ReplayError::RootAsChild(node)),
        Change::Link { separator, child, .. } => of_key(separator).and(in_slot(child)),
        Change::Truncate { high, right, .. } => of_key(high).and(check_right(geometry, right)),
        Change::Fill { .. } | Change::Mark { .. } => Ok(()),
    }
}

fn check_right(geometry: Geometry, right: Pointer) -> Result<(), ReplayError> {
    if right.is_null() || geometry.locate(right).is_some() {
        Ok(())
    } else {
        Err(ReplayError::RightLink(right))
    }
}

fn node_word<const B: usize>(geometry: Geometry, slot: Slot, node: NodeIndex) -> usize {
    geometry.slot_word(slot.index) + node.get() * (B / WORD_BYTES)
}

#[inline]
fn change_node<W: WordsMut + ?Sized, const B: usize>(
    words: &mut W,
    geometry: Geometry,
    slot: Slot,
    placed: &PlacedChange<'_>,
    csn: Csn,
    suspect: bool,
) -> Result<(), ReplayError> {
    let change = placed.change();
    let node = change.node();
    if node.get() >= geometry.nodes() {
        return Err(ReplayError::NodeIndex(node));
    }
    let base = node_word::<B>(geometry, slot, node);
    if let Change::Put { key, entry, .. } = change
        && !geometry.node_crc()
    {
        let patched = patch::put::<W, B>(words, base, key, entry, csn, placed.place());
        if patched.map_err(|error| ReplayError::Edit { node, error })? == Patched::Done {
            return Ok(());
        }
    }
    if let Change::Mark { state, .. } = change
        && !geometry.node_crc()
        && !(suspect && state.is_built())
    {
        patch::mark::<W, B>(words, base, *state, Some(csn));
        return Ok(());
    }
    // Edited where it is: it is large enough that moving it costs something.
    let mut page = Page::<B>::zeroed();
    let dirty = match change {
        Change::Fill { image, .. } => fill_page(&mut page, node, image)?,
        _ => {
            page.load_over(words, base);
            edit_page(&mut page, change, csn).map_err(|error| ReplayError::Edit { node, error })?
        }
    };
    let in_use = match change {
        Change::Fill { .. } => true,
        Change::Mark { state, .. } => state.is_built(),
        _ => false,
    };
    if suspect && in_use {
        check_page(geometry, &page).map_err(|error| ReplayError::Image { node, error })?;
    }
    page.stamp_changed(csn);
    write_back(words, base, &mut page, &dirty, geometry.node_crc());
    Ok(())
}

/// Makes a change that is no fill to a node's copy.
#[inline]
fn edit_page<const B: usize>(page: &mut Page<B>, change: &Change<'_>, csn: Csn) -> Result<Dirty, EditError> {
    match *change {
        Change::Put { key, ref entry, .. } => page.put(key, entry),
        Change::Remove { key, .. } => page.remove(key, csn),
        Change::Link { separator, child, .. } => page.link(separator, child),
        Change::Truncate { high, right, .. } => page.truncate(high, right),
        Change::Mark { state, .. } => Ok(page.mark(state)),
        Change::Fill { .. } => Ok(Dirty::NONE),
    }
}

/// Fills a page of zeros with an image.
fn fill_page<const B: usize>(
    page: &mut Page<B>,
    node: NodeIndex,
    image: &Image<'_>,
) -> Result<Dirty, ReplayError> {
    if image.len() != Page::<B>::WORDS {
        let error = NodeImageError::Size(image.len() * WORD_BYTES);
        return Err(ReplayError::Image { node, error });
    }
    image.for_each(|i, word| page.set_word(i, word));
    Ok(Dirty::all::<B>())
}
