//! What an operation gives when it succeeds.

use std::ops::{self, Range};

use cell_protocol::{
    Bound, CheckReport, Entry, EntryValue, Found, Reply, StatusReport, TableReport, TreeReport,
};
use cell_terms::{PairId, Version};

use crate::{ClientError, Ticket};

/// The end of a submitted operation. Each ticket has exactly one.
#[derive(Debug)]
pub struct Completion {
    /// The operation.
    pub ticket: Ticket,
    /// How long it took, from submission.
    pub elapsed_ns: u64,
    /// What came of it.
    pub outcome: Result<Output, ClientError>,
}

/// An entry's value, with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The version.
    pub version: Version,
    /// The value.
    pub value: Vec<u8>,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Of a search: whether there is an entry.
    Exists(bool),
    /// Of a get: the entry, if there is one.
    Value(Option<Item>),
    /// Of a put: the entry's version. It is durable.
    Written(Version),
    /// Of a delete: whether there was an entry. That it is gone is durable.
    Deleted(bool),
    /// Of a multi-get.
    Values(FoundValues),
    /// Of a scan.
    Page(ScanPage),
    /// Of a status request.
    Status(NodeStatus),
    /// Of a question for the tree's shape.
    Tree(TreeShape),
    /// Of a question for the region table.
    Table(RegionTable),
    /// Of a check.
    Checked(CheckResult),
}

/// The one kind of output that the core gives for a kind of operation.
macro_rules! output_of {
    ($($name:ident: $variant:ident -> $type:ty;)*) => {
        impl Output {
            $(
                pub(crate) fn $name(self) -> $type {
                    match self {
                        Output::$variant(output) => output,
                        other => unreachable!("the core matched the reply to the request, yet it is {other:?}"),
                    }
                }
            )*
        }
    };
}

output_of! {
    into_exists: Exists -> bool;
    into_item: Value -> Option<Item>;
    into_version: Written -> Version;
    into_existed: Deleted -> bool;
    into_values: Values -> FoundValues;
    into_page: Page -> ScanPage;
    into_status: Status -> NodeStatus;
    into_tree: Tree -> TreeShape;
    into_table: Table -> RegionTable;
    into_check: Checked -> CheckResult;
}

macro_rules! kept {
    ($(#[$doc:meta])* $name:ident, $variant:ident($view:ident), $(#[$view_doc:meta])* $method:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(Box<[u8]>);

        impl $name {
            /// Keeps a message that was decoded as this reply.
            pub(crate) fn keep(message: &[u8]) -> $name {
                $name(message.into())
            }

            $(#[$view_doc])*
            #[must_use]
            pub fn $method(&self) -> $view<'_> {
                match Reply::decode(&self.0) {
                    Ok((_, Reply::$variant(view))) => view,
                    other => unreachable!("was decoded before it was kept, now it is {other:?}"),
                }
            }
        }
    };
}

kept!(
    /// A node's status.
    NodeStatus, Status(StatusReport),
    /// The report.
    report
);
kept!(
    /// The shape of a tree, or a part of it.
    TreeShape, Tree(TreeReport),
    /// The report.
    report
);
kept!(
    /// The region table, or a part of it.
    RegionTable, Table(TableReport),
    /// The report.
    report
);
kept!(
    /// The result of a check.
    CheckResult, Checked(CheckReport),
    /// The report.
    report
);

/// The answer to a multi-get: what was found for each key, in the order of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundValues {
    found: Vec<KeptValue>,
    bytes: Vec<u8>,
}

/// A [`Found`] whose value is kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeptValue {
    Absent,
    Value { version: Version, value: Range<usize> },
    Large { version: Version, value_len: u32 },
}

impl FoundValues {
    /// Nothing yet, with room for so many keys and for so many bytes of their values.
    pub(crate) fn with_capacity(keys: usize, bytes: usize) -> FoundValues {
        FoundValues { found: Vec::with_capacity(keys), bytes: Vec::with_capacity(bytes) }
    }

    /// Adds the answer for the next key.
    pub(crate) fn push(&mut self, found: Found<'_>) {
        self.found.push(match found {
            Found::Absent => KeptValue::Absent,
            Found::Value { version, value } => {
                KeptValue::Value { version, value: append(&mut self.bytes, value) }
            }
            Found::Large { version, value_len } => KeptValue::Large { version, value_len },
        });
    }

    /// How many keys are answered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether no key was asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// What was found for the key of this number, if there was one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Found<'_>> {
        self.found.get(index).map(|kept| self.found(kept))
    }

    /// What was found for each key: see [`Found`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Found<'_>> {
        self.found.iter().map(|kept| self.found(kept))
    }

    fn found(&self, kept: &KeptValue) -> Found<'_> {
        match *kept {
            KeptValue::Absent => Found::Absent,
            KeptValue::Value { version, ref value } => {
                Found::Value { version, value: &self.bytes[value.clone()] }
            }
            KeptValue::Large { version, value_len } => Found::Large { version, value_len },
        }
    }
}

/// A page of a scan: entries in the direction of the scan, and where the scan goes on.
///
/// Pages are equal that say the same, whatever way they were read.
#[derive(Clone, Debug)]
pub struct ScanPage {
    entries: Vec<KeptEntry>,
    bytes: Vec<u8>,
    resume: ops::Bound<Range<usize>>,
    pair: Option<PairId>,
}

/// An [`Entry`] whose bytes are kept elsewhere.
#[derive(Clone, Debug)]
struct KeptEntry {
    key: Range<usize>,
    version: Version,
    value: KeptEntryValue,
}

/// An [`EntryValue`] whose bytes are kept elsewhere.
#[derive(Clone, Debug)]
pub(crate) enum KeptEntryValue {
    Inline(Range<usize>),
    Large { value_len: u32 },
    Omitted { value_len: u32 },
}

/// Where bytes are kept is no part of what a page says: one that was copied in place has all of its keys
/// before its values.
impl PartialEq for ScanPage {
    fn eq(&self, other: &ScanPage) -> bool {
        self.pair == other.pair && self.resume() == other.resume() && self.iter().eq(other.iter())
    }
}

impl Eq for ScanPage {}

impl ScanPage {
    /// An empty page that nothing follows, with room for so many entries and bytes of keys and values.
    pub(crate) fn with_capacity(entries: usize, bytes: usize) -> ScanPage {
        let (entries, bytes) = (Vec::with_capacity(entries), Vec::with_capacity(bytes));
        ScanPage { entries, bytes, resume: ops::Bound::Unbounded, pair: None }
    }

    /// Adds the next entry.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        let key = append(&mut self.bytes, entry.key);
        let value = match entry.value {
            EntryValue::Inline(value) => KeptEntryValue::Inline(append(&mut self.bytes, value)),
            EntryValue::Large { value_len } => KeptEntryValue::Large { value_len },
            EntryValue::Omitted { value_len } => KeptEntryValue::Omitted { value_len },
        };
        self.entries.push(KeptEntry { key, version: entry.version, value });
    }

    /// An empty page that nothing follows over bytes that it takes over, with room for so many entries: see
    /// [`ScanPage::push_kept`].
    pub(crate) fn over(bytes: Vec<u8>, entries: usize) -> ScanPage {
        ScanPage { entries: Vec::with_capacity(entries), bytes, resume: ops::Bound::Unbounded, pair: None }
    }

    /// The page's bytes, for who copies to where they stay.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Adds the next entry, whose key and value stand in the page's bytes already.
    #[inline]
    pub(crate) fn push_kept(&mut self, key: Range<usize>, version: Version, value: KeptEntryValue) {
        self.entries.push(KeptEntry { key, version, value });
    }

    /// The page with its end: where the scan goes on, or unbounded.
    pub(crate) fn ending(mut self, resume: Bound<'_>) -> ScanPage {
        self.resume = match resume {
            Bound::Unbounded => ops::Bound::Unbounded,
            Bound::Included(key) => ops::Bound::Included(append(&mut self.bytes, key)),
            Bound::Excluded(key) => ops::Bound::Excluded(append(&mut self.bytes, key)),
        };
        self
    }

    /// The page as this pair's owner has answered it.
    pub(crate) fn answered_by(mut self, pair: PairId) -> ScanPage {
        self.pair = Some(pair);
        self
    }

    /// The pair that has all keys from where the scan began to where it goes on; none if the client has read
    /// the page itself.
    #[must_use]
    pub fn pair(&self) -> Option<PairId> {
        self.pair
    }

    /// How many entries; none does not mean that the scan is done.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry; that does not mean that the scan is done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether nothing follows in the range.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.resume == ops::Bound::Unbounded
    }

    /// Where the scan goes on: in place of the start, or of the end when reverse. Unbounded when done.
    #[must_use]
    pub fn resume(&self) -> Bound<'_> {
        match self.resume {
            ops::Bound::Unbounded => Bound::Unbounded,
            ops::Bound::Included(ref key) => Bound::Included(&self.bytes[key.clone()]),
            ops::Bound::Excluded(ref key) => Bound::Excluded(&self.bytes[key.clone()]),
        }
    }

    /// The entries, in the direction of the scan.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.entries.iter().map(|entry| Entry {
            key: &self.bytes[entry.key.clone()],
            version: entry.version,
            value: match entry.value {
                KeptEntryValue::Inline(ref value) => EntryValue::Inline(&self.bytes[value.clone()]),
                KeptEntryValue::Large { value_len } => EntryValue::Large { value_len },
                KeptEntryValue::Omitted { value_len } => EntryValue::Omitted { value_len },
            },
        })
    }
}

/// Puts bytes at the end of a buffer; where they stand there.
fn append(buffer: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let begin = buffer.len();
    buffer.extend_from_slice(bytes);
    begin..buffer.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_say_the_same_are_equal_wherever_their_bytes_are() {
        let version = Version::default();
        let mut pushed = ScanPage::with_capacity(2, 16);
        for (key, value) in [(b"a", b"1"), (b"b", b"2")] {
            pushed.push(&Entry { key, version, value: EntryValue::Inline(value) });
        }
        let pushed = pushed.ending(Bound::Included(b"c"));
        let over = |bytes: &[u8], resume| {
            let mut page = ScanPage::over(bytes.to_vec(), 2);
            page.push_kept(2..3, version, KeptEntryValue::Inline(0..1));
            page.push_kept(3..4, version, KeptEntryValue::Inline(1..2));
            page.ending(resume)
        };
        assert_eq!(over(b"12ab", Bound::Included(b"c")), pushed);
        assert_ne!(over(b"13ab", Bound::Included(b"c")), pushed, "another value");
        assert_ne!(over(b"12ac", Bound::Included(b"c")), pushed, "another key");
        assert_ne!(over(b"12ab", Bound::Unbounded), pushed, "another end");
    }
}
