//! What clients need to read this node's memory themselves: which regions are registered, under which keys,
//! and for how long an operation of theirs may take.

use cell_fabric::{ConnectionId, RegionKey};
use cell_memory::{HEADER_BYTES, Region};
use cell_protocol::{PairRegions, Refusal, RegionRows, RegionsReply, Reply, RequestHeader};

use super::Worker;
use super::pairs::Dependence;

/// Of the time for which freed memory rests, so much may be used by a one-sided operation: the rest covers
/// that the two clocks do not go equally fast.
const PERMITTED_PARTS: (u64, u64) = (4, 5);

/// The registrations that clients are told of, by pair.
#[derive(Debug, Default)]
pub(super) struct RegionRegistrations {
    rows: Vec<PairRegions>,
}

/// A pair's row: what its regions are and under which keys they were registered.
///
/// # Panics
/// If the regions' sizes do not fit the wire's fields: they were checked when the regions were made.
#[must_use]
pub fn pair_regions(
    node: &Region,
    extent: &Region,
    node_crc: bool,
    node_key: RegionKey,
    extent_key: RegionKey,
) -> PairRegions {
    let (node, extent) = (node.spec(), extent.spec());
    PairRegions {
        pair: node.pair,
        epoch: node.epoch,
        node_region: node.id,
        extent_region: extent.id,
        node_key: node_key.0,
        extent_key: extent_key.0,
        node_region_bytes: node.bytes,
        extent_region_bytes: extent.bytes,
        slot_bytes: node.slot_bytes,
        tree_node_bytes: node.node_bytes,
        header_bytes: u32::try_from(HEADER_BYTES).expect("a header is a page"),
        node_crc,
    }
}

impl Worker {
    /// A pair's regions are registered: clients that ask are told from now on.
    pub fn registered(&mut self, regions: PairRegions) {
        let rows = &mut self.regions.rows;
        match rows.binary_search_by_key(&regions.pair, |row| row.pair) {
            Ok(at) => rows[at] = regions,
            Err(at) => rows.insert(at, regions),
        }
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
            pairs: RegionRows::List(&rows[..rows.len().min(cell_protocol::regions::REGION_PAIRS_MAX)]),
        });
        self.reply(connection, header, Dependence::NOTHING, &reply);
        self.regions.rows = rows;
    }
}
