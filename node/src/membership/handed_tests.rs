//! Pairs that moves have handed over to a member: whose they are.

use cell_cluster::{MoveRow, MoveStage};

use super::tests::{SECOND, core, row, view};
use super::*;
use crate::moves::fixtures::move_row;
use crate::moves::handed_to;

/// A move of the first pair to node 1 that was handed over, and what membership there claims.
struct Handed {
    view: ClusterView,
    targets: BTreeSet<PairId>,
    core: Membership,
}

impl Handed {
    /// Node 1 has the pair in this epoch, and does not serve it.
    fn new(epoch: u32) -> Handed {
        let of = move_row(MoveStage::Handed);
        let (source, target) = (of.target, of.source);
        let of = MoveRow { pair: PairId(1), epoch: cell_terms::Epoch(1), source, target, ..of };
        let epoch = cell_terms::Epoch(epoch);
        let recovering = PairRow { state: PairState::Recovering, epoch, ..row(1, Some(7), 1) };
        let mut view = view(&[(7, 1), (8, 2)], &[recovering]);
        view.moves.insert(of.pair, of);
        Handed { view, targets: BTreeSet::new(), core: core(7, 1) }
    }

    fn claims(&mut self) -> usize {
        self.core.set_handed(handed_to(&self.view, Incarnation(7), &self.targets));
        let commands = self.core.look(&self.view, SECOND);
        commands.iter().filter(|command| matches!(command, MembershipCommand::TakeOver { .. })).count()
    }
}

/// What was handed over to a node is its move's, until that is over: a claim beside it would raise the epoch
/// under the copy that is being published.
fn handed_pair_is_left_to_its_move() {
    let mut handed = Handed::new(2);
    assert_eq!(handed.claims(), 0);
    handed.view.moves.clear();
    assert_eq!(handed.claims(), 1, "it is a takeover that was broken off");
}

/// The row of a move may be under way long after it: a pair that has come back by another way was left to a
/// move that nobody went on with.
#[test]
fn pair_that_others_have_had_since_it_was_handed_over_is_claimed_whatever_its_move_says() {
    assert_eq!(Handed::new(3).claims(), 1);
}

/// Its source had died, the target had done with it, and none begins by a row that does not read: nobody
/// served the pair, and balance and drains waited for the move.
#[test]
fn handed_pair_whose_moves_row_does_not_read_is_claimed_where_no_target_is_at_it() {
    let mut handed = Handed::new(2);
    let key = MoveRow::key(PairId(1));
    handed.view.unreadable = [(key, "it does not read".to_owned())].into();
    handed.targets = [PairId(1)].into();
    assert_eq!(handed.claims(), 0);
    handed.targets.clear();
    assert_eq!(handed.claims(), 1);
}

#[test]
fn pair_that_was_handed_over_is_claimed_once_its_move_is_over() {
    handed_pair_is_left_to_its_move();
}

#[test]
#[cfg(debug_assertions)]
fn mutant_handed_claimed_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        plant(Some(Mutant::HandedClaimed));
        let passed = std::panic::catch_unwind(handed_pair_is_left_to_its_move).is_ok();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-node's membership", Mutant::HandedClaimed.name());
    });
}
