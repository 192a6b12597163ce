//! Time-outs of the connections of one endpoint.

use crate::close::CloseReason;
use crate::endpoint::ConnectionId;

use super::connection::{Connection, Phase};
use super::messenger::Messenger;

/// How often time-outs are looked for.
const SWEEP_NS: u64 = 100_000_000;

impl Messenger {
    pub(super) fn now_ns(&self) -> u64 {
        self.clock_ns.unwrap_or(0)
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        let first = self.clock_ns.is_none();
        self.clock_ns = Some(now_ns);
        if first {
            // What came before the first tick came now.
            self.slots.iter_mut().for_each(|connection| connection.heard_ns = now_ns);
        }
        if now_ns < self.sweep_due_ns || self.partition.is_on() {
            return;
        }
        self.sweep_due_ns = now_ns.saturating_add(SWEEP_NS);
        if let Some(door) = &mut self.door {
            door.retry();
        }
        for (id, reason) in self.overdue(now_ns) {
            self.end_later(id, reason);
        }
    }

    fn overdue(&mut self, now_ns: u64) -> Vec<(ConnectionId, CloseReason)> {
        let limits = self.limits;
        let judge = |connection: &mut Connection| {
            connection.assembler.relax();
            connection.backlog.relax();
            connection.reads.unmap_ended();
            let silent_ns = now_ns.saturating_sub(connection.heard_ns);
            let (is_open, pending) = (connection.phase == Phase::Open, connection.backlog.pending() > 0);
            limits.overdue(is_open, silent_ns, pending).map(|reason| (connection.id, reason))
        };
        self.slots.iter_mut().filter_map(judge).collect()
    }
}
