//! Balance decides nothing on figures that it only half knows, and says whose.

use cell_placement::{
    Arrival, BalanceRules, Balancer, Figures, HalfKnown, MemberState, NextStep, RestReason,
};
use cell_terms::{NodeId, PairId};

use crate::cluster::{NOW_MS, at, cluster, look, pair, planned, rest};

fn uneven() -> Figures {
    cluster(&[vec![pair(100, 100); 6], vec![], vec![pair(100, 100); 2]])
}

fn unknown(figures: &Figures) -> (NodeId, HalfKnown) {
    match rest(look(figures)) {
        RestReason::HalfKnown { node, why } => (node, why),
        other => panic!("{other}"),
    }
}

#[test]
fn member_without_figures_holds_balance_up() {
    let mut figures = uneven();
    at(&mut figures, 3).reported_ms_ago = None;
    assert_eq!(unknown(&figures), (NodeId(3), HalfKnown::Unreported));
    assert_eq!(rest(look(&figures)).to_string(), "too little is known: node-3 has reported no figures");
}

#[test]
fn figures_that_are_older_than_the_window_do_not_count() {
    let mut figures = uneven();
    at(&mut figures, 3).reported_ms_ago = Some(60_001);
    assert_eq!(unknown(&figures), (NodeId(3), HalfKnown::Old { reported_ms_ago: 60_001 }));
    at(&mut figures, 3).reported_ms_ago = Some(60_000);
    planned(look(&figures));
}

#[test]
fn member_that_has_just_started_to_serve_holds_balance_up_for_a_window() {
    let mut figures = uneven();
    at(&mut figures, 2).serving_ms = 59_000;
    assert_eq!(unknown(&figures), (NodeId(2), HalfKnown::Began { left_ms: 1000 }));
    at(&mut figures, 2).serving_ms = 60_000;
    planned(look(&figures));
}

#[test]
fn member_that_does_not_serve_holds_balance_up() {
    for state in [MemberState::Recovering, MemberState::Silent, MemberState::Stopping] {
        let mut figures = uneven();
        at(&mut figures, 3).state = state;
        assert_eq!(unknown(&figures), (NodeId(3), HalfKnown::State(state)));
    }
    // An empty node that is to leave holds up nothing.
    let mut figures = uneven();
    at(&mut figures, 2).draining = true;
    at(&mut figures, 2).state = MemberState::Stopping;
    planned(look(&figures));
}

#[test]
fn pair_that_was_taken_over_counts_after_a_window() {
    let mut figures = uneven();
    at(&mut figures, 3).pairs[1].held_ms = 20_000;
    let why = HalfKnown::TakenOver { pair: PairId(301), left_ms: 40_000 };
    assert_eq!(unknown(&figures), (NodeId(3), why));
    // One that was made for a split holds up nothing: under load there is always one.
    at(&mut figures, 3).pairs[1].arrival = Arrival::Created { meant_for: None };
    planned(look(&figures));
}

#[test]
fn pair_of_which_nothing_was_reported_holds_balance_up() {
    let mut figures = uneven();
    at(&mut figures, 1).pairs[2].load = None;
    assert_eq!(unknown(&figures), (NodeId(1), HalfKnown::Pair { pair: PairId(102) }));
}

#[test]
fn new_balancer_watches_for_a_window() {
    let figures = uneven();
    let mut balancer = Balancer::new(BalanceRules::default()).unwrap();
    let begin_ms = 5 * NOW_MS;
    for (after_ms, left_ms) in [(0, 60_000), (59_000, 1000)] {
        let why = rest(balancer.look(begin_ms + after_ms, &figures).step);
        assert_eq!(why, RestReason::NewBalancer { left_ms });
    }
    assert!(matches!(balancer.look(begin_ms + 60_000, &figures).step, NextStep::Move(_)));
}
