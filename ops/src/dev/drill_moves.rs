//! Which pairs balance moves while a drill begins: what their nodes own is about to change.

use cell_cluster::{MoveMotive, MoveRow, PairRow};
use cell_terms::Incarnation;

/// The pairs of these rows of which a move goes on that balance has started. What the death of an end leaves
/// of a move may be under way for ever, and does not count.
pub(super) fn moved_by_balance(
    pairs: &[PairRow],
    moves: &[MoveRow],
    lives: impl Fn(Incarnation) -> bool,
) -> Vec<u32> {
    let is_balances = |of: &MoveRow| matches!(of.cause, MoveMotive::Balance | MoveMotive::Fresh);
    let goes_on = |of: &MoveRow| {
        let row = pairs.iter().find(|row| row.pair == of.pair);
        let is_as_it_says = row.is_some_and(|row| row.epoch == of.epoch || of.is_handed(row));
        let source_lives = || lives(of.source.incarnation) || row.is_some_and(|row| of.is_handed(row));
        of.is_under_way() && is_as_it_says && lives(of.target.incarnation) && source_lives()
    };
    moves.iter().filter(|of| is_balances(of) && goes_on(of)).map(|of| of.pair.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of pair 3 of this owner and epoch, with the cuts of earlier ones.
    fn pair(owner: u64, epoch: u32, history: &str) -> PairRow {
        let text = format!(
            r#"{{"pair":3,"node_region":6,"extent_region":7,"owner":{owner},"node":1,"epoch":{epoch},
            "state":"recovering","place":null,"geometry":{{"node_region_bytes":1,"extent_region_bytes":2,
            "slot_bytes":3,"node_bytes":4}},"history":{history},"checkpoint":null,"trusted":[]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// A move of pair 3 from 8 to 9, of its epoch 5.
    fn movement(cause: &str, stage: &str, outcome: &str) -> MoveRow {
        let text = format!(
            r#"{{"pair":3,"number":2,"epoch":5,"source":{{"incarnation":8,"node":0}},
            "target":{{"incarnation":9,"node":1}},"why":"w","cause":"{cause}","stage":"{stage}",
            "bytes_done":1,"bytes_total":4,"outcome":{outcome}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn moved_by_balance_are_pairs_of_moves_that_go_on() {
        let moved = |row: &PairRow, of: MoveRow, living: &[u64]| {
            moved_by_balance(std::slice::from_ref(row), &[of], |one| living.contains(&one.0))
        };
        let before = pair(8, 5, "[]");
        for cause in ["balance", "fresh"] {
            assert_eq!(moved(&before, movement(cause, "copying", "null"), &[8, 9]), [3]);
        }
        for cause in ["operator", "drain"] {
            assert!(moved(&before, movement(cause, "copying", "null"), &[8, 9]).is_empty(), "{cause}");
        }
        let over = movement("balance", "copying", r#""cancelled""#);
        assert!(moved(&before, over, &[8, 9]).is_empty());
        for living in [&[8][..], &[9]] {
            let left = movement("balance", "copying", "null");
            assert!(moved(&before, left, living).is_empty(), "an end is dead: {living:?}");
        }
        let handed = pair(9, 6, r#"[{"epoch":5,"durability":"sync","cut":7}]"#);
        assert_eq!(moved(&handed, movement("balance", "handed", "null"), &[9]), [3]);
        let taken_over = pair(10, 7, "[]");
        assert!(moved(&taken_over, movement("balance", "handed", "null"), &[8, 9, 10]).is_empty());
    }
}
