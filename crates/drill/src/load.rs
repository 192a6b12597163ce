//! The clients of a drill: threads that write and read at a steady rate, whatever the cluster does, and note
//! everything in the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cell_client::{
    Client, ClientError, ClientOptions, Completion, Condition, Fate, Operation, Output, Search, Ticket,
};
use cell_linearizability::{Call, Outcome, payload};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::DrillError;
use crate::journal::{Ending, Journal, Started};
use crate::keys::Keys;

/// How long one read of the proof may take, and each operation before and after the load.
pub(crate) const READ_PATIENCE: Duration = Duration::from_secs(60);
/// How long an operation is tried, unless its client is impatient.
const PATIENT: Duration = Duration::from_secs(60);
/// Shorter than an outage: such a client leaves writes of unknown outcome.
const IMPATIENT: Duration = Duration::from_millis(300);
/// Operations that a thread has outstanding at most.
const OUTSTANDING_MAX: usize = 512;
/// Longest sleep of a thread.
const NAP: Duration = Duration::from_millis(5);

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads, each with a client of its own; odd ones search the servers' memory themselves.
    pub threads: u16,
    /// Operations a second, all threads together.
    pub rate: u32,
}

/// How clients connect.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Every node that has a process, separated by commas.
    pub(crate) servers: String,
    /// What is not the drill's to say.
    pub(crate) options: ClientOptions,
}

impl Target {
    /// A client that searches in a given way and tries each operation for so long.
    pub(crate) fn connect(&self, search: Search, deadline: Duration) -> Result<Client, DrillError> {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let connect_timeout_ms = self.options.connect_timeout_ms.min(deadline_ms);
        let own = ["client_search", "client_deadline", "client_connect_timeout", "client_in_flight_max"];
        let options = ClientOptions {
            own: own.into_iter().chain(self.options.own.iter().copied()).collect(),
            search,
            deadline_ms,
            connect_timeout_ms,
            in_flight_max: OUTSTANDING_MAX,
            ..self.options.clone()
        };
        Ok(Client::connect(&self.servers, options)?)
    }
}

/// One operation to its end, unless the drill is interrupted before.
pub(crate) fn call(
    client: &mut Client,
    operation: &Operation<'_>,
    interrupted: &AtomicBool,
) -> Result<Output, DrillError> {
    let ticket = client.submit(operation)?;
    let ended = || client.poll(NAP).filter(|completion| completion.ticket == ticket);
    Ok(wait_unless(interrupted, ended)?.outcome?)
}

/// What comes at last, unless the drill is interrupted before.
fn wait_unless<T>(interrupted: &AtomicBool, mut comes: impl FnMut() -> Option<T>) -> Result<T, DrillError> {
    while !interrupted.load(Ordering::Relaxed) {
        if let Some(come) = comes() {
            return Ok(come);
        }
    }
    Err(DrillError::Interrupted)
}

pub(crate) struct Traffic<'a> {
    client: Client,
    keys: &'a Keys,
    journal: &'a Journal,
    thread: u16,
    impatient: bool,
    random: Xoshiro256PlusPlus,
    interval: Duration,
    written: u64,
    busy: BTreeSet<Vec<u8>>,
    outstanding: BTreeMap<Ticket, Started>,
}

impl<'a> Traffic<'a> {
    /// Connects a thread's client. Of several threads the first is impatient.
    pub(crate) fn connect(
        target: &Target,
        keys: &'a Keys,
        journal: &'a Journal,
        load: Load,
        thread: u16,
    ) -> Result<Traffic<'a>, DrillError> {
        let impatient = load.threads > 1 && thread == 0;
        let search = if thread % 2 == 1 { Search::Client } else { Search::Server };
        let client = target.connect(search, if impatient { IMPATIENT } else { PATIENT })?;
        Ok(Traffic {
            client,
            keys,
            journal,
            thread,
            impatient,
            random: Xoshiro256PlusPlus::seed_from_u64(keys.run() ^ (u64::from(thread) << 40)),
            interval: Duration::from_secs(1) * u32::from(load.threads) / load.rate.max(1),
            written: 0,
            busy: BTreeSet::new(),
            outstanding: BTreeMap::new(),
        })
    }

    /// Runs until it is to stop, and until everything outstanding has ended.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<(), DrillError> {
        let mut due = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            while due <= now && self.outstanding.len() < OUTSTANDING_MAX {
                self.send()?;
                due += self.interval;
            }
            let wait = rest(due.saturating_duration_since(Instant::now()), self.outstanding.len());
            if self.outstanding.is_empty() {
                thread::sleep(wait);
            } else {
                self.take(wait);
            }
        }
        while !self.outstanding.is_empty() {
            self.take(NAP);
        }
        Ok(())
    }

    /// Sends one operation; a key that is busy is left alone.
    fn send(&mut self) -> Result<(), DrillError> {
        let (key, call, own) = self.pick();
        if !self.busy.insert(key.clone()) {
            return Ok(());
        }
        let started = self.journal.begin(key, call, own, self.impatient);
        let value = match call {
            Call::Put(value) | Call::PutIfAbsent(value) => payload::encode(value),
            _ => Vec::new(),
        };
        let (key, value) = (started.key.as_slice(), value.as_slice());
        let operation = match call {
            Call::Get => Operation::Get { key },
            Call::Delete => Operation::Delete { key, condition: Condition::Always },
            Call::PutIfAbsent(_) => Operation::Put { key, value, condition: Condition::IfAbsent },
            _ => Operation::Put { key, value, condition: Condition::Always },
        };
        let ticket = self.client.submit(&operation)?;
        self.outstanding.insert(ticket, started);
        Ok(())
    }

    /// Mostly new entries, some changed or removed again, some read, some met with others.
    fn pick(&mut self) -> (Vec<u8>, Call, bool) {
        let value = self.journal.value();
        let roll = self.random.random_range(0..100_u64);
        if roll >= 85 {
            let key = self.keys.shared(self.thread, self.random.random_range(0..Keys::SHARED));
            let call = match self.random.random_range(0..10_u64) {
                0..=4 => Call::Get,
                5..=7 => Call::Put(value),
                8 => Call::Delete,
                _ => Call::PutIfAbsent(value),
            };
            return (key, call, false);
        }
        if roll < 55 || self.written == 0 {
            self.written += 1;
            return (self.keys.own(self.thread, self.written), Call::Put(value), true);
        }
        let older = 1 + self.random.random_range(0..self.written);
        let call = match roll {
            55..=69 => Call::Put(value),
            70..=74 => Call::Delete,
            _ => Call::Get,
        };
        (self.keys.own(self.thread, older), call, true)
    }

    fn take(&mut self, wait: Duration) {
        let mut completion = self.client.poll(wait);
        while let Some(Completion { ticket, outcome, .. }) = completion {
            if let Some(started) = self.outstanding.remove(&ticket) {
                self.busy.remove(&started.key);
                let written_to = match &outcome {
                    Ok(Output::Written(version)) => Some(version.pair.0),
                    _ => None,
                };
                let ending = ending(started.call, outcome);
                self.journal.end(started, ending, written_to);
            }
            completion = self.client.poll(Duration::ZERO);
        }
    }
}

/// How long to wait for an answer at most, if the next operation is due after so long. While as many are
/// outstanding as may be, only an answer makes room for it: a thread that looked on through an outage would
/// take the processors from those who end it.
fn rest(until_due: Duration, outstanding: usize) -> Duration {
    if outstanding < OUTSTANDING_MAX { until_due.min(NAP) } else { NAP }
}

/// What an outcome says of an operation.
fn ending(call: Call, outcome: Result<Output, ClientError>) -> Ending {
    match outcome {
        Ok(Output::Written(_) | Output::Deleted(true)) => Ending::Answered(Outcome::Done),
        Ok(Output::Deleted(false)) => Ending::Answered(Outcome::Refused),
        // A value that is nobody's fits no history, whatever its name.
        Ok(Output::Value(item)) => Ending::Answered(Outcome::Found(
            item.map(|item| payload::decode(&item.value).unwrap_or(u64::MAX)),
        )),
        Ok(_) => Ending::NotDone,
        Err(ClientError::ConditionFailed { .. }) => Ending::Answered(Outcome::Refused),
        Err(error) if error.fate() == Fate::Unknown && call != Call::Get => {
            Ending::Answered(Outcome::Unknown)
        }
        Err(_) => Ending::NotDone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each thread of a drill took a whole processor while a node was away for longer than what it sends
    /// until it has none left to wait for.
    #[test]
    fn rest_without_room_waits_for_an_answer_though_more_is_due() {
        let soon = Duration::from_millis(1);
        assert_eq!(rest(Duration::ZERO, OUTSTANDING_MAX), NAP);
        assert_eq!(rest(soon, OUTSTANDING_MAX), NAP);
        assert_eq!(rest(soon, OUTSTANDING_MAX - 1), soon);
        assert_eq!(rest(Duration::ZERO, OUTSTANDING_MAX - 1), Duration::ZERO, "it is sent at once");
        assert_eq!(rest(2 * NAP, 1), NAP, "an order to stop is seen");
    }

    /// Nobody answers: Ctrl-C once was not heard until the operation was given up, after a minute.
    #[test]
    fn wait_unless_ends_with_what_comes_or_at_an_interruption() {
        let (interrupted, mut looks) = (AtomicBool::new(false), 0);
        let come = wait_unless(&interrupted, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert!(matches!(come, Ok(3)), "{come:?}");
        let mut looks = 0;
        let come: Result<(), _> = wait_unless(&interrupted, || {
            looks += 1;
            assert!(looks < 3, "it looks on");
            interrupted.store(looks == 2, Ordering::Relaxed);
            None
        });
        assert!(matches!(come, Err(DrillError::Interrupted)), "{come:?}");
    }
}
