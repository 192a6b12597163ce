//! `GET /api/v1/tree/locate`: which meganode has a key, and by which tree nodes a search comes to it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use cell_client::ScanRange;
use cell_node::{LookError, MeganodeShape, NodeSnapshot, TreeShape};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::part::id;
use crate::api::document::{Document, Scope};
use crate::api::key::Key;
use crate::api::params::Params;
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;

/// Where a key lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) node: u32,
    pub(crate) pair: u32,
    pub(crate) meganode: String,
    /// From the root tree node to the leaf.
    pub(crate) path: Vec<Step>,
}

/// A tree node on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    index: u32,
    level: u8,
}

/// What a node says of a key; nothing, if it has not the meganode.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LocatePart {
    place: Option<Place>,
}

/// What the cluster says of it.
#[derive(Debug, Serialize)]
struct Located {
    key: Key,
    found: bool,
    #[serde(flatten)]
    place: Place,
    /// Of the value.
    bytes: Option<u64>,
    /// By whom it was searched.
    searched: &'static str,
}

/// `GET /api/v1/tree/locate`.
pub(crate) async fn get_locate(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    let key = params.key("key")?;
    params.end()?;
    let Some(key) = key.filter(|key| !key.is_empty()) else {
        return Err(Params::refuse("key", "a key is to be given, in hexadecimal digits".to_owned()));
    };
    if scope == Scope::Node {
        let (snapshot, age) = shared.look();
        let part = LocatePart { place: own_place(&shared, &snapshot, &key).await? };
        return Ok(axum::Json(Document::of_node(part, age)).into_response());
    }
    let range = ScanRange { keys_only: true, limit: 1, ..ScanRange::prefix(&key) };
    let wanted = key.clone();
    // The first key with the prefix is the key itself, if there is such an entry.
    let value_len = shared.store.call("/query/key", move |client| {
        let first = client.scan(range).next().transpose()?;
        Ok(first.filter(|entry| entry.key == wanted).map(|entry| u64::from(entry.value_len)))
    });
    let value_len = value_len.await?;
    let place = place(&shared, &key, "/query/key").await?;
    let found = value_len.is_some();
    let located = Located { key: Key::new(&key), found, place, bytes: value_len, searched: "server" };
    Ok(axum::Json(Document::of_node(located, shared.look().1)).into_response())
}

/// Where a key lives, by what the node that has it says.
pub(crate) async fn place(shared: &Shared, key: &[u8], pointer: &'static str) -> Result<Place, Problem> {
    let (snapshot, _) = shared.look();
    if let Some(place) = own_place(shared, &snapshot, key).await? {
        return Ok(place);
    }
    let path = format!("/api/v1/tree/locate?scope=node&key={}", HEXLOWER.encode(key));
    let gathered = shared.peers.gather(&snapshot, LocatePart { place: None }, &path).await;
    let place = gathered.parts.into_iter().find_map(|part| part.part.place);
    place.ok_or_else(|| {
        let detail = "No node that answers has the meganode of this key.".to_owned();
        let field =
            FieldProblem { pointer: pointer.to_owned(), detail: detail.clone(), ..FieldProblem::default() };
        let missing = gathered.missing.iter().map(|peer| format!(" Node {}: {}.", peer.node, peer.why));
        let detail = detail + &missing.collect::<String>();
        let next = "ask again in a second: a pair is being taken over, or the meganode is being split";
        Problem { errors: vec![field], ..Problem::unavailable(detail).next(next) }
    })
}

async fn own_place(shared: &Shared, snapshot: &NodeSnapshot, key: &[u8]) -> Result<Option<Place>, Problem> {
    let Some(&MeganodeShape { pair, slot, .. }) = meganode_of(&snapshot.tree, key) else { return Ok(None) };
    let wanted = key.to_vec();
    let path = match shared.look_at(move |look| look.path_to(pair, slot, &wanted)).await {
        Ok(path) => path,
        // It has just been given away, or cut.
        Err(LookError::NotServed | LookError::NotInUse | LookError::Changing) => return Ok(None),
        Err(error) => return Err(super::explain(error)),
    };
    let path = path.iter().map(|step| Step { index: step.node.0, level: step.level }).collect();
    Ok(Some(Place { node: snapshot.node.0, pair: pair.0, meganode: id(pair.0, slot.0), path }))
}

/// The meganode that has a key, as of the last look.
fn meganode_of<'s>(tree: &'s TreeShape, key: &[u8]) -> Option<&'s MeganodeShape> {
    let after = tree.meganodes.partition_point(|shape| *shape.low <= *key);
    let shape = tree.meganodes.get(after.checked_sub(1)?)?;
    shape.high.as_deref().is_none_or(|high| key < high).then_some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conformity::covers;
    use crate::api::tree::part::tests::shape;

    #[test]
    fn answers_are_as_the_document_says() {
        let place =
            Place { node: 0, pair: 1, meganode: "1.0".to_owned(), path: vec![Step { index: 0, level: 1 }] };
        let part = |place| LocatePart { place };
        let parts = [part(Some(place.clone())), part(None)]
            .map(|part| serde_json::to_value(Document::of_node(part, std::time::Duration::ZERO)).unwrap());
        covers("GET", "/api/v1/tree/locate?scope=node", &parts);
        let key = Key::new(b"a");
        let whole = Located { key, found: true, place, bytes: Some(1), searched: "server" };
        let whole = Document::of_node(whole, std::time::Duration::ZERO);
        covers("GET", "/api/v1/tree/locate", &[serde_json::to_value(whole).unwrap()]);
    }

    #[test]
    fn meganode_of_a_key_is_the_one_whose_range_has_it() {
        let meganodes = vec![shape(1, b"b", Some(b"d"), 0), shape(2, b"g", None, 0)];
        let tree = TreeShape { meganodes, ..TreeShape::default() };
        let pair = |key: &[u8]| meganode_of(&tree, key).map(|shape| shape.pair.0);
        assert_eq!(
            [b"a", b"b", b"c", b"d", b"g", b"z"].map(|key| pair(key)),
            [None, Some(1), Some(1), None, Some(2), Some(2)]
        );
    }
}
