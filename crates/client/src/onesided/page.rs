//! What of a range goes into one page: which entries, by the same rules as the server's, before any extent is
//! read.

use std::ops::{Bound, Range};

use cell_protocol::{PAGE_LEAVES_MAX, PageRoom, Scan};
use cell_tree::{Aim, KeyRange, LeafEntry, LeafSnapshot, ScanDirection};

use super::fetch::value_len;

/// An entry of the page.
#[derive(Clone, Debug)]
pub(crate) struct PageEntry {
    /// Where its key stands in the page's keys.
    key: Range<usize>,
    /// What the leaf says of it.
    pub(crate) entry: LeafEntry,
    /// Whether its value goes into the page.
    pub(crate) inline: bool,
}

impl PageEntry {
    /// Where its key stands in the page's keys.
    pub(crate) fn key_range(&self) -> Range<usize> {
        self.key.clone()
    }
}

/// A page that is being planned.
#[derive(Debug)]
pub(crate) struct PagePlan {
    /// Leaf by leaf, in the order of the scan.
    pub(crate) entries: Vec<PageEntry>,
    pub(crate) keys: Vec<u8>,
    /// Bytes of the values that go into the page.
    value_bytes: usize,
    /// Where the scan goes on, if the page does not end the range.
    resume: Option<Vec<u8>>,
    /// It goes on below that, at a fence.
    goes_on_below: bool,
    /// The fence at which the next leaf begins, or ends when reverse.
    fence: Option<Vec<u8>>,
    room: PageRoom,
    /// How many more leaves the page may look at.
    leaves_left: usize,
}

impl Default for PagePlan {
    fn default() -> PagePlan {
        let room = PageRoom::new(0, 0);
        PagePlan {
            entries: Vec::new(),
            keys: Vec::new(),
            value_bytes: 0,
            resume: None,
            goes_on_below: false,
            fence: None,
            room,
            leaves_left: PAGE_LEAVES_MAX,
        }
    }
}

/// What of a leaf is in what is left of a range.
#[derive(Clone, Debug)]
pub(crate) struct LeafPart {
    inside: Range<usize>,
    /// The range ends within the leaf.
    ends_here: bool,
    /// The next leaf is wanted, as far as that shows before the leaf's entries are planned.
    pub(crate) goes_on: bool,
}

/// Whether leaves are wanted after the one that was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageProgress {
    /// The page is planned.
    Complete,
    /// The next leaf is wanted.
    NextLeaf,
}

impl PagePlan {
    /// Begins a page.
    pub(crate) fn begin(&mut self, scan: &Scan<'_>, entries_max: u32) {
        self.entries.clear();
        self.keys.clear();
        self.value_bytes = 0;
        (self.resume, self.goes_on_below) = (None, false);
        self.fence = None;
        self.leaves_left = PAGE_LEAVES_MAX;
        let limit = if scan.limit_entries == 0 { entries_max } else { scan.limit_entries.min(entries_max) };
        self.room = PageRoom::new(limit, scan.limit_bytes);
    }

    /// What is left of the range, from the leaf on that is wanted next.
    fn range<'a>(&'a self, scan: &Scan<'a>) -> KeyRange<'a> {
        let mut range = range_of(scan);
        match (&self.fence, scan.reverse) {
            (Some(fence), false) => range.start = Bound::Included(fence),
            (Some(fence), true) => range.end = Bound::Excluded(fence),
            (None, _) => {}
        }
        range
    }

    /// The leaf that is wanted next.
    pub(crate) fn aim<'a>(&'a self, scan: &Scan<'a>) -> Aim<'a> {
        self.range(scan).first_aim()
    }

    /// What of a leaf is wanted.
    pub(crate) fn part(&self, scan: &Scan<'_>, leaf: &LeafSnapshot) -> LeafPart {
        let inside = self.range(scan).inside(leaf);
        let ends_here = if scan.reverse { inside.start > 0 } else { inside.end < leaf.len() };
        // Of a page that is full with the leaf's last entry, the next leaf has where the scan goes on.
        let goes_on = !ends_here && self.leaves_left > 1 && self.room.entries_left() >= inside.len();
        LeafPart { inside, ends_here, goes_on }
    }

    /// Takes the entries of a leaf's part in; keys are decoded straight to the page's. Each is handed to
    /// `ask` as soon as it is planned, so that its extent comes while the others are.
    pub(crate) fn take(
        &mut self,
        scan: &Scan<'_>,
        leaf: &LeafSnapshot,
        part: &LeafPart,
        mut ask: impl FnMut(&PageEntry),
    ) -> PageProgress {
        let fence = self.range(scan).next_fence(leaf).filter(|_| !part.ends_here);
        let (inside, reverse, keys_only) = (&part.inside, scan.reverse, scan.keys_only);
        let place = |step: usize| if reverse { inside.end - 1 - step } else { inside.start + step };
        let PagePlan { entries, keys, value_bytes, room, .. } = &mut *self;
        let full_at = leaf.append_entries((0..inside.len()).map(place), keys, |entry, key| {
            let len = value_len(&entry).map_or(usize::MAX, |len| usize::try_from(len).unwrap_or(usize::MAX));
            let Some(fits) = room.admit(key.len(), if keys_only { 0 } else { len }) else { return false };
            let inline = fits && !keys_only;
            *value_bytes += if inline { len } else { 0 };
            let planned = PageEntry { key, entry, inline };
            ask(&planned);
            entries.push(planned);
            true
        });
        if let Some(at) = full_at {
            let mut resume = Vec::new();
            leaf.append_key(at, &mut resume);
            self.resume = Some(resume);
            return PageProgress::Complete;
        }
        let Some(fence) = fence else { return PageProgress::Complete };
        self.leaves_left = self.leaves_left.saturating_sub(1);
        if self.leaves_left == 0 {
            (self.resume, self.goes_on_below) = (Some(fence.to_vec()), reverse);
            return PageProgress::Complete;
        }
        let kept = self.fence.get_or_insert_default();
        kept.clear();
        kept.extend_from_slice(fence);
        PageProgress::NextLeaf
    }

    /// Where the scan goes on: in place of its start, or of its end when reverse.
    pub(crate) fn resume(&self) -> cell_protocol::Bound<'_> {
        match &self.resume {
            None => cell_protocol::Bound::Unbounded,
            Some(fence) if self.goes_on_below => cell_protocol::Bound::Excluded(fence),
            Some(key) => cell_protocol::Bound::Included(key),
        }
    }

    /// Bytes of all that is planned so far: keys, values that go into the page, and where it goes on.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.len() + self.value_bytes + self.resume.as_ref().map_or(0, Vec::len)
    }

    /// An entry's key.
    pub(crate) fn key(&self, entry: &PageEntry) -> &[u8] {
        &self.keys[entry.key.clone()]
    }
}

/// The range of a scan.
pub(crate) fn range_of<'a>(scan: &Scan<'a>) -> KeyRange<'a> {
    let bound = |bound: cell_protocol::Bound<'a>| match bound {
        cell_protocol::Bound::Unbounded => Bound::Unbounded,
        cell_protocol::Bound::Included(key) => Bound::Included(key),
        cell_protocol::Bound::Excluded(key) => Bound::Excluded(key),
    };
    let direction = if scan.reverse { ScanDirection::Backward } else { ScanDirection::Forward };
    KeyRange { start: bound(scan.start), end: bound(scan.end), direction }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Csn, ExtentOffset, Pointer, RegionId, SlotIndex};
    use cell_tree::{
        BulkFrame, Change, Geometry, Meganode, NodeIndex, NodeRef, Slot, SlotAllocator, apply, bulk_build,
        empty_root,
    };

    use super::*;

    const NODE_BYTES: usize = 512;
    const SLOT: Slot = Slot { region: RegionId(2), index: SlotIndex(0) };

    /// A leaf with the keys `a` to `e`, whose extents are at 1 to 5.
    fn leaf() -> LeafSnapshot {
        let geometry = Geometry::new(NODE_BYTES, 8 * NODE_BYTES, 0).unwrap();
        let mut words = vec![0; NODE_BYTES];
        words[..NODE_BYTES / 8].copy_from_slice(&empty_root(geometry));
        for (number, key) in (1..).zip([b"a", b"b", b"c", b"d", b"e"]) {
            let entry = LeafEntry { offset: ExtentOffset(number), value_len: 10, crc: 7 };
            let put = Change::Put { node: NodeIndex::ROOT, key, entry };
            apply(&mut words[..], geometry, SLOT, &put, Csn(number.into()));
        }
        let mut leaf = LeafSnapshot::new();
        let node = NodeRef::new(geometry, NodeIndex::ROOT, &words[..NODE_BYTES / 8]).unwrap();
        assert!(node.snapshot(&mut leaf));
        leaf
    }

    /// A leaf of the keys from `b` on and below `e`, which has `c` alone.
    fn leaf_between() -> LeafSnapshot {
        let geometry = Geometry::new(NODE_BYTES, 8 * NODE_BYTES, 0).unwrap();
        let mut words = vec![0u64; NODE_BYTES];
        let right = Pointer::new(RegionId(4), 0);
        let frame = BulkFrame { low: b"b", high: Some(b"e"), right, ..BulkFrame::WHOLE };
        let mut allocator = SlotAllocator::new(geometry.nodes());
        let entry = LeafEntry { offset: ExtentOffset(1), value_len: 10, crc: 7 };
        let emit = |change: Change<'_>| apply(&mut words[..], geometry, SLOT, &change, Csn(1));
        bulk_build(geometry, SLOT, &frame, &mut allocator, [("c", entry)], emit).unwrap();
        let mut leaf = LeafSnapshot::new();
        Meganode::new(&words[..], geometry, SLOT).leaf(b"c", &mut leaf).unwrap();
        leaf
    }

    /// Whatever the leaves have: behind the first one, this one has nothing for the scan.
    #[test]
    fn page_takes_no_more_leaves_than_it_may_and_goes_on_behind_them() {
        let (leaf, mut plan) = (leaf_between(), PagePlan::default());
        for (reverse, keys_only) in [(false, false), (true, false), (false, true), (true, true)] {
            let scan = Scan { reverse, keys_only, ..Scan::default() };
            plan.begin(&scan, 1_000);
            for number in 1..=PAGE_LEAVES_MAX {
                let part = plan.part(&scan, &leaf);
                let is_complete = plan.take(&scan, &leaf, &part, |_| {}) == PageProgress::Complete;
                let is_last = number == PAGE_LEAVES_MAX;
                assert_eq!((part.goes_on, is_complete), (!is_last, is_last), "{number} of {scan:?}");
            }
            let fence = if reverse { cell_protocol::Bound::Excluded(&b"b"[..]) } else { bound(b"e") };
            assert_eq!((plan.resume(), plan.entries.len()), (fence, 1));
        }
    }

    /// The places of the extents that a page asks for, and whether the next leaf is wanted.
    fn asked_for(scan: &Scan<'_>) -> (Vec<u32>, bool) {
        let (leaf, mut plan, mut asked) = (leaf(), PagePlan::default(), Vec::new());
        plan.begin(scan, 1_000);
        let part = plan.part(scan, &leaf);
        plan.take(scan, &leaf, &part, |planned| asked.push(planned.entry.offset.0));
        assert_eq!(asked.len(), plan.entries.len(), "each entry of the page once");
        (asked, part.goes_on)
    }

    #[test]
    fn take_asks_for_what_is_in_the_page_and_in_the_range() {
        let all = Scan::default();
        let limited = Scan { limit_entries: 2, ..all };
        let full = Scan { limit_entries: 5, ..all };
        let ending = Scan { start: bound(b"b"), end: bound(b"d"), ..all };
        for (scan, forward, backward, goes_on) in [
            (all, vec![1, 2, 3, 4, 5], vec![5, 4, 3, 2, 1], [true, true]),
            (limited, vec![1, 2], vec![5, 4], [false, false]),
            (full, vec![1, 2, 3, 4, 5], vec![5, 4, 3, 2, 1], [true, true]),
            (ending, vec![2, 3, 4], vec![4, 3, 2], [false, false]),
            (Scan { end: bound(b"d"), ..all }, vec![1, 2, 3, 4], vec![4, 3, 2, 1], [false, true]),
        ] {
            for keys_only in [false, true] {
                let scan = Scan { keys_only, ..scan };
                assert_eq!(asked_for(&scan), (forward.clone(), goes_on[0]), "{scan:?}");
                let reverse = Scan { reverse: true, ..scan };
                assert_eq!(asked_for(&reverse), (backward.clone(), goes_on[1]), "{reverse:?}");
            }
        }
    }

    fn bound(key: &[u8]) -> cell_protocol::Bound<'_> {
        cell_protocol::Bound::Included(key)
    }
}
