//! The steps of a split go by what is durable: nobody is asked, notified, led or let in before that. After
//! each turn the tables of both pairs, the root and the router are looked at.

use std::collections::BTreeMap;

use cell_node::WorkerOptions;
use cell_pair::Pair;
use cell_protocol::{Condition, Put, Request};
use cell_recovery::{SlotUse, SourceSplit, SourceState, SplitName, TargetState};
use cell_terms::{Csn, PairId};
use cell_tree::LeafEntry;

use crate::worker_core::adoptions::begin_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

/// More turns than any step of a split takes.
const STEP_TURNS: u32 = 20;

/// What was seen so far.
#[derive(Default)]
struct Watch {
    is_rooted: bool,
    /// Which record has put a split into the router.
    routed: BTreeMap<SplitName, Csn>,
}

impl Watch {
    fn look(&mut self, world: &World) {
        let pairs: Vec<&Pair> = world.worker().pairs().collect();
        let of = |id: PairId| pairs.iter().find(|pair| pair.id() == id).unwrap();
        for target in &pairs {
            for (name, _) in target.split_table().targets() {
                assert!(
                    name.csn <= of(name.pair).durable(),
                    "{name} is adopted before it is started durably"
                );
            }
        }
        for source in &pairs {
            for (name, split) in source.split_table().sources() {
                self.look_at(name, split, [source, of(split.target), pairs[0]]);
            }
        }
        self.look_at_root(pairs[0]);
    }

    fn look_at(&mut self, name: SplitName, split: &SourceSplit, [source, target, root]: [&Pair; 3]) {
        let durable = split.csn <= source.durable();
        let adopted = target.split_table().target(name);
        let is = |state: TargetState| {
            adopted.is_some_and(|adopted| adopted.state == state && adopted.csn <= target.durable())
        };
        let is_linked = (SourceState::Linked..=SourceState::Finished).contains(&split.state);
        if let Some(adopted) = adopted {
            let is_whole = adopted.state == TargetState::Opened || is(TargetState::Adopted);
            assert!(!is_linked || is_whole, "{name} is linked before it is adopted durably");
            let may_open = split.state == SourceState::Finished
                || split.state == SourceState::Applied && durable
                || adopted.state != TargetState::Opened;
            assert!(may_open, "{name} takes writes before its source is truncated durably");
        } else {
            assert!(split.state != SourceState::Finished || durable, "{name} is over before that is durable");
        }
        let entry = LeafEntry::to_meganode(root.pointer_to(target.id(), split.target_slot));
        let routed = root.router().map(|router| root.meganode(router).search(&split.key).unwrap());
        let routed = routed.filter(|found| found.entry == Some(entry));
        if split.state != SourceState::Finished && !is(TargetState::Opened) {
            let begins = root.split_table().slots().any(|(_, used)| used == SlotUse::Router);
            let is_led_to = routed.is_some() || begins && root.router().is_none();
            assert!(!is_led_to, "readers are led to {name} before it is open durably");
        }
        if let Some(found) = routed {
            self.routed.entry(name).or_insert(found.csn_changed);
        }
        let is_routed = self.routed.get(&name).is_some_and(|csn| *csn <= root.durable());
        assert!(split.state != SourceState::Finished || is_routed, "{name} ends before it is routed durably");
    }

    fn look_at_root(&mut self, root: &Pair) {
        let Some(router) = root.router().filter(|_| !self.is_rooted) else { return };
        self.is_rooted = true;
        let found = root.meganode(router).search(&[0]).unwrap();
        assert!(found.csn_changed <= root.durable(), "the root leads to a router that is not durable");
        assert_eq!(root.meganode_figures(router).entries, 1, "and that has entries before the root is");
    }
}

/// A split that begins, and writes to its upper half that come each turn.
struct Story {
    world: World,
    watch: Watch,
    number: u64,
    floor: u64,
    sent: Vec<(Vec<u8>, u32)>,
}

impl Story {
    fn begin() -> Story {
        let mut world = World::new(2, GEOMETRY, OPTIONS);
        let number = begin_split(&mut world, 1, b"v");
        Story { world, watch: Watch::default(), number, floor: number, sent: Vec::new() }
    }

    fn put(&mut self) {
        let (key, name) =
            (format!("zzz {}", self.number).into_bytes(), self.world.name(self.number, self.floor));
        let put = Put { name, condition: Condition::Always, key: &key, value: b"late" };
        let id = self.world.send(&Request::Put(put));
        self.sent.push((key, id));
        self.number += 1;
    }

    fn turn(&mut self) {
        self.world.turn();
        self.watch.look(&self.world);
    }

    fn finished(&self) -> u64 {
        self.world.worker().split_counts().finished
    }
}

/// All steps in their order; what is written meanwhile is there afterwards.
pub(crate) fn steps_go_by_what_is_durable() {
    let mut story = Story::begin();
    while story.finished() == 0 {
        assert!(story.sent.len() < 1_000, "the split comes to its end");
        story.put();
        story.turn();
    }
    (0..STEP_TURNS).for_each(|_| story.turn());
    let Story { mut world, watch, sent, .. } = story;
    assert!(watch.is_rooted && watch.routed.len() == 1);
    for (key, id) in sent {
        let replied = world.answer(id);
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
        assert_eq!(world.get(&key), Replied::Value(b"late".to_vec()), "{}", key.escape_ascii());
    }
}

#[test]
fn steps_of_a_split_go_by_what_is_durable() {
    steps_go_by_what_is_durable();
}

/// Damage to an unsealed last batch looks like a torn write: a source must not forget what only that proves.
pub(crate) fn source_is_over_once_the_end_at_its_target_is_sealed() {
    let mut story = Story::begin();
    let mut opened = None;
    let mut seen = false;
    while story.finished() == 0 {
        story.turn();
        let [source, target] = [0, 1].map(|at| story.world.worker().pairs().nth(at).unwrap());
        let mut targets = target.split_table().targets();
        if let Some((_, adopted)) = targets.find(|(_, adopted)| adopted.state == TargetState::Opened) {
            opened = Some(adopted.csn);
        }
        if source.split_table().sources().any(|(_, split)| split.state == SourceState::Finished) {
            let opened = opened.expect("it was open for some turns");
            assert!(
                opened <= target.sealed(),
                "a split is over whose last record at the target is not sealed"
            );
            seen = true;
        }
    }
    assert!(seen, "the source's end was seen");
}

#[test]
fn source_of_a_split_is_over_once_the_end_at_its_target_is_sealed() {
    source_is_over_once_the_end_at_its_target_is_sealed();
}

/// Neither side does what it cannot take back before damage to the record that it relies on would be found.
pub(crate) fn steps_that_last_wait_for_the_seal_of_the_other_side() {
    let mut story = Story::begin();
    let (mut adopted, mut applied, mut over) = (None, None, None);
    while story.finished() == 0 {
        story.turn();
        let [source, target] = [0, 1].map(|at| story.world.worker().pairs().nth(at).unwrap());
        let half = source.split_table().sources().next().map(|(_, split)| (split.state, split.csn));
        let copy = target.split_table().targets().next().map(|(_, split)| (split.state, split.csn));
        let (Some((half, half_csn)), Some((copy, copy_csn))) = (half, copy) else { continue };
        match half {
            SourceState::Applied => applied = Some(half_csn),
            SourceState::Finished => over = Some(half_csn),
            _ => {}
        }
        if copy == TargetState::Adopted {
            adopted = Some(copy_csn);
        }
        if half >= SourceState::Linked {
            assert!(adopted.unwrap() <= target.sealed(), "linked before the adoption is sealed");
        }
        if copy == TargetState::Opened {
            assert!(applied.unwrap() <= source.sealed(), "open before its source's truncation is sealed");
        }
    }
    let source = story.world.worker().pairs().next().unwrap();
    assert!(over.unwrap() <= source.sealed(), "over before that is sealed");
}

#[test]
fn steps_of_a_split_that_last_wait_for_the_seal_of_the_other_side() {
    steps_that_last_wait_for_the_seal_of_the_other_side();
}

/// Loads until a split has started, the source's log being held from a put on; the number of puts.
fn begin_held(held_from: u64) -> (World, u64) {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let mut number = 1;
    while world.worker().split_counts().begun == 0 {
        if number == held_from {
            world.hold(Some(0));
        }
        let (name, key) =
            (world.name(number, 1), format!("key {} {number:05}", number * 7 % 10).into_bytes());
        world.send(&Request::Put(Put { name, condition: Condition::Always, key: &key, value: b"v" }));
        world.turn();
        number += 1;
        assert!(number < 10_000, "a meganode of 128 tree nodes is split");
    }
    (world, number)
}

/// Of what a crash takes back nobody else has a trace.
pub(crate) fn target_is_asked_once_the_start_is_durable() {
    let (_, number) = begin_held(u64::MAX);
    let (mut world, _) = begin_held(number - 3);
    (0..STEP_TURNS).for_each(|_| world.turn());
    let adoptions = |world: &World| world.worker().pairs().nth(1).unwrap().split_table().targets().count();
    assert_eq!(adoptions(&world), 0, "the start is not durable");
    world.hold(None);
    world.until("an adoption", |world| adoptions(world) == 1);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
}

#[test]
fn split_that_is_not_started_durably_is_not_asked_for() {
    target_is_asked_once_the_start_is_durable();
}

/// The source's log stands still from the record of the end on.
pub(crate) fn split_is_over_once_its_end_is_durable() {
    let mut story = Story::begin();
    while story.watch.routed.is_empty() {
        assert_eq!(story.finished(), 0);
        story.turn();
    }
    story.world.hold(Some(0));
    (0..STEP_TURNS).for_each(|_| story.turn());
    let states = |world: &World| {
        let source = world.worker().pairs().next().unwrap();
        source.split_table().sources().map(|(_, split)| split.state).collect::<Vec<_>>()
    };
    assert_eq!(
        (story.finished(), states(&story.world)),
        (0, vec![SourceState::Finished]),
        "it is not durable"
    );
    story.world.hold(None);
    story.world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    story.world.turn();
    assert_eq!(states(&story.world), [], "it is forgotten with the next look at what is durable");
}

#[test]
fn end_of_a_split_that_is_not_durable_counts_for_nobody() {
    split_is_over_once_its_end_is_durable();
}

/// An adoption logs entries before the leaf that leads to them: an image whose base lies between the two
/// would lack them.
pub(crate) fn no_image_begins_while_a_pair_adopts() {
    let mut world = World::new(2, GEOMETRY, WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS });
    let state = |world: &World| {
        let target = world.worker().pairs().nth(1).unwrap();
        target.split_table().targets().next().map(|(_, split)| split.state)
    };
    let copies = |world: &World| world.worker().snapshot().pairs[1].checkpoint_running;
    begin_split(&mut world, 1, &[b'v'; 4_000]);
    world.until("an adoption", |world| state(world) == Some(TargetState::Adopting));
    let mut turns = 0;
    while state(&world) == Some(TargetState::Adopting) {
        assert!(!copies(&world), "an image is started after {turns} turns");
        world.turn();
        turns += 1;
    }
    assert!(turns > 5, "the copy took {turns} turns");
    world.until("an image", |world| copies(world));
}

#[test]
fn image_of_a_pair_that_adopts_is_started_afterwards() {
    no_image_begins_while_a_pair_adopts();
}
