//! A supervisor over scripts in place of nodes.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use cell_drill::wire::{DrillAnswer, DrillRequest, NodeView, PartitionWay};
use tempfile::TempDir;

use super::*;
use crate::dev::scale_wire::{ScaleDone, ScaleStep};

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
        Cluster::launch(script, nodes, restart, None)
    }

    fn launch(script: &str, nodes: u16, restart: bool, memory: Option<MemoryShares>) -> Cluster {
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
        let spec =
            move |node: u16| NodeSpec { node, binary: binary.clone(), arguments: vec![], messages: None };
        let plan = Plan::new(folder.path().to_owned(), 7000);
        let announcer = Announcer { json: false };
        let supervisor = Supervisor::new(plan, (0..nodes).map(&spec).collect(), restart, announcer);
        let mut supervisor = supervisor.with_more(Box::new(move |node| Ok(spec(node))));
        if let Some(memory) = memory {
            supervisor = supervisor.with_memory(memory);
        }
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

    fn scale(&self, step: ScaleStep) -> ScaleDone {
        let (answer, answers) = channel();
        self.events.send(Event::Scale { step, answer }).unwrap();
        answers.recv().unwrap()
    }

    /// The numbers of the nodes that there are, and how each is.
    fn places(&self) -> Vec<(u16, String)> {
        let nodes = self.scale(ScaleStep::Look).unwrap();
        nodes.into_iter().map(|of| (of.node, of.state)).collect()
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

    /// Where its nodes' binary is, and where it can be put aside, so that none can be started.
    fn binary(&self) -> (PathBuf, PathBuf) {
        (self.folder.path().join("node"), self.folder.path().join("aside"))
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
    assert!(cluster.ask(DrillRequest::Stop { node: 0 }).refused.unwrap().what.contains("no process to stop"));
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

/// What the kernel ends for want of memory is ended so again and again.
#[test]
fn run_a_node_that_is_killed_from_outside_again_and_again_is_held_back_and_not_one_that_a_drill_kills() {
    let cluster = Cluster::start_with("#!/bin/sh\nkill -9 $$\n", 1, true);
    let held = cluster.until(|nodes| nodes[0].why.is_some());
    let why = held[0].why.clone().unwrap();
    assert!(why.starts_with("ended ") && why.contains(": killed by signal 9: "), "{why}");
    assert!(why.contains("for want of memory"), "{why}");
    let drilled = Cluster::start(1, true);
    for life in 1..=4 {
        drilled.until(|nodes| nodes[0].lives == life && nodes[0].state == "serving");
        assert_eq!(drilled.ask(DrillRequest::Kill { node: 0, down_ms: 0 }).refused, None);
    }
    let nodes = drilled.until(|nodes| nodes[0].lives == 5 && nodes[0].state == "serving");
    assert_eq!(nodes[0].why, None);
}

/// Too many processes for one more were once the end of all of them.
#[test]
fn run_a_node_that_cannot_be_started_again_is_tried_again_and_the_others_stay() {
    let mut cluster = Cluster::start(2, true);
    let before = cluster.serving();
    let (binary, aside) = cluster.binary();
    std::fs::rename(&binary, &aside).unwrap();
    cluster.ask(DrillRequest::Kill { node: 1, down_ms: 0 });
    let nodes = cluster.until(|nodes| nodes[1].lives >= 3);
    assert_eq!((nodes[1].pid, &nodes[0]), (None, &before[0]));
    std::fs::rename(&aside, &binary).unwrap();
    cluster.until(|nodes| nodes[1].state == "serving");
    cluster.events.send(Event::Stop).unwrap();
    assert_eq!(cluster.end().unwrap(), Exit::Ok);
}

/// The first start of a node that was added ended all others, if it failed.
#[test]
fn run_a_node_that_is_added_and_cannot_be_started_is_tried_again_and_the_others_stay() {
    let mut cluster = Cluster::start(2, true);
    let before = cluster.serving();
    let (binary, aside) = cluster.binary();
    std::fs::rename(&binary, &aside).unwrap();
    assert_eq!(cluster.scale(ScaleStep::Start(2)).unwrap().len(), 3);
    let nodes = cluster.until(|nodes| nodes[2].lives >= 2);
    assert_eq!((nodes[2].pid, &nodes[..2]), (None, &before[..]));
    std::fs::rename(&aside, &binary).unwrap();
    cluster.until(|nodes| nodes[2].state == "serving");
    cluster.events.send(Event::Stop).unwrap();
    assert_eq!(cluster.end().unwrap(), Exit::Ok);
}

/// A node that was removed left its place for ever, and no number of nodes was reached any more.
#[test]
fn retire_takes_any_node_away_and_start_gives_a_free_number_a_place() {
    let mut cluster = Cluster::start(3, true);
    cluster.serving();
    cluster.scale(ScaleStep::Retire(1)).unwrap();
    cluster.until(|nodes| nodes.len() == 2);
    let of = |number: u16| (number, "serving".to_owned());
    assert_eq!(cluster.places(), [of(0), of(2)]);
    let gone = cluster.ask(DrillRequest::Restart { node: 1 }).refused.unwrap();
    assert!(gone.what.contains("no node 1"), "{gone:?}");
    let next = cluster.scale(ScaleStep::Start(4)).unwrap_err();
    assert!(next.what.contains("that is node 3"), "{next:?}");
    cluster.scale(ScaleStep::Start(1)).unwrap();
    let nodes = cluster.until(|nodes| nodes.len() == 3 && nodes[1].state == "serving");
    assert_eq!((nodes[1].node, nodes[1].lives), (1, 2));
    // The last places go, with those before them that are free.
    cluster.scale(ScaleStep::Retire(1)).unwrap();
    cluster.scale(ScaleStep::Retire(2)).unwrap();
    cluster.until(|nodes| nodes.len() == 1);
    let only = cluster.scale(ScaleStep::Retire(0)).unwrap_err();
    assert!(only.what.contains("node 0 is the only one"), "{only:?}");
    cluster.scale(ScaleStep::Start(1)).unwrap();
    cluster.until(|nodes| nodes.len() == 2 && nodes[1].state == "serving");
    cluster.events.send(Event::Stop).unwrap();
    assert_eq!(cluster.end().unwrap(), Exit::Ok);
}

/// Nothing but a new start of the supervisor, and of all its nodes, started it again.
#[test]
fn node_that_was_given_up_is_started_again_by_a_scale_and_at_a_sighup() {
    // Of the first processes one serves; the other one, and those after it, find something wrong until that
    // is mended.
    let script = NODE.replace(
        "#!/bin/sh\n",
        "#!/bin/sh\ntrap '' HUP\nmkdir \"$0.first\" 2>/dev/null || [ -e \"$0.mended\" ] || exit 2\n",
    );
    let mut cluster = Cluster::start_with(&script, 2, true);
    let is_given_up = |nodes: &[NodeView]| nodes.iter().filter(|node| node.state == "given up").count() == 1;
    let nodes = cluster.until(|nodes| is_given_up(nodes) && nodes.iter().any(|node| node.state == "serving"));
    let given_up = nodes.iter().find(|node| node.state == "given up").unwrap().node;
    let lives = |nodes: &[NodeView]| nodes[usize::from(given_up)].lives;
    cluster.scale(ScaleStep::Start(given_up)).unwrap();
    cluster.until(|nodes| lives(nodes) == 2 && is_given_up(nodes));
    std::fs::write(cluster.folder.path().join("node.mended"), "").unwrap();
    cluster.events.send(Event::Reload).unwrap();
    cluster.until(|nodes| lives(nodes) == 3 && nodes.iter().all(|node| node.state == "serving"));
    cluster.scale(ScaleStep::Start(given_up)).unwrap();
    assert_eq!(lives(&cluster.nodes()), 3, "it runs");
    cluster.events.send(Event::Stop).unwrap();
    assert_eq!(cluster.end().unwrap(), Exit::Ok);
}

/// Each kept what it had had at first, and together they had more than the machine.
#[test]
fn memory_is_shared_anew_as_nodes_come_and_go_and_with_those_that_are_started_again() {
    let memory = MemoryShares::new(0, Some(16 << 30), 1);
    let of = |nodes: u16| memory.each(nodes).unwrap();
    let (begins, resized) = (
        |share: u64| format!("node --memory-share={share}"),
        |share: u64| format!("memory limit {share} bytes"),
    );
    let mut cluster = Cluster::launch(NODE, 2, true, Some(memory));
    cluster.until(|nodes| nodes.iter().all(|node| node.state == begins(of(2))));
    cluster.scale(ScaleStep::Start(2)).unwrap();
    cluster.until(|nodes| {
        let (before, last) = nodes.split_at(2);
        before.iter().all(|node| node.state == resized(of(3))) && last[0].state == begins(of(3))
    });
    cluster.scale(ScaleStep::Retire(2)).unwrap();
    cluster.until(|nodes| nodes.len() == 2 && nodes.iter().all(|node| node.state == resized(of(2))));
    cluster.ask(DrillRequest::Kill { node: 0, down_ms: 0 });
    cluster.until(|nodes| nodes[0].lives == 2 && nodes[0].state == begins(of(2)));
    let shares: Vec<_> = cluster.scale(ScaleStep::Look).unwrap();
    assert!(shares.iter().all(|node| node.memory_limit_bytes == Some(of(2))), "{shares:?}");
    cluster.events.send(Event::Stop).unwrap();
    assert_eq!(cluster.end().unwrap(), Exit::Ok);
}

#[test]
fn run_ends_if_a_node_cannot_be_started_at_first() {
    let spec = NodeSpec { node: 0, binary: "/nowhere/node".into(), arguments: vec![], messages: None };
    let plan = Plan::new("d".into(), 7000);
    let mut supervisor = Supervisor::new(plan, vec![spec], true, Announcer { json: false });
    let (sender, events) = channel();
    let error = supervisor.run(&events, &sender).unwrap_err();
    assert!(error.to_string().contains("cannot start /nowhere/node"), "{error:#}");
}

/// Under systemd a node that could not be started was the end of those that served.
#[test]
fn is_settled_once_a_node_has_served_and_the_others_will_not_soon() {
    let spec = |node| NodeSpec { node, binary: "node".into(), arguments: vec![], messages: None };
    let plan = Plan::new("d".into(), 7000);
    let announcer = Announcer { json: false };
    let mut supervisor = Supervisor::new(plan, vec![spec(0), spec(1)], true, announcer);
    let now = Instant::now();
    (0..3).for_each(|_| supervisor.slots[1].not_started("no process is to be had".to_owned(), now));
    assert!(!supervisor.is_settled(), "nobody serves");
    let serving = Report { state: "serving".to_owned(), detail: "serving".to_owned(), next: None };
    supervisor.slots[0].on_report(&serving);
    assert!(supervisor.is_settled());
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
