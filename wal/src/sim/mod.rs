//! A disk in memory for tests and the simulator: [`crate::storage::Storage`] and [`crate::device::LogDevice`]
//! over one shared state, as strict as a real one and with faults on demand.
//!
//! What is modelled, always by the seed:
//!
//! - a write is on stable storage only when its sync (for data-sync log writes: its completion) has
//!   succeeded; at a power cut any sectors of what was not, 512 bytes or 4 KiB each, may or may not be there,
//!   in any order;
//! - a plain log write ([`FlushWay::PerDevice`]) is on stable storage only when a flush that began after its
//!   completion has ended well; a flush covers all files, and nothing that goes through the page cache; one
//!   that fails drops what its process had written;
//! - names in a folder are on stable storage only when the folder was synced;
//! - a failed sync drops what it should have written, and the next one succeeds without it;
//! - log writes complete when, and in the order that, the caller says; a killed process's writes in flight
//!   land late, in part, or never;
//! - errors on the n-th write, sync or read, a full disk, flipped bits, a power cut after the n-th operation;
//! - O_DIRECT's alignment rules.
//!
//! What is not modelled: reads that return other bytes than were written without an error (use
//! [`SimDisk::flip`] or [`SimDisk::copy_block`]), and a disk that lies about a sync.
//!
//! Each [`SimDisk`] handle belongs to a process; [`SimDisk::process`] makes another one's. Killing a process
//! or cutting the power ends its open files and devices.

mod content;
mod device;
mod faults;
mod flushes;
mod state;
mod storage;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use device::SimDevice;
pub use faults::{Landing, PowerCut};
pub use state::Pending;
use state::{Operation, SimState};

use crate::device::LogEvent;
use crate::error::Errno;
use crate::flush_choice::FlushWay;
use crate::preparer::prepare;
use crate::storage::Storage;

/// A process's view of the disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<SimState>>,
    process: u64,
}

impl SimDisk {
    /// An empty disk. The seed decides what tears, lands and is completed first.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(SimState::new(seed))), process: 0 }
    }

    /// A new process's view of the same disk.
    #[must_use]
    pub fn process(&self) -> SimDisk {
        let process = self.state().new_process();
        SimDisk { state: Arc::clone(&self.state), process }
    }

    /// A copy of the whole disk as it is, for another future: another seed decides there.
    #[must_use]
    pub fn fork(&self, seed: u64) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(self.state().fork(seed))), process: self.process }
    }

    /// A log device of this process, which shares the flushes of the others.
    #[must_use]
    pub fn device(&self) -> SimDevice {
        let mut device = SimDevice::new(self.clone());
        device.share();
        device
    }

    /// A log device of this process that has its own syncs until [`SimDevice::share`].
    #[must_use]
    pub fn device_alone(&self) -> SimDevice {
        SimDevice::new(self.clone())
    }

    /// How the devices write that are made from here on, of every process. Each write by itself at first.
    pub fn set_log_flush(&self, way: FlushWay) {
        self.state().log_flush = way;
    }

    /// What devices have sent and what has not completed, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.state().pending()
    }

    /// How often what is pending has changed: [`SimDisk::pending`] is the same as long as this is.
    #[must_use]
    pub fn pending_changes(&self) -> u64 {
        self.state().sent_changes
    }

    /// Whether an operation was sent by this process.
    #[must_use]
    pub fn has_sent(&self, pending: &Pending) -> bool {
        pending.process == self.process
    }

    /// Completes one pending operation; nothing if it is gone (its process was killed).
    pub fn complete(&self, id: u64) {
        let Some((process, device, operation)) = self.state().take_pending(id) else { return };
        let owner = SimDisk { state: Arc::clone(&self.state), process };
        let event = match operation {
            Operation::Write { write, is_plain } => {
                let bytes = &write.buffer.bytes()[..write.length];
                let plain_of = is_plain.then_some(process);
                let result = self.state().log_write(write.segment, write.offset, bytes, plain_of);
                let (log, kind, segment, offset) = (write.log, write.kind, write.segment, write.offset);
                Some(LogEvent::Written { log, kind, segment, offset, buffer: Some(write.buffer), result })
            }
            Operation::Prepare(request) => {
                let result = prepare(&owner, &request).map_err(|error| error.errno);
                let (log, kind, segment) = (request.log, request.kind, request.segment);
                Some(LogEvent::Prepared { log, kind, segment, result })
            }
            Operation::Remove(segment) => {
                let _ = owner.unlink(&segment.path());
                None
            }
            Operation::Flush { until } => {
                let mut state = self.state();
                let result = state.flush(process, until);
                state.flush_rounds(process).end(result);
                None
            }
        };
        if let Some(event) = event {
            self.state().deliver(process, device, event);
        }
    }

    /// Reports one pending log write as done although nothing of it was written: what no disk may do, for
    /// tests of what must notice. Says whether it was a log write.
    pub fn lose(&self, id: u64) -> bool {
        if !self.pending().iter().any(|pending| pending.id == id && pending.is_log_write) {
            return false;
        }
        let Some((process, device, operation)) = self.state().take_pending(id) else { return false };
        let Operation::Write { write, .. } = operation else { return false };
        let (log, kind, segment, offset) = (write.log, write.kind, write.segment, write.offset);
        let event =
            LogEvent::Written { log, kind, segment, offset, buffer: Some(write.buffer), result: Ok(()) };
        self.state().deliver(process, device, event);
        true
    }

    /// Completes one pending operation, chosen by the seed; false if there is none.
    pub fn step(&self) -> bool {
        let chosen = self.state().choose_pending();
        let Some(id) = chosen else { return false };
        self.complete(id);
        true
    }

    /// Completes everything that is pending.
    pub fn settle(&self) {
        while self.step() {}
    }

    /// Kills this process: its files and devices end; the system lives on, so buffered writes stay.
    /// Its log writes in flight may land later: see [`SimDisk::land_late`].
    pub fn kill(&self) {
        self.state().kill(self.process);
    }

    /// Lets one late write of a killed process reach the disk, whole or in part; false if there is none.
    pub fn land_late(&self) -> bool {
        self.state().land_late()
    }

    /// Cuts the power: what was not on stable storage survives as `cut` says. Every process ends, this
    /// handle's too: go on with [`SimDisk::process`]. Faults that were armed are disarmed.
    pub fn power_cut(&self, cut: PowerCut) {
        self.state().power_cut(cut);
    }

    /// Whether a power cut that was armed with [`SimDisk::arm_power_cut`] has happened: nothing works any
    /// more until [`SimDisk::power_cut`] settles what is left.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state().faults.off
    }

    /// Lets the power fail once so many more operations (writes, syncs, changes of names) have been done.
    pub fn arm_power_cut(&self, operations: u64) {
        self.state().faults.power = Some(operations);
    }

    /// Lets the write after so many more fail. Log writes count.
    pub fn arm_write_error(&self, writes: u64, errno: Errno) {
        self.state().faults.write = Some((writes, errno));
    }

    /// Lets the sync after so many more fail: of a file, a folder, a log write's, or a flush.
    pub fn arm_sync_error(&self, syncs: u64, errno: Errno) {
        self.state().faults.sync = Some((syncs, errno));
    }

    /// Lets the read after so many more fail.
    pub fn arm_read_error(&self, reads: u64, errno: Errno) {
        self.state().faults.read = Some((reads, errno));
    }

    /// Takes back what was armed and has not happened.
    pub fn disarm(&self) {
        let mut state = self.state();
        let capacity = state.faults.capacity;
        state.faults = faults::Faults { capacity, ..faults::Faults::default() };
    }

    /// Limits the bytes of all files together; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().faults.capacity = bytes;
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Flips bits of one byte on the medium; false if there is no such byte.
    pub fn flip(&self, path: &str, offset: u64, mask: u8) -> bool {
        self.state().flip(path, offset, mask)
    }

    /// Copies bytes from one place of the medium to another: a misdirected or stale block. False if a file is
    /// missing.
    pub fn copy_block(&self, from: (&str, u64), to: (&str, u64), length: usize) -> bool {
        self.state().copy_block(from, to, length)
    }

    /// Cuts a file off.
    pub fn truncate(&self, path: &str, length: u64) -> bool {
        self.state().truncate(path, length)
    }

    /// The whole content of a file.
    #[must_use]
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.state().content(path)
    }

    fn state(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
