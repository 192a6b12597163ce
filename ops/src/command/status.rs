//! `cell status`: what a node says of itself.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use cell_protocol::{PairState, PairStatus, StatusReport};
use clap::Args;
use serde_json::{Value, json};

use crate::args::{ServerArgs, parse_time};
use crate::cli::Global;
use crate::exit::{Exit, classify};
use crate::output::{message, number, table};
use crate::signal;
use crate::store::Store;

/// Arguments of `cell status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Again and again until a signal
    #[arg(long, short)]
    watch: bool,
    /// How often with --watch
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    interval: Duration,
    #[command(flatten)]
    server: ServerArgs,
}

/// Prints the status; exit code 5 if the node is not healthy, 4 if it does not answer.
pub(crate) fn run(global: &Global, arguments: &StatusArgs) -> anyhow::Result<Exit> {
    if !arguments.watch {
        return once(global, arguments);
    }
    let stop = signal::stop_flag()?;
    let is_screen = io::stdout().is_terminal() && !global.json;
    let mut last = Exit::Ok;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        if is_screen {
            print!("\x1b[H\x1b[2J");
        }
        last = match once(global, arguments) {
            Ok(exit) => exit,
            Err(error) if crate::exit::is_broken_pipe(&error) => return Err(error),
            Err(error) => {
                message::error(&error, global.json);
                classify(&error).0
            }
        };
        while began.elapsed() < arguments.interval && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(last)
}

fn once(global: &Global, arguments: &StatusArgs) -> anyhow::Result<Exit> {
    let server = &arguments.server.server;
    let status =
        Store::connect(&arguments.server, Duration::from_secs(2)).and_then(|mut store| store.status());
    let kept = match status {
        Ok(kept) => kept,
        Err(error) if global.json => {
            let (exit, _) = classify(&error);
            let failed =
                json!({"server": server, "error": {"code": exit.word(), "message": format!("{error:#}")}});
            message::print_json(json!({"nodes": [failed]}))?;
            return Ok(exit);
        }
        Err(error) => return Err(error),
    };
    let report = kept.report();
    let is_healthy =
        !report.pairs.is_empty() && report.pairs.iter().all(|pair| pair.state == PairState::Serving);
    if global.json {
        message::print_json(json!({"healthy": is_healthy, "nodes": [document(server, &report)]}))?;
    } else {
        let mut out = io::stdout().lock();
        out.write_all(text(server, &report, is_healthy).as_bytes())?;
        out.flush()?;
    }
    Ok(if is_healthy { Exit::Ok } else { Exit::Unhealthy })
}

fn text(server: &str, report: &StatusReport<'_>, is_healthy: bool) -> String {
    let entries: u64 = report.pairs.iter().map(|pair| pair.entries).sum();
    let verdict = match report.pairs.iter().find(|pair| pair.state != PairState::Serving) {
        None if is_healthy => format!("serves {}", number::counted(entries, "entry", "entries")),
        None => "serves no pair yet: it is starting or recovering".into(),
        Some(pair) => format!("is not healthy: {} is {}", pair.pair, state_words(pair.state)),
    };
    let head = format!(
        "{} at {server} {verdict}.\nup {}, {}, {}, {}\n\n",
        report.node,
        number::time(Duration::from_millis(report.uptime_ms)),
        report.incarnation,
        number::counted(report.workers.into(), "worker", "workers"),
        number::counted(report.connections.into(), "connection", "connections"),
    );
    let headings =
        ["pair", "state", "epoch", "entries", "durable", "checkpoint", "tree", "extents", "log", "sessions"];
    head + &table::plain(&headings, &[2, 3, 4, 5, 6, 7, 8, 9], report.pairs.iter().map(row).collect())
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

fn state_words(state: PairState) -> String {
    match state {
        PairState::Serving => "serving".into(),
        PairState::ReadOnly(reason) => format!("read-only ({reason})"),
        PairState::Recovering { permille } => format!("recovering, {}.{} %", permille / 10, permille % 10),
        PairState::Unavailable => "unavailable".into(),
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
        "pairs": report.pairs.iter().map(pair).collect::<Vec<_>>(),
    })
}

fn state_word(state: PairState) -> &'static str {
    match state {
        PairState::Serving => "serving",
        PairState::ReadOnly(_) => "read_only",
        PairState::Recovering { .. } => "recovering",
        PairState::Unavailable => "unavailable",
    }
}
