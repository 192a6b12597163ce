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

use crate::api::document::{Document, Scope};
use crate::api::params::Params;
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

    /// This node's part.
    fn part(shared: &Shared, snapshot: &NodeSnapshot) -> Self::Part;

    /// All parts together, as the node that was asked sees them.
    fn body(
        shared: &Shared,
        snapshot: &NodeSnapshot,
        parts: Vec<NodePart<Self::Part>>,
        missing: &[MissingPeer],
    ) -> Self::Body;
}

/// `GET` of a document: `scope=node` for the part of this node alone.
pub(crate) async fn get<D: ClusterDocument>(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    params.end()?;
    if scope == Scope::Node {
        let (snapshot, age) = shared.look();
        return Ok(axum::Json(Document::of_node(D::part(&shared, &snapshot), age)).into_response());
    }
    let text = text::<D>(&shared).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The document as JSON. Of several who ask at a time one gathers, and the others wait for it.
pub(crate) async fn text<D: ClusterDocument>(shared: &Shared) -> Result<Bytes, Problem> {
    let kept = shared.kept(D::PATH);
    let mut kept = kept.lock().await;
    if let Some(text) = kept.get() {
        return Ok(text);
    }
    let (snapshot, age) = shared.look();
    let own = D::part(shared, &snapshot);
    let path = format!("{}?scope=node", D::PATH);
    let Gathered { parts, missing } = shared.peers.gather(&snapshot, own, &path).await;
    let body = D::body(shared, &snapshot, parts, &missing);
    let text = serde_json::to_vec(&Document::of_cluster(body, age, missing)).map_err(|error| {
        tracing::error!(%error, path, "a document could not be written");
        Problem::internal()
    })?;
    let text = Bytes::from(text);
    kept.keep(text.clone());
    Ok(text)
}
