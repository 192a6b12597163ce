//! What is asked is answered: replies find their operations, windows are bounded.

use crate::model::LIMITS;
use cell_client::{ClientError, ClientOptions, Item, Operation, Output, Ticket};
use cell_protocol::{Limits, Reply, RequestId};
use cell_terms::PairId;

use crate::client_core::core_harness::*;

#[test]
fn replies_out_of_order_reach_their_operations() {
    let mut harness = CoreHarness::up(options(), false);
    let tickets: Vec<Ticket> = (0..3u8).map(|key| harness.submit(&get(&[key]))).collect();
    harness.step();
    let ids: Vec<RequestId> = harness.requests().into_iter().map(|(_, id)| id).collect();
    for index in [2, 0, 1] {
        let csn = index as u64 + 10;
        harness.reply(ids[index], &Reply::Value { version: version(csn), value: b"v" });
        let completion = harness.completion();
        assert_eq!(completion.ticket, tickets[index]);
        let Ok(Output::Value(Some(Item { version, .. }))) = completion.outcome else { panic!() };
        assert_eq!(version.csn.0, csn);
    }
}

#[test]
fn window_and_queue_are_bounded() {
    let mut harness = CoreHarness::new(ClientOptions { in_flight_max: 4, queue_max: 3, ..options() });
    harness.server.limits = Limits { in_flight_max: 2, ..LIMITS };
    harness.run();
    for _ in 0..7 {
        harness.submit(&get(b"key"));
    }
    assert!(matches!(
        harness.core.submit(harness.now_ns, &get(b"key")),
        Err(ClientError::QueueFull { max: 7 })
    ));
    harness.step();
    assert_eq!(harness.sent.len(), 2, "the server's limit holds too");
    harness.run();
    assert_eq!(harness.core.completions(), 7);
    assert!(harness.core.submit(harness.now_ns, &get(b"key")).is_err(), "completions must be taken");
    while harness.core.completion().is_some() {}
    harness.submit(&get(b"key"));
}

#[test]
fn multi_get_and_scan_are_kept_as_they_came() {
    let mut harness = CoreHarness::up(options(), true);
    harness.submit(&Operation::MultiGet { keys: &[b"first", b"absent"] });
    harness.submit(&Operation::Scan(cell_protocol::Scan::default()));
    harness.submit(&Operation::Status);
    harness.run();
    let Ok(Output::Values(values)) = harness.completion().outcome else { panic!() };
    assert_eq!(values.iter().count(), 2);
    let Ok(Output::Page(page)) = harness.completion().outcome else { panic!() };
    assert_eq!(page.iter().next().unwrap().key, b"first");
    assert_eq!(page.pair(), Some(PairId(1)), "who has answered it");
    let Ok(Output::Status(status)) = harness.completion().outcome else { panic!() };
    assert_eq!(status.report().workers, 1);
}
