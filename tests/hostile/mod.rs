//! Strangers and enemies on the server's ports: whatever they send, the node lives on, takes no memory for
//! it, and serves others. Three layers: bytes that are no fabric, messages of a fabric that are no requests
//! or lie, and clients of the admin API that are slow, many or never end. Beside them: crowds, and other
//! users of the machine at the coordinator's door.

mod attacker;
mod bytes;
mod crowd;
mod doors;
mod greedy;
mod http;
mod messages;

use std::time::Duration;

use cell_client::{Client, ClientOptions};
use cell_tests::process::anonymous_bytes;
use cell_tests::server::Server;

/// Memory that an attack may leave behind in the server, besides regions: replies that wait for clients,
/// 32 MiB of all of them, and what else is bounded.
const GROWTH_BYTES_MAX: u64 = 48 << 20;

/// A server under attack, and an honest client of it.
struct Siege {
    server: Server,
    honest: Client,
    node: rustix::process::Pid,
    anonymous: u64,
}

impl Siege {
    fn begin() -> Self {
        let server = Server::start_steady(&[]);
        let options = ClientOptions { deadline_ms: 60_000, ..ClientOptions::default() };
        let mut honest =
            Client::connect(&server.address().to_string(), options).expect("the server is there");
        honest.put(b"witness", b"I was here").expect("an honest put succeeds");
        let node = server.node().expect("the node runs");
        let anonymous = anonymous_bytes(node);
        Self { server, honest, node, anonymous }
    }

    /// After an attack: the same process serves the same client the same value, and is no larger.
    fn assert_unharmed(&mut self) {
        self.assert_unharmed_within(GROWTH_BYTES_MAX);
    }

    /// The same, and it has grown by less than so many bytes.
    fn assert_unharmed_within(&mut self, growth_bytes_max: u64) {
        self.assert_serves();
        let grown = anonymous_bytes(self.node).saturating_sub(self.anonymous);
        assert!(grown < growth_bytes_max, "the node grew by {grown} bytes under attack");
    }

    /// The same process serves the same client the same value.
    fn assert_serves(&mut self) {
        let item = self.honest.get(b"witness").expect("an honest get succeeds").expect("the entry is there");
        assert_eq!(item.value, b"I was here");
        self.honest.put(b"witness too", b"and still am").expect("an honest put succeeds");
        assert_eq!(self.server.node(), Some(self.node), "the node died under attack:\n{}", self.server.log());
        assert!(!self.server.log().contains("panicked"), "{}", self.server.log());
    }
}

#[allow(clippy::disallowed_methods, reason = "real sockets have real time")]
fn wait(duration: Duration) {
    std::thread::sleep(duration);
}
