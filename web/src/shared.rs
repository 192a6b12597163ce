//! What all handlers share: the sources, the age of the figures, the peers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use cell_cluster::{Drains, TuningRow, newest_change};
use cell_fabric::NodeTls;
use cell_node::{AccessRules, LookError, NodeSnapshot, TokensError, TreeLook, WarningSubject};
use cell_terms::setting::Settings;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Caller;
use crate::api::params::Params;
use crate::as_of::{AsOf, SEEN_PATIENCE};
use crate::clock::{LookTime, now, now_boottime_ms, now_unix_ms};
use crate::coordination::Coordination;
use crate::coordinator_watch::{CoordinatorSeen, CoordinatorWatch};
use crate::disk_watch::DiskWatch;
use crate::drill::Drills;
use crate::drill_permission::DrillPermission;
use crate::event_log::EventLog;
use crate::events_seen::EventsSeen;
use crate::file_watch::FileWatch;
use crate::freshness::Freshness;
use crate::history::NodeHistory;
use crate::host::Hosts;
use crate::idempotency::Idempotency;
use crate::known_nodes::KnownNodes;
use crate::missing_pairs::{MissingPairs, lacking_at};
use crate::newest_change::NewestChange;
use crate::peer_secret::PeerClaim;
use crate::peers::{Gathered, PEER_DEADLINE, Peers};
use crate::problem::Problem;
use crate::request_limits::RequestLimits;
use crate::response_cache::CachedResponse;
use crate::selector_history::SelectorHistory;
use crate::server_figures::{AnswerCounts, ServerFigures};
use crate::setting;
use crate::source::Sources;
use crate::store::Store;
use crate::tls::WatchedTls;
use crate::tokens;
use crate::tree_check::TreeChecks;
use crate::tuning_end::TuningEnd;

/// Looks at meganodes that may run at a time.
const LOOKS_MAX: usize = 2;

/// What handlers share.
pub(crate) struct Shared {
    pub(crate) sources: Sources,
    pub(crate) peers: Peers,
    /// The hosts that requests may name.
    pub(crate) hosts: Hosts,
    pub(crate) tls: WatchedTls,
    files: FileWatch,
    pub(crate) limits: Arc<RequestLimits>,
    pub(crate) drill_permission: DrillPermission,
    pub(crate) store: Store,
    looks: Arc<Semaphore>,
    pub(crate) coordination: Coordination,
    newest_change: NewestChange,
    pub(crate) drills: Drills,
    pub(crate) tree_checks: TreeChecks,
    selectors: Mutex<SelectorHistory>,
    idempotency: Mutex<Idempotency>,
    /// The newest that was seen.
    tuning: Mutex<TuningRow>,
    tuning_end: TuningEnd,
    /// Without tokens everybody on this machine is an admin.
    access: Arc<AccessRules>,
    is_read_only: bool,
    /// Whether this node's own clients show a token: where there is no shared memory, over which the kernel
    /// says who they are. Elsewhere nobody who listens in a node's place is sent one.
    shows_token: bool,
    history: Mutex<NodeHistory>,
    events: Mutex<EventLog>,
    pub(crate) events_seen: CachedResponse<Arc<EventsSeen>>,
    known_nodes: Mutex<KnownNodes>,
    /// Of the cluster, as far as its nodes have reported to this one.
    missing_pairs: Mutex<MissingPairs>,
    /// Of this node.
    own_missing_pairs: Mutex<MissingPairs>,
    documents: Mutex<BTreeMap<&'static str, Arc<CachedResponse>>>,
    coordinator: CoordinatorWatch,
    streams: Arc<Semaphore>,
    stop: watch::Sender<bool>,
    freshness: Freshness,
    requests: AtomicU64,
    pub(crate) answers: AnswerCounts,
    disk: DiskWatch,
    started_unix_ms: u64,
}

/// How long a start waits for what others have to say.
const PREPARATION_MAX: Duration = Duration::from_millis(300);
/// Streams that are served at a time.
const STREAMS_MAX: usize = 64;
/// How long the coordinator may take to say which revision is the newest.
const NEWEST_PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks whether a revision has been seen.
const SEEN_EVERY: Duration = Duration::from_millis(10);

impl Shared {
    /// Over a node's sources.
    pub(crate) fn new(sources: Sources) -> Shared {
        let uptime_ms = sources.snapshots.snapshot().uptime_ms;
        let freshness = Freshness::new(uptime_ms, now());
        Shared {
            peers: Peers::new(None),
            hosts: Hosts::default(),
            tls: WatchedTls::default(),
            files: FileWatch::default(),
            limits: Arc::new(RequestLimits::new(setting::CHANGES_PER_SECOND_DEFAULT)),
            drill_permission: DrillPermission::new(sources.data_folder.clone(), sources.agent.is_some()),
            store: Store::new(sources.fabric),
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
            coordination: Coordination::new(sources.coordinator.clone()),
            newest_change: NewestChange::default(),
            drills: Drills::default(),
            tree_checks: TreeChecks::default(),
            idempotency: Mutex::default(),
            tuning: Mutex::default(),
            tuning_end: TuningEnd::default(),
            access: Arc::default(),
            is_read_only: false,
            shows_token: false,
            selectors: Mutex::default(),
            history: Mutex::default(),
            events: Mutex::default(),
            events_seen: CachedResponse::default(),
            known_nodes: Mutex::default(),
            missing_pairs: Mutex::default(),
            own_missing_pairs: Mutex::default(),
            documents: Mutex::default(),
            coordinator: CoordinatorWatch::new(sources.coordinator.clone()),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            stop: watch::Sender::new(false),
            freshness,
            requests: AtomicU64::new(0),
            answers: AnswerCounts::default(),
            disk: DiskWatch::new(sources.log_root.clone().or_else(|| sources.data_folder.clone())),
            started_unix_ms: now_unix_ms().saturating_sub(uptime_ms),
            sources,
        }
    }

    /// With the tokens, hosts and limits that the settings name; read-only if they say so. Peers are asked
    /// over TLS if there is a configuration for it.
    ///
    /// # Errors
    /// The tokens cannot be read.
    pub(crate) fn guarded(
        mut self,
        address: SocketAddr,
        tls: Option<NodeTls>,
    ) -> Result<Shared, TokensError> {
        let own_trust = tls.as_ref().map(|tls| tls.own_trust().clone());
        self.tls = WatchedTls::new(tls, self.sources.names_check.clone());
        self.peers = Peers::new(self.tls.asking());
        if let Some(store) = &self.sources.settings {
            let settings = store.given();
            self.files = FileWatch::new(&settings, Arc::clone(&self.sources.process_warnings));
            self.files.look_and_say();
            self.access = match &self.sources.access {
                Some(access) => Arc::clone(access),
                None => {
                    let path = setting::text(&settings, setting::TOKENS_FILE);
                    Arc::new(AccessRules::open(path.unwrap_or_default())?)
                }
            };
            if self.access.wants_tokens() {
                self.store = Store::of_own_user(self.sources.fabric);
            }
            self.store.trust = own_trust;
            self.shows_token = setting::text(&settings, "fabric_shm") == Some("off");
            self.is_read_only = setting::is_read_only(&settings);
            self.hosts = Hosts::new(&setting::hosts(&settings)).bound_to(address);
            self.limits.set_changes_per_second(setting::changes_per_second(&store.current().0));
            let limits = self.limits.clone();
            store.subscribe(move |_, settings| {
                limits.set_changes_per_second(setting::changes_per_second(settings));
            });
        }
        Ok(self)
    }

    /// What is learned before the first request, if it comes soon. It is learned again each second.
    pub(crate) async fn prepare(&self) {
        if tokio::time::timeout(PREPARATION_MAX, self.learn()).await.is_err() {
            tracing::debug!("the coordinator or the data folder did not answer yet");
        }
    }

    /// Who sent a request from this address.
    ///
    /// # Errors
    /// 400: it has several tokens. 401: tokens are wanted, and it has none. 429: too many tokens from there
    /// were not known. 503: it says that it is a peer, and that is not known yet.
    pub(crate) fn caller(&self, headers: &HeaderMap, address: IpAddr) -> Result<Caller, Problem> {
        if !self.access.wants_tokens() {
            return Ok(Caller::local());
        }
        match self.claim_in(headers) {
            PeerClaim::Peer => return Ok(Caller::peer()),
            PeerClaim::Unknown => {
                let detail = "This node has not learned yet by what its peers are known.";
                return Err(Problem::unavailable(detail)
                    .next("try again in a second; the coordinator has to answer this node first")
                    .retry_after(Duration::from_secs(1)));
            }
            PeerClaim::NoPeer => {}
        }
        let has_token = headers.contains_key(header::AUTHORIZATION);
        if has_token {
            self.limits.check_login(address)?;
        }
        let caller = tokens::caller(&self.access, headers);
        let is_unknown = |problem: &Problem| problem.status == StatusCode::UNAUTHORIZED;
        if has_token && caller.as_ref().is_err_and(is_unknown) {
            self.limits.count_failed_login(address)?;
        }
        caller
    }

    /// Whether a request comes from another node of the cluster.
    pub(crate) fn claim_in(&self, headers: &HeaderMap) -> PeerClaim {
        self.peers.claim_in(headers, self.sources.snapshots.snapshot().incarnation)
    }

    /// Reads the file of tokens again, if there is one; how many tokens it has.
    ///
    /// # Errors
    /// It is wrong: the tokens stay what they were.
    pub(crate) fn read_tokens_again(&self) -> Result<Option<usize>, TokensError> {
        self.access.read_again()
    }

    /// Whether who has started a stream may go on: the token is still known, and may still see figures.
    pub(crate) fn still_knows(&self, headers: &HeaderMap) -> bool {
        !self.access.wants_tokens()
            || matches!(self.claim_in(headers), PeerClaim::Peer)
            || tokens::caller(&self.access, headers).is_ok_and(|caller| caller.grants.sees)
    }

    /// Says in the log which files of the settings every user of this machine may read, though they are
    /// secret, or write.
    pub(crate) fn warn_of_exposed_files(&self) {
        self.files.look_and_say();
    }

    /// Whether requests to the API need a token.
    pub(crate) fn wants_tokens(&self) -> bool {
        self.access.wants_tokens()
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
        let ((snapshot, age), at) = (self.look(), LookTime::now());
        let at_unix_ms = at.unix_ms;
        let still_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.selectors().observe(at_unix_ms, still_ms, &snapshot.clients);
        self.history().observe(at, &snapshot);
        self.observe_cluster();
        self.events().observe_drills(at_unix_ms, self.drills.seen());
        self.own_missing_pairs().look(at.boottime_ms, &lacking_at(&snapshot));
        let of_certificates = self.tls.warnings(at_unix_ms.cast_signed() / 1_000);
        self.sources.process_warnings.set(WarningSubject::Certificates, of_certificates);
        self.coordinator.ask();
    }

    /// Waits, for a while, until this node has seen what a document is to show, and knows what follows from
    /// it; the revision that it has seen then, which others are to have seen, too. None: it is not known.
    pub(crate) async fn see(&self, as_of: AsOf) -> Option<u64> {
        let revision = match as_of {
            AsOf::Kept => return None,
            AsOf::Revision(revision) => Some(revision),
            AsOf::Now => {
                let ask = |coordinator| newest_change(&coordinator);
                let read = async { self.coordination.call(NEWEST_PATIENCE, ask).await.ok() };
                self.newest_change.ask(read).await
            }
        };
        let until = now() + SEEN_PATIENCE;
        while revision.is_some_and(|revision| self.is_behind(revision)) && now() < until {
            tokio::time::sleep(SEEN_EVERY).await;
        }
        self.observe_cluster();
        revision.filter(|revision| !self.is_behind(*revision))
    }

    /// Whether it has not seen that. One that has not seen its cluster yet is waited for by nobody.
    fn is_behind(&self, revision: u64) -> bool {
        let (snapshot, _) = self.look();
        !snapshot.cluster.is_unseen() && snapshot.cluster.revision < revision
    }

    /// What has happened, and which nodes there are, goes on up to the node's last look. The look is taken
    /// under the lock: an older one would undo what a newer one has shown.
    pub(crate) fn observe_cluster(&self) {
        let mut events = self.events();
        events.observe(LookTime::now(), &self.look().0);
        drop(events);
        let mut known = self.known_nodes();
        known.observe(LookTime::now(), &self.look().0);
    }

    /// Looks at a meganode, on a thread that may block.
    pub(crate) async fn look_at<T: Send + 'static>(
        &self,
        look: impl FnOnce(&TreeLook) -> Result<T, LookError> + Send + 'static,
    ) -> Result<T, LookError> {
        let Some(tree) = self.sources.tree.clone() else { return Err(LookError::NotServed) };
        let permit = Arc::clone(&self.looks).acquire_owned().await.map_err(|_| LookError::Busy)?;
        let looked = tokio::task::spawn_blocking(move || {
            let _permit = permit; // held by the thread, also when nobody waits for it any more
            look(&tree)
        });
        let looked = looked.await;
        looked.unwrap_or_else(|error| {
            tracing::error!(%error, "a look at a meganode panicked");
            Err(LookError::Busy)
        })
    }

    /// Learns what others have to say, each second. It may take as long as they do.
    pub(crate) async fn learn(&self) {
        self.peers.learn_names(&self.sources.snapshots.snapshot());
        let secret = self.peers.learn_secret(&self.coordination);
        let (files, tls) = (self.files.look(), self.tls.look());
        tokio::join!(secret, self.drill_permission.look(), self.disk.look(), files, tls);
        if let Some(token) = self.peers.entries_token().filter(|_| self.access.wants_tokens()) {
            self.access.know_nodes(token.as_bytes());
            if self.shows_token {
                self.store.know_token(token.into_bytes());
            }
        }
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

    /// When the process was started.
    pub(crate) fn started_unix_ms(&self) -> u64 {
        self.started_unix_ms
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

    /// The parts of a document ([`Peers::gather`]). A node that was removed for good is none that lacks: its
    /// lease may last on for a moment, and this node may not have seen yet that it was removed.
    pub(crate) async fn gather<T>(&self, snapshot: &NodeSnapshot, own: T, path: &str) -> Gathered<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.gather_as_of(snapshot, own, path, None).await
    }

    /// The same of what the nodes have seen up to a revision, if one is named.
    pub(crate) async fn gather_as_of<T>(
        &self,
        snapshot: &NodeSnapshot,
        own: T,
        path: &str,
        revision: Option<u64>,
    ) -> Gathered<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let mut gathered = match revision {
            None => self.peers.gather(snapshot, own, path).await,
            Some(revision) => self.peers.gather_as_of(snapshot, own, path, revision).await,
        };
        if !gathered.missing.is_empty() {
            let list = |coordinator| Drains::new(coordinator).list();
            let rows = self.coordination.call(PEER_DEADLINE, list).await.unwrap_or_default();
            let is_removed = |node: u32| rows.iter().any(|row| row.removed && row.node.0 == node);
            gathered.missing.retain(|peer| !is_removed(peer.node));
        }
        gathered
    }

    /// Which nodes there are, and which are absent.
    pub(crate) fn known_nodes(&self) -> MutexGuard<'_, KnownNodes> {
        self.known_nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which pairs no node that answers has, as the makers of documents find it.
    pub(crate) fn missing_pairs(&self) -> MutexGuard<'_, MissingPairs> {
        self.missing_pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which pairs this node lacks that it is to serve.
    pub(crate) fn own_missing_pairs(&self) -> MutexGuard<'_, MissingPairs> {
        self.own_missing_pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is or was such a node, as far as this node has seen.
    pub(crate) fn knows_node(&self, node: u32) -> bool {
        let (snapshot, _) = self.look();
        let cluster = &snapshot.cluster;
        let is_member = cluster.members.iter().any(|member| member.node.0 == node);
        let has_pairs = cluster.pairs.iter().any(|row| row.node.0 == node);
        node == snapshot.node.0 || is_member || has_pairs || self.known_nodes().knows(node)
    }

    /// Refuses what is asked of a node that is not there and never was, as far as this node has seen.
    pub(crate) fn check_node(&self, name: &str, node: u32) -> Result<(), Problem> {
        let (snapshot, _) = self.look();
        let members = || snapshot.cluster.members.iter().map(|member| member.node.0);
        if node == snapshot.node.0 || members().any(|known| known == node) || self.known_nodes().knows(node) {
            return Ok(());
        }
        let known: BTreeSet<u32> = members().collect();
        let known: Vec<_> = known.iter().map(u32::to_string).collect();
        Err(Params::refuse(name, format!("there is no node {node}; those that are: {}", known.join(", "))))
    }

    /// The place of a document that is kept for a while.
    pub(crate) fn cached_response(&self, path: &'static str) -> Arc<CachedResponse> {
        let mut documents = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(documents.entry(path).or_default())
    }

    /// Whether the coordinator answers.
    pub(crate) fn coordinator_seen(&self) -> CoordinatorSeen {
        self.coordinator.seen()
    }

    /// Whether the disk under the logs has no room for those of one more pair, as far as that is known.
    pub(crate) fn lacks_disk_room(&self) -> bool {
        let settings = self.sources.settings.as_ref().map(|store| store.current().0);
        let has_logs = |settings: &&Settings| settings.get("log_segment_bytes").is_some();
        let needed = settings.as_ref().filter(has_logs).map(cell_node::first_segments_bytes);
        needed.zip(self.disk.room()).is_some_and(|(needed, room)| room.free_bytes < needed)
    }

    /// What metrics show besides the snapshot.
    pub(crate) fn figures(&self) -> ServerFigures {
        ServerFigures {
            certificates: self.tls.certificates().left(now_unix_ms().cast_signed() / 1_000),
            answers: self.answers.all(),
            failed_logins: self.limits.failed_logins(),
            fabric_failed_logins: self.access.failed_logins(),
            coordinator: self.coordinator.is_there().then(|| self.coordinator.seen()),
            coordinator_answer: self.coordinator.answer_took(),
            disk: self.disk.room(),
            pairs_missing: self.own_missing_pairs().missing().len(),
            started_unix_ms: self.started_unix_ms,
            boottime_ms: now_boottime_ms(),
        }
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
        match self.sources.snapshots.snapshot().incarnation.0 {
            0 => format!("{:x}-{number}", self.started_unix_ms), // no lease yet
            life => format!("{life:x}-{number}"),
        }
    }
}
