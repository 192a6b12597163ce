//! `processes`: two node processes of one configuration under their supervisor (`cell node --processes 2`)
//! beside one process, under YCSB A in turn: operations by the processor time that the servers take, and by
//! wall time where there are cores enough for all. Pairs do not move meanwhile.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use cell_client::{Client, Condition, Operation};
use cell_tests::ports::Ports;
use cell_tests::process::children;
use cell_tests::program;
use rustix::process::{Pid, Signal, kill_process};

use crate::contest;
use crate::data::{Choice, Dataset, Packed};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::paced::now;
use crate::patience;
use crate::processor::Used;
use crate::put::Scratch;
use crate::served::{flags, leases, many_meganodes, patient, pipelined};
use crate::shapes::Shape;

/// Clients, each a thread, and the operations that each has outstanding.
const CLIENTS: usize = 2;
const OUTSTANDING: usize = 256;
/// What is put: as long as the data's values on average.
const VALUE: [u8; 132] = [b'v'; 132];
/// Entries that are put at a time while a store is filled.
const BATCH_ENTRIES: u64 = 20_000;
/// With fewer cores clients and servers are in each other's way, and wall time says nothing.
const CORES_LEAST: usize = 8;

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    let data = Dataset { entries: options.entries, seed: options.seed };
    let size = usize::try_from(data.entries / 2).unwrap_or(usize::MAX).clamp(2_000, 500_000);
    let rounds = usize::from(options.rounds);
    let keys = data.probes(Choice::Zipf, size * (rounds + 1), data.seed ^ 0x7072_6F63);
    let mut machines = [
        Machine::start(&folder.0.join("two"), Some(2), &data, options)?,
        Machine::start(&folder.0.join("one"), None, &data, options)?,
    ];
    // What takes turns: a machine, and the operations that each client has outstanding.
    let kinds = [(0, OUTSTANDING), (0, 2 * OUTSTANDING), (1, OUTSTANDING)];
    let mut turns: [Vec<Turn>; 3] = Default::default();
    for round in 0..=rounds {
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for kind in order {
            let (machine, outstanding) = kinds[kind];
            let turn = machines[machine].turn(&keys, round * size, size, outstanding)?;
            // The first ones warm up.
            if round > 0 {
                turns[kind].push(turn);
            }
        }
    }
    let middle = |of: fn(&Turn) -> f64| {
        turns.each_ref().map(|turns| contest::median(&turns.iter().map(of).collect::<Vec<_>>()))
    };
    let rival = "one process";
    let [two, two_each, one] = middle(|turn| turn.operations / turn.processor.as_secs_f64());
    // As many outstanding in all leave each process half of them, and half as much to commit at a time.
    let bench = "processes/operations a second of the servers' processor time, as many outstanding";
    report.add(Figure::beside(bench, "op/s", two, rival, one, Goal::AtLeast(0.9)))?;
    let bench = "processes/operations a second of the servers' processor time, as many for each process";
    report.add(Figure::beside(bench, "op/s", two_each, rival, one, Goal::AtLeast(0.9)))?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let bench = "processes/operations";
    if cores < CORES_LEAST {
        report.note(&format!(
            "SKIPPED: {bench} by wall time: {cores} cores are fewer than the {CORES_LEAST} that it takes"
        ));
        return Ok(());
    }
    let [two, _, one] = middle(|turn| turn.operations / turn.wall.as_secs_f64().max(1e-9));
    report.add(Figure::beside(bench, "op/s", two, rival, one, Goal::None))?;
    Ok(())
}

/// What was done in a turn, and what it took.
struct Turn {
    operations: f64,
    processor: Duration,
    wall: Duration,
}

/// Nodes of one machine and their clients.
struct Machine {
    child: Child,
    /// Processes that a supervisor has besides itself; none where there is none.
    nodes: Vec<Pid>,
    clients: Vec<Client>,
    _ports: Ports,
}

impl Machine {
    /// Starts a supervisor of so many processes, or one node, and fills it.
    fn start(
        folder: &Path,
        processes: Option<u16>,
        data: &Dataset,
        options: &Options,
    ) -> Result<Self, BenchError> {
        let ports = Ports::take();
        let port = ports.first;
        let address = |by: u16| format!("127.0.0.1:{}", port + by);
        let sizes = many_meganodes(data.entries);
        let mut more: Vec<_> = sizes.iter().map(|(name, size)| (*name, size.as_str())).collect();
        more.push(("--ready-memory-bytes", "0"));
        // What pairs that move cost is another bench's: each process has its part from the start on.
        more.push(("--balance", "off"));
        let cuts = processes.map(|processes| Shape::Uniform.cuts(data, usize::from(processes)));
        more.extend(cuts.iter().map(|cuts| ("--initial-split-keys", cuts.as_str())));
        std::fs::create_dir_all(folder)?;
        let log = folder.join("log");
        let mut command = program::command();
        command.args(["node", "--listen-address", &address(0), "--http-address", &address(80)]);
        command.arg("--data-dir").arg(folder.join("data"));
        command.args(flags(data.entries, &more)).args(leases(options));
        if let Some(processes) = processes {
            command.args(["--processes", &processes.to_string()]);
        }
        let child = command.stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        let mut machine = Self { child, nodes: Vec::new(), clients: Vec::new(), _ports: ports };
        let reached = patience::until_some("all processes serve", || {
            if machine.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Some(None);
            }
            let nodes = 0..processes.unwrap_or(1);
            let clients = nodes.map(|node| Client::connect(&address(node), patient()).ok());
            let reached: Option<Vec<Client>> = clients.collect();
            reached.map(Some)
        })?;
        if reached.is_none() {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(BenchError::Io(std::io::Error::other(format!("the node ended: {said}"))));
        }
        for _ in 0..CLIENTS {
            machine.clients.push(Client::connect(&address(0), patient())?);
        }
        if let Some(processes) = processes {
            machine.nodes = children(Pid::from_child(&machine.child));
            let found = machine.nodes.len();
            if found < usize::from(processes) {
                return Err(not_measured(&format!("of {found} of {processes} node processes alone")));
            }
        }
        machine.fill(data)?;
        Ok(machine)
    }

    fn fill(&mut self, data: &Dataset) -> Result<(), BenchError> {
        for first in (0..data.entries).step_by(usize::try_from(BATCH_ENTRIES).unwrap_or(1)) {
            let batch = data.batch(first, (first + BATCH_ENTRIES).min(data.entries));
            let put = |index: usize| {
                let (key, value) = (batch.keys.get(index), batch.values.get(index));
                Operation::Put { key, value, condition: Condition::Always }
            };
            pipelined(&mut self.clients[0], batch.keys.len(), OUTSTANDING, put)?;
        }
        Ok(())
    }

    /// Gets and puts `size` keys from `first` on, all clients together.
    fn turn(
        &mut self,
        keys: &Packed,
        first: usize,
        size: usize,
        outstanding: usize,
    ) -> Result<Turn, BenchError> {
        let part = size / CLIENTS;
        let (before, began) = (self.used(), now());
        let done: Result<u64, BenchError> = std::thread::scope(|scope| {
            let clients = self.clients.iter_mut().enumerate();
            let works: Vec<_> = clients
                .map(|(nth, client)| {
                    let first = first + nth * part;
                    scope.spawn(move || {
                        pipelined(client, part, outstanding, |index| {
                            let key = keys.get(first + index);
                            if index % 2 == 0 {
                                Operation::Put { key, value: &VALUE, condition: Condition::Always }
                            } else {
                                Operation::Get { key }
                            }
                        })
                    })
                })
                .collect();
            works.into_iter().map(|work| work.join().expect("a client does not panic")).sum()
        });
        let (wall, after) = (began.elapsed(), self.used());
        // Before errors: a node that has ended is their cause.
        let there = children(Pid::from_child(&self.child));
        if !self.nodes.iter().all(|node| there.contains(node)) {
            return Err(BenchError::NodeEnded);
        }
        let operations = done? as f64;
        let processor = Duration::from_nanos(after.since_ns(before));
        if processor.is_zero() {
            return Err(not_measured("no processor time of the servers"));
        }
        Ok(Turn { operations, processor, wall })
    }

    /// What the node, or the supervisor and its nodes, have used so far.
    fn used(&self) -> Used {
        let all = std::iter::once(Pid::from_child(&self.child)).chain(self.nodes.iter().copied());
        all.map(Used::of).sum()
    }
}

/// Without the servers' processor time there is nothing to compare.
fn not_measured(what: &str) -> BenchError {
    BenchError::Io(std::io::Error::other(format!("the kernel tells {what}")))
}

impl Drop for Machine {
    fn drop(&mut self) {
        let nodes = children(Pid::from_child(&self.child));
        // What was measured is known; nothing of it may outlive the bench.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for node in nodes {
            let _ = kill_process(node, Signal::KILL);
        }
    }
}
