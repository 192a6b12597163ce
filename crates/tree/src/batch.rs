//! Searching many keys at once.
//!
//! A search waits for memory at each level. So up to [`LANES`] searches go down together, level by level:
//! each takes one step, then all ask for the cache lines of their next nodes, and by the time the first has
//! asked, the others' lines are on their way (group prefetching). A leaf takes two steps: the first reads
//! header, heads and slots and asks for the one cell that can be the key's, the second compares the key and
//! takes the entry. So a leaf costs five lines instead of all of them.
//!
//! Asking comes apart from stepping, first lines before the rest, because a request that misses the TLB holds
//! up what comes behind it in the pipeline: side by side, several such misses overlap.

use cell_terms::{Csn, Words};

use crate::geometry::NodeIndex;
use crate::probe::Probe;
use crate::search::{Cursor, Meganode, ReadError, SearchResult, sized};
use crate::seek::{Candidate, Hop, Lookup};
use crate::view::{LeafEntry, View};

/// Searches that go down together.
pub const LANES: usize = 16;

const _: () = assert!(LANES.is_power_of_two() && LANES <= 1 << 8);

#[derive(Clone, Copy)]
struct Lane<'k> {
    probe: Probe<'k>,
    cursor: Cursor,
    /// A leaf's entry that was asked for.
    asked: Option<Asked>,
}

/// What a leaf said in the first step. It counts if the version is still the same in the second.
#[derive(Clone, Copy)]
struct Asked {
    version: u64,
    prefix: usize,
    slot: u16,
    csn_changed: Csn,
    csn_removed: Csn,
}

/// Where a step led.
enum Advance {
    Done(Result<SearchResult, ReadError>),
    /// To another node, whose lines are to be asked for.
    Moved,
    /// The same node again: its cell was asked for, or a writer was in the way.
    Stays,
}

impl<'a, W: Words + ?Sized> Meganode<'a, W> {
    /// Searches keys, [`LANES`] at a time; answers stand in `out` in the same order and are what
    /// [`Meganode::search`] would say.
    ///
    /// # Panics
    /// If `out` is shorter than `keys`.
    pub fn search_batch<K: AsRef<[u8]>>(&self, keys: &[K], out: &mut [Result<SearchResult, ReadError>]) {
        assert!(out.len() >= keys.len(), "an answer for each key");
        for (keys, out) in keys.chunks(LANES).zip(out.chunks_mut(LANES)) {
            sized!(self.geometry, B => self.search_lanes::<K, B>(keys, out));
        }
    }

    fn search_lanes<K: AsRef<[u8]>, const B: usize>(
        &self,
        keys: &[K],
        out: &mut [Result<SearchResult, ReadError>],
    ) {
        let root = match self.root::<B>() {
            Ok(root) => root,
            Err(error) => return out[..keys.len()].fill(Err(error)),
        };
        let empty = Lane { probe: Probe::new(&[]), cursor: root, asked: None };
        let mut lanes = [empty; LANES];
        // The lanes that are under way, in `going[..count]`.
        let mut going = [0u8; LANES];
        let mut count = 0;
        for ((i, key), lane) in (0u8..).zip(keys).zip(&mut lanes) {
            match self.check_key(key.as_ref()) {
                Ok(()) => {
                    lane.probe = Probe::new(key.as_ref());
                    going[count] = i;
                    count += 1;
                }
                Err(error) => out[usize::from(i)] = Err(error),
            }
        }
        drive::<W, B>(|_| *self, &mut lanes, &mut going, count, out);
    }

    /// One step of one search.
    #[inline(always)]
    fn advance<const B: usize>(&self, lane: &mut Lane<'_>) -> Advance {
        let node = lane.cursor.node;
        let view = self.view::<B>(node);
        if let Some(asked) = lane.asked.take() {
            return self.confirm(&view, lane, &asked);
        }
        let Some(version) = view.begin() else { return self.retry_lane(lane) };
        let header = view.header();
        let level = header.level();
        if header.kind != lane.cursor.kind {
            return moved(self.not_expected(&mut lane.cursor, &view, version));
        }
        if header.is_inner() {
            let hop = view.hop(&header, &lane.probe);
            if !view.is_still(version) {
                return self.retry_lane(lane);
            }
            return moved(match hop {
                Hop::Child(child) => self.enter(&mut lane.cursor, child, level - 1),
                Hop::Right(right) => self.move_right(&mut lane.cursor, right, level),
                Hop::Restart => self.restart_for::<B>(&mut lane.cursor, &lane.probe),
            });
        }
        let (csn_changed, csn_removed) = (view.csn_changed(), view.csn_removed());
        let lookup = match view.candidate(&header, &lane.probe) {
            Candidate::One(slot) => {
                view.prefetch_cell(slot);
                lane.asked = Some(Asked { version, prefix: header.prefix, slot, csn_changed, csn_removed });
                return Advance::Stays;
            }
            Candidate::None => view.miss(&header, &lane.probe),
            Candidate::Several => view.lookup_among_equal_heads(&lane.probe),
        };
        if !view.is_still(version) {
            return self.retry_lane(lane);
        }
        match lookup {
            Lookup::Hit(entry) => done(Some(entry), node, csn_changed, csn_removed),
            Lookup::Miss => done(None, node, csn_changed, csn_removed),
            Lookup::Right(right) => moved(self.move_right(&mut lane.cursor, right, level)),
            Lookup::Restart => moved(self.restart_for::<B>(&mut lane.cursor, &lane.probe)),
        }
    }

    /// The second step in a leaf: compares the key, and sees whether the leaf is still what it was.
    #[inline(always)]
    fn confirm<const B: usize>(&self, view: &View<'_, W, B>, lane: &mut Lane<'_>, asked: &Asked) -> Advance {
        let entry = view.confirm(asked.prefix, &lane.probe, asked.slot);
        let lookup = match entry {
            Some(entry) => Lookup::Hit(entry),
            None => view.miss(&view.header(), &lane.probe),
        };
        if !view.is_still(asked.version) {
            return self.retry_lane(lane);
        }
        match lookup {
            Lookup::Hit(_) | Lookup::Miss => {
                done(entry, lane.cursor.node, asked.csn_changed, asked.csn_removed)
            }
            Lookup::Right(right) => moved(self.move_right(&mut lane.cursor, right, 0)),
            Lookup::Restart => moved(self.restart_for::<B>(&mut lane.cursor, &lane.probe)),
        }
    }

    #[cold]
    fn retry_lane(&self, lane: &mut Lane<'_>) -> Advance {
        match self.retry(&mut lane.cursor) {
            Ok(()) => Advance::Stays,
            Err(error) => Advance::Done(Err(error)),
        }
    }
}

/// Searches each key in a meganode of its own, [`LANES`] at a time, as [`Meganode::search_batch`] does in
/// one.
///
/// # Panics
/// If `meganodes` or `out` is shorter than `keys`, or tree nodes are not all of one size.
pub fn search_across<W: Words + ?Sized, K: AsRef<[u8]>>(
    meganodes: &[Meganode<'_, W>],
    keys: &[K],
    out: &mut [Result<SearchResult, ReadError>],
) {
    assert!(
        meganodes.len() >= keys.len() && out.len() >= keys.len(),
        "a meganode and an answer for each key"
    );
    let Some(geometry) = meganodes.first().map(Meganode::geometry) else { return };
    let same = |meganode: &Meganode<'_, W>| meganode.geometry().node_bytes() == geometry.node_bytes();
    assert!(meganodes.iter().all(same), "tree nodes are of one size");
    let lanes = keys.chunks(LANES).zip(meganodes.chunks(LANES));
    for ((keys, meganodes), out) in lanes.zip(out.chunks_mut(LANES)) {
        sized!(geometry, B => across::<W, K, B>(meganodes, keys, out));
    }
}

fn across<W: Words + ?Sized, K: AsRef<[u8]>, const B: usize>(
    meganodes: &[Meganode<'_, W>],
    keys: &[K],
    out: &mut [Result<SearchResult, ReadError>],
) {
    meganodes.iter().for_each(|meganode| meganode.view::<B>(NodeIndex::ROOT).prefetch(0, B * 5 / 8));
    let Some(root) = meganodes.iter().find_map(|meganode| meganode.root::<B>().ok()) else {
        return out[..keys.len()].fill(Err(ReadError::NotHere));
    };
    let mut lanes = [Lane { probe: Probe::new(&[]), cursor: root, asked: None }; LANES];
    let mut going = [0u8; LANES];
    let mut count = 0;
    for (((i, key), lane), meganode) in (0u8..).zip(keys).zip(&mut lanes).zip(meganodes) {
        match meganode.check_key(key.as_ref()).and_then(|()| meganode.root::<B>()) {
            Ok(root) => {
                (lane.probe, lane.cursor) = (Probe::new(key.as_ref()), root);
                going[count] = i;
                count += 1;
            }
            Err(error) => out[usize::from(i)] = Err(error),
        }
    }
    drive::<W, B>(|lane| meganodes[lane], &mut lanes, &mut going, count, out);
}

/// Takes searches down, each in its lane's meganode, until all have answered.
#[inline(always)]
fn drive<'a, W: Words + ?Sized + 'a, const B: usize>(
    meganode: impl Fn(usize) -> Meganode<'a, W>,
    lanes: &mut [Lane<'_>; LANES],
    going: &mut [u8; LANES],
    mut count: usize,
    out: &mut [Result<SearchResult, ReadError>],
) {
    while count > 0 {
        let (mut kept, mut moved) = (0, false);
        for at in 0..count {
            let i = going[at];
            let lane = usize::from(i) % LANES;
            match meganode(lane).advance::<B>(&mut lanes[lane]) {
                Advance::Done(answer) => out[lane] = answer,
                Advance::Moved => {
                    moved = true;
                    going[kept] = i;
                    kept += 1;
                }
                Advance::Stays => {
                    going[kept] = i;
                    kept += 1;
                }
            }
        }
        count = kept;
        if moved {
            ask::<W, B>(&meganode, lanes, &going[..count]);
        }
    }
}

/// Asks for the cache lines of the nodes that lanes have come to.
#[inline(always)]
fn ask<'a, W: Words + ?Sized + 'a, const B: usize>(
    meganode: &impl Fn(usize) -> Meganode<'a, W>,
    lanes: &[Lane<'_>; LANES],
    going: &[u8],
) {
    for i in going {
        let lane = usize::from(*i) % LANES;
        meganode(lane).view::<B>(lanes[lane].cursor.node).prefetch(0, 64);
    }
    for i in going {
        // Header, fences and the arrays of a common leaf; of an inner node, its children too.
        let lane = usize::from(*i) % LANES;
        let cursor = &lanes[lane].cursor;
        let front = if cursor.is_at_leaf() { B * 3 / 16 } else { B * 5 / 8 };
        meganode(lane).view::<B>(cursor.node).prefetch(64, front);
    }
}

fn moved(outcome: Result<(), ReadError>) -> Advance {
    match outcome {
        Ok(()) => Advance::Moved,
        Err(error) => Advance::Done(Err(error)),
    }
}

#[inline(always)]
fn done(entry: Option<LeafEntry>, node: NodeIndex, csn_changed: Csn, csn_removed: Csn) -> Advance {
    Advance::Done(Ok(SearchResult { entry, node, csn_changed, csn_removed }))
}

#[cfg(test)]
mod tests {
    use cell_terms::{ExtentOffset, RegionId, SlotIndex};

    use super::*;
    use crate::{BulkFrame, Geometry, Slot, SlotAllocator, apply, bulk_build};

    #[test]
    fn search_across_answers_as_each_meganode_would() {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let slots = [0, 1, 2].map(|index| Slot { region: RegionId(2), index: SlotIndex(index) });
        let mut words = vec![0u64; (4096 + 3 * (64 << 10)) / 8];
        let entry = |crc| LeafEntry { offset: ExtentOffset(1), value_len: 0, crc };
        for (slot, step) in slots[..2].iter().zip([1u32, 2]) {
            let mut allocator = SlotAllocator::new(geometry.nodes());
            let entries = (0..900).map(|i| ((i * step).to_be_bytes(), entry(u64::from(i))));
            let emit = |change: crate::Change<'_>| apply(&mut words[..], geometry, *slot, &change, Csn(1));
            bulk_build(geometry, *slot, &BulkFrame::WHOLE, &mut allocator, entries, emit).unwrap();
        }
        let meganodes = slots.map(|slot| Meganode::new(&words[..], geometry, slot));
        let keys: Vec<_> = (0..40u32).map(|i| (i * 37).to_be_bytes()).collect();
        let among: Vec<_> = (0..40).map(|i| meganodes[i % 3]).collect();
        let mut found = vec![Err(ReadError::Retries(0)); 40];
        search_across(&among, &keys, &mut found);
        for ((meganode, key), found) in among.iter().zip(&keys).zip(&found) {
            assert_eq!(*found, meganode.search(key));
        }
        assert_eq!(found[2], Err(ReadError::NotHere), "the third slot is empty");
        assert!(
            found[1].is_ok_and(|found| found.entry.is_none()) && found[0].is_ok_and(|f| f.entry.is_some())
        );
    }
}
