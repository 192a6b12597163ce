//! The one-sided service of a host: a thread that reads registered regions for peers, as a network card
//! would.
//!
//! It shares nothing with the worker but the table of registrations. It loads a read's words in address
//! order, one cache line after the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cell_terms::Seldom;
use cell_terms::mutant::{Mutant, planted};

use crate::counter::FabricCounters;
use crate::endpoint::{ConnectionId, Event};
use crate::error::{FabricError, SendError};
use crate::limits::FabricLimits;
use crate::poller::{Poller, Waker};
use crate::read_permission::ReadPermission;
use crate::registry::Registry;
use crate::remote_access::{READ_BYTES_MAX, ReadFailure, RemoteRead};

use super::read_wire::{decode_request, encode_answer};
use super::transport::TcpMessenger;

/// How long the thread sleeps at most: time-outs are judged this often.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The thread and the table that it serves from. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Service {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    registry: Arc<Registry>,
    counters: Mutex<FabricCounters>,
    /// New ones, until the thread has taken them.
    limits: Mutex<Option<FabricLimits>>,
    limits_changed: AtomicBool,
    stopping: AtomicBool,
}

impl Service {
    /// Starts the thread on sockets that `messenger` is handed.
    pub(super) fn start(
        messenger: TcpMessenger,
        registry: Arc<Registry>,
        readers: Option<Arc<dyn ReadPermission>>,
    ) -> Result<Service, FabricError> {
        let (counters, limits) = (Mutex::default(), Mutex::default());
        let (limits_changed, stopping) = (AtomicBool::default(), AtomicBool::default());
        let shared = Arc::new(Shared { registry, counters, limits, limits_changed, stopping });
        let mut poller = Poller::new()?;
        poller.add(messenger.wake_descriptor())?;
        let waker = poller.waker();
        let server = Server {
            shared: Arc::clone(&shared),
            messenger,
            waiting: VecDeque::new(),
            words: Vec::new(),
            bytes: Vec::new(),
            served: 0,
            refusals: Seldom::default(),
            readers,
            judged: 0,
        };
        let thread = std::thread::Builder::new()
            .name("cell-one-sided".to_owned())
            .spawn(move || server.run(poller))
            .map_err(|source| FabricError::Service { source })?;
        Ok(Service { shared, waker, thread: Some(thread) })
    }

    /// Other limits from the thread's next turn on.
    pub(super) fn set_limits(&self, limits: FabricLimits) {
        *self.shared.limits.lock().unwrap_or_else(PoisonError::into_inner) = Some(service_limits(limits));
        self.shared.limits_changed.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// What the thread counted, a moment ago.
    pub(super) fn counters(&self) -> FabricCounters {
        *self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic in it has been reported on its own.
            let _ = thread.join();
        }
    }
}

/// The thread's own state.
struct Server {
    shared: Arc<Shared>,
    messenger: TcpMessenger,
    /// Requests not answered: a reader that takes no answers is not read from, so they are few.
    waiting: VecDeque<(ConnectionId, RemoteRead, u32)>,
    words: Vec<u64>,
    bytes: Vec<u8>,
    served: u64,
    /// Reports of readers that were turned away.
    refusals: Seldom,
    /// Who may read; none: whoever comes.
    readers: Option<Arc<dyn ReadPermission>>,
    /// By which revision of that those were judged last that are connected.
    judged: u64,
}

impl Server {
    #[allow(clippy::disallowed_methods, reason = "the thread is a shell: it gives its messenger the time")]
    fn run(mut self, mut poller: Poller) {
        let started = Instant::now();
        let now_ns = || u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        while !self.shared.stopping.load(Ordering::Acquire) {
            self.take_limits();
            self.judge_readers();
            let events = self.turn();
            if events == 0 && self.messenger.prepare_sleep() {
                poller.wait(Some(SLEEP_MAX));
            }
            self.messenger.tick(now_ns());
        }
    }

    fn take_limits(&mut self) {
        if self.shared.limits_changed.swap(false, Ordering::Acquire)
            && let Some(limits) = *self.shared.limits.lock().unwrap_or_else(PoisonError::into_inner)
        {
            self.messenger.table.set_limits(limits);
        }
    }

    /// Ends the lanes of those who may not read any more. They are judged before their next request is.
    fn judge_readers(&mut self) {
        let Some(readers) = &self.readers else { return };
        let revision = readers.revision();
        if std::mem::replace(&mut self.judged, revision) == revision || planted(Mutant::RevokedReaderStays) {
            return;
        }
        for id in self.messenger.table.open_with(|token| !readers.permits(token)) {
            tracing::info!(connection = %id, "a reader's token is gone: its lane ends");
            self.waiting.retain(|(connection, ..)| *connection != id);
            self.messenger.close(id);
        }
    }

    /// Takes requests, answers them.
    fn turn(&mut self) -> usize {
        let (waiting, mut broken) = (&mut self.waiting, Vec::new());
        let (refusals, now_ns) = (&mut self.refusals, self.messenger.table.now_ns());
        let events = self.messenger.poll(&mut |event| match event {
            Event::Message { connection, message } => match decode_request(message) {
                Some((read, sequence)) => waiting.push_back((connection, read, sequence)),
                None => broken.push(connection),
            },
            Event::Refused { peer, reason } if reason.is_departure() => {
                tracing::debug!(%peer, %reason, "a peer left before its one-sided lane was open");
            }
            Event::Refused { peer, reason } => {
                if let Some(unsaid) = refusals.ask(now_ns) {
                    tracing::warn!(%peer, %reason, unsaid, "one-sided lane refused");
                }
            }
            _ => {}
        });
        for connection in broken {
            tracing::debug!(%connection, "not a one-sided read");
            self.messenger.close(connection);
        }
        // One round: what finds its connection's output full keeps its place among its own.
        let mut full: Vec<ConnectionId> = Vec::new();
        for _ in 0..self.waiting.len() {
            let Some(request) = self.waiting.pop_front() else { break };
            if full.contains(&request.0) || self.answer(&request) == Err(SendError::Full) {
                full.push(request.0);
                self.waiting.push_back(request);
            }
        }
        self.messenger.flush();
        self.publish(events);
        events
    }

    fn publish(&self, events: usize) {
        if events > 0 {
            let counters = FabricCounters { reads_served: self.served, ..self.messenger.table.counters() };
            *self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
        }
    }

    fn answer(&mut self, request: &(ConnectionId, RemoteRead, u32)) -> Result<(), SendError> {
        let (connection, read, sequence) = *request;
        let outcome = self.load(&read);
        let header = encode_answer(sequence, outcome.err());
        let sent = match outcome {
            Ok(()) => self.messenger.send_parts(connection, &[&header, &self.bytes]),
            Err(_) => self.messenger.send_parts(connection, &[&header]),
        };
        match sent {
            // The reader's limit of message bytes is below what it asks for.
            Err(SendError::TooLong { .. }) => {
                let header = encode_answer(sequence, Some(ReadFailure::RangeInvalid));
                self.messenger.send_parts(connection, &[&header])
            }
            sent => {
                self.served += u64::from(sent.is_ok());
                sent
            }
        }
    }

    /// Loads what is asked for into `bytes`. The registration cannot end while this is at it.
    fn load(&mut self, read: &RemoteRead) -> Result<(), ReadFailure> {
        let words = &mut self.words;
        let loaded = self.shared.registry.with_region(read.key, |region| read.load(region, words));
        loaded.ok_or(ReadFailure::KeyUnknown)??;
        self.bytes.clear();
        self.bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        Ok(())
    }
}

/// What a service's messenger may hold: output for many reads, because readers pipeline.
pub(super) fn service_limits(limits: FabricLimits) -> FabricLimits {
    let wanted = 8 * READ_BYTES_MAX as usize;
    FabricLimits { connection_output_bytes_max: limits.connection_output_bytes_max.max(wanted), ..limits }
}
