//! One node's place in the cluster: the process that is in it now, and whether another one follows.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use cell_drill::wire::PartitionWay;
use cell_node::NO_ROOM;
use rustix::process::{Pid, Signal, kill_process};

use super::backoff::{Backoff, End, Repeated};
use super::child::{NodeChild, NodeSpec};
use super::event::Event;
use super::link::{LastingFaults, Report, memory_argument, memory_line, restarted_argument};
use crate::exit::Exit;

/// A node's place.
pub(crate) struct Slot {
    /// How its node is started.
    pub(crate) spec: NodeSpec,
    /// How often it was started.
    pub(crate) lives: u64,
    pub(crate) child: Option<NodeChild>,
    /// What it last said of itself.
    pub(crate) state: String,
    /// What the process ended with, by its own word.
    pub(crate) last: Option<Report>,
    /// It served in this life, writes too or reads alone.
    pub(crate) served: bool,
    /// It served in this life or an earlier one.
    pub(crate) has_served: bool,
    /// It came while the others ran: nobody waits for it.
    pub(crate) added: bool,
    /// The process waits until there is room for its logs.
    waits_for_room: bool,
    /// SIGSTOP has it.
    pub(crate) paused: bool,
    /// It is to read its configuration again as soon as it serves.
    reload_due: bool,
    /// Its node leaves the cluster: no process follows.
    pub(crate) leaving: bool,
    /// Its node has left: the place is free.
    pub(crate) left: bool,
    /// What its process may hold in memory, in bytes; none: as it is configured otherwise.
    pub(crate) memory_share: Option<u64>,
    /// What lasts of drills, whichever process is in it.
    pub(crate) faults: LastingFaults,
    /// A drill did something to the process: what it ends of says nothing of the node.
    drilled: bool,
    /// A drill ended the process by SIGKILL. Others may do that, too: the kernel, for want of memory.
    killed: bool,
    backoff: Backoff,
    next: Next,
    /// A drill wants another process after this one, not before so long.
    down: Option<Duration>,
}

/// What comes when there is no process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    /// Another one, at that time.
    At(Instant),
    /// None any more; how the last one ended.
    Never(Exit, String),
}

/// The exit code of a node for which another start would end the same way.
fn final_exit(status: ExitStatus) -> Option<Exit> {
    [Exit::Usage, Exit::VerificationFailed].into_iter().find(|exit| status.code() == Some(*exit as i32))
}

impl Slot {
    /// A place whose first process is due at once.
    pub(crate) fn new(spec: NodeSpec, now: Instant) -> Slot {
        Slot {
            spec,
            lives: 0,
            child: None,
            state: "starting".into(),
            last: None,
            served: false,
            has_served: false,
            added: false,
            waits_for_room: false,
            paused: false,
            reload_due: false,
            leaving: false,
            left: false,
            memory_share: None,
            faults: LastingFaults::default(),
            drilled: false,
            killed: false,
            backoff: Backoff::default(),
            next: Next::At(now),
            down: None,
        }
    }

    /// The same of a node that is added to others.
    pub(crate) fn added(spec: NodeSpec, now: Instant) -> Slot {
        Slot { added: true, ..Slot::new(spec, now) }
    }

    /// Its node has left the cluster, and has no process any more.
    pub(crate) fn leave(&mut self) {
        (self.child, self.leaving, self.left) = (None, false, true);
        self.next = Next::Never(Exit::Ok, "it has left".to_owned());
    }

    /// When the next process is to be started; none while one runs, or if none follows.
    pub(crate) fn due(&self) -> Option<Instant> {
        match (&self.child, &self.next) {
            (None, Next::At(at)) => Some(*at),
            _ => None,
        }
    }

    /// How the last process ended, if no other follows.
    pub(crate) fn given_up(&self) -> Option<(Exit, &str)> {
        match &self.next {
            Next::Never(exit, text) if self.child.is_none() => Some((*exit, text)),
            _ => None,
        }
    }

    /// Whether who waits for the start of all has no reason to wait for it: it has served, or will not soon.
    pub(crate) fn is_settled(&self) -> bool {
        self.has_served
            || self.added
            || self.waits_for_room
            || self.given_up().is_some()
            || self.repeated().is_some()
    }

    /// Its state in words of the drill socket.
    pub(crate) fn state(&self) -> &str {
        match (&self.child, self.paused) {
            (Some(_), true) => "stopped",
            (Some(_), false) if self.leaving => "stopping",
            (Some(_), false) => &self.state,
            (None, _) if self.given_up().is_some() => "given up",
            (None, _) => "down",
        }
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, events: &Sender<Event>) -> anyhow::Result<()> {
        self.lives += 1;
        (self.served, self.paused, self.reload_due, self.last) = (false, false, false, None);
        (self.waits_for_room, self.killed) = (false, false);
        self.drilled = self.faults != LastingFaults::default();
        "starting".clone_into(&mut self.state);
        let mut arguments = self.faults.arguments();
        arguments.extend(self.memory_share.map(memory_argument));
        arguments.extend(self.repeated().map(|repeated| restarted_argument(&repeated.words())));
        self.child = Some(NodeChild::spawn(&self.spec, self.lives, arguments, events.clone())?);
        Ok(())
    }

    /// There was no process to be had, for this reason: another try follows, later each time.
    pub(crate) fn not_started(&mut self, cause: String, now: Instant) {
        let end = End { started: now, ended: now, served: false, cause: Some(cause) };
        self.next = Next::At(now + self.backoff.wait(&end));
    }

    /// The process has ended: decides whether, and when, another one follows. `died` is what was said of it,
    /// `cause` that without its name.
    pub(crate) fn ended(
        &mut self,
        status: ExitStatus,
        (died, cause): (String, String),
        restart: bool,
        now: Instant,
    ) {
        let started = self.child.take().map_or(now, |child| child.started);
        // An end that a drill or an operator has asked for says nothing of the node. A SIGKILL from elsewhere
        // may be the kernel's, for want of memory, and what ran out does so again.
        let is_its_own = !self.drilled && !self.killed && !status.success();
        let cause = is_its_own.then_some(cause);
        let end = End { started, ended: now, served: self.served, cause };
        let wanted = self.down.take();
        let last = final_exit(status).filter(|_| wanted.is_none());
        self.next = match (last, wanted) {
            (Some(exit), _) => Next::Never(exit, died),
            // An ordered stop: the drill that asked for it wants it back whatever the supervisor does else.
            (None, Some(_)) if status.success() => Next::At(now),
            (None, _) if !restart => Next::Never(Exit::Error, died),
            (None, Some(down)) => Next::At(now + down),
            (None, None) => Next::At(now + self.backoff.wait(&end)),
        };
    }

    /// Of a process that has ended by a SIGKILL which its supervisor did not send: who may have.
    pub(crate) fn who_killed(&self, status: ExitStatus) -> Option<&'static str> {
        let child = self.child.as_ref().filter(|_| !self.killed)?;
        (status.signal() == Some(Signal::KILL.as_raw())).then(|| child.memory_kills.who())
    }

    /// Why it is held back, or was when it was started.
    pub(crate) fn repeated(&self) -> Option<&Repeated> {
        self.backoff.repeated()
    }

    /// How long until the next process.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        self.due().map(|at| at.saturating_duration_since(now))
    }

    /// Notes what the process said; whether it comes to serve, writes too or reads alone: for the first time
    /// in this life, or again after it was silent.
    pub(crate) fn on_report(&mut self, report: &Report) -> bool {
        let is_up = matches!(report.state.as_str(), "serving" | "read_only");
        let serves = is_up && (!self.served || self.state == "silent");
        report.state.clone_into(&mut self.state);
        self.waits_for_room = report.detail.starts_with(NO_ROOM);
        self.served |= serves;
        self.has_served |= serves;
        if self.served && std::mem::take(&mut self.reload_due) {
            self.signal(Signal::HUP);
        }
        serves
    }

    /// `kill -9`, and nobody for so long.
    pub(crate) fn kill(&mut self, down: Duration) -> bool {
        let killed = self.signal(Signal::KILL);
        if killed {
            (self.down, self.killed) = (Some(down), true);
        }
        killed
    }

    /// Asks it to end in order, and wants it back; without a process it gets one now, whatever was meant
    /// before.
    pub(crate) fn restart(&mut self, now: Instant) -> bool {
        if self.child.is_none() {
            self.next = Next::At(now);
            return true;
        }
        self.down = Some(Duration::ZERO);
        self.ask_to_stop()
    }

    /// Asks it to end in order.
    pub(crate) fn ask_to_stop(&mut self) -> bool {
        self.cont();
        let Some(child) = &mut self.child else { return false };
        child.ask_to_stop();
        true
    }

    /// Has it read its configuration again. One that has not served yet may not listen to signals, and may
    /// have read what was there before: it gets the signal once it serves.
    pub(crate) fn reload(&mut self) {
        self.reload_due = !self.served;
        if self.served {
            self.signal(Signal::HUP);
        }
    }

    pub(crate) fn pause(&mut self) -> bool {
        self.paused = self.signal(Signal::STOP);
        self.drilled |= self.paused;
        self.paused
    }

    pub(crate) fn cont(&mut self) -> bool {
        self.paused = false;
        self.signal(Signal::CONT)
    }

    /// Cuts it off, or lets it back; so is the process that follows.
    pub(crate) fn partition(&mut self, partition: Option<PartitionWay>) -> bool {
        self.faults.partition = partition;
        self.drilled |= partition.is_some();
        self.send_line(&self.faults.partition_line())
    }

    /// Slows its logs down by so many milliseconds, or no longer; so those of the process that follows.
    pub(crate) fn slow_disk(&mut self, delay_ms: u64) -> bool {
        self.faults.disk_delay_ms = delay_ms;
        self.drilled |= delay_ms > 0;
        self.send_line(&self.faults.slow_disk_line())
    }

    /// Its process may hold so many bytes in memory from here on, and so may those that follow.
    pub(crate) fn share_memory(&mut self, bytes: u64) {
        self.memory_share = Some(bytes);
        self.send_line(&memory_line(bytes));
    }

    /// Whether there is a process to send it to.
    fn send_line(&mut self, line: &str) -> bool {
        let Some(child) = &mut self.child else { return false };
        child.send_line(line);
        true
    }

    fn signal(&self, signal: Signal) -> bool {
        let pid =
            self.child.as_ref().and_then(|child| i32::try_from(child.pid()).ok()).and_then(Pid::from_raw);
        // The child is not waited for yet, so the number is its own.
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a place's times are those of real processes")]
mod tests {
    use super::*;

    fn slot() -> Slot {
        let spec = NodeSpec { node: 0, binary: "cell".into(), arguments: Vec::new(), messages: None };
        Slot::new(spec, Instant::now())
    }

    /// What a slot makes of a node's report in this state.
    fn reported(slot: &mut Slot, state: &str, detail: &str) -> bool {
        slot.on_report(&Report { state: state.to_owned(), detail: detail.to_owned(), next: None })
    }

    #[test]
    fn on_report_of_a_node_that_was_silent_is_that_it_comes_to_serve_again() {
        let mut slot = slot();
        let states = ["recovering", "serving", "read_only", "serving", "silent", "serving"];
        let serves = states.map(|state| reported(&mut slot, state, ""));
        assert_eq!(serves, [false, true, false, false, false, true]);
    }

    /// It was never up, and an end of it was one of its start.
    #[test]
    fn on_report_of_a_node_that_serves_reads_alone_from_its_start_is_that_it_serves() {
        let mut slot = slot();
        let serves = ["recovering", "read_only", "serving"].map(|state| reported(&mut slot, state, ""));
        assert_eq!(serves, [false, true, false]);
        assert!(slot.served && slot.has_served && slot.is_settled());
    }

    #[test]
    fn is_settled_also_where_a_node_is_held_back_or_waits_for_room() {
        let (mut full, now) = (slot(), Instant::now());
        reported(&mut full, "recovering", "recovering 3 % (replay)");
        assert!(!full.is_settled());
        reported(&mut full, "recovering", &format!("{NO_ROOM}: free some"));
        assert!(full.is_settled());
        reported(&mut full, "recovering", "recovering 4 % (replay)");
        assert!(!full.is_settled(), "there is room again");
        let mut failing = slot();
        let settled = [1, 2, 3].map(|_| {
            failing.not_started("no process is to be had".to_owned(), now);
            failing.is_settled()
        });
        assert_eq!(settled, [false, false, true]);
        assert!(Slot::added(slot().spec, now).is_settled());
    }

    /// A node that the kernel ended for want of memory was started again at once, for ever.
    #[test]
    fn ended_by_kill_three_times_within_a_minute_is_held_back_unless_a_drill_did_it() {
        let now = Instant::now();
        let end = |slot: &mut Slot, killed: bool| {
            (slot.served, slot.killed) = (true, killed);
            slot.ended(
                ExitStatus::from_raw(9),
                ("node 0 died".into(), "killed by signal 9".into()),
                true,
                now,
            );
            slot.wait(now).unwrap()
        };
        let mut slot = slot();
        assert_eq!([(); 4].map(|()| end(&mut slot, true)), [Duration::ZERO; 4]);
        assert_eq!(slot.repeated(), None);
        let waits = [(); 7].map(|()| end(&mut slot, false).as_secs());
        assert_eq!(waits, [0, 0, 1, 2, 4, 8, 16]);
        assert_eq!(end(&mut slot, false).as_secs(), 30);
        let words = slot.repeated().unwrap().words();
        assert!(words.starts_with("ended 8 times") && words.ends_with(": killed by signal 9"), "{words}");
        // A drill in between says nothing, and what is started after it is not held back.
        assert_eq!(end(&mut slot, true), Duration::ZERO);
    }

    /// The end of the next process, whatever it ended of, was that of the kill.
    #[test]
    fn kill_without_a_process_says_nothing_of_the_end_of_the_next_one() {
        let mut slot = slot();
        assert!(!slot.kill(Duration::from_secs(3_600)));
        assert_eq!(slot.down, None);
    }
}
