//! How that stands which a worker depends on and which it hears of now and then: the disk of the logs, the
//! control thread, the coordinator. What goes wrong with it is for people.

use std::sync::Arc;

use cell_protocol::{ReadOnlyReason, Refusal};

use crate::running_time::RunningTime;
use crate::warning;

/// The control thread comes back several times a second. While the coordinator hangs it does so after a few
/// calls, of which each takes up to 10 s. One that has not for so long is reported.
const CONTROL_SILENT_NS: u64 = 30_000_000_000;
/// That clients were refused is reported for so long.
const REFUSED_SHOWN_NS: u64 = 60_000_000_000;
/// A coordinator that has not answered calls in a row over so long is reported: one call may fail, or an
/// election stand between.
const AWAY_NS: u64 = 1_000_000_000;
/// That it has not is reported for so long after the last call: the next one may take the longest deadline.
const AWAY_SHOWN_NS: u64 = 15_000_000_000;

/// Calls of one kind that the coordinator has not answered, in a row.
#[derive(Debug, Default)]
struct Unanswered {
    /// When the first of them and the last failed.
    since_and_last_ns: Option<(u64, u64)>,
}

impl Unanswered {
    fn on_call(&mut self, answered: bool, now_ns: u64) {
        let before = self.since_and_last_ns.filter(|_| self.is_recent(now_ns));
        let since_ns = before.map_or(now_ns, |(since_ns, _)| since_ns);
        self.since_and_last_ns = (!answered).then_some((since_ns, now_ns));
    }

    fn is_recent(&self, now_ns: u64) -> bool {
        self.since_and_last_ns.is_some_and(|(_, last_ns)| now_ns.saturating_sub(last_ns) < AWAY_SHOWN_NS)
    }

    fn is_reported(&self, now_ns: u64) -> bool {
        let lasts = |(since_ns, last_ns): (u64, u64)| last_ns.saturating_sub(since_ns) >= AWAY_NS;
        self.since_and_last_ns.is_some_and(lasts) && self.is_recent(now_ns)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// What the disk of the logs has left, as far as that is known.
    pub(crate) disk_free: Option<u64>,
    time: RunningTime,
    /// For how long the control thread has not come back; none: it has not said yet that it is there.
    control_silent_ns: Option<u64>,
    /// When a client was last refused a session because the coordinator has no room.
    coordinator_full_at_ns: Option<u64>,
    /// Looks at the cluster, and sessions that clients asked for: it may answer one and not the other.
    looks: Unanswered,
    /// Why the last look failed.
    look_failure: Option<Arc<str>>,
    sessions: Unanswered,
}

impl Health {
    /// The time, with each tick.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let passed_ns = self.time.pass(now_ns);
        self.control_silent_ns.iter_mut().for_each(|silent_ns| *silent_ns += passed_ns);
    }

    /// The control thread is at work.
    pub(crate) fn on_control(&mut self) {
        self.control_silent_ns = Some(0);
    }

    /// Why a look at the cluster has failed; none: the coordinator has answered.
    pub(crate) fn on_look(&mut self, failure: Option<Arc<str>>, now_ns: u64) {
        self.looks.on_call(failure.is_none(), now_ns);
        self.look_failure = failure;
    }

    /// A client has asked for a session; why it got none.
    pub(crate) fn on_session(&mut self, refused: Option<&Refusal>, now_ns: u64) {
        match refused {
            Some(Refusal::ReadOnly { reason: ReadOnlyReason::CoordinatorFull }) => {
                self.coordinator_full_at_ns = Some(now_ns);
                self.sessions.on_call(true, now_ns);
            }
            Some(Refusal::CoordinatorAway) => self.sessions.on_call(false, now_ns),
            Some(_) => {}
            None => {
                self.coordinator_full_at_ns = None;
                self.sessions.on_call(true, now_ns);
            }
        }
    }

    /// What is wrong now.
    pub(crate) fn warnings(&self, now_ns: u64) -> impl Iterator<Item = String> {
        let silent_ns = self.control_silent_ns.filter(|silent_ns| *silent_ns >= CONTROL_SILENT_NS);
        let refused = self.coordinator_full_at_ns;
        let refused = refused.filter(|at_ns| now_ns.saturating_sub(*at_ns) < REFUSED_SHOWN_NS);
        let of_control = silent_ns.map(warning::of_control);
        let of_looks = self.look_failure.as_deref().filter(|_| self.looks.is_reported(now_ns));
        let of_sessions = || self.sessions.is_reported(now_ns).then_some("the coordinator does not answer");
        let of_coordinator = of_looks.or_else(of_sessions).map(warning::of_coordinator_away);
        let of_room = refused.map(|_| warning::of_coordinator_room());
        of_control.into_iter().chain(of_coordinator).chain(of_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn warnings(health: &Health, now_ns: u64) -> Vec<String> {
        health.warnings(now_ns).collect()
    }

    /// Ticks over some seconds.
    fn tick_on(health: &mut Health, seconds: std::ops::Range<u64>) {
        (seconds.start * 100..=seconds.end * 100).for_each(|tick| health.tick(tick * SECOND_NS / 100));
    }

    #[test]
    fn control_thread_that_does_not_come_back_is_reported_until_it_does() {
        let mut health = Health::default();
        tick_on(&mut health, 0..20);
        assert!(warnings(&health, 0).is_empty(), "it has not said yet that it is there");
        health.on_control();
        tick_on(&mut health, 20..49);
        assert!(warnings(&health, 0).is_empty());
        tick_on(&mut health, 49..55);
        let said = warnings(&health, 0);
        assert!(said.len() == 1 && said[0].contains("for 35 s"), "{said:?}");
        health.on_control();
        assert!(warnings(&health, 0).is_empty());
        // The whole process was stopped.
        health.tick(1_000 * SECOND_NS);
        assert!(warnings(&health, 0).is_empty());
    }

    #[test]
    fn coordinator_without_room_for_sessions_is_reported_until_one_is_opened() {
        let mut health = Health::default();
        health.on_session(Some(&Refusal::Busy), SECOND_NS);
        assert!(warnings(&health, SECOND_NS).is_empty());
        let full = Refusal::ReadOnly { reason: ReadOnlyReason::CoordinatorFull };
        health.on_session(Some(&full), SECOND_NS);
        health.on_session(Some(&Refusal::Busy), SECOND_NS);
        assert!(warnings(&health, 2 * SECOND_NS)[0].contains("has no room"));
        assert!(warnings(&health, SECOND_NS + REFUSED_SHOWN_NS).is_empty(), "nobody has asked for long");
        health.on_session(None, 2 * SECOND_NS);
        assert!(warnings(&health, 2 * SECOND_NS).is_empty());
    }

    /// A call of one kind: whether it was answered, and when.
    type CallOf<'a> = &'a dyn Fn(&mut Health, bool, u64);

    /// Each new client was refused its first write, and the node warned of nothing.
    #[test]
    fn coordinator_that_does_not_answer_is_reported_unless_it_was_one_call() {
        let look = |health: &mut Health, answered: bool, now_ns| {
            health.on_look((!answered).then(|| "it refuses (a password)".into()), now_ns);
        };
        let session = |health: &mut Health, answered: bool, now_ns| {
            health.on_session((!answered).then_some(&Refusal::CoordinatorAway), now_ns);
        };
        let kinds: [CallOf<'_>; 2] = [&look, &session];
        for call in kinds {
            let mut health = Health::default();
            call(&mut health, false, SECOND_NS);
            assert!(warnings(&health, 9 * SECOND_NS).is_empty(), "one call");
            call(&mut health, true, 2 * SECOND_NS);
            call(&mut health, false, 3 * SECOND_NS);
            assert!(warnings(&health, 3 * SECOND_NS).is_empty(), "it has answered between");
            call(&mut health, false, 3 * SECOND_NS + AWAY_NS);
            let said = warnings(&health, 3 * SECOND_NS + AWAY_NS);
            assert!(said.len() == 1 && said[0].contains("new clients cannot write"), "{said:?}");
            let later_ns = 3 * SECOND_NS + AWAY_NS + AWAY_SHOWN_NS;
            assert!(warnings(&health, later_ns).is_empty(), "nobody has asked for long");
            call(&mut health, false, later_ns);
            assert!(warnings(&health, later_ns).is_empty(), "one call, long after the others");
            call(&mut health, false, later_ns + AWAY_NS);
            assert_eq!(warnings(&health, later_ns + AWAY_NS).len(), 1);
            call(&mut health, true, later_ns + AWAY_NS);
            assert!(warnings(&health, later_ns + AWAY_NS).is_empty(), "it answers");
        }
        let mut health = Health::default();
        session(&mut health, false, SECOND_NS);
        session(&mut health, false, 3 * SECOND_NS);
        look(&mut health, true, 3 * SECOND_NS);
        assert_eq!(warnings(&health, 3 * SECOND_NS).len(), 1, "it is read, and not written to");
        look(&mut health, false, 4 * SECOND_NS);
        look(&mut health, false, 6 * SECOND_NS);
        assert!(warnings(&health, 6 * SECOND_NS)[0].starts_with("it refuses (a password): "));
    }
}
