//! `GET /api/v1/tree/buckets`: the key space of the cluster in at most 512 ranges, each a meganode or several
//! that are neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::axis::{Held, Span, Unreported, axis};
use super::part::{BucketsPart, KeyRange, MeganodeRow, RouterRow, columns, id};
use crate::api::cluster;
use crate::api::cluster_status::Splits;
use crate::api::document::{Document, Scope};
use crate::api::key::Key;
use crate::api::params::Params;
use crate::peers::{Gathered, NodePart};
use crate::problem::Problem;
use crate::rates::fill;
use crate::shared::Shared;

/// What buckets take at most as JSON: with long keys there are fewer of them.
const JSON_BYTES_MAX: usize = 240 << 10;
/// What a bucket takes beside its keys, about.
const BUCKET_JSON_BYTES: usize = 260;

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Bucket {
    low: Key,
    high: Option<Key>,
    /// Zero where nobody reports the range.
    meganodes: u64,
    entries: u64,
    bytes: u64,
    tree_nodes: u64,
    tree_nodes_all: u64,
    fill: f64,
    /// Of the highest.
    height: u8,
    /// Who has it; of several, who has most of the entries. None: nobody serves it.
    node: Option<u32>,
    /// None: several.
    pair: Option<u32>,
    state: &'static str,
    writes_per_second: Option<f64>,
    reads_per_second: Option<f64>,
    /// Of the meganode, if it is one.
    id: Option<String>,
}

/// The key space, or a part of it.
#[derive(Debug, Serialize)]
struct Buckets {
    low: Key,
    high: Option<Key>,
    meganodes_all: u64,
    entries_all: u64,
    levels_max: u8,
    splits: Splits,
    buckets: Vec<Bucket>,
    routers: Vec<RouterRow>,
}

/// `GET /api/v1/tree/buckets`.
pub(crate) async fn get_buckets(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    let columns = columns(&mut params)?;
    let range = KeyRange::of(&mut params)?;
    params.end()?;
    let (snapshot, age) = shared.look();
    let own = BucketsPart::new(&snapshot, &range);
    if scope == Scope::Node {
        return Ok(axum::Json(Document::of_node(own, age)).into_response());
    }
    if let Some(problem) = cluster::unseen(&snapshot) {
        return Err(problem);
    }
    let path = format!("/api/v1/tree/buckets?scope=node{}", range.in_query());
    let Gathered { parts, missing } = shared.gather(&snapshot, own, &path).await;
    let cluster = &snapshot.cluster;
    let reported = parts.iter().flat_map(|part| part.part.pairs.iter().copied()).collect::<BTreeSet<_>>();
    let unreported = Unreported::of(&cluster.pairs, &reported, &missing);
    let owners = cluster.pairs.iter().map(|row| (row.pair.0, row.node.0)).collect();
    let buckets = document(parts, &range, columns, unreported, &owners);
    Ok(axum::Json(Document::of_cluster(buckets, age, missing)).into_response())
}

fn document(
    parts: Vec<NodePart<BucketsPart>>,
    range: &KeyRange,
    columns: usize,
    unreported: Option<Unreported>,
    owners: &BTreeMap<u32, u32>,
) -> Buckets {
    let (mut rows, mut routers, mut splits) = (Vec::new(), Vec::new(), Splits::default());
    let (mut meganodes_all, mut entries_all, mut levels_max) = (0, 0, 0);
    for NodePart { node, part } in parts {
        meganodes_all += part.meganodes;
        entries_all += part.entries;
        levels_max = levels_max.max(part.height);
        splits = splits.and(part.splits);
        routers.extend(part.router.clone());
        rows.extend(part.rows(node.0));
    }
    let spans = axis(rows, range, unreported, owners);
    let buckets = bucketed(&spans, columns);
    Buckets {
        low: buckets.first().map_or_else(|| Key::new(&range.from), |first| first.low.clone()),
        high: match buckets.last() {
            Some(last) => last.high.clone(),
            None => range.to.as_deref().map(Key::new),
        },
        meganodes_all,
        entries_all,
        levels_max,
        splits,
        buckets,
        routers,
    }
}

/// The spans in at most so many buckets, fewer where their keys are long.
fn bucketed(spans: &[Span], mut columns: usize) -> Vec<Bucket> {
    loop {
        let buckets: Vec<_> = groups(spans, columns).map(bucket).collect();
        let bytes = |bucket: &Bucket| {
            let high = bucket.high.as_ref().map_or(0, Key::json_bytes);
            BUCKET_JSON_BYTES + bucket.low.json_bytes() + high
        };
        if columns == 1 || buckets.iter().map(bytes).sum::<usize>() <= JSON_BYTES_MAX {
            return buckets;
        }
        columns = buckets.len().min(columns).div_ceil(2);
    }
}

/// Neighbours together, about as many in each group. What nobody reports stays alone, as long as there is
/// little of it.
fn groups(spans: &[Span], columns: usize) -> impl Iterator<Item = &[Span]> {
    let alone = |span: &Span| matches!(span.held, Held::Unreported(_));
    let gaps = spans.iter().filter(|span| alone(span)).count();
    let free = columns.checked_sub(2 * gaps + 1).filter(|free| *free > 0);
    let apart = gaps > 0 && spans.len() > columns && free.is_some();
    let size = match free.filter(|_| apart) {
        Some(free) => (spans.len() - gaps).div_ceil(free),
        None => spans.len().div_ceil(columns),
    };
    let runs = spans.chunk_by(move |one, other| !apart || !(alone(one) || alone(other)));
    runs.flat_map(move |run| run.chunks(size.max(1)))
}

fn bucket(spans: &[Span]) -> Bucket {
    let (first, last) = (&spans[0], &spans[spans.len() - 1]);
    let held = || {
        spans.iter().filter_map(|span| match &span.held {
            Held::By(row) => Some(row),
            Held::Unreported(_) => None,
        })
    };
    let unreported = spans.iter().find_map(|span| match span.held {
        Held::Unreported(unreported) => Some(unreported),
        Held::By(_) => None,
    });
    let sum = |of: fn(&MeganodeRow) -> u64| held().map(of).sum::<u64>();
    let rate = |of: fn(&MeganodeRow) -> Option<f32>| {
        // Of all, or it would pass for that.
        let of_span = |span: &Span| match &span.held {
            Held::By(row) => of(row).map(f64::from),
            Held::Unreported(_) => None,
        };
        let known: Option<f64> = spans.iter().map(of_span).sum();
        known.map(|rate| (rate * 10.0).round() / 10.0)
    };
    let (tree_nodes, tree_nodes_all) =
        (sum(|row| row.tree_nodes.into()), sum(|row| row.tree_nodes_all.into()));
    let (node, pair) = match (held().next(), unreported) {
        (Some(first), _) => {
            (Some(holder(held())), held().all(|row| row.pair == first.pair).then_some(first.pair))
        }
        (None, unreported) => (unreported.and_then(|it| it.node), unreported.and_then(|it| it.pair)),
    };
    Bucket {
        low: Key::new(&first.low),
        high: last.high.as_deref().map(Key::new),
        meganodes: held().count() as u64,
        entries: sum(|row| row.entries),
        bytes: sum(|row| row.bytes),
        tree_nodes,
        tree_nodes_all,
        fill: fill(tree_nodes, tree_nodes_all),
        height: held().map(|row| row.height).max().unwrap_or(0),
        node,
        pair,
        state: match unreported {
            Some(Unreported { node: Some(_), .. }) => "not told",
            Some(Unreported { node: None, .. }) => "unserved",
            None if held().any(|row| row.splitting) => "splitting",
            None => "entries",
        },
        writes_per_second: rate(|row| row.writes_per_second),
        reads_per_second: rate(|row| row.reads_per_second),
        id: match spans {
            [Span { held: Held::By(row), .. }] => Some(id(row.pair, row.slot)),
            _ => None,
        },
    }
}

/// Who has most of the entries.
fn holder<'r>(rows: impl Iterator<Item = &'r MeganodeRow>) -> u32 {
    let mut entries: BTreeMap<u32, u64> = BTreeMap::new();
    rows.for_each(|row| *entries.entry(row.node).or_default() += row.entries + 1);
    entries.into_iter().max_by_key(|(_, entries)| *entries).map_or(0, |(node, _)| node)
}

#[cfg(test)]
mod tests {
    use cell_terms::NodeId;

    use super::*;
    use crate::api::tree::part::COLUMNS_MAX;
    use crate::api::tree::part::tests::{node, shape};

    /// Ascending keys of 16 bytes of which most are no text, the first one empty.
    fn keys(count: u64) -> Vec<Vec<u8>> {
        let key = |at: u64| {
            let spread = u128::from(at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mixed = u128::from(at) * (u128::MAX / u128::from(count)) + spread;
            mixed.to_be_bytes().to_vec()
        };
        (0..count).map(|at| if at == 0 { Vec::new() } else { key(at) }).collect()
    }

    /// A cluster of three nodes over these low keys, each with every third meganode.
    fn parts(lows: &[Vec<u8>]) -> Vec<NodePart<BucketsPart>> {
        let of_node = |own: u32| {
            let mut shapes = Vec::new();
            for (at, low) in lows.iter().enumerate() {
                if at % 3 == own as usize {
                    let high = lows.get(at + 1).map(Vec::as_slice);
                    shapes.push(shape(own, low, high, 1_000 + at as u64));
                }
            }
            let part = BucketsPart::new(&node(shapes, &[(own, 987_654_321)]), &KeyRange::default());
            NodePart { node: NodeId(own), part }
        };
        (0..3).map(of_node).collect()
    }

    fn whole(lows: &[Vec<u8>], columns: usize) -> Buckets {
        document(parts(lows), &KeyRange::default(), columns, None, &BTreeMap::new())
    }

    #[test]
    fn buckets_conserve_what_the_meganodes_have_and_cover_all_keys_in_order() {
        for (meganodes, columns) in [(1, 512), (3, 1), (511, 512), (512, 512), (513, 512), (2_000, 7)] {
            let lows = keys(meganodes);
            let document = whole(&lows, columns);
            let buckets = &document.buckets;
            assert!(buckets.len() <= columns && !buckets.is_empty());
            assert_eq!((&*buckets[0].low.hex, &buckets[buckets.len() - 1].high), ("", &None));
            assert!(buckets.windows(2).all(|pair| pair[0].high.as_ref() == Some(&pair[1].low)));
            let sum = |of: fn(&Bucket) -> u64| buckets.iter().map(of).sum::<u64>();
            assert_eq!(sum(|bucket| bucket.meganodes), meganodes);
            assert_eq!(sum(|bucket| bucket.entries), document.entries_all);
            assert_eq!(sum(|bucket| bucket.tree_nodes), 10 * meganodes);
            assert_eq!(sum(|bucket| bucket.bytes), 987_654_321 * meganodes.min(3));
            let single = buckets.iter().all(|bucket| bucket.id.is_some() == (bucket.meganodes == 1));
            assert!(single, "only a meganode alone is named");
        }
    }

    #[test]
    fn buckets_of_ten_thousand_meganodes_are_a_document_below_256_kib() {
        let lows = keys(10_000);
        let document = whole(&lows, COLUMNS_MAX);
        let json = serde_json::to_vec(&document).unwrap();
        assert!(json.len() < 256 << 10, "{} bytes", json.len());
        assert!(document.buckets.len() > 256, "{} buckets", document.buckets.len());
        assert_eq!((document.meganodes_all, document.levels_max), (10_000, 3));
        let part = serde_json::to_vec(&parts(&lows)[0].part).unwrap();
        assert!(part.len() < 1 << 20, "a node's part is {} bytes", part.len());
    }

    #[test]
    fn buckets_of_the_longest_keys_are_fewer() {
        let mut lows: Vec<_> = (0..600_u32).map(|at| [&[0; 789][..], &at.to_be_bytes()].concat()).collect();
        lows[0].clear();
        let document = whole(&lows, COLUMNS_MAX);
        assert!(serde_json::to_vec(&document).unwrap().len() < 256 << 10);
        assert_eq!(document.buckets.iter().map(|bucket| bucket.meganodes).sum::<u64>(), 600);
    }

    #[test]
    fn range_that_nobody_reports_is_a_bucket_of_its_own() {
        let lows = keys(3_000);
        let silent = |parts: Vec<NodePart<BucketsPart>>| parts.into_iter().filter(|part| part.node.0 != 1);
        let unreported = Some(Unreported { node: Some(1), pair: None });
        let few: Vec<_> = silent(parts(&lows[..9])).collect();
        let document = document(few, &KeyRange::default(), 512, unreported, &BTreeMap::new());
        let states: Vec<_> = document.buckets.iter().map(|bucket| (bucket.state, bucket.node)).collect();
        let reported = |node| ("entries", Some(node));
        assert_eq!(states[..4], [reported(0), ("not told", Some(1)), reported(2), reported(0)]);
        let many: Vec<_> = silent(parts(&lows)).collect();
        let document = super::document(many, &KeyRange::default(), 512, unreported, &BTreeMap::new());
        assert!(document.buckets.len() <= 512);
        assert!(document.buckets.iter().all(|bucket| bucket.state == "not told"), "in each are some");
        let mut rates = document.buckets.iter().map(|bucket| bucket.writes_per_second);
        assert!(rates.all(|rate| rate.is_none()), "a part's rate is not the whole's");
        let three = whole(&lows[..9], 3).buckets;
        assert!(three.iter().all(|bucket| bucket.writes_per_second == Some(6.0)), "of three of them");
        let one = vec![NodePart { node: NodeId(0), part: parts(&lows[..1]).remove(0).part }];
        let empty = super::document(Vec::new(), &KeyRange::default(), 4, None, &BTreeMap::new());
        assert_eq!((empty.buckets.len(), empty.high), (0, None));
        let one = super::document(one, &KeyRange::default(), 4, None, &BTreeMap::new());
        assert_eq!(one.buckets[0].id.as_deref(), Some("0.0"));
    }
}
