//! The client for one thread: blocking calls, and a pipelined interface beside them. It has no thread of its
//! own: operations move on only inside its calls. A program with many threads makes one client for each.

use std::time::Duration;

use cell_fabric::{Address, CloseReason, Endpoint, HostEndpoint, LookPause, Poller, Spin};
use cell_protocol::Scan;
use cell_terms::Version;

use crate::client_core::ClientCore;
use crate::connection::ServerInfo;
use crate::driver::Driver;
use crate::error::{AttemptError, ClientError};
use crate::operation::WhoSearches;
use crate::output::{CheckResult, Completion, Item, NodeStatus, Output, RegionTable, ScanPage, TreeShape};
use crate::resolve::{Resolved, resolve_all};
use crate::transport::{self, Transport};
use crate::{ClientOptions, Condition, Operation, Search, Ticket};

/// The fabric's time-outs are judged at least this often.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(100);

/// How long [`Client::close`] waits for the server to note the session's end.
const CLOSE_WAIT: Duration = Duration::from_millis(500);

/// Time since the client's start, suspension included: what a lease or a grace period is measured by must not
/// stand still while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_ns: u64,
}

impl Clock {
    fn start() -> Clock {
        Clock { start_ns: Clock { start_ns: 0 }.now_ns() }
    }

    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
        (seconds * 1_000_000_000 + nanoseconds).saturating_sub(self.start_ns)
    }

    /// How long a step of a connect may take that began with this clock.
    fn patience(self, within: Option<Duration>, options: &ClientOptions) -> Duration {
        let left = within.map(|within| within.saturating_sub(Duration::from_nanos(self.now_ns())));
        left.unwrap_or(Duration::MAX).min(Duration::from_millis(options.connect_timeout_ms))
    }
}

/// A connection to one worker of a Cell server.
#[derive(Debug)]
pub struct Client {
    pub(crate) driver: Driver<HostEndpoint>,
    pub(crate) poller: Poller,
    pub(crate) clock: Clock,
    pub(crate) spin: Spin,
    pause: LookPause,
}

impl Client {
    /// Connects, and returns when a server has welcomed the client. `server` is `host:port`, the port being
    /// the fabric's, or `shm:/path` or `shm:@name`. Each address of the host is tried once; several servers
    /// of one cluster are separated by commas, and one is enough: the others are learnt from it. Shared
    /// memory is tried first where [`ClientOptions::transport`] permits it and the server is on this host;
    /// later, lost connections are opened anew for as long as operations have time. A server that has as many
    /// connections as it takes is tried again for as long as an operation has.
    ///
    /// # Errors
    /// Nobody answers, something else serves there, the server does not want this client, or the options
    /// cannot be met.
    pub fn connect(server: &str, options: ClientOptions) -> Result<Client, ClientError> {
        Client::connect_until(server, options, None)
    }

    /// Connects as [`Client::connect`], and takes no longer than this over it, however many addresses there
    /// are and whatever they do.
    ///
    /// # Errors
    /// As those of [`Client::connect`].
    pub fn connect_within(
        server: &str,
        options: ClientOptions,
        within: Duration,
    ) -> Result<Client, ClientError> {
        Client::connect_until(server, options, Some(within))
    }

    fn connect_until(
        server: &str,
        mut options: ClientOptions,
        within: Option<Duration>,
    ) -> Result<Client, ClientError> {
        if options.name.is_empty() {
            options.name = process_and_host();
        }
        options.selector.check()?;
        let memory_bytes = cell_memory::total_bytes();
        check_cache(&options, memory_bytes)?;
        let clock = Clock::start();
        let until_ns = within.map_or(u64::MAX, nanoseconds);
        let Resolved { addresses, names } = resolve_all(server, clock.patience(within, &options))?;
        let mut endpoint = options.transport.endpoint(&options.shm_users, &options.verbs)?;
        endpoint.set_token(&options.token);
        if let Some(trust) = &options.trust {
            endpoint.trust(trust);
            names.iter().for_each(|(address, host)| endpoint.name_address(*address, host));
        }
        let mut poller = Poller::new()?;
        poller.add_endpoint(&endpoint)?;
        let room_until_ns = until_ns.min(nanoseconds(Duration::from_millis(options.deadline_ms)));
        let transport = options.transport;
        let patience = clock.patience(within, &options);
        let addresses = transport::choose(&mut endpoint, &mut poller, addresses, transport, patience)?;
        let mut core = ClientCore::new(options, seed());
        core.bound_cache(memory_bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or(usize::MAX));
        let driver = Driver::new(endpoint, core, addresses.clone());
        let driver = driver.over(transport).naming(server);
        let (spin, pause) = (Spin::on_own_cores(), LookPause::default());
        let mut client = Client { driver, poller, clock, spin, pause };
        let mut lacks_room = false;
        while !client.driver.core().is_up() {
            if let Some(error) = client.driver.core().dismissed() {
                return Err(error);
            }
            let now_ns = client.advance(until_ns);
            lacks_room |= client.was_turned_away();
            if client.driver.core().dismissed().is_some() || client.driver.core().is_up() {
                continue;
            }
            let is_over = now_ns >= until_ns;
            // Behind an address without room no shared memory was found, which may be all that is wanted.
            let waits_for_room = lacks_room && transport != Transport::Shm && now_ns < room_until_ns;
            let has_failed = client.driver.failed_count() >= addresses.len() && !waits_for_room;
            if lacks_room && (has_failed || is_over) {
                return Err(client.no_room(now_ns));
            }
            if has_failed {
                return Err(client.not_connected(AttemptError::NotStarted, now_ns));
            }
            if is_over {
                return Err(client.not_connected(AttemptError::NoHello { timeout_ms: 0 }, now_ns));
            }
        }
        Ok(client)
    }

    /// Whether the last attempt ended because the server has as many connections as it takes.
    fn was_turned_away(&self) -> bool {
        self.driver.core_ref().last_attempt_error().is_some_and(|error| error.is_for_lack_of_room())
    }

    fn no_room(&self, now_ns: u64) -> ClientError {
        let server = Box::new(self.driver.address());
        ClientError::TooManyConnections { server, waited_ms: now_ns / 1_000_000 }
    }

    /// Why there is no connection; `otherwise`, if no attempt has ended.
    fn not_connected(&mut self, otherwise: AttemptError, now_ns: u64) -> ClientError {
        if let Some(error) = self.driver.take_fabric_error() {
            return error.into();
        }
        let server = Box::new(self.driver.address());
        let mut reason = self.driver.core().last_attempt_error().unwrap_or(otherwise);
        if let AttemptError::NoHello { timeout_ms } = &mut reason {
            *timeout_ms = now_ns / 1_000_000; // also that in which the servers were asked who is there
        }
        if reason.is_about_tls() {
            return ClientError::NoTls { server, reason };
        }
        let stranger = matches!(
            reason,
            AttemptError::Undecodable(_)
                | AttemptError::Unfitting
                | AttemptError::Closed(
                    CloseReason::Stranger(_) | CloseReason::HelloInvalid | CloseReason::TooLong { .. }
                )
        );
        if stranger {
            ClientError::WrongService { server, reason }
        } else {
            ClientError::Unreachable { server, reason }
        }
    }

    /// What the server said of itself.
    #[must_use]
    pub fn server(&self) -> Option<&ServerInfo> {
        self.driver.core_ref().server()
    }

    /// The address that is connected, or was last.
    #[must_use]
    pub fn address(&self) -> Address {
        self.driver.address()
    }

    /// What the host said of itself when it accepted the connection: its HTTP address, its shared-memory
    /// socket.
    #[must_use]
    pub fn greeting(&self) -> &cell_fabric::Greeting {
        self.driver.greeting()
    }

    /// Whether there is an entry.
    ///
    /// # Errors
    /// See [`ClientError`]; so for all operations.
    pub fn search(&mut self, key: &[u8]) -> Result<bool, ClientError> {
        let clock = self.clock;
        let exists = self.driver.search_at_once(&mut || clock.now_ns(), key);
        exists.or_else(|who| self.call_to(who, &Operation::Search { key }).map(Output::into_exists))
    }

    /// The entry, if there is one; values of any length.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Item>, ClientError> {
        let clock = self.clock;
        let item = self.driver.get_at_once(&mut || clock.now_ns(), key);
        item.or_else(|who| self.call_to(who, &Operation::Get { key }).map(Output::into_item))
    }

    /// See [`Driver::multi_get_at_once`].
    pub(crate) fn multi_get_at_once(
        &mut self,
        keys: &[&[u8]],
        items: &mut Vec<Option<Item>>,
    ) -> Result<(), WhoSearches> {
        let clock = self.clock;
        self.driver.multi_get_at_once(&mut || clock.now_ns(), keys, items)
    }

    /// [`Client::submit`] of a read of which is known who is to do it.
    pub(crate) fn submit_to(
        &mut self,
        who: WhoSearches,
        operation: &Operation<'_>,
    ) -> Result<Ticket, ClientError> {
        let now_ns = self.now_ns();
        let core = self.driver.core();
        let deadline_ns = now_ns.saturating_add(core.deadline_default_ns());
        core.submit_to(who, now_ns, operation, deadline_ns)
    }

    /// Writes an entry, whatever is there. It is durable when this returns.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Version, ClientError> {
        self.put_if(key, value, Condition::Always)
    }

    /// Writes an entry if the condition holds.
    ///
    /// # Errors
    /// [`ClientError::ConditionFailed`] with the present version, or another [`ClientError`].
    pub fn put_if(&mut self, key: &[u8], value: &[u8], condition: Condition) -> Result<Version, ClientError> {
        self.call(&Operation::Put { key, value, condition }).map(Output::into_version)
    }

    /// Writes an entry if it still has this version (compare and swap).
    ///
    /// # Errors
    /// [`ClientError::ConditionFailed`] with the present version, or another [`ClientError`].
    pub fn cas(&mut self, key: &[u8], expected: Version, value: &[u8]) -> Result<Version, ClientError> {
        self.put_if(key, value, Condition::IfVersion(expected))
    }

    /// Removes an entry; returns whether there was one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, ClientError> {
        self.delete_if(key, Condition::Always)
    }

    /// Removes an entry if the condition holds: always or if-version.
    ///
    /// # Errors
    /// [`ClientError::ConditionFailed`] with the present version, or another [`ClientError`].
    pub fn delete_if(&mut self, key: &[u8], condition: Condition) -> Result<bool, ClientError> {
        self.call(&Operation::Delete { key, condition }).map(Output::into_existed)
    }

    /// The node's status.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&mut self) -> Result<NodeStatus, ClientError> {
        self.call(&Operation::Status).map(Output::into_status)
    }

    /// The shape of the tree, from so many meganodes on.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn tree(&mut self, from: u32) -> Result<TreeShape, ClientError> {
        self.call(&Operation::Tree { from }).map(Output::into_tree)
    }

    /// The region table as the node at the bootstrap link knows it, from so many rows on.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn table(&mut self, from: u32) -> Result<RegionTable, ClientError> {
        self.call(&Operation::Table { from }).map(Output::into_table)
    }

    /// Has the server check every invariant of its tree and every extent; it takes its time, so it has its
    /// own.
    ///
    /// # Errors
    /// See [`ClientError`]. Violations are no error: they stand in the result.
    pub fn check(&mut self, deadline: Duration) -> Result<CheckResult, ClientError> {
        let ticket = self.submit_within(&Operation::Check, deadline)?;
        self.finish(ticket).map(Output::into_check)
    }

    /// Takes an operation in and returns at once. Its completion comes from [`Client::poll`].
    ///
    /// # Errors
    /// [`ClientError::QueueFull`]: poll first. Nothing was submitted then.
    pub fn submit(&mut self, operation: &Operation<'_>) -> Result<Ticket, ClientError> {
        let now_ns = self.now_ns();
        self.driver.core().submit(now_ns, operation)
    }

    /// [`Client::submit`] with a time of its own.
    ///
    /// # Errors
    /// As for [`Client::submit`].
    pub fn submit_within(
        &mut self,
        operation: &Operation<'_>,
        deadline: Duration,
    ) -> Result<Ticket, ClientError> {
        let now_ns = self.now_ns();
        self.driver.core().submit_until(now_ns, operation, now_ns.saturating_add(nanoseconds(deadline)))
    }

    /// The next completion of a submitted operation; waits for one at most so long. Call it until it gives
    /// none.
    pub fn poll(&mut self, timeout: Duration) -> Option<Completion> {
        // The common case asks no clock.
        if let Some(completion) = self.driver.core().completion() {
            return Some(completion);
        }
        let clock = self.clock;
        let now_ns = clock.now_ns();
        let until_ns = now_ns.saturating_add(nanoseconds(timeout));
        self.driver.validate(&mut || clock.now_ns());
        self.driver.send_out(&mut || clock.now_ns());
        self.spin.wait_begins(now_ns, self.driver.core_ref().spin_ns());
        loop {
            if let Some(completion) = self.driver.core().completion() {
                return Some(completion);
            }
            if self.driver.core().outstanding() == 0 {
                self.step();
                return None;
            }
            let now_ns = self.advance(until_ns);
            if now_ns >= until_ns {
                self.spin.ends();
                return self.driver.core().completion();
            }
        }
    }

    /// What the one-sided path has counted, if this client searches itself.
    #[must_use]
    pub fn one_sided_counters(&self) -> Option<&crate::OneSidedCounters> {
        self.driver.core_ref().one_sided_counters()
    }

    /// What was decided on who searches, and what that rests on; none if the client has no choice.
    #[must_use]
    pub fn selector_report(&self) -> Option<crate::SelectorReport> {
        self.driver.core_ref().selector_report()
    }

    /// Submitted operations without a completion yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.driver.core_ref().outstanding()
    }

    /// Ends the session on the server, so that it need not keep this client's results, and disconnects. What
    /// is outstanding is given up. Dropping a client does the same without waiting for the server.
    pub fn close(mut self) {
        self.end_session();
    }

    /// Ends the session on the server, and waits for that a little. No write may follow; what of them is
    /// outstanding is given up.
    pub fn end_session(&mut self) {
        self.driver.core().close_session();
        let until_ns = self.now_ns().saturating_add(nanoseconds(CLOSE_WAIT));
        while self.driver.core().session_is_open() && self.driver.core().is_up() {
            if self.advance(until_ns) >= until_ns {
                break;
            }
        }
    }

    /// One page of a range. See [`Client::scan`] for all of them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn scan_page(&mut self, scan: Scan<'_>) -> Result<ScanPage, ClientError> {
        let clock = self.clock;
        let page = self.driver.scan_at_once(&mut || clock.now_ns(), &scan);
        page.or_else(|who| self.call_to(who, &Operation::Scan(scan)).map(Output::into_page))
    }

    /// Asks for a page ahead of its use: [`Client::finish`] waits for it, or [`Client::give_up`] ends it.
    /// None: there is no room for it now.
    pub(crate) fn ask_page_ahead(&mut self, scan: Scan<'_>) -> Option<Ticket> {
        let ticket = self.submit(&Operation::Scan(scan)).ok()?;
        // Nothing leaves but by a step.
        self.step();
        Some(ticket)
    }

    /// See [`ClientCore::give_up`].
    pub(crate) fn give_up(&mut self, ticket: Ticket) {
        let now_ns = self.now_ns();
        self.driver.core().give_up(now_ns, ticket);
    }

    fn call(&mut self, operation: &Operation<'_>) -> Result<Output, ClientError> {
        let ticket = self.submit(operation)?;
        self.finish(ticket)
    }

    /// [`Client::call`] of a read of which is known who is to do it.
    fn call_to(&mut self, who: WhoSearches, operation: &Operation<'_>) -> Result<Output, ClientError> {
        let ticket = self.submit_to(who, operation)?;
        self.finish(ticket)
    }

    /// Waits for one operation; its own deadline bounds the wait.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> Result<Output, ClientError> {
        let clock = self.clock;
        if !self.driver.validate(&mut || clock.now_ns()) {
            self.driver.send_out(&mut || clock.now_ns());
            self.spin.wait_begins(self.now_ns(), self.driver.core_ref().spin_ns());
        }
        loop {
            if let Some(completion) = self.driver.core().completion_of(ticket) {
                return completion.outcome;
            }
            self.advance(u64::MAX);
        }
    }

    /// One step, and a sleep if nothing happened, at most until a time. Returns the time.
    fn advance(&mut self, until_ns: u64) -> u64 {
        let happened = self.step();
        let now_ns = self.driver.now_ns();
        if happened > 0 {
            self.spin.happened(now_ns);
            return now_ns;
        }
        if now_ns >= until_ns {
            return now_ns;
        }
        if self.spin.looks_on(now_ns) {
            self.pause.pause();
            return now_ns;
        }
        if !self.driver.prepare_sleep() {
            return now_ns;
        }
        let due_ns = self.driver.core().due_ns().unwrap_or(u64::MAX).min(until_ns);
        let wait = Duration::from_nanos(due_ns.saturating_sub(now_ns)).min(SLEEP_MAX);
        self.spin.sleeps();
        let wait = self.poller.wait(Some(wait));
        self.driver.endpoint().woken(wait.parts);
        self.now_ns()
    }

    /// From the client's start, on a clock that never goes back.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// See [`Driver::step`].
    pub(crate) fn step(&mut self) -> usize {
        let clock = self.clock;
        self.driver.step(&mut || clock.now_ns())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.driver.core().session_is_open() {
            self.driver.core().close_session();
            self.step();
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a client is called that has no name of its own.
fn process_and_host() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let host = host.split('.').next().unwrap_or_default();
    format!("{}@{host}", std::process::id())
}

/// Whether the machine, or this process's control group, has the memory that the cache may take.
fn check_cache(options: &ClientOptions, memory_bytes: Option<u64>) -> Result<(), ClientError> {
    let is_used = options.search != Search::Server && options.cache_inner;
    let cache_bytes = options.cache_bytes as u64;
    match memory_bytes {
        Some(memory_bytes) if is_used && cache_bytes > memory_bytes => {
            Err(ClientError::CacheTooLarge { cache_bytes, memory_bytes })
        }
        _ => Ok(()),
    }
}

/// Jitter differs between clients; nothing else depends on it.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_nobody_there_says_where() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = Client::connect(&address.to_string(), ClientOptions::default()).unwrap_err();
        assert!(
            matches!(&error, ClientError::Unreachable { server, .. } if **server == address.into()),
            "{error}"
        );
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    /// Servers that take connections and say nothing, however long a connection may take.
    #[test]
    fn connect_within_a_time_ends_with_it() {
        let silent = [(); 3].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let servers = silent.each_ref().map(|listener| listener.local_addr().unwrap().to_string()).join(",");
        for transport in [crate::Transport::Auto, crate::Transport::Tcp] {
            let options =
                ClientOptions { connect_timeout_ms: 600_000, transport, ..ClientOptions::default() };
            let error = Client::connect_within(&servers, options, Duration::from_millis(300)).unwrap_err();
            assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        }
    }

    #[test]
    fn connect_to_a_port_that_is_silent_says_how_long_that_took() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = silent.local_addr().unwrap().to_string();
        for (transport, least_ms) in [(crate::Transport::Tcp, 150), (crate::Transport::Auto, 300)] {
            let options = ClientOptions { connect_timeout_ms: 150, transport, ..ClientOptions::default() };
            let clock = Clock::start();
            let error = Client::connect(&server, options).unwrap_err();
            let ClientError::Unreachable { reason: AttemptError::NoHello { timeout_ms }, .. } = error else {
                panic!("{error}")
            };
            let took_ms = clock.now_ns() / 1_000_000;
            assert!((least_ms..=took_ms).contains(&timeout_ms), "{timeout_ms} of {took_ms} ms");
        }
    }

    #[test]
    fn connect_cache_larger_than_memory_is_refused_by_the_settings_name() {
        let options = ClientOptions { cache_bytes: usize::MAX, ..ClientOptions::default() };
        let error = Client::connect("127.0.0.1:1", options).unwrap_err();
        let ClientError::CacheTooLarge { cache_bytes, memory_bytes } = error else { panic!("{error}") };
        assert_eq!((cache_bytes, Some(memory_bytes)), (u64::MAX, cell_memory::total_bytes()));
        let words = error.to_string();
        for word in ["client_cache_bytes", &u64::MAX.to_string(), &memory_bytes.to_string()] {
            assert!(words.contains(word), "{words}");
        }
    }

    #[test]
    fn check_cache_that_fits_or_is_not_used_passes() {
        let options = ClientOptions { cache_bytes: 100, ..ClientOptions::default() };
        assert!(check_cache(&options, Some(100)).is_ok() && check_cache(&options, None).is_ok());
        assert!(check_cache(&options, Some(99)).is_err());
        let by_server = ClientOptions { search: Search::Server, ..options.clone() };
        let uncached = ClientOptions { cache_inner: false, ..options };
        assert!(check_cache(&by_server, Some(99)).is_ok() && check_cache(&uncached, Some(99)).is_ok());
    }
}
