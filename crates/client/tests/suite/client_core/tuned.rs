//! What the cluster sends a running client takes effect in it: for what begins from then on.

use cell_client::{ClientError, ClientOptions, Operation, Output, Search};
use cell_protocol::{ClientReport, SettingValues};
use cell_protocol::{ClientReportReply, Refusal, Reply, ReportPolicy, Request, RequestId, RequestKind};

use crate::client_core::core_harness::*;

fn reporting() -> ClientOptions {
    ClientOptions { report_ms: 1_000, ..options() }
}

/// Takes the report out of what was sent.
fn take_report(harness: &mut CoreHarness) -> (RequestId, ReportPolicy) {
    let read = |message: &Vec<u8>| match Request::decode(message).unwrap() {
        (header, Request::Report(ClientReport { policy, .. })) => Some((header.id, policy)),
        _ => None,
    };
    let report = harness.sent.iter().find_map(read).expect("a report");
    harness.sent.retain(|message| read(message).is_none());
    report
}

/// Waits until a report is due, and answers it with values of the cluster.
pub(crate) fn tune(harness: &mut CoreHarness, settings_revision: u64, values: &[(&str, &str)]) {
    harness.submit(&get(b"key"));
    harness.run();
    harness.completion();
    harness.pass(1_000);
    harness.step();
    let (id, _) = take_report(harness);
    let values = SettingValues::List(values);
    harness.reply(id, &Reply::Reported(ClientReportReply { settings_revision, values }));
    harness.step();
}

fn tuned(values: &[(&str, &str)]) -> CoreHarness {
    let mut harness = CoreHarness::up(reporting(), false);
    tune(&mut harness, 1, values);
    harness
}

/// The id of the only get that was sent.
fn sent_get(harness: &CoreHarness) -> RequestId {
    let gets: Vec<_> = harness.requests().into_iter().filter(|(kind, _)| *kind == RequestKind::Get).collect();
    assert_eq!(gets.len(), 1, "{:?}", harness.kinds());
    gets[0].1
}

#[test]
fn deadline_counts_for_operations_that_begin_later() {
    let mut harness = CoreHarness::up(reporting(), false);
    harness.submit(&get(b"key"));
    harness.run();
    harness.completion();
    harness.pass(1_000);
    let early = harness.submit(&get(b"early"));
    harness.step();
    let (id, _) = take_report(&mut harness);
    let values = SettingValues::List(&[("client_deadline", "500 ms")]);
    harness.reply(id, &Reply::Reported(ClientReportReply { settings_revision: 1, values }));
    let late = harness.submit(&get(b"late"));
    harness.step();
    harness.pass(499);
    harness.step();
    assert_eq!(harness.core.completions(), 0);
    harness.pass(1);
    harness.step();
    let ended = harness.completion();
    assert_eq!(ended.ticket, late);
    assert!(matches!(ended.outcome, Err(ClientError::Deadline { waited_ms: 500, .. })), "{ended:?}");
    harness.run();
    assert_eq!(harness.completion().ticket, early, "it has the time that it began with");
}

#[test]
fn retries_are_counted_and_spaced_as_the_cluster_says() {
    let mut harness = tuned(&[("client_retry_shortest", "40 ms"), ("client_retry_longest", "40 ms")]);
    harness.submit(&get(b"key"));
    harness.step();
    harness.refuse(sent_get(&harness), Refusal::Busy);
    harness.sent.clear();
    harness.pass(19);
    harness.step();
    assert!(harness.sent.is_empty(), "half of the wait is the least");
    harness.pass(21);
    harness.step();
    let again = sent_get(&harness);
    harness.run();
    harness.completion();
    tune(&mut harness, 2, &[("client_retries_max", "0")]);
    harness.submit(&get(b"key"));
    harness.step();
    assert_ne!(sent_get(&harness), again);
    harness.refuse(sent_get(&harness), Refusal::Busy);
    assert!(matches!(harness.completion().outcome, Err(ClientError::Refused(Refusal::Busy))));
}

#[test]
fn window_and_queue_shrink_and_grow_again() {
    let mut harness = tuned(&[("client_in_flight_max", "1"), ("client_queue_max", "1")]);
    harness.submit(&get(b"one"));
    harness.submit(&get(b"two"));
    harness.step();
    sent_get(&harness);
    let full = harness.core.submit(harness.now_ns, &get(b"three"));
    assert!(matches!(full, Err(ClientError::QueueFull { max: 2 })), "{full:?}");
    harness.run();
    harness.completion();
    harness.completion();
    tune(&mut harness, 2, &[("client_queue_max", "1")]);
    harness.submit(&get(b"one"));
    harness.submit(&get(b"two"));
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::Get; 2], "the window is as it was");
}

#[test]
fn silence_and_connect_timeout_end_a_connection_sooner() {
    let mut harness = tuned(&[("client_silence", "200 ms"), ("client_connect_timeout", "100 ms")]);
    harness.submit(&get(b"key"));
    harness.step();
    harness.pass(100);
    harness.step();
    assert!(harness.kinds().contains(&RequestKind::KeepAlive), "{:?}", harness.kinds());
    assert_eq!(harness.closed_by_client, 0);
    harness.pass(100);
    harness.step();
    assert_eq!(harness.closed_by_client, 1);
    harness.pass(1_000);
    harness.step();
    assert_eq!((harness.kinds(), harness.closed_by_client), (vec![RequestKind::Hello], 1));
    harness.pass(100);
    harness.step();
    assert_eq!(harness.closed_by_client, 2, "no hello in time");
}

#[test]
fn stream_credit_is_that_of_the_hello_of_its_connection() {
    let value = vec![5; 300_000];
    let mut harness = CoreHarness::up(reporting(), true);
    harness.submit(&put(b"big", &value));
    harness.run();
    assert!(harness.completion().outcome.is_ok());
    tune(&mut harness, 1, &[("client_stream_credit_bytes", "10 MiB")]);
    let whole = |harness: &mut CoreHarness| {
        harness.submit(&get(b"big"));
        harness.run();
        let outcome = harness.completion().outcome;
        matches!(outcome, Ok(Output::Value(Some(item))) if item.value == value)
    };
    assert!(whole(&mut harness));
    harness.cut();
    harness.pass(1_000);
    harness.submit(&get(b"key"));
    harness.step();
    let hello = harness.sent.iter().find_map(|message| match Request::decode(message).unwrap().1 {
        Request::Hello(hello) => Some(hello.stream_credit_bytes),
        _ => None,
    });
    assert_eq!(hello, Some(10 << 20));
    harness.run();
    harness.completion();
    assert!(whole(&mut harness));
}

#[test]
fn options_that_the_user_decided_and_values_that_are_wrong_change_nothing() {
    let options = ClientOptions { deadline_ms: 60_000, own: vec!["client_retries_max"], ..reporting() };
    let mut harness = CoreHarness::up(options, false);
    let values = [
        ("client_deadline", "200 ms"),
        ("client_retries_max", "0"),
        ("client_silence", "soon"),
        ("client_queue_max", "0"),
        ("client_in_flight_max", "1"),
    ];
    tune(&mut harness, 1, &values);
    harness.submit(&get(b"key"));
    harness.step();
    harness.refuse(sent_get(&harness), Refusal::Busy);
    harness.pass(200);
    harness.step();
    assert_eq!(harness.core.completions(), 0, "it is tried again");
    assert!(matches!(
        harness.core.submit(harness.now_ns, &get(b"two")),
        Err(ClientError::QueueFull { max: 1 })
    ));
}

#[test]
fn report_interval_is_followed_and_never_ends() {
    let mut harness = tuned(&[("client_report_interval", "0")]);
    harness.submit(&get(b"key"));
    harness.run();
    harness.completion();
    assert_eq!(harness.core.due_ns(), Some(harness.now_ns + 5_000 * MS));
    harness.pass(5_000);
    harness.step();
    let (id, _) = take_report(&mut harness);
    let values = SettingValues::List(&[]);
    harness.reply(id, &Reply::Reported(ClientReportReply { settings_revision: 2, values }));
    harness.submit(&get(b"key"));
    harness.run();
    harness.completion();
    assert_eq!(harness.core.due_ns(), Some(harness.now_ns + 1_000 * MS), "as it was started");
}

#[test]
fn search_of_a_client_that_chooses_is_the_clusters() {
    let mut harness = CoreHarness::up(ClientOptions { search: Search::Auto, ..reporting() }, false);
    let mut revision = 0;
    let mut next = |values: &[(&str, &str)]| {
        harness.submit(&Operation::Get { key: b"key" });
        harness.run();
        while harness.core.completion().is_some() {}
        harness.pass(1_000);
        harness.step();
        let (id, policy) = take_report(&mut harness);
        harness.answer();
        revision += 1;
        let values = SettingValues::List(values);
        harness.reply(id, &Reply::Reported(ClientReportReply { settings_revision: revision, values }));
        policy
    };
    assert_eq!(next(&[("client_search", "server")]), ReportPolicy::Adaptive);
    assert_eq!(next(&[("client_search", "client")]), ReportPolicy::Server);
    assert_eq!(next(&[]), ReportPolicy::Client);
    assert_eq!(next(&[]), ReportPolicy::Adaptive);
}
