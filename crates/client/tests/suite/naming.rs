//! Servers that the user named: what is found by a name is known by it under TLS before it is connected to.

use std::net::SocketAddr;
use std::time::Duration;

use cell_client::{ClientCore, ClientOptions, Driver};
use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricError, OneSided, ReadTag, RemoteAccess, SendError,
};

use crate::quiet::{no_registrations, rest_of_endpoint};

/// An endpoint that reaches nobody.
#[derive(Default)]
struct Deaf {
    named: Vec<(SocketAddr, String)>,
    /// Each address that was to be connected to, and the name that it had by then.
    tried: Vec<(Address, Option<String>)>,
}

impl Endpoint for Deaf {
    fn connect(&mut self, address: &Address) -> Result<ConnectionId, FabricError> {
        let name = self.named.iter().rev().find(|(named, _)| Address::Tcp(*named) == *address);
        self.tried.push((*address, name.map(|(_, host)| host.clone())));
        Err(FabricError::AddressUnsupported { address: *address })
    }

    fn name_address(&mut self, address: SocketAddr, host: &str) {
        self.named.push((address, host.to_owned()));
    }

    fn send_parts(&mut self, _: ConnectionId, _: &[&[u8]]) -> Result<(), SendError> {
        Err(SendError::Closed)
    }

    fn poll(&mut self, _: &mut dyn FnMut(Event<'_>)) -> usize {
        0
    }

    rest_of_endpoint!(connections: 0);
}

impl OneSided for Deaf {
    no_registrations!();

    fn post(&mut self, _: ConnectionId, _: RemoteAccess<'_>, _: ReadTag) -> Result<(), SendError> {
        Err(SendError::Closed)
    }

    fn reads_ordered(&self) -> bool {
        true
    }
}

/// The name by which the first address is known that was not given and is tried.
#[allow(clippy::disallowed_methods, reason = "another thread's look at the name is waited for")]
fn name_of_what_is_found(servers: &str) -> Option<String> {
    let before: SocketAddr = "192.0.2.1:7000".parse().unwrap();
    let core = ClientCore::new(ClientOptions::default(), 1);
    let mut driver = Driver::new(Deaf::default(), core, vec![Address::Tcp(before)]).naming(servers);
    let mut now_ns = 0;
    for _ in 0..6_000 {
        driver.step(&mut || {
            now_ns += 100_000_000;
            now_ns
        });
        let found = driver.endpoint().tried.iter().find(|(tried, _)| *tried != Address::Tcp(before));
        if let Some((_, name)) = found {
            return name.clone();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("what {servers} leads to is not tried");
}

/// A row of the region table that named an address which the user had given named it for good: it was
/// connected to by the row's name, also when that led elsewhere.
#[test]
fn address_that_was_given_is_known_by_itself_whatever_it_was_called_since() {
    let given: SocketAddr = "192.0.2.1:7000".parse().unwrap();
    for servers in ["192.0.2.1:7000", "192.0.2.1:7000,nobody.invalid:7000"] {
        let core = ClientCore::new(ClientOptions::default(), 1);
        let named = vec![(given, "node-1.example".to_owned())];
        let endpoint = Deaf { named, ..Deaf::default() };
        let mut driver = Driver::new(endpoint, core, vec![Address::Tcp(given)]).naming(servers);
        let mut now_ns = 0;
        for _ in 0..100 {
            driver.step(&mut || {
                now_ns += 100_000_000;
                now_ns
            });
        }
        let tried = &driver.endpoint().tried;
        assert!(!tried.is_empty());
        let by_itself = (Address::Tcp(given), Some("192.0.2.1".to_owned()));
        assert!(tried.iter().all(|one| *one == by_itself), "{servers}: {tried:?}");
    }
}

/// Certificates were checked against the addresses that a later look at the name had found.
#[test]
fn address_that_is_found_by_a_name_later_is_known_by_it() {
    assert_eq!(name_of_what_is_found("localhost:7000").as_deref(), Some("localhost"));
}

/// One name of the list that led nowhere kept the client at what all of them had led to at first.
#[test]
fn address_that_is_found_later_is_tried_though_another_name_leads_nowhere() {
    assert_eq!(name_of_what_is_found("localhost:7000,nobody.invalid:7000").as_deref(), Some("localhost"));
}

/// After a look at the names the server that was named first came first, though another one had answered.
#[test]
#[allow(clippy::disallowed_methods, reason = "another thread's look at the name is waited for")]
fn servers_that_were_named_stay_in_the_order_in_which_they_answered() {
    let given = ["127.0.0.1:7002", "127.0.0.1:7001"].map(|address| Address::Tcp(address.parse().unwrap()));
    let core = ClientCore::new(ClientOptions::default(), 1);
    let servers = "127.0.0.1:7001,127.0.0.1:7002,localhost:7003";
    let mut driver = Driver::new(Deaf::default(), core, given.to_vec()).naming(servers);
    let mut now_ns = 0;
    for _ in 0..6_000 {
        driver.step(&mut || {
            now_ns += 100_000_000;
            now_ns
        });
        let tried = driver.endpoint().tried.iter().map(|(address, _)| *address);
        // From the one on that only the look has found: the next round begins after it.
        let mut round = tried.skip_while(|address| given.contains(address));
        if let Some(next) = round.find(|address| given.contains(address)) {
            assert_eq!(next, given[0]);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("what localhost leads to is not tried");
}
