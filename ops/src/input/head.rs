//! The first lines of a source, looked at before any is read: whether a dump's heading stands there, what the
//! lines' shape is, and whether it is something else that would be stored as what it is not.

use std::io::{self, BufRead};

use super::format::{Format, Mark};
use crate::exit::Failure;

/// So much is looked at. The longest key, escaped, has some 3 KiB.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The formats of dumps.
const FORMATS: [Format; 2] = [Format::Tsv, Format::Json];
/// Byte order marks, of UTF-8 and of others.
const UTF_8_MARK: &[u8] = b"\xef\xbb\xbf";
const OTHER_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// The first bytes of a source: up to the end of its first line that may be a record, where that is not too
/// far.
pub(crate) struct Head {
    bytes: Vec<u8>,
    /// Whether that is the whole source.
    is_all: bool,
}

/// A line of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadLine<'a> {
    /// From 1.
    pub(crate) number: u64,
    /// Without its line end.
    pub(crate) text: &'a [u8],
    /// Whether that is all of it.
    pub(crate) is_whole: bool,
}

impl Head {
    /// Takes the head off a reader, however few bytes it hands out at a time. The first `skip` lines are no
    /// records.
    pub(crate) fn take(reader: &mut impl BufRead, skip: u64) -> io::Result<Head> {
        let mut head = Head { bytes: Vec::new(), is_all: false };
        while head.bytes.len() < HEAD_BYTES_MAX {
            let available = match reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                head.is_all = true;
                break;
            }
            let taken = available.len().min(HEAD_BYTES_MAX - head.bytes.len());
            let ends_a_line = available[..taken].contains(&b'\n');
            head.bytes.extend_from_slice(&available[..taken]);
            reader.consume(taken);
            if ends_a_line && head.first_after(skip).is_some_and(|line| line.is_whole) {
                break;
            }
        }
        Ok(head)
    }

    /// The bytes, to be read again.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether the first line ends with CR LF, as those of DOS do.
    pub(crate) fn ends_with_cr(&self) -> bool {
        let first = memchr::memchr(b'\n', &self.bytes).map(|end| &self.bytes[..end]);
        first.is_some_and(|line| line.ends_with(b"\r"))
    }

    /// The first line after `skip` lines that is not blank.
    pub(crate) fn first_after(&self, skip: u64) -> Option<HeadLine<'_>> {
        let mut rest = &self.bytes[..];
        let mut number = 0;
        while !rest.is_empty() {
            number += 1;
            let (text, is_whole, after) = match memchr::memchr(b'\n', rest) {
                Some(end) => (&rest[..end], true, &rest[end + 1..]),
                None => (rest, self.is_all, &rest[rest.len()..]),
            };
            if number > skip && !text.trim_ascii().is_empty() {
                return Some(HeadLine { number, text, is_whole });
            }
            rest = after;
        }
        None
    }

    /// The format of the dump that the source is by its heading, if it is one; `skip` and `asked` are what
    /// the user said.
    ///
    /// # Errors
    /// The heading is of another version, contradicts `asked`, or stands behind a byte order mark; or the
    /// text is in another encoding.
    pub(crate) fn dump(&self, skip: u64, asked: Option<Format>) -> Result<Option<Format>, Failure> {
        let first = self.bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let dump_of = |line: &[u8]| FORMATS.into_iter().find(|format| line.starts_with(format.mark()));
        if OTHER_MARKS.iter().any(|mark| first.starts_with(mark)) {
            return Err(Failure::usage("line 1 begins with a byte order mark: the text is UTF-16")
                .next("convert it first: iconv -f UTF-16 -t UTF-8"));
        }
        if let Some(rest) = first.strip_prefix(UTF_8_MARK)
            && (skip == 0 || dump_of(rest).is_some())
        {
            let what = "line 1 begins with a byte order mark (EF BB BF), which would become a part of it";
            let next = "take the mark away first: tail -c +4 FILE (of a packed one, unpack it before that)";
            return Err(Failure::usage(what).next(next));
        }
        let Some(format) = dump_of(first) else { return Ok(None) };
        if format.mark_of(first) != Some(Mark::Heading) {
            return Err(unknown_heading(format));
        }
        if let Some(asked) = asked
            && asked != format
        {
            let name = |format: Format| if format == Format::Tsv { ("TSV", "tsv") } else { ("JSON", "json") };
            let what = format!(
                "line 1 is the heading of a dump in {}, and --format {} was given",
                name(format).0,
                name(asked).1
            );
            return Err(Failure::usage(what).next("leave --format out: the heading says what the dump is"));
        }
        Ok(Some(format))
    }

    /// What the lines after `skip` lines look like.
    ///
    /// # Errors
    /// None of them is in the head.
    pub(crate) fn guess(&self, skip: u64) -> Result<Format, Failure> {
        match self.first_after(skip) {
            Some(line) => Ok(Format::guess(line.text)),
            None if self.is_all => Ok(Format::Tsv), // there is no record
            None => {
                let what =
                    format!("no record begins in the first {} KiB, to see its format", HEAD_BYTES_MAX >> 10);
                Err(Failure::usage(what).next("give --format tsv or --format json"))
            }
        }
    }
}

/// Why a source is refused that begins as dumps do.
fn unknown_heading(format: Format) -> Failure {
    let known = String::from_utf8_lossy(format.heading());
    let record = match format {
        Format::Tsv => "write its # as \\x23 and give --escaped-columns",
        Format::Json => "write another field of it first",
    };
    let what = format!("line 1 is a dump's heading that this build does not know; it knows `{known}`");
    let next = format!("load it with the version of cell that wrote it; if line 1 is a record, {record}");
    Failure::usage(what).next(next)
}

/// Why a source is refused whose first record has no tab, though one is needed.
pub(crate) fn without_columns(line: HeadLine<'_>) -> Failure {
    let HeadLine { number, text, .. } = line;
    let (looks, next) = match text.trim_ascii_start().first() {
        Some(b'[') => (" and looks like a JSON array", "write one object a line: jq -c '.[]' FILE"),
        _ if text.iter().any(|byte| matches!(byte, b',' | b';')) => {
            (" and looks like CSV", "write KEY<tab>VALUE lines, or JSON lines with --format json")
        }
        _ => ("", "write KEY<tab>VALUE lines; --skip N leaves out a heading"),
    };
    let what = format!("line {number} has no tab, so no column for the value{looks}");
    Failure::usage(what)
        .next(format!("{next}; if lines are keys alone, --value-default TEXT gives the value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that hands out so many bytes at a time.
    fn head_by(bytes_at_a_time: usize, text: &[u8], skip: u64) -> Head {
        let mut reader = io::BufReader::with_capacity(bytes_at_a_time, io::Cursor::new(text.to_vec()));
        Head::take(&mut reader, skip).unwrap()
    }

    fn head(text: &[u8], skip: u64) -> Head {
        head_by(4096, text, skip)
    }

    fn next_of(failure: Failure) -> String {
        format!("{}; {}", failure.what, failure.next.unwrap())
    }

    #[test]
    fn take_a_heading_is_seen_however_few_bytes_a_pipe_hands_out() {
        let text = b"#cell-dump 1 tsv escaped\na\\n\tb\n";
        for bytes_at_a_time in 1..text.len() {
            let head = head_by(bytes_at_a_time, text, 0);
            assert_eq!(head.dump(0, None).unwrap(), Some(Format::Tsv), "{bytes_at_a_time}");
            assert_eq!(head.guess(0).unwrap(), Format::Tsv);
            assert!(text.starts_with(&head.into_bytes()));
        }
    }

    #[test]
    fn first_after_blank_and_skipped_lines_are_passed_over() {
        let found = head(b"\nx\n \r\n{\"key\":1}\nrest\n", 2);
        let expected = HeadLine { number: 4, text: b"{\"key\":1}", is_whole: true };
        assert_eq!(found.first_after(2), Some(expected));
        assert_eq!(found.guess(2).unwrap(), Format::Json, "the skipped lines say nothing of the format");
        assert_eq!(head(b"a\tb", 0).first_after(0).map(|line| line.is_whole), Some(true));
        assert_eq!(head(b"a\tb\n", 1).guess(1).unwrap(), Format::Tsv, "there is nothing");
    }

    #[test]
    fn first_after_a_line_past_the_bound_is_not_whole() {
        let text = [b"{\"key\":\"", &[b'k'; HEAD_BYTES_MAX][..], b"\"}\n"].concat();
        let long = head(&text, 0);
        assert_eq!(
            long.first_after(0).map(|line| (line.is_whole, line.text.len())),
            Some((false, HEAD_BYTES_MAX))
        );
        assert_eq!(long.guess(0).unwrap(), Format::Json);
        assert!(next_of(head(&text, 1).guess(1).unwrap_err()).contains("--format"));
    }

    #[test]
    fn dump_headings_of_other_versions_are_refused() {
        let (tsv, json) = ("#cell-dump 1 tsv escaped", r#"{"cell_dump":"begin","version":1}"#);
        for (heading, format) in [(tsv, Format::Tsv), (json, Format::Json)] {
            for end in ["\n", "\r\n", ""] {
                let head = head(format!("{heading}{end}").as_bytes(), 0);
                assert_eq!(head.dump(0, None).unwrap(), Some(format), "{heading:?}");
                assert_eq!(head.dump(0, Some(format)).unwrap(), Some(format), "{heading:?}");
            }
        }
        for heading in [
            "#cell-dump 2 tsv escaped\n",
            "#cell-dump 1 tsv escaped more\n",
            "#cell-dump 1 tsv esc",
            "#cell-dump end 0\n",
            "#cell-dump\tvalue\n",
            r#"{"cell_dump":"begin","version":2}"#,
            r#"{"cell_dump":"begin","ver"#,
            r#"{"cell_dump":"end","entries":0,"version":1}"#,
        ] {
            for skip in [0, 1] {
                let failure = head(heading.as_bytes(), skip).dump(skip, None).unwrap_err();
                assert!(next_of(failure).contains("does not know"), "{heading:?}");
            }
        }
        for (heading, asked, word) in
            [(tsv, Format::Json, "--format json"), (json, Format::Tsv, "--format tsv")]
        {
            let failure = head(format!("{heading}\n").as_bytes(), 0).dump(0, Some(asked)).unwrap_err();
            assert!(next_of(failure).contains(word), "{heading}");
        }
        assert_eq!(head(b"a\t#cell-dump 2\n", 0).dump(0, None).unwrap(), None);
    }

    #[test]
    fn dump_byte_order_marks_are_refused_where_they_would_be_read() {
        for text in ["\u{feff}a\tb\n", "\u{feff}{\"key\":1}\n", "\u{feff}#cell-dump 1 tsv escaped\n"] {
            let failure = head(text.as_bytes(), 0).dump(0, None).unwrap_err();
            let said = next_of(failure);
            assert!(said.contains("byte order mark") && said.contains("unpack"), "{text:?}: {said}");
        }
        let skipped = head("\u{feff}word\tcount\na\t1\n".as_bytes(), 1);
        assert_eq!(skipped.dump(1, None).unwrap(), None, "it is skipped");
        assert!(head("\u{feff}#cell-dump 1 tsv escaped\n".as_bytes(), 1).dump(1, None).is_err());
        for text in [&b"\xff\xfea\0\t\0"[..], b"\xfe\xff\0a\0\t"] {
            assert!(next_of(head(text, 0).dump(0, None).unwrap_err()).contains("UTF-16"));
        }
    }

    #[test]
    fn without_columns_says_what_it_looks_like() {
        for (text, expected) in
            [(&b"a,1"[..], "CSV"), (b"a;1", "CSV"), (b" [{\"key\":1}]", "jq"), (b"word", "--skip")]
        {
            let said = next_of(without_columns(HeadLine { number: 3, text, is_whole: true }));
            assert!(said.contains(expected) && said.contains("line 3") && said.contains("--value-default"));
        }
    }
}
