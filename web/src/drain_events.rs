//! What happened to nodes that are to be emptied, as the differences between one look at the cluster and the
//! next.

use cell_cluster::{DrainRow, pairs_left};
use cell_node::ClusterSnapshot;
use cell_terms::NodeId;
use serde_json::{Value, json};

use crate::words::counted;

/// A node is to be emptied.
const STARTED: &str = "drain";
/// What does not come on.
const STALL: &str = "stall";
/// A node may not join any more.
const REMOVED: &str = "removed";

/// Something that happened to a drain.
#[derive(Debug, PartialEq)]
pub(crate) struct DrainNews {
    pub(crate) id: String,
    /// Milliseconds since 1970, as the row has it; zero: it does not say.
    pub(crate) at_unix_ms: u64,
    pub(crate) node: NodeId,
    /// A drain begins: what it moves comes after that.
    pub(crate) is_begin: bool,
    /// It does not come on.
    pub(crate) is_warning: bool,
    pub(crate) text: String,
    pub(crate) details: Value,
}

/// Pairs that a node has, that wait for it, or that moves may still bring there.
pub(crate) fn pairs_of(cluster: &ClusterSnapshot, node: NodeId) -> u64 {
    pairs_left(node, &cluster.pairs, &cluster.moves_that_bring(), |of| cluster.lives(of))
}

/// What is new.
pub(crate) fn news(before: &ClusterSnapshot, now: &ClusterSnapshot) -> Vec<DrainNews> {
    let of = |rows: &[DrainRow], node| rows.iter().find(|row| row.node == node).cloned();
    let mut news = Vec::new();
    for row in &now.drains {
        let then = of(&before.drains, row.node).filter(|then| then.since_unix_ms == row.since_unix_ms);
        of_row(then.as_ref(), row, (before, now), &mut news);
    }
    for row in before.drains.iter().filter(|row| of(&now.drains, row.node).is_none()) {
        let text = match row.removed {
            true => format!("{} may join again", row.node),
            false => format!("{} is not to be emptied any more", row.node),
        };
        news.push(drain_news("undrained", row, text));
    }
    news
}

fn of_row(
    then: Option<&DrainRow>,
    row: &DrainRow,
    (before, now): (&ClusterSnapshot, &ClusterSnapshot),
    news: &mut Vec<DrainNews>,
) {
    let (node, left) = (row.node, pairs_of(now, row.node));
    let by = match &row.why {
        Some(why) => format!("by {}: {why}", row.who),
        None => format!("by {}", row.who),
    };
    if row.removed {
        if then.is_none_or(|then| !then.removed) {
            let text = format!("{node} was removed from the cluster, {by}");
            news.push(drain_news(REMOVED, row, text));
        }
        return;
    }
    if then.is_none() {
        let text = format!("{node} is to be emptied of {}, {by}", counted(left, "pair"));
        news.push(drain_news(STARTED, row, text));
    }
    if left == 0 && (then.is_none() || pairs_of(before, node) > 0) {
        news.push(drain_news("drained", row, format!("{node} is empty, and can be stopped")));
    }
    if let Some(stall) = &row.stall
        && then.is_none_or(|then| then.stall.as_ref() != Some(stall))
        && left > 0
    {
        news.push(drain_news(STALL, row, format!("{node} cannot be emptied: {stall}")));
    }
}

fn drain_news(what: &str, row: &DrainRow, text: String) -> DrainNews {
    let DrainRow { node, who, why, since_unix_ms, stall, .. } = row;
    let id = format!("{what}-{}-{since_unix_ms}", node.0);
    // The row's date is that of its begin.
    let is_dated = matches!(what, STARTED | REMOVED);
    DrainNews {
        id,
        at_unix_ms: if is_dated { *since_unix_ms } else { 0 },
        node: *node,
        is_begin: what == STARTED,
        is_warning: what == STALL,
        text,
        details: json!({"who": who, "why": why, "stall": stall}),
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::{EpochRow, MemberRow, MoveStage, PairRow};
    use cell_terms::{Csn, Durability};

    use super::*;
    use crate::api::regions::tests::pair_row;
    use crate::move_events::tests::move_row;

    fn row(since_unix_ms: u64) -> DrainRow {
        let (who, why) = ("ops".to_owned(), Some("new disk".to_owned()));
        DrainRow { node: NodeId(3), who, why, since_unix_ms, removed: false, stall: None }
    }

    fn look(drains: Vec<DrainRow>, pairs: u32) -> ClusterSnapshot {
        let pairs = (1..=pairs).map(|pair| pair_row(pair, 77)).collect();
        ClusterSnapshot { drains, pairs, ..ClusterSnapshot::default() }
    }

    #[test]
    fn drain_is_reported_when_it_begins_stands_still_is_over_and_is_taken_back() {
        let stalled = DrainRow { stall: Some("pair-1 cannot move: no room".to_owned()), ..row(5) };
        let removed = DrainRow { removed: true, since_unix_ms: 9, ..row(5) };
        let looks = [
            look(vec![], 2),
            look(vec![row(5)], 2),
            look(vec![row(5)], 1),
            look(vec![stalled.clone()], 1),
            look(vec![stalled], 1),
            look(vec![row(5)], 0),
            look(vec![removed.clone()], 0),
            look(vec![], 0),
            look(vec![row(11)], 0),
            look(vec![], 0),
        ];
        let all: Vec<DrainNews> = looks.windows(2).flat_map(|two| news(&two[0], &two[1])).collect();
        let dates: Vec<u64> = all.iter().map(|news| news.at_unix_ms).filter(|at| *at > 0).collect();
        assert_eq!(dates, [5, 9, 11], "of begins, and of what was removed");
        let texts: Vec<String> = all.into_iter().map(|news| news.text).collect();
        let expected = [
            "node-3 is to be emptied of 2 pairs, by ops: new disk",
            "node-3 cannot be emptied: pair-1 cannot move: no room",
            "node-3 is empty, and can be stopped",
            "node-3 was removed from the cluster, by ops: new disk",
            "node-3 may join again",
            "node-3 is to be emptied of 0 pairs, by ops: new disk",
            "node-3 is empty, and can be stopped",
            "node-3 is not to be emptied any more",
        ];
        assert_eq!(texts, expected);
    }

    /// It was never drained: nobody ends a move of which the row does not read.
    #[test]
    fn move_whose_row_does_not_read_brings_no_pair_unless_it_was_handed_over() {
        let of = move_row(MoveStage::Copying);
        let (source, target) = (of.source, of.target);
        let served = PairRow { node: source.node, epoch: of.epoch, ..pair_row(3, source.incarnation.0) };
        let cut = EpochRow { epoch: of.epoch, durability: Durability::Sync, cut: Some(Csn(7)) };
        let handed = PairRow {
            node: target.node,
            epoch: of.epoch_of_target(),
            history: vec![cut],
            ..pair_row(3, target.incarnation.0)
        };
        let member = MemberRow {
            incarnation: source.incarnation,
            node: source.node,
            fabric: String::new(),
            http: String::new(),
            pid: 1,
            memory_limit_bytes: 0,
        };
        let look = |row: &PairRow, unreadable: &[&str], members: &[MemberRow]| {
            let cluster = ClusterSnapshot {
                pairs: vec![row.clone()],
                members: members.to_vec(),
                moves: vec![of.clone()],
                unreadable: unreadable.iter().map(|row| (*row).to_owned()).collect(),
                ..ClusterSnapshot::default()
            };
            [source.node, target.node].map(|node| pairs_of(&cluster, node))
        };
        let (garbled, lives) = (["`move/00000003`: cannot read a move"], [member]);
        assert_eq!(look(&served, &[], &lives), [1, 1]);
        assert_eq!(look(&served, &garbled, &lives), [1, 0]);
        assert_eq!(look(&handed, &garbled, &lives), [1, 1], "it may go back by the pair's row alone");
        assert_eq!(look(&handed, &garbled, &[]), [0, 1], "but not to a source that has died");
    }
}
