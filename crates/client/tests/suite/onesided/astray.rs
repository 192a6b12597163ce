//! Ways that lead astray: torn copies, splits under way, stale parents, reused extents, unknown regions, lost
//! connections. Each costs a step, none an answer.

use cell_client::{AttemptError, LinkId, Operation, Output};
use cell_fabric::{CloseReason, ReadFailure, RemoteRead};
use cell_protocol::{Bound, Found, RequestKind, Scan};
use cell_terms::{ExtentOffset, Root};

use crate::onesided::answers::{filled, key, routed, routed_owner, value};
use crate::onesided::read_harness::{MS, ReadHarness, options};

fn is_node(harness: &ReadHarness, read: &RemoteRead) -> bool {
    read.key.0 == harness.owner.pairs[0].node_key() && read.length == 512
}

/// Answers reads, so many at most, each with what `spoil` makes of it, until the server is asked.
fn spoil_reads(harness: &mut ReadHarness, reads_max: usize, spoil: impl Fn(&RemoteRead, &mut [u64])) {
    for _ in 0..reads_max {
        harness.step();
        if !harness.asked.is_empty() {
            return;
        }
        let Some((read, tag)) = harness.posted.pop() else { continue };
        let mut words = harness.owner.read(&read).unwrap();
        spoil(&read, &mut words);
        harness.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&words));
    }
}

#[test]
fn torn_node_is_read_again() {
    let mut harness = filled(ReadHarness::new(), 5);
    harness.submit(&Operation::Get { key: &key(3) });
    harness.run_to(is_node);
    let (read, tag) = harness.posted.remove(0);
    let mut torn = harness.owner.read(&read).unwrap();
    let last = torn.len() - 1;
    torn[last] = torn[last].wrapping_add(2);
    harness.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&torn));
    harness.run_to(is_node);
    let (read, tag) = harness.posted.remove(0);
    let mut changing = harness.owner.read(&read).unwrap();
    changing[0] += 1;
    changing[last] += 1;
    harness.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&changing));
    harness.run();
    let Output::Value(Some(item)) = harness.core.completion().unwrap().outcome.unwrap() else { panic!() };
    assert_eq!((item.value, harness.counters().torn), (value(3), 2));
}

#[test]
fn node_that_is_always_torn_is_left_to_the_server() {
    let mut harness = filled(ReadHarness::new(), 5);
    harness.submit(&Operation::Get { key: &key(3) });
    spoil_reads(&mut harness, 1_000, |read, words| words[0] |= u64::from(read.length == 512));
    assert_eq!(harness.asked, [RequestKind::Get]);
    assert!(harness.counters().torn < 100, "a bounded number of times");
}

/// Cached parents know nothing of splits that came after them.
pub(crate) fn stale_parents_cost_a_step_aside() {
    let mut harness = filled(ReadHarness::new(), 200);
    for number in 0..200 {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
    }
    // Between any two, so that every leaf splits.
    for number in 0..200 {
        for letter in b'a'..b'e' {
            let mut between = key(number);
            between.push(letter);
            harness.owner.put(&between, b"between");
        }
    }
    for number in 0..200 {
        assert_eq!(harness.get(&key(number)), Some(value(number)), "{number}");
        let mut between = key(number);
        between.push(b'd');
        assert_eq!(harness.get(&between), Some(b"between".to_vec()), "{number}");
    }
    let counters = harness.counters();
    assert!(counters.right_link > 0 && counters.dropped > 0, "{counters:?}");
    assert_eq!((counters.fell_back, harness.asked.len()), (0, 0));
}

#[test]
fn stale_parents_of_splits_lead_right_and_are_dropped() {
    stale_parents_cost_a_step_aside();
}

#[test]
fn extent_reused_meanwhile_is_looked_for_again() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.submit(&Operation::Get { key: &key(7) });
    harness.run_to_extent();
    // Freed, and used again for another key, before the read is served.
    harness.owner.move_and_reuse(&key(7), b"the newer value", b"another", b"of another key");
    harness.run();
    let Output::Value(Some(item)) = harness.core.completion().unwrap().outcome.unwrap() else { panic!() };
    assert_eq!(item.value, b"the newer value");
    assert_eq!(harness.counters().crc, 1);
}

#[test]
fn scan_whose_extent_was_reused_is_left_to_the_server() {
    let mut harness = filled(ReadHarness::new(), 20);
    harness.submit(&Operation::Scan(cell_protocol::Scan::default()));
    harness.run_to_extent();
    harness.owner.move_and_reuse(&key(7), b"the newer value", b"another", b"of another key");
    harness.run();
    assert_eq!(harness.asked, [RequestKind::Scan]);
}

#[test]
fn right_link_into_another_pair_is_followed_before_the_router_knows() {
    let mut harness = routed();
    // The router does not know the last two meganodes.
    let first = harness.owner.root_of(0, 0);
    harness.owner.set_root(cell_terms::Root::leaf(first));
    harness.core.closed(LinkId::BOOTSTRAP, harness.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    harness.pass(1_000 * MS);
    for number in [5, 150, 250, 299] {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
    }
    assert!(harness.counters().right_link > 0);
    assert!(harness.asked.is_empty());
}

#[test]
fn region_that_is_not_known_yet_is_asked_for() {
    let mut harness = routed();
    harness.pairs_reported = 1;
    harness.core.closed(LinkId::BOOTSTRAP, harness.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    harness.pass(1_000 * MS);
    assert_eq!(harness.get(&key(5)), Some(value(5)));
    harness.submit(&Operation::Get { key: &key(250) });
    harness.run();
    assert_eq!(harness.asked, [RequestKind::Get], "for now the server is asked");
    harness.core.completion().unwrap();
    harness.pairs_reported = 2;
    harness.pass(30 * MS);
    harness.submit(&Operation::Get { key: &key(250) });
    harness.run();
    harness.core.completion().unwrap();
    assert_eq!(harness.get(&key(250)), Some(value(250)));
    let regions = harness.kinds.iter().filter(|kind| **kind == RequestKind::Regions).count();
    assert!(regions >= 3, "{:?}", harness.kinds);
    assert!(harness.asked.len() <= 2);
}

/// A stale pointer that led into a slot which is a router's by now: its root is a leaf over all keys, and
/// said of any key that there is no entry, which was returned.
pub(crate) fn router_is_not_taken_for_entries() {
    for (in_place, number) in [(false, 150), (false, 3), (true, 150)] {
        let mut harness = filled(ReadHarness::with(options(), routed_owner(), true), 300);
        if in_place {
            harness.owner.map();
            for number in [3, 150] {
                assert_eq!(harness.get(&key(number)), Some(value(number)), "by reads, which maps regions");
            }
        }
        let first = harness.owner.root_of(0, 0);
        let stale = harness.owner.add_router(1, 1, first);
        let root = harness.owner.add_router(0, 2, stale);
        harness.owner.set_root(Root::router(root));
        if !in_place {
            // The root is read anew.
            harness.core.closed(
                LinkId::BOOTSTRAP,
                harness.now_ns,
                AttemptError::Closed(CloseReason::PeerClosed),
            );
            harness.pass(1_000 * MS);
        }
        let before = harness.counters();
        harness.submit(&Operation::Get { key: &key(number) });
        harness.run();
        let outcome = harness.core.completion().unwrap().outcome;
        assert!(!matches!(outcome, Ok(Output::Value(None))), "{number}: there is an entry");
        assert_eq!(harness.counters().in_place, before.in_place);
    }
}

#[test]
fn router_at_a_stale_pointer_is_not_taken_for_entries() {
    router_is_not_taken_for_entries();
}

/// A scan by reads that comes to a router by such a pointer: the leaf of a router has entries, and they are
/// none of the store's.
pub(crate) fn router_is_not_scanned_for_entries() {
    let mut harness = routed();
    let first = harness.owner.root_of(0, 0);
    let stale = harness.owner.add_router(1, 1, first);
    let root = harness.owner.add_router(0, 2, stale);
    harness.owner.set_root(Root::router(root));
    harness.core.closed(LinkId::BOOTSTRAP, harness.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    harness.pass(1_000 * MS);
    let start = key(150);
    let scan = Scan { start: Bound::Included(&start), keys_only: true, ..Scan::default() };
    harness.submit(&Operation::Scan(scan));
    harness.run();
    let outcome = harness.core.completion().unwrap().outcome;
    assert!(outcome.is_err() && harness.asked == [RequestKind::Scan], "it is the server's: {outcome:?}");
}

#[test]
fn router_at_a_stale_pointer_is_not_scanned_for_entries() {
    router_is_not_scanned_for_entries();
}

#[test]
fn registration_that_has_ended_is_asked_for_anew() {
    let mut harness = filled(ReadHarness::new(), 20);
    assert_eq!(harness.get(&key(1)), Some(value(1)));
    harness.owner.pairs[0].registered = false;
    harness.submit(&Operation::Get { key: &key(1) });
    harness.step();
    harness.complete_one();
    harness.owner.pairs[0].registered = true;
    harness.run();
    assert_eq!((harness.asked.len(), harness.counters().key_unknown), (1, 1));
    harness.core.completion().unwrap();
    assert_eq!(harness.get(&key(2)), Some(value(2)), "one-sided again");
    assert_eq!(harness.asked.len(), 1);
}

#[test]
fn connection_lost_hands_everything_to_the_server_and_comes_back() {
    let mut harness = filled(ReadHarness::new(), 20);
    let tickets: Vec<_> =
        (0..5).map(|number| harness.submit(&Operation::Get { key: &key(number) })).collect();
    harness.step();
    let late = std::mem::take(&mut harness.posted);
    harness.core.closed(LinkId::BOOTSTRAP, harness.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    harness.pass(1_000 * MS);
    harness.run();
    assert_eq!(harness.asked.len(), tickets.len());
    // What comes for the old connection finds nobody.
    for (read, tag) in late {
        let words = harness.owner.read(&read).unwrap();
        harness.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&words));
    }
    while harness.core.completion().is_some() {}
    assert_eq!(harness.get(&key(3)), Some(value(3)));
    assert_eq!(harness.asked.len(), tickets.len());
}

#[test]
fn deadline_ends_an_operation_and_its_reads_come_to_nobody() {
    let mut harness = filled(ReadHarness::new(), 20);
    let deadline_ns = harness.now_ns + 10 * MS;
    harness.core.submit_until(harness.now_ns, &Operation::Get { key: &key(3) }, deadline_ns).unwrap();
    harness.step();
    assert!(!harness.posted.is_empty());
    harness.pass(11 * MS);
    harness.step();
    assert!(harness.core.completion().unwrap().outcome.is_err());
    harness.submit(&Operation::Get { key: &key(4) });
    harness.run();
    let Output::Value(Some(item)) = harness.core.completion().unwrap().outcome.unwrap() else { panic!() };
    assert_eq!(item.value, value(4));
    assert!(harness.core.completion().is_none());
}

#[test]
fn keys_that_no_tree_can_hold_are_left_to_the_server() {
    let mut harness = filled(ReadHarness::new(), 3);
    for key in [Vec::new(), vec![1; 77]] {
        harness.submit(&Operation::Get { key: &key });
        harness.run();
    }
    assert_eq!(harness.asked, [RequestKind::Get, RequestKind::Get]);
    assert_ne!(harness.owner.entry(&key(0)).unwrap().offset, ExtentOffset(0));
}

#[test]
fn reads_that_never_come_back_cost_the_connection_not_the_deadline() {
    let mut harness = filled(ReadHarness::new(), 20);
    let deadline_ns = harness.now_ns + 60_000 * MS;
    harness.core.submit_until(harness.now_ns, &Operation::Get { key: &key(3) }, deadline_ns).unwrap();
    harness.step();
    let lost = std::mem::take(&mut harness.posted);
    assert!(!lost.is_empty());
    // The host is dark: neither reads nor questions are answered.
    harness.answers = false;
    let hellos =
        |harness: &ReadHarness| harness.kinds.iter().filter(|kind| **kind == RequestKind::Hello).count();
    while hellos(&harness) == 1 {
        harness.pass(100 * MS);
        harness.step();
        assert!(harness.now_ns < deadline_ns / 2, "the connection is given up");
    }
    harness.answers = true;
    harness.run();
    assert_eq!(harness.asked, [RequestKind::Get], "the server is asked, on another connection");
    harness.core.completion().unwrap();
    assert_eq!(harness.get(&key(4)), Some(value(4)));
}

/// The fabric is full: what it did not take comes again, and nothing before.
#[test]
fn read_that_was_not_taken_comes_again_once_the_fabric_takes_reads() {
    let mut harness = filled(ReadHarness::new(), 20);
    assert_eq!(harness.get(&key(1)), Some(value(1)));
    let tickets = [3, 4].map(|number| harness.submit(&Operation::Get { key: &key(number) }));
    harness.validate();
    let now_ns = harness.clock();
    harness.core.tick(now_ns);
    assert!(harness.core.command(now_ns).is_none(), "nothing for the server");
    let (link, read, tag) = harness.core.next_read().expect("a read of a leaf");
    harness.core.read_not_taken(link, read, tag);
    assert!(harness.core.next_read().is_none(), "it takes none");
    harness.core.writable(link);
    harness.run();
    for (ticket, number) in tickets.into_iter().zip([3, 4]) {
        let completion = harness.core.completion_of(ticket).expect("its reads were taken");
        let Output::Value(Some(item)) = completion.outcome.unwrap() else { panic!("there is an entry") };
        assert_eq!(item.value, value(number));
    }
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
}

/// Once, which costs a step, and then always.
#[test]
fn torn_leaf_that_is_to_confirm_a_header_is_read_again_a_bounded_number_of_times() {
    let mut harness = filled(ReadHarness::new(), 20);
    let written = harness.owner.put(b"long", &vec![7; 70_000]);
    for torn_max in [1, 1_000] {
        harness.submit(&Operation::MultiGet { keys: &[b"long"] });
        harness.run_to_extent();
        harness.complete_one(); // the header
        spoil_reads(&mut harness, torn_max, |read, words| {
            assert_eq!(read.length, 512, "of the leaf alone");
            words[0] |= 1;
        });
        harness.run();
        let outcome = harness.core.completion().unwrap().outcome;
        if torn_max == 1 {
            let Ok(Output::Values(values)) = outcome else { panic!("{outcome:?}") };
            let found = values.iter().next().unwrap();
            assert!(matches!(found, Found::Large { version, .. } if version == written), "{found:?}");
            assert_eq!((harness.counters().torn, harness.asked.len()), (1, 0));
        }
    }
    assert_eq!(harness.asked, [RequestKind::MultiGet]);
    assert!(harness.counters().torn < 100, "a bounded number of times");
}

/// The client ended by an index that was out of bounds (seed 8000413):
///
/// 1. a page of keys reads its leaves again, to confirm the headers that it has read;
/// 2. the first leaf is another one by now, and the page begins anew while its last leaf is still on its way;
/// 3. the page has fewer headers now, and confirms those;
/// 4. the last leaf of before comes: it was to confirm headers behind the last one that there is.
#[test]
fn read_of_before_its_page_began_anew_confirms_nothing() {
    let mut harness = filled(ReadHarness::new(), 40);
    harness.submit(&Operation::Scan(Scan { keys_only: true, ..Scan::default() }));
    let is_confirming = |harness: &ReadHarness| {
        let posted = &harness.posted; // a walk reads one leaf at a time
        posted.len() > 1 && posted.iter().all(|(read, _)| is_node(harness, read))
    };
    harness.step();
    while !is_confirming(&harness) {
        assert!(harness.complete_one(), "the leaves are read again");
        harness.step();
    }
    let (read, late) = harness.posted.pop().expect("the last leaf");
    harness.owner.put(&key(0), b"newer");
    (2..40).for_each(|number| harness.owner.delete(&key(number)));
    harness.run();
    let words = harness.owner.read(&read).unwrap();
    harness.core.read_done(LinkId::BOOTSTRAP, late, Ok(&words));
    let Output::Page(page) = harness.core.completion().unwrap().outcome.unwrap() else { panic!("no page") };
    assert_eq!((page.len(), page.is_done()), (2, true));
    assert_eq!((harness.counters().crc, harness.asked.len()), (1, 0), "it began anew, once");
}

#[test]
fn extent_that_is_never_its_leafs_is_left_to_the_server() {
    let mut harness = filled(ReadHarness::new(), 5);
    let extents = harness.owner.pairs[0].extent_key();
    harness.submit(&Operation::Get { key: &key(3) });
    spoil_reads(&mut harness, 1_000, |read, words| {
        if read.key.0 == extents {
            words.fill(0);
        }
    });
    assert_eq!(harness.asked, [RequestKind::Get]);
    assert!(harness.counters().crc < 100, "a bounded number of times");
}

/// One read fails when its operation was given up and the slot is another one's; one while it is waited for.
#[test]
fn read_that_fails_ends_its_own_operation_and_no_other() {
    for failure in [ReadFailure::RangeInvalid, ReadFailure::ConnectionClosed, ReadFailure::KeyUnknown] {
        let mut harness = filled(ReadHarness::new(), 20);
        assert_eq!(harness.get(&key(1)), Some(value(1)));
        let given_up = harness.submit(&Operation::Get { key: &key(3) });
        harness.step();
        let (_, late) = harness.posted.remove(0);
        let now_ns = harness.clock();
        harness.core.give_up(now_ns, given_up);
        harness.submit(&Operation::Get { key: &key(4) });
        harness.step();
        harness.core.read_done(LinkId::BOOTSTRAP, late, Err(failure));
        harness.run();
        let outcome = harness.core.completion().expect("it has reads of its own").outcome;
        let Ok(Output::Value(Some(item))) = outcome else { panic!("{failure}: {outcome:?}") };
        assert_eq!((item.value, harness.asked.len()), (value(4), 0), "{failure}");

        harness.submit(&Operation::Get { key: &key(5) });
        harness.step();
        let (_, tag) = harness.posted.remove(0);
        harness.core.read_done(LinkId::BOOTSTRAP, tag, Err(failure));
        harness.run();
        assert_eq!(harness.asked, [RequestKind::Get], "{failure}: no read of it is on its way");
        let counters = harness.counters();
        let expected = if failure == ReadFailure::KeyUnknown { (2, 0) } else { (0, 2) };
        assert_eq!((counters.key_unknown, counters.failed), expected);
    }
}

#[test]
fn registration_of_one_pair_that_has_ended_ends_no_read_of_another() {
    let mut harness = routed();
    for number in [5, 150] {
        assert_eq!(harness.get(&key(number)), Some(value(number)));
    }
    let other = harness.submit(&Operation::Get { key: &key(5) });
    harness.submit(&Operation::Get { key: &key(150) });
    harness.step();
    let nodes = harness.owner.pairs[1].node_key();
    let at = harness.posted.iter().position(|(read, _)| read.key.0 == nodes).expect("its leaf is read");
    let (_, tag) = harness.posted.remove(at);
    harness.core.read_done(LinkId::BOOTSTRAP, tag, Err(ReadFailure::KeyUnknown));
    harness.run();
    assert_eq!(harness.asked, [RequestKind::Get], "the one of the pair");
    let outcome = harness.core.completion_of(other).expect("it is complete").outcome;
    let Ok(Output::Value(Some(item))) = outcome else { panic!("{outcome:?}") };
    assert_eq!(item.value, value(5));
}
