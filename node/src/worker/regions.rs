//! What clients need to read this node's memory themselves: which regions are registered, under which keys,
//! and for how long an operation of theirs may take.

use cell_fabric::ConnectionId;
use cell_protocol::{PairRegions, Refusal, RegionRows, RegionsReply, Reply, RequestHeader};
use cell_terms::PairId;

use super::Worker;
use crate::pairs::Dependence;

/// Of the time for which freed memory rests, so much may be used by a one-sided operation: the rest covers
/// that the two clocks do not go equally fast.
const PERMITTED_PARTS: (u64, u64) = (4, 5);

impl Worker {
    /// A pair's regions are registered: clients that ask get them from now on.
    pub fn registered(&mut self, regions: PairRegions) {
        self.regions.insert(regions);
    }

    /// Whether a pair is in the list of registrations that clients get.
    #[must_use]
    pub fn is_listed(&self, pair: PairId) -> bool {
        self.regions.rows.iter().any(|row| row.pair == pair)
    }

    pub(super) fn regions(&mut self, connection: ConnectionId, header: RequestHeader) {
        if self.regions.rows.is_empty() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        let (parts, of) = PERMITTED_PARTS;
        let max_us = self.options.pair.reuse_grace_ns / 1_000 * parts / of;
        let rows = std::mem::take(&mut self.regions.rows);
        let reply = Reply::Regions(RegionsReply {
            reads_permitted: self.options.one_sided_reads,
            one_sided_max_us: u32::try_from(max_us).unwrap_or(u32::MAX),
            list: self.regions.list,
            pairs: RegionRows::List(&rows[..rows.len().min(cell_protocol::regions::REGION_PAIRS_MAX)]),
        });
        self.reply(connection, header, Dependence::NOTHING, &reply);
        self.regions.rows = rows;
    }
}
