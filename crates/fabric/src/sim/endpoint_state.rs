//! What the network keeps of one endpoint.

use std::collections::{BTreeMap, VecDeque};

use crate::address::PeerAddress;
use crate::close::{CloseReason, HelloRefusal};
use crate::counter::FabricCounters;
use crate::endpoint::ConnectionId;
use crate::greeting::Greeting;
use crate::limits::FabricLimits;

use super::link::{LinkId, Side};
use super::read_state::{Completed, Posted};

/// One endpoint's tables.
#[derive(Debug)]
pub(super) struct EndpointState {
    pub(super) host: u32,
    /// False once its process or host crashed: calls on it then do nothing.
    pub(super) alive: bool,
    pub(super) limits: FabricLimits,
    pub(super) greeting: Greeting,
    pub(super) connections: BTreeMap<ConnectionId, (LinkId, Side)>,
    connections_named: u64,
    /// Connections with arrivals, in the order in which they got them.
    pub(super) ready: VecDeque<ConnectionId>,
    pub(super) dirty: Vec<ConnectionId>,
    pub(super) refused: VecDeque<(PeerAddress, CloseReason)>,
    /// Posted and not flushed.
    pub(super) posted: Vec<Posted>,
    /// Reads that ended, in the order in which they did.
    pub(super) completed: VecDeque<Completed>,
    pub(super) counters: FabricCounters,
    pub(super) clock_ns: Option<u64>,
}

impl EndpointState {
    pub(super) fn new(host: u32, limits: FabricLimits, greeting: Greeting) -> EndpointState {
        EndpointState {
            host,
            alive: true,
            limits,
            greeting,
            connections: BTreeMap::new(),
            connections_named: 0,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            refused: VecDeque::new(),
            posted: Vec::new(),
            completed: VecDeque::new(),
            counters: FabricCounters::default(),
            clock_ns: None,
        }
    }

    /// Whether a poll has something to report.
    pub(super) fn has_events(&self) -> bool {
        !(self.ready.is_empty() && self.refused.is_empty() && self.completed.is_empty())
    }

    /// The endpoint's own clock, as it was last ticked.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock_ns.unwrap_or(0)
    }

    /// Gives an end of a link its name here.
    pub(super) fn name(&mut self, link: LinkId, side: Side) -> ConnectionId {
        self.connections_named += 1;
        let connection = ConnectionId(self.connections_named);
        self.connections.insert(connection, (link, side));
        connection
    }

    /// Notes somebody turned away.
    pub(super) fn refuse(&mut self, peer: PeerAddress, reason: CloseReason) {
        self.counters.refused += 1;
        let full = CloseReason::Refused(HelloRefusal::TooManyConnections);
        self.counters.refused_full += u64::from(reason == full);
        self.refused.push_back((peer, reason));
    }
}
