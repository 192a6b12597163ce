//! `GET /api/v1/tree/heat`: how much each range of keys was written and read over the last hour, as the nodes
//! keep it: see [`crate::heat_history`].
//!
//! Each node reports the keys that it has now, by its ranges of now, and those that it had, by its ranges of
//! then. Where they begin and end, the ranges of the answer do: what was done in a node's range is shared
//! equally among those that it lies in. Neighbours are together where there are too many: of such a column
//! nothing is known in a step in which something of it is not, because a part's figure would pass for the
//! whole's. In a step in which keys came to another node both report them, each as long as they were its own:
//! the mean of both counts. Nothing is known of a step of which one of them knows nothing, unless the keys
//! came to it only later, or it had them before and has kept nothing since.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use data_encoding::{BASE64, HEXLOWER};
use serde::{Deserialize, Serialize, Serializer};

use super::part::{KeyRange, columns};
use crate::api::cluster;
use crate::api::document::{Document, Scope};
use crate::api::gathered::JSON_BYTES_MAX;
use crate::api::key::Key;
use crate::api::params::Params;
use crate::clock::now_unix_ms;
use crate::heat_history::{Heat, HeatRows};
use crate::peers::{Gathered, NodePart};
use crate::problem::Problem;
use crate::shared::Shared;

/// Most steps of an answer.
const STEPS_MAX: u64 = 60;
/// What a figure takes as JSON, about.
const FIGURE_JSON_BYTES: usize = 7;

/// A figure a second, with as many digits as people read.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
struct Rate(f64);

impl Rate {
    fn new(rate: f64) -> Rate {
        if rate >= 100.0 { Rate(rate.round()) } else { Rate((rate * 10.0).round() / 10.0) }
    }
}

/// Whole numbers without a point.
impl Serialize for Rate {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and not below 0")]
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 { to.serialize_u64(self.0 as u64) } else { to.serialize_f64(self.0) }
    }
}

/// A node's part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeatPart {
    /// Keys in base 64, no high one for plus infinity; whether the node has them no more.
    ranges: Vec<(String, Option<String>, bool)>,
    rows: Vec<WireRow>,
}

/// A step's number, then writes and reads by range; none where the node had not all of its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireRow(u64, Vec<Option<Rate>>, Vec<Option<Rate>>);

impl HeatPart {
    fn new(heat: &HeatRows, wanted: &KeyRange) -> HeatPart {
        let ranges = heat.ranges.iter().enumerate();
        let kept: Vec<_> =
            ranges.filter(|(_, range)| wanted.meets(&range.low, range.high.as_deref())).collect();
        let row = |(number, figures): &(u64, Vec<Option<Heat>>)| {
            let [writes, reads] = [0, 1].map(|kind| {
                let rate = |heat: Heat| Rate::new(heat[kind].into());
                kept.iter().map(|(at, _)| figures[*at].map(rate)).collect::<Vec<_>>()
            });
            WireRow(*number, writes, reads)
        };
        HeatPart {
            ranges: kept
                .iter()
                .map(|(_, range)| {
                    let high = range.high.as_ref().map(|key| BASE64.encode(key));
                    (BASE64.encode(&range.low), high, range.former)
                })
                .collect(),
            rows: heat.rows.iter().map(row).collect(),
        }
    }
}

/// The steps that are asked for.
#[derive(Clone, Copy, Debug)]
struct Steps {
    seconds: u64,
    last: u64,
    count: u64,
}

impl Steps {
    fn numbers(self) -> impl Iterator<Item = u64> {
        self.last.saturating_sub(self.count - 1)..=self.last
    }
}

/// What the nodes say together.
#[derive(Debug, Serialize)]
struct HeatBody {
    step_ms: u64,
    times_unix_ms: Vec<u64>,
    /// In hexadecimal digits.
    lows: Vec<String>,
    high: Option<Key>,
    writes: Vec<Option<Vec<Option<Rate>>>>,
    reads: Vec<Option<Vec<Option<Rate>>>>,
}

/// `GET /api/v1/tree/heat`.
pub(crate) async fn get_heat(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    let columns = columns(&mut params)?;
    let range = KeyRange::of(&mut params)?;
    let step_s = params.integer("step", 10..=60, 10)?;
    if !matches!(step_s, 10 | 60) {
        return Err(Params::refuse("step", "steps are of 10 or 60 seconds".to_owned()));
    }
    let seconds = params.integer("seconds", 10..=3_600, STEPS_MAX * step_s)?;
    let last = params.integer("last", 0..=u64::MAX, now_unix_ms() / 1_000 / step_s)?;
    params.end()?;
    let steps = Steps { seconds: step_s, last, count: seconds.div_ceil(step_s).min(STEPS_MAX) };
    let (snapshot, age) = shared.look();
    let own = HeatPart::new(&shared.history().heat(step_s, last, steps.count), &range);
    if scope == Scope::Node {
        return Ok(axum::Json(Document::of_node(own, age)).into_response());
    }
    if let Some(problem) = cluster::unseen(&snapshot) {
        return Err(problem);
    }
    let path = format!(
        "/api/v1/tree/heat?scope=node&step={step_s}&seconds={seconds}&last={last}{}",
        range.in_query()
    );
    let Gathered { parts, missing } = shared.gather(&snapshot, own, &path).await;
    let body = document(parts, &range, columns, steps);
    Ok(axum::Json(Document::of_cluster(body, age, missing)).into_response())
}

/// Where a range's figures are: a node's part, the range of it, and among how many ranges they are shared.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Source {
    part: usize,
    at: usize,
    former: bool,
    sharers: usize,
}

/// A range of keys, and whose figures it has a share of. Nobody's, if nobody reports it.
#[derive(Debug, PartialEq)]
struct HeatSpan {
    low: Vec<u8>,
    sources: Vec<Source>,
}

/// All ranges in the order of keys, without a gap and without overlap, and where the last one ends.
fn spans(parts: &[NodePart<HeatPart>], wanted: &KeyRange) -> (Vec<HeatSpan>, Option<Vec<u8>>) {
    let mut reported = Vec::new();
    for (part, NodePart { part: HeatPart { ranges, .. }, .. }) in parts.iter().enumerate() {
        for (at, (low, high, former)) in ranges.iter().enumerate() {
            let high = high.as_ref().map(|high| BASE64.decode(high.as_bytes())).transpose();
            // What does not read is left out.
            let (Ok(low), Ok(high)) = (BASE64.decode(low.as_bytes()), high) else { continue };
            reported.push((low, high, Source { part, at, former: *former, sharers: 1 }));
        }
    }
    let mut ends = reported.iter().map(|(_, high, _)| high.as_ref());
    let end = ends.try_fold(&wanted.from, |end, high| Some(end.max(high?)));
    // Where nobody reports up to the end of what is wanted, the last range ends there.
    let is_short = end.is_some_and(|end| wanted.to.as_ref().is_none_or(|to| end < to));
    let high = if is_short { wanted.to.clone() } else { end.cloned() };
    let mut lows: Vec<&[u8]> = reported.iter().map(|(low, ..)| &**low).collect();
    lows.extend(reported.iter().filter_map(|(_, high, _)| high.as_deref()));
    lows.retain(|low| high.as_ref().is_none_or(|high| *low < &**high));
    if lows.iter().all(|low| *low > &*wanted.from) {
        lows.push(&wanted.from);
    }
    lows.sort_unstable();
    lows.dedup();
    let mut spans: Vec<HeatSpan> =
        lows.iter().map(|low| HeatSpan { low: low.to_vec(), sources: Vec::new() }).collect();
    for (low, high, source) in &reported {
        let first = lows.partition_point(|other| *other < &**low);
        let end = high.as_ref().map_or(lows.len(), |high| lows.partition_point(|other| *other < &**high));
        let sharers = end.saturating_sub(first);
        spans[first..first + sharers]
            .iter_mut()
            .for_each(|span| span.sources.push(Source { sharers, ..*source }));
    }
    (spans, high)
}

/// A node's row of a step, or the next one that it has after that step.
#[derive(Clone, Copy)]
struct FoundRow<'r> {
    row: &'r WireRow,
    is_of_step: bool,
}

/// Of each step, in order: what each part has, none if it has nothing then or later.
fn found_rows(parts: &[NodePart<HeatPart>], steps: Steps) -> Vec<Vec<Option<FoundRow<'_>>>> {
    let by_number: Vec<BTreeMap<u64, &WireRow>> =
        parts.iter().map(|part| part.part.rows.iter().map(|row| (row.0, row)).collect()).collect();
    let of_step = |number: u64| {
        let found = by_number.iter().map(|rows| {
            let (&found, &row) = rows.range(number..).next()?;
            Some(FoundRow { row, is_of_step: found == number })
        });
        found.collect()
    };
    steps.numbers().map(of_step).collect()
}

/// Writes or reads of a row.
type RatesOf = fn(&WireRow) -> &Vec<Option<Rate>>;

/// A node's figure in a step, for one of the ranges that share it. None: the node knows nothing of the step.
/// Within: none of the range's keys were its own then, as in the steps before it began to keep any, or after
/// it stood still, if they were not in the next; or it has kept nothing since it had them.
fn figure(found: Option<FoundRow<'_>>, source: Source, of: RatesOf) -> Option<Option<f64>> {
    let Some(FoundRow { row, is_of_step }) = found else { return source.former.then_some(None) };
    let rate = *of(row).get(source.at)?;
    let share = |rate: Rate| rate.0 / f64::from(u32::try_from(source.sharers).unwrap_or(u32::MAX));
    if is_of_step { Some(rate.map(share)) } else { rate.is_none().then_some(None) }
}

/// A range's figure in a step, of which these are the rows of all parts.
fn figure_of_span(found: &[Option<FoundRow<'_>>], span: &HeatSpan, of: RatesOf) -> Option<f64> {
    // Those who have the keys add up; of that and what each former owner did, the mean counts.
    let (mut of_now, mut means) = (None, Vec::new());
    for source in &span.sources {
        match figure(found[source.part], *source, of)? {
            Some(rate) if source.former => means.push(rate),
            Some(rate) => of_now = Some(of_now.unwrap_or(0.0) + rate),
            None => {}
        }
    }
    means.extend(of_now);
    let count = u32::try_from(means.len()).unwrap_or(u32::MAX);
    (count > 0).then(|| means.iter().sum::<f64>() / f64::from(count))
}

fn document(parts: Vec<NodePart<HeatPart>>, range: &KeyRange, columns: usize, steps: Steps) -> HeatBody {
    let (spans, high) = spans(&parts, range);
    let step_ms = steps.seconds * 1_000;
    let count = usize::try_from(steps.count).unwrap_or(usize::MAX);
    let columns: Vec<&[HeatSpan]> = spans.chunks(size_of_column(&spans, columns, count)).collect();
    let found = found_rows(&parts, steps);
    let rows = |of: RatesOf| {
        let cell = |found: &[Option<FoundRow<'_>>], column: &[HeatSpan]| {
            let whole: Option<f64> = column.iter().map(|span| figure_of_span(found, span, of)).sum();
            whole.map(Rate::new)
        };
        let row = |found: &Vec<Option<FoundRow<'_>>>| {
            let cells: Vec<_> = columns.iter().map(|column| cell(found, column)).collect();
            cells.iter().any(Option::is_some).then_some(cells)
        };
        found.iter().map(row).collect()
    };
    HeatBody {
        step_ms,
        times_unix_ms: steps.numbers().map(|number| number.saturating_mul(step_ms)).collect(),
        lows: columns.iter().map(|column| HEXLOWER.encode(&column[0].low)).collect(),
        high: high.as_deref().map(Key::new),
        writes: rows(|row| &row.1),
        reads: rows(|row| &row.2),
    }
}

/// How many spans are together, so that there are at most so many columns and the answer is not too long.
fn size_of_column(spans: &[HeatSpan], columns: usize, steps: usize) -> usize {
    let mut size = spans.len().div_ceil(columns).max(1);
    let bytes = |size: usize| {
        let keys: usize = spans.chunks(size).map(|column| 2 * column[0].low.len() + 3).sum();
        keys + 2 * steps * spans.len().div_ceil(size) * FIGURE_JSON_BYTES
    };
    while size < spans.len() && bytes(size) > JSON_BYTES_MAX {
        size += 1;
    }
    size
}

#[cfg(test)]
mod tests {
    use cell_terms::NodeId;

    use super::*;
    use crate::api::tree::part::COLUMNS_MAX;
    use crate::heat_history::HeatRange;

    /// A node's part: ranges, and their writes at steps.
    fn part(node: u32, ranges: &[(&str, &str)], rows: &[(u64, &[f32])]) -> NodePart<HeatPart> {
        let key = |key: &str| Arc::from(key.as_bytes());
        // `-` before the low key: the node has them no more.
        let range = |(low, high): &(&str, &str)| HeatRange {
            low: key(low.trim_start_matches('-')),
            high: (!high.is_empty()).then(|| key(high)),
            former: low.starts_with('-'),
        };
        let row = |(number, writes): &(u64, &[f32])| {
            // NaN: not known.
            let heat = |writes: &f32| (!writes.is_nan()).then_some([*writes, 0.0]);
            (*number, writes.iter().map(heat).collect())
        };
        let heat =
            HeatRows { ranges: ranges.iter().map(range).collect(), rows: rows.iter().map(row).collect() };
        let sent = serde_json::to_string(&HeatPart::new(&heat, &KeyRange::default())).unwrap();
        NodePart { node: NodeId(node), part: serde_json::from_str(&sent).unwrap() }
    }

    const STEPS: Steps = Steps { seconds: 10, last: 7, count: 3 };

    fn reported(parts: Vec<NodePart<HeatPart>>, range: &KeyRange, columns: usize) -> serde_json::Value {
        serde_json::to_value(document(parts, range, columns, STEPS)).unwrap()
    }

    #[test]
    fn document_has_all_nodes_ranges_in_order_and_null_where_nothing_is_known() {
        let parts = || {
            vec![
                part(0, &[("", "c"), ("g", "p")], &[(6, &[1.0, 2.5]), (7, &[3.0, 123.4])]),
                part(1, &[("c", "g")], &[(7, &[9.0])]),
            ]
        };
        let all = reported(parts(), &KeyRange::default(), 512);
        assert_eq!(all["lows"], serde_json::json!(["", "63", "67", "70"]), "nobody reports those from p on");
        assert_eq!((&all["high"], &all["step_ms"]), (&serde_json::Value::Null, &10_000.into()));
        assert_eq!(all["times_unix_ms"], serde_json::json!([50_000, 60_000, 70_000]));
        let writes = serde_json::json!([null, [1, null, 2.5, null], [3, 9, 123, null]]);
        assert_eq!((&all["writes"], &all["reads"][2][0]), (&writes, &0.into()));
        let two = reported(parts(), &KeyRange::default(), 2);
        assert_eq!(two["lows"], serde_json::json!(["", "67"]));
        let nothing_of_a_part = serde_json::json!([null, null, [12, null]]);
        assert_eq!(two["writes"], nothing_of_a_part, "a part's figure is not the whole's");
        let none = reported(Vec::new(), &KeyRange { from: b"a".to_vec(), to: Some(b"b".to_vec()) }, 9);
        assert_eq!((&none["lows"], &none["high"]["text"]), (&serde_json::json!(["61"]), &"b".into()));
        assert_eq!(none["writes"], serde_json::json!([null, null, null]));
    }

    #[test]
    fn document_of_keys_that_went_to_another_node_has_what_both_did() {
        let parts = vec![
            part(0, &[("", "m"), ("m", "")], &[(7, &[1.0, 2.0])]),
            part(1, &[("m", "")], &[(7, &[4.0])]),
        ];
        let all = reported(parts, &KeyRange::default(), 512);
        assert_eq!(
            (&all["lows"], &all["writes"][2]),
            (&serde_json::json!(["", "6d"]), &serde_json::json!([1, 6]))
        );
    }

    /// Who has the keys now does not know of before, and who had them had cut them otherwise.
    #[test]
    fn document_of_keys_that_moved_has_what_was_done_before_shared_by_the_ranges_of_now() {
        let unknown = f32::NAN;
        let parts = vec![
            part(0, &[("", "m"), ("-m", "")], &[(5, &[1.0, 8.0]), (6, &[1.0, 6.0]), (7, &[2.0, unknown])]),
            // It was new in the sixth step, got them then, and split them.
            part(1, &[("m", "t"), ("t", "")], &[(6, &[unknown, unknown]), (7, &[3.0, 4.0])]),
        ];
        let all = reported(parts, &KeyRange::default(), 512);
        assert_eq!(all["lows"], serde_json::json!(["", "6d", "74"]));
        assert_eq!(all["writes"], serde_json::json!([[1, 4, 4], [1, 3, 3], [2, 3, 4]]));
        // Each knows the step of the move as long as they were its own.
        let parts = vec![part(0, &[("-", "")], &[(7, &[8.0])]), part(1, &[("", "")], &[(7, &[4.0])])];
        assert_eq!(reported(parts, &KeyRange::default(), 9)["writes"], serde_json::json!([null, null, [6]]));
    }

    /// What one of two did passed for what was done.
    #[test]
    fn document_of_steps_of_which_one_of_two_nodes_knows_nothing_is_null() {
        let part_of = |node, rows: &[(u64, &[f32])]| part(node, &[("", "")], rows);
        // The second one is new, or was started again, or stood still.
        let parts = vec![part_of(0, &[(5, &[1.0]), (6, &[2.0]), (7, &[3.0])]), part_of(1, &[(7, &[4.0])])];
        let all = reported(parts, &KeyRange::default(), 512);
        assert_eq!(all["writes"], serde_json::json!([null, null, [7]]));
        // It was there, and the keys were the other one's; at first somebody else's, who has died.
        let parts = vec![
            part_of(0, &[(5, &[f32::NAN]), (6, &[2.0]), (7, &[3.0])]),
            part_of(1, &[(5, &[f32::NAN]), (6, &[f32::NAN]), (7, &[4.0])]),
        ];
        let all = reported(parts, &KeyRange::default(), 512);
        assert_eq!(all["writes"], serde_json::json!([null, [2], [7]]));
    }

    /// A step begins at one node sooner than at another: until it did at the former owner, the new owner's
    /// figures of it were hidden.
    #[test]
    fn document_of_a_step_of_which_the_former_owner_has_no_row_has_what_the_new_one_did() {
        let parts = vec![
            part(0, &[("-", "")], &[(6, &[6.0])]),
            part(1, &[("", "")], &[(6, &[f32::NAN]), (7, &[3.0])]),
        ];
        let all = reported(parts, &KeyRange::default(), 512);
        assert_eq!(all["writes"], serde_json::json!([null, [6], [3]]));
    }

    #[test]
    fn document_of_a_part_of_the_keys_ends_with_the_ranges_that_have_some() {
        let range = KeyRange { from: b"d".to_vec(), to: Some(b"e".to_vec()) };
        let heat = HeatRows {
            ranges: vec![
                HeatRange { low: Arc::from(&b""[..]), high: Some(Arc::from(&b"c"[..])), former: false },
                HeatRange { low: Arc::from(&b"c"[..]), high: Some(Arc::from(&b"g"[..])), former: false },
            ],
            rows: vec![(7, vec![Some([5.0, 0.0]), Some([6.0, 1.0])])],
        };
        let part = NodePart { node: NodeId(0), part: HeatPart::new(&heat, &range) };
        let some = reported(vec![part], &range, 512);
        assert_eq!((&some["lows"], &some["high"]["text"]), (&serde_json::json!(["63"]), &"g".into()));
        assert_eq!(some["reads"][2], serde_json::json!([1]));
    }

    #[test]
    fn document_of_the_longest_keys_and_most_figures_is_below_256_kib() {
        for key_bytes in [6, 789] {
            let keys: Vec<String> = (0..1_000).map(|at| format!("{at:0>key_bytes$}")).collect();
            let ranges: Vec<(&str, &str)> = keys
                .iter()
                .enumerate()
                .map(|(at, low)| {
                    let low = if at == 0 { "" } else { low };
                    (low, keys.get(at + 1).map_or("", |key| key))
                })
                .collect();
            let writes = vec![123_456.0_f32; ranges.len()];
            let rows: Vec<(u64, &[f32])> = (1..=60).map(|number| (number, &*writes)).collect();
            let steps = Steps { seconds: 60, last: 60, count: 60 };
            let whole = document(vec![part(0, &ranges, &rows)], &KeyRange::default(), COLUMNS_MAX, steps);
            let json = serde_json::to_string(&whole).unwrap();
            assert!(json.len() < 256 << 10 && whole.lows.len() > 90, "{} bytes", json.len());
            let sum: f64 = whole.writes[0].as_ref().unwrap().iter().flatten().map(|rate| rate.0).sum();
            assert!((sum - 123_456_000.0).abs() < 1.0, "{sum}");
        }
    }
}
