//! What all handlers share: the sources, the age of the figures, the peers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use cell_cluster::TuningRow;
use cell_node::{LookError, NodeSnapshot, TreeLook};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Caller;
use crate::clock::{now, now_unix_ms};
use crate::coordination::Coordination;
use crate::coordinator_watch::{CoordinatorSeen, CoordinatorWatch};
use crate::drill::Drills;
use crate::event_log::EventLog;
use crate::freshness::Freshness;
use crate::history::NodeHistory;
use crate::idempotency::Idempotency;
use crate::kept::Kept;
use crate::peers::Peers;
use crate::problem::Problem;
use crate::selector_history::SelectorHistory;
use crate::setting;
use crate::source::Sources;
use crate::store::Store;
use crate::tokens::{Tokens, TokensError};
use crate::tuning_end::TuningEnd;

/// Looks at meganodes that may run at a time.
const LOOKS_MAX: usize = 2;

/// What handlers share.
pub(crate) struct Shared {
    pub(crate) sources: Sources,
    pub(crate) peers: Peers,
    pub(crate) store: Store,
    looks: Semaphore,
    pub(crate) coordination: Coordination,
    pub(crate) drills: Drills,
    selectors: Mutex<SelectorHistory>,
    idempotency: Mutex<Idempotency>,
    /// The newest that was seen.
    tuning: Mutex<TuningRow>,
    tuning_end: TuningEnd,
    /// None: everybody on this machine is an admin.
    tokens: Option<Tokens>,
    is_read_only: bool,
    history: Mutex<NodeHistory>,
    events: Mutex<EventLog>,
    documents: Mutex<BTreeMap<&'static str, Arc<Kept>>>,
    coordinator: CoordinatorWatch,
    streams: Arc<Semaphore>,
    stop: watch::Sender<bool>,
    freshness: Freshness,
    requests: AtomicU64,
}

/// Streams that are served at a time.
const STREAMS_MAX: usize = 64;

impl Shared {
    /// Over a node's sources.
    pub(crate) fn new(sources: Sources) -> Shared {
        let freshness = Freshness::new(sources.snapshots.snapshot().uptime_ms, now());
        let peers = Peers::new(sources.coordinator.clone());
        Shared {
            peers,
            store: Store::new(sources.fabric),
            looks: Semaphore::new(LOOKS_MAX),
            coordination: Coordination::new(sources.coordinator.clone()),
            drills: Drills::default(),
            idempotency: Mutex::default(),
            tuning: Mutex::default(),
            tuning_end: TuningEnd::default(),
            tokens: None,
            is_read_only: false,
            selectors: Mutex::default(),
            history: Mutex::default(),
            events: Mutex::default(),
            documents: Mutex::default(),
            coordinator: CoordinatorWatch::new(sources.coordinator.clone()),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            stop: watch::Sender::new(false),
            freshness,
            requests: AtomicU64::new(0),
            sources,
        }
    }

    /// With the tokens that the settings name; read-only if they say so.
    ///
    /// # Errors
    /// The tokens cannot be read.
    pub(crate) fn guarded(mut self) -> Result<Shared, TokensError> {
        if let Some(store) = &self.sources.settings {
            let settings = store.given();
            self.tokens =
                setting::tokens_file(&settings).map(|path| Tokens::read(Path::new(path))).transpose()?;
            self.is_read_only = setting::is_read_only(&settings);
        }
        Ok(self)
    }

    /// Who sent a request to the API.
    ///
    /// # Errors
    /// 401: tokens are wanted, and it has none.
    pub(crate) async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let Some(tokens) = &self.tokens else { return Ok(Caller::local()) };
        if self.peers.is_peer(headers).await {
            return Ok(Caller::peer());
        }
        tokens.caller(headers)
    }

    /// Whether requests to the API need a token.
    pub(crate) fn wants_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether everything that changes something is refused.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// The newest snapshot and its age. [`Shared::observe`] calls it each second too, so that an age is known
    /// when asked.
    pub(crate) fn look(&self) -> (Arc<NodeSnapshot>, Duration) {
        let snapshot = self.sources.snapshots.snapshot();
        let age = self.freshness.observe(snapshot.uptime_ms, now());
        (snapshot, age)
    }

    /// What is done each second: histories go on.
    pub(crate) fn observe(&self) {
        let ((snapshot, _), at_unix_ms) = (self.look(), now_unix_ms());
        self.selectors().observe(at_unix_ms, &snapshot.clients);
        self.history().observe(at_unix_ms, &snapshot);
        self.events().observe(at_unix_ms, &snapshot);
        self.events().observe_drills(at_unix_ms, self.drills.seen());
        self.coordinator.ask();
    }

    /// Looks at a meganode, on a thread that may block.
    pub(crate) async fn look_at<T: Send + 'static>(
        &self,
        look: impl FnOnce(&TreeLook) -> Result<T, LookError> + Send + 'static,
    ) -> Result<T, LookError> {
        let Some(tree) = self.sources.tree.clone() else { return Err(LookError::NotServed) };
        let _permit = self.looks.acquire().await.map_err(|_| LookError::Busy)?;
        let looked = tokio::task::spawn_blocking(move || look(&tree)).await;
        looked.unwrap_or_else(|error| {
            tracing::error!(%error, "a look at a meganode panicked");
            Err(LookError::Busy)
        })
    }

    /// What clients have reported.
    pub(crate) fn selectors(&self) -> MutexGuard<'_, SelectorHistory> {
        self.selectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to the end of tuned values, each second. It may take as long as the coordinator does.
    pub(crate) async fn end_tuning(&self) {
        let (snapshot, _) = self.look();
        self.tuning_end.look(&self.coordination, &snapshot.cluster.tuning, now_unix_ms()).await;
    }

    /// Takes note of what the cluster is tuned to; gives the newest of all that was seen.
    pub(crate) fn newest_tuning(&self, row: &TuningRow) -> TuningRow {
        let mut newest = self.tuning.lock().unwrap_or_else(PoisonError::into_inner);
        if row.revision > newest.revision {
            newest.clone_from(row);
        }
        newest.clone()
    }

    /// Answers to requests with keys.
    pub(crate) fn idempotency(&self) -> MutexGuard<'_, Idempotency> {
        self.idempotency.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node did.
    pub(crate) fn history(&self) -> MutexGuard<'_, NodeHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happened.
    pub(crate) fn events(&self) -> MutexGuard<'_, EventLog> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a document that is kept for a while.
    pub(crate) fn kept(&self, path: &'static str) -> Arc<Kept> {
        let mut documents = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(documents.entry(path).or_default())
    }

    /// Whether the coordinator answers.
    pub(crate) fn coordinator_seen(&self) -> CoordinatorSeen {
        self.coordinator.seen()
    }

    /// Room for a stream, for as long as the permit is held; none if there are too many.
    pub(crate) fn take_stream(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().ok()
    }

    /// Ends the streams.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns when the server stops.
    pub(crate) async fn stopping(&self) {
        let mut stop = self.stop.subscribe();
        let _ = stop.wait_for(|stop| *stop).await; // the sender lives as long as `self`
    }

    /// A name for the next request, which no other request to any node has.
    pub(crate) fn name_request(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{:x}-{number}", self.sources.snapshots.snapshot().incarnation.0)
    }
}
