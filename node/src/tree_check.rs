//! A check of the tree by the worker that owns it, beside everything else that it does: in each turn it looks
//! at a few tree nodes, one at a time, each with its parent, its children and its right neighbour. Between
//! two turns anything may be written, split or compacted. So one look sees a moment at which the tree keeps
//! its rules, and what is written meanwhile may be looked at twice or not at all.
//!
//! What breaks a rule is looked at again, some time later, before it is reported: a step that takes several
//! turns is no damage.
//!
//! ```text
//! TreeCheckRun <── begin ── whoever wants to know (`web`)
//!      │ ^
//!      v │ progress, then the outcome
//! TreeChecker, in the worker ── a few tree nodes each turn ──> Pair::check_node
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cell_pair::{NodeLook, TreeViolation};
use cell_terms::{PairId, SlotIndex};
use cell_tree::NodeIndex;

use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// Tree nodes that one turn looks at: some ten microseconds each at most.
const NODES_A_TURN: usize = 4;
/// Places in slots that one turn goes over: most of those that are not in use cost a cache miss.
const PLACES_A_TURN: usize = 32;
/// How often a suspect is looked at before it is reported, and how long it is left alone before each look.
const LOOKS: u8 = 3;
const LOOK_AGAIN_NS: u64 = 50_000_000;
/// Suspects at a time: the check goes on when they are reported or cleared.
const SUSPECTS_MAX: usize = 64;
/// Violations that are named; more are counted at the first look.
const VIOLATIONS_MAX: usize = 32;

/// A tree node's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreePlace {
    /// The pair.
    pub pair: PairId,
    /// The meganode's slot.
    pub slot: SlotIndex,
    /// The tree node.
    pub node: NodeIndex,
}

/// A rule that is broken, and the tree node that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeFault {
    /// Where.
    pub place: TreePlace,
    /// The rule.
    pub violation: TreeViolation,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeCheckOutcome {
    /// The pairs that were gone through.
    pub pairs: Vec<PairId>,
    /// The violations, as many as are named.
    pub faults: Vec<TreeFault>,
    /// How long it took.
    pub duration_ns: u64,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCheckProgress {
    /// Tree nodes that were looked at.
    pub tree_nodes: u64,
    /// Tree nodes in use when it began.
    pub tree_nodes_all: u64,
    /// Entries in them.
    pub entries: u64,
    /// Violations, also those that are not named.
    pub violations: u64,
}

/// A check: the worker carries it out, others see how far it is.
#[derive(Debug, Default)]
pub struct TreeCheckRun {
    tree_nodes: AtomicU64,
    tree_nodes_all: AtomicU64,
    entries: AtomicU64,
    violations: AtomicU64,
    outcome: OnceLock<TreeCheckOutcome>,
}

impl TreeCheckRun {
    /// One that is over and found nothing: for tests of those who show it.
    #[must_use]
    pub fn ended(pairs: Vec<PairId>) -> TreeCheckRun {
        let outcome = TreeCheckOutcome { pairs, ..TreeCheckOutcome::default() };
        TreeCheckRun { outcome: outcome.into(), ..TreeCheckRun::default() }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> TreeCheckProgress {
        TreeCheckProgress {
            tree_nodes: self.tree_nodes.load(Ordering::Relaxed),
            tree_nodes_all: self.tree_nodes_all.load(Ordering::Relaxed),
            entries: self.entries.load(Ordering::Relaxed),
            violations: self.violations.load(Ordering::Relaxed),
        }
    }

    /// What it found; none as long as it is not over.
    #[must_use]
    pub fn outcome(&self) -> Option<&TreeCheckOutcome> {
        self.outcome.get()
    }
}

/// What a check goes through: the worker's pairs.
pub(crate) trait CheckedPairs {
    /// A pair's name; none where there is no pair.
    fn id(&self, at: PairAt) -> Option<PairId>;
    /// The first place from this one on that has a pair; none behind the last.
    fn next(&self, from: PairAt) -> Option<PairAt>;
    /// The pair's slots.
    fn slots(&self, at: PairAt) -> u32;
    /// One above the highest tree node of a slot that was ever in use.
    fn nodes_end(&self, at: PairAt, slot: SlotIndex) -> NodeIndex;
    /// Looks at a tree node.
    fn check(&self, at: PairAt, slot: SlotIndex, node: NodeIndex) -> Result<NodeLook, TreeViolation>;
    /// Tree nodes in use.
    fn tree_nodes(&self) -> u64;
}

impl CheckedPairs for Pairs {
    fn id(&self, at: PairAt) -> Option<PairId> {
        self.known(at).map(|owned| owned.pair.id())
    }

    fn next(&self, from: PairAt) -> Option<PairAt> {
        self.all().find(|at| *at >= from)
    }

    fn slots(&self, at: PairAt) -> u32 {
        self.pair(at).slot_count()
    }

    fn nodes_end(&self, at: PairAt, slot: SlotIndex) -> NodeIndex {
        self.pair(at).nodes_end(slot)
    }

    fn check(&self, at: PairAt, slot: SlotIndex, node: NodeIndex) -> Result<NodeLook, TreeViolation> {
        self.pair(at).check_node(slot, node)
    }

    fn tree_nodes(&self) -> u64 {
        self.iter().map(|owned| owned.pair.figures().tree_nodes).sum()
    }
}

/// Where a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    pair: u16,
    slot: u32,
    node: u32,
}

/// A tree node that broke a rule when it was looked at last.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    at: PairAt,
    fault: TreeFault,
    looks: u8,
    due_ns: u64,
}

/// The check that the worker is at.
#[derive(Debug)]
struct Running {
    run: Arc<TreeCheckRun>,
    started_ns: u64,
    cursor: Cursor,
    pairs: Vec<PairId>,
    suspects: Vec<Suspect>,
    faults: Vec<TreeFault>,
    /// All tree nodes were looked at.
    is_through: bool,
}

/// Carries checks out, one after the other.
#[derive(Debug, Default)]
pub(crate) struct TreeChecker {
    running: Option<Running>,
    waiting: VecDeque<Arc<TreeCheckRun>>,
    /// Of checks that have ended.
    violations: u64,
}

impl TreeChecker {
    /// Takes a check in. Whoever asks for checks bounds how many wait.
    pub(crate) fn begin(&mut self, run: Arc<TreeCheckRun>) {
        self.waiting.push_back(run);
    }

    /// Whether the next turn has something to look at, and not only something to wait for.
    pub(crate) fn has_work(&self) -> bool {
        match &self.running {
            Some(running) => !running.is_through && running.suspects.len() < SUSPECTS_MAX,
            None => !self.waiting.is_empty(),
        }
    }

    /// Violations that all checks have found since the start.
    pub(crate) fn violations(&self) -> u64 {
        let running = self.running.as_ref().map(Running::violations);
        self.violations + running.unwrap_or(0)
    }

    /// Looks at what is next.
    pub(crate) fn step(&mut self, pairs: &impl CheckedPairs, now_ns: u64) {
        let Some(mut running) = self.running.take().or_else(|| self.next(pairs, now_ns)) else { return };
        running.look_again(pairs, now_ns);
        if !running.is_through {
            running.is_through = running.go_on(pairs, now_ns);
        }
        if running.is_through && running.suspects.is_empty() {
            self.violations += running.violations();
            running.end(now_ns);
        } else {
            self.running = Some(running);
        }
    }

    fn next(&mut self, pairs: &impl CheckedPairs, now_ns: u64) -> Option<Running> {
        let run = self.waiting.pop_front()?;
        run.tree_nodes_all.store(pairs.tree_nodes(), Ordering::Relaxed);
        Some(Running {
            run,
            started_ns: now_ns,
            cursor: Cursor::default(),
            pairs: Vec::new(),
            suspects: Vec::new(),
            faults: Vec::new(),
            is_through: false,
        })
    }
}

impl Running {
    /// Looks at the next few tree nodes; whether there are no more.
    fn go_on(&mut self, pairs: &impl CheckedPairs, now_ns: u64) -> bool {
        let mut looked = 0;
        for _ in 0..PLACES_A_TURN {
            if looked >= NODES_A_TURN || self.suspects.len() >= SUSPECTS_MAX {
                return false;
            }
            let Some(at) = pairs.next(PairAt(self.cursor.pair)) else { return true };
            if at.0 != self.cursor.pair {
                self.cursor = Cursor { pair: at.0, ..Cursor::default() };
            }
            let Some(pair) = pairs.id(at) else { return true };
            if self.cursor.slot == 0 && self.cursor.node == 0 {
                self.pairs.push(pair);
            }
            let slot = SlotIndex(self.cursor.slot);
            if slot.0 >= pairs.slots(at) {
                self.cursor = Cursor { pair: self.cursor.pair + 1, ..Cursor::default() };
                continue;
            }
            let node = NodeIndex(self.cursor.node);
            if node >= pairs.nodes_end(at, slot) {
                self.cursor = Cursor { slot: slot.0 + 1, node: 0, ..self.cursor };
                continue;
            }
            self.cursor.node += 1;
            looked += usize::from(self.look(pairs, at, TreePlace { pair, slot, node }, now_ns));
        }
        false
    }

    /// Looks at a tree node for the first time; whether it is in use.
    fn look(&mut self, pairs: &impl CheckedPairs, at: PairAt, place: TreePlace, now_ns: u64) -> bool {
        let (entries, is_in_use) = match pairs.check(at, place.slot, place.node) {
            Ok(found) => (found.entries, found.in_use),
            Err(violation) => {
                self.suspect(at, TreeFault { place, violation }, now_ns);
                (0, true)
            }
        };
        self.run.tree_nodes.fetch_add(u64::from(is_in_use), Ordering::Relaxed);
        self.run.entries.fetch_add(entries, Ordering::Relaxed);
        is_in_use
    }

    fn suspect(&mut self, at: PairAt, fault: TreeFault, now_ns: u64) {
        if self.faults.len() >= VIOLATIONS_MAX {
            self.run.violations.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // A parent's fault is met at each of its children.
        let rule = |of: &TreeFault| (of.place.pair, of.place.slot, of.violation);
        let is_same = |other: &TreeFault| rule(other) == rule(&fault);
        let is_known = self.faults.iter().chain(self.suspects.iter().map(|one| &one.fault)).any(is_same);
        if !is_known {
            self.suspects.push(Suspect { at, fault, looks: 1, due_ns: now_ns + LOOK_AGAIN_NS });
        }
    }

    /// Looks again at suspects whose time has come: reports them, clears them, or leaves them for another
    /// time.
    fn look_again(&mut self, pairs: &impl CheckedPairs, now_ns: u64) {
        let mut suspects = std::mem::take(&mut self.suspects);
        let mut looked = 0;
        suspects.retain_mut(|suspect| {
            if suspect.due_ns > now_ns || looked >= NODES_A_TURN {
                return true;
            }
            looked += 1;
            let TreePlace { pair, slot, node } = suspect.fault.place;
            if pairs.id(suspect.at) != Some(pair) {
                return false; // it has left
            }
            let Err(violation) = pairs.check(suspect.at, slot, node) else { return false };
            suspect.fault.violation = violation;
            suspect.looks += 1;
            suspect.due_ns = now_ns + LOOK_AGAIN_NS;
            if suspect.looks >= LOOKS {
                self.run.violations.fetch_add(1, Ordering::Relaxed);
                self.faults.push(suspect.fault);
            }
            suspect.looks < LOOKS
        });
        self.suspects = suspects;
    }

    fn violations(&self) -> u64 {
        self.run.violations.load(Ordering::Relaxed)
    }

    fn end(self, now_ns: u64) {
        let Running { run, started_ns, pairs, mut faults, .. } = self;
        faults.truncate(VIOLATIONS_MAX);
        for TreeFault { place: TreePlace { pair, slot, .. }, violation } in &faults {
            tracing::error!(pair = pair.0, slot = slot.0, "the tree is damaged: {violation}");
        }
        let outcome = TreeCheckOutcome { pairs, faults, duration_ns: now_ns.saturating_sub(started_ns) };
        let _ = run.outcome.set(outcome); // nobody else sets it
    }
}

#[cfg(test)]
mod tests {
    use cell_tree::StructureViolation;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Two pairs of three slots, of which the middle one holds some tree nodes.
    struct Fake {
        nodes: u32,
        /// Tree nodes of the first pair that break a rule until this time.
        broken: Vec<(u32, u64)>,
        now_ns: std::cell::Cell<u64>,
    }

    impl CheckedPairs for Fake {
        fn id(&self, at: PairAt) -> Option<PairId> {
            (at.0 < 2).then(|| PairId(u32::from(at.0) + 1))
        }

        fn next(&self, from: PairAt) -> Option<PairAt> {
            self.id(from).map(|_| from)
        }

        fn slots(&self, _at: PairAt) -> u32 {
            3
        }

        fn nodes_end(&self, _at: PairAt, slot: SlotIndex) -> NodeIndex {
            NodeIndex(if slot.0 == 1 { self.nodes } else { 0 })
        }

        fn check(&self, at: PairAt, slot: SlotIndex, node: NodeIndex) -> Result<NodeLook, TreeViolation> {
            assert!(slot.0 == 1 && node.0 < self.nodes);
            let is_broken =
                |(broken, until_ns): &(u32, u64)| *broken == node.0 && self.now_ns.get() < *until_ns;
            if at.0 == 0 && self.broken.iter().any(is_broken) {
                return Err(StructureViolation::LowFence(node).into());
            }
            Ok(NodeLook { in_use: true, entries: 10 })
        }

        fn tree_nodes(&self) -> u64 {
            2 * u64::from(self.nodes)
        }
    }

    /// Lets a check end: what it found, and how many turns it took.
    fn checked(nodes: u32, broken: Vec<(u32, u64)>) -> (Arc<TreeCheckRun>, u64) {
        let fake = Fake { nodes, broken, now_ns: 0.into() };
        let (mut checker, run) = (TreeChecker::default(), Arc::<TreeCheckRun>::default());
        checker.begin(run.clone());
        let mut turns = 0;
        while run.outcome().is_none() {
            checker.step(&fake, fake.now_ns.get());
            fake.now_ns.set(fake.now_ns.get() + MS);
            turns += 1;
            assert!(turns < 100_000, "it ends: {:?}", run.progress());
        }
        assert!(!checker.has_work());
        assert_eq!(checker.violations(), run.progress().violations);
        (run, turns)
    }

    #[test]
    fn step_looks_at_a_few_tree_nodes_and_in_the_end_at_all() {
        let (run, turns) = checked(1_000, Vec::new());
        let progress = run.progress();
        assert_eq!((progress.tree_nodes, progress.tree_nodes_all), (2_000, 2_000));
        assert_eq!((progress.entries, progress.violations), (20_000, 0));
        let outcome = run.outcome().unwrap();
        assert_eq!((&*outcome.pairs, outcome.faults.len()), (&[PairId(1), PairId(2)][..], 0));
        assert!((500..600).contains(&turns), "{turns}");
        assert_eq!(outcome.duration_ns, (turns - 1) * MS);
    }

    #[test]
    fn step_reports_what_stays_broken_and_not_what_mends_itself() {
        let moment_ns = 400 * MS;
        let (run, _) = checked(1_000, vec![(7, u64::MAX), (8, moment_ns / 100), (9, moment_ns / 100)]);
        let place = TreePlace { pair: PairId(1), slot: SlotIndex(1), node: NodeIndex(7) };
        let violation = StructureViolation::LowFence(NodeIndex(7)).into();
        assert_eq!(run.outcome().unwrap().faults, [TreeFault { place, violation }]);
        assert_eq!(run.progress().violations, 1);
    }

    #[test]
    fn step_in_a_tree_that_is_damaged_all_over_names_some_and_counts_on() {
        let (run, turns) = checked(1_000, (0..1_000).map(|node| (node, u64::MAX)).collect());
        let (outcome, progress) = (run.outcome().unwrap(), run.progress());
        assert_eq!((outcome.faults.len(), progress.tree_nodes), (VIOLATIONS_MAX, 2_000));
        assert_eq!(progress.violations, 1_000);
        assert!(turns < 1_500, "{turns}");
    }

    #[test]
    fn begin_of_several_carries_them_out_one_after_the_other() {
        let fake = Fake { nodes: 8, broken: Vec::new(), now_ns: 0.into() };
        let runs: Vec<Arc<TreeCheckRun>> = (0..3).map(|_| Arc::default()).collect();
        let mut checker = TreeChecker::default();
        runs.iter().for_each(|run| checker.begin(run.clone()));
        let ended = || runs.iter().filter(|run| run.outcome().is_some()).count();
        for turn in 0..100 {
            let before = ended();
            checker.step(&fake, turn);
            assert!(
                ended() <= before + 1
                    && ended() == runs.iter().take_while(|run| run.outcome().is_some()).count()
            );
        }
        assert_eq!((ended(), checker.has_work()), (3, false));
        checker.step(&fake, 100);
    }
}
