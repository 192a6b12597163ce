//! `cell region move`: lets a pair move to another node while both live, by the admin API; and what moves.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::http::Method;

use crate::api::{Api, ApiArgs, understand};
use crate::args::Global;
use crate::change_args::TryOrWaitArgs;
use crate::exit::{Exit, Failure};
use crate::output::{message, number};
use crate::waiting::{Enough, Waiting};

/// As many rows as the API gives.
const PATH: &str = "/api/v1/moves?limit=65536";
/// The same.
pub(crate) const REGIONS_PATH: &str = "/api/v1/regions?limit=65536";
const NODES_PATH: &str = "/api/v1/nodes";
/// How long the end of a move is waited for, unless a time is named.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long the node that is asked may take to see what the coordinator knows already.
const SHOWN_MAX: Duration = Duration::from_secs(10);
/// Between two looks at how far a move is.
const WAIT_PERIOD: Duration = Duration::from_millis(200);

/// Arguments of `cell region move`.
#[derive(Debug, Args)]
#[command(mut_arg("wait", |wait| wait.help(
    "Wait until the other node serves the pair, for so long at most (10 minutes if no time is named), and say \
     how far it is"
)))]
pub(crate) struct RegionMoveArgs {
    /// The pair, by its number: `cell region ls` lists them
    #[arg(value_name = "PAIR")]
    pair: u32,
    /// The node that is to have it, by its number
    #[arg(long, value_name = "NODE", required_unless_present = "cancel")]
    to: Option<u32>,
    /// End the pair's move, if nothing is handed over yet: the pair stays where it is
    #[arg(long, conflicts_with_all = ["to", "dry_run", "reason", "wait"])]
    cancel: bool,
    #[command(flatten)]
    how: TryOrWaitArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// What is read of a move.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Move {
    pair: u32,
    number: u64,
    from: u32,
    to: u32,
    stage: String,
    bytes_done: u64,
    bytes_total: u64,
    outcome: Option<String>,
    because: Option<String>,
    /// When it was asked for, if that is known.
    #[serde(default)]
    wanted_unix_ms: Option<u64>,
}

/// What is read of a region: who has its pair.
#[derive(Debug, Deserialize)]
struct Placed {
    pair: u32,
    node: Option<u32>,
}

/// What is read of `/api/v1/regions`.
#[derive(Debug, Deserialize)]
struct Placement {
    regions: Vec<Placed>,
}

/// What is read of `/api/v1/nodes`: who says that it has which pairs.
#[derive(Debug, Deserialize)]
struct Nodes {
    nodes: Vec<Holder>,
}

#[derive(Debug, Deserialize)]
struct Holder {
    node: u32,
    pairs: Vec<u32>,
}

/// What is read of `/api/v1/moves`.
#[derive(Debug, Deserialize)]
struct Document {
    moves: Vec<Move>,
}

/// What is read of an answer to a change.
#[derive(Debug, Deserialize)]
struct Made {
    r#move: Move,
}

impl Move {
    /// How far it is, in one line.
    pub(crate) fn line(&self) -> String {
        let Move { pair, from, to, .. } = self;
        let far = match (&self.outcome, self.stage.as_str()) {
            (Some(outcome), _) => match &self.because {
                Some(because) => format!("{} ({})", in_words(outcome), message::on_one_line(because)),
                None => in_words(outcome).to_owned(),
            },
            (None, "copying") => self.copied(),
            (None, stage) => stage.to_owned(),
        };
        format!("pair {pair} from node {from} to node {to}: {far}")
    }

    /// How far a copy is. What is still being written is not known before it is read, so that there is no
    /// part of a whole once all else was read.
    fn copied(&self) -> String {
        let (done, total) = (number::bytes(self.bytes_done), number::bytes(self.bytes_total));
        if self.bytes_done > 0 && self.bytes_done >= self.bytes_total {
            return format!("copying, {done} copied, catching up");
        }
        let percent = self.bytes_done.saturating_mul(100) / self.bytes_total.max(1);
        format!("copying, {done} of {total}, {percent} %")
    }

    /// The same of one that is under way, with since when.
    pub(crate) fn line_since(&self) -> String {
        let since = self.wanted_unix_ms.map(|ms| format!(", since {}", number::moment(ms)));
        format!("{}{}", self.line(), since.unwrap_or_default())
    }

    /// Where the pair is once the move has come to nothing, by the move itself: what nodes show of owners may
    /// be of a second ago. None: that is not known.
    fn whereabouts(&self) -> Option<String> {
        let from = self.from;
        let is_claimed = self.because.as_deref() == Some(cell_cluster::PAIR_CLAIMED);
        if is_claimed || self.stage == "handed" {
            return None; // the pair has gone on
        }
        if self.because.as_deref().is_some_and(cell_node::is_source_gone) {
            return Some(format!("a survivor takes it over, or node {from} if that is back before"));
        }
        // Nothing was handed over.
        let stays = matches!(self.outcome.as_deref(), Some("given_up" | "cancelled"));
        stays.then(|| format!("it stays at node {from}"))
    }

    /// Whether the nodes' documents show that the pair has left its source.
    fn is_shown(&self, placement: &Placement, nodes: &Nodes) -> bool {
        let is_mine = |of: &&Placed| of.pair == self.pair;
        let has_it = |of: &Holder| of.node == self.from && of.pairs.contains(&self.pair);
        let owner = placement.regions.iter().find(is_mine).and_then(|of| of.node);
        owner != Some(self.from) && !nodes.nodes.iter().any(has_it)
    }
}

/// What became of a move.
fn in_words(outcome: &str) -> &str {
    match outcome {
        "given_up" => "given up",
        "back" => "went back after it was handed over",
        other => other,
    }
}

/// The moves that are under way.
///
/// # Errors
/// No node answers, or it says something else.
pub(crate) fn under_way(api: &Api) -> Result<Vec<Move>, Failure> {
    let document: Document = understand(&api.get(PATH)?.document, "what moves")?;
    Ok(document.moves.into_iter().filter(|of| of.outcome.is_none()).collect())
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &RegionMoveArgs) -> anyhow::Result<Exit> {
    let api = Api::new(&arguments.api)?;
    let document = match arguments.to {
        Some(to) => {
            let body = json!({"pair": arguments.pair, "to": to});
            arguments.how.of.change(&api, "/api/v1/moves", &body)?
        }
        None => {
            let body = json!({"pair": arguments.pair});
            api.send(&Method::POST, "/api/v1/moves:cancel", &[], Some(&body))?.document
        }
    };
    let made: Made = understand(&document, "what becomes of a move")?;
    match arguments.how.patience(PATIENCE) {
        Some(patience) => {
            let look = arguments.api.command("cell region ls");
            wait(global, &api, (&document, &made.r#move), &Waiting::start(patience)?, &look)
        }
        None => {
            message::print_document(global.json, document, || text(arguments, &made.r#move))?;
            Ok(Exit::Ok)
        }
    }
}

fn text(arguments: &RegionMoveArgs, of: &Move) -> String {
    let Move { pair, from, to, .. } = of;
    if arguments.cancel {
        return format!("the move of pair {pair} to node {to} is cancelled: it stays at node {from}\n");
    }
    if arguments.how.of.dry_run {
        return format!("pair {pair} would move from node {from} to node {to}; nothing was done\n");
    }
    let look = arguments.api.command("cell region ls");
    format!("pair {pair} is to move from node {from} to node {to}; {look} shows how far it is\n")
}

/// What a command that has waited prints as JSON: what it would have without, with the move as it is by then.
fn waited(document: &Value, row: Value) -> Value {
    let mut document = document.clone();
    document["move"] = row;
    document
}

/// Waits until a move is over that was started with this answer; `look` is how to look at it later. Exit code
/// 6 if it is not in time, 1 if it came to nothing, 130 after a signal.
fn wait(
    global: &Global,
    api: &Api,
    (document, started): (&Value, &Move),
    waiting: &Waiting,
    look: &str,
) -> anyhow::Result<Exit> {
    const GOES_ON: &str = "the move goes on";
    let mut said = String::new();
    loop {
        let enough = waiting.enough();
        let asked = api.get(PATH).and_then(|answer| {
            let rows: Vec<Value> = answer.document["moves"].as_array().cloned().unwrap_or_default();
            let is_it = |row: &Value| row["pair"] == started.pair && row["number"] == started.number;
            let row = rows.into_iter().find(is_it);
            row.map(|row| Ok((understand::<Move>(&row, "how far a move is")?, row))).transpose()
        });
        match asked {
            Ok(Some((of, row))) => {
                let line = of.line();
                if line != said {
                    message::note(&line);
                    said = line;
                }
                match of.outcome.as_deref() {
                    Some("moved") => {
                        if !is_shown_soon(api, &of, waiting) {
                            message::warning(&format!("{look} does not show it there yet"));
                        }
                        message::print_document(global.json, waited(document, row), || {
                            format!("pair {} is served by node {}\n", of.pair, of.to)
                        })?;
                        return Ok(Exit::Ok);
                    }
                    Some(_) => return Err(came_to_nothing(&of, look).into()),
                    None => {
                        if let Some(enough) = enough {
                            if global.json && enough == Enough::Late {
                                message::print_json(waited(document, row))?;
                            }
                            return waiting.end(enough, &of.line(), GOES_ON);
                        }
                    }
                }
            }
            Ok(None) => {
                let pair = started.pair;
                let what = format!("the move of pair {pair} is no more: its row was replaced or deleted");
                return Err(Failure::new(Exit::Error, what).into());
            }
            Err(failure) => {
                if let Some(enough) = enough {
                    return waiting.end_unseen(enough, failure, GOES_ON);
                }
            }
        }
        thread::sleep(WAIT_PERIOD);
    }
}

/// Of a move that has ended otherwise than wanted, with where its pair is, if that is known.
fn came_to_nothing(of: &Move, look: &str) -> Failure {
    let next = format!("{look} shows who has it; try again once that is mended");
    let what = of.whereabouts().map_or(of.line(), |place| format!("{}; {place}", of.line()));
    Failure::new(Exit::Error, what).next(next)
}

fn placement(api: &Api) -> Result<Placement, Failure> {
    understand(&api.get(REGIONS_PATH)?.document, "of the regions")
}

/// Waits until `cell region ls` and `cell node ls` show what the coordinator says: a node looks at it now and
/// then. False: not in time.
fn is_shown_soon(api: &Api, of: &Move, waiting: &Waiting) -> bool {
    let until = Instant::now() + SHOWN_MAX;
    let is_shown = || {
        let placement = placement(api)?;
        let nodes: Nodes = understand(&api.get(NODES_PATH)?.document, "of the nodes")?;
        Ok::<bool, Failure>(of.is_shown(&placement, &nodes))
    };
    loop {
        if is_shown().unwrap_or(false) {
            return true;
        }
        if waiting.is_interrupted() || Instant::now() >= until {
            return false;
        }
        thread::sleep(WAIT_PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stage: &str, outcome: Option<&str>, because: Option<&str>) -> Move {
        Move {
            pair: 3,
            number: 1,
            from: 0,
            to: 2,
            stage: stage.to_owned(),
            bytes_done: 1_024,
            bytes_total: 4_096,
            outcome: outcome.map(str::to_owned),
            because: because.map(str::to_owned),
            wanted_unix_ms: None,
        }
    }

    #[test]
    fn line_says_how_far_a_move_is_or_what_became_of_it() {
        let begin = "pair 3 from node 0 to node 2: ";
        let said = |of: Move, end: &str| assert_eq!(of.line(), format!("{begin}{end}"));
        said(of("wanted", None, None), "wanted");
        said(of("copying", None, None), "copying, 1.00 KiB of 4.00 KiB, 25 %");
        let nearly = Move { bytes_done: 4_060, ..of("copying", None, None) };
        said(nearly, "copying, 3.96 KiB of 4.00 KiB, 99 %");
        // It said 99 % from the first second on, of a pair that was written all the time.
        let all_known = Move { bytes_done: 4_096, ..of("copying", None, None) };
        said(all_known, "copying, 4.00 KiB copied, catching up");
        let started = Move { bytes_done: 0, bytes_total: 0, ..of("copying", None, None) };
        said(started, "copying, 0 B of 0 B, 0 %");
        said(of("handed", Some("moved"), None), "moved");
        said(of("copying", Some("given_up"), Some("no room")), "given up (no room)");
        let known = Move { wanted_unix_ms: Some(86_399_000), ..of("wanted", None, None) };
        assert_eq!(known.line_since(), format!("{begin}wanted, since 1970-01-01 23:59:59 UTC"));
        assert_eq!(of("wanted", None, None).line_since(), format!("{begin}wanted"));
    }

    /// With `--wait` it was the move alone, and nothing at all where it was not over in time.
    #[test]
    fn document_of_a_move_that_was_waited_for_has_the_fields_of_one_that_was_not() {
        let started = json!({"version": 1, "move": {"pair": 3, "stage": "wanted"}, "dry_run": false});
        let document = waited(&started, json!({"pair": 3, "stage": "handed"}));
        let expected = json!({"version": 1, "move": {"pair": 3, "stage": "handed"}, "dry_run": false});
        assert_eq!(document, expected);
    }

    /// It named an owner of a second ago.
    #[test]
    fn move_that_came_to_nothing_says_by_itself_who_has_the_pair() {
        let said = |outcome: &str| of("copying", Some(outcome), Some("no room")).whereabouts();
        assert_eq!(said("given_up").as_deref(), Some("it stays at node 0"));
        assert_eq!(said("cancelled").as_deref(), Some("it stays at node 0"));
        assert_eq!(said("back"), None, "it may not be served yet");
        // It said that the pair stayed at its source, which had handed it over, or had died.
        let ended = "both of its ends have ended";
        assert_eq!(of("handed", Some("given_up"), Some(ended)).whereabouts(), None);
        assert_eq!(of("copying", Some("given_up"), Some(cell_cluster::PAIR_CLAIMED)).whereabouts(), None);
        let failure = came_to_nothing(&of("copying", Some("given_up"), Some("no room")), "`cell region ls`");
        assert_eq!(failure.what, "pair 3 from node 0 to node 2: given up (no room); it stays at node 0");
    }

    /// It said that the pair stayed at the node that had died.
    #[test]
    fn move_whose_source_has_gone_does_not_say_that_the_pair_stays_there() {
        let survivors = "a survivor takes it over, or node 0 if that is back before";
        for because in ["its source has ended", "both of its ends have ended", "its source stops"] {
            let given_up = of("copying", Some("given_up"), Some(because));
            assert_eq!(given_up.whereabouts().as_deref(), Some(survivors));
        }
    }

    #[test]
    fn move_is_shown_once_neither_table_nor_source_have_the_pair_there() {
        let moved = of("handed", Some("moved"), None);
        let is_shown = |owner: u32, source_has: &[u32]| {
            let regions = vec![Placed { pair: 3, node: Some(owner) }];
            let holder = |node, pairs: &[u32]| Holder { node, pairs: pairs.to_vec() };
            let nodes = Nodes { nodes: vec![holder(0, source_has), holder(2, &[3])] };
            moved.is_shown(&Placement { regions }, &nodes)
        };
        assert!(is_shown(2, &[1]) && is_shown(1, &[]), "it may have gone on since");
        assert!(!is_shown(0, &[1]) && !is_shown(2, &[1, 3]));
    }
}
