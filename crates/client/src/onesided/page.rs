//! What of a range goes into one page: which entries, by the same rules as the server's, before any extent is
//! read.

use std::ops::{Bound, Range};

use cell_protocol::{PageRoom, Scan};
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
    /// Where its key stands in a buffer that has the page's keys from `begin` on.
    pub(crate) fn key_from(&self, begin: usize) -> Range<usize> {
        begin + self.key.start..begin + self.key.end
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
    pub(crate) resume: Option<Vec<u8>>,
    /// The fence at which the next leaf begins, or ends when reverse.
    fence: Option<Vec<u8>>,
    room: PageRoom,
}

impl Default for PagePlan {
    fn default() -> PagePlan {
        let room = PageRoom::new(0, 0);
        let (entries, keys) = (Vec::new(), Vec::new());
        PagePlan { entries, keys, value_bytes: 0, resume: None, fence: None, room }
    }
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
        self.resume = None;
        self.fence = None;
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

    /// Takes a leaf's entries in.
    pub(crate) fn take(&mut self, scan: &Scan<'_>, leaf: &LeafSnapshot) -> PageProgress {
        let range = self.range(scan);
        let inside = range.inside(leaf);
        let ends_here = if scan.reverse { inside.start > 0 } else { inside.end < leaf.len() };
        let fence = range.next_fence(leaf).filter(|_| !ends_here);
        for step in 0..inside.len() {
            let at = if scan.reverse { inside.end - 1 - step } else { inside.start + step };
            if !self.push(leaf, at, scan.keys_only) {
                let mut resume = Vec::new();
                leaf.append_key(at, &mut resume);
                self.resume = Some(resume);
                return PageProgress::Complete;
            }
        }
        self.fence = fence.map(<[u8]>::to_vec);
        if self.fence.is_some() { PageProgress::NextLeaf } else { PageProgress::Complete }
    }

    /// Plans an entry of a leaf, whose key is decoded straight to the page's keys; false if the page is full.
    fn push(&mut self, leaf: &LeafSnapshot, at: usize, keys_only: bool) -> bool {
        let entry = leaf.entry(at);
        let len = value_len(&entry).map_or(usize::MAX, |len| usize::try_from(len).unwrap_or(usize::MAX));
        let room = self.room.admit(leaf.key_len(at), if keys_only { 0 } else { len });
        let Some(fits) = room else { return false };
        let begin = self.keys.len();
        leaf.append_key(at, &mut self.keys);
        let inline = fits && !keys_only;
        self.value_bytes += if inline { len } else { 0 };
        self.entries.push(PageEntry { key: begin..self.keys.len(), entry, inline });
        true
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
fn range_of<'a>(scan: &Scan<'a>) -> KeyRange<'a> {
    let bound = |bound: cell_protocol::Bound<'a>| match bound {
        cell_protocol::Bound::Unbounded => Bound::Unbounded,
        cell_protocol::Bound::Included(key) => Bound::Included(key),
        cell_protocol::Bound::Excluded(key) => Bound::Excluded(key),
    };
    let direction = if scan.reverse { ScanDirection::Backward } else { ScanDirection::Forward };
    KeyRange { start: bound(scan.start), end: bound(scan.end), direction }
}
