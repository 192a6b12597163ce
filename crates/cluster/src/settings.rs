//! What can be set, and what is counted.

use std::sync::atomic::{AtomicU64, Ordering};

use cell_terms::setting::{Applies, Bounds, OPTIONAL_PATH, Setting, TextForm};
use cell_terms::{Counter, CounterKind, CounterValue};

use crate::lease::LeaseTerms;
use crate::providers::parse_etcd_endpoints;
use crate::renewals::{LongestOfLate, RenewalFigures, is_slow};

/// Why the terms of leases do not change while nodes run.
const TERMS_SHARED: &str = "Other nodes count on the terms that a lease was granted on; all would have to change at the same moment.";

/// Why how etcd is reached does not change while nodes run.
const ETCD_SHARED: &str = "The node's lease is with the etcd that it joined.";

/// Members of etcd, or none.
const ENDPOINTS: TextForm = TextForm {
    max: 4096,
    takes: "http://HOST:PORT or https://HOST:PORT, separated by commas, or nothing",
    check: |text| if text.is_empty() { Ok(()) } else { parse_etcd_endpoints(text).map(drop) },
};
/// What all keys of a cluster begin with.
const PREFIX: TextForm = TextForm {
    max: 128,
    takes: "letters, digits, and `-`, `_`, `.`, `/` within",
    check: |text| {
        let is_in = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        match text {
            "" => Err("it is empty".to_owned()),
            text if text.starts_with('/') || text.ends_with('/') => {
                Err("it neither begins nor ends with a `/`".to_owned())
            }
            text => match text.chars().find(|c| !is_in(*c)) {
                Some(c) => Err(format!("it has a `{c}`")),
                None => Ok(()),
            },
        }
    },
};
/// A user of etcd, or none.
const USER: TextForm = TextForm {
    max: 256,
    takes: "a name, or nothing",
    check: |text| match text.chars().find(|c| c.is_control()) {
        Some(_) => Err("no name has such a character".to_owned()),
        None => Ok(()),
    },
};

/// The settings of this crate.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "lease_ms",
        meaning: "How long a node's lease lasts without a renewal. After a node's death nobody serves its \
                  pairs for so long; with shorter leases shorter stalls make a node silent, or cost it its \
                  pairs.",
        default: "500 ms",
        bounds: Bounds::Milliseconds { min: 100, max: 60_000 },
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
        meaning: "How long one call of the coordinator may take. At most lease_ms; keep it below that, so \
                  that a renewal that hangs can be tried again.",
        default: "300 ms",
        bounds: Bounds::Milliseconds { min: 100, max: 10_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "etcd_endpoints",
        meaning: "The members of etcd, where coordinator_address is `etcd`: all of them, so that a node goes \
                  on when one is away.",
        default: "",
        bounds: Bounds::Form(ENDPOINTS),
        applies: Applies::Restart(ETCD_SHARED),
    },
    Setting {
        name: "etcd_prefix",
        meaning: "What all keys of this cluster in etcd begin with, before a `/`. Each cluster needs its \
                  own.",
        default: "cell",
        bounds: Bounds::Form(PREFIX),
        applies: Applies::Restart(ETCD_SHARED),
    },
    Setting {
        name: "etcd_user",
        meaning: "As whom to log in to etcd; etcd_password_file has the password. Its role needs readwrite \
                  on the prefix.",
        default: "",
        bounds: Bounds::Form(USER),
        applies: Applies::Restart(ETCD_SHARED),
    },
    Setting {
        name: "etcd_password_file",
        meaning: "The file of the password of etcd_user. It is read at each log-in.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart(ETCD_SHARED),
    },
    Setting {
        name: "etcd_ca_file",
        meaning: "A PEM file with the certificates by which members of etcd are trusted over https: their \
                  own, or those that signed them. A new one counts once no member is reached with the old \
                  one.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart(ETCD_SHARED),
    },
    Setting {
        name: "etcd_client_certificate_file",
        meaning: "A PEM file with the certificate by which etcd knows this node, if it wants one.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart(ETCD_SHARED),
    },
    Setting {
        name: "etcd_client_key_file",
        meaning: "A PEM file with the private key of etcd_client_certificate_file.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart(ETCD_SHARED),
    },
    Setting {
        name: "etcd_compaction",
        meaning: "How often the cluster has etcd forget what is older than that; 0: etcd does so by itself \
                  (--auto-compaction-retention), or somebody else has it do so. It counts for all that is \
                  in that etcd.",
        default: "5 m",
        bounds: Bounds::MillisecondsOrNone { min: 60_000, max: 86_400_000 },
        applies: Applies::Restart(ETCD_SHARED),
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
    meaning: "The longest that a renewal took, from when it was due until it was confirmed.",
    kind: CounterKind::Gauge,
};
const RENEWAL_MAX_MINUTE: Counter = Counter {
    name: "lease_renewal_minute_max_seconds",
    meaning: "The same of the last minute. One that is waited for counts with what it has taken so far.",
    kind: CounterKind::Gauge,
};
const RENEWALS_SLOW: Counter = Counter {
    name: "lease_renewals_slow_total",
    meaning: "Renewals of this node's lease that took half of it, so that it had nearly run out.",
    kind: CounterKind::Total,
};
const REMAINING_MIN: Counter = Counter {
    name: "lease_remaining_min_seconds",
    meaning: "The least time that was left of the lease when a renewal was confirmed.",
    kind: CounterKind::Gauge,
};

/// The counters of this crate.
pub const COUNTERS: &[Counter] =
    &[RENEWALS, RENEWALS_FAILED, RUN_OUT, RENEWAL_MAX, REMAINING_MIN, RENEWAL_MAX_MINUTE, RENEWALS_SLOW];

/// What is counted, by any thread.
#[derive(Debug)]
pub struct ClusterCounts {
    renewals: AtomicU64,
    renewals_failed: AtomicU64,
    run_out: AtomicU64,
    renewal_max_ns: AtomicU64,
    remaining_min_ns: AtomicU64,
    renewals_slow: AtomicU64,
    /// What a renewal may take; zero before there is a lease.
    most_ns: AtomicU64,
    /// Since when a renewal is due, or from when on it will be; none: there is no lease.
    due_ns: AtomicU64,
    of_late: LongestOfLate,
}

/// A time that never comes.
const NEVER_NS: u64 = u64::MAX;

impl Default for ClusterCounts {
    fn default() -> ClusterCounts {
        ClusterCounts {
            renewals: AtomicU64::new(0),
            renewals_failed: AtomicU64::new(0),
            run_out: AtomicU64::new(0),
            renewal_max_ns: AtomicU64::new(0),
            remaining_min_ns: AtomicU64::new(u64::MAX),
            renewals_slow: AtomicU64::new(0),
            most_ns: AtomicU64::new(0),
            due_ns: AtomicU64::new(NEVER_NS),
            of_late: LongestOfLate::default(),
        }
    }
}

impl ClusterCounts {
    /// Of a lease on these terms.
    pub(crate) fn of(terms: LeaseTerms) -> ClusterCounts {
        ClusterCounts { most_ns: AtomicU64::new(terms.renewal_most_ns()), ..ClusterCounts::default() }
    }

    /// A renewal was confirmed that took so long. Whether the lease had nearly run out.
    pub(crate) fn renewed(&self, now_ns: u64, took_ns: u64, was_left_ns: u64) -> bool {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.renewal_max_ns.fetch_max(took_ns, Ordering::Relaxed);
        self.remaining_min_ns.fetch_min(was_left_ns, Ordering::Relaxed);
        self.of_late.note(now_ns, took_ns);
        let is_slow = is_slow(took_ns, self.most_ns.load(Ordering::Relaxed));
        self.renewals_slow.fetch_add(is_slow.into(), Ordering::Relaxed);
        is_slow
    }

    /// The next renewal is due then; none: there will be no other.
    pub(crate) fn renewal_due(&self, due_ns: Option<u64>) {
        self.due_ns.store(due_ns.unwrap_or(NEVER_NS), Ordering::Relaxed);
    }

    /// How renewals went, and goes the one that is waited for.
    #[must_use]
    pub fn renewals(&self, now_ns: u64) -> RenewalFigures {
        let waited_ns = now_ns.saturating_sub(self.due_ns.load(Ordering::Relaxed));
        RenewalFigures {
            slowest_ns: self.of_late.longest_ns(now_ns).max(waited_ns),
            most_ns: self.most_ns.load(Ordering::Relaxed),
            slow: self.renewals_slow.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn renewal_failed(&self) {
        self.renewals_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ran_out(&self) {
        self.run_out.fetch_add(1, Ordering::Relaxed);
    }

    /// The readings of this time, in the order of [`COUNTERS`].
    #[must_use]
    pub fn values(&self, now_ns: u64) -> Vec<CounterValue> {
        let RenewalFigures { slowest_ns, slow, .. } = self.renewals(now_ns);
        let least = self.remaining_min_ns.load(Ordering::Relaxed);
        let readings = [
            whole(self.renewals.load(Ordering::Relaxed)),
            whole(self.renewals_failed.load(Ordering::Relaxed)),
            whole(self.run_out.load(Ordering::Relaxed)),
            whole(self.renewal_max_ns.load(Ordering::Relaxed)) / 1e9,
            if least == u64::MAX { 0.0 } else { whole(least) / 1e9 },
            whole(slowest_ns) / 1e9,
            whole(slow),
        ];
        COUNTERS.iter().zip(readings).map(|(counter, value)| CounterValue { counter, value }).collect()
    }
}

/// Exact up to 2^53, which a count or a time of a process's life does not reach.
#[allow(clippy::cast_precision_loss, reason = "readings are shown, not calculated with")]
fn whole(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn value(counts: &ClusterCounts, now_ns: u64, name: &str) -> f64 {
        counts.values(now_ns).iter().find(|reading| reading.counter.name == name).unwrap().value
    }

    #[test]
    fn renewals_count_what_is_waited_for_and_what_was_slow_of_late() {
        let counts = ClusterCounts::of(LeaseTerms::new(500, 0.05));
        assert_eq!(
            counts.renewals(99_000 * MS),
            RenewalFigures { slowest_ns: 0, most_ns: 375 * MS, slow: 0 }
        );
        counts.renewal_due(Some(100 * MS));
        assert!(!counts.renewed(101 * MS, MS, 474 * MS));
        counts.renewal_due(Some(200 * MS));
        assert_eq!(counts.renewals(199 * MS).slowest_ns, MS);
        let waiting = counts.renewals(500 * MS);
        assert!(waiting.is_slow() && waiting.slowest_ns == 300 * MS && waiting.slow == 0, "{waiting:?}");
        assert!(counts.renewed(500 * MS, 300 * MS, 75 * MS));
        counts.renewal_due(Some(600 * MS));
        assert!((value(&counts, 550 * MS, "lease_renewal_minute_max_seconds") - 0.3).abs() < 1e-9);
        assert!((value(&counts, 550 * MS, "lease_renewals_slow_total") - 1.0).abs() < 1e-9);
        counts.renewal_due(None);
        let later = counts.renewals(100_000 * MS);
        assert_eq!((later.slowest_ns, later.slow, later.is_slow()), (0, 1, false), "nothing is waited for");
    }
}
