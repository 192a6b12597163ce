//! What can be set, and what is counted.

use std::sync::atomic::{AtomicU64, Ordering};

use cell_terms::setting::{Applies, Bounds, Setting};
use cell_terms::{Counter, CounterKind, CounterValue};

/// Why the terms of leases do not change while nodes run.
const TERMS_SHARED: &str = "Other nodes count on the terms that a lease was granted on; all would have to change at the same moment.";

/// The settings of this crate.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "lease_ms",
        meaning: "How long a node's lease lasts without a renewal. After a node's death nobody serves its \
                  pairs for so long; with shorter leases shorter stalls make a node silent, or cost it its \
                  pairs.",
        default: "500 ms",
        bounds: Bounds::Milliseconds { min: 50, max: 60_000 },
        applies: Applies::Restart(TERMS_SHARED),
    },
    Setting {
        name: "lease_drift_margin",
        meaning: "The part of its lease that a node does not rely on, for the drift between its clock \
                  and the coordinator's.",
        default: "0.05",
        bounds: Bounds::Real { min: 0.001, max: 0.5 },
        applies: Applies::Restart(TERMS_SHARED),
    },
    Setting {
        name: "trust_max_ms",
        meaning: "For how long at most, after it asked, a client believes what it reads in a node's memory \
                  itself; never for longer than the lease holds.",
        default: "300 ms",
        bounds: Bounds::Milliseconds { min: 10, max: 10_000 },
        applies: Applies::Restart(TERMS_SHARED),
    },
    Setting {
        name: "coordinator_deadline_ms",
        meaning: "How long one call of the coordinator may take. Keep it below the lease, so that a \
                  renewal that hangs can be tried again.",
        default: "300 ms",
        bounds: Bounds::Milliseconds { min: 10, max: 10_000 },
        applies: Applies::Live,
    },
];

const RENEWALS: Counter = Counter {
    name: "lease_renewals_total",
    meaning: "Renewals of this node's lease that the coordinator confirmed.",
    kind: CounterKind::Total,
};
const RENEWALS_FAILED: Counter = Counter {
    name: "lease_renewals_failed_total",
    meaning: "Renewals of this node's lease that timed out or did not reach the coordinator.",
    kind: CounterKind::Total,
};
const RUN_OUT: Counter = Counter {
    name: "lease_run_out_total",
    meaning: "Times that this node's lease ran out before it was renewed; the node was silent until it was.",
    kind: CounterKind::Total,
};
const RENEWAL_MAX: Counter = Counter {
    name: "lease_renewal_max_seconds",
    meaning: "The longest that a confirmed renewal took.",
    kind: CounterKind::Gauge,
};
const REMAINING_MIN: Counter = Counter {
    name: "lease_remaining_min_seconds",
    meaning: "The least time that was left of the lease when a renewal was confirmed.",
    kind: CounterKind::Gauge,
};

/// The counters of this crate.
pub const COUNTERS: &[Counter] = &[RENEWALS, RENEWALS_FAILED, RUN_OUT, RENEWAL_MAX, REMAINING_MIN];

/// What is counted, by any thread.
#[derive(Debug)]
pub struct ClusterCounts {
    renewals: AtomicU64,
    renewals_failed: AtomicU64,
    run_out: AtomicU64,
    renewal_max_ns: AtomicU64,
    remaining_min_ns: AtomicU64,
}

impl Default for ClusterCounts {
    fn default() -> ClusterCounts {
        ClusterCounts {
            renewals: AtomicU64::new(0),
            renewals_failed: AtomicU64::new(0),
            run_out: AtomicU64::new(0),
            renewal_max_ns: AtomicU64::new(0),
            remaining_min_ns: AtomicU64::new(u64::MAX),
        }
    }
}

impl ClusterCounts {
    pub(crate) fn renewed(&self, took_ns: u64, was_left_ns: u64) {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.renewal_max_ns.fetch_max(took_ns, Ordering::Relaxed);
        self.remaining_min_ns.fetch_min(was_left_ns, Ordering::Relaxed);
    }

    pub(crate) fn renewal_failed(&self) {
        self.renewals_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ran_out(&self) {
        self.run_out.fetch_add(1, Ordering::Relaxed);
    }

    /// The readings, in the order of [`COUNTERS`].
    #[must_use]
    pub fn values(&self) -> Vec<CounterValue> {
        let least = self.remaining_min_ns.load(Ordering::Relaxed);
        let readings = [
            whole(self.renewals.load(Ordering::Relaxed)),
            whole(self.renewals_failed.load(Ordering::Relaxed)),
            whole(self.run_out.load(Ordering::Relaxed)),
            whole(self.renewal_max_ns.load(Ordering::Relaxed)) / 1e9,
            if least == u64::MAX { 0.0 } else { whole(least) / 1e9 },
        ];
        COUNTERS.iter().zip(readings).map(|(counter, value)| CounterValue { counter, value }).collect()
    }
}

/// Exact up to 2^53, which a count or a time of a process's life does not reach.
#[allow(clippy::cast_precision_loss, reason = "readings are shown, not calculated with")]
fn whole(value: u64) -> f64 {
    value as f64
}
