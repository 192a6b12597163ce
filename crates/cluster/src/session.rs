//! Client sessions (RIFL, SOSP 2015; `docs/design/log.md`): opened and ended here, their ids never
//! reused.
//!
//! A pair keeps what a session's writes ended as until the session's end is recorded here. So an id is never
//! given twice, by a table neither that was lost nor that was restored from a backup:
//!
//! 1. a client opens session 105; its writes and what they ended as are in the pairs' logs;
//! 2. the table is restored to when session 100 was the next one, and gives 105 to another client;
//! 3. were that the same id, the second client's write with a number of the first one's would be answered
//!    with what that ended as, and not be carried out.
//!
//! An id's lower half counts. Its upper half follows from the cluster's random generation, which a new table
//! draws, and from the keeper's incarnation: no process outlives a restored table, and what comes after it
//! has other leases than those that were given since the backup. On etcd each process sees to the former by
//! itself; a folder of Cell's own coordinator has to be restored while no node runs (`docs/HOSTS.md`).

use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Incarnation, SessionId};
use serde::{Deserialize, Serialize};

use crate::attempts::Attempts;
use crate::coordinator::{Coordinator, parse, readable, text};
use crate::error::ClusterError;
use crate::number;
use crate::request::{
    KeyCondition, KeyValue, Revision, TRANSACTION_STEPS_MAX, Transaction, TransactionOutcome,
};

/// The lower half of the next session's id.
const KEY_SESSION_NEXT: &str = "counter/session";
/// Most sessions that one transaction opens: lease and counter are conditions of it, and each session one.
const OPENED_MAX: usize = TRANSACTION_STEPS_MAX - 2;
/// Under which the open sessions lie.
pub(crate) const KEY_SESSIONS: &str = "session/";
/// What a row of one is, in words.
pub(crate) const WHAT: &str = "a session";

/// An open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    /// Its id.
    #[serde(with = "number")]
    pub session: SessionId,
    /// The incarnation that speaks for it, and ends it when its client has gone. When that incarnation has
    /// ended and the client comes to another node, that one adopts the session. Zero, which is no
    /// incarnation: the row does not read.
    #[serde(with = "number")]
    pub keeper: Incarnation,
}

impl SessionRow {
    /// Of a session whose row does not read: it is open, and nobody knows who speaks for it.
    fn unreadable(session: SessionId) -> SessionRow {
        SessionRow { session, keeper: Incarnation(0) }
    }

    /// Whether who speaks for it is known.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.keeper != Incarnation(0)
    }
}

/// The sessions. Clones share the coordinator.
#[derive(Clone)]
pub struct Sessions {
    coordinator: Arc<dyn Coordinator>,
}

impl Sessions {
    /// The sessions that `coordinator` holds.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Sessions {
        Sessions { coordinator }
    }

    /// Opens one session.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`], [`ClusterError::IdsUsedUp`].
    pub fn open(&self, keeper: Incarnation) -> Result<SessionId, ClusterError> {
        let opened = self.open_many(keeper, 1)?;
        opened.first().copied().ok_or(ClusterError::Answer)
    }

    /// Opens up to `count` sessions in one transaction, at most as many as fit: clients that come together
    /// cost one write. After a lost answer new ids are taken; sessions that were opened without an answer are
    /// ended when their keeper has ended, see [`Sessions::orphans`].
    ///
    /// # Errors
    /// As [`Sessions::open`]; [`ClusterError::CounterWentBack`] if a session of the next ids is open. While
    /// the coordinator's disk is full no session is opened ([`ClusterError::is_refused_for_room`]).
    pub fn open_many(&self, keeper: Incarnation, count: usize) -> Result<Vec<SessionId>, ClusterError> {
        let generation = self.coordinator.generation()?;
        let count = u32::try_from(count.clamp(1, OPENED_MAX)).unwrap_or(1);
        let mut attempts = Attempts::default();
        while attempts.left() {
            let counter = self.coordinator.read(KEY_SESSION_NEXT)?;
            let (first, unchanged) = match &counter {
                Some(KeyValue { key, value, revision, .. }) => {
                    let unchanged = KeyCondition::Revision { key: key.clone(), revision: *revision };
                    (parse::<u32>("the next session's id", value)?, unchanged)
                }
                None => (1, KeyCondition::Absent { key: KEY_SESSION_NEXT.to_owned() }),
            };
            let next = first.checked_add(count).ok_or(ClusterError::IdsUsedUp { what: "sessions" })?;
            let mut open = Transaction::new()
                .dispensable()
                .when(KeyCondition::LeaseAlive { lease: keeper })
                .when(unchanged)
                .put(KEY_SESSION_NEXT, next.to_string());
            let ids: Vec<_> = (first..next).map(|low| session_id(generation, keeper, low)).collect();
            for session in &ids {
                open = open
                    .when(KeyCondition::Absent { key: session_key(*session) })
                    .put(session_key(*session), text(&SessionRow { session: *session, keeper }));
            }
            match self.coordinator.transact(open) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(ids),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: keeper });
                }
                Ok(TransactionOutcome::Refused { condition: 1 }) => attempts.outrun(),
                Ok(TransactionOutcome::Refused { .. }) => {
                    return Err(ClusterError::CounterWentBack { what: "session" });
                }
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("the next session's id"))
    }

    /// Records a session's end, for good. Once this returns, what pairs keep of it can be dropped. Ending it
    /// again is no error.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn end(&self, session: SessionId) -> Result<(), ClusterError> {
        self.coordinator.transact(Transaction::new().delete(session_key(session))).map(|_| ())
    }

    /// Records the end of a session that its client has left, if nobody else speaks for it: `keeper` does, or
    /// whoever did has ended. Whether it is over. One whose row does not read goes on, and `keeper` speaks
    /// for it: whoever else uses it does so again before the next try.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn end_idle(&self, session: SessionId, keeper: Incarnation) -> Result<bool, ClusterError> {
        let key = session_key(session);
        let Some(entry) = self.coordinator.read(&key)? else { return Ok(true) };
        let Some(row) = read_row(&entry) else {
            self.adopt(session, keeper)?;
            return Ok(false);
        };
        let mut end =
            Transaction::new().when(KeyCondition::Revision { key: key.clone(), revision: entry.revision });
        if row.keeper != keeper {
            end = end.when(KeyCondition::LeaseEnded { lease: row.keeper });
        }
        Ok(matches!(self.coordinator.transact(end.delete(key))?, TransactionOutcome::Applied { .. }))
    }

    /// Whether a session is open. An id that was never given out is not, and neither is an ended one.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn exists(&self, session: SessionId) -> Result<bool, ClusterError> {
        Ok(self.coordinator.read(&session_key(session))?.is_some())
    }

    /// Makes `keeper` speak for an open session, also for one whose row does not read.
    ///
    /// # Errors
    /// [`ClusterError::SessionUnknown`] if it has ended: it is not opened again;
    /// [`ClusterError::LeaseEnded`].
    pub fn adopt(&self, session: SessionId, keeper: Incarnation) -> Result<(), ClusterError> {
        let mut attempts = Attempts::default();
        while attempts.left() {
            let found = self.coordinator.read(&session_key(session))?;
            let entry = found.ok_or(ClusterError::SessionUnknown { session })?;
            let row = SessionRow { session, keeper };
            if read_row(&entry) == Some(row) {
                return Ok(());
            }
            let adopt = Transaction::new()
                .when(KeyCondition::LeaseAlive { lease: keeper })
                .when(KeyCondition::Revision { key: entry.key, revision: entry.revision })
                .put(session_key(session), text(&row));
            match self.coordinator.transact(adopt) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(()),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: keeper });
                }
                Ok(TransactionOutcome::Refused { .. }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("a session"))
    }

    /// Every open session, by id, and the revision from which to ask for ended ones. A new owner of a pair
    /// reads this after its claim and before its first write.
    ///
    /// A session is open as long as its row is there, whether or not that reads: its key says whose it is.
    /// Who took it for ended would forget its results, and carry its repeats out a second time.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn open_sessions(&self) -> Result<(Vec<SessionRow>, Revision), ClusterError> {
        let listing = self.coordinator.list(KEY_SESSIONS)?;
        let rows = listing.entries.iter().filter_map(|entry| {
            let key = parse_key(&entry.key).filter(|_| !planted(Mutant::UnreadableSessionEnded));
            read_row(entry).or_else(|| key.map(SessionRow::unreadable))
        });
        Ok((rows.collect(), listing.revision))
    }

    /// Open sessions whose keepers are known and have ended. Whoever finds them waits as long as clients may
    /// take to come back, looks again, and ends those that nobody adopted.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn orphans(&self) -> Result<Vec<SessionRow>, ClusterError> {
        let (mut rows, _) = self.open_sessions()?;
        rows.retain(SessionRow::is_readable);
        let mut keepers: Vec<_> = rows.iter().map(|row| row.keeper).collect();
        keepers.sort_unstable();
        keepers.dedup();
        let mut gone = Vec::new();
        for keeper in keepers {
            if self.coordinator.remaining_ns(keeper)?.is_none() {
                gone.push(keeper);
            }
        }
        Ok(rows.into_iter().filter(|row| gone.contains(&row.keeper)).collect())
    }
}

fn session_id(generation: u32, keeper: Incarnation, low: u32) -> SessionId {
    // An odd factor: incarnations that are near one another are apart in the upper half.
    let spread = keeper.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let of_keeper = if planted(Mutant::SessionByCounter) { 0 } else { spread };
    SessionId(((u64::from(generation) ^ of_keeper) << 32) | u64::from(low))
}

pub(crate) fn session_key(session: SessionId) -> String {
    format!("{KEY_SESSIONS}{:016x}", session.0)
}

/// A session's row, if it reads and lies where it belongs.
fn read_row(entry: &KeyValue) -> Option<SessionRow> {
    let row = readable::<SessionRow>(WHAT, std::slice::from_ref(entry)).next();
    row.filter(|row| parse_key(&entry.key) == Some(row.session))
}

pub(crate) fn parse_key(key: &str) -> Option<SessionId> {
    let digits = key.strip_prefix(KEY_SESSIONS)?;
    u64::from_str_radix(digits, 16).ok().map(SessionId)
}
