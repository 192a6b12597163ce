//! Opening, hello, sessions, silence, loss.

use crate::model::refusal;
use cell_client::{AttemptError, ClientCommand, ClientError, ClientOptions, Fate, LinkId, Operation, Output};
use cell_protocol::{Malformed, Refusal, Reply, ReplyHeader, RequestId, RequestKind};
use cell_terms::SessionId;

use crate::client_core::rig::*;

#[test]
fn start_connects_says_hello_and_opens_a_session_only_for_writes() {
    let mut rig = Rig::new(options());
    rig.submit(&get(b"key"));
    rig.submit(&put(b"key", b"value"));
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::Hello], "nothing leaves before the welcome");
    rig.answer();
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::Get, RequestKind::OpenSession]);
    rig.answer();
    rig.step();
    assert_eq!(rig.put_name(), (1, 1, 1));
    rig.answer();
    assert_eq!(rig.core.outstanding(), 0);
    assert_eq!(rig.core.completions(), 2);
}

#[test]
fn full_connection_gets_the_same_message_again_once_it_is_writable() {
    let mut rig = Rig::up(options(), false);
    rig.submit(&get(b"a"));
    rig.submit(&get(b"b"));
    let Some(ClientCommand::Send { message: first, .. }) = rig.core.command(rig.now_ns) else { panic!() };
    let first = first.to_vec();
    rig.core.not_taken(LinkId::BOOTSTRAP);
    assert_eq!(rig.core.command(rig.now_ns), None);
    rig.core.writable(LinkId::BOOTSTRAP);
    rig.step();
    assert_eq!(rig.sent.len(), 2);
    assert_eq!(rig.sent[0], first);
    rig.run();
    assert_eq!(rig.core.completions(), 2);
}

/// Nothing that was sent is waited for any more: the only operations left wait for room.
#[test]
fn connection_that_never_takes_more_is_given_up_although_nothing_is_on_its_way() {
    let mut rig = Rig::up(options(), false);
    rig.core.submit_until(rig.now_ns, &get(b"short"), rig.now_ns + MS).unwrap();
    assert!(matches!(rig.core.command(rig.now_ns), Some(ClientCommand::Send { .. })));
    rig.core.not_taken(LinkId::BOOTSTRAP);
    rig.core.submit_until(rig.now_ns, &get(b"long"), rig.now_ns + 600_000 * MS).unwrap();
    rig.pass(2);
    rig.step();
    assert!(matches!(rig.completion().outcome, Err(ClientError::Deadline { .. })));
    for _ in 0..3 {
        let due_ns = rig.core.due_ns().unwrap();
        assert!(due_ns < rig.now_ns + 60_000 * MS, "the other one's deadline is far");
        rig.now_ns = due_ns;
        rig.step();
        if rig.closed_by_client > 0 {
            break;
        }
    }
    assert_eq!(rig.closed_by_client, 1);
    rig.pass(10);
    rig.run();
    assert!(matches!(rig.completion().outcome, Ok(Output::Value(None))), "on the next connection");
}

#[test]
fn message_not_taken_by_a_lost_connection_does_not_open_the_next() {
    let mut rig = Rig::up(options(), false);
    rig.submit(&get(b"a"));
    assert!(matches!(rig.core.command(rig.now_ns), Some(ClientCommand::Send { .. })));
    rig.core.not_taken(LinkId::BOOTSTRAP);
    rig.cut();
    rig.pass(10);
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::Hello]);
    rig.run();
    assert!(matches!(rig.completion().outcome, Ok(Output::Value(None))));
}

#[test]
fn silent_server_is_asked_for_a_sign_of_life_and_then_given_up() {
    let mut rig = Rig::up(options(), true);
    rig.submit(&put(b"key", b"value"));
    rig.step();
    rig.sent.clear();
    rig.now_ns = rig.core.due_ns().unwrap();
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::KeepAlive]);
    let probe = rig.requests()[0].1;
    rig.reply(probe, &Reply::Alive);
    rig.sent.clear();
    probe_in_vain(&mut rig);
    assert!(matches!(rig.completion().outcome, Ok(Output::Written(_))), "in time on the next connection");
}

/// A check on its way, which the server has taken in.
fn checking() -> (Rig, RequestId) {
    let mut rig = Rig::up(options(), false);
    rig.core.submit_until(rig.now_ns, &Operation::Check, rig.now_ns + 600_000 * MS).unwrap();
    rig.step();
    let id = rig.requests()[0].1;
    rig.sent.clear();
    (rig, id)
}

/// Nothing was heard for half the silence: a sign of life is asked for, and does not come.
fn probe_in_vain(rig: &mut Rig) {
    rig.now_ns = rig.core.due_ns().unwrap();
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::KeepAlive]);
    rig.sent.clear();
    rig.now_ns = rig.core.due_ns().unwrap();
    rig.step();
    assert_eq!(rig.closed_by_client, 1);
    rig.pass(10);
    rig.run();
}

#[test]
fn check_may_take_longer_than_any_silence() {
    let (mut rig, id) = checking();
    for _ in 0..100 {
        rig.pass(5_000);
        rig.step();
        assert_eq!(rig.kinds(), [RequestKind::KeepAlive], "so that nobody takes the connection for idle");
        rig.answer();
    }
    rig.pass(90_000);
    rig.step();
    rig.step();
    assert_eq!(rig.closed_by_client, 0, "who slept itself gives the server its time");
    rig.reply(id, &Reply::Checked(cell_protocol::CheckReport { entries: 3, ..Default::default() }));
    let Ok(Output::Checked(result)) = rig.completion().outcome else { panic!() };
    assert_eq!(result.report().entries, 3);
}

#[test]
fn check_at_a_server_that_shows_no_sign_of_life_is_made_at_the_next() {
    let (mut rig, _) = checking();
    probe_in_vain(&mut rig);
    assert!(matches!(rig.completion().outcome, Ok(Output::Checked(_))));
}

#[test]
fn reply_that_makes_no_sense_costs_the_connection_and_not_the_operation() {
    let nonsense = |id: RequestId| {
        let mut not_mine = Vec::new();
        let header = ReplyHeader { id, ..ReplyHeader::default() };
        Reply::Deleted.encode(&header, &mut not_mine).unwrap();
        [not_mine, b"HTTP/1.1 400 Bad Request".to_vec(), Vec::new(), refusal(id, Refusal::SessionUnknown)]
    };
    for which in 0..4 {
        let mut rig = Rig::up(options(), false);
        rig.submit(&get(b"key"));
        rig.step();
        let id = rig.requests()[0].1;
        rig.core.message(LinkId::BOOTSTRAP, rig.now_ns, &nonsense(id)[which]);
        rig.step();
        assert_eq!(rig.closed_by_client, 1, "{which}");
        rig.pass(10);
        rig.run();
        assert!(matches!(rig.completion().outcome, Ok(Output::Value(None))), "{which}");
    }
}

#[test]
fn hello_refused_for_good_ends_everything() {
    let cases = [
        (Refusal::VersionUnsupported { min: 7, max: 9 }, "versions 7 to 9"),
        (Refusal::Unauthorized, "token"),
        (Refusal::Malformed { what: Malformed::Text }, "could not read"),
    ];
    for (reason, words) in cases {
        let mut rig = Rig::new(options());
        rig.submit(&put(b"key", b"value"));
        rig.step();
        let id = rig.requests()[0].1;
        rig.refuse(id, reason);
        rig.step();
        let completion = rig.completion();
        assert_eq!(fate(&completion), Some(Fate::NotDone));
        assert!(completion.outcome.unwrap_err().to_string().contains(words));
        assert!(rig.core.submit(rig.now_ns, &get(b"key")).is_err());
        assert_eq!((rig.closed_by_client, rig.core.due_ns()), (1, None), "it does not come back");
    }
}

#[test]
fn hello_refused_for_now_is_tried_again() {
    let mut rig = Rig::new(options());
    for _ in 0..3 {
        rig.step();
        let id = rig.requests()[0].1;
        rig.refuse(id, Refusal::Recovering);
        rig.pass(100);
    }
    rig.run();
    assert!(rig.core.is_up());
    assert_eq!((rig.connects, rig.closed_by_client), (4, 3));
}

#[test]
fn no_hello_in_time_is_a_lost_connection() {
    let mut rig = Rig::new(options());
    rig.step();
    rig.pass(5_000);
    rig.step();
    assert_eq!(rig.closed_by_client, 1);
    assert_eq!(rig.core.last_attempt_error(), Some(AttemptError::NoHello { timeout_ms: 5_000 }));
}

#[test]
fn idle_client_does_not_connect_anew_until_it_has_something_to_do() {
    let mut rig = Rig::up(options(), true);
    rig.cut();
    rig.pass(1_000);
    rig.step();
    assert_eq!((rig.connects, rig.core.due_ns()), (1, None));
    rig.submit(&put(b"key", b"value"));
    rig.run();
    assert!(rig.completion().outcome.is_ok());
    assert_eq!((rig.connects, rig.server.sessions()), (2, 1), "the session outlives the connection");
}

#[test]
fn session_that_would_end_for_silence_is_kept_alive() {
    let mut rig = Rig::new(options());
    rig.server.session_idle_ms = 30_000;
    rig.submit(&put(b"key", b"value"));
    rig.run();
    for _ in 0..3 {
        let before = rig.now_ns;
        rig.now_ns = rig.core.due_ns().unwrap();
        assert_eq!(rig.now_ns - before, 10_000 * MS);
        rig.step();
        assert_eq!(rig.kinds(), [RequestKind::KeepAlive]);
        rig.answer();
    }
}

#[test]
fn session_refused_for_now_is_asked_for_again_and_reads_go_on() {
    let mut rig = Rig::up(options(), false);
    rig.submit(&put(b"key", b"value"));
    rig.submit(&get(b"key"));
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::Get, RequestKind::OpenSession]);
    let open = rig.requests()[1].1;
    rig.sent.remove(1);
    rig.refuse(open, Refusal::Busy);
    rig.answer();
    assert!(matches!(rig.completion().outcome, Ok(Output::Value(None))));
    rig.now_ns = rig.core.due_ns().unwrap();
    rig.run();
    assert!(matches!(rig.completion().outcome, Ok(Output::Written(_))));
}

#[test]
fn close_session_ends_it_at_the_server() {
    let mut rig = Rig::up(options(), true);
    rig.core.close_session();
    rig.run();
    assert_eq!((rig.core.session_is_open(), rig.server.sessions()), (false, 0));
}

#[test]
fn session_id_of_the_server_is_the_one_in_the_writes() {
    let mut rig = Rig::up(options(), false);
    rig.submit(&put(b"key", b"value"));
    rig.step();
    let open = rig.requests()[0].1;
    rig.sent.clear();
    rig.reply(open, &Reply::Session { session: SessionId(77), idle_ms: 0 });
    rig.step();
    assert_eq!(rig.put_name(), (77, 1, 1));
}

#[test]
fn hello_that_cannot_be_said_is_told_before_anything_is_sent() {
    let mut rig = Rig::new(ClientOptions { token: vec![1; 2000], ..options() });
    rig.step();
    assert_eq!(rig.connects, 0);
    assert!(matches!(rig.core.dismissed(), Some(ClientError::Unsendable(_))));
}
