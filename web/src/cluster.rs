//! The cluster as a node saw it last, as JSON: members, pairs, incidents with their timelines, takeovers.
//!
//! Times in incidents are milliseconds of CLOCK_BOOTTIME of whoever wrote them; on one machine all read the
//! same clock. Zero: not yet.

use std::time::Duration;

use cell_cluster::{Missing, PairState};
use cell_node::NodeSnapshot;
use serde_json::{Value, json};

/// The document.
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
    let rows = snapshot.cluster.pairs.iter().filter_map(|row| {
        let lives = |owner| snapshot.cluster.members.iter().any(|member| Some(member.incarnation) == owner);
        let why = match &row.state {
            PairState::Serving | PairState::ReadOnly if lives(row.owner) => return None,
            PairState::Serving | PairState::ReadOnly => "its owner has died".to_owned(),
            PairState::New | PairState::Released => "nobody has claimed it yet".to_owned(),
            PairState::Recovering => "recovering".to_owned(),
            PairState::Unavailable { missing } => format!("unavailable: {}", missing_words(missing)),
        };
        Some(format!("{} is {why}", row.pair))
    });
    rows.collect()
}

fn missing_words(missing: &Missing) -> String {
    match missing {
        Missing::Log { region, epoch } => format!("the log of {region}, epoch {}, is missing", epoch.0),
        Missing::Corruption { file, offset } => format!("{file} is damaged at byte {offset}"),
        Missing::Checkpoint { file } => format!("the checkpoint {file} cannot be read whole"),
        Missing::Unreadable { file, errno } => format!("{file} cannot be read, error {errno}"),
        Missing::Record { region, csn } => format!("record {} of {region} cannot be applied", csn.0),
        Missing::Verification { region } => {
            format!("what was rebuilt of {region} does not satisfy its checks")
        }
        Missing::Memory { bytes } => format!("nobody has {bytes} bytes of memory for it"),
    }
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

    #[test]
    fn missing_words_tell_what_a_person_looks_for() {
        let missing = Missing::Log { region: cell_terms::RegionId(4), epoch: cell_terms::Epoch(2) };
        assert_eq!(missing_words(&missing), "the log of region-4, epoch 2, is missing");
    }
}
