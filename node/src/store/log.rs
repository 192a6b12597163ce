//! The store's side of the log: room, appending, submission, the watermarks.

use cell_recovery::image::ImageBase;
use cell_recovery::{EXTENT_RECORD_HEADER_BYTES, ExtentRecord, NodeRecord, TREE_RECORD_HEADER_BYTES_MAX};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Durability, ExtentOffset, RegionKind, SlotIndex};
use cell_tree::Geometry;
use cell_wal::{LogCounts, LogDevice, LogEvent, LogRefusal, PairLog, Space, WalError, record_space};

use super::{NoRoom, Store};

/// A batch that became durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synced {
    /// Bytes written for it, padding included.
    pub(crate) bytes: u64,
}

/// What an operation needs of the log, at the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(super) node_bytes: usize,
    pub(super) extent_bytes: usize,
    pub(super) space: Space,
}

/// Bytes of a change besides its keys or image, at the most.
pub(super) const CHANGE_BYTES_MAX: usize = 32;

/// Payload of an extent's record.
pub(crate) const fn record_bytes_max(extent_bytes: usize) -> usize {
    EXTENT_RECORD_HEADER_BYTES + extent_bytes
}

impl Need {
    /// A put that splits every tree node on its path: two images and two small changes a level.
    pub(crate) fn put(key_bytes: usize, value_bytes: usize, geometry: &Geometry, height: u8) -> Need {
        let small =
            record_space(TREE_RECORD_HEADER_BYTES_MAX + CHANGE_BYTES_MAX + key_bytes.max(geometry.key_max()));
        let image = record_space(TREE_RECORD_HEADER_BYTES_MAX + CHANGE_BYTES_MAX + geometry.node_bytes());
        let extent = record_bytes_max(value_bytes + cell_memory::extent::HEADER_BYTES_MAX as usize);
        Need {
            node_bytes: (usize::from(height) + 2) * (image + 2 * small),
            extent_bytes: record_space(extent),
            space: Space::Ordinary,
        }
    }

    /// A delete; it may use the reserve, so that a full disk can be emptied.
    pub(crate) fn delete(key_bytes: usize) -> Need {
        let bytes = record_space(TREE_RECORD_HEADER_BYTES_MAX + CHANGE_BYTES_MAX + key_bytes);
        Need { node_bytes: bytes, extent_bytes: 0, space: Space::Reserve }
    }

    /// A result without a change.
    pub(crate) fn outcome() -> Need {
        Need {
            node_bytes: record_space(TREE_RECORD_HEADER_BYTES_MAX),
            extent_bytes: 0,
            space: Space::Reserve,
        }
    }
}

impl Store {
    /// Whether the log surely takes what an operation appends. Only then may it begin.
    pub(crate) fn log_room(&mut self, need: &Need) -> Result<(), NoRoom> {
        let Some(log) = &self.log else { return Ok(()) };
        match log.room_for(need.node_bytes, need.extent_bytes, need.space) {
            Ok(()) => Ok(()),
            Err(LogRefusal::NoSpace { .. }) => {
                self.relief.wanted = true;
                if self.relief.comes {
                    return Err(NoRoom::LogBusy);
                }
                self.no_room = Some(NoRoom::DiskFull);
                Err(NoRoom::DiskFull)
            }
            Err(LogRefusal::TooLarge { .. }) => Err(NoRoom::Region),
            Err(_) => Err(NoRoom::LogBusy),
        }
    }

    /// Whether the disk has no room for the log's next segment.
    pub(crate) fn is_log_short(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.shortage().is_some())
    }

    /// Whether a checkpoint helps if the disk has, or will have, no room for the log's next segment.
    pub(crate) fn can_be_relieved(&self) -> bool {
        self.log.as_ref().is_some_and(cell_wal::PairLog::can_be_relieved)
    }

    /// A checkpoint will make room for the log, or none will: writes wait, or are refused. What it was
    /// before.
    pub(crate) fn set_relief_comes(&mut self, comes: bool) -> bool {
        std::mem::replace(&mut self.relief.comes, comes)
    }

    /// Whether a write was kept back for want of log space, which a checkpoint can make.
    pub(crate) fn wants_relief(&self) -> bool {
        self.relief.wanted && self.is_log_short() && self.can_be_relieved()
    }

    /// Bytes of log that a checkpoint gives back, and of one segment.
    pub(crate) fn log_bytes_closed(&self) -> (u64, u64) {
        self.log.as_ref().map_or((0, 0), |log| (log.closed_bytes(), log.segment_bytes()))
    }

    /// Whether a write with such a value has to wait: for the batch in flight, the next segment, a checkpoint
    /// that makes room for it, or a check.
    pub(crate) fn write_must_wait(&mut self, slot: SlotIndex, value_bytes: usize) -> bool {
        let need = Need::put(0, value_bytes, &self.geometry, self.meganodes.height(slot));
        self.checking || self.log_room(&need) == Err(NoRoom::LogBusy)
    }

    /// Whether there is a log at all.
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// The last CSN handed out.
    pub(crate) fn appended(&self) -> Csn {
        self.log.as_ref().map_or(self.csn_unlogged, cell_wal::PairLog::csn_appended)
    }

    /// The durable watermark; without a log, what has been written.
    pub(crate) fn durable(&self) -> Csn {
        self.log.as_ref().map_or(self.csn_unlogged, cell_wal::PairLog::csn_durable)
    }

    /// What may be seen.
    pub(crate) fn visible(&self) -> Csn {
        match self.durability {
            Durability::Sync => self.durable(),
            Durability::Async | Durability::None => self.appended(),
        }
    }

    /// What the log has counted; nothing without one.
    pub(crate) fn log_counts(&self) -> LogCounts {
        self.log.as_ref().map(cell_wal::PairLog::counts).unwrap_or_default()
    }

    /// Whether nothing waits for the log.
    pub(crate) fn is_idle(&self) -> bool {
        self.log.as_ref().is_none_or(|log| !log.has_unsubmitted() && !log.is_busy())
    }

    pub(super) fn append_node(&mut self, record: &NodeRecord<'_>) -> Csn {
        match &mut self.log {
            Some(log) => log.append(RegionKind::Node, |_, out| record.encode(out)).csn,
            None => {
                self.csn_unlogged = self.csn_unlogged.next();
                self.csn_unlogged
            }
        }
    }

    /// Memory holds everything up to `csn`: what is visible at once is.
    pub(super) fn written(&mut self, csn: Csn) {
        match self.durability {
            Durability::Sync => {}
            Durability::Async => self.memory.set_watermark(self.durable(), csn),
            Durability::None => self.memory.set_watermark(csn, csn),
        }
    }

    /// Submits the batch that filled, unless one is in flight: its last CSN, if it was submitted.
    pub(crate) fn submit(&mut self, device: &mut dyn LogDevice) -> Result<Option<Csn>, WalError> {
        let Some(log) = &mut self.log else { return Ok(None) };
        let last = log.csn_appended();
        Ok(log.submit(device)?.then_some(last))
    }

    /// Seals an idle log, tries again what failed for a shortage.
    pub(crate) fn log_tick(&mut self, now_ns: u64, device: &mut dyn LogDevice) -> Result<(), WalError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.tick(std::time::Duration::from_nanos(now_ns), device)?;
        if self.no_room == Some(NoRoom::DiskFull) && log.shortage().is_none() {
            self.no_room = None;
        }
        Ok(())
    }

    /// Takes an event of the device; says what became durable.
    pub(crate) fn log_event(
        &mut self,
        event: LogEvent,
        device: &mut dyn LogDevice,
    ) -> Result<Option<Synced>, WalError> {
        let Some(log) = &mut self.log else { return Ok(None) };
        let before = log.counts().frame_bytes;
        let Some(durable) = log.on_event(event, device)? else { return Ok(None) };
        let bytes = log.counts().frame_bytes - before;
        let visible = self.visible();
        self.memory.set_watermark(durable, visible);
        Ok(Some(Synced { bytes }))
    }

    /// What an image begins with.
    pub(crate) fn image_base(&self) -> ImageBase {
        let root = self.node.root();
        ImageBase::capture(self.durable(), self.appended(), root, &self.completions, &self.splits)
    }

    /// A checkpoint with base `base` is recorded: log below it may go.
    pub(crate) fn release_log(&mut self, base: Csn, device: &mut dyn LogDevice) {
        self.checkpointed = base;
        self.relief.wanted = false;
        let base = if planted(Mutant::ReleaseTooMuch) { self.durable() } else { base };
        if let Some(log) = &mut self.log {
            log.release_below(base, device);
        }
    }

    /// Whether a check walks the trees.
    pub(crate) fn is_checking(&self) -> bool {
        self.checking
    }

    /// A check begins: writes wait, reads go on.
    pub(crate) fn begin_check(&mut self) {
        self.checking = true;
    }

    pub(crate) fn end_check(&mut self) {
        self.checking = false;
    }
}

/// Appends the record of an extent, if there is a log.
pub(super) fn append_extent(log: Option<&mut PairLog>, offset: ExtentOffset, bytes: &[u8]) {
    if let Some(log) = log {
        log.append_sized(RegionKind::Extent, record_bytes_max(bytes.len()), |_, payload| {
            let (header, extent) = payload.split_at_mut(payload.len() - bytes.len());
            header.copy_from_slice(&ExtentRecord::header(offset));
            extent.copy_from_slice(bytes);
        });
    }
}
