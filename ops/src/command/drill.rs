//! `cell drill`: faults on purpose, in a cluster of `cell dev --allow-drills` or by the agents of its hosts,
//! and the proof that nothing acknowledged was lost.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use cell_client::Transport;
use cell_drill::wire::{DRAINED_BY, DrillRequest, NodeView, PairView, PartitionWay, Status};
use cell_drill::{
    Agents, DELAY_MS, DELAY_MS_DEFAULT, Drill, DrillError, FaultKind, Load, Supervisor, Supervisors,
};
use clap::{Args, Subcommand, ValueEnum, value_parser};
use serde_json::json;

use crate::args::{Global, parse_time, parse_transport};
use crate::command::drill_clean::{self, CleanArgs};
use crate::command::drill_report::{self, ReportArgs};
use crate::exit::{Exit, Failure};
use crate::hint::{CA_VARIABLE, DIR_DEFAULT, Reached};
use crate::output::{drill as output, message, table};
use crate::{signal, store};

/// Arguments of `cell drill`.
#[derive(Debug, Args)]
pub(crate) struct DrillArgs {
    #[command(subcommand)]
    what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum What {
    /// Show the nodes that faults can be done to, and the pairs that they own
    Ls(LsArgs),
    /// Do a fault under traffic, and prove that nothing acknowledged was lost
    Run(RunArgs),
    /// Print what a drill found that was started over the admin API or in the console
    Report(ReportArgs),
    /// Take back every fault that still lasts, and start a node that a drill has killed at once
    Heal(LsArgs),
    /// Remove entries that drills have left in the store; those of a drill that goes on stay
    Clean(CleanArgs),
}

/// Arguments of `cell drill ls` and `cell drill heal`.
#[derive(Debug, Args)]
struct LsArgs {
    #[command(flatten)]
    at: PlaceArgs,
}

/// Who does faults to the cluster's nodes.
#[derive(Debug, Args)]
struct PlaceArgs {
    /// The cluster's folder
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT, conflicts_with = "agents")]
    dir: PathBuf,
    /// The agents of all its hosts (`cell agent`, agent_address), separated by commas, in place of a folder
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = parse_agent)]
    agents: Vec<String>,
    /// A token of the role admin, which agents want
    #[arg(long, value_name = "TOKEN", env = "CELL_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A PEM file with the certificates by which nodes and agents are trusted, where they speak TLS
    #[arg(long, value_name = "FILE", env = CA_VARIABLE)]
    ca: Option<PathBuf>,
}

fn parse_agent(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_one = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    match text.rsplit_once(':').is_some_and(is_one) && !text.contains("//") {
        true => Ok(text.to_owned()),
        false => Err("it takes HOST:PORT, as the agents' agent_address".to_owned()),
    }
}

impl PlaceArgs {
    /// Where they are.
    fn supervisors(&self) -> Result<Supervisors, Failure> {
        if self.agents.is_empty() {
            return Ok(Supervisors::Folder(self.dir.clone()));
        }
        let trust = store::trust(self.ca.as_deref())?;
        let (addresses, token) = (self.agents.clone(), self.token.clone().unwrap_or_default());
        Ok(Supervisors::Agents(Agents { addresses, trust, token }))
    }

    /// The same, for hints.
    fn reached(&self) -> Reached {
        match self.agents.is_empty() {
            true => Reached::by_dir(&self.dir),
            false => Reached::by_agents(&self.agents.join(",")).trusting(self.ca.as_deref()),
        }
    }

    /// Connects to them.
    fn reach(&self) -> anyhow::Result<Supervisor> {
        Supervisor::reach(&self.supervisors()?).map_err(|error| output::failure(error, &self.reached()))
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// kill -9 of the node's process
    Kill,
    /// SIGSTOP, then SIGCONT
    Stop,
    /// An ordered stop and a new start
    Restart,
    /// Cut off from clients, peers and the coordinator, then let back
    Partition,
    /// Cut off one way: nothing that others send reaches it, and what it sends arrives
    PartitionIn,
    /// Cut off one way: it takes what others send, and nothing that it sends arrives
    PartitionOut,
    /// Each write and sync of its logs takes longer; writes wait, reads do not
    SlowDisk,
    /// Each node in turn is emptied, stopped, started, and given pairs again
    Rolling,
}

impl Kind {
    fn fault(self) -> FaultKind {
        match self {
            Kind::Kill => FaultKind::Kill,
            Kind::Stop => FaultKind::Stop,
            Kind::Restart => FaultKind::Restart,
            Kind::Partition => FaultKind::Partition,
            Kind::PartitionIn => FaultKind::PartitionIn,
            Kind::PartitionOut => FaultKind::PartitionOut,
            Kind::SlowDisk => FaultKind::SlowDisk,
            Kind::Rolling => FaultKind::Rolling,
        }
    }
}

/// Faults that are done to one node.
const NEEDS_NODE: [(&str, &str); 7] = [
    ("kind", "kill"),
    ("kind", "stop"),
    ("kind", "restart"),
    ("kind", "partition"),
    ("kind", "partition-in"),
    ("kind", "partition-out"),
    ("kind", "slow-disk"),
];

/// Arguments of `cell drill run`.
#[derive(Debug, Args)]
struct RunArgs {
    /// The fault
    #[arg(value_enum)]
    kind: Kind,
    /// The node that it is done to; rolling is done to all
    #[arg(
        long,
        value_name = "N",
        value_parser = value_parser!(u16).range(0..1_024),
        required_if_eq_any = NEEDS_NODE
    )]
    node: Option<u16>,
    /// How long it lasts (kill: how long no process follows) [default: 3s; kill of an only node, restart: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
    /// slow-disk: how much longer each write and sync takes, from 1ms to 2s [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    delay: Option<Duration>,
    /// Traffic before the fault
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    before: Duration,
    /// How long everything may take to be back, once the fault is over
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    patience: Duration,
    /// Clients, each a thread; every second one searches the servers' memory itself
    #[arg(long, value_name = "T", default_value_t = 4, value_parser = value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Operations a second, all clients together
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// What to talk over [default: auto]
    #[arg(long, value_name = "auto|tcp|shm|verbs", value_parser = parse_transport)]
    transport: Option<Transport>,
    /// Leave the drill's entries in the store; without it they are removed, unless the drill fails
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    at: PlaceArgs,
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &DrillArgs) -> anyhow::Result<Exit> {
    match &arguments.what {
        What::Ls(arguments) => list(global, arguments),
        What::Report(arguments) => drill_report::run(global, arguments),
        What::Heal(arguments) => heal(global, arguments),
        What::Clean(arguments) => drill_clean::run(global, arguments),
        What::Run(arguments) => drill(global, arguments),
    }
}

fn drill(global: &Global, arguments: &RunArgs) -> anyhow::Result<Exit> {
    let delay = delay(arguments)?;
    if arguments.kind == Kind::Rolling && (arguments.node.is_some() || arguments.duration.is_some()) {
        let what = "a rolling restart is done to every node in turn, and lasts as long as that takes";
        return Err(Failure::usage(what).next("leave --node and --duration out").into());
    }
    let interrupted = signal::stop_flag()?;
    let mut options = store::options(None, arguments.patience, 1024, &[])?;
    options.trust = store::trust(arguments.at.ca.as_deref())?;
    if let Some(token) = &arguments.at.token {
        options.token = token.as_str().into();
    }
    if let Some(transport) = arguments.transport {
        options.transport = transport;
    }
    let drill = Drill {
        at: arguments.at.supervisors()?,
        fault: arguments.kind.fault(),
        node: arguments.node.unwrap_or(0),
        lasts: arguments.duration,
        delay,
        before: arguments.before,
        patience: arguments.patience,
        load: Load { threads: arguments.threads, rate: arguments.rate },
        options,
        keep: arguments.keep,
        claim: None,
    };
    let server = first_server(&drill.at);
    let notify = |notice| output::print_notice(notice, server.as_deref());
    let failure = |error| match error {
        DrillError::Client(error) => store::failure(&error, server.as_deref()),
        error => output::failure(error, &arguments.at.reached()),
    };
    let report = drill.run(&interrupted, &notify).map_err(failure)?;
    if global.json {
        message::print_json(report.to_json())?;
    } else {
        let mut out = io::stdout().lock();
        out.write_all(output::text(&report).as_bytes())?;
        out.flush()?;
    }
    Ok(output::exit(report.verdict()))
}

/// Where the entries of a drill of this cluster are removed; none if its supervisor does not say.
fn first_server(at: &Supervisors) -> Option<String> {
    let (_, status) = Supervisor::reach(at).and_then(|mut supervisor| supervisor.status()).ok()?;
    status.nodes.first().map(|node| status.server_of(node))
}

/// By how much a slow disk is slower.
fn delay(arguments: &RunArgs) -> anyhow::Result<Duration> {
    let Some(delay) = arguments.delay else { return Ok(Duration::from_millis(DELAY_MS_DEFAULT)) };
    if arguments.kind != Kind::SlowDisk {
        let what = format!("--delay is of slow-disk, and nothing of {} takes longer", word(arguments.kind));
        return Err(Failure::usage(what).next("leave it out, or run slow-disk").into());
    }
    let bounds = Duration::from_millis(*DELAY_MS.start())..=Duration::from_millis(*DELAY_MS.end());
    if !bounds.contains(&delay) {
        let what =
            format!("--delay cannot be {delay:?}: it takes {:?} to {:?}", bounds.start(), bounds.end());
        let next = "a slower disk is hardly written to within a drill: give a shorter delay";
        return Err(Failure::usage(what).next(next).into());
    }
    Ok(delay)
}

fn list(global: &Global, arguments: &LsArgs) -> anyhow::Result<Exit> {
    let reached = arguments.at.reached();
    let (_, status) = arguments.at.reach()?.status().map_err(|error| output::failure(error, &reached))?;
    if global.json {
        message::print_json(json!({
            "drills": Kind::value_variants().iter().map(|kind| word(*kind)).collect::<Vec<_>>(),
            "nodes": status.nodes, "pairs": status.pairs, "incidents": status.incidents,
        }))?;
        return Ok(Exit::Ok);
    }
    let rows = status.nodes.iter().map(|node| row(node, &status)).collect();
    let text = table::plain(&["node", "pid", "state", "lives", "server", "pairs"], &[0, 1, 3], rows);
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    for node in &status.nodes {
        if let Some(why) = &node.why {
            writeln!(out, "\nnode {} {why}", node.node)?;
        }
    }
    for pair in &status.pairs {
        if let Some(trouble) = &pair.trouble {
            writeln!(out, "\npair-{} is {trouble}", pair.pair)?;
        }
        if let Some(next) = &pair.next {
            writeln!(out, "  next: {next}")?;
        }
    }
    let kinds: Vec<_> = Kind::value_variants().iter().map(|kind| word(*kind)).collect();
    let first = status.nodes.first().map_or(0, |node| node.node);
    let run = reached.command(&format!("cell drill run {} --node {first}", kinds[0]));
    writeln!(out, "\ndrills: {}\n  {}", kinds.join(", "), run.trim_matches('`'))?;
    Ok(Exit::Ok)
}

fn word(kind: Kind) -> String {
    kind.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn row(node: &NodeView, status: &Status) -> Vec<String> {
    let own = status.pairs.iter().filter(|pair| pair.node == u32::from(node.node));
    let state = |pair: &PairView| match pair.trouble {
        Some(_) if pair.is_served() => "unavailable".to_owned(),
        _ => pair.state.clone(),
    };
    let own_count = own.clone().count();
    let pairs: Vec<_> = own.map(|pair| format!("{} {}", pair.pair, state(pair))).collect();
    let cut_off = match node.partition {
        None => String::new(),
        Some(PartitionWay::Both) => ", cut off".to_owned(),
        Some(way) => format!(", cut off ({} alone)", way.word()),
    };
    let slow = match node.disk_delay_ms {
        0 => String::new(),
        ms => format!(", disk slower by {ms} ms"),
    };
    let drains = match (&node.drained_by, own_count) {
        (None, _) => String::new(),
        (Some(_), 0) => ", drained".to_owned(),
        (Some(_), _) => ", drains".to_owned(),
    };
    vec![
        node.node.to_string(),
        node.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        format!("{}{cut_off}{slow}{drains}", node.state),
        node.lives.to_string(),
        status.server_of(node),
        pairs.join(", "),
    ]
}

/// Takes back every fault that lasts; whose.
fn take_back(supervisor: &mut Supervisor) -> Result<Vec<u16>, DrillError> {
    let (_, status) = supervisor.status()?;
    let mut healed = Vec::new();
    for view in &status.nodes {
        let node = view.node;
        let cuts = DrillRequest::Partition { node, on: false, way: PartitionWay::Both };
        let remedies = [
            (view.state == "stopped", DrillRequest::Cont { node }),
            (view.partitioned, cuts),
            (view.disk_delay_ms > 0, DrillRequest::SlowDisk { node, delay_ms: 0 }),
            // What an operator wants empty stays so.
            (view.drained_by.as_deref() == Some(DRAINED_BY), DrillRequest::Drain { node, on: false }),
            // Of a node that is down, it is a start at once.
            (view.state == "down", DrillRequest::Restart { node }),
        ];
        for (_, remedy) in remedies.iter().filter(|(lasts, _)| *lasts) {
            supervisor.ask(*remedy)?;
        }
        if remedies.iter().any(|(lasts, _)| *lasts) {
            healed.push(node);
        }
    }
    Ok(healed)
}

fn heal(global: &Global, arguments: &LsArgs) -> anyhow::Result<Exit> {
    let mut supervisor = arguments.at.reach()?;
    let healed = take_back(&mut supervisor);
    let healed = healed.map_err(|error| output::failure(error, &arguments.at.reached()))?;
    if global.json {
        message::print_json(json!({"healed": healed}))?;
    } else if healed.is_empty() {
        message::note("no fault lasts");
    } else {
        for node in healed {
            println!("node {node}");
        }
    }
    Ok(Exit::Ok)
}
