//! What of a range goes into one page: which entries, by the same rules as the server's, before any extent is
//! read.

use cell_protocol::scan::PAGE_BYTES_MAX;
use cell_protocol::{Bound, Scan};
use cell_tree::{Aim, LeafEntry, LeafSnapshot};

use super::fetch::value_len;

/// What an entry takes in a page beside key and value.
const ENTRY_BYTES: usize = 24;

/// An entry of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageEntry {
    /// Where its key stands in the page's keys.
    pub(crate) key: (usize, usize),
    /// What the leaf says of it.
    pub(crate) entry: LeafEntry,
    /// Whether its value goes into the page.
    pub(crate) inline: bool,
}

/// Where the page goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Next {
    /// At the range's own end.
    #[default]
    Begin,
    /// At this key and on, or below it when reverse.
    From(Vec<u8>),
}

/// A page that is being planned.
#[derive(Debug, Default)]
pub(crate) struct PagePlan {
    /// Leaf by leaf, in the order of the scan.
    pub(crate) entries: Vec<PageEntry>,
    pub(crate) keys: Vec<u8>,
    /// Where the scan goes on, if the page does not end the range.
    pub(crate) resume: Option<Vec<u8>>,
    next: Next,
    bytes: usize,
    limit_entries: usize,
    limit_bytes: usize,
}

/// Whether leaves are wanted after the one that was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The page is planned.
    Complete,
    /// The next leaf is wanted.
    More,
}

impl PagePlan {
    /// Begins a page.
    pub(crate) fn begin(&mut self, scan: &Scan<'_>, entries_max: u32) {
        self.entries.clear();
        self.keys.clear();
        self.resume = None;
        self.next = Next::Begin;
        self.bytes = 0;
        let limit = if scan.limit_entries == 0 { entries_max } else { scan.limit_entries.min(entries_max) };
        self.limit_entries = usize::try_from(limit).unwrap_or(usize::MAX);
        self.limit_bytes = match usize::try_from(scan.limit_bytes) {
            Ok(0) | Err(_) => PAGE_BYTES_MAX,
            Ok(bytes) => bytes.min(PAGE_BYTES_MAX),
        };
    }

    /// The leaf that is wanted next.
    pub(crate) fn aim<'a>(&'a self, scan: &Scan<'a>) -> Aim<'a> {
        match (&self.next, scan.reverse) {
            (Next::From(key), false) => Aim::At(key),
            (Next::From(key), true) => Aim::Below(key),
            (Next::Begin, _) => begin_of(scan),
        }
    }

    /// Takes a leaf's entries in.
    pub(crate) fn take(&mut self, scan: &Scan<'_>, leaf: &LeafSnapshot) -> Taken {
        let (from, to) = self.inside(scan, leaf);
        let count = to - from;
        for step in 0..count {
            let at = if scan.reverse { to - 1 - step } else { from + step };
            if !self.push(leaf.key(at), leaf.entry(at), scan.keys_only) {
                self.resume = Some(leaf.key(at).to_vec());
                return Taken::Complete;
            }
        }
        let ends_here = if scan.reverse { from > 0 } else { to < leaf.len() };
        let bound = if scan.reverse { Some(leaf.low()).filter(|low| !low.is_empty()) } else { leaf.high() };
        let outside = |bound: &&[u8]| {
            if scan.reverse { is_before(&scan.start, bound) } else { is_past(&scan.end, bound) }
        };
        let Some(bound) = bound.filter(|bound| !ends_here && !outside(bound)) else { return Taken::Complete };
        self.next = Next::From(bound.to_vec());
        Taken::More
    }

    /// The leaf's entries that are in the range and not behind what was taken in before.
    fn inside(&self, scan: &Scan<'_>, leaf: &LeafSnapshot) -> (usize, usize) {
        let mut from = scan.start.key().map_or(0, |key| leaf.position(key));
        if from < leaf.len() && is_before(&scan.start, leaf.key(from)) {
            from += 1;
        }
        let mut to = scan.end.key().map_or(leaf.len(), |key| leaf.position(key));
        if to < leaf.len() && scan.end != Bound::Unbounded && !is_past(&scan.end, leaf.key(to)) {
            to += 1;
        }
        match (&self.next, scan.reverse) {
            (Next::From(key), false) => from = from.max(leaf.position(key)),
            (Next::From(key), true) => to = to.min(leaf.position(key)),
            (Next::Begin, _) => {}
        }
        (from, to.max(from))
    }

    /// Plans an entry; false if the page is full.
    fn push(&mut self, key: &[u8], entry: LeafEntry, keys_only: bool) -> bool {
        let len = value_len(&entry).map_or(usize::MAX, |len| usize::try_from(len).unwrap_or(usize::MAX));
        let whole = ENTRY_BYTES.saturating_add(key.len()).saturating_add(len);
        let inline = !keys_only && whole <= PAGE_BYTES_MAX;
        let bytes = self.bytes + if inline { whole } else { ENTRY_BYTES + key.len() };
        let first = self.entries.is_empty();
        let fits = self.entries.len() < self.limit_entries && (first || bytes <= self.limit_bytes);
        if !fits || bytes > PAGE_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        let begin = self.keys.len();
        self.keys.extend_from_slice(key);
        self.entries.push(PageEntry { key: (begin, self.keys.len()), entry, inline });
        true
    }

    /// An entry's key.
    pub(crate) fn key(&self, entry: &PageEntry) -> &[u8] {
        &self.keys[entry.key.0..entry.key.1]
    }

    /// The page's limits, as its writer takes them.
    pub(crate) fn limits(&self) -> (u32, u32) {
        let short = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        (short(self.limit_entries), short(self.limit_bytes))
    }
}

/// Where a range begins, in its direction.
fn begin_of<'a>(scan: &Scan<'a>) -> Aim<'a> {
    if !scan.reverse {
        return scan.start.key().map_or(Aim::First, Aim::At);
    }
    match scan.end {
        Bound::Unbounded => Aim::Last,
        Bound::Included(key) => Aim::At(key),
        Bound::Excluded(key) => Aim::Below(key),
    }
}

/// Where an encoded scan begins.
pub(crate) fn first_aim(message: &[u8]) -> Option<Aim<'_>> {
    super::task::scan_of(message).map(|scan| begin_of(&scan))
}

fn is_before(start: &Bound<'_>, key: &[u8]) -> bool {
    match *start {
        Bound::Included(start) => key < start,
        Bound::Excluded(start) => key <= start,
        Bound::Unbounded => false,
    }
}

fn is_past(end: &Bound<'_>, key: &[u8]) -> bool {
    match *end {
        Bound::Included(end) => key > end,
        Bound::Excluded(end) => key >= end,
        Bound::Unbounded => false,
    }
}
