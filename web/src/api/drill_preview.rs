//! `GET /api/v1/drills/preview`: what a fault of a node would stop, before anything is done.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cell_drill::{DELAY_MS, DELAY_MS_DEFAULT, FaultKind};
use cell_node::NodeSnapshot;
use cell_terms::setting::Value;
use cell_terms::text::counted;
use serde::{Deserialize, Serialize};

use crate::api::document::Document;
use crate::api::params::Params;
use crate::drill::{DrillWanted, name_of};
use crate::history::entries;
use crate::peers::{Gathered, NodePart};
use crate::problem::Problem;
use crate::shared::Shared;

/// What a node serves, out of its row in `/api/v1/nodes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ServedPart {
    row: Served,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Served {
    pairs: Vec<u32>,
    /// None: it does not know.
    entries: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Preview {
    node: u32,
    kind: &'static str,
    pairs: Vec<u32>,
    /// Null: the node does not know.
    entries: Option<u64>,
    /// Of all entries of the nodes that answered. Null: one of them does not know.
    key_share: Option<f64>,
    /// Nodes that can take over.
    survivors: Vec<u32>,
    sentence: String,
    /// What is to be typed.
    confirm: String,
    /// Another one where it would stop something else.
    revision: String,
}

/// `GET /api/v1/drills/preview?kind=KIND&node=NODE`, and `delay_ms` of a slow disk.
pub(crate) async fn get_preview(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let kind = kind(params.text("kind"))?;
    let node = node(params.text("node"))?;
    let delay_ms = params.integer("delay_ms", DELAY_MS, DELAY_MS_DEFAULT)?;
    params.end()?;
    let Gathered { parts, missing } = gather(&shared, node).await?;
    let times = Times { lease_ms: lease_ms(&shared), delay_ms };
    let preview = preview(kind, node, &parts, times).ok_or_else(|| {
        let known: Vec<_> = parts.iter().map(|part| part.node.0.to_string()).collect();
        Params::refuse("node", format!("no node {node} is there; those that are: {}", known.join(", ")))
    })?;
    let (_, age) = shared.look();
    Ok(axum::Json(Document::of_cluster(preview, age, missing)).into_response())
}

/// Refuses a drill that would stop something else than the preview showed that its author has seen.
pub(crate) async fn check_seen(shared: &Shared, wanted: &DrillWanted) -> Result<(), Problem> {
    let Some(seen) = &wanted.preview else { return Ok(()) };
    let node = u32::from(wanted.node);
    let Gathered { parts, .. } = gather(shared, node).await?;
    let times = Times { lease_ms: lease_ms(shared), delay_ms: wanted.delay_ms() };
    let stale = |now: &str| {
        let detail = format!("No drill was started: its preview is not true any more. {now}");
        Problem::new(StatusCode::PRECONDITION_FAILED, "stale_preview", detail)
            .next("look at the preview again, and decide anew")
    };
    match preview(wanted.kind, node, &parts, times) {
        Some(now) if now.revision == *seen => Ok(()),
        Some(now) => Err(stale(&now.sentence)),
        None => Err(stale(&format!("Node {node} is not there."))),
    }
}

/// What the nodes serve.
///
/// # Errors
/// The node of the drill does not answer.
async fn gather(shared: &Shared, node: u32) -> Result<Gathered<ServedPart>, Problem> {
    let (snapshot, _) = shared.look();
    let own = ServedPart { row: served(&snapshot) };
    let gathered = shared.peers.gather(&snapshot, own, "/api/v1/nodes?scope=node").await;
    match gathered.missing.iter().find(|missing| missing.node == node) {
        None => Ok(gathered),
        Some(absent) => {
            let detail = format!("Node {node} does not say what it serves: {}.", absent.why);
            Err(Problem::unavailable(detail).next("a drill begins with a healthy cluster: wait for it"))
        }
    }
}

fn kind(given: Option<String>) -> Result<FaultKind, Problem> {
    let given = given.unwrap_or_default();
    let kinds = || FaultKind::ALL.map(FaultKind::word).join(", ");
    FaultKind::from_word(&given)
        .ok_or_else(|| Params::refuse("kind", format!("`{given}` is none of {}", kinds())))
}

fn node(given: Option<String>) -> Result<u32, Problem> {
    let given = given.unwrap_or_default();
    given.parse().map_err(|_| Params::refuse("node", format!("`{given}` is no node's number")))
}

/// How long leases last, where that is known.
fn lease_ms(shared: &Shared) -> Option<u64> {
    let (settings, _) = shared.sources.settings.as_ref()?.current();
    match settings.get("lease_ms") {
        Some((Value::Integer(ms), _)) => Some(*ms),
        _ => None,
    }
}

fn served(snapshot: &NodeSnapshot) -> Served {
    Served { pairs: snapshot.pairs.iter().map(|pair| pair.pair.0).collect(), entries: entries(snapshot) }
}

/// What a sentence says of times.
#[derive(Clone, Copy)]
struct Times {
    /// How long leases last, where that is known.
    lease_ms: Option<u64>,
    /// By how much a slow disk is slower.
    delay_ms: u64,
}

/// None if the node is not among those that answered.
fn preview(kind: FaultKind, node: u32, parts: &[NodePart<ServedPart>], times: Times) -> Option<Preview> {
    let own = &parts.iter().find(|part| part.node.0 == node)?.part.row;
    let all: Option<u64> = parts.iter().map(|part| part.part.row.entries).sum();
    let mut pairs = own.pairs.clone();
    pairs.sort_unstable();
    let mut survivors: Vec<_> = parts.iter().map(|part| part.node.0).filter(|other| *other != node).collect();
    survivors.sort_unstable();
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let share = |(own, all): (u64, u64)| if all == 0 { 0.0 } else { own as f64 / all as f64 };
    let key_share = own.entries.zip(all).map(share);
    let sentence = sentence(kind, node, pairs.len(), !survivors.is_empty(), times);
    let (kind, confirm, entries) = (kind.word(), name_of(node), own.entries);
    // Entries come and go all the time.
    let revision = revision(&(kind, node, &pairs, &survivors, &sentence));
    Some(Preview { node, kind, pairs, entries, key_share, survivors, sentence, confirm, revision })
}

fn revision(shown: &impl std::fmt::Debug) -> String {
    let mut digest = crc64fast::Digest::new();
    digest.write(format!("{shown:?}").as_bytes());
    format!("{:016x}", digest.sum64())
}

fn sentence(kind: FaultKind, node: u32, pairs: usize, has_survivors: bool, times: Times) -> String {
    if pairs == 0 {
        return format!("Node {node} owns no pair: its loss stops nothing, and a drill of it shows nothing.");
    }
    let owns = counted(pairs as u64, "pair", "pairs");
    let whose = if pairs == 1 { "Its" } else { "Their" };
    if kind == FaultKind::SlowDisk {
        let ms = times.delay_ms;
        return format!(
            "Node {node} owns {owns}. {whose} keys can be read; each write of them waits {ms} ms longer, until \
             the fault is taken back. Nobody takes over."
        );
    }
    let until = until(kind, has_survivors, times.lease_ms);
    let besides = besides(kind);
    format!("Node {node} owns {owns}. {whose} keys are not available {until}.{besides}")
}

/// Until when the keys are not available.
fn until(kind: FaultKind, has_survivors: bool, lease_ms: Option<u64>) -> String {
    let lease = lease_ms.map_or_else(String::new, |ms| format!(" ({ms} ms)"));
    match (kind, has_survivors) {
        (FaultKind::Restart, true) => {
            "until others have taken them over, or the node has started again".to_owned()
        }
        (FaultKind::Restart | FaultKind::Kill, false) => {
            "until the node has started again and replayed its logs".to_owned()
        }
        (_, false) => "until the fault is taken back".to_owned(),
        (FaultKind::Kill, true) => {
            format!("until its lease{lease} has ended and the others have replayed its logs")
        }
        (_, true) => format!(
            "until the fault is taken back or, if it lasts longer than the node's lease{lease}, until the \
             others have replayed its logs"
        ),
    }
}

/// What is particular to a kind.
fn besides(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::PartitionIn => {
            " The coordinator goes on renewing the lease until the node, which gets no reply, has given it up: \
             others take over later than after a partition of both ways, by up to a lease and a call of the \
             coordinator."
        }
        FaultKind::PartitionOut => {
            " The node may carry out writes that nobody learns of: each is found again when its client repeats \
             it."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::NodeId;

    use super::*;
    use crate::test_snapshot::snapshot;

    const TIMES: Times = Times { lease_ms: Some(500), delay_ms: 70 };

    fn part(node: u32, pairs: &[u32], entries: u64) -> NodePart<ServedPart> {
        let row = Served { pairs: pairs.to_vec(), entries: Some(entries) };
        NodePart { node: NodeId(node), part: ServedPart { row } }
    }

    #[test]
    fn preview_counts_what_the_node_serves_and_names_who_is_left() {
        let parts = [part(0, &[1], 300), part(1, &[5, 2], 100), part(2, &[], 0)];
        let preview = preview(FaultKind::Kill, 1, &parts, TIMES).unwrap();
        assert_eq!((preview.pairs, preview.entries, preview.key_share), (vec![2, 5], Some(100), Some(0.25)));
        assert_eq!((preview.survivors, &*preview.confirm), (vec![0, 2], "node-1"));
        assert!(preview.sentence.contains("owns 2 pairs") && preview.sentence.contains("(500 ms)"));
        assert!(super::preview(FaultKind::Kill, 7, &parts, TIMES).is_none());
        let of =
            |kind, parts: &[NodePart<ServedPart>]| super::preview(kind, 1, parts, TIMES).unwrap().revision;
        let more = [part(2, &[], 0), part(1, &[2, 5], 101), part(0, &[1], 300)];
        assert_eq!(of(FaultKind::Kill, &more), preview.revision, "entries come and go");
        assert_ne!(of(FaultKind::Stop, &more), preview.revision);
        assert_ne!(of(FaultKind::Kill, &more[..2]), preview.revision, "a survivor less");
        let moved = [part(0, &[1, 5], 300), part(1, &[2], 100), part(2, &[], 0)];
        assert_ne!(of(FaultKind::Kill, &moved), preview.revision);
    }

    #[test]
    fn preview_of_an_empty_cluster_and_of_a_node_without_pairs() {
        let parts = [part(0, &[], 0), part(1, &[1], 0)];
        let preview = preview(FaultKind::Stop, 0, &parts, TIMES).unwrap();
        assert_eq!(preview.key_share, Some(0.0));
        assert!(preview.sentence.contains("owns no pair"));
    }

    #[test]
    fn preview_beside_a_node_that_recovers_knows_no_share() {
        let mut parts = [part(0, &[1], 300), part(1, &[], 0)];
        parts[1].part.row.entries = None;
        let of = |node| preview(FaultKind::Kill, node, &parts, TIMES).unwrap();
        assert_eq!((of(0).entries, of(0).key_share), (Some(300), None));
        assert_eq!((of(1).entries, of(1).key_share), (None, None));
    }

    #[test]
    fn sentence_of_every_kind_says_until_when() {
        for kind in FaultKind::ALL {
            for has_survivors in [false, true] {
                let words = sentence(kind, 3, 1, has_survivors, TIMES);
                assert!(words.starts_with("Node 3 owns 1 pair. ") && words.contains(" until "), "{words}");
            }
        }
        let words = sentence(FaultKind::SlowDisk, 3, 1, true, TIMES);
        assert!(words.contains("can be read") && words.contains("waits 70 ms longer"), "{words}");
        let words = sentence(FaultKind::PartitionIn, 3, 1, true, TIMES);
        assert!(words.contains("(500 ms)") && words.contains("others take over later"), "{words}");
    }

    /// What peers say is a row of `/api/v1/nodes`.
    #[test]
    fn served_is_read_out_of_a_nodes_row() {
        let snapshot = snapshot();
        let row =
            serde_json::to_value(crate::api::nodes::row(&snapshot, &crate::rates::Rates::default(), None))
                .unwrap();
        assert_eq!(serde_json::from_value::<Served>(row).unwrap(), served(&snapshot));
    }

    #[test]
    fn bad_parameters_are_named() {
        assert_eq!(kind(Some("x".into())).unwrap_err().errors[0].pointer, "/query/kind");
        assert!(kind(None).unwrap_err().detail.contains("kill, stop"));
        assert_eq!(node(Some("-1".into())).unwrap_err().errors[0].pointer, "/query/node");
    }
}
