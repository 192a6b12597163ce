//! Lines with their numbers, from any reader, with a bound on their length.

use std::io::{self, BufRead};
use std::time::Duration;

use super::ahead::{Ahead, Arriving};

/// Longest line that is kept: a value of 16 MiB of which JSON writes each byte in six (`\u0001`), with room.
pub(crate) const LINE_BYTES_MAX: usize = 112 << 20;

/// Hands out lines, numbered from 1, without their line end.
pub(crate) struct Lines<R> {
    reader: R,
    number: u64,
    line: Vec<u8>,
    bytes_max: usize,
}

/// A line, or why it was not kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine<'a> {
    Text(&'a [u8]),
    /// The last one, without a line end: a line all the same, or what is left of one.
    Unended(&'a [u8]),
    /// Longer than the bound; it was skipped to its end.
    TooLong,
}

impl<R: BufRead + Send + 'static> Lines<R> {
    /// The same lines, of which those to come are read on a thread of its own.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn ahead(self) -> io::Result<Lines<Ahead>> {
        let Lines { reader, number, line, bytes_max } = self;
        Ok(Lines { reader: Ahead::new(reader)?, number, line, bytes_max })
    }
}

impl<R: Arriving> Lines<R> {
    /// Whether the next line, or the end, is there, or comes within this time.
    pub(crate) fn is_next_here(&mut self, within: Duration) -> bool {
        self.reader.is_line_here(within)
    }
}

impl<R: BufRead> Lines<R> {
    /// Lines of a reader.
    pub(crate) fn new(reader: R) -> Lines<R> {
        Lines { reader, number: 0, line: Vec::new(), bytes_max: LINE_BYTES_MAX }
    }

    /// The next line and its number; `None` at the end. A last line without a line end counts; an empty rest
    /// after the last line end does not.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, InputLine<'_>)>> {
        self.line.clear();
        let mut too_long = false;
        let mut has_end = false;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                if self.line.is_empty() && !too_long {
                    return Ok(None);
                }
                break;
            }
            let (part, taken, ended) = match memchr::memchr(b'\n', available) {
                Some(end) => (&available[..end], end + 1, true),
                None => (available, available.len(), false),
            };
            if self.line.len() + part.len() > self.bytes_max {
                too_long = true;
                self.line.clear();
            }
            if !too_long {
                self.line.extend_from_slice(part);
            }
            self.reader.consume(taken);
            if ended {
                has_end = true;
                break;
            }
        }
        self.number += 1;
        let line = match (too_long, has_end) {
            (true, _) => InputLine::TooLong,
            (false, true) => InputLine::Text(&self.line),
            (false, false) => InputLine::Unended(&self.line),
        };
        Ok(Some((self.number, line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_last_line_without_end_counts_and_empty_lines_too() {
        let mut lines = Lines::new(io::Cursor::new("a\n\nb"));
        assert_eq!(lines.next().unwrap(), Some((1, InputLine::Text(b"a"))));
        assert_eq!(lines.next().unwrap(), Some((2, InputLine::Text(b""))));
        assert_eq!(lines.next().unwrap(), Some((3, InputLine::Unended(b"b"))));
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn next_a_line_beyond_the_bound_is_skipped_to_its_end() {
        let text = format!("{}\nshort\n", "x".repeat(100));
        let mut lines = Lines::new(io::BufReader::with_capacity(7, io::Cursor::new(text)));
        lines.bytes_max = 20;
        assert_eq!(lines.next().unwrap(), Some((1, InputLine::TooLong)));
        assert_eq!(lines.next().unwrap(), Some((2, InputLine::Text(b"short"))));
        assert_eq!(lines.next().unwrap(), None);
    }
}
