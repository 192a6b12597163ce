//! What others know of the memory that this node may hold: its row among the members, which is written anew
//! when the node is given another limit while it lives. Who shares out a dead node's pairs goes by it.

use std::sync::Arc;

use cell_cluster::{Coordinator, MemberRow, Members};

/// A write that failed is tried again after so long.
const RETRY_NS: u64 = 1_000_000_000;

/// See the module's text. A core but for the coordinator, which it is given.
pub(crate) struct ReportedLimit {
    members: Members,
    row: MemberRow,
    /// The limit that the row was written for last.
    reported: u64,
    /// Nothing is written before.
    due_ns: u64,
}

impl ReportedLimit {
    /// Of a member that joined with this row, at whose start the limit was `limit`.
    pub(crate) fn new(coordinator: &Arc<dyn Coordinator>, row: MemberRow, limit: u64) -> ReportedLimit {
        ReportedLimit { members: Members::new(coordinator.clone()), row, reported: limit, due_ns: 0 }
    }

    /// Writes the row anew if this limit is another one.
    pub(crate) fn report(&mut self, limit: u64, now_ns: u64) {
        if limit == self.reported || now_ns < self.due_ns {
            return;
        }
        let row = MemberRow { memory_limit_bytes: limit, ..self.row.clone() };
        match self.members.enter(&row) {
            Ok(()) => {
                tracing::info!(limit, "the other nodes are told of another memory limit");
                self.reported = limit;
            }
            Err(error) => {
                tracing::debug!(%error, "the other nodes are not told of another memory limit just now");
                self.due_ns = now_ns.saturating_add(RETRY_NS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::{Fault, Sim, SimLink};
    use cell_terms::NodeId;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const GIB: u64 = 1 << 30;

    /// A member that joined with 0, for what the machine has: 8 GiB.
    fn joined() -> (SimLink, Members, ReportedLimit) {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let (incarnation, node) = (link.grant(10_000).unwrap().lease, NodeId(1));
        let (fabric, http) = ("sim:1".to_owned(), String::new());
        let row = MemberRow { incarnation, node, fabric, http, pid: 1, memory_limit_bytes: 0 };
        let members = Members::new(coordinator.clone());
        members.enter(&row).unwrap();
        (link, members, ReportedLimit::new(&coordinator, row, 8 * GIB))
    }

    fn limits(members: &Members) -> Vec<u64> {
        members.list().unwrap().iter().map(|row| row.memory_limit_bytes).collect()
    }

    /// It said what its node had been given at its start, and pairs were shared out by that.
    #[test]
    fn row_says_the_limit_that_was_given_last_and_as_it_joined_until_then() {
        let (link, members, mut reporter) = joined();
        reporter.report(8 * GIB, SECOND);
        assert_eq!(limits(&members), [0]);
        for limit in [5 * GIB, 6 * GIB, 8 * GIB] {
            reporter.report(limit, SECOND);
            assert_eq!(limits(&members), [limit]);
        }
        let fabric = members.list().unwrap().remove(0).fabric;
        assert_eq!(fabric, "sim:1", "nothing else is changed");
        // What was reported is not written again.
        link.plan([Fault::NotReached]);
        reporter.report(8 * GIB, SECOND);
        assert!(members.list().is_err(), "the fault is there still");
    }

    #[test]
    fn limit_that_could_not_be_reported_is_reported_a_second_later() {
        let (link, members, mut reporter) = joined();
        link.plan([Fault::NotReached]);
        reporter.report(5 * GIB, SECOND);
        reporter.report(5 * GIB, 2 * SECOND - 1);
        assert_eq!(limits(&members), [0]);
        reporter.report(5 * GIB, 2 * SECOND);
        assert_eq!(limits(&members), [5 * GIB]);
    }

    #[test]
    fn node_whose_lease_has_ended_reports_nothing() {
        let (link, members, mut reporter) = joined();
        let lease = members.list().unwrap().remove(0).incarnation;
        link.end_lease(lease).unwrap();
        reporter.report(5 * GIB, SECOND);
        assert!(members.list().unwrap().is_empty());
    }
}
