//! A worker, its pairs and one client's session, in one process after another.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{
    CheckpointRow, ClaimReason, Coordinator, HostId, NewPair, PairGeometry, ServingAddress, Sessions, Sim,
    Table, Tenure,
};
use cell_fabric::ConnectionId;
use cell_node::{CheckpointCommand, Command, ControlEvent, Worker, WorkerIdentity, WorkerOptions};
use cell_pair::{Pair, PairOptions, SlotEnds, check, check_targets};
use cell_protocol::{
    Hello, PROTOCOL_VERSION, Reply, Request, RequestHeader, RequestId, StatusCode, WriteName,
};
use cell_recovery::image::{ImageBase, ImageCopy, ImageSource, WrittenImage};
use cell_recovery::{
    ClaimRequest, Environment, Progress, PublishRequest, RecoveryOptions, RegionSource, Restore, complete,
};
use cell_terms::{Csn, Durability, Incarnation, NodeId, OperationNumber, PairId, SessionId, Version};
use cell_wal::sim::{SimDevice, SimDisk};
use cell_wal::{LogDevice, LogOptions};

const NODE: NodeId = NodeId(0);
const CONNECTION: ConnectionId = ConnectionId::from_number(7);
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
    one_sided_reads: true,
    stream_bytes_max: 1 << 20,
    scan_page_entries_max: 100,
    checkpoint_log_ratio: 100.0,
    checkpoint_log_bytes_min: 1 << 40,
    checkpoint_age_ns: u64::MAX,
    session_idle_ns: u64::MAX,
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

/// A process that serves, and what outlives it.
pub(crate) struct World {
    disk: SimDisk,
    sim: Sim,
    geometry: PairGeometry,
    options: WorkerOptions,
    pub(crate) session: SessionId,
    process: Process,
    /// Once the pairs are at several nodes.
    others: Vec<Process>,
    next_id: u32,
    told: BTreeMap<u32, Replied>,
}

/// An image that is being made.
pub(crate) struct Image {
    pair: PairId,
    copy: ImageCopy<ImageSource>,
    ends: Arc<SlotEnds>,
}

pub(crate) struct Process {
    disk: SimDisk,
    pub(crate) environment: Environment,
    pub(crate) lease: Incarnation,
    worker: Worker,
    pub(crate) devices: Vec<SimDevice>,
    now_ns: u64,
    commands: Vec<Command>,
    served: BTreeMap<PairId, Served>,
    /// It dies when its disk has completed so many more operations.
    dies_after: Option<u64>,
    /// A pair whose batches are not submitted, by number: its log is slow.
    held: Option<usize>,
}

/// What the control thread knows of a pair.
struct Served {
    tenure: Tenure,
    source: Arc<ImageSource>,
    ends: Arc<SlotEnds>,
    written: Option<WrittenImage>,
}

impl Process {
    pub(crate) fn begin(disk: &SimDisk, sim: &Sim, options: WorkerOptions) -> Process {
        let disk = disk.process();
        let link = sim.link();
        let lease = link.grant(500).unwrap().lease;
        let coordinator: Arc<dyn Coordinator> = Arc::new(link);
        let environment = Environment {
            storage: Arc::new(disk.clone()),
            table: Table::new(Arc::clone(&coordinator)).on_host(Some(HostId::new(1, 1))),
            sessions: Sessions::new(coordinator),
            budget: cell_memory::Budget::unlimited(),
            options: RecoveryOptions {
                threads: 1,
                read_bytes: 64 << 10,
                regions: RegionSource::Private,
                node_crc: false,
            },
        };
        let identity = WorkerIdentity { node: NODE, incarnation: lease };
        let worker = Worker::new(identity, options, Arc::new(Progress::new(0)), 0);
        Process {
            disk,
            environment,
            lease,
            worker,
            devices: Vec::new(),
            now_ns: MS,
            commands: Vec::new(),
            served: BTreeMap::new(),
            dies_after: None,
            held: None,
        }
    }

    /// Takes a pair as far as it can be served.
    pub(crate) fn complete(&mut self, sim: &Sim, restore: Restore, options: &WorkerOptions) -> Pair {
        let request = PublishRequest {
            durability: options.pair.durability,
            place: ServingAddress { address: "sim".to_owned(), worker: 0, node_key: 0, extent_key: 0 },
            log: LogOptions { segment_bytes: 1 << 20, batch_bytes: 64 << 10, ..LogOptions::default() },
            salt: self.lease.0.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        let (disk, lease) = (self.disk.clone(), self.lease);
        let mut device = disk.device();
        let mut pause = |ns: u64| {
            sim.advance(ns.min(100 * MS));
            disk.step();
            sim.link().keep_alive(lease).is_ok()
        };
        let progress = Arc::new(Progress::new(0));
        let recovered =
            complete(&self.environment, restore, &request, &mut device, &progress, &mut pause).unwrap();
        self.devices.push(device);
        let tenure = Tenure { pair: recovered.pair, epoch: recovered.epoch, incarnation: lease };
        let store = Pair::new(recovered, &options.pair);
        let (source, ends) = (Arc::new(store.source()), store.slot_ends());
        self.served.insert(tenure.pair, Served { tenure, source, ends, written: None });
        store
    }

    fn is_dead(&self) -> bool {
        self.dies_after == Some(0)
    }

    /// One operation of the disk, if there is one and the process lives.
    fn step_disk(&mut self) -> bool {
        if self.is_dead() || !self.disk.step() {
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
                    let (source, storage) = (served.source.clone(), self.environment.storage.clone());
                    let mut copy = ImageCopy::begin(source, storage, 1, *base).unwrap();
                    while copy.step(&|slot| served.ends.end(slot), 64).unwrap() {}
                    let image = copy.finish().unwrap();
                    let csn_max = Some(image.csn_max);
                    served.written = Some(image);
                    ControlEvent::ImageWritten { pair, csn_max }
                }
                CheckpointCommand::Record { base, csn_max } => {
                    let (epoch, file) = (served.tenure.epoch, served.written.take().unwrap().path);
                    let row = CheckpointRow { epoch, csn: base, csn_max, file };
                    let recorded = self.environment.table.record_checkpoint(served.tenure, &row).is_ok();
                    ControlEvent::CheckpointRecorded { pair, recorded }
                }
            };
            self.worker.control(event);
        }
    }

    fn turn(&mut self) {
        self.now_ns += MS;
        self.worker.tick(self.now_ns, u64::MAX);
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
        let (disk, sim) = (SimDisk::new(5), Sim::new(3));
        let mut process = Process::begin(&disk, &sim, options.clone());
        let session = process.environment.sessions.open(process.lease).unwrap();
        let new = NewPair { incarnation: process.lease, node: NODE, geometry };
        let mut stores = Vec::new();
        for _ in 0..pairs {
            let claim = process.environment.table.create_pair(&new).unwrap();
            let progress = Arc::new(Progress::new(0));
            let restore = Restore::new(&process.environment, claim, &progress).unwrap();
            stores.push(process.complete(&sim, restore, &options));
        }
        process.worker.install(stores, [session]);
        let told = BTreeMap::new();
        let others = Vec::new();
        let mut world = World { disk, sim, geometry, options, session, process, others, next_id: 0, told };
        world.greet();
        world
    }

    /// The process dies, and another takes its pairs over.
    pub(crate) fn restart(&mut self) {
        self.process.disk.kill();
        let pairs = u32::try_from(self.process.devices.len()).unwrap();
        let mut process = Process::begin(&self.disk, &self.sim, self.options.clone());
        self.take_over(&mut process, (1..=pairs).map(PairId));
        self.process = process;
        self.greet();
    }

    fn take_over(&self, process: &mut Process, pairs: impl Iterator<Item = PairId>) {
        let mut stores = Vec::new();
        for pair in pairs {
            let reason = ClaimReason::HostLock;
            let request = ClaimRequest { pair, incarnation: process.lease, node: NODE, reason };
            let progress = Arc::new(Progress::new(0));
            let restore = Restore::claim(&process.environment, &request, &progress).unwrap();
            stores.push(process.complete(&self.sim, restore, &self.options));
        }
        process.worker.install(stores, [self.session]);
    }

    /// The process dies, and its pairs are taken over by as many processes as there are lists.
    pub(crate) fn scatter(&mut self, lists: &[&[u32]]) {
        self.process.disk.kill();
        let mut processes: Vec<Process> = Vec::new();
        for pairs in lists {
            let mut process = Process::begin(&self.disk, &self.sim, self.options.clone());
            self.take_over(&mut process, pairs.iter().copied().map(PairId));
            processes.push(process);
        }
        self.process = processes.remove(0);
        self.others = processes;
        (0..self.processes()).for_each(|at| self.greet_of(at));
    }

    /// The second process dies, and the first one takes a pair of it over.
    pub(crate) fn take_from_second(&mut self, pair: u32) {
        self.others.remove(0).disk.kill();
        let process = &mut self.process;
        let request = ClaimRequest {
            pair: PairId(pair),
            incarnation: process.lease,
            node: NODE,
            reason: ClaimReason::HostLock,
        };
        let restore = Restore::claim(&process.environment, &request, &Arc::new(Progress::new(0))).unwrap();
        let store = process.complete(&self.sim, restore, &self.options);
        process.worker.add_pair(store);
    }

    /// The session's end is recorded in the coordinator, and no worker hears of it.
    pub(crate) fn end_session(&self) {
        self.process.environment.sessions.end(self.session).unwrap();
    }

    /// Processes that serve.
    pub(crate) fn processes(&self) -> usize {
        1 + self.others.len()
    }

    fn process_mut(&mut self, at: usize) -> &mut Process {
        if at == 0 { &mut self.process } else { &mut self.others[at - 1] }
    }

    fn process_of(&self, at: usize) -> &Process {
        if at == 0 { &self.process } else { &self.others[at - 1] }
    }

    pub(crate) fn worker_of(&self, at: usize) -> &Worker {
        &self.process_of(at).worker
    }

    /// What a worker has asked its control thread for.
    pub(crate) fn take_commands(&mut self, at: usize) -> Vec<Command> {
        std::mem::take(&mut self.process_mut(at).commands)
    }

    pub(crate) fn tell(&mut self, at: usize, event: ControlEvent) {
        self.process_mut(at).worker.control(event);
    }

    /// One more pair, as its node adds it.
    pub(crate) fn add_pair(&mut self) {
        let new = NewPair { incarnation: self.process.lease, node: NODE, geometry: self.geometry };
        let claim = self.process.environment.table.create_pair(&new).unwrap();
        let progress = Arc::new(Progress::new(0));
        let restore = Restore::new(&self.process.environment, claim, &progress).unwrap();
        let store = self.process.complete(&self.sim, restore, &self.options);
        self.process.worker.add_pair(store);
    }

    fn greet(&mut self) {
        self.greet_of(0);
    }

    fn greet_of(&mut self, at: usize) {
        self.process_mut(at).worker.accepted(CONNECTION);
        let hello =
            Hello { version: PROTOCOL_VERSION, name: "test", token: &[], stream_credit_bytes: 1 << 20 };
        let id = self.send_to(at, &Request::Hello(hello));
        assert_eq!(self.answer_of(at, id), Replied::Other);
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.process.worker
    }

    /// The worker, to be stepped by hand.
    pub(crate) fn worker_mut(&mut self) -> &mut Worker {
        &mut self.process.worker
    }

    /// Whether the worker has asked for one more pair since this was asked last.
    pub(crate) fn wants_pair(&mut self) -> bool {
        let asked = self.process.commands.iter().any(|command| matches!(command, Command::AddPair));
        self.process.commands.clear();
        asked
    }

    /// The disk takes so many bytes more than it holds now; `None`: any number.
    pub(crate) fn leave_room(&mut self, bytes: Option<u64>) {
        self.disk.set_capacity(bytes.map(|bytes| self.disk.used() + bytes));
    }

    /// The answer to a request, waited for; images wanted meanwhile are written, if there is room.
    pub(crate) fn answer_with_checkpoints(&mut self, id: u32) -> Replied {
        let mut written = None;
        for _ in 0..TURNS {
            if let Some(told) = self.answered(id) {
                return told;
            }
            self.turn();
            for command in std::mem::take(&mut self.process.commands) {
                match command {
                    Command::Checkpoint(pair, CheckpointCommand::WriteImage { base }) => {
                        written = self.write_image(pair, *base);
                        let csn_max = written.as_ref().map(|written: &WrittenImage| written.csn_max);
                        self.process.worker.control(ControlEvent::ImageWritten { pair, csn_max });
                    }
                    Command::Checkpoint(pair, CheckpointCommand::Record { base, csn_max }) => {
                        self.record(pair, base, csn_max, written.take().unwrap().path);
                        self.process
                            .worker
                            .control(ControlEvent::CheckpointRecorded { pair, recorded: true });
                    }
                    _ => {}
                }
            }
        }
        panic!("request {id} is not answered");
    }

    fn write_image(&self, pair: PairId, base: ImageBase) -> Option<WrittenImage> {
        let store = self.process.worker.pairs().find(|store| store.id() == pair).unwrap();
        let (source, ends) = (store.source(), store.slot_ends());
        let storage = Arc::new(self.process.disk.clone());
        cell_recovery::image::write_image(&source, storage, 1, base, &|slot| ends.end(slot)).ok()
    }

    fn record(&self, pair: PairId, base: Csn, csn_max: Csn, file: String) {
        let table = &self.process.environment.table;
        let epoch = table.pair(pair).unwrap().epoch;
        let tenure = Tenure { pair, epoch, incarnation: self.process.lease };
        let row = CheckpointRow { epoch, csn: base, csn_max, file };
        let row = table.record_checkpoint(tenure, &row).unwrap();
        cell_recovery::remove_unneeded(&self.process.disk, &row).unwrap();
    }

    /// Waits until the worker wants an image of a pair, and begins it.
    pub(crate) fn next_image(&mut self, pair: PairId) -> Image {
        self.process.commands.clear();
        for _ in 0..TURNS {
            self.turn();
            for command in std::mem::take(&mut self.process.commands) {
                let Command::Checkpoint(of, CheckpointCommand::WriteImage { base }) = command else {
                    continue;
                };
                if of == pair {
                    let store = self.process.worker.pairs().find(|store| store.id() == pair).unwrap();
                    let (source, ends) = (store.source(), store.slot_ends());
                    let copy = ImageCopy::begin(source, Arc::new(self.process.disk.clone()), 1, *base);
                    return Image { pair, copy: copy.unwrap(), ends };
                }
            }
        }
        panic!("no image of {pair} is wanted");
    }

    /// Copies so many tree nodes; whether there are more.
    pub(crate) fn step_image(&mut self, image: &mut Image, nodes: u32) -> bool {
        let Image { copy, ends, .. } = image;
        copy.step(&|slot| ends.end(slot), nodes).unwrap()
    }

    /// Completes an image and records the checkpoint.
    pub(crate) fn end_image(&mut self, image: Image) {
        self.record_image(image, true);
    }

    /// Completes an image and records the checkpoint; the worker is told that this failed.
    pub(crate) fn end_image_unanswered(&mut self, image: Image) {
        self.record_image(image, false);
    }

    /// Completes an image, and nobody says so.
    pub(crate) fn finish_image(&mut self, image: Image) {
        image.copy.finish().unwrap();
    }

    fn record_image(&mut self, image: Image, recorded: bool) {
        let Image { pair, copy, .. } = image;
        let written = copy.finish().unwrap();
        let csn_max = Some(written.csn_max);
        self.process.worker.control(ControlEvent::ImageWritten { pair, csn_max });
        for _ in 0..TURNS {
            self.turn();
            for command in std::mem::take(&mut self.process.commands) {
                let Command::Checkpoint(_, CheckpointCommand::Record { base, csn_max }) = command else {
                    continue;
                };
                self.record(pair, base, csn_max, written.path);
                return self.process.worker.control(ControlEvent::CheckpointRecorded { pair, recorded });
            }
        }
        panic!("the image of {pair} is not recorded");
    }

    /// The worker's image could not be written.
    pub(crate) fn image_failed(&mut self, pair: PairId) {
        self.process.worker.control(ControlEvent::ImageWritten { pair, csn_max: None });
    }

    /// Hands the worker a request; its number.
    pub(crate) fn send(&mut self, request: &Request<'_>) -> u32 {
        self.send_to(0, request)
    }

    pub(crate) fn send_to(&mut self, at: usize, request: &Request<'_>) -> u32 {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = Vec::new();
        request.encode(RequestHeader { id: RequestId(id.into()), pair: PairId(0) }, &mut message).unwrap();
        self.process_mut(at).worker.message(CONNECTION, &message);
        id
    }

    /// From now on a pair's batches wait, by its number, or none's do.
    pub(crate) fn hold(&mut self, pair: Option<usize>) {
        self.process.held = pair;
    }

    /// Time passes without a turn: the worker is not told.
    pub(crate) fn pass(&mut self, for_ns: u64) {
        self.process.now_ns += for_ns;
    }

    /// One turn of the worker's thread.
    pub(crate) fn turn(&mut self) {
        self.turn_of(0);
    }

    /// One turn of one of the workers' threads.
    pub(crate) fn turn_of(&mut self, at: usize) {
        let process = if at == 0 { &mut self.process } else { &mut self.others[at - 1] };
        process.turn();
        if process.is_dead() {
            return;
        }
        let now_ns = process.now_ns;
        for (_, reply) in process.worker.release(now_ns, u64::MAX).iter() {
            let (header, reply) = Reply::decode(reply).unwrap();
            let told = match reply {
                Reply::Written { version } => Replied::Written(version),
                Reply::Deleted => Replied::Deleted,
                Reply::NotFound => Replied::NotFound,
                Reply::Value { value, .. } => Replied::Value(value.to_vec()),
                Reply::Refused(refusal) => Replied::Refused(refusal.status()),
                _ => Replied::Other,
            };
            self.told.insert(u32::try_from(header.id.0).unwrap(), told);
        }
        process.worker.replies_sent();
    }

    /// The process dies when its disk has completed so many more operations.
    pub(crate) fn die_after(&mut self, operations: u64) {
        self.process.dies_after = Some(operations);
    }

    /// Whether the process has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.process.is_dead()
    }

    /// The images that the worker wants are written and recorded.
    pub(crate) fn write_images(&mut self) {
        self.process.write_images();
    }

    /// What the dead had in flight reaches the disk.
    pub(crate) fn land_late(&mut self) {
        self.process.disk.kill();
        while self.disk.land_late() {}
    }

    /// Checks everything that is served; what is wrong first.
    pub(crate) fn violation(&self) -> Option<String> {
        let served = self.process.served.values();
        let targets: Vec<_> = served.flat_map(|served| check_targets(&served.source, &served.ends)).collect();
        let outcome = check(&targets, || {});
        (outcome.violations > 0).then_some(outcome.first_violation)
    }

    /// The time of the worker's machine.
    pub(crate) fn now_ns(&self) -> u64 {
        self.process.now_ns
    }

    /// The answer to a request, if it is there.
    pub(crate) fn answered(&mut self, id: u32) -> Option<Replied> {
        self.told.remove(&id)
    }

    /// A write's name in the session.
    pub(crate) fn name(&self, number: u64, floor: u64) -> WriteName {
        let (number, floor) = (OperationNumber(number), OperationNumber(floor));
        WriteName { session: self.session, number, floor }
    }
}
