//! Relief of full nodes while other nodes drain.

use cell_placement::{
    Arrival, BalancePause, BalanceRules, Balancer, CancelReason, Figures, MemberFigures, MoveCause,
    MoveReason, MoveUnderWay, NextStep, PairHold, RestReason,
};
use cell_random::Random;
use cell_terms::{NodeId, PairId};

use crate::cluster::{MIB, NOW_MS, at, balancer, carry_out, held, look, member, planned, rest};
use crate::model::cause;
use crate::relief::{FULL, could_get, fits_elsewhere, full, is_relief, small_nodes, write};

/// Writes wait at node 1, nodes 2 and 3 have 400 and 500 MiB left, and node 4 drains with a pair of so many.
fn beside(mib: u64) -> Figures {
    let mut figures = full();
    figures.members.push(MemberFigures { draining: true, ..member(4, vec![held(400, mib, 0)]) });
    figures
}

const DRAIN_WAITS: RestReason = RestReason::DrainWaits { node: NodeId(4), pairs: 1 };

/// A pair that fitted nowhere kept a drain for ever, and puts were refused at a full node as long.
#[test]
fn full_node_gives_a_pair_while_no_pair_of_a_drain_can_move() {
    let (mut figures, mut balancer) = (beside(600), balancer());
    assert_eq!(could_get(&figures), Some(90 * MIB), "puts are to come again");
    let relief = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((relief.pair, relief.from, relief.to), (PairId(102), FULL, NodeId(3)));
    assert_eq!(relief.why, MoveReason::Full { left_bytes: 500 * MIB });
    let stalls = balancer.look(NOW_MS + 30_000, &figures).stalls;
    assert_eq!(stalls.first().map(|stall| stall.pair), Some(PairId(400)), "the drain's is said to be kept");
    carry_out(&mut figures, &relief, Arrival::Moved(MoveCause::Balance));
    at(&mut figures, 1).writes_wait = false;
    assert_eq!(rest(balancer.look(NOW_MS + 60_000, &figures).step), DRAIN_WAITS, "balance moves nothing");
}

#[test]
fn full_node_gives_none_beside_a_drain_where_something_else_goes_before_it() {
    let mut half_reported = beside(600);
    at(&mut half_reported, 4).pairs[0].load = None;
    let mut takers_drain = beside(600);
    for node in [2, 3] {
        at(&mut takers_drain, node).draining = true;
    }
    let cases = [
        ("nobody has reported what the drain's pair needs", half_reported),
        ("all others drain", takers_drain),
        ("balance is off", Figures { pause: Some(BalancePause::Off), ..beside(600) }),
        ("the nodes are restarted", Figures { pause: Some(BalancePause::RollingRestart), ..beside(600) }),
        ("a pair is to be taken over", Figures { takeovers_open: 1, ..beside(600) }),
    ];
    for (why, figures) in cases {
        assert!(!is_relief(&look(&figures)), "{why}");
        assert_eq!(could_get(&figures), None, "{why}");
    }
}

/// And what its move has changed has to be reported first.
#[test]
fn pair_of_a_drain_that_can_move_goes_before_that_of_a_full_node() {
    let (mut figures, mut balancer) = (beside(600), balancer());
    at(&mut figures, 4).pairs.push(held(401, 20, 0));
    assert_eq!(could_get(&figures), None);
    let first = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((first.pair, first.to), (PairId(401), NodeId(3)));
    carry_out(&mut figures, &first, Arrival::Moved(MoveCause::Drain));
    let mut unreported = figures.clone();
    at(&mut unreported, 3).pairs[0].load = None;
    let second = planned(balancer.clone().look(NOW_MS + 1_000, &unreported).step);
    assert_eq!(
        (second.pair, second.to),
        (PairId(102), NodeId(2)),
        "node 3 may have less than it has reported"
    );
    let second = planned(balancer.look(NOW_MS + 1_000, &figures).step);
    assert_eq!((second.pair, second.to), (PairId(102), NodeId(3)));
}

/// The drain's pair cannot leave for the moment.
#[test]
fn room_that_a_pair_of_a_drain_is_to_find_is_left_to_it() {
    let mut figures = beside(350);
    at(&mut figures, 4).pairs[0].hold = Some(PairHold::Split);
    let mut balancer = balancer();
    let relief = planned(balancer.look(NOW_MS, &figures).step);
    assert_eq!((relief.pair, relief.to), (PairId(102), NodeId(2)), "node 3 has most left, and is to get it");
    at(&mut figures, 2).memory_left_bytes = 50 * MIB;
    // First it is seen that the move is over, and then that both ends have reported since.
    for second in [1, 3] {
        assert_eq!(rest(balancer.look(NOW_MS + second * 1_000, &figures).step), DRAIN_WAITS);
    }
    at(&mut figures, 4).pairs[0].hold = None;
    let drained = planned(balancer.look(NOW_MS + 4_000, &figures).step);
    assert_eq!((drained.pair, drained.to), (PairId(400), NodeId(3)));
}

/// It would begin anew each time, and its node would be full for as long as the drain lasts.
#[test]
fn move_that_relieves_a_full_node_is_not_cancelled_for_a_drain() {
    let (mut figures, mut balancer) = (beside(600), balancer());
    let relief = planned(balancer.look(NOW_MS, &figures).step);
    let (pair, from, to) = (relief.pair, relief.from, relief.to);
    figures.moving = Some(MoveUnderWay { pair, from, to, cause: MoveCause::Balance, handed: false });
    let goes_on = |step: NextStep| matches!(rest(step), RestReason::Moving(_));
    assert!(goes_on(balancer.look(NOW_MS + 1_000, &figures).step));
    let mut new = Balancer::new(BalanceRules::default()).unwrap();
    assert!(goes_on(new.look(NOW_MS, &figures).step), "it sees that the node is full");
    // Its clients wait no more; who has started the move knows all the same, and another one does not.
    at(&mut figures, 1).writes_wait = false;
    assert!(goes_on(balancer.look(NOW_MS + 2_000, &figures).step));
    let why = CancelReason::DrainBegan { node: NodeId(4) };
    assert_eq!(new.look(NOW_MS + 1_000, &figures).step, NextStep::Cancel { pair, why });
    at(&mut figures, 1).writes_wait = true;
    at(&mut figures, to.0).draining = true;
    let why = CancelReason::TargetDrains { node: to };
    assert_eq!(balancer.look(NOW_MS + 3_000, &figures).step, NextStep::Cancel { pair, why });
}

/// As without a drain. And nothing moves by bytes, of which the nodes have very different many.
#[test]
fn no_put_lacks_memory_for_two_seconds_beside_a_drain_that_lasts_for_ever() {
    let mut moves = 0;
    for seed in 0..100 {
        let mut random = Random::new(seed ^ 0xd1a1);
        let (mut figures, mut balancer) = (small_nodes(&mut random), balancer());
        // More than any other one can have left.
        let leaving = member(4, vec![held(400, 300, 0)]);
        figures.members.push(MemberFigures { draining: true, ..leaving });
        let (mut node, mut moved_before) = (1, false);
        for second in 0..300 {
            node = if random.percent(10) { random.between(1, 3) as u32 } else { node };
            let wanted = random.between(1, 30);
            let took = write(at(&mut figures, node), wanted, 1_000 + second);
            figures.members.iter_mut().for_each(|member| member.writes_wait = false);
            at(&mut figures, node).writes_wait = took < wanted;
            let step = balancer.look(NOW_MS + u64::from(second) * 1_000, &figures).step;
            let moved = matches!(step, NextStep::Move(_));
            if moved {
                let planned = planned(step);
                let is_relief = matches!(planned.why, MoveReason::Full { .. });
                assert!(is_relief && planned.to != NodeId(4), "seed {seed}, {second} s: {planned}");
                carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
                moves += 1;
            } else {
                let from = figures.members.iter().find(|member| member.node == NodeId(node)).unwrap();
                let lacks = took < wanted && !moved_before && fits_elsewhere(&figures, from);
                assert!(!lacks, "seed {seed}, {second} s: {step}, {figures:#?}");
                assert_eq!(rest(step), DRAIN_WAITS);
            }
            moved_before = moved;
        }
    }
    assert!(moves > 100, "{moves} moves");
}

/// Its pairs cannot leave for half a minute, in which a full node gives away what it can.
#[test]
fn drain_that_a_plan_permits_is_carried_out_to_its_end_beside_a_full_node() {
    let (mut permitted, mut relieved) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed ^ 0xf1a1);
        let members = (1..=4).map(|node| {
            let sizes = (0..random.between(1, 5)).map(|_| random.between(8, 60));
            let pairs = (0..).zip(sizes).map(|(place, mib)| held(node * 100 + place, mib, 0)).collect();
            member(node, pairs)
        });
        let mut figures = Figures { members: members.collect(), ..Figures::default() };
        for (node, most) in [(2, 10), (3, 300), (4, 300)] {
            at(&mut figures, node).memory_left_bytes = random.between(0, most) * MIB;
        }
        at(&mut figures, 2).writes_wait = true;
        let mut balancer = balancer();
        if balancer.drain_plan(&figures, &[NodeId(1)]).is_err() {
            continue;
        }
        permitted += 1;
        let leaving = at(&mut figures, 1);
        leaving.draining = true;
        leaving.pairs.iter_mut().for_each(|held| held.hold = Some(PairHold::Split));
        for second in 0..60 {
            if second == 30 {
                at(&mut figures, 1).pairs.iter_mut().for_each(|held| held.hold = None);
            }
            let step = balancer.look(NOW_MS + second * 1_000, &figures).step;
            relieved += u32::from(is_relief(&step));
            if let NextStep::Move(planned) = step {
                carry_out(&mut figures, &planned, Arrival::Moved(cause(&planned)));
            }
        }
        let left = &at(&mut figures, 1).pairs;
        assert!(left.is_empty(), "seed {seed}: {left:?}");
    }
    assert!(permitted > 50 && relieved > 50, "{permitted} drains, {relieved} moves of the full node");
}
