//! A drill from its first write to its proof.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cell_client::{Client, ClientOptions, ScanRange, Search};
use cell_cluster::boottime_ns;
use cell_terms::text::with_causes;

use crate::deadline::EndOfAll;
use crate::door::CHECK_WITHIN;
use crate::error::DrillError;
use crate::fault::FaultKind;
use crate::journal::{Closed, Journal};
use crate::keys::Keys;
use crate::lane::{LANE_STEP, Lane};
use crate::leftover::Leftover;
use crate::load::{Load, READ_PATIENCE, Target, Traffic};
use crate::notice::Notice;
use crate::places::keys_of;
use crate::proof::{DrillProof, Reader, prove};
use crate::report::{DrillVerdict, Report, Unavailable};
use crate::rolling::{Rolling, RollingAction, RollingStage, gone};
use crate::supervisor::{Supervisor, Supervisors};
use crate::timeline::{DrillEvent, Moment, Timeline};
use crate::wire::{DrillRequest, NodeView, Status};

/// How often to look whether a wait is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Traffic goes on for so long after everything is back.
const AFTERWARDS: Duration = Duration::from_millis(500);
/// How often keys are asked for at least that one-sided search has not answered.
const ONE_SIDED_TRIES: usize = 5;
/// For so long, in a whole proof, they are asked for again and again: right after a fault a busy server
/// renews its readers' trust late.
const ONE_SIDED_PATIENCE: Duration = Duration::from_secs(20);

/// What is to be drilled.
pub struct Drill {
    /// Who does faults to the cluster's nodes.
    pub at: Supervisors,
    /// What to do.
    pub fault: FaultKind,
    /// To which node.
    pub node: u16,
    /// For how long; if not said, what suits the fault and the number of nodes.
    pub lasts: Option<Duration>,
    /// By how much a slow disk is slower.
    pub delay: Duration,
    /// How long there is load before it.
    pub before: Duration,
    /// How long everything may take to be back.
    pub patience: Duration,
    /// How much load.
    pub load: Load,
    /// What clients are given that is not the drill's to say: transport, retries.
    pub options: ClientOptions,
    /// Whether the drill's entries stay in the store, whatever it shows.
    pub keep: bool,
    /// The number of the claim that who runs it has taken ([`crate::ClaimRow::number`]); none: it has none.
    pub claim: Option<u64>,
}

/// A fault that is taken back when this is dropped, however the drill ends.
struct Injected<'a> {
    supervisor: &'a mut Supervisor,
    healing: Option<DrillRequest>,
    notify: &'a (dyn Fn(Notice) + Sync),
}

impl Injected<'_> {
    /// Nothing is to be taken back at a node that has no place in the cluster any more.
    fn forget_gone(&mut self, status: &Status) {
        let is_there = |node: u16| status.node(node).is_some();
        self.healing = self.healing.filter(|request| request.node().is_none_or(is_there));
    }

    /// Takes it back, once; when that was.
    fn heal(&mut self) -> Result<Option<u64>, DrillError> {
        let healed = self.healing.take().map(|request| self.supervisor.ask(request));
        Ok(healed.transpose()?.map(|answer| answer.at_ns))
    }
}

impl Drop for Injected<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.heal() {
            (self.notify)(Notice::NotHealed(error.to_string()));
        }
    }
}

impl Drill {
    /// Whether it can begin now: the supervisor does faults, the node is there and the cluster is healthy.
    /// What is returned is the drill's turn, for [`Drill::run_in`]: as long as it is held no other drill
    /// begins, and no node comes or goes. It takes [`crate::CHECK_WITHIN`] at most, and no longer than
    /// `within`; `waits_for` is called meanwhile with whom it waits for, in words.
    ///
    /// # Errors
    /// What is in the way.
    pub fn check(&self, within: Duration, waits_for: &dyn Fn(String)) -> Result<Supervisor, DrillError> {
        let end = EndOfAll::after(within.min(CHECK_WITHIN));
        let mut supervisor = Supervisor::reach_until(&self.at, end, waits_for)?;
        waits_for("what is said of how all nodes are".to_owned());
        self.begin(&mut supervisor)?;
        supervisor.end_never();
        Ok(supervisor)
    }

    /// Takes the turn, which lasts as long as the connection, unless this one has it already.
    fn begin(&self, supervisor: &mut Supervisor) -> Result<Status, DrillError> {
        let node = (self.fault != FaultKind::Rolling).then_some(self.node);
        supervisor.ask(DrillRequest::Begin { node, claim: self.claim })?;
        let (_, status) = supervisor.status()?;
        if let Some(node) = supervisor.without_agent(&status) {
            return Err(DrillError::NoAgent { node });
        }
        self.check_status(&status)?;
        Ok(status)
    }

    /// Runs it, until `interrupted` is set; `notify` is called with how it goes, from several threads.
    ///
    /// # Errors
    /// What kept it from being run to its end. Whatever it shows is in the report.
    pub fn run(
        self,
        interrupted: &AtomicBool,
        notify: &(dyn Fn(Notice) + Sync),
    ) -> Result<Report, DrillError> {
        let turn = Supervisor::reach(&self.at)?;
        self.run_in(turn, interrupted, notify)
    }

    /// The same in the turn in which it was checked: nobody else's comes between.
    ///
    /// # Errors
    /// As there.
    pub fn run_in(
        self,
        mut supervisor: Supervisor,
        interrupted: &AtomicBool,
        notify: &(dyn Fn(Notice) + Sync),
    ) -> Result<Report, DrillError> {
        let status = self.begin(&mut supervisor)?;
        let status = self.await_moves(&mut supervisor, status, interrupted)?;
        if self.owns_nothing(&status) {
            notify(Notice::OwnsNothing { node: self.node });
        }
        let target = Target { servers: servers(&status), options: self.options.clone() };
        let run = RandomState::new().build_hasher().finish();
        let drilled = (self.fault != FaultKind::Rolling).then_some(self.node);
        let keys = keys_of(run, &target, &status, drilled, interrupted)?;
        let (journal, stop, ended) = (Journal::default(), AtomicBool::new(false), AtomicBool::new(false));
        let clients = (0..self.load.threads)
            .map(|thread| Traffic::connect(&target, &keys, &journal, self.load, thread))
            .collect::<Result<Vec<_>, _>>()?;
        let mut leftover = Leftover::begin(&target, &keys, interrupted, notify)?;
        let injected = thread::scope(|scope| {
            let threads: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(|| client.run(&stop))).collect();
            let lane = scope.spawn(|| follow_lane(&journal, &ended, notify));
            let injected = self.carry_out(&status, &mut supervisor, interrupted, notify);
            stop.store(true, Ordering::Relaxed);
            let join = |thread: thread::ScopedJoinHandle<'_, Result<(), DrillError>>| {
                thread.join().expect("a drill's client does not panic")
            };
            let clients: Result<(), DrillError> = threads.into_iter().try_for_each(join);
            ended.store(true, Ordering::Relaxed);
            lane.thread().unpark();
            clients.and(injected)
        });
        let (timeline, back_ns, mut troubles) = injected?;
        let closed = journal.close();
        let tally = closed.tally;
        let victims = |pair: u32| timeline.has_owned(pair);
        let unavailable =
            Unavailable::within(&closed.waits, timeline.injected_ns(), back_ns, &victims, &keys);
        notify(Notice::ReadingBack);
        let own: Vec<_> = closed.history.keys().cloned().collect();
        let proof = match read_back(&target, closed, &keys, interrupted) {
            Err(DrillError::Interrupted) => return Err(DrillError::Interrupted),
            proof => proof.map_err(|error| troubles.push(with_causes(&error))).ok(),
        };
        let Drill { fault, node, delay, .. } = self;
        let delay = (fault == FaultKind::SlowDisk).then_some(delay);
        let entries_left = own.len() as u64 + leftover.stems();
        let mut report =
            Report { fault, node, delay, run, timeline, tally, unavailable, proof, troubles, entries_left };
        // Of one that failed they are evidence.
        if report.verdict() != DrillVerdict::Fail && !self.keep && leftover.remove(&own) {
            report.entries_left = 0;
        }
        Ok(report)
    }

    /// Waits until balance moves nothing any more: the keys are to lie in what the node owns. If that takes
    /// too long, the drill goes on.
    fn await_moves(
        &self,
        supervisor: &mut Supervisor,
        mut status: Status,
        interrupted: &AtomicBool,
    ) -> Result<Status, DrillError> {
        let given_up = Instant::now() + self.patience;
        while !status.moving.is_empty() && Instant::now() < given_up {
            sleep_unless(interrupted, supervisor.rest_time())?;
            (_, status) = supervisor.status()?;
            self.check_status(&status)?;
        }
        Ok(status)
    }

    /// Refuses what cannot show anything, before anything is done.
    fn check_status(&self, status: &Status) -> Result<(), DrillError> {
        if self.fault != FaultKind::Rolling && status.node(self.node).is_none() {
            let nodes = status.nodes.iter().map(|node| node.node).collect();
            return Err(DrillError::NoSuchNode { node: self.node, nodes });
        }
        let fit = |of: &NodeView| {
            let spared = of.state == "given up" && of.node != self.node;
            spared || (of.state == "serving" && !of.partitioned && of.disk_delay_ms == 0)
        };
        if let Some(unfit) = status.nodes.iter().find(|node| !fit(node)) {
            let state = match unfit {
                NodeView { partitioned: true, .. } => "cut off".to_owned(),
                NodeView { disk_delay_ms: 1.., .. } => "slowed down".to_owned(),
                NodeView { state, .. } => state.clone(),
            };
            return Err(DrillError::Unhealthy { node: unfit.node, state });
        }
        let drained = status.nodes.iter().find(|node| node.drained_by.is_some());
        if let Some(drained) = drained.filter(|_| self.fault == FaultKind::Rolling) {
            return Err(DrillError::Unhealthy { node: drained.node, state: "to be emptied".to_owned() });
        }
        Ok(())
    }

    /// How long the fault lasts.
    fn lasts(&self, nodes: usize) -> Duration {
        const DEFAULT: Duration = Duration::from_secs(3);
        match (self.lasts, self.fault) {
            (Some(lasts), _) => lasts,
            (None, FaultKind::Restart) => Duration::ZERO,
            // With nobody to take over there is nothing to wait for.
            (None, FaultKind::Kill) if nodes == 1 => Duration::ZERO,
            (None, _) => DEFAULT,
        }
    }

    /// Whether it would show nothing.
    fn owns_nothing(&self, status: &Status) -> bool {
        let owns = status.pairs.iter().any(|pair| pair.node == u32::from(self.node));
        self.fault != FaultKind::Rolling && !owns
    }

    /// Load alone, then what is to be drilled, then until everything is back. `checked` is the cluster that
    /// was found healthy.
    fn carry_out(
        &self,
        checked: &Status,
        supervisor: &mut Supervisor,
        interrupted: &AtomicBool,
        notify: &(dyn Fn(Notice) + Sync),
    ) -> Result<(Timeline, u64, Vec<String>), DrillError> {
        match self.fault {
            FaultKind::Rolling => self.roll(checked, supervisor, interrupted, notify),
            _ => self.inject(supervisor, interrupted, notify),
        }
    }

    /// Load alone, then the fault, then until everything is back.
    fn inject(
        &self,
        supervisor: &mut Supervisor,
        interrupted: &AtomicBool,
        notify: &(dyn Fn(Notice) + Sync),
    ) -> Result<(Timeline, u64, Vec<String>), DrillError> {
        sleep_unless(interrupted, self.before)?;
        let (_, before) = supervisor.status()?;
        let lasts = self.lasts(before.nodes.len());
        let request = self.fault.injection(self.node, lasts, self.delay);
        notify(Notice::Injecting { fault: self.fault, node: self.node });
        let injected_ns = supervisor.ask(request)?.at_ns;
        let mut fault = Injected { supervisor, healing: self.fault.healing(self.node), notify };
        let mut timeline = Timeline::new(self.node, &before, injected_ns);
        let until = Instant::now() + lasts;
        let given_up = until + self.patience;
        let mut back: Option<(Instant, u64)> = None;
        let (mut reported, mut is_over, mut troubles) = (Vec::new(), false, Vec::new());
        loop {
            if interrupted.load(Ordering::Relaxed) {
                if let Some(at_ns) = self.take_back(&mut fault)? {
                    timeline.note(at_ns, DrillEvent::Healed, None);
                    report_moments(&timeline, &mut reported, notify);
                }
                notify(Notice::Healing);
                return Err(DrillError::Interrupted);
            }
            let now = Instant::now();
            if now >= until && !is_over {
                is_over = true;
                troubles.extend(self.end(&mut fault, &mut timeline)?);
                notify(Notice::Healing);
            }
            let (at_ns, status) = fault.supervisor.status()?;
            timeline.look(at_ns, &status);
            if status.node(self.node).is_none() {
                fault.forget_gone(&status);
                return Ok((timeline, at_ns, vec![gone(self.node)]));
            }
            if is_over && has_come(self.fault, self.node, &before, &status) && timeline.is_all_back(&status) {
                timeline.note(at_ns, DrillEvent::AllBack, None);
                report_moments(&timeline, &mut reported, notify);
                let (since, back_ns) = *back.get_or_insert((now, at_ns));
                if now.duration_since(since) >= AFTERWARDS {
                    return Ok((timeline, back_ns, troubles));
                }
            } else {
                // A node that stood still may look well until it notices that its lease is over.
                back = None;
                timeline.forget(DrillEvent::AllBack);
                report_moments(&timeline, &mut reported, notify);
                if now >= given_up {
                    troubles.push(lacking(&status));
                    return Ok((timeline, at_ns, troubles));
                }
            }
            fault.supervisor.rest();
        }
    }

    /// Takes a fault back whose time is over; what is wrong if it had not lasted so long. Who stands still is
    /// taken for dead by the agent, which takes back what lasts.
    fn end(&self, fault: &mut Injected<'_>, timeline: &mut Timeline) -> Result<Option<String>, DrillError> {
        let (_, status) = fault.supervisor.status()?;
        let lasted = status.node(self.node).is_none_or(|node| self.fault.lasts_at(node));
        if let Some(at_ns) = fault.heal()? {
            timeline.note(at_ns, DrillEvent::Healed, None);
        }
        Ok((!lasted).then(|| format!("the fault at node {} had ended before its time", self.node)))
    }

    /// Load alone, then each node of the healthy cluster in turn is emptied, stopped, started and given pairs
    /// again.
    fn roll(
        &self,
        checked: &Status,
        supervisor: &mut Supervisor,
        interrupted: &AtomicBool,
        notify: &(dyn Fn(Notice) + Sync),
    ) -> Result<(Timeline, u64, Vec<String>), DrillError> {
        let now_ms = || boottime_ns() / 1_000_000;
        sleep_unless(interrupted, self.before)?;
        let (begin_ns, before) = supervisor.status()?;
        let patience_ms = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        let mut rolling = Rolling::new(checked, now_ms(), patience_ms);
        let (mut timeline, mut reported) = (Timeline::of_all(&before, begin_ns), Vec::new());
        notify(Notice::Injecting { fault: self.fault, node: self.node });
        // However it ends, the node whose turn it is may have pairs again.
        let mut fault = Injected { supervisor, healing: None, notify };
        loop {
            if interrupted.load(Ordering::Relaxed) {
                fault.heal()?;
                notify(Notice::Healing);
                return Err(DrillError::Interrupted);
            }
            let (at_ns, status) = fault.supervisor.status()?;
            let without_agent = fault.supervisor.without_agent(&status);
            match rolling.look(now_ms(), &status, without_agent) {
                RollingAction::Ask(request, stage) => {
                    fault.supervisor.ask(request)?;
                    let node = request.node().unwrap_or_default();
                    fault.healing =
                        (stage != RollingStage::Back).then_some(DrillRequest::Drain { node, on: false });
                    notify(Notice::Rolling { node, stage });
                }
                RollingAction::Wait => fault.supervisor.rest(),
                RollingAction::Done => {
                    timeline.note(at_ns, DrillEvent::AllBack, None);
                    report_moments(&timeline, &mut reported, notify);
                    thread::sleep(AFTERWARDS);
                    return Ok((timeline, at_ns, Vec::new()));
                }
                RollingAction::Stuck(why) => {
                    fault.forget_gone(&status);
                    return Ok((timeline, at_ns, vec![why]));
                }
            }
        }
    }

    /// The drill was interrupted: the fault is over now. A killed node, which would come back when its time
    /// is over, is started at once. When that was; none if there was nothing to do.
    fn take_back(&self, fault: &mut Injected<'_>) -> Result<Option<u64>, DrillError> {
        if self.fault != FaultKind::Kill {
            return fault.heal();
        }
        let (_, status) = fault.supervisor.status()?;
        let is_down = status.node(self.node).is_some_and(|node| node.state == "down");
        let start = DrillRequest::Restart { node: self.node };
        Ok(is_down.then(|| fault.supervisor.ask(start)).transpose()?.map(|answer| answer.at_ns))
    }
}

/// Reports the moments, if they are not those of the last report.
fn report_moments(timeline: &Timeline, reported: &mut Vec<Moment>, notify: &dyn Fn(Notice)) {
    let moments = timeline.moments();
    if *reported != moments {
        reported.clone_from(&moments);
        notify(Notice::Moments(moments));
    }
}

/// Reports how the clients fare, a step at a time, until they have ended.
fn follow_lane(journal: &Journal, ended: &AtomicBool, notify: &dyn Fn(Notice)) {
    let mut lane = Lane::new(boottime_ns());
    while !ended.load(Ordering::Relaxed) {
        let until = Instant::now() + LANE_STEP;
        while !ended.load(Ordering::Relaxed)
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            thread::park_timeout(left);
        }
        notify(Notice::Lane(lane.step(boottime_ns(), journal.sample())));
    }
}

/// Reads everything back over both search paths.
fn read_back(
    target: &Target,
    closed: Closed,
    keys: &Keys,
    interrupted: &AtomicBool,
) -> Result<DrillProof, DrillError> {
    let mut client = OneSided {
        client: target.connect(Search::Client, READ_PATIENCE)?,
        patience: ONE_SIDED_PATIENCE,
        strayed: 0,
    };
    let mut server = target.connect(Search::Server, READ_PATIENCE)?;
    prove(closed, keys, &mut [("client", &mut client), ("server", &mut server)], interrupted)
}

/// A reader that searches the servers' memory, and looks at its counters after each answer: what the server
/// was asked for in the end is asked for again.
struct OneSided {
    client: Client,
    /// What is left of [`ONE_SIDED_PATIENCE`].
    patience: Duration,
    strayed: u64,
}

impl OneSided {
    /// Operations that were answered one-sided, and those that were not.
    fn counted(&self) -> (u64, u64) {
        self.client.one_sided_counters().map_or((0, 0), |counters| (counters.done, counters.fell_back))
    }
}

impl Reader for OneSided {
    fn get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, DrillError> {
        let (began, mut tries) = (Instant::now(), 0);
        loop {
            tries += 1;
            let (done, fell_back) = self.counted();
            let values = Reader::get(&mut self.client, keys)?;
            let (done_now, fell_back_now) = self.counted();
            let waited = if tries == 1 { Duration::ZERO } else { began.elapsed() };
            let is_one_sided = done_now > done && fell_back_now == fell_back;
            if is_one_sided || tries >= ONE_SIDED_TRIES && waited >= self.patience {
                self.patience = self.patience.saturating_sub(waited);
                self.strayed += if is_one_sided { 0 } else { keys.len() as u64 };
                return Ok(values);
            }
        }
    }

    fn scan(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), DrillError> {
        Reader::scan(&mut self.client, each)
    }

    fn strayed(&self) -> u64 {
        self.strayed
    }
}

impl Reader for Client {
    fn get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, DrillError> {
        let items = self.multi_get(keys)?;
        Ok(items.into_iter().map(|item| item.map(|item| item.value)).collect())
    }

    fn scan(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), DrillError> {
        for entry in Client::scan(self, ScanRange::default()) {
            let entry = entry?;
            each(&entry.key, &entry.value);
        }
        Ok(())
    }
}

/// Where clients connect: every node that has a process.
fn servers(status: &Status) -> String {
    let living = status.nodes.iter().filter(|node| node.pid.is_some());
    let servers: Vec<_> = living.map(|node| status.server_of(node)).collect();
    servers.join(",")
}

/// Whether a process that the fault ends has ended: until then a cluster looks healthy.
fn has_come(fault: FaultKind, node: u16, before: &Status, now: &Status) -> bool {
    let lives = |status: &Status| status.node(node).map_or(0, |node| node.lives);
    let given_up = now.node(node).is_some_and(|node| node.state == "given up");
    !fault.ends_process() || given_up || lives(now) > lives(before)
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

fn sleep_unless(interrupted: &AtomicBool, duration: Duration) -> Result<(), DrillError> {
    let until = Instant::now() + duration;
    while Instant::now() < until {
        if interrupted.load(Ordering::Relaxed) {
            return Err(DrillError::Interrupted);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
