//! Gets and searches that were submitted one by one and are looked for in mapped memory side by side: each
//! ends once, as it would alone, whatever happens between the look and its answer.

use cell_client::{AttemptError, ClientCommand, ClientError, Completion, LinkId, Operation, Output, Ticket};
use cell_fabric::CloseReason;
use cell_protocol::{Refusal, Reply, RequestKind};
use cell_terms::Epoch;

use crate::onesided::answers::{key, value};
use crate::onesided::in_place::mapped;
use crate::onesided::owner::{EPOCH, Owner};
use crate::onesided::read_harness::{MS, OPERATION_MS_MAX, ReadHarness, options};

fn submit(harness: &mut ReadHarness, numbers: std::ops::Range<u32>) -> Vec<Ticket> {
    numbers.map(|number| harness.submit(&Operation::Get { key: &key(number) })).collect()
}

fn value_of(completion: Completion) -> Option<Vec<u8>> {
    match completion.outcome.unwrap() {
        Output::Value(item) => item.map(|item| item.value),
        other => panic!("{other:?}"),
    }
}

/// All that is complete, by ticket.
fn complete(harness: &mut ReadHarness) -> Vec<(Ticket, Completion)> {
    std::iter::from_fn(|| harness.core.completion())
        .map(|completion| (completion.ticket, completion))
        .collect()
}

#[test]
fn many_more_than_fit_side_by_side_are_all_answered_in_their_order() {
    let mut harness = mapped(options(), Owner::new(false));
    let before = harness.counters();
    let tickets: Vec<_> = (0..10).flat_map(|_| submit(&mut harness, 0..20)).collect();
    assert_eq!(harness.core.outstanding(), 200);
    harness.run();
    let found = complete(&mut harness);
    assert_eq!(found.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets);
    for (at, (_, completion)) in (0..).zip(found) {
        assert_eq!(value_of(completion), Some(value(at % 20)));
    }
    let after = harness.counters();
    assert_eq!((after.started - before.started, after.done - before.done), (200, 200));
    assert_eq!((after.in_place - before.in_place, after.reads - before.reads), (200, 0));
    assert_eq!(harness.core.outstanding(), 0);
}

#[test]
pub(crate) fn one_that_is_not_durable_yet_holds_up_no_other() {
    let mut harness = mapped(options(), Owner::new(false));
    harness.owner.put_unseen(&key(3), b"newer");
    let tickets = submit(&mut harness, 0..6);
    harness.run();
    let returned: Vec<_> = complete(&mut harness).into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(returned, [tickets[0], tickets[1], tickets[2], tickets[4], tickets[5]]);
    harness.owner.raise();
    assert_eq!(value_of(harness.wait(MS).unwrap()), Some(b"newer".to_vec()));
    assert!(harness.asked.is_empty());
}

/// Between the look and the answer the client is stopped for too long.
#[test]
pub(crate) fn what_took_too_long_is_looked_for_again() {
    let mut harness = mapped(options(), Owner::new(false));
    let before = harness.counters();
    submit(&mut harness, 0..3);
    harness.validate();
    harness.owner.put(&key(1), b"newer");
    harness.pass(OPERATION_MS_MAX * MS);
    harness.run();
    let found: Vec<_> = complete(&mut harness).into_iter().map(|(_, one)| value_of(one)).collect();
    assert_eq!(found, [Some(value(0)), Some(b"newer".to_vec()), Some(value(2))]);
    assert_eq!(harness.counters().in_place - before.in_place, 3, "what is not returned is not counted");
}

/// Between the look and the answer the lease ends, long before the read has taken too long.
#[test]
pub(crate) fn past_the_lease_nothing_is_returned() {
    let mut harness = mapped(options(), Owner::new(false));
    harness.answers = false;
    harness.pass(9_990 * MS);
    assert_eq!(harness.get(&key(3)), Some(value(3)), "the lease still holds");
    submit(&mut harness, 0..3);
    harness.validate();
    harness.pass(10 * MS);
    let returned = harness.wait(30 * MS);
    assert!(returned.is_none(), "{returned:?} is a successor's to say");
    assert!(harness.counters().trust > 0);
}

/// The list of regions changes between the look and the answer.
#[test]
fn what_was_found_before_the_connection_was_lost_is_not_returned() {
    let mut harness = mapped(options(), Owner::new(false));
    submit(&mut harness, 0..3);
    harness.validate();
    harness.core.closed(LinkId::BOOTSTRAP, harness.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    harness.validate();
    assert_eq!(complete(&mut harness).len(), 0, "its pairs are not known any more");
    harness.owner.put(&key(1), b"newer");
    harness.pass(1_000 * MS);
    let found: Vec<_> = (0..3).map(|_| value_of(harness.wait(1_000 * MS).unwrap())).collect();
    assert_eq!(found, [Some(value(0)), Some(b"newer".to_vec()), Some(value(2))]);
}

/// A reply says that the pair is of another epoch, between the look and the answer: the worker is trusted as
/// before, for its other pair.
#[test]
fn what_was_found_under_registrations_that_have_ended_is_not_returned() {
    for (epoch, returned) in [(EPOCH, 3), (Epoch(2), 0)] {
        let mut harness = mapped(options(), Owner::new(false));
        harness.answers = false;
        harness.pass(6_000 * MS); // the lease holds, and is asked for
        harness.run();
        assert_eq!(harness.kinds.last(), Some(&RequestKind::KeepAlive));
        let question = harness.last_request();
        submit(&mut harness, 0..3);
        harness.validate();
        harness.reply_epoch = epoch;
        harness.reply_alive(question);
        harness.validate();
        let found = complete(&mut harness);
        let answered = found.iter().filter(|(_, one)| one.outcome.is_ok()).count();
        assert_eq!(answered, returned, "{epoch:?}: {found:?}");
    }
}

#[test]
fn one_whose_deadline_comes_first_ends_with_it() {
    let mut harness = mapped(options(), Owner::new(false));
    for looked_for in [false, true] {
        let deadline_ns = harness.now_ns + 1_000;
        harness.core.submit_until(harness.now_ns, &Operation::Get { key: &key(3) }, deadline_ns).unwrap();
        let other = harness.submit(&Operation::Search { key: &key(4) });
        if looked_for {
            harness.validate();
        }
        harness.pass(1_000);
        harness.run();
        let mut ended = complete(&mut harness);
        ended.sort_by_key(|(ticket, _)| *ticket);
        let [(_, late), (ticket, in_time)] = <[_; 2]>::try_from(ended).unwrap();
        assert!(matches!(late.outcome, Err(ClientError::Deadline { .. })), "{:?}", late.outcome);
        assert_eq!((ticket, in_time.outcome.unwrap()), (other, Output::Exists(true)));
    }
}

#[test]
fn one_that_is_cancelled_has_no_completion_and_leaves_the_others_theirs() {
    for looked_for in [false, true] {
        let mut harness = mapped(options(), Owner::new(false));
        let tickets = submit(&mut harness, 0..5);
        if looked_for {
            harness.validate();
        }
        harness.core.give_up(harness.now_ns, tickets[1]);
        harness.core.give_up(harness.now_ns, tickets[4]);
        assert_eq!(harness.core.outstanding(), 3);
        harness.run();
        let found = complete(&mut harness).into_iter().map(|(ticket, one)| (ticket, value_of(one)));
        let wanted = [0, 2, 3].map(|number| (tickets[number as usize], Some(value(number))));
        assert_eq!(found.collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn dismissed_client_ends_those_too() {
    let mut harness = mapped(options(), Owner::new(false));
    let tickets = submit(&mut harness, 0..20);
    harness.core.closed(LinkId::BOOTSTRAP, harness.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    harness.pass(1_000 * MS);
    let now_ns = harness.now_ns;
    harness.core.tick(now_ns);
    let mut hello = None;
    while let Some(command) = harness.core.command(now_ns) {
        match command {
            ClientCommand::Connect { .. } => harness.core.connected(LinkId::BOOTSTRAP),
            ClientCommand::Send { message, .. } => {
                hello = Some(cell_protocol::Request::decode(message).unwrap().0.id);
            }
            ClientCommand::Close { .. } => {}
        }
    }
    let mut bytes = Vec::new();
    Reply::Refused(Refusal::Unauthorized).encode(&harness.header(hello.unwrap()), &mut bytes).unwrap();
    harness.core.message(LinkId::BOOTSTRAP, now_ns, &bytes);
    let ended = complete(&mut harness);
    assert_eq!(ended.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets);
    assert!(ended.iter().all(|(_, one)| matches!(one.outcome, Err(ClientError::Unauthorized))));
    assert_eq!(harness.core.outstanding(), 0);
}
