//! `cell node --processes N`: a supervisor, and N nodes of one configuration as its children. `cell agent` is
//! the same with a door for drills.
//!
//! The supervisor owns no pairs. It hosts the coordinator if that is embedded. What dies with what: a node
//! dies alone, and is started again; all nodes end with their supervisor, also those that stand still.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use cell_cluster::{ClusterError, Coordinator, CoordinatorServer, Embedded, Table};
use cell_durable::{SystemSyncer, create_folders};
use cell_terms::setting::{Settings, Source};
use cell_terms::text::with_causes;
use clap::ArgMatches;

use crate::agent::door::AgentDoor;
use crate::agent::guards::Guards;
use crate::agent::host::AgentHost;
use crate::args::Global;
use crate::command::dev::CLUSTER_NODES;
use crate::dev::announce::Announcer;
use crate::dev::child::NodeSpec;
use crate::dev::drill_turn::DrillTurns;
use crate::dev::event::Event;
use crate::dev::machine::{check_apart, check_ports, first_id, memory_share};
use crate::dev::owners::Owners;
use crate::dev::plan::{COORDINATOR_SOCKET, Plan};
use crate::dev::supervisor::Supervisor;
use crate::disk_size::refuse_small;
use crate::exit::{Exit, Failure};
use crate::folders::Folders;
use crate::output::message;
use crate::process_settings::{EMBEDDED, keep_files_private, raise_open_files};
use crate::provider::{Provider, place_words};
use crate::signal::{self, Hangup};
use crate::start_checks::{
    Advertised, address, advertised_agent, advertised_fabric, advertised_http, check_fabric, check_http,
    check_tls, names_lacking, network_warnings, with_names_next,
};
use crate::{cores, environment, logging, settings};

/// Where the coordinator is.
const COORDINATOR_ADDRESS: &str = "coordinator_address";

/// What is wanted of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) processes: u16,
    pub(crate) pin_cores: bool,
    /// Of an agent: whether it does faults to its nodes.
    pub(crate) agent: Option<bool>,
}

/// Runs until a signal.
pub(crate) fn run(global: &Global, wanted: Wanted, matches: &ArgMatches) -> anyhow::Result<Exit> {
    keep_files_private();
    raise_open_files(); // of the coordinator's connections each node has some; the nodes inherit it
    let (resolved, warnings) = settings::resolve(matches, environment::variables())?;
    warnings.iter().for_each(|warning| message::warning(warning));
    settings::check_rules(&resolved)?;
    logging::start(resolved.text(logging::FILTER), None)?;
    let door = wanted.agent.map(|_| AgentDoor::listen(&resolved)).transpose()?;
    let Prepared { mut plan, memory, cores } = prepare(&resolved, wanted)?;
    let embedded = is_embedded(&resolved);
    let (sender, events) = mpsc::channel();
    let hosted = if embedded { Some(host_coordinator(&plan, &sender)?) } else { None };
    let (stop, reload) = (sender.clone(), sender.clone());
    let guards = door.as_ref().map(AgentDoor::guards);
    signal::on_hangup(move || {
        guards.iter().for_each(Guards::reload);
        reload.send(Event::Reload).unwrap_or_default();
    })?;
    signal::on_signals(Hangup::Apart, move || stop.send(Event::Stop).unwrap_or_default())?;
    let mut agent = None;
    if let Some(door) = door {
        plan = plan.with_agent(door.address());
        let advertised = advertised_agent(&resolved, door.address())?;
        agent = (wanted.agent == Some(true)).then_some(advertised);
        door.serve(agent_host(&resolved, &plan, wanted, hosted.as_ref(), &sender)?)?;
    }
    let processes = wanted.processes;
    let shared = Shared { plan: &plan, resolved: &resolved, processes, embedded, memory, agent };
    let own = |place: u16| cores.get(usize::from(place)).map_or(&[][..], Vec::as_slice);
    let specs = (0..processes).map(|place| shared.spec(place, own(place), matches));
    let specs = specs.collect::<anyhow::Result<Vec<NodeSpec>>>()?;
    let announcer = Announcer { json: global.json };
    let owners = hosted.as_ref().map(|hosted| &hosted.owners);
    let elsewhere = owners.and_then(|owners| owners.elsewhere(plan.id(0), processes));
    elsewhere.iter().for_each(|misfit| announcer.misfit(misfit));
    let exit = Supervisor::new(plan, specs, true, announcer).run(&events, &sender)?;
    drop(hosted);
    Ok(exit)
}

fn is_embedded(resolved: &Settings) -> bool {
    resolved.text(COORDINATOR_ADDRESS) == EMBEDDED
}

/// Where everything is, and what each process gets.
struct Prepared {
    plan: Plan,
    /// What each may hold in memory; none: nobody knows how much there is.
    memory: Option<u64>,
    /// The cores of each; none: all share them.
    cores: Vec<Vec<usize>>,
}

/// Makes the folders, and refuses before that whatever can be wrong with what was given.
fn prepare(resolved: &Settings, wanted: Wanted) -> anyhow::Result<Prepared> {
    let Wanted { processes, pin_cores, .. } = wanted;
    let embedded = is_embedded(resolved);
    let folders = Folders::of_settings(resolved)?;
    let dir = folders.data().to_owned();
    let addresses = addresses(resolved, processes)?;
    let first = first_id(resolved.integer("node_id"), processes)?;
    let total = cell_memory::total_bytes();
    let given = resolved.integer("memory_limit_bytes");
    let memory = memory_share(given, total, processes, cell_node::smallest_limit(resolved))?;
    let cores = if pin_cores { cores::share_out(processes)? } else { Vec::new() };

    create_folders(&SystemSyncer, &dir).with_context(|| format!("cannot create {}", dir.display()))?;
    refuse_small(&folders, resolved, processes, embedded)?;
    let dir = fs::canonicalize(&dir)?;
    let coordinator = if embedded {
        dir.join(COORDINATOR_SOCKET)
    } else {
        PathBuf::from(resolved.text(COORDINATOR_ADDRESS))
    };
    let mut plan = Plan::of_machine(dir, coordinator, first, addresses);
    if !resolved.text(cell_fabric::TLS_CERTIFICATE_FILE).is_empty() {
        plan = plan.with_tls();
    }
    (0..processes).try_for_each(|place| refuse_taken(&plan, place))?;
    Ok(Prepared { plan, memory, cores })
}

/// What an agent needs to serve drills: the coordinator, hosted here or elsewhere, and its nodes.
fn agent_host(
    resolved: &Settings,
    plan: &Plan,
    wanted: Wanted,
    hosted: Option<&Hosted>,
    events: &mpsc::Sender<Event>,
) -> Result<AgentHost, Failure> {
    let coordinator: Arc<dyn Coordinator> = match hosted {
        Some(hosted) => hosted.coordinator.clone(),
        // On etcd this process watches nobody's lease before a drill. Leases of nodes and other agents are
        // watched by the nodes, as by all who hold one, and by this process from its first turn on: that
        // hangs on a lease, too, so the turn of an agent that was killed ends for the next one though no
        // node lives.
        None => {
            let deadline = Duration::from_millis(resolved.integer("coordinator_deadline_ms"));
            Arc::new(Provider::open(resolved.text(COORDINATOR_ADDRESS), resolved, deadline)?)
        }
    };
    let next_if_away = match hosted {
        Some(_) => "look at the agent's messages: the coordinator is in its process".to_owned(),
        None => format!("see whether it runs and the agent's host reaches it: {}", place_words(resolved)),
    };
    Ok(AgentHost {
        coordinator,
        events: events.clone(),
        turns: DrillTurns::default(),
        first: u16::try_from(plan.id(0)).unwrap_or(u16::MAX),
        allows_drills: wanted.agent == Some(true),
        next_if_away,
    })
}

/// Where the first process listens, for clients and for HTTP.
fn addresses(resolved: &Settings, processes: u16) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let (fabric, http) = (address(resolved, "listen_address")?, address(resolved, "http_address")?);
    check_ports("listen_address", &fabric, fabric.port(), processes)?;
    check_ports("http_address", &http, http.port(), processes)?;
    check_apart(fabric, http, processes)?;
    let beyond_loopback = check_fabric(resolved, fabric)?;
    check_http(resolved, http)?;
    check_tls(resolved)?;
    for (name, given) in advertised(resolved)? {
        check_ports(name, &given, given.port(), processes)?;
    }
    let warnings = network_warnings(resolved, (fabric, beyond_loopback), http);
    let names = names_lacking(resolved).map(with_names_next);
    warnings.iter().chain(&names).for_each(|warning| message::warning(warning));
    Ok((fabric, http))
}

/// What is advertised of the first process in place of where it listens, by setting.
fn advertised(resolved: &Settings) -> Result<Vec<(&'static str, Advertised)>, Failure> {
    let fabric = advertised_fabric(resolved)?.map(|given| ("advertise_address", given));
    let http = advertised_http(resolved)?.map(|given| ("advertise_http_address", given));
    Ok(fabric.into_iter().chain(http).collect())
}

fn refuse_taken(plan: &Plan, place: u16) -> Result<(), Failure> {
    for (name, address) in [("listen_address", plan.fabric(place)), ("http_address", plan.http(place))] {
        if let Err(error) = TcpListener::bind(address) {
            let what = format!("cannot listen on {address}: {error}");
            let next = format!("another process listens there: give another port as {name}");
            // The address may be there, or let go, at the next start.
            return Err(Failure::new(Exit::Error, what).next(next));
        }
    }
    Ok(())
}

/// An embedded coordinator.
struct Hosted {
    coordinator: Arc<Embedded>,
    /// Its door for the nodes.
    _server: CoordinatorServer,
    /// Whose the pairs are in its table.
    owners: Owners,
}

fn host_coordinator(plan: &Plan, events: &mpsc::Sender<Event>) -> anyhow::Result<Hosted> {
    let coordinator = Embedded::open(&plan.coordinator_dir()).map_err(|error| explain(&error))?;
    let coordinator = Arc::new(coordinator.looking_at_holders(cell_fabric::peer_process));
    let peer_user = |stream: &UnixStream| cell_fabric::peer_user(stream);
    let server = CoordinatorServer::start(coordinator.clone(), &plan.coordinator(), peer_user);
    let server = server.map_err(|error| explain(&error))?;
    let failed = events.clone();
    coordinator.on_stop(move |error| {
        let _ = failed.send(Event::CoordinatorFailed(with_causes(error))); // unless all ends anyway
    });
    let (rows, _) = Table::new(coordinator.clone()).pairs().map_err(|error| explain(&error))?;
    Ok(Hosted { coordinator, _server: server, owners: Owners::of(&rows) })
}

fn explain(error: &ClusterError) -> Failure {
    let words = with_causes(error);
    match error {
        ClusterError::Held { .. } => {
            Failure::usage(words).next("stop the other process, or give another data_dir")
        }
        ClusterError::Listen { .. } => {
            Failure::usage(words).next("give a data_dir on a file system that has unix sockets")
        }
        _ => Failure::new(Exit::Error, words),
    }
}

/// What the processes have in common.
struct Shared<'a> {
    plan: &'a Plan,
    resolved: &'a Settings,
    processes: u16,
    embedded: bool,
    /// What each may hold in memory; none: nobody knows how much there is.
    memory: Option<u64>,
    /// Where others reach the agent that takes drills of them; none: there is none.
    agent: Option<String>,
}

impl Shared<'_> {
    /// How the process in this place is started: as it was given for all, but for what is its own.
    fn spec(&self, place: u16, cores: &[usize], matches: &ArgMatches) -> anyhow::Result<NodeSpec> {
        let mut arguments = vec!["--supervised".to_owned(), "--shared-out".to_owned()];
        if !cores.is_empty() {
            arguments.push(cores::argument(cores));
        }
        let text = |path: &Path| path.to_str().context("a path is not UTF-8").map(str::to_owned);
        let mut push =
            |name: &str, text: String| arguments.push(format!("--{}={text}", name.replace('_', "-")));
        if let Some(path) = matches.get_one::<PathBuf>("config") {
            push("config", text(path)?);
        }
        for (name, text) in settings::given_flags(matches) {
            push(name, text);
        }
        push("node_id", self.plan.id(place).to_string());
        push("listen_address", self.plan.fabric(place).to_string());
        push("http_address", self.plan.http(place).to_string());
        for (name, first) in advertised(self.resolved)? {
            push(name, first.shifted(place).to_string());
        }
        push(COORDINATOR_ADDRESS, text(&self.plan.coordinator())?);
        push("data_dir", text(self.plan.dir())?);
        push("log_root", self.resolved.text("log_root").to_owned());
        if let Some(memory) = self.memory {
            push("memory_limit_bytes", memory.to_string());
        }
        if let Some(agent) = &self.agent {
            push("agent", agent.clone());
        }
        let is_default =
            self.resolved.get(CLUSTER_NODES).is_some_and(|(_, source)| source == Source::Default);
        if self.embedded && is_default && self.plan.id(0) == 0 {
            push(CLUSTER_NODES, self.processes.to_string()); // the first start spreads the keys over them
        }
        let binary = std::env::current_exe().context("cannot find this binary")?;
        Ok(NodeSpec { node: place, binary, arguments, messages: None })
    }
}
