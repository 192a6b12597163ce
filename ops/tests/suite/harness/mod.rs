//! A `cell dev` of small regions, kept by the harness of `cell-tests`, client commands against it, and a
//! service manager that is notified.

use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use cell_tests::lease::LONG_LEASE;
use cell_tests::server::Server;
use cell_tests::{program, wait};
use rustix::process::Pid;
use serde_json::Value;

/// Small regions and segments, and little said.
pub(crate) const FLAGS: [&str; 4] = [
    "--node-region-bytes=64MiB",
    "--extent-region-bytes=128MiB",
    "--log-segment-bytes=8MiB",
    "--tracing-filter=warn",
];

/// A command that sees none of this process's `CELL_*` variables, and ends with it.
pub(crate) fn command(arguments: &[&str]) -> Command {
    program::is_at(env!("CARGO_BIN_EXE_cell"));
    let mut command = program::command();
    command.args(arguments);
    command
}

/// A cluster that announces events.
pub(crate) struct Dev {
    pub(crate) server: Server,
}

impl Dev {
    /// Starts one node and waits until it serves.
    pub(crate) fn start() -> Dev {
        Dev::start_with(&[])
    }

    /// Starts with further flags and waits until a node serves.
    pub(crate) fn start_with(flags: &[&str]) -> Dev {
        let mut dev = Dev::launched_with(flags);
        dev.wait_for("serving");
        dev
    }

    /// Starts with further flags and waits for nothing.
    pub(crate) fn launched_with(flags: &[&str]) -> Dev {
        program::is_at(env!("CARGO_BIN_EXE_cell"));
        let mut server = Server::in_fresh_folder(&[]).announcing();
        server.set_bare_flags(&[&FLAGS[..], &LONG_LEASE, flags].concat());
        server.launch();
        Dev { server }
    }

    /// Starts it again in the same folder.
    pub(crate) fn restart(&mut self) {
        self.server.launch();
        self.wait_for("serving");
    }

    /// Waits until its status says that it is healthy.
    pub(crate) fn wait_healthy(&self) {
        wait::until("its status is healthy", || self.code(&["status"]) == 0);
    }

    /// Waits for an event of this name.
    pub(crate) fn wait_for(&mut self, name: &str) -> Value {
        self.server.wait_event(name)
    }

    /// A path in its data folder.
    pub(crate) fn data(&self) -> &str {
        self.server.folder().to_str().unwrap()
    }

    /// A path beside its data folder, which goes with it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.server.folder().with_file_name(name)
    }

    /// The only node's process.
    pub(crate) fn node(&self) -> Pid {
        self.server.node().unwrap()
    }

    /// Where its first node serves clients.
    pub(crate) fn address(&self) -> String {
        self.server.address().to_string()
    }

    /// Where its first node serves HTTP.
    pub(crate) fn http(&self) -> String {
        self.server.http_address().to_string()
    }

    /// Runs a client command.
    pub(crate) fn cell(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("CELL_SERVER", self.address());
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
        self.server.stop()
    }
}

/// A service manager's end of its socket, which is read all the time: who notifies waits where nobody reads.
pub(crate) struct ServiceManager {
    pub(crate) socket: PathBuf,
    lines: Receiver<String>,
}

impl ServiceManager {
    /// Listens at a socket in a folder.
    pub(crate) fn listen(folder: &Path) -> ServiceManager {
        let socket = folder.join("notify");
        let notified = UnixDatagram::bind(&socket).unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut received = [0; 4096];
            while let Ok(length) = notified.recv(&mut received) {
                let said = String::from_utf8_lossy(&received[..length]).into_owned();
                if said.lines().any(|line| sender.send(line.to_owned()).is_err()) {
                    return; // the test is over
                }
            }
        });
        ServiceManager { socket, lines }
    }

    /// Passes over what it has been notified of.
    pub(crate) fn forget(&self) {
        self.lines.try_iter().for_each(drop);
    }

    /// Waits until it is notified in a line that begins so; those before it are passed over.
    pub(crate) fn wait_for(&self, begin: &str) {
        loop {
            let line = self.lines.recv_timeout(wait::PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("not notified of {begin}: {error}"));
            if line.starts_with(begin) {
                return;
            }
        }
    }
}
