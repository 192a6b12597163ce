//! What a client knows of one node's worker: whether its registrations are known, and for how long it is
//! trusted.

use super::mapping::Mapping;
use super::trust::Trust;
use crate::mutant::{Mutant, planted};

/// Time between two questions for what a worker may have got besides what it reported, at least.
const RENEW_EVERY_NS: u64 = 20_000_000;

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
                (lacking || self.is_outdated) && now_ns >= self.renew_not_before_ns
            }
            RegistrationState::Asked | RegistrationState::Renewing => false,
        }
    }

    /// They are asked for.
    pub(super) fn on_regions_asked(&mut self, now_ns: u64) {
        if self.is_registered() {
            self.registration = RegistrationState::Renewing;
            self.renew_not_before_ns = now_ns.saturating_add(RENEW_EVERY_NS);
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
