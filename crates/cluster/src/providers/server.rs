//! Serves a coordinator to the other processes of its user, over a unix socket in the cluster's folder: one
//! thread a connection. Other users are answered no, root apart.

use std::io::{self, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use cell_terms::mutant::{Mutant, planted};

use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::local_socket::{self, PeerUser};
use crate::providers::json_lines::write_line;
use crate::providers::serving::{CONNECTIONS_MAX, IDLE, Serving, WRITE, refusal};
use crate::request::CoordinatorRefusal;
use crate::urgent;

/// A running server. Dropping it stops it.
pub struct CoordinatorServer {
    path: PathBuf,
    listener: Arc<UnixListener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    serving: Serving,
    peer_user: PeerUser,
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
            serving: Serving::new(coordinator),
            peer_user,
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
        self.shared.serving.stop();
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
        if shared.serving.is_stopping() {
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
    let refused = || (!admitted).then_some(CoordinatorRefusal::Stranger { user, own });
    let renewed = |lease| {
        if let Some(renewers) = shared.serving.coordinator().renewers() {
            renewers.renewed(lease, stream);
        }
    };
    shared.serving.answer_all(BufReader::new(stream), refused, renewed)
}
