//! Searching many keys at once.
//!
//! A search waits for memory at each level. So up to [`LANES`] searches go down together: each takes one step, asks for
//! the cache lines of its next node, and lets the others go on meanwhile (group prefetching). A leaf takes two steps:
//! the first reads header, heads and slots and asks for the lines of the one cell that can be the key's, the second
//! compares the key and takes the entry. So a leaf costs five or six lines instead of all of them.

use cell_terms::Words;

use crate::geometry::NodeIndex;
use crate::search::{Cursor, Found, Meganode, ReadError, Step, sized, step};
use crate::view::Probe;

/// Searches that go down together.
pub const LANES: usize = 16;

/// Lines of a leaf that hold header, fences and the arrays of a common leaf.
const LEAF_FRONT_BYTES: usize = 256;

#[derive(Clone, Copy)]
struct Lane<'k> {
    probe: Probe<'k>,
    cursor: Cursor,
    /// The leaf's cell was asked for.
    asked: bool,
    out: usize,
}

impl<'a, W: Words + ?Sized> Meganode<'a, W> {
    /// Searches keys, [`LANES`] at a time; answers stand in `out` in the same order and are what
    /// [`Meganode::search`] would say.
    ///
    /// # Panics
    /// If `out` is shorter than `keys`.
    pub fn search_batch<K: AsRef<[u8]>>(&self, keys: &[K], out: &mut [Result<Found, ReadError>]) {
        assert!(out.len() >= keys.len(), "an answer for each key");
        for (keys, out) in keys.chunks(LANES).zip(out.chunks_mut(LANES)) {
            sized!(self.geometry, B => self.search_lanes::<K, B>(keys, out));
        }
    }

    fn search_lanes<K: AsRef<[u8]>, const B: usize>(&self, keys: &[K], out: &mut [Result<Found, ReadError>]) {
        let empty = Lane { probe: Probe::new(&[]), cursor: Cursor::ROOT, asked: false, out: 0 };
        let mut lanes = [empty; LANES];
        let mut active = 0;
        for (i, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            match self.check_key(key) {
                Ok(()) => {
                    lanes[active] = Lane { probe: Probe::new(key), out: i, ..empty };
                    active += 1;
                }
                Err(error) => out[i] = Err(error),
            }
        }
        while active > 0 {
            let mut kept = 0;
            for i in 0..active {
                let mut lane = lanes[i];
                match self.advance::<B>(&mut lane) {
                    Some(answer) => out[lane.out] = answer,
                    None => {
                        lanes[kept] = lane;
                        kept += 1;
                    }
                }
            }
            active = kept;
        }
    }

    /// One step of one search: its answer, if it has one.
    #[inline(always)]
    fn advance<const B: usize>(&self, lane: &mut Lane<'_>) -> Option<Result<Found, ReadError>> {
        let node = lane.cursor.node;
        let view = self.view::<B>(node);
        let asked = lane.asked;
        let answer = view.stable(|view| {
            let header = view.header();
            let answer = step(view, &header, &lane.probe, lane.cursor.level, |view, header, window| {
                if !asked {
                    view.prefetch_candidate(header, window);
                    return None;
                }
                Some(Found {
                    entry: view.find(header, &lane.probe, window).1.map(|cell| view.leaf_entry(&cell)),
                    node,
                    csn_changed: view.csn_changed(),
                    csn_removed: view.csn_removed(),
                })
            });
            (answer, header.level)
        });
        let moved = match answer {
            Some((Step::Leaf(Some(found)), _)) => return Some(Ok(found)),
            Some((Step::Leaf(None), _)) => {
                lane.asked = true;
                Ok(())
            }
            Some((Step::Child(child), level)) => self.enter_lane::<B>(lane, child, level - 1),
            Some((Step::Right(right), level)) => self.move_right(&mut lane.cursor, right, level),
            Some((Step::Restart, _)) => self.restart(&mut lane.cursor),
            None => self.retry(&mut lane.cursor),
        };
        moved.err().map(Err)
    }

    #[inline(always)]
    fn enter_lane<const B: usize>(
        &self,
        lane: &mut Lane<'_>,
        child: NodeIndex,
        level: u8,
    ) -> Result<(), ReadError> {
        if child.get() >= self.geometry.nodes() {
            return self.restart(&mut lane.cursor);
        }
        lane.cursor.node = child;
        lane.cursor.level = Some(level);
        lane.asked = false;
        self.view::<B>(child).prefetch(0, if level == 0 { LEAF_FRONT_BYTES } else { B * 5 / 8 });
        Ok(())
    }
}
