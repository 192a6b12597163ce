//! A pair leaves its node, which lives: what trust is about, and what becomes of what was read.

use cell_client::{Operation, Output};

use crate::onesided::answers::{key, value};
use crate::onesided::nodes::TwoNodeHarness;
use crate::onesided::read_harness::MS;

/// A pair leaves its node, which lives and is trusted for the pairs that it has: by its list of
/// registrations, not by the connection.
pub(crate) fn trust_is_about_the_list_of_registrations_that_is_known() {
    let mut harness = TwoNodeHarness::with_owners([0, 0]);
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    harness.now_ns += 20_000 * MS; // trust was granted for less
    harness.lists[0] += 1;
    harness.registrations_held[0] = true;
    assert_eq!(harness.try_get(&key(150), 50), None, "by a list that is not known");
}

#[test]
fn trust_in_another_list_of_registrations_is_none() {
    trust_is_about_the_list_of_registrations_that_is_known();
}

/// What an operation has read waits for trust while its pair leaves, is changed elsewhere, and comes back.
pub(crate) fn read_under_a_registration_that_left_counts_no_more() {
    let mut harness = TwoNodeHarness::new();
    assert_eq!(harness.get(&key(150)), Some(value(150)));
    harness.lease_us[1] = 0;
    harness.now_ns += 20_000 * MS;
    let deadline_ns = harness.now_ns + 50 * MS;
    harness.core.submit_until(harness.now_ns, &Operation::Get { key: &key(150) }, deadline_ns).unwrap();
    harness.run();
    assert!(harness.posted.is_empty() && harness.is_spared(), "it is read, and waits for trust");
    harness.owner.put(&key(150), b"changed elsewhere");
    harness.register_anew(1);
    harness.lease_us[1] = 10_000_000;
    let outcome = harness.wait(60).expect("at its deadline").outcome;
    assert!(outcome.is_err(), "{outcome:?} is what the entry was before");
    assert_eq!(harness.get(&key(150)), Some(b"changed elsewhere".to_vec()));
}

#[test]
fn read_under_a_registration_that_left_is_not_returned() {
    read_under_a_registration_that_left_counts_no_more();
}

/// All that is cached of the other pairs stays, and what is under way there goes on.
#[test]
fn pair_that_leaves_and_comes_back_does_not_disturb_reads_of_the_others() {
    let mut harness = TwoNodeHarness::with_owners([0, 0]);
    for number in [3, 150] {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
    }
    for round in 0..10 {
        harness.register_anew(1);
        // Beside a read of the other pair.
        harness.reads_held = true;
        harness.core.submit(harness.now_ns, &Operation::Get { key: &key(3) }).unwrap();
        harness.run();
        harness.now_ns += 30 * MS;
        harness.reads_held = false;
        let Output::Value(Some(item)) = harness.wait(100).unwrap().outcome.unwrap() else { panic!() };
        assert_eq!(item.value, value(3));
        let before = harness.core.one_sided_counters().unwrap().reads;
        assert_eq!(harness.get(&key(3)), Some(value(3)));
        let reads = harness.core.one_sided_counters().unwrap().reads - before;
        assert!(reads <= 3, "leaf, extent, perhaps a header: {reads}");
        assert!(harness.is_spared(), "{:?}", harness.asked);
        harness.try_get(&key(150), 50); // by whatever path
        harness.asked = [Vec::new(), Vec::new()];
        assert_eq!(harness.get(&key(150)), Some(value(150)), "round {round}");
        assert!(harness.is_spared(), "one-sided again: {:?}", harness.asked);
    }
}
