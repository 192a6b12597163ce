//! The core, step by step: what it sends in answer to what happens. Each test plays the server by hand, or
//! lets the model server answer.

#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]

mod model;

use cell_client::{
    ClientCore, ClientError, ClientOptions, Command, Completion, Fate, Item, Operation, Output, Setback,
    Ticket,
};
use cell_fabric::CloseReason;
use cell_protocol::{
    Condition, Limits, Malformed, ReadOnlyReason, Refusal, Reply, ReplyHeader, Request, RequestId,
    RequestKind, ValueBegin,
};
use cell_terms::{Csn, OperationNumber, SessionId, Version};
use model::{LIMITS, Peer, Server, refusal};

const MS: u64 = 1_000_000;

/// A core, and a wire that the test cuts and mends.
struct Rig {
    core: ClientCore,
    server: Server,
    peer: Peer,
    now_ns: u64,
    /// Messages that the client sent and nobody answered yet.
    sent: Vec<Vec<u8>>,
    closed_by_client: usize,
    connects: u64,
}

impl Rig {
    fn new(options: ClientOptions) -> Rig {
        Rig {
            core: ClientCore::new(options, 1),
            server: Server::default(),
            peer: Peer::default(),
            now_ns: 1,
            sent: Vec::new(),
            closed_by_client: 0,
            connects: 0,
        }
    }

    /// Connected, welcomed, with an open session if `session`.
    fn up(options: ClientOptions, session: bool) -> Rig {
        let mut rig = Rig::new(options);
        rig.run();
        if session {
            rig.submit(&put(b"first", b"value"));
            rig.run();
            assert!(rig.completion().outcome.is_ok());
        }
        rig
    }

    /// Carries commands out; messages stay in `sent`.
    fn step(&mut self) {
        self.core.tick(self.now_ns);
        while let Some(command) = self.core.command(self.now_ns) {
            match command {
                Command::Connect { attempt } => {
                    assert_eq!(attempt, self.connects);
                    self.connects += 1;
                    self.peer = Peer::default();
                    self.sent.clear();
                    self.core.connected();
                }
                Command::Send(message) => self.sent.push(message.to_vec()),
                Command::Close => self.closed_by_client += 1,
            }
        }
    }

    /// Lets the model server answer until nothing is left to do now.
    fn run(&mut self) {
        loop {
            self.step();
            if self.sent.is_empty() {
                return;
            }
            self.answer();
        }
    }

    /// Lets the model server answer what was sent so far.
    fn answer(&mut self) {
        let mut replies = Vec::new();
        for message in self.sent.drain(..) {
            self.server.handle(&mut self.peer, &message, &mut replies);
        }
        for reply in replies {
            self.core.message(self.now_ns, &reply);
        }
    }

    /// Lets the model server take in what was sent, and loses the answers.
    fn answer_nothing(&mut self) {
        let mut lost = Vec::new();
        for message in self.sent.drain(..) {
            self.server.handle(&mut self.peer, &message, &mut lost);
        }
    }

    fn cut(&mut self) {
        self.sent.clear();
        self.core.closed(self.now_ns, Setback::Closed(CloseReason::PeerClosed));
    }

    fn pass(&mut self, ms: u64) {
        self.now_ns += ms * MS;
    }

    fn submit(&mut self, operation: &Operation<'_>) -> Ticket {
        self.core.submit(self.now_ns, operation).unwrap()
    }

    fn completion(&mut self) -> Completion {
        self.core.completion().expect("something is complete")
    }

    fn reply(&mut self, id: RequestId, reply: &Reply<'_>) {
        let mut message = Vec::new();
        reply.encode(&ReplyHeader { id, ..ReplyHeader::default() }, &mut message).unwrap();
        self.core.message(self.now_ns, &message);
    }

    fn refuse(&mut self, id: RequestId, reason: Refusal) {
        self.core.message(self.now_ns, &refusal(id, reason));
    }

    /// Kinds and ids of what was sent.
    fn requests(&self) -> Vec<(RequestKind, RequestId)> {
        let decode = |message: &Vec<u8>| {
            let (header, request) = Request::decode(message).unwrap();
            (request.kind(), header.id)
        };
        self.sent.iter().map(decode).collect()
    }

    fn kinds(&self) -> Vec<RequestKind> {
        self.requests().into_iter().map(|(kind, _)| kind).collect()
    }

    /// Session, number and floor of the only put that was sent.
    fn put_name(&self) -> (u64, u64, u64) {
        let names: Vec<_> = self
            .sent
            .iter()
            .filter_map(|message| match Request::decode(message).unwrap().1 {
                Request::Put(put) => Some((put.name.session.0, put.name.number.0, put.name.floor.0)),
                _ => None,
            })
            .collect();
        assert_eq!(names.len(), 1, "{:?}", self.kinds());
        names[0]
    }
}

fn options() -> ClientOptions {
    ClientOptions::default()
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Put { key, value, condition: Condition::Always }
}

fn get(key: &[u8]) -> Operation<'_> {
    Operation::Get { key }
}

fn version(csn: u64) -> Version {
    Version { csn: Csn(csn), ..Version::default() }
}

fn fate(completion: &Completion) -> Option<Fate> {
    completion.outcome.as_ref().err().map(ClientError::fate)
}

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
fn replies_out_of_order_reach_their_operations() {
    let mut rig = Rig::up(options(), false);
    let tickets: Vec<Ticket> = (0..3u8).map(|key| rig.submit(&get(&[key]))).collect();
    rig.step();
    let ids: Vec<RequestId> = rig.requests().into_iter().map(|(_, id)| id).collect();
    for index in [2, 0, 1] {
        let csn = index as u64 + 10;
        rig.reply(ids[index], &Reply::Value { version: version(csn), value: b"v" });
        let completion = rig.completion();
        assert_eq!(completion.ticket, tickets[index]);
        let Ok(Output::Value(Some(Item { version, .. }))) = completion.outcome else { panic!() };
        assert_eq!(version.csn.0, csn);
    }
}

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
    assert_eq!(rig.put_name(), (1, 5, 4), "2 and 3 are settled");
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
            Err(ClientError::Unknown { last: Some(Setback::Refused(Refusal::SessionUnknown)), .. })
        ),
        "{completion:?}"
    );
    rig.submit(&put(b"key", b"next"));
    rig.run();
    assert!(rig.completion().outcome.is_ok(), "the next write has a new session");
}

#[test]
fn deadline_without_a_connection_means_not_done() {
    let mut rig = Rig::new(options());
    rig.submit(&put(b"key", b"value"));
    rig.core.tick(rig.now_ns);
    for _ in 0..100 {
        if let Some(Command::Connect { .. }) = rig.core.command(rig.now_ns) {
            rig.core.closed(rig.now_ns, Setback::Closed(CloseReason::HandshakeTimeout));
        }
        rig.now_ns = rig.core.due_ns().unwrap();
        rig.core.tick(rig.now_ns);
    }
    let completion = rig.completion();
    let Err(ClientError::Deadline { waited_ms, last }) = completion.outcome else { panic!("{completion:?}") };
    assert_eq!((waited_ms, completion.elapsed_ns), (5_000, 5_000 * MS));
    assert_eq!(last, Some(Setback::Closed(CloseReason::HandshakeTimeout)), "why it could not be sent");
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
fn window_and_queue_are_bounded() {
    let mut rig = Rig::new(ClientOptions { in_flight_max: 4, queue_max: 3, ..options() });
    rig.server.limits = Limits { in_flight_max: 2, ..LIMITS };
    rig.run();
    for _ in 0..7 {
        rig.submit(&get(b"key"));
    }
    assert!(matches!(rig.core.submit(rig.now_ns, &get(b"key")), Err(ClientError::QueueFull { max: 7 })));
    rig.step();
    assert_eq!(rig.sent.len(), 2, "the server's limit holds too");
    rig.run();
    assert_eq!(rig.core.completions(), 7);
    assert!(rig.core.submit(rig.now_ns, &get(b"key")).is_err(), "completions must be taken");
    while rig.core.completion().is_some() {}
    rig.submit(&get(b"key"));
}

#[test]
fn full_connection_gets_the_same_message_again_once_it_is_writable() {
    let mut rig = Rig::up(options(), false);
    rig.submit(&get(b"a"));
    rig.submit(&get(b"b"));
    let Some(Command::Send(first)) = rig.core.command(rig.now_ns) else { panic!() };
    let first = first.to_vec();
    rig.core.not_taken();
    assert_eq!(rig.core.command(rig.now_ns), None);
    rig.core.writable();
    rig.step();
    assert_eq!(rig.sent.len(), 2);
    assert_eq!(rig.sent[0], first);
    rig.run();
    assert_eq!(rig.core.completions(), 2);
}

#[test]
fn message_not_taken_by_a_lost_connection_does_not_open_the_next() {
    let mut rig = Rig::up(options(), false);
    rig.submit(&get(b"a"));
    assert!(matches!(rig.core.command(rig.now_ns), Some(Command::Send(_))));
    rig.core.not_taken();
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
    rig.now_ns = rig.core.due_ns().unwrap();
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::KeepAlive], "half the silence after the sign of life");
    rig.sent.clear();
    rig.now_ns = rig.core.due_ns().unwrap();
    rig.step();
    assert_eq!(rig.closed_by_client, 1);
    rig.pass(10);
    rig.run();
    assert!(matches!(rig.completion().outcome, Ok(Output::Written(_))), "in time on the next connection");
}

#[test]
fn check_may_take_longer_than_any_silence() {
    let mut rig = Rig::up(options(), false);
    rig.core.submit_until(rig.now_ns, &Operation::Check, rig.now_ns + 600_000 * MS).unwrap();
    rig.step();
    let id = rig.requests()[0].1;
    rig.sent.clear();
    rig.pass(500_000);
    rig.step();
    assert!(rig.sent.is_empty() && rig.closed_by_client == 0);
    rig.reply(id, &Reply::Checked(cell_protocol::CheckReport { entries: 3, ..Default::default() }));
    let Ok(Output::Checked(result)) = rig.completion().outcome else { panic!() };
    assert_eq!(result.report().entries, 3);
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
        rig.core.message(rig.now_ns, &nonsense(id)[which]);
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
    assert_eq!(rig.core.last_setback(), Some(Setback::NoHello { timeout_ms: 5_000 }));
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
fn large_values_stream_both_ways_and_operations_go_between() {
    let value: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    for server_credit in [0, 70_000, 10 << 20] {
        let mut rig = Rig::new(ClientOptions { stream_credit_bytes: 150_000, ..options() });
        rig.server.limits.stream_credit_bytes = server_credit;
        rig.run();
        rig.submit(&put(b"big", &value));
        rig.submit(&put(b"small", b"1"));
        rig.run();
        assert!(matches!(rig.completion().outcome, Ok(Output::Written(_))), "the small one is first");
        assert!(matches!(rig.completion().outcome, Ok(Output::Written(_))));
        rig.submit(&get(b"big"));
        rig.run();
        let Ok(Output::Value(Some(item))) = rig.completion().outcome else { panic!() };
        assert_eq!(item.value, value);
        assert_eq!(rig.peer.open_streams(), 0);
    }
}

#[test]
fn stream_cut_in_the_middle_begins_anew_under_the_same_name() {
    let value = vec![5; 1_000_000];
    let mut rig = Rig::up(options(), true);
    rig.submit(&put(b"big", &value));
    rig.step();
    rig.answer();
    rig.step();
    assert!(rig.kinds().contains(&RequestKind::Chunk));
    rig.answer_nothing();
    rig.cut();
    rig.pass(10);
    rig.run();
    assert!(matches!(rig.completion().outcome, Ok(Output::Written(_))));
    assert_eq!(rig.server.applied.last().unwrap().number, OperationNumber(2));
    rig.submit(&get(b"big"));
    rig.step();
    rig.answer();
    rig.cut();
    rig.pass(10);
    rig.run();
    assert!(matches!(rig.completion().outcome, Ok(Output::Value(Some(item))) if item.value == value));
}

#[test]
fn streams_beyond_the_servers_limit_wait_for_one_to_end() {
    let value = vec![5; 200_000];
    let mut rig = Rig::new(options());
    rig.server.limits.streams_max = 2;
    rig.run();
    for key in 0..5u8 {
        rig.submit(&put(&[key], &value));
    }
    rig.run();
    assert_eq!(rig.core.completions(), 5);
    while let Some(completion) = rig.core.completion() {
        assert!(completion.outcome.is_ok(), "none was refused: {completion:?}");
    }
    assert_eq!(rig.server.entries.len(), 5);
}

#[test]
fn stream_given_up_at_its_deadline_is_cancelled() {
    let value = vec![5; 1_000_000];
    let mut rig = Rig::up(ClientOptions { silence_ms: 60_000, ..options() }, true);
    rig.server.entries.insert(b"big".to_vec(), (version(3), value.clone()));
    rig.submit(&put(b"other", &value));
    rig.submit(&get(b"big"));
    rig.step();
    rig.answer();
    assert_eq!(rig.peer.open_streams(), 1, "the get's value fits the credit; the put waits for more chunks");
    rig.pass(5_000);
    rig.step();
    assert!(rig.kinds().contains(&RequestKind::Cancel), "{:?}", rig.kinds());
    rig.run();
    assert_eq!(rig.peer.open_streams(), 0);
}

#[test]
fn value_that_begins_after_its_get_was_given_up_is_cancelled() {
    let mut rig = Rig::up(ClientOptions { silence_ms: 60_000, ..options() }, false);
    rig.submit(&get(b"big"));
    rig.step();
    let id = rig.requests()[0].1;
    rig.sent.clear();
    rig.pass(5_000);
    rig.step();
    rig.completion();
    rig.reply(id, &Reply::ValueBegin(ValueBegin { version: version(1), value_len: 1 << 20, value_crc: 0 }));
    rig.step();
    assert_eq!(rig.requests(), [(RequestKind::Cancel, id)]);
}

#[test]
fn value_longer_than_the_server_permits_is_refused_before_it_is_sent() {
    let mut rig = Rig::up(options(), false);
    let value = vec![0; (16 << 20) + 1];
    assert!(matches!(
        rig.core.submit(rig.now_ns, &put(b"key", &value)),
        Err(ClientError::Refused(Refusal::ValueTooLarge { max, .. })) if max == 16 << 20
    ));
}

#[test]
fn multi_get_and_scan_are_kept_as_they_came() {
    let mut rig = Rig::up(options(), true);
    rig.submit(&Operation::MultiGet { keys: &[b"first", b"absent"] });
    rig.submit(&Operation::Scan(cell_protocol::Scan::default()));
    rig.submit(&Operation::Status);
    rig.run();
    let Ok(Output::Values(values)) = rig.completion().outcome else { panic!() };
    assert_eq!(values.iter().count(), 2);
    let Ok(Output::Page(page)) = rig.completion().outcome else { panic!() };
    assert_eq!(page.page().iter().next().unwrap().key, b"first");
    let Ok(Output::Status(status)) = rig.completion().outcome else { panic!() };
    assert_eq!(status.report().workers, 1);
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
