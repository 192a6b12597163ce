//! A pair over a simulated disk, in a test's hands.

use cell_cluster::{ClaimReason, PairGeometry, Sim};
use cell_pair::{Pair, PairOptions, SyncedBatch, WriteError};
use cell_recovery::{Admission, WriteCompletion, WriteOutcome};
use cell_terms::{Csn, Durability, OperationNumber, PairId, SessionId, SlotIndex};
use cell_test_kit::Process;
use cell_tree::SearchResult;
use cell_wal::LogDevice;
use cell_wal::sim::{SimDevice, SimDisk};

pub(crate) const PAIR: PairId = PairId(1);
/// The meganode that the pair begins with.
pub(crate) const SLOT: SlotIndex = SlotIndex(0);
pub(crate) const GRACE_NS: u64 = 1_000;
/// What a log has of the disk at a time.
pub(crate) const SEGMENT_BYTES: u64 = 1 << 20;

const GEOMETRY: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 6 * (64 << 10),
    extent_region_bytes: 4 << 20,
    slot_bytes: 64 << 10,
    node_bytes: 512,
};

pub(crate) const OPTIONS: PairOptions = PairOptions {
    durability: Durability::Sync,
    reuse_grace_ns: GRACE_NS,
    grant_chunk_bytes: 64 << 10,
    split_fill_percent: 100,
    compaction_permille: 500,
};

pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

pub(crate) fn value(number: usize) -> Vec<u8> {
    format!("value {number}").into_bytes()
}

/// Who holds the pair, and what it was answered.
pub(crate) struct Owner {
    pub(crate) pair: Pair,
    pub(crate) device: SimDevice,
    pub(crate) disk: SimDisk,
    sim: Sim,
    life: Process,
    session: SessionId,
    /// What its writes ended as: the first one has the number 1.
    done: Vec<(WriteOutcome, Csn)>,
    now_ns: u64,
}

impl Owner {
    /// Of a new pair.
    pub(crate) fn new() -> Owner {
        Owner::with(OPTIONS)
    }

    pub(crate) fn with(options: PairOptions) -> Owner {
        let (disk, sim) = (SimDisk::new(1), Sim::new(7));
        let life = Process::start(&disk, &sim);
        let session = life.environment.sessions.open(life.lease).unwrap();
        let restore = life.restore(life.create(GEOMETRY)).unwrap();
        let (recovered, device) = life.publish(restore, options.durability).unwrap();
        let pair = Pair::new(recovered, &options);
        let mut owner = Owner { pair, device, disk, sim, life, session, done: Vec::new(), now_ns: 0 };
        owner.settle();
        owner
    }

    /// Its process dies; the next one's.
    pub(crate) fn crash(self) -> Owner {
        let Owner { disk, sim, life, session, done, .. } = self;
        life.crash();
        let life = Process::start(&disk, &sim);
        let restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
        let (recovered, device) = life.publish(restore, OPTIONS.durability).unwrap();
        let pair = Pair::new(recovered, &OPTIONS);
        let mut owner = Owner { pair, device, disk, sim, life, session, done, now_ns: 0 };
        owner.settle();
        owner
    }

    fn completion(&self, outcome: WriteOutcome) -> WriteCompletion {
        let number = OperationNumber(self.done.len() as u64 + 1);
        WriteCompletion { session: self.session, number, floor: OperationNumber(1), outcome }
    }

    /// The CSN that a client is answered after.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Csn, WriteError> {
        let named = self.completion(WriteOutcome::NotFound);
        self.pair.make_room(SLOT, value.len());
        let done = self.pair.put(SLOT, key, value, |version, replaced| WriteCompletion {
            outcome: WriteOutcome::Written { version, replaced },
            ..named
        })?;
        self.done.push(done);
        Ok(done.1)
    }

    /// So many entries, all of them durable.
    pub(crate) fn put_entries(&mut self, count: usize) {
        for number in 0..count {
            self.put(&key(number), &value(number)).unwrap();
            if number % 16 == 0 {
                self.settle();
            }
        }
        self.settle();
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<Csn, WriteError> {
        let completion = self.completion(WriteOutcome::Deleted);
        let done = self.pair.delete(SLOT, key, &completion)?;
        self.done.push(done);
        Ok(done.1)
    }

    /// A delete of what is not there.
    pub(crate) fn delete_nothing(&mut self) -> Result<Csn, WriteError> {
        let completion = self.completion(WriteOutcome::NotFound);
        let csn = self.pair.log_outcome(&completion)?;
        self.done.push((WriteOutcome::NotFound, csn));
        Ok(csn)
    }

    /// Each of its writes is repeated by its client: how many were answered as they had been.
    pub(crate) fn repeat_all(&mut self) -> usize {
        for (number, (outcome, csn)) in (1..).zip(self.done.iter().copied()) {
            let (number, floor) = (OperationNumber(number), OperationNumber(1));
            let admitted = self.pair.completions().admit(self.session, number, floor, false);
            assert_eq!(admitted, Admission::Repeat { outcome, csn }, "{number:?}");
        }
        self.done.len()
    }

    pub(crate) fn search(&self, slot: SlotIndex, key: &[u8]) -> SearchResult {
        self.pair.meganode(slot).search(key).unwrap()
    }

    /// The value of an entry that must be there.
    pub(crate) fn value(&self, slot: SlotIndex, key: &[u8]) -> Vec<u8> {
        let mut value = Vec::new();
        self.pair.read(&self.search(slot, key).entry.unwrap(), &mut value).unwrap();
        value
    }

    /// What the device reports is taken: the batches that became durable.
    pub(crate) fn report(&mut self) -> Vec<SyncedBatch> {
        let mut events = Vec::new();
        self.device.poll(&mut events);
        let report = |event| self.pair.log_event(event, &mut self.device).unwrap();
        events.into_iter().filter_map(report).collect()
    }

    /// All that was appended becomes durable.
    pub(crate) fn settle(&mut self) {
        let disk = self.disk.clone();
        cell_test_kit::settle(&mut self.pair, &mut self.device, || disk.step());
    }

    /// A grace period passes for what is durable.
    pub(crate) fn rest(&mut self) {
        self.pair.reuse(self.now_ns);
        self.now_ns += GRACE_NS;
        self.pair.reuse(self.now_ns);
    }
}
