//! A disk that is slow on purpose, for drills: what a log asked for is done as ever, and is reported later.
//!
//! Nothing waits in here. An event is kept until its time, by the clock, and polls go on meanwhile: whoever
//! reads memory does not notice. Nothing is reported earlier than the disk did it, so nothing is acknowledged
//! that is not durable. Without a delay a poll that brings nothing costs one comparison more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::buffer::LogBuffer;
use crate::device::{LogDevice, LogEvent, LogWrite, PrepareSegment};
use crate::error::WalError;
use crate::segment::{LogId, SegmentName};

/// The switch of a process's slow disk; clones switch the same one. No delay at first.
#[derive(Clone, Debug, Default)]
pub struct DiskDelay(Arc<AtomicU64>);

impl DiskDelay {
    /// From now on each write of a log, and each segment that is made ready, takes so much longer; zero ends
    /// it, and what was kept is reported with the next poll.
    pub fn set(&self, delay: Duration) {
        self.0.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A device whose events come late while the switch says so.
pub struct SlowDevice<D> {
    device: D,
    delay: DiskDelay,
    now_ns: fn() -> u64,
    /// Events, in the order in which they came, and when each is reported at the earliest.
    kept: VecDeque<(u64, LogEvent)>,
}

impl<D: LogDevice> SlowDevice<D> {
    /// `device` behind a switch; `now_ns` is a clock that only grows.
    pub fn new(device: D, delay: DiskDelay, now_ns: fn() -> u64) -> SlowDevice<D> {
        SlowDevice { device, delay, now_ns, kept: VecDeque::new() }
    }

    /// The device itself. It wakes nobody when a kept event is due: poll from time to time.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The same, to set it up.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Keeps what has come since `first`, and reports what is due.
    fn keep(&mut self, events: &mut Vec<LogEvent>, first: usize) {
        let delay_ns = self.delay.ns();
        if delay_ns == 0 {
            drop(events.splice(first..first, self.kept.drain(..).map(|(_, event)| event)));
            return;
        }
        let now_ns = (self.now_ns)();
        let due_ns = now_ns.saturating_add(delay_ns);
        self.kept.extend(events.drain(first..).map(|event| (due_ns, event)));
        while let Some((_, event)) = self.kept.pop_front_if(|(due_ns, _)| *due_ns <= now_ns) {
            events.push(event);
        }
    }
}

impl<D: LogDevice> LogDevice for SlowDevice<D> {
    fn buffer(&mut self, bytes: usize) -> LogBuffer {
        self.device.buffer(bytes)
    }

    fn write(&mut self, write: LogWrite) {
        self.device.write(write);
    }

    fn prepare(&mut self, request: PrepareSegment) {
        self.device.prepare(request);
    }

    fn remove(&mut self, segment: SegmentName) {
        self.device.remove(segment);
    }

    fn close(&mut self, log: LogId) {
        // A device notifies a closed log of no segment that became ready.
        let is_passed_on = |event: &LogEvent| event.log() != log || matches!(event, LogEvent::Written { .. });
        self.kept.retain(|(_, event)| is_passed_on(event));
        self.device.close(log);
    }

    fn submit(&mut self) -> Result<(), WalError> {
        self.device.submit()
    }

    fn poll(&mut self, events: &mut Vec<LogEvent>) {
        let first = events.len();
        self.device.poll(events);
        if events.len() > first || !self.kept.is_empty() {
            self.keep(events, first);
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Epoch, PairId, RegionKind};

    use super::*;
    use crate::segment::LogName;
    use crate::sim::{SimDevice, SimDisk};

    const LOG: LogId = LogId { pair: PairId(1), epoch: Epoch(1) };
    const BYTES: u64 = 64 << 10;

    fn segment(generation: u32) -> SegmentName {
        let log = LogName { region: LOG.pair.region(RegionKind::Node), epoch: LOG.epoch };
        SegmentName { log, generation }
    }

    fn prepare(device: &mut SlowDevice<SimDevice>, generation: u32) {
        let segment = segment(generation);
        device.prepare(PrepareSegment {
            log: LOG,
            kind: RegionKind::Node,
            segment,
            bytes: BYTES,
            recycle: None,
        });
    }

    fn write(device: &mut SlowDevice<SimDevice>, generation: u32) {
        let (length, segment) = (4096, segment(generation));
        let buffer = device.buffer(length);
        device.write(LogWrite { log: LOG, kind: RegionKind::Node, segment, offset: 0, length, buffer });
        device.submit().unwrap();
    }

    fn polled(device: &mut SlowDevice<SimDevice>) -> Vec<&'static str> {
        let mut events = Vec::new();
        device.poll(&mut events);
        let word = |event: &LogEvent| match event {
            LogEvent::Written { result, .. } => {
                if result.is_ok() {
                    "written"
                } else {
                    "failed"
                }
            }
            LogEvent::Prepared { .. } => "prepared",
        };
        events.iter().map(word).collect()
    }

    fn do_all(disk: &SimDisk) {
        while disk.step() {}
    }

    /// A slow device with a segment that is prepared.
    fn slow_device(now_ns: fn() -> u64) -> (SimDisk, DiskDelay, SlowDevice<SimDevice>) {
        let (disk, delay) = (SimDisk::new(1), DiskDelay::default());
        let mut device = SlowDevice::new(disk.device(), delay.clone(), now_ns);
        prepare(&mut device, 0);
        do_all(&disk);
        assert_eq!(polled(&mut device), ["prepared"], "at once, without a delay");
        (disk, delay, device)
    }

    /// The clock of a test: tests of one process run side by side.
    macro_rules! clock {
        ($name:ident) => {
            static $name: AtomicU64 = AtomicU64::new(1_000);
        };
    }

    #[test]
    fn poll_without_a_delay_reports_at_once_and_with_one_not_before_its_time() {
        clock!(NOW);
        let (disk, delay, mut device) = slow_device(|| NOW.load(Ordering::Relaxed));
        delay.set(Duration::from_nanos(100));
        write(&mut device, 0);
        do_all(&disk);
        assert_eq!(polled(&mut device), [""; 0], "it is on the disk, and nobody is notified");
        NOW.store(1_050, Ordering::Relaxed);
        prepare(&mut device, 1);
        do_all(&disk);
        assert_eq!(polled(&mut device), [""; 0]);
        NOW.store(1_099, Ordering::Relaxed);
        assert_eq!(polled(&mut device), [""; 0]);
        NOW.store(1_100, Ordering::Relaxed);
        assert_eq!(polled(&mut device), ["written"], "the first, and not what came later");
        NOW.store(1_150, Ordering::Relaxed);
        assert_eq!(polled(&mut device), ["prepared"]);
    }

    #[test]
    fn set_to_zero_reports_what_was_kept_before_what_comes() {
        clock!(NOW);
        let (disk, delay, mut device) = slow_device(|| NOW.load(Ordering::Relaxed));
        delay.set(Duration::from_secs(60));
        prepare(&mut device, 1);
        do_all(&disk);
        assert_eq!(polled(&mut device), [""; 0]);
        write(&mut device, 0);
        do_all(&disk);
        delay.set(Duration::ZERO);
        assert_eq!(polled(&mut device), ["prepared", "written"]);
    }

    #[test]
    fn close_reports_writes_that_ended_and_no_segment() {
        clock!(NOW);
        let (disk, delay, mut device) = slow_device(|| NOW.load(Ordering::Relaxed));
        delay.set(Duration::from_nanos(100));
        write(&mut device, 0);
        prepare(&mut device, 1);
        do_all(&disk);
        assert_eq!(polled(&mut device), [""; 0]);
        device.close(LOG);
        NOW.store(2_000, Ordering::Relaxed);
        assert_eq!(polled(&mut device), ["written"]);
    }
}
