//! A rolling restart of the same version: each node in turn is emptied, stopped, started and given pairs
//! again. A pure core: it is shown statuses and says what to ask of the supervisor.

use crate::wire::{DrillRequest, NodeView, Status};

/// How far a node of a rolling restart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollingStage {
    /// Its pairs move to the others.
    Draining,
    /// It is empty, and is stopped and started.
    Restarting,
    /// It serves again, and may have pairs.
    Back,
}

impl RollingStage {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            RollingStage::Draining => "is emptied",
            RollingStage::Restarting => "is empty, and is restarted",
            RollingStage::Back => "serves again",
        }
    }
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RollingAction {
    /// Ask the supervisor for this; the node is in that stage from then on.
    Ask(DrillRequest, RollingStage),
    /// Look again.
    Wait,
    /// All nodes were restarted, and everything is served.
    Done,
    /// It does not come on.
    Stuck(String),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Rolling {
    /// The nodes to come, the present one first.
    nodes: Vec<u16>,
    /// Of the present one; none before its turn.
    stage: Option<RollingStage>,
    /// Its processes before.
    lives: u64,
    /// Its pairs at the last look.
    left: usize,
    /// Since when nothing has come on.
    since_ms: u64,
    patience_ms: u64,
}

fn pairs_of(status: &Status, node: u16) -> usize {
    status.pairs.iter().filter(|pair| pair.node == u32::from(node)).count()
}

/// Whether all nodes that were not given up serve, and all pairs are served.
fn is_well(status: &Status) -> bool {
    let runs = |node: &NodeView| matches!(node.state.as_str(), "serving" | "given up");
    let owned = |owner: Option<u64>| owner.is_some_and(|owner| status.leases.contains(&owner));
    status.nodes.iter().all(runs) && status.pairs.iter().all(|pair| pair.is_served() && owned(pair.owner))
}

impl Rolling {
    /// Of all nodes that serve; nothing may stand still for longer than `patience_ms`.
    pub(crate) fn new(status: &Status, now_ms: u64, patience_ms: u64) -> Rolling {
        let serving = status.nodes.iter().filter(|node| node.state == "serving").map(|node| node.node);
        Rolling { nodes: serving.collect(), stage: None, lives: 0, left: 0, since_ms: now_ms, patience_ms }
    }

    /// What is to be done at this status.
    pub(crate) fn step(&mut self, now_ms: u64, status: &Status) -> RollingAction {
        let Some(&node) = self.nodes.first() else {
            return if is_well(status) { RollingAction::Done } else { self.wait(now_ms, status) };
        };
        let Some(view) = status.node(node) else { return stuck(&gone(node)) };
        let (lives, serves) = (view.lives, view.state == "serving");
        match self.stage {
            None if is_well(status) => {
                (self.lives, self.left) = (lives, pairs_of(status, node));
                self.begin(now_ms, DrillRequest::Drain { node, on: true }, RollingStage::Draining)
            }
            Some(RollingStage::Draining) if pairs_of(status, node) == 0 => {
                self.begin(now_ms, DrillRequest::Restart { node }, RollingStage::Restarting)
            }
            Some(RollingStage::Restarting) if lives > self.lives && serves => {
                let action = self.begin(now_ms, DrillRequest::Drain { node, on: false }, RollingStage::Back);
                self.nodes.remove(0);
                self.stage = None;
                action
            }
            Some(RollingStage::Restarting) if view.state == "given up" => {
                stuck(&format!("node {node} is not started again"))
            }
            Some(RollingStage::Draining) if view.drained_by.is_none() => {
                stuck(&format!("node {node} is not to be emptied any more, somebody ended its drain"))
            }
            Some(RollingStage::Draining) if pairs_of(status, node) != self.left => {
                (self.left, self.since_ms) = (pairs_of(status, node), now_ms);
                RollingAction::Wait
            }
            _ => self.wait(now_ms, status),
        }
    }

    fn begin(&mut self, now_ms: u64, request: DrillRequest, stage: RollingStage) -> RollingAction {
        (self.stage, self.since_ms) = (Some(stage), now_ms);
        RollingAction::Ask(request, stage)
    }

    fn wait(&self, now_ms: u64, status: &Status) -> RollingAction {
        if now_ms.saturating_sub(self.since_ms) < self.patience_ms {
            return RollingAction::Wait;
        }
        let node = self.nodes.first().and_then(|node| status.node(*node));
        let stall = node.and_then(|node| node.drain_stall.as_ref()).map(|stall| format!(": {stall}"));
        let what = match (self.nodes.first(), self.stage) {
            (Some(node), Some(RollingStage::Draining)) => {
                format!("node {node} still has {} of its pairs{}", self.left, stall.unwrap_or_default())
            }
            (Some(node), Some(_)) => format!("node {node} does not serve again"),
            (Some(node), None) => format!("not everything is well before node {node}'s turn"),
            (None, _) => "not everything is well afterwards".to_owned(),
        };
        stuck(&what)
    }
}

fn stuck(what: &str) -> RollingAction {
    RollingAction::Stuck(format!("the rolling restart does not come on: {what}"))
}

/// Of a node that has no place in the cluster any more.
pub(crate) fn gone(node: u16) -> String {
    format!("node {node} was taken away while the drill ran")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::tests::view;
    use crate::wire::{DRAINED_BY, PairView};

    fn node(node: u16, lives: u64, state: &str) -> NodeView {
        NodeView { lives, state: state.to_owned(), ..view(node) }
    }

    /// Nodes with these lives, and pairs at these nodes; the owner of node `n`'s pairs is `n`.
    fn status(nodes: &[(u64, &str)], pairs: &[u32]) -> Status {
        let nodes = (0..).zip(nodes).map(|(number, (lives, state))| node(number, *lives, state)).collect();
        let pair = |(pair, node): (u32, &u32)| PairView {
            pair,
            node: *node,
            owner: Some(u64::from(*node)),
            epoch: 1,
            state: "serving".to_owned(),
            cut_epoch: None,
            trouble: None,
            next: None,
        };
        let pairs = (1..).zip(pairs).map(pair).collect();
        Status { nodes, pairs, leases: vec![0, 1], ..Status::default() }
    }

    /// The same; a drill wants this node empty.
    fn drained(node: usize, mut status: Status) -> Status {
        status.nodes[node].drained_by = Some(DRAINED_BY.to_owned());
        status
    }

    const WELL: (u64, &str) = (1, "serving");
    const NEXT: (u64, &str) = (2, "serving");

    #[test]
    fn step_empties_restarts_and_fills_one_node_after_the_other() {
        let begin = status(&[WELL, WELL], &[0, 0, 1]);
        let mut rolling = Rolling::new(&begin, 0, 100);
        let ask = RollingAction::Ask;
        let drain = |node, on| DrillRequest::Drain { node, on };
        assert_eq!(rolling.step(1, &begin), ask(drain(0, true), RollingStage::Draining));
        let half = drained(0, status(&[WELL, WELL], &[0, 1, 1]));
        assert_eq!(rolling.step(50, &half), RollingAction::Wait);
        assert_eq!(rolling.step(140, &half), RollingAction::Wait, "a pair has moved");
        let empty = status(&[WELL, WELL], &[1, 1, 1]);
        let restart = DrillRequest::Restart { node: 0 };
        assert_eq!(rolling.step(145, &empty), ask(restart, RollingStage::Restarting));
        assert_eq!(rolling.step(146, &empty), RollingAction::Wait, "the process before serves still");
        assert_eq!(rolling.step(147, &status(&[(2, "starting"), WELL], &[1, 1, 1])), RollingAction::Wait);
        let back = status(&[NEXT, WELL], &[1, 1, 1]);
        assert_eq!(rolling.step(148, &back), ask(drain(0, false), RollingStage::Back));
        assert_eq!(rolling.step(149, &back), ask(drain(1, true), RollingStage::Draining));
        let restart = DrillRequest::Restart { node: 1 };
        assert_eq!(
            rolling.step(150, &status(&[NEXT, WELL], &[0, 0, 0])),
            ask(restart, RollingStage::Restarting)
        );
        let back = status(&[NEXT, NEXT], &[0, 0, 0]);
        assert_eq!(rolling.step(151, &back), ask(drain(1, false), RollingStage::Back));
        assert_eq!(rolling.step(152, &back), RollingAction::Done);
    }

    #[test]
    fn step_of_what_does_not_come_on_says_why() {
        let begin = status(&[WELL, WELL], &[0, 1]);
        let mut rolling = Rolling::new(&begin, 0, 100);
        rolling.step(1, &begin);
        let mut stalled = drained(0, begin.clone());
        stalled.nodes[0].drain_stall = Some("pair-1 cannot move: no room".to_owned());
        assert_eq!(rolling.step(100, &stalled), RollingAction::Wait);
        let RollingAction::Stuck(why) = rolling.step(101, &stalled) else { panic!("it waits") };
        assert!(why.ends_with("node 0 still has 1 of its pairs: pair-1 cannot move: no room"), "{why}");
    }

    /// It waited until its patience was over, and did not say why nothing came on.
    #[test]
    fn step_of_a_drain_that_somebody_ended_says_so_at_once() {
        let begin = status(&[WELL, WELL], &[0, 1]);
        let mut rolling = Rolling::new(&begin, 0, 100);
        rolling.step(1, &begin);
        assert_eq!(rolling.step(2, &drained(0, begin.clone())), RollingAction::Wait);
        let RollingAction::Stuck(why) = rolling.step(3, &begin) else { panic!("it waits") };
        assert!(why.ends_with("node 0 is not to be emptied any more, somebody ended its drain"), "{why}");
    }

    /// It waited until its patience was over, and said that the node did not serve again.
    #[test]
    fn step_of_a_node_that_was_taken_away_or_given_up_says_so_at_once() {
        let begin = status(&[WELL, WELL], &[0, 0]);
        let stuck_at = |stage: Option<RollingStage>, status: &Status| {
            let mut rolling = Rolling { nodes: vec![1], stage, ..Rolling::new(&begin, 0, 100) };
            let RollingAction::Stuck(why) = rolling.step(1, status) else { panic!("it waits") };
            why
        };
        let shrunk = status(&[WELL], &[0, 0]);
        for stage in [None, Some(RollingStage::Draining), Some(RollingStage::Restarting)] {
            let why = stuck_at(stage, &shrunk);
            assert!(why.ends_with("node 1 was taken away while the drill ran"), "{why}");
        }
        let ended = status(&[WELL, (1, "given up")], &[0, 0]);
        let why = stuck_at(Some(RollingStage::Restarting), &ended);
        assert!(why.ends_with("node 1 is not started again"), "{why}");
    }

    #[test]
    fn step_does_not_begin_a_node_while_something_is_not_well() {
        let begin = status(&[WELL, WELL], &[0, 1]);
        let mut rolling = Rolling::new(&begin, 0, 100);
        assert_eq!(rolling.step(1, &status(&[WELL, (1, "recovering")], &[0, 1])), RollingAction::Wait);
        let mut orphaned = begin.clone();
        orphaned.leases = vec![0];
        assert_eq!(rolling.step(2, &orphaned), RollingAction::Wait);
        assert!(matches!(rolling.step(100, &orphaned), RollingAction::Stuck(_)));
    }
}
