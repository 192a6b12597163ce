//! Whether the logs have room for what is to be appended, and what becomes of it if not.

use super::PairLog;
use crate::device::LogDevice;
use crate::error::{Errno, LogRefusal};
use crate::frame::frame_bytes;
use crate::region_log::{RegionLog, Space};

impl PairLog {
    /// Tries again at once what failed for a shortage: there may be room by now.
    pub fn retry(&mut self, device: &mut dyn LogDevice) {
        self.logs.iter_mut().for_each(|log| log.retry(device));
    }

    /// Whether records of so many bytes (sums of [`crate::record::record_space`]) can be appended to the two
    /// logs in one batch, now, and will surely find their place on disk. The promise holds until the next
    /// append. What a refused operation lacks is asked for by the next [`PairLog::submit`] or
    /// [`PairLog::tick`].
    ///
    /// # Errors
    /// Why not; the operation must not be started.
    pub fn room_for(
        &mut self,
        node_bytes: usize,
        extent_bytes: usize,
        space: Space,
    ) -> Result<(), LogRefusal> {
        if self.poison.is_some() {
            return Err(LogRefusal::Poisoned);
        }
        let added = [node_bytes, extent_bytes];
        let max = self.options.operation_bytes_max();
        if let Some(bytes) = added.into_iter().find(|bytes| *bytes > max) {
            return Err(LogRefusal::TooLarge { bytes, max });
        }
        if !self.open {
            return Err(self.shortage().map_or(LogRefusal::Opening, |errno| LogRefusal::NoSpace { errno }));
        }
        // Each log is asked, also after one that refuses: what either lacks is prepared meanwhile.
        let mut room = Ok(());
        for (log, added) in self.logs.iter_mut().zip(added).filter(|(_, added)| *added > 0) {
            let frame = frame_bytes(self.batch.side(log.kind).payload_bytes + added);
            if !self.batch.is_empty() && frame > self.options.batch_bytes {
                return room.and(Err(LogRefusal::BatchFull));
            }
            let has_space = log.has_space(frame, space);
            if has_space.is_err() {
                log.note_refused(frame);
                self.room_refused = true;
            }
            room = room.and(has_space);
        }
        room
    }

    /// Asks for what operations were refused for, unless it is being prepared.
    pub(super) fn prepare_for_refused(&mut self, device: &mut dyn LogDevice) {
        if std::mem::take(&mut self.room_refused) {
            self.logs.iter_mut().for_each(|log| log.prepare_if_due(device));
        }
    }

    /// Whether as much surely finds its place on disk, if not now, then after the batch that fills. A segment
    /// that is only being prepared is none.
    #[must_use]
    pub fn has_space_for(&self, node_bytes: usize, extent_bytes: usize, space: Space) -> bool {
        let frame = |log: &RegionLog, added| frame_bytes(self.batch.side(log.kind).payload_bytes + added);
        let has_space =
            |(log, added): (&RegionLog, usize)| added == 0 || log.has_space(frame(log, added), space).is_ok();
        self.open && self.logs.iter().zip([node_bytes, extent_bytes]).all(has_space)
    }

    /// Why a log could not get its next segment, while that is so: the pair is, or will soon be, read-only.
    #[must_use]
    pub fn shortage(&self) -> Option<Errno> {
        self.logs.iter().find_map(RegionLog::shortage)
    }

    /// Bytes of filled segments that wait for a checkpoint which covers them.
    #[must_use]
    pub fn closed_bytes(&self) -> u64 {
        self.logs.iter().map(RegionLog::closed_bytes).sum()
    }

    /// Whether a checkpoint that covers all that is in the logs makes room for ordinary operations, where
    /// there is none.
    #[must_use]
    pub fn can_be_reclaimed(&self) -> bool {
        self.logs.iter().all(RegionLog::can_be_reclaimed)
    }

    /// Whether that room is also for records of so many bytes: none of them may be longer than the segments
    /// that the checkpoint gives back.
    #[must_use]
    pub fn can_be_reclaimed_for(&self, node_bytes: usize, extent_bytes: usize) -> bool {
        let finds_room =
            |(log, added): (&RegionLog, usize)| added == 0 || log.can_be_reclaimed_for(frame_bytes(added));
        self.logs.iter().zip([node_bytes, extent_bytes]).all(finds_room)
    }

    /// Bytes of the longest segments.
    #[must_use]
    pub const fn segment_bytes(&self) -> u64 {
        self.options.segment_bytes
    }
}
