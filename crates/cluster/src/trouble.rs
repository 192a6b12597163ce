//! Why a pair is not served, and what helps, in words for people.

use std::borrow::Cow;

use cell_terms::Incarnation;

use crate::incident::{IncidentRow, ShareRow, is_nobodys};
use crate::missing::Missing;
use crate::row::{PairRow, PairState};

/// A pair that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Why.
    pub what: String,
    /// What to do about it; none if it passes by itself.
    pub next: Option<Cow<'static, str>>,
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
            PairState::Recovering if !row.findings.is_empty() => {
                passing(&format!("recovering; before, {}", row.found()))
            }
            PairState::Recovering => passing("recovering"),
            PairState::Unavailable { missing } if row.findings.is_empty() => unavailable(missing, row.owner),
            PairState::Unavailable { missing } => {
                damaged(row, missing, is_to_be_looked_at(row, lives, incidents))
            }
        })
    }
}

/// A pair that somebody keeps is looked at again when that one is restarted; one of nobody is offered again.
fn unavailable(missing: &Missing, owner: Option<Incarnation>) -> Trouble {
    let next: Cow<'static, str> = match (missing, owner) {
        (Missing::Memory { .. }, _) => {
            "start the node that had it, or one with more memory (memory_limit_bytes), which is asked at \
             once; others are asked again after 10 s, then ever later, up to 160 s"
                .into()
        }
        (Missing::Unreadable { .. }, None) => {
            "mend the disk; the pair is tried again after 10 s, then ever later, up to 160 s".into()
        }
        (Missing::Unreadable { .. }, Some(_)) => {
            "mend the disk, then restart the node that met the error".into()
        }
        (
            Missing::Log { .. }
            | Missing::Corruption { .. }
            | Missing::Checkpoint { .. }
            | Missing::Record { .. }
            | Missing::Verification { .. },
            _,
        ) => {
            let mend = mend(missing);
            format!("{mend}, then restart the node that found it; `cell inspect log` shows the logs").into()
        }
    };
    Trouble { what: format!("unavailable: {missing}"), next: Some(next) }
}

/// What helps against what somebody found of a pair's data.
fn mend(missing: &Missing) -> &'static str {
    match missing {
        Missing::Log { .. } => "bring back what is missing",
        _ => "bring back a good copy of what is damaged",
    }
}

/// Of a pair whose data somebody could not read.
fn damaged(row: &PairRow, missing: &Missing, is_to_be_looked_at: bool) -> Trouble {
    let found = row.found();
    let last = row.findings.last();
    let mend = mend(last.map_or(missing, |finding| &finding.missing));
    let finder = last.map(|finding| format!(", node {}", finding.node.0)).unwrap_or_default();
    let (what, next) = if row.is_damage_believed() {
        let next = format!(
            "{mend}, then restart the node that found it last{finder}; `cell inspect log` shows the logs"
        );
        (found, Some(next))
    } else if is_to_be_looked_at {
        (format!("{found}; another node is to look"), None)
    } else {
        let is_found = row.findings.iter().any(|finding| finding.missing == *missing);
        let why = if is_found { String::new() } else { format!(": {missing}") };
        let next = format!(
            "{mend} (is the log root mounted there?), then restart the node that found it{finder}; or start \
             another node, or make room on one: it looks, too"
        );
        (format!("{found}, and no other node could look{why}"), Some(next))
    };
    Trouble { what: format!("unavailable: {what}"), next: next.map(Cow::Owned) }
}

/// Whether somebody who has not looked at a pair's data is to look, as far as the incidents show.
fn is_to_be_looked_at(row: &PairRow, lives: impl Fn(Incarnation) -> bool, incidents: &[IncidentRow]) -> bool {
    let open = incidents.iter().filter(|incident| !incident.is_over());
    let shares: Vec<_> =
        open.filter_map(|incident| Some((incident.dead, incident.share(row.pair)?))).collect();
    let has_looked = |of: Incarnation| row.findings.iter().any(|finding| finding.incarnation == of);
    let looks = |share: &ShareRow| {
        share.survivor.is_some_and(|of| lives(of) && !share.declined.contains(&of) && !has_looked(of))
    };
    if shares.iter().any(|&(_, share)| looks(share)) {
        return true;
    }
    // What is nobody's is shared out anew: who found the damage sees to that, or another member.
    let is_shared_out = shares.iter().any(|&(dead, _)| is_nobodys(dead));
    let finder = row.findings.last().map(|finding| finding.incarnation);
    row.awaits_look() && !is_shared_out && finder.is_some_and(lives)
}

#[cfg(test)]
mod tests {
    use cell_terms::{Epoch, NodeId, PairId, RegionId};

    use super::*;
    use crate::finding::Finding;
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
            findings: Vec::new(),
            refuted: Vec::new(),
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

    fn log(epoch: u32) -> Missing {
        Missing::Log { region: RegionId(4), epoch: Epoch(epoch) }
    }

    /// A pair that nodes found damaged, each its own log; the last of them has it, or nobody.
    fn found(by: &[(u32, u32)], has_owner: bool) -> PairRow {
        let finding = |(node, epoch): &(u32, u32)| Finding {
            incarnation: Incarnation(70 + u64::from(*node)),
            node: NodeId(*node),
            missing: log(*epoch),
        };
        let findings: Vec<_> = by.iter().map(finding).collect();
        let Finding { incarnation, missing, .. } = findings.last().unwrap().clone();
        let state = PairState::Unavailable { missing };
        PairRow { owner: has_owner.then_some(incarnation), findings, ..row(state) }
    }

    /// Nobody's pairs, of which the one is to be taken over so.
    fn nobodys(survivor: Option<u64>, declined: &[u64]) -> IncidentRow {
        let mut nobodys = IncidentRow { dead: Incarnation(0), ..incident(survivor) };
        nobodys.plan[0].declined = declined.iter().copied().map(Incarnation).collect();
        nobodys
    }

    #[test]
    fn trouble_of_damage_that_two_found_names_both() {
        let trouble = Trouble::of(&found(&[(1, 2), (3, 5)], true), |_| true, &[]).unwrap();
        let both = "unavailable: the log of region-4, epoch 2, is missing (found by node 1); \
                    the log of region-4, epoch 5, is missing (found by node 3)";
        assert_eq!(trouble.what, both);
        let next = "bring back what is missing, then restart the node that found it last, node 3;";
        assert!(trouble.next.unwrap().starts_with(next));
    }

    /// Of a damaged image "bring back what is missing" was once said, and of no node.
    #[test]
    fn trouble_of_a_damaged_image_says_that_it_is_damaged_and_who_found_it_last() {
        let missing = Missing::Checkpoint { file: "image".to_owned() };
        let mut pair = found(&[(1, 2), (3, 5)], true);
        pair.findings.iter_mut().for_each(|finding| finding.missing = missing.clone());
        pair.state = PairState::Unavailable { missing };
        let next = Trouble::of(&pair, |_| true, &[]).unwrap().next.unwrap();
        assert!(next.starts_with("bring back a good copy of what is damaged, then restart"), "{next}");
        assert!(next.contains("found it last, node 3;"), "{next}");
    }

    #[test]
    fn trouble_of_damage_that_one_found_passes_while_another_is_to_look() {
        let pair = found(&[(1, 2)], false);
        let one = "unavailable: the log of region-4, epoch 2, is missing (found by node 1)";
        let said = |incidents: &[IncidentRow]| Trouble::of(&pair, |_| true, incidents).unwrap();
        for incidents in [vec![], vec![nobodys(Some(73), &[71])], vec![incident(Some(73))]] {
            let passing = Trouble { what: format!("{one}; another node is to look"), next: None };
            assert_eq!(said(&incidents), passing);
        }
        for nobody in [nobodys(None, &[71]), nobodys(Some(73), &[71, 73]), nobodys(Some(71), &[])] {
            let alone = said(&[nobody]);
            assert_eq!(alone.what, format!("{one}, and no other node could look"));
            assert!(alone.next.unwrap().contains("another node"));
        }
        let gone = Trouble::of(&pair, |_| false, &[]).unwrap();
        assert!(gone.next.is_some(), "who found it is gone, and nobody has shared the pair out");
        let missing = Missing::Memory { bytes: 9 };
        let declined = PairRow { state: PairState::Unavailable { missing }, ..pair.clone() };
        let full = Trouble::of(&declined, |_| true, &[nobodys(Some(73), &[71, 73])]).unwrap();
        assert!(full.what.ends_with("could look: nobody has 9 bytes of memory for it"), "{}", full.what);
        let looked_at = PairRow { state: PairState::Recovering, ..pair };
        assert!(what(&looked_at, true, &[]).unwrap().starts_with("recovering; before, the log of region-4"));
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

    /// Each of them said "every 10 s".
    #[test]
    fn trouble_of_what_is_offered_again_says_how_late_that_may_be() {
        let unreadable = Missing::Unreadable { file: "log".to_owned(), errno: 5 };
        for missing in [Missing::Memory { bytes: 9 }, unreadable] {
            let pair = PairRow { owner: None, ..row(PairState::Unavailable { missing }) };
            let next = Trouble::of(&pair, |_| true, &[]).unwrap().next.unwrap();
            assert!(next.contains("after 10 s") && next.contains("160 s"), "{next}");
        }
    }

    #[test]
    fn trouble_of_missing_logs_names_them_and_what_to_do() {
        let missing = log(2);
        let trouble = Trouble::of(&row(PairState::Unavailable { missing }), |_| true, &[]).unwrap();
        assert_eq!(trouble.what, "unavailable: the log of region-4, epoch 2, is missing");
        assert!(trouble.next.unwrap().contains("restart the node"));
        assert_eq!(Trouble::of(&row(PairState::Recovering), |_| true, &[]).unwrap().next, None);
    }
}
