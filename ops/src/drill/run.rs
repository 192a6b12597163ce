//! A drill from its first write to its proof.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cell_client::{Operation, ScanRange};
use cell_protocol::Condition;

use super::connection::DrillConnection;
use super::journal::{Closed, Journal};
use super::keys::Keys;
use super::report::{DrillVerdict, Report, Unavailable};
use super::traffic::{Load, Traffic};
use super::verify::{Proof, Reader, prove};
use super::watch::{Event, Watch};
use super::wire::{NodeView, Request, Status};
use crate::args::{SearchArg, ServerArgs};
use crate::exit::{Exit, Failure};
use crate::output::message;
use crate::store::Store;

/// How often the cluster is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Traffic goes on for so long after everything is back.
const AFTERWARDS: Duration = Duration::from_millis(500);
/// How long one read of the proof may take.
const READ_PATIENCE: Duration = Duration::from_secs(60);
/// How often keys are asked for that one-sided search has not answered.
const ONE_SIDED_TRIES: usize = 5;
/// Keys that are removed at once.
const REMOVED_AT_ONCE: usize = 256;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`.
    Kill,
    /// SIGSTOP, then SIGCONT.
    Stop,
    /// An ordered stop, and a new start.
    Restart,
    /// Cut off, then let back.
    Partition,
}

impl Fault {
    /// Its word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Stop => "stop",
            Fault::Restart => "restart",
            Fault::Partition => "partition",
        }
    }

    fn injection(self, node: u16, lasts: Duration) -> Request {
        match self {
            Fault::Kill => {
                Request::Kill { node, down_ms: u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX) }
            }
            Fault::Stop => Request::Stop { node },
            Fault::Restart => Request::Restart { node },
            Fault::Partition => Request::Partition { node, on: true },
        }
    }

    /// What takes it back; a killed or restarted node comes back by itself.
    fn healing(self, node: u16) -> Option<Request> {
        match self {
            Fault::Stop => Some(Request::Cont { node }),
            Fault::Partition => Some(Request::Partition { node, on: false }),
            Fault::Kill | Fault::Restart => None,
        }
    }
}

/// What is to be drilled.
pub(crate) struct Drill {
    /// The cluster's folder.
    pub(crate) dir: PathBuf,
    /// What to do.
    pub(crate) fault: Fault,
    /// To which node.
    pub(crate) node: u16,
    /// For how long; if not said, what suits the fault and the number of nodes.
    pub(crate) lasts: Option<Duration>,
    /// Traffic before it.
    pub(crate) before: Duration,
    /// How long everything may take to be back.
    pub(crate) patience: Duration,
    /// How much traffic.
    pub(crate) load: Load,
    /// How clients connect; without a server, those of the cluster.
    pub(crate) server: ServerArgs,
    /// Whether the drill's entries stay in the store.
    pub(crate) keep: bool,
}

/// A fault that is taken back when this is dropped, however the drill ends.
struct Injected<'a> {
    connection: &'a mut DrillConnection,
    healing: Option<Request>,
}

impl Injected<'_> {
    fn heal(&mut self) -> anyhow::Result<Option<u64>> {
        let healed = self.healing.take().map(|request| self.connection.ask(request));
        Ok(healed.transpose()?.map(|answer| answer.at_ns))
    }
}

impl Drop for Injected<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.heal() {
            message::warning(&format!("the fault could not be taken back: {error:#}"));
        }
    }
}

impl Drill {
    /// Runs it.
    pub(crate) fn run(mut self, interrupted: &AtomicBool) -> anyhow::Result<Report> {
        let mut connection = DrillConnection::open(&self.dir)?;
        let (_, status) = connection.status()?;
        self.check(&status)?;
        self.server.server = servers(&status);
        let keys = Keys::new(RandomState::new().build_hasher().finish());
        let (journal, stop) = (Journal::default(), AtomicBool::new(false));
        let clients = (0..self.load.threads)
            .map(|thread| Traffic::connect(&self.server, &keys, &journal, self.load, thread))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let watched = thread::scope(|scope| {
            let threads: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(|| client.run(&stop))).collect();
            let watched = self.inject(&mut connection, interrupted);
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().expect("a drill's client does not panic")?;
            }
            watched
        });
        let (watch, back_ns, mut troubles) = watched?;
        let closed = journal.close();
        let tally = closed.tally;
        let victims = |pair: u32| watch.has_owned(pair);
        let unavailable = Unavailable::within(&closed.waits, watch.injected_ns(), back_ns, &victims);
        message::note("reading every acknowledged key back");
        let own: Vec<_> = closed.history.keys().cloned().collect();
        let proof = self.prove(closed, &keys).map_err(|error| troubles.push(format!("{error:#}"))).ok();
        let Drill { fault, node, .. } = self;
        let run = keys.run();
        let fault = fault.word();
        let report = Report { fault, node, run, watch, tally, unavailable, proof, troubles };
        if report.verdict() == DrillVerdict::Pass && !self.keep {
            self.remove(&own)?;
        }
        Ok(report)
    }

    /// Refuses what cannot show anything, before anything is done.
    fn check(&self, status: &Status) -> anyhow::Result<()> {
        let count = status.nodes.len();
        let Some(node) = status.nodes.get(usize::from(self.node)) else {
            let what = format!("there is no node {}: the cluster has {count}, counted from 0", self.node);
            return Err(Failure::usage(what).next("`cell drill ls` lists them").into());
        };
        let fit = |of: &NodeView| {
            let spared = of.state == "given up" && of.node != node.node;
            spared || (of.state == "serving" && !of.partitioned)
        };
        let idle = status.nodes.iter().find(|node| !fit(node));
        if let Some(node) = idle {
            let state = if node.partitioned { "cut off" } else { &node.state };
            let what = format!("a drill begins with a healthy cluster, but node {} is {state}", node.node);
            let next =
                "wait until `cell drill ls` shows every node serving; `cell drill heal` takes faults back";
            return Err(Failure::new(Exit::Unhealthy, what).next(next).into());
        }
        if !status.pairs.iter().any(|pair| pair.node == u32::from(node.node)) {
            message::warning(&format!("node {} owns no pair: its loss will show nothing", self.node));
        }
        Ok(())
    }

    /// How long the fault lasts.
    fn lasts(&self, nodes: usize) -> Duration {
        const DEFAULT: Duration = Duration::from_secs(3);
        match (self.lasts, self.fault) {
            (Some(lasts), _) => lasts,
            (None, Fault::Restart) => Duration::ZERO,
            // With nobody to take over there is nothing to wait for.
            (None, Fault::Kill) if nodes == 1 => Duration::ZERO,
            (None, _) => DEFAULT,
        }
    }

    /// Traffic alone, then the fault, then until everything is back.
    fn inject(
        &self,
        connection: &mut DrillConnection,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<(Watch, u64, Vec<String>)> {
        sleep_unless(interrupted, self.before)?;
        let (_, before) = connection.status()?;
        let lasts = self.lasts(before.nodes.len());
        let request = self.fault.injection(self.node, lasts);
        message::note(&format!("{} node {}", self.fault.word(), self.node));
        let injected_ns = connection.ask(request)?.at_ns;
        let mut fault = Injected { connection, healing: self.fault.healing(self.node) };
        let mut watch = Watch::new(self.node, &before, injected_ns);
        let until = Instant::now() + lasts;
        let given_up = until + self.patience;
        let mut back: Option<(Instant, u64)> = None;
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(Failure::new(Exit::Interrupted, "interrupted").into());
            }
            let now = Instant::now();
            if now >= until
                && let Some(at_ns) = fault.heal()?
            {
                watch.note(at_ns, Event::Healed, None);
            }
            let (at_ns, status) = fault.connection.status()?;
            watch.look(at_ns, &status);
            let is_over =
                now >= until && fault.healing.is_none() && has_come(self.fault, self.node, &before, &status);
            if is_over && watch.is_all_back(&status) {
                watch.note(at_ns, Event::AllBack, None);
                let (since, back_ns) = *back.get_or_insert((now, at_ns));
                if now.duration_since(since) >= AFTERWARDS {
                    return Ok((watch, back_ns, Vec::new()));
                }
            } else {
                // A node that stood still may look well until it notices that its lease is over.
                back = None;
                watch.forget(Event::AllBack);
                if now >= given_up {
                    return Ok((watch, at_ns, vec![lacking(&status)]));
                }
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn prove(&self, closed: Closed, keys: &Keys) -> anyhow::Result<Proof> {
        let reader = |search| {
            let timeout = Some(READ_PATIENCE);
            let server = ServerArgs { search: Some(search), timeout, ..self.server.clone() };
            Store::connect(&server, READ_PATIENCE)
        };
        let mut client = OneSided { store: reader(SearchArg::Client)?, strayed: 0 };
        let mut server = reader(SearchArg::Server)?;
        prove(closed, keys, &mut [("client", &mut client), ("server", &mut server)])
    }

    /// Takes the drill's entries out of the store again.
    fn remove(&self, keys: &[Vec<u8>]) -> anyhow::Result<()> {
        let mut store = Store::connect(&self.server, READ_PATIENCE)?;
        for group in keys.chunks(REMOVED_AT_ONCE) {
            for key in group {
                store.submit(&Operation::Delete { key, condition: Condition::Always })?;
            }
            while let Some(completion) = store.poll(true) {
                completion.outcome.map_err(|error| store.failure(&error))?;
            }
        }
        Ok(())
    }
}

/// A reader that searches the servers' memory, and looks at its counters after each answer: what the server
/// was asked for in the end is asked for again.
struct OneSided {
    store: Store,
    strayed: u64,
}

impl OneSided {
    /// Operations that were answered one-sided, and those that were not.
    fn counted(&self) -> (u64, u64) {
        self.store.one_sided_counters().map_or((0, 0), |counters| (counters.done, counters.fell_back))
    }
}

impl Reader for OneSided {
    fn get(&mut self, keys: &[&[u8]]) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
        for _ in 0..ONE_SIDED_TRIES {
            let (done, fell_back) = self.counted();
            let values = Reader::get(&mut self.store, keys)?;
            let (done_now, fell_back_now) = self.counted();
            if done_now > done && fell_back_now == fell_back {
                return Ok(values);
            }
        }
        self.strayed += keys.len() as u64;
        Reader::get(&mut self.store, keys)
    }

    fn scan(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> anyhow::Result<()> {
        Reader::scan(&mut self.store, each)
    }

    fn strayed(&self) -> u64 {
        self.strayed
    }
}

impl Reader for Store {
    fn get(&mut self, keys: &[&[u8]]) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
        let items = self.multi_get(keys)?;
        Ok(items.into_iter().map(|item| item.map(|item| item.value)).collect())
    }

    fn scan(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> anyhow::Result<()> {
        let mut take = |entry: &cell_client::ScanEntry| {
            each(&entry.key, &entry.value);
            Ok(())
        };
        Store::scan(self, ScanRange::default(), &mut take).map(drop)
    }
}

/// Where clients connect: every node that has a process.
fn servers(status: &Status) -> String {
    let living = status.nodes.iter().filter(|node| node.pid.is_some());
    let servers: Vec<_> = living.map(|node| node.server.to_string()).collect();
    servers.join(",")
}

/// Whether a process that the fault ends has ended: until then a cluster looks healthy.
fn has_come(fault: Fault, node: u16, before: &Status, now: &Status) -> bool {
    let lives = |status: &Status| status.nodes.get(usize::from(node)).map_or(0, |node| node.lives);
    let given_up = now.nodes.get(usize::from(node)).is_some_and(|node| node.state == "given up");
    match fault {
        Fault::Kill | Fault::Restart => given_up || lives(now) > lives(before),
        Fault::Stop | Fault::Partition => true,
    }
}

/// What is not as it should be, in words.
fn lacking(status: &Status) -> String {
    let nodes = status.nodes.iter().filter(|node| node.state != "serving");
    let pairs = status.pairs.iter().filter(|pair| !pair.is_served());
    let words: Vec<_> = nodes
        .map(|node| format!("node {} is {}", node.node, node.state))
        .chain(pairs.map(|pair| format!("pair {} is {}", pair.pair, pair.state)))
        .collect();
    format!("not everything came back in time: {}", words.join(", "))
}

fn sleep_unless(interrupted: &AtomicBool, duration: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + duration;
    while Instant::now() < until {
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, "interrupted").into());
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
