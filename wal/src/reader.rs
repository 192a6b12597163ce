//! Reads the frames of one log, in order, up to the first place where no sound frame of this log follows.
//! What that place means, a tear or corruption, is decided over both logs of a pair: see [`crate::merge`].

use std::sync::Arc;

use cell_terms::{Csn, RegionKind};

use crate::buffer::LogBuffer;
use crate::check::index;
use crate::error::{DiskOperation, Errno, StorageError, WalError};
use crate::folder::{decode_first_block, list_segments, read_first_header};
use crate::frame::{self, FRAME_ALIGN, FrameFault, FrameHeader, FrameKind, Predecessor};
use crate::mutant::{Mutant, planted};
use crate::segment::{LogId, LogName, LogPlace, SegmentName};
use crate::storage::{Access, Storage};
use crate::stream::{Chunk, ChunkSource, DirectSource, ReadAhead};

/// Where a log's frames end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Where the next frame should be.
    pub place: LogPlace,
    /// What is there instead.
    pub fault: FrameFault,
    /// The first sound header found beyond: proof that the place held a durable frame once.
    pub later: Option<LogPlace>,
}

/// How logs are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Bytes of one read, a multiple of 4 KiB.
    pub chunk_bytes: usize,
    /// Whether a thread of its own reads ahead. Not in simulations.
    pub ahead: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { chunk_bytes: 4 << 20, ahead: true }
    }
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStartAt {
    /// At the oldest segment that was written to. What is at or below this CSN may have been released.
    Oldest(Csn),
    /// So that every frame with a CSN above this one is read; earlier segments are not needed.
    After(Csn),
}

/// Where the current frame's bytes are.
#[derive(Clone, Copy)]
enum Held {
    Chunk { begin: usize },
    Carry,
}

/// Frames of one log.
pub struct LogReader {
    storage: Arc<dyn Storage>,
    id: LogId,
    name: LogName,
    chunk_bytes: usize,
    generations: Vec<u32>,
    /// What at or below this may have been released.
    base: Csn,
    /// The last CSN that was read.
    csn_last: Csn,
    /// A segment that was released, as far as this log can see: what it is missed for if it was not.
    skipped: Option<SegmentName>,
    source: Box<dyn ChunkSource>,
    chunk: Option<Chunk>,
    /// A frame that crosses chunks is gathered here.
    carry: Vec<u8>,
    generation: u32,
    position: u64,
    sequence: u32,
    current: Option<(FrameHeader, LogPlace, Held)>,
    /// The last sound frame.
    last: Option<(LogPlace, FrameHeader)>,
    identity: Option<(u64, Predecessor)>,
    csn_watermark: Csn,
    frames: u64,
    frame_bytes: u64,
    end: Option<LogEnd>,
}

impl LogReader {
    /// Opens a published log.
    ///
    /// # Errors
    /// The folder is missing or has no segment, or the disk fails.
    pub fn open(
        storage: Arc<dyn Storage>,
        id: LogId,
        kind: RegionKind,
        at: LogStartAt,
        options: ReadOptions,
    ) -> Result<LogReader, WalError> {
        assert!(options.chunk_bytes > 0 && options.chunk_bytes.is_multiple_of(FRAME_ALIGN));
        let name = id.log(kind);
        let mut generations = list_segments(&*storage, name)?;
        let Some(first) = generations.first().copied() else {
            return Err(WalError::SegmentMissing { segment: name.segment(0) });
        };
        let (needed, base) = match at {
            LogStartAt::Oldest(base) => (None, base),
            LogStartAt::After(base) => (first_needed(&*storage, id, name, &generations, base)?, base),
        };
        let oldest = || oldest_written(&*storage, name, &generations);
        let start = needed.map_or_else(oldest, |needed| Ok(Some(needed)))?.unwrap_or(first);
        generations.retain(|generation| *generation >= start);
        let direct = DirectSource::new(Arc::clone(&storage), name, generations.clone(), options.chunk_bytes);
        let source: Box<dyn ChunkSource> =
            if options.ahead { Box::new(ReadAhead::start(direct)?) } else { Box::new(direct) };
        Ok(LogReader {
            storage,
            id,
            name,
            chunk_bytes: options.chunk_bytes,
            generations,
            base,
            csn_last: Csn::ZERO,
            skipped: None,
            source,
            chunk: None,
            carry: Vec::new(),
            generation: start,
            position: 0,
            sequence: 0,
            current: None,
            last: None,
            identity: None,
            csn_watermark: Csn::ZERO,
            frames: 0,
            frame_bytes: 0,
            end: None,
        })
    }

    /// A reader of what has come to a log that is still being written: from the current frame on, or from
    /// where the next one is expected. Nothing that was listed or read ahead before counts.
    ///
    /// # Errors
    /// [`WalError::SegmentMissing`]: the segment is not there yet. [`Errno::ENOENT`]: it was given back, for
    /// later ones are there. The disk fails.
    pub(crate) fn again(&self, from_current: bool) -> Result<LogReader, WalError> {
        let (generation, position, sequence, reread) = match &self.current {
            Some((header, place, _)) if from_current => {
                (place.segment.generation, place.offset, self.sequence - 1, header.frame_bytes() as u64)
            }
            Some((FrameHeader { kind: FrameKind::Rotate { successor }, .. }, ..)) => (*successor, 0, 0, 0),
            _ => (self.generation, self.position, self.sequence, 0),
        };
        let mut generations = list_segments(&*self.storage, self.name)?;
        generations.retain(|listed| *listed >= generation);
        let segment = self.name.segment(generation);
        match generations.first() {
            Some(first) if *first == generation => {}
            // Generations come one after the other: what is waited for here never does.
            Some(_) if !cell_terms::mutant::planted(cell_terms::mutant::Mutant::ReleasedAwaited) => {
                return Err(StorageError::new(DiskOperation::Open, &segment.path(), Errno::ENOENT).into());
            }
            Some(_) | None => return Err(WalError::SegmentMissing { segment }),
        }
        let storage = Arc::clone(&self.storage);
        let source = DirectSource::new(storage, self.name, generations.clone(), self.chunk_bytes);
        Ok(LogReader {
            storage: Arc::clone(&self.storage),
            id: self.id,
            name: self.name,
            chunk_bytes: self.chunk_bytes,
            generations,
            // Nothing that comes was released: a segment without a successor has none yet.
            base: Csn::ZERO,
            csn_last: self.csn_last.max(Csn(1)),
            skipped: None,
            source: Box::new(source.from(position).of_tail()),
            chunk: None,
            carry: Vec::new(),
            generation,
            position,
            sequence,
            current: None,
            last: self.last,
            identity: self.identity,
            csn_watermark: self.csn_watermark,
            frames: self.frames - u64::from(reread > 0),
            frame_bytes: self.frame_bytes - reread,
            end: None,
        })
    }

    /// Reads the next frame; `false` at the end of the sound ones.
    ///
    /// # Errors
    /// The disk fails, a named successor is missing, or the format is of another version.
    pub fn advance(&mut self) -> Result<bool, WalError> {
        if self.end.is_some() {
            return Ok(false);
        }
        if let Some((FrameHeader { kind: FrameKind::Rotate { successor }, .. }, ..)) = self.current {
            self.enter(successor)?;
        }
        let place = self.place();
        match self.read_frame()? {
            Ok((header, held)) => {
                self.identity.get_or_insert((header.salt, header.predecessor));
                self.position += header.frame_bytes() as u64;
                self.sequence += 1;
                self.frames += 1;
                self.frame_bytes += header.frame_bytes() as u64;
                self.csn_watermark = self.csn_watermark.max(header.csn_durable);
                self.last = Some((place, header));
                if matches!(header.kind, FrameKind::Batch { .. }) {
                    self.csn_last = header.csn_last;
                }
                self.current = Some((header, place, held));
                Ok(true)
            }
            Err(FrameFault::Version(found)) => {
                let (segment, offset) = (place.segment, place.offset);
                Err(WalError::LogVersion { segment, offset, found, known: frame::FRAME_VERSION })
            }
            Err(fault) => {
                self.current = None;
                self.end = Some(LogEnd { place, fault, later: None });
                Ok(false)
            }
        }
    }

    /// The frame that [`LogReader::advance`] read.
    #[must_use]
    pub fn header(&self) -> Option<&FrameHeader> {
        self.current.as_ref().map(|(header, ..)| header)
    }

    /// Where that frame is.
    #[must_use]
    pub fn frame_place(&self) -> Option<LogPlace> {
        self.current.as_ref().map(|(_, place, _)| *place)
    }

    /// The records of that frame; empty if there is none.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        match (&self.current, &self.chunk) {
            (Some((header, _, Held::Chunk { begin })), Some(chunk)) => {
                frame::payload(header, &chunk.bytes()[*begin..])
            }
            (Some((header, _, Held::Carry)), _) => frame::payload(header, &self.carry),
            _ => &[],
        }
    }

    /// Where the next frame is expected.
    #[must_use]
    pub fn place(&self) -> LogPlace {
        LogPlace { segment: self.name.segment(self.generation), offset: self.position }
    }

    /// The highest durable watermark that any frame read so far carries.
    #[must_use]
    pub const fn csn_watermark(&self) -> Csn {
        self.csn_watermark
    }

    /// Salt and predecessor, once a frame was read.
    #[must_use]
    pub const fn identity(&self) -> Option<(u64, Predecessor)> {
        self.identity
    }

    /// Frames and bytes of frames read.
    #[must_use]
    pub const fn read(&self) -> (u64, u64) {
        (self.frames, self.frame_bytes)
    }

    /// Where the frames ended, once they have.
    #[must_use]
    pub const fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// Reads on to the end and then beyond it, looking for a sound header of this log: nothing is written
    /// before everything ahead of it is durable, so one proves that the end is damage.
    ///
    /// # Errors
    /// The disk fails.
    pub fn finish(&mut self) -> Result<LogEnd, WalError> {
        while self.advance()? {}
        let mut end = self.end.expect("advance stops at an end only");
        if end.later.is_none() {
            end.later = self.look_ahead(end)?;
            self.end = Some(end);
        }
        Ok(end)
    }

    /// Puts everything that was read on stable storage: what can be read need not be there yet.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> Result<(), WalError> {
        for generation in self.generations.iter().filter(|generation| **generation <= self.generation) {
            self.storage.open(&self.name.segment(*generation).path(), Access::Read)?.sync()?;
        }
        Ok(self.storage.sync_folder(&self.name.folder())?)
    }

    /// Writes the last frame that was read once more, as it is: only that one may not be on stable storage,
    /// and after a sync that failed the next one proves nothing of what was written before. The same bytes at
    /// the same place harm nobody, not even an owner that is stopped with this write on its way; past the
    /// page cache, as the owner writes, or its write would meet a dirty page and fail this reader's sync.
    ///
    /// # Errors
    /// The disk fails, or reads differently now: then nothing is written.
    pub fn rewrite_last(&self) -> Result<(), WalError> {
        let Some((place, header)) = self.last else { return Ok(()) };
        let path = place.segment.path();
        let file = self.storage.open(&path, Access::WriteDirect)?;
        let mut frame = LogBuffer::heap(header.frame_bytes());
        let length = file.read_at(place.offset, frame.bytes_mut())?;
        let same = length == header.frame_bytes() && FrameHeader::decode(frame.bytes()) == Ok(header);
        if !same || !frame::payload_matches(&header, frame.bytes()) {
            return Err(StorageError::new(DiskOperation::Read, &path, Errno::EIO).into());
        }
        Ok(file.write_at(place.offset, frame.bytes())?)
    }

    fn enter(&mut self, successor: u32) -> Result<(), WalError> {
        if self.generations.contains(&successor) {
            self.generation = successor;
        } else {
            let segment = self.name.segment(successor);
            self.generation = self.behind_leftover()?.ok_or(WalError::SegmentMissing { segment })?;
            self.skipped = Some(segment);
        }
        self.position = 0;
        self.sequence = 0;
        Ok(())
    }

    /// The oldest segment with a sound frame behind one that has no successor. A segment that was released
    /// comes back when the power fails before its folder is synced, while what followed it stays away.
    /// Nothing above the base was in it, and nothing else is lost: what is not in the segment that this
    /// finds, nor in the pair's other log, is missed by whoever merges the two.
    fn behind_leftover(&self) -> Result<Option<u32>, WalError> {
        if self.csn_last > self.base {
            return Ok(None);
        }
        for generation in self.generations.iter().copied().filter(|later| *later > self.generation) {
            let segment = self.name.segment(generation);
            if let Some(header) = read_first_header(&*self.storage, segment)?
                && self.is_later(&header, generation)
                && header.sequence == 0
                && is_first_frame_sound(&*self.storage, segment, &header)?
            {
                return Ok(Some(generation));
            }
        }
        Ok(None)
    }

    /// The segment that was skipped because it was released, as far as this log can see.
    #[must_use]
    pub const fn skipped(&self) -> Option<SegmentName> {
        self.skipped
    }

    fn read_frame(&mut self) -> Result<Result<(FrameHeader, Held), FrameFault>, WalError> {
        let Some(held) = self.hold(FRAME_ALIGN)? else { return Ok(Err(FrameFault::EndOfFile)) };
        let header = match FrameHeader::decode(self.held(held)).and_then(|header| self.belongs(header)) {
            Ok(header) => header,
            Err(fault) => return Ok(Err(fault)),
        };
        let file_bytes = self.chunk.as_ref().map_or(0, |chunk| chunk.file_bytes);
        let frame_end = self.position + header.frame_bytes() as u64;
        if frame_end > header.segment_bytes {
            return Ok(Err(FrameFault::Contradiction));
        }
        if file_bytes < header.segment_bytes {
            return Ok(Err(FrameFault::EndOfFile));
        }
        let Some(held) = self.hold(header.frame_bytes())? else { return Ok(Err(FrameFault::EndOfFile)) };
        let sound = frame::payload_matches(&header, self.held(held)) || planted(Mutant::SkipPayloadCheck);
        Ok(if sound { Ok((header, held)) } else { Err(FrameFault::PayloadCheck) })
    }

    /// Whether a sound header is the one that belongs at the reader's place.
    fn belongs(&self, header: FrameHeader) -> Result<FrameHeader, FrameFault> {
        let of_log = is_of_log(&header, self.id, self.name);
        if of_log && header.generation < self.generation {
            return Err(FrameFault::Stale);
        }
        let identity = self.identity.is_none_or(|identity| identity == (header.salt, header.predecessor));
        let placed = header.generation == self.generation && header.sequence == self.sequence;
        if of_log && identity && placed { Ok(header) } else { Err(FrameFault::Foreign) }
    }

    fn held(&self, held: Held) -> &[u8] {
        match (held, &self.chunk) {
            (Held::Chunk { begin }, Some(chunk)) => &chunk.bytes()[begin..],
            (Held::Chunk { .. }, None) => &[],
            (Held::Carry, _) => &self.carry,
        }
    }

    /// Makes `length` bytes from the position on available in one piece; `None` if the file ends before.
    fn hold(&mut self, length: usize) -> Result<Option<Held>, WalError> {
        loop {
            let Some(chunk) = &self.chunk else {
                if !self.next_chunk()? {
                    return Ok(None);
                }
                continue;
            };
            if chunk.generation > self.generation {
                return Ok(None);
            }
            if chunk.generation == self.generation && self.position < chunk.end() {
                break;
            }
            let at_end = chunk.generation == self.generation && chunk.end() >= chunk.file_bytes;
            if at_end || !self.next_chunk()? {
                return Ok(None);
            }
        }
        let chunk = self.chunk.as_ref().expect("the loop ends with a chunk");
        if self.position < chunk.offset {
            return self.regather(length); // the header was read from a chunk that has passed
        }
        let begin = index(self.position - chunk.offset);
        if begin + length <= chunk.length {
            return Ok(Some(Held::Chunk { begin }));
        }
        self.carry.clear();
        self.carry.extend_from_slice(&chunk.bytes()[begin..]);
        self.regather(length)
    }

    /// Completes the carried bytes up to `length` from the chunks that follow.
    fn regather(&mut self, length: usize) -> Result<Option<Held>, WalError> {
        while self.carry.len() < length {
            let carried_to = self.position + self.carry.len() as u64;
            let chunk = self.chunk.as_ref().expect("gathering begins within a chunk");
            if chunk.end() <= carried_to {
                if chunk.end() >= chunk.file_bytes || !self.next_chunk()? {
                    return Ok(None);
                }
                continue;
            }
            let begin = index(carried_to - chunk.offset);
            let count = (length - self.carry.len()).min(chunk.length - begin);
            self.carry.extend_from_slice(&chunk.bytes()[begin..begin + count]);
        }
        Ok(Some(Held::Carry))
    }

    fn next_chunk(&mut self) -> Result<bool, WalError> {
        let used = self.chunk.take().map(|chunk| chunk.buffer);
        self.chunk = self.source.next(used)?;
        Ok(self.chunk.is_some())
    }

    fn look_ahead(&mut self, end: LogEnd) -> Result<Option<LogPlace>, WalError> {
        if let Some(offset) = self.look_ahead_in_segment(end)? {
            return Ok(Some(LogPlace { segment: end.place.segment, offset }));
        }
        let later = self.generations.iter().copied().filter(|later| *later > self.generation);
        for generation in later.collect::<Vec<_>>() {
            let segment = self.name.segment(generation);
            if let Some(header) = read_first_header(&*self.storage, segment)?
                && self.is_later(&header, generation)
            {
                self.csn_watermark = self.csn_watermark.max(header.csn_durable);
                return Ok(Some(LogPlace { segment, offset: 0 }));
            }
        }
        Ok(None)
    }

    fn look_ahead_in_segment(&mut self, end: LogEnd) -> Result<Option<u64>, WalError> {
        // Past a frame whose header is sound its payload is skipped, so that nothing stored can pose as a
        // frame; the salt sees to the rest.
        let mut offset = end.place.offset + FRAME_ALIGN as u64;
        if end.fault == FrameFault::PayloadCheck
            && let Some(held) = self.hold(FRAME_ALIGN)?
            && let Ok(header) = FrameHeader::decode(self.held(held))
        {
            offset = end.place.offset + header.frame_bytes() as u64;
        }
        loop {
            let Some(chunk) = &self.chunk else { return Ok(None) };
            if chunk.generation != self.generation {
                return Ok(None);
            }
            offset = offset.max(chunk.offset);
            while offset + FRAME_ALIGN as u64 <= chunk.end() {
                let block = &chunk.bytes()[index(offset - chunk.offset)..];
                if let Ok(header) = FrameHeader::decode(block)
                    && self.is_later(&header, self.generation)
                {
                    self.csn_watermark = self.csn_watermark.max(header.csn_durable);
                    return Ok(Some(offset));
                }
                offset += FRAME_ALIGN as u64;
            }
            if chunk.end() >= chunk.file_bytes || !self.next_chunk()? {
                return Ok(None);
            }
        }
    }

    fn is_later(&self, header: &FrameHeader, generation: u32) -> bool {
        let identity = self.identity.is_none_or(|identity| identity == (header.salt, header.predecessor));
        let beyond = generation > self.generation || header.sequence >= self.sequence;
        is_of_log(header, self.id, self.name) && identity && header.generation == generation && beyond
    }
}

fn is_of_log(header: &FrameHeader, id: LogId, name: LogName) -> bool {
    header.region == name.region && header.pair == id.pair && header.epoch == name.epoch
}

fn is_first_frame_sound(
    storage: &dyn Storage,
    segment: SegmentName,
    header: &FrameHeader,
) -> Result<bool, WalError> {
    let file = storage.open(&segment.path(), Access::ReadDirect)?;
    if file.length()? < header.frame_bytes() as u64 {
        return Ok(false);
    }
    let mut frame = LogBuffer::heap(header.frame_bytes());
    let length = file.read_at(0, frame.bytes_mut())?;
    Ok(length == header.frame_bytes() && frame::payload_matches(header, frame.bytes()))
}

/// The oldest segment that was written to. A spare that was passed over is older, if a crash kept it from
/// being unlinked. A log begins in its first segment: that one was never a spare.
fn oldest_written(
    storage: &dyn Storage,
    name: LogName,
    generations: &[u32],
) -> Result<Option<u32>, WalError> {
    for generation in generations.iter().copied() {
        let is_spare = match decode_first_block(storage, name.segment(generation))? {
            Ok(header) => header.generation < generation,
            Err(fault) => fault == FrameFault::Zeros && generation > 0,
        };
        if !is_spare || planted(Mutant::SpareReadAsFirst) {
            return Ok(Some(generation));
        }
    }
    Ok(None)
}

/// The last segment whose first frame begins at or below the first CSN that is needed. A frame that begins
/// right behind the base may be torn, and a log must not be read from a torn frame on while an earlier
/// segment has a sound one ([`crate::region_log::RegionLog::release`] keeps one until then). If it is sound,
/// an earlier segment may be a leftover, whose successor is gone.
fn first_needed(
    storage: &dyn Storage,
    id: LogId,
    name: LogName,
    generations: &[u32],
    base: Csn,
) -> Result<Option<u32>, WalError> {
    for generation in generations.iter().rev() {
        if let Some(header) = read_first_header(storage, name.segment(*generation))?
            && is_of_log(&header, id, name)
            && (header.generation, header.sequence) == (*generation, 0)
            && (header.csn_first <= base
                || header.csn_first == base.next()
                    && is_first_frame_sound(storage, name.segment(*generation), &header)?)
        {
            return Ok(Some(*generation));
        }
    }
    Ok(None)
}
