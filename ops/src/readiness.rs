//! What the HTTP of a node says of it where its fabric says nothing: one that waits for its coordinator has
//! answers there alone, and so has one whose lease has run out.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::api::{Api, HTTP_VARIABLE, with_scheme};
use crate::dev::plan::HTTP_OFFSET;
use crate::environment;
use crate::output::message;

/// How long it may take: the fabric was waited for already.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whose HTTP to ask.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HttpArgs {
    /// HTTP addresses of nodes, separated by commas: they are asked where no server answers. Without it
    /// CELL_HTTP names them [default: the port 80 above the server's]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
}

impl HttpArgs {
    /// What the HTTP of these servers says, each by the address that was given or else by the usual port, and
    /// over TLS if there are certificates for it. No token is sent: readiness is for everybody, and who
    /// listens there is not known.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub(crate) fn ask_all(&self, servers: &str, ca: Option<&Path>) -> anyhow::Result<Vec<Readiness>> {
        let variable = || environment::variable(HTTP_VARIABLE)?.into_string().ok();
        match self.http.clone().or_else(variable) {
            Some(given) => given.split(',').filter_map(|http| ask(http.trim(), ca).transpose()).collect(),
            None => servers.split(',').filter_map(|of| ask_usual(of.trim(), ca).transpose()).collect(),
        }
    }
}

/// What the HTTP of one server says by its usual port; none if nobody says anything there.
///
/// # Errors
/// The arguments are wrong.
pub(crate) fn ask_usual(server: &str, ca: Option<&Path>) -> anyhow::Result<Option<Readiness>> {
    let Some(http) = usual(server) else { return Ok(None) };
    ask(&if ca.is_some() { format!("https://{http}") } else { http }, ca)
}

fn ask(http: &str, ca: Option<&Path>) -> anyhow::Result<Option<Readiness>> {
    let api = Api::of(vec![with_scheme(http)], ca, None, PATIENCE)?;
    Ok(api.text("/readyz?verbose").and_then(|(node, text)| Readiness::read(&node, &text)))
}

/// Where the HTTP of a server is, unless its settings say otherwise.
fn usual(server: &str) -> Option<String> {
    let (host, port) = server.rsplit_once(':')?;
    let port = port.parse::<u16>().ok()?.checked_add(HTTP_OFFSET)?;
    Some(format!("{host}:{port}"))
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// Who says it.
    http: String,
    checks: Vec<Check>,
    is_ready: bool,
}

/// One thing that it looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    name: String,
    ok: bool,
    seen: String,
}

impl Readiness {
    /// Reads `/readyz?verbose`: lines of `[+]NAME: SEEN` or `[-]NAME: SEEN`, and a last one. None: it is
    /// another service's.
    fn read(http: &str, text: &str) -> Option<Readiness> {
        let mut lines: Vec<&str> = text.lines().collect();
        let is_ready = match lines.pop()? {
            "ready" => true,
            "not ready" => false,
            _ => return None,
        };
        let check = |line: &&str| {
            let (ok, rest) = match line.strip_prefix("[+]") {
                Some(rest) => (true, rest),
                None => (false, line.strip_prefix("[-]")?),
            };
            let (name, seen) = rest.split_once(": ")?;
            Some(Check { name: name.to_owned(), ok, seen: seen.to_owned() })
        };
        let checks = lines.iter().map(check).collect::<Option<Vec<_>>>()?;
        Some(Readiness { http: http.to_owned(), checks, is_ready })
    }

    /// Whether it says that it serves reads.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Who says it.
    pub(crate) fn http(&self) -> &str {
        &self.http
    }

    /// What is not well, in one sentence.
    pub(crate) fn why(&self) -> String {
        let failed = self.checks.iter().filter(|check| !check.ok);
        let failed: Vec<String> = failed
            .map(|Check { name, seen, .. }| format!("{name}: {}", message::on_one_line(seen)))
            .collect();
        let word = if self.is_ready { "ready" } else { "not ready" };
        format!("{} says that the node is {word}: {}", self.http, failed.join("; "))
    }

    /// A sentence, then a line each check.
    pub(crate) fn text(&self) -> String {
        let word = if self.is_ready { "ready" } else { "not ready" };
        let sign = |ok| if ok { '+' } else { '-' };
        let line = |Check { name, ok, seen }: &Check| format!("[{}]{name}: {seen}\n", sign(*ok));
        let lines: String = self.checks.iter().map(line).collect();
        format!("{} says that the node is {word}:\n{lines}", self.http)
    }

    /// For JSON.
    pub(crate) fn document(&self) -> Value {
        let check = |Check { name, ok, seen }: &Check| json!({"name": name, "ok": ok, "seen": seen});
        let checks: Vec<Value> = self.checks.iter().map(check).collect();
        json!({"http": self.http, "ready": self.is_ready, "checks": checks})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_takes_what_a_node_says_and_nothing_else() {
        let text = "[-]reads: starting: waiting for the coordinator at c:1, tried 3 times: it refuses\n\
                    [+]warnings: none (advisory)\nnot ready\n";
        let found = Readiness::read("http://a:1", text).unwrap();
        assert!(!found.is_ready());
        let said = found.text();
        assert!(
            said.starts_with("http://a:1 says that the node is not ready:\n[-]reads: starting: wai"),
            "{said}"
        );
        let why = "reads: starting: waiting for the coordinator at c:1, tried 3 times: it refuses";
        assert_eq!(found.why(), format!("http://a:1 says that the node is not ready: {why}"));
        let checks = &found.document()["checks"];
        assert_eq!(
            checks[0]["seen"],
            "starting: waiting for the coordinator at c:1, tried 3 times: it refuses"
        );
        assert_eq!((&checks[1]["name"], &checks[1]["ok"]), (&"warnings".into(), &true.into()));
        assert!(Readiness::read("", "[+]reads: serving\nready\n").unwrap().is_ready());
        for other in ["", "ok\n", "<html>\nready\n", "[+]reads\nready"] {
            assert_eq!(Readiness::read("", other), None, "{other}");
        }
    }

    #[test]
    fn usual_is_80_ports_above_the_fabric() {
        assert_eq!(usual("127.0.0.1:7001").as_deref(), Some("127.0.0.1:7081"));
        assert_eq!(usual("[::1]:7000").as_deref(), Some("[::1]:7080"));
        for none in ["shm:/run/a", "host", "a:65500", ""] {
            assert_eq!(usual(none), None, "{none}");
        }
    }
}
