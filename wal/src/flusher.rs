//! One flush for the logs of all pairs of a worker: the rule of [`crate::flush_rounds`] over a thread that
//! calls fdatasync. Rings that share it write without a data-sync and report a write once its flush is in.
//!
//! **Why a flush is sent when completions have been seen**, and not behind the writes with them. io_uring has
//! two ways for that. A *link* runs the writes one after the other, breaks where one is short or fails, and
//! is gone then. A *drain* waits for all that the ring was given before, long writes too, holds up all that
//! comes later until the flush has ended, and knows nothing of other rings; and of a short write the rest is
//! sent behind it. Seen completions need none of the kernel's promises but one: that a fdatasync covers what
//! had completed when it was called. They cost one more wake-up of the worker before a flush that takes
//! longer. The kernel carries a fsync of a ring out on a thread in any case; this one serves all rings.
//!
//! **Which file.** The one that a write of the flush went to last: for that file the flush is a plain
//! fdatasync, whatever the file system makes of the others. Its descriptor is kept until the flush has ended,
//! so it may be closed, unlinked or used again meanwhile.
//!
//! **What a failure means.** It fails every write that waits, in each log, and all that come later; see the
//! rule. Nothing calls fdatasync again.
//!
//! Whether it is used may change while logs are written: each write is one way or the other.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_terms::{Counter, CounterKind, CounterValue};
use rustix::event::EventfdFlags;

use crate::device::LogEvent;
use crate::error::{Errno, RingStep, WalError};
use crate::flush_choice::{FlushChoice, FlushWay};
use crate::flush_ground::FlushGround;
use crate::flush_rounds::{FlushNumber, FlushRounds, HeldWrites};

const FLUSHES: Counter = Counter {
    name: "log_flushes_total",
    meaning: "Flushes of the disk, each for the writes of all logs that had completed.",
    kind: CounterKind::Total,
};
const FLUSHED_WRITES: Counter = Counter {
    name: "log_flushed_writes_total",
    meaning: "Writes of logs that such flushes made durable or failed; others sync themselves.",
    kind: CounterKind::Total,
};

/// The flush that the rings of one worker share.
pub struct Flusher {
    shared: Arc<Shared>,
    /// The device that it covers; none: it is never used.
    device: Option<u64>,
    jobs: Sender<Arc<OwnedFd>>,
}

struct Shared {
    state: Mutex<State>,
    is_on: AtomicBool,
    flushes: AtomicU64,
    writes: AtomicU64,
    /// Readable after each flush.
    wake: OwnedFd,
}

struct State {
    rounds: FlushRounds,
    /// The file of the last write that has completed.
    file: Option<Arc<OwnedFd>>,
    choice: FlushChoice,
}

impl Flusher {
    /// Starts the thread. It has nothing to do before `choice`, or a later one, is to flush per device.
    ///
    /// # Errors
    /// [`WalError::RingUnavailable`] names the step that failed.
    pub fn start(ground: Option<&FlushGround>, choice: FlushChoice) -> Result<Arc<Flusher>, WalError> {
        Flusher::start_with(ground, choice, || {})
    }

    /// As [`Flusher::start`]. `after_sync` is called whenever the disk has flushed, before anybody is
    /// notified: with it a test has writes complete while a flush is under way, which else is up to the disk.
    ///
    /// # Errors
    /// As [`Flusher::start`].
    pub fn start_with(
        ground: Option<&FlushGround>,
        choice: FlushChoice,
        after_sync: impl FnMut() + Send + 'static,
    ) -> Result<Arc<Flusher>, WalError> {
        let unavailable = |step| move |errno: Errno| WalError::RingUnavailable { step, errno };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| unavailable(RingStep::EventFd)(errno.into()))?;
        let state = State { rounds: FlushRounds::default(), file: None, choice: choice.clone() };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            is_on: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            wake,
        });
        let (jobs, receiver) = channel();
        let of_thread = Arc::clone(&shared);
        // It ends with the queue. Nobody waits for its end: a disk may never answer.
        std::thread::Builder::new()
            .name("cell-log-flush".to_owned())
            .spawn(move || run(&of_thread, &receiver, after_sync))
            .map_err(|error| unavailable(RingStep::Thread)(Errno::of(&error)))?;
        let flusher = Arc::new(Flusher { shared, device: ground.map(|ground| ground.device), jobs });
        flusher.choose(choice);
        Ok(flusher)
    }

    /// Uses it from the next write on, or not.
    pub fn choose(&self, choice: FlushChoice) {
        let is_on = choice.way == FlushWay::PerDevice && self.device.is_some();
        self.shared.state().choice = choice;
        self.shared.is_on.store(is_on, Ordering::Release);
    }

    /// What is chosen now.
    #[must_use]
    pub fn choice(&self) -> FlushChoice {
        self.shared.state().choice.clone()
    }

    /// Readable when a flush has ended: poll the rings then. Watch it beside theirs.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Makes [`Flusher::wake_fd`] unreadable until the next flush ends. Call it before the rings are polled.
    pub fn clear_wake(&self) {
        let mut count = [0; 8];
        // EAGAIN: nothing had happened.
        let _ = rustix::io::read(&self.shared.wake, &mut count);
    }

    /// What it has counted, with the declarations.
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
    pub fn values(&self) -> impl Iterator<Item = CounterValue> + use<> {
        let value = |counter, count: &AtomicU64| CounterValue {
            counter,
            value: count.load(Ordering::Relaxed) as f64,
        };
        [value(&FLUSHES, &self.shared.flushes), value(&FLUSHED_WRITES, &self.shared.writes)].into_iter()
    }

    /// Whether a write to a file on this device is left to the flush.
    pub(crate) fn covers(&self, device: Option<u64>) -> bool {
        device.is_some() && device == self.device && self.shared.is_on.load(Ordering::Acquire)
    }

    /// A plain write of so many bytes is on its way.
    pub(crate) fn sent(&self, bytes: usize) {
        self.shared.state().rounds.sent(bytes);
    }

    /// It has completed, whole; which flush it belongs to.
    pub(crate) fn completed(&self, bytes: usize, file: &Arc<OwnedFd>) -> FlushNumber {
        self.shared.writes.fetch_add(1, Ordering::Relaxed);
        let mut state = self.shared.state();
        state.file = Some(Arc::clone(file));
        state.rounds.completed(bytes)
    }

    /// It has failed, or its ring is gone.
    pub(crate) fn given_up(&self, bytes: usize) {
        self.shared.state().rounds.given_up(bytes);
    }

    /// Sends a flush if one is due. No waiting.
    pub(crate) fn begin_if_due(&self) {
        let file = {
            let mut state = self.shared.state();
            if !state.rounds.begin() {
                return;
            }
            state.file.take().expect("a flush is for a write that has completed")
        };
        if self.jobs.send(file).is_err() {
            self.shared.end(Err(Errno::EIO)); // the thread is gone: nothing becomes durable any more
        }
    }

    /// Reports those of a ring's writes whose flush has ended.
    pub(crate) fn release(&self, held: &mut HeldWrites, events: &mut Vec<LogEvent>) {
        held.release(&self.shared.state().rounds, events);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, result: Result<(), Errno>) {
        if let Err(errno) = result {
            tracing::error!(%errno, "the disk could not be flushed: every log that waits for it has ended");
        }
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.state().rounds.end(result);
        // The counter saturates at worst: it is readable then, which is all that matters.
        let _ = rustix::io::write(&self.wake, &1u64.to_le_bytes());
    }
}

fn run(shared: &Shared, jobs: &Receiver<Arc<OwnedFd>>, mut after_sync: impl FnMut()) {
    for file in jobs {
        // Whatever the error, EINTR too: what was flushed is not known, and nothing asks again.
        let result = rustix::fs::fdatasync(&*file).map_err(Errno::from);
        after_sync();
        shared.end(result);
    }
}
