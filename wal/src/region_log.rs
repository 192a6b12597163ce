//! One log of a pair: its current segment, its spares, the filled ones that a checkpoint has not released,
//! and the rules of log space.
//!
//! Space. Besides the current segment a log keeps prepared spares. One is the *reserve*: ordinary operations
//! never move the log into it, so deletes, what recovery logs, seals that somebody waits for, and the next
//! owner's first segments (which may take the place of an old epoch's unused spares) have room on a full
//! disk. Once a quarter of the current segment is used a second spare is prepared, and ordinary operations
//! rotate into that one. When the disk has no room for it, but a checkpoint covers all that is in the current
//! segment, they may rotate into the reserve: that gives the current segment back, and its file becomes the
//! reserve.
//!
//! The first segment may be shorter than the others: a takeover waits for it, and for nothing behind it, and
//! zeroing a whole one takes longer than many a small pair's replay. It is not used again once it is
//! released.

use std::collections::VecDeque;
use std::time::Duration;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, RegionKind};

use crate::device::{LogDevice, PrepareSegment};
use crate::error::{Errno, LogRefusal};
use crate::frame::EMPTY_FRAME_BYTES;
use crate::segment::{LogId, LogName, SegmentName};
use crate::segments::LogSegments;
use crate::setting::LogOptions;

/// Who asks for log space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Ordinary operations: refused while only the reserve is left.
    Ordinary,
    /// Deletes, recovery, checkpoints' own records, split settlement: may use the reserve.
    Reserve,
}

/// Spares kept besides the current segment while it is little used; one more later.
const SPARES_LEAST: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Current {
    generation: u32,
    /// Where the next frame goes.
    position: u64,
    /// The next frame's sequence number.
    sequence: u32,
    /// Last CSN of the last batch with a frame in this segment.
    csn_last: Csn,
    /// Whether a frame in this segment is durable.
    settled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Closed {
    generation: u32,
    csn_last: Csn,
    frame_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Preparing {
    Nothing,
    Asked(u32),
    /// Failed for a shortage; tried again when the time is up. The first tick sets it.
    Failed {
        errno: Errno,
        again: Option<Duration>,
    },
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePosition {
    pub(crate) segment: SegmentName,
    pub(crate) offset: u64,
    pub(crate) sequence: u32,
}

pub(crate) struct RegionLog {
    id: LogId,
    pub(crate) kind: RegionKind,
    segment_bytes: u64,
    first_bytes: u64,
    current: Option<Current>,
    spares: VecDeque<u32>,
    preparing: Preparing,
    closed: VecDeque<Closed>,
    /// Released segments that wait to be prepared again under new names.
    released: VecDeque<u32>,
    /// The base of the last recorded checkpoint: what holds nothing above it is given up.
    released_to: Csn,
    /// The least commit number whose record may be in a segment that is kept.
    csn_oldest: Csn,
    generation_next: u32,
    /// Whether spares are prepared: not before both of the pair's logs have their first segment, or on a
    /// short disk one log's spare could take the room of the other's first one.
    keeps_spares: bool,
    pub(crate) recycled: u64,
    pub(crate) removed: u64,
    pub(crate) prepare_failures: u64,
}

impl RegionLog {
    /// A log without any segment yet, whose first record will have `csn_first`; asks for its first segment.
    pub(crate) fn create(
        id: LogId,
        kind: RegionKind,
        csn_first: Csn,
        options: &LogOptions,
        device: &mut dyn LogDevice,
    ) -> RegionLog {
        let mut log = RegionLog {
            id,
            kind,
            segment_bytes: options.segment_bytes,
            first_bytes: options.segment_bytes.min(options.first_segment_bytes),
            current: None,
            spares: VecDeque::new(),
            preparing: Preparing::Nothing,
            closed: VecDeque::new(),
            released: VecDeque::new(),
            released_to: Csn::ZERO,
            csn_oldest: csn_first,
            generation_next: 0,
            keeps_spares: false,
            recycled: 0,
            removed: 0,
            prepare_failures: 0,
        };
        log.prepare_if_due(device);
        log
    }

    pub(crate) const fn name(&self) -> LogName {
        self.id.log(self.kind)
    }

    /// Whether frames have a place.
    pub(crate) const fn has_segment(&self) -> bool {
        self.current.is_some()
    }

    /// Whether a frame of so many bytes goes into the current segment, leaving room for the rotate frame.
    pub(crate) fn fits(&self, frame_bytes: usize) -> bool {
        self.has_segment_for(frame_bytes + EMPTY_FRAME_BYTES)
    }

    fn has_segment_for(&self, bytes: usize) -> bool {
        let end = |current: Current| current.position + bytes as u64;
        self.current.is_some_and(|current| end(current) <= self.bytes_of(current.generation))
    }

    /// How long a segment is.
    pub(crate) const fn bytes_of(&self, generation: u32) -> u64 {
        if generation == 0 { self.first_bytes } else { self.segment_bytes }
    }

    const fn is_short(&self, generation: u32) -> bool {
        self.bytes_of(generation) < self.segment_bytes
    }

    /// Whether the log can take a frame of so many bytes, now or after a rotation that needs nobody.
    pub(crate) fn has_space(&self, frame_bytes: usize, space: Space) -> Result<(), LogRefusal> {
        let spares_needed = match space {
            Space::Ordinary if !self.is_covered() => SPARES_LEAST + 1,
            Space::Ordinary | Space::Reserve => 1,
        };
        if self.fits(frame_bytes) || self.spares.len() >= spares_needed {
            return Ok(());
        }
        match self.preparing {
            Preparing::Failed { errno, .. } => Err(LogRefusal::NoSpace { errno }),
            Preparing::Nothing | Preparing::Asked(_) => Err(LogRefusal::Preparing),
        }
    }

    /// Whether a recorded checkpoint covers all that is in the current segment.
    fn is_covered(&self) -> bool {
        self.current.is_some_and(|current| current.csn_last <= self.released_to)
    }

    /// Bytes of filled segments, which a checkpoint that covers them gives up.
    pub(crate) fn closed_bytes(&self) -> u64 {
        self.closed.iter().map(|closed| self.bytes_of(closed.generation)).sum()
    }

    /// Whether the log is not short of room, or will have room when a checkpoint covers what it holds now.
    pub(crate) fn can_be_reclaimed(&self) -> bool {
        self.shortage().is_none()
            || !self.closed.is_empty()
            || self.current.is_some() && !self.spares.is_empty()
    }

    /// Why the next segment could not be prepared, while that is so.
    pub(crate) const fn shortage(&self) -> Option<Errno> {
        match self.preparing {
            Preparing::Failed { errno, .. } => Some(errno),
            Preparing::Nothing | Preparing::Asked(_) => None,
        }
    }

    /// Takes the place of the next frame. `csn_last` is the batch's last CSN, for a frame with records.
    pub(crate) fn place(
        &mut self,
        frame_bytes: usize,
        csn_last: Option<Csn>,
        device: &mut dyn LogDevice,
    ) -> FramePosition {
        assert!(self.has_segment_for(frame_bytes), "space was checked");
        let name = self.name();
        let current = self.current.as_mut().expect("a frame is placed in an open log");
        let segment = name.segment(current.generation);
        let place = FramePosition { segment, offset: current.position, sequence: current.sequence };
        current.position += frame_bytes as u64;
        current.sequence += 1;
        current.csn_last = csn_last.unwrap_or(current.csn_last);
        self.prepare_if_due(device);
        place
    }

    /// The segment that the log will move to.
    pub(crate) fn successor(&self) -> Option<u32> {
        self.spares.front().copied()
    }

    /// Moves to the successor: the rotate frame that names it is durable.
    pub(crate) fn rotate(&mut self, csn_durable: Csn, device: &mut dyn LogDevice) {
        let next = self.spares.pop_front().expect("a log rotates into a spare");
        if let Some(full) = self.current.replace(Current::new(next, csn_durable)) {
            self.closed.push_back(Closed {
                generation: full.generation,
                csn_last: full.csn_last,
                frame_bytes: full.position,
            });
        }
        self.prepare_if_due(device);
    }

    /// A segment is ready, or is not. A cause that is no shortage poisons the log: the caller sees to that.
    pub(crate) fn on_prepared(
        &mut self,
        generation: u32,
        result: Result<(), Errno>,
        csn_durable: Csn,
        device: &mut dyn LogDevice,
    ) {
        assert!(
            matches!(self.preparing, Preparing::Asked(asked) if asked == generation),
            "events match requests"
        );
        match result {
            Ok(()) => {
                self.preparing = Preparing::Nothing;
                if self.current.is_none() {
                    self.current = Some(Current::new(generation, csn_durable));
                } else {
                    self.spares.push_back(generation);
                }
                self.prepare_if_due(device);
            }
            Err(errno) => {
                self.prepare_failures += 1;
                self.preparing = Preparing::Failed { errno, again: None };
            }
        }
    }

    /// From here on spares are prepared.
    pub(crate) fn keep_spares(&mut self, device: &mut dyn LogDevice) {
        self.keeps_spares = true;
        self.prepare_if_due(device);
    }

    /// Tries again what failed for a shortage, once `retry` has passed.
    pub(crate) fn tick(&mut self, now: Duration, retry: Duration, device: &mut dyn LogDevice) {
        let Preparing::Failed { again, .. } = &mut self.preparing else { return };
        let due = *again.get_or_insert(now + retry);
        if now >= due {
            self.retry(device);
        }
    }

    /// Tries again what failed for a shortage.
    pub(crate) fn retry(&mut self, device: &mut dyn LogDevice) {
        if matches!(self.preparing, Preparing::Failed { .. }) {
            self.preparing = Preparing::Nothing;
            self.prepare_if_due(device);
        }
    }

    /// How long until [`RegionLog::tick`] has something to do.
    pub(crate) fn due(&self, now: Duration, retry: Duration) -> Option<Duration> {
        match self.preparing {
            Preparing::Failed { again: None, .. } => Some(retry),
            Preparing::Failed { again: Some(due), .. } => Some(due.saturating_sub(now)),
            Preparing::Nothing | Preparing::Asked(_) => None,
        }
    }

    /// Everything placed so far is durable.
    pub(crate) fn settle(&mut self, device: &mut dyn LogDevice) {
        if let Some(current) = &mut self.current {
            current.settled = current.sequence > 0;
        }
        // What was covered before it was filled, or was kept for want of a durable frame.
        if self.closed.front().is_some_and(|closed| closed.csn_last <= self.released_to) {
            self.release(self.released_to, device);
        }
    }

    /// Gives up filled segments that hold nothing above `base`. A log never becomes one without any durable
    /// frame: a reader could not distinguish that from a lost file.
    pub(crate) fn release(&mut self, base: Csn, device: &mut dyn LogDevice) {
        self.released_to = self.released_to.max(base);
        let settled = self.current.is_some_and(|current| current.settled);
        let keep = usize::from(!settled && !planted(Mutant::LastSegmentReleased));
        while let Some(closed) = self.closed.front().filter(|closed| closed.csn_last <= base) {
            if self.closed.len() <= keep {
                break;
            }
            let generation = closed.generation;
            self.csn_oldest = closed.csn_last.next();
            self.closed.pop_front();
            if self.is_short(generation) {
                self.remove(generation, device); // and not used again
            } else {
                self.released.push_back(generation);
            }
        }
        if matches!(self.preparing, Preparing::Failed { .. }) && !self.released.is_empty() {
            self.preparing = Preparing::Nothing; // a released file needs no space
        }
        self.prepare_if_due(device);
        // One more is kept for the spare that a busier log will ask for; on a full disk none is given away.
        let keep = if self.spares.len() > SPARES_LEAST { 0 } else { 1 };
        while self.released.len() > keep {
            let generation = self.released.pop_front().expect("counted");
            self.remove(generation, device);
        }
    }

    fn remove(&mut self, generation: u32, device: &mut dyn LogDevice) {
        self.removed += 1;
        device.remove(self.name().segment(generation));
    }

    /// Bytes of frames that a recovery would read.
    pub(crate) fn replay_bytes(&self) -> u64 {
        let current = self.current.map_or(0, |current| current.position);
        current + self.closed.iter().map(|closed| closed.frame_bytes).sum::<u64>()
    }

    /// Bytes of files.
    pub(crate) fn held_bytes(&self) -> u64 {
        let current = self.current.map(|current| current.generation);
        let closed = self.closed.iter().map(|closed| closed.generation);
        let files = self.asked().into_iter().chain(current).chain(closed);
        let files = files.chain(self.spares.iter().copied()).chain(self.released.iter().copied());
        files.map(|generation| self.bytes_of(generation)).sum()
    }

    /// The segment that is being prepared.
    const fn asked(&self) -> Option<u32> {
        match self.preparing {
            Preparing::Asked(generation) => Some(generation),
            Preparing::Nothing | Preparing::Failed { .. } => None,
        }
    }

    /// How many segments there are; goes through the filled ones.
    pub(crate) fn segments(&self) -> LogSegments {
        LogSegments {
            in_use: self.closed.len() as u64 + u64::from(self.current.is_some()),
            spare: self.spares.len() as u64 + u64::from(self.asked().is_some()),
            released: self.released.len() as u64,
            bytes: self.held_bytes(),
            current: self.current.map_or(0, |current| current.generation),
            current_bytes: self.current.map_or(0, |current| current.position),
            current_bytes_all: self.current.map_or(0, |current| self.bytes_of(current.generation)),
            csn_oldest: self.csn_oldest,
        }
    }

    fn prepare_if_due(&mut self, device: &mut dyn LogDevice) {
        let used = self.current.map_or(0, |current| current.position);
        let wanted = match self.current {
            None => 1,
            Some(_) if !self.keeps_spares => 0,
            // What does not fit a short first segment at all must not wait for it to fill.
            Some(current) if self.is_short(current.generation) => SPARES_LEAST + 1,
            Some(_) if used >= self.segment_bytes / 4 => SPARES_LEAST + 1,
            Some(_) => SPARES_LEAST,
        };
        if !matches!(self.preparing, Preparing::Nothing) || self.spares.len() >= wanted {
            return;
        }
        let name = self.name();
        let generation = self.generation_next;
        self.generation_next += 1;
        let recycle = self.released.pop_front();
        self.recycled += u64::from(recycle.is_some());
        self.preparing = Preparing::Asked(generation);
        device.prepare(PrepareSegment {
            log: self.id,
            kind: self.kind,
            segment: name.segment(generation),
            bytes: self.bytes_of(generation),
            recycle: recycle.map(|released| name.segment(released)),
        });
    }
}

impl Current {
    const fn new(generation: u32, csn_durable: Csn) -> Current {
        Current { generation, position: 0, sequence: 0, csn_last: csn_durable, settled: false }
    }
}
