//! A real `cell dev` as a child of the test, or a `cell agent`: on ports of its own, in a folder of its own,
//! killed as often as the test likes.

mod agent;
mod drill;
mod events;
mod http;
mod moves;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::control_group::ControlGroup;
use crate::lease::LONG_LEASE;
use crate::ports::Ports;
use crate::process::{children, resident_bytes, wait_ended};
use crate::program::{self, Said};
use crate::wait;
use events::Events;

/// Lines of a server's log that a failed test shows.
const LOG_LINES_SHOWN: usize = 40;
/// Small regions and segments: tests run side by side.
const FLAGS: [(&str, &str); 5] = [
    ("--node-region-bytes", "256MiB"),
    ("--slot-bytes", "128MiB"),
    ("--extent-region-bytes", "512MiB"),
    ("--populate-chunk-bytes", "8MiB"),
    ("--log-segment-bytes", "8MiB"),
];

/// The small defaults and what a test says itself, which comes instead of a default of the same name.
fn merged(flags: &[&str]) -> Vec<String> {
    let defaults = FLAGS.iter().filter(|(name, _)| !flags.contains(name));
    let defaults = defaults.flat_map(|&(name, value)| [name, value]);
    defaults.chain(flags.iter().copied()).map(str::to_owned).collect()
}

/// A cluster, and the supervisor that keeps it.
pub struct Server {
    ports: Ports,
    folder: PathBuf,
    log: PathBuf,
    flags: Vec<String>,
    /// Set if its supervisor announces events.
    events: Option<Events>,
    /// The control group that it runs in: the file to enter it by.
    group: Option<PathBuf>,
    /// How many nodes an agent supervises; none: `cell dev` does.
    agent_nodes: Option<u16>,
    supervisor: Option<Child>,
    /// Removed when the server is dropped, if the test did not bring its own.
    _temporary: Option<TempDir>,
}

impl Server {
    /// Starts a cluster in a fresh folder and waits until it serves.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`Self::start`], with further flags of `cell dev`, which win over the small defaults.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start_with(flags: &[&str]) -> Self {
        let mut server = Self::in_fresh_folder(flags);
        server.resume();
        server
    }

    /// As [`Self::start_with`], with a lease that a busy machine leaves the node: for tests that kill none,
    /// or demand that none ends by itself.
    pub fn start_steady(flags: &[&str]) -> Self {
        Self::start_with(&[&LONG_LEASE[..], flags].concat())
    }

    /// A cluster in a fresh folder that is not started yet.
    ///
    /// # Panics
    /// If no folder can be made.
    pub fn in_fresh_folder(flags: &[&str]) -> Self {
        let temporary = TempDir::with_prefix("cell-test-").expect("a temporary folder can be made");
        let mut server = Self::prepared(&temporary.path().join("data"), flags);
        server._temporary = Some(temporary);
        server
    }

    /// A cluster in `folder` that is not started yet.
    ///
    /// # Panics
    /// If the folder has no name.
    pub fn prepared(folder: &Path, flags: &[&str]) -> Self {
        let flags = merged(flags);
        let mut log = folder.file_name().expect("the data folder has a name").to_owned();
        log.push(".server-log");
        let log = folder.with_file_name(log);
        Self {
            ports: Ports::take(),
            folder: folder.to_owned(),
            log,
            flags,
            events: None,
            group: None,
            agent_nodes: None,
            supervisor: None,
            _temporary: None,
        }
    }

    /// As [`Self::prepared`], with the settings that a user gets who says nothing.
    pub fn bare(folder: &Path) -> Self {
        let mut server = Self::prepared(folder, &[]);
        server.flags.clear();
        server
    }

    /// As [`Self::bare`], with these flags alone.
    pub fn bare_with(folder: &Path, flags: &[&str]) -> Self {
        let mut server = Self::bare(folder);
        server.set_bare_flags(flags);
        server
    }

    /// Replaces the flags it will be started with next.
    pub fn set_flags(&mut self, flags: &[&str]) {
        self.flags = merged(flags);
    }

    /// As [`Self::set_flags`], without the small defaults.
    pub fn set_bare_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    }

    /// Runs supervisor and nodes in a control group from the next start on.
    pub fn run_in(&mut self, group: &ControlGroup) {
        self.group = Some(group.procs_file());
    }

    /// Memory that supervisor and node have.
    pub fn resident_bytes(&self) -> u64 {
        std::iter::once(self.supervisor()).chain(self.nodes()).map(resident_bytes).sum()
    }

    /// Starts the supervisor without waiting for anything.
    ///
    /// # Panics
    /// If it runs already or cannot be started.
    pub fn launch(&mut self) {
        assert!(self.supervisor.is_none(), "the server runs already");
        let mut command = match &self.group {
            Some(file) => program::command_in(file),
            None => program::command(),
        };
        match self.agent_nodes {
            Some(nodes) => self.run_agent(&mut command, nodes),
            None => {
                let port = self.port().to_string();
                command.args(["dev", "--show-logs", "--port", &port, "--dir"]).arg(&self.folder);
            }
        }
        command.args(&self.flags).stdout(appended(&self.log)).stderr(appended(&self.log));
        if let Some(events) = &mut self.events {
            events.skip();
            command.arg("--json").stdout(appended(&events.file));
        }
        self.supervisor = Some(command.spawn().expect("cell can be started"));
    }

    /// A node of this cluster that the supervisor does not run, to be started by the caller: it lives in the
    /// same folder, asks the supervisor's coordinator, and reports into the same log.
    ///
    /// # Panics
    /// If the log cannot be written.
    pub fn node_command(&self, node: u16) -> Command {
        let mut command = program::command();
        command
            .args(["node", "--node-id", &node.to_string(), "--data-dir"])
            .arg(&self.folder)
            .args(["--listen-address", &self.local(node), "--http-address", &self.local(80 + node)])
            .arg("--coordinator-address")
            .arg(self.coordinator())
            .stdout(Stdio::null())
            .stderr(appended(&self.log));
        command
    }

    /// Where the supervisor's coordinator is asked.
    pub fn coordinator(&self) -> PathBuf {
        self.folder.join("coordinator.socket")
    }

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

    /// Starts the supervisor and waits until the node serves.
    ///
    /// # Panics
    /// If it ends or does not serve in time.
    pub fn resume(&mut self) {
        self.launch();
        self.wait_ready();
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Panics
    /// If the supervisor ends or time runs out.
    pub fn wait_ready(&mut self) {
        wait::until("the server is ready", || {
            assert!(!self.has_ended(), "the server ended:\n{}", self.log_end());
            self.is_ready()
        });
    }

    /// Whether it serves right now.
    pub fn is_ready(&self) -> bool {
        self.http("/readyz").is_some_and(|(status, _)| status == 200)
    }

    /// Whether the supervisor has ended by itself.
    fn has_ended(&mut self) -> bool {
        let child = self.supervisor.as_mut().expect("the server was started");
        child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Waits until the supervisor ends by itself, as it does when its node is refused; its exit code.
    ///
    /// # Panics
    /// If it runs on.
    pub fn wait_end(&mut self) -> Option<i32> {
        self.ended().code()
    }

    /// Waits for the supervisor's end. One that does not end stays this server's, to be ended with it.
    fn ended(&mut self) -> ExitStatus {
        let child = self.supervisor.as_mut().expect("the server was started");
        let ended = || child.try_wait().expect("a child can be waited for");
        let status = wait::until_some("the server has ended", ended);
        self.supervisor = None;
        status
    }

    /// Waits until the log, from byte `from` on, has these words.
    ///
    /// # Panics
    /// If it never has.
    pub fn wait_log(&self, from: usize, words: &str) {
        let is_said = || self.log().get(from..).is_some_and(|said| said.contains(words));
        wait::until(&format!("the server says `{words}`"), is_said);
    }

    /// The first of its ports.
    pub fn port(&self) -> u16 {
        self.ports.first
    }

    /// The address of one of its ports, by its distance from the first one.
    fn local(&self, offset: u16) -> String {
        format!("127.0.0.1:{}", self.port() + offset)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port()))
    }

    /// Its data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs a client command of `cell` against this server.
    ///
    /// # Panics
    /// If no command is named.
    pub fn cell(&self, arguments: &[&str]) -> Said {
        let server = self.address().to_string();
        let (command, rest) = arguments.split_first().expect("a command is named");
        let mut all = vec![*command, "--server", &server];
        all.extend(rest);
        program::run(&all)
    }

    /// What supervisor and node have printed, all lives together.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last of it, for messages.
    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Writes its log elsewhere than beside the data folder: for a second server on one folder.
    pub fn log_to(&mut self, path: &Path) {
        self.log = path.to_owned();
    }

    /// The supervisor's process.
    ///
    /// # Panics
    /// If it does not run.
    pub fn supervisor(&self) -> Pid {
        let child = self.supervisor.as_ref().expect("the server was started");
        Pid::from_child(child)
    }

    /// The processes of all nodes that there are.
    pub fn nodes(&self) -> Vec<Pid> {
        children(self.supervisor())
    }

    /// The node's process, when there is one.
    pub fn node(&self) -> Option<Pid> {
        self.nodes().into_iter().next()
    }

    /// kill -9 of the node alone; the supervisor starts it again. Returns whether there was one to kill. With
    /// `--allow-drills` the supervisor does it, as often as a test likes: one that others kill again and
    /// again is held back.
    pub fn kill_node(&self) -> bool {
        if self.flags.iter().any(|flag| flag == "--allow-drills") {
            let there = self.node().is_some();
            if there {
                self.kill_by_drill(0);
            }
            return there;
        }
        self.node().is_some_and(|node| kill_process(node, Signal::KILL).is_ok())
    }

    /// As [`Self::kill_node`], and waits until the next node serves.
    ///
    /// # Panics
    /// If there is no node to kill, or none comes after it.
    pub fn replace_node(&mut self) {
        let before = self.node();
        assert!(self.kill_node(), "there is a node to kill");
        let is_another = || self.node().is_some_and(|node| Some(node) != before);
        wait::until("a node comes after the one that was killed", is_another);
        self.wait_ready();
    }

    /// kill -9 of the supervisor, and waits until its nodes, which must die with it, are gone.
    ///
    /// # Panics
    /// If one lives on.
    pub fn kill_all(&mut self) {
        let nodes = self.nodes();
        let mut child = self.supervisor.take().expect("the server was started");
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
        wait_ended(&nodes);
    }

    /// SIGTERM to the supervisor; waits for its end and returns its exit code.
    ///
    /// # Panics
    /// If it runs on.
    pub fn stop(&mut self) -> Option<i32> {
        kill_process(self.supervisor(), Signal::TERM).expect("a child can be signalled");
        self.ended().code()
    }
}

/// A file to be written to at its end.
fn appended(path: &Path) -> Stdio {
    let file = File::options().create(true).append(true).open(path);
    file.unwrap_or_else(|error| panic!("{} cannot be written: {error}", path.display())).into()
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.supervisor.take() {
            let nodes = children(Pid::from_child(&child));
            // The test is over, well or not; what still runs must not outlive it.
            let _ = child.kill();
            let _ = child.wait();
            for node in nodes {
                let _ = kill_process(node, Signal::KILL);
            }
        }
        if std::thread::panicking() {
            eprintln!("the end of the server's log:\n{}", self.log_end());
        }
    }
}
