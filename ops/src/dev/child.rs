//! One node as a child process.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use anyhow::Context;

use super::event::Event;
use super::link::{Report, STOP};
use super::memory_kills::MemoryKills;
use super::messages;

/// How to start a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeSpec {
    pub(crate) node: u16,
    pub(crate) binary: PathBuf,
    /// What follows `cell node`.
    pub(crate) arguments: Vec<String>,
    /// The file of its stderr; without one, it has its supervisor's.
    pub(crate) messages: Option<PathBuf>,
}

/// A running node.
pub(crate) struct NodeChild {
    process: Child,
    stdin: Option<ChildStdin>,
    /// Its messages: the file, and what was in it before.
    messages: Option<(PathBuf, u64)>,
    /// What the kernel had killed for want of memory before.
    pub(crate) memory_kills: MemoryKills,
    /// When it was started.
    pub(crate) started: Instant,
}

impl NodeChild {
    /// Starts a node, with `arguments` for this life alone; what it says, and its end, arrive as events of
    /// this `life`.
    ///
    /// It gets a process group of its own, so that a Ctrl-C reaches the supervisor only, who then stops it in
    /// order.
    pub(crate) fn spawn(
        spec: &NodeSpec,
        life: u64,
        arguments: Vec<String>,
        events: Sender<Event>,
    ) -> anyhow::Result<NodeChild> {
        let node = spec.node;
        let mut stderr = Stdio::inherit();
        let mut messages = None;
        if let Some(path) = &spec.messages {
            let file = messages::open(path)?;
            messages = Some((path.clone(), file.metadata().map_or(0, |about| about.len())));
            stderr = file.into();
        }
        let memory_kills = MemoryKills::now();
        let process = Command::new(&spec.binary)
            .arg("node")
            .args(&spec.arguments)
            .args(arguments)
            // Its supervisor alone speaks to the service manager.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", spec.binary.display()))?;
        // Its own from here on: if it cannot be listened to, it ends, and another one may have its place.
        let mut child = NodeChild { process, stdin: None, messages, memory_kills, started: Instant::now() };
        child.stdin = child.process.stdin.take();
        let stdout = child.process.stdout.take().context("the child has no stdout")?;
        let read = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(report) = serde_json::from_str::<Report>(&line) {
                    let _ = events.send(Event::Report { node, life, report });
                }
            }
            let _ = events.send(Event::Ended { node, life });
        };
        thread::Builder::new().name("child".into()).spawn(read).context("cannot start a thread")?;
        Ok(child)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The last error that it reported into its file.
    pub(crate) fn last_error(&self) -> Option<String> {
        let (path, since) = self.messages.as_ref()?;
        messages::last_error(path, *since)
    }

    /// Asks it to take a last checkpoint and exit.
    pub(crate) fn ask_to_stop(&mut self) {
        self.send_line(STOP);
    }

    /// Says a word of [`super::link`] to it.
    pub(crate) fn send_line(&mut self, word: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{word}"); // a child that is gone is noticed by its end
        }
    }

    /// How it ended; call after [`Event::Ended`].
    pub(crate) fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        self.stdin = None;
        self.process.wait().context("cannot wait for the node")
    }
}

impl Drop for NodeChild {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(Some(_))) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// How a process ended, in words.
pub(crate) fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(9)) => "killed by signal 9".into(),
        (_, Some(signal)) => format!("ended by signal {signal}"),
        _ => "ended".into(),
    }
}
