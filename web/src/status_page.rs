//! `GET /status`: the cluster on one page without scripts, for text browsers, scripts that are blocked and
//! people in a hurry. It comes again by itself every five seconds.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::Value;

use crate::api::cluster_status::ClusterStatus;
use crate::api::{gathered, moves};
use crate::problem::Problem;
use crate::shared::Shared;

/// Nothing is loaded, and only the style in the page itself counts.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    <meta name=\"color-scheme\" content=\"light dark\">\n<meta http-equiv=\"refresh\" content=\"5\">\n\
    <title>Cell status</title>\n<style>\
    body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;padding:0 1rem;max-width:60rem}\
    table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}\
    caption{text-align:left;font-weight:600;padding:.25rem 0}\
    th,td{text-align:left;padding:.25rem 1rem .25rem 0;border-bottom:1px solid #8886;white-space:nowrap}\
    td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
    .verdict{font-size:1.25rem;font-weight:600}\
    </style>\n</head>\n<body>\n<h1>Cell</h1>\n";

/// Moves of pairs that it shows at most.
const MOVES_MAX: usize = 50;

/// Its route.
pub(crate) const PATH: &str = "/status";

/// `GET /status`.
pub(crate) async fn get_page(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let text = gathered::text::<ClusterStatus>(&shared).await?;
    let mut status: Value = serde_json::from_slice(&text).map_err(|_| Problem::internal())?;
    status["moves"] = moves::under_way(&shared.look().0, MOVES_MAX);
    Ok(([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(page(&status))).into_response())
}

/// The page without the right to see it.
pub(crate) fn refused() -> Response {
    const TEXT: &str = "<p class=\"verdict\">Tokens are configured on this node.</p>\n\
        <p>This page wants one of the role viewer or higher, in a header that browsers do not send by \
        themselves:</p>\n<pre>curl -H \"Authorization: Bearer TOKEN\" ADDRESS/status</pre>\n\
        <p>The <a href=\"/console/\">console</a> asks for a token and shows the same.</p>\n</body>\n</html>\n";
    let policy = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    (StatusCode::UNAUTHORIZED, policy, Html(format!("{HEAD}{TEXT}"))).into_response()
}

/// A column: its heading, and whether it has numbers.
type Column = (&'static str, bool);

fn page(status: &Value) -> String {
    let mut page = HEAD.to_owned();
    let sign = match status["verdict"]["level"].as_str() {
        Some("ok") => "OK",
        Some("warning") => "Warning",
        _ => "Critical",
    };
    let sentence = escaped(&text(&status["verdict"]["sentence"]));
    put(&mut page, format_args!("<p class=\"verdict\">{sign}: {sentence}</p>\n"));
    put(&mut page, format_args!("<p>{}</p>\n", escaped(&text(&status["faults_survivable"]["why"]))));
    for one in &TABLES {
        let rows = list((one.rows)(status)).map(one.cells);
        table(&mut page, one.caption, one.columns, rows);
    }
    let made = utc(&status["at_unix_ms"]);
    let by = number(&status["answered_by"]);
    let end = "<a href=\"/console/\">Console</a></p>\n</body>\n</html>\n";
    put(&mut page, format_args!("<p>Reported by node {by} at {made} UTC. {end}"));
    page
}

/// A table of the page.
struct Table {
    caption: &'static str,
    columns: &'static [Column],
    /// Its rows in the document, and the cells of one.
    rows: fn(&Value) -> &Value,
    cells: fn(&Value) -> Vec<String>,
}

static TABLES: [Table; 6] = [
    Table {
        caption: "Nodes that do not answer",
        columns: &[("node", true), ("address", false), ("why", false)],
        rows: |status| &status["missing"],
        cells: |peer| vec![number(&peer["node"]), text(&peer["address"]), text(&peer["why"])],
    },
    Table {
        caption: "Pairs that are not served",
        columns: &[("pair", true), ("what", false), ("next", false)],
        rows: |status| &status["pairs"]["unserved"],
        cells: |pair| vec![number(&pair["pair"]), text(&pair["what"]), text(&pair["next"])],
    },
    Table {
        caption: "Pairs that move",
        columns: &[
            ("pair", true),
            ("from node", true),
            ("to node", true),
            ("stage", false),
            ("copied, %", true),
            ("since, UTC", false),
            ("why", false),
        ],
        rows: |status| &status["moves"],
        cells: |of| {
            let since = of["wanted_unix_ms"].is_u64().then(|| utc(&of["wanted_unix_ms"]));
            vec![
                number(&of["pair"]),
                number(&of["from"]),
                number(&of["to"]),
                text(&of["stage"]),
                copied(of),
                since.unwrap_or_else(|| "\u{2013}".to_owned()),
                text(&of["why"]),
            ]
        },
    },
    Table {
        caption: "Nodes",
        columns: &[
            ("node", true),
            ("state", false),
            ("address", false),
            ("pairs", false),
            ("entries", true),
            ("operations/s", true),
            ("connections", true),
        ],
        rows: |status| &status["nodes"],
        cells: node_cells,
    },
    Table {
        caption: "Operations at the servers",
        columns: &[("operation", false), ("a second", true), ("p50, \u{b5}s", true), ("p99, \u{b5}s", true)],
        rows: |status| &status["operations"],
        cells: |row| {
            let times = [&row["per_second"], &row["p50_us"], &row["p99_us"]].map(number);
            [vec![text(&row["operation"])], times.to_vec()].concat()
        },
    },
    Table {
        caption: "Last events",
        columns: &[("time, UTC", false), ("severity", false), ("what", false)],
        rows: |status| &status["events"],
        cells: |event| vec![utc(&event["at_unix_ms"]), text(&event["severity"]), text(&event["text"])],
    },
];

fn node_cells(node: &Value) -> Vec<String> {
    let state = match node["state_detail"].as_str() {
        Some(detail) => format!("{} ({detail})", text(&node["state"])),
        None => text(&node["state"]),
    };
    let pairs: Vec<String> = list(&node["pairs"]).map(number).collect();
    vec![
        number(&node["node"]),
        state,
        text(&node["address"]),
        pairs.join(" "),
        number(&node["entries"]),
        number(&node["operations_per_second"]),
        number(&node["connections"]),
    ]
}

/// A table; nothing if it has no rows.
fn table(page: &mut String, caption: &str, columns: &[Column], rows: impl Iterator<Item = Vec<String>>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    put(page, format_args!("<table>\n<caption>{caption}</caption>\n<tr>"));
    let class = |is_number: bool| if is_number { " class=\"n\"" } else { "" };
    for (name, is_number) in columns {
        put(page, format_args!("<th scope=\"col\"{}>{name}</th>", class(*is_number)));
    }
    page.push_str("</tr>\n");
    for row in rows {
        page.push_str("<tr>");
        for (cell, (_, is_number)) in row.iter().zip(columns) {
            put(page, format_args!("<td{}>{}</td>", class(*is_number), escaped(cell)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn put(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a string");
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whole, with commas; a dash where it is not known.
fn number(value: &Value) -> String {
    let Some(number) = value.as_f64() else { return "\u{2013}".to_owned() };
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0
            && (digits.len() - at).is_multiple_of(3)
            && digit.is_ascii_digit()
            && digits.as_bytes()[at - 1] != b'-'
        {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// How much of a pair that moves is copied, in percent. What is still being written is not known before it is
/// read: there is no such part once all else was read.
fn copied(of: &Value) -> String {
    match (of["bytes_done"].as_u64(), of["bytes_total"].as_u64()) {
        (Some(done), Some(total)) if done > 0 && done >= total && of["stage"] == "copying" => {
            "catching up".to_owned()
        }
        (Some(done), Some(total)) => {
            number(&done.saturating_mul(100).checked_div(total).map(|percent| percent.min(100)).into())
        }
        _ => number(&Value::Null),
    }
}

/// The time of the day.
fn utc(unix_ms: &Value) -> String {
    let seconds = unix_ms.as_u64().unwrap_or(0) / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn page_shows_what_there_is_and_escapes_it() {
        let status = json!({
            "at_unix_ms": 86_399_000, "answered_by": 2,
            "verdict": {"level": "warning", "sentence": "Node <1> is starting."},
            "faults_survivable": {"nodes": 0, "why": "Wait."},
            "nodes": [{"node": 2, "state": "serving", "state_detail": null, "address": "127.0.0.1:7000",
                "pairs": [1, 4], "entries": 1_234_567, "operations_per_second": 10.4, "connections": 3}],
            "operations": [{"operation": "get", "per_second": 9.6, "p50_us": null, "p99_us": 5.2}],
            "events": [], "pairs": {"unserved": []}, "missing": [],
        });
        let page = page(&status);
        for wanted in [
            "Warning: Node &lt;1&gt; is starting.",
            "<td class=\"n\">1,234,567</td>",
            "<td>1 4</td>",
            "23:59:59",
            "<td class=\"n\">\u{2013}</td>",
        ] {
            assert!(page.contains(wanted), "{wanted} is not in: {page}");
        }
        assert!(!page.contains("Last events") && !page.contains("<script"));
    }

    /// A copy of a pair that was written all the time was at 99 % and more from the first second on.
    #[test]
    fn copy_that_has_read_all_that_was_known_catches_up() {
        let of = |stage: &str, done: u64, total: u64| {
            copied(&json!({"stage": stage, "bytes_done": done, "bytes_total": total}))
        };
        assert_eq!([of("wanted", 0, 0), of("copying", 1, 4)], ["\u{2013}", "25"]);
        assert_eq!([of("copying", 4, 4), of("ready", 4, 4)], ["catching up", "100"]);
    }

    #[test]
    fn number_has_commas_between_thousands() {
        let words =
            [json!(0), json!(999), json!(1_000), json!(-1_234_567), json!(null)].map(|value| number(&value));
        assert_eq!(words, ["0", "999", "1,000", "-1,234,567", "\u{2013}"]);
    }
}
