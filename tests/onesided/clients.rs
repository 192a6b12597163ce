//! Clients of a server, and how long one waits for them.

use std::time::Duration;

use cell_client::{Client, ClientOptions, Search, Transport};
use cell_tests::server::Server;

/// How long anything may take that this machine only has to get done.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn client(server: &Server, transport: Transport, search: Search) -> Client {
    let options = ClientOptions { transport, search, deadline_ms: 60_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}
