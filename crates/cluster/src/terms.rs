//! What all nodes of a cluster agree on, and who may join it: written by the first node, compared by each
//! later one in the transaction that enters its member's row (docs/design/membership.md, "Who joins").
//!
//! A node that differs would do harm later, when it takes a dead node's pair over: over another log root the
//! pair's logs are missing; a pair of an `async` node would be acknowledged in another way than its clients
//! count on.
//! The sizes of regions are compared as well: they are in the pairs' rows.
//!
//! What is written into the logs never changes. What a restart may change (durability, the lease) changes
//! when no other node is there: the first one that starts decides.

use std::fmt;

use cell_terms::{Durability, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use crate::host::HostId;
use crate::lease::LeaseTerms;
use crate::number;
use crate::request::LivingLease;

/// What differs where the log root is another one.
const LOG_ROOT_ID: &str = "the log root's id";
/// Where the terms lie.
pub(crate) const KEY_TERMS: &str = "cluster/terms";

/// What all nodes of a cluster agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterTerms {
    /// The version of the log's frames.
    pub log_format: u32,
    /// The id that lies in the log root, in hexadecimal; none where it has none.
    pub log_root: Option<String>,
    /// When a write is acknowledged.
    #[serde(with = "number::durability")]
    pub durability: Durability,
    /// How long a lease lasts.
    pub lease_ms: u64,
    /// The part of it that a node does not rely on, in nanoseconds.
    pub lease_margin_ns: u64,
}

/// What keeps a node from joining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermsDifference {
    /// What differs: a setting's name, or what is compared.
    pub what: &'static str,
    /// Here.
    pub here: String,
    /// In the cluster.
    pub cluster: String,
    /// What to do.
    pub next: &'static str,
    /// Some of the members of other nodes for whose sake it may not differ. None: it can never differ.
    pub others: Box<[OtherMember]>,
}

/// A member of another node, whose lease lives. Its process may have ended: nobody renews the lease then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherMember {
    /// Its lease.
    pub incarnation: Incarnation,
    /// Its node; none: its row does not read.
    pub node: Option<NodeId>,
    /// How the lease stands.
    pub lease: LivingLease,
}

/// Where a node runs. It hangs on the node's lease: while it is there, nobody else is that node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSeat {
    /// Who.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
    /// The host; none where it is not known.
    pub host: Option<HostId>,
    /// The folder whose lock it holds for life, and which file that lock is.
    pub home: String,
    /// Its fabric address, for who looks for it.
    pub fabric: String,
}

/// What a node joins with.
#[derive(Clone, Debug)]
pub struct Joining {
    /// Its settings' terms.
    pub terms: ClusterTerms,
    /// The host; none where it is not known.
    pub host: Option<HostId>,
    /// The folder whose lock it holds, and which file that lock is.
    pub home: String,
}

impl ClusterTerms {
    /// Terms of a node over the log root of `host`.
    #[must_use]
    pub fn new(
        log_format: u32,
        host: Option<HostId>,
        durability: Durability,
        lease: LeaseTerms,
    ) -> ClusterTerms {
        let LeaseTerms { ttl_ms, margin_ns } = lease;
        let log_root = host.map(|host| format!("{:032x}", host.log_root()));
        ClusterTerms { log_format, log_root, durability, lease_ms: ttl_ms, lease_margin_ns: margin_ns }
    }

    /// What can never change, and differs.
    pub(crate) fn difference(&self, cluster: &ClusterTerms) -> Option<TermsDifference> {
        let difference = |what, here: &dyn fmt::Display, cluster: &dyn fmt::Display, next| {
            let (here, cluster) = (here.to_string(), cluster.to_string());
            let others = Box::default();
            (here != cluster).then_some(TermsDifference { what, here, cluster, next, others })
        };
        let formats = difference(
            "the log's format",
            &self.log_format,
            &cluster.log_format,
            "run the same version of Cell on every node",
        );
        let roots = self.log_root.as_ref().zip(cluster.log_root.as_ref()).and_then(|(here, cluster)| {
            let next = "logs and coordinator are of two stores: mount the cluster's log root there, or give the \
                        folder that belongs to it";
            difference(LOG_ROOT_ID, here, cluster, next)
        });
        formats.or(roots)
    }

    /// What changes only while no other node is there, and differs.
    pub(crate) fn difference_while_others_live(&self, cluster: &ClusterTerms) -> Option<TermsDifference> {
        let next =
            "give it the cluster's value; to change it, stop every node and start them with the new one";
        let difference = |what, here: String, cluster: String| {
            let others = Box::default();
            (here != cluster).then_some(TermsDifference { what, here, cluster, next, others })
        };
        let word = |durability| number::durability::word(durability).to_owned();
        let lease = |ms: u64| format!("{ms} ms");
        let margin = |terms: &ClusterTerms| {
            format!("{} of {}", milliseconds(terms.lease_margin_ns), lease(terms.lease_ms))
        };
        difference("durability", word(self.durability), word(cluster.durability))
            .or_else(|| difference("lease_ms", lease(self.lease_ms), lease(cluster.lease_ms)))
            .or_else(|| difference("lease_drift_margin", margin(self), margin(cluster)))
    }
}

/// `25 ms`, `22.5 ms`, `0.000001 ms`.
fn milliseconds(ns: u64) -> String {
    let (whole, part) = (ns / 1_000_000, format!("{:06}", ns % 1_000_000));
    match part.trim_end_matches('0') {
        "" => format!("{whole} ms"),
        part => format!("{whole}.{part} ms"),
    }
}

impl Joining {
    /// The seat of this node.
    pub(crate) fn seat(&self, incarnation: Incarnation, fabric: &str) -> NodeSeat {
        let fabric = fabric.to_owned();
        NodeSeat { incarnation, host: self.host, home: self.home.clone(), fabric }
    }
}

impl NodeSeat {
    /// Under which a node's seat lies.
    pub(crate) fn key(node: NodeId) -> String {
        format!("node/{:08x}", node.0)
    }

    /// Whether who holds the lock of `next` on its host knows that this one has ended: it held it for life.
    pub(crate) fn has_ended_before(&self, next: &NodeSeat) -> bool {
        self.host.is_some() && self.host == next.host && self.home == next.home
    }
}

impl TermsDifference {
    /// Whether the node has another log root than the cluster.
    #[must_use]
    pub fn is_of_log_root(&self) -> bool {
        self.what == LOG_ROOT_ID
    }
}

impl fmt::Display for TermsDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {} here and {} in the cluster", self.what, self.here, self.cluster)?;
        match self.others.first() {
            Some(first) => write!(f, ", where {first} lives"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for OtherMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "node {}", node.0),
            None => f.write_str("a member whose row does not read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostId = HostId::new(1, 7);

    fn terms() -> ClusterTerms {
        let lease = LeaseTerms::new(500, 0.05);
        ClusterTerms::new(1, Some(HOST), Durability::Sync, lease)
    }

    #[test]
    fn terms_text_is_pinned() {
        let text = concat!(
            r#"{"log_format":1,"log_root":"00000000000000000000000000000007","#,
            r#""durability":"sync","lease_ms":500,"lease_margin_ns":25000000}"#
        );
        assert_eq!(serde_json::to_string(&terms()).unwrap(), text);
        assert_eq!(serde_json::from_str::<ClusterTerms>(text).unwrap(), terms());
    }

    #[test]
    fn difference_names_what_differs_on_both_sides() {
        let other_root = ClusterTerms { log_root: Some("8".into()), ..terms() };
        let other_format = ClusterTerms { log_format: 2, ..terms() };
        assert_eq!(terms().difference(&terms()), None);
        let what = |other: &ClusterTerms| other.difference(&terms()).unwrap();
        assert_eq!(what(&other_root).what, "the log root's id");
        assert!(what(&other_root).is_of_log_root() && !what(&other_format).is_of_log_root());
        assert_eq!(what(&other_format).to_string(), "the log's format is 2 here and 1 in the cluster");
        let unknown_root = ClusterTerms { log_root: None, ..terms() };
        assert_eq!(unknown_root.difference(&terms()), None, "a full disk may keep an id from being read");
    }

    #[test]
    fn difference_of_what_a_restart_may_change_is_apart() {
        let other = ClusterTerms { durability: Durability::Async, ..terms() };
        let lease = ClusterTerms { lease_ms: 900, ..terms() };
        let margin = ClusterTerms { lease_margin_ns: 1, ..terms() };
        for (other, what) in [(other, "durability"), (lease, "lease_ms"), (margin, "lease_drift_margin")] {
            assert_eq!(other.difference(&terms()), None);
            assert_eq!(other.difference_while_others_live(&terms()).unwrap().what, what);
        }
    }

    #[test]
    fn difference_of_the_margin_is_in_the_units_of_the_lease() {
        let other = ClusterTerms { lease_margin_ns: 50_000_000, ..terms() };
        let said = other.difference_while_others_live(&terms()).unwrap().to_string();
        assert_eq!(said, "lease_drift_margin is 50 ms of 500 ms here and 25 ms of 500 ms in the cluster");
        assert_eq!((milliseconds(22_500_000), milliseconds(1)), ("22.5 ms".into(), "0.000001 ms".into()));
    }

    #[test]
    fn seat_of_a_predecessor_is_of_the_same_host_and_folder() {
        let seat = |host, home: &str| NodeSeat {
            incarnation: Incarnation(1),
            host,
            home: home.to_owned(),
            fabric: String::new(),
        };
        let next = seat(Some(HOST), "/a");
        assert!(seat(Some(HOST), "/a").has_ended_before(&next));
        assert!(!seat(Some(HOST), "/b").has_ended_before(&next));
        assert!(!seat(Some(HostId::new(2, 7)), "/a").has_ended_before(&next));
        assert!(!seat(None, "/a").has_ended_before(&seat(None, "/a")));
    }
}
