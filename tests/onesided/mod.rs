//! Clients that search a real server's memory themselves, beside writers, over each transport: every key
//! linearizable, scans and multi-gets what the server says they are, and all of them what a model has.

mod again;
mod answers;
mod bench;
mod clients;
mod failures;
mod meeting;
mod model;
#[cfg(feature = "verbs")]
mod rdma;
#[cfg(feature = "verbs")]
mod torn;

use cell_client::Transport;

/// Operations of all clients that meet together, about a fifth of them one-sided reads.
const OPERATIONS: u64 = 10_000;
/// Of two nodes' pairs, which one of them may have.
const SIZES: [&str; 3] = ["--node-region-bytes=64MiB", "--slot-bytes=4MiB", "--extent-region-bytes=128MiB"];

#[test]
fn clients_on_both_paths_over_tcp_are_linearizable() {
    meeting::clients_meet(Transport::Tcp, &[], OPERATIONS);
}

#[test]
fn clients_on_both_paths_over_shared_memory_are_linearizable() {
    meeting::clients_meet(Transport::Shm, &[], OPERATIONS);
}

#[test]
fn clients_on_both_paths_beside_kills_are_linearizable() {
    for transport in [Transport::Tcp, Transport::Shm] {
        meeting::clients_meet_beside_kills(transport, &[], 3, 2_000);
    }
}

#[test]
fn one_sided_answers_are_the_servers_answers() {
    answers::answers_are_the_servers(&[Transport::Tcp, Transport::Shm], &[], 30_000);
}

#[test]
fn operations_over_tcp_are_the_models_while_meganodes_are_split() {
    model::operations_are_the_models(Transport::Tcp, &[], 150);
}

#[test]
fn operations_over_shared_memory_are_the_models_while_meganodes_are_split() {
    model::operations_are_the_models(Transport::Shm, &[], 150);
}

#[test]
fn killed_server_is_reported_and_writes_go_on_when_it_is_back() {
    // Both at once: hardly anything is done but waiting for deadlines.
    std::thread::scope(|scope| {
        for transport in [Transport::Tcp, Transport::Shm] {
            scope.spawn(move || {
                failures::killed_server_is_reported_and_writes_go_on_when_it_is_back(transport, &[]);
            });
        }
    });
}

#[test]
fn memory_of_nodes_that_have_all_restarted_is_searched_again() {
    again::nodes_begin_anew(&[Transport::Tcp, Transport::Shm, Transport::Auto], &SIZES, 400);
}

#[test]
fn memory_is_searched_again_once_the_roots_pair_has_moved() {
    again::root_moves(&[Transport::Tcp, Transport::Shm], &SIZES);
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    for transport in [Transport::Tcp, Transport::Shm] {
        failures::what_cannot_be_done_is_refused_by_name(transport, &[]);
    }
}

#[test]
fn ycsb_reports_who_searched() {
    for transport in [Transport::Tcp, Transport::Shm] {
        bench::ycsb_reports_who_searched(transport, &[], 1_000);
    }
}
