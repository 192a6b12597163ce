//! What a supervisor announces under `--json`: an object a line.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::Server;
use crate::wait;

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
    fn next(&mut self) -> Option<Value> {
        let text = fs::read(&self.file).unwrap_or_default();
        let rest = text.get(self.read..)?;
        let line = &rest[..rest.iter().position(|byte| *byte == b'\n')?];
        self.read += line.len() + 1;
        let event = serde_json::from_slice(line);
        Some(event.unwrap_or_else(|_| panic!("not JSON: {}", line.escape_ascii())))
    }
}

impl Server {
    /// Has the supervisor announce events from the next start on, for [`Self::wait_event`].
    #[must_use]
    pub fn announcing(mut self) -> Self {
        self.events = Some(Events::new(self.log.with_extension("events")));
        self
    }

    /// Waits for the next event of this name; those before it are passed over.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_event(&mut self, name: &str) -> Value {
        wait::until_some(&format!("an event `{name}` comes"), || {
            let has_ended = self.has_ended(); // before the look at the file, which has its last words then
            let events = self.events.as_mut().expect("the server announces events");
            let found = std::iter::from_fn(|| events.next()).find(|event| event["event"] == name);
            let is_over = has_ended && found.is_none();
            assert!(!is_over, "the server ended without an event `{name}`:\n{}", self.log_end());
            found
        })
    }
}
