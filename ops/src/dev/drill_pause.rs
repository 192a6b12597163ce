//! Balance moves nothing while somebody does a drill to the cluster: a row of the coordinator says so. It
//! goes with the drill's connection, and with a lease where the supervisor dies before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_cluster::{Balance, ClusterError, Coordinator, PauseCause};
use cell_drill::wire::DrillRequest;
use cell_terms::Incarnation;

/// The row outlasts a supervisor for so long.
const LEASE_MS: u64 = 120_000;
/// The lease is renewed so often at most.
const RENEWED_EVERY: Duration = Duration::from_secs(10);

/// The row, which may be there from its first try on.
struct Held {
    lease: Incarnation,
    /// What it says; none: that is not known.
    cause: Option<PauseCause>,
    renewed: Instant,
}

/// The pause of one connection. Dropping it ends the pause.
pub(super) struct DrillPause {
    coordinator: Arc<dyn Coordinator>,
    /// What was started that balance is to rest for.
    wanted: Option<PauseCause>,
    held: Option<Held>,
}

impl DrillPause {
    /// None yet.
    pub(super) fn new(coordinator: &Arc<dyn Coordinator>) -> DrillPause {
        DrillPause { coordinator: coordinator.clone(), wanted: None, held: None }
    }

    /// A request comes that is not refused: whatever is more than a look begins the pause, and all hold it,
    /// or begin it if the coordinator had not answered. The begin of a drill does: its keys lie in what its
    /// node owns then.
    pub(super) fn note(&mut self, request: DrillRequest, now: Instant) {
        let asked = match request {
            look if look.is_look() => None,
            DrillRequest::Drain { .. } => Some(PauseCause::RollingRestart),
            _ => Some(PauseCause::Drill),
        };
        self.wanted = self.wanted.max(asked);
        if let Err(error) = self.hold(now) {
            tracing::warn!(%error, "balance may move pairs during a drill");
        }
    }

    fn hold(&mut self, now: Instant) -> Result<(), ClusterError> {
        let Some(cause) = self.wanted else { return Ok(()) };
        let is_young = |held: &Held| now.saturating_duration_since(held.renewed) < RENEWED_EVERY;
        let is_fresh = |held: &Held| held.cause == Some(cause) && is_young(held);
        if self.held.as_ref().is_some_and(is_fresh) {
            return Ok(());
        }
        let held = self.held.as_ref().map(|held| held.lease);
        let lease = match held.filter(|lease| self.coordinator.keep_alive(*lease).is_ok()) {
            Some(lease) => lease,
            None => self.coordinator.grant(LEASE_MS)?.lease,
        };
        // Before it is tried: a row that is there without an answer is taken away, too.
        self.held = Some(Held { lease, cause: None, renewed: now });
        Balance::new(self.coordinator.clone()).pause(lease, cause)?;
        self.held = Some(Held { lease, cause: Some(cause), renewed: now });
        Ok(())
    }
}

impl Drop for DrillPause {
    fn drop(&mut self) {
        let Some(held) = &self.held else { return };
        if let Err(error) = Balance::new(self.coordinator.clone()).resume(held.lease) {
            tracing::debug!(%error, "balance rests until the lease of a drill has ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::{Fault, Sim, Watch};

    use super::*;

    fn paused(sim: &Sim) -> Option<PauseCause> {
        let mut watch = Watch::new(Arc::new(sim.link()));
        watch.follow_balance();
        watch.look().unwrap();
        watch.view().balance.pause()
    }

    #[test]
    fn balance_rests_from_a_drills_begin_to_the_end_of_its_connection() {
        let sim = Sim::new(1);
        let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
        let (mut pause, now) = (DrillPause::new(&coordinator), Instant::now());
        pause.note(DrillRequest::Status, now);
        assert_eq!(paused(&sim), None, "who looks does nothing");
        pause.note(DrillRequest::Begin { node: Some(0), claim: None }, now);
        assert_eq!(paused(&sim), Some(PauseCause::Drill));
        pause.note(DrillRequest::Kill { node: 0, down_ms: 0 }, now);
        assert_eq!(paused(&sim), Some(PauseCause::Drill));
        pause.note(DrillRequest::Drain { node: 0, on: true }, now);
        pause.note(DrillRequest::Restart { node: 0 }, now);
        assert_eq!(paused(&sim), Some(PauseCause::RollingRestart));
        drop(pause);
        assert_eq!(paused(&sim), None);
    }

    /// Balance moved pairs until the drill did more than look, after it had chosen its keys.
    #[test]
    fn pause_that_the_coordinator_did_not_hear_of_begins_with_the_next_look() {
        let sim = Sim::new(1);
        let link = sim.link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let (mut pause, now) = (DrillPause::new(&coordinator), Instant::now());
        link.plan([Fault::NotReached]);
        pause.note(DrillRequest::Begin { node: Some(0), claim: None }, now);
        assert_eq!(paused(&sim), None);
        pause.note(DrillRequest::Status, now);
        assert_eq!(paused(&sim), Some(PauseCause::Drill));
        drop(pause);
        assert_eq!(paused(&sim), None);
    }

    /// Balance rested for two minutes after the drill.
    #[test]
    fn pause_whose_answer_is_lost_ends_with_its_connection() {
        let sim = Sim::new(1);
        let link = sim.link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let (mut pause, now) = (DrillPause::new(&coordinator), Instant::now());
        link.plan([Fault::None, Fault::AnswerLost]); // of the lease, and of the row
        pause.note(DrillRequest::Begin { node: Some(0), claim: None }, now);
        assert_eq!(paused(&sim), Some(PauseCause::Drill));
        drop(pause);
        assert_eq!(paused(&sim), None);
    }

    #[test]
    fn pause_lasts_while_the_drill_looks_and_ends_with_a_supervisor_that_died() {
        let sim = Sim::new(1);
        let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
        let (mut pause, mut now) = (DrillPause::new(&coordinator), Instant::now());
        pause.note(DrillRequest::Stop { node: 0 }, now);
        for _ in 0..3 {
            sim.advance(LEASE_MS * 600_000);
            now += RENEWED_EVERY;
            pause.note(DrillRequest::Status, now);
            assert_eq!(paused(&sim), Some(PauseCause::Drill));
        }
        sim.advance(LEASE_MS * 1_100_000);
        assert_eq!(paused(&sim), None);
        now += RENEWED_EVERY;
        pause.note(DrillRequest::Status, now);
        assert_eq!(paused(&sim), Some(PauseCause::Drill), "by another lease");
    }
}
