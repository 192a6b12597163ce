//! Keeps nodes running until a signal: starts them, says what happens to them, starts each again when it
//! dies, each by its own, and does to them what a drill asks for.

mod drills;
mod scaling;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use serde_json::json;

use super::announce::Announcer;
use super::child::{NodeChild, NodeSpec, in_words};
use super::event::Event;
use super::link::Report;
use super::memory_shares::MemoryShares;
use super::owners::{Misfit, Owners};
use super::plan::Plan;
use super::slot::Slot;
use crate::exit::{Exit, Failure};
use crate::hint::Reached;
use crate::service::{EXTEND_EVERY, SupervisorService};

/// What is as the supervisor has set it for each node, whatever their configuration says by now.
const SET_BY_SUPERVISOR: [&str; 9] = [
    "node_id",
    "listen_address",
    "http_address",
    "advertise_address",
    "advertise_http_address",
    "data_dir",
    "log_root",
    "coordinator_address",
    "memory_limit_bytes",
];

/// Makes how a node of this number is started.
pub(crate) type NodeFactory = Box<dyn Fn(u16) -> anyhow::Result<NodeSpec> + Send>;

/// The supervisor of all nodes.
pub(crate) struct Supervisor {
    plan: Plan,
    slots: Vec<Slot>,
    restart: bool,
    /// How one more node is started; none where none can be.
    more: Option<NodeFactory>,
    /// What each node may hold in memory; none: as it is configured otherwise.
    memory: Option<MemoryShares>,
    announcer: Announcer,
    /// Whose the folder's pairs were before the nodes were started.
    owners: Owners,
    /// Every node that was there at the start has served at some time.
    up: bool,
    service: SupervisorService,
}

impl Supervisor {
    /// A supervisor of these nodes; `restart` says whether one that dies is started again.
    pub(crate) fn new(plan: Plan, specs: Vec<NodeSpec>, restart: bool, announcer: Announcer) -> Supervisor {
        let now = Instant::now();
        let slots = specs.into_iter().map(|spec| Slot::new(spec, now)).collect();
        let (owners, service) = (Owners::default(), SupervisorService::new(now));
        Supervisor { plan, restart, more: None, memory: None, announcer, owners, up: false, service, slots }
    }

    /// The same over pairs that are there already.
    pub(crate) fn with_owners(self, owners: Owners) -> Supervisor {
        Supervisor { owners, ..self }
    }

    /// The same, and nodes can be added.
    pub(crate) fn with_more(self, more: NodeFactory) -> Supervisor {
        Supervisor { more: Some(more), ..self }
    }

    /// The same, and the nodes share memory, anew as they come and go.
    pub(crate) fn with_memory(self, memory: MemoryShares) -> Supervisor {
        let mut supervisor = Supervisor { memory: Some(memory), ..self };
        supervisor.share_memory();
        supervisor
    }

    /// How its cluster is reached, for hints.
    fn reached(&self) -> Reached {
        Reached::by_dir(self.plan.dir()).and_server(&self.plan.fabric(0).to_string())
    }

    fn nodes(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap_or(u16::MAX)
    }

    /// Runs until a signal, or until no node is left and none is to be started again.
    pub(crate) fn run(&mut self, events: &Receiver<Event>, sender: &Sender<Event>) -> anyhow::Result<Exit> {
        for misfit in self.owners.misfits(self.nodes(), self.plan.allows_drills()) {
            let next = self.reached().in_text(&misfit.next);
            self.announcer.misfit(&Misfit { next, ..misfit });
        }
        loop {
            self.start_due(sender)?;
            if let Some(failure) = self.nobody_left() {
                return Err(failure.into());
            }
            let now = Instant::now();
            self.service.turn(now);
            if self.is_settled() {
                self.service.ready();
            }
            let waits = self.slots.iter().filter_map(|slot| slot.wait(now)).chain(self.service.period());
            match events.recv_timeout(waits.min().unwrap_or(Duration::from_secs(3600))) {
                Ok(Event::Stop) => return self.stop(events),
                Ok(Event::CoordinatorFailed(why)) => return Err(self.coordinator_failed(&why).into()),
                Ok(event) => self.take(event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Exit::Ok),
            }
        }
    }

    fn start_due(&mut self, sender: &Sender<Event>) -> anyhow::Result<()> {
        let now = Instant::now();
        let due = self.slots.iter_mut().filter(|slot| slot.due().is_some_and(|at| at <= now));
        for slot in due {
            let Err(error) = slot.start(sender) else { continue };
            // What keeps one process from coming, too many of them say, is no reason to end those that run.
            if slot.lives == 1 && !slot.added {
                return Err(error);
            }
            let cause = format!("{error:#}");
            let id = self.plan.id(slot.spec.node);
            tracing::error!("node {id} cannot be started: {cause}");
            slot.not_started(cause.clone(), now);
            announce_next_start(&self.announcer, id, slot, Some(cause.as_str()), now);
        }
        Ok(())
    }

    /// The failure to end with, once every node is given up.
    fn nobody_left(&self) -> Option<Failure> {
        let given_up: Option<Vec<_>> =
            self.slots.iter().map(|slot| slot.given_up().map(|ended| (slot, ended))).collect();
        let (slot, (exit, text)) = given_up?.into_iter().max_by_key(|(_, (exit, _))| *exit as u8)?;
        let own = slot.last.as_ref().and_then(|last| last.next.as_ref());
        let own = own.map_or_else(String::new, |next| format!("{next}; "));
        let more = self.messages().map_or_else(
            || "its messages above say why".to_owned(),
            |folder| format!("its messages in {} say more", folder.display()),
        );
        let next = format!("{own}{more}; the data is kept, start again when it is mended");
        Some(Failure::new(exit, text).next(next))
    }

    /// Without a coordinator no node keeps its lease: they end with this process.
    fn coordinator_failed(&self, why: &str) -> Failure {
        let text = format!("the coordinator has stopped: {why}");
        self.announcer.say("coordinator_failed", "", &json!({"error": why}));
        let folder = self.plan.coordinator_dir();
        let next = format!(
            "look at the disk under {}; nothing acknowledged is lost, start again when it is mended",
            folder.display()
        );
        Failure::new(Exit::Error, text).next(next)
    }

    /// The folder of the nodes' messages, unless they have the supervisor's stderr.
    fn messages(&self) -> Option<&Path> {
        self.slots.iter().find_map(|slot| slot.spec.messages.as_deref()?.parent())
    }

    fn take(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Report { node, life, report } if self.is_current(node, life) => match report.is_last() {
                true => self.slots[usize::from(node)].last = Some(report),
                false => self.announce_report(node, &report),
            },
            Event::Ended { node, life } if self.is_current(node, life) => self.on_child_end(node)?,
            Event::Drill { request, answer } => {
                let _ = answer.send(self.carry_out(request)); // who asked may have gone
            }
            Event::Scale { step, answer } => {
                let _ = answer.send(self.scale(step)); // who asked may have gone
            }
            Event::Reload => {
                self.announcer.reloading(&SET_BY_SUPERVISOR);
                self.slots.iter_mut().for_each(Slot::reload);
                self.start_given_up();
            }
            Event::Report { .. } | Event::Ended { .. } => {} // of an earlier life
            Event::Stop | Event::CoordinatorFailed(_) => {}  // ends the run
        }
        Ok(())
    }

    fn is_current(&self, node: u16, life: u64) -> bool {
        let slot = self.slots.get(usize::from(node));
        slot.is_some_and(|slot| slot.lives == life && slot.child.is_some())
    }

    /// A process has ended.
    fn on_child_end(&mut self, node: u16) -> anyhow::Result<()> {
        let id = self.plan.id(node);
        let slot = &mut self.slots[usize::from(node)];
        let Some(child) = &mut slot.child else { return Ok(()) };
        let status = child.wait()?;
        if slot.leaving {
            slot.child = None;
            self.gone(node);
            return Ok(());
        }
        let last_error = child.last_error();
        let said = slot.last.as_ref().map(|last| last.detail.clone());
        let said = said.or_else(|| slot.who_killed(status).map(str::to_owned)).or(last_error);
        let died = self.announcer.died(id, status, said);
        let now = Instant::now();
        slot.ended(status, died, self.restart, now);
        announce_next_start(&self.announcer, id, slot, None, now);
        if slot.due().is_none() {
            let text = format!("node {id} is not started again; the others go on");
            let others = self.slots.iter().any(|slot| slot.given_up().is_none());
            self.announcer.say("given_up", if others { &text } else { "" }, &json!({"node": id}));
        }
        Ok(())
    }

    fn announce_report(&mut self, node: u16, report: &Report) {
        self.service.progress(Instant::now());
        let id = self.plan.id(node);
        let slot = &mut self.slots[usize::from(node)];
        let first = !slot.served;
        let serves = slot.on_report(report);
        let Some(child) = &slot.child else { return };
        let (pid, life, started) = (child.pid(), slot.lives, child.started);
        if serves {
            let details = json!({
                "node": id, "pid": pid, "life": life,
                "start_ms": u64::try_from(started.elapsed().as_millis()).ok().filter(|_| first),
                "server": self.plan.fabric(node).to_string(), "http": self.plan.http(node).to_string(),
                "coordinator": self.plan.coordinator(), "dir": self.plan.dir(),
            });
            let text = if self.up { format!("node {id} serves again") } else { String::new() };
            self.announcer.say("serving", &text, &details);
            self.note_up();
        }
        if report.state != "serving" {
            let text = format!("node {id} is {}", report.detail);
            self.announcer.report(&report.state, &text, &json!({"node": id, "detail": report.detail}));
        }
    }

    fn note_up(&mut self) {
        if !self.up && self.slots.iter().all(|slot| slot.has_served || slot.added) {
            self.up = true;
            let pid = |slot: &Slot| slot.child.as_ref().map_or(0, NodeChild::pid);
            let pids: Vec<u32> = self.slots.iter().map(pid).collect();
            let tried = self.owners.last(self.nodes());
            self.announcer.up(&self.plan, &pids, tried, self.messages());
        }
    }

    /// Whether the service manager need not wait any longer: a node has served, and all others have or will
    /// not soon. If it waited for those, it would end the nodes that serve once the time to start is over.
    fn is_settled(&self) -> bool {
        self.slots.iter().any(|slot| slot.has_served) && self.slots.iter().all(Slot::is_settled)
    }

    /// Asks every node for a last checkpoint and waits for all of them.
    fn stop(&mut self, events: &Receiver<Event>) -> anyhow::Result<Exit> {
        let text = "stopping: last checkpoint (a second signal ends at once)";
        self.announcer.say("stopping", text, &json!({}));
        for slot in &mut self.slots {
            slot.partition(None);
            slot.slow_disk(0);
            slot.ask_to_stop();
        }
        let mut failed = None;
        let look_every = self.service.period().map_or(EXTEND_EVERY, |period| period.min(EXTEND_EVERY));
        while self.slots.iter().any(|slot| slot.child.is_some()) {
            let now = Instant::now();
            self.service.turn(now);
            // How long last checkpoints may take is the operator's to say.
            self.service.stopping(now);
            let event = match events.recv_timeout(look_every) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let Event::Ended { node, life } = event else { continue };
            if !self.is_current(node, life) {
                continue;
            }
            let slot = &mut self.slots[usize::from(node)];
            let status = slot.child.as_mut().map(NodeChild::wait).transpose()?;
            slot.child = None;
            let status = status.filter(|status| !status.success());
            failed = failed.or(status.map(|status| (node, status)));
        }
        let Some((node, status)) = failed else {
            self.announcer.say("stopped", "stopped; the data stays", &json!({}));
            return Ok(Exit::Ok);
        };
        let (id, how) = (self.plan.id(node), in_words(status));
        let what = format!("node {id} did not stop in order: {how}");
        Err(Failure::new(Exit::Error, what)
            .next("nothing acknowledged is lost: the next start recovers")
            .into())
    }
}

/// Announces when the next process of a node is started, if one follows, and why it is held back, if it is.
/// `not_started` is why the last one could not be, unless it was and has ended.
fn announce_next_start(
    announcer: &Announcer,
    node: u32,
    slot: &Slot,
    not_started: Option<&str>,
    now: Instant,
) {
    let Some(wait) = slot.wait(now) else { return };
    if let Some(repeated) = slot.repeated() {
        announcer.held_back(node, repeated);
    }
    announcer.restarting(node, wait, not_started);
}

#[cfg(test)]
mod tests;
