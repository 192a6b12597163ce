//! `cell node drain`, `undrain` and `remove`: empties nodes of their pairs while all is read and written, and
//! removes them for good, by the admin API.

use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::http::Method;

use crate::api::{Api, ApiArgs, Missing, understand};
use crate::args::Global;
use crate::change_args::{TryArgs, TryOrWaitArgs};
use crate::exit::{Exit, Failure};
use crate::output::{message, number};
use crate::waiting::{Enough, Waiting};

const PATH: &str = "/api/v1/drains";
/// How long the end of a drain is waited for, unless a time is named.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Between two looks at how far a drain is. The answer is kept for a second.
const WAIT_PERIOD: Duration = Duration::from_millis(500);
/// Moves of a plan that are printed.
const MOVES_SHOWN: usize = 20;
/// The state of a node whose lease has ended: its row has no figures.
pub(crate) const ABSENT: &str = "absent";
/// The state of a node that was removed for good.
const REMOVED: &str = "removed";

/// Which nodes.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WhichArgs {
    /// The node, by its number: `cell node ls` lists them
    #[arg(value_name = "NODE")]
    node: Option<u32>,
    /// All nodes that are reached at this IP address: the processes of one machine
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
}

/// Arguments of `cell node drain`.
#[derive(Debug, Args)]
#[command(
    mut_arg("dry_run", |dry_run| dry_run.help("Say whether it can be, and where each pair would go")),
    mut_arg("wait", |wait| wait.help(
        "Wait until the nodes are empty, for so long at most (an hour if no time is named), and say how far it is"
    ))
)]
pub(crate) struct NodeDrainArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    how: TryOrWaitArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Arguments of `cell node undrain`.
#[derive(Debug, Args)]
pub(crate) struct NodeUndrainArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Arguments of `cell node remove`.
#[derive(Debug, Args)]
#[command(mut_arg("dry_run", |dry_run| dry_run.help("Say whether it can be")))]
pub(crate) struct NodeRemoveArgs {
    /// The node, by its number
    #[arg(value_name = "NODE")]
    node: u32,
    #[command(flatten)]
    how: TryArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// What a change answers.
#[derive(Debug, Deserialize)]
struct Change {
    nodes: Vec<u32>,
    moves: Vec<Planned>,
    moves_total: u64,
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Planned {
    pair: u32,
    from: u32,
    to: u32,
    bytes: u64,
}

/// A node that drains.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Drain {
    pub(crate) node: u32,
    /// Who wanted it; empty where that is not said.
    #[serde(default)]
    pub(crate) who: String,
    state: String,
    pairs_left: u64,
    bytes_left: Option<u64>,
    stall: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Document {
    drains: Vec<Drain>,
}

/// What is read of `/api/v1/nodes`.
#[derive(Debug, Deserialize)]
struct Nodes {
    nodes: Vec<Placed>,
    missing: Vec<Missing>,
}

#[derive(Debug, Deserialize)]
struct Placed {
    node: u32,
    address: String,
    #[serde(default)]
    state: String,
}

impl Nodes {
    /// Those of these nodes that have no process, as far as is known.
    fn without_process(&self, nodes: &[u32]) -> Vec<u32> {
        let runs = |node: u32| {
            let has_lease = self.nodes.iter().any(|of| of.node == node && of.state != ABSENT);
            has_lease || self.missing.iter().any(|of| of.node == node)
        };
        nodes.iter().copied().filter(|node| !runs(*node)).collect()
    }
}

impl Placed {
    fn is_at(&self, host: &str) -> bool {
        let place = self.address.rsplit_once(':').map_or(&*self.address, |(place, _)| place);
        place.trim_matches(['[', ']']) == host.trim_matches(['[', ']'])
    }
}

impl WhichArgs {
    /// The nodes that are meant; none: that is not known.
    fn nodes(&self, api: &Api) -> Option<Vec<u32>> {
        let Some(host) = &self.host else { return Some(vec![self.node?]) };
        let document = api.get("/api/v1/nodes").ok()?.document;
        let listed: Nodes = understand(&document, "of the nodes").ok()?;
        let nodes = listed.nodes.iter().filter(|node| node.is_at(host)).map(|node| node.node);
        listed.missing.is_empty().then(|| nodes.collect())
    }

    fn body(&self) -> Value {
        match (self.node, &self.host) {
            (Some(node), _) => json!({"node": node}),
            (None, host) => json!({"host": host}),
        }
    }
}

impl Drain {
    /// Whether the node was removed for good.
    pub(crate) fn is_removed(&self) -> bool {
        self.state == REMOVED
    }

    /// How far it is, in a few words.
    fn words(&self) -> String {
        match self.state.as_str() {
            REMOVED => "removed for good".to_owned(),
            "drained" => "drained: no pair is left".to_owned(),
            _ => {
                let bytes = self.bytes_left.map(|bytes| format!(", {}", number::bytes(bytes)));
                let pairs = cell_terms::text::counted(self.pairs_left, "pair", "pairs");
                format!("drains: {pairs} left{}", bytes.unwrap_or_default())
            }
        }
    }

    /// The same for a line of its own.
    pub(crate) fn line(&self) -> String {
        let stall = self.stall.as_ref().map(|stall| format!("; {}", message::on_one_line(stall)));
        format!("node {} {}{}", self.node, self.words(), stall.unwrap_or_default())
    }
}

/// The nodes that drain, and those that were removed; with the document.
///
/// # Errors
/// No node answers, or it says something else.
fn list(api: &Api) -> Result<(Vec<Drain>, Value), Failure> {
    let document = api.get(PATH)?.document;
    let parsed: Document = understand(&document, "which nodes drain")?;
    Ok((parsed.drains, document))
}

/// The same as they are now, also where they have just been started or ended.
///
/// # Errors
/// As for [`list`].
pub(crate) fn list_anew(api: &Api) -> Result<Vec<Drain>, Failure> {
    let parsed: Document = understand(&api.get_anew(PATH)?.document, "which nodes drain")?;
    Ok(parsed.drains)
}

/// Runs `cell node drain`.
pub(crate) fn drain(global: &Global, arguments: &NodeDrainArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let (patience, events) = (arguments.how.patience(PATIENCE), arguments.api.command("cell events"));
    let document = match arguments.how.of.change(&api, PATH, &arguments.which.body()) {
        Ok(document) => document,
        Err(refused) => {
            let Some(patience) = patience else { return Err(refused.into()) };
            let draining = draining_already(&api, &arguments.which, &refused);
            let Some(nodes) = draining else { return Err(refused.into()) };
            let started = json!({
                "nodes": nodes, "moves": [], "moves_total": 0, "bytes": 0, "dry_run": false, "revision": null,
            });
            return wait(global, &api, (&started, &nodes), &Waiting::start(patience)?, &events);
        }
    };
    let mut made: Change = understand(&document, "what becomes of the drain")?;
    made.nodes.sort_unstable();
    if let Some(patience) = patience {
        return wait(global, &api, (&document, &made.nodes), &Waiting::start(patience)?, &events);
    }
    message::print_document(global.json, document, || plan_text(arguments, &made))?;
    Ok(Exit::Ok)
}

/// The nodes of a drain that has no plan just now, where it was started before: it goes on whatever a plan
/// lacks, as nodes that start have not reported yet what they have.
fn draining_already(api: &Api, which: &WhichArgs, refused: &Failure) -> Option<Vec<u32>> {
    if refused.code.as_deref() != Some("drain_refused") {
        return None;
    }
    // What would end is what goes on; the list may be of a moment ago.
    let path = "/api/v1/drains:end?dry_run=1";
    let would_end = api.send(&Method::POST, path, &[], Some(&which.body())).ok()?.document;
    let draining: Change = understand(&would_end, "which nodes drain").ok()?;
    let wanted = which.nodes(api)?;
    wanted.iter().all(|node| draining.nodes.contains(node)).then_some(wanted)
}

/// Runs `cell node undrain`.
pub(crate) fn undrain(global: &Global, arguments: &NodeUndrainArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let how = TryArgs { dry_run: false, reason: None };
    let document = how.change(&api, "/api/v1/drains:end", &arguments.which.body())?;
    let made: Change = understand(&document, "what became of the drain")?;
    let listed =
        api.get_anew("/api/v1/nodes").and_then(|of| understand::<Nodes>(&of.document, "of the nodes"));
    let without = listed.map_or_else(|_| Vec::new(), |listed| listed.without_process(&made.nodes));
    let more = more_to_do(&without, &arguments.api.command("cell dev scale N"));
    message::print_document(global.json, document, || undrained_text(&made.nodes, more.as_deref()))?;
    if let Some(more) = more.filter(|_| global.json) {
        message::warning(&more);
    }
    Ok(Exit::Ok)
}

/// What became of drains that were ended, and what else has to be done.
fn undrained_text(nodes: &[u32], more: Option<&str>) -> String {
    let may = format!("{} may have pairs again; balance gives them some", named(nodes));
    more.map_or_else(|| format!("{may}\n"), |more| format!("{may}\n{more}\n"))
}

/// What else is to be done for nodes without a process: the end of a drain, or of a removal, starts none.
/// `scale` is the command of a development cluster.
fn more_to_do(without_process: &[u32], scale: &str) -> Option<String> {
    let run = match without_process.len() {
        0 => return None,
        1 => "does not run: start it",
        _ => "do not run: start them",
    };
    Some(format!(
        "{} {run}; a supervisor that has given a process up starts it again at a SIGHUP, and that of \
         `cell dev` by {scale}",
        named(without_process)
    ))
}

/// Runs `cell node remove`.
pub(crate) fn remove(global: &Global, arguments: &NodeRemoveArgs) -> anyhow::Result<Exit> {
    let NodeRemoveArgs { node, how, api } = arguments;
    let document = how.change(&Api::new(api)?, "/api/v1/nodes:remove", &json!({"node": node}))?;
    message::print_document(global.json, document, || match how.dry_run {
        true => format!("node {node} could be removed; nothing was done\n"),
        false => format!(
            "node {node} is removed: nobody expects it back, and it may not join; {} permits it again\n",
            api.command(&format!("cell node undrain {node}"))
        ),
    })?;
    Ok(Exit::Ok)
}

/// `node 1`, `nodes 1 and 2`.
fn named(nodes: &[u32]) -> String {
    let mut words: Vec<String> = nodes.iter().map(u32::to_string).collect();
    match words.pop() {
        Some(last) if words.is_empty() => format!("node {last}"),
        Some(last) => format!("nodes {} and {last}", words.join(", ")),
        None => "no node".to_owned(),
    }
}

fn is_or_are(nodes: &[u32]) -> &'static str {
    if nodes.len() == 1 { "is" } else { "are" }
}

fn plan_text(arguments: &NodeDrainArgs, made: &Change) -> String {
    let pairs = cell_terms::text::counted(made.moves_total, "pair", "pairs");
    let what = format!("{pairs} with {}", number::bytes(made.bytes));
    if !arguments.how.of.dry_run {
        let look = arguments.api.command("cell node ls");
        let (nodes, verb) = (named(&made.nodes), is_or_are(&made.nodes));
        return format!("{nodes} {verb} emptied of {what}; {look} shows how far it is\n");
    }
    let line = |planned: &Planned| {
        let Planned { pair, from, to, bytes } = planned;
        format!("  pair {pair} of node {from} to node {to}, {}\n", number::bytes(*bytes))
    };
    let mut text = format!("{} would be emptied of {what}; nothing was done\n", named(&made.nodes));
    text.extend(made.moves.iter().take(MOVES_SHOWN).map(line));
    let more = made.moves_total.saturating_sub(MOVES_SHOWN as u64);
    if more > 0 {
        text.push_str(&format!("  and {} more\n", number::count(more)));
    }
    text
}

/// What a command that has waited prints as JSON: what it would have without, with how far the drains of
/// these nodes are by then.
fn waited(started: &Value, nodes: &[u32], listed: &Value) -> Value {
    let is_own = |row: &&Value| nodes.iter().any(|node| row["node"] == *node);
    let own: Vec<&Value> = listed["drains"].as_array().into_iter().flatten().filter(is_own).collect();
    let drains = json!(own);
    let mut document = started.clone();
    document["drains"] = drains;
    document
}

/// Waits until nodes are empty whose drain was started with this answer; `events` is how to see what
/// happened. Exit code 6 if they are not in time, 1 if somebody ended the drain, 130 after a signal.
fn wait(
    global: &Global,
    api: &Api,
    (started, nodes): (&Value, &[u32]),
    waiting: &Waiting,
    events: &str,
) -> anyhow::Result<Exit> {
    const GOES_ON: &str = "the drain goes on";
    let mut said: Vec<String> = Vec::new();
    // The answer of a moment ago may not know of the drain yet.
    let mut seen = false;
    loop {
        let enough = waiting.enough();
        let known = match list(api) {
            Ok((drains, document)) => {
                let known = waited(started, nodes, &document);
                let own: Vec<&Drain> = drains.iter().filter(|drain| nodes.contains(&drain.node)).collect();
                let lines: Vec<String> = own.iter().map(|drain| drain.line()).collect();
                lines.iter().filter(|line| !said.contains(line)).for_each(|line| message::note(line));
                said = lines;
                let all = own.len() == nodes.len();
                if all && own.iter().all(|drain| drain.pairs_left == 0) {
                    message::print_document(global.json, known, || {
                        format!("{} {} empty, and can be stopped\n", named(nodes), is_or_are(nodes))
                    })?;
                    return Ok(Exit::Ok);
                }
                if seen && !all {
                    let what = format!("somebody ended the drain of {}", named(nodes));
                    return Err(Failure::new(Exit::Error, what).next(format!("{events} says who")).into());
                }
                seen |= all;
                known
            }
            Err(failure) => match enough {
                Some(enough) => return waiting.end_unseen(enough, failure, GOES_ON),
                None => started.clone(),
            },
        };
        if let Some(enough) = enough {
            if global.json && enough == Enough::Late {
                message::print_json(known)?;
            }
            let stand = format!("{} {} not empty", named(nodes), is_or_are(nodes));
            return waiting.end(enough, &stand, GOES_ON);
        }
        thread::sleep(WAIT_PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn drain(state: &str, pairs_left: u64, stall: Option<&str>) -> Drain {
        let (state, stall) = (state.to_owned(), stall.map(str::to_owned));
        Drain { node: 3, who: "ann".to_owned(), state, pairs_left, bytes_left: Some(2_048), stall }
    }

    #[test]
    fn line_says_what_is_left_and_what_keeps_it() {
        let stalled = drain("draining", 2, Some("pair-1 cannot move: no room")).line();
        assert_eq!(stalled, "node 3 drains: 2 pairs left, 2.00 KiB; pair-1 cannot move: no room");
        assert_eq!(drain("drained", 0, None).line(), "node 3 drained: no pair is left");
        assert_eq!(drain("removed", 0, None).line(), "node 3 removed for good");
    }

    /// An admin API: nodes 1 and 2 are at one host; these nodes drain, and one more may not have answered.
    fn api(draining: &'static [u32], missing: bool) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let http = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let (mut asked, mut bytes) = (String::new(), 0_usize);
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        bytes = length.trim().parse().unwrap();
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                    asked.push_str(&line);
                }
                stream.read_exact(&mut vec![0_u8; bytes]).unwrap();
                let missing: Vec<Value> = missing
                    .then(|| json!({"node": 3, "address": "h:1", "why": "late"}))
                    .into_iter()
                    .collect();
                let (status, body) = if asked.starts_with("GET /api/v1/nodes ") {
                    let node = |node: u32, at: &str| json!({"node": node, "address": at});
                    let nodes = [node(0, "10.0.0.4:7000"), node(1, "[fe::5]:7000"), node(2, "[fe::5]:7001")];
                    ("200 OK", json!({"nodes": nodes, "missing": missing}))
                } else if asked.starts_with("POST /api/v1/drains:end?dry_run=1 ") && !draining.is_empty() {
                    ("200 OK", json!({"nodes": draining, "moves": [], "moves_total": 0, "bytes": 0}))
                } else {
                    ("409 Conflict", json!({"code": "node_refused", "detail": "Node-1 does not drain."}))
                };
                let body = body.to_string();
                let head =
                    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close", body.len());
                stream.get_mut().write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
            }
        });
        Api::new(&ApiArgs { http: Some(http), ..ApiArgs::default() }).unwrap()
    }

    /// Right after a restart of its node the wait for a drain that went on ended with exit code 3.
    #[test]
    fn drain_that_goes_on_is_waited_for_though_there_is_no_plan_just_now() {
        let node = |node| WhichArgs { node: Some(node), host: None };
        let host = || WhichArgs { node: None, host: Some("fe::5".to_owned()) };
        let refused = |code: &str| Failure {
            code: Some(code.to_owned()),
            ..Failure::new(Exit::NotFound, "Node-1 has not reported yet what its pairs take")
        };
        let said = |draining: &'static [u32], missing: bool, which: WhichArgs| {
            draining_already(&api(draining, missing), &which, &refused("drain_refused"))
        };
        assert_eq!(said(&[1], false, node(1)), Some(vec![1]));
        assert_eq!(said(&[], false, node(1)), None, "it was never started");
        assert_eq!(said(&[1, 2], false, host()), Some(vec![1, 2]));
        assert_eq!(said(&[1], false, host()), None, "of one node of the host it was not");
        assert_eq!(said(&[1, 2], true, host()), None, "a node that does not answer may be at the host");
        let gone = draining_already(&api(&[1], false), &node(1), &refused("not_found"));
        assert_eq!(gone, None, "nobody drains it");
    }

    #[test]
    fn wait_that_is_interrupted_is_130_also_while_nothing_is_known_of_the_drain() {
        let global = Global { json: false, quiet: true, color: message::Color::Never };
        let waiting = Waiting::unless(Arc::new(AtomicBool::new(true)), PATIENCE);
        let ended = wait(&global, &api(&[1], false), (&Value::Null, &[1]), &waiting, "`cell events`");
        let failure = ended.unwrap_err().downcast::<Failure>().unwrap();
        assert_eq!(failure.exit, Exit::Interrupted);
        assert!(failure.what.ends_with("; the drain goes on"), "{}", failure.what);
    }

    /// With `--wait` it was all drains and not the change, and nothing where nodes were not empty in time.
    #[test]
    fn document_of_a_drain_that_was_waited_for_has_the_fields_of_one_that_was_not() {
        let started = json!({"version": 1, "nodes": [1], "moves": [], "dry_run": false});
        let rows = [json!({"node": 1, "pairs_left": 0}), json!({"node": 2, "pairs_left": 3})];
        let listed = json!({"version": 1, "drains": rows});
        let document = waited(&started, &[1], &listed);
        let expected =
            json!({"version": 1, "nodes": [1], "moves": [], "dry_run": false, "drains": rows[..1]});
        assert_eq!(document, expected);
    }

    /// It said that balance gives pairs to a node that its supervisor had given up.
    #[test]
    fn undrain_says_which_nodes_do_not_run_and_what_starts_them() {
        let node = |node: u32, state: &str| json!({"node": node, "address": "a:1", "state": state});
        let missing = json!([{"node": 2, "address": "a:1", "why": "late"}]);
        let document = json!({"nodes": [node(0, "serving"), node(1, "absent")], "missing": missing});
        let listed: Nodes = understand(&document, "of the nodes").unwrap();
        assert_eq!(listed.without_process(&[0, 1, 2, 3]), [1, 3]);
        assert_eq!(more_to_do(&[], "`s`"), None);
        assert_eq!(undrained_text(&[0], None), "node 0 may have pairs again; balance gives them some\n");
        let more = more_to_do(&[1], "`s`").unwrap();
        assert!(more.starts_with("node 1 does not run: start it; a supervisor that has given"), "{more}");
        assert!(more.ends_with("by `s`"), "{more}");
        assert!(undrained_text(&[0, 1], Some(&more)).ends_with(&format!("\n{more}\n")));
    }

    #[test]
    fn nodes_are_named_in_a_row() {
        assert_eq!(named(&[1]), "node 1");
        assert_eq!(named(&[1, 2, 5]), "nodes 1, 2 and 5");
    }
}
