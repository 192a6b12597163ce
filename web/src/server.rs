//! The HTTP server of a node: one thread, a bounded number of connections, idle ones closed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep, sleep};

use crate::api::router::router;
use crate::host;
use crate::shared::Shared;
use crate::source::Sources;
use crate::tokens::TokensError;

/// Connections at a time; further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 256;
/// A connection on which nothing happens for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a shutdown waits for responses that are under way.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// Not a loopback address. Use one, and a tunnel or a proxy in front of it.
    #[error(
        "HTTP on {address} is refused: only loopback addresses can be served until TLS and tokens are built"
    )]
    NotLoopback {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The address cannot be bound; most likely another process has it.
    #[error("cannot serve HTTP on {address}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file of tokens is none.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// No thread or no runtime could be had.
    #[error("cannot start the HTTP server's thread")]
    Start(#[source] io::Error),
}

/// A running server. Dropping it shuts it down and waits for it.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Binds the address and serves until [`HttpServer::shutdown`].
    ///
    /// # Errors
    /// The address is not loopback or cannot be bound, the tokens cannot be read, or the system has no thread
    /// to give.
    pub fn start(address: SocketAddr, sources: Sources) -> Result<HttpServer, WebError> {
        HttpServer::check_address(address)?;
        let bind = |source| WebError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(WebError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::new(Shared::new(sources).guarded()?);
        let serve = move || runtime.block_on(serve(listener, shared, stopped));
        let thread = std::thread::Builder::new().name("cell-web".into()).spawn(serve);
        let thread = thread.map_err(WebError::Start)?;
        Ok(HttpServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Whether an address may be served, to be asked before anything else is started.
    ///
    /// # Errors
    /// [`WebError::NotLoopback`].
    pub fn check_address(address: SocketAddr) -> Result<(), WebError> {
        if host::is_permitted(address) { Ok(()) } else { Err(WebError::NotLoopback { address }) }
    }

    /// Where it serves; tells the port if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, finishes responses under way, at most for five seconds.
    pub fn shutdown(mut self) {
        self.stop_and_wait();
    }

    fn stop_and_wait(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(()); // the thread may have ended by itself
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the HTTP server's thread panicked");
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop_and_wait();
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>, stopped: oneshot::Receiver<()>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(inner) => Bounded { inner, permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)) },
        Err(error) => return tracing::error!(%error, "the HTTP listener cannot be polled"),
    };
    tokio::spawn(observe_each_second(Arc::clone(&shared)));
    let (drain, draining) = oneshot::channel();
    let streams = Arc::clone(&shared);
    let server = axum::serve(listener, router(Arc::clone(&shared))).with_graceful_shutdown(async move {
        let _ = stopped.await; // a dropped sender is a stop as well
        streams.stop();
        let _ = drain.send(());
    });
    let overdue = async {
        let _ = draining.await;
        sleep(SHUTDOWN_MAX).await;
    };
    tokio::select! {
        result = server => if let Err(error) = result {
            tracing::error!(%error, "the HTTP server ended");
        },
        () = overdue => tracing::warn!("connections were still open after a shutdown's grace; dropped"),
    }
    shared.drills.halt_all();
}

async fn observe_each_second(shared: Arc<Shared>) {
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    loop {
        interval.tick().await;
        shared.observe();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { shared.end_tuning().await });
    }
}

struct Bounded {
    inner: TcpListener,
    permits: Arc<Semaphore>,
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        let (stream, peer) = axum::serve::Listener::accept(&mut self.inner).await;
        (Connection { stream, idle: Box::pin(sleep(IDLE_MAX)), _permit: permit }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// A stream that counts against the bound and fails when nothing happens on it.
struct Connection {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// A result is a sign of life; without one, time runs on.
    fn timed<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.idle.as_mut().reset(Instant::now() + IDLE_MAX);
            return polled;
        }
        self.idle.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.timed(context, polled)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};

    use super::*;
    use crate::api::status::tests::snapshot;

    fn start() -> HttpServer {
        let source = Arc::new(snapshot());
        let sources = Sources::new(Arc::new(move || Arc::clone(&source)));
        HttpServer::start("127.0.0.1:0".parse().unwrap(), sources).unwrap()
    }

    fn ask(server: &HttpServer, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn get(server: &HttpServer, path: &str) -> String {
        ask(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    #[test]
    fn start_every_route_answers() {
        let server = start();
        assert!(get(&server, "/livez").starts_with("HTTP/1.1 200"));
        let ready = get(&server, "/readyz?verbose");
        assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("[+]lease: "), "{ready}");
        assert!(get(&server, "/metrics").contains("\r\ncontent-type: text/plain; version=0.0.4"));
        let open = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\
                    Connection: close\r\n\r\n";
        assert!(ask(&server, open).contains("\r\ncontent-type: application/openmetrics-text"));
        for path in [
            "status",
            "cluster",
            "cluster/status",
            "nodes",
            "regions",
            "wal",
            "recoveries",
            "events",
            "series?names=ops_get&seconds=5",
            "selector/pairs",
        ] {
            let response = get(&server, &format!("/api/v1/{path}"));
            assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
            assert!(response.contains("\"version\":1"), "{path}: {response}");
        }
        assert!(get(&server, "/status").contains("<h1>Cell</h1>"));
        assert!(get(&server, "/console/tree").contains("\r\ncontent-security-policy: default-src 'none'"));
        server.shutdown();
    }

    #[test]
    fn start_errors_are_problems_with_a_request_id() {
        let server = start();
        for (request, status, code) in [
            ("GET /nothing HTTP/1.1\r\nHost: localhost", "404", "not_found"),
            ("POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0", "405", "method_not_allowed"),
            ("GET /livez HTTP/1.1\r\nHost: evil.example", "421", "host_refused"),
            ("GET /api/v1/nodes?scope=x HTTP/1.1\r\nHost: localhost", "400", "bad_request"),
        ] {
            let response = ask(&server, &format!("{request}\r\nConnection: close\r\n\r\n"));
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
            assert!(response.contains("content-type: application/problem+json"), "{response}");
            assert!(response.contains(&format!("\"code\":\"{code}\"")), "{response}");
            assert!(response.contains("\r\nx-request-id: 4d-"), "{response}");
        }
    }

    #[test]
    fn start_on_another_address_is_refused() {
        let source = Arc::new(snapshot());
        let sources = Sources::new(Arc::new(move || Arc::clone(&source)));
        let result = HttpServer::start("0.0.0.0:0".parse().unwrap(), sources);
        assert!(matches!(result, Err(WebError::NotLoopback { .. })));
    }

    #[test]
    fn stream_brings_each_topic_and_ends_with_the_server() {
        let server = start();
        let stream = std::net::TcpStream::connect(server.address()).unwrap();
        let asked = "GET /api/v1/stream?topics=status,recoveries HTTP/1.1\r\nHost: localhost\r\n\r\n";
        (&stream).write_all(asked.as_bytes()).unwrap();
        let mut lines = BufReader::new(&stream).lines();
        let mut seen = |wanted: &str| lines.any(|line| line.unwrap().contains(wanted));
        assert!(seen("text/event-stream"));
        // Two seconds of both.
        for wanted in ["event: status", "id: ", "data: {", "event: recoveries", "event: status"] {
            assert!(seen(wanted), "{wanted}");
        }
        server.shutdown();
        assert!(!seen("nothing more comes"));
    }

    #[test]
    fn shutdown_with_an_idle_connection_open_does_not_hang() {
        let server = start();
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        server.shutdown();
    }
}
