//! The admin API as commands use it: blocking requests to the first node that answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cell_resolver::look_up_within;
use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{Method, Request, Response};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, AsSendBody, Body};

use crate::args::parse_servers;
use crate::exit::{Exit, Failure};
use crate::hint::{CA_VARIABLE, Reached, SERVER_VARIABLE};
use crate::output::message;

/// How long a node may take to change something, or to say what it would change. It waits for its coordinator
/// up to three times, 4 s each, before it says what it knows of the change.
const CHANGE_DEADLINE: Duration = Duration::from_secs(20);
/// An answer that is longer is not read.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// A request's address is no longer: of one that is, no request can be made.
const URI_BYTES_MAX: usize = 65_534;
/// A text that is longer is not read.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// How a TLS server's answer to what is no TLS begins: an alert, of a version 3.x.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];
/// How long it may take to say so.
const TLS_PATIENCE: Duration = Duration::from_secs(1);

/// The node that is asked if none is named.
const HTTP_DEFAULT: &str = "127.0.0.1:7080";
/// The variable that names nodes' HTTP.
pub(crate) const HTTP_VARIABLE: &str = "CELL_HTTP";

/// Which nodes' admin API to ask.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ApiArgs {
    /// HTTP addresses of nodes, separated by commas: the first that answers does so for the whole cluster.
    /// With TLS, https://HOST:PORT. Without --http and --server, CELL_HTTP, then CELL_SERVER names them
    /// [default: 127.0.0.1:7080]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) http: Option<String>,
    /// A node's fabric address instead, as commands that read and write take it: the node says where its
    /// HTTP is
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "http", value_parser = parse_servers)]
    pub(crate) server: Option<String>,
    /// A token of the admin API, where the cluster wants one
    #[arg(long, value_name = "TOKEN", env = "CELL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A PEM file with the certificates by which nodes are trusted over TLS: their own, or those that
    /// signed them
    #[arg(long, value_name = "FILE", env = CA_VARIABLE)]
    pub(crate) ca: Option<PathBuf>,
}

/// How nodes are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Http(String),
    Fabric(String),
}

impl ApiArgs {
    /// What the arguments say comes before what the environment says.
    pub(crate) fn place(&self, variable: impl Fn(&str) -> Option<String>) -> Place {
        match (&self.http, &self.server) {
            (Some(http), _) => return Place::Http(http.clone()),
            (None, Some(server)) => return Place::Fabric(server.clone()),
            (None, None) => {}
        }
        match (variable(HTTP_VARIABLE), variable(SERVER_VARIABLE)) {
            (Some(http), _) => Place::Http(http),
            (None, Some(server)) => Place::Fabric(server),
            (None, None) => Place::Http(HTTP_DEFAULT.to_owned()),
        }
    }

    /// The same nodes, for hints.
    pub(crate) fn reached(&self) -> Reached {
        let reached = Reached::by_arguments(self.http.as_deref(), self.server.as_deref());
        reached.trusting(self.ca.as_deref())
    }

    /// A command in a hint, which asks the same nodes when it is copied.
    pub(crate) fn command(&self, command: &str) -> String {
        self.reached().command(command)
    }
}

/// The admin API of the nodes that were named.
pub(crate) struct Api {
    agent: Agent,
    /// How long a node may take to answer a question.
    deadline: Duration,
    /// Scheme and address of each.
    nodes: Vec<String>,
    token: Option<String>,
    /// How they were named.
    reached: Reached,
}

/// A node's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) document: Value,
    /// The document's revision, where it has one.
    pub(crate) etag: Option<String>,
}

/// A node whose answer is not in a document.
#[derive(Debug, Deserialize)]
pub(crate) struct Missing {
    pub(crate) node: u32,
    pub(crate) address: String,
    pub(crate) why: String,
}

/// Reads what is wanted of a document; `what` says what that is about.
///
/// # Errors
/// It has not that form.
pub(crate) fn understand<T: DeserializeOwned>(document: &Value, what: &str) -> Result<T, Failure> {
    T::deserialize(document).map_err(|error| {
        let what = format!("the node says {what} in a way that is not understood: {error}");
        Failure::new(Exit::Error, what).next("take the `cell` of the node's version")
    })
}

/// Warns of each node that did not answer; `what` of it is not shown. Then the exit code is 6.
pub(crate) fn warn_of_missing(missing: &[Missing], what: &str) -> Exit {
    for Missing { node, address, why } in missing {
        message::warning(&format!("{what} node {node} at {address} is not shown: {why}"));
    }
    if missing.is_empty() { Exit::Ok } else { Exit::Partial }
}

impl Api {
    /// The admin API of these nodes, which may take so long to answer a question; over TLS they are trusted
    /// by the certificates of a file.
    ///
    /// # Errors
    /// The trusted certificates cannot be read, or TLS is wanted without any; there are no nodes.
    pub(crate) fn of(
        nodes: Vec<String>,
        ca: Option<&Path>,
        token: Option<&str>,
        deadline: Duration,
    ) -> anyhow::Result<Api> {
        if nodes.is_empty() {
            let failure = Failure::usage("--http, or CELL_HTTP, names no node");
            return Err(failure.next("name nodes with --http HOST:PORT,…").into());
        }
        let mut config = Agent::config_builder()
            .timeout_global(Some(deadline))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("cell/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = ca {
            config = config.tls_config(tls(path)?);
        } else if nodes.iter().any(|node| node.starts_with("https://")) {
            let what = "over https, nodes are known by their certificates, and --ca is not given";
            let next = "name the file of tls_certificate_file with --ca FILE";
            return Err(Failure::usage(what).next(next).into());
        }
        Ok(Api {
            agent: config.build().into(),
            deadline,
            nodes,
            token: token.map(str::to_owned),
            reached: Reached::default(),
        })
    }

    /// The same; commands in what nodes say to do get this address.
    pub(crate) fn reached_by(self, reached: Reached) -> Api {
        Api { reached, ..self }
    }

    /// `GET path`.
    ///
    /// # Errors
    /// No node answers, or the answer is a problem.
    pub(crate) fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.send(&Method::GET, path, &[], None)
    }

    /// `GET path` of a document that shows what has just been changed, also by others: nodes keep documents
    /// for a second, and look at their cluster now and then. It may take as long.
    ///
    /// # Errors
    /// As for [`Api::get`].
    pub(crate) fn get_anew(&self, path: &str) -> Result<Answer, Failure> {
        self.send(&Method::GET, path, &[("cache-control", "no-cache")], None)
    }

    /// The first text that a node answers to `GET path`, whatever its status, and which node that is. No
    /// token is sent. None: no node answers in text.
    pub(crate) fn text(&self, path: &str) -> Option<(String, String)> {
        self.nodes.iter().find_map(|node| {
            let request = Request::builder().uri(format!("{node}{path}")).body(()).ok()?;
            let mut body = self.agent.run(request).ok()?.into_body();
            let text = body.with_config().limit(TEXT_BYTES_MAX).read_to_string().ok()?;
            Some((node.clone(), text))
        })
    }

    /// A request, with headers and a JSON body if there is one. It goes to the next node only if the one
    /// before cannot be reached: what a node may have done is not done twice.
    ///
    /// # Errors
    /// As for [`Api::get`].
    pub(crate) fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let mut unreachable = Vec::new();
        for node in &self.nodes {
            let uri = format!("{node}{path}");
            if uri.len() > URI_BYTES_MAX {
                return Err(too_long(uri.len()));
            }
            let mut request = Request::builder().method(method).uri(uri);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(token) = &self.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let sent = match body {
                Some(document) => {
                    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
                        request = request.header("content-type", "application/json");
                    }
                    request.body(document.to_string()).map(|request| self.run(request))
                }
                None => request.body(()).map(|request| self.run(request)),
            };
            let sent = sent.map_err(|error| {
                Failure::usage(format!("{node:?} is no HTTP address, or the token is none: {error}"))
            })?;
            match sent {
                Ok(response) => {
                    return answer(node, response).map_err(|failure| Failure {
                        next: failure.next.map(|next| self.reached.in_text(&next)),
                        ..failure
                    });
                }
                Err(error) if was_not_sent(&error) => unreachable.push(format!("{node}: {error}")),
                Err(error @ ureq::Error::Protocol(_)) => {
                    let no_http = || no_http(node, &error.to_string());
                    return Err(speaks_tls(node).map_or_else(no_http, wants_tls));
                }
                Err(ureq::Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Err(hung_up(node, &error));
                }
                Err(error) => return Err(no_answer(&format!("{node} did not answer: {error}"))),
            }
        }
        Err(no_answer(&format!("no node's admin API can be reached ({})", unreachable.join("; "))))
    }

    /// One request to one node.
    fn run(&self, request: Request<impl AsSendBody>) -> Result<Response<Body>, ureq::Error> {
        if *request.method() == Method::GET {
            return self.agent.run(request);
        }
        let deadline = self.deadline.max(CHANGE_DEADLINE);
        let request = self.agent.configure_request(request).timeout_global(Some(deadline)).build();
        self.agent.run(request)
    }
}

/// A node's address with its scheme, which is HTTP if there is none.
pub(crate) fn with_scheme(node: &str) -> String {
    let node = node.trim_end_matches('/');
    if node.contains("://") { node.to_owned() } else { format!("http://{node}") }
}

/// TLS that trusts the certificates of a file, and nobody else.
fn tls(path: &Path) -> Result<TlsConfig, Failure> {
    let wrong = |why: String| {
        let what = format!("cannot read certificates of {}: {why}", path.display());
        Failure::usage(what).next("--ca names a PEM file with certificates")
    };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| wrong(error.to_string()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(wrong("it has none".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = TlsConfig::builder().root_certs(RootCerts::from(certificates));
    Ok(config.unversioned_rustls_crypto_provider(provider).build())
}

/// Whether the node surely knows nothing of the request.
fn was_not_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        ureq::Error::Timeout(stage) => matches!(stage, ureq::Timeout::Connect | ureq::Timeout::Resolve),
        _ => false,
    }
}

fn no_answer(what: &str) -> Failure {
    Failure::new(Exit::Unreachable, what)
        .next("name living nodes with --http HOST:PORT,… or --server; `cell dev` prints their addresses")
}

/// A node that ends just now, or something else than HTTP.
fn hung_up(node: &str, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("{node} hung up: {error}")).next(
        "a node that ends does so, and so does Cell's fabric (7000 by default; --server takes it): name the HTTP \
         address",
    )
}

/// The address of what answers without TLS as one that wants TLS does: with an alert. None: it does not.
fn speaks_tls(node: &str) -> Option<&str> {
    let address = node.strip_prefix("http://")?;
    let to = look_up_within(address, TLS_PATIENCE).ok()?.into_iter().next()?;
    let mut stream = TcpStream::connect_timeout(&to, TLS_PATIENCE).ok()?;
    stream.set_read_timeout(Some(TLS_PATIENCE)).ok()?;
    // As long as the head of a record, and none: more would be unread when it closes, and its alert lost.
    stream.write_all(b"GET /").ok()?;
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    (head == TLS_ALERT).then_some(address)
}

/// The request's address, with a reason say, has so many bytes.
fn too_long(bytes: usize) -> Failure {
    let what = format!("the request's address would have {bytes} bytes, and {URI_BYTES_MAX} are the most");
    Failure::usage(what).next("give a shorter reason, or key")
}

/// It wants TLS, and was asked without.
fn wants_tls(address: &str) -> Failure {
    let what = format!("what answers at {address} speaks TLS, and it was asked without");
    Failure::new(Exit::Unreachable, what).next(format!(
        "give the file of its certificates (tls_certificate_file) with --ca FILE, and name it with \
         --http https://{address}"
    ))
}

/// Something answers there, and it is no HTTP server.
fn no_http(node: &str, why: &str) -> Failure {
    let what = format!("what answers at {node} speaks no HTTP: {why}");
    Failure::new(Exit::Unreachable, what)
        .next("the fabric's port is 7000 by default, that of HTTP 7080; --server takes the fabric's")
}

fn answer(node: &str, response: Response<Body>) -> Result<Answer, Failure> {
    let (head, mut body) = response.into_parts();
    let etag = head.headers.get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
    let text = body.with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let text = text.map_err(|error| no_answer(&format!("the answer of {node} broke off: {error}")))?;
    let document = serde_json::from_str::<Value>(&text);
    if !head.status.is_success() {
        return Err(problem(node, head.status.as_u16(), document.as_ref().ok()));
    }
    let document = document.map_err(|error| {
        let what = format!("{node} does not answer as a node of Cell does: {error}");
        Failure::new(Exit::Error, what).next("is that the HTTP address of a node?")
    })?;
    Ok(Answer { document, etag })
}

/// A problem document in words.
fn problem(node: &str, status: u16, document: Option<&Value>) -> Failure {
    let text = |name: &str| document.and_then(|it| it[name].as_str()).filter(|text| !text.is_empty());
    let what =
        text("detail").or(text("title")).map_or_else(|| format!("HTTP status {status}"), str::to_owned);
    let details = document.and_then(|it| it["errors"].as_array()).map_or(&[][..], Vec::as_slice);
    // Where one thing is wrong the sentence says it already.
    let is_new = |error: &&Value| !error["detail"].as_str().is_some_and(|words| what.contains(words));
    let details = details.iter().filter(is_new);
    let details: String = details.map(|error| format!("; {}", detail(error))).collect();
    let exit = match status {
        404 | 409 | 412 => Exit::NotFound,
        503 | 504 => Exit::Unreachable,
        401 | 403 => Exit::Error, // the command is right; its caller may not
        400..500 => Exit::Usage,
        _ => Exit::Error,
    };
    let what = if details.is_empty() { what.as_str() } else { what.trim_end_matches('.') };
    let failure = Failure::new(exit, format!("{node} answers: {what}{details}"));
    let failure = Failure { code: text("code").map(str::to_owned), ..failure };
    match (text("next"), document) {
        (Some(next), _) => failure.next(next),
        (None, Some(_)) => failure,
        (None, None) => {
            failure.next("is that the HTTP address of a node? it answers as another service does")
        }
    }
}

fn detail(error: &Value) -> String {
    let at = error["pointer"].as_str().unwrap_or_default().trim_start_matches('/');
    let words = error["detail"].as_str().unwrap_or_default();
    if at.is_empty() || words.contains(at) { words.to_owned() } else { format!("{at}: {words}") }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use serde_json::json;

    use super::*;

    fn arguments(http: &str) -> ApiArgs {
        ApiArgs { http: Some(http.to_owned()), token: Some("secret".to_owned()), ..ApiArgs::default() }
    }

    fn api(http: &str) -> Api {
        Api::new(&arguments(http)).unwrap()
    }

    /// A server that answers one request with `response`; gives what was asked.
    fn answering(response: &'static str) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
                let mut part = [0; 1024];
                let count = stream.read(&mut part).unwrap();
                asked.extend_from_slice(&part[..count]);
            }
            stream.write_all(response.as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
        });
        (address, served)
    }

    #[test]
    fn get_from_a_dead_node_goes_to_the_next() {
        let dead = "127.0.0.1:1";
        let (address, served) = answering(
            "HTTP/1.1 200 OK\r\netag: \"7\"\r\ncontent-length: 7\r\nconnection: close\r\n\r\n{\"a\":1}",
        );
        let Answer { document, etag } = api(&format!("{dead},{address}")).get("/api/v1/nodes").unwrap();
        assert_eq!((document, etag.as_deref()), (json!({"a": 1}), Some("\"7\"")));
        let asked = served.join().unwrap();
        assert!(asked.starts_with("GET /api/v1/nodes HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("authorization: Bearer secret\r\n"), "{asked}");
    }

    /// It said that the node's address was no HTTP address, or the token none.
    #[test]
    fn request_whose_address_is_too_long_says_so() {
        let node = "http://127.0.0.1:1";
        let path = |bytes: usize| format!("/{}", "x".repeat(bytes - node.len() - 1));
        let is_request = |bytes| Request::builder().uri(format!("{node}{}", path(bytes))).body(()).is_ok();
        assert!(is_request(URI_BYTES_MAX) && !is_request(URI_BYTES_MAX + 1));
        let failure = api(node).get(&path(URI_BYTES_MAX + 1)).unwrap_err();
        let what = "the request's address would have 65535 bytes, and 65534 are the most";
        assert_eq!(failure.what, what);
    }

    /// "speaks no HTTP: invalid HTTP version" did not say what helps.
    #[test]
    fn get_from_a_node_that_wants_tls_says_so_and_what_to_give() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
                stream.write_all(&[0x15, 0x03, 0x03, 0, 2, 2, 50]).unwrap(); // a fatal alert
            }
        });
        let failure = api(&address).get("/api/v1/nodes").unwrap_err();
        served.join().unwrap();
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.to_string().contains("speaks TLS"), "{failure:?}");
        let next = failure.next.unwrap();
        assert!(next.contains("--ca FILE") && next.contains(&format!("https://{address}")), "{next}");
    }

    #[test]
    fn get_from_what_speaks_neither_http_nor_tls_says_that_it_speaks_no_http() {
        let (address, served) = answering("SSH-2.0-OpenSSH\r\n\r\n");
        let failure = api(&address).get("/api/v1/nodes").unwrap_err();
        served.join().unwrap();
        assert!(failure.to_string().contains("speaks no HTTP"), "{failure:?}");
    }

    #[test]
    fn new_with_https_wants_certificates_and_names_a_file_without_any() {
        let failure = |arguments: &ApiArgs| Api::new(arguments).err().unwrap().to_string();
        let without = failure(&arguments("127.0.0.1:1, https://127.0.0.1:2/"));
        assert!(without.contains("--ca"), "{without}");
        let file = tempfile::NamedTempFile::new().unwrap();
        for (path, wanted) in [(file.path(), "it has none"), (Path::new("/nowhere"), "/nowhere: ")] {
            let arguments = ApiArgs { ca: Some(path.to_owned()), ..arguments("https://127.0.0.1:2") };
            let failure = failure(&arguments);
            assert!(failure.contains(wanted), "{failure}");
        }
        assert_eq!(api("http://a:1/,b:2").nodes, ["http://a:1", "http://b:2"]);
    }

    #[test]
    fn place_is_what_the_arguments_say_then_the_environment() {
        let args = |http: Option<&str>, server: Option<&str>| {
            let (http, server) = (http.map(str::to_owned), server.map(str::to_owned));
            ApiArgs { http, server, ..ApiArgs::default() }
        };
        let both = |name: &str| Some(if name == HTTP_VARIABLE { "h:1" } else { "s:1" }.to_owned());
        let server_alone = |name: &str| (name != HTTP_VARIABLE).then(|| "s:1".to_owned());
        let (http, fabric) = (|at: &str| Place::Http(at.to_owned()), |at: &str| Place::Fabric(at.to_owned()));
        assert_eq!(args(None, None).place(|_| None), http("127.0.0.1:7080"));
        assert_eq!(args(None, None).place(both), http("h:1"));
        assert_eq!(args(None, None).place(server_alone), fabric("s:1"));
        assert_eq!(args(None, Some("s:2")).place(both), fabric("s:2"));
        assert_eq!(args(Some("h:2"), None).place(both), http("h:2"));
        let words = |args: ApiArgs| args.command("cell tune ls");
        assert_eq!(words(args(None, Some("s:2"))), "`cell tune ls --server s:2`");
        assert_eq!(words(args(Some("h:2"), None)), "`cell tune ls --http h:2`");
        assert_eq!(words(args(None, None)), "`cell tune ls`");
    }

    #[test]
    fn commands_that_a_node_says_to_run_get_the_address_that_was_asked() {
        let (address, served) = answering(
            "HTTP/1.1 404 Not Found\r\ncontent-length: 61\r\nconnection: close\r\n\r\n{\"detail\": \"no pair.\", \
             \"next\": \"`cell region ls` lists them\"}",
        );
        let failure = api(&address).get("/").unwrap_err();
        assert_eq!(failure.next.unwrap(), format!("`cell region ls --http {address}` lists them"));
        served.join().unwrap();
    }

    #[test]
    fn get_when_nobody_is_there_is_unreachable_and_says_what_next() {
        let dead = "127.0.0.1:1";
        let failure = api(dead).get("/").unwrap_err();
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.what.contains(dead) && failure.next.is_some(), "{failure:?}");
    }

    /// A node on a busy machine was still asking its coordinator when the command had given it up: what a
    /// move would do was never seen.
    #[test]
    fn send_of_a_change_waits_for_longer_than_a_question() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let node = with_scheme(&listener.local_addr().unwrap().to_string());
        let api = || Api::of(vec![node.clone()], None, None, Duration::from_millis(50)).unwrap();
        thread::scope(|scope| {
            let change = scope.spawn(|| api().send(&Method::POST, "/", &[], Some(&json!({}))));
            let (mut stream, _) = listener.accept().unwrap();
            // Asked later, and its time is over.
            let unanswered = api().get("/").unwrap_err();
            assert_eq!(unanswered.exit, Exit::Unreachable, "{unanswered:?}");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").unwrap();
            assert_eq!(change.join().unwrap().unwrap().document, json!({}));
        });
    }

    #[test]
    fn problem_has_the_details_of_what_is_wrong() {
        let document = json!({
            "title": "Not valid", "detail": "nothing was changed.", "next": "`cell settings` lists the bounds",
            "errors": [{"pointer": "/client_cache_bytes", "detail": "takes at most 1 GiB"}],
        });
        let failure = problem("n", 422, Some(&document));
        assert_eq!(failure.what, "n answers: nothing was changed; client_cache_bytes: takes at most 1 GiB");
        assert_eq!((failure.exit, failure.next.is_some()), (Exit::Usage, true));
        let document = json!({
            "detail": "/query/kind: there is no kind `x`.",
            "errors": [{"pointer": "/query/kind", "detail": "there is no kind `x`"}],
        });
        let failure = problem("n", 400, Some(&document));
        assert_eq!(failure.what, "n answers: /query/kind: there is no kind `x`.", "it is said once");
        assert_eq!(problem("n", 412, None).exit, Exit::NotFound);
        assert_eq!([401, 403].map(|status| problem("n", status, None).exit), [Exit::Error; 2]);
        assert_eq!(problem("n", 502, None).what, "n answers: HTTP status 502");
    }

    #[test]
    fn answer_that_is_no_json_asks_whether_it_is_a_node() {
        let (address, served) =
            answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
        let failure = api(&address).get("/").unwrap_err();
        assert_eq!(failure.next.as_deref(), Some("is that the HTTP address of a node?"));
        served.join().unwrap();
    }
}
