//! The cluster as a node saw it last, as JSON: members, pairs, incidents with their timelines, takeovers.
//!
//! Times in incidents are milliseconds of CLOCK_BOOTTIME of whoever wrote them; on one machine all read the
//! same clock. Zero: not yet.

use std::time::Duration;

use cell_cluster::{PairRow, Trouble};
use cell_node::NodeSnapshot;
use serde_json::{Value, json};

pub(crate) fn document(snapshot: &NodeSnapshot, age: Duration) -> Value {
    let cluster = &snapshot.cluster;
    let recoveries = cluster.recoveries.iter().map(|recovery| {
        json!({
            "pair": recovery.pair.0,
            "stage": recovery.progress.stage,
            "bytes_done": recovery.progress.bytes_done,
            "bytes_total": recovery.progress.bytes_total,
        })
    });
    json!({
        "version": 1,
        "age_ms": u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        "node": snapshot.node.0,
        "incarnation": snapshot.incarnation.0,
        "revision": cluster.revision,
        "members": cluster.members,
        "pairs": cluster.pairs,
        "incidents": cluster.incidents,
        "recoveries": recoveries.collect::<Vec<_>>(),
    })
}

/// Pairs that are not served, and why, in words; none if all are.
pub(crate) fn troubles(snapshot: &NodeSnapshot) -> Vec<String> {
    let cluster = &snapshot.cluster;
    let lives = |owner| cluster.members.iter().any(|member| member.incarnation == owner);
    let words = |row: &PairRow| Trouble::of(row, lives, &cluster.incidents).map(|it| (row.pair, it.what));
    cluster.pairs.iter().filter_map(words).map(|(pair, what)| format!("{pair} is {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::snapshot;

    #[test]
    fn document_of_a_node_that_has_seen_nothing_is_whole() {
        let document = document(&snapshot(), Duration::ZERO);
        assert_eq!((&document["version"], &document["revision"]), (&json!(1), &json!(0)));
        for list in ["members", "pairs", "incidents", "recoveries"] {
            assert_eq!(document[list], json!([]));
        }
        assert!(troubles(&snapshot()).is_empty());
    }
}
