//! `cell events`: what happened in the cluster, as the admin API returns it; with `--follow`, what happens.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use cell_web::EVENT_KINDS;
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::api::{Api, ApiArgs, Missing, understand};
use crate::args::Global;
use crate::exit::{Exit, Failure, classify, is_broken_pipe};
use crate::output::{message, number};
use crate::signal;

/// How often a follower asks.
const PERIOD: Duration = Duration::from_secs(1);

/// Arguments of `cell events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// The newest so many
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[arg(long, value_name = "KIND", help = format!("Of this kind alone: {}", EVENT_KINDS.join(", ")))]
    kind: Option<String>,
    /// Of this node alone
    #[arg(long, value_name = "NODE")]
    node: Option<u32>,
    /// Then what happens, until a signal; with --json an object a line
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of `/api/v1/events`: newest first.
#[derive(Debug, Deserialize)]
struct Document {
    events: Vec<Value>,
    /// How far they go: what is asked for with it comes after them, also that of nodes that answer late.
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    missing: Vec<Missing>,
}

#[derive(Debug, Deserialize)]
struct Event {
    at_unix_ms: u64,
    node: u32,
    kind: String,
    severity: String,
    text: String,
}

/// Prints events, oldest first; exit code 6 if a node did not answer.
pub(crate) fn run(global: &Global, arguments: &EventsArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let (document, whole) = ask(&api, arguments, None)?;
    if global.json && !arguments.follow {
        message::print_json(whole)?;
    } else {
        print(global, &document)?;
    }
    let mut silent = BTreeSet::new();
    warn_of_new(&document.missing, &mut silent);
    if arguments.follow {
        let cursor = document.cursor.ok_or_else(|| {
            Failure::new(
                Exit::Error,
                "the node does not say how far its events go, so they cannot be followed",
            )
            .next("take the `cell` of the node's version")
        })?;
        return follow(global, arguments, &api, (cursor, silent));
    }
    Ok(if document.missing.is_empty() { Exit::Ok } else { Exit::Partial })
}

/// Warns of nodes that do not answer, of each when it begins; `silent` are those that did not before.
fn warn_of_new(missing: &[Missing], silent: &mut BTreeSet<u32>) {
    for Missing { node, address, why } in missing.iter().filter(|missing| !silent.contains(&missing.node)) {
        message::warning(&format!("what node {node} at {address} has seen alone is not shown: {why}"));
    }
    *silent = missing.iter().map(|missing| missing.node).collect();
}

/// What happens, until a signal. A node that does not answer is reported, and asked again. The last answer
/// decides on the exit code, as without following.
fn follow(
    global: &Global,
    arguments: &EventsArgs,
    api: &Api,
    (mut cursor, mut silent): (String, BTreeSet<u32>),
) -> anyhow::Result<Exit> {
    let stop = signal::stop_flag()?;
    let mut exit = Exit::Ok;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        exit = match ask(api, arguments, Some(&cursor)) {
            Ok((document, _)) => {
                print(global, &document)?;
                warn_of_new(&document.missing, &mut silent);
                cursor = document.cursor.unwrap_or(cursor);
                if silent.is_empty() { Exit::Ok } else { Exit::Partial }
            }
            Err(error) if is_broken_pipe(&error) => return Err(error),
            Err(error) => {
                message::error(&error, global.json);
                classify(&error).0
            }
        };
        while began.elapsed() < PERIOD && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(exit)
}

/// The newest events, or all that came after a cursor.
fn ask(api: &Api, arguments: &EventsArgs, cursor: Option<&str>) -> anyhow::Result<(Document, Value)> {
    let path = path(arguments, cursor)?;
    // What is listed once has what happened just now; who follows asks again anyway.
    let answer = if cursor.is_none() { api.get_anew(&path)? } else { api.get(&path)? };
    let whole = answer.document;
    let document = understand(&whole, "of events")?;
    Ok((document, whole))
}

fn path(arguments: &EventsArgs, cursor: Option<&str>) -> anyhow::Result<String> {
    let mut path = match cursor {
        None => format!("/api/v1/events?limit={}", arguments.limit),
        Some(cursor) => format!("/api/v1/events?cursor={cursor}"),
    };
    if let Some(kind) = &arguments.kind {
        if !kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            return Err(Failure::usage(format!("{kind:?} is no kind of events")).into());
        }
        path.push_str(&format!("&kind={kind}"));
    }
    if let Some(node) = arguments.node {
        path.push_str(&format!("&node={node}"));
    }
    Ok(path)
}

fn print(global: &Global, document: &Document) -> anyhow::Result<()> {
    for event in document.events.iter().rev() {
        if global.json {
            message::print_json(event.clone())?;
        } else {
            message::print_text(&format!("{}\n", line(&understand(event, "of events")?)))?;
        }
    }
    Ok(())
}

/// `2026-11-26 04:41:55 UTC  warning   node 2  member_left  node-2 has left: its lease is gone`.
fn line(event: &Event) -> String {
    let Event { at_unix_ms, node, kind, severity, text } = event;
    let (at, text) = (number::moment(*at_unix_ms), message::on_one_line(text));
    format!("{at}  {severity:<8}  node {node:<3} {kind:<13}  {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_quotes_as_they_are_and_escapes_what_is_not_printed() {
        let event = Event {
            at_unix_ms: 0,
            node: 2,
            kind: "incident".to_owned(),
            severity: "critical".to_owned(),
            text: "nobody's \"pairs\"\n\u{1b}[2J \\' \u{202e}".to_owned(),
        };
        let said = line(&event);
        assert!(said.ends_with("  nobody's \"pairs\"\\n\\u{1b}[2J \\\\' \\u{202e}"), "{said}");
    }

    /// A burst of more than `--limit` between two looks was once cut.
    #[test]
    fn path_of_a_follower_has_the_cursor_and_no_limit() {
        let api = ApiArgs::default();
        let arguments =
            EventsArgs { limit: 5, kind: Some("split".to_owned()), node: Some(2), follow: true, api };
        assert_eq!(path(&arguments, None).unwrap(), "/api/v1/events?limit=5&kind=split&node=2");
        let cursor = "0:77.12,*:1700000000000";
        let followed = format!("/api/v1/events?cursor={cursor}&kind=split&node=2");
        assert_eq!(path(&arguments, Some(cursor)).unwrap(), followed);
    }

    #[test]
    fn kinds_in_help_and_documents_are_all_that_there_are() {
        let mut command = crate::cli::definition();
        let events = command.find_subcommand_mut("events").unwrap();
        let kind = events.get_arguments().find(|argument| argument.get_id() == "kind").unwrap();
        let listed = format!("Of this kind alone: {}", EVENT_KINDS.join(", "));
        assert_eq!(kind.get_help().unwrap().to_string(), listed);
        let words: Vec<_> = EVENT_KINDS.iter().map(|kind| format!("`{kind}`")).collect();
        let document = include_str!("../../../docs/CLI.md").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(document.contains(&words.join(", ")), "docs/CLI.md lists {}", words.join(", "));
    }

    #[test]
    fn warn_of_new_reports_each_silence_once() {
        let missing = |node| Missing { node, address: String::new(), why: String::new() };
        let mut silent = BTreeSet::new();
        warn_of_new(&[missing(1), missing(2)], &mut silent);
        assert_eq!(silent, BTreeSet::from([1, 2]));
        warn_of_new(&[missing(2)], &mut silent);
        assert_eq!(silent, BTreeSet::from([2]), "node 1 is reported again when it is silent again");
    }

    #[test]
    fn line_has_the_date_the_zone_and_no_control_characters() {
        let event = Event {
            at_unix_ms: 86_399_000,
            node: 2,
            kind: "split".to_owned(),
            severity: "info".to_owned(),
            text: "a\u{1b}b".to_owned(),
        };
        assert_eq!(line(&event), "1970-01-01 23:59:59 UTC  info      node 2   split          a\\u{1b}b");
    }
}
