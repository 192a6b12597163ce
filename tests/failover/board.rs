//! A few keys that one client overwrites with ever higher values, and readers that demand of each read what
//! was acknowledged before it began: whoever believes a memory that is no longer its owner's is found out.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_client::{Client, ClientError, ClientOptions, OneSidedCounters, Search, Transport};
use cell_tests::history::payload;
use cell_tests::traffic::spread;

/// Keys, all over the key space.
const KEYS: u64 = 20;
/// How long an operation is tried: longer than any takeover.
const DEADLINE_MS: u64 = 60_000;
/// How long everybody may take to go over the keys once.
const PATIENCE: Duration = Duration::from_secs(60);

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

    /// Ends writer and readers.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
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
        let mut client = connect(server, Transport::default(), Search::Server);
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

    /// Reads one-sided until it is stopped; `reader` counts from 1.
    pub(crate) fn read(&self, server: SocketAddr, reader: usize, transport: Transport) -> Read {
        let mut client = connect(server, transport, Search::Client);
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
                    self.stale.lock().expect("nobody panics with it").push(text);
                }
            }
            self.passes[reader].fetch_add(1, Ordering::SeqCst);
        }
        read.one_sided = client.one_sided_counters().copied().unwrap_or_default();
        read
    }

    /// Waits until everybody has gone over all keys so many times more.
    #[allow(clippy::disallowed_methods, reason = "real clients take real time")]
    pub(crate) fn wait_passes(&self, more: u64) {
        let of = |passes: &AtomicU64| passes.load(Ordering::SeqCst);
        // The pass that is under way began before.
        let wanted: Vec<u64> = self.passes.iter().map(|passes| of(passes) + more + 1).collect();
        let deadline = Instant::now() + PATIENCE;
        while self.passes.iter().zip(&wanted).any(|(passes, wanted)| of(passes) < *wanted) {
            assert!(Instant::now() < deadline, "somebody stands still: {:?}", self.passes);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn connect(server: SocketAddr, transport: Transport, search: Search) -> Client {
    let options = ClientOptions {
        transport,
        search,
        deadline_ms: DEADLINE_MS,
        retries_max: 1_000_000,
        ..ClientOptions::default()
    };
    Client::connect(&server.to_string(), options).expect("the server is there")
}
