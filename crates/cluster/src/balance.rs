//! Who balances, and what each member reports of its pairs (`docs/design/balance.md`).
//!
//! The *balancer's seat* is one row, which hangs on the lease of whoever has it. Each move that the balancer
//! begins writes that row anew, and is conditional on the revision of it from which the move was decided
//! ([`crate::Moves::begin_as`]). So of two moves that were decided from the same rows one is started at most,
//! whether two members take themselves for the balancer, or one does not know what became of its last write.
//!
//! A member's *figures* are one row, which hangs on its lease, too. It has a fixed part and some 80 bytes a
//! pair, for as many pairs as a row takes; those beyond that are in further rows. They are written when
//! something has changed that counts.

use std::sync::Arc;

use cell_terms::{Epoch, Incarnation, NodeId, PairId};
use serde::{Deserialize, Serialize};

use crate::coordinator::{Coordinator, parse, text};
use crate::error::ClusterError;
use crate::move_row::MoveMotive;
use crate::number;
use crate::request::{CoordinatorRefusal, KeyCondition, Revision, Transaction, TransactionOutcome};

/// Under which the rows lie.
pub(crate) const KEY_BALANCE: &str = "balance/";
/// The balancer's seat.
pub(crate) const KEY_SEAT: &str = "balance/seat";
/// Under which the members' figures lie.
const KEY_FIGURES: &str = "balance/figures/";
/// The drill that runs: written by who runs it, and nothing but drains moves pairs meanwhile.
pub const KEY_DRILL: &str = "web/drill";
/// Under which lie what else keeps balance from moving pairs, each under the lease of who wants it.
const KEY_PAUSES: &str = "balance/pause/";
/// Pairs that one row lists: it takes 32 KiB.
const ROW_PAIRS_MAX: usize = 256;
/// Further rows that one transaction writes: it takes 256 KiB.
const ROWS_AT_A_TIME: usize = 6;

/// Who balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancerSeat {
    /// The process.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
    /// Its node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Moves that it has started.
    pub moves: u64,
}

/// What keeps balance from moving pairs; of several the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseCause {
    /// A drill.
    Drill,
    /// A rolling restart.
    RollingRestart,
}

/// What a member does, as it reports itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedState {
    /// It serves.
    #[default]
    Serving,
    /// It serves, but takes no writes.
    ReadOnly,
    /// It is about to leave.
    Stopping,
}

/// How an owner came to a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedArrival {
    /// It took it over.
    TakenOver,
    /// It was made there, for this node if there is one.
    Created(#[serde(with = "number::optional")] Option<NodeId>),
    /// By a move.
    Moved(MoveMotive),
}

/// What keeps a pair where it is, as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedHold {
    /// A split in which it takes part is not over.
    Split,
    /// It is being checked.
    Check,
}

/// What an owner reports of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "PairText", from = "PairText")]
pub struct ReportedPair {
    /// The pair.
    pub pair: PairId,
    /// The epoch in which it is the owner's.
    pub epoch: Epoch,
    /// Bytes of its entries and tree nodes.
    pub bytes: u64,
    /// Memory that its regions and its log take.
    pub memory_bytes: u64,
    /// Nanoseconds a second of the owner's worker, over the window or since the owner has it.
    pub load_ns: u64,
    /// For how long the owner had it when it reported.
    pub held_ms: u64,
    /// How the owner came to it.
    pub arrival: ReportedArrival,
    /// What keeps it there.
    pub hold: Option<ReportedHold>,
}

/// A pair as the row has it: without names, of which there would be eight a pair.
#[derive(Serialize, Deserialize)]
struct PairText(u32, u32, u64, u64, u64, u64, ReportedArrival, Option<ReportedHold>);

impl From<ReportedPair> for PairText {
    fn from(reported: ReportedPair) -> PairText {
        let ReportedPair { pair, epoch, bytes, memory_bytes, load_ns, held_ms, arrival, hold } = reported;
        PairText(pair.0, epoch.0, bytes, memory_bytes, load_ns, held_ms, arrival, hold)
    }
}

impl From<PairText> for ReportedPair {
    fn from(text: PairText) -> ReportedPair {
        let PairText(pair, epoch, bytes, memory_bytes, load_ns, held_ms, arrival, hold) = text;
        let (pair, epoch) = (PairId(pair), Epoch(epoch));
        ReportedPair { pair, epoch, bytes, memory_bytes, load_ns, held_ms, arrival, hold }
    }
}

/// What a member reports of itself and its pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiguresRow {
    /// The process.
    #[serde(with = "number")]
    pub incarnation: Incarnation,
    /// Its node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// What it does.
    pub state: ReportedState,
    /// For how long it had served when it reported.
    pub serving_ms: u64,
    /// Memory that pairs may still take there.
    pub memory_left_bytes: u64,
    /// Puts find no memory there: they wait, or are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes_wait: bool,
    /// The disk under its logs has no room for those of one more pair.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disk_full: bool,
    /// How many pairs it may hold.
    pub pairs_max: u32,
    /// Its meganodes of entries.
    pub meganodes: u64,
    /// Further rows in which there are pairs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_rows: u32,
    /// Its pairs. Of a row that was read, the first of them: see [`crate::BalanceView::reported_pairs`].
    pub pairs: Vec<ReportedPair>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(rows: &u32) -> bool {
    *rows == 0
}

impl FiguresRow {
    fn key(incarnation: Incarnation) -> String {
        format!("{KEY_FIGURES}{:016x}", incarnation.0)
    }

    /// The key of a further row; they count from 1.
    fn further_key(incarnation: Incarnation, row: u32) -> String {
        format!("{}/{row:08}", FiguresRow::key(incarnation))
    }

    /// The row with the first pairs, and those with the others.
    fn divided(&self) -> (FiguresRow, Vec<&[ReportedPair]>) {
        let (first, others) = self.pairs.split_at(self.pairs.len().min(ROW_PAIRS_MAX));
        let further: Vec<&[ReportedPair]> = others.chunks(ROW_PAIRS_MAX).collect();
        let more_rows = u32::try_from(further.len()).unwrap_or(u32::MAX);
        (FiguresRow { more_rows, pairs: first.to_vec(), ..*self }, further)
    }
}

/// Whose figures lie under a key, and in which of its rows: 0 is the first; none if it is another one's.
pub(crate) fn figures_of(key: &str) -> Option<(Incarnation, u32)> {
    let id = key.strip_prefix(KEY_FIGURES)?;
    let (id, row) = match id.split_once('/') {
        Some((id, row)) => (id, row.parse().ok()?),
        None => (id, 0),
    };
    u64::from_str_radix(id, 16).ok().map(|id| (Incarnation(id), row))
}

fn pause_key(lease: Incarnation) -> String {
    format!("{KEY_PAUSES}{:016x}", lease.0)
}

/// By whose lease balance is paused under a key; none if it is another one's.
pub(crate) fn pause_of(key: &str) -> Option<Incarnation> {
    let id = key.strip_prefix(KEY_PAUSES)?;
    u64::from_str_radix(id, 16).ok().map(Incarnation)
}

pub(crate) fn parse_pause(value: &str) -> Result<PauseCause, ClusterError> {
    parse("a pause of balance", value)
}

pub(crate) fn parse_seat(value: &str) -> Result<BalancerSeat, ClusterError> {
    parse("the balancer's seat", value)
}

pub(crate) fn parse_figures(value: &str) -> Result<FiguresRow, ClusterError> {
    parse("a member's figures", value)
}

pub(crate) fn parse_further(value: &str) -> Result<Vec<ReportedPair>, ClusterError> {
    parse("further figures of a member", value)
}

/// A seat as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatSeen {
    /// Who has it.
    pub seat: BalancerSeat,
    /// When it was written last.
    pub revision: Revision,
}

impl SeatSeen {
    /// That nobody has written it since, its holder neither.
    pub(crate) fn unchanged(&self) -> KeyCondition {
        KeyCondition::Revision { key: KEY_SEAT.to_owned(), revision: self.revision }
    }

    /// Adds a move to those that its holder has started.
    pub(crate) fn count_move(&self, transaction: Transaction) -> Transaction {
        let counted = BalancerSeat { moves: self.seat.moves + 1, ..self.seat };
        transaction.put_leased(KEY_SEAT, text(&counted), self.seat.incarnation)
    }
}

/// The balancer's seat and the members' figures. Clones share the coordinator.
#[derive(Clone)]
pub struct Balance {
    coordinator: Arc<dyn Coordinator>,
}

impl Balance {
    /// Those that `coordinator` holds.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Balance {
        Balance { coordinator }
    }

    /// Who balances.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn seat(&self) -> Result<Option<SeatSeen>, ClusterError> {
        let entry = self.coordinator.read(KEY_SEAT)?;
        entry
            .map(|entry| Ok(SeatSeen { seat: parse_seat(&entry.value)?, revision: entry.revision }))
            .transpose()
    }

    /// Takes the seat, if nobody has it. Whether it is free no more the next look shows, whoever has it: of
    /// several that try one wins.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`]; see [`Coordinator::call`].
    pub fn take_seat(&self, incarnation: Incarnation, node: NodeId) -> Result<(), ClusterError> {
        self.take_seat_if(KeyCondition::Absent { key: KEY_SEAT.to_owned() }, incarnation, node)
    }

    /// Takes the seat whose row does not read ([`crate::ClusterView::seat_reads`]), if it still does not. It
    /// may hang on no lease, and would be nobody's for ever.
    ///
    /// # Errors
    /// As of [`Balance::take_seat`].
    pub fn take_unreadable_seat(&self, incarnation: Incarnation, node: NodeId) -> Result<(), ClusterError> {
        let Some(entry) = self.coordinator.read(KEY_SEAT)? else { return Ok(()) };
        if parse_seat(&entry.value).is_ok() {
            return Ok(());
        }
        let as_read = KeyCondition::Revision { key: KEY_SEAT.to_owned(), revision: entry.revision };
        self.take_seat_if(as_read, incarnation, node)
    }

    fn take_seat_if(
        &self,
        is_free: KeyCondition,
        incarnation: Incarnation,
        node: NodeId,
    ) -> Result<(), ClusterError> {
        let seat = BalancerSeat { incarnation, node, moves: 0 };
        let take = Transaction::new()
            .when(KeyCondition::LeaseAlive { lease: incarnation })
            .when(is_free)
            .put_leased(KEY_SEAT, text(&seat), incarnation);
        self.apply(incarnation, take)
    }

    /// Gives the seat up, as it was seen.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn leave_seat(&self, seen: &SeatSeen) -> Result<(), ClusterError> {
        let leave = Transaction::new().when(seen.unchanged()).delete(KEY_SEAT);
        self.coordinator.transact(leave).map(drop)
    }

    /// Reports what a member has. It may be lost: the next one says more. A further row that nobody needs any
    /// more stays until the lease ends, and is not read.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`]; see [`Coordinator::call`].
    pub fn report(&self, row: &FiguresRow) -> Result<(), ClusterError> {
        let lease = row.incarnation;
        let guarded = || Transaction::new().when(KeyCondition::LeaseAlive { lease }).dispensable();
        let (first, further) = row.divided();
        let (mut transaction, mut rows) = (guarded(), 0);
        for (pairs, number) in further.into_iter().zip(1..) {
            transaction = transaction.put_leased(FiguresRow::further_key(lease, number), text(&pairs), lease);
            rows += 1;
            if rows % ROWS_AT_A_TIME == 0 {
                self.apply(lease, std::mem::replace(&mut transaction, guarded()))?;
            }
        }
        // The first row last: it says how many there are.
        self.apply(lease, transaction.put_leased(FiguresRow::key(lease), text(&first), lease))
    }

    /// Keeps balance from moving pairs for as long as `lease` lives, or until [`Balance::resume`].
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`]; see [`Coordinator::call`].
    pub fn pause(&self, lease: Incarnation, cause: PauseCause) -> Result<(), ClusterError> {
        let pause = Transaction::new().when(KeyCondition::LeaseAlive { lease }).put_leased(
            pause_key(lease),
            text(&cause),
            lease,
        );
        self.apply(lease, pause)
    }

    /// Ends the pause of a lease.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn resume(&self, lease: Incarnation) -> Result<(), ClusterError> {
        self.coordinator.transact(Transaction::new().delete(pause_key(lease))).map(drop)
    }

    /// Carries a transaction out whose first condition is that `lease` lives, in one try.
    fn apply(&self, lease: Incarnation, transaction: Transaction) -> Result<(), ClusterError> {
        match self.coordinator.transact(transaction) {
            Ok(TransactionOutcome::Refused { condition: 0 })
            | Err(ClusterError::Refused(CoordinatorRefusal::LeaseEnded { .. })) => {
                Err(ClusterError::LeaseEnded { lease })
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> FiguresRow {
        let reported = ReportedPair {
            pair: PairId(3),
            epoch: Epoch(2),
            bytes: 4,
            memory_bytes: 5,
            load_ns: 6,
            held_ms: 7,
            arrival: ReportedArrival::TakenOver,
            hold: None,
        };
        let made = ReportedPair { arrival: ReportedArrival::Created(Some(NodeId(1))), ..reported };
        let moved = ReportedPair { arrival: ReportedArrival::Moved(MoveMotive::Balance), ..reported };
        let split = ReportedPair {
            arrival: ReportedArrival::Created(None),
            hold: Some(ReportedHold::Split),
            ..reported
        };
        FiguresRow {
            incarnation: Incarnation(9),
            node: NodeId(1),
            state: ReportedState::Serving,
            serving_ms: 8,
            memory_left_bytes: 10,
            writes_wait: false,
            disk_full: false,
            pairs_max: 11,
            meganodes: 12,
            more_rows: 0,
            pairs: vec![reported, made, moved, split],
        }
    }

    #[test]
    fn rows_texts_are_pinned() {
        let expected = concat!(
            r#"{"incarnation":9,"node":1,"state":"serving","serving_ms":8,"memory_left_bytes":10,"#,
            r#""pairs_max":11,"meganodes":12,"pairs":[[3,2,4,5,6,7,"taken_over",null],"#,
            r#"[3,2,4,5,6,7,{"created":1},null],[3,2,4,5,6,7,{"moved":"balance"},null],"#,
            r#"[3,2,4,5,6,7,{"created":null},"split"]]}"#,
        );
        assert_eq!(text(&row()), expected);
        assert_eq!(parse_figures(expected).unwrap(), row());
        let full = FiguresRow { writes_wait: true, disk_full: true, ..row() };
        let words = r#""memory_left_bytes":10,"writes_wait":true,"disk_full":true,"pairs_max":11"#;
        assert!(text(&full).contains(words));
        assert_eq!(parse_figures(&text(&full)).unwrap(), full);
        let seat = BalancerSeat { incarnation: Incarnation(9), node: NodeId(1), moves: 2 };
        let expected = r#"{"incarnation":9,"node":1,"moves":2}"#;
        assert_eq!(text(&seat), expected);
        assert_eq!(parse_seat(expected).unwrap(), seat);
    }

    #[test]
    fn figures_of_more_pairs_than_a_row_takes_are_divided_into_rows_that_fit() {
        let reported = ReportedPair {
            pair: PairId(u32::MAX),
            epoch: Epoch(u32::MAX),
            bytes: 1 << 40,
            memory_bytes: 1 << 40,
            load_ns: 999_999_999,
            held_ms: 1 << 36,
            arrival: ReportedArrival::Created(Some(NodeId(1_023))),
            hold: Some(ReportedHold::Split),
        };
        let full = FiguresRow { pairs: vec![reported; 3 * ROW_PAIRS_MAX + 1], ..row() };
        let (first, further) = full.divided();
        assert_eq!((first.more_rows, first.pairs.len()), (3, ROW_PAIRS_MAX));
        assert_eq!(further.iter().map(|pairs| pairs.len()).collect::<Vec<_>>(), [256, 256, 1]);
        assert!(text(&first).len() <= crate::request::VALUE_BYTES_MAX);
        assert!(text(&further[0]).len() <= crate::request::VALUE_BYTES_MAX);
        let at_once = (ROWS_AT_A_TIME + 1) * crate::request::VALUE_BYTES_MAX;
        assert!(at_once <= crate::request::TRANSACTION_BYTES_MAX);
        assert_eq!(text(&further[2]), text(&[reported]));
        assert_eq!(parse_further(&text(&further[0])).unwrap(), further[0]);
        let lease = Incarnation(77);
        assert_eq!(figures_of(&FiguresRow::key(lease)), Some((lease, 0)));
        assert_eq!(figures_of(&FiguresRow::further_key(lease, 3)), Some((lease, 3)));
        assert_eq!(figures_of(KEY_SEAT), None);
        assert_eq!(pause_of(&pause_key(Incarnation(77))), Some(Incarnation(77)));
        assert_eq!(pause_of(KEY_SEAT), None);
        assert_eq!(text(&PauseCause::RollingRestart), r#""rolling_restart""#);
    }
}
