//! The worker's shell, without its thread: what `cell_node`'s shell does in one turn, in the same order.

use std::collections::{BTreeMap, VecDeque};

use cell_cluster::Coordinator;
use cell_fabric::{ConnectionId, Endpoint, Event, SendError, SimEndpoint};
use cell_protocol::{Reply, StatusCode};
use cell_terms::Durability;
use cell_wal::LogDevice;

use crate::node::{Exit, News, Node};
use crate::plan::{MS, US};

/// How often time is told when nothing happens.
const TICK_NS: u64 = 10 * MS;
/// Replies that may wait for a client that does not read.
const WAITING_MAX: usize = 1_024;

/// What the shell keeps between its turns.
#[derive(Debug, Default)]
pub struct Serving {
    tick_due_ns: u64,
    /// The thread is not scheduled before this time: so messages gather.
    pub(crate) rests_until_ns: u64,
    overflow: Overflow,
    log_events: Vec<cell_wal::LogEvent>,
    /// Delayed copies of writes that it turned away.
    pub(crate) below_floor: u64,
    /// The thread is to be stopped for so long within a step in which something happens.
    pub(crate) stall_ns: Option<u64>,
    /// It was stopped within the present step: what it had read of clock and lease before.
    stalled: Option<(u64, u64)>,
    /// Steps within which it was stopped.
    pub(crate) stalls: u64,
}

impl Serving {
    /// The worker has its pair: tell it the time at once.
    pub(crate) fn serve(&mut self) {
        self.tick_due_ns = 0;
    }

    /// It is stopped within no step any more.
    pub(crate) fn go_on(&mut self) {
        self.stall_ns = None;
    }
}

impl Node {
    /// One turn of the worker's thread; when the next is due.
    pub(crate) fn step_worker(&mut self, now_ns: u64, news: &mut Vec<News>) -> u64 {
        if self.worker.is_none() {
            return u64::MAX;
        }
        if now_ns < self.serving.rests_until_ns {
            return self.serving.rests_until_ns;
        }
        if self.stops_within(now_ns) {
            return self.serving.rests_until_ns;
        }
        self.tell_time(now_ns);
        let mut busy = self.poll_log();
        if self.worker.as_ref().is_some_and(cell_node::Worker::takes_input) {
            busy |= self.poll_fabric();
        }
        self.commit();
        busy |= self.send_replies(now_ns, news);
        self.endpoint.flush();
        self.look_at_watermark(news);
        let Some(worker) = &mut self.worker else { return u64::MAX };
        busy |= worker.has_work();
        for command in worker.take_commands() {
            busy = true;
            let due_ns = now_ns + self.random.time_ns(50 * US);
            self.control.push(due_ns, command);
        }
        if let Some(kind) = worker.failure() {
            news.push(News::Exit(Exit::Failed(kind)));
        } else if worker.is_stopped() {
            news.push(News::Exit(Exit::Stopped));
        }
        self.serving.rests_until_ns = now_ns + self.random.time_ns(2 * US);
        let input = !self.endpoint.prepare_sleep();
        if busy || input { self.serving.rests_until_ns } else { self.serving.tick_due_ns }
    }

    /// Whether the thread stops here, right after its look at the clock: what came meanwhile it takes in when
    /// it goes on, with the time that it knows.
    fn stops_within(&mut self, now_ns: u64) -> bool {
        let pending = !self.endpoint.prepare_sleep();
        let Some(lasts_ns) = self.serving.stall_ns.take_if(|_| pending) else { return false };
        self.serving.stalled = Some((self.clock_ns(now_ns), self.lease_until_ns));
        self.serving.rests_until_ns = now_ns + lasts_ns;
        self.serving.stalls += 1;
        true
    }

    fn tell_time(&mut self, now_ns: u64) {
        let (clock_ns, lease_until_ns) =
            self.serving.stalled.take().unwrap_or((self.clock_ns(now_ns), self.lease_until_ns));
        let Some(worker) = &mut self.worker else { return };
        if now_ns < self.serving.tick_due_ns {
            return worker.advance(clock_ns);
        }
        self.serving.tick_due_ns = now_ns + TICK_NS;
        worker.tick(clock_ns, lease_until_ns);
        self.endpoint.tick(clock_ns);
        for (pair, served) in self.control.pairs.iter_mut().enumerate() {
            worker.log_tick(pair, &mut served.device);
        }
    }

    fn poll_log(&mut self) -> bool {
        let Some(worker) = &mut self.worker else { return false };
        let mut busy = false;
        for (pair, served) in self.control.pairs.iter_mut().enumerate() {
            let device = &mut served.device;
            device.poll(&mut self.serving.log_events);
            busy |= !self.serving.log_events.is_empty();
            for event in self.serving.log_events.drain(..) {
                worker.log_event(pair, event, device);
            }
        }
        busy
    }

    fn poll_fabric(&mut self) -> bool {
        let Some(worker) = &mut self.worker else { return false };
        let overflow = &mut self.serving.overflow;
        let count = self.endpoint.poll(&mut |event| match event {
            Event::Accepted { connection, .. } => worker.accepted(connection),
            Event::Message { connection, message } => worker.message(connection, message),
            Event::Closed { connection, .. } => {
                overflow.forget(connection);
                worker.closed(connection);
            }
            _ => {}
        });
        count > 0
    }

    fn commit(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        worker.end_of_poll();
        for (pair, served) in self.control.pairs.iter_mut().enumerate() {
            let device = &mut served.device;
            worker.commit(pair, device);
            if device.submit().is_err() {
                worker.give_up(cell_node::FailureKind::LogFailed);
            }
        }
    }

    fn send_replies(&mut self, now_ns: u64, news: &mut Vec<News>) -> bool {
        let clock_ns = self.clock_ns(now_ns);
        let Some(worker) = &mut self.worker else { return false };
        self.serving.overflow.retry(&mut self.endpoint);
        let mut sent = 0;
        for (connection, reply) in worker.release(clock_ns, self.lease_until_ns).iter() {
            sent += 1;
            self.serving.below_floor += u64::from(is_below_floor(reply));
            if self.serving.overflow.holds(connection) {
                self.serving.overflow.push(&mut self.endpoint, connection, reply);
                continue;
            }
            match self.endpoint.send(connection, reply) {
                Ok(()) | Err(SendError::Closed) => {}
                Err(SendError::Full) => self.serving.overflow.push(&mut self.endpoint, connection, reply),
                Err(error) => news.push(News::Broken(format!("a reply could not be sent: {error}"))),
            }
        }
        worker.replies_sent();
        if sent > 0 && !self.control.pairs.is_empty() {
            self.look_at_lease(clock_ns, news);
        }
        sent > 0
    }

    /// Nothing is answered for a pair past the lease: the coordinator still has it, whatever the clocks say.
    fn look_at_lease(&self, clock_ns: u64, news: &mut Vec<News>) {
        let fresh_ns = self.plan.lease.ttl_ms * MS / 2;
        // Asked only when it may have ended: a call also carries out what others left hanging.
        let Some(lease) = self.incarnation().filter(|_| self.lease_until_ns < clock_ns + fresh_ns) else {
            return;
        };
        let coordinator = self.link.sim();
        let honest = coordinator.link();
        // While it has no power leases do not end.
        if coordinator.is_powered() && !honest.remaining_ns(lease).is_ok_and(|remaining| remaining.is_some())
        {
            let (until_ns, there_ns) = (self.lease_until_ns, coordinator.now_ns());
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
            let apart = match self.plan.worker.durability {
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

/// Whether a reply turns a delayed copy of an acknowledged write away.
fn is_below_floor(reply: &[u8]) -> bool {
    let refused = StatusCode::NumberBelowFloor;
    matches!(Reply::decode(reply), Ok((_, Reply::Refused(refusal))) if refusal.status() == refused)
}

/// Replies for clients that do not read as fast as they ask: as the production shell keeps them.
#[derive(Debug, Default)]
struct Overflow {
    waiting: BTreeMap<ConnectionId, VecDeque<Vec<u8>>>,
}

impl Overflow {
    fn holds(&self, connection: ConnectionId) -> bool {
        self.waiting.contains_key(&connection)
    }

    fn forget(&mut self, connection: ConnectionId) {
        self.waiting.remove(&connection);
    }

    fn push(&mut self, endpoint: &mut SimEndpoint, connection: ConnectionId, reply: &[u8]) {
        let queue = self.waiting.entry(connection).or_default();
        queue.push_back(reply.to_vec());
        if queue.len() > WAITING_MAX {
            endpoint.close(connection);
            self.forget(connection);
        }
    }

    fn retry(&mut self, endpoint: &mut SimEndpoint) {
        self.waiting.retain(|connection, queue| {
            while let Some(reply) = queue.front() {
                match endpoint.send(*connection, reply) {
                    Ok(()) => drop(queue.pop_front()),
                    Err(SendError::Full) => return true,
                    Err(_) => return false,
                }
            }
            false
        });
    }
}
