//! The allocator beside a model, and its waste on the paper's sizes.

use std::collections::BTreeMap;

use cell_random::Random;
use proptest::prelude::*;

use super::*;
use crate::error::ReserveError;
use crate::width::index;

/// What is in use: offset in bytes to length.
#[derive(Default)]
struct Model(BTreeMap<u64, u32>);

impl Model {
    fn add(&mut self, region_bytes: u64, offset: ExtentOffset, bytes: u32) {
        let (begin, end) = (byte_offset(offset), byte_offset(offset) + u64::from(bytes));
        assert!(begin >= HEADER_BYTES && end <= region_bytes, "{offset} with {bytes} is outside");
        if let Some((before, length)) = self.0.range(..begin).next_back() {
            assert!(before + u64::from(*length) <= begin, "{offset} overlaps what is before");
        }
        assert!(self.0.range(begin..end).next().is_none(), "{offset} overlaps what is behind");
        self.0.insert(begin, bytes);
    }

    fn remove_nth(&mut self, at: usize) -> Option<(ExtentOffset, u32)> {
        let (&begin, &bytes) = self.0.iter().nth(at.checked_rem(self.0.len())?)?;
        self.0.remove(&begin);
        Some((ExtentOffset(narrow(begin / 16)), bytes))
    }

    fn to_be_moved(&self, allocator: &ExtentAllocator) -> Vec<(ExtentOffset, u32)> {
        let all = self.0.iter().map(|(&begin, &bytes)| (ExtentOffset(narrow(begin / 16)), bytes));
        all.filter(|(offset, bytes)| allocator.is_to_be_moved(*offset, *bytes)).collect()
    }

    fn check(&self, allocator: &ExtentAllocator) {
        allocator.check();
        let stats = allocator.stats();
        assert_eq!(stats.live_extents, self.0.len() as u64);
        assert_eq!(stats.live_bytes, self.0.values().map(|&bytes| u64::from(bytes)).sum());
        for (&begin, &bytes) in &self.0 {
            assert!(allocator.is_allocated(ExtentOffset(narrow(begin / 16)), bytes));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u32),
    Free(usize),
    /// Names slabs and moves so many of their extents; ends that, if it was under way.
    Pack(usize),
}

fn sizes() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 16..600u32, 2 => 600..9_000u32, 2 => 8_000..70_000u32, 1 => 70_000..3_000_000u32]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        30 => sizes().prop_map(Step::Allocate),
        20 => any::<usize>().prop_map(Step::Free),
        1 => (0..80usize).prop_map(Step::Pack),
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn allocator_any_steps_agree_with_the_model(steps in steps(), pages in 1..4096u64) {
        let region_bytes = pages * 4096;
        let mut allocator = ExtentAllocator::new(region_bytes);
        let mut model = Model::default();
        let mut packing = false;
        for step in steps {
            match step {
                Step::Allocate(bytes) => {
                    let expected = allocator.can_allocate(bytes);
                    let offset = allocator.allocate(bytes);
                    prop_assert_eq!(offset.is_some(), expected);
                    if let Some(offset) = offset {
                        model.add(region_bytes, offset, bytes);
                        prop_assert!(allocator.high_water() >= byte_offset(offset) + u64::from(bytes));
                    }
                }
                Step::Free(at) => if let Some((offset, bytes)) = model.remove_nth(at) {
                    allocator.free(offset, bytes);
                    prop_assert!(!allocator.is_allocated(offset, bytes));
                },
                Step::Pack(moves) if !std::mem::take(&mut packing) => {
                    let packable = allocator.packable_bytes();
                    packing = allocator.begin_packing();
                    prop_assert_eq!(packing, packable > 0);
                    for (offset, bytes) in model.to_be_moved(&allocator).into_iter().take(moves) {
                        let Some(to) = allocator.allocate(bytes) else { break };
                        prop_assert!(!allocator.is_to_be_moved(to, bytes));
                        model.0.remove(&byte_offset(offset));
                        allocator.free(offset, bytes);
                        model.add(region_bytes, to, bytes);
                    }
                }
                Step::Pack(_) => allocator.end_packing(),
            }
        }
        model.check(&allocator);
        allocator.end_packing();
        model.check(&allocator);
        let mut restored = restored(region_bytes, &model, 77);
        model.check(&restored);
        prop_assert_eq!(restored.stats(), allocator.stats());
        while let Some((offset, bytes)) = model.remove_nth(3) {
            restored.free(offset, bytes);
            allocator.free(offset, bytes);
        }
        model.check(&allocator);
        prop_assert_eq!(restored.stats(), ExtentAllocator::new(region_bytes).stats());
        prop_assert_eq!(allocator.stats(), restored.stats());
    }

    #[test]
    fn restore_arbitrary_extents_never_overlaps_or_panics(
        extents in proptest::collection::vec((0..70_000u32, sizes()), 0..300),
    ) {
        let region_bytes = 1 << 20;
        let mut restore = ExtentAllocator::restore(region_bytes);
        let mut model = Model::default();
        for (granule, bytes) in extents {
            // Half of them at places that could be right.
            let granule = if granule % 2 == 0 { granule } else { granule / 64 * 64 };
            if restore.reserve(ExtentOffset(granule), bytes).is_ok() {
                model.add(region_bytes, ExtentOffset(granule), bytes);
            }
        }
        let mut allocator = restore.finish();
        model.check(&allocator);
        for bytes in [16, 200, 5_000, 20_000].into_iter().cycle().take(400) {
            if let Some(offset) = allocator.allocate(bytes) {
                model.add(region_bytes, offset, bytes);
            }
        }
        model.check(&allocator);
    }
}

/// A split takes every other extent: half of each slab is free then, and none of it is of use for an extent
/// of another class, until the slabs are packed.
#[test]
fn packing_of_half_empty_slabs_gives_half_of_them_back() {
    const REGION: u64 = 8 << 20;
    let mut allocator = ExtentAllocator::new(REGION);
    let mut model = Model::default();
    while let Some(offset) = allocator.allocate(1016) {
        model.add(REGION, offset, 1016);
    }
    for at in 0..model.0.len() / 2 {
        let (offset, bytes) = model.remove_nth(at).unwrap();
        allocator.free(offset, bytes);
    }
    assert!(!allocator.can_allocate(1032), "another class");
    let before = allocator.stats();
    assert!(before.live_bytes * 2 < before.allocated_bytes + (1 << 16), "{before:?}");
    assert!(before.slots_free_bytes * 20 > before.allocated_bytes * 9, "{before:?}");
    assert!(allocator.packable_bytes() * 20 > before.allocated_bytes * 9);
    let taken = allocator.ranges_taken();
    assert!(allocator.begin_packing());
    let moves = model.to_be_moved(&allocator);
    assert!(moves.len() <= model.0.len() / 2 + 64, "{} of {}", moves.len(), model.0.len());
    for (offset, bytes) in moves {
        let to = allocator.allocate(bytes).unwrap();
        model.0.remove(&byte_offset(offset));
        allocator.free(offset, bytes);
        model.add(REGION, to, bytes);
    }
    assert_eq!(allocator.ranges_taken(), taken, "all of it found free slots");
    allocator.end_packing();
    model.check(&allocator);
    let after = allocator.stats();
    assert_eq!((after.live_bytes, after.live_extents), (before.live_bytes, before.live_extents));
    assert!(after.allocated_bytes * 20 < before.allocated_bytes * 11, "{after:?}");
    assert!(after.slots_free_bytes < 1 << 16 && allocator.packable_bytes() == 0, "{after:?}");
    assert!(!allocator.begin_packing() && allocator.can_allocate(1032));
}

/// Restored in an order that has nothing to do with the one of the allocations.
fn restored(region_bytes: u64, model: &Model, seed: u64) -> ExtentAllocator {
    let mut extents: Vec<_> = model.0.iter().map(|(&begin, &bytes)| (begin, bytes)).collect();
    let mut random = Random::new(seed);
    for i in (1..extents.len()).rev() {
        extents.swap(i, random.index(i + 1));
    }
    let mut restore = ExtentAllocator::restore(region_bytes);
    for (begin, bytes) in extents {
        restore.reserve(ExtentOffset(narrow(begin / 16)), bytes).unwrap();
    }
    restore.finish()
}

/// Fills and churns with extents of the given values; returns the waste after each.
fn wastes(entries: usize, updates: usize, value: impl Fn(&mut Random) -> u64) -> (f64, f64) {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut allocator = ExtentAllocator::new(1 << 30);
    let size = |random: &mut Random| 16 + u32::try_from(value(random)).unwrap();
    let mut live: Vec<_> = (0..entries)
        .map(|_| {
            let bytes = size(&mut random);
            (allocator.allocate(bytes).unwrap(), bytes)
        })
        .collect();
    let filled = allocator.stats().waste();
    // What was freed becomes free again only after a grace period: here, the next 1,000 updates.
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..updates {
        let bytes = size(&mut random);
        let at = random.index(entries);
        let new = (allocator.allocate(bytes).unwrap(), bytes);
        waiting.push_back(std::mem::replace(&mut live[at], new));
        if waiting.len() > 1_000 {
            let (offset, bytes) = waiting.pop_front().unwrap();
            allocator.free(offset, bytes);
        }
    }
    waiting.into_iter().for_each(|(offset, bytes)| allocator.free(offset, bytes));
    allocator.check();
    (filled, allocator.stats().waste())
}

#[test]
fn waste_on_the_papers_values_is_under_15_percent() {
    for entries in [100_000, 300_000] {
        let (filled, churned) = wastes(entries, 4 * entries, |random| 8 + random.below(249));
        println!("{entries} entries: waste {:.2} % filled, {:.2} % churned", filled * 100.0, churned * 100.0);
        assert!(filled < 0.15 && churned < 0.15, "{filled} {churned}");
    }
}

#[test]
fn waste_on_mixed_values_up_to_64_kib_is_under_15_percent() {
    // As many of each power of two.
    let value = |random: &mut Random| {
        let power = random.below(10);
        (64 << power) + random.below(64 << power)
    };
    let (filled, churned) = wastes(30_000, 100_000, value);
    println!("mixed: waste {:.2} % filled, {:.2} % churned", filled * 100.0, churned * 100.0);
    assert!(filled < 0.15 && churned < 0.15, "{filled} {churned}");
}

#[test]
fn churn_of_all_sizes_at_80_percent_never_fails() {
    const REGION: u64 = 256 << 20;
    let mut allocator = ExtentAllocator::new(REGION);
    let mut random = Random::new(23);
    let mut live: Vec<(ExtentOffset, u32)> = Vec::new();
    for step in 0..600_000 {
        // By number nearly all are small, by bytes about half.
        let power = if random.below(100) == 0 { 8 + random.below(10) } else { random.below(6) };
        let bytes = 16 + u32::try_from((8 << power) + random.below(8 << power)).unwrap();
        while allocator.stats().live_bytes + u64::from(bytes) > REGION / 5 * 4 {
            let at = random.index(live.len());
            let (offset, bytes) = live.swap_remove(at);
            allocator.free(offset, bytes);
        }
        let offset = allocator.allocate(bytes).unwrap_or_else(|| panic!("step {step}: no room for {bytes}"));
        live.push((offset, bytes));
    }
    allocator.check();
    println!("at 80 % live: {:?}, waste {:.2} %", allocator.stats(), allocator.stats().waste() * 100.0);
}

#[test]
fn allocate_until_full_uses_nearly_everything_and_free_gives_all_back() {
    let mut allocator = ExtentAllocator::new(64 << 20);
    let mut random = Random::new(7);
    let mut live = Vec::new();
    let full = loop {
        let bytes = 24 + u32::try_from(random.below(249)).unwrap();
        match allocator.allocate(bytes) {
            Some(offset) => live.push((offset, bytes)),
            None => break bytes,
        }
    };
    assert!(!allocator.can_allocate(full));
    let stats = allocator.stats();
    assert!(stats.live_bytes > stats.capacity_bytes * 85 / 100, "{stats:?}");
    live.into_iter().for_each(|(offset, bytes)| allocator.free(offset, bytes));
    assert_eq!(allocator.stats().allocated_bytes, 0);
    assert_eq!(allocator.stats().free_bytes, (64 << 20) - 4096);
    assert!(allocator.allocate(EXTENT_BYTES_MAX).is_some());
}

#[test]
fn can_allocate_says_what_allocate_does_to_the_last_block() {
    let mut allocator = ExtentAllocator::new(4 << 20);
    for bytes in [200_000, 100] {
        while allocator.can_allocate(bytes) {
            assert!(allocator.allocate(bytes).is_some());
        }
        assert!(allocator.allocate(bytes).is_none());
    }
    assert!(allocator.stats().free_bytes < u64::from(SLAB_BYTES), "{:?}", allocator.stats());
    allocator.check();
}

#[test]
#[should_panic(expected = "freed twice")]
fn free_twice_panics() {
    let mut allocator = ExtentAllocator::new(1 << 20);
    let (offset, _other) = (allocator.allocate(100).unwrap(), allocator.allocate(100).unwrap());
    allocator.free(offset, 100);
    allocator.free(offset, 100);
}

#[test]
#[should_panic(expected = "which is no slot of")]
fn free_with_another_length_panics() {
    let mut allocator = ExtentAllocator::new(1 << 20);
    let offset = allocator.allocate(100).unwrap();
    allocator.free(offset, 200);
}

#[test]
#[should_panic(expected = "which were not allocated so")]
fn free_long_extent_twice_panics() {
    let mut allocator = ExtentAllocator::new(1 << 20);
    let offset = allocator.allocate(100_000).unwrap();
    allocator.free(offset, 100_000);
    allocator.free(offset, 100_000);
}

#[test]
#[should_panic(expected = "no extent has")]
fn allocate_too_long_panics() {
    ExtentAllocator::new(64 << 20).allocate(EXTENT_BYTES_MAX + 1);
}

#[test]
fn reserve_wrong_places_are_distinguished() {
    let mut restore = ExtentAllocator::restore(1 << 20);
    let at = |offset: u32| ExtentOffset(offset / 16);
    let slab = SLAB_BYTES;
    restore.reserve(at(slab), 100).unwrap();
    restore.reserve(at(slab + 112), 97).unwrap();
    restore.reserve(at(4 * slab), 100_000).unwrap();
    let overlap = |offset, bytes| ReserveError::Overlap { offset: at(offset), bytes };
    let misplaced = |offset, bytes| ReserveError::Misplaced { offset: at(offset), bytes };
    let outside = |offset, bytes| ReserveError::OutOfRange { offset: at(offset), bytes };
    let cases = [
        (slab, 100, overlap(slab, 100)),
        (slab + 16, 100, misplaced(slab + 16, 100)),
        (slab, 200, misplaced(slab, 200)),
        (slab + 585 * 112, 100, misplaced(slab + 585 * 112, 100)),
        (slab, 10_000, overlap(slab, 10_000)),
        (3 * slab, 70_000, overlap(3 * slab, 70_000)),
        (4 * slab + 112, 100, overlap(4 * slab, 100)),
        (5 * slab, 100, overlap(5 * slab, 100)),
        (8 * slab + 16, 10_000, misplaced(8 * slab + 16, 10_000)),
        (8 * slab + 16, 300, misplaced(8 * slab + 16, 300)),
        (0, 100, outside(0, 100)),
        (2048, 10_000, outside(2048, 10_000)),
        (16 * slab - 64, 100, outside(16 * slab - 64, 100)),
        (4096 + 112, 100, misplaced(4096 + 112, 100)),
        (slab * 2, 15, ReserveError::Length { bytes: 15 }),
        (slab * 2, EXTENT_BYTES_MAX + 1, ReserveError::Length { bytes: EXTENT_BYTES_MAX + 1 }),
    ];
    for (offset, bytes, expected) in cases {
        let error = restore.reserve(at(offset), bytes).unwrap_err();
        let same_kind = std::mem::discriminant(&error) == std::mem::discriminant(&expected);
        assert!(same_kind, "{offset:#x} {bytes}: {error:?}");
    }
    let allocator = restore.finish();
    allocator.check();
    assert_eq!(allocator.stats().live_extents, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// With units granted one by one, each when something was refused for want of it: nothing is ever placed
    /// where nothing was granted, and everything adds up, also when some are closed of a region in use.
    #[test]
    fn allocator_places_nothing_in_what_is_closed(
        steps in steps(),
        units in 1..12u64,
        again in any::<u16>(),
    ) {
        let region_bytes = units * UNIT_BYTES - 4096;
        let granted = std::cell::RefCell::new(vec![false; index(units)]);
        let is_granted = |range: Range<u64>| granted.borrow()[index(range.start / UNIT_BYTES)];
        let mut allocator = ExtentAllocator::new(region_bytes);
        allocator.close_unless(is_granted);
        prop_assert_eq!(allocator.stats().free_bytes, 0);
        let mut model = Model::default();
        let mut packing = false;
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Allocate(bytes) => {
                    while !allocator.can_allocate(bytes) {
                        prop_assert!(allocator.allocate(bytes).is_none());
                        let Some(closed) = allocator.closed() else { break };
                        let unit = closed.start / UNIT_BYTES;
                        granted.borrow_mut()[index(unit)] = true;
                        allocator.open(closed.end.min((unit + 1) * UNIT_BYTES));
                    }
                    if let Some(offset) = allocator.allocate(bytes) {
                        model.add(region_bytes, offset, bytes);
                        let (begin, end) = (byte_offset(offset), byte_offset(offset) + u64::from(bytes));
                        let units = begin / UNIT_BYTES..end.div_ceil(UNIT_BYTES);
                        prop_assert!(units.into_iter().all(|unit| granted.borrow()[index(unit)]));
                    }
                }
                Step::Free(at) => {
                    if let Some((offset, bytes)) = model.remove_nth(at) {
                        allocator.free(offset, bytes);
                    }
                }
                Step::Pack(_) if !std::mem::take(&mut packing) => packing = allocator.begin_packing(),
                Step::Pack(_) => allocator.end_packing(),
            }
            if at == usize::from(again % 400) {
                // As after a recovery, which grants only what holds something.
                let mut restore = ExtentAllocator::restore(region_bytes);
                granted.borrow_mut().fill(false);
                for (&begin, &bytes) in &model.0 {
                    restore.reserve(ExtentOffset(narrow(begin / 16)), bytes).unwrap();
                    // A slab is used whole.
                    let slab = u64::from(SLAB_BYTES);
                    let end = (begin + u64::from(bytes)).next_multiple_of(slab);
                    let begin = begin / slab * slab;
                    let units = begin / UNIT_BYTES..end.min(region_bytes).div_ceil(UNIT_BYTES);
                    units.into_iter().for_each(|unit| granted.borrow_mut()[index(unit)] = true);
                }
                allocator = restore.finish();
                allocator.close_unless(is_granted);
                packing = false;
            }
            model.check(&allocator);
        }
    }
}

#[test]
fn open_less_than_a_block_opens_nothing_and_past_the_end_all() {
    let mut allocator = ExtentAllocator::new(2 * UNIT_BYTES);
    allocator.close_unless(|range| range.start == 0);
    assert_eq!(allocator.closed(), Some(UNIT_BYTES..2 * UNIT_BYTES));
    allocator.open(UNIT_BYTES + 1023);
    assert_eq!(allocator.stats().closed_bytes, UNIT_BYTES);
    allocator.open(u64::MAX);
    assert_eq!((allocator.stats().closed_bytes, allocator.closed()), (0, None));
    allocator.check();
}
