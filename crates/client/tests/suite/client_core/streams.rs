//! Large values, both ways.

use cell_client::{ClientError, ClientOptions, Output};
use cell_protocol::{Refusal, Reply, RequestKind, ValueBegin};
use cell_terms::OperationNumber;

use crate::client_core::rig::*;

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
