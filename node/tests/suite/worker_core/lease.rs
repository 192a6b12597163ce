//! Nothing leaves a worker once its lease has ended, whatever comes to it after that.

use cell_node::{Command, ControlEvent, FailureKind, Worker};
use cell_protocol::{Reply, Request};

use crate::worker_core::world::{GEOMETRY, OPTIONS, World};

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
fn answer_of_the_control_thread_does_not_leave_when_the_turn_began_past_the_lease() {
    let (mut world, opened) = asked();
    let (now_ns, worker) = (world.now_ns(), world.worker_mut());
    worker.tick(now_ns, now_ns);
    assert_eq!(worker.failure(), Some(FailureKind::LeaseLost));
    worker.control(opened);
    assert_eq!(released(worker, now_ns, now_ns), 0);
}

#[test]
pub(crate) fn answer_of_the_control_thread_does_not_leave_when_the_lease_ended_within_the_turn() {
    let (mut world, opened) = asked();
    let (now_ns, worker) = (world.now_ns(), world.worker_mut());
    worker.tick(now_ns, now_ns + 1);
    worker.control(opened);
    assert_eq!(released(worker, now_ns + 1, now_ns + 1), 0);
    assert_eq!(worker.failure(), Some(FailureKind::LeaseLost));
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
