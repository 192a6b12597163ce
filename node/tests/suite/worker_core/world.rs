//! A worker, its pairs and one client's session, in one process after another.

mod images;

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{CheckpointRow, ClaimReason, Ownership, PairGeometry, Sim};
use cell_fabric::ConnectionId;
use cell_memory::{Budget, MemoryKind, Reservation};
use cell_node::{CheckpointCommand, Command, ControlEvent, Worker, WorkerIdentity, WorkerOptions};
use cell_pair::{Pair, PairOptions, SlotEnds, check, check_targets};
use cell_protocol::{
    Hello, KeysWriter, PROTOCOL_VERSION, Reply, Request, RequestHeader, RequestId, StatusCode, WriteName,
};
use cell_recovery::image::{ImageCopy, ImageSource, WrittenImage};
use cell_recovery::{Progress, Restore};
use cell_terms::{Csn, Durability, OperationNumber, PairId, SessionId, Version};
use cell_test_kit::{NODE, Process};
use cell_wal::LogDevice;
use cell_wal::sim::{SimDevice, SimDisk};

pub(crate) use images::Image;

const CONNECTION: ConnectionId = ConnectionId::from_number(7);
const HELLO: Hello<'static> =
    Hello { version: PROTOCOL_VERSION, name: "test", token: &[], stream_credit_bytes: 1 << 20 };
const MS: u64 = 1_000_000;
/// Turns in which something must happen.
pub(crate) const TURNS: u32 = 100_000;

/// Four slots of 128 small tree nodes.
pub(crate) const GEOMETRY: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 4 * (64 << 10),
    extent_region_bytes: 4 << 20,
    slot_bytes: 64 << 10,
    node_bytes: 512,
};

/// What a worker runs with here: splits early, no checkpoints.
pub(crate) const OPTIONS: WorkerOptions = WorkerOptions {
    pair: PairOptions {
        durability: Durability::Sync,
        reuse_grace_ns: 5 * MS,
        grant_chunk_bytes: 2 << 20,
        split_fill_percent: 50,
        compaction_permille: 400,
    },
    tree_node_bytes: 512,
    value_bytes_max: 4096,
    parked_bytes_max: 32 << 20,
    result_bytes_max: 32 << 20,
    one_sided_reads: true,
    stream_bytes_max: 1 << 20,
    scan_page_entries_max: 100,
    checkpoint_log_ratio: 100.0,
    checkpoint_log_bytes_min: 1 << 40,
    checkpoint_age_ns: u64::MAX,
    session_idle_ns: u64::MAX,
    trust_max_ns: 300 * MS,
    merge_rest_ns: 1_000 * MS,
    spin_ns: 0,
    log_times: None,
    fabric: None,
    client_settings: None,
};

/// A reply, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Replied {
    Written(Version),
    Deleted,
    NotFound,
    Value(Vec<u8>),
    Refused(StatusCode),
    Other,
}

fn encoded(request: &Request<'_>, id: u32) -> Vec<u8> {
    let mut message = Vec::new();
    request.encode(RequestHeader { id: RequestId(id.into()), pair: PairId(0) }, &mut message).unwrap();
    message
}

/// A process that serves, and what outlives it.
pub(crate) struct World {
    disk: SimDisk,
    sim: Sim,
    geometry: PairGeometry,
    options: WorkerOptions,
    /// What each process may hold; `None`: anything.
    limit: Option<u64>,
    pub(crate) session: SessionId,
    serving: Serving,
    /// Once the pairs are at several nodes.
    others: Vec<Serving>,
    next_id: u32,
    replied: BTreeMap<u32, Replied>,
    /// What the last reply granted.
    pub(crate) trust_us: u32,
    /// In which list of registrations.
    pub(crate) list: u64,
    /// Who has the keys that were last said to be elsewhere.
    pub(crate) hint: Option<PairId>,
}

/// A process whose pairs a worker serves.
pub(crate) struct Serving {
    pub(crate) process: Process,
    worker: Worker,
    pub(crate) devices: Vec<SimDevice>,
    now_ns: u64,
    commands: Vec<Command>,
    served: BTreeMap<PairId, Served>,
    /// It dies when its disk has completed so many more operations.
    dies_after: Option<u64>,
    /// A pair whose batches are not submitted, by number: its log is slow.
    held: Option<usize>,
    /// Until when its lease holds.
    lease_until_ns: u64,
}

/// What the control thread knows of a pair.
struct Served {
    ownership: Ownership,
    source: Arc<ImageSource>,
    ends: Arc<SlotEnds>,
    written: Option<WrittenImage>,
}

impl Serving {
    pub(crate) fn start(disk: &SimDisk, sim: &Sim, options: WorkerOptions) -> Serving {
        Serving::within(None, disk, sim, options)
    }

    fn within(limit: Option<u64>, disk: &SimDisk, sim: &Sim, options: WorkerOptions) -> Serving {
        let mut process = Process::start(disk, sim);
        process.environment.budget = limit.map_or_else(Budget::unlimited, |limit| Budget::new(limit, 0));
        let identity = WorkerIdentity { node: NODE, incarnation: process.lease };
        let worker = Worker::new(identity, options, Arc::new(Progress::new(0)), 0);
        Serving {
            process,
            worker,
            devices: Vec::new(),
            now_ns: MS,
            commands: Vec::new(),
            served: BTreeMap::new(),
            dies_after: None,
            held: None,
            lease_until_ns: u64::MAX,
        }
    }

    /// One more pair.
    pub(crate) fn create(&mut self, geometry: PairGeometry, options: &WorkerOptions) -> Pair {
        let restore = self.process.restore(self.process.create(geometry)).unwrap();
        self.complete(restore, options)
    }

    /// Takes a pair over from who is dead.
    fn take(&mut self, pair: PairId, options: &WorkerOptions) -> Pair {
        let restore = self.process.claim(pair, ClaimReason::HostLock).unwrap();
        self.complete(restore, options)
    }

    /// Takes a pair as far as it can be served.
    fn complete(&mut self, restore: Restore, options: &WorkerOptions) -> Pair {
        let mut request = self.process.publish_request(options.pair.durability);
        // The longest value fits half a segment of the log, as a node's settings see to it.
        let segment_bytes = 4 * u64::try_from(options.value_bytes_max).unwrap();
        request.log.segment_bytes = request.log.segment_bytes.max(segment_bytes);
        let (recovered, device) = self.process.publish_as(restore, &request).unwrap();
        self.devices.push(device);
        let ownership = self.process.ownership(recovered.pair, recovered.epoch);
        let store = Pair::new(recovered, &options.pair);
        let (source, ends) = (Arc::new(store.source()), store.slot_ends());
        self.served.insert(ownership.pair, Served { ownership, source, ends, written: None });
        store
    }

    fn is_dead(&self) -> bool {
        self.dies_after == Some(0)
    }

    /// One operation of the disk, if there is one and the process lives.
    fn step_disk(&mut self) -> bool {
        if self.is_dead() || !self.process.disk.step() {
            return false;
        }
        self.dies_after.iter_mut().for_each(|left| *left -= 1);
        true
    }

    /// Writes the images that the worker wants, and records them, as the control thread does.
    fn write_images(&mut self) {
        for command in std::mem::take(&mut self.commands) {
            let Command::Checkpoint(pair, command) = command else {
                self.commands.push(command);
                continue;
            };
            let served = self.served.get_mut(&pair).unwrap();
            let event = match command {
                CheckpointCommand::WriteImage { base } => {
                    let (source, storage) = (served.source.clone(), self.process.environment.storage.clone());
                    let mut copy = ImageCopy::begin(source, storage, 1, *base).unwrap();
                    while copy.step(&|slot| served.ends.end(slot), 64).unwrap() {}
                    let image = copy.finish().unwrap();
                    let written = Ok(image.csn_max);
                    served.written = Some(image);
                    ControlEvent::ImageWritten { pair, written }
                }
                CheckpointCommand::Record { base, csn_max } => {
                    let (epoch, file) = (served.ownership.epoch, served.written.take().unwrap().path);
                    let row = CheckpointRow { epoch, csn: base, csn_max, file };
                    let table = &self.process.environment.table;
                    let recorded = table.record_checkpoint(served.ownership, &row).is_ok();
                    ControlEvent::CheckpointRecorded { pair, recorded }
                }
            };
            self.worker.control(event);
        }
    }

    fn turn(&mut self) {
        self.now_ns += MS;
        self.worker.tick(self.now_ns, self.lease_until_ns);
        while self.step_disk() {}
        if self.is_dead() {
            return;
        }
        for (pair, device) in self.devices.iter_mut().enumerate() {
            let mut events = Vec::new();
            device.poll(&mut events);
            for event in events {
                self.worker.log_event(pair, event, device);
            }
        }
        self.worker.end_of_poll();
        for (pair, device) in self.devices.iter_mut().enumerate() {
            if self.held == Some(pair) {
                continue;
            }
            self.worker.log_tick(pair, device);
            self.worker.commit(pair, device);
            device.submit().unwrap();
        }
        assert_eq!(self.worker.failure(), None);
        self.commands.append(&mut self.worker.take_commands());
    }
}

impl World {
    /// A first process with so many pairs.
    pub(crate) fn new(pairs: u32, geometry: PairGeometry, options: WorkerOptions) -> World {
        World::within(None, pairs, geometry, options)
    }

    /// As [`World::new`], of processes that hold no more than this in regions.
    pub(crate) fn within(
        limit: Option<u64>,
        pairs: u32,
        geometry: PairGeometry,
        options: WorkerOptions,
    ) -> World {
        let (disk, sim) = (SimDisk::new(5), Sim::new(3));
        let mut serving = Serving::within(limit, &disk, &sim, options.clone());
        let session = serving.process.environment.sessions.open(serving.process.lease).unwrap();
        let stores: Vec<Pair> = (0..pairs).map(|_| serving.create(geometry, &options)).collect();
        serving.worker.install(stores, [session]);
        let replied = BTreeMap::new();
        let others = Vec::new();
        let mut world = World {
            disk,
            sim,
            geometry,
            options,
            limit,
            session,
            serving,
            others,
            next_id: 0,
            replied,
            trust_us: 0,
            list: 0,
            hint: None,
        };
        world.greet();
        world
    }

    /// The process dies, and another takes its pairs over.
    pub(crate) fn restart(&mut self) {
        self.serving.process.crash();
        let pairs = u32::try_from(self.serving.devices.len()).unwrap();
        self.serving = self.take_over((1..=pairs).map(PairId));
        self.greet();
    }

    /// As [`World::restart`]; what a read is answered that comes before the new process has done anything.
    pub(crate) fn restart_and_get(&mut self, key: &[u8]) -> Replied {
        self.serving.process.crash();
        let pairs = u32::try_from(self.serving.devices.len()).unwrap();
        self.serving = self.take_over((1..=pairs).map(PairId));
        self.serving.worker.accepted(CONNECTION);
        let hello = self.send(&Request::Hello(HELLO));
        let get = self.send(&Request::Get { key });
        assert_eq!(self.answer(hello), Replied::Other);
        self.answer(get)
    }

    /// A new process takes pairs over.
    fn take_over(&self, pairs: impl Iterator<Item = PairId>) -> Serving {
        let mut serving = Serving::within(self.limit, &self.disk, &self.sim, self.options.clone());
        let stores: Vec<Pair> = pairs.map(|pair| serving.take(pair, &self.options)).collect();
        serving.worker.install(stores, [self.session]);
        serving
    }

    /// The process dies, and its pairs are taken over by as many processes as there are lists.
    pub(crate) fn scatter(&mut self, lists: &[&[u32]]) {
        self.serving.process.crash();
        self.others = lists.iter().map(|pairs| self.take_over(pairs.iter().copied().map(PairId))).collect();
        self.serving = self.others.remove(0);
        (0..self.processes()).for_each(|at| self.greet_of(at));
    }

    /// A pair that has left the worker is given up in the table; a second process, which has all of its own
    /// lease, takes it over while the first one lives.
    pub(crate) fn hand_to_second(&mut self, pair: u32, cut: Csn) {
        let ownership = self.serving.served.remove(&PairId(pair)).unwrap().ownership;
        self.serving.process.environment.table.leave(ownership, cut).unwrap();
        self.others = vec![self.take_over(std::iter::once(PairId(pair)))];
        self.greet_of(1);
    }

    /// The second process dies, and the first one takes a pair of it over.
    pub(crate) fn take_from_second(&mut self, pair: u32) {
        let store = self.recover_from_second(pair);
        self.add(store);
    }

    /// The second process dies, and the first one recovers a pair of it, which its worker does not get yet.
    pub(crate) fn recover_from_second(&mut self, pair: u32) -> Pair {
        self.others.remove(0).process.crash();
        self.serving.take(PairId(pair), &self.options)
    }

    /// The first worker gets a pair that was recovered.
    pub(crate) fn add(&mut self, pair: Pair) {
        let number = self.serving.worker.add_pair(pair);
        while self.serving.devices.len() <= number {
            self.serving.devices.push(self.disk.device());
        }
    }

    /// The session's end is recorded in the coordinator, and no worker learns of it.
    pub(crate) fn end_session(&self) {
        self.serving.process.environment.sessions.end(self.session).unwrap();
    }

    /// Processes that serve.
    pub(crate) fn processes(&self) -> usize {
        1 + self.others.len()
    }

    fn serving_mut(&mut self, at: usize) -> &mut Serving {
        if at == 0 { &mut self.serving } else { &mut self.others[at - 1] }
    }

    fn serving_of(&self, at: usize) -> &Serving {
        if at == 0 { &self.serving } else { &self.others[at - 1] }
    }

    pub(crate) fn worker_of(&self, at: usize) -> &Worker {
        &self.serving_of(at).worker
    }

    /// What a worker has asked its control thread for.
    pub(crate) fn take_commands(&mut self, at: usize) -> Vec<Command> {
        std::mem::take(&mut self.serving_mut(at).commands)
    }

    pub(crate) fn notify(&mut self, at: usize, event: ControlEvent) {
        self.serving_mut(at).worker.control(event);
    }

    /// One more pair, as its node adds it.
    pub(crate) fn add_pair(&mut self) -> PairId {
        let store = self.serving.create(self.geometry, &self.options);
        let pair = store.id();
        self.serving.worker.add_pair(store);
        pair
    }

    /// What is left of memory is kept for pairs that are being recovered, or is there for all again.
    pub(crate) fn hold_growth(&self, held: bool) {
        self.serving.process.environment.budget.hold_growth(held);
    }

    /// What the process may still take.
    pub(crate) fn available(&self) -> u64 {
        self.serving.process.environment.budget.available()
    }

    /// All but so many bytes of that are something else's, until it is dropped.
    pub(crate) fn leave_memory(&self, bytes: u64) -> Reservation {
        let budget = &self.serving.process.environment.budget;
        budget.reserve(MemoryKind::Logs, budget.available() - bytes).unwrap()
    }

    /// Its worker reports its figures so often.
    pub(crate) fn reporting(mut self, every_ns: u64) -> World {
        self.serving.worker = self.serving.worker.reporting(every_ns);
        self
    }

    fn greet(&mut self) {
        self.greet_of(0);
    }

    fn greet_of(&mut self, at: usize) {
        self.serving_mut(at).worker.accepted(CONNECTION);
        let id = self.send_to(at, &Request::Hello(HELLO));
        assert_eq!(self.answer_of(at, id), Replied::Other);
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.serving.worker
    }

    /// The worker, to be stepped by hand.
    pub(crate) fn worker_mut(&mut self) -> &mut Worker {
        &mut self.serving.worker
    }

    /// Whether the worker has asked for one more pair since this was asked last.
    pub(crate) fn wants_pair(&mut self) -> bool {
        let asked = self.serving.commands.iter().any(|command| matches!(command, Command::AddPair { .. }));
        self.serving.commands.clear();
        asked
    }

    /// The disk takes so many bytes more than it holds now; `None`: any number.
    pub(crate) fn leave_room(&mut self, bytes: Option<u64>) {
        self.disk.set_capacity(bytes.map(|bytes| self.disk.used() + bytes));
    }

    /// Hands the worker a request; its number.
    pub(crate) fn send(&mut self, request: &Request<'_>) -> u32 {
        self.send_to(0, request)
    }

    pub(crate) fn send_to(&mut self, at: usize, request: &Request<'_>) -> u32 {
        self.next_id += 1;
        let message = encoded(request, self.next_id);
        self.serving_mut(at).worker.message(CONNECTION, &message);
        self.next_id
    }

    /// Asks the worker for many keys at once; the question's number.
    pub(crate) fn send_multi_get(&mut self, keys: &[&[u8]]) -> u32 {
        self.next_id += 1;
        let (mut message, id) = (Vec::new(), RequestId(self.next_id.into()));
        let mut writer = KeysWriter::begin(RequestHeader { id, pair: PairId(0) }, &mut message).unwrap();
        keys.iter().for_each(|key| writer.push(key).unwrap());
        writer.finish();
        self.serving.worker.message(CONNECTION, &message);
        self.next_id
    }

    /// Hands the worker one more message of a request.
    pub(crate) fn send_of(&mut self, id: u32, request: &Request<'_>) {
        self.serving.worker.message(CONNECTION, &encoded(request, id));
    }

    /// One more client connects and greets; the number of its greeting.
    pub(crate) fn come(&mut self, connection: ConnectionId) -> u32 {
        self.next_id += 1;
        self.serving.worker.accepted(connection);
        self.serving.worker.message(connection, &encoded(&Request::Hello(HELLO), self.next_id));
        self.next_id
    }

    /// Hands the worker a request of such a client; its number.
    pub(crate) fn send_from(&mut self, connection: ConnectionId, request: &Request<'_>) -> u32 {
        self.next_id += 1;
        self.serving.worker.message(connection, &encoded(request, self.next_id));
        self.next_id
    }

    /// From now on a pair's batches wait, by its number, or none's do.
    pub(crate) fn hold(&mut self, pair: Option<usize>) {
        self.serving.held = pair;
    }

    /// Time passes without a turn: the worker is not notified.
    pub(crate) fn pass(&mut self, for_ns: u64) {
        self.serving.now_ns += for_ns;
    }

    /// From now on the lease holds until then.
    pub(crate) fn set_lease(&mut self, until_ns: u64) {
        self.serving.lease_until_ns = until_ns;
    }

    /// One turn of the worker's thread.
    pub(crate) fn turn(&mut self) {
        self.turn_of(0);
    }

    /// Half a turn of one of the workers' threads, whose replies wait.
    pub(crate) fn step_of(&mut self, at: usize) {
        self.serving_mut(at).turn();
    }

    /// One turn of one of the workers' threads.
    pub(crate) fn turn_of(&mut self, at: usize) {
        let serving = if at == 0 { &mut self.serving } else { &mut self.others[at - 1] };
        serving.turn();
        if serving.is_dead() {
            return;
        }
        let (now_ns, lease_until_ns) = (serving.now_ns, serving.lease_until_ns);
        for (_, reply) in serving.worker.release(now_ns, lease_until_ns).iter() {
            let (header, reply) = Reply::decode(reply).unwrap();
            (self.trust_us, self.list) = (header.trust_us, header.list);
            let replied = match reply {
                Reply::Written { version } => Replied::Written(version),
                Reply::Deleted => Replied::Deleted,
                Reply::NotFound => Replied::NotFound,
                Reply::Value { value, .. } => Replied::Value(value.to_vec()),
                Reply::Refused(refusal) => Replied::Refused(refusal.status()),
                Reply::Credit { .. } => continue,
                Reply::Elsewhere(route) => {
                    self.hint = Some(route.pair);
                    Replied::Other
                }
                _ => Replied::Other,
            };
            self.replied.insert(u32::try_from(header.id.0).unwrap(), replied);
        }
        serving.worker.replies_sent();
    }

    /// The process dies when its disk has completed so many more operations.
    pub(crate) fn die_after(&mut self, operations: u64) {
        self.serving.dies_after = Some(operations);
    }

    /// Whether the process has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.serving.is_dead()
    }

    /// The images that the worker wants are written and recorded.
    pub(crate) fn write_images(&mut self) {
        self.serving.write_images();
    }

    /// What the dead had in flight reaches the disk.
    pub(crate) fn land_late(&mut self) {
        self.serving.process.crash();
        while self.disk.land_late() {}
    }

    /// Checks everything that is served; what is wrong first.
    pub(crate) fn violation(&self) -> Option<String> {
        let served = self.serving.served.values();
        let targets: Vec<_> = served.flat_map(|served| check_targets(&served.source, &served.ends)).collect();
        let outcome = check(&targets, || {});
        (outcome.violations > 0).then_some(outcome.first_violation)
    }

    /// The time of the worker's machine.
    pub(crate) fn now_ns(&self) -> u64 {
        self.serving.now_ns
    }

    /// The answer to a request, if it is there.
    pub(crate) fn answered(&mut self, id: u32) -> Option<Replied> {
        self.replied.remove(&id)
    }

    /// A write's name in the session.
    pub(crate) fn name(&self, number: u64, floor: u64) -> WriteName {
        let (number, floor) = (OperationNumber(number), OperationNumber(floor));
        WriteName { session: self.session, number, floor }
    }
}
