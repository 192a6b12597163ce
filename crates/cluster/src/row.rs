//! Rows of the region table: JSON, versioned, one a pair under `pair/` and its id.

use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId, RegionId, RegionKind};
use serde::{Deserialize, Serialize};

use crate::finding::{self, Finding, RefutedFinding};
use crate::host::HostId;
use crate::missing::Missing;
use crate::number;

/// The format of the rows of all typed layers. The table names it, and another version is refused.
pub const ROW_FORMAT_VERSION: u32 = 2;

/// A pair: who owns it, where it is served, and what a recovery of it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRow {
    /// The pair.
    #[serde(with = "number")]
    pub pair: PairId,
    /// Its node region.
    #[serde(with = "number")]
    pub node_region: RegionId,
    /// Its extent region.
    #[serde(with = "number")]
    pub extent_region: RegionId,
    /// The incarnation that owns it; none after a clean exit.
    #[serde(with = "number::optional")]
    pub owner: Option<Incarnation>,
    /// The node of the owner, or of the last one: a restarted node claims what was its own.
    #[serde(with = "number")]
    pub node: NodeId,
    /// The node that served it last: it had the memory. None of a pair that nobody has served yet.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "number::optional")]
    pub served_by: Option<NodeId>,
    /// On which host the owner runs; none where there is no owner, or it did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostId>,
    /// Counts the owners.
    #[serde(with = "number")]
    pub epoch: Epoch,
    /// What can be done with it.
    pub state: PairState,
    /// Where it is served; none while it is not.
    pub place: Option<ServingAddress>,
    /// What its regions look like.
    pub geometry: PairGeometry,
    /// The epochs whose logs a recovery still needs, ascending, and the present one.
    pub history: Vec<EpochRow>,
    /// Where a recovery begins.
    pub checkpoint: Option<CheckpointRow>,
    /// Earlier owners whose grants of trust may last: nobody serves the pair before their leases have ended.
    #[serde(with = "number::list")]
    pub trusted: Vec<Incarnation>,
    /// Who looked at its data since it was served, and found damage; the last one is the newest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Whose findings others have refuted: they read what those nodes could not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refuted: Vec<RefutedFinding>,
}

/// What can be done with a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairState {
    /// Created, never published: it has no logs and is empty.
    New,
    /// Claimed; its owner is restoring it.
    Recovering,
    /// Served.
    Serving,
    /// Its owner has gone away cleanly.
    Released,
    /// It cannot be proven complete, or there is no room for it. Not served.
    Unavailable {
        /// What is missing.
        missing: Missing,
    },
}

/// Where a pair is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingAddress {
    /// The owner's fabric address.
    pub address: String,
    /// Zero: the one worker of the owner.
    pub worker: u32,
    /// The key under which the node region is registered; zero where the fabric has none.
    pub node_key: u64,
    /// The key under which the extent region is registered.
    pub extent_key: u64,
}

/// Sizes that are fixed when a pair is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairGeometry {
    /// Bytes of the node region.
    pub node_region_bytes: u64,
    /// Bytes of the extent region.
    pub extent_region_bytes: u64,
    /// Bytes of a meganode's slot.
    pub slot_bytes: u64,
    /// Bytes of a tree node.
    pub node_bytes: u32,
}

impl PairGeometry {
    /// Bytes of both regions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.node_region_bytes.saturating_add(self.extent_region_bytes)
    }
}

/// An epoch of a pair that was published. Only then are its log folders expected: what an owner created that
/// never came to publish is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochRow {
    /// The epoch.
    #[serde(with = "number")]
    pub epoch: Epoch,
    /// When its writes were acknowledged; `none` has no log.
    #[serde(with = "number::durability")]
    pub durability: Durability,
    /// Where its logs end, once a recovery has found it. Past it nothing of this epoch is read; at or below
    /// it every frame is required.
    #[serde(with = "number::optional")]
    pub cut: Option<Csn>,
}

/// A checkpoint: all changes up to its CSN, in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRow {
    /// The epoch whose owner wrote it.
    #[serde(with = "number")]
    pub epoch: Epoch,
    /// The durable watermark before it was started: recovery replays what is above.
    #[serde(with = "number")]
    pub csn: Csn,
    /// The highest CSN in it.
    #[serde(with = "number")]
    pub csn_max: Csn,
    /// Its file, as below the log root.
    pub file: String,
}

impl PairRow {
    /// The row's key.
    #[must_use]
    pub fn key(pair: PairId) -> String {
        format!("{KEY_PAIRS}{:08}", pair.0)
    }

    /// The region of one kind.
    #[must_use]
    pub fn region(&self, kind: RegionKind) -> RegionId {
        match kind {
            RegionKind::Node => self.node_region,
            RegionKind::Extent => self.extent_region,
        }
    }

    /// The epochs before the present one whose logs a recovery reads, ascending.
    pub fn epochs_needed(&self) -> impl Iterator<Item = &EpochRow> {
        self.history.iter().filter(|row| row.epoch < self.epoch)
    }

    /// Whose pair it is, or was until it was given up in order.
    #[must_use]
    pub fn last_owner(&self) -> Option<Incarnation> {
        let gave_up = self.trusted.last().filter(|_| self.state == PairState::Released);
        self.owner.or(gave_up.copied())
    }

    /// Whether the pair belongs to nobody and was given up for damage that one member found: others look.
    #[must_use]
    pub fn awaits_look(&self) -> bool {
        self.owner.is_none() && !self.findings.is_empty()
    }

    /// Whether damage of its data is believed: two members found some.
    #[must_use]
    pub fn is_damage_believed(&self) -> bool {
        finding::are_believed(&self.findings)
    }

    /// What was found of its data, and by whom, in words.
    #[must_use]
    pub fn found(&self) -> String {
        finding::in_words(&self.findings)
    }

    /// Whether the present owner has ever served the pair.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.history.iter().any(|row| row.epoch == self.epoch)
    }
}

/// Under which the pairs' rows lie.
pub(crate) const KEY_PAIRS: &str = "pair/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_row_text_is_pinned() {
        let row = PairRow {
            pair: PairId(3),
            node_region: RegionId(6),
            extent_region: RegionId(7),
            owner: Some(Incarnation(9)),
            node: NodeId(1),
            served_by: None,
            host: None,
            epoch: Epoch(2),
            state: PairState::Unavailable { missing: Missing::Log { region: RegionId(6), epoch: Epoch(1) } },
            place: Some(ServingAddress {
                address: "127.0.0.1:7000".into(),
                worker: 1,
                node_key: 0,
                extent_key: 0,
            }),
            geometry: PairGeometry {
                node_region_bytes: 1,
                extent_region_bytes: 2,
                slot_bytes: 3,
                node_bytes: 4,
            },
            history: vec![EpochRow { epoch: Epoch(1), durability: Durability::Sync, cut: Some(Csn(5)) }],
            checkpoint: Some(CheckpointRow {
                epoch: Epoch(1),
                csn: Csn(3),
                csn_max: Csn(4),
                file: "c".into(),
            }),
            trusted: vec![Incarnation(8)],
            findings: Vec::new(),
            refuted: Vec::new(),
        };
        let text = concat!(
            r#"{"pair":3,"node_region":6,"extent_region":7,"owner":9,"node":1,"epoch":2,"#,
            r#""state":{"unavailable":{"missing":{"log":{"region":6,"epoch":1}}}},"#,
            r#""place":{"address":"127.0.0.1:7000","worker":1,"node_key":0,"extent_key":0},"#,
            r#""geometry":{"node_region_bytes":1,"extent_region_bytes":2,"slot_bytes":3,"node_bytes":4},"#,
            r#""history":[{"epoch":1,"durability":"sync","cut":5}],"#,
            r#""checkpoint":{"epoch":1,"csn":3,"csn_max":4,"file":"c"},"trusted":[8]}"#,
        );
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_str::<PairRow>(text).unwrap(), row);
        let row = PairRow { host: Some(HostId::new(1, 2)), ..row };
        let host = r#""node":1,"host":"00000000000000000000000000000001/00000000000000000000000000000002","#;
        let text = text.replace(r#""node":1,"#, host);
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_str::<PairRow>(&text).unwrap(), row);
        let missing = Missing::Checkpoint { file: "c".into() };
        let finding = Finding { incarnation: Incarnation(7), node: NodeId(4), missing };
        let refuted = vec![RefutedFinding { finding: finding.clone(), read_by: NodeId(5) }];
        let row = PairRow { findings: vec![finding], refuted, ..row };
        let found = r#"{"incarnation":7,"node":4,"missing":{"checkpoint":{"file":"c"}}}"#;
        let end =
            format!(r#""trusted":[8],"findings":[{found}],"refuted":[{{"finding":{found},"read_by":5}}]}}"#);
        let text = text.replace(r#""trusted":[8]}"#, &end);
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_str::<PairRow>(&text).unwrap(), row);
    }
}
