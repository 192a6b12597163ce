//! The client as commands use it: one operation at a time, or many in flight; errors with exit codes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use cell_client::{
    AttemptError, CheckResult, Client, ClientError, ClientOptions, Completion, Item, NodeStatus,
    OneSidedCounters, Operation, Scan, ScanEntry, ScanPage, ScanRange, SelectorReport, Ticket, TreeShape,
};
use cell_fabric::{Address, CloseReason, HelloRefusal, TlsError, TlsFailure, TlsTrust};
use cell_protocol::{Condition, ReadOnlyReason, Refusal, TableRow};
use cell_terms::setting::Source;
use cell_terms::text::with_causes;
use cell_terms::{NodeId, PairId, Version};

use crate::args::ServerArgs;
use crate::exit::{Exit, Failure};
use crate::hint::Reached;
use crate::load::loader::Limits;
use crate::output::message;
use crate::unserved_pairs::TablePair;
use crate::{environment, probe, settings};

/// How long a call waits before it looks again, for completions or whether it is to stop.
const TICK: Duration = Duration::from_millis(100);
/// What an operation of a command has if neither its user nor a setting says: as long as one of the client's.
/// A host that is lost takes less.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may take to say where its HTTP is.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// What to do at another service's port.
const WRONG_PORT: &str = "another service has that port; the fabric's is 7000 by default, that of HTTP 7080";
/// What to do where a server is there, and is not reached over RDMA.
const NO_RDMA: &str =
    "--transport tcp needs no RDMA; docs/HOSTS.md says by which addresses and devices it goes";
/// Between two attempts to connect to servers that are not there.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A server, connected.
pub(crate) struct Store {
    client: Client,
    server: String,
}

/// Done, or not because of the version that is there.
pub(crate) type Conditional<T> = Result<T, Option<Version>>;

impl Store {
    /// Connects. `timeout` is what an operation has if the user did not say; what the user said is for
    /// connecting, too.
    pub(crate) fn connect(arguments: &ServerArgs, timeout: Duration) -> anyhow::Result<Store> {
        Store::connect_with(arguments, timeout, 1024)
    }

    /// Connects, with a number of operations in flight.
    pub(crate) fn connect_with(
        arguments: &ServerArgs,
        timeout: Duration,
        in_flight_max: usize,
    ) -> anyhow::Result<Store> {
        Store::connect_by(arguments, timeout, in_flight_max, connect_patiently)
    }

    /// As [`Store::connect_with`], unless a stop is asked for. It connects on a thread of its own, which a
    /// stop leaves behind: the process ends.
    pub(crate) fn connect_unless(
        stop: &AtomicBool,
        arguments: &ServerArgs,
        timeout: Duration,
        in_flight_max: usize,
    ) -> anyhow::Result<Store> {
        let (sender, connected) = channel();
        let arguments = arguments.clone();
        // Who does not wait for it any more does not want it.
        let connect = move || drop(sender.send(Store::connect_with(&arguments, timeout, in_flight_max)));
        std::thread::Builder::new().name("connect".into()).spawn(connect).context("cannot start a thread")?;
        loop {
            let outcome = connected.recv_timeout(TICK);
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::new(Exit::Interrupted, "interrupted").into());
            }
            match outcome {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the thread that connects has ended"),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Connects, and waits for nobody: for what shows who is there.
    pub(crate) fn connect_at_once(arguments: &ServerArgs, timeout: Duration) -> anyhow::Result<Store> {
        Store::connect_by(arguments, timeout, 1024, Client::connect_within)
    }

    fn connect_by(
        arguments: &ServerArgs,
        timeout: Duration,
        in_flight_max: usize,
        within: impl FnOnce(&str, ClientOptions, Duration) -> Result<Client, ClientError>,
    ) -> anyhow::Result<Store> {
        let mut options = options(arguments.timeout, timeout, in_flight_max, &arguments.set)?;
        if let Some(transport) = arguments.transport {
            options.transport = transport;
        }
        if let Some(token) = &arguments.token {
            options.token = token.clone().into_bytes();
        }
        options.trust = trust(arguments.ca.as_deref())?;
        if let Some(search) = arguments.search {
            options.search = search.into();
            options.own.push("client_search");
        }
        let server = arguments.server.clone();
        let connected = match arguments.timeout {
            Some(asked) => within(&server, options, asked),
            None => Client::connect(&server, options),
        };
        let client = connected.map_err(|error| failure(&error, Some(&server)))?;
        Ok(Store { client, server })
    }

    /// What fits the store.
    pub(crate) fn limits(&self) -> Limits {
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = self.client.server().map(|server| server.limits);
        let limits = limits.expect("the server was met: the store is connected");
        Limits { key_bytes_max: size(limits.key_bytes_max), value_bytes_max: size(limits.value_bytes_max) }
    }

    /// Starts an operation.
    pub(crate) fn submit(&mut self, operation: &Operation<'_>) -> anyhow::Result<Ticket> {
        self.client.submit(operation).map_err(|error| self.failure(&error))
    }

    /// An operation that ended, if there is one; with `wait` it is waited for, as long as any is in flight.
    pub(crate) fn poll(&mut self, wait: bool) -> Option<Completion> {
        loop {
            let completion = self.client.poll(if wait { TICK } else { Duration::ZERO });
            if completion.is_some() || !wait || self.client.outstanding() == 0 {
                return completion;
            }
        }
    }

    /// What the one-sided path has counted, if this client searches itself.
    pub(crate) fn one_sided_counters(&self) -> Option<OneSidedCounters> {
        self.client.one_sided_counters().copied()
    }

    /// What was decided on who searches, where that is decided for each read.
    pub(crate) fn selector_report(&self) -> Option<SelectorReport> {
        self.client.selector_report()
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> anyhow::Result<Option<Item>> {
        self.client.get(key).map_err(|error| self.failure(&error))
    }

    /// Many entries, in the order of the keys.
    pub(crate) fn multi_get(&mut self, keys: &[&[u8]]) -> anyhow::Result<Vec<Option<Item>>> {
        self.client.multi_get(keys).map_err(|error| self.failure(&error))
    }

    /// Whether there is an entry.
    pub(crate) fn exists(&mut self, key: &[u8]) -> anyhow::Result<bool> {
        self.client.search(key).map_err(|error| self.failure(&error))
    }

    /// Writes an entry; a failed condition is an answer.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> anyhow::Result<Conditional<Version>> {
        let outcome = self.client.put_if(key, value, condition);
        self.conditional(outcome)
    }

    /// Removes an entry; returns whether there was one. A failed condition is an answer.
    pub(crate) fn delete(&mut self, key: &[u8], condition: Condition) -> anyhow::Result<Conditional<bool>> {
        let outcome = self.client.delete_if(key, condition);
        self.conditional(outcome)
    }

    /// Calls `each` for every entry of a range, in order; returns how many there were.
    pub(crate) fn scan(
        &mut self,
        range: ScanRange,
        each: &mut dyn FnMut(&ScanEntry) -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        let mut count = 0;
        for entry in self.client.scan(range) {
            each(&entry.map_err(|error| failure(&error, Some(&self.server)))?)?;
            count += 1;
        }
        Ok(count)
    }

    /// One page of a range.
    pub(crate) fn scan_page(&mut self, scan: Scan<'_>) -> anyhow::Result<ScanPage> {
        self.client.scan_page(scan).map_err(|error| self.failure(&error))
    }

    /// Where nodes are, as the region table says: once for each pair, or once without one.
    pub(crate) fn places(&mut self) -> anyhow::Result<Vec<(NodeId, String, Option<PairId>)>> {
        let mut places = Vec::new();
        self.each_row(|row| {
            if !row.address.is_empty() {
                let pair = (row.pair != PairId(0)).then_some(row.pair);
                places.push((row.node, row.address.to_owned(), pair));
            }
        })?;
        Ok(places)
    }

    /// The pairs of the region table.
    pub(crate) fn pairs(&mut self) -> anyhow::Result<Vec<TablePair>> {
        let mut pairs = Vec::new();
        self.each_row(|row| {
            let &TableRow { pair, node, epoch, state, .. } = row;
            pairs.extend((pair != PairId(0)).then_some(TablePair { pair, node, epoch, state }));
        })?;
        Ok(pairs)
    }

    fn each_row(&mut self, mut take: impl FnMut(&TableRow<'_>)) -> anyhow::Result<()> {
        let mut rows = 0;
        loop {
            let kept = self.client.table(rows).map_err(|error| self.failure(&error))?;
            let report = kept.report();
            report.rows.iter().for_each(|row| take(&row));
            rows += u32::try_from(report.rows.len()).unwrap_or(u32::MAX);
            if report.rows.is_empty() || rows >= report.rows_all {
                return Ok(());
            }
        }
    }

    /// The node of the bootstrap link.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.client.server().map(|server| server.node)
    }

    /// What the node says of itself.
    pub(crate) fn status(&mut self) -> anyhow::Result<NodeStatus> {
        self.client.status().map_err(|error| self.failure(&error))
    }

    /// The shape of the tree, from so many meganodes on.
    pub(crate) fn tree(&mut self, from: u32) -> anyhow::Result<TreeShape> {
        self.client.tree(from).map_err(|error| self.failure(&error))
    }

    /// The server's check of its own tree.
    pub(crate) fn check(&mut self, deadline: Duration) -> anyhow::Result<CheckResult> {
        self.client.check(deadline).map_err(|error| self.failure(&error))
    }

    /// An operation's error, with exit code and advice.
    pub(crate) fn failure(&self, error: &ClientError) -> anyhow::Error {
        failure(error, Some(&self.server))
    }

    fn conditional<T>(&self, outcome: Result<T, ClientError>) -> anyhow::Result<Conditional<T>> {
        match outcome {
            Ok(done) => Ok(Ok(done)),
            Err(ClientError::ConditionFailed { current }) => Ok(Err(current)),
            Err(error) => Err(self.failure(&error)),
        }
    }
}

impl Drop for Store {
    /// A command that has written leaves no session behind, which would keep a row in the coordinator.
    fn drop(&mut self) {
        self.client.end_session();
    }
}

/// Connects; a server that is not there is waited for until the time is over, because it may be on its way
/// back.
fn connect_patiently(server: &str, options: ClientOptions, within: Duration) -> Result<Client, ClientError> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let error = match Client::connect_within(server, options.clone(), left) {
            Err(error @ ClientError::Unreachable { .. }) => error,
            outcome => return outcome,
        };
        if until.saturating_duration_since(Instant::now()) <= CONNECT_PAUSE {
            return Err(error);
        }
        std::thread::sleep(CONNECT_PAUSE);
    }
}

/// The client's settings in force, made to fit the command where nobody set them. `given` are those of
/// `--set`.
pub(crate) fn options(
    asked: Option<Duration>,
    timeout: Duration,
    in_flight_max: usize,
    given: &[String],
) -> anyhow::Result<ClientOptions> {
    let (settings, warnings) = settings::of_client(environment::variables(), given)?;
    warnings.iter().for_each(|warning| message::warning(warning));
    let is_set = |name| settings.get(name).is_some_and(|(_, source)| source > Source::Default);
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut options = ClientOptions::from_settings(&settings);
    match asked {
        Some(asked) => options.deadline_ms = milliseconds(asked),
        None if is_set("client_deadline") => {}
        None => options.deadline_ms = milliseconds(timeout),
    }
    options.connect_timeout_ms = options.connect_timeout_ms.min(options.deadline_ms);
    if !is_set("client_retries_max") {
        options.retries_max = u32::MAX; // the deadline bounds them
    }
    if !is_set("client_in_flight_max") {
        options.in_flight_max = in_flight_max;
    }
    // The command's own, whatever the cluster is tuned to.
    let own = ["client_deadline", "client_connect_timeout", "client_retries_max", "client_in_flight_max"];
    options.own.extend(own);
    Ok(options)
}

/// Whom a command trusts over TLS: the certificates of this file, and what they have signed.
pub(crate) fn trust(ca: Option<&Path>) -> Result<Option<TlsTrust>, Failure> {
    let wrong =
        |error: TlsError| Failure::usage(with_causes(&error)).next("--ca names a PEM file with certificates");
    ca.map(TlsTrust::open).transpose().map_err(wrong)
}

/// Where the HTTP of one of these servers is, as it says itself. Over the fabric a token of any role will do.
pub(crate) fn http_of(server: &str, token: Option<&str>, ca: Option<&Path>) -> anyhow::Result<String> {
    let mut options = options(None, HELLO_PATIENCE, 1, &[])?;
    options.trust = trust(ca)?;
    if let Some(token) = token {
        options.token = token.into();
    }
    let client = Client::connect(server, options).map_err(|error| failure(&error, Some(server)))?;
    let http = &client.greeting().http_address;
    if http.is_empty() {
        let what = format!("{} does not say where its HTTP is", client.address());
        return Err(Failure::new(Exit::Unreachable, what).next("name it with --http HOST:PORT").into());
    }
    Ok(http.clone())
}

/// An error of a client of these servers, with exit code and advice. None: they are those of a cluster whose
/// addresses the user did not give.
pub(crate) fn failure(error: &ClientError, server: Option<&str>) -> anyhow::Error {
    if let Some(failure) = stranger(error) {
        return failure.into();
    }
    let (exit, next) = advice(error, server);
    let failure = Failure::new(exit, with_causes(error));
    match next {
        Some(next) => failure.next(next).into(),
        None => failure.into(),
    }
}

/// Of a port at which nothing said hello: what answers there once it is sent a line.
fn stranger(error: &ClientError) -> Option<Failure> {
    let ClientError::Unreachable { server, reason } = error else { return None };
    let Address::Tcp(address) = **server else { return None };
    let speaks = says_nothing(reason).then(|| probe::speaks(address)).flatten()?;
    let what = format!("{address} is not a Cell server's fabric port: what answers there speaks {speaks}");
    Some(Failure::new(Exit::Unreachable, what).next(WRONG_PORT))
}

fn advice(error: &ClientError, server: Option<&str>) -> (Exit, Option<String>) {
    let command = |words: &str| server.map_or_else(Reached::default, Reached::by_server).command(words);
    let start = || {
        let server = server.unwrap_or("the cluster's nodes");
        Some(format!("is a node running at {server}? `cell dev` starts one; --server names another"))
    };
    match error {
        ClientError::Unreachable { reason, .. } if says_nothing(reason) => {
            let next = format!(
                "nothing says hello there: a host or a node that stands still or waits, or another service; \
                 a node's lease may have run out, as its /readyz says; {} asks HTTP, too; the fabric's port \
                 is 7000 by default",
                command("cell status")
            );
            (Exit::Unreachable, Some(next))
        }
        ClientError::Unreachable { reason, .. } if is_about_rdma(reason) => {
            (Exit::Unreachable, Some(NO_RDMA.into()))
        }
        ClientError::Unreachable { .. } | ClientError::Resolve { .. } => (Exit::Unreachable, start()),
        ClientError::TooManyConnections { .. } => (Exit::Unhealthy, more_room(&command)),
        ClientError::WrongService { .. } => (Exit::Unreachable, Some(WRONG_PORT.into())),
        ClientError::NoTls { reason, .. } => (Exit::Unreachable, Some(about_tls(reason).into())),
        ClientError::NoSharedMemory { .. } => (
            Exit::Unreachable,
            Some("--transport tcp reaches it; `fabric_shm` on the server offers memory".into()),
        ),
        ClientError::ConditionFailed { .. } => (Exit::NotFound, None),
        ClientError::Fabric(error) if error.is_about_verbs() => {
            (Exit::Usage, Some("--transport tcp needs no RDMA".into()))
        }
        ClientError::CacheTooLarge { .. } => {
            (Exit::Usage, Some("give a smaller `client_cache_bytes`".into()))
        }
        ClientError::Unsendable(_) => (Exit::Usage, None),
        ClientError::Unauthorized => (Exit::Error, token(None)),
        ClientError::RoleMissing { role } => (Exit::Error, token(Some(role))),
        ClientError::Refused(refusal) => of_refusal(refusal, &command),
        ClientError::Deadline { last, .. } => match last {
            Some(AttemptError::Refused(refusal)) => of_refusal(refusal, &command),
            Some(AttemptError::Unserved { .. }) => {
                let next = format!("{} shows which pairs are not served, and why", command("cell status"));
                (Exit::Unhealthy, Some(next))
            }
            Some(AttemptError::SessionAwaited) => (Exit::Unhealthy, coordinator_away(&command)),
            Some(last) if last.is_for_lack_of_room() => (Exit::Unhealthy, more_room(&command)),
            Some(last) if is_about_rdma(last) => (Exit::Unreachable, Some(NO_RDMA.into())),
            Some(_) => (Exit::Unreachable, start()),
            None => (Exit::Error, Some("--timeout gives an operation more time".into())),
        },
        ClientError::Unknown { .. } => {
            (Exit::Error, Some("read the key to see whether the write was done".into()))
        }
        _ => (Exit::Error, None),
    }
}

/// Whether a server has no RDMA, or one of both ends not by the address of the connection.
fn is_about_rdma(reason: &AttemptError) -> bool {
    use CloseReason::{NoGid, RefusedByPeer};
    let AttemptError::Closed(reason) = reason else { return false };
    matches!(reason, NoGid { .. } | RefusedByPeer(HelloRefusal::NoVerbs | HelloRefusal::NoGid))
}

/// What to do where TLS did not come about.
fn about_tls(reason: &AttemptError) -> &'static str {
    match reason {
        AttemptError::Closed(CloseReason::RefusedByPeer(HelloRefusal::TlsWanted)) => {
            "give the file of the nodes' certificates (tls_certificate_file, or those that signed it) as --ca \
             FILE or CELL_CA"
        }
        AttemptError::Closed(CloseReason::Tls(TlsFailure::PeerPlain)) => {
            "the node has no tls_certificate_file: leave --ca and CELL_CA out, or give it one"
        }
        AttemptError::Closed(CloseReason::Tls(TlsFailure::WrongName)) => {
            "name the server as its certificate does, or give the node a certificate for this name or address"
        }
        AttemptError::Closed(CloseReason::Tls(TlsFailure::Untrusted)) => {
            "give the file with the certificate of who signed the nodes' as --ca FILE or CELL_CA"
        }
        AttemptError::Closed(CloseReason::Tls(TlsFailure::CertificateWanted)) => WRONG_PORT,
        _ => "see to the node's certificate (tls_certificate_file) and to the clocks of both machines",
    }
}

/// What to do where a token is missing, unknown or not for this.
fn token(role: Option<&str>) -> Option<String> {
    let role = role.map_or_else(|| "the needed role".to_owned(), |role| format!("the role {role}"));
    Some(format!("give a token with {role} as --token or CELL_TOKEN; `tokens_file` of the nodes has them"))
}

/// What to do where whoever was asked had not the key's pair: that says nothing of whether somebody has it.
fn not_found_yet(command: &dyn Fn(&str) -> String) -> Option<String> {
    let shows = command("cell status");
    let unserved = format!("nobody serves its pair just now ({shows} shows which pairs are not served)");
    Some(format!("its owner was not found in time: either {unserved}, or --timeout is too short"))
}

/// What to do where no session is opened.
fn coordinator_away(command: &dyn Fn(&str) -> String) -> Option<String> {
    let shows = command("cell status");
    Some(format!(
        "see whether the coordinator runs and the node reaches it ({shows} says where it is); reads go on, \
         and so does who has written before, while the nodes' leases last"
    ))
}

/// What to do about a server that takes no more connections.
fn more_room(command: &dyn Fn(&str) -> String) -> Option<String> {
    let raise = command("cell tune set fabric_connections_max=2048");
    let past = "--http HOST:PORT of a node reaches its API without a connection here";
    Some(format!("close clients that are not needed; {raise} makes room for more of them; {past}"))
}

/// Whether a connection was taken and no hello came.
pub(crate) fn says_nothing(reason: &AttemptError) -> bool {
    matches!(reason, AttemptError::NoHello { .. } | AttemptError::Closed(CloseReason::HandshakeTimeout))
}

fn of_refusal(refusal: &Refusal, command: &dyn Fn(&str) -> String) -> (Exit, Option<String>) {
    match refusal {
        Refusal::Busy => {
            (Exit::Unhealthy, Some("try again later, or with fewer operations at a time".into()))
        }
        Refusal::Recovering => {
            let next = format!("{} shows how far the recovery is", command("cell status --watch"));
            (Exit::Unhealthy, Some(next))
        }
        Refusal::ReadOnly { reason: ReadOnlyReason::CoordinatorFull } => {
            let next = "make room where the coordinator has its folder; who is connected goes on";
            (Exit::Unhealthy, Some(next.into()))
        }
        Refusal::ReadOnly { .. } => {
            (Exit::Unhealthy, Some("reads and deletes go on; make room, then write again".into()))
        }
        Refusal::NotOwner => (Exit::Unhealthy, not_found_yet(command)),
        Refusal::CoordinatorAway => (Exit::Unhealthy, coordinator_away(command)),
        Refusal::Shutdown => (Exit::Unhealthy, None),
        Refusal::Unauthorized => (Exit::Error, token(None)),
        Refusal::ValueTooLarge { .. } => {
            let next = "the longest goes by value_bytes_max, and is a quarter of extent_region_bytes at most";
            (Exit::Usage, Some(next.into()))
        }
        Refusal::KeyInvalid { .. } | Refusal::TooLong { .. } => (Exit::Usage, None),
        Refusal::ConditionFailed { .. } => (Exit::NotFound, None),
        _ => (Exit::Error, None),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use cell_protocol::OwnedState;
    use clap::Parser;

    use super::*;

    /// It was heeded once the time to connect was over.
    #[test]
    fn connect_unless_ends_when_a_stop_is_asked_for() {
        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            server: ServerArgs,
        }
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = silent.local_addr().unwrap().to_string();
        let words = ["test", "--server", server.as_str(), "--timeout", "600s", "--transport", "tcp"];
        let arguments = Command::parse_from(words).server;
        let stop = AtomicBool::new(false);
        let connected = std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let met = silent.accept().unwrap();
                stop.store(true, Ordering::Relaxed);
                met
            });
            let connected = Store::connect_unless(&stop, &arguments, PATIENCE, 1);
            drop(accepting.join().unwrap());
            connected
        });
        let error = connected.map(drop).unwrap_err();
        assert_eq!(crate::exit::classify(&error).0, Exit::Interrupted, "{error:#}");
    }

    /// `cell get` gave a host up that was lost, whose lease on etcd alone takes half of what it had.
    #[test]
    fn patience_of_a_command_is_that_of_the_client() {
        let deadline = Duration::from_millis(ClientOptions::default().deadline_ms);
        assert_eq!(PATIENCE, deadline);
    }

    #[test]
    fn advice_on_a_value_that_is_too_long_names_what_bounds_it() {
        let error = ClientError::Refused(Refusal::ValueTooLarge { len: 16 << 20, max: 8 << 20 });
        let (exit, next) = advice(&error, Some("127.0.0.1:7000"));
        assert_eq!(exit, Exit::Usage);
        let next = next.unwrap_or_default();
        assert!(next.contains("value_bytes_max") && next.contains("extent_region_bytes"), "{next}");
    }

    #[test]
    fn advice_on_a_server_that_takes_no_more_connections_is_to_make_room() {
        let server = Box::new("127.0.0.1:7000".parse().unwrap());
        let last = AttemptError::Closed(CloseReason::RefusedByPeer(HelloRefusal::TooManyConnections));
        for error in [
            ClientError::TooManyConnections { server, waited_ms: 5_000 },
            ClientError::Deadline { waited_ms: 5_000, last: Some(last) },
        ] {
            let (exit, next) = advice(&error, Some("127.0.0.1:7000"));
            assert_eq!(exit, Exit::Unhealthy, "{error}");
            assert!(next.is_some_and(|next| next.contains("fabric_connections_max")), "{error}");
        }
    }

    /// It said that no node was running there.
    #[test]
    fn advice_on_a_server_that_is_not_reached_over_rdma_is_to_do_without_or_see_to_addresses() {
        for reason in [
            CloseReason::RefusedByPeer(HelloRefusal::NoVerbs),
            CloseReason::RefusedByPeer(HelloRefusal::NoGid),
            CloseReason::NoGid { address: "192.0.2.1".parse().unwrap() },
        ] {
            let server = Box::new("verbs:192.0.2.1:7000".parse().unwrap());
            let last = AttemptError::Closed(reason);
            for error in [
                ClientError::Unreachable { server, reason: last },
                ClientError::Deadline { waited_ms: 5_000, last: Some(last) },
            ] {
                let (exit, next) = advice(&error, Some("192.0.2.1:7000"));
                assert_eq!(exit, Exit::Unreachable, "{error}");
                assert!(next.is_some_and(|next| next.contains("--transport tcp")), "{error}");
            }
        }
    }

    #[test]
    fn advice_on_tls_says_which_file_helps() {
        let server = || Box::new("127.0.0.1:7000".parse().unwrap());
        for (reason, wanted) in [
            (CloseReason::RefusedByPeer(HelloRefusal::TlsWanted), "--ca FILE"),
            (CloseReason::Tls(TlsFailure::PeerPlain), "leave --ca"),
            (CloseReason::Tls(TlsFailure::WrongName), "name the server as its certificate does"),
            (CloseReason::Tls(TlsFailure::Untrusted), "who signed"),
            (CloseReason::Tls(TlsFailure::Ended), "clocks"),
            (CloseReason::Tls(TlsFailure::CertificateWanted), "the fabric's is 7000"),
        ] {
            let reason = AttemptError::Closed(reason);
            assert!(reason.is_about_tls());
            let (exit, next) = advice(&ClientError::NoTls { server: server(), reason }, None);
            assert!(exit == Exit::Unreachable && next.is_some_and(|next| next.contains(wanted)), "{wanted}");
        }
    }

    /// It said that nobody served the pair, which was served.
    #[test]
    fn advice_on_an_owner_that_was_not_found_does_not_say_that_there_is_none() {
        let last = Some(AttemptError::Refused(Refusal::NotOwner));
        for error in [ClientError::Deadline { waited_ms: 9, last }, ClientError::Refused(Refusal::NotOwner)] {
            let (exit, next) = advice(&error, None);
            let next = next.unwrap();
            assert_eq!(exit, Exit::Unhealthy, "{error}");
            assert!(next.starts_with("its owner was not found in time: either"), "{next}");
        }
        let unserved = AttemptError::Unserved { pair: PairId(1), state: OwnedState::Orphaned };
        let next = advice(&ClientError::Deadline { waited_ms: 9, last: Some(unserved) }, None).1.unwrap();
        assert!(next.contains("which pairs are not served"), "that is known: {next}");
    }

    /// It was to be tried with fewer operations at a time, or with more time.
    #[test]
    fn advice_where_no_session_is_opened_is_about_the_coordinator() {
        let refused = AttemptError::Refused(Refusal::CoordinatorAway);
        for last in [refused, AttemptError::SessionAwaited] {
            let error = ClientError::Deadline { waited_ms: 9, last: Some(last) };
            assert!(error.to_string().contains("coordinator"), "{error}");
            let (exit, next) = advice(&error, None);
            assert_eq!(exit, Exit::Unhealthy, "{error}");
            let next = next.unwrap();
            assert!(next.starts_with("see whether the coordinator runs"), "{next}");
        }
    }

    /// A command that was copied from a hint once asked another cluster.
    #[test]
    fn advice_with_a_command_has_the_server_that_was_asked() {
        let refused = |refusal| ClientError::Refused(refusal);
        let unserved = AttemptError::Unserved { pair: PairId(1), state: OwnedState::Orphaned };
        let server = Box::new("127.0.0.1:7300".parse().unwrap());
        for error in [
            refused(Refusal::Recovering),
            refused(Refusal::NotOwner),
            ClientError::Deadline { waited_ms: 1, last: Some(unserved) },
            ClientError::TooManyConnections { server, waited_ms: 1 },
        ] {
            let said = |server| advice(&error, server).1.unwrap();
            assert!(said(Some("127.0.0.1:7300")).contains(" --server 127.0.0.1:7300` "), "{error}");
            assert!(!said(None).contains("--server"), "{error}");
        }
    }
}
