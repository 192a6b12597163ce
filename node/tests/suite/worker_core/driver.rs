//! The worker's loop over a simulated endpoint: in which order it reads the clock, and what it says of sleep.

use std::cell::RefCell;
use std::sync::Arc;

use cell_cluster::Sim;
use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricLimits, Greeting, SimEndpoint, SimNetwork, SimOptions,
};
use cell_node::{
    ClusterSnapshot, ControlEvent, Ended, FailureKind, Installation, Next, PairInput, PairRecovery,
    RecoveryProgress, Worker, WorkerClock, WorkerDriver, WorkerIdentity, WorkerInput, WorkerOptions,
    WorkerTurn,
};
use cell_protocol::{
    Condition, Hello, PROTOCOL_VERSION, Put, ReadOnlyReason, Refusal, Reply, Request, RequestHeader,
    RequestId, WriteName,
};
use cell_recovery::Progress;
use cell_terms::{Incarnation, NodeId, OperationNumber, PairId, SessionId};
use cell_wal::sim::{SimDevice, SimDisk};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Serving};

pub(super) const MS: u64 = 1_000_000;

/// A pair that was just created.
fn new_pair() -> PairInput<SimDevice> {
    new_pair_on(&SimDisk::new(5))
}

fn new_pair_on(disk: &SimDisk) -> PairInput<SimDevice> {
    let sim = Sim::new(3);
    let mut serving = Serving::start(disk, &sim, OPTIONS);
    let store = serving.create(GEOMETRY, &OPTIONS);
    PairInput { pair: store, device: serving.devices.pop().unwrap() }
}

/// A clock that goes on by so much with each look.
struct Clock<'a> {
    now_ns: u64,
    passes_ns: u64,
    lease_until_ns: u64,
    read: &'a RefCell<Vec<&'static str>>,
}

impl WorkerClock for Clock<'_> {
    fn now_ns(&mut self) -> u64 {
        self.read.borrow_mut().push("clock");
        self.now_ns += self.passes_ns;
        self.now_ns
    }

    fn lease_until_ns(&mut self) -> u64 {
        self.read.borrow_mut().push("lease");
        self.lease_until_ns
    }
}

/// A driven worker and a client that is connected to it.
pub(super) struct Pair {
    network: SimNetwork,
    driver: WorkerDriver<SimEndpoint, SimDevice>,
    client: SimEndpoint,
    now_ns: u64,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(OPTIONS)
    }

    fn with(options: WorkerOptions) -> Pair {
        let network = SimNetwork::new(1, SimOptions::calm());
        let endpoint = network.listen(1, FabricLimits::default(), Greeting::default());
        let identity = WorkerIdentity { node: NodeId(0), incarnation: Incarnation(3) };
        let worker = Worker::new(identity, options, Arc::new(Progress::new(0)), 0);
        let client = network.client(2, FabricLimits::default());
        Pair { network, driver: WorkerDriver::new(worker, endpoint), client, now_ns: MS }
    }

    /// The client connects and greets; the greeting has arrived.
    fn greet(&mut self) -> ConnectionId {
        let connection = self.client.connect(&Address::Sim(1)).unwrap();
        let hello = Hello { version: PROTOCOL_VERSION, name: "test", token: &[], stream_credit_bytes: 1 };
        let mut message = Vec::new();
        let header = RequestHeader { id: RequestId(1), pair: PairId(0) };
        Request::Hello(hello).encode(header, &mut message).unwrap();
        self.client.send(connection, &message).unwrap();
        for _ in 0..10 {
            self.client.flush();
            self.now_ns += MS;
            self.network.step(self.now_ns);
            self.client.poll(&mut |_| {});
        }
        connection
    }

    /// Messages that have come to the client.
    fn answers(&mut self) -> usize {
        self.now_ns += 10 * MS;
        self.network.step(self.now_ns);
        let mut count = 0;
        self.client.poll(&mut |event| count += usize::from(matches!(event, Event::Message { .. })));
        count
    }

    /// The client asks for something that is answered at once; it arrives.
    fn ask(&mut self, connection: ConnectionId) {
        let mut message = Vec::new();
        Request::Status.encode(RequestHeader::default(), &mut message).unwrap();
        self.client.send(connection, &message).unwrap();
        self.client.flush();
        self.answers();
    }

    /// The client asks for a write, which arrives.
    fn put(&mut self, connection: ConnectionId, name: WriteName) {
        let put = Put { name, condition: Condition::Always, key: b"key", value: b"value" };
        let header = RequestHeader { id: RequestId(name.number.0 + 1), pair: PairId(0) };
        let mut message = Vec::new();
        Request::Put(put).encode(header, &mut message).unwrap();
        self.client.send(connection, &message).unwrap();
        self.client.flush();
        self.answers();
    }

    /// A turn at the present.
    pub(super) fn turn(&mut self, inputs: Vec<WorkerInput<SimDevice>>) -> WorkerTurn {
        let read = RefCell::default();
        let mut clock = Clock { now_ns: self.now_ns, passes_ns: 0, lease_until_ns: u64::MAX, read: &read };
        self.driver.step(&mut clock, inputs)
    }

    /// Turns with nothing new, a tick after the other, for so long; how many replies left.
    pub(super) fn turn_for(&mut self, passes_ns: u64) -> usize {
        let until_ns = self.now_ns + passes_ns;
        let mut replies = 0;
        while self.now_ns < until_ns {
            self.now_ns += 20 * MS;
            replies += self.turn(Vec::new()).replies;
        }
        replies
    }
}

#[test]
fn clock_is_read_first_and_the_lease_after_it_once_all_is_decided() {
    let mut pair = Pair::new();
    let read = RefCell::default();
    let mut clock = Clock { now_ns: MS, passes_ns: 1, lease_until_ns: u64::MAX, read: &read };
    let inputs = || {
        let mut event = Some(WorkerInput::Control(ControlEvent::DiskFree(1)));
        std::iter::from_fn(move || event.take()).inspect(|_| read.borrow_mut().push("input"))
    };
    let turn = pair.driver.step(&mut clock, inputs());
    assert_eq!((turn.ticked_ns, turn.next), (Some(MS + 1), Next::Again));
    assert_eq!(*read.borrow(), ["clock", "lease", "input", "clock", "lease"]);
    read.borrow_mut().clear();
    let turn = pair.driver.step(&mut clock, inputs());
    assert_eq!(turn.ticked_ns, None);
    assert_eq!(*read.borrow(), ["clock", "input", "clock", "lease"]);
}

#[test]
fn reply_waits_when_the_lease_runs_out_within_the_turn() {
    for (passes_ns, replies) in [(1, 1), (2 * MS, 0)] {
        let mut pair = Pair::new();
        let installation = Installation { sessions: Vec::new(), whole: true };
        let installed = pair.turn(vec![WorkerInput::Install { pairs: vec![new_pair()], installation }]);
        assert_eq!(installed.next, Next::Again);
        pair.greet();
        let (read, now_ns) = (RefCell::default(), pair.now_ns);
        let mut clock = Clock { now_ns, passes_ns, lease_until_ns: now_ns + 3 * MS, read: &read };
        let turn = pair.driver.step(&mut clock, []);
        assert_eq!((turn.replies, pair.answers()), (replies, replies));
        assert_eq!(turn.next, Next::Again, "a request came");
        if replies == 0 {
            let mut clock = Clock { now_ns: pair.now_ns, passes_ns, lease_until_ns: 1, read: &read };
            let turn = pair.driver.step(&mut clock, []);
            assert_eq!((turn.replies, turn.next), (0, Next::Rest));
            pair.now_ns += 20 * MS;
            let turn = pair.turn(Vec::new());
            assert_eq!((turn.replies, pair.answers()), (1, 1), "the lease holds again");
        }
    }
}

#[test]
fn thread_sleeps_only_when_nothing_was_done_and_nothing_has_come() {
    let mut pair = Pair::new();
    assert_eq!(pair.turn(Vec::new()).next, Next::Wait);
    assert_eq!(pair.driver.tick_due_ns(), pair.now_ns + 10 * MS);
    pair.greet();
    assert_eq!(pair.turn(Vec::new()).next, Next::Again);
    assert_eq!(pair.turn(Vec::new()).next, Next::Wait);
}

/// A pair whose thread has found nothing after its answers for a while, and a client of it.
fn pair_of_one_client() -> (Pair, ConnectionId) {
    let (mut pair, disk) = (Pair::new(), SimDisk::new(5));
    pair.driver = pair.driver.sleeping_at_once();
    let installation = Installation { sessions: vec![SessionId(9)], whole: true };
    let _ = pair.turn(vec![WorkerInput::Install { pairs: vec![new_pair_on(&disk)], installation }]);
    let connection = pair.greet();
    // What a new pair has for its log is on the disk then.
    for _ in 0..10 {
        while disk.step() {}
        pair.turn_for(20 * MS);
    }
    let mut looks = 0;
    for _ in 0..50 {
        pair.ask(connection);
        let turn = pair.turn(Vec::new());
        assert_eq!(turn.replies, 1);
        if turn.next == Next::Again {
            looks += 1;
            assert_eq!(pair.turn(Vec::new()).next, Next::Wait);
        }
    }
    assert!((1..20).contains(&looks), "{looks} of 50 looks");
    (pair, connection)
}

/// Each answer was followed by a turn in vain.
#[test]
fn thread_sleeps_right_after_its_answer_where_nothing_comes_meanwhile() {
    let (mut pair, connection) = pair_of_one_client();
    let mut looks = 0;
    while looks == 0 {
        pair.ask(connection);
        looks += u32::from(pair.turn(Vec::new()).next == Next::Again);
    }
    // This look finds something: from here on there is one after each answer.
    for _ in 0..20 {
        pair.ask(connection);
        let turn = pair.turn(Vec::new());
        assert_eq!((turn.replies, turn.next), (1, Next::Again));
    }
}

/// A request that comes in such a turn waits for its end, too. Those alone counted that another one followed.
#[test]
fn turn_after_which_the_thread_sleeps_counts_in_how_long_requests_wait() {
    let (mut pair, connection) = pair_of_one_client();
    for _ in 0..250 {
        pair.ask(connection);
        let read = RefCell::default();
        let mut clock = Clock { now_ns: pair.now_ns, passes_ns: MS, lease_until_ns: u64::MAX, read: &read };
        let mut next = pair.driver.step(&mut clock, []).next;
        pair.now_ns += 2 * MS;
        while next == Next::Again {
            next = pair.turn(Vec::new()).next;
        }
    }
    // A turn of 1 ms in each 12, of which a request waits for half.
    let estimate_ns = pair.driver.worker().snapshot().latencies.queue_estimate_ns;
    assert!((MS / 30..MS / 15).contains(&estimate_ns), "{estimate_ns}");
}

/// What waits for the log may be let go on by a commit, and wait for the next turn then.
#[test]
fn thread_looks_once_more_after_a_turn_that_wrote() {
    let (mut pair, connection) = pair_of_one_client();
    for number in 1..20 {
        let (session, floor) = (SessionId(9), OperationNumber(1));
        pair.put(connection, WriteName { session, number: OperationNumber(number), floor });
        assert_eq!(pair.turn(Vec::new()).next, Next::Again, "of write {number}");
    }
}

#[test]
fn thread_looks_for_work_for_a_while_before_it_sleeps() {
    let mut pair = Pair::new();
    pair.driver = pair.driver.spinning(MS);
    let event = WorkerInput::Control(ControlEvent::DiskFree(1));
    assert_eq!(pair.turn(vec![event]).next, Next::Again);
    pair.now_ns += MS - 1;
    assert_eq!(pair.turn(Vec::new()).next, Next::Spin);
    pair.now_ns += 1;
    assert_eq!(pair.turn(Vec::new()).next, Next::Wait);
}

#[test]
fn thread_looks_for_work_as_long_as_the_options_say_that_are_in_force() {
    let mut pair = Pair::new();
    let options = |spin_ns| {
        WorkerInput::Control(ControlEvent::OptionsChanged(Box::new(WorkerOptions { spin_ns, ..OPTIONS })))
    };
    assert_eq!(pair.turn(vec![options(MS)]).next, Next::Again);
    assert_eq!(pair.turn(Vec::new()).next, Next::Spin);
    assert_eq!(pair.turn(vec![options(0)]).next, Next::Again);
    assert_eq!(pair.turn(Vec::new()).next, Next::Wait);
}

/// Each question was followed by a look in vain.
#[test]
fn thread_looks_ever_more_seldom_where_nothing_comes_soon() {
    let mut pair = Pair::new();
    pair.driver = pair.driver.spinning(20_000);
    let connection = pair.greet();
    pair.turn_for(100 * MS);
    let mut looks = 0;
    for _ in 0..500 {
        pair.ask(connection);
        assert_eq!(pair.turn(Vec::new()).next, Next::Again);
        while pair.turn(Vec::new()).next == Next::Spin {
            looks += 1;
            pair.now_ns += 5_000;
        }
    }
    assert!((4..100).contains(&looks), "{looks}");
}

/// A worker that looked for requests kept the kernel's thread from its core: 4 ms a commit against 0.1 ms.
#[test]
fn thread_does_not_look_for_work_while_a_log_waits_for_its_disk() {
    let (mut pair, disk) = pair_with_a_write_on_its_way();
    pair.driver = pair.driver.spinning(MS);
    let event = WorkerInput::Control(ControlEvent::DiskFree(1 << 40));
    assert_eq!(pair.turn(vec![event]).next, Next::Again);
    assert_eq!(pair.turn(Vec::new()).next, Next::Wait, "the disk has work");
    while disk.step() {}
    assert_eq!(pair.turn(Vec::new()).next, Next::Again, "the write is acknowledged");
    assert_eq!(pair.turn(Vec::new()).next, Next::Spin);
}

#[test]
fn thread_with_one_core_does_not_look_for_work() {
    let mut pair = Pair::new();
    pair.driver = pair.driver.spinning(MS).on_cores(1);
    let event = WorkerInput::Control(ControlEvent::DiskFree(1));
    assert_eq!(pair.turn(vec![event]).next, Next::Again);
    assert_eq!(pair.turn(Vec::new()).next, Next::Wait);
}

/// The disk does nothing: more writes come than may wait for it.
#[test]
fn stranger_is_greeted_in_the_turn_in_which_it_comes_while_writes_wait_for_the_log() {
    let mut pair = Pair::new();
    let session = SessionId(9);
    let installation = Installation { sessions: vec![session], whole: true };
    let _ = pair.turn(vec![WorkerInput::Install { pairs: vec![new_pair()], installation }]);
    let connection = pair.greet();
    for number in 1..=2_500 {
        let name = WriteName { session, number: OperationNumber(number), floor: OperationNumber(1) };
        let put = Put { name, condition: Condition::Always, key: b"key", value: &[7; 4_000] };
        let mut message = Vec::new();
        let header = RequestHeader { id: RequestId(number + 1), pair: PairId(0) };
        Request::Put(put).encode(header, &mut message).unwrap();
        // It takes no more when nobody reads at the other end.
        let _ = pair.client.send(connection, &message);
        pair.client.flush();
        pair.answers();
        let _ = pair.turn(Vec::new());
    }
    pair.answers();
    pair.greet();
    let turn = pair.turn(Vec::new());
    assert_eq!((turn.replies, pair.answers()), (1, 1));
    // Nothing of it keeps the thread awake.
    assert_eq!(pair.turn(Vec::new()).next, Next::Wait);
}

/// A write is on its way to a disk that does nothing yet.
fn pair_with_a_write_on_its_way() -> (Pair, SimDisk) {
    let (mut pair, session, disk) = (Pair::new(), SessionId(9), SimDisk::new(5));
    let installation = Installation { sessions: vec![session], whole: true };
    let _ = pair.turn(vec![WorkerInput::Install { pairs: vec![new_pair_on(&disk)], installation }]);
    let connection = pair.greet();
    pair.put(connection, WriteName { session, number: OperationNumber(1), floor: OperationNumber(1) });
    let _ = pair.turn(Vec::new());
    (pair, disk)
}

/// How many warnings say that a disk does not answer, and for how long the log has waited.
fn log_waits(pair: &Pair) -> (usize, u64) {
    let snapshot = pair.driver.worker().snapshot();
    let waits = snapshot.warnings.iter().filter(|warning| warning.contains("does not answer")).count();
    (waits, snapshot.pairs[0].sync_waiting_ms)
}

/// The disk stands still, then it answers. Neither was reported anywhere: a sync that does not end is in no
/// figure of those that have ended.
#[test]
fn log_that_waits_for_a_disk_that_stands_still_is_reported_until_it_answers() {
    let (mut pair, disk) = pair_with_a_write_on_its_way();
    pair.turn_for(1_000 * MS);
    let (waits, waited_ms) = log_waits(&pair);
    assert!(waits == 0 && (900..3_000).contains(&waited_ms), "{waits}, {waited_ms} ms");
    pair.turn_for(5_000 * MS);
    let (waits, waited_ms) = log_waits(&pair);
    assert!(waits == 1 && waited_ms >= 5_900, "{waits}, {waited_ms} ms");
    while disk.step() {}
    // A turn's tick comes before it looks what the disk has done.
    assert_eq!((pair.turn_for(40 * MS), log_waits(&pair)), (1, (0, 0)), "the write is acknowledged");
}

/// The process is stopped, and the disk answers meanwhile: the node said that its disk did not answer.
#[test]
fn node_that_stood_still_itself_says_nothing_of_its_disk() {
    let (mut pair, disk) = pair_with_a_write_on_its_way();
    while disk.step() {}
    pair.now_ns += 5_000 * MS;
    let replies = pair.turn(Vec::new()).replies;
    let (waits, waited_ms) = log_waits(&pair);
    assert!(waits == 0 && waited_ms < 1_000, "{waits}, {waited_ms} ms");
    assert_eq!(replies + pair.turn_for(40 * MS), 1, "the write is acknowledged");
}

/// Which of a node's warnings have these words.
pub(super) fn warnings_of(pair: &Pair, words: &str) -> usize {
    let snapshot = pair.driver.worker().snapshot();
    snapshot.warnings.iter().filter(|warning| warning.contains(words)).count()
}

pub(super) fn serving_pair() -> Pair {
    let mut pair = Pair::new();
    let installation = Installation { sessions: Vec::new(), whole: true };
    let _ = pair.turn(vec![WorkerInput::Install { pairs: vec![new_pair()], installation }]);
    pair
}

/// New clients could not write, and only they knew.
#[test]
fn coordinator_without_room_for_sessions_is_warned_of() {
    let mut pair = serving_pair();
    let connection = pair.greet();
    let _ = pair.turn(Vec::new());
    let header = RequestHeader { id: RequestId(2), pair: PairId(0) };
    let refused = Err(Refusal::ReadOnly { reason: ReadOnlyReason::CoordinatorFull });
    for (session, warned) in [(refused, 1), (Ok(SessionId(9)), 0)] {
        let opened = ControlEvent::SessionOpened { connection, header, session };
        let _ = pair.turn(vec![WorkerInput::Control(opened)]);
        assert_eq!(warnings_of(&pair, "the coordinator has no room for their sessions"), warned);
    }
}

/// `cell status` said that all serve while each new client's first write was refused.
#[test]
fn coordinator_that_does_not_answer_is_warned_of_while_the_node_serves() {
    let mut pair = serving_pair();
    let why = || Some("the coordinator does not answer (refused)".into());
    for (why, warned) in [(why(), 0), (why(), 1), (None, 0)] {
        let _ = pair.turn(vec![WorkerInput::Control(ControlEvent::CoordinatorFails(why))]);
        assert_eq!(warnings_of(&pair, "does not answer (refused): new clients cannot write"), warned);
        pair.turn_for(1_500 * MS);
    }
}

/// A pair that was handed over leaves in the turn in which the next one comes and gets its number: the log's
/// device went with the pair that had left, and no write to the new one was ever carried out.
pub(crate) fn pair_that_comes_as_another_leaves_keeps_its_log() {
    let (mut pair, session) = (Pair::new(), SessionId(9));
    let installation = Installation { sessions: vec![session], whole: true };
    let first = new_pair();
    let id = first.pair.id();
    let _ = pair.turn(vec![WorkerInput::Install { pairs: vec![first], installation }]);
    let connection = pair.greet();
    let _ = pair.turn(vec![WorkerInput::Control(ControlEvent::Freeze { pair: id, ticket: 1 })]);
    for _ in 0..10 {
        pair.now_ns += MS;
        let _ = pair.turn(Vec::new());
    }
    let disk = SimDisk::new(6);
    let handed = ControlEvent::Handed { pair: id, ticket: 1 };
    let second = Box::new(new_pair_on(&disk));
    let turn = pair.turn(vec![WorkerInput::Control(handed), WorkerInput::AddPair(second)]);
    assert_eq!(turn.left, [id]);
    pair.put(connection, WriteName { session, number: OperationNumber(1), floor: OperationNumber(1) });
    // Of a pair that comes it is not known which sessions are open.
    let _ = pair.turn(Vec::new());
    let asked = ControlEvent::SessionAsked { session, open: Some(true) };
    let mut replies = pair.turn(vec![WorkerInput::Control(asked)]).replies;
    for _ in 0..10 {
        pair.now_ns += MS;
        replies += pair.turn(Vec::new()).replies;
        while disk.step() {}
    }
    assert!(replies > 0, "the write is acknowledged");
    assert_eq!(pair.driver.worker().pairs().next().map(|of| of.is_idle()), Some(true));
}

#[test]
fn pair_that_comes_in_the_turn_in_which_another_leaves_keeps_its_log() {
    pair_that_comes_as_another_leaves_keeps_its_log();
}

#[test]
fn endpoint_holds_to_the_limits_that_are_in_force() {
    let mut pair = Pair::new();
    let none = FabricLimits { connections_max: 1, ..FabricLimits::default() };
    let options = WorkerOptions { fabric: Some(none), ..OPTIONS };
    let _ = pair.turn(vec![WorkerInput::Control(ControlEvent::OptionsChanged(Box::new(options)))]);
    pair.greet();
    let _ = pair.turn(Vec::new());
    assert_eq!(pair.driver.endpoint().connections(), 1);
    assert!(pair.driver.worker().snapshot().warnings.is_empty());
    pair.greet();
    let _ = pair.turn(Vec::new());
    assert_eq!(pair.driver.endpoint().connections(), 1, "the second one is refused");
    let warnings = pair.driver.worker().snapshot().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("fabric_connections_max")), "{warnings:?}");
}

/// Until the next tick a connection that was refused held its place, and 16 of them all that are kept for
/// operators.
#[test]
fn connection_that_is_refused_leaves_its_place_in_the_turn_that_answers_it() {
    // The endpoint has places beyond the worker's limit.
    let fabric = Some(FabricLimits { connections_max: 1, ..FabricLimits::default() });
    let mut pair = Pair::with(WorkerOptions { fabric, ..OPTIONS });
    let places = |pair: &Pair| pair.driver.endpoint().connections();
    pair.greet();
    let _ = pair.turn(Vec::new());
    assert_eq!((pair.answers(), places(&pair)), (1, 1));
    for _ in 0..3 {
        pair.greet();
        let turn = pair.turn(Vec::new());
        assert_eq!((turn.replies, places(&pair)), (1, 1));
        assert_eq!(pair.answers(), 1, "it is answered why");
    }
}

/// What a worker answers to a request.
fn answer_of<T>(worker: &mut Worker, request: &Request<'_>, read: impl Fn(&Reply<'_>) -> T) -> T {
    let mut message = Vec::new();
    request.encode(RequestHeader::default(), &mut message).unwrap();
    worker.message(ConnectionId::from_number(7), &message);
    let reply = worker.release(MS, u64::MAX).iter().map(|(_, reply)| reply.to_vec()).next();
    worker.replies_sent();
    read(&Reply::decode(&reply.expect("it is answered")).unwrap().1)
}

/// A pair 0 was once said to be recovering, which there was not.
#[test]
fn status_of_a_recovery_names_the_pairs_that_are_recovered() {
    let identity = WorkerIdentity { node: NodeId(0), incarnation: Incarnation(3) };
    let mut worker = Worker::new(identity, OPTIONS, Arc::new(Progress::new(0)), 0);
    worker.accepted(ConnectionId::from_number(7));
    let hello = Hello { version: PROTOCOL_VERSION, name: "test", token: &[], stream_credit_bytes: 1 };
    answer_of(&mut worker, &Request::Hello(hello), |_| ());
    let pairs = |worker: &mut Worker| {
        answer_of(worker, &Request::Status, |reply| match reply {
            Reply::Status(status) => status.pairs.iter().map(|pair| pair.pair).collect::<Vec<_>>(),
            _ => panic!("no status"),
        })
    };
    assert_eq!(pairs(&mut worker), []);
    let recovery = |pair| PairRecovery { pair: PairId(pair), progress: RecoveryProgress::default() };
    let recoveries = vec![recovery(4), recovery(6)];
    let cluster = ClusterSnapshot { recoveries, ..ClusterSnapshot::default() };
    worker.control(ControlEvent::Cluster(Arc::new(cluster)));
    assert_eq!(pairs(&mut worker), [PairId(4), PairId(6)]);
}

#[test]
fn worker_that_has_ended_has_no_further_turn() {
    let stop = || WorkerInput::Control(ControlEvent::Stop { checkpoint: false });
    assert_eq!(Pair::new().turn(vec![stop()]).next, Next::End(Ended::Stopped));
    let kind = FailureKind::RecoveryRefused;
    let turn = Pair::new().turn(vec![WorkerInput::GiveUp(kind), stop()]);
    assert_eq!(turn.next, Next::End(Ended::Failed(kind)));
    assert_eq!(turn.commands.len(), 1, "the control thread is notified");
}
