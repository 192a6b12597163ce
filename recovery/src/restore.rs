//! Restoring a claimed pair in fresh memory, a step at a time: a core over `cell_wal`'s storage and the
//! coordinator, without a clock of its own. Production calls [`Restore::step`] in a loop on a control thread;
//! the simulator stops between any two steps.
//!
//! Claim -> image -> for each needed epoch: logs, cut synced and recorded -> sessions -> verification. A step
//! that failed for a reason that may pass ([`RecoveryError::is_transient`]) can be called again; after any
//! other failure the restore is dropped and the pair reported.

mod expected;
mod following;

use std::sync::Arc;

use cell_cluster::{Claim, ClaimReason, ClusterError, Layout, NewPair, Ownership};
use cell_memory::{HEADER_BYTES, MemoryError, PairWriter, Region, RegionSpec, RegionWriter};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, Incarnation, NodeId, PairId, RegionKind, Root, SlotIndex};
use cell_tree::{Geometry, NodeIndex, Slot, TreeNodeState};
use cell_wal::segment::LogPlace;
use cell_wal::{PairReader, Predecessor, ReadOptions};

use crate::completion::CompletionTable;
use crate::cut::Plan;
use crate::environment::{Environment, RegionSource};
use crate::error::RecoveryError;
use crate::first::FirstContent;
use crate::folders::highest_epoch;
use crate::lane::Lane;
use crate::load::Load;
use crate::progress::{Progress, RecoveryStage};
use crate::recovered::{OpenSessions, Recovered, Restored, check_adoptions, entries_of};
use crate::replay::{Chunk, ExtentApplier, ImageSource, NodeApplier, Work};
use crate::split::{SlotUse, SplitTable, TargetState};
use crate::verify::{Part, verify};

pub(crate) use following::Copied;

/// Log bytes that one step replays, about.
const STEP_BYTES: usize = 4 << 20;
/// Image blocks that one step loads.
const STEP_BLOCKS: usize = 8;

/// Who takes which pair over, and by what right.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRequest {
    /// The pair.
    pub pair: PairId,
    /// The new owner.
    pub incarnation: Incarnation,
    /// Its node.
    pub node: NodeId,
    /// Why the logs may be cut.
    pub reason: ClaimReason,
}

/// What a step left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Step again.
    More,
    /// Step again a moment later: what is to be read is not there yet.
    Later,
    /// Everything is restored and verified: [`Restore::finish`].
    Done,
}

/// A claimed pair that is being restored.
pub struct Restore {
    environment: Environment,
    claim: Claim,
    progress: Arc<Progress>,
    geometry: Geometry,
    /// What the pair begins with follows from it.
    layout: Layout,
    plan: Plan,
    image_bytes: u64,
    log_bytes: u64,
    /// Of the logs that were read.
    log_ends: Vec<LogPlace>,
    /// It began before its claim: see [`crate::PairCopy`].
    pub(crate) copied: Option<Copied>,
    stage: Stage,
}

enum Stage {
    Begin,
    Load(Box<Load>, Lanes),
    Next(Lanes),
    Read(Box<Reading>, Lanes),
    /// All that is there of a log that is still being written was read.
    Follow(Box<Reading>, Lanes),
    Cut {
        found: Box<Found>,
        lanes: Lanes,
    },
    Join(Lanes),
    Sessions(Box<Memory>),
    Verify(Box<Memory>, OpenSessions),
    Done(Box<Recovered>),
    Failed,
}

/// Both regions' appliers, and the chunks that are being filled for them.
struct Lanes {
    node: Lane<NodeApplier>,
    extent: Lane<ExtentApplier>,
    node_chunk: Chunk,
    extent_chunk: Chunk,
    /// The epoch whose logs are read.
    epoch: Epoch,
}

struct Reading {
    epoch: Epoch,
    reader: PairReader,
    bytes_expected: u64,
    bytes_read: u64,
}

/// Where an epoch ends, before that is recorded.
struct Found {
    epoch: Epoch,
    cut: Csn,
    /// None: the epoch has no logs.
    reader: Option<PairReader>,
}

struct Memory {
    writer: PairWriter,
    completions: CompletionTable,
    splits: SplitTable,
    nodes_end: Vec<NodeIndex>,
}

impl Restore {
    /// Claims a pair.
    ///
    /// # Errors
    /// [`ClusterError::TableOlder`] if the pair's log folders know a later epoch, and what
    /// [`cell_cluster::Table::claim`] says.
    pub fn claim(
        environment: &Environment,
        request: &ClaimRequest,
        progress: &Arc<Progress>,
    ) -> Result<Restore, RecoveryError> {
        progress.set_stage(RecoveryStage::Claiming);
        let ClaimRequest { pair, incarnation, node, reason } = *request;
        let row = environment.table.pair(pair)?;
        if let Some(found) = highest_epoch(&*environment.storage, &row)?.filter(|found| *found > row.epoch) {
            return Err(ClusterError::TableOlder { pair, table: row.epoch, found }.into());
        }
        let layout = environment.table.layout()?; // before the claim: what fails can be tried again
        let claim = environment.table.claim(pair, incarnation, node, reason)?;
        Restore::with_layout(environment, claim, layout, progress)
    }

    /// Creates a pair, and restores what it begins with.
    ///
    /// # Errors
    /// What [`cell_cluster::Table::create_pair`] says; [`RecoveryError::Geometry`].
    pub fn create(
        environment: &Environment,
        new: &NewPair,
        progress: &Arc<Progress>,
    ) -> Result<Restore, RecoveryError> {
        let layout = environment.table.layout()?; // before there is a row: what fails leaves none
        let claim = environment.table.create_pair(new)?;
        Restore::with_layout(environment, claim, layout, progress)
    }

    /// Restores a pair that was claimed, or created, by [`cell_cluster::Table`] directly.
    ///
    /// # Errors
    /// [`RecoveryError::Geometry`]; the coordinator's, which is asked for the layout.
    pub fn new(
        environment: &Environment,
        claim: Claim,
        progress: &Arc<Progress>,
    ) -> Result<Restore, RecoveryError> {
        let layout = environment.table.layout()?;
        Restore::with_layout(environment, claim, layout, progress)
    }

    pub(crate) fn with_layout(
        environment: &Environment,
        claim: Claim,
        layout: Layout,
        progress: &Arc<Progress>,
    ) -> Result<Restore, RecoveryError> {
        let sizes = claim.row.geometry;
        let geometry = Geometry::new(
            usize::try_from(sizes.node_bytes).unwrap_or(usize::MAX),
            usize::try_from(sizes.slot_bytes).unwrap_or(usize::MAX),
            usize::try_from(HEADER_BYTES).unwrap_or(usize::MAX),
        )?;
        let options = environment.options;
        let read = ReadOptions { chunk_bytes: options.read_bytes, ahead: options.threads > 1 };
        Ok(Restore {
            environment: environment.clone(),
            progress: Arc::clone(progress),
            geometry: geometry.with_node_crc(options.node_crc),
            plan: Plan::new(&claim.row, read),
            layout,
            image_bytes: 0,
            log_bytes: 0,
            log_ends: Vec::new(),
            copied: None,
            stage: Stage::Begin,
            claim,
        })
    }

    /// The claim.
    #[must_use]
    pub fn ownership(&self) -> Ownership {
        self.claim.ownership
    }

    /// Does the next piece of work.
    ///
    /// # Errors
    /// See [`RecoveryError`]. Call again only after a transient one.
    pub fn step(&mut self) -> Result<Step, RecoveryError> {
        // Calls of the coordinator come first, with the stage in place: they may fail and be made again.
        let sessions = match &self.stage {
            Stage::Cut { found, .. } => {
                self.record_cut(found)?;
                None
            }
            Stage::Sessions(_) => Some(self.open_sessions()?),
            _ => None,
        };
        self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Begin => self.begin()?,
            Stage::Load(load, lanes) => self.load(load, lanes)?,
            Stage::Next(lanes) => self.next_epoch(lanes)?,
            Stage::Read(reading, lanes) => self.read(reading, lanes)?,
            Stage::Follow(reading, lanes) => self.follow(reading, lanes)?,
            Stage::Cut { found, lanes } => {
                self.plan.advance(found.epoch, found.cut);
                Stage::Next(lanes)
            }
            Stage::Join(lanes) => self.join(lanes)?,
            Stage::Sessions(mut memory) => {
                let open = sessions.unwrap_or_default();
                open.forget_ended(&mut memory.completions);
                Stage::Verify(memory, open)
            }
            Stage::Verify(memory, sessions) => self.verify(*memory, sessions)?,
            done @ Stage::Done(..) => done,
            Stage::Failed => return Err(RecoveryError::GivenUp),
        };
        Ok(match self.stage {
            Stage::Done(..) => Step::Done,
            Stage::Follow(..) => Step::Later,
            _ => Step::More,
        })
    }

    /// Whether every cut is recorded: what the new logs follow is known, and they can be created.
    #[must_use]
    pub fn predecessor(&self) -> Option<Predecessor> {
        let known =
            matches!(self.stage, Stage::Join(_) | Stage::Sessions(_) | Stage::Verify(..) | Stage::Done(..));
        known.then(|| self.plan.predecessor())
    }

    /// Where the frames of the logs end that were read: what lies there and behind it is not needed once
    /// every cut is recorded.
    #[must_use]
    pub fn log_ends(&self) -> &[LogPlace] {
        &self.log_ends
    }

    /// What was restored.
    ///
    /// # Panics
    /// Before [`Step::Done`].
    #[must_use]
    pub fn finish(self) -> Restored {
        let Stage::Done(recovered) = self.stage else { panic!("a restore is finished when it is done") };
        Restored { claim: self.claim, recovered: *recovered, predecessor: self.plan.predecessor() }
    }

    fn begin(&mut self) -> Result<Stage, RecoveryError> {
        self.environment.check_root()?; // after the claim: others learn why the pair is not served here
        let row = &self.claim.row;
        let load = match &row.checkpoint {
            Some(checkpoint) => Some(Load::open(&*self.environment.storage, row, checkpoint)?),
            None => None,
        };
        let image = load.as_ref().map_or_else(ImageSource::default, Load::source);
        self.image_bytes = load.as_ref().map_or(0, Load::bytes);
        self.check_memory(load.as_ref())?;
        let (node, extent) = self.create_regions()?;
        let own_thread = self.threads_of_lanes() > 1;
        let first = FirstContent::new(&self.layout, row.pair, self.geometry);
        let mut nodes = NodeApplier::new(node, self.geometry, image.clone(), first.split_table());
        if load.is_none() {
            nodes.begin(&first)?;
        }
        let lanes = Lanes {
            node: Lane::start(nodes, own_thread, "recovery-nodes")?,
            extent: Lane::start(ExtentApplier::new(extent, image), own_thread, "recovery-extents")?,
            node_chunk: Chunk::default(),
            extent_chunk: Chunk::default(),
            epoch: Epoch(0),
        };
        self.expect_bytes(load.as_ref())?;
        Ok(match load {
            Some(load) => Stage::Load(Box::new(load), lanes),
            None => Stage::Next(lanes),
        })
    }

    /// Who has too little memory for the image takes none of it: its other pairs grow meanwhile.
    fn check_memory(&self, load: Option<&Load>) -> Result<(), RecoveryError> {
        let needed = load.map_or(0, Load::region_bytes);
        match self.environment.budget.check_regions(needed) {
            Err(full) if !planted(Mutant::ShortageFoundLate) => {
                let bytes = self.claim.row.geometry.bytes();
                Err(RecoveryError::Memory { bytes, source: MemoryError::LimitReached(full) })
            }
            Err(_) | Ok(()) => Ok(()),
        }
    }

    fn create_regions(&self) -> Result<(RegionWriter, RegionWriter), RecoveryError> {
        let row = &self.claim.row;
        let sizes = row.geometry;
        let spec = |kind, bytes, slot_bytes, node_bytes| RegionSpec {
            id: row.region(kind),
            pair: row.pair,
            kind,
            bytes,
            slot_bytes,
            node_bytes,
            epoch: row.epoch,
        };
        let node = spec(RegionKind::Node, sizes.node_region_bytes, sizes.slot_bytes, sizes.node_bytes);
        let extent = spec(RegionKind::Extent, sizes.extent_region_bytes, 0, 0);
        let budget = &self.environment.budget;
        let create = |spec: &RegionSpec| {
            let made = match self.environment.options.regions {
                RegionSource::Shared(options) => Region::create_within(spec, options, budget),
                RegionSource::Private => Region::create_private_within(spec, budget),
                RegionSource::Full => Err(MemoryError::MemoryShort { needed: spec.bytes, available: 0 }),
            };
            let bytes = sizes.node_region_bytes.saturating_add(sizes.extent_region_bytes);
            made.map(|(_, writer)| writer).map_err(|source| RecoveryError::Memory { bytes, source })
        };
        Ok((create(&node)?, create(&extent)?))
    }

    fn load(&mut self, mut load: Box<Load>, mut lanes: Lanes) -> Result<Stage, RecoveryError> {
        self.progress.set_stage(RecoveryStage::Loading);
        let threads = self.threads_of_lanes();
        let (node, extent) = (&mut lanes.node, &mut lanes.extent);
        if threads > 1 {
            load.run(threads, node, extent, &self.progress)?;
        } else {
            for _ in 0..STEP_BLOCKS {
                if !load.step(node, extent, &self.progress)? {
                    break;
                }
            }
            if !load.is_done() {
                return Ok(Stage::Load(load, lanes));
            }
        }
        lanes.node.put(Work::Kept(Box::new(load.finish()?)))?;
        Ok(Stage::Next(lanes))
    }

    fn next_epoch(&mut self, lanes: Lanes) -> Result<Stage, RecoveryError> {
        let Some(next) = self.plan.next() else { return Ok(Stage::Join(lanes)) };
        self.progress.set_stage(RecoveryStage::Replaying);
        let epoch = next.row.epoch;
        let Some(request) = next.request else {
            // Without logs nothing of the epoch is left; its cut is the one before it.
            let found = Box::new(Found { epoch, cut: self.plan.base(), reader: None });
            return Ok(Stage::Cut { found, lanes });
        };
        let bytes_expected = self.expected_of(&request)?;
        let follows = self.follows(&request);
        let storage = &self.environment.storage;
        let reader = match &mut self.copied {
            Some(copied) if follows => {
                copied.required = request.required;
                PairReader::follow(storage, request.log, request.base, request.options)?
            }
            _ => PairReader::open(storage, request)?,
        };
        let reading = Reading { epoch, reader, bytes_expected, bytes_read: 0 };
        Ok(Stage::Read(Box::new(reading), lanes))
    }

    fn read(&mut self, mut reading: Box<Reading>, mut lanes: Lanes) -> Result<Stage, RecoveryError> {
        let base = self.plan.base();
        lanes.epoch = reading.epoch;
        let mut bytes = 0;
        while bytes < STEP_BYTES {
            let Some(batch) = reading.reader.next_batch()? else {
                if reading.reader.ended().is_some() {
                    return self.end_of_logs(reading, lanes);
                }
                lanes.flush()?;
                self.note_round(&mut reading, bytes);
                self.note_end(&mut reading);
                return Ok(Stage::Follow(reading, lanes));
            };
            bytes += batch.payload_bytes();
            let mut records = 0;
            for (kind, record) in batch.records().filter(|(_, record)| record.csn > base) {
                lanes.push(kind, record.csn, record.payload)?;
                records += 1;
            }
            self.progress.replayed(records);
        }
        self.note_round(&mut reading, bytes);
        Ok(Stage::Read(reading, lanes))
    }

    fn end_of_logs(&mut self, reading: Box<Reading>, mut lanes: Lanes) -> Result<Stage, RecoveryError> {
        lanes.flush()?;
        if let Some(found) = reading.reader.predecessor() {
            self.plan.check_predecessor(reading.epoch, found)?;
        }
        let ended = *reading.reader.ended().expect("a reader without a next batch has ended");
        self.log_bytes += ended.frame_bytes;
        self.log_ends.extend(reading.reader.ends());
        let read = ended.frame_bytes.max(reading.bytes_read);
        self.progress.read(read - reading.bytes_read);
        self.progress.expect_less(reading.bytes_expected.saturating_sub(read));
        if let Some(tear) = ended.tear {
            tracing::info!(
                pair = self.claim.row.pair.0, epoch = reading.epoch.0, cut = ended.cut.0,
                place = %tear.place, fault = %tear.fault, "the logs end in a torn batch, never acknowledged"
            );
        }
        // With a recorded cut at or below the base nothing is read; what is in memory stays.
        let cut = ended.cut.max(self.plan.base());
        let found = Box::new(Found { epoch: reading.epoch, cut, reader: Some(reading.reader) });
        Ok(Stage::Cut { found, lanes })
    }

    /// What can be read need not be on stable storage yet, and the cut relies on it: that comes first.
    fn record_cut(&self, found: &Found) -> Result<(), RecoveryError> {
        self.progress.set_stage(RecoveryStage::Recording);
        let recorded = self.claim.row.history.iter().find(|old| old.epoch == found.epoch);
        if recorded.is_some_and(|old| old.cut.is_some()) {
            return Ok(());
        }
        if let Some(reader) = found.reader.as_ref().filter(|_| !planted(Mutant::CutUnsynced)) {
            reader.rewrite_and_sync()?;
        }
        self.environment.table.record_cut(self.claim.ownership, found.epoch, found.cut)?;
        Ok(())
    }

    fn join(&mut self, lanes: Lanes) -> Result<Stage, RecoveryError> {
        let Lanes { node, extent, .. } = lanes;
        let (node, extent) = (node.finish(), extent.finish());
        let (mut node, extent) = (node?, extent?);
        node.complete(self.plan.base())?;
        self.grant_slots(node.writer.region(), &node.nodes_end())?;
        let memory = Memory {
            nodes_end: node.nodes_end(),
            writer: PairWriter::new(node.writer, extent.writer),
            completions: node.completions,
            splits: node.splits,
        };
        Ok(Stage::Sessions(Box::new(memory)))
    }

    /// Tree nodes between those that the replay has filled are used again: all up to the highest have memory.
    fn grant_slots(&self, region: &Region, nodes_end: &[NodeIndex]) -> Result<(), RecoveryError> {
        let offset = |slot, node| u64::try_from(self.geometry.node_offset(slot, node)).unwrap_or(u64::MAX);
        let slots = (0..).map(SlotIndex).zip(nodes_end).filter(|(_, end)| end.0 > 0);
        for (slot, end) in slots {
            let granted = region.grant(offset(slot, NodeIndex::ROOT)..offset(slot, *end));
            let bytes = region.spec().bytes;
            granted
                .map_err(|full| RecoveryError::Memory { bytes, source: MemoryError::LimitReached(full) })?;
        }
        Ok(())
    }

    fn open_sessions(&self) -> Result<OpenSessions, RecoveryError> {
        self.progress.set_stage(RecoveryStage::Recording);
        Ok(OpenSessions::list(&self.environment.sessions)?)
    }

    fn slot(&self, index: SlotIndex) -> Slot {
        Slot { region: self.claim.row.node_region, index }
    }

    /// What is to be checked: the slots in use, and those that were used and must be free again.
    fn parts(&self, splits: &SplitTable, nodes_end: &[NodeIndex]) -> Vec<Part> {
        let slots = nodes_end.iter().zip(0..).map(|(nodes_end, slot)| (*nodes_end, SlotIndex(slot)));
        let parts = slots.map(|(nodes_end, slot)| {
            let used = splits.slot_use(slot);
            let adopted = splits.target_of(slot).filter(|(_, split)| !split.merges);
            let state = match adopted.map(|(_, split)| split.state) {
                _ if used == SlotUse::Free => TreeNodeState::Free,
                Some(TargetState::Adopting) => TreeNodeState::Free,
                Some(TargetState::Adopted) => TreeNodeState::Hidden,
                Some(TargetState::Opened | TargetState::Discarded) | None => TreeNodeState::Valid,
            };
            let checked = self.copied.as_ref().and_then(|of| *of.verified.get(slot.0 as usize)?);
            Part { geometry: self.geometry, slot: self.slot(slot), used, state, nodes_end, checked }
        });
        parts.filter(|part| part.state.is_built() || part.nodes_end > NodeIndex::ROOT).collect()
    }

    fn verify(&mut self, memory: Memory, sessions: OpenSessions) -> Result<Stage, RecoveryError> {
        self.progress.set_stage(RecoveryStage::Verifying);
        let Memory { mut writer, completions, splits, nodes_end } = memory;
        let threads = self.environment.options.threads;
        let parts = self.parts(&splits, &nodes_end);
        let verified = verify(&writer, &parts, threads, &self.progress)?;
        check_adoptions(&splits, &verified.meganodes)?;
        let cut = self.plan.base();
        writer.set_watermark(cut, cut);
        let row = &self.claim.row;
        let recovered = Recovered {
            pair: row.pair,
            epoch: row.epoch,
            geometry: self.geometry,
            slots: u32::try_from(nodes_end.len()).unwrap_or(u32::MAX),
            entries: entries_of(&verified.meganodes),
            meganodes: verified.meganodes,
            splits,
            root: Root::from_word(writer.node.region().first_word()),
            memory: writer,
            extents: verified.extents,
            log: None,
            csn_cut: cut,
            recoveries: u32::try_from(row.epochs_needed().count()).unwrap_or(u32::MAX),
            csn_checkpoint: row.checkpoint.as_ref().map_or(Csn::ZERO, |checkpoint| checkpoint.csn),
            completions,
            sessions,
            image_bytes: self.image_bytes,
            log_bytes: self.log_bytes,
            leftovers: None,
        };
        Ok(Stage::Done(Box::new(recovered)))
    }
}

impl Lanes {
    fn push(&mut self, kind: RegionKind, csn: Csn, payload: &[u8]) -> Result<(), RecoveryError> {
        match kind {
            RegionKind::Node => {
                self.node_chunk.push(csn, payload);
                if self.node_chunk.is_full() {
                    self.flush_nodes()?;
                }
            }
            RegionKind::Extent => {
                self.extent_chunk.push(csn, payload);
                if self.extent_chunk.is_full() {
                    self.flush_extents()?;
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RecoveryError> {
        self.flush_nodes()?;
        self.flush_extents()
    }

    fn flush_nodes(&mut self) -> Result<(), RecoveryError> {
        if !self.node_chunk.is_empty() {
            self.node_chunk.epoch = self.epoch;
            let spent = self.node.put(Work::Records(std::mem::take(&mut self.node_chunk)))?;
            self.node_chunk = Work::reuse(spent);
        }
        Ok(())
    }

    fn flush_extents(&mut self) -> Result<(), RecoveryError> {
        if !self.extent_chunk.is_empty() {
            let spent = self.extent.put(Work::Records(std::mem::take(&mut self.extent_chunk)))?;
            self.extent_chunk = Work::reuse(spent);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Restore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restore").field("ownership", &self.claim.ownership).finish_non_exhaustive()
    }
}
