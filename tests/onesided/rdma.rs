//! The same over RDMA, on a device that the machine has: in `tests/rdma-vm`, or on hardware.

use std::time::Instant;

use cell_client::{ClientOptions, Search, Transport};
use cell_tests::lease::LONG_LEASE;
use cell_tests::process::signal;
use cell_tests::rdma::{OFFERED, SMALL, is_there};
use cell_tests::server::Server;
use cell_tests::wait::PATIENCE;
use rustix::process::Signal;

use crate::onesided::{again, answers, bench, failures, meeting, model, torn};

#[test]
fn clients_on_both_paths_over_rdma_are_linearizable() {
    if is_there() {
        meeting::clients_meet(Transport::Verbs, &SMALL, 1_000);
    }
}

/// A router on one node leads to entries on the other: connections and reads go to both.
#[test]
fn clients_of_two_nodes_over_rdma_are_linearizable() {
    if is_there() {
        meeting::clients_meet(Transport::Verbs, &[&SMALL[..], &LONG_LEASE, &["--nodes", "2"]].concat(), 400);
    }
}

#[test]
fn clients_over_rdma_beside_kills_are_linearizable() {
    if is_there() {
        meeting::clients_meet_beside_kills(Transport::Verbs, &SMALL, 2, 120);
    }
}

#[test]
fn one_sided_answers_over_rdma_are_the_servers_answers() {
    if is_there() {
        answers::answers_are_the_servers(&[Transport::Verbs], &OFFERED, 6_000);
    }
}

#[test]
fn operations_over_rdma_are_the_models_while_meganodes_are_split() {
    if is_there() {
        model::operations_are_the_models(Transport::Verbs, &OFFERED, 100);
    }
}

#[test]
fn torn_reads_over_rdma_are_caught() {
    if is_there() {
        torn::torn_reads_are_caught(Transport::Verbs, &SMALL);
    }
}

#[test]
fn killed_server_is_reported_over_rdma_and_writes_go_on_when_it_is_back() {
    if is_there() {
        failures::killed_server_is_reported_and_writes_go_on_when_it_is_back(Transport::Verbs, &SMALL);
    }
}

#[test]
fn memory_of_nodes_that_have_all_restarted_is_searched_again_over_rdma() {
    if is_there() {
        again::nodes_begin_anew(&[Transport::Verbs], &SMALL, 60);
    }
}

#[test]
fn what_cannot_be_done_over_rdma_is_refused_by_name() {
    if is_there() {
        failures::what_cannot_be_done_is_refused_by_name(Transport::Verbs, &SMALL);
    }
}

#[test]
fn ycsb_over_rdma_reports_who_searched() {
    if is_there() {
        bench::ycsb_reports_who_searched(Transport::Verbs, &SMALL, 200);
    }
}

/// Its device goes on answering reads: what they bring is worth nothing once the lease may be over.
#[test]
#[allow(clippy::disallowed_methods, reason = "real processes have real time")]
fn server_that_is_stopped_is_not_believed_past_its_lease() {
    if !is_there() {
        return;
    }
    let server = Server::start_with(&SMALL);
    let options = ClientOptions {
        transport: Transport::Verbs,
        search: Search::Client,
        deadline_ms: 3_000,
        ..ClientOptions::default()
    };
    let mut client =
        cell_client::Client::connect(&server.address().to_string(), options).expect("the server is there");
    client.put(b"key", b"value").expect("it is written");
    for _ in 0..20 {
        assert_eq!(client.get(b"key").expect("a read").map(|item| item.value), Some(b"value".to_vec()));
    }
    let before = client.one_sided_counters().expect("this client searches itself").done;
    assert!(before > 0, "the device was read");
    let node = server.node().expect("the node runs");
    signal(node, Signal::STOP);
    let stopped = Instant::now();
    // Believed for as long as the last reply's lease lasts, and then no more, whatever the device brings.
    while client.get(b"key").is_ok() {
        assert!(stopped.elapsed() < PATIENCE, "a stopped server is believed for ever");
    }
    let ended = stopped.elapsed();
    assert!(client.get(b"key").is_err(), "and believed again");
    let counters = client.one_sided_counters().copied().expect("this client searches itself");
    signal(node, Signal::CONT);
    println!("a stopped server was not believed any more after {ended:?}; {counters:?}");
}
