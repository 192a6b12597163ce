//! A pair's owner as small as can be, with a memory of what it was answered: what recoveries are measured by.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "each test binary uses its part"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cell_cluster::{Ownership, PairGeometry, Sim, Table};
use cell_memory::extent::{ExtentReader, ExtentShape};
use cell_pair::{CompactionStep, CompactionWalk, MemoryObserver, Pair, PairOptions, SlotEnds, WriteError};
use cell_recovery::image::{ImageCopy, ImageSource};
use cell_recovery::{
    CompletionTable, Environment, Recovered, RecoveryError, RecoveryOptions, Restore, WriteCompletion,
    WriteOutcome,
};
use cell_terms::{Csn, Durability, OperationNumber, PairId, SessionId, SlotIndex, Version};
use cell_test_kit::{Process, record_image};
use cell_tree::{LeafSnapshot, Meganode};
use cell_wal::sim::{SimDevice, SimDisk};
use cell_wal::{LogDevice, Storage};

pub const PAIR: PairId = PairId(1);
/// The pair's one meganode.
pub const SLOT: SlotIndex = SlotIndex(0);
pub const MS: u64 = 1_000_000;
pub const GEOMETRY: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + (256 << 10),
    extent_region_bytes: 4 << 20,
    slot_bytes: 256 << 10,
    node_bytes: 512,
};

/// Entries by key: value and version.
pub type Entries = BTreeMap<Vec<u8>, (Vec<u8>, Version)>;

/// A process whose recoveries have so many threads.
pub fn start(disk: &SimDisk, sim: &Sim, threads: usize) -> Process {
    Process::with(disk, sim, RecoveryOptions { threads, ..cell_test_kit::OPTIONS })
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

/// Copies a pair for an image, some tree nodes at a time.
struct Copying {
    copy: ImageCopy<ImageSource>,
    ends: Arc<SlotEnds>,
    base: Csn,
}

impl Copying {
    /// Whether there is more to copy.
    fn step(&mut self, nodes: u32) -> bool {
        self.copy.step(&|slot| self.ends.end(slot), nodes).unwrap()
    }
}

/// Lets the checkpoint that is under way go on between any two changes of memory.
#[derive(Clone, Default)]
pub struct Copier(Rc<RefCell<CopierState>>);

#[derive(Default)]
struct CopierState {
    between_changes: bool,
    copying: Option<Copying>,
    changes: u32,
}

impl MemoryObserver for Copier {
    fn changed(&mut self) {
        let CopierState { between_changes, copying, changes } = &mut *self.0.borrow_mut();
        *changes += 1;
        if let Some(copying) = copying.as_mut().filter(|_| *between_changes) {
            copying.step(*changes % 4);
        }
    }
}

/// The owner.
pub struct Owner {
    pub pair: Pair<Copier>,
    pub ownership: Ownership,
    pub device: Box<dyn LogDevice>,
    pub model: Model,
    pub table: Table,
    pub storage: Arc<dyn Storage>,
    /// Lets the disk work; whether there was anything to do.
    work: Box<dyn FnMut() -> bool>,
    session: SessionId,
    copier: Copier,
}

impl Owner {
    /// From a claim to an owner.
    pub fn publish(process: &Process, restore: Restore, session: SessionId) -> Result<Owner, RecoveryError> {
        let (recovered, device) = process.publish(restore, Durability::Sync)?;
        Ok(Owner::of(process, recovered, device, session))
    }

    /// Owns what was taken over.
    pub fn of(process: &Process, recovered: Recovered, device: SimDevice, session: SessionId) -> Owner {
        let ownership = process.ownership(recovered.pair, recovered.epoch);
        let disk = process.disk.clone();
        let work = Box::new(move || disk.step());
        Owner::new(&process.environment, recovered, ownership, Box::new(device), work, session)
    }

    fn new(
        environment: &Environment,
        recovered: Recovered,
        ownership: Ownership,
        device: Box<dyn LogDevice>,
        work: Box<dyn FnMut() -> bool>,
        session: SessionId,
    ) -> Owner {
        let options = PairOptions {
            durability: if recovered.log.is_some() { Durability::Sync } else { Durability::None },
            reuse_grace_ns: 0,
            grant_chunk_bytes: 64 << 10,
            split_fill_percent: 100,
            compaction_permille: 500,
        };
        let copier = Copier::default();
        Owner {
            pair: Pair::observed(recovered, &options, copier.clone()),
            ownership,
            device,
            model: Model::default(),
            table: environment.table.clone(),
            storage: Arc::clone(&environment.storage),
            work,
            session,
            copier,
        }
    }

    fn completion(&self, outcome: WriteOutcome) -> WriteCompletion {
        let number = self.model.number + 1;
        WriteCompletion {
            session: self.session,
            number: OperationNumber(number),
            floor: OperationNumber(number.saturating_sub(4).max(1)),
            outcome,
        }
    }

    /// Notes what was done; false if there was no room for it.
    fn note(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        csn_first: Csn,
        done: Result<(WriteOutcome, Csn), WriteError>,
    ) -> bool {
        let (outcome, csn_last) = match done {
            Ok(done) => done,
            Err(WriteError::NoRoom(_)) => return false,
            Err(WriteError::Pair(error)) => panic!("{error}"),
        };
        let written = match outcome {
            WriteOutcome::Written { version, .. } => value.map(|value| (value.to_vec(), version)),
            _ => None,
        };
        let (completion, changes) = (self.completion(outcome), outcome != WriteOutcome::NotFound);
        self.model.number = completion.number.0;
        self.model.done.push(Done { csn_first, csn_last, key: key.to_vec(), written, changes, completion });
        true
    }

    /// False if there was no room.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.pair.make_room(SLOT, value.len());
        let csn_first = self.next_csn();
        let named = self.completion(WriteOutcome::NotFound);
        let completion = |version, replaced| WriteCompletion {
            outcome: WriteOutcome::Written { version, replaced },
            ..named
        };
        let done = self.pair.put(SLOT, key, value, completion);
        self.note(key, Some(value), csn_first, done)
    }

    /// False if there was no room.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let csn_first = self.next_csn();
        let done = if self.pair.meganode(SLOT).search(key).unwrap().entry.is_some() {
            self.pair.delete(SLOT, key, &self.completion(WriteOutcome::Deleted))
        } else {
            let outcome = WriteOutcome::NotFound;
            self.pair.log_outcome(&self.completion(outcome)).map(|csn| (outcome, csn))
        };
        self.note(key, None, csn_first, done)
    }

    pub fn next_csn(&self) -> Csn {
        self.pair.appended().next()
    }

    pub fn durable(&self) -> Csn {
        self.pair.durable()
    }

    /// One above the highest tree node that was ever used.
    pub fn nodes_end(&self) -> u32 {
        self.pair.slot_ends().end(SLOT).0
    }

    /// Sends what is gathered and takes what the disk reports.
    pub fn pump(&mut self) {
        let mut events = Vec::new();
        self.device.poll(&mut events);
        for event in events {
            if self.pair.log_event(event, &mut *self.device).unwrap().is_some() {
                self.model.acknowledged = self.pair.durable();
            }
        }
        self.pair.submit(&mut *self.device).unwrap();
        self.device.submit().unwrap();
        self.pair.reuse(0);
    }

    pub fn settle(&mut self) {
        loop {
            self.pump();
            if !(self.work)() {
                self.pump();
                if self.pair.is_idle() {
                    break;
                }
            }
        }
    }

    /// From here on a checkpoint goes on between any two changes of memory.
    pub fn copy_between_changes(&mut self) {
        self.copier.0.borrow_mut().between_changes = true;
    }

    /// Begins a checkpoint, unless one is under way.
    pub fn begin_checkpoint(&mut self) {
        let copying = &mut self.copier.0.borrow_mut().copying;
        if copying.is_none() {
            let base = self.pair.image_base();
            let (csn, ends) = (base.csn, self.pair.slot_ends());
            let copy = ImageCopy::begin(self.pair.source(), Arc::clone(&self.storage), 1, base).unwrap();
            *copying = Some(Copying { copy, ends, base: csn });
        }
    }

    /// Copies some tree nodes; what is written between the steps makes the image fuzzy.
    pub fn step_checkpoint(&mut self, nodes: u32) {
        if let Some(copying) = &mut self.copier.0.borrow_mut().copying {
            copying.step(nodes);
        }
    }

    /// What an image holds is not whole without the record that has freed a tree node which its copier found
    /// free: a cut that lacks the record needs the node.
    pub fn image_counts_what_freed_its_nodes(mut self, keys: impl Iterator<Item = Vec<u8>>) {
        keys.enumerate().filter(|(at, _)| at % 7 > 0).for_each(|(_, key)| {
            while !self.delete(&key) {
                self.settle();
            }
        });
        self.settle();
        self.begin_checkpoint();
        let mut walk = CompactionWalk::default();
        loop {
            match self.pair.compact(SLOT, &mut walk).unwrap() {
                CompactionStep::Went(0) => {}
                CompactionStep::Went(_) => break,
                step => panic!("nothing was freed: {step:?}"),
            }
        }
        let mut copying = self.copier.0.borrow_mut().copying.take().unwrap();
        while copying.step(u32::MAX) {}
        // The frees are a compaction's last changes.
        assert!(copying.copy.finish().unwrap().csn_max >= self.pair.appended());
    }

    /// Completes the image, waits until it holds nothing that is not durable, and records it.
    pub fn end_checkpoint(&mut self) {
        let Some(mut copying) = self.copier.0.borrow_mut().copying.take() else { return };
        while copying.step(u32::MAX) {}
        let image = copying.copy.finish().unwrap();
        self.settle();
        assert!(self.durable() >= image.csn_max);
        self.record_image(copying.base, image.csn_max, image.path);
    }

    pub fn record_image(&mut self, base: Csn, csn_max: Csn, file: String) {
        record_image(&self.table, &*self.storage, self.ownership, base, (csn_max, file));
        self.pair.release_log(base, &mut *self.device);
        self.device.submit().unwrap();
    }
}
