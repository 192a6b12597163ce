//! The simulated network: who is connected to whom, what travels, and when it arrives.
//!
//! Every direction of a link is a queue; the schedule holds one *delivery* for each segment in it, at a
//! random time.
//! A delivery takes the first segment of its queue, so a direction is in order however the times fall, and
//! directions are not in order with each other. A delivery that comes due while the direction is blocked
//! waits for it to heal, as a retransmission would.
//!
//! Permitted faults: delay, any order across links, resets (what travels is lost from a random segment on),
//! one-way and two-way partitions, a process's death, a host's. Not modelled: a blocked way back does not
//! hold up the window. Loss and duplication inside a stream are impossible on the real thing, so they are
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_random::Random;

use crate::address::PeerAddress;
use crate::close::CloseReason;
use crate::close::HelloRefusal;
use crate::counter::FabricCounters;
use crate::endpoint::ConnectionId;
use crate::greeting::Greeting;
use crate::limits::FabricLimits;

use super::endpoint_state::EndpointState;
use super::link::{Arrival, End, Link, LinkId, Segment, Side};
use super::options::SimOptions;
use super::read_state::Reads;
use super::schedule::{Due, Schedule};

/// A network of simulated hosts. A handle: clones are the same network.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    state: Arc<Mutex<NetworkState>>,
}

#[derive(Debug)]
pub(super) struct NetworkState {
    pub(super) random: Random,
    pub(super) options: SimOptions,
    pub(super) now_ns: u64,
    schedule: Schedule,
    pub(super) endpoints: Vec<EndpointState>,
    pub(super) listening: BTreeMap<u32, usize>,
    pub(super) links: BTreeMap<LinkId, Link>,
    links_made: u64,
    pub(super) blocked: BTreeSet<(u32, u32)>,
    pub(super) reads: Reads,
    digest: u64,
}

impl SimNetwork {
    /// An empty network at time zero. Everything that happens on it follows from the seed and the calls.
    #[must_use]
    pub fn new(seed: u64, options: SimOptions) -> SimNetwork {
        let state = NetworkState {
            random: Random::new(seed),
            options,
            now_ns: 0,
            schedule: Schedule::default(),
            endpoints: Vec::new(),
            listening: BTreeMap::new(),
            links: BTreeMap::new(),
            links_made: 0,
            blocked: BTreeSet::new(),
            reads: Reads::default(),
            digest: 0,
        };
        SimNetwork { state: Arc::new(Mutex::new(state)) }
    }

    /// Lets time pass up to `now_ns` and everything due by then arrive. Returns how many things did.
    pub fn step(&self, now_ns: u64) -> usize {
        let mut state = self.lock();
        let mut count = 0;
        while let Some((due_ns, due)) = state.schedule.take_due(now_ns) {
            state.now_ns = state.now_ns.max(due_ns);
            state.happen(due);
            count += 1;
        }
        state.now_ns = state.now_ns.max(now_ns);
        count
    }

    /// When the next thing arrives; `None` while nothing travels.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        self.lock().schedule.next_due_ns()
    }

    /// Changes what the network does from now on.
    pub fn set_options(&self, options: SimOptions) {
        self.lock().options = options;
    }

    /// A number that two runs share only if the same things arrived at the same times in the same order.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.lock().digest
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, NetworkState> {
        // A panic elsewhere ends the simulation; until then the tables are still tables.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkState {
    /// Adds an endpoint and returns its index.
    pub(super) fn add_endpoint(&mut self, host: u32, limits: FabricLimits, greeting: Greeting) -> usize {
        self.endpoints.push(EndpointState::new(host, limits.checked(), greeting));
        self.endpoints.len() - 1
    }

    /// Plans something for a random time from now.
    pub(super) fn plan(&mut self, due: Due) {
        let (random, options) = (&mut self.random, &self.options);
        let mut delay_ns = span(random, options.delay_min_ns, options.delay_max_ns);
        if chance(random, options.spike_per_million) {
            delay_ns += span(random, 0, options.spike_ns);
        }
        self.plan_at(self.now_ns.saturating_add(delay_ns), due);
    }

    /// Plans what had waited for a direction to heal.
    pub(super) fn plan_again(&mut self, due: Due) {
        let (random, options) = (&mut self.random, &self.options);
        let delay_ns = span(random, options.delay_min_ns, options.delay_max_ns)
            + span(random, 0, options.heal_spread_ns);
        self.plan_at(self.now_ns.saturating_add(delay_ns), due);
    }

    /// Plans something for a given time. What is planned first for one time happens first.
    pub(super) fn plan_at(&mut self, due_ns: u64, due: Due) {
        self.schedule.plan(due_ns, due);
    }

    /// Notes something in the digest.
    pub(super) fn note(&mut self, what: u64, amount: u64) {
        let mixed = self.digest ^ self.now_ns.rotate_left(32) ^ what.rotate_left(16) ^ amount;
        self.digest = Random::new(mixed).next();
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Delivery(link, side) => self.deliver(link, side),
            Due::ReadStarted(read) => self.read_started(read),
            Due::ReadMoment(read, moment) => self.read_moment(read, moment),
            Due::ReadBack(read) => self.read_back(read),
        }
    }

    /// A new link from an endpoint to a host; its first segment is a hello.
    pub(super) fn make_link(&mut self, endpoint: usize, to_host: u32) -> ConnectionId {
        self.links_made += 1;
        let id = self.links_made;
        let connection = self.endpoints[endpoint].name(id, 0);
        let (host, message_bytes_max) =
            (self.endpoints[endpoint].host, self.endpoints[endpoint].limits.message_bytes_max);
        let mut ends = [host, to_host].map(|host| End::new(host, message_bytes_max));
        ends[0].held = Some((endpoint, connection));
        ends[0].received_ns = self.endpoints[endpoint].now_ns();
        self.links.insert(id, Link { ends });
        self.transmit(id, 0, Segment::Hello { message_bytes_max });
        connection
    }

    /// Puts a segment on its way.
    pub(super) fn transmit(&mut self, link: LinkId, side: Side, segment: Segment) {
        if let Some(link) = self.links.get_mut(&link) {
            link.ends[side].travelling.push_back(segment);
        }
        self.plan(Due::Delivery(link, side));
    }

    fn deliver(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if self.blocked.contains(&(link.ends[side].host, link.ends[1 - side].host)) {
            link.ends[side].stalled += 1;
            return;
        }
        let stalls_until_ns = link.ends[side].stalls_until_ns;
        if self.now_ns < stalls_until_ns {
            return self.plan_at(stalls_until_ns, Due::Delivery(id, side));
        }
        // Empty when a reset took what travelled.
        let Some(segment) = link.ends[side].travelling.pop_front() else { return };
        let held = link.ends[1 - side].held;
        let unanswered = side == 0 && matches!(segment, Segment::Hello { .. });
        self.note(id * 2 + side as u64, segment.weight());
        match held {
            Some(_) => self.arrive(id, 1 - side, segment),
            None if unanswered => self.knock(id, segment),
            None => self.arrive_nowhere(id, side, &segment),
        }
    }

    /// A hello reaches a host.
    fn knock(&mut self, id: LinkId, segment: Segment) {
        let Segment::Hello { message_bytes_max } = segment else { return };
        let Some(link) = self.links.get(&id) else { return };
        let (from, host) = (link.ends[0].host, link.ends[1].host);
        let endpoint = self.listening.get(&host).copied();
        let Some(endpoint) = endpoint.filter(|endpoint| self.endpoints[*endpoint].alive) else {
            if self.host_alive(host) {
                let refused = CloseReason::Network(std::io::ErrorKind::ConnectionRefused);
                self.transmit(id, 1, Segment::Reset(refused));
            }
            return;
        };
        let limits = self.endpoints[endpoint].limits;
        if self.endpoints[endpoint].connections.len() >= limits.connections_max {
            self.endpoints[endpoint]
                .refuse(PeerAddress::Sim(from), CloseReason::Refused(HelloRefusal::TooManyConnections));
            self.transmit(id, 1, Segment::Refused(HelloRefusal::TooManyConnections));
            return;
        }
        let connection = self.endpoints[endpoint].name(id, 1);
        let now_ns = self.endpoints[endpoint].now_ns();
        if let Some(link) = self.links.get_mut(&id) {
            let end = &mut link.ends[1];
            end.held = Some((endpoint, connection));
            end.open = true;
            end.received_ns = now_ns;
            end.message_bytes_max = message_bytes_max.min(limits.message_bytes_max);
        }
        self.endpoints[endpoint].counters.accepted += 1;
        self.report(id, 1, Arrival::Accepted(PeerAddress::Sim(from)));
        let greeting = self.endpoints[endpoint].greeting.clone();
        self.transmit(id, 1, Segment::Welcome { greeting, message_bytes_max: limits.message_bytes_max });
    }

    /// A segment reaches an end that its endpoint holds.
    fn arrive(&mut self, id: LinkId, side: Side, segment: Segment) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        if end.ended {
            return;
        }
        let arrival = match segment {
            // Only the first segment of a link is a hello, and it knocks.
            Segment::Hello { .. } => return,
            Segment::Welcome { greeting, message_bytes_max } => {
                end.open = true;
                end.message_bytes_max = end.message_bytes_max.min(message_bytes_max);
                if let Some((endpoint, _)) = end.held {
                    self.endpoints[endpoint].counters.connected += 1;
                }
                Arrival::Connected(greeting)
            }
            Segment::Message(message) => Arrival::Message(message),
            Segment::Refused(refusal) => Arrival::Closed(CloseReason::RefusedByPeer(refusal)),
            Segment::End => Arrival::Closed(CloseReason::PeerClosed),
            Segment::Reset(reason) => Arrival::Closed(reason),
        };
        self.report(id, side, arrival);
    }

    /// A segment reaches a host where nobody holds its end: a living kernel answers with a reset.
    fn arrive_nowhere(&mut self, id: LinkId, side: Side, segment: &Segment) {
        let Some(link) = self.links.get(&id) else { return };
        let ending = matches!(segment, Segment::End | Segment::Reset(_) | Segment::Refused(_));
        if !ending && self.host_alive(link.ends[1 - side].host) && link.ends[side].held.is_some() {
            let reset = CloseReason::Network(std::io::ErrorKind::ConnectionReset);
            self.transmit(id, 1 - side, Segment::Reset(reset));
        }
        self.forget_if_over(id);
    }

    /// Puts an arrival before the endpoint.
    pub(super) fn report(&mut self, id: LinkId, side: Side, arrival: Arrival) {
        if matches!(arrival, Arrival::Closed(_)) {
            self.fail_reads(id, side);
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        end.ended |= matches!(arrival, Arrival::Closed(_));
        end.arrived.push_back(arrival);
        if let Some((endpoint, connection)) = end.held
            && !std::mem::replace(&mut end.queued, true)
        {
            self.endpoints[endpoint].ready.push_back(connection);
        }
    }

    /// Drops a link that neither end holds.
    pub(super) fn forget_if_over(&mut self, id: LinkId) {
        let over = |link: &Link| link.ends.iter().all(|end| end.held.is_none() && end.travelling.is_empty());
        if self.links.get(&id).is_some_and(over) {
            self.links.remove(&id);
        }
    }

    pub(super) fn host_alive(&self, host: u32) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.host == host && endpoint.alive)
    }

    /// The counters of one endpoint.
    pub(super) fn counters(&self, endpoint: usize) -> FabricCounters {
        let endpoint = &self.endpoints[endpoint];
        FabricCounters { connections: endpoint.connections.len() as u64, ..endpoint.counters }
    }
}

impl Segment {
    /// What the digest notes of it.
    fn weight(&self) -> u64 {
        match self {
            Segment::Hello { .. } => 1 << 32,
            Segment::Welcome { .. } => 2 << 32,
            Segment::Refused(_) => 3 << 32,
            Segment::End => 4 << 32,
            Segment::Reset(_) => 5 << 32,
            Segment::Message(message) => message.len() as u64,
        }
    }
}

/// From `low` to `high`, both included. Draws nothing where there is no choice.
pub(super) fn span(random: &mut Random, low: u64, high: u64) -> u64 {
    if high <= low { low } else { random.between(low, high) }
}

/// True `per_million` times of a million. Draws nothing for never.
pub(super) fn chance(random: &mut Random, per_million: u32) -> bool {
    per_million > 0 && random.below(1_000_000) < u64::from(per_million)
}
