//! The simulated disk as a log device.

use std::collections::HashMap;

use super::SimDisk;
use super::state::Operation;
use crate::buffer::LogBuffer;
use crate::device::{LogDevice, LogEvent, LogWrite, PrepareSegment};
use crate::error::{Errno, RingStep, WalError};
use crate::frame::FRAME_ALIGN;
use crate::segment::{LogId, SegmentName};

/// A process's log device. Writes are lost with the process until they are submitted, and complete when
/// [`SimDisk::step`] or [`SimDisk::complete`] says so.
pub struct SimDevice {
    disk: SimDisk,
    device: u64,
    queued: Vec<LogWrite>,
    /// Prepared segments and their lengths.
    files: HashMap<SegmentName, u64>,
    /// Segments asked for.
    asked: HashMap<SegmentName, u64>,
}

impl SimDevice {
    pub(super) fn new(disk: SimDisk) -> SimDevice {
        let device = disk.state().new_device();
        SimDevice { disk, device, queued: Vec::new(), files: HashMap::new(), asked: HashMap::new() }
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
            self.send(Operation::Write(write));
        }
        let alive = self.disk.state().check_alive(self.disk.process);
        alive.map_err(|errno: Errno| WalError::RingUnavailable { step: RingStep::Submit, errno })
    }

    fn poll(&mut self, events: &mut Vec<LogEvent>) {
        let begin = events.len();
        self.disk.state().take_events(self.disk.process, self.device, events);
        for event in &events[begin..] {
            if let LogEvent::Prepared { segment, result, .. } = event
                && let Some(bytes) = self.asked.remove(segment)
                && result.is_ok()
            {
                self.files.insert(*segment, bytes);
            }
        }
    }
}
