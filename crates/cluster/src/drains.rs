//! Nodes that are to be emptied, and those that were removed for good: a row of each, which outlasts the
//! node's process. While it is there the node is nobody's target, and the balancer moves its pairs away.
//!
//! A row is started and ended by operators alone. All that begin are counted by one more row, and each is
//! conditional on it: of two operators who drain the last two nodes at the same time one is refused, and so
//! is a drain that was planned before another one began ([`Drains::begin_as_seen`]).

use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Incarnation, NodeId};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, parse, readable, text};
use crate::drain_row::{DRAINS_AT_ONCE, DrainAuthor, DrainRow, KEY_DRAINS, NodeRefusal};
use crate::error::ClusterError;
use crate::joined::JoinedRow;
use crate::member::{MemberRow, Members};
use crate::moves::Moves;
use crate::pairs_left::pairs_left;
use crate::request::{KeyCondition, Transaction, TransactionOutcome};
use crate::table::Table;
use crate::terms::NodeSeat;

/// Counts the changes of drains.
pub(crate) const KEY_COUNT: &str = "counter/drain";

/// Members of a plan whose leases are conditions of a drain, at most: a transaction has so many.
const TARGETS_ASKED: usize = 100;

/// The rows that a drain is planned from, as they were read: before all else that the plan goes by.
#[derive(Clone, Debug)]
pub struct DrainsSeen {
    /// By node.
    pub rows: Vec<DrainRow>,
    /// As [`Drains::revision`].
    pub revision: u64,
    unchanged: KeyCondition,
}

/// By what a drain was planned: that is a condition of it.
#[derive(Clone, Copy, Debug)]
pub struct DrainPlanned<'a> {
    /// The drains of that time.
    pub seen: &'a DrainsSeen,
    /// The members that are to take the pairs.
    pub targets: &'a [Incarnation],
}

impl DrainPlanned<'_> {
    /// So often one drain is planned at most: each time after the first because something that its plan goes
    /// by was changed meanwhile.
    pub const PLANS_MAX: u32 = 4;
}

/// The drains. Clones share the coordinator.
#[derive(Clone)]
pub struct Drains {
    coordinator: Arc<dyn Coordinator>,
    /// What the author of changes has seen: nothing is done if it is another one by now.
    seen: Option<u64>,
}

/// The rows as they were read.
struct Found {
    rows: Vec<DrainRow>,
    /// That nobody has started or ended a drain since.
    unchanged: KeyCondition,
    count: u64,
}

impl Found {
    fn of(&self, node: NodeId) -> Option<&DrainRow> {
        self.rows.iter().find(|row| row.node == node)
    }

    /// A change of rows, conditional on all of them.
    fn change(&self) -> Transaction {
        let count = (self.count + 1).to_string();
        if planted(Mutant::LastTwoDrained) {
            return Transaction::new().put(KEY_COUNT, count);
        }
        Transaction::new().when(self.unchanged.clone()).put(KEY_COUNT, count)
    }
}

impl Drains {
    /// The drains that `coordinator` holds.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Drains {
        Drains { coordinator, seen: None }
    }

    /// The same, for changes by somebody who has seen this revision; see [`NodeRefusal::Changed`].
    #[must_use]
    pub fn as_seen(self, revision: u64) -> Drains {
        Drains { seen: Some(revision), ..self }
    }

    /// Another number after each change. What is read after it belongs to it, or is newer.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn revision(&self) -> Result<u64, ClusterError> {
        let count = self.coordinator.read(KEY_COUNT)?;
        count.map_or(Ok(0), |entry| parse("the count of drains", &entry.value))
    }

    fn check_seen(&self, found: &Found) -> Result<(), ClusterError> {
        match self.seen {
            Some(seen) if seen != found.count && !planted(Mutant::DrainsUnseen) => {
                Err(NodeRefusal::Changed.into())
            }
            _ => Ok(()),
        }
    }

    /// All rows, by node.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn list(&self) -> Result<Vec<DrainRow>, ClusterError> {
        let listing = self.coordinator.list(KEY_DRAINS)?;
        Ok(readable("a drain", &listing.entries).collect())
    }

    /// Every row. What is decided from them goes by all: a row that does not read may be of any node.
    fn rows(&self) -> Result<Vec<DrainRow>, ClusterError> {
        let listing = self.coordinator.list(KEY_DRAINS)?;
        listing.entries.iter().map(|entry| parse("a drain", &entry.value)).collect()
    }

    fn find(&self) -> Result<Found, ClusterError> {
        // The count first: a change that comes after it is refused.
        let count = self.coordinator.read(KEY_COUNT)?;
        let key = KEY_COUNT.to_owned();
        let unchanged = match &count {
            Some(entry) => KeyCondition::Revision { key, revision: entry.revision },
            None => KeyCondition::Absent { key },
        };
        let count = count.map_or(Ok(0), |entry| parse("the count of drains", &entry.value))?;
        Ok(Found { rows: self.rows()?, unchanged, count })
    }

    /// The rows to plan a drain from: members, pairs and their figures are read after them.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn seen(&self) -> Result<DrainsSeen, ClusterError> {
        self.find().map(|Found { rows, unchanged, count }| DrainsSeen { rows, revision: count, unchanged })
    }

    /// What [`Drains::begin`] would refuse.
    ///
    /// # Errors
    /// As there.
    pub fn check(&self, nodes: &[NodeId]) -> Result<(), ClusterError> {
        self.check_found(&self.find()?, nodes)
    }

    fn check_found(&self, found: &Found, nodes: &[NodeId]) -> Result<(), ClusterError> {
        if nodes.len() > DRAINS_AT_ONCE {
            return Err(NodeRefusal::TooMany.into());
        }
        let members = Members::new(self.coordinator.clone()).list()?;
        for &node in nodes {
            match found.of(node) {
                Some(row) if row.removed => {
                    return Err(NodeRefusal::Removed { node, who: row.who.clone() }.into());
                }
                Some(_) => {}
                None if !members.iter().any(|member| member.node == node) => {
                    self.check_reads(node)?;
                    return Err(NodeRefusal::NotMember { node }.into());
                }
                None => {}
            }
        }
        let stays = |member: &MemberRow| !nodes.contains(&member.node) && found.of(member.node).is_none();
        if !members.iter().any(stays) {
            return Err(NodeRefusal::LastNode.into());
        }
        Ok(())
    }

    /// Wants these nodes emptied, all or none; whoever drains already stays as it is. Where all of them do,
    /// that is what was wanted, whatever the author has seen.
    ///
    /// # Errors
    /// [`NodeRefusal`].
    pub fn begin(&self, nodes: &[NodeId], author: &DrainAuthor<'_>) -> Result<Vec<DrainRow>, ClusterError> {
        self.begin_if(nodes, author, None)
    }

    /// The same, if all is still so that it was planned by. Two drains for each of which the others have
    /// room may not have it for both: of two that were planned from the same rows one is started.
    ///
    /// # Errors
    /// As there; [`NodeRefusal::Changed`].
    pub fn begin_as_seen(
        &self,
        nodes: &[NodeId],
        author: &DrainAuthor<'_>,
        planned: &DrainPlanned<'_>,
    ) -> Result<Vec<DrainRow>, ClusterError> {
        self.begin_if(nodes, author, Some(planned).filter(|_| !planted(Mutant::DrainPlanUnasked)))
    }

    fn begin_if(
        &self,
        nodes: &[NodeId],
        author: &DrainAuthor<'_>,
        planned: Option<&DrainPlanned<'_>>,
    ) -> Result<Vec<DrainRow>, ClusterError> {
        Attempts::of(|attempts| self.begin_in(attempts, nodes, author, planned))
    }

    fn begin_in(
        &self,
        attempts: &mut Attempts,
        nodes: &[NodeId],
        author: &DrainAuthor<'_>,
        planned: Option<&DrainPlanned<'_>>,
    ) -> Result<Vec<DrainRow>, ClusterError> {
        while attempts.left() {
            let found = self.find()?;
            if !nodes.iter().all(|node| found.of(*node).is_some_and(|row| !row.removed)) {
                self.check_seen(&found)?;
            }
            self.check_found(&found, nodes)?;
            let mut change = found.change();
            let mut rows: Vec<DrainRow> = Vec::new();
            for &node in nodes {
                let known = found.of(node).cloned();
                if rows.iter().any(|row| row.node == node) {
                    continue;
                }
                let row = known.clone().unwrap_or_else(|| DrainRow::new(node, author, false));
                if known.is_none() {
                    change = change.put(DrainRow::key(node), text(&row));
                }
                rows.push(row);
            }
            if rows.iter().all(|row| found.of(row.node).is_some()) {
                return Ok(rows); // also an earlier try, whose answer was lost
            }
            if let Some(planned) = planned {
                if attempts.were_outrun() || planned.seen.unchanged != found.unchanged {
                    return Err(NodeRefusal::Changed.into());
                }
                let targets = planned.targets.iter().take(TARGETS_ASKED);
                let live = targets.map(|lease| KeyCondition::LeaseAlive { lease: *lease });
                change = live.fold(change, Transaction::when);
            }
            if self.apply(change, attempts)? {
                return Ok(rows);
            }
        }
        Err(attempts.given_up("the drains"))
    }

    /// Wants these nodes emptied no more, all or none; of removed ones, that they may join again. Those of
    /// them that have never gone have joined: that is noted again.
    ///
    /// # Errors
    /// [`NodeRefusal::NotDraining`], [`NodeRefusal::Changed`].
    pub fn end(&self, nodes: &[NodeId]) -> Result<Vec<DrainRow>, ClusterError> {
        Attempts::of(|attempts| self.end_in(attempts, nodes))
    }

    fn end_in(&self, attempts: &mut Attempts, nodes: &[NodeId]) -> Result<Vec<DrainRow>, ClusterError> {
        let mut tried = None;
        while attempts.left() {
            let found = self.find()?;
            let rows: Vec<DrainRow> = nodes.iter().filter_map(|node| found.of(*node).cloned()).collect();
            if rows.is_empty()
                && let Some(tried) = tried
            {
                return Ok(tried); // the earlier try, whose answer was lost
            }
            self.check_seen(&found)?;
            if let Some(&node) = nodes.iter().find(|node| found.of(**node).is_none()) {
                return Err(NodeRefusal::NotDraining { node }.into());
            }
            let mut change =
                rows.iter().fold(found.change(), |change, row| change.delete(DrainRow::key(row.node)));
            let is_removed = |node: NodeId| rows.iter().any(|row| row.removed && row.node == node);
            if rows.iter().any(|row| row.removed) {
                let members = Members::new(self.coordinator.clone()).list()?;
                for member in MemberRow::present_rows(&members).filter(|member| is_removed(member.node)) {
                    let joined = JoinedRow { node: member.node, incarnation: member.incarnation };
                    change = change.put(JoinedRow::key(member.node), text(&joined));
                }
            }
            if self.apply(change, attempts)? {
                return Ok(rows);
            }
            tried = Some(rows);
        }
        Err(attempts.given_up("the drains"))
    }

    /// What [`Drains::end`] would refuse.
    ///
    /// # Errors
    /// As there.
    pub fn check_end(&self, nodes: &[NodeId]) -> Result<(), ClusterError> {
        let found = self.find()?;
        let awake = nodes.iter().find(|node| found.of(**node).is_none());
        awake.map_or(Ok(()), |&node| Err(NodeRefusal::NotDraining { node }.into()))
    }

    /// Removes a node for good: one that has no pairs, and that either does not run or drains. It may not
    /// join any more, and nobody expects it back: that it has joined is forgotten.
    ///
    /// # Errors
    /// [`NodeRefusal::OwnsPairs`], [`NodeRefusal::Runs`], [`NodeRefusal::Unreadable`];
    /// [`NodeRefusal::Changed`].
    pub fn remove(&self, node: NodeId, author: &DrainAuthor<'_>) -> Result<DrainRow, ClusterError> {
        Attempts::of(|attempts| self.remove_in(attempts, node, author))
    }

    fn remove_in(
        &self,
        attempts: &mut Attempts,
        node: NodeId,
        author: &DrainAuthor<'_>,
    ) -> Result<DrainRow, ClusterError> {
        while attempts.left() {
            let found = self.find()?;
            if let Some(row) = found.of(node).filter(|row| row.removed) {
                return Ok(row.clone());
            }
            self.check_seen(&found)?;
            let member = self.check_removal(&found, node)?;
            let row = DrainRow::new(node, author, true);
            let change = found.change().put(DrainRow::key(node), text(&row));
            let mut change = change.delete(JoinedRow::key(node));
            if member.is_none() {
                // One that joins meanwhile has a seat.
                change = change.when(KeyCondition::Absent { key: NodeSeat::key(node) });
            }
            if self.apply(change, attempts)? {
                return Ok(row);
            }
        }
        Err(attempts.given_up("the drains"))
    }

    /// What [`Drains::remove`] would refuse.
    ///
    /// # Errors
    /// As there.
    pub fn check_remove(&self, node: NodeId) -> Result<(), ClusterError> {
        self.check_removal(&self.find()?, node).map(drop)
    }

    /// The member's row, if it runs.
    fn check_removal(&self, found: &Found, node: NodeId) -> Result<Option<MemberRow>, ClusterError> {
        let members = Members::new(self.coordinator.clone()).list()?;
        let member = members.iter().find(|member| member.node == node);
        match member {
            Some(_) if found.of(node).is_none() => return Err(NodeRefusal::Runs { node }.into()),
            Some(_) => {}
            None => self.check_reads(node)?,
        }
        // Moves first: of a pair that comes meanwhile, the move is seen, or the pair's row.
        let moves = Moves::new(self.coordinator.clone()).list()?;
        let (pairs, _) = Table::new(self.coordinator.clone()).pairs()?;
        // Also those that it gave up in order, which wait for it, and those that are on their way there.
        let lives = |of: Incarnation| members.iter().any(|member| member.incarnation == of);
        let pairs = pairs_left(node, &pairs, &moves, lives);
        if pairs > 0 {
            return Err(NodeRefusal::OwnsPairs { node, pairs }.into());
        }
        Ok(member.cloned())
    }

    /// Refuses a node that has its seat, and so runs, and whose row of the members does not read.
    fn check_reads(&self, node: NodeId) -> Result<(), ClusterError> {
        let Some(entry) = self.coordinator.read(&NodeSeat::key(node))? else { return Ok(()) };
        let seat: NodeSeat = parse("a node's seat", &entry.value)?;
        match Members::new(self.coordinator.clone()).is_unreadable(seat.incarnation)? {
            true => Err(NodeRefusal::Unreadable { node }.into()),
            false => Ok(()),
        }
    }

    /// Notes what has kept a node from being emptied for a while; none: nothing does any more. Nothing is
    /// done if the node does not drain.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn note_stall(&self, node: NodeId, stall: Option<&str>) -> Result<(), ClusterError> {
        let key = DrainRow::key(node);
        let mut attempts = Attempts::default();
        while attempts.left() {
            let Some(entry) = self.coordinator.read(&key)? else { return Ok(()) };
            let row: DrainRow = parse("a drain", &entry.value)?;
            if row.stall.as_deref() == stall {
                return Ok(());
            }
            let row = DrainRow { stall: stall.map(str::to_owned), ..row };
            let change = Transaction::new()
                .when(KeyCondition::Revision { key: key.clone(), revision: entry.revision })
                .put(&key, text(&row));
            if self.apply(change, &mut attempts)? {
                return Ok(());
            }
        }
        Err(attempts.given_up("a drain"))
    }

    /// Whether it is done for sure. Else: look again.
    fn apply(&self, change: Transaction, attempts: &mut Attempts) -> Result<bool, ClusterError> {
        match self.coordinator.transact(change) {
            Ok(TransactionOutcome::Applied { .. }) => return Ok(true),
            Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
            Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
            Err(error) => return Err(error),
        }
        Ok(false)
    }
}
