//! The simulated disk as a log device.

use std::collections::HashMap;

use super::SimDisk;
use super::state::Operation;
use crate::buffer::LogBuffer;
use crate::device::{LogDevice, LogEvent, LogWrite, PrepareSegment};
use crate::error::{Errno, RingStep, WalError};
use crate::flush_choice::FlushWay;
use crate::flush_rounds::HeldWrites;
use crate::frame::FRAME_ALIGN;
use crate::segment::{LogId, SegmentName};

/// A process's log device. Writes are lost with the process until they are submitted, and complete when
/// [`SimDisk::step`] or [`SimDisk::complete`] says so. Plain ones are reported when a flush is in that the
/// devices of the process share; it is sent by a submit.
pub struct SimDevice {
    disk: SimDisk,
    device: u64,
    /// Whether writes are plain.
    is_plain: bool,
    queued: Vec<LogWrite>,
    /// Plain writes whose completion was not seen yet: where, and how many bytes.
    on_way: HashMap<(SegmentName, u64), usize>,
    held: HeldWrites,
    /// Prepared segments and their lengths.
    files: HashMap<SegmentName, u64>,
    /// Segments asked for.
    asked: HashMap<SegmentName, u64>,
}

impl SimDevice {
    pub(super) fn new(disk: SimDisk) -> SimDevice {
        let device = disk.state().new_device();
        SimDevice {
            disk,
            device,
            is_plain: false,
            queued: Vec::new(),
            on_way: HashMap::new(),
            held: HeldWrites::default(),
            files: HashMap::new(),
            asked: HashMap::new(),
        }
    }

    /// From the next write on the process's flushes count for this device, where they are used.
    pub fn share(&mut self) {
        self.is_plain = self.disk.state().log_flush == FlushWay::PerDevice;
    }

    fn send(&self, operation: Operation) {
        self.disk.state().send(self.disk.process, self.device, operation);
    }
}

impl LogDevice for SimDevice {
    fn buffer(&mut self, bytes: usize) -> LogBuffer {
        LogBuffer::heap(bytes)
    }

    fn write(&mut self, write: LogWrite) {
        let file_bytes = *self.files.get(&write.segment).expect("a segment is prepared before it is written");
        let aligned =
            write.offset.is_multiple_of(FRAME_ALIGN as u64) && write.length.is_multiple_of(FRAME_ALIGN);
        let end = write.offset + write.length as u64;
        assert!(
            aligned && write.length > 0 && end <= file_bytes,
            "a write is aligned and within its segment"
        );
        assert!(write.length <= write.buffer.capacity(), "a write is within its buffer");
        if self.is_plain {
            let before = self.on_way.insert((write.segment, write.offset), write.length);
            assert_eq!(before, None, "a place is written by one write at a time");
            self.disk.state().flush_rounds(self.disk.process).sent(write.length);
        }
        self.queued.push(write);
    }

    fn prepare(&mut self, request: PrepareSegment) {
        if let Some(released) = request.recycle {
            let bytes = self.files.remove(&released);
            assert_eq!(
                bytes,
                Some(request.bytes),
                "a recycled segment is one of this log's, of the same length"
            );
        }
        self.asked.insert(request.segment, request.bytes);
        self.send(Operation::Prepare(request));
    }

    fn remove(&mut self, segment: SegmentName) {
        assert!(self.files.remove(&segment).is_some(), "only prepared segments are removed");
        self.send(Operation::Remove(segment));
    }

    fn close(&mut self, log: LogId) {
        let regions = [log.pair.node_region(), log.pair.extent_region()];
        self.files.retain(|name, _| !(regions.contains(&name.log.region) && name.log.epoch == log.epoch));
    }

    fn submit(&mut self) -> Result<(), WalError> {
        for write in std::mem::take(&mut self.queued) {
            self.send(Operation::Write { write, is_plain: self.is_plain });
        }
        let mut state = self.disk.state();
        if self.is_plain {
            state.begin_flush_if_due(self.disk.process);
        }
        let alive = state.check_alive(self.disk.process);
        alive.map_err(|errno: Errno| WalError::RingUnavailable { step: RingStep::Submit, errno })
    }

    fn poll(&mut self, events: &mut Vec<LogEvent>) {
        let begin = events.len();
        let mut state = self.disk.state();
        state.take_events(self.disk.process, self.device, events);
        let come = events.split_off(begin);
        for event in come {
            match &event {
                LogEvent::Prepared { segment, result, .. } => {
                    if let Some(bytes) = self.asked.remove(segment)
                        && result.is_ok()
                    {
                        self.files.insert(*segment, bytes);
                    }
                }
                LogEvent::Written { segment, offset, result, .. } => {
                    if let Some(bytes) = self.on_way.remove(&(*segment, *offset)) {
                        let rounds = state.flush_rounds(self.disk.process);
                        if result.is_ok() {
                            self.held.hold(rounds.completed(bytes), event);
                            continue;
                        }
                        rounds.given_up(bytes);
                    }
                }
            }
            events.push(event);
        }
        if !self.held.is_empty() {
            self.held.release(state.flush_rounds(self.disk.process), events);
        }
    }
}

impl Drop for SimDevice {
    /// What it had on its way is waited for no more.
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if !self.on_way.is_empty() && state.check_alive(self.disk.process).is_ok() {
            let rounds = state.flush_rounds(self.disk.process);
            self.on_way.values().for_each(|bytes| rounds.given_up(*bytes));
        }
    }
}
