//! Relief of nodes whose memory is full while writes wait there.

use cell_placement::{
    Arrival, BalancePause, BalanceRules, Balancer, Figures, MemberState, MoveCause, MoveFailure, MoveReason,
    NextStep, PairHold, can_be_relieved,
};
use cell_terms::{NodeId, PairId};

use crate::cluster::{MIB, NOW_MS, at, balancer, carry_out, cluster, held, look, pair, planned, rest};

const FULL: NodeId = NodeId(1);

/// Writes wait at node 1, which has 10 MiB left; two other nodes have hundreds.
fn full() -> Figures {
    let pairs = vec![pair(100, 0), pair(120, 0), pair(90, 0)];
    let mut figures = cluster(&[pairs, vec![pair(20, 0)], vec![]]);
    at(&mut figures, 1).writes_wait = true;
    for (node, left) in [(1, 10), (2, 400), (3, 500)] {
        at(&mut figures, node).memory_left_bytes = left * MIB;
    }
    figures
}

/// What the worker of the full node comes to.
fn hopes(figures: &Figures) -> bool {
    let full = figures.members.iter().find(|member| member.node == FULL).unwrap();
    let pairs = full.pairs.iter().map(|held| held.load.unwrap().memory_bytes);
    can_be_relieved(figures, &BalanceRules::default(), FULL, full.memory_left_bytes, pairs)
}

fn is_relief(step: &NextStep) -> bool {
    matches!(step, NextStep::Move(planned) if matches!(planned.why, MoveReason::Full { .. }))
}

/// A load that is faster than balance was refused, because it filled one node and windows had not passed.
#[test]
fn full_node_gives_the_pair_that_takes_most_memory_at_once() {
    let mut figures = full();
    for member in &mut figures.members {
        member.serving_ms = 1_000;
        member.pairs.iter_mut().for_each(|held| held.held_ms = 1_000);
    }
    let mut new = Balancer::new(BalanceRules::default()).unwrap();
    let planned = planned(new.look(5, &figures).step);
    assert_eq!((planned.pair, planned.from, planned.to), (PairId(101), FULL, NodeId(3)));
    assert_eq!(planned.why, MoveReason::Full { left_bytes: 500 * MIB });
    let words = planned.to_string();
    assert!(words.ends_with("writes wait for memory at node-1, and node-3 has 500.0 MiB left"), "{words}");
    at(&mut figures, 1).writes_wait = false;
    let mut new = Balancer::new(BalanceRules::default()).unwrap();
    rest(new.look(5, &figures).step);
}

/// Under a load there is always a pair that was made for another node.
#[test]
fn full_node_goes_before_pairs_that_were_made_for_others() {
    let mut figures = full();
    let fresh = &mut at(&mut figures, 2).pairs[0];
    (fresh.arrival, fresh.held_ms) = (Arrival::Created { meant_for: Some(NodeId(3)) }, 40);
    assert!(is_relief(&look(&figures)));
    at(&mut figures, 1).writes_wait = false;
    assert_eq!(planned(look(&figures)).why, MoveReason::Fresh);
}

/// There is less to copy of it, and the load may go on there.
#[test]
fn pair_that_a_full_node_made_for_another_goes_first_but_not_for_ever() {
    let mut figures = full();
    let mut balancer = balancer();
    let mut words = String::new();
    for number in 0..10 {
        let mut fresh = held(2_000 + number, 1, 0);
        (fresh.arrival, fresh.held_ms) = (Arrival::Created { meant_for: Some(NodeId(3)) }, 1_000);
        at(&mut figures, 1).pairs.push(fresh);
        let planned = planned(balancer.look(NOW_MS + u64::from(number) * 2_000, &figures).step);
        let (cause, word) = match planned.why {
            MoveReason::Fresh => (MoveCause::Fresh, 'f'),
            _ => (MoveCause::Balance, 'r'),
        };
        carry_out(&mut figures, &planned, Arrival::Moved(cause));
        at(&mut figures, 1).memory_left_bytes = 10 * MIB;
        words.push(word);
    }
    assert_eq!(words, "ffffrffffr");
}

#[test]
fn full_node_waits_where_nobody_can_take_a_pair() {
    assert!(is_relief(&look(&full())) && hopes(&full()));
    let mut nobody_has_room = full();
    for node in [2, 3] {
        at(&mut nobody_has_room, node).memory_left_bytes = 90 * MIB;
    }
    let mut writes_wait_everywhere = full();
    let mut all_hold_as_many_as_they_may = full();
    let mut nobody_else_serves = full();
    let mut old = full();
    for node in [2, 3] {
        at(&mut writes_wait_everywhere, node).writes_wait = true;
        let member = at(&mut all_hold_as_many_as_they_may, node);
        member.pairs_max = u32::try_from(member.pairs.len()).unwrap();
        at(&mut nobody_else_serves, node).state = MemberState::ReadOnly;
        at(&mut old, node).told_ms_ago = Some(BalanceRules::default().window_ms + 1);
    }
    let paused = Figures { pause: Some(BalancePause::Off), ..full() };
    let takeover = Figures { takeovers_open: 1, ..full() };
    let mut drains = full();
    at(&mut drains, 2).draining = true;
    let cases = [
        ("nobody has room", nobody_has_room),
        ("writes wait everywhere", writes_wait_everywhere),
        ("all hold as many as they may", all_hold_as_many_as_they_may),
        ("nobody else serves", nobody_else_serves),
        ("what the others have is not known", old),
        ("balance is off", paused),
        ("a pair is to be taken over", takeover),
        ("a node drains", drains),
    ];
    for (why, figures) in cases {
        assert!(!is_relief(&look(&figures)), "{why}");
        assert!(!hopes(&figures), "{why}");
    }
}

#[test]
fn pair_that_something_has_hold_of_stays_and_the_next_one_leaves() {
    let mut figures = full();
    at(&mut figures, 1).pairs[1].hold = Some(PairHold::Split);
    assert_eq!(planned(look(&figures)).pair, PairId(100));
    // Where an operator has put a pair it stays; where balance has, writes go first.
    at(&mut figures, 1).pairs[0].arrival = Arrival::Moved(MoveCause::Operator);
    at(&mut figures, 1).pairs[0].held_ms = 5_000;
    at(&mut figures, 1).pairs[2].arrival = Arrival::Moved(MoveCause::Balance);
    at(&mut figures, 1).pairs[2].held_ms = 5_000;
    assert_eq!(planned(look(&figures)).pair, PairId(102));
    let mut balancer = balancer();
    balancer.on_failure(NOW_MS, PairId(102), NodeId(3), MoveFailure::NoMemory);
    assert_eq!(planned(balancer.look(NOW_MS, &figures).step).to, NodeId(2), "it is not sent there again");
}

/// The load goes on, and takes what each move gives back.
#[test]
fn full_node_gives_pairs_until_all_are_full_and_none_comes_back() {
    let mut figures = full();
    let mut balancer = balancer();
    let mut moved = Vec::new();
    for second in 0..100 {
        let step = balancer.look(NOW_MS + second * 1_000, &figures).step;
        assert_eq!(is_relief(&step), hopes(&figures), "{figures:?}");
        if !is_relief(&step) {
            break;
        }
        let planned = planned(step);
        carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
        moved.push((planned.pair, planned.to));
        // Writes go to the pair that is left, or to a new one.
        let full = at(&mut figures, 1);
        let taken = full.memory_left_bytes - 10 * MIB;
        full.memory_left_bytes -= taken;
        let number = 1_000 + u32::try_from(second).unwrap();
        full.pairs.push(held(number, taken / MIB, 0));
    }
    assert!((6..=9).contains(&moved.len()), "{moved:?}");
    let mut pairs: Vec<PairId> = moved.iter().map(|(pair, _)| *pair).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), moved.len(), "each moves once: {moved:?}");
    for member in &figures.members {
        assert!(member.memory_left_bytes < 130 * MIB, "{figures:?}");
    }
    // And the load is over: nothing goes back.
    assert!(!is_relief(&balancer.look(NOW_MS + 200_000, &figures).step));
}
