//! The driver of a process that is stopped in the middle of a poll, or right after it has read its clock:
//! what a lease covers is judged by a time after the last completion or load, not by one from before.

use std::cell::Cell;
use std::rc::Rc;

use cell_client::{ClientCore, Driver, Operation, Output, WhoSearches};
use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricError, Greeting, MappedRegion, OneSided, ReadTag,
    RegionKey, RemoteAccess, RemoteRead, SendError,
};
use cell_protocol::{RegionRows, RegionsReply, Reply, Request};

use crate::onesided::answers::{key, value};
use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{LIST, MS, options, reply_header, server_hello};
use crate::quiet::{no_registrations, rest_of_endpoint};

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
                list: LIST,
                pairs: RegionRows::List(&rows),
            }),
            Request::KeepAlive { .. } => Reply::Alive,
            _ => return Ok(()), // never answered: what is asked of the server stays open
        };
        let mut bytes = Vec::new();
        let mut stamped = reply_header(&self.owner, header.id);
        stamped.trust_us = self.lease_us.get();
        reply.encode(&stamped, &mut bytes).unwrap();
        self.messages.push(bytes);
        Ok(())
    }

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

    rest_of_endpoint!(connections: 1);
}

impl OneSided for Stopping {
    no_registrations!();

    fn post(&mut self, _: ConnectionId, access: RemoteAccess<'_>, tag: ReadTag) -> Result<(), SendError> {
        let RemoteAccess::Read(read) = access else { panic!("{access:?}") };
        self.reads.push((read, tag));
        Ok(())
    }

    fn mapped(&self, _: ConnectionId, key: RegionKey) -> Option<MappedRegion> {
        self.owner.mapped(key)
    }

    fn reads_ordered(&self) -> bool {
        true
    }
}

/// A driver, and what is done to its process.
struct Process {
    driver: Driver<Stopping>,
    clock_ns: Rc<Cell<u64>>,
    stopped_ns: Rc<Cell<u64>>,
    lease_us: Rc<Cell<u32>>,
}

impl Process {
    fn new(owner: Owner, lease_us: u32) -> Process {
        let clock_ns = Rc::new(Cell::new(MS));
        let (stopped_ns, lease_us) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(lease_us)));
        let endpoint = Stopping {
            owner,
            clock_ns: clock_ns.clone(),
            stopped_ns: stopped_ns.clone(),
            lease_us: lease_us.clone(),
            messages: Vec::new(),
            reads: Vec::new(),
            connected: false,
        };
        let driver = Driver::new(endpoint, ClientCore::new(options(), 1), vec![Address::Sim(1)]);
        Process { driver, clock_ns, stopped_ns, lease_us }
    }

    fn step(&mut self) -> usize {
        self.driver.step(&mut || self.clock_ns.get())
    }

    /// Submits a get and goes on for some steps.
    fn get(&mut self) -> Option<Output> {
        self.driver.core().submit(self.clock_ns.get(), &Operation::Get { key: &key(1) }).unwrap();
        for _ in 0..20 {
            self.step();
        }
        self.driver.core().completion().map(|completion| completion.outcome.unwrap())
    }
}

/// An owner of one entry.
fn owner() -> Owner {
    let mut owner = Owner::new(false);
    owner.put(&key(1), &value(1));
    owner
}

/// What a get gives within some steps, its process stopped for so long while the last read comes in.
fn get(stopped_ns: u64, lease_us_then: u32) -> Option<Output> {
    let mut process = Process::new(owner(), 5_000);
    for _ in 0..20 {
        process.step();
    }
    process.stopped_ns.set(stopped_ns);
    process.lease_us.set(lease_us_then);
    process.get()
}

/// What a get of mapped memory gives before the call returns, its process stopped for so long before its
/// loads: since the get before it, which looked at the clock last.
fn get_at_once(stopped_ns: u64) -> Result<Option<Vec<u8>>, WhoSearches> {
    let mut owner = owner();
    owner.map();
    let mut process = Process::new(owner, 5_000);
    assert!(process.get().is_some(), "regions are mapped from here on");
    let Process { mut driver, clock_ns, .. } = process;
    driver.get_at_once(&mut || clock_ns.get(), &key(1)).expect("the lease holds");
    clock_ns.set(clock_ns.get() + stopped_ns);
    let answered = driver.get_at_once(&mut || clock_ns.get(), &key(1));
    answered.map(|item| item.map(|item| item.value))
}

/// A thread that learnt that nothing happened sleeps: an answer that is there would wait until it wakes.
#[test]
fn step_in_which_only_time_ends_an_operation_says_that_something_happened() {
    let mut process = Process::new(Owner::new(false), 0); // whatever is read is never trusted
    process.driver.core().submit(MS, &Operation::Get { key: &key(1) }).unwrap();
    for _ in 0..200_000 {
        let happened = process.step();
        if process.driver.core().completion().is_some() {
            assert!(happened > 0, "ended by its deadline");
            return;
        }
        process.clock_ns.set(process.clock_ns.get() + MS);
    }
    panic!("no deadline of a get is so long");
}

#[test]
fn process_stopped_within_a_poll_past_the_lease_returns_nothing() {
    assert!(matches!(get(0, 0), Some(Output::Value(Some(_)))), "the lease holds");
    assert!(matches!(get(4 * MS, 0), Some(Output::Value(Some(_)))), "the lease still holds");
    assert_eq!(get(6 * MS, 0), None, "the lease has ended while the process was stopped");
    assert!(matches!(get(6 * MS, 5_000), Some(Output::Value(Some(_)))), "and was renewed");
}

/// The loads come after one look at the clock; what they bring is believed by a later one.
pub(crate) fn process_stopped_between_clock_and_loads_returns_nothing_past_the_lease() {
    let found = Ok(Some(value(1)));
    assert_eq!(get_at_once(0), found, "the lease holds");
    assert_eq!(get_at_once(3 * MS), found, "the lease still holds");
    assert_eq!(get_at_once(6 * MS), Err(WhoSearches::Client), "the lease ended before the loads");
}

#[test]
fn process_stopped_between_clock_and_loads_returns_nothing_at_once() {
    process_stopped_between_clock_and_loads_returns_nothing_past_the_lease();
}
