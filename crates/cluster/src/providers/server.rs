//! Serves a coordinator to the other processes of its user, over a unix socket in the cluster's folder: one
//! thread a connection, one request at a time on each. Other users are answered no, root apart.

use std::io::{self, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};

use crate::clock::boottime_ns;
use crate::clock_watch::ClockReading;
use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::local_socket::{self, PeerUser};
use crate::providers::json_lines::{NumberedRequest, NumberedResponse, read_line, write_line};
use crate::request::{CoordinatorRefusal, CoordinatorRequest, Quota, Response};
use crate::urgent;

/// Most connections at a time: some for each of 1,024 nodes, and for commands. Further ones get the answer
/// that the server is busy.
const CONNECTIONS_MAX: usize = 5 * 1_024;
/// Most living leases that one connection has taken: a node has one, a client that goes round in a loop does
/// not get those of all others.
const LEASES_OF_ONE_MAX: usize = 16;
/// A connection that asks nothing for so long is closed; its client opens another.
const IDLE: Duration = Duration::from_secs(60);
/// A client that does not take its answer for so long is dropped.
const WRITE: Duration = Duration::from_secs(5);

/// A running server. Dropping it stops it.
pub struct CoordinatorServer {
    path: PathBuf,
    listener: Arc<UnixListener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    coordinator: Arc<dyn Coordinator>,
    peer_user: PeerUser,
    /// Names the coordinator's clock in answers: when this server began.
    clock: u64,
    stopping: AtomicBool,
    connections: AtomicUsize,
    streams: Mutex<Vec<Weak<UnixStream>>>,
}

impl CoordinatorServer {
    /// Listens at `path`; the caller holds the lock of what it serves, so a file that is there is a dead
    /// server's. Who a peer is says `peer_user`.
    ///
    /// # Errors
    /// [`ClusterError::Listen`].
    pub fn start(
        coordinator: Arc<dyn Coordinator>,
        path: &Path,
        peer_user: PeerUser,
    ) -> Result<CoordinatorServer, ClusterError> {
        let listener = local_socket::listen(path)
            .map_err(|source| ClusterError::Listen { path: path.to_owned(), source })?;
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared {
            coordinator,
            peer_user,
            clock: boottime_ns(),
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            streams: Mutex::new(Vec::new()),
        });
        let (accepting, listening) = (shared.clone(), listener.clone());
        let acceptor = std::thread::Builder::new()
            .name("coordinator".to_owned())
            .spawn(move || accept(&listening, &accepting))
            .map_err(ClusterError::Thread)?;
        Ok(CoordinatorServer { path: path.to_owned(), listener, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Connections at present.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for CoordinatorServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for stream in self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Some(stream) = stream.upgrade() {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        // Wakes the acceptor, which looks whether it is to stop.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let _ = local_socket::remove(&self.path); // a file that is left is replaced by the next server
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    // With it those that it starts, from their first moment on: a renewal that timed out comes again over a
    // new connection, behind those that were given up.
    urgent::run_first();
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        match stream {
            Ok(stream) => admit(stream, shared),
            Err(error) => {
                tracing::warn!(%error, "the coordinator could not take a connection");
                // Out of descriptors, most likely: let some go before the next try.
                std::thread::park_timeout(Duration::from_millis(50));
            }
        }
    }
}

fn admit(stream: UnixStream, shared: &Arc<Shared>) {
    let stream = Arc::new(stream);
    if shared.connections.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
        shared.connections.fetch_sub(1, Ordering::SeqCst);
        let _ = stream.set_write_timeout(Some(Duration::from_millis(10)));
        let _ = write_line(&mut &*stream, &mut Vec::new(), &refusal(CoordinatorRefusal::Busy));
        return;
    }
    {
        let mut streams = shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
    }
    let serving = shared.clone();
    let thread = std::thread::Builder::new().name("coordinator-peer".to_owned()).spawn(move || {
        if let Err(error) = serve(&stream, &serving) {
            tracing::debug!(%error, "a connection of the coordinator ended");
        }
        serving.connections.fetch_sub(1, Ordering::SeqCst);
    });
    if let Err(error) = thread {
        shared.connections.fetch_sub(1, Ordering::SeqCst);
        tracing::warn!(%error, "the coordinator could not start a thread");
    }
}

fn serve(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(WRITE))?;
    let (user, own) = ((shared.peer_user)(stream)?, local_socket::own_user());
    let admitted = local_socket::is_admitted(user, own) || planted(Mutant::StrangerServed);
    let mut leases = Leases::default();
    let mut reader = BufReader::new(stream);
    let (mut line, mut written) = (Vec::new(), Vec::new());
    while !shared.stopping.load(Ordering::SeqCst) && read_line(&mut reader, &mut line)?.is_some() {
        let mut renewed = None;
        let answer = match serde_json::from_slice::<NumberedRequest>(&line) {
            // Refused only once it has asked: who writes into a closed socket does not come to read why.
            _ if !admitted => refusal(CoordinatorRefusal::Stranger { user, own }),
            Ok(question) => {
                let response = leases.carry_out(shared, &question.request);
                renewed = renewed_by(&question.request, &response);
                // Read before the answer goes out, so that it lies between question and answer.
                let reading = |now_ns| ClockReading { clock: shared.clock, now_ns };
                let clock = shared.coordinator.clock_ns().map(reading);
                NumberedResponse { number: question.number, response, clock }
            }
            Err(_) => refusal(CoordinatorRefusal::Unreadable),
        };
        let goes_on = answer.number != 0;
        write_line(&mut &*stream, &mut written, &answer)?;
        if let (Some(lease), Some(renewers)) = (renewed, shared.coordinator.renewers()) {
            renewers.renewed(lease, stream);
        }
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// The lease that counts from now on.
fn renewed_by(request: &CoordinatorRequest, response: &Response) -> Option<Incarnation> {
    match (request, response) {
        (_, Response::Granted(grant)) => Some(grant.lease),
        (CoordinatorRequest::KeepAlive { lease }, Response::Alive) => Some(*lease),
        _ => None,
    }
}

/// To no question in particular, and the last that is said.
fn refusal(refusal: CoordinatorRefusal) -> NumberedResponse {
    NumberedResponse { number: 0, response: Response::Refused(refusal), clock: None }
}

/// The leases that a connection has taken and that may live.
#[derive(Default)]
struct Leases(Vec<Incarnation>);

impl Leases {
    fn carry_out(&mut self, shared: &Shared, request: &CoordinatorRequest) -> Response {
        if matches!(request, CoordinatorRequest::Grant { .. }) && !self.has_room(&*shared.coordinator) {
            let (what, limit) = (Quota::LeasesOfOne, LEASES_OF_ONE_MAX);
            return Response::Refused(CoordinatorRefusal::Quota { what, limit });
        }
        let response = carry_out(shared, request);
        if let Response::Granted(grant) = &response {
            self.0.push(grant.lease);
        }
        response
    }

    fn has_room(&mut self, coordinator: &dyn Coordinator) -> bool {
        if self.0.len() >= LEASES_OF_ONE_MAX {
            // What nobody can say of lives, for all that is known.
            self.0.retain(|lease| !matches!(coordinator.remaining_ns(*lease), Ok(None)));
        }
        self.0.len() < LEASES_OF_ONE_MAX
    }
}

fn carry_out(shared: &Shared, request: &CoordinatorRequest) -> Response {
    shared.coordinator.call(request).unwrap_or_else(|error| {
        // What was refused is an answer; after all else nobody knows what was carried out.
        tracing::error!(error = &error as &dyn std::error::Error, "a call of the coordinator failed");
        Response::Refused(CoordinatorRefusal::Stopped)
    })
}
