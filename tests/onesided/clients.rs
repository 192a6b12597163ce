//! Clients of a server, and how long one waits for them.

use cell_client::{Client, ClientOptions, OneSidedCounters, Search, Transport};
use cell_tests::server::Server;
pub(crate) use cell_tests::wait::PATIENCE;

pub(crate) fn client(server: &Server, transport: Transport, search: Search) -> Client {
    let options = ClientOptions { transport, search, deadline_ms: 60_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}

/// Searches that fell back to the server although their time had not run out, as it does on a slow machine.
pub(crate) fn fell_back_within_time(counters: &OneSidedCounters) -> u64 {
    counters.fell_back.saturating_sub(counters.clock)
}
