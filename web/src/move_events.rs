//! What happened of planned moves of pairs, as the differences between two looks at their rows. The rows say
//! when it was, by the wall clocks of those who wrote them.

use cell_cluster::{MoveOutcome, MoveRow, MoveStage};
use cell_node::ClusterSnapshot;
use cell_terms::NodeId;
use serde_json::{Value, json};

use crate::event_kind::Severity;

/// One thing that happened of a move.
#[derive(Debug, PartialEq)]
pub(crate) struct MoveEvent {
    /// The same at each node that sees it.
    pub(crate) id: String,
    /// Milliseconds since 1970, as the row has it; zero: it does not say.
    pub(crate) at_unix_ms: u64,
    /// Where it happened.
    pub(crate) node: NodeId,
    pub(crate) severity: Severity,
    pub(crate) text: String,
    pub(crate) details: Value,
}

/// What is new of all moves, of each in its order.
pub(crate) fn between(before: &ClusterSnapshot, now: &ClusterSnapshot) -> Vec<MoveEvent> {
    let new = |of: &MoveRow| {
        let then = before.moves.iter().find(|then| then.pair == of.pair && then.number == of.number);
        news(then, of)
    };
    let garbled = |of: &&MoveRow| of.is_under_way() && before.move_reads(of.pair) && !now.move_reads(of.pair);
    now.moves.iter().flat_map(new).chain(now.moves.iter().filter(garbled).map(unreadable)).collect()
}

/// Its row does not read any more.
fn unreadable(of: &MoveRow) -> MoveEvent {
    let (pair, from, to) = (of.pair, of.source.node, of.target.node);
    let what = "does not read any more, and it does not go on until that does (`cell status`)";
    let text = format!("the row of the move of {pair} from {from} to {to} {what}");
    event(of, ("unreadable", Severity::Warning), (from, 0), text)
}

/// What is new of one; `then` is its row as it was seen before, if it was.
fn news(then: Option<&MoveRow>, of: &MoveRow) -> Vec<MoveEvent> {
    let (pair, from, to) = (of.pair, of.source.node, of.target.node);
    let mut events = Vec::new();
    if then.is_none() {
        let text = format!("{pair} is to move from {from} to {to}: {}", of.why);
        events.push(event(of, ("begun", Severity::Info), (from, of.times.wanted_ms), text));
    }
    let was_handed = |of: &MoveRow| of.stage == MoveStage::Handed;
    if was_handed(of) && !then.is_some_and(was_handed) {
        let text = format!("{pair} was handed over from {from} to {to}");
        events.push(event(of, ("handed", Severity::Info), (from, of.times.handed_ms), text));
    }
    if let (Some(outcome), true) = (&of.outcome, then.is_none_or(MoveRow::is_under_way)) {
        let (word, severity, node, text) = match outcome {
            MoveOutcome::Moved => {
                let text = format!("{pair} has moved from {from} to {to}{}", after(of));
                ("moved", Severity::Info, to, text)
            }
            MoveOutcome::Cancelled => {
                let by = of.cancelled_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                let text = format!("the move of {pair} from {from} to {to} was cancelled{by}");
                ("cancelled", Severity::Info, from, text)
            }
            MoveOutcome::GivenUp { why } => {
                let text = format!("the move of {pair} from {from} to {to} was given up: {why}");
                ("given_up", Severity::Warning, from, text)
            }
            MoveOutcome::Back { why } => {
                let text = format!("{pair} goes back from {to} to {from}, which serves it again: {why}");
                ("back", Severity::Warning, from, text)
            }
        };
        events.push(event(of, (word, severity), (node, of.times.over_ms), text));
    }
    events
}

/// How long it took, if that is known.
fn after(of: &MoveRow) -> String {
    let (wanted_ms, over_ms) = (of.times.wanted_ms, of.times.over_ms);
    match (wanted_ms, over_ms) {
        (0, _) | (_, 0) => String::new(),
        _ => format!(", {} ms after it was asked for", over_ms.saturating_sub(wanted_ms)),
    }
}

fn event(
    of: &MoveRow,
    (word, severity): (&str, Severity),
    (node, at_unix_ms): (NodeId, u64),
    text: String,
) -> MoveEvent {
    let why = match &of.outcome {
        Some(MoveOutcome::GivenUp { why } | MoveOutcome::Back { why }) if word != "begun" => why,
        _ => &of.why,
    };
    let details = json!({
        "pair": of.pair.0,
        "number": of.number,
        "from": of.source.node.0,
        "to": of.target.node.0,
        "what": word,
        "why": why,
    });
    let id = format!("move-{}-{}-{word}", of.pair.0, of.number);
    MoveEvent { id, at_unix_ms, node, severity, text, details }
}

#[cfg(test)]
pub(crate) mod tests {
    use cell_cluster::{MoveMotive, MoveSide, MoveTimes};
    use cell_terms::{Epoch, Incarnation, PairId};

    use super::*;

    /// A move of pair 3 from node 0 to node 1.
    pub(crate) fn move_row(stage: MoveStage) -> MoveRow {
        let side = |incarnation, node| MoveSide {
            incarnation: Incarnation(incarnation),
            node: NodeId(node),
            host: None,
        };
        MoveRow {
            pair: PairId(3),
            number: 2,
            epoch: Epoch(4),
            source: side(70, 0),
            target: side(71, 1),
            why: "ann: more room".to_owned(),
            cause: MoveMotive::Operator,
            stage,
            bytes_done: 0,
            bytes_total: 0,
            checked: 0,
            outcome: None,
            cancelled_by: None,
            times: MoveTimes { wanted_ms: 1_000, ..MoveTimes::default() },
        }
    }

    fn words(events: &[MoveEvent]) -> Vec<(&str, u64)> {
        events.iter().map(|event| (event.details["what"].as_str().unwrap(), event.at_unix_ms)).collect()
    }

    fn look(moves: &[&MoveRow]) -> ClusterSnapshot {
        ClusterSnapshot { moves: moves.iter().map(|of| (*of).clone()).collect(), ..Default::default() }
    }

    #[test]
    fn move_that_is_over_between_two_looks_is_reported_whole_and_in_order() {
        let mut of = move_row(MoveStage::Handed);
        of.times = MoveTimes { handed_ms: 1_900, over_ms: 2_000, ..of.times };
        of.outcome = Some(MoveOutcome::Moved);
        let events = between(&look(&[]), &look(&[&of]));
        assert_eq!(words(&events), [("begun", 1_000), ("handed", 1_900), ("moved", 2_000)]);
        assert_eq!(events[0].text, "pair-3 is to move from node-0 to node-1: ann: more room");
        assert_eq!(events[2].text, "pair-3 has moved from node-0 to node-1, 1000 ms after it was asked for");
        assert_eq!((events[2].node, events[2].id.as_str()), (NodeId(1), "move-3-2-moved"));
        assert!(between(&look(&[&of]), &look(&[&of])).is_empty());
    }

    /// It stood still, and no event said why.
    #[test]
    fn move_whose_row_does_not_read_any_more_is_reported_once() {
        let of = move_row(MoveStage::Copying);
        let unreadable = vec!["`move/00000003`: cannot read a move".to_owned()];
        let garbled = ClusterSnapshot { unreadable, ..look(&[&of]) };
        let events = between(&look(&[&of]), &garbled);
        assert_eq!(words(&events), [("unreadable", 0)]);
        let begin = "the row of the move of pair-3 from node-0 to node-1 does not read any more";
        assert!(events[0].text.starts_with(begin), "{}", events[0].text);
        assert!(between(&garbled, &garbled).is_empty());
        let over = MoveRow { outcome: Some(MoveOutcome::Cancelled), ..of };
        let garbled = ClusterSnapshot { moves: vec![over.clone()], ..garbled };
        assert!(between(&look(&[&over]), &garbled).is_empty(), "nobody waits for that one");
    }

    #[test]
    fn move_is_reported_as_it_goes_on_each_step_once() {
        let wanted = move_row(MoveStage::Wanted);
        let copying = MoveRow { bytes_done: 5, ..move_row(MoveStage::Copying) };
        let mut handed = move_row(MoveStage::Handed);
        handed.times.handed_ms = 1_500;
        let back = MoveRow { outcome: Some(MoveOutcome::Back { why: "slow".to_owned() }), ..handed.clone() };
        let words_between = |then: &MoveRow, now: &MoveRow| {
            let events = between(&look(&[then]), &look(&[now]));
            words(&events).into_iter().map(|(word, _)| word.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words_between(&wanted, &copying), [""; 0]);
        assert_eq!(words_between(&copying, &handed), ["handed"]);
        assert_eq!(words_between(&handed, &back), ["back"]);
        // Another one takes its place.
        assert_eq!(words_between(&back, &MoveRow { number: 3, ..wanted.clone() }), ["begun"]);
        let given_up = MoveOutcome::GivenUp { why: "no room".to_owned() };
        let given_up = MoveRow { outcome: Some(given_up), ..copying };
        let events = between(&look(&[&wanted]), &look(&[&given_up]));
        assert_eq!((events[0].severity, &events[0].details["why"]), (Severity::Warning, &"no room".into()));
        let cancelled = MoveRow {
            outcome: Some(MoveOutcome::Cancelled),
            cancelled_by: Some("bob".to_owned()),
            ..wanted.clone()
        };
        let events = between(&look(&[&wanted]), &look(&[&cancelled]));
        assert_eq!(events[0].text, "the move of pair-3 from node-0 to node-1 was cancelled by bob");
    }
}
