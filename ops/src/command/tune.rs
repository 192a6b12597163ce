//! `cell tune`: settings of the whole cluster that change while it runs, by the admin API.

use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand, value_parser};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use crate::api::{Answer, Api, ApiArgs, Missing, understand};
use crate::args::{Global, parse_time};
use crate::change_args::{TryOrWaitArgs, with_query};
use crate::exit::{Exit, Failure};
use crate::output::{message, number, table};
use crate::waiting::{Enough, Waiting};

const PATH: &str = "/api/v1/tuning";
/// How long nodes are waited for, unless a time is named.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at whether all nodes have a change in force.
const WAIT_PERIOD: Duration = Duration::from_millis(100);
/// Changes that a node lists at a time.
const PAGE: u64 = 200;

/// Arguments of `cell tune`.
#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum What {
    /// List settings with their values
    Ls(LsArgs),
    /// Print the values of settings
    Get(GetArgs),
    /// Change settings on all nodes, all or none
    Set(SetArgs),
    /// Show what is not as the defaults are
    Diff(PlainArgs),
    /// Show who changed what, when and why
    History(HistoryArgs),
    /// Take a change back
    Revert(RevertArgs),
}

#[derive(Debug, Args)]
struct PlainArgs {
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct LsArgs {
    /// Only settings whose name or meaning has this word
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Only settings that change while nodes run
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct GetArgs {
    /// The settings
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// How a change is made.
#[derive(Debug, Args)]
#[command(
    mut_arg("reason", |reason| reason.help("Why, for the history")),
    mut_arg("wait", |wait| wait.help(
        "Wait until every node has the change in force, for so long at most (a minute if no time is named)"
    ))
)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    how: TryOrWaitArgs,
    /// The revision that you have seen: if another one is in force, nothing is changed [default: the one in
    /// force]
    #[arg(long, value_name = "N")]
    revision: Option<u64>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct SetArgs {
    /// The settings' new values
    #[arg(value_name = "NAME=VALUE", required_unless_present = "unset")]
    values: Vec<String>,
    /// A setting that is again what each node was started with; more than once for several
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
    /// How long the values hold; then those before are in force again
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    lasts: Option<Duration>,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Debug, Args)]
struct HistoryArgs {
    /// Changes to show at most, the newest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u64).range(1..=10_000))]
    limit: u64,
    /// Every change that is kept: the last 10,000. With --json, to be kept elsewhere
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct RevertArgs {
    /// The revision that the change made; `cell tune history` lists them
    #[arg(value_name = "REVISION")]
    reverted: u64,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What is read of `/api/v1/tuning`.
#[derive(Debug, Deserialize)]
struct Document {
    at_unix_ms: u64,
    revision: String,
    settings: Vec<Setting>,
    nodes: Vec<Node>,
    #[serde(default)]
    missing: Vec<Missing>,
}

#[derive(Clone, Debug, Deserialize)]
struct Setting {
    name: String,
    value: String,
    default: String,
    source: String,
    applies: String,
    /// None: it does.
    #[serde(default)]
    why_not_live: Option<String>,
    meaning: String,
    expires_unix_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Node {
    node: u32,
    in_force: bool,
}

/// What is read of an answer to a change.
#[derive(Debug, Deserialize)]
struct Made {
    at_unix_ms: u64,
    revision: String,
    changes: Vec<Change>,
    dry_run: bool,
    expires_unix_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Change {
    name: String,
    old: Option<String>,
    new: Option<String>,
    /// When the new value ends.
    #[serde(default)]
    new_expires_unix_ms: Option<u64>,
}

/// What is read of `/api/v1/tuning/history`.
#[derive(Debug, Deserialize)]
struct History {
    at_unix_ms: u64,
    changes: Vec<HistoryRow>,
}

/// A page of it as it is.
#[derive(Debug, Deserialize)]
struct HistoryPage {
    changes: Vec<Value>,
    /// What `before` is to be for the next one.
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct HistoryRow {
    revision: String,
    at_unix_ms: u64,
    who: String,
    reason: Option<String>,
    changes: Vec<Change>,
    reverted_by: Option<String>,
    expires_unix_ms: Option<u64>,
}

/// Runs one of the subcommands. Exit code 6 if a node that was asked what it has in force did not answer.
pub(crate) fn run(global: &Global, arguments: &TuneArgs) -> anyhow::Result<Exit> {
    match &arguments.what {
        What::Ls(arguments) => list(global, arguments),
        What::Get(arguments) => get(global, arguments),
        What::Set(arguments) => set(global, arguments),
        What::Diff(arguments) => diff(global, &arguments.api),
        What::History(arguments) => history(global, arguments),
        What::Revert(arguments) => revert(global, arguments),
    }
}

fn list(global: &Global, arguments: &LsArgs) -> anyhow::Result<Exit> {
    let word = arguments.word.as_deref().unwrap_or_default().to_lowercase();
    let is_wanted = |setting: &Setting| {
        let has_word = format!("{} {}", setting.name, setting.meaning).to_lowercase().contains(&word);
        has_word && (!arguments.live || setting.applies == "live")
    };
    let all = arguments.api.command("cell tune ls");
    show(global, &arguments.api, is_wanted, &format!("No setting fits; {all} lists all.\n"))
}

fn diff(global: &Global, api: &ApiArgs) -> anyhow::Result<Exit> {
    let differs = |setting: &Setting| setting.value != setting.default || setting.source == "admin";
    show(global, api, differs, "Every setting is as its default is.\n")
}

/// Prints the settings that are wanted, and which nodes do not have their values in force.
fn show(
    global: &Global,
    api: &ApiArgs,
    is_wanted: impl Fn(&Setting) -> bool,
    none: &str,
) -> anyhow::Result<Exit> {
    let mut document = Api::new(api)?.get(PATH)?.document;
    let parsed: Document = parse(&document)?;
    if global.json {
        let wanted: Vec<bool> = parsed.settings.iter().map(&is_wanted).collect();
        let mut wanted = wanted.into_iter();
        if let Some(rows) = document["settings"].as_array_mut() {
            rows.retain(|_| wanted.next().unwrap_or(false));
        }
        message::print_json(document)?;
    } else {
        let shown: Vec<_> = parsed.settings.iter().filter(|setting| is_wanted(setting)).collect();
        message::print_text(&if shown.is_empty() {
            none.to_owned()
        } else {
            settings_text(&shown, parsed.at_unix_ms)
        })?;
    }
    Ok(exit_of_nodes(&parsed))
}

/// Says on stderr which nodes have other values in force, or say nothing.
fn exit_of_nodes(document: &Document) -> Exit {
    late(document).iter().for_each(|words| message::warning(words));
    if document.missing.is_empty() { Exit::Ok } else { Exit::Partial }
}

/// Of each node that has other values in force, or says nothing, that it does.
fn late(document: &Document) -> Vec<String> {
    let late = document.nodes.iter().filter(|node| !node.in_force).map(|Node { node, .. }| {
        format!("revision {} is not in force on node {node} yet", document.revision)
    });
    let silent = document.missing.iter().map(|Missing { node, address, why }| {
        format!("what node {node} at {address} has in force is not known: {why}")
    });
    late.chain(silent).collect()
}

fn settings_text(settings: &[&Setting], now_unix_ms: u64) -> String {
    let row = |setting: &&Setting| {
        vec![
            setting.name.clone(),
            message::on_one_line(&setting.value),
            message::on_one_line(&setting.default),
            match setting.source.as_str() {
                "admin" => "tuned".to_owned(),
                source => source.to_owned(),
            },
            setting.applies.clone(),
            setting.expires_unix_ms.map_or_else(|| "-".to_owned(), |at| lasts(now_unix_ms, at)),
            setting.why_not_live.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let headings = ["setting", "value", "default", "from", "applies", "ends in", "why not live"];
    table::plain(&headings, &[], settings.iter().map(row).collect())
}

fn get(global: &Global, arguments: &GetArgs) -> anyhow::Result<Exit> {
    let document = Api::new(&arguments.api)?.get(PATH)?.document;
    let parsed: Document = parse(&document)?;
    let mut found = Vec::new();
    for name in &arguments.names {
        let at = parsed.settings.iter().position(|setting| setting.name == *name);
        found.push(at.ok_or_else(|| {
            let what = format!("there is no setting `{name}`");
            let all = arguments.api.command("cell tune ls");
            Failure::new(Exit::NotFound, what).next(format!("{all} lists every setting"))
        })?);
    }
    if global.json {
        let rows: Vec<_> = found.iter().map(|at| document["settings"][*at].clone()).collect();
        message::print_json(json!({"revision": parsed.revision, "settings": rows}))?;
    } else {
        let values = found.iter().map(|at| &parsed.settings[*at]);
        let line = |setting: &Setting| match arguments.names.len() {
            1 => format!("{}\n", setting.value),
            _ => format!("{}={}\n", setting.name, setting.value),
        };
        message::print_text(&values.map(line).collect::<String>())?;
    }
    Ok(Exit::Ok)
}

fn set(global: &Global, arguments: &SetArgs) -> anyhow::Result<Exit> {
    let patch = patch(&arguments.values, &arguments.unset)?;
    let mut query = arguments.change.how.of.query();
    if let Some(lasts) = arguments.lasts {
        let seconds = lasts.as_secs() + u64::from(lasts.subsec_nanos() > 0);
        query.push(format!("ttl_seconds={seconds}"));
    }
    arguments.change.send(global, &Method::PATCH, PATH, &query, &patch)
}

/// Changes one setting on all nodes.
///
/// # Errors
/// As of `cell tune set`.
pub(crate) fn set_one(global: &Global, change: &ChangeArgs, name: &str, value: &str) -> anyhow::Result<Exit> {
    let mut patch = Map::new();
    patch.insert(name.to_owned(), value.into());
    change.send(global, &Method::PATCH, PATH, &change.how.of.query(), &Value::Object(patch))
}

/// The merge patch of `NAME=VALUE` and of names whose values are taken back.
fn patch(values: &[String], unset: &[String]) -> Result<Value, Failure> {
    let mut patch = Map::new();
    let mut put = |name: &str, value: Value| match patch.insert(name.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!("`{name}` is given twice"))),
    };
    for given in values {
        let Some((name, value)) = given.split_once('=') else {
            let next = "`--unset NAME` takes a value back";
            return Err(Failure::usage(format!("a change is NAME=VALUE, not `{given}`")).next(next));
        };
        put(name.trim(), value.trim().into())?;
    }
    unset.iter().try_for_each(|name| put(name, Value::Null))?;
    Ok(Value::Object(patch))
}

fn revert(global: &Global, arguments: &RevertArgs) -> anyhow::Result<Exit> {
    let body = json!({"revision": arguments.reverted.to_string()});
    let query = arguments.change.how.of.query();
    arguments.change.send(global, &Method::POST, &format!("{PATH}:revert"), &query, &body)
}

impl ChangeArgs {
    /// Sends a change for the revision that was seen, and prints what it did.
    fn send(
        &self,
        global: &Global,
        method: &Method,
        path: &str,
        query: &[String],
        body: &Value,
    ) -> anyhow::Result<Exit> {
        let (api, patience) = (Api::new(&self.api)?, self.how.patience(PATIENCE));
        let seen = match self.revision {
            Some(revision) => format!("\"{revision}\""),
            None => api.get(PATH)?.etag.ok_or_else(|| {
                Failure::new(Exit::Error, "the node does not say the revision of its settings")
                    .next("take the `cell` of the node's version")
            })?,
        };
        let path = with_query(path, query);
        let Answer { document, .. } = api.send(method, &path, &[("if-match", &seen)], Some(body))?;
        let made: Made = parse(&document)?;
        if global.json {
            message::print_json(document)?;
        } else {
            let diff = patience.is_none().then(|| self.api.command("cell tune diff"));
            message::print_text(&made_text(&made, diff.as_deref()))?;
        }
        match patience {
            Some(patience) if !made.dry_run => wait_for_all(&api, &made.revision, &Waiting::start(patience)?),
            _ => Ok(Exit::Ok),
        }
    }
}

impl Document {
    /// Whether it is of this revision or a later one.
    fn has_seen(&self, revision: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        number(&self.revision) >= number(revision)
    }
}

/// Waits until all nodes have a revision in force, or a later one. Exit code 6 if some have not in time, 130
/// after a signal.
fn wait_for_all(api: &Api, revision: &str, waiting: &Waiting) -> anyhow::Result<Exit> {
    let goes_on = format!("revision {revision} is set, and goes on to all nodes");
    loop {
        let asked = api.get(PATH).and_then(|answer| parse::<Document>(&answer.document));
        let enough = waiting.enough();
        match asked {
            Ok(document) if document.has_seen(revision) => {
                let late = late(&document);
                if late.is_empty() {
                    let count = number::counted(document.nodes.len() as u64, "node", "nodes");
                    message::note(&format!("revision {revision} is in force on {count}"));
                    return Ok(Exit::Ok);
                }
                if enough == Some(Enough::Interrupted) {
                    return waiting.end(Enough::Interrupted, &late.join(", "), &goes_on);
                }
                if enough.is_some() {
                    late.iter().for_each(|words| message::warning(words));
                    return Ok(Exit::Partial);
                }
            }
            // The node that is asked has seen less: its coordinator does not answer it just now.
            Ok(_) => {
                if let Some(enough) = enough {
                    let stand = format!("whether revision {revision} is in force is not known");
                    return waiting.end(enough, &stand, &goes_on);
                }
            }
            Err(failure) => {
                if let Some(enough) = enough {
                    return waiting.end_unseen(enough, failure, &goes_on);
                }
            }
        }
        thread::sleep(WAIT_PERIOD);
    }
}

/// `diff`: the command that names nodes which have it not in force.
fn made_text(made: &Made, diff: Option<&str>) -> String {
    if made.changes.is_empty() {
        return format!("Nothing changes: revision {} has these values already.\n", made.revision);
    }
    let row = |change: &Change| {
        let [before, mut then] = [&change.old, &change.new].map(|value| shown(value.as_deref()));
        // What is restored has its own end.
        let end = change.new_expires_unix_ms.filter(|end| made.expires_unix_ms != Some(*end));
        then.extend(end.map(|end| format!(" (for {})", lasts(made.at_unix_ms, end))));
        vec![change.name.clone(), before, then]
    };
    let rows = made.changes.iter().map(row).collect();
    let mut text = table::plain(&["setting", "before", "then"], &[], rows);
    if let Some(at) = made.expires_unix_ms {
        text.push_str(&format!("for {}, then as before\n", lasts(made.at_unix_ms, at)));
    }
    text.push_str(&match made.dry_run {
        true => format!(
            "Nothing was changed: revision {0} stays in force. `--revision {0}` makes this change and no other.\n",
            made.revision
        ),
        false => {
            let names = diff.map(|diff| format!("; {diff} names those that have not")).unwrap_or_default();
            format!("Revision {}: nodes take it over at their next look{names}.\n", made.revision)
        }
    });
    text
}

fn history(global: &Global, arguments: &HistoryArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let limit = if arguments.all { u64::MAX } else { arguments.limit };
    let document = history_of(limit, |path| Ok(api.get(path)?.document))?;
    let parsed: History = parse(&document)?;
    if global.json {
        message::print_json(document)?;
    } else {
        message::print_text(&history_text(&parsed))?;
    }
    Ok(Exit::Ok)
}

/// The newest changes, at most so many, as one document that is read page by page.
fn history_of(limit: u64, mut get: impl FnMut(&str) -> anyhow::Result<Value>) -> anyhow::Result<Value> {
    let path = |left: u64| format!("{PATH}/history?limit={}", left.min(PAGE));
    let mut whole = get(&path(limit))?;
    let HistoryPage { mut changes, mut next } = parse(&whole)?;
    while let Some(before) = next.take() {
        let left = limit.saturating_sub(u64::try_from(changes.len()).unwrap_or(u64::MAX));
        if left == 0 {
            next = Some(before);
            break;
        }
        let page: HistoryPage = parse(&get(&format!("{}&before={before}", path(left)))?)?;
        changes.extend(page.changes);
        next = page.next;
    }
    whole["changes"] = changes.into();
    whole["next"] = next.into();
    Ok(whole)
}

fn history_text(history: &History) -> String {
    if history.changes.is_empty() {
        return "Nothing was changed yet.\n".to_owned();
    }
    let row = |row: &HistoryRow| {
        let change = |it: &Change| {
            let [old, new] = [&it.old, &it.new].map(|value| shown(value.as_deref()));
            format!("{} {old} -> {new}", it.name)
        };
        let mut notes: Vec<String> = row.reason.iter().map(|reason| message::on_one_line(reason)).collect();
        let held = row.expires_unix_ms.map(|at| format!("for {}", lasts(row.at_unix_ms, at)));
        let reverted = row.reverted_by.as_ref().map(|by| format!("taken back by {by}"));
        notes.extend(held.into_iter().chain(reverted));
        vec![
            row.revision.clone(),
            age(row.at_unix_ms, history.at_unix_ms),
            message::on_one_line(&row.who),
            row.changes.iter().map(change).collect::<Vec<_>>().join(", "),
            if notes.is_empty() { "-".to_owned() } else { notes.join("; ") },
        ]
    };
    let rows = history.changes.iter().map(row).collect();
    table::plain(&["revision", "age", "who", "what", "why"], &[0], rows)
}

/// A value, or that each node goes by what it was started with.
fn shown(value: Option<&str>) -> String {
    value.map_or_else(|| "(as started)".to_owned(), message::on_one_line)
}

/// How long ago it was, by moments in milliseconds since 1970.
fn age(at_unix_ms: u64, now_unix_ms: u64) -> String {
    match now_unix_ms.saturating_sub(at_unix_ms) / 1000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => number::time(Duration::from_secs(seconds)),
    }
}

/// How long it lasts from one moment to another.
fn lasts(from_unix_ms: u64, to_unix_ms: u64) -> String {
    number::remaining(Duration::from_millis(to_unix_ms.saturating_sub(from_unix_ms)))
}

fn parse<T: DeserializeOwned>(document: &Value) -> Result<T, Failure> {
    understand(document, "of its settings")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_has_values_and_what_is_taken_back() {
        let given = ["a=1 s".to_owned(), "b = x=y".to_owned()];
        assert_eq!(patch(&given, &["c".to_owned()]).unwrap(), json!({"a": "1 s", "b": "x=y", "c": null}));
        let twice = patch(&given, &["a".to_owned()]).unwrap_err();
        assert_eq!((twice.exit, twice.what.as_str()), (Exit::Usage, "`a` is given twice"));
        assert!(patch(&["a".to_owned()], &[]).unwrap_err().next.unwrap().contains("--unset"));
    }

    #[test]
    fn made_text_says_what_changed_and_for_how_long() {
        let document = json!({
            "at_unix_ms": 1_000, "revision": "8", "dry_run": false, "expires_unix_ms": 601_000,
            "changes": [{"name": "a", "old": null, "new": "2 s"}],
        });
        let made: Made = parse(&document).unwrap();
        let text = made_text(&made, Some("`cell tune diff --http a:1`"));
        assert!(text.contains("look; `cell tune diff --http a:1` names those"), "{text}");
        assert!(text.contains("(as started)") && text.contains("2 s"), "{text}");
        assert!(text.contains("for 10 min 0 s, then as before\nRevision 8: nodes"), "{text}");
        let tried = made_text(&Made { dry_run: true, ..made }, None);
        assert!(tried.contains("revision 8 stays in force. `--revision 8` makes this"), "{tried}");
    }

    #[test]
    fn made_text_of_a_revert_has_the_ends_of_what_is_restored() {
        let document = json!({
            "at_unix_ms": 1_012, "revision": "8", "dry_run": true, "expires_unix_ms": null,
            "changes": [{"name": "a", "old": "1", "new": "2", "new_expires_unix_ms": 31_000}],
        });
        let text = made_text(&parse(&document).unwrap(), None);
        assert!(text.contains("2 (for 30 s)"), "{text}");
    }

    #[test]
    fn history_of_reads_pages_until_it_has_what_is_wanted() {
        for (limit, wanted, next) in [(u64::MAX, 450, None), (300, 300, Some("151")), (200, 200, Some("251"))]
        {
            let mut asked = Vec::new();
            let page = |path: &str| {
                asked.push(path.to_owned());
                let number = |name: &str| {
                    let value = path.split(['?', '&']).find_map(|part| part.strip_prefix(name));
                    value.map(|text| text.parse::<u64>().unwrap())
                };
                let (most, before) = (number("limit=").unwrap(), number("before=").unwrap_or(451));
                let first = before.saturating_sub(most).max(1);
                let rows: Vec<_> = (first..before).rev().map(|it| json!({"revision": it})).collect();
                let next = (first > 1).then(|| first.to_string());
                Ok(json!({"version": 1, "changes": rows, "next": next}))
            };
            let whole = history_of(limit, page).unwrap();
            let rows = whole["changes"].as_array().unwrap();
            assert_eq!((rows.len(), &rows[0]["revision"]), (wanted, &450.into()), "{asked:?}");
            assert_eq!((whole["next"].as_str(), &whole["version"]), (next, &1.into()), "{asked:?}");
        }
    }

    #[test]
    fn history_text_has_a_row_for_each_change() {
        let document = json!({"at_unix_ms": 125_000, "changes": [{
            "revision": "3", "at_unix_ms": 5_000, "who": "op\u{1b}", "reason": "why", "reverted_by": "4",
            "expires_unix_ms": null, "changes": [{"name": "a", "old": "1", "new": null}],
        }]});
        let text = history_text(&parse(&document).unwrap());
        for part in ["2 min 0 s", "a 1 -> (as started)", "why; taken back by 4", "op\\u{1b}"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn exit_of_nodes_is_partial_where_one_is_missing() {
        let document = |missing: Value| {
            let whole = json!({
                "at_unix_ms": 0, "revision": "1", "settings": [], "missing": missing,
                "nodes": [{"node": 0, "revision": "1", "in_force": true}],
            });
            exit_of_nodes(&parse(&whole).unwrap())
        };
        assert_eq!(document(json!([])), Exit::Ok);
        assert_eq!(document(json!([{"node": 1, "address": "a", "why": "gone"}])), Exit::Partial);
    }
}
