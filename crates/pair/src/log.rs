//! The two logs of a pair as one commit log: room, appending, submission, the watermarks. Without logs
//! (`durability = none`) it only counts.

use cell_recovery::{EXTENT_RECORD_HEADER_BYTES, ExtentRecord, NodeRecord, TREE_RECORD_HEADER_BYTES_MAX};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Durability, ExtentOffset, RegionKind};
use cell_tree::Geometry;
use cell_wal::{
    LogCounts, LogDevice, LogEvent, LogRefusal, LogSegments, LogTimes, PairLog, Space, WalError, record_space,
};

use crate::error::NoRoom;

/// What an operation needs of the log, at the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogNeed {
    pub(crate) node_bytes: usize,
    pub extent_bytes: usize,
    pub(crate) space: Space,
}

/// Bytes of a change besides its keys or image, at the most.
pub(crate) const CHANGE_BYTES_MAX: usize = 32;
/// The record of a split's step besides its keys, completions and bits, at the most.
const STEP_BYTES_MAX: usize = 128;

/// Payload of an extent's record.
const fn record_bytes_max(extent_bytes: usize) -> usize {
    EXTENT_RECORD_HEADER_BYTES + extent_bytes
}

impl LogNeed {
    /// A put that splits every tree node on its path: two images and two small changes a level.
    pub(crate) fn put(key_bytes: usize, value_bytes: usize, geometry: &Geometry, height: u8) -> LogNeed {
        let small =
            record_space(TREE_RECORD_HEADER_BYTES_MAX + CHANGE_BYTES_MAX + key_bytes.max(geometry.key_max()));
        let image = record_space(TREE_RECORD_HEADER_BYTES_MAX + CHANGE_BYTES_MAX + geometry.node_bytes());
        let extent = record_bytes_max(value_bytes + cell_memory::extent::HEADER_BYTES_MAX as usize);
        let node_bytes = (usize::from(height) + 2) * (image + 2 * small);
        LogNeed {
            node_bytes: if planted(Mutant::LogNeedShort) { image } else { node_bytes },
            extent_bytes: record_space(extent),
            space: Space::Ordinary,
        }
    }

    /// A delete; it may use the reserve, so that a full disk can be emptied.
    pub(crate) fn delete(key_bytes: usize) -> LogNeed {
        let bytes = record_space(TREE_RECORD_HEADER_BYTES_MAX + CHANGE_BYTES_MAX + key_bytes);
        LogNeed { node_bytes: bytes, extent_bytes: 0, space: Space::Reserve }
    }

    /// A result without a change.
    pub(crate) fn outcome() -> LogNeed {
        let bytes = record_space(TREE_RECORD_HEADER_BYTES_MAX);
        LogNeed { node_bytes: bytes, extent_bytes: 0, space: Space::Reserve }
    }

    /// A step of a split with so many bytes of keys and the like: it may use the reserve, so that a full disk
    /// leaves no split in the middle.
    pub(crate) fn step(bytes: usize) -> LogNeed {
        let bytes = record_space(STEP_BYTES_MAX + bytes);
        LogNeed { node_bytes: bytes, extent_bytes: 0, space: Space::Reserve }
    }

    /// The one tree node of a merge's target, filled anew: it may use the reserve, as any step.
    pub(crate) fn extension(geometry: &Geometry) -> LogNeed {
        LogNeed { space: Space::Reserve, ..LogNeed::fills(1, geometry) }
    }

    /// What surely suffices for either of two.
    pub(crate) fn longest(self, other: &LogNeed) -> LogNeed {
        LogNeed {
            node_bytes: self.node_bytes.max(other.node_bytes),
            extent_bytes: self.extent_bytes.max(other.extent_bytes),
            space: if self.space == Space::Ordinary { self.space } else { other.space },
        }
    }

    /// So many whole tree nodes.
    pub(crate) fn fills(count: usize, geometry: &Geometry) -> LogNeed {
        let fill = record_space(STEP_BYTES_MAX + geometry.node_bytes());
        LogNeed { node_bytes: count * fill, extent_bytes: 0, space: Space::Ordinary }
    }
}

/// A batch that became durable.
#[derive(Clone, Copy, Debug)]
pub struct SyncedBatch {
    /// Bytes written for it, padding included.
    pub bytes: u64,
}

/// What a checkpoint can do for a log that the disk has no room for.
#[derive(Clone, Copy, Debug, Default)]
struct ReclaimCheckpoint {
    /// A write was kept back for want of room.
    wanted: bool,
    /// A checkpoint makes room, or is about to: writes wait for it.
    expected: bool,
}

/// See the module's text.
pub(crate) struct CommitLog {
    log: Option<PairLog>,
    /// The last CSN, where there is no log.
    csn_unlogged: Csn,
    durability: Durability,
    reclaim: ReclaimCheckpoint,
}

impl CommitLog {
    /// The last CSN before it is `csn`.
    pub(crate) fn new(log: Option<PairLog>, csn: Csn, durability: Durability) -> CommitLog {
        CommitLog { log, csn_unlogged: csn, durability, reclaim: ReclaimCheckpoint::default() }
    }

    /// See [`PairLog::set_times`].
    pub(crate) fn set_times(&mut self, times: LogTimes) {
        if let Some(log) = &mut self.log {
            log.set_times(times);
        }
    }

    /// Whether the log surely takes what an operation appends. Only then may it begin.
    pub(crate) fn room(&mut self, need: &LogNeed) -> Result<(), NoRoom> {
        let Some(log) = &mut self.log else { return Ok(()) };
        match log.room_for(need.node_bytes, need.extent_bytes, need.space) {
            Ok(()) => Ok(()),
            Err(LogRefusal::NoSpace { .. }) => {
                // No checkpoint makes room for a record that is longer than the segments that there are.
                let helps = log.can_be_reclaimed_for(need.node_bytes, need.extent_bytes);
                self.reclaim.wanted |= helps;
                Err(if self.reclaim.expected && helps { NoRoom::LogBusy } else { NoRoom::DiskFull })
            }
            Err(LogRefusal::TooLarge { .. }) => Err(NoRoom::Region),
            Err(_) => Err(NoRoom::LogBusy),
        }
    }

    /// Whether the log has room on disk for what an operation appends, now or once the batch that fills is
    /// submitted; nothing waits for it.
    pub(crate) fn has_space_for(&self, need: &LogNeed) -> bool {
        let LogNeed { node_bytes, extent_bytes, space } = *need;
        self.log.as_ref().is_some_and(|log| log.has_space_for(node_bytes, extent_bytes, space))
    }

    /// Whether the disk has no room for the log's next segment.
    pub(crate) fn is_short(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.shortage().is_some())
    }

    /// Whether a checkpoint helps if the disk has, or will have, no room for the log's next segment.
    pub(crate) fn can_be_reclaimed(&self) -> bool {
        self.log.as_ref().is_some_and(PairLog::can_be_reclaimed)
    }

    /// A checkpoint will make room for the log, or none will: writes wait, or are refused. What it was
    /// before.
    pub(crate) fn set_reclaim_expected(&mut self, expected: bool) -> bool {
        std::mem::replace(&mut self.reclaim.expected, expected)
    }

    /// Whether a write was kept back for want of log space, which a checkpoint can make.
    pub(crate) fn needs_reclaim(&self) -> bool {
        self.reclaim.wanted && self.is_short() && self.can_be_reclaimed()
    }

    /// Bytes of log that a checkpoint gives back, and of the longest segments.
    pub(crate) fn closed_bytes(&self) -> (u64, u64) {
        self.log.as_ref().map_or((0, 0), |log| (log.closed_bytes(), log.segment_bytes()))
    }

    /// Whether there is a log at all. If not, records are only counted, and need not be made.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.log.is_some()
    }

    /// The last CSN handed out.
    #[inline]
    pub(crate) fn appended(&self) -> Csn {
        self.log.as_ref().map_or(self.csn_unlogged, PairLog::csn_appended)
    }

    /// The durable watermark; without a log, what has been written.
    #[inline]
    pub(crate) fn durable(&self) -> Csn {
        self.log.as_ref().map_or(self.csn_unlogged, PairLog::csn_durable)
    }

    /// Damage to what is durable up to here is found, whatever it is; without a log, what has been written.
    pub(crate) fn sealed(&self) -> Csn {
        self.log.as_ref().map_or(self.csn_unlogged, PairLog::csn_sealed)
    }

    /// What is durable up to here is sealed soon, and not only after an idle time.
    pub(crate) fn want_seal(&mut self, upto: Csn) {
        if let Some(log) = &mut self.log {
            log.want_seal(upto);
        }
    }

    /// What may be seen.
    #[inline]
    pub(crate) fn visible(&self) -> Csn {
        match self.durability {
            Durability::Sync => self.durable(),
            Durability::Async | Durability::None => self.appended(),
        }
    }

    /// What is durable and what may be seen once memory holds everything up to `csn`, where that is more
    /// than before.
    pub(crate) fn raised_by(&self, csn: Csn) -> Option<(Csn, Csn)> {
        match self.durability {
            Durability::Sync => None,
            Durability::Async => Some((self.durable(), csn)),
            Durability::None => Some((csn, csn)),
        }
    }

    /// What the log has counted; nothing without one.
    pub(crate) fn counts(&self) -> LogCounts {
        self.log.as_ref().map(PairLog::counts).unwrap_or_default()
    }

    /// The segments of both logs; none without logs.
    pub(crate) fn segments(&self) -> Option<[LogSegments; 2]> {
        self.log.as_ref().map(PairLog::segments)
    }

    /// Bytes of records that are not durable yet.
    pub(crate) fn bytes_pending(&self) -> u64 {
        self.log.as_ref().map_or(0, PairLog::bytes_pending)
    }

    /// Whether a write is on its way to the disk.
    pub(crate) fn is_busy(&self) -> bool {
        self.log.as_ref().is_some_and(PairLog::is_busy)
    }

    /// Whether nothing waits for the log.
    pub(crate) fn is_idle(&self) -> bool {
        self.log.as_ref().is_none_or(|log| !log.has_unsubmitted() && !log.is_busy())
    }

    /// Appends a record of the node region; its CSN.
    pub(crate) fn append_node(&mut self, record: &NodeRecord<'_>) -> Csn {
        match &mut self.log {
            Some(log) => log.append(RegionKind::Node, |_, out| record.encode(out)).csn,
            None => self.count(1),
        }
    }

    /// Appends the record of an extent.
    pub(crate) fn append_extent(&mut self, offset: ExtentOffset, bytes: &[u8]) {
        let Some(log) = &mut self.log else {
            self.count(1);
            return;
        };
        log.append_sized(RegionKind::Extent, record_bytes_max(bytes.len()), |_, payload| {
            let (header, extent) = payload.split_at_mut(payload.len() - bytes.len());
            header.copy_from_slice(&ExtentRecord::header(offset));
            extent.copy_from_slice(bytes);
        });
    }

    /// Counts so many records that are not kept; the CSN of the last.
    pub(crate) fn count(&mut self, records: u64) -> Csn {
        self.csn_unlogged = Csn(self.csn_unlogged.0 + records);
        self.csn_unlogged
    }

    /// Submits the batch that filled, unless one is in flight: its last CSN, if it was submitted.
    pub(crate) fn submit(&mut self, device: &mut dyn LogDevice) -> Result<Option<Csn>, WalError> {
        let Some(log) = &mut self.log else { return Ok(None) };
        let last = log.csn_appended();
        Ok(log.submit(device)?.then_some(last))
    }

    /// Seals an idle log, tries again what failed for a shortage.
    pub(crate) fn tick(&mut self, now_ns: u64, device: &mut dyn LogDevice) -> Result<(), WalError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.tick(std::time::Duration::from_nanos(now_ns), device)
    }

    /// Takes an event of the device. What became durable, and up to which CSN everything is.
    pub(crate) fn on_event(
        &mut self,
        event: LogEvent,
        device: &mut dyn LogDevice,
    ) -> Result<Option<(SyncedBatch, Csn)>, WalError> {
        let Some(log) = &mut self.log else { return Ok(None) };
        let before = log.counts().frame_bytes;
        let Some(durable) = log.on_event(event, device)? else { return Ok(None) };
        Ok(Some((SyncedBatch { bytes: log.counts().frame_bytes - before }, durable)))
    }

    /// A checkpoint covers the log up to `base`: segments below it may go.
    pub(crate) fn release_below(&mut self, base: Csn, device: &mut dyn LogDevice) {
        self.reclaim.wanted = false;
        if let Some(log) = &mut self.log {
            log.release_below(base, device);
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_memory::extent::{ExtentEncoder, ExtentHeader};
    use cell_recovery::{SplitName, SplitRecord, WriteCompletion, WriteOutcome};
    use cell_terms::{Epoch, OperationNumber, PairId, Pointer, RegionId, SessionId, SlotIndex, Version};
    use cell_tree::{Change, Image, LeafEntry, Meganode, NodeIndex, Plan, Slot, SlotAllocator};

    use super::*;

    const SLOT: Slot = Slot { region: RegionId(2), index: SlotIndex(0) };
    const COMPLETION: WriteCompletion = WriteCompletion {
        session: SessionId(u64::MAX),
        number: OperationNumber(u64::MAX),
        floor: OperationNumber(u64::MAX),
        outcome: WriteOutcome::Written {
            version: Version { pair: PairId(1), epoch: Epoch(1), csn: Csn(1) },
            replaced: true,
        },
    };

    /// Bytes that the records of a planned put take in a log.
    fn record_bytes(plan: &Plan) -> usize {
        let record = |(index, change)| {
            let completion = (index + 1 == plan.len()).then_some(COMPLETION);
            let mut bytes = Vec::new();
            NodeRecord::Tree { slot: SLOT.index, completion, change }.encode(&mut bytes);
            record_space(bytes.len())
        };
        plan.changes().enumerate().map(record).sum()
    }

    /// Fills a meganode with keys that are as long as they may be, which come in no order.
    fn fill_by_what_was_asked_for() {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let mut words = vec![0; geometry.slot_word(SLOT.index) + geometry.nodes() * geometry.node_words()];
        let image = cell_tree::empty_root(geometry);
        let root = Change::Fill { node: NodeIndex::ROOT, image: Image::new(&image) };
        cell_tree::apply(&mut words[..], geometry, SLOT, &root, Csn(1));
        let (mut allocator, mut plan, mut csn) = (SlotAllocator::new(geometry.nodes()), Plan::new(), Csn(1));
        let mut splits = 0;
        for number in 0..10_000_u64 {
            let key = format!("{:0width$}", number * 7919 % 10_007, width = geometry.key_max());
            let need = LogNeed::put(key.len(), 8, &geometry, allocator.height());
            let entry = LeafEntry { offset: ExtentOffset(4), value_len: 8, crc: number };
            let meganode = Meganode::new(&words[..], geometry, SLOT);
            let planned = cell_tree::plan_put(&meganode, &mut allocator, key.as_bytes(), entry, &mut plan);
            if planned.is_err() {
                break;
            }
            let bytes = record_bytes(&plan);
            assert!(bytes <= need.node_bytes, "put {number}: {bytes} bytes, and {need:?} was asked for");
            for change in plan.changes() {
                csn = csn.next();
                cell_tree::apply(&mut words[..], geometry, SLOT, &change, csn);
            }
            splits += u32::from(plan.len() > 1);
            plan.commit(&mut allocator);
        }
        assert!(splits > 50 && allocator.height() > 1, "{splits} splits, {} levels", allocator.height());
    }

    /// Bytes of a record in a log.
    fn space_of(record: &NodeRecord<'_>) -> usize {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        record_space(bytes.len())
    }

    /// What does not fit would find no place in the log; what asks for far more is refused without need.
    fn assert_suffices(need: usize, used: usize) {
        assert!(need >= used, "{used} bytes, and {need} were asked for");
        assert!(need <= 2 * used + 2 * STEP_BYTES_MAX, "{used} bytes, and as many as {need} were asked for");
    }

    #[test]
    fn deletes_and_outcomes_take_no_more_of_the_log_than_was_asked_for() {
        let longest = Geometry::new(4096, 64 << 10, 4096).unwrap().key_max();
        for key in [vec![7], vec![7; 100], vec![7; longest]] {
            let change = Change::Remove { node: NodeIndex(u32::MAX), key: &key };
            let record = NodeRecord::Tree { slot: SLOT.index, completion: Some(COMPLETION), change };
            assert_suffices(LogNeed::delete(key.len()).node_bytes, space_of(&record));
        }
        assert_suffices(LogNeed::outcome().node_bytes, space_of(&NodeRecord::Outcome(COMPLETION)));
    }

    /// A step that is longer than was asked for would leave a split in the middle.
    #[test]
    fn steps_and_fills_take_no_more_of_the_log_than_was_asked_for() {
        let name = SplitName { pair: PairId(1), epoch: Epoch(1), csn: Csn(1) };
        let (slot, right) = (SLOT.index, Pointer::NULL);
        let kept = [3; 1_000];
        for key in [vec![], vec![7; 40], vec![7; 400]] {
            let (low, high) = (&key[..], Some(&key[..]));
            let adopt = SplitRecord::Adopt { name, slot, low, high, right, kept: &kept };
            let need = LogNeed::step(2 * key.len() + kept.len());
            assert_suffices(need.node_bytes, space_of(&NodeRecord::Split(adopt)));
            let start = SplitRecord::Start { slot, key: &key, target: PairId(1), target_slot: slot };
            assert_suffices(LogNeed::step(key.len()).node_bytes, space_of(&NodeRecord::Split(start)));
        }
        let discarded = NodeRecord::Split(SplitRecord::Discarded { name, slot });
        assert_suffices(LogNeed::step(0).node_bytes, space_of(&discarded));
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        // An image without a free middle is as long as its tree node.
        let image = vec![u64::MAX; geometry.node_words()];
        let change = Change::Fill { node: NodeIndex(1), image: Image::new(&image) };
        let fill = space_of(&NodeRecord::Tree { slot, completion: None, change });
        assert!(fill > 512);
        for count in 1..5 {
            assert_suffices(LogNeed::fills(count, &geometry).node_bytes, count * fill);
        }
    }

    #[test]
    fn extent_takes_no_more_of_the_log_than_was_asked_for() {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let mut encoder = ExtentEncoder::new();
        let (shortest, moved) = (ExtentHeader::default(), Some(Version::default()));
        let longest = ExtentHeader { moved, expiry_ms: Some(1), ..shortest };
        for value_bytes in [0, 1, 100, 4_000, 100_000] {
            for header in [&shortest, &longest] {
                let encoded = encoder.encode(header, &vec![7; value_bytes]).unwrap();
                let need = LogNeed::put(1, value_bytes, &geometry, 1).extent_bytes;
                assert_suffices(need, record_space(EXTENT_RECORD_HEADER_BYTES + encoded.bytes.len()));
            }
        }
    }

    /// A full disk would leave a merge in the middle.
    #[test]
    fn merge_that_has_started_has_the_reserve_for_all_of_its_steps() {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let needs = [LogNeed::step(0), LogNeed::extension(&geometry), LogNeed::delete(0)];
        assert_eq!(needs.map(|need| need.space), [Space::Reserve; 3]);
        assert_eq!(LogNeed::extension(&geometry).node_bytes, LogNeed::fills(1, &geometry).node_bytes);
    }

    /// A pair that was refused a long put and a delete finds room again when there is some for either.
    #[test]
    fn need_that_suffices_for_two_is_the_larger_in_each_part_and_ordinary_if_one_is() {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let parts = |need: LogNeed| (need.node_bytes, need.extent_bytes, need.space);
        let (put, delete, step) =
            (LogNeed::put(8, 100, &geometry, 1), LogNeed::delete(8), LogNeed::step(9_999));
        assert_eq!(parts(put.longest(&delete)), parts(put));
        assert_eq!(parts(delete.longest(&put)), parts(put));
        let both = (step.node_bytes, put.extent_bytes, Space::Ordinary);
        assert_eq!([put.longest(&step), step.longest(&put)].map(parts), [both, both]);
        assert_eq!(parts(delete.longest(&step)), parts(step));
    }

    /// Whoever writes without waiting for the disk shows it at once; what is durable is another number then.
    #[test]
    fn what_may_be_seen_goes_by_durability() {
        for (durability, raised) in [
            (Durability::Sync, None),
            (Durability::Async, Some((Csn(8), Csn(9)))),
            (Durability::None, Some((Csn(9), Csn(9)))),
        ] {
            let mut log = CommitLog::new(None, Csn(7), durability);
            assert_eq!(log.append_node(&NodeRecord::Outcome(COMPLETION)), Csn(8));
            assert_eq!((log.durable(), log.visible()), (Csn(8), Csn(8)), "there is no disk");
            assert_eq!(log.raised_by(Csn(9)), raised, "{durability:?}");
        }
    }

    #[test]
    fn put_takes_no_more_of_the_log_than_was_asked_for() {
        fill_by_what_was_asked_for();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_log_need_short_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::LogNeedShort));
            let passed = std::panic::catch_unwind(fill_by_what_was_asked_for).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-pair's log", Mutant::LogNeedShort.name());
        });
    }
}
