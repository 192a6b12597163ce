//! The operator, or a supervisor on each host: wants so many nodes that work, starts processes again, and
//! cuts the power when the seed says so.

use cell_fabric::{FabricLimits, Greeting};
use cell_wal::sim::PowerCut;

use crate::coverage::Event;
use crate::death::Death;
use crate::node::{Node, NodeSetup};
use crate::phase::RunPhase;
use crate::plan::MS;
use crate::world::{World, say};

impl World {
    /// Starts what is to be started.
    pub(crate) fn step_operators(&mut self) {
        if self.phase == RunPhase::Over {
            return;
        }
        self.remove_surplus();
        let now_ns = self.now_ns;
        let works = self.nodes.iter().filter(|node| !node.is_given_up(now_ns)).count();
        self.count_emptied();
        let wanted = self.operators.wanted.count;
        while works + self.operators.due.len() < wanted && self.plan_start() {}
        if works >= wanted {
            self.operators.due.clear();
        }
        if self.operators.due.is_empty() {
            return;
        }
        let (due, later): (Vec<_>, Vec<_>) =
            self.operators.due.iter().copied().partition(|(_, due_ns)| *due_ns <= now_ns);
        self.operators.due = later;
        due.into_iter().for_each(|(host, _)| self.start(host));
    }

    /// One that had been given up and goes on would stand by for ever once nobody dies any more, and put its
    /// clients off.
    fn remove_surplus(&mut self) {
        if self.phase != RunPhase::Quiet || self.nodes.len() <= self.operators.wanted.count {
            return;
        }
        let first = self.nodes.first().map(|node| node.host);
        first.into_iter().for_each(|host| self.remove_process(host, Death::Killed));
    }

    /// Decides where and when the next process starts; false if there is no host.
    fn plan_start(&mut self) -> bool {
        let due = &self.operators.due;
        let free = |host: &u32| {
            self.nodes.iter().all(|node| node.host != *host) && due.iter().all(|(planned, _)| planned != host)
        };
        let permitted = |host: &u32| self.operators.wanted.permits(*host);
        let hosts: Vec<u32> = self.plan.hosts().filter(free).filter(permitted).collect();
        let last = self.operators.last.filter(|last| hosts.contains(last));
        let stays = last.filter(|_| self.random.percent(75));
        let host = match (stays, hosts.as_slice()) {
            (Some(host), _) => host,
            (None, []) => return false,
            (None, hosts) => self.random.pick(hosts),
        };
        let abandoned = self.phase == RunPhase::Traffic
            && self.operators.last.is_some()
            && self.random.percent(self.plan.abandoned_percent);
        let after_ns = if abandoned {
            self.random.between(self.plan.lease_ns(), 6 * self.plan.lease_ns())
        } else {
            self.random.time_ns(2 * MS)
        };
        let due_ns = (self.now_ns + after_ns).max(self.operators.idle_until_ns);
        self.operators.due.push((host, due_ns));
        true
    }

    fn start(&mut self, host: u32) {
        if self.nodes.iter().any(|node| node.host == host) {
            return;
        }
        let mut node = Node::start(NodeSetup {
            plan: &self.plan,
            host,
            disk: self.disk.process(),
            link: self.coordinator.link(),
            endpoint: self.network.listen(host, FabricLimits::default(), Greeting::default()),
            random: self.random.part(),
            pairs_coming: self.operators.pairs_coming.clone(),
            breaks_creation: self.operators.breaks_creation.clone(),
            now_ns: self.now_ns,
        });
        node.is_unmounted = self.operators.unmounted == Some(host);
        say!(self, "host {host} starts a process");
        self.nodes.push(Box::new(node));
        if self.phase == RunPhase::Traffic && self.random.percent(self.plan.late_percent) {
            self.delay_table(host);
        }
    }

    /// The power fails: every process on the disk's machines ends.
    pub(crate) fn power_cut(&mut self) {
        let cut = PowerCut::random(self.random.next());
        say!(self, "power cut: {cut:?}");
        self.coverage.saw(Event::PowerCuts);
        for host in self.nodes.iter().map(|node| node.host).collect::<Vec<_>>() {
            self.remove_process(host, Death::PowerCut);
        }
        if self.phase == RunPhase::Traffic && !self.healed && self.random.percent(20) {
            self.coordinator.cut_power(); // it is in the same room
        }
        self.disk.power_cut(cut);
        self.disk = self.disk.process();
        self.disk_due.clear();
        self.disk_changes = None;
    }
}
