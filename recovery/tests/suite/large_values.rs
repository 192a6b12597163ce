//! Leaves that lead to more bytes than a block of an image holds. A checkpoint of one aborted the node, and
//! the next one again, for ever.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a helper of a test that fails fails the test"
)]

use std::sync::Arc;

use cell_cluster::{ClaimReason, PairGeometry, Sim};
use cell_memory::extent::VALUE_BYTES_MAX;
use cell_memory::{Budget, MemoryError};
use cell_random::Random;
use cell_recovery::image::{ImageError, SECTION_EXTENTS, write_image};
use cell_recovery::{RecoveryError, Restore};
use cell_terms::{Durability, SessionId, SlotIndex};
use cell_test_kit::Process;
use cell_wal::LogOptions;
use cell_wal::image::{BLOCK_BYTES_MAX, ImageReader};
use cell_wal::sim::SimDisk;

use crate::cluster::{Cluster, SIZES, Sizes};
use crate::owner::{MS, Owner, PAIR, start};

const LONGEST: usize = VALUE_BYTES_MAX as usize;
/// As many bytes of values as a test puts into one leaf.
const LEAF_BYTES: usize = 64 << 20;
/// Beyond the extent by which a block is closed it has less than this.
const BLOCK_REST_BYTES: usize = 1 << 20;

/// Large tree nodes, so that all entries are in one leaf.
const GEOMETRY: PairGeometry = PairGeometry {
    node_region_bytes: 4096 + (256 << 10),
    extent_region_bytes: 256 << 20,
    slot_bytes: 256 << 10,
    node_bytes: 4096,
};

fn key(number: usize) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

/// Of every two values one does not shrink.
fn value(number: usize, bytes: usize) -> Vec<u8> {
    if number.is_multiple_of(2) {
        return vec![number as u8; bytes];
    }
    let mut random = Random::new(number as u64);
    let mut value: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    value.truncate(bytes);
    value
}

/// Logs as a node has them by default: values of every permitted length go into them.
fn publish(life: &Process, restore: Restore, session: SessionId) -> Owner {
    let mut request = life.publish_request(Durability::Sync);
    request.log = LogOptions::default();
    let (recovered, device) = life.publish_as(restore, &request).unwrap();
    Owner::of(life, recovered, device, session)
}

fn put(owner: &mut Owner, key: &[u8], value: &[u8]) {
    let written = (0..100).any(|_| {
        let written = owner.put(key, value);
        if !written {
            owner.settle();
        }
        written
    });
    assert!(written, "there is room for a value of {} bytes", value.len());
}

/// So many values of a length in one leaf; a checkpoint, a write after it, and a restore by each way.
fn leaf_of(count: usize, bytes: usize) {
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let life = start(&disk, &sim, 1);
    let session = life.environment.sessions.open(life.lease).unwrap();
    let mut owner = publish(&life, life.restore(life.create(GEOMETRY)).unwrap(), session);
    (0..count).for_each(|number| put(&mut owner, &key(number), &value(number, bytes)));
    owner.settle();
    assert_eq!(owner.nodes_end(), 1, "all are in one leaf");
    owner.begin_checkpoint();
    owner.end_checkpoint();
    put(&mut owner, b"later", b"replayed");
    owner.settle();
    let row = life.environment.table.pair(PAIR).unwrap();
    let image = ImageReader::open(&disk.process(), &row.checkpoint.unwrap().file).unwrap();
    let extents = || image.blocks().iter().filter(|block| block.section == SECTION_EXTENTS);
    assert_eq!(extents().map(|block| block.items as usize).sum::<usize>(), count);
    assert!(extents().all(|block| (block.raw_bytes as usize) < bytes + BLOCK_REST_BYTES));
    let mut model = owner.model.clone();
    life.crash();
    for threads in [1, 3] {
        let life = start(&disk, &sim, threads);
        let restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
        let (recovered, _) = life.publish(restore, Durability::Sync).unwrap();
        model.check(&recovered);
        life.crash();
    }
}

#[test]
fn image_has_every_value_of_a_leaf_whatever_their_length_and_number() {
    for bytes in [0, 1, 100, (512 << 10) - 24, 1_000_000, 4 << 20, LONGEST - 1, LONGEST] {
        for count in [1, 3, 16, 40] {
            if count * bytes <= LEAF_BYTES {
                println!("{count} values of {bytes} bytes");
                leaf_of(count, bytes);
            }
        }
    }
}

/// Entries move to other meganodes, within a pair and to another one, with extents that have more before
/// their values.
#[test]
fn image_has_every_large_value_of_a_split_and_an_adoption() {
    const VALUE_BYTES: usize = 6 << 20;
    let geometry = PairGeometry { extent_region_bytes: 512 << 20, ..SIZES };
    let sizes = Sizes { geometry, value_bytes: VALUE_BYTES, log: Some(LogOptions::default()) };
    for pairs in [1, 2] {
        let (disk, sim) = (SimDisk::new(1), Sim::new(7));
        let mut cluster = Cluster::create_of(&disk, &sim, pairs, None, sizes);
        for number in 0..24 {
            cluster.put(&key(number), &value(number, VALUE_BYTES)).unwrap();
        }
        cluster.settle().unwrap();
        cluster.split(0, SlotIndex(0), cluster.pairs.len() - 1).unwrap();
        cluster.settle().unwrap();
        for at in 0..cluster.pairs.len() {
            let blocks = cluster.checkpoint(at);
            assert!(blocks.iter().all(|block| (block.raw_bytes as usize) < VALUE_BYTES + BLOCK_REST_BYTES));
            let bytes: usize = blocks.iter().map(|block| block.raw_bytes as usize).sum();
            assert!(bytes > BLOCK_BYTES_MAX, "pair {at} has {bytes} bytes");
        }
        cluster.put(b"key 999", b"later").unwrap();
        cluster.settle().unwrap();
        cluster.life.crash();
        cluster.recover(&disk, &sim, None).check_recovered();
    }
}

/// The writer replaces large values, and their places are used again at once, while a copier is amid the leaf
/// that leads to them.
#[test]
fn checkpoint_of_large_values_taken_while_the_owner_writes_recovers() {
    const KEYS: usize = 40;
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let life = start(&disk, &sim, 1);
    let session = life.environment.sessions.open(life.lease).unwrap();
    let geometry = PairGeometry { extent_region_bytes: 48 << 20, ..GEOMETRY };
    let mut owner = publish(&life, life.restore(life.create(geometry)).unwrap(), session);
    let value = |round: usize| value(round, 200_000 + round % 7 * 90_000);
    (0..KEYS).for_each(|number| put(&mut owner, &key(number), &value(number)));
    for round in 0..4 {
        owner.settle();
        let (source, base, ends) = (owner.pair.source(), owner.pair.image_base(), owner.pair.slot_ends());
        let (csn_base, storage) = (base.csn, Arc::clone(&owner.storage));
        let image = std::thread::scope(|scope| {
            let copier = scope.spawn(|| write_image(&source, storage, 1, base, &|slot| ends.end(slot)));
            let mut writes = 0;
            while !copier.is_finished() || writes < 60 {
                let number = round * 1_000 + writes;
                put(&mut owner, &key(number * 7 % KEYS), &value(number));
                owner.settle();
                writes += 1;
            }
            copier.join().unwrap().unwrap()
        });
        owner.settle();
        owner.record_image(csn_base, image.csn_max, image.path);
    }
    let mut model = owner.model.clone();
    life.crash();
    let life = start(&disk, &sim, 1);
    let restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
    let (recovered, _) = life.publish(restore, Durability::Sync).unwrap();
    model.check(&recovered);
    assert!(recovered.csn_checkpoint.0 > 0);
}

/// An extent that is not what its leaf says, while nobody changes the leaf, is damage; it was not replaced.
pub fn damaged_extent_fails_the_image() {
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let mut cluster = Cluster::create(&disk, &sim, 1, None);
    for number in 0..5 {
        cluster.put(&key(number), &value(number, 100)).unwrap();
    }
    cluster.settle().unwrap();
    cluster.damage(&key(3));
    let mut copy = cluster.begin_image(0);
    let copied = copy.step(&|slot| cluster.pairs[0].nodes_end(slot), u32::MAX);
    assert!(matches!(copied, Err(ImageError::Damaged { .. })), "{copied:?}");
    copy.abandon();
}

#[test]
fn image_of_a_pair_with_a_damaged_extent_is_an_error() {
    damaged_extent_fails_the_image();
}

/// A survivor took what there was, a part after the other, before it declined: its own pairs could not grow
/// meanwhile.
pub fn takeover_takes_no_memory_for_an_image_that_does_not_fit() {
    const COUNT: usize = 40;
    let (disk, sim) = (SimDisk::new(1), Sim::new(7));
    let life = start(&disk, &sim, 1);
    let session = life.environment.sessions.open(life.lease).unwrap();
    let mut owner = publish(&life, life.restore(life.create(GEOMETRY)).unwrap(), session);
    (0..COUNT).for_each(|number| put(&mut owner, &key(number), &value(number, 256 << 10)));
    owner.settle();
    owner.begin_checkpoint();
    owner.end_checkpoint();
    let mut model = owner.model.clone();
    life.crash();
    let take_over = |limit: u64| {
        sim.advance(500 * MS);
        let mut life = start(&disk, &sim, 1);
        life.environment.budget = Budget::new(limit, 0);
        let restore = life.claim(PAIR, ClaimReason::HostLock).unwrap();
        (life, restore)
    };
    let (life, restore) = take_over(u64::MAX);
    let (recovered, _) = life.publish(restore, Durability::Sync).unwrap();
    let writer = &recovered.memory;
    let taken = writer.node.region().granted_bytes() + writer.extent.region().granted_bytes();
    assert!(taken > (COUNT as u64) * (256 << 10), "{taken}");
    drop(recovered);
    life.crash();
    // A byte too little.
    let (life, mut restore) = take_over(taken - 1);
    let refused = restore.step().unwrap_err();
    assert!(
        matches!(refused, RecoveryError::Memory { source: MemoryError::LimitReached(_), .. }),
        "{refused}"
    );
    let figures = life.environment.budget.figures();
    assert_eq!((figures.regions, figures.refused), (0, 1), "nothing was asked for");
    drop(restore);
    life.crash();
    let (life, restore) = take_over(taken);
    let (recovered, _) = life.publish(restore, Durability::Sync).unwrap();
    model.check(&recovered);
    assert_eq!(life.environment.budget.figures().regions, taken);
}

#[test]
fn takeover_without_memory_for_its_image_declines_before_it_takes_any() {
    takeover_takes_no_memory_for_an_image_that_does_not_fit();
}
