//! What a node that is to be emptied has left.

use cell_terms::{Incarnation, NodeId};

use crate::move_row::MoveRow;
use crate::row::PairRow;

/// The pairs that a node has, that wait for it to come back, or that moves may still bring there: as long as
/// there is one the node is not empty. `lives` says which incarnations live.
#[must_use]
pub fn pairs_left(
    node: NodeId,
    pairs: &[PairRow],
    moves: &[MoveRow],
    lives: impl Fn(Incarnation) -> bool,
) -> u64 {
    let is_end = |of: &&MoveRow| of.source.node == node || of.target.node == node;
    let near: Vec<&MoveRow> = moves.iter().filter(|of| of.is_under_way()).filter(is_end).collect();
    let comes = |row: &PairRow| near.iter().any(|of| of.pair == row.pair && of.may_come(node, row, &lives));
    pairs.iter().filter(|row| row.node == node || comes(row)).count() as u64
}
