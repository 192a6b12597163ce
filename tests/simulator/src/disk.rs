//! The disk's turn: what was sent to it completes, each operation in its own time.

use cell_wal::sim::Pending;

use crate::coverage::Event;
use crate::plan::MS;
use crate::world::{Planted, World, say};

impl World {
    /// Decides when what has come to be pending on the disk completes. What was sent by a process whose disk
    /// hangs does not.
    fn plan_disk(&mut self) {
        let hangs = self.nodes.iter().any(|node| node.disk_hangs);
        let changes = Some(self.disk.pending_changes()).filter(|_| !hangs);
        if changes.is_some() && changes == self.disk_changes {
            return;
        }
        self.disk_changes = changes;
        let mut pending = self.disk.pending();
        let hung: Vec<_> = self.nodes.iter().filter(|node| node.disk_hangs).map(|node| &node.disk).collect();
        pending.retain(|pending| !hung.iter().any(|disk| disk.has_sent(pending)));
        // The oldest comes first, and ids grow.
        self.disk_due.retain(|id, _| pending.binary_search_by_key(id, |pending| pending.id).is_ok());
        for pending in &pending {
            if !self.disk_due.contains_key(&pending.id) {
                let mut takes_ns = self.random.time_ns(self.plan.disk_ns + pending.bytes / 4);
                if self.now_ns < self.disk_slow_until_ns {
                    takes_ns += self.random.between(MS, 100 * MS);
                }
                self.disk_due.insert(pending.id, self.now_ns + takes_ns);
            }
        }
    }

    /// What is pending on the disk completes, each operation in its own time, in any order.
    pub(crate) fn step_disk(&mut self) {
        self.plan_disk();
        let now_ns = self.now_ns;
        let due: Vec<u64> =
            self.disk_due.iter().filter(|(_, due_ns)| **due_ns <= now_ns).map(|(id, _)| *id).collect();
        for id in due {
            self.disk_due.remove(&id);
            self.complete(id);
            for node in &mut self.nodes {
                node.wake(now_ns);
            }
        }
        if self.disk.is_off() {
            self.coverage.saw(Event::PowerInOperation);
            self.power_cut();
        }
    }

    fn complete(&mut self, id: u64) {
        if self.planted == Some(Planted::WriteLost) && self.may_be_lost(id) {
            self.planted = None;
            say!(self, "PLANTED: a log write is lost");
            self.disk.lose(id);
            return;
        }
        self.disk.complete(id);
    }

    /// Whether it is a log write that somebody will miss.
    fn may_be_lost(&self, id: u64) -> bool {
        let is_small = |pending: &Pending| pending.is_log_write && pending.bytes < 1 << 16;
        let is_write = self.disk.pending().iter().any(|pending| pending.id == id && is_small(pending));
        let served = self.nodes.iter().any(|node| node.serves());
        is_write && served && self.coverage.count(Event::Acknowledged) > 50
    }
}
