//! Why a pair is not served, and what helps, in words for people.

use std::fmt;

use cell_terms::Incarnation;

use crate::incident::IncidentRow;
use crate::row::{Missing, PairRow, PairState};

/// A pair that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Why.
    pub what: String,
    /// What to do about it; none if it passes by itself.
    pub next: Option<&'static str>,
}

impl Trouble {
    /// What keeps a pair from being served, as far as its row and the incidents show; none if it is served.
    #[must_use]
    pub fn of(
        row: &PairRow,
        lives: impl Fn(Incarnation) -> bool,
        incidents: &[IncidentRow],
    ) -> Option<Trouble> {
        let passing = |what: &str| Trouble { what: what.to_owned(), next: None };
        Some(match &row.state {
            PairState::Serving => {
                let dead = row.owner.filter(|owner| !lives(*owner))?;
                let open = incidents.iter().find(|incident| incident.dead == dead && !incident.is_over());
                let share = open.and_then(|incident| incident.share(row.pair));
                match share.map(|share| share.survivor) {
                    Some(None) => unavailable(&Missing::Memory { bytes: row.geometry.bytes() }, None),
                    _ => passing("orphaned: its owner has died"),
                }
            }
            PairState::New | PairState::Released => passing("unclaimed"),
            PairState::Recovering => passing("recovering"),
            PairState::Unavailable { missing } => unavailable(missing, row.owner),
        })
    }
}

/// A pair that somebody keeps is looked at again when that one is restarted; one of nobody is offered again.
fn unavailable(missing: &Missing, owner: Option<Incarnation>) -> Trouble {
    let next = match (missing, owner) {
        (Missing::Memory { .. }, _) => {
            "start the node that had it, or one with more memory (memory_limit_bytes); it is offered again \
             every 10 s"
        }
        (Missing::Unreadable { .. }, None) => "mend the disk; the pair is tried again every 10 s",
        (Missing::Unreadable { .. }, Some(_)) => "mend the disk, then restart the node that met the error",
        (
            Missing::Log { .. }
            | Missing::Corruption { .. }
            | Missing::Checkpoint { .. }
            | Missing::Record { .. }
            | Missing::Verification { .. },
            _,
        ) => {
            "bring back what is missing, then restart the node that found it; `cell inspect log` shows the logs"
        }
    };
    Trouble { what: format!("unavailable: {missing}"), next: Some(next) }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Log { region, epoch } => write!(f, "the log of {region}, epoch {}, is missing", epoch.0),
            Missing::Corruption { file, offset } => write!(f, "{file} is damaged at byte {offset}"),
            Missing::Checkpoint { file } => write!(f, "the checkpoint {file} cannot be read whole"),
            Missing::Unreadable { file, errno } => write!(f, "{file} cannot be read, error {errno}"),
            Missing::Record { region, csn } => write!(f, "record {} of {region} cannot be applied", csn.0),
            Missing::Verification { region } => {
                write!(f, "what was restored of {region} does not satisfy its checks")
            }
            Missing::Memory { bytes } => write!(f, "nobody has {bytes} bytes of memory for it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Epoch, NodeId, PairId, RegionId};

    use super::*;
    use crate::incident::ShareRow;
    use crate::row::PairGeometry;

    fn row(state: PairState) -> PairRow {
        PairRow {
            pair: PairId(2),
            node_region: PairId(2).node_region(),
            extent_region: PairId(2).extent_region(),
            owner: Some(Incarnation(7)),
            node: NodeId(1),
            served_by: None,
            host: None,
            epoch: Epoch(1),
            state,
            place: None,
            geometry: PairGeometry {
                node_region_bytes: 4,
                extent_region_bytes: 6,
                slot_bytes: 2,
                node_bytes: 1,
            },
            history: Vec::new(),
            checkpoint: None,
            trusted: Vec::new(),
        }
    }

    fn incident(survivor: Option<u64>) -> IncidentRow {
        let survivor = survivor.map(Incarnation);
        IncidentRow {
            dead: Incarnation(7),
            node: NodeId(1),
            claimed_by: Incarnation(8),
            lease_seen_ms: 0,
            detected_ms: 1,
            claimed_ms: 1,
            over_ms: 0,
            plan: vec![ShareRow { pair: PairId(2), survivor, ..ShareRow::default() }],
        }
    }

    fn what(row: &PairRow, lives: bool, incidents: &[IncidentRow]) -> Option<String> {
        Trouble::of(row, |_| lives, incidents).map(|trouble| trouble.what)
    }

    #[test]
    fn trouble_of_an_orphan_says_whether_somebody_takes_it() {
        let orphan = row(PairState::Serving);
        assert_eq!(what(&orphan, true, &[]), None);
        assert_eq!(what(&orphan, false, &[]).unwrap(), "orphaned: its owner has died");
        assert_eq!(what(&orphan, false, &[incident(Some(9))]).unwrap(), "orphaned: its owner has died");
        let nobody = what(&orphan, false, &[incident(None)]).unwrap();
        assert_eq!(nobody, "unavailable: nobody has 10 bytes of memory for it");
        let over = IncidentRow { over_ms: 5, ..incident(None) };
        assert_eq!(what(&orphan, false, &[over]).unwrap(), "orphaned: its owner has died");
    }

    #[test]
    fn trouble_of_missing_logs_names_them_and_what_to_do() {
        let missing = Missing::Log { region: RegionId(4), epoch: Epoch(2) };
        let trouble = Trouble::of(&row(PairState::Unavailable { missing }), |_| true, &[]).unwrap();
        assert_eq!(trouble.what, "unavailable: the log of region-4, epoch 2, is missing");
        assert!(trouble.next.unwrap().contains("restart the node"));
        assert_eq!(Trouble::of(&row(PairState::Recovering), |_| true, &[]).unwrap().next, None);
    }
}
