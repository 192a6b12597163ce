//! What a client knows of one node's worker: whether its registrations are known, and for how long it is
//! trusted.

use super::mapping::Mapping;
use super::trust::Trust;
use crate::mutant::{Mutant, planted};

/// Time between two questions for a worker's registrations, where some are known, at least.
const RENEW_EVERY_NS: u64 = 20_000_000;

/// The longest time between two questions for what it may have got besides. The time doubles with each answer
/// that has nothing new: one that never gets what is looked for is not asked for it fifty times a second.
const LOOK_EVERY_MAX_NS: u64 = 640_000_000;

/// What is known of a worker's registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegistrationState {
    /// They are to be asked for.
    Wanted,
    /// They are asked for.
    Asked,
    /// They are known; the root's header may still be on its way.
    Registered,
    /// They are known, and asked for again because there are more by now.
    Renewing,
    /// There are none for now.
    Unavailable {
        /// When to ask again.
        until_ns: u64,
    },
}

/// What is known of one node's worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) registration: RegistrationState,
    /// It has welcomed this client, and the connection has not been lost since.
    pub(super) is_up: bool,
    pub(super) trust: Trust,
    pub(super) trust_asked: bool,
    /// Something was answered by it since it was asked for.
    pub(super) trust_used: bool,
    pub(super) scan_entries_max: u32,
    /// The list of registrations that is known: trust is about a list.
    pub(super) list: u64,
    /// It has another list by now.
    pub(super) is_outdated: bool,
    /// When the fabric is asked which of its regions are mapped.
    pub(super) mapping: Mapping,
    renew_not_before_ns: u64,
    /// When it may be asked next for what it may have got besides, and how long after that the next time.
    look_not_before_ns: u64,
    look_every_ns: u64,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker {
            registration: RegistrationState::Wanted,
            is_up: false,
            trust: Trust::default(),
            trust_asked: false,
            trust_used: false,
            scan_entries_max: u32::MAX,
            list: 0,
            is_outdated: false,
            mapping: Mapping::default(),
            renew_not_before_ns: 0,
            look_not_before_ns: 0,
            look_every_ns: RENEW_EVERY_NS,
        }
    }
}

impl Worker {
    /// Whether its registrations are known.
    pub(super) fn is_registered(&self) -> bool {
        matches!(self.registration, RegistrationState::Registered | RegistrationState::Renewing)
    }

    /// Whether its registrations are to be asked for. `lacking`: something was looked for that no worker has
    /// reported.
    pub(super) fn wants_regions(&self, now_ns: u64, lacking: bool) -> bool {
        match self.registration {
            RegistrationState::Wanted => true,
            RegistrationState::Unavailable { until_ns } => now_ns >= until_ns,
            RegistrationState::Registered => {
                let is_looked_for = lacking && now_ns >= self.look_not_before_ns;
                (is_looked_for || self.is_outdated) && now_ns >= self.renew_not_before_ns
            }
            RegistrationState::Asked | RegistrationState::Renewing => false,
        }
    }

    /// They are asked for.
    pub(super) fn on_regions_asked(&mut self, now_ns: u64) {
        if self.is_registered() {
            self.registration = RegistrationState::Renewing;
            self.renew_not_before_ns = now_ns.saturating_add(RENEW_EVERY_NS);
            self.look_not_before_ns = now_ns.saturating_add(self.look_every_ns);
        } else {
            self.registration = RegistrationState::Asked;
        }
        self.is_outdated = false;
    }

    /// Its list of registrations is known from here on.
    pub(super) fn on_list(&mut self, list: u64) {
        self.registration = RegistrationState::Registered;
        self.mapping = Mapping::default(); // it may be reached another way by now
        if self.list != list {
            (self.list, self.trust) = (list, Trust::default());
        }
    }

    /// It has reported its registrations, and something new among them or not.
    pub(super) fn on_reported(&mut self, is_news: bool) {
        self.look_every_ns = self.look_every_ns.saturating_mul(2).min(LOOK_EVERY_MAX_NS);
        if is_news {
            self.look_soon();
        }
    }

    /// It may have something else by now.
    pub(super) fn look_soon(&mut self) {
        (self.look_not_before_ns, self.look_every_ns) = (0, RENEW_EVERY_NS);
    }

    /// A reply grants trust in a list, counted from when it was asked for, if that is known.
    pub(super) fn on_trust(&mut self, list: u64, asked_ns: Option<u64>, trust_us: u32) {
        if list == self.list || planted(Mutant::TrustByLink) {
            asked_ns.into_iter().for_each(|asked_ns| self.trust.granted(asked_ns, trust_us));
        } else if list > self.list {
            self.is_outdated = true; // one of its registrations has left
        }
    }

    /// One of its registrations is of the past: they are asked for after so long.
    pub(super) fn on_registration_ended(&mut self, until_ns: u64) {
        self.is_outdated = true;
        self.renew_not_before_ns = self.renew_not_before_ns.max(until_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Asks from a time on, as often as it may be asked, until that many times; the times between.
    fn ask(worker: &mut Worker, from_ns: u64, times: usize, is_news: bool) -> (Vec<u64>, u64) {
        let (mut asked_ns, mut between) = (from_ns, Vec::new());
        for now_ns in (from_ns..).step_by(usize::try_from(MS).unwrap()) {
            if worker.wants_regions(now_ns, true) {
                between.push((now_ns - asked_ns) / MS);
                asked_ns = now_ns;
                worker.on_regions_asked(now_ns);
                worker.on_list(1);
                worker.on_reported(is_news);
            }
            if between.len() == times {
                break;
            }
        }
        (between, asked_ns)
    }

    #[test]
    fn worker_is_asked_ever_more_seldom_for_what_it_does_not_get_and_soon_after_it_got_something() {
        let mut worker = Worker::default();
        let (between, now_ns) = ask(&mut worker, 0, 1, true);
        assert_eq!(between, [0]);
        let (between, now_ns) = ask(&mut worker, now_ns + MS, 9, false);
        assert_eq!(between, [0, 20, 40, 80, 160, 320, 640, 640, 640]);
        worker.is_outdated = true; // it has said so: that is no look for what may be there
        assert!(worker.wants_regions(now_ns + 20 * MS, false));
        worker.on_regions_asked(now_ns + 20 * MS);
        worker.on_list(2);
        worker.on_reported(true);
        let (between, now_ns) = ask(&mut worker, now_ns + 20 * MS, 3, false);
        assert_eq!(between, [20, 20, 40]);
        worker.look_soon();
        assert_eq!(ask(&mut worker, now_ns, 2, false).0, [20, 20]);
    }
}
