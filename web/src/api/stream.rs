//! `GET /api/v1/stream?topics=…`: documents as server-sent events, each topic once a second. One stream
//! serves all of a page. A reader that is slow gets the newest when it reads on, and no backlog.
//!
//! The id of an event is its time in milliseconds since 1970. Who comes back with `Last-Event-ID` gets the
//! cluster's events since then; of all other topics the newest document is all that there is.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Line, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior};

use crate::api::cluster_status::ClusterStatus;
use crate::api::document::Document;
use crate::api::events::{EventsBody, EventsPart};
use crate::api::params::Params;
use crate::api::recoveries::Recoveries;
use crate::api::selector::SelectorPairs;
use crate::api::{gathered, tuning};
use crate::clock::now_unix_ms;
use crate::event_log::{self, Event};
use crate::peers::Gathered;
use crate::problem::Problem;
use crate::shared::Shared;

/// Between two documents of a topic.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a browser waits before it comes back.
const RETRY: Duration = Duration::from_secs(1);
/// Events that one line brings.
const EVENTS_MAX: usize = 200;

/// What can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    Status,
    Selector,
    Recoveries,
    Events,
    Tuning,
}

const TOPICS: [(&str, Topic); 5] = [
    ("status", Topic::Status),
    ("selector", Topic::Selector),
    ("recoveries", Topic::Recoveries),
    ("events", Topic::Events),
    ("tuning", Topic::Tuning),
];

/// One reader.
struct Follower {
    shared: Arc<Shared>,
    topics: Vec<(&'static str, Topic)>,
    interval: Interval,
    /// Topics of this second that did not go yet.
    waiting: VecDeque<(&'static str, Topic)>,
    /// Events before this time were there when the reader came.
    since_unix_ms: u64,
    told: HashSet<String>,
    _permit: OwnedSemaphorePermit,
}

/// `GET /api/v1/stream`.
pub(crate) async fn get_stream(
    State(shared): State<Arc<Shared>>,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let topics = topics(&params.text("topics").unwrap_or_default())?;
    params.end()?;
    let permit = shared.take_stream().ok_or_else(|| {
        Problem::unavailable("This node serves as many streams as it may.")
            .next("close a page, or ask another node")
    })?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let mut interval = tokio::time::interval(PERIOD);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let follower = Follower {
        topics,
        interval,
        waiting: VecDeque::new(),
        since_unix_ms: last.unwrap_or_else(now_unix_ms),
        told: HashSet::new(),
        _permit: permit,
        shared,
    };
    let lines = stream::unfold(follower, async |mut follower| {
        let line = follower.next().await?;
        Some((Ok::<Line, Infallible>(line), follower))
    });
    Ok(Sse::new(lines).into_response())
}

fn topics(text: &str) -> Result<Vec<(&'static str, Topic)>, Problem> {
    let mut wanted = Vec::new();
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let known = TOPICS.iter().find(|(known, _)| *known == name);
        let topic = known.ok_or_else(|| {
            let all = TOPICS.map(|(name, _)| name).join(", ");
            Params::refuse("topics", format!("there is no topic `{name}`: {all}"))
        })?;
        if !wanted.contains(topic) {
            wanted.push(*topic);
        }
    }
    if wanted.is_empty() {
        return Err(Params::refuse("topics", "topics are wanted, with commas between them".to_owned()));
    }
    Ok(wanted)
}

impl Follower {
    /// The next line; none when the server stops.
    async fn next(&mut self) -> Option<Line> {
        loop {
            if self.waiting.is_empty() {
                tokio::select! {
                    _ = self.interval.tick() => self.waiting.extend(&self.topics),
                    () = self.shared.stopping() => return None,
                }
            }
            let (name, topic) = self.waiting.pop_front()?;
            let document = match topic {
                Topic::Status => gathered::text::<ClusterStatus>(&self.shared).await,
                Topic::Selector => gathered::text::<SelectorPairs>(&self.shared).await,
                Topic::Recoveries => gathered::text::<Recoveries>(&self.shared).await,
                Topic::Tuning => tuning::text(&self.shared).await,
                Topic::Events => match self.events().await {
                    Some(events) => events,
                    None => continue,
                },
            };
            // What cannot be told now is told with the next second, or never: the page shows its age.
            let Ok(document) = document else { continue };
            let Ok(text) = std::str::from_utf8(&document) else { continue };
            return Some(Line::default().event(name).id(now_unix_ms().to_string()).retry(RETRY).data(text));
        }
    }

    /// Events that this reader does not have yet; none if there are none.
    async fn events(&mut self) -> Option<Result<Bytes, Problem>> {
        let (snapshot, age) = self.shared.look();
        let own = EventsPart::own(&self.shared);
        let path = "/api/v1/events?scope=node";
        let Gathered { parts, missing } = self.shared.peers.gather(&snapshot, own, path).await;
        let fresh = self.fresh(event_log::merge(parts.into_iter().map(|part| part.part.into_events())));
        if fresh.is_empty() {
            return None;
        }
        let document = Document::of_cluster(EventsBody::new(fresh), age, missing);
        Some(serde_json::to_vec(&document).map(Bytes::from).map_err(|_| Problem::internal()))
    }

    fn fresh(&mut self, all: Vec<Event>) -> Vec<Event> {
        let is_new = |event: &Event| event.at_unix_ms >= self.since_unix_ms && !self.told.contains(&event.id);
        let fresh: Vec<Event> = all.iter().filter(|event| is_new(event)).take(EVENTS_MAX).cloned().collect();
        // Ids of events that are gone need not be known any more.
        let known: HashSet<&str> = all.iter().map(|event| event.id.as_str()).collect();
        self.told.retain(|id| known.contains(id.as_str()));
        self.told.extend(fresh.iter().map(|event| event.id.clone()));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sources;
    use crate::api::status::tests::snapshot;
    use crate::event_log::Severity;

    #[tokio::test]
    async fn fresh_events_are_those_since_the_last_id_and_each_comes_once() {
        let source = Arc::new(snapshot());
        let shared = Arc::new(Shared::new(Sources::new(Arc::new(move || Arc::clone(&source)))));
        let permit = shared.take_stream().unwrap();
        let mut follower = Follower {
            shared,
            topics: Vec::new(),
            interval: tokio::time::interval(PERIOD),
            waiting: VecDeque::new(),
            since_unix_ms: 5,
            told: HashSet::new(),
            _permit: permit,
        };
        let event = |at_unix_ms: u64| Event {
            id: at_unix_ms.to_string(),
            at_unix_ms,
            node: 0,
            kind: "split".into(),
            severity: Severity::Info,
            text: String::new(),
            details: serde_json::Value::Null,
        };
        let mut fresh = |times: &[u64]| -> Vec<u64> {
            let all = times.iter().copied().map(event).collect();
            follower.fresh(all).iter().map(|event| event.at_unix_ms).collect()
        };
        assert_eq!(fresh(&[7, 5, 4]), [7, 5]);
        assert_eq!(fresh(&[8, 7, 5]), [8]);
        assert_eq!(fresh(&[8, 7, 6]), [6]);
    }

    #[test]
    fn topics_are_taken_once_and_unknown_ones_are_named() {
        let names = |text| topics(text).unwrap().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names("status,events,status"), ["status", "events"]);
        for wrong in ["", ",", "status,weather"] {
            assert_eq!(topics(wrong).unwrap_err().errors[0].pointer, "/query/topics", "{wrong}");
        }
    }
}
