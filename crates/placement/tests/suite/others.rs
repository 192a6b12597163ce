//! What users of comparable systems ran into, each with its report.

use cell_placement::{
    Arrival, BalancePause, BalanceRules, Balancer, CancelReason, Figures, HalfKnown, MemberState, MoveCause,
    MoveReason, MoveUnderWay, NextStep, PairLoad, RestReason,
};
use cell_terms::{NodeId, PairId};

use crate::cluster::{
    NOW_MS, at, balancer, carry_out, cluster, look, pair, pass, planned, rest, stall, with_rules,
};

/// tikv/pd#625: when a cluster restarts, figures come in one after the other, and pairs were moved back and
/// forth meanwhile.
#[test]
fn tikv_pd_625_restart_of_the_cluster_moves_nothing() {
    let mut figures = cluster(&[vec![pair(100, 100); 4], vec![pair(100, 100); 4], vec![pair(100, 100); 4]]);
    for member in &mut figures.members {
        member.state = MemberState::Recovering;
        member.reported_ms_ago = None;
        member.serving_ms = 0;
        member.pairs.iter_mut().for_each(|held| held.held_ms = 0);
    }
    let mut balancer = Balancer::new(BalanceRules::default()).unwrap();
    for second in 0..240 {
        // They come up a quarter of a minute apart, and each shows its load only when it has run for long.
        for (place, member) in figures.members.iter_mut().enumerate() {
            if second >= 15 * place as u64 {
                member.state = MemberState::Serving;
                member.reported_ms_ago = Some(900);
                member.serving_ms += 1000;
                let is_warm = member.serving_ms >= 60_000;
                for held in &mut member.pairs {
                    held.held_ms += 1000;
                    held.load.as_mut().unwrap().load_ns = if is_warm { 100_000_000 } else { 0 };
                }
            }
        }
        let step = balancer.look(second * 1000, &figures).step;
        assert!(matches!(step, NextStep::Rest(_)), "after {second} s: {step}");
    }
    assert!(matches!(rest(balancer.look(240_000, &figures).step), RestReason::Balanced { .. }));
}

/// tikv/pd#8634: who balances lost what it knew, and moved pairs by what came in first.
#[test]
fn tikv_pd_8634_balancer_that_knows_nothing_waits_for_all_figures() {
    let whole = cluster(&[vec![pair(100, 100); 4], vec![pair(100, 100); 4], vec![pair(100, 100); 4]]);
    let mut balancer = Balancer::new(BalanceRules::default()).unwrap();
    for second in 0..120 {
        let mut figures = whole.clone();
        // One hears of one member after the other, and of the pairs of the last one only in part.
        for node in 1..=3 {
            if second < u64::from(node) * 25 {
                at(&mut figures, node).reported_ms_ago = None;
            }
        }
        if second < 100 {
            at(&mut figures, 3).pairs[3].load = None;
        }
        let step = balancer.look(NOW_MS + second * 1000, &figures).step;
        assert!(matches!(step, NextStep::Rest(_)), "after {second} s: {step}");
    }
}

/// tikv/pd#4258, the same with sizes: a pair whose size is not known yet is not one of no bytes.
#[test]
fn tikv_pd_4258_unknown_size_is_not_nothing() {
    let mut figures = cluster(&[vec![pair(100, 0); 4], vec![pair(100, 0); 4]]);
    for held in &mut at(&mut figures, 2).pairs {
        held.load = None;
    }
    let why = HalfKnown::Pair { pair: PairId(200) };
    assert_eq!(rest(look(&figures)), RestReason::HalfKnown { node: NodeId(2), why });
}

/// A cluster whose third node is restarted in a rolling restart: drained, stopped, started, undrained.
fn rolling(balancer: &mut Balancer, pause: Option<BalancePause>, mut check: impl FnMut(u64, &NextStep)) {
    let mut figures = cluster(&[vec![pair(100, 100); 4], vec![pair(100, 100); 4], vec![pair(100, 100); 4]]);
    figures.pause = pause;
    at(&mut figures, 3).draining = true;
    let mut drained_s = None;
    for second in 0..110 {
        let now_ms = NOW_MS + second * 1000;
        let since = drained_s.map(|drained| second - drained);
        match since {
            None if at(&mut figures, 3).pairs.is_empty() => drained_s = Some(second),
            Some(5) => figures.members.retain(|member| member.node != NodeId(3)),
            Some(15) => {
                let mut back = crate::cluster::member(3, Vec::new());
                back.serving_ms = 0;
                figures.members.push(back);
            }
            _ => {}
        }
        let step = balancer.look(now_ms, &figures).step;
        check(second, &step);
        if let NextStep::Move(planned) = step {
            carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Drain));
            // What comes to a node is hot there for a while: everybody asks anew.
            let to = figures.members.iter_mut().find(|member| member.node == planned.to).unwrap();
            to.pairs.last_mut().unwrap().load.as_mut().unwrap().load_ns = 700_000_000;
        }
        pass(&mut figures, 1000);
    }
}

/// tikv/pd#3050: while nodes were restarted one after the other, hot pairs were moved as if their load would
/// last.
#[test]
fn tikv_pd_3050_no_hot_moves_in_a_rolling_restart() {
    let mut drained = 0;
    rolling(&mut balancer(), Some(BalancePause::RollingRestart), |second, step| match step {
        NextStep::Move(planned) => {
            assert!(matches!(planned.why, MoveReason::Drain { .. }), "after {second} s: {planned}");
            drained += 1;
        }
        NextStep::Rest(_) => {}
        NextStep::Cancel { .. } => panic!("after {second} s: {step}"),
    });
    assert_eq!(drained, 4);
}

/// Of who begins a drill, or a rolling restart: what a node owns then is what is drilled.
#[test]
fn moves_of_balance_are_cancelled_by_a_drill_and_a_rolling_restart_and_no_others() {
    let (moved, from, to) = (PairId(100), NodeId(1), NodeId(2));
    let step = |pause, cause, handed| {
        let mut figures = cluster(&[vec![pair(100, 0); 4], vec![pair(100, 0)]]);
        figures.moving = Some(MoveUnderWay { pair: moved, from, to, cause, handed });
        figures.pause = Some(pause);
        look(&figures)
    };
    for pause in [BalancePause::Drill, BalancePause::RollingRestart] {
        for cause in [MoveCause::Balance, MoveCause::Fresh] {
            let cancelled = NextStep::Cancel { pair: moved, why: CancelReason::Paused(pause) };
            assert_eq!(step(pause, cause, false), cancelled);
            assert!(matches!(step(pause, cause, true), NextStep::Rest(RestReason::Moving(_))), "handed");
        }
        for cause in [MoveCause::Operator, MoveCause::Drain] {
            assert!(matches!(step(pause, cause, false), NextStep::Rest(RestReason::Moving(_))));
        }
    }
    let off = step(BalancePause::Off, MoveCause::Balance, false);
    assert!(matches!(off, NextStep::Rest(RestReason::Moving(_))), "{off}");
}

/// tikv/pd#3298: the same by reads, and by hand, when nobody has said that it is a rolling restart: for a
/// minute after the drain, and after the node is back, its figures and those of the pairs do not count.
#[test]
fn tikv_pd_3298_no_hot_moves_after_a_drain_and_a_restart() {
    let mut drained_s = 0;
    rolling(&mut balancer(), None, |second, step| {
        if let NextStep::Move(planned) = step {
            if matches!(planned.why, MoveReason::Drain { .. }) {
                drained_s = second;
            } else {
                assert!(second >= drained_s + 15 + 60, "{} s after it: {planned}", second - drained_s);
            }
        }
    });
}

/// tikv/pd#4128: a drain waited behind moves for balance.
#[test]
fn tikv_pd_4128_drain_ends_moves_of_balance() {
    let mut figures = cluster(&[vec![pair(100, 0); 6], vec![pair(100, 0)], vec![pair(100, 0)]]);
    let (pair, from, to) = (PairId(100), NodeId(1), NodeId(2));
    at(&mut figures, 3).draining = true;
    for cause in [MoveCause::Balance, MoveCause::Fresh] {
        figures.moving = Some(MoveUnderWay { pair, from, to, cause, handed: false });
        let step = look(&figures);
        assert_eq!(step, NextStep::Cancel { pair, why: CancelReason::DrainBegan { node: NodeId(3) } });
        assert_eq!(step.to_string(), "the move of pair-100 is cancelled: node-3 drains, and that goes first");
    }
    // What was handed is over within milliseconds, and cannot be cancelled.
    figures.moving = Some(MoveUnderWay { pair, from, to, cause: MoveCause::Balance, handed: true });
    assert!(matches!(look(&figures), NextStep::Rest(RestReason::Moving(_))));
    figures.moving = None;
    assert_eq!(planned(look(&figures)).from, NodeId(3));
}

/// cockroachdb/cockroach#84395: what was to leave a node was sent to nodes that drained themselves, until all
/// that held it drained.
#[test]
fn cockroach_84395_nothing_goes_to_a_node_that_drains() {
    let mut figures = cluster(&[vec![pair(100, 0); 2], vec![], vec![pair(500, 0)], vec![pair(500, 0)]]);
    at(&mut figures, 1).draining = true;
    at(&mut figures, 2).draining = true;
    assert!([NodeId(3), NodeId(4)].contains(&planned(look(&figures)).to));
    let plan = balancer().drain_plan(&figures, &[NodeId(3)]).unwrap();
    assert_eq!(plan.moves.len(), 3);
    assert!(plan.moves.iter().all(|planned| planned.to == NodeId(4)), "{plan:?}");
    let refused = balancer().drain_plan(&figures, &[NodeId(3), NodeId(4)]).unwrap_err();
    assert_eq!(refused.to_string(), "no other node would be left to take the pairs");
    // If it comes to that all the same, it is said.
    at(&mut figures, 3).draining = true;
    at(&mut figures, 4).draining = true;
    let mut balancer = balancer();
    balancer.look(NOW_MS, &figures);
    let advice = balancer.look(NOW_MS + 30_000, &figures);
    assert!(stall(&advice).ends_with("none of 3 other nodes can take it: 3 drain themselves"));
    assert_eq!(advice.stalls.len(), 4);
    // A move to a node that begins to drain is cancelled, whoever wanted it.
    at(&mut figures, 3).draining = false;
    for cause in [MoveCause::Operator, MoveCause::Drain, MoveCause::Balance, MoveCause::Fresh] {
        let (pair, from, to) = (PairId(100), NodeId(1), NodeId(4));
        figures.moving = Some(MoveUnderWay { pair, from, to, cause, handed: false });
        let why = CancelReason::TargetDrains { node: to };
        assert_eq!(look(&figures), NextStep::Cancel { pair, why });
    }
}

/// cockroachdb/cockroach#79560: a node was replaced, and the drain of the old one took three times as long,
/// because the new one was filled by others at the same time, and emptied again.
#[test]
fn cockroach_79560_replacement_is_filled_by_the_drain_alone() {
    let mut figures = cluster(&[vec![pair(50, 20); 8], vec![pair(50, 20); 8], vec![pair(50, 20); 8], vec![]]);
    at(&mut figures, 1).draining = true;
    at(&mut figures, 4).serving_ms = 0;
    let mut balancer = balancer();
    let mut moves = Vec::new();
    for second in 0..400 {
        if let NextStep::Move(planned) = balancer.look(NOW_MS + second * 1000, &figures).step {
            let is_drain = matches!(planned.why, MoveReason::Drain { .. });
            let cause = if is_drain { MoveCause::Drain } else { MoveCause::Balance };
            carry_out(&mut figures, &planned, Arrival::Moved(cause));
            moves.push(planned);
        }
        pass(&mut figures, 1000);
    }
    let drained = moves.iter().take(8).all(|planned| planned.from == NodeId(1) && planned.to == NodeId(4));
    assert!(drained && moves.len() == 8, "{moves:#?}");
}

/// cockroachdb/cockroach#27025, tikv/pd#3504 and others: pairs that were moved were moved back. Whatever a
/// pair seems to take at its new owner, it does not come back within its rest.
#[test]
fn tikv_pd_3504_pair_does_not_come_back() {
    let mut figures = cluster(&[vec![pair(5, 100); 5], vec![pair(5, 100)], vec![pair(5, 100)]]);
    let mut balancer = with_rules(BalanceRules { node_rest_ms: 0, ..BalanceRules::default() });
    let mut moved: Vec<PairId> = Vec::new();
    for second in 0..590 {
        let figures_now: &Figures = &figures;
        if let NextStep::Move(planned) = balancer.look(NOW_MS + second * 1000, figures_now).step {
            assert!(!moved.contains(&planned.pair), "after {second} s again: {planned}");
            moved.push(planned.pair);
            carry_out(&mut figures, &planned, Arrival::Moved(MoveCause::Balance));
        }
        // What a pair takes goes up and down wildly.
        for member in &mut figures.members {
            for held in &mut member.pairs {
                let PairLoad { load_ns, .. } = held.load.as_mut().unwrap();
                *load_ns =
                    if (second / 70 + u64::from(held.pair.0)) % 2 == 0 { 50_000_000 } else { 300_000_000 };
            }
        }
        pass(&mut figures, 1000);
    }
    assert!(!moved.is_empty());
}
