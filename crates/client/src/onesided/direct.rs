//! Searching a peer's memory in place, where it is mapped (`shm`): the same search that the owner makes, by
//! the same rules of versions and fences, without a copy of every tree node on the way.
//!
//! Only what ends at once is done here: the key's leaf answered, and its extent had its checksum. Everything
//! else (a writer in the way, a region that is not mapped, a damaged pointer) is left to the reads, which try
//! again, count and give up. What was found is validated like what reads brought: clock, watermark, trust.

use cell_memory::Region;
use cell_memory::extent::{self, ExtentReader, ExtentShape};
use cell_terms::{Pointer, Root, WORDS_PER_LINE, Words};
use cell_tree::{
    LANES, LeafEntry, Meganode, MeganodeRole, NodeIndex, ReadError, SearchResult, search_across,
};

use super::fetch::Fetched;
use super::mapping::MappedPair;
use super::page::PageEntry;
use super::place::MeganodePlace;
use super::place::PairAt;
use super::regions::Regions;
use crate::mutant::{Mutant, planted};

/// Started again at the root so often: a stale router entry, a meganode that was split meanwhile.
const RESTARTS_MAX: u32 = 4;

const WORD_BYTES: usize = 8;

/// Right links that one search follows.
const RIGHT_LINKS_MAX: u32 = 64;

/// What was found in place, and on which way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundInPlace<T = SearchResult> {
    /// The leaf's meganode.
    pub(crate) place: MeganodePlace,
    /// The leaf's answer.
    pub(crate) found: T,
    /// How long the operation may take, by the owners of all that was looked at.
    pub(crate) ns_max: u64,
    /// Right links that were followed between meganodes.
    pub(crate) right_links: u32,
    /// What was known of the meganode's place was stale.
    pub(crate) was_stale: bool,
}

/// A meganode in mapped memory.
#[derive(Clone, Copy)]
pub(super) struct MappedMeganode<'a> {
    pub(super) place: MeganodePlace,
    pub(super) mapped: &'a MappedPair,
    pub(super) meganode: Meganode<'a, Region>,
    /// How long an operation may take that has come to it.
    pub(super) ns_max: u64,
}

impl MappedMeganode<'_> {
    /// What was seen here, if the memory was registered all the while.
    #[inline]
    fn lasting<T>(&self, seen: T) -> Option<T> {
        (self.mapped.node.lasts() || planted(Mutant::EndedMappingRead)).then_some(seen)
    }

    /// What was found here.
    #[inline]
    fn found<T>(&self, found: T, right_links: u32) -> FoundInPlace<T> {
        let MappedMeganode { place, ns_max, .. } = *self;
        FoundInPlace { place, found, ns_max, right_links, was_stale: false }
    }
}

/// Asks for what a page needs of an entry's extent: its header, or all of it; a hint.
#[inline]
pub(super) fn ask_for_extent(extents: &Region, planned: &PageEntry) {
    let offset = planned.entry.offset;
    match ExtentShape::from_bits(planned.entry.value_len) {
        Some(shape) if planned.inline => extent::prefetch(extents, offset, shape),
        Some(shape) => extent::prefetch_header(extents, offset, shape),
        None => {}
    }
}

/// Asks for an entry's extent, wherever the leaf says that it is; a hint.
#[inline]
fn ask_for_whole_extent(extents: &Region, entry: &LeafEntry) {
    if let Some(shape) = ExtentShape::from_bits(entry.value_len) {
        extent::prefetch(extents, entry.offset, shape);
    }
}

impl Regions {
    /// The answer of the key's leaf, from memory that was registered all the while. `None`: reads will show.
    /// `asks`: for the extent that it names, as soon as it does.
    ///
    /// It is part of its few callers, so that what was found need not go through memory to get at the extent.
    #[inline(always)]
    pub(crate) fn find_in_place(&mut self, key: &[u8], asks: bool) -> Option<FoundInPlace> {
        self.look_where_key_is(key, |from| {
            let ask = |entry: &LeafEntry| {
                if asks && let Some(extent) = &from.mapped.extent {
                    ask_for_whole_extent(extent.region(), entry);
                }
            };
            from.lasting(from.meganode.search_asking(key, ask))
        })
    }

    /// Looks in the meganode of a key, where it was known to be or where the root leads, and in those that
    /// its right links lead to; again where that way was stale. `None`: reads will show; so does `look`.
    #[inline(always)]
    pub(super) fn look_where_key_is<T>(
        &mut self,
        key: &[u8],
        mut look: impl FnMut(&MappedMeganode<'_>) -> Option<Result<T, ReadError>>,
    ) -> Option<FoundInPlace<T>> {
        let mut was_stale = false;
        for _ in 0..RESTARTS_MAX {
            let known = self.meganodes.find(key);
            let known_meganode = known.and_then(|place| self.meganode_at(place, u64::MAX));
            let from = match known_meganode {
                Some(from) => Some(from),
                None => self.data_meganode(key)?,
            };
            let Some(from) = from else { continue };
            match self.look_from(from, &mut look)? {
                Some(found) => {
                    self.learn_unless_known(known, found.place);
                    return Some(FoundInPlace { was_stale, ..found });
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

    /// As [`Regions::find_in_place`], many keys side by side, so that their waits for memory overlap; the
    /// extents that were found are asked for.
    ///
    /// # Panics
    /// If there are more keys than [`LANES`], or `answers` is shorter.
    pub(crate) fn find_many_in_place(&mut self, keys: &[&[u8]], answers: &mut [Option<FoundInPlace>]) {
        let answers = &mut answers[..keys.len()];
        self.find_side_by_side(keys, answers);
        for (key, answer) in keys.iter().zip(answers) {
            if answer.is_none() {
                *answer = self.find_in_place(key, false);
            }
            if let Some(FoundInPlace { place, found: SearchResult { entry: Some(entry), .. }, .. }) = answer
                && let Some(extent) = self.mapped_extents(place.at)
            {
                ask_for_whole_extent(extent, entry);
            }
        }
    }

    /// Searches those keys whose meganodes are known. What is not as simple as that has no answer.
    fn find_side_by_side(&self, keys: &[&[u8]], answers: &mut [Option<FoundInPlace>]) {
        answers.fill(None);
        let known = |key: &&[u8]| self.meganode_at(self.meganodes.find(key)?, u64::MAX);
        let Some(first) = keys.iter().find_map(known) else { return };
        let node_bytes = first.meganode.geometry().node_bytes();
        let mut members = [0; LANES];
        let mut among: [&[u8]; LANES] = [&[]; LANES];
        let mut places = [first; LANES];
        let mut count = 0;
        for (at, key) in keys.iter().enumerate() {
            let Some(place) = known(key) else { continue };
            // Tree nodes of another size are searched alone.
            if place.meganode.geometry().node_bytes() == node_bytes {
                (members[count], among[count], places[count]) = (at, *key, place);
                count += 1;
            }
        }
        let meganodes = places.map(|place| place.meganode);
        let mut found = [Err(ReadError::NotHere); LANES];
        search_across(&meganodes[..count], &among[..count], &mut found[..count]);
        for ((member, place), found) in members[..count].iter().zip(&places).zip(found) {
            answers[*member] = found.ok().and_then(|found| place.lasting(place.found(found, 0)));
        }
    }

    /// Keeps where a meganode is, if that was not known. Where there is no room, only what was known wrongly
    /// is learnt anew.
    #[inline]
    pub(super) fn learn_unless_known(&mut self, known: Option<MeganodePlace>, place: MeganodePlace) {
        if known != Some(place) && (known.is_some() || self.meganodes.has_room()) {
            self.learn(place);
        }
    }

    #[cold]
    fn learn(&mut self, place: MeganodePlace) {
        let Some(MappedMeganode { meganode, mapped, .. }) = self.meganode_at(place, u64::MAX) else { return };
        if let Ok(fences) = meganode.fences()
            && mapped.node.lasts()
        {
            self.meganodes.insert(fences, place);
        }
    }

    /// The meganode that the root names, and whether it is a router.
    pub(super) fn top_meganode(&self) -> Option<(MappedMeganode<'_>, bool)> {
        let pair = self.pair(self.first()?);
        let (first, ns_max) = (pair.mapped.as_ref()?, pair.operation_ns_max);
        let root = Root::from_word(first.node.region().first_word());
        if !first.lasts() {
            return None;
        }
        Some((self.mapped_meganode(root.pointer, ns_max)?, root.router))
    }

    /// The meganode to which the root leads for a key. `Some(None)`: what led there was stale.
    fn data_meganode(&self, key: &[u8]) -> Option<Option<MappedMeganode<'_>>> {
        let (top, is_router) = self.top_meganode()?;
        if !is_router {
            return Some(Some(top));
        }
        let entry = match top.meganode.with_role(MeganodeRole::Router).predecessor(key) {
            Ok(Some(entry)) => entry,
            Ok(None) | Err(ReadError::NotHere) => return Some(None),
            Err(_) => return None,
        };
        if !top.mapped.node.lasts() {
            return None;
        }
        self.mapped_meganode(entry.meganode(), top.ns_max).map(Some)
    }

    /// Looks in a meganode and in those that its right links lead to. `Some(None)`: the way was stale, or the
    /// meganode begins at the bound.
    #[inline(always)]
    pub(super) fn look_from<'a, T>(
        &'a self,
        mut from: MappedMeganode<'a>,
        look: &mut impl FnMut(&MappedMeganode<'_>) -> Option<Result<T, ReadError>>,
    ) -> Option<Option<FoundInPlace<T>>> {
        for right_links in 0..RIGHT_LINKS_MAX {
            match look(&from)? {
                Ok(found) => return Some(Some(from.found(found, right_links))),
                Err(ReadError::Beyond(right)) => from = self.mapped_meganode(right, from.ns_max)?,
                Err(ReadError::NotHere) => return Some(None),
                Err(_) => return None,
            }
        }
        None
    }

    /// The meganode whose root tree node a pointer names. `ns_max`: of what was looked at before.
    pub(super) fn mapped_meganode(&self, pointer: Pointer, ns_max: u64) -> Option<MappedMeganode<'_>> {
        let location = self.locate(pointer).filter(|location| location.node == NodeIndex::ROOT)?;
        self.meganode_at(MeganodePlace { at: location.pair, slot: location.slot }, ns_max)
    }

    /// The meganode in a slot, if that is mapped.
    #[inline]
    pub(super) fn meganode_at(&self, place: MeganodePlace, ns_max: u64) -> Option<MappedMeganode<'_>> {
        let pair = self.pair(place.at);
        let mapped = pair.mapped.as_ref()?;
        let (words, geometry) = (mapped.node.region(), pair.geometry);
        let end = geometry.slot_word(place.slot.index) + geometry.nodes() * geometry.node_words();
        if end > words.len() {
            return None;
        }
        let meganode = Meganode::new(words, geometry, place.slot);
        let ns_max = if planted(Mutant::InPlaceUntimed) { u64::MAX } else { ns_max };
        Some(MappedMeganode { place, mapped, meganode, ns_max: pair.operation_ns_max.min(ns_max) })
    }

    /// Asks for what a page needs of an entry's extent, if that is mapped; a hint.
    #[inline]
    pub(crate) fn ask_for_extent(&self, at: PairAt, planned: &PageEntry) {
        if let Some(extents) = self.mapped_extents(at) {
            ask_for_extent(extents, planned);
        }
    }

    /// A pair's extent region, if it is mapped.
    #[inline]
    fn mapped_extents(&self, at: PairAt) -> Option<&Region> {
        Some(self.pair(at).mapped.as_ref()?.extent.as_ref()?.region())
    }

    /// Asks for a tree node, if it is mapped; a hint.
    pub(crate) fn ask_for_node(&self, pointer: Pointer) {
        let Some(location) = self.locate(pointer) else { return };
        let pair = self.pair(location.pair);
        let Some(mapped) = &pair.mapped else { return };
        let first = pair.geometry.node_offset(location.slot.index, location.node) / WORD_BYTES;
        mapped.node.region().prefetch_lines(first, pair.geometry.node_words() / WORDS_PER_LINE);
    }

    /// The extent of a leaf's entry, its value behind what is in `bytes`; none if it is not the leaf's.
    #[inline]
    pub(crate) fn fetch_in_place(
        &self,
        at: PairAt,
        entry: &LeafEntry,
        reader: &mut ExtentReader,
        bytes: &mut Vec<u8>,
    ) -> Option<Fetched> {
        let pair = self.pair(at);
        let mapped = pair.mapped.as_ref()?;
        let shape = ExtentShape::from_bits(entry.value_len)?;
        let begin = bytes.len();
        let extents = mapped.extent.as_ref()?.region();
        let read = reader.append(extents, entry.offset, shape, entry.crc, bytes);
        let header = read.ok().filter(|_| mapped.lasts() || planted(Mutant::EndedExtentRead))?;
        let (version, value_len) = (header.version(pair.row.pair), shape.value_bytes());
        Some(Fetched { version, csn: header.csn, value_len, value: Some((begin, bytes.len())) })
    }

    /// Looks at a pair's watermark in place: nothing to know of it if it is not mapped.
    pub(crate) fn look_at_watermark(&mut self, at: PairAt) {
        let pair = self.pair_mut(at);
        let Some(mapped) = &pair.mapped else { return };
        let visible = mapped.node.region().watermark().visible;
        if mapped.lasts() || planted(Mutant::EndedWatermarkRead) {
            pair.visible = pair.visible.max(visible);
        }
    }
}
