//! Waits that have started end as soon as they would by what has become known since: other settings, another
//! table, a server for a client that had none.

use cell_client::{ClientOptions, Completion, Output, Ticket};
use cell_protocol::{Refusal, RequestKind};

use crate::client_core::cluster::Cluster;
use crate::client_core::core_harness::{CoreHarness, MS, get, options, put};
use crate::client_core::tuned::tune;

const LONG: [(&str, &str); 2] = [("client_retry_shortest", "1 s"), ("client_retry_longest", "10 s")];

/// Refuses the next get that is sent, and lets the model server answer all else.
fn refuse_next_get(harness: &mut CoreHarness) {
    for _ in 0..20_000 {
        harness.step();
        let requests = harness.requests();
        if let Some(at) = requests.iter().position(|(kind, _)| *kind == RequestKind::Get) {
            harness.sent.remove(at);
            harness.refuse(requests[at].1, Refusal::Busy);
            return harness.answer();
        }
        harness.answer();
        harness.pass(1);
    }
    panic!("no get is sent");
}

/// Waits had grown by settings of an hour ago, and stayed when those were taken back.
#[test]
fn operation_that_waits_goes_on_by_the_settings_that_came_since() {
    let patient = ClientOptions { report_ms: 1_000, deadline_ms: 60_000, ..options() };
    let mut harness = CoreHarness::up(patient, false);
    tune(&mut harness, 1, &LONG);
    let waits = harness.submit(&get(b"key"));
    (0..4).for_each(|_| refuse_next_get(&mut harness));
    tune(&mut harness, 2, &[]);
    harness.pass(8); // the fourth wait is one of 8 ms at most
    harness.run();
    assert_eq!(harness.completion().ticket, waits);
}

/// Two nodes, a pair each, both of which are met; pair 2 has the keys from `m` on.
fn two(options: ClientOptions) -> Cluster {
    let mut cluster = Cluster::new(options, 2, &[b"m"], &[0]);
    for key in [b"a", b"z"] {
        assert!(matches!(cluster.call(&put(key, key)), Output::Written(_)));
    }
    cluster
}

fn patient(report_ms: u64) -> ClientOptions {
    ClientOptions {
        report_ms,
        deadline_ms: 600_000,
        retry_shortest_ms: 100,
        retry_longest_ms: 60_000,
        retries_max: u32::MAX,
        ..options()
    }
}

/// Lets so much time pass, and asks the first node for something now and then.
fn pass(cluster: &mut Cluster, ms: u64) {
    for at in 0..ms {
        cluster.run();
        if at % 50 == 0 && cluster.nodes[0].alive {
            let asked = cluster.submit(&get(b"a"));
            assert_eq!(cluster.wait(1_000).map(|completion| completion.ticket), Some(asked));
        }
        cluster.now_ns += MS;
    }
}

fn is_found(completion: &Completion, ticket: Ticket) -> bool {
    completion.ticket == ticket && matches!(completion.outcome, Ok(Output::Value(Some(_))))
}

#[test]
fn connection_that_waits_is_tried_by_the_settings_that_came_since() {
    let mut cluster = two(ClientOptions { retry_shortest_ms: 1, retry_longest_ms: 200, ..patient(1_000) });
    cluster.settings = (1, LONG.to_vec());
    pass(&mut cluster, 2_500);
    cluster.kill(1);
    cluster.submit(&get(b"z"));
    pass(&mut cluster, 10_000);
    let before = cluster.connects[1];
    pass(&mut cluster, 2_000);
    assert!(cluster.connects[1] <= before + 1, "waits are long");
    cluster.settings = (2, Vec::new());
    pass(&mut cluster, 1_100);
    let before = cluster.connects[1];
    pass(&mut cluster, 1_000);
    assert!(cluster.connects[1] >= before + 4, "{} {before}", cluster.connects[1]);
}

#[test]
fn connection_to_a_node_of_which_the_table_says_something_new_is_tried_soon() {
    let mut cluster = two(patient(0));
    cluster.kill(1);
    let waits = cluster.submit(&get(b"z"));
    pass(&mut cluster, 60_000);
    let before = cluster.connects[1];
    pass(&mut cluster, 2_000);
    assert_eq!(cluster.connects[1], before, "waits are long");
    cluster.start(1);
    let completion = cluster.wait(200).expect("soon after the next question for the table");
    assert!(is_found(&completion, waits), "{completion:?}");
}

/// A client that was cut off: the table does not change by that.
#[test]
fn what_waits_goes_on_soon_once_a_client_without_servers_has_met_one() {
    let mut cluster = two(patient(0));
    cluster.kill(0);
    cluster.kill(1);
    let mut waiting = vec![cluster.submit(&get(b"a")), cluster.submit(&get(b"z"))];
    pass(&mut cluster, 60_000);
    (cluster.nodes[0].alive, cluster.nodes[1].alive) = (true, true);
    let completion = cluster.wait(60_000).expect("one of them is tried after its wait");
    waiting.retain(|ticket| !is_found(&completion, *ticket));
    assert_eq!(waiting.len(), 1, "{completion:?}");
    let completion = cluster.wait(200).expect("the other one soon");
    assert!(is_found(&completion, waiting[0]), "{completion:?}");
}
