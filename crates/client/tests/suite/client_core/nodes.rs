//! Several nodes: who is asked for what, hints and the table, dead and silent nodes, pairs that move.

use cell_client::{AttemptError, ClientError, ClientOptions, Operation, Output, Search};
use cell_protocol::{Bound, Found, OwnedState, RequestKind, Scan};
use cell_terms::PairId;

use crate::client_core::cluster::Cluster;
use crate::client_core::core_harness::{MS, get, options, put};

/// Three nodes; `a..` is pair 1's, `h..` pair 2's, `p..` pair 3's, `u..` pair 1's again.
fn three(given: &[usize]) -> Cluster {
    Cluster::new(options(), 3, &[b"h", b"p", b"u"], given)
}

/// With an entry in each range.
fn filled(given: &[usize]) -> Cluster {
    let mut cluster = three(given);
    for key in [&b"a"[..], b"c", b"h", b"k", b"p", b"s", b"u", b"z"] {
        assert!(matches!(cluster.call(&put(key, key)), Output::Written(_)));
    }
    cluster
}

fn value(output: Output) -> Option<Vec<u8>> {
    match output {
        Output::Value(item) => item.map(|item| item.value),
        other => panic!("{other:?}"),
    }
}

fn count(cluster: &Cluster, node: usize, kind: RequestKind) -> usize {
    cluster.nodes[node].asked.iter().filter(|asked| **asked == kind).count()
}

#[test]
fn key_of_another_node_is_found_by_one_hint_and_then_without() {
    for door in 0..3 {
        let mut cluster = filled(&[door]);
        for node in &mut cluster.nodes {
            node.asked.clear();
        }
        for _ in 0..10 {
            assert_eq!(value(cluster.call(&get(b"k"))), Some(b"k".to_vec()));
            assert_eq!(value(cluster.call(&get(b"s"))), Some(b"s".to_vec()));
            assert_eq!(value(cluster.call(&get(b"b"))), None);
        }
        let gets: Vec<usize> = (0..3).map(|node| count(&cluster, node, RequestKind::Get)).collect();
        assert_eq!(gets, [10, 10, 10], "door {door}: every path is known");
        assert_eq!(cluster.connects, [1, 1, 1], "door {door}: one connection a node");
    }
}

/// An address from before: what answers there is of another cluster, which is to get nothing.
#[test]
pub(super) fn node_of_another_cluster_is_asked_for_nothing() {
    let mut cluster = Cluster::new(options(), 1, &[], &[0]);
    assert!(matches!(cluster.call(&put(b"a", b"1")), Output::Written(_)));
    cluster.kill(0);
    cluster.replace_by_another_clusters(0);
    cluster.nodes[0].asked.clear();
    let deadline_ns = cluster.now_ns + 500 * MS;
    cluster.core.submit_until(cluster.now_ns, &put(b"b", b"2"), deadline_ns).unwrap();
    let completion = cluster.wait(600).expect("at its deadline");
    assert!(completion.outcome.is_err(), "{completion:?}");
    assert_eq!(cluster.core.last_attempt_error(), Some(AttemptError::OtherCluster));
    assert_eq!(cluster.nodes[0].asked, []);
    assert!(!cluster.server.entries.contains_key(&b"b"[..]));
}

#[test]
fn one_session_serves_all_nodes() {
    let cluster = filled(&[2]);
    let sessions: std::collections::BTreeSet<_> =
        cluster.server.applied.iter().map(|one| one.session).collect();
    assert_eq!((sessions.len(), cluster.server.sessions()), (1, 1));
    let numbers: Vec<u64> = cluster.server.applied.iter().map(|one| one.number.0).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>(), "and its numbers go on");
}

#[test]
fn multi_get_over_nodes_is_joined_in_the_order_of_its_keys() {
    let mut cluster = filled(&[1]);
    let keys: [&[u8]; 9] = [b"z", b"k", b"nope", b"a", b"s", b"a", b"h", b"p", b"zz"];
    for _ in 0..2 {
        let Output::Values(values) = cluster.call(&Operation::MultiGet { keys: &keys }) else { panic!() };
        let found: Vec<Option<Vec<u8>>> = values
            .iter()
            .map(|found| match found {
                Found::Value { value, .. } => Some(value.to_vec()),
                _ => None,
            })
            .collect();
        let expected = keys.map(|key| Some(key.to_vec()).filter(|key| key != b"nope" && key != b"zz"));
        assert_eq!(found, expected);
    }
    assert_eq!(cluster.core.outstanding(), 0);
}

#[test]
fn multi_get_with_a_dead_part_ends_at_its_deadline_and_leaves_nothing() {
    let mut cluster = filled(&[0]);
    cluster.kill(2);
    let operation = Operation::MultiGet { keys: &[b"a", b"s"] };
    let deadline_ns = cluster.now_ns + 500 * MS;
    cluster.core.submit_until(cluster.now_ns, &operation, deadline_ns).unwrap();
    let completion = cluster.wait(600).expect("at its deadline");
    assert!(completion.outcome.is_err() && cluster.now_ns >= deadline_ns);
    assert_eq!(cluster.core.outstanding(), 0);
    assert_eq!(value(cluster.call(&get(b"a"))), Some(b"a".to_vec()));
}

#[test]
fn scan_goes_on_from_node_to_node_in_both_directions() {
    let mut cluster = filled(&[2]);
    for reverse in [false, true] {
        let mut met: Vec<Vec<u8>> = Vec::new();
        let (mut start, mut end) = (None::<Vec<u8>>, None::<(Vec<u8>, bool)>);
        for _ in 0..40 {
            let scan = Scan {
                start: start.as_deref().map_or(Bound::Unbounded, Bound::Included),
                end: match &end {
                    None => Bound::Unbounded,
                    Some((key, true)) => Bound::Included(key),
                    Some((key, false)) => Bound::Excluded(key),
                },
                reverse,
                ..Scan::default()
            };
            let Output::Page(page) = cluster.call(&Operation::Scan(scan)) else { panic!() };
            met.extend(page.iter().map(|entry| entry.key.to_vec()));
            if page.is_done() {
                break;
            }
            match (reverse, page.resume()) {
                (false, Bound::Included(key)) => start = Some(key.to_vec()),
                (true, Bound::Included(key)) => end = Some((key.to_vec(), true)),
                (true, Bound::Excluded(key)) => end = Some((key.to_vec(), false)),
                other => panic!("{other:?}"),
            }
        }
        let mut expected: Vec<Vec<u8>> = cluster.server.entries.keys().cloned().collect();
        if reverse {
            expected.reverse();
        }
        assert_eq!(met, expected, "reverse {reverse}");
    }
}

#[test]
fn dead_node_costs_the_operations_for_its_keys_alone() {
    let mut cluster = filled(&[0]);
    cluster.kill(1);
    let waits = cluster.submit(&put(b"k", b"newer"));
    for _ in 0..20 {
        assert_eq!(value(cluster.call(&get(b"a"))), Some(b"a".to_vec()));
        assert_eq!(value(cluster.call(&get(b"s"))), Some(b"s".to_vec()));
        cluster.now_ns += 10 * MS;
    }
    cluster.move_pair(2, 2);
    let moved_ns = cluster.now_ns;
    let completion = cluster.wait(1_000).expect("it is done where its keys are now");
    assert_eq!(completion.ticket, waits);
    assert!(matches!(completion.outcome, Ok(Output::Written(_))));
    assert!(cluster.now_ns <= moved_ns + 60 * MS, "soon: the table was asked for all the time");
}

#[test]
fn silent_node_whose_pair_has_moved_is_not_waited_for() {
    let mut cluster = filled(&[0]);
    cluster.nodes[1].frozen = true;
    cluster.submit(&put(b"k", b"newer"));
    assert!(cluster.wait(300).is_none(), "nobody has its keys yet");
    cluster.move_pair(2, 2);
    let moved_ns = cluster.now_ns;
    let completion = cluster.wait(1_000).expect("others were asked");
    assert!(matches!(completion.outcome, Ok(Output::Written(_))));
    assert!(cluster.now_ns <= moved_ns + 60 * MS, "long before the connection is given up for silence");
}

/// The stream stayed open at the node that it had moved from, for as long as the connection did.
#[test]
fn stream_that_moves_to_another_node_is_ended_at_the_first() {
    let mut cluster = filled(&[0]);
    cluster.mute.insert(1);
    let large = vec![7; 200_000];
    cluster.submit(&put(b"k", &large));
    assert!(cluster.wait(300).is_none(), "no credit comes");
    cluster.move_pair(2, 2);
    let completion = cluster.wait(1_000).expect("it is done where its keys are now");
    assert!(matches!(completion.outcome, Ok(Output::Written(_))));
    assert_eq!(count(&cluster, 1, RequestKind::Cancel), 1);
    assert_eq!(value(cluster.call(&get(b"k"))), Some(large));
}

#[test]
fn write_whose_answer_was_lost_with_its_node_is_done_once() {
    let mut cluster = filled(&[0]);
    cluster.mute.insert(1);
    cluster.submit(&put(b"k", b"once"));
    cluster.run();
    assert_eq!(cluster.server.applied.last().unwrap().value.as_deref(), Some(&b"once"[..]), "it was done");
    cluster.kill(1);
    cluster.move_pair(2, 0);
    let completion = cluster.wait(1_000).expect("the next owner knows the answer");
    assert!(matches!(completion.outcome, Ok(Output::Written(_))));
    let copies = cluster.server.applied.iter().filter(|one| one.value.as_deref() == Some(b"once")).count();
    assert_eq!(copies, 1);
}

#[test]
fn door_that_dies_is_replaced_by_what_was_learnt() {
    let mut cluster = filled(&[0]);
    cluster.kill(0);
    cluster.move_pair(1, 1);
    for key in [b"a", b"k", b"s", b"z"] {
        assert_eq!(value(cluster.call(&get(key))), Some(key.to_vec()));
    }
    assert!(matches!(cluster.call(&put(b"b", b"b")), Output::Written(_)), "the session lives on");
    assert_eq!(cluster.server.sessions(), 1);
}

#[test]
fn client_that_has_met_one_node_finds_the_others_when_that_dies() {
    let mut cluster = three(&[0]);
    assert_eq!(value(cluster.call(&get(b"a"))), None);
    cluster.kill(0);
    cluster.move_pair(1, 2);
    assert_eq!(value(cluster.call(&get(b"a"))), None);
    assert_eq!(value(cluster.call(&get(b"k"))), None);
}

#[test]
fn restarted_node_that_owns_nothing_refuses_and_the_path_is_learnt_anew() {
    let mut cluster = filled(&[0]);
    cluster.kill(2);
    cluster.move_pair(3, 1);
    cluster.start(2);
    assert_eq!(value(cluster.call(&get(b"s"))), Some(b"s".to_vec()));
    assert!(matches!(cluster.call(&put(b"s", b"t")), Output::Written(_)));
}

#[test]
fn pair_that_moves_between_living_nodes_is_followed() {
    let mut cluster = filled(&[1]);
    for (pair, to) in [(3, 0), (2, 2), (1, 2), (3, 1), (1, 0)] {
        cluster.move_pair(pair, to);
        for key in [b"a", b"k", b"s", b"z"] {
            assert_eq!(value(cluster.call(&get(key))), Some(key.to_vec()), "pair {pair} at node {to}");
        }
    }
}

#[test]
fn door_that_has_nothing_leads_to_the_only_owner() {
    let mut cluster = three(&[1]);
    for pair in 1..=3 {
        cluster.move_pair(pair, 2);
    }
    for key in [b"a", b"k", b"s"] {
        assert_eq!(value(cluster.call(&get(key))), None, "node 2 has it");
    }
    assert_eq!(cluster.connects, [0, 1, 1]);
}

/// Messages are lost and the connection stays: what a partition does that ends in time.
#[test]
fn table_whose_answer_was_lost_is_sent_by_the_next_connection() {
    let mut cluster = filled(&[1]);
    let before = cluster.nodes[1].tables;
    cluster.mute.insert(1);
    (0..3).filter(|at| *at != 1).for_each(|at| cluster.kill(at));
    cluster.submit(&get(b"s"));
    while cluster.nodes[1].tables == before {
        assert!(cluster.wait(1).is_none());
    }
    cluster.mute.clear();
    for pair in 1..=3 {
        cluster.move_pair(pair, 1);
    }
    let completion = cluster.wait(10_000).expect("in time");
    assert_eq!(value(completion.outcome.unwrap()), Some(b"s".to_vec()));
    assert_eq!(cluster.connects[1], 2, "the connection that had lost a message was given up");
}

#[test]
fn several_addresses_are_tried_until_one_answers() {
    let mut cluster = three(&[2, 1, 0]);
    (cluster.nodes[2].alive, cluster.nodes[1].alive) = (false, false);
    assert_eq!(value(cluster.call(&get(b"a"))), None);
    assert_eq!(cluster.connects, [1, 1, 1]);
}

#[test]
fn quiet_client_does_not_ask_for_the_table_again_and_again() {
    let mut cluster = filled(&[0]);
    let before: usize = cluster.nodes.iter().map(|node| node.tables).sum();
    for _ in 0..100 {
        assert!(value(cluster.call(&get(b"k"))).is_some());
        cluster.now_ns += 50 * MS;
    }
    let after: usize = cluster.nodes.iter().map(|node| node.tables).sum();
    assert_eq!(after, before);
    let options = ClientOptions { search: Search::Server, ..ClientOptions::default() };
    assert!(cluster.core.due_ns().is_none_or(|due| due > cluster.now_ns + options.silence_ms * MS / 4));
}

#[test]
fn key_without_a_known_path_is_looked_for_at_the_living_while_the_routers_node_is_dead() {
    let mut cluster = three(&[2]);
    assert_eq!(value(cluster.call(&get(b"s"))), None);
    cluster.kill(0);
    for key in [&b"s"[..], b"k"] {
        assert_eq!(value(cluster.call(&get(key))), None, "its node is there");
    }
}

/// Its neighbour to the left named the dead pair between for it, for as long as that was nobody's.
#[test]
fn key_to_the_right_of_a_pair_that_nobody_serves_is_found_while_that_is_the_routers() {
    for given in [1, 2] {
        let lows: [&[u8]; 4] = [b"c", b"f", b"k", b"p"];
        let mut cluster = Cluster::new(ClientOptions::default(), 3, &lows, &[given]);
        cluster.names_neighbours = true;
        cluster.unserved.insert(1, OwnedState::Orphaned);
        cluster.kill(0);
        for key in [&b"s"[..], b"g", b"d"] {
            assert_eq!(value(cluster.call(&get(key))), None, "its node is there");
        }
        let deadline_ns = cluster.now_ns + 5_000 * MS;
        let ticket = cluster.core.submit_until(cluster.now_ns, &get(b"m"), deadline_ns).unwrap();
        let completion = cluster.wait(10_000).expect("it is given up in time");
        assert_eq!(completion.ticket, ticket);
        let unserved = AttemptError::Unserved { pair: PairId(1), state: OwnedState::Orphaned };
        let Err(ClientError::Deadline { last, .. }) = completion.outcome else { panic!("{completion:?}") };
        assert_eq!(last, Some(unserved), "and not after so many tries");
    }
}

#[test]
fn key_of_a_pair_that_nobody_serves_is_refused_with_its_name_until_somebody_does() {
    let why = [(OwnedState::Recovering, "it is being recovered"), (OwnedState::Unavailable, "could not be")];
    let dead = (OwnedState::Orphaned, "its owner has died, and nobody has taken it over");
    for (state, words) in why.into_iter().chain([dead]) {
        let mut cluster = filled(&[0]);
        cluster.unserved.insert(2, state);
        match state {
            OwnedState::Orphaned => {
                cluster.kill(1);
                cluster.move_pair(2, 1);
            }
            _ => cluster.move_pair(2, 2),
        }
        for operation in [get(b"k"), put(b"k", b"new")] {
            let deadline_ns = cluster.now_ns + 5_000 * MS;
            let ticket = cluster.core.submit_until(cluster.now_ns, &operation, deadline_ns).unwrap();
            let completion = cluster.wait(10_000).expect("it is given up in time");
            assert_eq!(completion.ticket, ticket);
            let Err(ClientError::Deadline { last, .. }) = completion.outcome else {
                panic!("{completion:?}");
            };
            let unserved = AttemptError::Unserved { pair: PairId(2), state };
            assert_eq!(last, Some(unserved));
            let said = unserved.to_string();
            assert!(said.starts_with("nobody serves pair-2 now: ") && said.contains(words), "{said}");
        }
        cluster.unserved.clear();
        cluster.move_pair(2, 2);
        assert_eq!(value(cluster.call(&get(b"k"))), Some(b"k".to_vec()));
    }
}
