//! Moves of balance that are in the way of a full node.

use cell_placement::{
    BalanceRules, CancelReason, Figures, HeldPair, MoveCause, MoveFailure, MoveUnderWay, NextStep, RestReason,
};
use cell_random::Random;
use cell_terms::{NodeId, PairId};

use crate::cluster::{MIB, NOW_MS, at, look, planned, rest};
use crate::relief::{FULL, full, is_relief, relief_alone, small_nodes};

/// All have reported what they have so long ago.
fn reported(figures: &mut Figures, ago_ms: u64) {
    figures.members.iter_mut().for_each(|member| member.reported_ms_ago = Some(ago_ms));
}

/// The move of balance that is in the way of node 1.
fn in_the_way(handed: bool) -> Option<MoveUnderWay> {
    let (from, to, cause) = (NodeId(2), NodeId(3), MoveCause::Balance);
    Some(MoveUnderWay { pair: PairId(200), from, to, cause, handed })
}

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
    // By neither end has anything changed, and neither reports anything new.
    figures.moving = None;
    reported(&mut figures, 10_000);
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
    figures.moving = in_the_way(false);
    assert!(matches!(rest(balancer.look(NOW_MS + 1_000, &figures).step), RestReason::Moving(_)));
    let retried_ms = NOW_MS + BalanceRules::default().retry_ms + 1_000;
    let why = CancelReason::WritesWait { node: FULL };
    let cancelled = NextStep::Cancel { pair: PairId(200), why };
    assert_eq!(balancer.look(retried_ms, &figures).step, cancelled);
}

/// A move under way was taken for one that was over at each look: what its ends had reported did not count
/// then, and once it was cancelled the full node gave nothing until they had reported something again.
#[test]
fn move_that_was_under_way_for_long_and_is_cancelled_has_changed_nothing() {
    let (mut figures, mut balancer) = (full(), relief_alone());
    at(&mut figures, 1).writes_wait = false;
    figures.moving = in_the_way(false);
    for second in 0..3 {
        assert!(matches!(rest(balancer.look(NOW_MS + second * 1_000, &figures).step), RestReason::Moving(_)));
    }
    at(&mut figures, 1).writes_wait = true;
    reported(&mut figures, 10_000);
    assert!(matches!(balancer.look(NOW_MS + 3_000, &figures).step, NextStep::Cancel { .. }));
    figures.moving = None;
    assert!(is_relief(&balancer.look(NOW_MS + 4_000, &figures).step));
}

/// It counted as one that had changed nothing: what its ends had reported before it was believed.
#[test]
fn move_that_is_handed_over_before_its_cancelling_is_seen_counts() {
    let (mut figures, mut balancer) = (full(), relief_alone());
    figures.moving = in_the_way(false);
    assert!(matches!(balancer.look(NOW_MS, &figures).step, NextStep::Cancel { .. }));
    let mut over = (figures.clone(), balancer.clone());
    figures.moving = in_the_way(true);
    assert!(matches!(rest(balancer.look(NOW_MS + 1_000, &figures).step), RestReason::Moving(_)));
    figures.moving = None;
    reported(&mut figures, 10_000);
    assert!(
        !is_relief(&balancer.look(NOW_MS + 2_000, &figures).step),
        "its ends have reported nothing since"
    );
    reported(&mut figures, 0);
    assert!(is_relief(&balancer.look(NOW_MS + 4_000, &figures).step));
    // All of it was over before the next look.
    let (figures, balancer) = (&mut over.0, &mut over.1);
    figures.moving = None;
    let moved = at(figures, 2).pairs.remove(0);
    at(figures, 3).pairs.push(HeldPair { load: None, ..moved });
    reported(figures, 10_000);
    assert!(!is_relief(&balancer.look(NOW_MS + 1_000, figures).step), "its ends have reported nothing since");
    reported(figures, 0);
    assert!(is_relief(&balancer.look(NOW_MS + 3_000, figures).step));
}

/// Whatever has failed, and whenever each has reported what it has.
#[test]
fn full_node_gives_a_pair_once_the_move_that_was_cancelled_for_it_is_gone() {
    let (mut cancelled, mut kept) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed ^ 0xca5e);
        let (mut figures, mut balancer) = (small_nodes(&mut random), relief_alone());
        figures.moving = in_the_way(false);
        balancer.look(NOW_MS, &figures);
        let full = at(&mut figures, 1);
        (full.writes_wait, full.memory_left_bytes) = (true, random.between(0, 8) * MIB);
        for held in full.pairs.clone() {
            for node in [2, 3].map(NodeId).into_iter().filter(|_| random.percent(85)) {
                balancer.on_failure(NOW_MS, held.pair, node, MoveFailure::Declined);
            }
        }
        reported(&mut figures, random.below(10_000));
        match balancer.look(NOW_MS + 1_000, &figures).step {
            NextStep::Cancel { pair, why } => {
                assert_eq!((pair, why), (PairId(200), CancelReason::WritesWait { node: FULL }));
                figures.moving = None;
                let relief = planned(balancer.look(NOW_MS + 2_000, &figures).step);
                assert_eq!(relief.from, FULL, "seed {seed}: {relief}");
                cancelled += 1;
            }
            step => {
                assert!(matches!(rest(step), RestReason::Moving(_)), "seed {seed}");
                kept += 1;
            }
        }
    }
    assert!(cancelled > 30 && kept > 30, "{cancelled} of 300, and {kept} not");
}
