//! Rows of a move for tests.

use cell_cluster::{
    EpochRow, MoveMotive, MoveRow, MoveSide, MoveStage, MoveTimes, PairGeometry, PairRow, PairState,
};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// A move of a pair from node 1 to node 2.
pub(crate) fn move_row(stage: MoveStage) -> MoveRow {
    let side = |incarnation, node| MoveSide {
        incarnation: Incarnation(incarnation),
        node: NodeId(node),
        host: None,
    };
    MoveRow {
        pair: PairId(3),
        number: 1,
        epoch: Epoch(4),
        source: side(7, 1),
        target: side(8, 2),
        why: "test".to_owned(),
        cause: MoveMotive::Operator,
        stage,
        bytes_done: 0,
        bytes_total: 0,
        checked: 0,
        outcome: None,
        cancelled_by: None,
        times: MoveTimes::default(),
    }
}

/// The pair's row before the handing, or after.
pub(crate) fn pair_row(of: &MoveRow, handed: bool) -> PairRow {
    let (side, epoch) = if handed { (of.target, of.epoch_of_target()) } else { (of.source, of.epoch) };
    let cut = handed.then_some(Csn(7));
    PairRow {
        pair: of.pair,
        node_region: of.pair.node_region(),
        extent_region: of.pair.extent_region(),
        owner: Some(side.incarnation),
        node: side.node,
        served_by: None,
        host: None,
        epoch,
        state: if handed { PairState::Recovering } else { PairState::Serving },
        place: None,
        geometry: PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 },
        history: vec![EpochRow { epoch: of.epoch, durability: Durability::Sync, cut }],
        checkpoint: None,
        trusted: Vec::new(),
        findings: Vec::new(),
        refuted: Vec::new(),
    }
}
