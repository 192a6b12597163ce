//! Ways that lead astray: torn copies, splits under way, stale parents, reused extents, unknown regions, lost
//! connections. Each costs a step, none an answer.

use cell_client::{AttemptError, LinkId, Operation, Output};
use cell_fabric::CloseReason;
use cell_protocol::RequestKind;
use cell_terms::{ExtentOffset, Root};

use crate::onesided::answers::{filled, key, routed, routed_owner, value};
use crate::onesided::yard::{MS, Yard, options};

fn is_node(yard: &Yard, read: &cell_fabric::RemoteRead) -> bool {
    read.key.0 == yard.owner.pairs[0].node_key() && read.length == 512
}

#[test]
fn torn_node_is_read_again() {
    let mut yard = filled(Yard::new(), 5);
    yard.submit(&Operation::Get { key: &key(3) });
    yard.run_to(is_node);
    let (read, tag) = yard.posted.remove(0);
    let mut torn = yard.owner.read(&read).unwrap();
    let last = torn.len() - 1;
    torn[last] = torn[last].wrapping_add(2);
    yard.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&torn));
    yard.run_to(is_node);
    let (read, tag) = yard.posted.remove(0);
    let mut changing = yard.owner.read(&read).unwrap();
    changing[0] += 1;
    changing[last] += 1;
    yard.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&changing));
    yard.run();
    let Output::Value(Some(item)) = yard.core.completion().unwrap().outcome.unwrap() else { panic!() };
    assert_eq!((item.value, yard.counters().torn), (value(3), 2));
}

#[test]
fn node_that_is_always_torn_is_left_to_the_server() {
    let mut yard = filled(Yard::new(), 5);
    yard.submit(&Operation::Get { key: &key(3) });
    for _ in 0..1_000 {
        yard.step();
        if !yard.asked.is_empty() {
            break;
        }
        let Some((read, tag)) = yard.posted.pop() else { continue };
        let mut words = yard.owner.read(&read).unwrap();
        if read.length == 512 {
            words[0] |= 1;
        }
        yard.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&words));
    }
    assert_eq!(yard.asked, [RequestKind::Get]);
    assert!(yard.counters().torn < 100, "a bounded number of times");
}

/// Cached parents know nothing of splits that came after them.
pub(crate) fn stale_parents_cost_a_step_aside() {
    let mut yard = filled(Yard::new(), 200);
    for number in 0..200 {
        assert_eq!(yard.get(&key(number)), Some(value(number)));
    }
    // Between any two, so that every leaf splits.
    for number in 0..200 {
        for letter in b'a'..b'e' {
            let mut between = key(number);
            between.push(letter);
            yard.owner.put(&between, b"between");
        }
    }
    for number in 0..200 {
        assert_eq!(yard.get(&key(number)), Some(value(number)), "{number}");
        let mut between = key(number);
        between.push(b'd');
        assert_eq!(yard.get(&between), Some(b"between".to_vec()), "{number}");
    }
    let counters = yard.counters();
    assert!(counters.right_link > 0 && counters.dropped > 0, "{counters:?}");
    assert_eq!((counters.fell_back, yard.asked.len()), (0, 0));
}

#[test]
fn stale_parents_of_splits_lead_right_and_are_dropped() {
    stale_parents_cost_a_step_aside();
}

#[test]
fn extent_reused_meanwhile_is_looked_for_again() {
    let mut yard = filled(Yard::new(), 20);
    yard.submit(&Operation::Get { key: &key(7) });
    yard.run_to_extent();
    // Freed, and used again for another key, before the read is served.
    yard.owner.move_and_reuse(&key(7), b"the newer value", b"another", b"of another key");
    yard.run();
    let Output::Value(Some(item)) = yard.core.completion().unwrap().outcome.unwrap() else { panic!() };
    assert_eq!(item.value, b"the newer value");
    assert_eq!(yard.counters().crc, 1);
}

#[test]
fn scan_whose_extent_was_reused_is_left_to_the_server() {
    let mut yard = filled(Yard::new(), 20);
    yard.submit(&Operation::Scan(cell_protocol::Scan::default()));
    yard.run_to_extent();
    yard.owner.move_and_reuse(&key(7), b"the newer value", b"another", b"of another key");
    yard.run();
    assert_eq!(yard.asked, [RequestKind::Scan]);
}

#[test]
fn right_link_into_another_pair_is_followed_before_the_router_knows() {
    let mut yard = routed();
    // The router has not heard of the last two meganodes.
    let first = yard.owner.root_of(0, 0);
    yard.owner.set_root(cell_terms::Root::leaf(first));
    yard.core.closed(LinkId::BOOTSTRAP, yard.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    yard.pass(1_000 * MS);
    for number in [5, 150, 250, 299] {
        assert_eq!(yard.get(&key(number)), Some(value(number)));
    }
    assert!(yard.counters().right_link > 0);
    assert!(yard.asked.is_empty());
}

#[test]
fn region_that_is_not_known_yet_is_asked_for() {
    let mut yard = routed();
    yard.pairs_told = 1;
    yard.core.closed(LinkId::BOOTSTRAP, yard.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    yard.pass(1_000 * MS);
    assert_eq!(yard.get(&key(5)), Some(value(5)));
    yard.submit(&Operation::Get { key: &key(250) });
    yard.run();
    assert_eq!(yard.asked, [RequestKind::Get], "for now the server is asked");
    yard.core.completion().unwrap();
    yard.pairs_told = 2;
    yard.pass(30 * MS);
    yard.submit(&Operation::Get { key: &key(250) });
    yard.run();
    yard.core.completion().unwrap();
    assert_eq!(yard.get(&key(250)), Some(value(250)));
    let regions = yard.kinds.iter().filter(|kind| **kind == RequestKind::Regions).count();
    assert!(regions >= 3, "{:?}", yard.kinds);
    assert!(yard.asked.len() <= 2);
}

/// A stale pointer that led into a slot which is a router's by now: its root is a leaf over all keys, and
/// said of any key that there is no entry, which was told.
pub(crate) fn router_is_not_taken_for_entries() {
    for (in_place, number) in [(false, 150), (false, 3), (true, 150)] {
        let mut owner = routed_owner();
        if in_place {
            owner.map();
        }
        let mut yard = filled(Yard::with(options(), owner, true), 300);
        if in_place {
            assert_eq!(yard.get(&key(3)), Some(value(3)), "by reads, which is when regions are mapped");
        }
        let first = yard.owner.root_of(0, 0);
        let stale = yard.owner.add_router(1, 1, first);
        let root = yard.owner.add_router(0, 2, stale);
        yard.owner.set_root(Root::router(root));
        if !in_place {
            // The root is read anew.
            yard.core.closed(LinkId::BOOTSTRAP, yard.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
            yard.pass(1_000 * MS);
        }
        let before = yard.counters();
        yard.submit(&Operation::Get { key: &key(number) });
        yard.run();
        let outcome = yard.core.completion().unwrap().outcome;
        assert!(!matches!(outcome, Ok(Output::Value(None))), "{number}: there is an entry");
        assert_eq!(yard.counters().in_place, before.in_place);
    }
}

#[test]
fn router_at_a_stale_pointer_is_not_taken_for_entries() {
    router_is_not_taken_for_entries();
}

#[test]
fn registration_that_has_ended_is_asked_for_anew() {
    let mut yard = filled(Yard::new(), 20);
    assert_eq!(yard.get(&key(1)), Some(value(1)));
    yard.owner.pairs[0].registered = false;
    yard.submit(&Operation::Get { key: &key(1) });
    yard.step();
    yard.complete_one();
    yard.owner.pairs[0].registered = true;
    yard.run();
    assert_eq!((yard.asked.len(), yard.counters().key_unknown), (1, 1));
    yard.core.completion().unwrap();
    assert_eq!(yard.get(&key(2)), Some(value(2)), "one-sided again");
    assert_eq!(yard.asked.len(), 1);
}

#[test]
fn connection_lost_hands_everything_to_the_server_and_comes_back() {
    let mut yard = filled(Yard::new(), 20);
    let tickets: Vec<_> = (0..5).map(|number| yard.submit(&Operation::Get { key: &key(number) })).collect();
    yard.step();
    let late = std::mem::take(&mut yard.posted);
    yard.core.closed(LinkId::BOOTSTRAP, yard.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    yard.pass(1_000 * MS);
    yard.run();
    assert_eq!(yard.asked.len(), tickets.len());
    // What comes for the old connection finds nobody.
    for (read, tag) in late {
        let words = yard.owner.read(&read).unwrap();
        yard.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&words));
    }
    while yard.core.completion().is_some() {}
    assert_eq!(yard.get(&key(3)), Some(value(3)));
    assert_eq!(yard.asked.len(), tickets.len());
}

#[test]
fn deadline_ends_an_operation_and_its_reads_come_to_nobody() {
    let mut yard = filled(Yard::new(), 20);
    let deadline_ns = yard.now_ns + 10 * MS;
    yard.core.submit_until(yard.now_ns, &Operation::Get { key: &key(3) }, deadline_ns).unwrap();
    yard.step();
    assert!(!yard.posted.is_empty());
    yard.pass(11 * MS);
    yard.step();
    assert!(yard.core.completion().unwrap().outcome.is_err());
    yard.submit(&Operation::Get { key: &key(4) });
    yard.run();
    let Output::Value(Some(item)) = yard.core.completion().unwrap().outcome.unwrap() else { panic!() };
    assert_eq!(item.value, value(4));
    assert!(yard.core.completion().is_none());
}

#[test]
fn keys_that_no_tree_can_hold_are_left_to_the_server() {
    let mut yard = filled(Yard::new(), 3);
    for key in [Vec::new(), vec![1; 77]] {
        yard.submit(&Operation::Get { key: &key });
        yard.run();
    }
    assert_eq!(yard.asked, [RequestKind::Get, RequestKind::Get]);
    assert_ne!(yard.owner.entry(&key(0)).unwrap().offset, ExtentOffset(0));
}

#[test]
fn reads_that_never_come_back_cost_the_connection_not_the_deadline() {
    let mut yard = filled(Yard::new(), 20);
    let deadline_ns = yard.now_ns + 60_000 * MS;
    yard.core.submit_until(yard.now_ns, &Operation::Get { key: &key(3) }, deadline_ns).unwrap();
    yard.step();
    let lost = std::mem::take(&mut yard.posted);
    assert!(!lost.is_empty());
    // The host is dark: neither reads nor questions are answered.
    yard.answers = false;
    let hellos = |yard: &Yard| yard.kinds.iter().filter(|kind| **kind == RequestKind::Hello).count();
    while hellos(&yard) == 1 {
        yard.pass(100 * MS);
        yard.step();
        assert!(yard.now_ns < deadline_ns / 2, "the connection is given up");
    }
    yard.answers = true;
    yard.run();
    assert_eq!(yard.asked, [RequestKind::Get], "the server is asked, on another connection");
    yard.core.completion().unwrap();
    assert_eq!(yard.get(&key(4)), Some(value(4)));
}
