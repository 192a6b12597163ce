//! Serves a coordinator to the other processes of the machine, over TCP on loopback: one thread a connection,
//! one request at a time on each.

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::boottime_ns;
use crate::clock_watch::ClockReading;
use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::json_lines::{NumberedRequest, NumberedResponse, read_line, write_line};
use crate::request::{CoordinatorRefusal, Response};

/// Most connections at a time; further ones get the answer that the server is busy.
const CONNECTIONS_MAX: usize = 512;
/// A connection that asks nothing for so long is closed; its client opens another.
const IDLE: Duration = Duration::from_secs(60);
/// A client that does not take its answer for so long is dropped.
const WRITE: Duration = Duration::from_secs(5);

/// A running server. Dropping it stops it.
pub struct CoordinatorServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    coordinator: Arc<dyn Coordinator>,
    /// Names the coordinator's clock in answers: when this server began.
    clock: u64,
    stopping: AtomicBool,
    connections: AtomicUsize,
    streams: Mutex<Vec<Weak<TcpStream>>>,
}

impl CoordinatorServer {
    /// Listens on `address`, which must be loopback; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ClusterError::NotLoopback`], [`ClusterError::Listen`].
    pub fn start(
        coordinator: Arc<dyn Coordinator>,
        address: SocketAddr,
    ) -> Result<CoordinatorServer, ClusterError> {
        if !address.ip().is_loopback() {
            return Err(ClusterError::NotLoopback { address });
        }
        let failed = |source| ClusterError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            coordinator,
            clock: boottime_ns(),
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            streams: Mutex::new(Vec::new()),
        });
        let accepting = shared.clone();
        let acceptor = std::thread::Builder::new()
            .name("coordinator".to_owned())
            .spawn(move || accept(&listener, &accepting))
            .map_err(ClusterError::Thread)?;
        Ok(CoordinatorServer { address: bound, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
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
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
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

fn admit(stream: TcpStream, shared: &Arc<Shared>) {
    let stream = Arc::new(stream);
    if shared.connections.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
        shared.connections.fetch_sub(1, Ordering::SeqCst);
        let _ = stream.set_write_timeout(Some(Duration::from_millis(10)));
        let _ = write_line(&mut &*stream, &refusal(CoordinatorRefusal::Busy));
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

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(WRITE))?;
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while !shared.stopping.load(Ordering::SeqCst) && read_line(&mut reader, &mut line)?.is_some() {
        let answer = match serde_json::from_slice::<NumberedRequest>(&line) {
            Ok(question) => {
                let response = carry_out(shared, &question.request);
                // Read before the answer goes out, so that it lies between question and answer.
                let reading = |now_ns| ClockReading { clock: shared.clock, now_ns };
                let clock = shared.coordinator.clock_ns().map(reading);
                NumberedResponse { number: question.number, response, clock }
            }
            Err(_) => refusal(CoordinatorRefusal::Unreadable),
        };
        let unreadable = answer.response == Response::Refused(CoordinatorRefusal::Unreadable);
        write_line(&mut &*stream, &answer)?;
        if unreadable {
            break;
        }
    }
    Ok(())
}

/// To no question in particular.
fn refusal(refusal: CoordinatorRefusal) -> NumberedResponse {
    NumberedResponse { number: 0, response: Response::Refused(refusal), clock: None }
}

fn carry_out(shared: &Shared, request: &crate::request::CoordinatorRequest) -> Response {
    shared.coordinator.call(request).unwrap_or_else(|error| {
        // What was refused is an answer; after all else nobody knows what was carried out.
        tracing::error!(error = &error as &dyn std::error::Error, "a call of the coordinator failed");
        Response::Refused(CoordinatorRefusal::Stopped)
    })
}
