//! Relief of nodes at which writes wait for memory.

use cell_placement::{
    Arrival, BalancePause, BalanceRules, Balancer, Figures, HeldPair, MemberFigures, MemberState, MoveCause,
    MoveFailure, MoveReason, MoveUnderWay, NextStep, PairHold, RestReason, relief_bytes,
};
use cell_random::Random;
use cell_terms::{NodeId, PairId};

use crate::cluster::{
    MIB, NOW_MS, at, balancer, carry_out, cluster, held, look, member, pair, pass, planned, rest, with_rules,
};
use crate::model::cause;

pub(crate) const FULL: NodeId = NodeId(1);

/// Writes wait at node 1, which has 10 MiB left; two other nodes have hundreds.
pub(crate) fn full() -> Figures {
    let pairs = vec![pair(100, 0), pair(120, 0), pair(90, 0), pair(2, 0)];
    let mut figures = cluster(&[pairs, vec![pair(20, 0)], vec![]]);
    at(&mut figures, 1).writes_wait = true;
    for (node, left) in [(1, 10), (2, 400), (3, 500)] {
        at(&mut figures, node).memory_left_bytes = left * MIB;
    }
    figures
}

/// A balancer by whose rules there is never enough to compare nodes by.
pub(crate) fn relief_alone() -> Balancer {
    with_rules(BalanceRules { bytes_floor: 1 << 50, ..BalanceRules::default() })
}

/// What the worker of the full node gets.
pub(crate) fn could_get(figures: &Figures) -> Option<u64> {
    relief_bytes(figures, &BalanceRules::default(), FULL)
}

pub(crate) fn is_relief(step: &NextStep) -> bool {
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

/// Nodes of 400 MiB have 246 for pairs, of which one takes up to 38. Node 1 is full; a pair of it fits into
/// each of the others, and leaves there a fraction of what a large node would keep.
fn small() -> Figures {
    let mut figures = cluster(&[vec![pair(37, 0); 6], vec![pair(37, 0); 5], vec![pair(37, 0); 5]]);
    for (node, left) in [(1, 5), (2, 64), (3, 52)] {
        at(&mut figures, node).memory_left_bytes = left * MIB;
    }
    at(&mut figures, 1).writes_wait = true;
    figures
}

/// 64 MiB had to be left besides the pair, a fourth of such a node: puts were refused for good.
#[test]
fn full_node_of_400_mib_gives_a_pair_while_one_fits_elsewhere() {
    let mut figures = small();
    assert_eq!(could_get(&figures), Some(37 * MIB), "puts are to come again");
    let first = planned(look(&figures));
    assert_eq!(
        (first.from, first.to, first.why),
        (FULL, NodeId(2), MoveReason::Full { left_bytes: 64 * MIB })
    );
    at(&mut figures, 2).memory_left_bytes = 40 * MIB;
    assert_eq!(planned(look(&figures)).to, NodeId(3));
    at(&mut figures, 3).memory_left_bytes = 46 * MIB;
    assert!(!is_relief(&look(&figures)), "it would have 9 MiB then");
}

/// The one that had room had given a pair itself, and was to take none for ten minutes. And the full one had
/// just got one.
#[test]
fn full_node_gives_a_pair_whatever_rests() {
    let mut figures = small();
    for (node, left, waits) in [(1, 100, false), (2, 5, true)] {
        let member = at(&mut figures, node);
        (member.memory_left_bytes, member.writes_wait) = (left * MIB, waits);
    }
    let mut balancer = relief_alone();
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((first.from, first.to), (NodeId(2), FULL));
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Balance));
    for (node, left, waits) in [(1, 5, true), (2, 64, false), (3, 20, false)] {
        let member = at(&mut figures, node);
        (member.memory_left_bytes, member.writes_wait) = (left * MIB, waits);
    }
    let why = rest(balancer.look(NOW_MS + 1_000, &figures).step).to_string();
    assert!(why.ends_with("what the nodes have left since the last move is not reported yet"), "{why}");
    let standing = balancer.explain(NOW_MS + 2_000, &figures).nodes;
    let rests = (standing[0].gives_in_ms, standing[1].takes_in_ms);
    assert_eq!(rests, (Some(58_000), Some(598_000)), "balance lets both rest");
    let second = planned(balancer.look(NOW_MS + 2_000, &figures).step);
    assert_eq!((second.from, second.to), (FULL, NodeId(2)));
}

/// Three such nodes, and what has room for pairs there.
pub(crate) fn small_nodes(random: &mut Random) -> Figures {
    let members = (1..=3).map(|node| {
        let sizes = (0..random.between(2, 6)).map(|_| random.between(8, 37));
        let pairs: Vec<HeldPair> =
            (0..).zip(sizes).map(|(place, mib)| held(node * 100 + place, mib, 0)).collect();
        let taken: u64 = pairs.iter().filter_map(|held| held.load).map(|load| load.memory_bytes).sum();
        MemberFigures {
            memory_left_bytes: 246 * MIB - taken,
            reported_ms_ago: Some(0),
            ..member(node, pairs)
        }
    });
    Figures { members: members.collect(), ..Figures::default() }
}

/// Puts of so many MiB: into a pair that may grow so far, else into a new one. How many there was room for.
pub(crate) fn write(member: &mut MemberFigures, mib: u64, number: u32) -> u64 {
    let takes = mib.min(member.memory_left_bytes / MIB);
    let can_grow = |held: &&mut HeldPair| held.load.unwrap().memory_bytes + takes * MIB <= 37 * MIB;
    if let Some(held) = member.pairs.iter_mut().find(can_grow) {
        held.load.as_mut().unwrap().memory_bytes += takes * MIB;
    } else if takes >= 8 {
        member.pairs.push(held(number, takes, 0));
    } else {
        return 0;
    }
    member.memory_left_bytes -= takes * MIB;
    takes
}

/// Whether a pair of a full node would leave another one more than that has, by what is worth a move.
pub(crate) fn fits_elsewhere(figures: &Figures, from: &MemberFigures) -> bool {
    let takes = |member: &&MemberFigures| member.node != from.node && !member.writes_wait && !member.draining;
    let others = || figures.members.iter().filter(takes);
    let fits = |bytes: u64| {
        let needs = bytes + from.memory_left_bytes + (bytes / 8).max(4 * MIB);
        bytes > from.memory_left_bytes && others().any(|member| member.memory_left_bytes >= needs)
    };
    from.pairs.iter().any(|held| fits(held.load.unwrap().memory_bytes))
}

/// Wherever a load goes, and whatever was moved before. And it comes to an end: of what is copied much is
/// written.
#[test]
fn no_put_lacks_memory_for_two_seconds_while_a_pair_fits_elsewhere() {
    let mut all = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed ^ 0x0f01);
        let (mut figures, mut balancer) = (small_nodes(&mut random), relief_alone());
        let (mut node, mut written, mut moves, mut moved_before) = (1, 0, 0, false);
        for second in 0..300 {
            node = if random.percent(10) { random.between(1, 3) as u32 } else { node };
            let wanted = random.between(1, 30);
            let took = write(at(&mut figures, node), wanted, 1_000 + second);
            written += took;
            figures.members.iter_mut().for_each(|member| member.writes_wait = false);
            at(&mut figures, node).writes_wait = took < wanted;
            let step = balancer.look(NOW_MS + u64::from(second) * 1_000, &figures).step;
            let moved = is_relief(&step);
            if moved {
                let planned = planned(step);
                carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
                moves += 1;
            } else if took < wanted && !moved_before {
                let from = figures.members.iter().find(|member| member.node == NodeId(node)).unwrap();
                assert!(!fits_elsewhere(&figures, from), "seed {seed}, {second} s: {step}, {figures:#?}");
                assert!(matches!(rest(step), RestReason::Full { .. }), "it says what there is");
            }
            moved_before = moved;
        }
        assert!(moves <= 6 + written / 2, "seed {seed}: {moves} moves for {written} MiB");
        all += moves;
    }
    assert!(all > 600, "{all} moves");
}

/// It was said that the node had too much, had taken a pair a moment ago, and gave none for a while.
#[test]
fn full_node_that_can_give_no_pair_is_said_to_be_full_before_all_else() {
    let mut figures = full();
    for node in [2, 3] {
        at(&mut figures, node).memory_left_bytes = 30 * MIB;
    }
    at(&mut figures, 1).pairs[0].hold = Some(PairHold::Split);
    let operators = &mut at(&mut figures, 1).pairs[1];
    (operators.arrival, operators.held_ms) = (Arrival::Moved(MoveCause::Operator), 5_000);
    let why = rest(relief_alone().look(NOW_MS, &figures).step);
    let RestReason::Full { node, why: counts } = &why else { panic!("{why}") };
    assert_eq!((*node, counts.left_bytes, counts.most_left_bytes), (FULL, 10 * MIB, 30 * MIB));
    let words = "puts find no memory at node-1, which has 10.0 MiB left, and no pair leaves it: of its \
                 pairs 1 cannot move now, 1 stay for a while where an operator has put them, 1 would \
                 give no more than is left, 1 find too little memory elsewhere (at most 30.0 MiB is left \
                 at a node that takes pairs)";
    assert_eq!(why.to_string(), words);
    let standing = balancer().explain(NOW_MS, &figures).nodes[0].to_string();
    assert!(standing.ends_with("; puts find no memory there, where 10.0 MiB is left"), "{standing}");
    // It comes before what a new balancer waits for, and after what nothing goes before.
    let mut new = Balancer::new(BalanceRules::default()).unwrap();
    assert!(matches!(rest(new.look(5, &figures).step), RestReason::Full { .. }));
    figures.pause = Some(BalancePause::Off);
    assert_eq!(rest(look(&figures)), RestReason::Paused(BalancePause::Off));
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

/// Puts are answered `Busy` only where the balancer would let a pair leave.
#[test]
fn full_node_waits_where_no_pair_can_leave_and_its_worker_knows() {
    assert!(is_relief(&look(&full())) && could_get(&full()).is_some());
    let mut nobody_has_room = full();
    let mut writes_wait_everywhere = full();
    let mut all_hold_as_many_as_they_may = full();
    let mut nobody_else_serves = full();
    let mut old = full();
    let mut disks_are_full = full();
    for node in [2, 3] {
        at(&mut nobody_has_room, node).memory_left_bytes = 95 * MIB;
        at(&mut writes_wait_everywhere, node).writes_wait = true;
        let member = at(&mut all_hold_as_many_as_they_may, node);
        member.pairs_max = u32::try_from(member.pairs.len()).unwrap();
        at(&mut nobody_else_serves, node).state = MemberState::ReadOnly;
        at(&mut old, node).reported_ms_ago = Some(BalanceRules::default().window_ms + 1);
        at(&mut disks_are_full, node).disk_full = true;
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
        ("the others' disks have no room for the logs", disks_are_full),
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
fn worker_of_a_full_node_knows_of_the_pair_that_leaves_until_it_has_left() {
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
    for (mib, more_mib) in [(16, 4), (96, 12), (1_000, 125)] {
        let mut figures = cluster(&[vec![pair(mib, 0)], vec![]]);
        let from = at(&mut figures, 1);
        (from.writes_wait, from.memory_left_bytes) = (true, 10 * MIB);
        at(&mut figures, 2).memory_left_bytes = (10 + mib + more_mib) * MIB;
        assert!(is_relief(&look(&figures)));
        at(&mut figures, 2).memory_left_bytes -= 1;
        assert!(!is_relief(&look(&figures)));
    }
}

/// It would fill one node after the other. It comes back where there is more room than it has filled.
#[test]
fn giant_pair_does_not_come_back_when_its_new_node_is_full() {
    let mut figures = cluster(&[vec![pair(1_000, 0)], vec![]]);
    let mut balancer = relief_alone();
    let from = at(&mut figures, 1);
    (from.writes_wait, from.memory_left_bytes) = (true, 10 * MIB);
    at(&mut figures, 2).memory_left_bytes = 1_200 * MIB;
    let first = planned(balancer.look(NOW_MS, &figures).step);
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Balance));
    let member = at(&mut figures, 2);
    (member.writes_wait, member.memory_left_bytes) = (true, 20 * MIB);
    let member = at(&mut figures, 1);
    member.writes_wait = false;
    assert_eq!(member.memory_left_bytes, 1_010 * MIB, "what it had left, and the pair's");
    for second in 1..600 {
        rest(balancer.look(NOW_MS + second * 1_000, &figures).step);
    }
    at(&mut figures, 1).memory_left_bytes = 1_145 * MIB;
    assert_eq!(planned(balancer.look(NOW_MS + 600_000, &figures).step).to, FULL);
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
    assert!((8..=10).contains(&moved.len()), "{moved:?}");
    let pairs = moved.len();
    moved.sort_unstable();
    moved.dedup();
    assert_eq!(moved.len(), pairs, "{moved:?}");
    assert!(figures.members.iter().all(|member| member.memory_left_bytes < 112 * MIB), "{figures:?}");
}

/// The second move was decided by what both ends had before the first one.
fn waits_for_newer_figures() {
    let mut figures = full();
    at(&mut figures, 2).pairs_max = 1;
    let mut balancer = relief_alone();
    assert!(is_relief(&balancer.look(NOW_MS, &figures).step));
    // The pair is its target's, and neither end has reported that.
    let moved = at(&mut figures, 1).pairs.remove(2);
    at(&mut figures, 3).pairs.push(HeldPair { load: None, arrival: Arrival::TakenOver, ..moved });
    for second in 1..10 {
        for member in &mut figures.members {
            member.reported_ms_ago = Some(500 + second * 1_000);
        }
        rest(balancer.look(NOW_MS + second * 1_000, &figures).step);
    }
    at(&mut figures, 3).pairs[0].load = moved.load;
    assert!(!is_relief(&balancer.look(NOW_MS + 10_000, &figures).step), "node 1 has not reported yet");
    at(&mut figures, 1).reported_ms_ago = Some(100);
    let mut other = figures.clone();
    at(&mut other, 3).pairs[0].load = None;
    assert!(!is_relief(&balancer.clone().look(NOW_MS + 10_000, &other).step), "node 3 has not reported yet");
    // What node 3 reported is as old as its pair there, and it has no reason to report more.
    assert!(is_relief(&balancer.look(NOW_MS + 10_000, &figures).step));
}

/// Neither end has more or less than before.
#[test]
fn relief_goes_on_after_a_move_that_came_to_nothing_once_both_ends_have_reported_again() {
    let mut figures = full();
    at(&mut figures, 2).pairs_max = 1;
    let mut balancer = relief_alone();
    let failed = planned(balancer.look(NOW_MS, &figures).step);
    balancer.on_failure(NOW_MS, failed.pair, failed.to, MoveFailure::NoMemory);
    figures.members.iter_mut().for_each(|member| member.reported_ms_ago = Some(5_000));
    rest(balancer.look(NOW_MS + 1_000, &figures).step);
    at(&mut figures, 1).reported_ms_ago = Some(100);
    rest(balancer.look(NOW_MS + 2_000, &figures).step);
    at(&mut figures, 3).reported_ms_ago = Some(100);
    assert_eq!(planned(balancer.look(NOW_MS + 2_000, &figures).step).pair, PairId(100));
}

#[test]
fn relief_waits_until_both_ends_have_reported_since_its_last_move() {
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
