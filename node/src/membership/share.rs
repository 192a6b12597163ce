//! Sharing the pairs of a dead incarnation out over the living: by bytes to replay, within their memory.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::{MemberRow, Missing, PairRow, PairState, ShareRow};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Incarnation, NodeId, PairId};

/// A pair to be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Orphan {
    /// The pair.
    pub(crate) pair: PairId,
    /// Image and log bytes that a recovery reads.
    pub(crate) replay_bytes: u64,
    /// Bytes of its regions.
    pub(crate) memory_bytes: u64,
    /// Those that had no room for it, or could not read it.
    pub(crate) declined: Vec<Incarnation>,
}

/// Gives each pair to the one that has the least to replay so far and has memory: the largest pairs first.
/// Nodes that drain get only what nobody else has room for.
///
/// Regions have the size that they may grow to, and most are far smaller. So where nobody has room for all of
/// them, the pair goes by the same order to whoever has not declined it: that node knows what it has granted,
/// and declines what does not fit. A pair that all have declined gets nobody.
#[must_use]
pub(crate) fn share_out(
    mut orphans: Vec<Orphan>,
    rows: &[PairRow],
    members: &[MemberRow],
    draining: &BTreeSet<NodeId>,
) -> Vec<ShareRow> {
    let mut taken: BTreeMap<Incarnation, u64> = BTreeMap::new();
    for row in rows {
        if let Some(owner) = row.owner {
            *taken.entry(owner).or_default() += memory_bytes(row);
        }
    }
    let mut to_replay: BTreeMap<Incarnation, u64> = BTreeMap::new();
    let mut shares: BTreeMap<Incarnation, u64> = BTreeMap::new();
    orphans.sort_by_key(|orphan| (std::cmp::Reverse(orphan.replay_bytes), orphan.pair));
    let mut plan = Vec::new();
    for Orphan { pair, replay_bytes, memory_bytes, declined } in orphans {
        let may_take = |member: &&MemberRow| !declined.contains(&member.incarnation);
        let is_over = |member: &&MemberRow| {
            let limit = member.memory_limit_bytes;
            let has = taken.get(&member.incarnation).copied().unwrap_or(0);
            limit > 0 && has + memory_bytes > limit
        };
        let load = |member: &&MemberRow| {
            let of = |map: &BTreeMap<Incarnation, u64>| map.get(&member.incarnation).copied().unwrap_or(0);
            let drains = draining.contains(&member.node);
            (is_over(member), drains, of(&to_replay), of(&shares), of(&taken), member.incarnation)
        };
        let survivor = members.iter().filter(may_take).min_by_key(load).map(|member| member.incarnation);
        if let Some(survivor) = survivor {
            *to_replay.entry(survivor).or_default() += replay_bytes;
            *shares.entry(survivor).or_default() += 1;
            *taken.entry(survivor).or_default() += memory_bytes;
        }
        let times = cell_cluster::ShareTimes::default();
        plan.push(ShareRow { pair, survivor, bytes: replay_bytes, declined, times });
    }
    plan.sort_by_key(|share| share.pair);
    plan
}

/// Whether the node had the pair, and it waits to be recovered, here or by somebody who takes it over. Until
/// then the memory that it had is kept for it: a node that was full when it died comes back only so. Not once
/// it has found the pair damaged: it is not asked again in this life.
pub(crate) fn is_left_behind(row: &PairRow, node: NodeId, incarnation: Incarnation) -> bool {
    let waits = match &row.state {
        PairState::New => false,
        PairState::Serving => row.owner != Some(incarnation),
        PairState::Recovering | PairState::Released => true,
        PairState::Unavailable { missing } => {
            let is_looked_at = row.awaits_look() && row.findings.iter().all(|finding| finding.node != node);
            matches!(missing, Missing::Memory { .. }) || is_looked_at
        }
    };
    let has_found_damage = row.findings.iter().any(|finding| finding.incarnation == incarnation);
    waits && !has_found_damage && row.served_by == Some(node) && !planted(Mutant::LeftBehindForgotten)
}

/// Whether a node gives nothing of its memory to pairs that are to move to it, for the sake of one that it
/// had. While another member recovers that one, or has got it by a move, it is not waited for here.
pub(crate) fn keeps_memory_for(
    row: &PairRow,
    (node, incarnation): (NodeId, Incarnation),
    lives: impl Fn(Incarnation) -> bool,
) -> bool {
    let is_with = |owner: Incarnation| owner != incarnation && lives(owner);
    let elsewhere = matches!(row.state, PairState::Recovering) && row.owner.is_some_and(is_with);
    is_left_behind(row, node, incarnation) && !elsewhere
}

/// The nodes that keep what memory they have left for pairs that they had: nothing else is to be brought
/// there. `present` is the present life of each node.
#[must_use]
pub fn memory_keepers<'r>(
    pairs: impl IntoIterator<Item = &'r PairRow>,
    present: impl IntoIterator<Item = &'r MemberRow>,
    lives: impl Fn(Incarnation) -> bool,
) -> BTreeSet<NodeId> {
    let present: BTreeMap<NodeId, Incarnation> =
        present.into_iter().map(|member| (member.node, member.incarnation)).collect();
    let keeper = |row: &PairRow| {
        let node = row.served_by?;
        keeps_memory_for(row, (node, *present.get(&node)?), &lives).then_some(node)
    };
    pairs.into_iter().filter_map(keeper).collect()
}

/// Bytes of a pair's regions.
#[must_use]
pub(crate) fn memory_bytes(row: &PairRow) -> u64 {
    row.geometry.bytes()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{member, row};
    use super::*;

    const NONE: BTreeSet<NodeId> = BTreeSet::new();

    fn orphan(pair: u32, replay_bytes: u64) -> Orphan {
        Orphan { pair: PairId(pair), replay_bytes, memory_bytes: 10, declined: Vec::new() }
    }

    fn survivors(plan: &[ShareRow]) -> Vec<Option<u64>> {
        plan.iter().map(|share| share.survivor.map(|survivor| survivor.0)).collect()
    }

    fn keepers(rows: &[PairRow], members: &[MemberRow]) -> BTreeSet<NodeId> {
        let lives = |of| members.iter().any(|member| member.incarnation == of);
        memory_keepers(rows, MemberRow::present_rows(members), lives)
    }

    /// Pairs were moved to a node that was back, and took the memory of what it was to recover.
    #[test]
    fn nodes_keep_memory_for_pairs_that_they_had_unless_another_one_recovers_them() {
        let members = [member(7, 1), member(9, 3)];
        let keepers = |rows: &[PairRow]| keepers(rows, &members);
        assert_eq!(keepers(&[row(1, Some(7), 1), row(2, Some(9), 3)]), NONE);
        assert_eq!(keepers(&[row(1, Some(7), 1), row(2, Some(8), 3), row(3, None, 5)]), [NodeId(3)].into());
        let had = PairRow { served_by: Some(NodeId(3)), ..row(2, None, 1) };
        let missing = Missing::Memory { bytes: 1 };
        let declined = PairRow { state: PairState::Unavailable { missing }, ..had.clone() };
        assert_eq!(keepers(&[declined]), [NodeId(3)].into());
        let recovered_by =
            |owner| PairRow { owner: Some(Incarnation(owner)), state: PairState::Recovering, ..had.clone() };
        assert_eq!(keepers(&[recovered_by(9)]), [NodeId(3)].into(), "by itself");
        assert_eq!(keepers(&[recovered_by(7)]), NONE, "by another one, or that has got it by a move");
        assert_eq!(keepers(&[recovered_by(8)]), [NodeId(3)].into(), "which has died");
    }

    /// A newer life of the node has another row until the lease of the one before has ended.
    #[test]
    fn node_in_two_rows_keeps_memory_for_what_its_life_before_had() {
        let members = [member(9, 3), member(12, 3)];
        assert_eq!(keepers(&[row(2, Some(9), 3)], &members), [NodeId(3)].into());
        assert_eq!(keepers(&[row(2, Some(12), 3)], &members), NONE);
    }

    #[test]
    fn share_out_is_balanced_by_bytes_to_replay() {
        let orphans = vec![orphan(1, 10), orphan(2, 100), orphan(3, 60), orphan(4, 50)];
        let plan = share_out(orphans, &[], &[member(7, 1), member(8, 2)], &NONE);
        assert_eq!(survivors(&plan), [Some(7), Some(7), Some(8), Some(8)]);
    }

    #[test]
    fn share_out_empty_pairs_are_spread_by_number() {
        let orphans = (1..=4).map(|pair| orphan(pair, 0)).collect();
        let plan = share_out(orphans, &[], &[member(7, 1), member(8, 2)], &NONE);
        assert_eq!(survivors(&plan), [Some(7), Some(8), Some(7), Some(8)]);
    }

    #[test]
    fn share_out_respects_memory_and_who_declined() {
        let mut small = member(7, 1);
        small.memory_limit_bytes = 25;
        let rows = [row(9, Some(7), 1)]; // takes 10 of its 25
        let mut declined = orphan(3, 1);
        declined.declined = vec![Incarnation(8)];
        let orphans = vec![orphan(1, 3), orphan(2, 2), declined];
        let plan = share_out(orphans, &rows, &[small.clone(), member(8, 2)], &NONE);
        assert_eq!(
            survivors(&plan),
            [Some(8), Some(7), Some(7)],
            "the third is over what the first could grow to"
        );
        let mut declined = orphan(3, 1);
        declined.declined = vec![Incarnation(8), Incarnation(7)];
        let plan = share_out(vec![declined], &rows, &[small, member(8, 2)], &NONE);
        assert_eq!(survivors(&plan), [None], "it finds no room anywhere");
    }

    /// Many small pairs in regions that could grow large were served by nobody, though there was memory.
    #[test]
    fn share_out_goes_by_who_declined_where_regions_could_grow_beyond_every_limit() {
        let members = [7, 8].map(|incarnation| {
            let mut full = member(incarnation, 1);
            full.memory_limit_bytes = 20;
            full
        });
        let rows = [row(9, Some(7), 1), row(10, Some(7), 1), row(11, Some(8), 1), row(12, Some(8), 1)];
        let orphans = (1..=4).map(|pair| orphan(pair, 5)).collect();
        let plan = share_out(orphans, &rows, &members, &NONE);
        assert_eq!(survivors(&plan), [Some(7), Some(8), Some(7), Some(8)]);
        let mut declined = orphan(1, 5);
        declined.declined = vec![Incarnation(7)];
        assert_eq!(survivors(&share_out(vec![declined], &rows, &members, &NONE)), [Some(8)]);
    }

    #[test]
    fn share_out_gives_a_node_that_drains_only_what_nobody_else_has_room_for() {
        let mut small = member(8, 2);
        small.memory_limit_bytes = 15;
        let orphans = vec![orphan(1, 50), orphan(2, 10)];
        let draining = BTreeSet::from([NodeId(1)]);
        let plan = share_out(orphans, &[], &[member(7, 1), small], &draining);
        assert_eq!(survivors(&plan), [Some(8), Some(7)]);
    }
}
