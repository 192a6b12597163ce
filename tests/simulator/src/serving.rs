//! The worker's thread: when it has its turns, where it is stopped within one, what its clock says, and the
//! rules that hold after each. What a turn does is production code: `cell_node::WorkerDriver`.

use cell_cluster::Coordinator;
use cell_node::{
    Command, Ended, FailureKind, Next, Worker, WorkerClock, WorkerIdentity, WorkerInput, WorkerTurn,
};
use cell_terms::Durability;
use cell_wal::sim::SimDevice;

use crate::endpoint::WatchedEndpoint;
use crate::news::{Exit, News};
use crate::node::Node;
use crate::plan::{MS, US};
use crate::threads::{Driver, Reading, Serving};

/// Of what a node does that knows itself that it must not.
pub const LATE_BY_ITS_CLOCK: &str = "past the lease by the process's own clock";
/// Bytes of replies that may wait for clients that do not read: the least that a node's memory plan gives.
const REPLIES_MAX: usize = cell_node::REPLIES_BYTES_MIN;

/// The process's clock and lease as they are read in one turn. The thread may have been stopped right after
/// its first look at the clock: then that look belongs to another time than those that follow.
struct TurnClock {
    first: Reading,
    later: Reading,
    looks: u32,
}

impl TurnClock {
    fn reading(&self) -> Reading {
        if self.looks > 1 { self.later } else { self.first }
    }
}

impl WorkerClock for TurnClock {
    fn now_ns(&mut self) -> u64 {
        self.looks += 1;
        self.reading().clock_ns
    }

    fn lease_until_ns(&mut self) -> u64 {
        self.reading().lease_until_ns
    }
}

impl Node {
    /// From here on there is a worker, which has no pairs yet.
    pub(crate) fn begin_worker(&mut self, identity: WorkerIdentity, clock_ns: u64) {
        let Some(endpoint) = self.serving.endpoint.take() else { return };
        let worker = Worker::new(identity, self.plan.worker.clone(), self.progress.clone(), clock_ns);
        let worker = worker.reporting(self.plan.figures_every_ns());
        let driver = Driver::new(worker, WatchedEndpoint::new(endpoint)).within(REPLIES_MAX);
        self.serving.driver = Some(driver);
    }

    /// Something for the worker from its own process; it wakes the thread.
    pub(crate) fn hand_in(&mut self, input: WorkerInput<SimDevice>) {
        if self.serving.driver.is_some() {
            self.serving.inputs.push(input);
            self.wake(self.serving.rests_until_ns);
        }
    }

    /// One turn of the worker's thread; when the next is due.
    pub(crate) fn step_worker(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        if self.serving.driver.is_none() {
            return u64::MAX;
        }
        if now_ns < self.serving.rests_until_ns {
            return self.serving.rests_until_ns;
        }
        if self.stops_within(now_ns) {
            return self.serving.rests_until_ns;
        }
        let later = self.reading(now_ns);
        let first = self.serving.stalled.take().unwrap_or(later);
        let mut clock = TurnClock { first, later, looks: 0 };
        let Serving { driver: Some(driver), inputs, .. } = &mut self.serving else { return u64::MAX };
        let was_silent = driver.worker().is_silent();
        let WorkerTurn { commands, replies, next, .. } = driver.step(&mut clock, inputs.drain(..));
        let tick_due_ns = driver.tick_due_ns();
        let serves_on = was_silent && !driver.worker().is_silent() && driver.worker().failure().is_none();
        news.extend(serves_on.then_some(News::ServedOn));
        if let Some(error) = driver.endpoint_mut().failed.take() {
            news.push(News::Broken(format!("a reply could not be sent: {error}")));
        }
        if replies > 0 && !self.control.pairs.is_empty() {
            self.look_at_lease(later, news);
        }
        self.look_at_watermark(news);
        for command in commands {
            // It is known to the world before it is carried out: that may have effects elsewhere at once.
            if let Command::Frozen { pair, epoch, ticket, .. } = &command {
                let mut owned = self.control.pairs.iter().map(|served| served.ownership);
                let frozen = owned.find(|of| of.pair == *pair && of.epoch == *epoch);
                frozen.into_iter().for_each(|of| self.control.frozen.froze(*ticket, of));
                news.extend(frozen.map(News::Frozen));
            }
            let due_ns = now_ns + 1 + self.random.time_ns(50 * US);
            self.control.push(due_ns, command);
        }
        self.serving.rests_until_ns = now_ns + self.random.time_ns(2 * US);
        match next {
            Next::Wait | Next::Rest => return self.world_ns(tick_due_ns),
            Next::Again | Next::Spin => {}
            Next::End(ended) => news.push(end(ended)),
        }
        self.serving.rests_until_ns
    }

    fn reading(&self, now_ns: u64) -> Reading {
        Reading { clock_ns: self.clock_ns(now_ns), lease_until_ns: self.lease_until_ns }
    }

    /// Whether the thread stops here, right after its look at the clock: what came meanwhile it takes in when
    /// it goes on, with the time that it knows.
    fn stops_within(&mut self, now_ns: u64) -> bool {
        if self.serving.stall_ns.is_none() || !self.serving.has_input() {
            return false;
        }
        let Some(lasts_ns) = self.serving.stall_ns.take() else { return false };
        self.serving.stalled = Some(self.reading(now_ns));
        self.serving.rests_until_ns = now_ns + lasts_ns;
        self.serving.stalls += 1;
        true
    }

    /// Nothing is answered for a pair past the lease: by the process's own clock it holds, and the
    /// coordinator still has it, whatever the clocks say.
    fn look_at_lease(&self, sent_at: Reading, news: &mut Vec<News>) {
        let Reading { clock_ns, lease_until_ns: until_ns } = sent_at;
        // The coordinator may be away and show nothing: then its own clock is all that keeps it silent.
        if clock_ns >= until_ns {
            let late = format!("at {clock_ns}, relied upon until {until_ns}");
            news.push(News::Broken(format!("replies left {LATE_BY_ITS_CLOCK}: {late}")));
        }
        let fresh_ns = self.plan.lease.ttl_ms * MS / 2;
        // Asked only when it may have ended: a call also carries out what others left hanging.
        let Some(lease) = self.incarnation().filter(|_| until_ns < clock_ns + fresh_ns) else { return };
        let coordinator = self.link.sim();
        let honest = coordinator.link();
        // While it does not answer leases do not end.
        if coordinator.answers() && !honest.remaining_ns(lease).is_ok_and(|remaining| remaining.is_some()) {
            let there_ns = coordinator.now_ns();
            let times = format!("at {clock_ns}, relied upon until {until_ns}, looked at at {there_ns}");
            news.push(News::Broken(format!("replies left after {lease} had ended: {times}")));
        }
    }

    /// Watermarks only grow within an epoch, and visible is durable.
    fn look_at_watermark(&mut self, news: &mut Vec<News>) {
        for pair in &mut self.control.pairs {
            let (now, before) = (pair.source.node.watermark(), pair.watermarks);
            let same_epoch = before.is_some_and(|before| before.epoch == now.epoch);
            let fell =
                before.is_some_and(|before| now.durable < before.durable || now.visible < before.visible);
            let apart = match self.plan.worker.pair.durability {
                Durability::Sync => now.visible != now.durable,
                _ => now.visible < now.durable,
            };
            if (same_epoch && fell) || apart || pair.source.extent.watermark() != now {
                news.push(News::Broken(format!("watermark {now:?} after {before:?}")));
            }
            pair.watermarks = Some(now);
        }
    }
}

/// What is reported to the world of a worker's end.
fn end(ended: Ended) -> News {
    match ended {
        Ended::Stopped => News::Exit(Exit::Stopped),
        // What it was given was examined before.
        Ended::Failed(FailureKind::RecoveryRefused) => {
            News::Broken("the worker refuses pairs that were recovered".to_owned())
        }
        Ended::Failed(kind) => News::Exit(Exit::Failed(kind)),
    }
}
