//! Refusals, lost replies, deadlines: what is sent again, under which name, and what is said of its fate.

use cell_client::{AttemptError, ClientCommand, ClientError, ClientOptions, Fate, LinkId, Operation, Output};
use cell_fabric::CloseReason;
use cell_protocol::{Condition, Malformed, ReadOnlyReason, Refusal, Reply, RequestId, RequestKind};

use crate::client_core::core_harness::*;

#[test]
fn lost_reply_of_a_write_is_repeated_under_its_name_and_done_once() {
    let mut harness = CoreHarness::up(options(), true);
    harness.submit(&put(b"key", b"value"));
    harness.step();
    let name = harness.put_name();
    harness.answer_nothing();
    harness.cut();
    harness.pass(10);
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::Hello]);
    harness.answer();
    harness.step();
    assert_eq!(harness.put_name(), name, "the same session and number");
    harness.run();
    assert!(matches!(harness.completion().outcome, Ok(Output::Written(_))));
    assert_eq!(harness.server.applied.iter().filter(|applied| applied.key == b"key").count(), 1);
}

#[test]
fn floor_follows_the_lowest_write_that_is_waited_for() {
    let mut harness = CoreHarness::up(options(), true);
    harness.submit(&put(b"a", b"1"));
    harness.submit(&put(b"b", b"2"));
    harness.step();
    let ids: Vec<RequestId> = harness.requests().into_iter().map(|(_, id)| id).collect();
    harness.sent.clear();
    harness.reply(ids[1], &Reply::Written { version: version(5) });
    harness.submit(&put(b"c", b"3"));
    harness.step();
    assert_eq!(harness.put_name(), (1, 4, 2), "2 is waited for");
    harness.sent.clear();
    harness.reply(ids[0], &Reply::Written { version: version(4) });
    harness.submit(&put(b"d", b"4"));
    harness.step();
    assert_eq!(harness.put_name(), (1, 5, 4), "2 and 3 have ended");
}

#[test]
fn busy_is_tried_again_under_the_same_name_and_a_stale_reply_is_ignored() {
    let mut harness = CoreHarness::up(options(), true);
    harness.submit(&put(b"key", b"value"));
    harness.step();
    let (name, first) = (harness.put_name(), harness.requests()[0].1);
    harness.sent.clear();
    harness.refuse(first, Refusal::Busy);
    harness.step();
    assert!(harness.sent.is_empty(), "not at once");
    let due_ns = harness.core.due_ns().unwrap();
    assert!(due_ns > harness.now_ns && due_ns <= harness.now_ns + MS);
    harness.now_ns = due_ns;
    harness.step();
    let second = harness.requests()[0].1;
    assert_ne!(first, second);
    assert_eq!(harness.put_name(), name);
    harness.refuse(first, Refusal::Internal);
    harness.reply(first, &Reply::Written { version: version(9) });
    assert_eq!(harness.core.completions(), 0, "a reply to the first attempt means nothing now");
    harness.reply(second, &Reply::Written { version: version(8) });
    assert!(matches!(harness.completion().outcome, Ok(Output::Written(version)) if version.csn.0 == 8));
    harness.reply(second, &Reply::Written { version: version(8) });
    assert_eq!((harness.core.completions(), harness.closed_by_client), (0, 0), "a duplicate is ignored");
}

#[test]
fn retries_run_out_and_the_write_was_surely_not_done() {
    let mut harness = CoreHarness::up(ClientOptions { retries_max: 3, ..options() }, true);
    harness.submit(&put(b"key", b"value"));
    for attempt in 0..4 {
        harness.pass(200);
        harness.step();
        assert_eq!(harness.kinds(), [RequestKind::Put], "attempt {attempt}");
        let id = harness.requests()[0].1;
        harness.sent.clear();
        harness.refuse(id, Refusal::Recovering);
    }
    let completion = harness.completion();
    assert!(matches!(completion.outcome, Err(ClientError::Refused(Refusal::Recovering))));
    assert_eq!(fate(&completion), Some(Fate::NotDone));
}

#[test]
fn internal_leaves_the_fate_open_and_later_refusals_do_not_close_it() {
    let mut harness = CoreHarness::up(options(), true);
    harness.submit(&put(b"key", b"value"));
    harness.step();
    let id = harness.requests()[0].1;
    harness.sent.clear();
    harness.refuse(id, Refusal::Internal);
    harness.pass(10);
    harness.step();
    let id = harness.requests()[0].1;
    harness.refuse(id, Refusal::ReadOnly { reason: ReadOnlyReason::LogFailed });
    let completion = harness.completion();
    assert_eq!(fate(&completion), Some(Fate::Unknown), "{completion:?}");
}

#[test]
fn refusals_for_good_end_the_operation_at_once() {
    let mut harness = CoreHarness::up(options(), true);
    let refusals = [
        Refusal::ReadOnly { reason: ReadOnlyReason::DiskFull },
        Refusal::KeyInvalid { len: 0, max: 160 },
        Refusal::TooLong { len: 1, max: 0 },
        Refusal::Malformed { what: Malformed::Order },
    ];
    for reason in refusals {
        harness.submit(&put(b"key", b"value"));
        harness.step();
        let id = harness.requests()[0].1;
        harness.sent.clear();
        harness.refuse(id, reason);
        let completion = harness.completion();
        assert!(matches!(completion.outcome, Err(ClientError::Refused(r)) if r == reason), "{completion:?}");
    }
}

#[test]
fn failed_condition_is_a_result_even_of_a_repeat() {
    let mut harness = CoreHarness::up(options(), true);
    let insert = Operation::Put { key: b"first", value: b"other", condition: Condition::IfAbsent };
    harness.submit(&insert);
    harness.step();
    harness.answer_nothing();
    harness.cut();
    harness.pass(10);
    harness.run();
    let completion = harness.completion();
    assert!(matches!(completion.outcome, Err(ClientError::ConditionFailed { current: Some(_) })));
    assert_eq!(fate(&completion), Some(Fate::NotDone));
}

/// Lets each connection fail until something is complete.
fn connect_in_vain(harness: &mut CoreHarness, why: AttemptError) {
    for _ in 0..200 {
        harness.core.tick(harness.now_ns);
        if harness.core.completions() > 0 {
            return;
        }
        if let Some(ClientCommand::Connect { .. }) = harness.core.command(harness.now_ns) {
            harness.core.closed(LinkId::BOOTSTRAP, harness.now_ns, why);
        }
        harness.now_ns = harness.now_ns.max(harness.core.due_ns().unwrap());
    }
}

#[test]
fn deadline_without_a_connection_means_not_done() {
    let mut harness = CoreHarness::new(ClientOptions { deadline_ms: 5_000, ..options() });
    harness.submit(&put(b"key", b"value"));
    connect_in_vain(&mut harness, AttemptError::Closed(CloseReason::HandshakeTimeout));
    let completion = harness.completion();
    let Err(ClientError::Deadline { waited_ms, last }) = completion.outcome else { panic!("{completion:?}") };
    assert_eq!((waited_ms, completion.elapsed_ns), (5_000, 5_000 * MS));
    assert_eq!(last, Some(AttemptError::Closed(CloseReason::HandshakeTimeout)), "why it could not be sent");
}

/// "The pair is being recovered", of a server that had been gone for all the time since.
#[test]
fn deadline_says_that_no_server_is_reached_and_not_what_one_refused_before() {
    let mut harness = CoreHarness::up(ClientOptions { deadline_ms: 5_000, ..options() }, false);
    harness.submit(&get(b"key"));
    harness.step();
    let id = harness.requests()[0].1;
    harness.refuse(id, Refusal::Recovering);
    harness.cut();
    let gone = AttemptError::Closed(CloseReason::Network(std::io::ErrorKind::ConnectionRefused));
    connect_in_vain(&mut harness, gone);
    let completion = harness.completion();
    let Err(ClientError::Deadline { last, .. }) = completion.outcome else { panic!("{completion:?}") };
    assert_eq!(last, Some(gone));
}

#[test]
fn deadline_of_a_sent_write_means_unknown_and_frees_its_number() {
    let options = ClientOptions { silence_ms: 60_000, deadline_ms: 5_000, ..options() };
    let mut harness = CoreHarness::up(options, true);
    harness.submit(&put(b"key", b"value"));
    harness.submit(&get(b"key"));
    harness.step();
    let late = harness.requests()[0].1;
    harness.sent.clear();
    harness.pass(5_000);
    harness.step();
    assert_eq!(fate(&harness.completion()), Some(Fate::Unknown));
    assert_eq!(fate(&harness.completion()), Some(Fate::NotDone), "a read does nothing");
    harness.reply(late, &Reply::Written { version: version(7) });
    assert_eq!(harness.core.completions(), 0);
    harness.submit(&put(b"key", b"later"));
    harness.step();
    assert_eq!(harness.put_name(), (1, 3, 3), "the floor has passed the abandoned write");
}

#[test]
fn session_ended_before_a_write_was_sent_twice_gives_it_another_name() {
    let mut harness = CoreHarness::up(options(), true);
    harness.server.end_sessions();
    harness.submit(&put(b"a", b"1"));
    harness.submit(&put(b"b", b"2"));
    harness.run();
    harness.pass(10);
    harness.run();
    for _ in 0..2 {
        assert!(matches!(harness.completion().outcome, Ok(Output::Written(_))));
    }
    let sessions: Vec<u64> = harness.server.applied.iter().map(|applied| applied.session.0).collect();
    assert_eq!(sessions, [1, 2, 2], "one new session for both");
}

#[test]
fn session_ended_after_a_lost_reply_leaves_the_fate_unknown() {
    let mut harness = CoreHarness::up(options(), true);
    harness.submit(&put(b"key", b"value"));
    harness.step();
    harness.answer_nothing();
    harness.cut();
    harness.server.end_sessions();
    harness.pass(10);
    harness.run();
    let completion = harness.completion();
    assert!(
        matches!(
            completion.outcome,
            Err(ClientError::Unknown { last: Some(AttemptError::Refused(Refusal::SessionUnknown)), .. })
        ),
        "{completion:?}"
    );
    harness.submit(&put(b"key", b"next"));
    harness.run();
    assert!(harness.completion().outcome.is_ok(), "the next write has a new session");
}

/// Sent again, it undid a later write that had been answered.
#[test]
pub(crate) fn write_that_is_given_up_is_not_sent_again_behind_a_later_one() {
    let mut harness = CoreHarness::up(options(), true);
    let dropped = harness.submit(&put(b"key", b"dropped"));
    harness.step();
    let id = harness.requests()[0].1;
    harness.sent.clear();
    harness.refuse(id, Refusal::Busy);
    harness.core.give_up(harness.now_ns, dropped);
    assert_eq!((harness.core.outstanding(), harness.core.completions()), (0, 0));
    let later = harness.submit(&put(b"key", b"later"));
    harness.run();
    let completion = harness.completion();
    assert_eq!((completion.ticket, completion.outcome.is_ok()), (later, true));
    harness.pass(1_000);
    harness.run();
    assert_eq!(harness.server.entries[&b"key"[..]].1, b"later");
    assert_eq!((harness.core.outstanding(), harness.core.completions()), (0, 0));
}

#[test]
fn delayed_copy_of_a_write_that_was_given_up_is_refused_once_a_later_one_was_answered() {
    let mut harness = CoreHarness::up(options(), true);
    let dropped = harness.submit(&put(b"key", b"dropped"));
    harness.step();
    let copies = harness.sent.clone();
    harness.cut();
    harness.core.give_up(harness.now_ns, dropped);
    harness.submit(&put(b"key", b"later"));
    harness.pass(10);
    harness.run();
    assert!(harness.completion().outcome.is_ok());
    harness.sent = copies;
    harness.answer();
    assert_eq!(harness.server.entries[&b"key"[..]].1, b"later");
    assert!(harness.server.applied.iter().all(|applied| applied.value.as_deref() != Some(b"dropped")));
}

/// In each state that a write passes through: nothing is left of it, and the room that it took is free.
#[test]
fn write_that_is_given_up_anywhere_leaves_room_and_no_completion() {
    let large = vec![5; 1_000_000];
    for value in [&b"value"[..], &large] {
        for steps in 0..6 {
            let few = ClientOptions { in_flight_max: 1, queue_max: 0, ..options() };
            let mut harness = CoreHarness::new(few);
            let dropped = harness.submit(&put(b"key", value));
            for step in 0..steps {
                harness.step();
                if step % 2 == 1 {
                    harness.answer();
                }
            }
            if harness.core.completions() == 0 {
                harness.core.give_up(harness.now_ns, dropped);
            } else {
                harness.completion();
            }
            assert_eq!((harness.core.outstanding(), harness.core.completions()), (0, 0), "{steps} steps");
            let later = harness.submit(&put(b"key", b"later"));
            harness.run();
            let completion = harness.completion();
            assert_eq!((completion.ticket, completion.outcome.is_ok()), (later, true), "{steps} steps");
            assert_eq!(harness.server.entries[&b"key"[..]].1, b"later");
            assert_eq!(harness.peer.open_streams(), 0);
        }
    }
}

/// A put without the role was tried until its deadline.
#[test]
fn role_that_is_missing_ends_operations_at_once_and_is_named() {
    let mut harness = CoreHarness::up(options(), false);
    let role = |harness: &mut CoreHarness| match harness.completion().outcome {
        Err(ClientError::RoleMissing { role }) => role,
        other => panic!("{other:?}"),
    };
    for key in [b"one", b"two"] {
        harness.submit(&put(key, b"value"));
        harness.submit(&put(b"beside", b"value"));
        harness.step();
        assert_eq!(harness.kinds(), [RequestKind::OpenSession]);
        let id = harness.requests()[0].1;
        harness.sent.clear();
        harness.refuse(id, Refusal::Unauthorized);
        assert_eq!([role(&mut harness), role(&mut harness)], ["writer", "writer"]);
    }
    for (operation, needed) in
        [(get(b"key"), "reader"), (Operation::Status, "viewer"), (Operation::Check, "operator")]
    {
        harness.submit(&operation);
        harness.step();
        let id = harness.requests()[0].1;
        harness.sent.clear();
        harness.refuse(id, Refusal::Unauthorized);
        assert_eq!(role(&mut harness), needed);
    }
    assert_eq!(harness.core.outstanding(), 0);
    harness.submit(&put(b"late", b"value"));
    harness.run();
    assert!(harness.completion().outcome.is_ok(), "the role was given meanwhile");
}
