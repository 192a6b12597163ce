//! Serves a coordinator over a network: TLS 1.3 alone, a thread a connection, and nobody is answered who has
//! not shown a token first. The token is asked for again at each question: one that is taken back counts no
//! more.
//!
//! Who has shown none has a place among the strangers ([`Strangers`]) and seconds to do so; connections of
//! those that were let in are counted apart.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use cell_terms::mutant::{Mutant, planted};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::clock::boottime_ns;
use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::providers::json_lines::{
    HELLO_BYTES_MAX, Hello, Welcome, check_version, read_line_within, why_unreadable, write_line,
};
use crate::providers::serving::{CONNECTIONS_MAX, IDLE, Serving, WRITE};
use crate::providers::strangers::{Place, Strangers};
use crate::providers::timed_socket::{Limit, TimedSocket};
use crate::request::CoordinatorRefusal;
use crate::urgent;

/// How long TLS and the hello may take.
const HELLO_NS: u64 = 5_000_000_000;
/// How often it is said at most that somebody was refused.
const SAID_EVERY_NS: u64 = 1_000_000_000;

/// Whether who shows this token may ask the coordinator for everything. It is asked often, and must not wait.
pub type TokenCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A running server over TLS. Dropping it stops it.
pub struct CoordinatorTlsServer {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    door: Arc<Door>,
    acceptor: Option<JoinHandle<()>>,
}

struct Door {
    serving: Serving,
    tls: Arc<ServerConfig>,
    check: TokenCheck,
    strangers: Arc<Strangers>,
    connections: AtomicUsize,
    admitted: Mutex<Vec<Weak<TcpStream>>>,
    said_ns: AtomicU64,
}

impl CoordinatorTlsServer {
    /// Listens at `address` and speaks TLS as `tls` says, which may follow files that change. Whoever shows a
    /// token that passes `check` may do everything.
    ///
    /// # Errors
    /// [`ClusterError::ListenAt`].
    pub fn start(
        coordinator: Arc<dyn Coordinator>,
        address: SocketAddr,
        tls: Arc<ServerConfig>,
        check: TokenCheck,
    ) -> Result<CoordinatorTlsServer, ClusterError> {
        let failed = |source| ClusterError::ListenAt { address, source };
        let listener = Arc::new(TcpListener::bind(address).map_err(failed)?);
        let address = listener.local_addr().map_err(failed)?;
        let door = Arc::new(Door {
            serving: Serving::new(coordinator),
            tls,
            check,
            strangers: Arc::default(),
            connections: AtomicUsize::new(0),
            admitted: Mutex::default(),
            said_ns: AtomicU64::new(0),
        });
        let (accepting, listening) = (door.clone(), listener.clone());
        let acceptor = std::thread::Builder::new()
            .name("coordinator".to_owned())
            .spawn(move || accept(&listening, &accepting))
            .map_err(ClusterError::Thread)?;
        Ok(CoordinatorTlsServer { address, listener, door, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections at present whose peers have shown a token.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.door.connections.load(Ordering::Relaxed)
    }

    /// Connections at present whose peers have shown none yet.
    #[must_use]
    pub fn strangers(&self) -> usize {
        self.door.strangers.count()
    }
}

impl Drop for CoordinatorTlsServer {
    fn drop(&mut self) {
        self.door.serving.stop();
        // Wakes the acceptor, which looks whether it is to stop.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.door.strangers.close();
        for stream in self.door.admitted().drain(..) {
            if let Some(stream) = stream.upgrade() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

fn accept(listener: &TcpListener, door: &Arc<Door>) {
    // With it those that it starts, as at the unix socket: a renewal may come again over a new connection.
    urgent::run_first();
    for stream in listener.incoming() {
        if door.serving.is_stopping() {
            return;
        }
        match stream {
            Ok(stream) => take(stream, door),
            Err(error) => {
                tracing::warn!(%error, "the coordinator could not take a connection");
                // Out of descriptors, most likely: let some go before the next try.
                std::thread::park_timeout(Duration::from_millis(50));
            }
        }
    }
}

fn take(stream: TcpStream, door: &Arc<Door>) {
    let Ok(peer) = stream.peer_addr() else { return }; // it has gone
    let _ = stream.set_nodelay(true); // slower without, and right
    let stream = Arc::new(stream);
    let place = door.strangers.enter(peer.ip(), &stream);
    let serving = door.clone();
    let thread = std::thread::Builder::new().name("coordinator-peer".to_owned()).spawn(move || {
        if let Err(error) = serve(&stream, peer, place, &serving) {
            tracing::debug!(%error, %peer, "a connection of the coordinator ended");
        }
    });
    if let Err(error) = thread {
        tracing::warn!(%error, "the coordinator could not start a thread");
    }
}

fn serve(stream: &Arc<TcpStream>, peer: SocketAddr, place: Place, door: &Arc<Door>) -> io::Result<()> {
    let until = Limit::Until(boottime_ns().saturating_add(HELLO_NS));
    let connection = ServerConnection::new(door.tls.clone()).map_err(io::Error::other)?;
    let socket = TimedSocket::new(stream.clone(), until);
    let mut reader = BufReader::new(StreamOwned::new(connection, socket));
    let (mut line, mut written) = (Vec::new(), Vec::new());
    if read_line_within(HELLO_BYTES_MAX, &mut reader, &mut line)?.is_none() {
        return Ok(());
    }
    let (welcome, guest) = match door.judge(&line) {
        Ok(guest) => (Welcome::Welcome, Some(guest)),
        Err(refusal) => {
            door.say(peer, refusal);
            (Welcome::Refused(refusal), None)
        }
    };
    write_line(reader.get_mut(), &mut written, &welcome)?;
    reader.get_mut().flush()?;
    let Some(guest) = guest else { return Ok(()) };
    door.remember(stream);
    drop(place);
    reader.get_mut().sock.set_limit(Limit::Each { read: IDLE, write: WRITE });
    let refused = || (!door.passes(&guest.token)).then_some(CoordinatorRefusal::Token);
    door.serving.answer_all(reader, refused, |_| {})
}

/// Somebody who was let in. Dropping it gives the connection's place back.
struct Guest {
    door: Arc<Door>,
    token: String,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.door.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Door {
    /// Who said this first, if they are let in.
    fn judge(self: &Arc<Self>, line: &[u8]) -> Result<Guest, CoordinatorRefusal> {
        let hello = serde_json::from_slice::<Hello>(line).map_err(|_| why_unreadable(line))?;
        check_version(hello.version)?;
        if !self.passes(&hello.token) {
            return Err(CoordinatorRefusal::Token);
        }
        let before = self.connections.fetch_add(1, Ordering::SeqCst);
        let guest = Guest { door: self.clone(), token: hello.token };
        if before >= CONNECTIONS_MAX { Err(CoordinatorRefusal::Busy) } else { Ok(guest) }
    }

    fn passes(&self, token: &str) -> bool {
        (self.check)(token) || planted(Mutant::CoordinatorTokenUnasked)
    }

    /// Has it closed when the server stops.
    fn remember(&self, stream: &Arc<TcpStream>) {
        let mut admitted = self.admitted();
        admitted.retain(|stream| stream.strong_count() > 0);
        admitted.push(Arc::downgrade(stream));
        drop(admitted);
        if self.serving.is_stopping() {
            let _ = stream.shutdown(Shutdown::Both); // it may have come after that
        }
    }

    fn admitted(&self) -> MutexGuard<'_, Vec<Weak<TcpStream>>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that somebody was refused, now and then.
    fn say(&self, peer: SocketAddr, refusal: CoordinatorRefusal) {
        if is_to_be_said(&self.said_ns, boottime_ns()) {
            tracing::warn!(%peer, %refusal, "the coordinator has let somebody not in");
        }
    }
}

/// Whether something is to be said now, if it was said last then; it counts as said.
fn is_to_be_said(last_ns: &AtomicU64, now_ns: u64) -> bool {
    let said_ns = last_ns.load(Ordering::Relaxed);
    let is_due = said_ns == 0 || now_ns.saturating_sub(said_ns) >= SAID_EVERY_NS;
    // What is not said puts nothing off: who is refused all the time is reported again and again.
    is_due && last_ns.compare_exchange(said_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_go_on_are_said_every_second() {
        let last_ns = AtomicU64::new(0);
        // Each tenth of a second somebody is refused.
        let said = (0..30).map(|turn| SAID_EVERY_NS * (100 + turn) / 10);
        let said = said.filter(|now_ns| is_to_be_said(&last_ns, *now_ns));
        assert_eq!(said.count(), 3);
    }
}
