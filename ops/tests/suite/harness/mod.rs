//! A `cell dev` of small regions as a child of a test, and commands against it.
#![allow(clippy::disallowed_methods, reason = "real processes have real time")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Small regions and segments, and little said.
pub(crate) const FLAGS: [&str; 4] = [
    "--node-region-bytes=64MiB",
    "--extent-region-bytes=128MiB",
    "--log-segment-bytes=8MiB",
    "--tracing-filter=warn",
];

/// A command that sees none of this process's `CELL_*` variables.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cell"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CELL_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The first of a block of ports that nobody has, for a cluster of three nodes: below the range from which
/// the kernel picks ports for outgoing connections, which would take those of a node while it is down, and
/// below the blocks of `cell_tests::ports`.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 7_900;
    const BLOCK: u16 = 300;
    const BLOCKS: u16 = 10;
    // Tests of one process, or of neighbours, that look at the same time begin at different blocks.
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let taken = TAKEN.fetch_add(1, Ordering::Relaxed) % 2;
    let own = u16::try_from(std::process::id() % u32::from(BLOCKS)).unwrap() + taken * (BLOCKS / 2);
    loop {
        for turn in 0..BLOCKS {
            let port = FIRST + (own + turn) % BLOCKS * BLOCK;
            let is_free = |offset| TcpListener::bind(("127.0.0.1", port + offset)).is_ok();
            if [0, 1, 2, 80, 81, 82, 200].into_iter().all(is_free) {
                return port;
            }
        }
        std::thread::yield_now();
    }
}

pub(crate) struct Dev {
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
    pub(crate) process: Child,
    flags: Vec<String>,
    events: Receiver<Value>,
}

impl Dev {
    /// Starts and waits until it serves.
    pub(crate) fn start() -> Dev {
        Dev::start_with(&[])
    }

    /// Starts with further flags and waits until it serves.
    pub(crate) fn start_with(flags: &[&str]) -> Dev {
        let mut dev = Dev::launched_with(flags);
        dev.wait_for("serving");
        dev
    }

    /// Starts with further flags and waits for nothing.
    pub(crate) fn launched_with(flags: &[&str]) -> Dev {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (process, events) = launch(&folder, port, &flags);
        Dev { folder, port, process, flags, events }
    }

    /// Starts it again in the same folder.
    pub(crate) fn restart(&mut self) {
        (self.process, self.events) = launch(&self.folder, self.port, &self.flags);
        self.wait_for("serving");
    }

    /// Waits until its status says that it is healthy.
    pub(crate) fn wait_healthy(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.code(&["status"]) != 0 {
            assert!(Instant::now() < until, "it is not healthy within a minute");
        }
    }

    /// Waits for an event of this name.
    pub(crate) fn wait_for(&mut self, name: &str) -> Value {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left);
            let event = event.unwrap_or_else(|_| panic!("no event `{name}` within a minute"));
            if event["event"] == name {
                return event;
            }
        }
    }

    pub(crate) fn server(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs a client command.
    pub(crate) fn cell(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("CELL_SERVER", self.server());
        command
    }

    /// Runs a client command with something on its stdin.
    pub(crate) fn cell_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What a command must print when it succeeds.
    pub(crate) fn out(&self, arguments: &[&str]) -> String {
        let output = self.cell(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {:?}: {error}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Its exit code.
    pub(crate) fn code(&self, arguments: &[&str]) -> i32 {
        self.cell(arguments).status.code().unwrap()
    }

    /// SIGTERM, and its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        signal(Signal::TERM, self.process.id());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(folder: &TempDir, port: u16, flags: &[String]) -> (Child, Receiver<Value>) {
    let (dir, port) = (folder.path().join("data"), port.to_string());
    let mut command = command(&["dev", "--json", "--port", &port, "--dir", dir.to_str().unwrap()]);
    let mut process = command.args(FLAGS).args(flags).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = process.stdout.take().unwrap();
    let (sender, events) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let event = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    (process, events)
}

/// Sends a signal by a system call: a bare Debian has no program `kill`.
pub(crate) fn signal(signal: Signal, pid: u32) {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(process, signal).unwrap();
}

/// Waits until there is no such process (a zombie counts as gone).
pub(crate) fn wait_gone(pid: u32) {
    let until = Instant::now() + Duration::from_secs(10);
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    while lives() {
        assert!(Instant::now() < until, "process {pid} lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}
