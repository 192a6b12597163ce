//! What the node's threads send each other.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use cell_cluster::ShareTimes;
use cell_fabric::{TakenRegion, Waker};
use cell_memory::Reservation;
use cell_pair::{ImageSubject, Pair};
use cell_recovery::Recovered;
use cell_settings::SettingsStore;
use cell_terms::setting::Settings;
use cell_terms::{Incarnation, PairId};
use cell_wal::SlowDevice;
use cell_wal::ring::Ring;

use crate::agent::Installation;
use crate::command::{Command, ControlEvent};
use crate::error::NodeError;
use crate::moves::CopyJob;
use crate::populate::PopulateSignal;
use crate::snapshot::FailureKind;

/// The device of a pair's log.
pub(crate) type LogRing = SlowDevice<Ring>;

/// What reaches the worker's thread from others.
pub(crate) enum Inbound {
    /// The recovered pairs, each with its log's device.
    Install { pairs: Vec<ServedPair>, installation: Installation },
    /// A pair that was added.
    AddPair(Box<ServedPair>),
    /// For the core.
    Control(ControlEvent),
    /// Recovery refused: give up.
    GiveUp(FailureKind),
}

/// A pair on its way to the worker, with what the shell keeps for it.
pub(crate) struct ServedPair {
    pub(crate) pair: Pair,
    pub(crate) resources: PairResources,
}

/// What the shell keeps for a pair.
pub(crate) struct PairResources {
    pub(crate) device: Box<LogRing>,
    pub(crate) populate: PopulateSignal,
    /// What the device's buffers count for.
    pub(crate) _buffers: Reservation,
    /// What a device has taken of its memory, until the worker has registered it.
    pub(crate) _taken: Vec<TakenRegion>,
}

/// A pair that was recovered, with what it is served with.
pub(crate) struct RecoveredPair {
    pub(crate) recovered: Recovered,
    pub(crate) device: Box<LogRing>,
    /// What the device's buffers count for.
    pub(crate) buffers: Reservation,
    /// It waits for the pair.
    pub(crate) populate: PopulateSignal,
    /// What a device has taken of its memory.
    pub(crate) taken: Vec<TakenRegion>,
}

/// The way to the worker's thread; cloned into helper threads.
#[derive(Clone, Debug)]
pub(crate) struct ToWorker {
    pub(crate) inbound: Sender<Inbound>,
    pub(crate) waker: Waker,
}

impl ToWorker {
    pub(crate) fn send(&self, message: Inbound) {
        if self.inbound.send(message).is_ok() {
            self.waker.wake();
        }
    }

    pub(crate) fn event(&self, event: ControlEvent) {
        self.send(Inbound::Control(event));
    }

    /// Makes the worker give up, and waits until its thread has ended; whether it has. Its pairs may be given
    /// up only then: (1) the control thread gives a pair up; (2) another node takes it over; (3) the worker,
    /// whose lease still holds, acknowledges a write of it.
    #[allow(clippy::disallowed_methods, reason = "a shell: how long a thread is waited for is real time")]
    pub(crate) fn end_worker(&self, work: &Receiver<Work>, patience: Duration) -> bool {
        self.send(Inbound::GiveUp(FailureKind::RecoveryRefused));
        let until = Instant::now() + patience;
        loop {
            // What else is asked for is of no use any more.
            match work.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Work::WorkerEnded) | Err(RecvTimeoutError::Disconnected) => return true,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

/// What reaches the control thread.
pub(crate) enum Work {
    /// Of the worker.
    Command(Command),
    /// Of the thread that takes pairs over.
    Takeover(TakeoverReport),
    /// A copy of a pair that was to move here has ended: the pair, once it is published.
    Copied { job: CopyJob, ended: Result<Box<RecoveredPair>, NodeError> },
    /// One more pair, or why there is none.
    Grown(Result<Box<RecoveredPair>, NodeError>),
    /// The operator wants the node to stop: nothing more is taken over.
    Stopping,
    /// Settings have changed; of these values only those that apply live count.
    Settings(Box<Settings>),
    /// Where the values are kept that are in force.
    Store(Arc<SettingsStore>),
    /// Somebody wants to look at a pair that is served here; none, if it is not.
    Look { pair: PairId, answer: Sender<Option<ImageSubject>> },
    /// The worker's thread has ended.
    WorkerEnded,
}

/// What becomes of a takeover.
pub(crate) enum TakeoverReport {
    /// A takeover came further.
    Times { pair: PairId, dead: Incarnation, times: ShareTimes },
    /// The pair is this node's, published.
    Taken { mine: Box<RecoveredPair> },
    /// It is not.
    Refused { pair: PairId, dead: Incarnation, error: NodeError },
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A worker's thread that gives up when it is asked to, after some last commands.
    #[test]
    fn end_worker_returns_when_the_thread_has_ended_and_not_before() {
        let (inbound, worker_hears) = channel();
        let (work, control_hears) = channel();
        let poller = cell_fabric::Poller::new().unwrap();
        let to_worker = ToWorker { inbound, waker: poller.waker() };
        let serves = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let still = serves.clone();
        let worker = std::thread::spawn(move || {
            assert!(matches!(worker_hears.recv(), Ok(Inbound::GiveUp(FailureKind::RecoveryRefused))));
            for _ in 0..100 {
                work.send(Work::Command(Command::AddPair { meant_for: None })).unwrap();
                std::thread::yield_now();
            }
            still.store(false, std::sync::atomic::Ordering::SeqCst);
            work.send(Work::WorkerEnded).unwrap();
        });
        assert!(to_worker.end_worker(&control_hears, Duration::from_secs(3_600)));
        assert!(!serves.load(std::sync::atomic::Ordering::SeqCst), "a pair is given up while it is served");
        worker.join().unwrap();
    }

    #[test]
    fn end_worker_says_so_when_the_thread_goes_on() {
        let (inbound, worker_hears) = channel();
        let (work, control_hears) = channel();
        let poller = cell_fabric::Poller::new().unwrap();
        let to_worker = ToWorker { inbound, waker: poller.waker() };
        work.send(Work::Command(Command::AddPair { meant_for: None })).unwrap();
        assert!(!to_worker.end_worker(&control_hears, Duration::ZERO));
        assert!(matches!(worker_hears.recv(), Ok(Inbound::GiveUp(_))));
    }
}
