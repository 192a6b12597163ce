//! Relief of nodes at which writes wait for memory.

use cell_placement::{
    Arrival, BalancePause, BalanceRules, Balancer, Figures, HeldPair, MemberState, MoveCause, MoveFailure,
    MoveReason, MoveUnderWay, NextStep, PairHold, relief_bytes,
};
use cell_terms::{NodeId, PairId};

use crate::cluster::{
    MIB, NOW_MS, at, balancer, carry_out, cluster, held, look, member, pair, pass, planned, rest, with_rules,
};
use crate::model::cause;

const FULL: NodeId = NodeId(1);

/// Writes wait at node 1, which has 10 MiB left; two other nodes have hundreds.
fn full() -> Figures {
    let pairs = vec![pair(100, 0), pair(120, 0), pair(90, 0), pair(2, 0)];
    let mut figures = cluster(&[pairs, vec![pair(20, 0)], vec![]]);
    at(&mut figures, 1).writes_wait = true;
    for (node, left) in [(1, 10), (2, 400), (3, 500)] {
        at(&mut figures, node).memory_left_bytes = left * MIB;
    }
    figures
}

/// A balancer by whose rules there is never enough to compare nodes by.
fn relief_alone() -> Balancer {
    with_rules(BalanceRules { bytes_floor: 1 << 50, ..BalanceRules::default() })
}

/// What the worker of the full node is told.
fn could_get(figures: &Figures) -> Option<u64> {
    relief_bytes(figures, &BalanceRules::default(), FULL)
}

fn is_relief(step: &NextStep) -> bool {
    matches!(step, NextStep::Move(planned) if matches!(planned.why, MoveReason::Full { .. }))
}

/// A load that is faster than balance was refused, because it filled one node and windows had not passed.
#[test]
fn full_node_gives_the_smallest_pair_that_gives_enough_at_once() {
    let mut figures = full();
    for member in &mut figures.members {
        member.serving_ms = 1_000;
        member.pairs.iter_mut().for_each(|held| held.held_ms = 1_000);
    }
    assert_eq!(could_get(&figures), Some(90 * MIB));
    let mut new = Balancer::new(BalanceRules::default()).unwrap();
    let planned = planned(new.look(5, &figures).step);
    assert_eq!((planned.pair, planned.from, planned.to), (PairId(102), FULL, NodeId(3)));
    assert_eq!(planned.why, MoveReason::Full { left_bytes: 500 * MIB });
    let words = planned.to_string();
    assert!(words.ends_with("writes wait for memory at node-1, and node-3 has 500.0 MiB left"), "{words}");
    at(&mut figures, 1).writes_wait = false;
    let mut new = Balancer::new(BalanceRules::default()).unwrap();
    rest(new.look(5, &figures).step);
}

#[test]
fn full_node_of_small_pairs_gives_the_largest() {
    let mut figures = cluster(&[vec![pair(40, 0), pair(50, 0), pair(30, 0)], vec![]]);
    let from = at(&mut figures, 1);
    (from.writes_wait, from.memory_left_bytes) = (true, 5 * MIB);
    assert_eq!(planned(relief_alone().look(NOW_MS, &figures).step).pair, PairId(101));
    at(&mut figures, 1).memory_left_bytes = 50 * MIB;
    rest(relief_alone().look(NOW_MS, &figures).step); // it has as much as any of them would give
}

/// Of one that is full all the time, and another that splits all the time, neither has to wait.
#[test]
fn full_node_and_pairs_that_were_made_for_others_take_turns() {
    let mut figures = full();
    let mut balancer = relief_alone();
    let mut words = String::new();
    for number in 0..6 {
        let mut fresh = held(2_000 + number, 1, 0);
        (fresh.arrival, fresh.held_ms) = (Arrival::Created { meant_for: Some(NodeId(3)) }, 1_000);
        at(&mut figures, 2).pairs.push(fresh);
        let planned = planned(balancer.look(NOW_MS + u64::from(number) * 2_000, &figures).step);
        words.push(if planned.why == MoveReason::Fresh { 'f' } else { 'r' });
        carry_out(&mut figures, &planned, Arrival::Moved(cause(&planned)));
        at(&mut figures, 1).memory_left_bytes = 10 * MIB;
    }
    assert_eq!(words, "frfrfr");
}

/// Puts are told to come again only where the balancer would let a pair leave.
#[test]
fn full_node_waits_where_no_pair_can_leave_and_its_worker_is_told_so() {
    assert!(is_relief(&look(&full())) && could_get(&full()).is_some());
    let mut nobody_has_room = full();
    let mut writes_wait_everywhere = full();
    let mut all_hold_as_many_as_they_may = full();
    let mut nobody_else_serves = full();
    let mut old = full();
    for node in [2, 3] {
        at(&mut nobody_has_room, node).memory_left_bytes = 95 * MIB;
        at(&mut writes_wait_everywhere, node).writes_wait = true;
        let member = at(&mut all_hold_as_many_as_they_may, node);
        member.pairs_max = u32::try_from(member.pairs.len()).unwrap();
        at(&mut nobody_else_serves, node).state = MemberState::ReadOnly;
        at(&mut old, node).told_ms_ago = Some(BalanceRules::default().window_ms + 1);
    }
    at(&mut nobody_has_room, 1).pairs.pop(); // the small one fits
    let mut drains = full();
    at(&mut drains, 2).draining = true;
    let (mut operators, mut held) = (full(), full());
    for pair in &mut at(&mut operators, 1).pairs {
        (pair.arrival, pair.held_ms) = (Arrival::Moved(MoveCause::Operator), 5_000);
    }
    at(&mut held, 1).pairs.iter_mut().for_each(|pair| pair.hold = Some(PairHold::Split));
    let cases = [
        ("nobody has room", nobody_has_room),
        ("writes wait everywhere", writes_wait_everywhere),
        ("all hold as many as they may", all_hold_as_many_as_they_may),
        ("nobody else serves", nobody_else_serves),
        ("what the others have is not known", old),
        ("balance is off", Figures { pause: Some(BalancePause::Off), ..full() }),
        ("a pair is to be taken over", Figures { takeovers_open: 1, ..full() }),
        ("a node drains", drains),
        ("an operator has put them there", operators),
        ("something has hold of them", held),
    ];
    for (why, figures) in cases {
        assert!(!is_relief(&look(&figures)), "{why}");
        assert_eq!(could_get(&figures), None, "{why}");
    }
}

#[test]
fn pair_that_cannot_leave_stays_and_the_next_one_leaves() {
    let mut figures = full();
    at(&mut figures, 1).pairs[2].hold = Some(PairHold::Split);
    assert_eq!(planned(look(&figures)).pair, PairId(100));
    // Where an operator has put a pair it stays; where balance has, writes go first.
    let pairs = &mut at(&mut figures, 1).pairs;
    (pairs[0].arrival, pairs[0].held_ms) = (Arrival::Moved(MoveCause::Operator), 5_000);
    (pairs[1].arrival, pairs[1].held_ms) = (Arrival::Moved(MoveCause::Balance), 5_000);
    assert_eq!(planned(look(&figures)).pair, PairId(101));
    let mut balancer = balancer();
    balancer.on_failure(NOW_MS, PairId(101), NodeId(3), MoveFailure::NoMemory);
    assert_eq!(planned(balancer.look(NOW_MS, &figures).step).to, NodeId(2), "it is not sent there again");
}

/// Puts were refused for good while a pair was handed over, which is its target's by then. And while a small
/// one left, though a large one could after it.
#[test]
fn worker_of_a_full_node_is_told_of_the_pair_that_leaves_until_it_has_left() {
    let mut figures = full();
    let moving = |pair, handed| {
        let (from, to, cause) = (FULL, NodeId(3), MoveCause::Balance);
        Some(MoveUnderWay { pair, from, to, cause, handed })
    };
    figures.moving = moving(PairId(103), false);
    assert_eq!(could_get(&figures), Some(90 * MIB), "as if it did not move");
    for node in [2, 3] {
        at(&mut figures, node).memory_left_bytes = 0;
    }
    assert_eq!(could_get(&figures), Some(2 * MIB), "no other one could leave");
    figures.moving = moving(PairId(102), false);
    assert_eq!(could_get(&figures), Some(90 * MIB));
    let held = at(&mut figures, 1).pairs.remove(2);
    at(&mut figures, 3).pairs.push(HeldPair { load: None, hold: Some(PairHold::Takeover), ..held });
    figures.moving = moving(PairId(102), true);
    assert_eq!(could_get(&figures), Some(64 * MIB));
    figures.moving = None;
    assert_eq!(could_get(&figures), None);
}

/// One byte more at the target was enough to move the largest pair there.
#[test]
fn move_of_a_full_nodes_pair_has_to_be_worth_it() {
    for (mib, more_mib) in [(100, 64), (1_000, 125)] {
        let mut figures = cluster(&[vec![pair(mib, 0)], vec![]]);
        let from = at(&mut figures, 1);
        (from.writes_wait, from.memory_left_bytes) = (true, 10 * MIB);
        at(&mut figures, 2).memory_left_bytes = (10 + mib + more_mib) * MIB;
        assert!(is_relief(&look(&figures)));
        at(&mut figures, 2).memory_left_bytes -= 1;
        assert!(!is_relief(&look(&figures)));
    }
}

/// It would fill one node after the other.
#[test]
fn giant_pair_does_not_come_back_when_its_new_node_is_full() {
    let mut figures = cluster(&[vec![pair(1_000, 0)], vec![]]);
    let mut balancer = relief_alone();
    let from = at(&mut figures, 1);
    (from.writes_wait, from.memory_left_bytes) = (true, 10 * MIB);
    at(&mut figures, 2).memory_left_bytes = 1_200 * MIB;
    let planned = planned(balancer.look(NOW_MS, &figures).step);
    carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
    for (node, waits, left) in [(1, false, 2_000), (2, true, 20)] {
        let member = at(&mut figures, node);
        (member.writes_wait, member.memory_left_bytes) = (waits, left * MIB);
    }
    for second in 1..600 {
        rest(balancer.look(NOW_MS + second * 1_000, &figures).step);
    }
}

/// The load goes on, and takes what each move gives back.
#[test]
fn full_node_gives_pairs_until_all_are_full_and_each_moves_once() {
    let mut figures = full();
    let mut balancer = relief_alone();
    let mut moved = Vec::new();
    for second in 0..100 {
        let step = balancer.look(NOW_MS + second * 1_000, &figures).step;
        let NextStep::Move(planned) = step else { continue };
        carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
        moved.push(planned.pair);
        // Writes go to the pair that is left, or to a new one.
        let full = at(&mut figures, 1);
        let taken = full.memory_left_bytes - 10 * MIB;
        full.memory_left_bytes -= taken;
        full.pairs.push(held(1_000 + u32::try_from(second).unwrap(), taken / MIB, 0));
    }
    assert!((6..=8).contains(&moved.len()), "{moved:?}");
    let pairs = moved.len();
    moved.sort_unstable();
    moved.dedup();
    assert_eq!(moved.len(), pairs, "{moved:?}");
    assert!(figures.members.iter().all(|member| member.memory_left_bytes < 164 * MIB), "{figures:?}");
}

/// The second move was decided by what both ends had before the first one.
fn waits_for_newer_figures() {
    let mut figures = full();
    at(&mut figures, 2).pairs_max = 1;
    let mut balancer = relief_alone();
    assert!(is_relief(&balancer.look(NOW_MS, &figures).step));
    // The pair is its target's, and neither end has told of that.
    let moved = at(&mut figures, 1).pairs.remove(2);
    at(&mut figures, 3).pairs.push(HeldPair { load: None, arrival: Arrival::TakenOver, ..moved });
    for second in 1..10 {
        for member in &mut figures.members {
            member.told_ms_ago = Some(500 + second * 1_000);
        }
        rest(balancer.look(NOW_MS + second * 1_000, &figures).step);
    }
    at(&mut figures, 3).pairs[0].load = moved.load;
    assert!(!is_relief(&balancer.look(NOW_MS + 10_000, &figures).step), "node 1 has not told yet");
    at(&mut figures, 1).told_ms_ago = Some(100);
    let mut other = figures.clone();
    at(&mut other, 3).pairs[0].load = None;
    assert!(!is_relief(&balancer.clone().look(NOW_MS + 10_000, &other).step), "node 3 has not told yet");
    // What node 3 told is as old as its pair there, and it has no reason to tell more.
    assert!(is_relief(&balancer.look(NOW_MS + 10_000, &figures).step));
}

/// Neither end has more or less than before.
#[test]
fn relief_goes_on_after_a_move_that_came_to_nothing_once_both_ends_have_told_again() {
    let mut figures = full();
    at(&mut figures, 2).pairs_max = 1;
    let mut balancer = relief_alone();
    let failed = planned(balancer.look(NOW_MS, &figures).step);
    balancer.on_failure(NOW_MS, failed.pair, failed.to, MoveFailure::NoMemory);
    figures.members.iter_mut().for_each(|member| member.told_ms_ago = Some(5_000));
    rest(balancer.look(NOW_MS + 1_000, &figures).step);
    at(&mut figures, 1).told_ms_ago = Some(100);
    rest(balancer.look(NOW_MS + 2_000, &figures).step);
    at(&mut figures, 3).told_ms_ago = Some(100);
    assert_eq!(planned(balancer.look(NOW_MS + 2_000, &figures).step).pair, PairId(100));
}

#[test]
fn relief_waits_until_both_ends_have_told_since_its_last_move() {
    waits_for_newer_figures();
}

/// Node 1 has room for two pairs. By bytes it has less than node 2 all the time.
fn unequal() -> Figures {
    let mut figures = cluster(&[vec![pair(100, 0); 2], vec![pair(100, 0); 10]]);
    let from = at(&mut figures, 1);
    (from.writes_wait, from.memory_left_bytes) = (true, 20 * MIB);
    at(&mut figures, 2).memory_left_bytes = 10_000 * MIB;
    figures
}

/// Moves within an hour, in which writes wait at node 1 whenever it has two pairs: all, and those of relief.
fn moves_of_an_hour() -> (u32, u32) {
    let (mut figures, mut balancer) = (unequal(), balancer());
    let (mut moves, mut reliefs) = (0, 0);
    for second in 0..3_600 {
        let step = balancer.look(NOW_MS + second * 1_000, &figures).step;
        reliefs += u32::from(is_relief(&step));
        if let NextStep::Move(planned) = step {
            moves += 1;
            carry_out(&mut figures, &planned, Arrival::Moved(cause(&planned)));
        }
        let from = at(&mut figures, 1);
        from.writes_wait = from.memory_left_bytes < 50 * MIB;
        pass(&mut figures, 1_000);
    }
    (moves, reliefs)
}

/// Balance brought back what relief had taken, and relief took it again.
fn does_not_come_back_within_the_rest_of_pairs() {
    let (moves, reliefs) = moves_of_an_hour();
    assert!((1..=7).contains(&reliefs) && moves <= 14, "{moves} moves, {reliefs} of them relief's");
}

#[test]
fn nodes_of_unequal_memory_do_not_send_pairs_back_and_forth() {
    does_not_come_back_within_the_rest_of_pairs();
}

#[test]
fn node_that_relief_took_a_pair_from_gets_one_once_pairs_have_rested() {
    let (mut figures, mut balancer) = (unequal(), balancer());
    let relief = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((relief.from, relief.to), (FULL, NodeId(2)));
    carry_out(&mut figures, &relief, Arrival::Moved(MoveCause::Balance));
    at(&mut figures, 1).writes_wait = false;
    for second in 1..600 {
        pass(&mut figures, 1_000);
        rest(balancer.look(NOW_MS + second * 1_000, &figures).step);
        let standing = &balancer.explain(NOW_MS + second * 1_000, &figures).nodes[0];
        assert_eq!((standing.node, standing.takes_in_ms), (FULL, Some((600 - second) * 1_000)));
    }
    let mut fresh = held(2_000, 1, 0);
    (fresh.arrival, fresh.held_ms) = (Arrival::Created { meant_for: Some(FULL) }, 1_000);
    at(&mut figures, 2).pairs.push(fresh);
    rest(balancer.look(NOW_MS + 599_500, &figures).step); // nor one that was made for it
    at(&mut figures, 2).pairs.pop();
    pass(&mut figures, 1_000);
    assert_eq!(planned(balancer.look(NOW_MS + 600_000, &figures).step).to, FULL);
}

/// Of those that had less, the one that takes none had least: such a pair stayed, and with two of them a node
/// that fills up gave no more away.
#[test]
fn pair_that_was_made_for_a_node_that_was_full_goes_to_another_one() {
    let mut figures = unequal();
    figures.members.push(member(3, vec![held(300, 300, 0)]));
    at(&mut figures, 3).memory_left_bytes = 5_000 * MIB;
    let mut balancer = balancer();
    let relief = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((relief.from, relief.to), (FULL, NodeId(2)));
    carry_out(&mut figures, &relief, Arrival::Moved(MoveCause::Balance));
    let mut fresh = held(2_000, 1, 0);
    (fresh.arrival, fresh.held_ms) = (Arrival::Created { meant_for: Some(FULL) }, 1_000);
    at(&mut figures, 2).pairs.push(fresh);
    for writes_wait in [true, false] {
        at(&mut figures, 1).writes_wait = writes_wait;
        let planned = planned(balancer.clone().look(NOW_MS + 1_000, &figures).step);
        assert_eq!((planned.pair, planned.to, planned.why), (PairId(2_000), NodeId(3), MoveReason::Fresh));
    }
}

#[test]
#[cfg(debug_assertions)]
fn mutants_of_relief_are_caught() {
    use cell_terms::mutant::{Mutant, in_own_process, plant};
    let twins: &[(Mutant, fn())] = &[
        (Mutant::FullNodeTakes, does_not_come_back_within_the_rest_of_pairs),
        (Mutant::ReliefByOldFigures, waits_for_newer_figures),
    ];
    in_own_process(|| {
        for (mutant, test) in twins {
            plant(None);
            test();
            plant(Some(*mutant));
            let caught = std::panic::catch_unwind(*test).is_err();
            plant(None);
            assert!(caught, "{} was not caught", mutant.name());
            println!("mutant {} caught by cell-placement's relief", mutant.name());
        }
    });
}
