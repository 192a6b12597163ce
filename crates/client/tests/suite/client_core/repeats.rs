//! Refusals, lost replies, deadlines: what is sent again, under which name, and what is said of its fate.

use cell_client::{AttemptError, ClientCommand, ClientError, ClientOptions, Fate, LinkId, Operation, Output};
use cell_fabric::CloseReason;
use cell_protocol::{Condition, Malformed, ReadOnlyReason, Refusal, Reply, RequestId, RequestKind};

use crate::client_core::rig::*;

#[test]
fn lost_reply_of_a_write_is_repeated_under_its_name_and_done_once() {
    let mut rig = Rig::up(options(), true);
    rig.submit(&put(b"key", b"value"));
    rig.step();
    let name = rig.put_name();
    rig.answer_nothing();
    rig.cut();
    rig.pass(10);
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::Hello]);
    rig.answer();
    rig.step();
    assert_eq!(rig.put_name(), name, "the same session and number");
    rig.run();
    assert!(matches!(rig.completion().outcome, Ok(Output::Written(_))));
    assert_eq!(rig.server.applied.iter().filter(|applied| applied.key == b"key").count(), 1);
}

#[test]
fn floor_follows_the_lowest_write_that_is_waited_for() {
    let mut rig = Rig::up(options(), true);
    rig.submit(&put(b"a", b"1"));
    rig.submit(&put(b"b", b"2"));
    rig.step();
    let ids: Vec<RequestId> = rig.requests().into_iter().map(|(_, id)| id).collect();
    rig.sent.clear();
    rig.reply(ids[1], &Reply::Written { version: version(5) });
    rig.submit(&put(b"c", b"3"));
    rig.step();
    assert_eq!(rig.put_name(), (1, 4, 2), "2 is waited for");
    rig.sent.clear();
    rig.reply(ids[0], &Reply::Written { version: version(4) });
    rig.submit(&put(b"d", b"4"));
    rig.step();
    assert_eq!(rig.put_name(), (1, 5, 4), "2 and 3 have ended");
}

#[test]
fn busy_is_tried_again_under_the_same_name_and_a_stale_reply_is_ignored() {
    let mut rig = Rig::up(options(), true);
    rig.submit(&put(b"key", b"value"));
    rig.step();
    let (name, first) = (rig.put_name(), rig.requests()[0].1);
    rig.sent.clear();
    rig.refuse(first, Refusal::Busy);
    rig.step();
    assert!(rig.sent.is_empty(), "not at once");
    let due_ns = rig.core.due_ns().unwrap();
    assert!(due_ns > rig.now_ns && due_ns <= rig.now_ns + MS);
    rig.now_ns = due_ns;
    rig.step();
    let second = rig.requests()[0].1;
    assert_ne!(first, second);
    assert_eq!(rig.put_name(), name);
    rig.refuse(first, Refusal::Internal);
    rig.reply(first, &Reply::Written { version: version(9) });
    assert_eq!(rig.core.completions(), 0, "a reply to the first attempt means nothing now");
    rig.reply(second, &Reply::Written { version: version(8) });
    assert!(matches!(rig.completion().outcome, Ok(Output::Written(version)) if version.csn.0 == 8));
    rig.reply(second, &Reply::Written { version: version(8) });
    assert_eq!((rig.core.completions(), rig.closed_by_client), (0, 0), "a duplicate is ignored");
}

#[test]
fn retries_run_out_and_the_write_was_surely_not_done() {
    let mut rig = Rig::up(ClientOptions { retries_max: 3, ..options() }, true);
    rig.submit(&put(b"key", b"value"));
    for attempt in 0..4 {
        rig.pass(200);
        rig.step();
        assert_eq!(rig.kinds(), [RequestKind::Put], "attempt {attempt}");
        let id = rig.requests()[0].1;
        rig.sent.clear();
        rig.refuse(id, Refusal::Recovering);
    }
    let completion = rig.completion();
    assert!(matches!(completion.outcome, Err(ClientError::Refused(Refusal::Recovering))));
    assert_eq!(fate(&completion), Some(Fate::NotDone));
}

#[test]
fn internal_leaves_the_fate_open_and_later_refusals_do_not_close_it() {
    let mut rig = Rig::up(options(), true);
    rig.submit(&put(b"key", b"value"));
    rig.step();
    let id = rig.requests()[0].1;
    rig.sent.clear();
    rig.refuse(id, Refusal::Internal);
    rig.pass(10);
    rig.step();
    let id = rig.requests()[0].1;
    rig.refuse(id, Refusal::ReadOnly { reason: ReadOnlyReason::LogFailed });
    let completion = rig.completion();
    assert_eq!(fate(&completion), Some(Fate::Unknown), "{completion:?}");
}

#[test]
fn refusals_for_good_end_the_operation_at_once() {
    let mut rig = Rig::up(options(), true);
    let refusals = [
        Refusal::ReadOnly { reason: ReadOnlyReason::DiskFull },
        Refusal::KeyInvalid { len: 0, max: 160 },
        Refusal::TooLong { len: 1, max: 0 },
        Refusal::Malformed { what: Malformed::Order },
        Refusal::Unauthorized,
    ];
    for reason in refusals {
        rig.submit(&put(b"key", b"value"));
        rig.step();
        let id = rig.requests()[0].1;
        rig.sent.clear();
        rig.refuse(id, reason);
        let completion = rig.completion();
        assert!(matches!(completion.outcome, Err(ClientError::Refused(r)) if r == reason), "{completion:?}");
    }
}

#[test]
fn failed_condition_is_a_result_even_of_a_repeat() {
    let mut rig = Rig::up(options(), true);
    let insert = Operation::Put { key: b"first", value: b"other", condition: Condition::IfAbsent };
    rig.submit(&insert);
    rig.step();
    rig.answer_nothing();
    rig.cut();
    rig.pass(10);
    rig.run();
    let completion = rig.completion();
    assert!(matches!(completion.outcome, Err(ClientError::ConditionFailed { current: Some(_) })));
    assert_eq!(fate(&completion), Some(Fate::NotDone));
}

#[test]
fn deadline_without_a_connection_means_not_done() {
    let mut rig = Rig::new(options());
    rig.submit(&put(b"key", b"value"));
    rig.core.tick(rig.now_ns);
    for _ in 0..100 {
        if let Some(ClientCommand::Connect { .. }) = rig.core.command(rig.now_ns) {
            rig.core.closed(
                LinkId::BOOTSTRAP,
                rig.now_ns,
                AttemptError::Closed(CloseReason::HandshakeTimeout),
            );
        }
        rig.now_ns = rig.core.due_ns().unwrap();
        rig.core.tick(rig.now_ns);
    }
    let completion = rig.completion();
    let Err(ClientError::Deadline { waited_ms, last }) = completion.outcome else { panic!("{completion:?}") };
    assert_eq!((waited_ms, completion.elapsed_ns), (5_000, 5_000 * MS));
    assert_eq!(last, Some(AttemptError::Closed(CloseReason::HandshakeTimeout)), "why it could not be sent");
}

#[test]
fn deadline_of_a_sent_write_means_unknown_and_frees_its_number() {
    let mut rig = Rig::up(ClientOptions { silence_ms: 60_000, ..options() }, true);
    rig.submit(&put(b"key", b"value"));
    rig.submit(&get(b"key"));
    rig.step();
    let late = rig.requests()[0].1;
    rig.sent.clear();
    rig.pass(5_000);
    rig.step();
    assert_eq!(fate(&rig.completion()), Some(Fate::Unknown));
    assert_eq!(fate(&rig.completion()), Some(Fate::NotDone), "a read does nothing");
    rig.reply(late, &Reply::Written { version: version(7) });
    assert_eq!(rig.core.completions(), 0);
    rig.submit(&put(b"key", b"later"));
    rig.step();
    assert_eq!(rig.put_name(), (1, 3, 3), "the floor has passed the abandoned write");
}

#[test]
fn session_ended_before_a_write_was_sent_twice_gives_it_another_name() {
    let mut rig = Rig::up(options(), true);
    rig.server.end_sessions();
    rig.submit(&put(b"a", b"1"));
    rig.submit(&put(b"b", b"2"));
    rig.run();
    rig.pass(10);
    rig.run();
    for _ in 0..2 {
        assert!(matches!(rig.completion().outcome, Ok(Output::Written(_))));
    }
    let sessions: Vec<u64> = rig.server.applied.iter().map(|applied| applied.session.0).collect();
    assert_eq!(sessions, [1, 2, 2], "one new session for both");
}

#[test]
fn session_ended_after_a_lost_reply_leaves_the_fate_unknown() {
    let mut rig = Rig::up(options(), true);
    rig.submit(&put(b"key", b"value"));
    rig.step();
    rig.answer_nothing();
    rig.cut();
    rig.server.end_sessions();
    rig.pass(10);
    rig.run();
    let completion = rig.completion();
    assert!(
        matches!(
            completion.outcome,
            Err(ClientError::Unknown { last: Some(AttemptError::Refused(Refusal::SessionUnknown)), .. })
        ),
        "{completion:?}"
    );
    rig.submit(&put(b"key", b"next"));
    rig.run();
    assert!(rig.completion().outcome.is_ok(), "the next write has a new session");
}
