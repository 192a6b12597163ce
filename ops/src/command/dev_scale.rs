//! `cell dev scale`: grows a running development cluster, and shrinks it by emptying nodes first. What it
//! does is decided before it begins ([`crate::dev::scale_plan`]).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use cell_drill::wire::Refused;
use clap::{Args, value_parser};
use serde_json::json;

use crate::args::{Global, parse_time};
use crate::dev::scale::ScaleClient;
use crate::dev::scale_plan::{LEFT, STOPPING, ScalePlan, is_down, is_there};
use crate::dev::scale_wire::{ScaleDone, ScaleNode, ScaleRequest, socket};
use crate::exit::{Exit, Failure};
use crate::hint::Reached;
use crate::output::{message, number};
use crate::waiting::{Enough, Waiting};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Arguments of `cell dev scale`.
#[derive(Debug, Args)]
pub(crate) struct DevScaleArgs {
    /// How many nodes there are to be
    #[arg(value_name = "N", value_parser = value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// The cluster's folder [default: ./cell-data]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How long nodes may take to come, or to be emptied
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_time)]
    patience: Duration,
}

/// What a look shows of that which is waited for.
#[derive(Debug, PartialEq, Eq)]
enum Stand {
    Done,
    /// What it waits for.
    Lacking(String),
    /// Somebody has seen to it that it does not come.
    Ended(String),
    /// Nobody starts these nodes any more.
    GivenUp(String),
}

/// A step that did not end.
enum Broken {
    Failure(Failure),
    /// It is not waited for any longer, with what is lacking.
    Enough(Enough, String),
}

struct Scale {
    client: ScaleClient,
    waiting: Waiting,
    said: String,
    reached: Reached,
}

/// Runs the command. Exit code 6 if it is not done in time, 130 after a signal: it can be run again.
pub(crate) fn run(global: &Global, arguments: &DevScaleArgs, parent: &Path) -> anyhow::Result<Exit> {
    let dir = arguments.dir.as_deref().unwrap_or(parent);
    let client = ScaleClient::connect(dir).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotFound => "there is none".to_owned(),
            ErrorKind::ConnectionRefused => "nobody listens: its supervisor is gone".to_owned(),
            _ => error.to_string(),
        };
        let what = format!("no cluster without {}: {why}", socket(dir).display());
        Failure::new(Exit::Unreachable, what)
            .next("`cell dev` opens it in its folder; --dir names another folder than ./cell-data")
    })?;
    let (waiting, reached) = (Waiting::start(arguments.patience)?, Reached::by_dir(dir));
    let mut scale = Scale { client, waiting, said: String::new(), reached };
    let nodes = match scale.to(arguments.nodes) {
        Ok(nodes) => nodes,
        Err(Broken::Failure(failure)) => return Err(failure.into()),
        Err(Broken::Enough(enough, what)) => {
            let next = "what was started goes on; run it again to see it through, or with another number";
            return scale.waiting.end(enough, &what, next);
        }
    };
    message::print_document(global.json, json!({"nodes": nodes}), || {
        let line = |node: &ScaleNode| format!("node {}   {}   http {}\n", node.node, node.server, node.http);
        nodes.iter().map(line).collect()
    })?;
    Ok(Exit::Ok)
}

impl Scale {
    fn ask(&mut self, request: ScaleRequest) -> Result<Vec<ScaleNode>, Broken> {
        let nodes = self.answer(request)?.map_err(|refused| self.refused(refused))?;
        if let Some(node) = nodes.iter().find(|of| is_there(of)) {
            self.reached = self.reached.clone().and_server(&node.server);
        }
        Ok(nodes)
    }

    fn answer(&mut self, request: ScaleRequest) -> Result<ScaleDone, Broken> {
        self.client.ask(request).map_err(|error| {
            let what = format!("the supervisor does not answer: {error}");
            Broken::Failure(Failure::new(Exit::Unreachable, what).next("is its cluster being stopped?"))
        })
    }

    fn refused(&self, refused: Refused) -> Broken {
        let next = self.reached.in_text(&refused.next);
        Broken::Failure(Failure::usage(refused.what).next(next))
    }

    /// Says what is waited for, and waits a moment.
    fn lacks(&mut self, what: String) -> Result<(), Broken> {
        if self.said != what {
            message::note(&what);
            self.said.clone_from(&what);
        }
        if let Some(enough) = self.waiting.enough() {
            return Err(Broken::Enough(enough, what));
        }
        thread::sleep(LOOK_EVERY);
        Ok(())
    }

    /// Looks until it is as `stand` wants it.
    fn wait(&mut self, stand: impl Fn(&[ScaleNode]) -> Stand) -> Result<Vec<ScaleNode>, Broken> {
        loop {
            let nodes = self.ask(ScaleRequest::Look)?;
            let what = match stand(&nodes) {
                Stand::Done => return Ok(nodes),
                Stand::Lacking(what) => what,
                Stand::Ended(what) => {
                    let next = format!(
                        "{} says what was done; run it again with the number that is wanted",
                        self.reached.command("cell events")
                    );
                    return Err(Broken::Failure(Failure::new(Exit::Error, what).next(next)));
                }
                Stand::GivenUp(what) => {
                    let next = "see in its messages why it ends, and mend that; then the same command starts \
                                the node again";
                    return Err(Broken::Failure(Failure::new(Exit::Error, what).next(next)));
                }
            };
            self.lacks(what)?;
        }
    }

    /// Has these nodes emptied, once it is known that the others have room. What an earlier try began goes
    /// on.
    fn drain(&mut self, nodes: &[u16]) -> Result<(), Broken> {
        self.ask_until_known(&ScaleRequest::Drain { nodes: nodes.to_vec() })
    }

    /// Asks for something until nodes have reported what it goes by.
    fn ask_until_known(&mut self, request: &ScaleRequest) -> Result<(), Broken> {
        loop {
            match self.answer(request.clone())? {
                Ok(_) => return Ok(()),
                Err(refused) if refused.is_away => self.lacks(refused.what)?,
                Err(refused) => return Err(self.refused(refused)),
            }
        }
    }

    fn to(&mut self, wanted: u16) -> Result<Vec<ScaleNode>, Broken> {
        let nodes = self.wait(none_stops)?;
        let ScalePlan { start, keep, drain, clear, notes } = ScalePlan::of(wanted, &nodes);
        if !start.is_empty() {
            self.ask_until_known(&ScaleRequest::Memory { nodes: wanted })?;
        }
        notes.iter().for_each(|note| message::note(&self.reached.in_text(note)));
        for node in start {
            self.ask(ScaleRequest::Start { node })?;
        }
        if !keep.is_empty() {
            self.ask(ScaleRequest::Undrain { nodes: keep })?;
        }
        if !drain.is_empty() {
            self.drain(&drain)?;
        }
        for node in clear {
            let has_place = nodes.iter().any(|of| of.node == node && of.state != LEFT);
            self.take_away(node, has_place)?;
        }
        for node in drain.into_iter().rev() {
            self.wait(|nodes| emptied(node, nodes))?;
            self.take_away(node, true)?;
        }
        let before = share_of(&nodes);
        let nodes = self.wait(|nodes| all_serve(wanted, nodes))?;
        if let Some(share) = share_of(&nodes).filter(|share| Some(*share) != before) {
            message::note(&format!("each node may hold {} of memory now", number::bytes(share)));
        }
        Ok(nodes.into_iter().filter(is_there).collect())
    }

    /// Stops a node that has no pairs, where it has a place, and says that it is not expected back.
    fn take_away(&mut self, node: u16, has_place: bool) -> Result<(), Broken> {
        if has_place {
            self.ask(ScaleRequest::Retire { node })?;
            self.wait(|nodes| stopped(node, nodes))?;
        }
        self.ask(ScaleRequest::Remove { node })?;
        message::note(&format!("node {node} has left"));
        Ok(())
    }
}

/// What each node may hold in memory, where they share that.
fn share_of(nodes: &[ScaleNode]) -> Option<u64> {
    nodes.iter().find(|of| is_there(of))?.memory_limit_bytes
}

/// Whoever is being stopped has ended: its place is free then.
fn none_stops(nodes: &[ScaleNode]) -> Stand {
    let stops = nodes.iter().find(|of| of.state == STOPPING);
    stops.map_or(Stand::Done, |of| Stand::Lacking(format!("node {} is stopping", of.node)))
}

/// A node that has a place.
fn placed(node: u16, nodes: &[ScaleNode]) -> Option<&ScaleNode> {
    nodes.iter().find(|of| of.node == node && of.state != LEFT)
}

/// How it stands about emptying a node: its drain lasts until it is removed, unless somebody ends it.
fn emptied(node: u16, nodes: &[ScaleNode]) -> Stand {
    match placed(node, nodes) {
        Some(of) if !of.draining && !of.removed => {
            Stand::Ended(format!("node {node} is not to be emptied any more: somebody ended its drain"))
        }
        Some(of) if of.pairs > 0 => {
            let left = cell_terms::text::counted(of.pairs as u64, "pair", "pairs");
            let stall = of.stall.as_ref().map(|stall| format!("; {stall}")).unwrap_or_default();
            Stand::Lacking(format!("node {node} drains: {left} left{stall}"))
        }
        Some(_) | None => Stand::Done,
    }
}

/// How it stands about a node that was asked to stop for good.
fn stopped(node: u16, nodes: &[ScaleNode]) -> Stand {
    match placed(node, nodes) {
        Some(_) => Stand::Lacking(format!("node {node} is stopping")),
        None => Stand::Done,
    }
}

/// So many nodes are there, and serve. Their number is right before it is waited for that they serve.
fn all_serve(wanted: u16, nodes: &[ScaleNode]) -> Stand {
    let wanted = usize::from(wanted);
    let there: Vec<&ScaleNode> = nodes.iter().filter(|of| is_there(of)).collect();
    let down: Vec<&ScaleNode> = nodes.iter().filter(|of| is_down(of)).collect();
    if there.len() > wanted || there.len() + down.len() < wanted {
        let nodes = cell_terms::text::counted(there.len() as u64, "node", "nodes");
        return Stand::Ended(format!("somebody else scales the cluster: it has {nodes} now"));
    }
    // One that is full serves, too.
    let serves = |of: &ScaleNode| matches!(of.state.as_str(), "serving" | "read_only");
    let coming: Vec<&ScaleNode> = there.iter().copied().filter(|of| !serves(of)).collect();
    let words = |nodes: &[&ScaleNode], more: &str| {
        let words = nodes.iter().map(|of| format!("node {} is {}{more}", of.node, of.state));
        words.collect::<Vec<_>>().join(", ")
    };
    match (coming.is_empty(), there.len() == wanted) {
        (false, _) => Stand::Lacking(words(&coming, "")),
        (true, false) => Stand::GivenUp(words(&down, ": nothing starts it again")),
        (true, true) => Stand::Done,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Receiver, channel};

    use tempfile::TempDir;

    use super::*;
    use crate::dev::scale_wire::{SCALED_BY, ScaleAnswer};

    fn node(node: u16, pairs: usize, draining: bool) -> ScaleNode {
        ScaleNode {
            node,
            state: "serving".to_owned(),
            pairs,
            draining,
            drained_by: draining.then(|| SCALED_BY.to_owned()),
            ..ScaleNode::default()
        }
    }

    /// A command of a supervisor that has these nodes, whatever it is asked for.
    fn scale_of(nodes: Vec<ScaleNode>, interrupted: bool) -> (TempDir, Scale) {
        let folder = tempfile::tempdir().unwrap();
        let listener = cell_cluster::local_socket::listen(&socket(folder.path())).unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let answer = serde_json::to_string(&ScaleAnswer::Nodes(nodes)).unwrap();
            for _request in BufReader::new(&stream).lines().map_while(Result::ok) {
                writeln!(&stream, "{answer}").unwrap();
            }
        });
        let client = ScaleClient::connect(folder.path()).unwrap();
        let waiting = Waiting::unless(Arc::new(AtomicBool::new(interrupted)), Duration::from_secs(600));
        let reached = Reached::by_dir(folder.path());
        (folder, Scale { client, waiting, said: String::new(), reached })
    }

    /// It ended as if its patience were over.
    #[test]
    fn wait_ends_with_a_signal() {
        let (_folder, mut scale) = scale_of(vec![node(0, 1, false), node(1, 2, true)], true);
        let Err(Broken::Enough(enough, what)) = scale.to(1) else { panic!("it goes on") };
        assert_eq!((enough, what.as_str()), (Enough::Interrupted, "node 1 drains: 2 pairs left"));
    }

    /// It waited until its patience was over.
    #[test]
    fn node_that_nobody_starts_again_is_not_waited_for() {
        let of = |number, state: &str| ScaleNode { state: state.to_owned(), ..node(number, 0, false) };
        let nodes = vec![node(0, 1, false), of(1, "given up")];
        let words = "node 1 is given up: nothing starts it again";
        assert_eq!(all_serve(2, &nodes), Stand::GivenUp(words.to_owned()));
        let coming = [of(0, "starting"), of(1, "given up")];
        assert_eq!(all_serve(2, &coming), Stand::Lacking("node 0 is starting".to_owned()));
        let (_folder, mut scale) = scale_of(nodes, false);
        let Err(Broken::Failure(failure)) = scale.to(2) else { panic!("it is no failure") };
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Error, words));
        assert!(failure.next.unwrap().contains("the same command starts the node again"));
    }

    /// A command of a supervisor that answers so, one after the other, and what that is asked.
    fn scale_answered(answers: Vec<ScaleAnswer>) -> (TempDir, Scale, Receiver<String>) {
        let folder = tempfile::tempdir().unwrap();
        let listener = cell_cluster::local_socket::listen(&socket(folder.path())).unwrap();
        let (sender, asked) = channel();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let requests = BufReader::new(&stream).lines().map_while(Result::ok);
            for (request, answer) in requests.zip(answers) {
                sender.send(request).unwrap_or_default(); // unless nobody wants to know
                writeln!(&stream, "{}", serde_json::to_string(&answer).unwrap()).unwrap();
            }
        });
        let client = ScaleClient::connect(folder.path()).unwrap();
        let waiting = Waiting::unless(Arc::new(AtomicBool::new(false)), Duration::from_secs(600));
        let reached = Reached::by_dir(folder.path());
        (folder, Scale { client, waiting, said: String::new(), reached }, asked)
    }

    fn refused(what: &str, is_away: bool) -> ScaleAnswer {
        ScaleAnswer::Refused(Refused { what: what.to_owned(), next: "wait".to_owned(), is_away })
    }

    /// A node that called itself read-only was not asked, and a drain was started that stood half done.
    #[test]
    fn nodes_are_drained_once_it_is_known_that_the_others_have_room() {
        let unknown = || refused("node-1 has not reported yet what it has", true);
        let drained = || ScaleAnswer::Nodes(vec![node(0, 1, false), node(1, 0, true)]);
        let (_folder, mut scale, _asked) = scale_answered(vec![unknown(), unknown(), drained()]);
        assert!(scale.drain(&[1]).is_ok());
        assert_eq!(scale.said, "node-1 has not reported yet what it has");
        let answers = vec![unknown(), refused("the others lack room", false)];
        let (_folder, mut scale, _asked) = scale_answered(answers);
        let Err(Broken::Failure(failure)) = scale.drain(&[1]) else { panic!("it is no failure") };
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Usage, "the others lack room"));
    }

    /// A node that had reported nothing was taken for one that holds nothing.
    #[test]
    fn nodes_are_added_once_it_is_known_that_there_is_memory_for_them() {
        let nodes = |count| ScaleAnswer::Nodes((0..count).map(|number| node(number, 1, false)).collect());
        let unknown = refused("node-1 has not reported yet what it has", true);
        let answers = vec![nodes(2), unknown, nodes(2), nodes(3), nodes(3)];
        let (_folder, mut scale, asked) = scale_answered(answers);
        assert!(scale.to(3).is_ok_and(|nodes| nodes.len() == 3));
        assert_eq!(scale.said, "node-1 has not reported yet what it has");
        drop(scale);
        let asked: Vec<String> = asked.iter().collect();
        let (look, memory) = (r#"{"do":"look"}"#, r#"{"do":"memory","nodes":3}"#);
        assert_eq!(asked, [look, memory, memory, r#"{"do":"start","node":2}"#, look]);
    }

    /// Also a node that has nothing stays, until it is known that the others can go.
    #[test]
    fn scale_that_is_refused_for_want_of_room_has_changed_nothing() {
        let given_up = ScaleNode { state: "given up".to_owned(), ..node(2, 0, false) };
        let nodes = ScaleAnswer::Nodes(vec![node(0, 1, false), node(1, 1, false), given_up]);
        let (_folder, mut scale, asked) = scale_answered(vec![nodes, refused("the others lack room", false)]);
        let Err(Broken::Failure(failure)) = scale.to(1) else { panic!("it is no failure") };
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Usage, "the others lack room"));
        drop(scale);
        let asked: Vec<String> = asked.iter().collect();
        assert_eq!(asked, [r#"{"do":"look"}"#, r#"{"do":"drain","nodes":[1]}"#]);
    }

    /// It was waited for until it had room, which it never had.
    #[test]
    fn node_that_is_full_serves() {
        let full = ScaleNode { state: "read_only".to_owned(), ..node(1, 3, false) };
        assert_eq!(all_serve(2, &[node(0, 1, false), full]), Stand::Done);
    }

    fn is_ended(stand: &Stand) -> bool {
        matches!(stand, Stand::Ended(_))
    }

    #[test]
    fn node_leaves_once_it_is_empty_and_has_stopped() {
        let before = [node(0, 1, false), node(1, 2, true)];
        assert_eq!(emptied(1, &before), Stand::Lacking("node 1 drains: 2 pairs left".to_owned()));
        let stalled = ScaleNode { stall: Some("no room".to_owned()), ..node(1, 1, true) };
        assert_eq!(emptied(1, &[stalled]), Stand::Lacking("node 1 drains: 1 pair left; no room".to_owned()));
        let empty = [node(0, 3, false), node(1, 0, true)];
        assert_eq!(emptied(1, &empty), Stand::Done);
        assert_eq!(stopped(1, &empty), Stand::Lacking("node 1 is stopping".to_owned()));
        assert_eq!((emptied(1, &empty[..1]), stopped(1, &empty[..1])), (Stand::Done, Stand::Done));
    }

    /// It waited until its patience was over, and said that the node drained.
    #[test]
    fn drain_that_somebody_ended_is_not_waited_for() {
        for pairs in [0, 1] {
            let kept = [node(0, 1, false), node(1, pairs, false)];
            let words = "node 1 is not to be emptied any more: somebody ended its drain";
            assert_eq!(emptied(1, &kept), Stand::Ended(words.to_owned()));
        }
        let removed = ScaleNode { draining: false, removed: true, ..node(1, 0, true) };
        assert_eq!(emptied(1, &[node(0, 1, false), removed]), Stand::Done, "somebody has gone on");
    }

    /// A node that was given up stood for one that was wanted, or one of another number did.
    #[test]
    fn nodes_that_are_given_up_or_have_left_do_not_count() {
        let of = |number, state: &str| ScaleNode { state: state.to_owned(), ..node(number, 0, false) };
        let removed = ScaleNode { removed: true, ..of(2, "given up") };
        let nodes = [node(0, 1, false), node(1, 1, false), removed, node(3, 1, false), of(4, LEFT)];
        assert_eq!(all_serve(3, &nodes), Stand::Done);
        assert!(is_ended(&all_serve(4, &nodes)) && is_ended(&all_serve(2, &nodes)));
        // What has left and has a row still has no place.
        assert_eq!(stopped(4, &nodes), Stand::Done);
        let stopping = [node(0, 1, false), of(1, STOPPING)];
        assert_eq!(none_stops(&stopping), Stand::Lacking("node 1 is stopping".to_owned()));
    }

    #[test]
    fn nodes_of_another_number_are_not_waited_for() {
        let two = [node(0, 1, false), node(1, 1, false)];
        assert_eq!(all_serve(2, &two), Stand::Done);
        let starting = ScaleNode { state: "starting".to_owned(), ..node(1, 0, false) };
        assert_eq!(
            all_serve(2, &[node(0, 1, false), starting]),
            Stand::Lacking("node 1 is starting".to_owned())
        );
        assert!(is_ended(&all_serve(1, &two)) && is_ended(&all_serve(3, &two)));
    }
}
