//! A restore that began before its claim: it follows a log that is still being written ([`crate::PairCopy`]).

use cell_cluster::PairRow;
use cell_memory::Region;
use cell_terms::{Csn, SlotIndex};
use cell_tree::{NodeIndex, TreeNodeState};
use cell_wal::{ReadRequest, WalError};

use super::{Lanes, Reading, Restore, Stage};
use crate::error::{CopyFault, RecoveryError};
use crate::replay::{ExtentApplier, NodeApplier};
use crate::split::SlotUse;
use crate::verify::{Part, verify_part};

/// How often the last of a handed pair's log is looked for, where it is not seen at once.
const LOOKS_MAX: u32 = 2_000;

/// What a restore knows that began before its claim.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// The highest CSN of the image: below it the copy is not whole.
    pub(crate) required: Csn,
    /// Everything up to here was read.
    pub(crate) reached: Csn,
    /// Bytes of the present round.
    pub(crate) round_bytes: u64,
    /// Of the log that is followed, bytes that were sure to be read when the copy began.
    pub(crate) log_bytes_expected: u64,
    /// By slot: up to where its leaves' extents were checked; none of what was not settled then.
    pub(crate) verified: Vec<Option<Csn>>,
    /// Where the logs end, once the pair was handed over.
    pub(crate) cut: Option<Csn>,
    /// How often the rest was looked for since.
    pub(crate) looks: u32,
}

impl Restore {
    pub(super) fn note_round(&mut self, reading: &mut Reading, bytes: usize) {
        let read = u64::try_from(bytes).unwrap_or(u64::MAX);
        reading.bytes_read += read;
        self.progress.read(read);
        if let Some(copied) = &mut self.copied {
            copied.round_bytes += read;
            copied.reached = reading.reader.reached();
        }
    }

    /// Whether these logs are still being written, and are to be followed.
    pub(super) fn follows(&self, request: &ReadRequest) -> bool {
        self.copied.is_some() && request.cut.is_none()
    }

    /// Looks for what has come to a log that is being written, or, after the handing, for what is left up to
    /// the cut. What does not read then is looked for a number of times: all of it was durable at its owner.
    pub(super) fn follow(&mut self, mut reading: Box<Reading>, lanes: Lanes) -> Result<Stage, RecoveryError> {
        let Some(copied) = &mut self.copied else { return Err(RecoveryError::GivenUp) };
        copied.looks += u32::from(copied.cut.is_some());
        if let Some(cut) = copied.cut.filter(|_| copied.looks > LOOKS_MAX) {
            return Err(CopyFault::Behind { cut, copied: reading.reader.reached() }.into());
        }
        copied.round_bytes = 0;
        match reading.reader.look_again(copied.cut) {
            Ok(()) => Ok(Stage::Read(reading, lanes)),
            // Not listed yet.
            Err(WalError::SegmentMissing { .. }) => Ok(Stage::Follow(reading, lanes)),
            Err(error) => Err(error.into()),
        }
    }

    /// A copy is made on the thread of who steps it, a bounded piece at a time.
    pub(super) fn threads_of_lanes(&self) -> usize {
        if self.copied.is_some() { 1 } else { self.environment.options.threads }
    }

    /// Both regions' memory, once there is some.
    pub(crate) fn regions(&self) -> Option<[Region; 2]> {
        let (node, extent) = self.lanes()?;
        Some([node.writer.region().clone(), extent.writer.region().clone()])
    }

    /// The appliers of a copy, while it is made.
    fn lanes(&self) -> Option<(&NodeApplier, &ExtentApplier)> {
        let (Stage::Load(_, lanes) | Stage::Next(lanes) | Stage::Read(_, lanes) | Stage::Follow(_, lanes)) =
            &self.stage
        else {
            return None;
        };
        Some((lanes.node.here()?, lanes.extent.here()?))
    }

    /// Whether all that is there of the owner's log was read.
    pub(crate) fn is_caught_up(&self) -> bool {
        matches!(self.stage, Stage::Follow(..))
    }

    /// Checks the next slot of a copy that has caught up; false once all are. What takes several batches to
    /// become whole is left to the check at the end.
    pub(crate) fn verify_next(&mut self) -> Result<bool, RecoveryError> {
        let Some((node, extent)) = self.lanes() else { return Ok(true) };
        let Some(copied) = &self.copied else { return Ok(false) };
        if copied.reached < copied.required || !node.lacks_nothing() {
            return Ok(true); // the image is not whole yet
        }
        let nodes_end = node.nodes_end();
        let (at, reached) = (copied.verified.len(), copied.reached);
        let Some(end) = nodes_end.get(at).copied() else { return Ok(false) };
        let slot = SlotIndex(u32::try_from(at).unwrap_or(u32::MAX));
        let used = node.splits.slot_use(slot);
        let is_settled = used != SlotUse::Free && node.splits.target_of(slot).is_none();
        let is_whole = is_settled && !node.has_hidden(slot) && end > NodeIndex::ROOT;
        let mut checked = None;
        if is_whole {
            let slot = self.slot(slot);
            let (geometry, state) = (self.geometry, TreeNodeState::Valid);
            let part = Part { geometry, slot, used, state, nodes_end: end, checked: None };
            let threads = self.environment.options.threads;
            let (node, extent) = (node.writer.region(), extent.writer.region());
            checked = verify_part(node, extent, part, threads, &self.progress)?.then_some(reached);
        }
        self.copied.iter_mut().for_each(|copied| copied.verified.push(checked));
        Ok(true)
    }

    /// The handing has made a copy what was claimed: the logs end at the cut.
    pub(crate) fn hand(&mut self, row: PairRow, cut: Csn) {
        self.claim.ownership.epoch = row.epoch;
        self.claim.row = row;
        self.copied.iter_mut().for_each(|copied| copied.cut = Some(cut));
    }
}
