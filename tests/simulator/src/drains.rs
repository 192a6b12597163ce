//! Operators who drain nodes and end that, let empty nodes join, and remove nodes for good; and what holds of
//! nodes that drain.

use std::sync::Arc;

use cell_cluster::{ClusterError, DrainAuthor, Drains, NodeRefusal};
use cell_terms::NodeId;

use crate::coverage::Event;
use crate::node::Node;
use crate::nodes_wanted::NodesWanted;
use crate::world::{World, say};

/// Fewer hosts than this on which processes may run there never are, nor fewer processes.
const HOSTS_MIN: usize = 2;

fn author() -> DrainAuthor<'static> {
    DrainAuthor { who: "a fault", why: None, now_unix_ms: 0 }
}

impl World {
    fn drains(&self) -> Drains {
        Drains::new(Arc::new(self.coordinator.link()))
    }

    /// A host's node is to be emptied. Whether that is new: the last one that takes pairs stays.
    pub(crate) fn drain(&mut self, host: u32) -> bool {
        if self.operators.wanted.draining.contains(&host) || !self.coordinator.answers() {
            return false;
        }
        match self.drains().begin(&[NodeId(host - 1)], &author()) {
            Ok(_) => {}
            Err(error) => {
                let is_last = matches!(error, ClusterError::Node(NodeRefusal::LastNode));
                self.coverage.add(Event::DrainsRefused, u64::from(is_last));
                return false;
            }
        }
        say!(self, "host {host} is to be emptied");
        self.coverage.saw(Event::DrainsStarted);
        self.operators.wanted.draining.insert(host);
        true
    }

    /// A node that drains, or was removed, may have pairs again. Whether there is one.
    pub(crate) fn undrain(&mut self) -> bool {
        let hosts: Vec<u32> = self.operators.wanted.draining.iter().copied().collect();
        if hosts.is_empty() || !self.coordinator.answers() {
            return false;
        }
        let host = self.random.pick(&hosts);
        if self.drains().end(&[NodeId(host - 1)]).is_err() {
            return false;
        }
        say!(self, "host {host} is not to be emptied any more");
        self.coverage.saw(Event::DrainsEnded);
        let wanted = &mut self.operators.wanted;
        wanted.draining.remove(&host);
        wanted.removed.remove(&host);
        wanted.emptying.remove(&host);
        true
    }

    /// One more node, which has no pairs. Whether there is a host for it.
    pub(crate) fn let_join(&mut self) -> bool {
        let hosts = self.plan.hosts - self.operators.wanted.removed.len();
        if self.operators.wanted.count >= hosts {
            return false;
        }
        say!(self, "one more node joins");
        self.coverage.saw(Event::NodesJoined);
        self.operators.wanted.count += 1;
        true
    }

    /// An empty node that drains is removed for good, and its process stopped; some other one may come in its
    /// place. Whether there is one.
    pub(crate) fn remove_node(&mut self) -> bool {
        let wanted = &self.operators.wanted;
        let hosts = self.plan.hosts - wanted.removed.len();
        if hosts <= HOSTS_MIN || !self.coordinator.answers() {
            return false;
        }
        let is_removed = |host: &&u32| self.drains().remove(NodeId(**host - 1), &author()).is_ok();
        let Some(&host) = wanted.draining.difference(&wanted.removed).find(is_removed) else { return false };
        say!(self, "host {host} is removed for good");
        self.coverage.saw(Event::NodesRemoved);
        let shrinks = self.operators.wanted.count > HOSTS_MIN && self.random.percent(50);
        let checkpoint = self.random.percent(50);
        let wanted = &mut self.operators.wanted;
        wanted.removed.insert(host);
        wanted.count = (wanted.count - usize::from(shrinks)).min(hosts - 1);
        self.operators.due.retain(|(planned, _)| *planned != host);
        let node = self.nodes.iter_mut().find(|node| node.host == host);
        node.into_iter().for_each(|node| node.stop(checkpoint));
        true
    }

    /// Counts the nodes that drains have emptied: processes that had pairs while they drained, and have none.
    pub(crate) fn count_emptied(&mut self) {
        let World { nodes, operators, coverage, .. } = self;
        let NodesWanted { draining, emptying, .. } = &mut operators.wanted;
        for node in nodes.iter().filter(|node| draining.contains(&node.host)) {
            let Some(incarnation) = node.incarnation() else { continue };
            if node.serves() {
                emptying.insert(node.host, incarnation);
            } else if emptying.get(&node.host) == Some(&incarnation) {
                emptying.remove(&node.host);
                coverage.saw(Event::Drained);
            }
        }
    }

    /// Whether nodes that drain have no pairs, or nobody else is there who could have them.
    pub(crate) fn are_emptied(&self) -> bool {
        let drains = |node: &Node| self.operators.wanted.draining.contains(&node.host);
        let takes = |node: &Node| !drains(node) && !node.is_unmounted && node.incarnation().is_some();
        let mut nodes = self.nodes.iter();
        !nodes.clone().any(|node| takes(node)) || !nodes.any(|node| drains(node) && node.serves())
    }

    /// What keeps nodes from being emptied, as the balancer says.
    pub(crate) fn describe_drains(&self) -> String {
        let rows = self.drains().list().unwrap_or_default();
        let stalls = rows.into_iter().map(|row| {
            let stall = row.stall.unwrap_or_else(|| "nothing is said".to_owned());
            format!("{} drains: {stall}", row.node)
        });
        stalls.collect::<Vec<_>>().join("; ")
    }
}
