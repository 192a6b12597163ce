//! What futures and the pump have the blocking client do: each of these returns at once.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::blocking::Client;
use crate::operation::WhoSearches;
use crate::{ClientError, Completion, Operation, Output, Ticket};

impl Client {
    /// Readable when the client has something to do: an edge of it, if it is watched for edges.
    pub(super) fn wake_descriptor(&self) -> Result<OwnedFd, ClientError> {
        let lacks = || std::io::Error::other("the kernel does not watch the client's sockets");
        let descriptor = self.driver.wake_descriptor().ok_or_else(lacks);
        let cloned = descriptor.and_then(|descriptor| descriptor.try_clone_to_owned());
        cloned.map_err(|source| ClientError::Runtime { source })
    }

    /// See [`crate::Driver::get_at_once`]: of a get, a search or a page of a range.
    pub(super) fn answer_at_once(&mut self, operation: &Operation<'_>) -> Result<Output, WhoSearches> {
        let clock = self.clock;
        let clock = &mut || clock.now_ns();
        match operation {
            Operation::Get { key } => self.driver.get_at_once(clock, key).map(Output::Value),
            Operation::Search { key } => self.driver.search_at_once(clock, key).map(Output::Exists),
            Operation::Scan(scan) => self.driver.scan_at_once(clock, scan).map(Output::Page),
            _ => Err(WhoSearches::Undecided),
        }
    }

    /// The answer of an operation that was just submitted, if it takes no wait: it was found in place, or
    /// nothing else is under way and one step brings it.
    pub(super) fn answered_at_once(&mut self, ticket: Ticket) -> Option<Completion> {
        let clock = self.clock;
        if !self.driver.validate(&mut || clock.now_ns()) && self.outstanding() == 1 {
            self.step();
            self.spin.wait_begins(self.driver.now_ns(), self.driver.core_ref().spin_ns());
        }
        self.driver.core().completion_of(ticket)
    }

    /// A completion that is there.
    pub(super) fn next_completion(&mut self) -> Option<Completion> {
        self.driver.core().completion()
    }

    /// Whether the operation that was just submitted is alone under way, and its answer may come sooner than
    /// a sleep would end. Then this is the first look of its task, which counts as one.
    pub(super) fn begins_to_look(&mut self) -> bool {
        let now_ns = self.now_ns();
        self.outstanding() == 1 && self.spin.looks_on(now_ns)
    }

    /// Whether it is still so, for who does not look.
    pub(super) fn is_looking(&self) -> bool {
        self.outstanding() == 1 && self.spin.has_time(self.now_ns())
    }

    /// One step; whether it is still as [`Client::is_looking`] says.
    pub(super) fn look(&mut self) -> bool {
        let happened = self.step();
        let now_ns = self.driver.now_ns();
        if happened > 0 {
            self.spin.happened(now_ns);
        }
        self.outstanding() == 1 && self.spin.looks_on(now_ns)
    }

    /// One step. When nothing happened and nothing is readable: for how long one may sleep. For no time at
    /// all while an answer may come sooner than a sleep would end.
    pub(super) fn step_or_rest(&mut self) -> Option<Duration> {
        let happened = self.step();
        let now_ns = self.driver.now_ns();
        if happened > 0 {
            self.spin.happened(now_ns);
            return None;
        }
        if self.outstanding() > 0 && self.spin.looks_on(now_ns) {
            return Some(Duration::ZERO);
        }
        if !self.driver.prepare_sleep() || self.poller.wait(Some(Duration::ZERO)).ready > 0 {
            return None;
        }
        if self.outstanding() > 0 {
            self.spin.sleeps();
        }
        let due_ns = self.driver.core().due_ns().unwrap_or(u64::MAX);
        Some(Duration::from_nanos(due_ns.saturating_sub(self.now_ns())))
    }
}
