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
#[derive(Debug)]
enum PageEntry {
    /// All that was asked for.
    Whole(ScanEntry),
    /// Its value does not fit the page: a get brings it.
    Large {
        /// The key.
        key: Vec<u8>,
    },
}

impl PageEntry {
    fn of(entry: &Entry<'_>) -> PageEntry {
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

    fn key(&self) -> &[u8] {
        match self {
            PageEntry::Whole(entry) => &entry.key,
            PageEntry::Large { key } => key,
        }
    }

    fn is_large(&self) -> bool {
        matches!(self, PageEntry::Large { .. })
    }
}

/// Where a scan is.
#[derive(Debug)]
pub(crate) struct ScanPosition {
    /// What follows the entries of the page.
    range: ScanRange,
    /// Nothing does.
    is_through: bool,
    /// Of the page, and not yielded yet.
    entries: VecDeque<PageEntry>,
}

impl ScanPosition {
    pub(crate) fn new(range: ScanRange) -> ScanPosition {
        ScanPosition { range, is_through: false, entries: VecDeque::new() }
    }

    /// What is to be asked for next; none when nothing is.
    pub(crate) fn next_range(&self) -> Option<&ScanRange> {
        (!self.is_through && self.range.limit > 0).then_some(&self.range)
    }

    /// What is to be asked for while the page is yielded. None also where gets are to bring values of it,
    /// which may need the room in the client's queue.
    pub(crate) fn range_ahead(&self) -> Option<&ScanRange> {
        self.next_range().filter(|_| !self.entries.iter().any(PageEntry::is_large))
    }

    /// The next entry of the page, if all of it is here.
    pub(crate) fn take(&mut self) -> Option<ScanEntry> {
        match self.entries.pop_front_if(|entry| !entry.is_large()) {
            Some(PageEntry::Whole(entry)) => Some(entry),
            _ => None,
        }
    }

    /// The key of the next entry of the page, if a get is to bring its value: one at a time, because a page
    /// may name a thousand, and each may be long.
    pub(crate) fn large_key(&self) -> Option<&[u8]> {
        self.entries.front().filter(|entry| entry.is_large()).map(PageEntry::key)
    }

    /// The get of [`ScanPosition::large_key`] has ended: its entry, if it is not gone since. One that is does
    /// not count for the limit.
    pub(crate) fn take_large(&mut self, item: Option<Item>) -> Option<ScanEntry> {
        let Some(PageEntry::Large { key }) = self.entries.pop_front_if(|entry| entry.is_large()) else {
            return None;
        };
        if item.is_none() {
            self.range.limit = self.range.limit.saturating_add(1);
        }
        item.map(|item| ScanEntry::whole(key, item))
    }

    /// The page at the range has come.
    pub(crate) fn on_page(&mut self, page: &ScanPage) {
        self.range.go_to(page.resume());
        self.range.limit = self.range.limit.saturating_sub(page.len() as u64);
        self.is_through = page.is_done();
        self.entries = page.iter().map(|entry| PageEntry::of(&entry)).collect();
    }

    /// What was not yielded yet; none when the scan is through.
    pub(crate) fn resume(&self) -> Option<ScanRange> {
        let Some(next) = self.entries.front() else { return self.next_range().cloned() };
        let mut rest = self.range.clone();
        rest.go_to(cell_protocol::Bound::Included(next.key()));
        rest.limit = rest.limit.saturating_add(self.entries.len() as u64);
        Some(rest)
    }
}

/// The entries of a range, in order. Each page is taken from consistent leaves; the scan as a whole is not a
/// snapshot: what is written behind or ahead of it meanwhile may or may not be in it. A value too large for
/// its page is fetched by a get of its own when its entry is to be yielded, so it may be newer, and an entry
/// that is gone by then is left out.
///
/// While the entries of a page are yielded the next page is under way, unless the page has such values: who
/// wants only a few says so with [`ScanRange::limit`]. A scanner that is dropped gives it up.
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
        self.position.on_page(&page);
        if let Some(range) = self.position.range_ahead() {
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
            let brought = match self.position.large_key() {
                Some(key) => self.client.get(key).map(|item| self.position.take_large(item)),
                None => {
                    let range = self.position.next_range()?.clone();
                    self.next_page(&range).map(|()| None)
                }
            };
            match brought {
                Ok(Some(entry)) => return Some(Ok(entry)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
