//! Connections of the server: how many there may be at a time, and how long each may take.
//!
//! A client that sends a byte now and then must not hold a connection for ever, so signs of life are what the
//! server writes, never what the client sends. A request's head and a TLS handshake have a deadline, and a
//! connection on which nothing was written for long is closed. If all connections are taken, one is closed
//! for the next: of those that have shown no token first, however busy they are. `/livez`, `/metrics` and
//! whoever has a token are answered however many clients without one are slow, or ask all the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;

use crate::shared::Shared;

/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Where a request came from. Every request has one in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    is_known: Arc<AtomicBool>,
}

impl Peer {
    /// Whether its last request for what not everybody may see came from a caller that the node knows. The
    /// connections of such callers are the last to be closed to make room.
    pub(crate) fn set_known(&self, is_known: bool) {
        self.is_known.store(is_known, Ordering::Relaxed);
    }
}

/// How many connections there may be, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Connections at a time.
    pub(crate) count_max: usize,
    /// Time to begin TLS, and for the head of a request; a connection without a request is closed after it,
    /// too.
    pub(crate) head: Duration,
    /// A connection on which nothing was written for so long is closed.
    pub(crate) silence: Duration,
    /// A connection of a known caller on which something was written within this time is not closed to make
    /// room.
    pub(crate) spared: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            count_max: 256,
            head: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            spared: Duration::from_secs(1),
        }
    }
}

/// The connections that are open.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    tls: Option<TlsAcceptor>,
    open: Arc<Mutex<BTreeMap<u64, OpenConnection>>>,
    closed: Arc<Notify>,
    next_id: u64,
}

/// Dropping it closes the connection.
struct OpenConnection {
    last_write: Arc<Mutex<Instant>>,
    is_known: Arc<AtomicBool>,
    _close: oneshot::Sender<()>,
}

impl Connections {
    /// No connection yet. With a configuration for it, TLS is spoken on each.
    pub(crate) fn new(limits: ConnectionLimits, tls: Option<Arc<ServerConfig>>) -> Connections {
        let tls = tls.map(TlsAcceptor::from);
        Connections { limits, tls, open: Arc::default(), closed: Arc::default(), next_id: 0 }
    }

    /// Waits until one more connection can be taken. If there are too many, it closes one ([`to_close`]).
    pub(crate) async fn make_room(&self) {
        while let Err(wait) = self.close_surplus() {
            tokio::select! {
                () = sleep(wait) => {}
                () = self.closed.notified() => {}
            }
        }
        // Those that were taken before are served first: else many that come at once close one another.
        tokio::task::yield_now().await;
    }

    /// Closes a connection if there are too many.
    ///
    /// # Errors
    /// None may be closed for so long.
    fn close_surplus(&self) -> Result<(), Duration> {
        let mut open = lock(&self.open);
        if open.len() < self.limits.count_max {
            return Ok(());
        }
        let usage = |(id, one): (&u64, &OpenConnection)| Usage {
            id: *id,
            is_known: one.is_known.load(Ordering::Relaxed),
            silent: lock(&one.last_write).elapsed(),
        };
        let usages: Vec<Usage> = open.iter().map(usage).collect();
        let id = to_close(&usages, self.limits.spared)?;
        open.remove(&id);
        Ok(())
    }

    /// Counts a connection. The future serves it until it ends, is closed to make room, or the server stops.
    pub(crate) fn serve(
        &mut self,
        (stream, peer): (TcpStream, SocketAddr),
        router: Router,
        shared: Arc<Shared>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (limits, id, last_write) = (self.limits, self.next_id, Arc::new(Mutex::new(Instant::now())));
        self.next_id += 1;
        let is_known = Arc::new(AtomicBool::new(false));
        let from = Peer { address: peer, is_known: is_known.clone() };
        let tls = self.tls.clone();
        let (close, closing) = oneshot::channel();
        let opened = OpenConnection { last_write: last_write.clone(), is_known, _close: close };
        lock(&self.open).insert(id, opened);
        let counted = Counted { id, open: self.open.clone(), closed: self.closed.clone() };
        let stream = TimedStream {
            stream,
            silence: limits.silence,
            timer: Box::pin(sleep(limits.silence)),
            last_write,
        };
        async move {
            let _counted = counted;
            let served = async {
                let Some(tls) = tls else {
                    return serve_requests(stream, from, router, &shared, limits.head).await;
                };
                match tokio::time::timeout(limits.head, tls.accept(stream)).await {
                    Ok(Ok(stream)) => serve_requests(stream, from, router, &shared, limits.head).await,
                    Ok(Err(error)) => {
                        tracing::debug!(%error, %peer, "a connection does not speak TLS as it should")
                    }
                    Err(_) => tracing::debug!(%peer, "a connection took too long to begin TLS"),
                }
            };
            tokio::select! {
                () = served => {}
                _ = closing => tracing::debug!(%peer, "a connection was closed to make room"),
            }
        }
    }
}

/// Of so many places one may be an unknown caller's before known callers' silent connections are spared.
const STRANGERS_PART: usize = 4;

/// What decides which connection is closed to make room.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Lower ones are older.
    id: u64,
    is_known: bool,
    /// Since the last write.
    silent: Duration,
}

/// Which connection is closed to make room: one of an unknown caller if there is any, the most silent of
/// those that were silent for long enough, else the oldest. Known callers' connections come after those, and
/// only the silent ones of them; beside them, as long as unknown callers have a small part of the places.
///
/// # Errors
/// None may be closed for so long.
fn to_close(open: &[Usage], spared: Duration) -> Result<u64, Duration> {
    let idle = |one: &Usage| if one.silent < spared { Duration::ZERO } else { one.silent };
    // A known caller's next connection is a stranger's until it has asked: few of those shut nobody out.
    let strangers = open.iter().filter(|one| !one.is_known).count();
    let few = strangers * STRANGERS_PART <= open.len();
    let later = |one: &Usage| one.is_known && !(few && one.silent >= spared);
    let first = open.iter().min_by_key(|one| (later(one), Reverse(idle(one)), one.id));
    match first {
        Some(first) if !first.is_known || first.silent >= spared => Ok(first.id),
        _ => {
            let silent = open.iter().map(|one| one.silent).max();
            Err(spared.saturating_sub(silent.unwrap_or_default()))
        }
    }
}

/// Takes a connection out of the count at its end.
struct Counted {
    id: u64,
    open: Arc<Mutex<BTreeMap<u64, OpenConnection>>>,
    closed: Arc<Notify>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.id);
        self.closed.notify_one();
    }
}

/// Serves requests until the connection ends; at a stop the one under way is finished.
async fn serve_requests<S>(stream: S, from: Peer, router: Router, shared: &Shared, head: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (routes, peer) = (TowerToHyperService::new(router), from.address);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(from.clone());
        routes.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(HEAD_BYTES_MAX);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = shared.stopping() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, %peer, "a connection broke");
    }
}

/// A stream that fails when nothing was written on it for long.
struct TimedStream {
    stream: TcpStream,
    silence: Duration,
    timer: Pin<Box<Sleep>>,
    last_write: Arc<Mutex<Instant>>,
}

impl TimedStream {
    fn note_write(&mut self) {
        let now = Instant::now();
        *lock(&self.last_write) = now;
        self.timer.as_mut().reset(now + self.silence);
    }

    /// While nothing goes on, time runs.
    fn timed<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            return polled;
        }
        self.timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.timed(context, polled)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if polled.is_ready() {
            self.note_write();
        }
        self.timed(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of an unknown caller.
    fn stranger(id: u64, silent_ms: u64) -> Usage {
        Usage { id, is_known: false, silent: Duration::from_millis(silent_ms) }
    }

    fn known(id: u64, silent_ms: u64) -> Usage {
        Usage { is_known: true, ..stranger(id, silent_ms) }
    }

    #[test]
    fn to_close_takes_the_connections_of_known_callers_last() {
        let to_close = |open: &[Usage]| to_close(open, Duration::from_secs(1));
        let busy = [known(0, 9_000), stranger(1, 10), stranger(2, 900), known(3, 0)];
        assert_eq!(to_close(&busy), Ok(1), "the oldest of the busy ones");
        let idle = [known(0, 9_000), stranger(1, 10), stranger(2, 1_000), stranger(3, 2_000)];
        assert_eq!(to_close(&idle), Ok(3), "the most silent one");
        assert_eq!(to_close(&[known(0, 10), known(1, 3_000), known(2, 2_000)]), Ok(1));
        let few = [known(0, 9_000), known(1, 10), known(2, 10), stranger(3, 10)];
        assert_eq!(to_close(&few), Ok(0), "the stranger may be about to show a token");
        assert_eq!(to_close(&[known(0, 10), known(1, 600)]), Err(Duration::from_millis(400)));
    }
}
