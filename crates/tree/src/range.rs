//! Ranges of keys, leaf by leaf: which entries of a leaf are in a range, and whether a scan goes on behind
//! the leaf. A server that scans in place and a client that reads copies of leaves go by the same rules.

use std::ops::{Bound, Range};

use crate::aim::Aim;
use crate::snapshot::LeafSnapshot;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanDirection {
    /// From the lower end up.
    #[default]
    Forward,
    /// From the upper end down.
    Backward,
}

/// A range of keys, and the direction in which it is scanned.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// Lower end, in both directions.
    pub start: Bound<&'a [u8]>,
    /// Upper end, in both directions.
    pub end: Bound<&'a [u8]>,
    /// Where the scan begins.
    pub direction: ScanDirection,
}

impl<'a> KeyRange<'a> {
    /// The same keys by bounds that a tree can search: no key is empty or longer than `key_max`. `None` if no
    /// key is in the range.
    #[must_use]
    pub fn searchable(&self, key_max: usize) -> Option<KeyRange<'a>> {
        // Between a key of the longest length and its extensions there is no key.
        let start = match self.start {
            Bound::Included(key) | Bound::Excluded(key) if key.len() > key_max => {
                Bound::Excluded(&key[..key_max])
            }
            Bound::Included([]) | Bound::Excluded([]) => Bound::Unbounded,
            start => start,
        };
        let end = match self.end {
            Bound::Included(key) | Bound::Excluded(key) if key.len() > key_max => {
                Bound::Included(&key[..key_max])
            }
            Bound::Included([]) | Bound::Excluded([]) => return None,
            end => end,
        };
        Some(KeyRange { start, end, ..*self })
    }

    /// The leaf where the scan begins.
    #[must_use]
    pub fn first_aim(&self) -> Aim<'a> {
        match (self.direction, self.start, self.end) {
            (ScanDirection::Forward, Bound::Included(key) | Bound::Excluded(key), _) => Aim::At(key),
            (ScanDirection::Forward, Bound::Unbounded, _) => Aim::First,
            (ScanDirection::Backward, _, Bound::Included(key)) => Aim::At(key),
            (ScanDirection::Backward, _, Bound::Excluded(key)) => Aim::Below(key),
            (ScanDirection::Backward, _, Bound::Unbounded) => Aim::Last,
        }
    }

    /// Whether keys below `bound` are in the range, as far as its lower end goes.
    #[must_use]
    pub fn begins_below(&self, bound: &[u8]) -> bool {
        match self.start {
            Bound::Included(start) | Bound::Excluded(start) => start < bound,
            Bound::Unbounded => true,
        }
    }

    /// Whether a key is above the upper end.
    #[must_use]
    pub fn is_past_end(&self, key: &[u8]) -> bool {
        match self.end {
            Bound::Included(end) => key > end,
            Bound::Excluded(end) => key >= end,
            Bound::Unbounded => false,
        }
    }

    /// The numbers of the leaf's entries that are in the range.
    #[must_use]
    pub fn inside(&self, leaf: &LeafSnapshot) -> Range<usize> {
        let before = |key: &[u8]| leaf.find(key).0;
        let upto = |key: &[u8]| {
            let (at, present) = leaf.find(key);
            at + usize::from(present)
        };
        // A scan that goes on begins where its leaf does, or ends there.
        let from = match self.start {
            Bound::Included(key) if *key == *leaf.low() => 0,
            Bound::Included(key) => before(key),
            Bound::Excluded(key) => upto(key),
            Bound::Unbounded => 0,
        };
        let to = match self.end {
            Bound::Excluded(key) if leaf.high() == Some(key) => leaf.len(),
            Bound::Included(key) => upto(key),
            Bound::Excluded(key) => before(key),
            Bound::Unbounded => leaf.len(),
        };
        from..to.max(from)
    }

    /// What of the range is behind its first leaf: all that is on that side, so that the bound where the scan
    /// has started is not compared with each leaf's keys again.
    #[must_use]
    pub fn behind_first_leaf(self) -> KeyRange<'a> {
        match self.direction {
            ScanDirection::Forward => KeyRange { start: Bound::Unbounded, ..self },
            ScanDirection::Backward => KeyRange { end: Bound::Unbounded, ..self },
        }
    }

    /// The fence behind which the scan goes on after a leaf: at it and above, or below it when backward.
    /// `None` if nothing of the range can be behind the leaf.
    #[must_use]
    pub fn next_fence<'l>(&self, leaf: &'l LeafSnapshot) -> Option<&'l [u8]> {
        match self.direction {
            ScanDirection::Forward => leaf.high().filter(|high| !self.is_past_end(high)),
            ScanDirection::Backward => {
                Some(leaf.low()).filter(|low| !low.is_empty() && self.begins_below(low))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use cell_terms::{Csn, ExtentOffset, Pointer, RegionId, SlotIndex};

    use super::*;
    use crate::{BulkFrame, Change, Geometry, LeafEntry, Meganode, Slot, SlotAllocator, apply, bulk_build};

    /// A leaf of the keys from `b` on and below `e`.
    fn leaf(keys: &[&'static str]) -> LeafSnapshot {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let slot = Slot { region: RegionId(2), index: SlotIndex(0) };
        let mut words = vec![0u64; (4096 + (64 << 10)) / 8];
        let right = Pointer::new(RegionId(2), 4096);
        let frame = BulkFrame { low: b"b", high: Some(b"e"), right, ..BulkFrame::WHOLE };
        let mut allocator = SlotAllocator::new(geometry.nodes());
        let entry = LeafEntry { offset: ExtentOffset(1), value_len: 0, crc: 1 };
        let entries = keys.iter().map(|key| (*key, entry));
        let emit = |change: Change<'_>| apply(&mut words[..], geometry, slot, &change, Csn(1));
        bulk_build(geometry, slot, &frame, &mut allocator, entries, emit).unwrap();
        let mut leaf = LeafSnapshot::new();
        Meganode::new(&words[..], geometry, slot).leaf(b"c", &mut leaf).unwrap();
        leaf
    }

    #[test]
    fn inside_is_what_the_bounds_say_at_fences_and_elsewhere() {
        let bounds: Vec<Bound<&[u8]>> = [&b"a"[..], b"b", b"bb", b"c", b"d", b"dd", b"e", b"f"]
            .into_iter()
            .flat_map(|key| [Bound::Included(key), Bound::Excluded(key)])
            .chain([Bound::Unbounded])
            .collect();
        for keys in [&["b", "c", "d"][..], &["bb", "dd"]] {
            let leaf = leaf(keys);
            for (start, end) in bounds.iter().flat_map(|start| bounds.iter().map(move |end| (*start, *end))) {
                let range = KeyRange { start, end, direction: ScanDirection::Forward };
                let is_inside = |key: &&[u8]| RangeBounds::<[u8]>::contains(&(start, end), *key);
                let wanted: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).filter(is_inside).collect();
                let found: Vec<&[u8]> = range.inside(&leaf).map(|at| leaf.key(at)).collect();
                assert_eq!(found, wanted, "{range:?} of {keys:?}");
            }
        }
    }

    #[test]
    fn leaf_behind_the_first_has_what_it_has_without_the_bound_where_the_scan_began() {
        let leaf = leaf(&["b", "c", "d"]);
        let below: [Bound<&[u8]>; 3] = [Bound::Unbounded, Bound::Included(b"a"), Bound::Excluded(b"a")];
        let above: [Bound<&[u8]>; 3] = [Bound::Unbounded, Bound::Included(b"f"), Bound::Excluded(b"e")];
        let within: [Bound<&[u8]>; 3] = [Bound::Unbounded, Bound::Included(b"c"), Bound::Excluded(b"c")];
        for (number, within) in (0..3).flat_map(|number| within.map(|within| (number, within))) {
            let forward = KeyRange { start: below[number], end: within, direction: ScanDirection::Forward };
            let backward = KeyRange { start: within, end: above[number], direction: ScanDirection::Backward };
            for range in [forward, backward] {
                assert_eq!(range.behind_first_leaf().inside(&leaf), range.inside(&leaf), "{range:?}");
            }
        }
    }
}
