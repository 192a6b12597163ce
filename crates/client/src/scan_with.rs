//! Scans whose entries are visited where they were copied to, in place of being given away one by one.

use std::ops::ControlFlow;

use cell_protocol::{Bound, EntryValue};

use crate::scanner::ScanRange;
use crate::{Client, ClientError};

impl Client {
    /// Hands each entry of a range to `visit`, in the order of the scan: key and value, which is empty where
    /// only keys are wanted. Returns what of the range was not visited, if `visit` has ended the scan; none
    /// if nothing is left.
    ///
    /// What is visited lies in the page that it came in: an entry costs no copy or memory of its own, but for
    /// large values (below), and from mapped memory each byte was copied once. It is never the server's live
    /// memory, because that may change under a visitor, and whether all of it was of one moment, durable and
    /// still its owner's shows after the last load alone. So a page is visited once it was checked. One that
    /// does not pass is read again as a whole before any of it is visited: no entry is seen that does not
    /// count, and none twice.
    ///
    /// A value too large for its page is fetched by a get of its own when its entry is to be visited, into
    /// memory of its own. So it may be newer than the page, and an entry that is gone by then is left out.
    ///
    /// Otherwise it is as [`Client::scan`] says, but for the next page, which is asked for when the one
    /// before was visited.
    ///
    /// # Errors
    /// See [`ClientError`]. What was visited stays visited: to go on, begin behind the last key.
    pub fn scan_with(
        &mut self,
        mut range: ScanRange,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<ScanRange>, ClientError> {
        while range.limit > 0 {
            let page = self.scan_page(range.request())?;
            for (at, entry) in page.iter().enumerate() {
                let item;
                let value: &[u8] = match entry.value {
                    EntryValue::Inline(value) => value,
                    EntryValue::Omitted { .. } => &[],
                    EntryValue::Large { .. } => match self.get(entry.key)? {
                        Some(found) => {
                            item = found;
                            &item.value
                        }
                        None => continue, // gone since
                    },
                };
                range.limit = range.limit.saturating_sub(1);
                if visit(entry.key, value).is_break() {
                    range.go_to(Bound::Excluded(entry.key));
                    let is_through = range.limit == 0 || (at + 1 == page.len() && page.is_done());
                    return Ok((!is_through).then_some(range));
                }
            }
            if page.is_done() {
                break;
            }
            range.go_to(page.resume());
        }
        Ok(None)
    }
}
