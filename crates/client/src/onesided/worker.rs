//! What a client knows of one node's worker: whether its registrations are known, and for how long it is
//! trusted.

use super::trust::Trust;

/// Time between two questions for what a worker may have got besides what it told, at least.
const RENEW_EVERY_NS: u64 = 20_000_000;

/// What is known of a worker's registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// They are to be asked for.
    Wanted,
    /// They are asked for.
    Asked,
    /// They are known; the root's header may still be on its way.
    Here,
    /// They are known, and asked for again because there are more by now.
    Renewed,
    /// There are none for now.
    Nowhere {
        /// When to ask again.
        until_ns: u64,
    },
}

/// What is known of one node's worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) known: Known,
    /// It has welcomed this client, and the connection has not been lost since.
    pub(super) is_up: bool,
    pub(super) trust: Trust,
    pub(super) trust_asked: bool,
    /// Something was answered by it since it was asked for.
    pub(super) trust_used: bool,
    pub(super) scan_entries_max: u32,
    renew_not_before_ns: u64,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker {
            known: Known::Wanted,
            is_up: false,
            trust: Trust::default(),
            trust_asked: false,
            trust_used: false,
            scan_entries_max: u32::MAX,
            renew_not_before_ns: 0,
        }
    }
}

impl Worker {
    /// Whether its registrations are known.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.known, Known::Here | Known::Renewed)
    }

    /// Whether its registrations are to be asked for. `lacking`: something was looked for that nobody has
    /// told of.
    pub(super) fn wants_regions(&self, now_ns: u64, lacking: bool) -> bool {
        match self.known {
            Known::Wanted => true,
            Known::Nowhere { until_ns } => now_ns >= until_ns,
            Known::Here => lacking && now_ns >= self.renew_not_before_ns,
            Known::Asked | Known::Renewed => false,
        }
    }

    /// They are asked for.
    pub(super) fn regions_asked(&mut self, now_ns: u64) {
        if self.is_here() {
            self.known = Known::Renewed;
            self.renew_not_before_ns = now_ns.saturating_add(RENEW_EVERY_NS);
        } else {
            self.known = Known::Asked;
        }
    }
}
