//! `GET /api/v1/events`: what happened in the cluster, newest first.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::api::document::{Document, Scope};
use crate::api::gathered::{JSON_BYTES_MAX, Shown, fitting};
use crate::api::params::Params;
use crate::as_of::AsOf;
use crate::clock::now_unix_ms;
use crate::event_kind::EVENT_KINDS;
use crate::event_log::{EVENTS_MAX, Event};
use crate::events_seen::{EventCursor, EventsPart, EventsSeen};
use crate::peers::Gathered;
use crate::problem::Problem;
use crate::shared::Shared;

/// Events of one answer, at most, and if nothing is said.
const LIMIT_MAX: u64 = 1_000;
const LIMIT: usize = 200;
/// Events that are gathered of all nodes together, and of each of them at least.
const GATHERED_MAX: usize = 64_000;
const GATHERED_EACH_MIN: usize = 60;

/// The events of all nodes. Of several who ask at a time one gathers, and for a second all get the same.
pub(crate) async fn gather_events(shared: &Shared) -> Arc<EventsSeen> {
    let mut cached = shared.events_seen.lock().await;
    if let Some(seen) = cached.get() {
        return seen;
    }
    let seen = gather_as_of(shared, None).await;
    cached.replace(Arc::clone(&seen));
    seen
}

/// The events of all nodes once they have seen what they are to. Others get them, too, for as long as they
/// are kept.
async fn gather_anew(shared: &Shared, as_of: AsOf) -> Arc<EventsSeen> {
    let revision = shared.see(as_of).await;
    let mut cached = shared.events_seen.lock().await;
    if let Some(seen) = revision.and_then(|revision| cached.get_as_of(revision.max(1))) {
        return seen;
    }
    let seen = gather_as_of(shared, revision).await;
    cached.replace_as_of(Arc::clone(&seen), revision.unwrap_or(0));
    seen
}

async fn gather_as_of(shared: &Shared, revision: Option<u64>) -> Arc<EventsSeen> {
    let (snapshot, _) = shared.look();
    let most = most_each(snapshot.cluster.members.len());
    let path = format!("/api/v1/events?scope=node&limit={most}");
    let gathered = shared.gather_as_of(&snapshot, own_events(shared, most), &path, revision).await;
    let Gathered { parts, missing } = gathered;
    Arc::new(EventsSeen { parts, missing, at_unix_ms: now_unix_ms() })
}

/// How many events each of so many nodes is asked for: a gathering does not grow with the cluster.
fn most_each(nodes: usize) -> usize {
    (GATHERED_MAX / nodes.max(1)).clamp(GATHERED_EACH_MIN, EVENTS_MAX)
}

/// The log is the process's: it goes on when the node gets its lease.
fn own_events(shared: &Shared, most: usize) -> EventsPart {
    EventsPart::new(&shared.events(), shared.started_unix_ms(), now_unix_ms(), most)
}

/// The list, with the ids of its ends.
#[derive(Debug, Serialize)]
pub(crate) struct EventsBody {
    events: Vec<Event>,
    first_id: Option<String>,
    last_id: Option<String>,
    /// How far these and all earlier events go: what is asked for with it comes after them.
    cursor: String,
    complete_since_unix_ms: u64,
    #[serde(flatten)]
    shown: Shown,
}

impl EventsBody {
    /// Of events that are newest first, and from when on all are complete.
    pub(crate) fn new(events: Vec<Event>, cursor: &EventCursor, since_unix_ms: u64) -> EventsBody {
        let mut shown = Shown::default();
        shown.note(events.len(), events.len());
        EventsBody::of(events, (cursor, since_unix_ms), shown)
    }

    /// Of those the newest, at most so many and so many bytes of them.
    fn cut(
        mut events: Vec<Event>,
        ends: (&EventCursor, u64),
        (most, bytes_max): (usize, usize),
    ) -> EventsBody {
        let fit = fitting(&events[..most.min(events.len())], bytes_max);
        let mut shown = Shown::default();
        shown.limit(&mut events, fit);
        EventsBody::of(events, ends, shown)
    }

    fn of(
        events: Vec<Event>,
        (cursor, complete_since_unix_ms): (&EventCursor, u64),
        shown: Shown,
    ) -> EventsBody {
        let id = |event: Option<&Event>| event.map(|event| event.id.clone());
        let (first_id, last_id) = (id(events.last()), id(events.first()));
        EventsBody { first_id, last_id, events, cursor: cursor.to_string(), complete_since_unix_ms, shown }
    }
}

/// What is wanted.
#[derive(Debug)]
struct Filter {
    limit: Option<usize>,
    kind: Option<String>,
    node: Option<u32>,
    /// Only what is newer than the event of this id.
    after: Option<String>,
    /// Only what came after an earlier answer, and all of that.
    cursor: Option<EventCursor>,
}

impl Filter {
    fn of(params: &mut Params) -> Result<Filter, Problem> {
        let limit = match params.text("limit") {
            None => None,
            Some(text) => Some(Params::parse_integer("limit", &text, 1..=LIMIT_MAX)?),
        };
        let kind = params.text("kind");
        if let Some(kind) = &kind
            && !EVENT_KINDS.contains(&kind.as_str())
        {
            return Err(Params::refuse(
                "kind",
                format!("there is no kind `{kind}`: one of {}", EVENT_KINDS.join(", ")),
            ));
        }
        let node = match params.text("node") {
            None => None,
            Some(text) => match text.parse() {
                Ok(node) => Some(node),
                Err(_) => return Err(Params::refuse("node", format!("`{text}` is no number of a node"))),
            },
        };
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let cursor = match params.text("cursor") {
            None => None,
            Some(text) => Some(EventCursor::parse(&text).ok_or_else(|| {
                Params::refuse("cursor", "it is no cursor: an earlier answer has one".to_owned())
            })?),
        };
        Ok(Filter { limit, kind, node, after: params.text("after"), cursor })
    }

    /// Those of a list, newest first, that are wanted. After an event that is not known any more all are new.
    fn apply(&self, mut events: Vec<Event>) -> Vec<Event> {
        if let Some(after) = &self.after
            && let Some(at) = events.iter().position(|event| event.id == *after)
        {
            events.truncate(at);
        }
        events.retain(|event| {
            self.kind.as_ref().is_none_or(|kind| *kind == event.kind)
                && self.node.is_none_or(|node| node == event.node)
        });
        events
    }

    /// The answer. Who asks by a cursor gets all that came since.
    fn body(&self, events: Vec<Event>, cursor: &EventCursor, since_unix_ms: u64) -> EventsBody {
        let events = self.apply(events);
        let most = (self.limit.unwrap_or(LIMIT), JSON_BYTES_MAX);
        match self.cursor {
            Some(_) => EventsBody::new(events, cursor, since_unix_ms),
            None => EventsBody::cut(events, (cursor, since_unix_ms), most),
        }
    }
}

/// `GET /api/v1/events`.
pub(crate) async fn get_events(
    State(shared): State<Arc<Shared>>,
    as_of: AsOf,
    mut params: Params,
) -> Result<Response, Problem> {
    let scope = params.scope()?;
    let filter = Filter::of(&mut params)?;
    params.end()?;
    let (_, age) = shared.look();
    if scope == Scope::Node {
        shared.see(as_of).await;
        let own = own_events(&shared, filter.limit.unwrap_or(EVENTS_MAX));
        return Ok(axum::Json(Document::of_node(own, age)).into_response());
    }
    let seen = match as_of {
        AsOf::Kept => gather_events(&shared).await,
        as_of => gather_anew(&shared, as_of).await,
    };
    let merged = seen.merged();
    if let Some(node) = filter.node
        && !merged.iter().any(|event| event.node == node)
    {
        shared.check_node("node", node)?;
    }
    let mut cursor = filter.cursor.clone().unwrap_or_else(|| EventCursor::since(seen.at_unix_ms));
    let mut fresh = cursor.take_fresh(&seen);
    fresh.reverse();
    let all = if filter.cursor.is_some() { fresh } else { merged };
    let body = filter.body(all, &cursor, seen.complete_since_unix_ms());
    Ok(axum::Json(Document::of_cluster(body, age, seen.missing.clone())).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_kind::Severity;
    use crate::test_cluster::TestCluster;

    fn events() -> Vec<Event> {
        let event = |id: u32, kind: &str| Event {
            id: id.to_string(),
            at_unix_ms: u64::from(id),
            node: id % 2,
            kind: kind.into(),
            severity: Severity::Info,
            text: String::new(),
            details: serde_json::Value::Null,
        };
        vec![event(4, "split"), event(3, "split"), event(2, "setting"), event(1, "split")]
    }

    fn ids(filter: Filter) -> Vec<String> {
        let body = filter.body(events(), &EventCursor::since(0), 0);
        body.events.into_iter().map(|event| event.id).collect()
    }

    /// What happened at a node that never was looked like silence.
    #[test]
    fn node_that_is_not_there_is_refused_with_those_that_are() {
        let cluster = TestCluster::start(2);
        for path in ["events?node=1", "series?names=ops_get&node=1"] {
            assert_eq!(cluster.get(0, &format!("/api/v1/{path}")).status, 200, "{path}");
        }
        for path in ["events?node=7", "events?node=7&cursor=*:0", "series?names=ops_get&node=7"] {
            let answer = cluster.get(0, &format!("/api/v1/{path}"));
            assert_eq!((answer.status, answer.pointers()), (400, vec!["/query/node"]), "{path}");
            let detail = answer.body["detail"].as_str().unwrap();
            assert!(detail.contains("there is no node 7; those that are: 0, 1"), "{detail}");
        }
    }

    #[test]
    fn most_each_is_a_whole_log_of_few_nodes_and_a_part_of_many() {
        assert_eq!([1, 64, 128, 1_024].map(most_each), [1_000, 1_000, 500, 62]);
    }

    #[test]
    fn cut_leaves_the_newest_that_fit_and_says_that_there_are_more() {
        let cursor = EventCursor::since(0);
        let bytes = serde_json::to_string(&events()[..1]).unwrap().len() - 1;
        for (most, bytes_max, left) in
            [(9, 9_999, 4), (3, 9_999, 3), (9, 2 * bytes, 2), (9, 2 * bytes - 1, 1)]
        {
            let body = EventsBody::cut(events(), (&cursor, 3), (most, bytes_max));
            let body = serde_json::to_value(body).unwrap();
            assert_eq!(body["complete_since_unix_ms"], 3);
            assert_eq!((body["events"].as_array().unwrap().len(), &body["total"]), (left, &4.into()));
            assert_eq!((&body["last_id"], &body["truncated"]), (&"4".into(), &(left < 4).into()));
        }
    }

    #[test]
    fn apply_takes_what_is_wanted_newest_first() {
        let all = || Filter { limit: Some(10), kind: None, node: None, after: None, cursor: None };
        assert_eq!(ids(all()), ["4", "3", "2", "1"]);
        assert_eq!(ids(Filter { kind: Some("split".into()), limit: Some(2), ..all() }), ["4", "3"]);
        assert_eq!(ids(Filter { node: Some(1), ..all() }), ["3", "1"]);
        assert_eq!(ids(Filter { after: Some("2".into()), ..all() }), ["4", "3"]);
        assert_eq!(ids(Filter { after: Some("4".into()), ..all() }), [""; 0]);
        assert_eq!(ids(Filter { after: Some("gone".into()), ..all() }).len(), 4);
    }
}
