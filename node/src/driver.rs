//! The worker's loop, without its thread. One turn gives the worker the time, hands it what has come from its
//! own process, from the logs and from the fabric, commits, and sends what may leave; then it says what the
//! thread does next. No clock, thread, socket or file in here: the shell (`crate::shell`) and the simulator
//! step the same code, each with an endpoint, log devices and a clock of its own.

use cell_fabric::{CloseReason, Event, HelloRefusal, OneSided, RegionKey, SendError, Spin};
use cell_pair::Pair;
use cell_protocol::PairRegions;
use cell_recovery::image::ImageSource;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{PairId, Seldom};
use cell_wal::{LogDevice, LogEvent};

use crate::agent::Installation;
use crate::command::{Command, ControlEvent};
use crate::congestion::{Congestion, STEP_REPLY_BYTES};
use crate::second_look::SecondLook;
use crate::snapshot::FailureKind;
use crate::worker::{LeftPair, Worker, pair_regions};

/// How often the time is given when nothing happens.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// What a worker's loop reads of time.
pub trait WorkerClock {
    /// Nanoseconds that only grow.
    fn now_ns(&mut self) -> u64;

    /// Until when the lease surely holds, by the same clock; zero before there is one, and once it has ended.
    fn lease_until_ns(&mut self) -> u64;
}

/// A pair on its way to the worker.
pub struct PairInput<D> {
    /// The pair.
    pub pair: Pair,
    /// Its log's device.
    pub device: D,
}

/// What reaches the worker from its own process.
pub enum WorkerInput<D> {
    /// The recovered pairs: from here on they are served.
    Install {
        /// The pairs.
        pairs: Vec<PairInput<D>>,
        /// What else the worker begins with.
        installation: Installation,
    },
    /// A pair that was added.
    AddPair(Box<PairInput<D>>),
    /// For the core.
    Control(ControlEvent),
    /// The node cannot go on.
    GiveUp(FailureKind),
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As the operator wished.
    Stopped,
    /// It gave its pairs up; the process must exit.
    Failed(FailureKind),
}

/// What a worker's thread does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next turn, at once.
    Again,
    /// The next turn, but others may run before: there was nothing to do, and it is too early to sleep.
    Spin,
    /// Sleep until something happens, for 10 ms at most.
    Wait,
    /// Sleep for 10 ms, whatever the fabric has: the lease has run out, and requests wait until it holds
    /// again.
    Rest,
    /// Nothing more: the worker has ended.
    End(Ended),
}

/// What came of a turn.
#[derive(Debug)]
#[must_use]
pub struct WorkerTurn {
    /// What the control thread is to do.
    pub commands: Vec<Command>,
    /// The time at which the turn began, if it was given in full and not only shown to the core.
    pub ticked_ns: Option<u64>,
    /// Replies that were released.
    pub replies: usize,
    /// Pairs that have left the worker. Their logs' devices are gone.
    pub left: Vec<PairId>,
    /// What the thread does next.
    pub next: Next,
}

/// See the module's text.
pub struct WorkerDriver<E, D> {
    worker: Worker,
    endpoint: E,
    /// By the pairs' numbers; none where a pair has left.
    devices: Vec<Option<D>>,
    /// Pairs that have left in this turn.
    left: Vec<PairId>,
    congestion: Congestion,
    tick_due_ns: u64,
    /// As of the present turn.
    now_ns: u64,
    /// When its replies left.
    replied_ns: u64,
    /// How long a thread without work looks for some before it sleeps, at most.
    spin_ns: u64,
    spin: Spin,
    /// Where the thread may sleep right after a turn that left nothing to do.
    second_look: Option<SecondLook>,
    /// The last turn was to be followed by this one without a sleep.
    ran_on: bool,
    log_events: Vec<LogEvent>,
    /// Reports of peers that were turned away.
    refusals: Seldom,
    /// Peers that were turned away because there were too many, as the endpoint counted them last.
    refused_full: u64,
}

/// The devices of the logs, each with its pair's number.
fn devices<D>(devices: &mut [Option<D>]) -> impl Iterator<Item = (usize, &mut D)> {
    devices.iter_mut().enumerate().filter_map(|(pair, device)| Some((pair, device.as_mut()?)))
}

impl<E: OneSided, D: LogDevice> WorkerDriver<E, D> {
    /// Drives a worker that has no pairs yet.
    #[must_use]
    pub fn new(worker: Worker, mut endpoint: E) -> WorkerDriver<E, D> {
        endpoint.await_admission();
        WorkerDriver {
            worker,
            endpoint,
            devices: Vec::new(),
            left: Vec::new(),
            congestion: Congestion::new(usize::MAX),
            tick_due_ns: 0,
            now_ns: 0,
            replied_ns: 0,
            spin_ns: 0,
            spin: Spin::on_cores(usize::MAX),
            second_look: None,
            ran_on: false,
            log_events: Vec::new(),
            refusals: Seldom::default(),
            refused_full: 0,
        }
    }

    /// Keeps so many bytes of replies at most that clients do not take.
    #[must_use]
    pub fn within(self, replies_max: usize) -> WorkerDriver<E, D> {
        WorkerDriver { congestion: Congestion::new(replies_max), ..self }
    }

    /// Looks for work so long before the thread sleeps, where that is not in vain.
    #[must_use]
    pub fn spinning(self, spin_ns: u64) -> WorkerDriver<E, D> {
        WorkerDriver { spin_ns, ..self }
    }

    /// On how many cores the thread may run: on one it looks for nothing.
    #[must_use]
    pub fn on_cores(self, cores: usize) -> WorkerDriver<E, D> {
        WorkerDriver { spin: Spin::on_cores(cores), ..self }
    }

    /// Lets the thread sleep right after a turn that left nothing to do, where another turn is known to find
    /// nothing.
    #[must_use]
    pub fn sleeping_at_once(self) -> WorkerDriver<E, D> {
        WorkerDriver { second_look: Some(SecondLook::default()), ..self }
    }

    /// The core, to look at.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// The fabric's endpoint, to look at.
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The fabric's endpoint.
    pub fn endpoint_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }

    /// When the time is to be given again, by the clock of the last turn.
    #[must_use]
    pub fn tick_due_ns(&self) -> u64 {
        self.tick_due_ns
    }

    /// One turn. The clock is read first of all, and again right before replies leave. `inputs` are what has
    /// come from the process; they are asked for once the time was given.
    pub fn step(
        &mut self,
        clock: &mut impl WorkerClock,
        inputs: impl IntoIterator<Item = WorkerInput<D>>,
    ) -> WorkerTurn {
        let ticked = self.give_time(clock);
        let has_input = self.take_inputs(inputs) | self.poll_logs();
        let mut busy = has_input;
        if !self.worker.is_silent() {
            self.congestion.retry(|connection, reply| self.endpoint.send(connection, reply));
            busy |= self.take_requests();
        }
        self.worker.end_of_poll();
        self.part();
        self.commit();
        let replies = self.send_replies(clock);
        self.endpoint.flush();
        self.dismiss();
        self.part(); // pairs whose last reply has left just now
        let left = std::mem::take(&mut self.left);
        let commands = self.worker.take_commands();
        let has_more = has_input || self.worker.has_work() || !commands.is_empty();
        busy |= replies > 0 || has_more;
        let next = self.next(busy, has_more);
        if busy && next == Next::Wait {
            // No turn follows that would say how long this one took.
            self.worker.turned(self.replied_ns.saturating_sub(self.now_ns));
        }
        self.ran_on = matches!(next, Next::Again | Next::Spin);
        WorkerTurn { commands, ticked_ns: ticked.then_some(self.now_ns), replies, left, next }
    }

    /// Whether it was given in full.
    fn give_time(&mut self, clock: &mut impl WorkerClock) -> bool {
        let now_ns = clock.now_ns();
        if self.ran_on {
            self.worker.turned(now_ns.saturating_sub(self.now_ns));
        }
        self.now_ns = now_ns;
        if now_ns < self.tick_due_ns {
            self.worker.advance(now_ns);
            return false;
        }
        self.tick_due_ns = now_ns + TICK_NS;
        self.worker.tick(now_ns, clock.lease_until_ns());
        self.dismiss();
        self.endpoint.tick(now_ns);
        for (pair, device) in devices(&mut self.devices) {
            self.worker.log_tick(pair, device);
        }
        true
    }

    /// Closes the connections that the worker has turned down. It is done right after a turn's answers: one
    /// that stays until the next tick holds a place, and those that are kept for operators are few.
    fn dismiss(&mut self) {
        for connection in self.worker.take_dismissed() {
            self.endpoint.close(connection);
            self.congestion.forget(connection);
            self.worker.closed(connection);
        }
    }

    fn take_inputs(&mut self, inputs: impl IntoIterator<Item = WorkerInput<D>>) -> bool {
        let mut busy = false;
        for input in inputs {
            busy = true;
            match input {
                WorkerInput::Control(event) => {
                    if let ControlEvent::OptionsChanged(options) = &event {
                        self.spin_ns = options.spin_ns;
                        options.fabric.into_iter().for_each(|limits| self.endpoint.set_limits(limits));
                    }
                    self.worker.control(event);
                }
                WorkerInput::GiveUp(kind) => self.worker.give_up(kind),
                WorkerInput::Install { pairs, installation } => self.install(pairs, installation),
                WorkerInput::AddPair(pair) => self.add_pair(*pair),
            }
        }
        busy
    }

    fn install(&mut self, pairs: Vec<PairInput<D>>, installation: Installation) {
        let Installation { sessions, whole } = installation;
        let (owned, devices): (Vec<_>, Vec<_>) =
            pairs.into_iter().map(|PairInput { pair, device }| (pair, device)).unzip();
        let sources: Vec<_> = owned.iter().map(Pair::source).collect();
        self.devices.extend(devices.into_iter().map(Some));
        self.worker.install(owned, sessions);
        if whole && !self.worker.has_every_key() {
            tracing::error!("the meganodes of this node's pairs do not cover all keys");
            return self.worker.give_up(FailureKind::RecoveryRefused);
        }
        sources.iter().for_each(|source| self.register(source));
        self.tick_due_ns = 0;
    }

    fn add_pair(&mut self, input: PairInput<D>) {
        // Its number may be that of a pair that has left since the last turn's end.
        if !planted(Mutant::DeviceLost) {
            self.part();
        }
        let PairInput { pair, device } = input;
        let source = pair.source();
        let number = self.worker.add_pair(pair);
        if self.devices.len() <= number {
            self.devices.resize_with(number + 1, || None);
        }
        self.devices[number] = Some(device);
        self.register(&source);
    }

    /// Gives back what is kept of pairs that have left: all trust in their registrations has ended, and
    /// nothing of them is in flight.
    fn part(&mut self) {
        for LeftPair { pair, number, regions } in self.worker.take_left() {
            if let Some(PairRegions { node_key, extent_key, .. }) = regions {
                [node_key, extent_key].into_iter().for_each(|key| self.endpoint.deregister(RegionKey(key)));
            }
            self.devices[number] = None;
            self.left.push(pair);
        }
    }

    /// Lets clients read a pair's regions, if the endpoint serves such reads.
    fn register(&mut self, source: &ImageSource) {
        let keys = self.endpoint.register(&source.node).and_then(|node_key| {
            let extent_key = self.endpoint.register(&source.extent)?;
            Ok((node_key, extent_key))
        });
        let node_crc = source.geometry.node_crc();
        match keys {
            Ok((node, extent)) => {
                let regions = pair_regions(&source.node, &source.extent, node_crc, node, extent);
                self.worker.registered(regions);
            }
            Err(error) => tracing::info!(%error, pair = %source.pair, "no one-sided reads"),
        }
    }

    fn poll_logs(&mut self) -> bool {
        let mut busy = false;
        for (pair, device) in devices(&mut self.devices) {
            device.poll(&mut self.log_events);
            busy |= !self.log_events.is_empty();
            for event in self.log_events.drain(..) {
                self.worker.log_event(pair, event, device);
            }
        }
        busy
    }

    /// Requests that waited for their turn, then, when none of them is left, new ones.
    fn take_requests(&mut self) -> bool {
        let worker = &mut self.worker;
        let resumed = self.congestion.can_resume();
        if resumed {
            self.congestion.resume(|connection, request| {
                worker.message(connection, request);
                worker.turn_bytes() < STEP_REPLY_BYTES
            });
        }
        let left = self.congestion.can_resume();
        resumed | (!left && self.poll_fabric())
    }

    fn poll_fabric(&mut self) -> bool {
        let worker = &mut self.worker;
        let (congestion, refusals, now_ns) = (&mut self.congestion, &mut self.refusals, self.now_ns);
        let mut may_be_full = false;
        let count = self.endpoint.poll(&mut |event| match event {
            Event::Accepted { connection, peer, token } => worker.accepted_showing(connection, peer, token),
            Event::Message { connection, message } => {
                if worker.turn_bytes() >= STEP_REPLY_BYTES || congestion.holds(connection) {
                    congestion.defer(connection, message);
                } else {
                    worker.message(connection, message);
                }
            }
            Event::Closed { connection, reason } => {
                tracing::debug!(%connection, %reason, "connection closed");
                congestion.forget(connection);
                worker.closed(connection);
            }
            Event::Refused { peer, reason } if reason.is_departure() => {
                tracing::debug!(?peer, %reason, "a peer left before there was a connection");
            }
            Event::Refused { peer, reason } => {
                may_be_full |= reason == CloseReason::Refused(HelloRefusal::TooManyConnections);
                if let Some(unsaid) = refusals.ask(now_ns) {
                    tracing::warn!(?peer, %reason, unsaid, "a peer was turned away");
                }
            }
            _ => {}
        });
        // Who said no hello makes room with the same reason, and keeps nobody out.
        if may_be_full {
            let refused_full = self.endpoint.counters().refused_full;
            if std::mem::replace(&mut self.refused_full, refused_full) < refused_full {
                self.worker.turned_away_for_room();
            }
        }
        for connection in self.worker.take_admitted() {
            self.endpoint.admit(connection);
        }
        count > 0
    }

    fn commit(&mut self) {
        // All pairs' writes are there before any is sent: where they share a flush, it waits for all of them.
        for (pair, device) in devices(&mut self.devices) {
            self.worker.commit(pair, device);
        }
        for (_, device) in devices(&mut self.devices) {
            if let Err(error) = device.submit() {
                tracing::error!(%error, "a log's device failed");
                self.worker.give_up(FailureKind::LogFailed);
            }
        }
    }

    /// Hands over the replies that may leave; how many. The clock is read after everything that they say was
    /// decided, and the lease after the clock, so nothing is sent that the lease does not cover.
    fn send_replies(&mut self, clock: &mut impl WorkerClock) -> usize {
        let now_ns = clock.now_ns();
        let lease_until_ns = clock.lease_until_ns();
        self.replied_ns = now_ns;
        let mut count = 0;
        let mut closed = Vec::new();
        for (connection, reply) in self.worker.release(now_ns, lease_until_ns).iter() {
            count += 1;
            // What waits goes first.
            let waits = self.congestion.holds_replies(connection);
            let sent = if waits { Err(SendError::Full) } else { self.endpoint.send(connection, reply) };
            let deaf = match sent {
                Ok(()) | Err(SendError::Closed) => None,
                Err(SendError::Full) => self.congestion.push(connection, reply),
                Err(error) => {
                    tracing::error!(%error, "a reply could not be sent");
                    None
                }
            };
            if let Some(connection) = deaf {
                tracing::warn!(%connection, "a client does not read its replies: closing");
                self.endpoint.close(connection);
                closed.push(connection);
            }
        }
        self.worker.replies_sent();
        // No event reports a connection that this end has closed: what its streams hold is given back here.
        closed.into_iter().for_each(|connection| self.worker.closed(connection));
        count
    }

    /// Whether the thread may sleep, and what may wake it. `has_more`: the turn may have left something that
    /// waits for nothing but the next one.
    fn next(&mut self, busy: bool, has_more: bool) -> Next {
        if let Some(kind) = self.worker.failure() {
            return Next::End(Ended::Failed(kind));
        }
        if self.worker.is_stopped() {
            return Next::End(Ended::Stopped);
        }
        if let Some(second_look) = &mut self.second_look {
            second_look.turn_ended(!busy);
        }
        if busy {
            self.spin.happened(self.now_ns);
            self.spin.wait_begins(self.now_ns, self.spin_ns);
            return if !has_more && self.sleeps_at_once() { Next::Wait } else { Next::Again };
        }
        if self.worker.is_silent() {
            return Next::Rest;
        }
        if self.spin.is_to_look() && self.are_logs_idle() && self.spin.looks_on(self.now_ns) {
            return Next::Spin;
        }
        // Peers are informed that they have to wake this end: asked last, right before the sleep.
        if !self.endpoint.prepare_sleep() {
            return Next::Again;
        }
        self.spin.sleeps();
        Next::Wait
    }

    /// Whether no pair waits for its log. While the disk works, a thread that looks for requests may keep the
    /// kernel's own thread, which ends the write, from its core: see the ring of `cell_wal`.
    fn are_logs_idle(&self) -> bool {
        self.worker.pairs().all(Pair::is_idle)
    }

    /// Whether the thread sleeps right after a turn that was not in vain. Only where the logs are idle, too:
    /// what one pair's commit lets go on may fill the batch of another one, which the next turn submits.
    fn sleeps_at_once(&mut self) -> bool {
        let is_bound_to_turn = self.second_look.is_none()
            || self.spin.is_to_look()
            || self.worker.is_silent()
            || self.congestion.can_resume()
            || !self.are_logs_idle();
        let Some(second_look) = &mut self.second_look else { return false };
        if is_bound_to_turn || !second_look.is_left_out() {
            return false;
        }
        let sleeps = self.endpoint.prepare_sleep();
        if sleeps {
            self.spin.sleeps();
        } else {
            second_look.is_missed();
        }
        sleeps
    }
}
