//! How a worker ends: by a stop, once all is answered and a checkpoint that is wanted is recorded; or by its
//! log, when that fails.

use std::sync::Arc;

use cell_cluster::Sim;
use cell_fabric::ConnectionId;
use cell_node::{Command, ControlEvent, FailureKind, Worker, WorkerIdentity};
use cell_protocol::{Condition, Hello, PROTOCOL_VERSION, Put, Request, RequestHeader, StatusCode, WriteName};
use cell_recovery::Progress;
use cell_terms::{Incarnation, NodeId, OperationNumber, SessionId};
use cell_wal::sim::{SimDevice, SimDisk};
use cell_wal::{Errno, LogDevice};

use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, Serving, World};

const CONNECTION: ConnectionId = ConnectionId::from_number(7);
const MS: u64 = 1_000_000;
const SESSION: SessionId = SessionId(9);

fn put_of(name: WriteName, key: &[u8]) -> Request<'_> {
    Request::Put(Put { name, condition: Condition::Always, key, value: b"value" })
}

fn writes_image(world: &World) -> bool {
    world.worker().snapshot().pairs[0].checkpoint_running
}

#[test]
fn worker_stops_once_all_is_answered_and_the_wanted_checkpoint_is_recorded() {
    for checkpoint in [false, true] {
        let mut world = World::new(1, GEOMETRY, OPTIONS);
        let number = world.load(1, (0..20).map(|key| format!("key {key:05}").into_bytes()));
        world.hold(Some(0));
        let put = world.send(&put_of(world.name(number, number), b"key"));
        world.notify(0, ControlEvent::Stop { checkpoint });
        for _ in 0..10 {
            world.turn();
            assert!(!world.worker().is_stopped(), "a write waits for its log");
            assert!(!writes_image(&world), "it would lack that write");
        }
        assert_eq!(world.answered(put), None);
        world.hold(None);
        if checkpoint {
            let begins = |world: &mut World| {
                world.turn();
                assert!(!world.worker().is_stopped(), "its image is to come");
                writes_image(world)
            };
            assert!((0..100).any(|_| begins(&mut world)));
            for step in ["written", "recorded"] {
                world.turn();
                assert!(!world.worker().is_stopped(), "its image is not {step}");
                world.write_images();
            }
        }
        world.until("its end", |world| world.worker().is_stopped());
        assert!(matches!(world.answered(put), Some(Replied::Written(_))));
        assert_eq!(world.worker().snapshot().pairs[0].checkpoints, u64::from(checkpoint));
    }
}

/// No step of a split is taken any more: it would wait for ever, and the worker with it.
#[test]
fn worker_that_stops_refuses_what_waits_for_a_split() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let number = load_until_split(&mut world);
    world.hold(Some(1)); // the adoption does not become durable
    (0..5).for_each(|_| world.turn());
    let put = world.send(&put_of(world.name(number, number), b"zzz"));
    (0..10).for_each(|_| world.turn());
    assert_eq!(world.answered(put), None, "its key is in the half that goes");
    world.notify(0, ControlEvent::Stop { checkpoint: false });
    world.turn();
    assert_eq!(world.answered(put), Some(Replied::Refused(StatusCode::Shutdown)));
    world.hold(None);
    world.until("its end", |world| world.worker().is_stopped());
}

fn deliver(worker: &mut Worker, request: &Request<'_>) {
    let mut message = Vec::new();
    request.encode(RequestHeader::default(), &mut message).unwrap();
    worker.message(CONNECTION, &message);
}

/// A turn of a worker with one pair; how many replies leave.
fn turn(worker: &mut Worker, device: &mut SimDevice, disk: &SimDisk, now_ns: u64) -> usize {
    worker.tick(now_ns, u64::MAX);
    while disk.step() {}
    let mut events = Vec::new();
    device.poll(&mut events);
    for event in events {
        worker.log_event(0, event, device);
    }
    worker.end_of_poll();
    worker.log_tick(0, device);
    worker.commit(0, device);
    device.submit().unwrap();
    let replies = worker.release(now_ns, u64::MAX).iter().count();
    worker.replies_sent();
    replies
}

#[test]
fn log_that_fails_ends_its_worker_and_what_waited_for_it_is_not_answered() {
    let (disk, sim) = (SimDisk::new(5), Sim::new(3));
    let mut serving = Serving::start(&disk, &sim, OPTIONS);
    let store = serving.create(GEOMETRY, &OPTIONS);
    let mut device = serving.devices.pop().unwrap();
    let identity = WorkerIdentity { node: NodeId(0), incarnation: Incarnation(3) };
    let mut worker = Worker::new(identity, OPTIONS, Arc::new(Progress::new(0)), 0);
    worker.install(vec![store], [SESSION]);
    worker.accepted(CONNECTION);
    let hello = Hello { version: PROTOCOL_VERSION, name: "test", token: &[], stream_credit_bytes: 1 };
    deliver(&mut worker, &Request::Hello(hello));
    let mut now_ns = 0;
    let mut turns = |worker: &mut Worker| {
        let mut replies = 0;
        for _ in 0..20 {
            now_ns += MS;
            replies += turn(worker, &mut device, &disk, now_ns);
        }
        replies
    };
    assert_eq!(turns(&mut worker), 1, "the hello is answered, and what the log needs is prepared");
    let name = WriteName { session: SESSION, number: OperationNumber(1), floor: OperationNumber(1) };
    deliver(&mut worker, &put_of(name, b"key"));
    disk.arm_sync_error(0, Errno::EIO);
    assert_eq!((turns(&mut worker), worker.failure()), (0, Some(FailureKind::LogFailed)));
    let commands = worker.take_commands();
    let failures =
        commands.iter().filter(|command| matches!(command, Command::Failed(FailureKind::LogFailed)));
    assert_eq!(failures.count(), 1, "the process is notified that it is to exit");
}
