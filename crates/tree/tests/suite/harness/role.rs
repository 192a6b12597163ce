//! A router and a meganode of entries are not taken for one another.

use cell_terms::{Csn, Pointer};
use cell_tree::{
    Change, Geometry, Image, LeafEntry, Meganode, MeganodeRole, NodeIndex, NodeRef, NodeStep, Plan,
    ReadError, SlotAllocator, apply, empty_router, plan_put,
};

use super::{Memory, SLOT, geometry};

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// A router of several levels, every node of which came about by a split or a push-down, the root apart.
fn router(geometry: Geometry, count: u64) -> (Memory, SlotAllocator) {
    let memory = Memory::new(geometry);
    let mut slots = SlotAllocator::new(geometry.nodes());
    let mut csn = Csn(1);
    let root = empty_router(geometry);
    let fill = Change::Fill { node: NodeIndex::ROOT, image: Image::new(&root) };
    apply(&mut &memory, geometry, SLOT, &fill, csn);
    let mut plan = Plan::new();
    for number in 0..count {
        let words = &memory;
        let meganode = Meganode::new(&words, geometry, SLOT).with_role(MeganodeRole::Router);
        let entry = LeafEntry::to_meganode(Pointer(1 << 40 | number << 12));
        plan_put(&meganode, &mut slots, &key(number * 7 % count), entry, &mut plan).unwrap();
        for change in plan.changes() {
            csn = csn.next();
            apply(&mut &memory, geometry, SLOT, &change, csn);
        }
        plan.commit(&mut slots);
    }
    (memory, slots)
}

/// Whether readers of all ways find what is there, and none of them what is meant for others.
pub(crate) fn routers_are_no_meganodes_of_entries() -> bool {
    for crc in [false, true] {
        let geometry = geometry(512, 400).with_node_crc(crc);
        let (memory, slots) = router(geometry, 1_000);
        let words = &memory;
        let entries = Meganode::new(&words, geometry, SLOT);
        let routers = entries.with_role(MeganodeRole::Router);
        let mut copied = vec![0; geometry.node_words()];
        for node in (0..slots.high_water().0).map(NodeIndex) {
            let copy = entries.copy_node(node, &mut copied).unwrap();
            if !copy.state().is_built() {
                continue;
            }
            let copy = NodeRef::new(geometry, node, copy.words()).unwrap();
            let taken = !matches!(copy.step(&key(500)), NodeStep::NotHere);
            if taken || copy.is_of(MeganodeRole::Data) || !copy.is_of(MeganodeRole::Router) {
                return false;
            }
        }
        let found = |meganode: &Meganode<'_, &Memory>| meganode.search(&key(500)).map(|found| found.entry);
        if found(&entries) != Err(ReadError::NotHere) || !matches!(found(&routers), Ok(Some(_))) {
            return false;
        }
        if entries.validate(true).is_ok() || routers.validate(true).map(|stats| stats.entries) != Ok(1_000) {
            return false;
        }
    }
    true
}
