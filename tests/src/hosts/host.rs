//! One host.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::process::{children, wait_ended};
use crate::program::{self, Said};
use crate::{reaper, wait};

use super::network::run_in_network;
use super::process::{HostProcess, end_of};

const SCRIPT: &str = include_str!("host.sh");
/// Where its programs are.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A host: a first process with namespaces and a disk of its own, in which others run.
pub struct Host {
    number: u16,
    name: String,
    /// The test's folder.
    folder: PathBuf,
    booted_s: u32,
    /// The first process of the network.
    switch: Pid,
    first: Mutex<Option<First>>,
}

/// The first process, with whose end the whole host ends.
struct First {
    /// `unshare`, whose child it is.
    outside: Child,
    process: Pid,
}

impl Host {
    pub(super) fn start(folder: &Path, number: u16, name: String, booted_s: u32, switch: Pid) -> Self {
        let folder = folder.to_owned();
        let host = Self { number, name, folder, booted_s, switch, first: Mutex::default() };
        host.start_again();
        host
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        let [_, last] = self.number.to_be_bytes();
        Ipv4Addr::new(10, 79, 0, last)
    }

    /// Whether its disk has this file, of below `/etc`, `/var`, `/usr`, `/mnt` or `/srv`.
    pub fn has(&self, path: &str) -> bool {
        self.disk().join(path.trim_start_matches('/')).exists()
    }

    /// Writes a file on it.
    ///
    /// # Panics
    /// If it is down, or has no such folder.
    pub fn write(&self, path: &str, text: &str) {
        self.within(|| fs::write(path, text))
            .unwrap_or_else(|error| panic!("{}: {path}: {error}", self.name));
    }

    /// Starts it after a power cut: its disk is as it was, and nothing runs on it.
    ///
    /// # Panics
    /// If it runs, or does not come up.
    pub fn start_again(&self) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(first.is_none(), "{} runs already", self.name);
        let disk = self.disk();
        fs::create_dir_all(&disk).expect("a folder can be made");
        let log = self.log("host");
        let out = self.folder.join(format!("{}.up", self.name));
        let printed = File::create(&out).expect("a file can be made");
        let program = fs::canonicalize(program::path()).expect("cell is there");
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--mount-proc",
            "--fork",
            "--kill-child",
        ]);
        if self.booted_s > 0 {
            command.args(["--time", "--boottime", &self.booted_s.to_string()]);
        }
        command.args(["sh", "-c", SCRIPT, "host"]).args([&self.number.to_string(), &self.name]);
        command.arg(&disk).arg(program).stdin(Stdio::null()).stdout(printed).stderr(appended(&log));
        reaper::mark(&mut command);
        let outside = command.spawn().expect("unshare can be started");
        let parent = Pid::from_child(&outside);
        let process = wait::until_some("a host's first process is there", || children(parent).pop());
        let (port, number) = (format!("port-{}", self.number), process.as_raw_nonzero().to_string());
        let pair = ["ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &number];
        run_in_network(self.switch, &pair).expect("a host can be joined to the network");
        run_in_network(self.switch, &["ip", "link", "set", &port, "master", "switch", "up"])
            .expect("a host can be joined to the network");
        wait::until(&format!("{} is up: {}", self.name, log.display()), || {
            fs::read_to_string(&out).is_ok_and(|said| said.contains("up")) || {
                assert!(!children(parent).is_empty(), "{} has ended: {}", self.name, end_of(&log));
                false
            }
        });
        *first = Some(First { outside, process });
    }

    /// A power cut: all that runs on it ends at once.
    ///
    /// # Panics
    /// If something lives on.
    pub fn cut(&self) {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut first) = first else { return };
        // The link goes first: the others hear nothing of how connections end.
        let _ = run_in_network(self.switch, &["ip", "link", "delete", &format!("port-{}", self.number)]);
        let _ = first.outside.kill(); // its child is killed by the kernel then
        let _ = first.outside.wait();
        wait_ended(&[first.process]);
    }

    /// Another machine in its place, by the same name and address, with an empty disk.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn replace(&self) {
        self.cut();
        fs::remove_dir_all(self.disk()).expect("a disk of a host that is down can be removed");
        self.start_again();
    }

    /// A command on it, which does not outlive it, nor this process.
    ///
    /// # Panics
    /// If it is down.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("nsenter");
        let process = self.process().as_raw_nonzero().to_string();
        command.args(["--target", &process, "--all", "--"]).args(arguments);
        let mut command = program::quiet(command);
        command.env("PATH", PATH);
        command
    }

    /// Runs a command on it to its end.
    ///
    /// # Panics
    /// If it is down.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Said {
        self.command(arguments).output().expect("nsenter can be started").into()
    }

    /// As [`Host::run`], of a command that has to succeed; what it printed.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn done<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "on {}: {said:?}", self.name);
        said.out
    }

    /// Starts a process on it, with a log of this name.
    ///
    /// # Panics
    /// If it is down.
    pub fn spawn<S: AsRef<OsStr>>(&self, log: &str, arguments: impl IntoIterator<Item = S>) -> HostProcess {
        let log = self.log(log);
        let mut command = self.command(arguments);
        let started = command.stdout(appended(&log)).stderr(appended(&log)).spawn();
        HostProcess::new(started.expect("nsenter can be started"), log)
    }

    /// Has the calling thread, and those that it starts from then on, be on this host: in its network, with
    /// its files.
    ///
    /// # Panics
    /// If it is down.
    pub fn enter(&self) {
        let process = self.process();
        let of = |name: &str| {
            let path = format!("/proc/{}/ns/{name}", process.as_raw_nonzero());
            File::open(path).expect("the namespaces of a process that lives can be opened")
        };
        let (network, files) = (of("net"), of("mnt"));
        // A thread that shares root and working folder with others cannot see other files than they.
        #[allow(deprecated, reason = "of its flags this one leaves memory and file descriptors as they are")]
        rustix::thread::unshare(UnshareFlags::FS).expect("a thread can have a folder of its own");
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        move_into_link_name_space(files.as_fd(), Some(LinkNameSpaceType::Mount)).expect("root may");
    }

    /// Does something in a thread on this host.
    ///
    /// # Panics
    /// As `what` does, or if the host is down.
    pub fn within<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                what()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Lets it reach nobody's TCP port of this number, its own included: what it sends there is dropped.
    ///
    /// # Panics
    /// If it is down.
    pub fn close_port(&self, port: u16) {
        let rules = format!(
            "add table inet closed
             add chain inet closed sent {{ type filter hook output priority 0; policy accept; }}
             add chain inet closed came {{ type filter hook input priority 0; policy accept; }}
             add rule inet closed sent tcp dport {port} drop
             add rule inet closed came tcp sport {port} drop"
        );
        self.done(["nft", &rules]);
    }

    /// It reaches all ports again.
    pub(super) fn open_ports(&self) {
        if self.is_up() {
            // The table is not there unless a port was closed.
            self.run(["nft", "delete", "table", "inet", "closed"]);
        }
    }

    /// Whether it runs.
    pub fn is_up(&self) -> bool {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn process(&self) -> Pid {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.as_ref().unwrap_or_else(|| panic!("{} is down", self.name)).process
    }

    fn disk(&self) -> PathBuf {
        self.folder.join(format!("disk-{}", self.number))
    }

    fn log(&self, of: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{}.{of}.log", self.name))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.cut();
    }
}

/// A file to be written to at its end.
fn appended(path: &Path) -> Stdio {
    let file = File::options().create(true).append(true).open(path);
    file.unwrap_or_else(|error| panic!("{} cannot be written: {error}", path.display())).into()
}
