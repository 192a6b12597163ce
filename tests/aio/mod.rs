//! The asynchronous client against a real server: each operation over each transport and path, many tasks on
//! one client, futures that are dropped, clients that are closed.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy takes for more")]

mod calls;
#[cfg(feature = "verbs")]
mod rdma;

use std::time::Duration;

use self::calls::{connect, on_one_thread, on_two_threads};
use cell_client::{ClientError, ClientOptions, Fate, Search, Transport};
use cell_tests::server::Server;

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Shm];

#[test]
fn every_operation_over_each_transport_and_path() {
    let server = Server::start_steady(&[]);
    TRANSPORTS.into_iter().for_each(|transport| calls::every_operation_by_each_search(&server, transport));
}

#[test]
fn tasks_beyond_the_queue_wait_for_room_and_each_increment_counts_once() {
    calls::increments_count_once(&Server::start_steady(&[]), Transport::default(), 40, 25);
}

#[test]
fn dropped_puts_never_overwrite_a_later_one() {
    let longest = Duration::from_micros(580);
    calls::dropped_puts_are_overwritten(&Server::start_steady(&[]), Transport::default(), 300, longest);
}

#[test]
fn calls_dropped_without_a_server_are_given_up_at_once_and_not_done_when_it_is_back() {
    calls::calls_dropped_without_a_server_are_given_up(Server::start_steady(&[]), Transport::Tcp);
}

#[test]
fn dropped_reads_leave_neither_room_taken_nor_anything_outstanding() {
    let server = Server::start_steady(&[]);
    TRANSPORTS.into_iter().for_each(|transport| {
        calls::dropped_reads_leave_nothing_behind(&server, transport, 60);
    });
}

/// The first was answered by the client's own search when the put ended, woke nobody, and the second
/// slept for ever.
#[test]
fn waiters_for_room_each_go_on_also_behind_one_that_is_answered_at_once() {
    calls::waiters_for_room_are_woken(&Server::start_steady(&[]), Transport::Shm, 100);
}

/// The page that was asked for ahead was woken for room, its task did not poll it, and all slept for ever.
#[test]
fn page_that_is_asked_for_ahead_takes_no_turn_of_those_that_wait_for_room() {
    let server = Server::start_steady(&[]);
    TRANSPORTS.into_iter().for_each(|transport| {
        calls::page_ahead_takes_no_turn_of_those_that_wait_for_room(&server, transport, 40);
    });
}

#[test]
fn answer_is_taken_by_its_own_task_while_no_other_one_runs() {
    let server = Server::start_steady(&[]);
    TRANSPORTS.into_iter().for_each(|transport| calls::answer_is_taken_by_its_own_task(&server, transport));
}

#[test]
fn operations_polled_together_are_under_way_together() {
    let server = Server::start_steady(&[]);
    TRANSPORTS.into_iter().for_each(|transport| {
        calls::operations_polled_together_are_under_way_together(&server, transport);
    });
}

#[test]
fn operation_whose_task_is_not_polled_again_ends_and_holds_up_no_other() {
    let server = Server::start_steady(&[]);
    TRANSPORTS.into_iter().for_each(|transport| calls::operation_polled_once_ends(&server, transport));
}

#[test]
fn close_ends_what_is_outstanding_and_says_what_is_known_of_it() {
    calls::close_says_what_is_known_of_what_is_outstanding(&Server::start_steady(&[]), Transport::default());
}

#[test]
fn runtime_that_ends_takes_its_client_with_it() {
    let server = Server::start_steady(&[]);
    let first = on_two_threads();
    let client = first.block_on(connect(&server, ClientOptions::default()));
    drop(first);
    let ended = on_one_thread(client.get(b"key"));
    assert!(matches!(ended, Err(ClientError::Closed { fate: Fate::NotDone })), "{ended:?}");
}

#[test]
fn scan_broken_off_anywhere_goes_on_where_it_was() {
    let strides = [1, 6, 7, 8, 1000];
    calls::scans_broken_off_go_on(
        &Server::start_steady(&[]),
        Transport::default(),
        Search::default(),
        &strides,
    );
}
