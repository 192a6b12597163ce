//! A pair leaves its worker, which lives and serves the other one: what is answered, and when it has left.

use cell_cluster::PairGeometry;
use cell_fabric::ConnectionId;
use cell_node::{Command, ControlEvent, StayReason, WorkerOptions};
use cell_pair::{Pair, PairOptions};
use cell_protocol::{
    Condition, Hello, PROTOCOL_VERSION, PairRegions, Put, Request, RequestHeader, RequestId, StatusCode,
};
use cell_terms::{Csn, Durability, Epoch, PairId};

use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

/// In the first pair, and in the second one.
const LOW: &[u8] = b"aaa";
const HIGH: &[u8] = b"zzz";
const SECOND: PairId = PairId(2);
const TRUST_NS: u64 = OPTIONS.trust_max_ns;

/// A worker of two pairs, whose registrations are known; the next write's number.
fn two_pairs() -> (World, u64) {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let mut number = load_until_split(&mut world);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    for key in [LOW, HIGH] {
        assert!(matches!(world.put(world.name(number, number), key, b"old"), Replied::Written(_)));
        number += 1;
    }
    for pair in [PairId(1), SECOND] {
        let node_key = u64::from(pair.0) * 10;
        let row = PairRegions { pair, epoch: Epoch(1), node_key, ..PairRegions::default() };
        world.worker_mut().registered(row);
    }
    (world, number)
}

fn begin_to_leave(world: &mut World) {
    world.notify(0, ControlEvent::Leave { pair: SECOND });
}

/// What the worker has said of a pair that was to leave, since this was asked last.
fn left(world: &mut World) -> Option<Csn> {
    world.take_commands(0).into_iter().find_map(|command| match command {
        Command::Left { pair: SECOND, epoch: Epoch(1), cut, handed: false, .. } => Some(cut),
        Command::Left { .. } | Command::Stays { .. } => panic!("{command:?}"),
        _ => None,
    })
}

fn send_put(world: &mut World, number: u64, key: &[u8], value: &[u8]) -> u32 {
    let name = world.name(number, number);
    world.send(&Request::Put(Put { name, condition: Condition::Always, key, value }))
}

/// Until the pair has left; where its log ends.
fn leave(world: &mut World) -> Csn {
    begin_to_leave(world);
    for _ in 0..10_000 {
        world.turn();
        if let Some(cut) = left(world) {
            return cut;
        }
    }
    panic!("it does not leave");
}

pub(crate) fn list_number_rises_when_a_registration_leaves() {
    let (mut world, _) = two_pairs();
    assert_eq!(world.get(LOW), Replied::Value(b"old".to_vec()));
    let before = world.list;
    world.worker_mut().registered(PairRegions { pair: PairId(9), ..PairRegions::default() });
    world.get(LOW);
    assert_eq!(world.list, before, "one that comes is known to nobody");
    leave(&mut world);
    world.get(LOW);
    assert!(world.list > before && world.trust_us > 0, "the others are trusted by another list");
}

pub(crate) fn pair_is_served_until_trust_in_its_registrations_has_ended() {
    let (mut world, mut number) = two_pairs();
    world.get(HIGH);
    let (list, mut granted_ns) = (world.list, world.now_ns());
    begin_to_leave(&mut world);
    for _ in 0..10_000 {
        let get = world.send(&Request::Get { key: HIGH });
        let put = send_put(&mut world, number, HIGH, b"new");
        number += 1;
        world.turn();
        if world.list == list {
            granted_ns = world.now_ns();
        }
        let waited = world.now_ns() >= granted_ns + TRUST_NS;
        let served = |replied: &Replied| !matches!(replied, Replied::Refused(_) | Replied::Other);
        let answers = [world.answered(get), world.answered(put)];
        assert!(waited || answers.iter().flatten().all(served), "{answers:?}");
        if left(&mut world).is_some() {
            // By clocks of clients, too, that go two thirds as fast; within ten turns.
            let passed_ns = world.now_ns() - granted_ns + 10_000_000;
            assert!(passed_ns >= TRUST_NS / 2 * 3 && world.list > list, "too early");
            return;
        }
    }
    panic!("it does not leave");
}

pub(crate) fn pair_leaves_once_what_was_appended_is_durable_and_answered() {
    let (mut world, number) = two_pairs();
    begin_to_leave(&mut world);
    world.turn();
    world.hold(Some(1));
    let put = send_put(&mut world, number, HIGH, b"new");
    let appended = world.worker().pairs().nth(1).unwrap().appended();
    for _ in 0..1_000 {
        world.turn();
        assert_eq!((left(&mut world), world.answered(put)), (None, None), "its log stands still");
    }
    let get = world.send(&Request::Get { key: HIGH });
    world.turn();
    assert!(
        matches!(world.answered(get), Some(Replied::Refused(_) | Replied::Other)),
        "nothing of it begins"
    );
    assert_eq!(world.get(LOW), Replied::Value(b"old".to_vec()), "the other pair is served");
    world.hold(None);
    let cut = (0..10_000).find_map(|_| {
        world.turn();
        left(&mut world)
    });
    assert!(matches!(world.answered(put), Some(Replied::Written(_))));
    assert_eq!(cut, Some(appended));
}

/// Until the pair is frozen for a move; where its log ends.
fn freeze(world: &mut World, ticket: u64) -> Csn {
    world.notify(0, ControlEvent::Freeze { pair: SECOND, ticket });
    frozen_at(world, SECOND, ticket)
}

/// Until a pair is frozen, as was asked; where its log ends.
pub(crate) fn frozen_at(world: &mut World, pair: PairId, ticket: u64) -> Csn {
    for _ in 0..10_000 {
        world.turn();
        for command in world.take_commands(0) {
            match command {
                Command::Frozen { pair: found, ticket: of, epoch: Epoch(1), cut, since_ns, now_ns }
                    if (found, of) == (pair, ticket) =>
                {
                    assert!((1..=now_ns).contains(&since_ns), "{since_ns} {now_ns}");
                    return cut;
                }
                Command::Frozen { .. } | Command::Left { .. } | Command::Stays { .. } => {
                    panic!("{command:?}")
                }
                _ => {}
            }
        }
    }
    panic!("it is not frozen");
}

/// Whether nothing was in flight was asked before a turn's replies had left. While a long value left, chunk
/// by chunk, the pair was frozen and nobody's, and after the last chunk until the next tick of a worker that
/// sleeps right after its answers.
#[test]
fn pair_is_frozen_while_a_long_value_of_it_leaves() {
    let mut world = World::new(1, GEOMETRY, WorkerOptions { value_bytes_max: 1 << 18, ..OPTIONS });
    let name = world.name(1, 1);
    let put = world.send_put(name, LOW, &vec![b'v'; 200_000]);
    assert!(matches!(world.answer(put), Replied::Written(_)));
    let reader = ConnectionId::from_number(9);
    let header = RequestHeader { id: RequestId(1 << 20), pair: PairId(0) };
    let ask = |world: &mut World, request: &Request<'_>| {
        let mut message = Vec::new();
        request.encode(header, &mut message).unwrap();
        world.worker_mut().message(reader, &message);
        world.turn();
    };
    world.worker_mut().accepted(reader);
    let hello = Hello { version: PROTOCOL_VERSION, name: "slow", token: &[], stream_credit_bytes: 1 };
    ask(&mut world, &Request::Hello(hello));
    ask(&mut world, &Request::Get { key: LOW });
    world.notify(0, ControlEvent::Freeze { pair: PairId(1), ticket: 1 });
    let is_frozen = (0..2_000).any(|_| {
        ask(&mut world, &Request::Credit { bytes: 1 });
        let commands = world.take_commands(0);
        commands.iter().any(|command| matches!(command, Command::Frozen { ticket: 1, .. }))
    });
    assert!(is_frozen);
    assert!(world.answered(1 << 20).is_some(), "it leaves to the end");
    world.notify(0, ControlEvent::Handed { pair: PairId(1), ticket: 1 });
    ask(&mut world, &Request::Credit { bytes: 1 });
    assert!(world.answered(1 << 20).is_some(), "also of a pair that is another's");
}

/// A pair that came back to its worker by a thaw said of a packing that the freeze had ended that it was
/// under way: none began any more, and room in sparse slabs was of no use.
#[test]
fn packing_that_a_freeze_ends_begins_anew_once_the_pair_is_thawed() {
    let slot = PairGeometry { node_region_bytes: 4096 + (512 << 10), slot_bytes: 512 << 10, ..GEOMETRY };
    let mut world = World::new(1, slot, OPTIONS);
    let mut number = 0;
    let mut put = |world: &mut World, key: String, length: usize| {
        number += 1;
        let name = world.name(number, number);
        world.put(name, key.as_bytes(), &vec![b'v'; length])
    };
    let key = |number: u64| format!("key {number:05}");
    let fits = |replied: &Replied| matches!(replied, Replied::Written(_));
    let full = (0..10_000).take_while(|at| fits(&put(&mut world, key(*at), 1_000))).count() as u64;
    assert!((3_000..4_500).contains(&full), "{full} entries of a kilobyte fill 4 MiB");
    for at in (1..full).step_by(2) {
        let name = world.name(10_000 + at, 10_000 + at);
        assert_eq!(world.delete(name, key(at).as_bytes()), Replied::Deleted);
    }
    let packings = |world: &World| world.worker().snapshot().pairs[0].packings;
    let packed = packings(&world);
    // What a packing moves is not durable while the log stands still: it cannot end.
    world.hold(Some(0));
    let others = full / 4;
    for at in 0..others {
        send_put(&mut world, 20_000 + at, format!("early {at:05}").as_bytes(), &[b'e'; 1_100]);
    }
    (0..200).for_each(|_| world.turn());
    world.notify(0, ControlEvent::Freeze { pair: PairId(1), ticket: 1 });
    (0..200).for_each(|_| world.turn());
    world.hold(None);
    frozen_at(&mut world, PairId(1), 1);
    world.notify(0, ControlEvent::Thaw { pair: PairId(1), ticket: 1 });
    for at in 0..others {
        let name = world.name(30_000 + at, 30_000 + at);
        let replied = world.put(name, format!("early {at:05}").as_bytes(), &[b'v'; 1_100]);
        assert!(fits(&replied), "{at}: {replied:?}");
    }
    assert!(packings(&world) > packed, "a packing has made room");
    assert_eq!(world.violation(), None);
    for at in (0..full).step_by(2) {
        assert_eq!(world.get(key(at).as_bytes()), Replied::Value(vec![b'v'; 1_000]));
    }
}

#[test]
fn pair_that_is_frozen_for_a_move_waits_and_is_served_on_once_it_is_thawed() {
    let (mut world, mut number) = two_pairs();
    let cut = freeze(&mut world, 1);
    for _ in 0..1_000 {
        world.turn();
    }
    assert!(world.take_commands(0).iter().all(|command| !matches!(command, Command::Left { .. })));
    let get = world.send(&Request::Get { key: HIGH });
    let answer = world.answer(get);
    assert!(matches!(answer, Replied::Other | Replied::Refused(StatusCode::NotOwner)), "{answer:?}");
    assert_eq!(world.get(LOW), Replied::Value(b"old".to_vec()), "the other pair is served");
    world.notify(0, ControlEvent::Handed { pair: SECOND, ticket: 7 });
    world.notify(0, ControlEvent::Thaw { pair: SECOND, ticket: 7 });
    assert_eq!(world.worker().pairs().count(), 2, "of other questions");
    world.notify(0, ControlEvent::Thaw { pair: SECOND, ticket: 1 });
    assert_eq!(world.get(HIGH), Replied::Value(b"old".to_vec()));
    assert!(matches!(world.put(world.name(number, number), HIGH, b"new"), Replied::Written(_)));
    number += 1;
    assert_eq!(world.get(HIGH), Replied::Value(b"new".to_vec()));
    // Thawed at each step, and frozen once more.
    for turns in [0, 1, 2, 200] {
        world.notify(0, ControlEvent::Freeze { pair: SECOND, ticket: 2 });
        (0..turns).for_each(|_| world.turn());
        world.notify(0, ControlEvent::Thaw { pair: SECOND, ticket: 2 });
        assert!(matches!(world.put(world.name(number, number), HIGH, b"new"), Replied::Written(_)));
        number += 1;
    }
    world.take_commands(0);
    assert!(freeze(&mut world, 3) > cut);
    assert_eq!(world.violation(), None);
}

#[test]
fn pair_that_was_handed_over_is_another_process_s_and_its_results_went_along() {
    let (mut world, number) = two_pairs();
    let name = world.name(number, number);
    let put = Request::Put(Put { name, condition: Condition::Always, key: HIGH, value: b"last" });
    let id = world.send(&put);
    let first = world.answer(id);
    let cut = freeze(&mut world, 1);
    world.notify(0, ControlEvent::Handed { pair: SECOND, ticket: 1 });
    world.turn();
    let left = world.take_commands(0).into_iter().any(
        |command| matches!(command, Command::Left { pair: SECOND, cut: of, handed: true, .. } if of == cut),
    );
    assert!(left && world.worker().pairs().count() == 1);
    world.hand_to_second(SECOND.0, cut);
    let again = world.send_to(1, &put);
    assert_eq!(world.answer_of(1, again), first);
    assert_eq!(world.get(LOW), Replied::Value(b"old".to_vec()));
}

/// A pair that was handed over, and the CSN at which its log ends.
fn hand_over(world: &mut World) -> (Pair, Csn) {
    let cut = freeze(world, 1);
    (handed(world), cut)
}

/// The memory of a pair that was frozen and is another's by now.
fn handed(world: &mut World) -> Pair {
    world.notify(0, ControlEvent::Handed { pair: SECOND, ticket: 1 });
    world.turn();
    let frozen = world.take_commands(0).into_iter().find_map(|command| match command {
        Command::Left { pair: SECOND, frozen, .. } => frozen,
        _ => None,
    });
    *frozen.expect("its memory is kept")
}

/// A pair that is written until it is frozen has its last batch sealed a moment later: that is on its way by
/// the time the handing stands.
#[test]
fn memory_is_kept_while_the_log_writes_a_seal() {
    let (mut world, mut number) = two_pairs();
    world.notify(0, ControlEvent::Freeze { pair: SECOND, ticket: 1 });
    let cut = (0..10_000).find_map(|_| {
        send_put(&mut world, number, HIGH, b"new");
        number += 1;
        world.turn();
        world.take_commands(0).into_iter().find_map(|command| match command {
            Command::Frozen { pair: SECOND, cut, .. } => Some(cut),
            _ => None,
        })
    });
    let is_idle = |world: &World| world.worker().pairs().nth(1).unwrap().is_idle();
    let is_sealing = (0..10_000).any(|_| {
        world.turn();
        !is_idle(&world)
    });
    assert!(is_sealing);
    let frozen = handed(&mut world);
    assert_eq!(Some(frozen.appended()), cut, "a seal has no record");
    let entries = frozen.figures().entries;
    let recovered = frozen.into_recovered(Epoch(3)).unwrap();
    assert_eq!((Some(recovered.csn_cut), recovered.entries), (cut, entries));
    world.add(Pair::new(recovered, &OPTIONS.pair));
    assert_eq!(world.get(HIGH), Replied::Value(b"new".to_vec()));
}

#[test]
fn pair_that_comes_back_with_its_memory_is_whole_and_of_a_later_epoch() {
    let (mut world, number) = two_pairs();
    let put = Request::Put(Put {
        name: world.name(number, number),
        condition: Condition::Always,
        key: HIGH,
        value: b"last",
    });
    let id = world.send(&put);
    let first = world.answer(id);
    let (frozen, cut) = hand_over(&mut world);
    let (entries, mapped) = (frozen.figures().entries, frozen.source());
    let recovered = frozen.into_recovered(Epoch(3)).unwrap();
    assert_eq!((recovered.csn_cut, recovered.entries), (cut, entries));
    assert_eq!(recovered.meganodes.iter().map(|found| found.stats.entries).sum::<u64>(), entries);
    let marks = recovered.memory.watermark();
    assert_eq!((marks.epoch, marks.durable), (Epoch(3), cut));
    assert_eq!(mapped.node.watermark(), marks, "who has mapped it sees that it is another's");
    assert_eq!((mapped.node.spec().epoch, recovered.memory.node.region().spec().epoch), (Epoch(1), Epoch(3)));
    world.add(Pair::new(recovered, &OPTIONS.pair));
    assert_eq!(world.get(HIGH), Replied::Value(b"last".to_vec()));
    let again = world.send(&put);
    world.turn();
    for command in world.take_commands(0) {
        // The session was idle for long meanwhile.
        if let Command::AskSession { session } = command {
            world.notify(0, ControlEvent::SessionAsked { session, open: Some(true) });
        }
    }
    assert_eq!(world.answer(again), first, "results come along");
    assert_eq!(world.get(LOW), Replied::Value(b"old".to_vec()));
}

pub(crate) fn no_split_begins_in_a_pair_that_leaves() {
    let (mut world, mut number) = two_pairs();
    world.get(HIGH);
    let started = world.worker().split_counts().begun;
    begin_to_leave(&mut world);
    world.turn();
    for turn in 0..250_u32 {
        for of in 0..4_u32 {
            let key = format!("zzz{:06}", turn * 4 + of);
            send_put(&mut world, number, key.as_bytes(), b"some value or other");
            number += 1;
        }
        world.turn();
        assert_eq!(left(&mut world), None, "trust lasts");
    }
    assert_eq!(world.worker().split_counts().begun, started);
}

#[test]
fn pair_that_leaves_is_not_split_however_full_it_gets() {
    no_split_begins_in_a_pair_that_leaves();
}

pub(crate) fn pair_leaves_once_its_split_is_over() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let row = PairRegions { pair: SECOND, epoch: Epoch(1), node_key: 20, ..PairRegions::default() };
    world.worker_mut().registered(row);
    world.hold(Some(1)); // the split cannot come to its end
    load_until_split(&mut world);
    begin_to_leave(&mut world);
    for _ in 0..200 {
        world.turn();
        assert!(world.worker().is_listed(SECOND), "a split is under way");
    }
    world.hold(None);
    for _ in 0..10_000 {
        world.turn();
        if left(&mut world).is_some() {
            assert_eq!(world.worker().split_counts().finished, 1);
            return;
        }
    }
    panic!("it does not leave");
}

#[test]
fn pair_in_which_a_split_is_under_way_leaves_once_that_is_over() {
    pair_leaves_once_its_split_is_over();
}

/// The pair stayed then: a split into a pair whose log stands still has no end.
pub(crate) fn unlinked_split_is_aborted_so_that_its_pair_can_leave() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let row = PairRegions { pair: SECOND, epoch: Epoch(1), node_key: 20, ..PairRegions::default() };
    world.worker_mut().registered(row);
    world.hold(Some(1)); // the adoption does not become durable
    let number = load_until_split(&mut world);
    begin_to_leave(&mut world);
    for _ in 0..5_000 {
        world.turn();
        assert_eq!(left(&mut world), None, "its log stands still");
    }
    let counts = world.worker().split_counts();
    assert_eq!(counts.aborted, 1);
    assert!(!world.worker().is_listed(SECOND), "it leaves");
    assert!(matches!(world.put(world.name(number, number), HIGH, b"kept"), Replied::Written(_)));
    assert_eq!(world.get(HIGH), Replied::Value(b"kept".to_vec()), "the half is the source's again");
    world.hold(None);
    let has_left = (0..10_000).any(|_| {
        world.turn();
        left(&mut world).is_some()
    });
    assert!(has_left);
    assert_eq!(world.violation(), None);
}

#[test]
fn split_that_is_not_linked_in_time_is_aborted_so_that_its_pair_can_leave() {
    unlinked_split_is_aborted_so_that_its_pair_can_leave();
}

/// A move waited for it for ever, and the pair was not split any more.
#[test]
fn pair_whose_checkpoint_has_no_end_stays_and_says_why() {
    let mut world = World::new(1, GEOMETRY, WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS });
    assert!(matches!(world.put(world.name(1, 1), LOW, b"old"), Replied::Written(_)));
    world.until("a checkpoint", |world| world.worker().snapshot().pairs[0].checkpoint_running);
    let stays = |world: &mut World| {
        world.turn();
        let why = |command| match command {
            Command::Stays { pair: PairId(1), why } => Some(why),
            _ => None,
        };
        world.take_commands(0).into_iter().find_map(why)
    };
    world.notify(0, ControlEvent::Freeze { pair: PairId(1), ticket: 1 });
    for _ in 0..29 {
        assert_eq!(stays(&mut world), None);
        world.pass(1_000_000_000);
    }
    world.pass(1_000_000_000);
    assert_eq!(stays(&mut world), Some(StayReason::Busy));
    assert_eq!(stays(&mut world), None, "it is said once");
    assert!(matches!(world.put(world.name(2, 2), LOW, b"new"), Replied::Written(_)));
    assert_eq!(world.get(LOW), Replied::Value(b"new".to_vec()));
}

/// The copy that its next owner had made for it was thrown away, and made anew beside the next checkpoint.
#[test]
fn pair_leaves_once_its_long_checkpoint_is_over_as_long_as_that_goes_on() {
    let pair = PairId(1);
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    world.load(1, (0..200).map(|key| format!("key {key:05}").into_bytes()));
    world
        .notify(0, ControlEvent::OptionsChanged(Box::new(WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS })));
    let mut image = world.next_image(pair);
    world.notify(0, ControlEvent::Freeze { pair, ticket: 1 });
    let reported = |world: &mut World| {
        let of_leaving =
            |command: &Command| matches!(command, Command::Stays { .. } | Command::Frozen { .. });
        world.take_commands(0).into_iter().find(of_leaving)
    };
    for _ in 0..6 {
        assert!(world.step_image(&mut image, 1), "there are more tree nodes");
        for _ in 0..25 {
            world.turn();
            assert!(reported(&mut world).is_none());
            world.pass(1_000_000_000);
        }
    }
    while world.step_image(&mut image, 64) {}
    world.end_image(image);
    let frozen = (0..10_000).find_map(|_| {
        world.turn();
        reported(&mut world)
    });
    assert!(matches!(frozen, Some(Command::Frozen { pair: PairId(1), ticket: 1, .. })), "{frozen:?}");
}

#[test]
fn list_of_registrations_gets_another_number_when_one_leaves() {
    list_number_rises_when_a_registration_leaves();
}

#[test]
fn pair_that_leaves_is_read_and_written_by_messages_while_it_is_trusted() {
    pair_is_served_until_trust_in_its_registrations_has_ended();
}

#[test]
fn pair_that_leaves_answers_what_it_began() {
    pair_leaves_once_what_was_appended_is_durable_and_answered();
}

/// Its next owner finds all that was answered, results included, while the first one's lease holds.
#[test]
fn pair_that_has_left_is_served_by_another_process_beside_the_first() {
    let (mut world, number) = two_pairs();
    let name = world.name(number, number);
    let put = Request::Put(Put { name, condition: Condition::Always, key: HIGH, value: b"last" });
    let id = world.send(&put);
    let first = world.answer(id);
    assert!(matches!(first, Replied::Written(_)));
    let cut = leave(&mut world);
    assert_eq!(world.worker().pairs().count(), 1);
    world.hand_to_second(SECOND.0, cut);
    let again = world.send_to(1, &put);
    assert_eq!(world.answer_of(1, again), first, "the result went along");
    let get = world.send_to(1, &Request::Get { key: HIGH });
    assert_eq!(world.answer_of(1, get), Replied::Value(b"last".to_vec()));
    assert_eq!(world.get(LOW), Replied::Value(b"old".to_vec()));
    let wrong = world.send(&Request::Get { key: HIGH });
    let answer = world.answer(wrong);
    assert!(matches!(answer, Replied::Other | Replied::Refused(StatusCode::NotOwner)), "{answer:?}");
    assert_eq!(world.violation(), None);
}

#[test]
fn pair_without_a_log_or_of_another_node_stays() {
    let pair = PairOptions { durability: Durability::None, ..OPTIONS.pair };
    let mut world = World::new(1, GEOMETRY, WorkerOptions { pair, ..OPTIONS });
    for (pair, why) in [(PairId(1), StayReason::NoLog), (PairId(7), StayReason::NotServed)] {
        world.notify(0, ControlEvent::Leave { pair });
        world.turn();
        let said = world.take_commands(0);
        let stays = |command: &Command| match command {
            Command::Stays { pair: of, why: said } => (*of, *said) == (pair, why),
            _ => false,
        };
        assert!(said.iter().any(stays), "{said:?}");
    }
    assert_eq!(world.get(LOW), Replied::NotFound, "it is served");
}

/// A move has the log kept for its copy: what a checkpoint covers of it is not given back meanwhile, and was
/// waited for until the move had failed.
#[test]
fn pair_whose_log_is_kept_leaves_without_giving_back_what_a_checkpoint_covers() {
    let pair = PairId(1);
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    assert!(matches!(world.put(world.name(1, 1), LOW, b"old"), Replied::Written(_)));
    let options = WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS };
    world.notify(0, ControlEvent::OptionsChanged(Box::new(options)));
    world.notify(0, ControlEvent::KeepLog { pair, keep: true });
    let mut image = world.next_image(pair);
    while world.step_image(&mut image, 64) {}
    world.end_image(image);
    world.notify(0, ControlEvent::Freeze { pair, ticket: 1 });
    frozen_at(&mut world, pair, 1);
}
