//! `cell node ls`: the nodes of the cluster, as the admin API returns them.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::api::{Api, ApiArgs, Missing, understand, warn_of_missing};
use crate::args::Global;
use crate::command::node_drain::{self, ABSENT, Drain};
use crate::dev::scale_wire::SCALED_BY;
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
    let document = api.get_anew("/api/v1/nodes")?.document;
    let parsed: Document = understand(&document, "of the nodes")?;
    message::print_document(global.json, document, || text(&parsed))?;
    if !global.json && parsed.nodes.iter().any(|node| node.draining) {
        match node_drain::list_anew(&api) {
            Ok(drains) => {
                let scale = arguments.api.command("cell dev scale");
                message::print_text(&drains_text(&drains, &scale))?;
            }
            Err(failure) => message::warning(&format!("which nodes drain is not known: {}", failure.what)),
        }
    }
    Ok(warn_of_missing(&parsed.missing, "what is known of"))
}

/// A line for each node that drains, and one for all that were removed, below the nodes; and whether a
/// `cell dev scale` has not ended, with the command that sees it through.
fn drains_text(drains: &[Drain], scale: &str) -> String {
    let (removed, draining): (Vec<&Drain>, Vec<&Drain>) = drains.iter().partition(|of| of.is_removed());
    let mut text: String = draining.iter().map(|of| format!("{}\n", of.line())).collect();
    if !removed.is_empty() {
        let nodes: Vec<u32> = removed.iter().map(|of| of.node).collect();
        let were = if nodes.len() == 1 { "was" } else { "were" };
        text.push_str(&format!("{} {were} removed for good\n", number::nodes(&nodes)));
    }
    let scaled: Vec<u32> = draining.iter().filter(|of| of.who == SCALED_BY).map(|of| of.node).collect();
    if !scaled.is_empty() {
        let are = if scaled.len() == 1 { "is" } else { "are" };
        text.push_str(&format!(
            "a scale of the cluster has not ended: {} {are} to leave; unless it is under way, {scale} with \
             the number of nodes that is wanted sees it through\n",
            number::nodes(&scaled)
        ));
    }
    text
}

/// A row for each node, also for one that did not answer; below them what more is to be said of their
/// states, which may be long.
fn text(document: &Document) -> String {
    let known = document.nodes.iter().map(|node| (node.node, row(node)));
    let missing = document.missing.iter().map(|peer| (peer.node, missing_row(peer)));
    let mut rows: Vec<_> = known.chain(missing).collect();
    rows.sort_by_key(|(node, _)| *node);
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let mut text = table::plain(&HEADINGS, &[0, 4, 5, 6, 7, 8, 9, 10], rows);
    for node in &document.nodes {
        if let Some(detail) = &node.state_detail {
            text.push_str(&format!("node {}: {}\n", node.node, message::on_one_line(detail)));
        }
    }
    text
}

fn row(node: &Node) -> Vec<String> {
    let place = |place: &str| if place.is_empty() { "-".to_owned() } else { place.to_owned() };
    let state = if node.draining { format!("{}, drains", node.state) } else { node.state.clone() };
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

    /// All rows were as wide as the longest reason.
    #[test]
    fn text_has_reasons_below_the_table_and_no_row_is_wider_for_them() {
        let plain = json!({"nodes": [node(0, "serving"), node(1, "serving")], "missing": []});
        let mut detailed = plain.clone();
        detailed["nodes"][1]["state_detail"] = json!("the disk is nearly full; ".repeat(20));
        let text = |document: Value| text(&understand(&document, "of the nodes").unwrap());
        let (plain, detailed) = (text(plain), text(detailed));
        let rows: Vec<&str> = detailed.lines().take(3).collect();
        assert_eq!(rows, plain.lines().collect::<Vec<_>>());
        let reason = detailed.lines().nth(3).unwrap();
        assert!(reason.starts_with("node 1: the disk is nearly full; the disk"), "{reason}");
        assert_eq!(detailed.lines().count(), 4);
    }

    /// There was a line for each of them, after a scale to many for ever.
    #[test]
    fn drains_text_has_one_line_of_all_that_were_removed_and_one_of_a_scale_that_has_not_ended() {
        let drain = |node: u32, state: &str, who: &str| {
            let row = json!({"node": node, "state": state, "who": who, "pairs_left": 0, "bytes_left": null});
            understand::<Drain>(&row, "of drains").unwrap()
        };
        let removed: Vec<Drain> = (1..64).map(|node| drain(node, "removed", SCALED_BY)).collect();
        assert_eq!(drains_text(&removed, "`s`"), "nodes 1 to 63 were removed for good\n");
        assert_eq!(drains_text(&removed[..1], "`s`"), "node 1 was removed for good\n");
        let mut some = removed[..1].to_vec();
        some.extend([drain(2, "drained", "ann"), drain(3, "drained", SCALED_BY)]);
        let said = drains_text(&some, "`s`");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "node 2 drained: no pair is left");
        assert_eq!(lines[2], "node 1 was removed for good");
        assert!(lines[3].starts_with("a scale of the cluster has not ended: node 3 is to leave; "), "{said}");
        assert!(lines[3].contains("unless it is under way, `s` with the number"), "{said}");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn node_that_recovers_has_no_entries_to_count() {
        let mut recovering = node(0, "recovering");
        (recovering["entries"], recovering["pairs"]) = (json!(null), json!([]));
        let node: Node = understand(&recovering, "of the nodes").unwrap();
        assert_eq!(row(&node)[4..6], ["0", "-"]);
    }
}
