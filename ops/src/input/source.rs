//! A source of records as the command line describes it: file, format and columns, looked at once and then
//! read.

use std::io::BufRead;
use std::path::Path;

use anyhow::Context;
use clap::Args;

use super::line::Lines;
use super::open::{Consumed, Input, Source, open};
use super::record::{Columns, DUMP_HEADING, Format, Parser};

/// How a source is read; `load` and `verify` share it, so that they read the same.
#[derive(Clone, Debug, Args)]
pub(crate) struct SourceArgs {
    /// The key: a column number from 1 (TSV, default 1) or a field name (JSON, default "key")
    #[arg(long, value_name = "COLUMN", help_heading = "Source")]
    key: Option<String>,
    /// The value, likewise (TSV: the column after the key; JSON: "value"); `*` takes the whole line
    #[arg(long, value_name = "COLUMN", help_heading = "Source")]
    value: Option<String>,
    /// The value of lines that have none
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
    /// Opens a file or stdin (`-`).
    pub(crate) fn open(&self, path: &Path) -> anyhow::Result<Opened> {
        let Input { mut reader, bytes_total, consumed, .. } = open(&Source::from(path))?;
        let head = reader.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
        let is_dump = head.strip_prefix(DUMP_HEADING).is_some_and(|rest| rest.starts_with(b"\n"));
        let format = self.format.unwrap_or_else(|| Format::guess(head));
        let columns = Columns {
            key: self.key.clone(),
            value: self.value.clone(),
            value_default: self.value_default.as_ref().map(|text| text.clone().into_bytes()),
            escaped: self.escaped_columns || is_dump,
        };
        let parser = Parser::new(format, &columns)?;
        let skip = if is_dump { self.skip.max(1) } else { self.skip };
        Ok(Opened { lines: Lines::new(reader), parser, format, columns, skip, bytes_total, consumed })
    }
}
