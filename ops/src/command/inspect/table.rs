//! `cell inspect table`: the region table, and which nodes have joined.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::{
    ClusterError, Coordinator, CoordinatorRefusal, Embedded, JoinedNodes, JoinedRow, PairRow, Table,
};
use cell_terms::text::with_causes;
use clap::{ArgMatches, Args};
use serde_json::json;

use crate::args::Global;
use crate::coordinator_tls::NEXT_OF_CERTIFICATE;
use crate::exit::{Exit, Failure};
use crate::output::message::{self, print_json};
use crate::output::table;
use crate::process_settings::EMBEDDED;
use crate::provider::Provider;
use crate::{environment, settings};

/// How long a call may take; etcd takes a tenth of a second of a processor to log somebody in.
const CALL: Duration = Duration::from_secs(5);

/// Arguments of `cell inspect table`.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// The data folder of a cluster that does not run, whose coordinator is embedded
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Ask a running coordinator: the path of its socket (`cell dev`: coordinator.socket in its data folder),
    /// `tls://HOST:PORT`, or `etcd`. Without it and without DIR the settings say where the table is, as they
    /// do to `cell node`
    #[arg(long, value_name = "PLACE", conflicts_with = "dir")]
    coordinator: Option<String>,
}

/// Shows every pair's row, and the nodes that have joined.
pub(super) fn run(global: &Global, arguments: &TableArgs, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let coordinator = open(arguments, matches)?;
    let (pairs, revision) = Table::new(Arc::clone(&coordinator)).pairs().map_err(explain)?;
    let joined = JoinedNodes::new(coordinator).list().map_err(explain)?;
    if pairs.is_empty() {
        message::note("there are no pairs: the cluster has not started, or its table is elsewhere");
    }
    if global.json {
        let revision = serde_json::to_value(revision)?;
        print_json(json!({"revision": revision, "pairs": pairs, "joined": joined}))?;
    } else {
        let headings = ["pair", "state", "epoch", "owner", "node", "place", "checkpoint", "history"];
        let text = table::plain(&headings, &[2], pairs.iter().map(row).collect()) + &joined_line(&joined);
        io::stdout().lock().write_all(text.as_bytes())?;
    }
    Ok(Exit::Ok)
}

fn open(arguments: &TableArgs, matches: &ArgMatches) -> anyhow::Result<Arc<dyn Coordinator>> {
    if let Some(dir) = &arguments.dir {
        return open_folder(dir);
    }
    let (settings, warnings) = settings::resolve(matches, environment::variables())?;
    warnings.iter().for_each(|warning| message::warning(warning));
    let given = arguments.coordinator.as_deref();
    let place = given.unwrap_or_else(|| settings.text("coordinator_address"));
    if place == EMBEDDED {
        return open_folder(Path::new(settings.text("data_dir")));
    }
    let provider = Provider::open(place, &settings, CALL)?;
    if let Provider::Etcd(etcd) = &provider {
        etcd.check().map_err(explain)?; // members of two clusters would show either one's table
    }
    Ok(Arc::new(provider))
}

fn open_folder(dir: &Path) -> anyhow::Result<Arc<dyn Coordinator>> {
    let below = dir.join("coordinator");
    let folder = if below.is_dir() { below } else { dir.to_owned() };
    if !Embedded::is_in(&folder) {
        let failure = Failure::usage(format!("there is no table in {}", folder.display()));
        let next = "give the data folder of a cluster (./cell-data for `cell dev`), or with --coordinator \
                    where its coordinator is asked";
        return Err(failure.next(next).into());
    }
    Ok(Arc::new(Embedded::open(&folder).map_err(explain)?))
}

fn explain(error: ClusterError) -> anyhow::Error {
    let (exit, next) = match &error {
        ClusterError::Held { .. } => (
            Exit::Usage,
            Some("it is in use: ask its coordinator with --coordinator FOLDER/coordinator.socket"),
        ),
        ClusterError::Refused(CoordinatorRefusal::Stranger { .. }) => {
            (Exit::Usage, Some("ask as the user who runs the cluster, or as root"))
        }
        ClusterError::Refused(CoordinatorRefusal::Token) => {
            (Exit::Error, Some("give the file of a token of role admin as coordinator_token_file"))
        }
        error if error.is_about_certificate() => (Exit::Unreachable, Some(NEXT_OF_CERTIFICATE)),
        error if error.is_unanswered() => (
            Exit::Unreachable,
            Some(
                "is the coordinator running, and reached from here? of an embedded one that is not, give the \
                 data folder",
            ),
        ),
        // Their words say what to do.
        ClusterError::Etcd(_) => (Exit::Usage, None),
        _ => (Exit::Error, None),
    };
    let failure = Failure::new(exit, with_causes(&error));
    match next {
        Some(next) => failure.next(next).into(),
        None => failure.into(),
    }
}

/// `nodes that have joined: 0, 1, 2`; nothing of a table that an earlier version wrote.
fn joined_line(joined: &[JoinedRow]) -> String {
    let nodes: Vec<_> = joined.iter().map(|row| row.node.0.to_string()).collect();
    if nodes.is_empty() { String::new() } else { format!("nodes that have joined: {}\n", nodes.join(", ")) }
}

fn row(pair: &PairRow) -> Vec<String> {
    let none = || "-".to_owned();
    let history = pair.history.iter().map(|row| match row.cut {
        Some(cut) => format!("{} (cut {})", row.epoch.0, cut.0),
        None => row.epoch.0.to_string(),
    });
    vec![
        pair.pair.0.to_string(),
        serde_json::to_value(&pair.state).map_or_else(|_| none(), |state| state_word(&state)),
        pair.epoch.0.to_string(),
        pair.owner.map_or_else(none, |owner| owner.0.to_string()),
        pair.node.0.to_string(),
        pair.place.as_ref().map_or_else(none, |place| place.address.clone()),
        pair.checkpoint.as_ref().map_or_else(none, |checkpoint| format!("csn {}", checkpoint.csn.0)),
        history.collect::<Vec<_>>().join(", "),
    ]
}

/// States are words, or objects with one field whose name is the word.
fn state_word(state: &serde_json::Value) -> String {
    match state {
        serde_json::Value::String(word) => word.clone(),
        serde_json::Value::Object(fields) => fields.keys().next().cloned().unwrap_or_default(),
        other => other.to_string(),
    }
}
