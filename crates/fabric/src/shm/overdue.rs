//! Time-outs of the connections of one endpoint.

use crate::close::CloseReason;
use crate::endpoint::ConnectionId;
use crate::sweep::Tick;

use super::connection::{Connection, ConnectionPhase};
use super::messenger::Messenger;

impl Messenger {
    pub(super) fn now_ns(&self) -> u64 {
        self.sweep.now_ns()
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        let Tick { first, due } = self.sweep.tick(now_ns, self.partition.is_on());
        if first {
            self.slots.iter_mut().for_each(|connection| connection.heard_ns = now_ns);
        }
        if !due {
            return;
        }
        if let Some(listener) = &mut self.listener {
            listener.retry();
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
            let (is_open, pending) =
                (connection.phase == ConnectionPhase::Open, connection.backlog.pending() > 0);
            limits.overdue(is_open, silent_ns, pending).map(|reason| (connection.id, reason))
        };
        self.slots.iter_mut().filter_map(judge).collect()
    }
}
