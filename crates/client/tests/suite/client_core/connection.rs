//! Opening, hello, sessions, silence, loss.

use crate::model::refusal;
use cell_client::{
    AttemptError, ClientCommand, ClientError, ClientOptions, Fate, LinkId, Operation, Output, ReportTransport,
};
use cell_protocol::{Hello, Malformed, Refusal, Reply, ReplyHeader, Request, RequestId, RequestKind};
use cell_terms::SessionId;

use crate::client_core::core_harness::*;

#[test]
fn start_connects_says_hello_and_opens_a_session_only_for_writes() {
    let mut harness = CoreHarness::new(options());
    harness.submit(&get(b"key"));
    harness.submit(&put(b"key", b"value"));
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::Hello], "nothing leaves before the welcome");
    harness.answer();
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::Get, RequestKind::OpenSession]);
    harness.answer();
    harness.step();
    assert_eq!(harness.put_name(), (1, 1, 1));
    harness.answer();
    assert_eq!(harness.core.outstanding(), 0);
    assert_eq!(harness.core.completions(), 2);
}

/// Whoever listened on the RDMA network had the token, and could show it elsewhere.
#[test]
pub(crate) fn token_goes_in_no_message_over_rdma() {
    for (transport, said) in [
        (ReportTransport::Tcp, &b"secret"[..]),
        (ReportTransport::Shm, b"secret"),
        (ReportTransport::Verbs, b""),
    ] {
        let mut harness = CoreHarness::new(ClientOptions { token: b"secret".to_vec(), ..options() });
        harness.core.set_transport(LinkId::BOOTSTRAP, transport);
        harness.submit(&get(b"key"));
        harness.step();
        let (_, request) = Request::decode(&harness.sent[0]).unwrap();
        let Request::Hello(Hello { token, .. }) = request else { panic!("{request:?}") };
        assert_eq!((token, harness.sent.len()), (said, 1), "{transport:?}");
    }
}

#[test]
fn full_connection_gets_the_same_message_again_once_it_is_writable() {
    let mut harness = CoreHarness::up(options(), false);
    harness.submit(&get(b"a"));
    harness.submit(&get(b"b"));
    let Some(ClientCommand::Send { message: first, .. }) = harness.core.command(harness.now_ns) else {
        panic!()
    };
    let first = first.to_vec();
    harness.core.not_taken(LinkId::BOOTSTRAP);
    assert_eq!(harness.core.command(harness.now_ns), None);
    harness.core.writable(LinkId::BOOTSTRAP);
    harness.step();
    assert_eq!(harness.sent.len(), 2);
    assert_eq!(harness.sent[0], first);
    harness.run();
    assert_eq!(harness.core.completions(), 2);
}

/// Nothing that was sent is waited for any more: the only operations left wait for room.
#[test]
fn connection_that_never_takes_more_is_given_up_although_nothing_is_on_its_way() {
    let mut harness = CoreHarness::up(options(), false);
    harness.core.submit_until(harness.now_ns, &get(b"short"), harness.now_ns + MS).unwrap();
    assert!(matches!(harness.core.command(harness.now_ns), Some(ClientCommand::Send { .. })));
    harness.core.not_taken(LinkId::BOOTSTRAP);
    harness.core.submit_until(harness.now_ns, &get(b"long"), harness.now_ns + 600_000 * MS).unwrap();
    harness.pass(2);
    harness.step();
    assert!(matches!(harness.completion().outcome, Err(ClientError::Deadline { .. })));
    for _ in 0..3 {
        let due_ns = harness.core.due_ns().unwrap();
        assert!(due_ns < harness.now_ns + 60_000 * MS, "the other one's deadline is far");
        harness.now_ns = due_ns;
        harness.step();
        if harness.closed_by_client > 0 {
            break;
        }
    }
    assert_eq!(harness.closed_by_client, 1);
    harness.pass(10);
    harness.run();
    assert!(matches!(harness.completion().outcome, Ok(Output::Value(None))), "on the next connection");
}

#[test]
fn message_not_taken_by_a_lost_connection_does_not_open_the_next() {
    let mut harness = CoreHarness::up(options(), false);
    harness.submit(&get(b"a"));
    assert!(matches!(harness.core.command(harness.now_ns), Some(ClientCommand::Send { .. })));
    harness.core.not_taken(LinkId::BOOTSTRAP);
    harness.cut();
    harness.pass(10);
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::Hello]);
    harness.run();
    assert!(matches!(harness.completion().outcome, Ok(Output::Value(None))));
}

#[test]
fn silent_server_is_asked_for_a_sign_of_life_and_then_given_up() {
    let mut harness = CoreHarness::up(options(), true);
    harness.submit(&put(b"key", b"value"));
    harness.step();
    harness.sent.clear();
    harness.now_ns = harness.core.due_ns().unwrap();
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::KeepAlive]);
    let probe = harness.requests()[0].1;
    harness.reply(probe, &Reply::Alive);
    harness.sent.clear();
    probe_in_vain(&mut harness);
    assert!(matches!(harness.completion().outcome, Ok(Output::Written(_))), "in time on the next connection");
}

/// A check on its way, which the server has taken in.
fn checking() -> (CoreHarness, RequestId) {
    let mut harness = CoreHarness::up(options(), false);
    harness.core.submit_until(harness.now_ns, &Operation::Check, harness.now_ns + 600_000 * MS).unwrap();
    harness.step();
    let id = harness.requests()[0].1;
    harness.sent.clear();
    (harness, id)
}

/// Nothing was received for half the silence: a sign of life is asked for, and does not come.
fn probe_in_vain(harness: &mut CoreHarness) {
    harness.now_ns = harness.core.due_ns().unwrap();
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::KeepAlive]);
    harness.sent.clear();
    harness.now_ns = harness.core.due_ns().unwrap();
    harness.step();
    assert_eq!(harness.closed_by_client, 1);
    harness.pass(10);
    harness.run();
}

#[test]
fn check_may_take_longer_than_any_silence() {
    let (mut harness, id) = checking();
    for _ in 0..100 {
        harness.pass(5_000);
        harness.step();
        assert_eq!(harness.kinds(), [RequestKind::KeepAlive], "so that nobody takes the connection for idle");
        harness.answer();
    }
    harness.pass(90_000);
    harness.step();
    harness.step();
    assert_eq!(harness.closed_by_client, 0, "who slept itself gives the server its time");
    harness.reply(id, &Reply::Checked(cell_protocol::CheckReport { entries: 3, ..Default::default() }));
    let Ok(Output::Checked(result)) = harness.completion().outcome else { panic!() };
    assert_eq!(result.report().entries, 3);
}

#[test]
fn check_at_a_server_that_shows_no_sign_of_life_is_made_at_the_next() {
    let (mut harness, _) = checking();
    probe_in_vain(&mut harness);
    assert!(matches!(harness.completion().outcome, Ok(Output::Checked(_))));
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
        let mut harness = CoreHarness::up(options(), false);
        harness.submit(&get(b"key"));
        harness.step();
        let id = harness.requests()[0].1;
        harness.core.message(LinkId::BOOTSTRAP, harness.now_ns, &nonsense(id)[which]);
        harness.step();
        assert_eq!(harness.closed_by_client, 1, "{which}");
        harness.pass(10);
        harness.run();
        assert!(matches!(harness.completion().outcome, Ok(Output::Value(None))), "{which}");
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
        let mut harness = CoreHarness::new(options());
        harness.submit(&put(b"key", b"value"));
        harness.step();
        let id = harness.requests()[0].1;
        harness.refuse(id, reason);
        harness.step();
        let completion = harness.completion();
        assert_eq!(fate(&completion), Some(Fate::NotDone));
        assert!(completion.outcome.unwrap_err().to_string().contains(words));
        assert!(harness.core.submit(harness.now_ns, &get(b"key")).is_err());
        assert_eq!((harness.closed_by_client, harness.core.due_ns()), (1, None), "it does not come back");
    }
}

#[test]
fn hello_refused_for_now_is_tried_again() {
    let mut harness = CoreHarness::new(options());
    for _ in 0..3 {
        harness.step();
        let id = harness.requests()[0].1;
        harness.refuse(id, Refusal::Recovering);
        harness.pass(100);
    }
    harness.run();
    assert!(harness.core.is_up());
    assert_eq!((harness.connects, harness.closed_by_client), (4, 3));
}

#[test]
fn no_hello_in_time_is_a_lost_connection() {
    let mut harness = CoreHarness::new(options());
    harness.step();
    harness.pass(5_000);
    harness.step();
    assert_eq!(harness.closed_by_client, 1);
    assert_eq!(harness.core.last_attempt_error(), Some(AttemptError::NoHello { timeout_ms: 5_000 }));
}

#[test]
fn idle_client_does_not_connect_anew_until_it_has_something_to_do() {
    let mut harness = CoreHarness::up(options(), true);
    harness.cut();
    harness.pass(1_000);
    harness.step();
    assert_eq!((harness.connects, harness.core.due_ns()), (1, None));
    harness.submit(&put(b"key", b"value"));
    harness.run();
    assert!(harness.completion().outcome.is_ok());
    assert_eq!((harness.connects, harness.server.sessions()), (2, 1), "the session outlives the connection");
}

#[test]
fn session_that_would_end_for_silence_is_kept_alive() {
    let mut harness = CoreHarness::new(options());
    harness.server.session_idle_ms = 30_000;
    harness.submit(&put(b"key", b"value"));
    harness.run();
    for _ in 0..3 {
        let before = harness.now_ns;
        harness.now_ns = harness.core.due_ns().unwrap();
        assert_eq!(harness.now_ns - before, 10_000 * MS);
        harness.step();
        assert_eq!(harness.kinds(), [RequestKind::KeepAlive]);
        harness.answer();
    }
}

#[test]
fn session_refused_for_now_is_asked_for_again_and_reads_go_on() {
    let mut harness = CoreHarness::up(options(), false);
    harness.submit(&put(b"key", b"value"));
    harness.submit(&get(b"key"));
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::Get, RequestKind::OpenSession]);
    let open = harness.requests()[1].1;
    harness.sent.remove(1);
    harness.refuse(open, Refusal::Busy);
    harness.answer();
    assert!(matches!(harness.completion().outcome, Ok(Output::Value(None))));
    harness.now_ns = harness.core.due_ns().unwrap();
    harness.run();
    assert!(matches!(harness.completion().outcome, Ok(Output::Written(_))));
}

/// "The server is busy", or "no answer came": nothing led to the coordinator.
#[test]
fn write_without_a_session_says_that_the_coordinator_is_away() {
    let mut harness = CoreHarness::up(ClientOptions { deadline_ms: 5_000, ..options() }, false);
    let refused = AttemptError::Refused(Refusal::CoordinatorAway);
    harness.submit(&put(b"first", b"value"));
    harness.step();
    let open = harness.requests()[0].1;
    harness.sent.clear();
    harness.refuse(open, Refusal::CoordinatorAway);
    harness.submit(&put(b"second", b"value"));
    harness.step();
    assert!(harness.kinds().is_empty(), "the next question waits");
    harness.pass(5_000);
    harness.step();
    for _ in 0..2 {
        let outcome = harness.completion().outcome;
        assert!(
            matches!(outcome, Err(ClientError::Deadline { last: Some(last), .. }) if last == refused),
            "{outcome:?}"
        );
    }
    // A question that has had no answer.
    let mut harness = CoreHarness::up(options(), false);
    harness.core.submit_until(harness.now_ns, &put(b"key", b"value"), harness.now_ns + 1_000 * MS).unwrap();
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::OpenSession]);
    harness.pass(1_000);
    harness.step();
    let outcome = harness.completion().outcome;
    let is_awaited =
        matches!(outcome, Err(ClientError::Deadline { last: Some(AttemptError::SessionAwaited), .. }));
    assert!(is_awaited, "the server has not answered: {outcome:?}");
}

/// Its coordinator has nothing to do with that.
#[test]
fn write_whose_server_goes_while_it_waits_for_a_session_says_so() {
    let mut harness = CoreHarness::up(options(), false);
    harness.core.submit_until(harness.now_ns, &put(b"key", b"value"), harness.now_ns + 1_000 * MS).unwrap();
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::OpenSession]);
    harness.cut();
    harness.pass(1_000);
    harness.step();
    let outcome = harness.completion().outcome;
    let is_closed = matches!(outcome, Err(ClientError::Deadline { last: Some(AttemptError::Closed(_)), .. }));
    assert!(is_closed, "{outcome:?}");
}

#[test]
fn close_session_ends_it_at_the_server() {
    let mut harness = CoreHarness::up(options(), true);
    harness.core.close_session();
    harness.run();
    assert_eq!((harness.core.session_is_open(), harness.server.sessions()), (false, 0));
}

#[test]
fn session_id_of_the_server_is_the_one_in_the_writes() {
    let mut harness = CoreHarness::up(options(), false);
    harness.submit(&put(b"key", b"value"));
    harness.step();
    let open = harness.requests()[0].1;
    harness.sent.clear();
    harness.reply(open, &Reply::Session { session: SessionId(77), idle_ms: 0 });
    harness.step();
    assert_eq!(harness.put_name(), (77, 1, 1));
}

#[test]
fn hello_that_cannot_be_said_is_reported_before_anything_is_sent() {
    let mut harness = CoreHarness::new(ClientOptions { token: vec![1; 2000], ..options() });
    harness.step();
    assert_eq!(harness.connects, 0);
    assert!(matches!(harness.core.dismissed(), Some(ClientError::Unsendable(_))));
}
