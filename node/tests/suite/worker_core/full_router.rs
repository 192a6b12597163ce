//! A router that is full: entries that go make room for those that wait, and none goes before it has come.

use cell_node::NoticeRow;
use cell_terms::{PairId, Pointer, SlotIndex};
use cell_tree::LeafEntry;

use crate::worker_core::across::Board;
use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, World};

/// Rounds in which all that is asked for at a time is done, if there is room for it.
const ROUNDS: u32 = 2_000;
/// A pair of another node, which asks for entries.
const ELSEWHERE: PairId = PairId(77);
/// Entries that are asked for at a time.
const AT_ONCE: usize = 16;
/// Of so many entries one stays.
const STAYS: u64 = 10;

/// A router, and who asks for its entries.
struct Story {
    world: World,
    board: Board,
    /// Where the entries lead to.
    to: Pointer,
    asked: u64,
}

/// As long as a key of such tree nodes may be.
fn low(number: u64) -> Vec<u8> {
    format!("{:05}{:x<65}", number * 7919 % 10_007, "").into_bytes()
}

impl Story {
    fn begin() -> Story {
        let mut world = World::new(2, GEOMETRY, OPTIONS);
        load_until_split(&mut world);
        world.until("the split's end", |world| world.worker().split_counts().finished == 1);
        let to = world.worker().pairs().next().unwrap().pointer_to(ELSEWHERE, SlotIndex(0));
        Story { world, board: Board::default(), to, asked: 0 }
    }

    /// Asks for an entry, or with `goes` for its end.
    fn ask(&mut self, number: u64, goes: bool) {
        self.asked += 1;
        let key = format!("split/{}.1.{}/parent", ELSEWHERE.0, 100_000 + self.asked);
        let low = low(number).iter().map(|byte| format!("{byte:02x}")).collect();
        let gone = goes.then_some(self.to.0);
        self.board.notices.insert(key, NoticeRow::Parent { low, to: self.to.0, gone });
    }

    /// Goes on until no more than so many entries are asked for. Whether it comes to that.
    fn settles(&mut self, left: usize) -> bool {
        (0..ROUNDS).any(|_| {
            self.world.turn();
            self.board.exchange(&mut self.world, 0);
            self.board.notices.len() <= left
        })
    }

    /// Asks for the end of these, while so many others wait.
    fn remove(&mut self, numbers: &[u64], waiting: usize) {
        for numbers in numbers.chunks(AT_ONCE) {
            numbers.iter().for_each(|number| self.ask(*number, true));
            assert!(self.settles(waiting), "{} are left", self.board.notices.len());
        }
    }

    /// Asks for entries until one waits for room: its number. Those below are there.
    fn fill(&mut self) -> u64 {
        let full = (1..10_000).find(|number| {
            self.ask(*number, false);
            !self.settles(0)
        });
        full.expect("a router of 128 tree nodes is full")
    }

    /// Whether the router has an entry.
    fn has(&self, number: u64) -> bool {
        let root = self.world.worker().pairs().next().unwrap();
        let found = root.meganode(root.router().unwrap()).search(&low(number)).unwrap();
        found.entry == Some(LeafEntry::to_meganode(self.to))
    }
}

/// Those that went waited behind the one that found no room, without end.
#[test]
fn entries_that_go_make_room_for_one_that_waits() {
    let mut story = Story::begin();
    let full = story.fill();
    let gone: Vec<u64> = (1..full).filter(|number| number % STAYS != 0).collect();
    story.remove(&gone, 1);
    assert!(story.settles(0), "it is inserted");
    for number in 1..=full {
        assert_eq!(story.has(number), number == full || number % STAYS == 0, "{number} of {full}");
    }
}

/// The one that waits is to go, too, before it has come.
pub(crate) fn removal_comes_after_the_entry_that_it_undoes() {
    let mut story = Story::begin();
    let full = story.fill();
    story.ask(full, true);
    let others: Vec<u64> = (1..full).collect();
    story.remove(&others, 2);
    assert!(story.settles(0), "it came and went");
    assert!(!story.has(full), "it came after it had gone");
    assert!(!(1..full).any(|number| story.has(number)));
}

#[test]
fn entry_that_goes_does_not_pass_itself() {
    removal_comes_after_the_entry_that_it_undoes();
}
