//! One copy of a pair for a planned move, a step at a time, at a bounded rate; and, once the pair was handed
//! over, the rest of its takeover. A thread of the control side steps it, and so does the simulator.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cell_cluster::{MoveName, PairRow};
use cell_memory::Region;
use cell_recovery::{
    CopyTurn, Environment, PairCopy, Progress, PublishRequest, Recovered, RecoveryError, Takeover, Turn,
};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::text::with_causes;
use cell_terms::{Epoch, Incarnation, NodeId};
use cell_wal::{Errno, LogDevice, WalError};

use super::target::{CopyFailure, CopyState};

/// How often orders are looked for by who is not woken by them ([`CopyOrders::wait`]).
const ORDERS_NS: u64 = 1_000_000;
/// How often a copy that has caught up looks at the log.
const ROUND_NS: u64 = 10_000_000;
/// The longest sleep of a copy that keeps to its rate.
const PACE_MAX_NS: u64 = 50_000_000;
/// A copy that was ready and has not come to the log's end for so long since is ready no more.
const READY_NS: u64 = 1_000_000_000;

/// What the control side says to a copy, and what it hears of it.
#[derive(Debug, Default)]
pub struct CopyOrders {
    orders: Mutex<Orders>,
    /// There is one that the copy has not seen.
    given: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    handed: Option<Box<PairRow>>,
    stop: bool,
    /// When the copy was last ready for the handing, unless it has fallen behind since.
    ready_ns: Option<u64>,
}

impl CopyOrders {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pair was handed over, and this is its row.
    pub(super) fn hand(&self, row: Box<PairRow>) {
        self.lock().handed = Some(row);
        self.given.notify_all();
    }

    /// Nobody wants the copy any more.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.given.notify_all();
    }

    /// Waits for so long, or until there is an order: nobody serves a pair that was handed over, and its copy
    /// does not sleep on for the sake of its rate.
    pub(crate) fn wait(&self, most: Duration) {
        self.wait_from(self.lock(), most);
    }

    /// As [`CopyOrders::wait`]: no order is given before it waits.
    fn wait_from(&self, orders: MutexGuard<'_, Orders>, most: Duration) {
        let has_none = |orders: &mut Orders| orders.handed.is_none() && !orders.stop;
        drop(self.given.wait_timeout_while(orders, most, has_none));
    }

    /// Whether the copy is ready. One that has not come to the log's end for a while, whatever keeps it from
    /// that, lacks nobody knows how much: that would be read after the freeze, while nobody serves the pair.
    fn is_ready(&self, now_ns: u64) -> bool {
        let is_fresh =
            |ready_ns| now_ns.saturating_sub(ready_ns) <= READY_NS || planted(Mutant::ReadyForEver);
        self.lock().ready_ns.is_some_and(is_fresh)
    }

    fn set_ready(&self, ready_ns: Option<u64>) {
        self.lock().ready_ns = ready_ns;
    }
}

/// A copy to be made.
#[derive(Clone, Debug)]
pub struct CopyJob {
    /// Of which move.
    pub name: MoveName,
    /// The pair's row.
    pub row: Box<PairRow>,
    /// For whom.
    pub incarnation: Incarnation,
    /// Its node.
    pub node: NodeId,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// The orders that it gets.
    pub orders: Arc<CopyOrders>,
}

impl CopyJob {
    /// How far it is.
    pub(super) fn state(&self, now_ns: u64) -> CopyState {
        let view = self.progress.view(0);
        CopyState {
            bytes_done: view.bytes_done,
            bytes_total: view.bytes_total,
            checked: view.entries,
            is_ready: self.orders.is_ready(now_ns),
        }
    }
}

enum Stage {
    Copy(Box<PairCopy>),
    Finish(Box<Takeover>),
    Over,
}

/// See the module's text.
pub struct CopyRun {
    job: CopyJob,
    environment: Environment,
    publish: PublishRequest,
    stage: Stage,
    pace: Pace,
    round_due_ns: u64,
}

/// Keeps a copy to its rate. From a change of the rate on the new one counts, for what is read from then on.
#[derive(Debug, Default)]
struct Pace {
    bytes_per_second: u64,
    since_ns: u64,
    since_bytes: u64,
}

impl Pace {
    /// How long to wait, with so many bytes read.
    fn wait_ns(&mut self, bytes_done: u64, now_ns: u64, bytes_per_second: u64) -> u64 {
        if self.bytes_per_second != bytes_per_second {
            *self = Pace { bytes_per_second, since_ns: now_ns, since_bytes: bytes_done };
        }
        if bytes_per_second == 0 {
            return 0;
        }
        let done = u128::from(bytes_done.saturating_sub(self.since_bytes));
        let takes_ns = done * 1_000_000_000 / u128::from(bytes_per_second);
        let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
        takes_ns.saturating_sub(now_ns.saturating_sub(self.since_ns))
    }
}

impl CopyRun {
    /// Begins a copy.
    ///
    /// # Errors
    /// As [`PairCopy::begin`].
    pub fn begin(
        environment: &Environment,
        job: CopyJob,
        publish: PublishRequest,
        now_ns: u64,
    ) -> Result<CopyRun, RecoveryError> {
        let copy = PairCopy::begin(environment, &job.row, job.incarnation, job.node, &job.progress)?;
        Ok(CopyRun {
            job,
            environment: environment.clone(),
            publish,
            stage: Stage::Copy(Box::new(copy)),
            pace: Pace { since_ns: now_ns, ..Pace::default() },
            round_due_ns: 0,
        })
    }

    /// Of which move.
    #[must_use]
    pub fn name(&self) -> MoveName {
        self.job.name
    }

    /// Node and extent region of the copy, once there are some.
    #[must_use]
    pub fn regions(&self) -> Option<[Region; 2]> {
        match &self.stage {
            Stage::Copy(copy) => copy.regions(),
            Stage::Finish(_) | Stage::Over => None,
        }
    }

    /// Does the next piece of work, and no more than `bytes_per_second` in the long run; zero: as fast as may
    /// be. [`Turn::Done`] once the pair is published.
    ///
    /// # Errors
    /// Nobody wants the copy any more, or it is of no use.
    pub fn step(
        &mut self,
        device: &mut dyn LogDevice,
        now_ns: u64,
        bytes_per_second: u64,
    ) -> Result<Turn, RecoveryError> {
        let handed = {
            let mut orders = self.job.orders.lock();
            if orders.stop {
                return Err(RecoveryError::GivenUp);
            }
            orders.handed.take()
        };
        if let Some(row) = handed {
            return self.hand(&row);
        }
        match &mut self.stage {
            Stage::Copy(_) => self.copy(now_ns, bytes_per_second),
            Stage::Finish(takeover) => takeover.step(device),
            Stage::Over => Err(RecoveryError::GivenUp),
        }
    }

    /// Reads on, if the rate permits it and something may have come.
    fn copy(&mut self, now_ns: u64, bytes_per_second: u64) -> Result<Turn, RecoveryError> {
        let Stage::Copy(copy) = &mut self.stage else { return Err(RecoveryError::GivenUp) };
        let CopyJob { orders, progress, .. } = &self.job;
        let wait_ns = self.pace.wait_ns(progress.view(0).bytes_done, now_ns, bytes_per_second);
        let is_due = wait_ns == 0 && now_ns >= self.round_due_ns;
        let turn = if is_due { Some(copy.step()?) } else { None };
        if let Some(CopyTurn::CaughtUp { ready }) = turn {
            self.round_due_ns = now_ns + ROUND_NS;
            let stays_ready = orders.is_ready(now_ns) && !copy.is_behind();
            orders.set_ready((ready || stays_ready).then_some(now_ns));
        } else if copy.is_behind() {
            orders.set_ready(None);
        }
        Ok(match turn {
            Some(CopyTurn::More) => Turn::More,
            Some(CopyTurn::CaughtUp { .. }) => Turn::Wait(ORDERS_NS),
            None => Turn::Wait(wait_ns.clamp(ORDERS_NS, PACE_MAX_NS)),
        })
    }

    fn hand(&mut self, row: &PairRow) -> Result<Turn, RecoveryError> {
        let Stage::Copy(copy) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Err(RecoveryError::GivenUp);
        };
        let restore = copy.handed(row)?;
        let publish = self.publish.clone();
        let takeover = Takeover::handed(&self.environment, restore, publish, &self.job.progress);
        self.stage = Stage::Finish(Box::new(takeover));
        Ok(Turn::More)
    }

    /// The pair.
    ///
    /// # Panics
    /// Before [`Turn::Done`].
    #[must_use]
    pub fn finish(self) -> Recovered {
        let Stage::Finish(takeover) = self.stage else { panic!("a copy is a pair once it is published") };
        takeover.finish()
    }
}

/// What became of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    /// The pair is published, and the worker has it.
    Served,
    /// There is none.
    Failed {
        /// Why.
        why: String,
        /// Whether another one may do better.
        failure: CopyFailure,
    },
}

impl CopyEnd {
    /// A copy that has failed so, of a pair that its owner has in this epoch.
    #[must_use]
    pub fn of(error: &RecoveryError, epoch: Epoch) -> CopyEnd {
        CopyEnd::Failed { why: with_causes(error), failure: failure_of(error, epoch) }
    }
}

/// Files of earlier epochs than the owner's go, but nobody uses them again: what looks damaged there is.
fn failure_of(error: &RecoveryError, epoch: Epoch) -> CopyFailure {
    if error.is_transient() {
        return CopyFailure::Unanswered;
    }
    let RecoveryError::Log(error) = error else { return CopyFailure::Final };
    match error {
        WalError::SegmentMissing { .. } | WalError::FolderMissing { .. } => CopyFailure::FilesGone,
        WalError::Storage(error) if error.errno == Errno::ENOENT => CopyFailure::FilesGone,
        WalError::Corrupt(found) if found.place.segment.log.epoch >= epoch => {
            CopyFailure::LooksDamaged { at: Some((found.csn, found.place)) }
        }
        WalError::Mismatch { epoch: of, .. } if *of >= epoch => CopyFailure::LooksDamaged { at: None },
        _ => CopyFailure::Final,
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::{ClusterError, MoveStage};
    use cell_terms::{Csn, PairId, RegionKind};
    use cell_wal::corruption::{Corruption, Damage, Proof};
    use cell_wal::{DiskOperation, LogId, LogPlace, StorageError};

    use super::super::fixtures::{move_row, pair_row};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A copy that kept to its rate noticed the handing when it had slept, 10 ms later at most: nobody
    /// served the pair for so much longer.
    #[test]
    fn copy_that_sleeps_is_woken_by_an_order() {
        let row = || Box::new(pair_row(&move_row(MoveStage::Handed), true));
        let given: [&dyn Fn(&CopyOrders); 2] = [&|orders| orders.hand(row()), &|orders| orders.stop()];
        for give in given {
            let orders = Arc::new(CopyOrders::default());
            let theirs = Arc::clone(&orders);
            let (begins, started) = std::sync::mpsc::channel();
            let waits = std::thread::spawn(move || {
                let held = theirs.lock();
                begins.send(()).unwrap();
                theirs.wait_from(held, Duration::from_secs(3_600));
            });
            started.recv().unwrap();
            give(&orders); // the lock is to be had once it sleeps
            waits.join().unwrap();
            orders.wait(Duration::from_secs(3_600)); // it has one that it has not seen
        }
    }

    /// A copy stood still for as long as all that it had read would have taken at the new rate.
    #[test]
    fn rate_counts_for_what_is_read_from_its_change_on() {
        let mut pace = Pace::default();
        assert_eq!(pace.wait_ns(0, SECOND, 1_000), 0);
        assert_eq!(pace.wait_ns(10_000, 2 * SECOND, 1_000), 9 * SECOND);
        assert_eq!(pace.wait_ns(10_000, 11 * SECOND, 1_000), 0);
        assert_eq!(pace.wait_ns(10_000, 11 * SECOND, 10), 0, "what was read is read");
        assert_eq!(pace.wait_ns(10_020, 11 * SECOND, 10), 2 * SECOND);
        assert_eq!(pace.wait_ns(10_020, 12 * SECOND, 20), 0, "a higher one counts at once");
        assert_eq!(pace.wait_ns(10_060, 12 * SECOND, 20), 2 * SECOND);
        assert_eq!(pace.wait_ns(1 << 60, 12 * SECOND, 0), 0);
    }

    /// A segment that was given back while it was read is taken for damage by who reads it.
    #[test]
    fn log_that_changes_under_a_copy_is_a_reason_to_begin_anew_and_a_disk_that_fails_is_none() {
        let (pair, owners) = (PairId(1), Epoch(3));
        let segment = |epoch| LogId { pair, epoch: Epoch(epoch) }.log(RegionKind::Node).segment(1);
        let failure = |error: WalError| match CopyEnd::of(&error.into(), owners) {
            CopyEnd::Failed { failure, .. } => failure,
            CopyEnd::Served => panic!("it has failed"),
        };
        let missing = |epoch| WalError::SegmentMissing { segment: segment(epoch) };
        assert_eq!([missing(1), missing(3)].map(failure), [CopyFailure::FilesGone; 2]);
        let of = |errno| StorageError { operation: DiskOperation::Open, path: "log".into(), errno };
        assert_eq!(failure(of(Errno::ENOENT).into()), CopyFailure::FilesGone);
        assert_eq!(failure(of(Errno::EIO).into()), CopyFailure::Final);
        let place = |epoch| LogPlace { segment: segment(epoch), offset: 4_096 };
        let corrupt = |epoch| {
            let (damage, proof) = (Damage::Order, Proof::Sound);
            let corruption = Corruption { csn: Csn(5), place: place(epoch), damage, proof };
            WalError::Corrupt(Box::new(corruption))
        };
        assert_eq!(failure(corrupt(3)), CopyFailure::LooksDamaged { at: Some((Csn(5), place(3))) });
        let mismatch = |epoch| WalError::Mismatch { pair, epoch: Epoch(epoch) };
        assert_eq!(failure(mismatch(3)), CopyFailure::LooksDamaged { at: None });
        // Nobody writes to the logs of epochs that have ended.
        assert_eq!([corrupt(2), mismatch(2)].map(failure), [CopyFailure::Final; 2]);
    }

    #[test]
    fn coordinator_that_does_not_answer_is_a_reason_to_begin_anew() {
        let failure = |error: ClusterError| failure_of(&RecoveryError::Cluster(error), Epoch(3));
        let away = std::io::ErrorKind::ConnectionRefused;
        assert_eq!(failure(ClusterError::NotReached(away.into())), CopyFailure::Unanswered);
        assert_eq!(failure(ClusterError::NotInitialised), CopyFailure::Final);
    }

    fn copy_is_ready_for_a_while_alone() {
        let orders = CopyOrders::default();
        assert!(!orders.is_ready(SECOND));
        orders.set_ready(Some(SECOND));
        assert!(orders.is_ready(SECOND) && orders.is_ready(SECOND + READY_NS));
        assert!(!orders.is_ready(SECOND + READY_NS + 1));
        orders.set_ready(None);
        assert!(!orders.is_ready(SECOND));
    }

    #[test]
    fn copy_that_has_not_come_to_the_end_for_a_while_is_ready_no_more() {
        copy_is_ready_for_a_while_alone();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_ready_for_ever_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::ReadyForEver));
            let passed = std::panic::catch_unwind(copy_is_ready_for_a_while_alone).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-node's copies", Mutant::ReadyForEver.name());
        });
    }
}
