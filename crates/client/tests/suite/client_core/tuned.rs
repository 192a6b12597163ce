//! What the cluster tells a running client takes effect in it: for what begins from then on.

use cell_client::{ClientError, ClientOptions, Operation, Output, Search};
use cell_protocol::{ClientReport, SettingValues};
use cell_protocol::{ClientReportReply, Refusal, Reply, ReportPolicy, Request, RequestId, RequestKind};

use crate::client_core::rig::*;

fn reporting() -> ClientOptions {
    ClientOptions { report_ms: 1_000, ..options() }
}

/// Takes the report out of what was sent.
fn take_report(rig: &mut Rig) -> (RequestId, ReportPolicy) {
    let read = |message: &Vec<u8>| match Request::decode(message).unwrap() {
        (header, Request::Report(ClientReport { policy, .. })) => Some((header.id, policy)),
        _ => None,
    };
    let report = rig.sent.iter().find_map(read).expect("a report");
    rig.sent.retain(|message| read(message).is_none());
    report
}

/// Waits until a report is due, and answers it with values of the cluster.
fn tune(rig: &mut Rig, settings_revision: u64, values: &[(&str, &str)]) {
    rig.submit(&get(b"key"));
    rig.run();
    rig.completion();
    rig.pass(1_000);
    rig.step();
    let (id, _) = take_report(rig);
    let values = SettingValues::List(values);
    rig.reply(id, &Reply::Reported(ClientReportReply { settings_revision, values }));
    rig.step();
}

fn tuned(values: &[(&str, &str)]) -> Rig {
    let mut rig = Rig::up(reporting(), false);
    tune(&mut rig, 1, values);
    rig
}

/// The id of the only get that was sent.
fn sent_get(rig: &Rig) -> RequestId {
    let gets: Vec<_> = rig.requests().into_iter().filter(|(kind, _)| *kind == RequestKind::Get).collect();
    assert_eq!(gets.len(), 1, "{:?}", rig.kinds());
    gets[0].1
}

#[test]
fn deadline_counts_for_operations_that_begin_later() {
    let mut rig = Rig::up(reporting(), false);
    rig.submit(&get(b"key"));
    rig.run();
    rig.completion();
    rig.pass(1_000);
    let early = rig.submit(&get(b"early"));
    rig.step();
    let (id, _) = take_report(&mut rig);
    let values = SettingValues::List(&[("client_deadline", "500 ms")]);
    rig.reply(id, &Reply::Reported(ClientReportReply { settings_revision: 1, values }));
    let late = rig.submit(&get(b"late"));
    rig.step();
    rig.pass(499);
    rig.step();
    assert_eq!(rig.core.completions(), 0);
    rig.pass(1);
    rig.step();
    let ended = rig.completion();
    assert_eq!(ended.ticket, late);
    assert!(matches!(ended.outcome, Err(ClientError::Deadline { waited_ms: 500, .. })), "{ended:?}");
    rig.run();
    assert_eq!(rig.completion().ticket, early, "it has the time that it began with");
}

#[test]
fn retries_are_counted_and_spaced_as_the_cluster_says() {
    let mut rig = tuned(&[("client_retry_shortest", "40 ms"), ("client_retry_longest", "40 ms")]);
    rig.submit(&get(b"key"));
    rig.step();
    rig.refuse(sent_get(&rig), Refusal::Busy);
    rig.sent.clear();
    rig.pass(19);
    rig.step();
    assert!(rig.sent.is_empty(), "half of the wait is the least");
    rig.pass(21);
    rig.step();
    let again = sent_get(&rig);
    rig.run();
    rig.completion();
    tune(&mut rig, 2, &[("client_retries_max", "0")]);
    rig.submit(&get(b"key"));
    rig.step();
    assert_ne!(sent_get(&rig), again);
    rig.refuse(sent_get(&rig), Refusal::Busy);
    assert!(matches!(rig.completion().outcome, Err(ClientError::Refused(Refusal::Busy))));
}

#[test]
fn window_and_queue_shrink_and_grow_again() {
    let mut rig = tuned(&[("client_in_flight_max", "1"), ("client_queue_max", "1")]);
    rig.submit(&get(b"one"));
    rig.submit(&get(b"two"));
    rig.step();
    sent_get(&rig);
    let full = rig.core.submit(rig.now_ns, &get(b"three"));
    assert!(matches!(full, Err(ClientError::QueueFull { max: 2 })), "{full:?}");
    rig.run();
    rig.completion();
    rig.completion();
    tune(&mut rig, 2, &[("client_queue_max", "1")]);
    rig.submit(&get(b"one"));
    rig.submit(&get(b"two"));
    rig.step();
    assert_eq!(rig.kinds(), [RequestKind::Get; 2], "the window is as it was");
}

#[test]
fn silence_and_connect_timeout_end_a_connection_sooner() {
    let mut rig = tuned(&[("client_silence", "100 ms"), ("client_connect_timeout", "50 ms")]);
    rig.submit(&get(b"key"));
    rig.step();
    rig.pass(50);
    rig.step();
    assert!(rig.kinds().contains(&RequestKind::KeepAlive), "{:?}", rig.kinds());
    assert_eq!(rig.closed_by_client, 0);
    rig.pass(50);
    rig.step();
    assert_eq!(rig.closed_by_client, 1);
    rig.pass(1_000);
    rig.step();
    assert_eq!((rig.kinds(), rig.closed_by_client), (vec![RequestKind::Hello], 1));
    rig.pass(50);
    rig.step();
    assert_eq!(rig.closed_by_client, 2, "no hello in time");
}

#[test]
fn stream_credit_is_that_of_the_hello_of_its_connection() {
    let value = vec![5; 300_000];
    let mut rig = Rig::up(reporting(), true);
    rig.submit(&put(b"big", &value));
    rig.run();
    assert!(rig.completion().outcome.is_ok());
    tune(&mut rig, 1, &[("client_stream_credit_bytes", "10 MiB")]);
    let whole = |rig: &mut Rig| {
        rig.submit(&get(b"big"));
        rig.run();
        let outcome = rig.completion().outcome;
        matches!(outcome, Ok(Output::Value(Some(item))) if item.value == value)
    };
    assert!(whole(&mut rig));
    rig.cut();
    rig.pass(1_000);
    rig.submit(&get(b"key"));
    rig.step();
    let hello = rig.sent.iter().find_map(|message| match Request::decode(message).unwrap().1 {
        Request::Hello(hello) => Some(hello.stream_credit_bytes),
        _ => None,
    });
    assert_eq!(hello, Some(10 << 20));
    rig.run();
    rig.completion();
    assert!(whole(&mut rig));
}

#[test]
fn options_that_the_user_decided_and_values_that_are_wrong_change_nothing() {
    let options = ClientOptions { deadline_ms: 60_000, own: vec!["client_retries_max"], ..reporting() };
    let mut rig = Rig::up(options, false);
    let values = [
        ("client_deadline", "10 ms"),
        ("client_retries_max", "0"),
        ("client_silence", "soon"),
        ("client_queue_max", "0"),
        ("client_in_flight_max", "1"),
    ];
    tune(&mut rig, 1, &values);
    rig.submit(&get(b"key"));
    rig.step();
    rig.refuse(sent_get(&rig), Refusal::Busy);
    rig.pass(100);
    rig.step();
    assert_eq!(rig.core.completions(), 0, "it is tried again");
    assert!(matches!(rig.core.submit(rig.now_ns, &get(b"two")), Err(ClientError::QueueFull { max: 1 })));
}

#[test]
fn report_interval_is_followed_and_never_ends() {
    let mut rig = tuned(&[("client_report_interval", "0")]);
    rig.submit(&get(b"key"));
    rig.run();
    rig.completion();
    assert_eq!(rig.core.due_ns(), Some(rig.now_ns + 5_000 * MS));
    rig.pass(5_000);
    rig.step();
    let (id, _) = take_report(&mut rig);
    let values = SettingValues::List(&[]);
    rig.reply(id, &Reply::Reported(ClientReportReply { settings_revision: 2, values }));
    rig.submit(&get(b"key"));
    rig.run();
    rig.completion();
    assert_eq!(rig.core.due_ns(), Some(rig.now_ns + 1_000 * MS), "as it was started");
}

#[test]
fn search_of_a_client_that_chooses_is_the_clusters() {
    let mut rig = Rig::up(ClientOptions { search: Search::Auto, ..reporting() }, false);
    let mut revision = 0;
    let mut next = |values: &[(&str, &str)]| {
        rig.submit(&Operation::Get { key: b"key" });
        rig.run();
        while rig.core.completion().is_some() {}
        rig.pass(1_000);
        rig.step();
        let (id, policy) = take_report(&mut rig);
        rig.answer();
        revision += 1;
        let values = SettingValues::List(values);
        rig.reply(id, &Reply::Reported(ClientReportReply { settings_revision: revision, values }));
        policy
    };
    assert_eq!(next(&[("client_search", "server")]), ReportPolicy::Adaptive);
    assert_eq!(next(&[("client_search", "client")]), ReportPolicy::Server);
    assert_eq!(next(&[]), ReportPolicy::Client);
    assert_eq!(next(&[]), ReportPolicy::Adaptive);
}
