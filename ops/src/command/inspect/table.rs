//! `cell inspect table`: the region table.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::{ClusterError, Coordinator, CoordinatorRefusal, Embedded, PairRow, Remote, Table};
use cell_terms::text::with_causes;
use clap::Args;
use serde_json::json;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::message::print_json;
use crate::output::table;

/// Arguments of `cell inspect table`.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// The data folder of a cluster that does not run
    #[arg(value_name = "DIR", required_unless_present = "coordinator")]
    dir: Option<PathBuf>,
    /// Ask a running coordinator at its socket instead (`cell dev`: coordinator.socket in its data folder)
    #[arg(long, value_name = "SOCKET", conflicts_with = "dir")]
    coordinator: Option<PathBuf>,
}

/// Shows every pair's row.
pub(super) fn run(global: &Global, arguments: &TableArgs) -> anyhow::Result<Exit> {
    let coordinator = open(arguments)?;
    let (pairs, revision) = Table::new(coordinator).pairs().map_err(explain)?;
    if global.json {
        print_json(json!({"revision": serde_json::to_value(revision)?, "pairs": pairs}))?;
    } else {
        let headings = ["pair", "state", "epoch", "owner", "node", "place", "checkpoint", "history"];
        let text = table::plain(&headings, &[2], pairs.iter().map(row).collect());
        io::stdout().lock().write_all(text.as_bytes())?;
    }
    Ok(Exit::Ok)
}

fn open(arguments: &TableArgs) -> anyhow::Result<Arc<dyn Coordinator>> {
    if let Some(path) = &arguments.coordinator {
        return Ok(Arc::new(Remote::new(path, Duration::from_secs(2))));
    }
    let dir = arguments.dir.clone().unwrap_or_default();
    let below = dir.join("coordinator");
    let folder = if below.is_dir() { below } else { dir };
    if !Embedded::is_in(&folder) {
        let failure = Failure::usage(format!("there is no table in {}", folder.display()));
        return Err(failure.next("give the data folder of a cluster (./cell-data for `cell dev`)").into());
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
        ClusterError::NotReached(_) | ClusterError::OutcomeUnknown(_) => {
            (Exit::Unreachable, Some("is the cluster running? if not, give its data folder"))
        }
        _ => (Exit::Error, None),
    };
    let failure = Failure::new(exit, with_causes(&error));
    match next {
        Some(next) => failure.next(next).into(),
        None => failure.into(),
    }
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
