//! `GET /api/v1/recoveries`: takeovers that are under way, and what the cluster remembers of earlier ones.

use std::cmp::Reverse;

use cell_cluster::{IncidentRow, ShareRow};
use cell_node::{NO_ROOM, NodeSnapshot, PairRecovery};
use cell_terms::Incarnation;
use serde::{Deserialize, Serialize};

use crate::api::gathered::{ClusterDocument, Shown};
use crate::clock::now_boottime_ms;
use crate::peers::{MissingPeer, NodePart};
use crate::shared::Shared;

/// The last stage: the pair is served.
const SERVING: &str = "serving";

/// A takeover that a node is at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecoveryRow {
    pair: u32,
    /// Who takes it over.
    node: u32,
    stage: String,
    bytes_done: u64,
    bytes_total: u64,
    bytes_per_second: f64,
}

impl RecoveryRow {
    /// Whether it is a pair's, and waits for room on the disk of its node: which node that is.
    pub(crate) fn lacks_room(&self, pair: u32) -> Option<u32> {
        (self.pair == pair && self.stage == NO_ROOM).then_some(self.node)
    }
}

/// What became of the pairs of one that died. Times are milliseconds of CLOCK_BOOTTIME; 0: not yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Incident {
    /// Its incarnation, a decimal number.
    dead: String,
    /// Null: the pairs had no owner.
    node: Option<u32>,
    detected_ms: u64,
    lease_seen_ms: u64,
    all_back_ms: Option<u64>,
    shares: Vec<IncidentShare>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct IncidentShare {
    pair: u32,
    /// The incarnation, a decimal number; null while nobody has room for the pair.
    survivor: Option<String>,
    survivor_node: Option<u32>,
    claimed_ms: u64,
    cut_ms: u64,
    replayed_ms: u64,
    replayed_bytes: u64,
    serving_ms: u64,
}

/// A node's takeovers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecoveriesPart {
    under_way: Vec<RecoveryRow>,
}

/// All of them, and the incidents.
#[derive(Debug, Serialize)]
pub(crate) struct RecoveriesBody {
    under_way: Vec<RecoveryRow>,
    /// Newest first.
    incidents: Vec<Incident>,
    now_boottime_ms: u64,
    /// Of the incidents' shares.
    #[serde(flatten)]
    shown: Shown,
}

/// See the module's text.
pub(crate) struct Recoveries;

impl ClusterDocument for Recoveries {
    type Part = RecoveriesPart;
    type Body = RecoveriesBody;
    const PATH: &'static str = "/api/v1/recoveries";

    fn part(_shared: &Shared, snapshot: &NodeSnapshot) -> RecoveriesPart {
        RecoveriesPart { under_way: under_way(snapshot) }
    }

    fn body(
        _shared: &Shared,
        snapshot: &NodeSnapshot,
        parts: Vec<NodePart<RecoveriesPart>>,
        _missing: &[MissingPeer],
    ) -> RecoveriesBody {
        let incidents = snapshot.cluster.incidents.iter();
        let mut incidents: Vec<Incident> = incidents.map(|incident| in_full(incident, snapshot)).collect();
        incidents.sort_by_key(|incident| Reverse(incident.detected_ms));
        RecoveriesBody {
            under_way: parts.into_iter().flat_map(|part| part.part.under_way).collect(),
            incidents,
            now_boottime_ms: now_boottime_ms(),
            shown: Shown::default(),
        }
    }

    fn limit(body: &mut RecoveriesBody, rows: usize) -> usize {
        let before = shares_of(&body.incidents);
        let left = limit_shares(&mut body.incidents, rows);
        body.shown.note(before, left)
    }
}

/// Leaves at most so many shares of incidents that are newest first: those of the last ones, and of a single
/// one that has more the first. Gives how many are left.
fn limit_shares(incidents: &mut Vec<Incident>, most: usize) -> usize {
    let up_to = |sum: &mut usize, incident: &Incident| {
        *sum += incident.shares.len();
        Some(*sum)
    };
    let whole = incidents.iter().scan(0, up_to).take_while(|sum| *sum <= most).count();
    incidents.truncate(whole.max(1));
    if let [only] = &mut incidents[..] {
        only.shares.truncate(most);
    }
    shares_of(incidents)
}

fn shares_of(incidents: &[Incident]) -> usize {
    incidents.iter().map(|incident| incident.shares.len()).sum()
}

/// The takeovers of one node.
pub(crate) fn under_way(snapshot: &NodeSnapshot) -> Vec<RecoveryRow> {
    let row = |PairRecovery { pair, progress }: &PairRecovery| RecoveryRow {
        pair: pair.0,
        node: snapshot.node.0,
        stage: progress.stage.to_owned(),
        bytes_done: progress.bytes_done,
        bytes_total: progress.bytes_total,
        bytes_per_second: progress.bytes_per_second,
    };
    // One whose pair is served is over, though the node may remember it.
    let under_way = snapshot.cluster.recoveries.iter().filter(|one| one.progress.stage != SERVING);
    under_way.map(row).collect()
}

fn in_full(incident: &IncidentRow, snapshot: &NodeSnapshot) -> Incident {
    let members = &snapshot.cluster.members;
    let node = |survivor: Incarnation| {
        members.iter().find(|member| member.incarnation == survivor).map(|member| member.node.0)
    };
    let share = |share: &ShareRow| IncidentShare {
        pair: share.pair.0,
        survivor: share.survivor.map(|survivor| survivor.0.to_string()),
        survivor_node: share.survivor.and_then(node),
        claimed_ms: share.times.claimed_ms,
        cut_ms: share.times.cut_ms,
        replayed_ms: share.times.replayed_ms,
        replayed_bytes: share.times.replayed_bytes,
        serving_ms: share.times.serving_ms,
    };
    Incident {
        dead: if incident.is_of_nobody() { "0".to_owned() } else { incident.dead.0.to_string() },
        node: (!incident.is_of_nobody()).then_some(incident.node.0),
        detected_ms: incident.detected_ms,
        lease_seen_ms: incident.lease_seen_ms,
        all_back_ms: incident.is_over().then_some(incident.over_ms),
        shares: incident.plan.iter().map(share).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cell_cluster::ShareTimes;
    use cell_node::{ClusterSnapshot, RecoveryProgress};
    use cell_terms::{NodeId, PairId};

    use super::*;
    use crate::test_snapshot::snapshot;

    const INCIDENT: IncidentRow = IncidentRow {
        dead: Incarnation(7),
        node: NodeId(2),
        claimed_by: Incarnation(8),
        lease_seen_ms: 10,
        detected_ms: 20,
        claimed_ms: 21,
        over_ms: 0,
        plan: Vec::new(),
    };

    #[test]
    fn under_way_is_what_is_not_served_yet() {
        let recovery = |pair, stage| {
            let progress = RecoveryProgress { stage, ..RecoveryProgress::default() };
            PairRecovery { pair: PairId(pair), progress }
        };
        let recoveries = vec![recovery(1, "serving"), recovery(2, "replaying")];
        let cluster = Arc::new(ClusterSnapshot { recoveries, ..ClusterSnapshot::default() });
        let rows = under_way(&NodeSnapshot { cluster, ..snapshot() });
        assert_eq!(rows.iter().map(|row| row.pair).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn incident_is_shown_with_its_shares() {
        let times = ShareTimes { serving_ms: 90, replayed_bytes: 7, ..ShareTimes::default() };
        let plan = vec![
            ShareRow { pair: PairId(4), survivor: Some(Incarnation(8)), times, ..ShareRow::default() },
            ShareRow { pair: PairId(5), survivor: None, ..ShareRow::default() },
        ];
        let row = IncidentRow { dead: Incarnation(u64::MAX >> 1), plan, ..INCIDENT };
        let incident = serde_json::to_value(in_full(&row, &snapshot())).unwrap();
        assert_eq!((&incident["dead"], &incident["node"]), (&"9223372036854775807".into(), &2.into()));
        assert!(incident["all_back_ms"].is_null());
        assert_eq!(
            (&incident["shares"][0]["survivor"], &incident["shares"][0]["serving_ms"]),
            (&"8".into(), &90.into())
        );
        assert!(incident["shares"][1]["survivor"].is_null());
        for nobodys in [0, (1 << 63) + 1] {
            let row = IncidentRow { dead: Incarnation(nobodys), ..INCIDENT };
            let incident = serde_json::to_value(in_full(&row, &snapshot())).unwrap();
            assert_eq!((&incident["dead"], &incident["node"]), (&"0".into(), &serde_json::Value::Null));
        }
    }

    #[test]
    fn limit_shares_leaves_the_newest_incidents_whole_and_the_first_shares_of_one_that_has_too_many() {
        let share = |pair| ShareRow { pair: PairId(pair), ..ShareRow::default() };
        let incident = |dead, shares| {
            let plan = (0..shares).map(share).collect();
            let row = IncidentRow { dead: Incarnation(dead), plan, ..INCIDENT };
            in_full(&row, &snapshot())
        };
        let all = || vec![incident(3, 2), incident(2, 3), incident(1, 1)];
        for (most, dead, left) in [(6, 3, 6), (5, 2, 5), (4, 1, 2), (2, 1, 2), (1, 1, 1)] {
            let mut incidents = all();
            assert_eq!(limit_shares(&mut incidents, most), left, "{most}");
            assert_eq!(incidents.len(), dead, "{most}");
        }
        assert_eq!(limit_shares(&mut Vec::new(), 1), 0);
    }
}
