//! The version protocol of tree nodes under every interleaving and every order of memory that the language
//! permits, as loom enumerates them (with bounds on preemptions and on their number): a reader sees a
//! change whole or not at all, and what it sees is durable when the watermark that it reads afterwards says
//! so.
//!
//! Reader, writer and the publication of the watermarks are the production code; only the words are loom's.
//! What the writer does, store by store and fence by fence, is taken from a dry run (its frames are larger
//! than loom's stacks), and the words that it stores are atomics of the model; all others stay what they are,
//! which keeps the model small.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cell_terms::{
    Csn, ExtentOffset, RegionId, SharedWord, SlotIndex, Words, WordsMut, publish_watermarks,
    published_watermarks,
};
use cell_tree::{
    Change, Geometry, LeafEntry, Meganode, NodeIndex, NodeStep, ReadError, SearchResult, Slot, apply,
    empty_root,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

const NODE_BYTES: usize = 512;
/// Runs of one case: a change of many words has more orders than anyone waits for.
const PERMUTATIONS_MAX: usize = 20_000;
const SLOT: Slot = Slot { region: RegionId(2), index: SlotIndex(0) };

fn geometry() -> Geometry {
    Geometry::new(NODE_BYTES, 8 * NODE_BYTES, 0).unwrap()
}

/// What a writer does to memory.
#[derive(Clone, Copy, Debug)]
enum Step {
    Store(usize, u64),
    Fence,
}

/// Words that nobody shares, with a note of what is done to them.
struct Plain {
    words: Vec<u64>,
    steps: RefCell<Vec<Step>>,
}

impl Words for Plain {
    fn load(&self, index: usize) -> u64 {
        self.words[index]
    }
    fn len(&self) -> usize {
        self.words.len()
    }
    fn prefetch(&self, _index: usize) {}
}

impl WordsMut for Plain {
    fn store(&mut self, index: usize, word: u64) {
        self.words[index] = word;
        self.steps.borrow_mut().push(Step::Store(index, word));
    }
    fn fence_release(&self) {
        self.steps.borrow_mut().push(Step::Fence);
    }
}

/// A watermark's word under the model checker.
struct Mark(AtomicU64);

impl SharedWord for Mark {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, word: u64, order: Ordering) {
        self.0.store(word, order);
    }
}

/// Words under the model checker.
struct Modelled {
    words: Vec<u64>,
    shared: BTreeMap<usize, AtomicU64>,
    /// What the log's disk has, and what the owner says that it has.
    synced: AtomicU64,
    durable: Mark,
    visible: Mark,
}

impl Words for Modelled {
    fn load(&self, index: usize) -> u64 {
        self.shared.get(&index).map_or(self.words[index], |word| word.load(Ordering::Relaxed))
    }
    fn len(&self) -> usize {
        self.words.len()
    }
    fn prefetch(&self, _index: usize) {}
    fn fence_acquire(&self) {
        fence(Ordering::Acquire);
    }
}

fn entry(n: u32) -> LeafEntry {
    LeafEntry { offset: ExtentOffset(n), value_len: n, crc: u64::from(n) << 32 | 7 }
}

/// A leaf with two keys.
fn before() -> Vec<u64> {
    let mut words = vec![0; 8 * NODE_BYTES / 8];
    words[..NODE_BYTES / 8].copy_from_slice(&empty_root(geometry()));
    for (csn, key) in [(1, &b"apple"[..]), (2, b"pear")] {
        let change = Change::Put { node: NodeIndex::ROOT, key, entry: entry(csn) };
        apply(&mut words[..], geometry(), SLOT, &change, Csn(u64::from(csn)));
    }
    words
}

/// A change, and what a key has before and after it.
#[derive(Clone)]
struct Case {
    change: Change<'static>,
    key: &'static [u8],
    old: Option<LeafEntry>,
    new: Option<LeafEntry>,
}

const CSN: Csn = Csn(9);

fn cases() -> [Case; 3] {
    let node = NodeIndex::ROOT;
    [
        Case {
            change: Change::Put { node, key: b"apple", entry: entry(3) },
            key: b"apple",
            old: Some(entry(1)),
            new: Some(entry(3)),
        },
        // A new entry moves those behind it.
        Case {
            change: Change::Put { node, key: b"banana", entry: entry(3) },
            key: b"pear",
            old: Some(entry(2)),
            new: Some(entry(2)),
        },
        Case {
            change: Change::Remove { node, key: b"apple" },
            key: b"apple",
            old: Some(entry(1)),
            new: None,
        },
    ]
}

/// How a reader reads.
#[derive(Clone, Copy, Debug)]
enum Way {
    Search,
    /// Copied in address order, as a network card does, and searched then.
    Copy,
}

fn read(words: &Modelled, way: Way, key: &[u8]) -> Result<SearchResult, ReadError> {
    let meganode = Meganode::new(words, geometry(), SLOT).with_retries(0);
    match way {
        Way::Search => meganode.search(key),
        Way::Copy => {
            let mut copy = vec![0; NODE_BYTES / 8];
            match meganode.copy_node(NodeIndex::ROOT, &mut copy)?.step(key) {
                NodeStep::Leaf(found) => Ok(found),
                step => panic!("the root is the leaf, and says {step:?}"),
            }
        }
    }
}

/// Runs a writer and a reader of one case under every interleaving. `durable` is the order of the owner: the
/// watermark rises once the log has the record, or (wrongly) before.
fn check(case: usize, way: Way, durable: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_permutations = Some(PERMUTATIONS_MAX);
    model.max_branches = 10_000;
    let case = cases()[case].clone();
    let before = before();
    let mut plain = Plain { words: before.clone(), steps: RefCell::default() };
    apply(&mut plain, geometry(), SLOT, &case.change, CSN);
    let steps = plain.steps.into_inner();
    model.check(move || {
        let stored = steps.iter().filter_map(|step| match step {
            Step::Store(index, _) => Some(*index),
            Step::Fence => None,
        });
        let shared = stored.map(|index| (index, AtomicU64::new(before[index]))).collect();
        let (synced, mark) = (AtomicU64::new(2), || Mark(AtomicU64::new(2)));
        let words =
            Arc::new(Modelled { words: before.clone(), shared, synced, durable: mark(), visible: mark() });
        let (there, steps) = (Arc::clone(&words), steps.clone());
        let writer = thread::spawn(move || {
            for step in steps {
                match step {
                    Step::Store(index, word) => there.shared[&index].store(word, Ordering::Relaxed),
                    Step::Fence => fence(Ordering::Release),
                }
            }
            let publish = || publish_watermarks((&there.durable, CSN), (&there.visible, CSN));
            if durable {
                there.synced.store(CSN.0, Ordering::Relaxed);
                publish();
            } else {
                publish();
                there.synced.store(CSN.0, Ordering::Relaxed);
            }
        });
        if let Ok(found) = read(&words, way, case.key) {
            let (is_old, is_new) = (found.csn_changed < CSN, found.csn_changed == CSN);
            assert!(is_old || is_new, "a CSN that nobody stored: {found:?}");
            let expected = if is_new { case.new } else { case.old };
            assert_eq!(found.entry, expected, "half a change: {found:?}");
            words.fence_acquire();
            let (durable, visible) = published_watermarks(&words.durable, &words.visible);
            assert!(durable <= visible, "what is durable is visible");
            if is_new && visible >= CSN {
                assert_eq!(words.synced.load(Ordering::Relaxed), CSN.0, "returned, and not durable");
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn reader_beside_a_change_sees_it_whole_or_not_at_all() {
    for case in 0..cases().len() {
        check(case, Way::Search, true);
        check(case, Way::Copy, true);
    }
}

/// The model's own twin: an owner that raises its watermark too early is caught.
#[test]
fn watermark_before_the_log_is_caught() {
    let run = || check(0, Way::Search, false);
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}

#[cfg(debug_assertions)]
#[test]
fn mutant_that_publishes_watermarks_without_order_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        plant(Some(Mutant::WatermarkRelaxed));
        let caught = catch_unwind(AssertUnwindSafe(|| check(0, Way::Search, true))).is_err();
        plant(None);
        assert!(caught, "watermarks without order");
        println!("mutant {} caught by cell-tree's interleavings", Mutant::WatermarkRelaxed.name());
    });
}

#[cfg(debug_assertions)]
#[test]
fn version_mutants_are_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_tree::mutant::{Mutant, plant};
        for mutant in [Mutant::TornRead, Mutant::SilentChange] {
            plant(Some(mutant));
            let caught = catch_unwind(AssertUnwindSafe(|| check(0, Way::Search, true))).is_err();
            plant(None);
            assert!(caught, "{mutant:?} was not caught");
        }
    });
}
