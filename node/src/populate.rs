//! Memory ahead of the allocators: a thread gives pages to what the regions were granted before the worker
//! touches it, because a page that must be zeroed when it is first touched costs the worker some hundred
//! microseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::Thread;

use cell_fabric::{RegionTaker, TakenRegion};
use cell_memory::Region;
use cell_pair::Pair;
use cell_recovery::image::ImageSource;
use cell_terms::text::with_causes;

/// The worker's end: raising it wakes the thread when something was granted.
#[derive(Debug)]
pub(crate) struct PopulateSignal {
    /// The thread waits for it first.
    source: Sender<ImageSource>,
    stop: Arc<AtomicBool>,
    thread: Thread,
    reported_bytes: u64,
}

impl PopulateSignal {
    /// Hands over the pair, whose granted memory is given to it from here on.
    pub(crate) fn begin(&mut self, pair: &Pair) {
        self.reported_bytes = pair.granted_bytes();
        let _ = self.source.send(pair.source()); // the thread lasts until this end is dropped
    }

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

/// Gives memory to all of a pair, and has the device that reads it for peers take it. For tens of GiB that
/// takes seconds, so it is done by who recovered the pair, and not by the worker, which serves others
/// meanwhile, nor by the control thread. What comes of it goes with the pair: dropped before the pair is
/// served, it gives the memory back.
pub(crate) fn take_whole(regions: [&Region; 2], taker: &RegionTaker) -> Vec<TakenRegion> {
    let take = |region: &Region| {
        let populated = region.populate_to(region.spec().bytes).map_err(|error| with_causes(&error));
        populated.and_then(|()| taker.take(region).map_err(|error| with_causes(&error)))
    };
    let warn = |error: &String| {
        tracing::warn!(error, "a region's memory cannot be taken whole, as RDMA wants it");
    };
    regions.into_iter().filter_map(|region| take(region).inspect_err(warn).ok().flatten()).collect()
}

/// Starts the thread, which waits for its pair. It is started before a pair becomes this node's: one that is
/// in the table is to be served, whatever the system still has to give by then.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start() -> std::io::Result<PopulateSignal> {
    let (source, given) = channel::<ImageSource>();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let handle = std::thread::Builder::new().name("cell-populate".into()).spawn(move || {
        let Ok(source) = given.recv() else { return }; // the pair did not become this node's
        while !stopped.load(Ordering::Acquire) {
            for region in [&source.extent, &source.node] {
                if let Err(error) = region.populate_granted() {
                    tracing::warn!(%error, "memory cannot be taken ahead of use");
                }
            }
            std::thread::park();
        }
    })?;
    Ok(PopulateSignal { source, stop, thread: handle.thread().clone(), reported_bytes: 0 })
}
