//! Where pairs go that are made for splits.

use cell_placement::{
    Arrival, BalancePause, BalanceRules, Figures, FreshPlace, FreshReason, FreshSplit, HeldPair, MoveCause,
    MoveReason, PairHold, RestReason, fresh_place, has_to_divide,
};
use cell_terms::{NodeId, PairId};

use crate::cluster::{
    MIB, NOW_MS, at, balancer, carry_out, cluster, held, look, pair, pass, planned, rest, with_rules,
};

fn place(figures: &Figures, number: u32) -> FreshPlace {
    let split = FreshSplit { from: NodeId(1), pair: PairId(number), bytes: 20 * MIB, memory_bytes: 40 * MIB };
    fresh_place(figures, &BalanceRules::default(), &split)
}

#[test]
fn split_of_a_node_above_the_mean_goes_to_who_has_less() {
    let figures = cluster(&[vec![pair(200, 0)], vec![pair(90, 0)], vec![pair(70, 0)]]);
    let place = place(&figures, 7);
    assert_eq!(place.node, NodeId(3));
    assert_eq!(place.why.to_string(), "it has 58 % of the mean bytes, and the node that splits 167 %");
}

/// The first meganode of a cluster: all others are empty, and half of it goes.
#[test]
fn first_split_of_all_goes_away() {
    let figures = cluster(&[vec![pair(40, 0)], vec![], vec![]]);
    assert_ne!(place(&figures, 7).node, NodeId(1));
}

#[test]
fn split_stays_where_its_node_is_not_above_or_nobody_would_have_less() {
    let figures = cluster(&[vec![pair(100, 0)], vec![pair(100, 0)], vec![pair(100, 0)]]);
    assert_eq!(place(&figures, 7).why, FreshReason::NotAbove { percent: 100 });
    let figures = cluster(&[vec![pair(108, 0)], vec![pair(96, 0)], vec![pair(96, 0)]]);
    assert_eq!(place(&figures, 7).why, FreshReason::NotAbove { percent: 108 }, "by little");
    let figures = cluster(&[vec![pair(112, 0)], vec![pair(94, 0)], vec![pair(94, 0)]]);
    assert_eq!(
        place(&figures, 7),
        FreshPlace { node: NodeId(1), why: FreshReason::NobodyBelow { percent: 112 } }
    );
}

#[test]
fn split_goes_by_bytes_as_of_now_and_waits_for_no_window() {
    let mut figures = cluster(&[vec![pair(200, 0)], vec![pair(90, 0)], vec![pair(70, 900)]]);
    for member in &mut figures.members {
        member.serving_ms = 1000;
        member.pairs.iter_mut().for_each(|held| held.held_ms = 1000);
    }
    assert_eq!(place(&figures, 7).node, NodeId(3), "load does not count here");
    at(&mut figures, 3).reported_ms_ago = None;
    assert_eq!(place(&figures, 7).node, NodeId(2));
    at(&mut figures, 1).reported_ms_ago = None;
    assert_eq!(place(&figures, 7).why, FreshReason::Unknown);
}

#[test]
fn split_respects_memory_and_number_of_pairs() {
    let mut figures = cluster(&[vec![pair(200, 0)], vec![pair(90, 0)], vec![pair(70, 0)]]);
    at(&mut figures, 3).memory_left_bytes = 39 * MIB;
    assert_eq!(place(&figures, 7).node, NodeId(2));
    at(&mut figures, 2).pairs_max = 1;
    assert_eq!(place(&figures, 7).node, NodeId(1));
}

#[test]
fn split_stays_while_only_drains_move_pairs() {
    let mut figures = cluster(&[vec![pair(200, 0)], vec![pair(90, 0)], vec![pair(70, 0)]]);
    at(&mut figures, 2).draining = true;
    assert_eq!(place(&figures, 7).why, FreshReason::Drain { node: NodeId(2) });
    at(&mut figures, 2).draining = false;
    figures.pause = Some(BalancePause::Off);
    assert_eq!(place(&figures, 7).why.to_string(), "it stays, because balance is off");
}

/// Whether node 1 has to divide what it holds: its pairs' MiB, beside other nodes'.
fn divides(own: &[u64], others: &[u64]) -> bool {
    let mut nodes = vec![own.iter().map(|mib| pair(*mib, 0)).collect()];
    nodes.extend(others.iter().map(|mib| vec![pair(*mib, 0)]));
    let bytes: Vec<u64> = own.iter().map(|mib| mib * MIB).collect();
    has_to_divide(&cluster(&nodes), &BalanceRules::default(), NodeId(1), &bytes)
}

#[test]
fn node_whose_pairs_are_too_large_to_move_has_to_divide_one() {
    assert!(divides(&[300], &[0, 0]), "all is in one pair");
    assert!(divides(&[260, 4], &[20, 16]), "what could go does not help");
    assert!(!divides(&[60, 60, 60, 60, 60], &[0, 0]), "moves do");
    assert!(divides(&[140], &[80, 80]));
    assert!(divides(&[150, 150], &[0, 0]), "each would lift another one over the tolerance");
    assert!(divides(&[75, 75], &[50]));
    assert!(!divides(&[80, 70, 70, 80], &[0, 0]));
    assert!(!divides(&[110], &[95, 95]), "it is within the tolerance");
    assert!(!divides(&[45], &[0, 0]), "there are few bytes");
    assert!(!divides(&[300], &[]), "there is nobody else");
}

#[test]
fn node_does_not_divide_while_nothing_but_drains_moves_or_it_is_not_known_what_others_have() {
    let all = [300 * MIB];
    let whole = cluster(&[vec![pair(300, 0)], vec![pair(1, 0)], vec![]]);
    let divides = |figures: &Figures| has_to_divide(figures, &BalanceRules::default(), NodeId(1), &all);
    assert!(divides(&whole));
    let mut figures = whole.clone();
    at(&mut figures, 2).draining = true;
    assert!(!divides(&figures));
    let figures = Figures { pause: Some(BalancePause::Off), ..whole.clone() };
    assert!(!divides(&figures));
    let mut figures = whole;
    at(&mut figures, 2).reported_ms_ago = None;
    at(&mut figures, 3).reported_ms_ago = None;
    assert!(!divides(&figures));
}

/// A thousand splits at the same time, of which none sees another's choice, do not choose the same node.
#[test]
fn splits_at_the_same_time_spread() {
    let mut nodes = vec![vec![pair(1000, 0)]];
    nodes.extend((0..50).map(|node| vec![pair(100 + node, 0)]));
    let figures = cluster(&nodes);
    let mut taken = vec![0_u32; 52];
    for number in 0..1000 {
        taken[place(&figures, number).node.0 as usize] += 1;
    }
    assert!(taken.iter().all(|taken| *taken <= 80), "{taken:?}");
}

/// One load of ascending keys: all goes to the last meganode, which is wherever its last split went.
#[test]
fn ascending_load_spreads_by_splits_alone() {
    let mut figures = cluster(&[vec![pair(0, 0)], vec![], vec![]]);
    let rules = BalanceRules::default();
    let mut hot = (1_u32, 0_usize);
    for number in 1000..1120 {
        let load = at(&mut figures, hot.0).pairs[hot.1].load.as_mut().unwrap();
        load.bytes += 20 * MIB;
        // Half of it splits off: the half that goes on growing.
        let bytes = load.bytes / 2;
        load.bytes -= bytes;
        let split = FreshSplit { from: NodeId(hot.0), pair: PairId(number), bytes, memory_bytes: bytes };
        let mut before = figures.clone();
        at(&mut before, hot.0).pairs[hot.1].load.as_mut().unwrap().bytes += bytes;
        let place = fresh_place(&before, &rules, &split);
        let there = at(&mut figures, place.node.0);
        let mut fresh = held(number, 0, 0);
        fresh.load.as_mut().unwrap().bytes = bytes;
        there.pairs.push(fresh);
        hot = (place.node.0, there.pairs.len() - 1);
    }
    let sums: Vec<u64> = figures
        .members
        .iter()
        .map(|member| member.pairs.iter().map(|held| held.load.unwrap().bytes / MIB).sum())
        .collect();
    let (largest, all) = (sums.iter().max().unwrap(), sums.iter().sum::<u64>());
    assert!(largest * 3 * 100 <= all * 110, "{sums:?}");
}

#[test]
fn fresh_pair_is_handed_away_as_soon_as_its_split_is_open() {
    let mut figures = cluster(&[vec![pair(200, 0), pair(20, 0)], vec![pair(90, 0)], vec![pair(70, 0)]]);
    let fresh = &mut at(&mut figures, 1).pairs[1];
    fresh.arrival = Arrival::Created { meant_for: Some(NodeId(2)) };
    fresh.held_ms = 40;
    fresh.hold = Some(PairHold::Split);
    rest(look(&figures)); // the split is not open yet
    at(&mut figures, 1).pairs[1].hold = None;
    // No window is waited for, neither its own nor anybody else's.
    at(&mut figures, 3).serving_ms = 10;
    let mut new = cell_placement::Balancer::new(BalanceRules::default()).unwrap();
    let planned = planned(new.look(5, &figures).step);
    assert_eq!((planned.pair, planned.to, planned.why), (PairId(101), NodeId(2), MoveReason::Fresh));
    assert!(planned.to_string().ends_with("it was made for node-2 by a split of node-1"));
}

#[test]
fn fresh_pair_goes_elsewhere_if_its_node_takes_it_no_more() {
    let mut figures = cluster(&[vec![pair(200, 0), pair(20, 0)], vec![pair(70, 0)], vec![pair(90, 0)]]);
    at(&mut figures, 1).pairs[1].arrival = Arrival::Created { meant_for: Some(NodeId(2)) };
    at(&mut figures, 1).pairs[1].held_ms = 59_000;
    at(&mut figures, 2).memory_left_bytes = 0;
    assert_eq!(planned(look(&figures)).to, NodeId(3));
    at(&mut figures, 3).pairs_max = 1;
    assert!(!matches!(rest(look(&figures)), RestReason::Moving(_)), "it stays");
    at(&mut figures, 3).pairs_max = 2;
    at(&mut figures, 1).pairs[1].held_ms = 60_000;
    let late = planned(look(&figures));
    assert_ne!(late.why, MoveReason::Fresh, "it is a pair like any other by now");
    // A node that drains gets none, and gives its own like any pair.
    at(&mut figures, 3).draining = true;
    assert_eq!(planned(look(&figures)).from, NodeId(3));
}

/// Of two nodes that split at the same time each made a pair for the one that had come back: it had 140 % of
/// the mean then.
#[test]
fn fresh_pair_stays_where_others_have_filled_its_node_meanwhile() {
    let uneven = || vec![pair(200, 0), pair(130, 0)];
    let mut figures = cluster(&[uneven(), uneven(), vec![pair(90, 0)]]);
    for node in [1, 2] {
        let fresh = &mut at(&mut figures, node).pairs[1];
        (fresh.arrival, fresh.held_ms) = (Arrival::Created { meant_for: Some(NodeId(3)) }, 1_000);
    }
    let mut balancer = balancer();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((first.pair, first.to, first.why), (PairId(101), NodeId(3), MoveReason::Fresh));
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Fresh));
    // Its new owner has not reported yet what it takes.
    let reported = at(&mut figures, 3).pairs[1].load.take();
    rest(balancer.look(NOW_MS + 2_000, &figures).step);
    let standing = &balancer.explain(NOW_MS + 2_000, &figures).nodes[2];
    assert_eq!((standing.node, standing.bytes), (NodeId(3), 220 * MIB));
    at(&mut figures, 3).pairs[1].load = reported;
    rest(balancer.look(NOW_MS + 4_000, &figures).step);
}

/// What a target has left was counted as if the pair before had not come.
#[test]
fn memory_of_pairs_that_have_come_and_are_not_reported_yet_is_not_left() {
    let mut figures = cluster(&[vec![pair(60, 0), pair(50, 0)], vec![], vec![]]);
    at(&mut figures, 1).draining = true;
    for (node, left) in [(2, 100), (3, 55)] {
        at(&mut figures, node).memory_left_bytes = left * MIB;
    }
    let mut balancer = balancer();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((first.pair, first.to), (PairId(100), NodeId(2)));
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Drain));
    at(&mut figures, 2).pairs[0].load = None;
    at(&mut figures, 2).memory_left_bytes = 100 * MIB;
    at(&mut figures, 3).memory_left_bytes = 0;
    rest(balancer.look(NOW_MS + 1_000, &figures).step);
}

/// A target takes the memory of a pair when its copy begins, and reports that before it reports the pair:
/// what the pair takes was counted twice meanwhile.
#[test]
fn memory_that_a_target_has_reported_as_taken_is_not_counted_again() {
    let mut figures = cluster(&[vec![pair(60, 0), pair(40, 0)], vec![], vec![]]);
    at(&mut figures, 1).draining = true;
    for (node, left) in [(2, 100), (3, 55)] {
        at(&mut figures, node).memory_left_bytes = left * MIB;
    }
    let mut balancer = balancer();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((first.pair, first.to), (PairId(100), NodeId(2)));
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Drain));
    at(&mut figures, 2).pairs[0].load = None;
    assert_eq!(at(&mut figures, 2).memory_left_bytes, 40 * MIB, "it has reported that");
    at(&mut figures, 3).memory_left_bytes = 0;
    let second = planned(balancer.look(NOW_MS + 1_000, &figures).step);
    assert_eq!((second.pair, second.to), (PairId(101), NodeId(2)));
}

/// A node under load always had another fresh pair. Those of the nodes after it grew old, and balance never
/// had its turn.
#[test]
fn fresh_pairs_of_one_node_hold_up_neither_others_nor_balance() {
    let nodes = [vec![pair(200, 0)], vec![pair(200, 0); 2], vec![pair(400, 0); 6], vec![], vec![]];
    let mut figures = cluster(&nodes);
    let fresh = |number: u32, held_ms: u64| HeldPair {
        arrival: Arrival::Created { meant_for: Some(NodeId(4)) },
        held_ms,
        ..held(number, 1, 0)
    };
    at(&mut figures, 2).pairs.push(fresh(2000, 3000));
    let mut balancer = with_rules(BalanceRules { node_rest_ms: 0, ..BalanceRules::default() });
    let mut made = Vec::new();
    for number in 0..20 {
        at(&mut figures, 1).pairs.push(fresh(1000 + number, 1000));
        let planned = planned(balancer.look(NOW_MS + u64::from(number) * 2000, &figures).step);
        let (cause, word) = match planned.why {
            MoveReason::Fresh => (MoveCause::Fresh, 'f'),
            _ => (MoveCause::Balance, 'b'),
        };
        carry_out(&mut figures, &planned, Arrival::Moved(cause));
        pass(&mut figures, 2000);
        made.push((planned, word));
    }
    let words: String = made.iter().map(|(_, word)| *word).collect();
    assert_eq!(&words[..15], "ffffbffffbffffb", "balance has its turn");
    assert_eq!(made[0].0.pair, PairId(2000), "who has waited longest leaves first");
    assert!(made.iter().all(|(planned, word)| *word == 'f' || planned.from == NodeId(3)), "{made:?}");
}
