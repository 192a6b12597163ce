//! `GET /api/v1/tree/meganodes/{id}` and its tree nodes: as the owner's memory has them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cell_node::{LookError, MeganodeUse, MeganodeView, TreeNodeIndex, TreeNodeState, TreeNodeView};
use cell_terms::{PairId, SlotIndex};
use data_encoding::BASE64;
use serde::Serialize;

use super::part::id;
use crate::api::document::{Document, Scope};
use crate::api::key::Key;
use crate::api::params::{Params, PathText};
use crate::clock::{milliseconds, now_unix_ms};
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;

/// How long the owner may take: it reads all tree nodes.
const OWNER_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
struct Meganode {
    id: String,
    pair: u32,
    slot: u32,
    node: u32,
    low: Key,
    high: Option<Key>,
    #[serde(rename = "use")]
    used: &'static str,
    height: usize,
    entries: u64,
    tree_nodes: u64,
    tree_nodes_all: usize,
    /// Leaves first.
    levels: Vec<Level>,
    /// Base64 of one byte a tree node: 0 free, 1 inner, 2 leaf, 3 hidden.
    slots: String,
    right: Option<String>,
}

#[derive(Debug, Serialize)]
struct Level {
    level: usize,
    nodes: u64,
    entries: u64,
    fill_histogram: [u64; 10],
}

/// Without the document's version: its own has that name.
#[derive(Debug, Serialize)]
struct TreeNode {
    at_unix_ms: u64,
    age_ms: u64,
    /// A decimal number: JavaScript's are too small.
    version: String,
    index: u32,
    level: u8,
    low: Key,
    high: Option<Key>,
    entries: usize,
    /// The first of them, 64 at most.
    keys: Vec<Key>,
    right: Option<u32>,
}

/// A meganode by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MeganodeId {
    pair: PairId,
    slot: SlotIndex,
}

impl MeganodeId {
    fn parse(text: &str) -> Result<MeganodeId, Problem> {
        let parts = text.split_once('.');
        let numbers = parts.and_then(|(pair, slot)| Some((pair.parse().ok()?, slot.parse().ok()?)));
        numbers.map(|(pair, slot)| MeganodeId { pair: PairId(pair), slot: SlotIndex(slot) }).ok_or_else(
            || {
                let detail = format!("`{text}` names no meganode: give pair and slot, as in 1.0");
                wrong("/path/id", detail)
            },
        )
    }

    fn name(self) -> String {
        id(self.pair.0, self.slot.0)
    }
}

fn wrong(pointer: &str, detail: String) -> Problem {
    Problem::bad_request(FieldProblem { pointer: pointer.to_owned(), detail, ..FieldProblem::default() })
}

/// `GET /api/v1/tree/meganodes/{id}`.
pub(crate) async fn get_meganode(
    State(shared): State<Arc<Shared>>,
    PathText(text): PathText<String>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    params.end()?;
    let wanted = MeganodeId::parse(&text)?;
    if let Some(owner) = Owner::elsewhere(&shared, wanted, scope)? {
        return owner.forward(&shared, &format!("/api/v1/tree/meganodes/{}?scope=node", wanted.name())).await;
    }
    let MeganodeId { pair, slot } = wanted;
    let view = shared.look_at(move |look| look.meganode(pair, slot)).await;
    let none = || format!("There is no meganode {}.", wanted.name());
    let view = view.map_err(|error| explain(&shared, wanted, error, none()))?;
    let (snapshot, age) = shared.look();
    let document = meganode(wanted, snapshot.node.0, &view);
    Ok(axum::Json(Document::of_node(document, age)).into_response())
}

/// `GET /api/v1/tree/meganodes/{id}/nodes/{index}`.
pub(crate) async fn get_tree_node(
    State(shared): State<Arc<Shared>>,
    PathText((text, index_text)): PathText<(String, String)>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    params.end()?;
    let wanted = MeganodeId::parse(&text)?;
    let index: u32 = index_text.parse().map_err(|_| {
        wrong("/path/index", format!("`{index_text}` is no tree node's number in its slot: 0 is the root"))
    })?;
    if let Some(owner) = Owner::elsewhere(&shared, wanted, scope)? {
        let path = format!("/api/v1/tree/meganodes/{}/nodes/{index}?scope=node", wanted.name());
        return owner.forward(&shared, &path).await;
    }
    let MeganodeId { pair, slot } = wanted;
    let view = shared.look_at(move |look| look.tree_node(pair, slot, TreeNodeIndex(index))).await;
    let none = || format!("Tree node {index} of meganode {} is not in use.", wanted.name());
    let view = view.map_err(|error| explain(&shared, wanted, error, none()))?;
    Ok(axum::Json(tree_node(index, &view, milliseconds(shared.look().1))).into_response())
}

/// A meganode that another node has.
struct Owner {
    node: u32,
    member: cell_cluster::MemberRow,
}

impl Owner {
    /// Who has a meganode, by the region table; none if it is this node, or if it is asked for itself alone.
    fn elsewhere(shared: &Shared, wanted: MeganodeId, scope: Scope) -> Result<Option<Owner>, Problem> {
        let (snapshot, _) = shared.look();
        let row = snapshot.cluster.pairs.iter().find(|row| row.pair == wanted.pair);
        let Some(row) = row.filter(|_| scope == Scope::Cluster) else { return Ok(None) };
        if row.owner == Some(snapshot.incarnation) {
            return Ok(None);
        }
        let mut members = snapshot.cluster.members.iter();
        let member = members.find(|member| Some(member.incarnation) == row.owner).ok_or_else(|| {
            let detail = format!("Nobody serves pair {} just now.", wanted.pair.0);
            Problem::unavailable(detail).next("wait: it is taken over; the overview shows how far that is")
        })?;
        Ok(Some(Owner { node: member.node.0, member: member.clone() }))
    }

    /// What the owner answers.
    async fn forward(&self, shared: &Shared, path: &str) -> Result<Response, Problem> {
        let answer = shared.peers.send(&self.member, Method::GET, path, None, OWNER_DEADLINE).await;
        let node = self.node;
        match answer {
            Ok((StatusCode::OK, body)) => {
                let mut response = Body::from(body).into_response();
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                Ok(response)
            }
            Ok((status, body)) => {
                let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
                let detail = match parsed["detail"].as_str() {
                    Some(detail) => detail.to_owned(),
                    None => format!("Node {node} answers {status}."),
                };
                match status {
                    StatusCode::NOT_FOUND => Err(Problem::not_found(detail)),
                    _ => Err(Problem::unavailable(detail).next("ask again in a second")),
                }
            }
            Err(why) => {
                let detail = format!("Node {node}, which has it, does not answer: {why}.");
                Err(Problem::unavailable(detail).next("ask again in a second"))
            }
        }
    }
}

/// `none` says that the owner has not what is asked for, or that there is no such pair.
fn explain(shared: &Shared, wanted: MeganodeId, error: LookError, none: String) -> Problem {
    let (snapshot, _) = shared.look();
    let is_pair = snapshot.cluster.pairs.iter().any(|row| row.pair == wanted.pair);
    match error {
        LookError::NotInUse => Problem::not_found(none),
        LookError::NotServed if !is_pair => Problem::not_found(none),
        error => super::explain(error),
    }
}

fn meganode(wanted: MeganodeId, node: u32, view: &MeganodeView) -> Meganode {
    let level = |(level, of): (usize, &cell_node::LevelView)| Level {
        level,
        nodes: of.nodes,
        entries: of.entries,
        fill_histogram: of.fill,
    };
    let slots: Vec<u8> = view.slots.iter().map(|slot| slot_byte(*slot)).collect();
    Meganode {
        id: wanted.name(),
        pair: wanted.pair.0,
        slot: wanted.slot.0,
        node,
        low: Key::new(&view.low),
        high: view.high.as_deref().map(Key::new),
        used: match view.used {
            MeganodeUse::Leaf => "entries",
            MeganodeUse::Router => "router",
            MeganodeUse::Adopted => "adopted",
        },
        height: view.levels.len(),
        entries: view.levels.first().map_or(0, |leaves| leaves.entries),
        tree_nodes: view.levels.iter().map(|level| level.nodes).sum(),
        tree_nodes_all: slots.len(),
        levels: view.levels.iter().enumerate().map(level).collect(),
        slots: BASE64.encode(&slots),
        right: view.right.map(|(pair, slot)| id(pair.0, slot.0)),
    }
}

fn slot_byte(slot: (TreeNodeState, bool)) -> u8 {
    match slot {
        (TreeNodeState::Free, _) => 0,
        (TreeNodeState::Valid, false) => 1,
        (TreeNodeState::Valid, true) => 2,
        (TreeNodeState::Hidden, _) => 3,
    }
}

fn tree_node(index: u32, view: &TreeNodeView, age_ms: u64) -> TreeNode {
    TreeNode {
        at_unix_ms: now_unix_ms(),
        age_ms,
        version: view.version.to_string(),
        index,
        level: view.level,
        low: Key::new(&view.low),
        high: view.high.as_deref().map(Key::new),
        entries: view.entries,
        keys: view.keys.iter().map(|key| Key::new(key)).collect(),
        right: view.right.map(|node| node.0),
    }
}

#[cfg(test)]
mod tests {
    use cell_node::LevelView;

    use super::*;
    use crate::api::conformity::covers;

    #[test]
    fn id_is_pair_and_slot() {
        let id = MeganodeId::parse("12.3").unwrap();
        assert_eq!((id.pair, id.slot, &*id.name()), (PairId(12), SlotIndex(3), "12.3"));
        for wrong in ["", "12", "12.", ".3", "a.b", "1.2.3", "1.-1", "4294967296.0"] {
            assert_eq!(MeganodeId::parse(wrong).unwrap_err().errors[0].pointer, "/path/id", "{wrong}");
        }
    }

    #[test]
    fn meganode_has_a_byte_for_each_tree_node_and_sums_of_its_levels() {
        let level = |nodes, entries| LevelView { nodes, entries, fill: [0; 10] };
        let view = MeganodeView {
            used: MeganodeUse::Adopted,
            low: Vec::new(),
            high: Some(vec![255]),
            right: Some((PairId(2), SlotIndex(7))),
            levels: vec![level(2, 30), level(1, 2)],
            slots: vec![
                (TreeNodeState::Valid, false),
                (TreeNodeState::Valid, true),
                (TreeNodeState::Free, true),
                (TreeNodeState::Hidden, false),
            ],
        };
        let id = MeganodeId { pair: PairId(1), slot: SlotIndex(0) };
        let document = serde_json::to_value(meganode(id, 5, &view)).unwrap();
        assert_eq!((&document["use"], &document["right"]), (&"adopted".into(), &"2.7".into()));
        assert_eq!(document["slots"], BASE64.encode(&[1, 2, 0, 3]));
        let figures = ["height", "entries", "tree_nodes", "tree_nodes_all"].map(|name| &document[name]);
        assert_eq!(figures, [2, 30, 3, 4]);
        let last = MeganodeView { high: None, right: None, ..view.clone() };
        let answers = [view, last]
            .map(|view| Document::of_node(super::meganode(id, 5, &view), Duration::ZERO))
            .map(|document| serde_json::to_value(document).unwrap());
        let mut without = answers[0].clone();
        without["keys_left_out"] = true.into();
        covers("GET", "/api/v1/tree/meganodes/1.0", &[&answers[..], &[without]].concat());
    }

    #[test]
    fn meganode_of_a_slot_of_64_mib_is_a_document_below_256_kib() {
        let level = LevelView { nodes: u64::MAX >> 12, entries: u64::MAX >> 12, fill: [u64::MAX >> 12; 10] };
        let view = MeganodeView {
            used: MeganodeUse::Leaf,
            low: vec![0; 800],
            high: Some(vec![255; 800]),
            right: Some((PairId(2), SlotIndex(7))),
            levels: vec![level; 9],
            slots: vec![(TreeNodeState::Valid, true); 65_536],
        };
        let document = meganode(MeganodeId { pair: PairId(1), slot: SlotIndex(0) }, 5, &view);
        let json = serde_json::to_vec(&document).unwrap();
        assert!(json.len() < 256 << 10, "{} bytes", json.len());
    }

    #[test]
    fn tree_node_is_as_the_document_says() {
        let view = TreeNodeView {
            version: u64::MAX,
            level: 0,
            low: Vec::new(),
            high: Some(vec![255]),
            entries: 70,
            keys: vec![vec![1]],
            right: Some(TreeNodeIndex(2)),
        };
        let last = TreeNodeView { high: None, right: None, ..view.clone() };
        let answers = [view, last].map(|view| serde_json::to_value(tree_node(3, &view, 1)).unwrap());
        covers("GET", "/api/v1/tree/meganodes/1.0/nodes/3", &answers);
    }
}
