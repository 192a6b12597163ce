//! `GET /api/v1/tuning`: every setting with its value for the cluster, and which nodes have the values of
//! which revision in force; what settings take; who changed what.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use cell_cluster::{TunedSetting, Tuning, TuningChange, TuningRow};
use cell_node::NodeSnapshot;
use cell_settings::{Registry, SettingsStore};
use cell_terms::setting::Source;
use serde::{Deserialize, Serialize};

use crate::api::document::{Document, Scope};
use crate::api::params::Params;
use crate::api::setting_row::{SettingRow, rows, tuned_to};
use crate::peers::{Gathered, NodePart};
use crate::problem::Problem;
use crate::shared::Shared;

/// How long the coordinator may take to return the values, before those are shown that were seen last.
const READ_PATIENCE: Duration = Duration::from_millis(500);
/// Changes that a document has at most: a page of those that are kept.
pub(crate) const HISTORY_MAX: u64 = 200;

/// Every setting.
#[derive(Debug, Serialize)]
struct TuningBody {
    revision: String,
    settings: Vec<SettingRow>,
    nodes: Vec<NodeRevision>,
}

/// What a node has in force.
#[derive(Debug, PartialEq, Serialize)]
struct NodeRevision {
    node: u32,
    revision: String,
    in_force: bool,
}

/// A node's part: what it has in force, as it sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RevisionPart {
    /// A decimal number.
    revision: String,
    /// Whether all values of the revision are.
    in_force: bool,
}

/// The changes, the newest first.
#[derive(Debug, Serialize)]
struct History {
    changes: Vec<HistoryRow>,
    /// What `before` is to be for the next page; none: there are no older ones.
    next: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct HistoryRow {
    revision: String,
    at_unix_ms: u64,
    who: String,
    reason: Option<String>,
    changes: Vec<TunedSetting>,
    reverted_by: Option<String>,
    expires_unix_ms: Option<u64>,
}

/// The node's settings, which every route here needs.
pub(crate) fn settings(shared: &Shared) -> Result<(Arc<SettingsStore>, Registry), Problem> {
    match (&shared.sources.settings, shared.sources.registry) {
        (Some(store), Some(registry)) => Ok((Arc::clone(store), registry)),
        _ => Err(Problem::unavailable("This node reports nothing of its settings.")),
    }
}

/// The header that names a revision.
pub(crate) fn etag(revision: u64) -> [(HeaderName, String); 1] {
    [(header::ETAG, format!("\"{revision}\""))]
}

/// `GET /api/v1/tuning`.
pub(crate) async fn get_tuning(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    params.end()?;
    if scope == Scope::Node {
        let (store, _) = settings(&shared)?;
        let (snapshot, age) = shared.look();
        return Ok(axum::Json(Document::of_node(part(&snapshot, &store), age)).into_response());
    }
    let (revision, document) = whole(&shared).await?;
    Ok((etag(revision), axum::Json(document)).into_response())
}

/// The document as JSON, for all who follow it: it is made once a second.
pub(crate) async fn text(shared: &Shared) -> Result<Bytes, Problem> {
    let cached = shared.cached_response("/api/v1/tuning");
    let mut cached = cached.lock().await;
    if let Some(text) = cached.get() {
        return Ok(text);
    }
    let (_, document) = whole(shared).await?;
    let text = serde_json::to_vec(&document).map(Bytes::from).map_err(|error| {
        tracing::error!(%error, "the tuning could not be written");
        Problem::internal()
    })?;
    cached.replace(text.clone());
    Ok(text)
}

/// The document and its revision.
async fn whole(shared: &Shared) -> Result<(u64, Document<TuningBody>), Problem> {
    let (store, registry) = settings(shared)?;
    let (snapshot, age) = shared.look();
    let own = part(&snapshot, &store);
    let gather = shared.peers.gather(&snapshot, own, "/api/v1/tuning?scope=node");
    let (row, gathered) = tokio::join!(newest(shared, &snapshot), gather);
    let Gathered { parts, missing } = gathered;
    let body = TuningBody {
        revision: row.revision.to_string(),
        settings: rows(registry, &store.given(), &row),
        nodes: parts.into_iter().map(|part| in_force(part, row.revision)).collect(),
    };
    Ok((row.revision, Document::of_cluster(body, age, missing)))
}

/// The values that the cluster is tuned to; where the coordinator does not return them, the newest that this
/// node has seen.
async fn newest(shared: &Shared, snapshot: &NodeSnapshot) -> TuningRow {
    let read = shared.coordination.call(READ_PATIENCE, |coordinator| Tuning::new(coordinator).current());
    match read.await {
        Ok(row) => shared.newest_tuning(&row),
        Err(error) => {
            tracing::debug!(%error, "the tuning that was seen last is shown");
            shared.newest_tuning(&snapshot.cluster.tuning)
        }
    }
}

fn part(snapshot: &NodeSnapshot, store: &SettingsStore) -> RevisionPart {
    let row = &snapshot.cluster.tuning;
    let (now, wanted) = (store.current().0, tuned_to(&store.given(), row));
    let is_tuned = |name: &str| {
        now.get(name).is_some_and(|(_, source)| source == Source::Admin) && now.get(name) == wanted.get(name)
    };
    let others = now.declarations().filter(|setting| !row.values.contains_key(setting.name));
    let in_force = row.values.keys().all(|name| is_tuned(name))
        && others.map(|setting| setting.name).all(|name| now.get(name) == wanted.get(name));
    RevisionPart { revision: row.revision.to_string(), in_force }
}

fn in_force(NodePart { node, part }: NodePart<RevisionPart>, revision: u64) -> NodeRevision {
    let has = part.revision.parse().is_ok_and(|has: u64| has >= revision);
    NodeRevision { node: node.0, in_force: part.in_force && has, revision: part.revision }
}

/// `GET /api/v1/tuning/schema`: what each setting takes.
pub(crate) async fn get_schema(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let (_, registry) = settings(&shared)?;
    Ok(axum::Json(registry.json()).into_response())
}

/// `GET /api/v1/tuning/history`. A parameter `seen` is taken and means nothing: pages ask anew by it.
pub(crate) async fn get_history(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let limit = params.integer("limit", 1..=HISTORY_MAX, 50)?;
    let before = match params.text("before") {
        Some(text) => Some(Params::parse_integer("before", &text, 1..=u64::MAX)?),
        None => None,
    };
    let _ = params.text("seen");
    params.end()?;
    // One more than is shown: whether there is a next page.
    let read = move |coordinator| Tuning::new(coordinator).changes(before, limit + 1);
    let mut changes = shared.coordination.call(READ_PATIENCE, read).await.map_err(|error| {
        Problem::unavailable(format!("The history is the coordinator's, and is not known now: {error}."))
            .next("try again when the coordinator answers")
    })?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_older = changes.len() > limit;
    changes.truncate(limit);
    let next = changes.last().filter(|_| has_older).map(|change| change.revision.to_string());
    let changes = changes.into_iter().map(HistoryRow::from).collect();
    Ok(axum::Json(Document::of_node(History { changes, next }, shared.look().1)).into_response())
}

impl From<TuningChange> for HistoryRow {
    fn from(change: TuningChange) -> HistoryRow {
        HistoryRow {
            revision: change.revision.to_string(),
            at_unix_ms: change.at_unix_ms,
            who: change.who,
            reason: change.reason,
            changes: change.settings,
            reverted_by: change.reverted_by.map(|revision| revision.to_string()),
            expires_unix_ms: change.expires_unix_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::NodeId;

    use super::*;

    #[test]
    fn in_force_wants_the_newest_revision_whole() {
        let node = |revision: &str, in_force| NodePart {
            node: NodeId(1),
            part: RevisionPart { revision: revision.to_owned(), in_force },
        };
        let of = |part| super::in_force(part, 10).in_force;
        assert!(of(node("10", true)) && of(node("11", true)));
        assert!(!of(node("9", true)) && !of(node("10", false)) && !of(node("x", true)));
    }
}
