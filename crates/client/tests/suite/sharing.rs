//! Shared memory behind an address over TCP: it is looked for by each attempt, whether that address was given
//! or learnt, and not missed where it cannot be had.

use cell_client::{ClientCore, ClientOptions, Driver, Operation, Search, Transport};
use cell_fabric::{
    Address, CloseReason, ConnectionId, Endpoint, Event, FabricError, Greeting, OneSided, ReadTag,
    RemoteAccess, SendError, SocketName,
};
use cell_protocol::{Refusal, Request};

use crate::model::{Peer, Server, refusal};
use crate::quiet::{no_registrations, rest_of_endpoint};

const MS: u64 = 1_000_000;
const SOCKET: &str = "@cell-sharing";

/// What comes of a connection over shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Granted,
    /// There is no such socket, for this process.
    NotThere,
    /// It is closed before it is open.
    Refused,
    /// It is open, and there is no room for who comes.
    Full,
}

/// The node of the model server on this host, over TCP and shared memory.
struct Host {
    server: Server,
    peer: Peer,
    is_up: bool,
    sharing: Sharing,
    greeting: Greeting,
    /// Where it was to be connected to.
    tried: Vec<Address>,
    present: Option<(ConnectionId, Address)>,
    is_new: bool,
    ended: Option<ConnectionId>,
    replies: Vec<Vec<u8>>,
}

impl Host {
    /// The node ends.
    fn end(&mut self) {
        self.is_up = false;
        self.ended = self.present.take().map(|(connection, _)| connection);
    }
}

impl Endpoint for Host {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        self.tried.push(*address);
        let is_shared = matches!(address, Address::Shm(_));
        if !self.is_up || (is_shared && self.sharing == Sharing::NotThere) {
            return Err(FabricError::AddressUnsupported { address: *address });
        }
        let connection = ConnectionId::from_number(self.tried.len() as u64);
        if is_shared && self.sharing == Sharing::Refused {
            (self.present, self.ended) = (None, Some(connection));
        } else {
            (self.present, self.is_new) = (Some((connection, *address)), true);
        }
        (self.peer, self.replies) = (Peer::default(), Vec::new());
        Ok(connection)
    }

    fn send_parts(&mut self, _: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let message = parts.concat();
        let is_shared = matches!(self.present, Some((_, Address::Shm(_))));
        if is_shared && self.sharing == Sharing::Full {
            let (header, _) = Request::decode(&message).unwrap();
            self.replies.push(refusal(header.id, Refusal::Busy));
        } else {
            self.server.handle(&mut self.peer, &message, &mut self.replies);
        }
        Ok(())
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut count = 0;
        if let Some(connection) = self.ended.take() {
            sink(Event::Closed { connection, reason: CloseReason::PeerClosed });
            count += 1;
        }
        let Some((connection, _)) = self.present else { return count };
        if std::mem::take(&mut self.is_new) {
            sink(Event::Connected { connection, greeting: &self.greeting });
            count += 1;
        }
        for message in self.replies.drain(..) {
            sink(Event::Message { connection, message: &message });
            count += 1;
        }
        count
    }

    rest_of_endpoint!(connections: 1);
}

impl OneSided for Host {
    no_registrations!();

    fn post(&mut self, _: ConnectionId, _: RemoteAccess<'_>, _: ReadTag) -> Result<(), SendError> {
        Err(SendError::Closed)
    }

    fn reads_ordered(&self) -> bool {
        true
    }
}

fn shared() -> Address {
    Address::Shm(SocketName::new(SOCKET).unwrap())
}

fn over_tcp() -> Address {
    Address::Tcp("127.0.0.1:7000".parse().unwrap())
}

/// A client of a node whose shared memory was met when it was asked who is there.
fn begin(sharing: Sharing) -> Driver<Host> {
    let greeting = Greeting { shared_memory_socket: SOCKET.to_owned(), ..Greeting::of_this_host() };
    let host = Host {
        server: Server::default(),
        peer: Peer::default(),
        is_up: true,
        sharing,
        greeting,
        tried: Vec::new(),
        present: None,
        is_new: false,
        ended: None,
        replies: Vec::new(),
    };
    let options = ClientOptions { search: Search::Server, report_ms: 0, ..ClientOptions::default() };
    Driver::new(host, ClientCore::new(options, 1), vec![shared(), over_tcp()]).over(Transport::Auto)
}

/// Steps, a millisecond each, until something is so.
fn step_until(driver: &mut Driver<Host>, now_ns: &mut u64, is_so: impl Fn(&mut ClientCore) -> bool) {
    for _ in 0..10_000 {
        *now_ns += MS;
        let time_ns = *now_ns;
        driver.step(&mut || time_ns);
        if is_so(driver.core()) {
            return;
        }
    }
    panic!("it never is: {:?}", driver.endpoint().tried);
}

/// Gives the client something to do, and lets the node be away for so long; it is met when it is back.
fn be_away(driver: &mut Driver<Host>, now_ns: &mut u64, away_ms: u64) {
    driver.endpoint().end();
    let deadline_ns = *now_ns + 60_000 * MS;
    driver.core().submit_until(*now_ns, &Operation::Get { key: b"key" }, deadline_ns).unwrap();
    let back_ns = *now_ns + away_ms * MS;
    while *now_ns < back_ns {
        *now_ns += MS;
        let time_ns = *now_ns;
        driver.step(&mut || time_ns);
    }
    driver.endpoint().is_up = true;
    step_until(driver, now_ns, |core| core.completion().is_some());
}

/// A node that was back when its address over TCP had its turn was talked to over TCP from then on.
#[test]
fn shared_memory_is_met_again_whichever_address_has_its_turn_when_the_node_is_back() {
    for away_ms in (0..300).step_by(7) {
        let (mut driver, mut now_ns) = (begin(Sharing::Granted), MS);
        step_until(&mut driver, &mut now_ns, |core| core.is_up());
        assert_eq!(driver.address(), shared());
        be_away(&mut driver, &mut now_ns, away_ms);
        assert_eq!(driver.address(), shared(), "away for {away_ms} ms: {:?}", driver.endpoint().tried);
    }
}

/// It goes on over TCP at once, and looks again the next time.
#[test]
fn shared_memory_that_is_not_to_be_had_is_passed_over_and_looked_for_again() {
    for sharing in [Sharing::NotThere, Sharing::Refused] {
        let (mut driver, mut now_ns) = (begin(sharing), MS);
        step_until(&mut driver, &mut now_ns, |core| core.is_up());
        assert_eq!(driver.endpoint().tried, [shared(), over_tcp(), shared(), over_tcp()], "{sharing:?}");
        be_away(&mut driver, &mut now_ns, 50);
        assert_eq!(driver.address(), over_tcp(), "{sharing:?}");
        driver.endpoint().sharing = Sharing::Granted;
        be_away(&mut driver, &mut now_ns, 50);
        assert_eq!(driver.address(), shared(), "{sharing:?}");
    }
}

#[test]
fn node_without_room_over_shared_memory_is_met_over_tcp() {
    let (mut driver, mut now_ns) = (begin(Sharing::Full), MS);
    step_until(&mut driver, &mut now_ns, |core| core.is_up());
    assert_eq!(driver.address(), over_tcp());
    assert_eq!(driver.endpoint().tried, [shared(), over_tcp()]);
}
