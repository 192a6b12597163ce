//! What a node reports of its meganodes to the one that makes the document: rows in key order, as short as
//! they can be, because there may be thousands.

use std::collections::BTreeMap;

use cell_node::{MeganodeShape, NodeSnapshot};
use data_encoding::{BASE64, HEXLOWER};
use serde::{Deserialize, Serialize};

use crate::api::cluster_status::Splits;
use crate::api::params::Params;
use crate::problem::Problem;
use crate::rates::fill;

/// A meganode of entries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeganodeRow {
    pub(crate) low: Vec<u8>,
    /// `None` for plus infinity.
    pub(crate) high: Option<Vec<u8>>,
    pub(crate) node: u32,
    pub(crate) pair: u32,
    pub(crate) slot: u32,
    pub(crate) height: u8,
    pub(crate) tree_nodes: u32,
    pub(crate) tree_nodes_all: u32,
    pub(crate) entries: u64,
    /// Of extents, about: the pair's, shared out by entries. Nobody counts them by meganode.
    pub(crate) bytes: u64,
    pub(crate) splitting: bool,
    pub(crate) writes_per_second: Option<f32>,
    pub(crate) reads_per_second: Option<f32>,
}

/// A meganode that leads to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RouterRow {
    pub(crate) id: String,
    pub(crate) pair: u32,
    pub(crate) node: u32,
    pub(crate) height: u8,
    pub(crate) entries: u64,
    pub(crate) fill: f64,
}

/// A node's part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BucketsPart {
    /// Of all its meganodes, wanted or not; so are entries and height.
    pub(crate) meganodes: u64,
    pub(crate) entries: u64,
    pub(crate) height: u8,
    /// The pairs that it reports.
    pub(crate) pairs: Vec<u32>,
    pub(crate) splits: Splits,
    pub(crate) router: Option<RouterRow>,
    rows: Vec<WireRow>,
}

/// A row without names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireRow(
    /// The low key in base 64.
    String,
    /// The high key in base 64; `=` if it is the next row's low key, empty for plus infinity.
    String,
    /// Pair and slot.
    [u32; 2],
    /// Levels.
    u8,
    /// Tree nodes, in use and all.
    [u32; 2],
    /// Entries and bytes.
    [u64; 2],
    /// Whether it is being split.
    bool,
    /// Writes and reads a second.
    [Option<f32>; 2],
);

/// A range of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) from: Vec<u8>,
    /// `None` for plus infinity.
    pub(crate) to: Option<Vec<u8>>,
}

/// Most columns that can be asked for.
pub(crate) const COLUMNS_MAX: usize = 512;

/// The `columns` that a request asks for.
pub(crate) fn columns(params: &mut Params) -> Result<usize, Problem> {
    let columns = params.integer("columns", 1..=COLUMNS_MAX as u64, COLUMNS_MAX as u64)?;
    Ok(usize::try_from(columns).unwrap_or(COLUMNS_MAX))
}

impl KeyRange {
    /// The range that a request names by `from` and `to`.
    pub(crate) fn of(params: &mut Params) -> Result<KeyRange, Problem> {
        let range = KeyRange { from: params.key("from")?.unwrap_or_default(), to: params.key("to")? };
        if range.to.as_ref().is_some_and(|to| *to <= range.from) {
            return Err(Params::refuse("to", "it is not behind `from`: the range has no keys".to_owned()));
        }
        Ok(range)
    }

    /// As a request's further parameters name it.
    pub(crate) fn in_query(&self) -> String {
        let mut query = String::new();
        if !self.from.is_empty() {
            query.push_str("&from=");
            query.push_str(&HEXLOWER.encode(&self.from));
        }
        if let Some(to) = &self.to {
            query.push_str("&to=");
            query.push_str(&HEXLOWER.encode(to));
        }
        query
    }

    pub(crate) fn meets(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        self.to.as_deref().is_none_or(|to| low < to) && high.is_none_or(|high| *high > *self.from)
    }
}

impl BucketsPart {
    /// Of a node's snapshot, with the meganodes that have keys of a range.
    pub(crate) fn new(snapshot: &NodeSnapshot, wanted: &KeyRange) -> BucketsPart {
        let shapes = &snapshot.tree.meganodes;
        let bytes = extent_bytes(snapshot);
        let wanted = shapes.iter().zip(bytes).filter(|(shape, _)| meets(wanted, shape)).collect::<Vec<_>>();
        let next = wanted.iter().skip(1).map(|(next, _)| Some(*next)).chain([None]);
        let rows = wanted.iter().zip(next).map(|((shape, bytes), next)| wire(shape, *bytes, next)).collect();
        BucketsPart {
            meganodes: shapes.len() as u64,
            entries: shapes.iter().map(|shape| shape.entries).sum(),
            height: shapes.iter().map(|shape| shape.height).max().unwrap_or(0),
            pairs: snapshot.tree.pairs.iter().map(|pair| pair.0).collect(),
            splits: Splits::of(&snapshot.splits),
            router: snapshot.tree.router.map(|router| RouterRow {
                id: id(router.pair.0, router.slot.0),
                pair: router.pair.0,
                node: snapshot.node.0,
                height: router.height,
                entries: router.entries,
                fill: fill(router.nodes.into(), router.nodes_all.into()),
            }),
            rows,
        }
    }

    /// The rows as `node` has sent them; those that do not read are left out.
    pub(crate) fn rows(self, node: u32) -> Vec<MeganodeRow> {
        let mut next: Option<Vec<u8>> = None;
        let mut rows: Vec<MeganodeRow> = Vec::with_capacity(self.rows.len());
        for WireRow(low, high, [pair, slot], height, nodes, [entries, bytes], splitting, rates) in
            self.rows.into_iter().rev()
        {
            let Ok(low) = BASE64.decode(low.as_bytes()) else { continue };
            let high = match &*high {
                "" => None,
                "=" => next,
                high => BASE64.decode(high.as_bytes()).ok(),
            };
            next = Some(low.clone());
            rows.push(MeganodeRow {
                low,
                high,
                node,
                pair,
                slot,
                height,
                tree_nodes: nodes[0],
                tree_nodes_all: nodes[1],
                entries,
                bytes,
                splitting,
                writes_per_second: rates[0],
                reads_per_second: rates[1],
            });
        }
        rows.reverse();
        rows
    }
}

fn meets(wanted: &KeyRange, shape: &MeganodeShape) -> bool {
    wanted.meets(&shape.low, shape.high.as_deref())
}

fn wire(shape: &MeganodeShape, bytes: u64, next: Option<&MeganodeShape>) -> WireRow {
    let high = match (&shape.high, next) {
        (None, _) => String::new(),
        (Some(high), Some(next)) if *high == next.low => "=".to_owned(),
        (Some(high), _) => BASE64.encode(high),
    };
    WireRow(
        BASE64.encode(&shape.low),
        high,
        [shape.pair.0, shape.slot.0],
        shape.height,
        [shape.nodes, shape.nodes_all],
        [shape.entries, bytes],
        shape.splitting,
        [shape.writes_per_second, shape.reads_per_second],
    )
}

/// The extent bytes of each meganode, about: those of its pair shared out by entries, so that they add up.
fn extent_bytes(snapshot: &NodeSnapshot) -> Vec<u64> {
    let mut entries: BTreeMap<u32, u64> = BTreeMap::new();
    let shapes = &snapshot.tree.meganodes;
    shapes.iter().for_each(|shape| *entries.entry(shape.pair.0).or_default() += shape.entries);
    let live = snapshot.pairs.iter().map(|pair| (pair.pair.0, pair.extent_live_bytes));
    let live: BTreeMap<u32, u64> = live.collect();
    let mut before: BTreeMap<u32, u64> = BTreeMap::new();
    let share = |shape: &MeganodeShape| {
        let pair = shape.pair.0;
        let all = entries.get(&pair).copied().unwrap_or(0).max(1);
        let live = live.get(&pair).copied().unwrap_or(0);
        let up_to = |entries: u64| u128::from(live) * u128::from(entries) / u128::from(all);
        let before = before.entry(pair).or_default();
        let begin = up_to(*before);
        *before += shape.entries;
        u64::try_from(up_to(*before) - begin).unwrap_or(u64::MAX)
    };
    shapes.iter().map(share).collect()
}

/// How a meganode is named.
pub(crate) fn id(pair: u32, slot: u32) -> String {
    format!("{pair}.{slot}")
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use cell_node::{PairSnapshot, TreeShape};
    use cell_terms::{PairId, SlotIndex};

    use super::*;
    use crate::test_snapshot::snapshot;

    pub(crate) fn shape(pair: u32, low: &[u8], high: Option<&[u8]>, entries: u64) -> MeganodeShape {
        MeganodeShape {
            pair: PairId(pair),
            slot: SlotIndex(low.first().copied().unwrap_or(0).into()),
            low: low.into(),
            high: high.map(Arc::from),
            height: 3,
            nodes: 10,
            nodes_all: 100,
            entries,
            splitting: false,
            writes_per_second: Some(2.0),
            reads_per_second: None,
        }
    }

    pub(crate) fn node(meganodes: Vec<MeganodeShape>, pairs: &[(u32, u64)]) -> NodeSnapshot {
        let pair = |(pair, live): &(u32, u64)| PairSnapshot {
            pair: PairId(*pair),
            extent_live_bytes: *live,
            ..PairSnapshot::default()
        };
        let tree = Arc::new(TreeShape { meganodes, ..TreeShape::default() });
        NodeSnapshot { tree, pairs: pairs.iter().map(pair).collect(), ..snapshot() }
    }

    fn sent(part: &BucketsPart) -> BucketsPart {
        serde_json::from_str(&serde_json::to_string(part).unwrap()).unwrap()
    }

    #[test]
    fn part_comes_back_as_it_was_sent() {
        let shapes = vec![
            shape(1, b"", Some(b"g"), 1),
            shape(1, b"g", Some(b"k"), 2),
            shape(2, b"p", Some(b"\xff"), 0),
            shape(2, b"\xff", None, 5),
        ];
        let part = BucketsPart::new(&node(shapes, &[(1, 1_000), (2, 7)]), &KeyRange::default());
        assert_eq!((part.meganodes, part.entries, part.height), (4, 8, 3));
        let rows = sent(&part).rows(3);
        let highs: Vec<_> = rows.iter().map(|row| row.high.as_deref()).collect();
        assert_eq!(highs, [Some(&b"g"[..]), Some(b"k"), Some(b"\xff"), None]);
        assert_eq!(rows.iter().map(|row| row.bytes).collect::<Vec<_>>(), [333, 667, 0, 7]);
        assert_eq!((rows[3].node, rows[3].pair, rows[3].slot), (3, 2, 255));
        assert_eq!((rows[0].writes_per_second, rows[0].reads_per_second), (Some(2.0), None));
    }

    #[test]
    fn part_of_a_range_has_the_meganodes_that_it_meets_and_the_sums_of_all() {
        let shapes = vec![
            shape(1, b"", Some(b"g"), 1),
            shape(1, b"g", Some(b"k"), 2),
            shape(1, b"k", Some(b"p"), 4),
            shape(1, b"p", None, 8),
        ];
        let lows = |from: &[u8], to: Option<&[u8]>| {
            let range = KeyRange { from: from.to_vec(), to: to.map(<[u8]>::to_vec) };
            let part = BucketsPart::new(&node(shapes.clone(), &[]), &range);
            assert_eq!((part.meganodes, part.entries), (4, 15));
            part.rows(1).into_iter().map(|row| row.low).collect::<Vec<_>>()
        };
        assert_eq!(lows(b"h", Some(b"k")), [b"g"]);
        assert_eq!(lows(b"k", Some(b"k\0")), [b"k"]);
        assert_eq!(lows(b"z", None), [b"p"]);
        assert_eq!(lows(b"", None).len(), 4);
    }
}
