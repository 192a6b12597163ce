//! A file's bytes, in pages that copies share. Pages of zeros take no memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::index;

const PAGE_BYTES: usize = 4096;
type Page = [u8; PAGE_BYTES];
const ZEROS: Page = [0; PAGE_BYTES];

#[derive(Clone, Default)]
pub(super) struct Content {
    length: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Content {
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Reads up to the end; says how many bytes.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let available = self.length.saturating_sub(offset).min(bytes.len() as u64);
        let bytes = &mut bytes[..index(available)];
        each_page(offset, bytes.len(), |page, within, range| {
            let target = &mut bytes[range.clone()];
            match self.pages.get(&page) {
                Some(page) => target.copy_from_slice(&page[within..within + range.len()]),
                None => target.fill(0),
            }
        });
        bytes.len()
    }

    /// Writes, growing the file if need be.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        each_page(offset, bytes.len(), |page, within, range| {
            let source = &bytes[range];
            if !self.pages.contains_key(&page) && source == &ZEROS[..source.len()] {
                return;
            }
            if let Ok(whole) = <&Page>::try_from(source) {
                self.pages.insert(page, Arc::new(*whole));
                return;
            }
            let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within..within + source.len()].copy_from_slice(source);
        });
        self.length = self.length.max(offset + bytes.len() as u64);
    }

    /// Writes what was just written to `other` at the same place, sharing its pages.
    pub(super) fn write_as(&mut self, other: &Content, offset: u64, bytes: &[u8]) {
        let mut parts = Vec::new();
        each_page(offset, bytes.len(), |page, _, range| match other.pages.get(&page) {
            Some(shared) if range.len() == PAGE_BYTES => drop(self.pages.insert(page, Arc::clone(shared))),
            None if range.len() == PAGE_BYTES => drop(self.pages.remove(&page)),
            _ => parts.push(range),
        });
        self.length = self.length.max(offset + bytes.len() as u64);
        parts.into_iter().for_each(|range| self.write(offset + range.start as u64, &bytes[range]));
    }

    /// Makes zeros of all from a page's beginning on; says which pages had anything else.
    pub(super) fn clear_from(&mut self, offset: u64) -> Vec<u64> {
        let cleared: Vec<u64> =
            self.pages.range(offset / PAGE_BYTES as u64..).map(|(page, _)| *page).collect();
        cleared.iter().for_each(|page| drop(self.pages.remove(page)));
        cleared.into_iter().map(|page| page * PAGE_BYTES as u64).collect()
    }

    /// Cuts off, or extends with zeros.
    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            let zeros = vec![0; PAGE_BYTES - index(length % PAGE_BYTES as u64)];
            let end = self.length;
            self.write(length, &zeros);
            self.pages.retain(|page, _| page * (PAGE_BYTES as u64) < length);
            self.length = end;
        }
        self.length = length;
    }
}

/// Calls with page number, offset within the page, and the range of the `length` bytes that falls into it.
fn each_page(offset: u64, length: usize, mut call: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let within = index(at % PAGE_BYTES as u64);
        let count = (PAGE_BYTES - within).min(length - done);
        call(at / PAGE_BYTES as u64, within, done..done + count);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_behaves_like_a_file() {
        let mut content = Content::default();
        content.write(5000, b"hello");
        assert_eq!(content.length(), 5005);
        let mut bytes = [1; 10];
        assert_eq!(content.read(4998, &mut bytes), 7);
        assert_eq!(&bytes[..7], b"\0\0hello");
        content.set_length(5002);
        content.set_length(5010);
        assert_eq!(content.read(5000, &mut bytes), 10);
        assert_eq!(&bytes, b"he\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn clear_from_leaves_zeros_and_the_length() {
        let mut content = Content::default();
        content.write(4000, &[7; 5000]);
        assert_eq!(content.clear_from(4096), [4096, 8192]);
        let mut bytes = [1; 5000];
        assert_eq!((content.length(), content.read(4000, &mut bytes)), (9000, 5000));
        assert!(bytes[..96] == [7; 96] && bytes[96..] == [0; 4904]);
        assert!(content.clear_from(4096).is_empty());
    }

    #[test]
    fn write_as_shares_whole_pages_and_copies_parts() {
        let written: Vec<u8> = (0..3 * PAGE_BYTES).map(|at| at.to_le_bytes()[0] | 1).collect();
        let (mut first, mut second) = (Content::default(), Content::default());
        first.write(100, &written);
        second.write(0, &[9; 200]);
        second.write_as(&first, 100, &written);
        first.write(PAGE_BYTES as u64, &[7; PAGE_BYTES]); // a copy is another's no more
        let mut bytes = vec![0; 100 + written.len()];
        assert_eq!(second.read(0, &mut bytes), bytes.len());
        assert_eq!((&bytes[..100], &bytes[100..]), (&[9; 100][..], &written[..]));
    }
}
