//! `cell dev`: a supervisor with the embedded coordinator and its nodes as children, all in one folder.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::Context;
use cell_cluster::{ClusterError, Coordinator, CoordinatorServer, Embedded, Table, local_socket};
use cell_durable::{SystemSyncer, create_folders};
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use clap::{ArgMatches, Args, Subcommand, ValueEnum, value_parser};

use crate::args::Global;
use crate::command::dev_scale::{self, DevScaleArgs};
use crate::dev::announce::Announcer;
use crate::dev::child::NodeSpec;
use crate::dev::drill_listener;
use crate::dev::drill_turn::DrillTurns;
use crate::dev::event::Event;
use crate::dev::local_listener::LocalListener;
use crate::dev::memory_shares::MemoryShares;
use crate::dev::messages::{self, BoundedFiles};
use crate::dev::owners::{Misfit, Owners};
use crate::dev::plan::Plan;
use crate::dev::scale;
use crate::dev::supervisor::{NodeFactory, Supervisor};
use crate::disk_size::refuse_small;
use crate::exit::{Exit, Failure};
use crate::folders::Folders;
use crate::hint::{DIR_DEFAULT, Reached};
use crate::output::message;
use crate::process_settings::{AGENT_ADDRESS, keep_files_private, raise_open_files};
use crate::signal::{self, Hangup};
use crate::{cores, environment, logging, settings};

/// Settings that `cell dev` decides itself, from `--dir` and `--port`.
pub(crate) const DECIDED: [&str; 10] = [
    "node_id",
    "listen_address",
    "advertise_address",
    "http_address",
    "advertise_http_address",
    "coordinator_address",
    "data_dir",
    "log_root",
    AGENT_ADDRESS,
    CLUSTER_NODES,
];
/// How many nodes the cluster is spread over at its first start.
pub(crate) const CLUSTER_NODES: &str = "cluster_nodes";

/// Arguments of `cell dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Folder of all data; created if missing
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    dir: PathBuf,
    /// Nodes, each a process of its own
    #[arg(
        long, visible_alias = "processes", value_name = "N", default_value_t = 1,
        value_parser = value_parser!(u16).range(1..=64)
    )]
    nodes: u16,
    /// Give each node cores of its own, those that come later apart
    #[arg(long)]
    pin_cores: bool,
    /// First port P: node i on P+i, its HTTP on P+80+i
    #[arg(
        long, value_name = "P", default_value_t = 7000, value_parser = value_parser!(u16).range(1024..=65000)
    )]
    port: u16,
    /// Whether a node that dies is started again
    #[arg(long, value_enum, value_name = "ON", default_value = "on")]
    restart: Restart,
    /// Open `drill.socket` in the folder, so that `cell drill` can kill, stop and cut off nodes
    #[arg(long)]
    allow_drills: bool,
    /// What the cluster's processes report is shown on stderr, in place of files in `messages` of the folder
    #[arg(long)]
    show_logs: bool,
    #[command(subcommand)]
    what: Option<DevCommand>,
}

/// What else to do about a development cluster.
#[derive(Debug, Subcommand)]
enum DevCommand {
    /// Grow or shrink a running cluster; nodes that go are emptied first
    Scale(DevScaleArgs),
}

/// Whether a node that dies is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Restart {
    /// With a wait that grows while it keeps dying.
    On,
    /// It stays dead, and the others go on; the death of the last one ends the cluster.
    Off,
}

/// Runs until a signal.
pub(crate) fn run(global: &Global, arguments: &DevArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    if let Some(DevCommand::Scale(scale)) = &arguments.what {
        settings::refuse_flags(matches, "`cell dev scale` takes N, --dir and --patience")?;
        return dev_scale::run(global, scale, &arguments.dir);
    }
    keep_files_private();
    raise_open_files(); // of the coordinator's connections each node has some; the nodes inherit it
    let cores = if arguments.pin_cores { cores::share_out(arguments.nodes)? } else { Vec::new() };
    let (resolved, warnings) = settings::resolve_but(&DECIDED, matches, environment::variables())?;
    warnings.iter().for_each(|warning| message::warning(warning));
    create_folders(&SystemSyncer, &arguments.dir)
        .with_context(|| format!("cannot create {}", arguments.dir.display()))?;
    let plan = plan(arguments, &resolved)?;
    refuse_small(&Folders::within(plan.dir()), &resolved, arguments.nodes, true)?;
    let file = if arguments.show_logs { None } else { Some(messages::open(&plan.supervisor_messages())?) };
    settings::check_rules(&resolved)?;
    logging::start(resolved.text(logging::FILTER), file)?;
    refuse_taken_ports(&plan, arguments.nodes)?;
    let (sender, events) = mpsc::channel();
    let (coordinator, server) = host_coordinator(&plan, &sender)?;
    let stop = sender.clone();
    // A second signal ends this process at once, and the children with it: they see their stdin end.
    signal::on_signals(Hangup::Stops, move || stop.send(Event::Stop).unwrap_or_default())?;
    scale::permit(&(coordinator.clone() as Arc<dyn Coordinator>), arguments.nodes).map_err(explain)?;
    let unfinished = scale::unfinished(&(coordinator.clone() as Arc<dyn Coordinator>)).map_err(explain)?;
    let owners = Owners::of(&Table::new(coordinator.clone()).pairs().map_err(explain)?.0);
    let (turns, memory) = (DrillTurns::default(), memory_shares(arguments.nodes, &resolved));
    let scale_listener =
        scale::listen(plan.scale_socket(), coordinator.clone(), sender.clone(), turns.clone(), memory)?;
    let drill_listener = drills(&plan, coordinator, &sender, turns)?;
    let given = (arguments.nodes, arguments.show_logs);
    let specs = (0..arguments.nodes).map(|node| node_spec(&plan, node, given, matches));
    let mut specs = specs.collect::<anyhow::Result<Vec<NodeSpec>>>()?;
    for (spec, own) in specs.iter_mut().zip(&cores) {
        spec.arguments.push(cores::argument(own));
    }
    let of_nodes = specs.iter().filter_map(|spec| spec.messages.clone());
    let own = (!arguments.show_logs).then(|| plan.supervisor_messages());
    let files = BoundedFiles::start(of_nodes.chain(own))?;
    let restart = arguments.restart == Restart::On;
    let announcer = Announcer { json: global.json };
    if let Some(misfit) = unfinished {
        let next = Reached::by_dir(plan.dir()).in_text(&misfit.next);
        announcer.misfit(&Misfit { next, ..misfit });
    }
    let more = one_more(&plan, arguments, matches, &resolved, files);
    let supervisor = Supervisor::new(plan, specs, restart, announcer);
    let mut supervisor = supervisor.with_owners(owners).with_more(more).with_memory(memory);
    let exit = supervisor.run(&events, &sender)?;
    drop((scale_listener, drill_listener, server));
    Ok(exit)
}

/// The coordinator, and its door for the nodes.
fn host_coordinator(
    plan: &Plan,
    events: &mpsc::Sender<Event>,
) -> anyhow::Result<(Arc<Embedded>, CoordinatorServer)> {
    let coordinator = Embedded::open(&plan.coordinator_dir()).map_err(explain)?;
    let coordinator = Arc::new(coordinator.looking_at_holders(cell_fabric::peer_process));
    let peer_user = |stream: &UnixStream| cell_fabric::peer_user(stream);
    let server = CoordinatorServer::start(coordinator.clone(), &plan.coordinator(), peer_user);
    let server = server.map_err(explain)?;
    let failed = events.clone();
    coordinator.on_stop(move |error| {
        let _ = failed.send(Event::CoordinatorFailed(with_causes(error))); // unless all ends anyway
    });
    Ok((coordinator, server))
}

/// What each of the nodes may hold in memory.
fn memory_shares(nodes: u16, resolved: &Settings) -> MemoryShares {
    let mut softened = resolved.clone();
    settings::soften_for_development(&mut softened, None);
    let given = resolved.integer(settings::MEMORY_LIMIT);
    let shares = MemoryShares::new(given, cell_memory::total_bytes(), cell_node::smallest_limit(&softened));
    shares.with_set_aside(nodes, |limit| cell_node::set_aside_bytes(limit, &softened))
}

fn plan(arguments: &DevArgs, resolved: &Settings) -> anyhow::Result<Plan> {
    let mut plan = Plan::new(fs::canonicalize(&arguments.dir)?, arguments.port);
    if arguments.allow_drills {
        plan = plan.with_drills();
    }
    if !resolved.text(cell_fabric::TLS_CERTIFICATE_FILE).is_empty() {
        plan = plan.with_tls();
    }
    Ok(plan)
}

/// How a node is started that comes later.
fn one_more(
    plan: &Plan,
    given: &DevArgs,
    matches: &ArgMatches,
    resolved: &Settings,
    files: BoundedFiles,
) -> NodeFactory {
    let (plan, matches, resolved) = (plan.clone(), matches.clone(), resolved.clone());
    let (nodes, show_logs) = (given.nodes, given.show_logs);
    Box::new(move |node| {
        refuse_small(&Folders::within(plan.dir()), &resolved, node + 1, true)?;
        refuse_taken(&plan, node)?;
        let spec = node_spec(&plan, node, (nodes, show_logs), &matches)?;
        if let Some(messages) = &spec.messages {
            files.add(messages.clone());
        }
        Ok(spec)
    })
}

/// A node that cannot listen would end with its own command's advice; here the ports follow from `--port`.
fn refuse_taken_ports(plan: &Plan, nodes: u16) -> anyhow::Result<()> {
    (0..nodes).try_for_each(|node| refuse_taken(plan, node))
}

fn refuse_taken(plan: &Plan, node: u16) -> anyhow::Result<()> {
    for address in [plan.fabric(node), plan.http(node)] {
        if let Err(error) = TcpListener::bind(address) {
            let failure = Failure::new(Exit::Usage, format!("cannot listen on {address}: {error}"));
            return Err(failure.next("another process listens there: give another --port").into());
        }
    }
    Ok(())
}

/// The socket for drills, if they are allowed; otherwise what an earlier supervisor left is taken away.
fn drills(
    plan: &Plan,
    coordinator: Arc<Embedded>,
    events: &mpsc::Sender<Event>,
    turns: DrillTurns,
) -> anyhow::Result<Option<LocalListener>> {
    if plan.allows_drills() {
        return drill_listener::listen(plan.drill_socket(), coordinator, events.clone(), turns).map(Some);
    }
    local_socket::remove(&plan.drill_socket())
        .context("cannot remove the socket of an earlier supervisor")?;
    Ok(None)
}

/// How a node is started, in a cluster that began with so many nodes, whose messages are shown or not.
fn node_spec(
    plan: &Plan,
    node: u16,
    (nodes, show_logs): (u16, bool),
    matches: &ArgMatches,
) -> anyhow::Result<NodeSpec> {
    let mut arguments = vec!["--supervised".to_owned()];
    let decided = [
        node.to_string(),
        plan.fabric(node).to_string(),
        String::new(),
        plan.http(node).to_string(),
        String::new(),
        plan.coordinator().to_str().context("the folder's path is not UTF-8")?.to_owned(),
        plan.dir().to_str().context("the folder's path is not UTF-8")?.to_owned(),
        String::new(),
        String::new(),
        nodes.to_string(),
    ];
    let mut push = |name: &str, text: String| arguments.push(format!("--{}={text}", name.replace('_', "-")));
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        push("config", path.to_str().context("the configuration's path is not UTF-8")?.to_owned());
    }
    for (name, text) in settings::given_flags(matches) {
        push(name, text);
    }
    for (name, text) in DECIDED.into_iter().zip(decided) {
        push(name, text);
    }
    let binary = std::env::current_exe().context("cannot find this binary")?;
    let messages = (!show_logs).then(|| plan.node_messages(node));
    Ok(NodeSpec { node, binary, arguments, messages })
}

fn explain(error: ClusterError) -> anyhow::Error {
    let (exit, next) = match &error {
        ClusterError::Held { .. } => {
            (Exit::Usage, Some("another `cell dev` uses this folder: stop it, or give another --dir"))
        }
        ClusterError::Listen { .. } => (
            Exit::Usage,
            Some("give a --dir on a file system that has unix sockets, and /proc for long paths"),
        ),
        _ => (Exit::Error, None),
    };
    let failure = Failure::new(exit, with_causes(&error));
    match next {
        Some(next) => failure.next(next).into(),
        None => failure.into(),
    }
}
