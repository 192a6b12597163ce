//! Several processes of one machine: `cell node --processes N`, and machines beside each other.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::harness::{FLAGS, ServiceManager, command};
use cell_tests::lease::LONG_LEASE;
use cell_tests::ports::Ports;
use cell_tests::process::{by_number, children, signal, stop, wait_ended};
use cell_tests::wait;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Keys of which each process has some.
const KEYS: [&str; 12] = ["0", "5", "9", "C", "H", "N", "T", "Z", "c", "j", "q", "x"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A supervisor that announces events, and its nodes.
struct Machine {
    supervisor: Child,
    events: Receiver<Value>,
    /// Where its first node is.
    ip: &'static str,
    port: u16,
}

impl Machine {
    /// Starts so many processes over the data in a folder, and waits for nothing.
    fn launch((ip, port): (&'static str, u16), data: &Path, processes: &str, more: &[&str]) -> Machine {
        Machine::launch_with((ip, port), data, processes, more, &[])
    }

    fn launch_with(
        (ip, port): (&'static str, u16),
        data: &Path,
        processes: &str,
        more: &[&str],
        variables: &[(&str, &str)],
    ) -> Machine {
        let mut command = command(&["node", "--json", "--processes", processes]);
        command.args(["--slot-bytes=8MiB", "--ready-memory-bytes=0", "--memory-limit-bytes=3GiB"]);
        command.args(FLAGS).args(LONG_LEASE).args(more).args(["--data-dir", data.to_str().unwrap()]);
        command.args([format!("--listen-address={ip}:{port}"), format!("--http-address={ip}:{}", port + 80)]);
        command.envs(variables.iter().copied());
        let mut supervisor = command.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, events) = channel();
        let lines = BufReader::new(supervisor.stdout.take().unwrap()).lines().map_while(Result::ok);
        std::thread::spawn(move || {
            lines.map(|line| serde_json::from_str(&line).unwrap()).try_for_each(|event| sender.send(event))
        });
        Machine { supervisor, events, ip, port }
    }

    /// The next event of this name; those before it are passed over.
    fn event(&self, name: &str) -> Value {
        loop {
            let event = self.events.recv_timeout(wait::PATIENCE);
            let event = event.unwrap_or_else(|error| panic!("no event `{name}`: {error}"));
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Waits until all nodes serve; their processes.
    fn up(&self) -> Vec<Pid> {
        let up = self.event("up");
        let pid = |node: &Value| by_number(node["pid"].as_u64().unwrap());
        up["nodes"].as_array().unwrap().iter().map(pid).collect()
    }

    fn process(&self) -> Pid {
        Pid::from_child(&self.supervisor)
    }

    /// Where the node in this place serves clients.
    fn address(&self, place: u16) -> String {
        format!("{}:{}", self.ip, self.port + place)
    }

    /// What a client command prints; none if it fails.
    fn client(&self, arguments: &[&str]) -> Option<String> {
        let output = command(arguments).args(["--server", &self.address(0)]).output().unwrap();
        output.status.success().then(|| text(&output.stdout))
    }

    /// The same of a command that asks the admin API.
    fn admin(&self, arguments: &[&str]) -> Option<String> {
        let http = format!("{}:{}", self.ip, self.port + 80);
        let output = command(arguments).args(["--http", &http]).output().unwrap();
        if !output.status.success() {
            println!("{arguments:?}: {}", text(&output.stderr));
        }
        output.status.success().then(|| text(&output.stdout))
    }

    fn put_all(&self, value: &str) {
        for key in KEYS {
            wait::until(&format!("{key} is put"), || self.client(&["put", key, value]).is_some());
        }
    }

    fn wait_all(&self, value: &str) {
        let wanted = format!("{value}\n");
        for key in KEYS {
            wait::until(&format!("{key} is {value}"), || {
                self.client(&["get", key]).is_some_and(|got| got == wanted)
            });
        }
    }

    /// SIGTERM; its exit code, once it has ended.
    fn stop(&mut self) -> Option<i32> {
        signal(self.process(), Signal::TERM);
        self.event("stopped");
        self.supervisor.wait().unwrap().code()
    }

    /// kill -9 of the supervisor alone.
    fn kill(&mut self) {
        signal(self.process(), Signal::KILL);
        self.supervisor.wait().unwrap();
    }
}

#[test]
fn processes_share_a_machine_one_that_dies_comes_back_and_one_that_cannot_leaves_its_pairs_to_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, config) = (Ports::take(), folder.path().join("cell.toml"));
    let configure = |lines: &str| std::fs::write(&config, lines).unwrap();
    configure("checkpoint_age_ms = \"1 h\"\n");
    let with_config = ["--config", config.to_str().unwrap()];
    let place = ("127.0.0.1", ports.first);
    let mut machine = Machine::launch(place, &folder.path().join("data"), "3", &with_config);
    let mut pids = machine.up();
    assert_eq!(pids.len(), 3);
    machine.put_all("first");
    wait::until("status has a line of each", || {
        let said = machine.client(&["status"]).unwrap_or_default();
        (0..3).all(|place| said.lines().any(|line| line.contains(&machine.address(place))))
    });

    signal(pids[1], Signal::KILL);
    assert_eq!(machine.event("died")["node"], 1);
    let again = machine.event("serving");
    assert_eq!((&again["node"], &again["life"]), (&1.into(), &2.into()), "{again}");
    pids[1] = by_number(again["pid"].as_u64().unwrap());
    let there = children(machine.process());
    assert!(pids.iter().all(|pid| there.contains(pid)), "the others stayed: {there:?}, {pids:?}");
    machine.wait_all("first");

    // A SIGHUP reaches each of them.
    configure("checkpoint_age_ms = \"1 year\"\n");
    signal(machine.process(), Signal::HUP);
    let stay = &machine.event("reloading")["stay"];
    assert!(stay.as_array().unwrap().contains(&"memory_limit_bytes".into()), "{stay}");
    wait::until("each node warns of the configuration", || {
        let said = machine.client(&["status"]).unwrap_or_default();
        (0..3).all(|node| said.contains(&format!("node-{node}: the configuration is wrong")))
    });

    // What follows on one that is killed now ends at once, for good: the others have its pairs.
    machine.put_all("second");
    signal(pids[2], Signal::KILL);
    assert_eq!(machine.event("given_up")["node"], 2);
    machine.wait_all("second");
    machine.put_all("third");
    machine.wait_all("third");

    assert_eq!(machine.stop(), Some(0));
    wait_ended(&pids);
}

/// How many cores this process may use.
fn cores() -> u32 {
    rustix::thread::sched_getaffinity(None).unwrap().count()
}

/// The cores that a process may use, as the kernel writes them.
fn cores_of(process: Pid) -> String {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

#[test]
fn processes_end_with_their_supervisor_also_one_that_stands_still_and_the_next_start_has_everything() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, data) = (Ports::take(), folder.path().join("data"));
    let mut machine = Machine::launch(("127.0.0.1", ports.first), &data, "2", &[]);
    let pids = machine.up();
    machine.put_all("value");
    stop(pids[1]);
    machine.kill();
    wait_ended(&pids);

    // To the service manager the supervisor speaks for all.
    let manager = ServiceManager::listen(folder.path());
    let can_pin = cores() > 1;
    let pinned: &[&str] = if can_pin { &["--pin-cores"] } else { &[] };
    let variables = [("NOTIFY_SOCKET", manager.socket.to_str().unwrap()), ("WATCHDOG_USEC", "2000000")];
    let mut machine = Machine::launch_with(("127.0.0.1", ports.first), &data, "2", pinned, &variables);
    let pids = machine.up();
    manager.wait_for("READY=1");
    manager.wait_for("WATCHDOG=1");
    machine.wait_all("value");
    if can_pin {
        assert_ne!(cores_of(pids[0]), cores_of(pids[1]));
    } else {
        println!("SKIPPED: cores of their own, where there is one");
    }
    assert_eq!(machine.stop(), Some(0));
    manager.wait_for("STOPPING=1");
    wait_ended(&pids);
}

/// The watchdog was not fed in that wait, which may be half of what a unit gives it.
#[test]
fn node_that_waits_for_the_end_of_its_lease_feeds_the_watchdog() {
    let folder = tempfile::tempdir().unwrap();
    let manager = ServiceManager::listen(folder.path());
    let ports = Ports::take();
    let (port, data) = (ports.first, folder.path().join("data"));
    let mut node = command(&["node", "--data-dir", data.to_str().unwrap()])
        .args(["--listen-address", &format!("127.0.0.1:{port}")])
        .args(["--http-address", &format!("127.0.0.1:{}", port + 80)])
        .args(FLAGS)
        .args(["--lease-ms", "6s", "--trust-max-ms", "6s"])
        .env("NOTIFY_SOCKET", &manager.socket)
        .env("WATCHDOG_USEC", "300000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    manager.wait_for("READY=1");
    signal(Pid::from_child(&node), Signal::TERM);
    manager.wait_for("STOPPING=1");
    // It listens as long as its worker runs.
    wait::until("its worker has ended", || TcpStream::connect(("127.0.0.1", port)).is_err());
    manager.forget();
    (0..2).for_each(|_| manager.wait_for("WATCHDOG=1"));
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

/// The nodes of each pair, as far as they are known: a number that no node has stands for one that is not.
fn owners(machine: &Machine) -> Vec<(u64, u64)> {
    let listed = machine.admin(&["region", "ls", "--json"]).unwrap_or_default();
    let document: Value = serde_json::from_str(&listed).unwrap_or_default();
    let regions = document["regions"].as_array().map_or(&[][..], Vec::as_slice);
    let row = |of: &Value| (of["pair"].as_u64().unwrap(), of["node"].as_u64().unwrap_or(u64::MAX));
    regions.iter().map(row).collect()
}

#[test]
fn machine_that_is_drained_by_its_address_gives_all_pairs_of_its_processes_to_the_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, data) = (Ports::take(), folder.path().join("data"));
    let mut first = Machine::launch(("127.0.0.1", ports.first), &data, "2", &[]);
    first.up();
    let coordinator = format!("--coordinator-address={}", data.join("coordinator.socket").display());
    let of_second = ["--node-id=2", &coordinator];
    let mut second = Machine::launch(("127.0.0.2", ports.first + 20), &data, "2", &of_second);
    let of_second = second.up();
    first.put_all("value");
    for (pair, node) in [(1, 2), (2, 3)] {
        let (of, to) = (pair.to_string(), node.to_string());
        wait::until(&format!("pair {pair} moves to node {node}"), || {
            first.admin(&["region", "move", &of, "--to", &to, "--wait=120s"]).is_some()
                || owners(&first).contains(&(pair, node))
        });
    }
    second.wait_all("value");

    let drain = ["node", "drain", "--host", "127.0.0.2", "--wait=120s"];
    // What nodes say of themselves may be a moment old.
    let said = wait::until_some("the second machine is drained", || first.admin(&drain));
    assert_eq!(said, "nodes 2 and 3 are empty, and can be stopped\n");
    wait::until("all pairs are at the first machine", || {
        let owners = owners(&first);
        !owners.is_empty() && owners.iter().all(|(_, node)| *node < 2)
    });
    first.wait_all("value");

    // What dies with what: its own processes, and nothing of the first machine.
    second.kill();
    wait_ended(&of_second);
    first.put_all("after");
    first.wait_all("after");
    assert_eq!(first.stop(), Some(0));
}

/// What two hosts have: each its own data folder, and one log root that both see.
#[test]
fn machines_with_data_folders_of_their_own_take_pairs_over_from_one_log_root() {
    let folder = tempfile::tempdir().unwrap();
    let [data, other_data, shared] = ["first", "second", "shared"].map(|name| folder.path().join(name));
    std::fs::create_dir(&shared).unwrap();
    let log_root = format!("--log-root={}", shared.display());
    let ports = Ports::take();
    let mut first = Machine::launch(("127.0.0.1", ports.first), &data, "2", &[&log_root]);
    let of_first = first.up();
    let coordinator = format!("--coordinator-address={}", data.join("coordinator.socket").display());
    let more = [&*log_root, "--node-id=2", &coordinator];
    let mut second = Machine::launch(("127.0.0.2", ports.first + 20), &other_data, "1", &more);
    let of_second = second.up();
    first.put_all("of the first");

    // The first machine's nodes stand still past their leases: the other one has their logs.
    of_first.iter().for_each(|node| stop(*node));
    second.wait_all("of the first");
    second.put_all("of the second");
    of_first.iter().for_each(|node| signal(*node, Signal::CONT));
    // They learn that their leases have ended, and are started again.
    wait::until("all nodes are there", || first.client(&["status"]).is_some());

    second.kill();
    wait_ended(&of_second);
    first.wait_all("of the second");
    first.put_all("after");
    first.wait_all("after");
    assert_eq!(first.stop(), Some(0));
    let names = |path: &Path| {
        let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    assert!(names(&shared).iter().any(|name| name == "log-root-id"), "{:?}", names(&shared));
    assert_eq!(names(&other_data), ["node-2"], "nothing of the second machine that others need");
}

#[test]
fn processes_that_cannot_be_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let refused = |arguments: &[&str], words: &str| {
        let mut node = command(&["node", "--data-dir", data.to_str().unwrap()]);
        let output = node.args(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    };
    for (arguments, words) in [
        (&["--processes=0"][..], "1..=64"),
        (&["--processes=65"][..], "1..=64"),
        (&["--pin-cores"][..], "--processes <N>"),
        (&["--processes=2", "--node-id=1024"][..], "a whole number from 0 to 1023"),
        (&["--processes=2", "--node-id=1023"][..], "would end at 1024"),
        (&["--processes=2", "--listen-address=127.0.0.1:65535"][..], "would need port 65536"),
        (&["--processes=2", "--listen-address=192.0.2.1:7000"][..], "is not a loopback address"),
        (&["--processes=2", "--http-address=192.0.2.1:7080"][..], "http_address"),
        (&["--processes=2", "--http-address=127.0.0.1:7001"][..], "collide"),
        (&["--processes=2", "--advertise-address=127.0.0.1:65535"][..], "`advertise_address`"),
        (&["--processes=2", "--tokens-file=/nowhere/tokens"][..], "tokens_file"),
        (&["--processes=4", "--memory-limit-bytes=200MiB"][..], "too few for 4 processes"),
        (&["--processes=2", "ls"][..], "--processes is for nodes that are to run"),
    ] {
        refused(arguments, words);
    }
    if cores() < 64 {
        let processes = format!("--processes={}", cores() + 1);
        refused(&[&processes, "--pin-cores", "--memory-limit-bytes=1TiB"], "cores of their own: there are");
    }
    assert!(!data.exists());
}
