//! The shape of the tree that a node's snapshots show.

use cell_terms::PairId;

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
