//! A source of records as the command line describes it: file, format and columns, looked at once and then
//! read.

use std::io::{self, BufRead, Read};
use std::path::Path;

use cell_terms::mutant::{Mutant, planted};
use clap::Args;

use super::content::Incomplete;
use super::format::Format;
use super::head::{Head, without_columns};
use super::line::Lines;
use super::open::{Consumed, Input, Source, open};
use super::record::{Columns, LineError, Parser};
use crate::exit::{Exit, Failure};

/// How a source is read; `load` and `verify` share it, so that they read the same.
#[derive(Clone, Debug, Args)]
pub(crate) struct SourceArgs {
    /// The key: a column number from 1 (TSV, default 1) or a field name (JSON, default "key")
    #[arg(long, value_name = "COLUMN", help_heading = "Source")]
    key: Option<String>,
    /// The value, likewise (TSV: the column after the key; JSON: "value"); `*` takes the whole line
    #[arg(long, value_name = "COLUMN", help_heading = "Source")]
    value: Option<String>,
    /// The value of lines that have none; else such a line is reported as one that is not a record
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Source")]
    value_default: Option<String>,
    /// Lines of tab-separated columns or of JSON objects; recognised by the first line if not given
    #[arg(long, value_enum, help_heading = "Source")]
    format: Option<Format>,
    /// Columns have escapes (\t \n \\ \xNN); a dump's heading says so by itself
    #[arg(long, help_heading = "Source")]
    escaped_columns: bool,
    /// Leading lines that are not records, a heading for example
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Source")]
    skip: u64,
}

/// A source that is open, and how its lines are read.
pub(crate) struct Opened {
    /// The lines.
    pub(crate) lines: Lines<Box<dyn BufRead + Send>>,
    /// Makes records of them.
    pub(crate) parser: Parser,
    /// The lines' shape.
    pub(crate) format: Format,
    /// Which parts are key and value.
    pub(crate) columns: Columns,
    /// Leading lines that are not records.
    pub(crate) skip: u64,
    /// Size in (compressed) bytes, where it is known.
    pub(crate) bytes_total: Option<u64>,
    /// What has been read of it.
    pub(crate) consumed: Consumed,
}

impl SourceArgs {
    /// Opens a file or stdin (`-`). `broken_off` is how the command ends whose source breaks off before its
    /// first record.
    ///
    /// # Errors
    /// It cannot be read, or its first lines are not what is read here.
    pub(crate) fn open(&self, path: &Path, broken_off: Exit) -> anyhow::Result<Opened> {
        let source = Source::from(path);
        let Input { mut reader, bytes_total, consumed } = open(&source)?;
        let head = Head::take(&mut reader, self.skip).map_err(|error| {
            let incomplete = Incomplete::Unreadable { line: 0, error };
            Failure::new(broken_off, format!("{source}: {incomplete}")).next(incomplete.next())
        })?;
        let (format, columns, parser, skip) = self
            .shape(&head)
            .map_err(|failure| Failure { what: format!("{source}: {}", failure.what), ..failure })?;
        let reader: Box<dyn BufRead + Send> = Box::new(io::Cursor::new(head.into_bytes()).chain(reader));
        Ok(Opened { lines: Lines::new(reader), parser, format, columns, skip, bytes_total, consumed })
    }

    /// How a source with this head is read, and how many lines stand before its records.
    fn shape(&self, head: &Head) -> Result<(Format, Columns, Parser, u64), Failure> {
        let dump = match planted(Mutant::DumpHeadingMissed) {
            true => None,
            false => head.dump(self.skip, self.format)?,
        };
        let (is_dump, skip) = (dump.is_some(), self.skip.max(u64::from(dump.is_some())));
        let format = match dump.or(self.format) {
            Some(format) => format,
            None => head.guess(skip)?,
        };
        let columns = Columns {
            key: self.key.clone(),
            value: self.value.clone(),
            value_default: self.value_default.as_ref().map(|text| text.clone().into_bytes()),
            escaped: self.escaped_columns || is_dump,
        };
        let parser = Parser::new(format, &columns)?;
        if is_dump {
            return Ok((format, columns, parser.of_dump(), skip));
        }
        let parser = parser.ending_with_cr(head.ends_with_cr());
        if let Some(line) = head.first_after(skip)
            && line.is_whole
            && !line.text.contains(&b'\t')
            && matches!(
                parser.parse(line.text),
                Err(LineError::ValueMissing(_) | LineError::ColumnMissing(_))
            )
        {
            return Err(without_columns(line));
        }
        Ok((format, columns, parser, skip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::content::Content;
    use crate::load::loader::{Limits, record_of};

    const ARGUMENTS: SourceArgs = SourceArgs {
        key: None,
        value: None,
        value_default: None,
        format: None,
        escaped_columns: false,
        skip: 0,
    };

    /// The records of a source, or why it is refused.
    fn records(arguments: &SourceArgs, content: &[u8]) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let mut opened = arguments.open(file.path(), Exit::Partial)?;
        let limits = Limits { key_bytes_max: 100, value_bytes_max: 100 };
        let (mut records, mut content) =
            (Vec::new(), Content::new(&mut opened.lines, &opened.parser, opened.skip));
        while let Some((_, line)) = content.next()? {
            let Some(line) = line else { continue };
            let record = record_of(&line, &opened.parser, &limits)?;
            records.push((record.key.into_owned(), record.value.into_owned()));
        }
        Ok(records)
    }

    fn refusal(arguments: &SourceArgs, content: &[u8]) -> Failure {
        records(arguments, content).unwrap_err().downcast().unwrap()
    }

    /// Whether what follows a dump's heading is read as what it stands for, plain and packed.
    fn dump_is_unescaped() -> bool {
        let text = b"#cell-dump 1 tsv escaped\na\\tb\tc\\n\n#cell-dump end 1\n";
        let packed = [text.to_vec(), zstd::encode_all(&text[..], 1).unwrap()];
        packed.iter().all(|bytes| {
            records(&ARGUMENTS, bytes).is_ok_and(|found| found == [(b"a\tb".to_vec(), b"c\n".to_vec())])
        })
    }

    #[test]
    fn open_a_dump_is_known_by_its_heading_plain_and_packed() {
        assert!(dump_is_unescaped());
        let dump = |entries: &str, end: &str| format!("#cell-dump 1 tsv escaped\n{entries}{end}");
        let read = |text: &str| records(&ARGUMENTS, text.as_bytes());
        let (first, second) = (dump("a\tb\\n\n", "#cell-dump end 1\n"), dump("c\td\n", "#cell-dump end 1\n"));
        assert_eq!(read(&format!("{first}{second}")).unwrap().len(), 2, "two dumps, one after the other");
        assert!(read(&format!("a\tb\n{first}")).is_err());
        assert!(read(&dump("a\tb\n", "")).is_err(), "it may be cut off");
        assert!(read(&dump("a\tb", "")).is_err());
        assert!(read(&dump("", "#cell-dump end 0\n")).unwrap().is_empty());
        let json = "{\"cell_dump\":\"begin\",\"version\":1}\n{\"key\":\"a\",\"value\":\"b\",\"version\":1}\n";
        assert!(read(json).is_err());
        let json = format!("{json}{{\"cell_dump\":\"end\",\"entries\":1,\"version\":1}}\n");
        assert_eq!(read(&json).unwrap(), [(b"a".to_vec(), b"b".to_vec())]);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_dump_heading_missed_is_caught() {
        cell_terms::mutant::in_own_process(|| {
            cell_terms::mutant::plant(Some(Mutant::DumpHeadingMissed));
            let unescaped = dump_is_unescaped();
            cell_terms::mutant::plant(None);
            assert!(!unescaped);
            println!("mutant {} caught by cell-ops' dump", Mutant::DumpHeadingMissed.name());
        });
    }

    #[test]
    fn open_what_is_no_source_is_refused_with_its_name() {
        for content in
            [&b"key,value\na,1\n"[..], b"\na;1", b"[{\"key\":1}]\n", b"\xef\xbb\xbfa\tb\n", b"only\n"]
        {
            let failure = refusal(&ARGUMENTS, content);
            assert!(failure.what.contains(": line ") && failure.what.starts_with('/'), "{failure:?}");
            assert!(failure.next.is_some(), "{failure:?}");
        }
        let with_columns = SourceArgs { key: Some("2".into()), value: Some("1".into()), ..ARGUMENTS };
        assert!(refusal(&with_columns, b"a,1\nb,2\n").what.contains("CSV"));
        assert!(
            refusal(&SourceArgs { format: Some(Format::Tsv), ..ARGUMENTS }, b"a,1\n").what.contains("CSV")
        );
    }

    /// It ended with 1, as what has no exit code of its own.
    #[test]
    fn open_what_breaks_off_before_its_first_record_is_incomplete() {
        let text = "key\tvalue\n".repeat(100);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for packed in [gzip.finish().unwrap(), zstd] {
            let failure = refusal(&ARGUMENTS, &packed[..12]);
            assert_eq!(failure.exit, Exit::Partial);
            assert!(failure.what.contains("cannot be read to its first record"), "{failure:?}");
            assert!(failure.next.is_some());
        }
    }

    /// A value's last byte was once dropped where it was a CR, and a check of the source agreed.
    #[test]
    fn open_a_cr_belongs_to_the_line_end_only_where_the_first_line_has_one() {
        let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let unix = records(&ARGUMENTS, b"a\tb\nc\td\r\ne\tf\r").unwrap();
        assert_eq!(unix, [pair("a", "b"), pair("c", "d\r"), pair("e", "f\r")]);
        assert_eq!(records(&ARGUMENTS, b"a\tb\r").unwrap(), [pair("a", "b\r")], "no line ends");
        let dos = records(&ARGUMENTS, b"a\tb\r\nc\td\r\ne\tf").unwrap();
        assert_eq!(dos, [pair("a", "b"), pair("c", "d"), pair("e", "f")]);
        let headed = SourceArgs { skip: 1, value: Some("*".into()), ..ARGUMENTS };
        assert_eq!(records(&headed, b"k\tv\r\na\tb\r\n").unwrap(), [pair("a", "a\tb")]);
        let dump = records(&ARGUMENTS, b"#cell-dump 1 tsv escaped\na\tb\\r\r\n#cell-dump end 1\r\n").unwrap();
        assert_eq!(dump, [pair("a", "b\r")]);
    }

    #[test]
    fn open_keys_alone_need_a_default_or_the_whole_line() {
        let with_default = SourceArgs { value_default: Some(String::new()), ..ARGUMENTS };
        assert_eq!(records(&with_default, b"a,b\n").unwrap(), [(b"a,b".to_vec(), Vec::new())]);
        let whole = SourceArgs { value: Some("*".into()), ..ARGUMENTS };
        assert_eq!(records(&whole, b"a b\n").unwrap(), [(b"a b".to_vec(), b"a b".to_vec())]);
        let same = SourceArgs { value: Some("1".into()), ..ARGUMENTS };
        assert_eq!(records(&same, b"a\n").unwrap(), [(b"a".to_vec(), b"a".to_vec())]);
    }

    #[test]
    fn open_the_format_is_that_of_the_first_line_that_is_not_skipped() {
        let skipping = SourceArgs { skip: 1, ..ARGUMENTS };
        let expected = [(b"a".to_vec(), b"b".to_vec())];
        assert_eq!(records(&skipping, b"records\n{\"key\":\"a\",\"value\":\"b\"}\n").unwrap(), expected);
        assert_eq!(records(&skipping, b"{heading}\na\tb\n").unwrap(), expected);
        assert_eq!(
            records(&skipping, b"#cell-dump 1 tsv escaped\na\tb\n#cell-dump end 1\n").unwrap(),
            expected
        );
        assert!(records(&ARGUMENTS, b"").unwrap().is_empty());
    }
}
