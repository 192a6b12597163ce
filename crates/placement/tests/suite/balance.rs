//! Which pair balance moves, and when none.

use cell_placement::{
    Arrival, BalancePause, BalanceRules, MemberState, MoveCause, MoveReason, MoveUnderWay, NextStep,
    PairHold, PlannedMove, RestReason,
};
use cell_terms::{NodeId, PairId};

use crate::cluster::{
    MIB, NOW_MS, at, balancer, carry_out, cluster, look, pair, pass, planned, rest, with_rules,
};

#[test]
fn node_above_the_mean_gives_the_pair_that_helps_most() {
    let figures = cluster(&[
        vec![pair(100, 0), pair(300, 0), pair(200, 0), pair(600, 0)],
        vec![pair(400, 0)],
        vec![pair(600, 0)],
    ]);
    // The mean is 733. Of 1,200, 300 leave 900, and 600 would make 1,000 of 400.
    let planned = planned(look(&figures));
    assert_eq!((planned.pair, planned.from, planned.to), (PairId(101), NodeId(1), NodeId(2)));
    let words = planned.to_string();
    let expected = "pair-101 (300.0 MiB) moves from node-1 to node-2: node-1 has 164 % of the mean bytes, and \
                    afterwards neither has more than 123 %";
    assert_eq!(words, expected);
}

#[test]
fn load_counts_as_bytes_do() {
    let figures =
        cluster(&[vec![pair(100, 100), pair(100, 150), pair(100, 250)], vec![pair(50, 100), pair(50, 50)]]);
    let planned = planned(look(&figures));
    assert_eq!((planned.pair, planned.to), (PairId(101), NodeId(2)), "{planned}");
    assert!(planned.to_string().contains("node-1 has 154 % of the mean load"), "{planned}");
}

#[test]
fn target_is_lifted_over_the_tolerance_in_neither_measure() {
    // The second node has less load, but its bytes are at the limit; the third one has room for both.
    let figures = cluster(&[
        vec![pair(100, 100), pair(100, 100), pair(100, 100), pair(100, 100)],
        vec![pair(390, 20), pair(60, 20)],
        vec![pair(300, 150)],
    ]);
    assert_eq!(planned(look(&figures)).to, NodeId(3));
    let figures = cluster(&[vec![pair(100, 100); 4], vec![pair(225, 20); 2], vec![pair(225, 80); 2]]);
    match rest(look(&figures)) {
        RestReason::NothingHelps { node, why, .. } => assert_eq!((node, why.lift), (NodeId(1), 4)),
        other => panic!("{other}"),
    }
}

/// Each move costs a copy. Of a mean of 100, 60 would make 118 of 58: hardly better than 125.
#[test]
fn move_that_helps_little_is_not_made() {
    let figures = cluster(&[vec![pair(65, 0), pair(60, 0)], vec![pair(58, 0)], vec![pair(117, 0)]]);
    match rest(look(&figures)) {
        RestReason::NothingHelps { node, why, .. } => {
            assert_eq!((node, why.lift, why.no_gain), (NodeId(1), 1, 1));
            let words = "of its pairs 1 would be too much for any other node, 1 would help too little";
            assert_eq!(why.to_string(), words);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn cluster_within_the_tolerance_rests() {
    let figures = cluster(&[vec![pair(119, 90)], vec![pair(100, 119)], vec![pair(81, 91)]]);
    let why = rest(look(&figures));
    assert_eq!(
        why.to_string(),
        "the cluster is balanced: node-1 has most, 119 % of the mean bytes",
        "{why:?}"
    );
}

#[test]
fn empty_node_gets_its_share_though_nobody_is_above_by_much() {
    let mut nodes = vec![vec![pair(50, 0); 20]; 10];
    nodes.push(Vec::new());
    let figures = cluster(&nodes);
    let planned = planned(look(&figures));
    assert_eq!(planned.to, NodeId(11));
    assert_eq!(planned.why, MoveReason::Below { percent: 0, from_percent: 110 });
    assert!(planned.to_string().ends_with("node-11 has only 0 % of the mean, and node-1 has 110 %"));
}

/// It was said that the cluster is balanced.
#[test]
fn empty_node_that_takes_no_pair_is_named_with_what_may_keep_it_from_that() {
    let mut nodes = vec![vec![pair(50, 0); 20]; 10];
    nodes.push(Vec::new());
    let mut figures = cluster(&nodes);
    at(&mut figures, 11).disk_full = true;
    let why = rest(look(&figures));
    assert_eq!(why, RestReason::TakesNone { node: NodeId(11), percent: 0 });
    let words = why.to_string();
    assert!(words.starts_with("node-11 has only 0 % of the mean, and takes no pair now: "), "{words}");
    assert!(words.ends_with(", or has a full disk"), "{words}");
    at(&mut figures, 11).disk_full = false;
    assert_eq!(planned(look(&figures)).to, NodeId(11));
}

#[test]
fn little_is_not_worth_balancing() {
    let figures = cluster(&[vec![pair(1, 1); 10], Vec::new()]);
    assert_eq!(rest(look(&figures)), RestReason::TooLittle);
}

#[test]
fn hot_pair_stays_and_is_named() {
    let figures = cluster(&[vec![pair(100, 800)], vec![pair(50, 50); 2], vec![pair(50, 50); 2]]);
    let why = rest(look(&figures));
    assert_eq!(
        why,
        RestReason::HotPair {
            pair: PairId(100),
            node: NodeId(1),
            measure: cell_placement::Measure::Load,
            percent: 240
        }
    );
    assert_eq!(
        why.to_string(),
        "pair-100 alone has 240 % of the mean load and would be too much for any node: it stays on node-1"
    );
}

/// A hot pair would make any node the worst: it goes nowhere, but what is beside it does.
#[test]
fn what_is_beside_a_hot_pair_leaves() {
    let mut figures = cluster(&[
        vec![pair(100, 500), pair(20, 60), pair(20, 60)],
        vec![pair(80, 100); 2],
        vec![pair(80, 100); 2],
    ]);
    let mut balancer = balancer();
    let mut now_ms = NOW_MS;
    for _ in 0..2 {
        let planned = planned(balancer.look(now_ms, &figures).step);
        assert!(planned.from == NodeId(1) && planned.pair != PairId(100), "{planned}");
        carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
        now_ms += 1000;
        pass(&mut figures, 1000);
    }
    let why = rest(balancer.look(now_ms, &figures).step);
    assert!(matches!(why, RestReason::HotPair { pair: PairId(100), .. }), "{why}");
}

#[test]
fn pair_rests_after_balance_has_moved_it() {
    let mut figures = cluster(&[vec![pair(100, 0), pair(100, 0)], vec![]]);
    for held in &mut at(&mut figures, 1).pairs {
        held.arrival = Arrival::Moved(MoveCause::Balance);
        held.held_ms = 500_000;
    }
    match rest(look(&figures)) {
        RestReason::NothingHelps { why, .. } => {
            assert_eq!(why.resting, 2);
            assert_eq!(why.to_string(), "of its pairs 2 rest after a move");
        }
        other => panic!("{other}"),
    }
    at(&mut figures, 1).pairs[0].held_ms = 600_000;
    assert_eq!(planned(look(&figures)).pair, PairId(100));
    // What a drain has moved does not rest.
    at(&mut figures, 1).pairs[0].held_ms = 500_000;
    at(&mut figures, 1).pairs[1].arrival = Arrival::Moved(MoveCause::Drain);
    assert_eq!(planned(look(&figures)).pair, PairId(101));
}

/// Balance moved it straight back.
#[test]
fn pair_that_an_operator_has_moved_rests_as_well() {
    let mut figures = cluster(&[vec![pair(100, 0); 2], vec![pair(100, 0); 2]]);
    let mut balancer = balancer();
    let (pair, from, to) = (PairId(100), NodeId(1), NodeId(2));
    let by_hand = PlannedMove { pair, from, to, bytes: 100 * MIB, why: MoveReason::Fresh };
    carry_out(&mut figures, &by_hand, Arrival::Moved(MoveCause::Operator));
    let (mut now_ms, mut moved) = (NOW_MS, None);
    while moved.is_none() && now_ms < NOW_MS + 599_000 {
        pass(&mut figures, 1000);
        now_ms += 1000;
        if let NextStep::Move(planned) = balancer.look(now_ms, &figures).step {
            moved = Some(planned);
        }
    }
    let moved = moved.expect("node 2 has too much");
    assert!(moved.from == to && moved.pair != pair, "{moved}");
    at(&mut figures, 2).pairs.retain(|held| held.pair == pair);
    at(&mut figures, 1).pairs.clear();
    let why = balancer.explain_pair(now_ms, &figures, pair).unwrap().to_string();
    assert!(why.contains("an operator moved it, and it rests for another "), "{why}");
    assert!(matches!(balancer.look(now_ms, &figures).step, NextStep::Rest(_)));
}

/// Of several hundred pairs none gained enough alone.
#[test]
fn node_of_several_hundred_pairs_gives_half_of_them() {
    let mut figures = cluster(&[(0..900).map(|place| pair(10 + place % 3, 0)).collect(), vec![]]);
    figures.members.iter_mut().for_each(|member| member.pairs_max = 909);
    let (mut balancer, mut now_ms, mut moves) = (balancer(), NOW_MS, 0);
    while let NextStep::Move(planned) = balancer.look(now_ms, &figures).step {
        assert_eq!(planned.from, NodeId(1), "{planned}");
        carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
        pass(&mut figures, 1000);
        (now_ms, moves) = (now_ms + 1000, moves + 1);
        assert!(moves < 450, "{planned}");
    }
    let sum = |node: &cell_placement::MemberFigures| -> u64 {
        node.pairs.iter().map(|held| held.load.unwrap().bytes / MIB).sum()
    };
    let [most, least] = [sum(&figures.members[0]), sum(&figures.members[1])];
    assert!(least * 100 >= most * 65, "{most} and {least} MiB after {moves} moves");
}

/// What is small beside the rest of its node gains too little, however much that node has.
#[test]
fn pairs_that_are_small_beside_their_node_do_not_move() {
    let figures = cluster(&[vec![pair(1500, 0), pair(2, 0), pair(2, 0), pair(2, 0)], vec![]]);
    assert!(matches!(rest(look(&figures)), RestReason::HotPair { pair: PairId(100), .. }));
}

#[test]
fn node_that_took_a_pair_gives_none_for_a_while() {
    let mut figures = cluster(&[vec![pair(100, 0); 4], vec![]]);
    let mut balancer = balancer();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!(first.to, NodeId(2));
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Balance));
    // Of a sudden the second node has far more than the first one, by pairs that may move.
    let more: Vec<_> = (0..9).map(|place| crate::cluster::held(300 + place, 100, 0)).collect();
    at(&mut figures, 2).pairs.extend(more);
    match rest(balancer.look(NOW_MS + 10_000, &figures).step) {
        RestReason::NothingHelps { node, why, .. } => {
            assert_eq!((node, why.node_rests_ms), (NodeId(2), Some(50_000)));
            assert_eq!(why.to_string(), "it took a pair a moment ago and gives none for 50 s");
        }
        other => panic!("{other}"),
    }
    // Nor does the first one take any: a third node would get it.
    figures.members.push(crate::cluster::member(3, vec![crate::cluster::held(400, 20, 0)]));
    assert_eq!(planned(balancer.look(NOW_MS + 60_000, &figures).step).from, NodeId(2));
}

#[test]
fn node_that_gave_a_pair_takes_none_for_a_while() {
    let mut figures = cluster(&[vec![pair(100, 0); 4], vec![], vec![pair(100, 0); 2]]);
    let mut balancer = balancer();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!(first.from, NodeId(1));
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Balance));
    at(&mut figures, 1).pairs.clear();
    let more: Vec<_> = (0..9).map(|place| crate::cluster::held(500 + place, 100, 0)).collect();
    at(&mut figures, 3).pairs.extend(more);
    // The first one is empty now, but it gave a moment ago.
    assert_eq!(planned(balancer.look(NOW_MS + 1000, &figures).step).to, NodeId(2));
    let mut balancer = with_rules(BalanceRules { node_rest_ms: 0, ..BalanceRules::default() });
    assert_eq!(planned(balancer.look(NOW_MS + 1000, &figures).step).to, NodeId(1));
}

/// What a node has that takes no pairs is not the others' business: their mean is theirs.
#[test]
fn node_that_takes_no_writes_is_left_out_of_the_mean() {
    let mut figures = cluster(&[vec![pair(100, 0)], vec![pair(100, 0)], vec![pair(1000, 0)]]);
    at(&mut figures, 3).state = MemberState::ReadOnly;
    let why = rest(look(&figures));
    assert!(matches!(why, RestReason::Balanced { percent: 100, .. }), "{why}");
}

/// The rest of a node begins when a move is over, however long it took, and whoever began it.
#[test]
fn node_rests_from_the_end_of_a_long_move_on() {
    let mut figures = cluster(&[vec![pair(100, 0); 4], vec![pair(100, 0)], vec![pair(100, 0); 3]]);
    let (pair, from, to) = (PairId(100), NodeId(1), NodeId(2));
    figures.moving = Some(MoveUnderWay { pair, from, to, cause: MoveCause::Balance, handed: false });
    let mut balancer = balancer();
    balancer.look(NOW_MS, &figures);
    balancer.look(NOW_MS + 100_000, &figures);
    figures.moving = None;
    let standing = balancer.explain(NOW_MS + 101_000, &figures).nodes;
    assert_eq!((standing[0].takes_in_ms, standing[1].gives_in_ms), (Some(59_000), Some(59_000)));
    assert_eq!((standing[2].takes_in_ms, standing[2].gives_in_ms), (None, None));
}

#[test]
fn memory_and_number_of_pairs_of_targets_are_respected() {
    let mut figures = cluster(&[vec![pair(200, 0); 4], vec![], vec![pair(200, 0)]]);
    at(&mut figures, 2).memory_left_bytes = 100 * MIB;
    assert_eq!(planned(look(&figures)).to, NodeId(3), "the emptiest lacks memory");
    at(&mut figures, 3).pairs_max = 1;
    match rest(look(&figures)) {
        RestReason::NothingHelps { why, .. } => assert_eq!(why.no_room, 4),
        other => panic!("{other}"),
    }
    let mut full = figures.clone();
    at(&mut full, 2).pairs_max = 0;
    let words = "drains, has given one a short time ago, lacks memory for writes itself, or has a full disk";
    assert!(rest(look(&full)).to_string().ends_with(words));
    at(&mut figures, 2).memory_left_bytes = 200 * MIB;
    assert_eq!(planned(look(&figures)).to, NodeId(2), "exactly as much as it takes");
}

#[test]
fn node_that_is_no_target_gets_nothing() {
    let mut figures = cluster(&[vec![pair(100, 0); 6], vec![], vec![pair(100, 0); 2]]);
    at(&mut figures, 2).state = MemberState::ReadOnly;
    assert_eq!(planned(look(&figures)).to, NodeId(3));
    let mut figures = cluster(&[vec![pair(100, 0); 6], vec![], vec![pair(100, 0); 2]]);
    at(&mut figures, 2).draining = true; // and it is empty: that drain is over
    assert_eq!(planned(look(&figures)).to, NodeId(3));
}

#[test]
fn held_pairs_stay() {
    let mut figures = cluster(&[vec![pair(100, 0), pair(101, 0), pair(102, 0)], vec![]]);
    at(&mut figures, 1).pairs[0].hold = Some(PairHold::Split);
    at(&mut figures, 1).pairs[1].hold = Some(PairHold::NoLog);
    assert_eq!(planned(look(&figures)).pair, PairId(102));
    at(&mut figures, 1).pairs[2].hold = Some(PairHold::Check);
    assert!(rest(look(&figures)).to_string().ends_with("no move would help: of its pairs 3 cannot move now"));
}

#[test]
fn pair_is_not_sent_again_at_once_to_who_could_not_take_it() {
    let figures = cluster(&[vec![pair(100, 0), pair(100, 0)], vec![]]);
    let mut balancer = balancer();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    balancer.on_failure(NOW_MS, first.pair, first.to, cell_placement::MoveFailure::NoMemory);
    let second = planned(balancer.look(NOW_MS + 1000, &figures).step);
    assert_ne!(second.pair, first.pair);
    balancer.on_failure(NOW_MS + 2000, second.pair, second.to, cell_placement::MoveFailure::Behind);
    assert!(matches!(rest(balancer.look(NOW_MS + 3000, &figures).step), RestReason::NothingHelps { .. }));
    assert_eq!(planned(balancer.look(NOW_MS + 60_000, &figures).step).pair, first.pair, "a minute later");
}

#[test]
fn one_moves_at_a_time_and_none_while_pairs_wait_for_an_owner() {
    let mut figures = cluster(&[vec![pair(100, 0); 4], vec![]]);
    figures.moving = Some(MoveUnderWay {
        pair: PairId(100),
        from: NodeId(1),
        to: NodeId(2),
        cause: MoveCause::Balance,
        handed: false,
    });
    let words = look(&figures).to_string();
    assert_eq!(words, "nothing is to be done: pair-100 is being moved from node-1 to node-2 for balance");
    figures.moving = None;
    figures.takeovers_open = 2;
    assert_eq!(rest(look(&figures)), RestReason::TakeoversOpen { pairs: 2 });
}

#[test]
fn balance_rests_while_it_is_off_or_paused() {
    for pause in [BalancePause::Off, BalancePause::Drill, BalancePause::RollingRestart] {
        let mut figures = cluster(&[vec![pair(100, 0); 4], vec![]]);
        figures.pause = Some(pause);
        assert_eq!(rest(look(&figures)), RestReason::Paused(pause));
    }
    assert_eq!(rest(look(&cluster(&[vec![pair(900, 0); 4]]))), RestReason::OneNode);
}

/// Of two pairs that help as much, the one with fewer bytes moves: the copy is what a move costs.
#[test]
fn pair_with_fewer_bytes_moves_if_both_help_alike() {
    let figures = cluster(&[
        vec![pair(20, 200), pair(10, 199), pair(15, 201), pair(300, 400)],
        vec![pair(300, 400)],
        vec![pair(300, 400)],
    ]);
    assert_eq!(planned(look(&figures)).pair, PairId(101));
}

/// What a pair takes is unknown at its new owner for a minute. Until then what the old one measured counts:
/// the target is not filled up as if the pair took nothing.
#[test]
fn load_of_a_moved_pair_counts_at_once_at_its_target() {
    let mut figures = cluster(&[vec![pair(100, 100); 8], vec![], vec![pair(100, 100); 8]]);
    let mut balancer = balancer();
    let mut moves = 0;
    for second in 0..60 {
        let step = balancer.look(NOW_MS + second * 1000, &figures).step;
        if let NextStep::Move(planned) = step {
            assert_eq!(planned.to, NodeId(2));
            carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
            let moved = at(&mut figures, 2).pairs.last_mut().unwrap();
            moved.load.as_mut().unwrap().load_ns = 0; // its new owner has measured nothing yet
            moves += 1;
        }
        pass(&mut figures, 1000);
    }
    assert!((4..=5).contains(&moves), "{moves} of sixteen pairs went to the third node");
}

#[test]
fn young_pair_moves_for_its_bytes_and_not_for_its_load() {
    let mut figures = cluster(&[vec![pair(100, 10); 4], vec![pair(20, 5); 4]]);
    for held in &mut at(&mut figures, 1).pairs {
        held.arrival = Arrival::Created { meant_for: None };
        held.held_ms = 5000;
    }
    assert_eq!(planned(look(&figures)).from, NodeId(1));
    let mut figures = cluster(&[vec![pair(100, 100); 4], vec![pair(100, 10); 4]]);
    for held in &mut at(&mut figures, 1).pairs {
        held.arrival = Arrival::Created { meant_for: None };
        held.held_ms = 5000;
    }
    match rest(look(&figures)) {
        RestReason::NothingHelps { why, .. } => assert_eq!(why.young, 4),
        other => panic!("{other}"),
    }
}
