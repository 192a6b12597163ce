//! What a supervisor announces under `--json`: an object a line.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// The file of a supervisor's standard output, and how far it was read.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) file: PathBuf,
    read: usize,
}

impl Events {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, read: 0 }
    }

    /// Forgets what earlier lives have announced.
    pub(super) fn skip(&mut self) {
        self.read = fs::metadata(&self.file).map_or(0, |about| usize::try_from(about.len()).unwrap_or(0));
    }

    /// The next event, once its line is whole.
    pub(super) fn next(&mut self) -> Option<Value> {
        let text = fs::read(&self.file).unwrap_or_default();
        let rest = text.get(self.read..)?;
        let line = &rest[..rest.iter().position(|byte| *byte == b'\n')?];
        self.read += line.len() + 1;
        let event = serde_json::from_slice(line);
        Some(event.unwrap_or_else(|_| panic!("not JSON: {}", line.escape_ascii())))
    }
}
