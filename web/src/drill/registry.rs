//! The drills of this node: begins them, one at a time in the cluster, and keeps the last ones.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use cell_cluster::{ClusterError, Coordinator};
use cell_drill::{ANY_KIND, CHECK_WITHIN, ClaimRow, DrillError, Supervisors};
use cell_fabric::TlsTrust;
use cell_terms::Incarnation;

use crate::drill::run::{Run, RunRow, RunSeen, RunState};
use crate::drill::wanted::DrillWanted;

/// Runs that are kept; the oldest go first.
const RUNS_MAX: usize = 50;
/// How long the end of this node waits until faults are taken back.
const HEAL_PATIENCE: Duration = Duration::from_secs(5);

/// How long one that begins waits for the agents of the last one, which take back what it has left.
const OVER_PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the cluster's place for a drill may take to be had: for the end of the last one, and for calls of
/// a coordinator that is slow.
const TAKE_PATIENCE: Duration = OVER_PATIENCE.saturating_add(Duration::from_secs(2));
/// A drill that has not started in this time does not begin. Who asked another node for it waits for longer
/// than that, and so knows what became of it.
pub(crate) const BEGIN_WITHIN: Duration = TAKE_PATIENCE.saturating_add(CHECK_WITHIN);

/// Who halts a drill when its node ends.
const NODE_ENDS: &str = "the end of the node that ran it";

/// What a drill needs of the node that runs it.
#[derive(Clone)]
pub(crate) struct RunPlace {
    /// Who does faults.
    pub(crate) at: Supervisors,
    /// The node.
    pub(crate) runner: u32,
    /// Its lease.
    pub(crate) lease: Incarnation,
    pub(crate) coordinator: Option<Arc<dyn Coordinator>>,
    /// The wall clock.
    pub(crate) now_unix_ms: fn() -> u64,
    /// What its clients show; empty: nothing.
    pub(crate) token: Vec<u8>,
    /// Whom they trust under TLS.
    pub(crate) trust: Option<TlsTrust>,
}

/// Why a drill was not started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// Another one runs.
    Busy(ClaimRow),
    /// The coordinator does not say whether another one runs.
    Coordinator(ClusterError),
    /// The cluster cannot be drilled now.
    Drill(DrillError),
    /// The time was over before it could begin: another one took so long to begin, or the coordinator.
    Late,
    /// There is no thread.
    Thread(io::Error),
}

/// The drills of this node. Dropping it halts what runs.
#[derive(Default)]
pub(crate) struct Drills {
    /// Held while one is started.
    beginning: Mutex<()>,
    /// The newest last.
    runs: Mutex<VecDeque<Arc<Run>>>,
}

impl Drills {
    /// All that are kept, the newest first.
    pub(crate) fn rows(&self) -> Vec<RunRow> {
        self.runs().iter().rev().map(|run| run.row()).collect()
    }

    /// How far each is that has started, the oldest first.
    pub(crate) fn seen(&self) -> Vec<RunSeen> {
        let has_started = |seen: &RunSeen| seen.state != RunState::Beginning;
        self.runs().iter().map(|run| run.seen()).filter(has_started).collect()
    }

    /// The run of this name.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Run>> {
        self.runs().iter().find(|run| run.id == id).cloned()
    }

    /// Begins a drill on a thread of its own, unless the same request has started one before: then that one
    /// is meant. Its name and the node that runs it; of one that was claimed before, also by this node, it is
    /// not known whether it runs. Blocks for calls of coordinator and supervisor, for [`BEGIN_WITHIN`] at
    /// most; meanwhile it is among the runs, as one that begins.
    pub(crate) fn begin(
        &self,
        place: &RunPlace,
        wanted: DrillWanted,
        repeat_id: Option<u64>,
    ) -> Result<(String, u32), NotStarted> {
        self.begin_until(place, wanted, repeat_id, crate::clock::now() + BEGIN_WITHIN)
    }

    fn begin_until(
        &self,
        place: &RunPlace,
        wanted: DrillWanted,
        repeat_id: Option<u64>,
        until: Instant,
    ) -> Result<(String, u32), NotStarted> {
        let _one = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |run: &&Arc<Run>| repeat_id.is_some() && run.repeat_id == repeat_id;
        if let Some(before) = self.runs().iter().find(is_same) {
            return Ok((before.id.clone(), place.runner));
        }
        let id = format!("drill-{}-{:016x}", place.runner, RandomState::new().build_hasher().finish());
        let (kind, node) = (wanted.kind.word().to_owned(), wanted.node);
        let claim = ClaimRow { id: id.clone(), runner: place.runner, kind, node, repeat_id, kept_by: None };
        if let Some(run) = self.runs().iter().find(|run| !run.state().is_over()) {
            let row = run.row();
            return Err(NotStarted::Busy(ClaimRow {
                id: row.id,
                kind: row.kind,
                node: run.wanted.node,
                ..claim
            }));
        }
        if left(until).is_zero() {
            return Err(NotStarted::Late);
        }
        let run = Arc::new(Run::new(id.clone(), wanted, repeat_id, place.runner, place.now_unix_ms));
        self.keep(Arc::clone(&run)); // who looks sees what was asked for, and what it waits for
        let started = self.begin_kept(place, &run, claim, until);
        match &started {
            Ok((started, _)) if *started == id => self.trim(),
            _ => self.forget(&run),
        }
        started
    }

    /// The same of one that is among the runs already.
    fn begin_kept(
        &self,
        place: &RunPlace,
        run: &Arc<Run>,
        claim: ClaimRow,
        until: Instant,
    ) -> Result<(String, u32), NotStarted> {
        match self.take(place, run, &claim)? {
            Some(other) if other.is_same(&claim) => return Ok((other.id, other.runner)),
            Some(other) => return Err(NotStarted::Busy(other)),
            None => {}
        }
        let started = start(place, Arc::clone(run), claim.clone(), left(until));
        if started.is_err() {
            release_in_background(place, claim);
        }
        started.map(|()| (run.id.clone(), place.runner))
    }

    /// Takes the cluster's one place for a drill; the drill that has it, if another one does. A claim of this
    /// node for a drill that does not run is only waiting to be taken away: one begins at a time. An agent
    /// that keeps it still takes back what that drill has left.
    fn take(&self, place: &RunPlace, run: &Run, claim: &ClaimRow) -> Result<Option<ClaimRow>, NotStarted> {
        let Some(coordinator) = place.coordinator.as_deref() else { return Ok(None) };
        run.waits_for("the coordinator, which knows whether another drill runs".to_owned());
        let take = || claim.take(coordinator, place.lease).map_err(NotStarted::Coordinator);
        let runs = |row: &ClaimRow| self.find(&row.id).is_some_and(|run| !run.state().is_over());
        // An agent has written one for the first of its nodes, which knows nothing of that drill.
        let is_own = |row: &ClaimRow| row.runner == place.runner && row.kind != ANY_KIND;
        let is_over = |row: &ClaimRow| is_own(row) && !runs(row);
        let until = crate::clock::now() + OVER_PATIENCE;
        let mut other = take()?;
        while let Some(over) = other.as_ref().filter(|row| is_over(row)) {
            over.try_release(coordinator).map_err(NotStarted::Coordinator)?;
            other = take()?;
            if other.is_some() {
                if crate::clock::now() >= until {
                    break;
                }
                run.waits_for("what the last drill has left to be taken back".to_owned());
                thread::park_timeout(LOOK_EVERY);
            }
        }
        Ok(other)
    }

    fn keep(&self, run: Arc<Run>) {
        self.runs().push_back(run);
    }

    /// Leaves the newest.
    fn trim(&self) {
        let mut runs = self.runs();
        while runs.len() > RUNS_MAX {
            runs.pop_front();
        }
    }

    /// It has not started. One that was halted meanwhile stays: who did that sees what became of it.
    fn forget(&self, run: &Run) {
        if run.halt_flag().load(Ordering::Relaxed) {
            run.end(Err(DrillError::Interrupted));
            return self.trim();
        }
        self.runs().retain(|kept| kept.id != run.id);
    }

    /// The node ends: halts what runs, and waits until its fault is taken back.
    pub(crate) fn halt_all(&self) {
        let runs: Vec<_> = self.runs().iter().filter(|run| !run.halt(NODE_ENDS).is_over()).cloned().collect();
        for run in runs {
            if !run.wait_healed(HEAL_PATIENCE) {
                tracing::error!(run = run.id, "the fault may last; `cell drill heal` takes it back");
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Drills {
    fn drop(&mut self) {
        self.halt_all();
    }
}

/// What is left until then.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(crate::clock::now())
}

/// Starts the drill's thread, if the cluster can be drilled now; it takes no longer than this to say so.
fn start(place: &RunPlace, run: Arc<Run>, claim: ClaimRow, within: Duration) -> Result<(), NotStarted> {
    if within.is_zero() {
        return Err(NotStarted::Late);
    }
    let mut drill = run.wanted.drill(place.at.clone());
    drill.claim = claim.number();
    drill.options.token.clone_from(&place.token);
    drill.options.trust.clone_from(&place.trust);
    let turn = drill.check(within, &|whom| run.waits_for(whom)).map_err(NotStarted::Drill)?;
    run.begin();
    let coordinator = place.coordinator.clone();
    let body = move || {
        tracing::info!(run = run.id, kind = claim.kind, node = claim.node, "a drill begins");
        let result = drill.run_in(turn, run.halt_flag(), &|notice| run.on_notice(notice));
        run.end(result);
        tracing::info!(run = run.id, state = ?run.state(), "the drill has ended");
        if let Some(coordinator) = coordinator {
            claim.release(&*coordinator); // it may take a minute: nobody waits for it
        }
    };
    thread::Builder::new().name("drill".into()).spawn(body).map_err(NotStarted::Thread)?;
    Ok(())
}

/// Takes the claim of a drill away that was not started, while others may begin one.
fn release_in_background(place: &RunPlace, claim: ClaimRow) {
    let Some(coordinator) = place.coordinator.clone() else { return };
    let release = move || claim.release(&*coordinator);
    if let Err(error) = thread::Builder::new().name("drill-release".into()).spawn(release) {
        tracing::error!(%error, "no thread to take a drill's row away: it goes with the node's lease");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use cell_cluster::{Fault, Sim};
    use cell_drill::{FaultKind, drill_socket};

    use super::*;
    use crate::drill::run::tests::run;
    use crate::drill::wanted::tests::wanted;

    fn place(sim: &Sim, folder: &str) -> RunPlace {
        let link = sim.link();
        let lease = link.grant(60_000).unwrap().lease;
        RunPlace {
            at: Supervisors::Folder(folder.into()),
            runner: 2,
            lease,
            coordinator: Some(Arc::new(link)),
            now_unix_ms: || 1_000,
            token: Vec::new(),
            trust: None,
        }
    }

    /// A coordinator that was lost once held up everybody who asked for a drill, for a minute.
    #[test]
    fn begin_that_fails_does_not_wait_until_its_claim_is_taken_away() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let link = sim.link();
        let lease = link.grant(60_000).unwrap().lease;
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let place = RunPlace { lease, coordinator: Some(coordinator), ..place(&sim, "/nonexistent") };
        link.plan([Fault::None, Fault::NotReached]);
        assert!(matches!(drills.begin(&place, wanted(FaultKind::Kill, 1), None), Err(NotStarted::Drill(_))));
        assert!(sim.link().read("web/drill").unwrap().is_some(), "it is not taken away yet");
    }

    /// A drill that this node has run; its row, which nobody has taken away yet.
    fn over(drills: &Drills) -> ClaimRow {
        let over = run("drill-2-1", 1);
        over.end(Err(DrillError::Interrupted));
        drills.keep(Arc::new(over));
        let kind = "kill".to_owned();
        ClaimRow { id: "drill-2-1".into(), runner: 2, kind, node: 1, ..ClaimRow::default() }
    }

    #[test]
    fn begin_after_a_run_whose_claim_is_still_there_takes_its_place() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let place = place(&sim, "/nonexistent");
        let row = over(&drills);
        assert_eq!(row.take(place.coordinator.as_deref().unwrap(), place.lease).unwrap(), None);
        let started = drills.begin(&place, wanted(FaultKind::Kill, 1), None);
        assert!(matches!(started, Err(NotStarted::Drill(DrillError::NoSupervisor { .. }))), "{started:?}");
    }

    /// Its row was taken away, and two drills ran.
    #[test]
    fn begin_while_an_agent_takes_the_last_drill_back_names_that_one() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let place = place(&sim, "/nonexistent");
        let row = over(&drills);
        let link = sim.link();
        assert_eq!(row.take(&link, place.lease).unwrap(), None);
        let agents = link.grant(60_000).unwrap().lease;
        assert!(row.keep_under(&link, agents).unwrap());
        let refused = drills.begin(&place, wanted(FaultKind::Kill, 1), None);
        assert!(matches!(&refused, Err(NotStarted::Busy(other)) if other.id == row.id), "{refused:?}");
        link.end_lease(agents).unwrap();
        let started = drills.begin(&place, wanted(FaultKind::Kill, 1), None);
        assert!(matches!(started, Err(NotStarted::Drill(DrillError::NoSupervisor { .. }))), "{started:?}");
    }

    /// It was taken away, and two drills ran.
    #[test]
    fn begin_leaves_the_claim_of_an_agent_at_the_same_node() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let place = place(&sim, "/nonexistent");
        let kind = ANY_KIND.to_owned();
        let row = ClaimRow { id: "drill-2-7".into(), runner: 2, kind, node: 2, ..ClaimRow::default() };
        assert_eq!(row.take(place.coordinator.as_deref().unwrap(), place.lease).unwrap(), None);
        let refused = drills.begin(&place, wanted(FaultKind::Kill, 1), None);
        assert!(matches!(&refused, Err(NotStarted::Busy(other)) if *other == row), "{refused:?}");
    }

    /// It waited for the one before it, and then began, when nobody waited for it any more.
    #[test]
    fn begin_that_is_late_does_not_begin_and_claims_nothing() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let place = place(&sim, "/nonexistent");
        let begin = |repeat_id| {
            let now = crate::clock::now();
            drills.begin_until(&place, wanted(FaultKind::Kill, 1), repeat_id, now)
        };
        assert!(matches!(begin(None), Err(NotStarted::Late)));
        assert_eq!(sim.link().read("web/drill").unwrap(), None);
        drills.keep(Arc::new(Run::new("drill-2-1".into(), wanted(FaultKind::Kill, 1), Some(9), 2, || 1_000)));
        assert_eq!(begin(Some(9)).unwrap().0, "drill-2-1", "what runs is returned all the same");
    }

    #[test]
    fn begin_without_a_supervisor_leaves_nothing_behind() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let place = place(&sim, "/nonexistent");
        for _ in 0..2 {
            let refused = drills.begin(&place, wanted(FaultKind::Kill, 1), None);
            assert!(
                matches!(refused, Err(NotStarted::Drill(DrillError::NoSupervisor { .. }))),
                "{refused:?}"
            );
        }
        assert!(drills.rows().is_empty());
    }

    /// Nobody saw that a drill was asked for, nor whom it waited for, until it ran: with agents that stand
    /// still for as long as they may.
    #[test]
    fn drill_that_waits_for_its_supervisor_is_among_the_runs() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(drill_socket(folder.path())).unwrap();
        for is_halted in [false, true] {
            let place = place(&sim, folder.path().to_str().unwrap());
            thread::scope(|scope| {
                let drills = &drills;
                let started = scope.spawn(move || drills.begin(&place, wanted(FaultKind::Kill, 1), None));
                let (asked, _) = listener.accept().unwrap(); // and it is answered nothing
                let until = crate::clock::now() + Duration::from_secs(30);
                let whom = Some("what is said of how all nodes are");
                let waits = |row: &RunRow| row.waits_for.as_deref() == whom;
                let row = loop {
                    let rows = drills.rows();
                    if let Some(row) = rows.first().filter(|row| waits(row)) {
                        break row.clone();
                    }
                    assert!(crate::clock::now() < until, "{rows:?}");
                    thread::park_timeout(LOOK_EVERY);
                };
                assert_eq!((row.state, drills.seen().len()), (RunState::Beginning, 0));
                if is_halted {
                    assert_eq!(drills.find(&row.id).unwrap().halt("ann"), RunState::Beginning);
                }
                drop(asked);
                let refused = started.join().unwrap();
                assert!(matches!(refused, Err(NotStarted::Drill(_))), "{refused:?}");
            });
            let left: Vec<_> = drills.rows().into_iter().map(|row| (row.state, row.halted_by)).collect();
            let halted = is_halted.then(|| (RunState::Halted, Some("ann".to_owned())));
            assert_eq!(left, Vec::from_iter(halted));
        }
    }

    #[test]
    fn begin_while_another_runs_names_it_wherever_it_runs() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let place = place(&sim, "/nonexistent");
        let row = |id: &str| ClaimRow {
            id: id.to_owned(),
            runner: 0,
            kind: "kill".to_owned(),
            node: 1,
            repeat_id: Some(9),
            kept_by: None,
        };
        let coordinator = place.coordinator.clone().unwrap();
        assert_eq!(row("drill-0-7").take(&*coordinator, place.lease).unwrap(), None);
        let refused = drills.begin(&place, wanted(FaultKind::Kill, 1), None);
        assert!(matches!(refused, Err(NotStarted::Busy(busy)) if busy == row("drill-0-7")));
        let again = drills.begin(&place, wanted(FaultKind::Kill, 1), Some(9));
        assert_eq!(again.unwrap(), ("drill-0-7".to_owned(), 0), "the same request, sent again");
        row("drill-0-7").release(&*coordinator);
        drills.keep(Arc::new(run("drill-2-1", 1)));
        let refused = drills.begin(&place, wanted(FaultKind::Kill, 1), None);
        assert!(matches!(refused, Err(NotStarted::Busy(busy)) if busy.id == "drill-2-1" && busy.runner == 2));
    }

    #[test]
    fn begin_of_the_same_request_is_the_run_that_it_began() {
        let (sim, drills) = (Sim::new(1), Drills::default());
        let place = place(&sim, "/nonexistent");
        let wanted = || wanted(FaultKind::Kill, 1);
        drills.keep(Arc::new(Run::new("drill-2-1".to_owned(), wanted(), Some(9), 2, || 1_000)));
        let same = drills.begin(&place, wanted(), Some(9));
        assert_eq!(same.unwrap(), ("drill-2-1".to_owned(), 2));
        for other in [None, Some(8)] {
            assert!(matches!(drills.begin(&place, wanted(), other), Err(NotStarted::Busy(_))));
        }
    }

    #[test]
    fn rows_are_the_last_ones_the_newest_first() {
        let drills = Drills::default();
        for number in 0..=RUNS_MAX {
            let run = run(&number.to_string(), 1);
            run.end(Err(DrillError::Interrupted));
            drills.keep(Arc::new(run));
            drills.trim();
        }
        let rows = drills.rows();
        assert_eq!((rows.len(), &*rows[0].id, &*rows[RUNS_MAX - 1].id), (RUNS_MAX, "50", "1"));
        assert!(drills.find("0").is_none() && drills.find("1").is_some());
    }
}
