//! Memory ahead of the allocators: a thread gives pages to what the regions were granted before the worker
//! touches it, because a page that must be zeroed when it is first touched costs the worker some hundred
//! microseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use cell_pair::Pair;

/// The worker's end: raising it wakes the thread when something was granted.
#[derive(Debug)]
pub(crate) struct PopulateSignal {
    stop: Arc<AtomicBool>,
    thread: Thread,
    reported_bytes: u64,
}

impl PopulateSignal {
    /// Signals that something may have been granted. Cheap where nothing was.
    pub(crate) fn raise(&mut self, pair: &Pair) {
        let granted = pair.granted_bytes();
        if granted != std::mem::replace(&mut self.reported_bytes, granted) {
            self.thread.unpark();
        }
    }
}

impl Drop for PopulateSignal {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Gives memory to all of a pair, for a device that reads it. What the memory limit does not give is reported
/// when the pair's regions are registered.
pub(crate) fn take_whole(pair: &Pair) {
    let source = pair.source();
    for region in [&source.extent, &source.node] {
        if let Err(error) = region.populate_to(region.spec().bytes) {
            tracing::warn!(%error, "a region's memory cannot be taken whole, as RDMA wants it");
        }
    }
}

/// Starts the thread, which at once gives memory to what is granted.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start(pair: &Pair) -> std::io::Result<PopulateSignal> {
    let source = pair.source();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let handle = std::thread::Builder::new().name("cell-populate".into()).spawn(move || {
        while !stopped.load(Ordering::Acquire) {
            for region in [&source.extent, &source.node] {
                if let Err(error) = region.populate_granted() {
                    tracing::warn!(%error, "memory cannot be taken ahead of use");
                }
            }
            std::thread::park();
        }
    })?;
    Ok(PopulateSignal { stop, thread: handle.thread().clone(), reported_bytes: pair.granted_bytes() })
}
