//! The explanations that people get.

use cell_placement::{Arrival, MemberState, MoveCause, NextStep};
use cell_terms::{NodeId, PairId};

use crate::cluster::{NOW_MS, at, balancer, cluster, pair};

#[test]
fn explanation_has_the_step_and_how_each_node_stands() {
    let mut figures = cluster(&[vec![pair(300, 300); 4], vec![pair(300, 300); 2]]);
    at(&mut figures, 2).memory_left_bytes = 100 << 20;
    let mut balancer = balancer();
    let explained = balancer.explain(NOW_MS, &figures);
    assert_eq!(explained.step, balancer.look(NOW_MS, &figures).step);
    let words = "\
nothing is to be done: node-1 has 133 % of the mean bytes, and no move would help: of its pairs 4 fit into \
no other node's memory and number of pairs
a node has 900.0 MiB and 90.0 % of a worker's time on average
node-1: 4 pairs, 1.2 GiB (133 % of the mean), 120.0 % of its worker's time (133 % of the mean)
node-2: 2 pairs, 600.0 MiB (67 % of the mean), 60.0 % of its worker's time (67 % of the mean)
";
    assert_eq!(explained.to_string(), words);
}

/// Each was said to have 0 % of the mean, also the one that had nearly all.
#[test]
fn measure_of_which_there_is_too_little_is_not_compared() {
    let explained = balancer().explain(NOW_MS, &cluster(&[vec![pair(5, 1)], vec![]]));
    let percents = |at: usize| (explained.nodes[at].bytes_percent, explained.nodes[at].load_percent);
    assert_eq!([percents(0), percents(1)], [(None, None), (None, None)]);
    let words =
        "node-1: 1 pair, 5.0 MiB (too little to count), 0.1 % of its worker's time (too little to count)";
    assert_eq!(explained.nodes[0].to_string(), words);
    // 35 MiB among two nodes are enough.
    let explained = balancer().explain(NOW_MS, &cluster(&[vec![pair(5, 1)], vec![pair(30, 1)]]));
    let percents: Vec<_> =
        explained.nodes.iter().map(|node| (node.bytes_percent, node.load_percent)).collect();
    assert_eq!(percents, [(Some(29), None), (Some(171), None)]);
}

#[test]
fn explaining_changes_nothing() {
    let figures = cluster(&[vec![pair(300, 300); 4], vec![pair(300, 300)]]);
    let mut asked = balancer();
    for _ in 0..3 {
        let explained = asked.explain(NOW_MS, &figures);
        assert!(matches!(explained.step, NextStep::Move(_)));
        assert!(explained.nodes.iter().all(|standing| standing.gives_in_ms.is_none()));
    }
    assert_eq!(asked.look(NOW_MS, &figures), balancer().look(NOW_MS, &figures));
    let standing = asked.explain(NOW_MS + 1000, &figures).nodes;
    assert_eq!((standing[0].takes_in_ms, standing[1].gives_in_ms), (Some(59_000), Some(59_000)));
}

#[test]
fn explanation_names_what_is_not_known_and_what_stalls() {
    let mut figures = cluster(&[vec![pair(300, 300); 4], vec![pair(300, 300)]]);
    at(&mut figures, 2).serving_ms = 12_000;
    let words = balancer().explain(NOW_MS, &figures).to_string();
    assert!(words.contains("; it began to serve a moment ago, and its figures count in 48 s"), "{words}");
    at(&mut figures, 2).memory_left_bytes = 0;
    at(&mut figures, 1).draining = true;
    let mut balancer = balancer();
    balancer.look(NOW_MS, &figures);
    let words = balancer.explain(NOW_MS + 31_000, &figures).to_string();
    assert!(
        words.contains("node-1 cannot be emptied: for 31 s pair-100 could not move: none of 1 "),
        "{words}"
    );
    assert!(words.contains("of the mean); it drains\n"), "{words}");
}

#[test]
fn pair_says_what_keeps_it() {
    let mut figures = cluster(&[vec![pair(300, 300), pair(100, 0)], vec![]]);
    let balancer = balancer();
    let why = |figures: &_| balancer.explain_pair(NOW_MS, figures, PairId(100)).unwrap();
    let words = "pair-100 of node-1 has 300.0 MiB and takes 30.0 % of the worker's time; it could move, if that \
                 helped";
    assert_eq!(why(&figures).to_string(), words);
    at(&mut figures, 1).pairs[0].arrival = Arrival::Moved(MoveCause::Balance);
    at(&mut figures, 1).pairs[0].held_ms = 540_000;
    assert!(why(&figures).to_string().ends_with("it was moved for balance and rests for another 60 s"));
    at(&mut figures, 1).pairs[0].arrival = Arrival::Created { meant_for: None };
    at(&mut figures, 1).pairs[0].held_ms = 50_000;
    assert!(why(&figures).to_string().ends_with("what it takes is known in 10 s, after a whole window"));
    at(&mut figures, 1).draining = true;
    assert_eq!(why(&figures).obstacle, None, "a drain waits for no window");
    at(&mut figures, 2).memory_left_bytes = 0;
    assert!(
        why(&figures).to_string().contains("1 lacks the memory (it takes 300.0 MiB, at most 0 B is left)")
    );
    at(&mut figures, 1).state = MemberState::Recovering;
    assert!(why(&figures).to_string().ends_with("it does not move: its owner, node-1, recovers"));
    assert_eq!(balancer.explain_pair(NOW_MS, &figures, PairId(9)), None);
    assert_eq!(why(&figures).node, NodeId(1));
}
