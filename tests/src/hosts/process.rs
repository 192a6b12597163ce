//! A process on a host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{self, children};
use crate::wait;

/// Lines of its log that a message shows.
const LINES_SHOWN: usize = 30;

/// A process that was started on a host, with a log of its own. It ends with its host, and when dropped.
pub struct HostProcess {
    /// `nsenter`, which waits for it outside of the host.
    outside: Child,
    log: PathBuf,
}

impl HostProcess {
    pub(super) fn new(outside: Child, log: PathBuf) -> Self {
        Self { outside, log }
    }

    /// The process itself, as this machine numbers it.
    ///
    /// # Panics
    /// If it has ended.
    pub fn pid(&self) -> Pid {
        let outside = Pid::from_child(&self.outside);
        wait::until_some("the process on the host is there", || children(outside).into_iter().next())
    }

    /// A process that this one has started, if it has one: of a shell that keeps a program running, the
    /// program.
    pub fn child(&self) -> Option<Pid> {
        let own = children(Pid::from_child(&self.outside)).into_iter().next()?;
        children(own).into_iter().next()
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// If the kernel does not know it.
    pub fn has_ended(&mut self) -> bool {
        self.outside.try_wait().expect("a child can be waited for").is_some()
    }

    /// SIGCONT, after it was stopped. `nsenter` has stopped itself with it, and has to go on, too.
    ///
    /// # Panics
    /// If it has ended.
    pub fn cont(&self) {
        process::signal(self.pid(), Signal::CONT);
        process::signal(Pid::from_child(&self.outside), Signal::CONT);
    }

    /// Waits until it has ended by itself; its exit code.
    ///
    /// # Panics
    /// If it runs on.
    pub fn wait_end(&mut self) -> Option<i32> {
        let outside = &mut self.outside;
        let ended = || outside.try_wait().expect("a child can be waited for");
        wait::until_some("the process on the host has ended", ended).code()
    }

    /// `kill -9` of it and of what it has started directly; waits for its end.
    pub fn kill(&mut self) {
        let outside = Pid::from_child(&self.outside);
        let own = children(outside);
        let started: Vec<Pid> = own.iter().flat_map(|process| children(*process)).collect();
        for process in own.iter().chain(&started) {
            let _ = kill_process(*process, Signal::KILL); // it may have ended just now
        }
        let _ = kill_process(outside, Signal::CONT); // it stands still if its process does
        let _ = self.outside.wait();
        process::wait_ended(&[own, started].concat());
    }

    /// What it has printed, errors too.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last of it, for messages.
    pub fn log_end(&self) -> String {
        end_of(&self.log)
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        if !self.outside.try_wait().is_ok_and(|ended| ended.is_some()) {
            self.kill();
        }
    }
}

/// The last lines of a file.
pub(super) fn end_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}
