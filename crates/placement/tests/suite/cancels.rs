//! Moves of balance that are in the way of a full node.

use cell_placement::{
    BalanceRules, CancelReason, Figures, MoveCause, MoveFailure, MoveUnderWay, NextStep, RestReason,
};
use cell_terms::{NodeId, PairId};

use crate::cluster::{MIB, NOW_MS, at, look, planned, rest};
use crate::relief::{FULL, full, is_relief, relief_alone};

/// Puts waited for 4 s, and a pair of a gigabyte took ten.
#[test]
fn move_of_balance_is_cancelled_for_a_full_node_that_could_give_a_pair() {
    let (mut figures, mut balancer) = (full(), relief_alone());
    let moving = |from, to, cause, handed| {
        Some(MoveUnderWay { pair: PairId(200), from: NodeId(from), to: NodeId(to), cause, handed })
    };
    let goes_on = |figures: &Figures| matches!(rest(look(figures)), RestReason::Moving(_));
    for cause in [MoveCause::Operator, MoveCause::Drain, MoveCause::Fresh] {
        figures.moving = moving(2, 3, cause, false);
        assert!(goes_on(&figures), "{cause}");
    }
    figures.moving = moving(2, 3, MoveCause::Balance, true);
    assert!(goes_on(&figures), "it is nearly over");
    figures.moving = moving(1, 3, MoveCause::Balance, false);
    assert!(goes_on(&figures), "it is what helps");
    figures.moving = moving(2, 3, MoveCause::Balance, false);
    let mut nobody_has_room = figures.clone();
    for node in [2, 3] {
        at(&mut nobody_has_room, node).memory_left_bytes = 0;
    }
    assert!(goes_on(&nobody_has_room));
    for second in 0..2 {
        let step = balancer.look(NOW_MS + second * 1_000, &figures).step;
        let why = CancelReason::WritesWait { node: FULL };
        assert_eq!(step, NextStep::Cancel { pair: PairId(200), why });
    }
    // By neither end has anything changed, and neither tells anything new.
    figures.moving = None;
    figures.members.iter_mut().for_each(|member| member.told_ms_ago = Some(10_000));
    let relief = planned(balancer.look(NOW_MS + 2_000, &figures).step);
    assert_eq!((relief.pair, relief.to), (PairId(102), NodeId(3)));
    // Another node is full meanwhile, and this one waits no more: its turn comes.
    (at(&mut figures, 1).writes_wait, at(&mut figures, 2).writes_wait) = (false, true);
    at(&mut figures, 2).memory_left_bytes = 3 * MIB;
    figures.moving = Some(MoveUnderWay {
        pair: relief.pair,
        from: FULL,
        to: relief.to,
        cause: MoveCause::Balance,
        handed: false,
    });
    assert!(matches!(rest(balancer.look(NOW_MS + 3_000, &figures).step), RestReason::Moving(_)));
}

/// A move of balance was cancelled for a pair that then did not leave, and so was the next one, for a minute
/// each time.
#[test]
fn move_of_balance_goes_on_while_all_that_would_help_has_just_failed() {
    let (mut figures, mut balancer) = (full(), relief_alone());
    for (place, to) in (0..4_usize).flat_map(|place| [(place, NodeId(2)), (place, NodeId(3))]) {
        let pair = at(&mut figures, 1).pairs[place].pair;
        balancer.on_failure(NOW_MS, pair, to, MoveFailure::Declined);
    }
    let (from, to, cause) = (NodeId(2), NodeId(3), MoveCause::Balance);
    figures.moving = Some(MoveUnderWay { pair: PairId(200), from, to, cause, handed: false });
    assert!(matches!(rest(balancer.look(NOW_MS + 1_000, &figures).step), RestReason::Moving(_)));
    let retried_ms = NOW_MS + BalanceRules::default().retry_ms + 1_000;
    let why = CancelReason::WritesWait { node: FULL };
    let cancelled = NextStep::Cancel { pair: PairId(200), why };
    assert_eq!(balancer.look(retried_ms, &figures).step, cancelled);
}

/// It counted as one that had changed nothing: what its ends had told before it was believed.
#[test]
fn move_that_is_handed_over_before_its_cancelling_is_seen_counts() {
    let (mut figures, mut balancer) = (full(), relief_alone());
    let moving = |handed| {
        let (from, to, cause) = (NodeId(2), NodeId(3), MoveCause::Balance);
        Some(MoveUnderWay { pair: PairId(200), from, to, cause, handed })
    };
    figures.moving = moving(false);
    assert!(matches!(balancer.look(NOW_MS, &figures).step, NextStep::Cancel { .. }));
    figures.moving = moving(true);
    assert!(matches!(rest(balancer.look(NOW_MS + 1_000, &figures).step), RestReason::Moving(_)));
    figures.moving = None;
    figures.members.iter_mut().for_each(|member| member.told_ms_ago = Some(10_000));
    assert!(!is_relief(&balancer.look(NOW_MS + 2_000, &figures).step), "its ends have told nothing since");
    figures.members.iter_mut().for_each(|member| member.told_ms_ago = Some(0));
    assert!(is_relief(&balancer.look(NOW_MS + 4_000, &figures).step));
}
