//! Searching a peer's memory in place, where it is mapped (`shm`): the same search that the owner makes, by
//! the same rules of versions and fences, without a copy of every tree node on the way.
//!
//! Only what ends at once is done here: the key's leaf answered, and its extent had its checksum. Everything
//! else (a writer in the way, a region that is not mapped, a damaged pointer) is left to the reads, which try
//! again, count and give up. What was found is validated like what reads brought: clock, watermark, trust.

use cell_memory::extent::{ExtentReader, ExtentShape};
use cell_terms::{Pointer, Root, Words};
use cell_tree::{LeafEntry, Meganode, MeganodeRole, NodeIndex, ReadError, SearchResult};

use super::fetch::Fetched;
use super::regions::{PairAt, Regions};

/// Begun again at the root so often: a stale router entry, a meganode that was split meanwhile.
const RESTARTS_MAX: u32 = 4;

/// Right links that one search follows.
const RIGHT_LINKS_MAX: u32 = 64;

/// What a search in place has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundInPlace {
    /// The leaf's pair.
    pub(crate) at: PairAt,
    /// The leaf's answer.
    pub(crate) found: SearchResult,
    /// How long the operation may take, by the owners of all that was looked at.
    pub(crate) ns_max: u64,
}

impl Regions {
    /// The answer of the key's leaf, from memory that was registered all the while. `None`: reads will tell.
    pub(crate) fn find_in_place(&self, key: &[u8]) -> Option<FoundInPlace> {
        let first = self.pair(0).mapped.as_ref()?;
        let mut ns_max = self.pair(0).operation_ns_max;
        for _ in 0..RESTARTS_MAX {
            let root = Root::from_word(first.node.region().first_word());
            if !first.lasts() {
                return None;
            }
            let mut pointer = root.pointer;
            if root.router {
                let floor = |there: Meganode<'_, _>| there.with_role(MeganodeRole::Router).floor(key);
                match self.in_meganode(pointer, &mut ns_max, floor)?.1 {
                    Ok(Some(entry)) => pointer = entry.meganode(),
                    Ok(None) | Err(ReadError::NotHere) => continue,
                    Err(_) => return None,
                }
            }
            if let Some((at, found)) = self.search_from(pointer, key, &mut ns_max)? {
                return Some(FoundInPlace { at, found, ns_max });
            }
        }
        None
    }

    /// Searches a meganode and those that its right links lead to. `Some(None)`: the pointer was stale.
    fn search_from(
        &self,
        mut pointer: Pointer,
        key: &[u8],
        ns_max: &mut u64,
    ) -> Option<Option<(PairAt, SearchResult)>> {
        for _ in 0..RIGHT_LINKS_MAX {
            match self.in_meganode(pointer, ns_max, |meganode| meganode.search(key))? {
                (at, Ok(found)) => return Some(Some((at, found))),
                (_, Err(ReadError::Beyond(right))) => pointer = right,
                (_, Err(ReadError::NotHere)) => return Some(None),
                _ => return None,
            }
        }
        None
    }

    /// Looks at the meganode whose root tree node a pointer names.
    fn in_meganode<T>(
        &self,
        pointer: Pointer,
        ns_max: &mut u64,
        look: impl FnOnce(Meganode<'_, cell_memory::Region>) -> T,
    ) -> Option<(PairAt, T)> {
        let location = self.locate(pointer).filter(|location| location.node == NodeIndex::ROOT)?;
        let pair = self.pair(location.pair);
        let mapped = pair.mapped.as_ref()?;
        *ns_max = pair.operation_ns_max.min(*ns_max);
        let (words, geometry) = (mapped.node.region(), pair.geometry);
        let end = geometry.slot_word(location.slot.index) + geometry.nodes() * geometry.node_words();
        if end > words.len() {
            return None;
        }
        let seen = look(Meganode::new(words, geometry, location.slot));
        mapped.node.lasts().then_some((location.pair, seen))
    }

    /// The extent of a leaf's entry, its value behind what is in `bytes`; none if it is not the leaf's.
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
        let read = reader.append(mapped.extent.region(), entry.offset, shape, entry.crc, bytes);
        let header = read.ok().filter(|_| mapped.lasts())?;
        let (version, value_len) = (header.version(pair.row.pair), shape.value_bytes());
        Some(Fetched { version, csn: header.csn, value_len, value: Some((begin, bytes.len())) })
    }

    /// Looks at a pair's watermark in place: nothing to know of it if it is not mapped.
    pub(crate) fn look_at_watermark(&mut self, at: PairAt) {
        let pair = self.pair_mut(at);
        let Some(mapped) = &pair.mapped else { return };
        let visible = mapped.node.region().watermark().visible;
        if mapped.lasts() {
            pair.visible = pair.visible.max(visible);
        }
    }
}
