//! The HTTP server of a node: one thread, which takes connections and observes the node once a second.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cell_fabric::{NodeTls, TLS_CERTIFICATE_FILE, TlsError};
use cell_node::TokensError;
use cell_terms::setting::Settings;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::api::router::router;
use crate::connections::{ConnectionLimits, Connections};
use crate::host;
use crate::setting;
use crate::shared::Shared;
use crate::source::Sources;

/// How long a shutdown waits for responses that are under way.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// Not a loopback address, without TLS or without tokens.
    #[error(
        "HTTP on {address} is refused: an address that is not loopback needs TLS (tls_certificate_file, \
         tls_key_file) and tokens (tokens_file)"
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
    /// The files of TLS are none.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No thread or no runtime could be had.
    #[error("cannot start the HTTP server's thread")]
    Start(#[source] io::Error),
}

/// A running server. Dropping it shuts it down and waits for it.
pub struct HttpServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    scheme: &'static str,
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
        HttpServer::start_within(ConnectionLimits::default(), address, sources, |_| {})
    }

    /// Within other limits; `prepare` is shown what handlers share before the first request.
    pub(crate) fn start_within(
        limits: ConnectionLimits,
        address: SocketAddr,
        sources: Sources,
        prepare: impl FnOnce(&Shared),
    ) -> Result<HttpServer, WebError> {
        let settings = sources.settings.as_ref().map(|store| store.given());
        HttpServer::check_address(address, settings.as_ref())?;
        let tls = match &sources.tls {
            Some(tls) => Some(tls.clone()),
            None => settings.as_ref().map(NodeTls::from_settings).transpose()?.flatten(),
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let serving = tls.as_ref().map(NodeTls::server);
        let bind = |source| WebError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(WebError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::new(Shared::new(sources).guarded(address, tls)?);
        prepare(&shared);
        let connections = Connections::new(limits, serving);
        let served = Arc::clone(&shared);
        let serve = move || {
            runtime.block_on(serve(listener, served, connections, stopped));
            runtime.shutdown_timeout(SHUTDOWN_MAX); // a thread may wait for a folder that hangs
        };
        let thread = std::thread::Builder::new().name("cell-web".into()).spawn(serve);
        let thread = thread.map_err(WebError::Start)?;
        Ok(HttpServer { address, shared, scheme, stop: Some(stop), thread: Some(thread) })
    }

    /// Whether an address may be served with these settings, to be asked before anything else is started.
    ///
    /// # Errors
    /// [`WebError::NotLoopback`].
    pub fn check_address(address: SocketAddr, settings: Option<&Settings>) -> Result<(), WebError> {
        match settings.is_some_and(HttpServer::is_guarded) || host::is_local_address(address) {
            true => Ok(()),
            false => Err(WebError::NotLoopback { address }),
        }
    }

    /// Whether the settings ask for TLS and for tokens, so that a node can be reached from elsewhere.
    #[must_use]
    pub fn is_guarded(settings: &Settings) -> bool {
        let given = |name| setting::text(settings, name).is_some();
        given(TLS_CERTIFICATE_FILE) && given(setting::TOKENS_FILE)
    }

    /// Where it serves; has the port if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How its addresses begin: `https` with TLS, else `http`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Reads the file of tokens again, and those of TLS that were replaced, and says in the log what became
    /// of it. If one is wrong, what it said stays what it was. Streams whose tokens are gone end. Says which
    /// files everybody may read or write.
    pub fn reload(&self) {
        self.shared.tls.look_now();
        self.shared.warn_of_exposed_files();
        match self.shared.read_tokens_again() {
            Ok(None) => {}
            Ok(Some(count)) => tracing::info!(count, "the tokens were read again"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the file of tokens is wrong: all tokens stay what they were");
            }
        }
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

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop_and_wait();
    }
}

async fn serve(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    mut connections: Connections,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the HTTP listener cannot be polled"),
    };
    shared.prepare().await;
    tokio::spawn(observe_each_second(Arc::clone(&shared)));
    let router = router(Arc::clone(&shared));
    let mut served = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = &mut stopped => break, // a dropped sender is a stop as well
            Some(_) = served.join_next() => continue,
            accepted = axum::serve::Listener::accept(&mut listener) => accepted,
        };
        // Only now: nobody is closed for a connection that does not come.
        tokio::select! {
            _ = &mut stopped => break,
            () = connections.make_room() => {}
        }
        served.spawn(connections.serve(accepted, router.clone(), Arc::clone(&shared)));
    }
    drop(listener);
    shared.stop();
    let ended = async { while served.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_MAX, ended).await.is_err() {
        tracing::warn!("connections were still open after a shutdown's grace; dropped");
    }
    shared.drills.halt_all();
}

async fn observe_each_second(shared: Arc<Shared>) {
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    loop {
        interval.tick().await;
        shared.observe();
        let (tuning, learning) = (Arc::clone(&shared), Arc::clone(&shared));
        tokio::spawn(async move { tuning.end_tuning().await });
        tokio::spawn(async move { learning.learn().await });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};

    use cell_fabric::TLS_SETTINGS;
    use cell_node::{ClusterSnapshot, NodeSnapshot};
    use cell_settings::{Registry, Section, SettingsStore};
    use cell_terms::setting::Source;
    use data_encoding::HEXLOWER;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::test_snapshot::snapshot;

    fn start() -> HttpServer {
        start_within(ConnectionLimits::default())
    }

    fn start_within(limits: ConnectionLimits) -> HttpServer {
        start_more(limits, |sources| sources)
    }

    fn start_more(limits: ConnectionLimits, more: impl FnOnce(Sources) -> Sources) -> HttpServer {
        let cluster = ClusterSnapshot { revision: 1, ..ClusterSnapshot::default() };
        let source = Arc::new(NodeSnapshot { cluster: Arc::new(cluster), ..snapshot() });
        let sources = more(Sources::new(Arc::new(move || Arc::clone(&source))));
        HttpServer::start_within(limits, "127.0.0.1:0".parse().unwrap(), sources, |_| {}).unwrap()
    }

    /// Whether a request is answered with 200 on a connection that stays open.
    fn is_answered(mut stream: &std::net::TcpStream, path: &str, token: &str) -> bool {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        if stream.write_all(head.as_bytes()).is_err() {
            return false;
        }
        let mut answer = BufReader::new(stream);
        let (mut status, mut length) = (String::new(), 0);
        let mut line = |text: &mut String| answer.read_line(text).is_ok_and(|bytes| bytes > 0);
        if !line(&mut status) {
            return false;
        }
        loop {
            let mut header = String::new();
            if !line(&mut header) {
                return false;
            }
            let header = header.trim_end().to_ascii_lowercase();
            match header.strip_prefix("content-length:") {
                Some(text) => length = text.trim().parse().unwrap(),
                None if header.is_empty() => break,
                None => {}
            }
        }
        answer.read_exact(&mut vec![0; length]).is_ok() && status.starts_with("HTTP/1.1 200")
    }

    /// Sends a byte every 10 ms until the server closes the connection, or for two minutes.
    fn is_cut_off_while_dripping(server: &HttpServer, begin: &[u8]) -> bool {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        stream.write_all(begin).unwrap();
        (0..12_000).any(|_| {
            let is_open = |error: io::Error| {
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            };
            stream.write_all(b"x").is_err()
                || stream.read(&mut [0; 1024]).map_or_else(|e| !is_open(e), |n| n == 0)
        })
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
        assert!(get(&server, "/console/tree").starts_with("HTTP/1.1 200"));
        server.shutdown();
    }

    #[test]
    fn start_errors_are_problems_with_a_request_id() {
        let server = start();
        for (request, status, code) in [
            ("GET /nothing HTTP/1.1\r\nHost: localhost", "404", "not_found"),
            ("POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0", "405", "method_not_allowed"),
            ("GET /livez HTTP/1.1\r\nHost: evil.example", "421", "host_refused"),
            ("GET http://evil.example/livez HTTP/1.1\r\nHost: localhost", "421", "host_refused"),
            ("GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost", "400", "bad_request"),
            ("GET /livez HTTP/1.1\r\nHost: localhost\r\nhost: evil.example", "400", "bad_request"),
            ("GET /livez HTTP/1.1\r\nHost: localhost:70800", "400", "bad_request"),
            ("GET /livez HTTP/1.1\r\nHost: user@localhost", "400", "bad_request"),
            ("GET /livez HTTP/1.1\r\nHost:", "400", "bad_request"),
            ("GET /livez HTTP/1.1\r\nX-Host: localhost", "400", "bad_request"),
            ("GET /console/console-old.js HTTP/1.1\r\nHost: localhost", "404", "not_found"),
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
    fn check_address_permits_another_address_with_tls_and_tokens_together_alone() {
        let address = "0.0.0.0:0".parse().unwrap();
        let (tls, tokens) = (TLS_CERTIFICATE_FILE, setting::TOKENS_FILE);
        for (given, is_permitted) in [(&[tls][..], false), (&[tokens], false), (&[tls, tokens], true)] {
            let mut settings = Settings::new(&[crate::SETTINGS, cell_fabric::TLS_SETTINGS]);
            let source = cell_terms::setting::Source::Flag;
            given.iter().for_each(|name| settings.set(name, "file", source).unwrap());
            let checked = HttpServer::check_address(address, Some(&settings));
            assert_eq!(checked.is_ok(), is_permitted, "{given:?}");
        }
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
        for wanted in ["event: status", "data: {", "event: recoveries", "event: status"] {
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

    /// 256 clients that sent a byte a minute held all connections for ever.
    #[test]
    fn slow_client_that_does_not_end_its_head_is_cut_off() {
        let limits = ConnectionLimits { head: Duration::from_millis(50), ..ConnectionLimits::default() };
        let server = start_within(limits);
        assert!(is_cut_off_while_dripping(&server, b"GET /livez HTTP/1.1\r\nX-Slow: "));
    }

    #[test]
    fn slow_client_that_keeps_a_connection_silent_is_cut_off() {
        let limits = ConnectionLimits {
            silence: Duration::from_millis(50),
            head: Duration::from_secs(3_600),
            ..ConnectionLimits::default()
        };
        let server = start_within(limits);
        assert!(is_cut_off_while_dripping(&server, b"GET /livez HTTP/1.1\r\nX-Slow: "));
    }

    #[test]
    fn start_when_all_connections_are_taken_the_most_silent_makes_room() {
        let limits = ConnectionLimits { count_max: 2, spared: Duration::ZERO, ..ConnectionLimits::default() };
        let server = start_within(limits);
        let connect = || std::net::TcpStream::connect(server.address()).unwrap();
        let mut first = connect();
        let mut second = connect();
        second.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(second.read(&mut [0; 1024]).unwrap() > 0);
        assert!(get(&server, "/livez").starts_with("HTTP/1.1 200"));
        assert_eq!(first.read(&mut [0; 1]).unwrap(), 0, "it was closed");
        second.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(second.read(&mut [0; 1024]).unwrap() > 0, "it was not");
    }

    /// Whoever had no token and asked on all connections all the time shut everybody out.
    #[test]
    fn busy_connections_without_a_token_make_room_and_those_with_one_stay() {
        const REGISTRY: Registry = Registry::new(&[
            Section { name: "tls", settings: TLS_SETTINGS },
            Section { name: "web", settings: crate::SETTINGS },
        ]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let hash = HEXLOWER.encode(&Sha256::digest("secret"));
        std::fs::write(file.path(), format!("viewer screen {hash}\n")).unwrap();
        let mut given = REGISTRY.defaults();
        given.set(setting::TOKENS_FILE, file.path().to_str().unwrap(), Source::Flag).unwrap();
        // None is idle while this test runs.
        let spared = Duration::from_secs(3_600);
        let limits = ConnectionLimits { count_max: 16, spared, ..ConnectionLimits::default() };
        let server =
            start_more(limits, |sources| sources.settings(Arc::new(SettingsStore::new(given)), REGISTRY));
        let connect = || {
            let stream = std::net::TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream
        };
        let strangers = |count| {
            let strangers: Vec<_> = std::iter::repeat_with(connect).take(count).collect();
            assert!(strangers.iter().all(|stream| is_answered(stream, "/livez", "")));
            strangers
        };
        let shows_token = |stream| is_answered(stream, "/api/v1/whoami", "secret");
        let early = connect();
        assert!(shows_token(&early));
        let mut first = strangers(15);
        assert!((0..20).all(|_| is_answered(&connect(), "/livez", "")));
        let later = strangers(14);
        let late = connect();
        assert!(shows_token(&late));
        let last = strangers(14);
        assert!(shows_token(&early) && shows_token(&late), "they kept their places");
        assert!(last.iter().all(|stream| is_answered(stream, "/livez", "")));
        assert_eq!(first[0].read(&mut [0; 1]).unwrap(), 0, "the oldest was closed");
        drop(later);
    }
}
