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
//! Lengths. A log begins with a short segment: a takeover waits for it, and for nothing behind it, and most
//! pairs are hardly written. The first reserve is as long. Each second spare is twice as long as the segment
//! that is written, up to the configured length: what is zeroed ahead follows what is written. Asked for
//! after a quarter of the current segment, it is ready in time on a disk that zeroes 8/3 times as fast as the
//! log is written; 4/3 times, once segments have the configured length.
//!
//! A frame must fit the segment that it goes to:
//!
//! - One that takes up to half of the current segment fits every spare that counts: those are at least half
//!   as long as the current one.
//! - A longer one that finds no room has all further segments made with the configured length, which holds
//!   every frame. Shorter spares in front of one that holds it are passed over.
//!
//! A released file is used again where it is as long as the next segment is to be. A shorter one is unlinked,
//! unless the disk is full or the log has no reserve: then it may be all that there is for one. Without that:
//!
//! 1. the disk is full; a checkpoint covers the current segment, and the log moves into its reserve;
//! 2. the segment that this frees is short, and is unlinked: others take the room that it leaves;
//! 3. the log has no reserve, and no checkpoint can give it one: writes and deletes are refused for good.

use std::cmp::Reverse;
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

/// The file of a segment.
#[derive(Clone, Copy, Debug)]
struct SegmentFile {
    generation: u32,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    file: SegmentFile,
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
    file: SegmentFile,
    csn_last: Csn,
    frame_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Preparing {
    Nothing,
    Asked {
        file: SegmentFile,
        /// Whether it takes room: no released file is used again for it.
        is_new: bool,
    },
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
    pub(crate) segment_bytes: u64,
    pub(crate) offset: u64,
    pub(crate) sequence: u32,
}

pub(crate) struct RegionLog {
    id: LogId,
    pub(crate) kind: RegionKind,
    /// The configured length.
    segment_bytes: u64,
    first_bytes: u64,
    current: Option<Current>,
    spares: VecDeque<SegmentFile>,
    preparing: Preparing,
    closed: VecDeque<Closed>,
    /// Released segments, and spares that were passed over: they wait to be prepared again under new names.
    released: VecDeque<SegmentFile>,
    /// A long frame found no room: from here on segments are made with the configured length.
    wants_whole: bool,
    /// A shortage kept the last new file from being made.
    was_short: bool,
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
            wants_whole: false,
            was_short: false,
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
        self.current.is_some_and(|current| current.position + bytes as u64 <= current.file.bytes)
    }

    /// Whether the log can take a frame of so many bytes, now or after a rotation that needs nobody.
    pub(crate) fn has_space(&self, frame_bytes: usize, space: Space) -> Result<(), LogRefusal> {
        let spares_needed = match space {
            Space::Ordinary if !self.is_covered() => SPARES_LEAST + 1,
            Space::Ordinary | Space::Reserve => 1,
        };
        let is_held = || self.spares.iter().any(|spare| spare.holds(frame_bytes));
        if self.fits(frame_bytes) || self.spares.len() >= spares_needed && is_held() {
            return Ok(());
        }
        match self.preparing {
            Preparing::Failed { errno, .. } => Err(LogRefusal::NoSpace { errno }),
            Preparing::Nothing | Preparing::Asked { .. } => Err(LogRefusal::Preparing),
        }
    }

    /// A frame of so many bytes found no room. What it takes is asked for by the next
    /// [`RegionLog::prepare_if_due`].
    pub(crate) fn note_refused(&mut self, frame_bytes: usize) {
        let needed = (frame_bytes + EMPTY_FRAME_BYTES) as u64;
        self.wants_whole |= self.current.is_some_and(|current| needed > current.file.bytes / 2);
    }

    /// Whether a recorded checkpoint covers all that is in the current segment.
    fn is_covered(&self) -> bool {
        self.current.is_some_and(|current| current.csn_last <= self.released_to)
    }

    /// Bytes of filled segments, which a checkpoint that covers them gives up.
    pub(crate) fn closed_bytes(&self) -> u64 {
        self.closed.iter().map(|closed| closed.file.bytes).sum()
    }

    /// Whether the log is not short of room, or will have room when a checkpoint covers what it holds now.
    pub(crate) fn can_be_reclaimed(&self) -> bool {
        let can_move = self.current.is_some() && !self.spares.is_empty();
        self.shortage().is_none() || !self.closed.is_empty() || can_move
    }

    /// Whether a frame of so many bytes finds room in what such a checkpoint gives back, or lets the log move
    /// into.
    pub(crate) fn can_be_reclaimed_for(&self, frame_bytes: usize) -> bool {
        let closed = self.closed.iter().map(|closed| closed.file);
        let mut files = closed.chain(self.spares.iter().copied());
        self.shortage().is_none() || files.any(|file| file.holds(frame_bytes))
    }

    /// Why the next segment could not be prepared, while that is so.
    pub(crate) const fn shortage(&self) -> Option<Errno> {
        match self.preparing {
            Preparing::Failed { errno, .. } => Some(errno),
            Preparing::Nothing | Preparing::Asked { .. } => None,
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
        let place = FramePosition {
            segment: name.segment(current.file.generation),
            segment_bytes: current.file.bytes,
            offset: current.position,
            sequence: current.sequence,
        };
        current.position += frame_bytes as u64;
        current.sequence += 1;
        current.csn_last = csn_last.unwrap_or(current.csn_last);
        self.prepare_if_due(device);
        place
    }

    /// Chooses the segment that the log will move to, for a frame of so many bytes. It stays the one until
    /// [`RegionLog::rotate`]. Spares before it are passed over: nothing names them, and a log never goes back
    /// to a lower generation.
    pub(crate) fn choose_successor(&mut self, frame_bytes: usize) -> u32 {
        while let Some(short) = self.spares.pop_front_if(|spare| !spare.holds(frame_bytes)) {
            self.released.push_back(short);
        }
        self.spares.front().expect("space was checked").generation
    }

    /// Moves to the successor: the rotate frame that names it is durable.
    pub(crate) fn rotate(&mut self, csn_durable: Csn, device: &mut dyn LogDevice) {
        let next = self.spares.pop_front().expect("a log rotates into a spare");
        if let Some(full) = self.current.replace(Current::new(next, csn_durable)) {
            self.closed.push_back(Closed {
                file: full.file,
                csn_last: full.csn_last,
                frame_bytes: full.position,
            });
        }
        self.prepare_out_of_released(device);
        self.remove_short(device);
    }

    /// A segment is ready, or is not. A cause that is no shortage poisons the log: the caller sees to that.
    pub(crate) fn on_prepared(
        &mut self,
        generation: u32,
        result: Result<(), Errno>,
        csn_durable: Csn,
        device: &mut dyn LogDevice,
    ) {
        let Preparing::Asked { file, is_new } = self.preparing else { panic!("events match requests") };
        assert_eq!(file.generation, generation, "events match requests");
        self.was_short = result.is_err() || self.was_short && !is_new;
        match result {
            Ok(()) => {
                self.preparing = Preparing::Nothing;
                if self.current.is_none() {
                    self.current = Some(Current::new(file, csn_durable));
                } else {
                    self.spares.push_back(file);
                }
                self.prepare_if_due(device);
                self.remove_short(device);
            }
            Err(errno) => {
                self.prepare_failures += 1;
                self.preparing = Preparing::Failed { errno, again: None };
                self.prepare_out_of_released(device);
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
            Preparing::Nothing | Preparing::Asked { .. } => None,
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
            self.csn_oldest = closed.csn_last.next();
            self.released.push_back(closed.file);
            self.closed.pop_front();
        }
        self.prepare_out_of_released(device);
        self.remove_short(device);
        // One more is kept for the spare that a busier log will ask for; on a full disk none is given away.
        let keep = if self.spares.len() > SPARES_LEAST && self.has_reserve() { 0 } else { 1 };
        while self.released.len() > keep {
            let released = self.released.pop_front().expect("counted");
            self.remove(released, device);
        }
    }

    /// Unlinks released files that are too short for the next segment, unless they may be all that there is
    /// for a reserve.
    fn remove_short(&mut self, device: &mut dyn LogDevice) {
        if self.was_short || !self.has_reserve() {
            return;
        }
        let bytes = self.bytes_next();
        for released in std::mem::take(&mut self.released) {
            if released.bytes < bytes {
                self.remove(released, device);
            } else {
                self.released.push_back(released);
            }
        }
    }

    fn remove(&mut self, file: SegmentFile, device: &mut dyn LogDevice) {
        self.removed += 1;
        device.remove(self.name().segment(file.generation));
    }

    /// Bytes of frames that a recovery would read.
    pub(crate) fn replay_bytes(&self) -> u64 {
        let current = self.current.map_or(0, |current| current.position);
        current + self.closed.iter().map(|closed| closed.frame_bytes).sum::<u64>()
    }

    /// Bytes of files.
    pub(crate) fn held_bytes(&self) -> u64 {
        let current = self.current.map(|current| current.file);
        let closed = self.closed.iter().map(|closed| closed.file);
        let files = self.asked().into_iter().chain(current).chain(closed);
        let files = files.chain(self.spares.iter().copied()).chain(self.released.iter().copied());
        files.map(|file| file.bytes).sum()
    }

    /// The segment that is being prepared.
    const fn asked(&self) -> Option<SegmentFile> {
        match self.preparing {
            Preparing::Asked { file, .. } => Some(file),
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
            current: self.current.map_or(0, |current| current.file.generation),
            current_bytes: self.current.map_or(0, |current| current.position),
            current_bytes_all: self.current.map_or(0, |current| current.file.bytes),
            csn_oldest: self.csn_oldest,
        }
    }

    /// Whether the log has a spare that counts.
    fn has_reserve(&self) -> bool {
        let least = match self.current {
            Some(current) if !self.wants_whole => current.file.bytes / 2,
            _ => self.segment_bytes,
        };
        self.spares.iter().any(|spare| spare.bytes >= least)
    }

    fn is_segment_due(&self) -> bool {
        let Some(current) = self.current else { return true };
        let is_used = current.position >= current.file.bytes / 4;
        // A long frame does not wait for a short segment to fill.
        let is_outgrown = self.wants_whole && current.file.bytes < self.segment_bytes;
        let lacks_second = self.spares.len() <= SPARES_LEAST && (is_used || is_outgrown);
        self.keeps_spares && (!self.has_reserve() || lacks_second)
    }

    /// How long the next segment is to be.
    fn bytes_next(&self) -> u64 {
        match self.current {
            None => self.first_bytes,
            Some(_) if self.wants_whole => self.segment_bytes,
            Some(current) if !self.has_reserve() => current.file.bytes,
            Some(current) => (2 * current.file.bytes).min(self.segment_bytes),
        }
    }

    /// The released file that is to be used again: one that is long enough; if the disk has no room for
    /// another, the longest.
    fn take_released(&mut self, bytes: u64) -> Option<SegmentFile> {
        let mut at = self.released.iter().position(|released| released.bytes >= bytes);
        if at.is_none() && self.was_short {
            let released = self.released.iter().enumerate();
            at = released.min_by_key(|(_, released)| Reverse(released.bytes)).map(|(at, _)| at);
        }
        self.released.remove(at?)
    }

    /// As [`RegionLog::prepare_if_due`], also after a shortage if there is a released file: that needs no
    /// room.
    fn prepare_out_of_released(&mut self, device: &mut dyn LogDevice) {
        if matches!(self.preparing, Preparing::Failed { .. }) && !self.released.is_empty() {
            self.preparing = Preparing::Nothing;
        }
        self.prepare_if_due(device);
    }

    /// Asks for the next segment if there is to be one, and none is being prepared.
    pub(crate) fn prepare_if_due(&mut self, device: &mut dyn LogDevice) {
        if !matches!(self.preparing, Preparing::Nothing) || !self.is_segment_due() {
            return;
        }
        let name = self.name();
        let generation = self.generation_next;
        self.generation_next += 1;
        let bytes = self.bytes_next();
        let recycle = self.take_released(bytes);
        let is_lengthened = crate::mutant::planted(crate::mutant::Mutant::ReleasedLengthened);
        let bytes = recycle.filter(|_| !is_lengthened).map_or(bytes, |released| released.bytes);
        self.recycled += u64::from(recycle.is_some());
        let file = SegmentFile { generation, bytes };
        self.preparing = Preparing::Asked { file, is_new: recycle.is_none() };
        device.prepare(PrepareSegment {
            log: self.id,
            kind: self.kind,
            segment: name.segment(generation),
            bytes,
            recycle: recycle.map(|released| name.segment(released.generation)),
        });
    }
}

impl SegmentFile {
    /// Whether a frame of so many bytes goes into it as the first one, leaving room for the rotate frame.
    fn holds(self, frame_bytes: usize) -> bool {
        let is_unasked = crate::mutant::planted(crate::mutant::Mutant::ShortSpareCounted);
        is_unasked || (frame_bytes + EMPTY_FRAME_BYTES) as u64 <= self.bytes
    }
}

impl Current {
    const fn new(file: SegmentFile, csn_durable: Csn) -> Current {
        Current { file, position: 0, sequence: 0, csn_last: csn_durable, settled: false }
    }
}
