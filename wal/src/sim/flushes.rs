//! The simulated disk's cache, and the flushes that empty it.

use super::faults::due;
use super::state::{Operation, SimState, Unsynced};
use crate::error::Errno;
use crate::flush_rounds::FlushRounds;

/// Who sends a flush: nobody is notified of its end.
const NO_DEVICE: u64 = 0;

impl SimState {
    /// The flushes of a process.
    pub(super) fn flush_rounds(&mut self, process: u64) -> &mut FlushRounds {
        self.flush_rounds.entry(process).or_default()
    }

    /// Sends a flush if one is due.
    pub(super) fn begin_flush_if_due(&mut self, process: u64) {
        if self.check_alive(process).is_ok() && self.flush_rounds(process).begin() {
            let until = self.unsynced_next;
            self.send(process, NO_DEVICE, Operation::Flush { until });
        }
    }

    /// A flush of the disk's cache. A failed one drops what it should have written of its own process. What
    /// others wrote is left to their flushes: of a disk that loses it and tells them nothing, data-sync
    /// writes would not know either.
    pub(super) fn flush(&mut self, process: u64, until: u64) -> Result<(), Errno> {
        self.faults.operate()?;
        let flushed = due(&mut self.faults.sync);
        for file in self.inodes.values_mut() {
            let (covered, left) =
                std::mem::take(&mut file.unsynced).into_iter().partition::<Vec<_>, _>(|write| {
                    let is_lost = flushed.is_ok() || write.process == Some(process);
                    write.process.is_some() && write.number < until && is_lost
                });
            file.unsynced = left;
            for write in covered.iter().filter(|_| flushed.is_ok()) {
                file.stable.write(write.offset, &write.bytes);
            }
        }
        flushed
    }

    /// The next write that stable storage lacks: of a process to the disk's cache, or to the system's.
    pub(super) fn unsynced(&mut self, process: Option<u64>, offset: u64, bytes: Vec<u8>) -> Unsynced {
        self.unsynced_next += 1;
        Unsynced { number: self.unsynced_next - 1, process, offset, bytes }
    }
}
