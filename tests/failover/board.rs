//! A few keys that one client overwrites with ever higher values, and readers that demand of each read what
//! was acknowledged before it began: whoever believes a memory that is no longer its owner's is found out.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cell_client::{Client, ClientError, ClientOptions, OneSidedCounters, Search, Transport};
use cell_tests::ending::Ending;
use cell_tests::linearizability::payload;
use cell_tests::traffic::spread;
use cell_tests::wait;

/// Keys, all over the key space.
const KEYS: u64 = 20;
/// How long an operation is tried: longer than any takeover.
const DEADLINE_MS: u64 = 20_000;
/// Stale reads that are printed.
const STALE_MAX: usize = 20;

/// A key and the highest value of it that was acknowledged.
struct Cell {
    key: Vec<u8>,
    acknowledged: AtomicU64,
}

/// What writer and readers share.
pub(crate) struct Board {
    cells: Vec<Cell>,
    stop: AtomicBool,
    /// How often the writer, and then each reader, has gone over all keys.
    passes: Vec<AtomicU64>,
    stale: Mutex<Vec<String>>,
}

/// What a reader did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Read {
    pub(crate) reads: u64,
    pub(crate) one_sided: OneSidedCounters,
}

impl Board {
    /// Keys over the whole key space, for so many readers.
    pub(crate) fn new(readers: usize) -> Board {
        let cell = |number| Cell { key: spread(number * 3, "-board"), acknowledged: AtomicU64::new(0) };
        Board {
            cells: (0..KEYS).map(cell).collect(),
            stop: AtomicBool::new(false),
            passes: (0..=readers).map(|_| AtomicU64::new(0)).collect(),
            stale: Mutex::new(Vec::new()),
        }
    }

    /// Ends writer and readers when it is dropped, by a panic too: their scope waits for them.
    pub(crate) fn ending(&self) -> Ending<'_> {
        Ending(&self.stop)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Reads that found less than they had to.
    pub(crate) fn stale(&self) -> Vec<String> {
        self.stale.lock().expect("nobody panics with it").clone()
    }

    /// Overwrites until it is stopped.
    pub(crate) fn write(&self, server: SocketAddr) {
        let silence_ms = ClientOptions::default().silence_ms;
        let mut client = connect(server, Transport::default(), Search::Server, silence_ms);
        let mut value = 0;
        while !self.is_stopped() {
            for cell in &self.cells {
                value += 1;
                match client.put(&cell.key, &payload::encode(value)) {
                    Ok(_) => cell.acknowledged.store(value, Ordering::SeqCst),
                    Err(ClientError::Unknown { .. } | ClientError::Deadline { .. }) => {}
                    Err(error) => panic!("no fault explains this: {error} ({error:?})"),
                }
            }
            self.passes[0].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Reads one-sided until it is stopped; `reader` counts from 1. The last one clings to an owner that
    /// falls silent: it asks nobody else, so that only the owner's lease keeps it from believing that memory.
    pub(crate) fn read(&self, server: SocketAddr, reader: usize, transport: Transport) -> Read {
        let clings = reader + 1 == self.passes.len();
        let silence_ms = if clings { DEADLINE_MS } else { ClientOptions::default().silence_ms };
        let mut client = connect(server, transport, Search::Client, silence_ms);
        let mut read = Read::default();
        while !self.is_stopped() {
            for cell in &self.cells {
                let least = cell.acknowledged.load(Ordering::SeqCst);
                let found = match client.get(&cell.key) {
                    Ok(item) => item.map_or(Some(0), |item| payload::decode(&item.value)),
                    Err(ClientError::Deadline { .. }) => continue,
                    Err(error) => panic!("no fault explains this: {error} ({error:?})"),
                };
                read.reads += 1;
                if found.is_none_or(|found| found < least) {
                    let key = cell.key.escape_ascii();
                    let text = format!("reader {reader} found {found:?} in {key}, after {least}");
                    let mut stale = self.stale.lock().expect("nobody panics with it");
                    if stale.len() < STALE_MAX {
                        stale.push(text);
                    }
                }
            }
            self.passes[reader].fetch_add(1, Ordering::SeqCst);
        }
        read.one_sided = client.one_sided_counters().copied().unwrap_or_default();
        read
    }

    /// Waits until everybody has gone over all keys so many times more.
    pub(crate) fn wait_passes(&self, more: u64) {
        Self::wait(&self.passes, more);
    }

    /// Waits until all have but the one that clings.
    pub(crate) fn wait_moved(&self, more: u64) {
        Self::wait(&self.passes[..self.passes.len() - 1], more);
    }

    /// Waits until the writer has, whatever the readers do.
    pub(crate) fn wait_written(&self, more: u64) {
        Self::wait(&self.passes[..1], more);
    }

    fn wait(all: &[AtomicU64], more: u64) {
        let of = |passes: &AtomicU64| passes.load(Ordering::SeqCst);
        // The pass that is under way began before.
        let wanted: Vec<u64> = all.iter().map(|passes| of(passes) + more + 1).collect();
        let have_passed = || all.iter().zip(&wanted).all(|(passes, wanted)| of(passes) >= *wanted);
        wait::until("everybody has gone over the keys", have_passed);
    }
}

fn connect(server: SocketAddr, transport: Transport, search: Search, silence_ms: u64) -> Client {
    let options = ClientOptions {
        transport,
        search,
        deadline_ms: DEADLINE_MS,
        retries_max: 1_000_000,
        silence_ms,
        ..ClientOptions::default()
    };
    Client::connect(&server.to_string(), options).expect("the server is there")
}
