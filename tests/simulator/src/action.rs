//! What a client is asked to do.

use cell_protocol::{Bound, Condition, Scan};
use cell_tests::linearizability::Call;

/// An end of a range, by key number or by bytes that are no key.
pub type End = Option<(Vec<u8>, bool)>;

/// A range to scan.
#[derive(Clone, Debug)]
pub struct Range {
    /// Lower end and whether it is in the range.
    pub start: End,
    /// Upper end, likewise.
    pub end: End,
    /// From the upper end down.
    pub reverse: bool,
    /// Without values.
    pub keys_only: bool,
    /// Most entries.
    pub limit_entries: u32,
    /// Most bytes.
    pub limit_bytes: u32,
}

/// What a client was asked to do.
#[derive(Clone, Debug)]
pub enum Action {
    /// A write of one key.
    Write {
        /// The key.
        key: usize,
        /// What.
        call: Call,
        /// How it was asked for.
        condition: Condition,
        /// The value, of a put.
        value: Vec<u8>,
    },
    /// The value of a key.
    Get(usize),
    /// Whether a key is there.
    Search(usize),
    /// Values of many keys.
    MultiGet(Vec<usize>),
    /// A page.
    Scan(Range),
    /// A check of the whole pair.
    Check,
}

impl Range {
    /// Everything.
    #[must_use]
    pub fn whole(reverse: bool) -> Range {
        Range { start: None, end: None, reverse, keys_only: false, limit_entries: 0, limit_bytes: 0 }
    }

    pub(crate) fn request(&self) -> Scan<'_> {
        Scan {
            start: bound(&self.start),
            end: bound(&self.end),
            reverse: self.reverse,
            keys_only: self.keys_only,
            limit_entries: self.limit_entries,
            limit_bytes: self.limit_bytes,
        }
    }

    /// Whether a key is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let after_start = match &self.start {
            None => true,
            Some((start, true)) => key >= start.as_slice(),
            Some((start, false)) => key > start.as_slice(),
        };
        after_start && self.ends_after(key)
    }

    /// Where the range begins, for maps.
    #[must_use]
    pub fn lower(&self) -> std::ops::Bound<&[u8]> {
        match &self.start {
            None => std::ops::Bound::Unbounded,
            Some((start, true)) => std::ops::Bound::Included(start),
            Some((start, false)) => std::ops::Bound::Excluded(start),
        }
    }

    /// Whether a key is below the upper end.
    #[must_use]
    pub fn ends_after(&self, key: &[u8]) -> bool {
        match &self.end {
            None => true,
            Some((end, true)) => key <= end.as_slice(),
            Some((end, false)) => key < end.as_slice(),
        }
    }
}

fn bound(end: &End) -> Bound<'_> {
    match end {
        None => Bound::Unbounded,
        Some((key, true)) => Bound::Included(key),
        Some((key, false)) => Bound::Excluded(key),
    }
}
