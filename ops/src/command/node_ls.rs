//! `cell node ls`: the nodes of the cluster, as the admin API returns them.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::api::{Api, ApiArgs, Missing, understand, warn_of_missing};
use crate::args::Global;
use crate::command::node_drain::{self, Drain};
use crate::exit::Exit;
use crate::output::{message, number, table};

/// Arguments of `cell node ls`.
#[derive(Debug, Args)]
pub(crate) struct NodeLsArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of `/api/v1/nodes`.
#[derive(Debug, Deserialize)]
struct Document {
    nodes: Vec<Node>,
    missing: Vec<Missing>,
}

#[derive(Debug, Deserialize)]
struct Node {
    node: u32,
    /// Empty where it is not known, as those of a node whose lease has ended.
    address: String,
    http: String,
    state: String,
    state_detail: Option<String>,
    uptime_ms: u64,
    lease_remaining_ms: u64,
    connections: u64,
    memory: Memory,
    pairs: Vec<u32>,
    /// None: it has not its pairs yet, or not any more.
    entries: Option<u64>,
    /// None: nothing is known of the last second.
    operations_per_second: Option<f64>,
    /// It is to be emptied.
    #[serde(default)]
    draining: bool,
}

#[derive(Debug, Deserialize)]
struct Memory {
    limit_bytes: u64,
    available_bytes: u64,
}

impl Memory {
    /// Whatever holds it: regions, logs' buffers, what is ready for takeovers, and the rest of the process.
    fn used_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.available_bytes)
    }
}

/// The state of a node whose lease has ended: its row has no figures.
const ABSENT: &str = "absent";

const HEADINGS: [&str; 11] = [
    "node",
    "server",
    "http",
    "state",
    "pairs",
    "entries",
    "operations",
    "connections",
    "memory",
    "lease",
    "up",
];

/// Prints a row for each node; exit code 6 if one did not answer.
pub(crate) fn run(global: &Global, arguments: &NodeLsArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let document = api.get("/api/v1/nodes")?.document;
    let parsed: Document = understand(&document, "of the nodes")?;
    message::print_document(global.json, document, || text(&parsed))?;
    if !global.json && parsed.nodes.iter().any(|node| node.draining) {
        match node_drain::list(&api) {
            Ok((drains, _)) => message::print_text(&drains_text(&drains))?,
            Err(failure) => message::warning(&format!("which nodes drain is not known: {}", failure.what)),
        }
    }
    Ok(warn_of_missing(&parsed.missing, "what is known of"))
}

/// A line for each node that drains, below the nodes.
fn drains_text(drains: &[Drain]) -> String {
    drains.iter().map(|drain| format!("{}\n", drain.line())).collect()
}

/// A row for each node, also for one that did not answer.
fn text(document: &Document) -> String {
    let known = document.nodes.iter().map(|node| (node.node, row(node)));
    let missing = document.missing.iter().map(|peer| (peer.node, missing_row(peer)));
    let mut rows: Vec<_> = known.chain(missing).collect();
    rows.sort_by_key(|(node, _)| *node);
    table::plain(&HEADINGS, &[0, 4, 5, 6, 7, 8, 9, 10], rows.into_iter().map(|(_, row)| row).collect())
}

fn row(node: &Node) -> Vec<String> {
    let place = |place: &str| if place.is_empty() { "-".to_owned() } else { place.to_owned() };
    let state = match &node.state_detail {
        Some(detail) => format!("{} ({detail})", node.state),
        None => node.state.clone(),
    };
    let state = if node.draining { format!("{state}, drains") } else { state };
    let mut cells = vec![node.node.to_string(), place(&node.address), place(&node.http), state];
    if node.state != ABSENT {
        let of = |used, all| format!("{} of {}", number::bytes(used), number::bytes(all));
        cells.extend([
            node.pairs.len().to_string(),
            node.entries.map_or_else(|| "-".to_owned(), number::count),
            node.operations_per_second.map_or_else(|| "-".to_owned(), number::rate),
            number::count(node.connections),
            of(node.memory.used_bytes(), node.memory.limit_bytes),
            number::time(Duration::from_millis(node.lease_remaining_ms)),
            number::time(Duration::from_millis(node.uptime_ms)),
        ]);
    }
    cells.resize(HEADINGS.len(), "-".to_owned());
    cells
}

fn missing_row(peer: &Missing) -> Vec<String> {
    let http = if peer.address.is_empty() { "-" } else { &peer.address };
    let mut cells = vec![peer.node.to_string(), "-".to_owned(), http.to_owned(), "no answer".to_owned()];
    cells.resize(HEADINGS.len(), "-".to_owned());
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(number: u32, state: &str) -> Value {
        json!({
            "node": number, "address": "127.0.0.1:7000", "http": "127.0.0.1:7080", "state": state,
            "state_detail": null, "uptime_ms": 61_000, "lease_remaining_ms": 2_500, "connections": 3,
            "memory": {"limit_bytes": 4 << 20, "available_bytes": 1 << 20, "process_bytes": 1 << 19},
            "pairs": [1, 4], "entries": 1_234,
            "operations_per_second": 1_500.0, "absent_since_unix_ms": null,
        })
    }

    #[test]
    fn text_has_a_row_for_nodes_that_are_absent_or_do_not_answer() {
        let nodes = json!([node(0, "serving"), node(2, "absent")]); // nobody has seen since when
        let missing = json!([{"node": 1, "address": "127.0.0.1:7081", "why": "no answer within 200 ms"}]);
        let document: Document =
            understand(&json!({"nodes": nodes, "missing": missing}), "of the nodes").unwrap();
        let text = text(&document);
        let cells = |line: usize| {
            let line = text.lines().nth(line).unwrap();
            line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect::<Vec<_>>()
        };
        let first = ["0", "127.0.0.1:7000", "127.0.0.1:7080", "serving", "2", "1,234", "1.50 k/s", "3"];
        assert_eq!(cells(1)[..8], first);
        assert_eq!(cells(1)[8..], ["3.00 MiB of 4.00 MiB", "2.50 s", "1 min 1 s"]);
        assert_eq!(cells(2)[..5], ["1", "-", "127.0.0.1:7081", "no answer", "-"]);
        assert_eq!(cells(3)[3..6], ["absent", "-", "-"]);
    }

    #[test]
    fn node_that_recovers_has_no_entries_to_count() {
        let mut recovering = node(0, "recovering");
        (recovering["entries"], recovering["pairs"]) = (json!(null), json!([]));
        let node: Node = understand(&recovering, "of the nodes").unwrap();
        assert_eq!(row(&node)[4..6], ["0", "-"]);
    }
}
