//! Documents that are made of the parts of all nodes. Whoever is asked gathers the parts; for a second the
//! document is kept, so that many who look cost no more than one.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cell_node::NodeSnapshot;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::cluster;
use crate::api::document::{Document, Scope};
use crate::api::params::Params;
use crate::as_of::AsOf;
use crate::peers::{Gathered, MissingPeer, NodePart};
use crate::problem::Problem;
use crate::shared::Shared;

/// A document of the whole cluster.
pub(crate) trait ClusterDocument: 'static {
    /// What each node says of itself.
    type Part: Serialize + DeserializeOwned + Send + 'static;
    /// What all say together.
    type Body: Serialize;
    /// Its route.
    const PATH: &'static str;
    /// Whether it has a list of rows that may grow long.
    const HAS_ROWS: bool = false;
    /// Whether it says itself that the node has not seen its cluster yet.
    const REPORTS_UNSEEN: bool = false;

    /// This node's part.
    fn part(shared: &Shared, snapshot: &NodeSnapshot) -> Self::Part;

    /// All parts together, as the node that was asked sees them.
    fn body(
        shared: &Shared,
        snapshot: &NodeSnapshot,
        parts: Vec<NodePart<Self::Part>>,
        missing: &[MissingPeer],
    ) -> Self::Body;

    /// Leaves at most so many rows; gives how many are left.
    fn limit(_body: &mut Self::Body, _rows: usize) -> usize {
        0
    }
}

/// Rows of a list, if nothing is said, and at most.
const DEFAULT_ROWS: usize = 512;
const ROWS_MAX: u64 = 65_536;
/// What a document takes at most as JSON, unless more rows are asked for: with long rows there are fewer.
pub(crate) const JSON_BYTES_MAX: usize = 240 << 10;

/// How much of a list is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Shown {
    /// Rows that there are.
    total: usize,
    /// Whether some of them are left out.
    truncated: bool,
}

impl Shown {
    /// Leaves at most so many of the rows; gives how many are left.
    pub(crate) fn limit<T>(&mut self, rows: &mut Vec<T>, most: usize) -> usize {
        let before = rows.len();
        rows.truncate(most);
        self.note(before, rows.len())
    }

    /// Takes note that of so many rows so many are left, and gives those.
    pub(crate) fn note(&mut self, before: usize, left: usize) -> usize {
        self.total = self.total.max(before);
        self.truncated = left < self.total;
        left
    }
}

/// How many rows are wanted.
pub(crate) fn rows_wanted(params: &mut Params) -> Result<usize, Problem> {
    let rows = params.integer("limit", 1..=ROWS_MAX, DEFAULT_ROWS as u64)?;
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}

/// How many bytes the rows may have, if so many of them are wanted.
pub(crate) fn bytes_permitted(rows: usize) -> usize {
    if rows > DEFAULT_ROWS { usize::MAX } else { JSON_BYTES_MAX }
}

/// How many of the first rows fit into so many bytes of JSON.
pub(crate) fn fitting<T: Serialize>(rows: &[T], bytes_max: usize) -> usize {
    let up_to = |sum: &mut usize, row: &T| {
        let bytes = serde_json::to_string(row).map_or(0, |text| text.len() + 1);
        *sum = sum.saturating_add(bytes);
        Some(*sum)
    };
    rows.iter().scan(0, up_to).take_while(|bytes| *bytes <= bytes_max).count()
}

/// `GET` of a document: `scope=node` for the part of this node alone.
pub(crate) async fn get<D: ClusterDocument>(
    State(shared): State<Arc<Shared>>,
    as_of: AsOf,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    let rows = if D::HAS_ROWS { rows_wanted(&mut params)? } else { DEFAULT_ROWS };
    params.end()?;
    if scope == Scope::Node {
        shared.see(as_of).await;
        let (snapshot, age) = shared.look();
        return Ok(axum::Json(Document::of_node(D::part(&shared, &snapshot), age)).into_response());
    }
    let text = match (as_of, rows) {
        (AsOf::Kept, DEFAULT_ROWS) => text::<D>(&shared).await?,
        (AsOf::Kept, rows) => make::<D>(&shared, rows, None).await?,
        (as_of, rows) => make_anew::<D>(&shared, rows, as_of).await?,
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The document with at most so many rows once the nodes have seen what they are to. Of several who ask for
/// the usual one at a time one gathers it, and others get it, too, for as long as it is kept.
async fn make_anew<D: ClusterDocument>(shared: &Shared, rows: usize, as_of: AsOf) -> Result<Bytes, Problem> {
    let revision = shared.see(as_of).await;
    if rows != DEFAULT_ROWS {
        return make::<D>(shared, rows, revision).await;
    }
    let cached = shared.cached_response(D::PATH);
    let mut cached = cached.lock().await;
    if let Some(text) = revision.and_then(|revision| cached.get_as_of(revision.max(1))) {
        return Ok(text);
    }
    let text = make::<D>(shared, rows, revision).await?;
    cached.replace_as_of(text.clone(), revision.unwrap_or(0));
    Ok(text)
}

/// The document as JSON. Of several who ask at a time one gathers, and the others wait for it.
pub(crate) async fn text<D: ClusterDocument>(shared: &Shared) -> Result<Bytes, Problem> {
    let cached = shared.cached_response(D::PATH);
    let mut cached = cached.lock().await;
    if let Some(text) = cached.get() {
        return Ok(text);
    }
    let text = make::<D>(shared, DEFAULT_ROWS, None).await?;
    cached.replace(text.clone());
    Ok(text)
}

/// The document with at most so many rows, of what the nodes have seen up to a revision, if one is named.
async fn make<D: ClusterDocument>(
    shared: &Shared,
    rows: usize,
    revision: Option<u64>,
) -> Result<Bytes, Problem> {
    let (snapshot, age) = shared.look();
    if let Some(problem) = cluster::unseen(&snapshot).filter(|_| !D::REPORTS_UNSEEN) {
        return Err(problem);
    }
    let own = D::part(shared, &snapshot);
    let path = format!("{}?scope=node", D::PATH);
    let Gathered { parts, missing } = shared.gather_as_of(&snapshot, own, &path, revision).await;
    let mut body = D::body(shared, &snapshot, parts, &missing);
    let mut left = D::limit(&mut body, rows);
    loop {
        let document = Document::of_cluster(&body, age, missing.clone());
        let text = serde_json::to_vec(&document).map_err(|error| {
            tracing::error!(%error, path, "a document could not be written");
            Problem::internal()
        })?;
        if text.len() <= bytes_permitted(rows) || left <= 1 {
            return Ok(Bytes::from(text));
        }
        left = D::limit(&mut body, (left * JSON_BYTES_MAX / text.len()).min(left - 1));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use cell_cluster::{DrainAuthor, Drains, MemberRow};
    use cell_node::ClusterSnapshot;
    use cell_terms::{Incarnation, NodeId};

    use super::*;
    use crate::test_cluster::TestCluster;

    /// What lacks in the list of nodes while the lease of node 4, which has no process any more, lasts on.
    fn missing(is_removed: bool) -> Vec<u64> {
        let cluster = TestCluster::start_with(1, &[], |sources| {
            let inner = Arc::clone(&sources.snapshots);
            let look = move || {
                let mut node = (*inner.snapshot()).clone();
                let mut members = node.cluster.members.clone();
                members.push(MemberRow {
                    incarnation: Incarnation(90),
                    node: NodeId(4),
                    fabric: String::new(),
                    http: "127.0.0.1:1".to_owned(),
                    pid: 1,
                    memory_limit_bytes: 0,
                });
                node.cluster = Arc::new(ClusterSnapshot { members, ..(*node.cluster).clone() });
                Arc::new(node)
            };
            crate::Sources { snapshots: Arc::new(look), ..sources }
        });
        if is_removed {
            let author = DrainAuthor { who: "ops", why: None, now_unix_ms: 1 };
            let drains = Drains::new(Arc::new(cluster.nodes[0].link.clone()));
            drains.remove(NodeId(4), &author).unwrap();
        }
        let listed = cluster.get(0, "/api/v1/nodes").body;
        let missing = listed["missing"].as_array().unwrap();
        missing.iter().map(|peer| peer["node"].as_u64().unwrap()).collect()
    }

    /// Right after `cell dev scale 2` the list of nodes was not whole, and `cell node ls` ended with exit
    /// code 6.
    #[test]
    fn node_that_was_removed_lacks_in_no_document() {
        assert_eq!(missing(false), [4]);
        assert!(missing(true).is_empty());
    }

    /// For a second after its start a node reported a cluster without regions, of itself alone, and of
    /// balance that is off.
    #[test]
    fn node_that_has_not_seen_its_cluster_reports_no_empty_one() {
        let is_seen = Arc::new(AtomicBool::new(false));
        let cluster = TestCluster::start_with(1, &[], |sources| {
            let (inner, is_seen) = (Arc::clone(&sources.snapshots), Arc::clone(&is_seen));
            let look = move || {
                let mut node = (*inner.snapshot()).clone();
                if !is_seen.load(Ordering::SeqCst) {
                    node.cluster = Arc::default();
                }
                Arc::new(node)
            };
            crate::Sources { snapshots: Arc::new(look), ..sources }
        });
        let documents = ["nodes", "regions", "balance", "wal", "drains", "recoveries", "selector/pairs"];
        let paths: Vec<_> = documents.into_iter().chain(["tree/buckets", "tree/heat"]).collect();
        for path in paths.iter().map(|path| format!("/api/v1/{path}")) {
            let answer = cluster.get(0, &path);
            assert_eq!(answer.problem(), (503, "unavailable"), "{path}");
            assert!(answer.body["detail"].as_str().unwrap().starts_with("Not known yet: "), "{answer:?}");
            assert!(answer.body["next"].is_string() && answer.header("retry-after").is_some(), "{answer:?}");
            assert_eq!(cluster.get(0, &format!("{path}?scope=node")).status, 200, "{path}");
        }
        let status = cluster.get(0, "/api/v1/cluster/status");
        assert_eq!(
            status.body["verdict"]["sentence"], "This node has not seen its cluster yet.",
            "{status:?}"
        );
        is_seen.store(true, Ordering::SeqCst);
        for path in paths {
            assert_eq!(cluster.get(0, &format!("/api/v1/{path}")).status, 200, "{path}");
        }
    }

    #[test]
    fn fitting_are_the_first_rows_whose_json_is_no_longer() {
        let rows = ["aa", "bbbb", "c"];
        for (bytes_max, count) in [(0, 0), (4, 0), (5, 1), (11, 1), (12, 2), (16, 3), (usize::MAX, 3)] {
            assert_eq!(fitting(&rows, bytes_max), count, "{bytes_max}");
        }
    }

    #[test]
    fn shown_says_how_many_rows_there_are_and_whether_some_are_left_out() {
        for (most, left, truncated) in [(2, 2, true), (3, 3, false), (4, 3, false)] {
            let (mut rows, mut shown) = (vec![1, 2, 3], Shown::default());
            assert_eq!(shown.limit(&mut rows, most), left);
            assert_eq!((rows.len(), shown), (left, Shown { total: 3, truncated }));
            assert_eq!(shown.limit(&mut rows, 1), 1);
            assert_eq!(shown, Shown { total: 3, truncated: true }, "it knows how many there were first");
        }
    }
}
