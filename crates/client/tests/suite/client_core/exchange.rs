//! What is asked is answered: replies find their operations, windows are bounded.

use crate::model::LIMITS;
use cell_client::{ClientError, ClientOptions, Item, Operation, Output, Ticket};
use cell_protocol::{Limits, Reply, RequestId};

use crate::client_core::rig::*;

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
fn multi_get_and_scan_are_kept_as_they_came() {
    let mut rig = Rig::up(options(), true);
    rig.submit(&Operation::MultiGet { keys: &[b"first", b"absent"] });
    rig.submit(&Operation::Scan(cell_protocol::Scan::default()));
    rig.submit(&Operation::Status);
    rig.run();
    let Ok(Output::Values(values)) = rig.completion().outcome else { panic!() };
    assert_eq!(values.iter().count(), 2);
    let Ok(Output::Page(page)) = rig.completion().outcome else { panic!() };
    assert_eq!(page.iter().next().unwrap().key, b"first");
    let Ok(Output::Status(status)) = rig.completion().outcome else { panic!() };
    assert_eq!(status.report().workers, 1);
}
