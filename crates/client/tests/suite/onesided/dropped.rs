//! Operations that are dropped half way: what is known of one is not taken for the next one that has its
//! slot.

use std::collections::BTreeMap;

use cell_client::{AttemptError, ClientOptions, LinkId, Operation, Output, Ticket};
use cell_fabric::{CloseReason, ReadFailure};
use proptest::prelude::*;

use crate::onesided::answers::{filled, key, page, routed, value};
use crate::onesided::owner::Owner;
use crate::onesided::read_harness::{MS, ReadHarness, options};

/// A scan of which a read was posted and not taken, because the connection is about to be lost; dropped
/// before the core is stepped again.
fn dropped_after_its_end() -> ReadHarness {
    let mut harness = filled(ReadHarness::new(), 300);
    harness.get(&key(1));
    let dropped = harness.submit(&page());
    harness.step();
    let (_, tag) = harness.posted.remove(0);
    harness.core.read_done(LinkId::BOOTSTRAP, tag, Err(ReadFailure::ConnectionClosed));
    let now_ns = harness.clock();
    harness.core.give_up(now_ns, dropped);
    assert_eq!(harness.core.outstanding(), 0);
    harness
}

/// Its end was kept under the number of its slot alone: the next operation there was sent to the server, and
/// searched for by the client as well.
#[test]
pub(crate) fn slot_of_a_scan_dropped_after_its_end_has_the_next_operation_alone() {
    let mut harness = dropped_after_its_end();
    let next = harness.submit(&Operation::Get { key: &key(250) });
    harness.run();
    let completion = harness.core.completion().expect("it is complete");
    assert_eq!(completion.ticket, next);
    let Output::Value(Some(item)) = completion.outcome.unwrap() else { panic!("there is an entry") };
    assert_eq!(item.value, value(250));
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
    assert_eq!((harness.core.outstanding(), harness.core.completions()), (0, 0));
}

/// Its slot was freed a second time: the client held one operation less than none, and was full for ever.
#[test]
fn slot_of_a_scan_dropped_after_its_end_is_freed_once() {
    let mut harness = dropped_after_its_end();
    harness.run();
    assert!(harness.asked.is_empty(), "{:?}", harness.asked);
    assert_eq!((harness.core.outstanding(), harness.core.completions()), (0, 0));
    let tickets: Vec<Ticket> =
        (0..2).map(|number| harness.submit(&Operation::Get { key: &key(number) })).collect();
    harness.run();
    for (number, ticket) in (0..).zip(tickets) {
        let completion = harness.core.completion().expect("it is complete");
        assert_eq!(completion.ticket, ticket);
        assert!(matches!(completion.outcome, Ok(Output::Value(Some(item))) if item.value == value(number)));
    }
}

/// It is counted among those under way no more: a client of which enough are given up would begin none.
#[test]
fn operation_that_is_given_up_while_it_reads_makes_room_for_the_next() {
    let options = ClientOptions { in_flight_max: 1, ..options() };
    let mut harness = filled(ReadHarness::with(options, Owner::new(false), true), 20);
    harness.get(&key(1));
    let given_up = harness.submit(&Operation::Get { key: &key(3) });
    let next = harness.submit(&Operation::Get { key: &key(4) });
    harness.step();
    assert_eq!(harness.posted.len(), 1, "one is under way");
    assert!(!harness.core.is_validating(), "the other one has to wait for more than the time");
    let now_ns = harness.clock();
    harness.core.give_up(now_ns, given_up);
    harness.run();
    let completion = harness.core.completion().expect("it is complete");
    assert_eq!(completion.ticket, next);
    assert!(matches!(completion.outcome, Ok(Output::Value(Some(item))) if item.value == value(4)));
}

struct World {
    harness: ReadHarness,
    /// Operations that were not given up; of a get, what it has to find.
    outstanding: BTreeMap<Ticket, Option<Option<Vec<u8>>>>,
    state: u64,
}

impl World {
    fn roll(&mut self, sides: u64) -> u64 {
        self.state = self.state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.state >> 33) % sides
    }

    fn key(&mut self) -> Vec<u8> {
        key(u32::try_from(self.roll(310)).unwrap())
    }

    fn submit(&mut self) {
        let keys = [self.key(), self.key(), self.key()];
        let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let (operation, found) = match self.roll(6) {
            0 => (page(), None),
            1 => (Operation::MultiGet { keys: &wanted }, None),
            2 => (Operation::Search { key: &keys[0] }, None),
            _ => {
                let entry = self.harness.owner.entries.get(&keys[0]);
                (Operation::Get { key: &keys[0] }, Some(entry.map(|(_, value)| value.clone())))
            }
        };
        let ticket = self.harness.submit(&operation);
        self.outstanding.insert(ticket, found);
    }

    fn give_up(&mut self) {
        if self.outstanding.is_empty() {
            return;
        }
        let at = usize::try_from(self.roll(self.outstanding.len() as u64)).unwrap();
        let ticket = *self.outstanding.keys().nth(at).unwrap();
        let now_ns = self.harness.clock();
        self.harness.core.give_up(now_ns, ticket);
        self.outstanding.remove(&ticket);
    }

    fn fail_a_read(&mut self) {
        let failures = [ReadFailure::ConnectionClosed, ReadFailure::KeyUnknown, ReadFailure::RangeInvalid];
        let failure = failures[usize::try_from(self.roll(3)).unwrap()];
        if !self.harness.posted.is_empty() {
            let (_, tag) = self.harness.posted.remove(0);
            self.harness.core.read_done(LinkId::BOOTSTRAP, tag, Err(failure));
        }
    }

    /// What was posted may still come back, to nobody.
    fn cut(&mut self) {
        let now_ns = self.harness.clock();
        let why = AttemptError::Closed(CloseReason::PeerClosed);
        self.harness.core.closed(LinkId::BOOTSTRAP, now_ns, why);
        if self.roll(2) == 0 {
            self.harness.posted.clear();
        }
    }

    fn step(&mut self) {
        match self.roll(40) {
            0..=11 => self.submit(),
            12..=15 => self.give_up(),
            16..=25 => {
                self.harness.complete_one();
            }
            26 | 27 => self.fail_a_read(),
            28 => self.cut(),
            29..=31 => self.harness.pass(MS),
            _ => {
                self.harness.step();
            }
        }
        self.take();
    }

    fn take(&mut self) {
        while let Some(completion) = self.harness.core.completion() {
            let found = self.outstanding.remove(&completion.ticket).expect("one that is outstanding");
            // Where the client does not search itself, the harness's server refuses.
            if let (Ok(Output::Value(item)), Some(found)) = (completion.outcome, found) {
                assert_eq!(item.map(|item| item.value), found);
            }
        }
        assert_eq!(self.harness.core.outstanding(), self.outstanding.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_each_end_once_whatever_is_dropped_or_lost_between_two_steps(state in any::<u64>()) {
        let mut world = World { harness: routed(), outstanding: BTreeMap::new(), state };
        for _ in 0..600 {
            world.step();
        }
        for _ in 0..6_000 {
            world.harness.run();
            world.take();
            if world.outstanding.is_empty() {
                break;
            }
            world.harness.pass(MS);
        }
        prop_assert!(world.outstanding.is_empty(), "every operation ends");
    }
}
