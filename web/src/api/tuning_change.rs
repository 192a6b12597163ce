//! `PATCH /api/v1/tuning` and `POST /api/v1/tuning:revert`: changes of settings for the whole cluster, made
//! for the revision that their author has seen, all or none.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cell_cluster::{Tuned, TunedSetting, Tuning, TuningChange, TuningRow, WORDS_BYTES_MAX, WantedTuning};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use crate::access::Caller;
use crate::api::document::Document;
use crate::api::params::Params;
use crate::api::tuning::{etag, settings};
use crate::api::tuning_patch::{Patch, check_each, check_together, object, parse};
use crate::clock::now_unix_ms;
use crate::coordination::{CHANGE_PATIENCE, Unanswered};
use crate::idempotency::RepeatId;
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;

/// Longest time that a value may hold before it ends by itself: 30 days.
pub(crate) const TTL_SECONDS_MAX: u64 = 30 * 24 * 3600;
/// After a change of unknown outcome.
const LOOK: &str = "look with `cell tune ls` (/api/v1/tuning) before you repeat it";

/// What a change did, or would do.
#[derive(Debug, Serialize)]
struct TuningAnswer {
    /// The revision that is in force now.
    revision: String,
    changes: Vec<TunedSetting>,
    dry_run: bool,
    expires_unix_ms: Option<u64>,
}

/// A change that was asked for.
struct Draft {
    /// The revision that the author has seen.
    expected: u64,
    is_dry: bool,
    patch: Patch,
    wanted: WantedTuning,
    /// The request may have been made before.
    is_repeatable: bool,
}

/// `PATCH /api/v1/tuning`: a merge patch of settings' names and values.
pub(crate) async fn patch_tuning(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    repeat: Option<Extension<RepeatId>>,
    headers: HeaderMap,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let expected = condition(&headers)?;
    let mut draft = Draft::new(expected, caller, repeat, &mut params)?;
    let seconds = match params.text("ttl_seconds") {
        Some(text) => Some(Params::parse_integer("ttl_seconds", &text, 1..=TTL_SECONDS_MAX)?),
        None => None,
    };
    params.end()?;
    draft.wanted.expires_unix_ms = seconds.map(|seconds| draft.wanted.at_unix_ms + seconds * 1000);
    draft.patch = parse(&body)?;
    draft.make(&shared).await
}

/// `POST /api/v1/tuning:revert`, with `{"revision": "8"}`: what a change set is again what it was before.
pub(crate) async fn post_revert(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    repeat: Option<Extension<RepeatId>>,
    headers: HeaderMap,
    mut params: Params,
    body: Bytes,
) -> Result<Response, Problem> {
    let expected = condition(&headers)?;
    let mut draft = Draft::new(expected, caller, repeat, &mut params)?;
    params.end()?;
    let revision = reverted(&body)?;
    let change = move |coordinator| Tuning::new(coordinator).change_of(revision);
    let change = shared.coordination.call(CHANGE_PATIENCE, change).await.map_err(Unanswered::unstarted)?;
    let change = change.ok_or_else(|| {
        Problem::not_found(format!("No change that is kept made revision {revision}."))
            .next("`cell tune history` lists those that are")
    })?;
    for setting in change.settings {
        let name = setting.name.clone();
        let (value, end) = setting.reverted(draft.wanted.at_unix_ms);
        draft.wanted.ends.extend(end.map(|end| (name.clone(), end)));
        draft.patch.insert(name, value);
    }
    draft.wanted.reverts = Some(revision);
    draft.wanted.reason.get_or_insert_with(|| format!("revert of {revision}"));
    draft.make(&shared).await
}

/// The revision that the author has seen.
fn condition(headers: &HeaderMap) -> Result<u64, Problem> {
    let text = headers.get(header::IF_MATCH).map(|tag| tag.to_str().unwrap_or("?").trim());
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        let detail = "A change needs If-Match with the revision that you saw.";
        return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, "precondition_required", detail)
            .next("read /api/v1/tuning first: its ETag is the revision"));
    };
    let revision = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    revision.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let detail = "it takes one revision as the ETag of /api/v1/tuning has it, such as \"7\"".to_owned();
        let pointer = "/header/if-match".to_owned();
        Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() })
    })
}

fn reverted(body: &Bytes) -> Result<u64, Problem> {
    let mut fields = object(body)?;
    let revision = fields.remove("revision").and_then(|value| match value {
        serde_json::Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    });
    let wrong = |pointer: String, detail: &str| {
        Problem::bad_request(FieldProblem { pointer, detail: detail.to_owned(), ..FieldProblem::default() })
    };
    if let Some(name) = fields.keys().next() {
        return Err(wrong(format!("/{name}"), "a revert has a revision and nothing else"));
    }
    revision.ok_or_else(|| wrong("/revision".to_owned(), "it takes the number of a revision"))
}

impl Draft {
    /// A change of nothing yet, by what all changes have.
    fn new(
        expected: u64,
        caller: Caller,
        repeat: Option<Extension<RepeatId>>,
        params: &mut Params,
    ) -> Result<Draft, Problem> {
        let is_dry = params.flag("dry_run")?;
        let reason = params.text("reason").filter(|reason| !reason.trim().is_empty());
        if reason.as_ref().is_some_and(|reason| reason.len() > WORDS_BYTES_MAX) {
            let detail = format!("a reason has at most {WORDS_BYTES_MAX} bytes");
            return Err(Params::refuse("reason", detail));
        }
        let id = match repeat {
            Some(Extension(RepeatId(id))) => id,
            None => draw()?,
        };
        let wanted = WantedTuning {
            id,
            at_unix_ms: now_unix_ms(),
            who: caller.name,
            reason,
            ..WantedTuning::default()
        };
        Ok(Draft { expected, is_dry, patch: Patch::new(), wanted, is_repeatable: repeat.is_some() })
    }

    /// Checks it and, unless that is all that is wanted, makes it.
    async fn make(mut self, shared: &Shared) -> Result<Response, Problem> {
        let (store, _) = settings(shared)?;
        let read = |coordinator| Tuning::new(coordinator).current();
        let row = shared.coordination.call(CHANGE_PATIENCE, read).await.map_err(Unanswered::unstarted)?;
        let may_be_made = self.is_repeatable && !self.is_dry && row.revision > self.expected;
        if row.revision != self.expected && !may_be_made {
            return Err(stale(row.revision));
        }
        let after = if may_be_made {
            row // nothing is written for a revision that has passed: this asks whose change it was
        } else {
            self.wanted.values = check_each(&store, &row, &self.patch)?;
            let (after, settings) = row.after(&self.wanted);
            check_together(&store, &after, &self.patch)?;
            if self.is_dry {
                return Ok(self.answer(shared, row.revision, settings, self.wanted.expires_unix_ms));
            }
            after
        };
        let (expected, wanted) = (self.expected, self.wanted.clone());
        let change = move |coordinator| Tuning::new(coordinator).change(expected, &wanted);
        let tuned = shared.coordination.call(CHANGE_PATIENCE, change).await;
        match tuned.map_err(|error| error.undone(LOOK))? {
            Tuned::Changed(change) => Ok(self.changed(shared, &after, change)),
            Tuned::Unchanged => Ok(self.answer(shared, expected, Vec::new(), None)),
            Tuned::Stale(revision) => Err(stale(revision)),
        }
    }

    fn changed(&self, shared: &Shared, after: &TuningRow, change: TuningChange) -> Response {
        let TuningChange { revision, settings, who, reason, expires_unix_ms, .. } = change;
        for TunedSetting { name, old, new, .. } in &settings {
            let [old, new] = [old, new].map(|text| text.as_deref().unwrap_or("what each node was given"));
            tracing::info!(revision, who, reason, old, new, "`{name}` is tuned for the cluster");
        }
        if after.revision == revision {
            shared.newest_tuning(after);
        }
        self.answer(shared, revision, settings, expires_unix_ms)
    }

    /// The end is that of the change that was made, which may have been an earlier request's.
    fn answer(
        &self,
        shared: &Shared,
        revision: u64,
        changes: Vec<TunedSetting>,
        expires_unix_ms: Option<u64>,
    ) -> Response {
        let body =
            TuningAnswer { revision: revision.to_string(), changes, dry_run: self.is_dry, expires_unix_ms };
        (etag(revision), axum::Json(Document::of_node(body, shared.look().1))).into_response()
    }
}

fn stale(revision: u64) -> Problem {
    let detail = format!("Settings changed meanwhile: they are at revision {revision}.");
    Problem::new(StatusCode::PRECONDITION_FAILED, "stale_revision", detail)
        .next("read them again, and decide anew")
}

/// A number that no other change has.
fn draw() -> Result<u64, Problem> {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(filled) if filled == bytes.len() => Ok(u64::from_le_bytes(bytes)),
        other => {
            tracing::error!(?other, "the system gives no random bytes");
            Err(Problem::internal())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_cluster::{TestAnswer, TestCluster, TestRequest};

    fn patch(query: &str, revision: &str, body: &str) -> TestRequest {
        let request = TestRequest::new("PATCH", &format!("/api/v1/tuning{query}")).json(body);
        request.header("if-match", &format!("\"{revision}\""))
    }

    fn revert(seen: &str, body: &str) -> TestRequest {
        let request = TestRequest::new("POST", "/api/v1/tuning:revert").json(body);
        request.header("if-match", &format!("\"{seen}\""))
    }

    fn setting(document: &Value, name: &str) -> Value {
        let rows = document["settings"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap().clone()
    }

    fn without_times(answer: &TestAnswer) -> Value {
        let mut body = answer.body.clone();
        for name in ["at_unix_ms", "age_ms"] {
            body.as_object_mut().unwrap().remove(name).unwrap();
        }
        body
    }

    #[test]
    fn patch_is_in_force_on_all_nodes_and_in_the_history() {
        let cluster = TestCluster::start(3);
        let before = cluster.get(1, "/api/v1/tuning");
        assert_eq!((before.status, before.header("etag")), (200, Some("\"0\"")));
        assert_eq!(setting(&before.body, "fill_percent")["source"], "default");
        assert_eq!(setting(&cluster.get(0, "/api/v1/tuning").body, "fill_percent")["source"], "file");
        let made = cluster
            .send(1, &patch("?reason=more+room", "0", r#"{"fill_percent": 80, "exploration": "0.20"}"#));
        assert_eq!((made.status, made.header("etag")), (200, Some("\"1\"")));
        let changes = json!([
            {"name": "exploration", "old": null, "new": "0.2"}, {"name": "fill_percent", "old": null, "new": "80"},
        ]);
        let answer = json!({
            "version": 1, "revision": "1", "changes": changes, "dry_run": false, "expires_unix_ms": null,
        });
        assert_eq!(without_times(&made), answer);
        for node in 0..3 {
            let after = cluster.get(node, "/api/v1/tuning").body;
            let nodes = (0..3).map(|node| json!({"node": node, "revision": "1", "in_force": true}));
            assert_eq!((&after["nodes"], &after["missing"]), (&nodes.collect(), &json!([])));
            let row = setting(&after, "fill_percent");
            assert_eq!(
                (&row["value"], &row["value_number"], &row["source"]),
                (&"80".into(), &80.into(), &"admin".into())
            );
        }
        let history = cluster.get(2, "/api/v1/tuning/history?limit=50&seen=1").body;
        let row = &history["changes"][0];
        assert_eq!((&row["who"], &row["reason"]), (&"admin".into(), &"more room".into()));
        assert_eq!((&row["changes"], &row["reverted_by"]), (&changes, &Value::Null));
    }

    #[test]
    fn stream_brings_the_tuning() {
        let cluster = TestCluster::start(1);
        let address = cluster.nodes[0].server.address();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = format!("GET /api/v1/stream?topics=tuning HTTP/1.1\r\nHost: {address}\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(stream)).map(Result::unwrap);
        let data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).next().unwrap();
        let document: Value = serde_json::from_str(&data).unwrap();
        assert_eq!((&document["revision"], &document["missing"]), (&"0".into(), &json!([])));
    }

    #[test]
    fn patch_needs_the_revision_that_is_in_force() {
        let cluster = TestCluster::start(1);
        let body = r#"{"fill_percent": 80}"#;
        let bare = cluster.send(0, &TestRequest::new("PATCH", "/api/v1/tuning").json(body));
        assert_eq!(bare.problem(), (428, "precondition_required"));
        let empty = TestRequest::new("PATCH", "/api/v1/tuning").json(body).header("if-match", "");
        assert_eq!(cluster.send(0, &empty).problem(), (428, "precondition_required"));
        for tag in ["*", "7", "\"x\"", "W/\"0\""] {
            let request = TestRequest::new("PATCH", "/api/v1/tuning").json(body).header("if-match", tag);
            let answer = cluster.send(0, &request);
            assert_eq!((answer.status, answer.pointers()), (400, vec!["/header/if-match"]));
        }
        assert_eq!(cluster.send(0, &patch("", "1", body)).problem(), (412, "stale_revision"));
        assert_eq!(cluster.send(0, &patch("", "0", body)).status, 200);
        let stale = cluster.send(0, &patch("", "0", r#"{"fill_percent": 81}"#));
        assert_eq!(stale.problem(), (412, "stale_revision"));
        assert!(stale.body["detail"].as_str().unwrap().contains("revision 1"), "{stale:?}");
    }

    #[test]
    fn patch_with_anything_wrong_changes_nothing_and_names_each_field() {
        let cluster = TestCluster::start(1);
        let body = r#"{"fill_percent": 101, "segment_bytes": "2 MiB", "exploratoin": 0.1, "exploration": "x",
                       "client_retry_shortest": null}"#;
        let answer = cluster.send(0, &patch("", "0", body));
        assert_eq!(answer.problem(), (422, "invalid"));
        assert_eq!(answer.pointers(), ["/exploration", "/exploratoin", "/fill_percent", "/segment_bytes"]);
        let errors = &answer.body["errors"];
        let said = |at: usize| errors[at]["detail"].as_str().unwrap();
        assert!(said(1).contains("did you mean `exploration`?"), "{errors}");
        assert_eq!((&errors[0]["min"], &errors[0]["max"]), (&"0.0".into(), &"0.5".into()));
        assert_eq!(said(2), "It takes a whole number from 20 to 100, not `101`.");
        assert!(said(3).contains("does not change while nodes run. It is read once"), "{errors}");
        let contrary = cluster.send(0, &patch("", "0", r#"{"client_retry_shortest": "1 s"}"#));
        assert_eq!(
            (contrary.problem(), contrary.pointers()),
            ((422, "invalid"), vec!["/client_retry_shortest"])
        );
        let error = &contrary.body["errors"][0];
        assert!(error["detail"].as_str().unwrap().contains("`client_retry_longest` is 200 ms"), "{error}");
        assert_eq!((&error["min"], &error["unit"]), (&"1 ms".into(), &"ms".into()));
        assert_eq!(cluster.send(0, &patch("", "0", "{")).body["code"], "bad_json");
        for (query, pointer) in [
            ("?ttl_seconds=0", "/query/ttl_seconds"),
            ("?dry_run=2", "/query/dry_run"),
            ("?for=2", "/query/for"),
            (&format!("?reason={}", "x".repeat(501)), "/query/reason"),
        ] {
            assert_eq!(cluster.send(0, &patch(query, "0", "{}")).pointers(), [pointer]);
        }
        assert_eq!(cluster.get(0, "/api/v1/tuning").header("etag"), Some("\"0\""));
    }

    #[test]
    fn patch_on_trial_says_what_it_would_do() {
        let cluster = TestCluster::start(1);
        let body = r#"{"fill_percent": 80}"#;
        let tried = cluster.send(0, &patch("?dry_run=1&ttl_seconds=60", "0", body));
        assert_eq!((&tried.body["dry_run"], &tried.body["revision"]), (&true.into(), &"0".into()));
        let change = &tried.body["changes"][0];
        assert_eq!((&change["old"], &change["new"]), (&Value::Null, &"80".into()));
        assert_eq!(change["new_expires_unix_ms"], tried.body["expires_unix_ms"]);
        let wrong = cluster.send(0, &patch("?dry_run=1", "0", r#"{"fill_percent": 1}"#));
        assert_eq!(wrong.problem(), (422, "invalid"));
        assert_eq!(cluster.get(0, "/api/v1/tuning").header("etag"), Some("\"0\""));
        let nothing = cluster.send(0, &patch("", "0", r#"{"fill_percent": null}"#));
        assert_eq!((nothing.status, &nothing.body["changes"]), (200, &json!([])));
    }

    #[test]
    fn patch_for_a_while_says_until_when() {
        let cluster = TestCluster::start(1);
        let made =
            cluster.send(0, &patch("?ttl_seconds=600", "0", r#"{"fill_percent": 80, "exploration": null}"#));
        let until = made.body["expires_unix_ms"].as_u64().unwrap();
        assert_eq!(until, until.max(now_unix_ms()), "it has not passed");
        let document = cluster.get(0, "/api/v1/tuning").body;
        assert_eq!(setting(&document, "fill_percent")["expires_unix_ms"], until);
        assert_eq!(setting(&document, "exploration")["expires_unix_ms"], Value::Null);
        let history = cluster.get(0, "/api/v1/tuning/history").body;
        assert_eq!(history["changes"][0]["changes"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn revert_takes_back_what_a_change_set() {
        let cluster = TestCluster::start(2);
        for (revision, body) in
            [("0", r#"{"fill_percent": 80}"#), ("1", r#"{"fill_percent": 90, "exploration": 0.3}"#)]
        {
            assert_eq!(cluster.send(0, &patch("", revision, body)).status, 200);
        }
        let back = cluster.send(1, &revert("2", r#"{"revision": "2"}"#));
        assert_eq!((back.status, back.header("etag")), (200, Some("\"3\"")));
        let document = cluster.get(0, "/api/v1/tuning").body;
        assert_eq!(setting(&document, "fill_percent")["value"], "80");
        assert_eq!(setting(&document, "exploration")["source"], "default");
        let history = cluster.get(0, "/api/v1/tuning/history?limit=2").body;
        let rows = history["changes"].as_array().unwrap();
        assert_eq!((rows.len(), &rows[0]["reason"]), (2, &"revert of 2".into()));
        assert_eq!(rows[1]["reverted_by"], "3");
        let unknown = cluster.send(0, &revert("3", r#"{"revision": "9"}"#));
        assert_eq!(unknown.problem(), (404, "not_found"));
        assert_eq!(unknown.body["next"], "`cell tune history` lists those that are");
        assert_eq!(cluster.send(0, &revert("2", r#"{"revision": "1"}"#)).problem(), (412, "stale_revision"));
        for (body, pointer) in
            [(r#"{"revision": "x"}"#, "/revision"), (r#"{"revision": 1, "a": 1}"#, "/a"), ("{}", "/revision")]
        {
            assert_eq!(cluster.send(0, &revert("3", body)).pointers(), [pointer]);
        }
    }

    /// A revert once made a value that was to end permanent.
    #[test]
    fn revert_of_a_value_that_was_to_end_restores_its_end() {
        let cluster = TestCluster::start(1);
        let body = r#"{"fill_percent": 80}"#;
        let made = cluster.send(0, &patch("?ttl_seconds=600", "0", body));
        let until = made.body["expires_unix_ms"].as_u64().unwrap();
        assert_eq!(cluster.send(0, &patch("", "1", r#"{"fill_percent": 90}"#)).status, 200);
        let fill = || setting(&cluster.get(0, "/api/v1/tuning").body, "fill_percent");
        assert_eq!((&fill()["value"], &fill()["expires_unix_ms"]), (&"90".into(), &Value::Null));
        let back = cluster.send(0, &revert("2", r#"{"revision": "2"}"#));
        assert_eq!(back.status, 200, "{back:?}");
        assert_eq!((&fill()["value"], &fill()["expires_unix_ms"]), (&"80".into(), &until.into()));
    }

    /// The history had 200 changes and no more, and no way to read on.
    #[test]
    fn history_is_read_page_by_page_to_its_begin() {
        let cluster = TestCluster::start(1);
        for revision in 0..7_u64 {
            let body = format!(r#"{{"fill_percent": {}}}"#, 50 + revision);
            assert_eq!(cluster.send(0, &patch("", &revision.to_string(), &body)).status, 200);
        }
        assert_eq!(cluster.send(0, &revert("7", r#"{"revision": "1"}"#)).status, 200);
        let (mut seen, mut path) = (Vec::new(), "/api/v1/tuning/history?limit=3".to_owned());
        loop {
            let page = cluster.get(0, &path).body;
            seen.extend(page["changes"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/api/v1/tuning/history?limit=3&before={next}");
        }
        let revisions: Vec<_> = seen.iter().map(|row| row["revision"].as_str().unwrap()).collect();
        assert_eq!(revisions, ["8", "7", "6", "5", "4", "3", "2", "1"]);
        assert_eq!(seen[7]["reverted_by"], "8", "also where that stands on another page");
        let begin = cluster.get(0, "/api/v1/tuning/history?before=1").body;
        assert_eq!((&begin["changes"], &begin["next"]), (&json!([]), &Value::Null));
    }

    #[test]
    fn repeat_at_another_node_returns_the_end_of_the_change_that_was_made() {
        let cluster = TestCluster::start(2);
        let keyed =
            || patch("?ttl_seconds=600", "0", r#"{"fill_percent": 80}"#).header("idempotency-key", "k1");
        let first = cluster.send(0, &keyed()).body["expires_unix_ms"].as_u64().unwrap();
        while now_unix_ms() <= first - 600_000 {
            std::hint::spin_loop();
        }
        assert_eq!(cluster.send(1, &keyed()).body["expires_unix_ms"], first);
    }

    #[test]
    fn coordinator_that_is_away_refuses_changes_and_the_last_values_are_shown() {
        let cluster = TestCluster::start(2);
        let body = r#"{"fill_percent": 80}"#;
        assert_eq!(cluster.send(0, &patch("", "0", body)).status, 200);
        cluster.nodes[0].link.set_cut(true);
        for request in
            [patch("", "1", body), patch("?dry_run=1", "1", body), revert("1", r#"{"revision": "1"}"#)]
        {
            assert_eq!(cluster.send(0, &request).problem(), (503, "coordinator_down"));
        }
        assert_eq!(cluster.get(0, "/api/v1/tuning/history").problem(), (503, "unavailable"));
        let shown = cluster.get(0, "/api/v1/tuning");
        assert_eq!((shown.status, shown.header("etag")), (200, Some("\"1\"")));
        assert_eq!(setting(&shown.body, "fill_percent")["value"], "80");
    }

    #[test]
    fn repeat_of_a_change_is_not_made_again_at_the_same_node_nor_at_another() {
        let cluster = TestCluster::start(2);
        let keyed = |query, body| patch(query, "0", body).header("idempotency-key", "k1");
        let first = cluster.send(0, &keyed("", r#"{"fill_percent": 80}"#));
        let again = cluster.send(0, &keyed("", r#"{"fill_percent": 80}"#));
        assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
        assert_eq!((&again.body, again.header("etag")), (&first.body, first.header("etag")));
        let elsewhere = cluster.send(1, &keyed("", r#"{"fill_percent": 80}"#));
        assert_eq!((elsewhere.status, &elsewhere.body["revision"]), (200, &"1".into()));
        assert_eq!(elsewhere.body["changes"], first.body["changes"]);
        for other in [keyed("", r#"{"fill_percent": 81}"#), keyed("?reason=x", r#"{"fill_percent": 80}"#)] {
            assert_eq!(cluster.send(0, &other).problem(), (422, "idempotency_key_reused"));
        }
        let wrong = patch("", "1", r#"{"fill_percent": 1}"#).header("idempotency-key", "k2");
        assert_eq!(cluster.send(0, &wrong).problem(), (422, "invalid"));
        let right = patch("", "1", r#"{"fill_percent": 90}"#).header("idempotency-key", "k2");
        assert_eq!(cluster.send(0, &right).status, 200, "what did nothing keeps no key");
        let long = patch("", "2", "{}").header("idempotency-key", &"x".repeat(129));
        assert_eq!(cluster.send(0, &long).pointers(), ["/header/idempotency-key"]);
    }

    #[test]
    fn change_from_elsewhere_of_another_type_or_too_long_is_refused() {
        let cluster = TestCluster::start(1);
        let request = || TestRequest::new("PATCH", "/api/v1/tuning").header("if-match", "\"0\"");
        let body = r#"{"fill_percent": 80}"#;
        let other = request().json(body).header("origin", "http://evil.example");
        assert_eq!(cluster.send(0, &other).problem(), (403, "origin_refused"));
        let own = format!("http://{}", cluster.nodes[0].server.address());
        let typed = |kind: &str| request().raw(body.as_bytes()).header("content-type", kind);
        for refused in
            [request().raw(body.as_bytes()), typed("text/plain"), typed("application/x-www-form-urlencoded")]
        {
            assert_eq!(cluster.send(0, &refused).problem(), (415, "unsupported_media_type"));
        }
        let long = format!(r#"{{"x": "{}"}}"#, "x".repeat(64 << 10));
        assert_eq!(cluster.send(0, &request().json(&long)).problem(), (413, "body_too_large"));
        let taken = typed("application/merge-patch+json; charset=utf-8").header("origin", &own);
        assert_eq!(cluster.send(0, &taken).status, 200);
    }

    #[test]
    fn schema_and_whoami_answer_and_take_no_parameters() {
        let cluster = TestCluster::start(1);
        let schema = cluster.get(0, "/api/v1/tuning/schema").body;
        assert_eq!(schema["settings"][0]["name"], "fill_percent");
        let who = cluster.get(0, "/api/v1/whoami");
        let roles = ["reader", "writer", "viewer", "operator", "admin"];
        let wanted = json!({
            "version": 1, "name": "admin", "role": "admin", "roles": roles, "tokens_required": false,
        });
        assert_eq!(without_times(&who), wanted);
        for path in ["tuning?x=1", "tuning/schema?x=1", "tuning/history?x=1", "whoami?x=1"] {
            assert_eq!(cluster.get(0, &format!("/api/v1/{path}")).pointers(), ["/query/x"]);
        }
        assert_eq!(cluster.get(0, "/api/v1/tuning/history?limit=0").pointers(), ["/query/limit"]);
    }

    #[test]
    fn tuning_of_a_node_that_is_gone_is_missing() {
        let mut cluster = TestCluster::start(2);
        let gone = cluster.nodes.remove(1);
        let address = gone.server.address().to_string();
        gone.server.shutdown();
        let document = cluster.get(0, "/api/v1/tuning").body;
        assert_eq!(
            (&document["missing"][0]["node"], &document["missing"][0]["address"]),
            (&1.into(), &address.into())
        );
        assert_eq!(document["nodes"].as_array().unwrap().len(), 1);
        assert_eq!(cluster.get(0, "/api/v1/tuning?scope=node").body["revision"], "0");
    }
}
