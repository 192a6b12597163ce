//! What a one-sided operation is to read, with keys of its own: those that it was submitted with are only
//! lent.

use std::ops::Range;

use cell_protocol::{Bound, Scan};

/// Where a key stands in the keys of a request.
pub(super) type KeySpan = Range<usize>;

/// The kind of a one-sided operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadKind {
    #[default]
    Get,
    Search,
    MultiGet,
    Scan,
}

/// The end of a range, its key among the keys of a request.
#[derive(Clone, Debug, Default)]
enum KeptBound {
    #[default]
    Unbounded,
    Included(KeySpan),
    Excluded(KeySpan),
}

/// See the module's text. Its memory is used again and again.
#[derive(Debug, Default)]
pub(super) struct ReadRequest {
    pub(super) kind: ReadKind,
    keys: Vec<u8>,
    key_longest: usize,
    has_empty_key: bool,
    /// Of a scan: its range, and the rest without it.
    start: KeptBound,
    end: KeptBound,
    limits: Scan<'static>,
}

impl ReadRequest {
    /// Begins a request of a kind, without any key.
    pub(super) fn begin(&mut self, kind: ReadKind) {
        self.kind = kind;
        self.keys.clear();
        self.key_longest = 0;
        self.has_empty_key = false;
    }

    /// Takes a key in.
    pub(super) fn push_key(&mut self, key: &[u8]) -> KeySpan {
        self.has_empty_key |= key.is_empty();
        self.key_longest = self.key_longest.max(key.len());
        let begin = self.keys.len();
        self.keys.extend_from_slice(key);
        begin..self.keys.len()
    }

    /// Takes range and limits of a scan in.
    pub(super) fn set_scan(&mut self, scan: &Scan<'_>) {
        self.start = self.kept(scan.start);
        self.end = self.kept(scan.end);
        let Scan { reverse, keys_only, limit_entries, limit_bytes, .. } = *scan;
        let (start, end) = (Bound::Unbounded, Bound::Unbounded);
        self.limits = Scan { start, end, reverse, keys_only, limit_entries, limit_bytes };
    }

    fn kept(&mut self, bound: Bound<'_>) -> KeptBound {
        match bound {
            Bound::Unbounded => KeptBound::Unbounded,
            Bound::Included(key) => KeptBound::Included(self.push_key(key)),
            Bound::Excluded(key) => KeptBound::Excluded(self.push_key(key)),
        }
    }

    /// The scan that was set.
    pub(super) fn scan(&self) -> Scan<'_> {
        let bound = |kept: &KeptBound| match kept {
            KeptBound::Unbounded => Bound::Unbounded,
            KeptBound::Included(key) => Bound::Included(self.key(key)),
            KeptBound::Excluded(key) => Bound::Excluded(self.key(key)),
        };
        Scan { start: bound(&self.start), end: bound(&self.end), ..self.limits }
    }

    pub(super) fn key(&self, span: &KeySpan) -> &[u8] {
        &self.keys[span.clone()]
    }

    /// Whether a tree whose longest key is so long can have all of the keys.
    pub(super) fn fits(&self, key_max: usize) -> bool {
        self.key_longest <= key_max
    }

    /// Whether a key is empty: no tree has it, and the server knows what to say.
    pub(super) fn has_empty_key(&self) -> bool {
        self.has_empty_key
    }
}
