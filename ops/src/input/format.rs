//! The shapes of lines, and the lines of a dump that are no entries of it. The first line is its heading, the
//! last one its end, which counts the entries: so a dump that was cut off is distinguished from a whole one.

use clap::ValueEnum;
use serde::Deserialize;

/// How the marks of all dumps in TSV begin, whatever their version. An entry that begins so has a tab.
const TSV_MARK: &[u8] = b"#cell-dump";
/// What follows it is escaped.
const TSV_HEADING: &[u8] = b"#cell-dump 1 tsv escaped";
const TSV_END: &[u8] = b"#cell-dump end ";
/// How those in JSON begin. The first field of an entry is its key or its value.
const JSON_MARK: &[u8] = br#"{"cell_dump""#;
const JSON_HEADING: &[u8] = br#"{"cell_dump":"begin","version":1}"#;

/// The shape of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tab-separated columns.
    Tsv,
    /// One JSON object a line.
    Json,
}

/// What a line of a dump is that is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Entries follow.
    Heading,
    /// So many entries came since the heading.
    End { entries: u64 },
    /// Of another version.
    Unknown,
}

impl Format {
    /// What a first line looks like.
    pub(crate) fn guess(first_line: &[u8]) -> Format {
        match first_line.trim_ascii_start().first() {
            Some(b'{') => Format::Json,
            _ => Format::Tsv,
        }
    }

    /// The first line of a dump.
    pub(crate) const fn heading(self) -> &'static [u8] {
        match self {
            Format::Tsv => TSV_HEADING,
            Format::Json => JSON_HEADING,
        }
    }

    /// The last line of a dump of so many entries.
    pub(crate) fn end(self, entries: u64) -> String {
        match self {
            Format::Tsv => format!("#cell-dump end {entries}"),
            Format::Json => format!(r#"{{"cell_dump":"end","entries":{entries},"version":1}}"#),
        }
    }

    /// How every mark begins.
    pub(crate) const fn mark(self) -> &'static [u8] {
        match self {
            Format::Tsv => TSV_MARK,
            Format::Json => JSON_MARK,
        }
    }

    /// The mark that a line is; none if it may be an entry.
    pub(crate) fn mark_of(self, line: &[u8]) -> Option<Mark> {
        if !line.starts_with(self.mark()) {
            return None;
        }
        match self {
            Format::Tsv => tsv_mark(line.strip_suffix(b"\r").unwrap_or(line)),
            Format::Json => Some(json_mark(line).unwrap_or(Mark::Unknown)),
        }
    }
}

fn tsv_mark(line: &[u8]) -> Option<Mark> {
    if line.contains(&b'\t') {
        return None;
    }
    if line == TSV_HEADING {
        return Some(Mark::Heading);
    }
    let count = line.strip_prefix(TSV_END).filter(|count| count.iter().all(u8::is_ascii_digit));
    let entries = count.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
    Some(entries.map_or(Mark::Unknown, |entries| Mark::End { entries }))
}

fn json_mark(line: &[u8]) -> Option<Mark> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields<'a> {
        cell_dump: &'a str,
        version: u32,
        entries: Option<u64>,
    }
    let fields: Fields<'_> = serde_json::from_slice(line).ok()?;
    match (fields.cell_dump, fields.version, fields.entries) {
        ("begin", 1, None) => Some(Mark::Heading),
        ("end", 1, Some(entries)) => Some(Mark::End { entries }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_of_what_is_written_is_what_it_stands_for() {
        for format in [Format::Tsv, Format::Json] {
            assert_eq!(format.mark_of(format.heading()), Some(Mark::Heading));
            assert_eq!(format.mark_of(&[format.heading(), b"\r"].concat()), Some(Mark::Heading));
            for entries in [0, 1, u64::MAX] {
                let end = format.end(entries);
                assert_eq!(format.mark_of(end.as_bytes()), Some(Mark::End { entries }), "{end}");
                assert_eq!(format.mark_of(format!("{end}\r").as_bytes()), Some(Mark::End { entries }));
                // A part of it is never another end.
                for length in format.mark().len()..end.len() {
                    let part = &end.as_bytes()[..length];
                    let found = format.mark_of(part);
                    let is_shorter = matches!(found, Some(Mark::End { entries: less }) if less < entries);
                    assert!(found == Some(Mark::Unknown) || is_shorter, "{}", part.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn mark_of_an_entry_is_none() {
        for line in [&b"#cell-dump 1 tsv escaped\tvalue"[..], b"#cell-dump end 3\t", b"#cell", b"", b"a\tb"] {
            assert_eq!(Format::Tsv.mark_of(line), None, "{}", line.escape_ascii());
        }
        for line in [br#"{"key":"cell_dump","value":"end"}"#.as_slice(), b"{", b"", br#"{"cell":1}"#] {
            assert_eq!(Format::Json.mark_of(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn mark_of_another_version_is_unknown() {
        for line in ["#cell-dump 2 tsv escaped", "#cell-dump end", "#cell-dump end +3", "#cell-dump end 3 "] {
            assert_eq!(Format::Tsv.mark_of(line.as_bytes()), Some(Mark::Unknown), "{line}");
        }
        for line in [
            r#"{"cell_dump":"begin","version":2}"#,
            r#"{"cell_dump":"begin","version":1,"more":1}"#,
            r#"{"cell_dump":"end","version":1}"#,
            r#"{"cell_dump":"end","entries":-1,"version":1}"#,
            r#"{"cell_dump":"#,
        ] {
            assert_eq!(Format::Json.mark_of(line.as_bytes()), Some(Mark::Unknown), "{line}");
        }
    }
}
