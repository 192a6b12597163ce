//! `cell coordinator`: the coordinator of a cluster as a process of its own, and its table from one place to
//! another.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRefusal, CoordinatorServer, Embedded, copy_table, members_alive,
};
use cell_durable::{SystemSyncer, create_folders};
use cell_fabric::{TLS_CERTIFICATE_FILE, TLS_KEY_FILE, TLS_TRUST_FILE};
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_web::TOKENS_FILE;
use clap::{ArgMatches, Args, Subcommand};
use serde_json::json;

use crate::args::Global;
use crate::coordinator_tls::Door;
use crate::dev::plan::COORDINATOR_SOCKET;
use crate::exit::{Exit, Failure};
use crate::folders::Folders;
use crate::output::message::{self, print_json};
use crate::process_settings::{COORDINATOR_LISTEN, ETCD, keep_files_private, raise_open_files};
use crate::provider::Provider;
use crate::signal::{self, Hangup};
use crate::{coordinator_tls, environment, logging, settings};

/// The settings by which the process goes.
pub(crate) const OWN: [&str; 7] = [
    "data_dir",
    "tracing_filter",
    COORDINATOR_LISTEN,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    TLS_TRUST_FILE,
    TOKENS_FILE,
];
/// How often it is looked whether certificates were replaced.
const LOOK_AT_FILES: Duration = Duration::from_secs(1);
/// How long a call of a copy may take.
const CALL: Duration = Duration::from_secs(10);
/// How long is waited beyond the leases that are left.
const BEYOND_LEASES: Duration = Duration::from_secs(5);
/// How often it is looked whether a lease has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Arguments of `cell coordinator`.
#[derive(Debug, Args)]
pub(crate) struct CoordinatorArgs {
    #[command(subcommand)]
    what: Option<CoordinatorCommand>,
}

/// What else to do about coordinators.
#[derive(Debug, Subcommand)]
enum CoordinatorCommand {
    /// Copy the whole table from one coordinator to another that has none, while no node runs
    Copy(CopyArgs),
}

/// Arguments of `cell coordinator copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Where the table is: a data folder that is not in use, the path of a coordinator's socket,
    /// `tls://HOST:PORT`, or `etcd`
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Where it is to be, likewise
    #[arg(long, value_name = "PLACE")]
    to: String,
}

/// Runs a coordinator until a signal, or does what else is wanted.
pub(crate) fn run(
    global: &Global,
    arguments: &CoordinatorArgs,
    matches: &ArgMatches,
) -> anyhow::Result<Exit> {
    match &arguments.what {
        None => serve(matches),
        Some(CoordinatorCommand::Copy(places)) => {
            let own = matches.subcommand().context("clap has taken a command")?.1;
            copy(global, places, own)
        }
    }
}

fn serve(matches: &ArgMatches) -> anyhow::Result<Exit> {
    keep_files_private();
    raise_open_files(); // each node has some connections
    let (settings, warnings) = settings::resolve(matches, environment::variables())?;
    warnings.iter().for_each(|warning| message::warning(warning));
    logging::start(settings.text(logging::FILTER), None)?;
    let folder = PathBuf::from(settings.text("data_dir"));
    create_folders(&SystemSyncer, &folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let folder = fs::canonicalize(&folder)?;
    let table = Folders::within(&folder).coordinator();
    let coordinator = Embedded::open(&table).map_err(|error| explain(&error))?;
    let coordinator = Arc::new(coordinator.looking_at_holders(cell_fabric::peer_process));
    let socket = folder.join(COORDINATOR_SOCKET);
    let peer_user = |stream: &UnixStream| cell_fabric::peer_user(stream);
    let server = CoordinatorServer::start(coordinator.clone(), &socket, peer_user);
    let server = server.map_err(|error| explain(&error))?;
    let door = Door::open(&settings, coordinator.clone())?;
    let (sender, events) = mpsc::channel();
    let (failed, hangup) = (sender.clone(), sender.clone());
    coordinator.on_stop(move |error| failed.send(Event::Failed(with_causes(error))).unwrap_or_default());
    signal::on_hangup(move || hangup.send(Event::Reload).unwrap_or_default())?;
    signal::on_signals(Hangup::Apart, move || sender.send(Event::Stop).unwrap_or_default())?;
    message::note(&format!("nodes of this machine: coordinator_address = {}", socket.display()));
    if let Some(door) = &door {
        message::note(&format!("it listens for nodes of other machines at {}", door.place()));
    }
    let why = attend(&events, door.as_ref());
    drop((server, door));
    match why {
        None => Ok(Exit::Ok),
        Some(why) => Err(Failure::new(Exit::Error, format!("the coordinator has stopped: {why}"))
            .next("mend the disk under data_dir, then start it again: what was acknowledged is kept")
            .into()),
    }
}

/// What happens to a coordinator.
enum Event {
    /// It is to stop.
    Stop,
    /// It has stopped, for this reason.
    Failed(String),
    /// Tokens and certificates are to be read again.
    Reload,
}

/// Sees to what happens until the end; why it has failed, if that is the end.
fn attend(events: &Receiver<Event>, door: Option<&Door>) -> Option<String> {
    loop {
        match (events.recv_timeout(LOOK_AT_FILES), door) {
            (Ok(Event::Failed(why)), _) => return Some(why),
            (Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected), _) => return None,
            (Ok(Event::Reload), Some(door)) => door.reload(),
            (Err(RecvTimeoutError::Timeout), Some(door)) => door.look_at_certificates(),
            (Ok(Event::Reload) | Err(RecvTimeoutError::Timeout), None) => {}
        }
    }
}

fn copy(global: &Global, places: &CopyArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    keep_files_private();
    let (settings, warnings) = settings::resolve(matches, environment::variables())?;
    warnings.iter().for_each(|warning| message::warning(warning));
    if places.from == places.to {
        return Err(Failure::usage("--from and --to are the same place").into());
    }
    let (from, to) = (open(&places.from, &settings, true)?, open(&places.to, &settings, false)?);
    wait_for_leases(&*from).map_err(|error| explain(&error))?;
    let rows = copy_table(&*from, &*to).map_err(|error| explain(&error))?;
    if global.json {
        print_json(json!({"rows": rows, "from": places.from, "to": places.to}))?;
    } else {
        message::note(&format!(
            "{rows} rows copied; start the nodes with the new coordinator_address, all of them"
        ));
    }
    Ok(Exit::Ok)
}

/// A coordinator by its place. Of a folder that is to be read there is a table.
fn open(place: &str, settings: &Settings, is_source: bool) -> anyhow::Result<Arc<dyn Coordinator>> {
    let path = Path::new(place);
    let is_socket = || fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if place == ETCD || coordinator_tls::address(place)?.is_some() || is_socket() {
        let provider = Provider::open(place, settings, CALL)?;
        if let Provider::Etcd(etcd) = &provider {
            etcd.check().map_err(|error| explain(&error))?;
            // Leases of nodes that were killed end only if somebody watches them.
            etcd.watch_leases().map_err(|error| explain(&error))?;
        }
        return Ok(Arc::new(provider));
    }
    let folder = Folders::within(path).coordinator();
    if is_source && !Embedded::is_in(&folder) {
        let failure = Failure::usage(format!("there is no table in {}", folder.display()));
        return Err(failure
            .next("give the data folder of a cluster, a coordinator's socket, tls://HOST:PORT, or `etcd`")
            .into());
    }
    Ok(Arc::new(Embedded::open(&folder).map_err(|error| explain(&error))?))
}

/// A node that was killed lives for as long as its lease.
fn wait_for_leases(from: &dyn Coordinator) -> Result<(), ClusterError> {
    let Some((alive, longest_ns)) = members_alive(from)? else { return Ok(()) };
    let until = Instant::now() + Duration::from_nanos(longest_ns) + BEYOND_LEASES;
    message::note(&leases_words(alive.len()));
    while Instant::now() < until && members_alive(from)?.is_some() {
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn leases_words(count: usize) -> String {
    match count {
        1 => "the lease of 1 node has not ended yet".to_owned(),
        count => format!("the leases of {count} nodes have not ended yet"),
    }
}

fn explain(error: &ClusterError) -> Failure {
    let words = with_causes(error);
    match error {
        ClusterError::Held { .. } => {
            Failure::usage(words).next("stop the other process, or give another folder")
        }
        ClusterError::Listen { .. } => {
            Failure::usage(words).next("give a data_dir on a file system that has unix sockets")
        }
        ClusterError::Format { found: 0, .. } => Failure::usage("a copy of the table was not finished there")
            .next("remove that table (its folder, or its prefix in etcd) and copy it again"),
        ClusterError::CopyTargetUsed { .. } => Failure::usage(words).next(
            "copy to a place without a table; one that nobody needs is removed by `rm -r DIR/coordinator` of \
             the data folder while its coordinator does not run, or by `etcdctl del --prefix PREFIX/` \
             (etcd_prefix)",
        ),
        ClusterError::CopyRefused { .. } => {
            Failure::usage(words).next("stop all nodes, and copy to a place without a table")
        }
        ClusterError::Etcd(_) => Failure::usage(words),
        ClusterError::Format { .. } => {
            Failure::usage(words).next("run the version of Cell that wrote that table")
        }
        ClusterError::Refused(CoordinatorRefusal::Token) => {
            let next = "give the file of a token of role admin as coordinator_token_file";
            Failure::new(Exit::Error, words).next(next)
        }
        error if error.is_about_certificate() => {
            Failure::new(Exit::Unreachable, words).next(coordinator_tls::NEXT_OF_CERTIFICATE)
        }
        error if error.is_unanswered() => Failure::new(Exit::Unreachable, words),
        _ => Failure::new(Exit::Error, words),
    }
}
