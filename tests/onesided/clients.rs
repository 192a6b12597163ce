//! Clients of a server, and how long one waits for them.

use cell_client::{Client, ClientOptions, Search, Transport};
use cell_tests::server::Server;
pub(crate) use cell_tests::wait::PATIENCE;

pub(crate) fn client(server: &Server, transport: Transport, search: Search) -> Client {
    let options = ClientOptions { transport, search, deadline_ms: 60_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}
