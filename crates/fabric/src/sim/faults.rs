//! Partitions, resets and crashes of the simulated network.

use std::io::ErrorKind;

use crate::close::CloseReason;

use super::link::{Arrival, LinkId, Segment, Side};
use super::network::{NetworkState, SimNetwork};
use super::options::SimCrash;
use super::schedule::Due;

impl SimNetwork {
    /// Nothing from one host reaches the other any more; the way back is not touched. What is sent meanwhile
    /// waits, as retransmission would have it.
    pub fn block(&self, from: u32, to: u32) {
        self.lock().blocked.insert((from, to));
    }

    /// Undoes [`SimNetwork::block`]: what waited arrives after fresh delays.
    pub fn unblock(&self, from: u32, to: u32) {
        self.lock().unblock(from, to);
    }

    /// Blocks every host of one side from every host of the other, both ways.
    pub fn partition(&self, side: &[u32], other: &[u32]) {
        let mut state = self.lock();
        for (a, b) in side.iter().flat_map(|a| other.iter().map(move |b| (*a, *b))) {
            state.blocked.extend([(a, b), (b, a)]);
        }
    }

    /// Ends every partition.
    pub fn heal(&self) {
        let mut state = self.lock();
        while let Some((from, to)) = state.blocked.first().copied() {
            state.unblock(from, to);
        }
    }

    /// Whether something that one host sends reaches the other now.
    #[must_use]
    pub fn reaches(&self, from: u32, to: u32) -> bool {
        !self.lock().blocked.contains(&(from, to))
    }

    /// Lets nothing arrive before `until_ns` on the connections that two hosts have now, in one direction;
    /// new ones are not touched. An old path through the network stalls: a first copy of a message may arrive
    /// long after its repetition. Returns how many connections there were.
    pub fn stall(&self, from: u32, to: u32, until_ns: u64) -> usize {
        let mut state = self.lock();
        let links = state.links_where(|hosts| hosts == [from, to] || hosts == [to, from]);
        for id in &links {
            let ends = state.links.get_mut(id).into_iter().flat_map(|link| &mut link.ends);
            ends.filter(|end| end.host == from).for_each(|end| end.stalls_until_ns = until_ns);
        }
        links.len()
    }

    /// Resets every connection between two hosts. Returns how many there were.
    pub fn reset(&self, a: u32, b: u32) -> usize {
        let mut state = self.lock();
        let links = state.links_where(|hosts| hosts == [a, b] || hosts == [b, a]);
        links.iter().for_each(|link| state.break_link(*link, ErrorKind::ConnectionReset));
        links.len()
    }

    /// Takes a host's endpoints down. Calls on them do nothing from now on; drop them. New endpoints on the
    /// host are its restart.
    pub fn crash(&self, host: u32, how: SimCrash) {
        self.lock().crash(host, how);
    }
}

impl NetworkState {
    fn unblock(&mut self, from: u32, to: u32) {
        if !self.blocked.remove(&(from, to)) {
            return;
        }
        self.resume_reads(from, to);
        for id in self.links_where(|hosts| hosts == [from, to] || hosts == [to, from]) {
            for side in 0..2 {
                let Some(end) = self.links.get_mut(&id).map(|link| &mut link.ends[side]) else { continue };
                if end.host == from {
                    let stalled = std::mem::take(&mut end.stalled);
                    (0..stalled).for_each(|_| self.plan_again(Due::Delivery(id, side)));
                }
            }
        }
    }

    fn links_where(&self, chosen: impl Fn([u32; 2]) -> bool) -> Vec<LinkId> {
        let hosts = |id: &LinkId| self.links[id].ends.each_ref().map(|end| end.host);
        self.links.keys().copied().filter(|id| chosen(hosts(id))).collect()
    }

    /// A reset: what travels is lost from a random segment on, in each direction, and both ends learn of it.
    pub(super) fn break_link(&mut self, id: LinkId, kind: ErrorKind) {
        for side in 0..2 {
            self.cut_short(id, side);
            // Travels towards the other side's end, behind what was not lost.
            self.transmit(id, side, Segment::Reset(CloseReason::Network(kind)));
        }
    }

    /// Loses what travels from a side, from a random segment on.
    fn cut_short(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let travelling = link.ends[side].travelling.len();
        let kept = self.random.index(travelling + 1);
        link.ends[side].travelling.truncate(kept);
    }

    fn crash(&mut self, host: u32, how: SimCrash) {
        self.note(u64::from(host), 6 << 32);
        for endpoint in 0..self.endpoints.len() {
            if self.endpoints[endpoint].host != host || !self.endpoints[endpoint].alive {
                continue;
            }
            self.endpoints[endpoint].alive = false;
            let connections = std::mem::take(&mut self.endpoints[endpoint].connections);
            for (_, (id, side)) in connections {
                self.abandon(id, side, how);
            }
            self.endpoints[endpoint].ready.clear();
            self.endpoints[endpoint].dirty.clear();
            self.endpoints[endpoint].refused.clear();
            self.endpoints[endpoint].completed.clear();
            self.forget_reads(endpoint, None);
        }
        self.end_registrations(host);
        self.listening.remove(&host);
    }

    /// The process behind one end is gone.
    fn abandon(&mut self, id: LinkId, side: Side, how: SimCrash) {
        self.cut_short(id, side);
        let Some(link) = self.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        end.held = None;
        end.ended = true;
        end.output.clear();
        // A kernel that closes a socket with unread bytes resets the connection.
        let unread = end.arrived.iter().any(|arrival| matches!(arrival, Arrival::Message(_)));
        end.arrived.clear();
        match how {
            SimCrash::Process if unread => {
                let reset = CloseReason::Network(ErrorKind::ConnectionReset);
                self.transmit(id, side, Segment::Reset(reset));
            }
            SimCrash::Process => self.transmit(id, side, Segment::End),
            SimCrash::Host => {}
        }
        self.forget_if_over(id);
    }
}
