//! What laid-out pairs begin with: it follows from the layout, and a second recovery makes the same again.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use crate::owner;
use cell_cluster::{ClaimReason, Layout, PairGeometry, Sim};
use cell_recovery::{Recovered, SlotUse};
use cell_terms::{PairId, Pointer, Root, SlotIndex};
use cell_test_kit::{Process, finish};
use cell_tree::{Meganode, MeganodeRole, NodeIndex, Slot};
use cell_wal::sim::SimDisk;

use crate::owner::{GEOMETRY, start};

const SIZES: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + 6 * (64 << 10),
    extent_region_bytes: 1 << 20,
    slot_bytes: 64 << 10,
    node_bytes: 512,
};

fn recover(life: &Process, pair: u32) -> Recovered {
    finish(life.claim(PairId(pair), ClaimReason::LeaseEnded).unwrap()).unwrap()
}

/// Low, high, right link and place of every meganode of entries.
type Ranges = Vec<(Vec<u8>, Option<Vec<u8>>, Pointer, Pointer)>;

fn ranges(recovered: &Recovered) -> Ranges {
    let leaves = recovered.meganodes.iter().filter(|found| found.used == SlotUse::Leaf);
    let place = |slot| recovered.geometry.pointer(slot, NodeIndex::ROOT);
    leaves.map(|found| (found.low.clone(), found.high.clone(), found.right, place(found.slot))).collect()
}

#[test]
fn restore_new_pairs_of_a_layout_join_to_all_keys_twice() {
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let layout = Layout::even(3, 4);
    let mut before = None;
    for _ in 0..2 {
        let life = start(&disk, &sim, 1);
        life.environment.table.lay_out(&layout, SIZES, life.lease).unwrap();
        let pairs: Vec<_> = (1..=3).map(|pair| recover(&life, pair)).collect();
        let mut all: Ranges = pairs.iter().flat_map(ranges).collect();
        all.sort();
        assert_eq!(all.len(), 12);
        assert!(all[0].0.is_empty());
        for (one, next) in all.iter().zip(&all[1..]) {
            assert_eq!((one.1.as_ref(), one.2), (Some(&next.0), next.3));
        }
        assert_eq!((&all[11].1, all[11].2), (&None, Pointer::NULL));
        assert_router(&pairs, &all);
        assert_eq!(*before.get_or_insert_with(|| all.clone()), all);
        life.crash();
        sim.advance(500 * owner::MS);
    }
}

fn assert_router(pairs: &[Recovered], all: &Ranges) {
    let slot = Slot { region: PairId(1).node_region(), index: SlotIndex(4) };
    let place = pairs[0].geometry.pointer(slot, NodeIndex::ROOT);
    assert_eq!(
        pairs.iter().map(|pair| pair.root).collect::<Vec<_>>(),
        [Root::router(place), Root::NONE, Root::NONE]
    );
    let router = Meganode::new(pairs[0].memory.node.region(), pairs[0].geometry, slot);
    let router = router.with_role(MeganodeRole::Router);
    for (low, _, _, there) in all {
        for key in [[low, &b"0"[..]].concat(), [low, &[0][..]].concat()] {
            assert_eq!(
                router.predecessor(&key).unwrap().map(|entry| entry.meganode()),
                Some(*there),
                "{key:?}"
            );
        }
    }
}

#[test]
fn lay_out_twice_or_beside_pairs_changes_nothing() {
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let life = start(&disk, &sim, 1);
    let table = &life.environment.table;
    assert_eq!(table.layout().unwrap(), Layout::single());
    table.lay_out(&Layout::even(2, 1), SIZES, life.lease).unwrap();
    table.lay_out(&Layout::even(5, 3), SIZES, life.lease).unwrap();
    assert_eq!(table.layout().unwrap(), Layout::even(2, 1));
    let (rows, _) = table.pairs().unwrap();
    assert_eq!(
        rows.iter().map(|row| (row.pair.0, row.node.0, row.owner)).collect::<Vec<_>>(),
        [(1, 0, None), (2, 1, None)]
    );
    let other = Sim::new(8);
    let life = start(&disk, &other, 1);
    let _ = life.create(GEOMETRY);
    life.environment.table.lay_out(&Layout::even(2, 1), SIZES, life.lease).unwrap();
    assert_eq!(life.environment.table.pairs().unwrap().0.len(), 1);
    assert_eq!(life.environment.table.layout().unwrap(), Layout::single());
}
