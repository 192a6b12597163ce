//! A real `cell dev` as a child of the test: on ports of its own, in a folder of its own, killed as often as
//! the test likes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::control_group::ControlGroup;
use crate::ports::Ports;
use crate::program::{self, Said};

/// How long a server may take until it serves.
const READY: Duration = Duration::from_secs(60);
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

/// A cluster of one node, and the supervisor that keeps it.
pub struct Server {
    ports: Ports,
    folder: PathBuf,
    log: PathBuf,
    flags: Vec<String>,
    /// The control group that it runs in: the file to enter it by.
    group: Option<PathBuf>,
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
        let temporary = TempDir::with_prefix("cell-test-").expect("a temporary folder can be made");
        let mut server = Self::prepared(&temporary.path().join("data"), flags);
        server._temporary = Some(temporary);
        server.resume();
        server
    }

    /// A cluster in `folder` that is not started yet.
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
            group: None,
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
        let supervisor = self.supervisor();
        std::iter::once(supervisor).chain(children(supervisor)).map(resident_bytes).sum()
    }

    /// Starts the supervisor without waiting for anything.
    ///
    /// # Panics
    /// If it runs already or cannot be started.
    pub fn launch(&mut self) {
        assert!(self.supervisor.is_none(), "the server runs already");
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.expect("the server's log can be written");
        let mut command = match &self.group {
            Some(file) => program::command_in(file),
            None => program::command(),
        };
        let child = command
            .args(["dev", "--show-logs", "--port", &self.ports.first.to_string(), "--dir"])
            .arg(&self.folder)
            .args(&self.flags)
            .stdout(Stdio::from(log.try_clone().expect("a descriptor can be doubled")))
            .stderr(Stdio::from(log))
            .spawn();
        self.supervisor = Some(child.expect("cell can be started"));
    }

    /// A node of this cluster that the supervisor does not run, to be started by the caller: it lives in the
    /// same folder, asks the supervisor's coordinator, and reports into the same log.
    ///
    /// # Panics
    /// If the log cannot be written.
    pub fn node_command(&self, node: u16) -> Command {
        let log = File::options().create(true).append(true).open(&self.log);
        let address = |offset: u16| format!("127.0.0.1:{}", self.ports.first + offset);
        let mut command = program::command();
        command
            .args(["node", "--node-id", &node.to_string(), "--data-dir"])
            .arg(&self.folder)
            .args(["--listen-address", &address(node), "--http-address", &address(80 + node)])
            .args(["--coordinator-address", &address(200)])
            .stdout(Stdio::null())
            .stderr(Stdio::from(log.expect("the server's log can be written")));
        command
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
    #[allow(clippy::disallowed_methods, reason = "a harness of real processes has real time")]
    pub fn wait_ready(&mut self) {
        let deadline = Instant::now() + READY;
        while !self.is_ready() {
            let child = self.supervisor.as_mut().expect("the server was started");
            let ended = child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "the server ended with {ended:?}:\n{}", self.log_end());
            assert!(Instant::now() < deadline, "the server is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the supervisor ends by itself, as it does when its node is refused; its exit code.
    ///
    /// # Panics
    /// If it runs on.
    #[allow(clippy::disallowed_methods, reason = "a harness of real processes has real time")]
    pub fn wait_end(&mut self) -> Option<i32> {
        let mut child = self.supervisor.take().expect("the server was started");
        let deadline = Instant::now() + READY;
        loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                return status.code();
            }
            if Instant::now() > deadline {
                self.supervisor = Some(child);
                panic!("the server runs on");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the log, from byte `from` on, has these words.
    ///
    /// # Panics
    /// If it never has.
    #[allow(clippy::disallowed_methods, reason = "a harness of real processes has real time")]
    pub fn wait_log(&self, from: usize, words: &str) {
        let deadline = Instant::now() + READY;
        while !self.log().get(from..).is_some_and(|said| said.contains(words)) {
            assert!(Instant::now() < deadline, "the server never said `{words}`");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a page of a node's HTTP listener has these words.
    ///
    /// # Panics
    /// If it never has.
    #[allow(clippy::disallowed_methods, reason = "a harness of real processes has real time")]
    pub fn wait_http(&self, node: u16, path: &str, words: &str) {
        let deadline = Instant::now() + READY;
        while !self.http_of(node, path).is_some_and(|(_, body)| body.contains(words)) {
            assert!(Instant::now() < deadline, "{path} never said `{words}`: {:?}", self.http_of(node, path));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it serves right now.
    pub fn is_ready(&self) -> bool {
        self.http("/readyz").is_some_and(|(status, _)| status == 200)
    }

    /// GETs a path of the node's HTTP listener: status and body.
    pub fn http(&self, path: &str) -> Option<(u16, String)> {
        self.http_of(0, path)
    }

    /// GETs a path of one node's HTTP listener: status and body.
    pub fn http_of(&self, node: u16, path: &str) -> Option<(u16, String)> {
        self.http_ask(node, &format!("GET {path}"), "", "")
    }

    /// POSTs a JSON body to a path of one node's HTTP listener: status and body.
    pub fn http_post(&self, node: u16, path: &str, body: &str) -> Option<(u16, String)> {
        let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        self.http_ask(node, &format!("POST {path}"), &headers, body)
    }

    fn http_ask(&self, node: u16, what: &str, headers: &str, body: &str) -> Option<(u16, String)> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.http_address().port() + node));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        write!(stream, "{what} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n{body}")
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.first))
    }

    /// Where its first node serves HTTP.
    pub fn http_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.first + 80))
    }

    /// Its data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Replaces the flags it will be started with next.
    pub fn set_flags(&mut self, flags: &[&str]) {
        self.flags = merged(flags);
    }

    /// Runs a client command of `cell` against this server.
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

    /// The node's process, when there is one.
    pub fn node(&self) -> Option<Pid> {
        children(self.supervisor()).into_iter().next()
    }

    /// kill -9 of the node alone; the supervisor starts it again. Returns whether there was one to kill.
    pub fn kill_node(&self) -> bool {
        self.node().is_some_and(|node| kill_process(node, Signal::KILL).is_ok())
    }

    /// As [`Self::kill_node`], and waits until the next node serves.
    ///
    /// # Panics
    /// If there is no node to kill, or none comes after it.
    #[allow(clippy::disallowed_methods, reason = "a harness of real processes has real time")]
    pub fn replace_node(&mut self) {
        let before = self.node();
        assert!(self.kill_node(), "there is a node to kill");
        let deadline = Instant::now() + READY;
        while self.node().is_none() || self.node() == before {
            assert!(Instant::now() < deadline, "no node comes after the one that was killed");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.wait_ready();
    }

    /// kill -9 of the supervisor, and waits until its node, which must die with it, is gone.
    ///
    /// # Panics
    /// If the node lives on for ten seconds.
    #[allow(clippy::disallowed_methods, reason = "a harness of real processes has real time")]
    pub fn kill_all(&mut self) {
        let nodes = children(self.supervisor());
        let mut child = self.supervisor.take().expect("the server was started");
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
        let deadline = Instant::now() + Duration::from_secs(10);
        while nodes.iter().any(|&node| test_kill_process(node).is_ok()) {
            assert!(Instant::now() < deadline, "the node outlived its supervisor");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGTERM to the supervisor; waits for its end and returns its exit code.
    ///
    /// # Panics
    /// If it does not end within a minute.
    #[allow(clippy::disallowed_methods, reason = "a harness of real processes has real time")]
    pub fn stop(&mut self) -> Option<i32> {
        let mut child = self.supervisor.take().expect("the server was started");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("a child can be signalled");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
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

/// Processes that `parent` started, of all its threads.
fn children(parent: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", parent.as_raw_nonzero());
    let threads = fs::read_dir(tasks).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    numbers.into_iter().filter_map(Pid::from_raw).collect()
}

/// Resident memory of a process that it shares with nobody: without regions, which it takes ahead of need.
///
/// # Panics
/// If there is no such process.
pub fn anonymous_bytes(process: Pid) -> u64 {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let text = fs::read_to_string(&path).expect("the process lives");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux 4.5 or later");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kib * 1024
}

/// Resident memory of a process, shared mappings included.
pub fn resident_bytes(process: Pid) -> u64 {
    let path = format!("/proc/{}/statm", process.as_raw_nonzero());
    let text = fs::read_to_string(path).unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
