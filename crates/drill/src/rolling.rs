//! A rolling restart of the same version: each node in turn is emptied, stopped, started and given pairs
//! again. A pure core: it is shown statuses and says what to ask of the supervisor.

use std::collections::BTreeMap;

use crate::wire::{DrillRequest, NodeView, PairView, Status};

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
    /// All that are to be restarted, fixed at the begin, and how often each was started before its turn.
    planned: BTreeMap<u16, u64>,
    /// Of the present one; none before its turn.
    stage: Option<RollingStage>,
    /// Its pairs at the last look.
    left: usize,
    /// Since when nothing has come on.
    since_ms: u64,
    patience_ms: u64,
}

fn pairs_of(status: &Status, node: u16) -> usize {
    status.pairs.iter().filter(|pair| pair.node == u32::from(node)).count()
}

fn is_given_up(node: &NodeView) -> bool {
    node.state == "given up"
}

/// What is not well, in words; none: all nodes that were not given up serve, and all pairs are served.
fn unwell(status: &Status) -> Option<String> {
    let runs = |node: &NodeView| node.state == "serving" || is_given_up(node);
    let owned = |owner: Option<u64>| owner.is_some_and(|owner| status.leases.contains(&owner));
    let node = status.nodes.iter().find(|node| !runs(node));
    let pair = status.pairs.iter().find(|pair| !pair.is_served() || !owned(pair.owner));
    let node = node.map(|node| format!("node {} is {}", node.node, node.state));
    node.or_else(|| pair.map(|pair| format!("pair {} is not served", pair.pair)))
}

fn is_well(status: &Status) -> bool {
    unwell(status).is_none()
}

impl Rolling {
    /// Of all nodes that the supervisor has and has not given up, whether or not they serve at this moment;
    /// nothing may stand still for longer than `patience_ms`.
    pub(crate) fn new(status: &Status, now_ms: u64, patience_ms: u64) -> Rolling {
        let planned = status.nodes.iter().filter(|node| !is_given_up(node));
        let nodes = planned.clone().map(|node| node.node).collect();
        let planned = planned.map(|node| (node.node, node.lives)).collect();
        Rolling { nodes, planned, stage: None, left: 0, since_ms: now_ms, patience_ms }
    }

    /// What is to be done at this status. `without_agent` is a node that nobody who is asked has.
    pub(crate) fn look(&mut self, now_ms: u64, status: &Status, without_agent: Option<u32>) -> RollingAction {
        match without_agent {
            // It may have had no lease when the drill began.
            Some(node) => stuck(&format!("node {node} has no agent among those that are named")),
            None => self.step(now_ms, status),
        }
    }

    fn step(&mut self, now_ms: u64, status: &Status) -> RollingAction {
        if let Some(why) = self.lost(status) {
            return stuck(&why);
        }
        let Some(&node) = self.nodes.first() else { return self.end(now_ms, status) };
        let Some(view) = status.node(node) else { return stuck(&gone(node)) };
        let (lives, serves) = (view.lives, view.state == "serving");
        let before = self.planned.get(&node).copied().unwrap_or(lives);
        match self.stage {
            None if is_well(status) => {
                self.planned.insert(node, lives);
                self.left = pairs_of(status, node);
                self.begin(now_ms, DrillRequest::Drain { node, on: true }, RollingStage::Draining)
            }
            Some(RollingStage::Draining) if lives != before => {
                stuck(&format!("the process of node {node} ended before it was to be stopped"))
            }
            // A pair that nobody serves yet may go back to it.
            Some(RollingStage::Draining)
                if pairs_of(status, node) == 0 && status.pairs.iter().all(PairView::is_served) =>
            {
                self.begin(now_ms, DrillRequest::Restart { node }, RollingStage::Restarting)
            }
            Some(RollingStage::Restarting) if lives > before && serves => {
                let action = self.begin(now_ms, DrillRequest::Drain { node, on: false }, RollingStage::Back);
                self.nodes.remove(0);
                self.stage = None;
                action
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

    /// Of those that are to be restarted, or were: one that has no process and gets none, in words.
    fn lost(&self, status: &Status) -> Option<String> {
        self.planned.keys().find_map(|node| match status.node(*node) {
            None => Some(gone(*node)),
            Some(view) if is_given_up(view) => Some(format!("node {node} is not started again")),
            Some(_) => None,
        })
    }

    /// No node's turn is to come.
    fn end(&self, now_ms: u64, status: &Status) -> RollingAction {
        match self.left_out(status) {
            Some(why) => stuck(&why),
            None if is_well(status) => RollingAction::Done,
            None => self.wait(now_ms, status),
        }
    }

    /// Why this is no restart of all nodes, in words.
    fn left_out(&self, status: &Status) -> Option<String> {
        if self.planned.is_empty() {
            return Some("there is no node to restart".to_owned());
        }
        let was_restarted =
            |view: &NodeView| self.planned.get(&view.node).is_some_and(|before| view.lives > *before);
        let left_out = status.nodes.iter().find(|view| !is_given_up(view) && !was_restarted(view))?;
        Some(format!("node {} was not restarted", left_out.node))
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
        let lacks = unwell(status).map_or(String::new(), |what| format!(": {what}"));
        let what = match (self.nodes.first(), self.stage) {
            (Some(node), Some(RollingStage::Draining)) if self.left == 0 => {
                format!("node {node} is empty, and a pair may go back to it{lacks}")
            }
            (Some(node), Some(RollingStage::Draining)) => {
                format!("node {node} still has {} of its pairs{}", self.left, stall.unwrap_or_default())
            }
            (Some(node), Some(_)) => format!("node {node} does not serve again"),
            (Some(node), None) => format!("not everything is well before node {node}'s turn{lacks}"),
            (None, _) => format!("not everything is well afterwards{lacks}"),
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
    use crate::wire::DRAINED_BY;

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
        let mut handed = drained(0, empty.clone());
        handed.pairs[0].state = "recovering".to_owned();
        assert_eq!(rolling.step(141, &handed), RollingAction::Wait, "it may come back");
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

    /// It was said to have 0 of its pairs still.
    #[test]
    fn step_of_an_empty_node_to_which_a_pair_may_go_back_says_so() {
        let begin = status(&[WELL, WELL], &[0, 1]);
        let mut rolling = Rolling::new(&begin, 0, 100);
        rolling.step(1, &begin);
        let mut handed = drained(0, status(&[WELL, WELL], &[1, 1]));
        handed.pairs[0].state = "recovering".to_owned();
        assert_eq!(rolling.step(2, &handed), RollingAction::Wait);
        let why = why_stuck(rolling.step(102, &handed));
        assert!(
            why.ends_with("node 0 is empty, and a pair may go back to it: pair 1 is not served"),
            "{why}"
        );
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

    fn why_stuck(action: RollingAction) -> String {
        let RollingAction::Stuck(why) = action else { panic!("it goes on: {action:?}") };
        why
    }

    /// A node without a lease when the fault began was left out, and the drill passed without its restart.
    #[test]
    fn step_leaves_out_no_node_that_is_silent_when_it_begins() {
        const SILENT: (u64, &str) = (1, "silent");
        for begin in [status(&[SILENT, WELL], &[0, 1]), status(&[SILENT, SILENT], &[0, 1])] {
            let mut rolling = Rolling::new(&begin, 0, 100);
            assert_eq!(rolling.nodes, [0, 1]);
            assert_eq!(rolling.step(1, &begin), RollingAction::Wait);
            let mut unserved = Rolling::new(&begin, 0, 100);
            let why = why_stuck(unserved.step(100, &begin));
            assert!(why.ends_with("not everything is well before node 0's turn: node 0 is silent"), "{why}");
            // Who cannot be emptied, as without logs, is refused by this and not before.
            let drain = DrillRequest::Drain { node: 0, on: true };
            let action = rolling.step(50, &status(&[WELL, WELL], &[0, 1]));
            assert_eq!(action, RollingAction::Ask(drain, RollingStage::Draining));
        }
    }

    #[test]
    fn step_is_not_done_before_each_node_was_restarted() {
        let begin = status(&[WELL, WELL], &[0, 1]);
        let ended = |of: &Status, now: &Status| {
            Rolling { nodes: Vec::new(), ..Rolling::new(of, 0, 100) }.step(1, now)
        };
        assert_eq!(ended(&begin, &status(&[NEXT, NEXT], &[0, 1])), RollingAction::Done);
        let why = why_stuck(ended(&begin, &status(&[NEXT, WELL], &[0, 1])));
        assert!(why.ends_with("node 1 was not restarted"), "{why}");
        let why = why_stuck(ended(&status(&[WELL], &[0]), &status(&[NEXT, NEXT], &[0, 1])));
        assert!(why.ends_with("node 1 was not restarted"), "it came meanwhile: {why}");
        let why = why_stuck(ended(&begin, &status(&[(2, "given up"), NEXT], &[1, 1])));
        assert!(why.ends_with("node 0 is not started again"), "it was, and ended for good: {why}");
    }

    #[test]
    fn step_of_no_node_at_all_is_not_done() {
        for nobody in [status(&[], &[]), status(&[(1, "given up")], &[])] {
            let why = why_stuck(Rolling::new(&nobody, 0, 100).step(1, &nobody));
            assert!(why.ends_with("there is no node to restart"), "{why}");
        }
    }

    /// It was taken for the restart that the drill asks for.
    #[test]
    fn step_of_a_node_that_ends_while_it_is_emptied_says_so() {
        let begin = status(&[WELL, WELL], &[0, 1]);
        let mut rolling = Rolling::new(&begin, 0, 100);
        rolling.step(1, &begin);
        let why = why_stuck(rolling.step(2, &status(&[NEXT, WELL], &[1, 1])));
        assert!(why.ends_with("the process of node 0 ended before it was to be stopped"), "{why}");
    }

    /// It had no lease when the drill began, so that nobody missed its agent.
    #[test]
    fn look_at_a_node_that_no_agent_has_is_not_done() {
        let begin = status(&[WELL, WELL], &[0, 1]);
        let mut rolling = Rolling { nodes: Vec::new(), ..Rolling::new(&begin, 0, 100) };
        let end = status(&[NEXT, NEXT], &[0, 1]);
        let why = why_stuck(rolling.look(1, &end, Some(7)));
        assert!(why.ends_with("node 7 has no agent among those that are named"), "{why}");
        assert_eq!(rolling.look(1, &end, None), RollingAction::Done);
    }
}
