//! `cell dev scale`: grows a running development cluster, and shrinks it by emptying nodes first.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use serde_json::json;

use crate::args::{Global, parse_time};
use crate::dev::scale::ScaleClient;
use crate::dev::scale_wire::{ScaleNode, ScaleRequest, socket};
use crate::exit::{Exit, Failure};
use crate::hint::Reached;
use crate::output::{message, number};
use crate::signal;

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

/// A step that did not end.
enum Broken {
    Failure(Failure),
    /// In time; with what is lacking.
    Late(String),
}

struct Scale {
    client: ScaleClient,
    until: Instant,
    stop: Arc<AtomicBool>,
    said: String,
    reached: Reached,
}

/// Runs the command. Exit code 6 if it is not done in time: it can be run again.
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
    let stop = signal::stop_flag()?;
    let (until, reached) = (Instant::now() + arguments.patience, Reached::by_dir(dir));
    let mut scale = Scale { client, until, stop, said: String::new(), reached };
    let nodes = match scale.to(arguments.nodes) {
        Ok(nodes) => nodes,
        Err(Broken::Failure(failure)) => return Err(failure.into()),
        Err(Broken::Late(what)) => {
            let patience = number::time(arguments.patience);
            message::warning(&format!(
                "{what} after {patience}; run it again to go on, or with another number"
            ));
            return Ok(Exit::Partial);
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
        let answer = self.client.ask(request).map_err(|error| {
            let what = format!("the supervisor does not answer: {error}");
            Broken::Failure(Failure::new(Exit::Unreachable, what).next("is its cluster being stopped?"))
        })?;
        let nodes = answer.map_err(|refused| {
            let next = self.reached.in_text(&refused.next);
            Broken::Failure(Failure::usage(refused.what).next(next))
        })?;
        if let Some(node) = nodes.first() {
            self.reached = self.reached.clone().and_server(&node.server);
        }
        Ok(nodes)
    }

    /// Looks until `done` says so; `lacking` says what it waits for.
    fn wait(
        &mut self,
        done: impl Fn(&[ScaleNode]) -> bool,
        lacking: impl Fn(&[ScaleNode]) -> String,
    ) -> Result<Vec<ScaleNode>, Broken> {
        loop {
            let nodes = self.ask(ScaleRequest::Look)?;
            if done(&nodes) {
                return Ok(nodes);
            }
            let what = lacking(&nodes);
            if self.said != what {
                message::note(&what);
                self.said.clone_from(&what);
            }
            if self.stop.load(Ordering::Relaxed) || Instant::now() >= self.until {
                return Err(Broken::Late(what));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn to(&mut self, wanted: u16) -> Result<Vec<ScaleNode>, Broken> {
        let mut nodes = self.ask(ScaleRequest::Look)?;
        while nodes.len() < usize::from(wanted) {
            nodes = self.ask(ScaleRequest::Add)?;
        }
        // Nodes that were to go at an earlier try, and are to stay.
        for node in nodes.clone().iter().filter(|node| node.node < wanted && node.draining) {
            message::note(&format!("node {} is not to be emptied any more", node.node));
            nodes = self.ask(ScaleRequest::Drain { node: node.node, on: false })?;
        }
        // What an earlier try began goes on: its pairs have their places already.
        if nodes.iter().any(|node| node.node >= wanted && !node.draining) {
            self.ask(ScaleRequest::Room { from: wanted })?;
        }
        // All at once: what leaves one does not go to another that leaves.
        for node in wanted..u16::try_from(nodes.len()).unwrap_or(u16::MAX) {
            self.ask(ScaleRequest::Drain { node, on: true })?;
        }
        for node in (wanted..u16::try_from(nodes.len()).unwrap_or(u16::MAX)).rev() {
            self.take_away(node)?;
        }
        let serves = |node: &ScaleNode| node.state == "serving";
        self.wait(
            |nodes| nodes.len() == usize::from(wanted) && nodes.iter().all(serves),
            |nodes| {
                let waits = nodes.iter().filter(|node| !serves(node));
                let waits: Vec<_> =
                    waits.map(|node| format!("node {} is {}", node.node, node.state)).collect();
                waits.join(", ")
            },
        )
    }

    /// Waits until a node is empty, stops it, and says that it is not expected back.
    fn take_away(&mut self, node: u16) -> Result<(), Broken> {
        let of = |nodes: &[ScaleNode]| nodes.iter().find(|of| of.node == node).cloned();
        self.wait(
            |nodes| of(nodes).is_none_or(|of| of.pairs == 0),
            |nodes| {
                let Some(ScaleNode { pairs, stall, .. }) = of(nodes) else { return String::new() };
                let left = cell_terms::text::counted(pairs as u64, "pair", "pairs");
                let stall = stall.map(|stall| format!("; {stall}")).unwrap_or_default();
                format!("node {node} drains: {left} left{stall}")
            },
        )?;
        self.ask(ScaleRequest::Retire { node })?;
        self.wait(|nodes| of(nodes).is_none(), |_| format!("node {node} is stopping"))?;
        self.ask(ScaleRequest::Remove { node })?;
        message::note(&format!("node {node} has left"));
        Ok(())
    }
}
