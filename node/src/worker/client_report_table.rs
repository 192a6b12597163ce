//! What clients report of their searches ([`cell_protocol::client_report`]): the latest of each connection,
//! for people. A report counts for nothing else, and its connection is none the livelier for it.

use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_protocol::{ClientCounts, ClientReport};
use cell_terms::IdMap;

use crate::client_snapshot::{ClientSnapshot, ClientTotals};

/// Connections of which reports are kept.
const CONNECTIONS_MAX: usize = 256;

/// No client reads one-sidedly more often in a second.
const READS_PER_SECOND_MAX: u128 = 100_000_000;

/// What the first report of a connection may be about, as far as its reads go: by the node's own clock the
/// others are about the time since the one before.
const FIRST_NS: u64 = 1_000_000_000;

/// Connections beyond those that are counted: so many are distinguished.
const UNLISTED_MAX: usize = 1_024;

/// Nothing that a client counts happens more often.
const COUNTS_PER_SECOND_MAX: u128 = 1_000_000_000;

/// A report of a longer interval counts as one of this: clients report each second.
const INTERVAL_NS_MAX: u64 = 3_600_000_000_000;

/// What a connection has reported is forgotten after so long without another report.
const SILENT_NS: u64 = 10_000_000_000;

/// What a connection has reported.
#[derive(Debug)]
struct Row {
    client: u64,
    at_ns: u64,
    snapshot: ClientSnapshot,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct ClientReports {
    rows: IdMap<ConnectionId, Row>,
    /// Connections for which there is no room, and when each reported last.
    unlisted: IdMap<ConnectionId, u64>,
    totals: ClientTotals,
}

impl ClientReports {
    /// Keeps a report; how many one-sided reads it may name.
    pub(super) fn take(&mut self, connection: ConnectionId, now_ns: u64, report: &ClientReport<'_>) -> u64 {
        let before_ns = self.rows.get(&connection).map(|row| row.at_ns);
        let before_ns = before_ns.or_else(|| self.unlisted.get(&connection).copied());
        let since_ns = before_ns.map_or(FIRST_NS, |at_ns| now_ns.saturating_sub(at_ns).min(SILENT_NS));
        let reads_max = most(since_ns, READS_PER_SECOND_MAX);
        let interval_ns = report.interval_ns.min(INTERVAL_NS_MAX);
        let counts = possible(&report.counts, interval_ns);
        self.totals.reports += 1;
        self.totals.counts.add(&counts);
        if self.rows.get(&connection).is_some_and(|row| row.client != report.client) {
            self.rows.remove(&connection);
        }
        if !self.rows.contains_key(&connection) && self.rows.len() >= CONNECTIONS_MAX {
            self.totals.dropped += 1;
            if self.unlisted.len() < UNLISTED_MAX || self.unlisted.contains_key(&connection) {
                self.unlisted.insert(connection, now_ns);
                return reads_max;
            }
            return 0;
        }
        self.unlisted.remove(&connection);
        let row = self.rows.entry(connection).or_insert_with(|| Row::new(report));
        row.at_ns = now_ns;
        let snapshot = &mut row.snapshot;
        if *snapshot.name != *report.name {
            snapshot.name = Arc::from(report.name);
        }
        snapshot.reports += 1;
        snapshot.reported_ns = snapshot.reported_ns.saturating_add(interval_ns);
        snapshot.counts.add(&counts);
        snapshot.last_searches = counts.searches();
        snapshot.settings_revision = report.settings_revision;
        (snapshot.transport, snapshot.policy) = (report.transport, report.policy);
        (snapshot.estimates, snapshot.in_hand) = (report.estimates, report.in_hand);
        reads_max
    }

    /// So many one-sided reads that a report named were counted by meganode, and so many were not.
    pub(super) fn count_reported(&mut self, reported: u64, unattributed: u64) {
        self.totals.reported_reads = self.totals.reported_reads.saturating_add(reported);
        self.totals.unattributed_reads = self.totals.unattributed_reads.saturating_add(unattributed);
    }

    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.rows.remove(&connection);
        self.unlisted.remove(&connection);
    }

    /// Forgets those that have been silent.
    pub(super) fn tick(&mut self, now_ns: u64) {
        if !self.rows.is_empty() {
            self.rows.retain(|_, row| now_ns.saturating_sub(row.at_ns) < SILENT_NS);
        }
        if !self.unlisted.is_empty() {
            self.unlisted.retain(|_, at_ns| now_ns.saturating_sub(*at_ns) < SILENT_NS);
        }
    }

    /// The connections with reports, by client.
    pub(super) fn snapshot(&self, now_ns: u64) -> Vec<ClientSnapshot> {
        let age_ms = |row: &Row| now_ns.saturating_sub(row.at_ns) / 1_000_000;
        let rows =
            self.rows.values().map(|row| ClientSnapshot { age_ms: age_ms(row), ..row.snapshot.clone() });
        let mut clients: Vec<_> = rows.collect();
        clients.sort_unstable_by_key(|client| (client.client, client.age_ms));
        clients
    }

    pub(super) fn totals(&self) -> ClientTotals {
        ClientTotals { unlisted: self.unlisted.len() as u64, ..self.totals }
    }
}

impl Row {
    fn new(report: &ClientReport<'_>) -> Row {
        let snapshot = ClientSnapshot {
            client: report.client,
            name: Arc::from(report.name),
            transport: report.transport,
            policy: report.policy,
            settings_revision: 0,
            age_ms: 0,
            reports: 0,
            reported_ns: 0,
            counts: ClientCounts::default(),
            last_searches: 0,
            estimates: report.estimates,
            in_hand: 0,
        };
        Row { client: report.client, at_ns: 0, snapshot }
    }
}

/// How often something happens in a time at most.
fn most(time_ns: u64, per_second: u128) -> u64 {
    u64::try_from(u128::from(time_ns) * per_second / 1_000_000_000).unwrap_or(u64::MAX)
}

/// What a client can have counted in an interval: its counts are whatever it sends, and one that is not
/// possible would spoil the totals of all clients.
fn possible(counts: &ClientCounts, interval_ns: u64) -> ClientCounts {
    let most = most(interval_ns, COUNTS_PER_SECOND_MAX);
    ClientCounts::from_array(counts.to_array().map(|count| count.min(most)))
}

#[cfg(test)]
mod tests {
    use cell_protocol::{ClientEstimates, ReportPolicy, ReportTransport, ReportedReads};

    use super::*;

    fn report(client: u64, interval_ns: u64, searches: u64) -> ClientReport<'static> {
        ClientReport {
            client,
            settings_revision: 0,
            interval_ns,
            estimates: ClientEstimates::default(),
            in_hand: 0,
            transport: ReportTransport::Tcp,
            policy: ReportPolicy::Adaptive,
            counts: ClientCounts { server: searches, torn: 3, ..ClientCounts::default() },
            reported_reads: ReportedReads::default(),
            reads_elsewhere: 0,
            name: "test",
        }
    }

    /// One report of 2^63 once made the totals of a node useless until its restart.
    #[test]
    fn take_counts_that_no_interval_permits_are_cut_to_what_it_permits() {
        let mut reports = ClientReports::default();
        reports.take(ConnectionId::from_number(1), 0, &report(1, 2_000_000_000, 1 << 63));
        assert_eq!((reports.totals().counts.server, reports.totals().counts.torn), (2_000_000_000, 3));
        assert_eq!(reports.snapshot(0)[0].last_searches, 2_000_000_000);
        reports.take(ConnectionId::from_number(1), 0, &report(1, 0, 7));
        assert_eq!(reports.totals().counts.server, 2_000_000_000, "nothing happens in no time");
        reports.take(ConnectionId::from_number(1), 0, &report(1, u64::MAX, u64::MAX));
        assert_eq!(reports.totals().counts.server, 2_000_000_000 + INTERVAL_NS_MAX);
    }

    /// By the node's clock, not by the interval that a client claims.
    #[test]
    fn take_permits_as_many_reads_as_the_time_since_the_last_report() {
        let second = 1_000_000_000;
        let most = 100_000_000;
        let mut reports = ClientReports::default();
        let mut take = |connection, now_ns| {
            reports.take(ConnectionId::from_number(connection), now_ns, &report(1, u64::MAX, 1))
        };
        assert_eq!(take(1, 50 * second), most, "the first one");
        assert_eq!((take(1, 50 * second), take(1, 50 * second + 10)), (0, 1));
        assert_eq!(take(1, 52 * second + 10), 2 * most);
        assert_eq!(take(1, 1_000 * second), 10 * most);
        for connection in 2..=(CONNECTIONS_MAX + UNLISTED_MAX) as u64 {
            take(connection, 1_000 * second);
        }
        let last = (CONNECTIONS_MAX + UNLISTED_MAX) as u64;
        assert_eq!(
            (take(last, 1_001 * second), take(last + 1, 1_001 * second)),
            (most, 0),
            "beyond all bounds"
        );
    }

    #[test]
    fn unlisted_are_connections_now_and_not_their_reports() {
        let mut reports = ClientReports::default();
        let last = CONNECTIONS_MAX as u64;
        for second in 0..3 {
            for connection in 0..=last {
                let at_ns = second * 1_000_000_000;
                reports.take(
                    ConnectionId::from_number(connection),
                    at_ns,
                    &report(connection, 1_000_000_000, 1),
                );
            }
        }
        assert_eq!((reports.totals().dropped, reports.totals().unlisted), (3, 1));
        reports.tick(2_000_000_000 + SILENT_NS);
        assert_eq!(reports.totals().unlisted, 0);
    }
}
