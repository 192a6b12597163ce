//! `cell status`: what the nodes say of themselves.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use cell_client::NodeStatus;
use cell_protocol::{PairActivity, PairStatus, StatusReport};
use cell_terms::NodeId;
use clap::Args;
use serde_json::{Value, json};

use crate::args::{Global, ServerArgs};
use crate::exit::{Exit, classify};
use crate::members::{Member, members};
use crate::output::{message, number, table};
use crate::readiness::{HttpArgs, Readiness, ask_usual};
use crate::side_by_side::side_by_side;
use crate::store::Store;
use crate::unserved_pairs::UnservedPairs;
use crate::watch::WatchArgs;

/// Arguments of `cell status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    http: HttpArgs,
}

/// Prints the status; exit code 5 if a node is not healthy, 4 if none answers. A node that says over HTTP
/// alone that it is not ready is not healthy.
pub(crate) fn run(global: &Global, arguments: &StatusArgs) -> anyhow::Result<Exit> {
    arguments.watch.run(global, || once(global, arguments))
}

/// A node's answer.
struct Asked {
    server: String,
    node: Option<NodeId>,
    status: anyhow::Result<NodeStatus>,
    /// What its HTTP says, where it says nothing itself.
    readiness: Option<Readiness>,
}

/// So far apart two looks are two.
const LOOKS_APART: Duration = Duration::from_secs(1);

/// Every node's answer, and the pairs that are not served. Where that is not sure, all are asked once more.
fn ask(arguments: &StatusArgs) -> anyhow::Result<(Vec<Asked>, UnservedPairs)> {
    let (asked, first) = ask_once(arguments)?;
    if !first.wants_second_look() {
        return Ok((asked, first));
    }
    thread::sleep(LOOKS_APART);
    let (asked, second) = ask_once(arguments)?;
    Ok((asked, second.after(&first)))
}

/// Every node's answer, beside the region table as the first of them to answer has it.
fn ask_once(arguments: &StatusArgs) -> anyhow::Result<(Vec<Asked>, UnservedPairs)> {
    let table = OnceLock::new();
    // The table is older than every status that it is compared with.
    let status = |mut store: Store| {
        if table.get().is_none() {
            match store.pairs() {
                Ok(pairs) => table.set(pairs).unwrap_or_default(),
                Err(error) if is_silent(&error) => return Err(error),
                Err(_) => {}
            }
        }
        store.status()
    };
    let ask = |Member { server, node, store, .. }: Member| {
        let status = store.and_then(status);
        Asked { server, node, status, readiness: None }
    };
    let mut asked = side_by_side(members(&arguments.server, Duration::from_secs(2))?, ask);
    if asked.len() > 1 {
        let ca = arguments.server.ca.as_deref();
        let is_unheard = |one: &&mut Asked| one.status.as_ref().is_err_and(is_silent);
        let silent: Vec<&mut Asked> = asked.iter_mut().filter(is_unheard).collect();
        let by_its_http = |one: &mut Asked| -> anyhow::Result<()> {
            one.readiness = ask_usual(&one.server, ca)?;
            Ok(())
        };
        side_by_side(silent, by_its_http).into_iter().collect::<anyhow::Result<()>>()?;
    }
    let reports = asked.iter().filter_map(|one| one.status.as_ref().ok()).map(NodeStatus::report);
    let unserved = UnservedPairs::of(&table.into_inner().unwrap_or_default(), reports);
    Ok((asked, unserved))
}

fn is_silent(error: &anyhow::Error) -> bool {
    classify(error).0 == Exit::Unreachable
}

/// What HTTP says where no server answers; without that the command fails as they do.
fn by_http(
    global: &Global,
    arguments: &StatusArgs,
    error: anyhow::Error,
    unserved: &UnservedPairs,
) -> anyhow::Result<Exit> {
    let (servers, ca) = (&arguments.server.server, arguments.server.ca.as_deref());
    let found = if is_silent(&error) { arguments.http.ask_all(servers, ca)? } else { Vec::new() };
    let is_unhealthy = found.iter().any(|readiness| !readiness.is_ready());
    let exit = if is_unhealthy { Exit::Unhealthy } else { classify(&error).0 };
    if global.json {
        let mut node = failed(servers, &error);
        if !found.is_empty() {
            node["readiness"] = found.iter().map(Readiness::document).collect();
        }
        let mut document = json!({"healthy": false, "nodes": [node]});
        unserved.add_to(&mut document);
        message::print_json(document)?;
        return Ok(exit);
    }
    let said: Vec<String> = found.iter().map(Readiness::text).collect();
    if !is_unhealthy {
        said.iter().for_each(|text| message::note(text.trim_end()));
        return Err(error);
    }
    message::print_text(&format!("{}\n\n{}", message::in_words(&error), said.join("\n")))?;
    Ok(exit)
}

fn failed(server: &str, error: &anyhow::Error) -> Value {
    let (exit, _) = classify(error);
    json!({"server": server, "error": {"code": exit.word(), "message": message::in_words(error)}})
}

fn once(global: &Global, arguments: &StatusArgs) -> anyhow::Result<Exit> {
    let (mut asked, unserved) = match ask(arguments) {
        Ok(asked) => asked,
        Err(error) => return by_http(global, arguments, error, &UnservedPairs::default()),
    };
    let is_alone = asked.len() == 1 && (!global.json || asked[0].status.is_err());
    if let Some(Asked { server, status, .. }) = asked.pop_if(|_| is_alone) {
        let kept = match status {
            Ok(kept) => kept,
            Err(error) => return by_http(global, arguments, error, &unserved),
        };
        let report = kept.report();
        let is_healthy = !report.pairs.is_empty() && serves(&report) && unserved.is_empty();
        let text = text(&server, &report, is_healthy)
            + &text_of_warnings(&[(report.node, report.warnings)])
            + &unserved.text();
        return print(&text, is_healthy);
    }
    let is_unknown = |one: &Asked| one.status.is_err() && one.readiness.is_none();
    if !global.json && asked.iter().all(is_unknown) {
        // That nobody reports, for want of a role say, does not mean that nothing is well.
        return asked.remove(0).status.map(|_| Exit::Ok);
    }
    let served: usize = asked.iter().filter_map(|one| one.status.as_ref().ok()).map(pairs_of).sum();
    let all_serve = |one: &Asked| one.status.as_ref().is_ok_and(|kept| serves(&kept.report()));
    let is_healthy = served > 0 && asked.iter().all(all_serve) && unserved.is_empty();
    if global.json {
        let node = |one: &Asked| match &one.status {
            Ok(kept) => document(&one.server, &kept.report()),
            Err(error) => {
                let mut node = failed(&one.server, error);
                if let Some(readiness) = &one.readiness {
                    node["readiness"] = json!([readiness.document()]);
                }
                node
            }
        };
        let nodes: Vec<Value> = asked.iter().map(node).collect();
        let mut document = json!({"healthy": is_healthy, "nodes": nodes});
        unserved.add_to(&mut document);
        message::print_json(document)?;
        return Ok(if is_healthy { Exit::Ok } else { Exit::Unhealthy });
    }
    let reports = asked.iter().filter_map(|one| one.status.as_ref().ok()).map(NodeStatus::report);
    let warnings: Vec<_> = reports.map(|report| (report.node, report.warnings)).collect();
    let text = text_of_many(&asked, is_healthy)
        + &text_of_errors(&asked)
        + &text_of_warnings(&warnings)
        + &unserved.text();
    print(&text, is_healthy)
}

/// Why some did not report.
fn text_of_errors(asked: &[Asked]) -> String {
    let failed = asked.iter().filter_map(|one| Some((one, one.status.as_ref().err()?)));
    let line = |(one, error): (&Asked, &anyhow::Error)| {
        let readiness = one.readiness.as_ref().map(Readiness::text).unwrap_or_default();
        format!("{}: {error:#}\n{readiness}", one.server)
    };
    let lines: String = failed.map(line).collect();
    if lines.is_empty() { lines } else { format!("\nNot reported:\n{lines}") }
}

/// What is wrong although the nodes serve.
fn text_of_warnings(warnings: &[(NodeId, &str)]) -> String {
    let lines = warnings.iter().flat_map(|(node, text)| text.lines().map(move |line| (node, line)));
    let lines: String = lines.map(|(node, line)| format!("{node}: {line}\n")).collect();
    if lines.is_empty() { lines } else { format!("\nWarnings:\n{lines}") }
}

fn print(text: &str, is_healthy: bool) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(if is_healthy { Exit::Ok } else { Exit::Unhealthy })
}

fn pairs_of(kept: &NodeStatus) -> usize {
    kept.report().pairs.len()
}

fn serves(report: &StatusReport<'_>) -> bool {
    report.pairs.iter().all(|pair| pair.state == PairActivity::Serving)
}

/// A row a node, then a row a pair.
fn text_of_many(asked: &[Asked], is_healthy: bool) -> String {
    let name = |node: Option<NodeId>| node.map_or_else(|| "?".to_owned(), |node| node.0.to_string());
    let mut nodes = Vec::new();
    let mut pairs = Vec::new();
    let reports = asked.iter().filter_map(|one| one.status.as_ref().ok()).map(NodeStatus::report);
    let coordinators: Vec<_> = reports.map(|report| (report.node, report.coordinator)).collect();
    let coordinators = text_of_coordinators(&coordinators);
    for one in asked {
        let mut cells = vec![name(one.node), one.server.clone()];
        match &one.status {
            Ok(kept) => {
                let report = kept.report();
                let entries = report.pairs.iter().map(|pair| pair.entries).sum();
                cells.push(if serves(&report) { "answers" } else { "not healthy" }.to_owned());
                cells.push(report.pairs.len().to_string());
                cells.push(number::count(entries));
                cells.push(number::count(report.connections.into()));
                cells.push(number::time(Duration::from_millis(report.uptime_ms)));
                let rows = report.pairs.iter().map(|pair| {
                    let mut cells = row(pair);
                    cells.insert(1, name(Some(report.node)));
                    (pair.pair, cells)
                });
                pairs.extend(rows);
            }
            Err(error) => cells.push(classify(error).0.word().to_owned()),
        }
        cells.resize(7, String::new());
        nodes.push(cells);
    }
    pairs.sort();
    let verdict = if is_healthy { "all serve" } else { "not all are healthy" };
    let headings = ["node", "server", "state", "pairs", "entries", "connections", "up"];
    let of_nodes = table::plain(&headings, &[3, 4, 5, 6], nodes);
    let headings = [
        "pair",
        "node",
        "state",
        "epoch",
        "entries",
        "durable",
        "checkpoint",
        "tree",
        "extents",
        "log",
        "sessions",
    ];
    let rows = pairs.into_iter().map(|(_, cells)| cells).collect();
    let of_pairs = table::plain(&headings, &[3, 4, 5, 6, 7, 8, 9, 10], rows);
    format!("{} nodes, {verdict}.\n{coordinators}\n{of_nodes}\n{of_pairs}", asked.len())
}

fn text(server: &str, report: &StatusReport<'_>, is_healthy: bool) -> String {
    let entries: u64 = report.pairs.iter().map(|pair| pair.entries).sum();
    let verdict = match report.pairs.iter().find(|pair| pair.state != PairActivity::Serving) {
        None if is_healthy => format!("serves {}", number::counted(entries, "entry", "entries")),
        None => "serves no pair yet: it is starting or recovering".into(),
        Some(pair) => format!("is not healthy: {} is {}", pair.pair, state_words(pair.state)),
    };
    let head = format!(
        "{} at {server} {verdict}.\nup {}, {}, {}, {}\n{}\n",
        report.node,
        number::time(Duration::from_millis(report.uptime_ms)),
        report.incarnation,
        number::counted(report.workers.into(), "worker", "workers"),
        number::counted(report.connections.into(), "connection", "connections"),
        text_of_coordinators(&[(report.node, report.coordinator)]),
    );
    let headings =
        ["pair", "state", "epoch", "entries", "durable", "checkpoint", "tree", "extents", "log", "sessions"];
    head + &table::plain(&headings, &[2, 3, 4, 5, 6, 7, 8, 9], report.pairs.iter().map(row).collect())
}

/// Where the coordinator is; if the nodes say so differently, as each of them does.
fn text_of_coordinators(said: &[(NodeId, &str)]) -> String {
    let said: Vec<&(NodeId, &str)> = said.iter().filter(|(_, place)| !place.is_empty()).collect();
    let Some((_, first)) = said.first() else { return String::new() };
    if said.iter().all(|(_, place)| place == first) {
        return format!("coordinator: {first}\n");
    }
    said.iter().map(|(node, place)| format!("coordinator of {node}: {place}\n")).collect()
}

fn row(pair: PairStatus) -> Vec<String> {
    let of = |used, all| format!("{} of {}", number::bytes(used), number::bytes(all));
    vec![
        pair.pair.0.to_string(),
        state_words(pair.state),
        pair.epoch.0.to_string(),
        number::count(pair.entries),
        number::count(pair.durable.0),
        number::count(pair.checkpoint.0),
        of(pair.node_bytes_used, pair.node_bytes),
        of(pair.extent_bytes_used, pair.extent_bytes),
        number::bytes(pair.log_bytes),
        number::count(pair.sessions),
    ]
}

fn state_words(state: PairActivity) -> String {
    match state {
        PairActivity::Serving => "serving".into(),
        PairActivity::ReadOnly(reason) => format!("read-only ({reason})"),
        PairActivity::Recovering { permille } => format!("recovering, {}.{} %", permille / 10, permille % 10),
        PairActivity::Unavailable => "unavailable".into(),
    }
}

fn document(server: &str, report: &StatusReport<'_>) -> Value {
    let pair = |pair: PairStatus| {
        json!({
            "pair": pair.pair.0,
            "epoch": pair.epoch.0,
            "state": state_word(pair.state),
            "state_detail": state_words(pair.state),
            "worker": pair.worker,
            "csn_durable": pair.durable.0,
            "csn_visible": pair.visible.0,
            "csn_checkpoint": pair.checkpoint.0,
            "entries": pair.entries,
            "node_bytes_used": pair.node_bytes_used,
            "node_bytes": pair.node_bytes,
            "extent_bytes_used": pair.extent_bytes_used,
            "extent_bytes": pair.extent_bytes,
            "log_bytes": pair.log_bytes,
            "sessions": pair.sessions,
        })
    };
    json!({
        "server": server,
        "node": report.node.0,
        "incarnation": report.incarnation.0,
        "uptime_ms": report.uptime_ms,
        "workers": report.workers,
        "connections": report.connections,
        "coordinator": report.coordinator,
        "warnings": report.warnings.lines().collect::<Vec<_>>(),
        "pairs": report.pairs.iter().map(pair).collect::<Vec<_>>(),
    })
}

fn state_word(state: PairActivity) -> &'static str {
    match state {
        PairActivity::Serving => "serving",
        PairActivity::ReadOnly(_) => "read_only",
        PairActivity::Recovering { .. } => "recovering",
        PairActivity::Unavailable => "unavailable",
    }
}
