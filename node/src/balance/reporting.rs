//! What a node reports of itself: loads over a window, out of what its worker has counted; and when it is
//! worth a write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cell_cluster::{FiguresRow, ReportedArrival, ReportedPair};
use cell_terms::{Epoch, Incarnation, NodeId, PairId};

use crate::figures::{PairUse, WorkerFigures};

/// A window has so many parts, at whose ends counts are kept.
const PARTS: u64 = 16;
/// Figures are reported anew after a part of the window, whether they changed or not: older ones than a
/// window do not count.
const REPORT_PARTS: u64 = 4;
/// Which pairs there are, and what keeps them, is reported no more often than this, or than an eighth of the
/// window.
const REPORT_EVERY_MS: u64 = 1_000;
/// What they take and do, no more often than after this part of the window: each time is a synced write of
/// the coordinator's, and under load figures change all the time.
const CHANGED_PARTS: u64 = 8;
/// Unless that is this part of all, and these bytes besides, as in a load: halves go by what others have. Or
/// this part of the memory that is left: where a pair finds room, and whether a node can be emptied, goes by
/// that.
const MUCH_PART: u64 = 8;
const MUCH_STEP: u64 = 4 << 20;
/// Bytes that have to change, besides a part of all.
const BYTES_STEP: u64 = 1 << 20;
/// Load that has to change, besides a part of all.
const LOAD_STEP_NS: u64 = 5_000_000;
/// That part.
const STEP_PART: u64 = 16;

/// What a node has for more pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRoom {
    pub(super) memory_left_bytes: u64,
    /// The disk under its logs has no room for those of one more pair.
    pub(super) disk_full: bool,
    /// How many pairs it may hold.
    pub(super) pairs_max: u32,
    /// What a pair takes besides its regions.
    pub(super) log_bytes: u64,
}

/// One pair, as long as the worker has it.
#[derive(Debug)]
struct PairWatch {
    epoch: Epoch,
    since_ns: u64,
    arrival: ReportedArrival,
    /// When so much work had been done, oldest first; the first one is where the window begins.
    counted: VecDeque<(u64, u64)>,
}

impl PairWatch {
    fn new(used: &PairUse, arrival: ReportedArrival, now_ns: u64) -> PairWatch {
        let counted = VecDeque::from([(now_ns, used.work_ns)]);
        PairWatch { epoch: used.epoch, since_ns: now_ns, arrival, counted }
    }

    fn count(&mut self, work_ns: u64, window_ns: u64, now_ns: u64) {
        let part_ns = window_ns / PARTS;
        if self.counted.back().is_none_or(|(at_ns, _)| now_ns.saturating_sub(*at_ns) >= part_ns) {
            self.counted.push_back((now_ns, work_ns));
        }
        // The window begins with the last count that is as old as it is long.
        while self.counted.get(1).is_some_and(|(at_ns, _)| now_ns.saturating_sub(*at_ns) >= window_ns) {
            self.counted.pop_front();
        }
    }

    /// Nanoseconds a second.
    fn load_ns(&self, work_ns: u64, now_ns: u64) -> u64 {
        let Some((at_ns, before_ns)) = self.counted.front() else { return 0 };
        let took_ns = u128::from(now_ns.saturating_sub(*at_ns));
        if took_ns == 0 {
            return 0;
        }
        let load = u128::from(work_ns.saturating_sub(*before_ns)) * 1_000_000_000 / took_ns;
        u64::try_from(load).unwrap_or(u64::MAX)
    }
}

/// What is reported, without times that go on by themselves.
#[derive(Debug)]
struct Report {
    at_ns: u64,
    row: FiguresRow,
    sums: RowSums,
}

/// What the pairs of a row take and do together.
#[derive(Clone, Copy, Debug)]
struct RowSums {
    bytes: u64,
    load_ns: u64,
}

impl RowSums {
    fn of(row: &FiguresRow) -> RowSums {
        let add = |sums: RowSums, reported: &ReportedPair| RowSums {
            bytes: sums.bytes.saturating_add(reported.bytes),
            load_ns: sums.load_ns.saturating_add(reported.load_ns),
        };
        row.pairs.iter().fold(RowSums { bytes: 0, load_ns: 0 }, add)
    }
}

impl Report {
    /// Whether figures differ from these so much that somebody should know of it. `may_change`: by less than
    /// much, too.
    fn differs_from(&self, row: &FiguresRow, may_change: bool) -> bool {
        if are_others(&self.row, row) {
            return true;
        }
        let (old, new) = (self.sums, RowSums::of(row));
        let takes_other = |step, part| {
            far(old.bytes, new.bytes, step, part)
                || far(self.row.memory_left_bytes, row.memory_left_bytes, step, part)
        };
        let does_other = || far(old.load_ns, new.load_ns, LOAD_STEP_NS, STEP_PART);
        takes_other(MUCH_STEP, MUCH_PART)
            || may_change && (takes_other(BYTES_STEP, STEP_PART) || does_other())
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    serving_since_ns: Option<u64>,
    latest: Option<WorkerFigures>,
    pairs: BTreeMap<PairId, PairWatch>,
    /// How pairs came that the worker has not reported yet.
    arrivals: BTreeMap<PairId, ReportedArrival>,
    last: Option<Report>,
}

impl Reporting {
    /// A pair is about to be the worker's.
    pub(super) fn arrives(&mut self, pair: PairId, arrival: ReportedArrival) {
        self.arrivals.insert(pair, arrival);
    }

    /// What the worker has now.
    pub(super) fn count(&mut self, figures: WorkerFigures, window_ns: u64) {
        let now_ns = figures.at_ns;
        self.serving_since_ns.get_or_insert(now_ns);
        let has: BTreeSet<PairId> = figures.pairs.iter().map(|used| used.pair).collect();
        self.pairs.retain(|pair, _| has.contains(pair));
        for used in &figures.pairs {
            match self.pairs.get_mut(&used.pair).filter(|watch| watch.epoch == used.epoch) {
                Some(watch) => watch.count(used.work_ns, window_ns, now_ns),
                None => {
                    let arrival = self.arrivals.remove(&used.pair).unwrap_or(ReportedArrival::TakenOver);
                    self.pairs.insert(used.pair, PairWatch::new(used, arrival, now_ns));
                }
            }
        }
        self.latest = Some(figures);
    }

    /// What is to be reported now; none: nothing is, or not yet.
    pub(super) fn due(
        &self,
        (incarnation, node): (Incarnation, NodeId),
        room: NodeRoom,
        window_ms: u64,
        now_ns: u64,
    ) -> Option<FiguresRow> {
        let since_ms = self.last.as_ref().map(|last| now_ns.saturating_sub(last.at_ns) / 1_000_000);
        if since_ms.is_some_and(|ms| ms < REPORT_EVERY_MS.min(window_ms / 8)) {
            return None;
        }
        let (latest, since_ns) = (self.latest.as_ref()?, self.serving_since_ns?);
        let NodeRoom { memory_left_bytes, disk_full, pairs_max, log_bytes } = room;
        let pairs = latest.pairs.iter().filter_map(|used| self.pair(used, log_bytes, latest.at_ns, now_ns));
        let row = FiguresRow {
            incarnation,
            node,
            state: latest.state,
            serving_ms: now_ns.saturating_sub(since_ns) / 1_000_000,
            memory_left_bytes,
            writes_wait: latest.writes_wait,
            disk_full,
            pairs_max,
            meganodes: latest.meganodes,
            more_rows: 0,
            pairs: pairs.collect(),
        };
        // While writes wait a pair leaves as soon as it is known what is left since the last one has.
        let is_old = since_ms.is_none_or(|ms| latest.writes_wait || ms >= window_ms / REPORT_PARTS);
        let may_change = since_ms.is_none_or(|ms| ms >= window_ms / CHANGED_PARTS);
        let differs = |last: &Report| last.differs_from(&row, may_change);
        (is_old || self.last.as_ref().is_none_or(differs)).then_some(row)
    }

    fn pair(&self, used: &PairUse, log_bytes: u64, at_ns: u64, now_ns: u64) -> Option<ReportedPair> {
        let watch = self.pairs.get(&used.pair)?;
        Some(ReportedPair {
            pair: used.pair,
            epoch: used.epoch,
            bytes: used.bytes,
            memory_bytes: used.granted_bytes.saturating_add(log_bytes),
            load_ns: watch.load_ns(used.work_ns, at_ns),
            held_ms: now_ns.saturating_sub(watch.since_ns) / 1_000_000,
            arrival: watch.arrival,
            hold: used.hold,
        })
    }

    /// It was reported.
    pub(super) fn reported(&mut self, row: FiguresRow, now_ns: u64) {
        self.last = Some(Report { at_ns: now_ns, sums: RowSums::of(&row), row });
    }
}

/// Whether there are other pairs, or something else keeps them, or writes wait where none did, or the disk is
/// full.
fn are_others(old: &FiguresRow, new: &FiguresRow) -> bool {
    let state = |row: &FiguresRow| (row.state, row.writes_wait, row.disk_full);
    let pair = |reported: &ReportedPair| (reported.pair, reported.epoch, reported.hold);
    state(old) != state(new) || !old.pairs.iter().map(pair).eq(new.pairs.iter().map(pair))
}

/// Whether two figures differ by a step and a part of them.
fn far(old: u64, new: u64, step: u64, part: u64) -> bool {
    old.abs_diff(new) > step + old.max(new) / part
}

#[cfg(test)]
mod tests {
    use cell_cluster::{MoveMotive, ReportedHold};

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const WINDOW_MS: u64 = 60_000;

    fn used(pair: u32, bytes: u64, work_ns: u64) -> PairUse {
        PairUse { pair: PairId(pair), epoch: Epoch(1), bytes, granted_bytes: bytes, work_ns, hold: None }
    }

    fn count(reporting: &mut Reporting, pairs: Vec<PairUse>, now_ns: u64) {
        let figures = WorkerFigures { at_ns: now_ns, pairs, ..WorkerFigures::default() };
        reporting.count(figures, WINDOW_MS * 1_000_000);
    }

    const ROOM: NodeRoom =
        NodeRoom { memory_left_bytes: 1 << 30, disk_full: false, pairs_max: 8, log_bytes: 100 };

    fn due(reporting: &Reporting, now_ns: u64) -> Option<FiguresRow> {
        due_with(reporting, ROOM, now_ns)
    }

    fn due_with(reporting: &Reporting, room: NodeRoom, now_ns: u64) -> Option<FiguresRow> {
        reporting.due((Incarnation(7), NodeId(1)), room, WINDOW_MS, now_ns)
    }

    fn report(reporting: &mut Reporting, now_ns: u64) -> FiguresRow {
        let row = due(reporting, now_ns).unwrap();
        reporting.reported(row.clone(), now_ns);
        row
    }

    #[test]
    fn load_is_what_was_done_within_the_window_or_since_the_pair_came() {
        let mut reporting = Reporting::default();
        for second in 0..=600 {
            // A tenth of the worker's time for five minutes, then nothing.
            let work_ns = second.min(300) * SECOND / 10;
            count(&mut reporting, vec![used(1, 10, work_ns)], second * SECOND);
            let load_ns = due(&reporting, second * SECOND).unwrap().pairs[0].load_ns;
            match second {
                0 => assert_eq!(load_ns, 0),
                1..=300 => assert_eq!(load_ns, SECOND / 10, "after {second} s"),
                365.. => assert_eq!(load_ns, 0, "after {second} s"),
                _ => assert!(load_ns < SECOND / 10, "after {second} s"),
            }
            let kept = reporting.pairs[&PairId(1)].counted.len();
            assert!(kept <= usize::try_from(PARTS).unwrap() + 2, "{kept} counts are kept");
        }
    }

    #[test]
    fn times_and_arrivals_are_reported_as_they_are() {
        let mut reporting = Reporting::default();
        let moved = ReportedArrival::Moved(MoveMotive::Balance);
        reporting.arrives(PairId(2), moved);
        count(&mut reporting, vec![used(1, 10, 0)], SECOND);
        count(&mut reporting, vec![used(1, 10, 0), used(2, 10, 0)], 4 * SECOND);
        let row = due(&reporting, 6 * SECOND).unwrap();
        assert_eq!(row.serving_ms, 5_000);
        let reported: Vec<_> =
            row.pairs.iter().map(|reported| (reported.held_ms, reported.arrival)).collect();
        assert_eq!(reported, [(5_000, ReportedArrival::TakenOver), (2_000, moved)]);
        assert_eq!(row.pairs[0].memory_bytes, 110, "with its log's buffers");
        // The pair goes, and comes back in another epoch: that is another stay.
        count(&mut reporting, vec![used(1, 10, 0)], 7 * SECOND);
        let back = PairUse { epoch: Epoch(3), ..used(2, 10, 0) };
        count(&mut reporting, vec![used(1, 10, 0), back], 8 * SECOND);
        let reported = due(&reporting, 9 * SECOND).unwrap().pairs[1];
        assert_eq!((reported.held_ms, reported.arrival), (1_000, ReportedArrival::TakenOver));
    }

    #[test]
    fn figures_are_reported_when_they_change_and_else_a_few_times_a_window() {
        let mut reporting = Reporting::default();
        assert_eq!(due(&reporting, SECOND), None, "it does not serve yet");
        count(&mut reporting, vec![used(1, 64 << 20, 0)], SECOND);
        report(&mut reporting, SECOND);
        let is_due = |reporting: &Reporting, ms: u64| due(reporting, SECOND + ms * 1_000_000).is_some();
        assert!(!is_due(&reporting, 900) && !is_due(&reporting, 14_000) && is_due(&reporting, 15_000));
        count(&mut reporting, vec![used(1, 65 << 20, 0)], 2 * SECOND);
        assert!(!is_due(&reporting, 8_000), "that is little");
        count(&mut reporting, vec![used(1, 74 << 20, 0)], 3 * SECOND);
        assert!(is_due(&reporting, 8_000) && !is_due(&reporting, 7_000), "under load that is so each moment");
        count(&mut reporting, vec![used(1, 80 << 20, 0)], 3 * SECOND);
        assert!(is_due(&reporting, 1_000) && !is_due(&reporting, 500), "a load has started");
        let held = PairUse { hold: Some(ReportedHold::Split), ..used(1, 64 << 20, 0) };
        count(&mut reporting, vec![held], 3 * SECOND);
        assert!(is_due(&reporting, 5_000));
        count(&mut reporting, vec![used(1, 64 << 20, 0), used(2, 0, 0)], 4 * SECOND);
        assert!(is_due(&reporting, 5_000) && !is_due(&reporting, 500), "not each moment");
    }

    /// Whoever balances lets a pair leave then; the next one only by figures from after that.
    #[test]
    fn writes_that_wait_are_reported_when_they_begin_to_each_second_and_when_they_do_no_more() {
        let mut reporting = Reporting::default();
        let count = |reporting: &mut Reporting, writes_wait, second: u64| {
            let (at_ns, pairs) = (second * SECOND, vec![used(1, 64 << 20, 0)]);
            let figures = WorkerFigures { at_ns, writes_wait, pairs, ..WorkerFigures::default() };
            reporting.count(figures, WINDOW_MS * 1_000_000);
        };
        count(&mut reporting, false, 1);
        assert!(!report(&mut reporting, SECOND).writes_wait);
        count(&mut reporting, true, 2);
        assert!(report(&mut reporting, 2 * SECOND).writes_wait);
        count(&mut reporting, true, 3);
        assert_eq!(due(&reporting, 3 * SECOND - 1), None);
        assert!(report(&mut reporting, 3 * SECOND).writes_wait);
        count(&mut reporting, false, 4);
        assert!(!report(&mut reporting, 4 * SECOND).writes_wait);
        count(&mut reporting, false, 5);
        assert_eq!(due(&reporting, 5 * SECOND), None);
    }

    /// A drain was started by what had been left some seconds before.
    #[test]
    fn memory_that_shrinks_by_much_of_what_is_left_and_a_full_disk_are_reported_within_a_second() {
        let mut reporting = Reporting::default();
        count(&mut reporting, vec![used(1, 100 << 20, 0)], SECOND);
        let left = |mib: u64| NodeRoom { memory_left_bytes: mib << 20, ..ROOM };
        let row = due_with(&reporting, left(64), SECOND).unwrap();
        reporting.reported(row, SECOND);
        let soon = |reporting: &Reporting, room| due_with(reporting, room, 2 * SECOND).is_some();
        assert!(!soon(&reporting, left(64)) && !soon(&reporting, left(55)), "that is little");
        assert!(soon(&reporting, left(50)) && soon(&reporting, left(80)));
        assert!(soon(&reporting, NodeRoom { disk_full: true, ..left(64) }));
        assert_eq!(due_with(&reporting, left(5), 2 * SECOND - 1), None, "not each moment");
    }

    /// Of more than 256 pairs some were not reported, and nothing in the cluster was balanced any more.
    #[test]
    fn all_pairs_are_reported_however_many_there_are() {
        let mut reporting = Reporting::default();
        count(&mut reporting, (0..900).map(|pair| used(pair, 1, 0)).collect(), SECOND);
        assert_eq!(due(&reporting, SECOND).unwrap().pairs.len(), 900);
    }
}
