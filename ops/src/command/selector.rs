//! `cell selector`: how each client searches each server, what it measures and why it decides as it does, as
//! the admin API returns it.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::api::{Api, ApiArgs, Missing, understand, warn_of_missing};
use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::{message, number, table};
use crate::watch::WatchArgs;

/// Arguments of `cell selector`.
#[derive(Debug, Args)]
pub(crate) struct SelectorArgs {
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of `/api/v1/selector/pairs`.
#[derive(Debug, Deserialize)]
struct Document {
    pairs: Vec<Pair>,
    clients_dropped: u64,
    #[serde(default)]
    missing: Vec<Missing>,
}

/// A client and a server. Times are nanoseconds; `None` is what the client does not know.
#[derive(Debug, Deserialize)]
struct Pair {
    client_name: String,
    transport: String,
    node: u32,
    policy: String,
    searches_per_second: Option<f64>,
    one_sided_share: Option<f64>,
    l_s_ns: Option<u64>,
    l_r_ns: Option<u64>,
    rtt_ns: Option<u64>,
    m: Option<f64>,
    queue_estimate_ns: Option<u64>,
    cache_hit_share: Option<f64>,
    decision: Decision,
}

#[derive(Debug, Deserialize)]
struct Decision {
    sentence: String,
}

/// Prints a row for each client and server; exit code 6 if a node did not answer.
pub(crate) fn run(global: &Global, arguments: &SelectorArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let bench = arguments.api.command("cell bench ycsb");
    arguments.watch.run(global, || once(global, &api, &bench))
}

fn once(global: &Global, api: &Api, bench: &str) -> anyhow::Result<Exit> {
    let document = api.get("/api/v1/selector/pairs")?.document;
    let parsed = parse(&document)?;
    message::print_document(global.json, document, || text(&parsed, bench))?;
    Ok(warn_of_missing(&parsed.missing, "what clients report to"))
}

fn parse(document: &Value) -> Result<Document, Failure> {
    understand(document, "of its clients")
}

fn text(document: &Document, bench: &str) -> String {
    let mut text = if document.pairs.is_empty() {
        format!("No client has reported in the last seconds; {bench} makes some.\n")
    } else {
        let headings = [
            "client",
            "over",
            "node",
            "policy",
            "searches",
            "one-sided",
            "l_s",
            "l_r",
            "rtt",
            "m",
            "queue",
            "cached",
            "now",
        ];
        table::plain(&headings, &[2, 4, 5, 6, 7, 8, 9, 10, 11], document.pairs.iter().map(row).collect())
    };
    if document.clients_dropped > 0 {
        let dropped = number::count(document.clients_dropped);
        text.push_str(&format!("reports of {dropped} more clients were not kept\n"));
    }
    text
}

fn row(pair: &Pair) -> Vec<String> {
    let time = |ns: Option<u64>| known(ns.map(|ns| number::time(Duration::from_nanos(ns))));
    let share = |share: Option<f64>| known(share.map(|share| format!("{:.1} %", share * 100.0)));
    vec![
        message::on_one_line(&pair.client_name),
        pair.transport.clone(),
        pair.node.to_string(),
        pair.policy.clone(),
        known(pair.searches_per_second.map(number::rate)),
        share(pair.one_sided_share),
        time(pair.l_s_ns),
        time(pair.l_r_ns),
        time(pair.rtt_ns),
        known(pair.m.map(|m| format!("{m:.2}"))),
        time(pair.queue_estimate_ns),
        share(pair.cache_hit_share),
        pair.decision.sentence.clone(),
    ]
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({
            "version": 1, "clients_dropped": 2, "missing": [],
            "pairs": [{
                "client": "7", "client_name": "1@load\u{1b}er", "transport": "shm", "node": 1,
                "policy": "adaptive", "searches_per_second": 12_345.0, "one_sided_share": 0.987, "l_s_ns": 12_345, "l_r_ns": 900,
                "rtt_ns": null, "m": 3.456, "queue_estimate_ns": null, "cache_hit_share": 0.5,
                "decision": {"path": "one_sided", "sentence": "one-sided now, 9 us cheaper"},
            }],
        })
    }

    #[test]
    fn text_has_figures_with_units_and_dashes_for_what_is_not_known() {
        let text = text(&parse(&document()).unwrap(), "");
        let row = text.lines().nth(1).unwrap();
        let words: Vec<&str> = row.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        assert_eq!(
            words,
            [
                "1@load\\u{1b}er",
                "shm",
                "1",
                "adaptive",
                "12.3 k/s",
                "98.7 %",
                "12.3 us",
                "900 ns",
                "-",
                "3.46",
                "-",
                "50.0 %",
                "one-sided now, 9 us cheaper"
            ]
        );
        assert!(text.ends_with("reports of 2 more clients were not kept\n"), "{text}");
    }

    #[test]
    fn text_without_clients_says_how_to_have_some() {
        let none = parse(&json!({"pairs": [], "clients_dropped": 0})).unwrap();
        let said = text(&none, "`cell bench ycsb --server s:1`");
        assert!(said.contains("; `cell bench ycsb --server s:1` makes some"), "{said}");
    }

    #[test]
    fn parse_of_another_document_says_what_is_missing() {
        assert!(parse(&json!({"nodes": []})).unwrap_err().what.contains("pairs"));
    }
}
