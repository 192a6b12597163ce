//! A cluster of several nodes, as its supervisor and its coordinator see it, and faults that are done to one
//! node. All of it goes over the socket for drills: the server must have been started with `--allow-drills`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::process::Pid;
use serde_json::{Value, json};

use crate::server::Server;
use crate::wait::{self, PATIENCE};

/// What was said at one time.
#[derive(Clone, Debug)]
pub struct View(Value);

impl View {
    fn list(&self, name: &str) -> &[Value] {
        self.0[name].as_array().map_or(&[], Vec::as_slice)
    }

    /// The pairs, by number.
    pub fn pairs(&self) -> &[Value] {
        self.list("pairs")
    }

    /// What survivors wrote down of nodes that died.
    pub fn incidents(&self) -> &[Value] {
        self.list("incidents")
    }

    /// A pair.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn pair(&self, pair: u64) -> &Value {
        let found = self.pairs().iter().find(|row| row["pair"] == pair);
        found.unwrap_or_else(|| panic!("there is no pair {pair}: {self:?}"))
    }

    fn node(&self, node: u64) -> &Value {
        let found = self.list("nodes").iter().find(|row| row["node"] == node);
        found.unwrap_or_else(|| panic!("there is no node {node}: {self:?}"))
    }

    /// A node's process, if there is one.
    pub fn process(&self, node: u64) -> Option<Pid> {
        let number = self.node(node)["pid"].as_i64()?;
        i32::try_from(number).ok().and_then(Pid::from_raw)
    }

    /// Every process of a node.
    pub fn processes(&self) -> Vec<Pid> {
        let numbers = self.list("nodes").iter().filter_map(|row| row["node"].as_u64());
        numbers.filter_map(|node| self.process(node)).collect()
    }

    /// Whether a node serves, or is ready to.
    pub fn serves(&self, node: u64) -> bool {
        self.node(node)["state"] == "serving"
    }

    /// Whether a pair is served by a node that runs.
    pub fn is_served(&self, pair: u64) -> bool {
        let row = self.pair(pair);
        row["state"] == "serving"
            && row["node"].as_u64().is_some_and(|node| self.serves(node))
            && self.list("leases").contains(&row["owner"])
    }

    /// Whether every node and every pair serves.
    pub fn is_healthy(&self) -> bool {
        let serving = |row: &Value| row["state"] == "serving";
        self.list("nodes").iter().all(serving)
            && !self.pairs().is_empty()
            && self.pairs().iter().all(|row| self.is_served(row["pair"].as_u64().unwrap_or(0)))
    }

    /// The pairs of each node, also of one that is down.
    pub fn owned(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut owned: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for row in self.list("nodes") {
            owned.insert(row["node"].as_u64().expect("a node has a number"), Vec::new());
        }
        for row in self.pairs() {
            let (node, pair) = (row["node"].as_u64(), row["pair"].as_u64());
            owned.entry(node.expect("a number")).or_default().push(pair.expect("a number"));
        }
        owned
    }

    /// The node that has most of the pairs.
    pub fn busiest(&self) -> u64 {
        self.owned().iter().max_by_key(|(_, pairs)| pairs.len()).map_or(0, |(node, _)| *node)
    }
}

impl Server {
    /// Asks the supervisor for something.
    ///
    /// # Panics
    /// If it refuses, or does not answer.
    pub fn ask(&self, request: &Value) -> Value {
        let answered = || -> std::io::Result<Value> {
            let mut stream = UnixStream::connect(self.folder().join("drill.socket"))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(format!("{request}\n").as_bytes())?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            Ok(serde_json::from_str(&line)?)
        };
        let answer = answered().unwrap_or_else(|error| panic!("{request}: {error}"));
        assert!(answer["refused"].is_null(), "{request}: {answer}");
        answer
    }

    /// The cluster now.
    pub fn view(&self) -> View {
        View(self.ask(&json!({"do": "status"}))["status"].take())
    }

    /// Waits until the cluster is as wanted.
    ///
    /// # Panics
    /// If it never is.
    #[allow(clippy::disallowed_methods, reason = "real processes have real time")]
    pub fn wait_view(&self, what: &str, wanted: impl Fn(&View) -> bool) -> View {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let started = Instant::now();
            let view = self.view();
            if wanted(&view) {
                return view;
            }
            assert!(Instant::now() < deadline, "not {what}: {view:?}");
            wait::rest_after(started.elapsed());
        }
    }

    /// Waits until every node and every pair serves.
    pub fn wait_healthy(&self) -> View {
        self.wait_view("healthy", View::is_healthy)
    }

    /// `kill -9` of a node, after which nobody is in its place until [`Self::start_node`].
    pub fn take_down(&self, node: u64) {
        let hours_ms = 7_200_000;
        self.ask(&json!({"do": "kill", "node": node, "down_ms": hours_ms}));
        self.wait_view("down", |view| view.process(node).is_none());
    }

    /// `kill -9` of a node, which is started again at once.
    pub fn kill_by_drill(&self, node: u64) {
        self.ask(&json!({"do": "kill", "node": node, "down_ms": 0}));
    }

    /// Puts a process in the place of a node that is down.
    pub fn start_node(&self, node: u64) {
        self.ask(&json!({"do": "restart", "node": node}));
    }
}
