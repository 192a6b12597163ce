//! Memory ahead of the allocators: a thread gives pages to the regions before the worker touches them,
//! because a page that must be zeroed when it is first touched costs the worker some hundred microseconds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use cell_memory::{MemoryError, RegionPopulator};

use crate::store::Store;

/// Slots in use in the node region: where each begins, and how far its allocator has come, in bytes.
type Slots = Vec<(u64, u64)>;

#[derive(Debug, Default)]
struct HighWater {
    node: Mutex<Slots>,
    extent: AtomicU64,
    stop: AtomicBool,
}

/// The worker's end: raising it wakes the thread when a step is due.
#[derive(Debug)]
pub(crate) struct PopulateSignal {
    shared: Arc<HighWater>,
    thread: Thread,
    step_bytes: u64,
    told: (Slots, u64),
}

impl PopulateSignal {
    /// Tells how far the allocators have come. Cheap: the thread is woken once a step.
    pub(crate) fn raise(&mut self, store: &Store) {
        let (slots, extent) = store.high_water();
        let step_bytes = self.step_bytes;
        let told = |begin: u64| self.told.0.iter().find(|(slot, _)| *slot == begin).map(|(_, end)| *end);
        let grown = |(begin, end): (u64, u64)| told(begin).is_none_or(|told| end >= told + step_bytes);
        let mut slots = slots.peekable();
        if extent < self.told.1 + step_bytes && !slots.any(grown) {
            return;
        }
        let slots: Slots = store.high_water().0.collect();
        // The thread holds the lock for a copy only; if it is held just now, the next tick tells.
        let Ok(mut shared) = self.shared.node.try_lock() else { return };
        shared.clone_from(&slots);
        drop(shared);
        self.shared.extent.store(extent, Ordering::Release);
        self.told = (slots, extent);
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
pub(crate) fn start(store: &Store, chunk_bytes: u64) -> std::io::Result<PopulateSignal> {
    let source = store.source();
    let node = RegionPopulator::new(source.node, chunk_bytes);
    let extent = RegionPopulator::new(source.extent, chunk_bytes);
    let slot_bytes = source.geometry.slot_bytes() as u64;
    let shared = Arc::new(HighWater::default());
    let theirs = shared.clone();
    let handle = std::thread::Builder::new().name("cell-populate".into()).spawn(move || {
        while !theirs.stop.load(Ordering::Acquire) {
            let slots = theirs.node.lock().map(|slots| slots.clone()).unwrap_or_default();
            let mut ahead = extent.populate_ahead(0, theirs.extent.load(Ordering::Acquire));
            for (begin, end) in slots {
                ahead = ahead.and_then(|()| populate_slot(&node, begin, end, slot_bytes, chunk_bytes));
            }
            if let Err(error) = ahead {
                tracing::warn!(%error, "memory cannot be taken ahead of use");
            }
            std::thread::park();
        }
    })?;
    let thread = handle.thread().clone();
    let told = (Slots::new(), 0);
    let mut signal = PopulateSignal { shared, thread, step_bytes: chunk_bytes / 4, told };
    signal.raise(store);
    Ok(signal)
}

/// A slot's memory ends where the next slot begins: that may be used by nobody.
fn populate_slot(
    node: &RegionPopulator,
    begin: u64,
    end: u64,
    slot_bytes: u64,
    chunk_bytes: u64,
) -> Result<(), MemoryError> {
    let ahead = (end + chunk_bytes).min(begin + slot_bytes);
    node.region().populate(begin..ahead)
}
