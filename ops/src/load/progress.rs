//! The progress file: exactly which lines of which source are acknowledged.
//!
//! JSON, one object: `version` (1), `source` (fingerprint), `contiguous`, `ranges` ([[first, last], …]),
//! `records` and `bad`. It is written beside itself, synced and renamed, and its folder is synced, so that a
//! crash leaves the old or the new file, whole. What it names as acknowledged is durable in the store; a line
//! that it does not name may have reached the store or not.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::acknowledged::LineSet;
use crate::exit::Failure;
use crate::input::format::Format;
use crate::input::record::Columns;
use crate::output::file;

const VERSION: u32 = 1;

/// Which source, and how its lines are read: progress of one is meaningless for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    /// Size of the (compressed) file.
    bytes: u64,
    /// CRC-64 of its first MiB, hexadecimal.
    head_crc64: String,
    /// `tsv` or `json`.
    format: String,
    /// Column or field of the key.
    key: Option<String>,
    /// Column or field of the value.
    value: Option<String>,
    /// Value of lines that have none, hexadecimal.
    value_default: Option<String>,
    /// Whether columns are escaped.
    escaped: bool,
    /// Leading lines that are not records.
    skip: u64,
}

/// What is known to be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Lines that need nothing more: acknowledged, or not records at all.
    pub(crate) settled: LineSet,
    /// How many of them are acknowledged records.
    pub(crate) records: u64,
    /// How many of them are bad lines.
    pub(crate) bad: u64,
}

/// Where the progress of one source is kept.
#[derive(Clone, Debug)]
pub(crate) struct ProgressFile {
    path: PathBuf,
    source: Fingerprint,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    source: Fingerprint,
    contiguous: u64,
    ranges: Vec<(u64, u64)>,
    records: u64,
    bad: u64,
}

impl Fingerprint {
    /// Of a file.
    pub(crate) fn of(
        path: &Path,
        format: Format,
        columns: &Columns,
        skip: u64,
    ) -> anyhow::Result<Fingerprint> {
        const HEAD_BYTES: u64 = 1 << 20;
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let bytes = file.metadata()?.len();
        let mut head = Vec::new();
        file.take(HEAD_BYTES).read_to_end(&mut head)?;
        let mut digest = crc64fast::Digest::new();
        digest.write(&head);
        let hex = |bytes: &Vec<u8>| data_encoding::HEXLOWER.encode(bytes);
        Ok(Fingerprint {
            bytes,
            head_crc64: format!("{:016x}", digest.sum64()),
            format: match format {
                Format::Tsv => "tsv".into(),
                Format::Json => "json".into(),
            },
            key: columns.key.clone(),
            value: columns.value.clone(),
            value_default: columns.value_default.as_ref().map(hex),
            escaped: columns.escaped,
            skip,
        })
    }
}

impl ProgressFile {
    /// The file of a source.
    pub(crate) fn new(path: PathBuf, source: Fingerprint) -> ProgressFile {
        ProgressFile { path, source }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it; `None` if there is none yet. One of another source is refused.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Progress>> {
        let path = self.path.display();
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        };
        let stored = parse(&text).with_context(|| format!("{path} is not a progress file"))?;
        if stored.source != self.source {
            let what = format!("{path} records the progress of another source, or of other columns");
            let next = "give the FILE and the options of the load that wrote it, or another --progress file";
            return Err(Failure::usage(what).next(next).into());
        }
        let settled = LineSet::from_parts(stored.contiguous, &stored.ranges)
            .filter(|lines| stored.records.checked_add(stored.bad).is_some_and(|n| n <= lines.count()))
            .with_context(|| format!("{path} contradicts itself"))?;
        Ok(Some(Progress { settled, records: stored.records, bad: stored.bad }))
    }

    /// Writes it so that a crash leaves the old one or this one.
    pub(crate) fn write(&self, progress: &Progress) -> anyhow::Result<()> {
        let stored = Stored {
            version: VERSION,
            source: self.source.clone(),
            contiguous: progress.settled.contiguous(),
            ranges: progress.settled.ranges().collect(),
            records: progress.records,
            bad: progress.bad,
        };
        let mut text = serde_json::to_vec(&stored)?;
        text.push(b'\n');
        let written = file::write(&self.path, |mut file| {
            file.write_all(&text)?;
            Ok((file, ()))
        });
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn parse(text: &[u8]) -> anyhow::Result<Stored> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let found = serde_json::from_slice::<Versioned>(text)?.version;
    anyhow::ensure!(found == VERSION, "it has version {found}; this build reads version {VERSION}");
    Ok(serde_json::from_slice(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress_file(folder: &Path, content: &str) -> ProgressFile {
        let path = folder.join("source");
        fs::write(&path, content).unwrap();
        let columns = Columns { key: None, value: None, value_default: None, escaped: false };
        let source = Fingerprint::of(&path, Format::Tsv, &columns, 0).unwrap();
        ProgressFile::new(folder.join("progress"), source)
    }

    #[test]
    fn write_then_read_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = progress_file(folder.path(), "a\tb\n");
        assert_eq!(file.read().unwrap(), None);
        let mut progress = Progress::default();
        for line in [1, 2, 5, 6, 9] {
            progress.settled.insert(line);
            progress.records += 1;
        }
        file.write(&progress).unwrap();
        assert_eq!(file.read().unwrap(), Some(progress));
        assert!(!folder.path().join("progress.partial").exists());
    }

    #[test]
    fn read_progress_of_another_source_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        progress_file(folder.path(), "one").write(&Progress::default()).unwrap();
        let error = progress_file(folder.path(), "two").read().unwrap_err();
        assert!(error.to_string().contains("another source"), "{error}");
    }

    #[test]
    fn read_damaged_or_newer_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = progress_file(folder.path(), "one");
        let mut progress = Progress { records: 1, ..Progress::default() };
        progress.settled.insert(1);
        file.write(&progress).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        for (from, to) in [
            (r#""version":1"#, r#""version":2"#),
            (r#""records":1"#, r#""records":9"#),
            (r#""ranges":[]"#, r#""ranges":[[1,2]]"#),
            ("{", ""),
        ] {
            fs::write(file.path(), text.replacen(from, to, 1)).unwrap();
            assert!(file.read().is_err(), "{from} -> {to}");
        }
    }
}
