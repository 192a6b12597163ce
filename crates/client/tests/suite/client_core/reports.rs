//! What is reported of searches, when, and what the answer changes.

use cell_client::{ClientOptions, LinkId, Operation, Policy, ReportTransport, Search};
use cell_protocol::{
    ClientReport, ClientReportReply, Malformed, Refusal, Reply, ReportPolicy, Request, RequestId,
    RequestKind, SettingValues,
};

use crate::client_core::core_harness::*;

fn reporting() -> ClientOptions {
    ClientOptions { report_ms: 1_000, name: "tester".to_owned(), ..options() }
}

/// The only report that was sent.
fn report(harness: &CoreHarness) -> (RequestId, ClientReport<'_>) {
    let reports = harness.sent.iter().filter_map(|message| match Request::decode(message).unwrap() {
        (header, Request::Report(report)) => Some((header.id, report)),
        _ => None,
    });
    let reports: Vec<_> = reports.collect();
    assert_eq!(reports.len(), 1, "{:?}", harness.kinds());
    reports[0]
}

fn reported<'a>(settings_revision: u64, values: &'a [(&'a str, &'a str)]) -> Reply<'a> {
    Reply::Reported(ClientReportReply { settings_revision, values: SettingValues::List(values) })
}

fn search(harness: &mut CoreHarness, times: usize) {
    for _ in 0..times {
        harness.submit(&get(b"key"));
        harness.run();
        assert!(harness.completion().outcome.is_ok());
    }
}

#[test]
fn report_of_a_used_connection_has_the_counts_of_its_interval() {
    let mut harness = CoreHarness::up(reporting(), false);
    harness.core.set_transport(LinkId::BOOTSTRAP, ReportTransport::Shm);
    search(&mut harness, 3);
    assert_eq!(harness.core.due_ns(), Some(1 + 1_000 * MS), "it is due, though nothing else is");
    harness.pass(1_000);
    harness.step();
    let (id, first) = report(&harness);
    let client = first.client;
    assert!(client != 0);
    assert_eq!(
        (first.name, first.transport, first.policy),
        ("tester", ReportTransport::Shm, ReportPolicy::Server)
    );
    assert_eq!((first.interval_ns, first.counts.server, first.counts.requests), (1_000 * MS, 3, 3));
    harness.sent.clear();
    harness.reply(id, &reported(0, &[]));

    search(&mut harness, 2);
    harness.pass(1_500);
    harness.step();
    let (id, second) = report(&harness);
    assert_eq!((second.client, second.counts.server), (client, 2), "since the first one");
    harness.sent.clear();
    harness.reply(id, &reported(0, &[]));
    harness.pass(5_000);
    harness.step();
    assert!(harness.sent.is_empty(), "nothing was done since");
    assert_eq!(harness.core.due_ns(), None);
}

#[test]
fn report_without_an_answer_is_not_repeated_and_costs_the_connection_nothing() {
    let mut harness = CoreHarness::up(reporting(), false);
    search(&mut harness, 1);
    harness.pass(1_000);
    harness.step();
    report(&harness);
    harness.sent.clear();
    for _ in 0..10 {
        search(&mut harness, 1);
        harness.pass(1_000);
        harness.step();
        assert!(harness.sent.is_empty(), "{:?}", harness.kinds());
    }
    assert_eq!((harness.connects, harness.closed_by_client), (1, 0));
    // On a new connection all begins anew.
    harness.cut();
    harness.pass(1_000);
    search(&mut harness, 1);
    harness.pass(1_000);
    harness.step();
    assert_eq!(report(&harness).1.counts.server, 1);
}

#[test]
fn answer_to_a_report_is_no_sign_of_life() {
    let options = ClientOptions { silence_ms: 3_000, deadline_ms: 60_000, ..reporting() };
    let mut harness = CoreHarness::up(options, false);
    harness.submit(&get(b"key"));
    harness.step();
    harness.sent.clear(); // the server passes it over
    for _ in 0..4 {
        harness.pass(900);
        harness.step();
        for (kind, id) in harness.requests() {
            if kind == RequestKind::Report {
                harness.reply(id, &reported(0, &[]));
            }
        }
        harness.sent.clear();
    }
    assert_eq!(harness.closed_by_client, 1);
}

#[test]
fn server_that_does_not_know_reports_is_asked_once_a_connection() {
    let mut harness = CoreHarness::up(reporting(), false);
    search(&mut harness, 1);
    harness.pass(1_000);
    harness.step();
    let (id, _) = report(&harness);
    harness.sent.clear();
    harness.refuse(id, Refusal::Malformed { what: Malformed::Kind });
    for _ in 0..3 {
        search(&mut harness, 1);
        harness.pass(1_000);
        harness.step();
        assert!(harness.sent.is_empty());
    }
    assert_eq!(harness.connects, 1);
}

#[test]
fn settings_of_an_answer_are_taken_and_the_next_report_says_so() {
    let mut harness = CoreHarness::up(ClientOptions { search: Search::Auto, ..reporting() }, false);
    let next = |harness: &mut CoreHarness| {
        harness.submit(&Operation::Get { key: b"key" });
        harness.run();
        while harness.core.completion().is_some() {}
        harness.pass(1_000);
        harness.step();
        let (id, it) = report(harness);
        let seen = (id, it.settings_revision, it.policy);
        harness.sent.retain(|message| Request::decode(message).unwrap().0.id != id);
        harness.answer(); // the questions for registrations
        seen
    };
    let (id, revision, policy) = next(&mut harness);
    assert_eq!((revision, policy), (0, ReportPolicy::Adaptive));
    let long = "9".repeat(4_000);
    let values = [
        ("client_selector_policy", Policy::Paper.name()),
        ("weather", "fine"),
        ("client_selector_reads", &*long),
    ];
    harness.reply(id, &reported(7, &values));
    let (id, revision, policy) = next(&mut harness);
    assert_eq!((revision, policy), (7, ReportPolicy::Paper));
    harness.reply(id, &reported(6, &[]));
    let (id, revision, policy) = next(&mut harness);
    assert_eq!((revision, policy), (7, ReportPolicy::Paper), "a node that does not know yet");
    harness.reply(id, &reported(8, &[]));
    let (_, revision, policy) = next(&mut harness);
    assert_eq!((revision, policy), (8, ReportPolicy::Adaptive), "as it was started");
}
