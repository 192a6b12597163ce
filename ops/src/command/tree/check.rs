//! `cell tree check`: has the nodes check their parts of the tree while they serve, over the admin API.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use ureq::http::Method;

use crate::api::{Api, ApiArgs, Missing, understand, warn_of_missing};
use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::{bar, message, number, table};
use crate::signal;

/// How often it is asked how far the check is.
const PERIOD: Duration = Duration::from_millis(200);
/// How long the nodes may not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `cell tree check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Deserialize)]
struct Started {
    operation: String,
}

/// What is read of `/api/v1/operations/{id}`.
#[derive(Debug, Deserialize)]
struct Operation {
    done: bool,
    duration_us: Option<u64>,
    tree_nodes: u64,
    /// Tree nodes in use when the check began.
    tree_nodes_all: u64,
    entries: u64,
    violations: u64,
    /// Pairs that nobody has gone through.
    unchecked_pairs: Vec<u32>,
    nodes: Vec<Part>,
    missing: Vec<Missing>,
}

#[derive(Debug, Deserialize)]
struct Part {
    node: u32,
    tree_nodes: u64,
    entries: u64,
    violations: u64,
    duration_us: Option<u64>,
    pairs: Vec<u32>,
    found: Vec<Fault>,
}

#[derive(Debug, Deserialize)]
struct Fault {
    pair: u32,
    slot: u32,
    /// The tree node's place in the slot.
    index: u32,
    what: String,
}

/// Has the tree checked, and prints what was found; exit code 7 if a rule is broken, 6 if a part is missing.
pub(crate) fn run(global: &Global, arguments: &CheckArgs) -> anyhow::Result<Exit> {
    let stop = signal::stop_flag()?;
    let api = Api::new(&arguments.api)?;
    let started = api.send(&Method::POST, "/api/v1/tree:check", &[], Some(&serde_json::json!({})))?;
    let started: Started = understand(&started.document, "that it checks the tree")?;
    let (document, operation) = wait(&api, &started.operation, &stop)?;
    message::print_document(global.json, document, || text(&operation))?;
    let partial = warn_of_missing(&operation.missing, "the tree at");
    for pair in &operation.unchecked_pairs {
        message::warning(&format!("pair {pair} was checked by nobody: no node that answers serves it"));
    }
    Ok(match (operation.violations, operation.unchecked_pairs.is_empty()) {
        (0, true) => partial,
        (0, false) => Exit::Partial,
        _ => Exit::VerificationFailed,
    })
}

/// Waits for the end of the check, and shows how far it is.
fn wait(api: &Api, id: &str, stop: &AtomicBool) -> anyhow::Result<(Value, Operation)> {
    let bar = bar::Bar::new("checking", None, false);
    let mut answered = Instant::now();
    loop {
        match api.get(&format!("/api/v1/operations/{id}")) {
            Ok(answer) => {
                answered = Instant::now();
                let operation: Operation = understand(&answer.document, "how far the check is")?;
                if operation.done {
                    bar.finish();
                    return Ok((answer.document, operation));
                }
                bar.set(operation.tree_nodes, progress(&operation));
            }
            Err(failure) if failure.exit == Exit::Unreachable && answered.elapsed() < PATIENCE => {}
            Err(failure) => return Err(failure.into()),
        }
        if stop.load(Ordering::Relaxed) {
            let what = format!("interrupted; the check {id} goes on");
            return Err(Failure::new(Exit::Interrupted, what).into());
        }
        thread::sleep(PERIOD);
    }
}

fn progress(operation: &Operation) -> String {
    let Operation { tree_nodes, tree_nodes_all, violations, .. } = operation;
    let percent = (tree_nodes.saturating_mul(100) / (*tree_nodes_all).max(1)).min(100);
    let nodes = format!("{} of {} tree nodes", number::count(*tree_nodes), number::count(*tree_nodes_all));
    let found = match violations {
        0 => String::new(),
        found => format!(", {}", number::counted(*found, "violation", "violations")),
    };
    format!("{percent} %, {nodes}{found}")
}

fn text(operation: &Operation) -> String {
    let verdict = match operation.violations {
        0 => "no violations".to_owned(),
        found => number::counted(found, "violation", "violations").to_uppercase(),
    };
    let mut text = format!(
        "{verdict}: {} with {} in {}{}\n\n",
        number::counted(operation.tree_nodes, "tree node", "tree nodes"),
        number::counted(operation.entries, "entry", "entries"),
        number::time(Duration::from_micros(operation.duration_us.unwrap_or(0))),
        if operation.missing.is_empty() { "" } else { ", of the nodes that answered" },
    );
    let headings = ["node", "pairs", "tree nodes", "entries", "violations", "took"];
    let rows = operation.nodes.iter().map(row).chain(operation.missing.iter().map(missing_row));
    text.push_str(&table::plain(&headings, &[0, 2, 3, 4, 5], rows.collect()));
    let faults: Vec<Vec<String>> = operation
        .nodes
        .iter()
        .flat_map(|part| part.found.iter().map(|fault| fault_row(part, fault)))
        .collect();
    if !faults.is_empty() {
        let listed = faults.len() as u64;
        let headings = ["node", "pair", "slot", "tree node", "what"];
        text.push_str(&format!("\n{}", table::plain(&headings, &[0, 1, 2, 3], faults)));
        if listed < operation.violations {
            text.push_str(&format!("and {} more\n", number::count(operation.violations - listed)));
        }
    }
    text
}

fn row(part: &Part) -> Vec<String> {
    let pairs: Vec<String> = part.pairs.iter().map(u32::to_string).collect();
    let took = part.duration_us.map(|us| number::time(Duration::from_micros(us)));
    vec![
        part.node.to_string(),
        if pairs.is_empty() { "-".to_owned() } else { pairs.join(",") },
        number::count(part.tree_nodes),
        number::count(part.entries),
        number::count(part.violations),
        took.unwrap_or_else(|| "not over".to_owned()),
    ]
}

fn missing_row(peer: &Missing) -> Vec<String> {
    let mut cells = vec![peer.node.to_string()];
    cells.resize(5, "-".to_owned());
    cells.push("no answer".to_owned());
    cells
}

fn fault_row(part: &Part, fault: &Fault) -> Vec<String> {
    let Fault { pair, slot, index, what } = fault;
    let numbers = [part.node, *pair, *slot, *index].map(|number| number.to_string());
    [&numbers[..], &[message::on_one_line(what)]].concat()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn operation(violations: u64) -> Operation {
        let fault = json!({"pair": 3, "slot": 1, "index": 7, "what": "its fences are wrong"});
        let found = if violations > 0 { vec![fault] } else { Vec::new() };
        let part = json!({
            "node": 0, "done": true, "tree_nodes": 10, "tree_nodes_all": 10, "entries": 1_200,
            "violations": violations, "duration_us": 12_000, "pairs": [1, 3], "found": found,
        });
        let document = json!({
            "version": 1, "operation": "tree_check", "id": "check-0-1", "runner": 0, "done": true,
            "state": "incomplete", "begun_unix_ms": 1, "duration_us": 12_000, "tree_nodes": 10,
            "tree_nodes_all": 40, "entries": 1_200, "violations": violations, "unchecked_pairs": [2],
            "nodes": [part], "missing": [{"node": 1, "address": "a:1", "why": "it is gone"}],
        });
        understand(&document, "how far the check is").unwrap()
    }

    #[test]
    fn text_has_a_row_for_each_node_and_each_violation() {
        let text = text(&operation(0));
        assert!(
            text.starts_with("no violations: 10 tree nodes with 1,200 entries in 12.0 ms, of the"),
            "{text}"
        );
        let words =
            |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!([words(3), words(4)], ["0 1,3 10 1,200 0 12.0 ms", "1 - - - - no answer"]);
        let text = super::text(&operation(2));
        assert!(text.starts_with("2 VIOLATIONS: "), "{text}");
        assert!(text.contains("its fences are wrong\nand 1 more\n"), "{text}");
    }

    #[test]
    fn progress_is_in_percent_of_what_was_there_at_the_begin() {
        assert_eq!(progress(&operation(1)), "25 %, 10 of 40 tree nodes, 1 violation");
    }
}
