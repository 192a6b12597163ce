//! Carries a core's commands out on an endpoint, and tells it what happens there. The clock is the caller's,
//! who sleeps between the steps (or, in a simulator, does not).

use cell_fabric::{Address, ConnectionId, Event, FabricError, Greeting, OneSided, ReadFailure, SendError};

use crate::client_core::{ClientCore, Command};
use crate::error::Setback;

/// How often the endpoint is told the time: it counts in hundreds of milliseconds.
const TICK_NS: u64 = 10_000_000;

/// For so long answers that were found in place are given without a look at the endpoint.
const SETTLE_ALONE_NS: u64 = 1_000_000;

/// A core and the endpoint that it uses.
#[derive(Debug)]
pub struct Driver<E> {
    endpoint: E,
    core: ClientCore,
    addresses: Vec<Address>,
    address: Address,
    connection: Option<ConnectionId>,
    greeting: Greeting,
    fabric_error: Option<FabricError>,
    failed_count: usize,
    ticked_ns: u64,
    now_ns: u64,
}

impl<E: OneSided> Driver<E> {
    /// A driver of one worker's addresses, which are tried in turn.
    ///
    /// # Panics
    /// If there is no address.
    #[must_use]
    pub fn new(endpoint: E, mut core: ClientCore, addresses: Vec<Address>) -> Driver<E> {
        core.set_reads_ordered(endpoint.reads_ordered());
        let address = addresses[0];
        Driver {
            endpoint,
            core,
            addresses,
            address,
            connection: None,
            greeting: Greeting::default(),
            fabric_error: None,
            failed_count: 0,
            ticked_ns: 0,
            now_ns: 0,
        }
    }

    /// The core: to submit to and to take completions from.
    pub fn core(&mut self) -> &mut ClientCore {
        &mut self.core
    }

    /// The core, to look at.
    #[must_use]
    pub fn core_ref(&self) -> &ClientCore {
        &self.core
    }

    /// The endpoint.
    pub fn endpoint(&mut self) -> &mut E {
        &mut self.endpoint
    }

    /// The address that was tried last, or is connected.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// What the present or last host said of itself when it accepted the connection.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// When the last step last looked at the clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Connections that were lost or never came to be, so far.
    #[must_use]
    pub fn failed_count(&self) -> usize {
        self.failed_count
    }

    /// Why no connection could be begun, if that was the last failure.
    pub fn take_fabric_error(&mut self) -> Option<FabricError> {
        self.fabric_error.take()
    }

    /// Takes in what has happened, lets time pass, and carries out what the core wants. Returns how much
    /// happened; zero means that one may sleep until [`ClientCore::due_ns`], if [`Driver::prepare_sleep`]
    /// agrees.
    ///
    /// The clock is asked again when anything has happened: what was read one-sided is believed only by a
    /// time after its last completion.
    pub fn step(&mut self, clock: &mut dyn FnMut() -> u64) -> usize {
        let mut now_ns = clock();
        if now_ns >= self.ticked_ns.saturating_add(TICK_NS) || self.ticked_ns == 0 {
            self.ticked_ns = now_ns.max(1);
            self.endpoint.tick(now_ns);
        }
        let events = self.take_events(now_ns);
        if events > 0 {
            now_ns = clock();
        }
        self.now_ns = now_ns;
        let complete = self.core.completions();
        self.core.settle(now_ns);
        let answered = self.core.completions() - complete;
        self.core.tick(now_ns);
        let commands = self.carry_out(now_ns);
        let reads = self.post_reads();
        self.map_regions();
        self.endpoint.flush();
        events + answered + commands + reads
    }

    /// Answers what was found in place, which waits for nothing but the time. False if that is nothing, or if
    /// the endpoint has not been looked at for a while: then a whole step is due.
    pub fn settle(&mut self, clock: &mut dyn FnMut() -> u64) -> bool {
        if !self.core.is_settling() {
            return false;
        }
        let now_ns = clock();
        if now_ns >= self.now_ns.saturating_add(SETTLE_ALONE_NS) {
            return false;
        }
        self.core.settle(now_ns);
        true
    }

    fn take_events(&mut self, now_ns: u64) -> usize {
        let Driver { endpoint, core, connection, greeting, failed_count, .. } = self;
        endpoint.poll(&mut |event| match event {
            Event::Connected { connection: opened, greeting: said } if Some(opened) == *connection => {
                greeting.clone_from(said);
                core.connected();
            }
            Event::Message { connection: source, message } if Some(source) == *connection => {
                core.message(now_ns, message);
            }
            Event::ReadDone { connection: source, tag, outcome } if Some(source) == *connection => {
                core.read_done(tag, outcome);
            }
            Event::Writable { connection: freed } if Some(freed) == *connection => core.writable(),
            Event::Closed { connection: gone, reason } if Some(gone) == *connection => {
                *connection = None;
                *failed_count += 1;
                core.closed(now_ns, Setback::Closed(reason));
            }
            _ => {}
        })
    }

    fn carry_out(&mut self, now_ns: u64) -> usize {
        let mut count = 0;
        while let Some(command) = self.core.command(now_ns) {
            count += 1;
            match command {
                Command::Connect { attempt } => self.connect(now_ns, attempt),
                Command::Close => {
                    if let Some(connection) = self.connection.take() {
                        self.failed_count += 1;
                        self.endpoint.close(connection);
                    }
                }
                Command::Send(message) => {
                    let Some(connection) = self.connection else { continue };
                    match self.endpoint.send(connection, message) {
                        Ok(()) => {}
                        Err(SendError::Full) => self.core.not_taken(),
                        // The event that says why was or will be reported.
                        Err(SendError::Closed) => break,
                        Err(SendError::TooLong { .. }) => {
                            self.endpoint.close(connection);
                            self.connection = None;
                            self.failed_count += 1;
                            self.core.closed(now_ns, Setback::NotBegun);
                        }
                    }
                }
            }
        }
        count
    }

    fn post_reads(&mut self) -> usize {
        let Some(connection) = self.connection else { return 0 };
        let mut count = 0;
        while let Some((read, tag)) = self.core.next_read() {
            match self.endpoint.post_read(connection, read, tag) {
                Ok(()) => count += 1,
                Err(SendError::Full) => self.core.read_not_taken(read, tag),
                Err(_) => self.core.read_done(tag, Err(ReadFailure::ConnectionClosed)),
            }
        }
        count
    }

    fn map_regions(&mut self) {
        let Driver { endpoint, core, connection, .. } = self;
        if let Some(connection) = connection.filter(|_| core.wants_mapping()) {
            core.map_regions(&mut |key| endpoint.mapped(connection, key));
        }
    }

    fn connect(&mut self, now_ns: u64, attempt: u64) {
        let count = self.addresses.len();
        let turn = usize::try_from(attempt % count as u64).unwrap_or(0);
        self.address = self.addresses[turn];
        match self.endpoint.connect(&self.address) {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => {
                self.failed_count += 1;
                self.fabric_error = Some(error);
                self.core.closed(now_ns, Setback::NotBegun);
            }
        }
    }

    /// Whether the thread may sleep: call it right before.
    pub fn prepare_sleep(&mut self) -> bool {
        self.endpoint.prepare_sleep()
    }
}
