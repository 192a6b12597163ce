//! One copy of a pair for a planned move, a step at a time, at a bounded rate; and, once the pair was handed
//! over, the rest of its takeover. A thread of the control side steps it, and so does the simulator.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_cluster::{MoveName, PairRow};
use cell_memory::Region;
use cell_recovery::{
    CopyTurn, Environment, PairCopy, Progress, PublishRequest, Recovered, RecoveryError, Takeover, Turn,
};
use cell_terms::text::with_causes;
use cell_terms::{Incarnation, NodeId};
use cell_wal::{Errno, LogDevice, WalError};

use super::target::CopyState;

/// How often orders are looked for, and so how late a handing is noticed at most.
const ORDERS_NS: u64 = 1_000_000;
/// How often a copy that has caught up looks at the log.
const ROUND_NS: u64 = 10_000_000;
/// The longest sleep of a copy that keeps to its rate.
const PACE_MAX_NS: u64 = 50_000_000;

/// What the control side says to a copy, and what it hears of it.
#[derive(Debug, Default)]
pub struct CopyOrders(Mutex<Orders>);

#[derive(Debug, Default)]
struct Orders {
    handed: Option<Box<PairRow>>,
    stop: bool,
    is_ready: bool,
}

impl CopyOrders {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pair was handed over, and this is its row.
    pub(super) fn hand(&self, row: Box<PairRow>) {
        self.lock().handed = Some(row);
    }

    /// Nobody wants the copy any more.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
    }

    fn is_ready(&self) -> bool {
        self.lock().is_ready
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
    /// What it is told.
    pub orders: Arc<CopyOrders>,
}

impl CopyJob {
    /// How far it is.
    pub(super) fn state(&self) -> CopyState {
        let view = self.progress.view(0);
        CopyState {
            bytes_done: view.bytes_done,
            bytes_total: view.bytes_total,
            is_ready: self.orders.is_ready(),
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
    began_ns: u64,
    round_due_ns: u64,
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
            began_ns: now_ns,
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
            Stage::Copy(copy) => {
                let wait_ns = pace_ns(&self.job, self.began_ns, now_ns, bytes_per_second);
                if wait_ns > 0 || now_ns < self.round_due_ns {
                    return Ok(Turn::Wait(wait_ns.clamp(ORDERS_NS, PACE_MAX_NS)));
                }
                match copy.step()? {
                    CopyTurn::More => Ok(Turn::More),
                    CopyTurn::CaughtUp { ready } => {
                        self.round_due_ns = now_ns + ROUND_NS;
                        self.job.orders.lock().is_ready |= ready;
                        Ok(Turn::Wait(ORDERS_NS))
                    }
                }
            }
            Stage::Finish(takeover) => takeover.step(device),
            Stage::Over => Err(RecoveryError::GivenUp),
        }
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

/// How long a copy waits so that it keeps to its rate.
fn pace_ns(job: &CopyJob, began_ns: u64, now_ns: u64, bytes_per_second: u64) -> u64 {
    if bytes_per_second == 0 {
        return 0;
    }
    let done = u128::from(job.progress.view(0).bytes_done);
    let takes_ns = done * 1_000_000_000 / u128::from(bytes_per_second);
    let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
    takes_ns.saturating_sub(now_ns.saturating_sub(began_ns))
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
        /// Files that it wanted have gone: another one may do better.
        files_gone: bool,
    },
}

impl CopyEnd {
    /// A copy that has failed so.
    #[must_use]
    pub fn of(error: &RecoveryError) -> CopyEnd {
        CopyEnd::Failed { why: with_causes(error), files_gone: has_lost_files(error) }
    }
}

/// Whether a copy failed because files that it wanted have gone, as they may beside their owner's work.
fn has_lost_files(error: &RecoveryError) -> bool {
    match error {
        RecoveryError::Log(WalError::SegmentMissing { .. } | WalError::FolderMissing { .. }) => true,
        RecoveryError::Log(WalError::Storage(error)) => error.errno == Errno::ENOENT,
        _ => false,
    }
}
