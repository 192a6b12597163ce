//! A cluster whose truth the test knows: how many entries it has, and which node has which of them. What its
//! documents say is held against that, also while a part of it is away.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::server::Server;
use crate::traffic::spread;
use crate::wait;

/// Entries that it is filled with.
const ENTRIES: u64 = 600;
/// Its nodes.
const NODES: u16 = 3;
/// A lease within which a node may stand still for a while, and that is waited for when one has died.
const FLAGS: [&str; 5] =
    ["--nodes=3", "--allow-drills", "--slot-bytes=8MiB", "--lease-ms=8s", "--coordinator-deadline-ms=1s"];

/// Three nodes that hold [`KnownCluster::entries`] entries and are asked by nobody.
pub struct KnownCluster {
    /// The cluster, to do something to its parts.
    pub server: Server,
    by_node: BTreeMap<u64, u64>,
}

impl KnownCluster {
    /// Starts and fills it, and waits until every node shows all.
    ///
    /// # Panics
    /// If it cannot be started or filled.
    pub fn start() -> Self {
        let server = Server::start_with(&FLAGS);
        server.wait_healthy();
        let line = |number| format!("{}\tvalue\n", key(number).escape_ascii());
        let file = server.folder().with_file_name("known.tsv");
        fs::write(&file, (0..ENTRIES).map(line).collect::<String>()).expect("the folder can be written");
        let loaded = server.cell(&["load", file.to_str().expect("it is text")]);
        assert_eq!(loaded.code, Some(0), "{loaded:?}");
        let mut known = Self { server, by_node: BTreeMap::new() };
        for node in 0..NODES {
            let all = || Some(known.entries_by_node(node)).filter(|of| of.values().sum::<u64>() == ENTRIES);
            let by_node = wait::until_some("each node shows all entries", all);
            known.by_node = by_node;
        }
        known
    }

    /// How many entries it has.
    pub fn entries(&self) -> u64 {
        ENTRIES
    }

    /// How many of them a node has.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn entries_of(&self, node: u64) -> u64 {
        self.by_node[&node]
    }

    /// The key of an entry, by its number.
    pub fn key(&self, number: u64) -> Vec<u8> {
        key(number % ENTRIES)
    }

    /// Its nodes.
    pub fn nodes(&self) -> std::ops::Range<u16> {
        0..NODES
    }

    /// A count of a node's metrics.
    ///
    /// # Panics
    /// If it has none of this name.
    pub fn metric(&self, node: u16, name: &str) -> u64 {
        let (_, text) = wait::until_some("the node answers", || self.server.http_of(node, "/metrics"));
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} is no count in\n{text}"))
    }

    /// A document as a node answers it, a path below `/api/v1`.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn document(&self, node: u16, path: &str) -> Value {
        let path = format!("/api/v1/{path}");
        let answer = wait::until_some("the node answers", || self.server.http_of(node, &path));
        assert_eq!(answer.0, 200, "{path}: {}", answer.1);
        serde_json::from_str(&answer.1).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.1))
    }

    /// Waits until a node's document is as it should be, and gives it.
    pub fn wait_document(&self, node: u16, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait::until_some(what, || Some(self.document(node, path)).filter(&wanted))
    }

    /// The entries that a node shows of each.
    fn entries_by_node(&self, node: u16) -> BTreeMap<u64, u64> {
        let document = self.document(node, "nodes");
        let number = |row: &Value, name: &str| row[name].as_u64().expect("a number");
        rows(&document, "nodes").iter().map(|row| (number(row, "node"), number(row, "entries"))).collect()
    }
}

fn key(number: u64) -> Vec<u8> {
    spread(number, &format!("-{number}"))
}

/// A list of a document.
///
/// # Panics
/// If there is none of this name.
pub fn rows<'d>(document: &'d Value, name: &str) -> &'d [Value] {
    document[name].as_array().unwrap_or_else(|| panic!("`{name}` is a list: {document}"))
}
