//! What a supervisor and a node say to each other: lines over the node's stdin and stdout.
//!
//! To the node: `stop` (take a last checkpoint and exit), `partition on` and `partition off` (a drill cuts
//! the node off from its peers and the coordinator, and lets it back). The end of the stream means that the
//! supervisor is gone: exit at once, because the coordinator went with it.
//!
//! To the supervisor: one JSON object a line, a [`Report`], at each change of state.

use std::io::{self, BufRead, Write};
use std::thread;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// What the supervisor asks for.
pub(crate) const STOP: &str = "stop";
/// Cuts the node off, and lets it back.
pub(crate) const PARTITION: [&str; 2] = ["partition off", "partition on"];

/// A node's state, as far as its supervisor cares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The state in one word.
    pub(crate) state: String,
    /// More of it, for people.
    pub(crate) detail: String,
}

/// What a node hears from its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Stop in good order.
    Stop,
    /// Be cut off, or be it no longer.
    Partition(bool),
    /// The supervisor is gone.
    Gone,
}

/// Tells the supervisor. A supervisor that does not read any more is noticed by its silence on stdin.
pub(crate) fn tell(report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let mut out = io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

fn word(line: &str) -> Option<Word> {
    match line {
        STOP => Some(Word::Stop),
        line => PARTITION.iter().position(|known| *known == line).map(|on| Word::Partition(on == 1)),
    }
}

/// Listens to stdin on a thread of its own.
pub(crate) fn listen(mut hear: impl FnMut(Word) + Send + 'static) -> anyhow::Result<()> {
    let run = move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(line) => word(line.trim()).into_iter().for_each(&mut hear),
                Err(_) => break,
            }
        }
        hear(Word::Gone);
    };
    thread::Builder::new().name("supervised".into()).spawn(run).context("cannot start a thread")?;
    Ok(())
}
