//! Crash points of splits, compactions and packings, as the worker core has them: the process dies after each
//! operation of its disk in turn, with and without checkpoints, and another takes its pairs over and goes on.
//! Nothing that was acknowledged is lost, nothing is carried out twice, and what was started comes to its
//! end.

use std::collections::{BTreeMap, VecDeque};

use cell_cluster::PairGeometry;
use cell_node::WorkerOptions;
use cell_protocol::{Condition, Delete, Put, Request, WriteName};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const MS: u64 = 1_000_000;
/// Results that the client may still ask for again.
const KEPT: usize = 24;
/// Turns in which a write is answered.
const TURNS: u32 = 10_000;
/// Of the many steps of a compaction, which are all alike, each so many-th crash point is tried.
const COMPACTION_STRIDE: usize = 29;
const PACKING_STRIDE: usize = 13;

fn key(number: u64) -> Vec<u8> {
    format!("key {:05}", number * 7919 % 10_007).into_bytes()
}

/// One of which few fill a tree node: a meganode of them is soon full.
fn long_key(number: u64) -> Vec<u8> {
    format!("{:05} ", number * 7919 % 10_007).repeat(12).into_bytes()
}

/// A key's value: the key, or one of two lengths of different classes.
fn value(key: &[u8]) -> Vec<u8> {
    let length = match key.first() {
        Some(b'm') => 3_000,
        Some(b'o') => 3_400,
        _ => key.len(),
    };
    key.iter().copied().cycle().take(length).collect()
}

/// A write, as the client remembers it.
#[derive(Clone)]
struct Write {
    number: u64,
    floor: u64,
    key: Vec<u8>,
    deletes: bool,
}

/// A client with one write at a time, and what it was answered.
struct Client {
    world: World,
    images: bool,
    number: u64,
    held: BTreeMap<Vec<u8>, bool>,
    kept: VecDeque<(Write, Replied)>,
    unanswered: Option<Write>,
}

impl Client {
    fn new(pairs: u32, geometry: PairGeometry, images: bool) -> Client {
        Client::with(pairs, geometry, images, OPTIONS)
    }

    fn with(pairs: u32, geometry: PairGeometry, images: bool, options: WorkerOptions) -> Client {
        let age_ns = if images { 40 * MS } else { u64::MAX };
        let world = World::new(pairs, geometry, WorkerOptions { checkpoint_age_ns: age_ns, ..options });
        let (held, kept) = (BTreeMap::new(), VecDeque::new());
        Client { world, images, number: 1, held, kept, unanswered: None }
    }

    fn turn(&mut self) {
        self.world.turn();
        if self.images && !self.world.is_dead() {
            self.world.write_images();
        }
    }

    /// Asks, and waits for the answer; none if the process dies before.
    fn ask(&mut self, write: &Write) -> Option<Replied> {
        let name: WriteName = self.world.name(write.number, write.floor);
        let (key, condition) = (write.key.as_slice(), Condition::Always);
        let id = if write.deletes {
            self.world.send(&Request::Delete(Delete { name, condition, key }))
        } else {
            self.world.send(&Request::Put(Put { name, condition, key, value: &value(key) }))
        };
        for _ in 0..TURNS {
            if let Some(replied) = self.world.answered(id) {
                return Some(replied);
            }
            if self.world.is_dead() {
                return None;
            }
            self.turn();
        }
        panic!("write {} is not answered", write.number);
    }

    /// One more write; what it came to, unless the process died.
    fn write(&mut self, key: Vec<u8>, deletes: bool) -> Option<Replied> {
        let floor = self.kept.front().map_or(self.number, |(write, _)| write.number);
        let write = Write { number: self.number, floor, key, deletes };
        self.number += 1;
        let Some(replied) = self.ask(&write) else {
            self.unanswered = Some(write);
            return None;
        };
        if matches!(replied, Replied::Written(_) | Replied::Deleted | Replied::NotFound) {
            self.held.insert(write.key.clone(), !deletes);
            self.kept.push_back((write, replied.clone()));
            if self.kept.len() > KEPT {
                self.kept.pop_front();
            }
        }
        Some(replied)
    }

    /// Another process takes over: everything is as it was answered, and repetitions get the answers of
    /// before.
    fn recover(&mut self, lands_late: bool) {
        if lands_late {
            self.world.land_late();
        }
        self.world.restart();
        self.demand_sound("after the takeover");
        for (write, replied) in self.kept.clone() {
            let again = self.ask(&write);
            assert_eq!(again, Some(replied), "write {} was carried out again", write.number);
        }
        if let Some(write) = self.unanswered.take() {
            let replied = self.ask(&write);
            assert!(
                matches!(replied, Some(Replied::Written(_) | Replied::Deleted | Replied::NotFound)),
                "{replied:?}"
            );
            self.held.insert(write.key, !write.deletes);
        }
        for _ in 0..TURNS {
            if self.splits_under_way() == 0 {
                break;
            }
            self.turn();
        }
        assert_eq!(self.splits_under_way(), 0, "the split never ends");
        self.demand_sound("when all is settled");
        for (key, is_there) in self.held.clone() {
            let expected = if is_there { Replied::Value(value(&key)) } else { Replied::NotFound };
            assert_eq!(self.world.get(&key), expected, "{}", String::from_utf8_lossy(&key));
        }
        let expected = self.held.values().filter(|is_there| **is_there).count() as u64;
        assert_eq!(self.world.entries().iter().sum::<u64>(), expected, "entries");
    }

    fn splits_under_way(&self) -> u64 {
        let counts = self.world.worker().split_counts();
        counts.under_way + counts.merging
    }

    fn demand_sound(&self, when: &str) {
        assert_eq!(self.world.violation(), None, "{when}");
    }
}

/// A split from its beginning to its end, with a death after so many operations of the disk; whether it came.
fn split(pairs: u32, images: bool, dies_after: u64) -> bool {
    let mut client = Client::new(pairs, GEOMETRY, images);
    while client.world.worker().split_counts().begun == 0 {
        assert!(client.number < 10_000, "a meganode of 128 tree nodes is split");
        client.write(key(client.number), false);
    }
    client.world.die_after(dies_after);
    while !client.world.is_dead() && client.world.worker().split_counts().finished == 0 {
        client.write(key(client.number), false);
    }
    let died = client.world.is_dead();
    client.recover(dies_after % 2 == 1);
    client.recover(false);
    died
}

/// Meganodes that are emptied and merged, with a death after so many operations of the disk; whether it came.
/// Deletes of what is gone go to both sides all the while. What is empty rests for a short time: nothing is
/// done to it then.
fn merge(pairs: u32, images: bool, dies_after: u64) -> bool {
    let geometry = PairGeometry { extent_region_bytes: 1 << 20, ..GEOMETRY };
    let mut client =
        Client::with(pairs, geometry, images, WorkerOptions { merge_rest_ns: 100 * MS, ..OPTIONS });
    while client.world.worker().split_counts().finished < 2 {
        assert!(client.number < 10_000, "a meganode of 128 tree nodes is split");
        client.write(long_key(client.number), false);
    }
    let all: Vec<Vec<u8>> = client.held.keys().cloned().collect();
    for key in &all {
        client.write(key.clone(), true);
    }
    client.world.die_after(dies_after);
    let mut keys = all.iter().step_by(7).cycle();
    while !client.world.is_dead() && client.world.worker().split_counts().merged < 2 {
        client.world.pass(20 * MS);
        client.write(keys.next().unwrap().clone(), true);
    }
    let died = client.world.is_dead();
    client.recover(dies_after % 2 == 1);
    for key in all.iter().step_by(5) {
        client.write(key.clone(), false);
    }
    client.recover(false);
    died
}

/// One slot from which most is deleted, with a death after so many operations of the disk; whether it came.
fn compact(images: bool, dies_after: u64) -> bool {
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    let mut client = Client::new(1, slot, images);
    while matches!(client.write(key(client.number), false), Some(Replied::Written(_))) {}
    let full: Vec<Vec<u8>> = client.held.keys().cloned().collect();
    let mut doomed = full.iter().enumerate().filter(|(at, _)| at % 5 != 0);
    for (_, key) in doomed.by_ref().take(full.len() / 2) {
        client.write(key.clone(), true);
    }
    client.world.die_after(dies_after);
    for (_, key) in doomed {
        client.write(key.clone(), true);
        if client.world.is_dead() {
            break;
        }
    }
    for _ in 0..40 {
        client.turn();
    }
    let died = client.world.is_dead();
    if !died {
        let pair = client.world.worker().snapshot().pairs[0];
        assert!(pair.compactions > 0 && pair.compaction_nodes_freed > 20, "{pair:?}");
    }
    client.recover(dies_after % 2 == 1);
    client.recover(false);
    died
}

/// One slot, every other of whose extents is deleted, and others of another class are put, with a death after
/// so many operations of the disk; whether it came.
fn pack(images: bool, dies_after: u64) -> bool {
    let slot =
        PairGeometry { node_region_bytes: 4096 + (64 << 10), extent_region_bytes: 1 << 20, ..GEOMETRY };
    let mut client = Client::new(1, slot, images);
    let full = (0..10_000).take_while(|number| {
        let written = client.write(format!("m {number:05}").into_bytes(), false);
        matches!(written, Some(Replied::Written(_)))
    });
    let full = full.count();
    (0..full).step_by(2).for_each(|number| {
        client.write(format!("m {number:05}").into_bytes(), true);
    });
    client.world.die_after(dies_after);
    for number in 0..full / 5 {
        let written = client.write(format!("o {number:05}").into_bytes(), false);
        if client.world.is_dead() {
            break;
        }
        assert!(matches!(written, Some(Replied::Written(_))), "{number} of {full}: {written:?}");
    }
    let died = client.world.is_dead();
    if !died {
        let pair = client.world.worker().snapshot().pairs[0];
        assert!(pair.packings > 0 && pair.packed_bytes > 0, "{pair:?}");
    }
    client.recover(dies_after % 2 == 1);
    client.recover(false);
    died
}

/// Tries a story's crash points one after the other until it comes to its end without dying; how many there
/// were.
fn each_point(stride: usize, story: impl Fn(u64) -> bool) -> usize {
    (0..).step_by(stride).take_while(|point| story(*point)).count()
}

#[test]
fn split_that_dies_at_any_operation_of_the_disk_comes_to_its_end() {
    let points = each_point(1, |point| split(2, false, point));
    assert!(points > 4, "{points} crash points");
}

#[test]
fn split_within_one_pair_with_checkpoints_that_dies_comes_to_its_end() {
    let points = each_point(1, |point| split(1, true, point));
    assert!(points > 4, "{points} crash points");
}

#[test]
fn split_over_two_pairs_with_checkpoints_that_dies_comes_to_its_end() {
    let points = each_point(1, |point| split(2, true, point));
    assert!(points > 4, "{points} crash points");
}

#[test]
fn merge_that_dies_at_any_operation_of_the_disk_comes_to_its_end() {
    for (pairs, images, stride) in [(2, false, 1), (1, false, 2), (1, true, 3), (2, true, 2)] {
        let points = each_point(stride, |point| merge(pairs, images, point));
        assert!(points * stride > 8, "{points} crash points");
        println!("{pairs} pairs, {points} crash points, each {stride}. operation");
    }
}

#[test]
fn compaction_that_dies_at_operations_of_the_disk_loses_nothing() {
    for images in [false, true] {
        let points = each_point(COMPACTION_STRIDE, |point| compact(images, point));
        assert!(points > 4, "{points} crash points");
    }
}

#[test]
fn packing_that_dies_at_operations_of_the_disk_loses_nothing() {
    for images in [false, true] {
        let points = each_point(PACKING_STRIDE, |point| pack(images, point));
        assert!(points > 4, "{points} crash points");
    }
}

/// A crash point of a split, for its twin.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitPoint {
    pairs: u32,
    images: bool,
    dies_after: u64,
}

#[cfg(debug_assertions)]
impl SplitPoint {
    /// Whether it ends badly.
    pub(crate) fn fails(self) -> bool {
        self.ended().is_none()
    }

    /// Whether the process died there; none: it ended badly.
    fn ended(self) -> Option<bool> {
        std::panic::catch_unwind(move || split(self.pairs, self.images, self.dies_after)).ok()
    }
}

/// The first crash point that ends badly, of those that the tests of splits above go through: each defect of
/// `recovery` must have one. Where it shows in images alone, the story without them is the last.
#[cfg(debug_assertions)]
pub(crate) fn first_that_fails(needs_images: bool) -> Option<SplitPoint> {
    let first_of = |(pairs, images)| {
        let points = (0..).map(|dies_after| SplitPoint { pairs, images, dies_after });
        points.map(|point| (point, point.ended())).find(|(_, ended)| *ended != Some(true))
    };
    let mut stories = [(2, false), (2, true), (1, true)];
    if needs_images {
        stories.rotate_left(1);
    }
    stories.into_iter().filter_map(first_of).find_map(|(point, ended)| ended.is_none().then_some(point))
}
