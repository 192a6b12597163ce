//! Drains: where pairs go, whether they can, and what is said if not.

use cell_placement::{
    Advice, Arrival, BalanceRules, DrainRefusal, MemberState, MoveCause, MoveFailure, MoveReason,
    MoveUnderWay, NextStep, PairHold, PairObstacle, PlannedMove, RestReason,
};
use cell_random::Random;
use cell_terms::{NodeId, PairId};

use crate::cluster::{
    MIB, NOW_MS, at, balancer, carry_out, cluster, look, pair, pass, planned, rest, stall, with_rules,
};
use crate::model::Model;

#[test]
fn drain_moves_the_largest_pair_first_to_who_has_least() {
    let mut figures = cluster(&[vec![pair(10, 0), pair(300, 0)], vec![pair(500, 0)], vec![pair(400, 0)]]);
    at(&mut figures, 1).draining = true;
    let first = planned(look(&figures));
    assert_eq!((first.pair, first.to, first.why), (PairId(101), NodeId(3), MoveReason::Drain { left: 2 }));
    let words = "pair-101 (300.0 MiB) moves from node-1 to node-3: node-1 drains and has 2 pairs left";
    assert_eq!(first.to_string(), words);
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Drain));
    let last = planned(look(&figures));
    assert_eq!((last.pair, last.to), (PairId(100), NodeId(2)));
    assert!(last.to_string().ends_with("node-1 drains, and this is its last pair"));
}

#[test]
fn drain_waits_for_no_window_and_moves_what_rests() {
    let mut figures = cluster(&[vec![pair(100, 50); 2], vec![pair(100, 50)], vec![]]);
    at(&mut figures, 1).draining = true;
    for held in &mut at(&mut figures, 1).pairs {
        held.arrival = Arrival::Moved(MoveCause::Balance);
        held.held_ms = 1000;
    }
    at(&mut figures, 3).serving_ms = 1000;
    at(&mut figures, 2).reported_ms_ago = None;
    figures.pause = Some(cell_placement::BalancePause::Off);
    let mut new = cell_placement::Balancer::new(cell_placement::BalanceRules::default()).unwrap();
    assert_eq!(
        planned(new.look(NOW_MS, &figures).step).to,
        NodeId(3),
        "who has reported nothing gets nothing"
    );
}

#[test]
fn plan_of_a_drain_has_a_place_for_each_pair() {
    let figures = cluster(&[vec![pair(10, 0), pair(300, 0)], vec![pair(500, 0)], vec![pair(400, 0)]]);
    let plan = balancer().drain_plan(&figures, &[NodeId(1)]).unwrap();
    let moves: Vec<_> = plan.moves.iter().map(|planned| (planned.pair, planned.to, planned.why)).collect();
    let left = |left| MoveReason::Drain { left };
    assert_eq!(moves, [(PairId(101), NodeId(3), left(2)), (PairId(100), NodeId(2), left(1))]);
    assert_eq!(plan.bytes, 310 * MIB);
    let empty = cluster(&[vec![], vec![pair(500, 0)]]);
    assert!(balancer().drain_plan(&empty, &[NodeId(1)]).unwrap().moves.is_empty());
}

/// Dealt out evenly, the first one takes the room that both others need: so they are packed tightly.
#[test]
fn plan_is_tight_where_an_even_one_would_not_fit() {
    let mut figures = cluster(&[vec![pair(50, 0), pair(45, 0), pair(45, 0)], vec![], vec![]]);
    at(&mut figures, 2).memory_left_bytes = 104 * MIB;
    at(&mut figures, 3).memory_left_bytes = 60 * MIB;
    let plan = balancer().drain_plan(&figures, &[NodeId(1)]).unwrap();
    let to = |pair| plan.moves.iter().find(|planned| planned.pair == PairId(pair)).unwrap().to;
    assert_eq!([100, 101, 102].map(to), [NodeId(3), NodeId(2), NodeId(2)]);
    // And it is carried out to its end.
    at(&mut figures, 1).draining = true;
    for _ in 0..3 {
        let planned = planned(look(&figures));
        carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Drain));
    }
    assert!(at(&mut figures, 1).pairs.is_empty());
}

/// One that filled the others to the last byte was started, and stood half done when they had grown a little.
#[test]
fn plan_leaves_the_others_room_to_grow() {
    let mut figures = cluster(&[vec![pair(40, 0), pair(40, 0)], vec![], vec![]]);
    for (left, fits) in [(40, false), (44, false), (45, true)] {
        for node in [2, 3] {
            at(&mut figures, node).memory_left_bytes = left * MIB;
        }
        assert_eq!(balancer().drain_plan(&figures, &[NodeId(1)]).is_ok(), fits, "{left} MiB");
    }
    // What was started goes on with less.
    for node in [2, 3] {
        at(&mut figures, node).memory_left_bytes = 40 * MIB;
    }
    at(&mut figures, 1).draining = true;
    assert_eq!(planned(look(&figures)).pair, PairId(100));
}

/// Pairs grow meanwhile by what the plan leaves for that, several nodes drain at a time, and one of the pairs
/// cannot leave at first.
#[test]
fn drain_that_a_plan_permits_is_carried_out_to_its_end() {
    let mut permitted = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed ^ 0xd4a1);
        let sizes: Vec<Vec<u64>> = (0..random.between(3, 6))
            .map(|_| (0..random.between(1, 8)).map(|_| random.between(8, 60)).collect())
            .collect();
        let mut model = Model::of_sizes(seed, &sizes);
        for node in 1..=sizes.len() {
            model.set_memory_left(node as u32, random.between(0, 250) * MIB);
        }
        let leaving: Vec<NodeId> = (1..=random.between(1, 2) as u32).map(NodeId).collect();
        if model.balancer.drain_plan(&model.figures, &leaving).is_err() {
            continue;
        }
        permitted += 1;
        leaving.iter().for_each(|node| model.drain(node.0, true));
        // What each may still grow by.
        let mut grows: Vec<(PairId, u64)> = Vec::new();
        for (node, sizes) in (1..).zip(&sizes[..leaving.len()]) {
            let pairs = (0..).zip(sizes).map(|(place, mib)| (PairId(node * 100 + place), mib * MIB / 8));
            grows.extend(pairs);
        }
        let held = grows[random.index(grows.len())].0;
        model.hold(held, Some(PairHold::Split));
        let is_over = |model: &Model| {
            let mut draining = model.figures.members.iter().filter(|member| member.draining);
            draining.all(|member| member.pairs.is_empty())
        };
        for step in 0..200 {
            model.step();
            if is_over(&model) {
                break;
            }
            let at = random.index(grows.len());
            let (pair, left) = &mut grows[at];
            let bytes = random.between(0, *left);
            *left -= bytes;
            model.grow(*pair, bytes);
            if step == 20 {
                model.hold(held, None);
            }
        }
        assert!(is_over(&model), "seed {seed}: {:#?}", model.figures.members);
    }
    assert!((100..400).contains(&permitted), "{permitted} of 400");
}

/// Its moves were started one after the other, and came to nothing.
#[test]
fn drain_to_full_disks_is_refused_and_no_pair_goes_to_one() {
    let mut figures = cluster(&[vec![pair(100, 0)], vec![], vec![pair(50, 0)]]);
    at(&mut figures, 2).disk_full = true;
    let plan = balancer().drain_plan(&figures, &[NodeId(1)]).unwrap();
    assert_eq!(plan.moves.first().map(|planned| planned.to), Some(NodeId(3)));
    at(&mut figures, 3).disk_full = true;
    let refused = balancer().drain_plan(&figures, &[NodeId(1)]).unwrap_err();
    let words = "the other nodes lack room for 1 pair with 100.0 MiB, pair-100 of node-1 among them: none of 2 \
                 other nodes can take it: 2 have no room on their disks for the logs";
    assert_eq!(refused.to_string(), words);
    at(&mut figures, 1).draining = true;
    assert!(matches!(rest(look(&figures)), RestReason::DrainWaits { .. }));
    at(&mut figures, 1).draining = false;
    assert!(matches!(rest(look(&figures)), RestReason::NothingHelps { .. }));
}

#[test]
fn drain_that_cannot_be_is_refused_in_clear_words() {
    let refused = |figures: &_, nodes: &[u32]| {
        let nodes: Vec<_> = nodes.iter().copied().map(NodeId).collect();
        balancer().drain_plan(figures, &nodes).unwrap_err()
    };
    let figures = cluster(&[vec![pair(100, 0); 3], vec![pair(100, 0)]]);
    assert_eq!(refused(&figures, &[7]).to_string(), "node-7 is no member of the cluster");
    let words = "no other node would be left to take the pairs";
    assert_eq!(refused(&figures, &[1, 2]).to_string(), words);
    assert_eq!(refused(&cluster(&[vec![pair(1, 0)]]), &[1]).to_string(), words);

    let mut short = figures.clone();
    at(&mut short, 2).memory_left_bytes = 150 * MIB;
    let why = refused(&short, &[1]);
    let words = "the other nodes lack room for 2 pairs with 200.0 MiB, pair-101 of node-1 among them: what \
                 would go before it fills them";
    assert_eq!(why.to_string(), words);
    at(&mut short, 2).memory_left_bytes = 50 * MIB;
    let words = "the other nodes lack room for 3 pairs with 300.0 MiB, pair-100 of node-1 among them: none \
                 of 1 other node can take it: 1 lacks the memory (it takes 100.0 MiB and 12.5 MiB to grow, \
                 at most 50.0 MiB is left)";
    assert_eq!(refused(&short, &[1]).to_string(), words);
    let mut full = figures.clone();
    at(&mut full, 2).pairs_max = 1;
    assert!(refused(&full, &[1]).to_string().ends_with("1 holds as many pairs as it may"));

    let mut silent = figures.clone();
    at(&mut silent, 1).state = MemberState::Silent;
    let words = "node-1 is silent, because its lease has run out, and its pairs can only be moved while it \
                 serves them";
    assert_eq!(refused(&silent, &[1]).to_string(), words);
    let mut held = figures.clone();
    at(&mut held, 1).pairs[1].hold = Some(PairHold::NoLog);
    let words = "pair-101 cannot leave node-1: it has no log, and a copy is made from the log";
    assert_eq!(refused(&held, &[1]).to_string(), words);
    assert!(refused(&held, &[1]).next().is_some_and(|next| next.contains("`durability`")));
    at(&mut held, 1).pairs[1].hold = Some(PairHold::Split);
    assert!(balancer().drain_plan(&held, &[NodeId(1)]).is_ok(), "a split ends");
    let mut unreported = figures;
    at(&mut unreported, 1).pairs[1].load = None;
    assert_eq!(refused(&unreported, &[1]), DrainRefusal::Unreported { node: NodeId(1) });
}

#[test]
fn drain_that_cannot_go_on_says_so_after_thirty_seconds() {
    let mut figures = cluster(&[vec![pair(500, 0), pair(10, 0)], vec![pair(10, 0)], vec![pair(10, 0)]]);
    at(&mut figures, 1).draining = true;
    at(&mut figures, 2).memory_left_bytes = 100 * MIB;
    at(&mut figures, 3).pairs_max = 1;
    let mut balancer = balancer();
    // It goes as far as it can.
    let small = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!(small.pair, PairId(101));
    carry_out(&mut figures, &small, Arrival::Moved(MoveCause::Drain));
    let advice = balancer.look(NOW_MS + 29_999, &figures);
    assert_eq!(advice.stalls, []);
    assert_eq!(rest(advice.step), RestReason::DrainWaits { node: NodeId(1), pairs: 1 });
    let advice = balancer.look(NOW_MS + 30_000, &figures);
    let words = "node-1 cannot be emptied: for 30 s pair-100 could not move: none of 2 other nodes can take it: 1 \
                 holds as many pairs as it may, 1 lacks the memory (it takes 500.0 MiB, at most 90.0 MiB is left)";
    assert_eq!(stall(&advice), words);
    let words = "node-1 drains, and of the 1 pair that it has none can move now";
    assert_eq!(rest(advice.step).to_string(), words);
    // Room comes, and it goes on.
    at(&mut figures, 3).pairs_max = 2;
    let advice = balancer.look(NOW_MS + 31_000, &figures);
    assert_eq!(advice.stalls, []);
    assert_eq!(planned(advice.step).to, NodeId(3));
}

#[test]
fn drain_says_whatever_holds_it_up() {
    let mut figures = cluster(&[vec![pair(50, 0)], vec![], vec![pair(40, 0)]]);
    at(&mut figures, 1).draining = true;
    let mut balancer = balancer();
    let mut now_ms = NOW_MS;
    let mut stalled = |figures: &cell_placement::Figures| -> Advice {
        now_ms += 100_000;
        balancer.look(now_ms, figures);
        balancer.look(now_ms + 30_000, figures)
    };
    let mut held = figures.clone();
    at(&mut held, 1).pairs[0].hold = Some(PairHold::Split);
    assert!(stall(&stalled(&held)).ends_with("it takes part in a split that is not open yet"));
    figures.takeovers_open = 1;
    assert!(stall(&stalled(&figures)).ends_with("1 pair is to be taken over, and nothing moves meanwhile"));
    figures.takeovers_open = 0;
    let mut other = figures.clone();
    let (pair, from, to) = (PairId(300), NodeId(3), NodeId(2));
    other.moving = Some(MoveUnderWay { pair, from, to, cause: MoveCause::Operator, handed: false });
    assert!(stall(&stalled(&other)).ends_with("pair-300 is being moved, and one moves at a time"));
    let mut silent = figures.clone();
    at(&mut silent, 1).state = MemberState::Silent;
    assert!(stall(&stalled(&silent)).contains("its owner, node-1, is silent"));
    let mut unreported = figures.clone();
    at(&mut unreported, 1).pairs[0].load = None;
    assert!(stall(&stalled(&unreported)).ends_with("its owner, node-1, has not reported what it takes"));
    assert_eq!(stalled(&figures).stalls, [], "it goes on");
}

/// The largest has a place but cannot leave yet; the other one has none beside it, and leaves.
#[test]
fn drain_goes_as_far_as_it_can() {
    let mut figures = cluster(&[vec![pair(60, 0), pair(50, 0)], vec![]]);
    at(&mut figures, 1).draining = true;
    at(&mut figures, 1).pairs[0].hold = Some(PairHold::Split);
    at(&mut figures, 2).memory_left_bytes = 70 * MIB;
    assert_eq!(planned(look(&figures)).pair, PairId(101));
}

/// While a pair is on its way, its target keeps the memory for it. That is no lack of memory.
#[test]
fn pair_on_its_way_is_not_stalled() {
    let mut figures = cluster(&[vec![pair(50, 0), pair(60, 0)], vec![]]);
    at(&mut figures, 1).draining = true;
    at(&mut figures, 2).memory_left_bytes = 70 * MIB;
    let mut balancer = balancer();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!(first.pair, PairId(101));
    at(&mut figures, 2).memory_left_bytes = 10 * MIB;
    let (pair, from, to) = (first.pair, first.from, first.to);
    figures.moving = Some(MoveUnderWay { pair, from, to, cause: MoveCause::Drain, handed: false });
    balancer.look(NOW_MS + 1000, &figures);
    let advice = balancer.look(NOW_MS + 31_000, &figures);
    let stalled: Vec<_> = advice.stalls.iter().map(|stall| stall.pair).collect();
    assert_eq!(stalled, [PairId(100)], "for the other one there is none, and that is known already");
}

#[test]
fn drain_tries_another_node_where_one_could_not_take_the_pair() {
    let mut figures = cluster(&[vec![pair(50, 0)], vec![], vec![pair(40, 0)]]);
    at(&mut figures, 1).draining = true;
    let mut balancer = balancer();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!(first.to, NodeId(2));
    balancer.on_failure(NOW_MS + 1, first.pair, first.to, MoveFailure::Unreadable);
    assert_eq!(planned(balancer.look(NOW_MS + 2, &figures).step).to, NodeId(3));
    balancer.on_failure(NOW_MS + 3, first.pair, NodeId(3), MoveFailure::Declined);
    balancer.look(NOW_MS + 4, &figures);
    let advice = balancer.look(NOW_MS + 30_004, &figures);
    let words = "none of 2 other nodes can take it: 2 could not take it (node-3: it declined)";
    assert!(stall(&advice).ends_with(words), "{}", stall(&advice));
    assert!(matches!(advice.stalls[0].why, PairObstacle::NoTarget(_)));
    assert_eq!(planned(balancer.look(NOW_MS + 60_001, &figures).step).to, NodeId(2), "a minute later again");
}

/// Each time there was another node to try, or the time to try one again, and nobody got any report.
#[test]
fn drain_of_which_moves_keep_failing_says_so_after_thirty_seconds() {
    let mut figures = cluster(&[vec![pair(50, 0), pair(20, 0)], vec![], vec![pair(40, 0)]]);
    at(&mut figures, 1).draining = true;
    let mut balancer = with_rules(BalanceRules { retry_ms: 5_000, ..BalanceRules::default() });
    let mut said = Vec::new();
    for second in 0..60 {
        let now_ms = NOW_MS + second * 1000;
        let advice = balancer.look(now_ms, &figures);
        said.push(advice.stalls.first().map(|stall| (stall.pair, stall.to_string())));
        match advice.step {
            NextStep::Move(planned) if planned.pair == PairId(100) => {
                let (pair, from, to) = (planned.pair, planned.from, planned.to);
                figures.moving =
                    Some(MoveUnderWay { pair, from, to, cause: MoveCause::Drain, handed: false });
            }
            NextStep::Move(planned) => carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Drain)),
            NextStep::Cancel { .. } => panic!("it is not cancelled"),
            // It takes some seconds, and comes to nothing.
            NextStep::Rest(_) if second % 4 == 3 => {
                let moving = figures.moving.take().expect("it is under way");
                balancer.on_failure(now_ms, moving.pair, moving.to, MoveFailure::Behind);
            }
            NextStep::Rest(_) => {}
        }
    }
    let first = said.iter().position(Option::is_some).expect("it is said");
    assert!((33..=34).contains(&first), "30 s after the first failure: {first} s");
    assert!(said[first..].iter().all(Option::is_some), "until it has left: {said:?}");
    let (pair, words) = said.pop().flatten().expect("it is said to the end");
    assert_eq!(pair, PairId(100));
    assert!(words.contains("moves of it have come to nothing, the last one to node-"), "{words}");
    assert!(words.ends_with(": the copy did not catch up with the source"), "{words}");
    let explained = balancer.explain(NOW_MS + 60_000, &figures).stalls;
    assert_eq!(explained.len(), 1, "who asks gets it, too");
    // It leaves at last.
    figures.moving = None;
    let to = NodeId(2);
    let planned = PlannedMove { pair, from: NodeId(1), to, bytes: 50 * MIB, why: MoveReason::Fresh };
    carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Drain));
    assert_eq!(balancer.look(NOW_MS + 61_000, &figures).stalls, []);
}

#[test]
fn several_nodes_are_emptied_one_after_the_other() {
    let nodes = vec![vec![pair(10, 0), pair(20, 0)], vec![pair(50, 0), pair(60, 0)], vec![], vec![]];
    let mut figures = cluster(&nodes);
    at(&mut figures, 1).draining = true;
    at(&mut figures, 2).draining = true;
    let mut balancer = balancer();
    let mut order = Vec::new();
    for second in 0..4 {
        let planned = planned(balancer.look(NOW_MS + second * 1000, &figures).step);
        assert!(planned.to.0 >= 3);
        order.push(planned.pair.0);
        carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Drain));
        pass(&mut figures, 1000);
    }
    assert_eq!(order, [101, 100, 201, 200]);
    let after = rest(balancer.look(NOW_MS + 5000, &figures).step);
    assert!(matches!(after, RestReason::AfterDrain { .. }), "{after}");
    assert!(!matches!(
        balancer.look(NOW_MS + 70_000, &figures).step,
        NextStep::Rest(RestReason::AfterDrain { .. })
    ));
}
