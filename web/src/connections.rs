//! Connections of the server: how many there may be at a time, and how long each may take.
//!
//! A client that sends a byte now and then must not hold a connection for ever, so signs of life are what the
//! server writes, never what the client sends. A request's head and a TLS handshake have a deadline, and a
//! connection on which nothing was written for long is closed. If all connections are taken, the one that was
//! not written to for the longest time is closed: `/livez` and `/metrics` answer however many clients are
//! slow.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
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

/// The address that a request came from. Every request has one in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

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
    /// A connection on which something was written within this time is not closed to make room.
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
    _close: oneshot::Sender<()>,
}

impl Connections {
    /// No connection yet. With a configuration for it, TLS is spoken on each.
    pub(crate) fn new(limits: ConnectionLimits, tls: Option<Arc<ServerConfig>>) -> Connections {
        let tls = tls.map(TlsAcceptor::from);
        Connections { limits, tls, open: Arc::default(), closed: Arc::default(), next_id: 0 }
    }

    /// Waits until one more connection can be taken. If there are too many, it closes the one that was not
    /// written to for the longest time.
    pub(crate) async fn make_room(&self) {
        loop {
            let wait = {
                let mut open = lock(&self.open);
                if open.len() < self.limits.count_max {
                    return;
                }
                let last_writes = open.iter().map(|(id, one)| (*lock(&one.last_write), *id));
                let Some((last_write, id)) = last_writes.min() else { return };
                let Some(wait) =
                    self.limits.spared.checked_sub(last_write.elapsed()).filter(|wait| !wait.is_zero())
                else {
                    open.remove(&id);
                    return;
                };
                wait
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.closed.notified() => {}
            }
        }
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
        let tls = self.tls.clone();
        let (close, closing) = oneshot::channel();
        lock(&self.open).insert(id, OpenConnection { last_write: last_write.clone(), _close: close });
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
                    return serve_requests(stream, peer, router, &shared, limits.head).await;
                };
                match tokio::time::timeout(limits.head, tls.accept(stream)).await {
                    Ok(Ok(stream)) => serve_requests(stream, peer, router, &shared, limits.head).await,
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
async fn serve_requests<S>(stream: S, peer: SocketAddr, router: Router, shared: &Shared, head: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(peer));
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
