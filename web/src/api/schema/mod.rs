//! What each route answers and takes, as JSON Schemas for the API's document. Tests hold them and the answers
//! to each other: see `api/contract_answers.rs`.

pub(crate) mod balance;
mod build;
#[cfg(test)]
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod drains;
pub(crate) mod drills;
mod envelope;
pub(crate) mod kv;
pub(crate) mod logs;
pub(crate) mod moves;
pub(crate) mod node;
pub(crate) mod selector;
pub(crate) mod series;
pub(crate) mod tree;
pub(crate) mod tuning;

#[cfg(test)]
pub(crate) use envelope::NODE_TITLE;

use serde_json::{Map, Value};

/// What several answers share, by name.
pub(crate) fn components() -> Map<String, Value> {
    let schemas = [
        ("DrillRun", drills::run()),
        ("Event", series::event()),
        ("Key", tree::key()),
        ("LatencyHistogram", node::latency_histogram()),
        ("Mark", node::mark()),
        ("MissingPeer", envelope::missing_peer()),
        ("NodeRow", cluster::node_row()),
        ("Problem", kv::problem()),
        ("RecoveryRow", logs::recovery_row()),
        ("Router", tree::router()),
        ("SelectorPair", selector::pair()),
        ("Splits", cluster::splits()),
        ("TunedSetting", tuning::tuned_setting()),
        ("WalRow", logs::wal_row()),
    ];
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}
