//! What a supervisor announces under `--json`: an object a line.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{PATIENCE, Server};

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
    #[allow(clippy::disallowed_methods, reason = "a harness of real processes has real time")]
    pub fn wait_event(&mut self, name: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let has_ended = self.has_ended(); // before the look at the file, which has its last words then
            let events = self.events.as_mut().expect("the server announces events");
            while let Some(event) = events.next() {
                if event["event"] == name {
                    return event;
                }
            }
            assert!(!has_ended, "the server ended without an event `{name}`:\n{}", self.log_end());
            assert!(Instant::now() < deadline, "no event `{name}` comes");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
