//! The events of all nodes as one node has gathered them, and how far a reader has them: by each node's own
//! count of its events. Times do not show that, because each event has the time of its node's clock.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event_kind::EventKind;
use crate::event_log::{self, Event, EventLog};
use crate::peers::{MissingPeer, NodePart};

/// Nodes that a cursor names, at most: as many as a cluster has.
const NODES_MAX: usize = 1_024;

/// The events of one node, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EventsPart {
    events: Vec<Event>,
    /// Names the log, a decimal number: a node that is started again begins another.
    log: String,
    /// How many events the log has had.
    counted: u64,
    /// From when on these are all that the node saw: now, if it has not seen its cluster yet.
    since_unix_ms: u64,
    /// The node's wall clock when it answered.
    clock_unix_ms: u64,
}

impl EventsPart {
    /// The newest of a log with this name, at most so many.
    pub(crate) fn new(log: &EventLog, name: u64, clock_unix_ms: u64, most: usize) -> EventsPart {
        let events: Vec<Event> = log.iter().rev().take(most).cloned().collect();
        let counted = log.counted();
        let since_unix_ms = log.since_unix_ms().map(|since| match events.last() {
            Some(oldest) if (events.len() as u64) < counted => since.max(oldest.at_unix_ms),
            _ => since,
        });
        let since_unix_ms = since_unix_ms.unwrap_or(clock_unix_ms);
        EventsPart { events, log: name.to_string(), counted, since_unix_ms, clock_unix_ms }
    }

    /// Each event with its number in the log.
    fn numbered(&self) -> impl Iterator<Item = (u64, &Event)> {
        (0..).zip(&self.events).map(|(back, event)| (self.counted.saturating_sub(back), event))
    }
}

/// The events of all nodes that answered.
#[derive(Debug)]
pub(crate) struct EventsSeen {
    pub(crate) parts: Vec<NodePart<EventsPart>>,
    pub(crate) missing: Vec<MissingPeer>,
    /// When they were gathered, by this node's wall clock.
    pub(crate) at_unix_ms: u64,
}

impl EventsSeen {
    /// All of them, newest first.
    pub(crate) fn merged(&self) -> Vec<Event> {
        event_log::merge(self.parts.iter().map(|part| part.part.events.clone()))
    }

    /// From when on they are all that there were, but for those of nodes that did not answer. What a member
    /// had seen that has left went with it.
    pub(crate) fn complete_since_unix_ms(&self) -> u64 {
        let since = |part: &EventsPart| {
            let left = part.events.iter().filter(|event| event.kind == EventKind::MemberLeft.word());
            let since = left.map(|event| event.at_unix_ms).fold(part.since_unix_ms, u64::max);
            // By the node's own clock, which may be wrong, only how long ago it was.
            self.at_unix_ms.saturating_sub(part.clock_unix_ms.saturating_sub(since))
        };
        self.parts.iter().map(|part| since(&part.part)).max().unwrap_or(self.at_unix_ms)
    }
}

/// How far a reader has the events of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeCursor {
    log: String,
    counted: u64,
}

/// How far a reader has the events of all nodes. As text `0:77.12,1:78.3,*:1700000000000`: of node 0 the
/// first 12 of log 77, of node 1 the first 3 of log 78, and of every other node what was before that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventCursor {
    nodes: BTreeMap<u32, NodeCursor>,
    since_unix_ms: u64,
}

impl EventCursor {
    /// Of a reader who wants what happens from now on.
    pub(crate) fn since(unix_ms: u64) -> EventCursor {
        EventCursor { nodes: BTreeMap::new(), since_unix_ms: unix_ms }
    }

    /// A cursor's text; none if it is none.
    pub(crate) fn parse(text: &str) -> Option<EventCursor> {
        let mut cursor = EventCursor::since(0);
        for part in text.split(',') {
            let (node, rest) = part.split_once(':')?;
            if node == "*" {
                cursor.since_unix_ms = rest.parse().ok()?;
                continue;
            }
            let (log, counted) = rest.split_once('.')?;
            let log = log.parse::<u64>().ok()?.to_string();
            let known = NodeCursor { log, counted: counted.parse().ok()? };
            cursor.nodes.insert(node.parse().ok()?, known);
            if cursor.nodes.len() > NODES_MAX {
                return None;
            }
        }
        Some(cursor)
    }

    /// The events that the reader does not have, oldest first. It has them from then on.
    pub(crate) fn take_fresh(&mut self, seen: &EventsSeen) -> Vec<Event> {
        let (mut fresh, mut known) = (Vec::new(), HashSet::new());
        for NodePart { node, part } in &seen.parts {
            for (number, event) in part.numbered() {
                if self.is_fresh(node.0, part, (number, event), seen.at_unix_ms) {
                    fresh.push(event.clone());
                } else {
                    known.insert(event.id.as_str());
                }
            }
        }
        // What several nodes have seen is known as soon as one of them has reported it.
        fresh.retain(|event| !known.contains(event.id.as_str()));
        let mut fresh = event_log::merge([fresh]);
        fresh.reverse();
        for NodePart { node, part } in &seen.parts {
            let cursor = NodeCursor { log: part.log.clone(), counted: part.counted };
            if self.nodes.len() < NODES_MAX || self.nodes.contains_key(&node.0) {
                self.nodes.insert(node.0, cursor);
            }
        }
        fresh
    }

    fn is_fresh(
        &self,
        node: u32,
        part: &EventsPart,
        (number, event): (u64, &Event),
        at_unix_ms: u64,
    ) -> bool {
        match self.nodes.get(&node) {
            Some(cursor) if cursor.log == part.log => number > cursor.counted,
            Some(_) => true,
            None => {
                // By the node's own clock, which may be wrong, only how long ago it was.
                let age_ms = part.clock_unix_ms.saturating_sub(event.at_unix_ms);
                at_unix_ms.saturating_sub(age_ms) >= self.since_unix_ms
            }
        }
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, NodeCursor { log, counted }) in &self.nodes {
            write!(f, "{node}:{log}.{counted},")?;
        }
        write!(f, "*:{}", self.since_unix_ms)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use cell_node::{ClusterSnapshot, NodeSnapshot, NodeState};
    use cell_terms::NodeId;

    use super::*;
    use crate::clock::LookTime;
    use crate::event_kind::Severity;
    use crate::test_members::member;
    use crate::test_snapshot::snapshot;

    fn event(id: &str, at_unix_ms: u64) -> Event {
        Event {
            id: id.to_owned(),
            at_unix_ms,
            node: 0,
            kind: "split".into(),
            severity: Severity::Info,
            text: String::new(),
            details: serde_json::Value::Null,
        }
    }

    /// A node whose clock is at this time and whose log has had these events, oldest first.
    fn part(node: u32, log: u64, clock_unix_ms: u64, events: &[(&str, u64)]) -> NodePart<EventsPart> {
        let events: Vec<Event> = events.iter().rev().map(|(id, at)| event(id, *at)).collect();
        let counted = events.len() as u64;
        let part = EventsPart { events, log: log.to_string(), counted, since_unix_ms: log, clock_unix_ms };
        NodePart { node: NodeId(node), part }
    }

    pub(crate) fn seen(at_unix_ms: u64, parts: Vec<NodePart<EventsPart>>) -> EventsSeen {
        EventsSeen { parts, missing: Vec::new(), at_unix_ms }
    }

    fn ids(events: &[Event]) -> Vec<&str> {
        events.iter().map(|event| event.id.as_str()).collect()
    }

    #[test]
    fn take_fresh_of_a_new_reader_is_what_happens_from_then_on_whatever_the_clocks_say() {
        let mut cursor = EventCursor::since(1_000);
        // The other node's clock is 900 ms behind.
        let first = seen(
            1_100,
            vec![
                part(0, 7, 1_100, &[("old", 990), ("a", 1_050)]),
                part(1, 8, 200, &[("old-too", 50), ("b", 150)]),
            ],
        );
        assert_eq!(ids(&cursor.take_fresh(&first)), ["b", "a"]);
        assert_eq!(ids(&cursor.take_fresh(&first)), [""; 0]);
    }

    /// What nodes had seen that have been started since, or have died, was not there, and nobody said so.
    #[test]
    fn complete_since_is_the_last_start_or_loss_of_a_node_by_the_clock_of_who_asks() {
        // The other node's clock is 900 ms behind.
        let started = |since| seen(2_000, vec![part(0, 500, 2_000, &[]), part(1, since, 1_100, &[])]);
        assert_eq!(started(100).complete_since_unix_ms(), 1_000);
        assert_eq!(started(300).complete_since_unix_ms(), 1_200);
        let mut lost = started(100);
        lost.parts[0].part.events = vec![Event { kind: "member_left".into(), ..event("left-7", 1_700) }];
        assert_eq!(lost.complete_since_unix_ms(), 1_700);
        assert_eq!(seen(2_000, Vec::new()).complete_since_unix_ms(), 2_000);
    }

    #[test]
    fn part_is_complete_since_the_node_saw_its_cluster_or_since_its_oldest_event() {
        let mut log = EventLog::default();
        let mut look = |second: u64, members: &[u32]| {
            let members = members.iter().copied().map(member).collect();
            let cluster = Arc::new(ClusterSnapshot { revision: 0, members, ..ClusterSnapshot::default() });
            let at = LookTime { boottime_ms: second * 1_000, unix_ms: second * 1_000 };
            log.observe(at, &Arc::new(NodeSnapshot { cluster, ..snapshot() }));
            EventsPart::new(&log, 7, 99_000, 1).since_unix_ms
        };
        assert_eq!(look(10, &[]), 99_000, "not yet");
        assert_eq!((look(11, &[3]), look(12, &[3, 4])), (11_000, 11_000));
        let state = |state| NodeSnapshot { state, ..snapshot() };
        let states = [NodeState::Silent, NodeState::Serving];
        for (second, now) in (20..).zip(states.map(state)) {
            log.observe(LookTime { boottime_ms: second * 1_000, unix_ms: second * 1_000 }, &Arc::new(now));
        }
        let since = |most| EventsPart::new(&log, 7, 99_000, most).since_unix_ms;
        assert_eq!((since(1), since(9)), (21_000, 11_000));
    }

    /// The id of the stream was once a time: who came back lost what another node saw with a clock behind.
    #[test]
    fn take_fresh_after_a_cut_has_all_that_each_node_saw_since() {
        let mut cursor = EventCursor::since(1_000);
        cursor.take_fresh(&seen(2_000, vec![part(0, 7, 2_000, &[("a", 1_500)]), part(1, 8, 9, &[])]));
        let mut again = EventCursor::parse(&cursor.to_string()).unwrap();
        assert_eq!(again, cursor);
        let later = seen(
            9_000,
            vec![part(0, 7, 9_000, &[("a", 1_500), ("c", 8_000)]), part(1, 8, 12, &[("b", 10), ("c", 11)])],
        );
        assert_eq!(ids(&again.take_fresh(&later)), ["b", "c"]);
    }

    #[test]
    fn take_fresh_of_a_peer_that_answers_late_or_was_started_again_misses_nothing() {
        let mut cursor = EventCursor::since(1_000);
        cursor.take_fresh(&seen(1_000, vec![part(0, 7, 1_000, &[("a", 900)])]));
        let late = part(1, 8, 2_000, &[("old", 500), ("a", 900), ("b", 1_500)]);
        assert_eq!(ids(&cursor.take_fresh(&seen(2_000, vec![late]))), ["b"]);
        let restarted = part(1, 9, 3_000, &[("d", 2_500)]);
        assert_eq!(ids(&cursor.take_fresh(&seen(3_000, vec![restarted]))), ["d"]);
    }

    /// Nodes past the 64th were in no cursor, and all that they had seen came again each second.
    #[test]
    fn take_fresh_of_a_thousand_nodes_has_each_event_once_and_the_cursor_fits_a_request() {
        let (log, counted) = (1_800_000_000_000, 99_999_999);
        let all = |own: bool| {
            let part_of = |node: u32| {
                let id = node.to_string();
                let news = [(id.as_str(), 1_500)];
                let mut of = part(node, log, 2_000, &news[..usize::from(own)]);
                of.part.counted = counted + u64::from(own);
                of
            };
            seen(2_000, (0..1_024).map(part_of).collect())
        };
        let mut cursor = EventCursor::since(1_000);
        assert_eq!(ids(&cursor.take_fresh(&all(false))), [""; 0]);
        let text = cursor.to_string();
        assert!(text.len() < 40 << 10, "{} bytes", text.len());
        let mut again = EventCursor::parse(&text).unwrap();
        assert_eq!(again.take_fresh(&all(true)).len(), 1_024);
        assert_eq!(ids(&again.take_fresh(&all(true))), [""; 0]);
    }

    #[test]
    fn parse_of_what_is_no_cursor_is_none() {
        for wrong in ["", "1700000000000", "0:1", "0:x.1", "x:1.1", "0:1.1,", "*:x"] {
            assert_eq!(EventCursor::parse(wrong), None, "{wrong}");
        }
        let long: Vec<String> = (0..=NODES_MAX).map(|node| format!("{node}:1.1")).collect();
        assert_eq!(EventCursor::parse(&long.join(",")), None);
    }
}
