//! Scans as an iterator over pages, which can be broken off and taken up again.

use std::collections::VecDeque;
use std::ops::Bound;

use cell_protocol::{Entry, EntryValue, Scan};
use cell_terms::Version;

use crate::{Client, ClientError, Item, ScanPage, Ticket};

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
    /// The entries of a range, page by page. See [`ScanRange`]. Each entry is the caller's own: who needs
    /// them only while they are looked at takes [`Client::scan_with`].
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

    /// Begins (or, in reverse, ends) here from now on.
    pub(crate) fn go_to(&mut self, resume: cell_protocol::Bound<'_>) {
        let bound = match resume {
            cell_protocol::Bound::Unbounded => Bound::Unbounded,
            cell_protocol::Bound::Included(key) => Bound::Included(key.to_vec()),
            cell_protocol::Bound::Excluded(key) => Bound::Excluded(key.to_vec()),
        };
        *(if self.reverse { &mut self.end } else { &mut self.start }) = bound;
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

impl ScanEntry {
    /// An entry with its whole value.
    pub(crate) fn whole(key: Vec<u8>, item: Item) -> ScanEntry {
        let Item { version, value } = item;
        ScanEntry { key, version, value_len: u32::try_from(value.len()).unwrap_or(u32::MAX), value }
    }
}

/// An entry as a page has it.
pub(crate) enum PageEntry {
    /// All that was asked for.
    Whole(ScanEntry),
    /// Its value does not fit the page: a get brings it.
    Large {
        /// The key.
        key: Vec<u8>,
    },
}

impl PageEntry {
    pub(crate) fn of(entry: &Entry<'_>) -> PageEntry {
        let (key, version) = (entry.key.to_vec(), entry.version);
        match entry.value {
            EntryValue::Inline(value) => {
                PageEntry::Whole(ScanEntry::whole(key, Item { version, value: value.to_vec() }))
            }
            EntryValue::Omitted { value_len } => {
                PageEntry::Whole(ScanEntry { key, version, value: Vec::new(), value_len })
            }
            EntryValue::Large { .. } => PageEntry::Large { key },
        }
    }
}

/// Where a scan is.
#[derive(Debug)]
pub(crate) struct ScanPosition {
    /// What follows the fetched entries.
    range: ScanRange,
    /// Nothing does.
    finished: bool,
    /// Fetched and not yielded yet.
    entries: VecDeque<ScanEntry>,
}

impl ScanPosition {
    pub(crate) fn new(range: ScanRange) -> ScanPosition {
        ScanPosition { finished: range.limit == 0, range, entries: VecDeque::new() }
    }

    /// What is to be asked for next; none when nothing is.
    pub(crate) fn next_range(&self) -> Option<&ScanRange> {
        (!self.finished).then_some(&self.range)
    }

    /// The next of the fetched entries.
    pub(crate) fn take(&mut self) -> Option<ScanEntry> {
        self.entries.pop_front()
    }

    /// The page at the range has come, with these entries.
    pub(crate) fn on_page(&mut self, page: &ScanPage, entries: VecDeque<ScanEntry>) {
        self.range.go_to(page.resume());
        self.range.limit = self.range.limit.saturating_sub(entries.len() as u64);
        self.finished = page.is_done() || self.range.limit == 0;
        self.entries = entries;
    }

    /// What was not yielded yet; none when the scan is through.
    pub(crate) fn resume(&self) -> Option<ScanRange> {
        let Some(next) = self.entries.front() else { return self.next_range().cloned() };
        let mut rest = self.range.clone();
        rest.go_to(cell_protocol::Bound::Included(&next.key));
        rest.limit = rest.limit.saturating_add(self.entries.len() as u64);
        Some(rest)
    }
}

/// The entries of a range, in order. Each page is taken from consistent leaves; the scan as a whole is not a
/// snapshot: what is written behind or ahead of it meanwhile may or may not be in it. A value too large for
/// its page is fetched by a get of its own, so it may be newer, and an entry that is gone by then is left
/// out.
///
/// While the entries of a page are yielded the next page is under way: who wants only a few says so with
/// [`ScanRange::limit`]. A scanner that is dropped gives it up.
#[derive(Debug)]
pub struct Scanner<'a> {
    client: &'a mut Client,
    position: ScanPosition,
    /// The request for the page at the position, if it is under way.
    ahead: Option<Ticket>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(client: &'a mut Client, range: ScanRange) -> Scanner<'a> {
        Scanner { client, position: ScanPosition::new(range), ahead: None }
    }

    /// What of the range was not yielded yet: scan it to go on, with this client or another; none when the
    /// scan is through.
    #[must_use]
    pub fn resume(&self) -> Option<ScanRange> {
        self.position.resume()
    }

    fn next_page(&mut self, range: &ScanRange) -> Result<(), ClientError> {
        let ahead = self.ahead.take().and_then(|ticket| self.client.finish(ticket).ok());
        let page = match ahead {
            Some(output) => output.into_page(),
            // What was asked for ahead may have failed while nobody waited for it: it is asked for anew.
            None => self.client.scan_page(range.request())?,
        };
        let mut entries = VecDeque::with_capacity(page.len());
        for entry in page.iter() {
            match PageEntry::of(&entry) {
                PageEntry::Whole(entry) => entries.push_back(entry),
                PageEntry::Large { key } => {
                    let item = self.client.get(&key)?;
                    entries.extend(item.map(|item| ScanEntry::whole(key, item)));
                }
            }
        }
        self.position.on_page(&page, entries);
        if let Some(range) = self.position.next_range() {
            self.ahead = self.client.ask_page_ahead(range.request());
        }
        Ok(())
    }
}

impl Drop for Scanner<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ahead.take() {
            self.client.give_up(ticket);
        }
    }
}

impl Iterator for Scanner<'_> {
    type Item = Result<ScanEntry, ClientError>;

    /// The next entry. After an error the same scanner goes on where it was when it is asked again.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.position.take() {
                return Some(Ok(entry));
            }
            let range = self.position.next_range()?.clone();
            if let Err(error) = self.next_page(&range) {
                return Some(Err(error));
            }
        }
    }
}
