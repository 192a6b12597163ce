//! Large values, both ways.

use cell_client::{ClientError, ClientOptions, Output};
use cell_protocol::{Refusal, Reply, RequestKind, ValueBegin};
use cell_terms::OperationNumber;

use crate::client_core::core_harness::*;

#[test]
fn large_values_stream_both_ways_and_operations_go_between() {
    let value: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    for server_credit in [0, 70_000, 10 << 20] {
        let mut harness = CoreHarness::new(ClientOptions { stream_credit_bytes: 150_000, ..options() });
        harness.server.limits.stream_credit_bytes = server_credit;
        harness.run();
        harness.submit(&put(b"big", &value));
        harness.submit(&put(b"small", b"1"));
        harness.run();
        assert!(matches!(harness.completion().outcome, Ok(Output::Written(_))), "the small one is first");
        assert!(matches!(harness.completion().outcome, Ok(Output::Written(_))));
        harness.submit(&get(b"big"));
        harness.run();
        let Ok(Output::Value(Some(item))) = harness.completion().outcome else { panic!() };
        assert_eq!(item.value, value);
        assert_eq!(harness.peer.open_streams(), 0);
    }
}

#[test]
fn stream_cut_in_the_middle_begins_anew_under_the_same_name() {
    let value = vec![5; 1_000_000];
    let mut harness = CoreHarness::up(options(), true);
    harness.submit(&put(b"big", &value));
    harness.step();
    harness.answer();
    harness.step();
    assert!(harness.kinds().contains(&RequestKind::Chunk));
    harness.answer_nothing();
    harness.cut();
    harness.pass(10);
    harness.run();
    assert!(matches!(harness.completion().outcome, Ok(Output::Written(_))));
    assert_eq!(harness.server.applied.last().unwrap().number, OperationNumber(2));
    harness.submit(&get(b"big"));
    harness.step();
    harness.answer();
    harness.cut();
    harness.pass(10);
    harness.run();
    assert!(matches!(harness.completion().outcome, Ok(Output::Value(Some(item))) if item.value == value));
}

#[test]
fn streams_beyond_the_servers_limit_wait_for_one_to_end() {
    let value = vec![5; 200_000];
    let mut harness = CoreHarness::new(options());
    harness.server.limits.streams_max = 2;
    harness.run();
    for key in 0..5u8 {
        harness.submit(&put(&[key], &value));
    }
    harness.run();
    assert_eq!(harness.core.completions(), 5);
    while let Some(completion) = harness.core.completion() {
        assert!(completion.outcome.is_ok(), "none was refused: {completion:?}");
    }
    assert_eq!(harness.server.entries.len(), 5);
}

#[test]
fn stream_given_up_at_its_deadline_is_cancelled() {
    let value = vec![5; 1_000_000];
    let options = ClientOptions { silence_ms: 60_000, deadline_ms: 5_000, ..options() };
    let mut harness = CoreHarness::up(options, true);
    harness.server.entries.insert(b"big".to_vec(), (version(3), value.clone()));
    harness.submit(&put(b"other", &value));
    harness.submit(&get(b"big"));
    harness.step();
    harness.answer();
    assert_eq!(
        harness.peer.open_streams(),
        1,
        "the get's value fits the credit; the put waits for more chunks"
    );
    harness.pass(5_000);
    harness.step();
    assert!(harness.kinds().contains(&RequestKind::Cancel), "{:?}", harness.kinds());
    harness.run();
    assert_eq!(harness.peer.open_streams(), 0);
}

#[test]
fn value_that_begins_after_its_get_was_given_up_is_cancelled() {
    let options = ClientOptions { silence_ms: 60_000, deadline_ms: 5_000, ..options() };
    let mut harness = CoreHarness::up(options, false);
    harness.submit(&get(b"big"));
    harness.step();
    let id = harness.requests()[0].1;
    harness.sent.clear();
    harness.pass(5_000);
    harness.step();
    harness.completion();
    harness
        .reply(id, &Reply::ValueBegin(ValueBegin { version: version(1), value_len: 1 << 20, value_crc: 0 }));
    harness.step();
    assert_eq!(harness.requests(), [(RequestKind::Cancel, id)]);
}

#[test]
fn value_longer_than_the_server_permits_is_refused_before_it_is_sent() {
    let mut harness = CoreHarness::up(options(), false);
    let value = vec![0; (16 << 20) + 1];
    assert!(matches!(
        harness.core.submit(harness.now_ns, &put(b"key", &value)),
        Err(ClientError::Refused(Refusal::ValueTooLarge { max, .. })) if max == 16 << 20
    ));
}

/// The one that was to begin when the first ended was given up before it did, and the third never began.
#[test]
fn stream_that_waits_begins_also_when_the_one_before_it_is_given_up() {
    let value = vec![5; 200_000];
    let mut harness = CoreHarness::new(options());
    harness.server.limits.streams_max = 1;
    harness.run();
    let [first, second, third] = [1, 2, 3].map(|key: u8| harness.submit(&put(&[key], &value)));
    harness.step();
    harness.answer();
    harness.step();
    assert_eq!(harness.kinds(), [RequestKind::PutBegin], "the session is there, and one stream is open");
    harness.core.give_up(harness.now_ns, first);
    harness.core.give_up(harness.now_ns, second);
    harness.run();
    let completion = harness.completion();
    assert_eq!((completion.ticket, completion.outcome.is_ok()), (third, true));
    assert_eq!(harness.peer.open_streams(), 0);
}
