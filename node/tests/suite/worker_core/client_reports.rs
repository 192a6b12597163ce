//! What clients report is kept by connection, within bounds, and they are given what is set for them.

use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_node::{ClientSettings, Worker, WorkerIdentity, WorkerOptions};
use cell_protocol::{
    ClientCounts, ClientEstimates, ClientReport, Hello, PROTOCOL_VERSION, Reply, ReportPolicy,
    ReportTransport, ReportedReads, Request, RequestHeader,
};
use cell_recovery::Progress;
use cell_terms::{Incarnation, NodeId};

use crate::worker_core::world::OPTIONS;

const MS: u64 = 1_000_000;

fn worker(options: WorkerOptions) -> Worker {
    let identity = WorkerIdentity { node: NodeId(1), incarnation: Incarnation(1) };
    Worker::new(identity, options, Arc::new(Progress::new(0)), 0)
}

fn connection(number: u64) -> ConnectionId {
    ConnectionId::from_number(number)
}

fn send(worker: &mut Worker, to: u64, request: &Request<'_>) {
    let mut message = Vec::new();
    request.encode(RequestHeader::default(), &mut message).unwrap();
    worker.message(connection(to), &message);
}

fn connect(worker: &mut Worker, number: u64) {
    worker.accepted(connection(number));
    let version = PROTOCOL_VERSION;
    send(worker, number, &Request::Hello(Hello { version, name: "", token: b"", stream_credit_bytes: 0 }));
}

fn report(client: u64, server: u64) -> ClientReport<'static> {
    ClientReport {
        client,
        settings_revision: 0,
        interval_ns: 1_000 * MS,
        estimates: ClientEstimates { server_ns: 9 * client, ..ClientEstimates::default() },
        in_hand: 2,
        transport: ReportTransport::Tcp,
        policy: ReportPolicy::Paper,
        counts: ClientCounts { server, torn: 1, ..ClientCounts::default() },
        reported_reads: ReportedReads::default(),
        reads_elsewhere: 0,
        name: "tester",
    }
}

/// The replies that may leave now.
fn replies(worker: &mut Worker) -> Vec<Vec<u8>> {
    let replies = worker.release(MS, u64::MAX).iter().map(|(_, reply)| reply.to_vec()).collect();
    worker.replies_sent();
    replies
}

#[test]
fn reports_of_a_connection_add_up_and_go_with_it() {
    let mut worker = worker(OPTIONS);
    connect(&mut worker, 1);
    send(&mut worker, 1, &Request::Report(report(5, 10)));
    worker.advance(1_000 * MS);
    send(&mut worker, 1, &Request::Report(report(5, 20)));
    worker.advance(1_300 * MS);
    let clients = worker.snapshot().clients;
    assert_eq!(clients.len(), 1);
    let client = &clients[0];
    assert_eq!((client.client, &*client.name, client.age_ms), (5, "tester", 300));
    assert_eq!((client.reports, client.reported_ns, client.in_hand), (2, 2_000 * MS, 2));
    assert_eq!((client.counts.server, client.counts.torn, client.estimates.server_ns), (30, 2, 45));
    worker.closed(connection(1));
    let snapshot = worker.snapshot();
    assert!(snapshot.clients.is_empty());
    assert_eq!(
        (snapshot.client_totals.reports, snapshot.client_totals.counts.server),
        (2, 30),
        "totals stay"
    );
}

#[test]
fn silent_connection_is_forgotten_after_ten_seconds() {
    let mut worker = worker(OPTIONS);
    connect(&mut worker, 1);
    send(&mut worker, 1, &Request::Report(report(5, 10)));
    worker.tick(9_999 * MS, 0);
    assert_eq!(worker.snapshot().clients.len(), 1);
    worker.tick(10_000 * MS, 0);
    assert!(worker.snapshot().clients.is_empty());
}

#[test]
fn connections_beyond_the_bound_are_counted_and_not_kept() {
    let mut worker = worker(OPTIONS);
    for number in 1..=300 {
        connect(&mut worker, number);
        send(&mut worker, number, &Request::Report(report(number, 1)));
    }
    let snapshot = worker.snapshot();
    assert_eq!((snapshot.clients.len(), snapshot.client_totals.dropped), (256, 44));
    assert_eq!(snapshot.client_totals.counts.server, 300);
    worker.closed(connection(1));
    send(&mut worker, 300, &Request::Report(report(300, 1)));
    assert_eq!(worker.snapshot().clients.last().unwrap().client, 300, "there is room now");
}

#[test]
fn answer_has_the_values_only_if_the_client_has_another_revision() {
    let values = vec![("client_selector_policy".to_owned(), "paper".to_owned())];
    let settings = ClientSettings { revision: 4, values };
    let mut worker = worker(WorkerOptions { client_settings: Some(Arc::new(settings)), ..OPTIONS });
    connect(&mut worker, 1);
    replies(&mut worker);
    for (has, replied) in [(0, 1), (3, 1), (4, 0), (5, 1)] {
        send(&mut worker, 1, &Request::Report(ClientReport { settings_revision: has, ..report(1, 1) }));
        let replies = replies(&mut worker);
        let Reply::Reported(reply) = Reply::decode(&replies[0]).unwrap().1 else { panic!("{replies:?}") };
        assert_eq!((reply.settings_revision, reply.values.len()), (4, replied), "{has}");
    }
}
