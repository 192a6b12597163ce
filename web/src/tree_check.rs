//! Checks of the tree that this node was asked for: its own part, which its worker carries out, and the parts
//! that other nodes have started for it. Kept in memory, the last ones.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_cluster::MemberRow;
use cell_node::{TreeCheckRun, TreeFault};
use serde::{Deserialize, Serialize};

/// Checks that are kept; the oldest go first.
const KEPT_MAX: usize = 20;
/// Checks of this node that are under way or wait, at most.
const UNDER_WAY_MAX: usize = 4;
/// So often in a row a node may not answer before its part is given up.
const SILENT_MAX: u8 = 5;

/// A rule that is broken, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FaultRow {
    pair: u32,
    slot: u32,
    /// The tree node's place in the slot.
    index: u32,
    /// The rule, in words.
    what: String,
}

impl From<&TreeFault> for FaultRow {
    fn from(fault: &TreeFault) -> FaultRow {
        FaultRow {
            pair: fault.place.pair.0,
            slot: fault.place.slot.0,
            index: fault.place.node.0,
            what: fault.violation.to_string(),
        }
    }
}

/// A node's part of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckPart {
    pub(crate) node: u32,
    pub(crate) done: bool,
    /// Tree nodes that were looked at.
    pub(crate) tree_nodes: u64,
    /// Tree nodes in use when it began.
    pub(crate) tree_nodes_all: u64,
    pub(crate) entries: u64,
    /// All of them, also those that are not in `found`.
    pub(crate) violations: u64,
    pub(crate) duration_us: Option<u64>,
    /// The pairs that were gone through; empty until it is done.
    pub(crate) pairs: Vec<u32>,
    pub(crate) found: Vec<FaultRow>,
}

impl CheckPart {
    fn of(node: u32, run: &TreeCheckRun) -> CheckPart {
        // Read first: what is counted until the end is in the progress then.
        let outcome = run.outcome();
        let progress = run.progress();
        CheckPart {
            node,
            done: outcome.is_some(),
            tree_nodes: progress.tree_nodes,
            tree_nodes_all: progress.tree_nodes_all,
            entries: progress.entries,
            violations: progress.violations,
            duration_us: outcome.map(|outcome| outcome.duration_ns / 1_000),
            pairs: outcome.map_or(Vec::new(), |outcome| outcome.pairs.iter().map(|pair| pair.0).collect()),
            found: outcome.map_or(Vec::new(), |outcome| outcome.faults.iter().map(FaultRow::from).collect()),
        }
    }
}

/// What is known of another node's part.
#[derive(Clone, Debug)]
pub(crate) struct PeerCheck {
    pub(crate) member: MemberRow,
    /// The name of its operation, or why it has none.
    pub(crate) operation: Result<String, String>,
    /// What it said last.
    part: Option<CheckPart>,
    /// Why it did not answer last, and how often in a row.
    silent: Option<(String, u8)>,
}

impl PeerCheck {
    /// Of a node that was asked to begin.
    pub(crate) fn new(member: MemberRow, operation: Result<String, String>) -> PeerCheck {
        PeerCheck { member, operation, part: None, silent: None }
    }

    /// Whether nothing more is awaited of it.
    pub(crate) fn is_over(&self) -> bool {
        let is_given_up = self.silent.as_ref().is_some_and(|(_, times)| *times >= SILENT_MAX);
        self.operation.is_err() || is_given_up || self.part.as_ref().is_some_and(|part| part.done)
    }

    /// Takes in what it says of its part.
    pub(crate) fn on_answer(&mut self, answer: Result<CheckPart, String>) {
        if self.is_over() {
            return;
        }
        match answer {
            Ok(part) => (self.part, self.silent) = (Some(part), None),
            Err(why) => {
                let times = self.silent.as_ref().map_or(0, |(_, times)| *times);
                self.silent = Some((why, times + 1));
            }
        }
    }

    /// Its part, or why there is none.
    pub(crate) fn part(&self) -> Result<&CheckPart, String> {
        let why = match (&self.operation, &self.silent, &self.part) {
            (Err(why), ..) | (Ok(_), Some((why, _)), _) => why.clone(),
            (Ok(_), None, Some(part)) => return Ok(part),
            (Ok(_), None, None) => "it was not asked yet".to_owned(),
        };
        Err(why)
    }
}

/// A check.
pub(crate) struct TreeCheck {
    pub(crate) id: String,
    /// The node that was asked for it.
    pub(crate) runner: u32,
    pub(crate) begun_unix_ms: u64,
    run: Arc<TreeCheckRun>,
    peers: Mutex<Vec<PeerCheck>>,
}

impl TreeCheck {
    /// A check that the worker of the node `runner` has started.
    pub(crate) fn new(runner: u32, begun_unix_ms: u64, run: Arc<TreeCheckRun>) -> TreeCheck {
        let id = format!("check-{runner}-{:016x}", RandomState::new().build_hasher().finish());
        TreeCheck { id, runner, begun_unix_ms, run, peers: Mutex::default() }
    }

    /// This node's part.
    pub(crate) fn own_part(&self) -> CheckPart {
        CheckPart::of(self.runner, &self.run)
    }

    /// The other nodes' parts. The lock is held for moments only.
    pub(crate) fn peers(&self) -> MutexGuard<'_, Vec<PeerCheck>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node that was asked for a check of this name, `check-NODE-DIGITS`. Other names are none of a check,
/// and never part of an address that a peer is asked for.
pub(crate) fn runner_of(id: &str) -> Option<u32> {
    let (runner, digits) = id.strip_prefix("check-")?.split_once('-')?;
    let is_name = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    runner.parse().ok().filter(|_| is_name)
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct TreeChecks {
    /// The newest last.
    kept: Mutex<VecDeque<Arc<TreeCheck>>>,
}

impl TreeChecks {
    /// Keeps a check that `begin` begins; none if too many of this node are not over.
    pub(crate) fn begin(&self, begin: impl FnOnce() -> TreeCheck) -> Option<Arc<TreeCheck>> {
        let mut kept = self.kept();
        let under_way = kept.iter().filter(|check| check.run.outcome().is_none()).count();
        if under_way >= UNDER_WAY_MAX {
            return None;
        }
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        let check = Arc::new(begin());
        kept.push_back(check.clone());
        Some(check)
    }

    /// The check of this name.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<TreeCheck>> {
        self.kept().iter().find(|check| check.id == id).cloned()
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<TreeCheck>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::test_members::life;

    pub(crate) fn peer(node: u32, operation: Result<&str, &str>) -> PeerCheck {
        PeerCheck::new(life(node, 1), operation.map(str::to_owned).map_err(str::to_owned))
    }

    pub(crate) fn part(node: u32, done: bool, violations: u64) -> CheckPart {
        let what = "its fences are wrong".to_owned();
        let found = (0..violations).map(|_| FaultRow { pair: node, slot: 0, index: 7, what: what.clone() });
        CheckPart {
            node,
            done,
            tree_nodes: 10,
            tree_nodes_all: 20,
            entries: 100,
            violations,
            duration_us: done.then_some(5),
            pairs: if done { vec![node] } else { Vec::new() },
            found: found.collect(),
        }
    }

    #[test]
    fn hear_of_a_silent_peer_gives_up_after_several_times_in_a_row() {
        let mut peer = peer(1, Ok("check-1-0"));
        for _ in 0..3 {
            (1..SILENT_MAX).for_each(|_| peer.on_answer(Err("no answer".to_owned())));
            assert!(!peer.is_over() && peer.part().is_err());
            peer.on_answer(Ok(part(1, false, 0)));
            assert!(!peer.is_over() && peer.part().is_ok());
        }
        (0..SILENT_MAX).for_each(|_| peer.on_answer(Err("no answer".to_owned())));
        assert_eq!((peer.is_over(), peer.part().unwrap_err()), (true, "no answer".to_owned()));
    }

    #[test]
    fn hear_of_a_peer_that_is_done_keeps_what_it_said() {
        let mut peer = peer(1, Ok("check-1-0"));
        peer.on_answer(Ok(part(1, true, 0)));
        peer.on_answer(Err("it has ended".to_owned()));
        assert!(peer.is_over() && peer.part().is_ok());
        let refused = self::peer(2, Err("it answers 409 Conflict"));
        assert!(refused.is_over() && refused.part().is_err());
    }

    #[test]
    fn begin_bounds_what_is_under_way_and_find_knows_it() {
        let checks = TreeChecks::default();
        let begin = || checks.begin(|| TreeCheck::new(3, 1_000, Arc::default()));
        let ids: Vec<_> = (0..UNDER_WAY_MAX).map(|_| begin().unwrap().id.clone()).collect();
        assert!(begin().is_none());
        for id in &ids {
            assert_eq!((checks.find(id).map(|check| check.runner), runner_of(id)), (Some(3), Some(3)));
        }
        assert!(checks.find("check-3-0").is_none());
        for id in ["check-3-", "check-3-x/y", "drill-3-0", "check--0", "check-3"] {
            assert_eq!(runner_of(id), None, "{id}");
        }
    }
}
