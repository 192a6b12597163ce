//! Carries a core's commands out on an endpoint, and reports to it what happens there. The clock is the
//! caller's; it sleeps between the steps (or, in a simulator, does not).

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use cell_fabric::{Address, ConnectionId, Event, FabricError, Greeting, OneSided, ReadFailure, SendError};
use cell_protocol::Scan;
use cell_resolver::Resolver;
use cell_terms::mutant::{Mutant, planted};

use crate::client_core::{ClientCommand, ClientCore};
use crate::error::AttemptError;
use crate::link_id::LinkId;
use crate::names::is_name;
use crate::operation::WhoSearches;
use crate::transport::{self, Transport};
use crate::{Item, ScanPage};

/// How often the endpoint is given the time: it counts in hundreds of milliseconds.
const TICK_NS: u64 = 10_000_000;

/// For so long answers that were found in place are given without a look at the endpoint, and requests leave.
const VALIDATE_ALONE_NS: u64 = 1_000_000;

/// One of the core's connections.
#[derive(Debug, Default)]
struct LinkState {
    connection: Option<ConnectionId>,
    /// Where it leads or led.
    address: Option<Address>,
    greeting: Greeting,
    /// The present attempt is over shared memory that was met behind this address, and has not come to
    /// anything yet.
    behind: Option<Address>,
    /// The present attempt is to go over TCP, whatever is met there.
    lacks_shared_memory: bool,
}

/// A core and the endpoint that it uses.
#[derive(Debug)]
pub struct Driver<E> {
    endpoint: E,
    core: ClientCore,
    addresses: Vec<Address>,
    /// What those were at first.
    given: Vec<Address>,
    /// The servers that the user gave, if some of them are named; else empty.
    servers: Vec<String>,
    names: Resolver,
    links: Vec<LinkState>,
    transport: Transport,
    fabric_error: Option<FabricError>,
    failed_count: usize,
    ticked_ns: u64,
    now_ns: u64,
    /// When the clock was read last for what was found in place.
    found_ns: u64,
}

impl<E: OneSided> Driver<E> {
    /// A driver of the addresses that the user gave, which are tried in turn; others are learnt.
    ///
    /// # Panics
    /// If there is no address.
    #[must_use]
    pub fn new(endpoint: E, mut core: ClientCore, addresses: Vec<Address>) -> Driver<E> {
        core.set_reads_ordered(endpoint.reads_ordered());
        let bootstrap = LinkState { address: Some(addresses[0]), ..LinkState::default() };
        Driver {
            endpoint,
            core,
            given: addresses.clone(),
            addresses,
            servers: Vec::new(),
            names: Resolver::new(Duration::ZERO),
            links: vec![bootstrap],
            transport: Transport::Tcp,
            fabric_error: None,
            failed_count: 0,
            ticked_ns: 0,
            now_ns: 0,
            found_ns: 0,
        }
    }

    /// Has names among the servers that the user gave looked up anew for each later attempt.
    #[must_use]
    pub fn naming(self, servers: &str) -> Driver<E> {
        let servers: Vec<String> = servers.split(',').map(|server| server.trim().to_owned()).collect();
        let is_any_named = servers.iter().any(|server| is_name(server));
        Driver { servers: if is_any_named { servers } else { Vec::new() }, ..self }
    }

    /// What to talk over. Shared memory is looked for behind each address over TCP.
    #[must_use]
    pub fn over(self, transport: Transport) -> Driver<E> {
        Driver { transport, ..self }
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

    /// The address at the bootstrap link: the one that was tried last, or is connected.
    #[must_use]
    pub fn address(&self) -> Address {
        self.links[0].address.unwrap_or(self.addresses[0])
    }

    /// What the present or last host at the bootstrap link said of itself when it accepted the connection.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.links[0].greeting
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

    /// Why no connection could be started, if that was the last failure.
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
        self.core.note_time(now_ns);
        let completions = self.core.completions();
        let events = self.take_events(now_ns);
        if events > 0 {
            now_ns = clock();
        }
        self.now_ns = now_ns;
        self.core.validate(now_ns);
        self.core.tick(now_ns);
        let commands = self.carry_out(now_ns);
        let reads = self.post_reads();
        self.map_regions();
        self.endpoint.flush();
        // An operation also ends by time alone: its wait for the owner's lease is over, or its deadline came.
        events + commands + reads + self.core.completions().saturating_sub(completions)
    }

    /// Lets leave what was submitted. A step looks first at what has come, which is a call of the kernel, and
    /// nothing has before the question is sent. Nothing leaves here if the endpoint has not been looked at
    /// for a while: a connection that was lost meanwhile is better known before.
    pub fn send_out(&mut self, clock: &mut dyn FnMut() -> u64) {
        let now_ns = clock();
        if now_ns >= self.now_ns.saturating_add(VALIDATE_ALONE_NS) {
            return;
        }
        self.core.note_time(now_ns);
        self.carry_out(now_ns);
        self.post_reads();
        self.endpoint.flush();
    }

    /// Answers what was found in place, which waits for nothing but the time. False if that is nothing, or if
    /// the endpoint has not been looked at for a while: then a whole step is due.
    pub fn validate(&mut self, clock: &mut dyn FnMut() -> u64) -> bool {
        if !self.core.is_validating() {
            return false;
        }
        // What waited is started by the first turn, and answered by a time that is read after it.
        for _ in 0..2 {
            let now_ns = clock();
            if now_ns >= self.now_ns.saturating_add(VALIDATE_ALONE_NS) {
                return false;
            }
            self.core.validate(now_ns);
            if !self.core.is_validating() {
                break;
            }
        }
        true
    }

    /// Answers a get in memory that is mapped, here and now. Else it is to be submitted; a whole step is due,
    /// too, if the endpoint has not been looked at for a while.
    ///
    /// # Errors
    /// Who is to search, as far as that has been decided.
    pub fn get_at_once(
        &mut self,
        clock: &mut dyn FnMut() -> u64,
        key: &[u8],
    ) -> Result<Option<Item>, WhoSearches> {
        self.answer_at_once(clock, |core, started_ns| core.look_for(started_ns, key))
    }

    /// As [`Driver::get_at_once`], of a search.
    ///
    /// # Errors
    /// As for [`Driver::get_at_once`].
    pub fn search_at_once(
        &mut self,
        clock: &mut dyn FnMut() -> u64,
        key: &[u8],
    ) -> Result<bool, WhoSearches> {
        self.answer_at_once(clock, |core, started_ns| core.look_for_existence(started_ns, key))
    }

    /// As [`Driver::get_at_once`], of a page of a range.
    ///
    /// # Errors
    /// As for [`Driver::get_at_once`].
    pub fn scan_at_once(
        &mut self,
        clock: &mut dyn FnMut() -> u64,
        scan: &Scan<'_>,
    ) -> Result<ScanPage, WhoSearches> {
        self.answer_at_once(clock, |core, started_ns| core.look_for_page(started_ns, scan))
    }

    /// As [`Driver::get_at_once`], of many keys; what they found is appended, or nothing.
    ///
    /// # Errors
    /// As for [`Driver::get_at_once`].
    pub fn multi_get_at_once(
        &mut self,
        clock: &mut dyn FnMut() -> u64,
        keys: &[&[u8]],
        items: &mut Vec<Option<Item>>,
    ) -> Result<(), WhoSearches> {
        let before = items.len();
        let answered =
            self.answer_at_once(clock, |core, started_ns| core.look_for_many(started_ns, keys, items));
        if answered.is_err() {
            items.truncate(before);
        }
        answered
    }

    #[inline]
    fn answer_at_once<T>(
        &mut self,
        clock: &mut dyn FnMut() -> u64,
        look: impl FnOnce(&mut ClientCore, u64) -> Result<T, WhoSearches>,
    ) -> Result<T, WhoSearches> {
        if !self.core.can_answer_at_once() {
            return Err(WhoSearches::Undecided);
        }
        // Any time before the first load will do: where none is measured, the last that was read saves one.
        let started_ns = if self.core.chooses() { clock() } else { self.found_ns.max(self.now_ns) };
        if started_ns >= self.now_ns.saturating_add(VALIDATE_ALONE_NS) {
            return Err(WhoSearches::Undecided);
        }
        let found = look(&mut self.core, started_ns)?;
        self.found_ns = if planted(Mutant::ClockNotReadAgain) { started_ns } else { clock() };
        if self.core.is_valid_at(self.found_ns) { Ok(found) } else { Err(WhoSearches::Client) }
    }

    fn take_events(&mut self, now_ns: u64) -> usize {
        let Driver { endpoint, core, links, failed_count, transport, .. } = self;
        let of = |links: &[LinkState], connection: ConnectionId| {
            let at = links.iter().position(|state| state.connection == Some(connection))?;
            Some(LinkId(u16::try_from(at).ok()?))
        };
        let (mut shared_memory_found, mut shared_memory_lost) = (Vec::new(), Vec::new());
        let count = endpoint.poll(&mut |event| match event {
            Event::Connected { connection, greeting: said } => {
                let Some(link) = of(links, connection) else { return };
                let state = &mut links[link.index()];
                state.greeting.clone_from(said);
                state.behind = None;
                let address = state.address.filter(|_| !state.lacks_shared_memory);
                match address.and_then(|address| transport::shared_memory(*transport, said, address)) {
                    Some(shared) => shared_memory_found.push((link, shared)),
                    None => core.connected(link),
                }
            }
            Event::Message { connection, message } => {
                if let Some(link) = of(links, connection) {
                    core.message(link, now_ns, message);
                }
            }
            Event::ReadDone { connection, tag, outcome } => {
                if let Some(link) = of(links, connection) {
                    core.read_done(link, tag, outcome);
                }
            }
            Event::Writable { connection } => {
                if let Some(link) = of(links, connection) {
                    core.writable(link);
                }
            }
            Event::Closed { connection, reason } => {
                if let Some(link) = of(links, connection) {
                    let state = &mut links[link.index()];
                    state.connection = None;
                    if let Some(address) = state.behind.take() {
                        return shared_memory_lost.push((link, address));
                    }
                    *failed_count += 1;
                    core.closed(link, now_ns, AttemptError::Closed(reason));
                }
            }
            _ => {}
        });
        for (link, shared) in shared_memory_found {
            self.begin_over_shared_memory(now_ns, link, shared);
        }
        for (link, address) in shared_memory_lost {
            self.begin_without_shared_memory(now_ns, link, address);
        }
        count
    }

    fn carry_out(&mut self, now_ns: u64) -> usize {
        let mut count = 0;
        while let Some(command) = self.core.command(now_ns) {
            count += 1;
            match command {
                ClientCommand::Connect { link, address: None, attempt } => {
                    self.look_up_servers();
                    let count = self.addresses.len();
                    let turn = usize::try_from(attempt % count as u64).unwrap_or(0);
                    let address = self.addresses[turn];
                    if self.servers.is_empty() {
                        self.name_by_itself(address); // no server was given by a name
                    }
                    // Who was turned away over shared memory is taken over TCP, if there is room.
                    let was_turned_away = self.core.was_turned_away(link);
                    let state = self.link_state(link);
                    let was_shared = matches!(state.address, Some(Address::Shm(_)));
                    (state.behind, state.lacks_shared_memory) = (None, was_shared && was_turned_away);
                    self.begin(now_ns, link, address);
                }
                ClientCommand::Connect { link, address: Some(text), attempt } => {
                    let address = look_up(&self.names, text, attempt);
                    // Also of an address: it may have been another host's, by a name that has moved on.
                    if let Ok(Address::Tcp(found)) = &address {
                        name_addresses(&mut self.endpoint, text, &[*found]);
                    }
                    let address = address.map(|address| self.transport.to_reach(address));
                    let state = self.link_state(link);
                    (state.behind, state.lacks_shared_memory) = (None, false);
                    match address {
                        Ok(address) => self.begin(now_ns, link, address),
                        Err(error) => self.not_started(now_ns, link, error),
                    }
                }
                ClientCommand::Close { link } => {
                    if let Some(connection) = self.links[link.index()].connection.take() {
                        self.failed_count += 1;
                        self.endpoint.close(connection);
                    }
                }
                ClientCommand::Send { link, message } => {
                    let state = &mut self.links[link.index()];
                    let Some(connection) = state.connection else { continue };
                    match self.endpoint.send(connection, message) {
                        // Of a closed one the event says why; other links go on.
                        Ok(()) | Err(SendError::Closed) => {}
                        Err(SendError::Full) => self.core.not_taken(link),
                        Err(SendError::TooLong { .. }) => {
                            self.endpoint.close(connection);
                            state.connection = None;
                            self.failed_count += 1;
                            self.core.closed(link, now_ns, AttemptError::NotStarted);
                        }
                    }
                }
            }
        }
        count
    }

    fn post_reads(&mut self) -> usize {
        let mut count = 0;
        while let Some((link, read, tag)) = self.core.next_read() {
            let connection = self.links[link.index()].connection;
            match connection.map(|connection| self.endpoint.post_read(connection, read, tag)) {
                Some(Ok(())) => count += 1,
                Some(Err(SendError::Full)) => self.core.read_not_taken(link, read, tag),
                _ => self.core.read_done(link, tag, Err(ReadFailure::ConnectionClosed)),
            }
        }
        count
    }

    fn map_regions(&mut self) {
        let Driver { endpoint, core, links, .. } = self;
        if core.wants_mapping() {
            core.map_regions(&mut |link, key| {
                let connection = links.get(link.index())?.connection?;
                endpoint.mapped(connection, key)
            });
        }
    }

    /// Takes over where the servers that the user named are by now, as far as that is known.
    fn look_up_servers(&mut self) {
        let mut found: Vec<Address> = Vec::new();
        let mut all_known = true;
        for server in &self.servers {
            match server.parse::<Address>() {
                Ok(address) => {
                    if let Address::Tcp(socket) = address {
                        name_addresses(&mut self.endpoint, server, &[socket]);
                    }
                    found.push(address);
                }
                Err(_) => {
                    let named = self.names.find_now(server).unwrap_or_default();
                    all_known &= !named.is_empty();
                    name_addresses(&mut self.endpoint, server, &named);
                    found.extend(named.into_iter().map(Address::Tcp));
                }
            }
        }
        // Shared memory that was met behind one of them is tried as before, and so is all that was known at
        // first while one of the names leads nowhere: the others are followed.
        let kept = self.given.iter().filter(|address| !all_known || matches!(address, Address::Shm(_)));
        let mut addresses: Vec<Address> = kept.copied().collect();
        let found: Vec<Address> = found.into_iter().map(|address| self.transport.to_reach(address)).collect();
        // Who answered first comes first in what was given, and stays there.
        let known = self.given.iter().filter(|address| found.contains(address)).copied();
        for address in known.chain(found.iter().copied()) {
            if !matches!(address, Address::Shm(_)) && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if self.transport != Transport::Shm && addresses.iter().any(|to| !matches!(to, Address::Shm(_))) {
            self.addresses = addresses;
        }
    }

    /// The region table may have named an address that the user gave.
    fn name_by_itself(&mut self, address: Address) {
        if let Address::Tcp(socket) | Address::Verbs(socket) = address {
            name_addresses(&mut self.endpoint, &socket.to_string(), &[socket]);
        }
    }

    fn link_state(&mut self, link: LinkId) -> &mut LinkState {
        while self.links.len() <= link.index() {
            self.links.push(LinkState::default());
        }
        &mut self.links[link.index()]
    }

    fn begin(&mut self, now_ns: u64, link: LinkId, address: Address) {
        self.link_state(link).address = Some(address);
        self.core.set_transport(link, transport::for_report(&address));
        match self.endpoint.connect(&address) {
            Ok(connection) => self.link_state(link).connection = Some(connection),
            Err(error) => self.not_started(now_ns, link, error),
        }
    }

    /// Shared memory was met behind the address that a connection leads to, unless that has been lost since.
    fn begin_over_shared_memory(&mut self, now_ns: u64, link: LinkId, shared: Address) {
        let state = self.link_state(link);
        if let Some(connection) = state.connection.take() {
            state.behind = state.address;
            self.endpoint.close(connection);
            self.begin(now_ns, link, shared);
        }
    }

    /// Shared memory that was met behind an address cannot be had: the attempt goes on over TCP. The next one
    /// looks for it again, for the node may be another one by then.
    fn begin_without_shared_memory(&mut self, now_ns: u64, link: LinkId, address: Address) {
        tracing::debug!(link = link.0, %address, "no shared memory");
        self.link_state(link).lacks_shared_memory = true;
        self.begin(now_ns, link, address);
    }

    fn not_started(&mut self, now_ns: u64, link: LinkId, error: FabricError) {
        if let Some(address) = self.link_state(link).behind.take() {
            return self.begin_without_shared_memory(now_ns, link, address);
        }
        self.failed_count += 1;
        self.fabric_error = Some(error);
        self.core.closed(link, now_ns, AttemptError::NotStarted);
    }

    /// Readable when a step has something to do; none if the endpoint has none.
    #[must_use]
    pub fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.wake_descriptor()
    }

    /// Whether the thread may sleep: call it right before.
    pub fn prepare_sleep(&mut self) -> bool {
        self.endpoint.prepare_sleep()
    }
}

/// Has these addresses, which were found by the name of a server, known by that name under TLS; one that the
/// server is given by, by itself.
fn name_addresses<E: OneSided>(endpoint: &mut E, server: &str, found: &[SocketAddr]) {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    found.iter().for_each(|address| endpoint.name_address(*address, host));
}

/// The address of a text of the region table. Of a name's addresses the next one at each attempt.
fn look_up(names: &Resolver, text: &str, attempt: u64) -> Result<Address, FabricError> {
    if !is_name(text) {
        return text.parse();
    }
    let found = names.find_now(text).unwrap_or_default();
    let turn = usize::try_from(attempt % found.len().max(1) as u64).unwrap_or(0);
    found.get(turn).map(|address| Address::Tcp(*address)).ok_or(FabricError::NameUnknown)
}
