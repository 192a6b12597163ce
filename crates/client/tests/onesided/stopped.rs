//! The driver on an endpoint that stops its process in the middle of a poll: what a lease covers is judged by
//! a time after the last completion, not by one from before the poll.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use cell_client::{ClientCore, Driver, Operation, Output};
use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricCounters, FabricError, Greeting, OneSided, ReadTag,
    RegionAccess, RegionKey, RemoteAccess, RemoteRead, SendError,
};
use cell_memory::Region;
use cell_protocol::{RegionRows, RegionsReply, Reply, Request};

use crate::answers::{key, value};
use crate::owner::Owner;
use crate::yard::{MS, options, reply_header, server_hello};

const CONNECTION: ConnectionId = ConnectionId::from_number(1);

struct Stopping {
    owner: Owner,
    clock_ns: Rc<Cell<u64>>,
    /// How long the process is stopped while it polls an extent.
    stopped_ns: Rc<Cell<u64>>,
    lease_us: Rc<Cell<u32>>,
    messages: Vec<Vec<u8>>,
    reads: Vec<(RemoteRead, ReadTag)>,
    connected: bool,
}

impl Endpoint for Stopping {
    fn connect(&mut self, _: &Address) -> Result<ConnectionId, FabricError> {
        self.connected = true;
        Ok(CONNECTION)
    }

    fn send_parts(&mut self, _: ConnectionId, parts: &[&[u8]]) -> Result<(), SendError> {
        let message = parts.concat();
        let (header, request) = Request::decode(&message).unwrap();
        let rows: Vec<_> = self.owner.pairs.iter().map(|owned| owned.row()).collect();
        let reply = match request {
            Request::Hello(_) => server_hello(),
            Request::Regions => Reply::Regions(RegionsReply {
                reads_permitted: true,
                one_sided_max_us: 200_000,
                pairs: RegionRows::List(&rows),
            }),
            Request::KeepAlive { .. } => Reply::Alive,
            _ => return Ok(()), // never answered: what is asked of the server stays open
        };
        let mut bytes = Vec::new();
        let mut stamped = reply_header(&self.owner, header.id);
        stamped.lease_remaining_us = self.lease_us.get();
        reply.encode(&stamped, &mut bytes).unwrap();
        self.messages.push(bytes);
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let greeting = Greeting::default();
        let mut count = 0;
        if std::mem::take(&mut self.connected) {
            sink(Event::Connected { connection: CONNECTION, greeting: &greeting });
            count += 1;
        }
        for message in self.messages.drain(..) {
            sink(Event::Message { connection: CONNECTION, message: &message });
            count += 1;
        }
        for (read, tag) in std::mem::take(&mut self.reads) {
            if read.key.0 == self.owner.pairs[0].extent_key() {
                self.clock_ns.set(self.clock_ns.get() + self.stopped_ns.get());
            }
            let words = self.owner.read(&read);
            let outcome = words.as_deref().map_err(|failure| *failure);
            sink(Event::ReadDone { connection: CONNECTION, tag, outcome });
            count += 1;
        }
        count
    }

    fn tick(&mut self, _: u64) {}

    fn close(&mut self, _: ConnectionId) {}

    fn output_pending(&self, _: ConnectionId) -> usize {
        0
    }

    fn connections(&self) -> usize {
        1
    }

    fn prepare_sleep(&mut self) -> bool {
        false
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> FabricCounters {
        FabricCounters::default()
    }
}

impl OneSided for Stopping {
    fn register_for(&mut self, _: &Region, _: RegionAccess) -> Result<RegionKey, FabricError> {
        Err(FabricError::OneSidedUnavailable)
    }

    fn deregister(&mut self, _: RegionKey) {}

    fn post(&mut self, _: ConnectionId, access: RemoteAccess<'_>, tag: ReadTag) -> Result<(), SendError> {
        let RemoteAccess::Read(read) = access else { panic!("{access:?}") };
        self.reads.push((read, tag));
        Ok(())
    }

    fn reads_ordered(&self) -> bool {
        true
    }
}

/// What a get gives within some steps, its process stopped for so long while the last read comes in.
fn get(stopped_ns: u64, lease_us_then: u32) -> Option<Output> {
    let mut owner = Owner::new(false);
    owner.put(&key(1), &value(1));
    let clock_ns = Rc::new(Cell::new(MS));
    let (stopped, lease_us) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(5_000)));
    let endpoint = Stopping {
        owner,
        clock_ns: clock_ns.clone(),
        stopped_ns: stopped.clone(),
        lease_us: lease_us.clone(),
        messages: Vec::new(),
        reads: Vec::new(),
        connected: false,
    };
    let mut driver = Driver::new(endpoint, ClientCore::new(options(), 1), vec![Address::sim(1)]);
    let mut clock = || clock_ns.get();
    for _ in 0..20 {
        driver.step(&mut clock);
    }
    stopped.set(stopped_ns);
    lease_us.set(lease_us_then);
    driver.core().submit(clock(), &Operation::Get { key: &key(1) }).unwrap();
    for _ in 0..20 {
        driver.step(&mut clock);
    }
    driver.core().completion().map(|completion| completion.outcome.unwrap())
}

/// A thread that was told that nothing happened sleeps: an answer that is there would wait until it wakes.
#[test]
fn step_in_which_only_time_ends_an_operation_says_that_something_happened() {
    let clock_ns = Rc::new(Cell::new(MS));
    let endpoint = Stopping {
        owner: Owner::new(false),
        clock_ns: clock_ns.clone(),
        stopped_ns: Rc::new(Cell::new(0)),
        lease_us: Rc::new(Cell::new(0)), // whatever is read is never trusted
        messages: Vec::new(),
        reads: Vec::new(),
        connected: false,
    };
    let mut driver = Driver::new(endpoint, ClientCore::new(options(), 1), vec![Address::sim(1)]);
    driver.core().submit(MS, &Operation::Get { key: &key(1) }).unwrap();
    for _ in 0..200_000 {
        let happened = driver.step(&mut || clock_ns.get());
        if driver.core().completion().is_some() {
            assert!(happened > 0, "ended by its deadline");
            return;
        }
        clock_ns.set(clock_ns.get() + MS);
    }
    panic!("no deadline of a get is so long");
}

#[test]
fn process_stopped_within_a_poll_past_the_lease_tells_nothing() {
    assert!(matches!(get(0, 0), Some(Output::Value(Some(_)))), "the lease holds");
    assert!(matches!(get(4 * MS, 0), Some(Output::Value(Some(_)))), "the lease still holds");
    assert_eq!(get(6 * MS, 0), None, "the lease has ended while the process was stopped");
    assert!(matches!(get(6 * MS, 5_000), Some(Output::Value(Some(_)))), "and was renewed");
}
