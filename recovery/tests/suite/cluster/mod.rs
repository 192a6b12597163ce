//! Pairs of one process that split their meganodes by the whole protocol, as simply as can be: each step
//! waits until the one before it is durable. Every append and every step of the disk costs fuel; when that is
//! used up, the process dies.
//!
//! Written by hand on purpose, and the only writer beside `cell-pair`: what a recovery makes of each record
//! is held here against a second, smaller reading of the protocol, and a process can die between two appends
//! of one step, where `cell-pair` has no place to stop.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a helper of a test that fails fails the test"
)]

mod check;
mod compaction;
mod split;
pub mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{CheckpointRow, ClaimReason, Ownership, PairGeometry, Sim};
use cell_memory::extent::{ExtentEncoder, ExtentHeader, ExtentShape, store};
use cell_random::Random;
use cell_recovery::image::{FilledNodes, ImageBase, ImageCopy, ImageSource, WrittenImage};
use cell_recovery::{
    ExtentRecord, NodeRecord, Recovered, RecoveredMeganode, Restore, Step, WriteCompletion, WriteOutcome,
};
use cell_terms::{
    Csn, Durability, ExtentOffset, OperationNumber, PairId, RegionKind, Root, SessionId, SlotIndex, Version,
};
use cell_test_kit::Process;
use cell_tree::{Change, LeafEntry, Meganode, NodeIndex, Plan, Slot, plan_put};
use cell_wal::image::{BlockEntry, ImageReader};
use cell_wal::sim::{SimDevice, SimDisk};
use cell_wal::{LogDevice, LogOptions, Space};

use crate::owner::{Entries, start};

/// Slots of 128 tree nodes, so that some hundred entries are worth a split.
pub const SIZES: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 6 * (64 << 10),
    extent_region_bytes: 1 << 20,
    slot_bytes: 64 << 10,
    node_bytes: 512,
};

/// What the pairs of a cluster have room for.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub geometry: PairGeometry,
    /// The longest value.
    pub value_bytes: usize,
    /// Of both logs; none: small segments.
    pub log: Option<LogOptions>,
}

const SMALL: Sizes = Sizes { geometry: SIZES, value_bytes: 3 << 10, log: None };

/// The process has died.
#[derive(Debug)]
pub struct Crash;

/// What waits until the record that freed it is durable.
pub enum Freed {
    Extent(ExtentOffset, u32),
    Node(SlotIndex, NodeIndex),
}

enum Checkpoint {
    Copying(Csn, Box<ImageCopy<ImageSource>>),
    Waiting(Csn, WrittenImage),
}

/// A pair in its owner's hands.
pub struct Pair {
    pub recovered: Recovered,
    pub ownership: Ownership,
    device: SimDevice,
    freed: Vec<(Csn, Freed)>,
    /// How far the slots' nodes go: raised before new ones are reachable.
    ends: BTreeMap<SlotIndex, NodeIndex>,
    filled: Arc<FilledNodes>,
    checkpoint: Option<Checkpoint>,
    /// It builds an adopted meganode: no image may begin.
    adopts: bool,
    value_bytes: usize,
}

/// A write that was carried out.
struct Done {
    pair: PairId,
    csn: Csn,
    key: Vec<u8>,
    /// The entry's value and version; none if it was deleted.
    written: Option<(Vec<u8>, Version)>,
    number: OperationNumber,
}

/// What is known from outside.
#[derive(Default)]
pub struct Known {
    pub entries: Entries,
    /// Whose write it was: repeats are answered by who has the key now.
    pub results: Vec<(OperationNumber, Vec<u8>, Version)>,
    done: Vec<Done>,
    durable: BTreeMap<PairId, Csn>,
    number: u64,
}

/// All pairs of a process.
pub struct Cluster {
    pub life: Process,
    pub pairs: Vec<Pair>,
    pub known: Known,
    session: SessionId,
    /// Steps until the process dies.
    pub fuel: u64,
    /// Decides about checkpoints; none without.
    chance: Option<Random>,
    sizes: Sizes,
    plan: Plan,
    encoder: ExtentEncoder,
}

impl Pair {
    fn new(life: &Process, recovered: Recovered, device: SimDevice, value_bytes: usize) -> Pair {
        let ownership = life.ownership(recovered.pair, recovered.epoch);
        let ends = recovered
            .meganodes
            .iter()
            .map(|found| (found.slot.index, found.allocator.high_water()))
            .collect();
        let filled = Arc::new(FilledNodes::new(recovered.slots, recovered.geometry));
        let (freed, checkpoint, adopts) = (Vec::new(), None, false);
        Pair { recovered, ownership, device, freed, ends, filled, checkpoint, adopts, value_bytes }
    }

    pub fn id(&self) -> PairId {
        self.recovered.pair
    }

    pub fn slot(&self, index: SlotIndex) -> Slot {
        Slot { region: self.recovered.memory.node.region().spec().id, index }
    }

    pub fn at(&self, slot: SlotIndex) -> usize {
        self.recovered.meganodes.iter().position(|found| found.slot.index == slot).unwrap()
    }

    pub fn durable(&self) -> Csn {
        self.recovered.log.as_ref().unwrap().csn_durable()
    }

    fn next_csn(&self) -> Csn {
        self.recovered.log.as_ref().unwrap().csn_appended().next()
    }

    /// Appends a record and updates the table of splits and the completion table.
    pub fn log(&mut self, record: &NodeRecord<'_>) -> Csn {
        let log = self.recovered.log.as_mut().unwrap();
        let csn = log.append(RegionKind::Node, |_, out| record.encode(out)).csn;
        self.recovered.splits.apply(record, self.ownership.epoch, csn).unwrap();
        if let NodeRecord::Split(step) = record {
            self.recovered.completions.apply(step, csn).unwrap();
        }
        csn
    }

    fn has_room(&mut self) -> bool {
        let log = self.recovered.log.as_mut().unwrap();
        log.room_for(16 << 10, self.value_bytes + (1 << 10), Space::Ordinary).is_ok()
    }

    fn pump(&mut self) {
        let (mut events, log) = (Vec::new(), self.recovered.log.as_mut().unwrap());
        self.device.poll(&mut events);
        for event in events {
            log.on_event(event, &mut self.device).unwrap();
        }
        log.submit(&mut self.device).unwrap();
        self.device.submit().unwrap();
        let durable = self.durable();
        self.recovered.splits.prune(durable);
        let (free, left) = std::mem::take(&mut self.freed).into_iter().partition(|(csn, _)| *csn <= durable);
        self.freed = left;
        let free: Vec<_> = free;
        for (_, freed) in free {
            match freed {
                Freed::Extent(offset, bytes) => self.recovered.extents.free(offset, bytes),
                Freed::Node(slot, node) => {
                    let at = self.at(slot);
                    self.recovered.meganodes[at].allocator.free(node);
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        let log = self.recovered.log.as_ref().unwrap();
        log.is_busy() || log.has_unsubmitted()
    }

    /// Writes an extent: its record first.
    fn write_extent(
        &mut self,
        encoder: &mut ExtentEncoder,
        header: &ExtentHeader,
        value: &[u8],
    ) -> LeafEntry {
        let bytes = header.shape(value.len()).unwrap().extent_bytes();
        let offset = self.recovered.extents.allocate(bytes).unwrap();
        let encoded = encoder.encode(header, value).unwrap();
        self.recovered.log.as_mut().unwrap().append(RegionKind::Extent, |_, out| {
            out.extend_from_slice(&ExtentRecord::header(offset));
            out.extend_from_slice(encoded.bytes);
        });
        store(&mut self.recovered.memory.extent, offset, encoded.bytes);
        LeafEntry { offset, value_len: encoded.shape.bits(), crc: encoded.checksum }
    }

    fn free_extent(&mut self, entry: &LeafEntry, csn: Csn) {
        let bytes = ExtentShape::from_bits(entry.value_len).unwrap().extent_bytes();
        self.freed.push((csn, Freed::Extent(entry.offset, bytes)));
    }

    /// Puts an entry into a meganode; what it had before.
    fn put_entry(
        &mut self,
        at: usize,
        plan: &mut Plan,
        key: &[u8],
        entry: LeafEntry,
        completion: impl FnOnce(bool) -> Option<WriteCompletion>,
    ) -> (Csn, Option<LeafEntry>) {
        let node = self.recovered.memory.node.region().clone();
        let (geometry, owned) = (self.recovered.geometry, &mut self.recovered.meganodes[at]);
        let slot = owned.slot;
        let meganode = Meganode::new(&node, geometry, slot).with_role(owned.used.role());
        plan_put(&meganode, &mut owned.allocator, key, entry, plan).unwrap();
        self.ends.insert(slot.index, owned.allocator.high_water());
        let (old, last) = (plan.old(), plan.len() - 1);
        let completion = completion(old.is_some());
        let mut csn = Csn::ZERO;
        for (number, change) in plan.changes().enumerate() {
            let completion = completion.filter(|_| number == last);
            csn = self.log(&NodeRecord::Tree { slot: slot.index, completion, change });
            self.change_node(slot.index, &change, csn);
        }
        plan.commit(&mut self.recovered.meganodes[at].allocator);
        if let Some(completion) = completion {
            self.recovered.completions.record(&completion, csn);
        }
        (csn, old)
    }

    fn image_source(&self) -> ImageSource {
        ImageSource {
            pair: self.id(),
            epoch: self.ownership.epoch,
            node: self.recovered.memory.node.region().clone(),
            extent: self.recovered.memory.extent.region().clone(),
            geometry: self.recovered.geometry,
            filled: Arc::clone(&self.filled),
        }
    }

    /// Changes a tree node. A copier may go on between any two changes.
    fn change_node(&mut self, slot: SlotIndex, change: &Change<'_>, csn: Csn) {
        let there = self.slot(slot);
        let Recovered { memory, geometry, .. } = &mut self.recovered;
        self.filled.apply(&mut memory.node, *geometry, there, change, csn);
        self.step_copy(csn.0 as u32 % 4);
    }

    /// Lets the copier, if there is one, copy so many tree nodes; whether there is more to copy.
    fn step_copy(&mut self, nodes: u32) -> bool {
        let Some(Checkpoint::Copying(_, copy)) = &mut self.checkpoint else { return false };
        let ends = &self.ends;
        copy.step(&|slot| ends.get(&slot).copied().unwrap_or_default(), nodes).unwrap()
    }

    /// One above the highest tree node of a slot that was ever handed out.
    pub fn nodes_end(&self, slot: SlotIndex) -> NodeIndex {
        self.ends.get(&slot).copied().unwrap_or_default()
    }
}

impl Cluster {
    /// The first life: as many pairs as asked for.
    pub fn create(disk: &SimDisk, sim: &Sim, pairs: u32, chance: Option<Random>) -> Cluster {
        Cluster::create_of(disk, sim, pairs, chance, SMALL)
    }

    /// As [`Cluster::create`], of pairs of other sizes.
    pub fn create_of(disk: &SimDisk, sim: &Sim, pairs: u32, chance: Option<Random>, sizes: Sizes) -> Cluster {
        let life = start(disk, sim, 1);
        let session = life.environment.sessions.open(life.lease).unwrap();
        let restores = (0..pairs).map(|_| life.restore(life.create(sizes.geometry)).unwrap()).collect();
        Cluster::begin(life, restores, (session, Known::default()), chance, sizes)
    }

    /// The next life, after this one was ended.
    pub fn recover(self, disk: &SimDisk, sim: &Sim, chance: Option<Random>) -> Cluster {
        let Cluster { known, session, pairs, sizes, .. } = self;
        let life = start(disk, sim, 1 + known.number as usize % 2);
        let restores = pairs.iter().map(|pair| claim(&life, pair.id())).collect();
        drop(pairs);
        Cluster::begin(life, restores, (session, known), chance, sizes)
    }

    /// Restores every pair and dies before anything is served.
    pub fn die_in_recovery(&self, disk: &SimDisk, sim: &Sim) {
        let life = start(disk, sim, 1);
        for pair in &self.pairs {
            let mut restore = claim(&life, pair.id());
            while restore.step().unwrap() == Step::More {}
        }
        life.crash();
    }

    fn begin(
        life: Process,
        restores: Vec<Restore>,
        (session, known): (SessionId, Known),
        chance: Option<Random>,
        sizes: Sizes,
    ) -> Cluster {
        let mut request = life.publish_request(Durability::Sync);
        request.log = sizes.log.unwrap_or(request.log);
        let serve = |restore| {
            let (recovered, device) = life.publish_as(restore, &request).unwrap();
            Pair::new(&life, recovered, device, sizes.value_bytes)
        };
        let pairs: Vec<_> = restores.into_iter().map(serve).collect();
        let (plan, encoder, fuel) = (Plan::new(), ExtentEncoder::new(), u64::MAX);
        let mut cluster = Cluster { life, pairs, known, session, fuel, chance, sizes, plan, encoder };
        cluster.cut();
        cluster
    }

    /// Writes above the pairs' cuts never were.
    fn cut(&mut self) {
        let cuts: BTreeMap<PairId, Csn> =
            self.pairs.iter().map(|pair| (pair.id(), pair.recovered.csn_cut)).collect();
        for (pair, durable) in std::mem::take(&mut self.known.durable) {
            assert!(cuts[&pair] >= durable, "{pair} lost what was acknowledged");
        }
        for done in std::mem::take(&mut self.known.done) {
            if done.csn > cuts[&done.pair] {
                continue;
            }
            match done.written {
                Some((value, version)) => {
                    self.known.entries.insert(done.key.clone(), (value, version));
                    self.known.results.push((done.number, done.key, version));
                }
                None => {
                    self.known.entries.remove(&done.key);
                    self.known.results.clear(); // deletes move the floor past them
                }
            }
        }
    }

    /// One step nearer to the end.
    pub fn tick(&mut self) -> Result<(), Crash> {
        self.fuel = self.fuel.checked_sub(1).ok_or(Crash)?;
        for at in 0..self.pairs.len() {
            self.step_checkpoint(at);
        }
        if self.fuel.is_multiple_of(3) {
            self.work();
        }
        Ok(())
    }

    fn step_checkpoint(&mut self, at: usize) {
        let Some(chance) = &mut self.chance else { return };
        let (luck, pair) = (chance.below(8), &mut self.pairs[at]);
        let copied = luck < 5 && !pair.step_copy(luck as u32 * 5);
        let durable = pair.durable();
        // One of the same base would be written over the one that counts.
        let may_begin = !pair.adopts && durable > pair.recovered.csn_checkpoint;
        let checkpoint = match pair.checkpoint.take() {
            None if luck == 0 && may_begin => {
                Some(Checkpoint::Copying(durable, Box::new(self.begin_image(at))))
            }
            Some(Checkpoint::Copying(base, copy)) if copied => {
                Some(Checkpoint::Waiting(base, copy.finish().unwrap()))
            }
            Some(Checkpoint::Waiting(base, image)) if durable >= image.csn_max => {
                self.record(at, base, image);
                None
            }
            other => other,
        };
        self.pairs[at].checkpoint = checkpoint;
    }

    /// Begins an image of what is durable now.
    pub fn begin_image(&self, at: usize) -> ImageCopy<ImageSource> {
        let pair = &self.pairs[at];
        let Recovered { completions, splits, memory, .. } = &pair.recovered;
        let (durable, appended) = (pair.durable(), Csn(pair.next_csn().0 - 1));
        let root = Root::from_word(memory.node.region().first_word());
        let base = ImageBase::capture(durable, appended, root, completions, splits);
        let storage = Arc::clone(&self.life.environment.storage);
        ImageCopy::begin(pair.image_source(), storage, 1, base).unwrap()
    }

    fn record(&mut self, at: usize, base: Csn, image: WrittenImage) {
        let pair = &mut self.pairs[at];
        let row = CheckpointRow {
            epoch: pair.ownership.epoch,
            csn: base,
            csn_max: image.csn_max,
            file: image.path,
        };
        let row = self.life.environment.table.record_checkpoint(pair.ownership, &row).unwrap();
        pair.recovered.log.as_mut().unwrap().release_below(base, &mut pair.device);
        cell_recovery::remove_unneeded(&*self.life.environment.storage, &row).unwrap();
        pair.recovered.csn_checkpoint = base;
    }

    /// Takes a checkpoint of a pair, from its begin to its record; how large its blocks are.
    pub fn checkpoint(&mut self, at: usize) -> Vec<BlockEntry> {
        let (base, mut copy) = (self.pairs[at].durable(), self.begin_image(at));
        while copy.step(&|slot| self.pairs[at].nodes_end(slot), u32::MAX).unwrap() {}
        let image = copy.finish().unwrap();
        let reader = ImageReader::open(&*self.life.environment.storage, &image.path).unwrap();
        self.settle().unwrap();
        self.record(at, base, image);
        reader.blocks().to_vec()
    }

    /// Changes the extent of an entry behind its leaf's back.
    pub fn damage(&mut self, key: &[u8]) {
        let (at, found) = self.route(key);
        let pair = &mut self.pairs[at];
        let region = pair.recovered.memory.node.region().clone();
        let slot = pair.recovered.meganodes[found].slot;
        let entry = Meganode::new(&region, pair.recovered.geometry, slot).search(key).unwrap().entry.unwrap();
        let bytes = ExtentShape::from_bits(entry.value_len).unwrap().extent_bytes() as usize;
        store(&mut pair.recovered.memory.extent, entry.offset, &vec![0xa5; bytes]);
    }

    /// Everything of all pairs is durable.
    pub fn settle(&mut self) -> Result<(), Crash> {
        loop {
            self.tick()?;
            if !self.work() && self.pairs.iter().all(|pair| !pair.is_busy()) {
                return Ok(());
            }
        }
    }

    /// The logs and the disk go on; whether there was something to do.
    fn work(&mut self) -> bool {
        self.pairs.iter_mut().for_each(Pair::pump);
        for pair in &self.pairs {
            self.known.durable.insert(pair.id(), pair.durable());
        }
        self.life.disk.step()
    }

    pub fn room(&mut self, at: usize) -> Result<(), Crash> {
        while !self.pairs[at].has_room() {
            self.settle()?;
        }
        Ok(())
    }

    /// The pair and meganode that take writes of a key.
    pub fn route(&self, key: &[u8]) -> (usize, usize) {
        let mut found = self.pairs.iter().enumerate().filter_map(|(at, pair)| {
            let covers = |found: &RecoveredMeganode| {
                let below = found.high.as_ref().is_none_or(|high| *key < **high);
                self.is_truth(pair, found) && *found.low <= *key && below
            };
            pair.recovered.meganodes.iter().position(covers).map(|meganode| (at, meganode))
        });
        let first = found.next().unwrap();
        assert!(found.next().is_none(), "one pair alone takes writes of a key");
        first
    }

    /// Number and floor of the next write.
    fn next_number(&mut self) -> (OperationNumber, OperationNumber) {
        self.known.number += 1;
        let number = self.known.number;
        (OperationNumber(number), OperationNumber(number.saturating_sub(9).max(1)))
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Crash> {
        let (at, meganode) = self.route(key);
        self.room(at)?;
        self.tick()?;
        let (number, floor) = self.next_number();
        let (pair, session) = (&mut self.pairs[at], self.session);
        let header =
            ExtentHeader { epoch: pair.ownership.epoch, csn: pair.next_csn(), ..ExtentHeader::default() };
        let version = header.version(pair.id());
        let entry = pair.write_extent(&mut self.encoder, &header, value);
        let (csn, old) = pair.put_entry(meganode, &mut self.plan, key, entry, |replaced| {
            Some(WriteCompletion {
                session,
                number,
                floor,
                outcome: WriteOutcome::Written { version, replaced },
            })
        });
        if let Some(old) = old {
            pair.free_extent(&old, csn);
        }
        let pair = pair.id();
        let (key, written) = (key.to_vec(), Some((value.to_vec(), version)));
        self.known.done.push(Done { pair, csn, key, written, number });
        Ok(())
    }
}

fn claim(life: &Process, pair: PairId) -> Restore {
    life.claim(pair, ClaimReason::HostLock).unwrap()
}
