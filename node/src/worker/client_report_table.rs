//! What clients report of their searches ([`cell_protocol::client_report`]): the latest of each connection,
//! for people. A report counts for nothing else, and its connection is none the livelier for it.

use std::collections::HashMap;
use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_protocol::{ClientCounts, ClientReport};

use crate::client_snapshot::{ClientSnapshot, ClientTotals};

/// Connections of which reports are kept.
const CONNECTIONS_MAX: usize = 256;

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
    rows: HashMap<ConnectionId, Row>,
    totals: ClientTotals,
}

impl ClientReports {
    pub(super) fn take(&mut self, connection: ConnectionId, now_ns: u64, report: &ClientReport<'_>) {
        self.totals.reports += 1;
        self.totals.counts.add(&report.counts);
        if self.rows.get(&connection).is_some_and(|row| row.client != report.client) {
            self.rows.remove(&connection);
        }
        if !self.rows.contains_key(&connection) && self.rows.len() >= CONNECTIONS_MAX {
            self.totals.dropped += 1;
            return;
        }
        let row = self.rows.entry(connection).or_insert_with(|| Row::new(report));
        row.at_ns = now_ns;
        let snapshot = &mut row.snapshot;
        if *snapshot.name != *report.name {
            snapshot.name = Arc::from(report.name);
        }
        snapshot.reports += 1;
        snapshot.reported_ns = snapshot.reported_ns.saturating_add(report.interval_ns);
        snapshot.counts.add(&report.counts);
        snapshot.last_searches = report.counts.searches();
        snapshot.settings_revision = report.settings_revision;
        (snapshot.transport, snapshot.policy) = (report.transport, report.policy);
        (snapshot.estimates, snapshot.in_hand) = (report.estimates, report.in_hand);
    }

    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.rows.remove(&connection);
    }

    /// Forgets those that have been silent.
    pub(super) fn tick(&mut self, now_ns: u64) {
        if !self.rows.is_empty() {
            self.rows.retain(|_, row| now_ns.saturating_sub(row.at_ns) < SILENT_NS);
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
        self.totals
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
