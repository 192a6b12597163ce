//! Reports to the budget, once a second, what the process holds besides what is counted, and what the machine
//! has left: from a thread of its own, because it reads small files of the system.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use cell_memory::Budget;

const EVERY: Duration = Duration::from_secs(1);

/// The thread; it ends with this.
pub(crate) struct MemoryWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Starts it. Nothing is reported before `is_serving` says yes: what a start takes to read the logs
    /// passes, and a pair that fitted before must fit again.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        budget: Budget,
        is_serving: impl Fn() -> bool + Send + 'static,
    ) -> std::io::Result<MemoryWatch> {
        let (stop, stopped) = channel();
        let run = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if is_serving() {
                    cell_memory::observe(&budget);
                }
            }
        };
        let thread = std::thread::Builder::new().name("cell-memory".to_owned()).spawn(run)?;
        Ok(MemoryWatch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it holds nothing
        }
    }
}
