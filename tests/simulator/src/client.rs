//! A client: the production core and driver over the simulated network, and what it was asked that it has not
//! answered.

use std::collections::BTreeMap;

use cell_client::{
    ClientCore, ClientError, ClientOptions, Completion, Driver, OneSidedCounters, Operation, Output, Search,
    Ticket, WhoSearches,
};
use cell_fabric::{Address, Endpoint, FabricLimits, SimEndpoint, SimNetwork};

use crate::action::Action;
use crate::model::{Model, Started};
use crate::plan::{CLIENT_HOST, Plan, scaled};

/// What a client was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What.
    pub action: Action,
    /// When.
    pub started: Started,
}

/// What a client did with an action that it took.
enum Taken {
    Answered(Completion),
    Submitted(Ticket),
}

/// See the module's text.
pub struct Client {
    /// Its host.
    pub host: u32,
    driver: Driver<SimEndpoint>,
    asked: BTreeMap<Ticket, Asked>,
    /// Gets and searches that were answered as they were asked; the next step returns them.
    at_once: Vec<(Asked, Completion)>,
    /// How many of those there were.
    pub(crate) answered_at_once: u64,
    /// Something was asked that it has not started.
    kicked_ns: u64,
    /// When the core is due: asked once a step, because the world asks at every turn.
    core_due_ns: u64,
    /// Until then it is stopped, as by SIGSTOP; its reads go on without it.
    frozen_until_ns: u64,
    /// Its clock's drift, in millionths.
    drift_ppm: i64,
    /// It is to be stopped for so long within its next step that begins an operation.
    stall_ns: Option<u64>,
    /// Within the present step it was stopped: when.
    stalled_ns: Option<u64>,
    /// Steps within which it was stopped.
    pub(crate) stalls: u64,
    /// When it was stepped last.
    stepped_ns: u64,
    /// More time between two steps is long: half a lease.
    rest_ns: u64,
    /// See [`Client::answered_after_rest`].
    answered_after_rest: bool,
}

impl Client {
    /// A client that knows where nodes may be.
    #[must_use]
    pub fn new(plan: &Plan, number: usize, network: &SimNetwork, seed: u64) -> Client {
        let host = CLIENT_HOST + u32::try_from(number).unwrap_or(0);
        let endpoint = network.client(host, FabricLimits::default());
        let searches = plan.searches[number % plan.searches.len()];
        let search = match plan.chooses[number % plan.chooses.len()] {
            true => Search::Auto,
            false if searches => Search::Client,
            false => Search::Server,
        };
        let core = ClientCore::new(ClientOptions { search, ..plan.client.clone() }, seed);
        let addresses = plan.hosts().map(Address::Sim).collect();
        let driver = Driver::new(endpoint, core, addresses);
        let asked = BTreeMap::new();
        Client {
            host,
            driver,
            asked,
            at_once: Vec::new(),
            answered_at_once: 0,
            kicked_ns: 0,
            core_due_ns: u64::MAX,
            frozen_until_ns: 0,
            drift_ppm: plan.client_drift_ppm[number % plan.client_drift_ppm.len()],
            stall_ns: None,
            stalled_ns: None,
            stalls: 0,
            stepped_ns: 0,
            rest_ns: plan.lease_ns() / 2,
            answered_after_rest: false,
        }
    }

    /// Asks for a action; false if the client takes no more.
    ///
    /// # Errors
    /// What the client says of a action that it cannot take at all.
    pub fn ask(
        &mut self,
        action: Action,
        deadline_ns: u64,
        now_ns: u64,
        model: &mut Model,
    ) -> Result<bool, ClientError> {
        let started = model.begin();
        let (clock_ns, deadline_ns) = (self.clock_ns(now_ns), self.clock_ns(deadline_ns));
        let submitted = model.with_operation(&action, |operation| {
            let who = match self.answer_at_once(operation, clock_ns) {
                Ok(found) => return Ok(Taken::Answered(found)),
                Err(who) => who,
            };
            self.driver.core().submit_to(who, clock_ns, operation, deadline_ns).map(Taken::Submitted)
        });
        match submitted {
            Ok(Taken::Answered(completion)) => {
                self.at_once.push((Asked { action, started }, completion));
                self.answered_at_once += 1;
                self.kicked_ns = self.kicked_ns.min(now_ns);
                Ok(true)
            }
            Ok(Taken::Submitted(ticket)) => {
                model.writing(&action, 1);
                self.asked.insert(ticket, Asked { action, started });
                self.kicked_ns = self.kicked_ns.min(now_ns);
                Ok(true)
            }
            Err(ClientError::QueueFull { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A get, a search or a page is first looked for in memory that is mapped, as the blocking client does.
    fn answer_at_once(
        &mut self,
        operation: &Operation<'_>,
        clock_ns: u64,
    ) -> Result<Completion, WhoSearches> {
        let clock = &mut || clock_ns;
        let output = match operation {
            Operation::Get { key } => Output::Value(self.driver.get_at_once(clock, key)?),
            Operation::Search { key } => Output::Exists(self.driver.search_at_once(clock, key)?),
            Operation::Scan(scan) => Output::Page(self.driver.scan_at_once(clock, scan)?),
            _ => return Err(WhoSearches::Undecided),
        };
        Ok(Completion { ticket: Ticket(u64::MAX), elapsed_ns: 0, outcome: Ok(output) })
    }

    /// Takes in what has happened; the answers that came.
    pub fn step(&mut self, now_ns: u64) -> Vec<(Asked, Completion)> {
        if let Some(lasts_ns) = self.stall_ns.take_if(|_| self.kicked_ns <= now_ns) {
            self.stalled_ns = Some(now_ns);
            self.frozen_until_ns = now_ns + lasts_ns;
            self.stalls += 1;
            return Vec::new();
        }
        self.kicked_ns = u64::MAX;
        // The step may have started with a look at the clock, before it was stopped.
        let stalled_ns = self.stalled_ns.take();
        let (mut first, clock_ns) = (stalled_ns.map(|at_ns| self.clock_ns(at_ns)), self.clock_ns(now_ns));
        let done = self.one_sided().done;
        let completions = self.driver.core_ref().completions();
        let happened = self.driver.step(&mut || first.take().unwrap_or(clock_ns));
        let answered = self.driver.core_ref().completions() > completions;
        assert!(happened > 0 || !answered, "a client's thread would sleep on an answer that is there");
        let rested_ns = now_ns.saturating_sub(std::mem::replace(&mut self.stepped_ns, now_ns));
        let has_answered = stalled_ns.is_none() && self.one_sided().done > done;
        self.answered_after_rest = has_answered && rested_ns > self.rest_ns;
        let mut answers = std::mem::take(&mut self.at_once);
        while let Some(completion) = self.driver.core().completion() {
            let asked = self.asked.remove(&completion.ticket);
            answers.extend(asked.map(|asked| (asked, completion)));
        }
        let due_ns = self.driver.core_ref().due_ns();
        self.core_due_ns = due_ns.map_or(u64::MAX, |due_ns| self.world_ns(due_ns));
        answers
    }

    /// The client's own clock, which drifts.
    fn clock_ns(&self, now_ns: u64) -> u64 {
        let clock = scaled(now_ns, 1_000_000 + self.drift_ppm, 1_000_000);
        u64::try_from(clock).unwrap_or(u64::MAX)
    }

    /// The world's time at which the client's clock will stand so, or a little later.
    fn world_ns(&self, clock_ns: u64) -> u64 {
        let world = scaled(clock_ns, 1_000_000, 1_000_000 + self.drift_ppm);
        u64::try_from(world + 1).unwrap_or(u64::MAX)
    }

    /// Lets it stop for so long within its next step that begins an operation.
    pub fn stall(&mut self, lasts_ns: u64) {
        self.stall_ns = Some(lasts_ns);
    }

    /// Whether it has stopped within a step: it takes no action then.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled_ns.is_some()
    }

    /// Whether, in its last step and long after the one before, it returned what it had read itself.
    #[must_use]
    pub fn answered_after_rest(&self) -> bool {
        self.answered_after_rest
    }

    /// Gives everything up, as a client that dies does: what it was asked and had not answered.
    #[must_use]
    pub fn end(self) -> Vec<Asked> {
        self.asked.into_values().chain(self.at_once.into_iter().map(|(asked, _)| asked)).collect()
    }

    /// Operations without an answer.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.asked.len() + self.at_once.len()
    }

    /// One of the actions without an answer, and where the client is with it.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let asked = self.asked.values().next()?;
        let due_ns = self.driver.core_ref().due_ns();
        // Without a value of half a MiB.
        let action: String = format!("{:?}", asked.action).chars().take(120).collect();
        let reads = self.driver.core_ref().one_sided_counters();
        Some(format!("host {} (due at {due_ns:?}) waits for {action}, {reads:?}", self.host))
    }

    /// Stops it until this time.
    pub fn freeze(&mut self, until_ns: u64) {
        self.frozen_until_ns = until_ns;
    }

    /// It goes on at once.
    pub fn thaw(&mut self, now_ns: u64) {
        self.stall_ns = None;
        self.frozen_until_ns = self.frozen_until_ns.min(now_ns);
    }

    /// Whether it is stopped now.
    #[must_use]
    pub fn is_frozen(&self, now_ns: u64) -> bool {
        now_ns < self.frozen_until_ns
    }

    /// What its one-sided path has counted, if it searches itself.
    #[must_use]
    pub fn one_sided(&self) -> OneSidedCounters {
        self.driver.core_ref().one_sided_counters().copied().unwrap_or_default()
    }

    /// Whether the network has something for it.
    pub fn has_input(&mut self) -> bool {
        !self.driver.endpoint().prepare_sleep()
    }

    /// When it is to be stepped, if nothing reaches it before.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.core_due_ns.min(self.kicked_ns).max(self.frozen_until_ns)
    }

    /// Why the server turned it away for good, if it did.
    #[must_use]
    pub fn dismissed(&self) -> Option<ClientError> {
        self.driver.core_ref().dismissed()
    }
}
