//! `cell node`: one storage node, with its HTTP, until a signal.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRefusal, Embedded, EtcdError, NodeRefusal, TlsAddress,
};
use cell_drill::wire::PartitionWay;
use cell_fabric::{FabricError, NodeTls, Partition};
use cell_memory::MemoryError;
use cell_node::{
    AccessRules, Ended, FailureKind, NO_ROOM, NodeError, NodeHandle, NodeOptions, NodeSnapshot, NodeState,
    ProcessWarnings, SILENT_WORDS, StartingNode, WarningSubject,
};
use cell_recovery::RecoveryError;
use cell_settings::SettingsStore;
use cell_terms::NodeId;
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_wal::WalError;
use cell_web::{CoordinatorPlace, HttpServer, Sources};
use clap::{ArgMatches, Args, Subcommand, value_parser};

use crate::args::Global;
use crate::command::node_drain::{self, NodeDrainArgs, NodeRemoveArgs, NodeUndrainArgs};
use crate::command::node_ls::{self, NodeLsArgs};
use crate::command::node_processes::{self, Wanted};
use crate::dev::filtered::Filtered;
use crate::dev::link::{self, Report};
use crate::dev::memory_wish::MemoryWish;
use crate::dev::wishes::{FaultSwitches, Wish, receive_wishes};
use crate::disk_size::refuse_small;
use crate::exit::{Exit, Failure};
use crate::folders::Folders;
use crate::output::message;
use crate::process_settings::{EMBEDDED, ETCD, end_with_supervisor, keep_files_private, raise_open_files};
use crate::provider::{Provider, place_words};
use crate::reload::Configuration;
use crate::service::Service;
use crate::start_checks::{
    address, advertised_fabric, advertised_http, check_fabric, check_http, check_tls, explain_web,
    names_lacking, names_lacking_now, network_warnings, with_names_next,
};
use crate::{cores, environment, logging, settings};

/// How often the node's state is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Where the coordinator is.
const COORDINATOR_ADDRESS: &str = "coordinator_address";
/// How long a call of the coordinator may take.
const COORDINATOR_DEADLINE: &str = "coordinator_deadline_ms";
/// How often its supervisor gets a report of how far a recovery is.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `cell node`.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// A supervisor holds the other ends of stdin and stdout
    #[arg(long, hide = true)]
    supervised: bool,
    /// The supervisor has cut this node off: both, in or out
    #[arg(long, hide = true, requires = "supervised", value_name = "WAY", value_parser = parse_way)]
    partitioned: Option<PartitionWay>,
    /// The supervisor has slowed this node's logs down
    #[arg(long, hide = true, requires = "supervised", value_name = "MS", default_value_t = 0)]
    slow_disk_ms: u64,
    /// The supervisor has started nodes here before this one, and they ended the same way
    #[arg(long, hide = true, requires = "supervised", value_name = "WHY")]
    restarted_because: Option<String>,
    /// What the supervisor of a development cluster lets it hold in memory at first, unless a limit is given
    #[arg(long, hide = true, requires = "supervised", value_name = "BYTES")]
    memory_share: Option<u64>,
    /// One of several processes of this machine, which have shared it out among them
    #[arg(long, hide = true, requires = "supervised")]
    shared_out: bool,
    /// The cores that this process may use
    #[arg(long, hide = true, requires = "supervised", value_name = "CORES", value_delimiter = ',')]
    cores: Vec<usize>,
    /// The supervisor is an agent that takes drills there
    #[arg(long, hide = true, requires = "supervised", value_name = "HOST:PORT")]
    agent: Option<String>,
    /// Run so many nodes, each a process, with numbers and ports in a row, which share this machine's memory
    #[arg(
        long, value_name = "N", conflicts_with = "supervised", value_parser = value_parser!(u16).range(1..=64)
    )]
    processes: Option<u16>,
    /// Give each process cores of its own
    #[arg(long, requires = "processes")]
    pin_cores: bool,
    #[command(subcommand)]
    what: Option<NodeCommand>,
}

fn parse_way(word: &str) -> Result<PartitionWay, String> {
    PartitionWay::from_word(word).ok_or_else(|| "it takes both, in or out".to_owned())
}

/// What else to do about nodes.
#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Print the nodes of a cluster, as the admin API returns them
    Ls(NodeLsArgs),
    /// Let all pairs of a node move to the others while they are read and written, and give it none
    Drain(NodeDrainArgs),
    /// Give a node pairs again
    Undrain(NodeUndrainArgs),
    /// Remove a node for good that has no pairs, and that drains or does not run
    Remove(NodeRemoveArgs),
}

/// Runs a node until a signal, or does what else is wanted.
pub(crate) fn run(global: &Global, arguments: &NodeArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Some(what) = &arguments.what else {
        if let Some(processes) = arguments.processes {
            let wanted = Wanted { processes, pin_cores: arguments.pin_cores, agent: None };
            return node_processes::run(global, wanted, matches);
        }
        let ended = serve(arguments, matches);
        // Also where its messages' file cannot be written, on a disk that is full.
        return ended.inspect_err(|error| {
            if arguments.supervised {
                link::send_report(&Report::last(error));
            }
        });
    };
    if arguments.processes.is_some() {
        let failure = Failure::usage("--processes is for nodes that are to run");
        return Err(failure.next("leave it out, or the word after it").into());
    }
    settings::refuse_flags(matches, "what is asked of nodes takes --server, --http, --ca and --token")?;
    match what {
        NodeCommand::Ls(arguments) => node_ls::run(global, arguments),
        NodeCommand::Drain(arguments) => node_drain::drain(global, arguments),
        NodeCommand::Undrain(arguments) => node_drain::undrain(global, arguments),
        NodeCommand::Remove(arguments) => node_drain::remove(global, arguments),
    }
}

/// Runs until a signal.
fn serve(arguments: &NodeArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    keep_files_private();
    raise_open_files();
    if arguments.supervised {
        end_with_supervisor()?;
    }
    cores::pin(&arguments.cores)?; // before there are threads, which have the same
    let supervised = arguments.supervised;
    let (development, share) = (supervised && !arguments.shared_out, arguments.memory_share);
    let (settings, warnings) = resolve(matches, development, share)?;
    // A supervisor has given them already.
    warnings.iter().filter(|_| !supervised).for_each(|warning| message::warning(warning));
    let filter = logging::start(settings.text(logging::FILTER), None)?;
    let given = matches.clone();
    let resolve = move || Ok(resolve(&given, development, share)?.0);
    let process_warnings = Arc::new(ProcessWarnings::default());
    let configuration = Configuration::new(settings.clone(), filter, process_warnings.clone(), resolve);
    let http = address(&settings, "http_address")?;
    let listen = listen_on(&settings, http, &process_warnings, supervised)?;
    let (access, tls) = (Arc::new(check_http(&settings, http)?), check_tls(&settings)?);
    let folders = Folders::of_settings(&settings)?;
    refuse_small(&folders, &settings, 1, settings.text(COORDINATOR_ADDRESS) == EMBEDDED)?;
    let faults = FaultSwitches::of(arguments.partitioned, arguments.slow_disk_ms);
    let memory = MemoryWish::default();
    let wishes = receive_wishes(supervised, &faults, &memory)?;
    let coordinator = coordinator(&settings, &folders, faults.partition.clone(), configuration.store())?;
    let guards = Guards { access, tls, process_warnings };
    let (restarted, agent) = (arguments.restarted_because.clone(), arguments.agent.clone());
    let options = options(&settings, &folders, listen, faults, restarted, &guards)?;
    let place = place_words(&settings);
    let starting = StartingNode::prepare(options, &place).map_err(explain)?;
    memory.attach(starting.budget());
    // Before there is a lease: who looks sees what is waited for.
    let web = serve_http(http, &starting, &configuration, coordinator.clone(), guards, &folders, agent)?;
    let reload = || {
        configuration.reload();
        web.reload();
    };
    let mut reporter = Reporter::new(supervised);
    let goes_on = |snapshot: &NodeSnapshot| {
        reporter.show(snapshot);
        wishes.try_iter().all(|wish| match wish {
            Wish::Stop => false,
            Wish::Reload => {
                reload();
                true
            }
        })
    };
    let Some(handle) = starting.join(coordinator, goes_on).map_err(explain)? else {
        tracing::info!("stopped before there was a lease");
        web.shutdown();
        return Ok(Exit::Ok);
    };
    handle.follow(configuration.store());
    attend(&handle, &wishes, reload, &mut reporter);
    let ended = handle.wait();
    web.shutdown();
    conclude(ended)
}

/// The settings in force, and warnings of variables that are none.
fn resolve(
    matches: &ArgMatches,
    development: bool,
    memory_share: Option<u64>,
) -> anyhow::Result<(Settings, Vec<String>)> {
    let (mut settings, warnings) = settings::resolve(matches, environment::variables())?;
    if development {
        settings::soften_for_development(&mut settings, memory_share);
    }
    settings::check_rules(&settings)?;
    Ok((settings, warnings))
}

/// Where the fabric listens, and whether that is not loopback. It is warned of a fabric that is open to its
/// network, and of names that lead nobody else here: now, in the log, and for as long as the node lives. Of
/// names that the certificate lacks it is warned now; in the log, and for as long as it is so, the web warns,
/// because it may be replaced while the node lives.
fn listen_on(
    settings: &Settings,
    http: SocketAddr,
    all: &ProcessWarnings,
    supervised: bool,
) -> Result<(SocketAddr, bool), Failure> {
    let listen = address(settings, "listen_address")?;
    let beyond_loopback = check_fabric(settings, listen)?;
    let warnings = network_warnings(settings, (listen, beyond_loopback), http);
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let names = names_lacking(settings).map(with_names_next);
    let given = warnings.iter().chain(&names).filter(|_| !supervised); // a supervisor has given them already
    given.for_each(|warning| message::warning(warning));
    all.set(WarningSubject::Network, warnings);
    Ok((listen, beyond_loopback))
}

/// Serves the node's HTTP, with all that its routes are made from.
fn serve_http(
    address: SocketAddr,
    starting: &StartingNode,
    configuration: &Configuration,
    coordinator: Arc<dyn Coordinator>,
    guards: Guards,
    folders: &Folders,
    agent: Option<String>,
) -> anyhow::Result<HttpServer> {
    let (watch, store) = (starting.watch(), configuration.store());
    let sources = Sources::new(Arc::new(move || watch.snapshot()))
        .coordinator(coordinator)
        .coordinator_place(coordinator_place(&store.given()))
        .access(guards.access)
        .tls(guards.tls)
        .names_check(names_check(store.given()))
        .process_warnings(guards.process_warnings)
        .settings(store.clone(), settings::REGISTRY)
        .data_folder(folders.data())
        .agent(agent)
        .log_root(folders.log_root())
        .fabric(starting.address())
        .tree(starting.tree_look());
    let server = HttpServer::start(address, sources).map_err(explain_web)?;
    tracing::info!("console at {}://{}/console/", server.scheme(), server.address());
    Ok(server)
}

/// What looks at the certificate that is shown: what is advertised stays until the process ends.
fn names_check(settings: Settings) -> impl Fn(&NodeTls) -> Option<String> {
    move |tls| names_lacking_now(&settings, tls).map(with_names_next)
}

fn options(
    settings: &Settings,
    folders: &Folders,
    (listen, beyond_loopback): (SocketAddr, bool),
    faults: FaultSwitches,
    restarted_because: Option<String>,
    guards: &Guards,
) -> anyhow::Result<NodeOptions> {
    let id = u32::try_from(settings.integer("node_id")).unwrap_or(u32::MAX);
    Ok(NodeOptions {
        node: NodeId(id),
        folder: folders.log_root().to_owned(),
        home: folders.home(id),
        listen,
        beyond_loopback,
        advertised: advertised_fabric(settings)?.map(|given| given.to_string()),
        http_address: advertised_http(settings)?
            .map_or_else(|| settings.text("http_address").to_owned(), |given| given.to_string()),
        tls: guards.tls.clone(),
        access: guards.access.clone(),
        process_warnings: guards.process_warnings.clone(),
        partition: faults.partition,
        disk_delay: faults.disk_delay,
        restarted_because,
        settings: settings.clone(),
    })
}

/// What a coordinator is and where, as the admin API says it.
fn coordinator_place(settings: &Settings) -> CoordinatorPlace {
    let endpoints =
        || settings.text("etcd_endpoints").split(',').map(|one| one.trim().to_owned()).collect::<Vec<_>>();
    let (provider, addresses) = match settings.text(COORDINATOR_ADDRESS) {
        EMBEDDED => ("embedded", Vec::new()),
        ETCD => (ETCD, endpoints()),
        place if TlsAddress::parse(place).is_some() => ("tls", vec![place.to_owned()]),
        place => ("socket", vec![place.to_owned()]),
    };
    CoordinatorPlace { provider, addresses }
}

/// The coordinator that the settings name; it follows changes of the deadline of its calls.
fn coordinator(
    settings: &Settings,
    folders: &Folders,
    partition: Partition,
    store: &SettingsStore,
) -> anyhow::Result<Arc<dyn Coordinator>> {
    let place = settings.text(COORDINATOR_ADDRESS);
    let why = "a renewal that hangs has to end within the lease (lease_ms)";
    store.bound(COORDINATOR_DEADLINE, settings.integer("lease_ms"), why);
    if place == EMBEDDED {
        let embedded = Embedded::open(&folders.coordinator()).map_err(|error| explain(error.into()))?;
        embedded.on_stop(|error| {
            let what = format!("the coordinator in this process has stopped: {}", with_causes(error));
            // Nobody else has what it knows: there is no lease to be had, and nothing to wait for.
            message::warning(&format!("{what}; exiting, the data is kept"));
            std::process::exit(i32::from(Exit::Error as u8));
        });
        return Ok(Arc::new(embedded));
    }
    let deadline = |settings: &Settings| Duration::from_millis(settings.integer(COORDINATOR_DEADLINE));
    let provider = Provider::open(place, settings, deadline(settings))?;
    let filtered = Arc::new(Filtered::new(provider, partition, deadline(settings)));
    let followed = filtered.clone();
    store.subscribe(move |_, settings| followed.set_deadline(deadline(settings)));
    Ok(filtered)
}

/// What the node and its HTTP have in common: who may do what, their TLS, and what is wrong with the
/// process's files.
#[derive(Clone)]
struct Guards {
    access: Arc<AccessRules>,
    tls: Option<NodeTls>,
    process_warnings: Arc<ProcessWarnings>,
}

/// Reports how the node is doing: to the service manager, and to its supervisor if it has one.
struct Reporter {
    supervised: bool,
    service: Service,
    reported: Option<(Report, Instant)>,
}

impl Reporter {
    fn new(supervised: bool) -> Reporter {
        Reporter { supervised, service: Service::new(Instant::now()), reported: None }
    }

    /// Call it several times a second.
    fn show(&mut self, snapshot: &NodeSnapshot) {
        let (report, now) = (report(&snapshot.state), Instant::now());
        self.service.observe(snapshot, &report.detail, now);
        if matches!(&snapshot.state, NodeState::Starting(wait) if wait.tries == 0) {
            return; // it has only just asked
        }
        if is_news(self.reported.as_ref(), &report, now) {
            if self.supervised {
                link::send_report(&report);
            }
            self.reported = Some((report, now));
        }
    }
}

/// Reports to everyone how the node is doing, until it ends, and then that its lease is about to.
fn attend(handle: &NodeHandle, wishes: &Receiver<Wish>, reload: impl Fn(), reporter: &mut Reporter) {
    while !handle.has_ended() {
        match wishes.recv_timeout(LOOK_EVERY) {
            Ok(Wish::Reload) => reload(),
            Ok(Wish::Stop) => {
                tracing::info!(
                    "stopping: a last checkpoint is taken; a second signal ends the process at once"
                );
                reporter.service.stopping(Instant::now());
                handle.stop(true);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
        }
        reporter.show(&handle.snapshot());
    }
    let ended_at = Instant::now();
    while !handle.is_gone_within(LOOK_EVERY) {
        reporter.service.ending(ended_at, handle.lease_end_wait(), Instant::now());
    }
}

/// A change of state at once, a change of its detail once a second.
fn is_news(reported: Option<&(Report, Instant)>, report: &Report, now: Instant) -> bool {
    reported.is_none_or(|(reported, at)| {
        reported.state != report.state
            || (reported.detail != report.detail && now.duration_since(*at) >= REPORT_EVERY)
    })
}

fn report(state: &NodeState) -> Report {
    let (state, detail) = match state {
        NodeState::Starting(wait) => ("starting", wait.words()),
        NodeState::Recovering(progress) if progress.stage == NO_ROOM => {
            ("recovering", format!("{NO_ROOM}: free some in its log root, and it goes on by itself"))
        }
        NodeState::Recovering(progress) => {
            let done = u128::from(progress.bytes_done) * 100;
            let percent = done.checked_div(u128::from(progress.bytes_total)).unwrap_or(0);
            ("recovering", format!("recovering {percent} % ({})", progress.stage))
        }
        NodeState::Serving => ("serving", "serving".to_owned()),
        NodeState::ReadOnly(_) => {
            ("read_only", "read-only: writes are refused until there is room".to_owned())
        }
        NodeState::Silent => ("silent", SILENT_WORDS.to_owned()),
        NodeState::Stopping => ("stopping", "stopping".to_owned()),
        NodeState::Failed(kind) => ("failed", failed_words(*kind).to_owned()),
        _ => ("unknown", "in an unknown state".to_owned()),
    };
    Report { state: state.to_owned(), detail, next: None }
}

fn failed_words(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::LogFailed => "failed: a write or sync of a log failed, and nothing retries it",
        FailureKind::LeaseLost => "failed: its lease was lost, because it was not renewed in time",
        FailureKind::RecoveryRefused => "failed: recovery refused its pair",
        FailureKind::JoinRefused => "failed: it does not fit its cluster",
        FailureKind::HistoryLost => "failed: its coordinator has another history than before",
        _ => "failed",
    }
}

fn conclude(ended: Result<Ended, NodeError>) -> anyhow::Result<Exit> {
    match ended.map_err(explain)? {
        Ended::Stopped => Ok(Exit::Ok),
        Ended::Failed(kind) => {
            let next = "everything acknowledged is in the log: start the node again, it recovers";
            Err(Failure::new(Exit::Error, format!("the node {}", failed_words(kind))).next(next).into())
        }
    }
}

/// A node's error with its exit code: 2 if another start would fail the same way until an operator changes
/// something, 7 if the logs cannot be proven complete.
fn explain(error: NodeError) -> Failure {
    let (exit, next) = match &error {
        NodeError::Cluster(ClusterError::Held { .. }) => {
            (Exit::Usage, Some("stop the other process, or give this node a data_dir of its own"))
        }
        NodeError::Fabric(error) => explain_fabric(error),
        NodeError::Cluster(ClusterError::Terms(difference)) => (Exit::Usage, Some(difference.next)),
        // What is mounted late is there at the next start.
        NodeError::LogRootBare { difference } => (Exit::Error, Some(difference.next)),
        NodeError::Cluster(ClusterError::NodeElsewhere { .. }) => (
            Exit::Usage,
            Some(
                "give this node a number of its own, or stop the other one and wait until its lease has ended",
            ),
        ),
        NodeError::Cluster(ClusterError::Node(NodeRefusal::Removed { node, .. })) => {
            let next = format!(
                "give this node another number, or permit this one again (`cell node undrain {}`, asking one \
                 that serves)",
                node.0
            );
            return Failure::new(Exit::Usage, with_causes(&error)).next(next);
        }
        NodeError::Cluster(ClusterError::Refused(refusal)) => explain_refusal(*refusal),
        NodeError::Memory(MemoryError::Geometry { .. }) => (
            Exit::Usage,
            Some("give a smaller slot_bytes or a larger node_region_bytes, which holds at least one slot"),
        ),
        NodeError::Cluster(ClusterError::Etcd(EtcdError::HistoryLost)) => {
            (Exit::Error, Some("start it again: it goes by the rows that are there now"))
        }
        NodeError::Cluster(ClusterError::Format { .. }) => {
            (Exit::Usage, Some("run the version of Cell that wrote the coordinator's table"))
        }
        // Their words say what to do.
        NodeError::Geometry { .. }
        | NodeError::LogRootUnseen { .. }
        | NodeError::Wal(WalError::FlushUnsure { .. })
        | NodeError::Cluster(ClusterError::Etcd(_)) => (Exit::Usage, None),
        NodeError::Cluster(ClusterError::LogWithoutRow { .. } | ClusterError::TableOlder { .. }) => (
            Exit::Usage,
            Some(
                "the logs and the coordinator are of two stores: bring back those that belong \
                 together; a new coordinator gets the table by `cell coordinator copy` before nodes start",
            ),
        ),
        NodeError::MemoryLimitSmall { .. } => {
            (Exit::Usage, Some("give a larger memory_limit_bytes, smaller regions or smaller buffers"))
        }
        NodeError::Recovery(error) => explain_recovery(error),
        _ => (Exit::Error, None),
    };
    let failure = Failure::new(exit, with_causes(&error));
    match next {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// Of a coordinator that says no until somebody has changed something.
fn explain_refusal(refusal: CoordinatorRefusal) -> (Exit, Option<&'static str>) {
    match refusal {
        CoordinatorRefusal::Token => (
            Exit::Usage,
            Some(
                "give the file of a token of role admin that the coordinator knows as coordinator_token_file",
            ),
        ),
        CoordinatorRefusal::Stranger { .. } => {
            (Exit::Usage, Some("run it as the user of the coordinator, or as root"))
        }
        CoordinatorRefusal::Version { .. } => (Exit::Usage, None), // its words say what to do
        _ => (Exit::Error, None),
    }
}

/// What may go well the next time is an error; what is damaged stays so until an operator inspects it.
fn explain_fabric(error: &FabricError) -> (Exit, Option<&'static str>) {
    if error.is_about_verbs() {
        return (Exit::Usage, Some("see the settings fabric_verbs and fabric_verbs_device"));
    }
    // The address may be there, or let go, at the next start.
    let exit = if matches!(error, FabricError::Listen { .. }) { Exit::Error } else { Exit::Usage };
    (exit, Some("give another listen_address"))
}

fn explain_recovery(error: &RecoveryError) -> (Exit, Option<&'static str>) {
    match error {
        RecoveryError::Memory { .. } => {
            (Exit::Error, Some("give a larger memory_limit_bytes, or make memory available"))
        }
        RecoveryError::Cluster(_)
        | RecoveryError::Log(
            WalError::Storage(_) | WalError::Poisoned { .. } | WalError::RingUnavailable { .. },
        )
        | RecoveryError::GivenUp
        | RecoveryError::Thread(_)
        | RecoveryError::Panicked => (Exit::Error, None),
        _ => (Exit::VerificationFailed, Some("`cell inspect log DIR` shows the logs frame by frame")),
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Epoch, PairId, RegionKind};
    use cell_wal::{Errno, LogId};

    use super::*;

    #[test]
    fn coordinator_place_is_of_each_provider() {
        let of = |more: &[(&str, &str)]| {
            let place = coordinator_place(&crate::settings::tests::settings(more));
            (place.provider, place.addresses.join(" "))
        };
        assert_eq!(of(&[]), ("embedded", String::new()));
        let address = |text| (COORDINATOR_ADDRESS, text);
        assert_eq!(of(&[address("/a/coordinator.socket")]), ("socket", "/a/coordinator.socket".to_owned()));
        assert_eq!(of(&[address("tls://cell-1:7200")]), ("tls", "tls://cell-1:7200".to_owned()));
        let members = ("etcd_endpoints", "http://a:1, http://b:1");
        assert_eq!(of(&[address("etcd"), members]), ("etcd", "http://a:1 http://b:1".to_owned()));
    }

    /// systemd starts nobody again who has ended with 2, and another start goes by the rows that are there.
    #[test]
    fn node_whose_etcd_was_restored_is_to_be_started_again() {
        let of = |error| explain(NodeError::Cluster(ClusterError::Etcd(error))).exit;
        assert_eq!(of(EtcdError::HistoryLost), Exit::Error);
        assert_eq!(of(EtcdError::Credentials), Exit::Usage);
    }

    /// It was started again and again, each time in vain.
    #[test]
    fn node_that_its_coordinator_refuses_until_somebody_changes_something_is_not_started_again() {
        let of = |error| explain(NodeError::Cluster(error));
        let version = of(ClusterError::Refused(CoordinatorRefusal::Version { asked: 3, known: 0 }));
        assert_eq!(version.exit, Exit::Usage);
        for words in ["speaks an earlier version of its protocol", "in version 3: ", "Upgrade it first"] {
            assert!(version.what.contains(words), "{}", version.what);
        }
        let stranger = of(ClusterError::Refused(CoordinatorRefusal::Stranger { user: 1, own: 2 }));
        let format = of(ClusterError::Format { found: 9, known: 2 });
        for refused in [stranger, format] {
            assert!(refused.exit == Exit::Usage && refused.next.is_some(), "{}", refused.what);
        }
    }

    /// At boot an address of the host may not be up yet.
    #[test]
    fn node_that_cannot_listen_is_to_be_started_again() {
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 7000));
        let source = std::io::ErrorKind::AddrNotAvailable.into();
        let failure = explain(NodeError::Fabric(FabricError::Listen { address, source }));
        assert_eq!(failure.exit, Exit::Error);
        let source = std::io::ErrorKind::AddrNotAvailable.into();
        assert_eq!(explain_web(cell_web::WebError::Bind { address, source }).exit, Exit::Error);
        assert_eq!(explain(NodeError::Fabric(FabricError::AddressInvalid)).exit, Exit::Usage);
    }

    /// Logs that could not be written were called damaged: systemd starts nobody again who has ended with 7.
    #[test]
    fn node_whose_new_logs_fail_is_to_be_started_again() {
        let log = LogId { pair: PairId(1), epoch: Epoch(1) };
        let segment = log.log(RegionKind::Node).segment(0);
        let failed = WalError::Poisoned { segment, offset: 0, errno: Errno::ESTALE };
        let failure = explain(NodeError::Recovery(RecoveryError::Log(failed)));
        assert_eq!(failure.exit, Exit::Error);
        let words = "the log root may have been unmounted";
        assert!(failure.what.contains(words), "{}", failure.what);
        let missing = WalError::SegmentMissing { segment };
        let failure = explain(NodeError::Recovery(RecoveryError::Log(missing)));
        assert_eq!(failure.exit, Exit::VerificationFailed);
    }

    /// It named the command without the number, which is refused.
    #[test]
    fn node_that_was_removed_is_refused_with_the_whole_command_that_permits_it() {
        let refusal = NodeRefusal::Removed { node: NodeId(4), who: "ann".to_owned() };
        let failure = explain(NodeError::Cluster(ClusterError::Node(refusal)));
        assert_eq!(failure.exit, Exit::Usage);
        let next = failure.next.unwrap();
        assert!(next.contains("`cell node undrain 4`"), "{next}");
    }
}
