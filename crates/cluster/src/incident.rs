//! Incidents: what becomes of the pairs of an incarnation that has died. One survivor claims the incident
//! and writes a plan; every survivor notes what became of its share. The rows decide nothing about who owns
//! a pair: claims of pairs do ([`crate::Table::claim`]). They keep the survivors out of each other's way,
//! and show people what happened when.
//!
//! | key | holds | written by |
//! |---|---|---|
//! | `incident/<dead>` | the incident, without its shares | its claimer |
//! | `incident/<dead>/<pair>` | the share of one pair | the claimer plans it, its survivor notes what became of it |
//!
//! Each share has a row of its own, so that no row and no transaction grows with the pairs of a node. A share
//! is written only while the incident's row is the one that its planner has seen, and removed before it.
//!
//! Pairs that belong to nobody are an incident, too. Each time that pairs are nobody's is one of its own, so
//! that it has its own begin and end. In place of the dead one they have numbers that are no incarnation's:
//! zero, then those from [`NOBODYS`] on.
//!
//! Times are milliseconds of the writer's CLOCK_BOOTTIME, for people: two of them are of one clock only if
//! both writers ran on one host. Revisions say what comes before what.

use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Incarnation, NodeId, PairId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, readable, text};
use crate::error::ClusterError;
use crate::number;
use crate::request::{
    KeyCondition, KeyValue, Revision, TRANSACTION_STEPS_MAX, Transaction, TransactionOutcome,
};

/// Under which the incidents lie.
pub(crate) const KEY_INCIDENTS: &str = "incident/";
/// No incarnation has this number or a higher one: leases are counted from 1.
const NOBODYS: u64 = 1 << 63;
/// Incidents that are kept once they are over.
const KEPT_MAX: usize = 32;
/// Shares that are kept of those. The last one that is over keeps its own, however many they are.
const SHARES_KEPT_MAX: usize = 2048;
/// Shares that one transaction writes or removes: besides them it has a few conditions of its own.
const SHARES_EACH: usize = TRANSACTION_STEPS_MAX / 2;

/// An incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentRow {
    /// Who died, or which of the incidents of nobody's pairs this is: see [`IncidentRow::is_of_nobody`].
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
    /// The shares, by pair. They are rows of their own: the incident's row is stored with none.
    pub plan: Vec<ShareRow>,
}

/// One pair's part of an incident.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRow {
    /// The pair.
    #[serde(with = "number")]
    pub pair: PairId,
    /// Who is to take it over; none while nobody has room for it, or can read it.
    #[serde(with = "number::optional")]
    pub survivor: Option<Incarnation>,
    /// Bytes to replay, as the plan found them.
    pub bytes: u64,
    /// Those that had no room for it, or could not read it.
    #[serde(with = "number::list")]
    pub declined: Vec<Incarnation>,
    /// What became of it.
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
    pub refused_ms: u64,
}

/// What is known of an incident when it is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewIncident {
    /// Who died; of nobody's pairs [`crate::ClusterView::next_of_nobody`].
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
        self.find(pair).ok().map(|at| &self.plan[at])
    }

    /// Takes a share into the plan, in place of what the plan says of that pair.
    pub(crate) fn set_share(&mut self, share: ShareRow) {
        match self.find(share.pair) {
            Ok(at) => self.plan[at] = share,
            Err(at) => self.plan.insert(at, share),
        }
    }

    /// Takes a pair's share out of the plan.
    pub(crate) fn remove_share(&mut self, pair: PairId) {
        if let Ok(at) = self.find(pair) {
            self.plan.remove(at);
        }
    }

    fn find(&self, pair: PairId) -> Result<usize, usize> {
        self.plan.binary_search_by_key(&pair, |share| share.pair)
    }

    /// Whether it is of pairs that belonged to nobody, and not of a dead one's.
    #[must_use]
    pub fn is_of_nobody(&self) -> bool {
        is_nobodys(self.dead)
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over_ms > 0
    }
}

/// Whether this is in place of a dead one, where pairs belong to nobody.
#[must_use]
pub fn is_nobodys(dead: Incarnation) -> bool {
    dead.0 == 0 || dead.0 >= NOBODYS
}

/// In place of a dead one, for nobody's pairs: after the newest of these incidents, by who died.
pub(crate) fn next_of_nobody<'a>(by_dead: impl DoubleEndedIterator<Item = &'a IncidentRow>) -> Incarnation {
    let newest = by_dead.rev().find(|row| row.is_of_nobody());
    Incarnation(newest.map_or(0, |row| row.dead.0.max(NOBODYS) + 1))
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
        Ok(read_all(&self.coordinator.list(KEY_INCIDENTS)?.entries).into_iter().map(|(row, _)| row).collect())
    }

    /// Claims an incident that nobody has, whose claimer has died too, that is over and begins again, or
    /// whose row does not read. Who takes one up keeps its shares. One of nobody's pairs that is over stays
    /// as it is: the next one is another. Whether the caller has it now.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of the caller.
    pub fn claim(&self, new: &NewIncident, claimer: Incarnation, now_ms: u64) -> Result<bool, ClusterError> {
        let key = IncidentRow::key(new.dead);
        let mut attempts = Attempts::default();
        while attempts.left() {
            let found = self.read(&key)?;
            let mut transaction = Transaction::new().when(claimer_lives(claimer));
            if !new.host_lock && !is_nobodys(new.dead) {
                transaction = transaction.when(KeyCondition::LeaseEnded { lease: new.dead });
            }
            let row = match &found {
                Some((Some(row), _)) if !row.is_over() && row.claimed_by == claimer => {
                    // The claim outlasts the claimer's lease and says nothing of that.
                    let remains = self.coordinator.remaining_ns(claimer)?.is_some();
                    let lives = remains || planted(Mutant::ClaimerLeaseUnasked);
                    return if lives { Ok(true) } else { Err(ClusterError::LeaseEnded { lease: claimer }) };
                }
                Some((Some(row), _)) if row.is_over() && row.is_of_nobody() => return Ok(false),
                Some((Some(row), entry)) => {
                    if !row.is_over() {
                        transaction = transaction.when(KeyCondition::LeaseEnded { lease: row.claimed_by });
                    }
                    transaction = transaction.when(unchanged(entry));
                    if row.is_over() {
                        // It begins again, and the shares of before are none of it.
                        match self.remove_shares(new.dead, &transaction) {
                            Ok(None) => {}
                            Ok(Some(0)) => return Err(ClusterError::LeaseEnded { lease: claimer }),
                            Ok(Some(_)) => return Ok(false),
                            Err(ClusterError::OutcomeUnknown(error)) => {
                                attempts.unanswered(&error);
                                continue;
                            }
                            Err(error) => return Err(error),
                        }
                        first_row(new, claimer, now_ms)
                    } else {
                        IncidentRow { claimed_by: claimer, ..row.clone() }
                    }
                }
                // Nobody goes on with one that does not read, and it decides nothing about who owns a pair.
                Some((None, _)) | None => {
                    let absent = || KeyCondition::Absent { key: key.clone() };
                    let as_found = found.as_ref().map_or_else(absent, |(_, entry)| unchanged(entry));
                    transaction = transaction.when(as_found);
                    first_row(new, claimer, now_ms)
                }
            };
            match self.coordinator.transact(transaction.put(&key, text(&row))) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(true),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: claimer });
                }
                Ok(TransactionOutcome::Refused { .. }) => return Ok(false), // others have it, or nobody died
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("an incident"))
    }

    /// Writes shares into the plan of an incident that the writer has claimed, in place of what the plan says
    /// of their pairs. Nothing is done if it is another's by now, or over, or does not read and so has to be
    /// claimed again: the rows say what to do then.
    ///
    /// The shares are written a few at a time. A planner that dies in between leaves a part of its plan, and
    /// whoever takes the incident up plans the rest.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of the writer.
    pub fn plan(
        &self,
        dead: Incarnation,
        writer: Incarnation,
        shares: &[ShareRow],
    ) -> Result<(), ClusterError> {
        let mut left = shares;
        let mut attempts = Attempts::default();
        while attempts.left() {
            let Some((Some(row), entry)) = self.read(&IncidentRow::key(dead))? else { return Ok(()) };
            if row.is_over() || row.claimed_by != writer {
                return Ok(());
            }
            let when =
                Transaction::new().when(KeyCondition::LeaseAlive { lease: writer }).when(unchanged(&entry));
            match self.write_shares(dead, &when, &mut left) {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return Err(ClusterError::LeaseEnded { lease: writer }),
                Ok(Some(_)) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("an incident"))
    }

    /// Writes shares a few at a time, and takes those that are written from `left`. Each is written over what
    /// it was a moment ago: a transaction that comes late does not undo what its survivor has noted since.
    /// The first condition that did not hold, or none.
    fn write_shares(
        &self,
        dead: Incarnation,
        when: &Transaction,
        left: &mut &[ShareRow],
    ) -> Result<Option<usize>, ClusterError> {
        let found = self.shares(dead)?;
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(SHARES_EACH));
            let write = now.iter().fold(when.clone(), |write, share| {
                let key = share_key(dead, share.pair);
                let at = found.binary_search_by(|entry| entry.key.cmp(&key));
                let as_found =
                    at.map_or(KeyCondition::Absent { key: key.clone() }, |at| unchanged(&found[at]));
                write.when(as_found).put(key, text(share))
            });
            if let TransactionOutcome::Refused { condition } = self.coordinator.transact(write)? {
                return Ok(Some(condition));
            }
            *left = later;
        }
        Ok(None)
    }

    /// Notes what became of a pair's share. None: there is no such share any more, or it does not read.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of the writer.
    pub fn note(
        &self,
        dead: Incarnation,
        pair: PairId,
        writer: Incarnation,
        edit: impl Fn(&mut ShareRow),
    ) -> Result<Option<ShareRow>, ClusterError> {
        self.change(&share_key(dead, pair), "a share of an incident", writer, edit)
    }

    /// Notes that nothing is left to do of an incident, if it is still the writer's.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of the writer.
    pub fn close(&self, dead: Incarnation, writer: Incarnation, now_ms: u64) -> Result<(), ClusterError> {
        let closed = self.change(&IncidentRow::key(dead), "an incident", writer, |row: &mut IncidentRow| {
            if row.claimed_by == writer && !row.is_over() {
                row.over_ms = now_ms;
            }
        });
        closed.map(drop)
    }

    /// Changes one row. None: it is not there, or does not read.
    fn change<T>(
        &self,
        key: &str,
        what: &'static str,
        writer: Incarnation,
        edit: impl Fn(&mut T),
    ) -> Result<Option<T>, ClusterError>
    where
        T: Clone + PartialEq + Serialize + DeserializeOwned,
    {
        let mut attempts = Attempts::default();
        while attempts.left() {
            let Some(entry) = self.coordinator.read(key)? else { return Ok(None) };
            let Some(row) = read_row::<T>(what, &entry) else { return Ok(None) };
            let mut changed = row.clone();
            edit(&mut changed);
            if changed == row {
                return Ok(Some(row));
            }
            let transaction = Transaction::new()
                .when(KeyCondition::LeaseAlive { lease: writer })
                .when(unchanged(&entry))
                .put(key, text(&changed));
            match self.coordinator.transact(transaction) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(Some(changed)),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: writer });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up(what))
    }

    /// Forgets the oldest incidents that are over, but for the last ones.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn forget_old(&self, writer: Incarnation) -> Result<(), ClusterError> {
        let entries = self.coordinator.list(KEY_INCIDENTS)?.entries;
        if !may_be_too_many(&entries) {
            return Ok(());
        }
        let mut over = read_all(&entries);
        over.retain(|(row, _)| row.is_over());
        over.sort_by_key(|(_, revision)| std::cmp::Reverse(*revision));
        let mut shares = 0;
        for (kept, (row, revision)) in over.iter().enumerate() {
            shares += row.plan.len();
            if kept < KEPT_MAX && (kept == 0 || shares <= SHARES_KEPT_MAX) {
                continue;
            }
            let key = IncidentRow::key(row.dead);
            let forget = Transaction::new()
                .when(KeyCondition::LeaseAlive { lease: writer })
                .when(KeyCondition::Revision { key: key.clone(), revision: *revision });
            if self.remove_shares(row.dead, &forget)?.is_none() {
                self.coordinator.transact(forget.delete(key))?;
            }
        }
        Ok(())
    }

    /// Removes the shares of an incident, a few at a time, each time under the conditions of `when`: the
    /// first one that did not hold, or none.
    fn remove_shares(&self, dead: Incarnation, when: &Transaction) -> Result<Option<usize>, ClusterError> {
        for some in self.shares(dead)?.chunks(SHARES_EACH) {
            let remove = some.iter().fold(when.clone(), |remove, entry| remove.delete(&entry.key));
            if let TransactionOutcome::Refused { condition } = self.coordinator.transact(remove)? {
                return Ok(Some(condition));
            }
        }
        Ok(None)
    }

    /// The rows of an incident's shares, by key.
    fn shares(&self, dead: Incarnation) -> Result<Vec<KeyValue>, ClusterError> {
        Ok(self.coordinator.list(&format!("{}/", IncidentRow::key(dead)))?.entries)
    }

    /// An incident's row; no incident, if it does not read.
    fn read(&self, key: &str) -> Result<Option<(Option<IncidentRow>, KeyValue)>, ClusterError> {
        let found = self.coordinator.read(key)?;
        Ok(found.map(|entry| (read_row("an incident", &entry), entry)))
    }
}

/// Every incident of these rows that reads, with its shares that do, and the revision of its row.
fn read_all(entries: &[KeyValue]) -> Vec<(IncidentRow, Revision)> {
    let mut incidents: Vec<(IncidentRow, Revision)> = Vec::new();
    // An incident's row comes before those of its shares.
    for entry in entries {
        match (parse_key(&entry.key), incidents.last_mut()) {
            (Some((_, None)), _) => {
                let row = read_row("an incident", entry);
                incidents.extend(row.map(|row| (row, entry.revision)));
            }
            (Some((dead, Some(_))), Some((incident, _))) if incident.dead == dead => {
                let share = read_row("a share of an incident", entry);
                share.into_iter().for_each(|share| incident.set_share(share));
            }
            _ => {} // its incident does not read, or was forgotten between two pages
        }
    }
    incidents
}

/// Whether these rows may be more than are kept. Where they are not, few of them have to be read: of the
/// incidents as many as there are too many, if those are not over. The newest ones are asked first.
fn may_be_too_many(entries: &[KeyValue]) -> bool {
    let keys = || entries.iter().filter_map(|entry| Some((parse_key(&entry.key)?.1, entry)));
    let shares = keys().filter(|(pair, _)| pair.is_some()).count();
    let incidents: Vec<_> = keys().filter(|(pair, _)| pair.is_none()).map(|(_, entry)| entry).collect();
    let surplus = incidents.len().saturating_sub(KEPT_MAX);
    let stays =
        |entry: &&&KeyValue| read_row::<IncidentRow>("an incident", entry).is_none_or(|row| !row.is_over());
    shares > SHARES_KEPT_MAX || incidents.iter().rev().filter(stays).take(surplus).count() < surplus
}

/// A row, if it reads.
fn read_row<T: DeserializeOwned>(what: &'static str, entry: &KeyValue) -> Option<T> {
    readable(what, std::slice::from_ref(entry)).next()
}

/// That the lease has not ended in whose name an incident is claimed.
fn claimer_lives(lease: Incarnation) -> KeyCondition {
    if planted(Mutant::ClaimerLeaseUnasked) {
        return KeyCondition::LeaseEnded { lease: Incarnation(0) }; // there never was one
    }
    KeyCondition::LeaseAlive { lease }
}

/// That a row has not been written since it was read.
fn unchanged(entry: &KeyValue) -> KeyCondition {
    KeyCondition::Revision { key: entry.key.clone(), revision: entry.revision }
}

pub(crate) fn share_key(dead: Incarnation, pair: PairId) -> String {
    format!("{}/{:08}", IncidentRow::key(dead), pair.0)
}

/// Whose incident a row belongs to, and of which pair it is the share; none: it is the incident's own.
pub(crate) fn parse_key(key: &str) -> Option<(Incarnation, Option<PairId>)> {
    let id = key.strip_prefix(KEY_INCIDENTS)?;
    let (dead, pair) = id.split_once('/').map_or((id, None), |(dead, pair)| (dead, Some(pair)));
    let pair = pair.map(|pair| pair.parse().map(PairId)).transpose().ok()?;
    Some((Incarnation(u64::from_str_radix(dead, 16).ok()?), pair))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incident_rows_text_and_keys_are_pinned() {
        let (dead, pair) = (Incarnation(0x7_0000_0001), PairId(3));
        let new = NewIncident { dead, node: NodeId(2), lease_seen_ms: 4, detected_ms: 5, host_lock: false };
        let head = concat!(
            r#"{"dead":30064771073,"node":2,"claimed_by":9,"lease_seen_ms":4,"detected_ms":5,"claimed_ms":6,"#,
            r#""over_ms":0,"plan":[]}"#,
        );
        assert_eq!(text(&first_row(&new, Incarnation(9), 6)), head);
        let times = ShareTimes {
            claimed_ms: 1,
            cut_ms: 2,
            serving_ms: 4,
            replayed_bytes: 5,
            ..ShareTimes::default()
        };
        let share = ShareRow { pair, survivor: Some(Incarnation(9)), bytes: 7, declined: vec![dead], times };
        let share_text = concat!(
            r#"{"pair":3,"survivor":9,"bytes":7,"declined":[30064771073],"times":{"claimed_ms":1,"cut_ms":2,"#,
            r#""replayed_ms":0,"serving_ms":4,"replayed_bytes":5,"refused_ms":0}}"#,
        );
        assert_eq!(text(&share), share_text);
        assert_eq!(IncidentRow::key(dead), "incident/0000000700000001");
        assert_eq!(share_key(dead, pair), "incident/0000000700000001/00000003");
        assert_eq!(parse_key(&share_key(dead, pair)), Some((dead, Some(pair))));
        assert_eq!(parse_key(&IncidentRow::key(dead)), Some((dead, None)));
        for other in ["pair/00000003", "incident/", "incident/x", "incident/7/x"] {
            assert_eq!(parse_key(other), None, "{other}");
        }
    }
}
