//! Keeps nodes running until a signal: starts them, says what happens to them, starts each again when it
//! dies, each by its own, and does to them what a drill asks for.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use cell_cluster::boottime_ns;
use cell_drill::DELAY_MS;
use cell_drill::wire::{DrillAnswer, DrillRequest, NodeView, Refused, Status};
use serde_json::json;

use super::announce::Announcer;
use super::backoff::Repeated;
use super::child::NodeSpec;
use super::event::Event;
use super::link::Report;
use super::owners::Owners;
use super::plan::Plan;
use super::scale_wire::{NODES_MAX, ScaleDone, ScaleNode, ScaleStep, refuse};
use super::slot::Slot;
use crate::exit::{Exit, Failure};
use crate::service;

/// Makes how a node of this number is started.
pub(crate) type NodeFactory = Box<dyn Fn(u16) -> anyhow::Result<NodeSpec> + Send>;

/// The supervisor of all nodes.
pub(crate) struct Supervisor {
    plan: Plan,
    slots: Vec<Slot>,
    restart: bool,
    /// How one more node is started; none where none can be.
    more: Option<NodeFactory>,
    announcer: Announcer,
    /// Whose the folder's pairs were before the nodes were started.
    owners: Owners,
    /// Every node has served at some time.
    up: bool,
    /// Nodes that have.
    seen_up: Vec<bool>,
}

impl Supervisor {
    /// A supervisor of these nodes; `restart` says whether one that dies is started again.
    pub(crate) fn new(plan: Plan, specs: Vec<NodeSpec>, restart: bool, announcer: Announcer) -> Supervisor {
        let now = Instant::now();
        let slots: Vec<_> = specs.into_iter().map(|spec| Slot::new(spec, now)).collect();
        let (owners, seen_up) = (Owners::default(), vec![false; slots.len()]);
        Supervisor { plan, restart, more: None, announcer, owners, up: false, seen_up, slots }
    }

    /// The same over pairs that are there already.
    pub(crate) fn with_owners(self, owners: Owners) -> Supervisor {
        Supervisor { owners, ..self }
    }

    /// The same, and nodes can be added.
    pub(crate) fn with_more(self, more: NodeFactory) -> Supervisor {
        Supervisor { more: Some(more), ..self }
    }

    fn nodes(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap_or(u16::MAX)
    }

    /// Runs until a signal, or until no node is left and none is to be started again.
    pub(crate) fn run(&mut self, events: &Receiver<Event>, sender: &Sender<Event>) -> anyhow::Result<Exit> {
        for misfit in self.owners.misfits(self.nodes(), self.plan.allows_drills()) {
            self.announcer.misfit(&misfit);
        }
        loop {
            self.start_due(sender)?;
            if let Some(failure) = self.nobody_left() {
                return Err(failure.into());
            }
            let now = Instant::now();
            let wait = self.slots.iter().filter_map(|slot| slot.wait(now)).min();
            match events.recv_timeout(wait.unwrap_or(Duration::from_secs(3600))) {
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
            slot.start(sender)?;
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
            Event::Reload => self.slots.iter().for_each(|slot| {
                slot.reload();
            }),
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
        let said = slot.last.as_ref().map(|last| last.detail.clone());
        let died = self.announcer.died(id, status, said.or_else(|| child.last_error()));
        let now = Instant::now();
        slot.ended(status, died, self.restart, now);
        if let Some(repeated) = slot.repeated().filter(|_| slot.due().is_some()) {
            self.announcer.held_back(id, repeated);
        }
        match slot.wait(now) {
            Some(wait) => {
                let when =
                    if wait.is_zero() { "now".to_owned() } else { format!("in {} ms", wait.as_millis()) };
                let details = json!({"node": id, "wait_ms": u64::try_from(wait.as_millis()).ok()});
                self.announcer.say("restarting", &format!("starting node {id} again {when}"), &details);
            }
            None => {
                let text = format!("node {id} is not started again; the others go on");
                let others = self.slots.iter().any(|slot| slot.given_up().is_none());
                self.announcer.say("given_up", if others { &text } else { "" }, &json!({"node": id}));
            }
        }
        Ok(())
    }

    fn announce_report(&mut self, node: u16, report: &Report) {
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
            self.note_up(node);
        } else if report.state != "serving" {
            let text = format!("node {id} is {}", report.detail);
            self.announcer.report(&report.state, &text, &json!({"node": id, "detail": report.detail}));
        }
    }

    fn note_up(&mut self, node: u16) {
        self.seen_up[usize::from(node)] = true;
        if !self.up && self.seen_up.iter().all(|seen| *seen) {
            self.up = true;
            service::all_ready();
            let pid = |slot: &Slot| slot.child.as_ref().map_or(0, super::child::NodeChild::pid);
            let pids: Vec<u32> = self.slots.iter().map(pid).collect();
            let tried = self.owners.last(self.nodes());
            self.announcer.up(&self.plan, &pids, tried, self.messages());
        }
    }

    /// Adds a node, takes the last one away, or says who is there.
    fn scale(&mut self, step: ScaleStep) -> ScaleDone {
        match step {
            ScaleStep::Look => {}
            ScaleStep::Add => self.add()?,
            ScaleStep::Retire(node) => self.retire(node)?,
        }
        let view = |slot: &Slot| ScaleNode {
            node: slot.spec.node,
            state: slot.state().to_owned(),
            server: self.plan.fabric(slot.spec.node).to_string(),
            http: self.plan.http(slot.spec.node).to_string(),
            pairs: 0,
            draining: false,
            stall: None,
        };
        Ok(self.slots.iter().map(view).collect())
    }

    fn add(&mut self) -> Result<(), Refused> {
        let node = self.nodes();
        if let Some(leaving) = self.slots.last().filter(|slot| slot.leaving) {
            let what = format!("node {} is being stopped", leaving.spec.node);
            return Err(refuse(what, "wait until it has ended"));
        }
        if node >= NODES_MAX {
            return Err(refuse(
                format!("a cluster here has at most {NODES_MAX} nodes"),
                "use several machines",
            ));
        }
        let Some(more) = &self.more else {
            return Err(refuse("this supervisor adds no nodes".to_owned(), "start the cluster with more"));
        };
        let spec = more(node).map_err(|error| refuse(format!("{error:#}"), "mend that, then try again"))?;
        self.slots.push(Slot::new(spec, Instant::now()));
        self.seen_up.push(true); // the others do not wait for it
        let (server, http) = (self.plan.fabric(node).to_string(), self.plan.http(node).to_string());
        let text = format!("node {node} is added: {server}");
        self.announcer.say("added", &text, &json!({"node": node, "server": server, "http": http}));
        Ok(())
    }

    /// Stops the last node for good. That it has no pairs is for who asks to know.
    fn retire(&mut self, node: u16) -> Result<(), Refused> {
        if self.nodes() == 1 || node + 1 != self.nodes() {
            let what = format!("node {node} is not the last of several: nodes leave from the last one on");
            return Err(refuse(what, "`cell dev scale N` takes them away in their order"));
        }
        let slot = &mut self.slots[usize::from(node)];
        slot.leaving = true;
        if !slot.ask_to_stop() {
            self.gone(node);
        }
        Ok(())
    }

    /// A node that left has no process any more.
    fn gone(&mut self, node: u16) {
        self.slots.truncate(usize::from(node));
        self.seen_up.truncate(usize::from(node));
        self.announcer.say("removed", &format!("node {node} has left"), &json!({"node": node}));
    }

    /// Does what a drill asks for.
    fn carry_out(&mut self, request: DrillRequest) -> DrillAnswer {
        let count = self.slots.len();
        if let DrillRequest::SlowDisk { delay_ms: delay_ms @ 1.., .. } = request
            && !DELAY_MS.contains(&delay_ms)
        {
            return refuse_delay(delay_ms);
        }
        let slot = request.node().map(|node| (node, self.slots.get_mut(usize::from(node))));
        let done = match (request, slot) {
            (DrillRequest::Status, _) => return self.status(),
            (_, None) => false,
            (_, Some((node, None))) => return refuse_unknown(node, count),
            // The rest is a row of the coordinator, which who hands this on writes.
            (DrillRequest::Drain { .. }, Some(_)) => true,
            (DrillRequest::Kill { down_ms, .. }, Some((_, Some(slot)))) => {
                slot.kill(Duration::from_millis(down_ms))
            }
            (DrillRequest::Stop { .. }, Some((_, Some(slot)))) => slot.pause(),
            (DrillRequest::Cont { .. }, Some((_, Some(slot)))) => slot.cont(),
            (DrillRequest::Restart { .. }, Some((_, Some(slot)))) => slot.restart(Instant::now()),
            // What is not there now is cut off when it comes.
            (DrillRequest::Partition { on, way, .. }, Some((_, Some(slot)))) => {
                slot.partition(on.then_some(way)) || !on || slot.due().is_some()
            }
            (DrillRequest::SlowDisk { delay_ms, .. }, Some((_, Some(slot)))) => {
                slot.slow_disk(delay_ms) || delay_ms == 0 || slot.due().is_some()
            }
        };
        let at_ns = boottime_ns();
        let node = request.node();
        if !done {
            let node = node.map_or(String::new(), |node| format!("node {node}"));
            let refused = Refused {
                what: format!("{node} has no process to {}", request.word()),
                next: "wait until it is started again: `cell drill ls` shows it".into(),
            };
            return DrillAnswer { at_ns, refused: Some(refused), status: None };
        }
        let text = node.map_or(String::new(), |node| format!("drill: {} node {node}", request.word()));
        self.announcer.say("drill", &text, &json!({"do": request.word(), "node": node}));
        DrillAnswer { at_ns, ..DrillAnswer::default() }
    }

    /// The processes; the rest is added by who hands the answer on.
    fn status(&self) -> DrillAnswer {
        let view = |slot: &Slot| NodeView {
            node: slot.spec.node,
            pid: slot.child.as_ref().map(super::child::NodeChild::pid),
            state: slot.state().to_owned(),
            lives: slot.lives,
            partitioned: slot.faults.partition.is_some(),
            partition: slot.faults.partition,
            disk_delay_ms: slot.faults.disk_delay_ms,
            why: slot.repeated().map(Repeated::words),
            drained_by: None,
            drain_stall: None,
            server: self.plan.fabric(slot.spec.node),
            http: self.plan.http(slot.spec.node),
        };
        let status = Status { nodes: self.slots.iter().map(view).collect(), ..Status::default() };
        DrillAnswer { at_ns: boottime_ns(), refused: None, status: Some(status) }
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
        while self.slots.iter().any(|slot| slot.child.is_some()) {
            let Ok(event) = events.recv() else { break };
            let Event::Ended { node, life } = event else { continue };
            if !self.is_current(node, life) {
                continue;
            }
            let slot = &mut self.slots[usize::from(node)];
            let status = slot.child.as_mut().map(super::child::NodeChild::wait).transpose()?;
            slot.child = None;
            let status = status.filter(|status| !status.success());
            failed = failed.or(status.map(|status| (node, status)));
        }
        let Some((node, status)) = failed else {
            self.announcer.say("stopped", "stopped; the data stays", &json!({}));
            return Ok(Exit::Ok);
        };
        let (id, how) = (self.plan.id(node), super::child::in_words(status));
        let what = format!("node {id} did not stop in order: {how}");
        Err(Failure::new(Exit::Error, what)
            .next("nothing acknowledged is lost: the next start recovers")
            .into())
    }
}

fn refuse_unknown(node: u16, count: usize) -> DrillAnswer {
    let refused = Refused {
        what: format!("there is no node {node}: the cluster has {count}, counted from 0"),
        next: "`cell drill ls` lists them".into(),
    };
    DrillAnswer { at_ns: boottime_ns(), refused: Some(refused), status: None }
}

fn refuse_delay(delay_ms: u64) -> DrillAnswer {
    let (least, most) = (DELAY_MS.start(), DELAY_MS.end());
    let refused = Refused {
        what: format!("a disk cannot be slower by {delay_ms} ms: from {least} ms to {most} ms"),
        next: "give a delay within these bounds, or 0 to end it".into(),
    };
    DrillAnswer { at_ns: boottime_ns(), refused: Some(refused), status: None }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc::channel;
    use std::thread::JoinHandle;

    use cell_drill::wire::PartitionWay;
    use tempfile::TempDir;

    use super::*;

    /// A node that serves at once and stops when asked, and says what it was started with or sent.
    const NODE: &str = "#!/bin/sh
echo '{\"state\":\"serving\",\"detail\":\"serving\"}'
case \"$*\" in *--*) echo '{\"state\":\"'$*'\",\"detail\":\"started so\"}';; esac
while read line; do
    case $line in stop) exit 0;; *) echo '{\"state\":\"'$line'\",\"detail\":\"sent\"}';; esac
done
exit 1
";

    struct Cluster {
        folder: TempDir,
        events: Sender<Event>,
        run: Option<JoinHandle<anyhow::Result<Exit>>>,
    }

    impl Cluster {
        fn start(nodes: u16, restart: bool) -> Cluster {
            Cluster::start_with(NODE, nodes, restart)
        }

        fn start_with(script: &str, nodes: u16, restart: bool) -> Cluster {
            crate::output::message::set_up(crate::output::message::Color::Never, true);
            let folder = tempfile::tempdir().unwrap();
            let binary: PathBuf = folder.path().join("node");
            // Written by another process, or a fork of a test beside this one has it open for writing when it
            // is to be run.
            let made = "cat > \"$1\" && chmod +x \"$1\"";
            let mut shell = std::process::Command::new("sh")
                .args(["-c", made, "sh"])
                .arg(&binary)
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes()).unwrap();
            assert!(shell.wait().unwrap().success());
            let spec = |node| NodeSpec { node, binary: binary.clone(), arguments: vec![], messages: None };
            let plan = Plan::new(folder.path().to_owned(), 7000);
            let announcer = Announcer { json: false };
            let mut supervisor = Supervisor::new(plan, (0..nodes).map(spec).collect(), restart, announcer);
            let (events, receiver) = channel();
            let sender = events.clone();
            let run = std::thread::spawn(move || supervisor.run(&receiver, &sender));
            Cluster { folder, events, run: Some(run) }
        }

        fn ask(&self, request: DrillRequest) -> DrillAnswer {
            let (answer, answers) = channel();
            self.events.send(Event::Drill { request, answer }).unwrap();
            answers.recv().unwrap()
        }

        fn nodes(&self) -> Vec<NodeView> {
            self.ask(DrillRequest::Status).status.unwrap().nodes
        }

        /// Waits until the nodes are as wanted.
        fn until(&self, wanted: impl Fn(&[NodeView]) -> bool) -> Vec<NodeView> {
            let deadline = Instant::now() + Duration::from_secs(30);
            loop {
                let nodes = self.nodes();
                if wanted(&nodes) {
                    return nodes;
                }
                assert!(Instant::now() < deadline, "{nodes:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }

        fn serving(&self) -> Vec<NodeView> {
            self.until(|nodes| nodes.iter().all(|node| node.state == "serving"))
        }

        fn end(&mut self) -> anyhow::Result<Exit> {
            self.run.take().unwrap().join().unwrap()
        }
    }

    #[test]
    fn run_a_killed_node_is_started_again_and_the_others_stay() {
        let mut cluster = Cluster::start(3, true);
        let before = cluster.serving();
        assert_eq!(cluster.ask(DrillRequest::Kill { node: 1, down_ms: 0 }).refused, None);
        let after = cluster.until(|nodes| nodes[1].lives == 2 && nodes[1].state == "serving");
        assert_ne!(before[1].pid, after[1].pid);
        assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
        cluster.events.send(Event::Stop).unwrap();
        assert_eq!(cluster.end().unwrap(), Exit::Ok);
    }

    #[test]
    fn run_a_node_killed_for_a_time_stays_down_so_long() {
        let cluster = Cluster::start(2, true);
        cluster.serving();
        let killed = Instant::now();
        cluster.ask(DrillRequest::Kill { node: 0, down_ms: 300 });
        cluster.until(|nodes| nodes[0].state == "down");
        assert!(
            cluster.ask(DrillRequest::Stop { node: 0 }).refused.unwrap().what.contains("no process to stop")
        );
        cluster.until(|nodes| nodes[0].lives == 2);
        assert!(killed.elapsed() >= Duration::from_millis(300));
    }

    #[test]
    fn restart_of_a_node_that_is_down_or_given_up_starts_it_at_once() {
        for (restarts, down_ms, state) in [(true, 3_600_000, "down"), (false, 0, "given up")] {
            let cluster = Cluster::start(2, restarts);
            cluster.serving();
            cluster.ask(DrillRequest::Kill { node: 0, down_ms });
            cluster.until(|nodes| nodes[0].state == state);
            assert_eq!(cluster.ask(DrillRequest::Restart { node: 0 }).refused, None);
            cluster.until(|nodes| nodes[0].lives == 2 && nodes[0].state == "serving");
        }
    }

    #[test]
    fn run_without_restarts_goes_on_until_the_last_node_died() {
        let mut cluster = Cluster::start(2, false);
        cluster.serving();
        cluster.ask(DrillRequest::Kill { node: 0, down_ms: 0 });
        let nodes = cluster.until(|nodes| nodes[0].state == "given up");
        assert_eq!((nodes[1].lives, nodes[1].state.as_str()), (1, "serving"));
        cluster.ask(DrillRequest::Kill { node: 1, down_ms: 0 });
        let failure = cluster.end().unwrap_err().downcast::<Failure>().unwrap();
        assert_eq!(failure.exit, Exit::Error);
        assert!(failure.what.contains("killed by signal 9"), "{failure}");
    }

    #[test]
    fn run_ends_with_the_reason_when_the_coordinator_has_stopped() {
        let mut cluster = Cluster::start(2, true);
        cluster.serving();
        cluster.events.send(Event::CoordinatorFailed("the disk has failed".to_owned())).unwrap();
        let failure = cluster.end().unwrap_err().downcast::<Failure>().unwrap();
        assert_eq!(failure.exit, Exit::Error);
        assert!(failure.what.contains("the disk has failed"), "{failure}");
    }

    /// Where the disk is full its messages have no place but this.
    #[test]
    fn run_ends_with_the_last_words_of_a_node_and_what_they_advise() {
        let script =
            "#!/bin/sh\necho '{\"state\":\"ended\",\"detail\":\"no luck\",\"next\":\"be lucky\"}'\nexit 2\n";
        let mut cluster = Cluster::start_with(script, 1, true);
        let failure = cluster.end().unwrap_err().downcast::<Failure>().unwrap();
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(failure.what, "node 0 died: exit code 2: no luck");
        assert!(failure.next.unwrap().starts_with("be lucky; "));
    }

    #[test]
    fn run_nodes_that_fail_for_good_are_not_started_again() {
        let mut cluster = Cluster::start_with("#!/bin/sh\nexit 7\n", 2, true);
        let failure = cluster.end().unwrap_err().downcast::<Failure>().unwrap();
        assert_eq!(failure.exit, Exit::VerificationFailed);
    }

    #[test]
    fn run_a_node_that_ends_the_same_way_again_and_again_is_held_back_and_started_with_the_reason() {
        let ends = "#!/bin/sh\necho '{\"state\":\"'$*'\",\"detail\":\"\"}'\nsleep 0.2\nexit 1\n";
        let mut cluster = Cluster::start_with(ends, 1, true);
        let held = cluster.until(|nodes| nodes[0].lives >= 3 && nodes[0].why.is_some());
        let why = held[0].why.clone().unwrap();
        assert!(why.starts_with("ended ") && why.ends_with(": exit code 1"), "{why}");
        let nodes = cluster.until(|nodes| nodes[0].state.contains("--restarted-because=ended 3 times"));
        assert_eq!(nodes[0].lives, 4);
        cluster.until(|nodes| nodes[0].state == "down");
        assert_eq!(cluster.ask(DrillRequest::Restart { node: 0 }).refused, None, "at once");
        cluster.until(|nodes| nodes[0].lives == 5);
        cluster.events.send(Event::Stop).unwrap();
        let _ = cluster.end(); // it ends, in order or not
    }

    #[test]
    fn drill_stop_and_partition_last_until_they_are_ended() {
        let mut cluster = Cluster::start(1, true);
        let pid = cluster.serving()[0].pid;
        cluster.ask(DrillRequest::Stop { node: 0 });
        assert_eq!(cluster.nodes()[0].state, "stopped");
        cluster.ask(DrillRequest::Cont { node: 0 });
        cluster.ask(DrillRequest::Partition { node: 0, on: true, way: PartitionWay::Both });
        cluster.until(|nodes| nodes[0].state == "partition both" && nodes[0].partitioned);
        // Who comes after it is cut off from its start.
        cluster.ask(DrillRequest::Kill { node: 0, down_ms: 0 });
        let nodes = cluster.until(|nodes| nodes[0].state == "node --partitioned=both");
        assert!(nodes[0].partitioned && nodes[0].pid != pid);
        cluster.ask(DrillRequest::Partition { node: 0, on: false, way: PartitionWay::Both });
        cluster.ask(DrillRequest::Restart { node: 0 });
        cluster.until(|nodes| nodes[0].lives == 3 && nodes[0].state == "serving" && !nodes[0].partitioned);
        cluster.ask(DrillRequest::Stop { node: 0 });
        cluster.events.send(Event::Stop).unwrap();
        assert_eq!(cluster.end().unwrap(), Exit::Ok, "a node that stands still is let go first");
        drop(cluster.folder);
    }

    #[test]
    fn drill_one_way_and_slow_disk_are_sent_to_the_process_and_to_the_next_one() {
        let cluster = Cluster::start(1, true);
        cluster.serving();
        for way in [PartitionWay::In, PartitionWay::Out] {
            cluster.ask(DrillRequest::Partition { node: 0, on: true, way });
            let line = format!("partition {}", way.word());
            let nodes = cluster.until(|nodes| nodes[0].state == line);
            assert_eq!((nodes[0].partitioned, nodes[0].partition), (true, Some(way)));
        }
        cluster.ask(DrillRequest::SlowDisk { node: 0, delay_ms: 70 });
        let nodes = cluster.until(|nodes| nodes[0].state == "slow disk 70 ms");
        assert_eq!(nodes[0].disk_delay_ms, 70);
        cluster.ask(DrillRequest::Kill { node: 0, down_ms: 0 });
        cluster.until(|nodes| nodes[0].state == "node --partitioned=out --slow-disk-ms=70");
        cluster.ask(DrillRequest::Partition { node: 0, on: false, way: PartitionWay::Both });
        cluster.until(|nodes| nodes[0].state == "partition off");
        cluster.ask(DrillRequest::SlowDisk { node: 0, delay_ms: 0 });
        let nodes = cluster.until(|nodes| nodes[0].state == "slow disk off");
        assert_eq!((nodes[0].partition, nodes[0].disk_delay_ms), (None, 0));
        let refused = cluster.ask(DrillRequest::SlowDisk { node: 0, delay_ms: 2_001 }).refused.unwrap();
        assert!(refused.what.contains("2001 ms: from 1 ms to 2000 ms"), "{refused:?}");
        assert_eq!(cluster.nodes()[0].disk_delay_ms, 0);
    }

    #[test]
    fn drill_of_a_node_that_is_not_there_is_refused_with_their_number() {
        let cluster = Cluster::start(2, true);
        let refused = cluster.ask(DrillRequest::Kill { node: 2, down_ms: 0 }).refused.unwrap();
        assert!(refused.what.contains("no node 2: the cluster has 2"), "{refused:?}");
    }
}
