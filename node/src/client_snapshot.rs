//! What clients have reported of their searches, as the node's snapshot has it.

use std::sync::Arc;

use cell_protocol::{ClientCounts, ClientEstimates, ReportPolicy, ReportTransport};

/// A client's connection that reports.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSnapshot {
    /// Names the client among all.
    pub client: u64,
    /// What it calls itself.
    pub name: Arc<str>,
    /// What it talks over.
    pub transport: ReportTransport,
    /// By which rule it decides.
    pub policy: ReportPolicy,
    /// Revision of the cluster's settings that it has; 0: none.
    pub settings_revision: u64,
    /// How old its last report was at the snapshot, milliseconds.
    pub age_ms: u64,
    /// Reports of this connection.
    pub reports: u64,
    /// The time that they are about, nanoseconds.
    pub reported_ns: u64,
    /// The counts of all of them.
    pub counts: ClientCounts,
    /// Searches of the last one's interval.
    pub last_searches: u64,
    /// What it knew at the last one.
    pub estimates: ClientEstimates,
    /// Operations that it had in hand then.
    pub in_hand: u32,
}

/// Of all clients since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTotals {
    /// Reports that came.
    pub reports: u64,
    /// Of those, from connections for which there was no room: they are in the counts alone.
    pub dropped: u64,
    /// Connections that report now and for which there is no room.
    pub unlisted: u64,
    /// What all have counted.
    pub counts: ClientCounts,
    /// One-sided reads of which they named the meganode.
    pub reported_reads: u64,
    /// One-sided reads of which they named no meganode that this node has, or more than can have been, or
    /// without being allowed to read.
    pub unattributed_reads: u64,
}
