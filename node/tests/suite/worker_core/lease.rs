//! Nothing leaves a worker whose lease has run out or has ended, whatever comes to it after that. When one
//! that has run out holds again, what waited leaves.

use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_node::{Command, ControlEvent, FailureKind, Worker, WorkerIdentity, WorkerOptions};
use cell_protocol::{Condition, Hello, PROTOCOL_VERSION, Put, Reply, Request, RequestHeader};
use cell_recovery::Progress;
use cell_terms::{Csn, Incarnation, NodeId};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

/// A worker that has asked its control thread to open a session, and the answer.
fn asked() -> (World, ControlEvent) {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    world.send(&Request::OpenSession);
    world.turn();
    let opened = world.take_commands(0).into_iter().find_map(|command| match command {
        Command::OpenSession { connection, header } => {
            Some(ControlEvent::SessionOpened { connection, header, session: Ok(world.session) })
        }
        _ => None,
    });
    (world, opened.unwrap())
}

/// Replies that leave now.
fn released(worker: &mut Worker, now_ns: u64, lease_until_ns: u64) -> usize {
    let replies = worker.release(now_ns, lease_until_ns);
    let opened = |reply: &[u8]| matches!(Reply::decode(reply), Ok((_, Reply::Session { .. })));
    assert!(replies.iter().all(|(_, reply)| opened(reply)));
    let count = replies.iter().count();
    worker.replies_sent();
    count
}

#[test]
fn answer_of_the_control_thread_leaves_while_the_lease_holds() {
    let (mut world, opened) = asked();
    let (now_ns, worker) = (world.now_ns(), world.worker_mut());
    worker.tick(now_ns, now_ns + 1);
    worker.control(opened);
    assert_eq!(released(worker, now_ns, now_ns + 1), 1);
}

/// The order of the shell: it gives the time, takes what the control thread has, and sends.
#[test]
fn answer_of_the_control_thread_waits_when_the_turn_began_past_the_lease() {
    let (mut world, opened) = asked();
    let (now_ns, worker) = (world.now_ns(), world.worker_mut());
    worker.tick(now_ns, now_ns);
    assert!(worker.is_silent());
    worker.control(opened);
    assert_eq!(released(worker, now_ns, now_ns), 0);
    assert_eq!(released(worker, now_ns, now_ns + 1), 0, "it goes on with a turn of its own");
    worker.tick(now_ns + 1, now_ns + 2);
    assert_eq!((released(worker, now_ns + 1, now_ns + 2), worker.failure()), (1, None));
}

#[test]
pub(crate) fn answer_of_the_control_thread_waits_when_the_lease_ran_out_within_the_turn() {
    let (mut world, opened) = asked();
    let (now_ns, worker) = (world.now_ns(), world.worker_mut());
    worker.tick(now_ns, now_ns + 1);
    worker.control(opened);
    assert_eq!(released(worker, now_ns + 1, now_ns + 1), 0);
    assert!(worker.is_silent());
    worker.tick(now_ns + 2, now_ns + 3);
    assert_eq!(released(worker, now_ns + 2, now_ns + 3), 1);
}

/// Others may have the pairs.
#[test]
fn lease_that_has_ended_fails_the_worker_silent_or_not() {
    for silent_before in [false, true] {
        let (mut world, opened) = asked();
        let (now_ns, worker) = (world.now_ns(), world.worker_mut());
        worker.tick(now_ns, now_ns + u64::from(!silent_before));
        worker.control(opened);
        worker.tick(now_ns + 1, 0);
        assert_eq!(worker.failure(), Some(FailureKind::LeaseLost));
        assert_eq!(released(worker, now_ns + 1, 0), 0);
        worker.tick(now_ns + 2, u64::MAX);
        assert_eq!(released(worker, now_ns + 2, u64::MAX), 0, "for good");
    }
}

#[test]
fn worker_that_is_to_stop_does_not_wait_for_its_lease() {
    for stop_first in [false, true] {
        let (mut world, _) = asked();
        let id = put(&mut world);
        let (now_ns, worker) = (world.now_ns(), world.worker_mut());
        let stop = || ControlEvent::Stop { checkpoint: true };
        if stop_first {
            worker.control(stop());
            worker.tick(now_ns, now_ns);
        } else {
            worker.tick(now_ns, now_ns);
            worker.control(stop());
            worker.tick(now_ns + 1, now_ns);
        }
        assert_eq!((worker.failure(), world.answered(id)), (Some(FailureKind::LeaseLost), None));
    }
}

/// Asks for a write.
fn put(world: &mut World) -> u32 {
    let name = world.name(1, 1);
    world.send(&Request::Put(Put { name, condition: Condition::Always, key: b"key", value: b"value" }))
}

fn durable(world: &World) -> Csn {
    world.worker().pairs().next().unwrap().durable()
}

/// The batch of a write is at the disk when the lease runs out, and done long before it holds again.
pub(crate) fn acknowledgement_waits_until_the_lease_holds_again() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let before = durable(&world);
    let id = put(&mut world);
    world.turn();
    world.set_lease(world.now_ns());
    for _ in 0..10 {
        world.turn();
        assert_eq!(world.answered(id), None, "acknowledged past the lease");
    }
    assert!(durable(&world) > before, "what was in flight is done");
    world.set_lease(u64::MAX);
    world.turn();
    assert!(matches!(world.answered(id), Some(Replied::Written(_))), "it leaves with the first turn");
}

/// A write is in a batch that fills when the lease runs out.
pub(crate) fn silent_worker_takes_no_request_and_submits_nothing() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let before = durable(&world);
    let id = put(&mut world);
    world.set_lease(world.now_ns());
    for _ in 0..10 {
        world.turn();
    }
    assert!(world.worker().is_silent() && !world.worker().has_work());
    assert_eq!(durable(&world), before, "it goes on with its log");
    world.set_lease(u64::MAX);
    assert!(matches!(world.answer(id), Replied::Written(_)));
    assert!(!world.worker().is_silent());
}

/// Nobody could be heard meanwhile: the clients of all sessions would have to open new ones.
#[test]
fn silence_for_longer_than_a_session_may_be_idle_ends_none() {
    let idle_ns = 10_000_000_000;
    let mut world = World::new(1, GEOMETRY, WorkerOptions { session_idle_ns: idle_ns, ..OPTIONS });
    let id = put(&mut world);
    assert!(matches!(world.answer(id), Replied::Written(_)));
    let ends = |world: &mut World| {
        world.turn();
        let commands = world.take_commands(0);
        commands.iter().any(|command| matches!(command, Command::EndSession { .. }))
    };
    world.set_lease(world.now_ns());
    assert!(!ends(&mut world) && world.worker().is_silent());
    world.pass(6 * idle_ns);
    assert!(!ends(&mut world) && world.worker().is_silent());
    world.set_lease(u64::MAX);
    assert!(!ends(&mut world) && !world.worker().is_silent());
    world.pass(idle_ns);
    assert!(ends(&mut world), "it is idle now");
}

pub(crate) fn trust_is_what_the_setting_permits_and_the_lease_at_most() {
    for (left_ns, trust_us) in [(100_000_000, 100_000), (300_000_000, 300_000), (60_000_000_000, 300_000)] {
        let mut world = World::new(1, GEOMETRY, OPTIONS);
        let id = world.send(&Request::Search { key: b"key" });
        world.set_lease(world.now_ns() + 1_000_000 + left_ns);
        world.turn();
        assert_eq!((world.answered(id), world.trust_us), (Some(Replied::NotFound), trust_us));
    }
}

#[test]
fn acknowledgement_of_a_write_in_flight_leaves_when_the_lease_holds_again() {
    acknowledgement_waits_until_the_lease_holds_again();
}

#[test]
fn silent_worker_rests() {
    silent_worker_takes_no_request_and_submits_nothing();
}

#[test]
fn trust_is_capped() {
    trust_is_what_the_setting_permits_and_the_lease_at_most();
}

/// A worker that has failed for another reason: it sends nothing either, though its lease holds.
#[test]
pub(crate) fn answer_of_the_control_thread_does_not_leave_after_a_failure() {
    let (mut world, opened) = asked();
    let (now_ns, worker) = (world.now_ns(), world.worker_mut());
    worker.give_up(FailureKind::LogFailed);
    worker.control(opened);
    assert_eq!(released(worker, now_ns, u64::MAX), 0);
}

/// A worker without pairs is greeted; the trust of each reply that leaves.
fn trust_of_greeting(worker: &mut Worker, now_ns: u64, lease_until_ns: u64) -> Vec<u32> {
    let hello = Hello { version: PROTOCOL_VERSION, name: "test", token: &[], stream_credit_bytes: 1 };
    let mut message = Vec::new();
    Request::Hello(hello).encode(RequestHeader::default(), &mut message).unwrap();
    worker.tick(now_ns, lease_until_ns);
    worker.message(ConnectionId::from_number(7), &message);
    let replies = worker.release(now_ns, lease_until_ns);
    let trust = replies.iter().map(|(_, reply)| Reply::decode(reply).unwrap().0.trust_us).collect();
    worker.replies_sent();
    trust
}

/// Before it has had one it answers without; from then on its pairs are being taken over in its name.
#[test]
fn worker_that_recovers_is_bound_by_its_lease_from_its_first_one_on() {
    const MS: u64 = 1_000_000;
    let identity = WorkerIdentity { node: NodeId(1), incarnation: Incarnation(1) };
    let mut worker = Worker::new(identity, OPTIONS, Arc::new(Progress::new(0)), 0);
    worker.accepted(ConnectionId::from_number(7));
    let mut greet = |at_ms: u64, lease_ms: u64| {
        let trust = trust_of_greeting(&mut worker, at_ms * MS, lease_ms * MS);
        (trust, worker.failure())
    };
    assert_eq!(greet(1, 0), (vec![0], None), "there was none yet");
    assert_eq!(greet(2, 100), (vec![0], None), "there is nothing to read");
    assert_eq!(greet(200, 100), (vec![], None), "it has run out");
    assert_eq!(greet(201, 300), (vec![0, 0], None), "it holds again, and what waited leaves");
    assert_eq!(greet(202, 0), (vec![], Some(FailureKind::LeaseLost)));
}
