//! `cell node`: one storage node, with its HTTP, until a signal.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use cell_cluster::{ClusterError, Coordinator, Embedded, Remote};
use cell_fabric::{FabricError, Partition};
use cell_node::{Ended, FailureKind, NodeError, NodeHandle, NodeOptions, NodeState};
use cell_recovery::RecoveryError;
use cell_terms::NodeId;
use cell_terms::setting::{Applies, Bounds, Setting, Settings};
use cell_wal::WalError;
use cell_web::WebError;
use clap::{ArgMatches, Args};

use crate::cli::Global;
use crate::command::dev::CLUSTER_NODES;
use crate::dev::filtered::Filtered;
use crate::dev::link::{self, Report, Word};
use crate::exit::{Exit, Failure};
use crate::output::message;
use crate::service::Service;
use crate::{logging, settings, signal};

/// The coordinator of a cluster of one.
const EMBEDDED: &str = "embedded";
/// How often the node's state is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often its supervisor is told how far a recovery is.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Settings of the process itself; those of the store are declared by the crates that use them.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "node_id",
        meaning: "The node's number in its cluster. Two living nodes must not share one.",
        default: "0",
        bounds: Bounds::Integer { min: 0, max: 63 },
        applies: Applies::Restart,
    },
    Setting {
        name: "listen_address",
        meaning: "Where clients and peers connect (the fabric); loopback only, so far.",
        default: "127.0.0.1:7000",
        bounds: Bounds::Text { max: 256 },
        applies: Applies::Restart,
    },
    Setting {
        name: "advertise_address",
        meaning: "Where others are told to connect to the fabric, IP:PORT, where that is not listen_address: \
                  behind a forwarded port, say.",
        default: "",
        bounds: Bounds::Text { max: 256 },
        applies: Applies::Restart,
    },
    Setting {
        name: "http_address",
        meaning: "Where health checks, metrics and status are served over HTTP; loopback only, so far.",
        default: "127.0.0.1:7080",
        bounds: Bounds::Text { max: 256 },
        applies: Applies::Restart,
    },
    Setting {
        name: "advertise_http_address",
        meaning: "Where others are told to find HTTP, IP:PORT, where that is not http_address.",
        default: "",
        bounds: Bounds::Text { max: 256 },
        applies: Applies::Restart,
    },
    Setting {
        name: "coordinator_address",
        meaning: "Where the coordinator of the cluster listens; `embedded` keeps one in this process, in \
                  `data_dir`, for a cluster of one node.",
        default: EMBEDDED,
        bounds: Bounds::Text { max: 256 },
        applies: Applies::Restart,
    },
    Setting {
        name: "data_dir",
        meaning: "The folder of everything that must survive: logs and checkpoints in `log`, which nodes of one \
                  machine share, an embedded coordinator's table in `coordinator`; a node's lock in `node-N`.",
        default: "./cell-data",
        bounds: Bounds::Text { max: 4096 },
        applies: Applies::Restart,
    },
    Setting {
        name: "tracing_filter",
        meaning: "What is reported on stderr: a level, or directives such as `info,cell_node=debug`.",
        default: "info",
        bounds: Bounds::Text { max: 1024 },
        applies: Applies::Restart,
    },
];

/// Arguments of `cell node`.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// A supervisor holds the other ends of stdin and stdout
    #[arg(long, hide = true)]
    supervised: bool,
    /// The supervisor has cut this node off
    #[arg(long, hide = true, requires = "supervised")]
    partitioned: bool,
}

/// Runs until a signal.
pub(crate) fn run(_global: &Global, arguments: &NodeArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let (mut settings, warnings) = settings::resolve(matches, std::env::vars_os())?;
    if arguments.supervised {
        // The supervisor is `cell dev`; it has warned already.
        let nodes = settings.integer(CLUSTER_NODES);
        settings::soften_for_development(&mut settings, nodes);
    } else {
        warnings.iter().for_each(|warning| message::warning(warning));
    }
    logging::start(settings.text("tracing_filter"), None)?;
    let (http, listen) = (address(&settings, "http_address")?, address(&settings, "listen_address")?);
    cell_web::HttpServer::check_address(http).map_err(explain_web)?;
    let partition = Partition::default();
    partition.set(arguments.partitioned);
    let words = hear(arguments.supervised, &partition)?;
    let handle = start(&settings, listen, partition)?;
    let watch = handle.watch();
    let web = cell_web::HttpServer::start(http, Arc::new(move || watch.snapshot()));
    let web = web.map_err(explain_web)?;
    attend(&handle, &words, arguments.supervised);
    let ended = handle.wait();
    web.shutdown();
    conclude(ended)
}

fn explain_web(error: WebError) -> Failure {
    Failure::usage(format!("{:#}", anyhow::Error::new(error))).next("give another http_address")
}

fn start(settings: &Settings, listen: SocketAddr, partition: Partition) -> anyhow::Result<NodeHandle> {
    if !listen.ip().is_loopback() {
        // The fabric refuses it too, but only after the data folder is made.
        return Err(explain(NodeError::Fabric(FabricError::NotLoopback { address: listen })).into());
    }
    let data = Path::new(settings.text("data_dir"));
    let id = u32::try_from(settings.integer("node_id")).unwrap_or(u32::MAX);
    let options = NodeOptions {
        node: NodeId(id),
        folder: data.join("log"),
        home: data.join(format!("node-{id}")),
        listen,
        advertised: advertised(settings, "advertise_address")?,
        http_address: advertised(settings, "advertise_http_address")?
            .map_or_else(|| settings.text("http_address").to_owned(), |address| address.to_string()),
        partition: partition.clone(),
        settings: settings.clone(),
    };
    let coordinator = coordinator(settings, data, partition)?;
    cell_node::start(options, coordinator).map_err(|error| explain(error).into())
}

fn coordinator(
    settings: &Settings,
    data: &Path,
    partition: Partition,
) -> anyhow::Result<Arc<dyn Coordinator>> {
    if settings.text("coordinator_address") == EMBEDDED {
        let embedded = Embedded::open(&data.join("coordinator")).map_err(|error| explain(error.into()))?;
        return Ok(Arc::new(embedded));
    }
    let deadline = Duration::from_millis(settings.integer("coordinator_deadline_ms"));
    let remote = Remote::new(address(settings, "coordinator_address")?, deadline);
    Ok(Arc::new(Filtered::new(remote, partition, deadline)))
}

fn address(settings: &Settings, name: &str) -> anyhow::Result<SocketAddr> {
    let text = settings.text(name);
    let parsed = text.parse();
    parsed.map_err(|_| Failure::usage(format!("`{name}` cannot be `{text}`: it takes IP:PORT")).into())
}

/// An address that is told in place of the one that is listened on; none if it is not set.
fn advertised(settings: &Settings, name: &str) -> anyhow::Result<Option<SocketAddr>> {
    if settings.text(name).is_empty() {
        return Ok(None);
    }
    let told = address(settings, name)?;
    if told.port() == 0 || told.ip().is_unspecified() {
        let what = format!("`{name}` cannot be `{told}`: nobody can connect to it");
        return Err(Failure::usage(what).next("give the address and port that others reach").into());
    }
    Ok(Some(told))
}

/// Signals, and the supervisor's words if there is one.
fn hear(supervised: bool, partition: &Partition) -> anyhow::Result<Receiver<Word>> {
    let (sender, words) = mpsc::channel();
    if supervised {
        let (sender, partition) = (sender.clone(), partition.clone());
        link::listen(move |word| match word {
            Word::Gone => {
                // The coordinator went with the supervisor: there is no lease to be had, and nothing to wait
                // for.
                message::warning("the supervisor is gone; exiting");
                std::process::exit(i32::from(Exit::Error as u8));
            }
            Word::Partition(on) => partition.set(on),
            Word::Stop => sender.send(word).unwrap_or_default(),
        })?;
    }
    signal::on_signals(move || sender.send(Word::Stop).unwrap_or_default(), || {})?;
    Ok(words)
}

/// Tells everyone how the node is doing, until it ends.
fn attend(handle: &NodeHandle, words: &Receiver<Word>, supervised: bool) {
    let mut service = Service::new(Instant::now());
    let mut told: Option<(Report, Instant)> = None;
    while !handle.has_ended() {
        match words.recv_timeout(LOOK_EVERY) {
            Ok(_) => {
                tracing::info!(
                    "stopping: a last checkpoint is taken; a second signal ends the process at once"
                );
                service.stopping(Instant::now());
                handle.stop(true);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
        }
        let (snapshot, now) = (handle.snapshot(), Instant::now());
        let report = report(&snapshot.state);
        service.observe(&snapshot, &report.detail, now);
        if is_news(told.as_ref(), &report, now) {
            if supervised {
                link::tell(&report);
            }
            told = Some((report, now));
        }
    }
}

/// A change of state at once, a change of its detail once a second.
fn is_news(told: Option<&(Report, Instant)>, report: &Report, now: Instant) -> bool {
    told.is_none_or(|(told, at)| {
        told.state != report.state || (told.detail != report.detail && now.duration_since(*at) >= TELL_EVERY)
    })
}

fn report(state: &NodeState) -> Report {
    let (state, detail) = match state {
        NodeState::Starting => ("starting", "starting".to_owned()),
        NodeState::Recovering(progress) => {
            let done = u128::from(progress.bytes_done) * 100;
            let percent = done.checked_div(u128::from(progress.bytes_total)).unwrap_or(0);
            ("recovering", format!("recovering {percent} % ({})", progress.stage))
        }
        NodeState::Serving => ("serving", "serving".to_owned()),
        NodeState::ReadOnly(_) => {
            ("read_only", "read-only: writes are refused until there is room".to_owned())
        }
        NodeState::Stopping => ("stopping", "stopping".to_owned()),
        NodeState::Failed(kind) => ("failed", failed_words(*kind).to_owned()),
        _ => ("unknown", "in an unknown state".to_owned()),
    };
    Report { state: state.to_owned(), detail }
}

fn failed_words(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::LogFailed => "failed: a write or sync of a log failed, and nothing retries it",
        FailureKind::LeaseLost => "failed: it could not renew its lease in time",
        FailureKind::RecoveryRefused => "failed: recovery refused its pair",
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

/// A node's error with its exit code: 2 if another start would fail the same way until a person changes
/// something, 7 if the logs cannot be proven complete.
fn explain(error: NodeError) -> Failure {
    let (exit, next) = match &error {
        NodeError::Cluster(ClusterError::Held { .. }) => {
            (Exit::Usage, Some("stop the other process, or give this node a data_dir of its own"))
        }
        NodeError::Fabric(_) => (Exit::Usage, Some("give another listen_address")),
        NodeError::Geometry { .. } => (Exit::Usage, None),
        NodeError::MemoryLimitSmall { .. } => {
            (Exit::Usage, Some("give a larger memory_limit_bytes, smaller regions or smaller buffers"))
        }
        NodeError::Recovery(error) => explain_recovery(error),
        _ => (Exit::Error, None),
    };
    let failure = Failure::new(exit, format!("{:#}", anyhow::Error::new(error)));
    match next {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// What may go well the next time is an error; what is damaged stays so until a person looks.
fn explain_recovery(error: &RecoveryError) -> (Exit, Option<&'static str>) {
    match error {
        RecoveryError::Memory { .. } => {
            (Exit::Error, Some("give a larger memory_limit_bytes, or make memory available"))
        }
        RecoveryError::Cluster(_)
        | RecoveryError::Log(WalError::Storage(_) | WalError::RingUnavailable { .. })
        | RecoveryError::GivenUp
        | RecoveryError::Thread(_)
        | RecoveryError::Panicked => (Exit::Error, None),
        _ => (Exit::VerificationFailed, Some("`cell inspect log DIR` shows the logs frame by frame")),
    }
}
