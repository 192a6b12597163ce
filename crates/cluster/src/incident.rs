//! Incidents: what becomes of the pairs of an incarnation that has died. One survivor claims the incident
//! and writes a plan; every survivor notes what became of its share. The rows decide nothing about who owns
//! a pair: claims of pairs do ([`crate::Table::claim`]). They keep the survivors out of each other's way,
//! and tell people what happened when.
//!
//! Times are milliseconds of the writer's CLOCK_BOOTTIME.

use std::sync::Arc;

use cell_terms::{Incarnation, NodeId, PairId};
use serde::{Deserialize, Serialize};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, parse, text};
use crate::error::ClusterError;
use crate::number;
use crate::request::{Condition, KeyValue, Transaction, TransactionOutcome};

/// Under which the incidents lie.
pub(crate) const KEY_INCIDENTS: &str = "incident/";
/// Incidents that are kept once they are over.
const KEPT_MAX: usize = 32;

/// An incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentRow {
    /// Who died; zero: nobody's pairs, which stayed unclaimed.
    #[serde(with = "number")]
    pub dead: Incarnation,
    /// The dead one's node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Who plans.
    #[serde(with = "number")]
    pub claimed_by: Incarnation,
    /// The last look at which the dead one's lease still lived; it has ended since. Zero: not seen.
    pub lease_seen_ms: u64,
    /// When the claimer saw that the lease had ended, or that the process was gone.
    pub detected_ms: u64,
    /// When it was claimed.
    pub claimed_ms: u64,
    /// When every pair had an owner that serves it, or was reported; zero: not yet.
    pub over_ms: u64,
    /// The shares.
    pub plan: Vec<ShareRow>,
}

/// One pair's part of an incident.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRow {
    /// The pair.
    #[serde(with = "number")]
    pub pair: PairId,
    /// Who is to take it over; none while nobody has room for it.
    #[serde(with = "number::optional")]
    pub survivor: Option<Incarnation>,
    /// Bytes to replay, as the plan found them.
    pub bytes: u64,
    /// Those that had no room for it.
    #[serde(with = "number::list")]
    pub declined: Vec<Incarnation>,
    /// What became of it.
    #[serde(default)]
    pub times: ShareTimes,
}

/// When a pair's takeover came how far; zero: not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareTimes {
    /// The epoch was raised.
    pub claimed_ms: u64,
    /// The cut was recorded.
    pub cut_ms: u64,
    /// Everything up to the cut was replayed and verified.
    pub replayed_ms: u64,
    /// The earlier owner's trust had run out and the pair was published.
    pub serving_ms: u64,
    /// Bytes of image and logs that were read.
    pub replayed_bytes: u64,
    /// Its takeover was refused: the pair's row says why.
    #[serde(default)]
    pub refused_ms: u64,
}

/// What is known of an incident when it is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewIncident {
    /// Who died; zero: nobody's pairs.
    pub dead: Incarnation,
    /// Its node.
    pub node: NodeId,
    /// See [`IncidentRow::lease_seen_ms`].
    pub lease_seen_ms: u64,
    /// See [`IncidentRow::detected_ms`].
    pub detected_ms: u64,
    /// The process is known to be gone, so that its lease need not have ended: the claimer holds its lock.
    pub host_lock: bool,
}

impl IncidentRow {
    /// The row's key.
    pub(crate) fn key(dead: Incarnation) -> String {
        format!("{KEY_INCIDENTS}{:016x}", dead.0)
    }

    /// A pair's share.
    #[must_use]
    pub fn share(&self, pair: PairId) -> Option<&ShareRow> {
        self.plan.iter().find(|share| share.pair == pair)
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over_ms > 0
    }
}

/// The incidents. Clones share the coordinator.
#[derive(Clone)]
pub struct Incidents {
    coordinator: Arc<dyn Coordinator>,
}

impl Incidents {
    /// The incidents that `coordinator` holds.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Incidents {
        Incidents { coordinator }
    }

    /// Every incident that is kept.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn list(&self) -> Result<Vec<IncidentRow>, ClusterError> {
        let listing = self.coordinator.list(KEY_INCIDENTS)?;
        listing.entries.iter().map(|entry| parse("an incident", &entry.value)).collect()
    }

    /// Claims an incident that nobody has, whose claimer has died too, or that is over and begins again. Who
    /// takes one up keeps its shares. Whether the caller has it now.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of the caller.
    pub fn claim(&self, new: &NewIncident, claimer: Incarnation, now_ms: u64) -> Result<bool, ClusterError> {
        let key = IncidentRow::key(new.dead);
        let mut attempts = Attempts::default();
        while attempts.left() {
            let found = self.read(&key)?;
            let mut transaction = Transaction::new().when(Condition::LeaseAlive { lease: claimer });
            if !new.host_lock && new.dead.0 > 0 {
                transaction = transaction.when(Condition::LeaseEnded { lease: new.dead });
            }
            let row = match &found {
                Some((row, _)) if !row.is_over() && row.claimed_by == claimer => return Ok(true),
                Some((row, entry)) => {
                    if !row.is_over() {
                        transaction = transaction.when(Condition::LeaseEnded { lease: row.claimed_by });
                    }
                    let (key, revision) = (key.clone(), entry.revision);
                    transaction = transaction.when(Condition::Revision { key, revision });
                    let again = first_row(new, claimer, now_ms);
                    if row.is_over() { again } else { IncidentRow { claimed_by: claimer, ..row.clone() } }
                }
                None => {
                    transaction = transaction.when(Condition::Absent { key: key.clone() });
                    first_row(new, claimer, now_ms)
                }
            };
            match self.coordinator.transact(transaction.put(&key, text(&row))) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(true),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: claimer });
                }
                Ok(TransactionOutcome::Refused { .. }) => return Ok(false), // others have it, or nobody died
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unheard(),
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "an incident" })
    }

    /// Changes an incident's row: its claimer the plan, a survivor its share. None: there is no such
    /// incident any more.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of the writer.
    pub fn change(
        &self,
        dead: Incarnation,
        writer: Incarnation,
        edit: impl Fn(&mut IncidentRow),
    ) -> Result<Option<IncidentRow>, ClusterError> {
        let key = IncidentRow::key(dead);
        let mut attempts = Attempts::default();
        while attempts.left() {
            let Some((row, entry)) = self.read(&key)? else { return Ok(None) };
            let mut changed = row.clone();
            edit(&mut changed);
            if changed == row {
                return Ok(Some(row));
            }
            let transaction = Transaction::new()
                .when(Condition::LeaseAlive { lease: writer })
                .when(Condition::Revision { key: key.clone(), revision: entry.revision })
                .put(&key, text(&changed));
            match self.coordinator.transact(transaction) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(Some(changed)),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: writer });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(_)) => attempts.unheard(),
                Err(error) => return Err(error),
            }
        }
        Err(ClusterError::Contended { what: "an incident" })
    }

    /// Forgets the oldest incidents that are over, but for the last ones.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn forget_old(&self, writer: Incarnation) -> Result<(), ClusterError> {
        let mut over: Vec<_> = self.list()?.into_iter().filter(IncidentRow::is_over).collect();
        over.sort_by_key(|row| row.over_ms);
        let old = over.len().saturating_sub(KEPT_MAX);
        for row in &over[..old] {
            let forget = Transaction::new()
                .when(Condition::LeaseAlive { lease: writer })
                .when(Condition::Value { key: IncidentRow::key(row.dead), value: text(row) })
                .delete(IncidentRow::key(row.dead));
            self.coordinator.transact(forget)?;
        }
        Ok(())
    }

    fn read(&self, key: &str) -> Result<Option<(IncidentRow, KeyValue)>, ClusterError> {
        let Some(entry) = self.coordinator.read(key)? else { return Ok(None) };
        Ok(Some((parse("an incident", &entry.value)?, entry)))
    }
}

fn first_row(new: &NewIncident, claimer: Incarnation, now_ms: u64) -> IncidentRow {
    IncidentRow {
        dead: new.dead,
        node: new.node,
        claimed_by: claimer,
        lease_seen_ms: new.lease_seen_ms,
        detected_ms: new.detected_ms,
        claimed_ms: now_ms,
        over_ms: 0,
        plan: Vec::new(),
    }
}
