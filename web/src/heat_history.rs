//! How much each range of a node's keys was written and read over the last hour, also one-sidedly as far as
//! clients report: a row for each ten seconds.
//! A pure core: it is shown a node's tree once a second.
//!
//! A range is a meganode, or several neighbours where a node has many, so that a row is bounded. A row keeps
//! the ranges as they were then. Whoever asks gets all rows by the ranges of now: what a range of then did
//! is shared equally among the ranges of now that have keys of it. So a split shows both halves half as hot
//! as the whole was. Of keys that came to the node later it does not know what was done before; their former
//! owner does, which is why keys that the node has no more have ranges too: as they last were.

use std::collections::VecDeque;
use std::sync::Arc;

use cell_node::{MeganodeShape, TreeShape};

/// Seconds of a row.
pub(crate) const STEP_S: u64 = 10;
/// Rows that are kept: an hour.
pub(crate) const ROWS_MAX: usize = 360;
/// Ranges of a row at most, unless keys left in its step. With 12 bytes for each, two rates and whether they
/// are known, an hour is 1,080 KiB; with [`ANSWERED_MAX`] in each step, 2,160 KiB. The ranges themselves, of
/// 40 bytes and two keys, come on top; rows share them until they change.
pub(crate) const RANGES_MAX: usize = 256;
/// Ranges of an answer, or of a step in which keys left, those of keys that the node has no more included:
/// more of these are left out.
const ANSWERED_MAX: usize = 2 * RANGES_MAX;

/// Keys from one to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeatRange {
    pub(crate) low: Arc<[u8]>,
    /// `None` for plus infinity.
    pub(crate) high: Option<Arc<[u8]>>,
    /// The node has these keys no more.
    pub(crate) former: bool,
}

impl HeatRange {
    fn ends_by(&self, key: &[u8]) -> bool {
        self.high.as_deref().is_some_and(|high| high <= key)
    }

    fn begins_before(&self, key: Option<&[u8]>) -> bool {
        key.is_none_or(|key| *self.low < *key)
    }
}

/// Writes and reads a second.
pub(crate) type Heat = [f32; 2];

/// The first and the last of other ranges that have keys of a range; none if no other one has.
type Place = Option<(usize, usize)>;

/// A step's heat by the ranges of then: those at its end, and those of keys that left in it.
#[derive(Clone, Debug, Default)]
struct Row {
    number: u64,
    ranges: Arc<[HeatRange]>,
    /// Of each range; none: not known.
    heat: Vec<Option<Heat>>,
}

/// The step that is not over, likewise.
#[derive(Clone, Debug)]
struct OpenRow {
    number: u64,
    ranges: Arc<[HeatRange]>,
    /// Of each range.
    sums: Vec<HeatSum>,
}

/// Heat over the looks at which it was known.
#[derive(Clone, Copy, Debug, Default)]
struct HeatSum {
    heat: Heat,
    looks: u16,
}

impl HeatSum {
    fn add(&mut self, heat: Option<Heat>) {
        if let Some(heat) = heat {
            add(&mut self.heat, heat);
            self.looks = self.looks.saturating_add(1);
        }
    }

    fn mean(self) -> Option<Heat> {
        (self.looks > 0).then(|| self.heat.map(|sum| sum / f32::from(self.looks)))
    }
}

impl OpenRow {
    fn mean(&self) -> Row {
        let heat = self.sums.iter().map(|sum| sum.mean()).collect();
        Row { number: self.number, ranges: Arc::clone(&self.ranges), heat }
    }
}

/// Rows by the ranges of now, and by those that keys had last which the node has no more.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct HeatRows {
    pub(crate) ranges: Vec<HeatRange>,
    /// By number, ascending; a step of which nothing is known has none. Of each range: none, where the node
    /// had not all of its keys then.
    pub(crate) rows: Vec<(u64, Vec<Option<Heat>>)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct HeatHistory {
    rows: VecDeque<Row>,
    open: Option<OpenRow>,
}

impl HeatHistory {
    /// A look at the tree in this second: a node without meganodes has no keys. Without a rate of any
    /// meganode there is nothing to keep.
    pub(crate) fn observe(&mut self, second: u64, tree: &TreeShape) {
        let number = second / STEP_S;
        let is_over = self.rows.back().is_some_and(|row| row.number >= number);
        if is_over || self.open.as_ref().is_some_and(|open| open.number > number) {
            return;
        }
        if let Some(over) = self.open.take_if(|open| open.number < number) {
            if self.rows.len() == ROWS_MAX {
                self.rows.pop_front();
            }
            self.rows.push_back(over.mean());
        }
        if !tree.meganodes.is_empty() && tree.meganodes.iter().all(|shape| heat_of(shape).is_none()) {
            return;
        }
        if self.rows.is_empty() && self.open.is_none() && tree.meganodes.is_empty() {
            // What comes to it within this step was another node's in the steps before.
            self.rows.push_back(Row { number: number.saturating_sub(1), ..Row::default() });
        }
        let look = grouped(&tree.meganodes);
        let open = self.open.get_or_insert_with(|| {
            let ranges = self.rows.back().map(|row| of_now(&row.ranges)).unwrap_or_default();
            OpenRow { number, sums: vec![HeatSum::default(); ranges.len()], ranges }
        });
        open.add(look);
    }

    /// The heat of so many steps up to the one with the number `last`, a step of so many rows. The wall
    /// clock, by which steps are numbered, is so many rows ahead of the numbers here.
    pub(crate) fn rows(&self, ahead: i64, rows_a_step: u64, last: u64, steps: u64) -> HeatRows {
        let open = self.open.as_ref().map(OpenRow::mean);
        let all = || self.rows.iter().chain(&open);
        let Some(newest) = all().next_back() else { return HeatRows::default() };
        let first = last.saturating_sub(steps.saturating_sub(1));
        let step_of = |row: &Row| row.number.saturating_add_signed(ahead) / rows_a_step.max(1);
        let wanted = all().filter(|row| (first..=last).contains(&step_of(row)));
        let ranges = &with_former(&newest.ranges, wanted.clone().rev());
        let mut known: Option<(&Arc<[HeatRange]>, Vec<Place>)> = None;
        let mut sums: Vec<(u64, Vec<HeatSum>)> = Vec::new();
        for row in wanted {
            let number = step_of(row);
            if sums.last().is_none_or(|(before, ..)| *before != number) {
                sums.push((number, vec![HeatSum::default(); ranges.len()]));
            }
            let Some((_, sums)) = sums.last_mut() else { continue };
            if Arc::ptr_eq(&row.ranges, ranges) {
                sums.iter_mut().zip(&row.heat).for_each(|(sum, heat)| sum.add(*heat));
                continue;
            }
            if known.as_ref().is_none_or(|(of, _)| !Arc::ptr_eq(of, &row.ranges)) {
                known = Some((&row.ranges, places(&row.ranges, ranges)));
            }
            if let Some((_, places)) = &known {
                let heat = spread((&row.ranges, &row.heat), places, ranges);
                sums.iter_mut().zip(heat).for_each(|(sum, heat)| sum.add(heat));
            }
        }
        let mean =
            |(number, sums): (u64, Vec<HeatSum>)| (number, sums.into_iter().map(HeatSum::mean).collect());
        HeatRows { ranges: ranges.to_vec(), rows: sums.into_iter().map(mean).collect() }
    }
}

/// Those of keys that the node has.
fn of_now(ranges: &Arc<[HeatRange]>) -> Arc<[HeatRange]> {
    if ranges.iter().any(|range| range.former) {
        ranges.iter().filter(|range| !range.former).cloned().collect()
    } else {
        Arc::clone(ranges)
    }
}

/// With the ranges of keys that are in none of these, as rows know them: each key's by the newest such row,
/// which comes first.
fn with_former<'a>(ranges: &Arc<[HeatRange]>, rows: impl Iterator<Item = &'a Row>) -> Arc<[HeatRange]> {
    let mut all = Arc::clone(ranges);
    let mut seen = ranges;
    for row in rows {
        if Arc::ptr_eq(&row.ranges, seen) {
            continue;
        }
        seen = &row.ranges;
        let known = row.ranges.iter().zip(&row.heat).filter(|(_, heat)| heat.is_some());
        let mut former: Vec<HeatRange> = known.flat_map(|(range, _)| outside(range, &all)).collect();
        former.truncate(ANSWERED_MAX.saturating_sub(all.len()));
        if former.is_empty() {
            continue;
        }
        former.extend_from_slice(&all);
        former.sort_by(|left, right| left.low.cmp(&right.low));
        all = former.into();
    }
    all
}

/// What of a range is in none of others, which are in order and do not overlap.
fn outside(range: &HeatRange, others: &[HeatRange]) -> Vec<HeatRange> {
    let first = others.partition_point(|other| other.ends_by(&range.low));
    let mut outside = Vec::new();
    let mut low = Arc::clone(&range.low);
    for other in others[first..].iter().take_while(|other| other.begins_before(range.high.as_deref())) {
        if low < other.low {
            outside.push(HeatRange { low, high: Some(Arc::clone(&other.low)), former: true });
        }
        let Some(high) = &other.high else { return outside };
        low = Arc::clone(high);
    }
    if range.high.as_ref().is_none_or(|high| low < *high) {
        outside.push(HeatRange { low, high: range.high.clone(), former: true });
    }
    outside
}

impl OpenRow {
    fn add(&mut self, look: Vec<(HeatRange, Option<Heat>)>) {
        let known = self.ranges.iter().filter(|range| !range.former);
        if !known.eq(look.iter().map(|(range, _)| range)) {
            let row = self.mean();
            let now: Arc<[HeatRange]> = look.iter().map(|(range, _)| range.clone()).collect();
            let ranges = with_former(&now, std::iter::once(&row));
            let heat = spread((&row.ranges, &row.heat), &places(&row.ranges, &ranges), &ranges);
            // The looks so far count as much for keys that were there at all of them.
            let looks = self.sums.iter().map(|sum| sum.looks).max().unwrap_or_default();
            let sum = |heat: Option<Heat>| match heat {
                Some(heat) => HeatSum { heat: heat.map(|rate| rate * f32::from(looks)), looks },
                None => HeatSum::default(),
            };
            (self.ranges, self.sums) = (ranges, heat.into_iter().map(sum).collect());
        }
        let sums = self.ranges.iter().zip(&mut self.sums).filter(|(range, _)| !range.former);
        for ((_, sum), (_, heat)) in sums.zip(look) {
            sum.add(heat);
        }
    }
}

fn add(sum: &mut Heat, heat: Heat) {
    sum.iter_mut().zip(heat).for_each(|(sum, rate)| *sum += rate);
}

/// Where each range lies among others, which are in order and do not overlap.
fn places(ranges: &[HeatRange], among: &[HeatRange]) -> Vec<Place> {
    let place = |range: &HeatRange| {
        let first = among.partition_point(|other| other.ends_by(&range.low));
        let end = among.partition_point(|other| other.begins_before(range.high.as_deref()));
        (first < end).then(|| (first, end - 1))
    };
    ranges.iter().map(place).collect()
}

/// The heat of ranges by others, equal parts to all in which they lie; none where some keys are in no range
/// of known heat.
#[allow(clippy::cast_precision_loss, reason = "there are at most 512 ranges")]
fn spread(
    (ranges, heat): (&[HeatRange], &[Option<Heat>]),
    places: &[Place],
    to: &[HeatRange],
) -> Vec<Option<Heat>> {
    let mut sums = vec![Heat::default(); to.len()];
    // Up to where the keys of each are in ranges of known heat, without a gap; none: to plus infinity.
    let mut ends: Vec<Option<&[u8]>> = to.iter().map(|range| Some(&*range.low)).collect();
    for ((range, heat), place) in ranges.iter().zip(heat).zip(places) {
        let (Some((first, last)), Some(heat)) = (*place, heat) else { continue };
        let parts = (last - first + 1) as f32;
        for at in first..=last {
            add(&mut sums[at], heat.map(|rate| rate / parts));
            if ends[at].is_some_and(|end| *range.low <= *end) {
                ends[at] = range.high.as_deref();
            }
        }
    }
    let is_whole = |range: &HeatRange, end: Option<&[u8]>| match (end, range.high.as_deref()) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(end), Some(high)) => end >= high,
    };
    let all = to.iter().zip(ends).zip(sums);
    all.map(|((range, end), sum)| is_whole(range, end).then_some(sum)).collect()
}

/// Meganodes in at most [`RANGES_MAX`] ranges. Only neighbours are together, unless too many of them have
/// none: then a range has keys of other nodes between its own.
fn grouped(meganodes: &[MeganodeShape]) -> Vec<(HeatRange, Option<Heat>)> {
    let runs: Vec<&[MeganodeShape]> =
        meganodes.chunk_by(|left, right| left.high.as_deref() == Some(&*right.low)).collect();
    let runs = if runs.len() > RANGES_MAX { vec![meganodes] } else { runs };
    let count = |size: usize| runs.iter().map(|run| run.len().div_ceil(size)).sum::<usize>();
    let least = meganodes.len().div_ceil(RANGES_MAX).max(1);
    let size = (least..=meganodes.len()).find(|size| count(*size) <= RANGES_MAX).unwrap_or(least);
    runs.iter().flat_map(|run| run.chunks(size)).map(range).collect()
}

/// Several meganodes as one range, of which nothing is known as long as of one of them nothing is.
fn range(meganodes: &[MeganodeShape]) -> (HeatRange, Option<Heat>) {
    let (first, last) = (&meganodes[0], &meganodes[meganodes.len() - 1]);
    let heat = meganodes.iter().try_fold(Heat::default(), |mut sum, shape| {
        add(&mut sum, heat_of(shape)?);
        Some(sum)
    });
    (HeatRange { low: first.low.clone(), high: last.high.clone(), former: false }, heat)
}

/// None of a meganode that was seen only once.
fn heat_of(shape: &MeganodeShape) -> Option<Heat> {
    Some([shape.writes_per_second?, shape.reads_per_second?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tree::test_shape;

    /// A tree of one node: keys at which meganodes begin, and what each is written and read a second.
    fn tree(meganodes: &[(&str, Heat)]) -> TreeShape {
        let high = |at: usize| meganodes.get(at + 1).map(|(low, _)| low.as_bytes());
        let shape = |(at, (low, [writes, reads])): (usize, &(&str, Heat))| MeganodeShape {
            writes_per_second: Some(*writes),
            reads_per_second: Some(*reads),
            ..test_shape(1, low.as_bytes(), high(at), 1)
        };
        TreeShape { meganodes: meganodes.iter().enumerate().map(shape).collect(), ..TreeShape::default() }
    }

    /// Of each range, all of them known.
    fn known<const N: usize>(heat: [Heat; N]) -> Vec<Option<Heat>> {
        heat.into_iter().map(Some).collect()
    }

    fn lows(rows: &HeatRows) -> Vec<&[u8]> {
        rows.ranges.iter().map(|range| &*range.low).collect()
    }

    #[test]
    fn rows_are_the_means_of_their_seconds_and_the_step_that_is_not_over_is_returned() {
        let mut history = HeatHistory::default();
        for second in 100..115 {
            let rate = if second < 105 { 4.0 } else { 8.0 };
            history.observe(second, &tree(&[("", [rate, 0.0]), ("m", [0.0, 1.0])]));
        }
        let rows = history.rows(0, 1, 11, 60);
        assert_eq!(lows(&rows), [&b""[..], b"m"]);
        assert_eq!(rows.rows, [(10, known([[6.0, 0.0], [0.0, 1.0]])), (11, known([[8.0, 0.0], [0.0, 1.0]]))]);
        assert_eq!(history.rows(0, 1, 10, 1).rows, [(10, known([[6.0, 0.0], [0.0, 1.0]]))]);
        assert_eq!(history.rows(5, 1, 16, 2).rows.len(), 2, "by a clock that was set");
        assert_eq!(history.rows(0, 6, 1, 60).rows, [(1, known([[7.0, 0.0], [0.0, 1.0]]))], "of a minute");
    }

    #[test]
    fn split_shares_what_the_whole_did_equally() {
        let mut history = HeatHistory::default();
        history.observe(100, &tree(&[("", [4.0, 2.0]), ("m", [1.0, 1.0])]));
        history.observe(110, &tree(&[("", [0.0, 0.0]), ("f", [6.0, 0.0]), ("m", [0.0, 0.0])]));
        let rows = history.rows(0, 1, 11, 2);
        assert_eq!(rows.rows[0], (10, known([[2.0, 1.0], [2.0, 1.0], [1.0, 1.0]])));
        assert_eq!(rows.rows[1], (11, known([[0.0, 0.0], [6.0, 0.0], [0.0, 0.0]])));
        // Within a step likewise.
        history.observe(
            111,
            &tree(&[("", [8.0, 0.0]), ("f", [2.0, 0.0]), ("m", [0.0, 0.0]), ("t", [0.0, 0.0])]),
        );
        assert_eq!(
            history.rows(0, 1, 11, 1).rows,
            [(11, known([[4.0, 0.0], [4.0, 0.0], [0.0; 2], [0.0; 2]]))]
        );
    }

    /// A tree as it is without the meganodes at these places.
    fn without(mut tree: TreeShape, gone: &[usize]) -> TreeShape {
        let mut at = 0..;
        tree.meganodes.retain(|_| !at.next().is_some_and(|at| gone.contains(&at)));
        tree
    }

    /// What keys were written before they moved was known to nobody: not to who has them now, and who had
    /// them left them out.
    #[test]
    fn keys_that_the_node_has_no_more_are_known_as_they_were() {
        let mut history = HeatHistory::default();
        let all = || tree(&[("", [4.0, 0.0]), ("g", [2.0, 0.0]), ("m", [1.0, 0.0]), ("t", [1.0, 0.0])]);
        history.observe(100, &tree(&[("", [8.0, 0.0]), ("m", [2.0, 0.0])]));
        history.observe(110, &all());
        history.observe(120, &without(all(), &[1, 2]));
        let rows = history.rows(0, 1, 12, 3);
        assert_eq!(lows(&rows), [&b""[..], b"g", b"m", b"t"]);
        assert_eq!(rows.rows[0], (10, known([[4.0, 0.0], [4.0, 0.0], [1.0, 0.0], [1.0, 0.0]])));
        assert_eq!(rows.rows[1], (11, known([[4.0, 0.0], [2.0, 0.0], [1.0, 0.0], [1.0, 0.0]])));
        assert_eq!(rows.rows[2], (12, vec![Some([4.0, 0.0]), None, None, Some([1.0, 0.0])]));
        // Split and gone between two looks; then it has none at all, and all are known as they were.
        history
            .observe(130, &without(tree(&[("", [4.0, 0.0]), ("c", [4.0, 0.0]), ("e", [0.0; 2])]), &[1, 2]));
        history.observe(140, &TreeShape::default());
        let rows = history.rows(0, 1, 14, 3);
        assert_eq!(lows(&rows), [&b""[..], b"c", b"t"]);
        assert_eq!(rows.rows[0], (12, known([[2.0, 0.0], [2.0, 0.0], [1.0, 0.0]])));
        assert_eq!(rows.rows[1], (13, vec![Some([4.0, 0.0]), None, None]));
        assert_eq!(rows.rows[2], (14, vec![None; 3]));
        assert_eq!(lows(&history.rows(0, 1, 14, 1)), [&b""[..]; 0], "of no row that was asked for");
    }

    /// A node that joined a cluster hid what was done before to all keys that came to it at once.
    #[test]
    fn keys_that_came_in_the_first_step_of_a_node_without_any_were_not_its_own_before() {
        let mut history = HeatHistory::default();
        history.observe(100, &TreeShape::default());
        history.observe(101, &tree(&[("", [4.0, 0.0])]));
        assert_eq!(history.rows(0, 1, 10, 9).rows, [(9, vec![None]), (10, known([[4.0, 0.0]]))]);
        // Of one that has keys at once nobody knows whose they were.
        let mut history = HeatHistory::default();
        history.observe(100, &tree(&[("", [4.0, 0.0])]));
        assert_eq!(history.rows(0, 1, 10, 9).rows, [(10, known([[4.0, 0.0]]))]);
    }

    /// In the step of a move the new owner knows the first rates after a while; that of the old one was left
    /// out, and nothing was known of it.
    #[test]
    fn keys_that_left_amid_a_step_are_known_as_they_were_until_then() {
        let mut history = HeatHistory::default();
        let all = || tree(&[("", [4.0, 0.0]), ("g", [2.0, 0.0]), ("m", [1.0, 0.0])]);
        history.observe(100, &all());
        history.observe(101, &all());
        history.observe(102, &without(all(), &[1]));
        history.observe(109, &without(tree(&[("", [7.0, 0.0]), ("g", [0.0; 2]), ("m", [1.0, 0.0])]), &[1]));
        let rows = history.rows(0, 1, 10, 1);
        assert_eq!(rows.ranges.iter().map(|range| range.former).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(rows.rows, [(10, known([[4.75, 0.0], [2.0, 0.0], [1.0, 0.0]]))]);
        // In the next step they are not its own, until they come back.
        history.observe(110, &without(all(), &[1]));
        let rows = history.rows(0, 1, 11, 1);
        assert_eq!((lows(&rows), rows.rows.len()), (vec![&b""[..], b"m"], 1));
        history.observe(111, &all());
        let rows = history.rows(0, 1, 11, 2);
        assert!(rows.ranges.iter().all(|range| !range.former));
        assert_eq!(rows.rows[0].1[1], Some([2.0, 0.0]));
        assert_eq!(rows.rows[1].1[1], Some([2.0, 0.0]));
    }

    #[test]
    fn outside_of_others_is_each_gap_between_them() {
        let range = |low: &str, high: &str| HeatRange {
            low: Arc::from(low.as_bytes()),
            high: (!high.is_empty()).then(|| Arc::from(high.as_bytes())),
            former: true,
        };
        let others = [range("b", "d"), range("f", "h"), range("h", "k")];
        assert_eq!(outside(&range("a", ""), &others), [range("a", "b"), range("d", "f"), range("k", "")]);
        assert_eq!(outside(&range("c", "g"), &others), [range("d", "f")]);
        assert_eq!(outside(&range("f", "k"), &others), []);
        assert_eq!(outside(&range("k", "m"), &others), [range("k", "m")]);
        assert_eq!(outside(&range("m", ""), &[range("b", "")]), []);
        assert_eq!(outside(&range("m", ""), &[]), [range("m", "")]);
    }

    #[test]
    fn former_ranges_of_an_answer_are_bounded() {
        let mut history = HeatHistory::default();
        // Each time it has as many ranges as it may, and none of them the next time.
        for (step, first) in (10..).zip(["a", "b", "c", "d"]) {
            let lows: Vec<String> = (0..=RANGES_MAX).map(|at| format!("{first}{at:06}")).collect();
            let all = tree(&lows.iter().map(|low| (&**low, [1.0, 0.0])).collect::<Vec<_>>());
            history.observe(step * STEP_S, &without(all, &[RANGES_MAX]));
        }
        let ranges = history.rows(0, 1, 13, 9).ranges;
        assert_eq!(ranges.len(), ANSWERED_MAX);
        assert!(ranges.iter().zip(&ranges[1..]).all(|(range, next)| range.ends_by(&next.low)));
    }

    /// What a dead node's keys were written before they came read as nothing.
    #[test]
    fn of_keys_that_came_to_the_node_nothing_is_known_before() {
        let mut history = HeatHistory::default();
        let mut less = tree(&[("", [4.0, 0.0]), ("m", [0.0, 0.0])]);
        less.meganodes.pop();
        history.observe(100, &less);
        history.observe(110, &less);
        // Of what has just come no rate is known.
        let mut more = tree(&[("", [2.0, 0.0]), ("m", [9.0, 0.0])]);
        let of_new = &mut more.meganodes[1];
        let rates = (of_new.writes_per_second.take(), of_new.reads_per_second.take());
        history.observe(111, &more);
        let rows = history.rows(0, 1, 11, 2);
        assert_eq!(rows.rows, [(10, vec![Some([4.0, 0.0]), None]), (11, vec![Some([3.0, 0.0]), None])]);
        let of_new = &mut more.meganodes[1];
        (of_new.writes_per_second, of_new.reads_per_second) = rates;
        history.observe(112, &more);
        let of_new = |rows: HeatRows| rows.rows.iter().map(|(_, heat)| heat[1]).collect::<Vec<_>>();
        assert_eq!(of_new(history.rows(0, 1, 11, 2)), [None, Some([9.0, 0.0])]);
        // Together with others it is known when all are; what a part of the keys did is not the whole's.
        history.observe(120, &tree(&[("", [1.0, 0.0])]));
        assert_eq!(history.rows(0, 1, 10, 1).rows, [(10, vec![None])]);
        assert_eq!(history.rows(0, 1, 11, 1).rows[0].1[0].unwrap()[0], 8.0 / 3.0 + 9.0);
        // The half of a range that it had is known.
        history.observe(130, &tree(&[("", [1.0, 0.0]), ("g", [1.0, 0.0]), ("m", [1.0, 0.0])]));
        assert_eq!(history.rows(0, 1, 10, 1).rows, [(10, vec![Some([2.0, 0.0]), Some([2.0, 0.0]), None])]);
    }

    #[test]
    fn an_hour_is_kept_and_what_was_not_seen_has_no_row() {
        let mut history = HeatHistory::default();
        assert_eq!(history.rows(0, 1, 5_000, 9), HeatRows::default());
        let some = tree(&[("", [1.0, 1.0])]);
        for step in (0..400).filter(|step| *step != 390) {
            history.observe(step * STEP_S, &some);
        }
        let rows = history.rows(0, 1, 399, 1_000).rows;
        assert_eq!((rows.len(), rows[0].0, rows[ROWS_MAX].0), (ROWS_MAX + 1, 38, 399));
        assert!(rows.iter().all(|(number, _)| *number != 390));
        let mut unknown = tree(&[("", [1.0, 1.0])]);
        (unknown.meganodes[0].writes_per_second, unknown.meganodes[0].reads_per_second) = (None, None);
        history.observe(4_010, &unknown);
        history.observe(3_000, &some);
        assert_eq!(history.rows(0, 1, 401, 1).rows, []);
        assert_eq!(history.rows(0, 1, 300, 1).rows.len(), 1, "a clock that goes back adds nothing");
    }

    #[test]
    fn ranges_of_many_meganodes_are_bounded_and_only_of_neighbours() {
        let key = |at: usize| format!("{at:06}");
        let lows: Vec<String> = (0..2_500).map(key).collect();
        let mut many = tree(&lows.iter().map(|low| (&**low, [1.0, 2.0])).collect::<Vec<_>>());
        // Runs of ten and of twenty, as where pairs are dealt out in turn.
        many.meganodes.retain(|shape| (shape.low[4] + shape.low[3]) % 2 == 0);
        let ranges = grouped(&many.meganodes);
        assert!(ranges.len() <= RANGES_MAX && ranges.len() > RANGES_MAX / 2, "{}", ranges.len());
        let sums = ranges.iter().fold(Heat::default(), |mut sum, (_, heat)| {
            add(&mut sum, heat.unwrap());
            sum
        });
        let count = many.meganodes.len() as f32;
        assert_eq!(sums, [count, 2.0 * count]);
        for (range, heat) in &ranges {
            let all = lows.iter().map(String::as_bytes);
            let inside = all.filter(|low| **low >= *range.low && !range.ends_by(low)).count();
            assert_eq!(heat.unwrap()[0], inside as f32, "{range:?} has keys of others");
        }
        // Each alone: there are more than rows have ranges.
        many.meganodes.retain(|shape| shape.low[5] % 2 == 0);
        assert!(many.meganodes.len() > RANGES_MAX);
        assert!(grouped(&many.meganodes).len() <= RANGES_MAX);
        assert_eq!(grouped(&[]), []);
    }
}
