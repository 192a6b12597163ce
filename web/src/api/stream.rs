//! `GET /api/v1/stream?topics=…`: documents as server-sent events, each topic once a second. One stream
//! serves all of a page. A reader that is slow gets the newest when it reads on, and no backlog.
//!
//! Lines of events have an id, and no others: how far they go in the events of each node
//! ([`EventCursor`]). Who comes back with it as `Last-Event-ID` gets all events since then; of all other
//! topics the newest document is all that there is.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior};

use crate::api::cluster_status::ClusterStatus;
use crate::api::document::Document;
use crate::api::events::{EventsBody, gather_events};
use crate::api::params::Params;
use crate::api::recoveries::Recoveries;
use crate::api::selector::SelectorPairs;
use crate::api::{gathered, tuning};
use crate::clock::now_unix_ms;
use crate::events_seen::{EventCursor, EventsSeen};
use crate::problem::Problem;
use crate::shared::Shared;

/// Between two documents of a topic.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a browser waits before it comes back.
const RETRY: Duration = Duration::from_secs(1);
/// A comment is sent after so long without a line: the server closes a connection on which nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
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
    /// Lines that are ready.
    lines: VecDeque<Line>,
    /// Which events the reader has.
    cursor: EventCursor,
    /// The reader was given a cursor: from then on it can come back.
    has_cursor: bool,
    /// Of the request: the stream ends when they do not admit its caller any more.
    headers: HeaderMap,
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
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(EventCursor::parse);
    let mut interval = tokio::time::interval(PERIOD);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let follower = Follower {
        topics,
        interval,
        waiting: VecDeque::new(),
        lines: VecDeque::new(),
        cursor: last.unwrap_or_else(|| EventCursor::since(now_unix_ms())),
        has_cursor: false,
        headers,
        _permit: permit,
        shared,
    };
    let lines = stream::unfold(follower, async |mut follower| {
        let line = follower.next().await?;
        Some((Ok::<Line, Infallible>(line), follower))
    });
    Ok(Sse::new(lines).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
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
    /// The next line; none when the server stops, or the caller's token is revoked.
    async fn next(&mut self) -> Option<Line> {
        loop {
            if !self.shared.still_knows(&self.headers) {
                return None;
            }
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
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
                Topic::Events => {
                    let seen = gather_events(&self.shared).await;
                    self.add_events(&seen);
                    continue;
                }
            };
            if !self.shared.still_knows(&self.headers) {
                return None; // it may have been revoked meanwhile
            }
            // What cannot be sent now is sent with the next second, or never: the page shows its age.
            let Ok(document) = document else { continue };
            let Ok(text) = std::str::from_utf8(&document) else { continue };
            return Some(Line::default().event(name).retry(RETRY).data(text));
        }
    }

    /// Adds lines of the events that the reader does not have yet. The last of them has the cursor: who is
    /// cut off before it gets them again.
    fn add_events(&mut self, seen: &EventsSeen) {
        let fresh = self.cursor.take_fresh(seen);
        let (_, age) = self.shared.look();
        let last = fresh.chunks(EVENTS_MAX).len().saturating_sub(1);
        for (at, events) in fresh.chunks(EVENTS_MAX).enumerate() {
            let events = events.iter().rev().cloned().collect();
            let body = EventsBody::new(events, &self.cursor, seen.complete_since_unix_ms());
            let document = Document::of_cluster(body, age, seen.missing.clone());
            let Ok(text) = serde_json::to_string(&document) else { continue };
            let line = Line::default().event("events").retry(RETRY).data(text);
            self.lines.push_back(if at == last { line.id(self.cursor.to_string()) } else { line });
        }
        // A line without data is no event to a browser, but it remembers the id.
        if fresh.is_empty() && !self.has_cursor {
            self.lines.push_back(Line::default().id(self.cursor.to_string()).comment("events"));
        }
        self.has_cursor = true;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::test_cluster::TestCluster;

    /// The lines that a stream begins with.
    fn follow(cluster: &TestCluster, headers: &str) -> impl Iterator<Item = String> + use<> {
        let address = cluster.nodes[0].server.address();
        let mut stream = TcpStream::connect(address).unwrap();
        let request =
            format!("GET /api/v1/stream?topics=status,events HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream).lines().map(Result::unwrap)
    }

    /// A line of another topic once moved the id on, and events before it were lost.
    #[test]
    fn lines_of_events_alone_have_an_id_and_it_brings_what_came_since() {
        let cluster = TestCluster::start(1);
        let mut lines = follow(&cluster, "");
        let mut status =
            lines.by_ref().skip_while(|line| line != "event: status").take_while(|line| !line.is_empty());
        assert!(!status.any(|line| line.starts_with("id:")));
        let id = lines.find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap();
        assert!(EventCursor::parse(&id).is_some(), "{id}");
        // Of a log that the node does not have any more, all is new.
        let mut lines = follow(&cluster, "Last-Event-ID: 0:1.5,*:0\r\n");
        let data = lines.by_ref().skip_while(|line| line != "event: events");
        let data = data.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).next().unwrap();
        assert!(data.contains("node-0 is serving"), "{data}");
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
