//! The writing side of a pair's two logs: a state machine that takes records, device events and ticks, and
//! asks a [`LogDevice`] for writes and segments. It has no clock, no thread and no file.
//!
//! The hazard first: an appended record has a CSN, and a CSN must become durable. So ask
//! [`PairLog::room_for`] about *all* records of an operation before the first append, and refuse the
//! operation if it says so; from then on nothing can fail short of the device, and that poisons the log for
//! good.
//!
//! One batch is in flight at a time; the next one fills meanwhile. Everything that is not a batch (the
//! opening frames, seals, rotate frames) is awaited too before the next frame is submitted, so a sound later
//! frame always proves that everything before it was durable:
//!
//! 1. a batch is acknowledged, its frame is damaged on disk, and the node dies;
//! 2. if a seal could have been submitted beside the batch, the seal might stand although the batch never
//!    did;
//! 3. recovery would have to call the damage a tear, and cut an acknowledged batch off.

mod room;

use std::time::Duration;

use cell_terms::{Csn, RegionKind};

use crate::batch::{Appended, Batch, BatchSide};
use crate::buffer::LogBuffer;
use crate::counter::LogCounts;
use crate::device::{LogDevice, LogEvent, LogWrite};
use crate::error::WalError;
use crate::frame::{self, EMPTY_FRAME_BYTES, FrameHeader, FrameKind, Predecessor};
use crate::mutant::{Mutant, planted};
use crate::region_log::{RegionLog, Space};
use crate::sealing::Sealing;
use crate::segment::LogId;
use crate::segments::LogSegments;
use crate::setting::{LogOptions, LogTimes};

const KINDS: [RegionKind; 2] = [RegionKind::Node, RegionKind::Extent];

/// What a pair's new logs begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// Whose logs. The epoch must be new: only files that this owner creates are written.
    pub log: LogId,
    /// The epoch and cut that these logs follow; the first CSN is the cut's successor.
    pub predecessor: Predecessor,
    /// A random number that no client can guess, fresh for each epoch. It keeps stored values from posing as
    /// frames.
    pub salt: u64,
}

/// A pair's two logs.
pub struct PairLog {
    start: LogStart,
    options: LogOptions,
    logs: [RegionLog; 2],
    batch: Batch,
    /// The buffers that are not filling; `None` while in flight, or lost to the device.
    idle: [Option<LogBuffer>; 2],
    in_flight: Option<InFlight>,
    /// A submission waits for a rotation to end.
    submit_wanted: bool,
    open: bool,
    /// A log refused an operation for want of a segment.
    room_refused: bool,
    csn_durable: Csn,
    sealing: Sealing,
    poison: Option<WalError>,
    scratch: Vec<u8>,
    counts: LogCounts,
}

struct InFlight {
    what: What,
    /// Writes that have not completed.
    waiting: u8,
    records: u64,
    payload_bytes: u64,
    frame_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Open,
    Batch { csn_last: Csn },
    Seal,
    Rotate { node: bool, extent: bool },
}

impl PairLog {
    /// Begins a new epoch's logs: asks for the first segments, then writes the opening frames. Appending and
    /// publication have to wait for [`PairLog::is_open`]; feed events until then.
    #[must_use]
    pub fn create(start: LogStart, options: LogOptions, device: &mut dyn LogDevice) -> PairLog {
        options.check();
        let csn_first = start.predecessor.cut.next();
        let region_log = |kind, device: &mut dyn LogDevice| {
            RegionLog::create(start.log, kind, csn_first, &options, device)
        };
        let logs = [region_log(RegionKind::Node, device), region_log(RegionKind::Extent, device)];
        let mut buffer = || device.buffer(options.batch_bytes);
        PairLog {
            start,
            options,
            logs,
            batch: Batch::new(csn_first, buffer(), buffer()),
            idle: [Some(buffer()), Some(buffer())],
            in_flight: None,
            submit_wanted: false,
            open: false,
            room_refused: false,
            csn_durable: start.predecessor.cut,
            sealing: Sealing::new(start.predecessor.cut),
            poison: None,
            scratch: Vec::new(),
            counts: LogCounts::default(),
        }
    }

    /// Whose logs these are.
    #[must_use]
    pub const fn id(&self) -> LogId {
        self.start.log
    }

    /// Whether both logs' opening frames are durable: the epoch may be published, records appended.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// The durable watermark.
    #[must_use]
    pub const fn csn_durable(&self) -> Csn {
        self.csn_durable
    }

    /// The highest watermark that a durable frame carries: damage at or below it is found, damage above it
    /// looks like a torn write.
    #[must_use]
    pub const fn csn_sealed(&self) -> Csn {
        self.sealing.csn()
    }

    /// The last number given to a record.
    #[must_use]
    pub const fn csn_appended(&self) -> Csn {
        Csn(self.batch.csn_next.0 - 1)
    }

    /// Whether records wait for [`PairLog::submit`].
    #[must_use]
    pub fn has_unsubmitted(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Whether a write is in flight.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Bytes of records that are appended and not durable.
    #[must_use]
    pub fn bytes_pending(&self) -> u64 {
        let filling =
            [RegionKind::Node, RegionKind::Extent].map(|kind| self.batch.side(kind).payload_bytes as u64);
        let in_flight = self.in_flight.as_ref().map_or(0, |in_flight| in_flight.payload_bytes);
        filling[0] + filling[1] + in_flight
    }

    /// The failure that ended this log.
    #[must_use]
    pub const fn poison(&self) -> Option<&WalError> {
        self.poison.as_ref()
    }

    /// Other times from the next [`PairLog::tick`] on, also for a wait that has started.
    pub fn set_times(&mut self, times: LogTimes) {
        let LogTimes { seal_idle, prepare_retry } = times;
        (self.options.seal_idle, self.options.prepare_retry) = (seal_idle, prepare_retry);
    }

    /// Bytes of frames that a recovery would have to read: the trigger of a checkpoint.
    #[must_use]
    pub fn replay_bytes(&self) -> u64 {
        self.logs.iter().map(RegionLog::replay_bytes).sum()
    }

    /// The segments of the node log, then those of the extent log. For once a second, not for every batch.
    #[must_use]
    pub fn segments(&self) -> [LogSegments; 2] {
        self.logs.each_ref().map(RegionLog::segments)
    }

    /// What was counted since the log was created.
    #[must_use]
    pub fn counts(&self) -> LogCounts {
        let sum = |field: fn(&RegionLog) -> u64| self.logs.iter().map(field).sum();
        LogCounts {
            recycled: sum(|log| log.recycled),
            removed: sum(|log| log.removed),
            prepare_failures: sum(|log| log.prepare_failures),
            held_bytes: sum(RegionLog::held_bytes),
            replay_bytes: self.replay_bytes(),
            ..self.counts
        }
    }

    /// Appends a record whose length is known; `write` fills the payload (which holds arbitrary bytes before)
    /// and is given the record's number.
    ///
    /// # Panics
    /// If the log is poisoned or not open: [`PairLog::room_for`] was not asked.
    pub fn append_sized(
        &mut self,
        kind: RegionKind,
        length: usize,
        write: impl FnOnce(Csn, &mut [u8]),
    ) -> Appended {
        assert!(self.open && self.poison.is_none(), "room_for is asked before records are appended");
        self.batch.append(kind, length, write)
    }

    /// Appends a record whose length shows when it is encoded. `encode` extends an empty vector.
    ///
    /// # Panics
    /// As [`PairLog::append_sized`].
    pub fn append(&mut self, kind: RegionKind, encode: impl FnOnce(Csn, &mut Vec<u8>)) -> Appended {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        encode(self.batch.csn_next, &mut scratch);
        let appended = self.append_sized(kind, scratch.len(), |_, payload| payload.copy_from_slice(&scratch));
        self.scratch = scratch;
        appended
    }

    /// The payload of a record that was appended since the last submission. It begins at a multiple of 8 in
    /// memory.
    ///
    /// # Panics
    /// If its batch has been submitted.
    #[must_use]
    pub fn payload(&self, appended: &Appended) -> &[u8] {
        self.batch.payload(appended)
    }

    /// Queues the batch's frames with the device, unless something is in flight or there is nothing to write;
    /// says whether it did. [`LogDevice::submit`] sends them, together with other pairs'. A seal that
    /// somebody waits for is queued where there is no batch.
    ///
    /// # Errors
    /// The log is poisoned.
    pub fn submit(&mut self, device: &mut dyn LogDevice) -> Result<bool, WalError> {
        self.check()?;
        self.prepare_for_refused(device);
        if self.sealing.is_wanted() {
            self.seal(device)?;
        }
        if !self.open || self.in_flight.is_some() || self.batch.is_empty() {
            return Ok(false);
        }
        self.begin(device);
        Ok(true)
    }

    /// Takes an event of the device. Returns the new durable watermark if it rose. Events of other owners'
    /// logs are ignored. A submission that had to wait for a rotation is made here.
    ///
    /// # Errors
    /// The log is poisoned, by this event or before.
    pub fn on_event(&mut self, event: LogEvent, device: &mut dyn LogDevice) -> Result<Option<Csn>, WalError> {
        if event.log() != self.start.log {
            return Ok(None);
        }
        match event {
            LogEvent::Written { kind, segment, offset, buffer, result, .. } => {
                if let Some(buffer) = buffer.filter(|buffer| buffer.capacity() <= self.options.batch_bytes) {
                    self.idle[side(kind)] = Some(buffer);
                }
                if let Err(errno) = result
                    && !planted(Mutant::IgnoreWriteError)
                {
                    self.poison.get_or_insert(WalError::Poisoned { segment, offset, errno });
                }
                self.check()?;
                Ok(self.on_written(device))
            }
            LogEvent::Prepared { kind, segment, result, .. } => {
                if let Err(errno) = result
                    && !errno.is_shortage()
                {
                    self.poison.get_or_insert(WalError::Poisoned { segment, offset: 0, errno });
                }
                self.check()?;
                self.logs[side(kind)].on_prepared(segment.generation, result, self.csn_durable, device);
                self.open_if_due(device);
                Ok(None)
            }
        }
    }

    /// Seals an idle log and tries again what failed for a shortage. `now` is any clock that only grows.
    ///
    /// # Errors
    /// The log is poisoned.
    pub fn tick(&mut self, now: Duration, device: &mut dyn LogDevice) -> Result<(), WalError> {
        self.check()?;
        self.prepare_for_refused(device);
        for log in &mut self.logs {
            log.tick(now, self.options.prepare_retry, device);
        }
        if self.is_unsealed() && self.sealing.is_due(now, self.options.seal_idle) {
            self.seal(device)?;
        }
        Ok(())
    }

    /// How long until [`PairLog::tick`] has something to do; `None`: not before the next event or append.
    #[must_use]
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let retry = self.logs.iter().filter_map(|log| log.due(now, self.options.prepare_retry));
        let seals = self.is_unsealed() && self.seal_place().is_some();
        let seal = seals.then(|| self.sealing.due(now, self.options.seal_idle));
        let refused = self.room_refused.then_some(Duration::ZERO);
        retry.chain(seal).chain(refused).min()
    }

    /// Has the batch with this record sealed by the next [`PairLog::submit`] or [`PairLog::tick`] that finds
    /// the log idle, unless another batch has come behind it.
    pub fn want_seal(&mut self, upto: Csn) {
        self.sealing.want(upto);
    }

    /// Seals the last batch at once, if the log is idle and unsealed, and a frame has a place; says whether
    /// it did.
    ///
    /// # Errors
    /// The log is poisoned.
    pub fn seal(&mut self, device: &mut dyn LogDevice) -> Result<bool, WalError> {
        self.check()?;
        if !self.is_unsealed() {
            return Ok(false);
        }
        let Some((what, which)) = self.seal_place() else {
            if planted(Mutant::SealWithoutPlaceCounted) {
                self.sealing.seals();
                self.sealing.proves(self.csn_durable);
            }
            return Ok(false);
        };
        match what {
            What::Rotate { .. } => self.write_rotates(which, device),
            _ => self.write_empty(what, which, |_| FrameKind::Seal, device),
        }
        self.sealing.seals();
        Ok(true)
    }

    /// What seals the last batch, and in which logs; `None` while no log has a place for it. A log without
    /// room for a seal is left: the other one's seal proves as much, and a busy log rotates soon. If neither
    /// has room the rotate frame of one does it. The reserve is for seals that somebody waits for.
    fn seal_place(&self) -> Option<(What, [bool; 2])> {
        let fitting = KINDS.map(|kind| self.logs[side(kind)].fits(EMPTY_FRAME_BYTES));
        if fitting.contains(&true) {
            return Some((What::Seal, fitting));
        }
        if planted(Mutant::SealWithoutPlaceCounted) {
            return None;
        }
        let can_rotate =
            |space| KINDS.map(|kind| self.logs[side(kind)].has_space(EMPTY_FRAME_BYTES, space).is_ok());
        let mut able = can_rotate(Space::Ordinary);
        if !able.contains(&true) && self.sealing.is_wanted() {
            able = can_rotate(Space::Reserve);
        }
        let (node, extent) = (able[0], able[1] && !able[0]);
        (node || extent).then_some((What::Rotate { node, extent }, [node, extent]))
    }

    /// Gives up segments that hold nothing above `base`: a checkpoint with that base is recorded in the
    /// region table.
    pub fn release_below(&mut self, base: Csn, device: &mut dyn LogDevice) {
        for log in &mut self.logs {
            log.release(base, device);
        }
    }

    fn check(&self) -> Result<(), WalError> {
        self.poison.clone().map_or(Ok(()), Err)
    }

    fn is_unsealed(&self) -> bool {
        self.open && self.sealing.is_open() && self.in_flight.is_none() && self.batch.is_empty()
    }

    fn open_if_due(&mut self, device: &mut dyn LogDevice) {
        if !self.open && self.in_flight.is_none() && self.logs.iter().all(RegionLog::has_segment) {
            self.write_empty(What::Open, [true, true], |_| FrameKind::Open, device);
            for log in &mut self.logs {
                log.keep_spares(device);
            }
        }
    }

    /// Writes the batch, or first the rotate frames that its place needs.
    fn begin(&mut self, device: &mut dyn LogDevice) {
        let rotating = KINDS.map(|kind| {
            let side = self.batch.side(kind);
            side.records > 0 && !self.logs[self::side(kind)].fits(side.frame_bytes())
        });
        self.submit_wanted = rotating.contains(&true);
        if self.submit_wanted {
            self.write_rotates(rotating, device);
        } else {
            self.write_batch(device);
        }
    }

    /// Writes the rotate frames of these logs, whose next segments are ready.
    fn write_rotates(&mut self, rotating: [bool; 2], device: &mut dyn LogDevice) {
        let successors = KINDS.map(|kind| {
            let frame_bytes = self.batch.side(kind).frame_bytes();
            rotating[side(kind)].then(|| self.logs[side(kind)].choose_successor(frame_bytes))
        });
        let what = What::Rotate { node: rotating[0], extent: rotating[1] };
        let rotate = |kind| {
            let successor = successors[side(kind)].expect("it was chosen for each log that rotates");
            FrameKind::Rotate { successor }
        };
        self.write_empty(what, rotating, rotate, device);
    }

    fn on_written(&mut self, device: &mut dyn LogDevice) -> Option<Csn> {
        let in_flight = self.in_flight.as_mut().expect("completions match writes");
        in_flight.waiting -= 1;
        if in_flight.waiting > 0 {
            return self.mutant_acknowledges_first_write();
        }
        let done = self.in_flight.take().expect("looked at above");
        self.logs.iter_mut().for_each(|log| log.settle(device));
        self.counts.frame_bytes += done.frame_bytes;
        self.counts.payload_bytes += done.payload_bytes;
        self.counts.records += done.records;
        self.sealing.proves(self.csn_durable); // as these frames carry it
        match done.what {
            What::Open => self.open = true,
            What::Seal => self.counts.seals += 1,
            What::Rotate { node, extent } => {
                for (kind, rotated) in KINDS.into_iter().zip([node, extent]) {
                    if rotated {
                        self.logs[side(kind)].rotate(self.csn_durable, device);
                        self.counts.rotations += 1;
                    }
                }
                if self.submit_wanted {
                    self.begin(device);
                }
            }
            What::Batch { csn_last } => {
                self.counts.batches += 1;
                self.csn_durable = csn_last;
                self.sealing.batch_ended();
                return Some(csn_last);
            }
        }
        None
    }

    fn mutant_acknowledges_first_write(&mut self) -> Option<Csn> {
        match self.in_flight.as_ref()?.what {
            What::Batch { csn_last } if planted(Mutant::AcknowledgeFirstWrite) => {
                self.csn_durable = csn_last;
                Some(csn_last)
            }
            _ => None,
        }
    }

    fn write_batch(&mut self, device: &mut dyn LogDevice) {
        let csn_first = self.batch.csn_first;
        let csn_last = self.csn_appended();
        let mut in_flight = InFlight {
            what: What::Batch { csn_last },
            waiting: 0,
            records: 0,
            payload_bytes: 0,
            frame_bytes: 0,
        };
        let both = KINDS.iter().all(|kind| self.batch.side(*kind).records > 0);
        for kind in KINDS {
            if self.batch.side(kind).records == 0 {
                continue;
            }
            let fresh =
                self.idle[side(kind)].take().unwrap_or_else(|| device.buffer(self.options.batch_bytes));
            let full = std::mem::replace(self.batch.side_mut(kind), BatchSide::new(fresh));
            let length = full.frame_bytes();
            let mut header = self.header(FrameKind::Batch { other: both }, csn_first, csn_last);
            header.payload_bytes =
                u32::try_from(full.payload_bytes).expect("frames are at most half a segment");
            header.records = full.records;
            in_flight.waiting += 1;
            in_flight.records += u64::from(full.records);
            in_flight.payload_bytes += full.payload_bytes as u64;
            in_flight.frame_bytes += length as u64;
            self.write(kind, header, full.buffer, length, Some(csn_last), device);
        }
        self.batch.csn_first = self.batch.csn_next;
        self.in_flight = Some(in_flight);
    }

    fn write_empty(
        &mut self,
        what: What,
        which: [bool; 2],
        frame_kind: impl Fn(RegionKind) -> FrameKind,
        device: &mut dyn LogDevice,
    ) {
        let mut in_flight = InFlight { what, waiting: 0, records: 0, payload_bytes: 0, frame_bytes: 0 };
        for kind in KINDS.into_iter().filter(|kind| which[side(*kind)]) {
            let buffer =
                self.idle[side(kind)].take().unwrap_or_else(|| device.buffer(self.options.batch_bytes));
            let header = self.header(frame_kind(kind), self.csn_durable.next(), self.csn_durable);
            in_flight.waiting += 1;
            in_flight.frame_bytes += EMPTY_FRAME_BYTES as u64;
            self.write(kind, header, buffer, EMPTY_FRAME_BYTES, None, device);
        }
        self.in_flight = (in_flight.waiting > 0).then_some(in_flight);
    }

    fn write(
        &mut self,
        kind: RegionKind,
        mut header: FrameHeader,
        mut buffer: LogBuffer,
        length: usize,
        csn_last: Option<Csn>,
        device: &mut dyn LogDevice,
    ) {
        let log = &mut self.logs[side(kind)];
        let place = log.place(length, csn_last, device);
        header.region = log.name().region;
        header.generation = place.segment.generation;
        header.segment_bytes = place.segment_bytes;
        header.sequence = place.sequence;
        frame::finish(&mut buffer.bytes_mut()[..length], &mut header);
        device.write(LogWrite {
            log: self.start.log,
            kind,
            segment: place.segment,
            offset: place.offset,
            length,
            buffer,
        });
    }

    /// A header without region, place, segment and payload.
    fn header(&self, kind: FrameKind, csn_first: Csn, csn_last: Csn) -> FrameHeader {
        FrameHeader {
            kind,
            region: self.start.log.pair.node_region(),
            pair: self.start.log.pair,
            epoch: self.start.log.epoch,
            predecessor: self.start.predecessor,
            generation: 0,
            sequence: 0,
            csn_first,
            csn_last,
            csn_durable: self.csn_durable,
            salt: self.start.salt,
            segment_bytes: 0,
            payload_bytes: 0,
            records: 0,
            payload_check: 0,
        }
    }
}

const fn side(kind: RegionKind) -> usize {
    match kind {
        RegionKind::Node => 0,
        RegionKind::Extent => 1,
    }
}
