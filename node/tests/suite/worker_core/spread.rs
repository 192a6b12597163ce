//! Halves that go to other nodes, in pairs that are made for them, and splits that are early.

use std::sync::Arc;

use cell_node::{BalanceRules, Command, ControlEvent, SpreadView};
use cell_placement::{Arrival, BalancePause, Figures, HeldPair, MemberFigures, MemberState, PairLoad};
use cell_terms::{Durability, NodeId, PairId};
use cell_test_kit::NODE;

use crate::worker_core::leave::frozen_at;
use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const OTHER: NodeId = NodeId(NODE.0 + 1);
const MS: u64 = 1_000_000;

fn key(number: u64) -> Vec<u8> {
    format!("key {:05}", number * 7919 % 10_007).into_bytes()
}

fn member(node: NodeId, bytes: u64) -> MemberFigures {
    let held = HeldPair {
        pair: PairId(1_000 + node.0),
        load: Some(PairLoad { bytes, ..PairLoad::default() }),
        held_ms: 3_600_000,
        arrival: Arrival::TakenOver,
        hold: None,
    };
    MemberFigures {
        node,
        state: MemberState::Serving,
        draining: false,
        reported_ms_ago: Some(0),
        serving_ms: 3_600_000,
        memory_left_bytes: 1 << 40,
        writes_wait: false,
        disk_full: false,
        keeps_memory: false,
        pairs_max: 100,
        pairs: vec![held],
    }
}

/// Two nodes; the other one has so many bytes. Nothing splits early.
pub(crate) fn view(bytes: u64) -> SpreadView {
    let members = vec![member(NODE, 0), member(OTHER, bytes)];
    SpreadView {
        node: NODE,
        figures: Figures { members, ..Figures::default() },
        meganodes: 0,
        rules: BalanceRules { early_meganodes: 0, ..BalanceRules::default() },
        pairs_max: 100,
        log_bytes: 0,
        relief_bytes: None,
    }
}

pub(crate) fn show(world: &mut World, view: SpreadView) {
    world.notify(0, ControlEvent::Spread(Some(Arc::new(view))));
}

/// For which node a pair was asked for since this was asked last; none: for none.
fn asked(world: &mut World) -> Option<NodeId> {
    world.take_commands(0).into_iter().find_map(|command| match command {
        Command::AddPair { meant_for } => meant_for,
        _ => None,
    })
}

/// Loads until a pair for another node is asked for: which one, and the next number.
fn load_until_asked(world: &mut World) -> (NodeId, u64) {
    let mut number = 1;
    loop {
        number = world.load(number, std::iter::once(key(number)));
        if let Some(node) = asked(world) {
            return (node, number);
        }
        assert!(number < 5_000, "a half is to go to another node");
    }
}

#[test]
fn split_of_a_node_above_the_mean_goes_into_a_pair_for_another_node() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    show(&mut world, view(0));
    let (node, number) = load_until_asked(&mut world);
    let number = world.load(number, (number..number + 60).map(key));
    assert_eq!(asked(&mut world), None, "one is being made");
    assert_eq!((node, world.worker().split_counts().begun), (OTHER, 0), "it waits for the pair");
    let pair = world.add_pair();
    world.notify(0, ControlEvent::PairAdded { pair, meant_for: Some(node) });
    // Without another write: the pair is filled before it goes.
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    let entries = world.entries();
    assert_eq!(
        (entries.iter().sum::<u64>(), entries[1]),
        (number - 1, 0),
        "the pair with room is left alone"
    );
    assert!(entries[0] * 3 > number && entries[2] * 3 > number, "halves: {entries:?}");
    for number in 1..number {
        assert_eq!(world.get(&key(number)), Replied::Value(key(number)));
    }
}

/// What is to leave gets one half: what is split meanwhile, and finds both nodes even then, stays.
#[test]
fn pair_that_is_to_leave_gets_one_half() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    show(&mut world, view(0));
    let (node, number) = load_until_asked(&mut world);
    let pair = world.add_pair();
    world.notify(0, ControlEvent::PairAdded { pair, meant_for: Some(node) });
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    show(&mut world, view(1 << 30));
    let mut next = number;
    while world.worker().split_counts().finished < 3 {
        next = world.load(next, std::iter::once(key(next)));
        assert!(next < 10_000, "splits go on");
    }
    assert_eq!(asked(&mut world), None);
    assert_eq!(world.worker().pairs().nth(2).unwrap().leaf_slots().len(), 1);
}

#[test]
fn split_stays_where_nothing_speaks_for_another_node() {
    let paused = Figures { pause: Some(BalancePause::Off), ..view(0).figures };
    let mut no_memory = view(0);
    no_memory.figures.members[1].memory_left_bytes = 1 << 20;
    let mut no_place = view(0);
    no_place.figures.members[1].pairs_max = 1;
    let mut drains = view(0);
    drains.figures.members[1].draining = true;
    let mut alone = view(0);
    alone.figures.members.truncate(1);
    let views = [
        ("balance is off", SpreadView { figures: paused, ..view(0) }),
        ("it is below the mean", view(1 << 30)),
        ("the other one has no memory", no_memory),
        ("the other one may hold no more pairs", no_place),
        ("this node may hold no more pairs", SpreadView { pairs_max: 2, ..view(0) }),
        ("the other one drains", drains),
        ("it is alone", alone),
    ];
    for (why, view) in views {
        let mut world = World::new(2, GEOMETRY, OPTIONS);
        show(&mut world, view);
        load_until_split(&mut world);
        world.until("the split's end", |world| world.worker().split_counts().finished == 1);
        assert_eq!(asked(&mut world), None, "{why}");
        assert!(world.entries()[1] > 0, "{why}");
    }
}

#[test]
fn old_view_and_one_that_is_taken_back_count_no_more() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    show(&mut world, view(0));
    world.pass((BalanceRules::default().window_ms + 1) * MS);
    load_until_split(&mut world);
    assert_eq!(asked(&mut world), None);

    let mut world = World::new(2, GEOMETRY, OPTIONS);
    show(&mut world, view(0));
    world.notify(0, ControlEvent::Spread(None));
    load_until_split(&mut world);
    assert_eq!(asked(&mut world), None);
}

/// A copy is made from the log.
#[test]
fn split_of_a_pair_without_a_log_stays() {
    let mut options = OPTIONS;
    options.pair.durability = Durability::None;
    let mut world = World::new(2, GEOMETRY, options);
    show(&mut world, view(0));
    load_until_split(&mut world);
    assert_eq!(asked(&mut world), None);
}

#[test]
fn split_stays_if_the_pair_for_another_node_cannot_be_made() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    show(&mut world, view(0));
    let (_, number) = load_until_asked(&mut world);
    world.notify(0, ControlEvent::PairRefused);
    let mut next = number;
    while world.worker().split_counts().finished == 0 {
        next = world.load(next, std::iter::once(key(next)));
        assert!(next < 10_000, "the split goes elsewhere");
    }
    assert_eq!(asked(&mut world), None);
    assert!(world.entries()[1] > 0);
}

/// What it got after its freeze would be in no log that its next owner reads. What it was made for is divided
/// off once at most, and not again and again.
pub(crate) fn pair_that_is_frozen_gets_no_half() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    show(&mut world, view(0));
    let (node, _) = load_until_asked(&mut world);
    let pair = world.add_pair();
    world.notify(0, ControlEvent::Freeze { pair, ticket: 1 });
    let cut = frozen_at(&mut world, pair, 1);
    world.notify(0, ControlEvent::PairAdded { pair, meant_for: Some(node) });
    (0..1_000).for_each(|_| world.turn());
    assert_eq!(world.worker().pairs().nth(2).unwrap().appended(), cut);
    let started = world.worker().split_counts().begun;
    assert!(started <= 1, "{started} splits");
    assert_eq!(world.violation(), None);
}

#[test]
fn pair_that_was_made_for_another_node_and_is_frozen_gets_no_half() {
    pair_that_is_frozen_gets_no_half();
}

/// A half is to go to another node; meanwhile it goes to a pair that is here, and that split stands still.
pub(crate) fn meganode_that_is_being_split_is_left_alone() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    show(&mut world, view(0));
    let (node, number) = load_until_asked(&mut world);
    world.notify(0, ControlEvent::Spread(None));
    world.hold(Some(1));
    let mut next = number;
    while world.worker().split_counts().begun == 0 {
        next = world.load(next, std::iter::once(key(next)));
        assert!(next < 10_000, "the split goes elsewhere");
    }
    show(&mut world, view(0));
    let pair = world.add_pair();
    world.notify(0, ControlEvent::PairAdded { pair, meant_for: Some(node) });
    for _ in 0..200 {
        world.turn();
        let counts = world.worker().split_counts();
        assert_eq!((counts.begun, counts.finished), (1, 0), "one split of it at a time");
    }
    world.hold(None);
    world.until("its end", |world| world.worker().split_counts().finished >= 1);
    for number in 1..next {
        assert_eq!(world.get(&key(number)), Replied::Value(key(number)));
    }
    assert_eq!(world.violation(), None);
}

#[test]
fn meganode_that_is_being_split_is_not_split_once_more_for_another_node() {
    meganode_that_is_being_split_is_left_alone();
}

/// A second without a request.
fn idle(world: &mut World) {
    for _ in 0..100 {
        world.pass(10 * MS);
        world.turn();
    }
}

/// Without a request a pair for the other node is asked for, and given.
fn give_asked(world: &mut World) {
    idle(world);
    assert_eq!(asked(world), Some(OTHER));
    let pair = world.add_pair();
    world.notify(0, ControlEvent::PairAdded { pair, meant_for: Some(OTHER) });
}

/// A load that was faster than figures are reported: it left all in one pair, which no move makes better, and
/// nothing else splits once it is over.
#[test]
fn pair_that_is_too_large_to_move_is_divided_without_another_write() {
    let rules = BalanceRules { early_meganodes: 0, bytes_floor: 1 << 10, ..BalanceRules::default() };
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let next = world.load(1, (1..300).map(key));
    assert_eq!(asked(&mut world), None);
    show(&mut world, SpreadView { rules: rules.clone(), ..view(0) });
    give_asked(&mut world);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    let entries = world.entries();
    assert!(entries[1] == 0 && entries[2] * 3 > entries[0], "half of it: {entries:?}");
    for number in 1..next {
        assert_eq!(world.get(&key(number)), Replied::Value(key(number)));
    }
    // Both have as much now.
    idle(&mut world);
    assert_eq!((asked(&mut world), world.worker().split_counts().begun), (None, 1));
}

/// Pairs are never merged: one that takes parts of several meganodes is better than several.
#[test]
fn pair_that_is_made_because_another_is_too_large_gets_one_part_after_the_other() {
    let rules = BalanceRules { early_meganodes: 0, bytes_floor: 1 << 10, ..BalanceRules::default() };
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let mut next = load_until_split(&mut world);
    while world.worker().pairs().next().unwrap().leaf_slots().len() < 3 {
        next = world.load(next, std::iter::once(key(next)));
        assert!(next < 10_000, "it splits");
    }
    world.until("all splits' end", |world| world.worker().split_counts().under_way == 0);
    world.take_commands(0);
    // It wanted one more for itself, for which there is no memory.
    world.notify(0, ControlEvent::PairRefused);
    (0..11).for_each(|_| idle(&mut world));
    show(&mut world, SpreadView { rules, ..view(0) });
    give_asked(&mut world);
    (0..5).for_each(|_| idle(&mut world));
    assert_eq!((asked(&mut world), world.worker().split_counts().under_way), (None, 0));
    let (pairs, entries) = (world.worker().pairs(), world.entries());
    assert!(pairs.last().unwrap().leaf_slots().len() >= 2, "parts of several meganodes");
    assert!(entries[1] * 5 > entries[0] * 3, "it ends with both alike: {entries:?}");
    for number in 1..next {
        assert_eq!(world.get(&key(number)), Replied::Value(key(number)));
    }
    assert_eq!(world.violation(), None);
}

/// Half of the only meganode would only make the other node the larger one.
#[test]
fn pair_that_is_too_large_to_move_gives_a_smaller_part_where_half_would_be_too_much() {
    let rules = BalanceRules { early_meganodes: 0, bytes_floor: 1 << 10, ..BalanceRules::default() };
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    world.load(1, (1..300).map(key));
    let bytes = world.worker().pairs().next().unwrap().live_bytes();
    show(&mut world, SpreadView { rules, ..view(bytes / 20 * 9) });
    give_asked(&mut world);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    let entries = world.entries();
    assert!(entries[1] * 2 < entries[0] && entries[1] * 8 > entries[0], "a quarter of it: {entries:?}");
}

/// Such a split is for another node's sake: if nothing can go there, it would only cost.
#[test]
fn pair_that_is_too_large_to_move_stays_whole_where_nothing_can_go_to_another_node() {
    let rules = BalanceRules { early_meganodes: 0, bytes_floor: 1 << 10, ..BalanceRules::default() };
    let mut no_memory = view(0);
    no_memory.figures.members[1].memory_left_bytes = 0;
    let few = BalanceRules { bytes_floor: 1 << 40, ..rules.clone() };
    let views = [
        ("no memory there", SpreadView { rules: rules.clone(), ..no_memory }),
        ("few bytes in all", SpreadView { rules: few, ..view(0) }),
        ("nobody else", {
            let mut alone = SpreadView { rules, ..view(0) };
            alone.figures.members.truncate(1);
            alone
        }),
    ];
    for (why, view) in views {
        let mut world = World::new(2, GEOMETRY, OPTIONS);
        world.load(1, (1..300).map(key));
        show(&mut world, view);
        idle(&mut world);
        assert_eq!((asked(&mut world), world.worker().split_counts().begun), (None, 0), "{why}");
    }
}

/// Entries until the first split begins.
fn entries_until_split(view: Option<SpreadView>) -> u64 {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    view.into_iter().for_each(|view| show(&mut world, view));
    load_until_split(&mut world)
}

#[test]
fn meganode_splits_early_while_the_cluster_has_few() {
    let late = entries_until_split(None);
    // The other one has more bytes, so that the half stays: it is the time that counts.
    let few = |meganodes| SpreadView { meganodes, rules: BalanceRules::default(), ..view(1 << 30) };
    let early = entries_until_split(Some(few(0)));
    assert!(early * 2 < late, "{early} entries, and {late} without");
    assert!(early * 8 > late, "{early} entries, an eighth of a slot, and {late} without");
    assert_eq!(entries_until_split(Some(few(16))), late, "sixteen are enough for two nodes");
    let mut alone = few(0);
    alone.figures.members.truncate(1);
    assert_eq!(entries_until_split(Some(alone)), late, "one node has nobody to spread over");
}
