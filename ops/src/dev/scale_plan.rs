//! What `cell dev scale` does for a number of nodes: decided from the nodes as they are, before anything is
//! done. Pure.
//!
//! A node counts if it runs, or is about to: one that was removed, or that nothing starts again, does not.
//! Whoever is missing is started, those that were given up first, then free numbers from the lowest one on.
//! Whoever is too many leaves, from the last number on. So no node that runs is taken for one that does not.

use cell_terms::text::counted;

use super::scale_wire::{NODES_MAX, SCALED_BY, ScaleNode};

/// The state of a node that is not started again.
pub(crate) const GIVEN_UP: &str = "given up";
/// The state of one that is being stopped for good.
pub(crate) const STOPPING: &str = "stopping";
/// The state of one that has no place in the supervisor, and a row that says that it drains or was removed.
pub(crate) const LEFT: &str = "left";

/// See the module's text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ScalePlan {
    /// Nodes to start, in this order.
    pub(crate) start: Vec<u16>,
    /// Nodes that an earlier scale wanted empty, and that stay.
    pub(crate) keep: Vec<u16>,
    /// Nodes to empty, to stop and to remove, ascending.
    pub(crate) drain: Vec<u16>,
    /// Nodes that have nothing to be emptied of: to stop, where they have a place, and to remove.
    pub(crate) clear: Vec<u16>,
    /// What is to be said before it.
    pub(crate) notes: Vec<String>,
}

/// Whether a node counts.
pub(crate) fn is_there(of: &ScaleNode) -> bool {
    !of.removed && ![GIVEN_UP, STOPPING, LEFT].contains(&of.state.as_str())
}

/// Whether nothing starts a node again that may be there.
pub(crate) fn is_down(of: &ScaleNode) -> bool {
    !of.removed && of.state == GIVEN_UP
}

/// Whether a scale wants a node empty.
fn is_scaled_away(of: &ScaleNode) -> bool {
    of.draining && of.drained_by.as_deref() == Some(SCALED_BY)
}

/// Who drains or has removed a node, if that is no scale.
fn operator(of: &ScaleNode) -> Option<&str> {
    of.drained_by.as_deref().filter(|who| *who != SCALED_BY)
}

impl ScalePlan {
    /// For so many nodes, where these are there, in the order of their numbers.
    pub(crate) fn of(wanted: u16, nodes: &[ScaleNode]) -> ScalePlan {
        let present: Vec<&ScaleNode> = nodes.iter().filter(|of| is_there(of)).collect();
        let (stay, leave) = present.split_at(present.len().min(usize::from(wanted)));
        let start = to_start(usize::from(wanted) - stay.len(), nodes);
        let (keep, drained) = stayers(stay);
        let (drain, mut clear) = leavers(leave);
        let mut notes: Vec<String> = nodes
            .iter()
            .filter(|of| of.removed && start.contains(&of.node))
            .filter_map(|of| Some((of.node, operator(of)?)))
            .map(|(node, who)| {
                let why = counted(u64::from(wanted), "node is wanted", "nodes are wanted");
                format!("node {node} was removed for good, by {who}: that is taken back, because {why}")
            })
            .collect();
        notes.extend(drained);
        for of in nodes.iter().filter(|of| !is_there(of) && !start.contains(&of.node)) {
            notes.extend(leftover_note(wanted, of));
            clear.extend(is_left_over(of).then_some(of.node));
        }
        clear.sort_unstable();
        ScalePlan { start, keep, drain, clear, notes }
    }
}

/// So many nodes that are to come.
fn to_start(lacking: usize, nodes: &[ScaleNode]) -> Vec<u16> {
    let given_up = nodes.iter().filter(|of| is_down(of)).map(|of| of.node);
    let mut start: Vec<u16> = given_up.take(lacking).collect();
    let is_taken = |of: &ScaleNode| is_there(of) || is_down(of) || of.state == STOPPING;
    let is_free = |number: &u16| !nodes.iter().any(|of| of.node == *number && is_taken(of));
    let more = lacking - start.len();
    start.extend((0..NODES_MAX).filter(is_free).take(more));
    start
}

/// Of nodes that stay, those that an earlier scale wanted empty, and what is to be said of all that drain.
fn stayers(stay: &[&ScaleNode]) -> (Vec<u16>, Vec<String>) {
    let (mut keep, mut notes) = (Vec::new(), Vec::new());
    for of in stay.iter().filter(|of| of.draining) {
        let node = of.node;
        if let Some(who) = operator(of) {
            notes.push(format!(
                "node {node} is drained, by {who}, and stays so: `cell node undrain {node}` ends that"
            ));
        } else {
            keep.push(node);
            notes.push(format!("node {node} is not to be emptied any more"));
        }
    }
    (keep, notes)
}

/// Of nodes that leave, those that are to be emptied first, and those that have nothing and do not serve.
fn leavers(leave: &[&ScaleNode]) -> (Vec<u16>, Vec<u16>) {
    let (mut drain, mut clear) = (Vec::new(), Vec::new());
    for of in leave {
        let serves = matches!(of.state.as_str(), "serving" | "read_only");
        if serves || of.pairs > 0 { drain.push(of.node) } else { clear.push(of.node) }
    }
    (drain, clear)
}

/// Whether of a node that does not count something is left that is to go.
fn is_left_over(of: &ScaleNode) -> bool {
    match of.state.as_str() {
        LEFT => is_scaled_away(of),
        _ => of.removed || is_down(of) && of.pairs == 0,
    }
}

/// What is to be said of a node that does not count and is not started.
fn leftover_note(wanted: u16, of: &ScaleNode) -> Option<String> {
    let node = of.node;
    if is_down(of) && of.pairs > 0 {
        let (wait, more) = (counted(of.pairs as u64, "pair waits", "pairs wait"), wanted.saturating_add(1));
        return Some(format!(
            "node {node} is given up, and {wait} for it, or others: `cell dev scale {more}` starts it again"
        ));
    }
    let runs = of.removed && ![GIVEN_UP, STOPPING, LEFT].contains(&of.state.as_str());
    let who = operator(of).filter(|_| runs)?;
    Some(format!("node {node} was removed for good, by {who}: it is stopped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that serves, with a pair.
    fn node(node: u16) -> ScaleNode {
        ScaleNode { node, state: "serving".to_owned(), pairs: 1, ..ScaleNode::default() }
    }

    fn all(nodes: u16) -> Vec<ScaleNode> {
        (0..nodes).map(node).collect()
    }

    fn drained(of: ScaleNode, who: &str) -> ScaleNode {
        ScaleNode { draining: true, drained_by: Some(who.to_owned()), ..of }
    }

    fn removed(of: ScaleNode, who: &str) -> ScaleNode {
        ScaleNode { removed: true, drained_by: Some(who.to_owned()), pairs: 0, ..of }
    }

    fn in_state(of: ScaleNode, state: &str) -> ScaleNode {
        ScaleNode { state: state.to_owned(), ..of }
    }

    /// Of four nodes number 2 was removed, and its process has ended: it is not started again.
    fn without_two() -> Vec<ScaleNode> {
        let mut nodes = all(4);
        nodes[2] = in_state(removed(node(2), "ann"), GIVEN_UP);
        nodes
    }

    #[test]
    fn plan_of_a_number_that_is_there_does_nothing() {
        assert_eq!(ScalePlan::of(3, &all(3)), ScalePlan::default());
        // Also while one is being started again.
        let mut nodes = all(3);
        nodes[1] = in_state(node(1), "down");
        assert_eq!(ScalePlan::of(3, &nodes), ScalePlan::default());
    }

    /// Node 3 was drained, stopped and removed, and then node 2 was said to be given up: two were left.
    #[test]
    fn plan_takes_no_node_that_runs_for_one_that_was_removed() {
        let three = ScalePlan::of(3, &without_two());
        assert_eq!(three, ScalePlan { clear: vec![2], ..ScalePlan::default() });
        let two = ScalePlan::of(2, &without_two());
        assert_eq!((two.drain, two.clear, two.start), (vec![3], vec![2], vec![]));
    }

    /// No number was reached until all was stopped and started.
    #[test]
    fn plan_of_more_starts_again_what_was_given_up_or_removed_and_says_whose_word_that_is() {
        let four = ScalePlan::of(4, &without_two());
        assert_eq!((four.start, four.drain, four.clear), (vec![2], vec![], vec![]));
        let why = "that is taken back, because 4 nodes are wanted";
        assert_eq!(four.notes, [format!("node 2 was removed for good, by ann: {why}")]);
        // Of an end by itself nobody's word is taken back, and it comes before new numbers.
        let mut nodes = all(3);
        nodes[1] = in_state(node(1), GIVEN_UP);
        let four = ScalePlan::of(4, &nodes);
        assert_eq!((four.start, four.notes), (vec![1, 3], vec![]));
        // What a scale has removed is a free number.
        let gone = in_state(removed(node(2), SCALED_BY), LEFT);
        let three = ScalePlan::of(3, &[node(0), node(1), gone]);
        assert_eq!((three.start, three.notes), (vec![2], vec![]));
    }

    /// All were ended without a word.
    #[test]
    fn plan_ends_no_drain_that_an_operator_began() {
        let mut nodes = all(4);
        nodes[0] = drained(node(0), "ann");
        nodes[1] = drained(node(1), SCALED_BY);
        nodes[2] = removed(node(2), "bob");
        let four = ScalePlan::of(4, &nodes);
        assert_eq!((&four.keep[..], &four.start[..]), (&[1][..], &[2][..]));
        let said = [
            "node 2 was removed for good, by bob: that is taken back, because 4 nodes are wanted",
            "node 0 is drained, by ann, and stays so: `cell node undrain 0` ends that",
            "node 1 is not to be emptied any more",
        ];
        assert_eq!(four.notes, said);
        // Three are there without it: it goes, as it was to.
        let three = ScalePlan::of(3, &nodes);
        assert_eq!((&three.start[..], &three.clear[..]), (&[][..], &[2][..]));
        assert!(three.notes.contains(&"node 2 was removed for good, by bob: it is stopped".to_owned()));
    }

    #[test]
    fn plan_of_fewer_empties_the_last_ones_and_clears_what_has_nothing() {
        let mut nodes = all(5);
        nodes[4] = ScaleNode { pairs: 0, ..in_state(node(4), "down") };
        let two = ScalePlan::of(2, &nodes);
        assert_eq!((two.drain, two.clear), (vec![2, 3], vec![4]));
        // What waits for one that nobody starts stays its own.
        nodes[4] = in_state(node(4), GIVEN_UP);
        let four = ScalePlan::of(4, &nodes);
        assert_eq!((&four.drain[..], &four.clear[..]), (&[][..], &[][..]));
        assert!(four.notes[0].ends_with("`cell dev scale 5` starts it again"), "{:?}", four.notes);
    }

    /// It was never said that it is not expected back, if the command was killed after its end.
    #[test]
    fn plan_sees_through_what_an_earlier_one_has_left_and_leaves_what_an_operator_did() {
        let own = drained(in_state(ScaleNode { pairs: 0, ..node(2) }, LEFT), SCALED_BY);
        let others = drained(in_state(ScaleNode { pairs: 0, ..node(3) }, LEFT), "ann");
        let nodes = [node(0), node(1), own, others];
        assert_eq!(ScalePlan::of(2, &nodes), ScalePlan { clear: vec![2], ..ScalePlan::default() });
        let three = ScalePlan::of(3, &nodes);
        assert_eq!((three.start, three.clear), (vec![2], vec![]));
    }
}
