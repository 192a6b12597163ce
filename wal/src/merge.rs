//! Reads both logs of a pair's epoch as one sequence of commit batches, and says how it ends.
//!
//! A batch counts when it is complete in both logs. The first one that is not ends the pair's log, and then
//! it must be decided whether a crash tore what was in flight, or a disk lost what was acknowledged:
//!
//! | what is known of the first missing CSN | verdict |
//! |---|---|
//! | a recorded cut lies at or above it | corruption: at or below the cut everything is required |
//! | the caller requires it (a checkpoint image holds it) | corruption |
//! | a frame of *either* log, even beyond the end, carries a watermark at or above it | corruption |
//! | a sound later header of this log stands beyond the place where its frames end | corruption |
//! | a log of a published epoch has no first frame, or a file is shorter than it was made | corruption |
//! | none of these | a tear: the cut is the CSN before it |
//!
//! What cannot be recognised: damage to the frames of the very last batch, when the process died before the
//! idle seal, looks like a tear. With a recorded cut, nothing past it is read: neither frames nor the
//! watermarks that they carry.

use std::sync::Arc;

use cell_terms::{Csn, RegionKind};

use crate::corruption::{Corruption, Damage, Proof};
use crate::error::WalError;
use crate::frame::{FrameFault, FrameHeader, FrameKind, Predecessor};
use crate::mutant::{Mutant, planted};
use crate::reader::{LogEnd, LogReader, LogStartAt, ReadOptions};
use crate::record::{Record, Records};
use crate::segment::{LogId, LogPlace};
use crate::storage::Storage;

/// What to read of a pair's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Whose logs.
    pub log: LogId,
    /// Everything at or below is in the checkpoint; reading begins with the batch that holds the CSN after
    /// it.
    pub base: Csn,
    /// The recorded cut of this epoch, if there is one.
    pub cut: Option<Csn>,
    /// The highest CSN that must be there for another reason (a checkpoint image's highest), or zero.
    pub required: Csn,
    /// How to read.
    pub options: ReadOptions,
}

/// How a pair's log ended, when it ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairLogEnd {
    /// The last CSN that counts.
    pub cut: Csn,
    /// What a crash left behind it, if it left anything.
    pub tear: Option<Tear>,
    /// Batches that were yielded.
    pub batches: u64,
    /// Frames that were read, both logs.
    pub frames: u64,
    /// Bytes of these frames.
    pub frame_bytes: u64,
}

/// An incomplete batch in flight at a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tear {
    /// Where its bad or missing frame is.
    pub place: LogPlace,
    /// What is there.
    pub fault: FrameFault,
}

/// A commit batch, complete in both logs, checked.
#[derive(Clone, Copy, Debug)]
pub struct PairBatch<'a> {
    /// Its first record's number.
    pub csn_first: Csn,
    /// Its last record's number.
    pub csn_last: Csn,
    node: &'a [u8],
    extent: &'a [u8],
}

impl<'a> PairBatch<'a> {
    /// Its records in CSN order, each with the log that it was in. The first batch may begin at or below the
    /// base.
    pub fn records(&self) -> impl Iterator<Item = (RegionKind, Record<'a>)> + use<'a> {
        self.merged().map_while(Result::ok)
    }

    /// Bytes of records, both logs.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        self.node.len() + self.extent.len()
    }

    fn merged(&self) -> impl Iterator<Item = Result<(RegionKind, Record<'a>), Damage>> + use<'a> {
        let mut node = Records::new(self.node, self.csn_first, self.csn_last).peekable();
        let mut extent = Records::new(self.extent, self.csn_first, self.csn_last).peekable();
        std::iter::from_fn(move || {
            let from_node = match (node.peek(), extent.peek()) {
                (None, None) => return None,
                (Some(Ok(a)), Some(Ok(b))) => a.csn < b.csn,
                (Some(_), None) | (Some(Err(_)), _) => true,
                (None | Some(Ok(_)), Some(_)) => false,
            };
            let (kind, record) = if from_node {
                (RegionKind::Node, node.next()?)
            } else {
                (RegionKind::Extent, extent.next()?)
            };
            Some(record.map(|record| (kind, record)).map_err(|_| Damage::Records))
        })
    }

    /// Every number of the range once: what `records` relies on.
    fn is_dense(&self) -> bool {
        let mut expected = self.csn_first;
        for item in self.merged() {
            let Ok((_, record)) = item else { return false };
            if record.csn != expected {
                return false;
            }
            expected = expected.next();
        }
        expected == self.csn_last.next()
    }
}

const KINDS: [RegionKind; 2] = [RegionKind::Node, RegionKind::Extent];

/// Reads both logs of a pair's epoch.
pub struct PairReader {
    request: ReadRequest,
    logs: Option<[LogReader; 2]>,
    /// Whether a log stands on a frame that was not yielded yet.
    pending: [bool; 2],
    csn_next: Csn,
    batches: u64,
    ended: Option<PairLogEnd>,
    /// A segment that a log goes on in and that is not there; only with a recorded cut, or of a log that is
    /// still being written.
    lacks: [Option<WalError>; 2],
    /// The logs may still be written: what is missing is not there yet.
    follows: bool,
}

/// What the two logs offer for the next batch.
enum Offer {
    Both,
    Only(usize),
    Nothing,
    /// The log that lacks its frame or has another one.
    Incomplete(usize),
}

impl PairReader {
    /// Opens both logs. With a recorded cut at or below the base nothing is needed, and nothing is opened.
    ///
    /// # Errors
    /// A folder or every segment is missing, or the disk fails.
    pub fn open(storage: &Arc<dyn Storage>, request: ReadRequest) -> Result<PairReader, WalError> {
        let forgetful = planted(Mutant::IgnoreRecordedCut);
        let request = ReadRequest { cut: request.cut.filter(|_| !forgetful), ..request };
        let needed = request.cut.is_none_or(|cut| cut > request.base);
        let open = |kind| {
            LogReader::open(
                Arc::clone(storage),
                request.log,
                kind,
                LogStartAt::After(request.base),
                request.options,
            )
        };
        let logs = if needed { Some([open(RegionKind::Node)?, open(RegionKind::Extent)?]) } else { None };
        let csn_next = request.base.next();
        Ok(PairReader {
            request,
            logs,
            pending: [false; 2],
            csn_next,
            batches: 0,
            ended: None,
            lacks: [None, None],
            follows: false,
        })
    }

    /// Opens both logs of an owner that may be at work: [`PairReader::next_batch`] says `None` where nothing
    /// more is there yet, and [`PairReader::look_again`] goes on from there. Each batch is as its owner wrote
    /// it, and need not be durable: it counts once it lies at or below a recorded cut.
    ///
    /// # Errors
    /// As [`PairReader::open`].
    pub fn follow(
        storage: &Arc<dyn Storage>,
        log: LogId,
        base: Csn,
        options: ReadOptions,
    ) -> Result<PairReader, WalError> {
        let options = ReadOptions { ahead: false, ..options };
        let request = ReadRequest { log, base, cut: None, required: Csn::ZERO, options };
        Ok(PairReader { follows: true, ..PairReader::open(storage, request)? })
    }

    /// Looks for what has come since to logs that are followed. With a cut nothing comes any more: the
    /// reading ends there.
    ///
    /// # Errors
    /// What is to be read next is not listed, or not yet; the disk fails. It can be called again.
    pub fn look_again(&mut self, cut: Option<Csn>) -> Result<(), WalError> {
        self.request.cut = cut;
        if let Some([node, extent]) = &self.logs {
            self.logs = Some([node.again(self.pending[0])?, extent.again(self.pending[1])?]);
        }
        (self.pending, self.lacks) = ([false; 2], [None, None]);
        Ok(())
    }

    /// Everything up to here was yielded, or lies below what was asked for.
    #[must_use]
    pub const fn reached(&self) -> Csn {
        Csn(self.csn_next.0 - 1)
    }

    /// The next complete batch; `None` at the end, which [`PairReader::ended`] then describes.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] and what else must stop a recovery. What was yielded before must not be served
    /// then.
    pub fn next_batch(&mut self) -> Result<Option<PairBatch<'_>>, WalError> {
        if self.ended.is_some() {
            return Ok(None);
        }
        if self.logs.is_none() || self.request.cut.is_some_and(|cut| self.csn_next > cut) {
            self.end_well(None);
            return Ok(None);
        }
        for side in [0, 1] {
            self.fetch(side)?;
        }
        self.check_identity()?;
        match self.offer() {
            Offer::Nothing | Offer::Incomplete(_) if self.follows => Ok(None),
            Offer::Nothing => self.end(None),
            Offer::Incomplete(side) => self.end(Some(side)),
            Offer::Both => self.yield_batch([true, true]).map(Some),
            Offer::Only(side) => self.yield_batch([side == 0, side == 1]).map(Some),
        }
    }

    /// How the log ended, once [`PairReader::next_batch`] has returned `None`.
    #[must_use]
    pub const fn ended(&self) -> Option<&PairLogEnd> {
        self.ended.as_ref()
    }

    /// Where the frames of each log end, once the reading has ended. Nothing at or below the cut lies there
    /// or behind it.
    pub fn ends(&self) -> impl Iterator<Item = LogPlace> + '_ {
        self.logs.iter().flatten().map(LogReader::place).filter(|_| self.ended.is_some())
    }

    /// What this epoch follows, once the first batch was asked for. Every frame carries it.
    #[must_use]
    pub fn predecessor(&self) -> Option<Predecessor> {
        self.logs.as_ref()?.iter().find_map(LogReader::identity).map(|(_, predecessor)| predecessor)
    }

    /// Puts what was read on stable storage, before a cut that relies on it is recorded. The frames of the
    /// last batch, which alone may not be there, are written once more: had the owner's sync failed, or that
    /// of a recovery before this one, then the next one would say yes to what was never written.
    ///
    /// # Errors
    /// The disk fails.
    pub fn rewrite_and_sync(&self) -> Result<(), WalError> {
        self.logs.iter().flatten().try_for_each(LogReader::rewrite_last)?;
        self.logs.iter().flatten().try_for_each(LogReader::sync)
    }

    fn readers(&mut self) -> &mut [LogReader; 2] {
        self.logs.as_mut().expect("logs are open while anything is needed")
    }

    fn head(&self, side: usize) -> Option<&FrameHeader> {
        if self.pending[side] { self.logs.as_ref()?[side].header() } else { None }
    }

    /// Moves a log to its next frame with a CSN that is needed, unless it stands on one.
    fn fetch(&mut self, side: usize) -> Result<(), WalError> {
        let csn_next = self.csn_next;
        while !self.pending[side] && self.lacks[side].is_none() {
            match self.readers()[side].advance() {
                Ok(true) => {}
                Ok(false) => break,
                // Segments past a recorded cut may have been removed, see `remove_past_cut`. If it turns out
                // that something at or below the cut is missing, this is why.
                Err(missing @ WalError::SegmentMissing { .. })
                    if self.request.cut.is_some() || self.follows =>
                {
                    self.lacks[side] = Some(missing);
                    break;
                }
                Err(error) => return Err(error),
            }
            let header = self.readers()[side].header().expect("advance read one");
            self.pending[side] =
                matches!(header.kind, FrameKind::Batch { .. }) && header.csn_last >= csn_next;
        }
        Ok(())
    }

    fn check_identity(&self) -> Result<(), WalError> {
        let Some([node, extent]) = &self.logs else { return Ok(()) };
        match (node.identity(), extent.identity()) {
            (Some(a), Some(b)) if a != b => {
                Err(WalError::Mismatch { pair: self.request.log.pair, epoch: self.request.log.epoch })
            }
            _ => Ok(()),
        }
    }

    /// What is past a recorded cut does not exist.
    fn counted(&self, side: usize) -> Option<&FrameHeader> {
        let head = self.head(side)?;
        if self.request.cut.is_some_and(|cut| header_begins_past(Some(head), cut)) {
            None
        } else {
            Some(head)
        }
    }

    fn offer(&self) -> Offer {
        let heads = [self.counted(0), self.counted(1)];
        let begins = |side: usize| heads[side].filter(|head| self.is_next(head));
        match (begins(0), begins(1)) {
            (Some(a), Some(b)) => {
                let both = FrameKind::Batch { other: true };
                let same = (a.csn_first, a.csn_last) == (b.csn_first, b.csn_last);
                if same && a.kind == both && b.kind == both { Offer::Both } else { Offer::Incomplete(1) }
            }
            (Some(only), None) | (None, Some(only)) => {
                let side = usize::from(heads[0].is_none_or(|head| !self.is_next(head)));
                let alone = only.kind == FrameKind::Batch { other: false };
                let clear = heads[1 - side].is_none_or(|other| other.csn_first > only.csn_last);
                if alone && clear { Offer::Only(side) } else { Offer::Incomplete(1 - side) }
            }
            (None, None) => match heads {
                [None, None] => Offer::Nothing,
                [Some(_), None] => Offer::Incomplete(1),
                _ => Offer::Incomplete(0),
            },
        }
    }

    /// Whether a frame's batch is the one that must come next. Only the first one may begin at or below the
    /// base.
    fn is_next(&self, head: &FrameHeader) -> bool {
        let straddles = self.batches == 0 && head.csn_first < self.csn_next && head.csn_last >= self.csn_next;
        head.csn_first == self.csn_next || straddles
    }

    fn yield_batch(&mut self, which: [bool; 2]) -> Result<PairBatch<'_>, WalError> {
        let side = usize::from(!which[0]);
        let head = *self.head(side).expect("an offered frame is there");
        let place = self.readers()[side].frame_place().expect("an offered frame is there");
        let csn = self.csn_next;
        let corrupt = |damage| {
            let corruption = Corruption { csn, place, damage, proof: Proof::Sound };
            Err(WalError::Corrupt(Box::new(corruption)))
        };
        if let Some(cut) = self.request.cut.filter(|cut| *cut < head.csn_last) {
            let corruption = Corruption { csn, place, damage: Damage::CutInBatch, proof: Proof::Cut(cut) };
            return Err(WalError::Corrupt(Box::new(corruption)));
        }
        for (pending, taken) in self.pending.iter_mut().zip(which) {
            *pending &= !taken;
        }
        self.csn_next = head.csn_last.next();
        self.batches += 1;
        let readers = self.logs.as_ref().expect("logs are open while anything is needed");
        let payload = |side: usize| if which[side] { readers[side].payload() } else { &[] };
        let records = |side: usize| readers[side].header().map_or(0, |header| u64::from(header.records));
        let counted: u64 = [0, 1].into_iter().filter(|side| which[*side]).map(records).sum();
        let expected = head.csn_last.0 - head.csn_first.0 + 1;
        let batch = PairBatch {
            csn_first: head.csn_first,
            csn_last: head.csn_last,
            node: payload(0),
            extent: payload(1),
        };
        if counted == expected && batch.is_dense() { Ok(batch) } else { corrupt(Damage::Records) }
    }

    /// No complete batch follows: tear or corruption?
    fn end(&mut self, lacking: Option<usize>) -> Result<Option<PairBatch<'_>>, WalError> {
        let missing = self.csn_next;
        let head_places = [0, 1].map(|side| self.head_place(side));
        if let Some(proof) = self.required_proof(missing) {
            // With a recorded cut nothing beyond is looked at, so the readers are not run to their ends.
            let (place, damage) = self.blame(lacking, &head_places);
            return Err(self.missed(Corruption { csn: missing, place, damage, proof }));
        }
        let mut ends = Vec::with_capacity(KINDS.len());
        for reader in self.readers() {
            ends.push(reader.finish()?);
        }
        if let Some((place, damage, proof)) = self.proof(missing, lacking, &ends, &head_places) {
            return Err(self.missed(Corruption { csn: missing, place, damage, proof }));
        }
        let torn = lacking.map(|side| ends[side]).or_else(|| {
            // Bytes without a header are what a recycled file holds anyway.
            let nothing = |fault| matches!(fault, FrameFault::Zeros | FrameFault::Stale | FrameFault::Magic);
            ends.iter().copied().find(|end| !nothing(end.fault))
        });
        self.end_well(torn.map(|end| Tear { place: end.place, fault: end.fault }));
        Ok(None)
    }

    /// Something is missing: a segment that is not there is named, if that is why.
    fn missed(&mut self, corruption: Corruption) -> WalError {
        let lacked = self.lacks.iter_mut().find_map(Option::take);
        let skipped = || self.logs.iter().flatten().find_map(LogReader::skipped);
        let gone = lacked.or_else(|| skipped().map(|segment| WalError::SegmentMissing { segment }));
        gone.unwrap_or_else(|| WalError::Corrupt(Box::new(corruption)))
    }

    fn head_place(&self, side: usize) -> Option<LogPlace> {
        self.head(side)?;
        self.logs.as_ref()?[side].frame_place()
    }

    fn required_proof(&self, missing: Csn) -> Option<Proof> {
        if planted(Mutant::CallEverythingATear) {
            return None;
        }
        let cut = self.request.cut.filter(|cut| *cut >= missing).map(Proof::Cut);
        cut.or_else(|| (self.request.required >= missing).then_some(Proof::Required(self.request.required)))
    }

    /// The place to name when the batch is required but incomplete.
    fn blame(&mut self, lacking: Option<usize>, heads: &[Option<LogPlace>; 2]) -> (LogPlace, Damage) {
        let side = lacking.unwrap_or(0);
        if let Some(place) = heads[side] {
            return (place, Damage::Order);
        }
        let reader = &mut self.readers()[side];
        let fault =
            reader.advance().ok().and_then(|_| reader.end()).map_or(FrameFault::Zeros, |end| end.fault);
        (reader.place(), Damage::Frame(fault))
    }

    fn proof(
        &mut self,
        missing: Csn,
        lacking: Option<usize>,
        ends: &[LogEnd],
        heads: &[Option<LogPlace>; 2],
    ) -> Option<(LogPlace, Damage, Proof)> {
        if planted(Mutant::CallEverythingATear) {
            return None;
        }
        for (side, end) in ends.iter().enumerate() {
            let at_end = |proof| Some((end.place, Damage::Frame(end.fault), proof));
            if end.fault == FrameFault::EndOfFile || self.readers()[side].read().0 == 0 {
                return at_end(Proof::Published);
            }
            if let Some(later) = end.later {
                return at_end(Proof::LaterFrame(later));
            }
        }
        let csn_watermark = self.readers().iter().map(LogReader::csn_watermark).max().unwrap_or_default();
        if csn_watermark < missing {
            return None;
        }
        let side = lacking.unwrap_or(0);
        let (place, damage) = match heads[side] {
            Some(place) => (place, Damage::Order),
            None => (ends[side].place, Damage::Frame(ends[side].fault)),
        };
        Some((place, damage, Proof::Watermark(csn_watermark)))
    }

    fn end_well(&mut self, tear: Option<Tear>) {
        let read = self.logs.iter().flatten().map(LogReader::read);
        let (frames, frame_bytes) = read.fold((0, 0), |sum, read| (sum.0 + read.0, sum.1 + read.1));
        let cut = Csn(self.csn_next.0 - 1);
        self.ended = Some(PairLogEnd { cut, tear, batches: self.batches, frames, frame_bytes });
    }
}

fn header_begins_past(head: Option<&FrameHeader>, cut: Csn) -> bool {
    head.is_some_and(|head| head.csn_first > cut)
}
