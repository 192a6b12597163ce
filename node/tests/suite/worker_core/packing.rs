//! Packings of extents: who waits for them, what they keep, and what they leave alone.

use cell_cluster::PairGeometry;
use cell_node::{NodeState, ReadOnlyReason, WorkerOptions};
use cell_pair::{CheckpointFailure, PairOptions};
use cell_protocol::{Condition, Put, Request, StatusCode};
use cell_terms::PairId;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const FULL: Replied = Replied::Refused(StatusCode::ReadOnly);

/// Puts with rising numbers.
struct Writer {
    world: World,
    number: u64,
}

impl Writer {
    fn put(&mut self, key: &str, length: usize) -> Replied {
        self.number += 1;
        let name = self.world.name(self.number, self.number);
        self.world.put(name, key.as_bytes(), &value(key, length))
    }

    fn written(&mut self, key: &str, length: usize) {
        let replied = self.put(key, length);
        assert!(matches!(replied, Replied::Written(_)), "{key}: {replied:?}");
    }

    fn delete(&mut self, key: &str) {
        self.number += 1;
        let name = self.world.name(self.number, self.number);
        assert_eq!(self.world.delete(name, key.as_bytes()), Replied::Deleted);
    }

    fn holds(&mut self, key: &str, length: usize) {
        assert_eq!(self.world.get(key.as_bytes()), Replied::Value(value(key, length)), "{key}");
    }

    fn packings(&self) -> u64 {
        self.world.worker().snapshot().pairs.iter().map(|pair| pair.packings).sum()
    }
}

fn value(key: &str, length: usize) -> Vec<u8> {
    key.bytes().cycle().take(length).collect()
}

fn key(number: u64) -> String {
    format!("key {:05}", number * 7919 % 10_007)
}

/// What deletes, overwrites and splits had left free in slabs of one length was of no use for another: the
/// pair was full with half of its memory free.
#[test]
fn put_of_another_length_waits_for_sparse_slabs_to_be_packed() {
    let slot = PairGeometry { node_region_bytes: 4096 + (512 << 10), slot_bytes: 512 << 10, ..GEOMETRY };
    let mut writer = Writer { world: World::new(1, slot, OPTIONS), number: 0 };
    let mut versions = Vec::new();
    let full = loop {
        match writer.put(&key(versions.len() as u64), 1_000) {
            Replied::Written(version) => versions.push(version),
            replied => {
                assert_eq!(replied, FULL);
                break versions.len() as u64;
            }
        }
    };
    assert!((3_000..4_500).contains(&full), "{full} entries of a kilobyte fill 4 MiB");
    (0..full).filter(|number| number % 2 == 1).for_each(|number| writer.delete(&key(number)));
    let started = writer.packings();
    // Half of the region, in slots that are an eighth longer.
    let others = full * 2 / 5;
    (0..others).for_each(|number| writer.written(&format!("other {number:05}"), 1_100));
    assert!(writer.packings() > started);
    let pair = writer.world.worker().snapshot().pairs[0];
    assert!(pair.packed_bytes > 0 && pair.packed_bytes < pair.extent_region_bytes, "{pair:?}");
    assert_eq!(writer.world.violation(), None);
    for _ in 0..2 {
        let (counted, live) = writer.world.extent_bytes();
        assert_eq!(counted, live, "bytes of extents");
        (0..full)
            .filter(|number| number.is_multiple_of(2))
            .for_each(|number| writer.holds(&key(number), 1_000));
        (0..others).for_each(|number| writer.holds(&format!("other {number:05}"), 1_100));
        writer.world.restart();
    }
    // What was moved is the same version.
    let name = writer.world.name(writer.number + 1, writer.number + 1);
    let (key, condition) = (key(2), Condition::IfVersion(versions[2]));
    let put = Put { name, condition, key: key.as_bytes(), value: b"new" };
    let id = writer.world.send(&Request::Put(put));
    assert!(matches!(writer.world.answer(id), Replied::Written(_)));
}

/// The refused write may not come again. Then nobody had the slabs packed that deletes had left sparse, and
/// the pair called itself full until a write came.
#[test]
fn pair_with_room_in_sparse_slabs_is_not_full_although_nobody_asks() {
    let slot = PairGeometry { node_region_bytes: 4096 + (512 << 10), slot_bytes: 512 << 10, ..GEOMETRY };
    let mut writer = Writer { world: World::new(1, slot, OPTIONS), number: 0 };
    let full = (0..10_000).take_while(|number| writer.put(&key(*number), 1_000) != FULL).count() as u64;
    assert_eq!(writer.put("other", 1_100), FULL);
    let state = |world: &World| world.worker().snapshot().state;
    assert_eq!(state(&writer.world), NodeState::ReadOnly(ReadOnlyReason::RegionFull));
    (0..full).filter(|number| number % 2 == 1).for_each(|number| writer.delete(&key(number)));
    writer.world.until("it serves again", |world| state(world) == NodeState::Serving);
    writer.written("other", 1_100);
}

/// Large entries behind small ones, so that it is they that a split moves; every other one is deleted.
fn sparse_and_split() -> Writer {
    let geometry = PairGeometry { extent_region_bytes: 1 << 20, ..GEOMETRY };
    let pair = PairOptions { split_fill_percent: 40, ..OPTIONS.pair };
    let mut writer = Writer { world: World::new(2, geometry, WorkerOptions { pair, ..OPTIONS }), number: 0 };
    (0..300).for_each(|number| writer.written(&format!("a {number:05}"), 1));
    (0..195).for_each(|number| writer.written(&format!("z {number:05}"), 4_000));
    (0..195).step_by(2).for_each(|number| writer.delete(&format!("z {number:05}")));
    for number in 300.. {
        if writer.world.worker().split_counts().begun > 0 {
            break;
        }
        assert!(number < 3_000, "a slot of 128 tree nodes is split");
        writer.written(&format!("a {number:05}"), 1);
    }
    writer
}

/// A split knows where the extents are that it moves. Wherever it is when a packing is wanted: that waits.
#[test]
pub(crate) fn packing_leaves_what_is_being_split_alone() {
    for turns in 0..14 {
        let mut writer = sparse_and_split();
        assert_eq!(writer.packings(), 0);
        (0..turns).for_each(|_| writer.world.turn());
        // Of another length, below what goes: it takes the last slab.
        writer.written("a", 2_000);
        writer.world.until("the split's end", |world| world.worker().split_counts().finished > 0);
        (0..20).for_each(|_| writer.world.turn());
        assert_eq!(writer.world.violation(), None);
        (1..195).step_by(2).for_each(|number| writer.holds(&format!("z {number:05}"), 4_000));
        writer.holds("a", 2_000);
    }
}

/// An extent that is moved keeps a CSN below that of the image. Wherever the copier is then, the entry is in
/// the image or in the log above it.
#[test]
fn packing_goes_on_while_an_image_is_copied() {
    let slot =
        PairGeometry { node_region_bytes: 4096 + (64 << 10), extent_region_bytes: 1 << 20, ..GEOMETRY };
    for copied in [1, 8, 16] {
        let options = WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS };
        let mut writer = Writer { world: World::new(1, slot, options), number: 0 };
        let full = (0..10_000).take_while(|number| writer.put(&key(*number), 3_000) != FULL).count() as u64;
        (0..full).filter(|number| number % 2 == 1).for_each(|number| writer.delete(&key(number)));
        // The image that the first write began is of no use: one of the full slot is wanted.
        writer.world.image_failed(PairId(1), CheckpointFailure::Busy);
        let mut image = writer.world.next_image(PairId(1));
        assert!(writer.world.step_image(&mut image, copied), "{copied} tree nodes are not all");
        let others = full / 5;
        (0..others).for_each(|number| writer.written(&format!("other {number:05}"), 3_400));
        assert!(writer.packings() > 0);
        while writer.world.step_image(&mut image, 1) {}
        writer.world.end_image(image);
        for _ in 0..2 {
            assert_eq!(writer.world.violation(), None);
            (0..full)
                .filter(|number| number.is_multiple_of(2))
                .for_each(|number| writer.holds(&key(number), 3_000));
            (0..others).for_each(|number| writer.holds(&format!("other {number:05}"), 3_400));
            writer.world.restart();
        }
    }
}
