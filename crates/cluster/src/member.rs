//! The living incarnations: who is there and where. A member's row hangs on its lease and goes with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, parse, readable, text};
use crate::drain_look::drain_of;
use crate::drain_row::NodeRefusal;
use crate::error::ClusterError;
use crate::joined::JoinedRow;
use crate::number;
use crate::request::{CoordinatorRefusal, KeyCondition, KeyValue, Transaction, TransactionOutcome};
use crate::terms::{ClusterTerms, Joining, KEY_TERMS, NodeSeat, OtherMember, TermsDifference};

/// Under which the members' rows lie.
pub(crate) const KEY_MEMBERS: &str = "member/";

/// How many others are named to a node whose terms differ: each is asked for at each of its attempts.
const OTHERS_MAX: usize = 8;

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// Its lease.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
    /// Its node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Its fabric address.
    pub fabric: String,
    /// Its HTTP address; empty if it has none.
    pub http: String,
    /// Its process.
    pub pid: u32,
    /// Memory that it may hold, in bytes, as it was given last; zero: what the machine has.
    pub memory_limit_bytes: u64,
}

impl MemberRow {
    /// The present life of a node among members in any order. A node that left in order and is back has two
    /// rows until the lease of the life before has ended.
    #[must_use]
    pub fn present(members: &[MemberRow], node: NodeId) -> Option<&MemberRow> {
        members.iter().filter(|member| member.node == node).max_by_key(|member| member.incarnation)
    }

    /// The present life of each node.
    #[must_use]
    pub fn present_lives(members: &[MemberRow]) -> BTreeSet<Incarnation> {
        let mut present: BTreeMap<NodeId, Incarnation> = BTreeMap::new();
        for member in members {
            let newest = present.entry(member.node).or_insert(member.incarnation);
            *newest = member.incarnation.max(*newest);
        }
        present.into_values().collect()
    }

    /// The present life of each node, in the order of these rows.
    pub fn present_rows(members: &[MemberRow]) -> impl Iterator<Item = &MemberRow> {
        let present = MemberRow::present_lives(members);
        members.iter().filter(move |member| present.contains(&member.incarnation))
    }
}

/// The members. Clones share the coordinator.
#[derive(Clone)]
pub struct Members {
    coordinator: Arc<dyn Coordinator>,
}

impl Members {
    /// The members that `coordinator` knows.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Members {
        Members { coordinator }
    }

    /// Enters a member, or its new row.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`].
    pub fn enter(&self, row: &MemberRow) -> Result<(), ClusterError> {
        let lease = row.incarnation;
        let enter = Transaction::new().when(KeyCondition::LeaseAlive { lease }).put_leased(
            member_key(lease),
            text(row),
            lease,
        );
        self.apply(lease, || Ok(enter.clone()))
    }

    /// Enters a node, if it fits the cluster and nobody else is that node.
    ///
    /// # Errors
    /// [`ClusterError::Terms`], [`ClusterError::NodeElsewhere`], [`NodeRefusal::Removed`],
    /// [`ClusterError::LeaseEnded`].
    pub fn join(&self, row: &MemberRow, joining: &Joining) -> Result<(), ClusterError> {
        self.apply(row.incarnation, || self.join_transaction(row, joining))
    }

    /// Carries out a transaction whose first condition is that `lease` lives.
    fn apply(
        &self,
        lease: Incarnation,
        transaction: impl Fn() -> Result<Transaction, ClusterError>,
    ) -> Result<(), ClusterError> {
        let mut attempts = Attempts::default();
        while attempts.left() {
            match transaction().and_then(|transaction| self.coordinator.transact(transaction)) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(()),
                Ok(TransactionOutcome::Refused { condition: 0 })
                | Err(ClusterError::Refused(CoordinatorRefusal::LeaseEnded { .. })) => {
                    return Err(ClusterError::LeaseEnded { lease });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error), // twice is once
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("the members"))
    }

    /// The transaction, conditional on all that was looked at, after which the node is a member.
    fn join_transaction(&self, row: &MemberRow, joining: &Joining) -> Result<Transaction, ClusterError> {
        let lease = row.incarnation;
        let seat_key = NodeSeat::key(row.node);
        let seat = joining.seat(lease, &row.fabric);
        // The terms are read before the list, and each join writes them: of two nodes that join at the same
        // time the second one is refused, and has the first one in its list when it tries again.
        let (terms, sitting) = (self.coordinator.read(KEY_TERMS)?, self.coordinator.read(&seat_key)?);
        let (drain, drain_unchanged) = drain_of(&*self.coordinator, row.node)?;
        if let Some(drain) = drain.filter(|drain| drain.removed) {
            return Err(NodeRefusal::Removed { node: row.node, who: drain.who }.into());
        }
        let members = self.coordinator.list(KEY_MEMBERS)?.entries;
        let join = Transaction::new()
            .when(KeyCondition::LeaseAlive { lease })
            .when(unchanged(&seat_key, sitting.as_ref()))
            .when(unchanged(KEY_TERMS, terms.as_ref()))
            .when(drain_unchanged)
            .put_leased(member_key(lease), text(row), lease)
            .put_leased(seat_key, text(&seat), lease)
            .put(JoinedRow::key(row.node), text(&JoinedRow { node: row.node, incarnation: lease }));
        if let Some(entry) = &sitting {
            let sitting: NodeSeat = parse("a node's seat", &entry.value)?;
            let is_own = sitting.incarnation == lease;
            if !is_own && !sitting.has_ended_before(&seat) && !planted(Mutant::SeatIgnored) {
                let NodeSeat { fabric, home, .. } = sitting;
                return Err(ClusterError::NodeElsewhere { node: row.node, fabric, home });
            }
        }
        let known = terms.as_ref().map(|entry| parse::<ClusterTerms>("the cluster's terms", &entry.value));
        let wanted = &joining.terms;
        let Some(known) = known.transpose()? else { return Ok(join.put(KEY_TERMS, text(wanted))) };
        let mut differs = wanted.difference(&known);
        if differs.is_none()
            && let Some(difference) = wanted.difference_while_others_live(&known)
        {
            let others = self.others(&members, row.node)?;
            if !others.is_empty() && self.coordinator.read(KEY_TERMS)? != terms {
                return Ok(join); // refused, and all is looked at again: one of them has brought other terms
            }
            differs = (!others.is_empty()).then_some(TermsDifference { others, ..difference });
        }
        if let Some(difference) = differs.filter(|_| !planted(Mutant::TermsIgnored)) {
            return Err(ClusterError::Terms(difference));
        }
        let log_root = known.log_root.clone().or_else(|| wanted.log_root.clone());
        Ok(join.put(KEY_TERMS, text(&ClusterTerms { log_root, ..wanted.clone() })))
    }

    /// Some of the members of other nodes among these rows; none: there are none. Whose row does not read may
    /// be anybody.
    fn others(&self, rows: &[KeyValue], node: NodeId) -> Result<Box<[OtherMember]>, ClusterError> {
        let mut others = Vec::new();
        for KeyValue { key, value, .. } in rows {
            let row = parse::<MemberRow>("a member", value).ok();
            let is_other = match &row {
                Some(row) => row.node != node,
                None => !planted(Mutant::UnreadableMemberUnseen),
            };
            let Some(incarnation) = key.strip_prefix(KEY_MEMBERS).and_then(member_id).filter(|_| is_other)
            else {
                continue;
            };
            // None: it has ended since the rows were listed.
            if let Some(lease) = self.coordinator.living_lease(incarnation)? {
                others.push(OtherMember { incarnation, node: row.map(|row| row.node), lease });
            }
            if others.len() == OTHERS_MAX {
                break;
            }
        }
        Ok(others.into())
    }

    /// Every member whose lease lives and whose row reads.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn list(&self) -> Result<Vec<MemberRow>, ClusterError> {
        let entries = self.coordinator.list(KEY_MEMBERS)?.entries;
        Ok(readable("a member", &entries).collect())
    }

    /// What all nodes have agreed on; none: no node has joined yet.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn terms(&self) -> Result<Option<ClusterTerms>, ClusterError> {
        let entry = self.coordinator.read(KEY_TERMS)?;
        entry.map(|entry| parse("the cluster's terms", &entry.value)).transpose()
    }

    /// Whether this incarnation has a row that does not read.
    pub(crate) fn is_unreadable(&self, incarnation: Incarnation) -> Result<bool, ClusterError> {
        let entry = self.coordinator.read(&member_key(incarnation))?;
        Ok(entry.is_some_and(|entry| parse::<MemberRow>("a member", &entry.value).is_err()))
    }
}

/// That a key is as it was read.
fn unchanged(key: &str, entry: Option<&KeyValue>) -> KeyCondition {
    let key = key.to_owned();
    match entry {
        Some(entry) => KeyCondition::Revision { key, revision: entry.revision },
        None => KeyCondition::Absent { key },
    }
}

fn member_key(incarnation: Incarnation) -> String {
    format!("{KEY_MEMBERS}{:016x}", incarnation.0)
}

/// The incarnation of which this is what follows [`KEY_MEMBERS`] in its row's key.
pub(crate) fn member_id(id: &str) -> Option<Incarnation> {
    u64::from_str_radix(id, 16).ok().map(Incarnation)
}
