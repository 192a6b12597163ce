//! Splits whose sides, and whose parent, are at different nodes: what the owners send each other by notes.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_node::{Command, ControlEvent, NoticeRow, NoticesView, SourceNotice, TargetNotice};
use cell_pair::Pair;
use cell_protocol::{Condition, Put, Request, StatusCode};
use cell_recovery::{SourceState, TargetState};
use cell_terms::{Csn, PairId};

use crate::worker_core::merges;
use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

fn key(number: u64) -> Vec<u8> {
    format!("key {:05}", number * 7919 % 10_007).into_bytes()
}

/// What the coordinator keeps of notes, and what of them each worker was shown.
#[derive(Default)]
pub(crate) struct Board {
    revision: u64,
    pub(crate) notices: BTreeMap<String, NoticeRow>,
    /// Whether notes are delayed: a worker sees those of the look before.
    late: Option<Arc<NoticesView>>,
}

impl Board {
    /// Carries out what a worker wrote, and shows it what there is.
    pub(crate) fn exchange(&mut self, world: &mut World, process: usize) {
        for command in world.take_commands(process) {
            let Command::Note { key, notice, .. } = command else { continue };
            self.revision += 1;
            match notice {
                Some(notice) => drop(self.notices.insert(key.clone(), notice)),
                None => drop(self.notices.remove(&key)),
            }
            let revision = Some(self.revision);
            world.notify(process, ControlEvent::NoticeWritten { key, revision });
        }
        let now = Arc::new(NoticesView { revision: self.revision, notices: self.notices.clone() });
        let shown = self.late.replace(now.clone()).unwrap_or(now);
        world.notify(process, ControlEvent::Notices(shown));
    }
}

/// Rounds in a row without anything to do, after which nothing will come.
const QUIET: u32 = 100;

/// Turns both workers until nothing is left of splits anywhere.
fn settle(world: &mut World, board: &mut Board) {
    let mut quiet = 0;
    for _ in 0..6_000 {
        for process in 0..world.processes() {
            world.turn_of(process);
            board.exchange(world, process);
        }
        let counts = |process| world.worker_of(process).split_counts();
        let under_way = |process| counts(process).under_way + counts(process).merging;
        let left = (0..world.processes()).map(under_way).sum::<u64>();
        quiet = if left == 0 && board.notices.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET {
            return;
        }
    }
    let counts: Vec<_> = (0..world.processes()).map(|at| world.worker_of(at).split_counts()).collect();
    panic!("splits are left over: {counts:?}, {:?}", board.notices);
}

/// Entries by the worker that has them; each is at one of them alone.
fn check(world: &mut World, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let found: Vec<_> = (0..world.processes())
            .map(|process| world.get_of(process, &key(number)))
            .filter(|replied| matches!(replied, Replied::Value(_)))
            .collect();
        assert_eq!(found, [Replied::Value(key(number))], "{number}");
    }
}

/// The source's and the target's pair are taken over by different nodes at every turn of a split.
#[test]
fn split_whose_sides_are_taken_over_by_different_nodes_settles_from_any_step() {
    let (mut met, mut settled) = (BTreeMap::new(), 0);
    for turns in 0..60 {
        let mut world = World::new(2, GEOMETRY, OPTIONS);
        let mut number = 1;
        while world.worker().split_counts().begun == 0 {
            number = world.load(number, std::iter::once(key(number)));
        }
        for _ in 0..turns {
            world.turn();
        }
        if world.worker().split_counts().under_way == 0 {
            assert!(turns > 5, "a split takes some turns");
            break;
        }
        // Pair 1, the source and the router's, and pair 2, the target.
        world.scatter(&[&[1], &[2]]);
        let mut board = Board::default();
        for process in 0..2 {
            world.turn_of(process);
            board.exchange(&mut world, process);
        }
        for notice in board.notices.values() {
            *met.entry(format!("{notice:?}").split('{').next().unwrap_or_default().to_owned())
                .or_insert(0) += 1;
        }
        settle(&mut world, &mut board);
        check(&mut world, 1..number);
        settled += 1;
    }
    assert!(settled > 3 && met.contains_key("Target "), "{settled}, {met:?}");
}

/// The pairs of a merge are taken over by different nodes at every turn of it.
#[test]
fn merge_whose_sides_are_taken_over_by_different_nodes_settles_from_any_step() {
    for lists in [&[&[1][..], &[2]][..], &[&[1], &[2, 3]], &[&[2], &[1], &[3]]] {
        let mut settled = 0;
        for turns in 0..80 {
            let pairs = lists.iter().map(|list| list.len()).sum::<usize>();
            let mut world = World::new(u32::try_from(pairs).unwrap(), GEOMETRY, OPTIONS);
            let (loaded, mut number) = merges::until_merging(&mut world);
            for _ in 0..turns {
                world.turn();
            }
            if world.worker().split_counts().merging == 0 {
                break;
            }
            world.scatter(lists);
            let mut board = Board::default();
            settle(&mut world, &mut board);
            for of in (1..loaded).step_by(17) {
                let key = merges::key(of);
                let put = |at: usize| matches!(world.put_of(at, number, &key), Replied::Written(_));
                let written: Vec<bool> = (0..lists.len()).map(put).collect();
                number += 1;
                assert_eq!(written.iter().filter(|written| **written).count(), 1, "{turns}: {written:?}");
                let read = |at: usize| world.get_of(at, &key) == Replied::Value(key.clone());
                assert_eq!((0..lists.len()).map(read).collect::<Vec<_>>(), written);
            }
            settled += 1;
        }
        assert!(settled > 5, "{settled}");
    }
}

/// What a node answers of a key: that there is no entry, or which pair has the key.
fn none_or_hint(world: &mut World, process: usize, key: &[u8]) -> Option<PairId> {
    world.hint = None;
    match world.get_of(process, key) {
        Replied::NotFound => None,
        Replied::Other => Some(world.hint.expect("that is what there is besides")),
        other => panic!("{process}: {other:?}"),
    }
}

/// A merge's sides are at two nodes, and the router's pair is at none: it leads to who is gone.
#[test]
fn keys_of_a_merge_are_hinted_at_the_side_that_has_them() {
    let (mut gone, mut settled) = (0, 0);
    for turns in 0..60 {
        let mut world = World::new(3, GEOMETRY, OPTIONS);
        let (source, target, key) = merges::until_upper_two_merge(&mut world);
        (0..turns).for_each(|_| world.turn());
        if world.worker().split_counts().merging == 0 {
            break;
        }
        world.scatter(&[&[source.0], &[target.0], &[1]]);
        // The source forgets a merge when the router's entry is gone: nobody is led to it any more.
        let is_over =
            |world: &World| world.worker().pairs().all(|pair| pair.split_table().sources().next().is_none());
        let mut board = Board::default();
        for _ in 0..200 {
            for process in 0..2 {
                world.turn_of(process);
                board.exchange(&mut world, process);
            }
            if is_over(&world) {
                break;
            }
            let at_source = none_or_hint(&mut world, 0, &key);
            assert!(at_source.is_none_or(|pair| pair == target), "{turns}: {at_source:?} and not {target:?}");
            gone += u32::from(at_source.is_some());
            let at_target = none_or_hint(&mut world, 1, &key);
            assert!(at_target.is_none_or(|pair| pair == source), "{turns}: {at_target:?} and not {source:?}");
        }
        if is_over(&world) {
            continue;
        }
        // One of them has it, and the other one knows.
        let has = [0, 1].map(|process| none_or_hint(&mut world, process, &key).is_none());
        assert!(has[0] != has[1], "{turns}: {has:?}");
        settled += 1;
    }
    assert!(settled > 3 && gone > 0, "{settled}, {gone}");
}

/// The first process has one side's pair. Its log stands still from the record on, which becomes durable and
/// is not sealed: nobody learns of it by a note. In how many runs that was seen.
fn runs_whose_note_waits_for_a_seal(
    lists: [&[u32]; 2],
    record: impl Fn(&Pair) -> Option<Csn>,
    reports: impl Fn(&NoticeRow) -> bool,
) -> u32 {
    let mut runs = 0;
    for steps in 0..120 {
        let mut world = World::new(2, GEOMETRY, OPTIONS);
        let mut number = 1;
        while world.worker().split_counts().begun == 0 {
            number = world.load(number, std::iter::once(key(number)));
        }
        (0..steps).for_each(|_| world.step_of(0));
        if world.worker().split_counts().under_way == 0 {
            break;
        }
        world.scatter(&lists);
        let (mut board, mut rounds, mut found) = (Board::default(), 0, None);
        while found.is_none() && rounds < 200 {
            rounds += 1;
            world.step_of(0);
            board.exchange(&mut world, 0);
            world.turn_of(1);
            board.exchange(&mut world, 1);
            found = record(world.worker().pairs().next().unwrap());
        }
        let sealed = world.worker().pairs().next().unwrap().sealed();
        if let Some(csn) = found.filter(|csn| *csn > sealed) {
            world.hold(Some(0));
            for _ in 0..20 {
                world.step_of(0);
                board.exchange(&mut world, 0);
                world.turn_of(1);
                board.exchange(&mut world, 1);
                assert!(!board.notices.values().any(&reports), "{:?}", board.notices);
            }
            let pair = world.worker().pairs().next().unwrap();
            assert!(pair.sealed() < csn && csn <= pair.durable(), "it is durable, and nothing is behind it");
            world.hold(None);
            runs += 1;
        }
        settle(&mut world, &mut board);
        check(&mut world, 1..number);
    }
    runs
}

/// A source forgets the split once it has read that its target is open.
pub(crate) fn note_of_an_open_target_waits_for_a_seal() {
    let opened = |pair: &Pair| {
        let mut targets = pair.split_table().targets();
        targets.find(|(_, split)| split.state == TargetState::Opened).map(|(_, split)| split.csn)
    };
    let reports =
        |notice: &NoticeRow| matches!(notice, NoticeRow::Target { state: TargetNotice::Opened, .. });
    assert!(runs_whose_note_waits_for_a_seal([&[2], &[1]], opened, reports) > 0);
}

/// A target takes writes once it has read that its source is truncated.
pub(crate) fn note_of_a_truncated_source_waits_for_a_seal() {
    let applied = |pair: &Pair| {
        let mut sources = pair.split_table().sources();
        sources.find(|(_, split)| split.state == SourceState::Applied).map(|(_, split)| split.csn)
    };
    let reports = |notice: &NoticeRow| matches!(notice, NoticeRow::Source { answer: SourceNotice::Open, .. });
    assert!(runs_whose_note_waits_for_a_seal([&[1], &[2]], applied, reports) > 0);
}

#[test]
fn note_is_written_once_damage_to_its_record_would_be_found() {
    note_of_an_open_target_waits_for_a_seal();
    note_of_a_truncated_source_waits_for_a_seal();
}

/// Source, target and router go to three nodes, at every turn of a split.
#[test]
fn split_whose_source_target_and_router_are_at_three_nodes_settles_from_any_step() {
    let upper = |number: u64| format!("key 9{:05}", number * 7919 % 100_003).into_bytes();
    let mut settled = 0;
    for turns in 0..60 {
        let mut world = World::new(3, GEOMETRY, OPTIONS);
        let mut number = 1;
        while world.worker().split_counts().finished == 0 {
            number = world.load(number, std::iter::once(key(number)));
        }
        let first = number;
        while world.worker().split_counts().begun == 1 {
            number = world.load(number, std::iter::once(upper(number)));
            assert!(number < 20_000);
        }
        (0..turns).for_each(|_| world.turn());
        if world.worker().split_counts().under_way == 0 {
            break;
        }
        world.scatter(&[&[1], &[2], &[3]]);
        let mut board = Board::default();
        settle(&mut world, &mut board);
        check(&mut world, 1..first);
        for number in first..number {
            let found = (0..3).map(|at| world.get_of(at, &upper(number)));
            let found = found.filter(|replied| matches!(replied, Replied::Value(_))).count();
            assert_eq!(found, 1, "{number} after {turns} turns");
        }
        settled += 1;
    }
    assert!(settled > 3, "{settled}");
}

/// The router is with another node from the start, and a split of the second one's begins; up to which number
/// keys were loaded before.
fn begin_split_beside_a_router_elsewhere() -> (World, u64) {
    let mut world = World::new(3, GEOMETRY, OPTIONS);
    let mut number = 1;
    while world.worker().split_counts().finished == 0 {
        number = world.load(number, std::iter::once(key(number)));
    }
    for _ in 0..200 {
        world.turn();
    }
    // The upper half's pair and the empty one go on without the router's.
    world.scatter(&[&[1], &[2, 3]]);
    let before = world.worker_of(1).split_counts().begun;
    let (first, mut written) = (number, 0);
    let upper = |number: u64| format!("key 9{:05}", number * 7919 % 100_003).into_bytes();
    while world.worker_of(1).split_counts().begun == before {
        written += 1;
        let replied = world.put_of(1, first + written, &upper(written));
        assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
        assert!(written < 10_000);
    }
    (world, number)
}

/// The router's entry is asked for by a note.
#[test]
fn split_beside_a_router_that_is_elsewhere_is_finished() {
    let (mut world, number) = begin_split_beside_a_router_elsewhere();
    settle(&mut world, &mut Board::default());
    assert_eq!(world.worker_of(1).split_counts().finished, 1);
    check(&mut world, 1..number);
}

/// It was asked for again and again while the coordinator was slow. The last of these writes could come after
/// the meganode had been merged away.
#[test]
fn entry_for_a_router_elsewhere_is_asked_for_by_one_write_at_a_time() {
    let (mut world, number) = begin_split_beside_a_router_elsewhere();
    for _ in 0..2 {
        let mut asked = Vec::new();
        // For three seconds nothing is answered; then it is that it has failed.
        for _ in 0..3_000 {
            world.turn_of(1);
            asked.extend(world.take_commands(1).into_iter().filter_map(|command| match command {
                Command::Note { key, notice: Some(NoticeRow::Parent { .. }), .. } => Some(key),
                _ => None,
            }));
        }
        assert_eq!(asked.len(), 1, "{asked:?}");
        world.notify(1, ControlEvent::NoticeWritten { key: asked.remove(0), revision: None });
    }
    settle(&mut world, &mut Board::default());
    assert_eq!(world.worker_of(1).split_counts().finished, 1);
    check(&mut world, 1..number);
}

/// A write to the lower half waited without end for the split, whose other side nobody served.
#[test]
fn write_does_not_wait_for_ever_for_a_split_whose_target_nobody_serves() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let first = load_until_split(&mut world);
    world.until("a truncated half", |world| {
        let source = world.worker().pairs().next().unwrap();
        source.split_table().sources().any(|(_, split)| split.state >= SourceState::Applied)
    });
    world.scatter(&[&[1], &[2]]);
    let refused = (first..first + 10_000).find(|number| {
        let number = *number;
        let (name, key) = (world.name(number, number), format!("a {number:05}"));
        let put = Put { name, condition: Condition::Always, key: key.as_bytes(), value: b"v" };
        let id = world.send(&Request::Put(put));
        // Freed nodes that rest, and compactions, take less than a minute.
        let replied = (0..260).find_map(|turn| {
            if turn >= 200 {
                world.pass(1_000_000_000);
            }
            world.turn();
            world.answered(id)
        });
        match replied.expect("a put is answered") {
            Replied::Written(_) => false,
            Replied::Refused(StatusCode::ReadOnly) => true,
            other => panic!("{number}: {other:?}"),
        }
    });
    let number = refused.expect("the slot is full");
    // Once somebody does, there is room.
    settle(&mut world, &mut Board::default());
    let replied = world.put_of(0, number + 1, b"a later");
    assert!(matches!(replied, Replied::Written(_)), "{replied:?}");
}
