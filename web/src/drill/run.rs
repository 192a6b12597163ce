//! One drill: how far it is, and what it found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cell_cluster::boottime_ns;
use cell_drill::{DrillError, DrillVerdict, LanePoint, Moment, Notice, Report};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::drill::wanted::DrillWanted;

/// How far a drill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    /// It was asked for, and waits for those without whom it does not begin.
    Beginning,
    /// Before the fault, or while it lasts.
    Running,
    /// The fault is over; not everything is back.
    Healing,
    /// Everything acknowledged is read back.
    Verifying,
    /// `PASS`.
    Passed,
    /// `FAIL`.
    Failed,
    /// `INCONCLUSIVE`, or it could not be run to its end.
    Inconclusive,
    /// Somebody halted it.
    Halted,
}

impl RunState {
    /// Whether it has ended.
    pub(crate) fn is_over(self) -> bool {
        use RunState::{Beginning, Healing, Running, Verifying};
        !matches!(self, Beginning | Running | Healing | Verifying)
    }
}

/// How far a run is, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunSeen {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    /// The node that it is done to.
    pub(crate) node: u32,
    pub(crate) state: RunState,
    /// Who began it.
    pub(crate) who: String,
    /// Who halted it.
    pub(crate) halted_by: Option<String>,
}

/// A run as JSON; times `at_ms` count from its begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRow {
    pub(crate) id: String,
    pub(crate) kind: String,
    /// The node that it is done to.
    pub(crate) node: u32,
    /// The node that runs it.
    pub(crate) runner: u32,
    pub(crate) state: RunState,
    /// What it waits for before it begins, in words.
    pub(crate) waits_for: Option<String>,
    /// When it was asked for, until it begins.
    pub(crate) begun_unix_ms: u64,
    pub(crate) ended_unix_ms: Option<u64>,
    /// Who began it, and who halted it.
    pub(crate) who: String,
    pub(crate) halted_by: Option<String>,
    timeline: Vec<MomentRow>,
    lane: Vec<LaneRow>,
    /// What `cell drill run --json` prints; of a run that did not come to its end the verdict and why.
    pub(crate) report: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MomentRow {
    name: String,
    at_ms: u64,
    pair: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LaneRow {
    at_ms: u64,
    attempted: u64,
    succeeded: u64,
    failed: u64,
    p99_us: Option<u64>,
}

/// A run. Its thread writes what is reported to it, handlers read it.
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) wanted: DrillWanted,
    /// What distinguishes it from other requests, if it may be sent again.
    pub(crate) repeat_id: Option<u64>,
    runner: u32,
    now_unix_ms: fn() -> u64,
    halt: AtomicBool,
    progress: Mutex<Progress>,
    changed: Condvar,
}

struct Progress {
    state: RunState,
    waits_for: Option<String>,
    begun_unix_ms: u64,
    started_ns: u64,
    fault_lasts: bool,
    timeline: Vec<Moment>,
    lane: Vec<LanePoint>,
    /// What could not be taken back, and why.
    troubles: Vec<String>,
    halted_by: Option<String>,
    ended_unix_ms: Option<u64>,
    report: Option<Value>,
}

impl Run {
    /// It is asked for now, and is to be started by the node `runner`; `now_unix_ms` is the wall clock, for
    /// people.
    pub(crate) fn new(
        id: String,
        wanted: DrillWanted,
        repeat_id: Option<u64>,
        runner: u32,
        now_unix_ms: fn() -> u64,
    ) -> Run {
        let progress = Progress {
            state: RunState::Beginning,
            waits_for: None,
            begun_unix_ms: now_unix_ms(),
            started_ns: boottime_ns(),
            fault_lasts: false,
            timeline: Vec::new(),
            lane: Vec::new(),
            troubles: Vec::new(),
            halted_by: None,
            ended_unix_ms: None,
            report: None,
        };
        Run {
            id,
            wanted,
            repeat_id,
            runner,
            now_unix_ms,
            halt: AtomicBool::new(false),
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        }
    }

    /// What it waits for before it begins, in words.
    pub(crate) fn waits_for(&self, what: String) {
        let mut progress = self.progress();
        if progress.state == RunState::Beginning {
            progress.waits_for = Some(what);
        }
    }

    /// Nothing keeps it from its begin any more: times count from now on.
    pub(crate) fn begin(&self) {
        let mut progress = self.progress();
        (progress.begun_unix_ms, progress.started_ns) = ((self.now_unix_ms)(), boottime_ns());
        if progress.state == RunState::Beginning {
            (progress.state, progress.waits_for) = (RunState::Running, None);
        }
    }

    /// Set when it is to end before its end.
    pub(crate) fn halt_flag(&self) -> &AtomicBool {
        &self.halt
    }

    /// How far it is.
    pub(crate) fn state(&self) -> RunState {
        self.progress().state
    }

    /// Ends it, and takes the fault back. How far it was. Of several who halt it, the first is remembered.
    pub(crate) fn halt(&self, who: &str) -> RunState {
        let mut progress = self.progress();
        let before = progress.state;
        if !before.is_over() {
            self.halt.store(true, Ordering::Relaxed);
            (progress.state, progress.waits_for) = (RunState::Healing, None);
            progress.halted_by.get_or_insert_with(|| who.to_owned());
        }
        before
    }

    /// Waits until no fault of it lasts; whether that is so.
    pub(crate) fn wait_healed(&self, patience: Duration) -> bool {
        let lasts = |progress: &mut Progress| progress.fault_lasts && !progress.state.is_over();
        let (_guard, timeout) = self
            .changed
            .wait_timeout_while(self.progress(), patience, lasts)
            .unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }

    /// Takes in what the drill reports.
    pub(crate) fn on_notice(&self, notice: Notice) {
        let is_halted = self.halt.load(Ordering::Relaxed);
        let mut progress = self.progress();
        match notice {
            Notice::Injecting { .. } => progress.fault_lasts = true,
            Notice::Moments(moments) => progress.timeline = moments,
            Notice::Lane(point) => progress.lane.push(point),
            Notice::Healing => {
                progress.fault_lasts = false;
                progress.state = RunState::Healing;
            }
            Notice::ReadingBack if !is_halted => progress.state = RunState::Verifying,
            Notice::NotHealed(why) => {
                progress.fault_lasts = false;
                progress.troubles.push(format!("the fault could not be taken back: {why}"));
            }
            _ => {}
        }
        self.changed.notify_all();
    }

    /// It has ended.
    pub(crate) fn end(&self, result: Result<Report, DrillError>) {
        let is_halted = self.halt.load(Ordering::Relaxed);
        let mut progress = self.progress();
        let mut reasons = std::mem::take(&mut progress.troubles);
        (progress.state, progress.report) = match result {
            Ok(report) => (state_of(report.verdict()), Some(report.to_json())),
            Err(error) => {
                if !matches!(error, DrillError::Interrupted) {
                    reasons.push(in_words(&error));
                }
                let state = if is_halted { RunState::Halted } else { RunState::Inconclusive };
                let outcome = json!({"verdict": DrillVerdict::Inconclusive.word(), "reasons": reasons});
                (state, (!reasons.is_empty()).then_some(outcome))
            }
        };
        progress.fault_lasts = false;
        progress.ended_unix_ms = Some((self.now_unix_ms)());
        self.changed.notify_all();
    }

    /// How far it is, in short.
    pub(crate) fn seen(&self) -> RunSeen {
        let (kind, node) = (self.wanted.kind.word(), u32::from(self.wanted.node));
        let (who, progress) = (self.wanted.who.clone(), self.progress());
        let (state, halted_by) = (progress.state, progress.halted_by.clone());
        RunSeen { id: self.id.clone(), kind, node, state, who, halted_by }
    }

    /// As JSON.
    pub(crate) fn row(&self) -> RunRow {
        let progress = self.progress();
        let at_ms = |at_ns: u64| at_ns.saturating_sub(progress.started_ns) / 1_000_000;
        let moment = |moment: &Moment| MomentRow {
            name: moment.event.word().to_owned(),
            at_ms: at_ms(moment.at_ns),
            pair: moment.pair,
        };
        let step = |point: &LanePoint| LaneRow {
            at_ms: at_ms(point.at_ns),
            attempted: point.attempted,
            succeeded: point.succeeded,
            failed: point.failed,
            p99_us: point.p99_us,
        };
        RunRow {
            id: self.id.clone(),
            kind: self.wanted.kind.word().to_owned(),
            node: u32::from(self.wanted.node),
            runner: self.runner,
            state: progress.state,
            waits_for: progress.waits_for.clone(),
            begun_unix_ms: progress.begun_unix_ms,
            ended_unix_ms: progress.ended_unix_ms,
            who: self.wanted.who.clone(),
            halted_by: progress.halted_by.clone(),
            timeline: progress.timeline.iter().map(moment).collect(),
            lane: progress.lane.iter().map(step).collect(),
            report: progress.report.clone(),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn state_of(verdict: DrillVerdict) -> RunState {
    match verdict {
        DrillVerdict::Pass => RunState::Passed,
        DrillVerdict::Fail => RunState::Failed,
        DrillVerdict::Inconclusive => RunState::Inconclusive,
    }
}

/// An error, and what helps.
fn in_words(error: &DrillError) -> String {
    match error {
        DrillError::Refused { what, next } | DrillError::Away { what, next } => format!("{what}; {next}"),
        DrillError::Client(error) => cell_terms::text::with_causes(error),
        _ => error.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use cell_drill::wire::{Incident, PairView, Planned, Status, Times};
    use cell_drill::{DrillEvent, DrillProof, FaultKind, PathFindings, Tally, Timeline, Unavailable};

    use super::*;
    use crate::drill::wanted::tests::wanted;

    /// A run that was halted, with a report as long as they are.
    pub(crate) fn row() -> RunRow {
        let run = run("drill-2-1", 1);
        let at_ns = run.progress().started_ns + 250_000_000;
        let moment = |pair| Moment { at_ns, event: DrillEvent::Serving, pair };
        run.on_notice(Notice::Moments(vec![moment(None), moment(Some(1))]));
        run.on_notice(Notice::Lane(LanePoint {
            at_ns,
            attempted: 4,
            succeeded: 3,
            failed: 1,
            p99_us: Some(5),
        }));
        run.halt("ann");
        run.end(Ok(report(at_ns)));
        run.row()
    }

    /// A report with something in each of its lists.
    fn report(injected_ns: u64) -> Report {
        let pair = |epoch, owner| PairView {
            pair: 1,
            node: 1,
            owner: Some(owner),
            epoch,
            state: "serving".to_owned(),
            cut_epoch: None,
            trouble: None,
            next: None,
        };
        let times = Times { replayed_ms: 1, replayed_bytes: 7, serving_ms: 2, ..Times::default() };
        let plan = vec![Planned { pair: 1, survivor: Some(6), times }];
        let incident = Incident { dead: 5, detected_ms: 1, lease_seen_ms: 1, plan };
        let before = Status { pairs: vec![pair(1, 5)], leases: vec![5], ..Status::default() };
        let after =
            Status { pairs: vec![pair(2, 6)], leases: vec![6], incidents: vec![incident], ..before.clone() };
        let mut timeline = Timeline::new(1, &before, injected_ns);
        timeline.look(injected_ns + 1_000_000, &after);
        timeline.note(injected_ns + 2_000_000, DrillEvent::AllBack, None);
        let proof = DrillProof {
            lost: 1,
            ways: vec![("scan", PathFindings::default())],
            named: vec![(b"k".to_vec(), "lost")],
            ..DrillProof::default()
        };
        let slowest = vec![(b"k".to_vec(), "get".to_owned(), 1.5)];
        Report {
            fault: FaultKind::Kill,
            node: 1,
            delay: Some(Duration::from_millis(70)),
            run: 7,
            timeline,
            tally: Tally::default(),
            unavailable: Unavailable { slowest, ..Unavailable::default() },
            proof: Some(proof),
            troubles: vec!["it did not come back".to_owned()],
            entries_left: 0,
        }
    }

    /// A run of this node and name, which has started.
    pub(crate) fn run(id: &str, node: u16) -> Run {
        let run = Run::new(id.to_owned(), wanted(FaultKind::Kill, node), None, 2, || 1_000);
        run.begin();
        run
    }

    fn injecting() -> Notice {
        Notice::Injecting { fault: FaultKind::Kill, node: 1 }
    }

    #[test]
    fn row_has_what_the_drill_reported_in_times_from_its_begin() {
        let run = run("drill-2-1", 1);
        let at_ns = run.progress().started_ns + 250_000_000;
        run.on_notice(injecting());
        run.on_notice(Notice::Moments(vec![Moment { at_ns, event: DrillEvent::LeaseEnded, pair: None }]));
        let point = LanePoint { at_ns, attempted: 400, succeeded: 265, failed: 2, p99_us: None };
        run.on_notice(Notice::Lane(point));
        let row = serde_json::to_value(run.row()).unwrap();
        assert_eq!((&row["state"], &row["runner"], &row["node"]), (&"running".into(), &2.into(), &1.into()));
        let moment = json!({"name": "lease_ended", "at_ms": 250, "pair": null});
        assert_eq!((&row["timeline"], &row["report"]), (&json!([moment]), &Value::Null));
        let step = json!({"at_ms": 250, "attempted": 400, "succeeded": 265, "failed": 2, "p99_us": null});
        assert_eq!(row["lane"], json!([step]));
        run.on_notice(Notice::Healing);
        assert_eq!(run.state(), RunState::Healing);
        run.on_notice(Notice::ReadingBack);
        assert_eq!(run.state(), RunState::Verifying);
    }

    #[test]
    fn run_says_what_it_waits_for_until_it_begins_and_its_times_count_from_then() {
        let run = Run::new("a".to_owned(), wanted(FaultKind::Kill, 1), None, 2, || 1_000);
        let asked_ns = run.progress().started_ns;
        run.waits_for("the agent at a:1".to_owned());
        let row = serde_json::to_value(run.row()).unwrap();
        assert_eq!((&row["state"], &row["waits_for"]), (&"beginning".into(), &"the agent at a:1".into()));
        assert!(!run.state().is_over());
        while boottime_ns() <= asked_ns {
            std::hint::spin_loop();
        }
        run.begin();
        run.waits_for("nobody".to_owned());
        assert_eq!((run.state(), run.row().waits_for), (RunState::Running, None));
        assert!(run.progress().started_ns > asked_ns);
        let halted = Run::new("b".to_owned(), wanted(FaultKind::Kill, 1), None, 2, || 1_000);
        assert_eq!(halted.halt("ann"), RunState::Beginning);
        halted.begin();
        assert_eq!(halted.state(), RunState::Healing, "it is halted already");
    }

    #[test]
    fn halt_ends_without_a_report_unless_the_fault_is_still_there() {
        for trouble in [None, Some("the supervisor is gone".to_owned())] {
            let run = run("a", 1);
            run.on_notice(injecting());
            assert!(!run.wait_healed(Duration::ZERO));
            assert_eq!(run.halt("ann"), RunState::Running);
            assert!(run.halt_flag().load(Ordering::Relaxed));
            let has_trouble = trouble.is_some();
            run.on_notice(trouble.map_or(Notice::Healing, Notice::NotHealed));
            assert!(run.wait_healed(Duration::ZERO));
            run.end(Err(DrillError::Interrupted));
            assert_eq!((run.state(), run.halt("bob")), (RunState::Halted, RunState::Halted));
            let row = run.row();
            assert_eq!((row.report.is_some(), row.ended_unix_ms.is_some()), (has_trouble, true));
            assert_eq!(row.halted_by.as_deref(), Some("ann"));
        }
    }

    #[test]
    fn end_that_came_too_early_says_why() {
        let run = run("a", 1);
        run.end(Err(DrillError::Unhealthy { node: 0, state: "down".to_owned() }));
        let row = run.row();
        assert_eq!(row.state, RunState::Inconclusive);
        let report = row.report.unwrap();
        assert_eq!(report["verdict"], "INCONCLUSIVE");
        assert!(report["reasons"][0].as_str().unwrap().contains("node 0 is down"));
    }
}
