//! Scans as an iterator over pages, which can be broken off and taken up again.

use std::collections::VecDeque;
use std::ops::Bound;

use cell_protocol::{EntryValue, Scan};
use cell_terms::Version;

use crate::{Client, ClientError, Item};

/// What to scan. A range that a scan has not finished is a range too: see [`Scanner::resume`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRange {
    /// Lower end, in both directions.
    pub start: Bound<Vec<u8>>,
    /// Upper end, in both directions.
    pub end: Bound<Vec<u8>>,
    /// From the upper end down.
    pub reverse: bool,
    /// Values are not wanted.
    pub keys_only: bool,
    /// Most entries wanted.
    pub limit: u64,
    /// Most entries of a page; 0 is as many as the server gives.
    pub page_entries: u32,
}

impl Client {
    /// The entries of a range, page by page. See [`ScanRange`].
    pub fn scan(&mut self, range: ScanRange) -> Scanner<'_> {
        Scanner::new(self, range)
    }
}

impl Default for ScanRange {
    fn default() -> ScanRange {
        let (start, end) = (Bound::Unbounded, Bound::Unbounded);
        ScanRange { start, end, reverse: false, keys_only: false, limit: u64::MAX, page_entries: 0 }
    }
}

impl ScanRange {
    /// All keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> ScanRange {
        let start = Bound::Included(prefix.to_vec());
        ScanRange { start, end: after_prefix(prefix), ..ScanRange::default() }
    }

    /// The request for the next page.
    pub(crate) fn request(&self) -> Scan<'_> {
        Scan {
            start: on_the_wire(&self.start),
            end: on_the_wire(&self.end),
            reverse: self.reverse,
            keys_only: self.keys_only,
            limit_entries: match (u32::try_from(self.limit), self.page_entries) {
                (Ok(limit), 0) => limit,
                (Ok(limit), page) => limit.min(page),
                (Err(_), page) => page,
            },
            limit_bytes: 0,
        }
    }

    /// What is left after a page.
    fn advance(&mut self, resume: cell_protocol::Bound<'_>, entry_count: usize) {
        let bound = match resume {
            cell_protocol::Bound::Unbounded => Bound::Unbounded,
            cell_protocol::Bound::Included(key) => Bound::Included(key.to_vec()),
            cell_protocol::Bound::Excluded(key) => Bound::Excluded(key.to_vec()),
        };
        *(if self.reverse { &mut self.end } else { &mut self.start }) = bound;
        self.limit = self.limit.saturating_sub(entry_count as u64);
    }
}

fn on_the_wire(bound: &Bound<Vec<u8>>) -> cell_protocol::Bound<'_> {
    match bound {
        Bound::Unbounded => cell_protocol::Bound::Unbounded,
        Bound::Included(key) => cell_protocol::Bound::Included(key),
        Bound::Excluded(key) => cell_protocol::Bound::Excluded(key),
    }
}

/// The first key after all that begin with `prefix`, as an upper end.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let Some(last) = prefix.iter().rposition(|&byte| byte != u8::MAX) else { return Bound::Unbounded };
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Bound::Excluded(after)
}

/// An entry of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The version.
    pub version: Version,
    /// The value; empty when only keys were asked for.
    pub value: Vec<u8>,
    /// The value's length, asked for or not.
    pub value_len: u32,
}

/// The entries of a range, in order. Each page is taken from consistent leaves; the scan as a whole is not a
/// snapshot: what is written behind or ahead of it meanwhile may or may not be in it. A value too large for
/// its page is fetched by a get of its own, so it may be newer, and an entry that is gone by then is left
/// out.
#[derive(Debug)]
pub struct Scanner<'a> {
    client: &'a mut Client,
    /// What follows the fetched entries.
    range: ScanRange,
    /// Fetched and not yielded yet.
    entries: VecDeque<ScanEntry>,
    finished: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(client: &'a mut Client, range: ScanRange) -> Scanner<'a> {
        let finished = range.limit == 0;
        Scanner { client, range, entries: VecDeque::new(), finished }
    }

    /// What of the range was not yielded yet: scan it to go on, with this client or another; none when the
    /// scan is through.
    #[must_use]
    pub fn resume(&self) -> Option<ScanRange> {
        let Some(next) = self.entries.front() else {
            return (!self.finished).then(|| self.range.clone());
        };
        let mut rest = self.range.clone();
        rest.advance(cell_protocol::Bound::Included(&next.key), 0);
        rest.limit = rest.limit.saturating_add(self.entries.len() as u64);
        Some(rest)
    }

    fn next_page(&mut self) -> Result<(), ClientError> {
        let page = self.client.scan_page(self.range.request())?;
        for entry in page.iter() {
            let version = entry.version;
            let (item, value_len) = match entry.value {
                EntryValue::Inline(value) => (Some(Item { version, value: value.to_vec() }), value.len()),
                EntryValue::Omitted { value_len } => (
                    Some(Item { version, value: Vec::new() }),
                    usize::try_from(value_len).unwrap_or(usize::MAX),
                ),
                EntryValue::Large { .. } => {
                    let item = self.client.get(entry.key)?;
                    let len = item.as_ref().map_or(0, |item| item.value.len());
                    (item, len)
                }
            };
            let Some(item) = item else { continue };
            let value_len = u32::try_from(value_len).unwrap_or(u32::MAX);
            let Item { version, value } = item;
            self.entries.push_back(ScanEntry { key: entry.key.to_vec(), version, value, value_len });
        }
        self.range.advance(page.resume(), self.entries.len());
        self.finished = page.is_done() || self.range.limit == 0;
        Ok(())
    }
}

impl Iterator for Scanner<'_> {
    type Item = Result<ScanEntry, ClientError>;

    /// The next entry. After an error the same scanner goes on where it was when it is asked again.
    fn next(&mut self) -> Option<Self::Item> {
        while self.entries.is_empty() {
            if self.finished {
                return None;
            }
            if let Err(error) = self.next_page() {
                self.entries.clear();
                return Some(Err(error));
            }
        }
        self.entries.pop_front().map(Ok)
    }
}
