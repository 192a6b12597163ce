//! What is submitted leaves before the client looks for answers: the look is a call of the kernel, and finds
//! nothing before the question is sent.

use std::cell::RefCell;
use std::rc::Rc;

use cell_client::{ClientCore, ClientOptions, Driver, Operation, Search};
use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricError, Greeting, OneSided, ReadTag, RemoteAccess, SendError,
};

use crate::model::{Peer, Server};
use crate::quiet::{no_registrations, rest_of_endpoint};

const CONNECTION: ConnectionId = ConnectionId::from_number(1);
const MS: u64 = 1_000_000;

/// An endpoint that leads to the model server, and what was done with it.
#[derive(Default)]
struct Recorder {
    server: Server,
    peer: Peer,
    connected: bool,
    replies: Vec<Vec<u8>>,
    done: Rc<RefCell<Vec<&'static str>>>,
}

impl Endpoint for Recorder {
    fn connect(&mut self, _: &Address) -> Result<ConnectionId, FabricError> {
        self.connected = true;
        Ok(CONNECTION)
    }

    fn send_parts(&mut self, _: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        self.done.borrow_mut().push("send");
        self.server.handle(&mut self.peer, &parts.concat(), &mut self.replies);
        Ok(())
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        self.done.borrow_mut().push("poll");
        let mut count = 0;
        if std::mem::take(&mut self.connected) {
            sink(Event::Connected { connection: CONNECTION, greeting: &Greeting::default() });
            count += 1;
        }
        for message in self.replies.drain(..) {
            sink(Event::Message { connection: CONNECTION, message: &message });
            count += 1;
        }
        count
    }

    rest_of_endpoint!(connections: 1);
}

impl OneSided for Recorder {
    no_registrations!();

    fn post(&mut self, _: ConnectionId, _: RemoteAccess<'_>, _: ReadTag) -> Result<(), SendError> {
        Err(SendError::Closed)
    }

    fn reads_ordered(&self) -> bool {
        true
    }
}

#[test]
fn question_leaves_without_a_look_where_the_last_one_was_a_moment_ago() {
    let done = Rc::new(RefCell::new(Vec::new()));
    let endpoint = Recorder { done: done.clone(), ..Recorder::default() };
    let options = ClientOptions { search: Search::Server, ..ClientOptions::default() };
    let mut driver = Driver::new(endpoint, ClientCore::new(options, 1), vec![Address::Sim(1)]);
    let mut now_ns = MS;
    for _ in 0..20 {
        driver.step(&mut || now_ns);
    }
    assert!(driver.core().is_up());
    // For so long the endpoint was not looked at, and what is done until the answer is there.
    let cases: [(u64, &[&str]); 3] =
        [(0, &["send", "poll"]), (MS / 2, &["send", "poll"]), (MS, &["poll", "send", "poll"])];
    for (idle_ns, expected) in cases {
        now_ns += idle_ns;
        let ticket = driver.core().submit(now_ns, &Operation::Get { key: b"key" }).unwrap();
        done.borrow_mut().clear();
        driver.send_out(&mut || now_ns);
        while driver.core().completion_of(ticket).is_none() {
            assert!(driver.step(&mut || now_ns) > 0);
        }
        assert_eq!(*done.borrow(), expected, "after {idle_ns} ns");
    }
}
