//! Load for crash tests: clients that write and keep a ledger of what they were answered, and clients that
//! meet on a few keys and record a history.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_client::{
    Client, ClientError, ClientOptions, Condition, Fate, OneSidedCounters, Operation, Output, Search, Ticket,
    Transport,
};
use cell_linearizability::ledger::Ledger;
use cell_linearizability::{Call, Outcome, Recorder, WrittenValue, checker, payload};
use cell_terms::Version;

use crate::dice::Dice;
use crate::ending::Ending;
use crate::wait;

/// Operations that one client has outstanding which asks for many.
const OUTSTANDING: usize = 64;
/// How late an answer may be on an emulated machine, in milliseconds.
const LATE_MS: u64 = 60_000;
/// So long after somebody has waited for writes a writer of [`Traffic::easing`] begins to go slowly.
const EASES_AFTER: Duration = Duration::from_secs(3);
/// Keys of one ledger client.
const KEYS: u64 = 2_000;
/// Keys that history clients meet on.
const KEYS_SHARED: u64 = 24;

/// First characters of keys, over which a cluster's first ranges are spread.
const FIRST: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key that lies anywhere in the key space, by its number.
#[must_use]
pub fn spread(number: u64, rest: &str) -> Vec<u8> {
    let first = usize::try_from(number % FIRST.len() as u64).unwrap_or(0);
    [&FIRST[first..=first], rest.as_bytes()].concat()
}

/// A text again and again, so many bytes of it. Copied whole: tests are not optimised, and byte by byte it
/// takes longer than a node takes to keep it.
///
/// # Panics
/// If the text is empty.
#[must_use]
pub fn repeated(text: &str, length: usize) -> Vec<u8> {
    let mut bytes = text.repeat(length / text.len() + 1).into_bytes();
    bytes.truncate(length);
    bytes
}

/// Puts entries by their numbers, some at a time, so that they share flushes, and waits until all are there.
///
/// # Panics
/// If one is not taken.
pub fn put_all(
    client: &mut Client,
    numbers: Range<u64>,
    at_once: u64,
    entry: impl Fn(u64) -> (Vec<u8>, Vec<u8>),
) {
    let wait_for_one = |client: &mut Client| {
        let completion = client.poll(wait::PATIENCE).expect("each put ends");
        completion.outcome.expect("there is room");
    };
    let mut outstanding = 0;
    for number in numbers {
        if outstanding == at_once {
            wait_for_one(client);
            outstanding -= 1;
        }
        let (key, value) = entry(number);
        let put = Operation::Put { key: &key, value: &value, condition: Condition::Always };
        client.submit(&put).expect("the queue has room");
        outstanding += 1;
    }
    (0..outstanding).for_each(|_| wait_for_one(client));
}

/// Shared by all clients of one test.
pub struct Traffic {
    servers: String,
    /// What clients connect with, but for their deadline and who searches.
    options: ClientOptions,
    /// Writes that one ledger client has outstanding at most.
    outstanding_max: usize,
    /// Whether ledger clients write slowly while nobody waits for their writes.
    eases: bool,
    /// When somebody did last.
    awaited: Mutex<Option<Instant>>,
    /// Whether they write slowly from now on.
    is_slow: AtomicBool,
    stop: AtomicBool,
    values: AtomicU64,
    /// Writes that were returned to ledger clients as done.
    acknowledged: AtomicU64,
    /// Operations of all clients that were not answered in their time.
    failed: AtomicU64,
    /// Clients that have connected.
    connected: AtomicU64,
    /// Part of each key.
    scope: String,
    /// What the history clients saw.
    pub recorder: Recorder,
}

impl Traffic {
    /// Traffic against a server.
    pub fn new(server: SocketAddr) -> Self {
        Self::at(&server.to_string(), ClientOptions::default())
    }

    /// Traffic against servers as `--server` names them, with these options but for deadline and search.
    pub fn at(servers: &str, options: ClientOptions) -> Self {
        Self {
            servers: servers.to_owned(),
            options,
            outstanding_max: OUTSTANDING,
            eases: false,
            awaited: Mutex::default(),
            is_slow: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            values: AtomicU64::new(1),
            acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            scope: String::new(),
            recorder: Recorder::default(),
        }
    }

    /// The same over a given transport.
    #[must_use]
    pub fn over(self, transport: Transport) -> Self {
        let options = ClientOptions { transport, ..self.options.clone() };
        Self { options, ..self }
    }

    /// The same for an emulated machine, on which an answer takes seconds where others want its processors:
    /// each client waits for an answer before it asks for more, and takes nobody who is late for dead. One
    /// that did would make a new connection, which takes longer than the answer.
    #[must_use]
    pub fn one_by_one(self) -> Self {
        let (connect_timeout_ms, silence_ms) = (LATE_MS, LATE_MS);
        let options = ClientOptions { connect_timeout_ms, silence_ms, ..self.options.clone() };
        Self { options, outstanding_max: 1, ..self }
    }

    /// The same for what takes minutes: once nobody has waited for writes for some seconds, ledger clients
    /// write some hundred a second, and leave the processors to what is done meanwhile.
    #[must_use]
    pub fn easing(self) -> Self {
        Self { eases: true, ..self }
    }

    /// The same over keys of its own: of several, one after the other, none meets what another one left.
    #[must_use]
    pub fn scoped(self, scope: &str) -> Self {
        Self { scope: scope.to_owned(), ..self }
    }

    /// Asks all clients to end when what is outstanding has.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Does so when it is dropped, by a panic too: the scope of a test's threads waits for them.
    pub fn ending(&self) -> Ending<'_> {
        Ending(&self.stop)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// One client keeps a ledger and so many meet on shared keys while something is done; then they end. What
    /// the first one was answered, and what reads one-sided counted.
    ///
    /// # Panics
    /// If a client was given an answer that no crash explains.
    pub fn during(
        &self,
        meeting: u64,
        deadline: Duration,
        what: impl FnOnce(),
    ) -> (Ledger, OneSidedCounters) {
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| self.keep_ledger(0, deadline));
            let meeting: Vec<_> =
                (0..meeting).map(|client| scope.spawn(move || self.meet(client, deadline))).collect();
            let ending = self.ending();
            what();
            drop(ending);
            let mut counters = OneSidedCounters::default();
            for client in meeting {
                counters.add(&client.join().expect("a client that met others did not panic"));
            }
            (writing.join().expect("a writer did not panic"), counters)
        })
    }

    /// Waits until so many writes more are acknowledged: a fault without load proves nothing.
    ///
    /// # Panics
    /// If they never are.
    pub fn wait_acknowledged(&self, more: u64) {
        let wanted = self.acknowledged.load(Ordering::SeqCst) + more;
        let are_there = || {
            *self.awaited.lock().expect("nobody panics with it") = Some(now());
            self.acknowledged.load(Ordering::SeqCst) >= wanted
        };
        wait::until(&format!("{more} writes more are acknowledged"), are_there);
    }

    /// Has ledger clients write some hundred a second from now on: what they were for has come about.
    pub fn ease(&self) {
        self.is_slow.store(true, Ordering::SeqCst);
    }

    /// Whether a writer may rest: nobody has waited for writes of late.
    fn is_eased(&self) -> bool {
        let awaited = || *self.awaited.lock().expect("nobody panics with it");
        let has_eased = || awaited().is_some_and(|awaited| awaited.elapsed() > EASES_AFTER);
        !self.is_stopped() && (self.is_slow.load(Ordering::SeqCst) || self.eases && has_eased())
    }

    /// Waits until so many clients have connected in all: a fault may keep others from it.
    ///
    /// # Panics
    /// If they never have.
    pub fn wait_connected(&self, clients: u64) {
        let are_there = || self.connected.load(Ordering::SeqCst) >= clients;
        wait::until(&format!("{clients} clients have connected"), are_there);
    }

    /// How many operations were not answered in their time.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::SeqCst);
    }

    /// Demands that each shared key has a history in one order; how many operations there were.
    ///
    /// # Panics
    /// If one has none.
    pub fn check_history(self) -> usize {
        let mut operations = 0;
        for (key, history) in self.recorder.into_history() {
            operations += history.len();
            if let Err(violation) = checker::check(&history, None) {
                panic!("{} is not linearizable: {violation:?}\n{history:#?}", key.escape_ascii());
            }
        }
        operations
    }

    /// A client that tries each operation for so long.
    ///
    /// # Panics
    /// If the server is not there: it was when the test began.
    pub fn connect(&self, deadline: Duration) -> Client {
        self.connect_as(&self.servers, Search::Server, deadline)
    }

    fn connect_as(&self, servers: &str, search: Search, deadline: Duration) -> Client {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let options = ClientOptions { deadline_ms, retries_max: 1_000_000, search, ..self.options.clone() };
        let client = Client::connect(servers, options).expect("the server is there");
        self.connected.fetch_add(1, Ordering::SeqCst);
        client
    }

    /// Writes keys that nobody else writes, until the traffic stops; returns what it was answered.
    ///
    /// # Panics
    /// If an answer is one that no crash explains.
    pub fn keep_ledger(&self, client: u64, deadline: Duration) -> Ledger {
        self.keep_ledger_at(&self.servers, client, deadline)
    }

    /// As [`Traffic::keep_ledger`], of a client that is given these servers.
    ///
    /// # Panics
    /// As for [`Traffic::keep_ledger`].
    pub fn keep_ledger_at(&self, servers: &str, client: u64, deadline: Duration) -> Ledger {
        let mut connection = self.connect_as(servers, Search::Server, deadline);
        let mut ledger = Ledger::default();
        let mut dice = Dice::drawn(client);
        let mut busy = BTreeSet::new();
        let mut outstanding: BTreeMap<Ticket, (Vec<u8>, Option<WrittenValue>)> = BTreeMap::new();
        while !self.is_stopped() || !outstanding.is_empty() {
            while outstanding.len() < self.outstanding_max && !self.is_stopped() {
                let number = dice.below(KEYS);
                let key = spread(number, &format!("-ledger-{}{client}-{number:05}", self.scope));
                if !busy.insert(key.clone()) {
                    continue;
                }
                let value = (dice.below(10) > 0).then(|| self.values.fetch_add(1, Ordering::SeqCst));
                let ticket = submit(&mut connection, &key, value).expect("the queue has room");
                outstanding.insert(ticket, (key, value));
            }
            let Some(completion) = connection.poll(Duration::from_millis(100)) else { continue };
            let (key, value) = outstanding.remove(&completion.ticket).expect("a ticket completes once");
            match completion.outcome {
                Ok(_) => {
                    ledger.acknowledge(&key, value);
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) if error.fate() == Fate::Unknown => {
                    ledger.doubt(&key, value);
                    self.count_failed();
                }
                Err(ClientError::Deadline { .. }) => self.count_failed(),
                Err(error) => panic!("no crash explains this: {error} ({error:?})"),
            }
            busy.remove(&key);
            if self.is_eased() {
                wait::pause();
            }
        }
        connection.close();
        ledger
    }

    /// Reads and writes keys that others read and write too, one operation at a time, into the history.
    /// Clients of odd numbers search the server's memory themselves; what that counted is returned.
    ///
    /// # Panics
    /// If an answer is one that no crash explains.
    pub fn meet(&self, client: u64, deadline: Duration) -> OneSidedCounters {
        self.meet_at(&self.servers, client, deadline)
    }

    /// As [`Traffic::meet`], of a client that is given these servers.
    ///
    /// # Panics
    /// As for [`Traffic::meet`].
    pub fn meet_at(&self, servers: &str, client: u64, deadline: Duration) -> OneSidedCounters {
        let search = if client % 2 == 1 { Search::Client } else { Search::Server };
        let mut connection = self.connect_as(servers, search, deadline);
        let mut dice = Dice::drawn(!client);
        // The version that a key had when this client last looked, and whose it was.
        let mut seen: BTreeMap<Vec<u8>, (Version, WrittenValue)> = BTreeMap::new();
        while !self.is_stopped() {
            let number = dice.below(KEYS_SHARED);
            // One server may see the traffic of several transports, one after the other: each key's history
            // is whole.
            let transport = self.options.transport;
            let key = spread(number * 5, &format!("-shared-{}{transport:?}-{number:02}", self.scope));
            let value = self.values.fetch_add(1, Ordering::SeqCst);
            let call = match (dice.below(10), seen.get(&key)) {
                (0..=3, _) => Call::Get,
                (4..=5, _) => Call::Put(value),
                (6, _) => Call::Delete,
                (7, _) => Call::PutIfAbsent(value),
                (8, None) => Call::PutIfPresent(value),
                (8, Some(&(_, expected))) => Call::Remove(expected),
                (_, Some(&(_, expected))) => Call::Replace { expected, value },
                _ => Call::Get,
            };
            let version = seen.get(&key).map(|(version, _)| *version);
            let invoked = self.recorder.begin();
            let outcome = perform(&mut connection, &key, call, version, &mut seen);
            if outcome == Outcome::Unknown {
                self.count_failed();
            }
            self.recorder.done(&key, call, invoked, outcome);
        }
        let counters = connection.one_sided_counters().copied().unwrap_or_default();
        connection.close();
        counters
    }

    /// Reads every key of a ledger, many at a time, and holds it against the ledger; returns how many there
    /// were.
    ///
    /// # Panics
    /// If a key does not hold what it must, or holds bytes that nobody wrote.
    pub fn verify(&self, ledger: &Ledger) -> usize {
        let mut connection = self.connect(Duration::from_secs(60));
        let mut keys = ledger.keys();
        let mut outstanding: BTreeMap<Ticket, &[u8]> = BTreeMap::new();
        let mut verified = 0;
        loop {
            for key in keys.by_ref().take(OUTSTANDING - outstanding.len()) {
                let ticket = connection.submit(&Operation::Get { key }).expect("the queue has room");
                outstanding.insert(ticket, key);
            }
            if outstanding.is_empty() {
                break;
            }
            let completion = connection.poll(wait::PATIENCE).expect("each get ends");
            let key = outstanding.remove(&completion.ticket).expect("a ticket completes once");
            let item = match completion.outcome {
                Ok(Output::Value(item)) => item,
                other => panic!("a get of a living server succeeds: {other:?}"),
            };
            let found = item.map(|item| {
                payload::decode(&item.value).unwrap_or_else(|| {
                    panic!("{} holds {} bytes that nobody wrote", key.escape_ascii(), item.value.len())
                })
            });
            if let Err(discrepancy) = ledger.check(key, found) {
                panic!("an acknowledged write is lost or a value came back: {discrepancy:?}");
            }
            verified += 1;
        }
        connection.close();
        verified
    }
}

#[allow(clippy::disallowed_methods, reason = "clients of real servers have real time")]
fn now() -> Instant {
    Instant::now()
}

fn submit(connection: &mut Client, key: &[u8], value: Option<WrittenValue>) -> Result<Ticket, ClientError> {
    match value {
        Some(name) => {
            let value = payload::encode(name);
            connection.submit(&Operation::Put { key, value: &value, condition: Condition::Always })
        }
        None => connection.submit(&Operation::Delete { key, condition: Condition::Always }),
    }
}

fn perform(
    connection: &mut Client,
    key: &[u8],
    call: Call,
    version: Option<Version>,
    seen: &mut BTreeMap<Vec<u8>, (Version, WrittenValue)>,
) -> Outcome {
    let mut put_if = |value: WrittenValue, condition: Condition| {
        let written = connection.put_if(key, &payload::encode(value), condition)?;
        Ok(Some((written, value)))
    };
    let looked = || version.expect("it follows a look at the key");
    let written = match call {
        Call::Get => return read(connection, key, seen),
        Call::Put(value) => put_if(value, Condition::Always),
        Call::PutIfAbsent(value) => put_if(value, Condition::IfAbsent),
        Call::PutIfPresent(value) => put_if(value, Condition::IfPresent),
        Call::Replace { value, .. } => put_if(value, Condition::IfVersion(looked())),
        Call::Delete | Call::Remove(_) => {
            let condition =
                if call == Call::Delete { Condition::Always } else { Condition::IfVersion(looked()) };
            match connection.delete_if(key, condition) {
                Ok(false) => return Outcome::Refused,
                deleted => deleted.map(|_| None),
            }
        }
    };
    match written {
        Ok(Some(found)) => {
            seen.insert(key.to_vec(), found);
            Outcome::Done
        }
        Ok(None) => Outcome::Done,
        Err(ClientError::ConditionFailed { .. }) => {
            seen.remove(key);
            Outcome::Refused
        }
        // Surely not done counts as unknown here: an operation that never happened fits that too.
        Err(ClientError::Unknown { .. } | ClientError::Deadline { .. }) => Outcome::Unknown,
        Err(error) => panic!("no crash explains this: {error} ({error:?})"),
    }
}

fn read(
    connection: &mut Client,
    key: &[u8],
    seen: &mut BTreeMap<Vec<u8>, (Version, WrittenValue)>,
) -> Outcome {
    match connection.get(key) {
        Ok(Some(item)) => {
            let value = payload::decode(&item.value).expect("a value is one that somebody wrote");
            seen.insert(key.to_vec(), (item.version, value));
            Outcome::Found(Some(value))
        }
        Ok(None) => {
            seen.remove(key);
            Outcome::Found(None)
        }
        Err(ClientError::Deadline { .. }) => Outcome::Unknown,
        Err(error) => panic!("no crash explains this: {error} ({error:?})"),
    }
}
