//! Splits of a meganode as a pair carries them out: what each step changes in table, log and memory.

use cell_pair::{Adoption, AdoptionRange, AdoptionStep, Fencing};
use cell_recovery::{SplitName, SplitRecord, TargetState};
use cell_terms::{Pointer, Root, SlotIndex};
use cell_tree::{LeafEntry, NodeIndex, ReadError};

use crate::owner::{Owner, PAIR, SLOT, key, value};

const ENTRIES: usize = 300;

/// A split whose upper half has gone into another slot of the pair.
struct Split {
    name: SplitName,
    key: Vec<u8>,
    slot: SlotIndex,
}

/// Begins a split at a key that is a fence.
fn start(owner: &mut Owner, key: Vec<u8>) -> Split {
    let slot = owner.pair.free_slots().next().unwrap();
    assert!(owner.pair.reserve_slot(slot), "{slot} is free");
    let start = SplitRecord::Start { slot: SLOT, key: &key, target: PAIR, target_slot: slot };
    let csn = owner.pair.try_step(start, key.len()).unwrap();
    owner.settle();
    Split { name: SplitName { pair: PAIR, epoch: owner.pair.epoch(), csn }, key, slot }
}

fn adoption(owner: &mut Owner, split: &Split) -> Adoption {
    let durable = owner.pair.durable();
    let kept = owner.pair.completions().parts(durable, 4_000);
    let low = split.key.clone().into_boxed_slice();
    let (name, slot, right) = (split.name, split.slot, Pointer::NULL);
    let range = AdoptionRange { name, slot, low, high: None, right, merges: false };
    let mut adoption = Adoption::new(range, kept);
    while !owner.pair.begin_adoption(&mut adoption) {
        owner.settle();
    }
    adoption
}

/// Copies the upper half; all of that is durable.
fn adopt(owner: &mut Owner, split: &Split) {
    let mut adoption = adoption(owner, split);
    let source = owner.pair.source_view(SLOT);
    loop {
        match owner.pair.adopt(&mut adoption, &source, 1_000).unwrap() {
            AdoptionStep::More => {}
            AdoptionStep::Waits => owner.settle(),
            AdoptionStep::Whole(_) => break,
            AdoptionStep::Full(why) => panic!("{why:?}"),
        }
    }
    owner.settle();
}

fn step(owner: &mut Owner, record: SplitRecord<'_>) {
    assert_eq!(owner.pair.try_step(record, 0), Some(owner.pair.appended()));
}

fn truncate(owner: &mut Owner, split: &Split) {
    let right = owner.pair.pointer_to(PAIR, split.slot);
    let (grace, adopted) = (owner.pair.figures().grace_bytes, owner.pair.weight(split.slot).1);
    let before = owner.pair.weight(SLOT).1;
    let mut half = owner.pair.truncate(split.name, SLOT, &split.key, right, None).unwrap().unwrap();
    let left = owner.pair.weight(SLOT).1;
    assert!(left > 0 && adopted > 0 && left < before);
    let mut parts = 1;
    while !owner.pair.rest_truncated_half(&mut half, 7) {
        parts += 1;
    }
    assert!(parts > 5, "a part at a time: {parts}");
    assert_eq!(owner.pair.figures().grace_bytes - grace, before - left, "all of the half's extents rest");
}

fn show(owner: &mut Owner, slot: SlotIndex) {
    let (mut from, mut turns) = (Some(NodeIndex::ROOT), 0);
    while let Some(at) = from {
        from = owner.pair.show(slot, at, 2);
        turns += 1;
    }
    assert!(turns > 2, "some tree nodes a turn: {turns}");
}

/// Each entry is where its key belongs, once.
fn expect_entries(owner: &Owner, split: &Split) {
    let mut upper = 0;
    for number in 0..ENTRIES {
        let name = key(number);
        let there = if name < split.key { SLOT } else { split.slot };
        assert_eq!(owner.value(there, &name), value(number));
        upper += u64::from(there == split.slot);
    }
    let weight = |slot| owner.pair.weight(slot).0;
    assert_eq!((weight(SLOT), weight(split.slot)), (ENTRIES as u64 - upper, upper));
    assert_eq!(owner.pair.figures().entries, ENTRIES as u64);
    let beyond = owner.pair.meganode(SLOT).search(&split.key).unwrap_err();
    assert_eq!(beyond, ReadError::Beyond(owner.pair.pointer(split.slot)));
    let right = owner.pair.pointer(split.slot);
    assert_eq!((owner.pair.right_of(SLOT), owner.pair.right_of(split.slot)), (Some(right), None));
}

#[test]
fn split_moves_the_upper_half_and_leaves_each_entry_in_one_place() {
    let mut owner = Owner::new();
    owner.put_entries(ENTRIES);
    assert!(owner.pair.is_settled(SLOT));
    let key = owner.pair.split_key(SLOT, 50).unwrap();
    let split = start(&mut owner, key);
    assert!(!owner.pair.is_settled(SLOT));
    adopt(&mut owner, &split);
    let hidden = owner.pair.meganode(split.slot).search(&split.key).unwrap_err();
    assert_eq!(hidden, ReadError::NotHere, "no reader's business yet");
    assert_eq!(owner.pair.figures().entries, ENTRIES as u64, "it counts once");
    step(&mut owner, SplitRecord::Linked { name: split.name });
    owner.settle();
    truncate(&mut owner, &split);
    assert!(owner.pair.has_resting(SLOT) && !owner.pair.has_resting(split.slot));
    show(&mut owner, split.slot);
    assert!(!owner.pair.is_settled(split.slot), "it takes no writes");
    step(&mut owner, SplitRecord::Opened { name: split.name });
    step(&mut owner, SplitRecord::Finished { name: split.name });
    owner.settle();
    assert!(owner.pair.is_settled(SLOT) && owner.pair.is_settled(split.slot));
    expect_entries(&owner, &split);
    owner.rest();
    assert!(!owner.pair.has_resting(SLOT) && owner.pair.figures().grace_bytes == 0);
    owner.pair.forget_split(split.name);
    assert!(owner.pair.split_table().target(split.name).is_none());
    assert_eq!(owner.pair.leaf_slots(), [SLOT, split.slot]);
    assert_eq!(owner.pair.used_slots(), [SLOT, split.slot]);
    let mut owner = owner.crash();
    expect_entries(&owner, &split);
    assert_eq!(owner.repeat_all(), ENTRIES);
}

/// A crash would bring the split back to where it can be aborted, and its upper half would be gone.
#[test]
#[should_panic(expected = "is truncated before it is linked durably")]
fn half_is_not_truncated_before_its_link_is_durable() {
    let mut owner = Owner::new();
    owner.put_entries(ENTRIES);
    let key = owner.pair.split_key(SLOT, 50).unwrap();
    let split = start(&mut owner, key);
    adopt(&mut owner, &split);
    step(&mut owner, SplitRecord::Linked { name: split.name });
    truncate(&mut owner, &split);
}

#[test]
#[should_panic(expected = "is truncated before it is linked durably")]
fn half_is_not_truncated_before_its_link() {
    let mut owner = Owner::new();
    owner.put_entries(ENTRIES);
    let key = owner.pair.split_key(SLOT, 50).unwrap();
    let split = start(&mut owner, key);
    adopt(&mut owner, &split);
    truncate(&mut owner, &split);
}

#[test]
fn key_within_a_leaf_becomes_a_fence_at_which_its_meganode_can_be_split() {
    let mut owner = Owner::new();
    owner.put_entries(ENTRIES);
    let fence = owner.pair.split_key(SLOT, 50).unwrap();
    // The second of a leaf's entries.
    let within = (0..ENTRIES).map(key).filter(|key| *key >= fence).nth(1).unwrap();
    let before = owner.pair.appended();
    assert_eq!(owner.pair.fence(SLOT, &within).unwrap(), Fencing::Done);
    let made = owner.pair.appended();
    assert!(made > before);
    assert_eq!(owner.pair.fence(SLOT, &within).unwrap(), Fencing::Done, "it is one");
    assert_eq!(owner.pair.appended(), made);
    let split = start(&mut owner, within);
    adopt(&mut owner, &split);
    step(&mut owner, SplitRecord::Linked { name: split.name });
    owner.settle();
    truncate(&mut owner, &split);
    show(&mut owner, split.slot);
    step(&mut owner, SplitRecord::Opened { name: split.name });
    expect_entries(&owner, &split);
}

#[test]
fn slot_is_given_once() {
    let mut owner = Owner::new();
    assert!(!owner.pair.reserve_slot(SLOT), "it holds the meganode");
    let free: Vec<SlotIndex> = owner.pair.free_slots().collect();
    assert_eq!(free, (1..owner.pair.slot_count()).map(SlotIndex).collect::<Vec<_>>());
    assert!(owner.pair.reserve_slot(free[0]));
    assert!(!owner.pair.reserve_slot(free[0]), "it is reserved");
    assert_eq!(owner.pair.free_slots().collect::<Vec<_>>(), &free[1..]);
    assert!(!owner.pair.reserve_slot(SlotIndex(owner.pair.slot_count())), "there is no such slot");
}

/// Nothing of it is in memory after the crash, and its slot is the log's until it is discarded.
#[test]
fn adoption_that_a_crash_cut_short_keeps_its_slot_until_it_is_discarded() {
    let mut owner = Owner::new();
    owner.put_entries(ENTRIES);
    let key = owner.pair.split_key(SLOT, 50).unwrap();
    let split = start(&mut owner, key);
    drop(adoption(&mut owner, &split));
    owner.settle();
    let mut owner = owner.crash();
    let is_free = |owner: &Owner| owner.pair.free_slots().any(|free| free == split.slot);
    let state = |owner: &Owner| owner.pair.split_table().target(split.name).map(|split| split.state);
    assert_eq!((is_free(&owner), state(&owner)), (false, Some(TargetState::Adopting)));
    assert!(owner.pair.discard(split.name, split.slot));
    assert_eq!((is_free(&owner), state(&owner)), (true, Some(TargetState::Discarded)));
    assert!(!owner.pair.has_resting_slot(), "there is nothing to rest");
    owner.settle();
    owner.rest();
    assert_eq!((is_free(&owner), state(&owner)), (true, None));
}

#[test]
fn adoption_that_is_discarded_gives_back_slot_and_extents_when_they_have_rested() {
    let mut owner = Owner::new();
    owner.put_entries(ENTRIES);
    let live = owner.pair.figures().extents_live_bytes;
    let key = owner.pair.split_key(SLOT, 50).unwrap();
    let split = start(&mut owner, key);
    adopt(&mut owner, &split);
    let bytes = owner.pair.weight(split.slot).1;
    assert_eq!(owner.pair.figures().extents_live_bytes, live + bytes);
    assert!(owner.pair.discard(split.name, split.slot));
    assert_eq!((owner.pair.figures().grace_bytes, owner.pair.has_resting_slot()), (bytes, true));
    owner.settle();
    owner.rest();
    let figures = owner.pair.figures();
    assert_eq!((figures.grace_bytes, figures.extents_live_bytes), (0, live));
    assert!(!owner.pair.has_resting_slot() && owner.pair.free_slots().any(|free| free == split.slot));
    assert_eq!(owner.pair.leaf_slots(), [SLOT]);
    let owner = owner.crash();
    assert!((0..ENTRIES).all(|number| owner.value(SLOT, &crate::owner::key(number)) == value(number)));
}

#[test]
fn router_is_what_the_root_leads_to_and_one_that_it_does_not_lead_to_can_be_freed() {
    let mut owner = Owner::new();
    let slots: Vec<SlotIndex> = owner.pair.free_slots().take(2).collect();
    let [slot, spare] = slots[..] else { panic!("{slots:?}") };
    assert!(owner.pair.begin_router(slot) && owner.pair.begin_router(spare));
    let (to, router) = (owner.pair.pointer(SLOT), owner.pair.pointer(slot));
    let routed = owner.pair.route(slot, b"", to).unwrap();
    assert_eq!(routed, owner.pair.appended());
    assert_eq!(owner.pair.route(slot, b"", to).unwrap(), routed, "it knows that");
    assert_eq!((owner.pair.appended(), owner.pair.router()), (routed, None));
    assert_eq!(owner.pair.set_root(Root::router(router)), Some(routed.next()));
    assert_eq!((owner.pair.router(), owner.pair.root()), (Some(slot), Root::router(router)));
    assert_eq!(owner.pair.leaf_slots(), [SLOT]);
    assert_eq!(owner.pair.used_slots(), [SLOT, slot, spare]);

    assert!(owner.pair.free_router(spare));
    let is_free = |owner: &Owner| owner.pair.free_slots().any(|free| free == spare);
    assert_eq!((owner.pair.has_resting_slot(), is_free(&owner)), (true, false));
    owner.settle();
    owner.rest();
    assert_eq!((owner.pair.has_resting_slot(), is_free(&owner)), (false, true));
    let owner = owner.crash();
    assert_eq!((owner.pair.router(), is_free(&owner)), (Some(slot), true));
    assert_eq!(owner.search(slot, &[0]).entry, Some(LeafEntry::to_meganode(to)));
}
