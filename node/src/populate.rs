//! Memory ahead of the allocators: a thread gives pages to the regions before the worker touches them,
//! because a page
//! that must be zeroed when it is first touched costs the worker some hundred microseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;

use cell_memory::RegionPopulator;

/// How far the allocators have come, in bytes of each region.
#[derive(Debug, Default)]
struct HighWater {
    node: AtomicU64,
    extent: AtomicU64,
    stop: AtomicBool,
}

/// The worker's end: raising it wakes the thread when a step is due.
#[derive(Debug)]
pub(crate) struct PopulateSignal {
    shared: Arc<HighWater>,
    thread: Thread,
    step_bytes: u64,
    told: (u64, u64),
}

impl PopulateSignal {
    /// Tells how far the allocators have come. Cheap: the thread is woken once a step.
    pub(crate) fn raise(&mut self, high_water: Option<(u64, u64)>) {
        let Some((node, extent)) = high_water else { return };
        if node < self.told.0 + self.step_bytes && extent < self.told.1 + self.step_bytes {
            return;
        }
        self.told = (node, extent);
        self.shared.node.store(node, Ordering::Release);
        self.shared.extent.store(extent, Ordering::Release);
        self.thread.unpark();
    }
}

impl Drop for PopulateSignal {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Starts the thread, which at once gives memory to what is in use and the first chunk beyond.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start(
    node: RegionPopulator,
    extent: RegionPopulator,
    high_water: (u64, u64),
    chunk_bytes: u64,
) -> std::io::Result<PopulateSignal> {
    let shared = Arc::new(HighWater::default());
    shared.node.store(high_water.0, Ordering::Release);
    shared.extent.store(high_water.1, Ordering::Release);
    let theirs = shared.clone();
    let handle = std::thread::Builder::new().name("cell-populate".into()).spawn(move || {
        while !theirs.stop.load(Ordering::Acquire) {
            let ahead = node
                .populate_ahead(0, theirs.node.load(Ordering::Acquire))
                .and_then(|()| extent.populate_ahead(0, theirs.extent.load(Ordering::Acquire)));
            if let Err(error) = ahead {
                tracing::warn!(%error, "memory cannot be taken ahead of use");
            }
            std::thread::park();
        }
    })?;
    let thread = handle.thread().clone();
    Ok(PopulateSignal { shared, thread, step_bytes: chunk_bytes / 4, told: high_water })
}
