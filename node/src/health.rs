//! How that stands which a worker depends on and which it hears of now and then: the disk of the logs, the
//! control thread, the coordinator. What goes wrong with it is for people.

use cell_protocol::{ReadOnlyReason, Refusal};

use crate::running_time::RunningTime;
use crate::warning;

/// The control thread comes back several times a second. While the coordinator hangs it does so after a few
/// calls, of which each takes up to 10 s. Of one that has not for so long is told.
const CONTROL_SILENT_NS: u64 = 30_000_000_000;
/// That clients were refused is told for so long.
const REFUSED_SHOWN_NS: u64 = 60_000_000_000;

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

    /// A client has asked for a session; why it got none.
    pub(crate) fn on_session(&mut self, refused: Option<&Refusal>, now_ns: u64) {
        match refused {
            Some(Refusal::ReadOnly { reason: ReadOnlyReason::CoordinatorFull }) => {
                self.coordinator_full_at_ns = Some(now_ns);
            }
            Some(_) => {}
            None => self.coordinator_full_at_ns = None,
        }
    }

    /// What is wrong now.
    pub(crate) fn warnings(&self, now_ns: u64) -> impl Iterator<Item = String> {
        let silent_ns = self.control_silent_ns.filter(|silent_ns| *silent_ns >= CONTROL_SILENT_NS);
        let refused = self.coordinator_full_at_ns;
        let refused = refused.filter(|at_ns| now_ns.saturating_sub(*at_ns) < REFUSED_SHOWN_NS);
        let of_control = silent_ns.map(warning::of_control);
        of_control.into_iter().chain(refused.map(|_| warning::of_coordinator_room()))
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
    fn control_thread_that_does_not_come_back_is_told_until_it_does() {
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
    fn coordinator_without_room_for_sessions_is_told_until_one_is_opened() {
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
}
