//! `cell balance`: whether pairs move between nodes by themselves, which one and why; by the admin API.

use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::api::{Api, ApiArgs, Missing, understand, warn_of_missing};
use crate::args::Global;
use crate::command::tune::{self, ChangeArgs};
use crate::exit::{Exit, Failure};
use crate::output::{message, number, table};

/// As many rows as the API gives.
const PATH: &str = "/api/v1/balance?limit=65536";

/// Arguments of `cell balance`.
#[derive(Debug, Args)]
pub(crate) struct BalanceArgs {
    #[command(subcommand)]
    what: BalanceCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum BalanceCommand {
    /// Say who balances, what is done and why, and how each node stands
    Status(ShowArgs),
    /// Let pairs move by themselves, on all nodes
    On(ChangeArgs),
    /// Let only drains and operators move pairs; a move that is under way goes on
    Off(ChangeArgs),
    /// Say of each node, or of a pair, why it gives or moves nothing
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct ExplainArgs {
    /// A pair, by its number: why it stays where it is
    #[arg(value_name = "PAIR")]
    pair: Option<u32>,
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of the document.
#[derive(Debug, Deserialize)]
struct Document {
    balancer: Option<u32>,
    on: bool,
    decision: String,
    nodes: Vec<Node>,
    pairs: Vec<Pair>,
    missing: Vec<Missing>,
}

#[derive(Debug, Deserialize)]
struct Node {
    node: u32,
    pairs: u32,
    bytes: u64,
    /// None: there are too few to count.
    bytes_percent: Option<u32>,
    load_share: f64,
    load_percent: Option<u32>,
    /// Nodes of earlier versions do not say it.
    #[serde(default)]
    writes_wait: bool,
    words: String,
}

#[derive(Debug, Deserialize)]
struct Pair {
    pair: u32,
    node: u32,
    /// None: its owner has not reported.
    bytes: Option<u64>,
    load_share: Option<f64>,
    obstacle: Option<String>,
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &BalanceArgs) -> anyhow::Result<Exit> {
    match &arguments.what {
        BalanceCommand::Status(show) => status(global, &show.api),
        BalanceCommand::On(change) => tune::set_one(global, change, "balance", "on"),
        BalanceCommand::Off(change) => tune::set_one(global, change, "balance", "off"),
        BalanceCommand::Explain(explain) => self::explain(global, explain),
    }
}

/// Exit code 6 if a node did not answer.
fn status(global: &Global, api: &ApiArgs) -> anyhow::Result<Exit> {
    let document = Api::new(api)?.get(PATH)?.document;
    let parsed: Document = understand(&document, "of balance")?;
    message::print_document(global.json, document, || format!("{}{}", head(&parsed), nodes(&parsed)))?;
    Ok(warn_of_missing(&parsed.missing, "what is known of"))
}

/// Exit code 3 if there is no such pair.
fn explain(global: &Global, arguments: &ExplainArgs) -> anyhow::Result<Exit> {
    let mut document = Api::new(&arguments.api)?.get(PATH)?.document;
    let parsed: Document = understand(&document, "of balance")?;
    let Some(wanted) = arguments.pair else {
        let words: String = parsed.nodes.iter().map(|node| format!("{}\n", node.words)).collect();
        message::print_document(global.json, document, || format!("{}{words}", head(&parsed)))?;
        return Ok(warn_of_missing(&parsed.missing, "what is known of"));
    };
    let Some(pair) = parsed.pairs.iter().find(|pair| pair.pair == wanted) else {
        let known = parsed.pairs.iter().map(|pair| pair.pair.to_string()).collect::<Vec<_>>().join(", ");
        let what = match parsed.balancer {
            Some(node) => format!("node {node}, which balances, knows no pair {wanted} that is served"),
            None => format!("nothing is known of pair {wanted}: {}", parsed.decision),
        };
        return Err(Failure::new(Exit::NotFound, what)
            .next(format!("the pairs that it knows: {known}"))
            .into());
    };
    if let Some(rows) = document["pairs"].as_array_mut() {
        rows.retain(|row| row["pair"] == wanted);
    }
    message::print_document(global.json, document, || in_words(pair))?;
    Ok(warn_of_missing(&parsed.missing, "what is known of"))
}

/// Whether it is on, who balances, and what was decided.
fn head(document: &Document) -> String {
    let on = if document.on { "on" } else { "off" };
    let by = document.balancer.map_or_else(|| "nobody".to_owned(), |node| format!("node {node}"));
    let full = document.nodes.iter().filter(|node| node.writes_wait);
    let full: String = full.map(|node| format!("puts find no memory at node {}\n", node.node)).collect();
    format!("balance is {on}; {by} balances\n{full}{}\n", document.decision)
}

fn nodes(document: &Document) -> String {
    let headings = ["node", "pairs", "bytes", "of the mean", "load", "of the mean"];
    let of_mean =
        |percent: Option<u32>| percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %"));
    let row = |node: &Node| {
        vec![
            node.node.to_string(),
            node.pairs.to_string(),
            number::bytes(node.bytes),
            of_mean(node.bytes_percent),
            format!("{:.1} %", node.load_share * 100.0),
            of_mean(node.load_percent),
        ]
    };
    table::plain(&headings, &[0, 1, 2, 3, 4, 5], document.nodes.iter().map(row).collect())
}

fn in_words(pair: &Pair) -> String {
    let Pair { pair, node, bytes, load_share, obstacle } = pair;
    let has = match bytes.zip(*load_share) {
        Some((bytes, load)) => {
            format!("has {} and takes {:.1} % of the worker's time", number::bytes(bytes), load * 100.0)
        }
        None => "is one of which its owner has not reported what it has and takes".to_owned(),
    };
    let why = match obstacle {
        Some(why) => format!("it does not move: {why}"),
        None => "it could move, if that helped".to_owned(),
    };
    format!("pair {pair} of node {node} {has}; {why}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let node = |node, bytes_percent| Node {
            node,
            pairs: 2,
            bytes: 3 << 30,
            bytes_percent: Some(bytes_percent),
            load_share: 0.125,
            load_percent: None,
            writes_wait: false,
            words: "w".to_owned(),
        };
        Document {
            balancer: Some(1),
            on: true,
            decision: "nothing is to be done: the cluster is balanced".to_owned(),
            nodes: vec![node(0, 120), node(1, 80)],
            pairs: Vec::new(),
            missing: Vec::new(),
        }
    }

    #[test]
    fn status_says_who_balances_what_is_done_and_how_nodes_stand() {
        let document = document();
        let text = format!("{}{}", head(&document), nodes(&document));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "balance is on; node 1 balances");
        assert_eq!(lines[1], document.decision);
        assert!(
            lines[2].contains("OF THE MEAN") && lines[3].contains("120 %") && lines[3].contains("12.5 %")
        );
        assert!(lines[3].ends_with('-'), "what is too little to count is no part of the mean: {text}");
        let mut full = document;
        full.nodes[1].writes_wait = true;
        let lines = "balance is on; node 1 balances\nputs find no memory at node 1\nnothing is to be done";
        assert!(head(&full).starts_with(lines), "{}", head(&full));
        let document = full;
        let off = Document { on: false, balancer: None, ..document };
        assert!(head(&off).starts_with("balance is off; nobody balances\n"));
    }

    #[test]
    fn pair_is_explained_with_what_keeps_it() {
        let pair =
            Pair { pair: 3, node: 1, bytes: None, load_share: None, obstacle: Some("it rests".to_owned()) };
        let unknown =
            "pair 3 of node 1 is one of which its owner has not reported what it has and takes; it does not";
        assert!(in_words(&pair).starts_with(unknown), "{}", in_words(&pair));
        let pair = Pair { bytes: Some(0), load_share: Some(0.0), ..pair };
        assert!(
            in_words(&pair).starts_with("pair 3 of node 1 has 0 B and takes 0.0 % of"),
            "{}",
            in_words(&pair)
        );
        assert!(in_words(&pair).ends_with("; it does not move: it rests\n"));
        assert!(in_words(&Pair { obstacle: None, ..pair }).ends_with("; it could move, if that helped\n"));
    }
}
