//! What is reported of searches, when, and what the answer changes.

use cell_client::{ClientOptions, LinkId, Operation, Policy, ReportTransport, Search};
use cell_protocol::{
    ClientReport, ClientReportReply, Malformed, Refusal, Reply, ReportPolicy, Request, RequestId,
    RequestKind, SettingValues,
};

use crate::client_core::rig::*;

fn reporting() -> ClientOptions {
    ClientOptions { report_ms: 1_000, name: "tester".to_owned(), ..options() }
}

/// The only report that was sent.
fn report(rig: &Rig) -> (RequestId, ClientReport<'_>) {
    let reports = rig.sent.iter().filter_map(|message| match Request::decode(message).unwrap() {
        (header, Request::Report(report)) => Some((header.id, report)),
        _ => None,
    });
    let reports: Vec<_> = reports.collect();
    assert_eq!(reports.len(), 1, "{:?}", rig.kinds());
    reports[0]
}

fn reported<'a>(settings_revision: u64, values: &'a [(&'a str, &'a str)]) -> Reply<'a> {
    Reply::Reported(ClientReportReply { settings_revision, values: SettingValues::List(values) })
}

fn search(rig: &mut Rig, times: usize) {
    for _ in 0..times {
        rig.submit(&get(b"key"));
        rig.run();
        assert!(rig.completion().outcome.is_ok());
    }
}

#[test]
fn report_of_a_used_connection_has_the_counts_of_its_interval() {
    let mut rig = Rig::up(reporting(), false);
    rig.core.set_transport(LinkId::BOOTSTRAP, ReportTransport::Shm);
    search(&mut rig, 3);
    assert_eq!(rig.core.due_ns(), Some(1 + 1_000 * MS), "it is due, though nothing else is");
    rig.pass(1_000);
    rig.step();
    let (id, first) = report(&rig);
    let client = first.client;
    assert!(client != 0);
    assert_eq!(
        (first.name, first.transport, first.policy),
        ("tester", ReportTransport::Shm, ReportPolicy::Server)
    );
    assert_eq!((first.interval_ns, first.counts.server, first.counts.requests), (1_000 * MS, 3, 3));
    rig.sent.clear();
    rig.reply(id, &reported(0, &[]));

    search(&mut rig, 2);
    rig.pass(1_500);
    rig.step();
    let (id, second) = report(&rig);
    assert_eq!((second.client, second.counts.server), (client, 2), "since the first one");
    rig.sent.clear();
    rig.reply(id, &reported(0, &[]));
    rig.pass(5_000);
    rig.step();
    assert!(rig.sent.is_empty(), "nothing was done since");
    assert_eq!(rig.core.due_ns(), None);
}

#[test]
fn report_without_an_answer_is_not_repeated_and_costs_the_connection_nothing() {
    let mut rig = Rig::up(reporting(), false);
    search(&mut rig, 1);
    rig.pass(1_000);
    rig.step();
    report(&rig);
    rig.sent.clear();
    for _ in 0..10 {
        search(&mut rig, 1);
        rig.pass(1_000);
        rig.step();
        assert!(rig.sent.is_empty(), "{:?}", rig.kinds());
    }
    assert_eq!((rig.connects, rig.closed_by_client), (1, 0));
    // On a new connection all begins anew.
    rig.cut();
    rig.pass(1_000);
    search(&mut rig, 1);
    rig.pass(1_000);
    rig.step();
    assert_eq!(report(&rig).1.counts.server, 1);
}

#[test]
fn answer_to_a_report_is_no_sign_of_life() {
    let options = ClientOptions { silence_ms: 3_000, deadline_ms: 60_000, ..reporting() };
    let mut rig = Rig::up(options, false);
    rig.submit(&get(b"key"));
    rig.step();
    rig.sent.clear(); // the server passes it over
    for _ in 0..4 {
        rig.pass(900);
        rig.step();
        for (kind, id) in rig.requests() {
            if kind == RequestKind::Report {
                rig.reply(id, &reported(0, &[]));
            }
        }
        rig.sent.clear();
    }
    assert_eq!(rig.closed_by_client, 1);
}

#[test]
fn server_that_does_not_know_reports_is_asked_once_a_connection() {
    let mut rig = Rig::up(reporting(), false);
    search(&mut rig, 1);
    rig.pass(1_000);
    rig.step();
    let (id, _) = report(&rig);
    rig.sent.clear();
    rig.refuse(id, Refusal::Malformed { what: Malformed::Kind });
    for _ in 0..3 {
        search(&mut rig, 1);
        rig.pass(1_000);
        rig.step();
        assert!(rig.sent.is_empty());
    }
    assert_eq!(rig.connects, 1);
}

#[test]
fn settings_of_an_answer_are_taken_and_the_next_report_says_so() {
    let mut rig = Rig::up(ClientOptions { search: Search::Auto, ..reporting() }, false);
    let next = |rig: &mut Rig| {
        rig.submit(&Operation::Get { key: b"key" });
        rig.run();
        while rig.core.completion().is_some() {}
        rig.pass(1_000);
        rig.step();
        let (id, it) = report(rig);
        let seen = (id, it.settings_revision, it.policy);
        rig.sent.retain(|message| Request::decode(message).unwrap().0.id != id);
        rig.answer(); // the questions for registrations
        seen
    };
    let (id, revision, policy) = next(&mut rig);
    assert_eq!((revision, policy), (0, ReportPolicy::Adaptive));
    let long = "9".repeat(4_000);
    let values = [
        ("client_selector_policy", Policy::Paper.name()),
        ("weather", "fine"),
        ("client_selector_reads", &*long),
    ];
    rig.reply(id, &reported(7, &values));
    let (id, revision, policy) = next(&mut rig);
    assert_eq!((revision, policy), (7, ReportPolicy::Paper));
    rig.reply(id, &reported(6, &[]));
    let (id, revision, policy) = next(&mut rig);
    assert_eq!((revision, policy), (7, ReportPolicy::Paper), "a node that has not heard yet");
    rig.reply(id, &reported(8, &[]));
    let (_, revision, policy) = next(&mut rig);
    assert_eq!((revision, policy), (8, ReportPolicy::Adaptive), "as it was started");
}
