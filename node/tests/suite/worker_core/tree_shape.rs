//! The shape of the tree that a node's snapshots show.

use cell_protocol::{
    ClientCounts, ClientEstimates, ClientReport, ReportPolicy, ReportTransport, ReportedRead, ReportedReads,
    Request,
};
use cell_terms::{PairId, SlotIndex};

use crate::worker_core::world::{GEOMETRY, OPTIONS, World};

/// Longer than the time between two rounds.
const ROUND_NS: u64 = 1_100_000_000;

fn key(number: u64) -> Vec<u8> {
    format!("key {:05}", number * 7919 % 10_007).into_bytes()
}

#[test]
fn shape_after_a_split_covers_all_keys_in_order_and_adds_up() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    world.turn();
    let empty = world.worker().snapshot().tree;
    assert_eq!(empty.pairs, [PairId(1), PairId(2)], "a pair that has come is looked at at once");
    assert_eq!((empty.meganodes.len(), empty.meganodes[0].writes_per_second), (1, None));
    let mut number = 1;
    while world.worker().split_counts().finished == 0 {
        number = world.load(number, std::iter::once(key(number)));
        assert!(number < 10_000, "a meganode of 128 tree nodes is split");
    }
    world.pass(ROUND_NS);
    world.turn();
    let tree = world.worker().snapshot().tree;
    let [left, right] = &*tree.meganodes else { panic!("two meganodes: {tree:?}") };
    assert_eq!((&*left.low, &left.high, &right.high), (&b""[..], &Some(right.low.clone()), &None));
    assert_eq!(left.entries + right.entries, number - 1);
    assert_ne!(left.pair, right.pair);
    assert!(left.nodes > 1 && left.nodes < left.nodes_all, "{left:?}");
    assert!(left.writes_per_second.is_some_and(|rate| rate > 0.0), "{left:?}");
    assert_eq!(right.writes_per_second, None, "it was not there at the last round");
    assert_eq!(tree.router.map(|router| router.entries), Some(2));
}

#[test]
fn shape_of_a_tree_at_rest_is_not_made_anew() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    world.load(1, (1..50).map(key));
    let round = |world: &mut World| {
        world.pass(ROUND_NS);
        world.turn();
        world.worker().snapshot().tree
    };
    let busy = round(&mut world);
    let rested = round(&mut world);
    assert_eq!((rested.meganodes[0].entries, rested.meganodes[0].writes_per_second), (49, Some(0.0)));
    assert!(!std::sync::Arc::ptr_eq(&busy, &rested), "the rate has changed");
    assert!(std::sync::Arc::ptr_eq(&rested, &round(&mut world)));
    let replied = world.get(&key(7));
    assert!(round(&mut world).meganodes[0].reads_per_second.is_some_and(|rate| rate > 0.0), "{replied:?}");
}

/// Reports one-sided reads.
fn report(world: &mut World, rows: &[ReportedRead], reads_elsewhere: u64) {
    world.send(&Request::Report(ClientReport {
        client: 7,
        settings_revision: 0,
        interval_ns: ROUND_NS,
        estimates: ClientEstimates::default(),
        in_hand: 0,
        transport: ReportTransport::Shm,
        policy: ReportPolicy::Client,
        counts: ClientCounts::default(),
        reported_reads: ReportedReads::List(rows),
        reads_elsewhere,
        name: "tester",
    }));
}

/// A node whose meganode was split between its two pairs.
fn split_world() -> World {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let mut number = 1;
    while world.worker().split_counts().finished == 0 {
        number = world.load(number, std::iter::once(key(number)));
        assert!(number < 10_000, "a meganode of 128 tree nodes is split");
    }
    for _ in 0..2 {
        world.pass(ROUND_NS);
        world.turn();
    }
    world
}

/// Reads a second of the two meganodes.
fn reads_of_round(world: &mut World) -> [f32; 2] {
    world.pass(ROUND_NS);
    world.turn();
    let tree = world.worker().snapshot().tree;
    let [left, right] = &*tree.meganodes else { panic!("two meganodes: {tree:?}") };
    [left, right].map(|shape| shape.reads_per_second.expect("it was there at the last round"))
}

#[test]
fn one_sided_reads_that_clients_report_are_reads_of_their_meganode_and_of_no_other() {
    let mut world = split_world();
    let tree = world.worker().snapshot().tree;
    let at = |of: usize| (tree.meganodes[of].pair, tree.meganodes[of].slot);
    let router = tree.router.expect("it has one");
    assert_eq!(reads_of_round(&mut world), [0.0, 0.0]);
    let (pair, slot) = at(1);
    let reported = |pair, slot, reads| ReportedRead { pair, slot, reads };
    let rows = [
        reported(PairId(77), SlotIndex(0), 10),
        reported(router.pair, router.slot, 100),
        reported(pair, SlotIndex(u32::MAX), 1_000),
        reported(pair, slot, 5_000),
    ];
    report(&mut world, &rows, 10_000);
    let [first, second] = [reads_of_round(&mut world), reads_of_round(&mut world)];
    for [left, right] in [first, second] {
        assert_eq!(left, 0.0);
        assert!(right > 2_000.0 && right < 2_500.0, "{right} a second, and 5,000 within two rounds");
    }
    let totals = world.worker().snapshot().client_totals;
    assert_eq!((totals.reported_reads, totals.unattributed_reads), (5_000, 11_110));
    assert_eq!(reads_of_round(&mut world), [0.0, 0.0], "reported once, counted once");
    let (pair, slot) = at(0);
    report(&mut world, &[reported(pair, slot, 1)], 0);
    let [left, right] = reads_of_round(&mut world);
    assert!(left > 0.0 && right == 0.0, "{left}, {right}");
}

#[test]
fn no_client_reports_more_reads_than_can_have_been() {
    let mut world = split_world();
    let tree = world.worker().snapshot().tree;
    let (left, right) = (&tree.meganodes[0], &tree.meganodes[1]);
    let most = |of: &cell_node::MeganodeShape| ReportedRead { pair: of.pair, slot: of.slot, reads: u64::MAX };
    for _ in 0..5 {
        report(&mut world, &[most(left), most(right), most(left)], u64::MAX);
    }
    let [left, right] = reads_of_round(&mut world);
    assert!(left > 0.0 && left <= 1.1e8, "{left}: as many as a second may have");
    assert_eq!(right, 0.0, "nothing was left for it");
    reads_of_round(&mut world);
    report(&mut world, &[ReportedRead { reads: 500, ..most(&tree.meganodes[1]) }], 0);
    let [left, right] = reads_of_round(&mut world);
    assert!(left == 0.0 && right > 0.0, "{left}, {right}: the next report counts again");
}
