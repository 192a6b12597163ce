//! Drills of a bench's cluster: what `cell drill` says, and a node that is killed by one.

use std::io::{self, BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use cell_tests::server::Server;
use serde_json::Value;

use crate::options::BenchError;
use crate::patience;

/// What a drill saw that killed a node, in seconds from then on.
#[derive(Debug)]
pub(crate) struct Killed {
    /// Until the first pair of the node was served again.
    pub(crate) first_served: f64,
    /// Until all of them were.
    pub(crate) served: f64,
    /// The longest that a key waited.
    pub(crate) unavailable: f64,
    /// Bytes of images and logs that were replayed.
    pub(crate) replayed: f64,
    /// Pairs that the node had.
    pub(crate) pairs: f64,
}

impl Killed {
    fn of(said: &Value) -> Result<Self, BenchError> {
        let wrong = |what: &str| BenchError::Io(io::Error::other(format!("{what}: {said}")));
        if said["verdict"] != "PASS" {
            return Err(wrong("the drill did not pass"));
        }
        // A zero for what the drill does not know would pass for a figure.
        let number =
            |name: &str| said[name].as_f64().ok_or_else(|| wrong(&format!("the drill does not say {name}")));
        Ok(Self {
            first_served: number("first_served_ms")? / 1e3,
            served: number("served_ms")? / 1e3,
            unavailable: number("unavailable_ms_max")? / 1e3,
            // Nothing, where nobody had anything to replay.
            replayed: said["replayed_bytes"].as_f64().unwrap_or(0.0),
            pairs: number("pairs_owned")?,
        })
    }

    /// All of it, for people.
    pub(crate) fn words(&self) -> String {
        let Self { first_served, served, unavailable, replayed, pairs } = self;
        format!(
            "{pairs:.0} pairs, {:.0} MB replayed, first served after {first_served:.2} s, all after \
             {served:.2} s, a key waited {unavailable:.2} s at most",
            replayed / 1e6
        )
    }
}

/// Kills a node for so long by a drill; `killing` is called at that moment. Before, each of the others of
/// `nodes` keeps so many bytes of memory ready for what it takes over.
pub(crate) fn kill(
    server: &Server,
    node: u16,
    (nodes, ready): (u16, u64),
    down: Duration,
    killing: &mut dyn FnMut(),
) -> Result<Killed, BenchError> {
    for survivor in (0..nodes).filter(|survivor| *survivor != node) {
        server.wait_http(survivor, "/metrics", &format!("cell_memory_ready_bytes {ready}\n"));
    }
    let (number, down) = (node.to_string(), format!("{}ms", down.as_millis()));
    let fault = ["run", "kill", "--node", &number, "--duration", &down];
    let begins = format!("kill node {node}");
    let said = ask_and_hear(
        server,
        &[&fault[..], &["--patience", "300s", "--before", "1s"]].concat(),
        &mut |line| {
            if line == begins {
                killing();
            }
        },
    )?;
    Killed::of(&said)
}

/// The node with most pairs, once all of them serve.
pub(crate) fn busiest(server: &Server) -> Result<u16, BenchError> {
    let status = all_served(server)?;
    let [nodes, pairs] =
        ["nodes", "pairs"].map(|list| status[list].as_array().map_or(&[][..], Vec::as_slice));
    let of = |node: u16| pairs.iter().filter(|pair| pair["node"] == node).count();
    let nodes = 0..u16::try_from(nodes.len()).unwrap_or(u16::MAX);
    let busiest = nodes.max_by_key(|node| of(*node));
    busiest.ok_or_else(|| BenchError::Io(io::Error::other("the cluster has no nodes")))
}

/// What `cell drill ls` says, once all nodes and all pairs serve.
pub(crate) fn all_served(server: &Server) -> Result<Value, BenchError> {
    patience::until_some("every node and every pair serves", || {
        // A supervisor that has much to do may not answer just now.
        let status = ask(server, &["ls"]).ok()?;
        let serve = |list: &str| {
            let rows = status[list].as_array().filter(|rows| !rows.is_empty());
            rows.is_some_and(|rows| rows.iter().all(|row| row["state"] == "serving"))
        };
        (serve("nodes") && serve("pairs")).then_some(status)
    })
}

/// What `cell drill` says to this, in JSON.
fn ask(server: &Server, arguments: &[&str]) -> Result<Value, BenchError> {
    ask_and_hear(server, arguments, &mut |_| {})
}

/// As [`ask`]; hands on each line of what it notes meanwhile, as it comes.
pub(crate) fn ask_and_hear(
    server: &Server,
    arguments: &[&str],
    hear: &mut dyn FnMut(&str),
) -> Result<Value, BenchError> {
    let mut command = server.drill_command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pipes = child.stdout.take().zip(child.stderr.take());
    let (out, notes) = pipes.expect("its output is two pipes");
    let mut heard = String::new();
    let said = std::thread::scope(|scope| -> io::Result<String> {
        let said = scope.spawn(move || io::read_to_string(out));
        for line in BufReader::new(notes).lines() {
            let line = line?;
            hear(&line);
            heard.push_str(&line);
            heard.push('\n');
        }
        said.join().expect("reading does not panic")
    })?;
    child.wait()?;
    serde_json::from_str(&said).map_err(|_| BenchError::Io(io::Error::other(format!("no drill: {heard}"))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn killed_of_a_drill_that_says_less_than_all_or_does_not_pass_is_no_figure() {
        let whole = json!({
            "verdict": "PASS", "first_served_ms": 700.0, "served_ms": 1_500.0, "unavailable_ms_max": 1_600.5,
            "replayed_bytes": null, "pairs_owned": 4,
        });
        let killed = Killed::of(&whole).unwrap();
        assert_eq!((killed.first_served, killed.served, killed.unavailable), (0.7, 1.5, 1.6005));
        assert_eq!((killed.replayed, killed.pairs), (0.0, 4.0));
        for (name, instead, words) in [
            ("served_ms", Value::Null, "does not say served_ms"),
            ("first_served_ms", Value::Null, "does not say first_served_ms"),
            ("verdict", "FAIL".into(), "did not pass"),
            ("verdict", "INCONCLUSIVE".into(), "did not pass"),
        ] {
            let mut said = whole.clone();
            said[name] = instead;
            let error = Killed::of(&said).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
