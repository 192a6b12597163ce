//! The world: nodes, clients, network, disk, coordinator and clock, stepped by one loop. All that happens
//! follows from the seed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cell_client::Completion;
use cell_cluster::{Moves, Sim};
use cell_fabric::{SimNetwork, SimOptions};
use cell_random::{Random, mix};
use cell_terms::mutant::Mutant;
use cell_terms::{Durability, PairId};
use cell_wal::sim::SimDisk;

use crate::action::Action;
use crate::check;
use crate::client::{Asked, Client};
use crate::coverage::{Coverage, Event};
use crate::faults::{self, AwayOnce, FAULTS, Faults, Undo};
use crate::interleave::{self, Calls};
use crate::model::{Broken, Model, broken};
use crate::move_points::{MoveCrash, MoveWatch};
use crate::news::News;
use crate::node::Node;
use crate::nodes_wanted::NodesWanted;
use crate::owners::{Entries, Owners};
use crate::phase::RunPhase;
use crate::plan::{MS, Plan, US};
use crate::shrink::{FailureRecord, Without};
use crate::starts::Operators;
use crate::traffic::{self, Traffic};
use crate::verdict::{Failed, Passed};

/// The clock starts here, so that no time is zero.
const START_NS: u64 = 1_000 * MS;
/// A run that turns more often than this does not get anywhere. Six hundred operations that wait ten seconds
/// for a pair which nobody has memory for, and ask every few milliseconds, take more than twenty million.
const TURNS_MAX: u64 = 60_000_000;
/// After so long the faults end, however little was done: the rest is asked without.
const TRAFFIC_NS_MAX: u64 = 120_000 * MS;
/// After so many turns, too, fifty times the usual: 600 operations that wait take 500 in a millisecond.
const TRAFFIC_TURNS_MAX: u64 = 5_000_000;
/// Operations between two checks of everything.
const EVERYTHING_EVERY: u64 = 1_000;
/// Faults that each run has at least.
const FAULTS_MIN: u64 = 10;

/// How a run goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Operations that clients begin; zero: the usual number.
    pub operations: u64,
    /// Whether everything that happens is printed on standard error.
    pub verbose: bool,
    /// Operations after which clients ask no more; zero: all.
    pub stop_after: u64,
    /// Faults that do not happen.
    pub without: Without,
    /// When the coordinator is away, besides.
    pub away: Option<AwayOnce>,
    /// The host on which the log root is not mounted from the begin on.
    pub unmounted: Option<u32>,
    /// A move of a pair, and a crash at a point of it.
    pub move_crash: Option<MoveCrash>,
    /// The first creation of a pair for a split is broken off once its row is there.
    pub break_creation: bool,
    /// A defect to be planted in the world, for tests of the checks.
    pub planted: Option<Planted>,
    /// A defect to be planted in production code: only in debug builds.
    pub mutant: Option<Mutant>,
}

/// A defect that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The disk says once that a log write is done that it never does.
    WriteLost,
    /// A recovery brings one entry less back.
    EntryLost,
    /// A client is answered that an entry is not there that is.
    ReadMissed,
    /// A client is answered that it deleted what was not there.
    DeleteInvented,
}

/// Prints what happens, if anybody wants to know.
macro_rules! say {
    ($world:expr, $($what:tt)*) => {
        if $world.options.verbose {
            let now_ns = $world.now_ns;
            eprintln!("{:>8}.{:06} ms  {}", now_ns / 1_000_000, now_ns % 1_000_000, format_args!($($what)*));
        }
    };
}
pub(crate) use say;

/// See the module's text.
pub struct World {
    pub(crate) plan: Plan,
    pub(crate) options: RunOptions,
    pub(crate) random: Random,
    /// Decides what happens within calls of the coordinator.
    calls: Random,
    pub(crate) now_ns: u64,
    pub(crate) disk: SimDisk,
    pub(crate) disk_due: BTreeMap<u64, u64>,
    /// How often what is pending on the disk had changed when `disk_due` was made of it; none: it has to be
    /// looked at anew.
    pub(crate) disk_changes: Option<u64>,
    pub(crate) disk_slow_until_ns: u64,
    pub(crate) network: SimNetwork,
    pub(crate) coordinator: Sim,
    /// It was seen to have no power.
    pub(crate) coordinator_is_out: bool,
    /// It was seen to be away as the options wish.
    pub(crate) was_away: bool,
    /// Calls until everything was read at the end.
    pub(crate) calls_read: u64,
    /// Calls when the region table was looked at last, at the end.
    pub(crate) calls_looked: Cell<u64>,
    pub(crate) move_watch: MoveWatch,
    pub(crate) nodes: Vec<Box<Node>>,
    pub(crate) clients: Vec<Client>,
    pub(crate) asks_due_ns: Vec<u64>,
    pub(crate) model: Model,
    pub(crate) coverage: Coverage,
    pub(crate) faults: Faults,
    pub(crate) undo: BTreeMap<(u64, u64), Undo>,
    pub(crate) phase: RunPhase,
    pub(crate) phase_since_ns: u64,
    pub(crate) operators: Operators,
    pub(crate) owners: Owners,
    /// Where each pair was served last.
    pub(crate) hosts_of: BTreeMap<PairId, u32>,
    /// What everything held before a bit was flipped.
    pub(crate) held: Option<Entries>,
    pub(crate) planted: Option<Planted>,
    /// Faults have had their time.
    pub(crate) healed: bool,
    /// Faults so far, those left out among them.
    faults_started: usize,
    /// Those that happened.
    pub(crate) injected: Vec<usize>,
    traffic: Traffic,
    /// Operations that were asked, less those that failed.
    pub(crate) asked: u64,
    /// Operations that were answered, before everything is read at the end.
    completed: u64,
    /// When the last answer came.
    pub(crate) answered_ns: u64,
    turns: u64,
    sequence: u64,
    digest: u64,
}

impl World {
    /// The world of a seed.
    #[must_use]
    pub fn new(plan: Plan, options: RunOptions) -> World {
        let mut random = Random::new(plan.seed);
        let disk = SimDisk::new(random.next());
        disk.set_log_flush(plan.log_flush);
        let network = SimNetwork::new(random.next(), plan.network);
        let coordinator = Sim::new(7);
        coordinator.set_now(START_NS);
        options.away.into_iter().for_each(|away| coordinator.go_away_after(away.calls, away.how));
        network.step(START_NS);
        let keys = traffic::keys(&plan, &mut random.part());
        let clients: Vec<Client> =
            (0..plan.clients).map(|number| Client::new(&plan, number, &network, random.next())).collect();
        World {
            disk,
            disk_due: BTreeMap::new(),
            disk_changes: None,
            disk_slow_until_ns: 0,
            network,
            coordinator,
            coordinator_is_out: false,
            was_away: false,
            calls_read: 0,
            calls_looked: Cell::new(0),
            move_watch: MoveWatch::new(options.move_crash),
            nodes: Vec::new(),
            asks_due_ns: vec![START_NS; clients.len()],
            clients,
            model: Model::new(keys).forgetful(plan.worker.pair.durability != Durability::Sync),
            coverage: Coverage::default(),
            faults: Faults::new(&plan, random.part()),
            undo: BTreeMap::new(),
            phase: RunPhase::Traffic,
            phase_since_ns: START_NS,
            operators: Operators {
                unmounted: options.unmounted,
                wanted: NodesWanted::new(plan.nodes),
                breaks_creation: Arc::new(AtomicBool::new(options.break_creation)),
                ..Operators::default()
            },
            owners: Owners::default(),
            hosts_of: BTreeMap::new(),
            held: None,
            planted: options.planted,
            traffic: Traffic::new(random.part()),
            healed: false,
            faults_started: 0,
            injected: Vec::new(),
            asked: 0,
            completed: 0,
            answered_ns: START_NS,
            turns: 0,
            sequence: 0,
            digest: plan.seed,
            now_ns: START_NS,
            random,
            calls: Random::new(plan.seed ^ 0x6265_7477),
            options,
            plan,
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The rule that was broken, and when.
    pub fn run(mut self) -> Result<Passed, Box<Failed>> {
        let outcome = self.run_to_end();
        (0..self.clients.len()).for_each(|number| self.count_one_sided(number));
        let creation_broken = self.has_broken_creation();
        match outcome {
            Ok(()) => Ok(Passed {
                digest: mix(self.digest ^ self.network.digest()),
                coverage: self.coverage,
                elapsed_ns: self.now_ns - START_NS,
                turns: self.turns,
                calls: self.calls_read,
                move_struck: self.move_watch.has_struck(),
                creation_broken,
            }),
            Err(broken) => {
                say!(self, "BROKEN: {broken}");
                let record =
                    FailureRecord { asked: self.asked, faults: self.injected, what: broken.what.clone() };
                Err(Box::new(Failed { broken, now_ns: self.now_ns, coverage: self.coverage, record }))
            }
        }
    }

    fn run_to_end(&mut self) -> Result<(), Broken> {
        while self.phase != RunPhase::Over {
            self.turn()?;
        }
        self.coverage.add(Event::AsyncRuns, u64::from(self.model.forgets));
        self.coverage.add(Event::Clusters, u64::from(self.plan.nodes > 1));
        let balances = self.plan.balance.as_ref().is_some_and(|balance| balance.on);
        self.coverage.add(Event::BalancedRuns, u64::from(balances));
        self.coverage.add(Event::DrainRuns, u64::from(faults::drains(&self.plan)));
        let survived = self.coverage.count(Event::Survivor) > 0;
        self.coverage.add(Event::SurvivorRuns, u64::from(survived));
        let moves = Moves::new(Arc::new(self.coordinator.link())).list().unwrap_or_default();
        moves.iter().for_each(|of| self.count_outcome(Some(of)));
        check::linearizable(&mut self.model)?;
        self.look_at_amount()
    }

    /// A run that did little proves little.
    fn look_at_amount(&self) -> Result<(), Broken> {
        let cut_short = self.options.stop_after > 0 || self.options.without != Without::default();
        let (operations, faults) = (self.completed, self.coverage.count(Event::Faults));
        if !cut_short && (operations < self.plan.operations || faults < FAULTS_MIN) {
            let wanted = self.plan.operations;
            return Err(broken(format_args!(
                "too little happened: {operations} operations of {wanted}, {faults} faults of {FAULTS_MIN}"
            )));
        }
        Ok(())
    }

    /// Notes something in the digest.
    pub(crate) fn note(&mut self, what: u64) {
        self.digest = mix(self.digest ^ self.now_ns.rotate_left(20) ^ what);
    }

    /// Lets something be undone, or happen, later.
    pub(crate) fn later(&mut self, after_ns: u64, undo: Undo) {
        self.sequence += 1;
        self.undo.insert((self.now_ns + after_ns, self.sequence), undo);
    }

    /// One turn of the loop: time moves to the next thing that is due, and everything due by then happens.
    fn turn(&mut self) -> Result<(), Broken> {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            let due = self.describe_due();
            return Err(broken(format_args!("stuck: too many turns; at once due: {due}")));
        }
        self.now_ns = self.next_due_ns().max(self.now_ns + 1);
        self.coordinator.set_now(self.now_ns);
        self.network.step(self.now_ns);
        self.step_coordinator();
        self.step_disk();
        self.step_undo();
        self.step_faults()?;
        self.step_nodes()?;
        self.step_operators();
        self.step_clients()?;
        self.step_traffic()?;
        self.step_move_crash()?;
        self.step_phase()
    }

    /// Who is due at once, again and again.
    fn describe_due(&self) -> String {
        let soon = |due_ns: u64| due_ns <= self.now_ns + 1;
        let nodes = self.nodes.iter().filter(|node| soon(node.due_ns()));
        let nodes = nodes.map(|node| format!("host {}", node.host));
        let clients = self.clients.iter().filter(|client| soon(client.due_ns()));
        let clients = clients.map(|client| client.waits_for().unwrap_or_else(|| "an idle client".to_owned()));
        nodes.chain(clients).collect::<Vec<_>>().join(", ")
    }

    fn next_due_ns(&mut self) -> u64 {
        let mut due_ns = self.network.next_due_ns().unwrap_or(u64::MAX);
        due_ns = due_ns.min(self.disk_due.values().copied().min().unwrap_or(u64::MAX));
        due_ns = due_ns.min(self.undo.first_key_value().map_or(u64::MAX, |((due_ns, _), _)| *due_ns));
        due_ns = due_ns.min(self.operators.due_ns());
        if self.phase == RunPhase::Traffic && !self.faults_are_over() {
            due_ns = due_ns.min(self.faults.due_ns());
        }
        if self.asks_more() {
            let asks = self.clients.iter().zip(&self.asks_due_ns);
            let free = asks
                .filter(|(client, _)| client.outstanding() < self.plan.outstanding && !client.is_stalled());
            due_ns = due_ns.min(free.map(|(_, due_ns)| *due_ns).min().unwrap_or(u64::MAX));
        }
        for node in &self.nodes {
            due_ns = due_ns.min(node.due_ns());
        }
        for client in &self.clients {
            due_ns = due_ns.min(client.due_ns());
        }
        due_ns.min(self.now_ns + 100 * MS)
    }

    fn step_undo(&mut self) {
        while let Some(entry) = self.undo.first_entry().filter(|entry| entry.key().0 <= self.now_ns) {
            let undo = entry.remove();
            self.undo(undo);
        }
    }

    fn step_faults(&mut self) -> Result<(), Broken> {
        if self.phase != RunPhase::Traffic || self.faults_are_over() {
            return Ok(());
        }
        let operations = self.coverage.count(Event::Operations);
        while let Some(fault) = self.faults.take(&self.plan, self.now_ns, operations) {
            let kind = FAULTS.iter().position(|known| *known == fault).unwrap_or(0) as u64;
            self.note(kind << 8 | 1);
            let number = self.faults_started;
            self.faults_started += 1;
            // Not at the very moment of an answer: that is when nothing is in flight.
            let after_ns = self.random.below(300 * US) + self.move_before_fault();
            if !self.options.without.has(number) {
                self.later(after_ns, Undo::Inject(fault, number));
            }
        }
        Ok(())
    }

    fn step_nodes(&mut self) -> Result<(), Broken> {
        let mut at = 0;
        while at < self.nodes.len() {
            let node = &mut self.nodes[at];
            node.wake_by_input(self.now_ns);
            if node.due_ns() > self.now_ns {
                at += 1;
                continue;
            }
            let (host, mut news) = (node.host, Vec::new());
            let calls = Calls {
                now_ns: self.now_ns,
                percent: self.plan.interleaved_percent,
                call_ns: self.plan.call_ns,
                longest_ns: self.plan.lease.ttl_ms * 250_000,
                random: self.calls.part(),
            };
            let between = interleave::step(at, &mut self.nodes, &self.coordinator, calls, &mut news);
            self.now_ns = between.now_ns;
            self.coverage.add(Event::Interleaved, between.steps);
            for (other, news) in between.gathered {
                self.take_news(other, news)?;
            }
            self.take_news(host, news)?;
            at += usize::from(self.nodes.get(at).is_some_and(|node| node.host == host));
        }
        Ok(())
    }

    /// What a node's step reported; the dead report nothing but that a rule was broken, and that they let a
    /// pair go before they died: the coordinator may know it by their last call.
    fn take_news(&mut self, host: u32, mut news: Vec<News>) -> Result<(), Broken> {
        let burnt = self.nodes.iter().any(|node| node.host == host && node.fuse.is_burnt());
        if burnt {
            news.retain(|news| matches!(news, News::Broken(_) | News::Left(_)));
        }
        news.into_iter().try_for_each(|news| self.on_news(host, news))?;
        if burnt {
            self.burnt(host);
        }
        Ok(())
    }

    fn step_clients(&mut self) -> Result<(), Broken> {
        let mut spoken = Vec::new();
        for (number, client) in self.clients.iter_mut().enumerate() {
            if client.is_frozen(self.now_ns) {
                continue;
            }
            if client.due_ns() <= self.now_ns || client.has_input() {
                spoken.extend(client.step(self.now_ns).into_iter().map(|answer| (number, answer)));
                if client.answered_after_rest() {
                    self.owners.demand_living(&self.coordinator)?;
                }
            }
        }
        for (number, (asked, mut completion)) in spoken {
            self.falsify(&mut completion);
            say!(self, "client {number}: {}", crate::wording::answer(&asked, &completion));
            self.note(completion.elapsed_ns << 8 | 3);
            self.answered_ns = self.now_ns;
            if check::is_completed(&completion.outcome) {
                self.completed += u64::from(matches!(self.phase, RunPhase::Traffic | RunPhase::Quiet));
            } else {
                self.came_to_nothing(1);
            }
            check::answered(&asked, &completion, &mut self.model, &mut self.coverage)?;
            self.look_at_touched(&asked, &completion)?;
            self.asks_due_ns[number] = self.now_ns + self.random.time_ns(self.plan.think_ns);
            self.read_on(number, &asked, &completion)?;
        }
        match self.clients.iter().find_map(Client::dismissed) {
            Some(error) => Err(broken(format_args!("a client was dismissed: {error}"))),
            None => Ok(()),
        }
    }

    /// After a write the tree nodes on the way to its key are checked, and now and then everything.
    fn look_at_touched(&self, asked: &Asked, completion: &Completion) -> Result<(), Broken> {
        if let (Action::Write { key, .. }, Ok(_)) = (&asked.action, &completion.outcome) {
            let key = &self.model.keys[*key].bytes;
            self.nodes.iter().try_for_each(|node| node.check_path(key))?;
        }
        if self.coverage.count(Event::Operations).is_multiple_of(EVERYTHING_EVERY) {
            self.nodes.iter().try_for_each(|node| node.check_everything())?;
        }
        Ok(())
    }

    fn step_traffic(&mut self) -> Result<(), Broken> {
        if !self.asks_more() {
            return Ok(());
        }
        for number in 0..self.clients.len() {
            while self.asks_due_ns[number] <= self.now_ns
                && self.clients[number].outstanding() < self.plan.outstanding
                && !self.clients[number].is_stalled()
                && self.asked < self.operations_wanted()
            {
                let action = self.traffic.next(&self.plan, &mut self.model);
                let patience_ns =
                    if self.random.percent(10) { self.random.between(MS, 200 * MS) } else { 600_000 * MS };
                let deadline_ns = self.now_ns + patience_ns;
                let client = &mut self.clients[number];
                match client.ask(action, deadline_ns, self.now_ns, &mut self.model) {
                    Ok(true) => self.asked += 1,
                    Ok(false) => break,
                    Err(error) => {
                        return Err(broken(format_args!("a client did not take a action: {error:?}")));
                    }
                }
                if self.random.percent(30) {
                    self.asks_due_ns[number] = self.now_ns + self.random.time_ns(self.plan.think_ns);
                }
            }
        }
        Ok(())
    }

    /// Plants a false answer, if a test wants one.
    fn falsify(&mut self, completion: &mut cell_client::Completion) {
        use cell_client::Output;
        if self.coverage.count(Event::Acknowledged) < 100 {
            return; // early on much is concurrent, and more is right
        }
        let outcome = match (self.planted, &completion.outcome) {
            (Some(Planted::ReadMissed), Ok(Output::Value(Some(_)))) => Ok(Output::Value(None)),
            (Some(Planted::DeleteInvented), Ok(Output::Deleted(false))) => Ok(Output::Deleted(true)),
            _ => return,
        };
        say!(self, "PLANTED: {:?} instead of {:?}", outcome, completion.outcome);
        completion.outcome = outcome;
        self.planted = None;
    }

    /// Whether clients ask: once faults have ceased, in the place of what failed.
    fn asks_more(&self) -> bool {
        self.phase == RunPhase::Traffic || (self.phase == RunPhase::Quiet && !self.traffic_is_over())
    }

    /// Whether the clients have asked for all that they are to ask, or time is up.
    pub(crate) fn traffic_is_over(&self) -> bool {
        self.asked >= self.operations_wanted()
    }

    /// Operations that nobody answered: others are asked in their place.
    pub(crate) fn came_to_nothing(&mut self, operations: u64) {
        self.asked = self.asked.saturating_sub(operations);
    }

    /// Whether faults have had their time: what is still to be asked is asked without.
    pub(crate) fn faults_are_over(&self) -> bool {
        let turned = self.turns > TRAFFIC_TURNS_MAX && self.coverage.count(Event::Faults) >= FAULTS_MIN;
        turned || self.now_ns - START_NS > TRAFFIC_NS_MAX
    }

    fn operations_wanted(&self) -> u64 {
        let stop_after = self.options.stop_after;
        if stop_after > 0 {
            return if self.move_watch.is_pending() { u64::MAX } else { stop_after };
        }
        let more = self.coverage.count(Event::Faults) < FAULTS_MIN && !self.faults_are_over();
        if more { u64::MAX } else { self.plan.operations }
    }

    /// Whether the creation that was to be broken off was.
    fn has_broken_creation(&self) -> bool {
        self.options.break_creation && !self.operators.breaks_creation.load(Ordering::Relaxed)
    }

    /// The network as the plan has it.
    pub(crate) fn calm_network(&self) -> SimOptions {
        SimOptions { spike_per_million: 0, reset_per_million: 0, ..self.plan.network }
    }
}
