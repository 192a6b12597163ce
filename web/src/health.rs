//! Whether a node is ready, as a list of checks.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use cell_node::{NodeSnapshot, NodeState};
use cell_terms::PairId;
use serde::Serialize;

use crate::api::cluster;
use crate::freshness::STALE_AFTER;
use crate::missing_pairs;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// Whether it is as it should be.
    pub(crate) ok: bool,
    /// Whether the node is not ready without it.
    pub(crate) required: bool,
    /// What was seen.
    pub(crate) seen: Cow<'static, str>,
}

/// Every check, for a snapshot that is so old, of a node that lacks pairs which it is to serve.
pub(crate) fn checks(snapshot: &NodeSnapshot, age: Duration, missing: &BTreeSet<PairId>) -> Vec<Check> {
    let (reads, writes) = (reads(&snapshot.state), writes(&snapshot.state));
    vec![reads, writes, lease(snapshot), snapshot_age(age), pairs(snapshot, missing), warnings(snapshot)]
}

/// Whether all that is required holds.
pub(crate) fn is_ready(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.ok || !check.required)
}

/// One line a check, as Kubernetes and etcd print them.
pub(crate) fn verbose(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let sign = if check.ok { '+' } else { '-' };
        let advisory = if check.required { "" } else { " (advisory)" };
        writeln!(text, "[{sign}]{}: {}{advisory}", check.name, check.seen).expect("writing to a string");
    }
    text.push_str(if is_ready(checks) { "ready\n" } else { "not ready\n" });
    text
}

fn reads(state: &NodeState) -> Check {
    let (ok, seen) = match state {
        NodeState::Serving | NodeState::ReadOnly(_) => (true, "serving".into()),
        NodeState::Starting(wait) => (false, format!("starting: {}", wait.words()).into()),
        NodeState::Recovering(progress) => {
            let percent = percent(progress.bytes_done, progress.bytes_total);
            (false, format!("recovering, {}, {percent}", progress.stage).into())
        }
        NodeState::Silent => (false, cell_node::SILENT_WORDS.into()),
        NodeState::Stopping => (false, "stopping".into()),
        NodeState::Failed(kind) => (false, kind.words().into()),
        _ => (false, "unknown".into()),
    };
    Check { name: "reads", ok, required: true, seen }
}

fn writes(state: &NodeState) -> Check {
    let (ok, seen) = match state {
        NodeState::Serving => (true, "serving"),
        NodeState::ReadOnly(reason) => (false, reason.words()),
        _ => (false, "not serving"),
    };
    Check { name: "writes", ok, required: false, seen: seen.into() }
}

/// As the node saw it at the snapshot. A lease may be shorter than the time between two snapshots, so its age
/// is not taken off: a node that hangs is found by the age itself.
fn lease(snapshot: &NodeSnapshot) -> Check {
    let left = snapshot.lease_remaining_ms;
    let seen = match (&snapshot.state, left) {
        (NodeState::Starting(_), _) => "none yet".into(),
        (_, 0) => "over".into(),
        _ => format!("held, {left} ms ahead").into(),
    };
    Check { name: "lease", ok: left > 0, required: true, seen }
}

/// Whether every pair of the cluster is served, by whomever, as far as the table and this node show.
fn pairs(snapshot: &NodeSnapshot, missing: &BTreeSet<PairId>) -> Check {
    let (unknown, mut troubles) = (cluster::unknown(snapshot), cluster::troubles(snapshot));
    troubles.extend(missing_pairs::words(missing));
    let seen = match unknown {
        Some(why) => why.into(),
        None if troubles.is_empty() => "all served".into(),
        None => troubles.join("; ").into(),
    };
    Check { name: "pairs", ok: unknown.is_none() && troubles.is_empty(), required: false, seen }
}

/// What goes wrong beside serving, as checkpoints that fail.
fn warnings(snapshot: &NodeSnapshot) -> Check {
    let waits = (snapshot.state == NodeState::Silent).then_some("this node waits for its coordinator");
    let own = snapshot.warnings.iter().map(String::as_str);
    let warnings: Vec<&str> = waits.into_iter().chain(own).collect();
    let seen = if warnings.is_empty() { "none".into() } else { warnings.join("; ").into() };
    Check { name: "warnings", ok: warnings.is_empty(), required: false, seen }
}

fn snapshot_age(age: Duration) -> Check {
    let ok = age < STALE_AFTER;
    let seen = if ok { "fresh".into() } else { format!("{} s old: the node hangs", age.as_secs()).into() };
    Check { name: "figures", ok, required: true, seen }
}

/// `43 %`; a total of zero is not yet known.
fn percent(done: u64, total: u64) -> String {
    match u128::from(done) * 100 {
        _ if total == 0 => "size not known yet".into(),
        hundredfold => format!("{} %", (hundredfold / u128::from(total)).min(100)),
    }
}

#[cfg(test)]
mod tests {
    use cell_node::{CoordinatorWait, FailureKind, ReadOnlyReason, RecoveryProgress};

    use super::*;
    use crate::api::regions::tests::two_nodes;
    use crate::test_snapshot::snapshot;

    /// Those of a node that has what it is to serve.
    fn checks(snapshot: &NodeSnapshot, age: Duration) -> Vec<Check> {
        super::checks(snapshot, age, &BTreeSet::new())
    }

    fn ready(state: NodeState, age: Duration) -> bool {
        let mut snapshot = snapshot();
        snapshot.state = state;
        is_ready(&checks(&snapshot, age))
    }

    #[test]
    fn ready_only_when_reads_are_served_the_lease_holds_and_figures_are_fresh() {
        let now = Duration::ZERO;
        assert!(ready(NodeState::Serving, now));
        assert!(ready(NodeState::ReadOnly(ReadOnlyReason::DiskFull), now));
        assert!(!ready(NodeState::Starting(CoordinatorWait::default()), now));
        assert!(!ready(NodeState::Recovering(RecoveryProgress::default()), now));
        assert!(!ready(NodeState::Silent, now));
        assert!(!ready(NodeState::Stopping, now));
        assert!(!ready(NodeState::Failed(FailureKind::LogFailed), now));
        assert!(!ready(NodeState::Serving, Duration::from_secs(6)));
        let mut expired = snapshot();
        expired.lease_remaining_ms = 0;
        assert!(!is_ready(&checks(&expired, now)));
    }

    #[test]
    fn verbose_of_a_node_without_a_lease_says_whom_it_waits_for() {
        let wait = CoordinatorWait {
            coordinator: "/srv/coordinator.socket".into(),
            tries: 3,
            why: Some("there is no such file".into()),
        };
        let snapshot = NodeSnapshot { state: NodeState::Starting(wait), lease_remaining_ms: 0, ..snapshot() };
        let text = verbose(&checks(&snapshot, Duration::ZERO));
        let reads = "[-]reads: starting: waiting for the coordinator at /srv/coordinator.socket, tried 3 times: \
                     there is no such file\n";
        assert!(text.starts_with(reads) && text.contains("[-]lease: none yet\n"), "{text}");
        assert!(text.contains("[-]pairs: not known yet (advisory)\n"), "{text}");
    }

    /// It said that all pairs were served, and warned of nothing.
    #[test]
    fn verbose_of_a_silent_node_says_what_is_not_known() {
        let silent = two_nodes(NodeState::Silent);
        let text = verbose(&checks(&silent, Duration::ZERO));
        for line in [
            "[-]pairs: not known: this node waits for its coordinator (advisory)",
            "[-]warnings: this node waits for its coordinator (advisory)",
            "not ready",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        let serving = verbose(&checks(&two_nodes(NodeState::Serving), Duration::ZERO));
        assert!(
            serving.contains("[+]pairs: all served") && serving.contains("[+]warnings: none"),
            "{serving}"
        );
    }

    /// It said that all pairs were served, and did not have its own.
    #[test]
    fn verbose_of_a_node_that_lacks_a_pair_names_it() {
        let missing = BTreeSet::from([PairId(1)]);
        let text = verbose(&super::checks(&two_nodes(NodeState::Serving), Duration::ZERO, &missing));
        let line = "[-]pairs: pair-1 is missing: this node is to serve it, and does not have it (advisory)\n";
        assert!(text.contains(line) && text.ends_with("ready\n"), "{text}");
    }

    #[test]
    fn verbose_shows_how_far_a_recovery_is() {
        let mut snapshot = snapshot();
        let progress =
            RecoveryProgress { stage: "logs", bytes_done: 43, bytes_total: 100, bytes_per_second: 1.0 };
        snapshot.state = NodeState::Recovering(progress);
        let text = verbose(&checks(&snapshot, Duration::ZERO));
        assert!(text.starts_with("[-]reads: recovering, logs, 43 %\n"), "{text}");
        assert!(text.ends_with("not ready\n"), "{text}");
    }

    #[test]
    fn verbose_shows_warnings_of_a_node_that_is_ready_all_the_same() {
        let mut snapshot = snapshot();
        snapshot.warnings = vec!["one".to_owned(), "two".to_owned()];
        let text = verbose(&checks(&snapshot, Duration::ZERO));
        assert!(text.ends_with("[-]warnings: one; two (advisory)\nready\n"), "{text}");
    }
}
