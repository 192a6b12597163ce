//! `cell tree show`: the shape of the tree, over all nodes.

use std::io::{self, Write};
use std::time::Duration;

use cell_protocol::{MeganodeRow, MeganodeUse};
use cell_terms::{NodeId, PairId, Root};
use clap::Args;
use serde_json::{Value, json};

use crate::args::{Global, ServerArgs};
use crate::exit::{Exit, classify};
use crate::members::{Member, members};
use crate::output::{message, number, table};
use crate::store::Store;

/// Arguments of `cell tree show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// What all replies together say.
struct Shape {
    root: Root,
    splits: [u64; 4],
    rows: Vec<MeganodeRow>,
    /// Nodes that did not report theirs.
    missing: Vec<Missing>,
}

/// A node whose meganodes are not shown.
struct Missing {
    server: String,
    node: Option<NodeId>,
    pairs: Vec<PairId>,
    error: anyhow::Error,
}

/// Prints the shape; exit code 6 if a node of the region table does not report its part of it.
pub(crate) fn run(global: &Global, arguments: &ShowArgs) -> anyhow::Result<Exit> {
    let mut shape = Shape { root: Root::NONE, splits: [0; 4], rows: Vec::new(), missing: Vec::new() };
    for member in members(&arguments.server, Duration::from_secs(5))? {
        let superfluous = member.is_superfluous();
        let Member { server, node, pairs, store } = member;
        match store.and_then(|mut store| fetch(&mut store, &mut shape)) {
            Ok(()) => {}
            Err(error) if superfluous => message::warning(&format!("{server} is left out: {error:#}")),
            Err(error) => shape.missing.push(Missing { server, node, pairs, error }),
        }
    }
    if !global.json && shape.rows.is_empty() && !shape.missing.is_empty() {
        return Err(shape.missing.remove(0).error); // nobody reported
    }
    shape.rows.sort_by_key(|row| (row.used != MeganodeUse::Router, row.low, row.pair, row.slot));
    if global.json {
        message::print_json(document(&shape))?;
    } else {
        let mut out = io::stdout().lock();
        out.write_all(text(&shape).as_bytes())?;
        out.flush()?;
    }
    for missing in &shape.missing {
        message::warning(&format!("the meganodes at {} are not shown: {:#}", missing.server, missing.error));
    }
    Ok(if shape.missing.is_empty() { Exit::Ok } else { Exit::Partial })
}

/// Adds a node's meganodes. The root is the one of the node that keeps it.
fn fetch(store: &mut Store, shape: &mut Shape) -> anyhow::Result<()> {
    let mut count = 0;
    loop {
        let kept = store.tree(u32::try_from(count).unwrap_or(u32::MAX))?;
        let report = kept.report();
        let root = Root::from_word(report.root);
        if count == 0 {
            shape.root = if root.pointer.is_null() { shape.root } else { root };
            shape.splits.iter_mut().zip(report.splits).for_each(|(all, of_node)| *all += of_node);
        }
        shape.rows.extend(report.rows.iter());
        count += report.rows.len();
        if report.rows.is_empty() || count >= report.meganodes as usize {
            return Ok(());
        }
    }
}

fn text(shape: &Shape) -> String {
    let [started, finished, aborted, under_way] = shape.splits;
    let leaves = shape.rows.iter().filter(|row| row.used == MeganodeUse::Leaf);
    let (count, entries) = leaves.fold((0, 0), |sum, row| (sum.0 + 1, sum.1 + row.entries));
    let head = format!(
        "{} with {}{}; {}.\n{} since the start: {finished} finished, {aborted} aborted, \
         {under_way} under way\n\n",
        number::counted(count, "meganode", "meganodes"),
        number::counted(entries, "entry", "entries"),
        if shape.missing.is_empty() { "" } else { " of the nodes that answered" },
        root_words(shape.root),
        number::counted(started, "split", "splits"),
    );
    let headings = ["pair", "slot", "use", "levels", "tree nodes", "full", "entries", "from key"];
    let rows = table::plain(&headings, &[1, 3, 4, 5, 6], shape.rows.iter().map(row).collect());
    head + &rows + &shape.missing.iter().map(missing_words).collect::<String>()
}

fn root_words(root: Root) -> String {
    if root.pointer.is_null() {
        return "the root is at a node that did not answer".to_owned();
    }
    format!("the root is a {root}")
}

fn missing_words(missing: &Missing) -> String {
    let Missing { server, node, pairs, error } = missing;
    let node = node.map_or_else(|| "a node".to_owned(), |node| format!("node {}", node.0));
    let pairs: Vec<String> = pairs.iter().map(|pair| pair.0.to_string()).collect();
    let pairs = if pairs.is_empty() { "none".to_owned() } else { pairs.join(", ") };
    format!("not shown: {node} at {server} ({}); its pairs: {pairs}\n", classify(error).0.word())
}

fn row(row: &MeganodeRow) -> Vec<String> {
    let full = u64::from(row.nodes) * 100 / u64::from(row.nodes_all).max(1);
    vec![
        row.pair.0.to_string(),
        row.slot.0.to_string(),
        word(row.used).to_owned(),
        row.height.to_string(),
        format!("{} of {}", number::count(row.nodes.into()), number::count(row.nodes_all.into())),
        format!("{full} %"),
        number::count(row.entries),
        low_words(row),
    ]
}

fn low(row: &MeganodeRow) -> &[u8] {
    &row.low[..usize::from(row.low_len).min(row.low.len())]
}

fn low_words(row: &MeganodeRow) -> String {
    let more = usize::from(row.low_len) > row.low.len();
    match low(row) {
        [] => "the first".to_owned(),
        low => format!("{}{}", low.escape_ascii(), if more { "…" } else { "" }),
    }
}

fn word(used: MeganodeUse) -> &'static str {
    match used {
        MeganodeUse::Leaf => "entries",
        MeganodeUse::Router => "router",
        MeganodeUse::Adopted => "adopted",
    }
}

fn document(shape: &Shape) -> Value {
    let [started, finished, aborted, under_way] = shape.splits;
    let row = |row: &MeganodeRow| {
        json!({
            "pair": row.pair.0,
            "slot": row.slot.0,
            "use": word(row.used),
            "levels": row.height,
            "tree_nodes": row.nodes,
            "tree_nodes_all": row.nodes_all,
            "entries": row.entries,
            "low_key": low(row).escape_ascii().to_string(),
            "low_key_bytes": row.low_len,
        })
    };
    json!({
        "root": { "pointer": shape.root.pointer.0, "router": shape.root.router },
        "splits": { "begun": started, "finished": finished, "aborted": aborted, "under_way": under_way },
        "meganodes": shape.rows.iter().map(row).collect::<Vec<_>>(),
        "unreachable": shape.missing.iter().map(missing_document).collect::<Vec<_>>(),
    })
}

fn missing_document(missing: &Missing) -> Value {
    let Missing { server, node, pairs, error } = missing;
    json!({
        "server": server,
        "node": node.map(|node| node.0),
        "pairs": pairs.iter().map(|pair| pair.0).collect::<Vec<_>>(),
        "error": {"code": classify(error).0.word(), "message": message::in_words(error)},
    })
}
