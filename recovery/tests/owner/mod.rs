//! A pair's owner as small as can be, with a memory of what it was told: what recoveries are measured by.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "each test binary uses its part"
)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cell_cluster::{
    Claim, ClaimReason, Coordinator, HostId, NewPair, PairGeometry, ServingAddress, Sessions, Sim, SimLink,
    Table, Tenure,
};
use cell_memory::extent::{ExtentEncoder, ExtentHeader, ExtentReader, ExtentShape, store};
use cell_recovery::image::{FilledNodes, ImageBase, ImageCopy, ImageSource};
use cell_recovery::{
    ClaimRequest, CompletionTable, Environment, ExtentRecord, NodeRecord, Progress, PublishRequest,
    Recovered, RecoveryError, RecoveryOptions, RegionSource, Restore, Step, WriteCompletion, WriteOutcome,
    complete,
};
use cell_terms::{
    Csn, Durability, ExtentOffset, Incarnation, NodeId, OperationNumber, PairId, RegionKind, Root, SessionId,
    Version,
};
use cell_tree::{
    Change, LeafEntry, LeafSnapshot, Meganode, NodeIndex, Plan, PlanError, TreeNodeState, plan_put,
    plan_remove,
};
use cell_wal::sim::SimDisk;
use cell_wal::{LogDevice, LogOptions, Space, Storage};

pub const NODE: NodeId = NodeId(0);
pub const PAIR: PairId = PairId(1);
pub const MS: u64 = 1_000_000;
pub const GEOMETRY: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + (256 << 10),
    extent_region_bytes: 4 << 20,
    slot_bytes: 256 << 10,
    node_bytes: 512,
};

/// Entries by key: value and version.
pub type Entries = BTreeMap<Vec<u8>, (Vec<u8>, Version)>;

/// xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// One life of a process: its view of the disk and its lease.
pub struct Life {
    pub disk: SimDisk,
    pub link: SimLink,
    pub lease: Incarnation,
    pub environment: Environment,
}

impl Life {
    pub fn begin(disk: &SimDisk, sim: &Sim, threads: usize) -> Life {
        let disk = disk.process();
        let link = sim.link();
        let lease = link.grant(500).unwrap().lease;
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let environment = Environment {
            storage: Arc::new(disk.clone()),
            table: Table::new(Arc::clone(&coordinator)).on_host(Some(HostId::new(1, 1))),
            sessions: Sessions::new(coordinator),
            budget: cell_memory::Budget::unlimited(),
            options: RecoveryOptions {
                threads,
                read_bytes: 64 << 10,
                regions: RegionSource::Private,
                node_crc: false,
            },
        };
        Life { disk, link, lease, environment }
    }

    pub fn create(&self) -> Claim {
        let new = NewPair { incarnation: self.lease, node: NODE, geometry: GEOMETRY };
        self.environment.table.create_pair(&new).unwrap()
    }

    pub fn claim(&self, reason: ClaimReason) -> Result<Restore, RecoveryError> {
        let request = ClaimRequest { pair: PAIR, incarnation: self.lease, node: NODE, reason };
        Restore::claim(&self.environment, &request, &Arc::new(Progress::new(0)))
    }

    pub fn restore(&self, claim: Claim) -> Restore {
        Restore::new(&self.environment, claim, &Arc::new(Progress::new(0))).unwrap()
    }

    /// Waiting: time passes, the disk works, the lease is renewed.
    pub fn pause(&self, for_ns: u64) -> bool {
        self.link.sim().advance(for_ns.min(100 * MS));
        self.disk.step();
        // By a link without faults: what is tested is the recovery, not the lease.
        self.link.sim().link().keep_alive(self.lease).is_ok()
    }

    pub fn publish_request(&self, durability: Durability) -> PublishRequest {
        PublishRequest {
            durability,
            place: ServingAddress { address: "sim".to_owned(), worker: 0, node_key: 0, extent_key: 0 },
            log: LogOptions { segment_bytes: 1 << 20, batch_bytes: 64 << 10, ..LogOptions::default() },
            salt: self.lease.0.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// From a claim to an owner.
    pub fn complete(
        &self,
        restore: Restore,
        durability: Durability,
        session: SessionId,
    ) -> Result<Owner, RecoveryError> {
        let tenure = restore.tenure();
        let mut device = self.disk.device();
        let request = self.publish_request(durability);
        let progress = Arc::new(Progress::new(0));
        let recovered =
            complete(&self.environment, restore, &request, &mut device, &progress, &mut |ns| self.pause(ns))?;
        let disk = self.disk.clone();
        let work = Box::new(move || disk.step());
        Ok(Owner::new(&self.environment, recovered, tenure, Box::new(device), work, session))
    }

    /// Restores to the end without publishing anything.
    pub fn run(&self, mut restore: Restore) -> Result<Recovered, RecoveryError> {
        while restore.step()? == Step::More {}
        Ok(restore.finish().recovered)
    }
}

/// Everything in a recovered pair's tree.
pub fn entries_of(recovered: &Recovered) -> Entries {
    let node = recovered.memory.node.region();
    let meganode = Meganode::new(node, recovered.geometry, recovered.meganodes[0].slot);
    let mut reader = ExtentReader::new();
    let mut entries = Entries::new();
    let mut leaf = LeafSnapshot::new();
    meganode.leaf_first(&mut leaf).unwrap();
    loop {
        for (key, entry) in leaf.iter() {
            let shape = ExtentShape::from_bits(entry.value_len).unwrap();
            let extent = recovered.memory.extent.region();
            let view = reader.read(extent, entry.offset, shape, entry.crc).unwrap();
            let version = view.header.version(recovered.pair);
            entries.insert(key.to_vec(), (view.value.to_vec(), version));
        }
        if !meganode.leaf_after(&mut leaf).unwrap() {
            return entries;
        }
    }
}

/// One operation as it was done.
#[derive(Clone, Debug)]
struct Done {
    csn_first: Csn,
    csn_last: Csn,
    key: Vec<u8>,
    /// None: removed, or nothing changed.
    written: Option<(Vec<u8>, Version)>,
    changes: bool,
    completion: WriteCompletion,
}

/// What is known from outside: what was done, in order, and what was acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Model {
    entries: Entries,
    completions: CompletionTable,
    done: Vec<Done>,
    pub acknowledged: Csn,
    pub number: u64,
}

impl Model {
    /// What must be there if the logs were cut here; from here on it is what was.
    pub fn cut(&mut self, cut: Csn) {
        assert!(cut >= self.acknowledged, "{cut} lies below what was acknowledged, {}", self.acknowledged);
        for done in self.done.drain(..).take_while(|done| done.csn_first <= cut) {
            assert!(done.csn_last <= cut, "the cut {cut} is within an operation");
            self.completions.record(&done.completion, done.csn_last);
            match done.written {
                Some(entry) => drop(self.entries.insert(done.key, entry)),
                None if done.changes => drop(self.entries.remove(&done.key)),
                None => {}
            }
            self.number = done.completion.number.0;
        }
        self.acknowledged = cut;
    }

    pub fn check(&mut self, recovered: &Recovered) {
        self.cut(recovered.csn_cut);
        assert_eq!(entries_of(recovered), self.entries);
        assert_eq!(recovered.entries, self.entries.len() as u64);
        let bytes = |table: &CompletionTable| {
            let mut bytes = Vec::new();
            table.encode(&mut bytes);
            bytes
        };
        assert_eq!(bytes(&recovered.completions), bytes(&self.completions), "results of writes");
        assert_eq!(recovered.extents.stats().live_extents, self.entries.len() as u64);
        let marks = recovered.memory.watermark();
        assert_eq!(
            (marks.epoch, marks.durable, marks.visible),
            (recovered.epoch, self.acknowledged, self.acknowledged)
        );
    }
}

/// The owner.
pub struct Owner {
    pub recovered: Recovered,
    pub tenure: Tenure,
    pub device: Box<dyn LogDevice>,
    pub model: Model,
    pub table: Table,
    pub storage: Arc<dyn Storage>,
    /// Lets the disk work; whether there was anything to do.
    work: Box<dyn FnMut() -> bool>,
    session: SessionId,
    plan: Plan,
    encoder: ExtentEncoder,
    /// Freed extents, until the record that freed them is durable.
    freed: VecDeque<(Csn, ExtentOffset, u32)>,
    csn_unlogged: Csn,
    filled: Arc<FilledNodes>,
    /// A checkpoint goes on between any two changes of tree nodes.
    pub copies_between_changes: bool,
    pending: Option<Checkpoint>,
}

struct Checkpoint {
    copy: ImageCopy<ImageSource>,
    base: Csn,
}

impl Owner {
    pub fn new(
        environment: &Environment,
        recovered: Recovered,
        tenure: Tenure,
        device: Box<dyn LogDevice>,
        work: Box<dyn FnMut() -> bool>,
        session: SessionId,
    ) -> Owner {
        Owner {
            csn_unlogged: recovered.csn_cut,
            filled: Arc::new(FilledNodes::new(recovered.slots, recovered.geometry)),
            copies_between_changes: false,
            recovered,
            tenure,
            device,
            model: Model::default(),
            table: environment.table.clone(),
            storage: Arc::clone(&environment.storage),
            work,
            session,
            plan: Plan::new(),
            encoder: ExtentEncoder::new(),
            freed: VecDeque::new(),
            pending: None,
        }
    }

    pub fn next_csn(&self) -> Csn {
        self.recovered.log.as_ref().map_or(self.csn_unlogged, |log| log.csn_appended()).next()
    }

    fn has_room(&mut self, node_bytes: usize, extent_bytes: usize) -> bool {
        let Some(log) = &self.recovered.log else { return true };
        log.room_for(node_bytes, extent_bytes, Space::Ordinary).is_ok()
    }

    fn completion(&mut self, outcome: WriteOutcome) -> WriteCompletion {
        self.model.number += 1;
        WriteCompletion {
            session: self.session,
            number: OperationNumber(self.model.number),
            floor: OperationNumber(self.model.number.saturating_sub(4).max(1)),
            outcome,
        }
    }

    /// False if there was no room.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        if !self.has_room(16 << 10, value.len() + 128) {
            return false;
        }
        let csn_first = self.next_csn();
        let header = ExtentHeader { epoch: self.recovered.epoch, csn: csn_first, ..ExtentHeader::default() };
        let version = header.version(self.recovered.pair);
        let bytes = header.shape(value.len()).unwrap().extent_bytes();
        let Some(offset) = self.recovered.extents.allocate(bytes) else { return false };
        let Owner { recovered, plan, encoder, .. } = self;
        let encoded = encoder.encode(&header, value).unwrap();
        let entry = LeafEntry { offset, value_len: encoded.shape.bits(), crc: encoded.checksum };
        let node = recovered.memory.node.region().clone();
        let owned = &mut recovered.meganodes[0];
        let meganode = Meganode::new(&node, recovered.geometry, owned.slot);
        match plan_put(&meganode, &mut owned.allocator, key, entry, plan) {
            Ok(()) => {}
            Err(PlanError::Full { .. }) => {
                recovered.extents.free(offset, bytes);
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        if let Some(log) = &mut recovered.log {
            log.append(RegionKind::Extent, |_, out| {
                out.extend_from_slice(&ExtentRecord::header(offset));
                out.extend_from_slice(encoded.bytes);
            });
        }
        store(&mut recovered.memory.extent, offset, encoded.bytes);
        self.csn_unlogged = csn_first;
        let replaced = self.plan.old();
        let completion = self.completion(WriteOutcome::Written { version, replaced: replaced.is_some() });
        let csn_last = self.carry_out(&completion);
        self.free(replaced, csn_last);
        let written = Some((value.to_vec(), version));
        let done = Done { csn_first, csn_last, key: key.to_vec(), written, changes: true, completion };
        self.model.done.push(done);
        true
    }

    pub fn delete(&mut self, key: &[u8]) -> bool {
        if !self.has_room(1 << 10, 0) {
            return false;
        }
        let csn_first = self.next_csn();
        let node = self.recovered.memory.node.region().clone();
        let meganode = Meganode::new(&node, self.recovered.geometry, self.recovered.meganodes[0].slot);
        plan_remove(&meganode, key, &mut self.plan).unwrap();
        let old = self.plan.old();
        let (changes, completion, csn_last);
        if old.is_some() {
            changes = true;
            completion = self.completion(WriteOutcome::Deleted);
            csn_last = self.carry_out(&completion);
            self.free(old, csn_last);
        } else {
            changes = false;
            completion = self.completion(WriteOutcome::NotFound);
            csn_last = self.log_node(&NodeRecord::Outcome(completion));
            self.recovered.completions.record(&completion, csn_last);
        }
        self.model.done.push(Done {
            csn_first,
            csn_last,
            key: key.to_vec(),
            written: None,
            changes,
            completion,
        });
        true
    }

    fn log_node(&mut self, record: &NodeRecord<'_>) -> Csn {
        self.csn_unlogged = self.next_csn();
        match &mut self.recovered.log {
            Some(log) => log.append(RegionKind::Node, |_, out| record.encode(out)).csn,
            None => self.csn_unlogged,
        }
    }

    fn carry_out(&mut self, completion: &WriteCompletion) -> Csn {
        let mut plan = std::mem::take(&mut self.plan);
        let mut csn = Csn::ZERO;
        let (last, slot) = (plan.len() - 1, self.recovered.meganodes[0].slot);
        for (at, change) in plan.changes().enumerate() {
            let completion = (at == last).then_some(*completion);
            csn = self.log_node(&NodeRecord::Tree { slot: slot.index, completion, change });
            let Recovered { memory, geometry, .. } = &mut self.recovered;
            self.filled.apply(&mut memory.node, *geometry, slot, &change, csn);
            if let Some(checkpoint) = self.pending.as_mut().filter(|_| self.copies_between_changes) {
                let end = self.recovered.meganodes[0].allocator.high_water();
                checkpoint.copy.step(&|_| end, csn.0 as u32 % 4).unwrap();
            }
        }
        plan.commit(&mut self.recovered.meganodes[0].allocator);
        self.plan = plan;
        self.recovered.completions.record(completion, csn);
        csn
    }

    fn free(&mut self, entry: Option<LeafEntry>, csn: Csn) {
        if let Some(entry) = entry {
            let bytes = ExtentShape::from_bits(entry.value_len).unwrap().extent_bytes();
            self.freed.push_back((csn, entry.offset, bytes));
        }
    }

    pub fn durable(&self) -> Csn {
        self.recovered.log.as_ref().map_or(Csn::ZERO, |log| log.csn_durable())
    }

    /// Sends what is gathered and takes what the disk reports.
    pub fn pump(&mut self) {
        let Some(log) = &mut self.recovered.log else { return };
        let mut events = Vec::new();
        self.device.poll(&mut events);
        for event in events {
            if let Some(csn) = log.on_event(event, &mut *self.device).unwrap() {
                self.model.acknowledged = csn;
            }
        }
        log.submit(&mut *self.device).unwrap();
        self.device.submit().unwrap();
        while let Some((csn, offset, bytes)) = self.freed.front().copied() {
            if csn > self.model.acknowledged {
                break;
            }
            self.recovered.extents.free(offset, bytes);
            self.freed.pop_front();
        }
    }

    pub fn settle(&mut self) {
        loop {
            self.pump();
            if !(self.work)() {
                self.pump();
                let log = self.recovered.log.as_ref();
                if log.is_none_or(|log| !log.is_busy() && !log.has_unsubmitted()) {
                    break;
                }
            }
        }
    }

    /// Begins a checkpoint, unless one is under way.
    pub fn begin_checkpoint(&mut self) {
        if self.pending.is_some() {
            return;
        }
        let base = self.image_base();
        let csn = base.csn;
        let copy = ImageCopy::begin(self.image_source(), Arc::clone(&self.storage), 1, base).unwrap();
        self.pending = Some(Checkpoint { copy, base: csn });
    }

    /// Copies some tree nodes; what is written between the steps makes the image fuzzy.
    pub fn step_checkpoint(&mut self, nodes: u32) {
        if let Some(checkpoint) = &mut self.pending {
            let end = self.recovered.meganodes[0].allocator.high_water();
            checkpoint.copy.step(&|_| end, nodes).unwrap();
        }
    }

    pub fn image_source(&self) -> ImageSource {
        ImageSource {
            pair: self.recovered.pair,
            epoch: self.recovered.epoch,
            node: self.recovered.memory.node.region().clone(),
            extent: self.recovered.memory.extent.region().clone(),
            geometry: self.recovered.geometry,
            filled: Arc::clone(&self.filled),
        }
    }

    /// What an image holds is not whole without the record that has freed a tree node which its copier found
    /// free: a cut that lacks the record needs the node.
    pub fn image_counts_what_freed_its_nodes(mut self) {
        self.settle();
        let mut copy =
            ImageCopy::begin(self.image_source(), Arc::clone(&self.storage), 1, self.image_base()).unwrap();
        let end = self.recovered.meganodes[0].allocator.high_water();
        let freed = Change::Mark { node: NodeIndex(end.0 - 1), state: TreeNodeState::Free };
        let (slot, csn) = (self.recovered.meganodes[0].slot, Csn(self.next_csn().0 + 7));
        self.filled.apply(&mut self.recovered.memory.node, self.recovered.geometry, slot, &freed, csn);
        while copy.step(&|_| end, u32::MAX).unwrap() {}
        assert!(copy.finish().unwrap().csn_max >= csn);
    }

    /// What an image begins with.
    pub fn image_base(&self) -> ImageBase {
        let Recovered { completions, splits, memory, .. } = &self.recovered;
        let appended = Csn(self.next_csn().0 - 1);
        ImageBase::capture(
            self.durable(),
            appended,
            Root::from_word(memory.node.region().first_word()),
            completions,
            splits,
        )
    }

    /// Completes the image, waits until it holds nothing that is not durable, and records it.
    pub fn end_checkpoint(&mut self) {
        let Some(Checkpoint { mut copy, base }) = self.pending.take() else { return };
        let end = self.recovered.meganodes[0].allocator.high_water();
        while copy.step(&|_| end, u32::MAX).unwrap() {}
        let image = copy.finish().unwrap();
        self.settle();
        assert!(self.durable() >= image.csn_max);
        self.record_image(base, image.csn_max, image.path);
    }

    pub fn record_image(&mut self, base: Csn, csn_max: Csn, file: String) {
        let row = cell_cluster::CheckpointRow { epoch: self.tenure.epoch, csn: base, csn_max, file };
        let row = self.table.record_checkpoint(self.tenure, &row).unwrap();
        if let Some(log) = &mut self.recovered.log {
            log.release_below(base, &mut *self.device);
            self.device.submit().unwrap();
        }
        cell_recovery::remove_unneeded(&*self.storage, &row).unwrap();
    }
}
