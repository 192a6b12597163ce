//! `cell dev`: a supervisor with the embedded coordinator and its nodes as children.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::Context;
use cell_cluster::{ClusterError, Embedded, Server};
use clap::{ArgMatches, Args, ValueEnum, value_parser};

use crate::cli::Global;
use crate::dev::child::NodeSpec;
use crate::dev::plan::Plan;
use crate::dev::supervisor::{Event, Supervisor};
use crate::exit::{Exit, Failure};
use crate::output::message;
use crate::{logging, settings, signal};

/// Settings that `cell dev` decides itself, from `--dir` and `--port`.
pub(crate) const DECIDED: &[&str] =
    &["node_id", "listen_address", "http_address", "coordinator_address", "data_dir"];

/// Arguments of `cell dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Folder of all data; created if missing
    #[arg(long, value_name = "DIR", default_value = "./cell-data")]
    dir: PathBuf,
    /// First port P: node i on P+i, its HTTP on P+80+i, the coordinator on P+200
    #[arg(
        long, value_name = "P", default_value_t = 7000, value_parser = value_parser!(u16).range(1024..=65000)
    )]
    port: u16,
    /// Whether a node that dies is started again
    #[arg(long, value_enum, value_name = "ON", default_value = "on")]
    restart: Restart,
}

/// Whether a node that dies is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Restart {
    /// With a wait that grows while it keeps dying.
    On,
    /// Its death ends the cluster.
    Off,
}

/// Runs until a signal.
pub(crate) fn run(global: &Global, arguments: &DevArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let (resolved, warnings) = settings::resolve(matches, std::env::vars_os())?;
    warnings.iter().for_each(|warning| message::warning(warning));
    logging::start(resolved.text("tracing_filter"))?;
    fs::create_dir_all(&arguments.dir)
        .with_context(|| format!("cannot create {}", arguments.dir.display()))?;
    let plan = Plan::new(fs::canonicalize(&arguments.dir)?, arguments.port);
    let coordinator = Arc::new(Embedded::open(&plan.coordinator_dir()).map_err(explain)?);
    let server = Server::start(coordinator, plan.coordinator()).map_err(explain)?;
    let (sender, events) = mpsc::channel();
    let stop = sender.clone();
    // A second signal ends this process at once, and the child with it: it sees its stdin end.
    signal::on_signals(move || stop.send(Event::Stop).unwrap_or_default(), || {})?;
    let supervisor = Supervisor {
        spec: node_spec(&plan, matches)?,
        plan,
        restart: arguments.restart == Restart::On,
        json: global.json,
    };
    let exit = supervisor.run(&events, &sender)?;
    drop(server);
    Ok(exit)
}

fn node_spec(plan: &Plan, matches: &ArgMatches) -> anyhow::Result<NodeSpec> {
    let node = 0;
    let mut arguments = vec!["--supervised".to_owned()];
    let decided = [
        node.to_string(),
        plan.fabric(node).to_string(),
        plan.http(node).to_string(),
        plan.coordinator().to_string(),
        plan.dir().to_str().context("the folder's path is not UTF-8")?.to_owned(),
    ];
    let mut push = |name: &str, text: String| arguments.push(format!("--{}={text}", name.replace('_', "-")));
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        push("config", path.to_str().context("the configuration's path is not UTF-8")?.to_owned());
    }
    for (name, text) in settings::given_flags(matches) {
        push(name, text);
    }
    for (name, text) in DECIDED.iter().zip(decided) {
        push(name, text);
    }
    let binary = std::env::current_exe().context("cannot find this binary")?;
    Ok(NodeSpec { node, binary, arguments })
}

fn explain(error: ClusterError) -> anyhow::Error {
    let (exit, next) = match &error {
        ClusterError::Held { .. } => {
            (Exit::Usage, Some("another `cell dev` uses this folder: stop it, or give another --dir"))
        }
        ClusterError::Listen { .. } => {
            (Exit::Usage, Some("another process listens there: give another --port"))
        }
        _ => (Exit::Error, None),
    };
    let failure = Failure::new(exit, format!("{:#}", anyhow::Error::new(error)));
    match next {
        Some(next) => failure.next(next).into(),
        None => failure.into(),
    }
}
